//! What it is to take back a run of a Rollout, before anybody asks for it. Nothing is written.

use std::collections::{BTreeMap, BTreeSet};

use api::inventory::{FleetCluster, FleetRevision, Rollout, RolloutStatus};
use inventory::{Object, diff::Change};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::Value;

use super::{Edit, Error, Plan, foretold};
use crate::{
    names,
    rollout::{
        history::{self, Taken},
        rollback, waves,
    },
};

/// Which run is taken back.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    /// The one under way, or the last one.
    Last,
    /// That which came after this one, so that clusters are as this one has left them.
    After(&'a str),
    /// This one.
    Run(&'a str),
}

/// What it is to take a run back.
#[derive(Debug)]
pub struct Back {
    /// The run: `spec.control.run` of who asks for it.
    pub run: String,
    /// Whether it is under way.
    pub is_under_way: bool,
    /// What changes.
    pub plan: Plan,
    /// Clusters that cannot go back, and why: then none does.
    pub refused: BTreeMap<String, String>,
}

/// Why there is no way back.
#[derive(Debug, thiserror::Error)]
pub enum NoWay {
    /// There is nothing to take back, or it is not known what there was.
    #[error("{0}")]
    Refused(String),
    /// Nothing is known.
    #[error(transparent)]
    Unknown(Error),
}

/// What it is to take a run of a Rollout back, for all its clusters but these.
///
/// # Errors
/// There is nothing to go back to, or the API does not answer.
pub async fn back(
    client: &Client,
    rollout: &Rollout,
    which: Which<'_>,
    skip: &BTreeSet<String>,
) -> Result<Back, NoWay> {
    let status = rollout.status.clone().unwrap_or_default();
    let taken = taken(rollout, &status, which).map_err(NoWay::Refused)?;
    let known: Vec<_> = taken.0.before.keys().map(String::as_str).collect();
    if let Some(unknown) = skip.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(NoWay::Refused(format!(
            "run {} has begun no cluster {unknown}, so there is none to leave out; those that were begun: {}",
            taken.0.run,
            known.join(", ")
        )));
    }
    let namespace = rollout.namespace().unwrap_or_default();
    let edits = edits(client, rollout, (&taken.0, taken.1), skip).await;
    let (edits, refused) = edits.map_err(NoWay::Unknown)?;
    Ok(Back {
        run: taken.0.run,
        is_under_way: taken.1,
        plan: foretold(client, &namespace, edits).await,
        refused,
    })
}

/// What is taken back, and whether that is under way.
fn taken(
    rollout: &Rollout,
    status: &RolloutStatus,
    which: Which<'_>,
) -> Result<(Taken, bool), String> {
    let name = rollout.name_any();
    let open = history::open(status);
    let run = match which {
        Which::Run(run) => run,
        Which::After(left) => history::after(status, left)?,
        Which::Last => {
            let ended = status.history.first().map(|record| record.id.as_str());
            let last = open.map(|run| run.id.as_str()).or(ended);
            last.ok_or_else(|| format!("roll-out {name} has had no run"))?
        }
    };
    match open {
        Some(open) if open.id == run => match &open.rolls_back {
            Some(before) => Err(format!(
                "run {run} of roll-out {name} is itself the way back from run {before}: edit the inventory for another revision"
            )),
            None => Ok((Taken::under_way(open), true)),
        },
        Some(open) => Err(format!(
            "run {} of roll-out {name} is under way, and {run} came before it: roll that back, or wait until it has ended",
            open.id
        )),
        None => Ok((history::taken(status, run)?, false)),
    }
}

async fn edits(
    client: &Client,
    rollout: &Rollout,
    (taken, is_under_way): (&Taken, bool),
    skip: &BTreeSet<String>,
) -> Result<(Vec<Edit>, BTreeMap<String, String>), Error> {
    let namespace = rollout.namespace().unwrap_or_default();
    let failed = |what: &'static str| move |error| Error::Api(what.to_owned(), error);
    let clusters = Api::<FleetCluster>::namespaced(client.clone(), &namespace);
    let clusters = clusters.list(&ListParams::default()).await;
    let clusters = clusters.map_err(failed("list the FleetClusters"))?;
    let rollouts = Api::<Rollout>::namespaced(client.clone(), &namespace);
    let rollouts = rollouts.list(&ListParams::default()).await;
    let rollouts = rollouts.map_err(failed("list the Rollouts"))?;
    let (mut edits, mut refused) = (Vec::new(), BTreeMap::new());
    for cluster in clusters {
        let name = cluster.name_any();
        let Some(before) = taken.before.get(&name) else {
            continue;
        };
        let owner = waves::owner(rollouts.iter(), cluster.labels());
        let is_own = owner.map(ResourceExt::name_any) == Some(rollout.name_any());
        let status = cluster.status.clone().unwrap_or_default();
        let Some(applied) = &status.applied else {
            continue;
        };
        let is_there = Some(applied) == before.as_ref() && status.begun.is_none();
        if skip.contains(&name) || !is_own || is_there && !is_under_way {
            continue;
        }
        let brought = taken.revisions.get(&name).unwrap_or(applied);
        let mut kept = BTreeMap::new();
        for revision in before.iter().chain([applied, brought]) {
            if let Some(objects) = record(client, (&namespace, &name), revision).await? {
                kept.insert(revision.clone(), objects);
            }
        }
        let from: &[&str] = if is_under_way {
            &[brought]
        } else {
            &[applied, brought]
        };
        let kept_of = |revision: &str| kept.get(revision).cloned();
        let before = before.as_deref();
        if let Some(why) = rollback::obstacle(&name, before, from, kept_of) {
            refused.insert(name, why);
            continue;
        }
        // What is half changed, or about to be, may have all of what it is brought to.
        let is_brought = is_under_way || status.begun.is_some();
        let now = kept_of(if is_brought { brought } else { applied });
        edits.push(Edit {
            cluster: Object {
                kind: "FleetCluster".to_owned(),
                namespace: namespace.clone(),
                name,
            },
            change: Change::Changed,
            before: now.unwrap_or_default(),
            after: before.and_then(kept_of).unwrap_or_default(),
        });
    }
    Ok((edits, refused))
}

/// The objects of a revision of a cluster, which has a namespace and a name, if it is there and what its name says.
pub(super) async fn record(
    client: &Client,
    (namespace, cluster): (&str, &str),
    revision: &str,
) -> Result<Option<Vec<Value>>, Error> {
    let records = Api::<FleetRevision>::namespaced(client.clone(), namespace);
    let record = records.get_opt(&names::record(cluster, revision)).await;
    let record = record.map_err(|error| Error::Api("read a FleetRevision".to_owned(), error))?;
    let objects = record.map(|record| record.spec.objects.into_iter().map(Value::Object));
    let objects = objects.map(Vec::from_iter);
    Ok(objects.filter(|objects| ::inventory::revision(objects) == revision))
}
