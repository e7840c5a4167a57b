//! What a person can do about a variable that is wrong or missing: where its value comes from decides.

use std::collections::BTreeSet;

use crate::event::{Asked, Missing};

const EXTRA_VARS: &str = "spec.nodes.all.deploy.extraVars of the Cluster";

/// Where a value comes from.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Source {
    /// A variable that people set.
    Variable,
    /// The version that the Cluster wishes.
    Version,
    /// Which hosts there are, and what for.
    Hosts,
    /// What a host says of itself.
    Fact,
}

/// What to do about values that the playbook refuses.
pub(super) fn to_correct(values: &[Asked]) -> String {
    let mut remedies = Vec::new();
    for source in sources(values.iter().map(|value| value.name.as_str())) {
        let names: BTreeSet<&str> = values
            .iter()
            .map(|value| value.name.as_str())
            .filter(|name| source_of(name) == source)
            .collect();
        let names: Vec<&str> = names.into_iter().collect();
        let names = names.join(", ");
        remedies.push(match source {
            Source::Variable => {
                format!("correct {names} in {EXTRA_VARS}, or in spec.inventory where hosts differ")
            }
            Source::Version => "correct spec.kubernetesVersion of the Cluster".to_owned(),
            Source::Hosts => {
                format!("correct the ClusterNodes and their roles, which {names} is made of")
            }
            Source::Fact => format!("change the host, which says {names} of itself"),
        });
    }
    if remedies.is_empty() {
        return "The playbook refuses what was asked for: correct what the message names."
            .to_owned();
    }
    sentence(&remedies.join("; or "))
}

/// What to do about variables that nobody set.
pub(super) fn to_set(missing: &[Missing]) -> String {
    let names: Vec<&str> = missing.iter().map(|one| one.name.as_str()).collect();
    let mut through = missing.iter().filter_map(|one| one.through.last());
    let of_hosts = || names.iter().all(|name| source_of(name) == Source::Fact);
    if names.is_empty() {
        return format!(
            "Set what the message names in {EXTRA_VARS}, or in spec.inventory of its ClusterNodes."
        );
    }
    if of_hosts() {
        return "It is what a host says of itself: look whether the step that gathers facts was done on every host, and retry it."
            .to_owned();
    }
    let or = match through.next() {
        Some(made) => format!(", or correct {made}, which needs it"),
        None => String::new(),
    };
    format!(
        "Set {} in {EXTRA_VARS}, or in spec.inventory where hosts differ{or}.",
        names.join(", ")
    )
}

fn sources<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<Source> {
    names.map(source_of).collect()
}

fn source_of(name: &str) -> Source {
    let mut steps = name.split('.');
    let root = steps.next().unwrap_or_default();
    match root {
        "kube_version" => Source::Version,
        "groups" | "group_names" | "inventory_hostname" | "play_hosts" => Source::Hosts,
        "hostvars" => steps.nth(1).map_or(Source::Hosts, source_of),
        // How Ansible reaches a host is set, the rest is found out.
        _ if root.starts_with("ansible_")
            && !["ansible_host", "ansible_port", "ansible_user"].contains(&root) =>
        {
            Source::Fact
        }
        _ => Source::Variable,
    }
}

/// The text with a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(rest).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(names: &[&str]) -> Vec<Asked> {
        let one = |name: &&str| Asked {
            name: (*name).to_owned(),
            ..Asked::default()
        };
        names.iter().map(one).collect()
    }

    #[test]
    fn what_to_do_depends_on_where_a_value_comes_from() {
        let cases: [(&[&str], &str); 5] = [
            (&["cni"], "Correct cni in spec.nodes.all.deploy.extraVars"),
            (
                &["kube_version", "kube_version_min_required"],
                "or correct spec.kubernetesVersion",
            ),
            (&["groups.etcd"], "Correct the ClusterNodes and their roles"),
            (
                &["ansible_memtotal_mb", "minimal_node_memory_mb"],
                "or change the host, which says ansible_memtotal_mb of itself.",
            ),
            (&[], "correct what the message names"),
        ];
        for (names, part) in cases {
            let remedy = to_correct(&asked(names));
            assert!(remedy.contains(part), "{remedy}");
        }
    }

    #[test]
    fn what_is_missing_is_set_where_it_is_read() {
        let missing = |name: &str, through: &[&str]| Missing {
            name: name.to_owned(),
            through: through.iter().map(ToString::to_string).collect(),
        };
        let remedy = to_set(&[missing("bottom", &["top", "middle"])]);
        assert_eq!(
            remedy,
            "Set bottom in spec.nodes.all.deploy.extraVars of the Cluster, or in spec.inventory where hosts differ, or correct \
             middle, which needs it."
        );
        let fact = to_set(&[missing("hostvars.two.ansible_default_ipv4", &[])]);
        assert!(fact.contains("gathers facts"), "{fact}");
    }
}
