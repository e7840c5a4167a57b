//! Single values: what is in `ENC[...]`, opened with the key of the document and bound to its place in it.

use aes_gcm::{
    AesGcm, KeyInit as _, Nonce, Tag,
    aead::{AeadInPlace as _, consts::U32},
    aes::Aes256,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use secrecy::zeroize::Zeroizing;

use crate::scalar::Scalar;

/// The key of a document.
pub(crate) struct DataKey(AesGcm<Aes256, U32>);

/// What a value was before it was encrypted.
pub(crate) enum Plain {
    Scalar(Scalar),
    Comment,
}

/// Why a value cannot be opened.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum ValueError {
    /// It is in the open.
    #[error(
        "it is not encrypted, and by the rules of the document it must be: it was written or moved there without SOPS; encrypt the \
         document anew"
    )]
    Open,
    /// It is not as SOPS writes it.
    #[error("it is no ENC[AES256_GCM,data:...,iv:...,tag:...,type:...] as SOPS writes it")]
    Form,
    /// It was altered, or stands at another place.
    #[error("it was altered, or moved there from another place, after SOPS encrypted it")]
    Altered,
    /// It is of a type that is not known.
    #[error(
        "it is of a type that is not known: SOPS writes str, int, float, bool, time, bytes and comment"
    )]
    Type,
    /// It is not what its type says.
    #[error("it is not of the type that it says")]
    Content,
    /// A comment stands where there is a value.
    #[error("it is a comment, and there must be a value")]
    Comment,
    /// The names above it are long together.
    #[error("the names above it have more than 8 KiB together")]
    Deep,
    /// JSON has no such number.
    #[error("it is a number that objects cannot hold: .inf and .nan are none")]
    Infinite,
}

/// The parts of an encrypted value.
struct Sealed {
    data: Zeroizing<Vec<u8>>,
    nonce: Vec<u8>,
    tag: Vec<u8>,
    kind: String,
}

impl DataKey {
    /// A key; none: it has another length.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        AesGcm::new_from_slice(bytes).ok().map(Self)
    }

    /// Opens a value that stands below these fields, each with a colon behind it.
    pub(crate) fn open(&self, scalar: &Scalar, place: &str) -> Result<Plain, ValueError> {
        let Scalar::Text(text) = scalar else {
            return Err(ValueError::Open);
        };
        if text.is_empty() {
            // SOPS leaves an empty text as it is.
            return Ok(Plain::Scalar(Scalar::Text(String::new())));
        }
        let (bytes, kind) = self.unseal(text, place)?;
        let text = str::from_utf8(&bytes).map_err(|_| ValueError::Content)?;
        let scalar = match kind.as_str() {
            "str" | "bytes" => Scalar::Text(text.to_owned()),
            "time" => Scalar::Time(text.to_owned()),
            "int" => Scalar::Integer(text.parse().map_err(|_| ValueError::Content)?),
            "float" => match text {
                "+Inf" | "-Inf" | "NaN" => return Err(ValueError::Infinite),
                _ => Scalar::Float(text.parse().map_err(|_| ValueError::Content)?),
            },
            "bool" => match text {
                "True" | "true" => Scalar::Bool(true),
                "False" | "false" => Scalar::Bool(false),
                _ => return Err(ValueError::Content),
            },
            "comment" => return Ok(Plain::Comment),
            _ => return Err(ValueError::Type),
        };
        Ok(Plain::Scalar(scalar))
    }

    /// The bytes of a text `ENC[...]` that is bound to a place, and their type.
    pub(crate) fn unseal(
        &self,
        text: &str,
        place: &str,
    ) -> Result<(Zeroizing<Vec<u8>>, String), ValueError> {
        let Sealed {
            mut data,
            nonce,
            tag,
            kind,
        } = Sealed::of(text).ok_or(if text.starts_with(BEGIN) {
            ValueError::Form
        } else {
            ValueError::Open
        })?;
        let opened = self.0.decrypt_in_place_detached(
            Nonce::from_slice(&nonce),
            place.as_bytes(),
            &mut data,
            Tag::from_slice(&tag),
        );
        opened.map_err(|_| ValueError::Altered)?;
        Ok((data, kind))
    }
}

impl Sealed {
    fn of(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(BEGIN)?.strip_suffix(']')?;
        let (data, rest) = rest.split_once(",iv:")?;
        let (nonce, rest) = rest.split_once(",tag:")?;
        let (tag, kind) = rest.split_once(",type:")?;
        let sealed = Self {
            data: Zeroizing::new(STANDARD.decode(data).ok()?),
            nonce: STANDARD.decode(nonce).ok()?,
            tag: STANDARD.decode(tag).ok()?,
            kind: kind.to_owned(),
        };
        (sealed.nonce.len() == NONCE && sealed.tag.len() == TAG).then_some(sealed)
    }
}

/// Whether a text has the form of an encrypted value.
pub(crate) fn is_sealed(text: &str) -> bool {
    Sealed::of(text).is_some()
}

const BEGIN: &str = "ENC[AES256_GCM,data:";

/// In bytes. SOPS' are longer than those of others.
const NONCE: usize = 32;

/// In bytes.
const TAG: usize = 16;
