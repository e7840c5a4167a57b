//! Artefacts go into a registry on loopback and come back, whoever it wants to see.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Method, StatusCode, header};
use registry::{
    Login, Manifest, Place, Refusal, Repository, Transport, hex_of,
    publish::{Error, File, Target, publish},
};
use tokio::net::TcpListener;

/// Whom a registry lets in.
#[derive(Clone, Copy, Debug)]
enum Door {
    /// Everybody.
    Open,
    /// Somebody with a password.
    Basic,
    /// Whoever has a token, which is given to somebody with a password.
    Token,
    /// Whoever has a token, which is given for another one.
    Refresh,
}

/// A registry that keeps what it is given.
struct Kept {
    door: Door,
    address: SocketAddr,
    things: Mutex<HashMap<String, Vec<u8>>>,
    asked: Mutex<Vec<String>>,
}

const BASIC: &str = "Basic bWU6c2VjcmV0";

impl Kept {
    async fn start(door: Door) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kept = Arc::new(Self {
            door,
            address: listener.local_addr().unwrap(),
            things: Mutex::default(),
            asked: Mutex::default(),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&kept));
        tokio::spawn(async move { axum::serve(listener, router).await });
        kept
    }

    fn target(&self, login: Option<Login>) -> Target {
        Target {
            registry: self.address.to_string(),
            repository: "providers/example".into(),
            tag: "v2.1.0".into(),
            clear: true,
            login,
        }
    }

    fn repository(&self, login: Option<Login>) -> Repository<Plain> {
        let place = Place {
            registry: self.address.to_string(),
            repository: "providers/example".into(),
            clear: true,
        };
        // Fails when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Repository::new(Plain(reqwest::Client::new()), place, login)
    }

    /// How it wants to be asked, where it was asked otherwise.
    fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let said = headers.get(header::AUTHORIZATION);
        let said = said.and_then(|said| said.to_str().ok());
        let (wanted, challenge) = match self.door {
            Door::Open => return None,
            Door::Basic => (BASIC, "Basic realm=\"kept\"".to_owned()),
            Door::Token | Door::Refresh => (
                "Bearer given",
                format!(
                    "Bearer realm=\"http://{}/token\",service=\"kept\"",
                    self.address
                ),
            ),
        };
        (said != Some(wanted)).then(|| {
            let headers = [(header::WWW_AUTHENTICATE, challenge)];
            (StatusCode::UNAUTHORIZED, headers).into_response()
        })
    }

    /// A token for who may have it.
    fn token(&self, method: &Method, headers: &HeaderMap, body: &[u8]) -> Response {
        let is_given = match self.door {
            Door::Token => headers
                .get(header::AUTHORIZATION)
                .is_some_and(|it| it == BASIC),
            Door::Refresh => {
                let form = String::from_utf8_lossy(body);
                *method == Method::POST
                    && form.contains("grant_type=refresh_token")
                    && form.contains("refresh_token=long+%26+secret")
                    && form.contains("service=kept")
            }
            Door::Open | Door::Basic => false,
        };
        if is_given {
            r#"{"access_token":"given"}"#.into_response()
        } else {
            StatusCode::UNAUTHORIZED.into_response()
        }
    }

    fn get(&self, path: &str) -> Response {
        match self.things.lock().unwrap().get(path) {
            Some(thing) => thing.clone().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }

    fn put(&self, path: &str, query: &str, body: &[u8]) -> Response {
        let mut things = self.things.lock().unwrap();
        let at = |path: &str| [(header::LOCATION, format!("http://{}{path}", self.address))];
        let begun = path.split_once("/blobs/uploads/").map(|(name, _)| name);
        let Some(name) = begun else {
            let (name, _) = path.rsplit_once('/').unwrap();
            things.insert(format!("{name}/sha256:{}", hex_of(body)), body.to_vec());
            things.insert(path.to_owned(), body.to_vec());
            return (StatusCode::CREATED, at(path)).into_response();
        };
        let upload = things.entry(path.to_owned()).or_default();
        upload.extend_from_slice(body);
        let Some(digest) = query.strip_prefix("digest=") else {
            let last = upload.len().saturating_sub(1);
            let range = [(header::RANGE, format!("0-{last}"))];
            return (StatusCode::ACCEPTED, range, at(path)).into_response();
        };
        let digest = digest.replace("%3A", ":");
        let blob = things.remove(path).unwrap();
        assert_eq!(digest, format!("sha256:{}", hex_of(&blob)));
        let path = format!("{name}/blobs/{digest}");
        things.insert(path.clone(), blob);
        (StatusCode::CREATED, at(&path)).into_response()
    }
}

async fn answer(State(kept): State<Arc<Kept>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let path = parts.uri.path();
    kept.asked.lock().unwrap().push(path.to_owned());
    if path == "/token" {
        return kept.token(&parts.method, &parts.headers, &body);
    }
    if let Some(refusal) = kept.refusal(&parts.headers) {
        return refusal;
    }
    match parts.method {
        Method::GET | Method::HEAD if path == "/v2/" => StatusCode::OK.into_response(),
        Method::GET | Method::HEAD => kept.get(path),
        Method::POST => {
            let at = format!("http://{}{path}1", kept.address);
            (StatusCode::ACCEPTED, [(header::LOCATION, at)]).into_response()
        }
        _ => kept.put(path, parts.uri.query().unwrap_or_default(), &body),
    }
}

struct Plain(reqwest::Client);

impl Transport for Plain {
    type Error = String;

    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, String> {
        let sent = self.0.execute(request).await;
        sent.map_err(|error| self.broken(error))
    }

    fn broken(&self, error: reqwest::Error) -> String {
        error.to_string()
    }
}

fn files() -> [File; 2] {
    [
        ("metadata.yaml", "kind: Metadata\n"),
        ("components.yaml", "kind: List\n"),
    ]
    .map(|(name, content)| File {
        name: name.into(),
        content: content.into(),
    })
}

fn password() -> Login {
    Login::Password {
        user: "me".into(),
        password: "secret".into(),
    }
}

/// What comes back of each file, by its name.
async fn read(
    repository: &Repository<Plain>,
    reference: &str,
) -> Result<Vec<(String, String)>, Refusal<String>> {
    let (bytes, digest) = repository.manifest(reference).await?;
    assert_eq!(digest, format!("sha256:{}", hex_of(&bytes)));
    let manifest = Manifest::read(&bytes).unwrap();
    let mut found = Vec::new();
    for blob in manifest.blobs() {
        if let Some(title) = blob.title() {
            let bytes = repository.small_blob(&blob.digest, 1024).await?;
            found.push((title.to_owned(), String::from_utf8(bytes).unwrap()));
        }
    }
    Ok(found)
}

#[tokio::test]
async fn what_is_published_comes_back_whoever_the_registry_wants_to_see() {
    for (door, login, reader) in [
        (Door::Open, None, None),
        (Door::Basic, Some(password()), Some(password())),
        (Door::Token, Some(password()), Some(password())),
        (
            Door::Token,
            Some(password()),
            Some(Login::Access("given".into())),
        ),
    ] {
        let kept = Kept::start(door).await;
        let digest = publish(&kept.target(login), files()).await;
        let digest = digest.unwrap_or_else(|error| panic!("{door:?}: {error:?}"));
        let repository = kept.repository(reader);
        for reference in ["v2.1.0", &*digest] {
            let found = read(&repository, reference).await.unwrap();
            let [metadata, components] = files();
            let whole = [metadata, components]
                .map(|file| (file.name, String::from_utf8(file.content).unwrap()));
            assert_eq!(found, whole, "{door:?} {reference}");
        }
    }
}

#[tokio::test]
async fn a_token_that_gets_others_reads_and_does_not_publish() {
    let kept = Kept::start(Door::Refresh).await;
    let login = Some(Login::Refresh("long & secret".into()));
    let error = publish(&kept.target(login.clone()), files())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Refresh));
    assert_eq!(kept.asked.lock().unwrap().len(), 0);
    let repository = kept.repository(login);
    assert_eq!(read(&repository, "v2.1.0").await, Err(Refusal::Missing));
}

#[tokio::test]
async fn who_is_nobody_is_told_so_and_asked_no_more() {
    for door in [Door::Basic, Door::Token, Door::Refresh] {
        let kept = Kept::start(door).await;
        for login in [None, Some(Login::Access("stolen".into()))] {
            let repository = kept.repository(login);
            let refused = read(&repository, "v2.1.0").await;
            assert_eq!(refused, Err(Refusal::Login), "{door:?}");
        }
    }
}

#[tokio::test]
async fn another_file_than_the_manifest_names_and_a_large_one_are_refused() {
    let kept = Kept::start(Door::Open).await;
    publish(&kept.target(None), files()).await.unwrap();
    let repository = kept.repository(None);
    let digest = format!("sha256:{}", hex_of(b"kind: List\n"));
    let large = repository.small_blob(&digest, 4).await.unwrap_err();
    assert!(matches!(large, Refusal::Other(why) if why.contains("is larger than")));
    let path = format!("/v2/providers/example/blobs/{digest}");
    kept.things.lock().unwrap().insert(path, b"other".to_vec());
    let other = repository.small_blob(&digest, 1024).await.unwrap_err();
    assert!(matches!(other, Refusal::Other(why) if why.contains("has the digest")));
}
