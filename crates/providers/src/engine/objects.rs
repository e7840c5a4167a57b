//! Applies objects: server-side, as their owner, unless somebody else installed them and they are right.

use std::collections::HashMap;

use api::run::Failure;
use clusterctl::Object;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use runs::calls::call;

use super::takeover::{self, Standing};
use crate::names::COMPONENTS_MANAGER;

/// What applying did to an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Effect {
    Created,
    Changed,
    Unchanged,
}

/// An object that was applied.
pub(super) struct Put {
    pub effect: Effect,
    /// The object as it is then.
    pub stands: DynamicObject,
    /// What stood otherwise, where somebody else had installed it.
    pub taken: Vec<String>,
}

/// The resources of kinds, asked for once each.
#[derive(Default)]
pub(super) struct Resources(HashMap<GroupVersionKind, (ApiResource, Scope)>);

impl Resources {
    /// The objects of this one's kind, where it lives.
    pub(super) async fn api(
        &mut self,
        there: &Client,
        object: &Object,
    ) -> Result<Api<DynamicObject>, Failure> {
        Ok(match self.of(there, object).await? {
            (resource, Scope::Cluster) => Api::all_with(there.clone(), &resource),
            (resource, Scope::Namespaced) => {
                Api::namespaced_with(there.clone(), object.namespace(), &resource)
            }
        })
    }

    /// The resource of this one's kind.
    pub(super) async fn of(
        &mut self,
        there: &Client,
        object: &Object,
    ) -> Result<(ApiResource, Scope), Failure> {
        let kind = GroupVersionKind::gvk(object.group(), object.version(), object.kind());
        if let Some(known) = self.0.get(&kind) {
            return Ok(known.clone());
        }
        let (resource, capabilities) = discovery::pinned_kind(there, &kind)
            .await
            .map_err(|error| call(format!("find the resource of {}", object.title()), &error))?;
        let known = (resource, capabilities.scope);
        self.0.insert(kind, known.clone());
        Ok(known)
    }
}

/// Applies an object, and says what that did. Its fields are the provider's, whoever wrote them before; but what somebody else installed
/// is left to them where it is right: as it should be, or as it is released.
pub(super) async fn apply(
    api: &Api<DynamicObject>,
    object: &Object,
    released: Option<&Object>,
) -> Result<Put, Failure> {
    let before = api
        .get_metadata_opt(object.name())
        .await
        .map_err(|error| call(format!("read {}", object.title()), &error))?;
    let mut taken = Vec::new();
    if let Some(before) = &before
        && !takeover::is_ours(&before.metadata)
    {
        match takeover::look(api, object, released).await? {
            Standing::Right(live) => {
                return Ok(Put {
                    effect: Effect::Unchanged,
                    stands: *live,
                    taken,
                });
            }
            Standing::Other(live, fields) => {
                takeover::take(api, object, &live).await?;
                taken = fields;
            }
            Standing::Gone => {}
        }
    }
    let stands = put(api, object).await?;
    let effect = match before {
        None => Effect::Created,
        Some(before) if before.resource_version() == stands.resource_version() => Effect::Unchanged,
        Some(_) => Effect::Changed,
    };
    Ok(Put {
        effect,
        stands,
        taken,
    })
}

async fn put(api: &Api<DynamicObject>, object: &Object) -> Result<DynamicObject, Failure> {
    let parameters = PatchParams::apply(COMPONENTS_MANAGER).force();
    api.patch(object.name(), &parameters, &Patch::Apply(object.value()))
        .await
        .map_err(|error| call(format!("apply {}", object.title()), &error))
}
