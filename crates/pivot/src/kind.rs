//! The kinds whose objects a move looks at.
//!
//! They are those of the CustomResourceDefinitions that clusterctl, or Windlass, installed as part of a provider, in the version in
//! which they are stored, and Secrets and ConfigMaps.

use std::sync::Arc;

use clusterctl::{describe, label};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt, api::ListParams, core::ApiResource};

use crate::{
    error::{Error, Result},
    place::Place,
};

/// The label of objects that move whosever they are; on a definition it is meant for all objects of the kind.
pub(crate) const MOVE: &str = "clusterctl.cluster.x-k8s.io/move";
/// As [`MOVE`], with all that they own.
pub(crate) const MOVE_HIERARCHY: &str = "clusterctl.cluster.x-k8s.io/move-hierarchy";

/// A kind of objects.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    /// Whether its objects are in namespaces.
    pub(crate) is_namespaced: bool,
    pub(crate) moves: Moves,
    /// The versions of the contract that are offered by the version which is used here, as labels of the definition name them.
    pub(crate) contracts: Vec<String>,
}

/// Which objects of a kind move.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Moves {
    /// Those that an object which moves owns, or that say so themselves.
    WithOwner,
    /// All.
    Always,
    /// All, and what they own.
    WithHierarchy,
}

impl Kind {
    pub(crate) fn name(&self) -> &str {
        &self.resource.kind
    }

    /// Whether it is this kind, in whichever version.
    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.resource.group == group && self.resource.kind == kind
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.is(describe::CORE, "Cluster")
    }

    pub(crate) fn is_cluster_class(&self) -> bool {
        self.is(describe::CORE, "ClusterClass")
    }

    pub(crate) fn is_machine(&self) -> bool {
        self.is(describe::CORE, "Machine")
    }

    pub(crate) fn is_resource_set(&self) -> bool {
        self.is(describe::ADDONS, "ClusterResourceSet")
    }

    pub(crate) fn is_resource_set_binding(&self) -> bool {
        self.is(describe::ADDONS, "ClusterResourceSetBinding")
    }

    pub(crate) fn is_secret(&self) -> bool {
        self.is("", "Secret")
    }

    pub(crate) fn is_config_map(&self) -> bool {
        self.is("", "ConfigMap")
    }

    /// The name of its definition, if it has one.
    pub(crate) fn definition(&self) -> Option<String> {
        let ApiResource { group, plural, .. } = &self.resource;
        (!group.is_empty()).then(|| format!("{plural}.{group}"))
    }

    fn of_core(kind: &str, plural: &str) -> Self {
        Self {
            resource: ApiResource {
                group: String::new(),
                version: "v1".to_owned(),
                api_version: "v1".to_owned(),
                kind: kind.to_owned(),
                plural: plural.to_owned(),
            },
            is_namespaced: true,
            moves: Moves::WithOwner,
            contracts: Vec::new(),
        }
    }

    pub(crate) fn secret() -> Self {
        Self::of_core("Secret", "secrets")
    }

    pub(crate) fn config_map() -> Self {
        Self::of_core("ConfigMap", "configmaps")
    }

    /// The kind of a definition; none without a stored version.
    pub(crate) fn of(definition: &CustomResourceDefinition) -> Option<Self> {
        let spec = &definition.spec;
        let stored = spec.versions.iter().find(|version| version.storage)?;
        let mut kind = Self {
            resource: ApiResource {
                group: spec.group.clone(),
                version: stored.name.clone(),
                api_version: format!("{}/{}", spec.group, stored.name),
                kind: spec.names.kind.clone(),
                plural: spec.names.plural.clone(),
            },
            is_namespaced: spec.scope != "Cluster",
            moves: Moves::WithOwner,
            contracts: contracts(definition, &stored.name),
        };
        let labels = definition.labels();
        let is_head = kind.is_cluster() || kind.is_cluster_class() || kind.is_resource_set();
        if is_head || labels.contains_key(MOVE_HIERARCHY) {
            kind.moves = Moves::WithHierarchy;
        } else if labels.contains_key(MOVE) {
            kind.moves = Moves::Always;
        }
        Some(kind)
    }
}

/// The versions of the contract for which a definition offers a version of its kind.
pub(crate) fn contracts(definition: &CustomResourceDefinition, version: &str) -> Vec<String> {
    let labels = definition.labels().iter();
    let offered = labels.filter_map(|(name, versions)| {
        let contract = name.strip_prefix("cluster.x-k8s.io/")?;
        let offers = contract.starts_with('v') && versions.split('_').any(|one| one == version);
        offers.then(|| contract.to_owned())
    });
    offered.collect()
}

/// All kinds of a side that a move looks at.
pub(crate) async fn kinds(place: &Place) -> Result<Vec<Arc<Kind>>> {
    let definitions = Api::<CustomResourceDefinition>::all(place.client.clone());
    let labelled = ListParams::default().labels(label::CLUSTERCTL);
    let listed = place
        .persist(async || {
            let listed = definitions.list(&labelled).await;
            listed.map_err(|source| {
                Error::api(
                    format!("list CustomResourceDefinitions {}", place.word),
                    source,
                )
            })
        })
        .await?;
    let mut kinds: Vec<_> = listed.items.iter().filter_map(Kind::of).collect();
    kinds.extend([Kind::secret(), Kind::config_map()]);
    Ok(kinds.into_iter().map(Arc::new).collect())
}
