//! The Leases of roots: a move takes each with a generation that nobody can have, so that whoever comes later is refused for
//! good.

use controller::lease::{Candidate, Claim};
use k8s_openapi::{
    api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Preconditions},
};

use crate::{
    error::{Error, Result},
    graph::{Graph, Item},
    kind::RootLease,
    side::Side,
};

/// How the name begins under which a move holds a Lease.
const HOLDER: &str = "windlass move to ";

/// A move to `place` that wants the Lease of a root; none: the root has no Lease.
pub(crate) fn candidate(source: &Side, place: &str, root: &Item) -> Option<Candidate> {
    let lease = of(root)?;
    let resource = &root.kind.resource;
    let claim = Claim {
        name: (lease.name)(&root.name()),
        // The same at every try, so that the next one may go on.
        holder: format!("{HOLDER}{place}"),
        generation: i64::MAX,
        owner: Some(OwnerReference {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            name: root.name(),
            uid: root.object.uid().unwrap_or_default(),
            ..OwnerReference::default()
        }),
    };
    let (client, namespace) = (source.client.clone(), source.namespace.clone());
    // Who works although the Lease was deleted is waited for by what it works on.
    Some(Candidate::new(client, namespace, claim, lease.is_gone).first())
}

/// The Leases of the roots that a move holds. One that somebody at work holds is none of them.
pub(crate) async fn held(source: &Side, graph: &Graph) -> Result<Vec<Lease>> {
    let mut held = Vec::new();
    for root in graph.roots() {
        let Some(lease) = of(root) else { continue };
        let found = api(source).get_opt(&(lease.name)(&root.name())).await;
        let found = found.map_err(|source| {
            Error::api(format!("get the Lease of {} here", root.shown()), source)
        })?;
        held.extend(found.filter(|lease| destination(lease).is_some()));
    }
    Ok(held)
}

/// Where the move is to that holds a Lease.
pub(crate) fn destination(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    holder.strip_prefix(HOLDER)
}

/// Gives a Lease back that a move holds.
pub(crate) async fn release(source: &Side, lease: &Lease) -> Result<()> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: lease.uid(),
            resource_version: lease.resource_version(),
        }),
        ..DeleteParams::default()
    };
    let name = lease.name_any();
    let deleted = api(source).delete(&name, &parameters).await;
    deleted
        .map(drop)
        .map_err(|source| Error::api(format!("delete Lease {name} here"), source))
}

/// Deletes the Lease of a root that was moved. That it is gone is no error.
pub(crate) async fn delete(source: &Side, root: &Item) -> Result<()> {
    let Some(lease) = of(root) else {
        return Ok(());
    };
    let name = (lease.name)(&root.name());
    match api(source).delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop).map_err(|source| {
            Error::api(format!("delete the Lease of {} here", root.shown()), source)
        }),
    }
}

fn of(root: &Item) -> Option<RootLease> {
    root.kind.root.as_ref()?.lease
}

fn api(source: &Side) -> Api<Lease> {
    Api::namespaced(source.client.clone(), &source.namespace)
}
