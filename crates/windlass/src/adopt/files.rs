//! The files of an inventory: which of them are hosts files, what would be a program, what is encrypted.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use ansible::listing::Listing;
use anyhow::Context;
use serde_json::Value;

/// What there is.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Files {
    /// The hosts files.
    pub(super) hosts: Vec<PathBuf>,
    /// Files with variables that are encrypted as a whole.
    pub(super) vaulted: Vec<PathBuf>,
    /// Files with variables that are encrypted with SOPS.
    pub(super) sops: Vec<PathBuf>,
    /// The names of variables in which something was encrypted with SOPS, once that is open.
    pub(super) opened: BTreeSet<String>,
    /// Whether anything is encrypted by Ansible.
    pub(super) is_encrypted: bool,
    /// The names for which there are variables in files: of groups, and of hosts.
    pub(super) groups: BTreeSet<String>,
    pub(super) of_hosts: BTreeSet<String>,
    /// What is left alone, and why.
    pub(super) notes: Vec<String>,
}

impl Files {
    /// Notes the variables that Ansible reads for nobody, as those of a group that was renamed.
    pub(super) fn note_unread(&mut self, listing: &Listing) {
        let groups: BTreeSet<&str> = listing.groups().collect();
        let unread = self
            .groups
            .iter()
            .filter(|name| !groups.contains(name.as_str()));
        let unread = unread.map(|name| format!("group_vars/{name}: Ansible reads it for no host: no host is in a group of that name"));
        let mut notes: Vec<_> = unread.collect();
        let unread = self
            .of_hosts
            .iter()
            .filter(|name| !listing.hosts().contains_key(*name));
        notes.extend(unread.map(|name| {
            format!("host_vars/{name}: Ansible reads it for no host: there is none of that name")
        }));
        self.notes.append(&mut notes);
    }
}

/// Looks at a directory with one hosts file, or at hosts files, and at the variables beside them.
pub(super) fn find(given: &[PathBuf]) -> anyhow::Result<Files> {
    let mut files = Files::default();
    for path in given {
        let path = fs::canonicalize(path)
            .with_context(|| format!("failed to find the inventory {}", path.display()))?;
        if path.is_dir() {
            directory(&path, &mut files)?;
        } else {
            if let Some(program) = program(&path)? {
                anyhow::bail!("{}: {program}", path.display());
            }
            files.hosts.push(path);
        }
    }
    let mut places: Vec<PathBuf> = Vec::new();
    for file in &files.hosts {
        let text = read(file)?;
        anyhow::ensure!(
            !text.starts_with(VAULT),
            "{} is encrypted as a whole: decrypt it with ansible-vault, and encrypt variables alone",
            file.display()
        );
        anyhow::ensure!(
            !sops::is_sops(&text),
            "{} is encrypted with SOPS: decrypt it with sops, and encrypt variables alone",
            file.display()
        );
        files.is_encrypted |= text.contains(VAULT);
        let place = file.parent().unwrap_or(Path::new("/")).to_owned();
        if !places.contains(&place) {
            places.push(place);
        }
    }
    for place in places {
        for (name, of_groups) in [("group_vars", true), ("host_vars", false)] {
            let directory = place.join(name);
            if fs::symlink_metadata(&directory).is_ok() {
                let within = Within::new(&place);
                let led = within.leads_to(&directory)?;
                if !led.is_dir() {
                    continue;
                }
                let within = within.below(led);
                for (name, path) in entries(&directory)? {
                    let names = if of_groups {
                        &mut files.groups
                    } else {
                        &mut files.of_hosts
                    };
                    names.insert(stem(&name).to_owned());
                    variables(&path, &within, &mut files)?;
                }
            }
        }
        credentials(&place, &mut files)?;
    }
    Ok(files)
}

/// The kubeconfig that kubespray left beside an inventory (`kubeconfig_localhost`).
pub(super) fn kubeconfig(given: &[PathBuf]) -> anyhow::Result<PathBuf> {
    const LEFT: &str = "artifacts/admin.conf";
    let first = given.first().context("no inventory")?;
    let path = fs::canonicalize(first)
        .with_context(|| format!("failed to find the inventory {}", first.display()))?;
    let place = match path.parent() {
        Some(parent) if !path.is_dir() => parent,
        _ => &path,
    };
    let file = place.join(LEFT);
    anyhow::ensure!(
        fs::symlink_metadata(&file).is_ok(),
        "--live names no kubeconfig, and {} is not there: name one that reaches the cluster, --live KUBECONFIG; kubespray leaves it \
         there with kubeconfig_localhost: true",
        file.display()
    );
    Within::new(place).leads_to(&file)
}

/// The one hosts file of a directory.
fn directory(path: &Path, files: &mut Files) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for (name, file) in entries(path)? {
        let ignored = IGNORED.iter().any(|end| name.ends_with(end));
        if !file.is_file() || ignored {
            continue;
        }
        let file = Within::new(path).leads_to(&file)?;
        match program(&file)? {
            Some(program) => files.notes.push(format!("{name}: left out: {program}")),
            None => found.push(file),
        }
    }
    let names: Vec<_> = found
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    match found.as_slice() {
        [] => {
            let told = [
                &[format!("there is no hosts file in {}", path.display())],
                &files.notes[..],
            ];
            anyhow::bail!(told.concat().join("; "))
        }
        [_] => files.hosts.append(&mut found),
        _ => anyhow::bail!(
            "{} has several files that may be hosts files: name the one that ansible-playbook is given with -i, or all of them: {}",
            path.display(),
            names.join(" ")
        ),
    }
    Ok(())
}

/// Why a file would have Ansible run a program; none: it would not.
fn program(file: &Path) -> anyhow::Result<Option<&'static str>> {
    let mode = fs::metadata(file)
        .with_context(|| format!("failed to read {}", file.display()))?
        .permissions()
        .mode();
    let text = read(file)?;
    if text.starts_with("#!") || mode & 0o111 != 0 && !is_static(file, &text) {
        return Ok(Some(
            "it is a program that makes an inventory, and programs are not run: print it with `ansible-inventory --inventory FILE \
             --list --export --yaml`, and adopt what that prints",
        ));
    }
    let configures = is_yaml(file)
        && serde_saphyr::from_str::<Value>(&text).is_ok_and(|value| value.get("plugin").is_some());
    Ok(configures.then_some(
        "it configures a plugin that makes an inventory, and plugins are not run: print it with `ansible-inventory --inventory FILE \
         --list --export --yaml`, and adopt what that prints",
    ))
}

/// Whether a file that can be executed is an inventory all the same: on some file systems all files can be.
fn is_static(file: &Path, text: &str) -> bool {
    let ini = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with(';'));
    is_yaml(file) || file.extension().is_some_and(|end| end == "ini") && ini.is_some()
}

fn is_yaml(file: &Path) -> bool {
    let end = file.extension().and_then(|end| end.to_str());
    matches!(end, Some("yaml" | "yml" | "json"))
}

/// A directory that nothing of an inventory may lead out of, and the directories that were gone through.
///
/// A link that leaves it would carry files into objects that nobody has put into the inventory, as a private key; and one that leads
/// back never ends.
struct Within<'a> {
    root: &'a Path,
    through: Vec<PathBuf>,
}

impl<'a> Within<'a> {
    const fn new(root: &'a Path) -> Self {
        Self {
            root,
            through: Vec::new(),
        }
    }

    /// Where a path of the inventory leads to.
    fn leads_to(&self, path: &Path) -> anyhow::Result<PathBuf> {
        let led = fs::canonicalize(path).with_context(|| {
            format!(
                "{} is a link that leads nowhere, or round in a circle: remove it, or have it name a file of the inventory",
                path.display()
            )
        })?;
        anyhow::ensure!(
            led.starts_with(self.root),
            "{} is a link that leads out of the inventory, to {}: copy that into {}, if it belongs there",
            path.display(),
            led.display(),
            self.root.display()
        );
        anyhow::ensure!(
            !self.through.contains(&led),
            "{} is a link that leads back to {}, through which it is reached: remove it",
            path.display(),
            led.display()
        );
        Ok(led)
    }

    /// As it is below that directory.
    fn below(&self, directory: PathBuf) -> Self {
        let mut through = self.through.clone();
        through.push(directory);
        Self {
            root: self.root,
            through,
        }
    }
}

/// Looks for what is encrypted in files with variables, as Ansible finds them.
fn variables(path: &Path, within: &Within<'_>, files: &mut Files) -> anyhow::Result<()> {
    let led = within.leads_to(path)?;
    if led.is_dir() {
        let below = within.below(led);
        for (_, path) in entries(path)? {
            variables(&path, &below, files)?;
        }
        return Ok(());
    }
    anyhow::ensure!(
        led.is_file(),
        "{} is neither a file nor a directory: remove it",
        path.display()
    );
    let text = read(path)?;
    if text.starts_with(VAULT) {
        files.vaulted.push(path.to_owned());
    } else if sops::is_sops(&text) {
        files.sops.push(path.to_owned());
    }
    files.is_encrypted |= text.contains(VAULT);
    Ok(())
}

/// What kubespray made and keeps beside the inventory.
fn credentials(place: &Path, files: &mut Files) -> anyhow::Result<()> {
    let directory = place.join("credentials");
    if directory.is_dir() && !entries(&directory)?.is_empty() {
        files.notes.push(format!(
            "{}: kubespray keeps secrets of its own making there; copy its files into the cluster's directory before the first run \
             (clusters/NAMESPACE/NAME/credentials of the data directory), or it makes new ones",
            directory.display()
        ));
    }
    Ok(())
}

/// The entries of a directory by name, without those that Ansible passes over.
pub(super) fn entries(directory: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let failed = || format!("failed to read {}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !name.ends_with('~') {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// The group or host that a file of variables is about.
pub(super) fn stem(name: &str) -> &str {
    let mut ends = SOPS_ENDS.into_iter().chain([".yml", ".yaml", ".json"]);
    let bare = ends.find_map(|end| name.strip_suffix(end));
    bare.unwrap_or(name)
}

fn read(file: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(file).with_context(|| format!("failed to read {}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// How the names of files end that are encrypted with SOPS, in the order in which they are looked for.
///
/// # Source
/// `VALID_EXTENSIONS` of `community.sops.sops`.
pub(super) const SOPS_ENDS: [&str; 3] = [".sops.yml", ".sops.yaml", ".sops.json"];

/// How an encrypted text begins.
const VAULT: &str = "$ANSIBLE_VAULT;";

/// How the names of files end that Ansible passes over in a directory.
///
/// # Source
/// `INVENTORY_IGNORE_EXTS` of ansible-core.
const IGNORED: [&str; 11] = [
    ".pyc", ".pyo", ".swp", ".bak", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with these files; those whose names end in `*` can be executed.
    fn place(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name.trim_end_matches('*'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            if name.ends_with('*') {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        directory
    }

    fn found(files: &[(&str, &str)]) -> anyhow::Result<Files> {
        let directory = place(files);
        find(&[directory.path().to_owned()])
    }

    const INI: &str = "[kube_node]\nw1\n";

    #[test]
    fn a_directory_has_one_hosts_file_and_programs_are_left_out_by_name() {
        for (name, files) in [
            ("ini", &[("inventory.ini", INI)][..]),
            ("without an end", &[("hosts", INI)]),
            ("can be executed", &[("inventory.ini*", INI)]),
            (
                "yaml",
                &[("hosts.yaml", "all: {}"), ("patch.md", "x"), (".git", "x")],
            ),
        ] {
            let files = found(files).unwrap();
            assert_eq!(files.hosts.len(), 1, "{name}");
            assert!(files.notes.is_empty(), "{name}: {:?}", files.notes);
        }
        for program in [
            ("inventory.py*", "#!/usr/bin/env python3\n"),
            ("inventory.py", "#!/usr/bin/env python3\n"),
            ("list*", "x"),
            ("openstack.yml", "plugin: openstack.cloud.openstack\n"),
        ] {
            let files = found(&[("hosts.ini", INI), program]).unwrap();
            assert_eq!(files.hosts.len(), 1, "{program:?}");
            let name = program.0.trim_end_matches('*');
            let note = &files.notes[0];
            assert!(
                note.starts_with(&format!("{name}: left out: it ")),
                "{note}"
            );
            let alone = format!("{:#}", found(&[program]).unwrap_err());
            assert!(
                alone.contains("no hosts file") && alone.contains(name),
                "{alone}"
            );
        }
    }

    #[test]
    fn what_cannot_be_an_inventory_is_refused() {
        let program = place(&[("inventory.py*", "#!/bin/sh\n")]);
        let program = find(&[program.path().join("inventory.py")]).unwrap_err();
        assert!(
            program.to_string().contains("programs are not run"),
            "{program}"
        );
        let missing = find(&[PathBuf::from("/nowhere/hosts.ini")]).unwrap_err();
        assert!(
            missing.to_string().contains("/nowhere/hosts.ini"),
            "{missing}"
        );
        for (files, word) in [
            (
                &[("hosts.ini", INI), ("hosts.yaml", "all: {}")][..],
                "several files",
            ),
            (&[("group_vars/all.yml", "a: 1")], "no hosts file"),
            (
                &[("hosts", "$ANSIBLE_VAULT;1.1;AES256\n00\n")],
                "encrypted as a whole",
            ),
        ] {
            let error = format!("{:#}", found(files).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_link_stays_in_the_inventory_and_ends() {
        use std::os::unix::fs::symlink;
        let outside = place(&[("key", "secret: 1"), ("vars/a.yml", "a: 1")]);
        let linked = |link: &str, target: &Path| {
            let inside = place(&[("hosts", INI), ("group_vars/all/a.yml", "a: 1")]);
            symlink(target, inside.path().join(link)).unwrap();
            let found = find(&[inside.path().to_owned()]);
            found.map_err(|error| format!("{error:#}"))
        };
        for (link, target, words) in [
            (
                "group_vars/all/key.yml",
                outside.path().join("key"),
                "out of the inventory",
            ),
            (
                "group_vars/more",
                outside.path().join("vars"),
                "out of the inventory",
            ),
            (
                "host_vars",
                outside.path().join("vars"),
                "out of the inventory",
            ),
            ("other", outside.path().join("key"), "out of the inventory"),
            ("group_vars/all/up", PathBuf::from(".."), "leads back to"),
            ("group_vars/all/same", PathBuf::from("."), "leads back to"),
            ("group_vars/all/own", PathBuf::from("own"), "in a circle"),
            ("host_vars", PathBuf::from("host_vars"), "in a circle"),
            (
                "group_vars/gone.yml",
                PathBuf::from("nowhere"),
                "leads nowhere",
            ),
        ] {
            let error = linked(link, &target).unwrap_err();
            assert!(
                error.contains(words) && error.contains(link),
                "{link}: {error}"
            );
        }
        // One that stays inside is as good as what it names.
        linked("group_vars/kube_node", Path::new("all")).unwrap();
        linked("group_vars/all.yml", Path::new("all/a.yml")).unwrap();
    }

    #[test]
    fn what_is_encrypted_and_what_nobody_reads_is_found_however_deep() {
        let files = found(&[
            ("hosts", INI),
            (
                "group_vars/all/deep/vault.yml",
                "$ANSIBLE_VAULT;1.1;AES256\n00\n",
            ),
            ("group_vars/k8s-cluster.yml", "a: 1"),
            ("group_vars/all/.hidden", "$ANSIBLE_VAULT;1.1;AES256\n00\n"),
            (
                "host_vars/w2.yaml",
                "a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  00\n",
            ),
            ("credentials/token.creds", "x"),
        ]);
        let mut files = files.unwrap();
        assert!(files.is_encrypted);
        assert_eq!(files.vaulted.len(), 1);
        files.note_unread(&Listing::default());
        for word in [
            "credentials: ",
            "group_vars/k8s-cluster: ",
            "host_vars/w2: ",
        ] {
            assert!(
                files.notes.iter().any(|note| note.contains(word)),
                "{word}: {:?}",
                files.notes
            );
        }
        let open = found(&[("hosts", INI), ("group_vars/all.yml", "a: 1")]).unwrap();
        assert!(!open.is_encrypted && open.vaulted.is_empty());
    }
}
