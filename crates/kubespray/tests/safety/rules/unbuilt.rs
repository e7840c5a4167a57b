//! Operations of clusters that are not built, or that are to be no more: what holds of them instead of what holds of all others.

use api::cluster::DeletionPolicy;
use kube::ResourceExt;
use kubespray::{
    action::{self, Action},
    inputs::Inputs,
};

use super::{Starting, only_wished};

/// A cluster is founded where none is: there is no version to follow, no order, no member and no quorum to lose.
pub fn founds(starting: &Starting<'_>) {
    let there = &starting.before().hosts;
    assert!(there.is_empty(), "a cluster is founded over {there:?}");
    assert!(starting.inputs.leaving.is_empty(), "somebody leaves");
    only_wished(starting);
}

/// A cluster is taken over as it stands: that the objects say of it what it is, its version and members among them, is proved by the run,
/// which so must change nothing.
pub fn takes_over(starting: &Starting<'_>) {
    for step in &starting.plan().steps {
        let action = action::of(step).unwrap();
        let looks = action.is_none_or(|action| {
            matches!(
                action,
                Action::Sandbox
                    | Action::Probe
                    | Action::Members
                    | Action::Kubeconfig(_)
                    | Action::Versions { .. }
            )
        });
        assert!(looks, "{} is no look", step.id);
    }
    let proves = |wanted: fn(&Action) -> bool| {
        let mut steps = starting.plan().steps.iter();
        steps.any(|step| action::of(step).unwrap().as_ref().is_some_and(wanted))
    };
    assert!(proves(|action| *action == Action::Members));
    assert!(proves(|action| matches!(action, Action::Versions { .. })));
    assert!(starting.inputs.leaving.is_empty(), "somebody leaves");
    only_wished(starting);
}

/// The cluster is to be no more, with its members and its order: all of it goes, because somebody said so, and no host beside it.
pub fn takes_down(starting: &Starting<'_>) {
    let world = starting.world;
    let cluster = &world.cluster;
    assert!(
        cluster.metadata.deletion_timestamp.is_some()
            && cluster.spec.deletion_policy == Some(DeletionPolicy::Reset),
        "nobody asked for it"
    );
    let begun = |name: &str| {
        let mut runs = world.observed.runs.iter();
        runs.any(|run| Inputs::has_host(&run.spec.plan.inputs, name))
    };
    let resets = |name: &str| starting.inputs.hosts.iter().any(|host| host.name == name);
    // An object that is not there says nothing.
    let declared = world.observed.nodes.iter().map(ResourceExt::name_any);
    for host in declared.filter(|host| starting.before().hosts.contains_key(host)) {
        assert!(resets(&host), "{host} is part of the cluster, and is left");
    }
    for host in &starting.inputs.hosts {
        let name = &host.name;
        assert!(begun(name), "no run was to work on {name}, and it is reset");
    }
}
