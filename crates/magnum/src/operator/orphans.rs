//! Credentials without a cluster: whoever was making it died between the two, or it was let go by hand. They are taken away by what is
//! kept of them, or they would be good for weeks, and their Secrets would hold their namespace for ever.
//!
//! No watch tells of what is not there, so that is looked for now and then, by one list of metadata.

use std::{sync::Arc, time::Duration};

use api::magnum::CoeCluster;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta},
};

use super::credentials::left;
use crate::{
    cloud::{CloudError, KEYSTONE},
    credential::{self, LABEL, Record},
    identity::Keystone,
    store::forget,
    view::backing_namespace,
};

/// How often it is looked.
const EVERY: Duration = Duration::from_mins(10);
/// How long a cluster may take to be stored after its credential: longer than the request that makes both.
const YOUNG: SignedDuration = SignedDuration::from_mins(10);

/// Looks for them, for good.
pub(super) async fn swept(client: Client, keystone: Arc<Keystone>) {
    let mut times = tokio::time::interval(EVERY);
    loop {
        times.tick().await;
        if let Err(error) = sweep(&client, &keystone, Timestamp::now()).await {
            let error = controller::chain(&error);
            tracing::warn!(error, "credentials without a cluster are not looked for");
        }
    }
}

/// Takes away those that there are.
///
/// # Errors
///
/// The API does not say which Secrets there are. What fails of one holds up none of the others, and is told in the log.
pub(crate) async fn sweep(
    client: &Client,
    keystone: &Keystone,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let all: Api<Secret> = Api::all(client.clone());
    let ours = ListParams::default().labels(LABEL);
    for found in all.list_metadata(&ours).await?.items {
        let Some(orphan) = Orphan::of(&found.metadata, now) else {
            continue;
        };
        let cluster = &orphan.cluster;
        match orphan.end(client, keystone, now).await {
            Ok(None) => {}
            Ok(Some(kept)) => tracing::warn!(cluster, kept, "a credential has no cluster"),
            Err(error) => {
                let error = controller::chain(&error);
                tracing::warn!(error, cluster, "a credential has no cluster, and stays");
            }
        }
    }
    Ok(())
}

/// A credential that may have no cluster.
struct Orphan {
    namespace: String,
    cluster: String,
}

impl Orphan {
    fn of(metadata: &ObjectMeta, now: Timestamp) -> Option<Self> {
        let cluster = metadata.labels.as_ref()?.get(LABEL)?;
        let made = metadata.creation_timestamp.as_ref()?.0;
        let is_ours = metadata.name.as_ref() == Some(&credential::name(cluster));
        (is_ours && now.duration_since(made) > YOUNG).then_some(Self {
            namespace: metadata.namespace.clone()?,
            cluster: cluster.clone(),
        })
    }

    /// Takes it away, unless it has a cluster. Says why it is kept where it has none.
    async fn end(
        &self,
        client: &Client,
        keystone: &Keystone,
        now: Timestamp,
    ) -> Result<Option<String>, kube::Error> {
        let clusters: Api<CoeCluster> = Api::namespaced(client.clone(), &self.namespace);
        if clusters.get_metadata_opt(&self.cluster).await?.is_some() {
            return Ok(None);
        }
        // Servers that are there go by no other credential.
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let built = backing_namespace(&self.cluster);
        if namespaces.get_metadata_opt(&built).await?.is_some() {
            return Ok(Some(format!(
                "the credential is kept, for servers may be left by what is in the namespace {built}: delete that when none are"
            )));
        }
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
        let name = credential::name(&self.cluster);
        let Some(secret) = secrets.get_opt(&name).await? else {
            return Ok(None);
        };
        // What has ended needs nobody to take it away, and nobody could.
        let record = Record::of(&secret).filter(|record| !record.has_ended(now));
        if let Some(record) = record {
            let withdrawn = record.withdraw(keystone, &self.cluster).await;
            if let Some((user, error)) = withdrawn.failed {
                return Ok(Some(format!(
                    "the application credentials of user {user} are not taken away: {error}; this is tried again"
                )));
            }
            for user in withdrawn.left {
                let left = left(&self.cluster, &user, &CloudError::Unknown(KEYSTONE));
                tracing::warn!(cluster = self.cluster, left, "former credentials are left");
            }
        }
        forget(&secrets, &secret).await?;
        tracing::info!(
            cluster = self.cluster,
            "its credential, which had no cluster, is taken away"
        );
        Ok(None)
    }
}
