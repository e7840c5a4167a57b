//! Applies objects: server-side, as their owner, unless somebody else installed them and they are right.

use std::collections::{BTreeSet, HashMap};

use api::run::Failure;
use clusterctl::Object;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
    core::{GroupVersionKind, Status},
    discovery::{self, Scope},
};
use runs::calls::{FORBIDDEN, call};
use serde_json::Value;

use super::takeover::{self, Standing};
use crate::{names::COMPONENTS_MANAGER, rights};

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
    let mut before = before;
    if before.is_some() && rebound(api, object).await? {
        before = None;
    }
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

/// Whether an object gives a role to somebody. Of such a one the API never takes another role.
pub(super) fn is_binding(object: &Object) -> bool {
    object.group() == "rbac.authorization.k8s.io" && object.kind().ends_with("RoleBinding")
}

/// The role that a binding gives, where it is there and gives another one than it is to.
pub(super) async fn bound_otherwise(
    api: &Api<DynamicObject>,
    object: &Object,
) -> Result<Option<DynamicObject>, Failure> {
    if !is_binding(object) {
        return Ok(None);
    }
    let found = api.get_opt(object.name()).await;
    let found = found.map_err(|error| call(format!("read {}", object.title()), &error))?;
    let role = |value: &Value| {
        let role = &value["roleRef"];
        (role["kind"].clone(), role["name"].clone())
    };
    Ok(found.filter(|found| role(&found.data) != role(object.value())))
}

/// Makes room for a binding that gives another role than the one that is there: whether that was done. It is made anew at once.
async fn rebound(api: &Api<DynamicObject>, object: &Object) -> Result<bool, Failure> {
    let Some(found) = bound_otherwise(api, object).await? else {
        return Ok(false);
    };
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: found.uid(),
            resource_version: found.resource_version(),
        }),
        ..DeleteParams::default()
    };
    match api.delete(object.name(), &parameters).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        deleted => deleted
            .map(|_| true)
            .map_err(|error| call(format!("replace {}", object.title()), &error)),
    }
}

/// Whether the API would take an object as it is wanted over the one that is there; if not, which of its fields it would not, for people: what it
/// says of their values may be secret.
pub(super) async fn refused(
    api: &Api<DynamicObject>,
    object: &Object,
) -> Result<Option<String>, Failure> {
    let parameters = PatchParams {
        dry_run: true,
        ..PatchParams::apply(COMPONENTS_MANAGER).force()
    };
    let patch = Patch::Apply(object.value());
    match api.patch(object.name(), &parameters, &patch).await {
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(Some(fields(object, &status))),
        // What else there may be against it is told where it is applied.
        Ok(_) | Err(kube::Error::Api(_)) => Ok(None),
        Err(error) => Err(call(format!("try to apply {}", object.title()), &error)),
    }
}

/// An object and the fields that the API does not take.
fn fields(object: &Object, status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields: BTreeSet<_> = causes.map(|cause| cause.field.as_str()).collect();
    let fields: Vec<_> = fields
        .into_iter()
        .filter(|field| !field.is_empty())
        .collect();
    if fields.is_empty() {
        object.title()
    } else {
        format!("{} ({})", object.title(), fields.join(", "))
    }
}

/// Applies an object, and gives it as it is then. A role or binding that nobody may write by rights without a wildcard is left, if it
/// stands as it is wanted: a person applied it.
async fn put(api: &Api<DynamicObject>, object: &Object) -> Result<DynamicObject, Failure> {
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
    found.filter(|found| stands(object, found)).ok_or(failed)
}

/// Whether what may not be written may be left as it is.
pub(super) fn stands(wanted: &Object, found: &DynamicObject) -> bool {
    serde_json::to_value(found).is_ok_and(|found| rights::stands(wanted, &found))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn binding(role: &str) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "manager", "uid": "u", "resourceVersion": "1"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": [],
        })
    }

    /// An API that has a binding to that role, and what was asked of it beside reading.
    fn world(role: &str) -> (Api<DynamicObject>, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (noting, answer) = (Arc::clone(&asked), binding(role).to_string());
        let service = tower::service_fn(move |request: Request<Body>| {
            if request.method() != "GET" {
                noting.lock().unwrap().push(request.method().to_string());
            }
            let answer = axum::body::Body::from(answer.clone());
            async move { Ok::<_, Infallible>(Response::new(answer)) }
        });
        let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding");
        let resource = ApiResource::from_gvk(&kind);
        let api = Api::all_with(Client::new(service, "default"), &resource);
        (api, asked)
    }

    #[tokio::test]
    async fn a_binding_to_another_role_is_made_anew_and_no_other_one_is() {
        for (there, expected) in [("old", ["DELETE", "PATCH"].as_slice()), ("new", &["PATCH"])] {
            let (api, asked) = world(there);
            let wanted = Object::new(binding("new")).unwrap();
            // Whether it is somebody else's is tried first where it stays.
            apply(&api, &wanted, None).await.unwrap();
            let asked = asked.lock().unwrap();
            let asked: Vec<_> = asked.iter().map(String::as_str).collect();
            assert_eq!(asked, expected, "{there}");
        }
    }
}
