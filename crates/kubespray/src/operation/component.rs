//! Component: brings the container engine, etcd or the network plugin of a built cluster to what the release and the Cluster's variables
//! say, node by node, and nothing else. Pure.
//!
//! It is asked for by the annotation [`request::COMPONENT`], each value of which is [answered](asked) once. Of the variables that have
//! changed since the cluster was built, it carries out those of the component, by their names; the others are told of as before, and
//! wait for the next converge.

use api::{
    HostName, Run,
    run::{Plan, RunPhase, StepPhase},
};
use kube::ResourceExt;
use runs::phase;
use serde_json::{Map, Value, json};

use super::{
    COMPONENT, TOOLBOX, UPGRADE,
    asked::{self, Asked},
    scale::manages_etcd,
    toolbox,
};
use crate::{
    action::{self, Left},
    cluster::{
        built::Built,
        compile::{self, Asks, Bringing, Component},
        decision::{Decision, NewRun, Situation, checkout, new_run},
        resolve::Resolved,
    },
    inputs::Inputs,
    playbooks::Checkout,
    problem::Problem,
    request,
};

/// How it is asked for.
pub static ASKED: Asked = Asked {
    operation: &COMPONENT,
    annotation: request::COMPONENT,
    length: asked::LENGTH,
    answered: |status| status.component.as_ref(),
    place: |status| &mut status.component,
    wrong,
    refusal: |_, request, built| refusal(request, built).or_else(|| beyond(built)),
    unbuilt: "its creation installs its components",
};

/// Why no component is meant.
fn wrong(request: &str) -> Option<String> {
    Component::of(request)
        .err()
        .map(|problem| problem.to_string())
}

/// What the spec also asks for, which comes first.
fn beyond(built: &Built) -> Option<String> {
    built.comes_first().or_else(|| {
        let beyond = &built.beyond_converge;
        (!beyond.is_empty()).then(|| format!("the spec also asks for {}", beyond.join("; ")))
    })
}

impl Component {
    /// All of them.
    const ALL: [Self; 3] = [Self::ContainerEngine, Self::Etcd, Self::NetworkPlugin];

    /// How people name it.
    const fn name(self) -> &'static str {
        match self {
            Self::ContainerEngine => "container-engine",
            Self::Etcd => "etcd",
            Self::NetworkPlugin => "network-plugin",
        }
    }

    /// How it is called.
    const fn words(self) -> &'static str {
        match self {
            Self::ContainerEngine => "the container engine",
            Self::Etcd => "etcd",
            Self::NetworkPlugin => "the network plugin",
        }
    }

    /// How the names of its variables begin.
    const fn variables(self) -> &'static [&'static str] {
        match self {
            Self::ContainerEngine => &[
                "containerd_",
                "crictl_",
                "cri_dockerd_",
                "crio_",
                "crun_",
                "docker_",
                "gvisor_",
                "kata_containers_",
                "nerdctl_",
                "runc_",
                "youki_",
            ],
            Self::Etcd => &["etcd_"],
            Self::NetworkPlugin => &[
                "calico_",
                "calicoctl_",
                "cilium_",
                "cni_",
                "flannel_",
                "kube_ovn_",
                "kube_router_",
                "macvlan_",
                "multus_",
                "typha_",
            ],
        }
    }

    /// Whether a variable is of it. Which one it is, and by whom it is made, is none: exchanging it for another one is no upgrade.
    fn has(self, name: &str) -> bool {
        const KINDS: [&str; 3] = ["etcd_deployment_type", "etcd_member_name", "etcd_data_dir"];
        let mut names = self.variables().iter();
        names.any(|start| name.starts_with(start)) && !KINDS.contains(&name)
    }

    /// The component that a request names.
    ///
    /// # Errors
    ///
    /// It names none.
    fn of(request: &str) -> Result<Self, Problem> {
        let named = request.split_whitespace().next().unwrap_or_default();
        let known = Self::ALL.into_iter().find(|known| known.name() == named);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Problem::new(
                format!("Cluster metadata.annotations {}", request::COMPONENT),
                named,
                format!("its first word is a component, one of {names}"),
                "name one of these: windlass component upgrade COMPONENT",
            )
        })
    }
}

/// Why a request is not carried out, whatever else there is to do.
fn refusal(request: &str, built: &Built) -> Option<String> {
    let component = match Component::of(request) {
        Ok(component) => component,
        Err(problem) => return Some(problem.to_string()),
    };
    let inputs = built.inputs.as_ref()?;
    if component == Component::Etcd && manages_etcd(inputs) {
        return Some(
            "kubeadm makes this etcd (etcd_deployment_type is kubeadm): it comes with the control plane, by an upgrade of the cluster"
                .to_owned(),
        );
    }
    let engine = inputs.variables.get("deploy_container_engine");
    if component == Component::ContainerEngine && engine == Some(&Value::Bool(false)) {
        return Some(
            "the playbooks install no container engine here (deploy_container_engine is false): whoever does upgrades it"
                .to_owned(),
        );
    }
    None
}

/// Has the say about a built cluster of which somebody wants a component upgraded.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let asked = ASKED.wanted(cluster, &observed.runs);
    let possible =
        |request: &String| built.beyond_converge.is_empty() && refusal(request, built).is_none();
    let asked = asked.filter(possible)?;
    let checkout = match checkout(observed) {
        Ok(checkout) => checkout,
        Err(decision) => return Some(decision),
    };
    let before = built.inputs.as_ref().unwrap_or(&resolved.inputs);
    let left = left(&observed.runs);
    Some(
        match compiled(&asked, resolved, before, checkout, left.as_ref()) {
            Ok(plan) => Decision::Start(Box::new(NewRun {
                request: Some(asked),
                ..new_run(cluster, observed, &COMPONENT, plan)
            })),
            Err(problem) => Decision::Stall(vec![problem]),
        },
    )
}

/// The plan that brings the component of a request to what the spec says.
fn compiled(
    asked: &str,
    resolved: &Resolved,
    before: &Inputs,
    checkout: &Checkout,
    after: Option<&Left>,
) -> Result<Plan, Problem> {
    let component = Component::of(asked)?;
    let settings = &resolved.component;
    let (mut inputs, changed) = with(component, before, resolved);
    if component == Component::Etcd {
        inputs.snapshots = resolved.store();
    }
    let bringing = Bringing {
        checkout,
        settings,
        inputs: &inputs,
        after,
        drains: inputs.variables.get("drain_nodes") != Some(&Value::Bool(false)),
    };
    let steps = compile::component(component, &bringing)?;
    let what = told(component, &changed);
    let asks = Asks::Person(&settings.conduct, format!("upgrade: {what}"));
    let reason = format!("somebody asked for it: {what}");
    compile::finish(&COMPONENT, Some(asked), &inputs, reason, asks, steps)
}

/// What is done, for people. Names only: values may be secret.
fn told(component: Component, changed: &[String]) -> String {
    let how = match component {
        Component::ContainerEngine => "node by node, each without its pods meanwhile",
        Component::Etcd => "one member after the other, after a snapshot",
        Component::NetworkPlugin => "on all nodes, under running pods",
    };
    let changed = if changed.is_empty() {
        "no variable of it has changed".to_owned()
    } else {
        format!("changed: {}", changed.join(", "))
    };
    format!(
        "{} to what the release and the spec say, {how}; {changed}",
        component.words()
    )
}

/// What the cluster was built with, and the variables of the component as the spec has them now; and which of those differ.
fn with(component: Component, before: &Inputs, resolved: &Resolved) -> (Inputs, Vec<String>) {
    let wanted = &resolved.inputs;
    let mut inputs = before.reached_as(wanted);
    let mut changed = taken(component, &mut inputs.variables, &wanted.variables);
    for host in &mut inputs.hosts {
        let mut named = wanted.hosts.iter();
        let Some(now) = named.find(|now| now.name == host.name) else {
            continue;
        };
        let of_host = taken(component, &mut host.variables.other, &now.variables.other);
        let name = &host.name;
        changed.extend(
            of_host
                .iter()
                .map(|variable| format!("{variable} of {name}")),
        );
    }
    // What a Secret holds has changed for the others too: that is told until it is carried out there.
    let names = inputs.variable_secrets().into_iter();
    inputs.revisions = names
        .filter_map(|name| {
            let known = before.revisions.get(&name);
            let revision = known.or(wanted.revisions.get(&name))?.clone();
            Some((name, revision))
        })
        .collect();
    if component == Component::ContainerEngine {
        let timeout = resolved.component.drain_timeout;
        let timeout =
            timeout.map(|timeout| ("drain_timeout", json!(format!("{}s", timeout.seconds()))));
        let variables = [
            ("upgrade_node_confirm", json!(false)),
            ("upgrade_node_post_upgrade_confirm", json!(false)),
            ("upgrade_node_uncordon_after_drain_failure", json!(true)),
            ("windlass_drain_always", json!(true)),
        ];
        let variables = variables.into_iter().chain(timeout);
        let named = variables.map(|(name, value)| (name.to_owned(), value));
        inputs.operation_variables.extend(named);
    }
    if component == Component::NetworkPlugin {
        // By that number its pods are rolled out.
        let (at_once, _) = compile::at_once(&resolved.component, &inputs);
        let variables = &mut inputs.operation_variables;
        variables.insert("serial".to_owned(), json!(at_once));
    }
    (inputs, changed)
}

/// Takes the variables of the component over, and says which differ.
fn taken(
    component: Component,
    before: &mut Map<String, Value>,
    wanted: &Map<String, Value>,
) -> Vec<String> {
    let mut changed: Vec<String> = before
        .keys()
        .chain(wanted.keys())
        .filter(|name| component.has(name) && before.get(*name) != wanted.get(*name))
        .cloned()
        .collect();
    changed.sort_unstable();
    changed.dedup();
    for name in &changed {
        match wanted.get(name) {
            Some(value) => drop(before.insert(name.clone(), value.clone())),
            None => drop(before.remove(name)),
        }
    }
    changed
}

/// Whether an operation of that word lets pods in again on nodes that others have left without.
pub fn lets_pods_in(operation: &str) -> bool {
    [COMPONENT.name, UPGRADE.name].contains(&operation)
}

/// What runs that were ended before their end have left: their nodes may take no pods, unless a component or an upgrade came to its end
/// since, whose gates let pods in, or a person has let them in.
pub fn left(runs: &[Run]) -> Option<Left> {
    let mut left: Option<Left> = None;
    let mut let_in = Vec::new();
    for run in runs.iter().rev() {
        match (run.spec.operation.as_str(), phase(run)) {
            (name, RunPhase::Succeeded) if lets_pods_in(name) => break,
            (name, RunPhase::Succeeded) if name == TOOLBOX.name => {
                let_in.extend(toolbox::let_in(run));
            }
            (name, RunPhase::Failed | RunPhase::Cancelled) if name == COMPONENT.name => {
                let mut hosts = halfway(run);
                hosts.retain(|host| !let_in.contains(host));
                if let Some(left) = &mut left {
                    left.halfway.extend(hosts);
                } else if !hosts.is_empty() {
                    left = Some(Left {
                        run: run.name_any(),
                        halfway: hosts,
                    });
                }
            }
            (name, _) if name == COMPONENT.name => break,
            _ => {}
        }
    }
    left.map(|mut left| {
        left.halfway.sort_unstable();
        left.halfway.dedup();
        left
    })
}

/// The hosts whose step was begun and did not come to its end.
fn halfway(run: &Run) -> Vec<HostName> {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    let begun = steps.filter(|step| {
        let ended = matches!(step.phase, StepPhase::Pending | StepPhase::Succeeded);
        step.id.starts_with("container-engine/") && !ended
    });
    let plan = &run.spec.plan;
    begun
        .filter_map(|step| plan.steps.iter().find(|known| known.id == step.id))
        .flat_map(|step| action::hosts_of(plan, step))
        .collect()
}
