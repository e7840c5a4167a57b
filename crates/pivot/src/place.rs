//! One of the two management clusters, as far as a move asks it: requests about objects of any kind.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use relocation::Side;
use serde_json::{Value, json};

use crate::{
    error::{Error, Result},
    kind::Kind,
};

/// The field manager of a move.
pub(crate) const FIELD_MANAGER: &str = "windlass-pivot";

/// How often a request is made that nobody answers, and how long is waited after the first time: about six seconds in all.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// One side.
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// What tells its API from others.
    pub(crate) api: String,
    /// How messages call it.
    pub(crate) word: &'static str,
}

/// An object and its kind.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) kind: Arc<Kind>,
    pub(crate) object: DynamicObject,
}

impl Item {
    pub(crate) fn name(&self) -> String {
        self.object.name_any()
    }

    /// The namespace; none of what is in none.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.object.metadata.namespace.as_deref()
    }

    pub(crate) fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    /// What tells it from others of its side.
    pub(crate) fn key(&self) -> Key {
        let (kind, namespace) = (self.kind.name(), self.namespace().unwrap_or_default());
        let group = self.kind.resource.group.as_str();
        [group, kind, namespace, &self.name()].map(str::to_owned)
    }

    /// KIND/NAME, as messages call it; the namespace too if it is not the one that is moved.
    pub(crate) fn shown(&self, home: &str) -> String {
        let (kind, name) = (self.kind.name(), self.name());
        match self.namespace() {
            Some(namespace) if namespace != home => {
                format!("{kind}/{name} (namespace {namespace})")
            }
            _ => format!("{kind}/{name}"),
        }
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.object.annotations().get(name).map(String::as_str)
    }
}

/// Group, kind, namespace and name.
pub(crate) type Key = [String; 4];

impl Place {
    pub(crate) fn new(side: &Side, word: &'static str) -> Self {
        Self {
            client: side.client().clone(),
            namespace: side.namespace().to_owned(),
            api: side.api_uid().to_owned(),
            word,
        }
    }

    /// Makes a request until somebody answers: a connection that is lost for a moment does not take a move back.
    pub(crate) async fn persist<T>(&self, request: impl AsyncFn() -> Result<T>) -> Result<T> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match request().await {
                Err(error) if error.is_passing() => tokio::time::sleep(pause).await,
                answered => return answered,
            }
            pause *= 2;
        }
        request().await
    }

    fn api(&self, kind: &Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) if kind.is_namespaced => {
                Api::namespaced_with(self.client.clone(), namespace, &kind.resource)
            }
            _ => Api::all_with(self.client.clone(), &kind.resource),
        }
    }

    fn of(&self, item: &Item) -> Api<DynamicObject> {
        self.api(&item.kind, item.namespace())
    }

    fn failed(&self, verb: &str, item: &Item) -> String {
        let shown = item.shown(&self.namespace);
        format!("{verb} {shown} {}", self.word)
    }

    /// The objects of a kind in a namespace, or in all. None of a kind that is not served.
    pub(crate) async fn list(
        &self,
        kind: &Arc<Kind>,
        namespace: Option<&str>,
    ) -> Result<Vec<Item>> {
        let api = self.api(kind, namespace);
        let listed = self
            .persist(async || match api.list(&ListParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
                Err(source) => {
                    let action = format!("list {} {}", kind.resource.plural, self.word);
                    Err(Error::api(action, source))
                }
                Ok(listed) => Ok(listed.items),
            })
            .await?;
        let item = |object| Item {
            kind: Arc::clone(kind),
            object,
        };
        Ok(listed.into_iter().map(item).collect())
    }

    pub(crate) async fn get(
        &self,
        kind: &Arc<Kind>,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Item>> {
        let api = self.api(kind, namespace);
        let found = self
            .persist(async || {
                api.get_opt(name).await.map_err(|source| {
                    Error::api(format!("get {} {name} {}", kind.name(), self.word), source)
                })
            })
            .await?;
        Ok(found.map(|object| Item {
            kind: Arc::clone(kind),
            object,
        }))
    }

    /// The object of the same kind and name.
    pub(crate) async fn same(&self, item: &Item) -> Result<Option<Item>> {
        self.get(&item.kind, item.namespace(), &item.name()).await
    }

    pub(crate) async fn create(&self, item: &Item) -> Result<Item> {
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let api = self.of(item);
        let object = self
            .persist(async || {
                let created = api.create(&parameters, &item.object).await;
                created.map_err(|source| Error::api(self.failed("create", item), source))
            })
            .await?;
        Ok(Item {
            kind: Arc::clone(&item.kind),
            object,
        })
    }

    pub(crate) async fn replace(&self, item: &Item) -> Result<Item> {
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let api = self.of(item);
        let object = self
            .persist(async || {
                let written = api.replace(&item.name(), &parameters, &item.object).await;
                written.map_err(|source| Error::api(self.failed("update", item), source))
            })
            .await?;
        Ok(Item {
            kind: Arc::clone(&item.kind),
            object,
        })
    }

    /// Changes this very object, not another one of its name, by a merge patch.
    pub(crate) async fn patch(&self, item: &Item, mut patch: Value) -> Result<Item> {
        patch["metadata"]["uid"] = json!(item.uid());
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let (api, patch) = (self.of(item), Patch::Merge(&patch));
        let object = self
            .persist(async || {
                let patched = api.patch(&item.name(), &parameters, &patch).await;
                patched.map_err(|source| Error::api(self.failed("patch", item), source))
            })
            .await?;
        Ok(Item {
            kind: Arc::clone(&item.kind),
            object,
        })
    }

    /// Deletes this very object and leaves what it owns. That it is gone is no error.
    pub(crate) async fn delete(&self, item: &Item) -> Result<()> {
        self.delete_by(item, DeleteParams::orphan()).await
    }

    /// Deletes this very object, which owns nothing, so that it is gone at once.
    pub(crate) async fn delete_alone(&self, item: &Item) -> Result<()> {
        self.delete_by(item, DeleteParams::background()).await
    }

    async fn delete_by(&self, item: &Item, parameters: DeleteParams) -> Result<()> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: item.object.uid(),
                resource_version: None,
            }),
            ..parameters
        };
        let api = self.of(item);
        self.persist(async || match api.delete(&item.name(), &parameters).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            deleted => deleted
                .map(drop)
                .map_err(|source| Error::api(self.failed("delete", item), source)),
        })
        .await
    }
}
