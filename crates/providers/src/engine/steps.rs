//! The steps.

use std::{collections::BTreeSet, time::Duration};

use api::run::{Failure, Step};
use clusterctl::{Object, rights::Rule};
use k8s_openapi::{
    api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, api::PostParams};
use runs::calls::{Ended, Seen, boundary, call, config, tell, until};
use tokio::time::{sleep, timeout};
use workflow::{StepContext, StepOutcome};

use super::{
    Installer,
    calls::HEARD,
    done, material,
    objects::{self, Effect, Resources},
    prune,
};
use crate::{action::Action, certificates, drift, health, render, rights};

/// How long between two looks at a definition.
const LOOK: Duration = Duration::from_millis(100);
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
                self.remove(&there, &wanted, step, context).await
            }
            Action::DeleteObjects => self.remove(&there, &BTreeSet::new(), step, context).await,
            Action::RecordInventory => {
                let effect = self.record(&there).await?;
                self.note(&there).await?;
                Ok(counted([effect]))
            }
            Action::ForgetInventory => {
                self.forget_applied(&there).await?;
                self.forget(&there).await?;
                Ok(done([]))
            }
        }
    }

    /// That the cluster answers, and has what the manifests need and do not bring along.
    async fn preflight(&self, there: &Client) -> Result<StepOutcome, Ended> {
        let objects = self.objects(there).await?;
        let served = material::discover(there).await?;
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
            return Ok(done([("objects", objects.len())]));
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
        let mut effects = Vec::with_capacity(objects.len());
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
            effects.push(objects::apply(&api, object).await?);
        }
        let definitions: Vec<_> = objects.into_iter().filter(render::is_definition).collect();
        self.established(there, &definitions).await?;
        Ok(counted(effects))
    }

    /// Waits until definitions are served: their objects come next.
    pub(super) async fn established(
        &self,
        there: &Client,
        definitions: &[Object],
    ) -> Result<(), Ended> {
        let api = Api::<CustomResourceDefinition>::all(there.clone());
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

    /// The step's own timeout ends the wait.
    async fn await_ready(
        &self,
        there: &Client,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        let label = self.provider.manifest_label();
        until(step, context, || async {
            let health = health::look(there, &label)
                .await
                .map_err(|error| call("see how the provider stands", &error))?;
            if !health.is_well() {
                return Ok(Seen::Missing(health.message()));
            }
            Ok(Seen::There(done([
                ("workloads", health.workloads),
                ("definitions", health.definitions),
            ])))
        })
        .await
    }

    async fn remove(
        &self,
        there: &Client,
        wanted: &BTreeSet<prune::Key>,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        let label = self.provider.manifest_label();
        let noted = drift::noted(there, &self.work.namespace(), &label)
            .await
            .map_err(|error| call("read what was applied", &error))?;
        // Of one that cannot be read the provider's status tells.
        let noted = noted.and_then(Result::ok).unwrap_or_default();
        let found = prune::find(there, &label, &noted).await?;
        let surplus = prune::surplus(found, wanted);
        for found in &surplus {
            boundary(step, context).await?;
            self.held()?;
            prune::remove(there, found).await?;
        }
        Ok(done([("removed", surplus.len())]))
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
