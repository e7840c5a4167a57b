//! What is there already, and what is written. Nothing that is there is changed, but for what a broken-off migration left undone.
//!
//! The order is that in which nothing refers to what is not there: quotas, templates, authorities, their cluster, how it stands. A
//! cluster that says nothing of how it stands, or has no authorities, was broken off, and is finished the next time.

use std::collections::{BTreeMap, BTreeSet};

use api::magnum::{
    CLUSTER_LABEL, CoeCluster, CoeClusterStatus, CoeClusterTemplate, CoeQuota, NodeGroup,
    definitions,
};
use k8s_openapi::{
    ByteString, api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Carried;
use crate::store::{Store, own, replace_data, secret_name, secret_of};

/// How one object stands to what is to be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Standing {
    /// It is not there.
    New,
    /// It is there, and something that belongs to it is not.
    Undone,
    /// It is there as it is to be.
    Same,
    /// It is there, and says something else in these fields.
    Differs(Vec<String>),
    /// It was made here, as by the driver in that Magnum; these fields say something else.
    Ours(Vec<String>),
}

/// How the objects stand, in the order of what is carried.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Quotas, by project.
    pub quotas: Vec<Standing>,
    /// Templates.
    pub templates: Vec<Standing>,
    /// Clusters.
    pub clusters: Vec<Standing>,
}

/// Why objects were not read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("failed to {what} {name}")]
    Api {
        /// What was done.
        what: &'static str,
        /// What it was done to.
        name: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// A cluster that was imported would look like one that is to be made.
    #[error(
        "the API has definitions of magnum.windlass.dev that are older than this Windlass, and clusters would be made anew: apply what `windlass crds --magnum` prints, and have every `windlass magnum` be of this version"
    )]
    Old,
}

/// The objects of an API.
pub struct There {
    client: Client,
    store: Store,
}

struct Found {
    quotas: BTreeMap<String, CoeQuota>,
    templates: BTreeMap<String, CoeClusterTemplate>,
    clusters: BTreeMap<String, CoeCluster>,
    secrets: BTreeMap<String, Secret>,
}

impl There {
    /// Behind this client.
    pub fn new(client: Client) -> Self {
        let store = Store::new(client.clone());
        Self { client, store }
    }

    /// Makes sure that the API keeps that a cluster was imported.
    ///
    /// # Errors
    ///
    /// It would not, or it does not say.
    pub async fn keeps_imported(&self) -> Result<(), Error> {
        let name = definitions()
            .iter()
            .map(ResourceExt::name_any)
            .find(|name| name.starts_with("coeclusters."))
            .unwrap_or_default();
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let found = api.get(&name).await;
        let found = found.map_err(|source| failed("read the definition", &name, source))?;
        let found = json!(found.spec.versions);
        let versions = found.as_array().into_iter().flatten();
        let keeps = |version: &Value| {
            let path = "/schema/openAPIV3Schema/properties/spec/properties/imported";
            version.pointer(path).is_some()
        };
        if versions
            .filter(|version| version["storage"] == true)
            .any(keeps)
        {
            return Ok(());
        }
        Err(Error::Old)
    }

    /// Compares what is to be with what is there.
    ///
    /// # Errors
    ///
    /// What is there cannot be read.
    pub async fn compare(&self, wanted: &Carried) -> Result<Compared, Error> {
        let found = self.found().await?;
        let quotas = wanted.quotas.iter().map(|quota| {
            let there = found.quotas.get(&quota.spec.project_id);
            let Some(there) = there else {
                return Standing::New;
            };
            // The number that clients page by may be another one.
            let mut quota = quota.spec.clone();
            quota.id = there.spec.id;
            standing(different(&json!(quota), &json!(there.spec)))
        });
        let templates = wanted.templates.iter().map(|template| {
            let there = found.templates.get(&template.name_any());
            there.map_or(Standing::New, |there| {
                standing(different(&json!(template.spec), &json!(there.spec)))
            })
        });
        let clusters = wanted.clusters.iter().map(|cluster| {
            let uuid = cluster.name_any();
            let secret = found.secrets.get(&uuid);
            let keys = wanted
                .authorities
                .get(&uuid)
                .map(|keys| secret_of(&uuid, keys));
            let there = found.clusters.get(&uuid);
            there.map_or(Standing::New, |there| {
                of_cluster(cluster, there, keys.as_ref(), secret)
            })
        });
        Ok(Compared {
            quotas: quotas.collect(),
            templates: templates.collect(),
            clusters: clusters.collect(),
        })
    }

    async fn found(&self) -> Result<Found, Error> {
        let quotas: Vec<CoeQuota> = self.all(&ListParams::default()).await?;
        let secrets: Vec<Secret> = self
            .all(&ListParams::default().labels(CLUSTER_LABEL))
            .await?;
        let authorities = secrets.into_iter().filter_map(|secret| {
            let cluster = secret.labels().get(CLUSTER_LABEL)?.clone();
            (secret.name_any() == secret_name(&cluster)).then_some((cluster, secret))
        });
        Ok(Found {
            quotas: quotas
                .into_iter()
                .map(|quota| (quota.spec.project_id.clone(), quota))
                .collect(),
            templates: named(self.all(&ListParams::default()).await?),
            clusters: named(self.all(&ListParams::default()).await?),
            secrets: authorities.collect(),
        })
    }

    async fn all<K>(&self, parameters: &ListParams) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let all: Api<K> = Api::all(self.client.clone());
        let found = all.list(parameters).await;
        let found = found.map_err(|source| failed("read all", &K::plural(&()), source))?;
        Ok(found.items)
    }

    /// Writes what is missing. What was written before one that fails stays, and is found the next time.
    ///
    /// # Errors
    ///
    /// Something cannot be written.
    pub async fn apply(&self, wanted: &Carried, compared: &Compared) -> Result<(), Error> {
        for (quota, standing) in wanted.quotas.iter().zip(&compared.quotas) {
            if *standing == Standing::New {
                self.create(&quota.spec.project_id, quota).await?;
            }
        }
        for (template, standing) in wanted.templates.iter().zip(&compared.templates) {
            if *standing == Standing::New {
                self.create(&template.spec.project_id, template).await?;
            }
        }
        for (cluster, standing) in wanted.clusters.iter().zip(&compared.clusters) {
            if matches!(standing, Standing::New | Standing::Undone) {
                self.write(wanted, cluster).await?;
            }
        }
        Ok(())
    }

    async fn write(&self, wanted: &Carried, cluster: &CoeCluster) -> Result<(), Error> {
        let (uuid, project) = (cluster.name_any(), &cluster.spec.project_id);
        let keys = wanted.authorities.get(&uuid);
        let secret = keys.map(|keys| secret_of(&uuid, keys));
        let namespace = cluster.namespace().unwrap_or_default();
        if let Some(secret) = &secret {
            self.create(project, secret).await?;
            self.complete(&namespace, secret).await?;
        }
        self.create(project, cluster).await?;
        let clusters: Api<CoeCluster> = Api::namespaced(self.client.clone(), &namespace);
        let there = clusters.get(&uuid).await;
        let there = there.map_err(|source| failed("read", &uuid, source))?;
        if secret.is_some() {
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
            own(&secrets, &there, &secret_name(&uuid)).await;
        }
        if state_of(&there).is_some() {
            return Ok(());
        }
        let status = CoeClusterStatus {
            observed_generation: there.metadata.generation,
            ..cluster.status.clone().unwrap_or_default()
        };
        let patch = Patch::Merge(json!({"status": status}));
        let told = clusters
            .patch_status(&uuid, &PatchParams::default(), &patch)
            .await;
        told.map(drop)
            .map_err(|source| failed("say how it stands of", &uuid, source))
    }

    /// Adds the authorities that an earlier run did not have.
    async fn complete(&self, namespace: &str, secret: &Secret) -> Result<(), Error> {
        let name = secret.name_any();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let kept = secrets.get(&name).await;
        let kept = kept.map_err(|source| failed("read the Secret", &name, source))?;
        let missing = missing(secret, &kept);
        if missing.is_empty() {
            return Ok(());
        }
        let told = replace_data(&secrets, &kept, &missing).await;
        told.map(drop)
            .map_err(|source| failed("add authorities to the Secret", &name, source))
    }

    /// Makes an object. One that is there already is compared the next time.
    async fn create<K>(&self, project: &str, object: &K) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Serialize,
    {
        let namespace = api::magnum::project_namespace(project).unwrap_or_default();
        let api: Api<K> = Api::namespaced(self.client.clone(), &namespace);
        match self.store.create_in(project, &api, object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            created => created.map(drop).map_err(|source| {
                let name = format!("{} {}", K::kind(&()), object.name_any());
                failed("create", &name, source)
            }),
        }
    }
}

fn failed(what: &'static str, name: &str, source: kube::Error) -> Error {
    Error::Api {
        what,
        name: name.to_owned(),
        source: Box::new(source),
    }
}

fn named<K: Resource>(all: Vec<K>) -> BTreeMap<String, K> {
    let all = all.into_iter();
    all.map(|object| (object.name_any(), object)).collect()
}

fn standing(different: Vec<String>) -> Standing {
    if different.is_empty() {
        return Standing::Same;
    }
    Standing::Differs(different)
}

/// The names of what two objects say differently.
fn different(wanted: &Value, there: &Value) -> Vec<String> {
    let keys = |value: &Value| {
        let keys = value.as_object().into_iter().flat_map(Map::keys);
        keys.cloned().collect::<BTreeSet<_>>()
    };
    let all = keys(wanted)
        .union(&keys(there))
        .cloned()
        .collect::<Vec<_>>();
    all.into_iter()
        .filter(|key| wanted.get(key) != there.get(key))
        .collect()
}

fn state_of(cluster: &CoeCluster) -> Option<api::magnum::State> {
    cluster.status.as_ref()?.state
}

fn of_cluster(
    wanted: &CoeCluster,
    there: &CoeCluster,
    keys: Option<&Secret>,
    kept: Option<&Secret>,
) -> Standing {
    if there.spec.imported.is_none() {
        return Standing::Ours(different(&shape(wanted), &shape(there)));
    }
    let mut fields = different(&json!(wanted.spec), &json!(there.spec));
    let is_told = state_of(there).is_some();
    let told = |cluster: &CoeCluster| {
        let status = cluster.status.clone().unwrap_or_default();
        // Health is told by whoever looks, and reasons are words.
        json!({"state": status.state, "apiAddress": status.api_address, "coeVersion": status.coe_version})
    };
    if is_told {
        fields.extend(different(&told(wanted), &told(there)));
    }
    let is_owned = |secret: &Secret| !secret.owner_references().is_empty();
    let is_kept = match (keys, kept) {
        (Some(keys), Some(kept)) => {
            if is_other(keys, kept) {
                fields.push("authorities".to_owned());
            }
            is_owned(kept) && missing(keys, kept).is_empty()
        }
        (Some(_), None) => false,
        (None, _) => true,
    };
    if !fields.is_empty() {
        return Standing::Differs(fields);
    }
    if is_told && is_kept {
        Standing::Same
    } else {
        Standing::Undone
    }
}

/// Whether something of a Secret is kept as something else. What is kept and not found again is none: a run may find fewer.
fn is_other(wanted: &Secret, kept: &Secret) -> bool {
    let mut wanted = wanted.data.iter().flatten();
    let kept = kept.data.as_ref();
    wanted.any(|(name, value)| {
        let there = kept.and_then(|kept| kept.get(name));
        there.is_some_and(|there| there != value)
    })
}

/// What of a Secret is not kept.
fn missing(wanted: &Secret, kept: &Secret) -> BTreeMap<String, ByteString> {
    let data = wanted.data.clone().unwrap_or_default();
    let kept = kept.data.as_ref();
    let is_kept = |name: &String| kept.is_some_and(|kept| kept.contains_key(name));
    let data = data.into_iter();
    data.filter(|(name, _)| !is_kept(name)).collect()
}

/// What is the same of a cluster wherever it is made.
fn shape(cluster: &CoeCluster) -> Value {
    let spec = &cluster.spec;
    let group = |group: &NodeGroup| json!([group.uuid, group.name, group.role, group.node_count]);
    json!({
        "name": spec.name, "projectId": spec.project_id, "userId": spec.user_id,
        "clusterTemplateId": spec.cluster_template_id, "keypair": spec.keypair,
        "nodeGroups": spec.node_groups.iter().map(group).collect::<Vec<_>>(),
    })
}
