//! The steps.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use api::run::{Failure, Step};
use clusterctl::{Object, rights::Rule};
use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use kube::{Api, Client, api::PostParams, core::GroupVersionKind, discovery::Discovery};
use runs::calls::{Ended, Seen, boundary, call, config, until};
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
    action::Action,
    certificates,
    drift::Applied,
    health,
    operation::Operation,
    outline::{Outline, OutlineSpec},
    render, rights,
    set::back::{self, Back},
};

/// How long between two looks at a definition.
const LOOK: Duration = Duration::from_millis(100);
/// What is told of an upgrade of what somebody else installed may be of every object.
const LONGEST_DETAIL: usize = 2048;
/// How often a kind is tried that the provider may have nothing of.
const TRIES: u32 = 3;
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
        // What they are is hidden in what each step tells, whether it needs them or not.
        if action.writes() && self.hidden.get().is_none() {
            self.variables().await?;
        }
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
                self.prune(&there, &wanted, step, context).await
            }
            Action::ReleaseObjects => self.release(&there, step, context).await,
            Action::DeleteObjects => self.delete(&there, step, context).await,
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
            self.may_go_back(there, &objects).await?;
            self.may_change(there, &served, &objects).await?;
            let (right, otherwise) = self.foreseen(there, &served, &objects).await?;
            let outcome = done([("objects", objects.len()), ("unchanged", right)]);
            return Ok(telling(outcome, "to be taken over", &otherwise));
        }
        let remedy = if missing.contains(certificates::GROUP) {
            "install cert-manager in that cluster, and retry the run"
        } else {
            "install what serves them, and retry the run"
        };
        let written = self.written().await?;
        let (told, made): (Vec<_>, Vec<_>) = missing
            .into_iter()
            .partition(|group| written.contains(*group));
        let made = (!made.is_empty()).then(|| format!("{} whose names variables make", made.len()));
        let told = told.into_iter().map(str::to_owned).chain(made);
        let message = format!(
            "the manifests need API groups that the cluster does not serve: {}",
            told.collect::<Vec<_>>().join(", ")
        );
        Err(config("MissingGroups", message, remedy).into())
    }

    /// That no object loses a field by it that a newer version has brought, and none is stored in a version that nobody would know any more.
    async fn may_go_back(&self, there: &Client, objects: &[Object]) -> Result<(), Failure> {
        let newer = self.inputs.goes_back_from.as_ref();
        // Nobody else's definitions are expected where a version follows the one that is there.
        if newer.is_none() && self.work.run.spec.operation == Operation::Upgrade.name() {
            return Ok(());
        }
        let label = self.provider.manifest_label();
        let looked = back::look_at(there, &label, objects).await;
        let Back::Closed(why) = looked.map_err(|unseen| call(unseen.what, &unseen.source))? else {
            return Ok(());
        };
        let version = &self.inputs.version;
        let message = match newer {
            Some(newer) => format!(
                "there is no way back to {version} from {newer}, whose definitions are there: {why}"
            ),
            None => format!("definitions that are there are not those of {version}: {why}"),
        };
        Err(config(
            "NoWayBack",
            message,
            "go on to a version that knows these, or change these objects, and retry the run",
        ))
    }

    /// That the API takes each over the one that is there, before definitions are of another version: fields that it never changes, as the selector
    /// of a Deployment, are a person's to mend. Bindings are made anew, but for those that a person applies.
    async fn may_change(
        &self,
        there: &Client,
        served: &Discovery,
        objects: &[Object],
    ) -> Result<(), Failure> {
        let rights = rights::of(&self.provider.manifest_label(), objects, []);
        let is_by_hand = |object: &Object| {
            let mut by_hand = rights.by_hand.iter();
            by_hand.any(|one| one.object.title() == object.title())
        };
        let mut resources = Resources::default();
        let mut refused = redefined(there, objects).await?;
        for object in objects.iter().filter(|one| is_built_in(one.group())) {
            let kind = GroupVersionKind::gvk(object.group(), object.version(), object.kind());
            if render::comes_first(object) || served.resolve_gvk(&kind).is_none() {
                continue;
            }
            let api = resources.api(there, object).await?;
            let before = api.get_metadata_opt(object.name()).await;
            let before =
                before.map_err(|error| call(format!("read {}", object.title()), &error))?;
            if before.is_none() {
                continue;
            }
            if objects::bound_otherwise(&api, object).await?.is_some() {
                refused.extend(is_by_hand(object).then(|| format!("{} (roleRef)", object.title())));
            } else {
                refused.extend(objects::refused(&api, object).await?);
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        Err(config(
            "Unchangeable",
            format!(
                "the API does not take what version {} has for what is there: {}",
                self.inputs.version,
                refused.join("; ")
            ),
            "delete these by hand at a time that suits, and retry the run at once, which makes them anew; or patch these fields back to what is there",
        ))
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
        self.begin_objects(there, &objects).await?;
        let mut resources = Resources::default();
        let released = self.released(there).await?;
        let (mut effects, mut taken) = (Vec::with_capacity(objects.len()), Vec::new());
        for (at, object) in objects.iter().enumerate() {
            boundary(step, context).await?;
            let what = format!("{} of {}: {}", at + 1, objects.len(), object.title());
            self.tell(step, context, &what).await?;
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
            let message = self.hidden_text(&health.message());
            if health.is_well() {
                return Ok(Seen::There(done([
                    ("workloads", health.workloads),
                    ("definitions", health.definitions),
                ])));
            }
            if !found.is_overdue() {
                was_in_time.store(true, Ordering::Relaxed);
            } else if was_in_time.load(Ordering::Relaxed) {
                return Err(self.not_ready("by its own progressDeadlineSeconds", &message));
            }
            Ok(Seen::Missing(message))
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

    /// Removes what is none of `wanted`.
    async fn prune(
        &self,
        there: &Client,
        wanted: &BTreeSet<prune::Key>,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        let noted = self.noted(there).await?;
        let record = noted.clone().unwrap_or_default();
        let is_known = known((&record, noted.is_some()), wanted, context);
        let label = self.provider.manifest_label();
        let (found, unseen) = prune::removable(there, &label, &record, is_known).await?;
        let surplus = prune::surplus(found, wanted);
        let keeper =
            |found: &prune::Found| found.keeper(&self.work.run.spec.subject, noted.as_ref());
        self.remove(there, (surplus, unseen), keeper, step, context)
            .await
    }

    /// Removes what runs of this object have applied, or those of one before it that have left a record. What somebody else installed, and no run
    /// has taken over, is not to go with a provider that came to nothing, nor what is another provider's.
    async fn delete(
        &self,
        there: &Client,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        let noted = self.noted(there).await?;
        let begun = if noted.is_none() {
            self.begun(there).await?
        } else {
            Applied::default()
        };
        let record = noted.as_ref().unwrap_or(&begun);
        let is_known = known((record, noted.is_some()), &BTreeSet::new(), context);
        let label = self.provider.manifest_label();
        let (mut found, unseen) = prune::removable(there, &label, record, is_known).await?;
        if noted.is_none() {
            found.retain(|found| takeover::is_ours(found.meta()));
        }
        let keeper = |found: &prune::Found| {
            if noted.is_none() && !self.inputs.was_installed && !found.is_in(&begun) {
                return Some("another installation".to_owned());
            }
            found.keeper(&self.work.run.spec.subject, noted.as_ref())
        };
        self.remove(there, (found, unseen), keeper, step, context)
            .await
    }

    async fn remove(
        &self,
        there: &Client,
        (found, unseen): (Vec<prune::Found>, Vec<String>),
        keeper: impl Fn(&prune::Found) -> Option<String>,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
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
        let notices: Vec<_> = kept.into_iter().chain(unseen).collect();
        Ok(telling(outcome, "left to who keeps it", &notices))
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

/// The groups of Kubernetes itself beside those without a dot. Many that end alike are of others, as that of metrics-server, which is away
/// for a while in many a cluster.
///
/// # Source
/// Kubernetes, `pkg/controlplane/instance.go`, `kube-aggregator` and `apiextensions-apiserver`.
const BUILT_IN: [&str; 15] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Which kinds the provider may have objects of: those of the record and of the release that is wanted. Where the record is not of all of it, it may
/// be any that Kubernetes itself has, and others are tried more than once before they are left: an API that is away comes back as a rule.
pub(super) fn known(
    (record, is_whole): (&Applied, bool),
    wanted: &BTreeSet<prune::Key>,
    context: &StepContext,
) -> impl Fn(&str, &str) -> bool + use<> {
    let of_release = wanted
        .iter()
        .map(|(group, kind, ..)| (group.clone(), kind.clone()));
    let known: BTreeSet<_> = record.kinds().chain(of_release).collect();
    let is_early = context.attempt < TRIES;
    move |group: &str, kind: &str| {
        known.contains(&(group.to_owned(), kind.to_owned()))
            || (!is_whole && (is_early || is_built_in(group)))
    }
}

/// Whether a group is one of Kubernetes itself.
fn is_built_in(group: &str) -> bool {
    !group.contains('.') || BUILT_IN.contains(&group)
}

/// Definitions of kinds that the API has with another scope or by another name, and what of them it never changes.
async fn redefined(there: &Client, objects: &[Object]) -> Result<Vec<String>, Failure> {
    let api = Api::<Outline>::all(there.clone());
    let mut refused = Vec::new();
    for object in objects.iter().filter(|one| render::is_definition(one)) {
        let found = api.get_opt(object.name()).await;
        let found = found.map_err(|error| call(format!("read {}", object.title()), &error))?;
        let Some(OutlineSpec { scope, names, .. }) = found.map(|found| found.spec) else {
            continue;
        };
        let wanted = &object.value()["spec"];
        let fields = [
            ("spec.scope", wanted["scope"] == *scope),
            ("spec.names.kind", wanted["names"]["kind"] == *names.kind),
        ];
        let others = fields.into_iter().filter(|(_, is_same)| !is_same);
        refused.extend(others.map(|(field, _)| format!("{} ({field})", object.title())));
    }
    Ok(refused)
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
