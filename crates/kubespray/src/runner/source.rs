//! The playbooks on a machine that has not brought them yet, such as a pod with an empty volume.
//!
//! The plan names their content by a digest. They are brought from where the Cluster says they are, a git source by the
//! commit that it resolved to when the plan was made, and used only when they are what was planned with.

use std::path::Path;

use ansible::source::{self, SourceRequest};
use api::{
    Cluster,
    run::{Failure, FailureClass},
};
use kube::Api;

use super::{Job, workspace::failure};
use crate::playbooks::Place;

/// Brings the playbooks into the data directory, unless they are there.
pub(crate) async fn ensure(
    job: &Job,
    checkout: &Path,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), Failure> {
    if checkout.is_dir() {
        return Ok(());
    }
    progress("bringing the playbooks");
    let cluster = Api::<Cluster>::namespaced(job.client.clone(), &job.namespace())
        .get(job.cluster())
        .await
        .map_err(|error| {
            transient(format!(
                "the Cluster cannot be read: {}",
                crate::chain(&error)
            ))
        })?;
    let planned = &job.inputs.source;
    let named = cluster
        .spec
        .kubespray
        .and_then(|kubespray| kubespray.source);
    let request = match Place::of(named, job.inputs.kubespray) {
        Place::Git { url, reference } => SourceRequest::Git {
            url,
            reference: planned.revision.clone().unwrap_or(reference),
        },
        Place::Path(path) => SourceRequest::Path(path),
        Place::Image(image) => SourceRequest::Image(image),
    };
    let fetched = source::fetch(&request, &job.layout.sources())
        .await
        .map_err(|error| {
            if error.is_final() {
                changed(crate::chain(&error))
            } else {
                transient(crate::chain(&error))
            }
        })?;
    if fetched.digest == planned.digest {
        return Ok(());
    }
    Err(changed(format!(
        "{} is not what the run was planned with: its digest is {}, not {}",
        planned.origin, fetched.digest, planned.digest
    )))
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
