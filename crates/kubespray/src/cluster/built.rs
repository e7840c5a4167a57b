//! What a cluster was built with, and how the wish differs from it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Cluster, KubernetesVersion, KubesprayVersion, Run,
    cluster::{Available, Converged},
    node::Role,
    run::RunPhase,
};
use kube::ResourceExt;
use runs::phase;
use serde_json::{Map, Value};

use crate::{
    certificates,
    cluster::{decision::NewRun, maintain::Waiting, observe::Observed, resolve::Resolved},
    health::Expected,
    inputs::{Host, Inputs},
    operation::{
        Fails, Leaves, Operation, REMOVE, SCALE, UPGRADE, converge, recover, renew,
        scale::manages_etcd,
        upgrade::{self, Begun, release_is_asked_for},
    },
    playbooks::Playbooks,
    radar::{Mark, Watch},
    request::start_again,
    snapshots::Standing,
    variables,
};
use immutable::Immutable;

pub mod immutable;

/// A built cluster.
#[derive(Clone, Debug)]
pub struct Built {
    /// What is expected of it.
    pub expected: Expected,
    /// What it was built with, if that is known.
    pub inputs: Option<Inputs>,
    /// The Kubernetes version that it was built with.
    pub kubernetes: Option<KubernetesVersion>,
    /// The kubespray release that built it.
    pub kubespray: KubesprayVersion,
    /// Its last run, if it is still there.
    pub run: Option<Run>,
    /// What the spec asks for and is not carried out.
    pub not_carried_out: Vec<String>,
    /// What of it, and what else, must be taken back before the cluster can converge.
    pub beyond_converge: Vec<String>,
    /// The variables among that which the cluster keeps for as long as it lives.
    pub immutable: Vec<Immutable>,
    /// Newer versions that can be had and that nobody wishes for, if that is known.
    pub available: Option<Vec<Available>>,
    /// What would start now, did it not wait for a maintenance window.
    pub waiting: Option<Box<Waiting>>,
    /// How it stands with its snapshots, if some are to be kept.
    pub snapshots: Option<Box<Standing>>,
    /// What of its hosts is looked at between runs, if anything is.
    pub watch: Option<Box<Watch>>,
    /// The run that begins when that was looked at once more.
    pub looks_before: Option<Box<NewRun>>,
    /// What its last converge changed on hosts, if there was one.
    pub converged: Option<Box<Converged>>,
    /// Whether it converges on a schedule.
    pub converges: bool,
}

impl Built {
    /// Why what works on the cluster as it is has to wait, if that is for a maintenance window: until then other hosts or versions are
    /// asked for than it has.
    pub fn comes_first(&self) -> Option<String> {
        let waiting = self.waiting.as_ref()?;
        (!self.beyond_converge.is_empty()).then(|| waiting.comes_first())
    }
}

/// Whether the status knows of a cluster that stands.
pub fn is_built(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(|status| status.kubeconfig_secret.is_some())
}

/// The last run that did not leave the cluster alone, if its operation is one of built clusters.
pub fn of_built(observed: &Observed) -> Option<&Run> {
    let of_built = |run: &&Run| Operation::of(run).is_some_and(|operation| operation.of_built);
    let mut runs = observed.runs.iter().rev();
    runs.find(|run| !Operation::is_quiet(run)).filter(of_built)
}

/// That run, if it failed and that becomes of a cluster after one of its operation.
pub fn failed(observed: &Observed, fails: Fails) -> Option<&Run> {
    let so = |run: &&Run| Operation::of(run).is_some_and(|operation| operation.fails == fails);
    let failed = of_built(observed).filter(|run| phase(run) == RunPhase::Failed);
    failed.filter(so)
}

/// The cluster as it was built, if it is.
pub fn as_built(cluster: &Cluster, observed: &Observed, resolved: &Resolved) -> Option<Built> {
    let run = built_by(&observed.runs);
    // The Secret is evidence too: runs may be deleted to save room.
    let stored = is_built(cluster);
    let of_built = |run: &Run| Operation::of(run).is_some_and(|operation| operation.of_built);
    let is_built = run.is_some() || (stored && observed.runs.iter().all(of_built));
    is_built.then(|| built(cluster, run, resolved, observed))
}

fn built(cluster: &Cluster, run: Option<&Run>, resolved: &Resolved, observed: &Observed) -> Built {
    let before = run.and_then(built_with);
    let inputs = before.as_ref().unwrap_or(&resolved.inputs);
    let past = Past::of(cluster, &observed.runs);
    let (kubernetes, kubespray) = versions(cluster, before.as_ref());
    let mut not_carried_out: Vec<_> = moves(cluster, before.as_ref(), resolved, &past);
    not_carried_out.extend(beyond_converge(&past, inputs, resolved));
    let immutable = immutable::changed(inputs, &resolved.inputs, defaults(observed));
    not_carried_out.extend(immutable.iter().map(ToString::to_string));
    not_carried_out.extend(recover::cancelled(&observed.runs));
    let mut beyond_converge = not_carried_out.clone();
    not_carried_out.extend(resolved.kept.iter().map(ToString::to_string));
    if !release_is_asked_for(cluster) {
        beyond_converge.extend(another_release(kubespray, resolved.inputs.kubespray));
    }
    let is_kept = |name: &str| immutable.iter().any(|kept| kept.name == name);
    let differing = differing_variables(inputs, &resolved.inputs);
    if differing.iter().any(|name| !is_kept(name)) {
        not_carried_out.push(
            "changed variables (spec.nodes.all.deploy.extraVars): windlass converge carries them out"
                .to_owned(),
        );
    }
    not_carried_out.extend(
        differing_sources(inputs, &resolved.inputs)
            .map(|field| format!("another {field}: windlass converge carries it out")),
    );
    not_carried_out.extend(
        variables::changed(&inputs.revisions, &resolved.inputs.revisions)
            .map(|name| format!("a changed Secret {name}: windlass converge carries it out")),
    );
    not_carried_out.extend(renew::beyond(inputs, resolved, observed));
    Built {
        expected: Expected {
            nodes: inputs.members(),
            renew: resolved.inputs.renew.into(),
            places: certificates::places(inputs),
            since: renew::last(&observed.runs).map(|(_, ended)| ended),
        },
        kubernetes: kubernetes.or(inputs.kubernetes),
        kubespray: kubespray.unwrap_or(inputs.kubespray),
        run: observed.runs.last().cloned(),
        not_carried_out,
        beyond_converge,
        immutable,
        available: resolved.available.clone(),
        snapshots: resolved.snapshots.as_ref().map(|settings| {
            let store = observed.snapshots.clone();
            Box::new(Standing::of(settings, store, &observed.runs, observed.now))
        }),
        watch: resolved.radar.map(|every| {
            Box::new(Watch {
                every,
                inputs: inputs.reached_as(&resolved.inputs),
                mark: Mark::of(&observed.runs),
            })
        }),
        looks_before: None,
        converged: converge::converged(&observed.runs).map(Box::new),
        converges: resolved.converges.is_some(),
        inputs: before,
        waiting: None,
    }
}

/// What the playbooks take where nobody gives a variable a value, if they are there.
fn defaults(observed: &Observed) -> Option<&Map<String, Value>> {
    match &observed.playbooks {
        Playbooks::Ready(checkout) => Some(&checkout.contract.defaults),
        _ => None,
    }
}

/// The run that built the cluster as it is.
pub fn built_by<'a>(
    runs: impl IntoIterator<Item = &'a Run, IntoIter: DoubleEndedIterator>,
) -> Option<&'a Run> {
    let builds = |run: &&Run| Operation::leaves(run, Leaves::Cluster);
    let mut newest = runs.into_iter().rev().filter(builds);
    newest.find(|run| phase(run) == RunPhase::Succeeded)
}

/// What the cluster is made of since that run.
pub fn built_with(run: &Run) -> Option<Inputs> {
    let inputs = Inputs::from_map(&run.spec.plan.inputs).ok()?;
    Some(inputs.left())
}

/// The versions that the cluster was built with, as far as is known.
fn versions(
    cluster: &Cluster,
    before: Option<&Inputs>,
) -> (Option<KubernetesVersion>, Option<KubesprayVersion>) {
    let status = cluster.status.as_ref();
    (
        before
            .and_then(|before| before.kubernetes)
            .or_else(|| status?.kubernetes_version),
        before
            .map(|before| before.kubespray)
            .or_else(|| status?.kubespray_version),
    )
}

/// Moves to other versions that are not carried out. One that can be is begun before anybody is told.
fn moves(
    cluster: &Cluster,
    before: Option<&Inputs>,
    resolved: &Resolved,
    past: &Past<'_>,
) -> Vec<String> {
    let wanted = &resolved.inputs;
    let (kubernetes, kubespray) = versions(cluster, before);
    let written = release_is_asked_for(cluster);
    let mut moves = Vec::new();
    if let (Some(from), Some(to)) = (kubernetes, wanted.kubernetes)
        && from != to
    {
        moves.push((
            format!("Kubernetes {from} to {to}"),
            "kubernetesVersion",
            from.to_string(),
        ));
    }
    if let Some(from) = kubespray.filter(|from| written && *from != wanted.kubespray) {
        let what = format!("kubespray {from} to {}", wanted.kubespray);
        moves.push((what, "kubespray.version", from.to_string()));
    }
    let why = |field: &str, from: &str| match (before, &past.begun) {
        (None, _) => format!(
            "the runs that know what the cluster was built with are gone; write spec.{field}: {from}, and windlass converge makes \
             it known again"
        ),
        (_, Some(begun)) => halfway(&past.again, begun),
        _ => match another_release(kubespray, wanted.kubespray).filter(|_| !written) {
            Some(release) => release,
            None => format!(
                "{}; to take it back: write spec.{field}: {from}",
                past.of_run(&UPGRADE, |_| true)
            ),
        },
    };
    let moves = moves.into_iter();
    moves
        .map(|(what, field, from)| format!("the move from {what}: {}", why(field, &from)))
        .collect()
}

/// What its runs tell of what is not carried out.
struct Past<'a> {
    runs: &'a [Run],
    /// The upgrade that was begun and has ended before its end, if there is one.
    begun: Option<Begun>,
    /// How a person has a run start anew that was cancelled.
    again: String,
}

impl<'a> Past<'a> {
    fn of(cluster: &Cluster, runs: &'a [Run]) -> Self {
        Self {
            runs,
            begun: upgrade::begun(runs),
            again: start_again(
                &cluster.namespace().unwrap_or_default(),
                &cluster.name_any(),
            ),
        }
    }

    /// Why what an operation does is not done, by the last run of it with such inputs.
    fn of_run(&self, operation: &Operation, is_it: impl Fn(&Map<String, Value>) -> bool) -> String {
        let mut runs = self.runs.iter().rev();
        let run =
            runs.find(|run| run.spec.operation == operation.name && is_it(&run.spec.plan.inputs));
        match run.map(|run| (phase(run), run.name_any())) {
            Some((RunPhase::Cancelled, name)) => {
                format!("run {name} was cancelled; to start it anew: {}", self.again)
            }
            Some((RunPhase::Failed, name)) => {
                format!("run {name} failed; to go on: windlass retry {name}")
            }
            _ => "it is done by a run of its own".to_owned(),
        }
    }
}

/// What there is to say of an upgrade that somebody ended in the middle.
fn halfway(again: &str, begun: &Begun) -> String {
    let mut text = format!(
        "run {} was ended in the middle, hosts run either version, and it cannot be taken back; to go on: {again}",
        begun.run
    );
    if !begun.halfway.is_empty() {
        let names: Vec<_> = begun.halfway.iter().map(ToString::to_string).collect();
        text.push_str(&format!(
            "; until then these may take no pods (kubectl uncordon): {}",
            names.join(", ")
        ));
    }
    text
}

/// What differs between the wish and what was built, and running the playbooks once more is not the way to it.
fn beyond_converge(past: &Past<'_>, built: &Inputs, resolved: &Resolved) -> Vec<String> {
    let (wanted, leaving) = (&resolved.inputs, &resolved.removal.leaving);
    let mut differences = Vec::new();
    let by_name = |inputs: &'_ Inputs| -> BTreeMap<String, Vec<Role>> {
        let hosts = inputs.hosts.iter();
        hosts
            .map(|host| (host.name.clone(), host.roles.clone()))
            .collect()
    };
    let (before, after) = (by_name(built), by_name(wanted));
    let new = wanted.hosts.iter();
    for host in new.filter(|host| !before.contains_key(&host.name)) {
        differences.push(match &past.begun {
            Some(begun) => format!(
                "host {}, which cannot join before the upgrade that run {} has begun is done",
                host.name, begun.run
            ),
            None => why_no_part(past, host, built, wanted),
        });
    }
    for built in &built.hosts {
        let roles = after.get(&built.name);
        if roles.is_some_and(|roles| *roles != built.roles) {
            differences.push(format!(
                "host {}: it was made {}, and what a host is cannot change; delete its ClusterNode, and declare it anew when it has left",
                built.name,
                built.part()
            ));
        }
    }
    let replacing = resolved.replacing.iter();
    for replacing in replacing.filter(|replacing| replacing.stays()) {
        differences.push(format!(
            "the replacement of host {}: {}; where its run was cancelled, to start it anew: {}; to take it back: windlass node keep {0}",
            replacing.host,
            replacing.waits(),
            past.again
        ));
    }
    for Host { name, .. } in &built.hosts {
        if after.contains_key(name) {
            continue;
        }
        let removed = leaving.iter().any(|leaves| leaves.as_str() == name);
        differences.push(if removed {
            format!(
                "the removal of host {name}, which is still part of the cluster: {}; to take it back: windlass node keep {name}",
                past.of_run(&REMOVE, |inputs| Inputs::removes(inputs, name))
            )
        } else {
            format!(
                "host {name}: it is part of the cluster, and has no ClusterNode; declare it again, and delete it then to have it removed"
            )
        });
    }
    differences
}

/// Why a new host is no part of the cluster. One that can join does so before anybody is told.
fn why_no_part(past: &Past<'_>, host: &Host, built: &Inputs, wanted: &Inputs) -> String {
    let name = &host.name;
    if !host.is_worker() && !host.is_member() {
        return format!(
            "host {name}: adding other hosts than workers, control planes and members of etcd to a built cluster is not carried out yet"
        );
    }
    if !host.is_worker() && manages_etcd(built) {
        return format!(
            "host {name}: kubeadm runs etcd (etcd_deployment_type), and adding members to it is not carried out yet"
        );
    }
    match another_release(Some(built.kubespray), wanted.kubespray) {
        Some(release) => format!("host {name}, which cannot join: {release}"),
        None => format!(
            "host {name}, which is no part of the cluster: {}",
            past.of_run(&SCALE, |inputs| Inputs::has_host(inputs, name))
        ),
    }
}

/// A release that is the newest one by default may change with Windlass: that must not become an upgrade by surprise.
fn another_release(built: Option<KubesprayVersion>, wanted: KubesprayVersion) -> Option<String> {
    let built = built.filter(|built| *built != wanted)?;
    Some(format!(
        "kubespray {wanted}, and {built} built the cluster: write spec.kubespray.version: {built}, or {wanted} to have it upgraded"
    ))
}

/// The names of the variables of the whole cluster that are others than before.
pub fn differing_variables<'a>(before: &'a Inputs, wanted: &'a Inputs) -> BTreeSet<&'a str> {
    let (before, wanted) = (&before.variables, &wanted.variables);
    let names = before.keys().chain(wanted.keys());
    names
        .filter(|name| before.get(*name) != wanted.get(*name))
        .map(String::as_str)
        .collect()
}

/// The references to Secrets with variables that are others than before.
pub fn differing_sources(before: &Inputs, wanted: &Inputs) -> impl Iterator<Item = String> {
    let cluster = before.extra_vars_secret_ref != wanted.extra_vars_secret_ref;
    let creation = before.operation_secret_ref != wanted.operation_secret_ref;
    let strip = |field: &str| field.trim_start_matches("Cluster ").to_owned();
    [
        (cluster, variables::CLUSTER),
        (creation, variables::CREATION),
    ]
    .into_iter()
    .filter(|(differs, _)| *differs)
    .map(move |(_, field)| strip(field))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_changes_nothing_of_a_cluster_does_not_say_what_it_is() {
        let run = |operation: &str, phase: &str| -> Run {
            serde_json::from_value(json!({
                "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": operation},
                "spec": {
                    "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"},
                    "operation": operation, "generation": 1, "plan": {"digest": "d", "steps": []},
                },
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        let runs = [
            run("Create", "Succeeded"),
            run("Scale", "Succeeded"),
            run("Remove", "Failed"),
            run("Renew", "Succeeded"),
        ];
        assert_eq!(built_by(&runs).unwrap().name_any(), "Scale");
        assert!(built_by(&runs[2..]).is_none());
    }
}
