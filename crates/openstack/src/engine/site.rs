//! Where an object is: its Secrets, and the way from there to its database server and to Keystone. Steps and probes read and reach the
//! same.

use std::collections::{BTreeMap, BTreeSet};

use api::run::Failure;
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{Api, Client, ResourceExt};
use runs::calls::{call, config, transient};

use crate::{
    action::Ask,
    definition::{ADMIN, Definition, IDENTITY},
    engine::{account::text, accounts, missing},
    identity::{LoggedIn, Login, PROJECT, Session},
    made, names, reach,
    service::{Identity, internal_url},
    sql,
};

/// The namespace of an object, in its cluster.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Site {
    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// What is another one in every cluster.
    pub(crate) async fn cluster(&self) -> Result<String, Failure> {
        let cluster = Api::<Namespace>::all(self.client.clone())
            .get_metadata("kube-system")
            .await
            .map_err(|error| call("read the namespace kube-system", &error))?;
        Ok(cluster.uid().unwrap_or_default())
    }

    /// What tells whether the Secrets that something gets have changed since.
    pub(crate) async fn state(&self, secrets: &BTreeSet<String>) -> Result<String, Failure> {
        let versions = made::versions(&self.secrets(), secrets).await;
        let versions = versions.map_err(|error| call("read the Secrets", &error))?;
        Ok(made::state(&versions))
    }

    /// A key of a Secret.
    pub(crate) async fn secret_value(&self, secret: &str, key: &str) -> Result<String, Failure> {
        self.read_secret(secret).await?.value(key)
    }

    /// A key of a Secret. None: it has no such key.
    pub(crate) async fn optional_value(
        &self,
        secret: &str,
        key: &str,
    ) -> Result<Option<String>, Failure> {
        self.read_secret(secret).await?.optional(key)
    }

    /// All keys of a Secret, as they are at one moment.
    pub(crate) async fn read_secret(&self, secret: &str) -> Result<Held, Failure> {
        let found = self
            .secrets()
            .get_opt(secret)
            .await
            .map_err(|error| call(format!("read Secret {secret}"), &error))?;
        let found = found.ok_or_else(|| missing(secret, "is not there"))?;
        Ok(Held {
            name: secret.to_owned(),
            data: found.data.unwrap_or_default(),
        })
    }

    /// The way to a database server, and who a Secret speaks of.
    pub(crate) async fn database(
        &self,
        (host, port): (&str, u16),
        secret: &str,
    ) -> Result<(reach::Way, sql::Login), Failure> {
        let held = self.read_secret(secret).await?;
        let (username, password) = (held.value("username")?, held.value("password")?);
        let way = reach::to(&self.client, &self.namespace, host, port)
            .await
            .map_err(|error| transient("Unreachable", controller::chain(&error)))?;
        let login = sql::Login {
            host: way.host.clone(),
            port: way.port,
            username,
            password,
        };
        Ok((way, login))
    }

    /// Who a Secret speaks of to Keystone, for the project under that key, or the administrator's.
    pub(crate) async fn login(
        &self,
        secret: &str,
        project: Option<&str>,
    ) -> Result<Login, Failure> {
        let held = self.read_secret(secret).await?;
        let project = project.map(|key| held.optional(key)).transpose()?;
        Ok(Login {
            username: held.value("username")?,
            password: held.value("password")?,
            project: project.map(|named| named.unwrap_or_else(|| ADMIN_PROJECT.to_owned())),
        })
    }

    /// Logs in at a Keystone by what stands in this Secret.
    pub(crate) async fn begin(
        &self,
        url: &str,
        login: &Login,
        secret: &str,
    ) -> Result<Session, Failure> {
        if let LoggedIn::As(session) = self.try_login(url, login).await? {
            return Ok(*session);
        }
        for password in self.others(secret, &login.password).await? {
            let other = Login {
                password,
                ..login.clone()
            };
            if let LoggedIn::As(session) = self.try_login(url, &other).await? {
                return Ok(*session);
            }
        }
        Err(config(
            "WrongPassword",
            format!(
                "Keystone knows no {} with the password in Secret {secret}, or not in its project",
                login.username
            ),
            "give the right one there, and retry the run",
        ))
    }

    /// What a Secret has by now beside a password that is refused: while one is rotated, the next one is known already.
    pub(crate) async fn others(&self, secret: &str, refused: &str) -> Result<Vec<String>, Failure> {
        let found = self.secrets().get_opt(secret).await;
        let found = found.map_err(|error| call(format!("read Secret {secret}"), &error))?;
        let found = found.ok_or_else(|| missing(secret, "is not there"))?;
        // Both of one moment: in between they may change places.
        let both = ["password", NEXT_PASSWORD].map(|key| text(&found, key));
        let others = both.into_iter();
        Ok(others
            .filter(|password| !password.is_empty() && password != refused)
            .collect())
    }

    /// Where the Keystone that an object is answers.
    pub(crate) fn keystone(&self, name: &str, definition: &Definition) -> String {
        let url = internal_url(name, &self.namespace, definition.port);
        format!("{url}{}", definition.path)
    }

    /// Has a token of the administrator that a Keystone was made with issued and validated, and says who that is.
    pub(crate) async fn issue_token(
        &self,
        name: &str,
        definition: &Definition,
    ) -> Result<String, Failure> {
        let secret = names::secret(name, ADMIN);
        let url = self.keystone(name, definition);
        let login = self.login(&secret, Some("project")).await?;
        let session = self.begin(&url, &login, &secret).await?;
        session
            .validate(&login.username)
            .await
            .map_err(|error| accounts::said(&error))?;
        Ok(login.username)
    }

    /// Logs in as a service's own user.
    pub(crate) async fn begin_as(
        &self,
        name: &str,
        identity: &Identity,
    ) -> Result<Session, Failure> {
        let secret = names::secret(name, IDENTITY);
        let mut login = self.login(&secret, None).await?;
        login.project = Some(PROJECT.to_owned());
        self.begin(&identity.url, &login, &secret).await
    }

    /// Asks a service what only one that works can answer.
    pub(crate) async fn ask(
        &self,
        (name, port): (&str, u16),
        session: &Session,
        ask: &Ask,
    ) -> Result<(), Failure> {
        session
            .ask(&self.client, &self.namespace, (name, port), &ask.path)
            .await
            .map_err(|error| accounts::said_by_service(&error))
    }

    pub(crate) async fn try_login(&self, url: &str, login: &Login) -> Result<LoggedIn, Failure> {
        Session::begin(&self.client, &self.namespace, url, login)
            .await
            .map_err(|error| accounts::said(&error))
    }
}

/// What a Secret holds.
pub(crate) struct Held {
    name: String,
    data: BTreeMap<String, ByteString>,
}

impl Held {
    /// A key of it.
    pub(crate) fn value(&self, key: &str) -> Result<String, Failure> {
        let value = self.optional(key)?;
        value.ok_or_else(|| missing(&self.name, &format!("has no key {key}")))
    }

    /// A key of it. None: it has no such key.
    pub(crate) fn optional(&self, key: &str) -> Result<Option<String>, Failure> {
        let value = self.data.get(key);
        let text = value.map(|value| String::from_utf8(value.0.clone()));
        text.transpose()
            .map_err(|_| missing(&self.name, &format!("holds no text under {key}")))
    }
}

/// The key of a Secret with the next password of an administrator, while that is rotated.
pub(crate) const NEXT_PASSWORD: &str = "password-next";
/// The project of an administrator whose Secret names none, as `keystone-manage bootstrap` makes it.
const ADMIN_PROJECT: &str = "admin";
