//! What there is: reads only. Providers are read from the API, not from watches that may be behind: what the set has written last must
//! be seen.

use std::collections::BTreeMap;

use api::{
    Run,
    provider::{OnFailure, PlanPhase, ProviderSet, ProviderType},
};
use controller::stream::in_namespace;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Resource, ResourceExt};
use runs::object;

use super::{
    Context,
    back::{self, Back},
    progress, unread,
};
use crate::{
    attention::{Part, Who},
    provider::{Error, past},
    stand::{Stand, Towards},
};

/// Everything that the decision about a set reads.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The set of the namespace that was there first, where that is another.
    pub elder: Option<String>,
    /// The providers of the installation: the core of the namespace, and what is installed beside it.
    pub stands: Vec<Stand>,
    /// By label: why the workloads of the version that a plan leads to did not get ready.
    pub failures: BTreeMap<String, String>,
    /// Of those that stand so: whether they may go back, where the set has them go back.
    pub backs: BTreeMap<String, Back>,
    /// Whether each change of what was read here is told.
    pub is_told: bool,
    /// Now.
    pub now: Timestamp,
}

/// Reads what there is.
pub(super) async fn observe(set: &ProviderSet, context: &Context) -> Result<Observed, Error> {
    let mark = context.attention.mark(&key(set));
    let mut all = Stand::all(&context.client).await.map_err(unread)?;
    for stand in &mut all {
        stand.is_where(&runs(stand, context));
    }
    let namespace = set.namespace().unwrap_or_default();
    let stands = beside(all, &namespace);
    let (mut failures, mut backs) = (BTreeMap::new(), BTreeMap::new());
    let status = set.status.as_ref();
    let plan = status.and_then(|status| status.plan.as_ref());
    let goes_back = set.spec.on_failure.unwrap_or_default() == OnFailure::GoBack;
    let begun = plan.filter(|plan| matches!(plan.phase, PlanPhase::UnderWay | PlanPhase::Stopped));
    for upgrade in begun.iter().flat_map(|plan| &plan.upgrades) {
        let Some(stand) = progress::of(upgrade, &stands) else {
            continue;
        };
        let Some(failure) = back::failure(&runs(stand, context), &upgrade.to) else {
            continue;
        };
        failures.insert(upgrade.provider.clone(), failure);
        let has_stopped =
            stand.wanted == upgrade.to && matches!(stand.towards(&upgrade.to), Towards::Stopped(_));
        if has_stopped && goes_back {
            let back = back::look(&context.client, stand, &upgrade.from).await;
            backs.insert(upgrade.provider.clone(), back);
        }
    }
    attend(set, &stands, context);
    Ok(Observed {
        is_told: mark.is_some() && context.attention.mark(&key(set)) == mark,
        elder: elder(set, context),
        stands,
        failures,
        backs,
        now: Timestamp::now(),
    })
}

/// What it is remembered by.
pub(super) fn key(set: &ProviderSet) -> String {
    format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any())
}

/// Has releases wake the set. Providers do so by the watches that there are of them.
fn attend(set: &ProviderSet, stands: &[Stand], context: &Context) {
    let parts = stands.iter().filter_map(|stand| {
        let selector = stand.selector.clone()?;
        Some(Part::labelled::<ConfigMap>(&stand.namespace, selector))
    });
    let who = Who {
        key: key(set),
        label: String::new(),
        object: (set.namespace().unwrap_or_default(), set.name_any()),
        wake_ups: context.wake_ups.clone(),
    };
    let parts = parts.collect();
    context.attention.attend(&context.client, who, parts);
}

/// The core that is installed from a namespace, and all that is installed where it is. Nothing, where the namespace has none: who may make
/// sets in some namespace has no say in the installation of another.
pub(super) fn beside(all: Vec<Stand>, namespace: &str) -> Vec<Stand> {
    let is_core = |stand: &&Stand| {
        stand.kind == ProviderType::Core
            && stand.namespace == namespace
            && stand.installed().is_some()
    };
    let Some(place) = all.iter().find(is_core).map(|core| core.place.clone()) else {
        return Vec::new();
    };
    all.into_iter()
        .filter(|stand| stand.place == place)
        .collect()
}

fn elder(set: &ProviderSet, context: &Context) -> Option<String> {
    let namespace = set.namespace().unwrap_or_default();
    let age = |set: &ProviderSet| (set.creation_timestamp(), set.name_any());
    let sets = in_namespace(&context.sets, &namespace);
    sets.iter()
        .filter_map(|other| other.0.as_ref().ok())
        .filter(|other| other.meta().deletion_timestamp.is_none())
        .map(age)
        .min()
        .filter(|first| *first < age(set))
        .map(|(_, name)| name)
}

/// The runs of a provider, oldest first.
fn runs(stand: &Stand, context: &Context) -> Vec<Run> {
    let found = in_namespace(&context.runs, &stand.namespace);
    let found = found.iter().filter_map(|run| run.0.as_ref().ok());
    let mut runs: Vec<_> = past::of(found, &stand.uid).cloned().collect();
    runs.sort_by_cached_key(object::age);
    runs
}
