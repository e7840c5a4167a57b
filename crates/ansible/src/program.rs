//! Programs of Ansible that answer a question and end. Nothing that a person has set for their own leaks in, and all that they start is
//! gone when they have answered, or when nobody waits for them any more.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::FileError;

/// Why a program of Ansible gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A program cannot be started.
    #[error("start {program}")]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// Says which file an error is about.
    pub(crate) fn of(path: &Path) -> impl Fn(std::io::Error) -> Self + use<> {
        let of_file = FileError::of(path);
        move |source| Self::File(of_file(source))
    }
}

/// A program with an environment for us to read its answer.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("ANSIBLE_") || name.starts_with("PYTHON") {
            command.env_remove(name.as_ref());
        }
    }
    command
        .env("ANSIBLE_NOCOLOR", "1")
        .env("ANSIBLE_DEPRECATION_WARNINGS", "0")
        // One line each, so that an error ends where it ends.
        .env("COLUMNS", "4096")
        .env("LC_ALL", "C.UTF-8")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// What the program says to this input.
///
/// # Errors
///
/// It cannot be started or waited for. How it ends is no error.
pub(crate) async fn output(mut command: Command, input: &str) -> Result<Output, Error> {
    let program = PathBuf::from(command.as_std().get_program());
    let failed = |source| Error::Start {
        program: program.clone(),
        source,
    };
    let mark = format!("{:016x}", rand::random::<u64>());
    let mut child = command
        .env(MARK, &mark)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let _descendants = Descendants {
        group: child.id().and_then(|id| i32::try_from(id).ok()),
        mark: format!("{MARK}={mark}"),
    };
    if let Some(mut stdin) = child.stdin.take() {
        // Who reads nothing has said why.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    child.wait_with_output().await.map_err(failed)
}

/// Stands in the environment of all that a program starts.
const MARK: &str = "WINDLASS_ANSWERS";

/// What a program started. It is killed when this is dropped: since ansible-core 2.18 each worker is a session of its own, so that the
/// mark tells of them, and not the group alone.
struct Descendants {
    group: Option<i32>,
    mark: String,
}

impl Drop for Descendants {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // One that has ended needs no signal.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        for _ in 0..ROUNDS {
            let left = marked(&self.mark);
            if left.is_empty() {
                return;
            }
            for pid in left {
                let _ = kill(pid, Signal::SIGKILL);
            }
            thread::sleep(LOOK);
        }
    }
}

/// How often is looked, and how long a killed process may take to be gone in between: a second in all.
pub(crate) const ROUNDS: u32 = 50;
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// The processes with a variable, as `NAME=VALUE`, in their environment.
pub(crate) fn marked(variable: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| words(*pid, "environ").any(|word| word == variable.as_bytes()))
        .map(Pid::from_raw)
        .collect()
}

/// What the kernel keeps as words that end in a zero byte. A process that is gone, or another user's, has none.
pub(crate) fn words(pid: i32, file: &str) -> impl Iterator<Item = Vec<u8>> {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let words: Vec<Vec<u8>> = bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    words.into_iter()
}
