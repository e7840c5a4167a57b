//! Notes what was applied, so that it is seen when somebody else writes it.

use std::collections::BTreeMap;

use api::provider::label;
use api::run::Failure;
use clusterctl::Object;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    discovery::Scope,
};
use runs::calls::{Ended, call, config};
use serde_json::json;

use super::{
    Installer,
    objects::{self, Resources},
    prune, takeover,
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
        Ok(self.keep(there, drift::KEY, &applied).await?)
    }

    /// One takes the other's place.
    async fn keep(&self, there: &Client, key: &str, what: &Applied) -> Result<(), Failure> {
        let text = serde_json::to_string(what).map_err(|error| {
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
            "data": {key: text},
        });
        self.held()?;
        self.maps(there)
            .patch(
                &name,
                &PatchParams::apply(COMPONENTS_MANAGER).force(),
                &Patch::Apply(&body),
            )
            .await
            .map(drop)
            .map_err(|error| call(format!("write ConfigMap {name}"), &error))
    }

    /// Notes what an installation is about to make, before the first of it is written: that goes with the provider, should nothing come of it,
    /// and what Windlass has applied for another one does not. What was noted as applied has all of it.
    pub(super) async fn begin(
        &self,
        there: &Client,
        objects: impl IntoIterator<Item = (ApiResource, String, String)>,
    ) -> Result<(), Failure> {
        let name = self.config_map_of_applied();
        let found = self.maps(there).get_opt(&name).await;
        let found = found.map_err(|error| call(format!("read ConfigMap {name}"), &error))?;
        let data = found.and_then(|map| map.data).unwrap_or_default();
        if data.contains_key(drift::KEY) {
            return Ok(());
        }
        let before = begun(&data);
        let mut all = before.clone();
        for (resource, namespace, name) in objects {
            let api: Api<DynamicObject> = if namespace.is_empty() {
                Api::all_with(there.clone(), &resource)
            } else {
                Api::namespaced_with(there.clone(), &namespace, &resource)
            };
            let found = api.get_metadata_opt(&name).await;
            let found =
                found.map_err(|error| call(format!("read {} {name}", resource.kind), &error))?;
            if found.is_some_and(|found| takeover::is_ours(&found.metadata)) {
                continue;
            }
            let meta = ObjectMeta {
                namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
                name: Some(name),
                ..ObjectMeta::default()
            };
            all.note(&resource, &meta);
        }
        if all == before {
            return Ok(());
        }
        self.keep(there, drift::BEGUN, &all).await
    }

    /// The same of objects as they are applied. Definitions and namespaces are not removed, and need not be noted.
    pub(super) async fn begin_objects(
        &self,
        there: &Client,
        objects: &[Object],
    ) -> Result<(), Failure> {
        let mut resources = Resources::default();
        let mut places = Vec::new();
        for object in objects.iter().filter(|one| !render::comes_first(one)) {
            let (resource, scope) = resources.of(there, object).await?;
            let namespace = match scope {
                Scope::Cluster => String::new(),
                Scope::Namespaced => object.namespace().to_owned(),
            };
            places.push((resource, namespace, object.name().to_owned()));
        }
        if places.is_empty() {
            return Ok(());
        }
        self.begin(there, places).await
    }

    /// What an installation that has not come to its end was about to make.
    pub(super) async fn begun(&self, there: &Client) -> Result<Applied, Failure> {
        let name = self.config_map_of_applied();
        let found = self.maps(there).get_opt(&name).await;
        let found = found.map_err(|error| call(format!("read ConfigMap {name}"), &error))?;
        let data = found.and_then(|map| map.data).unwrap_or_default();
        Ok(begun(&data))
    }

    /// What a run has noted as applied, if any has. Of what cannot be read the provider's status tells.
    pub(super) async fn noted(&self, there: &Client) -> Result<Option<Applied>, Failure> {
        let label = self.provider.manifest_label();
        let noted = drift::noted(there, &self.work.namespace(), &label).await;
        let noted = noted.map_err(|error| call("read what was applied", &error))?;
        Ok(noted.and_then(Result::ok))
    }

    /// Whether a run has noted what it applied: from then on all of the provider is Windlass's, whoever installed it.
    pub(super) async fn has_applied(&self, there: &Client) -> Result<bool, Failure> {
        let label = self.provider.manifest_label();
        let noted = drift::noted(there, &self.work.namespace(), &label).await;
        let noted = noted.map_err(|error| call("read what was applied", &error))?;
        Ok(noted.is_some())
    }

    /// With the provider goes what was noted of it. Where nothing was noted nothing is deleted, which takes no right.
    pub(super) async fn forget_applied(&self, there: &Client) -> Result<(), Failure> {
        let name = self.config_map_of_applied();
        let found = self.maps(there).get_metadata_opt(&name).await;
        let found = found.map_err(|error| call(format!("read ConfigMap {name}"), &error))?;
        if found.is_none() {
            return Ok(());
        }
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

/// What cannot be read says of nothing that it was to be made.
fn begun(data: &BTreeMap<String, String>) -> Applied {
    let text = data.get(drift::BEGUN);
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}
