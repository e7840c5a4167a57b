//! What the objects of a run are made of, read anew by each step and held against the plan.

use std::collections::BTreeMap;

use api::provider::key;
use api::run::Failure;
use clusterctl::{Contract, Object, ReleaseSeries, Scope, Scopes};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt,
    discovery::{ApiGroup, Discovery, Scope as Known},
};
use runs::calls::{call, config};

use super::{Installer, hidden::Hidden, prune};
use crate::{
    certificates,
    inputs::Variables,
    lent,
    operation::Operation,
    render::{self, Material, Rendered},
    source, target,
};

/// What comes of parts that are not what the plan was made of.
const CHANGED: &str = "the operator sees it and plans anew";

impl Installer {
    /// A client of the API that is installed in.
    pub(super) async fn there(&self) -> Result<Client, Failure> {
        let (namespace, secret) = (self.work.namespace(), self.inputs.target.as_deref());
        let subject = &self.work.run.spec.subject;
        target::client(&self.work.client, &namespace, secret)
            .await
            .map_err(|error| {
                let leave = target::leave(&namespace, &subject.kind, &subject.name);
                let remedy = format!("mend that, or {leave}");
                config("NoTarget", controller::chain(&error), &remedy)
            })
    }

    /// Everything that the objects are made of.
    pub(super) async fn material(&self) -> Result<Material, Failure> {
        let namespace = self.work.namespace();
        let manifests = self.inputs.manifests.as_ref();
        let manifests = manifests
            .ok_or_else(|| config("NoManifests", "the plan names no manifests", CHANGED))?;
        let version = self.inputs.version();
        let version =
            version.map_err(|error| config("NoVersion", controller::chain(&error), CHANGED))?;
        let name = &manifests.config_map;
        let map = self.config_map(&namespace, name).await?;
        // The plan has the contract already, whatever the metadata lacks.
        let series = ReleaseSeries::from(&version);
        let contract: Option<Contract> = self.inputs.contract.parse().ok();
        let overlay = contract.map(|contract| (series, contract));
        let held = source::held(&map, &overlay.into_iter().collect())
            .map_err(|error| config("ManifestsUnreadable", error.to_string(), CHANGED))?;
        if held.digest() != manifests.digest {
            let message =
                format!("ConfigMap {namespace}/{name} is not what it was when the run was planned");
            return Err(config("ManifestsChanged", message, CHANGED));
        }
        Ok(Material {
            provider: self.provider.clone(),
            version,
            namespace,
            is_here: self.inputs.target.is_none(),
            components: held.components,
            additional: self.additional().await?,
            variables: self.variables().await?,
            variables_mark: self.inputs.variables.as_ref().map(Variables::mark),
            changes: self.inputs.changes.clone(),
            lingers: false,
        })
    }

    /// What people have written, before variables are put in: what stands there can be told.
    pub(super) async fn written(&self) -> Result<String, Failure> {
        let material = self.material().await?;
        let changes = serde_json::to_string(&material.changes).unwrap_or_default();
        let additional = material.additional.unwrap_or_default();
        Ok([material.components, additional, changes].join("\n"))
    }

    /// The objects, in the order in which they are applied.
    pub(super) async fn objects(&self, there: &Client) -> Result<Vec<Object>, Failure> {
        Ok(self.rendered(there).await?.objects)
    }

    /// The objects, and what of the spec has no effect on them.
    pub(super) async fn rendered(&self, there: &Client) -> Result<Rendered, Failure> {
        let mut rendered = self.asked(there).await?;
        if !rendered.has_cert_manager {
            rendered.objects = self.trusting(there, rendered.objects).await?;
        }
        Ok(rendered.into())
    }

    /// The objects as the release has them, and whether somebody makes the certificates that it asks for.
    pub(super) async fn asked(&self, there: &Client) -> Result<Asked, Failure> {
        let mut material = self.material().await?;
        let lingers = target::lingers(there).await;
        material.lingers =
            lingers.map_err(|error| call("ask for the version of the API", &error))?;
        let discovery = discover(there).await?;
        let rendered = render::render(&material, &scopes(&discovery));
        let rendered = rendered.map_err(|error| error.failure())?;
        Ok(Asked {
            objects: rendered.objects,
            notices: rendered.notices,
            has_cert_manager: discovery.has_group(certificates::GROUP),
        })
    }

    /// The workloads without what is added to them here. Where somebody else installed them they are right so, and their pods are not
    /// replaced for it; from the first other wish on they are as any other.
    pub(super) async fn released(
        &self,
        there: &Client,
    ) -> Result<BTreeMap<prune::Key, Object>, Failure> {
        let operation = &self.work.run.spec.operation;
        let keeps = [Operation::Install, Operation::Repair];
        if !keeps.iter().any(|kept| kept.name() == operation) {
            return Ok(BTreeMap::new());
        }
        let material = Material {
            variables_mark: None,
            ..self.material().await?
        };
        let rendered = render::render(&material, &scopes(&discover(there).await?));
        let objects = rendered.map_err(|error| error.failure())?.objects;
        let workloads = objects.into_iter().filter(|one| one.group() == "apps");
        Ok(workloads.map(|one| (prune::key(&one), one)).collect())
    }

    async fn additional(&self) -> Result<Option<String>, Failure> {
        let Some(additional) = &self.inputs.additional else {
            return Ok(None);
        };
        let (namespace, name) = (&additional.namespace, &additional.name);
        let map = self.config_map(namespace, name).await?;
        let own = self.work.namespace();
        if !lent::is_lent(&map.metadata, &own) {
            let place = (namespace.as_str(), name.as_str());
            return Err(not_lent(
                "ConfigMap",
                "spec.additionalManifests",
                place,
                &own,
            ));
        }
        let text = map
            .data
            .and_then(|mut data| data.remove(key::MANIFESTS))
            .unwrap_or_default();
        if controller::digest(&[&text], 64) != additional.digest {
            let message =
                format!("ConfigMap {namespace}/{name} is not what it was when the run was planned");
            return Err(config("ManifestsChanged", message, CHANGED));
        }
        Ok(Some(text))
    }

    /// The values of variables, which are hidden from then on in what is told.
    pub(super) async fn variables(&self) -> Result<BTreeMap<String, String>, Failure> {
        let Some(variables) = &self.inputs.variables else {
            return Ok(BTreeMap::new());
        };
        let title = format!("Secret {}/{}", variables.namespace, variables.name);
        let is_same = |secret: &Secret| {
            secret.uid().as_deref() == Some(&variables.uid)
                && secret.resource_version().as_deref() == Some(&variables.resource_version)
        };
        let secret = Api::<Secret>::namespaced(self.work.client.clone(), &variables.namespace)
            .get_opt(&variables.name)
            .await
            .map_err(|error| call(format!("read {title}"), &error))?
            .filter(is_same);
        let secret = secret.ok_or_else(|| {
            config(
                "VariablesChanged",
                format!("{title} is not what it was when the run was planned"),
                CHANGED,
            )
        })?;
        let own = self.work.namespace();
        if !lent::is_lent(&secret.metadata, &own) {
            let place = (variables.namespace.as_str(), variables.name.as_str());
            return Err(not_lent("Secret", "spec.configSecret", place, &own));
        }
        let values = secret.data.unwrap_or_default().into_iter();
        let values: BTreeMap<_, _> = values
            .map(|(name, value)| match String::from_utf8(value.0) {
                Ok(value) => Ok((name, value)),
                Err(_) => Err(config(
                    "VariablesUnreadable",
                    format!("key {name} of {title} is no text"),
                    "write it as text",
                )),
            })
            .collect::<Result<_, _>>()?;
        self.hidden.get_or_init(|| Hidden::of(values.values()));
        Ok(values)
    }

    async fn config_map(&self, namespace: &str, name: &str) -> Result<ConfigMap, Failure> {
        let title = format!("ConfigMap {namespace}/{name}");
        Api::<ConfigMap>::namespaced(self.work.client.clone(), namespace)
            .get_opt(name)
            .await
            .map_err(|error| call(format!("read {title}"), &error))?
            .ok_or_else(|| {
                config(
                    "ManifestsGone",
                    format!("{title} is not there any more"),
                    CHANGED,
                )
            })
    }
}

/// A run that says so was not made by the operator, or somebody has thought better of it.
fn not_lent(kind: &str, field: &str, place: (&str, &str), own: &str) -> Failure {
    config("NotLent", lent::missing(kind, field, place, own), CHANGED)
}

/// The objects as a release has them.
pub(super) struct Asked {
    pub objects: Vec<Object>,
    notices: Vec<String>,
    pub has_cert_manager: bool,
}

impl From<Asked> for Rendered {
    fn from(asked: Asked) -> Self {
        Self {
            objects: asked.objects,
            notices: asked.notices,
        }
    }
}

/// What an API knows of where objects live.
fn scopes(discovery: &Discovery) -> Scopes {
    let resources = discovery.groups().flat_map(ApiGroup::recommended_resources);
    Scopes::new(resources.map(|(resource, capabilities)| {
        let scope = match capabilities.scope {
            Known::Cluster => Scope::Cluster,
            Known::Namespaced => Scope::Namespaced,
        };
        (resource.group, resource.kind, scope)
    }))
}

/// What an API serves.
pub(super) async fn discover(there: &Client) -> Result<Discovery, Failure> {
    Discovery::new(there.clone())
        .run_aggregated()
        .await
        .map_err(|error| call("see what the API serves", &error))
}
