//! Engines whose steps are calls of an API, made one after the other by the runner itself.
//!
//! An engine gives an [`Act`], and executes by [`each`]; the rest is what its steps have in common: how they end, how they fail, and
//! how they listen to people between two calls.

use std::time::Duration;

use api::run::{Failure, FailureClass, Results, Step};
use controller::lease::Proof;
use tokio::time::sleep;
use workflow::{Signal, StepContext, StepOutcome, StepProgress};

/// The code of a call that was not answered.
pub const NO_ANSWER: &str = "NoAnswer";
/// The code of a call that the API did not allow, by its roles or otherwise.
pub const FORBIDDEN: &str = "Forbidden";
/// How long between two looks at what comes by itself.
const LOOK: Duration = Duration::from_secs(1);

/// Does what a step says.
pub trait Act {
    /// Does one step, and says how it went.
    ///
    /// # Errors
    ///
    /// It is not done.
    fn act(
        &self,
        step: &Step,
        context: &mut StepContext,
    ) -> impl Future<Output = Result<StepOutcome, Ended>> + Send;
}

/// How a step ends that is not done.
#[derive(Debug)]
pub enum Ended {
    /// It failed.
    Failed(Failure),
    /// It was told to stop.
    Interrupted,
    /// Nobody takes what it says.
    Rejected,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Does the steps in order until nobody listens any more.
pub async fn each(act: &impl Act, steps: &[Step], mut context: StepContext) {
    for step in steps {
        let outcome = match act.act(step, &mut context).await {
            Ok(outcome) => outcome,
            Err(Ended::Failed(failure)) => StepOutcome::Failed {
                failure,
                results: Results::default(),
                unreachable: Vec::new(),
                remedies: Vec::new(),
            },
            Err(Ended::Interrupted) => StepOutcome::Interrupted { detail: None },
            Err(Ended::Rejected) => return,
        };
        if context.reporter.finished(&step.id, outcome).await.is_err() {
            return;
        }
    }
}

/// A step that is done, with what it did.
pub fn done(results: Results, detail: Option<String>) -> StepOutcome {
    StepOutcome::Succeeded {
        results,
        unreachable: Vec::new(),
        detail,
    }
}

/// A failure of a step. What others said in `message` may quote anything, so it is bounded.
pub fn failure(
    class: FailureClass,
    code: &str,
    message: impl Into<String>,
    remedy: &str,
) -> Failure {
    Failure {
        class,
        code: code.to_owned(),
        message: api::text::lines(&message.into(), 2048),
        remedy: Some(remedy.to_owned()),
        targets: Vec::new(),
    }
}

/// What a person must change.
pub fn config(code: &str, message: impl Into<String>, remedy: &str) -> Failure {
    failure(FailureClass::Config, code, message, remedy)
}

/// What may pass.
pub fn transient(code: &str, message: impl Into<String>) -> Failure {
    failure(FailureClass::Transient, code, message, AGAIN)
}

/// What helps against what may pass, as long as somebody tries.
pub const AGAIN: &str = "it is tried again; look at what it names if it stays so";

/// Whether the API takes no object that is so long. What etcd does not take, or its client does not send, comes as an error of the server.
pub fn is_too_large(status: &kube::core::Status) -> bool {
    let words = ["too large", "larger than max"];
    status.code == 413
        || (status.code == 500 && words.iter().any(|word| status.message.contains(word)))
}

/// A call of the API that did not do what it should: tried again where that may help.
pub fn call(what: impl Into<String>, error: &kube::Error) -> Failure {
    let refused = matches!(error, kube::Error::Api(status)
        if matches!(status.code, 400 | 401 | 405 | 415 | 422) || is_too_large(status));
    let forbidden = matches!(error, kube::Error::Api(status) if status.code == 403);
    let message = format!("failed to {}: {}", what.into(), controller::chain(error));
    if forbidden {
        failure(
            FailureClass::External,
            FORBIDDEN,
            message,
            "allow what the API names, or mend it, and retry the run",
        )
    } else if refused {
        failure(
            FailureClass::External,
            "Refused",
            message,
            "mend what the API names, and retry the run",
        )
    } else {
        transient(NO_ANSWER, message)
    }
}

/// A step that this engine has no action for; `of` is what its plans are of.
pub fn unknown_action(step: &Step, of: &str) -> Failure {
    config(
        "UnknownAction",
        format!("step {} has no action of {of}", step.id),
        "let the operator plan anew",
    )
}

/// That the Lease of the subject is held: nothing is written without it.
///
/// # Errors
///
/// It is not.
pub fn held(proof: &Proof) -> Result<(), Failure> {
    if proof.holds() {
        return Ok(());
    }
    Err(transient("NotHeld", "the Lease of the object is not held"))
}

/// Lets people stop or pause a step between two of its calls.
///
/// # Errors
///
/// They stopped it, or nobody listens.
pub async fn boundary(step: &Step, context: &mut StepContext) -> Result<(), Ended> {
    loop {
        let wanted = *context.signal.borrow_and_update();
        match wanted {
            Signal::Continue => return Ok(()),
            Signal::Stop => return Err(Ended::Interrupted),
            Signal::Pause => {
                context
                    .reporter
                    .held(&step.id)
                    .await
                    .map_err(|_| Ended::Rejected)?;
                context
                    .signal
                    .changed()
                    .await
                    .map_err(|_| Ended::Rejected)?;
            }
        }
    }
}

/// Says what the step is at.
///
/// # Errors
///
/// Nobody listens.
pub async fn tell(step: &Step, context: &StepContext, activity: &str) -> Result<(), Ended> {
    let progress = StepProgress {
        activity: Some(api::text::lines(activity, 500)),
        ..StepProgress::default()
    };
    context
        .reporter
        .progress(&step.id, progress)
        .await
        .map_err(|_| Ended::Rejected)
}

/// What a look showed.
#[derive(Debug)]
pub enum Seen<T> {
    /// What is waited for.
    There(T),
    /// What is missing, for people.
    Missing(String),
}

/// Looks again and again until what is waited for is there; the step's own timeout ends the wait. `look` says what is missing.
///
/// # Errors
///
/// A look fails otherwise than by an API that is away for a moment, people stopped the step, or nobody listens.
pub async fn until<T, F>(
    step: &Step,
    context: &mut StepContext,
    mut look: impl FnMut() -> F,
) -> Result<T, Ended>
where
    F: Future<Output = Result<Seen<T>, Failure>>,
{
    let mut told = String::new();
    loop {
        boundary(step, context).await?;
        let seen = match look().await {
            Err(failure) if failure.code == NO_ANSWER => Seen::Missing(failure.message),
            seen => seen?,
        };
        match seen {
            Seen::There(found) => return Ok(found),
            Seen::Missing(what) if what != told => {
                tell(step, context, &what).await?;
                told = what;
            }
            Seen::Missing(_) => {}
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            changed = context.signal.changed() => changed.map_err(|_| Ended::Rejected)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_is_refused_for_what_it_says_is_not_tried_for_ever() {
        let class = |code: u16, message: &str| {
            let status = Status {
                code,
                ..Status::failure(message, "Why")
            };
            call("store it", &kube::Error::Api(Box::new(status))).class
        };
        for (code, message, expected) in [
            (
                500,
                "etcdserver: request is too large",
                FailureClass::External,
            ),
            (
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3005132 vs. 2097152)",
                FailureClass::External,
            ),
            (413, "limit is 3145728", FailureClass::External),
            (422, "it is invalid", FailureClass::External),
            (500, "etcdserver: leader changed", FailureClass::Transient),
            (503, "away", FailureClass::Transient),
        ] {
            assert_eq!(class(code, message), expected, "{code} {message}");
        }
    }
}
