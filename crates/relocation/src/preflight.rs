//! Everything that can be known to go wrong, before anything is written.

use controller::problem::Problem;
use kube::ResourceExt;

use crate::{
    Move,
    copy::{check_own, is_adopted},
    domain::Domains,
    error::{Error, Result},
    graph::Graph,
    read,
    side::Side,
};

pub mod rights;
mod served;

/// How messages call the side that is left.
pub const SOURCE: &str = "here (--kubeconfig)";
/// How messages call the side that takes over.
pub const TARGET: &str = "there (--to-kubeconfig)";

/// Refuses a move to where there is nothing to take it, or that one's rights do not reach for, before objects are read.
pub(crate) async fn may_move(this: &Move<'_>) -> Result<()> {
    let (source, target, domains) = (this.source, this.target, &this.domains);
    let mut problems: Vec<Problem> = same(source, target).into_iter().collect();
    if problems.is_empty() {
        problems.extend(served::missing(target, domains).await?);
    }
    // Of kinds that are not served an API may not tell one's rights.
    if problems.is_empty() {
        problems.extend(rights::missing(source, SOURCE, &rights::here(domains)).await?);
        problems.extend(rights::missing(target, TARGET, &rights::there(domains)).await?);
        problems.extend(rights::namespace(target).await?);
    }
    refuse(problems)
}

/// As [`may_move`], of taking one back.
pub(crate) async fn may_take_back(
    source: &Side,
    target: Option<&Side>,
    domains: &Domains<'_>,
) -> Result<()> {
    let mut problems = rights::missing(source, SOURCE, &rights::back_here(domains)).await?;
    if let Some(target) = target {
        problems.extend(same(source, target));
        problems.extend(rights::missing(target, TARGET, &rights::back_there(domains)).await?);
    }
    refuse(problems)
}

/// Refuses what cannot work, with every reason; returns what a person should know.
pub(crate) async fn check(this: &Move<'_>, graph: &Graph) -> Result<Vec<String>> {
    let (mut problems, unseen) = served::older(this.target, graph, &this.domains).await?;
    if problems.is_empty() {
        problems.extend(leaving(graph));
        problems.extend(occupied(this, graph).await?);
    }
    refuse(problems)?;
    // What cannot be read is said while nothing is marked.
    this.domains.brings(graph)?;
    let mut warnings = this.domains.warnings(graph);
    warnings.extend(unnamed_owners(graph));
    warnings.extend(unseen);
    Ok(warnings)
}

fn refuse(problems: Vec<Problem>) -> Result<()> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Error::Refused(problems))
    }
}

fn same(source: &Side, target: &Side) -> Option<Problem> {
    (source.api == target.api).then(|| {
        Problem::new(
            "--to-kubeconfig",
            &target.api,
            "it leads to the API that the objects are in: its Namespace kube-system has the same uid",
            "name the kubeconfig of another one, or another of its contexts with --to-context",
        )
    })
}

/// What is on its way out here has nowhere to go.
fn leaving(graph: &Graph) -> Vec<Problem> {
    let items = graph.items().iter();
    let deleted = items.filter(|item| item.object.metadata.deletion_timestamp.is_some());
    deleted
        .map(|item| {
            Problem::new(
                format!("{} metadata.deletionTimestamp", item.shown()),
                "",
                "it is being deleted",
                "wait until it is gone",
            )
        })
        .collect()
}

/// Whether something stands in the way there.
async fn occupied(this: &Move<'_>, graph: &Graph) -> Result<Vec<Problem>> {
    let there = read::read(this.target, &this.domains).await?;
    let mut problems = this.domains.refusals(graph, &there);
    for item in graph.items() {
        let Some(existing) = this.target.get(&item.kind, &item.name()).await? else {
            continue;
        };
        if is_adopted(item, &existing) {
            continue;
        }
        if let Err(error) = check_own(this.source, item, &existing) {
            problems.push(Problem::new(
                format!("{} metadata.name", item.shown()),
                item.name(),
                "there is another object of that name there, or a copy that is at work",
                format!("delete it there, or name another namespace with --to-namespace ({error})"),
            ));
        }
    }
    Ok(problems)
}

/// Owners that stay here.
fn unnamed_owners(graph: &Graph) -> Vec<String> {
    let mut warnings = Vec::new();
    for item in graph.items() {
        for owner in item.object.owner_references() {
            let mut items = graph.items().iter();
            if !items.any(|item| item.object.uid().as_ref() == Some(&owner.uid)) {
                warnings.push(format!(
                    "{} metadata.ownerReferences: {} {} is not moved, the copy does not name it",
                    item.shown(),
                    owner.kind,
                    owner.name
                ));
            }
        }
    }
    warnings
}
