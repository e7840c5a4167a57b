//! Steps that ask the members of etcd, and take one out: by ssh to a member that stays, whatever became of the one that leaves.

use std::time::Duration;

use ansible::probe::{self, Options, Target};
use api::{
    HostName,
    run::{FailureClass, Step},
};
use tokio::time::Instant;
use workflow::{StepContext, StepOutcome, StepProgress};

use super::{
    executor::{KubesprayExecutor, failed, hold, hold_within, succeeded},
    prepare,
    workspace::failure,
};
use crate::{
    action::{self, MemberChange, Turn},
    etcd::{self, Answer, Member, Quorum, Refusal},
};

/// How often is asked again.
const LOOK: Duration = Duration::from_secs(2);
/// How often etcd is found without a quorum before that counts: while its members choose a leader it has none for a moment.
const LOOKS: usize = 3;
/// How long a step may take that says nothing.
const DEADLINE: Duration = Duration::from_secs(45);
/// How long one member may take to answer for all: etcdctl gives up on one that is silent after five seconds.
const ANSWER: Duration = Duration::from_secs(30);

/// Proves that etcd takes a change of one member.
pub(crate) async fn prove(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    change: &MemberChange,
) -> StepOutcome {
    if change.turn == Turn::Founds {
        return prove_lost(executor, step, context, change).await;
    }
    proven(executor, step, context, change)
        .await
        .map_or_else(|outcome| outcome, |(said, ..)| succeeded(Some(said)))
}

/// Proves that etcd has lost its quorum: each host is asked, more than once, and each says so. One that cannot be asked proves nothing.
async fn prove_lost(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    change: &MemberChange,
) -> StepOutcome {
    let options = match prepare::options(executor).await {
        Ok(options) => options,
        Err(failure) => return failed(failure),
    };
    let targets = prepare::targets(executor, &asked(executor, step, context));
    let (mut said, mut unheard) = (Vec::new(), Vec::new());
    for _ in 0..LOOKS {
        if let Some(outcome) = hold(step, context).await {
            return outcome;
        }
        said.clear();
        unheard.clear();
        for target in &targets {
            let of = |text: String| format!("{}: {text}", target.name);
            let told = tell(target, &options, &etcd::question_of_loss()).await;
            match told.and_then(|told| etcd::read_of_loss(&told)) {
                Ok(Quorum::Told(members)) => {
                    match etcd::judge(&members, change, &executor.work.inputs) {
                        Answer::Yes(yes) => said.push(of(yes)),
                        Answer::No(refusal) => return refused(refusal),
                    }
                }
                Ok(Quorum::None(why)) => said.push(of(why)),
                Err(error) => unheard.push(of(error)),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    if unheard.is_empty() {
        return succeeded(Some(said.join("; ")));
    }
    failed(failure(
        FailureClass::External,
        "QuorumUnknown",
        format!(
            "it is not certain that etcd has lost its quorum, and nothing was touched: {}",
            unheard.join("; ")
        ),
        Some(
            "see to it that these hosts answer by ssh, and etcdctl there; or stop their etcd for good (systemctl stop etcd); then retry the \
             run. Of hosts that are off since, ask again: windlass recover",
        ),
    ))
}

/// Proves that the members are those that the inventory names.
pub(crate) async fn named(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    let options = match prepare::options(executor).await {
        Ok(options) => options,
        Err(failure) => return failed(failure),
    };
    let targets = prepare::targets(executor, &asked(executor, step, context));
    match first(&targets, &options).await {
        Ok((members, _)) => match etcd::named(&members, &executor.work.inputs) {
            Answer::Yes(said) => succeeded(Some(said)),
            Answer::No(refusal) => refused(refusal),
        },
        Err(error) => failed(unanswered(&error)),
    }
}

/// Takes a member out, unless it is gone already.
pub(crate) async fn take_out(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    change: &MemberChange,
) -> StepOutcome {
    let (said, members, by) = match proven(executor, step, context, change).await {
        Ok(proven) => proven,
        Err(outcome) => return outcome,
    };
    let inputs = &executor.work.inputs;
    let Some(own) = etcd::own(&members, change, inputs) else {
        return succeeded(Some(said));
    };
    let options = match prepare::options(executor).await {
        Ok(options) => options,
        Err(failure) => return failed(failure),
    };
    executor.proven().await;
    match ask(&by, &options, &etcd::removal(own.id)).await {
        Ok(left) if etcd::own(&left, change, inputs).is_none() => {
            succeeded(Some(format!("{} took it out; {said}", by.name)))
        }
        Ok(_) => failed(failure(
            FailureClass::Transient,
            "MemberNotTakenOut",
            format!(
                "etcd still has the member of {} after {} was to take it out",
                change.host, by.name
            ),
            Some("look at the log of etcd on the members (journalctl -u etcd), then retry the run"),
        )),
        Err(error) => failed(unanswered(&format!("{}: {error}", by.name))),
    }
}

/// What the members say to a change, them, and the one that said it; or how the step ends without.
async fn proven(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    change: &MemberChange,
) -> Result<(String, Vec<Member>, Target), StepOutcome> {
    let limit = step.timeout.map_or(DEADLINE, Duration::from);
    // Ends before the step's timeout does, to say what is wrong rather than that time is up.
    let mut deadline = Instant::now() + limit.mul_f64(0.6);
    let options = prepare::options(executor).await.map_err(failed)?;
    let targets = prepare::targets(executor, &asked(executor, step, context));
    loop {
        hold_within(step, context, &mut deadline).await?;
        let (trouble, outcome) = match first(&targets, &options).await {
            Ok((members, by)) => match etcd::judge(&members, change, &executor.work.inputs) {
                Answer::Yes(said) => return Ok((said, members, by)),
                Answer::No(refusal) => (refusal.message.clone(), refused(refusal)),
            },
            Err(error) => (error.clone(), failed(unanswered(&error))),
        };
        if Instant::now() >= deadline {
            return Err(outcome);
        }
        let progress = StepProgress {
            activity: Some(trouble),
            ..StepProgress::default()
        };
        if context.reporter.progress(&step.id, progress).await.is_err() {
            return Err(StepOutcome::Interrupted { detail: None });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The hosts of a step, but for those that do not answer.
fn asked(executor: &KubesprayExecutor, step: &Step, context: &StepContext) -> Vec<HostName> {
    let silent = action::hosts_left_out(&context.excluded);
    let mut hosts = action::hosts_of(executor.work.plan.plan(), step);
    hosts.retain(|host| !silent.contains(host));
    hosts
}

/// What the first member says that says something.
async fn first(targets: &[Target], options: &Options) -> Result<(Vec<Member>, Target), String> {
    let mut errors = Vec::new();
    for target in targets {
        match ask(target, options, &etcd::question()).await {
            Ok(members) => return Ok((members, target.clone())),
            Err(error) => errors.push(format!("{}: {error}", target.name)),
        }
    }
    if errors.is_empty() {
        errors.push("no member is left to be asked".to_owned());
    }
    Err(errors.join("; "))
}

async fn ask(target: &Target, options: &Options, script: &str) -> Result<Vec<Member>, String> {
    let said = tell(target, options, script).await?;
    etcd::read(&said)
}

async fn tell(target: &Target, options: &Options, script: &str) -> Result<String, String> {
    let limit = options.connect_timeout.saturating_add(ANSWER);
    let said = probe::run(target, options, script, limit).await;
    said.map_err(|unusable| format!("{} ({})", unusable.message(), unusable.detail))
}

fn refused(refusal: Refusal) -> StepOutcome {
    let Refusal {
        code,
        message,
        remedy,
    } = refusal;
    failed(failure(
        FailureClass::External,
        code,
        message,
        Some(&remedy),
    ))
}

fn unanswered(error: &str) -> api::run::Failure {
    failure(
        FailureClass::External,
        "EtcdUnanswered",
        format!("no member of etcd says how etcd is: {error}"),
        Some("see to etcd on these hosts (journalctl -u etcd), then retry the run"),
    )
}
