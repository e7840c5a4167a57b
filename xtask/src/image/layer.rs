//! Layers and images of the Open Container Initiative, without a container engine and the same bytes every time: sorted
//! names, one time, no owners but root.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// The time of every file: 1980, the first that every format can hold.
pub(super) const TIME: u64 = 315_532_800;

/// What a layer holds, by its path in the image.
#[derive(Default)]
pub(super) struct Layer(BTreeMap<PathBuf, Entry>);

enum Entry {
    Directory(u32),
    File(PathBuf, u32),
    Link(PathBuf),
    Text(String, u32),
}

impl Layer {
    pub(super) fn text(mut self, path: &str, text: &str) -> Self {
        self.put(path.into(), Entry::Text(text.to_owned(), 0o644));
        self
    }

    pub(super) fn file(mut self, path: impl Into<PathBuf>, source: &Path, mode: u32) -> Self {
        self.put(path.into(), Entry::File(source.to_owned(), mode));
        self
    }

    pub(super) fn directory(mut self, path: &str, mode: u32) -> Self {
        self.put(path.into(), Entry::Directory(mode));
        self
    }

    /// Everything below a directory, but sockets and devices.
    pub(super) fn tree(self, path: &str, source: &Path) -> Result<Self> {
        self.below(path, source, |mode| mode)
    }

    /// As [`Self::tree`], readable by everybody: the modes of a checkout are those of whoever made it.
    pub(super) fn sources(self, path: &str, source: &Path) -> Result<Self> {
        self.below(
            path,
            source,
            |mode| {
                if mode & 0o100 == 0 { 0o644 } else { 0o755 }
            },
        )
    }

    fn below(mut self, path: &str, source: &Path, mode_of: fn(u32) -> u32) -> Result<Self> {
        for entry in walkdir::WalkDir::new(source).min_depth(1) {
            let entry = entry.context("list a tree")?;
            let below = entry
                .path()
                .strip_prefix(source)
                .context("strip a prefix")?;
            let kind = entry.file_type();
            let mode = mode_of(entry.metadata()?.permissions().mode() & 0o7777);
            let found = if kind.is_dir() {
                Entry::Directory(mode)
            } else if kind.is_symlink() {
                Entry::Link(fs::read_link(entry.path())?)
            } else if kind.is_file() {
                Entry::File(entry.path().to_owned(), mode)
            } else {
                continue;
            };
            self.put(Path::new(path).join(below), found);
        }
        Ok(self)
    }

    fn put(&mut self, path: PathBuf, entry: Entry) {
        let parents = path.ancestors().skip(1);
        for parent in parents.filter(|parent| !parent.as_os_str().is_empty()) {
            self.0
                .entry(parent.to_owned())
                .or_insert(Entry::Directory(0o755));
        }
        self.0.insert(path, entry);
    }

    /// Writes the layer into `directory` under its digest.
    pub(super) fn pack(&self, directory: &Path) -> Result<Blob> {
        let temporary = directory.join("layer.partial");
        let file = File::create(&temporary).context("make a layer")?;
        let mut tar = Builder::new(Hashed::new(BufWriter::with_capacity(1 << 20, file)));
        tar.mode(tar::HeaderMode::Deterministic);
        for (path, entry) in &self.0 {
            append(&mut tar, path, entry).with_context(|| format!("pack {}", path.display()))?;
        }
        let mut hashed = tar.into_inner().context("finish a layer")?;
        hashed.flush().context("write a layer")?;
        let blob = Blob {
            digest: hex::encode(hashed.hash.finalize()),
            size: hashed.size,
        };
        fs::rename(&temporary, directory.join(&blob.digest)).context("name a layer")?;
        Ok(blob)
    }
}

fn append<W: Write>(tar: &mut Builder<W>, path: &Path, entry: &Entry) -> Result<()> {
    match entry {
        Entry::Directory(mode) => {
            let mut header = header(EntryType::Directory, 0, *mode);
            tar.append_data(&mut header, path, io::empty())?;
        }
        Entry::Text(text, mode) => {
            let mut header = header(EntryType::Regular, text.len() as u64, *mode);
            tar.append_data(&mut header, path, text.as_bytes())?;
        }
        Entry::File(source, mode) => {
            let file = File::open(source)?;
            let length = file.metadata()?.len();
            let mut header = header(EntryType::Regular, length, *mode);
            tar.append_data(&mut header, path, file.take(length))?;
        }
        Entry::Link(target) => {
            let mut header = header(EntryType::Symlink, 0, 0o777);
            tar.append_link(&mut header, path, target)?;
        }
    }
    Ok(())
}

fn header(kind: EntryType, size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(TIME);
    header
}

/// Content by its SHA-256.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) digest: String,
    pub(super) size: u64,
}

impl Blob {
    fn of(content: &[u8]) -> Self {
        Self {
            digest: hex::encode(Sha256::digest(content)),
            size: content.len() as u64,
        }
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": format!("sha256:{}", self.digest), "size": self.size})
    }
}

struct Hashed<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Hashed<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            size: 0,
        }
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// What is said of an image.
pub(super) struct Description<'a> {
    pub(super) name: &'a str,
    pub(super) tag: &'a str,
    /// The `config` of the image: entry point, user, environment.
    pub(super) config: Value,
    pub(super) labels: Value,
}

/// Writes an image of layers that lie in `blobs` as one tar; gives the digest of its manifest.
pub(super) fn write(
    target: &Path,
    blobs: &Path,
    layers: &[Blob],
    description: &Description<'_>,
) -> Result<String> {
    let mut settings = description.config.clone();
    settings["Labels"] = description.labels.clone();
    let diff_ids: Vec<_> = layers
        .iter()
        .map(|layer| format!("sha256:{}", layer.digest))
        .collect();
    let config = serde_json::to_vec(&json!({
        "created": "1980-01-01T00:00:00Z",
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }))?;
    let listed: Vec<_> = layers.iter().map(|layer| layer.descriptor(LAYER)).collect();
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": Blob::of(&config).descriptor(CONFIG),
        "layers": listed,
    }))?;
    let mut entry = Blob::of(&manifest).descriptor(MANIFEST);
    entry["annotations"] = json!({
        "io.containerd.image.name": format!("{}:{}", description.name, description.tag),
        "org.opencontainers.image.ref.name": description.tag,
    });
    let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [entry]}))?;

    let file = File::create(target).with_context(|| format!("make {}", target.display()))?;
    let mut tar = Builder::new(BufWriter::with_capacity(1 << 20, file));
    let mut add = |name: &str, content: &[u8]| {
        let mut header = header(EntryType::Regular, content.len() as u64, 0o644);
        tar.append_data(&mut header, name, content)
    };
    add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add("index.json", &index)?;
    for blob in [&config, &manifest] {
        add(&format!("blobs/sha256/{}", Blob::of(blob).digest), blob)?;
    }
    for layer in layers {
        let file = File::open(blobs.join(&layer.digest)).context("open a layer")?;
        let mut header = header(EntryType::Regular, layer.size, 0o644);
        let name = format!("blobs/sha256/{}", layer.digest);
        tar.append_data(&mut header, name, file)?;
    }
    tar.into_inner()
        .context("finish an image")?
        .flush()
        .context("write an image")?;
    Ok(format!("sha256:{}", Blob::of(&manifest).digest))
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkout as somebody made it: with their umask, at their time, in their order.
    fn checkout(umask: u32, seconds: u64, names: &[&str]) -> tempfile::TempDir {
        let source = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("a", source.path().join("l")).unwrap();
        for name in names {
            let path = source.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            let mode = if *name == "run" { 0o777 } else { 0o666 };
            let file = File::open(&path).unwrap();
            file.set_permissions(fs::Permissions::from_mode(mode & !umask))
                .unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(time).unwrap();
        }
        fs::set_permissions(
            source.path().join("d"),
            fs::Permissions::from_mode(0o777 & !umask),
        )
        .unwrap();
        source
    }

    #[test]
    fn the_same_sources_give_the_same_image_whoever_wrote_them_and_when() {
        let image = |source: &Path| {
            let out = tempfile::tempdir().unwrap();
            let layer = Layer::default()
                .text("etc/group", "")
                .file("usr/bin/windlass", &source.join("run"), 0o755)
                .sources("opt/bundle", source)
                .unwrap();
            let layers = [layer.pack(out.path()).unwrap()];
            let description = Description {
                name: "docker.io/library/windlass",
                tag: "v1",
                config: json!({"User": "65532:65532"}),
                labels: json!({}),
            };
            let tar = out.path().join("image.tar");
            let digest = write(&tar, out.path(), &layers, &description).unwrap();
            (digest, fs::read(tar).unwrap())
        };
        let one = checkout(0o022, 1_000_000_000, &["run", "b", "a", "d/c"]);
        let other = checkout(0o077, 1_700_000_000, &["d/c", "a", "b", "run"]);
        let (one, other) = (image(one.path()), image(other.path()));
        assert_eq!(one.0, other.0);
        assert!(one.1 == other.1, "the bytes differ");
        let changed = checkout(0o022, 1_000_000_000, &["run", "b", "a", "d/e"]);
        assert_ne!(image(changed.path()).0, one.0);
    }

    #[test]
    fn a_directory_keeps_its_mode_whoever_names_it_first() {
        let layer = Layer::default()
            .text("tmp/x", "")
            .directory("tmp", 0o1777)
            .text("tmp/y", "");
        assert!(matches!(
            layer.0.get(Path::new("tmp")),
            Some(Entry::Directory(0o1777))
        ));
    }
}
