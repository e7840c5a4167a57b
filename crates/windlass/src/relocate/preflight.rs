//! Everything that can be known to go wrong, before anything is written.

use anyhow::Context;
use api::Cluster;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, ResourceExt, api::PostParams};
use kubespray::{
    Problem,
    cluster::plan::{is_active, phase},
};

use super::{
    carry::{check_own, is_adopted},
    graph::Graph,
    side::{Kind, Side},
};

/// Playbooks that the images bring along.
const BUNDLE: &str = "/opt/windlass/bundle";

/// How many questions are asked at once.
const AT_ONCE: usize = 8;

/// What is needed of the side that is left.
const HERE: [(&str, &str, &[&str]); 5] = [
    (
        "kubespray.k8s.io",
        "clusters",
        &["list", "get", "patch", "delete"],
    ),
    (
        "kubespray.k8s.io",
        "clusternodes",
        &["list", "get", "patch", "delete"],
    ),
    (
        "workflow.windlass.dev",
        "runs",
        &["list", "get", "patch", "delete"],
    ),
    ("", "secrets", &["list", "get", "patch", "delete"]),
    (
        "coordination.k8s.io",
        "leases",
        &["get", "create", "update", "delete"],
    ),
];

/// What is needed of the side that takes over.
const THERE: [(&str, &str, &[&str]); 4] = [
    (
        "kubespray.k8s.io",
        "clusters",
        &["list", "get", "create", "update", "patch"],
    ),
    (
        "kubespray.k8s.io",
        "clusternodes",
        &["list", "get", "create", "update", "patch"],
    ),
    (
        "workflow.windlass.dev",
        "runs",
        &["list", "get", "create", "update", "patch"],
    ),
    ("", "secrets", &["list", "get", "create", "update", "patch"]),
];

/// Refuses what cannot work, with every reason; returns what a person should know.
pub(super) async fn check(
    source: &Side,
    target: &Side,
    graph: &Graph,
) -> anyhow::Result<Vec<String>> {
    let mut problems: Vec<Problem> = same(source, target).into_iter().collect();
    if problems.is_empty() {
        problems.extend(kinds(target).await?);
    }
    if problems.is_empty() {
        problems.extend(rights(source, "here (--kubeconfig)", &HERE).await?);
        problems.extend(rights(target, "there (--to-kubeconfig)", &THERE).await?);
    }
    if problems.is_empty() {
        problems.extend(leaving(graph));
        problems.extend(occupied(source, target, graph).await?);
    }
    let lines: Vec<_> = problems.iter().map(Problem::to_string).collect();
    anyhow::ensure!(
        lines.is_empty(),
        "nothing was moved and nothing was changed:\n  {}",
        lines.join("\n  ")
    );
    Ok(warnings(graph))
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

/// Whether the kinds are served there, in the version that is used here.
async fn kinds(target: &Side) -> anyhow::Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_ours()) {
        let resource = kind.resource();
        let served = target
            .client
            .list_api_group_resources(&resource.api_version)
            .await;
        let served = match served {
            Ok(list) => list.resources,
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => {
                return Err(
                    anyhow::Error::new(error).context("failed to ask which kinds are served there")
                );
            }
        };
        let has = |name: &str| served.iter().any(|served| served.name == name);
        if !has(&resource.plural) || !has(&format!("{}/status", resource.plural)) {
            problems.push(Problem::new(
                format!("{kind:?} apiVersion"),
                &resource.api_version,
                "it is not served there",
                "install the kinds: windlass crds | kubectl apply --server-side -f -",
            ));
        }
    }
    Ok(problems)
}

async fn rights(
    side: &Side,
    place: &str,
    needs: &[(&'static str, &'static str, &[&'static str])],
) -> anyhow::Result<Vec<Problem>> {
    let asked = needs.iter().flat_map(|(group, resource, verbs)| {
        verbs.iter().map(move |verb| (*group, *resource, *verb))
    });
    let missing: Vec<_> = stream::iter(asked)
        .map(|(group, resource, verb)| async move {
            let may = may(side, group, resource, verb).await?;
            anyhow::Ok((!may).then_some((resource, verb)))
        })
        .buffered(AT_ONCE)
        .try_filter_map(|missing| async move { Ok(missing) })
        .try_collect()
        .await?;
    Ok(missing
        .into_iter()
        .map(|(resource, verb)| {
            Problem::new(
                format!("right {place}"),
                format!("{verb} {resource}"),
                format!("you do not have it in namespace {}", side.namespace),
                format!(
                    "have it granted; check: kubectl -n {} auth can-i {verb} {resource}",
                    side.namespace
                ),
            )
        })
        .collect())
}

async fn may(side: &Side, group: &str, resource: &str, verb: &str) -> anyhow::Result<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                verb: Some(verb.to_owned()),
                namespace: Some(side.namespace.clone()),
                ..ResourceAttributes::default()
            }),
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
