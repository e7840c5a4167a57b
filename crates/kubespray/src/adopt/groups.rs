//! The groups that kubespray's playbooks put hosts into themselves, before anything else, by the groups that an inventory has.
//!
//! Ansible reads the variables of such a group for its hosts as it does those of any other, so they are part of what hosts got:
//! kubespray's own sample has `group_vars/k8s_cluster`, and since 2.27 no group of that name. `group_by` is done by Ansible alone while
//! playbooks run, so what it would come to is written down as one more hosts file.

use std::collections::BTreeMap;

use ansible::listing::Listing;
use api::KubesprayVersion;

/// The hosts that the playbooks of a release put into groups that they are not in, by group.
pub fn made(release: KubesprayVersion, listing: &Listing) -> BTreeMap<&'static str, Vec<String>> {
    let mut made = BTreeMap::new();
    for (group, of) in mappings(release) {
        let already = listing.members(group);
        let mut hosts: Vec<String> = Vec::new();
        for host in of.iter().flat_map(|name| listing.members(name)) {
            if !already.contains(&host) && !hosts.iter().any(|known| known == host) {
                hosts.push(host.to_owned());
            }
        }
        if !hosts.is_empty() {
            made.insert(group, hosts);
        }
    }
    made
}

/// Each group, and those whose hosts are put into it. A host counts by the groups that the inventory has it in: one that gets into
/// `kube_control_plane` by its old name gets into `k8s_cluster` by nothing, because one task makes all of them.
///
/// # Source
/// kubespray: the role `dynamic_groups` (2.27 and 2.28: `playbooks/boilerplate.yml`), which is the same in all of 2.27 to 2.31; before
/// 2.27 `playbooks/boilerplate.yml` or `legacy_groups.yml`, the same from 2.20 on.
fn mappings(release: KubesprayVersion) -> [(&'static str, &'static [&'static str]); 5] {
    let k8s_cluster: &[&str] = if release < KubesprayVersion::new(2, 27, 0) {
        &["k8s-cluster"]
    } else {
        &["kube_node", "kube_control_plane", "calico_rr"]
    };
    [
        ("kube_control_plane", &["kube-master"]),
        ("kube_node", &["kube-node"]),
        ("calico_rr", &["calico-rr"]),
        ("no_floating", &["no-floating"]),
        ("k8s_cluster", k8s_cluster),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn listing(groups: Value) -> Listing {
        serde_json::from_value(groups).map(Listing::of).unwrap()
    }

    #[test]
    fn the_groups_of_a_release_are_made_as_its_playbooks_make_them() {
        let (old, new) = (
            KubesprayVersion::new(2, 26, 1),
            KubesprayVersion::new(2, 27, 0),
        );
        let sample = json!({
            "kube_control_plane": {"hosts": ["m1"]},
            "etcd": {"hosts": ["m1", "e1"]},
            "kube_node": {"hosts": ["m1", "w1"]},
        });
        let whole = json!({
            "kube_control_plane": {"hosts": ["m1"]},
            "k8s_cluster": {"children": ["kube_control_plane"]},
        });
        let renamed = json!({
            "kube-master": {"hosts": ["m1", "m2"]},
            "kube_control_plane": {"hosts": ["m2"]},
            "kube_node": {"hosts": ["w1"]},
            "k8s-cluster": {"children": ["kube-master", "kube_node"]},
        });
        for (name, release, groups, expected) in [
            (
                "the sample",
                new,
                &sample,
                json!({"k8s_cluster": ["m1", "w1"]}),
            ),
            ("the sample, before", old, &sample, json!({})),
            ("all there", new, &whole, json!({})),
            (
                "old names",
                new,
                &renamed,
                json!({"kube_control_plane": ["m1"], "k8s_cluster": ["w1", "m2"]}),
            ),
            (
                "old names, before",
                old,
                &renamed,
                json!({"kube_control_plane": ["m1"], "k8s_cluster": ["m1", "m2", "w1"]}),
            ),
        ] {
            assert_eq!(
                json!(made(release, &listing(groups.clone()))),
                expected,
                "{name}"
            );
        }
    }
}
