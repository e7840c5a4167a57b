//! By what clusters of servers use the cloud: their own credential, or else that of their project. It is put beside them, renewed in
//! time, and taken away with them.

use std::collections::BTreeMap;

use api::magnum::CoeCluster;
use controller::finalizer;
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, Error, marks};
use crate::{
    cloud::{CloudError, KEYSTONE},
    credential::{self, CLOUDS, Credential, FINALIZER, LABEL, Record, Tidied},
    machines::{
        CREDENTIALS,
        report::{Seen, Trouble},
    },
    store::{forget, replace_data},
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
        let Some((kept, record)) = self.held_credential(cluster).await? else {
            return Ok(None);
        };
        if !record.is_due(now) {
            return Ok(None);
        }
        let (user, expires) = (record.user_id().to_owned(), record.expires());
        let keystone = &self.options.keystone;
        match Credential::next(keystone, &cluster.name_any(), record, now).await {
            Ok(next) => self.keep(cluster, &kept, &next.data()).await.map(|_| None),
            Err(error) => Ok(Some(format!(
                "the credential of the cluster ends at {expires:.0} and is not renewed: {}",
                failed(&error, &user)
            ))),
        }
    }

    /// Takes away the credentials that were used before the one that is beside the cluster now. Says which cannot be; nothing waits
    /// for that, and it is tried again with each pass.
    pub(super) async fn tidy_credentials(
        &self,
        cluster: &CoeCluster,
    ) -> Result<Option<String>, Error> {
        let Some(kept) = self.own_credential(cluster).await? else {
            return Ok(None);
        };
        let Some(record) = Record::of(&kept).filter(Record::has_former) else {
            return Ok(None);
        };
        let (user, uuid) = (record.user_id().to_owned(), cluster.name_any());
        let left = match record.tidied(&self.options.keystone, &uuid).await {
            Ok(Tidied { data, failed }) => {
                if let Some(data) = data {
                    self.keep(cluster, &kept, &data).await?;
                }
                failed.map(|(user, error)| left(&uuid, &user, &error))
            }
            Err(error) => Some(format!(
                "former credentials of the cluster are kept: {}",
                failed(&error, &user)
            )),
        };
        if let Some(left) = &left {
            tracing::warn!(cluster = uuid, left, "former credentials are left");
        }
        Ok(left)
    }

    /// Takes the cluster's own credential away, which nothing uses any more. Says what is in the way.
    ///
    /// That nothing does is kept first: where the pass fails after this one, the next has no credential to look again by.
    pub(super) async fn end_credential(
        &self,
        cluster: &CoeCluster,
        seen: &mut Seen,
    ) -> Result<Option<Trouble>, Error> {
        let Some(kept) = self.own_credential(cluster).await? else {
            return Ok(None);
        };
        let Some(record) = Record::of(&kept) else {
            // Somebody took out what it could be taken away by. What they put there instead is theirs.
            if finalizer::is_held(&kept, FINALIZER) {
                self.forget(cluster, &kept).await?;
            }
            return Ok(None);
        };
        let kept = if record.is_cleared() {
            kept
        } else {
            self.keep(cluster, &kept, &record.cleared()).await?
        };
        let uuid = cluster.name_any();
        let withdrawn = record.withdraw(&self.options.keystone, &uuid).await;
        for user in &withdrawn.left {
            let left = left(&uuid, user, &CloudError::Unknown(KEYSTONE));
            tracing::warn!(cluster = uuid, left, "former credentials are left");
            seen.note(Some(left));
        }
        let Some((user, error)) = withdrawn.failed else {
            self.forget(cluster, &kept).await?;
            return Ok(None);
        };
        Ok(Some(Trouble {
            is_final: false,
            message: format!(
                "failed to take the application credentials windlass-{uuid} away: {}; or delete them in Keystone, take the finalizer {FINALIZER} off the Secret {}/{}, and delete that",
                failed(&error, &user),
                cluster.namespace().unwrap_or_default(),
                credential::name(&uuid)
            ),
        }))
    }

    /// The cluster's own credential, if what is kept of it is ours to keep. A Secret of before there was a finalizer gets it now.
    async fn held_credential(
        &self,
        cluster: &CoeCluster,
    ) -> Result<Option<(Secret, Record)>, Error> {
        let Some(kept) = self.own_credential(cluster).await? else {
            return Ok(None);
        };
        let Some(record) = Record::of(&kept) else {
            return Ok(None);
        };
        // What somebody deletes takes no finalizer any more, and has it already.
        let is_going = kept.metadata.deletion_timestamp.is_some();
        let is_held = finalizer::is_held(&kept, FINALIZER) && kept.labels().contains_key(LABEL);
        if is_going || is_held {
            return Ok(Some((kept, record)));
        }
        let mut finalizers = kept.finalizers().to_vec();
        finalizers.retain(|other| other != FINALIZER);
        finalizers.push(FINALIZER.to_owned());
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": kept.resource_version(), "finalizers": finalizers, "labels": {LABEL: cluster.name_any()},
        }}));
        let name = kept.name_any();
        let held = self
            .secrets(cluster)
            .patch(&name, &PatchParams::default(), &patch)
            .await;
        let held = held.map_err(|error| Error::Api("hold the credential of the cluster", error))?;
        Ok(Some((held, record)))
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
    ) -> Result<Secret, Error> {
        let kept = replace_data(&self.secrets(cluster), before, data).await;
        kept.map_err(|error| Error::Api("keep the credential of the cluster", error))
    }

    /// Lets the Secret go by which nothing more is to be taken away.
    async fn forget(&self, cluster: &CoeCluster, kept: &Secret) -> Result<(), Error> {
        let gone = forget(&self.secrets(cluster), kept).await;
        gone.map_err(|error| Error::Api("let the credential of the cluster go", error))
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
    let remedy = "give it another user by `openstack coe credential rotate`";
    match error {
        CloudError::Gone => format!(
            "Keystone has the credential of its user {user} no more: the user is gone, has lost a role, or took it away; {remedy}"
        ),
        CloudError::Unknown(KEYSTONE) => format!(
            "Keystone does not let its user {user} in: the user or the project is disabled, or the credential has ended; {remedy}"
        ),
        error => format!("{error}; this is tried again"),
    }
}

/// Which credentials are left that are used no more, and why.
pub(super) fn left(uuid: &str, user: &str, error: &CloudError) -> String {
    let why = match error {
        CloudError::Unknown(KEYSTONE) => {
            "Keystone does not let them in; enable the user for a while, or delete the user"
                .to_owned()
        }
        error => format!("{error}; this is tried again"),
    };
    format!("former credentials windlass-{uuid} of user {user} are left: {why}")
}
