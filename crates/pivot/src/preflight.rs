//! Everything that can be known to go wrong, before anything is written.

use controller::problem::Problem;
use relocation::{SOURCE, TARGET, rights};

use crate::{
    Move, carry, contract,
    error::{Error, Result},
    graph::Graph,
    pause,
    place::{Item, Place},
    read,
    record::{self, Record},
};

mod needs;
mod providers;
mod served;

/// Refuses a move to where none can go, before objects are read.
pub(crate) fn may_move(this: &Move<'_>) -> Result<()> {
    let mut problems = places(&this.here, &this.there);
    if this.here.namespace != this.there.namespace {
        problems.push(Problem::new(
            "--to-namespace",
            &this.there.namespace,
            format!(
                "objects of Cluster API keep their namespace, {}: they name each other with it in their specs",
                this.here.namespace
            ),
            "leave --to-namespace away",
        ));
    }
    refuse(problems)
}

/// Refuses what cannot work, with every reason; returns what a person should know.
pub(crate) async fn check(this: &Move<'_>, graph: &Graph) -> Result<Vec<String>> {
    let home = &this.here.namespace;
    let mut problems = served::missing(this, graph).await?;
    problems.extend(providers::missing(this).await?);
    // Of kinds that are not served an API may not tell one's rights.
    if problems.is_empty() {
        let (here, there) = (needs::here(graph, home), needs::there(graph, home));
        let missing = rights::missing(this.source, SOURCE, &here).await;
        problems.extend(missing.map_err(asked)?);
        let missing = rights::missing(this.target, TARGET, &there).await;
        problems.extend(missing.map_err(asked)?);
        problems.extend(rights::namespace(this.target).await.map_err(asked)?);
    }
    problems.extend(unmoved(graph, home));
    problems.extend(unprovisioned(graph, home));
    problems.extend(paused(graph, home));
    if problems.is_empty() {
        problems.extend(occupied(this, graph).await?);
    }
    refuse(problems)?;
    let waiting = graph
        .moving()
        .filter(|node| node.item.annotation(contract::BLOCK_MOVE).is_some());
    let waiting = waiting.map(|node| {
        format!(
            "{} has annotation {}: the move waits until its provider takes it away, at most --timeout",
            node.item.shown(home),
            contract::BLOCK_MOVE
        )
    });
    Ok(waiting.collect())
}

/// Refuses what became impossible since: somebody deleted something, or something came that is not provisioned yet.
pub(crate) fn still(graph: &Graph, home: &str) -> Result<()> {
    let mut problems = unmoved(graph, home);
    problems.extend(unprovisioned(graph, home));
    refuse(problems)
}

pub(crate) fn refuse(problems: Vec<Problem>) -> Result<()> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Error::Refused(problems))
    }
}

fn asked(error: relocation::Error) -> Error {
    Error::Rights(Box::new(error))
}

/// Whether the places are two.
pub(crate) fn places(here: &Place, there: &Place) -> Vec<Problem> {
    let same = (here.api == there.api).then(|| {
        Problem::new(
            "--to-kubeconfig",
            &there.api,
            "it leads to the API that the objects are in: its Namespace kube-system has the same uid",
            "name the kubeconfig of another one, or another of its contexts with --to-context",
        )
    });
    same.into_iter().collect()
}

/// What is on its way out, and what cannot follow its owners.
fn unmoved(graph: &Graph, home: &str) -> Vec<Problem> {
    let deleted = graph
        .moving()
        .filter(|node| node.item.object.metadata.deletion_timestamp.is_some());
    let mut problems: Vec<_> = deleted
        .map(|node| {
            let shown = node.item.shown(home);
            Problem::new(
                format!("{shown} metadata.deletionTimestamp"),
                "",
                "it is being deleted",
                "wait until it is gone",
            )
        })
        .collect();
    problems.extend(graph.stranded().into_iter().map(|stranded| {
        let shown = stranded.item.shown(home);
        let (value, rule) = match stranded.owner {
            Some(owner) => (owner, "this owner does not move, so what it owns cannot"),
            None => (String::new(), "its owners own each other"),
        };
        Problem::new(
            format!("{shown} metadata.ownerReferences"),
            value,
            rule,
            "remove that owner reference, or label the CustomResourceDefinition of the owner clusterctl.cluster.x-k8s.io and \
             clusterctl.cluster.x-k8s.io/move",
        )
    }));
    problems
}

/// What is not provisioned yet.
fn unprovisioned(graph: &Graph, home: &str) -> Vec<Problem> {
    let items = graph
        .all()
        .filter(|item| item.kind.is_cluster() || item.kind.is_machine());
    let problems = items.filter_map(|item| {
        let (field, value, rule) = contract::unprovisioned(item)?;
        Some(Problem::new(
            format!("{} {field}", item.shown(home)),
            value,
            format!("{rule}, and what its provider is at would be forgotten"),
            "wait until it is (windlass describe cluster says what it waits for), or delete it",
        ))
    });
    problems.collect()
}

/// What somebody paused.
fn paused(graph: &Graph, home: &str) -> Vec<Problem> {
    let items = graph.all().filter(|item| pause::is_foreign(item));
    let problems = items.map(|item| {
        let field = match item.annotation(contract::PAUSED) {
            Some(_) => format!("metadata.annotations[{}]", contract::PAUSED),
            None => "spec.paused".to_owned(),
        };
        Problem::new(
            format!("{} {field}", item.shown(home)),
            "",
            "somebody paused it, and what a move pauses it lets go on",
            "let it go on first, and pause it there afterwards",
        )
    });
    problems.collect()
}

/// Whether something stands in the way there.
async fn occupied(this: &Move<'_>, graph: &Graph) -> Result<Vec<Problem>> {
    let namespaces = read::namespaces(graph, &this.here.namespace);
    let copies = read::copies(&this.there, &this.kinds, &namespaces, &this.origin).await?;
    // Those of an earlier move that was given up: they go, unless one acts.
    let (acting, forsaken): (Vec<_>, Vec<_>) =
        carry::forsaken(graph, &copies).partition(|copy| carry::is_live(copy));
    let acting = acting.into_iter().map(|copy| acts(this, copy));
    let mut problems: Vec<_> = acting.collect();
    for node in graph.moving() {
        let Some(existing) = this.there.same(&node.item).await? else {
            continue;
        };
        let goes = forsaken.iter().any(|copy| copy.uid() == existing.uid());
        if goes || carry::serves(node, &existing) {
            continue;
        }
        if carry::check_own(this, &node.item, &existing).is_err() {
            problems.push(in_the_way(this, &node.item, &existing));
        }
    }
    if Record::find(&this.there).await?.is_some() {
        problems.push(Problem::new(
            format!("ConfigMap/{} metadata.name", record::NAME),
            record::NAME,
            "there is one there: that namespace is being moved elsewhere itself",
            "end that move first, or take it back",
        ));
    }
    Ok(problems)
}

fn in_the_way(this: &Move<'_>, item: &Item, existing: &Item) -> Problem {
    let shown = item.shown(&this.here.namespace);
    if this.origin.is_copy(existing, item) {
        return acts(this, existing);
    }
    Problem::new(
        format!("{shown} metadata.name"),
        item.name(),
        "there is another object of that name there",
        "delete it there, or rename one of them",
    )
}

fn acts(this: &Move<'_>, copy: &Item) -> Problem {
    let shown = copy.shown(&this.here.namespace);
    Problem::new(
        format!("{shown} spec.paused"),
        "",
        "its copy there was let go on before the move had ended, so two management clusters may act on it",
        "set spec.paused to true there, and see that nothing was made there",
    )
}
