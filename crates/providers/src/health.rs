//! How what belongs to a provider stands, in the API that it is installed in: every workload, every definition and, where nothing is at
//! work, every webhook.

use api::provider::label;
use controller::Rollout;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;

use crate::{outline::Outline, webhooks::Verdict};

/// How it stands.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Health {
    /// How many workloads there are.
    pub workloads: usize,
    /// How many definitions there are.
    pub definitions: usize,
    /// What of these is not as it should be, for people, in an order that stays.
    pub waits: Vec<String>,
    /// How its webhooks are, where they were asked.
    pub webhooks: Verdict,
}

impl Health {
    /// Whether everything is as it should be.
    pub fn is_well(&self) -> bool {
        self.stands() && self.webhooks.silent.is_empty()
    }

    /// Whether workloads and definitions are.
    pub fn stands(&self) -> bool {
        self.waits.is_empty() && self.workloads + self.definitions > 0
    }

    /// For people.
    pub fn message(&self) -> String {
        if self.workloads + self.definitions == 0 {
            return "nothing that belongs to it is there".to_owned();
        }
        let Verdict {
            answering,
            silent,
            unknown,
            again: _,
        } = &self.webhooks;
        if self.is_well() {
            let mut text = format!(
                "{} workloads are available, {} definitions are served",
                self.workloads, self.definitions
            );
            if *answering > 0 {
                text += &format!(", {answering} webhooks answer");
            }
            if let Some(unknown) = unknown {
                text += &format!("; {unknown}");
            }
            return text;
        }
        let waits = self.waits.iter().chain(silent);
        waits.map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

/// What belongs to a provider, as it is there.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Its Deployments.
    pub deployments: Vec<Deployment>,
    /// Its StatefulSets.
    pub sets: Vec<StatefulSet>,
    /// Its DaemonSets.
    pub daemons: Vec<DaemonSet>,
    /// Its definitions.
    pub definitions: Vec<Outline>,
}

/// Looks at workloads and definitions, by the label that everything of the provider has.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn look(client: &Client, manifest_label: &str) -> Result<Health, kube::Error> {
    Ok(find(client, manifest_label).await?.health())
}

/// Reads them.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn find(client: &Client, manifest_label: &str) -> Result<Found, kube::Error> {
    let parameters = ListParams::default().labels(&format!("{}={manifest_label}", label::PROVIDER));
    Ok(Found {
        deployments: list(client, &parameters).await?,
        sets: list(client, &parameters).await?,
        daemons: list(client, &parameters).await?,
        definitions: list(client, &parameters).await?,
    })
}

impl Found {
    /// How it stands, but for webhooks.
    pub fn health(&self) -> Health {
        let Self {
            deployments,
            sets,
            daemons,
            definitions,
        } = self;
        let mut waits: Vec<_> = deployments.iter().filter_map(deployment).collect();
        waits.extend(sets.iter().filter_map(stateful_set));
        waits.extend(daemons.iter().filter_map(daemon_set));
        waits.extend(definitions.iter().filter_map(definition));
        waits.sort();
        Health {
            workloads: deployments.len() + sets.len() + daemons.len(),
            definitions: definitions.len(),
            waits,
            webhooks: Verdict::default(),
        }
    }

    /// Whether a Deployment says that it has waited longer for its pods than it was to. It goes on waiting all the same.
    pub fn is_overdue(&self) -> bool {
        self.deployments.iter().any(is_overdue)
    }

    /// Of each what makes its webhooks others: their pods, and who calls them.
    pub fn marks(&self) -> Vec<String> {
        let mark = |name: String, generation: Option<i64>, ready: Option<i32>| {
            let (generation, ready) = (generation.unwrap_or_default(), ready.unwrap_or_default());
            format!("{name} {generation} {ready}")
        };
        let Self {
            deployments,
            sets,
            daemons,
            definitions,
        } = self;
        let deployments = deployments.iter().map(|one| {
            let ready = one.status.as_ref().and_then(|status| status.ready_replicas);
            mark(one.name_any(), one.metadata.generation, ready)
        });
        let sets = sets.iter().map(|one| {
            let ready = one.status.as_ref().and_then(|status| status.ready_replicas);
            mark(one.name_any(), one.metadata.generation, ready)
        });
        let daemons = daemons.iter().map(|one| {
            let ready = one.status.as_ref().map(|status| status.number_ready);
            mark(one.name_any(), one.metadata.generation, ready)
        });
        let definitions = definitions
            .iter()
            .map(|one| mark(one.name_any(), one.metadata.generation, None));
        let workloads = deployments.chain(sets).chain(daemons);
        workloads.chain(definitions).collect()
    }
}

async fn list<K>(client: &Client, parameters: &ListParams) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    Ok(Api::<K>::all(client.clone()).list(parameters).await?.items)
}

/// What a Deployment waits for.
pub(crate) fn deployment(object: &Deployment) -> Option<String> {
    let status = object.status.clone().unwrap_or_default();
    let wanted = object
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    let condition = |kind: &str| {
        status
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == kind)
    };
    let is_available = condition("Available").is_some_and(|condition| condition.status == "True");
    let is_seen = status.observed_generation >= object.metadata.generation;
    let updated = status.updated_replicas.unwrap_or_default();
    // While new pods do not come up old ones stand in for them, and it is Available by those.
    let older = status.replicas.unwrap_or_default() - updated;
    if is_seen && is_available && updated >= wanted && older <= 0 {
        return None;
    }
    let stand_in = if older > 0 {
        format!(", {older} of an older one")
    } else {
        String::new()
    };
    let stuck = condition("Progressing").filter(|condition| condition.status == "False");
    let stuck = stuck.and_then(|condition| condition.message.clone());
    Some(told(
        "Deployment",
        object,
        &format!(
            "{} of {wanted} pods are available, {updated} are of the newest form{stand_in}",
            status.available_replicas.unwrap_or_default()
        ),
        stuck,
    ))
}

fn is_overdue(object: &Deployment) -> bool {
    let Some(status) = &object.status else {
        return false;
    };
    let mut conditions = status.conditions.iter().flatten();
    status.observed_generation >= object.metadata.generation
        && conditions.any(|condition| {
            condition.type_ == "Progressing"
                && condition.status == "False"
                && condition.reason.as_deref() == Some(OVERDUE)
        })
}

/// What a StatefulSet waits for.
pub(crate) fn stateful_set(object: &StatefulSet) -> Option<String> {
    unfinished("StatefulSet", object, Rollout::of_stateful_set(object))
}

/// What a DaemonSet waits for.
pub(crate) fn daemon_set(object: &DaemonSet) -> Option<String> {
    unfinished("DaemonSet", object, Rollout::of_daemon_set(object))
}

fn unfinished<K: Resource>(kind: &str, object: &K, rollout: Rollout) -> Option<String> {
    let Rollout {
        wanted, available, ..
    } = rollout;
    (!rollout.is_done()).then(|| {
        let what = format!("{available} of {wanted} pods are available");
        told(kind, object, &what, None)
    })
}

fn told<K: Resource>(kind: &str, object: &K, what: &str, more: Option<String>) -> String {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let more = more
        .map(|more| format!(" ({})", api::text::plain(&more, 200)))
        .unwrap_or_default();
    format!("{kind} {namespace}/{name}: {what}{more}")
}

fn definition(object: &Outline) -> Option<String> {
    if is_established(object) {
        return None;
    }
    Some(format!(
        "CustomResourceDefinition {}: it is not served yet",
        object.name_any()
    ))
}

/// Whether a definition is served.
pub fn is_established(object: &Outline) -> bool {
    let conditions = object
        .status
        .iter()
        .filter_map(|status| status.conditions.as_ref())
        .flatten();
    conditions
        .clone()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// What needs a provider: objects of its definitions, a line for each kind that has some. What clusterctl keeps of it is none.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn objects(client: &Client, manifest_label: &str) -> Result<Vec<String>, kube::Error> {
    let parameters = ListParams::default().labels(&format!("{}={manifest_label}", label::PROVIDER));
    let definitions: Vec<Outline> = list(client, &parameters).await?;
    let lines = stream::iter(definitions)
        .map(|definition| async move { of_definition(client, &definition).await })
        .buffered(4)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(lines.into_iter().flatten().collect())
}

/// The objects of a definition: their kind, the first ones, and how many more. What is not served has none that anybody could see.
async fn of_definition(
    client: &Client,
    definition: &Outline,
) -> Result<Option<String>, kube::Error> {
    match of_served(client, definition).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        found => found,
    }
}

/// The same of one that is served: an API that knows nothing of its objects is an error.
pub(crate) async fn of_served(
    client: &Client,
    definition: &Outline,
) -> Result<Option<String>, kube::Error> {
    let spec = &definition.spec;
    let version = spec
        .versions
        .iter()
        .find(|version| version.storage && version.served);
    let Some(version) = version.or_else(|| spec.versions.iter().find(|version| version.served))
    else {
        return Ok(None);
    };
    let resource = kube::core::ApiResource {
        group: spec.group.clone(),
        version: version.name.clone(),
        api_version: format!("{}/{}", spec.group, version.name),
        kind: spec.names.kind.clone(),
        plural: spec.names.plural.clone(),
    };
    let api: Api<kube::core::DynamicObject> = Api::all_with(client.clone(), &resource);
    let first = api
        .list_metadata(&ListParams::default().limit(SHOWN))
        .await?;
    if first.items.is_empty() {
        return Ok(None);
    }
    let names: Vec<_> = first
        .items
        .iter()
        .map(|object| match object.namespace() {
            Some(namespace) => format!("{namespace}/{}", object.name_any()),
            None => object.name_any(),
        })
        .collect();
    let goes_on = |rest: &String| !rest.is_empty();
    let more = match first.metadata.remaining_item_count {
        Some(more) if more > 0 => format!(" and {more} more"),
        _ if first.metadata.continue_.as_ref().is_some_and(goes_on) => " and more".to_owned(),
        _ => String::new(),
    };
    Ok(Some(format!(
        "{} {}{more}",
        spec.names.kind,
        names.join(", ")
    )))
}

/// So many are named.
const SHOWN: u32 = 3;
/// Why a Deployment is not progressing whose `progressDeadlineSeconds` have passed.
///
/// # Source
/// kubernetes `pkg/controller/deployment/util/deployment_util.go`, `TimedOutReason`.
const OVERDUE: &str = "ProgressDeadlineExceeded";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn waits(status: &serde_json::Value) -> Option<String> {
        let object = json!({"metadata": {"name": "a", "namespace": "b", "generation": 2}, "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status});
        deployment(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_deployment_is_well_when_its_newest_form_is_available() {
        let available = json!([{"type": "Available", "status": "True"}]);
        assert_eq!(
            waits(
                &json!({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2, "conditions": available})
            ),
            None
        );
        for (what, status) in [
            (
                "not seen",
                json!({"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2, "conditions": available}),
            ),
            (
                "the old form",
                json!({"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 2, "conditions": available}),
            ),
            (
                "not available",
                json!({"observedGeneration": 2, "updatedReplicas": 2}),
            ),
            ("nothing", json!({})),
        ] {
            assert!(waits(&status).is_some(), "{what}");
        }
        let surge = json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 2, "conditions": available});
        assert_eq!(
            waits(&surge).unwrap(),
            "Deployment b/a: 2 of 2 pods are available, 2 are of the newest form, 1 of an older one",
            "a pod that does not come up is no pod that serves"
        );
        let stuck = json!({"observedGeneration": 2, "conditions": [{"type": "Progressing", "status": "False", "message": "has timed out"}]});
        assert_eq!(
            waits(&stuck).unwrap(),
            "Deployment b/a: 0 of 2 pods are available, 0 are of the newest form (has timed out)"
        );
    }

    #[test]
    fn a_deployment_is_overdue_when_it_says_so_of_what_is_asked_for_now() {
        let overdue = |seen: i64, status: &str, reason: &str| {
            let object = json!({"metadata": {"generation": 2}, "status": {
                "observedGeneration": seen, "conditions": [{"type": "Progressing", "status": status, "reason": reason}],
            }});
            is_overdue(&serde_json::from_value(object).unwrap())
        };
        assert!(overdue(2, "False", "ProgressDeadlineExceeded"));
        assert!(
            !overdue(1, "False", "ProgressDeadlineExceeded"),
            "of before"
        );
        assert!(!overdue(2, "False", "FailedCreate"), "that may end");
        assert!(!overdue(2, "True", "ReplicaSetUpdated"));
        assert!(!is_overdue(&Deployment::default()));
    }

    #[test]
    fn nothing_at_all_is_not_well() {
        assert!(!Health::default().is_well());
        let some = Health {
            definitions: 1,
            ..Health::default()
        };
        assert!(some.is_well());
    }
}
