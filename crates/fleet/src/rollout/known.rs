//! What is seen of the clusters of a roll-out, and of those whose budgets it shares.

use std::collections::{BTreeMap, BTreeSet};

use ::inventory::Problems;
use api::{
    inventory::{
        FleetClusterStatus, FleetHealth, FleetSecret, Rollout, RolloutMember, RolloutState,
    },
    secrets::KEY_DIGITS,
};
use controller::{conditions, stream::in_namespace};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    Context,
    approvals::Approvals,
    engine,
    engine::{Operators, Seen},
    history, rollback,
    waves::{self, Candidate},
};
use crate::{
    cluster::{line, records, secrets::is_other},
    inventories::{self, Inventory, Revision},
};

/// What is known of the clusters of a roll-out.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Every cluster of the namespace: budgets are of all.
    pub seen: BTreeMap<String, Seen>,
    /// The roll-out's own, with what the inventory renders each to.
    pub own: Vec<Candidate>,
    /// Own ones that cannot be rendered, and why.
    pub broken: BTreeMap<String, String>,
    /// Own ones whose status does not speak of the inventory as it is now.
    pub stale: Vec<String>,
    /// Why not all that share a secret of Vault have read its newest version: what changes by it is not seen whole.
    pub unread: Option<String>,
    /// Those of the namespace, whosever, that cannot be read or rendered, and why: where they belong is not known.
    pub unknown: BTreeMap<String, String>,
    /// A Rollout of the namespace that cannot be read, and why: what it has under way, and whose clusters are its own, is not known.
    pub unreadable: Option<(String, String)>,
    /// Where somebody asks to roll the run back: clusters that cannot go to what they were before, and why.
    pub no_way_back: BTreeMap<String, String>,
    /// The waves that people let begin by objects of their own.
    pub approvals: Approvals,
    /// What the clusters inherit from, if it can be kept.
    pub sources: Option<String>,
    /// The levels that there are.
    pub levels: BTreeSet<String>,
}

impl Known {
    /// Why no cluster may be begun: budgets count all of the namespace.
    pub fn is_unknown(&self) -> Option<String> {
        if let Some((name, why)) = &self.unreadable {
            return Some(format!(
                "Rollout {name} cannot be read, so nobody knows what it has under way: {why}; mend it, or run the release that wrote it"
            ));
        }
        let (name, why) = self.unknown.first_key_value()?;
        Some(format!(
            "FleetCluster {name} cannot be rendered, so nobody knows what it belongs to: {why}"
        ))
    }

    /// Why the roll-out's own cannot be what the inventory says.
    pub fn is_broken(&self) -> Option<String> {
        let (name, why) = self.broken.first_key_value()?;
        let more = match self.broken.len() {
            1 => String::new(),
            2 => ", and one more".to_owned(),
            count => format!(", and {} more", count - 1),
        };
        Some(format!(
            "FleetCluster {name}{more} cannot be rendered: {why}"
        ))
    }
}

/// The first thing that keeps a cluster from being rendered.
fn why(problems: &Problems) -> String {
    let problem = problems.0.first().map(inventories::told);
    problem.as_ref().map(line).unwrap_or_default()
}

pub(super) fn known(
    rollout: &Rollout,
    all: &[Rollout],
    inventory: &Inventory,
    context: &Context,
) -> Known {
    let namespace = rollout.namespace().unwrap_or_default();
    let others = all.iter().filter(|other| other.uid() != rollout.uid());
    let taken: BTreeMap<_, _> = others
        .flat_map(members)
        .filter(|member| engine::is_open(member))
        .map(|member| (member.name.as_str(), member))
        .collect();
    // What a cluster was begun in it stays in, whatever the inventory says by now, or cannot say.
    let mut recorded = BTreeMap::<&str, BTreeSet<String>>::new();
    for member in all.iter().flat_map(members) {
        let domains = recorded.entry(&member.name).or_default();
        domains.extend(member.domains.iter().cloned());
    }
    let recorded = |name: &str| recorded.get(name).cloned().unwrap_or_default();
    let mut secrets = Vec::new();
    let policy = waves::policy(&rollout.spec);
    let mut known = Known {
        sources: inventory.sources().map(|sources| sources.revision.clone()),
        ..Known::default()
    };
    for cluster in in_namespace(&context.clusters, &namespace) {
        let cluster = match &cluster.0 {
            Ok(cluster) => cluster,
            Err(invalid) => {
                let name = invalid.metadata.name.clone().unwrap_or_default();
                let seen = Seen {
                    domains: recorded(&name).into_iter().collect(),
                    message: Some("its FleetCluster cannot be read".to_owned()),
                    is_taken: taken.contains_key(name.as_str()),
                    ..Seen::default()
                };
                let why = seen.message.clone().unwrap_or_default();
                known.unknown.insert(name.clone(), why);
                known.seen.insert(name, seen);
                continue;
            }
        };
        if cluster.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let name = cluster.name_any();
        let status = cluster.status.clone().unwrap_or_default();
        let outcome = inventory.render(&name);
        let levels = outcome
            .as_ref()
            .as_ref()
            .map(|revision| revision.levels.clone());
        if let Err(problems) = &levels {
            known.unknown.insert(name.clone(), why(problems));
        }
        let levels = levels.unwrap_or_default();
        let mut domains = recorded(&name);
        domains.extend(waves::domains(&policy, &levels));
        let before = status
            .applied
            .as_deref()
            .map(|applied| records::levels(&context.revisions, (&namespace, &name), applied));
        let before = before.unwrap_or_default();
        domains.extend(waves::domains(&policy, &before));
        known.levels.extend(levels.keys().cloned());
        known.seen.insert(
            name.clone(),
            Seen {
                domains: domains.into_iter().collect(),
                applied: status.applied.clone(),
                is_halfway: status.begun.is_some(),
                target: status.target.clone(),
                health: status.health.unwrap_or_default(),
                message: status.message.clone(),
                at_work_since: at_work_since(&status),
                operators: outcome.as_ref().as_ref().map(operators).unwrap_or_default(),
                gates: status.gates.clone(),
                rules: status.rules.clone(),
                is_taken: taken.contains_key(name.as_str()),
                is_newborn: status.born.is_some(),
            },
        );
        let owner = waves::owner(all.iter(), cluster.labels());
        if owner.map(ResourceExt::name_any) != Some(rollout.name_any()) {
            continue;
        }
        match outcome.as_ref() {
            Err(problems) => {
                known.broken.insert(name, why(problems));
            }
            Ok(revision) => {
                let of_vault = status.secrets.iter().cloned();
                secrets.extend(of_vault.map(|secret| (name.clone(), secret)));
                if status.rendered.as_ref() != Some(&revision.name) {
                    let problem = status.problems.first();
                    if let Some(problem) = problem.filter(|_| status.rendered.is_none()) {
                        known.broken.insert(name.clone(), line(problem));
                    } else {
                        known.stale.push(name.clone());
                    }
                }
                known.own.push(Candidate {
                    name,
                    labels: cluster.labels().clone(),
                    levels,
                    before,
                    revision: revision.name.clone(),
                });
            }
        }
    }
    known.unread = unread(&secrets);
    known.no_way_back = no_way_back(rollout, &known, context);
    // Begun by another roll-out, and gone.
    let own: BTreeSet<_> = members(rollout)
        .map(|member| member.name.as_str())
        .collect();
    for (name, member) in taken {
        if !own.contains(name) && !known.seen.contains_key(name) {
            let seen = Seen {
                domains: member.domains.clone(),
                is_taken: true,
                ..Seen::default()
            };
            known.seen.insert(name.to_owned(), seen);
        }
    }
    known
}

/// Whose operators are at work on a cluster, by what it is rendered to.
fn operators(revision: &Revision) -> Operators {
    let mut objects = revision.objects.iter();
    let is_of_kubespray = objects.any(|object| {
        let version = object["apiVersion"].as_str();
        version.is_some_and(|version| version.starts_with("kubespray.k8s.io/"))
    });
    if is_of_kubespray {
        Operators::ComeToRest
    } else {
        Operators::NeverGiveUp
    }
}

/// Since when a cluster is at work: since it was Ready last. Pure.
fn at_work_since(status: &FleetClusterStatus) -> Option<Timestamp> {
    let mut all = status.conditions.iter();
    let ready = all.find(|it| it.type_ == conditions::READY && it.status != "True")?;
    (status.health == Some(FleetHealth::AtWork)).then_some(ready.last_transition_time.0)
}

/// Why not all clusters of a roll-out that share a secret of Vault have read the newest version of it that one of them has. Pure.
fn unread(secrets: &[(String, FleetSecret)]) -> Option<String> {
    let mut newest = BTreeMap::<&str, i64>::new();
    for (_, secret) in secrets {
        if let (Some(place), Some(version)) = (&secret.place, secret.version) {
            let known = newest.entry(place).or_insert(version);
            *known = version.max(*known);
        }
    }
    let behind = secrets.iter().find_map(|(cluster, secret)| {
        let (place, version) = secret.place.as_deref().zip(secret.version)?;
        let newest = newest.get(place)?;
        (version < *newest).then(|| {
            format!("FleetCluster {cluster} is about to read version {newest} of {place} in Vault, which it shares with others")
        })
    });
    behind.or_else(|| read_differently(secrets))
}

/// That two clusters have read different things of a place without versions. Pure.
fn read_differently(secrets: &[(String, FleetSecret)]) -> Option<String> {
    // By the key of the digests too, which say nothing of those of another one.
    let mut first = BTreeMap::<_, (&str, &str)>::new();
    secrets.iter().find_map(|(cluster, secret)| {
        let (place, contents) = secret.place.as_deref().zip(secret.contents.as_deref())?;
        let known = first.entry((place, contents.get(..KEY_DIGITS)));
        let (other, read) = *known.or_insert((cluster, contents));
        is_other(read, contents).then(|| {
            format!("FleetCluster {other} and {cluster} have read different things of {place} in Vault, which they share, and read it anew")
        })
    })
}

/// The clusters that cannot go back, and why, if somebody asks for that.
fn no_way_back(rollout: &Rollout, known: &Known, context: &Context) -> BTreeMap<String, String> {
    let namespace = rollout.namespace().unwrap_or_default();
    let obstacle = |name: &str, before: Option<&str>, from: &[&str]| {
        rollback::obstacle(name, before, from, |revision| {
            records::kept(&context.revisions, (&namespace, name), revision)
        })
    };
    let control = rollout.spec.control.clone().unwrap_or_default();
    let open = rollout.status.as_ref().and_then(history::open);
    let open = open.filter(|run| {
        control.state == Some(RolloutState::RolledBack) && control.run.as_ref() == Some(&run.id)
    });
    if let Some(run) = open {
        let begun = run.clusters.iter();
        let begun = begun.filter(|member| engine::has_begun(member));
        let obstacles = begun.filter_map(|member| {
            let why = obstacle(&member.name, member.before.as_deref(), &[&member.revision])?;
            Some((member.name.clone(), why))
        });
        return obstacles.collect();
    }
    let Some(Ok(taken)) = history::asked(rollout) else {
        return BTreeMap::new();
    };
    let own = known.own.iter().map(|candidate| &candidate.name);
    let own: BTreeSet<_> = own.chain(known.broken.keys()).collect();
    let obstacles = taken.before.iter().filter_map(|(name, before)| {
        let seen = known.seen.get(name).filter(|_| own.contains(name))?;
        let applied = seen.applied.as_deref()?;
        if Some(applied) == before.as_deref() && !seen.is_halfway {
            return None;
        }
        let brought = taken.revisions.get(name).map_or(applied, String::as_str);
        let why = obstacle(name, before.as_deref(), &[applied, brought])?;
        Some((name.clone(), why))
    });
    obstacles.collect()
}

/// The clusters of a roll-out's run that has not ended.
fn members(rollout: &Rollout) -> impl Iterator<Item = &RolloutMember> {
    use api::inventory::MemberPhase::{Done, Gone, Skipped};
    let run = rollout
        .status
        .as_ref()
        .and_then(|status| status.run.as_ref());
    let run = run.filter(|run| run.ended.is_none());
    let members = run.into_iter().flat_map(|run| &run.clusters);
    members.filter(|member| !matches!(member.phase, Done | Skipped | Gone))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_is_at_work_since_it_was_ready_last() {
        let at = "2026-01-01T00:00:00Z";
        for (health, ready, expected) in [
            ("AtWork", "False", Some(at)),
            ("AtWork", "True", None),
            ("Failed", "False", None),
            ("Well", "True", None),
        ] {
            let status = serde_json::from_value(json!({"health": health, "conditions": [
                {"type": "UpToDate", "status": "False", "reason": "x", "message": "x", "lastTransitionTime": "2020-01-01T00:00:00Z"},
                {"type": "Ready", "status": ready, "reason": "x", "message": "x", "lastTransitionTime": at},
            ]}));
            let since = at_work_since(&status.unwrap());
            let since = since.map(|since| since.to_string());
            assert_eq!(since.as_deref(), expected, "{health} {ready}");
        }
    }

    #[test]
    fn who_shares_a_secret_has_read_it_before_a_run_begins() {
        let secret = |cluster: &str, place: &str, version: Option<i64>| {
            let secret = FleetSecret {
                place: (!place.is_empty()).then(|| place.to_owned()),
                version,
                ..FleetSecret::default()
            };
            (cluster.to_owned(), secret)
        };
        let told = |secrets: &[(String, FleetSecret)]| unread(secrets);
        let (one, two) = (secret("one", "v/a", Some(5)), secret("two", "v/a", Some(4)));
        let waits = told(&[one.clone(), two.clone()]).unwrap();
        assert!(
            waits.contains("FleetCluster two is about to read version 5 of v/a"),
            "{waits}"
        );
        assert_eq!(told(&[two.clone(), two.clone()]), None);
        // Without versions by what was read, while both can read it.
        let read = |cluster: &str, contents: Option<&str>| {
            let (name, secret) = secret(cluster, "v/a", None);
            let contents = contents.map(ToOwned::to_owned);
            (name, FleetSecret { contents, ..secret })
        };
        let waits = told(&[read("one", Some("keyA1")), read("two", Some("keyA2"))]).unwrap();
        assert!(
            waits.contains("FleetCluster one and two have read different things of v/a"),
            "{waits}"
        );
        for contents in [Some("keyA1"), Some("keyB2"), None] {
            assert_eq!(
                told(&[read("one", Some("keyA1")), read("two", contents)]),
                None
            );
        }
        // Of another place, of an engine without versions or of a Vault that is away nobody waits.
        for other in [
            secret("two", "v/b", Some(4)),
            secret("two", "v/a", None),
            secret("two", "", Some(4)),
        ] {
            assert_eq!(told(&[one.clone(), other]), None);
        }
    }
}
