//! Renew: makes the certificates of a built cluster's control plane anew, one host at a time. Pure.
//!
//! It is asked for by the annotation [`request::RENEW`], each value of which is [answered](asked) once; or it begins by itself when a
//! certificate that a server was seen to show ends sooner than the spec wants. What counts is what was seen after the last renewal: one
//! that moved no end, or moved it less far than is wanted, is told of and not begun anew.

use api::{
    Duration, HostName, Run,
    run::{Plan, RunPhase},
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use runs::phase;

use super::{
    RENEW,
    asked::{self, Asked},
    scale::manages_etcd,
};
use crate::{
    action::HEALTH,
    certificates::Part,
    cluster::{
        compile::{self, Asks},
        decision::{Decision, NewRun, Situation, checkout, new_run},
        observe::Observed,
        resolve::Resolved,
    },
    inputs::Inputs,
    playbooks::Own,
    problem::Problem,
    request,
};

/// How it is asked for.
pub static ASKED: Asked = Asked {
    operation: &RENEW,
    annotation: request::RENEW,
    length: asked::LENGTH,
    answered: |status| status.renew.as_ref(),
    place: |status| &mut status.renew,
    wrong: |_| None,
    refusal: |_, _, _| None,
    unbuilt: "its certificates are new then",
};

/// Has the say about a built cluster whose certificates somebody wants renewed, or which end.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let before = built.inputs.as_ref().unwrap_or(&resolved.inputs);
    // The playbooks are of another release, whose upgrade comes first.
    if before.kubespray != resolved.inputs.kubespray {
        return None;
    }
    let asked = ASKED.wanted(cluster, &observed.runs);
    let wanted = match &asked {
        Some(request) => Wanted {
            hosts: before.group(CONTROL_PLANE).to_vec(),
            why: "somebody asked for it".to_owned(),
            mark: request.clone(),
        },
        None => by_itself(before, resolved, observed)?,
    };
    if let Err(decision) = checkout(observed) {
        return Some(decision);
    }
    match compiled(&cluster.name_any(), resolved, before, &wanted) {
        Ok(plan) => Some(Decision::Start(Box::new(NewRun {
            request: asked,
            ..new_run(cluster, observed, &RENEW, plan)
        }))),
        Err(problem) => Some(Decision::Stall(vec![problem])),
    }
}

/// The group of the hosts that have what is renewed.
const CONTROL_PLANE: &str = "kube_control_plane";

/// What is to be renewed.
struct Wanted {
    hosts: Vec<HostName>,
    why: String,
    /// What tells this wish from others.
    mark: String,
}

/// A certificate that ends sooner than the spec wants.
struct Ending {
    host: HostName,
    what: &'static str,
    end: Timestamp,
    limit: Duration,
}

impl Ending {
    /// Whether it ended sooner than is wanted then, too.
    fn was_soon(&self, then: Timestamp) -> bool {
        is_within(self.limit, then, self.end)
    }
}

fn is_within(limit: Duration, now: Timestamp, end: Timestamp) -> bool {
    let limit = SignedDuration::try_from(std::time::Duration::from(limit));
    now.duration_until(end) < limit.unwrap_or(SignedDuration::MAX)
}

/// What is renewed because of its end. None: nothing is, or nothing is to be begun.
fn by_itself(before: &Inputs, resolved: &Resolved, observed: &Observed) -> Option<Wanted> {
    if stopped(observed).is_some() {
        return None;
    }
    let helped = last(&observed.runs).map(|(_, at)| at);
    let mut ending = ending(before, resolved, observed);
    ending.retain(|ending| helped.is_none_or(|at| !ending.was_soon(at)));
    let first = ending.iter().min_by_key(|ending| ending.end)?;
    let hosts = before.group(CONTROL_PLANE).iter();
    let ends = |host: &&HostName| ending.iter().any(|ending| ending.host == **host);
    let again = resolved.again.as_deref().unwrap_or_default();
    Some(Wanted {
        hosts: hosts.filter(ends).cloned().collect(),
        why: format!(
            "{} of {} ends on {}, and is renewed {} before",
            first.what,
            first.host,
            day(first.end),
            first.limit
        ),
        mark: format!("{} {again}", first.end),
    })
}

/// What the spec asks for, and no run brings.
pub fn beyond(before: &Inputs, resolved: &Resolved, observed: &Observed) -> Vec<String> {
    let ending = ending(before, resolved, observed);
    if ending.is_empty() {
        return Vec::new();
    }
    if let Some(run) = stopped(observed) {
        let how = match phase(run) {
            RunPhase::Cancelled => "was cancelled",
            _ => "failed",
        };
        return vec![format!(
            "certificates that are renewed before they end: run {} {how}; to renew them all the same: windlass renew",
            run.name_any()
        )];
    }
    let Some((run, at)) = last(&observed.runs) else {
        return Vec::new();
    };
    let stuck = ending.iter().filter(|ending| ending.was_soon(at));
    let told = stuck.map(|ending| {
        let Ending {
            host,
            what,
            end,
            limit,
        } = ending;
        format!(
            "{what} of {host} to be renewed {} before its end: run {run} renewed it and it ends on {} all the same; look at \
             windlass logs {run}, or write a spec.nodes.all.certificates.renew that is shorter than certificates live",
            limit,
            day(*end),
            run = run.name_any()
        )
    });
    told.collect()
}

/// The newest run that was to renew, if it did not come to its end: what becomes of it is a person's word.
fn stopped(observed: &Observed) -> Option<&Run> {
    let stopped = |run: &&Run| matches!(phase(run), RunPhase::Failed | RunPhase::Cancelled);
    newest(&observed.runs).filter(stopped)
}

/// The newest run that was to renew.
pub fn newest(runs: &[Run]) -> Option<&Run> {
    let mut newest = runs.iter().rev();
    newest.find(|run| run.spec.operation == RENEW.name)
}

/// The certificates that end sooner than the spec wants, as they were seen since the last renewal.
fn ending(before: &Inputs, resolved: &Resolved, observed: &Observed) -> Vec<Ending> {
    let looked = observed.served.at;
    let renewed = last(&observed.runs).map(|(_, at)| at);
    if looked.is_none() || renewed.is_some_and(|at| looked <= Some(at)) {
        return Vec::new();
    }
    let parts = if manages_etcd(before) {
        &[Part::ApiServer, Part::Etcd][..]
    } else {
        &[Part::ApiServer]
    };
    let hosts = before.group(CONTROL_PLANE);
    let shown = hosts.iter().flat_map(|host| {
        parts.iter().filter_map(move |part| {
            Some(Ending {
                host: host.clone(),
                what: match part {
                    Part::ApiServer => "the certificate of kube-apiserver",
                    Part::Etcd => "the certificate of etcd",
                    Part::Kubelet => return None,
                },
                end: observed.served.end(host.as_str(), *part)?,
                limit: resolved.renewal.of(host.as_str())?,
            })
        })
    });
    let own = || {
        Some(Ending {
            host: hosts.first()?.clone(),
            what: "the administrator's certificate",
            end: observed.health.as_ref()?.own_end()?,
            limit: resolved.renewal.before?,
        })
    };
    let all = shown.chain(own());
    all.filter(|ending| ending.was_soon(observed.now)).collect()
}

/// The last run that renewed, and when it ended.
pub fn last(runs: &[Run]) -> Option<(&Run, Timestamp)> {
    let renewed = runs
        .iter()
        .rev()
        .find(|run| run.spec.operation == RENEW.name && phase(run) == RunPhase::Succeeded)?;
    let ended = renewed.status.as_ref()?.finished_at.as_ref()?;
    Some((renewed, ended.0))
}

fn day(end: Timestamp) -> impl std::fmt::Display {
    end.strftime("%Y-%m-%d")
}

/// The plan that renews the certificates of these hosts, one after the other.
fn compiled(
    cluster: &str,
    resolved: &Resolved,
    before: &Inputs,
    wanted: &Wanted,
) -> Result<Plan, Problem> {
    let conduct = &resolved.renewal.conduct;
    let mut inputs = before.reached_as(&resolved.inputs);
    // Its members are restarted too.
    let restarts_etcd = manages_etcd(&inputs);
    if restarts_etcd {
        inputs.snapshots = resolved.store();
    }
    let control_plane = inputs.group(CONTROL_PLANE);
    let mut steps = compile::beginning(conduct, wanted.hosts.clone());
    if restarts_etcd {
        let members = inputs.group("etcd");
        steps.extend(compile::saving_first(conduct, &inputs, members));
        steps.push(compile::snapshot(conduct, &inputs));
    }
    for (at, host) in wanted.hosts.iter().enumerate() {
        let number = at.saturating_add(1);
        let (id, title) = (
            format!("renew/{number}"),
            format!("Renew the certificates of {host}, and restart what has read the old ones"),
        );
        let only = vec![host.clone()];
        steps.push(compile::own(
            Own::RenewCertificates,
            conduct,
            (&id, &title),
            only,
        ));
        // At once: the one that is stored may have ended, and what asks for the cluster's health uses it.
        if control_plane.first() == Some(host) {
            steps.push(compile::kubeconfig(cluster, conduct, &inputs));
        }
        let health = if number == wanted.hosts.len() {
            HEALTH.to_owned()
        } else {
            format!("health/{number}")
        };
        let words = (health.as_str(), "Wait until the control plane is healthy");
        steps.push(compile::healthy_nodes(
            conduct,
            words,
            control_plane.to_vec(),
        ));
    }
    let question = format!(
        "renew the certificates of {}",
        compile::listed(&wanted.hosts)
    );
    let asks = Asks::Person(conduct, question);
    let reason = format!(
        "{}: the certificates of {} are made anew, one host after the other, and the kubeconfig of the administrator",
        wanted.why,
        compile::listed(&wanted.hosts),
    );
    compile::finish(&RENEW, Some(&wanted.mark), &inputs, reason, asks, steps)
}
