//! What the objects of a cluster may have been made from before they are brought to a revision. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::part::{Part, Parts};

/// The revisions that its objects may be of.
pub(super) struct Before {
    /// The one that was applied, if that is known.
    applied: Option<Kept>,
    /// Those that were begun after it and not brought to their end, but for the one that is brought now.
    begun: Vec<Kept>,
}

/// A revision, and what it is applied as.
pub(super) struct Kept {
    revision: String,
    parts: Vec<Part>,
    is_lost: bool,
    /// Where each object stands in it.
    places: BTreeMap<(String, String, String, String), usize>,
}

impl Kept {
    /// What was kept of a revision; none: it was lost.
    pub(super) fn new(revision: &str, parts: Option<Vec<Part>>) -> Self {
        let is_lost = parts.is_none();
        let parts = parts.unwrap_or_default();
        let places = parts.iter().enumerate();
        Self {
            revision: revision.to_owned(),
            places: places
                .map(|(place, part)| (part.identity(), place))
                .collect(),
            parts,
            is_lost,
        }
    }

    fn get(&self, part: &Part) -> Option<&Part> {
        let place = self.places.get(&part.identity())?;
        self.parts.get(*place)
    }
}

impl Before {
    pub(super) const fn new(applied: Option<Kept>, begun: Vec<Kept>) -> Self {
        Self { applied, begun }
    }

    /// All that there may be: what was applied, then what was begun.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.all().flat_map(|kept| &kept.parts)
    }

    /// A revision that its objects may be of, and of which nothing is known any more.
    pub(super) fn lost(&self) -> Option<&str> {
        let mut lost = self.all().filter(|kept| kept.is_lost);
        lost.next().map(|kept| kept.revision.as_str())
    }

    /// The Cluster, or its control plane or infrastructure, that was applied or begun and is none of these objects. Of what was handed
    /// over only what was begun says which that is. While nothing is applied there is no Cluster yet: it is written last.
    pub(super) fn cluster_that_goes(&self, wanted: &Parts) -> Option<&Part> {
        let is_there = self.applied.is_some();
        let known = || self.parts().filter(|_| is_there);
        let bears = |part: &Part| known().any(|cluster| cluster.stands_on(part));
        let stays = |part: &Part| {
            let mut wanted = wanted.objects.iter();
            wanted.any(|wanted| wanted.identity() == part.identity())
        };
        known().find(|part| (part.is_cluster() || bears(part)) && !stays(part))
    }

    /// Whether an object was made from the same. Of what was begun and not brought to its end, nobody knows which objects were written:
    /// none is the same then.
    pub(super) fn is_same(&self, part: &Part) -> bool {
        let was = self.applied.as_ref().and_then(|kept| kept.get(part));
        self.begun.is_empty() && was.is_some_and(|was| was.value == part.value)
    }

    /// Whether what refers to the Secret of a VaultSecret waits for it: it is new, or was something else, or has made no Secret. One that
    /// stays as it was keeps nothing back, whatever else was begun.
    pub(super) fn awaits(&self, part: &Part, live: Option<&Value>) -> bool {
        let spec = &part.value["spec"];
        let was = |kept: &Kept| kept.get(part).map(|was| was.value["spec"] == *spec);
        let is_changed = |kept: &Kept| was(kept) == Some(false);
        let stays =
            self.applied.as_ref().and_then(was) == Some(true) && !self.begun.iter().any(is_changed);
        let has_secret = live.is_some_and(|live| {
            controller::apply::contains(&live["spec"], spec) && live["status"]["secret"].is_string()
        });
        !stays || !has_secret
    }

    /// The revisions whose VaultSecrets and templates stay until the cluster is well at `revision`, oldest first: those that were known
    /// to, and these.
    pub(super) fn former(&self, known: &[String], revision: &str) -> Vec<String> {
        let mut former = known.to_vec();
        for kept in self.all() {
            let is_known = former.contains(&kept.revision);
            let stays = |part: &Part| part.is_vault_secret() || part.is_template();
            if !is_known && kept.parts.iter().any(stays) {
                former.push(kept.revision.clone());
            }
        }
        former.retain(|one| one != revision);
        // VaultSecrets of the oldest are left to people: to take them away too early is worse.
        newest(former)
    }

    fn all(&self) -> impl Iterator<Item = &Kept> {
        self.applied.iter().chain(&self.begun)
    }
}

/// The newest of revisions, which stand oldest first: as many as a status takes.
pub(super) fn newest(mut revisions: Vec<String>) -> Vec<String> {
    revisions.split_off(revisions.len().saturating_sub(MOST_FORMER))
}

/// By the schema of the status.
const MOST_FORMER: usize = 16;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(name: &str, address: &str) -> Part {
        Part {
            value: json!({"spec": {"path": name, "vault": {"address": address}}}),
            api_version: "secrets.windlass.dev/v1alpha1".to_owned(),
            kind: "VaultSecret".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn what_stays_as_it_was_keeps_nothing_back_whatever_else_was_begun() {
        let kept = |revision: &str, parts: &[(&str, &str)]| {
            let parts = parts.iter().map(|(name, address)| secret(name, address));
            Some(Kept::new(revision, Some(parts.collect())))
        };
        let wanted = secret("a", "1");
        let live = |address: &str, status: Value| {
            Some(
                json!({"spec": {"path": "a", "vault": {"address": address}, "keys": {"k": "k"}}, "status": status}),
            )
        };
        let made = || live("1", json!({"secret": "a"}));
        for (name, applied, begun, live, expected) in [
            ("at rest", kept("r1", &[("a", "1")]), None, made(), false),
            ("new", kept("r1", &[]), None, made(), true),
            ("born", None, None, None, true),
            ("changed", kept("r1", &[("a", "0")]), None, made(), true),
            (
                "the same while another revision was begun",
                kept("r1", &[("a", "1")]),
                kept("r2", &[("a", "1"), ("wrong", "1")]),
                made(),
                false,
            ),
            (
                "the same, and not in what was begun",
                kept("r1", &[("a", "1")]),
                kept("r2", &[]),
                made(),
                false,
            ),
            (
                "changed by what was begun",
                kept("r1", &[("a", "1")]),
                kept("r2", &[("a", "2")]),
                made(),
                true,
            ),
            (
                "new with what was begun",
                kept("r1", &[]),
                kept("r2", &[("a", "1")]),
                made(),
                true,
            ),
            ("deleted", kept("r1", &[("a", "1")]), None, None, true),
            (
                "changed by hand",
                kept("r1", &[("a", "1")]),
                None,
                live("2", json!({"secret": "a"})),
                true,
            ),
            (
                "without a Secret",
                kept("r1", &[("a", "1")]),
                None,
                live("1", json!({})),
                true,
            ),
        ] {
            let before = Before::new(applied, Vec::from_iter(begun));
            assert_eq!(before.awaits(&wanted, live.as_ref()), expected, "{name}");
        }
    }

    #[test]
    fn a_cluster_that_would_go_is_found() {
        let part = |api_version: &str, kind: &str, name: &str| Part {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            ..secret(name, "1")
        };
        for group in ["kubespray.k8s.io/v1", "cluster.x-k8s.io/v1beta2"] {
            let cluster = |name: &str| part(group, "Cluster", name);
            let node = |name: &str| part(group, "ClusterNode", name);
            let applied = vec![node("one"), cluster("shop")];
            let before = Before::new(Some(Kept::new("r1", Some(applied))), Vec::new());
            let wanted = |objects: Vec<Part>| Parts {
                namespaces: Vec::new(),
                objects,
            };
            let goes = |objects| {
                let wanted = wanted(objects);
                before.cluster_that_goes(&wanted).map(Part::title)
            };
            assert_eq!(goes(vec![cluster("shop"), node("two")]), None);
            let title = Some("Cluster/shop/shop".to_owned());
            assert_eq!(goes(vec![cluster("fra1-shop"), node("one")]), title);
            assert_eq!(goes(vec![node("one")]), title);
            // What was handed over is in no revision, but a change of it that was begun says which Cluster it is.
            let begun = || Kept::new("r1", Some(vec![node("one"), cluster("shop")]));
            let adopted = Before::new(Some(Kept::new("adopted", Some(Vec::new()))), vec![begun()]);
            let renamed = wanted(vec![cluster("fra1-shop")]);
            let found = adopted.cluster_that_goes(&renamed).map(Part::title);
            assert_eq!(found, title);
            // A birth has written none yet.
            let birth = Before::new(None, vec![begun()]);
            assert!(birth.cluster_that_goes(&renamed).is_none());
        }
    }

    #[test]
    fn what_a_cluster_stands_on_would_go_with_it() {
        let part = |api_version: &str, kind: &str, name: &str| Part {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            ..secret(name, "1")
        };
        let plane = |name: &str| {
            part(
                "controlplane.cluster.x-k8s.io/v1beta2",
                "KubeadmControlPlane",
                name,
            )
        };
        let cloud = |name: &str| {
            part(
                "infrastructure.cluster.x-k8s.io/v1beta1",
                "OpenStackCluster",
                name,
            )
        };
        let workers = |name: &str| part("cluster.x-k8s.io/v1beta2", "MachineDeployment", name);
        let mut cluster = part("cluster.x-k8s.io/v1beta2", "Cluster", "shop");
        cluster.value = json!({"spec": {
            "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "shop"},
            "infrastructureRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "OpenStackCluster", "name": "shop"},
        }});
        let applied = vec![
            cloud("shop"),
            plane("shop"),
            workers("shop"),
            cluster.clone(),
        ];
        let before = Before::new(Some(Kept::new("r1", Some(applied))), Vec::new());
        for (wanted, goes) in [
            (vec![cloud("shop"), plane("shop")], None),
            (
                vec![cloud("net"), plane("shop")],
                Some("OpenStackCluster/shop/shop"),
            ),
            (
                vec![cloud("shop"), plane("other")],
                Some("KubeadmControlPlane/shop/shop"),
            ),
        ] {
            let mut wanted = Parts {
                namespaces: Vec::new(),
                objects: wanted,
            };
            wanted.objects.push(cluster.clone());
            let found = before.cluster_that_goes(&wanted).map(Part::title);
            assert_eq!(found.as_deref(), goes);
        }
    }

    #[test]
    fn what_needs_nothing_of_vault_is_not_remembered() {
        let known = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let with = |revision: &str| Kept::new(revision, Some(vec![secret("a", "1")]));
        let without = |revision: &str| Kept::new(revision, Some(Vec::new()));
        let both = Before::new(Some(with("r1")), vec![with("r2")]);
        assert_eq!(both.former(&[], "r3"), ["r1", "r2"]);
        assert_eq!(both.former(&known(&["r0", "r1"]), "r3"), ["r0", "r1", "r2"]);
        assert_eq!(both.former(&[], "r1"), ["r2"]);
        let one = Before::new(Some(without("r1")), vec![with("r2")]);
        assert_eq!(one.former(&[], "r3"), ["r2"]);
        let many: Vec<String> = (0..MOST_FORMER).map(|one| format!("old{one}")).collect();
        let former = both.former(&many, "r3");
        assert_eq!(former.len(), MOST_FORMER);
        assert_eq!(former.last().map(String::as_str), Some("r2"));
    }

    #[test]
    fn what_any_begun_revision_had_may_be_there_and_a_lost_one_is_told() {
        let kept = |revision: &str, name: &str| Kept::new(revision, Some(vec![secret(name, "1")]));
        let before = Before::new(
            Some(kept("r1", "a")),
            vec![kept("r2", "b"), kept("r3", "c")],
        );
        let names: Vec<_> = before.parts().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(before.lost(), None);
        let before = Before::new(Some(kept("r1", "a")), vec![Kept::new("r2", None)]);
        assert_eq!(before.lost(), Some("r2"));
    }
}
