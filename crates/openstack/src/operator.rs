//! The controllers of clouds, services and seeds, and what wakes them.

use std::sync::Arc;

use api::{
    Run,
    openstack::{GROUP, IdentitySeed, OpenStack, OpenStackService, Standing},
};
use controller::{Events, Manager, WakeUps, conditions, reads};
use kube::{ResourceExt, core::DeserializeGuard, runtime::reflector::ObjectRef};
use runs::{operator::Place, subject::OfGroup};

use crate::{
    health::Probes,
    seed::look::Looks,
    subject::{self, Context, Layer, Meanings},
};

/// Has the manager work on clouds, services, seeds and their runs. Runners go on without it.
pub fn operate(manager: &mut Manager, runners: Place) {
    of_kind::<OpenStackService>(manager);
    of_kind::<OpenStack>(manager);
    of_kind::<IdentitySeed>(manager);
    runs::operate(manager, runners, OfGroup(GROUP));
}

fn of_kind<K: Layer>(manager: &mut Manager) {
    let own = manager.watch::<K>();
    let runs = manager.watch::<Run>();
    let services = manager.watch::<OpenStackService>();
    let client = manager.client().clone();
    let context = Arc::new(Context {
        client: client.clone(),
        own: own.store(),
        services: services.store(),
        runs: runs.store(),
        events: Events::new(client, "openstack"),
        meanings: Meanings::default(),
        probes: Probes::default(),
        looks: Looks::default(),
    });
    // A run that was deleted.
    let wake_ups = WakeUps::default();
    runs.gone_wakes(&own, &wake_ups);
    manager
        .controller(&own, reads::wish)
        .woken_by(&runs, progress, of_run::<K>)
        .woken_by(&services, readiness, owner::<K>)
        .woken_on(&wake_ups, |(namespace, name)| {
            [ObjectRef::new(&name).within(&namespace)]
        })
        .reconcile(subject::reconcile, context);
}

/// What an object tells of its run.
fn progress(run: &DeserializeGuard<Run>) -> String {
    let status = run.0.as_ref().ok().and_then(|run| run.status.as_ref());
    status.map(subject::told).unwrap_or_default()
}

/// What a cloud tells of its services.
fn readiness(service: &DeserializeGuard<OpenStackService>) -> bool {
    let service = service.0.as_ref().ok();
    let status: Option<&Standing> = service.and_then(|service| service.status.as_ref());
    status.is_some_and(|status| conditions::is_true(&status.conditions, conditions::READY))
}

/// The object of this kind that a run is of.
fn of_run<K: Layer>(run: &DeserializeGuard<Run>) -> Option<ObjectRef<DeserializeGuard<K>>> {
    let run = run.0.as_ref().ok()?;
    if !run.spec.subject.is_a::<K>() {
        return None;
    }
    Some(ObjectRef::new(&run.spec.subject.name).within(&run.namespace()?))
}

/// The object of this kind that a service belongs to.
fn owner<K: Layer>(
    service: &DeserializeGuard<OpenStackService>,
) -> Option<ObjectRef<DeserializeGuard<K>>> {
    let service = service.0.as_ref().ok()?;
    let owner = service.owner_references().iter().find(|owner| {
        owner.controller == Some(true)
            && owner.kind == K::kind(&())
            && owner.api_version == K::api_version(&())
    })?;
    Some(ObjectRef::new(&owner.name).within(&service.namespace()?))
}
