//! Makes the Python environment that a kubespray release needs: exactly its requirements, on a Python that fits.
//!
//! Environments are named by the hash of what they are made from and built once. A virtual environment holds its own path,
//! so it is built where it stays, and counts only once the file `complete` is in it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::LazyLock,
};

use regex::Regex;
use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::{
    FileError,
    catalogue::{CoreRange, CoreVersion, PythonRange, PythonVersion},
};

/// What an environment is made for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The playbooks; their `requirements.txt` says what is installed.
    pub checkout: PathBuf,
    /// The Pythons that the release runs on.
    pub python: PythonRange,
    /// The ansible-core that the release accepts.
    pub core: CoreRange,
    /// What the requirements may name.
    pub packages: Packages,
}

/// What requirements may name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Packages {
    /// Packages of the index, and hashes of them: the playbooks are somebody else's.
    OfTheIndex,
    /// Whatever an installer takes: who asks has written them.
    Any,
}

/// A Python environment that was verified.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sandbox {
    /// The directory.
    pub path: PathBuf,
    /// What it was made from, as a hash in hex.
    pub digest: String,
    /// The version of ansible-core.
    pub core: CoreVersion,
}

impl Sandbox {
    /// `ansible-playbook` of the environment.
    pub fn ansible_playbook(&self) -> PathBuf {
        self.path.join("bin/ansible-playbook")
    }
}

/// Why there is no environment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// No Python fits and none could be had.
    #[error(
        "find a Python from {oldest} to {newest}: none is on this machine and uv could not bring one ({reason}); install \
         for example python{newest} with its venv module"
    )]
    NoPython {
        /// The oldest that fits.
        oldest: PythonVersion,
        /// The newest that fits.
        newest: PythonVersion,
        /// Why uv brought none.
        reason: String,
    },
    /// uv is not there and cannot be installed.
    #[error(
        "install uv {UV}, which makes Python environments ({0}); install that version by hand, or python3-venv and \
         python3-pip"
    )]
    NoUv(String),
    /// The requirements say more than what is to be installed.
    #[error(
        "read requirements.txt: {0:?} is no package: requirements name packages of the index, and hashes of them, alone"
    )]
    NotAPackage(String),
    /// Something that was started failed.
    #[error("{action}: {reason}")]
    Command {
        /// What it was to do.
        action: &'static str,
        /// The end of what it said.
        reason: String,
    },
    /// The environment is not what the release needs.
    #[error("verify the environment {path}: {reason}")]
    Unfit {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Makes the environment, unless it is there, and verifies it. `progress` hears what is being done.
///
/// # Errors
///
/// No fitting Python or uv can be had, the requirements name more than packages, the installation fails, or what came of it is
/// not what the release needs.
pub async fn ensure(
    request: &Request,
    cache: &Path,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<Sandbox, Error> {
    fs::create_dir_all(cache).map_err(FileError::of(cache))?;
    let file = request.checkout.join("requirements.txt");
    let requirements = fs::read_to_string(&file).map_err(FileError::of(&file))?;
    if request.packages == Packages::OfTheIndex
        && let Some(line) = not_a_package(&requirements)
    {
        return Err(Error::NotAPackage(api::text::plain(line, 160)));
    }
    let digest = digest(&requirements, request.python);
    let path = cache.join(&digest);
    let lock = lock(cache.join(format!("{digest}.lock"))).await?;
    let complete = path.join("complete");
    let collections = wants_collections(&requirements);
    if complete.exists() {
        progress("verifying the environment");
        match verify(&path, request.core, collections).await {
            // Something took a part of it away: a wrong version would come again, a missing file does not.
            Err(Error::Command { reason, .. }) => progress(&format!("building it anew: {reason}")),
            verified => {
                let core = verified?;
                return Ok(Sandbox { path, digest, core });
            }
        }
    }
    build(
        &path,
        (&file, &requirements),
        request.python,
        cache,
        progress,
    )
    .await?;
    progress("verifying the environment");
    let core = match verify(&path, request.core, collections).await {
        Err(Error::Command { reason, .. }) => return Err(Error::Unfit { path, reason }),
        verified => verified?,
    };
    fs::write(&complete, core.to_string()).map_err(FileError::of(&complete))?;
    drop(lock);
    Ok(Sandbox { path, digest, core })
}

/// The environment as an image brings it along: complete, verified, and never written to. None: this one is not there.
pub async fn find(request: &Request, cache: &Path) -> Option<Sandbox> {
    let requirements = fs::read_to_string(request.checkout.join("requirements.txt")).ok()?;
    let digest = digest(&requirements, request.python);
    let path = cache.join(&digest);
    if !path.join("complete").exists() {
        return None;
    }
    let collections = wants_collections(&requirements);
    let core = verify(&path, request.core, collections).await.ok()?;
    Some(Sandbox { path, digest, core })
}

/// Counts up when environments are built in another way.
const LAYOUT: u8 = 2;

fn digest(requirements: &str, python: PythonRange) -> String {
    let mut hash = Sha256::new();
    hash.update(requirements);
    hash.update(format!("\0{}\0{}\0{LAYOUT}", python.oldest, python.newest));
    let mut digest = hex::encode(hash.finalize());
    digest.truncate(32);
    digest
}

async fn lock(path: PathBuf) -> Result<fs::File, Error> {
    let failed = FileError::of(&path);
    let file = fs::File::create(&path).map_err(&failed)?;
    tokio::task::spawn_blocking(move || file.lock().map(|()| file))
        .await
        .map_err(io::Error::other)
        .flatten()
        .map_err(|error| failed(error).into())
}

async fn build(
    path: &Path,
    (requirements, text): (&Path, &str),
    python: PythonRange,
    cache: &Path,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), Error> {
    if path.exists() {
        fs::remove_dir_all(path).map_err(FileError::of(path))?;
    }
    let uv = uv(cache, progress).await?;
    let interpreter = interpreter(python, &uv, progress).await?;
    progress("making a virtual environment");
    let mut venv = Command::new(&uv);
    venv.args(["venv", "--quiet", "--python"])
        .arg(&interpreter)
        .arg(path);
    output(&mut venv, "make a virtual environment").await?;
    progress(
        "installing Ansible and what kubespray needs (some hundred megabytes, a few seconds to a minute)",
    );
    let mut install = Command::new(&uv);
    install
        .args(["pip", "install", "--quiet", "--python"])
        .arg(path.join("bin/python"));
    install.arg("--requirement").arg(requirements);
    if has_hashes(text) {
        install.arg("--require-hashes");
    }
    output(&mut install, "install the requirements").await?;
    progress("compiling Ansible");
    let mut compile = Command::new(path.join("bin/python"));
    compile
        .args(["-m", "compileall", "-q", "-j", "0", "-x", NOT_COMPILED])
        .arg(path.join("lib"));
    output(&mut compile, "compile Ansible").await?;
    Ok(())
}

/// A line of requirements that names anything but a package of the index: an option, another file whose text errors would
/// show, an address, a path, a variable of the environment.
///
/// # Source
/// The dependency specifiers of PyPA (names, extras, versions, markers) without their direct references, and pip's
/// requirements file format for comments, `--hash` and continued lines.
fn not_a_package(requirements: &str) -> Option<&str> {
    static PACKAGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let name = r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\s*\[[A-Za-z0-9._,\s-]*\])?";
        let versions = r"(?:\s*(?:[=<>!~]=?=?\s*[A-Za-z0-9.*+!_-]+)(?:\s*,\s*[=<>!~]=?=?\s*[A-Za-z0-9.*+!_-]+)*)?";
        let marker = r#"(?:\s*;(?:[A-Za-z0-9_.\s<>=!~()'"]|\b-\b)*?)?"#;
        let hashes = r"(?:(?:^|\s+)--hash=[a-z0-9]+:[0-9a-f]+)*";
        Regex::new(&format!(r"^(?:{name}{versions}{marker})?{hashes}\s*\\?$")).ok()
    });
    // A lone carriage return ends a line for who installs.
    let mut lines = requirements.split(['\n', '\r']).map(str::trim_start);
    lines.find(|line| {
        let line = match line.find(" #") {
            _ if line.starts_with('#') => "",
            Some(comment) => line.get(..comment).unwrap_or_default(),
            None => line,
        }
        .trim_end();
        let archive = ARCHIVES
            .iter()
            .any(|end| line.to_lowercase().ends_with(end));
        archive
            || !PACKAGE
                .as_ref()
                .is_some_and(|package| package.is_match(line))
    })
}

/// How files end that an installer takes for packages.
const ARCHIVES: [&str; 6] = [".whl", ".zip", ".tar", ".gz", ".bz2", ".xz"];

/// Whether requirements say what exactly is to come.
fn has_hashes(requirements: &str) -> bool {
    requirements.contains("--hash=")
}

/// uv in the version that is pinned: as it is on the machine, else from a virtual environment in the cache.
async fn uv(cache: &Path, progress: &(dyn Fn(&str) + Send + Sync)) -> Result<PathBuf, Error> {
    if let Some(uv) = on_path("uv")
        && output(Command::new(&uv).arg("--version"), "ask uv")
            .await
            .is_ok_and(|said| said.split_whitespace().nth(1) == Some(UV))
    {
        return Ok(uv);
    }
    let directory = cache.join(format!("uv-{UV}"));
    let uv = directory.join("bin/uv");
    let _lock = lock(cache.join("uv.lock")).await?;
    if uv.exists() {
        return Ok(uv);
    }
    progress("installing uv");
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(&directory);
    output(&mut venv, "make a virtual environment for uv")
        .await
        .map_err(|e| Error::NoUv(e.to_string()))?;
    let pinned = directory.join("requirements.txt");
    fs::write(&pinned, uv_requirement()).map_err(FileError::of(&pinned))?;
    let mut pip = Command::new(directory.join("bin/pip"));
    pip.args(["install", "--quiet", "--require-hashes", "--no-deps"])
        .args(["--only-binary", ":all:", "--requirement"])
        .arg(&pinned);
    output(&mut pip, "install uv by pip")
        .await
        .map_err(|e| Error::NoUv(e.to_string()))?;
    Ok(uv)
}

/// The version of uv that makes environments.
const UV: &str = "0.13.9";

/// The SHA-256 of its wheels.
///
/// # Source
/// The package index, for glibc and musl on x86-64 and arm64.
const UV_WHEELS: [&str; 4] = [
    "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
    "2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25",
    "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
    "ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375",
];

fn uv_requirement() -> String {
    let hashes = UV_WHEELS.map(|hash| format!(" --hash=sha256:{hash}"));
    format!("uv=={UV}{}\n", hashes.concat())
}

/// A Python that fits: the newest on the machine, else one that uv brings.
async fn interpreter(
    range: PythonRange,
    uv: &Path,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<PathBuf, Error> {
    for version in range.newest_first() {
        for candidate in candidates(version) {
            if is_version(&candidate, version).await {
                return Ok(candidate);
            }
        }
    }
    progress("fetching a Python");
    let newest = range.newest.to_string();
    let brought = output(
        Command::new(uv).args(["python", "install", "--quiet", &newest]),
        "fetch a Python",
    )
    .await;
    let found = match brought {
        Ok(_) => {
            output(
                Command::new(uv).args(["python", "find", &newest]),
                "find the Python",
            )
            .await
        }
        Err(error) => Err(error),
    };
    found
        .map(|path| PathBuf::from(path.trim()))
        .map_err(|error| Error::NoPython {
            oldest: range.oldest,
            newest: range.newest,
            reason: error.to_string(),
        })
}

/// Where a Python of a version may be. Shims of version managers come last: they may stand for nothing.
fn candidates(version: PythonVersion) -> Vec<PathBuf> {
    let name = format!("python{version}");
    let mut found = vec![
        Path::new("/usr/bin").join(&name),
        Path::new("/usr/local/bin").join(&name),
    ];
    if let Some(home) = env::home_dir()
        && let Ok(versions) = fs::read_dir(home.join(".pyenv/versions"))
    {
        found.extend(
            versions
                .flatten()
                .map(|entry| entry.path().join("bin").join(&name)),
        );
    }
    found.extend(on_path(&name));
    found.retain(|path| path.exists());
    found
}

/// Whether a Python answers, is of that version, and can make virtual environments.
async fn is_version(python: &Path, version: PythonVersion) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]);
    output(&mut command, "ask Python")
        .await
        .is_ok_and(|said| said.trim() == version.to_string())
}

fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// Whether requirements name the package `ansible`, which brings the collections beside ansible-core.
fn wants_collections(requirements: &str) -> bool {
    requirements.lines().any(|line| {
        let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
        line.get(..end.unwrap_or(line.len())) == Some("ansible")
    })
}

/// Compiled beforehand, Ansible starts in half the time. Its collections and modules are mostly sent to hosts as source, and
/// are many; its test data is not even Python.
const NOT_COMPILED: &str = "ansible_collections|ansible/modules|/ansible_test/|/templates/";

/// Asks the environment what it is. `Error::Command` says that a part of it does not work.
async fn verify(path: &Path, range: CoreRange, collections: bool) -> Result<CoreVersion, Error> {
    let unfit = |reason: String| Error::Unfit {
        path: path.to_owned(),
        reason,
    };
    let program = "import ansible.release, netaddr; print(ansible.release.__version__)";
    let mut command = Command::new(path.join("bin/python"));
    command.args(["-c", program]);
    let said = output(&mut command, "import ansible and netaddr").await?;
    let core =
        core_version(said.trim()).ok_or_else(|| unfit(format!("ansible-core is {said:?}")))?;
    if !range.contains(core) {
        return Err(unfit(format!(
            "ansible-core is {core}, the release accepts {} up to, but not, {}",
            range.from, range.before
        )));
    }
    if collections {
        let mut command = Command::new(path.join("bin/python"));
        command.args(["-c", COLLECTIONS]);
        output(&mut command, "find the collections that kubespray uses").await?;
    }
    let mut command = Command::new(path.join("bin/ansible-playbook"));
    command
        .arg("--version")
        .env_remove("ANSIBLE_CONFIG")
        .current_dir(path);
    output(&mut command, "start ansible-playbook").await?;
    Ok(core)
}

/// Looks for the collections that kubespray's roles use from 2.20 on, where the package `ansible` puts them.
const COLLECTIONS: &str = r#"
import os, sys, ansible_collections
roots = list(ansible_collections.__path__)
wanted = ["ansible.posix", "ansible.utils", "community.crypto", "community.general", "kubernetes.core"]
missing = [name for name in wanted if not any(os.path.isdir(os.path.join(root, *name.split("."))) for root in roots)]
sys.exit("missing: " + ", ".join(missing) if missing else 0)
"#;

fn core_version(text: &str) -> Option<CoreVersion> {
    let mut parts = text.split('.').map(|part| {
        let digits = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        part.get(..digits)?.parse().ok()
    });
    Some(CoreVersion(parts.next()??, parts.next()??, parts.next()??))
}

/// Runs a command without input; gives what it printed, or the end of what it complained.
async fn output(command: &mut Command, action: &'static str) -> Result<String, Error> {
    // What is set for another Python must not reach this one.
    command
        .env_remove("PYTHONPATH")
        .env_remove("PYTHONHOME")
        .env_remove("VIRTUAL_ENV");
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| Error::Command {
            action,
            reason: error.to_string(),
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let tail = lines
        .get(lines.len().saturating_sub(5)..)
        .unwrap_or_default()
        .join("; ");
    Err(Error::Command {
        action,
        reason: format!("{} ({tail})", output.status),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_come_with_the_package_ansible_alone() {
        for (requirements, expected) in [
            ("ansible==10.7.0\nnetaddr==1.3.0\n", true),
            ("# all\nansible\n", true),
            ("ansible-core>=2.17.3,<2.18\nnetaddr\n", false),
            ("", false),
        ] {
            assert_eq!(wants_collections(requirements), expected, "{requirements}");
        }
    }

    #[test]
    fn only_packages_of_the_index_and_their_hashes_are_requirements() {
        for (requirements, expected) in [
            ("ansible==10.7.0\n# -r other\n", None),
            (
                "ansible-core>=2.17.7,<2.18\nnetaddr==1.3.0 # for filters",
                None,
            ),
            ("MarkupSafe==1.1.1 ; python_version < \"3.9\"\n", None),
            ("a[b,c] ~= 1.0\nd!=2.*\n\nruamel.yaml.clib==0.2.8\n", None),
            (
                "a @ https://192.0.2.1/a.whl\n",
                Some("a @ https://192.0.2.1/a.whl"),
            ),
            ("a@file:///etc/shadow\n", Some("a@file:///etc/shadow")),
            ("git+https://192.0.2.1/a\n", Some("git+https://192.0.2.1/a")),
            ("./a\n", Some("./a")),
            ("a==1\r\nb==2\r\n", None),
            ("# a\r-r /etc/shadow", Some("-r /etc/shadow")),
            ("a==1 #\r--index-url b", Some("--index-url b")),
            ("a/b.tar.gz\n", Some("a/b.tar.gz")),
            ("a-1-py3-none-any.whl\n", Some("a-1-py3-none-any.whl")),
            ("a==${HOME}\n", Some("a==${HOME}")),
            ("a==1 -r b\n", Some("a==1 -r b")),
            ("a==1 --index-url=b\n", Some("a==1 --index-url=b")),
            ("a; b == 'c' --pre\n", Some("a; b == 'c' --pre")),
            ("a; b == 'c-d' --hash=sha256:00\n", None),
            ("a==1 \\\n  --find-links b\n", Some("--find-links b")),
            ("ansible==10.7.0 \\\n    --hash=sha256:00\n", None),
            ("a\n  -r /etc/shadow\n", Some("-r /etc/shadow")),
            (
                "--index-url=http://192.0.2.1\n",
                Some("--index-url=http://192.0.2.1"),
            ),
            ("-e .\n", Some("-e .")),
        ] {
            assert_eq!(not_a_package(requirements), expected, "{requirements}");
        }
        assert!(has_hashes(&uv_requirement()) && !has_hashes("ansible==10.7.0\n"));
        assert!(uv_requirement().starts_with("uv==0.13.9 --hash=sha256:"));
    }

    #[test]
    fn pre_releases_count_as_their_release() {
        assert_eq!(core_version("2.17.14"), Some(CoreVersion(2, 17, 14)));
        assert_eq!(core_version("2.18.0rc1"), Some(CoreVersion(2, 18, 0)));
        assert_eq!(core_version("2.18"), None);
    }
}
