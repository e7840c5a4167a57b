//! The status as lines, one for every edge: what is written where no terminal is.

use std::collections::BTreeMap;

use api::run::{RunPhase, StepPhase};
use kube::ResourceExt;

use super::{View, tree};

/// What was said already.
#[derive(Debug, Default)]
pub(super) struct Lines {
    steps: BTreeMap<String, (StepPhase, Option<u32>)>,
    run: Option<(String, RunPhase)>,
    state: String,
    drifted: Option<String>,
    progress: u8,
}

impl Lines {
    /// The lines for what changed since the last call.
    pub(super) fn edges(&mut self, view: &View) -> Vec<String> {
        let mut lines = Vec::new();
        self.cluster(view, &mut lines);
        self.drift(view, &mut lines);
        self.run(view, &mut lines);
        lines
    }

    fn cluster(&mut self, view: &View, lines: &mut Vec<String>) {
        let Some(cluster) = &view.cluster else { return };
        let Some(status) = &cluster.status else {
            return;
        };
        let ready = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready");
        let state = format!(
            "cluster {}: {:?}{}",
            cluster.name_any(),
            status.state.unwrap_or_default(),
            ready
                .filter(|c| !c.message.is_empty())
                .map(|c| format!(", {}", c.message))
                .unwrap_or_default()
        );
        // While a run is at work its steps tell the story.
        let at_work = view
            .run
            .as_ref()
            .and_then(|run| run.status.as_ref())
            .is_some_and(|s| s.phase == RunPhase::Running);
        if state != self.state && !at_work {
            lines.push(state.clone());
            self.state = state;
        }
    }

    fn drift(&mut self, view: &View, lines: &mut Vec<String>) {
        let status = view.cluster.as_ref().and_then(|it| it.status.as_ref());
        let drifted = status.and_then(tree::drifted);
        if drifted != self.drifted {
            lines.extend(drifted.clone());
            self.drifted = drifted;
        }
    }

    fn run(&mut self, view: &View, lines: &mut Vec<String>) {
        let Some(run) = &view.run else { return };
        let Some(status) = &run.status else { return };
        let name = run.name_any();
        if self.run.as_ref().is_none_or(|(known, _)| *known != name) {
            *self = Self {
                state: std::mem::take(&mut self.state),
                drifted: std::mem::take(&mut self.drifted),
                ..Self::default()
            };
        }
        if self.run.as_ref() != Some(&(name.clone(), status.phase)) {
            lines.push(format!("run {name}: {:?}", status.phase));
            self.run = Some((name, status.phase));
        }
        for step in &status.steps {
            let now = (step.phase, step.attempt);
            if step.phase == StepPhase::Pending
                || self.steps.insert(step.id.clone(), now) == Some(now)
            {
                continue;
            }
            lines.push(step_line(step, status.progress.unwrap_or(0)));
        }
        let progress = status.progress.unwrap_or(0) / 10;
        if progress > self.progress {
            self.progress = progress;
            let task = status
                .steps
                .iter()
                .find(|step| step.phase == StepPhase::Running)
                .and_then(|s| s.activity.clone());
            lines.push(format!(
                "     {}%{}",
                progress * 10,
                task.map(|t| format!("  {t}")).unwrap_or_default()
            ));
        }
    }
}

fn step_line(step: &api::run::StepStatus, progress: u8) -> String {
    let took = match (&step.started_at, &step.finished_at) {
        (Some(start), Some(finish)) => format!(
            "  {}",
            tree::duration(finish.0.duration_since(start.0).as_secs())
        ),
        _ => String::new(),
    };
    let failure = step
        .failure
        .as_ref()
        .map(|failure| format!("  {}: {}", failure.code, failure.message))
        .unwrap_or_default();
    format!(
        "{:>3}% {} {}: {:?}{took}{failure}",
        progress,
        tree::symbol(step.phase),
        step.id,
        step.phase
    )
}
