//! What runners that are pods wrote. Their files went with them; what is left is the log of each pod that the API still
//! knows: lines of the steps under a heading with the step's name, and lines of the runner itself.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use api::{Run, text::lines};
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};
use runs::job::{RUN_LABEL, job_name};
use runs::runner::{heading, step_of_heading};
use tokio::time::Instant;

use crate::{
    cli::{Global, Logs},
    logs::{LOOK, is_finished},
};

/// How long a pod may wait to start in the eyes of its kubelet although its run has ended: a kubelet looks at its
/// containers about once a second, and a run that fails at once is quicker.
const KUBELET_LAG: Duration = Duration::from_secs(10);

/// Prints the logs of a run's pods, the oldest first; with `--follow` also of those that are still to come.
pub(super) async fn print(global: &Global, options: &Logs, run: &Run) -> anyhow::Result<()> {
    let client = global.client().await?;
    let mut printer = Printer::new(options);
    let mut read = BTreeSet::new();
    let name = run.name_any();
    let runs: Api<Run> = Api::namespaced(client.clone(), &global.namespace);
    let mut lag_ends = None;
    loop {
        // Asked before the pods: a run that has ended gets none any more.
        let ended = is_finished(&runs, &name).await?;
        let mut is_waiting = false;
        for pod in pods(&client, global, &name).await? {
            let uid = pod.uid().unwrap_or_default();
            if read.contains(&uid) {
                continue;
            }
            match copy(&client, &pod, options, &mut printer).await? {
                Copied::Whole => _ = read.insert(uid),
                Copied::Waits => is_waiting = true,
                Copied::Gone => {}
            }
        }
        let lags = is_waiting
            && ended
            && Instant::now() < *lag_ends.get_or_insert_with(|| Instant::now() + KUBELET_LAG);
        if !lags && (ended || !options.follow) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    anyhow::ensure!(
        !read.is_empty(),
        "no pod of run {name} has a log: it has not started yet, or its log went with it"
    );
    anyhow::ensure!(
        printer.shown > 0 || options.follow,
        "the pods that are left of run {name} wrote nothing{}{}",
        told(" in step ", options.step.as_deref()),
        told(" on host ", options.host.as_deref()),
    );
    Ok(())
}

fn told(what: &str, name: Option<&str>) -> String {
    name.map(|name| format!("{what}{name}")).unwrap_or_default()
}

async fn pods(client: &Client, global: &Global, run: &str) -> anyhow::Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &global.namespace);
    let selector = format!("{RUN_LABEL}={}", job_name(run));
    let mut pods = pods
        .list(&ListParams::default().labels(&selector))
        .await
        .context("failed to list the runner's pods")?
        .items;
    pods.sort_by_key(|pod| (pod.creation_timestamp(), pod.name_any()));
    Ok(pods)
}

/// What became of a pod's log.
enum Copied {
    /// It is printed to its end.
    Whole,
    /// The pod's container waits to start.
    Waits,
    /// It went with the pod, after the pod was listed.
    Gone,
}

/// Prints the log of one pod.
async fn copy(
    client: &Client,
    pod: &Pod,
    options: &Logs,
    printer: &mut Printer<'_>,
) -> anyhow::Result<Copied> {
    let name = pod.name_any();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let parameters = LogParams {
        follow: options.follow,
        container: Some("runner".to_owned()),
        ..LogParams::default()
    };
    let stream = match pods.log_stream(&name, &parameters).await {
        Err(kube::Error::Api(status)) if status.code == 400 => return Ok(Copied::Waits),
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Copied::Gone),
        stream => stream.with_context(|| format!("failed to read the log of pod {name}"))?,
    };
    let mut rest = stream.lines();
    while let Some(line) = rest
        .try_next()
        .await
        .with_context(|| format!("failed to read on in the log of pod {name}"))?
    {
        if let Some(line) = printer.line(&line) {
            println!("{line}");
        }
    }
    Ok(Copied::Whole)
}

/// Chooses the lines that were asked for.
struct Printer<'a> {
    step: Option<&'a str>,
    host: Option<&'a str>,
    /// The step whose lines follow.
    at: Option<String>,
    task: String,
    shown: usize,
}

impl<'a> Printer<'a> {
    fn new(options: &'a Logs) -> Self {
        Self {
            step: options.step.as_deref(),
            host: options.host.as_deref(),
            at: None,
            task: String::new(),
            shown: 0,
        }
    }

    /// What is printed for a line; nothing for one that nobody asked for.
    fn line(&mut self, line: &str) -> Option<String> {
        // Ansible prints what hosts answer.
        let printed = self.chosen(&lines(line, usize::MAX));
        self.shown += usize::from(printed.is_some());
        printed
    }

    fn chosen(&mut self, line: &str) -> Option<String> {
        let is_heading = step_of_heading(line).map(|step| self.at = Some(step.to_owned()));
        if self.step.is_none() && self.host.is_none() {
            return Some(line.to_owned());
        }
        let at = self.at.as_deref()?;
        if self.step.is_some_and(|step| step != at) || is_of_runner(line) {
            return None;
        }
        let Some(host) = self.host else {
            return Some(if is_heading.is_some() {
                heading(at)
            } else {
                line.to_owned()
            });
        };
        if let Some(task) = line.strip_prefix("TASK [") {
            task.trim_end_matches(']').clone_into(&mut self.task);
        }
        let (what, rest) = line.split_once(": [")?;
        let why = rest.strip_prefix(host)?.strip_prefix(']')?.trim();
        let task = &self.task;
        Some(if why.is_empty() {
            format!("{task}: {what}")
        } else {
            format!("{task}: {what}: {why}")
        })
    }
}

/// Whether a line is the runner's own: it begins with the time.
fn is_of_runner(line: &str) -> bool {
    let (year, rest) = line.split_once('-').unwrap_or_default();
    year.len() == 4
        && year.bytes().all(|digit| digit.is_ascii_digit())
        && rest.starts_with(|digit: char| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:00.000001Z  INFO started
== etcd/install
PLAY [etcd]
TASK [install etcd]
changed: [alpha]
2026-01-01T00:00:01.000001Z  WARN the API is away
failed: [beta] no space
left on device
== kubelet/install
TASK [install kubelet]
ok: [alpha]
ok: [alpha-2]";

    fn printed(step: Option<&str>, host: Option<&str>) -> Vec<String> {
        let options = Logs {
            run: None,
            step: step.map(str::to_owned),
            host: host.map(str::to_owned),
            follow: false,
        };
        let mut printer = Printer::new(&options);
        LOG.lines().filter_map(|line| printer.line(line)).collect()
    }

    #[test]
    fn all_is_printed_as_it_is() {
        assert_eq!(printed(None, None).join("\n"), LOG);
    }

    #[test]
    fn a_step_has_its_own_lines_without_the_runners() {
        let lines = printed(Some("etcd/install"), None);
        assert_eq!(lines.first().unwrap(), "== etcd/install");
        assert_eq!(lines.last().unwrap(), "left on device");
        assert_eq!(lines.len(), 6, "{lines:?}");
    }

    #[test]
    fn a_host_has_what_each_task_did_there() {
        let expected = ["install etcd: changed", "install kubelet: ok"];
        assert_eq!(printed(None, Some("alpha")), expected);
        assert_eq!(
            printed(None, Some("beta")),
            ["install etcd: failed: no space"]
        );
        assert_eq!(
            printed(Some("kubelet/install"), Some("alpha-2")),
            expected[1..]
        );
    }
}
