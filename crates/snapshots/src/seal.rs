//! What a snapshot is sealed with: the format of age, for the public keys of people or by a passphrase.
//!
//! With public keys who writes snapshots cannot read them: the private key is needed by who brings one back, and by no one before.

use std::{
    fs::{File, Permissions},
    io::{self, BufReader, Read, Seek, Write},
    iter,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use age::{
    Decryptor, Encryptor, Identity, Recipient,
    secrecy::SecretString,
    stream::StreamWriter,
    {scrypt, x25519},
};
use sha2::{Digest, Sha256};

/// The most work a passphrase may ask of who opens with it, as a power of two: what age itself writes takes about a second.
const MOST_WORK: u8 = 22;

/// What seals.
pub enum Seal {
    /// Nothing does: it is stored as it is.
    Open,
    /// The public keys of those who can open it.
    Recipients(Vec<x25519::Recipient>),
    /// A passphrase.
    Passphrase(SecretString),
}

impl Seal {
    /// Whether what is stored is encrypted.
    pub const fn seals(&self) -> bool {
        !matches!(self, Self::Open)
    }
}

/// What opens.
pub enum Key {
    /// Private keys.
    Identities(Vec<x25519::Identity>),
    /// A passphrase.
    Passphrase(SecretString),
}

/// Reads a public key of age.
///
/// # Errors
///
/// Why it is none.
pub fn recipient(text: &str) -> Result<x25519::Recipient, &'static str> {
    if text.starts_with("AGE-SECRET-KEY-") {
        return Err(
            "it is a private key, which belongs into a Secret: its public one is told by age-keygen -y",
        );
    }
    text.parse()
        .map_err(|_| "it is no public key of age, which begins with age1 and has 62 characters")
}

/// Reads the private keys in a file of age's: one a line, beside comments.
///
/// # Errors
///
/// There is none, or a line is none. No line is told: it may be secret.
pub fn identities(text: &str) -> Result<Vec<x25519::Identity>, &'static str> {
    let lines = text.lines().map(str::trim);
    let keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<x25519::Identity> = keys
        .map(|line| line.parse().map_err(|_| NO_IDENTITY))
        .collect::<Result<_, _>>()?;
    if keys.is_empty() {
        return Err(NO_IDENTITY);
    }
    Ok(keys)
}

const NO_IDENTITY: &str = "it is no private key of age, as age-keygen writes it: a line that begins with AGE-SECRET-KEY-1";

/// An empty file without a name, for its owner alone: it goes with the process that has it open, however that ends.
///
/// # Errors
///
/// The directory cannot be written.
pub fn unnamed(directory: &Path) -> io::Result<File> {
    let file = tempfile::tempfile_in(directory)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// A file that takes a snapshot as it comes, and seals it on the way.
pub struct Spool {
    plain: Counted<io::Sink>,
    output: Output,
}

enum Output {
    Open(Counted<File>),
    Sealed(Box<StreamWriter<Counted<File>>>),
}

/// What a spool took.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Spooled {
    /// The size of the snapshot, in bytes.
    pub size: u64,
    /// The digest of the snapshot.
    pub digest: String,
    /// The size of the file, in bytes.
    pub stored_size: u64,
    /// The digest of the file.
    pub stored_digest: String,
}

impl Spool {
    /// Into an empty file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn into(file: &File, seal: &Seal) -> io::Result<Self> {
        let file = Counted::of(file.try_clone()?);
        let output = match seal {
            Seal::Open => Output::Open(file),
            Seal::Recipients(recipients) => {
                let recipients = recipients.iter().map(|key| key as &dyn Recipient);
                let encryptor = Encryptor::with_recipients(recipients).map_err(io::Error::other)?;
                Output::Sealed(Box::new(encryptor.wrap_output(file)?))
            }
            Seal::Passphrase(passphrase) => {
                let encryptor = Encryptor::with_user_passphrase(passphrase.clone());
                Output::Sealed(Box::new(encryptor.wrap_output(file)?))
            }
        };
        Ok(Self {
            plain: Counted::of(io::sink()),
            output,
        })
    }

    /// Takes what comes next.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.plain.write_all(bytes)?;
        match &mut self.output {
            Output::Open(file) => file.write_all(bytes),
            Output::Sealed(writer) => writer.write_all(bytes),
        }
    }

    /// The end of it.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn finish(self) -> io::Result<Spooled> {
        let file = match self.output {
            Output::Open(file) => file,
            Output::Sealed(writer) => writer.finish()?,
        };
        let (size, digest) = self.plain.end();
        let (stored_size, stored_digest) = file.end();
        Ok(Spooled {
            size,
            digest,
            stored_size,
            stored_digest,
        })
    }
}

/// Why a file was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The key is another one.
    #[error("it is encrypted for other keys than the one that is given")]
    Key,
    /// It is no file of age's, or it was altered.
    #[error("it cannot be decrypted: {0}")]
    Altered(String),
    /// A file cannot be read or written.
    #[error("a file cannot be read or written")]
    File(#[source] io::Error),
}

/// Opens a sealed file into an empty one; returns size and digest of that.
///
/// # Errors
///
/// The key does not fit, the file was altered, or a file cannot be read or written.
pub fn open(mut from: &File, to: &File, key: &Key) -> Result<(u64, String), OpenError> {
    from.rewind().map_err(OpenError::File)?;
    let sealed = BufReader::new(from);
    let decryptor = Decryptor::new_buffered(sealed).map_err(refused)?;
    let mut reader = match key {
        Key::Identities(keys) => decryptor.decrypt(keys.iter().map(|key| key as &dyn Identity)),
        Key::Passphrase(passphrase) => {
            let mut identity = scrypt::Identity::new(passphrase.clone());
            identity.set_max_work_factor(MOST_WORK);
            decryptor.decrypt(iter::once(&identity as &dyn Identity))
        }
    }
    .map_err(refused)?;
    let mut file = Counted::of(to);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // What was cut or altered is told here.
        let read = reader
            .read(&mut buffer)
            .map_err(|error| OpenError::Altered(error.to_string()))?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        file.write_all(bytes).map_err(OpenError::File)?;
    }
    Ok(file.end())
}

fn refused(error: age::DecryptError) -> OpenError {
    match error {
        age::DecryptError::NoMatchingKeys
        | age::DecryptError::DecryptionFailed
        | age::DecryptError::KeyDecryptionFailed => OpenError::Key,
        age::DecryptError::Io(error) => OpenError::Altered(error.to_string()),
        other => OpenError::Altered(other.to_string()),
    }
}

/// Counts and digests what goes through it.
pub(crate) struct Counted<W> {
    inner: W,
    digest: Sha256,
    size: u64,
}

impl<W> Counted<W> {
    pub(crate) fn of(inner: W) -> Self {
        Self {
            inner,
            digest: Sha256::new(),
            size: 0,
        }
    }

    pub(crate) fn end(self) -> (u64, String) {
        (self.size, hex::encode(self.digest.finalize()))
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        if let Some(bytes) = bytes.get(..written) {
            self.digest.update(bytes);
        }
        self.size = self
            .size
            .saturating_add(u64::try_from(written).unwrap_or(0));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a file has, from its beginning.
    fn content(mut file: &File) -> Vec<u8> {
        let mut content = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut content).unwrap();
        content
    }

    fn sealed(directory: &Path, seal: &Seal, whole: &[u8]) -> (File, Spooled) {
        let sealed = unnamed(directory).unwrap();
        let mut spool = Spool::into(&sealed, seal).unwrap();
        for part in whole.chunks(1000) {
            spool.write(part).unwrap();
        }
        let spooled = spool.finish().unwrap();
        let file = content(&sealed);
        assert_eq!(spooled.size, whole.len() as u64);
        assert_eq!(spooled.digest, hex::encode(Sha256::digest(whole)));
        assert_eq!(spooled.stored_size, file.len() as u64);
        assert_eq!(spooled.stored_digest, hex::encode(Sha256::digest(&file)));
        let mode = sealed.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Nothing is left of it when it is closed, however that comes about.
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0);
        (sealed, spooled)
    }

    #[test]
    fn what_is_sealed_opens_with_its_key_alone() {
        let directory = tempfile::tempdir().unwrap();
        let whole: Vec<u8> = (0..200_000_u32)
            .map(|number| (number % 251) as u8)
            .collect();
        let key = x25519::Identity::generate();
        let seal = Seal::Recipients(vec![recipient(&key.to_public().to_string()).unwrap()]);
        let (mut file, spooled) = sealed(directory.path(), &seal, &whole);
        assert!(seal.seals());
        let empty = || unnamed(directory.path()).unwrap();
        let to = empty();
        let mine = Key::Identities(vec![key]);
        let (size, digest) = open(&file, &to, &mine).unwrap();
        assert_eq!((size, &digest), (spooled.size, &spooled.digest));
        assert_eq!(content(&to), whole);

        let other = Key::Identities(vec![x25519::Identity::generate()]);
        let refused = open(&file, &empty(), &other);
        assert!(matches!(refused, Err(OpenError::Key)), "{refused:?}");
        file.set_len(spooled.stored_size - 10).unwrap();
        let refused = open(&file, &empty(), &mine);
        assert!(matches!(refused, Err(OpenError::Altered(_))), "{refused:?}");
        file.rewind().unwrap();
        file.write_all(&whole).unwrap();
        let refused = open(&file, &empty(), &mine);
        assert!(matches!(refused, Err(OpenError::Altered(_))), "{refused:?}");
    }

    #[test]
    fn a_passphrase_opens_what_it_sealed() {
        let directory = tempfile::tempdir().unwrap();
        let phrase = |text: &str| SecretString::from(text.to_owned());
        let seal = Seal::Passphrase(phrase("one"));
        let (file, spooled) = sealed(directory.path(), &seal, b"etcd");
        let empty = || unnamed(directory.path()).unwrap();
        let opened = open(&file, &empty(), &Key::Passphrase(phrase("one"))).unwrap();
        assert_eq!(opened, (4, spooled.digest));
        let refused = open(&file, &empty(), &Key::Passphrase(phrase("two")));
        assert!(matches!(refused, Err(OpenError::Key)), "{refused:?}");
    }

    #[test]
    fn what_is_not_sealed_is_stored_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (file, spooled) = sealed(directory.path(), &Seal::Open, b"etcd");
        assert_eq!(content(&file), b"etcd");
        assert_eq!(spooled.digest, spooled.stored_digest);
    }

    #[test]
    fn keys_are_told_from_what_is_none() {
        let key = x25519::Identity::generate();
        let secret = secrecy::ExposeSecret::expose_secret(&key.to_string()).to_owned();
        assert!(identities(&format!("# made today\n\n{secret}\n")).is_ok());
        for bad in ["", "# nothing", "age1abc", &format!("{secret}\nx")] {
            assert!(identities(bad).is_err(), "{bad}");
        }
        assert!(recipient(&secret).unwrap_err().contains("private"));
        for bad in ["", "age1abc", "ssh-ed25519 AAAA"] {
            assert!(recipient(bad).is_err(), "{bad}");
        }
    }
}
