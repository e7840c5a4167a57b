//! By what clusters of servers use the cloud: their own credential, or else that of their project. It is put beside them, renewed in
//! time, and taken away with them.

use std::collections::BTreeMap;

use api::magnum::CoeCluster;
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, Error, marks};
use crate::{
    cloud::{CloudError, KEYSTONE},
    credential::{self, CLOUDS, Credential, Record},
    machines::{CREDENTIALS, report::Trouble},
    store::replace_data,
    view::backing_namespace,
};

/// What is in a Secret.
type Data = BTreeMap<String, ByteString>;

impl Context {
    /// Its own go before those that whoever runs the service gives its project, which say whose authority the cloud has.
    pub(super) async fn credentials(&self, cluster: &CoeCluster) -> Result<Option<Data>, Error> {
        let shared = self.beside(cluster, CREDENTIALS).await?;
        let own = self.own_credential(cluster).await?;
        let own = own.and_then(|secret| secret.data?.remove_entry(CLOUDS));
        if shared.is_none() && own.is_none() {
            return Ok(None);
        }
        let mut all = shared.and_then(|secret| secret.data).unwrap_or_default();
        all.extend(own);
        Ok(Some(all))
    }

    /// Puts the credentials beside a cluster, as they are now. Says whether there are any.
    pub(super) async fn give_credentials(&self, cluster: &CoeCluster) -> Result<bool, Error> {
        let Some(data) = self.credentials(cluster).await? else {
            return Ok(false);
        };
        let object = secret(cluster, CREDENTIALS, "Opaque", &json!(data));
        let namespace = backing_namespace(&cluster.name_any());
        self.put(&namespace, CREDENTIALS, &object).await?;
        Ok(true)
    }

    /// Renews the cluster's own credential in time, and says why it cannot be.
    pub(super) async fn renew_credential(
        &self,
        cluster: &CoeCluster,
    ) -> Result<Option<String>, Error> {
        let now = Timestamp::now();
        let Some(kept) = self.own_credential(cluster).await? else {
            return Ok(None);
        };
        let Some(record) = Record::of(&kept).filter(|record| record.is_due(now)) else {
            return Ok(None);
        };
        let (user, expires) = (record.user_id().to_owned(), record.expires());
        let keystone = &self.options.keystone;
        match Credential::next(keystone, &cluster.name_any(), record, now).await {
            Ok(next) => self.keep(cluster, &kept, &next.data()).await.map(|()| None),
            Err(error) => Ok(Some(format!(
                "the credential of the cluster ends at {expires:.0} and is not renewed: {}",
                failed(&error, &user)
            ))),
        }
    }

    /// Takes away the credentials that were used before the one that is beside the cluster now.
    pub(super) async fn tidy_credentials(&self, cluster: &CoeCluster) -> Result<(), Error> {
        let Some(kept) = self.own_credential(cluster).await? else {
            return Ok(());
        };
        let Some(record) = Record::of(&kept).filter(Record::has_former) else {
            return Ok(());
        };
        let uuid = cluster.name_any();
        match record.tidied(&self.options.keystone, &uuid).await {
            Ok(data) => self.keep(cluster, &kept, &data).await,
            // It is tried again with the next pass; nothing waits for it.
            Err(error) => {
                let error = controller::chain(&error);
                tracing::warn!(error, cluster = uuid, "former credentials are left");
                Ok(())
            }
        }
    }

    /// Takes the cluster's own credential away, which nothing uses any more. Says what is in the way.
    ///
    /// That nothing does is kept first: where the pass fails after this one, the next has no credential to look again by.
    pub(super) async fn end_credential(
        &self,
        cluster: &CoeCluster,
    ) -> Result<Option<Trouble>, Error> {
        let Some(kept) = self.own_credential(cluster).await? else {
            return Ok(None);
        };
        let Some(record) = Record::of(&kept) else {
            return Ok(None);
        };
        if !record.is_cleared() {
            self.keep(cluster, &kept, &record.cleared()).await?;
        }
        let uuid = cluster.name_any();
        let withdrawn = record.withdraw(&self.options.keystone, &uuid).await;
        Ok(withdrawn.err().map(|error| Trouble {
            is_final: false,
            message: format!(
                "failed to take the application credentials windlass-{uuid} away: {error}; this is tried again, or delete them, and the Secret {}/{}",
                cluster.namespace().unwrap_or_default(),
                credential::name(&uuid)
            ),
        }))
    }

    /// The Secret with the cluster's own credential.
    pub(super) async fn own_credential(
        &self,
        cluster: &CoeCluster,
    ) -> Result<Option<Secret>, Error> {
        let name = credential::name(&cluster.name_any());
        self.beside(cluster, &name).await
    }

    async fn beside(&self, cluster: &CoeCluster, name: &str) -> Result<Option<Secret>, Error> {
        let found = self.secrets(cluster).get_opt(name).await;
        found.map_err(|error| Error::Api("get the credentials of the cluster", error))
    }

    async fn keep(
        &self,
        cluster: &CoeCluster,
        before: &Secret,
        data: &impl Serialize,
    ) -> Result<(), Error> {
        let kept = replace_data(&self.secrets(cluster), before, data).await;
        kept.map_err(|error| Error::Api("keep the credential of the cluster", error))
    }

    fn secrets(&self, cluster: &CoeCluster) -> Api<Secret> {
        let namespace = cluster.namespace().unwrap_or_default();
        Api::namespaced(self.client.clone(), &namespace)
    }
}

pub(super) fn no_credentials(cluster: &CoeCluster, what: &str) -> Trouble {
    let namespace = cluster.namespace().unwrap_or_default();
    Trouble {
        is_final: false,
        message: format!(
            "there is no Secret {namespace}/{CREDENTIALS} with clouds.yaml, {what}: make one"
        ),
    }
}

pub(super) fn secret(cluster: &CoeCluster, name: &str, kind: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind, "data": data,
        "metadata": {"name": name, "labels": marks(cluster)},
    })
}

/// Why nothing could be done by the credential of a cluster, and what to do.
pub(super) fn failed(error: &CloudError, user: &str) -> String {
    match error {
        CloudError::Unknown(KEYSTONE) => format!(
            "its user {user} is gone, disabled, or has lost a role; give it another user by `openstack coe credential rotate`"
        ),
        error => format!("{error}; this is tried again"),
    }
}
