//! Runners as Jobs: one Job a run, so that Kubernetes schedules, isolates and restarts the work.
//!
//! A Job is made when a run needs a runner and none is at work, has the run's name, belongs to the Run and goes with it.
//! Its pod is replaced when it is deleted, evicted or lost with its node; the new one takes the run up where the journal
//! ends. That two pods never work on one subject is not the Job's promise but that of the subject's Lease. What the
//! namespace needs beside the Job (a ServiceAccount with the rights of this subject's runner, a volume for the subject's files)
//! is made with it, so that a namespace needs no preparation.

use std::{collections::BTreeSet, sync::Arc};

use api::Run;
use controller::problem::{self, Problem};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    child::all_names,
    obstacle::{Kind, Obstacle},
    presence::{Presence, needs_runner},
    subject::{Settings, Subjects},
};
use account::{Account, Runs};

mod account;
mod bounds;
mod check;
mod error;
mod manifest;
pub mod obstacle;
mod template;

pub use account::account_name;
pub use bounds::Bounds;
pub use error::Error;
pub use manifest::{RUN_LABEL, SELECTOR, claim, job, job_name};
pub use template::Template;

/// The field manager of what a runner needs.
const FIELD_MANAGER: &str = "windlass-launcher";

/// What is wrong with what a subject of this kind says of runner pods; `template` is there where runners are pods.
pub fn problems(kind: &str, settings: &Settings, template: Option<&Template>) -> Vec<Problem> {
    let mut problems = check::problems(kind, settings);
    problems.extend(
        template
            .iter()
            .flat_map(|template| bounds::problems(kind, settings, template)),
    );
    problems
}

/// The Jobs of an operator.
pub struct Jobs {
    client: Client,
    template: Arc<Template>,
    store: Store<DeserializeGuard<Job>>,
}

impl Jobs {
    /// Jobs made after `template`, seen through `store`.
    pub fn new(
        client: Client,
        template: Arc<Template>,
        store: Store<DeserializeGuard<Job>>,
    ) -> Self {
        Self {
            client,
            template,
            store,
        }
    }

    /// What every Job has in common.
    pub const fn template(&self) -> &Arc<Template> {
        &self.template
    }

    /// How the runner of a run stands. A Job that is being deleted is still there: its pod may work.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer, or the fields of the subject's pod do not make a Job.
    pub async fn runner(&self, run: &Run, subjects: &impl Subjects) -> Result<Presence, Error> {
        let settings = subjects.settings(run);
        let mut reference = ObjectRef::new(&job_name(&run.name_any()));
        reference.namespace = run.namespace();
        let found = self.store.get(&reference);
        let job = found.as_ref().and_then(|found| found.0.as_ref().ok());
        let is_there = job.is_some_and(|job| !has_ended(job));
        if !is_there && let Some(why) = self.refusal(run, &settings) {
            let kind = Kind::NotCreated;
            let obstacle = Obstacle { kind, message: why };
            return Ok(Presence::Blocked {
                obstacle,
                outdated: false,
            });
        }
        let Some(job) = job else {
            return Ok(Presence::Absent(None));
        };
        if !needs_runner(run) {
            return Ok(if has_ended(job) {
                Presence::Absent(None)
            } else {
                Presence::AtWork
            });
        }
        if has_ended(job) {
            return Ok(Presence::Absent(
                obstacle::death(&self.client, run, job).await?,
            ));
        }
        if is_at_work(job) {
            return Ok(Presence::AtWork);
        }
        let Some(obstacle) = obstacle::find(&self.client, run, job).await? else {
            return Ok(Presence::Coming);
        };
        let wanted = self.job(run, &settings, &subjects.name(&run.spec.subject))?;
        let template = |job: &Job| job.annotations().get(manifest::TEMPLATE).cloned();
        Ok(Presence::Blocked {
            obstacle,
            outdated: template(job) != template(&wanted),
        })
    }

    fn job(&self, run: &Run, settings: &Settings, name: &str) -> Result<Job, Error> {
        manifest::job(run, settings, name, &self.template).map_err(Error::template(run))
    }

    /// Why a run gets no Job, though it needs one: its subject's spec is not what it was planned with, or the operator allows less
    /// than it did.
    fn refusal(&self, run: &Run, settings: &Settings) -> Option<String> {
        let problems = problems(&run.spec.subject.kind, settings, Some(&self.template));
        (!problems.is_empty()).then(|| problem::text(&problems))
    }

    /// Makes the Job of a run, and what it needs. One that has ended makes room.
    ///
    /// # Errors
    ///
    /// The operator does not allow such a pod, the subject's fields do not make one, or the API refuses or does not answer.
    pub async fn start(&self, run: &Run, subjects: &impl Subjects) -> Result<(), Error> {
        let settings = subjects.settings(run);
        if let Some(why) = self.refusal(run, &settings) {
            return Err(Error::NotAllowed(why));
        }
        let namespace = run.namespace().unwrap_or_default();
        let owner = subjects.name(&run.spec.subject);
        let job = self.job(run, &settings, &owner)?;
        let jobs = Api::<Job>::namespaced(self.client.clone(), &namespace);
        let name = job.name_any();
        if let Some(existing) = jobs
            .get_opt(&name)
            .await
            .map_err(Error::api("read the Job"))?
        {
            if !has_ended(&existing) {
                return Ok(());
            }
            remove(&jobs, &existing).await?;
        }
        self.prepare(&namespace, run, subjects).await?;
        self.ensure_claim(&namespace, run, &settings, &owner)
            .await?;
        match jobs.create(&PostParams::default(), &job).await {
            // Another operator was faster: the Job is the same. Or the one before is still going: that is seen as a change.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            created => created.map(drop).map_err(Error::api("create the Job")),
        }
    }

    /// Deletes the Job of a run. Its pod, if it has one, is told to end.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer. That there is no Job is no error.
    pub async fn stop(&self, run: &Run) -> Result<(), Error> {
        let namespace = run.namespace().unwrap_or_default();
        let jobs = Api::<Job>::namespaced(self.client.clone(), &namespace);
        let existing = jobs
            .get_opt(&job_name(&run.name_any()))
            .await
            .map_err(Error::api("read the Job"))?;
        match existing {
            Some(existing) => remove(&jobs, &existing).await,
            None => Ok(()),
        }
    }

    async fn prepare(
        &self,
        namespace: &str,
        run: &Run,
        subjects: &impl Subjects,
    ) -> Result<(), Error> {
        let owner = subjects.name(&run.spec.subject);
        let reach = subjects.reach(run);
        let others = self.at_work(namespace, &account_name(&owner));
        let children = self.children(namespace, run, &others).await?;
        let Account {
            identity,
            role,
            binding,
            lease,
            written,
            network,
        } = Account::new(
            run,
            &owner,
            &reach,
            &Runs { others, children },
            &self.template.egress_ports,
        )
        .map_err(Error::template(run))?;
        self.ensure(namespace, &identity, "apply the runner's ServiceAccount")
            .await?;
        self.ensure(namespace, &role, "apply the runner's Role")
            .await?;
        self.ensure(namespace, &binding, "apply the runner's RoleBinding")
            .await?;
        self.ensure(namespace, &lease, "apply the subject's Lease")
            .await?;
        for secret in written {
            self.ensure(
                namespace,
                &secret,
                "apply the Secret that the runner writes",
            )
            .await?;
        }
        if let Some(network) = network {
            self.ensure(namespace, &network, "apply the runners' NetworkPolicy")
                .await?;
        }
        Ok(())
    }

    async fn ensure_claim(
        &self,
        namespace: &str,
        run: &Run,
        settings: &Settings,
        owner: &str,
    ) -> Result<(), Error> {
        if let Some(claim) = claim(run, settings, owner).map_err(Error::template(run))? {
            let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), namespace);
            // Most of a claim cannot change: what is there stays.
            let existing = claims
                .get_opt(&claim.name_any())
                .await
                .map_err(Error::api("read the runner's volume claim"))?;
            if existing.is_none() {
                claims
                    .create(&PostParams::default(), &claim)
                    .await
                    .map_err(Error::api("create the runner's volume claim"))?;
            }
        }
        Ok(())
    }

    /// The runs whose pods have this account and may be at work.
    fn at_work(&self, namespace: &str, account: &str) -> BTreeSet<String> {
        let jobs = controller::stream::in_namespace(&self.store, namespace);
        let jobs = jobs.iter().filter_map(|job| job.0.as_ref().ok());
        let of_account = jobs.filter(|job| {
            let pod = job
                .spec
                .as_ref()
                .and_then(|spec| spec.template.spec.as_ref());
            pod.and_then(|pod| pod.service_account_name.as_deref()) == Some(account)
                && !has_ended(job)
        });
        of_account
            .filter_map(|job| run_of(&job.metadata))
            .map(|run| run.name)
            .collect()
    }

    /// The runs that may be steps of this one, or of one of these.
    async fn children(
        &self,
        namespace: &str,
        run: &Run,
        others: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, Error> {
        let mut children: BTreeSet<_> = all_names(run).collect();
        let runs = Api::<Run>::namespaced(self.client.clone(), namespace);
        for other in others.iter().filter(|other| **other != run.name_any()) {
            let found = runs.get_opt(other).await;
            let found = found.map_err(Error::api("read a run that is at work"))?;
            children.extend(found.iter().flat_map(all_names));
        }
        Ok(children)
    }

    async fn ensure<K>(
        &self,
        namespace: &str,
        wanted: &K,
        operation: &'static str,
    ) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + std::fmt::Debug,
    {
        Api::<K>::namespaced(self.client.clone(), namespace)
            .patch(
                &wanted.name_any(),
                &PatchParams::apply(FIELD_MANAGER).force(),
                &Patch::Apply(wanted),
            )
            .await
            .map(drop)
            .map_err(Error::api(operation))
    }
}

async fn remove(jobs: &Api<Job>, job: &Job) -> Result<(), Error> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: job.uid(),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    match jobs.delete(&job.name_any(), &parameters).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        deleted => deleted.map(drop).map_err(Error::api("delete the Job")),
    }
}

/// Whether a Job is at its end: its condition says Complete or Failed.
pub fn has_ended(job: &Job) -> bool {
    let conditions = job
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        conditions.iter().any(|condition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
        })
    })
}

/// Whether a pod of a Job is ready, which a runner is as soon as it is started.
fn is_at_work(job: &Job) -> bool {
    let ready = job.status.as_ref().and_then(|status| status.ready);
    ready.is_some_and(|ready| ready > 0)
}

/// The run that a Job works on.
pub fn run_of(job: &ObjectMeta) -> Option<ObjectRef<DeserializeGuard<Run>>> {
    let owner = job
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.kind == Run::kind(&()))?;
    Some(ObjectRef::new(&owner.name).within(job.namespace.as_deref()?))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// What a subject with this spec says of its runner pods.
    pub(super) fn settings(spec: &Value) -> Settings {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let runner = &spec["runner"];
        let map = |field: &str| runner[field].as_object().cloned();
        let secrets = runner["imagePullSecrets"].as_array();
        Settings {
            image: text(&spec["image"]),
            runner_image: text(&runner["image"]),
            pull_secrets: secrets
                .map(|names| names.iter().filter_map(|of| text(&of["name"])).collect()),
            host_network: runner["hostNetwork"] == true,
            placement: map("placement").unwrap_or_default(),
            resources: map("resources").unwrap_or_default(),
            claims: std::collections::BTreeMap::new(),
            volume_claim_template: map("volumeClaimTemplate"),
        }
    }
}
