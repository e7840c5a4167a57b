//! Notes what was applied, so that it is seen when somebody else writes it.

use api::provider::label;
use api::run::Failure;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, Patch, PatchParams},
};
use runs::calls::{Ended, call, config};
use serde_json::json;

use super::{
    Installer,
    objects::{self, Resources},
    prune,
};
use crate::{
    drift::{self, Applied},
    names::COMPONENTS_MANAGER,
    render,
};

impl Installer {
    /// Applies all once more, which writes nothing where nobody else has written meanwhile, and notes how it is then.
    pub(super) async fn note(&self, there: &Client) -> Result<(), Ended> {
        let mut resources = Resources::default();
        let mut applied = Applied::default();
        let released = self.released(there).await?;
        for object in &self.objects(there).await? {
            let (resource, _) = resources.of(there, object).await?;
            let api = resources.api(there, object).await?;
            self.held()?;
            let put = objects::apply(&api, object, released.get(&prune::key(object))).await?;
            // Providers of one namespace share it, and each has its label on it: what is in it tells that it is gone.
            if !render::is_namespace(object) {
                applied.note(&resource, &put.stands.metadata);
            }
        }
        for (_, _, namespace, name) in self.secrets(there).await? {
            let secret = Api::<Secret>::namespaced(there.clone(), &namespace)
                .get_metadata(&name)
                .await
                .map_err(|error| call(format!("read Secret {namespace}/{name}"), &error))?;
            applied.note(&ApiResource::erase::<Secret>(&()), &secret.metadata);
        }
        let text = serde_json::to_string(&applied).map_err(|error| {
            config(
                "NoRecord",
                controller::chain(&error),
                "tell those who make Windlass",
            )
        })?;
        let name = self.config_map_of_applied();
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {label::CLUSTERCTL: ""}},
            "data": {drift::KEY: text},
        });
        self.held()?;
        self.maps(there)
            .patch(
                &name,
                &PatchParams::apply(COMPONENTS_MANAGER).force(),
                &Patch::Apply(&body),
            )
            .await
            .map_err(|error| call(format!("write ConfigMap {name}"), &error))?;
        Ok(())
    }

    /// Whether a run has noted what it applied: from then on all of the provider is Windlass's, whoever installed it.
    pub(super) async fn has_applied(&self, there: &Client) -> Result<bool, Failure> {
        let name = self.config_map_of_applied();
        let found = self.maps(there).get_metadata_opt(&name).await;
        let found = found.map_err(|error| call(format!("read ConfigMap {name}"), &error))?;
        Ok(found.is_some())
    }

    /// With the provider goes what was noted of it.
    pub(super) async fn forget_applied(&self, there: &Client) -> Result<(), Failure> {
        let name = self.config_map_of_applied();
        self.held()?;
        match self
            .maps(there)
            .delete(&name, &DeleteParams::default())
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            result => result
                .map(drop)
                .map_err(|error| call(format!("delete ConfigMap {name}"), &error)),
        }
    }

    fn config_map_of_applied(&self) -> String {
        drift::config_map(&self.provider.manifest_label())
    }

    fn maps(&self, there: &Client) -> Api<ConfigMap> {
        Api::namespaced(there.clone(), &self.work.namespace())
    }
}
