//! Runner and operator die at the edges of a run's journal, as if the power of their machine was cut there.
//!
//! In a full run at each record that is written the first time, usually at the end of one step: in every run runs of a small
//! engine are killed at every record, by `tests/widgets`.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use e2e::{NAMESPACE, Stage, wait_until};
use lab::Extent;
use serde_json::Value;

use crate::first_cluster::{at_work, process};

/// How often the journal is looked at: shorter than anything that a runner does between two records.
const LOOK: Duration = Duration::from_millis(5);

/// A record by its event and its step; no step: it is about the run.
type Edge = (String, String);

/// The edges of a run that are still to come.
pub(crate) struct Edges {
    run: String,
    journal: PathBuf,
    /// How many records there were at the last look.
    seen: usize,
    passed: BTreeSet<Edge>,
}

impl Edges {
    /// Those after this moment; the run may not be there yet.
    pub(crate) fn of(stage: &Stage, run: &str) -> Self {
        let runs = stage.data().join("runs").join(NAMESPACE);
        let mut edges = Self {
            run: run.to_owned(),
            journal: runs.join(run).join("journal.jsonl"),
            seen: 0,
            passed: BTreeSet::new(),
        };
        edges.passed.extend(edges.records());
        edges.seen = edges.records().len();
        edges
    }

    /// Follows the run to its end, and kills its runner and the operator on the way; the runner alone in the middle of the first step
    /// that begins with `step`, and, but in a full run, both at the end of that step alone. With no step only a full run kills.
    pub(crate) fn survive(mut self, stage: &mut Stage, step: Option<&str>) -> Value {
        let mut passed = Instant::now();
        let is_sample = |id: &str| step.is_some_and(|start| id.starts_with(start));
        let mut left = step;
        loop {
            let mut records = self.records();
            let new = records.split_off(self.seen.min(records.len()));
            self.seen = records.len() + new.len();
            if !new.is_empty() {
                passed = Instant::now();
            }
            let mut kill = false;
            for edge in &new {
                let (event, id) = edge;
                let is_new = self.passed.insert(edge.clone());
                let is_chosen = match Extent::of_this_run() {
                    Extent::Full => true,
                    Extent::Usual => event == "StepSucceeded" && is_sample(id),
                };
                kill |= is_new && is_chosen;
            }
            if kill {
                self.cut_power(stage);
            }
            if new.iter().any(|(event, _)| ENDS.contains(&event.as_str())) {
                assert!(
                    left.is_none(),
                    "{left:?} was not at work: {:#?}",
                    self.passed
                );
                return ended(stage, &self.run);
            }
            if left.is_some()
                && let Some(runner) = self.at_work(stage, is_sample)
            {
                stage.kill_inside(runner).unwrap();
                left = None;
            }
            assert!(
                passed.elapsed() < stage.patience(),
                "{} stands still; of its journal this was seen: {:#?}\n{}",
                self.run,
                self.passed,
                stage.log_tail()
            );
            thread::sleep(LOOK);
        }
    }

    /// Cuts the power once a step has begun, and takes a file of the data directory away before it comes back.
    pub(crate) fn lose(&self, stage: &mut Stage, step: &str, file: &str) {
        let begun = ("StepStarted".to_owned(), step.to_owned());
        wait_until(&format!("{step} to begin"), stage.patience(), || {
            Ok(self.records().contains(&begun).then_some(()))
        })
        .unwrap();
        self.kill_runner(stage);
        stage.down().unwrap();
        // It may be gone already: its step removes it.
        let _ = fs::remove_file(stage.data().join(file));
        stage.up().unwrap();
    }

    /// The runner of the run, while a step of these is at work and has done something.
    fn at_work(&self, stage: &Stage, is_sample: impl Fn(&str) -> bool) -> Option<i64> {
        let has_begun = |(event, id): &Edge| event == "StepStarted" && is_sample(id);
        if !self.passed.iter().any(has_begun) {
            return None;
        }
        let run = stage.object("run", &self.run).unwrap();
        let is_at_work = at_work(&run).iter().any(|id| is_sample(id));
        process(&run).filter(|_| is_at_work)
    }

    fn cut_power(&self, stage: &mut Stage) {
        self.kill_runner(stage);
        stage.down().unwrap();
        stage.up().unwrap();
    }

    fn kill_runner(&self, stage: &Stage) {
        let identity = self.journal.with_file_name("runner.json");
        let identity = fs::read(identity).unwrap_or_default();
        let identity: Value = serde_json::from_slice(&identity).unwrap_or_default();
        if let Some(runner) = identity["pid"].as_i64() {
            // At the last edge it may have ended by itself.
            let _ = stage.kill_inside(runner);
        }
    }

    fn records(&self) -> Vec<Edge> {
        let text = fs::read_to_string(&self.journal).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let records = whole.lines().map(|line| {
            let record = serde_json::from_str::<Value>(line).unwrap()["record"].take();
            let field = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
            (field("event"), field("step"))
        });
        records.collect()
    }
}

/// A run of that name, when it has ended.
pub(crate) fn ended(stage: &Stage, name: &str) -> Value {
    wait_until(&format!("{name} to end"), stage.patience(), || {
        let run = stage.objects("runs")?;
        let run = run.into_iter().find(|run| run["metadata"]["name"] == name);
        let ended = |run: &Value| {
            let phase = run["status"]["phase"].as_str().unwrap_or_default();
            ["Succeeded", "Failed", "Cancelled"].contains(&phase)
        };
        Ok(run.filter(ended))
    })
    .unwrap()
}

/// How a run ends.
const ENDS: [&str; 3] = ["RunSucceeded", "RunFailed", "RunCancelled"];
