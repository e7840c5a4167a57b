//! The steps.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use api::run::{Failure, Step};
use clusterctl::{Object, rights::Rule};
use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use kube::{Api, Client, api::PostParams};
use runs::calls::{Ended, Seen, boundary, call, config, tell, until};
use tokio::time::{sleep, timeout};
use workflow::{StepContext, StepOutcome};

use super::{
    Installer,
    calls::HEARD,
    done, material,
    objects::{self, Effect, Resources},
    prune, takeover,
};
use crate::{
    action::Action, certificates, health, operation::Operation, outline::Outline, render, rights,
};

/// How long between two looks at a definition.
const LOOK: Duration = Duration::from_millis(100);
/// What is told of an upgrade of what somebody else installed may be of every object.
const LONGEST_DETAIL: usize = 2048;
/// How long workloads may take to be ready: images are pulled.
const READY_WITHIN: Duration = Duration::from_mins(15);
/// How long definitions may take to be served.
const ESTABLISHING: Duration = Duration::from_mins(1);

impl Installer {
    /// Executes a step.
    pub(super) async fn do_action(
        &self,
        action: Action,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        boundary(step, context).await?;
        if action == Action::Fetch {
            let material = self.material().await?;
            return Ok(done([("bytes", material.components.len())]));
        }
        let there = self.there().await?;
        match action {
            Action::Fetch | Action::Render => {
                let rendered = self.rendered(&there).await?;
                let outcome = done([("objects", rendered.objects.len())]);
                Ok(telling(outcome, "without effect", &rendered.notices))
            }
            Action::Preflight => self.preflight(&there).await,
            Action::ApplyDefinitions => {
                let objects = self.those(&there, render::comes_first).await?;
                let objects = self.calling_as_before(&there, objects).await?;
                self.apply(&there, step, context, objects).await
            }
            Action::ApplyObjects => {
                let objects = self.those(&there, render::is_plain).await?;
                self.apply(&there, step, context, objects).await
            }
            Action::IssueCertificates => self.issue(&there).await,
            Action::ApplyAdmission => {
                let objects = self.those(&there, render::is_called_by).await?;
                if self.calls_anew(&there, &objects).await? {
                    sleep(HEARD).await;
                }
                self.apply(&there, step, context, objects).await
            }
            Action::MigrateDropped => self.migrate_dropped(&there, step, context).await,
            Action::Migrate => self.migrate(&there, step, context).await,
            Action::AwaitReady => self.await_ready(&there, step, context).await,
            Action::Prune => {
                let mut wanted: BTreeSet<_> =
                    self.objects(&there).await?.iter().map(prune::key).collect();
                wanted.extend(self.secrets(&there).await?);
                let surplus = prune::surplus(self.found(&there).await?, &wanted);
                self.remove(&there, surplus, step, context).await
            }
            Action::ReleaseObjects => self.release(&there, step, context).await,
            Action::DeleteObjects => {
                let mut found = self.found(&there).await?;
                // What somebody else installed, and no run has taken over, is not to go with a provider that came to nothing.
                if !self.has_applied(&there).await? {
                    found.retain(|found| takeover::is_ours(found.meta()));
                }
                self.remove(&there, found, step, context).await
            }
            Action::RecordInventory => {
                let effect = self.record(&there).await?;
                self.note(&there).await?;
                Ok(counted(effect))
            }
            Action::ForgetInventory => {
                self.forget(&there).await?;
                self.forget_applied(&there).await?;
                Ok(done([]))
            }
        }
    }

    /// That the cluster answers, and has what the manifests need and do not bring along.
    async fn preflight(&self, there: &Client) -> Result<StepOutcome, Ended> {
        let objects = self.objects(there).await?;
        let served = material::discover(there).await?;
        if self.work.run.spec.operation == Operation::Install.name() {
            self.follows(there, &served).await?;
        }
        let definitions = objects
            .iter()
            .filter(|object| render::is_definition(object));
        let brought: BTreeSet<_> = definitions.filter_map(group_of).collect();
        let is_missing = |group: &&str| {
            !group.is_empty() && !served.has_group(group) && !brought.contains(group)
        };
        let missing: BTreeSet<_> = objects
            .iter()
            .map(Object::group)
            .filter(is_missing)
            .collect();
        if missing.is_empty() {
            self.allowed(there, &objects).await?;
            let (right, otherwise) = self.foreseen(there, &served, &objects).await?;
            let outcome = done([("objects", objects.len()), ("unchanged", right)]);
            return Ok(telling(outcome, "to be taken over", &otherwise));
        }
        let remedy = if missing.contains(certificates::GROUP) {
            "install cert-manager in that cluster, and retry the run"
        } else {
            "install what serves them, and retry the run"
        };
        let missing: Vec<_> = missing.into_iter().collect();
        let message = format!(
            "the manifests need API groups that the cluster does not serve: {}",
            missing.join(", ")
        );
        Err(config("MissingGroups", message, remedy).into())
    }

    /// That all of them may be written, before the first one is.
    async fn allowed(&self, there: &Client, objects: &[Object]) -> Result<(), Failure> {
        let namespace = self.work.namespace();
        let secrets = self.secrets(there).await?.into_iter();
        let secrets = secrets.map(|(_, _, _, name)| name);
        let needed = rights::of(&self.provider.manifest_label(), objects, secrets).rules;
        let review = SelfSubjectRulesReview {
            spec: SelfSubjectRulesReviewSpec {
                namespace: Some(namespace),
            },
            ..SelfSubjectRulesReview::default()
        };
        let reviewed = Api::<SelfSubjectRulesReview>::all(there.clone())
            .create(&PostParams::default(), &review)
            .await
            .map_err(|error| call("ask what the operator may do", &error))?;
        let held = reviewed.status.as_ref().and_then(rights::held);
        let missing = held.map(|held| Rule::missing(&needed, &held));
        match missing {
            Some(missing) if !missing.is_empty() => Err(rights::lacking(&self.provider, &missing)),
            _ => Ok(()),
        }
    }

    /// Some of the objects.
    async fn those(
        &self,
        there: &Client,
        is_meant: fn(&Object) -> bool,
    ) -> Result<Vec<Object>, Failure> {
        let objects = self.objects(there).await?.into_iter();
        Ok(objects.filter(is_meant).collect())
    }

    async fn apply(
        &self,
        there: &Client,
        step: &Step,
        context: &mut StepContext,
        objects: Vec<Object>,
    ) -> Result<StepOutcome, Ended> {
        let mut resources = Resources::default();
        let released = self.released(there).await?;
        let (mut effects, mut taken) = (Vec::with_capacity(objects.len()), Vec::new());
        for (at, object) in objects.iter().enumerate() {
            boundary(step, context).await?;
            tell(
                step,
                context,
                &format!("{} of {}: {}", at + 1, objects.len(), object.title()),
            )
            .await?;
            let api = resources.api(there, object).await?;
            self.held()?;
            let put = objects::apply(&api, object, released.get(&prune::key(object))).await?;
            effects.push(put.effect);
            if !put.taken.is_empty() {
                taken.push(takeover::told(object, &put.taken));
            }
        }
        let definitions: Vec<_> = objects.into_iter().filter(render::is_definition).collect();
        self.established(there, &definitions).await?;
        Ok(telling(counted(effects), "taken over", &taken))
    }

    /// Waits until definitions are served: their objects come next.
    pub(super) async fn established(
        &self,
        there: &Client,
        definitions: &[Object],
    ) -> Result<(), Ended> {
        let api = Api::<Outline>::all(there.clone());
        for definition in definitions {
            let established = async {
                loop {
                    let found = api.get_opt(definition.name()).await;
                    let found = found
                        .map_err(|error| call(format!("read {}", definition.title()), &error))?;
                    if found.as_ref().is_some_and(health::is_established) {
                        return Ok::<_, Ended>(());
                    }
                    sleep(LOOK).await;
                }
            };
            timeout(ESTABLISHING, established).await.map_err(|_| {
                let message = format!(
                    "{} is not served after {} s",
                    definition.title(),
                    ESTABLISHING.as_secs()
                );
                config(
                    "NotEstablished",
                    message,
                    "its conditions say why; mend it, and retry the run",
                )
            })??;
        }
        Ok(())
    }

    /// The wait ends with the time that it has, or when a Deployment says that its own has passed. Where that had passed before anything was
    /// waited for, as where somebody retries the step, it says nothing of what is waited for.
    async fn await_ready(
        &self,
        there: &Client,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        let label = self.provider.manifest_label();
        let was_in_time = AtomicBool::new(false);
        let ready = until(step, context, || async {
            let found = health::find(there, &label)
                .await
                .map_err(|error| call("see how the provider stands", &error))?;
            let health = found.health();
            if health.is_well() {
                return Ok(Seen::There(done([
                    ("workloads", health.workloads),
                    ("definitions", health.definitions),
                ])));
            }
            if !found.is_overdue() {
                was_in_time.store(true, Ordering::Relaxed);
            } else if was_in_time.load(Ordering::Relaxed) {
                return Err(self.not_ready("by its own progressDeadlineSeconds", &health.message()));
            }
            Ok(Seen::Missing(health.message()))
        });
        match timeout(READY_WITHIN, ready).await {
            Ok(ended) => ended,
            Err(_) => Err(self.not_ready_in_time(there).await.into()),
        }
    }

    /// What was waited for long enough would not come by waiting once more.
    async fn not_ready_in_time(&self, there: &Client) -> Failure {
        let seen = health::look(there, &self.provider.manifest_label()).await;
        let seen = seen.map_or_else(|error| controller::chain(&error), |health| health.message());
        let minutes = READY_WITHIN.as_secs() / 60;
        self.not_ready(&format!("after {minutes} minutes"), &seen)
    }

    fn not_ready(&self, when: &str, seen: &str) -> Failure {
        let version = &self.inputs.version;
        config(
            "NotReady",
            format!("{version} is not ready {when}: {seen}"),
            "mend what is named and retry the run, or correct the spec",
        )
    }

    /// Everything of the provider that may be removed.
    async fn found(&self, there: &Client) -> Result<Vec<prune::Found>, Failure> {
        let noted = self.noted(there).await?.unwrap_or_default();
        prune::find(there, &self.provider.manifest_label(), Some(&noted)).await
    }

    async fn remove(
        &self,
        there: &Client,
        found: Vec<prune::Found>,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        let keeper = |found: &prune::Found| found.keeper(&self.work.run.spec.subject);
        let (kept, surplus): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|found| keeper(found).is_some());
        for found in &surplus {
            boundary(step, context).await?;
            self.held()?;
            prune::remove(there, found).await?;
        }
        let kept: Vec<_> = kept
            .iter()
            .filter_map(|found| Some(format!("{} of {}", found.title(), keeper(found)?)))
            .collect();
        let outcome = done([("removed", surplus.len()), ("kept", kept.len())]);
        Ok(telling(outcome, "left to who keeps it", &kept))
    }
}

/// The same, with what people should know of it.
pub(super) fn telling(outcome: StepOutcome, what: &str, notices: &[String]) -> StepOutcome {
    match outcome {
        StepOutcome::Succeeded {
            results,
            unreachable,
            detail: None,
        } if !notices.is_empty() => {
            let detail = format!("{what}: {}", notices.join("; "));
            let detail = api::text::lines(&detail, LONGEST_DETAIL);
            StepOutcome::Succeeded {
                results,
                unreachable,
                detail: Some(detail),
            }
        }
        outcome => outcome,
    }
}

/// The group that a definition brings along.
fn group_of(definition: &Object) -> Option<&str> {
    definition.value().pointer("/spec/group")?.as_str()
}

fn counted(effects: impl IntoIterator<Item = Effect>) -> StepOutcome {
    let [mut created, mut changed, mut unchanged] = [0; 3];
    for effect in effects {
        match effect {
            Effect::Created => created += 1,
            Effect::Changed => changed += 1,
            Effect::Unchanged => unchanged += 1,
        }
    }
    done([
        ("created", created),
        ("changed", changed),
        ("unchanged", unchanged),
    ])
}
