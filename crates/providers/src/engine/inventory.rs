//! What clusterctl keeps of providers: a definition and an object for each, so that plain `clusterctl` sees them.
//!
//! # Source
//! cluster-api v1.14 `cmd/clusterctl/api/v1alpha3`, and how clusterctl labels the object.

use api::provider::label;
use api::run::Failure;
use clusterctl::{Installed, Lack, Object, label::CORE};
use kube::{Client, api::DeleteParams};
use runs::calls::{Ended, call, config};
use serde_json::{Value, json};

use super::{
    Installer,
    objects::{self, Effect, Resources},
};

const GROUP: &str = "clusterctl.cluster.x-k8s.io";
const VERSION: &str = "v1alpha3";

fn definition() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("providers.{GROUP}"), "labels": {label::CLUSTERCTL: "", CORE: "inventory"}},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"kind": "Provider", "listKind": "ProviderList", "plural": "providers", "singular": "provider"},
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "additionalPrinterColumns": [
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    column("Type", ".type"), column("Provider", ".providerName"), column("Version", ".version"),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object", "description": "A provider of Cluster API that is installed.",
                    "properties": {
                        "apiVersion": text("The version of this form."),
                        "kind": text("Provider."),
                        "metadata": {"type": "object"},
                        "providerName": text("Its name."),
                        "type": text("Its type, as CoreProvider."),
                        "version": text("The version that is installed."),
                        "watchedNamespace": text("Not in use: providers watch all namespaces."),
                    },
                }},
            }],
        },
    })
}

impl Installer {
    fn entry(&self) -> Result<Object, Failure> {
        let version = self.inputs.version().map_err(|error| {
            config(
                "NoVersion",
                controller::chain(&error),
                "let the operator plan anew",
            )
        })?;
        let installed = Installed {
            provider: self.provider.clone(),
            namespace: self.work.namespace(),
            version,
        };
        installed.object().map_err(|lack| no_object(&lack))
    }

    pub(super) async fn record(&self, there: &Client) -> Result<Effect, Ended> {
        let mut resources = Resources::default();
        let definition = object(definition())?;
        let api = resources.api(there, &definition).await?;
        let existing = api.get_metadata_opt(definition.name()).await;
        let existing = existing.map_err(|error| call("read clusterctl's definition", &error))?;
        // One that is there is clusterctl's, and stays.
        if existing.is_none() {
            self.held()?;
            objects::apply(&api, &definition).await?;
        }
        self.established(there, std::slice::from_ref(&definition))
            .await?;
        let entry = self.entry()?;
        let api = resources.api(there, &entry).await?;
        self.held()?;
        Ok(objects::apply(&api, &entry).await?)
    }

    pub(super) async fn forget(&self, there: &Client) -> Result<(), Ended> {
        let entry = self.entry()?;
        // Without the definition there is nothing to forget.
        let served = super::material::discover(there).await?;
        if !served.has_group(GROUP) {
            return Ok(());
        }
        let api = Resources::default().api(there, &entry).await?;
        self.held()?;
        match api.delete(entry.name(), &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            result => result
                .map(drop)
                .map_err(|error| call(format!("delete {}", entry.title()), &error).into()),
        }
    }
}

fn object(value: Value) -> Result<Object, Failure> {
    Object::new(value).map_err(|lack| no_object(&lack))
}

fn no_object(lack: &Lack) -> Failure {
    config("NoObject", lack.to_string(), "tell those who make Windlass")
}
