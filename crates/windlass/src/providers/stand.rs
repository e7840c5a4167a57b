//! What there is of providers in an API: their objects, and the releases that are kept for them.

use anyhow::Context as _;
use api::provider::{
    Addon, Bootstrap, ControlPlane, Core, Infrastructure, Ipam, Kind, Provider, ProviderSpec,
    RuntimeExtension,
};
use clusterctl::{
    Components, ImageOverrides, InvalidOverlay, NonCanonical, Object, Overlay, Release, Scopes,
    Substitution, Version,
};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Api, Client, ResourceExt, api::ListParams};
use providers::{inputs, names::TARGET, source, target};

use crate::client::answered;

/// A provider's object, and what is kept for it.
#[derive(Clone, Debug)]
pub(super) struct Stand {
    /// Its kind.
    pub(super) kind: &'static str,
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// As clusterctl knows it; none, if its name is none of one.
    pub(super) provider: Option<clusterctl::Provider>,
    /// The version that is wanted.
    pub(super) wanted: String,
    /// The version that is installed.
    pub(super) installed: Option<String>,
    /// The contract of that.
    pub(super) contract: String,
    /// Whether it is ready, and why not.
    pub(super) ready: Option<Condition>,
    /// Where it is installed.
    pub(super) place: target::Place,
    /// The Secret with the kubeconfig of that.
    pub(super) target: Option<String>,
    /// What its object says.
    pub(super) spec: ProviderSpec,
    /// What is kept for it.
    pub(super) maps: Vec<ConfigMap>,
    /// Series that its annotation knows better than the metadata of releases, or why it names none.
    pub(super) overlay: Result<Overlay, InvalidOverlay>,
}

impl Stand {
    /// Every provider of the API.
    pub(super) async fn all(client: &Client) -> anyhow::Result<Vec<Self>> {
        let mut all = of_kind::<Core>(client).await?;
        all.extend(of_kind::<Bootstrap>(client).await?);
        all.extend(of_kind::<ControlPlane>(client).await?);
        all.extend(of_kind::<Infrastructure>(client).await?);
        all.extend(of_kind::<Ipam>(client).await?);
        all.extend(of_kind::<RuntimeExtension>(client).await?);
        all.extend(of_kind::<Addon>(client).await?);
        Ok(all)
    }

    /// As plans have it.
    pub(super) fn installed(&self) -> Option<clusterctl::Installed> {
        Some(clusterctl::Installed {
            provider: self.provider.clone()?,
            namespace: self.namespace.clone(),
            version: self.installed.as_ref()?.parse().ok()?,
        })
    }

    /// The release of a version, if it is kept.
    pub(super) fn held(&self, version: &Version) -> Option<source::Held> {
        let overlay = self.overlay.clone().unwrap_or_default();
        source::choose(&self.maps, Some(version), &overlay).ok()
    }

    /// The objects of a version, if it is kept: with variables as they are, and without what the provider's object changes in them.
    pub(super) fn objects(&self, version: &Version) -> anyhow::Result<Option<Vec<Object>>> {
        let (Some(provider), Some(held)) = (&self.provider, self.held(version)) else {
            return Ok(None);
        };
        let release = Release {
            provider,
            version,
            components: &held.components,
            additional: None,
            target_namespace: Some(&self.namespace),
            images: &ImageOverrides::default(),
            non_canonical: NonCanonical::Keep,
            scopes: &Scopes::default(),
        };
        let components = Components::render(&release, &Substitution::Raw)
            .with_context(|| format!("{provider} {version}"))?;
        Ok(Some(components.into_objects()))
    }

    /// The versions that are kept.
    pub(super) fn versions(&self) -> Vec<Version> {
        let versions = self.maps.iter().map(source::version_of);
        let mut versions: Vec<_> = versions.filter_map(|text| text.parse().ok()).collect();
        versions.sort();
        versions.dedup();
        versions
    }
}

async fn of_kind<K: Kind>(client: &Client) -> anyhow::Result<Vec<Stand>> {
    let api = Api::<Provider<K>>::all(client.clone());
    let kind = K::TYPE.kind();
    let listed = match api.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => anyhow::bail!(
            "the API does not serve {kind}: install the definitions that `windlass crds --providers` prints"
        ),
        listed => answered(listed, &format!("list {kind} objects"))?,
    };
    let mut found = Vec::new();
    for object in listed.items {
        let namespace = object.namespace().unwrap_or_default();
        let maps = match source::selector(&object) {
            Ok(selector) => source::list(client, &namespace, &selector).await,
            Err(_) => Ok(Vec::new()),
        };
        let status = object.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().find(|one| one.type_ == "Ready");
        found.push(Stand {
            kind,
            name: object.name_any(),
            provider: inputs::provider(K::TYPE, &object.name_any()).ok(),
            spec: object.spec.clone(),
            wanted: object.spec.version.clone().unwrap_or_default(),
            installed: status.installed_version.clone(),
            contract: status.contract.clone().unwrap_or_default(),
            ready: ready.cloned(),
            place: target::place(&object),
            target: object.annotations().get(TARGET).cloned(),
            overlay: source::overlay(&object),
            maps: answered(maps, &format!("list the ConfigMaps of {kind} {namespace}"))?,
            namespace,
        });
    }
    Ok(found)
}
