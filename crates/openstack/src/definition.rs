//! What a service is: data, one file a service. A further service needs a file here and no code, as long as its steps do what the
//! steps of others do.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

use crate::{action::Action, schema::Schema};

/// A service.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Definition {
    /// Its name, as objects have it.
    pub name: String,
    /// Its database, and the user of that.
    pub database: String,
    /// The number of the user that its containers run as.
    pub user: u32,
    /// What it is in images of Kolla.
    pub kolla: Kolla,
    /// The port of its API.
    pub port: u16,
    /// What answers there when it serves.
    pub path: String,
    /// Where its configuration files lie.
    pub config_directory: String,
    /// Its configuration files: what stands before anything that people say.
    pub config: BTreeMap<String, String>,
    /// Files that people may give beside those: of the service's own, nothing is merged into one.
    #[serde(default)]
    pub whole: BTreeMap<String, Whole>,
    /// What of oslo.config's schema these files are held against.
    pub schema: Schema,
    /// What it is in Keystone. None: it is Keystone.
    pub identity: Option<Identity>,
    /// Where it keeps data that is in no database, for which its pods have a volume. Then one pod serves.
    pub volume: Option<String>,
    /// What it says and has beside that where there is a memcached.
    #[serde(default)]
    pub memcached: Memcached,
    /// What it says and has where there is a RabbitMQ. None: it sends no messages.
    pub messaging: Option<Messaging>,
    /// What all its containers have in their environment, from its Secrets.
    #[serde(default)]
    pub environment: BTreeMap<String, Key>,
    /// Its Secrets, beside that of its database.
    #[serde(default)]
    pub secrets: Vec<Secret>,
    /// What of it is in a backup.
    pub backup: Backup,
    /// Its components by their names, each with pods of its own. That of [`API`] serves at the port.
    pub components: BTreeMap<String, Component>,
    /// Its steps, one after the other.
    pub steps: Vec<StepDefinition>,
    /// Steps that somebody asks for, each alone.
    #[serde(default)]
    pub by_hand: Vec<StepDefinition>,
    /// The steps that remove it, one after the other.
    pub teardown: Vec<Teardown>,
}

impl Definition {
    /// All Secrets that an installation makes, by the words behind the name of the object.
    pub fn secret_words(&self) -> impl Iterator<Item = &str> {
        let beside = self.secrets.iter().map(|secret| secret.name.as_str());
        std::iter::once(DATABASE).chain(beside)
    }
}

/// The Secret with the user of the database, by the word behind the name of the object.
pub const DATABASE: &str = "database";
/// The Secret with the user in Keystone.
pub const IDENTITY: &str = "identity";
/// The Secret with an administrator.
pub const ADMIN: &str = "admin";

/// What a file is that people give, and that Windlass has nothing of.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum Whole {
    /// Rules of oslo.policy, in YAML or JSON. Whoever speaks last gives all of it.
    Policy,
    /// A text that the service alone understands. Whoever speaks last gives all of it.
    Text,
    /// YAML, or where its name ends so JSON. What is said of it is merged, as kolla-ansible's `merge_yaml` does it.
    Merged,
}

/// What a service is in images of Kolla.
///
/// # Source
/// Users and their numbers are those of `kolla/common/users.py` of Kolla 23, which a test of this crate compares them with; names of
/// containers are those of kolla-ansible 22.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kolla {
    /// Its user and its group, by their name.
    pub user: String,
    /// The number of both.
    pub uid: u32,
    /// What its container is called.
    pub container: String,
}

/// What a service is in Keystone.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// Its type in the catalogue, as the
    /// [service types authority](https://service-types.openstack.org/service-types.json) has it.
    #[serde(rename = "type")]
    pub type_: String,
    /// What its user may in the project of the services.
    pub roles: Vec<String>,
    /// What stands behind its address in the catalogue.
    #[serde(default)]
    pub path: String,
}

/// What a service says where there is a memcached.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Memcached {
    /// What its configuration files say of it, right after what they say anyway.
    pub config: BTreeMap<String, String>,
    /// What all its containers have in their environment for it, from its Secrets.
    #[serde(default)]
    pub environment: BTreeMap<String, Key>,
}

/// What a service says where there is a RabbitMQ.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Messaging {
    /// What its configuration files say of it, after what they say of a memcached.
    pub config: BTreeMap<String, String>,
    /// The variables by which all its containers have the address, which is secret.
    pub variables: Vec<String>,
}

/// What of a service is in a backup.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Backup {
    /// Its databases.
    pub databases: Vec<String>,
    /// The Secrets without which what is in them cannot be used, by the words behind the name of the object.
    pub secrets: Vec<String>,
}

/// A component: pods of one kind.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Component {
    /// What they run.
    pub command: Vec<String>,
    /// How many seconds one that goes may take to end what it is at, such as an answer.
    pub grace: u32,
    /// How many there are where nobody says it. None at all: the service does without it.
    #[serde(default = "one")]
    pub replicas: u16,
    /// How many there may be. None: as many as people want.
    pub most: Option<u16>,
    /// The components that are at work before it starts, where they have pods.
    #[serde(default)]
    pub after: Vec<String>,
}

const fn one() -> u16 {
    1
}

/// The component that every service has: whose pods answer at its port, and whose files its Jobs have.
pub const API: &str = "api";

/// A key of a Secret of the service.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Key {
    /// The Secret, by the word behind the name of the object.
    pub secret: String,
    /// Its key.
    pub key: String,
}

/// A Secret that is made once.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Secret {
    /// The word behind the name of the object.
    pub name: String,
    /// What it holds.
    pub kind: SecretKind,
    /// Where containers find it. None: nowhere.
    pub directory: Option<String>,
    /// Whose password it is.
    pub username: Option<String>,
}

/// What a Secret holds.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum SecretKind {
    /// Keys of Fernet by their numbers: 0 is the next one, the highest the one in use.
    Keys,
    /// A user name and a password.
    Password,
}

/// A step.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepDefinition {
    /// Its id in plans.
    pub id: String,
    /// What it does, for people.
    pub title: String,
    /// What it does.
    pub does: Action,
}

/// A step that removes something of a service.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Teardown {
    /// Its id in plans.
    pub id: String,
    /// What it does, for people.
    pub title: String,
    /// What it does.
    pub does: Action,
    /// Whether what it removes cannot be made anew: then it stands only where people want that to go, too.
    #[serde(default)]
    pub takes_data: bool,
}

/// The service of that name. Each file is read once: a pass over an object asks for its service several times.
pub fn find(name: &str) -> Option<&'static Definition> {
    READ.get(name)
}

/// They are read by a test: one that cannot be read is in no release.
static READ: LazyLock<BTreeMap<&'static str, Definition>> = LazyLock::new(|| {
    let files = FILES.iter();
    let read = files.filter_map(|(name, text)| Some((*name, serde_saphyr::from_str(text).ok()?)));
    read.collect()
});

/// The file of the service of that name.
pub fn text(name: &str) -> Option<&'static str> {
    let (_, text) = FILES.iter().find(|(known, _)| *known == name)?;
    Some(text)
}

/// The names of all services.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// In the order in which they need each other.
const FILES: &[(&str, &str)] = &[
    ("keystone", include_str!("../services/keystone.yaml")),
    ("placement", include_str!("../services/placement.yaml")),
    ("glance", include_str!("../services/glance.yaml")),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        components::order,
        config::{Merged, Source},
    };

    #[test]
    fn what_rotations_go_by_is_in_the_files() {
        for name in names() {
            let definition = find(name).unwrap();
            for step in &definition.by_hand {
                let Action::RotateKeys(rotation) = &step.does else {
                    continue;
                };
                let secret = |known: &Secret| {
                    known.name == rotation.secret && known.kind == SecretKind::Keys
                };
                assert!(definition.secrets.iter().any(secret), "{rotation:?}");
                if !rotation.reseal.is_empty() {
                    assert!(rotation.keep.parse::<u32>().is_ok_and(|keep| keep > 2));
                    continue;
                }
                let text = definition.config[&rotation.file].clone();
                let name = rotation.file.clone();
                let file = Merged::of(&[Source::new(name, text)]).unwrap();
                for setting in rotation.lifetime.iter().chain([&rotation.keep]) {
                    let (section, key) = setting.split_once('.').unwrap();
                    let found = file.setting(Some(section), key).unwrap();
                    let value = found.values().last().unwrap();
                    assert!(value.parse::<u32>().is_ok(), "{setting} = {value}");
                }
            }
        }
    }

    #[test]
    fn the_guide_names_every_service() {
        let root = env!("CARGO_MANIFEST_DIR");
        let guide = std::fs::read_to_string(format!("{root}/../../docs/openstack.md")).unwrap();
        let told = format!(" services: {}. ", names().collect::<Vec<_>>().join(", "));
        assert!(
            guide.contains(&told),
            "docs/openstack.md does not say{told}"
        );
    }

    #[test]
    fn every_file_is_a_service_whose_secrets_are_its_own() {
        for (name, text) in FILES {
            let definition: Definition = serde_saphyr::from_str(text).unwrap();
            assert_eq!(definition.name, *name);
            let revisions = definition.schema.revisions.split_once('/');
            assert_eq!(revisions.map(|(package, _)| package), Some(*name));
            let api = &definition.components[API];
            assert_eq!((api.replicas, api.most), (1, None), "{name}");
            // Pods work on what is removed after them.
            let [first, data @ ..] = definition.teardown.as_slice() else {
                panic!("{name} is never removed");
            };
            assert_eq!(
                (&first.does, first.takes_data),
                (&Action::RemoveReleases, false)
            );
            assert!(data.iter().all(|step| step.takes_data), "{name}");
            let forgets = data.iter().any(|step| step.does == Action::ForgetIdentity);
            assert_eq!(forgets, definition.identity.is_some(), "{name}");
            let components = &definition.components;
            for component in components.values() {
                let mut after = component.after.iter();
                assert!(after.all(|other| components.contains_key(other)), "{name}");
            }
            let waits = components.iter().map(|(name, is)| {
                let after = is.after.iter().map(String::as_str);
                (name.as_str(), after.collect())
            });
            assert_eq!(order::started(&waits.collect()).map(drop), Ok(()), "{name}");
            for file in definition.whole.keys() {
                assert!(!definition.config.contains_key(file), "{name}: {file}");
            }
            let secrets: BTreeSet<_> = definition.secret_words().collect();
            let of_jobs = definition.steps.iter().filter_map(|step| match &step.does {
                Action::Job(job) => Some(job.environment.values()),
                _ => None,
            });
            let of_memcached = definition.memcached.environment.values();
            for file in definition.memcached.config.keys() {
                assert!(definition.config.contains_key(file), "{name}: {file}");
            }
            for file in definition.messaging.iter().flat_map(|of| of.config.keys()) {
                assert!(definition.config.contains_key(file), "{name}: {file}");
            }
            let of_all = definition.environment.values().chain(of_memcached);
            for key in of_all.chain(of_jobs.flatten()) {
                assert!(secrets.contains(key.secret.as_str()), "{name}: {key:?}");
            }
        }
    }
}
