//! What the plans of operations are made of: their steps in order, and the digest of all that they were compiled from. Pure.

use ansible::{
    inventory::{self, Directories, Inventory},
    slice::{FOUNDING, PatternError, Playbook, REPAIRS, Slice},
};
use api::{
    Duration, HostName, Target,
    cluster::Approval,
    run::{Action as RunAction, Approve, Gate, Interrupt, Plan, Retry, Step},
};

mod adopting;
mod beside;
mod component;
mod hooks;
mod joining;
mod leaving;
mod own;
mod planes;
mod recovering;
mod saving;
mod upgrading;

pub(crate) use adopting::adopting;
pub(crate) use component::{Bringing, Component, component, member_change};
pub(crate) use joining::joining;
pub(crate) use leaving::{draining, leaving, of_nodes};
pub(crate) use own::{own, snapshot};
pub(crate) use planes::{
    Endpoints, endpoints, joining_member, leniently, probe_staying, quorum, take_out, unproved,
};
pub(crate) use recovering::{Recovering, from_store, recovering, rolling_back};
pub(crate) use saving::{drilling, saving, saving_first};
pub(crate) use upgrading::{at_once, etcd_asked, looking, upgrading};

use crate::{
    action::{self, APPROVE, Action, AnsiblePlay, HEALTH, KUBECONFIG, Kubeconfig, PROBE, SANDBOX},
    cluster::resolve::{Conduct, Resolved},
    inputs::{Inputs, digest},
    operation::Operation,
    playbooks::{Checkout, Own},
    problem::{self, Problem},
    secret,
};

/// How large a plan may be, in bytes: etcd takes 1.5 MiB of one object, and a third of that is for the status of the Run.
const LARGEST: usize = 1024 * 1024;
/// How many hosts a cluster may have: as many as Kubernetes is made for.
const HOSTS: usize = 5000;
/// How many hosts a reason names.
const NAMED: usize = 5;
/// How much of a request counts, in characters.
const REQUEST: usize = 256;
/// How long a new cluster may take to become healthy: static pods restart once more after the last play.
const HEALTH_TIMEOUT: Duration = Duration::from_seconds(900);
/// How long the Python environment may take: it downloads some hundred megabytes.
const SANDBOX_TIMEOUT: Duration = Duration::from_seconds(1800);
/// How long one look at the pods may take.
const LOOK_TIMEOUT: Duration = Duration::from_seconds(120);
/// How long one look at every host may take.
const PROBE_TIMEOUT: Duration = Duration::from_seconds(600);

/// The version of Kubernetes that a plan installs, for its reason.
pub(crate) fn with_kubernetes(inputs: &Inputs) -> String {
    inputs
        .kubernetes
        .map(|version| format!(" with Kubernetes {version}"))
        .unwrap_or_default()
}

/// The steps that end with a healthy cluster, whether there was one before or not.
pub(crate) fn building(
    cluster: &str,
    resolved: &Resolved,
    conduct: &Conduct,
    checkout: &Checkout,
) -> Result<Vec<Placed>, Problem> {
    let inputs = &resolved.inputs;
    let inventory = compiled(inputs)?;
    let mut steps = beginning(conduct, inventory.hosts().cloned().collect());
    plays(&checkout.create, conduct, &inventory, &mut steps)?;
    steps.push(kubeconfig(cluster, conduct, inputs));
    steps.push(healthy(conduct, inputs));
    Ok(steps)
}

/// The step that stores the kubeconfig which the playbooks left.
pub(crate) fn kubeconfig(cluster: &str, conduct: &Conduct, inputs: &Inputs) -> Placed {
    let first = inputs.group("kube_control_plane").iter().take(1);
    let kubeconfig = Step {
        timeout: Some(Duration::from_seconds(120)),
        weight: Some(1),
        retry: retry(conduct),
        ..step(
            KUBECONFIG,
            "Store the kubeconfig",
            Action::Kubeconfig(Kubeconfig {
                secret: secret::kubeconfig_name(cluster),
                own: Some(Own::Kubeconfig.digest()),
            }),
        )
    };
    Placed {
        step: kubeconfig,
        hosts: first.cloned().collect(),
    }
}

/// The step that ends when the cluster is healthy.
pub(crate) fn healthy(conduct: &Conduct, inputs: &Inputs) -> Placed {
    let words = (HEALTH, "Wait until the cluster is healthy");
    healthy_nodes(conduct, words, inputs.members())
}

/// A step that ends when the cluster's API and etcd are healthy, and these of its nodes.
pub(crate) fn healthy_nodes(
    conduct: &Conduct,
    (id, title): (&str, &str),
    nodes: Vec<HostName>,
) -> Placed {
    let health = Step {
        timeout: Some(HEALTH_TIMEOUT),
        weight: Some(10),
        retry: retry(conduct),
        ..step(id, title, Action::Health)
    };
    Placed {
        step: health,
        hosts: nodes,
    }
}

/// The inventory of a resolved wish.
pub(crate) fn compiled(inputs: &Inputs) -> Result<Inventory, Problem> {
    // A resolved wish compiles; its mistakes were told before.
    inventory::compile(&inputs.to_inventory(Directories::default(), None, &[])).map_err(|errors| {
        errors.into_iter().next().map_or_else(
            || {
                Problem::new(
                    "ClusterNodes",
                    "",
                    "the inventory does not compile",
                    "see the log",
                )
            },
            problem::of_inventory,
        )
    })
}

/// A step that waits for a person.
fn approval(question: String) -> Placed {
    let approve = RunAction::Approve(Approve { question });
    Placed {
        step: step(APPROVE, "Wait for an approval", approve),
        hosts: Vec::new(),
    }
}

/// What comes before the first play; these hosts must answer.
pub(crate) fn beginning(conduct: &Conduct, hosts: Vec<HostName>) -> Vec<Placed> {
    let mut steps = Vec::new();
    let sandbox = Step {
        timeout: Some(SANDBOX_TIMEOUT),
        retry: retry(conduct),
        weight: Some(10),
        ..step(SANDBOX, "Make the Python environment", Action::Sandbox)
    };
    steps.push(Placed {
        step: sandbox,
        hosts: Vec::new(),
    });
    let probe = Step {
        timeout: Some(PROBE_TIMEOUT),
        retry: retry(conduct),
        weight: Some(2),
        gate: Some(gate(conduct)),
        ..step(PROBE, "Ask every host whether it answers", Action::Probe)
    };
    steps.push(Placed { step: probe, hosts });
    steps
}

/// Hosts by name, so far as a person reads.
pub(crate) fn listed(hosts: &[HostName]) -> String {
    let names: Vec<_> = hosts.iter().map(HostName::as_str).collect();
    match names.split_at_checked(NAMED) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} more hosts", first.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

/// A step for each play that has something to work on. Nothing is decided between plays, so they share one batch.
pub(crate) fn plays(
    playbook: &Playbook,
    conduct: &Conduct,
    inventory: &Inventory,
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    for slice in playbook.slices() {
        let targets = slice
            .targets(inventory)
            .map_err(|error| pattern(playbook, &slice.id, &error))?;
        if !targets.hosts.is_empty() || targets.localhost {
            steps.push(play(playbook, slice, conduct, targets.hosts));
        }
    }
    Ok(())
}

/// The step of one play.
fn play(playbook: &Playbook, slice: &Slice, conduct: &Conduct, hosts: Vec<HostName>) -> Placed {
    let play = Step {
        retry: retry(conduct),
        gate: Some(gate(conduct)),
        batch: Some(playbook.name().to_owned()),
        weight: Some(weight(&slice.id)),
        ..step(
            &slice.id,
            &slice.name,
            Action::AnsiblePlay(AnsiblePlay {
                playbook: playbook.name().to_owned(),
                play: u32::try_from(slice.index).unwrap_or(u32::MAX),
                limited: false,
                own: None,
                left: false,
            }),
        )
    };
    Placed { step: play, hosts }
}

/// Binds a play to the hosts of its step; plays that are bound so share a process with those of their row alone.
fn limit(step: &mut Step, row: &str) {
    let Some(play) = action::play_of(step) else {
        return;
    };
    step.batch = Some(format!("{}/{row}", play.playbook));
    step.action = Action::AnsiblePlay(AnsiblePlay {
        limited: true,
        ..play
    })
    .into();
}

fn pattern(playbook: &Playbook, slice: &str, error: &PatternError) -> Problem {
    Problem::new(
        "Cluster spec.kubespray.source",
        format!("{}: {slice}", playbook.name()),
        crate::chain(error),
        "use playbooks whose host patterns are made of groups and of variables that are set",
    )
}

/// The steps that build a cluster where there was none: with hosts of etcd alone, those are made ready beside the others. On a
/// cluster that lives, both at once would be one risk more.
pub(crate) fn founding(
    cluster: &str,
    resolved: &Resolved,
    checkout: &Checkout,
) -> Result<Vec<Placed>, Problem> {
    let mut steps = building(cluster, resolved, &resolved.creation.conduct, checkout)?;
    let inventory = compiled(&resolved.inputs)?;
    own::bring_authorities(resolved, &mut steps)?;
    beside::cut(&checkout.create, resolved, &inventory, &mut steps);
    Ok(steps)
}

/// Says of the plays that cannot be repeated where they were interrupted what goes before them.
fn told_repaired(placed: &mut [Placed]) {
    for placed in placed {
        let mut repairs = REPAIRS.iter();
        if let Some(repair) = repairs.find(|repair| repair.play == placed.step.id) {
            let title = &mut placed.step.title;
            title.push_str(&format!(
                "; if it is interrupted, {} is undone first",
                repair.undoes
            ));
        }
    }
}

/// Who is asked before an operation begins, and what.
pub(crate) enum Asks<'a> {
    /// Nobody: a person has asked for it, or it changes nothing.
    Nobody,
    /// A person, where the operation is to be approved.
    Person(&'a Conduct, String),
}

/// The plan of these steps, with the hooks among them: each after the one before it, unless it says after which.
pub(crate) fn finish(
    operation: &Operation,
    again: Option<&str>,
    inputs: &Inputs,
    reason: String,
    asks: Asks<'_>,
    placed: Vec<Placed>,
) -> Result<Plan, Problem> {
    let mut placed = placed;
    if let Asks::Person(conduct, question) = asks
        && conduct.approval == Approval::Manual
    {
        placed.insert(0, approval(question));
    }
    if inputs.operation_variables.contains_key(FOUNDING) {
        told_repaired(&mut placed);
    }
    let order = inputs.hosts.iter().map(|host| host.name.parse::<Target>());
    let order: Vec<Target> = order.flatten().collect();
    let forked = placed
        .iter()
        .any(|placed| !placed.step.depends_on.is_empty());
    let (placed, standing) = hooks::woven(operation, inputs, placed)?;
    let inputs = &Inputs {
        hooks: standing,
        ..inputs.clone()
    };
    let (steps, lists): (Vec<_>, Vec<Vec<Target>>) = placed
        .into_iter()
        .map(|placed| (placed.step, placed.hosts.iter().map(Target::from).collect()))
        .unzip();
    let (groups, made_of) = workflow::plan::grouped(&order, &lists);
    let steps = steps.into_iter().zip(made_of);
    let steps = steps.map(|(step, groups)| Step { groups, ..step });
    let unwritable = |error: serde_json::Error| {
        Problem::new(
            "Cluster spec",
            "",
            format!("it cannot be written as JSON: {error}"),
            "use plain values",
        )
    };
    let mut plan = Plan {
        digest: String::new(),
        reason: Some(reason),
        request: again.map(|again| again.chars().take(REQUEST).collect()),
        wish: None,
        groups,
        // Elsewhere plays share hosts, and the state of one cluster.
        parallelism: forked.then_some(beside::PARALLELISM),
        steps: steps.collect(),
        inputs: inputs.to_map().map_err(unwritable)?,
    };
    plan.digest = digest(operation.name, &plan).map_err(unwritable)?;
    let size = serde_json::to_vec(&plan).map_err(unwritable)?.len();
    if order.len() > HOSTS {
        return Err(too_many(order.len()));
    }
    if size > LARGEST {
        return Err(too_large(size, order.len()));
    }
    Ok(plan)
}

fn too_many(hosts: usize) -> Problem {
    Problem::new(
        "ClusterNodes",
        format!("{hosts} hosts"),
        format!("a cluster has at most {HOSTS}"),
        "make it two clusters",
    )
}

fn too_large(size: usize, hosts: usize) -> Problem {
    Problem::new(
        "ClusterNodes",
        format!("{hosts} hosts"),
        format!(
            "their plan takes {} KiB: a Run has room for {}, and needs the rest of what the API stores of one object for its \
             history",
            size / 1024,
            LARGEST / 1024
        ),
        "give the hosts shorter names and fewer variables of their own (what many share belongs into \
         Cluster spec.nodes.all.deploy.extraVars), shorten the texts of hooks, or make it two clusters",
    )
}

/// A step, and the hosts that it works on.
pub(crate) struct Placed {
    pub(crate) step: Step,
    pub(crate) hosts: Vec<HostName>,
}

fn step(id: &str, title: &str, action: impl Into<RunAction>) -> Step {
    let title = api::text::plain(title, 256);
    Step {
        id: id.to_owned(),
        title,
        depends_on: Vec::new(),
        action: action.into(),
        groups: Vec::new(),
        timeout: None,
        retry: None,
        gate: None,
        on_failure: None,
        interrupt: Interrupt::AtTask,
        batch: None,
        weight: None,
    }
}

pub(crate) const fn gate(conduct: &Conduct) -> Gate {
    Gate {
        unreachable: conduct.unreachable,
        on_breach: conduct.on_breach,
    }
}

fn retry(conduct: &Conduct) -> Option<Retry> {
    (conduct.max_retries > 0).then_some(Retry {
        limit: conduct.max_retries,
        back_off: None,
    })
}

/// How long a play takes, relative to the others, for percent and ETA. Seconds of kubespray 2.30.0 on three small hosts;
/// what is not listed is short.
fn weight(id: &str) -> u32 {
    const MEASURED: [(&str, u32); 7] = [
        ("prepare", 150),
        ("etcd/install", 65),
        ("control-plane", 60),
        ("network", 30),
        ("kubelet", 15),
        ("apps", 17),
        ("resolv", 24),
    ];
    MEASURED
        .iter()
        .find(|(part, _)| id.contains(part))
        .map_or(3, |(_, seconds)| *seconds)
}
