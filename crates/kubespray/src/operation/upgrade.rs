//! Upgrade: brings a cluster that is built to the wished Kubernetes version, or to the next kubespray release, node by node. Pure.
//!
//! One run makes one hop: to the newest version of the next minor that the playbooks install, or to the wished version. What it
//! leaves is what the next hop is compiled from, which so follows by itself.
//!
//! Hosts that are declared meanwhile join after it, a cluster of one version. Hosts that are to leave go before it: what is
//! removed need not be upgraded, and one that is broken cannot be.

use ansible::catalogue;
use api::{
    Cluster, HostName, KubernetesVersion, KubesprayVersion, Run,
    run::{Plan, RunPhase, StepPhase},
};
use kube::ResourceExt;
use runs::phase;
use serde_json::{Value, json};

use super::{Fails, UPGRADE, component};
use crate::{
    action::{self, Left, QUORUM, SNAPSHOT},
    cluster::{
        built::{failed, immutable::Immutable},
        compile::{self, Asks},
        decision::{Decision, Situation, checkout, once},
        resolve::{
            Resolved, Upgrade,
            policy::{self, Policy},
        },
    },
    inputs::Inputs,
    playbooks::Checkout,
    problem::Problem,
};

/// Has the say about a built cluster that is to have another version of Kubernetes, or another kubespray release.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let before = built.inputs.as_ref()?;
    if !is_asked_for(situation.cluster, before, &resolved.inputs) {
        return None;
    }
    // Another release is given the variables that the spec has now.
    if before.kubespray != resolved.inputs.kubespray && !built.immutable.is_empty() {
        let kept = built.immutable.iter().map(Immutable::problem);
        return Some(Decision::Stall(kept.collect()));
    }
    if failed(situation.observed, Fails::HoldsUp).is_some() {
        return None;
    }
    let checkout = match checkout(situation.observed) {
        Ok(checkout) => checkout,
        Err(decision) => return Some(decision),
    };
    let runs = &situation.observed.runs;
    let left = (begun(runs), component::left(runs));
    match compiled(situation.cluster, before, resolved, checkout, left) {
        Ok((plan, about)) => once(situation, built, &UPGRADE, plan, &about),
        Err(problem) => Some(Decision::Stall(vec![problem])),
    }
}

/// Whether the wish moves a cluster with these inputs. A release that is the newest one by default may change with Windlass:
/// that must not become an upgrade by surprise.
fn is_asked_for(cluster: &Cluster, before: &Inputs, wanted: &Inputs) -> bool {
    if before.kubespray != wanted.kubespray {
        return release_is_asked_for(cluster);
    }
    let versions = before.kubernetes.zip(wanted.kubernetes);
    versions.is_some_and(|(before, wanted)| before != wanted)
}

/// Whether a person wrote the release, or a policy that has a say about it.
pub fn release_is_asked_for(cluster: &Cluster) -> bool {
    let kubespray = cluster.spec.kubespray.as_ref();
    let written = kubespray.is_some_and(|kubespray| kubespray.version.is_some());
    written || policy::release(cluster).is_some()
}

/// One hop on the way to the wish.
struct Hop {
    /// The version that the cluster has.
    from: KubernetesVersion,
    /// The version that it has after it.
    to: KubernetesVersion,
    /// How many hops there are with it.
    of: usize,
}

/// The next hop.
fn hop(before: &Inputs, resolved: &Resolved, checkout: &Checkout) -> Result<Hop, Problem> {
    let wanted = resolved.inputs.kubernetes;
    let wanted = wanted.unwrap_or(checkout.installable.default);
    let from = before.kubernetes.unwrap_or(wanted);
    // Refused before with its remedy, unless what is built is not what the status says.
    let hops = catalogue::hops(wanted, from, &checkout.installable).map_err(|error| {
        Problem::new(
            "Cluster spec.kubernetesVersion",
            wanted,
            error.to_string(),
            format!("write {from}, or a version that these playbooks lead to"),
        )
    })?;
    Ok(Hop {
        from,
        to: hops.first().copied().unwrap_or(from),
        of: hops.len(),
    })
}

/// The plan of the next hop, and what it is about.
fn compiled(
    cluster: &Cluster,
    before: &Inputs,
    resolved: &Resolved,
    checkout: &Checkout,
    (after, component_left): (Option<Begun>, Option<Left>),
) -> Result<(Plan, Vec<String>), Problem> {
    let playbook = checkout
        .upgrade
        .as_ref()
        .ok_or_else(|| no_playbook(resolved))?;
    let upgrade = &resolved.upgrade;
    let hop = hop(before, resolved, checkout)?;
    let inputs = Inputs {
        snapshots: resolved.store(),
        ..moved(before, hop.to, resolved)
    };
    let inventory = compile::compiled(&inputs)?;
    let conduct = &upgrade.conduct;
    let mut steps = compile::beginning(conduct, inventory.hosts().cloned().collect());
    let after = after.map(|begun| Left {
        run: begun.run,
        halfway: begun.halfway,
    });
    let after = after.or(component_left);
    let looking = compile::looking(upgrade, &inputs, drains(&inputs), after);
    steps.extend(looking);
    steps.extend(compile::etcd_asked(QUORUM, &upgrade.conduct, &inputs)?);
    let members = inputs.group("etcd");
    steps.extend(compile::saving_first(conduct, &inputs, members));
    compile::upgrading(playbook, upgrade, &inputs, &inventory, &mut steps)?;
    steps.push(compile::kubeconfig(&cluster.name_any(), conduct, &inputs));
    steps.push(compile::healthy(conduct, &inputs));
    let moves = moves(before, &hop, resolved);
    let asks = Asks::Person(conduct, format!("upgrade: {moves}"));
    let why = why(cluster, resolved);
    let reason = format!("{why}: {moves}; {}", order(&inputs, upgrade));
    let again = resolved.again.as_deref();
    let plan = compile::finish(&UPGRADE, again, &inputs, reason, asks, steps)?;
    let about = vec![hop.to.to_string(), inputs.kubespray.to_string()];
    Ok((plan, about))
}

/// Whose wish it is.
fn why(cluster: &Cluster, resolved: &Resolved) -> &'static str {
    let spec = &cluster.spec;
    let release = spec.kubespray.as_ref();
    let release = release.and_then(|kubespray| kubespray.version);
    let wanted = &resolved.inputs;
    let beyond = wanted.kubernetes > spec.kubernetes_version || Some(wanted.kubespray) > release;
    if beyond && Policy::of(cluster).is_some() {
        "spec.nodes.all.upgrade leads there"
    } else {
        "the spec asks for it"
    }
}

/// From where to where the hop leads, for people.
fn moves(before: &Inputs, hop: &Hop, resolved: &Resolved) -> String {
    let wanted = &resolved.inputs;
    let mut moves = Vec::new();
    if hop.from != hop.to {
        let mut text = format!("Kubernetes {} to {}", hop.from, hop.to);
        if let Some(end) = wanted.kubernetes.filter(|_| hop.of > 1) {
            text.push_str(&format!(", hop 1 of {} on the way to {end}", hop.of));
        }
        moves.push(text);
    }
    moves.push(if before.kubespray == wanted.kubespray {
        format!("by kubespray {}", wanted.kubespray)
    } else {
        format!("kubespray {} to {}", before.kubespray, wanted.kubespray)
    });
    moves.join(", ")
}

/// In which order its hosts go, for people.
fn order(inputs: &Inputs, upgrade: &Upgrade) -> String {
    let planes = inputs.group("kube_control_plane");
    let (_, workers) = compile::at_once(upgrade, inputs);
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    let mut text = format!(
        "{} control plane{} one by one",
        planes.len(),
        plural(planes.len())
    );
    if workers > 0 {
        text.push_str(&format!(
            ", then {workers} worker{}, at most {} at a time",
            plural(workers),
            upgrade.max_unavailable
        ));
    }
    if upgrade.canary > 0 && upgrade.canary < workers {
        text.push_str(&format!(
            ", {} of them before a person is asked",
            upgrade.canary
        ));
    }
    text
}

/// What the cluster was built with, and the versions moved. How hosts are reached is as the spec says now. Another release is given
/// the variables that the spec has now: those that it was built with may be none of its own any more.
fn moved(before: &Inputs, to: KubernetesVersion, resolved: &Resolved) -> Inputs {
    let wanted = &resolved.inputs;
    let mut inputs = before.reached_as(wanted);
    inputs.kubernetes = Some(to);
    if before.kubespray != wanted.kubespray {
        inputs.kubespray = wanted.kubespray;
        inputs.variables.clone_from(&wanted.variables);
        inputs
            .extra_vars_secret_ref
            .clone_from(&wanted.extra_vars_secret_ref);
        inputs
            .operation_secret_ref
            .clone_from(&wanted.operation_secret_ref);
    }
    // Each host is given what the Secrets hold now.
    let names = inputs.variable_secrets().into_iter();
    inputs.revisions = names
        .filter_map(|name| {
            let revision = wanted
                .revisions
                .get(&name)
                .or(before.revisions.get(&name))?;
            Some((name, revision.clone()))
        })
        .collect();
    let variables = variables(resolved, &inputs);
    inputs.operation_variables.extend(variables);
    inputs
}

/// What the playbooks are told beside that. A batch is a step of its own, so that nothing is left to cut for them, but they also roll the
/// network plugin out by that number; nobody is there to answer a question; and a node that cannot be drained takes pods again.
fn variables(
    resolved: &Resolved,
    inputs: &Inputs,
) -> impl Iterator<Item = (String, Value)> + use<> {
    let (at_once, _) = compile::at_once(&resolved.upgrade, inputs);
    let timeout = resolved.upgrade.drain_timeout;
    let timeout =
        timeout.map(|timeout| ("drain_timeout", json!(format!("{}s", timeout.seconds()))));
    [
        ("serial", json!(at_once)),
        ("upgrade_node_confirm", json!(false)),
        ("upgrade_node_post_upgrade_confirm", json!(false)),
        ("upgrade_node_uncordon_after_drain_failure", json!(true)),
    ]
    .into_iter()
    .chain(timeout)
    .map(|(name, value)| (name.to_owned(), value))
}

/// Whether nodes are drained, as far as can be seen.
fn drains(inputs: &Inputs) -> bool {
    inputs.variables.get("drain_nodes") != Some(&Value::Bool(false))
}

fn no_playbook(resolved: &Resolved) -> Problem {
    Problem::new(
        "Cluster spec.kubespray.source",
        &resolved.inputs.source.origin,
        "its playbooks have no upgrade-cluster.yml, and a cluster cannot be upgraded without it",
        "name playbooks that have it, as kubespray's do, or take the version back",
    )
}

/// An upgrade that was begun and did not come to its end: hosts may run either version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Begun {
    /// The name of its run.
    pub run: String,
    /// How the run ended.
    pub phase: RunPhase,
    /// The Kubernetes version that it brings.
    pub kubernetes: Option<KubernetesVersion>,
    /// The kubespray release that it brings.
    pub kubespray: KubesprayVersion,
    /// The hosts in the middle of it, whose nodes may still be cordoned.
    pub halfway: Vec<HostName>,
    /// Those of them that runs before it have left.
    pub earlier: Vec<HostName>,
}

impl Begun {
    /// How it comes to its end.
    pub fn remedy(&self) -> String {
        match self.phase {
            RunPhase::Failed => format!("then: windlass retry {}", self.run),
            _ => format!(
                "then ask for a new start with the annotation {}",
                crate::request::START_AGAIN
            ),
        }
    }
}

/// The upgrade that was begun and has ended before its end, if there is one. One that is at work is not: it comes to its end. One that
/// failed before it touched a host leaves what another one had begun before it.
pub fn begun(runs: &[Run]) -> Option<Begun> {
    begun_run(runs.iter()).map(|(_, begun)| begun)
}

/// The same, with its run.
pub fn begun_run<'a>(runs: impl DoubleEndedIterator<Item = &'a Run>) -> Option<(&'a Run, Begun)> {
    let upgrades = runs.rev();
    let upgrades = upgrades.filter(|run| run.spec.operation == UPGRADE.name);
    let ended =
        upgrades.take_while(|run| matches!(phase(run), RunPhase::Failed | RunPhase::Cancelled));
    let mut left = ended.filter_map(|run| Some((run, left_by(run)?)));
    let (run, mut begun) = left.next()?;
    begun.earlier = left.flat_map(|(_, earlier)| earlier.halfway).collect();
    begun.earlier.retain(|host| !begun.halfway.contains(host));
    begun.earlier.sort_unstable();
    begun.earlier.dedup();
    begun.halfway.extend(begun.earlier.iter().cloned());
    begun.halfway.sort_unstable();
    begun.halfway.dedup();
    Some((run, begun))
}

/// What an upgrade has left that was ended before its end. None: it touched nothing.
fn left_by(run: &Run) -> Option<Begun> {
    let phase = phase(run);
    let status = run.status.as_ref()?;
    let changes = |id: &str| id != SNAPSHOT && !BEFORE.iter().any(|part| id.starts_with(part));
    let begins = |id: &str| {
        let mut steps = run.spec.plan.steps.iter();
        let step = steps.find(|step| step.id == id);
        step.is_some_and(|step| action::play_of(step).is_some() && changes(id))
    };
    let at = |wanted: fn(StepPhase) -> bool| {
        let steps = status.steps.iter();
        steps.filter(move |step| wanted(step.phase) && begins(&step.id))
    };
    at(|phase| phase != StepPhase::Pending).next()?;
    let halfway = at(|phase| !matches!(phase, StepPhase::Pending | StepPhase::Succeeded));
    let hosts = halfway
        .filter_map(|step| run.spec.plan.steps.iter().find(|known| known.id == step.id))
        .filter(|step| action::play_of(step).is_some_and(|play| play.limited && play.own.is_none()))
        .flat_map(|step| action::hosts_of(&run.spec.plan, step));
    let inputs = Inputs::from_map(&run.spec.plan.inputs).ok()?;
    Some(Begun {
        run: run.name_any(),
        phase,
        kubernetes: inputs.kubernetes,
        kubespray: inputs.kubespray,
        halfway: hosts.collect(),
        earlier: Vec::new(),
    })
}

/// How the ids of plays begin that change no version of what runs.
const BEFORE: [&str; 3] = ["preamble/", "bootstrap/", "prepare/"];
