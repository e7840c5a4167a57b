//! One of several replicas works: the one that holds the Lease.

use std::time::Duration;

use controller::lease::{Candidate, Claim, Error, Hold};
use kube::Client;

/// How often a replica that waits looks whether the Lease is free.
const LOOK: Duration = Duration::from_secs(2);

/// Waits until the Lease is ours.
pub(crate) async fn lead(client: Client, namespace: String, name: String) -> Hold {
    let claim = claim(name);
    let (lease, holder) = (claim.name.clone(), claim.holder.clone());
    // Nothing is known of the process of another pod. A new installation waits for nobody: two operators write the same, and hosts
    // are the runners', which have Leases of their own.
    let mut candidate = Candidate::new(client, namespace, claim, |_| false).first();
    let mut told = false;
    loop {
        match candidate.take(|_| {}).await {
            Ok(hold) => {
                tracing::info!(lease, holder, "leading");
                return hold;
            }
            Err(error @ Error::Api { .. }) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no lease yet");
            }
            Err(error) if !told => {
                tracing::info!(error = &error as &dyn std::error::Error, "standing by");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(controller::backoff::jittered(LOOK)).await;
    }
}

/// A claim in the name of this process, which is never used again.
fn claim(name: String) -> Claim {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let started = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    // Two of one host may start at the same time by a clock that was set back, or have the same host name.
    let chance: u64 = rand::random();
    Claim {
        name,
        holder: format!("{}_{:x}_{chance:x}", host.trim(), started.as_nanos()),
        generation: 0,
        owner: None,
    }
}
