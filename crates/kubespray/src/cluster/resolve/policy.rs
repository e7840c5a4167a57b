//! Up to where a built cluster upgrades itself, and what it leaves for a person to ask for. Pure.
//!
//! The spec's versions are then the least that the cluster has: what it has come to by itself is not taken back.

use std::collections::BTreeSet;

use ansible::catalogue::{self, Installable};
use api::{
    Cluster, KubernetesVersion, KubesprayVersion, VersionPart, cluster::Available,
    upgrade::UpgradePolicy,
};

use crate::playbooks::Checkout;

/// Up to which part of a version a cluster upgrades itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Policy(UpgradePolicy);

impl Policy {
    /// The policy of a cluster that is built. None: it upgrades nothing by itself.
    pub fn of(cluster: &Cluster) -> Option<Self> {
        let nodes = cluster.spec.nodes.as_ref();
        let policy = nodes.and_then(|nodes| nodes.all.as_ref()?.upgrade);
        cluster.status.as_ref()?.kubernetes_version?;
        policy.filter(|policy| policy.takes_any()).map(Self)
    }

    fn takes(self, part: VersionPart) -> bool {
        self.0.takes(part)
    }

    /// The Kubernetes version to which it leads, or the one that is installed.
    pub(super) fn kubernetes(
        self,
        installed: KubernetesVersion,
        installable: &Installable,
    ) -> KubernetesVersion {
        let mut newest_first = installable.versions.iter().rev().copied();
        let taken = |version: &KubernetesVersion| {
            let part = version.newer_by(installed);
            part.is_some_and(|part| self.takes(part))
                && catalogue::hops(*version, installed, installable).is_ok()
        };
        newest_first.find(taken).unwrap_or(installed)
    }
}

/// The release whose playbooks a cluster is wished to have, where a policy has a say: the next one that it leads to, or the one that
/// built it.
pub fn release(cluster: &Cluster) -> Option<KubesprayVersion> {
    let policy = Policy::of(cluster)?;
    let built = cluster.status.as_ref()?.kubespray_version?;
    if !is_open(cluster) {
        return None;
    }
    let taken = |release: KubesprayVersion| {
        let part = release.newer_by(built);
        part.is_some_and(|part| policy.takes(part))
    };
    let newest = next(built).into_iter().rev().find(|next| taken(*next));
    Some(newest.unwrap_or(built))
}

/// Whether the spec leaves open of which release the playbooks are.
fn is_open(cluster: &Cluster) -> bool {
    let kubespray = cluster.spec.kubespray.as_ref();
    let source = kubespray.and_then(|kubespray| kubespray.source.as_ref());
    source.is_none_or(|source| {
        let tag = source
            .git
            .as_ref()
            .is_none_or(|git| git.reference.is_none());
        source.path.is_none() && source.image.is_none() && tag
    })
}

/// The releases to which a cluster can move, oldest first.
fn next(built: KubesprayVersion) -> Vec<KubesprayVersion> {
    let known = catalogue::releases().iter().map(|release| release.version);
    known
        .filter(|release| *release > built && catalogue::check_move(*release, built).is_ok())
        .collect()
}

/// What can be had and is not wished for.
pub(super) fn available(
    cluster: &Cluster,
    wished: (KubesprayVersion, Option<KubernetesVersion>),
    checkout: &Checkout,
) -> Vec<Available> {
    let (release, Some(wished)) = wished else {
        return Vec::new();
    };
    let Some(installed) = built(cluster) else {
        return Vec::new();
    };
    let versions = &checkout.installable.versions;
    let mut available: Vec<_> = newest_of_each_part(installed, versions)
        .into_iter()
        .filter(|(_, version)| *version > wished)
        .map(|(change, version)| Available {
            change,
            kubespray_version: release,
            kubernetes_version: version,
            message: format!(
                "write spec.kubernetesVersion: {version}, or {}",
                auto(change)
            ),
        })
        .collect();
    let newest = next(release).pop();
    let newest = newest.and_then(|newest| catalogue::release(newest).ok());
    available.extend(newest.and_then(|newest| {
        let version = newest.version;
        let change = version.newer_by(release)?;
        let by_itself = if is_open(cluster) {
            format!(", or {}", auto(change))
        } else {
            ", and name its playbooks in spec.kubespray.source".to_owned()
        };
        Some(Available {
            change,
            kubespray_version: version,
            kubernetes_version: newest.kubernetes_default,
            message: format!("write spec.kubespray.version: {version}{by_itself}"),
        })
    }));
    available
}

fn built(cluster: &Cluster) -> Option<KubernetesVersion> {
    cluster.status.as_ref()?.kubernetes_version
}

/// The newest version that differs by each part from the one that is installed.
fn newest_of_each_part(
    installed: KubernetesVersion,
    versions: &BTreeSet<KubernetesVersion>,
) -> Vec<(VersionPart, KubernetesVersion)> {
    let parts = [VersionPart::Patch, VersionPart::Minor];
    let newest = |part: VersionPart| {
        let mut newest_first = versions.iter().rev().copied();
        let newest = newest_first.find(|version| version.newer_by(installed) == Some(part));
        newest.map(|version| (part, version))
    };
    parts.into_iter().filter_map(newest).collect()
}

fn auto(change: VersionPart) -> String {
    let part = match change {
        VersionPart::Patch => "patch",
        VersionPart::Minor => "minor",
        VersionPart::Major => "major",
    };
    format!("have the cluster take it by itself: spec.nodes.all.upgrade.{part}.auto: true")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(policy: &Value, kubespray: &Value, built: [&str; 2]) -> Cluster {
        let [release, kubernetes] = built;
        serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1",
            "kind": "Cluster",
            "metadata": {"name": "first", "namespace": "ns"},
            "spec": {"kubespray": kubespray, "nodes": {"all": {"upgrade": policy}}},
            "status": {"kubernetesVersion": kubernetes, "kubesprayVersion": release},
        }))
        .unwrap()
    }

    fn installable(versions: &[&str]) -> Installable {
        let versions: BTreeSet<KubernetesVersion> =
            versions.iter().map(|text| text.parse().unwrap()).collect();
        Installable {
            default: *versions.last().unwrap(),
            minimum: *versions.first().unwrap(),
            versions,
        }
    }

    #[test]
    fn a_policy_takes_the_parts_it_names_and_smaller_ones() {
        let versions = installable(&["1.33.5", "1.33.9", "1.34.4", "1.35.1"]);
        for (policy, expected) in [
            (json!({"patch": {"auto": true}}), "1.33.9"),
            (json!({"minor": {"auto": true}}), "1.35.1"),
            (json!({"major": {"auto": true}}), "1.35.1"),
            (
                json!({"minor": {"auto": true}, "major": {"auto": false}}),
                "1.35.1",
            ),
            (
                json!({"patch": {"auto": true}, "minor": {"auto": false}, "major": {"auto": true}}),
                "1.33.9",
            ),
        ] {
            let cluster = cluster(&policy, &json!({}), ["2.30.0", "1.33.5"]);
            let installed = built(&cluster).unwrap();
            let taken = Policy::of(&cluster).unwrap();
            let taken = taken.kubernetes(installed, &versions);
            assert_eq!(taken.to_string(), expected, "{policy}");
        }
        for policy in [json!({}), json!({"minor": {"auto": false}})] {
            let cluster = cluster(&policy, &json!({}), ["2.30.0", "1.33.5"]);
            assert_eq!(Policy::of(&cluster), None);
        }
    }

    #[test]
    fn a_minor_that_is_missing_on_the_way_is_not_skipped() {
        let versions = installable(&["1.33.5", "1.33.9", "1.35.1"]);
        let cluster = cluster(
            &json!({"minor": {"auto": true}}),
            &json!({}),
            ["2.30.0", "1.33.5"],
        );
        let policy = Policy::of(&cluster).unwrap();
        let taken = policy.kubernetes(built(&cluster).unwrap(), &versions);
        assert_eq!(taken.to_string(), "1.33.9");
    }

    #[test]
    fn releases_are_taken_one_after_the_other_where_the_source_leaves_them_open() {
        let (minor, patch) = (
            json!({"minor": {"auto": true}}),
            json!({"patch": {"auto": true}}),
        );
        let written = json!({"version": "2.28.0"});
        for (policy, kubespray, built, expected) in [
            (&minor, json!({}), "2.28.0", Some("2.29.1")),
            (&minor, written, "2.28.0", Some("2.29.1")),
            (&minor, json!({}), "2.31.0", Some("2.31.0")),
            (&patch, json!({}), "2.29.0", Some("2.29.1")),
            (&patch, json!({}), "2.30.0", Some("2.30.0")),
            (
                &minor,
                json!({"source": {"git": {"url": "https://git.example/k"}}}),
                "2.30.0",
                Some("2.31.0"),
            ),
            (&minor, json!({"source": {"path": "/k"}}), "2.30.0", None),
            (
                &minor,
                json!({"source": {"git": {"ref": "mine"}}}),
                "2.30.0",
                None,
            ),
            (&json!({}), json!({}), "2.30.0", None),
        ] {
            let cluster = cluster(policy, &kubespray, [built, "1.33.5"]);
            let release = release(&cluster).map(|release| release.to_string());
            assert_eq!(release.as_deref(), expected, "{policy} {kubespray} {built}");
        }
    }
}
