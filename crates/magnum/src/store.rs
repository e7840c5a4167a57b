//! Where the service keeps its objects: an API server, the embedded one or any other.
//!
//! Nothing is kept in the process, so that several replicas, and kubectl beside them, see the same. Every list is one request,
//! however long it is. A change is made to what is there at the moment of writing: who comes second does it again on what the
//! first one left.

use api::magnum::{
    CoeCluster, CoeClusterTemplate, CoeQuota, PROJECT_LABEL, UPDATED_ANNOTATION, project_namespace,
};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use uuid::Uuid;

use crate::{contract::Fault, view};

mod secrets;

pub(crate) use secrets::{forget, own, replace_data, secret_name, secret_of};

/// How often a change is tried on what others changed meanwhile.
pub(crate) const TRIES: u8 = 8;

/// An object that a project has, and that people name.
pub trait Stored:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Serialize
{
    /// What clients are told it is.
    const WORD: &'static str;

    /// What people call it.
    fn title(&self) -> &str;
}

impl Stored for CoeClusterTemplate {
    const WORD: &'static str = "ClusterTemplate";

    fn title(&self) -> &str {
        &self.spec.name
    }
}

impl Stored for CoeCluster {
    const WORD: &'static str = "Cluster";

    fn title(&self) -> &str {
        &self.spec.name
    }
}

impl Stored for CoeQuota {
    const WORD: &'static str = "Quota";

    fn title(&self) -> &str {
        &self.spec.project_id
    }
}

/// Whose objects are looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope<'a> {
    /// Those of a project.
    Project(&'a str),
    /// Those of all.
    All,
}

/// The API server.
#[derive(Clone)]
pub struct Store {
    client: Client,
}

impl Store {
    /// Behind this client.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// All objects of a scope, in the order in which they were made.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub async fn list<K: Stored>(&self, scope: Scope<'_>) -> Result<Vec<K>, Fault> {
        self.select(scope, &ListParams::default()).await
    }

    /// How many objects a scope has, without reading them: the API server counts what it does not send.
    ///
    /// # Errors
    ///
    /// They cannot be counted.
    pub async fn count<K: Stored>(&self, scope: Scope<'_>) -> Result<usize, Fault> {
        let one = ListParams::default().limit(1);
        let list = self.api::<K>(scope)?.list_metadata(&one).await;
        let list = list.map_err(|error| failed(&error))?;
        let more = list.metadata.continue_.is_some_and(|more| !more.is_empty());
        match list.metadata.remaining_item_count {
            Some(rest) => Ok(list.items.len() + usize::try_from(rest).unwrap_or(usize::MAX - 1)),
            // A server may leave the number out.
            None if more => Ok(self.list::<K>(scope).await?.len()),
            None => Ok(list.items.len()),
        }
    }

    /// The one that has this UUID, or else this name.
    ///
    /// # Errors
    ///
    /// There is none that `is_seen`, or there are several of that name.
    pub async fn find<K: Stored>(
        &self,
        scope: Scope<'_>,
        ident: &str,
        is_seen: impl Fn(&K) -> bool,
    ) -> Result<K, Fault> {
        let found = if let Ok(uuid) = Uuid::try_parse(ident) {
            let named = ListParams::default().fields(&format!("metadata.name={uuid}"));
            self.select(scope, &named).await?
        } else {
            let mut all: Vec<K> = self.list(scope).await?;
            all.retain(|object| object.title() == ident);
            all
        };
        let mut seen = found.into_iter().filter(is_seen);
        match (seen.next(), seen.next()) {
            (Some(object), None) => Ok(object),
            (None, _) => Err(Fault::not_found(K::WORD, ident)),
            (Some(_), Some(_)) => Err(Fault::conflict(format!(
                "Multiple {}s exist with same name. Please use the uuid instead.",
                K::WORD
            ))),
        }
    }

    async fn select<K: Stored>(
        &self,
        scope: Scope<'_>,
        parameters: &ListParams,
    ) -> Result<Vec<K>, Fault> {
        let mut objects = self
            .api::<K>(scope)?
            .list(parameters)
            .await
            .map_err(|error| failed(&error))?
            .items;
        objects.sort_by_cached_key(|object| (view::created_at(object), object.name_any()));
        Ok(objects)
    }

    /// Stores a new object of a project, whose namespace is made with the first one.
    ///
    /// # Errors
    ///
    /// It is there already, or what it says is refused.
    pub async fn create<K: Stored>(&self, project: &str, object: &K) -> Result<K, Fault> {
        let api = self.of(project)?;
        let created = self.create_in(project, &api, object).await;
        created.map_err(|error| failed(&error))
    }

    pub(crate) async fn create_in<K>(
        &self,
        project: &str,
        api: &Api<K>,
        object: &K,
    ) -> kube::Result<K>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    {
        match api.create(&PostParams::default(), object).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.make_namespace(project).await?;
                api.create(&PostParams::default(), object).await
            }
            created => created,
        }
    }

    async fn make_namespace(&self, project: &str) -> kube::Result<()> {
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: project_namespace(project),
                labels: Some([(PROJECT_LABEL.to_owned(), project.to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let api: Api<Namespace> = Api::all(self.client.clone());
        match api.create(&PostParams::default(), &namespace).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            created => created.map(drop),
        }
    }

    /// Changes an object, which is read anew where somebody else was quicker.
    ///
    /// # Errors
    ///
    /// `change` refuses, the object is gone, or what it says is refused.
    pub async fn change<K: Stored>(
        &self,
        object: K,
        change: impl Fn(&mut K) -> Result<(), Fault>,
    ) -> Result<K, Fault> {
        let name = object.name_any();
        let api: Api<K> = self.beside(&object);
        let mut object = object;
        for _ in 0..TRIES {
            let mut wanted = object.clone();
            change(&mut wanted)?;
            stamp(&mut wanted);
            match api.replace(&name, &PostParams::default(), &wanted).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                stored => return stored.map_err(|error| gone_or_failed::<K>(&error, &name)),
            }
            object = api
                .get(&name)
                .await
                .map_err(|error| gone_or_failed::<K>(&error, &name))?;
        }
        Err(Fault::conflict(format!(
            "{} {name} is being changed by others. Try again.",
            K::WORD
        )))
    }

    /// Removes an object. One that is gone already is as good.
    ///
    /// # Errors
    ///
    /// It cannot be removed.
    pub async fn delete<K: Stored>(&self, object: &K) -> Result<(), Fault> {
        let api: Api<K> = self.beside(object);
        match api
            .delete(&object.name_any(), &DeleteParams::default())
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop).map_err(|error| failed(&error)),
        }
    }

    /// Tells the health of a cluster.
    ///
    /// # Errors
    ///
    /// The cluster is gone.
    pub async fn tell_health(
        &self,
        cluster: &CoeCluster,
        health: &serde_json::Value,
    ) -> Result<(), Fault> {
        let api: Api<CoeCluster> = self.beside(cluster);
        let name = cluster.name_any();
        let patch = Patch::Merge(json!({"status": {"health": health}}));
        let told = api
            .patch_status(&name, &PatchParams::default(), &patch)
            .await;
        told.map(drop)
            .map_err(|error| gone_or_failed::<CoeCluster>(&error, &name))
    }

    fn api<K: Stored>(&self, scope: Scope<'_>) -> Result<Api<K>, Fault> {
        match scope {
            Scope::Project(project) => self.of(project),
            Scope::All => Ok(Api::all(self.client.clone())),
        }
    }

    fn of<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
        &self,
        project: &str,
    ) -> Result<Api<K>, Fault> {
        let namespace = project_namespace(project)
            .ok_or_else(|| Fault::forbidden("The project has no name that can be served."))?;
        Ok(Api::namespaced(self.client.clone(), &namespace))
    }

    fn beside<K: Stored>(&self, object: &K) -> Api<K> {
        Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default())
    }
}

fn stamp<K: Stored>(object: &mut K) {
    let now = view::moment(Timestamp::now());
    object
        .annotations_mut()
        .insert(UPDATED_ANNOTATION.to_owned(), now);
}

fn gone_or_failed<K: Stored>(error: &kube::Error, name: &str) -> Fault {
    match error {
        kube::Error::Api(status) if status.code == 404 => Fault::not_found(K::WORD, name),
        other => failed(other),
    }
}

/// What clients are told where the API server does not do it. What is told of a refusal are the rules of our own kinds.
fn failed(error: &kube::Error) -> Fault {
    match error {
        kube::Error::Api(status) if status.code == 422 => {
            Fault::invalid(api::text::plain(&status.message, 1024))
        }
        kube::Error::Api(status) if status.code == 409 => Fault::conflict("It exists already."),
        error => {
            tracing::error!(
                error = controller::chain(error),
                "the API server does not do what was asked"
            );
            Fault::told(
                StatusCode::INTERNAL_SERVER_ERROR,
                "The objects can not be read or written now.",
            )
        }
    }
}
