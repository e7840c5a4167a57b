//! One of the two APIs, and a namespace of it.

use anyhow::Context;
use api::{Cluster, ClusterNode, Run};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
        Preconditions,
    },
};
use kubespray::moving::{MOVED_FROM, MOVING};
use serde_json::{Value, json};

use super::reach;

/// The field manager of copies, until they have the managers of their originals.
pub(super) const FIELD_MANAGER: &str = "windlass-move";

/// The kinds that are moved, in the order of their creation where no owner says otherwise.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Kind {
    Secret,
    ConfigMap,
    Cluster,
    ClusterNode,
    Run,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::Secret,
        Self::ConfigMap,
        Self::Cluster,
        Self::ClusterNode,
        Self::Run,
    ];

    pub(super) fn resource(self) -> ApiResource {
        match self {
            Self::Secret => ApiResource::erase::<Secret>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::Cluster => ApiResource::erase::<Cluster>(&()),
            Self::ClusterNode => ApiResource::erase::<ClusterNode>(&()),
            Self::Run => ApiResource::erase::<Run>(&()),
        }
    }

    /// Who writes the status: the copy of a status belongs to nobody else, or fields that it gives up would stay.
    pub(super) const fn status_manager(self) -> Option<&'static str> {
        match self {
            Self::Secret | Self::ConfigMap => None,
            Self::Cluster => Some(kubespray::cluster::FIELD_MANAGER),
            Self::ClusterNode => Some(kubespray::node::FIELD_MANAGER),
            Self::Run => Some(kubespray::runner::FIELD_MANAGER),
        }
    }

    /// Whether somebody acts on objects of the kind, so that they are marked while they are moved.
    pub(super) const fn is_ours(self) -> bool {
        self.status_manager().is_some()
    }
}

/// An object and its kind.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) object: DynamicObject,
}

impl Item {
    pub(super) fn name(&self) -> String {
        self.object.name_any()
    }

    /// As KIND/NAME.
    pub(super) fn shown(&self) -> String {
        format!("{:?}/{}", self.kind, self.name())
    }
}

/// One side.
#[derive(Clone)]
pub(crate) struct Side {
    pub(super) client: Client,
    pub(super) namespace: String,
    /// What tells its API from others.
    pub(super) api: String,
}

impl Side {
    /// The side that a client reaches.
    pub(crate) async fn find(client: Client, namespace: &str) -> anyhow::Result<Self> {
        let namespaces = Api::<Namespace>::all(client.clone());
        let mut failure = None;
        // An API has no name, but its first Namespaces live as long as it.
        for name in ["kube-system", "default"] {
            match namespaces.get(name).await {
                Ok(found) => {
                    return Ok(Self {
                        client,
                        namespace: namespace.to_owned(),
                        api: found.uid().unwrap_or_default(),
                    });
                }
                Err(error) => failure = Some(error),
            }
        }
        let failure = failure.context("no Namespace was asked for")?;
        let why = reach::why(&failure);
        Err(anyhow::Error::new(failure).context(why))
    }

    /// What the marks name it by.
    pub(super) fn place(&self) -> String {
        format!("namespace {} of API {}", self.namespace, self.api)
    }

    pub(super) fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    pub(super) async fn list(&self, kind: Kind) -> anyhow::Result<Vec<Item>> {
        let listed = self.api(kind).list(&ListParams::default()).await;
        let listed = listed.with_context(|| self.failed("list", kind, ""))?;
        let items = listed.items.into_iter();
        Ok(items.map(|object| Item { kind, object }).collect())
    }

    pub(super) async fn get(&self, kind: Kind, name: &str) -> anyhow::Result<Option<Item>> {
        let found = self.api(kind).get_opt(name).await;
        let found = found.with_context(|| self.failed("get", kind, name))?;
        Ok(found.map(|object| Item { kind, object }))
    }

    pub(super) async fn create(&self, item: &Item) -> anyhow::Result<Item> {
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let created = self.api(item.kind).create(&parameters, &item.object).await;
        let object = created.with_context(|| self.failed("create", item.kind, &item.name()))?;
        Ok(Item {
            kind: item.kind,
            object,
        })
    }

    pub(super) async fn replace(&self, item: &Item) -> anyhow::Result<Item> {
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let name = item.name();
        let written = self
            .api(item.kind)
            .replace(&name, &parameters, &item.object)
            .await;
        let object = written.with_context(|| self.failed("update", item.kind, &name))?;
        Ok(Item {
            kind: item.kind,
            object,
        })
    }

    /// Changes metadata of this very object, not of another one of its name.
    pub(super) async fn patch_metadata(
        &self,
        item: &Item,
        mut metadata: Value,
    ) -> anyhow::Result<()> {
        metadata["uid"] = json!(item.object.uid());
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.api(item.kind)
            .patch(
                &item.name(),
                &parameters,
                &Patch::Merge(json!({"metadata": metadata})),
            )
            .await
            .map(drop)
            .with_context(|| self.failed("patch", item.kind, &item.name()))
    }

    /// Annotates this very object if `may` agrees to what it is at that moment: of two who decide, one comes first.
    pub(super) async fn annotate_if(
        &self,
        item: &Item,
        annotations: Value,
        may: impl Fn(&DynamicObject) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        loop {
            let found = self.get(item.kind, &item.name()).await?;
            let found = found
                .filter(|found| found.object.uid() == item.object.uid())
                .with_context(|| format!("{} is gone", item.shown()))?;
            may(&found.object)?;
            let metadata = json!({
                "annotations": annotations, "resourceVersion": found.object.resource_version(),
            });
            match self.patch_metadata(&found, metadata).await {
                Err(error) if has_code(&error, &[409]) => {}
                patched => return patched,
            }
        }
    }

    pub(super) async fn apply_status(
        &self,
        item: &Item,
        manager: &str,
        status: &Value,
    ) -> anyhow::Result<()> {
        let resource = item.kind.resource();
        let body = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": item.name(), "uid": item.object.uid()},
            "status": status,
        });
        self.api(item.kind)
            .patch_status(
                &item.name(),
                &PatchParams::apply(manager).force(),
                &Patch::Apply(&body),
            )
            .await
            .map(drop)
            .with_context(|| self.failed("write the status of", item.kind, &item.name()))
    }

    /// Deletes this very object. That it is gone is no error.
    pub(super) async fn delete(&self, item: &Item) -> anyhow::Result<()> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: item.object.uid(),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match self.api(item.kind).delete(&item.name(), &parameters).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            deleted => deleted
                .map(drop)
                .with_context(|| self.failed("delete", item.kind, &item.name())),
        }
    }

    fn failed(&self, verb: &str, kind: Kind, name: &str) -> String {
        format!("failed to {verb} {kind:?} {name} in {}", self.place()).replace("  ", " ")
    }
}

/// Whether an API answered one of these.
pub(super) fn has_code(error: &anyhow::Error, codes: &[u16]) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<kube::Error>())
        .any(|error| matches!(error, kube::Error::Api(status) if codes.contains(&status.code)))
}

/// What a copy says of where it is from.
pub(super) fn origin(place: &str, uid: &str) -> String {
    format!("{uid} in {place}")
}

/// Whether an object is a copy of one of `place`.
pub(super) fn is_from(object: &DynamicObject, place: &str) -> bool {
    object
        .annotations()
        .get(MOVED_FROM)
        .and_then(|origin| origin.split_once(" in "))
        .is_some_and(|(_, from)| from == place)
}

/// Whether an object carries the mark.
pub(super) fn is_marked(object: &DynamicObject) -> bool {
    object.annotations().contains_key(MOVING)
}
