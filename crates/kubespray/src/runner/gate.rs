//! The step between two batches of an upgrade: it ends when the cluster is well with the nodes that were worked on.
//!
//! What was not well before the first host was touched is no reason to stay: it is noted then, in a file of the run. Where that
//! is lost, nothing is forgiven.
//!
//! A node that took pods then takes them again here. A play that is repeated, because its runner was killed, finds the node cordoned,
//! and kubespray leaves it so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ansible::write_private;
use api::{
    HostName,
    cluster::PodGate,
    node::Health,
    run::{Failure, FailureClass, Step},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ContainerStatus, Pod},
};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use workflow::{StepContext, StepOutcome, StepProgress};

use super::{
    drain::{connect, first, named},
    executor::{KubesprayExecutor, failed, hold_within, succeeded},
    work::ClusterWork,
    workspace::{disk, failure},
};
use crate::{
    action::{self, Gate},
    certificates::Served,
    health::{self, Expected, Report},
    workload::{Workload, is_ready_pod, is_rolled_out},
};

/// How often is looked.
const LOOK: Duration = Duration::from_secs(2);
/// How long the cluster may take where the step says nothing.
const DEADLINE: Duration = Duration::from_mins(10);
/// Where the pods of Kubernetes itself are.
const SYSTEM: &str = "kube-system";
/// What one of the control planes does for the cluster. Until one has taken it over from one that was restarted, up to 15 s, nobody
/// tells nodes that a pod is ending: a drain then ends pods to which requests still go.
const LEADERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];
/// How long the beginning waits for somebody who leads, before it takes a cluster without for one that wants it so.
const TAKEN_OVER: Duration = Duration::from_secs(45);

/// What was not well when the run began.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct Earlier {
    /// Containers in a crash loop.
    crashing: BTreeSet<String>,
    /// Nodes that take no pods.
    cordoned: BTreeSet<String>,
    /// Daemons of the system that some node lacks, or has an old one of.
    #[serde(default)]
    rolling: BTreeSet<String>,
    /// What nobody leads.
    #[serde(default)]
    idle: BTreeSet<String>,
}

/// What one look found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Look {
    found: Earlier,
    /// What there is to wait for beside that.
    trouble: Vec<String>,
}

impl Look {
    /// What there is to wait for, given what was not well before.
    fn since(&self, earlier: &Earlier) -> Vec<String> {
        let crashing = self.found.crashing.difference(&earlier.crashing);
        let crashing = crashing.map(|name| format!("{name} is in a crash loop"));
        let cordoned = self.found.cordoned.difference(&earlier.cordoned);
        let cordoned = cordoned.map(|name| format!("{name} takes no pods"));
        let rolling = self.found.rolling.difference(&earlier.rolling);
        let rolling = rolling.map(|name| format!("{name} is not rolled out to every node"));
        let idle = self.found.idle.difference(&earlier.idle);
        let idle = idle.map(|name| format!("no {name} has taken over yet"));
        let trouble = self.trouble.iter().cloned();
        trouble
            .chain(crashing)
            .chain(cordoned)
            .chain(rolling)
            .chain(idle)
            .collect()
    }
}

/// Waits until the cluster is well, and stays so for as long as is asked.
pub(crate) async fn gate(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    gate: &Gate,
) -> StepOutcome {
    let work = &executor.work;
    let soak = Duration::from(gate.soak);
    let limit = step.timeout.map_or(DEADLINE, Duration::from);
    // Ends before the step's timeout does, to say what is not well rather than that time is up.
    let mut deadline = Instant::now() + limit.mul_f64(0.95);
    let mut well: Option<Instant> = None;
    let (began, mut led) = (Instant::now(), BTreeMap::new());
    loop {
        match hold_within(step, context, &mut deadline).await {
            Err(outcome) => return outcome,
            // Nobody has looked meanwhile.
            Ok(true) => well = None,
            Ok(false) => {}
        }
        let found = look(work, step, gate, &mut led).await;
        let trouble = match &found {
            Ok(look) if gate.begins => {
                let mut noted = before(work, gate, look);
                if began.elapsed() < TAKEN_OVER {
                    noted.idle.clear();
                }
                look.since(&noted)
            }
            Ok(look) => since(work, look).await,
            Err(error) => vec![error.clone()],
        };
        let activity = if let (Ok(look), true) = (&found, trouble.is_empty()) {
            let since = *well.get_or_insert_with(Instant::now);
            if since.elapsed() >= soak {
                return met(work, gate, look);
            }
            format!(
                "well for {} of {} s",
                since.elapsed().as_secs(),
                soak.as_secs()
            )
        } else {
            well = None;
            first(&trouble)
        };
        if Instant::now() >= deadline {
            return failed(not_met(limit, &activity, gate));
        }
        let progress = StepProgress {
            activity: Some(activity),
            ..StepProgress::default()
        };
        if context.reporter.progress(&step.id, progress).await.is_err() {
            return StepOutcome::Interrupted { detail: None };
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What there is to wait for since the run began. Nodes that took pods then are let take them.
async fn since(work: &ClusterWork, look: &Look) -> Vec<String> {
    let Some(earlier) = earlier(&work.directory) else {
        return look.since(&Earlier::default());
    };
    for host in look.found.cordoned.difference(&earlier.cordoned) {
        if let Err(error) = uncordon(work, host).await {
            return vec![error];
        }
    }
    look.since(&earlier)
}

async fn uncordon(work: &ClusterWork, host: &str) -> Result<(), String> {
    let cluster = connect(work, Duration::ZERO).await?;
    let host = host.parse().map_err(|_| format!("{host} is no host"))?;
    match cluster.node(&host).await? {
        Some(node) => cluster.let_in(&node).await,
        None => Ok(()),
    }
}

/// The end of a gate that is met.
fn met(work: &ClusterWork, gate: &Gate, look: &Look) -> StepOutcome {
    if !gate.begins {
        return succeeded(None);
    }
    let path = notes(&work.directory);
    let before = before(work, gate, look);
    let noted = Earlier {
        cordoned: taken_back(gate, &before.cordoned),
        ..before
    };
    let text = serde_json::to_vec(&noted).unwrap_or_default();
    if let Err(error) = write_private(&path, &text) {
        return failed(disk(&path, &error));
    }
    let found = look.since(&Earlier::default());
    succeeded((!found.is_empty()).then(|| format!("already before: {}", first(&found))))
}

fn not_met(limit: Duration, trouble: &str, gate: &Gate) -> Failure {
    let (where_it_stands, remedy) = if gate.begins {
        (
            "no host has been touched",
            "see to that, then retry the run; or take the version back in the spec",
        )
    } else {
        (
            "the other hosts have not been touched",
            "see to that, then retry the run; or go on all the same: windlass skip",
        )
    };
    failure(
        FailureClass::External,
        "GateNotMet",
        format!(
            "the cluster was not well within {} s, and {where_it_stands}: {trouble}",
            limit.as_secs()
        ),
        Some(remedy),
    )
}

/// What is no reason to stay at the beginning: what is not well now, and after another run was ended, of the crash loops and the
/// daemons those only that it had found. Where what it noted is lost, none of them.
fn before(work: &ClusterWork, gate: &Gate, look: &Look) -> Earlier {
    let Some(after) = &gate.after else {
        return look.found.clone();
    };
    let runs = work.directory.parent();
    let noted = runs.and_then(|runs| earlier(&runs.join(&after.run)));
    Earlier {
        cordoned: look.found.cordoned.clone(),
        ..noted.unwrap_or_default()
    }
}

/// The nodes that take no pods because somebody wants it so, not because the run before was ended.
fn taken_back(gate: &Gate, cordoned: &BTreeSet<String>) -> BTreeSet<String> {
    let halfway = gate.after.iter().flat_map(|after| &after.halfway);
    let halfway: BTreeSet<_> = halfway.map(ToString::to_string).collect();
    cordoned.difference(&halfway).cloned().collect()
}

fn notes(directory: &Path) -> PathBuf {
    directory.join("not-well-before.json")
}

/// What a run noted; none: it is lost.
fn earlier(directory: &Path) -> Option<Earlier> {
    serde_json::from_slice(&fs::read(notes(directory)).ok()?).ok()
}

/// Looks at the cluster once.
///
/// `led` is who led when, as the first look found it.
async fn look(
    work: &ClusterWork,
    step: &Step,
    gate: &Gate,
    led: &mut BTreeMap<&'static str, Option<Timestamp>>,
) -> Result<Look, String> {
    let kubeconfig = work.access(Duration::ZERO).await?;
    let expected = Expected {
        nodes: work.inputs.members(),
        renew: work.inputs.renew.into(),
        places: Vec::new(),
        since: None,
    };
    let report = health::probe(&kubeconfig, &expected, &Served::default())
        .await
        .map_err(|error| crate::chain(&error))?;
    let hosts = action::hosts_of(work.plan.plan(), step);
    let mut trouble = of_report(&report, &hosts, gate);
    // Nothing more is to be learnt of an API that does not answer.
    if report.api_server.health != Health::Ok {
        return Ok(Look {
            trouble,
            ..Look::default()
        });
    }
    let cluster = connect(work, Duration::ZERO).await?;
    let system = cluster.pods_in(SYSTEM, &[]).await?;
    trouble.extend(of_static_pods(&system, &hosts));
    if let Some(pods) = &gate.pods {
        trouble.extend(of_pods(&cluster, pods).await?);
    }
    let found = Earlier {
        crashing: system.iter().flat_map(crashing).collect(),
        cordoned: cordoned(&cluster, &hosts).await?,
        rolling: rolling(&cluster.daemons_in(SYSTEM).await?),
        idle: idle(&cluster, led).await?,
    };
    Ok(Look { found, trouble })
}

/// What the probes find. That a certificate is about to end is no reason to wait.
fn of_report(report: &Report, hosts: &[HostName], gate: &Gate) -> Vec<String> {
    let checks = [&report.api_server, &report.etcd, &report.nodes];
    let checks = checks
        .into_iter()
        .filter(|check| check.health != Health::Ok);
    let mut trouble: Vec<_> = checks.map(|check| check.message.clone()).collect();
    let Some(wanted) = gate.kubernetes.map(|version| version.to_string()) else {
        return trouble;
    };
    for host in hosts {
        let member = report.members.get(host.as_str());
        let Some(version) = member.and_then(|member| member.versions.kubelet.as_ref()) else {
            trouble.push(format!("{host} does not say which version it runs"));
            continue;
        };
        if *version != wanted {
            trouble.push(format!("{host} runs {version}, not {wanted}"));
        }
    }
    trouble
}

/// The static pods of these hosts that are not Ready: API server, controllers and scheduler of each control plane by itself.
fn of_static_pods(system: &[Pod], hosts: &[HostName]) -> Vec<String> {
    let on_hosts = |pod: &&Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_some_and(|node| hosts.iter().any(|host| host.as_str() == node))
    };
    let mirrors = system.iter().filter(|pod| {
        let annotations = pod.annotations();
        annotations.contains_key("kubernetes.io/config.mirror")
    });
    let bad = mirrors.filter(on_hosts).filter(|pod| !is_ready_pod(pod));
    bad.map(|pod| format!("{} is not Ready", named(pod)))
        .collect()
}

/// What the user's own pods lack.
async fn of_pods(cluster: &Workload, gate: &PodGate) -> Result<Vec<String>, String> {
    let labels: Vec<_> = gate.selector.iter().collect();
    let pods = cluster.pods_in(&gate.namespace, &labels).await?;
    if pods.is_empty() {
        let labels = labels.iter().map(|(name, value)| format!("{name}={value}"));
        let labels: Vec<_> = labels.collect();
        return Ok(vec![format!(
            "spec.operations.upgrade.gate: no pod of namespace {} has {}",
            gate.namespace,
            labels.join(", ")
        )]);
    }
    let bad = pods.iter().filter(|pod| !is_ready_pod(pod));
    Ok(bad
        .map(|pod| format!("{} is not Ready", named(pod)))
        .collect())
}

/// The containers of a pod in a crash loop. A pod that a controller makes anew has another name: what owns it names it.
fn crashing(pod: &Pod) -> Vec<String> {
    let owners = pod.owner_references().iter();
    let owner = owners
        .filter(|owner| owner.controller == Some(true) && owner.kind != "Node")
        .map(|owner| format!("{}/{}", owner.kind, owner.name))
        .next();
    let owner = owner.unwrap_or_else(|| pod.name_any());
    let status = pod.status.iter();
    let containers = status.flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    });
    let looping = |container: &&ContainerStatus| {
        let state = container.state.as_ref();
        let waiting = state.and_then(|state| state.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        reason == Some("CrashLoopBackOff")
    };
    containers
        .filter(looping)
        .map(|container| {
            let name = format!("{SYSTEM}/{owner}/{}", container.name);
            api::text::plain(&name, 256)
        })
        .collect()
}

/// The daemons that some node lacks or has an old one of. A node whose kube-proxy is being replaced sends requests to pods that a
/// drain has ended.
fn rolling(daemons: &[DaemonSet]) -> BTreeSet<String> {
    let rolling = daemons.iter().filter(|daemons| !is_rolled_out(daemons));
    let names = rolling.map(|daemons| format!("{SYSTEM}/{}", daemons.name_any()));
    names.map(|name| api::text::plain(&name, 256)).collect()
}

/// What nobody has led since the first look: who leads says so anew every two seconds. Times of the same clock are compared, so that
/// it need not be that of this machine. What has no lease is led by whoever runs.
async fn idle(
    cluster: &Workload,
    led: &mut BTreeMap<&'static str, Option<Timestamp>>,
) -> Result<BTreeSet<String>, String> {
    let mut idle = BTreeSet::new();
    for name in LEADERS {
        let Some(lease) = cluster.lease(SYSTEM, name).await? else {
            continue;
        };
        let renewed = lease.spec.and_then(|spec| spec.renew_time);
        let renewed = renewed.map(|time| time.0);
        let first = *led.entry(name).or_insert(renewed);
        if renewed <= first {
            idle.insert(name.to_owned());
        }
    }
    Ok(idle)
}

/// Those of these hosts whose nodes take no pods.
async fn cordoned(cluster: &Workload, hosts: &[HostName]) -> Result<BTreeSet<String>, String> {
    let mut found = BTreeSet::new();
    for host in hosts {
        let node = cluster.node(host).await?;
        let unschedulable = node.and_then(|node| node.spec?.unschedulable);
        if unschedulable == Some(true) {
            found.insert(host.to_string());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn pod(name: &str, metadata: &Value, status: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": SYSTEM}, "spec": {"nodeName": "master-1", "containers": []}, "status": status,
        });
        for (key, value) in metadata.as_object().unwrap() {
            pod["metadata"][key] = value.clone();
        }
        from_value(pod).unwrap()
    }

    fn looping(container: &str) -> Value {
        json!({"phase": "Running", "containerStatuses": [{
            "name": container, "image": "", "imageID": "", "ready": false, "restartCount": 7,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        }]})
    }

    #[test]
    fn what_crashed_before_is_no_reason_to_wait_under_another_name() {
        let owned = json!({"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "addon-7", "uid": "1", "controller": true},
        ]});
        let look = |name: &str| Look {
            found: Earlier {
                crashing: crashing(&pod(name, &owned, &looping("main")))
                    .into_iter()
                    .collect(),
                ..Earlier::default()
            },
            ..Look::default()
        };
        let before = look("addon-7-abcde");
        assert_eq!(look("addon-7-fghij").since(&before.found), [""; 0]);
        assert_eq!(
            before.since(&Earlier::default()),
            ["kube-system/ReplicaSet/addon-7/main is in a crash loop"]
        );
        let well = pod("a", &json!({}), &json!({"phase": "Running"}));
        assert_eq!(crashing(&well), [""; 0]);
    }

    #[test]
    fn a_static_pod_counts_on_the_hosts_of_the_step_alone() {
        let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
        let ready =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let waiting =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]});
        let hosts = |name: &str| [name.parse::<HostName>().unwrap()];
        for (status, host, count) in [
            (&ready, "master-1", 0),
            (&waiting, "master-1", 1),
            (&waiting, "worker-1", 0),
        ] {
            let pods = [pod("kube-apiserver-master-1", &mirror, status)];
            assert_eq!(of_static_pods(&pods, &hosts(host)).len(), count);
            let other = [pod("coredns-1", &json!({}), status)];
            assert_eq!(of_static_pods(&other, &hosts(host)), [""; 0]);
        }
    }

    #[test]
    fn a_node_that_was_cordoned_by_its_owner_stays_so() {
        let found = Earlier {
            cordoned: ["worker-1".to_owned()].into(),
            ..Earlier::default()
        };
        let look = Look {
            found: found.clone(),
            trouble: Vec::new(),
        };
        assert_eq!(look.since(&found), [""; 0]);
        assert_eq!(look.since(&Earlier::default()), ["worker-1 takes no pods"]);
    }
}
