//! `windlass reset`: removes Kubernetes from all hosts of a cluster, and has the cluster forgotten.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use api::{Cluster, cluster::DeletionPolicy};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams},
};
use kubespray::{
    Layout,
    preview::{self, Preview, PreviewOutcome},
};
use serde_json::json;

use crate::{
    cli::{Global, ResetCluster},
    client::{answered, named_or_only},
    node::confirmed,
    terminal::say,
};

/// How many hosts are named.
const NAMED: usize = 50;

/// Shows what would be reset. Once that is confirmed by the name of the cluster: writes the deletion policy, and deletes it.
pub(crate) async fn reset(global: &Global, options: &ResetCluster) -> anyhow::Result<()> {
    let client = global.client().await?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let name = options.cluster.as_str();
    let cluster = named_or_only(&clusters, Some(name)).await?;
    ensure!(
        options.confirmed.dry_run || !is_asked(&cluster),
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
    let patch = Patch::Merge(json!({"spec": {"deletionPolicy": DeletionPolicy::Reset}}));
    let patched = clusters.patch(name, &PatchParams::default(), &patch).await;
    answered(
        patched,
        &format!("write spec.deletionPolicy of Cluster {name}"),
    )?;
    let deleted = clusters.delete(name, &DeleteParams::default()).await;
    answered(deleted, &format!("delete Cluster {name}")).with_context(|| {
        format!("the deletionPolicy of cluster {name} is Reset now, and it is not deleted: ask again, or write Retain")
    })?;
    say!("cluster {name} is held until Kubernetes is removed from its hosts");
    global.say("follow it with: windlass status --watch");
    Ok(())
}

/// Whether its reset was asked for already.
fn is_asked(cluster: &Cluster) -> bool {
    let resets = cluster.spec.deletion_policy == Some(DeletionPolicy::Reset);
    resets && cluster.meta().deletion_timestamp.is_some()
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
