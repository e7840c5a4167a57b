//! `windlass move`: carries the Windlass objects of a namespace to another API.
//!
//! One direction and one point of no return. Everything here is marked first, so that nobody acts on it, and the cluster's
//! Lease is taken for good, so that no runner works; copies are marked from their first moment. Only when every copy was
//! compared with its original is the Cluster here marked as moved; from then on the copies take over, and what is here is
//! deleted, the Cluster last, because its mark says how far the move is. Each step looks at what is there before it writes,
//! so the same command goes on wherever an earlier one was stopped, and at no time is a Cluster at work on both sides.
//!
//! Objects are handled as JSON, not as types: what a newer Windlass wrote must arrive whole.

use std::{io::Write as _, path::PathBuf, time::Duration};

use anyhow::Context;
use serde::Serialize;

use crate::cli::{Global, Move, Output};

mod carry;
mod graph;
mod host_keys;
mod preflight;
mod reach;
mod served;
mod settle;
mod side;
#[cfg(test)]
mod tests;
mod undo;

use side::Side;

/// How long the source's operator has to let go of a deleted Cluster before its finalizer is taken away.
const LET_GO: Duration = Duration::from_secs(5);
/// How long a runner that has lost sight of the API may take to see that the Lease is no longer its own: it looks every ten
/// seconds, and stops Ansible then.
const SETTLE: Duration = Duration::from_secs(35);

/// What does not depend on the two sides.
pub(crate) struct Wish {
    /// How long runs may take to pause.
    timeout: Duration,
    /// As [`SETTLE`].
    settle: Duration,
    /// As [`LET_GO`].
    let_go: Duration,
    /// The data directory of the API that the objects leave, if it is on this machine.
    data: Option<PathBuf>,
}

/// What a move or its undoing did, or would do.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// What became of it.
    outcome: Outcome,
    /// The namespace here.
    namespace: String,
    /// The namespace there, if another side was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_namespace: Option<String>,
    /// What was carried, in the order of their creation, or what of it was deleted there again; as KIND/NAME.
    objects: Vec<String>,
    /// What a person should know.
    warnings: Vec<String>,
}

/// What became of a move.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
enum Outcome {
    /// Everything is there and nothing is here.
    Moved,
    /// It was so before.
    MovedBefore,
    /// Nothing was done: it was asked for.
    Planned,
    /// Nothing is there, and everything here is at work again.
    TakenBack,
    /// Nothing was on its way.
    NothingToTakeBack,
}

/// Where a move tells how far it is.
pub(crate) type Tell<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Moves, and says so.
pub(crate) async fn relocate(global: &Global, options: &Move) -> anyhow::Result<()> {
    let own = global.own_kubeconfig()?;
    let is_own = global.kubeconfig.as_ref().is_none_or(|file| *file == own) && own.exists();
    let wish = Wish {
        timeout: options.timeout.into(),
        settle: SETTLE,
        let_go: LET_GO,
        data: if is_own {
            Some(global.data_directory()?)
        } else {
            None
        },
    };
    let tell = |line: &str| {
        // A closed terminal does not stop a move.
        let _ = writeln!(std::io::stderr(), "{line}");
    };
    let to_namespace = options
        .to_namespace
        .clone()
        .unwrap_or_else(|| global.namespace.clone());
    let source = Side::find(global.client().await?, &global.namespace)
        .await
        .context("the API here (--kubeconfig) cannot be used")?;
    let target = match &options.to_kubeconfig {
        Some(file) => Some(reach::there(file, options.to_context.as_deref(), &to_namespace).await?),
        None => None,
    };
    let summary = if options.abort {
        undo::take_back(&source, target.as_ref(), &tell).await?
    } else {
        let target = target.context("--to-kubeconfig is not set")?;
        if options.dry_run {
            plan(&source, &target, &wish).await?
        } else {
            carry_over(&source, &target, &wish, &tell).await?
        }
    };
    show(&summary, options.output)
}

/// What would be done.
async fn plan(source: &Side, target: &Side, wish: &Wish) -> anyhow::Result<Summary> {
    preflight::may_move(source, target).await?;
    let graph = graph::read(source).await?;
    if graph.clusters().next().is_none() {
        return moved_before(source, target).await;
    }
    let mut warnings = Vec::new();
    if !graph.is_moved() {
        warnings = preflight::check(source, target, &graph).await?;
    }
    let mut objects = graph.names();
    for cluster in host_keys::pending(source, &graph, wish) {
        objects.push(format!(
            "Secret/{} (made of the recorded keys of the hosts)",
            kubespray::moving::host_keys_name(&cluster)
        ));
    }
    Ok(Summary {
        outcome: Outcome::Planned,
        namespace: source.namespace.clone(),
        to_namespace: Some(target.namespace.clone()),
        objects,
        warnings,
    })
}

/// Moves.
pub(crate) async fn carry_over(
    source: &Side,
    target: &Side,
    wish: &Wish,
    tell: Tell<'_>,
) -> anyhow::Result<Summary> {
    preflight::may_move(source, target).await?;
    let mut graph = graph::read(source).await?;
    if graph.clusters().next().is_none() {
        return moved_before(source, target).await;
    }
    let mut warnings = Vec::new();
    graph.same_target(target)?;
    if graph.is_moved() {
        tell("everything was copied before: going on");
    } else {
        warnings = preflight::check(source, target, &graph).await?;
        for warning in &warnings {
            tell(&format!("warning: {warning}"));
        }
        settle::settle(source, target, &graph, wish, tell).await?;
        host_keys::store(source, &graph, wish, tell).await?;
        graph = carry::copy(source, target, tell).await?;
        carry::commit(source, target, &graph, tell).await?;
    }
    carry::take_over(source, target, &graph, tell).await?;
    let left = carry::delete(source, target, &graph, wish, tell).await?;
    for warning in &left {
        tell(&format!("warning: {warning}"));
    }
    warnings.extend(left);
    Ok(Summary {
        outcome: Outcome::Moved,
        namespace: source.namespace.clone(),
        to_namespace: Some(target.namespace.clone()),
        objects: graph.names(),
        warnings,
    })
}

/// There is nothing here: because of an earlier move, or because there never was.
async fn moved_before(source: &Side, target: &Side) -> anyhow::Result<Summary> {
    let there = graph::read(target).await?;
    let arrived = there
        .clusters()
        .any(|cluster| side::is_from(&cluster.object, &source.place()));
    anyhow::ensure!(
        arrived,
        "--namespace is {:?}: there is no Cluster in it, so there is nothing to move; name the namespace of a Cluster",
        source.namespace
    );
    Ok(Summary {
        outcome: Outcome::MovedBefore,
        namespace: source.namespace.clone(),
        to_namespace: Some(target.namespace.clone()),
        objects: there.names(),
        warnings: Vec::new(),
    })
}

fn show(summary: &Summary, output: Output) -> anyhow::Result<()> {
    let text = match output {
        Output::Json => serde_json::to_string_pretty(summary).context("failed to print")?,
        Output::Yaml => serde_saphyr::to_string(summary)
            .context("failed to print")?
            .trim_end()
            .to_owned(),
        Output::Text => text(summary),
    };
    println!("{text}");
    Ok(())
}

fn text(summary: &Summary) -> String {
    let Summary {
        outcome,
        namespace,
        to_namespace,
        objects,
        warnings,
    } = summary;
    let count = objects.len();
    let to_namespace = to_namespace.as_deref().unwrap_or_default();
    match outcome {
        Outcome::Planned => {
            let mut lines = vec![format!(
                "{count} objects of namespace {namespace} would be moved to namespace {to_namespace} there, in this order:"
            )];
            lines.extend(objects.iter().map(|object| format!("  {object}")));
            lines.extend(warnings.iter().map(|warning| format!("warning: {warning}")));
            lines.join("\n")
        }
        Outcome::Moved => format!(
            "moved {count} objects: namespace {namespace} here is empty of them, namespace {to_namespace} there has taken over"
        ),
        Outcome::MovedBefore => format!(
            "nothing to do: what was in namespace {namespace} here was moved before, to namespace {to_namespace} there"
        ),
        Outcome::TakenBack => {
            let mut lines = vec![format!(
                "took the move back: namespace {namespace} here is at work again, {count} copies there were deleted"
            )];
            lines.extend(warnings.iter().map(|warning| format!("warning: {warning}")));
            lines.join("\n")
        }
        Outcome::NothingToTakeBack => {
            format!("nothing to take back: nothing of namespace {namespace} here is on its way")
        }
    }
}
