//! Reads the event file, from its beginning and as it grows.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{fs::File, io::AsyncReadExt, net::UnixDatagram, sync::watch, time::timeout};

use super::Event;

/// The socket may be missed when two readers take turns; then the file is looked at this often.
const FALLBACK: Duration = Duration::from_millis(200);

/// Why events cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened or read.
    #[error("read the events in {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Reads all events of one process that are in the file now. A missing file has none.
///
/// # Errors
///
/// The file is there and cannot be read. A line that is no event is no error.
pub fn read(path: &Path, run: &str) -> Result<Vec<Event>, Error> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => {
            return Err(Error::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    Ok(bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| parse(line, run))
        .collect())
}

/// Follows the events of one process from the first one, until the process has ended and the file is read to its end.
/// Any number of followers may read the same file.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    run: String,
    file: Option<File>,
    buffer: Vec<u8>,
    taken: usize,
    bell: Option<UnixDatagram>,
    ended: watch::Receiver<bool>,
}

impl Follower {
    pub(crate) fn new(
        path: PathBuf,
        run: String,
        bell: Option<UnixDatagram>,
        ended: watch::Receiver<bool>,
    ) -> Self {
        Self {
            path,
            run,
            file: None,
            buffer: Vec::new(),
            taken: 0,
            bell,
            ended,
        }
    }

    /// The next event; `None` when the process has ended and every event was given. Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// The file cannot be read. That it is not there yet is no error.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.take() {
                return Ok(Some(event));
            }
            // Asked before reading: what the process wrote before its end is then surely read.
            let ended = *self.ended.borrow_and_update();
            if self.fill().await? {
                continue;
            }
            if ended {
                return Ok(None);
            }
            self.wait().await;
        }
    }

    /// The next whole line of ours in the buffer.
    fn take(&mut self) -> Option<Event> {
        loop {
            let rest = self.buffer.get(self.taken..)?;
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let event = rest.get(..end).and_then(|line| parse(line, &self.run));
            self.taken += end + 1;
            if event.is_some() {
                return event;
            }
        }
    }

    async fn fill(&mut self) -> Result<bool, Error> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let failed = |source| Error::Read {
            path: self.path.clone(),
            source,
        };
        if self.file.is_none() {
            match File::open(&self.path).await {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(failed(error)),
            }
        }
        let Some(file) = self.file.as_mut() else {
            return Ok(false);
        };
        let read = file.read_buf(&mut self.buffer).await.map_err(failed)?;
        Ok(read > 0)
    }

    /// Waits until there may be more: the bell rings, the process ends, or a while has passed.
    async fn wait(&mut self) {
        let Self { bell, ended, .. } = self;
        let rung = async {
            match bell {
                Some(bell) => {
                    let mut rings = [0; 32];
                    let _ = bell.recv(&mut rings).await;
                    while bell.try_recv(&mut rings).is_ok() {}
                }
                None => std::future::pending().await,
            }
        };
        let ending = async {
            if *ended.borrow() || ended.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let either = async {
            tokio::select! {
                () = rung => {}
                () = ending => {}
            }
        };
        let _ = timeout(FALLBACK, either).await;
    }
}

/// A line that is not one of our events is left out: the half line of a process that was killed, or another process's.
fn parse(line: &[u8], run: &str) -> Option<Event> {
    serde_json::from_slice::<Event>(line)
        .ok()
        .filter(|event| event.run == run)
}
