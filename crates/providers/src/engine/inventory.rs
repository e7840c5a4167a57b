//! What clusterctl keeps of providers: a definition and an object for each, so that plain `clusterctl` sees them.
//!
//! # Source
//! cluster-api v1.14 `cmd/clusterctl/api/v1alpha3`, and how clusterctl labels the object.

use api::provider::label;
use api::run::Failure;
use clusterctl::{Installed, Lack, Object, Version, label::CORE, upgrade};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams},
    discovery::Discovery,
};
use runs::calls::{Ended, call, config};
use serde_json::{Value, json};

use super::{
    Installer,
    objects::{self, Effect, Resources},
    takeover,
};
use crate::inputs::Unreadable;

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
        let version = self.inputs.version().map_err(|error| no_version(&error))?;
        let installed = Installed {
            provider: self.provider.clone(),
            namespace: self.work.namespace(),
            version,
        };
        installed.object().map_err(|lack| no_object(&lack))
    }

    /// None: it is none of clusterctl's.
    pub(super) async fn record(&self, there: &Client) -> Result<Option<Effect>, Ended> {
        if self.provider.is_cert_manager() {
            return Ok(None);
        }
        let mut resources = Resources::default();
        let definition = object(definition())?;
        let api = resources.api(there, &definition).await?;
        let existing = api.get_metadata_opt(definition.name()).await;
        let existing = existing.map_err(|error| call("read clusterctl's definition", &error))?;
        // One that is there is clusterctl's, and stays.
        if existing.is_none() {
            self.held()?;
            objects::apply(&api, &definition, None).await?;
        }
        self.established(there, std::slice::from_ref(&definition))
            .await?;
        let entry = self.entry()?;
        let api = resources.api(there, &entry).await?;
        self.held()?;
        Ok(Some(objects::apply(&api, &entry, None).await?.effect))
    }

    /// That what clusterctl knows of the provider is what an installation may go on from.
    pub(super) async fn follows(&self, there: &Client, served: &Discovery) -> Result<(), Failure> {
        if !served.has_group(GROUP) {
            return Ok(());
        }
        let entry = self.entry()?;
        let (resource, _) = Resources::default().of(there, &entry).await?;
        let parameters = ListParams::default().labels(&format!("{CORE}=inventory"));
        let found = Api::<DynamicObject>::all_with(there.clone(), &resource)
            .list(&parameters)
            .await
            .map_err(|error| call("read clusterctl's inventory", &error))?;
        let wanted = self.inputs.version().map_err(|error| no_version(&error))?;
        let own = found
            .items
            .iter()
            .filter(|one| one.name_any() == entry.name());
        for one in own {
            let namespace = one.namespace().unwrap_or_default();
            let installed = one.data["version"].as_str().unwrap_or_default();
            if namespace != entry.namespace() {
                return Err(elsewhere(&entry, &namespace, installed));
            }
            // One that says no version is written anew.
            if let Ok(installed) = installed.parse::<Version>() {
                step(&self.provider, &installed, &wanted)?;
            }
        }
        Ok(())
    }

    pub(super) async fn forget(&self, there: &Client) -> Result<(), Ended> {
        let entry = self.entry()?;
        // Without the definition there is nothing to forget.
        let served = super::material::discover(there).await?;
        if !served.has_group(GROUP) {
            return Ok(());
        }
        let api = Resources::default().api(there, &entry).await?;
        let found = api.get_metadata_opt(entry.name()).await;
        let found = found.map_err(|error| call(format!("read {}", entry.title()), &error))?;
        // What no run has taken over is noted there by somebody else.
        let is_own = found.is_some_and(|found| takeover::is_ours(&found.metadata));
        if !is_own && !self.has_applied(there).await? {
            return Ok(());
        }
        self.held()?;
        match api.delete(entry.name(), &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            result => result
                .map(drop)
                .map_err(|error| call(format!("delete {}", entry.title()), &error).into()),
        }
    }
}

fn elsewhere(entry: &Object, namespace: &str, installed: &str) -> Failure {
    let message = format!(
        "{} {installed} is installed in namespace {namespace}, as clusterctl's inventory says, and the provider's object is in namespace {}",
        entry.name(),
        entry.namespace()
    );
    config(
        "InstalledElsewhere",
        message,
        "make the provider's object in that namespace instead; or, where nothing is installed there any more, delete that Provider of clusterctl's",
    )
}

/// What a status says of an installed version is judged before a run is made. Where somebody else installed it, the inventory says it.
fn step(
    provider: &clusterctl::Provider,
    installed: &Version,
    wanted: &Version,
) -> Result<(), Failure> {
    let is_older = (wanted.major(), wanted.minor()) < (installed.major(), installed.minor());
    if !is_older && !upgrade::skips(provider, installed, wanted) {
        return Ok(());
    }
    let rule = if is_older {
        "Cluster API knows no way back to an older minor version"
    } else {
        "Cluster API supports no upgrade that skips more than three minor versions"
    };
    let message = format!(
        "spec.version {wanted} would follow {installed}, which is installed, as clusterctl's inventory says, and {rule}"
    );
    let remedy = format!("write {installed} or the next minor version, and then on from there");
    Err(config("NoWayToVersion", message, &remedy))
}

fn no_version(error: &Unreadable) -> Failure {
    config(
        "NoVersion",
        controller::chain(error),
        "let the operator plan anew",
    )
}

fn object(value: Value) -> Result<Object, Failure> {
    Object::new(value).map_err(|lack| no_object(&lack))
}

fn no_object(lack: &Lack) -> Failure {
    config("NoObject", lack.to_string(), "tell those who make Windlass")
}
