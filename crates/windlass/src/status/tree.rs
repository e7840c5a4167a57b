//! The status as a tree of lines. Pure.

use api::{
    ClusterNode, ClusterStatus, Run,
    cluster::Available,
    node::Health,
    run::{Plan, Progress, RunPhase, RunStatus, Step, StepPhase, StepStatus},
};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kubespray::failures;

use super::View;
use crate::plan::then;

/// The lines of the tree, none longer than the width.
pub(super) fn render(view: &View, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    lines.push(cluster_line(view));
    if let Some(run) = &view.run {
        lines.extend(of_run(run, Timestamp::now()));
    }
    let status = view.cluster.as_ref().and_then(|c| c.status.as_ref());
    lines.extend(status.iter().flat_map(|status| &status.pending).map(then));
    lines.extend(status.and_then(drifted));
    let available = status.iter().flat_map(|status| &status.available);
    lines.extend(available.map(available_line));
    lines.push("hosts".into());
    lines.extend(view.nodes.iter().map(node_line));
    lines
        .iter()
        .map(|line| fit(line.trim_end(), width))
        .collect()
}

/// The lines of a run and its steps, as they are at that time.
pub(super) fn of_run(run: &Run, now: Timestamp) -> Vec<String> {
    let status = run.status.clone().unwrap_or_default();
    let plan = &run.spec.plan;
    let mut lines = vec![run_line(&run.spec.operation, &status, now)];
    lines.extend(plan.steps.iter().map(|step| step_line(plan, step, &status)));
    if let Some(failure) = &status.failure {
        lines.push(format!("  failed: {}: {}", failure.code, failure.message));
        let remedy = failures::remedy(run, failure);
        lines.extend(remedy.map(|remedy| format!("  what to do: {remedy}")));
        let name = run.name_any();
        lines.push(format!("  more: windlass explain failure {name}"));
    }
    lines
}

fn cluster_line(view: &View) -> String {
    let Some(cluster) = &view.cluster else {
        return "the cluster is gone".into();
    };
    let status = cluster.status.clone().unwrap_or_default();
    let state = status.state.unwrap_or_default();
    let health = status
        .cluster
        .map(|health| format!("  {}", health_name(health.health)));
    let message = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .map(|c| c.message.clone());
    format!(
        "cluster {}  {state:?}{}{}",
        cluster.name_any(),
        health.unwrap_or_default(),
        message
            .filter(|text| !text.is_empty())
            .map(|text| format!("  {text}"))
            .unwrap_or_default()
    )
}

/// That hosts are not as the last run left them.
pub(super) fn drifted(status: &ClusterStatus) -> Option<String> {
    let mut conditions = status.conditions.iter();
    let found = conditions.find(|found| found.type_ == "Drifted" && found.status == "True")?;
    Some(format!("drifted: {}", found.message))
}

fn available_line(available: &Available) -> String {
    format!(
        "available: Kubernetes {} by kubespray {}: {}",
        available.kubernetes_version, available.kubespray_version, available.message
    )
}

fn run_line(operation: &str, status: &RunStatus, now: Timestamp) -> String {
    let eta = match (&status.estimated_finish, status.phase) {
        (Some(finish), RunPhase::Running) => {
            let left = finish.0.duration_since(now).as_secs();
            // Once it should be over, nothing is known.
            if left > 0 {
                format!("  about {} left", duration(left))
            } else {
                String::new()
            }
        }
        _ => String::new(),
    };
    let progress = status.progress.unwrap_or(0);
    format!(
        "{operation}  {:?}  {} {progress:>3}%{eta}",
        status.phase,
        bar(progress)
    )
}

fn step_line(plan: &Plan, step: &Step, status: &RunStatus) -> String {
    let found = status
        .steps
        .iter()
        .find(|candidate| candidate.id == step.id);
    let phase = found.map(|found| found.phase).unwrap_or_default();
    let hosts = match plan.targets(step).count() {
        0 => String::new(),
        1 => "1 host".into(),
        many => format!("{many} hosts"),
    };
    let mut line = format!("  {} {:<34} {hosts:>10}", symbol(phase), step.id);
    if let Some(found) = found {
        line.push_str(&detail(found));
    }
    line
}

fn detail(found: &StepStatus) -> String {
    let mut text = String::new();
    if let (Some(start), Some(finish)) = (&found.started_at, &found.finished_at) {
        text = format!("  {}", duration(finish.0.duration_since(start.0).as_secs()));
    }
    if found.phase == StepPhase::Running {
        let progress = found.progress.as_ref().map(progress).unwrap_or_default();
        let activity = found
            .activity
            .as_deref()
            .map(|activity| format!("  {activity}"))
            .unwrap_or_default();
        text = format!("{text}{progress}{activity}");
    }
    if let Some(attempt) = found.attempt.filter(|attempt| *attempt > 1) {
        text = format!("{text}  attempt {attempt}");
    }
    if let Some(failure) = &found.failure {
        text = format!("{text}  {}", failure.message);
    }
    text
}

/// How far a step is. Nothing is said of a total that was passed: more turned up than was counted.
fn progress(progress: &Progress) -> String {
    let Progress { done, total, unit } = progress;
    match total.filter(|total| done <= total) {
        Some(total) => format!("  {done} of {total} {unit} done"),
        None => format!("  {done} {unit} done"),
    }
}

fn node_line(node: &ClusterNode) -> String {
    let status = node.status.clone().unwrap_or_default();
    let health = status.node.map_or("-", |health| health_name(health.health));
    let failure = status
        .failure
        .map(|failure| format!("  {}", failure.message))
        .unwrap_or_default();
    format!(
        "  {:<24} {:<16} {:<9} {health}{failure}",
        node.name_any(),
        node.spec.inventory.ansible_host,
        format!("{:?}", status.state.unwrap_or_default()),
    )
}

/// What a phase looks like, without a colour that would have to carry meaning.
pub(super) fn symbol(phase: StepPhase) -> char {
    match phase {
        StepPhase::Pending => '.',
        StepPhase::Running => '>',
        StepPhase::Succeeded => '+',
        StepPhase::Failed => 'x',
        StepPhase::Interrupted => '!',
        StepPhase::Skipped => '-',
        StepPhase::Waiting => '?',
    }
}

fn health_name(health: Health) -> &'static str {
    match health {
        Health::Ok => "HEALTH_OK",
        Health::Warn => "HEALTH_WARN",
        Health::Err => "HEALTH_ERR",
    }
}

fn bar(percent: u8) -> String {
    let filled = usize::from(percent.min(100)) / 5;
    format!("[{}{}]", "#".repeat(filled), " ".repeat(20 - filled))
}

/// Seconds as people read them: `59s`, `1m05s`, `2h03m`.
pub(super) fn duration(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{}s", seconds.max(0)),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn fit(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view() -> View {
        let run = json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r"},
            "spec": {"subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "demo"}, "operation": "Create", "generation": 1, "plan": {"digest": "d", "groups": [{"name": "first", "targets": ["a"]}, {"name": "others", "targets": ["b"]}], "steps": [
                {"id": "prepare/probe", "action": {"engine": {"name": "kubespray", "type": "Probe"}}, "groups": ["first", "others"]},
                {"id": "etcd/install", "action": {"engine": {"name": "kubespray", "type": "AnsiblePlay", "parameters": {"playbook": "cluster", "play": 7}}}, "groups": ["first"]},
                {"id": "health/check", "action": {"engine": {"name": "kubespray", "type": "Health"}}}]}},
            "status": {"phase": "Running", "progress": 42, "steps": [
                {"id": "prepare/probe", "phase": "Succeeded", "attempt": 1, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:05Z"},
                {"id": "etcd/install", "phase": "Running", "attempt": 2, "progress": {"done": 2, "total": 21, "unit": "tasks"}, "activity": "etcd : Install the service"},
                {"id": "health/check", "phase": "Pending"}]}
        });
        let cluster = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "demo"}, "spec": {},
            "status": {"state": "Creating", "cluster": {"health": "HEALTH_WARN"}, "pending": [
                {"operation": "Remove", "reason": "BehindRun", "message": "run r comes first, and is at work", "hosts": ["b"]}]}
        });
        let node = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": "b"},
            "spec": {"type": "worker", "inventory": {"ansible_host": "10.0.0.2"}},
            "status": {"state": "Excluded", "node": {"health": "HEALTH_ERR"},
                "failure": {"class": "External", "code": "HostTimedOut", "message": "connection timed out"}}
        });
        View {
            cluster: serde_json::from_value(cluster).unwrap(),
            nodes: vec![serde_json::from_value(node).unwrap()],
            run: serde_json::from_value(run).unwrap(),
        }
    }

    #[test]
    fn the_tree_shows_steps_hosts_task_and_percent() {
        insta::assert_snapshot!(render(&view(), 120).join("\n"), @"
        cluster demo  Creating  HEALTH_WARN
        Create  Running  [########            ]  42%
          + prepare/probe                         2 hosts  1m05s
          > etcd/install                           1 host  2 of 21 tasks done  etcd : Install the service  attempt 2
          . health/check
        then: Remove of b: run r comes first, and is at work
        hosts
          b                        10.0.0.2         Excluded  HEALTH_ERR  connection timed out
        ");
    }

    #[test]
    fn nothing_is_said_of_a_total_or_an_end_that_was_passed() {
        let mut view = view();
        let run = view.run.as_mut().unwrap();
        let status = run.status.as_mut().unwrap();
        status.steps[1].progress = Some(Progress {
            done: 22,
            total: Some(21),
            unit: "tasks".into(),
        });
        let long_ago = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        status.estimated_finish = Some(long_ago);
        let shown = render(&view, 120).join("\n");
        assert!(shown.contains("1 host  22 tasks done  etcd"), "{shown}");
        assert!(!shown.contains("left"), "{shown}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        assert!(
            render(&view(), 40)
                .iter()
                .all(|line| line.chars().count() <= 40)
        );
    }
}
