//! Steps of a cloud on the objects of its services.

use api::run::FailureClass;
use api::{
    openstack::{IdentitySeed, OpenStack, OpenStackService},
    run::Step,
};
use controller::conditions::{READY, STALLED, is_true};
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
            let status = found.status.clone().unwrap_or_default();
            let is_seen = status.observed_generation == found.metadata.generation;
            if is_seen && is_true(&status.conditions, READY) {
                return Ok(Seen::There(None));
            }
            if is_seen && is_true(&status.conditions, STALLED) {
                let stalled = status
                    .conditions
                    .iter()
                    .find(|found| found.type_ == STALLED);
                let why = stalled
                    .map(|found| found.message.clone())
                    .unwrap_or_default();
                return Ok(Seen::Missing(format!("{name} needs somebody: {why}")));
            }
            // What it waits for itself is what this step waits for, at the bottom.
            Ok(Seen::Missing(status.blocked_on.unwrap_or_else(|| {
                format!(
                    "{name} {}: its run starts",
                    status.steps.unwrap_or_default()
                )
            })))
        })
        .await
    }

    pub(super) async fn remove_services(&self, step: &Step, context: &mut StepContext) -> Done {
        let api = self.services();
        let own = async || {
            let found = api.list(&ListParams::default()).await;
            let found = found.map_err(|error| call("list the services", &error))?;
            let own = found.items.into_iter().filter(|found| self.owns(found));
            let named = own.map(|found| (found.name_any(), found.spec.service));
            Ok::<_, super::Failure>(named.collect::<Vec<_>>())
        };
        // What others need goes after them: they take their users out of it.
        for needs_identity in [true, false] {
            let are_going = async || {
                let own = own().await?.into_iter();
                let going =
                    own.filter(|(_, service)| !needs_identity || cloud::needs_identity(service));
                Ok::<_, super::Failure>(going.map(|(name, _)| name).collect::<Vec<_>>())
            };
            for name in are_going().await? {
                self.about(&audit::removed(&audit::object("OpenStackService", &name)))?;
                gone(api.delete(&name, &DeleteParams::default()).await)
                    .map_err(|error| call(format!("delete OpenStackService {name}"), &error))?;
            }
            until(step, context, || async {
                Ok(match are_going().await?.as_slice() {
                    [] => Seen::There(()),
                    left => Seen::Missing(format!("{} are going", left.join(", "))),
                })
            })
            .await?;
        }
        Ok(None)
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
