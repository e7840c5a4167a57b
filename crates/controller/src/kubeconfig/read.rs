//! The allow-list: a kubeconfig of somebody else, field by field.

use api::text::plain;
use base64::Engine;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::{Credentials, Foreign, Refusal, Server};

/// The longest kubeconfig that is looked at, in bytes. One of kubeadm has 6 KiB; a long chain of authorities fits many times.
pub const LIMIT: usize = 256 * 1024;

/// The longest text of a field that is no data: names and addresses are shorter.
const TEXT_LIMIT: usize = 253;
/// The longest token. A service account's has about 1 KiB.
const TOKEN_LIMIT: usize = 16 * 1024;

/// Fields that change nothing about who is reached, as whom and how.
const IDLE: [&str; 3] = ["preferences", "extensions", "disable-compression"];

pub(super) fn read(bytes: &[u8]) -> Result<Foreign, Refusal> {
    let document = parse(bytes)?;
    let top = Part::new(String::new(), &document)?;
    top.only(&[
        "apiVersion",
        "kind",
        "clusters",
        "contexts",
        "users",
        "current-context",
    ])?;
    let current = top.text("current-context")?;
    let context = top.named("contexts", "context", "current-context", current)?;
    context.only(&["cluster", "user", "namespace"])?;
    let cluster = context.text("cluster")?;
    let cluster = top.named("clusters", "cluster", &context.at("cluster"), cluster)?;
    cluster.only(&["server", "certificate-authority-data", "tls-server-name"])?;
    let user = context.text("user")?;
    let user = top.named("users", "user", &context.at("user"), user)?;
    user.only(&["client-certificate-data", "client-key-data", "token"])?;
    Ok(Foreign {
        server: server(&cluster)?,
        tls_server_name: tls_server_name(&cluster)?,
        authority: certificates(&cluster, "certificate-authority-data")?.ok_or_else(|| {
            cluster.refusal(
                "certificate-authority-data",
                "",
                "is missing, so nothing would tell the right server from another",
                "put the authority's certificate there, in PEM and base64",
            )
        })?,
        credentials: credentials(&user)?,
        namespace: namespace(&context)?,
    })
}

/// The document, without aliases: a few lines of them unfold to gigabytes. Of what the parser says only the place is told,
/// since the rest may quote a key.
fn parse(bytes: &[u8]) -> Result<Value, Refusal> {
    let refusal = |rule: String| Refusal {
        field: "kubeconfig".to_owned(),
        value: String::new(),
        rule,
        remedy: "store a kubeconfig as `kubectl config view --raw --minify --flatten` prints it"
            .to_owned(),
    };
    if bytes.len() > LIMIT {
        let size = bytes.len();
        return Err(refusal(format!(
            "has {size} bytes, at most {LIMIT} are read"
        )));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| refusal("is not UTF-8 text".to_owned()))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_depth: 16,
            max_documents: 1,
            max_nodes: 4096,
        },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        refusal(match error.location() {
            Some(place) => format!(
                "is not plain YAML without aliases (line {}, column {})",
                place.line(),
                place.column()
            ),
            None => "is not plain YAML without aliases".to_owned(),
        })
    })
}

/// A mapping within the document, and where it stands.
struct Part<'a> {
    path: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Part<'a> {
    fn new(path: String, value: &'a Value) -> Result<Self, Refusal> {
        match value {
            Value::Object(fields) => Ok(Self { path, fields }),
            _ => Err(Refusal {
                field: if path.is_empty() {
                    "kubeconfig".to_owned()
                } else {
                    path
                },
                value: String::new(),
                rule: "is not a mapping of fields".to_owned(),
                remedy: "store a kubeconfig as kubectl writes it".to_owned(),
            }),
        }
    }

    fn at(&self, field: &str) -> String {
        if self.path.is_empty() {
            field.to_owned()
        } else {
            format!("{}.{field}", self.path)
        }
    }

    fn refusal(&self, field: &str, value: &str, rule: &str, remedy: &str) -> Refusal {
        Refusal {
            field: self.at(&plain(field, 64)),
            value: plain(value, 128),
            rule: rule.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    /// Refuses every field that says something but `taken` and those without effect.
    fn only(&self, taken: &[&str]) -> Result<(), Refusal> {
        let other = self.fields.iter().find(|(name, value)| {
            !taken.contains(&name.as_str())
                && !IDLE.contains(&name.as_str())
                && says_something(value)
        });
        match other {
            None => Ok(()),
            Some((name, _)) => {
                let (rule, remedy) = why(name);
                Err(self.refusal(name, "", rule, remedy))
            }
        }
    }

    fn optional(&self, field: &str) -> Result<Option<&'a str>, Refusal> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.refusal(field, "", "is not text", "quote it")),
        }
    }

    /// A short text that must be there.
    fn text(&self, field: &str) -> Result<&'a str, Refusal> {
        let missing = || self.refusal(field, "", "is missing", "name it, as kubectl does");
        let text = self.optional(field)?.ok_or_else(missing)?;
        if text.len() > TEXT_LIMIT {
            return Err(self.refusal(field, text, "is longer than 253 bytes", "shorten it"));
        }
        Ok(text)
    }

    /// What the entry of that name has in `list`, of which there must be exactly one.
    fn named(&self, list: &str, kind: &str, by: &str, name: &str) -> Result<Part<'a>, Refusal> {
        let entries = match self.fields.get(list) {
            Some(Value::Array(entries)) => entries.as_slice(),
            _ => &[],
        };
        let mut found = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.get("name").and_then(Value::as_str) == Some(name));
        let refusal = |rule: &str, remedy: &str| Refusal {
            field: by.to_owned(),
            value: plain(name, 128),
            rule: rule.to_owned(),
            remedy: remedy.to_owned(),
        };
        let (index, entry) = found.next().ok_or_else(|| {
            refusal(
                &format!("names nothing in {list}"),
                "name what the file has",
            )
        })?;
        if found.next().is_some() {
            return Err(refusal(
                &format!("is the name of several in {list}"),
                "leave one of them",
            ));
        }
        let entry = Part::new(format!("{list}[{index}]"), entry)?;
        entry.only(&["name", kind])?;
        Part::new(
            entry.at(kind),
            entry.fields.get(kind).unwrap_or(&Value::Null),
        )
    }
}

/// Empty fields, as some writers leave them, have no effect.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

/// Why a field of a kubeconfig of somebody else is refused, and what to write instead.
///
/// # Source
/// client-go `tools/clientcmd/api/v1/types.go`.
fn why(field: &str) -> (&'static str, &'static str) {
    const DATA: &str = "use client-certificate-data with client-key-data, or token";
    match field {
        "exec" => ("would run a program here", DATA),
        "auth-provider" => ("would log in by a plugin here", DATA),
        "tokenFile" => ("would read a file here", "put the token itself in token"),
        "client-certificate" | "client-key" | "certificate-authority" => (
            "would read a file here",
            "put its content, in base64, in the field of that name with -data at its end",
        ),
        "proxy-url" => (
            "would send the connection by way of somebody else",
            "leave it away, and let the server be reached directly",
        ),
        "insecure-skip-tls-verify" => (
            "would let anybody answer as the server",
            "leave it away, and put the authority in certificate-authority-data",
        ),
        "as" | "as-uid" | "as-groups" | "as-user-extra" => (
            "would act as somebody else",
            "leave it away, and use the credentials of who is meant",
        ),
        "username" | "password" => ("is for a way to log in that API servers have no more", DATA),
        _ => (
            "is no field that is taken from a kubeconfig of somebody else",
            "leave it away",
        ),
    }
}

fn server(cluster: &Part<'_>) -> Result<Server, Refusal> {
    let text = cluster.text("server")?;
    let refusal = |rule| {
        // What stands before an `@` may be a password.
        let shown = if text.contains('@') { "" } else { text };
        cluster.refusal("server", shown, rule, "write it as https://HOST:PORT")
    };
    let uri: http::Uri = text.parse().map_err(|_| refusal("is no address"))?;
    if uri.scheme_str() != Some("https") {
        return Err(refusal("is not https"));
    }
    let authority = uri.authority().ok_or_else(|| refusal("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(refusal("has credentials in it"));
    }
    if uri.query().is_some() || text.contains('#') {
        return Err(refusal("has more than a host, a port and a path"));
    }
    let port = match authority.port() {
        Some(port) => port.as_u16(),
        None if authority.as_str().ends_with(':')
            || !authority.as_str().ends_with(authority.host()) =>
        {
            return Err(refusal("has no port that is a number"));
        }
        None => 443,
    };
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    if port == 0 || ServerName::try_from(host).is_err() {
        return Err(refusal("has no host name or address"));
    }
    Ok(Server {
        host: host.to_owned(),
        port,
        path: uri.path().trim_end_matches('/').to_owned(),
    })
}

fn tls_server_name(cluster: &Part<'_>) -> Result<Option<String>, Refusal> {
    let Some(name) = cluster.optional("tls-server-name")? else {
        return Ok(None);
    };
    match ServerName::try_from(name) {
        Ok(_) => Ok(Some(name.to_owned())),
        Err(_) => Err(cluster.refusal(
            "tls-server-name",
            name,
            "is no host name or address",
            "name what the server's certificate is made out to",
        )),
    }
}

fn namespace(context: &Part<'_>) -> Result<Option<String>, Refusal> {
    let Some(name) = context.optional("namespace")? else {
        return Ok(None);
    };
    let label = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    if name.len() <= 63 && name.bytes().all(label) {
        return Ok(Some(name.to_owned()));
    }
    Err(context.refusal("namespace", name, "is no name of a namespace", "correct it"))
}

fn credentials(user: &Part<'_>) -> Result<Credentials, Refusal> {
    let chain = certificates(user, "client-certificate-data")?;
    let key = key(user)?;
    let token = token(user)?;
    match (chain, key, token) {
        (Some(chain), Some(key), None) => Ok(Credentials::Certificate { chain, key }),
        (None, None, Some(token)) => Ok(Credentials::Token(token)),
        _ => Err(Refusal {
            field: user.path.clone(),
            value: String::new(),
            rule: "has not one way to log in".to_owned(),
            remedy: "give it client-certificate-data and client-key-data, or token, and not both"
                .to_owned(),
        }),
    }
}

/// A token is harmless data: it goes nowhere but to the server that the authority vouches for, and a service account's is how
/// a person hands out less than an administrator's rights.
///
/// # Source
/// RFC 6750 section 2.1, `b64token`.
fn token(user: &Part<'_>) -> Result<Option<SecretString>, Refusal> {
    let Some(token) = user.optional("token")? else {
        return Ok(None);
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=:".contains(&byte);
    if token.len() > TOKEN_LIMIT || !token.bytes().all(allowed) {
        return Err(user.refusal(
            "token",
            "",
            "is no bearer token of at most 16 KiB",
            "put the token itself there",
        ));
    }
    Ok(Some(token.into()))
}

/// The PEM text of a field in base64, if the field is there.
fn pem(part: &Part<'_>, field: &str) -> Result<Option<String>, Refusal> {
    let Some(data) = part.optional(field)? else {
        return Ok(None);
    };
    let packed: String = data.split_ascii_whitespace().collect();
    base64::engine::general_purpose::STANDARD
        .decode(packed)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .map(Some)
        .ok_or_else(|| {
            let remedy = "encode the PEM file with `base64 -w0`";
            part.refusal(field, "", "is not PEM text in base64", remedy)
        })
}

fn certificates(part: &Part<'_>, field: &str) -> Result<Option<String>, Refusal> {
    let Some(text) = pem(part, field)? else {
        return Ok(None);
    };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    if found.is_ok_and(|certificates| !certificates.is_empty()) {
        return Ok(Some(text));
    }
    let remedy = "put a PEM certificate there, in base64";
    Err(part.refusal(field, "", "has no certificate", remedy))
}

fn key(user: &Part<'_>) -> Result<Option<SecretString>, Refusal> {
    let Some(text) = pem(user, "client-key-data")? else {
        return Ok(None);
    };
    if PrivateKeyDer::from_pem_slice(text.as_bytes()).is_ok() {
        return Ok(Some(text.into()));
    }
    let remedy = "put the PEM key of client-certificate-data there, in base64";
    Err(user.refusal("client-key-data", "", "has no private key", remedy))
}
