//! The reconciler of clouds, services and seeds: decides that a run is needed, and tells how the object stands.
//!
//! How far a run got is the runner's business. At rest nothing is written.

use std::{sync::Arc, time::Duration};

use api::{
    Run,
    openstack::{
        BackupsStatus, FINALIZER, IdentitySeed, OnDelete, OpenStack, OpenStackService,
        Standing as Told,
    },
    run::RunStatus,
};
use controller::{
    Events, Outcome, Until, backoff::jittered, conditions::READY, finalizer, stream::readable,
    watch::Kind,
};
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::DeserializeGuard,
    runtime::{controller::Action, reflector::Store},
};
use runs::{history, is_active, object, phase};

use crate::{
    backup, cloud,
    definition::API,
    engine::services::tell,
    health::{Down, Part, Probes},
    names::{self, MANAGER, STOPPED},
    rotation::{Noted, Rotated, password_since},
    seed::look::{Looked, Looks},
    service,
    wish::{self, Operation, Wish},
};

#[cfg(test)]
mod passes;
pub(crate) mod plan;
pub(crate) mod refusal;
mod report;
mod resolved;

pub use plan::{Decision, NewRun, Observed, plan};
pub use resolved::{Meanings, Resolved};

/// A kind with a controller.
pub trait Layer: Wish + Kind {
    /// Whether its spec was made to say what becomes of its data, as whoever it belongs to says it.
    fn heed(&self, _: &Context<Self>) -> impl Future<Output = Result<bool, Error>> + Send {
        async { Ok(false) }
    }

    /// How what it is made of stands now.
    fn health(
        &self,
        context: &Context<Self>,
        made_by: &Run,
    ) -> impl Future<Output = Result<Health, Error>> + Send;
}

/// How what an object is made of stands.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Health {
    /// What of it does not serve.
    pub unhealthy: Vec<String>,
    /// What it said when it was asked. None: nobody asks such an object.
    pub answer: Option<Result<(), Down>>,
    /// What keeps what it is made of, in the words of that.
    pub blocked_on: Option<String>,
    /// Whether a restore stopped its pods, and nobody started them since.
    pub is_stopped: bool,
    /// What Keystone has of a seed. None: it is none, or nobody could look.
    pub seeded: Option<Looked>,
}

/// What the passes over the objects of one kind share.
pub struct Context<K: Layer> {
    /// The API.
    pub client: Client,
    /// The objects of this kind.
    pub own: Store<DeserializeGuard<K>>,
    /// All services.
    pub services: Store<DeserializeGuard<OpenStackService>>,
    /// Their runs.
    pub runs: Store<DeserializeGuard<Run>>,
    /// What happened.
    pub events: Events,
    /// What the objects of this kind mean.
    pub meanings: Meanings,
    /// What services answered.
    pub probes: Probes,
    /// What Keystones had of seeds.
    pub looks: Looks,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{0}")]
    Api(&'static str, #[source] kube::Error),
    /// The status could not be applied.
    #[error("apply the status")]
    Apply(#[source] controller::apply::Error),
    /// A run could not be steered.
    #[error("end the run")]
    Control(#[source] runs::control::Error),
    /// A plan could not be made.
    #[error("make a plan")]
    Plan(#[source] serde_json::Error),
}

/// How soon a pass is tried again that began before the stores were read.
const UNTIL_READ: Duration = Duration::from_millis(50);
/// How often is looked whether what stands serves: of what is well, and of what is not.
const HEALTH_LOOK: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(5));

/// One pass.
///
/// # Errors
///
/// The API refuses or does not answer. What is wrong with the object is no error: its status says it.
pub async fn reconcile<K: Layer>(
    object: Arc<DeserializeGuard<K>>,
    context: Arc<Context<K>>,
) -> Result<Action, Error> {
    let Some(object) = readable(&object) else {
        return Ok(Action::await_change());
    };
    if object.meta().deletion_timestamp.is_some() && object.heed(&context).await? {
        return Ok(Action::await_change());
    }
    let resolved = context.meanings.of(object);
    let Some(observed) = observe(object, &resolved, &context).await? else {
        return Ok(Action::requeue(UNTIL_READ));
    };
    let decision = plan::decide(object, &resolved, &observed).map_err(Error::Plan)?;
    let aside = observed.made().filter(|_| decision.is_aside()).cloned();
    let outcome = match apply(object, decision, &observed, &context).await {
        Ok(outcome) => outcome,
        Err(error) => refused(&error, aside, &observed).ok_or(error)?,
    };
    let applied = outcome.applied();
    report::publish(object, &resolved, applied, &observed, &context).await?;
    if object.meta().deletion_timestamp.is_none() && !applied.is_refused() {
        history::keep(&context.client, &observed.runs, &observed.kept())
            .await
            .map_err(|source| Error::Api("remove a run that was kept long enough", source))?;
    }
    Ok(Outcome::action(&outcome))
}

/// What is told of a refusal, and how soon it is tried again: as often as what stands is looked at, for it may cease to serve, and whoever
/// waits for it has some minutes alone. None: it is none.
fn refused(error: &Error, aside: Option<Run>, observed: &Observed) -> Option<Outcome<Applied>> {
    let refusal = refusal::refusal(error)?;
    let applied = match aside {
        // What stands is as it should be, and goes on.
        Some(made_by) => Applied {
            decision: Decision::Keep(Box::new(made_by.clone())),
            run: Some(made_by),
            refused: Some(refusal),
        },
        None => Applied::new(Decision::Refused(refusal), None),
    };
    Some(Outcome::Waiting {
        applied,
        until: next_look(observed),
    })
}

/// When what stands is looked at again.
fn next_look(observed: &Observed) -> Until {
    let look = if observed.unhealthy.is_empty() {
        HEALTH_LOOK.0
    } else {
        HEALTH_LOOK.1
    };
    Until::Elapsed(jittered(look))
}

/// What was done. Only [`apply`] makes it.
pub(crate) struct Applied {
    decision: Decision,
    run: Option<Run>,
    /// What the API refused of what was to be done beside it.
    refused: Option<String>,
}

impl Applied {
    const fn new(decision: Decision, run: Option<Run>) -> Self {
        Self {
            decision,
            run,
            refused: None,
        }
    }

    const fn is_refused(&self) -> bool {
        self.refused.is_some() || matches!(self.decision, Decision::Refused(_))
    }
}

/// None: the stores have not been read yet.
async fn observe<K: Layer>(
    object: &K,
    resolved: &Resolved,
    context: &Context<K>,
) -> Result<Option<Observed>, Error> {
    if context.runs.wait_until_ready().now_or_never().is_none()
        || context.services.wait_until_ready().now_or_never().is_none()
    {
        return Ok(None);
    }
    let namespace = object.namespace().unwrap_or_default();
    let found = controller::stream::in_namespace(&context.runs, &namespace);
    let known = || found.iter().filter_map(|run| run.0.as_ref().ok());
    let mut runs: Vec<_> = known()
        .filter(|run| object::is_of(run, object))
        .cloned()
        .collect();
    runs.sort_by_cached_key(object::age);
    let mut observed = Observed {
        runs,
        held_by: held_by(object, known()),
        now: Timestamp::now(),
        ..Observed::default()
    };
    if object.backup().is_some() {
        observed.backups = catalogue(object, context).await?;
    }
    let is_going = object.meta().deletion_timestamp.is_some();
    if let Some(made_by) = observed.made().filter(|_| !is_going) {
        let health = object.health(context, made_by).await?;
        observed.unhealthy = health.unhealthy;
        observed.answer = health.answer;
        observed.blocked_on = health.blocked_on;
        observed.is_stopped = health.is_stopped;
        observed.seeded = health.seeded;
        note_rotations(object, resolved, context, &mut observed).await?;
    }
    // The watch may be behind, and what is stopped is started unless a restore is at work.
    if observed.is_stopped && observed.held_by.is_none() {
        let api = Api::<Run>::namespaced(context.client.clone(), &namespace);
        let runs = api.list(&ListParams::default()).await;
        let runs = runs.map_err(|source| Error::Api("list the runs", source))?;
        observed.held_by = held_by(object, runs.items.iter());
    }
    if is_going {
        let api = Api::<Namespace>::all(context.client.clone());
        let found = api.get_opt(&namespace).await;
        let found = found.map_err(|source| Error::Api("read the namespace", source))?;
        observed.is_namespace_going =
            found.is_none_or(|found| found.metadata.deletion_timestamp.is_some());
    }
    Ok(Some(observed))
}

/// The restore, of these runs, that holds an object of a cloud: of that by its unique id.
fn held_by<'a, K: Layer>(object: &K, runs: impl Iterator<Item = &'a Run>) -> Option<Run> {
    let mut owners = object.owner_references().iter();
    let cloud = owners.find(|owner| owner.controller == Some(true))?;
    let is_restore = |run: &&Run| {
        let mut owners = run.owner_references().iter();
        run.spec.subject.is_a::<OpenStack>()
            && run.spec.operation == Operation::Restore.name()
            && owners.any(|owner| owner.uid == cloud.uid)
    };
    let mut restores: Vec<_> = runs.filter(is_restore).cloned().collect();
    restores.sort_by_cached_key(object::age);
    plan::holding(&restores).cloned()
}

/// What lies in the store of backups, as a run has noted.
async fn catalogue<K: Layer>(
    object: &K,
    context: &Context<K>,
) -> Result<Option<BackupsStatus>, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let api = Api::<ConfigMap>::namespaced(context.client.clone(), &namespace);
    let found = api
        .get_opt(&backup::catalogue_name(&object.name_any()))
        .await;
    let found = found.map_err(|source| Error::Api("read what lies in the store", source))?;
    let text = found.and_then(|found| found.data?.remove(backup::CATALOGUE_KEY));
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

/// What is noted beside what is rotated on a schedule. Keys and passwords themselves are not read.
async fn note_rotations<K: Layer>(
    object: &K,
    resolved: &Resolved,
    context: &Context<K>,
    observed: &mut Observed,
) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let api = Api::<Secret>::namespaced(context.client.clone(), &namespace);
    for scheduled in &resolved.rotations {
        let name = scheduled.secret();
        let found = api.get_metadata_opt(name).await;
        let found = found.map_err(|source| Error::Api("read what is noted of a rotation", source));
        let metadata = found?.map(|found| found.metadata).unwrap_or_default();
        if scheduled.what() == Rotated::Fernet {
            observed.keys = Noted::read(&metadata.annotations.unwrap_or_default());
        } else if let Some(since) = password_since(&metadata) {
            observed.passwords.insert(name.to_owned(), since);
        }
    }
    Ok(())
}

async fn apply<K: Layer>(
    object: &K,
    decision: Decision,
    observed: &Observed,
    context: &Context<K>,
) -> Result<Outcome<Applied>, Error> {
    if object.meta().deletion_timestamp.is_none() {
        keep(object, context).await?;
    }
    let client = &context.client;
    let mut until = Until::Changed;
    let run = match &decision {
        Decision::Stall(_) | Decision::Refused(_) => None,
        Decision::Start(new) => {
            let generation = object.meta().generation.unwrap_or_default();
            let mut run = object::of(
                object,
                new.name.clone(),
                new.operation.name(),
                generation,
                new.plan.clone(),
            );
            if let Some((annotation, request)) = &new.request {
                let annotations = run.annotations_mut();
                annotations.insert((*annotation).to_owned(), request.clone());
            }
            let stored = object::store(client, MANAGER, run).await;
            Some(stored.map_err(|source| Error::Api("store the run", source))?)
        }
        Decision::Follow(run) => {
            // Nobody wakes a service when a run of its cloud has ended.
            if observed.held_by.is_some() {
                until = Until::Elapsed(jittered(HEALTH_LOOK.1));
            } else if is_active(phase(run)) {
                // What was made before may cease to answer, and a step waits for longer and longer.
                until = Until::Elapsed(jittered(HEALTH_LOOK.0));
            }
            Some((**run).clone())
        }
        Decision::Keep(run) => {
            until = next_look(observed);
            Some((**run).clone())
        }
        Decision::Supersede(run, digest) => {
            object::supersede(client, run, digest)
                .await
                .map_err(|source| Error::Api("supersede the run", source))?;
            Some((**run).clone())
        }
        Decision::Cancel(run) => {
            object::cancel(client, run, "deletion of the object")
                .await
                .map_err(Error::Control)?;
            Some((**run).clone())
        }
        Decision::Forget => {
            forget(object, context).await?;
            None
        }
    };
    Ok(Outcome::Waiting {
        applied: Applied::new(decision, run),
        until,
    })
}

/// Keeps the object until what belongs to it is gone.
async fn keep<K: Layer>(object: &K, context: &Context<K>) -> Result<(), Error> {
    finalizer::hold(&api(object, context), object, FINALIZER)
        .await
        .map_err(|source| Error::Api("add the finalizer", source))
}

async fn forget<K: Layer>(object: &K, context: &Context<K>) -> Result<(), Error> {
    finalizer::release(&api(object, context), object, FINALIZER)
        .await
        .map_err(|source| Error::Api("remove the finalizer", source))
}

fn api<K: Layer>(object: &K, context: &Context<K>) -> Api<K> {
    Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    )
}

/// What an object tells of its run.
pub(crate) fn told(status: &RunStatus) -> String {
    let activity = status
        .steps
        .iter()
        .map(|step| (&step.phase, &step.activity));
    let activity: Vec<_> = activity.collect();
    // A retry may fail at the same step for another reason, and nobody have seen it at work in between.
    let failure = status.failure.as_ref();
    let failure = failure.map(|failure| (&failure.code, &failure.message));
    format!(
        "{:?} {:?} {activity:?} {failure:?}",
        status.phase, status.step
    )
}

impl Layer for OpenStackService {
    /// Where a cloud is deleted in the foreground, Kubernetes deletes its services before the cloud can tell them that their data stays.
    async fn heed(&self, context: &Context<Self>) -> Result<bool, Error> {
        if self.spec.on_delete != Some(OnDelete::Delete) {
            return Ok(false);
        }
        let namespace = self.namespace().unwrap_or_default();
        let Some(owner) = cloud::of(self) else {
            return Ok(false);
        };
        let clouds = Api::<OpenStack>::namespaced(context.client.clone(), &namespace);
        let found = clouds.get_opt(&owner.name).await;
        let found = found.map_err(|source| Error::Api("read the cloud", source))?;
        let retains = found.is_some_and(|cloud| {
            cloud.metadata.deletion_timestamp.is_some()
                && cloud.metadata.uid.as_ref() == Some(&owner.uid)
                && cloud.spec.on_delete != Some(OnDelete::Delete)
        });
        if retains {
            let services = Api::namespaced(context.client.clone(), &namespace);
            let told = tell(&services, &self.name_any(), OnDelete::Retain).await;
            told.map_err(|source| Error::Api("keep the data of the service", source))?;
        }
        Ok(retains)
    }

    async fn health(&self, context: &Context<Self>, made_by: &Run) -> Result<Health, Error> {
        let namespace = self.namespace().unwrap_or_default();
        let api = Api::<Deployment>::namespaced(context.client.clone(), &namespace);
        let mut health = Health::default();
        let mut others = Vec::new();
        for component in started(made_by) {
            let name = names::component(&self.name_any(), &component);
            let found = api.get_opt(&name).await;
            let found = found.map_err(|source| Error::Api("read the Deployment", source))?;
            let found = found.map_or_else(
                || down(Part::Pods, format!("Deployment {name} is gone")),
                |found| health_of(&found),
            );
            if component != API {
                others.extend(found.unhealthy);
            } else if found.unhealthy.is_empty() {
                health = found;
            } else {
                return Ok(found);
            }
        }
        let answer = match context.probes.ask(&context.client, self, made_by).await {
            Some(down) => {
                health.unhealthy.push(down.message());
                Err(down)
            }
            None => Ok(()),
        };
        // Whoever asks the API is answered without them.
        health.unhealthy.extend(others);
        health.answer = Some(answer);
        Ok(health)
    }
}

/// The components that a run started.
fn started(run: &Run) -> Vec<String> {
    let inputs: Option<service::Inputs> = wish::read(&run.spec.plan.inputs);
    // What this version cannot read was made by one that knew nothing of components.
    inputs.map_or_else(
        || vec![API.to_owned()],
        |inputs| inputs.started().into_iter().map(str::to_owned).collect(),
    )
}

/// A service of which a part does not serve.
fn down(part: Part, why: String) -> Health {
    let down = Down {
        part,
        why,
        attempts: 1,
    };
    Health {
        unhealthy: vec![down.message()],
        answer: Some(Err(down)),
        ..Health::default()
    }
}

/// How the pods of a service stand. Pure.
fn health_of(deployment: &Deployment) -> Health {
    let name = deployment.name_any();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let wanted = wanted.unwrap_or(1);
    let status = deployment.status.as_ref();
    let available = status.and_then(|status| status.available_replicas);
    let unhealthy = if wanted == 0 {
        Some(format!(
            "Deployment {name} is stopped: it is to have no pods"
        ))
    } else if available.unwrap_or_default() > 0 {
        None
    } else {
        Some(format!("none of {wanted} pods of Deployment {name} serves"))
    };
    let health = unhealthy.map_or_else(Health::default, |why| down(Part::Pods, why));
    Health {
        is_stopped: wanted == 0 && deployment.annotations().contains_key(STOPPED),
        ..health
    }
}

impl Layer for OpenStack {
    async fn health(&self, context: &Context<Self>, _: &Run) -> Result<Health, Error> {
        let namespace = self.namespace().unwrap_or_default();
        let all = controller::stream::in_namespace(&context.services, &namespace);
        let own = all
            .iter()
            .filter_map(|service| service.0.as_ref().ok())
            .filter(|service| cloud::is_of(service, self));
        let own: Vec<_> = own.collect();
        let mut health = Health::default();
        for spec in &self.spec.services {
            let name = cloud::service_name(&self.name_any(), &spec.name);
            match own.iter().find(|service| service.name_any() == name) {
                None => health.unhealthy.push(format!(
                    "OpenStackService {name} is gone; windlass openstack run {} {}/declare makes it anew",
                    self.name_any(),
                    spec.name
                )),
                Some(service) => {
                    let told = service.status.clone().unwrap_or_default();
                    let Some(why) = unready(&told) else {
                        continue;
                    };
                    health.unhealthy.push(format!("{name} is not Ready{why}"));
                    health.blocked_on = health.blocked_on.or(told.blocked_on);
                }
            }
        }
        Ok(health)
    }
}

impl Layer for IdentitySeed {
    async fn health(&self, context: &Context<Self>, made_by: &Run) -> Result<Health, Error> {
        let namespace = self.namespace().unwrap_or_default();
        let found = controller::stream::in_namespace(&context.runs, &namespace);
        let found = found.iter().filter_map(|run| run.0.as_ref().ok());
        let own: Vec<_> = found
            .filter(|run| object::is_of(run, self))
            .cloned()
            .collect();
        let client = &context.client;
        let looked = context.looks.ask(client, self, made_by, &own).await;
        Ok(match looked {
            Ok(looked) => Health {
                unhealthy: looked.told(),
                answer: Some(Ok(())),
                seeded: Some(looked),
                ..Health::default()
            },
            Err(down) => Health {
                unhealthy: vec![down.message()],
                answer: Some(Err(down)),
                ..Health::default()
            },
        })
    }
}

/// Why a service is not Ready, after a colon. None: it is.
fn unready(told: &Told) -> Option<String> {
    let mut conditions = told.conditions.iter();
    let ready = conditions.find(|condition| condition.type_ == READY);
    match ready {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(format!(": {}", ready.message)),
        None => Some(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_stops_a_service_by_hand_is_no_restore() {
        let deployment = |replicas: i32, annotations: serde_json::Value| -> Deployment {
            serde_json::from_value(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "one-keystone-api", "annotations": annotations},
                "spec": {"replicas": replicas, "selector": {}, "template": {}},
                "status": {"availableReplicas": replicas},
            }))
            .unwrap()
        };
        let stopped = health_of(&deployment(0, json!({STOPPED: "restore"})));
        assert!(
            stopped.is_stopped && !stopped.unhealthy.is_empty(),
            "{stopped:?}"
        );
        let by_hand = health_of(&deployment(0, json!({})));
        assert!(
            !by_hand.is_stopped && !by_hand.unhealthy.is_empty(),
            "{by_hand:?}"
        );
        // Somebody scaled it up again.
        let serves = health_of(&deployment(1, json!({STOPPED: "restore"})));
        assert_eq!(serves, Health::default());
    }

    #[test]
    fn a_service_is_held_by_the_restore_of_its_own_cloud_alone() {
        let service = |cloud: &str| -> OpenStackService {
            let owner = json!({"apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
                "name": "one", "uid": cloud, "controller": true});
            serde_json::from_value(json!({
                "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
                "metadata": {"name": "one-keystone", "namespace": "cloud", "uid": "s", "ownerReferences": [owner]},
                "spec": {"service": "keystone", "image": "k",
                    "database": {"host": "db", "adminSecret": {"name": "admin"}}},
            }))
            .unwrap()
        };
        let run = |operation: &str, phase: &str, annotations: serde_json::Value| -> Run {
            serde_json::from_value(json!({
                "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
                "metadata": {"name": "openstack-one-restore-2", "namespace": "cloud", "annotations": annotations,
                    "ownerReferences": [{"apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
                        "name": "one", "uid": "u", "controller": true}]},
                "spec": {"subject": {"apiGroup": "openstack.windlass.dev", "kind": "OpenStack", "name": "one", "uid": "u"},
                    "operation": operation, "generation": 1, "plan": {"digest": "d", "steps": []}},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        let emptied = || json!({names::EMPTIED: "2026-11-25T12:00:00Z"});
        for (run, is_held) in [
            (run("Restore", "Running", json!({})), true),
            (run("Restore", "Failed", emptied()), true),
            (run("Restore", "Cancelled", emptied()), true),
            (run("Restore", "Failed", json!({})), false),
            (run("Restore", "Succeeded", emptied()), false),
            (run("Backup", "Running", json!({})), false),
        ] {
            let held = held_by(&service("u"), [&run].into_iter());
            assert_eq!(held.is_some(), is_held, "{run:?}");
            assert!(held_by(&service("another"), [&run].into_iter()).is_none());
        }
    }
}
