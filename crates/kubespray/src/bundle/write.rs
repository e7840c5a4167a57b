//! Makes a bundle.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use api::Run;
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;
use workflow::FileJournal;

use super::{END, Entry, FORMAT, JOURNAL, MANIFEST, Manifest, RUN, Redaction, TOLD, digest};
use crate::runner::{EVENTS, FORMER_EVENTS};

/// A log or a list of events that is longer is left out: a bundle is for people to send.
const LONGEST: u64 = 128 * 1024 * 1024;

/// The files that hold variables.
const VARIABLES: [&str; 2] = ["inventory/inventory.json", "vars.json"];

/// What a bundle is made of.
#[derive(Debug, Default)]
pub struct Gathered {
    files: Vec<(String, Vec<u8>)>,
    left_out: Vec<String>,
}

impl Gathered {
    fn add(&mut self, path: impl Into<String>, content: String) {
        self.files.push((path.into(), content.into_bytes()));
    }

    /// Says what is not in it.
    pub fn lacks(&mut self, what: impl Into<String>) {
        self.left_out.push(what.into());
    }

    /// A file of the run's directory, as the redaction leaves it.
    fn file(&mut self, directory: &Path, name: &str, redacted: impl FnOnce(&str) -> String) {
        let path = directory.join(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() && found.len() <= LONGEST => {}
            Ok(found) if found.is_file() => {
                return self.lacks(format!("{name}: it has {} bytes", found.len()));
            }
            _ => return,
        }
        match fs::read(&path) {
            Ok(bytes) => self.add(name, redacted(&String::from_utf8_lossy(&bytes))),
            Err(error) => self.lacks(format!("{name}: {error}")),
        }
    }
}

/// Gathers what is known of a run: the object, the Events that were told of it, and the files of its directory, as far as there are
/// any here.
///
/// # Errors
///
/// The Run cannot be written as JSON.
pub fn gather(
    run: &Run,
    told: &Value,
    directory: &Path,
    redaction: &Redaction,
) -> Result<Gathered, serde_json::Error> {
    let mut gathered = Gathered::default();
    let mut object = run.clone();
    object.metadata.managed_fields = None;
    let object = serde_json::to_value(&object)?;
    let redaction = known(&object, directory, redaction.clone());
    let object = redaction.document(object);
    gathered.add(RUN, format!("{object:#}\n"));
    gathered.add(TOLD, format!("{:#}\n", redaction.document(told.clone())));
    let local = FileJournal::read(&directory.join("journal.jsonl"));
    let of_status = || run.status.clone().unwrap_or_default().history;
    let records = local.unwrap_or_else(|_| of_status());
    let mut lines = String::new();
    for record in &records {
        lines += &format!("{}\n", redaction.document(serde_json::to_value(record)?));
    }
    gathered.add(JOURNAL, lines);
    if !directory.exists() {
        gathered.lacks("logs, events, inventory and variables: they are not on this machine");
        return Ok(gathered);
    }
    let document = |text: &str| match serde_json::from_str(text) {
        Ok(document) => format!("{:#}\n", redaction.document(document)),
        Err(_) => redaction.text(text),
    };
    for name in VARIABLES {
        gathered.file(directory, name, document);
    }
    for name in [FORMER_EVENTS, EVENTS] {
        gathered.file(directory, name, |text| redaction.lines(text));
    }
    gathered.file(directory, "runner.log", |text| redaction.text(text));
    for (folder, end) in [("logs", "log"), ("slices", "yml"), ("slices-own", "yml")] {
        for name in names(&directory.join(folder), end) {
            gathered.file(directory, &format!("{folder}/{name}"), |text| {
                redaction.text(text)
            });
        }
    }
    Ok(gathered)
}

/// The redaction that masks the values of secret variables too, wherever they stand.
fn known(run: &Value, directory: &Path, redaction: Redaction) -> Redaction {
    let plan = run.pointer("/spec/plan").unwrap_or(&Value::Null);
    let files = VARIABLES.iter().filter_map(|name| {
        let path = directory.join(name);
        let found = fs::symlink_metadata(&path).ok()?;
        let is_read = found.is_file() && found.len() <= LONGEST;
        serde_json::from_slice::<Value>(&fs::read(path).ok().filter(|_| is_read)?).ok()
    });
    files.fold(redaction.knowing(plan), |redaction, document| {
        redaction.knowing(&document)
    })
}

/// The files of a directory whose names end so, in order.
fn names(directory: &Path, end: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            Path::new(name)
                .extension()
                .is_some_and(|found| found == end)
        })
        .collect();
    names.sort_unstable();
    names
}

/// Writes a bundle.
///
/// # Errors
///
/// It cannot be written.
pub fn write(
    run: (&str, &str),
    made_at: String,
    gathered: &Gathered,
    out: impl Write,
) -> io::Result<Manifest> {
    let (namespace, name) = run;
    let files = gathered.files.iter().map(|(path, bytes)| Entry {
        path: path.clone(),
        bytes: bytes.len() as u64,
        sha256: digest(bytes),
    });
    let manifest = Manifest {
        format: FORMAT,
        windlass: env!("CARGO_PKG_VERSION").to_owned(),
        namespace: namespace.to_owned(),
        run: name.to_owned(),
        made_at,
        files: files.collect(),
        left_out: gathered.left_out.clone(),
    };
    let listed = serde_json::to_vec_pretty(&manifest)?;
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    entry(&mut archive, MANIFEST, &listed)?;
    for (path, bytes) in &gathered.files {
        entry(&mut archive, path, bytes)?;
    }
    entry(&mut archive, END, digest(&listed).as_bytes())?;
    archive.into_inner()?.finish()?.flush()?;
    Ok(manifest)
}

fn entry(archive: &mut tar::Builder<impl Write>, path: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o600);
    archive.append_data(&mut header, path, bytes)
}
