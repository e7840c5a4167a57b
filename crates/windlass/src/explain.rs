//! `windlass explain`: what a failure means, whose it is, what to do, and what led to it.

use std::path::Path;

use ansible::failure::{Proof, proof};
use anyhow::{Context, bail};
use api::{
    Run,
    run::{Failure, RunPhase},
};
use controller::hint;
use kube::{Api, ResourceExt};
use kubespray::{
    Layout,
    bundle::Bundle,
    explain::{Directory, Explanation, First, Kept, explain},
    failures, remedies,
};
use runs::phase;
use serde_json::{Value, json};

use crate::{
    cli::{ExplainFailure, ExplainWhat, Global, Output},
    control, terminal,
};

/// Explains a code or a run, or prints every code.
pub(crate) async fn command(global: &Global, command: &ExplainWhat) -> anyhow::Result<()> {
    match command {
        ExplainWhat::Failure(options) => failure(global, options).await,
        ExplainWhat::Codes(options) => codes(options.output),
    }
}

async fn failure(global: &Global, options: &ExplainFailure) -> anyhow::Result<()> {
    let named = options.what.as_deref();
    // Names of objects have no capital letters, and codes begin with one.
    if let Some(code) = named.filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase())) {
        return of_code(code);
    }
    let runs: Api<Run> = Api::namespaced(global.client().await?, &global.namespace);
    let run = control::pick(&runs, named).await?;
    let directory = Layout::new(global.data_directory()?).run(&global.namespace, &run.name_any());
    let Some(told) = told(&run, &Directory(&directory))? else {
        let name = run.name_any();
        let stands = phase(&run);
        let next = match stands {
            RunPhase::Succeeded => "there is nothing to explain",
            _ => "follow it with: windlass status --watch",
        };
        bail!("run {name} has not failed, it is {stands:?}: {next}");
    };
    let told = text(&run, &told) + &more(&run, &told, &directory);
    let told = hint::placed(&told, &global.namespace);
    print!("{}", terminal::text(&told));
    Ok(())
}

fn of_code(code: &str) -> anyhow::Result<()> {
    let Some(kind) = failures::named(code) else {
        let nearest = failures::nearest(code);
        let nearest = nearest.map(|near| format!("; did you mean {near}?"));
        bail!(
            "there is no code {code}{} windlass explain codes prints every one",
            nearest.unwrap_or_else(|| ":".to_owned())
        )
    };
    println!("{}: {}", kind.code, kind.meaning);
    println!("  class: {:?}: {}", kind.class, failures::told(kind.class));
    println!("  what to do: {}", kind.remedy);
    let may: Vec<_> = remedies::of_code(kind.code)
        .iter()
        .map(ToString::to_string)
        .collect();
    if !may.is_empty() {
        println!(
            "  by itself, where spec.remedies of the Cluster allows it: {}",
            may.join(", ")
        );
    }
    Ok(())
}

fn told(run: &Run, kept: &impl Kept) -> anyhow::Result<Option<Explanation>> {
    explain(run, kept).context("failed to read the run's events")
}

/// Why a run failed, in lines, from a bundle of it; nothing: it has not.
pub(crate) fn of_bundle(run: &Run, bundle: &Bundle) -> anyhow::Result<Option<String>> {
    Ok(told(run, bundle)?.map(|told| text(run, &told)))
}

/// What failed and when; why, and what to do, beginning with what led to it; the log there.
fn text(run: &Run, told: &Explanation) -> String {
    let name = run.name_any();
    let attempt = told.attempt.filter(|attempt| *attempt > 1);
    let attempt = attempt.map(|number| format!(", attempt {number}"));
    let mut text = format!(
        "run {name} ({} of {}) failed in step {}{}, at {:.0}\n",
        run.spec.operation,
        run.spec.subject.name,
        told.step,
        attempt.unwrap_or_default(),
        told.at
    );
    if let Some(first) = &told.first {
        text += "\nwhat led to it\n";
        text += &of_first(first);
        text += "\nwhat came of that\n";
    }
    let remedy = failures::remedy(run, &told.failure);
    text += &of_failure(&told.failure, remedy.as_deref());
    for applied in remedies::applied(run, &told.step) {
        text += &format!("  done by itself: {applied}\n");
    }
    if !told.log.is_empty() {
        text += "\nthe log where it failed\n";
        for line in &told.log {
            text += &format!("  {line}\n");
        }
    }
    text
}

/// Where more is, and what comes next. A run whose files are here may have failed before it wrote a log.
fn more(run: &Run, told: &Explanation, directory: &Path) -> String {
    let name = run.name_any();
    let step = &told.step;
    let mut text = match (told.log.is_empty(), directory.exists()) {
        (false, _) => format!("\nthe whole log: windlass logs {name} --step {step}\n"),
        (true, true) => format!("\nstep {step} wrote no log\n"),
        (true, false) => {
            format!("\nthe log, which is not on this machine: windlass logs {name} --step {step}\n")
        }
    };
    if phase(run) == RunPhase::Failed {
        text += &format!("when it is mended: windlass retry {name}\n");
    }
    text
}

fn of_first(first: &First) -> String {
    let at = first.at.map(|at| format!(", at {at:.0}"));
    let mut text = coded(&first.code);
    text += &format!("  where: {}{}\n", first.place, at.unwrap_or_default());
    text += &said(&first.message, first.remedy.as_deref());
    text
}

fn of_failure(failure: &Failure, remedy: Option<&str>) -> String {
    let mut text = coded(&failure.code);
    if !failure.targets.is_empty() {
        let targets = failure.targets.iter().map(api::Target::as_str);
        let shown: Vec<_> = targets.take(10).collect();
        let more = match failure.targets.len().saturating_sub(shown.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text += &format!("  where: {}{more}\n", shown.join(", "));
    }
    text += &said(&failure.message, remedy);
    text += &format!(
        "  class: {:?}: {}\n",
        failure.class,
        failures::told(failure.class)
    );
    text
}

fn coded(code: &str) -> String {
    let meaning = failures::named(code).map(|kind| format!(": {}", kind.meaning));
    format!("  code: {code}{}\n", meaning.unwrap_or_default())
}

fn said(message: &str, remedy: Option<&str>) -> String {
    let remedy = remedy.map(|remedy| format!("  what to do: {remedy}\n"));
    format!(
        "  said: {}\n{}",
        message.replace('\n', "\n    "),
        remedy.unwrap_or_default()
    )
}

fn codes(output: Output) -> anyhow::Result<()> {
    let kinds = failures::kinds();
    let rows: Vec<Value> = kinds
        .iter()
        .map(|kind| {
            let proof = proof(kind.code).map(|proof| match proof {
                Proof::Made(suite, fault) => json!({"fault": fault, "by": suite.file()}),
                Proof::Not(why) => json!({"not": why}),
            });
            json!({
                "code": kind.code, "class": format!("{:?}", kind.class), "meaning": kind.meaning,
                "remedy": kind.remedy, "recognised": kind.pattern, "made": proof,
            })
        })
        .collect();
    match output {
        Output::Text => {
            let rows = kinds.iter().map(|kind| {
                [
                    kind.code.to_owned(),
                    format!("{:?}", kind.class),
                    kind.meaning.to_owned(),
                ]
            });
            println!("{}", terminal::table(["CODE", "CLASS", "MEANING"], rows));
        }
        Output::Json => println!("{}", terminal::json(&rows)?),
        Output::Yaml => println!("{}", terminal::yaml(&rows)?),
    }
    Ok(())
}
