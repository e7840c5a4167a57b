//! The cluster's Lease, held while the runner works.
//!
//! Everything that reaches a host asks for the proof that the Lease is held: steps before they begin, and each playbook, which
//! goes by the file that the proof is written into and ends by itself when that is over ([`Leave`]), for a runner that is stopped
//! ends nothing.
//!
//! An API that runs beside its runners, as `windlass up` does, may end before them: they go on. Nobody can take the Lease
//! while nobody listens at its address, and it is the same machine that says so.

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use ansible::playbook::Leave;
use api::Run;
use controller::lease::{Candidate, Claim, Error, Hold, is_refused};
use http::Uri;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::config::Kubeconfig;

use super::Job;
use crate::{layout::Layout, process::is_gone};

/// How often a Lease that somebody else holds is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Takes the Lease; waits for a holder to give it up. A run that has `begun` goes on without it while its API is away for
/// everybody: it held the Lease before, and whoever takes it meanwhile must see the API, where this run stands unfinished.
pub(crate) async fn take(job: &Job, leave: Leave, begun: bool) -> Result<Hold, Error> {
    let claim = Claim {
        name: super::lease_name(job.cluster()),
        holder: job.identity.id.clone(),
        generation: job.run.spec.generation,
        owner: owner(&job.run),
    };
    let mut candidate = Candidate::new(job.client.clone(), job.namespace(), claim, is_gone);
    if let Some(beside) = job.beside.clone() {
        candidate = candidate.outliving(move |error| is_refused(error) && beside.is_there());
    }
    let leave = Arc::new(leave);
    loop {
        let told = Arc::clone(&leave);
        let tell = move |end| {
            if let Err(error) = told.until(end) {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the playbook was not told that it may go on"
                );
            }
        };
        match candidate.take(tell.clone()).await {
            Ok(hold) => return Ok(hold),
            Err(error @ Error::Fenced { .. }) => return Err(error),
            Err(error @ Error::Held { .. }) => {
                tracing::info!(
                    error = &error as &dyn std::error::Error,
                    "waiting for the cluster's lease"
                );
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the cluster's lease cannot be taken yet"
                );
                if begun && candidate.is_away(&error) {
                    return Ok(candidate.outlive(tell));
                }
            }
        }
        tokio::time::sleep(controller::backoff::jittered(LOOK)).await;
    }
}

/// The Cluster, as the Run's owner reference names it: the Lease of a cluster that is deleted goes by itself, and another one
/// of the name is not fenced off by it.
fn owner(run: &Run) -> Option<OwnerReference> {
    let owner = run.metadata.owner_references.iter().flatten().next()?;
    Some(OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..owner.clone()
    })
}

/// The API that runs beside the runner: that of the data directory, at an address of this machine alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Beside {
    kubeconfig: PathBuf,
    server: String,
}

impl Beside {
    /// The API of a kubeconfig, if it is such a one.
    pub(crate) fn of(kubeconfig: Option<&PathBuf>, layout: &Layout) -> Option<Self> {
        let kubeconfig = kubeconfig?.canonicalize().ok()?;
        let own = layout.root().join("kubeconfig").canonicalize().ok()?;
        if kubeconfig != own {
            return None;
        }
        let server = server(&kubeconfig)?;
        let host = server.parse::<Uri>().ok()?;
        let address = host.host()?.trim_matches(['[', ']']).parse::<IpAddr>();
        address
            .is_ok_and(|address| address.is_loopback())
            .then_some(Self { kubeconfig, server })
    }

    /// Whether it would be found at the address that it had: one that started anew may have another one.
    fn is_there(&self) -> bool {
        server(&self.kubeconfig).as_ref() == Some(&self.server)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the address alone is looked at: no client is made of it"
)]
fn server(kubeconfig: &PathBuf) -> Option<String> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).ok()?;
    let cluster = kubeconfig.clusters.into_iter().next()?.cluster?;
    cluster.server
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_api_of_the_data_directory_at_an_address_of_this_machine_runs_beside() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        let own = directory.path().join("kubeconfig");
        let elsewhere = directory.path().join("elsewhere");
        let config = |server: &str| {
            format!("clusters: [{{name: a, cluster: {{server: \"{server}\"}}}}]\nusers: []\n")
        };
        for (server, beside) in [
            ("https://127.0.0.1:6443", true),
            ("https://[::1]:6443", true),
            ("https://10.0.0.1:6443", false),
            ("https://0.0.0.0:6443", false),
            ("https://localhost:6443", false),
            ("nonsense", false),
        ] {
            for path in [&own, &elsewhere] {
                std::fs::write(path, config(server)).unwrap();
            }
            let found = Beside::of(Some(&own), &layout);
            assert_eq!(found.is_some(), beside, "{server}");
            assert_eq!(Beside::of(Some(&elsewhere), &layout), None, "{server}");
        }
        assert_eq!(Beside::of(None, &layout), None);

        std::fs::write(&own, config("https://127.0.0.1:6443")).unwrap();
        let beside = Beside::of(Some(&own), &layout).unwrap();
        assert!(beside.is_there());
        std::fs::write(&own, config("https://127.0.0.1:6444")).unwrap();
        assert!(!beside.is_there(), "it has moved to another port");
    }
}
