//! `windlass reset`: removes Kubernetes from all hosts of a cluster, and has the cluster forgotten.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use api::{Cluster, Run, cluster::DeletionPolicy};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use kubespray::{
    Layout,
    operation::reset::is_cancelled,
    preview::{self, Preview, PreviewOutcome},
    request::START_AGAIN,
};
use runs::object::age;
use serde_json::json;

use crate::{
    cli::{Global, ResetCluster},
    client::{answered, is_of, named_or_only},
    node::confirmed,
    terminal::say,
};

/// How many hosts are named.
const NAMED: usize = 50;

/// Shows what would be reset. Once that is confirmed by the name of the cluster: writes the deletion policy, and deletes it. A reset that
/// was asked for already is asked for anew where somebody cancelled it.
pub(crate) async fn reset(global: &Global, options: &ResetCluster) -> anyhow::Result<()> {
    let client = global.client().await?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let name = options.cluster.as_str();
    let cluster = named_or_only(&clusters, Some(name)).await?;
    let anew = anew(&client, &cluster).await?;
    ensure!(
        options.confirmed.dry_run || anew.is_some() || !is_asked(&cluster),
        "nothing was done: somebody has asked for the reset of cluster {name} already; follow it with: windlass status --watch"
    );
    let layout = Layout::new(global.private_data_directory()?);
    let preview = preview::reset(&client, &cluster, &layout).await?;
    let planned = matches!(preview.outcome, PreviewOutcome::Plan(_));
    let lost = format!(
        "all of Kubernetes is removed{}, with the data of cluster {name}, which is forgotten then; a run that is at work ends first",
        places(&preview)
    );
    if !confirmed(global, preview, planned, &options.confirmed, (name, &lost))? {
        return Ok(());
    }
    ask(&clusters, name, anew.as_deref()).await?;
    say!("cluster {name} is held until Kubernetes is removed from its hosts");
    global.say("follow it with: windlass status --watch");
    Ok(())
}

/// Writes the deletion policy, with what begins a reset anew, and deletes the Cluster.
async fn ask(clusters: &Api<Cluster>, name: &str, anew: Option<&str>) -> anyhow::Result<()> {
    let mut wish = json!({"spec": {"deletionPolicy": DeletionPolicy::Reset}});
    if let Some(anew) = anew {
        wish["metadata"]["annotations"] = json!({START_AGAIN: anew});
    }
    let patch = Patch::Merge(&wish);
    let patched = clusters.patch(name, &PatchParams::default(), &patch).await;
    answered(
        patched,
        &format!("write spec.deletionPolicy of Cluster {name}"),
    )?;
    let deleted = clusters.delete(name, &DeleteParams::default()).await;
    answered(deleted, &format!("delete Cluster {name}")).with_context(|| {
        format!("the deletionPolicy of cluster {name} is Reset now, and it is not deleted: ask again, or write Retain")
    })?;
    Ok(())
}

/// Whether its reset was asked for already.
fn is_asked(cluster: &Cluster) -> bool {
    let resets = cluster.spec.deletion_policy == Some(DeletionPolicy::Reset);
    resets && cluster.meta().deletion_timestamp.is_some()
}

/// What asks for its reset anew, where that was cancelled.
async fn anew(client: &Client, cluster: &Cluster) -> anyhow::Result<Option<String>> {
    if !is_asked(cluster) {
        return Ok(None);
    }
    let name = cluster.name_any();
    let namespace = cluster.namespace().unwrap_or_default();
    let runs: Api<Run> = Api::namespaced(client.clone(), &namespace);
    let all = runs.list(&ListParams::default()).await;
    let mut runs = answered(all, "list the runs")?.items;
    runs.retain(|run| is_of(run, &name));
    runs.sort_by_cached_key(age);
    Ok(is_cancelled(&runs).then(|| Timestamp::now().to_string()))
}

/// From which hosts, as a part of a sentence.
fn places(preview: &Preview) -> String {
    let PreviewOutcome::Plan(plan) = &preview.outcome else {
        return String::new();
    };
    let targets = plan.steps.iter().flat_map(|step| plan.targets(step));
    let hosts: BTreeSet<String> = targets.map(ToString::to_string).collect();
    let more = hosts.len().saturating_sub(NAMED);
    let number = hosts.len();
    let named: Vec<String> = hosts.into_iter().take(NAMED).collect();
    let named = named.join(", ");
    match more {
        0 => format!(" from {named}"),
        more => format!(" from {number} hosts ({named} and {more} more)"),
    }
}

#[cfg(test)]
mod tests {
    use api::run::Plan;

    use super::*;
    use crate::cli::{Cli, Confirmed, Output};

    fn preview(outcome: PreviewOutcome) -> Preview {
        Preview {
            namespace: "demo".to_owned(),
            cluster: "first".to_owned(),
            outcome,
            changes: Vec::new(),
            waits: None,
            drains: Vec::new(),
            pending: Vec::new(),
        }
    }

    fn of_hosts(number: usize) -> Preview {
        let targets: Vec<_> = (0..number).map(|at| format!("host-{at:03}")).collect();
        let plan = json!({
            "digest": "d", "groups": [{"name": "all", "targets": targets}],
            "steps": [{
                "id": "prepare/probe", "title": "Ask", "groups": ["all"],
                "action": {"engine": {"name": "kubespray", "type": "Probe"}},
            }],
        });
        let plan: Plan = serde_json::from_value(plan).unwrap();
        preview(PreviewOutcome::Plan(Box::new(plan)))
    }

    #[test]
    fn hosts_are_named_so_far_as_a_person_reads() {
        assert_eq!(places(&of_hosts(2)), " from host-000, host-001");
        let many = places(&of_hosts(52));
        assert!(many.starts_with(" from 52 hosts (host-000, "), "{many}");
        assert!(many.ends_with("host-049 and 2 more)"), "{many}");
        let none = preview(PreviewOutcome::Nothing("why".to_owned()));
        assert_eq!(places(&none), "");
    }

    #[tokio::test]
    async fn a_reset_is_asked_for_once_and_anew_when_it_was_cancelled() {
        let definitions = api::custom_resource_definitions();
        let server = kapi::Server::in_memory(&definitions).await.unwrap();
        let client = Client::new(server.router(), "default");
        let clusters: Api<Cluster> = Api::namespaced(client.clone(), "default");
        let runs: Api<Run> = Api::namespaced(client.clone(), "default");
        let manager = PatchParams::apply("test");
        let cluster = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "finalizers": ["kubespray.k8s.io/cluster"]}, "spec": {},
        });
        let cluster = Patch::Apply(&cluster);
        let living = clusters.patch("first", &manager, &cluster).await.unwrap();
        assert_eq!(anew(&client, &living).await.unwrap(), None);
        ask(&clusters, "first", None).await.unwrap();
        let deleted = clusters.get("first").await.unwrap();
        assert!(is_asked(&deleted) && deleted.annotations().is_empty());
        let run = json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "first-reset-2"},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"},
                "operation": "Reset", "generation": 1, "plan": {"digest": "d", "steps": [{
                    "id": "reset/hosts", "action": {"engine": {"name": "kubespray", "type": "AnsiblePlay"}},
                }]},
            },
        });
        runs.patch("first-reset-2", &manager, &Patch::Apply(&run))
            .await
            .unwrap();
        for (phase, begins) in [("Waiting", false), ("Failed", false), ("Cancelled", true)] {
            let status = Patch::Merge(json!({"status": {"phase": phase}}));
            runs.patch_status("first-reset-2", &PatchParams::default(), &status)
                .await
                .unwrap();
            let anew = anew(&client, &deleted).await.unwrap();
            assert_eq!(anew.is_some(), begins, "{phase}");
        }
        let again = anew(&client, &deleted).await.unwrap();
        ask(&clusters, "first", again.as_deref()).await.unwrap();
        let asked = clusters.get("first").await.unwrap();
        assert_eq!(asked.annotations().get(START_AGAIN), again.as_ref());
    }

    #[test]
    fn only_the_name_of_the_cluster_confirms_its_reset() {
        let confirm = |typed: Option<&str>, dry_run| {
            let command = format!(
                "windlass -n demo reset first --confirm={}",
                typed.unwrap_or_default()
            );
            let read = Cli::read(command.split(' ').map(Into::into)).unwrap();
            let options = Confirmed {
                confirm: typed.map(str::to_owned),
                dry_run,
                output: Output::Json,
            };
            let shown = of_hosts(1);
            confirmed(
                &read.global,
                shown,
                true,
                &options,
                ("first", "all is lost"),
            )
        };
        assert!(confirm(Some("first"), false).unwrap());
        assert!(!confirm(Some("first"), true).unwrap());
        assert!(!confirm(None, true).unwrap());
        let refused = confirm(None, false).unwrap_err().to_string();
        assert_eq!(
            refused,
            "nothing was done: all is lost; if that is wanted: windlass -n demo reset first --confirm first"
        );
        let refused = confirm(Some("frist"), false).unwrap_err().to_string();
        assert!(
            refused.contains("--confirm names frist, and not first; all is lost"),
            "{refused}"
        );
    }
}
