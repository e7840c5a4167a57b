//! What the custom resources of the existing operator change in a provider's Deployments: `manager`, `deployment`,
//! `additionalDeployments`.
//!
//! The fields are theirs, by their names, so that a custom resource can be read into [`Customization`]. What they become is what
//! the existing operator makes of them, with these differences: an argument of `additionalArgs` that is there already is replaced
//! instead of failing; `gracefulShutDown` becomes the grace period of the pod instead of nothing; and what cannot have an effect
//! is told in a [`Notice`] instead of being swallowed.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::Object;

mod duration;
mod manager;

pub use duration::GoDuration;
pub use manager::{
    ControllerSettings, HealthSettings, LeaderElection, Manager, MetricsSettings, WebhookSettings,
};

/// What is changed in the Deployments of a provider.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Customization {
    /// Of the provider's own Deployment: the only one, or each whose name is `ca…-controller-manager`.
    #[serde(flatten)]
    pub own: DeploymentChanges,
    /// Of others, by their names.
    #[serde(default)]
    pub additional_deployments: BTreeMap<String, DeploymentChanges>,
}

/// What is changed in a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentChanges {
    /// The arguments of its manager.
    pub manager: Option<Manager>,
    /// The Deployment itself.
    pub deployment: Option<Deployment>,
}

/// What is changed in a Deployment itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// How many pods.
    pub replicas: Option<u32>,
    /// Labels of the nodes that its pods may be on.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The tolerations of its pods; an empty list removes those of the file.
    pub tolerations: Option<Vec<Value>>,
    /// The affinity of its pods.
    pub affinity: Option<Value>,
    /// Its containers.
    #[serde(default)]
    pub containers: Vec<Container>,
    /// The ServiceAccount of its pods.
    pub service_account_name: Option<String>,
    /// The Secrets that its images are pulled with.
    pub image_pull_secrets: Option<Vec<Value>>,
}

/// What is changed in a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Which container.
    pub name: String,
    /// Its image.
    pub image_url: Option<String>,
    /// Arguments by their names, dashes included.
    #[serde(default)]
    pub args: BTreeMap<String, String>,
    /// Variables of its environment.
    #[serde(default)]
    pub env: Vec<Value>,
    /// Its resources, as a whole.
    pub resources: Option<Value>,
    /// Its command, as a whole.
    pub command: Option<Vec<String>>,
}

/// A wish that cannot be fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CustomizeError {
    /// A container that is not there.
    #[error("deployment.containers names {container}, which Deployment {deployment} has not; it has {}", .known.join(", "))]
    NoContainer {
        /// The Deployment.
        deployment: String,
        /// The container.
        container: String,
        /// Those that are there.
        known: Vec<String>,
    },
    /// A Deployment without containers.
    #[error("manager is to be changed in Deployment {0}, which has no containers; remove manager")]
    NoManager(String),
}

/// A wish that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// No flag of a manager stands for a field.
    NoFlag {
        /// The field.
        field: &'static str,
    },
    /// No Deployment of a name.
    NoDeployment {
        /// The name.
        name: String,
    },
    /// The Deployment has no probe of a kind.
    NoProbe {
        /// The Deployment.
        deployment: String,
        /// The field.
        field: &'static str,
    },
}

impl Customization {
    /// Changes Deployments, and tells what had no effect.
    ///
    /// # Errors
    ///
    /// A wish that cannot be fulfilled; some Deployments may be changed then.
    pub fn apply(&self, objects: &mut [Object]) -> Result<Vec<Notice>, CustomizeError> {
        let mut notices = Vec::new();
        let is_alone = objects
            .iter()
            .filter(|object| is_deployment(object))
            .count()
            == 1;
        for object in objects.iter_mut().filter(|object| is_deployment(object)) {
            let name = object.name().to_owned();
            let changes = if is_alone || is_of_provider(&name) {
                &self.own
            } else if let Some(changes) = self.additional_deployments.get(&name) {
                changes
            } else {
                continue;
            };
            changes.apply(&name, object, &mut notices)?;
        }
        let has = |name: &str| {
            let mut deployments = objects.iter().filter(|object| is_deployment(object));
            deployments.any(|object| object.name() == name && !is_alone && !is_of_provider(name))
        };
        let absent = self.additional_deployments.keys().filter(|name| !has(name));
        notices.extend(absent.cloned().map(|name| Notice::NoDeployment { name }));
        notices.dedup();
        Ok(notices)
    }
}

impl DeploymentChanges {
    fn apply(
        &self,
        name: &str,
        object: &mut Object,
        notices: &mut Vec<Notice>,
    ) -> Result<(), CustomizeError> {
        let Some(spec) = child(object.value_mut(), "spec") else {
            return Ok(());
        };
        if let Some(deployment) = &self.deployment {
            deployment.apply(name, spec)?;
        }
        // After the Deployment, so that it wins over arguments of its container.
        if let Some(manager) = &self.manager {
            manager.apply(name, spec, notices)?;
        }
        Ok(())
    }
}

impl Deployment {
    fn apply(&self, name: &str, spec: &mut Map<String, Value>) -> Result<(), CustomizeError> {
        if let Some(replicas) = self.replicas {
            spec.insert("replicas".to_owned(), json!(replicas));
        }
        let Some(pod) = pod(spec) else { return Ok(()) };
        let account = self.service_account_name.as_deref();
        let account = account.filter(|account| !account.is_empty());
        let fields = [
            (
                "nodeSelector",
                self.node_selector.as_ref().map(|it| json!(it)),
            ),
            ("tolerations", self.tolerations.as_ref().map(|it| json!(it))),
            ("affinity", self.affinity.clone()),
            ("serviceAccountName", account.map(|it| json!(it))),
            (
                "imagePullSecrets",
                self.image_pull_secrets.as_ref().map(|it| json!(it)),
            ),
        ];
        for (field, value) in fields {
            if let Some(value) = value {
                pod.insert(field.to_owned(), value);
            }
        }
        let mut containers = containers(pod);
        for wanted in &self.containers {
            let found = containers
                .iter_mut()
                .find(|container| named(container, &wanted.name));
            match found {
                Some(container) => wanted.apply(container),
                None => {
                    return Err(CustomizeError::NoContainer {
                        deployment: name.to_owned(),
                        container: wanted.name.clone(),
                        known: containers
                            .iter()
                            .map(|container| text(container, "name"))
                            .collect(),
                    });
                }
            }
        }
        Ok(())
    }
}

impl Container {
    fn apply(&self, container: &mut Map<String, Value>) {
        for (name, value) in &self.args {
            set_argument(container, name, value);
        }
        for variable in &self.env {
            let name = variable.get("name").cloned();
            change_list(container, "env", |env| {
                env.retain(|entry| entry.get("name") != name.as_ref());
                env.push(variable.clone());
            });
        }
        let fields = [
            ("resources", self.resources.clone()),
            ("image", self.image_url.as_ref().map(|it| json!(it))),
            ("command", self.command.as_ref().map(|it| json!(it))),
        ];
        for (field, value) in fields {
            if let Some(value) = value {
                container.insert(field.to_owned(), value);
            }
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFlag { field } => write!(
                f,
                "{field} has no effect: managers of providers have no flag for it; remove it, or set a flag of the provider by \
                 manager.additionalArgs"
            ),
            Self::NoDeployment { name } => write!(
                f,
                "additionalDeployments names {name}, which is none of the provider's further Deployments; correct or remove it"
            ),
            Self::NoProbe { deployment, field } => write!(
                f,
                "{field} has no effect: the manager of Deployment {deployment} has no such probe over HTTP; remove it"
            ),
        }
    }
}

/// Replaces an argument or puts it behind the others.
fn set_argument(container: &mut Map<String, Value>, name: &str, value: &str) {
    let argument = json!(format!("{name}={value}"));
    let start = format!("{name}=");
    let is_it = |arg: &&mut Value| arg.as_str().is_some_and(|text| text.starts_with(&start));
    change_list(container, "args", |args| {
        match args.iter_mut().find(is_it) {
            Some(arg) => *arg = argument,
            None => args.push(argument),
        }
    });
}

/// Changes a list in a container, which is empty where it is missing.
fn change_list(
    container: &mut Map<String, Value>,
    field: &str,
    change: impl FnOnce(&mut Vec<Value>),
) {
    let list = container.get_mut(field).and_then(Value::as_array_mut);
    let mut list = list.map(std::mem::take).unwrap_or_default();
    change(&mut list);
    container.insert(field.to_owned(), Value::Array(list));
}

fn containers(pod: &mut Map<String, Value>) -> Vec<&mut Map<String, Value>> {
    let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
    let containers = containers.into_iter().flatten();
    containers.filter_map(Value::as_object_mut).collect()
}

fn pod(spec: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    spec.get_mut("template")?.get_mut("spec")?.as_object_mut()
}

fn child<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    value.get_mut(field)?.as_object_mut()
}

fn named(container: &Map<String, Value>, name: &str) -> bool {
    container.get("name").and_then(Value::as_str) == Some(name)
}

fn text(container: &Map<String, Value>, field: &str) -> String {
    let text = container.get(field).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn is_deployment(object: &Object) -> bool {
    object.group() == "apps" && object.kind() == "Deployment"
}

/// As the existing operator tells a provider's own Deployment among several.
fn is_of_provider(name: &str) -> bool {
    name.starts_with("ca") && name.ends_with("-controller-manager")
}
