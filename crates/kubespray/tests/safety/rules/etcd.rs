//! Whoever stops a member of etcd asks etcd before and after it.

use api::HostName;
use kubespray::{
    action::{self, Action, AnsiblePlay, Turn},
    inputs::Inputs,
    operation::scale::manages_etcd,
    playbooks::Own,
};

use super::Starting;

/// What a playbook of Windlass' own does to the members of etcd on its hosts.
enum Does {
    /// It restarts one at a time, and etcd is asked around it.
    Restarts,
    /// It stops as many as there are, and why that is right.
    StopsMany(&'static str),
    /// It restarts one at a time that cannot be asked by its host, and is waited for as the whole cluster is.
    RestartsKubeadms,
    Nothing,
}

/// What it does, of these hosts.
fn does(own: Own, inputs: &Inputs, hosts: &[HostName]) -> Does {
    let members = inputs.group("etcd");
    let on_member = hosts.iter().any(|host| members.contains(host));
    let of_kubeadm = manages_etcd(inputs);
    match own {
        Own::Etcd => Does::Restarts,
        // It may run as one of its containers; kubeadm's come back with the kubelet.
        Own::ContainerEngine if on_member && !of_kubeadm => Does::Restarts,
        Own::Restart => {
            let part = inputs.operation_variables["windlass_restart_part"].as_str();
            match part.unwrap() {
                "etcd" => Does::Restarts,
                "container-engine" if on_member && !of_kubeadm => Does::Restarts,
                _ => Does::Nothing,
            }
        }
        Own::RenewCertificates if of_kubeadm => Does::RestartsKubeadms,
        Own::RecoverSetAside => {
            Does::StopsMany("they are given up, and etcd has said that there is no quorum to lose")
        }
        Own::RecoverEtcd => {
            Does::StopsMany("there is no quorum to lose, or all of them are rolled back together")
        }
        Own::Authorities
        | Own::EtcdSnapshot
        | Own::Kubeconfig
        | Own::ContainerEngine
        | Own::NetworkPlugin
        | Own::RenewCertificates
        | Own::RecoverCheck
        | Own::RecoverServe
        | Own::ReplaceHead
        | Own::ReplaceEndpoints => Does::Nothing,
    }
}

/// A member of etcd is worked on alone, and etcd is asked before and after; and no node is left without a gate that lets its pods in.
pub fn is_asked(starting: &Starting<'_>) {
    let (plan, inputs) = (starting.plan(), &starting.inputs);
    let name = starting.name();
    let action = |at: Option<usize>| action::of(plan.steps.get(at?)?).unwrap();
    for (at, step) in plan.steps.iter().enumerate() {
        let Some(play) = action::play_of(step) else {
            continue;
        };
        let hosts = action::hosts_of(plan, step);
        let asks = |at: Option<usize>, turn: Turn| match action(at) {
            Some(Action::Quorum(change)) => change.turn == turn && hosts == [change.host],
            _ => false,
        };
        let Some(own) = own(&play) else {
            if step.id == "etcd/install" && unasked(starting).is_none() {
                let asked = matches!(action(at.checked_sub(1)), Some(Action::Quorum(_)));
                assert!(asked, "{name}: nobody asks etcd before {}", step.id);
            }
            continue;
        };
        match does(own, inputs, &hosts) {
            Does::Restarts => {
                let members = inputs.group("etcd");
                let alone = hosts.len() == 1 && members.contains(&hosts[0]);
                assert!(alone, "{name}: {} is of {hosts:?} at once", step.id);
                assert!(
                    asks(at.checked_sub(1), Turn::Restarts) && asks(Some(at + 1), Turn::Restarted),
                    "{name}: nobody asks etcd around {}",
                    step.id
                );
            }
            Does::RestartsKubeadms => {
                assert_eq!(hosts.len(), 1, "{name}: {}", step.id);
                let mut after = plan.steps.iter().skip(at + 1);
                let waits = after.find(|step| action::play_of(step).is_none());
                let waits = waits.and_then(|step| action::of(step).unwrap());
                assert!(matches!(
                    waits,
                    Some(Action::Health | Action::Kubeconfig(_))
                ));
            }
            Does::StopsMany(why) => assert!(
                name == "Recover",
                "{name}: {} is of several members, which may be where {why}",
                step.id
            ),
            Does::Nothing => {}
        }
        if own == Own::ContainerEngine {
            let mut after = plan.steps.iter().skip(at + 1);
            let gate =
                after.find(|step| matches!(action::of(step).unwrap(), Some(Action::Gate(_))));
            let gated = gate.map(|step| action::hosts_of(plan, step));
            assert_eq!(gated, Some(hosts), "{name}: no gate behind {}", step.id);
        }
    }
}

fn own(play: &AnsiblePlay) -> Option<Own> {
    play.own.as_ref()?;
    let own = Own::named(&play.playbook);
    Some(own.unwrap_or_else(|| panic!("{} is no playbook of Windlass' own", play.playbook)))
}

/// Why kubespray's play of etcd runs and nobody asks etcd before it, if that is right.
fn unasked(starting: &Starting<'_>) -> Option<&'static str> {
    match starting.name() {
        "Create" => Some("there is no etcd yet"),
        "Converge" => Some(
            "it is also how a member is mended that does not answer, and members whose settings are as they are to be stay",
        ),
        _ => None,
    }
}
