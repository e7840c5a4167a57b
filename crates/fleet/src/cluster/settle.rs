//! Takes away what a cluster needs no longer of Vault, and of templates, when it has been well for a while.
//!
//! That cannot be undone, and the first glance that says well may be of what was before the change: a change of ClusterNodes and
//! VaultSecrets alone makes no other generation of the Cluster, which stays Ready until its operator has seen what waits. So no roll-out
//! may be at the cluster any more, the pass before must have found it well with nothing that waits, and it must have been Ready for a
//! while. Since when it is, its status says: a pass that writes makes it AtWork.

use std::{collections::BTreeSet, time::Duration};

use api::inventory::{FleetCluster, FleetClusterStatus, FleetHealth};
use controller::{conditions, stream::in_namespace};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::{
    Context, Error, Pass,
    apply::{Trial, delete, is_unknown, write},
    live,
    part::{Part, Parts},
    records, templates, vault,
};
use crate::rollout::engine;

/// Takes away what a cluster that is well at its revision needs no longer: keys of Secrets, then VaultSecrets and templates of the
/// revisions before. Or says when that is due.
pub(super) async fn settle(
    cluster: &FleetCluster,
    parts: &Parts,
    there: &[Option<Value>],
    pass: &mut Pass,
    context: &Context,
) -> Result<(), Error> {
    let waiting: Vec<_> = parts
        .objects
        .iter()
        .zip(there)
        .filter_map(|(part, live)| {
            let waits = part.is_vault_secret() && live.as_ref().is_some_and(vault::waits_for_well);
            waits.then_some((part, live.as_ref()))
        })
        .collect();
    let is_settled = waiting.is_empty() && pass.former.is_empty();
    // A roll-out that is done wakes the cluster.
    if is_settled || is_watched(cluster, context) {
        return Ok(());
    }
    let status = cluster.status.as_ref();
    let well =
        status.and_then(|status| well_for(status, pass.applied.as_deref(), Timestamp::now()));
    if let Some(left) = left(well, context.settle_after) {
        pass.settles_in = Some(left);
        return Ok(());
    }
    for change in waiting {
        // What is refused now is tried again with the next pass.
        if write(cluster, change, Trial::Real, context).await?.is_err() {
            return Ok(());
        }
    }
    let read = |revision: &str| records::parts(cluster, revision, context).ok();
    let (leaving, unread) = leaving(&pass.former, parts, read);
    for part in &leaving {
        let there = match live::read_own(part, cluster, context).await {
            Err(Error::Api(_, error)) if is_unknown(&error) => None,
            there => there?,
        };
        if let Some(there) = there.filter(|there| !vault::is_for_template(there)) {
            delete(part, &there, context).await?;
        }
    }
    let needed = templates::remove(cluster, parts, &pass.former, context).await?;
    pass.former
        .retain(|revision| unread.contains(revision) || needed.contains(revision));
    Ok(())
}

/// Whether a roll-out, whichever, has begun a cluster and is not done with it.
fn is_watched(cluster: &FleetCluster, context: &Context) -> bool {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let rollouts = in_namespace(&context.rollouts, &namespace);
    // What cannot be read may have begun it.
    if rollouts.iter().any(|rollout| rollout.0.is_err()) {
        return true;
    }
    let runs = rollouts
        .iter()
        .filter_map(|rollout| rollout.0.as_ref().ok()?.status.as_ref()?.run.as_ref());
    let mut members = runs
        .filter(|run| run.ended.is_none())
        .flat_map(|run| &run.clusters);
    members.any(|member| member.name == name && engine::is_open(member))
}

/// For how long a cluster has been well at a revision with nothing that waits, by the status that the pass before wrote. None: it was not.
fn well_for(
    status: &FleetClusterStatus,
    revision: Option<&str>,
    now: Timestamp,
) -> Option<Duration> {
    let was_well = status.health == Some(FleetHealth::Well) && status.message.is_none();
    if !was_well || status.applied.as_deref() != revision {
        return None;
    }
    let mut all = status.conditions.iter();
    let ready = all.find(|it| it.type_ == conditions::READY && it.status == "True")?;
    let passed = now.duration_since(ready.last_transition_time.0);
    Some(Duration::try_from(passed).unwrap_or_default())
}

/// For how long a cluster must be well yet. None: no longer.
fn left(well: Option<Duration>, settle_after: Duration) -> Option<Duration> {
    match well {
        None => Some(settle_after),
        Some(passed) => settle_after
            .checked_sub(passed)
            .filter(|left| !left.is_zero()),
    }
}

/// The VaultSecrets that only revisions before have and no template of theirs names, and the revisions that cannot be read: what those
/// have is not known, and they are asked again.
///
/// What an object says of a template is not enough: one that an earlier version wrote says nothing.
fn leaving(
    former: &[String],
    parts: &Parts,
    read: impl Fn(&str) -> Option<Parts>,
) -> (Vec<Part>, Vec<String>) {
    let mut secrets = Vec::new();
    let mut unread = Vec::new();
    for revision in former {
        match read(revision) {
            Some(parts) => secrets.extend(parts.objects.into_iter().filter(Part::is_vault_secret)),
            None => unread.push(revision.clone()),
        }
    }
    let of_templates = secrets
        .iter()
        .filter(|part| vault::is_for_template(&part.value));
    let stay: BTreeSet<_> = parts
        .objects
        .iter()
        .chain(of_templates)
        .map(Part::identity)
        .collect();
    secrets.retain(|part| !stay.contains(&part.identity()));
    (secrets, unread)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::cluster::part;

    /// A revision with VaultSecrets of these paths, of which a template names the Secret of `named`.
    fn revision(paths: &[&str], named: Option<&str>) -> Parts {
        let name = |path: &str| inventory::vault_secret_name("shop", "secret", path);
        let mut objects = vec![json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "shop"},
        })];
        objects.extend(paths.iter().map(|path| {
            json!({
                "apiVersion": "secrets.windlass.dev/v1alpha1", "kind": "VaultSecret",
                "metadata": {"name": name(path)}, "spec": {"path": path, "vault": {}},
            })
        }));
        objects.extend(named.map(|path| {
            json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "DevMachineTemplate",
                "metadata": {"name": "m"},
                "spec": {"template": {"spec": {"secretRef": {"name": name(path)}}}},
            })
        }));
        part::parts("fleet", "shop", "r", &objects).unwrap()
    }

    /// The paths that leave for a revision with the VaultSecret `now`, and the revisions that cannot be read.
    fn told(former: &[(&str, Option<Parts>)]) -> (Vec<String>, Vec<String>) {
        let names: Vec<_> = former.iter().map(|(name, _)| (*name).to_owned()).collect();
        let records: BTreeMap<_, _> = former.iter().cloned().collect();
        let read = |name: &str| records.get(name).cloned().flatten();
        let (secrets, unread) = leaving(&names, &revision(&["now"], None), read);
        let path = |part: &Part| part.value["spec"]["path"].as_str().unwrap().to_owned();
        (secrets.iter().map(path).collect(), unread)
    }

    #[test]
    fn one_glance_that_says_well_is_not_enough() {
        let minute = Duration::from_mins(1);
        let now: Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
        let status = |health: &str, message: Option<&str>, ready: &str, since: &str| {
            let status = json!({
                "applied": "r2", "health": health, "message": message,
                "conditions": [{
                    "type": "Ready", "status": ready, "reason": "x", "message": "x", "lastTransitionTime": since,
                }],
            });
            serde_json::from_value::<FleetClusterStatus>(status).unwrap()
        };
        let (long_ago, lately) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:20Z");
        let (in_future, waits) = ("2026-01-01T01:00:00Z", Some("Converge waits"));
        for (name, before, revision, expected) in [
            (
                "well for long",
                status("Well", None, "True", long_ago),
                "r2",
                None,
            ),
            (
                "well for less than a minute",
                status("Well", None, "True", lately),
                "r2",
                Some(Duration::from_secs(20)),
            ),
            (
                "at work before",
                status("AtWork", None, "False", long_ago),
                "r2",
                Some(minute),
            ),
            (
                "something of it waited",
                status("Well", waits, "True", long_ago),
                "r2",
                Some(minute),
            ),
            (
                "not ready, as it cannot be rendered",
                status("Well", None, "False", long_ago),
                "r2",
                Some(minute),
            ),
            (
                "well at another revision",
                status("Well", None, "True", long_ago),
                "r3",
                Some(minute),
            ),
            (
                "a clock that was set back",
                status("Well", None, "True", in_future),
                "r2",
                Some(minute),
            ),
        ] {
            let well = well_for(&before, Some(revision), now);
            assert_eq!(left(well, minute), expected, "{name}");
        }
        // However short that is, it is another pass.
        assert_eq!(left(None, Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(left(Some(Duration::ZERO), Duration::ZERO), None);
    }

    #[test]
    fn a_secret_of_a_template_stays_whatever_its_object_says() {
        let plain = revision(&["now", "old"], None);
        let named = revision(&["now", "old", "other"], Some("old"));
        assert_eq!(told(&[("r1", Some(plain.clone()))]).0, ["old"]);
        assert_eq!(told(&[("r1", Some(named.clone()))]).0, ["other"]);
        // A later revision that has it without the template, which stays as well.
        let both = [("r1", Some(named)), ("r2", Some(plain))];
        assert_eq!(told(&both).0, ["other"]);
    }

    #[test]
    fn a_revision_that_cannot_be_read_is_not_forgotten() {
        let old = revision(&["old"], None);
        let former = [("r1", None), ("r2", Some(old)), ("r3", None)];
        let (paths, unread) = told(&former);
        assert_eq!(paths, ["old"]);
        assert_eq!(unread, ["r1", "r3"]);
    }
}
