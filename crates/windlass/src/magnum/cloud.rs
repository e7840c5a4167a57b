//! Which OpenStack is meant, and as whom: by the environment or clouds.yaml, as OpenStack's own client reads them.
//!
//! # Source
//! <https://docs.openstack.org/openstacksdk/latest/user/config/configuration.html>

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Value, json};

/// An OpenStack, and who asks it.
#[derive(Deserialize)]
pub(super) struct Cloud {
    /// The address of Keystone and what is said to it, by the words of clouds.yaml.
    auth: BTreeMap<String, String>,
    /// The region of endpoints.
    pub(super) region_name: Option<String>,
    /// A file with the authorities of its certificates.
    pub(super) cacert: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Clouds {
    clouds: BTreeMap<String, Cloud>,
}

/// What is said to Keystone, in the environment with OS_ before it in capitals.
const WORDS: [&str; 17] = [
    "auth_url",
    "token",
    "user_id",
    "username",
    "password",
    "user_domain_id",
    "user_domain_name",
    "project_id",
    "project_name",
    "project_domain_id",
    "project_domain_name",
    "domain_id",
    "domain_name",
    "application_credential_id",
    "application_credential_name",
    "application_credential_secret",
    "system_scope",
];

impl Cloud {
    /// The cloud of clouds.yaml that `OS_CLOUD` names, or else that of the other variables.
    pub(super) fn of(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let cloud = match variable("OS_CLOUD") {
            Some(name) => Self::of_file(&name, &variable)?,
            None => Self {
                auth: WORDS
                    .into_iter()
                    .filter_map(|word| {
                        let value = variable(&format!("OS_{}", word.to_ascii_uppercase()))?;
                        Some((word.to_owned(), value))
                    })
                    .collect(),
                region_name: variable("OS_REGION_NAME"),
                cacert: variable("OS_CACERT").map(PathBuf::from),
            },
        };
        if !cloud.auth.contains_key("auth_url") {
            bail!(
                "no OpenStack to talk to: set OS_CLOUD to a cloud of clouds.yaml, or OS_AUTH_URL and its like, as for the openstack command"
            );
        }
        Ok(cloud)
    }

    fn of_file(name: &str, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let file = match variable("OS_CLIENT_CONFIG_FILE") {
            Some(file) => PathBuf::from(file),
            None => {
                let home = variable("XDG_CONFIG_HOME").map(PathBuf::from);
                let home = home.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")));
                let home = home.map(|home| home.join("openstack/clouds.yaml"));
                let places = [
                    Some(PathBuf::from("clouds.yaml")),
                    home,
                    Some(PathBuf::from("/etc/openstack/clouds.yaml")),
                ];
                let mut places = places.into_iter().flatten();
                places
                    .find(|place| place.is_file())
                    .with_context(|| format!("there is no clouds.yaml with the cloud {name}"))?
            }
        };
        let text = fs::read_to_string(&file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        // What the parser says may quote the text, with its secrets.
        let clouds: Clouds = serde_saphyr::from_str(&text)
            .map_err(|_| anyhow::anyhow!("{} is no clouds.yaml", file.display()))?;
        let mut clouds = clouds.clouds;
        clouds
            .remove(name)
            .with_context(|| format!("{} has no cloud {name}", file.display()))
    }

    fn word(&self, word: &str) -> Option<&str> {
        self.auth.get(word).map(String::as_str)
    }

    /// The address of Keystone, without its version.
    pub(super) fn keystone(&self) -> &str {
        let url = self.word("auth_url").unwrap_or_default();
        let url = url.trim_end_matches('/');
        url.strip_suffix("/v3").unwrap_or(url)
    }

    /// What Keystone gives a token for.
    pub(super) fn request(&self) -> anyhow::Result<Value> {
        let secret = self.word("application_credential_secret");
        let identity = if let Some(secret) = secret {
            let mut credential =
                self.named("application_credential_id", "application_credential_name");
            credential["secret"] = json!(secret);
            if credential.get("id").is_none() {
                credential["user"] = self.user();
            }
            json!({"methods": ["application_credential"], "application_credential": credential})
        } else if let Some(password) = self.word("password") {
            let mut user = self.user();
            user["password"] = json!(password);
            json!({"methods": ["password"], "password": {"user": user}})
        } else if let Some(token) = self.word("token") {
            json!({"methods": ["token"], "token": {"id": token}})
        } else {
            bail!("no password, token or application credential is given for Keystone");
        };
        let mut request = json!({"auth": {"identity": identity}});
        if secret.is_none() {
            request["auth"]["scope"] = self.scope();
        }
        Ok(request)
    }

    fn user(&self) -> Value {
        let mut user = self.named("user_id", "username");
        if user.get("id").is_none() {
            user["domain"] = self.domain("user_domain_id", "user_domain_name");
        }
        user
    }

    fn scope(&self) -> Value {
        if self.word("system_scope").is_some() {
            return json!({"system": {"all": true}});
        }
        if self.word("project_id").is_none() && self.word("project_name").is_none() {
            return json!({"domain": self.named("domain_id", "domain_name")});
        }
        let mut project = self.named("project_id", "project_name");
        if project.get("id").is_none() {
            project["domain"] = self.domain("project_domain_id", "project_domain_name");
        }
        json!({"project": project})
    }

    /// The domain, which is the default one where nobody says it.
    fn domain(&self, id: &str, name: &str) -> Value {
        match self.named(id, name) {
            Value::Object(domain) if domain.is_empty() => json!({"id": "default"}),
            domain => domain,
        }
    }

    fn named(&self, id: &str, name: &str) -> Value {
        match (self.word(id), self.word(name)) {
            (Some(id), _) => json!({"id": id}),
            (None, Some(name)) => json!({"name": name}),
            (None, None) => json!({}),
        }
    }
}
