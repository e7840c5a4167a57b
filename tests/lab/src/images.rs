//! Container images of one layer each, as tars for `ctr -n k8s.io images import`, made without Docker.
//!
//! They are reproducible: no times, no owners, sorted names. Static programs need nothing beside them;
//! kube-proxy needs iptables with its plugins *and what those link*, which are taken from the Debian root:
//! without libm, say, a service works with one endpoint and is dead with two.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::base::{self, Base};
use crate::programs::Programs;
use crate::{Progress, cache, command};

/// The directory with one tar per image, made where the cache does not have it.
///
/// The images are those that kubeadm of this version asks for (kube-*, `pause`, `coredns/coredns`), `etcd:<version>-0`,
/// `pause:3.10.1` for sandboxes, and `busybox:1`, all under `registry.k8s.io`.
///
/// # Errors
///
/// The programs or the Debian root lack a file.
pub fn ensure(programs: &Programs, progress: &dyn Progress) -> Result<PathBuf> {
    let root = base::ensure(Base::Containerd, progress)?;
    let built = programs
        .dir
        .file_name()
        .unwrap_or_default()
        .as_encoded_bytes();
    let key = cache::key([
        built,
        base::key(Base::Containerd).as_bytes(),
        RECIPE.as_bytes(),
    ]);
    cache::ensure("images", &key, |target| {
        progress.begin("container images", "about 10 s, 0.5 GB");
        make_all(programs, &root, target, progress)?;
        progress.end();
        Ok(())
    })
}

/// Writes the image of one static program, which stands in its root and is what it runs.
pub(crate) fn of_program(target: &Path, name: &str, program: &Path) -> Result<()> {
    let file = program.file_name().context("a program has a name")?;
    let entry = format!("/{}", file.to_string_lossy());
    write(target, name, &entry, &Layer::new().file(file, program))
}

fn make_all(
    programs: &Programs,
    root: &Path,
    target: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    let image = |name: &str, entry: &str, layer: Layer| {
        progress.step(name);
        write(target, name, entry, &layer)
    };
    let program = |name: &str| programs.dir.join(name);
    let version = &programs.version;
    for name in [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ] {
        let layer = Layer::new().file(format!("usr/local/bin/{name}"), program(name));
        image(&format!("{name}:v{version}"), name, layer)?;
    }
    let proxy =
        iptables(Layer::new(), root)?.file("usr/local/bin/kube-proxy", program("kube-proxy"));
    image(&format!("kube-proxy:v{version}"), "kube-proxy", proxy)?;
    let etcd = Layer::new()
        .file("usr/local/bin/etcd", program("etcd"))
        .file("usr/local/bin/etcdctl", program("etcdctl"));
    image(&format!("etcd:{}-0", programs.etcd), "etcd", etcd)?;
    for name in BTreeSet::from([SANDBOX.to_owned(), pause(programs)?]) {
        let layer = Layer::new().file("pause", program("pause"));
        image(&name, "/pause", layer)?;
    }
    let coredns = Layer::new().file("coredns", program("coredns"));
    image(
        &format!("coredns/coredns:v{}", programs.coredns),
        "/coredns",
        coredns,
    )?;
    let mut busybox = Layer::new().file("usr/bin/busybox", root.join("bin/busybox"));
    for name in [
        "cat", "hostname", "httpd", "ls", "mkdir", "nc", "nslookup", "ping", "sh", "sleep", "wget",
    ] {
        busybox = busybox.link(format!("usr/bin/{name}"), "busybox");
    }
    image("busybox:1", "sh", busybox)
}

/// The pause image that kubeadm of this version asks for.
fn pause(programs: &Programs) -> Result<String> {
    let mut kubeadm = Command::new(programs.dir.join("kubeadm"));
    kubeadm.args(["config", "images", "list", "--kubernetes-version"]);
    let listed = command::output(kubeadm.arg(format!("v{}", programs.version)))?;
    let mut names = listed
        .lines()
        .filter_map(|line| line.strip_prefix("registry.k8s.io/"));
    let pause = names.find(|name| name.starts_with("pause:"));
    pause
        .map(str::to_owned)
        .context("kubeadm lists no pause image")
}

/// Debian's iptables with all its plugins and libraries.
fn iptables(layer: Layer, root: &Path) -> Result<Layer> {
    let mut files = vec![
        PathBuf::from("usr/sbin/xtables-nft-multi"),
        PathBuf::from("usr/sbin/nft"),
    ];
    let plugins = walkdir::WalkDir::new(root.join("usr/lib"))
        .sort_by_file_name()
        .into_iter()
        .flatten();
    files.extend(plugins.filter_map(|entry| {
        let path = entry.path().strip_prefix(root).ok()?.to_owned();
        let plugin = path.parent()?.ends_with("xtables") && path.extension()? == "so";
        plugin.then_some(path)
    }));
    let mut layer = layer;
    let listed = command::output(
        Command::new("chroot")
            .arg(root)
            .arg("ldd")
            .args(files.iter().map(|file| Path::new("/").join(file))),
    )
    .context("list the libraries of iptables")?;
    for library in listed
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'))
    {
        let real = command::output(
            Command::new("chroot")
                .arg(root)
                .args(["readlink", "-f", library]),
        )?;
        let inside = library.trim_start_matches('/');
        // The directories of an image are merged: /lib is a link to usr/lib.
        let inside = if inside.starts_with("usr/") {
            inside.to_owned()
        } else {
            format!("usr/{inside}")
        };
        layer = layer.file(inside, root.join(real.trim().trim_start_matches('/')));
    }
    for file in files {
        layer = layer.file(&file, root.join(&file));
    }
    for family in ["iptables", "ip6tables"] {
        for form in ["", "-save", "-restore"] {
            layer = layer.link(format!("usr/sbin/{family}{form}"), "xtables-nft-multi");
        }
    }
    Ok(layer)
}

/// What an image holds, by its path in the image.
struct Layer(BTreeMap<PathBuf, Entry>);

enum Entry {
    Directory,
    File(PathBuf),
    Link(&'static str),
    Text(&'static str),
}

impl Layer {
    /// The frame that every image has.
    fn new() -> Self {
        let mut entries = BTreeMap::new();
        for name in ["etc", "run", "tmp", "usr", "var"] {
            entries.insert(PathBuf::from(name), Entry::Directory);
        }
        for (name, target) in [
            ("bin", "usr/bin"),
            ("sbin", "usr/sbin"),
            ("lib", "usr/lib"),
            ("lib64", "usr/lib64"),
            ("var/run", "../run"),
        ] {
            entries.insert(PathBuf::from(name), Entry::Link(target));
        }
        entries.insert(
            "etc/passwd".into(),
            Entry::Text("root:x:0:0:root:/:/bin/sh\n"),
        );
        let mut layer = Self(entries);
        for name in ["usr/bin/x", "usr/sbin/x", "usr/lib/x", "usr/lib64/x"] {
            layer.parents(Path::new(name));
        }
        layer
    }

    fn file(self, path: impl AsRef<Path>, source: impl Into<PathBuf>) -> Self {
        self.with(path.as_ref(), Entry::File(source.into()))
    }

    fn link(self, path: impl AsRef<Path>, target: &'static str) -> Self {
        self.with(path.as_ref(), Entry::Link(target))
    }

    fn with(mut self, path: &Path, entry: Entry) -> Self {
        self.parents(path);
        self.0.insert(path.to_owned(), entry);
        self
    }

    fn parents(&mut self, path: &Path) {
        for parent in path
            .ancestors()
            .skip(1)
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            self.0.entry(parent.to_owned()).or_insert(Entry::Directory);
        }
    }

    fn pack(&self) -> Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            match entry {
                Entry::Directory => add(&mut tar, path, EntryType::Directory, &[])?,
                Entry::Text(text) => add(&mut tar, path, EntryType::Regular, text.as_bytes())?,
                Entry::File(source) => {
                    let content =
                        fs::read(source).with_context(|| format!("read {}", source.display()))?;
                    add(&mut tar, path, EntryType::Regular, &content)?;
                }
                Entry::Link(target) => {
                    let mut header = header(EntryType::Symlink, 0);
                    tar.append_link(&mut header, path, target)
                        .context("pack a link")?;
                }
            }
        }
        tar.into_inner().context("finish a layer")
    }
}

fn add<W: Write>(tar: &mut Builder<W>, path: &Path, kind: EntryType, content: &[u8]) -> Result<()> {
    let mut header = header(kind, content.len() as u64);
    tar.append_data(&mut header, path, content)
        .with_context(|| format!("pack {}", path.display()))
}

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o755);
    header.set_mtime(0);
    header
}

/// The OCI image layout of one image in one tar.
fn write(target: &Path, name: &str, entry: &str, layer: &Layer) -> Result<()> {
    let layer = layer.pack()?;
    let config = serde_json::to_vec(&json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {"Entrypoint": [entry], "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    }))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
    }))?;
    let mut listed = descriptor(MANIFEST, &manifest);
    listed["annotations"] = json!({
        "io.containerd.image.name": format!("registry.k8s.io/{name}"),
        "org.opencontainers.image.ref.name": name.rsplit(':').next(),
    });
    let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [listed]}))?;
    let path = target.join(format!("{}.tar", name.replace(['/', ':'], "_")));
    let file = fs::File::create(&path).with_context(|| format!("make {}", path.display()))?;
    let mut tar = Builder::new(std::io::BufWriter::new(file));
    add(
        &mut tar,
        Path::new("oci-layout"),
        EntryType::Regular,
        br#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    add(
        &mut tar,
        Path::new("index.json"),
        EntryType::Regular,
        &index,
    )?;
    for blob in [&layer, &config, &manifest] {
        let name = digest(blob).replace(':', "/");
        add(
            &mut tar,
            &Path::new("blobs").join(name),
            EntryType::Regular,
            blob,
        )?;
    }
    tar.into_inner()
        .context("finish an image")?
        .flush()
        .context("write an image")
}

pub(crate) fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(content), "size": content.len()})
}

pub(crate) fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// What the playbooks have containerd make sandboxes of.
const SANDBOX: &str = "pause:3.10.1";

/// This file: a changed recipe makes new images.
const RECIPE: &str = include_str!("images.rs");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        let source = tempfile::NamedTempFile::new().unwrap();
        let pack = || {
            Layer::new()
                .file("usr/local/bin/x", source.path())
                .pack()
                .unwrap()
        };
        assert_eq!(pack(), pack());
    }

    #[test]
    fn parents_come_before_what_they_hold() {
        let layer = Layer::new().link("usr/local/bin/x", "y");
        let paths: Vec<_> = layer.0.keys().collect();
        for (index, path) in paths.iter().enumerate() {
            for parent in path
                .ancestors()
                .skip(1)
                .filter(|parent| !parent.as_os_str().is_empty())
            {
                assert!(
                    paths[..index].iter().any(|earlier| *earlier == parent),
                    "{}",
                    path.display()
                );
            }
        }
    }
}
