//! A Vault, as far as its key/value engine and three ways to log in go.
//!
//! # Source
//! The HTTP API of Vault 1.14 and OpenBao 2: `kv/v1`, `kv/v2`, `auth/approle/login`, `auth/kubernetes/login`, `auth/token/renew-self`,
//! `auth/token/lookup-self`.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use api::{
    secrets::{Engine, Vault as Settings},
    text::plain,
};
use reqwest::{
    Certificate, Client, Method, StatusCode, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header::HeaderValue,
    redirect,
};
use secrecy::{ExposeSecret, SecretString};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, json};

/// How long a server may take to take a connection, and to answer.
const CONNECTING: Duration = Duration::from_secs(10);
const ANSWERING: Duration = Duration::from_secs(30);
/// The longest answer: a Secret of Kubernetes holds 1 MiB, and JSON has more to write.
const ANSWER: usize = 3 * 1024 * 1024;
/// The most fields of a secret.
const FIELDS: usize = 1024;
/// What the paths in Vault begin with that are no secrets engine's, but of Vault itself: tokens and policies are told there.
const OF_VAULT: [&str; 4] = ["auth", "cubbyhole", "identity", "sys"];
/// How much of what a server says is told.
const TOLD: usize = 256;

/// Why something was not had from a Vault.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// What the spec says cannot be asked.
    #[error("{0}")]
    Unusable(String),
    /// Certificates that it refers to are none.
    #[error("{0}")]
    Certificates(String),
    /// It does not answer, or says that it cannot now.
    #[error("{0}")]
    Away(String),
    /// It is sealed, or has no data yet.
    #[error("the server is sealed")]
    Sealed,
    /// The token or the role may not do that.
    #[error("{0}")]
    Denied(String),
    /// There is nothing.
    #[error("{0}")]
    Missing(String),
    /// It refuses what was asked, or answers something else than the API says.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// The reason, as conditions have it, and what to do.
    pub const fn advice(&self) -> (&'static str, &'static str) {
        match self {
            Self::Unusable(_) => ("InvalidSpec", "correct the spec"),
            Self::Certificates(_) => (
                "CredentialsMissing",
                "write them there; they are looked for again by themselves",
            ),
            Self::Away(_) => (
                "VaultUnreachable",
                "let it answer; it is asked again by itself",
            ),
            Self::Sealed => ("VaultSealed", "unseal it; it is asked again by itself"),
            Self::Denied(_) => (
                "VaultDenied",
                "give the role or the token a policy with read on the path, or mend the credentials; it is asked again by itself",
            ),
            Self::Missing(_) => (
                "NotInVault",
                "write it there, or correct mount, engine, path and version; it is asked again by itself",
            ),
            Self::Refused(_) => (
                "VaultRefused",
                "correct what it names, or the engine; it is asked again by itself",
            ),
        }
    }

    /// Whether the server may well be as it was, and cannot be asked now: what it held last counts until it can.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Sealed)
    }
}

/// A Vault that nobody has asked yet.
#[derive(Debug)]
pub struct Vault {
    address: Url,
    namespace: Option<HeaderValue>,
    client: Client,
}

/// What a secret in Vault holds.
#[derive(Debug)]
pub struct Held {
    /// Its fields, each as a Secret holds it: texts as they stand, everything else as JSON. Not for logs.
    pub fields: BTreeMap<String, Vec<u8>>,
    /// Its version, where the engine keeps versions.
    pub version: Option<i64>,
}

/// A token, and how long it lives.
#[derive(Debug)]
pub struct Granted {
    /// The token.
    pub token: SecretString,
    /// How long it lives; without it for ever.
    pub lives: Option<Duration>,
    /// Whether its life can be made longer.
    pub is_renewable: bool,
}

#[derive(Deserialize)]
struct Login {
    auth: Option<LoggedIn>,
}

#[derive(Deserialize)]
struct LoggedIn {
    client_token: String,
    lease_duration: u64,
    renewable: bool,
}

impl From<LoggedIn> for Granted {
    fn from(it: LoggedIn) -> Self {
        Self {
            token: it.client_token.into(),
            // 0: it does not end.
            lives: (it.lease_duration > 0).then(|| Duration::from_secs(it.lease_duration)),
            is_renewable: it.renewable,
        }
    }
}

#[derive(Deserialize)]
struct Data<T> {
    data: T,
}

#[derive(Deserialize)]
struct Looked {
    ttl: u64,
    #[serde(default)]
    renewable: bool,
}

#[derive(Deserialize)]
struct Versioned {
    data: Option<Fields>,
    metadata: Metadata,
}

/// The mount that a path is below.
#[derive(Deserialize)]
struct Mount {
    #[serde(rename = "type")]
    kind: String,
}

/// Fields, bounded: what a tree of values takes is many times what is read.
struct Fields(BTreeMap<String, Vec<u8>>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfSecret;
        impl<'de> Visitor<'de> for OfSecret {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, Text(value))) = map.next_entry()? {
                    fields.insert(name, value);
                    if fields.len() > FIELDS {
                        return Err(de::Error::custom("too many fields"));
                    }
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(OfSecret)
    }
}

/// A value as a Secret holds it, without a tree of it in between.
struct Text(Vec<u8>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut json = Vec::new();
        let mut serializer = serde_json::Serializer::new(&mut json);
        serde_transcode::transcode(deserializer, &mut serializer)
            .map_err(|_| de::Error::custom("no value"))?;
        let text = serde_json::from_slice::<String>(&json);
        Ok(Self(text.map_or(json, String::into_bytes)))
    }
}

#[derive(Deserialize)]
struct Metadata {
    version: i64,
}

/// The URL of a server, if it is one that may be asked: https, or http at loopback where that is this machine's.
///
/// # Errors
///
/// It is none.
pub fn address(text: &str, loopback: bool) -> Result<Url, Error> {
    let refused = |rule: &str| Error::Unusable(format!("spec.vault.address {text:?} {rule}"));
    let url = Url::parse(text).map_err(|error| refused(&format!("is no URL: {error}")))?;
    let host = url.host_str().ok_or_else(|| refused("names no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let literal = host.parse::<IpAddr>().ok();
    let is_loopback = host == "localhost" || literal.is_some_and(|address| address.is_loopback());
    if is_loopback && !loopback {
        return Err(refused(
            "is the operator's own pod: write the address that the server has in the cluster",
        ));
    }
    if !loopback && let Some(rule) = literal.and_then(api::address::refused) {
        return Err(refused(rule));
    }
    match url.scheme() {
        "https" => {}
        "http" if is_loopback => {}
        _ => {
            return Err(refused(
                "would carry tokens in the clear: write https, http is for loopback alone",
            ));
        }
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Unusable(
            "spec.vault.address holds a user: take it out, spec.vault.auth says who logs in"
                .to_owned(),
        ));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(refused(
            "goes on after the host: write for example https://vault.example.org:8200",
        ));
    }
    Ok(url)
}

impl Vault {
    /// A server, and the certificates of authorities, in PEM form, that are trusted beside those that everybody trusts.
    ///
    /// # Errors
    ///
    /// The settings cannot be used.
    pub fn new(
        settings: &Settings,
        authorities: Option<&str>,
        loopback: bool,
    ) -> Result<Self, Error> {
        let address = address(&settings.address, loopback)?;
        let namespace = settings.namespace.as_deref().map(HeaderValue::from_str);
        let namespace = namespace.transpose().map_err(|_| {
            Error::Unusable("spec.vault.namespace is no namespace of Vault".to_owned())
        })?;
        // Fails when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECTING)
            .timeout(ANSWERING)
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
        if !loopback {
            builder = builder.dns_resolver(Arc::new(OfOthers));
        }
        if let Some(pem) = authorities {
            let authorities = Certificate::from_pem_bundle(pem.as_bytes())
                .ok()
                .filter(|authorities| !authorities.is_empty())
                .ok_or_else(|| {
                    Error::Certificates(
                        "what spec.vault.caConfigMapRef names has no certificate in PEM form"
                            .to_owned(),
                    )
                })?;
            builder = builder.tls_certs_merge(authorities);
        }
        let client = builder
            .build()
            .map_err(|error| Error::Certificates(controller::problem::chain(&error)))?;
        Ok(Self {
            address,
            namespace,
            client,
        })
    }

    /// Logs in by an AppRole.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn by_app_role(
        &self,
        mount: &str,
        role: &str,
        secret: &SecretString,
    ) -> Result<Granted, Error> {
        let body = json!({"role_id": role, "secret_id": secret.expose_secret()});
        self.log_in(mount, &body).await
    }

    /// Logs in by the token of a ServiceAccount.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn by_service_account(
        &self,
        mount: &str,
        role: &str,
        token: &SecretString,
    ) -> Result<Granted, Error> {
        let body = json!({"role": role, "jwt": token.expose_secret()});
        self.log_in(mount, &body).await
    }

    async fn log_in(&self, mount: &str, body: &Value) -> Result<Granted, Error> {
        let path = format!("auth/{mount}/login");
        let answered: Result<Login, Error> =
            self.ask(Method::POST, &path, None, Some(body), &[]).await;
        match answered {
            Ok(login) => granted(login, &path),
            // Credentials that do not fit are a bad request for some methods.
            Err(Error::Refused(why)) => Err(Error::Denied(why)),
            Err(error) => Err(error),
        }
    }

    /// What a token that somebody made is.
    ///
    /// # Errors
    ///
    /// It is none, or the server does not answer.
    pub async fn look_up(&self, token: SecretString) -> Result<Granted, Error> {
        let path = "auth/token/lookup-self";
        let looked: Data<Looked> = self.ask(Method::GET, path, Some(&token), None, &[]).await?;
        let Looked { ttl, renewable } = looked.data;
        Ok(Granted {
            token,
            lives: (ttl > 0).then(|| Duration::from_secs(ttl)),
            is_renewable: renewable,
        })
    }

    /// Makes the life of a token longer.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn renew(&self, token: &SecretString) -> Result<Granted, Error> {
        let path = "auth/token/renew-self";
        let body = json!({});
        let login = self
            .ask(Method::POST, path, Some(token), Some(&body), &[])
            .await?;
        granted(login, path)
    }

    /// Ends a token. One that does not end so ends by its time.
    pub async fn revoke(&self, token: &SecretString) {
        let path = "auth/token/revoke-self";
        let body = json!({});
        let answer: Result<IgnoredAny, Error> = self
            .ask(Method::POST, path, Some(token), Some(&body), &[])
            .await;
        if let Err(error) = answer {
            // It answers with nothing.
            tracing::debug!(%error, "a token was left to end by itself");
        }
    }

    /// That a mount is one of a key/value engine. Of version 1 that is asked: its paths are any others', of which a GET may tell a token,
    /// or make a user of a database.
    async fn is_kv(&self, token: &SecretString, (mount, path): (&str, &str)) -> Result<(), Error> {
        let first = mount.split('/').next().unwrap_or_default();
        let kind = if OF_VAULT.contains(&first) {
            None
        } else {
            let asked = format!("sys/internal/ui/mounts/{mount}/{path}");
            let found: Data<Mount> = self
                .ask(Method::GET, &asked, Some(token), None, &[])
                .await?;
            Some(found.data.kind)
        };
        match kind.as_deref() {
            Some("kv" | "generic") => Ok(()),
            kind => Err(Error::Refused(format!(
                "spec.mount {mount} is {}, and no key/value engine",
                kind.map_or_else(
                    || "of Vault itself".to_owned(),
                    |kind| format!("one of {:?}", plain(kind, TOLD))
                ),
            ))),
        }
    }

    /// Reads a secret of a key/value engine.
    ///
    /// # Errors
    ///
    /// There is none, it may not be read, or the server does not answer.
    pub async fn read(
        &self,
        token: &SecretString,
        (mount, engine): (&str, Engine),
        path: &str,
        version: Option<u32>,
    ) -> Result<Held, Error> {
        if engine == Engine::KvV1 {
            self.is_kv(token, (mount, path)).await?;
        }
        let token = Some(token);
        match engine {
            Engine::KvV1 => {
                let path = format!("{mount}/{path}");
                let answer: Data<Fields> = self.ask(Method::GET, &path, token, None, &[]).await?;
                Ok(Held {
                    fields: answer.data.0,
                    version: None,
                })
            }
            Engine::KvV2 => {
                let path = format!("{mount}/data/{path}");
                let version = version.map(|version| ("version", version.to_string()));
                let query: Vec<_> = version.into_iter().collect();
                let answer: Data<Versioned> =
                    self.ask(Method::GET, &path, token, None, &query).await?;
                let Versioned { data, metadata } = answer.data;
                let version = metadata.version;
                let fields = data.ok_or_else(|| {
                    Error::Missing(format!("version {version} of {path} was deleted"))
                })?;
                Ok(Held {
                    fields: fields.0,
                    version: Some(version),
                })
            }
        }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        token: Option<&SecretString>,
        body: Option<&Value>,
        query: &[(&str, String)],
    ) -> Result<T, Error> {
        let mut url = self.address.clone();
        // Segments are those of a checked spec: none leads up, and none needs an escape.
        url.set_path(&format!("v1/{path}"));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self
            .client
            .request(method, url)
            .header("X-Vault-Request", "true");
        if let Some(namespace) = &self.namespace {
            request = request.header("X-Vault-Namespace", namespace.clone());
        }
        if let Some(token) = token {
            let mut header = HeaderValue::from_str(token.expose_secret())
                .map_err(|_| Error::Denied("the token has characters that no token has".into()))?;
            header.set_sensitive(true);
            request = request.header("X-Vault-Token", header);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(away)?;
        let status = response.status();
        let bytes = bounded(response).await?;
        if !status.is_success() {
            return Err(refused(path, status, &bytes));
        }
        // Not with serde's words, which quote what they read.
        serde_json::from_slice(&bytes).map_err(|_| {
            Error::Refused(format!(
                "the answer for {path} is not what the API says: is that a Vault, and the engine of that version?"
            ))
        })
    }
}

/// Resolves names to addresses of other machines alone.
struct OfOthers;

impl Resolve for OfOthers {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            for address in &found {
                if let Some(rule) = api::address::refused(address.ip()) {
                    return Err(
                        format!("{} is {}, which {rule}", name.as_str(), address.ip()).into(),
                    );
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn granted(login: Login, path: &str) -> Result<Granted, Error> {
    let login = login
        .auth
        .ok_or_else(|| Error::Refused(format!("the answer for {path} holds no token")))?;
    Ok(login.into())
}

async fn bounded(mut response: reqwest::Response) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(away)? {
        if bytes.len() + chunk.len() > ANSWER {
            return Err(Error::Refused(format!(
                "an answer has more than {ANSWER} bytes"
            )));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn away(error: reqwest::Error) -> Error {
    Error::Away(controller::problem::chain(&error.without_url()))
}

/// What an answer that is none means.
fn refused(path: &str, status: StatusCode, bytes: &[u8]) -> Error {
    #[derive(Default, Deserialize)]
    struct Errors {
        #[serde(default)]
        errors: Vec<String>,
        data: Option<IgnoredAny>,
    }
    let said: Errors = serde_json::from_slice(bytes).unwrap_or_default();
    let mut told = format!("{path}: {}", status.as_u16());
    let words = plain(&said.errors.join("; "), TOLD);
    if !words.is_empty() {
        told = format!("{told} {words}");
    }
    match status.as_u16() {
        403 | 401 => Error::Denied(told),
        // A version that was deleted or destroyed is told of, with a body.
        404 if said.data.is_some() => {
            Error::Missing(format!("{path}: that version was deleted or destroyed"))
        }
        404 => Error::Missing(told),
        503 if words.contains("sealed") => Error::Sealed,
        // 472, 473: a standby of a replica that cannot answer this.
        429 | 412 | 472 | 473 | 500..=599 => Error::Away(told),
        300..=399 => Error::Refused(format!(
            "{told}: it leads elsewhere, and tokens are not carried there; write the address of the active server"
        )),
        _ => Error::Refused(told),
    }
}

/// What fields are as the data of a Secret.
///
/// # Errors
///
/// A field is missing, or its name cannot be a key.
pub fn data(
    held: &Held,
    keys: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    if keys.is_empty() {
        let all = held.fields.iter().map(|(name, value)| {
            if !is_key(name) {
                return Err(Error::Refused(format!(
                    "the field {:?} cannot be the key of a Secret: give it another with spec.keys",
                    plain(name, TOLD)
                )));
            }
            Ok((name.clone(), value.clone()))
        });
        return all.collect();
    }
    let chosen = keys.iter().map(|(key, field)| {
        let value = held.fields.get(field).ok_or_else(|| {
            Error::Missing(format!(
                "spec.keys takes {key} from the field {field:?}, which is not there"
            ))
        })?;
        Ok((key.clone(), value.clone()))
    });
    chosen.collect()
}

/// Whether a Secret may have this key.
///
/// # Source
/// Kubernetes `validation.IsConfigMapKey`.
pub(crate) fn is_key(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=253).contains(&name.len())
        && name.chars().all(is_plain)
        && name != "."
        && !name.starts_with("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_to_https_or_to_this_machine() {
        for (text, loopback, rule) in [
            ("https://vault.example.org:8200", false, ""),
            ("https://vault.example.org:8200/", false, ""),
            ("http://127.0.0.1:8200", true, ""),
            ("http://[::1]:8200", true, ""),
            ("http://127.0.0.1:8200", false, "own pod"),
            ("https://169.254.169.254", false, "spec.vault.address"),
            ("https://[fe80::1]", false, "spec.vault.address"),
            ("https://10.0.0.1:8200", false, ""),
            ("https://localhost:8200", false, "own pod"),
            ("http://vault.example.org", true, "in the clear"),
            ("http://127.0.0.1.example.org", true, "in the clear"),
            ("ftp://vault.example.org", true, "in the clear"),
            ("https://a:b@vault.example.org", true, "holds a user"),
            ("https://vault.example.org/v1", true, "goes on"),
            ("https://vault.example.org/?a=b", true, "goes on"),
            ("vault.example.org:8200", true, "spec.vault.address"),
        ] {
            match address(text, loopback) {
                Ok(_) => assert_eq!(rule, "", "{text}"),
                Err(error) => {
                    let told = error.to_string();
                    assert!(!rule.is_empty() && told.contains(rule), "{text}: {told}");
                    assert!(!told.contains("a:b@"), "{told}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_name_leads_an_operator_in_a_pod_to_no_address_of_its_own() {
        let resolved = OfOthers.resolve("localhost".parse().unwrap()).await;
        let told = resolved.err().unwrap().to_string();
        assert!(told.contains("localhost"), "{told}");
    }

    #[test]
    fn what_a_server_says_is_told_by_its_kind() {
        let sealed = r#"{"errors":["Vault is sealed"]}"#;
        for (status, body, reason) in [
            (403, r#"{"errors":["permission denied"]}"#, "VaultDenied"),
            (404, r#"{"errors":[]}"#, "NotInVault"),
            (404, r#"{"data":{"data":null,"metadata":{}}}"#, "NotInVault"),
            (503, sealed, "VaultSealed"),
            (503, "<html>", "VaultUnreachable"),
            (473, "", "VaultUnreachable"),
            (400, r#"{"errors":["no \u001b handler"]}"#, "VaultRefused"),
            (307, "", "VaultRefused"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = refused("secret/data/a", status, body.as_bytes());
            assert_eq!(error.advice().0, reason, "{status} {body}");
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
        }
    }

    fn held(fields: Value) -> Held {
        let Fields(fields) = serde_json::from_value(fields).unwrap();
        Held {
            fields,
            version: None,
        }
    }

    /// What a tree of these values would take is more than an operator may have.
    #[test]
    fn what_a_server_says_takes_no_more_than_it_has_bytes() {
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        let many = vec![deep; 5000].join(",");
        let read: Fields = serde_json::from_str(&format!(r#"{{"a":[{many}]}}"#)).unwrap();
        assert_eq!(read.0["a"].len(), many.len() + 2);
        let endless = format!(r#"{{"a":{}1{}}}"#, "[".repeat(1000), "]".repeat(1000));
        assert!(serde_json::from_str::<Fields>(&endless).is_err());
        let fields: Vec<_> = (0..=FIELDS).map(|at| format!(r#""f{at}":0"#)).collect();
        assert!(serde_json::from_str::<Fields>(&format!("{{{}}}", fields.join(","))).is_err());
    }

    #[test]
    fn fields_become_keys() {
        let it = held(json!({"user": "a", "port": 5432, "list": [1, "b"], "none": null}));
        let all = data(&it, &BTreeMap::new()).unwrap();
        let texts: Vec<_> = all
            .iter()
            .map(|(key, value)| format!("{key}={}", String::from_utf8_lossy(value)))
            .collect();
        assert_eq!(
            texts,
            [r#"list=[1,"b"]"#, "none=null", "port=5432", "user=a"]
        );
        let chosen = BTreeMap::from([("USER".to_owned(), "user".to_owned())]);
        assert_eq!(data(&it, &chosen).unwrap().len(), 1);
        let missing = BTreeMap::from([("USER".to_owned(), "nobody".to_owned())]);
        let told = data(&it, &missing).unwrap_err().to_string();
        assert!(told.contains("USER") && told.contains("nobody"), "{told}");
        for name in ["", "a b", "../a", "..", "."] {
            let told = data(&held(json!({name: "canary"})), &BTreeMap::new());
            let told = told.unwrap_err().to_string();
            assert!(
                told.contains("spec.keys") && !told.contains("canary"),
                "{told}"
            );
        }
    }
}
