//! Steps after the playbook: the kubeconfig goes into a Secret, and the cluster becomes healthy.

use std::{net::IpAddr, time::Duration};

use api::{
    HostName,
    node::Health,
    run::{Failure, FailureClass, Step},
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, ResourceExt, api::ObjectMeta};
use serde_json::Value;
use tokio::{net::TcpStream, time::Instant};
use workflow::{StepContext, StepOutcome, StepProgress};

use super::{
    Job,
    executor::{KubesprayExecutor, failed, hold, succeeded},
    workspace::{disk, failure},
};
use crate::{
    health::{self, Expected, Report},
    secret::{self, KUBECONFIG_KEY},
};

/// How long the API server's address may take to answer.
const CONNECT: Duration = Duration::from_secs(3);
/// How often a cluster that is not healthy yet is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How long a cluster may take to become healthy where the step says nothing.
const DEADLINE: Duration = Duration::from_mins(15);
/// The name that every API server certificate of kubeadm has.
///
/// # Source
/// kubeadm `cmd/kubeadm/app/util/pkiutil`, `GetAPIServerAltNames`.
const SERVER_NAME: &str = "kubernetes";

/// Stores the kubeconfig that the playbooks left on this machine.
pub(crate) async fn kubeconfig(executor: &KubesprayExecutor, name: &str) -> StepOutcome {
    let job = &executor.job;
    let path = executor
        .workspace
        .directories()
        .artifacts
        .join("admin.conf");
    let text = match tokio::fs::read_to_string(&path).await {
        Ok(text) => text,
        Err(error) => {
            return failed(failure(
                FailureClass::Permanent,
                "NoKubeconfig",
                format!(
                    "the playbooks left no kubeconfig at {}: {error}",
                    path.display()
                ),
                Some("leave kubeconfig_localhost true, then retry the run"),
            ));
        }
    };
    let text = match reachable(&text, &addresses(job)).await {
        Ok(text) => text,
        Err(failure) => return failed(failure),
    };
    match store(job, name, text).await {
        Ok(()) => {
            // From here on it is in the Secret and nowhere else; the playbooks bring it anew whenever they run.
            if let Err(error) = tokio::fs::remove_file(&path).await {
                return failed(disk(&path, &error));
            }
            succeeded(Some(format!("stored in Secret {name}")))
        }
        Err(error) => failed(failure(
            FailureClass::Transient,
            "SecretUnwritable",
            format!("Secret {name} cannot be written: {}", crate::chain(&error)),
            None,
        )),
    }
}

/// The addresses of the control plane, the one for other hosts first.
fn addresses(job: &Job) -> Vec<String> {
    let inputs = &job.inputs;
    let hosts = inputs.group("kube_control_plane").iter();
    hosts
        .filter_map(|name| inputs.hosts.iter().find(|host| host.name == name.as_str()))
        .flat_map(|host| {
            let variables = &host.variables;
            [
                variables.access_ip.clone(),
                variables.ip.clone(),
                Some(variables.ansible_host.clone()),
            ]
        })
        .flatten()
        .collect()
}

/// The kubeconfig with an address that answers from here. An address that is not in the server's certificate is checked
/// against a name that is.
async fn reachable(text: &str, addresses: &[String]) -> Result<String, Failure> {
    let unreadable = |error: String| {
        failure(
            FailureClass::Permanent,
            "BadKubeconfig",
            format!("the kubeconfig of the first control-plane host cannot be read: {error}"),
            None,
        )
    };
    let mut config: Value =
        serde_saphyr::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    let server = config
        .pointer("/clusters/0/cluster/server")
        .and_then(Value::as_str)
        .ok_or_else(|| unreadable("it names no server".to_owned()))?
        .to_owned();
    let (host, port) =
        split(&server).ok_or_else(|| unreadable(format!("{server} is no address")))?;
    let own = Some(host.clone()).filter(|host| !is_local(host));
    let mut tried = Vec::new();
    for address in own.iter().chain(addresses) {
        if tried.contains(address) {
            continue;
        }
        let connect = TcpStream::connect((address.as_str(), port));
        if matches!(tokio::time::timeout(CONNECT, connect).await, Ok(Ok(_))) {
            if *address != host
                && let Some(cluster) = config
                    .pointer_mut("/clusters/0/cluster")
                    .and_then(Value::as_object_mut)
            {
                cluster.insert("server".to_owned(), url(address, port).into());
                cluster.insert("tls-server-name".to_owned(), SERVER_NAME.into());
            }
            return serde_saphyr::to_string(&config).map_err(|error| unreadable(error.to_string()));
        }
        tried.push(address.clone());
    }
    Err(failure(
        FailureClass::Transient,
        "APIServerUnreachable",
        format!(
            "the API server does not answer on port {port} of {}",
            tried.join(", ")
        ),
        Some("let this machine reach the control-plane hosts on that port, then retry the run"),
    ))
}

fn split(server: &str) -> Option<(String, u16)> {
    let rest = server.strip_prefix("https://")?.trim_end_matches('/');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (rest, 443),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port))
}

fn url(address: &str, port: u16) -> String {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) => format!("https://[{address}]:{port}"),
        _ => format!("https://{address}:{port}"),
    }
}

fn is_local(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback() || address.is_unspecified())
}

async fn store(job: &Job, name: &str, text: String) -> Result<(), controller::apply::Error> {
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(job.namespace()),
            labels: Some([("windlass.dev/cluster".to_owned(), job.cluster().to_owned())].into()),
            // The Secret goes with its Cluster, whose owner reference the Run carries.
            owner_references: Some(job.run.owner_references().to_vec()),
            ..ObjectMeta::default()
        },
        data: Some([(KUBECONFIG_KEY.to_owned(), ByteString(text.into_bytes()))].into()),
        ..Secret::default()
    };
    let api = Api::<Secret>::namespaced(job.client.clone(), &job.namespace());
    controller::apply::apply(&api, "windlass-runner", &secret, None).await
}

/// Waits until the cluster is healthy, without the hosts that were left out.
pub(crate) async fn health(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    let job = &executor.job;
    let left_out = |name: &HostName| context.excluded.iter().any(|host| host.host == *name);
    let expected = Expected {
        nodes: job
            .inputs
            .members()
            .into_iter()
            .filter(|name| !left_out(name))
            .collect(),
        renew: job.inputs.renew.into(),
    };
    let limit = step.timeout.map_or(DEADLINE, Duration::from);
    // Ends before the step's timeout does, to say what is not healthy rather than that time is up.
    let deadline = Instant::now() + limit.mul_f64(0.95);
    loop {
        if let Some(outcome) = hold(step, context).await {
            return outcome;
        }
        let trouble = match look(job, &expected).await {
            Ok(report) if is_good(&report) => {
                return succeeded(Some(format!(
                    "{}; {}",
                    report.nodes.message, report.certificates.message
                )));
            }
            Ok(report) => report.trouble(),
            Err(error) => error,
        };
        if Instant::now() >= deadline {
            return failed(failure(
                FailureClass::Transient,
                "Unhealthy",
                format!(
                    "the cluster did not become healthy within {} s: {trouble}",
                    limit.as_secs()
                ),
                Some("look at the named parts, then retry the run"),
            ));
        }
        let progress = StepProgress {
            task: Some(trouble),
            ..StepProgress::default()
        };
        if context.reporter.progress(&step.id, progress).await.is_err() {
            return StepOutcome::Interrupted { detail: None };
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A certificate that ends soon is no reason to wait.
fn is_good(report: &Report) -> bool {
    [&report.api_server, &report.etcd, &report.nodes]
        .iter()
        .all(|check| check.health == Health::Ok)
        && report.certificates.health != Health::Err
}

async fn look(job: &Job, expected: &Expected) -> Result<Report, String> {
    let kubeconfig = secret::read_kubeconfig(&job.client, &job.namespace(), job.cluster())
        .await
        .map_err(|error| format!("the kubeconfig Secret cannot be read: {error}"))?
        .ok_or("the kubeconfig Secret is not there")?;
    health::probe(&kubeconfig, expected)
        .await
        .map_err(|error| crate::chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_taken_apart_and_put_together() {
        for (server, host, port) in [
            ("https://10.0.0.1:6443", "10.0.0.1", 6443),
            ("https://[fd00::1]:6443", "fd00::1", 6443),
            ("https://api.example.com", "api.example.com", 443),
        ] {
            assert_eq!(split(server), Some((host.to_owned(), port)), "{server}");
        }
        assert_eq!(url("fd00::1", 6443), "https://[fd00::1]:6443");
        assert_eq!(split("http://10.0.0.1"), None);
    }

    #[tokio::test]
    async fn a_local_address_is_replaced_by_one_that_answers() {
        // 127.0.0.2 stands for a host's address: it answers here, and is not the one that the file names.
        let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: a\n  cluster:\n    server: https://127.0.0.1:{port}\n"
        );
        let mended = reachable(&text, &["127.0.0.2".to_owned()]).await.unwrap();
        let config: Value = serde_saphyr::from_str(&mended).unwrap();
        let cluster = config.pointer("/clusters/0/cluster").unwrap();
        assert_eq!(cluster["server"], format!("https://127.0.0.2:{port}"));
        assert_eq!(cluster["tls-server-name"], SERVER_NAME);

        // Nobody listens on port 1. A port that was just given back could be had by anybody.
        let text = "clusters: [{cluster: {server: 'https://127.0.0.1:1'}}]";
        let error = reachable(text, &["127.0.0.2".to_owned()])
            .await
            .unwrap_err();
        assert_eq!(error.code, "APIServerUnreachable");
    }
}
