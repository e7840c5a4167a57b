//! Stores as they are: a directory, and a real S3 server, over TLS and without.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{Read, Seek},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use secrecy::SecretString;
use snapshots::{
    Manifest, Name, Store,
    manifest::{LARGEST_SNAPSHOT, Stored, Told},
    seal::{Seal, Spool, unnamed},
    store::{Access, Bucket, Caller, Directory, Error, Loopback, Settings, listing},
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BELOW: &str = "demo/first";
/// Who is told of errors.
const CALLER: Caller = Caller {
    field: "spec.etcd.snapshots",
    command: "windlass snapshots list",
    noun: "snapshot",
    code: "Snapshot",
};

/// A snapshot in a file, and its manifest.
fn snapshot(directory: &Path, name: &str, content: &[u8]) -> (File, Manifest) {
    let file = unnamed(directory).unwrap();
    let mut spool = Spool::into(&file, &Seal::Open).unwrap();
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
        run: None,
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

/// What a store brings of a snapshot.
async fn brought(store: &Store, work: &Path, manifest: &Manifest) -> Result<Vec<u8>, Error> {
    let mut file = unnamed(work).unwrap();
    store.bring(manifest, &file).await?;
    let mut content = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut content).unwrap();
    Ok(content)
}

/// Two of one second, written one after the other and side by side, and what a run that was killed has left of the same: each has its own
/// name in the end, and is what it was.
async fn loses_none_of_one_second(store: &Store, path: &Path) {
    let work = tempfile::tempdir().unwrap();
    let second = "2026-11-24T03-30-00Z";
    fs::write(path.join(format!("{second}-2.db.age")), b"half").unwrap();
    let contents: [&[u8]; 4] = [b"first", b"second one", b"third", b"fourth"];
    let [first, two, three, four] = contents.map(|it| snapshot(work.path(), second, it));
    let mut kept = vec![store.keep(&first.0, first.1).await.unwrap()];
    let (a, b, c) = tokio::join!(
        store.keep(&two.0, two.1),
        store.keep(&three.0, three.1),
        store.keep(&four.0, four.1)
    );
    kept.extend([a.unwrap(), b.unwrap(), c.unwrap()]);
    let names: BTreeSet<_> = kept.iter().map(|kept| kept.name.to_string()).collect();
    let expected = ["", "-3", "-4", "-5"].map(|number| format!("{second}{number}"));
    assert_eq!(names, expected.into());
    for (kept, content) in kept.iter().zip(contents) {
        assert_eq!(&store.manifest::<Manifest>(&kept.name).await.unwrap(), kept);
        assert_eq!(brought(store, work.path(), kept).await.unwrap(), content);
        for object in [kept.name.manifest(), kept.object()] {
            store.remove(&object).await.unwrap();
        }
    }
    let left = fs::read(path.join(format!("{second}-2.db.age"))).unwrap();
    assert_eq!(left, b"half");
    store.remove(&format!("{second}-2.db.age")).await.unwrap();
}

/// What every store does; `path` is where its objects lie on this machine.
async fn keeps_and_brings_back(store: &Store, path: &Path) {
    let work = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..700_000_u32).map(|at| (at % 253) as u8).collect();
    let (file, manifest) = snapshot(work.path(), "2026-11-25T03-30-00Z", &content);
    assert_eq!(store.list().await.unwrap(), []);
    let kept = store.keep(&file, manifest.clone()).await.unwrap();
    assert_eq!(kept, manifest);
    let name = &manifest.name;
    assert_eq!(store.manifest::<Manifest>(name).await.unwrap(), manifest);
    let there = brought(store, work.path(), &manifest).await.unwrap();
    assert_eq!(there, content);
    loses_none_of_one_second(store, path).await;

    let (file, second) = snapshot(work.path(), "2026-11-25T04-30-00Z", b"short");
    store.keep(&file, second.clone()).await.unwrap();
    // What a run that was killed leaves, and what is somebody else's.
    fs::write(path.join("2026-11-25T05-30-00Z.db"), b"half").unwrap();
    fs::create_dir_all(path.join("deeper")).unwrap();
    fs::write(path.join("deeper/2026-11-25T06-30-00Z.json"), b"{}").unwrap();
    let listed = listing(&store.list().await.unwrap());
    assert_eq!(listed.snapshots, [name.clone(), second.name.clone()]);
    let unfinished: Vec<_> = listed.unfinished.into_values().flatten().collect();
    assert_eq!(unfinished, ["2026-11-25T05-30-00Z.db"]);

    let object = path.join(manifest.object());
    for (altered, why) in [
        (&content[1..], "fewer than"),
        (&[&content[..], b"x"].concat(), "more than"),
        (&[b"x", &content[1..]].concat(), "digest"),
    ] {
        fs::write(&object, altered).unwrap();
        let error = brought(store, work.path(), &manifest).await.unwrap_err();
        assert_eq!(error.advice(&CALLER).0, "SnapshotAltered");
        assert!(error.to_string().contains(why), "{error}");
    }
    fs::write(path.join(name.manifest()), b"{}").unwrap();
    let error = store.manifest::<Manifest>(name).await.unwrap_err();
    assert_eq!(error.advice(&CALLER).0, "SnapshotAltered");

    for object in [name.manifest(), manifest.object()] {
        store.remove(&object).await.unwrap();
        store.remove(&object).await.unwrap();
    }
    let error = store.manifest::<Manifest>(name).await.unwrap_err();
    assert!(matches!(error, Error::Missing(_)), "{error}");
    let error = brought(store, work.path(), &manifest).await.unwrap_err();
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
async fn what_a_killed_run_left_in_a_directory_is_unfinished_and_goes() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::open(root.path(), BELOW).await.unwrap();
    let (store, path) = (Store::Directory(directory), root.path().join(BELOW));
    let work = tempfile::tempdir().unwrap();
    // One while its object is written, and one while its manifest is.
    for (name, content) in [
        ("a.db.part", &b"half"[..]),
        ("a-2.db", b"short"),
        ("a-2.json.part", b"{"),
        ("a-3.db", b"short"),
        ("a-3.json", b""),
    ] {
        fs::write(path.join(name), content).unwrap();
    }
    let (file, manifest) = snapshot(work.path(), "a", b"short");
    let kept = store.keep(&file, manifest).await.unwrap();
    assert_eq!(kept.name.as_str(), "a-4");
    let whole = ["a-4.db", "a-4.json"].map(|name| path.join(name));
    for name in &whole {
        use std::os::unix::fs::MetadataExt;
        let metadata = name.metadata().unwrap();
        assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (1, 0o600));
    }
    let listed = listing(&store.list().await.unwrap());
    assert_eq!(listed.snapshots, [kept.name]);
    let unfinished = listed.unfinished.keys().map(Name::as_str);
    assert_eq!(unfinished.collect::<Vec<_>>(), ["a", "a-2", "a-3"]);
    for object in listed.unfinished.into_values().flatten() {
        store.remove(&object).await.unwrap();
    }
    // A part goes with the object that it was to be.
    fs::write(path.join("b.db.part"), b"half").unwrap();
    store.remove("b.db").await.unwrap();
    let left = fs::read_dir(&path).unwrap();
    let left: BTreeSet<_> = left.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, whole.into());
}

#[tokio::test]
async fn a_name_that_is_taken_again_and_again_is_told_of() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::open(root.path(), BELOW).await.unwrap();
    let (store, path) = (Store::Directory(directory), root.path().join(BELOW));
    let work = tempfile::tempdir().unwrap();
    // What is no file, no list tells.
    for name in ["a.db", "a-2.db", "a-3.db"] {
        fs::create_dir(path.join(name)).unwrap();
    }
    let (file, manifest) = snapshot(work.path(), "a", b"short");
    let error = store.keep(&file, manifest).await.unwrap_err();
    assert_eq!(error.advice(&CALLER).0, "SnapshotNameTaken");
    assert!(
        error.to_string().contains("a.db, a-2.db, a-3.db"),
        "{error}"
    );
    assert_eq!(store.list().await.unwrap(), []);
}

#[tokio::test]
async fn what_would_not_be_read_again_is_not_kept() {
    let root = tempfile::tempdir().unwrap();
    let directory = Directory::open(root.path(), BELOW).await.unwrap();
    let store = Store::Directory(directory);
    let work = tempfile::tempdir().unwrap();
    let (file, manifest) = snapshot(work.path(), "a", b"short");
    let large = Manifest {
        size: LARGEST_SNAPSHOT + 1,
        stored: Stored {
            sealed: true,
            ..manifest.stored.clone()
        },
        ..manifest
    };
    let error = store.keep(&file, large).await.unwrap_err();
    assert!(error.to_string().contains("is more than"), "{error}");
    assert_eq!(store.list().await.unwrap(), []);
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
        .keep(&file, manifest.clone())
        .await
        .unwrap();
    assert_eq!(fs::read(&other).unwrap(), b"precious");
}

#[tokio::test]
async fn a_directory_that_is_not_there_full_or_not_to_be_written_is_told_of() {
    let missing = Directory::open(Path::new("/nonexistent/a"), BELOW).await;
    assert_eq!(missing.unwrap_err().advice(&CALLER).0, "StoreUnusable");
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, b"").unwrap();
    let no_directory = Directory::open(&file, BELOW).await;
    assert_eq!(no_directory.unwrap_err().advice(&CALLER).0, "StoreUnusable");

    let small = Mounted::of(&root.path().join("small"));
    let directory = Directory::open(&small.0, BELOW).await.unwrap();
    let store = Store::Directory(directory);
    let work = tempfile::tempdir().unwrap();
    let (file, large) = snapshot(work.path(), "a", &vec![7; 4 * 1024 * 1024]);
    let error = store.keep(&file, large.clone()).await.unwrap_err();
    assert_eq!(error.advice(&CALLER).0, "StoreFull", "{error}");
    // Nothing of it is left, so that a smaller one has room.
    let (file, short) = snapshot(work.path(), "b", b"short");
    store.keep(&file, short.clone()).await.unwrap();
    assert!(listing(&store.list().await.unwrap()).unfinished.is_empty());
    makes_room(&store).await;

    small.read_only();
    let error = store.keep(&file, short.clone()).await.unwrap_err();
    assert_eq!(error.advice(&CALLER).0, "StoreRefused", "{error}");
    let error = store.remove(&short.name.manifest()).await.unwrap_err();
    assert_eq!(error.advice(&CALLER).0, "StoreRefused", "{error}");
}

/// In a store of a megabyte: what is kept no longer makes room for what is to be kept.
async fn makes_room(store: &Store) {
    let work = tempfile::tempdir().unwrap();
    let (file, former) = snapshot(work.path(), "c", &vec![7; 600 * 1024]);
    let former = store.keep(&file, former).await.unwrap();
    let (file, next) = snapshot(work.path(), "d", &vec![8; 600 * 1024]);
    let nothing = async { Ok::<usize, Error>(0) };
    let full = store.keep_with_room(&file, next.clone(), nothing).await;
    assert_eq!(full.unwrap_err().advice(&CALLER).0, "StoreFull");
    let room = async {
        store.remove(&former.name.manifest()).await?;
        store.remove(&former.object()).await?;
        Ok::<usize, Error>(1)
    };
    let kept = store.keep_with_room(&file, next, room).await.unwrap();
    assert_eq!(kept.name.as_str(), "d");
    for object in [kept.name.manifest(), kept.object()] {
        store.remove(&object).await.unwrap();
    }
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
        Self::store_at(&self.endpoint, bucket, secret, authorities)
    }

    fn store_at(endpoint: &str, bucket: &str, secret: &str, authorities: Option<Vec<u8>>) -> Store {
        let settings = Settings {
            endpoint: endpoint.to_owned(),
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
        let bucket = Bucket::new(&settings, &access, Loopback::Allowed).unwrap();
        Store::Bucket(Box::new(bucket))
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
        let error = store.keep(&file, manifest.clone()).await.unwrap_err();
        assert_eq!(error.advice(&CALLER).0, code, "{error}");
        assert!(!error.to_string().contains("Signature="), "{error}");
        let error = store.list().await.unwrap_err();
        assert_eq!(error.advice(&CALLER).0, code, "{error}");
    }
    drop(server);
    let error = store.list().await.unwrap_err();
    assert_eq!(error.advice(&CALLER).0, "StoreUnreachable", "{error}");
    assert!(!error.to_string().contains("X-Amz"), "{error}");
}

/// A door before a real server that refuses writes on a condition, as servers do that know none.
async fn without_conditions(server: String) -> String {
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", door.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = door.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                    if client.read_buf(&mut head).await.unwrap() == 0 {
                        return;
                    }
                }
                let said = String::from_utf8_lossy(&head).to_lowercase();
                if said.contains("if-none-match: *") {
                    let answer = "HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    client.write_all(answer.as_bytes()).await.unwrap();
                    let _ = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
                    return;
                }
                let mut real = tokio::net::TcpStream::connect(server).await.unwrap();
                // One request a connection, so that each goes through here.
                let (line, rest) =
                    head.split_at(2 + head.iter().position(|byte| *byte == b'\r').unwrap());
                for part in [line, b"Connection: close\r\n", rest] {
                    real.write_all(part).await.unwrap();
                }
                let _ = tokio::io::copy_bidirectional(&mut client, &mut real).await;
            });
        }
    });
    endpoint
}

#[tokio::test]
async fn a_server_that_knows_no_writes_on_a_condition_is_written_to_by_its_list() {
    let server = Server::start(None);
    let real = server.store("bucket", "secret", None);
    server.ready(&real).await;
    let address = server.endpoint.strip_prefix("http://").unwrap();
    let endpoint = without_conditions(address.to_owned()).await;
    let store = Server::store_at(&endpoint, "bucket", "secret", None);
    let work = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for content in [&b"first"[..], b"second"] {
        let (file, manifest) = snapshot(work.path(), "2026-11-25T03-30-00Z", content);
        let kept = store.keep(&file, manifest).await.unwrap();
        assert_eq!(brought(&real, work.path(), &kept).await.unwrap(), content);
        names.push(kept.name.to_string());
    }
    assert_eq!(names, ["2026-11-25T03-30-00Z", "2026-11-25T03-30-00Z-2"]);
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
    trusted.keep(&file, manifest.clone()).await.unwrap();
    let read: Name = "a".parse().unwrap();
    assert_eq!(trusted.manifest::<Manifest>(&read).await.unwrap(), manifest);

    let error = server
        .store("bucket", "secret", None)
        .list()
        .await
        .unwrap_err();
    assert_eq!(error.advice(&CALLER).0, "StoreUnreachable", "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}
