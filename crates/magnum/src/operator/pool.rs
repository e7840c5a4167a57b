//! What the pool tells: of a host that was claimed, the cluster that has it; of all else, those that wait.
//!
//! There may be as many clusters that wait as there are hosts, so what changes while those are being woken wakes them once more
//! together, rather than each change all of them.

use std::sync::Arc;

use api::magnum::{CoeCluster, Host, State};
use controller::WakeUps;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt as _,
        reflector::{ObjectRef, Store, store::Writer},
        watcher::{self, watcher},
    },
};
use tokio::sync::Notify;

/// Whom a host that changed concerns. Of one that is free those that wait are told.
pub(super) fn concerned(
    host: &DeserializeGuard<Host>,
    clusters: &Store<DeserializeGuard<CoeCluster>>,
    pool: &Notify,
) -> Vec<ObjectRef<DeserializeGuard<CoeCluster>>> {
    let Ok(host) = &host.0 else {
        return Vec::new();
    };
    let Some(claim) = &host.spec.claim else {
        pool.notify_one();
        return Vec::new();
    };
    let claimer = clusters.state_filter(|cluster| cluster.name_any() == claim.cluster);
    let claimer = claimer.iter();
    claimer
        .map(|cluster| ObjectRef::from_obj(&**cluster))
        .collect()
}

/// Wakes what waits for the pool, whenever that changes.
pub(super) async fn wake_waiting(
    pool: Arc<Notify>,
    clusters: Store<DeserializeGuard<CoeCluster>>,
    wake_ups: WakeUps,
) {
    loop {
        pool.notified().await;
        for cluster in clusters.state_filter(waits) {
            wake_ups.wake(&(cluster.namespace().unwrap_or_default(), cluster.name_any()));
        }
    }
}

/// Whether a cluster is on hosts and has not all that it should. One whose wish nobody has told of yet may lack something.
fn waits(cluster: &DeserializeGuard<CoeCluster>) -> bool {
    let Ok(cluster) = &cluster.0 else {
        return false;
    };
    let status = cluster.status.as_ref();
    let is_seen =
        status.and_then(|status| status.observed_generation) == cluster.metadata.generation;
    let is_complete = status
        .and_then(|status| status.state)
        .is_some_and(State::is_complete);
    cluster.spec.server_type.unwrap_or_default().has_pool() && !(is_seen && is_complete)
}

/// Keeps the ssh key of the pool as it is, and tells when it changes.
pub(super) async fn follow_key(
    secrets: Api<Secret>,
    name: String,
    writer: Writer<Secret>,
    pool: Arc<Notify>,
) {
    let named = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher(secrets, named)
        .default_backoff()
        .reflect(writer)
        .for_each(|event| {
            match event {
                Ok(_) => pool.notify_one(),
                Err(error) => tracing::warn!(
                    error = controller::chain(&error),
                    secret = name,
                    "the ssh key of the pool cannot be followed"
                ),
            }
            std::future::ready(())
        })
        .await;
}

#[cfg(test)]
mod tests {
    use api::magnum::{CoeClusterSpec, CoeClusterStatus, ServerType};

    use super::*;

    #[test]
    fn what_is_complete_does_not_wait_until_something_is_asked_of_it() {
        let waits_in = |server_type, state, observed| {
            let spec = CoeClusterSpec {
                server_type: Some(server_type),
                ..CoeClusterSpec::default()
            };
            let mut cluster = CoeCluster::new("a", spec);
            cluster.metadata.generation = Some(2);
            cluster.status = Some(CoeClusterStatus {
                state: Some(state),
                observed_generation: Some(observed),
                ..CoeClusterStatus::default()
            });
            waits(&DeserializeGuard(Ok(cluster)))
        };
        assert!(waits_in(ServerType::Bm, State::CreateInProgress, 2));
        assert!(waits_in(ServerType::Bm, State::UpdateFailed, 2));
        assert!(!waits_in(ServerType::Bm, State::UpdateComplete, 2));
        // Somebody has asked for more meanwhile.
        assert!(waits_in(ServerType::Bm, State::UpdateComplete, 1));
        assert!(!waits_in(ServerType::Vm, State::CreateInProgress, 2));
    }
}
