//! Secrets of clusters: their authorities, and their credentials. They go with their clusters.

use std::collections::BTreeMap;

use api::magnum::{CLUSTER_LABEL, CoeCluster};
use controller::finalizer;
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use serde::Serialize;
use serde_json::json;

use super::{Store, failed};
use crate::{
    authority::{Authority, Purpose},
    contract::Fault,
    credential,
};

impl Store {
    /// Stores a cluster together with its Secrets: what is left of one that could not be stored is removed, but for what is held, which
    /// is marked. Where the answer was lost, it is looked whether it is stored; where nobody can say, the Secrets stay.
    ///
    /// # Errors
    ///
    /// One of them cannot be stored.
    pub async fn create_cluster(
        &self,
        cluster: &CoeCluster,
        secrets: &[Secret],
    ) -> Result<CoeCluster, Fault> {
        let project = &cluster.spec.project_id;
        let api: Api<Secret> = self.of(project)?;
        let created = match self.create_secrets(project, &api, secrets).await {
            Ok(()) => self.create(project, cluster).await,
            Err(fault) => Err(fault),
        };
        let created = match created {
            Err(fault) => {
                let clusters: Api<CoeCluster> = self.of(project)?;
                let found = clusters.get_opt(&cluster.name_any()).await;
                found.map_err(|error| failed(&error))?.ok_or(fault)
            }
            created => created,
        };
        for secret in secrets {
            match &created {
                Ok(created) => own(&api, created, &secret.name_any()).await,
                Err(_) => discard(&api, &secret.name_any()).await,
            }
        }
        created
    }

    async fn create_secrets(
        &self,
        project: &str,
        api: &Api<Secret>,
        secrets: &[Secret],
    ) -> Result<(), Fault> {
        for secret in secrets {
            let kept = self.create_in(project, api, secret).await;
            kept.map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    /// A Secret in the namespace of a project.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub(crate) async fn secret(&self, project: &str, name: &str) -> Result<Option<Secret>, Fault> {
        let secrets: Api<Secret> = self.of(project)?;
        let found = secrets.get_opt(name).await;
        found.map_err(|error| failed(&error))
    }

    /// Keeps something else in a Secret of a cluster, which may be a new one.
    ///
    /// # Errors
    ///
    /// It was changed or made by others meanwhile.
    pub(crate) async fn keep(
        &self,
        cluster: &CoeCluster,
        before: Option<&Secret>,
        secret: &Secret,
    ) -> Result<(), Fault> {
        let secrets: Api<Secret> = self.of(&cluster.spec.project_id)?;
        let name = secret.name_any();
        let kept = match before {
            Some(before) => replace_data(&secrets, before, &secret.data).await.map(drop),
            None => secrets
                .create(&PostParams::default(), secret)
                .await
                .map(drop),
        };
        kept.map_err(|error| match error {
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => Fault::conflict(
                format!("Secret {name} is being changed by others. Try again."),
            ),
            error => failed(&error),
        })?;
        if before.is_none() {
            own(&secrets, cluster, &name).await;
        }
        Ok(())
    }

    /// Lets a Secret go whose credential is taken away. Where that fails, the operator does it later.
    pub(crate) async fn let_go(&self, project: &str, secret: &Secret) -> Result<(), Fault> {
        let secrets: Api<Secret> = self.of(project)?;
        if let Err(error) = forget(&secrets, secret).await {
            let error = controller::chain(&error);
            let secret = secret.name_any();
            tracing::warn!(
                error,
                secret,
                "a Secret of a cluster that there is not stays"
            );
        }
        Ok(())
    }

    /// An authority of a cluster.
    ///
    /// # Errors
    ///
    /// It is not there.
    pub async fn authority(
        &self,
        cluster: &CoeCluster,
        purpose: Purpose,
    ) -> Result<Authority, Fault> {
        let name = secret_name(&cluster.name_any());
        let secret = self.secret(&cluster.spec.project_id, &name).await?;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        let text = |key: &str| {
            let ByteString(bytes) = data.get(key)?;
            String::from_utf8(bytes.clone()).ok()
        };
        let (certificate, key) = purpose.keys();
        text(certificate)
            .zip(text(key))
            .map(|(certificate, key)| Authority { certificate, key })
            .ok_or_else(|| Fault::not_found("Certificate", &cluster.name_any()))
    }
}

/// The name of the Secret with the authorities of a cluster.
pub(crate) fn secret_name(cluster: &str) -> String {
    format!("{cluster}-authorities")
}

/// The Secret with the authorities of a cluster.
pub(crate) fn secret_of(cluster: &str, authorities: &[(Purpose, Authority)]) -> Secret {
    let mut data = BTreeMap::new();
    for (purpose, Authority { certificate, key }) in authorities {
        let keys = purpose.keys();
        data.insert(
            keys.0.to_owned(),
            ByteString(certificate.clone().into_bytes()),
        );
        data.insert(keys.1.to_owned(), ByteString(key.clone().into_bytes()));
    }
    Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(cluster)),
            labels: Some([(CLUSTER_LABEL.to_owned(), cluster.to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..Secret::default()
    }
}

/// Writes other data into a Secret that is still as it was read.
pub(crate) async fn replace_data(
    secrets: &Api<Secret>,
    before: &Secret,
    data: &impl Serialize,
) -> kube::Result<Secret> {
    let version = before.resource_version();
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "data": data}));
    let name = before.name_any();
    secrets.patch(&name, &PatchParams::default(), &patch).await
}

/// Removes a Secret, as it was read, that was held by its credential.
pub(crate) async fn forget(secrets: &Api<Secret>, secret: &Secret) -> kube::Result<()> {
    finalizer::release(secrets, secret, credential::FINALIZER).await?;
    let only = Preconditions {
        uid: secret.uid(),
        resource_version: None,
    };
    let parameters = DeleteParams::default().preconditions(only);
    match secrets.delete(&secret.name_any(), &parameters).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// With an owner, a Secret goes with its cluster, whoever deletes that. Without one it stays behind, unread.
pub(crate) async fn own(secrets: &Api<Secret>, cluster: &CoeCluster, name: &str) {
    let owner = OwnerReference {
        api_version: CoeCluster::api_version(&()).into_owned(),
        kind: CoeCluster::kind(&()).into_owned(),
        name: cluster.name_any(),
        uid: cluster.uid().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
    if let Err(error) = secrets.patch(name, &PatchParams::default(), &patch).await {
        let error = controller::chain(&error);
        tracing::warn!(error, secret = name, "a Secret of a cluster has no owner");
    }
}

async fn discard(secrets: &Api<Secret>, name: &str) {
    match secrets.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => {
            let error = controller::chain(&error);
            tracing::warn!(
                error,
                secret = name,
                "a Secret of a cluster that there is not was not removed"
            );
        }
        Ok(_) => {}
    }
}
