//! The step that waits until API servers run with the members that etcd has.
//!
//! The kubelet takes settings that a play wrote up by itself, after a while, and says so by the pod that it shows for the API server.

use std::{net::IpAddr, time::Duration};

use api::{
    node::Role,
    run::{FailureClass, Step},
};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;
use workflow::{StepContext, StepOutcome, StepProgress};

use super::{
    drain,
    executor::{KubesprayExecutor, failed, hold_within, succeeded},
    workspace::failure,
};
use crate::{
    action,
    etcd::host_of,
    inputs::{Host, Inputs},
};

/// How often is looked.
const LOOK: Duration = Duration::from_secs(2);
/// How long a step may take that says nothing.
const DEADLINE: Duration = Duration::from_mins(5);
/// The argument with the members.
const SERVERS: &str = "--etcd-servers=";

/// Waits for the API servers of the step's hosts.
pub(crate) async fn wait(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    let left_out = action::hosts_left_out(&context.excluded);
    let mut hosts = action::hosts_of(executor.work.plan.plan(), step);
    hosts.retain(|host| !left_out.contains(host));
    let inputs = executor.work.inputs.clone().left();
    let limit = step.timeout.map_or(DEADLINE, Duration::from);
    // Ends before the step's timeout does, to say what is missing rather than that time is up.
    let mut deadline = Instant::now() + limit.mul_f64(0.95);
    loop {
        if let Err(outcome) = hold_within(step, context, &mut deadline).await {
            return outcome;
        }
        let looked = async {
            let cluster = drain::connect(&executor.work, Duration::ZERO).await?;
            let mut late = Vec::new();
            for host in &hosts {
                let pod = cluster.api_server(host).await?;
                late.extend(lacks(pod.as_ref(), &inputs).map(|why| format!("{host} {why}")));
            }
            Ok::<_, String>(late)
        };
        let trouble = match looked.await {
            Ok(late) if late.is_empty() => {
                let members = members(&inputs).count();
                return succeeded(Some(format!("they name {members} members of etcd")));
            }
            Ok(late) => format!("API servers: {}", late.join(", ")),
            Err(error) => error,
        };
        if Instant::now() >= deadline {
            return failed(failure(
                FailureClass::Transient,
                "APIServerOutdated",
                trouble,
                Some(
                    "look at /etc/kubernetes/manifests/kube-apiserver.yaml and the kubelet there, then retry the run",
                ),
            ));
        }
        let progress = StepProgress {
            activity: Some(trouble),
            ..StepProgress::default()
        };
        if context.reporter.progress(&step.id, progress).await.is_err() {
            return StepOutcome::Interrupted { detail: None };
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What the pod of an API server lacks of one that runs with the members of the cluster.
fn lacks(pod: Option<&Pod>, inputs: &Inputs) -> Option<&'static str> {
    let Some(pod) = pod else {
        return Some("has none");
    };
    let servers = servers(pod);
    let known = |host: &Host| {
        let mut addresses = host
            .addresses()
            .filter(|address| address.parse::<IpAddr>().is_ok());
        // Of one that is known by a name alone nobody knows here what others call it.
        let first = addresses.next();
        let mut all = first.into_iter().chain(addresses);
        first.is_none() || all.any(|address| servers.iter().any(|server| server == address))
    };
    if servers.len() != members(inputs).count() || !members(inputs).all(known) {
        return Some("still runs with other members of etcd");
    }
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten();
    let mut ready = ready.filter(|condition| condition.type_ == "Ready");
    (!ready.any(|condition| condition.status == "True")).then_some("is not ready yet")
}

/// The hosts of etcd that an API server was started with.
fn servers(pod: &Pod) -> Vec<String> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let words = containers.flat_map(|container| {
        let command = container.command.iter().flatten();
        command.chain(container.args.iter().flatten())
    });
    let servers = words.filter_map(|word| word.strip_prefix(SERVERS));
    servers
        .flat_map(|list| list.split(','))
        .filter_map(host_of)
        .collect()
}

fn members(inputs: &Inputs) -> impl Iterator<Item = &Host> {
    inputs.hosts.iter().filter(|host| host.has(Role::Etcd))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(servers: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "kube-apiserver-a"},
            "spec": {"containers": [{"name": "a", "command": ["kube-apiserver", format!("--etcd-servers={servers}"), "--v=2"]}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn inputs() -> Inputs {
        let host = |name: &str, roles: &[&str], address: &str| json!({"name": name, "roles": roles, "variables": {"ansible_host": address}});
        serde_json::from_value(json!({
            "kubespray": "2.30.0", "source": {"origin": "", "digest": ""}, "renew": "1d",
            "ssh": {"user": "root", "port": 22, "connectTimeout": "5s"},
            "hosts": [
                host("a", &["control-plane", "etcd"], "10.0.0.1"),
                host("b", &["control-plane", "etcd"], "10.0.0.2"),
                host("c", &["worker"], "10.0.0.3"),
            ],
        }))
        .unwrap()
    }

    #[test]
    fn an_api_server_is_up_to_date_when_it_runs_with_the_members_that_there_are() {
        let both = "https://10.0.0.1:2379,https://10.0.0.2:2379";
        let inputs = inputs();
        let of = |servers: &str, ready: &str| lacks(Some(&pod(servers, ready)), &inputs);
        assert_eq!(of(both, "True"), None);
        assert_eq!(of(both, "False"), Some("is not ready yet"));
        for other in [
            "https://10.0.0.1:2379",
            "https://10.0.0.1:2379,https://10.0.0.3:2379",
            "https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.4:2379",
        ] {
            assert_eq!(
                of(other, "True"),
                Some("still runs with other members of etcd"),
                "{other}"
            );
        }
        assert_eq!(lacks(None, &inputs), Some("has none"));
    }
}
