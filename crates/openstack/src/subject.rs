//! The reconciler of clouds and services: decides that a run is needed, and tells how the object stands.
//!
//! How far a run got is the runner's business. At rest nothing is written.

use std::{sync::Arc, time::Duration};

use api::{
    Run,
    openstack::{BackupsStatus, FINALIZER, OpenStack, OpenStackService, Standing as Told},
    run::RunStatus,
};
use controller::{
    Events, Outcome, Until, backoff::jittered, finalizer, stream::readable, watch::Kind,
};
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Client, ResourceExt,
    core::DeserializeGuard,
    runtime::{controller::Action, reflector::Store},
};
use runs::{history, object};

use crate::{
    backup, cloud,
    names::{self, MANAGER},
    wish::Wish,
};

mod plan;
mod report;

pub use plan::{Decision, NewRun, Observed, plan};

/// A kind with a controller.
pub trait Layer: Wish + Kind {
    /// Whether what it is made of serves now, and what does not.
    fn health(
        &self,
        context: &Context<Self>,
    ) -> impl Future<Output = Result<Vec<String>, Error>> + Send;
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
const HEALTH_LOOK: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(5));

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
    let Some(observed) = observe(object, &context).await? else {
        return Ok(Action::requeue(UNTIL_READ));
    };
    let decision = plan(object, &observed).map_err(Error::Plan)?;
    let outcome = apply(object, decision, &observed, &context).await?;
    report::publish(object, outcome.applied(), &observed, &context).await?;
    if object.meta().deletion_timestamp.is_none() {
        history::keep(&context.client, &observed.runs, &observed.kept())
            .await
            .map_err(|source| Error::Api("remove a run that was kept long enough", source))?;
    }
    Ok(Outcome::action(&outcome))
}

/// What was done. Only [`apply`] makes it.
pub(crate) struct Applied {
    decision: Decision,
    run: Option<Run>,
}

/// None: the stores have not been read yet.
async fn observe<K: Layer>(object: &K, context: &Context<K>) -> Result<Option<Observed>, Error> {
    if context.runs.wait_until_ready().now_or_never().is_none()
        || context.services.wait_until_ready().now_or_never().is_none()
    {
        return Ok(None);
    }
    let namespace = object.namespace().unwrap_or_default();
    let found = controller::stream::in_namespace(&context.runs, &namespace);
    let mut runs: Vec<_> = found
        .iter()
        .filter_map(|run| run.0.as_ref().ok())
        .filter(|run| object::is_of(run, object))
        .cloned()
        .collect();
    runs.sort_by_cached_key(object::age);
    let mut observed = Observed {
        runs,
        now: Timestamp::now(),
        ..Observed::default()
    };
    if object.backup().is_some() {
        observed.backups = catalogue(object, context).await?;
    }
    let is_going = object.meta().deletion_timestamp.is_some();
    if observed.was_made() && !is_going {
        observed.unhealthy = object.health(context).await?;
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
        Decision::Stall(_) => None,
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
        Decision::Follow(run) => Some((**run).clone()),
        Decision::Keep(run) => {
            let look = if observed.unhealthy.is_empty() {
                HEALTH_LOOK.0
            } else {
                HEALTH_LOOK.1
            };
            until = Until::Elapsed(jittered(look));
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
        applied: Applied { decision, run },
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
    format!("{:?} {:?} {activity:?}", status.phase, status.step)
}

impl Layer for OpenStackService {
    async fn health(&self, context: &Context<Self>) -> Result<Vec<String>, Error> {
        let name = names::api(&self.name_any());
        let namespace = self.namespace().unwrap_or_default();
        let api = Api::<Deployment>::namespaced(context.client.clone(), &namespace);
        let found = api.get_opt(&name).await;
        let found = found.map_err(|source| Error::Api("read the Deployment", source))?;
        let Some(found) = found else {
            return Ok(vec![format!("Deployment {name} is gone")]);
        };
        let wanted = found.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let available = found.status.and_then(|status| status.available_replicas);
        let available = available.unwrap_or_default();
        // As a restore that failed leaves it.
        Ok(if wanted == 0 {
            vec![format!(
                "Deployment {name} is stopped: it is to have no pods"
            )]
        } else if available > 0 {
            Vec::new()
        } else {
            vec![format!("none of {wanted} pods of Deployment {name} serves")]
        })
    }
}

impl Layer for OpenStack {
    async fn health(&self, context: &Context<Self>) -> Result<Vec<String>, Error> {
        let namespace = self.namespace().unwrap_or_default();
        let all = controller::stream::in_namespace(&context.services, &namespace);
        let own = all
            .iter()
            .filter_map(|service| service.0.as_ref().ok())
            .filter(|service| cloud::is_of(service, self));
        let is_ready = |told: &Option<Told>| {
            told.as_ref().is_some_and(|told| {
                controller::conditions::is_true(&told.conditions, controller::conditions::READY)
            })
        };
        let own: Vec<_> = own.collect();
        let mut wrong = Vec::new();
        for spec in &self.spec.services {
            let name = cloud::service_name(&self.name_any(), &spec.name);
            match own.iter().find(|service| service.name_any() == name) {
                None => wrong.push(format!(
                    "OpenStackService {name} is gone; windlass openstack run {} {}/declare makes it anew",
                    self.name_any(),
                    spec.name
                )),
                Some(service) if !is_ready(&service.status) => {
                    wrong.push(format!("{name} is not Ready"));
                }
                Some(_) => {}
            }
        }
        Ok(wrong)
    }
}
