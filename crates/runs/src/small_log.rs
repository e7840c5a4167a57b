//! Logs that stay small: the beginning and the end are kept, and between them a line says how much was cut.
//!
//! A file is cut in place, for a playbook may have it open to append to. What it appends in that moment is lost at worst.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
};

/// What one log may take, in bytes: the tasks of some ten thousand hosts.
const MOST: u64 = 4 * MEBIBYTE;
/// What the logs of a run may take together.
const MOST_OF_RUN: u64 = 128 * MEBIBYTE;
/// What one log is cut to when they take more: those of the largest plan stay below it then.
const LEAST: u64 = MEBIBYTE / 4;
const MEBIBYTE: u64 = 1024 * 1024;

/// How the line begins that stands for what was cut.
const CUT: &str = "[... ";
/// How it ends.
const OF_THE_LOG: &str = " bytes of this log were cut here ...]";

/// Adds a line to a log.
///
/// # Errors
///
/// The log cannot be opened, written or cut.
pub fn append(log: &Path, line: &str) -> io::Result<()> {
    let mut file = File::options().create(true).append(true).open(log)?;
    writeln!(file, "{line}")?;
    keep_small(log)
}

/// Cuts a log that is too long; none is as good as a short one.
///
/// # Errors
///
/// The log is there and cannot be read or written.
pub fn keep_small(log: &Path) -> io::Result<()> {
    cut(log, MOST)
}

/// Cuts the logs in a directory if they take too much together.
///
/// # Errors
///
/// The directory or a log in it cannot be read, or a log cannot be written.
pub fn keep_all_small(directory: &Path) -> io::Result<()> {
    cut_all(directory, MOST_OF_RUN, LEAST)
}

fn cut_all(directory: &Path, most: u64, least: u64) -> io::Result<()> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|end| end == "log") {
            logs.push((entry.path(), entry.metadata()?.len()));
        }
    }
    if logs.iter().map(|(_, length)| length).sum::<u64>() <= most {
        return Ok(());
    }
    logs.iter().try_for_each(|(log, _)| cut(log, least))
}

/// Leaves of a log with more than `most` bytes about a quarter of that at each end, in whole lines.
fn cut(log: &Path, most: u64) -> io::Result<()> {
    let length = match fs::metadata(log) {
        Ok(metadata) if metadata.len() > most => metadata.len(),
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut file = File::options().read(true).append(true).open(log)?;
    let part = most / 4;
    let mut text = Vec::new();
    (&file).take(part).read_to_end(&mut text)?;
    let head = text.iter().rposition(|byte| *byte == b'\n');
    let head = head.map_or(0, |at| at.saturating_add(1));
    let earlier = cut_after(&file, head as u64)?;
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length - part))?;
    (&file).take(part).read_to_end(&mut tail)?;
    let begin = tail.iter().position(|byte| *byte == b'\n');
    let tail = tail.split_off(begin.map_or(0, |at| at.saturating_add(1)));
    let gone = length - head as u64 - tail.len() as u64 + earlier;
    file.set_len(head as u64)?;
    file.write_all(format!("{CUT}{gone}{OF_THE_LOG}\n").as_bytes())?;
    file.write_all(&tail)
}

/// How much was cut before at this place.
fn cut_after(file: &File, place: u64) -> io::Result<u64> {
    let mut file = file;
    file.seek(SeekFrom::Start(place))?;
    let mut text = Vec::new();
    file.take(128).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default();
    let said = line
        .strip_prefix(CUT)
        .and_then(|rest| rest.strip_suffix(OF_THE_LOG));
    // The line itself counts as well as what it stands for: it is cut in turn.
    let earlier = said.and_then(|bytes| bytes.parse::<u64>().ok());
    Ok(earlier.map_or(0, |bytes| bytes - (line.len() as u64 + 1).min(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_its_beginning_and_its_end_and_says_what_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("a.log");
        let mut written = 0;
        for number in 0..5000 {
            let line = format!("line {number}");
            let mut file = File::options()
                .create(true)
                .append(true)
                .open(&log)
                .unwrap();
            writeln!(file, "{line}").unwrap();
            written += line.len() as u64 + 1;
            cut(&log, 4096).unwrap();
            assert!(fs::metadata(&log).unwrap().len() <= 4096);
            let text = fs::read_to_string(&log).unwrap();
            assert!(text.ends_with(&format!("{line}\n")));
        }
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.starts_with("line 0\nline 1\n"));
        let marks: Vec<_> = text.lines().filter(|line| line.starts_with(CUT)).collect();
        let [mark] = marks[..] else {
            panic!("one mark: {marks:?}");
        };
        let kept = text.len() - mark.len() - 1;
        let gone = mark[CUT.len()..].split(' ').next().unwrap();
        assert_eq!(gone.parse::<u64>().unwrap(), written - kept as u64);
        // Whole lines, each as it was written.
        let number = |line: &str| line.strip_prefix("line ").unwrap().parse::<u32>().unwrap();
        let lines = text.lines().filter(|line| !line.starts_with(CUT));
        assert!(lines.map(number).is_sorted());
    }

    #[test]
    fn the_logs_of_a_run_stay_small_together() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.log", "b.log", "c.log", "events.jsonl"] {
            fs::write(directory.path().join(name), "word\n".repeat(1000)).unwrap();
        }
        let length = |name: &str| fs::metadata(directory.path().join(name)).unwrap().len();
        cut_all(directory.path(), 15_000, 100).unwrap();
        assert_eq!(length("a.log"), 5000);
        cut_all(directory.path(), 14_999, 100).unwrap();
        assert!(length("a.log") < 150 && length("c.log") < 150);
        assert_eq!(length("events.jsonl"), 5000, "what is judged by is no log");
    }

    #[test]
    fn a_log_that_is_not_there_is_small() {
        let directory = tempfile::tempdir().unwrap();
        keep_small(&directory.path().join("none.log")).unwrap();
    }
}
