//! Applies objects: server-side, as their owner.

use std::collections::HashMap;

use api::run::Failure;
use clusterctl::Object;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use runs::calls::{FORBIDDEN, call};

use crate::{names::COMPONENTS_MANAGER, rights};

/// What applying did to an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Effect {
    Created,
    Changed,
    Unchanged,
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

/// Applies an object, and says what that did. Its fields are the provider's, whoever wrote them before.
pub(super) async fn apply(api: &Api<DynamicObject>, object: &Object) -> Result<Effect, Failure> {
    let before = api
        .get_metadata_opt(object.name())
        .await
        .map_err(|error| call(format!("read {}", object.title()), &error))?;
    let after = put(api, object).await?;
    Ok(match before {
        None => Effect::Created,
        Some(before) if before.resource_version() == after.resource_version() => Effect::Unchanged,
        Some(_) => Effect::Changed,
    })
}

/// Applies an object, and gives it as it is then. A role or binding that nobody may write by rights without a wildcard is left, if it
/// stands as it is wanted: a person applied it.
pub(super) async fn put(
    api: &Api<DynamicObject>,
    object: &Object,
) -> Result<DynamicObject, Failure> {
    let parameters = PatchParams::apply(COMPONENTS_MANAGER).force();
    let applied = api
        .patch(object.name(), &parameters, &Patch::Apply(object.value()))
        .await;
    let error = match applied {
        Ok(applied) => return Ok(applied),
        Err(error) => error,
    };
    let failed = call(format!("apply {}", object.title()), &error);
    if failed.code != FORBIDDEN {
        return Err(failed);
    }
    // That it cannot be read either says no more.
    let found = api.get_opt(object.name()).await.ok().flatten();
    let stands = |found: &DynamicObject| {
        serde_json::to_value(found).is_ok_and(|found| rights::stands(object, &found))
    };
    found.filter(stands).ok_or(failed)
}
