//! An engine in small, both its halves: what it takes for runs of another kind to get runners and to be executed. Nothing outside
//! this crate knows it.
//!
//! A widget is cut and bent side by side; then it is painted, which is a run of its own. The crate's tests execute such runs
//! beside the embedded API; the story of `tests/e2e` on a node does so in Jobs, with the program of this crate.

use std::{
    fmt::{self, Display, Formatter},
    fs::{self, File},
    future,
    io::{self, Write as _},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use api::{
    Run,
    run::{ChildRun, Failure, FailureClass, Record, RecordEvent, Results, RunSpec, Step},
};
use controller::lease::Proof;
use kube::Client;
use runs::{
    Engine, Subjects, Words, Work,
    engine::{EngineError, Leave},
    runner::{self, Exit, Options, TakenUp},
    subject::{Reach, Settings},
};
use serde_json::{Value, json};
use tokio::time::sleep;
use workflow::{Executor, Signal, StepContext, StepOutcome, StepProgress};

/// The group of widgets and of their paint.
pub const GROUP: &str = "example.com";
/// The run of [`make`].
pub const PARENT: &str = "first-make-1";
/// What is done side by side.
pub const SHAPING: [&str; 2] = ["widget/bend", "widget/cut"];
/// What another run does.
pub const PAINTING: &str = "widget/paint";
/// The one step of that run.
pub const SPRAYING: &str = "paint/spray";
/// The image that runs of widgets are executed in.
pub const IMAGE: &str = concat!("widgets:v", env!("CARGO_PKG_VERSION"));

/// Where a runner stands still, so that it can be killed there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stop {
    /// The step.
    pub step: String,
    /// The edge of it.
    pub edge: Edge,
}

impl Stop {
    /// What the activity of the step says when its runner stands still there.
    pub fn activity(&self) -> String {
        format!("stands still at {self}")
    }
}

/// An edge of a step in the journal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Edge {
    /// The journal has the start of the step, and nothing is done.
    Started,
    /// The work of the step is done, and the journal does not know it.
    Worked,
}

impl Display for Stop {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let edge = match self.edge {
            Edge::Started => "started",
            Edge::Worked => "worked",
        };
        write!(formatter, "{}:{edge}", self.step)
    }
}

impl FromStr for Stop {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (step, edge) = match text.rsplit_once(':') {
            Some((step, "started")) => (step, Edge::Started),
            Some((step, "worked")) => (step, Edge::Worked),
            _ => return Err(format!("{text} is none of STEP:started and STEP:worked")),
        };
        let step = step.to_owned();
        Ok(Self { step, edge })
    }
}

/// Makes widgets: each step writes its name into the file `made` of its run.
#[derive(Clone, Debug, Default)]
pub struct Widgets {
    /// The first runner of a run stands still at the first of these that is of a step of the run, the second one at the second.
    pub stops: Vec<Stop>,
}

impl Widgets {
    /// Executes a run of widgets.
    ///
    /// # Errors
    ///
    /// As of [`runner::main`].
    pub async fn main(self, options: Options) -> Result<Exit, runner::Error> {
        runner::main(options, async |run: TakenUp| run.execute(self).await).await
    }
}

impl Engine for Widgets {
    type Executor = Maker;

    fn digest(&self, spec: &RunSpec) -> Result<String, serde_json::Error> {
        workflow::plan::digest_of(&spec.operation, &spec.plan)
    }

    fn leave(&self, _: &Work) -> Result<Leave, EngineError> {
        Ok(Arc::new(|_| {}))
    }

    fn prepare(&self, work: &Arc<Work>, proof: Proof) -> Result<Maker, EngineError> {
        let starts = history(work)
            .iter()
            .filter(|record| record.event == RecordEvent::RunStarted);
        let own = |stop: &&Stop| work.plan.step(&stop.step).is_some();
        let stop = self.stops.iter().filter(own).nth(starts.count()).cloned();
        let work = Arc::clone(work);
        Ok(Maker { work, proof, stop })
    }

    async fn end_now(&self, _: &Work) {}

    fn clean(&self, _: Maker) {}

    fn words(&self) -> Words {
        Words {
            targets: "widgets",
            excluded: "WidgetsExcluded",
            own_logs: "widget",
        }
    }
}

/// Executes the steps of one run.
pub struct Maker {
    work: Arc<Work>,
    proof: Proof,
    stop: Option<Stop>,
}

impl Executor for Maker {
    async fn execute(&self, steps: Vec<Step>, context: StepContext) {
        for step in &steps {
            let outcome = match self.make(&step.id, &context).await {
                Ok(outcome) => outcome,
                Err(error) => failed("NotMade", &error.to_string()),
            };
            if context.reporter.finished(&step.id, outcome).await.is_err() {
                return;
            }
        }
    }
}

impl Maker {
    async fn make(&self, step: &str, context: &StepContext) -> io::Result<StepOutcome> {
        self.stand_still(step, Edge::Started, context).await;
        self.await_the_other(step).await?;
        if let Some(outcome) = self.spray(step, context).await {
            return Ok(outcome);
        }
        if !self.proof.holds() {
            return Ok(failed("NotHeld", "nothing is made without the Lease"));
        }
        let made = self.work.directory.join("made");
        let mut made = File::options().create(true).append(true).open(made)?;
        writeln!(made, "{step}")?;
        self.stand_still(step, Edge::Worked, context).await;
        Ok(StepOutcome::Succeeded {
            results: Results([("made".to_owned(), 1)].into()),
            unreachable: Vec::new(),
            detail: None,
        })
    }

    /// Whether a runner before this one has done a step.
    fn was_done(&self, step: &str) -> bool {
        history(&self.work).iter().any(|record| {
            record.event == RecordEvent::StepSucceeded && record.step.as_deref() == Some(step)
        })
    }

    async fn stand_still(&self, step: &str, edge: Edge, context: &StepContext) {
        let here = |stop: &&Stop| stop.step == step && stop.edge == edge;
        if let Some(stop) = self.stop.as_ref().filter(here) {
            let progress = StepProgress {
                activity: Some(stop.activity()),
                ..StepProgress::default()
            };
            // Whether that is taken or not: it does nothing more.
            let _ = context.reporter.progress(step, progress).await;
            future::pending::<()>().await;
        }
    }

    /// Cutting waits for bending, and bending for cutting, until that is done.
    async fn await_the_other(&self, step: &str) -> io::Result<()> {
        if !SHAPING.contains(&step) {
            return Ok(());
        }
        let begun = |step: &str| self.work.directory.join(step.replace('/', "-"));
        fs::write(begun(step), "")?;
        while !SHAPING
            .iter()
            .all(|step| begun(step).exists() || self.was_done(step))
        {
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Some: the paint cannot be sprayed, or it was told to stop while it waits for that.
    async fn spray(&self, step: &str, context: &StepContext) -> Option<StepOutcome> {
        if step != SPRAYING {
            return None;
        }
        let gun = |file| spray_gun(&self.work.directory, file);
        if gun("jam")?.exists() {
            return Some(failed("Jammed", "the gun is jammed"));
        }
        let mut signal = context.signal.clone();
        while gun("wait")?.exists() {
            let wanted = *signal.borrow_and_update();
            match wanted {
                Signal::Continue => {}
                Signal::Pause => context.reporter.held(step).await.ok()?,
                Signal::Stop => return Some(StepOutcome::Interrupted { detail: None }),
            }
            signal.changed().await.ok()?;
        }
        None
    }
}

/// What the runners before this one have done.
fn history(work: &Work) -> &[Record] {
    let status = work.run.status.as_ref();
    status.map_or(&[], |status| &status.history)
}

fn failed(code: &str, message: &str) -> StepOutcome {
    StepOutcome::Failed {
        failure: Failure {
            class: FailureClass::Permanent,
            code: code.to_owned(),
            message: message.to_owned(),
            remedy: None,
            targets: Vec::new(),
        },
        results: Results::default(),
        unreachable: Vec::new(),
        remedies: Vec::new(),
    }
}

/// A file that says how the paint is sprayed, whoever does it: `jam` or `wait`, in the data directory.
fn spray_gun(directory: &Path, file: &str) -> Option<PathBuf> {
    let data = directory.ancestors().nth(3)?;
    Some(data.join(file))
}

/// What the operator knows of widgets.
#[derive(Clone, Copy, Debug)]
pub struct Workshop;

impl Subjects for Workshop {
    fn is_one(&self, subject: &api::run::Subject) -> bool {
        subject.api_group == GROUP
    }

    fn settings(&self, _: &Run) -> Settings {
        Settings {
            runner_image: Some(IMAGE.to_owned()),
            ..Settings::default()
        }
    }

    fn reach(&self, _: &Run) -> Reach {
        Reach {
            resource: "widgets",
            secrets: ["glue".to_owned()].into(),
            ..Reach::default()
        }
    }

    async fn child(&self, _: &Client, _: &Run, wanted: &ChildRun) -> Result<RunSpec, EngineError> {
        let colour = wanted.parameters.get("colour").ok_or("no colour")?;
        let spray = json!({"name": "widgets", "type": "Work", "parameters": {"colour": colour}});
        Ok(spec(json!({
            "subject": wanted.subject, "operation": wanted.operation, "generation": 1,
            "plan": {"digest": "", "steps": [{"id": SPRAYING, "action": {"engine": spray}}]},
        }))?)
    }
}

/// A run that makes a widget: three steps, two of them side by side and the third a run of its own.
///
/// # Errors
///
/// None, as long as a Run is what it is here.
pub fn make(namespace: &str) -> Result<Run, serde_json::Error> {
    let step = |id: &str, group: &str| {
        json!({
            "id": id, "groups": [group],
            "action": {"engine": {"name": "widgets", "type": "Work"}},
        })
    };
    let [bend, cut] = SHAPING;
    let painted = json!({"apiGroup": GROUP, "kind": "Paint", "name": "first"});
    let paint = json!({"subject": painted, "operation": "Spray", "parameters": {"colour": "blue"}});
    let spec = spec(json!({
        "subject": {"apiGroup": GROUP, "kind": "Widget", "name": "first"},
        "operation": "Make", "generation": 1,
        "plan": {
            "digest": "", "parallelism": 2,
            "groups": [{"name": "left", "targets": ["left"]}, {"name": "right", "targets": ["shop/right"]}],
            "steps": [
                step(cut, "left"), step(bend, "right"),
                {"id": PAINTING, "dependsOn": SHAPING, "groups": ["left", "right"], "action": {"run": paint}},
            ],
        },
    }))?;
    let mut run = Run::new(PARENT, spec);
    run.metadata.namespace = Some(namespace.to_owned());
    Ok(run)
}

/// A spec with the digest of its plan.
fn spec(spec: Value) -> Result<RunSpec, serde_json::Error> {
    let mut spec: RunSpec = serde_json::from_value(spec)?;
    spec.plan.digest = workflow::plan::digest_of(&spec.operation, &spec.plan)?;
    Ok(spec)
}
