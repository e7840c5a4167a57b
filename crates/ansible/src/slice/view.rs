//! A view of a checkout with slice files in it.
//!
//! Ansible resolves much against the directory of a playbook (`playbook_dir`, `roles/`, `library/`, `group_vars/`), so a
//! slice must stand where its play stands. The checkout is content-addressed and must not change; so the view is a directory
//! of links to everything in the checkout, real directories where plays stand, and the slice files in them.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::{Error, Playbook, Slice, cut, downloads, facts, interrupted};
use crate::file;

/// A file of one or more plays, for one `ansible-playbook` process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SliceFile {
    /// The file.
    pub path: PathBuf,
    /// The plays in it, in order, by their index in the playbook. None: a play that Windlass adds, whose name begins with
    /// [`ADDED`](super::ADDED) and which belongs to the play that follows.
    pub plays: Vec<Option<usize>>,
}

impl Playbook {
    /// Writes a view of the checkout into a directory, with one file for each group of plays.
    ///
    /// A group is a run of indexes in rising order. Plays that belong together must be in the same group. Writing again
    /// into the same directory replaces what is there.
    ///
    /// # Errors
    ///
    /// A group is no run of rising indexes or parts plays that belong together, or a file cannot be read or written.
    pub fn write(
        &self,
        checkout: &Path,
        directory: &Path,
        groups: &[&[usize]],
    ) -> Result<Vec<SliceFile>, Error> {
        for group in groups {
            self.check_group(group)?;
        }
        let checkout = fs::canonicalize(checkout).map_err(|source| Error::Read {
            path: checkout.to_owned(),
            source,
        })?;
        let parents = self
            .slices
            .iter()
            .map(|slice| slice.file.parent().unwrap_or(Path::new("")));
        let real: BTreeSet<&Path> = parents
            .flat_map(Path::ancestors)
            .chain([Path::new("")])
            .collect();
        for relative in &real {
            link_entries(&checkout, directory, relative, &real)?;
        }
        groups
            .iter()
            .map(|group| self.write_group(&checkout, directory, group))
            .collect()
    }

    fn check_group(&self, group: &[usize]) -> Result<(), Error> {
        let refuse = |rule: String| Error::Group {
            name: self.name.clone(),
            group: group.to_vec(),
            rule,
        };
        if group.is_empty() {
            return Err(refuse("the group is empty".to_owned()));
        }
        if !group.windows(2).all(|pair| matches!(pair, [a, b] if a < b)) {
            return Err(refuse("the indexes do not rise".to_owned()));
        }
        for index in group {
            let slice = self
                .slices
                .get(*index)
                .ok_or_else(|| refuse(format!("there is no play {index}")))?;
            let next = index.saturating_add(1);
            if slice.with_next && !group.contains(&next) {
                return Err(refuse(format!(
                    "{} and the play after it share what they register",
                    slice.id
                )));
            }
            let before = index
                .checked_sub(1)
                .and_then(|before| self.slices.get(before));
            if let Some(before) =
                before.filter(|before| before.with_next && !group.contains(&before.index))
            {
                return Err(refuse(format!(
                    "{} and {} share what they register",
                    before.id, slice.id
                )));
            }
        }
        Ok(())
    }

    fn write_group(
        &self,
        checkout: &Path,
        directory: &Path,
        group: &[usize],
    ) -> Result<SliceFile, Error> {
        let mut entries = String::from("---\n");
        let mut plays = Vec::new();
        let mut covered: Vec<&str> = Vec::new();
        let mut brought: Vec<&str> = Vec::new();
        let slices: Vec<&Slice> = group
            .iter()
            .filter_map(|index| self.slices.get(*index))
            .collect();
        for slice in &slices {
            let sets = slice.roles.iter().any(|role| role == facts::SETTER);
            let wanted =
                slice.needs_facts && !covered.iter().any(|hosts| covers(hosts, &slice.hosts));
            let facts = facts::play(checkout, slice).filter(|_| wanted);
            if facts.is_some() || sets {
                covered.push(&slice.hosts);
            }
            let is_there = brought
                .iter()
                .any(|hosts| downloads::covers(hosts, &slice.hosts));
            let downloads = downloads::play(checkout, slice).filter(|_| !is_there);
            if downloads.is_some() || downloads::brings(slice) {
                brought.push(&slice.hosts);
            }
            let added: Vec<String> = [interrupted::play(slice), facts, downloads]
                .into_iter()
                .flatten()
                .collect();
            plays.extend(added.iter().map(|_| None));
            plays.push(Some(slice.index));
            let path = self.write_play(directory, slice, &added)?;
            let _ = writeln!(entries, "- import_playbook: {}", path.display());
        }
        let (Some(first), Some(last)) = (slices.first(), slices.last()) else {
            return Err(Error::Group {
                name: self.name.clone(),
                group: group.to_vec(),
                rule: "there are no such plays".to_owned(),
            });
        };
        let range = if first.index == last.index {
            format!("{:03}", first.index)
        } else {
            format!("{:03}-{:03}", first.index, last.index)
        };
        let name = format!(
            "{PREFIX}{}-{range}-{}.yml",
            self.name,
            first.id.replace('/', "-")
        );
        let path = directory.join(name);
        put(&path, &entries)?;
        Ok(SliceFile { path, plays })
    }

    /// Writes a play, and a file for each import that changes it; the path of the outermost, relative to the view.
    fn write_play(
        &self,
        directory: &Path,
        slice: &Slice,
        added: &[String],
    ) -> Result<PathBuf, Error> {
        let parent = slice.file.parent().unwrap_or(Path::new(""));
        let stem = format!("{PREFIX}{}-{:03}", self.name, slice.index);
        let header = format!("---\n# {}:{}\n", slice.file.display(), slice.line);
        let mut name = format!("{stem}-play.yml");
        put(
            &directory.join(parent).join(&name),
            &format!("{header}{}", slice.text),
        )?;
        for (level, import) in slice.imports.iter().enumerate().rev() {
            let text = cut::redirected(import, &name).ok_or_else(|| Error::Uncuttable {
                file: slice.file.clone(),
                line: slice.line,
                rule: "the import that leads here cannot be pointed at another file: write `import_playbook: PATH` on a line of its own".to_owned(),
            })?;
            name = format!("{stem}-import-{level}.yml");
            put(&directory.join(parent).join(&name), &format!("---\n{text}"))?;
        }
        if !added.is_empty() {
            let inner = std::mem::replace(&mut name, format!("{stem}-with-added.yml"));
            let text = format!("---\n{}\n- import_playbook: {inner}\n", added.join("\n"));
            put(&directory.join(parent).join(&name), &text)?;
        }
        Ok(parent.join(name))
    }
}

/// Whether facts that were computed for one pattern are there for another.
fn covers(computed: &str, wanted: &str) -> bool {
    computed == wanted
        || (computed.split(':').any(|part| part == "k8s_cluster")
            && !computed.contains(['!', '&'])
            && PARTS.contains(&wanted))
}

/// Patterns whose hosts are all in `k8s_cluster`.
const PARTS: &[&str] = &[
    "k8s_cluster",
    "kube_control_plane",
    "kube_control_plane[0]",
    "kube_node",
    "calico_rr",
    "kube_node:calico_rr:!kube_control_plane",
    "kube_control_plane:calico_rr:kube_node",
];

fn link_entries(
    checkout: &Path,
    view: &Path,
    relative: &Path,
    real: &BTreeSet<&Path>,
) -> Result<(), Error> {
    let (from, to) = (checkout.join(relative), view.join(relative));
    fs::create_dir_all(&to).map_err(|source| Error::Write {
        path: to.clone(),
        source,
    })?;
    let unreadable = |source| Error::Read {
        path: from.clone(),
        source,
    };
    for entry in fs::read_dir(&from).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let hidden = name
            .to_str()
            .is_some_and(|name| name == ".git" || name.starts_with(PREFIX));
        if hidden || real.contains(relative.join(&name).as_path()) {
            continue;
        }
        let link = to.join(&name);
        relink(&from.join(&name), &link).map_err(|source| Error::Write { path: link, source })?;
    }
    Ok(())
}

fn relink(target: &Path, link: &Path) -> io::Result<()> {
    match fs::read_link(link) {
        Ok(current) if current == target => return Ok(()),
        Ok(_) => fs::remove_file(link)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    symlink(target, link)
}

/// Another process may be reading the same play.
fn put(path: &Path, text: &str) -> Result<(), Error> {
    file::replace(path, text.as_bytes(), 0o644).map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}

/// How the names of files that are not of the checkout begin.
const PREFIX: &str = "windlass-";
