//! Files of variables that are encrypted with SOPS, put in the open where Ansible reads them: in a copy, in memory.
//!
//! Whoever keeps such files has the plugin `community.sops.sops` read them. It does so after Ansible's own, group by group and host by
//! host: what it finds for a group wins over what else is said of that group, and nothing more. No plugin is started here, so the copy
//! has for each such group a directory with what else there is in `0`, and behind it what was encrypted in `1`, which Ansible reads in
//! this order.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use kubespray::private;
use serde_json::{Map, Value};

use super::files::{Files, SOPS_ENDS, entries, stem};
use crate::manifest::Opener;

/// Copies the inventory into a directory of ours alone, in memory where there is some, if there is such a file. Nothing is done otherwise.
pub(super) fn open(files: &mut Files, place: &Path, opener: &Opener) -> anyhow::Result<()> {
    if files.sops.is_empty() {
        return Ok(());
    }
    anyhow::ensure!(
        private::memory().is_some(),
        "what is encrypted with SOPS is opened in memory only, and neither /dev/shm nor $XDG_RUNTIME_DIR is memory here: mount a tmpfs \
         on /dev/shm"
    );
    let mut opened = BTreeMap::new();
    for file in &files.sops {
        let variables = variables(file, opener, &mut files.opened)
            .with_context(|| format!("failed to open {}", file.display()))?;
        opened.insert(file.clone(), variables);
    }
    let mut copies: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for hosts in &mut files.hosts {
        let from = hosts.parent().unwrap_or(Path::new("/")).to_owned();
        let to = place.join(format!("open-{}", copies.len()));
        let to = match copies.entry(from) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                variables_of(new.key(), &to, &opened)?;
                new.insert(to)
            }
        };
        let copied = to.join(hosts.file_name().unwrap_or_default());
        copy(hosts, &copied)?;
        *hosts = copied;
    }
    Ok(())
}

/// Copies the variables beside a hosts file.
fn variables_of(from: &Path, to: &Path, opened: &BTreeMap<PathBuf, Vec<u8>>) -> anyhow::Result<()> {
    fs::create_dir(to).context("failed to copy the inventory")?;
    for name in ["group_vars", "host_vars"] {
        if from.join(name).is_dir() {
            beside(&from.join(name), &to.join(name), opened)?;
        }
    }
    Ok(())
}

/// The variables of a file, as JSON. `secret` gets the names of those in which something was encrypted.
fn variables(
    file: &Path,
    opener: &Opener,
    secret: &mut BTreeSet<String>,
) -> anyhow::Result<Vec<u8>> {
    let text = fs::read_to_string(file).context("failed to read it")?;
    let mut opened = opener.open(&text)?;
    anyhow::ensure!(
        opened.documents.len() < 2,
        "it has several documents, of which Ansible would read none: make it one"
    );
    let variables = opened
        .documents
        .pop()
        .unwrap_or_else(|| Value::Object(Map::new()));
    secret.extend(opened.secrets.iter().map(|secret| secret.field.to_string()));
    serde_json::to_vec(&variables).context("failed to copy it")
}

/// Copies `group_vars` or `host_vars`.
fn beside(from: &Path, to: &Path, opened: &BTreeMap<PathBuf, Vec<u8>>) -> anyhow::Result<()> {
    fs::create_dir(to).context("failed to copy the inventory")?;
    let mut names: BTreeMap<String, Vec<(String, PathBuf)>> = BTreeMap::new();
    for (name, path) in entries(from)? {
        let of = stem(&name).to_owned();
        names.entry(of).or_default().push((name, path));
    }
    for (of, found) in names {
        let has_some = opened
            .keys()
            .any(|file| found.iter().any(|(_, path)| file.starts_with(path)));
        if !has_some {
            for (name, path) in found {
                copy(&path, &to.join(name))?;
            }
            continue;
        }
        let (open, encrypted) = (to.join(&of).join("0"), to.join(&of).join("1"));
        for directory in [&open, &encrypted] {
            fs::create_dir_all(directory).context("failed to copy the inventory")?;
        }
        // The first of each is read, and no other.
        let first = |ends: &[&str]| {
            let named = |end: &&str| found.iter().find(|(name, _)| *name == format!("{of}{end}"));
            ends.iter().find_map(named).map(|(_, path)| path)
        };
        let mut read = Vec::new();
        for path in [first(&SOPS_ENDS), first(&["", ".yml", ".yaml", ".json"])]
            .into_iter()
            .flatten()
        {
            // In a directory Ansible goes by how names end, and a host's name may end in anything.
            let to = if path.is_dir() {
                open.clone()
            } else {
                open.join("0.yml")
            };
            separate(path, &to, opened, &mut read)?;
        }
        for (number, variables) in read.into_iter().enumerate() {
            let file = encrypted.join(format!("{number:06}.json"));
            ansible::write_private(&file, variables).context("failed to copy the inventory")?;
        }
    }
    Ok(())
}

/// Copies what is not encrypted, and lists the rest in the order in which it is read.
fn separate<'a>(
    path: &Path,
    to: &Path,
    opened: &'a BTreeMap<PathBuf, Vec<u8>>,
    read: &mut Vec<&'a [u8]>,
) -> anyhow::Result<()> {
    if let Some(variables) = opened.get(path) {
        read.push(variables);
        return Ok(());
    }
    if !path.is_dir() {
        return copy(path, to);
    }
    fs::create_dir_all(to).context("failed to copy the inventory")?;
    for (name, path) in entries(path)? {
        separate(&path, &to.join(name), opened, read)?;
    }
    Ok(())
}

/// Copies a file, or a directory with all that Ansible reads of it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.is_dir() {
        fs::create_dir(to).context("failed to copy the inventory")?;
        for (name, path) in entries(from)? {
            copy(&path, &to.join(name))?;
        }
        return Ok(());
    }
    let bytes = fs::read(from).with_context(|| format!("failed to read {}", from.display()))?;
    ansible::write_private(to, &bytes).context("failed to copy the inventory")
}
