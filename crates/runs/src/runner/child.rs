//! Steps that are runs of other objects. They are asked for, followed and steered here, made by the operator
//! ([`crate::child`]), and executed by runners of their own.
//!
//! A child has the name of its parent, of its step, and a number: a runner that takes the parent up finds it, whatever the one
//! before it knew. One that failed is asked to try again when the step is; one that was ended is followed by another.

use std::{pin::pin, sync::Arc, time::Duration};

use api::{
    Run,
    run::{
        Action, ChildRun, DesiredState, Failure, FailureClass, Progress, Results, RunPhase, Step,
    },
};
use controller::{chain, lease::Proof};
use futures::{Stream, StreamExt, stream};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::sync::watch;
use workflow::{Executor, Signal, Steering, StepContext, StepOutcome, StepProgress};

use crate::{
    Engine, Work,
    child::{self, is_child, is_ended, same},
    control::{self, Change},
    phase,
};

/// Says that a parent paused its child, and has it go on when it goes on itself.
const PAUSED_BY_PARENT: &str = "windlass.dev/paused-by-parent";

/// The code of a failure of the API alone, which passes by itself.
const AWAY: &str = "RunNotReached";
/// After how long a child that could not be reached or steered is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Executes the steps of a run: those that are runs here, all others by the engine.
pub(super) struct Steps<E: Engine> {
    pub(super) executor: E::Executor,
    pub(super) work: Arc<Work>,
    pub(super) steering: watch::Receiver<Steering>,
    pub(super) proof: Proof,
}

impl<E: Engine> Executor for Steps<E> {
    async fn execute(&self, steps: Vec<Step>, context: StepContext) {
        let [step] = steps.as_slice() else {
            return self.executor.execute(steps, context).await;
        };
        let Action::Run(wanted) = &step.action else {
            return self.executor.execute(steps, context).await;
        };
        let reporter = context.reporter.clone();
        let outcome = match Box::pin(self.child(step, wanted, context)).await {
            Ok(outcome) => outcome,
            Err(failure) => failed(failure),
        };
        // A runner that does not take it has ended.
        let _ = reporter.finished(&step.id, outcome).await;
    }
}

/// What the parent wants of its child.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wanted {
    Go,
    Pause,
    Cancel,
    /// Nothing: the parent goes on elsewhere, and its child goes on by itself.
    Leave,
}

impl<E: Engine> Steps<E> {
    async fn child(
        &self,
        step: &Step,
        wanted: &ChildRun,
        mut context: StepContext,
    ) -> Result<StepOutcome, Failure> {
        let again = context.attempt > 1 && !context.interrupted;
        loop {
            match self.found(step, wanted, again).await {
                Ok(Found::There(child)) => return self.follow(step, &child, context).await,
                Ok(Found::Absent(name)) => {
                    if !self.awaited(step, name, &mut context).await? {
                        return Ok(StepOutcome::Interrupted { detail: None });
                    }
                    continue;
                }
                // The work goes on when the API does.
                Err(failure) if failure.code == AWAY => {
                    tracing::warn!(step = step.id, why = failure.message, "trying again");
                }
                Err(failure) => return Err(failure),
            }
            if *context.signal.borrow_and_update() == Signal::Stop {
                return Ok(StepOutcome::Interrupted { detail: None });
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                // Nobody is left to tell anything else.
                changed = context.signal.changed() => if changed.is_err() {
                    return Ok(StepOutcome::Interrupted { detail: None });
                },
            }
        }
    }

    /// The child of this step that is not over, or succeeded.
    async fn found(&self, step: &Step, wanted: &ChildRun, again: bool) -> Result<Found, Failure> {
        let runs = self.runs();
        for name in child::names(&self.work.run.name_any(), &step.id) {
            let Some(child) = runs.get_opt(&name).await.map_err(|why| away(&name, &why))? else {
                return Ok(Found::Absent(name));
            };
            let is_ours = is_child(&child, &self.work.run)
                && same(&child.spec.subject, &wanted.subject)
                && child.spec.operation == wanted.operation;
            if !is_ours {
                return Err(failure(
                    FailureClass::Permanent,
                    "NotItsRun",
                    format!(
                        "there is a run {name} already, which run {} did not make",
                        self.work.run.name_any()
                    ),
                    Some("delete that run, or have this one planned anew"),
                ));
            }
            match phase(&child) {
                ended if is_ended(ended) => {}
                RunPhase::Failed if again => {
                    self.prove().await;
                    let (namespace, by) = (self.work.namespace(), self.by());
                    let change = Change::Retry(None);
                    let asked =
                        control::steer(&self.work.client, &namespace, &name, change, &by).await;
                    if let Err(control::Error::Api { source, .. }) = asked {
                        return Err(away(&name, &source));
                    }
                    let child = runs.get(&name).await.map_err(|why| away(&name, &why))?;
                    return Ok(Found::There(Box::new(child)));
                }
                _ => return Ok(Found::There(Box::new(child))),
            }
        }
        Err(failure(
            FailureClass::Permanent,
            "TooManyRuns",
            format!("its runs were ended {} times", child::MOST),
            Some("have this run planned anew"),
        ))
    }

    /// Asks the operator for a child and waits until it is there; false: the step is to stop.
    async fn awaited(
        &self,
        step: &Step,
        name: String,
        context: &mut StepContext,
    ) -> Result<bool, Failure> {
        let progress = StepProgress {
            activity: Some(format!("waits for run {name} to be made")),
            awaits: Some(name.clone()),
            ..StepProgress::default()
        };
        if context.reporter.progress(&step.id, progress).await.is_err() {
            return Ok(false);
        }
        let own = self.work.run.name_any();
        let named = |name: &str| {
            let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
            watcher(self.runs(), only).default_backoff()
        };
        let mut seen = pin!(stream::select(named(&name), named(&own)));
        loop {
            if *context.signal.borrow_and_update() == Signal::Stop {
                return Ok(false);
            }
            tokio::select! {
                event = seen.next() => match event {
                    Some(Ok(watcher::Event::Apply(run) | watcher::Event::InitApply(run))) => {
                        if run.name_any() == name {
                            return Ok(true);
                        }
                        if let Some(why) = child::refusal(&run, &step.id, context.attempt) {
                            return Err(failure(
                                FailureClass::Config,
                                "NoPlan",
                                format!("run {name} cannot be planned: {why}"),
                                None,
                            ));
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the watch for a child failed, trying again"
                    ),
                    None => return Ok(false),
                },
                // Nobody is left to tell anything else.
                changed = context.signal.changed() => if changed.is_err() {
                    return Ok(false);
                },
            }
        }
    }

    async fn follow(
        &self,
        step: &Step,
        child: &Run,
        mut context: StepContext,
    ) -> Result<StepOutcome, Failure> {
        let name = child.name_any();
        let mut seen = pin!(self.watched(child));
        let mut latest = child.clone();
        let mut held = false;
        loop {
            let wanted = self.wanted(*context.signal.borrow_and_update());
            if let Some(outcome) = outcome(&latest, wanted) {
                return outcome.map(|()| succeeded(&name)).or_else(|end| match end {
                    Ended::Stopped(detail) => Ok(StepOutcome::Interrupted {
                        detail: Some(detail),
                    }),
                    Ended::Failed(failure) => Err(failure),
                });
            }
            let mut again = None;
            if let Some(patch) = steered(&latest, wanted) {
                self.prove().await;
                let (runs, params) = (self.runs(), PatchParams::default());
                match runs.patch(&name, &params, &Patch::Merge(&patch)).await {
                    Ok(run) => latest = run,
                    // It was changed meanwhile, which is about to be seen.
                    Err(kube::Error::Api(status)) if status.is_conflict() => {}
                    Err(why) => {
                        tracing::warn!(
                            run = name,
                            error = &why as &dyn std::error::Error,
                            "the child cannot be steered, trying again"
                        );
                        again = Some(AGAIN);
                    }
                }
            }
            let progress = context.reporter.progress(&step.id, progress(&latest));
            if progress.await.is_err() {
                return Ok(StepOutcome::Interrupted { detail: None });
            }
            let holds = wanted == Wanted::Pause && phase(&latest) == RunPhase::Paused;
            if holds && !held && context.reporter.held(&step.id).await.is_err() {
                return Ok(StepOutcome::Interrupted { detail: None });
            }
            held = holds;
            tokio::select! {
                now = seen.next() => match now {
                    Some(Seen::There(run)) => latest = *run,
                    Some(Seen::Gone) | None => return Err(failure(
                        FailureClass::Permanent,
                        "RunDeleted",
                        format!("run {name} was deleted before it ended"),
                        Some("retry the step: another run is made"),
                    )),
                },
                changed = context.signal.changed() => if changed.is_err() {
                    return Ok(StepOutcome::Interrupted { detail: None });
                },
                () = tokio::time::sleep(again.unwrap_or_default()), if again.is_some() => {}
            }
        }
    }

    /// What becomes of a run, from now on.
    fn watched(&self, run: &Run) -> impl Stream<Item = Seen> + Send + use<E> {
        let uid = run.uid();
        let only = watcher::Config::default().fields(&format!("metadata.name={}", run.name_any()));
        let events = watcher(self.runs(), only).default_backoff();
        events.flat_map(move |event| {
            let seen = match event {
                Ok(watcher::Event::Apply(run) | watcher::Event::InitApply(run)) => {
                    let same = run.uid() == uid;
                    Some(if same {
                        Seen::There(Box::new(run))
                    } else {
                        Seen::Gone
                    })
                }
                Ok(watcher::Event::Delete(run)) if run.uid() == uid => Some(Seen::Gone),
                Ok(_) => None,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the watch on a child failed, trying again"
                    );
                    None
                }
            };
            stream::iter(seen)
        })
    }

    fn wanted(&self, signal: Signal) -> Wanted {
        match signal {
            Signal::Continue => Wanted::Go,
            Signal::Pause => Wanted::Pause,
            Signal::Stop if self.steering.borrow().left.is_some() => Wanted::Leave,
            Signal::Stop => Wanted::Cancel,
        }
    }

    /// Returns if the Lease is held. If it is not, the runner is about to end, and nothing is to be done until then.
    async fn prove(&self) {
        if !self.proof.holds() {
            std::future::pending::<()>().await;
        }
    }

    fn by(&self) -> String {
        format!("run {}", self.work.run.name_any())
    }

    fn runs(&self) -> Api<Run> {
        Api::namespaced(self.work.client.clone(), &self.work.namespace())
    }
}

/// What there is of a step's children.
enum Found {
    There(Box<Run>),
    /// The one to be asked for.
    Absent(String),
}

enum Seen {
    There(Box<Run>),
    Gone,
}

/// How a child ended without success.
enum Ended {
    Stopped(String),
    Failed(Failure),
}

/// How the step ends by how its child stands. None: not yet.
fn outcome(child: &Run, wanted: Wanted) -> Option<Result<(), Ended>> {
    let name = child.name_any();
    let stopped = matches!(wanted, Wanted::Cancel | Wanted::Leave);
    let end = match phase(child) {
        RunPhase::Succeeded => return Some(Ok(())),
        _ if wanted == Wanted::Leave => Ended::Stopped(format!("run {name} goes on by itself")),
        // It is about to be tried again.
        RunPhase::Failed if !stopped && !control::open_requests(child).is_empty() => return None,
        RunPhase::Failed if stopped => Ended::Stopped(format!("run {name} had failed")),
        RunPhase::Failed => Ended::Failed(failure_of(child)),
        RunPhase::Cancelled | RunPhase::Superseded if stopped => {
            Ended::Stopped(format!("run {name} was cancelled with it"))
        }
        phase @ (RunPhase::Cancelled | RunPhase::Superseded) => Ended::Failed(failure(
            FailureClass::Permanent,
            "RunEnded",
            format!("run {name} was ended by others: {phase:?}"),
            Some("retry the step: another run is made"),
        )),
        _ => return None,
    };
    Some(Err(end))
}

/// What to write into the child, so that it does what its parent wants. What people want of the child itself stays.
fn steered(child: &Run, wanted: Wanted) -> Option<Value> {
    let control = child.spec.control.as_ref();
    let state = control
        .and_then(|control| control.state)
        .unwrap_or_default();
    let by_parent = child.annotations().contains_key(PAUSED_BY_PARENT);
    let (state, mark) = match (wanted, state) {
        (Wanted::Cancel, DesiredState::Paused | DesiredState::Running) => {
            (DesiredState::Cancelled, Value::Null)
        }
        (Wanted::Pause, DesiredState::Running) => (DesiredState::Paused, json!("true")),
        (Wanted::Go, DesiredState::Paused) if by_parent => (DesiredState::Running, Value::Null),
        _ => return None,
    };
    Some(json!({
        "metadata": {
            "resourceVersion": child.resource_version(),
            "annotations": {PAUSED_BY_PARENT: mark},
        },
        "spec": {"control": {"state": state}},
    }))
}

fn progress(child: &Run) -> StepProgress {
    let status = child.status.as_ref();
    let said = status.and_then(|status| status.message.as_deref());
    let done = status.and_then(|status| status.progress).unwrap_or(0);
    StepProgress {
        activity: Some(format!(
            "run {}: {}",
            child.name_any(),
            said.unwrap_or("waits for its runner")
        )),
        progress: Some(Progress {
            done: u32::from(done),
            total: Some(100),
            unit: "percent".to_owned(),
        }),
        ..StepProgress::default()
    }
}

/// The failure of a child as that of its step.
fn failure_of(child: &Run) -> Failure {
    let status = child.status.as_ref();
    let own = status.and_then(|status| status.failure.clone());
    let own = own.unwrap_or_else(|| Failure {
        class: FailureClass::Permanent,
        code: "RunFailed".to_owned(),
        message: status
            .and_then(|status| status.message.clone())
            .unwrap_or_default(),
        remedy: None,
        targets: Vec::new(),
    });
    Failure {
        message: format!("run {}: {}", child.name_any(), own.message),
        // They are targets of the child.
        targets: Vec::new(),
        ..own
    }
}

fn succeeded(child: &str) -> StepOutcome {
    StepOutcome::Succeeded {
        results: Results::default(),
        unreachable: Vec::new(),
        detail: Some(format!("run {child} succeeded")),
    }
}

fn failed(failure: Failure) -> StepOutcome {
    StepOutcome::Failed {
        failure,
        results: Results::default(),
        unreachable: Vec::new(),
        remedies: Vec::new(),
    }
}

/// The child cannot be had: the API is away, or refuses it.
fn away(child: &str, why: &kube::Error) -> Failure {
    let (class, code) = if controller::away::is_away(why) {
        (FailureClass::Transient, AWAY)
    } else {
        (FailureClass::Config, "RunRefused")
    };
    failure(
        class,
        code,
        format!("run {child} cannot be read or written: {}", chain(why)),
        Some("see that this runner may read and patch that run, then retry the step"),
    )
}

fn failure(class: FailureClass, code: &str, message: String, remedy: Option<&str>) -> Failure {
    Failure {
        class,
        code: code.to_owned(),
        message,
        remedy: remedy.map(str::to_owned),
        targets: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(control: &Value, annotations: &Value, status: &Value) -> Run {
        let run = json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": "c", "resourceVersion": "7", "annotations": annotations},
            "spec": {
                "subject": {"apiGroup": "example.com", "kind": "Widget", "name": "w"}, "operation": "Make", "generation": 1,
                "plan": {"digest": "", "steps": []}, "control": control,
            },
            "status": status,
        });
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn a_child_does_what_its_parent_wants_and_keeps_what_people_want_of_it() {
        use Wanted::{Cancel, Go, Leave, Pause};
        let marked = json!({PAUSED_BY_PARENT: "true"});
        let state = |wanted, control: Value, annotations: &Value| {
            let patch = steered(&run(&control, annotations, &Value::Null), wanted)?;
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            let mark = patch["metadata"]["annotations"][PAUSED_BY_PARENT].clone();
            Some((patch["spec"]["control"]["state"].clone(), mark))
        };
        let (none, paused) = (Value::Null, json!({"state": "Paused"}));
        assert_eq!(state(Go, none.clone(), &none), None);
        assert_eq!(state(Leave, paused.clone(), &marked), None);
        let pause = Some((json!("Paused"), json!("true")));
        assert_eq!(state(Pause, none.clone(), &none), pause);
        assert_eq!(state(Pause, paused.clone(), &none), None);
        assert_eq!(state(Go, paused.clone(), &none), None, "a person paused it");
        let go = Some((json!("Running"), Value::Null));
        assert_eq!(state(Go, paused.clone(), &marked), go);
        let cancel = Some((json!("Cancelled"), Value::Null));
        assert_eq!(state(Cancel, paused, &marked), cancel);
        assert_eq!(state(Cancel, none.clone(), &none), cancel);
        assert_eq!(state(Pause, json!({"state": "Cancelled"}), &none), None);
    }

    #[test]
    fn a_step_ends_as_its_child_does() {
        let ended = |status: Value, control: Value, wanted| {
            let child = run(&control, &Value::Null, &status);
            outcome(&child, wanted).map(|end| match end {
                Ok(()) => "succeeded".to_owned(),
                Err(Ended::Stopped(_)) => "stopped".to_owned(),
                Err(Ended::Failed(failure)) => format!("{}: {}", failure.code, failure.message),
            })
        };
        let none = Value::Null;
        let of = |phase: &str, wanted| ended(json!({"phase": phase}), none.clone(), wanted);
        for going in ["Pending", "Running", "Paused", "Waiting"] {
            assert_eq!(of(going, Wanted::Go), None);
            assert_eq!(of(going, Wanted::Cancel), None, "until it has ended");
            assert_eq!(of(going, Wanted::Leave).as_deref(), Some("stopped"));
        }
        assert_eq!(
            of("Succeeded", Wanted::Cancel).as_deref(),
            Some("succeeded")
        );
        assert_eq!(of("Cancelled", Wanted::Cancel).as_deref(), Some("stopped"));
        let by_others = of("Cancelled", Wanted::Go).unwrap();
        assert!(by_others.starts_with("RunEnded: run c "), "{by_others}");
        let failed = json!({"phase": "Failed", "failure": {"class": "Config", "code": "Bent", "message": "too thin"}});
        let told = ended(failed.clone(), none.clone(), Wanted::Go);
        assert_eq!(told.as_deref(), Some("Bent: run c: too thin"));
        let asked = json!({"requests": [{"id": "1", "action": "Retry"}]});
        assert_eq!(ended(failed, asked, Wanted::Go), None, "it is tried again");
    }

    #[test]
    fn an_api_that_is_away_is_waited_for_and_one_that_refuses_is_not() {
        let answered = |code: u16| {
            let status = kube::core::Status::failure("no", "No").with_code(code);
            away("c", &kube::Error::Api(Box::new(status))).code
        };
        assert_eq!(answered(503), AWAY);
        assert_eq!(answered(403), "RunRefused");
    }
}
