//! `windlass explain`: what a failure means, whose it is, what to do, and what led to it.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::Path,
};

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
    explain::{Explanation, explain, log_of},
    failures,
    runner::{EVENTS, FORMER_EVENTS},
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
    let told = of_run(&run, &directory)?;
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
    Ok(())
}

/// Why a run failed, in lines, from what its directory has of it.
fn of_run(run: &Run, directory: &Path) -> anyhow::Result<String> {
    let step = failed_step(run);
    let log = step.map(|step| log_of(directory, &step));
    let told = explain(run, events(directory)?, &log.unwrap_or_default());
    let Some(told) = told else {
        let name = run.name_any();
        let stands = phase(run);
        let next = match stands {
            RunPhase::Succeeded => "there is nothing to explain",
            _ => "follow it with: windlass status --watch",
        };
        bail!("run {name} has not failed, it is {stands:?}: {next}");
    };
    Ok(text(run, &told))
}

/// Why a run failed, in lines, from a bundle of it; nothing: it has not.
pub(crate) fn of_bundle(run: &Run, bundle: &Bundle) -> Option<String> {
    let log = failed_step(run).map(|step| bundle.log(&step));
    let told = explain(run, bundle.events(), &log.unwrap_or_default())?;
    Some(text(run, &told))
}

fn failed_step(run: &Run) -> Option<String> {
    let history = &run.status.as_ref()?.history;
    let mut failed = history.iter().rev();
    let failed = failed.find(|record| record.event == api::run::RecordEvent::StepFailed)?;
    failed.step.clone()
}

/// What the tasks of the run did, oldest first; nothing where that lies elsewhere.
fn events(directory: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    let mut all: Box<dyn BufRead> = Box::new(io::empty());
    for name in [FORMER_EVENTS, EVENTS] {
        match File::open(directory.join(name)) {
            Ok(file) => all = Box::new(all.chain(BufReader::new(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context("failed to read the run's events"),
        }
    }
    Ok(all)
}

fn text(run: &Run, told: &Explanation) -> String {
    let name = run.name_any();
    let attempt = told.attempt.filter(|attempt| *attempt > 1);
    let attempt = attempt.map(|number| format!(", attempt {number}"));
    let mut text = format!(
        "run {name} failed in step {}{}\n",
        told.step,
        attempt.unwrap_or_default()
    );
    text += &of_failure(&told.failure);
    if let Some(first) = &told.first {
        text += "\nwhat led to it\n";
        let at = first.at.map(|at| format!("{at} "));
        text += &format!("  {}{}\n", at.unwrap_or_default(), first.place);
        text += &format!("  code: {}\n  said: {}\n", first.code, first.message);
        if let Some(remedy) = &first.remedy {
            text += &format!("  what to do: {remedy}\n");
        }
    }
    if told.log.is_empty() {
        text += &format!(
            "\nthe log is not on this machine: windlass logs {name} --step {}\n",
            told.step
        );
    } else {
        text += "\nthe log where it failed\n";
        for line in &told.log {
            text += &format!("  {line}\n");
        }
    }
    text
}

fn of_failure(failure: &Failure) -> String {
    let meaning = failures::named(&failure.code).map(|kind| format!(": {}", kind.meaning));
    let mut text = format!(
        "  code: {}{}\n  class: {:?}: {}\n",
        failure.code,
        meaning.unwrap_or_default(),
        failure.class,
        failures::told(failure.class)
    );
    if !failure.targets.is_empty() {
        let hosts: Vec<_> = failure.targets.iter().map(api::Target::as_str).collect();
        let more = hosts.len().saturating_sub(10);
        let shown = hosts
            .iter()
            .take(10)
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        text += &format!("  on: {shown}{more}\n");
    }
    text += &format!("  said: {}\n", failure.message.replace('\n', "\n    "));
    if let Some(remedy) = &failure.remedy {
        text += &format!("  what to do: {remedy}\n");
    }
    text
}

fn codes(output: Output) -> anyhow::Result<()> {
    let kinds = failures::kinds();
    let rows: Vec<Value> = kinds
        .iter()
        .map(|kind| {
            json!({
                "code": kind.code, "class": format!("{:?}", kind.class), "meaning": kind.meaning,
                "remedy": kind.remedy, "recognised": kind.pattern,
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
        Output::Json => println!("{}", serde_json::to_string_pretty(&rows)?),
        Output::Yaml => println!("{}", serde_saphyr::to_string(&rows)?),
    }
    Ok(())
}
