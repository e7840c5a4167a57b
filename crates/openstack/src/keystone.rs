//! Keystone as its clients meet it, asked through the Kubernetes API, which reaches its Service from everywhere.

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::{Client, client::Body};
use serde_json::{Value, json};

/// How much it may answer. A token tells its catalogue, which is some kilobytes.
const LARGEST: usize = 1024 * 1024;

/// A Keystone behind a Service.
#[derive(Clone)]
pub struct Keystone<'a> {
    /// The API of the cluster that it is in.
    pub client: &'a Client,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its Service.
    pub service: &'a str,
    /// Its port.
    pub port: u16,
}

/// Why it did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API of the cluster did not carry the request.
    #[error("reach Keystone through the API of the cluster")]
    Cluster(#[source] Box<kube::Error>),
    /// Keystone answered something else.
    #[error("{asked}: Keystone answered HTTP {}", status.as_u16())]
    Status {
        /// What was asked.
        asked: &'static str,
        /// What it answered.
        status: StatusCode,
    },
    /// It issued no token, or vouched for somebody else.
    #[error("{0}")]
    Answer(&'static str),
}

impl Keystone<'_> {
    /// Has a token issued for the administrator, and validated; and says how many seconds it is good for.
    ///
    /// # Errors
    ///
    /// It cannot be reached, or does not know the user.
    pub async fn prove(&self, username: &str, password: &str) -> Result<(), Error> {
        let domain = json!({"id": "default"});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": username, "domain": domain, "password": password,
            }}},
            "scope": {"project": {"name": username, "domain": domain}},
        }});
        let issue = self.request(Method::POST, &[], body.to_string().into_bytes());
        let issued = self
            .send("issue a token", issue, StatusCode::CREATED)
            .await?;
        let token = issued
            .headers()
            .get("x-subject-token")
            .and_then(|token| token.to_str().ok())
            .ok_or(Error::Answer("Keystone issued no token"))?;
        let headers = [("x-auth-token", token), ("x-subject-token", token)];
        let validate = self.request(Method::GET, &headers, Vec::new());
        let validated = self
            .send("validate the token", validate, StatusCode::OK)
            .await?;
        let told = Limited::new(validated.into_body(), LARGEST).collect().await;
        let told = told
            .map_err(|_| Error::Answer("Keystone's answer does not end"))?
            .to_bytes();
        let told: Value = serde_json::from_slice(&told)
            .map_err(|_| Error::Answer("Keystone's answer is no JSON"))?;
        if told["token"]["user"]["name"] != username {
            return Err(Error::Answer("Keystone vouches for somebody else"));
        }
        Ok(())
    }

    fn request(
        &self,
        method: Method,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Request<Body>, http::Error> {
        let Self {
            namespace,
            service,
            port,
            ..
        } = self;
        let address = format!(
            "/api/v1/namespaces/{namespace}/services/{service}:{port}/proxy/v3/auth/tokens"
        );
        let mut request = Request::builder()
            .method(method)
            .uri(address)
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::from(body))
    }

    async fn send(
        &self,
        asked: &'static str,
        request: Result<Request<Body>, http::Error>,
        wanted: StatusCode,
    ) -> Result<http::Response<Body>, Error> {
        let request = request.map_err(|_| Error::Answer("a name is none of HTTP"))?;
        let answer = self
            .client
            .send(request)
            .await
            .map_err(|source| Error::Cluster(Box::new(source)))?;
        if answer.status() == wanted {
            Ok(answer)
        } else {
            Err(Error::Status {
                asked,
                status: answer.status(),
            })
        }
    }
}
