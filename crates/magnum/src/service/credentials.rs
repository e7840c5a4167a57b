//! The credentials by which clusters of servers use the cloud: made with their clusters, and rotated.

use api::magnum::CoeCluster;
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::json;

use super::{
    Answer, Asked,
    actions::made_here,
    clusters::{of_servers, own},
    lookups::key_pair,
};
use crate::{
    cloud::{CloudError, Session},
    contract::{Fault, Version},
    credential::{self, Credential, Record},
    machines::CREDENTIALS,
    store::TRIES,
};

/// What a token that makes no credentials can be exchanged for.
const REMEDY: &str =
    "Ask with the token of a password, or of an application credential that is unrestricted";

/// The credential of a new cluster. None: it has what whoever runs the service gives its project, for the catalogue says nowhere where
/// Keystone is, or Keystone refuses.
pub(super) async fn of_new(
    asked: &Asked<'_>,
    session: &Session,
    cluster: &CoeCluster,
) -> Result<Option<Credential>, Fault> {
    if session.address(&["identity"]).is_none() {
        return Ok(None);
    }
    let uuid = cluster.name_any();
    match Credential::found(session, &uuid, None, Timestamp::now()).await {
        Ok(given) => Ok(Some(given)),
        Err(error @ CloudError::Refused { .. }) => {
            let project = &cluster.spec.project_id;
            let shared = asked.store().secret(project, CREDENTIALS).await?;
            if shared.is_some() {
                return Ok(None);
            }
            Err(Fault::forbidden(format!(
                "Failed to make an application credential for the cluster: {error}. {REMEDY}; or have whoever runs the service give the project a Secret {CREDENTIALS}."
            )))
        }
        Err(error) => Err(error.told()),
    }
}

/// Makes another credential, of whoever asks. The operator takes it over, and takes the one before it away. A cluster in any state may
/// need it, also one that goes: without its user none of its servers would.
pub(super) async fn rotate(asked: &Asked<'_>, cluster: &str) -> Result<Answer, Fault> {
    asked.version.from_on(Version::CREDENTIALS)?;
    let cluster = own(asked, cluster).await?;
    made_here(&cluster)?;
    let uuid = cluster.name_any();
    let Some(session) = of_servers(asked, &cluster).await? else {
        return Err(Fault::invalid(format!(
            "Cluster {uuid} is on hosts and has no credential of a cloud."
        )));
    };
    if session.address(&["identity"]).is_none() {
        return Err(Fault::invalid(format!(
            "Cluster {uuid} has no credential of its own that could be rotated, for the catalogue does not say where Keystone is. Exchange clouds.yaml in the Secret {}/{CREDENTIALS}: clusters take it over.",
            cluster.namespace().unwrap_or_default()
        )));
    }
    // No server is made any more for one that goes.
    if cluster.metadata.deletion_timestamp.is_none() {
        key_pair(&session, &cluster.spec).await?;
    }
    let mut tries = 1;
    while let Err(fault) = exchange(asked, &session, &cluster).await {
        // The operator renews and tidies the same Secret.
        if fault.status() != StatusCode::CONFLICT || tries == TRIES {
            return Err(fault);
        }
        tries += 1;
    }
    // What it says of its last change wakes the operator.
    asked.store().change(cluster, |_| Ok(())).await?;
    Answer::accepted(json!({"uuid": uuid}))
}

/// Makes another credential and keeps it. What was made is discarded where somebody else was quicker.
async fn exchange(asked: &Asked<'_>, session: &Session, cluster: &CoeCluster) -> Result<(), Fault> {
    let (uuid, project) = (cluster.name_any(), &cluster.spec.project_id);
    let before = asked
        .store()
        .secret(project, &credential::name(&uuid))
        .await?;
    let instead = before.as_ref().and_then(Record::of);
    let given = Credential::found(session, &uuid, instead, Timestamp::now()).await;
    let given = given.map_err(|error| match error {
        CloudError::Refused { .. } => Fault::forbidden(format!(
            "Failed to make an application credential for cluster {uuid}: {error}. {REMEDY}."
        )),
        error => error.told(),
    })?;
    let secret = given.secret(&uuid);
    let kept = asked.store().keep(cluster, before.as_ref(), &secret).await;
    if let Err(fault) = kept
        && !is_kept(asked, session, cluster, given).await?
    {
        return Err(fault);
    }
    Ok(())
}

/// Takes away the credential of a cluster that could not be stored, and then lets its Secret go. Where nobody can say whether the cluster
/// is stored, the Secret is not marked as deleted, and both stay; what fails here is the operator's to do.
pub(super) async fn given_up(
    asked: &Asked<'_>,
    session: &Session,
    cluster: &CoeCluster,
    given: Credential,
) -> Result<(), Fault> {
    let (uuid, project) = (cluster.name_any(), &cluster.spec.project_id);
    let secret = asked
        .store()
        .secret(project, &credential::name(&uuid))
        .await?;
    let stays = |secret: &Secret| secret.metadata.deletion_timestamp.is_none();
    let is_kept = |secret: &Secret| stays(secret) && given.is_in(secret);
    if secret.as_ref().is_some_and(is_kept) {
        return Ok(());
    }
    if given.discard(session).await
        && let Some(secret) = secret
    {
        asked.store().let_go(project, &secret).await?;
    }
    Ok(())
}

/// Whether a credential is kept all the same where the answer was lost, and discards it where it is not. Where nobody can say it stays:
/// the end of the cluster takes it away.
async fn is_kept(
    asked: &Asked<'_>,
    session: &Session,
    cluster: &CoeCluster,
    given: Credential,
) -> Result<bool, Fault> {
    let name = credential::name(&cluster.name_any());
    let secret = asked
        .store()
        .secret(&cluster.spec.project_id, &name)
        .await?;
    let is_kept = secret.is_some_and(|secret| given.is_in(&secret));
    if !is_kept {
        given.discard(session).await;
    }
    Ok(is_kept)
}
