//! Runner processes: started in a session of their own, so that they outlive the operator, and found again after its
//! restart by the identity that each writes into its run's directory.

use std::{
    collections::HashMap,
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use controller::{Key, WakeUps};
use process_wrap::tokio::{CommandWrap, ProcessSession};

use crate::{
    layout::Layout,
    obstacle::{Kind, Obstacle, last_words},
    process::Identity,
    small_log,
};

/// The file of a run's directory that says which process executes it.
pub const IDENTITY: &str = "runner.json";
/// The file of a run's directory that takes what its runner prints.
pub const LOG: &str = "runner.log";

/// How much of a log is looked through for the last words of a runner, in bytes.
const TAIL: u64 = 4096;

/// How often an adopted runner, which is nobody's child, is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Why a runner could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The run's directory could not be prepared.
    #[error("prepare {path}")]
    Directory {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The process could not be started.
    #[error("start {program}")]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// How runners are started.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program, normally the running one.
    pub program: PathBuf,
    /// Its arguments before `--run NAMESPACE/NAME --data-dir DIR`.
    pub arguments: Vec<String>,
}

/// Starts, finds and watches runners.
pub struct Supervisor {
    layout: Layout,
    command: Command,
    watched: Arc<Mutex<HashMap<Key, Identity>>>,
    deaths: Arc<Mutex<HashMap<Key, ExitStatus>>>,
    ended: WakeUps,
}

impl Supervisor {
    /// A supervisor that wakes every run whose runner has ended.
    pub fn new(layout: Layout, command: Command, ended: WakeUps) -> Self {
        Self {
            layout,
            command,
            watched: Arc::default(),
            deaths: Arc::default(),
            ended,
        }
    }

    /// The live runner of a run, if there is one. One that an earlier operator started is adopted.
    pub fn find(&self, namespace: &str, run: &str) -> Option<Identity> {
        let key = (namespace.to_owned(), run.to_owned());
        if let Some(identity) = lock(&self.watched).get(&key) {
            return Some(identity.clone());
        }
        let file = self.layout.run(namespace, run).join(IDENTITY);
        let identity = Identity::load(&file).filter(Identity::is_alive)?;
        tracing::info!(run, pid = identity.pid, "adopted a runner");
        self.watch(key, identity.clone(), None);
        Some(identity)
    }

    /// Why the last runner of a run that this operator started died, if it did.
    pub fn death(&self, namespace: &str, run: &str) -> Option<Obstacle> {
        let key = (namespace.to_owned(), run.to_owned());
        let status = *lock(&self.deaths).get(&key)?;
        let log = self.layout.run(namespace, run).join(LOG);
        let end = tail(&log).unwrap_or_default();
        let said = last_words(&end).map(|said| format!(": {said}"));
        Some(Obstacle {
            kind: Kind::Died,
            message: format!(
                "its process died and is started again: {status}{}; {} tells more",
                said.unwrap_or_default(),
                log.display()
            ),
        })
    }

    /// Starts the runner of a run.
    ///
    /// # Errors
    ///
    /// The directory or the log of the run cannot be made, or the process cannot be started.
    pub fn start(&self, namespace: &str, run: &str) -> Result<(), Error> {
        let directory = self.layout.run(namespace, run);
        let failed = |source| Error::Directory {
            path: directory.clone(),
            source,
        };
        fs::create_dir_all(&directory).map_err(failed)?;
        small_log::keep_small(&directory.join(LOG)).map_err(failed)?;
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(directory.join(LOG))
            .map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        let Command { program, arguments } = &self.command;
        let mut command = CommandWrap::with_new(program, |command| {
            command
                .args(arguments)
                .arg("--run")
                .arg(format!("{namespace}/{run}"))
                .arg("--data-dir")
                .arg(self.layout.root())
                .stdin(Stdio::null())
                .stdout(log)
                .stderr(errors);
        });
        command.wrap(ProcessSession);
        let child = command.spawn().map_err(|source| Error::Spawn {
            program: program.clone(),
            source,
        })?;
        let key = (namespace.to_owned(), run.to_owned());
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        // A process that is gone before it could be looked at has ended: its watcher says so.
        let identity = pid.and_then(Identity::of).unwrap_or(Identity {
            boot: String::new(),
            pid: 0,
            started: 0,
            namespaces: None,
        });
        tracing::info!(run, pid, "started a runner");
        self.watch(key, identity, Some(child));
        Ok(())
    }

    fn watch(
        &self,
        key: Key,
        identity: Identity,
        child: Option<Box<dyn process_wrap::tokio::ChildWrapper>>,
    ) {
        lock(&self.watched).insert(key.clone(), identity.clone());
        let watched = Arc::clone(&self.watched);
        let deaths = Arc::clone(&self.deaths);
        let ended = self.ended.clone();
        tokio::spawn(async move {
            if let Some(mut child) = child {
                let status = child.wait().await;
                tracing::info!(run = key.1, ?status, "a runner ended");
                match status {
                    Ok(status) if !status.success() => {
                        lock(&deaths).insert(key.clone(), status);
                    }
                    _ => drop(lock(&deaths).remove(&key)),
                }
            } else {
                while identity.is_alive() {
                    tokio::time::sleep(LOOK).await;
                }
                tracing::info!(run = key.1, "an adopted runner ended");
            }
            lock(&watched).remove(&key);
            ended.wake(&key);
        });
    }
}

/// The end of a log.
fn tail(log: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::{Stream, StreamExt};

    use super::*;

    fn supervisor(
        root: &std::path::Path,
        script: &str,
    ) -> (Supervisor, impl Stream<Item = Key> + Unpin) {
        let command = Command {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into(), "runner".into()],
        };
        let ended = WakeUps::default();
        let told = Box::pin(ended.stream());
        (Supervisor::new(Layout::new(root), command, ended), told)
    }

    #[tokio::test]
    async fn a_runner_gets_its_run_and_its_end_is_told() {
        let root = tempfile::tempdir().unwrap();
        let (supervisor, mut ended) = supervisor(root.path(), "echo \"$@\"");
        supervisor.start("demo", "first").unwrap();
        let key = ended.next().await.unwrap();
        assert_eq!(key, ("demo".to_owned(), "first".to_owned()));
        assert!(supervisor.find("demo", "first").is_none());
        let log = root.path().join("runs/demo/first").join(LOG);
        let expected = format!("--run demo/first --data-dir {}\n", root.path().display());
        assert_eq!(fs::read_to_string(log).unwrap(), expected);
    }

    #[tokio::test]
    async fn a_runner_that_died_leaves_its_last_words() {
        let root = tempfile::tempdir().unwrap();
        let script = "test -e \"$4/well\" || { echo noise; echo windlass: no such thing; exit 7; }";
        let (supervisor, mut ended) = supervisor(root.path(), script);
        supervisor.start("demo", "first").unwrap();
        ended.next().await.unwrap();
        let death = supervisor.death("demo", "first").unwrap();
        assert_eq!(death.kind, Kind::Died);
        let words = "exit status: 7: no such thing; ";
        assert!(death.message.contains(words), "{death:?}");
        assert_eq!(supervisor.death("demo", "second"), None);

        fs::write(root.path().join("well"), "").unwrap();
        supervisor.start("demo", "first").unwrap();
        ended.next().await.unwrap();
        assert_eq!(supervisor.death("demo", "first"), None);
    }

    #[tokio::test]
    async fn a_runner_of_an_earlier_operator_is_adopted() {
        let root = tempfile::tempdir().unwrap();
        let (first, mut ended) = supervisor(root.path(), "read line < \"$4/go\"");
        let fifo = root.path().join("go");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        first.start("demo", "first").unwrap();
        let identity = first.find("demo", "first").unwrap();
        identity
            .save(&root.path().join("runs/demo/first").join(IDENTITY))
            .unwrap();

        let (second, mut adopted) = supervisor(root.path(), "exit 1");
        assert_eq!(second.find("demo", "first"), Some(identity));
        tokio::task::spawn_blocking(move || fs::write(fifo, "go\n"))
            .await
            .unwrap()
            .unwrap();
        assert!(ended.next().await.is_some());
        assert!(adopted.next().await.is_some());
        assert!(second.find("demo", "first").is_none());
    }
}
