//! Steps of a cloud on the objects of its services.

use std::{
    mem::{Discriminant, discriminant},
    sync::{Mutex, PoisonError},
};

use api::{
    openstack::{IdentitySeed, OnDelete, OpenStack, OpenStackService, Phase},
    run::{Failure, FailureClass, Step},
};
use controller::conditions::{READY, STALLED, is_true};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use runs::calls::{Seen, call, config, failure, until};
use serde_json::json;
use workflow::StepContext;

use crate::{
    audit,
    cloud::{self, Inputs, service_name},
    engine::{Done, Of, Worker, objects::gone},
    names::MANAGER,
    subject::refusal::REFUSED,
};

impl Worker {
    /// Stores a service. What somebody else owns of it is theirs, and refused here by name.
    pub(super) async fn declare(&self, inputs: &Inputs, service: &str) -> Done {
        let Some(spec) = inputs.services.iter().find(|spec| spec.service == service) else {
            return Ok(None);
        };
        let name = service_name(self.name(), service);
        let api = self.services();
        let there = api
            .get_opt(&name)
            .await
            .map_err(|error| call(format!("read OpenStackService {name}"), &error))?;
        if there.as_ref().is_some_and(|there| !self.owns(there)) {
            let what = format!("OpenStackService {name} is there already, and not this cloud's");
            return Err(config("Taken", what, "delete it, or give the cloud another name").into());
        }
        let object = json!({
            "apiVersion": OpenStackService::api_version(&()),
            "kind": OpenStackService::kind(&()),
            "metadata": {
                "name": name,
                "labels": self.labels(),
                "ownerReferences": [self.owner_reference()],
            },
            "spec": spec,
        });
        self.about(&audit::object("OpenStackService", &name))?;
        let applied = api
            .patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(&object))
            .await;
        match applied {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(failure(
                FailureClass::Config,
                "Owned",
                format!("OpenStackService {name} has fields that somebody else wrote: {}", status.message),
                "take them over (kubectl apply --server-side --force-conflicts --field-manager=windlass-openstack), or write the same into the OpenStack, and retry the run",
            )
            .into()),
            Err(error) => Err(call(format!("store OpenStackService {name}"), &error).into()),
        }
    }

    pub(super) async fn await_service(
        &self,
        service: &str,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let name = service_name(self.name(), service);
        let api = self.services();
        until(step, context, || async {
            let found = api.get_opt(&name).await;
            let found =
                found.map_err(|error| call(format!("read OpenStackService {name}"), &error))?;
            let Some(found) = found else {
                return Ok(Seen::Missing(format!(
                    "OpenStackService {name} is not there"
                )));
            };
            Ok(match stands(&found) {
                Stands::Ready => Seen::There(None),
                Stands::Stalled(why) => Seen::Missing(format!("{name} needs somebody: {why}")),
                Stands::Unhealthy(waits) | Stands::Waits(waits) | Stands::Unseen(waits) => {
                    Seen::Missing(waits)
                }
            })
        })
        .await
    }

    /// The gate of an update: whoever comes after the service is not changed before that is healthy. What does not get so by itself shuts it.
    pub(super) async fn await_updated(
        &self,
        service: &str,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let name = service_name(self.name(), service);
        let api = self.services();
        let clock = Clock::default();
        until(step, context, || async {
            let found = api.get_opt(&name).await;
            let found =
                found.map_err(|error| call(format!("read OpenStackService {name}"), &error))?;
            let Some(found) = found else {
                return Ok(Seen::Missing(format!(
                    "OpenStackService {name} is not there"
                )));
            };
            let stands = stands(&found);
            let so_for = clock.so_for(&stands, Timestamp::now());
            match gate(stands, so_for) {
                Gate::Open => Ok(Seen::There(None)),
                Gate::Waits(why) => Ok(Seen::Missing(why)),
                Gate::Shut(why) => Err(failure(
                    FailureClass::Config,
                    "NotHealthy",
                    format!("{name} is not healthy, so the services after it stay as they are: {why}"),
                    "mend it (its own run is retried by itself alone), and retry this run; or skip the step with a reason, or take the change back",
                )),
            }
        })
        .await
    }

    pub(super) async fn remove_services(
        &self,
        inputs: &Inputs,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let api = self.services();
        let on_delete = if inputs.drop {
            OnDelete::Delete
        } else {
            OnDelete::Retain
        };
        // What somebody deleted before is at work by what it was told.
        let own = self.own_services().await?.into_iter();
        for service in own.filter(|service| service.metadata.deletion_timestamp.is_some()) {
            self.tell(&service, on_delete).await?;
        }
        // What others need goes after them: they take their users out of it.
        for needs_identity in [true, false] {
            let are_going = async || {
                let own = self.own_services().await?.into_iter();
                let going =
                    own.filter(|of| !needs_identity || cloud::needs_identity(&of.spec.service));
                Ok::<_, Failure>(going.collect::<Vec<_>>())
            };
            for service in are_going().await? {
                // Not before it goes itself: it would change what others still use.
                self.tell(&service, on_delete).await?;
                let name = service.name_any();
                self.about(&audit::removed(&audit::object("OpenStackService", &name)))?;
                gone(api.delete(&name, &DeleteParams::default()).await)
                    .map_err(|error| call(format!("delete OpenStackService {name}"), &error))?;
            }
            until(step, context, || async {
                let left = are_going().await?;
                let left: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
                Ok(match left.as_slice() {
                    [] => Seen::There(()),
                    left => Seen::Missing(format!("{} are going", left.join(", "))),
                })
            })
            .await?;
        }
        Ok(None)
    }

    async fn own_services(&self) -> Result<Vec<OpenStackService>, Failure> {
        let found = self.services().list(&ListParams::default()).await;
        let found = found.map_err(|error| call("list the services", &error))?;
        let own = found.items.into_iter().filter(|found| self.owns(found));
        Ok(own.collect())
    }

    /// Says to a service what becomes of what it has, as the cloud says it now: no run may have told it since.
    async fn tell(&self, service: &OpenStackService, on_delete: OnDelete) -> Result<(), Failure> {
        if !must_be_told(service, on_delete) {
            return Ok(());
        }
        let name = service.name_any();
        self.about(&audit::object("OpenStackService", &name))?;
        let told = tell(&self.services(), &name, on_delete).await;
        gone(told).map_err(|error| call(format!("store OpenStackService {name}"), &error))
    }

    pub(super) fn services(&self) -> Api<OpenStackService> {
        Api::namespaced(self.work.client.clone(), &self.namespace())
    }

    fn owns(&self, service: &OpenStackService) -> bool {
        let uid = self.work.run.spec.subject.uid.as_ref();
        let mut owners = service.owner_references().iter();
        owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == uid)
    }

    /// The run's subject as an owner.
    pub(super) fn owner_reference(&self) -> OwnerReference {
        let subject = &self.work.run.spec.subject;
        let version = match self.of {
            Of::Cloud(_) => OpenStack::api_version(&()),
            Of::Service(..) => OpenStackService::api_version(&()),
            Of::Seed(_) => IdentitySeed::api_version(&()),
        };
        OwnerReference {
            api_version: version.into_owned(),
            kind: subject.kind.clone(),
            name: subject.name.clone(),
            uid: subject.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

/// Whether a service of a cloud says something else of what becomes of its data. That it stays may have been said by somebody for this service
/// alone.
fn must_be_told(service: &OpenStackService, on_delete: OnDelete) -> bool {
    let says = service.spec.on_delete.unwrap_or(OnDelete::Retain);
    let managed = service.metadata.managed_fields.iter().flatten();
    let mut others = managed.filter(|entry| entry.manager.as_deref() != Some(MANAGER));
    let is_others = others.any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| !fields["f:spec"]["f:onDelete"].is_null())
    });
    says != on_delete && (on_delete == OnDelete::Retain || !is_others)
}

/// Writes into a service what becomes of what it has, as whoever declares it.
pub(crate) async fn tell(
    services: &Api<OpenStackService>,
    name: &str,
    on_delete: OnDelete,
) -> Result<OpenStackService, kube::Error> {
    let told = json!({"spec": {"onDelete": on_delete}});
    let parameters = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    services
        .patch(name, &parameters, &Patch::Merge(&told))
        .await
}

/// How a service stands to whoever waits for it.
#[derive(Debug, Eq, PartialEq)]
enum Stands {
    /// It is what its spec says, and works.
    Ready,
    /// Nothing goes on until somebody does something.
    Stalled(String),
    /// It was made, and does not work.
    Unhealthy(String),
    /// It is at work.
    Waits(String),
    /// Nobody has looked at its spec since that was changed.
    Unseen(String),
}

/// A status that speaks of an older spec says nothing of this one.
fn stands(service: &OpenStackService) -> Stands {
    let name = service.name_any();
    let status = service.status.clone().unwrap_or_default();
    let is_seen = status.observed_generation == service.metadata.generation;
    if is_seen && is_true(&status.conditions, READY) {
        return Stands::Ready;
    }
    if is_seen && is_true(&status.conditions, STALLED) {
        let mut conditions = status.conditions.iter();
        let stalled = conditions.find(|found| found.type_ == STALLED);
        let why = stalled
            .map(|found| found.message.clone())
            .unwrap_or_default();
        // The operator tries that again by itself: who refuses it may be away for a moment.
        return if stalled.is_some_and(|found| found.reason == REFUSED) {
            Stands::Unhealthy(why)
        } else {
            Stands::Stalled(why)
        };
    }
    // A condition is of the generation that was looked at last, also while a run is at work on an older one.
    let generation = service.metadata.generation;
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|condition| condition.type_ == READY);
    if generation.is_some() && ready.and_then(|ready| ready.observed_generation) < generation {
        return Stands::Unseen(format!(
            "no operator has taken up generation {} of {name}",
            generation.unwrap_or_default()
        ));
    }
    // What it waits for itself is what is waited for, at the bottom.
    let waits = status.blocked_on.unwrap_or_else(|| {
        format!(
            "{name} {}: its run starts",
            status.steps.unwrap_or_default()
        )
    });
    if is_seen && status.phase == Some(Phase::Unhealthy) {
        return Stands::Unhealthy(waits);
    }
    Stands::Waits(waits)
}

/// Since when a service stands as it does.
#[derive(Debug, Default)]
struct Clock(Mutex<Option<(Discriminant<Stands>, Timestamp)>>);

impl Clock {
    /// For how long it has stood so, whatever was said of it.
    fn so_for(&self, stands: &Stands, now: Timestamp) -> SignedDuration {
        let stands = discriminant(stands);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = known.filter(|(known, _)| *known == stands);
        let (_, since) = *known.insert(since.unwrap_or((stands, now)));
        now.duration_since(since)
    }
}

/// Whether whoever comes after a service may be changed.
#[derive(Debug, Eq, PartialEq)]
enum Gate {
    Open,
    Waits(String),
    Shut(String),
}

fn gate(stands: Stands, so_for: SignedDuration) -> Gate {
    match stands {
        Stands::Ready => Gate::Open,
        Stands::Stalled(why) => Gate::Shut(why),
        Stands::Unhealthy(why) if so_for >= PATIENCE => Gate::Shut(why),
        Stands::Unseen(why) if so_for >= UNSEEN => Gate::Shut(format!(
            "{why} within {} minutes: see that one is at work and can read it, which its log says",
            UNSEEN.as_mins()
        )),
        Stands::Unhealthy(why) | Stands::Waits(why) | Stands::Unseen(why) => Gate::Waits(why),
    }
}

/// How long a service that was made may not work before it counts as one that does not: its pods may move, and what it needs may come back.
pub(crate) const PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// For how long nobody may look at one that was changed: an operator may be replaced meanwhile, and its image brought.
const UNSEEN: SignedDuration = SignedDuration::from_mins(15);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(generation: i64, status: &serde_json::Value) -> OpenStackService {
        serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": "one-glance", "namespace": "cloud", "generation": generation},
            "spec": {"service": "glance", "image": "i", "database": {"host": "db", "adminSecret": {"name": "a"}}},
            "status": status,
        }))
        .unwrap()
    }

    fn condition(kind: &str, status: &str) -> serde_json::Value {
        json!({
            "type": kind, "status": status, "reason": "R", "message": format!("{kind} because"),
            "lastTransitionTime": "2026-11-28T10:00:00Z", "observedGeneration": 2,
        })
    }

    #[test]
    fn what_a_service_has_stays_where_the_cloud_or_somebody_says_so() {
        let of = |says: Option<&str>, manager: &str| {
            let mut service = service(1, &json!(null));
            service.spec.on_delete = serde_json::from_value(json!(says)).unwrap();
            let fields = says.map(|_| json!({"f:spec": {"f:onDelete": {}}}));
            let managed = json!([{"manager": manager, "operation": "Apply", "fieldsV1": fields}]);
            service.metadata.managed_fields = serde_json::from_value(managed).unwrap();
            [OnDelete::Delete, OnDelete::Retain].map(|on_delete| must_be_told(&service, on_delete))
        };
        assert_eq!(of(None, MANAGER), [true, false]);
        assert_eq!(of(Some("Retain"), MANAGER), [true, false]);
        assert_eq!(of(Some("Retain"), "kubectl"), [false, false]);
        assert_eq!(of(Some("Delete"), MANAGER), [false, true]);
        assert_eq!(of(Some("Delete"), "kubectl"), [false, true]);
    }

    #[test]
    fn a_gate_opens_for_what_is_ready_and_shuts_for_what_will_not_be() {
        let of = |status: &serde_json::Value, minutes| {
            let stands = stands(&service(2, status));
            gate(stands, SignedDuration::from_mins(minutes))
        };
        let ready = json!({"observedGeneration": 2, "phase": "Ready", "conditions": [condition(READY, "True")]});
        assert_eq!(of(&ready, 0), Gate::Open);
        let stalled = json!({
            "observedGeneration": 2, "phase": "Stalled",
            "conditions": [condition(READY, "False"), condition(STALLED, "True")],
        });
        assert_eq!(of(&stalled, 0), Gate::Shut("Stalled because".to_owned()));
        let mut refused = stalled.clone();
        refused["conditions"][1]["reason"] = json!(REFUSED);
        let why = || "Stalled because".to_owned();
        assert_eq!(of(&refused, 4), Gate::Waits(why()));
        assert_eq!(of(&refused, 5), Gate::Shut(why()));
        let unhealthy = json!({
            "observedGeneration": 2, "phase": "Unhealthy", "blockedOn": "glance/health waits",
            "conditions": [condition(READY, "False")],
        });
        let why = || "glance/health waits".to_owned();
        assert_eq!(of(&unhealthy, 4), Gate::Waits(why()));
        assert_eq!(of(&unhealthy, 5), Gate::Shut(why()));
        // What is said of the spec before says nothing of this one, at which a run may work for hours.
        for status in [&ready, &stalled, &unhealthy] {
            let mut before = status.clone();
            before["observedGeneration"] = json!(1);
            assert!(matches!(of(&before, 600), Gate::Waits(_)), "{before}");
        }
    }

    #[test]
    fn who_stands_otherwise_than_before_has_all_the_time_again() {
        let clock = Clock::default();
        let minute = |minute: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute);
        let unseen = |at: i64| clock.so_for(&Stands::Unseen(at.to_string()), minute(at));
        assert_eq!(unseen(0).as_mins(), 0);
        assert_eq!(unseen(6).as_mins(), 6);
        let unhealthy = |at: i64| clock.so_for(&Stands::Unhealthy(String::new()), minute(at));
        assert_eq!(unhealthy(7).as_mins(), 0);
        assert_eq!(unhealthy(9).as_mins(), 2);
        assert_eq!(unseen(10).as_mins(), 0);
    }

    #[test]
    fn a_gate_shuts_where_nobody_takes_up_what_was_changed() {
        let mut before = condition(READY, "True");
        before["observedGeneration"] = json!(1);
        let before = json!({"observedGeneration": 1, "phase": "Ready", "conditions": [before]});
        for status in [&before, &json!(null)] {
            let of = |minutes| {
                let stands = stands(&service(2, status));
                gate(stands, SignedDuration::from_mins(minutes))
            };
            assert!(matches!(of(14), Gate::Waits(_)), "{status}");
            let Gate::Shut(why) = of(15) else {
                panic!("it waits for ever: {status}");
            };
            for part in [
                "taken up generation 2 of one-glance",
                "15 minutes",
                "see that",
            ] {
                assert!(why.contains(part), "{why}");
            }
        }
    }
}
