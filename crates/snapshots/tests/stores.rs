//! Stores as they are: a directory, and a real S3 server, over TLS and without.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use secrecy::SecretString;
use snapshots::{
    Manifest, Name, Store,
    manifest::Stored,
    seal::{Seal, Spool},
    store::{Access, Bucket, Directory, Error, Settings, listing},
};
use tempfile::TempDir;

const BELOW: &str = "demo/first";

/// A snapshot in a file, and its manifest.
fn snapshot(directory: &Path, name: &str, content: &[u8]) -> (PathBuf, Manifest) {
    let file = directory.join("spool");
    let mut spool = Spool::create(&file, &Seal::Open).unwrap();
    spool.write(content).unwrap();
    let spooled = spool.finish().unwrap();
    let manifest = Manifest {
        form: Manifest::FORM,
        name: name.parse().unwrap(),
        cluster: BELOW.into(),
        authority: "a".repeat(64),
        cluster_id: "1".into(),
        etcd_version: "3.6.4".into(),
        host: "m1".into(),
        taken_at: "2026-11-25T03:30:00Z".parse().unwrap(),
        revision: 3,
        keys: 2,
        entries: 9,
        checked_by: "etcdutl".into(),
        size: spooled.size,
        digest: spooled.digest.clone(),
        stored: Stored {
            size: spooled.stored_size,
            digest: spooled.stored_digest.clone(),
            sealed: false,
        },
    };
    (file, manifest)
}

/// What every store does; `path` is where its objects lie on this machine.
async fn keeps_and_brings_back(store: &Store, path: &Path) {
    let work = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..700_000_u32).map(|at| (at % 253) as u8).collect();
    let (file, manifest) = snapshot(work.path(), "2026-11-25T03-30-00Z", &content);
    assert_eq!(store.list().await.unwrap(), []);
    store.keep(&file, &manifest).await.unwrap();
    // After a runner was killed it is written again.
    store.keep(&file, &manifest).await.unwrap();
    let name = &manifest.name;
    assert_eq!(store.manifest(name).await.unwrap(), manifest);
    let to = work.path().join("brought");
    store.bring(&manifest, &to).await.unwrap();
    assert_eq!(fs::read(&to).unwrap(), content);

    let (file, second) = snapshot(work.path(), "2026-11-25T04-30-00Z", b"short");
    store.keep(&file, &second).await.unwrap();
    // What a run that was killed leaves, and what is somebody else's.
    fs::write(path.join("2026-11-25T05-30-00Z.db"), b"half").unwrap();
    fs::create_dir_all(path.join("deeper")).unwrap();
    fs::write(path.join("deeper/2026-11-25T06-30-00Z.json"), b"{}").unwrap();
    let listed = listing(&store.list().await.unwrap());
    assert_eq!(listed.snapshots, [name.clone(), second.name.clone()]);
    let unfinished: Vec<_> = listed
        .unfinished
        .iter()
        .map(|(_, object)| &**object)
        .collect();
    assert_eq!(unfinished, ["2026-11-25T05-30-00Z.db"]);

    let object = path.join(manifest.object());
    for (altered, why) in [
        (&content[1..], "fewer than"),
        (&[&content[..], b"x"].concat(), "more than"),
        (&[b"x", &content[1..]].concat(), "digest"),
    ] {
        fs::write(&object, altered).unwrap();
        let error = store.bring(&manifest, &to).await.unwrap_err();
        assert_eq!(error.advice().0, "SnapshotAltered");
        assert!(error.to_string().contains(why), "{error}");
    }
    fs::write(path.join(name.manifest()), b"{}").unwrap();
    let error = store.manifest(name).await.unwrap_err();
    assert_eq!(error.advice().0, "SnapshotAltered");

    for object in [name.manifest(), manifest.object()] {
        store.remove(&object).await.unwrap();
        store.remove(&object).await.unwrap();
    }
    let error = store.manifest(name).await.unwrap_err();
    assert!(matches!(error, Error::Missing(_)), "{error}");
    let error = store.bring(&manifest, &to).await.unwrap_err();
    assert!(matches!(error, Error::Missing(_)), "{error}");
    assert_eq!(
        listing(&store.list().await.unwrap()).snapshots,
        [second.name]
    );
}

#[tokio::test]
async fn a_directory_keeps_and_brings_back() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::open(root.path(), BELOW).await.unwrap();
    let path = root.path().join(BELOW);
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    keeps_and_brings_back(&Store::Directory(directory), &path).await;
}

#[tokio::test]
async fn a_directory_writes_through_no_link() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::open(root.path(), BELOW).await.unwrap();
    let work = tempfile::tempdir().unwrap();
    let (file, manifest) = snapshot(work.path(), "a", b"short");
    let other = root.path().join("other");
    fs::write(&other, b"precious").unwrap();
    for name in [manifest.object(), manifest.name.manifest()] {
        let part = root.path().join(BELOW).join(format!("{name}.part"));
        std::os::unix::fs::symlink(&other, part).unwrap();
    }
    Store::Directory(directory)
        .keep(&file, &manifest)
        .await
        .unwrap();
    assert_eq!(fs::read(&other).unwrap(), b"precious");
}

#[tokio::test]
async fn a_directory_that_is_not_there_full_or_not_to_be_written_is_told_of() {
    let missing = Directory::open(Path::new("/nonexistent/a"), BELOW).await;
    assert_eq!(missing.unwrap_err().advice().0, "StoreUnusable");
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, b"").unwrap();
    let no_directory = Directory::open(&file, BELOW).await;
    assert_eq!(no_directory.unwrap_err().advice().0, "StoreUnusable");

    let small = Mounted::of(&root.path().join("small"));
    let directory = Directory::open(&small.0, BELOW).await.unwrap();
    let store = Store::Directory(directory);
    let work = tempfile::tempdir().unwrap();
    let (file, large) = snapshot(work.path(), "a", &vec![7; 4 * 1024 * 1024]);
    let error = store.keep(&file, &large).await.unwrap_err();
    assert_eq!(error.advice().0, "StoreFull", "{error}");
    // Nothing of it is left, so that a smaller one has room.
    let (file, short) = snapshot(work.path(), "b", b"short");
    store.keep(&file, &short).await.unwrap();
    assert_eq!(listing(&store.list().await.unwrap()).unfinished, []);

    small.read_only();
    let error = store.keep(&file, &short).await.unwrap_err();
    assert_eq!(error.advice().0, "StoreRefused", "{error}");
    let error = store.remove(&short.name.manifest()).await.unwrap_err();
    assert_eq!(error.advice().0, "StoreRefused", "{error}");
}

/// A file system of a megabyte.
struct Mounted(PathBuf);

impl Mounted {
    fn of(path: &Path) -> Self {
        fs::create_dir(path).unwrap();
        mount(
            Some("tmpfs"),
            path,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=1m"),
        )
        .unwrap();
        Self(path.to_owned())
    }

    fn read_only(&self) {
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(None::<&str>, &self.0, None::<&str>, flags, None::<&str>).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

/// A real S3 server over a directory with one bucket.
struct Server {
    child: Child,
    directory: TempDir,
    endpoint: String,
}

impl Server {
    fn start(tls: Option<(&Path, &Path)>) -> Self {
        let programs = lab::snapshot_programs(&lab::progress::Silent).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("bucket")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut command = Command::new(programs.join("versitygw"));
        command
            .env("ROOT_ACCESS_KEY", "id")
            .env("ROOT_SECRET_KEY", "secret");
        command.args(["--port", &format!("127.0.0.1:{port}"), "--quiet"]);
        if let Some((certificate, key)) = tls {
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        let child = command
            .arg("posix")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        Self {
            child,
            directory,
            endpoint: format!("{scheme}://127.0.0.1:{port}"),
        }
    }

    fn store(&self, bucket: &str, secret: &str, authorities: Option<Vec<u8>>) -> Store {
        let settings = Settings {
            endpoint: self.endpoint.clone(),
            bucket: bucket.into(),
            region: "us-east-1".into(),
            prefix: format!("backups/{BELOW}/"),
            virtual_host: false,
        };
        let access = Access {
            id: "id".into(),
            secret: SecretString::from(secret.to_owned()),
            token: None,
            authorities,
        };
        Store::Bucket(Box::new(Bucket::new(&settings, &access).unwrap()))
    }

    /// Until it answers.
    async fn ready(&self, store: &Store) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Err(error) = store.list().await {
            assert!(
                Instant::now() < deadline,
                "the server does not answer: {error}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_bucket_keeps_and_brings_back_and_what_it_refuses_is_told_of() {
    let server = Server::start(None);
    let store = server.store("bucket", "secret", None);
    server.ready(&store).await;
    let path = server.directory.path().join("bucket/backups").join(BELOW);
    keeps_and_brings_back(&store, &path).await;

    let work = tempfile::tempdir().unwrap();
    let (file, manifest) = snapshot(work.path(), "a", b"short");
    for (bucket, secret, code) in [
        ("bucket", "other", "StoreRefused"),
        ("nowhere", "secret", "StoreUnusable"),
    ] {
        let store = server.store(bucket, secret, None);
        let error = store.keep(&file, &manifest).await.unwrap_err();
        assert_eq!(error.advice().0, code, "{error}");
        assert!(!error.to_string().contains("Signature="), "{error}");
        let error = store.list().await.unwrap_err();
        assert_eq!(error.advice().0, code, "{error}");
    }
    drop(server);
    let error = store.list().await.unwrap_err();
    assert_eq!(error.advice().0, "StoreUnreachable", "{error}");
    assert!(!error.to_string().contains("X-Amz"), "{error}");
}

#[tokio::test]
async fn a_server_is_trusted_by_the_authority_that_is_named_alone() {
    let work = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (work.path().join("c.pem"), work.path().join("k.pem"));
    fs::write(&certificate, own.cert.pem()).unwrap();
    fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    let server = Server::start(Some((&certificate, &key)));
    let trusted = server.store("bucket", "secret", Some(own.cert.pem().into_bytes()));
    server.ready(&trusted).await;
    let (file, manifest) = snapshot(work.path(), "a", b"short");
    trusted.keep(&file, &manifest).await.unwrap();
    let read: Name = "a".parse().unwrap();
    assert_eq!(trusted.manifest(&read).await.unwrap(), manifest);

    let error = server
        .store("bucket", "secret", None)
        .list()
        .await
        .unwrap_err();
    assert_eq!(error.advice().0, "StoreUnreachable", "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}
