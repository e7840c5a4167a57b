//! Everything that can be known to go wrong, before anything is written.

use anyhow::Context;
use api::Cluster;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::Namespace,
};
use kube::{Api, ResourceExt, api::PostParams};
use kubespray::{
    Problem,
    cluster::plan::{is_active, phase},
};

use super::{
    carry::{check_own, is_adopted},
    graph::Graph,
    served,
    side::{Kind, Side},
};

/// Playbooks that the images bring along.
const BUNDLE: &str = "/opt/windlass/bundle";

/// How many questions are asked at once.
const AT_ONCE: usize = 8;

/// Group, resource with its subresource, and verbs.
pub(super) type Right = (&'static str, &'static str, &'static [&'static str]);

/// What is needed of the side that is left.
pub(super) const HERE: [Right; 6] = [
    (KUBESPRAY, "clusters", &["list", "get", "patch", "delete"]),
    (
        KUBESPRAY,
        "clusternodes",
        &["list", "get", "patch", "delete"],
    ),
    (WORKFLOW, "runs", &["list", "get", "patch", "delete"]),
    // Recorded keys of hosts are put into one.
    ("", "secrets", &["list", "get", "create", "patch", "delete"]),
    ("", "configmaps", &["list", "get", "delete"]),
    (LEASES, "leases", &["get", "create", "update", "delete"]),
];

/// What is needed of the side that takes over.
pub(super) const THERE: [Right; 8] = [
    (
        KUBESPRAY,
        "clusters",
        &["list", "get", "create", "update", "patch"],
    ),
    (KUBESPRAY, "clusters/status", &["patch"]),
    (
        KUBESPRAY,
        "clusternodes",
        &["list", "get", "create", "update", "patch"],
    ),
    (KUBESPRAY, "clusternodes/status", &["patch"]),
    (
        WORKFLOW,
        "runs",
        &["list", "get", "create", "update", "patch"],
    ),
    (WORKFLOW, "runs/status", &["patch"]),
    ("", "secrets", &["list", "get", "create", "update", "patch"]),
    (
        "",
        "configmaps",
        &["list", "get", "create", "update", "patch"],
    ),
];

/// What taking back needs of the side that was being left.
pub(super) const BACK_HERE: [Right; 6] = [
    (KUBESPRAY, "clusters", &["list", "get", "patch"]),
    (KUBESPRAY, "clusternodes", &["list", "get", "patch"]),
    (WORKFLOW, "runs", &["list", "get", "patch"]),
    ("", "secrets", &["list", "get"]),
    ("", "configmaps", &["list", "get"]),
    (LEASES, "leases", &["get", "delete"]),
];

/// What taking back needs of the other side.
pub(super) const BACK_THERE: [Right; 5] = [
    (KUBESPRAY, "clusters", &["list", "delete"]),
    (KUBESPRAY, "clusternodes", &["list", "delete"]),
    (WORKFLOW, "runs", &["list", "delete"]),
    ("", "secrets", &["list", "delete"]),
    ("", "configmaps", &["list", "delete"]),
];

const KUBESPRAY: &str = "kubespray.k8s.io";
const WORKFLOW: &str = "workflow.windlass.dev";
const LEASES: &str = "coordination.k8s.io";

/// How messages call the two sides.
const SOURCE: &str = "here (--kubeconfig)";
const TARGET: &str = "there (--to-kubeconfig)";

/// Refuses a move to where there is nothing to take it, or that one's rights do not reach for, before objects are read.
pub(super) async fn may_move(source: &Side, target: &Side) -> anyhow::Result<()> {
    let mut problems: Vec<Problem> = same(source, target).into_iter().collect();
    if problems.is_empty() {
        problems.extend(served::missing(target).await?);
    }
    // Of kinds that are not served an API may not tell one's rights.
    if problems.is_empty() {
        problems.extend(rights(source, SOURCE, &HERE).await?);
        problems.extend(rights(target, TARGET, &THERE).await?);
        problems.extend(namespace_right(target).await?);
    }
    refuse(&problems)
}

/// As [`may_move`], of taking one back.
pub(super) async fn may_take_back(source: &Side, target: Option<&Side>) -> anyhow::Result<()> {
    let mut problems = rights(source, SOURCE, &BACK_HERE).await?;
    if let Some(target) = target {
        problems.extend(same(source, target));
        problems.extend(rights(target, TARGET, &BACK_THERE).await?);
    }
    refuse(&problems)
}

/// Refuses what cannot work, with every reason; returns what a person should know.
pub(super) async fn check(
    source: &Side,
    target: &Side,
    graph: &Graph,
) -> anyhow::Result<Vec<String>> {
    let (mut problems, unseen) = served::older(target, graph).await?;
    if problems.is_empty() {
        problems.extend(leaving(graph));
        problems.extend(occupied(source, target, graph).await?);
    }
    refuse(&problems)?;
    let mut warnings = warnings(graph);
    warnings.extend(unseen);
    Ok(warnings)
}

fn refuse(problems: &[Problem]) -> anyhow::Result<()> {
    let lines: Vec<_> = problems.iter().map(Problem::to_string).collect();
    anyhow::ensure!(
        lines.is_empty(),
        "nothing was moved and nothing was changed:\n  {}",
        lines.join("\n  ")
    );
    Ok(())
}

fn same(source: &Side, target: &Side) -> Option<Problem> {
    (source.api == target.api).then(|| {
        Problem::new(
            "--to-kubeconfig",
            &target.api,
            "it leads to the API that the objects are in: its Namespace kube-system has the same uid",
            "name the kubeconfig of another one, or another of its contexts with --to-context",
        )
    })
}

async fn rights(side: &Side, place: &str, needs: &[Right]) -> anyhow::Result<Vec<Problem>> {
    let asked = needs.iter().flat_map(|(group, resource, verbs)| {
        let ask = move |verb: &&str| attributes(side, group, resource, verb);
        verbs.iter().map(ask)
    });
    let missing: Vec<_> = stream::iter(asked)
        .map(|asked| async move {
            let may = may(side, &asked).await?;
            anyhow::Ok((!may).then_some(asked))
        })
        .buffered(AT_ONCE)
        .try_filter_map(|missing| async move { Ok(missing) })
        .try_collect()
        .await?;
    Ok(missing
        .iter()
        .map(|asked| missing_right(place, asked))
        .collect())
}

/// The Namespace there is looked at, and made if it is missing.
async fn namespace_right(target: &Side) -> anyhow::Result<Option<Problem>> {
    let mut asked = attributes(target, "", "namespaces", "get");
    asked.name = Some(target.namespace.clone());
    if may(target, &asked).await? {
        let namespaces = Api::<Namespace>::all(target.client.clone());
        let found = namespaces.get_opt(&target.namespace).await;
        if found
            .context("failed to look for the Namespace there")?
            .is_some()
        {
            return Ok(None);
        }
        asked = ResourceAttributes {
            namespace: None,
            ..attributes(target, "", "namespaces", "create")
        };
        if may(target, &asked).await? {
            return Ok(None);
        }
    }
    Ok(Some(missing_right(TARGET, &asked)))
}

fn attributes(side: &Side, group: &str, resource: &str, verb: &str) -> ResourceAttributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: Some(subresource.to_owned()),
        verb: Some(verb.to_owned()),
        namespace: Some(side.namespace.clone()),
        ..ResourceAttributes::default()
    }
}

async fn may(side: &Side, asked: &ResourceAttributes) -> anyhow::Result<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(asked.clone()),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = Api::<SelfSubjectAccessReview>::all(side.client.clone())
        .create(&PostParams::default(), &review)
        .await
        .context("failed to ask for one's rights")?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// What is said of a right that is not there, with the command that tells when it is.
fn missing_right(place: &str, asked: &ResourceAttributes) -> Problem {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let (verb, mut resource) = (text(&asked.verb), text(&asked.resource));
    if let Some(group) = asked.group.as_deref().filter(|group| !group.is_empty()) {
        resource = format!("{resource}.{group}");
    }
    let (mut right, mut command) = (
        format!("{verb} {resource}"),
        format!("auth can-i {verb} {resource}"),
    );
    if let Some(name) = &asked.name {
        command = format!("{command}/{name}");
    }
    if let Some(part) = asked.subresource.as_deref().filter(|part| !part.is_empty()) {
        right = format!("{right}/{part}");
        command = format!("{command} --subresource={part}");
    }
    let (scope, role, flag) = match &asked.namespace {
        Some(namespace) => (
            format!("in namespace {namespace}"),
            "a Role and a RoleBinding",
            format!("-n {namespace} "),
        ),
        None => (
            "for the whole API".to_owned(),
            "a ClusterRole and a ClusterRoleBinding",
            String::new(),
        ),
    };
    Problem::new(
        format!("right {place}"),
        right,
        format!("you do not have it {scope}"),
        format!("have it granted by {role}; check: kubectl {flag}{command}"),
    )
}

/// What is on its way out here has nowhere to go.
fn leaving(graph: &Graph) -> Vec<Problem> {
    let deleted = graph
        .items
        .iter()
        .filter(|item| item.object.metadata.deletion_timestamp.is_some());
    let mut problems: Vec<_> = deleted
        .map(|item| {
            Problem::new(
                format!("{} metadata.deletionTimestamp", item.shown()),
                "",
                "it is being deleted",
                "wait until it is gone",
            )
        })
        .collect();
    for run in graph.runs().filter(|run| is_active(phase(run))) {
        if run.spec.operation == api::run::Operation::Reset {
            problems.push(Problem::new(
                format!("Run/{} spec.operation", run.name_any()),
                "Reset",
                "the cluster is being removed from its hosts",
                "wait until the run has ended",
            ));
        }
    }
    problems
}

/// Whether something stands in the way there.
async fn occupied(source: &Side, target: &Side, graph: &Graph) -> anyhow::Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let names: Vec<_> = graph.clusters().map(super::side::Item::name).collect();
    for other in target.list(Kind::Cluster).await? {
        if !names.contains(&other.name()) {
            problems.push(Problem::new(
                "--to-namespace",
                &target.namespace,
                format!(
                    "a namespace holds one Cluster, and {} is there",
                    other.name()
                ),
                "name another namespace",
            ));
        }
    }
    for item in &graph.items {
        let Some(existing) = target.get(item.kind, &item.name()).await? else {
            continue;
        };
        if is_adopted(item, &existing) {
            continue;
        }
        if let Err(error) = check_own(source, item, &existing) {
            problems.push(Problem::new(
                format!("{} metadata.name", item.shown()),
                item.name(),
                "there is another object of that name there, or a copy that is at work",
                format!(
                    "delete it there, or name another namespace with --to-namespace ({error:#})"
                ),
            ));
        }
    }
    Ok(problems)
}

/// What will need a person's hand afterwards.
fn warnings(graph: &Graph) -> Vec<String> {
    let mut warnings = Vec::new();
    for item in graph.clusters() {
        let Ok(cluster) = item.object.clone().try_parse::<Cluster>() else {
            warnings.push(format!(
                "{} cannot be read by this version of Windlass",
                item.shown()
            ));
            continue;
        };
        let name = item.shown();
        let source = cluster.spec.kubespray.clone().unwrap_or_default().source;
        if let Some(path) = source.and_then(|source| source.path)
            && !path.starts_with(BUNDLE)
        {
            warnings.push(format!(
                "{name} spec.kubespray.source.path is {path:?}: pods have no such directory; write {BUNDLE}, which the images \
                 bring along, or name git or image. A run that is not finished then begins anew with the other playbooks"
            ));
        }
        let key = cluster
            .spec
            .ssh
            .clone()
            .unwrap_or_default()
            .private_key_secret_ref;
        if key.is_none() {
            warnings.push(format!(
                "{name} spec.ssh.privateKeySecretRef is not set: pods have no ssh key of their own; store it in a Secret and \
                 name that"
            ));
        }
    }
    for item in &graph.items {
        for owner in item.object.owner_references() {
            let is_moved =
                |item: &super::side::Item| item.object.uid().as_ref() == Some(&owner.uid);
            if !graph.items.iter().any(is_moved) {
                warnings.push(format!(
                    "{} metadata.ownerReferences: {} {} is not moved, the copy does not name it",
                    item.shown(),
                    owner.kind,
                    owner.name
                ));
            }
        }
    }
    warnings
}
