//! A client of a server in this process, and servers that are opened, closed and killed.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use axum::body::Body;
use futures::StreamExt;
use http::{Method, Request, StatusCode, header, request};
use http_body_util::BodyExt;
use kapi::{Options, Server, ServerError};
use serde_json::Value;
use tower::ServiceExt;

pub(crate) const JSON: &str = "application/json";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[derive(Clone)]
pub(crate) struct Api(axum::Router);

impl Api {
    /// Of a server that forgets, with Windlass' definitions.
    pub(crate) async fn new() -> Self {
        let own = api::custom_resource_definitions();
        Self(Server::in_memory(&own).await.unwrap().router())
    }

    /// Of a server that forgets, without any definition.
    pub(crate) async fn without_definitions() -> Self {
        Self(Server::in_memory(&[]).await.unwrap().router())
    }

    /// Of a server on this directory, opened once the server before has let go of it.
    pub(crate) async fn open(directory: &Path) -> Self {
        Self(reopen(directory).await.unwrap().router())
    }

    pub(crate) async fn respond(
        &self,
        request: request::Builder,
        body: Body,
    ) -> (StatusCode, Value) {
        let request = request.body(body).unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string())
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, media);
        self.respond(request, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.send(Method::GET, path, JSON, Value::Null).await
    }

    pub(crate) async fn table(&self, path: &str) -> (StatusCode, Value) {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let request = Request::get(path).header(header::ACCEPT, accept);
        self.respond(request, Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.send(Method::POST, path, JSON, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.send(Method::PUT, path, JSON, body).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: Value) -> (StatusCode, Value) {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch)
            .await
    }

    pub(crate) async fn json_patch(&self, path: &str, patch: Value) -> (StatusCode, Value) {
        self.send(Method::PATCH, path, "application/json-patch+json", patch)
            .await
    }

    pub(crate) async fn apply(&self, path: &str, object: Value) -> (StatusCode, Value) {
        let path = format!("{path}?fieldManager=me&force=true");
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", object)
            .await
    }

    pub(crate) async fn delete(&self, path: &str) -> (StatusCode, Value) {
        self.delete_with(path, Value::Null).await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: Value) -> (StatusCode, Value) {
        self.send(Method::DELETE, path, JSON, options).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        let sign = if path.contains('?') { '&' } else { '?' };
        let request = Request::get(format!("{path}{sign}watch=true")).body(Body::empty());
        let response = self.0.clone().oneshot(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Watch {
            lines: response.into_body().into_data_stream(),
            rest: String::new(),
        }
    }

    /// Everything a watch sends until its timeout of one second, which is no wait where the clock is paused.
    pub(crate) async fn watched(&self, path: &str, accept: &str) -> Vec<Value> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let request = Request::get(format!("{path}{sign}watch=true&timeoutSeconds=1"))
            .header(header::ACCEPT, accept)
            .body(Body::empty())
            .unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::Deserializer::from_slice(&bytes)
            .into_iter()
            .map(Result::unwrap)
            .collect()
    }

    /// Waits until what a path answers is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) {
        let reached = async {
            while !wanted(&self.get(path).await.1) {
                look_again().await;
            }
        };
        within("reached", reached).await;
    }

    /// Waits until a path answers 404.
    pub(crate) async fn gone(&self, path: &str) {
        let gone = async {
            while self.get(path).await.0 != StatusCode::NOT_FOUND {
                look_again().await;
            }
        };
        within("gone", gone).await;
    }
}

/// The events of a watch, one by one.
pub(crate) struct Watch {
    lines: axum::body::BodyDataStream,
    rest: String,
}

impl Watch {
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((line, rest)) = self.rest.split_once('\n') {
                let event = serde_json::from_str(line).unwrap();
                self.rest = rest.into();
                return Some(event);
            }
            let chunk = within("an event or the end", self.lines.next()).await?;
            self.rest
                .push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
    }
}

pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within 20 s"))
}

async fn look_again() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(crate) async fn open(directory: &Path) -> Result<Server, ServerError> {
    let options = Options {
        data_dir: directory.to_path_buf(),
        crds: api::custom_resource_definitions(),
        listen: None,
    };
    Server::open(options).await
}

/// Opens a directory once the tasks of the server before have let go of it.
pub(crate) async fn reopen(directory: &Path) -> Result<Server, ServerError> {
    let opened = async {
        loop {
            match open(directory).await {
                Err(ServerError::InUse { .. }) => look_again().await,
                result => return result,
            }
        }
    };
    within("opened", opened).await
}

/// Waits until no server has a directory, and its write-ahead log is written back.
pub(crate) async fn closed(directory: &Path) {
    let log = directory.join("state.db-wal");
    let gone = async {
        while log.exists() {
            look_again().await;
        }
    };
    within("closed", gone).await;
}

/// Rewrites the stored objects of a kind as versions before format 2 wrote them: as JSON.
pub(crate) fn rewrite(directory: &Path, kind: &str, edit: impl Fn(String) -> String) {
    let database = rusqlite::Connection::open(directory.join("state.db")).unwrap();
    let rows: Vec<(i64, Vec<u8>)> = database
        .prepare("SELECT revision, data FROM history WHERE kind = ?1")
        .unwrap()
        .query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(!rows.is_empty());
    for (revision, data) in rows {
        let data = edit(json_of(&data, revision)).into_bytes();
        let sql = "UPDATE history SET data = ?1 WHERE revision = ?2";
        database.execute(sql, (data, revision)).unwrap();
    }
    database.pragma_update(None, "user_version", 1).unwrap();
}

/// The JSON of what is stored: as it is, or a mark, the place of the revision, the length, and a block of LZ4.
fn json_of(stored: &[u8], revision: i64) -> String {
    if stored[0] == b'{' {
        return String::from_utf8(stored.to_vec()).unwrap();
    }
    let number = |at: usize| u32::from_le_bytes(stored[at..at + 4].try_into().unwrap()) as usize;
    let text = lz4_flex::block::decompress(&stored[9..], number(5)).unwrap();
    let mut text = String::from_utf8(text).unwrap();
    text.insert_str(number(1), &revision.to_string());
    text
}

/// The variables that tell a killed process its directory, and which of its lives this is.
const DIRECTORY: &str = "KAPI_DIRECTORY";
const ROUND: &str = "KAPI_ROUND";

/// Runs an ignored test as a process on this directory, several times over, and kills it each time after it has told as
/// much as `stop_after` says: what each of its lives told.
pub(crate) fn killed(
    process: &str,
    directory: &Path,
    rounds: usize,
    stop_after: impl Fn(usize) -> usize,
) -> Vec<Vec<String>> {
    let life = |round: usize| {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", process, "--nocapture", "--ignored"])
            .env(DIRECTORY, directory)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told = Vec::new();
        for line in lines.map_while(Result::ok) {
            told.extend(line.strip_prefix(TOLD).map(str::to_owned));
            if told.len() == stop_after(round) {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        told
    };
    (0..rounds).map(life).collect()
}

/// The directory and the round, in the process that will be killed.
pub(crate) fn to_be_killed() -> Option<(std::path::PathBuf, String)> {
    let directory = std::env::var_os(DIRECTORY)?.into();
    Some((directory, std::env::var(ROUND).unwrap()))
}

/// Tells the process that kills.
pub(crate) fn tell(what: &str) {
    println!("{TOLD}{what}");
}

const TOLD: &str = "told: ";
