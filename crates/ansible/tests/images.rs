//! Playbooks out of images, by a registry on loopback.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
};

use ansible::source::{Checkout, Error, SourceRequest, fetch};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

/// What a layer brings.
#[derive(Clone, Copy)]
enum Entry {
    File(&'static str, &'static str),
    Program(&'static str),
    Directory(&'static str),
    Link(&'static str, &'static str),
    HardLink(&'static str, &'static str),
}
use Entry::{Directory, File, HardLink, Link, Program};

/// A registry with one image, `windlass/playbooks:v1`, behind an index of two platforms.
struct Registry {
    port: u16,
    manifest: String,
}

impl Registry {
    fn start(layers: &[&[Entry]]) -> Self {
        let mut blobs = HashMap::new();
        let mut keep = |bytes: Vec<u8>, media_type: &'static str| {
            let digest = format!("sha256:{}", hex::encode(Sha256::digest(&bytes)));
            let descriptor =
                json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
            blobs.insert(digest, (bytes, media_type));
            descriptor
        };
        let config = keep(b"{}".to_vec(), "application/vnd.oci.image.config.v1+json");
        let layers: Vec<Value> = layers
            .iter()
            .map(|entries| {
                keep(
                    archive(entries),
                    "application/vnd.oci.image.layer.v1.tar+gzip",
                )
            })
            .collect();
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest =
            json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers});
        let mut ours = keep(manifest.to_string().into_bytes(), kind);
        let digest = ours["digest"].as_str().expect("a digest").to_owned();
        ours["platform"] = json!({"os": "linux", "architecture": "amd64"});
        let mut other = ours.clone();
        other["platform"] = json!({"os": "linux", "architecture": "s390x"});
        other["digest"] = json!(format!("sha256:{}", "0".repeat(64)));
        let kind = "application/vnd.oci.image.index.v1+json";
        let index = json!({"schemaVersion": 2, "mediaType": kind, "manifests": [other, ours]});
        blobs.insert("v1".to_owned(), (index.to_string().into_bytes(), kind));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let blobs = Arc::new(blobs);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let blobs = Arc::clone(&blobs);
                // A client that goes away in the middle is no concern of the registry.
                std::thread::spawn(move || drop(serve(stream, &blobs)));
            }
        });
        Self {
            port,
            manifest: digest,
        }
    }

    fn image(&self, tag: &str) -> SourceRequest {
        SourceRequest::Image(format!("127.0.0.1:{}/windlass/playbooks:{tag}", self.port))
    }
}

fn serve(mut stream: TcpStream, blobs: &HashMap<String, (Vec<u8>, &str)>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let (status, (bytes, kind)) = match blobs.get(name) {
        _ if path == "/v2/" => ("200 OK", (b"{}".to_vec(), "application/json")),
        Some(blob) => ("200 OK", blob.clone()),
        None => {
            let answer =
                json!({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]});
            (
                "404 Not Found",
                (answer.to_string().into_bytes(), "application/json"),
            )
        }
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        bytes.len()
    )?;
    stream.write_all(&bytes)
}

fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for entry in entries {
        let (name, kind, content, link, mode) = match entry {
            File(name, content) => (name, EntryType::Regular, *content, "", 0o644),
            Program(name) => (name, EntryType::Regular, "#!/bin/sh\n", "", 0o755),
            Directory(name) => (name, EntryType::Directory, "", "", 0o755),
            Link(name, link) => (name, EntryType::Symlink, "", *link, 0o777),
            HardLink(name, link) => (name, EntryType::Link, "", *link, 0o644),
        };
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        // The library refuses to write names that lead upwards; an attacker would not.
        for (field, text) in [(0, *name), (157, link)] {
            header.as_mut_bytes()[field..field + text.len()].copy_from_slice(text.as_bytes());
        }
        header.set_cksum();
        archive
            .append(&header, content.as_bytes())
            .expect("an entry");
    }
    let packed = archive.into_inner().expect("an archive");
    packed.finish().expect("a packed archive")
}

/// The least that counts as kubespray.
const KUBESPRAY: &[Entry] = &[
    Directory("kubespray"),
    File("kubespray/cluster.yml", "one"),
    File("kubespray/requirements.txt", "ansible\n"),
    File("kubespray/roles/etcd/main.yml", "etcd"),
];

async fn bring(layers: &[&[Entry]], cache: &Path) -> Result<Checkout, Error> {
    fetch(&Registry::start(layers).image("v1"), cache).await
}

fn names(tree: &Path) -> Vec<String> {
    let mut names: Vec<String> = walkdir::WalkDir::new(tree)
        .into_iter()
        .flatten()
        .filter(|entry| !entry.file_type().is_dir())
        .filter_map(|entry| Some(entry.path().strip_prefix(tree).ok()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn an_image_gives_its_playbooks_as_its_layers_leave_them() {
    let cache = tempfile::tempdir().expect("a directory");
    let below = [
        File("etc/passwd", "root"),
        File("kubespray/roles/old/main.yml", "old"),
        File("kubespray/inventory/sample/a", "a"),
        File("kubespray/gone.yml", "gone"),
        File("kubespray/library", "a file at first"),
    ];
    let above = [
        File("kubespray/cluster.yml", "two"),
        Program("kubespray/contrib/run.sh"),
        Link("kubespray/extra/roles", "../roles"),
        HardLink("kubespray/copy.yml", "kubespray/cluster.yml"),
        File("kubespray/.wh.gone.yml", ""),
        File("kubespray/roles/.wh.old", ""),
        File("kubespray/inventory/.wh..wh..opq", ""),
        File("kubespray/inventory/b", "b"),
        File("kubespray/library/kube.py", "python"),
        File("opt/other", "other"),
    ];
    let registry = Registry::start(&[KUBESPRAY, &below, &above]);
    let request = registry.image("v1");
    let (first, second) =
        tokio::join!(fetch(&request, cache.path()), fetch(&request, cache.path()));
    let first = first.expect("the playbooks");
    assert_eq!(first, second.expect("the same again"));
    assert_eq!(first.revision.as_deref(), Some(registry.manifest.as_str()));
    assert_eq!(
        names(&first.path),
        [
            "cluster.yml",
            "contrib/run.sh",
            "copy.yml",
            "extra/roles",
            "inventory/b",
            "library/kube.py",
            "requirements.txt",
            "roles/etcd/main.yml",
        ]
    );
    for name in ["cluster.yml", "copy.yml"] {
        let text = fs::read_to_string(first.path.join(name)).expect("the file");
        assert_eq!(text, "two", "{name}");
    }
    let left: Vec<PathBuf> = fs::read_dir(cache.path())
        .expect("the cache")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert_eq!(left, [first.path], "nothing else stays");
}

/// kubespray's own images hold what pip installed, but not its requirements.txt.
#[tokio::test]
async fn what_an_image_has_installed_stands_for_its_requirements() {
    let cache = tempfile::tempdir().expect("a directory");
    let layer = [
        File(
            "usr/local/lib/python3.10/dist-packages/ansible_core-2.17.14.dist-info/METADATA",
            "",
        ),
        File(
            "usr/local/lib/python3.10/dist-packages/ansible-10.7.0.dist-info/METADATA",
            "",
        ),
        File(
            "usr/lib/python3/dist-packages/six-1.16.0.dist-info/METADATA",
            "",
        ),
        File("kubespray/cluster.yml", "one"),
        File("kubespray/roles/etcd/main.yml", "etcd"),
    ];
    let checkout = bring(&[&layer], cache.path()).await.expect("the playbooks");
    let requirements = fs::read_to_string(checkout.path.join("requirements.txt")).expect("pins");
    assert_eq!(requirements, "ansible==10.7.0\nansible_core==2.17.14\n");
}

#[tokio::test]
async fn nothing_is_written_outside_of_the_cache() {
    let cases: &[(&str, &[Entry], &str)] = &[
        (
            "path",
            &[File("kubespray/../../escaped", "x")],
            "a path leads out",
        ),
        (
            "link",
            &[Link("kubespray/up", "../../escaped")],
            "a link leads out",
        ),
        (
            "absolute link",
            &[Link("kubespray/up", "/etc")],
            "a link leads out",
        ),
        (
            "hard link",
            &[HardLink("kubespray/passwd", "etc/passwd")],
            "a hard link leads out",
        ),
    ];
    for (name, layer, expected) in cases {
        let place = tempfile::tempdir().expect("a directory");
        let cache = place.path().join("cache");
        let error = bring(&[KUBESPRAY, layer], &cache).await.expect_err(name);
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert!(
            cause.as_ref().is_some_and(|cause| cause.contains(expected)),
            "{name}: {cause:?}"
        );
        assert!(error.is_final(), "{name}");
        assert!(!place.path().join("escaped").exists(), "{name}");
        assert_eq!(
            fs::read_dir(&cache).expect("the cache").count(),
            0,
            "{name}"
        );
    }
    // A link that becomes a directory is one: what is below it is not written through the link.
    let through = [
        Link("kubespray/up", "/tmp"),
        File("kubespray/up/windlass-escaped", "x"),
    ];
    let cache = tempfile::tempdir().expect("a directory");
    let checkout = bring(&[KUBESPRAY, &through], cache.path())
        .await
        .expect("the playbooks");
    assert!(checkout.path.join("up/windlass-escaped").is_file());
    assert!(!Path::new("/tmp/windlass-escaped").exists());
}

#[tokio::test]
async fn an_image_that_cannot_be_used_says_why() {
    let cache = tempfile::tempdir().expect("a directory");
    let registry = Registry::start(&[&[File("etc/passwd", "root")]]);
    let other = fetch(&registry.image("v1"), cache.path()).await;
    assert!(
        matches!(other, Err(Error::NotKubespray { .. })),
        "{other:?}"
    );
    let missing = fetch(&registry.image("v2"), cache.path())
        .await
        .expect_err("no such tag");
    assert!(
        matches!(missing, Error::Registry { .. }) && missing.is_final(),
        "{missing:?}"
    );
    let nonsense = SourceRequest::Image("Not An Image".to_owned());
    let nonsense = fetch(&nonsense, cache.path()).await;
    assert!(
        matches!(nonsense, Err(Error::ImageName { .. })),
        "{nonsense:?}"
    );
    // Nothing listens any more: that may pass.
    let port = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("it")
        .port();
    let gone = SourceRequest::Image(format!("127.0.0.1:{port}/windlass/playbooks:v1"));
    let gone = fetch(&gone, cache.path())
        .await
        .expect_err("nobody answers");
    assert!(!gone.is_final(), "{gone:?}");
}
