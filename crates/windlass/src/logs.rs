//! `windlass logs`: what a run's steps wrote, from the data directory, or from the runner's pods.
//!
//! By step: what Ansible printed. By host: what each task did there, from the events.

use std::{
    io::{BufRead, BufReader, Read, Seek, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use ansible::event::{Event, Kind};
use anyhow::Context;
use api::{Run, text::lines};
use kube::{Api, ResourceExt};
use kubespray::{
    Layout,
    runner::{EVENTS, FORMER_EVENTS},
};
use runs::{reconciler::report::obstacle, runner::heading};

use crate::{
    cli::{Global, Logs},
    client, control,
};

mod pod;

/// How often a log that is followed is looked at: it is a file, and nothing tells when it grows.
const LOOK: Duration = Duration::from_millis(300);

/// How much of a line is printed at once, in bytes: a host may have said one without an end.
const LINE: u64 = 64 * 1024;

/// Prints the logs of a run.
pub(crate) async fn logs(global: &Global, options: &Logs) -> anyhow::Result<()> {
    let runs: Api<Run> = Api::namespaced(global.client().await?, &global.namespace);
    let run = control::pick(&runs, options.run.as_deref()).await?;
    let layout = Layout::new(global.data_directory()?);
    let steps: Vec<String> = run
        .spec
        .plan
        .steps
        .iter()
        .map(|step| step.id.clone())
        .collect();
    let name = run.name_any();
    if let Some(step) = &options.step {
        anyhow::ensure!(
            steps.contains(step),
            "run {name} has no step {step:?}: its steps are {}",
            steps.join(", ")
        );
    }
    let is_here = layout.run(&global.namespace, &name).exists() && !client::is_plugin();
    let run = if is_here {
        run
    } else {
        runner_of(&runs, run, options).await?
    };
    if is_of_pod(&run) && !is_here {
        return pod::print(global, options, &run).await;
    }
    if let Some(host) = &options.host {
        return by_host(&layout, global, &run, host, options.step.as_deref());
    }
    let mut shown = 0;
    for step in steps
        .iter()
        .filter(|step| options.step.as_ref().is_none_or(|wanted| wanted == *step))
    {
        let file = layout.step_log(&global.namespace, &name, step);
        if file.exists() {
            shown += 1;
            println!("{}", heading(step));
            copy(&file)?;
        }
    }
    if options.follow {
        return follow(global, &layout, &runs, &name).await;
    }
    anyhow::ensure!(
        shown > 0,
        "run {name} wrote no log{} yet",
        options
            .step
            .as_ref()
            .map(|s| format!(" of {s}"))
            .unwrap_or_default()
    );
    Ok(())
}

/// The run, once it has a runner: nobody else writes a log. With `--follow` it is waited for.
async fn runner_of(runs: &Api<Run>, mut run: Run, options: &Logs) -> anyhow::Result<Run> {
    let name = run.name_any();
    let mut told = String::new();
    loop {
        let status = run.status.clone().unwrap_or_default();
        if status.runner.is_some() || status.finished_at.is_some() {
            return Ok(run);
        }
        let why = obstacle(&run).map(|(_, why)| format!(": {why}"));
        let waits = format!("run {name} waits for its runner{}", why.unwrap_or_default());
        anyhow::ensure!(options.follow, "{waits}");
        if waits != told {
            eprintln!("{waits}");
            told = waits;
        }
        tokio::time::sleep(LOOK).await;
        run = control::pick(runs, Some(&name)).await?;
    }
}

/// Whether the run's runner is a pod.
fn is_of_pod(run: &Run) -> bool {
    let runner = run
        .status
        .as_ref()
        .and_then(|status| status.runner.as_ref());
    runner.is_some_and(|runner| runner.id.starts_with("pod/"))
}

/// Whether the run has come to its end.
async fn is_finished(runs: &Api<Run>, name: &str) -> anyhow::Result<bool> {
    Ok(control::pick(runs, Some(name))
        .await?
        .status
        .is_some_and(|status| status.finished_at.is_some()))
}

fn copy(file: &Path) -> anyhow::Result<()> {
    print_from(file, 0)
}

/// Prints what is appended to the logs of the run until it ends.
async fn follow(
    global: &Global,
    layout: &Layout,
    runs: &Api<Run>,
    name: &str,
) -> anyhow::Result<()> {
    let directory = layout.run(&global.namespace, name).join("logs");
    let mut offsets: std::collections::BTreeMap<PathBuf, u64> = std::collections::BTreeMap::new();
    for (file, length) in lengths(&directory)? {
        offsets.insert(file, length);
    }
    loop {
        for (file, length) in lengths(&directory)? {
            let offset = offsets.entry(file.clone()).or_default();
            // One that was cut to stay small goes on from its end.
            if length > *offset {
                print_from(&file, *offset)?;
            }
            *offset = length;
        }
        if is_finished(runs, name).await? {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn lengths(directory: &Path) -> anyhow::Result<Vec<(PathBuf, u64)>> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.context("failed to read the logs")?;
        found.push((
            entry.path(),
            entry.metadata().context("failed to read the logs")?.len(),
        ));
    }
    found.sort();
    Ok(found)
}

fn print_from(file: &Path, offset: u64) -> anyhow::Result<()> {
    let mut source =
        std::fs::File::open(file).with_context(|| format!("failed to open {}", file.display()))?;
    source
        .seek(std::io::SeekFrom::Start(offset))
        .context("failed to find the place in the log")?;
    print_plain(BufReader::new(source), &mut std::io::stdout().lock())
}

/// Prints what Ansible wrote without what would steer the terminal: there are hosts' answers in it, and it writes no colours
/// of its own into a file.
fn print_plain(source: impl BufRead, out: &mut impl Write) -> anyhow::Result<()> {
    let mut source = source;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = source.by_ref().take(LINE).read_until(b'\n', &mut line);
        if read.context("failed to read the log")? == 0 {
            return Ok(());
        }
        let text = lines(&String::from_utf8_lossy(&line), usize::MAX);
        out.write_all(text.as_bytes())
            .context("failed to print the log")?;
    }
}

/// Prints what each task did on one host.
fn by_host(
    layout: &Layout,
    global: &Global,
    run: &Run,
    host: &str,
    step: Option<&str>,
) -> anyhow::Result<()> {
    let name = run.name_any();
    let directory = layout.run(&global.namespace, &name);
    let file = directory.join(EVENTS);
    let mut text = std::fs::read_to_string(directory.join(FORMER_EVENTS)).unwrap_or_default();
    match std::fs::read_to_string(&file) {
        Ok(events) => text += &events,
        // No playbook ran yet, and a step that is none writes no events.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("failed to read {}", file.display()));
        }
    }
    let mut shown = 0;
    for event in text
        .lines()
        .filter_map(|line| serde_json::from_str::<Event>(line).ok())
    {
        if step.is_some_and(|step| !event.run.starts_with(step)) {
            continue;
        }
        if let Some(line) = line(&event, host) {
            shown += 1;
            println!("{line}");
        }
    }
    let of_step = step.map_or_else(String::new, |step| format!("step {step} of "));
    anyhow::ensure!(
        shown > 0,
        "no playbook of {of_step}run {name} did anything on a host {host:?}; what failed, if anything did, is told by windlass explain \
         failure {name}"
    );
    Ok(())
}

/// One line for what happened on the host; nothing for other hosts and kinds.
fn line(event: &Event, wanted: &str) -> Option<String> {
    let (host, task, what) = match &event.kind {
        Kind::Ok {
            host,
            name,
            changed,
            ..
        } => (
            host,
            name,
            if *changed { "changed" } else { "ok" }.to_owned(),
        ),
        Kind::Skipped { host, name, .. } => (host, name, "skipped".to_owned()),
        Kind::Failed {
            host,
            name,
            ignored,
            why,
            ..
        } => {
            let ignored = if *ignored { " (ignored)" } else { "" };
            (host, name, format!("failed{ignored}: {}", why.text()))
        }
        Kind::Unreachable {
            host, name, why, ..
        } => (host, name, format!("unreachable: {}", why.text())),
        _ => return None,
    };
    (host == wanted).then(|| format!("{task}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_steers_no_terminal() {
        let log = "TASK [a]\r\nfatal: \u{1b}[2J\u{1b}]0;owned\u{7}gone\n\tmore\u{202e}\n";
        let mut printed = Vec::new();
        print_plain(log.as_bytes(), &mut printed).unwrap();
        assert_eq!(
            String::from_utf8(printed).unwrap(),
            "TASK [a]\nfatal: gone\n\tmore\n"
        );
        let mut printed = Vec::new();
        let long = vec![b'x'; 200_000];
        print_plain(long.as_slice(), &mut printed).unwrap();
        assert_eq!(printed.len(), long.len());
    }
}
