//! The step that proves that the nodes of an adopted cluster are those that its objects name. Reads only.

use api::{
    HostName, KubernetesVersion,
    run::{Failure, FailureClass, Step},
};
use k8s_openapi::api::core::v1::Node;
use workflow::{StepContext, StepOutcome};

use super::{
    drain::{connect, first, unanswered},
    executor::{KubesprayExecutor, failed, succeeded},
    work::PATIENCE,
    workspace::failure,
};
use crate::action;

/// Proves that the hosts of the step are nodes of the cluster, and run the version.
pub(crate) async fn versions(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    wanted: KubernetesVersion,
) -> StepOutcome {
    let left_out = action::hosts_left_out(&context.excluded);
    let mut hosts = action::hosts_of(executor.work.plan.plan(), step);
    hosts.retain(|host| !left_out.contains(host));
    let looked = async {
        let cluster = connect(&executor.work, PATIENCE).await?;
        let mut differs = Vec::new();
        for host in &hosts {
            differs.extend(difference(host, cluster.node(host).await?.as_ref(), wanted));
        }
        Ok::<_, String>(differs)
    };
    match looked.await {
        Ok(differs) if differs.is_empty() => succeeded(Some(format!(
            "{} nodes run Kubernetes {wanted}",
            hosts.len()
        ))),
        Ok(differs) => failed(refused(&differs)),
        Err(error) => failed(unanswered(error)),
    }
}

/// What differs of one node.
fn difference(host: &HostName, node: Option<&Node>, wanted: KubernetesVersion) -> Option<String> {
    let Some(node) = node else {
        return Some(format!("the cluster has no node {host}"));
    };
    let status = node.status.as_ref();
    let info = status.and_then(|status| status.node_info.as_ref());
    let runs: Option<KubernetesVersion> = info.and_then(|info| info.kubelet_version.parse().ok());
    match runs {
        Some(runs) if runs == wanted => None,
        Some(runs) => Some(format!("{host} runs {runs}, not {wanted}")),
        None => Some(format!("{host} does not say which version it runs")),
    }
}

fn refused(differs: &[String]) -> Failure {
    failure(
        FailureClass::External,
        "NodesDiffer",
        format!("the objects contradict the cluster: {}", first(differs)),
        Some(
            "write the version that all nodes run into spec.kubernetesVersion, or take hosts out that are no nodes of the cluster: \
             what the spec says then is planned anew",
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_node_that_is_missing_or_of_another_version_is_named() {
        let node = |version: &str| -> Node {
            from_value(json!({"status": {"nodeInfo": {
                "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "", "kubeletVersion": version,
            }}}))
            .unwrap()
        };
        let wanted = KubernetesVersion::new(1, 34, 3);
        let host = "w1".parse().unwrap();
        let said = |node: Option<Node>| difference(&host, node.as_ref(), wanted);
        assert_eq!(said(Some(node("v1.34.3"))), None);
        let other = said(Some(node("v1.33.1")));
        assert_eq!(other.as_deref(), Some("w1 runs 1.33.1, not 1.34.3"));
        let strange = said(Some(node("soon")));
        assert_eq!(
            strange.as_deref(),
            Some("w1 does not say which version it runs")
        );
        let missing = said(None);
        assert_eq!(missing.as_deref(), Some("the cluster has no node w1"));
    }
}
