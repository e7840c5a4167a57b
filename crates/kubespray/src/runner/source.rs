//! The playbooks on a machine that has not brought them yet, such as a pod with an empty volume.
//!
//! The plan names their content by a digest. They are brought from where the Cluster says they are, a git source by the
//! commit that it resolved to when the plan was made, and used only when they are what was planned with.

use std::path::Path;

use ansible::source::{self, Hold, Sources};
use api::{
    Cluster,
    run::{Failure, FailureClass},
};
use controller::away;
use kube::Api;

use super::{
    work::{ClusterWork, PATIENCE},
    workspace::failure,
};
use crate::playbooks::Place;

/// Brings the playbooks into the data directory, unless they are there, and keeps them there.
pub(crate) async fn ensure(
    work: &ClusterWork,
    checkout: &Path,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<Hold, Failure> {
    let sources = Sources::new(work.layout.sources(), work.sources.clone());
    let planned = &work.inputs.source;
    // Held first: what is there then stays.
    let hold = sources
        .hold(&planned.digest)
        .map_err(|error| failed(&error))?;
    if checkout.is_dir() {
        return Ok(hold);
    }
    progress("bringing the playbooks");
    let clusters = Api::<Cluster>::namespaced(work.client.clone(), &work.namespace());
    let cluster = away::outlive(PATIENCE, away::is_away, || clusters.get(work.cluster())).await;
    let cluster = cluster.map_err(|error| {
        transient(format!(
            "the Cluster cannot be read: {}",
            crate::chain(&error)
        ))
    })?;
    let named = cluster
        .spec
        .kubespray
        .and_then(|kubespray| kubespray.source);
    let mut place = Place::of(named, work.inputs.kubespray);
    if let (
        Place::Git {
            reference, commit, ..
        },
        Some(planned),
    ) = (&mut place, &planned.revision)
    {
        reference.clone_from(planned);
        *commit = Some(planned.clone());
    }
    let fetched = sources
        .fetch(&work.namespace(), &place.request())
        .await
        .map_err(|error| failed(&error))?;
    if fetched.digest == planned.digest {
        return Ok(fetched.hold);
    }
    Err(changed(format!(
        "{} is not what the run was planned with: its digest is {}, not {}",
        planned.origin, fetched.digest, planned.digest
    )))
}

fn failed(error: &source::Error) -> Failure {
    if error.is_final() {
        changed(crate::chain(error))
    } else {
        transient(crate::chain(error))
    }
}

fn transient(message: String) -> Failure {
    failure(
        FailureClass::Transient,
        "SourceUnreachable",
        message,
        Some("check the network of the runner, then retry the run"),
    )
}

fn changed(message: String) -> Failure {
    failure(
        FailureClass::External,
        "SourceChanged",
        message,
        Some(
            "bring back the playbooks that the run was planned with, or cancel the run so that another is planned",
        ),
    )
}
