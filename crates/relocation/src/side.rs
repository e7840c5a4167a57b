//! One of the two APIs, and a namespace of it.

use std::{error::Error as StdError, io, path::Path, sync::Arc, time::Duration};

use controller::kubeconfig;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use crate::{
    error::{Error, Result},
    graph::Item,
    kind::Kind,
};

/// The field manager of copies, until they have the managers of their originals.
pub(crate) const FIELD_MANAGER: &str = "windlass-move";

/// How long an API may take to be reached.
const CONNECT: Duration = Duration::from_secs(10);

/// The first Namespaces of an API. It has no name itself, but they live as long as it.
const FIRST: [&str; 2] = ["kube-system", "default"];

/// One side.
#[derive(Clone)]
pub struct Side {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// What tells its API from others.
    pub(crate) api: String,
}

impl Side {
    /// The side that a client reaches.
    ///
    /// # Errors
    /// The API cannot be used.
    pub async fn find(client: Client, namespace: &str) -> Result<Self> {
        let namespaces = Api::<Namespace>::all(client.clone());
        let mut found = namespaces.get(FIRST[0]).await;
        if found.is_err() {
            found = namespaces.get(FIRST[1]).await;
        }
        let found = found.map_err(|source| Error::Unusable {
            why: why(&source),
            source: Box::new(source),
        })?;
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            api: found.uid().unwrap_or_default(),
        })
    }

    /// The side that a kubeconfig leads to.
    ///
    /// # Errors
    /// The file cannot be read, or the API cannot be used.
    pub async fn there(file: &Path, context: Option<&str>, namespace: &str) -> Result<Self> {
        let mut config =
            kubeconfig::own(file, context)
                .await
                .map_err(|source| Error::Kubeconfig {
                    file: file.to_owned(),
                    source,
                })?;
        config.connect_timeout = Some(CONNECT);
        let server = config.cluster_url.to_string();
        let client =
            Client::try_from(config).map_err(|source| Error::api("make a client", source))?;
        Self::find(client, namespace)
            .await
            .map_err(|source| Error::There {
                server,
                file: file.to_owned(),
                source: Box::new(source),
            })
    }

    /// Who asks its API.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What tells its API from others, for as long as that lives.
    pub fn api_uid(&self) -> &str {
        &self.api
    }

    /// What the marks name it by.
    pub(crate) fn place(&self) -> String {
        format!("namespace {} of API {}", self.namespace, self.api)
    }

    pub(crate) fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource)
    }

    /// The objects of a kind that any of the domains takes for its own.
    pub(crate) async fn list(&self, kind: &Arc<Kind>) -> Result<Vec<Item>> {
        let listed = self.api(kind).list(&ListParams::default()).await;
        let listed = listed.map_err(|source| Error::api(self.failed("list", kind, ""), source))?;
        let items = listed.items.into_iter();
        let items = items.filter(|object| kind.takes(object));
        Ok(items.map(|object| item(kind, object)).collect())
    }

    pub(crate) async fn get(&self, kind: &Arc<Kind>, name: &str) -> Result<Option<Item>> {
        let found = self.api(kind).get_opt(name).await;
        let found = found.map_err(|source| Error::api(self.failed("get", kind, name), source))?;
        Ok(found.map(|object| item(kind, object)))
    }

    pub(crate) async fn create(&self, item: &Item) -> Result<Item> {
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let created = self.api(&item.kind).create(&parameters, &item.object).await;
        let object = created.map_err(|source| {
            Error::api(self.failed("create", &item.kind, &item.name()), source)
        })?;
        Ok(self::item(&item.kind, object))
    }

    pub(crate) async fn replace(&self, item: &Item) -> Result<Item> {
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let name = item.name();
        let written = self
            .api(&item.kind)
            .replace(&name, &parameters, &item.object)
            .await;
        let object = written
            .map_err(|source| Error::api(self.failed("update", &item.kind, &name), source))?;
        Ok(self::item(&item.kind, object))
    }

    /// Changes metadata of this very object, not of another one of its name.
    pub(crate) async fn patch_metadata(&self, item: &Item, mut metadata: Value) -> Result<()> {
        metadata["uid"] = json!(item.object.uid());
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.api(&item.kind)
            .patch(
                &item.name(),
                &parameters,
                &Patch::Merge(json!({"metadata": metadata})),
            )
            .await
            .map(drop)
            .map_err(|source| Error::api(self.failed("patch", &item.kind, &item.name()), source))
    }

    /// Annotates this very object if `may` agrees to what it is at that moment: of two who decide, one comes first.
    pub(crate) async fn annotate_if(
        &self,
        item: &Item,
        annotations: Value,
        may: impl Fn(&DynamicObject) -> Result<()>,
    ) -> Result<()> {
        loop {
            let found = self.get(&item.kind, &item.name()).await?;
            let found = found
                .filter(|found| found.object.uid() == item.object.uid())
                .ok_or_else(|| Error::Stopped(format!("{} is gone", item.shown())))?;
            may(&found.object)?;
            let metadata = json!({
                "annotations": annotations, "resourceVersion": found.object.resource_version(),
            });
            match self.patch_metadata(&found, metadata).await {
                Err(error) if error.has_code(&[409]) => {}
                patched => return patched,
            }
        }
    }

    pub(crate) async fn apply_status(
        &self,
        item: &Item,
        manager: &str,
        status: &Value,
    ) -> Result<()> {
        let resource = &item.kind.resource;
        let body = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": item.name(), "uid": item.object.uid()},
            "status": status,
        });
        self.api(&item.kind)
            .patch_status(
                &item.name(),
                &PatchParams::apply(manager).force(),
                &Patch::Apply(&body),
            )
            .await
            .map(drop)
            .map_err(|source| {
                Error::api(
                    self.failed("write the status of", &item.kind, &item.name()),
                    source,
                )
            })
    }

    /// Deletes this very object. That it is gone is no error.
    pub(crate) async fn delete(&self, item: &Item) -> Result<()> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: item.object.uid(),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match self.api(&item.kind).delete(&item.name(), &parameters).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            deleted => deleted.map(drop).map_err(|source| {
                Error::api(self.failed("delete", &item.kind, &item.name()), source)
            }),
        }
    }

    pub(crate) fn failed(&self, verb: &str, kind: &Kind, name: &str) -> String {
        format!("{verb} {} {name} in {}", kind.name(), self.place()).replace("  ", " ")
    }
}

fn item(kind: &Arc<Kind>, object: DynamicObject) -> Item {
    Item {
        kind: Arc::clone(kind),
        object,
    }
}

/// Why an API cannot be used, and what to do.
fn why(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            "it does not know the credentials of the kubeconfig, or they have expired; have new ones made"
        }
        kube::Error::Api(status) if status.code == 403 => {
            "you may not look at it; have get namespaces granted for Namespace default, whose uid tells the two APIs apart"
        }
        kube::Error::Api(_) => "it answers, but with a failure; try again when it is well",
        error if has_other_certificate(error) => {
            "its certificate is not what the kubeconfig expects; correct certificate-authority or server, or have a new \
             kubeconfig made"
        }
        _ => "it cannot be reached; check server in the kubeconfig, and that the API runs",
    }
}

fn has_other_certificate(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return true;
        }
        // What an I/O error wraps is not its source but the error itself.
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|wrapped| wrapped as &(dyn StdError + 'static));
        cause = wrapped.or_else(|| error.source());
    }
    false
}
