//! What the steps of clouds and services do.

use std::collections::BTreeMap;

use api::{
    Duration,
    openstack::ServiceHookImage,
    run::{Action as StepAction, EngineAction, Interrupt, Retry, Step},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{definition::Key, names::ENGINE, seed::Sort};

/// What a step does. Each can be repeated: it works from the plan and from what it finds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Action {
    /// Asks the database server who it is.
    CheckDatabase,
    /// Refuses a database that is there and not known to be the service's.
    CheckOwner,
    /// Stores the configuration files as a ConfigMap.
    ApplyConfig,
    /// Has the image look whether it knows all that they say.
    CheckConfig,
    /// Makes the Secrets that are not there yet.
    MakeSecrets,
    /// Makes the database and its user, and gives it what it needs and no more.
    CreateDatabase,
    /// Runs a command once, in a Job of its own release.
    Job(Job),
    /// The same for a hook.
    Hook(HookJob),
    /// Makes the service's user in Keystone, and its place in the catalogue, and mends them.
    SeedIdentity,
    /// Asks the service for this with an administrator's token.
    Ask(Ask),
    /// Removes the service's user from Keystone, and its place in the catalogue.
    ForgetIdentity,
    /// Installs the pods that serve.
    Deploy,
    /// Waits until they serve, all of them in the newest form.
    AwaitApi,
    /// Has the image itself tell whether it knows what the files of a component say.
    CheckComponent(OfComponent),
    /// Installs the pods of a component.
    DeployComponent(OfComponent),
    /// Waits until they are at work, all of them in the newest form.
    AwaitComponent(OfComponent),
    /// Has a token issued and validated.
    IssueToken,
    /// Gives it another user of its database, and drops the one before once nobody is at work as that.
    RotateAccount,
    /// Gives it another user in Keystone, and removes the one before once no pod is at work as that.
    RotateIdentity,
    /// Gives the administrator of Keystone another password.
    RotateAdministrator,
    /// Lets the next key seal, and the oldest go.
    RotateKeys(Rotation),
    /// Removes ConfigMaps of before.
    PruneConfig,
    /// Removes the service's releases.
    RemoveReleases,
    /// Removes the database and its user.
    DropDatabase,
    /// Removes the Secrets.
    RemoveSecrets,
    /// Makes the Secret with the administrator of the database server.
    MakeServerSecret,
    /// Installs the database server.
    DeployServer,
    /// Waits until it serves.
    AwaitServer,
    /// Gives the administrator of the database server another password.
    RotateServerAdministrator,
    /// Removes the database server.
    RemoveServer,
    /// Installs the memcached.
    DeployMemcached,
    /// Waits until it serves.
    AwaitMemcached,
    /// Removes it.
    RemoveMemcached,
    /// Makes the Secret with the user of the RabbitMQ and its address.
    MakeMessagingSecret,
    /// Installs the RabbitMQ.
    DeployMessaging,
    /// Waits until it serves.
    AwaitMessaging,
    /// Removes it.
    RemoveMessaging,
    /// Stores a service of a cloud as an object.
    Declare(Named),
    /// Waits until it is Ready.
    AwaitService(Named),
    /// Waits until it is Ready, and fails where it does not get so by itself: what comes after it is not to be changed then.
    AwaitUpdated(Named),
    /// Deletes the objects of all services, and waits until they are gone.
    RemoveServices,
    /// Looks whether the store of backups can be used.
    CheckStore,
    /// Saves the databases of all services and their keys, and reads them back.
    SaveBackup,
    /// Removes backups that are kept no longer, and notes what lies in the store.
    KeepBackups,
    /// Brings a backup, and refuses one that is not whole or does not fit the cloud.
    CheckBackup(Brought),
    /// Stops the pods of all services, and waits until they are gone.
    StopServices,
    /// Brings the databases of a backup back, compares them with what it tells, and brings its Secrets back.
    LoadBackup(Brought),
    /// Starts the pods of all services, and waits until they serve.
    StartServices,
    /// Has Keystone know the services as those of this cloud, also where a backup of another cluster tells of them as of that one's.
    SeedServices(Brought),
    /// Has a token issued and validated by the cloud's own Keystone.
    LogIn,
    /// Brings the databases of a backup that fits back beside those of the cloud, and compares them with what it tells.
    DrillLoad(Brought),
    /// Has a Keystone of its own know its administrator from such a database.
    DrillLogin(Brought),
    /// Removes what a drill made, and notes what came of it.
    DrillClear(Brought),
    /// Waits until Keystone knows the administrator of a seed.
    AwaitKeystone,
    /// Makes what a seed names of a sort, and mends it.
    Seed(OfSort),
    /// Removes what a seed made and no longer names.
    RemoveLeft,
    /// Removes what is a seed's.
    RemoveSeed,
}

/// A command that runs once.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Job {
    /// The command.
    pub command: Vec<String>,
    /// What it has in its environment beside what all containers of the service have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, Key>,
}

/// A Job of people's own at a step of a service.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookJob {
    /// The name of the hook.
    pub name: String,
    /// The step that it stands at.
    pub step: String,
    /// Whether it stands in the place of that step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_instead: bool,
    /// What runs.
    pub image: ServiceHookImage,
    /// How long it may take with all its attempts.
    pub timeout: Duration,
}

/// Keys that are rotated, and the settings that say when they may be, each as `SECTION.KEY`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rotation {
    /// The Secret, by the word behind the name of the object.
    pub secret: String,
    /// The file with these settings.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// How many keys there may be: a number, or the setting that is one.
    pub keep: String,
    /// How long what a key sealed is valid: the sum of these, in seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lifetime: Vec<String>,
    /// What seals all that there is with the key in use, before another one is. Nothing: it expires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reseal: Vec<String>,
}

/// A question that only a service that works can answer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ask {
    /// What is got.
    pub path: String,
}

/// A backup that is brought.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Brought {
    /// Its name.
    pub name: String,
    /// The unique id of the cluster that it is of, where that is meant to be another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// A service of a cloud.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Named {
    /// Its name.
    pub service: String,
}

/// A component of a service, other than its API.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfComponent {
    /// Its name.
    pub component: String,
}

/// A sort of things that a seed names.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfSort {
    /// Which.
    pub sort: Sort,
}

impl HookJob {
    /// What it runs, for people.
    pub fn told(&self) -> String {
        let image = &self.image;
        let words = [&image.command, &image.args]
            .into_iter()
            .flatten()
            .flatten();
        let words: Vec<_> = words.map(String::as_str).collect();
        let words = match words.as_slice() {
            [] => "what it is made for".to_owned(),
            words => words.join(" "),
        };
        match &image.name {
            None => format!("runs {words}"),
            Some(name) if name.contains('@') => format!("runs {words} in image {name}"),
            Some(name) => format!(
                "runs {words} in image {name} (a tag, which may come to mean another image: write its digest)"
            ),
        }
    }
}

impl Action {
    /// As a step of a plan, after this one.
    ///
    /// # Errors
    ///
    /// None, as long as every field of an action is text.
    pub fn step(
        &self,
        id: &str,
        title: &str,
        after: Option<&str>,
    ) -> Result<Step, serde_json::Error> {
        let (timeout, weight, retries) = self.bounds();
        let (action, parameters) = match serde_json::to_value(self)? {
            Value::Object(fields) => match fields.into_iter().next() {
                Some((name, Value::Object(parameters))) => (name, parameters),
                _ => (String::new(), Map::new()),
            },
            Value::String(name) => (name, Map::new()),
            _ => (String::new(), Map::new()),
        };
        Ok(Step {
            id: id.to_owned(),
            title: title.to_owned(),
            depends_on: after.map(str::to_owned).into_iter().collect(),
            action: StepAction::Engine(EngineAction {
                name: ENGINE.to_owned(),
                action,
                parameters,
            }),
            groups: Vec::new(),
            // A service may wait for a person, and its run has bounds of its own.
            timeout: (!matches!(self, Self::AwaitService(_) | Self::AwaitUpdated(_)))
                .then(|| Duration::from_seconds(timeout)),
            retry: Some(Retry {
                limit: retries,
                back_off: Some(Duration::from_seconds(2)),
            }),
            gate: None,
            on_failure: None,
            interrupt: Interrupt::AtTask,
            batch: None,
            weight: Some(weight),
        })
    }

    /// The action of a step. None: it is none of this engine.
    pub fn of(step: &Step) -> Option<Self> {
        let StepAction::Engine(action) = &step.action else {
            return None;
        };
        if action.name != ENGINE {
            return None;
        }
        let name = Value::String(action.action.clone());
        serde_json::from_value(name).ok().or_else(|| {
            let mut whole = Map::new();
            whole.insert(
                action.action.clone(),
                Value::Object(action.parameters.clone()),
            );
            serde_json::from_value(Value::Object(whole)).ok()
        })
    }

    /// Whether people may have it done in another way: what a Job does, and what only looks.
    pub(crate) const fn is_replaceable(&self) -> bool {
        matches!(self, Self::Job(_) | Self::IssueToken | Self::Ask(_))
    }

    /// Why it is done to what is Ready as its spec says alone, after its id. None: it is done to anything.
    pub const fn needs_rest(&self) -> Option<&'static str> {
        match self {
            Self::RotateAccount | Self::RotateIdentity => {
                Some("replaces its pods by what that says")
            }
            Self::RotateAdministrator => Some("sets what a run that is at work may set back"),
            _ => None,
        }
    }

    /// Whether it is a step of a cloud. If not, it is one of a service or of a seed.
    pub(crate) const fn is_of_cloud(&self) -> bool {
        match self {
            Self::MakeServerSecret
            | Self::DeployServer
            | Self::AwaitServer
            | Self::RotateServerAdministrator
            | Self::RemoveServer
            | Self::DeployMemcached
            | Self::AwaitMemcached
            | Self::RemoveMemcached
            | Self::MakeMessagingSecret
            | Self::DeployMessaging
            | Self::AwaitMessaging
            | Self::RemoveMessaging
            | Self::Declare(_)
            | Self::AwaitService(_)
            | Self::AwaitUpdated(_)
            | Self::RemoveServices
            | Self::CheckStore
            | Self::SaveBackup
            | Self::KeepBackups
            | Self::CheckBackup(_)
            | Self::StopServices
            | Self::LoadBackup(_)
            | Self::StartServices
            | Self::SeedServices(_)
            | Self::LogIn
            | Self::DrillLoad(_)
            | Self::DrillLogin(_)
            | Self::DrillClear(_) => true,
            Self::CheckDatabase
            | Self::CheckOwner
            | Self::ApplyConfig
            | Self::CheckConfig
            | Self::MakeSecrets
            | Self::CreateDatabase
            | Self::Job(_)
            | Self::Hook(_)
            | Self::SeedIdentity
            | Self::Ask(_)
            | Self::ForgetIdentity
            | Self::Deploy
            | Self::AwaitApi
            | Self::CheckComponent(_)
            | Self::DeployComponent(_)
            | Self::AwaitComponent(_)
            | Self::IssueToken
            | Self::RotateKeys(_)
            | Self::RotateAccount
            | Self::RotateIdentity
            | Self::RotateAdministrator
            | Self::PruneConfig
            | Self::RemoveReleases
            | Self::DropDatabase
            | Self::RemoveSecrets
            | Self::AwaitKeystone
            | Self::Seed(_)
            | Self::RemoveLeft
            | Self::RemoveSeed => false,
        }
    }

    /// How long it may take in seconds, its weight, and how many times more it is tried.
    const fn bounds(&self) -> (u64, u32, u8) {
        match self {
            // Three attempts are the Job's own.
            Self::Job(_) => (1800, 30, 3),
            // One of an earlier run ends before, and its pod has to come.
            Self::Hook(hook) => (hook.timeout.seconds() + 600, 30, 3),
            // Its Job has three attempts of its own.
            Self::RotateKeys(rotation) if !rotation.reseal.is_empty() => (1800, 30, 3),
            Self::AwaitApi
            | Self::AwaitComponent(_)
            | Self::AwaitServer
            | Self::AwaitMemcached
            | Self::AwaitMessaging => (900, 30, 3),
            Self::CheckConfig | Self::CheckComponent(_) => (900, 10, 3),
            Self::AwaitService(_) | Self::AwaitUpdated(_) => (7200, 60, 3),
            // It waits for pods, and for whoever is at work still.
            Self::RotateAccount | Self::RotateIdentity => (3600, 30, 3),
            Self::SaveBackup | Self::LoadBackup(_) | Self::DrillLoad(_) => (7200, 30, 1),
            Self::CheckBackup(_) | Self::KeepBackups => (3600, 10, 3),
            // The first waits until a server that starts anew has the next password.
            Self::RotateServerAdministrator | Self::StopServices | Self::StartServices => {
                (1800, 10, 3)
            }
            // It brings the backup, too, and where a person retries it, loads it.
            Self::DrillLogin(_) => (7200, 10, 0),
            Self::DrillClear(_) => (300, 3, 5),
            Self::RemoveServices => (3600, 20, 3),
            Self::Deploy
            | Self::DeployComponent(_)
            | Self::DeployServer
            | Self::RemoveReleases
            | Self::RemoveServer
            | Self::DeployMemcached
            | Self::RemoveMemcached
            | Self::DeployMessaging
            | Self::RemoveMessaging
            | Self::SeedServices(_) => (300, 5, 5),
            Self::IssueToken | Self::SeedIdentity | Self::Ask(_) => (120, 3, 8),
            // Its cloud may be made meanwhile.
            Self::AwaitKeystone => (7200, 10, 3),
            // Some hundreds of things, and a login for each user.
            Self::Seed(_) | Self::RemoveLeft | Self::RemoveSeed => (900, 5, 8),
            Self::CheckDatabase
            | Self::CheckOwner
            | Self::ApplyConfig
            | Self::MakeSecrets
            | Self::CreateDatabase
            | Self::RotateKeys(_)
            | Self::RotateAdministrator
            | Self::PruneConfig
            | Self::DropDatabase
            | Self::RemoveSecrets
            | Self::ForgetIdentity
            | Self::MakeServerSecret
            | Self::MakeMessagingSecret
            | Self::CheckStore
            | Self::LogIn
            | Self::Declare(_) => (120, 1, 8),
        }
    }
}

/// Steps one after the other.
///
/// # Errors
///
/// As of [`Action::step`].
pub fn in_order<'a>(
    actions: impl IntoIterator<Item = (&'a str, &'a str, Action)>,
) -> Result<Vec<Step>, serde_json::Error> {
    let mut steps: Vec<Step> = Vec::new();
    for (id, title, action) in actions {
        let before = steps.last().map(|step| step.id.clone());
        steps.push(action.step(id, title, before.as_deref())?);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_brings_a_backup_has_the_time_to_bring_it() {
        let brought = Brought::default;
        let (time, ..) = Action::LoadBackup(brought()).bounds();
        for action in [
            Action::DrillLoad(brought()),
            Action::DrillLogin(brought()),
            Action::SaveBackup,
        ] {
            assert_eq!(action.bounds().0, time, "{action:?}");
        }
    }

    #[test]
    fn actions_are_found_again_in_steps() {
        let job = Job {
            command: vec!["a".to_owned(), "b c".to_owned()],
            ..Job::default()
        };
        let named = Named {
            service: "keystone".to_owned(),
        };
        for action in [
            Action::CheckDatabase,
            Action::Job(job),
            Action::Declare(named),
        ] {
            let step = action.step("a/b", "A", None).unwrap();
            assert_eq!(Action::of(&step), Some(action));
        }
    }
}
