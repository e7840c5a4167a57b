//! `windlass move`: carries the Windlass objects of a namespace to another API, or those of Cluster API.

use std::io::Write as _;

use anyhow::Context;
use kubespray::Layout;
use relocation::{Domain, Outcome, Patience, Side, Summary, Tell, take_back};

use crate::{
    cli::{Global, Move, Output},
    terminal,
};

/// What is wrong where clap was to see to it.
const NO_TARGET: &str = "--to-kubeconfig is not set";

/// The operators whose objects move. `data` is the data directory of the API that they leave, if it is on this machine.
fn domains(data: Option<Layout>) -> Vec<Domain> {
    vec![kubespray::moving::domain(data)]
}

/// Moves, and says so.
pub(crate) async fn relocate(global: &Global, options: &Move) -> anyhow::Result<()> {
    kubespray::private::close();
    let own = global.own_kubeconfig()?;
    let is_own = global.kubeconfig.as_ref().is_none_or(|file| *file == own) && own.exists();
    let data = if is_own {
        Some(Layout::new(global.data_directory()?))
    } else {
        None
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
        Some(file) => Some(Side::there(file, options.to_context.as_deref(), &to_namespace).await?),
        None => None,
    };
    let summary = if options.cluster_api {
        pivot(options, &source, target.as_ref(), &tell).await?
    } else if options.abort {
        let domains = domains(data);
        take_back(&source, target.as_ref(), &domains, &tell).await?
    } else {
        let domains = domains(data);
        let target = target.context(NO_TARGET)?;
        let patience = Patience::new(options.timeout.into());
        let this = relocation::Move::prepare(&source, &target, &domains, patience, &tell).await?;
        if options.dry_run {
            this.plan().await?
        } else {
            this.carry_over().await?
        }
    };
    show(&summary, options.output)
}

/// The same for the objects of Cluster API, whose controllers know nothing of our marks.
async fn pivot(
    options: &Move,
    source: &Side,
    target: Option<&Side>,
    tell: Tell<'_>,
) -> anyhow::Result<Summary> {
    let patience = pivot::Patience::new(options.timeout.into());
    if options.abort {
        return Ok(pivot::take_back(source, target, patience, tell).await?);
    }
    let target = target.context(NO_TARGET)?;
    let this = pivot::Move::prepare(source, target, patience, tell).await?;
    Ok(if options.dry_run {
        this.plan().await?
    } else {
        this.carry_over().await?
    })
}

fn show(summary: &Summary, output: Output) -> anyhow::Result<()> {
    let text = match output {
        Output::Json => terminal::json(summary)?,
        Output::Yaml => terminal::yaml(summary)?.trim_end().to_owned(),
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
