//! Steps on objects: configuration files and Secrets.

use std::collections::BTreeMap;

use api::run::Failure;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions},
};
use rand::{RngExt as _, distr::Alphanumeric};
use runs::calls::{call, config};

use crate::{
    audit,
    cloud::{RABBITMQ_PORT, database_server, rabbitmq_server},
    definition::{Definition, SecretKind},
    engine::{
        Done, Worker,
        account::{NEXT, NEXT_IDENTITY, Turn},
        releases::selector,
    },
    names::{self, CONFIG_PART, MANAGER},
    service::{Address, Inputs, Server},
    sql,
};

impl Worker {
    /// The name holds a digest of the text, so what is there is what it should be.
    pub(super) async fn apply_config(&self, inputs: &Inputs) -> Done {
        let mut is_new = false;
        for map in self.subject().config_maps(inputs) {
            is_new |= self.apply_files(&map).await?;
        }
        Ok((!is_new).then(|| "unchanged".to_owned()))
    }

    /// Stores files, and says whether they were not there.
    async fn apply_files(&self, map: &ConfigMap) -> Result<bool, Failure> {
        let api = self.config_maps();
        let name = map.name_any();
        self.about(&audit::object("ConfigMap", &name))?;
        match api.create(&parameters(), map).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = api.get(&name).await;
                let there = there.map_err(|error| call("read the ConfigMap", &error))?;
                if there.data == map.data {
                    return Ok(false);
                }
                let what = format!("ConfigMap {name} holds something else");
                Err(config("Taken", what, "delete it, and retry the run"))
            }
            Err(error) => Err(call("store the configuration files", &error)),
        }
    }

    /// Removes the files of before.
    pub(super) async fn prune(&self, inputs: &Inputs) -> Done {
        let labels = selector(&self.part(CONFIG_PART));
        let api = self.config_maps();
        let found = api
            .list_metadata(&ListParams::default().labels(&labels))
            .await
            .map_err(|error| call("list the ConfigMaps", &error))?;
        let old = found.items.iter().map(ResourceExt::name_any);
        let kept = inputs.configs();
        let is_kept = |name: &String| kept.iter().any(|(kept, _)| *kept == name);
        for name in old.filter(|name| !is_kept(name)) {
            self.about(&audit::removed(&audit::object("ConfigMap", &name)))?;
            gone(api.delete(&name, &DeleteParams::default()).await)
                .map_err(|error| call(format!("delete ConfigMap {name}"), &error))?;
        }
        Ok(None)
    }

    /// What is there stays as it is: a password that changes makes tokens invalid, and a key that goes makes what it sealed so.
    pub(super) async fn make_secrets(&self, inputs: &Inputs, definition: &Definition) -> Done {
        if let Some(address) = &inputs.messaging {
            // Pods without it would not start.
            let site = self.site();
            let value = site.secret_value(&address.secret, &address.key).await?;
            usable(address, &value)?;
        }
        let password = password();
        let server = &inputs.database;
        let user = &definition.database;
        let database = names::secret(self.name(), "database");
        let place = place(server, user);
        let connection = connection(user, &password, &place);
        let values = [
            ("username", user.clone()),
            ("password", password),
            ("connection", connection),
        ];
        if !self.make_secret(&database, values.into()).await? {
            self.move_connection(&database, user, &place).await?;
        }
        for secret in &definition.secrets {
            let values = match secret.kind {
                SecretKind::Keys => {
                    self.make_keys(&names::secret(self.name(), &secret.name))
                        .await?;
                    continue;
                }
                SecretKind::Password => BTreeMap::from([
                    ("username", secret.username.clone().unwrap_or_default()),
                    ("password", self::password()),
                ]),
            };
            self.make_secret(&names::secret(self.name(), &secret.name), values)
                .await?;
        }
        Ok(None)
    }

    /// The password stays, where the server is may change.
    async fn move_connection(
        &self,
        secret: &str,
        database: &str,
        place: &str,
    ) -> Result<(), Failure> {
        let (user, password) = self.account_in(secret, database).await?;
        let connection = connection(&user, &password, place);
        let stands = self.site().secret_value(secret, "connection").await.ok();
        if stands.as_ref() == Some(&connection) {
            return Ok(());
        }
        let found = self.secrets().get_metadata(secret).await;
        let found = found.map_err(|error| call(format!("read Secret {secret}"), &error))?;
        if !self.is_own(found.labels()) {
            let what = format!("Secret {secret} is there, and was not made for this object");
            let remedy = format!(
                "give it the key connection, {} with its password, and retry the run",
                self::connection(&user, "PASSWORD", place)
            );
            return Err(config("Taken", what, &remedy));
        }
        let patch = serde_json::json!({"stringData": {"connection": connection}});
        self.about(&audit::object("Secret", secret))?;
        self.secrets()
            .patch(
                secret,
                &kube::api::PatchParams::default(),
                &kube::api::Patch::Merge(&patch),
            )
            .await
            .map(drop)
            .map_err(|error| call(format!("change Secret {secret}"), &error))
    }

    /// The user of a database that a Secret names, and its password.
    pub(super) async fn account_in(
        &self,
        secret: &str,
        database: &str,
    ) -> Result<(String, String), Failure> {
        let held = self.site().read_secret(secret).await?;
        let turn = Turn::of_database(self.name(), database);
        let user = turn.in_turn(held.value("username")?, secret)?;
        let password = held.value("password")?;
        let is_plain =
            |character: char| character.is_ascii_alphanumeric() || "-_.~".contains(character);
        if password.is_empty() || !password.chars().all(is_plain) {
            return Err(config(
                "Unusable",
                format!("the password in Secret {secret} cannot stand in a URL"),
                "give one of letters, digits and - _ . ~ there, and retry the run",
            ));
        }
        Ok((user, password))
    }

    pub(super) async fn make_server_secret(&self) -> Done {
        let password = password();
        let values = [
            ("username", sql::ROOT.to_owned()),
            (INIT, init(&password)),
            ("password", password),
        ];
        let secret = names::secret(&database_server(self.name()), "admin");
        self.make_secret(&secret, values.into()).await?;
        Ok(None)
    }

    pub(super) async fn make_messaging_secret(&self) -> Done {
        let server = rabbitmq_server(self.name());
        let password = password();
        let values = [
            ("username", RABBITMQ_USER.to_owned()),
            (RABBITMQ_CONF, rabbitmq_conf()),
            (DEFINITIONS, rabbitmq_definitions(&password)),
            ("transport_url", transport_url(&server, &password)),
            ("password", password),
        ];
        let secret = names::secret(&server, "admin");
        if !self.make_secret(&secret, values.into()).await? {
            self.complete_messaging_secret(&secret).await?;
        }
        Ok(None)
    }

    /// Gives a Secret that is there what its RabbitMQ mounts. Its password stays.
    async fn complete_messaging_secret(&self, name: &str) -> Result<(), Failure> {
        let found = self.secrets().get(name).await;
        let found = found.map_err(|error| call(format!("read Secret {name}"), &error))?;
        if !self.is_own(found.labels()) {
            return Ok(());
        }
        let lacks = lacking(&found);
        if lacks.is_empty() {
            return Ok(());
        }
        // As it was read: the password may change meanwhile.
        let read = serde_json::json!({"resourceVersion": found.resource_version()});
        let patch = serde_json::json!({"metadata": read, "stringData": lacks});
        self.about(&audit::object("Secret", name))?;
        self.secrets()
            .patch(
                name,
                &kube::api::PatchParams::default(),
                &kube::api::Patch::Merge(&patch),
            )
            .await
            .map(drop)
            .map_err(|error| call(format!("change Secret {name}"), &error))
    }

    pub(super) async fn remove_secrets(&self, definition: &Definition) -> Done {
        for word in definition.secret_words().chain([NEXT, NEXT_IDENTITY]) {
            self.remove_secret(&names::secret(self.name(), word))
                .await?;
        }
        Ok(None)
    }

    /// Only what is known to be made for the object, and only as it was seen.
    pub(super) async fn remove_secret(&self, name: &str) -> Result<(), Failure> {
        let failed = |error: kube::Error| call(format!("delete Secret {name}"), &error);
        let found = self.secrets().get_metadata_opt(name).await;
        let found = found.map_err(failed)?;
        let Some(found) = found.filter(|found| self.is_own(found.labels())) else {
            return Ok(());
        };
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: found.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        self.about(&audit::removed(&audit::object("Secret", name)))?;
        gone(self.secrets().delete(name, &parameters).await).map_err(failed)
    }

    pub(super) fn is_own(&self, labels: &BTreeMap<String, String>) -> bool {
        names::is_own(labels, self.name(), self.drill_of.as_deref())
    }

    pub(super) async fn make_secret(
        &self,
        name: &str,
        values: BTreeMap<&str, String>,
    ) -> Result<bool, Failure> {
        self.make_told_secret(name, values, BTreeMap::new()).await
    }

    /// Whether it was made: one that is there stays. Secrets have no owner: they are needed for what is retained.
    pub(super) async fn make_told_secret(
        &self,
        name: &str,
        values: BTreeMap<&str, String>,
        annotations: BTreeMap<String, String>,
    ) -> Result<bool, Failure> {
        let data = values
            .into_iter()
            .map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())));
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(self.labels()),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            data: Some(data.collect()),
            ..Secret::default()
        };
        self.about(&audit::object("Secret", name))?;
        match self.secrets().create(&parameters(), &secret).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(call(format!("make Secret {name}"), &error)),
        }
    }

    /// On everything that is made for the object.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        names::labels(self.name(), self.drill_of.as_deref())
    }

    pub(super) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.work.client.clone(), &self.namespace())
    }
}

fn rabbitmq_conf() -> String {
    format!(
        "listeners.tcp.default = {RABBITMQ_PORT}\nload_definitions = /run/windlass/{DEFINITIONS}\n"
    )
}

/// What a RabbitMQ has at each start, also on data of before: the user, who may do anything in the one virtual host.
fn rabbitmq_definitions(password: &str) -> String {
    serde_json::json!({
        "users": [{"name": RABBITMQ_USER, "password": password, "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": RABBITMQ_USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
    })
    .to_string()
}

/// What the Secret of a RabbitMQ lacks that a Windlass of before made: its pod mounts these keys. What people wrote there stays.
fn lacking(secret: &Secret) -> BTreeMap<&'static str, String> {
    let of = |key: &str| {
        let value = secret.data.as_ref()?.get(key)?;
        String::from_utf8(value.0.clone()).ok()
    };
    let mut lacks = BTreeMap::new();
    let Some(password) = of("password") else {
        return lacks;
    };
    let first = format!(
        "listeners.tcp.default = {RABBITMQ_PORT}\ndefault_user = {RABBITMQ_USER}\ndefault_pass = {password}\n"
    );
    if of(RABBITMQ_CONF).is_none_or(|conf| conf == first) {
        lacks.insert(RABBITMQ_CONF, rabbitmq_conf());
    }
    if of(DEFINITIONS).is_none() {
        lacks.insert(DEFINITIONS, rabbitmq_definitions(&password));
    }
    lacks
}

/// As oslo.messaging takes it. The virtual host is called `/`.
fn transport_url(server: &str, password: &str) -> String {
    format!("rabbit://{RABBITMQ_USER}:{password}@{server}:{RABBITMQ_PORT}//")
}

/// The user of a RabbitMQ that is made.
const RABBITMQ_USER: &str = "openstack";
/// The key of its Secret with what it begins with.
const RABBITMQ_CONF: &str = "rabbitmq.conf";
/// The key with its user.
const DEFINITIONS: &str = "definitions.json";

/// Refuses what oslo.messaging cannot use, without telling it.
fn usable(address: &Address, value: &str) -> Result<(), Failure> {
    let Address { secret, key } = address;
    let is_one = value.strip_prefix("rabbit://").is_some_and(|rest| {
        // As urllib reads it: a '#' in a password ends the address, and the number of a port is looked for in what stands before it.
        let servers = rest.split(['/', '?', '#']).next().unwrap_or_default();
        servers.split(',').all(is_server) && rest.chars().all(|one| one.is_ascii_graphic())
    });
    if is_one {
        return Ok(());
    }
    Err(config(
        "Unusable",
        format!(
            "Secret {secret} holds under {key} what is no address of a RabbitMQ for oslo.messaging"
        ),
        "write it as rabbit://USER:PASSWORD@HOST:5672/VHOST, other letters of the password as %XX and no line after it, and retry the run",
    ))
}

/// Whether it is USER:PASSWORD@HOST:PORT; all but the host may be left out.
fn is_server(server: &str) -> bool {
    let (user, host) = server.rsplit_once('@').unwrap_or(("", server));
    // An address of IPv6 stands in brackets.
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (host, "5672"),
    };
    let is_name = !name.is_empty() && (name.starts_with('[') || !name.contains(':'));
    is_name && port.parse::<u16>().is_ok() && !user.contains('@')
}

/// Where a database is, as [`connection`] takes it.
pub(super) fn place(server: &Server, database: &str) -> String {
    // In a URL an address of IPv6 stands in brackets.
    let host = if server.host.contains(':') {
        format!("[{}]", server.host)
    } else {
        server.host.clone()
    };
    format!("{host}:{}/{database}", server.port)
}

/// How a service reaches a database at that place, HOST:PORT/DATABASE.
pub(super) fn connection(user: &str, password: &str, place: &str) -> String {
    format!("mysql+pymysql://{user}:{password}@{place}")
}

/// What is gone already is as it should be.
pub(super) fn gone<T>(deleted: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop),
    }
}

fn parameters() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// The key of the Secret of a managed server with what that does when it starts.
pub(super) const INIT: &str = "init.sql";

/// What stands there, a statement a line.
pub(super) fn init(password: &str) -> String {
    let statements = sql::init(password).into_iter();
    statements.map(|statement| statement + ";\n").collect()
}

/// Letters and digits: it stands in URLs and in statements.
pub(super) fn password() -> String {
    let random = rand::rng().sample_iter(Alphanumeric).take(32);
    random.map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_used_is_refused_and_not_told() {
        let address = Address {
            secret: "rabbitmq".to_owned(),
            key: "url".to_owned(),
        };
        for value in [
            &transport_url("one-rabbitmq", &password()),
            "rabbit://u:p@host:5672/",
            "rabbit://u:p@a:5672,u:p@b:5672/vhost",
            "rabbit://host/?ssl=1",
            "rabbit://u:p%23@[::1]:5672/,",
            "rabbit://[::1]",
        ] {
            assert!(usable(&address, value).is_ok(), "{value}");
        }
        for value in [
            "amqp://u:hunter22@host/",
            "rabbit://u:hunter22@/",
            "rabbit://u:hunter22@:5672/",
            "rabbit://u:hunter 22@host/",
            "rabbit://u:hunter22@host/\n",
            "rabbit://u:hunter22#1@host:5672/",
            "rabbit://u:hunter22/1@host:5672/",
            "rabbit://u:hunter22@host:port/",
            "rabbit://u:hunter22@host,:5672/",
            "",
        ] {
            let failure = usable(&address, value).unwrap_err();
            let told = format!("{failure:?}");
            assert!(told.contains("Secret rabbitmq holds under url"), "{told}");
            assert!(!told.contains("hunter"), "{told}");
        }
    }
}
