//! A Keystone that answers for `PROJECT:USER:ROLE`, several roles with a `+` between them, counts how often it is asked, and keeps
//! application credentials.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::AtomicUsize},
};

use axum::{
    Json,
    extract::Path,
    routing::{delete, get},
};
use tokio::{net::TcpListener, task::JoinHandle};

use super::*;

#[derive(Clone, Default)]
pub(super) struct Vouching {
    /// How often it was asked who bears a token.
    pub(super) asked: Arc<AtomicUsize>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    catalogue: Vec<Value>,
    /// Application credentials with their users and secrets, by id.
    credentials: BTreeMap<String, Value>,
    made: usize,
    /// Users that are no more.
    gone: BTreeSet<String>,
    /// Users that are not let in.
    disabled: BTreeSet<String>,
    /// Whether it takes nothing away now.
    clings: bool,
}

impl Vouching {
    pub(super) async fn serve(self) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let all = "/v3/users/{user}/application_credentials";
        let router = Router::new()
            .route("/v3/auth/tokens", get(vouch).post(enter))
            .route(all, get(list).post(make))
            .route(&format!("{all}/{{id}}"), delete(remove))
            .with_state(self);
        let served = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (address, served)
    }

    /// Puts a service into the catalogue.
    pub(super) fn offer(&self, kind: &str, url: &str) {
        let endpoints = json!([
            {"interface": "internal", "region_id": "north", "url": "http://inside.example"},
            {"interface": "public", "region_id": "north", "url": url},
        ]);
        let entry = json!({"type": kind, "endpoints": endpoints});
        self.known.lock().unwrap().catalogue.push(entry);
    }

    /// The application credentials that there are.
    pub(super) fn credentials(&self) -> Vec<Value> {
        let known = self.known.lock().unwrap();
        known.credentials.values().cloned().collect()
    }

    /// Takes a user away, with what is theirs.
    pub(super) fn forget(&self, user: &str) {
        let mut known = self.known.lock().unwrap();
        known.gone.insert(user.to_owned());
        known.credentials.retain(|_, entry| entry["user"] != user);
    }

    /// There is another one of this name.
    pub(super) fn remember(&self, user: &str) {
        self.known.lock().unwrap().gone.remove(user);
    }

    /// Lets a user in no more; what is theirs stays.
    pub(super) fn disable(&self, user: &str) {
        let mut known = self.known.lock().unwrap();
        known.disabled.insert(user.to_owned());
    }

    pub(super) fn enable(&self, user: &str) {
        self.known.lock().unwrap().disabled.remove(user);
    }

    /// Whether it takes credentials away, or fails to.
    pub(super) fn cling(&self, clings: bool) {
        self.known.lock().unwrap().clings = clings;
    }

    /// What it says of a token. That of an application credential ends with its id.
    fn token(&self, token: &str) -> Option<Value> {
        let mut parts = token.split(':');
        let (project, user, roles) = (parts.next()?, parts.next()?, parts.next()?);
        let known = self.known.lock().unwrap();
        let credential = parts.next();
        let is_lost = credential.is_some_and(|id| !known.credentials.contains_key(id));
        let is_out = known.gone.contains(user) || known.disabled.contains(user);
        if is_lost || is_out || parts.next().is_some() {
            return None;
        }
        let (end, roles) = match roles {
            "expired" => ("2020-01-01T00:00:00.000000Z", "admin"),
            roles => ("2099-01-01T00:00:00.000000Z", roles),
        };
        let roles = roles.split('+');
        let roles: Vec<_> = roles
            .map(|role| json!({"id": format!("id-of-{role}"), "name": role}))
            .collect();
        let project = (!project.is_empty()).then(|| json!({"id": project, "name": "x"}));
        Some(json!({
            "user": {"id": user, "name": user}, "project": project, "roles": roles, "expires_at": end,
            "catalog": known.catalogue,
        }))
    }

    /// Who may change application credentials of a user: the user, but not by one that is restricted.
    fn may_change(&self, headers: &HeaderMap, user: &str) -> Result<String, u16> {
        let token = headers["x-auth-token"].to_str().unwrap();
        let Some(told) = self.token(token) else {
            return Err(401);
        };
        let by = token.split(':').nth(3);
        let known = self.known.lock().unwrap();
        let is_restricted = by.is_some_and(|id| known.credentials[id]["unrestricted"] != true);
        if told["user"]["id"] != user || is_restricted {
            return Err(403);
        }
        Ok(token.to_owned())
    }
}

fn answer(status: u16, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn refused(status: u16) -> Response {
    let message = "Using method 'application_credential' is not allowed";
    answer(
        status,
        &json!({"error": {"code": status, "message": message}}),
    )
}

async fn vouch(State(keystone): State<Vouching>, headers: HeaderMap) -> Response {
    keystone.asked.fetch_add(1, Ordering::Relaxed);
    match keystone.token(headers["x-subject-token"].to_str().unwrap()) {
        Some(token) => answer(200, &json!({"token": token})),
        None => answer(401, &Value::Null),
    }
}

async fn enter(State(keystone): State<Vouching>, Json(body): Json<Value>) -> Response {
    let given = &body["auth"]["identity"]["application_credential"];
    let id = given["id"].as_str().unwrap();
    let found = keystone
        .credentials()
        .into_iter()
        .find(|one| one["id"] == id);
    let Some(found) = found else {
        let message = format!("Could not find Application Credential: {id}.");
        return answer(404, &json!({"error": {"code": 404, "message": message}}));
    };
    let unauthorized = || answer(401, &Value::Null);
    if found["secret"] != given["secret"] {
        return unauthorized();
    }
    let of = |member: &str| found[member].as_str().unwrap().to_owned();
    let token = format!("{}:{}:{}:{id}", of("project"), of("user"), of("role"));
    let Some(told) = keystone.token(&token) else {
        return unauthorized();
    };
    let mut response = answer(201, &json!({"token": told}));
    put(&mut response, "x-subject-token", token);
    response
}

async fn make(
    State(keystone): State<Vouching>,
    Path(user): Path<String>,
    headers: HeaderMap,
    Json(mut body): Json<Value>,
) -> Response {
    let token = match keystone.may_change(&headers, &user) {
        Ok(token) => token,
        Err(status) => return refused(status),
    };
    let mut made = body["application_credential"].take();
    let roles = made["roles"].as_array().unwrap().iter();
    let roles = roles.map(|role| role["id"].as_str().unwrap().trim_start_matches("id-of-"));
    let role = roles.collect::<Vec<_>>().join("+");
    made["role"] = json!(role);
    let mut known = keystone.known.lock().unwrap();
    known.made += 1;
    let id = format!("credential-{}", known.made);
    made["secret"] = json!(format!("secret-of-{id}"));
    made["user"] = json!(user);
    made["project"] = json!(token.split(':').next());
    made["id"] = json!(id);
    known.credentials.insert(id, made.clone());
    answer(201, &json!({"application_credential": made}))
}

async fn list(
    State(keystone): State<Vouching>,
    Path(user): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Err(status) = keystone.may_change(&headers, &user) {
        return refused(status);
    }
    let mut all = keystone.credentials();
    all.retain(|entry| entry["user"] == user);
    answer(200, &json!({"application_credentials": all}))
}

async fn remove(
    State(keystone): State<Vouching>,
    Path((user, id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    if let Err(status) = keystone.may_change(&headers, &user) {
        return refused(status);
    }
    let mut known = keystone.known.lock().unwrap();
    if known.clings {
        return answer(503, &Value::Null);
    }
    match known.credentials.remove(&id) {
        Some(_) => Response::builder().status(204).body(Body::empty()).unwrap(),
        None => answer(
            404,
            &json!({"error": {"code": 404, "message": "Could not find it."}}),
        ),
    }
}
