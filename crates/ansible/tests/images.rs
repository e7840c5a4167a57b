//! Playbooks out of images, by a registry on loopback.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ansible::source::{
    Bounds, Checkout, Error, NetworkRefusal, Policy, Protocol, SourceRequest, Sources,
};
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
    Other(&'static str, EntryType),
    /// So many zeros.
    Zeros(&'static str, usize),
    /// A name of so many bytes, for the entry that follows.
    LongName(usize),
    /// The same, as a later standard says it.
    ExtendedName(usize),
}
use Entry::{Directory, ExtendedName, File, HardLink, Link, LongName, Other, Program, Zeros};

/// A registry with one image, `windlass/playbooks:v1`, behind an index of two platforms.
struct Registry {
    port: u16,
    manifest: String,
}

impl Registry {
    fn start(layers: &[&[Entry]]) -> Self {
        Self::with(layers, |_, _| {})
    }

    /// A registry that was taken over: `change` sees the name of every blob and its answer.
    fn with(layers: &[&[Entry]], change: impl Fn(&str, &mut (Vec<u8>, &'static str))) -> Self {
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
        for (name, answer) in &mut blobs {
            change(name, answer);
        }
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

/// Kinds of blobs that are no content: a redirect to what the bytes say, an answer that stops coming, one that never ends.
const REDIRECT: &str = "redirect";
const SILENCE: &str = "silence";
const FLOOD: &str = "flood";

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
        Some((to, REDIRECT)) => {
            let to = String::from_utf8_lossy(to);
            return write!(
                stream,
                "HTTP/1.1 307 Elsewhere\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
        }
        Some((_, SILENCE)) => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1")?;
            // Until the client has had enough.
            return std::io::copy(&mut stream, &mut std::io::sink()).map(drop);
        }
        Some((_, FLOOD)) => {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
            )?;
            loop {
                stream.write_all(&vec![b' '; 1 << 16])?;
            }
        }
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
        let zeros;
        let (name, kind, content, link, mode) = match entry {
            File(name, content) => (name, EntryType::Regular, *content, "", 0o644),
            Program(name) => (name, EntryType::Regular, "#!/bin/sh\n", "", 0o755),
            Directory(name) => (name, EntryType::Directory, "", "", 0o755),
            Link(name, link) => (name, EntryType::Symlink, "", *link, 0o777),
            HardLink(name, link) => (name, EntryType::Link, "", *link, 0o644),
            Other(name, kind) => (name, *kind, "", "", 0o644),
            Zeros(name, count) => {
                zeros = "\0".repeat(*count);
                (name, EntryType::Regular, zeros.as_str(), "", 0o644)
            }
            LongName(length) => {
                zeros = "x".repeat(*length);
                (&"long", EntryType::GNULongName, zeros.as_str(), "", 0o644)
            }
            ExtendedName(length) => {
                // "LENGTH path=...\n", and the length counts itself.
                let rest = format!(" path={}\n", "x".repeat(*length));
                let digits = (rest.len() + 8).to_string().len();
                zeros = format!("{}{rest}", rest.len() + digits);
                (&"extended", EntryType::XHeader, zeros.as_str(), "", 0o644)
            }
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

async fn fetch(request: &SourceRequest, cache: &Path) -> Result<Checkout, Error> {
    let sources = Sources::new(cache, Policy::person());
    sources.fetch("default", request).await
}

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
        .filter(|path| !path.ends_with(".uses") && !path.ends_with(".locks"))
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
        (
            // Each seems to stay, as it is written.
            "links through links",
            &[
                Link("kubespray/roles/up", ".."),
                Link("kubespray/out", "roles/up/../escaped"),
            ],
            "a link leads out of the tree: out -> roles/up/../escaped",
        ),
        (
            "circle",
            &[Link("kubespray/a", "b"), Link("kubespray/b", "a")],
            "a link leads in a circle",
        ),
        (
            "device",
            &[Other("kubespray/disk", EntryType::Block)],
            "disk is neither a file",
        ),
        (
            "terminal",
            &[Other("kubespray/tty", EntryType::Char)],
            "tty is neither a file",
        ),
        (
            "pipe",
            &[Other("kubespray/pipe", EntryType::Fifo)],
            "pipe is neither a file",
        ),
        (
            "control sequence",
            &[File("kubespray/\u{1b}[2J", "x")],
            "a name has characters that nobody sees",
        ),
        (
            "holes",
            &[Other("kubespray/vast", EntryType::GNUSparse)],
            "a layer has files with holes",
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

/// Small bounds stand for the real ones, which would take minutes to pass.
#[tokio::test]
async fn an_image_that_is_too_much_is_refused_before_it_is_written() {
    let bounds = Bounds {
        bytes: 1 << 20,
        file_bytes: 512 << 10,
        entries: 20,
        depth: 4,
        unpacked: 4 << 20,
        layer_entries: 40,
        ..Bounds::default()
    };
    let files: Vec<Entry> = (0..30)
        .map(|number| {
            File(
                Box::leak(format!("kubespray/f{number}").into_boxed_str()),
                "x",
            )
        })
        .collect();
    let others: Vec<Entry> = (0..60)
        .map(|number| File(Box::leak(format!("usr/f{number}").into_boxed_str()), "x"))
        .collect();
    let cases: &[(&str, &[Entry], &str)] = &[
        (
            "file",
            &[Zeros("kubespray/big", 600 << 10)],
            "the bytes of a file are more than 524288: big",
        ),
        (
            "files",
            &[
                Zeros("kubespray/a", 500 << 10),
                Zeros("kubespray/b", 500 << 10),
                Zeros("kubespray/c", 500 << 10),
            ],
            "the bytes of all files are more than 1048576",
        ),
        ("entries", &files, "entries are more than 20"),
        (
            "depth",
            &[File("kubespray/a/b/c/d/e", "x")],
            "directories in directories are more than 4",
        ),
        // What is beside the playbooks is not written, but costs time.
        (
            "bomb",
            &[Zeros("usr/bomb", 8 << 20)],
            "the layers are more than 4194304 bytes unpacked",
        ),
        (
            "layer",
            &others,
            "the entries of all layers are more than 40",
        ),
        (
            "name",
            &[LongName(1 << 20), File("usr/x", "x")],
            "a path is more than 4096",
        ),
        (
            "extended name",
            &[ExtendedName(5000), File("usr/x", "x")],
            "a path is more than 4096",
        ),
        // Paths are kept until all layers were read.
        (
            "names",
            &[
                LongName(4000),
                File("usr/x", "x"),
                ExtendedName(4000),
                File("usr/y", "x"),
            ],
            "the bytes of all paths are more than 6400",
        ),
    ];
    for (name, layer, expected) in cases {
        let cache = tempfile::tempdir().expect("a directory");
        let policy = Policy {
            bounds,
            ..Policy::person()
        };
        let request = Registry::start(&[KUBESPRAY, layer]).image("v1");
        let error = Sources::new(cache.path(), policy)
            .fetch("default", &request)
            .await
            .expect_err(name);
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let cause = cause.unwrap_or_default();
        assert!(cause.contains(expected), "{name}: {cause:?}");
        assert!(error.is_final(), "{name}");
        assert_eq!(
            fs::read_dir(cache.path()).expect("the cache").count(),
            0,
            "{name}"
        );
    }
}

#[tokio::test]
async fn an_image_named_by_digest_is_that_image() {
    let cache = tempfile::tempdir().expect("a directory");
    let registry = Registry::start(&[KUBESPRAY]);
    let named = |digest: &str| {
        SourceRequest::Image(format!(
            "127.0.0.1:{}/windlass/playbooks@{digest}",
            registry.port
        ))
    };
    let exact = fetch(&named(&registry.manifest), cache.path())
        .await
        .expect("the playbooks");
    assert_eq!(exact.revision.as_deref(), Some(registry.manifest.as_str()));
    let forged = Registry::with(&[KUBESPRAY], |_, (bytes, kind)| {
        if kind.ends_with("manifest.v1+json") {
            // One that says the same in other bytes.
            bytes.push(b' ');
        }
    });
    let request = SourceRequest::Image(format!(
        "127.0.0.1:{}/windlass/playbooks@{}",
        forged.port, forged.manifest
    ));
    let other = fetch(&request, cache.path()).await.expect_err("another");
    assert!(matches!(other, Error::Registry { .. }), "{other:?}");
}

#[tokio::test]
async fn a_registry_leads_nowhere_else_and_neither_floods_nor_hangs() {
    let leading = |kind: &'static str, to: &'static str| {
        Registry::with(&[KUBESPRAY], move |name, answer| {
            let is_layer = answer.1.ends_with("tar+gzip");
            let index = name == "v1";
            if (kind == REDIRECT && is_layer) || (kind != REDIRECT && index) {
                *answer = (to.as_bytes().to_vec(), kind);
            }
        })
    };
    let answering = |kind| leading(kind, "");
    let cache = tempfile::tempdir().expect("a directory");
    let clear = leading(REDIRECT, "http://169.254.169.254/latest/meta-data");
    let redirected = fetch(&clear.image("v1"), cache.path()).await;
    assert!(
        matches!(
            &redirected,
            Err(error @ Error::Network { source: NetworkRefusal::Redirect { host }, .. })
                if host == "169.254.169.254" && error.is_final()
        ),
        "{redirected:?}"
    );
    let secured = leading(REDIRECT, "https://169.254.169.254/latest/meta-data");
    let redirected = fetch(&secured.image("v1"), cache.path()).await;
    assert!(
        matches!(
            &redirected,
            Err(Error::Network { source: NetworkRefusal::Address { address, .. }, .. })
                if address.to_string() == "169.254.169.254"
        ),
        "{redirected:?}"
    );
    let flooded = fetch(&answering(FLOOD).image("v1"), cache.path()).await;
    assert!(
        matches!(
            flooded,
            Err(Error::Network {
                source: NetworkRefusal::Bytes(_),
                ..
            })
        ),
        "{flooded:?}"
    );
    let policy = Policy {
        time: Duration::from_millis(300),
        ..Policy::person()
    };
    let hung = Sources::new(cache.path(), policy)
        .fetch("default", &answering(SILENCE).image("v1"))
        .await;
    assert!(matches!(hung, Err(Error::Late { .. })), "{hung:?}");
}

#[tokio::test]
async fn a_tenant_names_no_registry_of_this_machine() {
    let cache = tempfile::tempdir().expect("a directory");
    let registry = Registry::start(&[KUBESPRAY]);
    let clear = Sources::new(cache.path(), Policy::tenants());
    let refused = clear.fetch("default", &registry.image("v1")).await;
    assert!(
        matches!(
            &refused,
            Err(error @ Error::Network { source: NetworkRefusal::Clear { .. }, .. }) if error.is_final()
        ),
        "{refused:?}"
    );
    let mut policy = Policy::tenants();
    policy.protocols.push(Protocol::Http);
    let near = Sources::new(cache.path(), policy.clone());
    let refused = near.fetch("default", &registry.image("v1")).await;
    assert!(
        matches!(
            &refused,
            Err(Error::Network { source: NetworkRefusal::Address { what, .. }, .. }) if what.contains("loopback")
        ),
        "{refused:?}"
    );
    policy.addresses = vec!["127.0.0.1/32".parse().expect("a network")];
    let allowed = Sources::new(cache.path(), policy);
    allowed
        .fetch("default", &registry.image("v1"))
        .await
        .expect("what is allowed");
}
