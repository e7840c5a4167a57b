//! Trees that strangers describe, written for real: whatever becomes of them, nothing outside of them is touched or led to.

use walkdir::WalkDir;

use super::*;

/// Small, so that damage passes them too.
pub(in crate::source) const BOUNDS: Bounds = Bounds {
    bytes: 8 << 10,
    file_bytes: 4 << 10,
    entries: 40,
    depth: 8,
    path_bytes: 160,
    download: 64 << 10,
    unpacked: 64 << 10,
    layer_entries: 60,
    memory: 0,
};

/// A directory for a tree, with something beside it that is not to be touched.
pub(in crate::source) struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub(in crate::source) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("beside")).expect("what is beside");
        fs::write(directory.path().join("beside/kept"), "kept").expect("a file");
        Self { directory }
    }

    pub(in crate::source) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(in crate::source) fn tree(&self) -> PathBuf {
        self.path().join("tree")
    }

    /// What must be true of every tree that was written, and of all that is beside it.
    pub(in crate::source) fn check(&self) {
        let beside = fs::read_to_string(self.path().join("beside/kept")).expect("what was beside");
        assert_eq!(beside, "kept");
        let all = fs::read_dir(self.path().join("beside")).expect("what was beside");
        assert_eq!(all.count(), 1);
        let Ok(root) = self.tree().canonicalize() else {
            return;
        };
        let (mut entries, mut bytes) = (0, 0);
        for entry in WalkDir::new(&root).min_depth(1) {
            let entry = entry.expect("an entry");
            let metadata = entry.metadata().expect("its metadata");
            entries += 1;
            if metadata.is_symlink() {
                let real = leads_to(entry.path());
                assert!(real.starts_with(&root), "{entry:?} leads to {real:?}");
                continue;
            }
            assert!(metadata.is_dir() || metadata.is_file(), "{entry:?}");
            if metadata.is_file() {
                bytes += metadata.len();
                assert_eq!(metadata.permissions().mode() & 0o7022, 0, "{entry:?}");
            }
        }
        assert!(entries <= BOUNDS.entries, "{entries} entries");
        assert!(bytes <= BOUNDS.bytes, "{bytes} bytes");
    }
}

/// Where the kernel comes to by a link, as far as there is anything.
fn leads_to(link: &Path) -> PathBuf {
    let mut at = link
        .parent()
        .expect("a directory")
        .join(fs::read_link(link).expect("a link"));
    loop {
        match at.canonicalize() {
            Ok(real) => return real,
            Err(_) => assert!(at.pop(), "{link:?} leads nowhere"),
        }
    }
}

/// A line an entry: its kind, its path, and what is in it or where it leads.
fn write(described: &str, target: &Path) -> Result<(), Error> {
    let mut writer = Writer::new(target, BOUNDS, 0, Wanted::default())?;
    for line in described.lines() {
        let mut words = line.splitn(3, ' ');
        let (kind, path) = (words.next(), words.next().unwrap_or_default());
        let (path, other) = (Path::new(path), words.next().unwrap_or_default());
        // Others end here; what comes after a refusal must do no harm either.
        let _ = match kind {
            Some("d") => writer.directory(path),
            Some("f" | "x") => writer.file(path, kind == Some("x"), &mut other.as_bytes()),
            Some("l") => writer.link(path, Path::new(other)),
            Some("h") => {
                let first = clean(Path::new(other));
                writer.hard_link(path, first.as_deref().ok_or(other))
            }
            _ => Ok(()),
        };
    }
    writer.finish()
}

const TREE: &str = "f cluster.yml - hosts: all
d roles/etcd
f roles/etcd/main.yml a
x roles/etcd/files/check b
l roles/latest etcd
l roles/etcd/up ../../cluster.yml
l roles/dangling nowhere/at/all
h copy cluster.yml
";

const HOSTILE: &str = "l a ../beside
f a/kept changed
l b /etc/passwd
f ../beside/kept changed
f b/../../beside/kept changed
l c c
l d e/../../beside
d e
l e/f ..
l g e/f/f/..
h h ../beside/kept
h i d
f .git/hooks/x id
d a
f roles/\u{1b}[2J x
";

#[test]
fn trees_survive_fuzzing() {
    let place = Place::new();
    write(TREE, &place.tree()).expect("a tree that is taken");
    place.check();
    fuzz::text("trees", &[TREE, HOSTILE], |described| {
        let place = Place::new();
        if let Err(Error::Refused(refusal)) = write(described, &place.tree()) {
            let said = refusal.to_string();
            assert!(api::text::is_plain(&said) && said.len() < 1024, "{said:?}");
        }
        place.check();
    });
}
