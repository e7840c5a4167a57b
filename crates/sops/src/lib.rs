//! Files that people encrypt with SOPS or with age alone, opened in memory: no program is started, no key service is asked, and nothing
//! is written.
//!
//! A file of SOPS is a document whose values are encrypted one by one with a key of the document ([`open`]). That key stands in it,
//! encrypted for each of the people who may read it, of whom those with a key of age are served. A digest over all values, in their order,
//! shows whether one was altered, added or taken away. What SOPS leaves in the open beside them, keys of maps above all, it does not
//! digest, and nobody can who reads its files.
//!
//! There is a crate that does this, `rops`. It reads one document a file, by an archived reader of YAML that has other numbers and no times,
//! does not know the rules that go by comments, and is under a licence that is not taken here. The format is small; what makes it large is
//! how Go reads YAML, which is in `document` and `scalar`.
//!
//! # Source
//!
//! SOPS 3.13, `sops.go`, `aes/cipher.go`, `stores/yaml`, `stores/json`; <https://age-encryption.org/v1>.

mod document;
mod keys;
mod metadata;
mod scalar;
mod value;

use std::{io::Read as _, sync::Arc};

use age::{Decryptor, armor::ArmoredReader};
use secrecy::zeroize::Zeroizing;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha512};

use document::{Format, Node};
use metadata::{Below, Metadata};
use scalar::Scalar;
use value::{DataKey, Plain};

pub use document::ReadError;
pub use keys::{KeyError, Keys};
pub use metadata::MetadataError;
pub use value::ValueError;

/// No file is longer, in bytes: an object of Kubernetes has a megabyte and a half.
const LONGEST: usize = 16 << 20;

/// In bytes. All names above a value are read anew with it, as its seal covers them.
const LONGEST_PLACE: usize = 8 << 10;

/// In characters. An error shows no more of a path.
const SHOWN_PATH: usize = 200;

/// What a file of SOPS holds.
pub struct Opened {
    /// Its documents, without those that are empty and without what SOPS keeps in them of its own.
    pub documents: Vec<Value>,
    /// What was encrypted.
    pub secrets: Vec<Secret>,
}

/// A value that was encrypted. It has no `Debug`, so that nothing prints it by accident.
pub struct Secret {
    /// The field of the document that it stands in or below.
    pub field: Arc<str>,
    /// The field of that one, where it stands in such a field itself and not below it.
    pub within: Option<Arc<str>>,
    /// Its text; none of what is true or false, words that are everywhere.
    pub text: String,
}

/// Why a file cannot be opened. No error holds anything of what is encrypted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is larger than any manifest.
    #[error("it has more than 16 MiB: that is no manifest")]
    Long,
    /// It cannot be read as SOPS writes it.
    #[error(transparent)]
    Read(ReadError),
    /// What SOPS keeps in it is not what SOPS writes.
    #[error(transparent)]
    Metadata(MetadataError),
    /// No private key fits.
    #[error("it is encrypted for {recipients}, and {keys}")]
    NoKey {
        /// The public keys that it is encrypted for, where they stand in it.
        recipients: String,
        /// What was tried, and what to do.
        keys: String,
    },
    /// It is encrypted by a passphrase.
    #[error(
        "it is encrypted by a passphrase, which is not asked for: encrypt it for a public key, with age -r"
    )]
    Passphrase,
    /// The envelope of age was altered or cut.
    #[error("it was altered or cut: age refuses {what}")]
    Envelope {
        /// What does not open.
        what: String,
    },
    /// A value cannot be opened.
    #[error("{path}: {reason}")]
    Value {
        /// Where it stands.
        path: String,
        /// Why.
        reason: ValueError,
    },
    /// The digest is another one.
    #[error(
        "it was altered after SOPS wrote it: a value was changed, added, moved or removed without it (its sops.mac does not fit); \
         have the one who changed it do so with `sops edit`"
    )]
    Altered,
    /// What is in it is no text.
    #[error("what is encrypted is no text in UTF-8")]
    NoText,
}

/// Whether a file is encrypted by age as a whole.
pub fn is_age(file: &[u8]) -> bool {
    let file = file.trim_ascii_start();
    file.starts_with(b"age-encryption.org/")
        || file.starts_with(b"-----BEGIN AGE ENCRYPTED FILE-----")
}

/// Whether a text has documents of SOPS.
pub fn is_sops(text: &str) -> bool {
    text.contains(metadata::FIELD) && document::has_field(text, metadata::FIELD)
}

/// Whether a value, or one in it, is one that SOPS has encrypted: in a document without what SOPS keeps there, nobody can open it.
pub fn is_left_sealed(value: &Value) -> bool {
    match value {
        Value::String(text) => value::is_sealed(text),
        Value::Array(items) => items.iter().any(is_left_sealed),
        Value::Object(fields) => fields.values().any(is_left_sealed),
        _ => false,
    }
}

/// The text of a file that is encrypted by age as a whole.
///
/// # Errors
///
/// No key fits, or the file was altered.
pub fn unseal(file: &[u8], keys: &Keys) -> Result<Zeroizing<String>, Error> {
    let text = decrypt(file, keys, "it")?;
    let text = text.ok_or_else(|| Error::NoKey {
        recipients: "keys that age does not name".to_owned(),
        keys: keys.tried(),
    })?;
    match str::from_utf8(&text) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(Error::NoText),
    }
}

/// Opens the documents of a file of SOPS.
///
/// # Errors
///
/// No key fits, or anything in the file is not as SOPS wrote it. Nothing is returned in part.
pub fn open(text: &str, keys: &Keys) -> Result<Opened, Error> {
    if text.len() > LONGEST {
        return Err(Error::Long);
    }
    let mut documents = document::read(text).map_err(Error::Read)?;
    let metadata = Metadata::take(&mut documents).map_err(Error::Metadata)?;
    let key = data_key(&metadata, keys)?;
    let mut walk = Walk {
        key: &key,
        metadata: &metadata,
        format: Format::of(text),
        digest: metadata.digest(),
        path: Vec::new(),
        place: String::new(),
        secrets: Vec::new(),
    };
    let opened: Result<Vec<Value>, Error> = documents
        .into_iter()
        .map(|document| Ok(walk.node(document, Below::None)?.unwrap_or_default()))
        .collect();
    let mut documents = opened?;
    let (digest, secrets) = (walk.digest, walk.secrets);
    if !metadata.fits(&key, &hex::encode_upper(digest.finalize())) {
        return Err(Error::Altered);
    }
    documents.retain(|document| document.as_object().is_none_or(|fields| !fields.is_empty()));
    Ok(Opened { documents, secrets })
}

/// The key of a document, which is encrypted for each who may read it.
fn data_key(metadata: &Metadata, keys: &Keys) -> Result<DataKey, Error> {
    for recipient in &metadata.recipients {
        let what = format!("the key for {} in sops.age", recipient.public);
        if let Some(key) = decrypt(recipient.sealed.as_bytes(), keys, &what)? {
            return DataKey::new(&key).ok_or(Error::Envelope { what });
        }
    }
    let recipients: Vec<_> = metadata
        .recipients
        .iter()
        .map(|recipient| recipient.public.as_str())
        .collect();
    Err(Error::NoKey {
        recipients: recipients.join(", "),
        keys: keys.tried(),
    })
}

/// What age has encrypted; none: no key fits.
fn decrypt(sealed: &[u8], keys: &Keys, what: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    if sealed.len() > LONGEST {
        return Err(Error::Long);
    }
    let altered = || Error::Envelope {
        what: what.to_owned(),
    };
    let armored = ArmoredReader::new(sealed.trim_ascii_start());
    let decryptor = Decryptor::new_buffered(armored).map_err(|_| altered())?;
    if decryptor.is_scrypt() {
        return Err(Error::Passphrase);
    }
    let mut reader = match decryptor.decrypt(keys.identities()) {
        Ok(reader) => reader,
        Err(age::DecryptError::NoMatchingKeys) => return Ok(None),
        Err(_) => return Err(altered()),
    };
    // Of its final size: a vector that grows leaves what it held behind.
    let mut opened = Zeroizing::new(Vec::with_capacity(sealed.len()));
    reader.read_to_end(&mut opened).map_err(|_| altered())?;
    Ok(Some(opened))
}

/// Goes through documents as SOPS does, and digests what it digests.
struct Walk<'a> {
    key: &'a DataKey,
    metadata: &'a Metadata,
    format: Format,
    digest: Sha512,
    path: Vec<Arc<str>>,
    /// The same, as values are bound to it.
    place: String,
    secrets: Vec<Secret>,
}

impl Walk<'_> {
    /// A node in the open; none: it was a comment.
    fn node(&mut self, node: Node, below: Below) -> Result<Option<Value>, Error> {
        Ok(Some(match node {
            Node::Map(fields) => {
                let mut map = Map::new();
                for (name, value) in fields {
                    let value = self.field(&name, value, below)?;
                    map.insert(name, value);
                }
                Value::Object(map)
            }
            Node::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    // SOPS keeps a comment between items as one.
                    list.extend(self.node(item, below)?);
                }
                Value::Array(list)
            }
            Node::Scalar(Scalar::Null) => Value::Null,
            Node::Scalar(scalar) => return self.scalar(scalar, below),
        }))
    }

    fn field(&mut self, name: &str, value: Node, below: Below) -> Result<Value, Error> {
        let above = self.place.len();
        self.path.push(name.into());
        self.place.push_str(name);
        self.place.push(':');
        if self.place.len() > LONGEST_PLACE {
            return Err(self.wrong(ValueError::Deep));
        }
        let below = if below == Below::None && self.metadata.rule.names(name) {
            Below::Named
        } else {
            below
        };
        let value = self.node(value, below)?;
        let value = value.ok_or_else(|| self.wrong(ValueError::Comment))?;
        self.path.pop();
        self.place.truncate(above);
        Ok(value)
    }

    fn scalar(&mut self, scalar: Scalar, below: Below) -> Result<Option<Value>, Error> {
        let is_encrypted = self.metadata.rule.encrypts(below, &scalar);
        let plain = if is_encrypted {
            let opened = self.key.open(&scalar, &self.place);
            match opened.map_err(|reason| self.wrong(reason))? {
                Plain::Comment => return Ok(None),
                Plain::Scalar(plain) => plain,
            }
        } else {
            scalar
        };
        let text = plain.text();
        if is_encrypted || !self.metadata.digests_encrypted_alone {
            self.digest.update(text.as_bytes());
        }
        if is_encrypted {
            let is_word = matches!(plain, Scalar::Bool(_));
            self.secrets.push(Secret {
                field: self.path.first().cloned().unwrap_or_default(),
                within: match self.path.as_slice() {
                    [_, within] => Some(within.clone()),
                    _ => None,
                },
                text: if is_word { String::new() } else { text },
            });
        }
        let value = plain.value(self.format);
        let value = value.ok_or_else(|| self.wrong(ValueError::Infinite))?;
        Ok(Some(value))
    }

    fn wrong(&self, reason: ValueError) -> Error {
        let path = self.path.join(".");
        let path = match path.char_indices().nth(SHOWN_PATH) {
            Some((end, _)) => format!("{}…", path.get(..end).unwrap_or_default()),
            None => path,
        };
        Error::Value { path, reason }
    }
}
