//! A mirror is filled from servers on loopback that give, refuse and break off, and serves what came.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::{BTreeSet, HashMap},
    fs, io,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use futures::{StreamExt as _, stream};
use http::{StatusCode, header};
use mirror::{
    Checksum, Endpoint, File, Image, List, Place, Store, check,
    fetch::{Error, Fetched, Options, Outcome, fetch},
    push, serve,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A site and registry that knows what it was asked, and wants a token for images, which it gives to everybody.
#[derive(Default)]
struct Upstream {
    files: Mutex<HashMap<String, (Vec<u8>, String)>>,
    /// How often an answer breaks off in the middle.
    cuts: Mutex<HashMap<String, u32>>,
    asked: Mutex<Vec<String>>,
}

impl Upstream {
    async fn start() -> (Arc<Self>, SocketAddr) {
        let upstream = Arc::new(Self::default());
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&upstream));
        (upstream, listen(router).await)
    }

    fn put(&self, path: &str, bytes: &[u8], kind: &str) {
        let mut files = self.files.lock().unwrap();
        files.insert(path.to_owned(), (bytes.to_vec(), kind.to_owned()));
    }

    /// What was asked since the last look.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// An image for some processors, behind an index that names one more.
    fn image(&self, name: &str, tag: &str, architectures: &[&str]) {
        let mut entries = vec![json!({
            "mediaType": MANIFEST, "digest": digest(b"nowhere"), "size": 7,
            "platform": {"os": "linux", "architecture": "s390x"},
        })];
        let blob = |bytes: &[u8]| {
            let digest = digest(bytes);
            self.put(
                &format!("/v2/{name}/blobs/{digest}"),
                bytes,
                "application/octet-stream",
            );
            json!({"mediaType": "application/octet-stream", "digest": digest, "size": bytes.len()})
        };
        for architecture in architectures {
            let config = blob(format!("{{\"architecture\":\"{architecture}\"}}").as_bytes());
            let layers = [
                blob(b"shared layer"),
                blob(&[architecture.as_bytes(), name.as_bytes()].concat()),
            ];
            let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
            let bytes = manifest.to_string().into_bytes();
            self.put(
                &format!("/v2/{name}/manifests/{}", digest(&bytes)),
                &bytes,
                MANIFEST,
            );
            entries.push(json!({
                "mediaType": MANIFEST, "digest": digest(&bytes), "size": bytes.len(),
                "platform": {"os": "linux", "architecture": architecture},
            }));
        }
        let index =
            json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
        for what in [tag.to_owned(), digest(index.as_bytes())] {
            self.put(
                &format!("/v2/{name}/manifests/{what}"),
                index.as_bytes(),
                INDEX,
            );
        }
    }
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

async fn listen(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn answer(State(upstream): State<Arc<Upstream>>, request: Request) -> Response {
    let header = |name| Some(request.headers().get(name)?.to_str().unwrap().to_owned());
    let path = request.uri().path().to_owned();
    let host = header(header::HOST).unwrap();
    if path == "/token" {
        return axum::Json(json!({"token": "anybody"})).into_response();
    }
    if path.starts_with("/v2/")
        && header(header::AUTHORIZATION).as_deref() != Some("Bearer anybody")
    {
        let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"upstream\"");
        return (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, challenge)],
        )
            .into_response();
    }
    let range = header(header::RANGE);
    let told = format!(
        "{} {path} {}",
        request.method(),
        range.clone().unwrap_or_default()
    );
    upstream
        .asked
        .lock()
        .unwrap()
        .push(told.trim_end().to_owned());
    if let Some(to) = path.strip_prefix("/led") {
        return (StatusCode::FOUND, [(header::LOCATION, to.to_owned())]).into_response();
    }
    let Some((bytes, kind)) = upstream.files.lock().unwrap().get(&path).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let from = range.map(|range| {
        range
            .trim_start_matches("bytes=")
            .trim_end_matches('-')
            .parse()
            .unwrap()
    });
    let from: usize = from.unwrap_or(0);
    let rest = bytes[from..].to_vec();
    let mut response = Response::builder()
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONTENT_LENGTH, rest.len());
    if from > 0 {
        let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
        response = response.status(206).header(header::CONTENT_RANGE, range);
    }
    let mut cuts = upstream.cuts.lock().unwrap();
    let body = match cuts.get_mut(&path) {
        Some(left) if *left > 0 => {
            *left -= 1;
            let half = Bytes::from(rest[..rest.len() / 2].to_vec());
            // What is there is sent before the next is asked for.
            let parts = stream::iter([Ok(half), Err(io::Error::other("cut"))]);
            Body::from_stream(parts.then(async |part| {
                tokio::task::yield_now().await;
                part
            }))
        }
        _ => Body::from(rest),
    };
    response.body(body).unwrap()
}

fn file(upstream: SocketAddr, path: &str, checksum: Option<&str>) -> File {
    let url = format!("http://{upstream}{path}");
    File {
        name: path.to_owned(),
        place: Place::of_url(&url).unwrap(),
        checksum: checksum.map(|sum| sum.parse::<Checksum>().unwrap()),
        asked: BTreeSet::from([url.clone()]),
        url,
    }
}

fn image(upstream: SocketAddr, name: &str) -> Image {
    let image = format!("{upstream}/{name}").parse().unwrap();
    Image {
        name: name.to_owned(),
        asked: BTreeSet::from([vec![Endpoint::of(&image)]]),
        image,
        digest: None,
        architectures: BTreeSet::from(["amd64".to_owned(), "arm64".to_owned()]),
    }
}

async fn fetched(list: &List, directory: &Path, from: Option<SocketAddr>) -> Vec<Fetched> {
    let (store, _lock) = Store::make(directory).unwrap();
    let options = Options {
        from: from.map(|from| format!("http://{from}").parse().unwrap()),
        parallel: 4,
        came: Arc::default(),
    };
    fetch(list, &store, &options, &|_| {}).await.unwrap()
}

fn errors(fetched: Vec<Fetched>) -> Vec<Error> {
    let errors = fetched.into_iter().filter_map(|one| one.outcome.err());
    errors.collect()
}

fn all_kept(fetched: &[Fetched]) -> bool {
    let mut outcomes = fetched.iter().map(|one| one.outcome.as_ref().ok());
    outcomes.all(|outcome| outcome == Some(&Outcome::Kept))
}

/// As hosts ask it that are told to.
fn asking(list: &List, mirror: SocketAddr) -> List {
    let mut list = list.clone();
    for file in &mut list.files {
        file.asked = BTreeSet::from([format!("http://{mirror}/{}", file.place)]);
    }
    for image in &mut list.images {
        let mut endpoint = Endpoint::of(&image.image);
        endpoint.registry = mirror.to_string();
        image.asked = BTreeSet::from([vec![endpoint]]);
    }
    list
}

#[tokio::test]
async fn what_is_wanted_is_fetched_once_served_and_fetched_from_there() {
    let (upstream, at) = Upstream::start().await;
    upstream.put("/a/program", b"a program", "x/y");
    upstream.put("/a/list.yaml", b"no checksum", "x/y");
    upstream.image("group/tool", "v1", &["amd64", "arm64"]);
    upstream.image("other", "1.2.3", &["amd64", "arm64", "ppc64le"]);
    let list = List {
        files: vec![
            file(at, "/a/program", Some(&digest(b"a program"))),
            file(at, "/a/list.yaml", None),
        ],
        images: vec![image(at, "group/tool:v1"), image(at, "other:1.2.3")],
    };
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("mirror");
    assert!(errors(fetched(&list, &directory, None).await).is_empty());
    assert!(!upstream.asked().is_empty());
    assert!(all_kept(&fetched(&list, &directory, None).await));
    assert_eq!(
        upstream.asked(),
        [""; 0],
        "what is there is asked of nobody"
    );
    let store = Store::open(&directory).unwrap();
    assert_eq!(check::directory(&list, &store).await.unwrap(), []);
    // What came without a checksum stays what it was seen as.
    upstream.put("/a/list.yaml", b"another text", "x/y");
    upstream.image("other", "1.2.3", &["amd64", "arm64"]);
    assert!(all_kept(&fetched(&list, &directory, None).await));

    let mirror = listen(serve::router(store.clone(), None)).await;
    let served = asking(&list, mirror);
    assert_eq!(check::asked(&served).await.unwrap(), []);
    let second = home.path().join("second");
    upstream.asked();
    assert!(errors(fetched(&list, &second, Some(mirror)).await).is_empty());
    assert_eq!(upstream.asked(), [""; 0]);
    let second = Store::open(&second).unwrap();
    assert_eq!(check::directory(&list, &second).await.unwrap(), []);

    // What was taken away there is all named at once, and nothing else.
    let root = store.root();
    fs::remove_file(root.join("files").join(list.files[0].place.path())).unwrap();
    fs::remove_file(root.join("registry/manifests/group/tool/v1")).unwrap();
    let shared = hex::encode(Sha256::digest(b"arm64other"));
    fs::remove_file(root.join("registry/blobs").join(shared)).unwrap();
    let missing = check::asked(&served).await.unwrap();
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    assert_eq!(missing.len(), 3, "{missing:?}");
    assert!(
        missing[0].ends_with("/a/program: it is not there"),
        "{missing:?}"
    );
    assert!(
        missing[1].contains("group/tool:v1: it is not there"),
        "{missing:?}"
    );
    assert!(
        missing[2].contains("other:1.2.3: its part sha256:"),
        "{missing:?}"
    );
}

#[tokio::test]
async fn what_breaks_off_goes_on_and_has_no_final_name_before() {
    let (upstream, at) = Upstream::start().await;
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    upstream.put("/big", &bytes, "x/y");
    upstream.image("tool", "v1", &["amd64", "arm64"]);
    let list = List {
        files: vec![file(at, "/big", Some(&digest(&bytes)))],
        images: vec![image(at, "tool:v1")],
    };
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("mirror");
    let layer = format!("/v2/tool/blobs/{}", digest(b"shared layer"));
    for path in ["/big", &layer] {
        upstream.cuts.lock().unwrap().insert(path.to_owned(), 100);
    }
    let broken = errors(fetched(&list, &directory, None).await);
    assert!(
        matches!(
            broken.as_slice(),
            [Error::Network { .. }, Error::Network { .. }]
        ),
        "{broken:?}"
    );
    assert!(!directory.join("files").exists());
    assert!(!directory.join("registry/manifests").exists());
    upstream.cuts.lock().unwrap().clear();
    upstream.asked();
    assert!(errors(fetched(&list, &directory, None).await).is_empty());
    let asked = upstream.asked();
    let went_on = |path: &str| {
        let mut asked = asked.iter().filter(|asked| asked.contains(path));
        asked.all(|asked| asked.contains("bytes="))
    };
    assert!(went_on("GET /big") && went_on(&layer), "{asked:?}");
    assert_eq!(
        fs::read(directory.join("files").join(list.files[0].place.path())).unwrap(),
        bytes
    );
}

#[tokio::test]
async fn what_is_wrong_is_told_of_each_and_leaves_nothing() {
    let (upstream, at) = Upstream::start().await;
    upstream.put("/other", b"something else", "x/y");
    upstream.put("/good", b"good", "x/y");
    upstream.image("amd-only", "v1", &["amd64"]);
    upstream.put(
        "/v2/old/manifests/v1",
        b"{\"schemaVersion\": 1}",
        "application/json",
    );
    upstream.put("/v2/nonsense/manifests/v1", b"<html>", MANIFEST);
    let led = format!("/led/{}", "x".repeat(3));
    let list = List {
        files: vec![
            file(at, "/gone", Some(&digest(b"gone"))),
            file(at, "/other", Some(&digest(b"what it was"))),
            file(at, "/led/good", Some(&digest(b"good"))),
            file(at, &led, None),
        ],
        images: vec![
            image(at, "amd-only:v1"),
            image(at, "gone:v1"),
            image(at, "old:v1"),
            image(at, "nonsense:v1"),
        ],
    };
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("mirror");
    let outcomes = fetched(&list, &directory, None).await;
    let told: Vec<String> = outcomes
        .iter()
        .map(|one| {
            one.outcome
                .as_ref()
                .map_or_else(ToString::to_string, |_| "came".to_owned())
        })
        .collect();
    let expected = [
        "it is not there: ",
        "gives something else: it has sha256:",
        "came",
        "it is not there: ",
        "it is not for arm64",
        "it is not there: ",
        "of a kind that is not used any more",
        "its manifest cannot be read",
    ];
    for (told, words) in told.iter().zip(expected) {
        assert!(told.contains(words), "{told} has no {words}");
    }
    let partial = fs::read_dir(directory.join("partial")).unwrap();
    assert_eq!(partial.count(), 0);
    assert!(!directory.join("registry/manifests").exists());
}

#[tokio::test]
async fn what_was_changed_in_the_directory_is_found_and_brought_anew() {
    let (upstream, at) = Upstream::start().await;
    upstream.put("/a", b"aaaa", "x/y");
    upstream.put("/b", b"bbbb", "x/y");
    upstream.image("tool", "v1", &["amd64", "arm64"]);
    let list = List {
        files: vec![file(at, "/a", Some(&digest(b"aaaa"))), file(at, "/b", None)],
        images: vec![image(at, "tool:v1")],
    };
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("mirror");
    fetched(&list, &directory, None).await;
    let store = Store::open(&directory).unwrap();
    let files = directory.join("files");
    for file in &list.files {
        fs::write(files.join(file.place.path()), "evil").unwrap();
    }
    let layer = directory
        .join("registry/blobs")
        .join(hex::encode(Sha256::digest(b"shared layer")));
    fs::write(&layer, "evil").unwrap();
    let found = check::directory(&list, &store).await.unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found.iter().all(|one| one.kind == check::Kind::Other),
        "{found:?}"
    );
    assert!(errors(fetched(&list, &directory, None).await).is_empty());
    assert_eq!(check::directory(&list, &store).await.unwrap(), []);

    // A pin that is no digest, and links that lead out.
    fs::write(
        directory.join("registry/manifests/tool/v1"),
        "../../../../etc/passwd",
    )
    .unwrap();
    let secret = home.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let place = files.join(list.files[0].place.path());
    fs::remove_file(&place).unwrap();
    symlink(&secret, &place).unwrap();
    fs::remove_file(&layer).unwrap();
    symlink(&secret, &layer).unwrap();
    let found = check::directory(&list, &store).await.unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    let mirror = listen(serve::router(store, None)).await;
    for path in [
        format!("/{}", list.files[0].place),
        format!("/v2/tool/blobs/{}", digest(b"shared layer")),
        "/v2/tool/manifests/v1".to_owned(),
        "/../../secret".to_owned(),
        "/..%2f..%2fsecret".to_owned(),
        "/%2e%2e/secret".to_owned(),
        "//etc/passwd".to_owned(),
        "/v2/../../secret/manifests/v1".to_owned(),
        "/v2/tool/manifests/../../../../secret".to_owned(),
        "/v2/tool/blobs/sha256:../../../secret".to_owned(),
        "/lock".to_owned(),
        "/digests.json".to_owned(),
    ] {
        let heard = raw(mirror, &format!("GET {path} HTTP/1.1")).await;
        assert!(heard.starts_with("HTTP/1.1 404 "), "{path}: {heard}");
        assert!(!heard.contains("secret\r"), "{path}: {heard}");
    }
}

#[tokio::test]
async fn files_and_images_are_served_as_clients_expect() {
    let (upstream, at) = Upstream::start().await;
    upstream.put("/a", b"0123456789", "x/y");
    upstream.image("group/tool", "v1", &["amd64", "arm64"]);
    let list = List {
        files: vec![file(at, "/a", Some(&digest(b"0123456789")))],
        images: vec![image(at, "group/tool:v1")],
    };
    let home = tempfile::tempdir().unwrap();
    fetched(&list, home.path(), None).await;
    let store = Store::open(home.path()).unwrap();
    let mirror = listen(serve::router(store.clone(), None)).await;
    let get =
        |path: String, range: &'static str| raw_with(mirror, format!("GET {path} HTTP/1.1"), range);
    let part = get(format!("/{}", list.files[0].place), "Range: bytes=2-4\r\n").await;
    assert!(
        part.starts_with("HTTP/1.1 206 ") && part.ends_with("\r\n\r\n234"),
        "{part}"
    );
    let head = raw(mirror, &format!("HEAD /{} HTTP/1.1", list.files[0].place)).await;
    assert!(
        head.contains("content-length: 10\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let index = get("/v2/group/tool/manifests/v1".to_owned(), "").await;
    let digest = store.digest(&list.images[0].image).unwrap();
    assert!(
        index.contains(&format!("content-type: {INDEX}\r\n")),
        "{index}"
    );
    assert!(
        index.contains(&format!("docker-content-digest: {digest}\r\n")),
        "{index}"
    );
    let (_, body) = index.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let child = body["manifests"][1]["digest"].as_str().unwrap();
    let child = get(format!("/v2/group/tool/manifests/{child}"), "").await;
    assert!(
        child.contains(&format!("content-type: {MANIFEST}\r\n")),
        "{child}"
    );
    let tags = get("/v2/group/tool/tags/list".to_owned(), "").await;
    assert!(
        tags.ends_with("{\"name\":\"group/tool\",\"tags\":[\"v1\"]}"),
        "{tags}"
    );
    // Not of what a link leads to.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("v1"), "a").unwrap();
    symlink(
        elsewhere.path(),
        store.root().join("registry/manifests/elsewhere"),
    )
    .unwrap();
    let hidden = get("/v2/elsewhere/tags/list".to_owned(), "").await;
    assert!(hidden.starts_with("HTTP/1.1 404 "), "{hidden}");
    for refused in ["PUT", "POST", "DELETE", "PATCH"] {
        let heard = raw(
            mirror,
            &format!("{refused} /v2/group/tool/manifests/v1 HTTP/1.1"),
        )
        .await;
        assert!(heard.starts_with("HTTP/1.1 405 "), "{heard}");
    }
    let closed = listen(serve::router(store, Some("Basic dTpw".to_owned()))).await;
    let heard = raw(closed, "GET /v2/ HTTP/1.1").await;
    assert!(heard.starts_with("HTTP/1.1 401 "), "{heard}");
    let unproved = check::asked(&asking(&list, closed)).await.unwrap();
    assert!(
        unproved.iter().all(|one| one.kind == check::Kind::Unproved),
        "{unproved:?}"
    );
    assert_eq!(unproved.len(), 2);
}

/// Whoever carried a mirror may have left links in it.
#[tokio::test]
async fn nothing_is_written_where_a_link_leads() {
    let (upstream, at) = Upstream::start().await;
    upstream.put("/a", b"aaaa", "x/y");
    let list = List {
        files: vec![file(at, "/a", Some(&digest(b"aaaa")))],
        images: Vec::new(),
    };
    let home = tempfile::tempdir().unwrap();
    let elsewhere = home.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let secret = elsewhere.join("secret");
    fs::write(&secret, "secret").unwrap();
    let partial = hex::encode(Sha256::digest(list.files[0].place.as_str()));
    for (link, leads) in [
        ("files", &elsewhere),
        ("partial", &elsewhere),
        (&format!("partial/{partial}"), &secret),
    ] {
        let directory = home.path().join("mirror");
        let link = directory.join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(leads, &link).unwrap();
        let failed = errors(fetched(&list, &directory, None).await);
        assert!(matches!(failed[..], [Error::Store(_)]), "{failed:?}");
        fs::remove_dir_all(&directory).unwrap();
    }
    let directory = home.path().join("mirror");
    fs::create_dir(&directory).unwrap();
    symlink(&secret, directory.join("lock")).unwrap();
    assert!(Store::make(&directory).is_err());
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}

/// Nothing is pushed that is not what it must be.
#[tokio::test]
async fn what_was_changed_on_its_way_is_not_pushed() {
    let (upstream, at) = Upstream::start().await;
    upstream.image("tool", "v1", &["amd64", "arm64"]);
    let mut list = List {
        files: Vec::new(),
        images: vec![image(at, "tool:v1")],
    };
    let home = tempfile::tempdir().unwrap();
    assert!(errors(fetched(&list, home.path(), None).await).is_empty());
    let store = Store::open(home.path()).unwrap();
    let target = push::Target {
        // Nobody is asked.
        registry: "127.0.0.1:1".to_owned(),
        prefix: String::new(),
        clear: true,
        login: None,
    };
    list.images[0].digest = Some(format!("sha256:{}", "a".repeat(64)));
    let refused = push::push(&list.images[0], &store, &target).await;
    assert!(matches!(refused, Err(push::Error::Other(_))), "{refused:?}");
    list.images[0].digest = None;
    let blobs = home.path().join("registry/blobs");
    let secret = home.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    for blob in fs::read_dir(&blobs).unwrap() {
        let blob = blob.unwrap().path();
        // But what names the others.
        if serde_json::from_slice::<Value>(&fs::read(&blob).unwrap()).is_err() {
            fs::remove_file(&blob).unwrap();
            symlink(&secret, &blob).unwrap();
        }
    }
    let refused = push::push(&list.images[0], &store, &target).await;
    assert!(matches!(refused, Err(push::Error::Other(_))), "{refused:?}");
}

/// Hosts may be told to ask at several places: what is missing at one is missing.
#[tokio::test]
async fn each_place_that_hosts_ask_is_looked_at() {
    let (upstream, at) = Upstream::start().await;
    upstream.put("/a", b"aaaa", "x/y");
    upstream.image("tool", "v1", &["amd64", "arm64"]);
    let (_, other) = Upstream::start().await;
    let mut list = List {
        files: vec![file(at, "/a", None)],
        images: vec![image(at, "tool:v1")],
    };
    assert_eq!(check::asked(&list).await.unwrap(), []);
    list.files[0].asked.insert(format!("http://{other}/a"));
    let elsewhere = Endpoint {
        registry: other.to_string(),
        ..Endpoint::of(&list.images[0].image)
    };
    list.images[0].asked.insert(vec![elsewhere]);
    let missing = check::asked(&list).await.unwrap();
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    assert_eq!(
        missing,
        [
            format!("http://{other}/a: it is not there"),
            format!("{at}/tool:v1: it is not there at {other}")
        ]
    );
}

/// A registry sends and sends: no more is read than what it may be.
#[tokio::test]
async fn what_a_registry_says_is_bounded_while_it_is_read() {
    for endless in ["/v2/tool/manifests/v1", "/token"] {
        let sent = Arc::new(Mutex::new(0_usize));
        let counted = Arc::clone(&sent);
        let answer = move |request: Request| async move {
            let path = request.uri().path().to_owned();
            let is_known = request.headers().contains_key(header::AUTHORIZATION);
            if path != endless {
                if path == "/token" || is_known {
                    return axum::Json(json!({"token": "anybody"})).into_response();
                }
                let host = request.headers()[header::HOST].to_str().unwrap().to_owned();
                let challenge = format!("Bearer realm=\"http://{host}/token\"");
                let challenge = [(header::WWW_AUTHENTICATE, challenge)];
                return (StatusCode::UNAUTHORIZED, challenge).into_response();
            }
            let parts = stream::repeat_with(move || {
                *counted.lock().unwrap() += 1 << 16;
                Ok::<_, io::Error>(Bytes::from(vec![b' '; 1 << 16]))
            });
            Body::from_stream(parts).into_response()
        };
        let at = listen(Router::new().fallback(answer)).await;
        let list = List {
            files: Vec::new(),
            images: vec![image(at, "tool:v1")],
        };
        let found = check::asked(&list).await.unwrap();
        assert!(found[0].message.contains("is larger than"), "{found:?}");
        // What is on its way when the connection is closed lies in buffers of the system.
        assert!(*sent.lock().unwrap() < 64 << 20, "{endless}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = unused.local_addr().unwrap();
    drop(unused);
    let list = List {
        files: vec![file(at, "/a", None)],
        images: vec![image(at, "tool:v1")],
    };
    let found = check::asked(&list).await.unwrap();
    assert!(
        found.iter().all(|one| one.kind == check::Kind::Unanswered),
        "{found:?}"
    );
    assert_eq!(found.len(), 2);
}

async fn raw(at: SocketAddr, request: &str) -> String {
    raw_with(at, request.to_owned(), "").await
}

async fn raw_with(at: SocketAddr, request: String, header: &str) -> String {
    let mut client = TcpStream::connect(at).await.unwrap();
    let request = format!("{request}\r\nHost: m\r\nConnection: close\r\n{header}\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    String::from_utf8_lossy(&heard).into_owned()
}
