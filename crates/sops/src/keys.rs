//! Private keys of age, from where SOPS looks for them.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use age::{Identity, x25519};
use secrecy::zeroize::Zeroizing;

/// Private keys. They have no `Debug`.
#[derive(Default)]
pub struct Keys {
    keys: Vec<Key>,
    /// Where there is none, and what is no key of the kind that is read.
    passed: Vec<String>,
}

struct Key {
    identity: x25519::Identity,
    from: String,
}

/// Why a key cannot be read. No error holds anything of what is in the file.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A file cannot be read.
    #[error("read the key file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others can read a file.
    #[error(
        "the key file {path} can be read by others than its owner (mode {mode:04o}): chmod 600 {path}, and make a new key if others use this machine"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file is too large.
    #[error("the key file {path} has more than 1 MiB: it is no file of keys")]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// A file is encrypted itself.
    #[error(
        "the key file {path} is itself encrypted by a passphrase, which is not asked for: hand the key on in the environment, as in \
         SOPS_AGE_KEY=\"$(age -d {path})\" windlass ..."
    )]
    Encrypted {
        /// The file.
        path: PathBuf,
    },
    /// A line is no key.
    #[error(
        "{place}, line {line}: it is no private key of age, which begins with AGE-SECRET-KEY-1, nor a comment"
    )]
    Line {
        /// The file or the variable.
        place: String,
        /// The line, from 1.
        line: usize,
    },
}

impl Keys {
    /// Reads the keys of a file; where none is named, those of all places in which SOPS looks: the variables `SOPS_AGE_KEY` and
    /// `SOPS_AGE_KEY_FILE`, and `sops/age/keys.txt` of the user's configuration. That a place has no key is no error.
    ///
    /// # Errors
    ///
    /// A file that is named cannot be read, others can read one, or a line of it is no key.
    pub fn find(
        file: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, KeyError> {
        let mut keys = Self::default();
        if let Some(file) = file {
            keys.read(file)?;
            return Ok(keys);
        }
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        match set(KEY).map(Zeroizing::new) {
            Some(text) => keys.add(&text, KEY, str::split_whitespace)?,
            None => keys.passed.push(format!("{KEY} is not set")),
        }
        match set(KEY_FILE) {
            Some(file) => keys.read(Path::new(&file))?,
            None => keys.passed.push(format!("{KEY_FILE} is not set")),
        }
        let configuration = set("XDG_CONFIG_HOME").map(PathBuf::from);
        let configuration =
            configuration.or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")));
        if let Some(usual) = configuration.map(|place| place.join(USUAL_FILE)) {
            if usual.exists() {
                keys.read(&usual)?;
            } else {
                keys.passed.push(format!("there is no {}", usual.display()));
            }
        }
        let others = NOT_READ.iter().filter(|name| set(name).is_some());
        let others = others.map(|name| format!("{name} is set and not used here"));
        keys.passed.extend(others);
        Ok(keys)
    }

    /// Adds the keys of a file.
    fn read(&mut self, path: &Path) -> Result<(), KeyError> {
        let failed = |source| KeyError::Read {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let is_mine = metadata.uid() == nix::unistd::geteuid().as_raw();
        // As ssh has it: another's file, as one that is mounted into a pod, is as its owner wants it.
        if metadata.is_file() && is_mine && metadata.mode() & 0o077 != 0 {
            return Err(KeyError::Open {
                path: path.to_owned(),
                mode: metadata.mode() & 0o7777,
            });
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST));
        let longest = u64::try_from(LONGEST).unwrap_or(u64::MAX);
        file.take(longest).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() == LONGEST {
            return Err(KeyError::Long {
                path: path.to_owned(),
            });
        }
        if crate::is_age(&bytes) {
            return Err(KeyError::Encrypted {
                path: path.to_owned(),
            });
        }
        let place = path.display().to_string();
        let text = str::from_utf8(&bytes).map_err(|_| KeyError::Line {
            place: place.clone(),
            line: 1,
        })?;
        self.add(text, &place, |line| std::iter::once(line.trim()))
    }

    /// Adds the keys of a text, of which each line has some.
    fn add<'a, Words: Iterator<Item = &'a str>>(
        &mut self,
        text: &'a str,
        place: &str,
        words: impl Fn(&'a str) -> Words,
    ) -> Result<(), KeyError> {
        for (line, text) in (1..).zip(text.lines()) {
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            for word in words(text) {
                if let Some((_, kind)) = OTHER_KINDS
                    .iter()
                    .find(|(begin, _)| word.starts_with(begin))
                {
                    let passed = format!("{place}, line {line}, is {kind}, which is not used here");
                    self.passed.push(passed);
                    continue;
                }
                let identity = word.parse().map_err(|_| KeyError::Line {
                    place: place.to_owned(),
                    line,
                })?;
                self.keys.push(Key {
                    identity,
                    from: place.to_owned(),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn identities(&self) -> impl Iterator<Item = &dyn Identity> {
        self.keys.iter().map(|key| &key.identity as &dyn Identity)
    }

    /// What was tried and did not fit, and what to do.
    pub(crate) fn tried(&self) -> String {
        let tried = self.keys.iter();
        let tried = tried.map(|key| format!("that of {} ({})", key.identity.to_public(), key.from));
        let tried: Vec<_> = tried.collect();
        let mut said = if tried.is_empty() {
            "there is no private key".to_owned()
        } else {
            format!("no private key fits: tried {}", tried.join(", "))
        };
        if !self.passed.is_empty() {
            said += &format!(" ({})", self.passed.join("; "));
        }
        said + "; name the file with the private key with --age-key-file FILE"
    }
}

const KEY: &str = "SOPS_AGE_KEY";
const KEY_FILE: &str = "SOPS_AGE_KEY_FILE";

/// Where SOPS keeps keys, in the configuration of a user.
const USUAL_FILE: &str = "sops/age/keys.txt";

/// Where SOPS has keys from as well: programs, which are not started, and keys of ssh.
const NOT_READ: [&str; 3] = [
    "SOPS_AGE_KEY_CMD",
    "SOPS_AGE_SSH_PRIVATE_KEY_FILE",
    "SOPS_AGE_SSH_PRIVATE_KEY_CMD",
];

/// Private keys of other kinds, by how they begin.
const OTHER_KINDS: [(&str, &str); 2] = [
    ("AGE-PLUGIN-", "a key of a plugin"),
    ("AGE-SECRET-KEY-PQ-1", "a post-quantum key"),
];

/// No file of keys is longer, in bytes.
const LONGEST: usize = 1 << 20;
