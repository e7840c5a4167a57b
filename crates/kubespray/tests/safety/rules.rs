//! What must hold, whatever was wished.
//!
//! What an operation says of itself proves nothing here: what is allowed to one is allowed by its name, with the reason, and one that
//! is not known is told to say it.

use api::{Run, maintenance::Confine, run::Plan};
use kube::ResourceExt;
use kubespray::{
    cluster::decision::{NewRun, Planned},
    hooks,
    inputs::Inputs,
    playbooks::Playbooks,
};

use crate::{
    effect::effect,
    world::{Reality, World},
};

mod batches;
mod etcd;
mod members;
mod order;
mod resting;
mod steps;
mod unbuilt;

pub use members::stops;
pub use resting::of_rest;

/// A run that is about to start.
pub struct Starting<'a> {
    pub world: &'a World,
    pub new: &'a NewRun,
    pub run: &'a Run,
    pub inputs: Inputs,
    /// What the cluster is made of once it succeeded.
    pub left: Inputs,
}

impl Starting<'_> {
    pub fn name(&self) -> &'static str {
        self.new.operation.name
    }

    pub fn plan(&self) -> &Plan {
        &self.new.plan
    }

    pub fn before(&self) -> &Reality {
        &self.world.reality
    }
}

/// Of a run that is about to start.
pub fn of_start(world: &World, planned: &Planned, new: &NewRun, run: &Run) {
    let inputs = Inputs::from_map(&new.plan.inputs).unwrap();
    let starting = Starting {
        world,
        new,
        run,
        left: inputs.clone().left(),
        inputs,
    };
    let mut runs = world.observed.runs.iter();
    let running = runs.find(|run| runs::is_active(runs::phase(run)));
    assert!(
        running.is_none(),
        "{} starts beside {:?}",
        new.name,
        running.map(ResourceExt::name_any)
    );
    assert!(!new.plan.steps.is_empty(), "a plan of nothing");
    match new.operation.name {
        "Create" => unbuilt::founds(&starting),
        "Adopt" => unbuilt::takes_over(&starting),
        "Reset" => unbuilt::takes_down(&starting),
        name => {
            assert!(
                new.operation.of_built,
                "operation {name} is of clusters that are not built: say in `rules` what holds of it instead of all that follows"
            );
            of_built(&starting);
        }
    }
    steps::one_plane_at_a_time(&starting);
    etcd::is_asked(&starting);
    batches::batches(&starting);
    windows(&starting);
    hooks_may_name(&starting);
    let itself = |pending: &&api::cluster::Pending| {
        pending.operation == new.operation.name && pending.reason != "BehindRun"
    };
    if let Some(pending) = planned.pending.iter().find(itself) {
        assert!(
            pending.reason == "Refused" || pending.reason == "RunCancelled",
            "{} starts and waits: {pending:?}",
            new.name
        );
    }
}

/// Of a cluster that stands.
fn of_built(starting: &Starting<'_>) {
    let before = starting.before();
    order::follows(starting);
    version_follows(before, &starting.inputs);
    only_wished(starting);
    let all = starting.plan().steps.len();
    for steps in 0..=stops(starting.world, starting.run).unwrap_or(all) {
        let after = effect(before, starting.run, steps);
        if starting.name() == "Recover" {
            members::recovers(starting, &after);
        } else {
            members::members(before, &after, &starting.world.dead);
        }
    }
}

/// People put hooks where a plan shows a step.
fn hooks_may_name(starting: &Starting<'_>) {
    let Starting { world, new, .. } = starting;
    let Playbooks::Ready(checkout) = &world.observed.playbooks else {
        return;
    };
    // What leaves the cluster alone has no hooks, and what stands before all others has none before it.
    if new.operation.quiet {
        return;
    }
    let mut steps = new.plan.steps.iter().map(|step| step.id.as_str());
    let refused = steps.find(|step| {
        !["approve/plan", "prepare/sandbox"].contains(step)
            && !step.starts_with("hook/")
            && !hooks::may_name(new.operation, step, checkout)
    });
    assert_eq!(refused, None, "{}: no hook may stand there", new.name);
}

fn version_follows(before: &Reality, inputs: &Inputs) {
    let (Some(was), Some(is)) = (before.kubernetes, inputs.kubernetes) else {
        return;
    };
    assert!(is >= was, "from Kubernetes {was} down to {is}");
    let minors = is.minor - was.minor;
    assert!(
        minors <= 1 && is.major == was.major,
        "from Kubernetes {was} to {is} skips a minor"
    );
}

/// Nobody leaves whose removal was not asked for, and nobody joins who was not declared.
fn only_wished(starting: &Starting<'_>) {
    let Starting { world, inputs, .. } = starting;
    let nodes = &world.observed.nodes;
    let find = |name: &str| nodes.iter().find(|node| node.name_any() == name);
    for host in &inputs.leaving {
        if starting.name() == "ResetHost" {
            assert!(
                !world.reality.hosts.contains_key(host.as_str()),
                "{host} is part of the cluster, and is reset"
            );
            continue;
        }
        let node = find(host.as_str());
        let asked = node.is_some_and(|node| node.metadata.deletion_timestamp.is_some())
            || world.gives_up(host.as_str());
        assert!(asked, "{host} leaves, and nobody asked for it");
    }
    for host in &inputs.hosts {
        let joins = !world.reality.hosts.contains_key(&host.name);
        assert!(
            !joins || find(&host.name).is_some(),
            "{} joins undeclared",
            host.name
        );
    }
}

/// Nothing that keeps to windows starts outside of them, unless a person lets it.
fn windows(starting: &Starting<'_>) {
    let Starting { world, new, .. } = starting;
    let maintenance = world.cluster.spec.maintenance.clone().unwrap_or_default();
    let read = controller::Windows::read(&maintenance.windows, "windows").unwrap();
    let closed = matches!(read.at(world.now()), controller::window::Now::Closed { .. });
    let confined = match (maintenance.confine.unwrap_or_default(), disturbs(new)) {
        (_, Disturbs::Nobody) | (Confine::None, _) | (Confine::Disruptive, Disturbs::ItsHosts) => {
            false
        }
        (Confine::Disruptive, Disturbs::OthersThanItsHosts) | (Confine::All, _) => true,
    };
    let asked = new.request.is_some() || new.maintain.is_some();
    assert!(
        !(closed && confined) || asked,
        "{} starts at {}, outside of every window",
        new.name,
        world.now()
    );
}

/// Whom an operation disturbs.
enum Disturbs {
    Nobody,
    /// Hosts that are no part of the cluster yet.
    ItsHosts,
    /// Pods that run, or what they rely on.
    OthersThanItsHosts,
}

/// # Panics
///
/// The operation is not known here.
fn disturbs(new: &NewRun) -> Disturbs {
    match new.operation.name {
        // There is no cluster yet, it is looked at, it is taken down, or its etcd is read.
        "Create" | "Adopt" | "Reset" | "Snapshot" | "Drill" => Disturbs::Nobody,
        "Scale" | "ResetHost" => Disturbs::ItsHosts,
        "Recover" | "Renew" | "Replace" | "Remove" | "Upgrade" | "Component" | "Toolbox"
        | "Converge" => Disturbs::OthersThanItsHosts,
        other => panic!("operation {other} is not known here: say whom it disturbs"),
    }
}
