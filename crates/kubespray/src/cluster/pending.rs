//! What the wish asks for and does not run now, in its order, each with the reason for which it waits. Pure.
//!
//! Every operation is asked, as if it were the first to be: what it would start, or cannot, is pending unless it is what was decided.

use api::{
    Cluster, Duration, HostName, Run,
    cluster::{NOT_REQUESTED, Pending},
    run::Plan,
    run::{DesiredState, RunPhase},
    text::lines,
};
use controller::window::Now;
use kube::{Resource, ResourceExt};
use runs::{control, is_active, phase};

use crate::{
    cluster::{
        built::Built,
        compile,
        decision::{Decision, NewRun, Situation},
        maintain,
        resolve::{ReplacingTurn, Resolved},
    },
    inputs::Inputs,
    operation::{
        ALL, COMPONENT, CONVERGE, Operation, REMOVE, REPLACE, RESET_HOST, UPGRADE, component,
        converge, remove, reset_host, upgrade,
    },
    problem,
    request::start_again,
};

/// What waits for a maintenance window.
pub const WAITING_FOR_WINDOW: &str = "WaitingForWindow";

/// The most that are told, by the schema of the status.
const MOST: usize = 16;
/// The most hosts of each, by the same.
const MOST_HOSTS: usize = 100;

/// An operation and its hosts, as a sentence begins with them.
pub fn named(operation: &str, hosts: &[HostName]) -> String {
    if hosts.is_empty() {
        operation.to_owned()
    } else {
        format!("{operation} of {}", compile::listed(hosts))
    }
}

/// The hosts that a plan makes part of a built cluster, or takes out of it. None: it is about all of it.
pub(super) fn hosts(built: &Built, plan: &Plan) -> Vec<HostName> {
    let Ok(inputs) = Inputs::from_map(&plan.inputs) else {
        return Vec::new();
    };
    if !inputs.leaving.is_empty() {
        return inputs.leaving;
    }
    let Some(before) = &built.inputs else {
        return Vec::new();
    };
    let is_part = |name: &str| before.hosts.iter().any(|host| host.name == name);
    let new = inputs.hosts.iter().filter(|host| !is_part(&host.name));
    new.filter_map(|host| host.name.parse().ok()).collect()
}

/// What waits, given what was decided.
pub(super) fn pending(situation: &Situation<'_>, decision: &Decision) -> Vec<Pending> {
    let Some(built) = situation.built else {
        return Vec::new();
    };
    if situation.cluster.meta().deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut list = List {
        cluster: situation.cluster,
        ahead: Ahead::of(decision),
        built,
        pending: Vec::new(),
    };
    list.standing();
    for operation in ALL.iter().filter(|operation| operation.of_built) {
        // What was decided would be answered once more.
        if matches!(decision, Decision::Start(new) if new.operation.name == operation.name) {
            continue;
        }
        list.asked(situation, operation, (operation.decide)(situation));
    }
    list.replaced(situation);
    list.follow(situation, decision);
    list.not_removed(situation);
    list.not_reset(situation);
    list.cancelled(situation);
    list.left(situation);
    list.halfway(situation);
    list.half_removed(situation);
    list.not_requested(situation);
    list.pending.truncate(MOST);
    list.pending
}

/// What comes before everything else.
enum Ahead<'a> {
    /// Nothing.
    Nothing,
    /// A run that starts now.
    Starts(&'a NewRun),
    /// A run at work.
    AtWork(&'a Run),
    /// A run that failed, and what a person does about it.
    Failed(&'a Run),
    /// What a person must correct.
    Stalled,
}

impl<'a> Ahead<'a> {
    fn of(decision: &'a Decision) -> Self {
        match decision {
            Decision::Start(new) => Self::Starts(new),
            Decision::Maintain(_, run) if is_active(phase(run)) => Self::AtWork(run),
            Decision::Maintain(_, run) => Self::Failed(run),
            Decision::Stall(_) => Self::Stalled,
            _ => Self::Nothing,
        }
    }

    /// Why what would start waits for it.
    fn reason(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Nothing => None,
            Self::Stalled => Some((
                "InvalidSpec",
                "something must be corrected first: see the condition Stalled".to_owned(),
            )),
            Self::Starts(new) => Some(("BehindRun", format!("run {} comes first", new.name))),
            Self::AtWork(run) => Some((
                "BehindRun",
                format!("run {} comes first, and is at work", run.name_any()),
            )),
            Self::Failed(run) => Some((
                "RunFailed",
                format!(
                    "run {} comes first, and failed: windlass retry {0}, or take back what it was for",
                    run.name_any()
                ),
            )),
        }
    }
}

/// What is said of a run that rests until a window opens, and that nobody paused.
pub(super) fn rest_of(run: &Run) -> Option<String> {
    let rest = control::rest(run)?;
    let control = run.spec.control.as_ref();
    let state = control
        .and_then(|control| control.state)
        .unwrap_or_default();
    (state == DesiredState::Running).then(|| {
        format!(
            "run {} rests after {}: {}, and it goes on by itself then; to have it go on now: windlass maintain {}",
            run.name_any(),
            rest.after,
            rest.why,
            run.spec.subject.name
        )
    })
}

struct List<'a> {
    cluster: &'a Cluster,
    built: &'a Built,
    ahead: Ahead<'a>,
    pending: Vec<Pending>,
}

impl List<'_> {
    fn add(&mut self, operation: &str, reason: &str, message: &str, mut hosts: Vec<HostName>) {
        let known = |known: &Pending| known.operation == operation && known.hosts == hosts;
        if self.pending.iter().any(known) {
            return;
        }
        hosts.truncate(MOST_HOSTS);
        self.pending.push(Pending {
            operation: operation.to_owned(),
            reason: reason.to_owned(),
            message: lines(message, 2048),
            hosts,
        });
    }

    /// A run that is there and does not go on by itself.
    fn standing(&mut self) {
        let (Ahead::AtWork(run) | Ahead::Failed(run)) = self.ahead else {
            return;
        };
        let name = run.name_any();
        let rest = rest_of(run);
        let (reason, message) = match phase(run) {
            RunPhase::Paused if rest.is_some() => (WAITING_FOR_WINDOW, rest.unwrap_or_default()),
            RunPhase::Waiting => (
                "WaitingForApproval",
                format!("run {name} waits for a person: windlass approve {name}"),
            ),
            RunPhase::Paused => (
                "Paused",
                format!("run {name} is paused: windlass resume {name}"),
            ),
            RunPhase::Failed => (
                "RunFailed",
                format!(
                    "run {name} failed: windlass status says why, windlass retry {name} goes on"
                ),
            ),
            _ => return,
        };
        let hosts = hosts(self.built, &run.spec.plan);
        self.add(&run.spec.operation, reason, &message, hosts);
    }

    /// What an operation answers.
    fn asked(
        &mut self,
        situation: &Situation<'_>,
        operation: &Operation,
        answer: Option<Decision>,
    ) {
        match answer {
            Some(Decision::Start(new)) => self.would_start(situation, &new),
            Some(Decision::Stall(problems)) => {
                let message = problem::text(&problems);
                self.add(operation.name, "Refused", &message, Vec::new());
            }
            Some(Decision::AwaitPlaybooks(why)) => {
                let why = why.unwrap_or_else(|| "they are being brought".to_owned());
                let message = format!("it waits for the playbooks: {why}");
                self.add(operation.name, "WaitingForPlaybooks", &message, Vec::new());
            }
            _ => {}
        }
    }

    fn would_start(&mut self, situation: &Situation<'_>, new: &NewRun) {
        let mut hosts = hosts(self.built, &new.plan);
        if let Ahead::AtWork(run) = self.ahead
            && run.spec.operation == new.operation.name
        {
            let its = &run.spec.plan;
            // What is at work is not asked for once more: only what was declared since.
            let at_work = self::hosts(self.built, its);
            let all = hosts.is_empty();
            hosts.retain(|host| !at_work.contains(host));
            if its.digest == new.plan.digest || all || hosts.is_empty() {
                return;
            }
        }
        let (reason, message) = match self.ahead.reason() {
            Some(ahead) => ahead,
            None => match self.window(situation, new) {
                Some(message) => (WAITING_FOR_WINDOW, message),
                None => return,
            },
        };
        self.add(new.operation.name, reason, &message, hosts);
    }

    fn window(&self, situation: &Situation<'_>, new: &NewRun) -> Option<String> {
        let keeping = &situation.wanted.ok()?.maintenance;
        let now = situation.observed.now;
        let takes = maintain::takes(&situation.observed.runs, new.operation);
        let opens = keeping.begins(new.operation, now, takes)?;
        let (name, cluster) = (new.operation.name, self.cluster.name_any());
        let short = match (keeping.windows.at(now), takes) {
            (
                Now::Open {
                    closes: Some(closes),
                },
                Some(takes),
            ) => format!(
                "the one that is open closes at {closes}, and {name} took {} the last time: ",
                Duration::from_seconds(takes.as_secs().unsigned_abs())
            ),
            _ => String::new(),
        };
        Some(format!(
            "{short}the maintenance window opens at {opens}; to start it now: windlass maintain {cluster}"
        ))
    }

    /// Whether an operation starts, stands, or waits.
    fn is_asked_for(&self, operation: &str) -> bool {
        let ahead = match self.ahead {
            Ahead::Starts(new) => Some(new.operation.name),
            Ahead::AtWork(run) | Ahead::Failed(run) => Some(run.spec.operation.as_str()),
            Ahead::Nothing | Ahead::Stalled => None,
        };
        let mut pending = self.pending.iter();
        ahead == Some(operation) || pending.any(|pending| pending.operation == operation)
    }

    /// Hosts whose place others take, and which leave in a later run.
    fn replaced(&mut self, situation: &Situation<'_>) {
        let (Ok(wanted), Some(before)) = (situation.wanted, &self.built.inputs) else {
            return;
        };
        let upgrade = remove::waits_for(before, wanted, situation.observed);
        for replacing in wanted
            .replacing
            .iter()
            .filter(|replacing| replacing.stays())
        {
            let hosts = vec![replacing.host.clone()];
            let keep = format!("to take it back: windlass node keep {}", replacing.host);
            if let Some(upgrade) = &upgrade {
                let message = format!("{upgrade}; {keep}");
                self.add(REPLACE.name, "BehindRun", &message, hosts);
                continue;
            }
            let message = format!("{}; {keep}", replacing.waits());
            let hands_over = replacing.turn == ReplacingTurn::HandsOver;
            if hands_over && !self.is_asked_for(REPLACE.name) {
                let again = start_again(
                    &self.cluster.namespace().unwrap_or_default(),
                    &self.cluster.name_any(),
                );
                let message =
                    format!("its run was cancelled; to start it anew: {again}; {message}");
                self.add(REPLACE.name, "RunCancelled", &message, hosts);
            } else if hands_over || replacing.hands_over.is_empty() {
                self.add(REMOVE.name, "BehindRun", &message, hosts);
            } else {
                self.add(REPLACE.name, "BehindRun", &message, hosts);
            }
        }
    }

    /// Hosts that leave in a later run than the next one: control planes and members of etcd leave one a run.
    fn follow(&mut self, situation: &Situation<'_>, decision: &Decision) {
        let (Ok(wanted), Some(before)) = (situation.wanted, &self.built.inputs) else {
            return;
        };
        let run = match decision {
            Decision::Start(new) => Some(&new.plan),
            Decision::Maintain(_, run) => Some(&run.spec.plan),
            _ => None,
        };
        let mut told = run.map_or_else(Vec::new, |plan| hosts(self.built, plan));
        let removals = self.pending.iter();
        let removals = removals.filter(|pending| pending.operation == REMOVE.name);
        told.extend(removals.flat_map(|pending| pending.hosts.iter().cloned()));
        let leaving = wanted.removal.leaving.iter();
        let rest: Vec<_> = leaving
            .filter(|host| before.host(host).is_some() && !told.contains(host))
            .cloned()
            .collect();
        let upgrade = remove::waits_for(before, wanted, situation.observed);
        let after = upgrade.or_else(|| {
            let first = (!told.is_empty()).then(|| compile::listed(&told))?;
            Some(format!("it comes after that of {first}"))
        });
        if let Some(after) = after.filter(|_| !rest.is_empty()) {
            let message = format!("{after}; to take it back: windlass node keep NAME");
            self.add(REMOVE.name, "BehindRun", &message, rest);
        }
    }

    /// Hosts whose ClusterNodes are being deleted, and which stay.
    fn not_removed(&mut self, situation: &Situation<'_>) {
        let kept = situation.wanted.ok().map(|wanted| wanted.kept.clone());
        for kept in kept.unwrap_or_default() {
            let message = format!(
                "{}; to take it back: windlass node keep {}",
                kept.why, kept.name
            );
            let host = kept.name.parse().ok();
            self.add(REMOVE.name, "Refused", &message, host.into_iter().collect());
        }
    }

    /// Hosts that somebody wants reset, and which are not.
    fn not_reset(&mut self, situation: &Situation<'_>) {
        let Some(before) = &self.built.inputs else {
            return;
        };
        for (host, why) in reset_host::refusals(situation.observed, before) {
            self.add(RESET_HOST.name, "Refused", &why, vec![host]);
        }
    }

    /// What was cancelled, and is asked for still.
    fn cancelled(&mut self, situation: &Situation<'_>) {
        let Ok(wanted) = situation.wanted else { return };
        let runs = situation.observed.runs.iter().rev();
        let mut later: Vec<(&str, Vec<HostName>)> = Vec::new();
        for run in runs {
            let hosts = hosts(self.built, &run.spec.plan);
            let operation = run.spec.operation.as_str();
            let again = later.iter().any(|(known, its)| {
                *known == operation && its.iter().any(|host| hosts.contains(host))
            });
            if phase(run) == RunPhase::Cancelled && !again {
                self.cancelled_run(run, wanted);
            }
            later.push((operation, hosts));
        }
    }

    fn cancelled_run(&mut self, run: &Run, wanted: &Resolved) {
        // Each request is carried out once.
        if run.spec.operation == RESET_HOST.name {
            return;
        }
        let mut hosts = hosts(self.built, &run.spec.plan);
        let leaves = |host: &HostName| wanted.removal.leaving.contains(host);
        let comes = |host: &HostName| {
            let mut hosts = wanted.inputs.hosts.iter();
            hosts.any(|wanted| wanted.name == host.as_str())
        };
        let removes = run.spec.operation == REMOVE.name;
        hosts.retain(|host| if removes { leaves(host) } else { comes(host) });
        let told = |known: &Pending| {
            let all = hosts.iter().all(|host| known.hosts.contains(host));
            known.operation == run.spec.operation && all
        };
        if hosts.is_empty() || self.pending.iter().any(told) {
            return;
        }
        let message = format!(
            "run {} was cancelled; to start it anew: {}",
            run.name_any(),
            start_again(
                &self.cluster.namespace().unwrap_or_default(),
                &self.cluster.name_any()
            )
        );
        self.add(&run.spec.operation, "RunCancelled", &message, hosts);
    }

    /// Nodes that a run for a component has left without pods, whatever came after it: its failure is told no more then.
    fn left(&mut self, situation: &Situation<'_>) {
        let lets_in = match self.ahead {
            Ahead::Starts(new) => Some(new.operation.name),
            Ahead::AtWork(run) => Some(run.spec.operation.as_str()),
            _ => None,
        };
        if lets_in.is_some_and(component::lets_pods_in) {
            return;
        }
        let Some(left) = component::left(&situation.observed.runs) else {
            return;
        };
        let mut hosts = left.halfway;
        let members = self.built.inputs.as_ref().map(Inputs::members);
        hosts.retain(|host| members.as_ref().is_none_or(|known| known.contains(host)));
        if hosts.is_empty() {
            return;
        }
        let message = format!(
            "run {} was ended in the middle of {}, which may take no pods since: windlass component upgrade container-engine goes over them \
             again, windlass node uncordon lets pods in",
            left.run,
            compile::listed(&hosts)
        );
        self.add(COMPONENT.name, "RunFailed", &message, hosts);
    }

    /// Nodes that an upgrade has left without pods, where another run has failed since and comes first: its own failure is told no more. The
    /// other one may be of the same upgrade, and have failed on another node.
    fn halfway(&mut self, situation: &Situation<'_>) {
        let Ahead::Failed(failed) = self.ahead else {
            return;
        };
        let Some(begun) = upgrade::begun(&situation.observed.runs) else {
            return;
        };
        let failed = failed.name_any();
        let (run, hosts) = if begun.run == failed {
            ("an earlier run of the upgrade".to_owned(), begun.earlier)
        } else {
            (format!("run {}", begun.run), begun.halfway)
        };
        if hosts.is_empty() {
            return;
        }
        let message = format!(
            "{run} was ended in the middle of {}, which may take no pods since: that goes on when run {failed} has come to its end; windlass \
             node uncordon lets pods in",
            compile::listed(&hosts),
        );
        self.add(UPGRADE.name, "RunFailed", &message, hosts);
    }

    /// Hosts whose removal has failed, which may have drained them, where another run has failed since and comes first.
    fn half_removed(&mut self, situation: &Situation<'_>) {
        let Ahead::Failed(failed) = self.ahead else {
            return;
        };
        let mut runs = situation.observed.runs.iter().rev();
        let newest = runs.find(|run| run.spec.operation == REMOVE.name);
        let removal = newest
            .filter(|run| phase(run) == RunPhase::Failed && run.name_any() != failed.name_any());
        let Some(removal) = removal else { return };
        let members = self.built.inputs.as_ref().map(Inputs::members);
        let mut hosts = members.unwrap_or_default();
        hosts.retain(|host| Inputs::removes(&removal.spec.plan.inputs, host.as_str()));
        if hosts.is_empty() {
            return;
        }
        let message = format!(
            "run {} has not removed {}, which may take no pods since: it goes on when run {} has come to its end; windlass node keep keeps a \
             host",
            removal.name_any(),
            compile::listed(&hosts),
            failed.name_any()
        );
        self.add(REMOVE.name, "RunFailed", &message, hosts);
    }

    /// Changes that only converging carries out.
    fn not_requested(&mut self, situation: &Situation<'_>) {
        let converges = match self.ahead {
            Ahead::Starts(new) => new.operation.name == CONVERGE.name,
            Ahead::AtWork(run) => run.spec.operation == CONVERGE.name,
            _ => false,
        };
        let Ok(wanted) = situation.wanted else { return };
        let changes = converge::changes(&situation.observed.runs, wanted);
        if converges || changes.is_empty() {
            return;
        }
        let kept = &self.built.immutable;
        let (reason, message) = if kept.is_empty() {
            let asked = format!(
                "it is carried out when somebody asks for it (windlass converge): {}",
                changes.join(", ")
            );
            match self.refuses_converge() {
                Some((reason, why)) => (reason, format!("{why}; after that {asked}")),
                None => (NOT_REQUESTED, asked),
            }
        } else {
            let kept: Vec<_> = kept.iter().map(ToString::to_string).collect();
            ("Refused", kept.join("; "))
        };
        self.add(CONVERGE.name, reason, &message, Vec::new());
    }

    /// Why a request to converge would be refused now: who asks for what is told to be not requested must find it carried out.
    fn refuses_converge(&self) -> Option<(&'static str, String)> {
        let ahead = match self.ahead {
            // Another request takes its place.
            Ahead::Failed(run) if run.spec.operation == CONVERGE.name => None,
            _ => self.ahead.reason(),
        };
        let refused = || Some(("Refused", converge::refusal(self.built)?));
        ahead.or_else(refused)
    }
}
