//! Toolbox: what people do to nodes and certificates of a built cluster by hand, as runs: cordon, drain, let in again, restart a part,
//! look at certificates, make a token for a node that joins. Pure.
//!
//! It is asked for by the annotation [`request::TOOLBOX`], each value of which is [answered](super::asked) once. A value is words: the verb, what
//! it takes, the hosts with commas between them, and last what tells it from an earlier one.

use std::str::FromStr;

use api::{Duration, HostName, Run, node::Role, run::Plan};
use kube::ResourceExt;
use serde_json::json;

use super::{TOOLBOX, asked::Asked, scale::manages_etcd};
use crate::{
    action::{Action, BUDGETS, DRAIN, HEALTH, Turn},
    cluster::{
        built::Built,
        compile::{self, Asks},
        decision::{Decision, NewRun, Situation, checkout, new_run},
        resolve::Resolved,
    },
    inputs::Inputs,
    playbooks::Own,
    problem::Problem,
    request,
};

/// How much of a request is remembered.
const LENGTH: usize = 512;
/// How long a token may live.
const TOKEN: (u64, u64) = (600, 86_400);

/// How it is asked for.
pub static ASKED: Asked = Asked {
    operation: &TOOLBOX,
    annotation: request::TOOLBOX,
    length: LENGTH,
    answered: |status| status.toolbox.as_ref(),
    place: |status| &mut status.toolbox,
    wrong,
    refusal: |_, request, built| refusal(request, built),
    unbuilt: "it has no nodes yet",
};

/// What is asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// What is done.
    pub verb: Verb,
    /// On which hosts. Empty where the verb is of the cluster.
    pub hosts: Vec<HostName>,
}

/// What is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verb {
    /// No new pods come to the nodes.
    Cordon,
    /// Pods come to the nodes again.
    Uncordon,
    /// The nodes are cordoned, and their pods go elsewhere.
    Drain {
        /// Pods are deleted, whatever their budgets say.
        forced: bool,
    },
    /// A part of the hosts is restarted, host by host.
    Restart(Part),
    /// A token is made by which a node may join.
    Token {
        /// How long it lives.
        expires: Duration,
    },
    /// The certificates on the hosts are looked at.
    Certificates,
}

/// What of a host can be restarted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// The kubelet.
    Kubelet,
    /// What runs containers.
    ContainerEngine,
    /// The member of etcd.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controller manager.
    ControllerManager,
    /// The scheduler.
    Scheduler,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Kubelet,
        Self::ContainerEngine,
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
    ];

    /// How people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::ContainerEngine => "container-engine",
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }

    /// The roles of the hosts that have it.
    const fn roles(self) -> &'static [Role] {
        match self {
            Self::Kubelet | Self::ContainerEngine => &[Role::ControlPlane, Role::Worker],
            Self::Etcd => &[Role::Etcd],
            Self::ApiServer | Self::ControllerManager | Self::Scheduler => &[Role::ControlPlane],
        }
    }
}

impl Verb {
    /// The verb as a request begins with it.
    const fn name(self) -> &'static str {
        match self {
            Self::Cordon => "cordon",
            Self::Uncordon => "uncordon",
            Self::Drain { forced: false } => "drain",
            Self::Drain { forced: true } => "drain-forced",
            Self::Restart(_) => "restart",
            Self::Token { .. } => "token",
            Self::Certificates => "certificates",
        }
    }

    /// The roles of the hosts that it can be done to.
    const fn roles(self) -> &'static [Role] {
        match self {
            Self::Restart(part) => part.roles(),
            Self::Certificates => &[Role::ControlPlane, Role::Etcd, Role::Worker],
            _ => &[Role::ControlPlane, Role::Worker],
        }
    }
}

impl Request {
    /// The value of the annotation; `mark` tells it from earlier ones.
    pub fn text(&self, mark: &str) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(HostName::as_str).collect();
        let mut words = vec![self.verb.name().to_owned()];
        match self.verb {
            Verb::Restart(part) => words.push(part.name().to_owned()),
            Verb::Token { expires } => words.push(expires.to_string()),
            _ => {}
        }
        if !hosts.is_empty() {
            words.push(hosts.join(","));
        }
        words.push(mark.to_owned());
        words.join(" ")
    }
}

impl FromStr for Request {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = |rule: &str, remedy: &str| {
            let shown = api::text::plain(text, 128);
            Problem::new(
                format!("Cluster metadata.annotations {}", request::TOOLBOX),
                shown,
                rule,
                remedy,
            )
        };
        if text.chars().count() >= LENGTH {
            return Err(wrong(
                "a request has less than 512 characters",
                "name fewer hosts at a time",
            ));
        }
        let mut words = text.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let verb = match verb {
            "cordon" => Verb::Cordon,
            "uncordon" => Verb::Uncordon,
            "drain" => Verb::Drain { forced: false },
            "drain-forced" => Verb::Drain { forced: true },
            "certificates" => Verb::Certificates,
            "restart" => {
                let named = words.next().unwrap_or_default();
                let part = Part::ALL.into_iter().find(|part| part.name() == named);
                let names = Part::ALL.map(Part::name).join(", ");
                Verb::Restart(part.ok_or_else(|| {
                    wrong(
                        &format!("what is restarted is one of {names}"),
                        "name one of these: windlass node restart COMPONENT NODE",
                    )
                })?)
            }
            "token" => {
                let expires = words.next().and_then(|word| word.parse::<Duration>().ok());
                let (least, most) = TOKEN;
                let expires = expires.filter(|expires| (least..=most).contains(&expires.seconds()));
                Verb::Token {
                    expires: expires.ok_or_else(|| {
                        wrong(
                            "a token lives 10m at least and 24h at most",
                            "write how long, for example 1h: windlass cluster token --expires 1h",
                        )
                    })?,
                }
            }
            _ => {
                return Err(wrong(
                    "its first word is a verb: cordon, uncordon, drain, drain-forced, restart, token or certificates",
                    "use windlass node or windlass cluster, which write it",
                ));
            }
        };
        let hosts = match verb {
            Verb::Token { .. } => Vec::new(),
            _ => words
                .next()
                .unwrap_or_default()
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::parse)
                .collect::<Result<Vec<HostName>, _>>()
                .map_err(|error| {
                    wrong(&error.to_string(), "name hosts, with commas between them")
                })?,
        };
        if hosts.is_empty() && !matches!(verb, Verb::Token { .. }) {
            return Err(wrong(
                "it names the hosts that are meant, with commas between them",
                "name at least one, and last a word that tells it from an earlier request",
            ));
        }
        let mut unique = Vec::new();
        for host in hosts {
            if !unique.contains(&host) {
                unique.push(host);
            }
        }
        Ok(Self {
            verb,
            hosts: unique,
        })
    }
}

/// The hosts whose nodes a run lets pods come to again.
pub fn let_in(run: &Run) -> Vec<HostName> {
    let asked = run.annotations().get(request::TOOLBOX);
    let asked = asked.and_then(|asked| asked.parse::<Request>().ok());
    let lets_in = asked.filter(|request| request.verb == Verb::Uncordon);
    lets_in.map(|request| request.hosts).unwrap_or_default()
}

fn wrong(request: &str) -> Option<String> {
    let read: Result<Request, Problem> = request.parse();
    read.err().map(|problem| problem.to_string())
}

/// Why a request is not carried out.
fn refusal(request: &str, built: &Built) -> Option<String> {
    let request: Request = match request.parse() {
        Ok(request) => request,
        Err(problem) => return Some(problem.to_string()),
    };
    let inputs = built.inputs.as_ref()?;
    of_cluster(&request, inputs).err()
}

/// Whether the hosts of a request are such that it can be done to them.
fn of_cluster(request: &Request, inputs: &Inputs) -> Result<(), String> {
    let roles = request.verb.roles();
    if request.verb == Verb::Restart(Part::Etcd) && manages_etcd(inputs) {
        return Err(
            "kubeadm runs this etcd (etcd_deployment_type is kubeadm), in pods of the kubelet: windlass node restart kubelet NODE"
                .to_owned(),
        );
    }
    let fits = |name: &HostName| {
        let host = inputs.host(name);
        host.is_some_and(|host| roles.iter().any(|role| host.has(*role)))
    };
    let Some(unfit) = request.hosts.iter().find(|name| !fits(name)) else {
        return Ok(());
    };
    let names: Vec<_> = inputs
        .hosts
        .iter()
        .filter_map(|host| host.name.parse().ok())
        .filter(fits)
        .collect();
    let verb = match request.verb {
        Verb::Restart(part) => format!("restart {}", part.name()),
        verb => verb.name().to_owned(),
    };
    Err(format!(
        "{verb} can be done to {}, and {unfit} is none of these",
        compile::listed(&names)
    ))
}

/// Has the say about a built cluster of which somebody wants that.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let asked = ASKED.wanted(cluster, &observed.runs)?;
    let request: Request = asked.parse().ok()?;
    let before = built.inputs.as_ref().unwrap_or(&resolved.inputs);
    of_cluster(&request, before).ok()?;
    if let Err(decision) = checkout(observed) {
        return Some(decision);
    }
    Some(match compiled(&request, &asked, resolved, before) {
        Ok(plan) => Decision::Start(Box::new(NewRun {
            request: Some(asked),
            ..new_run(cluster, observed, &TOOLBOX, plan)
        })),
        Err(problem) => Decision::Stall(vec![problem]),
    })
}

/// The plan that carries a request out.
fn compiled(
    request: &Request,
    asked: &str,
    resolved: &Resolved,
    before: &Inputs,
) -> Result<Plan, Problem> {
    let conduct = &resolved.removal.conduct;
    let Request { verb, hosts } = request;
    let mut inputs = before.reached_as(&resolved.inputs);
    inputs.operation_variables.clear();
    let names = compile::listed(hosts);
    let of_nodes = |id: &str, title: &str, action: Action| {
        compile::of_nodes(conduct, id, title, action, hosts)
    };
    let (what, steps) = match verb {
        Verb::Cordon => (
            format!("no new pods come to {names}"),
            vec![of_nodes(
                "nodes/cordon",
                "Cordon the nodes",
                Action::Cordon { lets_in: false },
            )],
        ),
        Verb::Uncordon => (
            format!("pods come to {names} again"),
            vec![of_nodes(
                "nodes/uncordon",
                "Let pods come to the nodes again",
                Action::Cordon { lets_in: true },
            )],
        ),
        Verb::Drain { forced } => {
            let forced = if *forced { hosts.clone() } else { Vec::new() };
            let budgets = Action::Budgets {
                forced: forced.clone(),
            };
            let mut drain = of_nodes(
                DRAIN,
                "Have the pods go elsewhere",
                Action::Drain { forced },
            );
            drain.step.timeout = Some(resolved.removal.drain_timeout);
            drain.step.weight = Some(60);
            (
                format!("{names} are cordoned and stay so, and their pods go elsewhere"),
                vec![
                    of_nodes(BUDGETS, "Ask which pods cannot go elsewhere", budgets),
                    drain,
                ],
            )
        }
        Verb::Restart(part) => {
            inputs
                .operation_variables
                .insert("windlass_restart_part".to_owned(), json!(part.name()));
            (
                format!("{} of {names} is restarted, host by host", part.name()),
                restarting(*part, hosts, resolved, &inputs)?,
            )
        }
        Verb::Token { expires } => (
            format!("a node may join by a token for {expires}"),
            vec![compile::of_nodes(
                conduct,
                "token/make",
                "Make a token by which a node may join",
                Action::Token { expires: *expires },
                &[],
            )],
        ),
        Verb::Certificates => {
            let mut steps: Vec<_> = compile::beginning(conduct, hosts.clone())
                .into_iter()
                .skip(1)
                .collect();
            steps.push(of_nodes(
                "certificates/look",
                "Look at the certificates on the hosts",
                Action::Certificates,
            ));
            (format!("the certificates on {names} are looked at"), steps)
        }
    };
    let reason = format!("somebody asked for it: {what}");
    compile::finish(&TOOLBOX, Some(asked), &inputs, reason, Asks::Nobody, steps)
}

/// Host by host; etcd itself is asked before and after what may stop one of its members.
fn restarting(
    part: Part,
    hosts: &[HostName],
    resolved: &Resolved,
    inputs: &Inputs,
) -> Result<Vec<compile::Placed>, Problem> {
    let conduct = &resolved.removal.conduct;
    let mut steps = compile::beginning(conduct, hosts.to_vec());
    for (number, host) in (1_usize..).zip(hosts) {
        let id = format!("restart/{number}");
        let title = format!("Restart {} on {host}", part.name());
        let restart = compile::own(Own::Restart, conduct, (&id, &title), vec![host.clone()]);
        let members = inputs.group("etcd");
        // etcd may be one of its engine's containers.
        let stops_etcd = match part {
            Part::Etcd => true,
            // What kubeadm runs of etcd, the hosts do not tell of.
            Part::ContainerEngine => members.contains(host) && !manages_etcd(inputs),
            _ => false,
        };
        if !stops_etcd {
            steps.push(restart);
            continue;
        }
        let others = members.iter().filter(|other| *other != host);
        let all: Vec<_> = others.chain([host]).cloned().collect();
        let change = |turn| compile::member_change(inputs, host, turn);
        let before = format!("etcd/before-{number}");
        steps.push(compile::quorum(
            conduct,
            &before,
            &change(Turn::Restarts)?,
            &all,
        ));
        steps.push(restart);
        let after = format!("etcd/after-{number}");
        steps.push(compile::quorum(
            conduct,
            &after,
            &change(Turn::Restarted)?,
            &all,
        ));
    }
    let mut nodes = inputs.members();
    if part != Part::Etcd {
        nodes.retain(|node| hosts.contains(node));
    }
    let words = (HEALTH, "Wait until the cluster is healthy");
    steps.push(compile::healthy_nodes(conduct, words, nodes));
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_as_it_was_written() {
        let hosts = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        for (verb, names) in [
            (Verb::Cordon, &["a"][..]),
            (Verb::Uncordon, &["a", "b"]),
            (Verb::Drain { forced: false }, &["a"]),
            (Verb::Drain { forced: true }, &["a"]),
            (Verb::Restart(Part::ApiServer), &["a", "b"]),
            (Verb::Certificates, &["a"]),
            (
                Verb::Token {
                    expires: Duration::from_seconds(5400),
                },
                &[],
            ),
        ] {
            let request = Request {
                verb,
                hosts: hosts(names),
            };
            let text = request.text("2026-01-01T00:00:00Z");
            assert_eq!(text.parse::<Request>().unwrap(), request, "{text}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_what_would_be() {
        let long = format!("cordon {}", "a,".repeat(300));
        for (text, words) in [
            ("", "its first word is a verb"),
            ("reboot a 1", "its first word is a verb"),
            ("cordon", "names the hosts"),
            ("cordon A_b 1", "name hosts, with commas"),
            (
                "restart kubelets a 1",
                "one of kubelet, container-engine, etcd",
            ),
            ("token 1m 1", "10m at least and 24h at most"),
            ("token soon", "10m at least and 24h at most"),
            (&long, "less than 512 characters"),
        ] {
            let problem = text.parse::<Request>().unwrap_err().to_string();
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }
}
