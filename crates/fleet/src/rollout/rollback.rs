//! Back from a run: what it has begun goes to the revision that each cluster had before, as a run of its own. Pure.
//!
//! From a run in its middle it is one wave, without canaries: what it brings has been tried, and what it takes away may be broken
//! everywhere. From runs that ended it goes in the waves of the Rollout, canaries first: the fleet stands, and going back is a change as
//! any other. Budgets, gates and the bound of failures hold as ever. No cluster is brought to an older version of Kubernetes or of kubespray: neither can be downgraded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    str::FromStr,
};

use api::{
    KubernetesVersion, KubesprayVersion,
    inventory::{MemberPhase, RolloutMember, RolloutRun, RolloutSpec},
};
use serde_json::Value;

use super::{
    engine,
    history::Taken,
    known::Known,
    waves::{self, Candidate},
};
use crate::{cluster::ADOPTED, names};

/// The one wave.
pub const WAVE: &str = "rollback";

/// The run that takes back what another one has begun, but for the clusters that people leave out. It may have none.
pub fn run(of: &RolloutRun, skip: &BTreeSet<String>) -> RolloutRun {
    let clusters = begun(of, skip).filter_map(|member| {
        Some(RolloutMember {
            name: member.name.clone(),
            wave: WAVE.to_owned(),
            domains: member.domains.clone(),
            revision: member.before.clone()?,
            phase: MemberPhase::Pending,
            ..RolloutMember::default()
        })
    });
    RolloutRun {
        id: controller::digest(&[&of.id, WAVE], 10),
        rolls_back: Some(of.id.clone()),
        sources: of.sources.clone(),
        waves: vec![WAVE.to_owned()],
        clusters: clusters.collect(),
        ..RolloutRun::default()
    }
}

/// The run that takes back those that ended. It may have none.
pub(super) fn run_back(
    taken: &Taken,
    spec: &RolloutSpec,
    skip: &BTreeSet<String>,
    known: &Known,
) -> RolloutRun {
    let own = known.own.iter().filter(|one| !skip.contains(&one.name));
    let going = own.filter_map(|candidate| {
        let before = taken.before.get(&candidate.name)?.clone()?;
        let seen = known.seen.get(&candidate.name)?;
        let is_other = *seen.applied.as_ref()? != before || seen.is_halfway;
        is_other.then(|| Candidate {
            revision: before,
            ..candidate.clone()
        })
    });
    let mut run = waves::run(
        &controller::digest(&[&taken.run, WAVE], 10),
        spec,
        going.collect(),
    );
    run.rolls_back = Some(taken.run.clone());
    run.sources.clone_from(&known.sources);
    for member in &mut run.clusters {
        let seen = known.seen.get(&member.name);
        member.before = seen.and_then(|seen| seen.applied.clone());
    }
    run
}

/// Why runs that ended are not taken back, and what to do about it. None: they can be.
pub(super) fn refusal_of_ended(
    taken: &Taken,
    skip: &BTreeSet<String>,
    no_way_back: &BTreeMap<String, String>,
) -> Option<String> {
    let mut refused = no_way_back.iter();
    let (name, why) = refused.find(|(name, _)| !skip.contains(*name))?;
    Some(format!(
        "run {} is not taken back, and no other run begins: FleetCluster {name}: {why}; have {name} skipped (spec.control.skip) to let the \
         others go back, or set spec.control.state to Running",
        taken.run
    ))
}

/// Why a run is not rolled back, and what to do about it. None: it can be.
pub(super) fn refusal(
    of: &RolloutRun,
    skip: &BTreeSet<String>,
    no_way_back: &BTreeMap<String, String>,
) -> Option<String> {
    if let Some(before) = &of.rolls_back {
        return Some(format!(
            "it is not rolled back: it is the way back from run {before} itself; edit the inventory for another revision, or set \
             spec.control.state to Running"
        ));
    }
    let mut members = begun(of, skip);
    let (name, why) =
        members.find_map(|member| Some((&member.name, no_way_back.get(&member.name)?)))?;
    Some(format!(
        "it is not rolled back, and begins no other cluster: FleetCluster {name}: {why}; have {name} skipped to let the others go back, \
         edit the inventory, or set spec.control.state to Running"
    ))
}

/// Why a cluster does not go to what it was before from any of these revisions. None: it may.
pub(crate) fn obstacle(
    cluster: &str,
    before: Option<&str>,
    from: &[&str],
    kept: impl Fn(&str) -> Option<Vec<Value>>,
) -> Option<String> {
    let kept = |revision: &str| {
        kept(revision).ok_or_else(|| {
            let record = names::record(cluster, revision);
            format!("FleetRevision {record} is not there, or does not hold what its name says")
        })
    };
    let before = match before {
        None => return Some("its run does not say what it was before".to_owned()),
        Some(ADOPTED) => {
            return Some("it was handed over, and no revision says what it was before".to_owned());
        }
        Some(before) => before,
    };
    let mut from = from.iter().filter(|from| **from != before);
    from.find_map(|from| match (kept(before), kept(from)) {
        (Ok(before), Ok(after)) => objection(&before, &after),
        (Err(lost), _) | (_, Err(lost)) => Some(lost),
    })
}

/// Why a cluster does not go from what it is rendered to now back to what it was before. None: it may.
fn objection(before: &[Value], after: &[Value]) -> Option<String> {
    after.iter().find_map(|object| {
        let was = before.iter().find(|was| is_same(was, object))?;
        let kubernetes = lower::<KubernetesVersion>(was, object, kubernetes(object)?);
        let kubernetes = kubernetes.map(|versions| ("Kubernetes", versions));
        let kubespray = || {
            let of_it = is_kubespray(object).then_some("/spec/kubespray/version")?;
            let versions = lower::<KubesprayVersion>(was, object, of_it)?;
            Some(("kubespray", versions))
        };
        let (what, (from, to)) = kubernetes.or_else(kubespray)?;
        Some(format!(
            "{what} would go from {from} down to {to} ({} {}), and it cannot be downgraded",
            text(&object["kind"]),
            text(&object["metadata"]["name"])
        ))
    })
}

/// The clusters that a run has begun.
fn begun<'a>(
    run: &'a RolloutRun,
    skip: &'a BTreeSet<String>,
) -> impl Iterator<Item = &'a RolloutMember> {
    let members = run.clusters.iter();
    members.filter(|member| engine::has_begun(member) && !skip.contains(&member.name))
}

/// From which version to which, where it is a lower one.
fn lower<V: FromStr + Ord + Display>(
    before: &Value,
    after: &Value,
    place: &str,
) -> Option<(String, String)> {
    let version = |object: &Value| object.pointer(place)?.as_str()?.parse::<V>().ok();
    let (from, to) = (version(after)?, version(before)?);
    (to < from).then(|| (from.to_string(), to.to_string()))
}

/// Where an object says which version of Kubernetes its machines have.
fn kubernetes(object: &Value) -> Option<&'static str> {
    let (group, _) = text(&object["apiVersion"]).split_once('/')?;
    match (group, text(&object["kind"])) {
        ("kubespray.k8s.io", "Cluster") => Some("/spec/kubernetesVersion"),
        ("cluster.x-k8s.io", "Cluster") => Some("/spec/topology/version"),
        ("cluster.x-k8s.io", "Machine") | ("controlplane.cluster.x-k8s.io", _) => {
            Some("/spec/version")
        }
        ("cluster.x-k8s.io", "MachineDeployment" | "MachinePool" | "MachineSet") => {
            Some("/spec/template/spec/version")
        }
        _ => None,
    }
}

fn is_kubespray(object: &Value) -> bool {
    text(&object["apiVersion"]).starts_with("kubespray.k8s.io/")
}

fn is_same(one: &Value, other: &Value) -> bool {
    let group = |object: &Value| {
        let version = text(&object["apiVersion"]).to_owned();
        version.split('/').next().map(ToOwned::to_owned)
    };
    let metadata = |object: &Value, key: &str| object["metadata"][key].clone();
    group(one) == group(other)
        && one["kind"] == other["kind"]
        && ["namespace", "name"]
            .iter()
            .all(|key| metadata(one, key) == metadata(other, key))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "shop", "namespace": "shop"}, "spec": spec,
        })
    }

    #[test]
    fn no_version_goes_down() {
        let kubernetes = |version: &str| json!({"kubernetesVersion": version});
        let template = |version: &str| json!({"template": {"spec": {"version": version}}});
        for (kind, before, after, refused) in [
            (
                ("kubespray.k8s.io/v1", "Cluster"),
                kubernetes("1.34.9"),
                kubernetes("1.34.10"),
                Some("Kubernetes would go from 1.34.10 down to 1.34.9 (Cluster shop)"),
            ),
            (
                ("kubespray.k8s.io/v1", "Cluster"),
                kubernetes("1.34.10"),
                kubernetes("1.34.9"),
                None,
            ),
            // What is built stays where the spec does not say.
            (
                ("kubespray.k8s.io/v1", "Cluster"),
                json!({}),
                kubernetes("1.34.10"),
                None,
            ),
            (
                ("kubespray.k8s.io/v1", "Cluster"),
                json!({"kubespray": {"version": "2.30.0"}}),
                json!({"kubespray": {"version": "2.31.0"}}),
                Some("kubespray would go from 2.31.0 down to 2.30.0"),
            ),
            (
                ("cluster.x-k8s.io/v1beta2", "Cluster"),
                json!({"topology": {"version": "v1.34.1"}}),
                json!({"topology": {"version": "v1.35.0"}}),
                Some("Kubernetes would go from 1.35.0 down to 1.34.1"),
            ),
            (
                ("cluster.x-k8s.io/v1beta2", "MachineDeployment"),
                template("v1.34.1"),
                template("v1.35.0"),
                Some("(MachineDeployment shop)"),
            ),
            (
                (
                    "controlplane.cluster.x-k8s.io/v1beta2",
                    "KubeadmControlPlane",
                ),
                json!({"version": "v1.34.1"}),
                json!({"version": "v1.35.0"}),
                Some("(KubeadmControlPlane shop)"),
            ),
            // A version of something else.
            (
                (
                    "infrastructure.cluster.x-k8s.io/v1beta2",
                    "DockerMachinePool",
                ),
                json!({"version": "v1.34.1"}),
                json!({"version": "v1.35.0"}),
                None,
            ),
        ] {
            let (api_version, kind) = kind;
            let node = object("kubespray.k8s.io/v1", "ClusterNode", &json!({}));
            let before = [node.clone(), object(api_version, kind, &before)];
            let after = [node, object(api_version, kind, &after)];
            let told = objection(&before, &after);
            assert_eq!(told.is_some(), refused.is_some(), "{after:?}: {told:?}");
            let told = told.unwrap_or_default();
            assert!(told.contains(refused.unwrap_or_default()), "{told}");
        }
    }

    #[test]
    fn what_a_cluster_was_is_never_guessed() {
        let kept = |revision: &str| {
            let spec = json!({"kubernetesVersion": format!("1.3{revision}.0")});
            let objects = vec![object("kubespray.k8s.io/v1", "Cluster", &spec)];
            (revision != "9").then_some(objects)
        };
        for (before, from, refused) in [
            (Some("4"), vec!["4"], None),
            (Some("5"), vec!["4"], None),
            (
                Some("4"),
                vec!["4", "5"],
                Some("from 1.35.0 down to 1.34.0"),
            ),
            (
                Some("9"),
                vec!["5"],
                Some("FleetRevision shop-9 is not there"),
            ),
            (
                Some("4"),
                vec!["9"],
                Some("FleetRevision shop-9 is not there"),
            ),
            (Some(ADOPTED), vec!["4"], Some("it was handed over")),
            (None, vec!["4"], Some("does not say what it was before")),
        ] {
            let told = obstacle("shop", before, &from, kept);
            assert_eq!(told.is_some(), refused.is_some(), "{before:?}: {told:?}");
            let told = told.unwrap_or_default();
            assert!(told.contains(refused.unwrap_or_default()), "{told}");
        }
    }

    #[test]
    fn what_is_not_there_any_more_has_no_version() {
        let cluster = |version: &str| {
            let spec = json!({"kubernetesVersion": version});
            object("kubespray.k8s.io/v1", "Cluster", &spec)
        };
        assert_eq!(objection(&[], &[cluster("1.35.0")]), None);
        assert_eq!(objection(&[cluster("1.35.0")], &[]), None);
    }
}
