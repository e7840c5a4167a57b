//! What there is of providers in an API: their objects, and the releases that are kept for them. People who plan by hand and the
//! controller of sets read it alike.

use std::collections::BTreeMap;

use api::{
    Run,
    provider::{
        Addon, Bootstrap, ControlPlane, Core, Infrastructure, Ipam, Kind, Provider, ProviderSpec,
        ProviderStatus, ProviderType, RuntimeExtension,
    },
};
use clusterctl::{
    Components, ComponentsError, ImageOverrides, Installed, InvalidOverlay, Metadata, NonCanonical,
    Object, Overlay, Release, Scopes, Substitution, Version,
    difference::Difference,
    upgrade::{Releases, Upgrade},
};
use controller::conditions::{READY, STALLED};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{check::given, inputs, names::TARGET, provider::past, source, target};

/// A provider's object, and what is kept for it.
#[derive(Clone, Debug)]
pub struct Stand {
    /// Its type.
    pub kind: ProviderType,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// As clusterctl knows it; none, if its name is none of one.
    pub provider: Option<clusterctl::Provider>,
    /// The version that is wanted.
    pub wanted: String,
    /// The generation of its object.
    pub generation: Option<i64>,
    /// What its object says.
    pub spec: ProviderSpec,
    /// How it stands.
    pub status: ProviderStatus,
    /// Where it is installed.
    pub place: target::Place,
    /// The Secret with the kubeconfig of that.
    pub target: Option<String>,
    /// What is kept for it.
    pub maps: Vec<ConfigMap>,
    /// By which labels that is found, where they are some.
    pub selector: Option<String>,
    /// Series that its annotation knows better than the metadata of releases, or why it names none.
    pub overlay: Result<Overlay, InvalidOverlay>,
}

/// Why it is not known what there is.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Unread {
    /// What was asked for.
    pub what: String,
    /// What the API said.
    #[source]
    pub source: kube::Error,
}

/// How far a provider is on its way to a version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Towards {
    /// It has the version, and is ready.
    There(String),
    /// It gets there by itself.
    Waits(String),
    /// It does not before somebody changes something.
    Stopped(String),
}

impl Stand {
    /// Every provider of the API.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn all(client: &Client) -> Result<Vec<Self>, Unread> {
        Self::all_but(client, |_| false).await
    }

    /// Every provider of the kinds that the API serves: of the others there is none.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn all_served(client: &Client) -> Result<Vec<Self>, Unread> {
        let is_unserved =
            |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
        Self::all_but(client, is_unserved).await
    }

    /// Every provider, but for kinds that are not read for such a reason.
    async fn all_but(
        client: &Client,
        is_none: impl Fn(&kube::Error) -> bool,
    ) -> Result<Vec<Self>, Unread> {
        let known = |found: Result<Vec<Self>, Unread>| match found {
            Err(unread) if is_none(&unread.source) => Ok(Vec::new()),
            found => found,
        };
        let mut all = known(of_kind::<Core>(client).await)?;
        all.extend(known(of_kind::<Bootstrap>(client).await)?);
        all.extend(known(of_kind::<ControlPlane>(client).await)?);
        all.extend(known(of_kind::<Infrastructure>(client).await)?);
        all.extend(known(of_kind::<Ipam>(client).await)?);
        all.extend(known(of_kind::<RuntimeExtension>(client).await)?);
        all.extend(known(of_kind::<Addon>(client).await)?);
        Ok(all)
    }

    /// Has each be where its runs have written, whatever its annotation says by now.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn locate(client: &Client, stands: &mut [Self]) -> Result<(), Unread> {
        let all = Api::<Run>::all(client.clone());
        let runs = match all.list(&ListParams::default()).await {
            Ok(runs) => runs.items,
            // Where no runs are served none has written.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(source) => {
                let what = "list Run objects".to_owned();
                return Err(Unread { what, source });
            }
        };
        for stand in stands {
            stand.is_where(past::of(&runs, &stand.uid.clone()));
        }
        Ok(())
    }

    /// Has it be where its runs have written.
    pub(crate) fn is_where<'a>(&mut self, runs: impl IntoIterator<Item = &'a Run>) {
        if let Some(there) = past::place(runs) {
            let namespace = self.namespace.clone();
            self.place = there.target.clone().map(|secret| (namespace, secret));
            self.target = there.target;
        }
    }

    /// A provider, and the ConfigMaps with its releases.
    pub fn of<K: Kind>(object: &Provider<K>, maps: Vec<ConfigMap>) -> Self {
        Self {
            kind: K::TYPE,
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            provider: inputs::provider(K::TYPE, &object.name_any()).ok(),
            wanted: object.spec.version.clone().unwrap_or_default(),
            generation: object.metadata.generation,
            spec: object.spec.clone(),
            status: object.status.clone().unwrap_or_default(),
            place: target::place(object),
            target: object.annotations().get(TARGET).cloned(),
            overlay: source::overlay(object),
            selector: source::selector(object)
                .ok()
                .map(|labels| labels.to_string()),
            maps,
        }
    }

    /// For people.
    pub fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    /// What labels its objects.
    pub fn label(&self) -> Option<String> {
        Some(self.provider.as_ref()?.manifest_label())
    }

    /// The version that is installed, as it is told.
    pub fn installed_version(&self) -> Option<&str> {
        given(self.status.installed_version.as_deref())
    }

    /// As plans have it.
    pub fn installed(&self) -> Option<Installed> {
        Some(Installed {
            provider: self.provider.clone()?,
            namespace: self.namespace.clone(),
            version: self.installed_version()?.parse().ok()?,
        })
    }

    /// Whether it is ready, and why not.
    pub fn ready(&self) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|one| one.type_ == READY)
    }

    /// How far it is on its way to a version.
    pub fn towards(&self, version: &str) -> Towards {
        towards(&self.status, self.generation, version)
    }

    /// The release of a version, if it is kept.
    pub fn held(&self, version: &Version) -> Option<source::Held> {
        let overlay = self.overlay.clone().unwrap_or_default();
        source::choose(&self.maps, Some(version), &overlay).ok()
    }

    /// The objects of a version, if it is kept: with variables as they are, and without what the provider's object changes in them.
    ///
    /// # Errors
    ///
    /// What is kept cannot be rendered.
    pub fn objects(&self, version: &Version) -> Result<Option<Vec<Object>>, ComponentsError> {
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
        let components = Components::render(&release, &Substitution::Raw)?;
        Ok(Some(components.into_objects()))
    }

    /// What an upgrade changes. None: it is not known, for a release is not kept.
    ///
    /// # Errors
    ///
    /// What is kept cannot be rendered.
    pub fn difference(&self, upgrade: &Upgrade) -> Result<Option<Difference>, ComponentsError> {
        let (old, new) = (
            self.objects(&upgrade.from.version)?,
            self.objects(&upgrade.to)?,
        );
        Ok(old
            .zip(new)
            .map(|(old, new)| Difference::between(&old, &new)))
    }

    /// The versions that are kept.
    pub fn versions(&self) -> Vec<Version> {
        let versions = self.maps.iter().map(source::version_of);
        let mut versions: Vec<_> = versions.filter_map(|text| text.parse().ok()).collect();
        versions.sort();
        versions.dedup();
        versions
    }

    /// What is kept, with the metadata of the newest release.
    fn releases(&self) -> Option<Releases> {
        let versions = self.versions();
        let newest = self.held(versions.last()?)?;
        let overlay = self.overlay.clone().unwrap_or_default();
        let metadata = Metadata::parse(&newest.metadata).ok()?.overlaid(&overlay);
        Some(Releases { metadata, versions })
    }
}

/// The releases that are kept of each provider.
pub fn releases<'a>(
    stands: impl IntoIterator<Item = &'a Stand>,
) -> BTreeMap<clusterctl::Provider, Releases> {
    let known = stands.into_iter();
    known
        .filter_map(|stand| Some((stand.provider.clone()?, stand.releases()?)))
        .collect()
}

/// The kind of a provider, as the API serves it.
pub fn resource(provider: ProviderType) -> ApiResource {
    ApiResource {
        group: api::provider::GROUP.to_owned(),
        version: api::provider::VERSION.to_owned(),
        api_version: format!("{}/{}", api::provider::GROUP, api::provider::VERSION),
        kind: provider.kind().to_owned(),
        plural: provider.plural().to_owned(),
    }
}

/// Has the operator take a provider to a version.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn write_version(
    client: &Client,
    provider: ProviderType,
    (namespace, name): (&str, &str),
    version: &str,
) -> Result<(), kube::Error> {
    let resource = resource(provider);
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let patch = Patch::Merge(json!({"spec": {"version": version}}));
    let patched = api.patch(name, &PatchParams::default(), &patch).await;
    patched.map(drop)
}

/// How far a provider of that generation is on its way to a version.
pub fn towards(status: &ProviderStatus, generation: Option<i64>, version: &str) -> Towards {
    let condition = |kind: &str| status.conditions.iter().find(|one| one.type_ == kind);
    let is = |kind: &str| condition(kind).is_some_and(|found| found.status == "True");
    let message = condition(READY)
        .map(|ready| ready.message.clone())
        .unwrap_or_default();
    let is_seen = status.observed_generation == generation;
    if is_seen && is(STALLED) {
        Towards::Stopped(message)
    } else if is_seen && is(READY) && status.installed_version.as_deref() == Some(version) {
        Towards::There(message)
    } else {
        Towards::Waits(message)
    }
}

async fn of_kind<K: Kind>(client: &Client) -> Result<Vec<Stand>, Unread> {
    let kind = K::TYPE.kind();
    let unread = |what: String| move |source| Unread { what, source };
    let api = Api::<Provider<K>>::all(client.clone());
    let listed = api.list(&ListParams::default()).await;
    let listed = listed.map_err(unread(format!("list {kind} objects")))?;
    let mut found = Vec::new();
    for object in listed.items {
        let namespace = object.namespace().unwrap_or_default();
        let maps = match source::selector(&object) {
            Ok(selector) => source::list(client, &namespace, &selector).await,
            Err(_) => Ok(Vec::new()),
        };
        let maps = maps.map_err(unread(format!("list the ConfigMaps of {kind} {namespace}")))?;
        found.push(Stand::of(&object, maps));
    }
    Ok(found)
}
