//! What is kept of a run: what Ansible told, and the logs of its steps.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use serde::Deserialize;

use crate::runner::{EVENTS, FORMER_EVENTS};

/// As near as the beginning of an attempt is looked for in a file: a few hundred events.
const NEAR: u64 = 64 * 1024;

/// Where what is kept of a run is read.
pub trait Kept {
    /// What tasks did since then, in seconds since the epoch, one event a line, oldest first; there may be earlier ones before. Empty
    /// where nothing is kept.
    ///
    /// # Errors
    ///
    /// It is there and cannot be read.
    fn events_since(&self, since: f64) -> io::Result<impl BufRead>;

    /// The log of a step, as much as is kept of it.
    fn log(&self, step: &str) -> String;
}

/// The directory of a run.
#[derive(Clone, Copy, Debug)]
pub struct Directory<'a>(pub &'a Path);

impl Kept for Directory<'_> {
    fn events_since(&self, since: f64) -> io::Result<impl BufRead> {
        let mut all: Box<dyn BufRead> = Box::new(io::empty());
        for name in [FORMER_EVENTS, EVENTS] {
            match File::open(self.0.join(name)) {
                Ok(file) => all = Box::new(all.chain(from(file, since)?)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn log(&self, step: &str) -> String {
        let name = format!("{}.log", step.replace('/', "__"));
        let bytes = std::fs::read(self.0.join("logs").join(name)).unwrap_or_default();
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

#[derive(Deserialize)]
struct Timed {
    time: f64,
}

/// Events from near the first one on that is not older: they stand in the order of their time, so that it is found by halves.
fn from(file: File, since: f64) -> io::Result<BufReader<File>> {
    let (mut older, mut end) = (0, file.metadata()?.len());
    let mut reader = BufReader::new(file);
    while end - older > NEAR {
        let middle = older + (end - older) / 2;
        match next_time(&mut reader, middle, end)? {
            Some(time) if time < since => older = middle,
            _ => end = middle,
        }
    }
    reader.seek(SeekFrom::Start(older))?;
    Ok(reader)
}

/// The time of the first whole event after a place, before another one.
fn next_time(reader: &mut BufReader<File>, place: u64, end: u64) -> io::Result<Option<f64>> {
    reader.seek(SeekFrom::Start(place))?;
    let mut lines = reader.by_ref().take(end - place);
    let mut line = Vec::new();
    // Of the first line the beginning may be missing.
    lines.read_until(b'\n', &mut line)?;
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if let Ok(Timed { time }) = serde_json::from_slice(&line) {
            return Ok(Some(time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_from_where_an_attempt_began() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Directory(directory.path());
        let read = |since: f64| {
            let mut text = String::new();
            let mut events = kept.events_since(since).unwrap();
            events.read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(read(0.0), "");

        let event = |second: u32| format!("{{\"time\":{second}.5,\"event\":\"ok\"}}\n");
        let former: String = (0..10_000).map(event).collect();
        let newer: String = (10_000..20_000)
            .map(|second| match second % 100 {
                // A process that was killed left half a line.
                0 => "{\"time\":1\n".to_owned() + &event(second),
                _ => event(second),
            })
            .collect();
        std::fs::write(directory.path().join(FORMER_EVENTS), &former).unwrap();
        std::fs::write(directory.path().join(EVENTS), &newer).unwrap();
        assert_eq!(read(0.0).len(), former.len() + newer.len());
        for since in [0, 9_000, 9_999, 10_000, 15_000, 19_999] {
            let text = read(f64::from(since) + 0.5);
            assert!(text.contains(&event(since)), "{since}");
            assert!(text.ends_with(&event(19_999)), "{since}");
            let left = 20_000 - usize::try_from(since).unwrap();
            let most = left * event(since).len() + usize::try_from(NEAR).unwrap() * 3;
            assert!(text.len() <= most, "{since}: {} of {most}", text.len());
        }
        // After the last one there is nothing to look for.
        assert!(read(1e9).len() <= 2 * usize::try_from(NEAR).unwrap());
    }

    #[test]
    fn a_log_that_is_no_text_is_shown_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("logs")).unwrap();
        std::fs::write(directory.path().join("logs/etcd__install.log"), b"a\xffb").unwrap();
        let kept = Directory(directory.path());
        assert_eq!(kept.log("etcd/install"), "a\u{fffd}b");
        assert_eq!(kept.log("other"), "");
    }
}
