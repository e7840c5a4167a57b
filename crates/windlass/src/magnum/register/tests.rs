//! A catalogue that is played.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::HeaderMap,
    routing::{get, patch, post},
};

use super::*;

type Catalogue = Arc<Mutex<(Vec<Value>, Vec<Value>)>>;

fn knows(headers: &HeaderMap) {
    assert_eq!(headers["x-auth-token"], "t");
}

async fn keystone(catalogue: Catalogue) -> String {
    let token = async |Json(body): Json<Value>| {
        let is_known = body["auth"]["identity"]["password"]["user"]["password"] == "secret";
        let status = if is_known { 201 } else { 401 };
        let status = axum::http::StatusCode::from_u16(status).unwrap();
        (
            status,
            [("x-subject-token", "t")],
            Json(json!({"token": {}})),
        )
    };
    let services = async |State(catalogue): State<Catalogue>, headers: HeaderMap| {
        knows(&headers);
        Json(json!({"services": catalogue.lock().unwrap().0}))
    };
    let serve = async |State(catalogue): State<Catalogue>, Json(mut body): Json<Value>| {
        body["service"]["id"] = json!("s");
        catalogue.lock().unwrap().0.push(body["service"].clone());
        Json(body)
    };
    let endpoints = async |State(catalogue): State<Catalogue>| {
        Json(json!({"endpoints": catalogue.lock().unwrap().1}))
    };
    let add = async |State(catalogue): State<Catalogue>, Json(mut body): Json<Value>| {
        let endpoints = &mut catalogue.lock().unwrap().1;
        body["endpoint"]["id"] = json!(format!("e{}", endpoints.len()));
        endpoints.push(body["endpoint"].clone());
        Json(body)
    };
    let change = async |State(catalogue): State<Catalogue>,
                        Path(id): Path<String>,
                        Json(body): Json<Value>| {
        let endpoints = &mut catalogue.lock().unwrap().1;
        let endpoint = endpoints.iter_mut().find(|endpoint| endpoint["id"] == id);
        endpoint.unwrap()["url"] = body["endpoint"]["url"].clone();
        Json(body)
    };
    let router = Router::new()
        .route("/v3/auth/tokens", post(token))
        .route("/v3/services", get(services).post(serve))
        .route("/v3/endpoints", get(endpoints).post(add))
        .route("/v3/endpoints/{id}", patch(change))
        .with_state(catalogue);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn cloud(address: &str, password: &str) -> anyhow::Result<Cloud> {
    Cloud::of(|name| {
        let value = match name {
            "OS_AUTH_URL" => format!("{address}/v3/"),
            "OS_USERNAME" => "admin".to_owned(),
            "OS_PASSWORD" => password.to_owned(),
            "OS_PROJECT_NAME" => "admin".to_owned(),
            _ => return None,
        };
        Some(value)
    })
}

fn options(url: &str) -> Register {
    Register {
        url: url.to_owned(),
        internal_url: Some("https://inside.example".to_owned()),
        admin_url: None,
        region: None,
        name: "magnum".to_owned(),
    }
}

#[tokio::test]
async fn a_service_is_registered_once_and_follows_its_address() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let catalogue = Catalogue::default();
    let address = keystone(Arc::clone(&catalogue)).await;
    let known = Keystone::of(&cloud(&address, "secret").unwrap())
        .await
        .unwrap();
    let first = options("https://a.example");
    let done = known.register(&first, Some("one")).await.unwrap();
    assert!(
        done.iter().all(|done| done.ends_with("was made")),
        "{done:?}"
    );
    let done = known.register(&first, Some("one")).await.unwrap();
    assert!(
        done.iter().all(|done| done.ends_with("is there")),
        "{done:?}"
    );
    let moved = options("https://b.example");
    let done = known.register(&moved, Some("one")).await.unwrap();
    let changed = done.iter().filter(|done| done.ends_with("was changed"));
    assert_eq!(changed.count(), 2, "{done:?}");
    let (services, endpoints) = catalogue.lock().unwrap().clone();
    assert_eq!(services.len(), 1);
    let urls: Vec<_> = endpoints.iter().map(|endpoint| &endpoint["url"]).collect();
    assert_eq!(
        urls,
        [
            "https://b.example/v1",
            "https://inside.example/v1",
            "https://b.example/v1"
        ]
    );
}

#[tokio::test]
async fn who_is_not_known_is_told_so_without_the_password() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let address = keystone(Catalogue::default()).await;
    let refused = Keystone::of(&cloud(&address, "guessed").unwrap()).await;
    let told = format!("{:#}", refused.err().unwrap());
    assert!(told.contains("401") && !told.contains("guessed"), "{told}");
}

#[test]
fn a_cloud_is_that_of_the_file_or_else_of_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("clouds.yaml");
    let text = "clouds: {lab: {auth: {auth_url: 'https://k.example/v3', application_credential_id: i, application_credential_secret: hush}, region_name: one}}";
    fs::write(&file, text).unwrap();
    let of = |cloud: &'static str| {
        Cloud::of(|name| match name {
            "OS_CLOUD" => Some(cloud.to_owned()),
            "OS_CLIENT_CONFIG_FILE" => Some(file.display().to_string()),
            _ => None,
        })
    };
    let lab = of("lab").unwrap();
    assert_eq!(
        (lab.keystone(), lab.region_name.as_deref()),
        ("https://k.example", Some("one"))
    );
    let credential = json!({"id": "i", "secret": "hush"});
    assert_eq!(
        lab.request().unwrap()["auth"]["identity"]["application_credential"],
        credential
    );
    assert!(
        of("other")
            .err()
            .unwrap()
            .to_string()
            .contains("has no cloud other")
    );
    let by_words = cloud("https://k.example", "secret").unwrap();
    let project = json!({"project": {"name": "admin", "domain": {"id": "default"}}});
    assert_eq!(by_words.request().unwrap()["auth"]["scope"], project);
    assert!(
        Cloud::of(|_| None)
            .err()
            .unwrap()
            .to_string()
            .contains("OS_CLOUD")
    );
}
