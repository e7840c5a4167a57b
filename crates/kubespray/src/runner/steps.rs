//! Steps after the playbook: the kubeconfig goes into a Secret, and the cluster becomes healthy.

use std::{
    iter,
    path::{Path, PathBuf},
    time::Duration,
};

use api::{
    HostName,
    node::Health,
    run::{Failure, FailureClass, Step},
};
use controller::{
    apply, away,
    kubeconfig::{self, Foreign, Server},
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, ResourceExt, api::ObjectMeta};
use secrecy::ExposeSecret;
use tokio::{io::AsyncReadExt, net::TcpStream, time::Instant};
use workflow::{StepContext, StepOutcome, StepProgress};

use super::{
    executor::{KubesprayExecutor, failed, hold_within, succeeded},
    plays,
    work::{ClusterWork, PATIENCE},
    workspace::failure,
};
use crate::{
    action::{self, Kubeconfig},
    certificates::Served,
    health::{self, Expected, Report},
    playbooks::Own,
    secret::KUBECONFIG_KEY,
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

/// The annotation of the kubeconfig Secret that says by which step of which run it was stored.
const STORED_BY: &str = "windlass.dev/stored-by";

/// Stores the kubeconfig that the playbooks left on this machine. It may have been stored before, and that not be in the journal;
/// or be lost before it was stored, with the volume of an earlier pod: then it is brought anew.
pub(crate) async fn kubeconfig(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    wanted: &Kubeconfig,
) -> StepOutcome {
    match stored(executor, step, context, wanted).await {
        Ok(detail) => succeeded(Some(detail)),
        Err(outcome) => outcome,
    }
}

async fn stored(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    wanted: &Kubeconfig,
) -> Result<String, StepOutcome> {
    let work = &executor.work;
    let name = &wanted.secret;
    let path = left(executor);
    let mark = format!("{}/{}", work.run.uid().unwrap_or_default(), step.id);
    if !is_there(&path).await {
        let secret = executor
            .workspace
            .secret(name, PATIENCE)
            .await
            .map_err(failed)?;
        if secret.is_some_and(|secret| is_marked(&secret, &mark)) {
            return Ok(format!("stored in Secret {name} before"));
        }
        let playbook = wanted.own.as_deref();
        let planned = playbook.ok_or_else(|| failed(lost(&path)))?;
        plays::within(executor, (Own::Kubeconfig.name(), planned), step, context).await?;
    }
    let bytes = read(&path)
        .await
        .map_err(|error| failed(unread(&path, &error)))?;
    let config = rebuild(&bytes).map_err(failed)?;
    let config = reachable(config, &addresses(work), answers)
        .await
        .map_err(failed)?;
    store(work, name, &mark, &config).await.map_err(|error| {
        failed(failure(
            FailureClass::Transient,
            "SecretUnwritable",
            format!("Secret {name} cannot be written: {}", crate::chain(&error)),
            None,
        ))
    })?;
    Ok(format!("stored in Secret {name}"))
}

/// Where the playbooks leave the kubeconfig.
fn left(executor: &KubesprayExecutor) -> PathBuf {
    let directories = executor.workspace.directories();
    directories.artifacts.join("admin.conf")
}

async fn is_there(path: &Path) -> bool {
    tokio::fs::try_exists(path).await.unwrap_or(true)
}

fn is_marked(secret: &Secret, mark: &str) -> bool {
    let filled = secret.data.as_ref();
    let filled = filled.is_some_and(|data| data.contains_key(KUBECONFIG_KEY));
    filled && secret.annotations().get(STORED_BY).map(String::as_str) == Some(mark)
}

/// Removes the file that was stored: it is in the Secret then, and nowhere else. Only once that is in the journal, as the step could
/// not be repeated otherwise. The playbooks bring it anew whenever they run.
pub(crate) async fn forget_kubeconfig(executor: &KubesprayExecutor) {
    let path = left(executor);
    if let Err(error) = tokio::fs::remove_file(&path).await
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), error = &error as &dyn std::error::Error, "the kubeconfig that was stored is still there");
    }
}

/// Of a plan of an earlier Windlass, which does not bring it anew.
fn lost(path: &Path) -> Failure {
    failure(
        FailureClass::Permanent,
        "NoKubeconfig",
        format!(
            "the kubeconfig that the playbooks left at {} is gone",
            path.display()
        ),
        Some(
            "cancel the run: what it was for is planned anew, with a step that brings the kubeconfig again",
        ),
    )
}

fn unread(path: &Path, error: &std::io::Error) -> Failure {
    failure(
        FailureClass::Permanent,
        "NoKubeconfig",
        format!(
            "the kubeconfig of the first control-plane host cannot be read at {}: {error}",
            path.display()
        ),
        Some("let this user read and write there, then retry the run"),
    )
}

/// The addresses of the control plane, the one for other hosts first.
fn addresses(work: &ClusterWork) -> Vec<String> {
    let inputs = &work.inputs;
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

/// What stands in the file, up to a byte more than is looked at: a host wrote it.
async fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = tokio::fs::File::open(path).await?;
    let mut bytes = Vec::new();
    let limit = kubeconfig::LIMIT.saturating_add(1);
    file.take(u64::try_from(limit).unwrap_or(u64::MAX))
        .read_to_end(&mut bytes)
        .await?;
    Ok(bytes)
}

/// The kubeconfig of the host without what must not be in it.
fn rebuild(bytes: &[u8]) -> Result<Foreign, Failure> {
    Foreign::read(bytes).map_err(|refusal| {
        failure(
            FailureClass::Permanent,
            "BadKubeconfig",
            format!("the kubeconfig of the first control-plane host is refused: {refusal}"),
            Some("find out who changed /etc/kubernetes/admin.conf there, mend it, then retry the run"),
        )
    })
}

/// The kubeconfig with an address that answers from here. An address that is not in the server's certificate is checked
/// against a name that is.
async fn reachable(
    config: Foreign,
    addresses: &[String],
    answers: impl AsyncFn(&str, u16) -> std::io::Result<()>,
) -> Result<Foreign, Failure> {
    let Server { host, port, .. } = config.server().clone();
    let mut tried: Vec<(&String, std::io::Error)> = Vec::new();
    for address in iter::once(&host).chain(addresses) {
        if tried.iter().any(|(tried, _)| *tried == address) {
            continue;
        }
        match answers(address, port).await {
            Ok(()) if *address == host => return Ok(config),
            Ok(()) => return Ok(config.at(address, port, SERVER_NAME)),
            Err(error) => tried.push((address, error)),
        }
    }
    let tried: Vec<_> = tried
        .iter()
        .map(|(address, error)| format!("{address} ({error})"))
        .collect();
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

/// Whether somebody listens there, on an address where a cluster can be.
async fn answers(host: &str, port: u16) -> std::io::Result<()> {
    let connect = async {
        let addresses = kubeconfig::addresses(host, port).await?;
        TcpStream::connect(addresses.as_slice()).await.map(drop)
    };
    tokio::time::timeout(CONNECT, connect)
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

async fn store(
    work: &ClusterWork,
    name: &str,
    mark: &str,
    config: &Foreign,
) -> Result<(), away::Error<apply::Error>> {
    let document = config.document().expose_secret().as_bytes().to_vec();
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(work.namespace()),
            labels: Some([("windlass.dev/cluster".to_owned(), work.cluster().to_owned())].into()),
            annotations: Some([(STORED_BY.to_owned(), mark.to_owned())].into()),
            // The Secret goes with its Cluster, whose owner reference the Run carries.
            owner_references: Some(work.run.owner_references().to_vec()),
            ..ObjectMeta::default()
        },
        data: Some([(KUBECONFIG_KEY.to_owned(), ByteString(document))].into()),
        ..Secret::default()
    };
    let api = Api::<Secret>::namespaced(work.client.clone(), &work.namespace());
    away::outlive(PATIENCE, apply::Error::is_away, || {
        apply::apply(&api, "windlass-runner", &secret, None)
    })
    .await
}

/// Waits until the cluster is healthy, and those of its nodes that the step names, without the hosts that were left out.
pub(crate) async fn health(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    let work = &executor.work;
    let left_out = |name: &HostName| {
        context
            .excluded
            .iter()
            .any(|left_out| left_out.target == *name)
    };
    let nodes = action::hosts_of(work.plan.plan(), step).into_iter();
    let expected = Expected {
        nodes: nodes.filter(|name| !left_out(name)).collect(),
        renew: work.inputs.renew.into(),
        places: Vec::new(),
        since: None,
    };
    let limit = step.timeout.map_or(DEADLINE, Duration::from);
    // Ends before the step's timeout does, to say what is not healthy rather than that time is up.
    let mut deadline = Instant::now() + limit.mul_f64(0.95);
    loop {
        if let Err(outcome) = hold_within(step, context, &mut deadline).await {
            return outcome;
        }
        let trouble = match look(work, &expected).await {
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
            activity: Some(trouble),
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

async fn look(work: &ClusterWork, expected: &Expected) -> Result<Report, String> {
    let kubeconfig = work.access(Duration::ZERO).await?;
    health::probe(&kubeconfig, expected, &Served::default())
        .await
        .map_err(|error| crate::chain(&error))
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use serde_json::json;

    use super::*;

    fn fetched(server: &str, user: &serde_json::Value) -> Vec<u8> {
        let authority = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).unwrap();
        let authority = base64::engine::general_purpose::STANDARD.encode(authority.cert.pem());
        json!({
            "clusters": [{"name": "a", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
            "users": [{"name": "a", "user": user}],
        })
        .to_string()
        .into_bytes()
    }

    #[tokio::test]
    async fn a_local_address_is_replaced_by_one_that_answers() {
        let config =
            || rebuild(&fetched("https://127.0.0.1:6443", &json!({"token": "t"}))).unwrap();
        let addresses = ["10.0.0.1".to_owned(), "10.0.0.2".to_owned()];
        // The first host is away, and this machine has a server of its own, which is not the cluster's.
        let world = async |host: &str, port: u16| match host {
            "10.0.0.2" => Ok(()),
            "10.0.0.1" => Err(std::io::ErrorKind::ConnectionRefused.into()),
            _ => answers(host, port).await,
        };
        let mended = reachable(config(), &addresses, world).await.unwrap();
        assert_eq!(mended.server().to_string(), "https://10.0.0.2:6443");
        let document = mended.document();
        assert!(document.expose_secret().contains(SERVER_NAME));

        let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = config().at("localhost", port, SERVER_NAME);
        let error = reachable(config, &["127.0.0.2".to_owned()], answers)
            .await
            .unwrap_err();
        assert_eq!(error.code, "APIServerUnreachable");
        assert!(
            error.message.contains("127.0.0.2 (is loopback"),
            "{}",
            error.message
        );
    }

    #[test]
    fn a_secret_tells_by_which_step_of_which_run_it_was_stored() {
        let secret = |mark: &str, key: &str| Secret {
            metadata: ObjectMeta {
                annotations: Some([(STORED_BY.to_owned(), mark.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([(key.to_owned(), ByteString(Vec::new()))].into()),
            ..Secret::default()
        };
        let mark = "u-1/kubeconfig/store";
        assert!(is_marked(&secret(mark, KUBECONFIG_KEY), mark));
        for other in ["u-2/kubeconfig/store", "u-1/recover/kubeconfig", ""] {
            assert!(!is_marked(&secret(other, KUBECONFIG_KEY), mark), "{other}");
        }
        assert!(!is_marked(&secret(mark, "other"), mark));
        assert!(!is_marked(&Secret::default(), mark));
    }

    #[test]
    fn a_kubeconfig_of_a_host_that_runs_something_is_not_stored() {
        let user = json!({"exec": {"command": "touch", "args": ["/tmp/x"]}});
        let error = rebuild(&fetched("https://10.0.0.1:6443", &user)).unwrap_err();
        assert_eq!(error.code, "BadKubeconfig");
        assert!(
            error.message.contains("users[0].user.exec"),
            "{}",
            error.message
        );
    }
}
