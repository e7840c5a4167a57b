//! How a cluster may be upgraded, and what no upgrade can carry out. Pure.

use ansible::catalogue::{self, MoveError};
use api::{
    Cluster, Duration, KubernetesVersion, KubesprayVersion, Threshold,
    cluster::{ClusterSpec, PodGate},
    run::OnBreach,
};

use super::Conduct;
use crate::{cluster::observe::Observed, operation::upgrade, problem::Problem};

/// How long the cluster may take to be well again after a batch, unless told otherwise.
const GATE_TIMEOUT: Duration = Duration::from_seconds(600);

/// How upgrading the cluster behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Upgrade {
    /// How many workers are out of service at a time.
    pub max_unavailable: Threshold,
    /// How many of them go before a person is asked.
    pub canary: usize,
    /// How long the pods of one node may take to go elsewhere, where the spec says so.
    pub drain_timeout: Option<Duration>,
    /// Pods that must be Ready between batches.
    pub gate: Option<PodGate>,
    /// How long the cluster may take to be well again.
    pub gate_timeout: Duration,
    /// How long it must be well then.
    pub soak: Duration,
    /// As every operation.
    pub conduct: Conduct,
}

/// As creation, where it says nothing of its own. No host is left out of an upgrade: it would be a node of another version, of
/// which no later run knows.
pub(super) fn settings(spec: &ClusterSpec, creation: Conduct) -> Upgrade {
    let operations = spec.operations.as_ref();
    let upgrade = operations.and_then(|operations| operations.upgrade.clone());
    resolved(upgrade, creation)
}

/// The same of bringing one component to what the spec says.
pub(super) fn of_component(spec: &ClusterSpec, creation: Conduct) -> Upgrade {
    let operations = spec.operations.as_ref();
    let component = operations.and_then(|operations| operations.component.clone());
    resolved(component, creation)
}

fn resolved(upgrade: Option<api::cluster::Upgrade>, creation: Conduct) -> Upgrade {
    let upgrade = upgrade.unwrap_or_default();
    Upgrade {
        max_unavailable: upgrade.max_unavailable.unwrap_or(Threshold::Count(1)),
        canary: upgrade.canary.map_or(0, usize::from),
        drain_timeout: upgrade.drain_timeout,
        gate: upgrade.gate,
        gate_timeout: upgrade.gate_timeout.unwrap_or(GATE_TIMEOUT),
        soak: upgrade.soak.unwrap_or(Duration::from_seconds(0)),
        conduct: Conduct {
            unreachable: Threshold::Count(0),
            on_breach: OnBreach::Fail,
            max_retries: upgrade.max_retries.unwrap_or(creation.max_retries),
            approval: upgrade.approval.unwrap_or_default(),
        },
    }
}

/// Moves of a built cluster that nothing carries out.
pub(super) fn problems(
    cluster: &Cluster,
    release: KubesprayVersion,
    kubernetes: Option<KubernetesVersion>,
    observed: &Observed,
) -> Vec<Problem> {
    let Some(status) = &cluster.status else {
        return Vec::new();
    };
    // One that is the newest by default is another matter: nobody asked for it.
    let written = upgrade::release_is_asked_for(cluster);
    let built = status.kubespray_version.filter(|_| written);
    let moved = built.and_then(|built| catalogue::check_move(release, built).err());
    let moved = moved.map(|error| of_release(release, error));
    moved
        .into_iter()
        .chain(taken_back(release, kubernetes, observed))
        .collect()
}

fn of_release(wanted: KubesprayVersion, error: MoveError) -> Problem {
    let remedy = match error {
        MoveError::Downgrade { built } => format!("write {built}, or a newer one"),
        MoveError::Skipped {
            next: Some(next), ..
        } => format!("write {next}; once the cluster runs with it, ask for {wanted}"),
        MoveError::Skipped { built, next: None } => {
            format!("write {built}: Windlass knows no release after it that leads there")
        }
    };
    Problem::new(
        "Cluster spec.kubespray.version",
        wanted,
        error.to_string(),
        remedy,
    )
}

/// A wish for less than what a run has begun to bring: some hosts may have it already.
fn taken_back(
    release: KubesprayVersion,
    kubernetes: Option<KubernetesVersion>,
    observed: &Observed,
) -> Option<Problem> {
    let begun = upgrade::begun(&observed.runs)?;
    let rule = |what: String| {
        format!(
            "run {} has begun the upgrade to {what} and did not come to its end: hosts may run it already, and a cluster cannot be \
             downgraded",
            begun.run
        )
    };
    if release < begun.kubespray {
        return Some(Problem::new(
            "Cluster spec.kubespray.version",
            release,
            rule(format!("kubespray {}", begun.kubespray)),
            format!("write {}; {}", begun.kubespray, begun.remedy()),
        ));
    }
    let (wanted, reached) = (kubernetes?, begun.kubernetes?);
    (wanted < reached).then(|| {
        Problem::new(
            "Cluster spec.kubernetesVersion",
            wanted,
            rule(format!("Kubernetes {reached}")),
            format!("write {reached}; {}", begun.remedy()),
        )
    })
}
