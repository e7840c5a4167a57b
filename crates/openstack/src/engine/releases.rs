//! Steps that are releases of Helm, and what is waited for after them.

use std::{collections::BTreeSet, time::Duration};

use api::run::{Failure, FailureClass, OnFailure, Step};
use helm::{Change, Helm, Place, Record, lock, record};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::Job as ClusterJob,
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PropagationPolicy},
};
use runs::calls::{Ended, Seen, call, config, failure, transient, until};
use serde_json::Value;
use workflow::StepContext;

use crate::{
    action::{Action, HookJob, Job},
    audit,
    cloud::{self, database_server, memcached_server, rabbitmq_server},
    components,
    definition::{API, Definition},
    engine::{Done, Worker, objects::gone},
    hooks,
    made::Release,
    names, schema,
    service::Inputs,
};

/// How long Helm may take to store a release and its objects: it waits for nothing.
pub(super) const DEADLINE: Duration = Duration::from_mins(2);
/// The code of a Job none of whose attempts went well.
const JOB_FAILED: &str = "JobFailed";
/// The code of a Job that did not end in time.
const JOB_LATE: &str = "JobTimedOut";
/// The codes of Jobs that ended badly.
const JOB_ENDS: [&str; 2] = [JOB_FAILED, JOB_LATE];

impl Worker {
    pub(super) async fn run_job(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        job: &Job,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let release = self.subject().job(inputs, definition, job, &step.id);
        self.run_well(release, step, context).await
    }

    /// A Job of people's own, by the rules of the service's own. What its log says last is kept, however it ends.
    pub(super) async fn run_hook(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        hook: &HookJob,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let release = self.subject().hook(inputs, definition, hook, &step.id);
        let (secrets, part) = (release.secrets(), self.part(&step.id.replace('/', "-")));
        match self.run_well(release, step, context).await {
            Ok(done) => {
                let log = self.last_words(&selector(&part), &secrets).await;
                let done = format!("{}; the end of its log: {log}", done.unwrap_or_default());
                Ok(Some(api::text::lines(&done, 2048)))
            }
            Err(Ended::Failed(failure)) if JOB_ENDS.contains(&failure.code.as_str()) => {
                let failure = of_hook(hook, &failure);
                if step.on_failure != Some(OnFailure::Ignore) {
                    return Err(failure.into());
                }
                let (code, message) = (failure.code, failure.message);
                let done = format!("failed, which is ignored: {code}: {message}");
                Ok(Some(api::text::lines(&done, 2048)))
            }
            Err(ended) => Err(ended),
        }
    }

    /// Has the image itself tell whether it knows what the files say, and what tables there are. One attempt is enough: another one says the
    /// same.
    pub(super) async fn check_config(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let tables = self.revisions(inputs, definition).await?;
        let release = self.subject();
        let release = release.check(inputs, definition, &tables, &step.id);
        match self.run_once(release, step, context).await? {
            Ran::Before(name) => Ok(Some(format!("Job {name} was done before"))),
            Ran::Well(name) => Ok(schema::told(&self.log(&of_job(&name)).await?)),
            Ran::Badly(name, _) => {
                let log = self.log(&of_job(&name)).await?;
                let later = schema::later(&log, &inputs.image, &definition.database);
                let refused = later.or_else(|| schema::refusal(&log));
                Err(refused.map_or_else(|| lost(&name, &log), Ended::from))
            }
        }
    }

    /// A Job, and where it ends badly a failure with the end of its log.
    pub(super) async fn run_well(
        &self,
        release: Release,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let secrets = release.secrets();
        match self.run_once(release, step, context).await? {
            Ran::Before(name) => Ok(Some(format!("Job {name} was done before"))),
            Ran::Well(name) => Ok(Some(format!("Job {name}"))),
            Ran::Badly(name, code) => {
                let log = self.last_words(&of_job(&name), &secrets).await;
                Err(failure(
                    FailureClass::Permanent,
                    code,
                    format!("Job {name} failed; the end of its log: {log}"),
                    "mend what its log names (kubectl logs tells all of it), and retry the run",
                )
                .into())
            }
        }
    }

    /// A Job whose name holds a digest of all that it is made from: what was done is not done again, and what changed is another Job.
    async fn run_once(
        &self,
        release: Release,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<Ran, Ended> {
        let state = self.site().state(&release.secrets()).await?;
        let release = release.settled(&state);
        let name = release.job();
        let jobs: Api<ClusterJob> = Api::namespaced(self.work.client.clone(), &self.namespace());
        let there = jobs
            .get_opt(&name)
            .await
            .map_err(|error| call(format!("read Job {name}"), &error))?;
        if there.as_ref().is_some_and(|job| ended(job, "Failed")) {
            // Whoever retries wants it to be tried.
            self.about(&audit::removed(&audit::object("Job", &name)))?;
            let deleted = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Foreground),
                ..DeleteParams::default()
            };
            gone(jobs.delete(&name, &deleted).await)
                .map_err(|error| call(format!("delete Job {name}"), &error))?;
            until(step, context, || async {
                let left = jobs.get_opt(&name).await;
                let left = left.map_err(|error| call(format!("read Job {name}"), &error))?;
                Ok(match left {
                    Some(_) => Seen::Missing(format!("Job {name} of an earlier attempt goes")),
                    None => Seen::There(()),
                })
            })
            .await?;
        } else if there.as_ref().is_some_and(|job| ended(job, "Complete")) {
            return Ok(Ran::Before(name));
        }
        // A run that gave way may have left one at work, of this step or of one that is gone by now: two would change the same tables at once,
        // and Helm would end the older in the middle of that.
        let label = selector(&self.labels());
        until(step, context, || async {
            Ok(match self.at_work(&label, &name).await? {
                Some(pod) => Seen::Missing(format!(
                    "pod {pod} of an earlier run ends; who will not wait deletes its Job"
                )),
                None => Seen::There(()),
            })
        })
        .await?;
        self.release(&release).await?;
        until(step, context, || async {
            let job = jobs.get_opt(&name).await;
            let job = job.map_err(|error| call(format!("read Job {name}"), &error))?;
            let Some(job) = job else {
                return Err(transient(
                    "JobGone",
                    format!("Job {name} is gone: somebody deleted it"),
                ));
            };
            if ended(&job, "Complete") {
                return Ok(Seen::There(Ran::Well(name.clone())));
            }
            if ended(&job, "Failed") {
                let code = if is_late(&job) { JOB_LATE } else { JOB_FAILED };
                return Ok(Seen::There(Ran::Badly(name.clone(), code)));
            }
            Ok(Seen::Missing(format!(
                "Job {name}: {}",
                self.pods(&of_job(&name)).await?
            )))
        })
        .await
    }

    /// Makes the pods of a component what they should be.
    pub(super) async fn deploy(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        component: &str,
    ) -> Done {
        if component == API {
            self.note_lifetimes(inputs, definition).await?;
        }
        let release = self.subject().component(inputs, definition, component);
        let release = release.ok_or_else(|| {
            let what = format!("{} has no component {component}", definition.name);
            config("UnknownAction", what, "let the operator plan anew")
        })?;
        // Pods read their environment when they start, and not again: where it changed, they are others.
        let state = self.site().state(&release.secrets()).await?;
        self.release(&release.settled(&state)).await
    }

    /// Makes the pods of all components what they should be, one component after the other.
    pub(super) async fn deploy_all(
        &self,
        (inputs, definition): (&Inputs, &Definition),
        step: &Step,
        context: &mut StepContext,
    ) -> Result<(), Ended> {
        for component in inputs.started() {
            self.deploy(inputs, definition, component).await?;
            self.await_pods(component, step, context).await?;
        }
        Ok(())
    }

    /// Ends the components that are wanted no longer, before anything of the others is changed: they would work on with files and tables
    /// of before, and hold a volume where it is.
    pub(super) async fn end_unwanted(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<(), Ended> {
        let started = inputs.started();
        for component in definition.components.keys() {
            if !started.contains(&component.as_str()) {
                let release = names::component(self.name(), component);
                self.remove_release(&release).await?;
                self.await_end(component, step, context).await?;
            }
        }
        Ok(())
    }

    /// Waits until no pod of a component is left.
    pub(super) async fn await_end(
        &self,
        component: &str,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<(), Ended> {
        let label = selector(&self.part(component));
        until(step, context, || async {
            let pods = self.list(&label).await?;
            Ok(match pods.first() {
                Some(pod) => Seen::Missing(format!("pod {} ends", pod.name_any())),
                None => Seen::There(()),
            })
        })
        .await
    }

    pub(super) async fn await_pods(
        &self,
        component: &str,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let name = names::component(self.name(), component);
        let api = Api::<Deployment>::namespaced(self.work.client.clone(), &self.namespace());
        let label = selector(&self.part(component));
        until(step, context, || async {
            let found = api.get_opt(&name).await;
            let found = found.map_err(|error| call(format!("read Deployment {name}"), &error))?;
            let Some(deployment) = found else {
                return Ok(Seen::Missing(format!("Deployment {name} is not there")));
            };
            let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            let wanted = wanted.unwrap_or(1);
            let status = deployment.status.clone().unwrap_or_default();
            let is_seen = status.observed_generation >= deployment.metadata.generation;
            let of = |count: Option<i32>| count.unwrap_or_default();
            let (all, updated) = (of(status.replicas), of(status.updated_replicas));
            let available = of(status.available_replicas);
            if is_seen && updated >= wanted && available >= wanted && all == updated {
                return Ok(Seen::There(Some(format!("{available} of {wanted} serve"))));
            }
            let pods = self.pods_and_words(&label, &BTreeSet::new()).await?;
            Ok(Seen::Missing(format!(
                "{available} of {wanted} serve: {pods}"
            )))
        })
        .await
    }

    pub(super) async fn deploy_server(&self, inputs: &cloud::Inputs) -> Done {
        match self.subject().server(inputs) {
            Some(release) => self.release(&release).await,
            None => Ok(None),
        }
    }

    pub(super) async fn await_server(&self, step: &Step, context: &mut StepContext) -> Done {
        let name = database_server(self.name());
        self.await_set(&name, "mariadb", step, context).await
    }

    pub(super) async fn deploy_memcached(&self, inputs: &cloud::Inputs) -> Done {
        match self.subject().memcached(inputs) {
            Some(release) => self.release(&release).await,
            None => Ok(None),
        }
    }

    pub(super) async fn await_memcached(&self, step: &Step, context: &mut StepContext) -> Done {
        let name = memcached_server(self.name());
        self.await_set(&name, "memcached", step, context).await
    }

    pub(super) async fn remove_memcached(&self) -> Done {
        self.remove_release(&memcached_server(self.name())).await?;
        Ok(None)
    }

    /// Has what a memcached keeps be of what the services tell from now on.
    pub(super) async fn empty_memcached(&self, step: &Step, context: &mut StepContext) -> Done {
        let name = memcached_server(self.name());
        let pods = Api::<Pod>::namespaced(self.work.client.clone(), &self.namespace());
        let own = ListParams::default().labels(&selector(&self.part("memcached")));
        self.about(&audit::removed(&audit::object("Pod", &format!("{name}-0"))))?;
        let deleted = pods.delete_collection(&DeleteParams::default(), &own).await;
        deleted.map_err(|error| call(format!("delete the pod of {name}"), &error))?;
        self.await_memcached(step, context).await
    }

    pub(super) async fn deploy_messaging(&self, inputs: &cloud::Inputs) -> Done {
        match self.subject().rabbitmq(inputs) {
            Some(release) => self.release(&release).await,
            None => Ok(None),
        }
    }

    pub(super) async fn await_messaging(&self, step: &Step, context: &mut StepContext) -> Done {
        let name = rabbitmq_server(self.name());
        self.await_set(&name, "rabbitmq", step, context).await
    }

    pub(super) async fn remove_messaging(&self, inputs: &cloud::Inputs) -> Done {
        let name = rabbitmq_server(self.name());
        self.remove_release(&name).await?;
        if inputs.drop {
            self.remove_secret(&names::secret(&name, "admin")).await?;
        }
        Ok(None)
    }

    async fn await_set(
        &self,
        name: &str,
        part: &str,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let api = Api::<StatefulSet>::namespaced(self.work.client.clone(), &self.namespace());
        let label = selector(&self.part(part));
        let secrets = BTreeSet::from([names::secret(name, "admin")]);
        until(step, context, || async {
            let found = api.get_opt(name).await;
            let found = found.map_err(|error| call(format!("read StatefulSet {name}"), &error))?;
            if let Some(found) = found {
                if controller::Rollout::of_stateful_set(&found).is_done() {
                    return Ok(Seen::There(None));
                }
                self.end_stuck(&found, &label).await?;
            }
            Ok(Seen::Missing(format!(
                "StatefulSet {name}: {}",
                self.pods_and_words(&label, &secrets).await?
            )))
        })
        .await
    }

    pub(super) async fn remove_server(&self, inputs: &cloud::Inputs) -> Done {
        let name = database_server(self.name());
        self.remove_release(&name).await?;
        if inputs.drop {
            self.remove_secret(&names::secret(&name, "admin")).await?;
        }
        Ok(None)
    }

    /// Those of its name: pods first, of each component before those that it waited for.
    pub(super) async fn remove_releases(&self, step: &Step, context: &mut StepContext) -> Done {
        let found = self
            .secrets()
            .list_metadata(&ListParams::default().labels("owner=helm"))
            .await
            .map_err(|error| call("list the releases", &error))?;
        let own = format!("{}-", self.name());
        // Hooks that were taken out since have left theirs.
        let hooks = names::step(self.name(), hooks::PREFIX);
        let mut releases: Vec<_> = found
            .items
            .iter()
            .filter_map(|secret| secret.labels().get("name").cloned())
            .filter(|name| {
                let is_own = self.release_names().contains(name) && name.starts_with(&own);
                is_own || name.starts_with(&hooks)
            })
            .collect();
        releases.sort();
        releases.dedup();
        if let super::Of::Service(of) = &self.of {
            releases.sort_by_key(|release| of.0.teardown_rank(self.name(), release));
        }
        for release in releases {
            super::boundary(step, context).await?;
            self.remove_release(&release).await?;
        }
        Ok(None)
    }

    /// Of the steps of the service as it is now.
    fn release_names(&self) -> Vec<String> {
        let super::Of::Service(of) = &self.of else {
            return Vec::new();
        };
        let jobs = of.1.steps.iter().filter_map(|step| match &step.does {
            Action::CheckConfig => Some(names::step(self.name(), &step.id)),
            // A hook stands instead of some, with a release of their name.
            does if does.is_replaceable() => Some(names::step(self.name(), &step.id)),
            _ => None,
        });
        let by_hand = of.1.by_hand.iter();
        let reseals = by_hand.filter(
            |step| matches!(&step.does, Action::RotateKeys(keys) if !keys.reseal.is_empty()),
        );
        let reseals = reseals.map(|step| names::step(self.name(), &step.id));
        let components = of.1.components.keys().flat_map(|component| {
            let check = names::step(self.name(), &components::check_id(component));
            [names::component(self.name(), component), check]
        });
        components.chain(jobs).chain(reseals).collect()
    }

    /// Makes a release what it should be. One that is so already is left alone.
    async fn release(&self, release: &Release) -> Done {
        let Release {
            name: release,
            chart,
            values,
        } = release;
        let helm = self.helm().await?;
        let namespace = self.namespace();
        let place = Place {
            namespace: &namespace,
            release,
        };
        let held = self.lock(place).await?;
        if self.whose(place).await? == Whose::Another {
            let what = format!("release {release} is there already, and is not of this object");
            let remedy = "remove it (helm uninstall), or give the object another name";
            return Err(config("Taken", what, remedy).into());
        }
        self.recover(place).await?;
        let is_kept = chart.is_kept() && self.drill_of.is_none();
        let chart = chart
            .unpack()
            .map_err(|error| transient("Disk", format!("failed to write a chart: {error}")))?;
        let change = Change {
            chart: chart.path(),
            values,
        };
        let history = self.history(place).await?;
        if is_kept {
            self.keeps_edits(&helm, place, change, &history).await?;
        }
        self.about(&audit::release(release))?;
        let revision = history.last().map_or(0, Record::revision) + 1;
        helm.upgrade_as(&held, change, revision, DEADLINE)
            .await
            .map_err(|error| said(&error))?;
        self.note_objects(place, values).await?;
        Ok(Some(format!("release {release}")))
    }

    /// What a release was made of, by what Helm keeps of it.
    async fn note_objects(&self, place: Place<'_>, values: &Value) -> Result<(), Failure> {
        let history = self.history(place).await?;
        let manifest = history.last().map_or("", |last| last.manifest());
        for object in objects(manifest)? {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let mut name = text(&object["metadata"]["name"]);
            if let Some(digest) = values["digest"].as_str() {
                name = name.replace(digest, audit::DIGEST);
            }
            self.note(&audit::object(&text(&object["kind"]), &name))?;
        }
        Ok(())
    }

    pub(super) async fn remove_release(&self, release: &str) -> Result<(), Failure> {
        let helm = self.helm().await?;
        let namespace = self.namespace();
        let place = Place {
            namespace: &namespace,
            release,
        };
        let held = self.lock(place).await?;
        if self.whose(place).await? != Whose::Own {
            return Ok(());
        }
        self.recover(place).await?;
        self.about(&audit::removed(&audit::release(release)))?;
        helm.uninstall(&held, DEADLINE)
            .await
            .map_err(|error| said(&error))
    }

    /// Whose a release is, by the labels that it was made with.
    async fn whose(&self, place: Place<'_>) -> Result<Whose, Failure> {
        let history = self.history(place).await?;
        let Some(last) = history.last() else {
            return Ok(Whose::Nobody);
        };
        let labels = last.values()["labels"].clone();
        let labels: std::collections::BTreeMap<String, String> =
            serde_json::from_value(labels).unwrap_or_default();
        Ok(if self.is_own(&labels) {
            Whose::Own
        } else {
            Whose::Another
        })
    }

    async fn history(&self, place: Place<'_>) -> Result<Vec<Record>, Failure> {
        let history = record::history(&self.work.client, place.namespace, place.release).await;
        history.map_err(|error| transient("Release", controller::chain(&error)))
    }

    async fn helm(&self) -> Result<Helm, Failure> {
        let kubeconfig = self.engine.kubeconfig.as_deref();
        Helm::find(&self.engine.helm, kubeconfig)
            .await
            .map_err(|error| {
                config(
                    "Helm",
                    format!("failed to {}", controller::chain(&error)),
                    "install Helm 3.14 or later, or name it with --helm, and retry the run",
                )
            })
    }

    async fn lock(&self, place: Place<'_>) -> Result<lock::Held, Failure> {
        let locks = self.work.layout.root().join("helm");
        lock::hold(&locks, place).await.map_err(|error| {
            transient(
                "Disk",
                format!("failed to lock release {}: {error}", place.release),
            )
        })
    }

    /// With the Lease and the lock held nobody is at work on it.
    async fn recover(&self, place: Place<'_>) -> Result<(), Failure> {
        record::recover(&self.work.client, place.namespace, place.release)
            .await
            .map(drop)
            .map_err(|error| transient("Release", controller::chain(&error)))
    }

    /// On everything that is made for a part of the object.
    pub(super) fn part(&self, part: &str) -> std::collections::BTreeMap<String, String> {
        self.subject().part(part)
    }
}

/// What selects those with all of these labels.
pub(super) fn selector(labels: &std::collections::BTreeMap<String, String>) -> String {
    let labels: Vec<_> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    labels.join(",")
}

/// The objects of a release.
pub(super) fn objects(manifest: &str) -> Result<Vec<Value>, Failure> {
    serde_saphyr::from_multiple(manifest)
        .map_err(|error| transient("Release", format!("failed to read what it is: {error}")))
}

/// How a Job went, with its name.
enum Ran {
    /// Well, and before.
    Before(String),
    /// Well.
    Well(String),
    /// It failed, with the code that tells how.
    Badly(String, &'static str),
}

/// A check that ended without a verdict, as one does whose node goes.
fn lost(job: &str, log: &str) -> Ended {
    let end: Vec<_> = log.lines().rev().take(3).collect();
    let end = end.into_iter().rev().collect::<Vec<_>>().join("; ");
    transient(
        "CheckLost",
        format!("Job {job} ended without a verdict, and said at last: {end}"),
    )
    .into()
}

/// What selects the pods of a Job.
fn of_job(name: &str) -> String {
    format!("batch.kubernetes.io/job-name={name}")
}

/// Whose a release is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Whose {
    /// There is none.
    Nobody,
    /// The run's subject.
    Own,
    /// Somebody else.
    Another,
}

pub(super) fn said(error: &helm::program::Error) -> Failure {
    let message = format!("failed to {}", controller::chain(error));
    transient("Helm", message)
}

fn ended(job: &ClusterJob, how: &str) -> bool {
    let conditions = job
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == how && condition.status == "True")
}

fn is_late(job: &ClusterJob) -> bool {
    let status = job.status.as_ref();
    let mut conditions = status
        .into_iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.reason.as_deref() == Some("DeadlineExceeded"))
}

/// What the end of a Job is to people who wrote it.
fn of_hook(hook: &HookJob, job: &Failure) -> Failure {
    let HookJob { name, step, .. } = hook;
    let (code, remedy) = if job.code == JOB_LATE {
        (
            "HookTimedOut",
            "see what it waits for, or give it more time in spec.hooks; then retry the run, or skip its step with a reason",
        )
    } else {
        (
            "HookFailed",
            "mend what its log names (kubectl logs tells all of it), and retry the run, or skip its step with a reason",
        )
    };
    let message = format!("hook {name} at {step}: {}", job.message);
    failure(job.class, code, message, remedy)
}
