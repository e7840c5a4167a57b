//! A cloud: its database server and its services. Pure.

use api::{
    cluster::SecretRef,
    openstack::{
        Backup, Database, Identity, Managed, OpenStack, OpenStackService, OpenStackServiceSpec,
        Standing,
    },
};
use controller::Problem;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::{
    action::{Action, Named, in_order},
    backup, definition, names,
    service::{self, GLOBAL},
    wish::{Wanted, Wish, map, unwritable},
};

/// What the steps of a cloud read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// The release, where somebody says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The database server that is made. None: there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Managed>,
    /// The services: their objects' specs, by the names of the services.
    pub services: Vec<OpenStackServiceSpec>,
    /// Whether what is secret goes with the cloud.
    pub drop: bool,
    /// What the steps of backups read. No wish has it: a schedule that changes changes no cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<backup::Input>,
}

impl Wish for OpenStack {
    const HAS_BACKUPS: bool = true;

    fn backup(&self) -> Option<&Backup> {
        self.spec.backup.as_ref()
    }

    fn wanted(&self) -> Result<Wanted, Vec<Problem>> {
        let name = self.name_any();
        let server = self.spec.database.managed.clone();
        let database = match (&server, &self.spec.database.external) {
            (None, Some(external)) => Database {
                host: external.host.clone(),
                port: external.port,
                admin_secret: external.admin_secret.clone(),
            },
            _ => Database {
                host: database_server(&name),
                port: None,
                admin_secret: SecretRef {
                    name: names::secret(&database_server(&name), "admin"),
                },
            },
        };
        let identity = identity(self);
        let services: Vec<_> = self
            .spec
            .services
            .iter()
            .map(|service| {
                let mut config = service.config.clone();
                if let Some(of_all) = &self.spec.config {
                    config
                        .entry(GLOBAL.to_owned())
                        .and_modify(|own| *own = format!("{of_all}\n{own}"))
                        .or_insert_with(|| of_all.clone());
                }
                OpenStackServiceSpec {
                    service: service.name.clone(),
                    release: self.spec.release.clone(),
                    image: service.image.clone(),
                    replicas: service.replicas,
                    region: self.spec.region.clone(),
                    public_url: service.public_url.clone(),
                    database: database.clone(),
                    identity: identity.clone().filter(|_| needs_identity(&service.name)),
                    storage: service.storage.clone(),
                    config,
                    keys: service.keys.clone(),
                    existing: self.spec.existing,
                    on_delete: self.spec.on_delete,
                }
            })
            .collect();
        let mut problems = self
            .spec
            .backup
            .iter()
            .flat_map(backup::wrong)
            .collect::<Vec<_>>();
        for spec in &services {
            // What is wrong with a service is wrong with the cloud, and is said before anything is begun.
            let mut object =
                OpenStackService::new(&service_name(&name, &spec.service), spec.clone());
            object.metadata.namespace = self.namespace();
            if let Err(of_service) = object.wanted() {
                problems.extend(of_service);
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let inputs = Inputs {
            release: self.spec.release.clone(),
            drop: self.spec.on_delete == Some(api::openstack::OnDelete::Delete),
            server,
            services,
            backup: None,
        };
        steps(&inputs).map_err(|error| unwritable(&error))
    }

    fn standing(&self) -> Option<&Standing> {
        self.status.as_ref()
    }
}

/// The Keystone of the services: their own, or one that is there.
fn identity(cloud: &OpenStack) -> Option<Identity> {
    let mut services = cloud.spec.services.iter();
    let is_here = services.any(|service| service.name == KEYSTONE);
    let Some(keystone) = definition::find(KEYSTONE).filter(|_| is_here) else {
        return cloud.spec.identity.clone();
    };
    let object = service_name(&cloud.name_any(), KEYSTONE);
    let namespace = cloud.namespace().unwrap_or_default();
    let url = service::internal_url(&object, &namespace, keystone.port);
    Some(Identity {
        url: format!("{url}{}", keystone.path),
        admin_secret: SecretRef {
            name: names::secret(&object, "admin"),
        },
    })
}

/// The service that others need.
const KEYSTONE: &str = "keystone";

/// Whether a service needs a Keystone.
pub fn needs_identity(service: &str) -> bool {
    definition::find(service).is_some_and(|definition| definition.identity.is_some())
}

/// The database server of a cloud: its release and its Service.
pub fn database_server(cloud: &str) -> String {
    format!("{cloud}-mariadb")
}

/// The object of a service of a cloud.
pub fn service_name(cloud: &str, service: &str) -> String {
    format!("{cloud}-{service}")
}

/// Whether a service is part of this cloud.
pub fn is_of(service: &OpenStackService, cloud: &OpenStack) -> bool {
    let uid = cloud.meta().uid.as_ref();
    let mut owners = service.owner_references().iter();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == uid)
}

fn steps(inputs: &Inputs) -> Result<Wanted, serde_json::Error> {
    let mut install: Vec<(String, String, Action)> = Vec::new();
    let mut add = |id: String, title: String, action| install.push((id, title, action));
    if inputs.server.is_some() {
        add(
            "database/secret".to_owned(),
            "Make the database's password".to_owned(),
            Action::MakeServerSecret,
        );
        add(
            "database/deploy".to_owned(),
            "Start the database server".to_owned(),
            Action::DeployServer,
        );
        add(
            "database/ready".to_owned(),
            "Wait until the database server serves".to_owned(),
            Action::AwaitServer,
        );
    }
    // In the order in which they need each other, whatever order they are written in.
    for service in definition::names() {
        if inputs.services.iter().any(|spec| spec.service == service) {
            let named = || Named {
                service: service.to_owned(),
            };
            add(
                format!("{service}/declare"),
                format!("Store {service} as an object"),
                Action::Declare(named()),
            );
            add(
                format!("{service}/ready"),
                format!("Wait until {service} is Ready"),
                Action::AwaitService(named()),
            );
        }
    }
    let mut delete = vec![(
        "services/remove",
        "Remove the services",
        Action::RemoveServices,
    )];
    if inputs.server.is_some() {
        delete.push((
            "database/remove",
            "Remove the database server",
            Action::RemoveServer,
        ));
    }
    let install = install
        .iter()
        .map(|(id, title, action)| (id.as_str(), title.as_str(), action.clone()));
    Ok(Wanted {
        inputs: map(inputs)?,
        install: in_order(install)?,
        by_hand: Vec::new(),
        delete: in_order(delete)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cloud(services: &serde_json::Value, identity: &serde_json::Value) -> OpenStack {
        serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
            "metadata": {"name": "one", "namespace": "cloud"},
            "spec": {"database": {"managed": {"image": "db"}}, "services": services, "identity": identity},
        }))
        .unwrap()
    }

    #[test]
    fn services_know_the_keystone_of_their_cloud_or_the_one_that_is_given() {
        let identities = |cloud: OpenStack| {
            let wanted = cloud.wanted().unwrap();
            let inputs: Inputs = serde_json::from_value(wanted.inputs.into()).unwrap();
            let services = inputs.services.into_iter();
            services
                .map(|service| service.identity.map(|identity| identity.url))
                .collect::<Vec<_>>()
        };
        let both = json!([{"name": "placement", "image": "p"}, {"name": "keystone", "image": "k"}]);
        let own = "http://one-keystone.cloud.svc:5000/v3".to_owned();
        assert_eq!(identities(cloud(&both, &json!(null))), [Some(own), None]);
        let alone = json!([{"name": "placement", "image": "p"}]);
        let given = json!({"url": "https://keystone.example/v3", "adminSecret": {"name": "a"}});
        let there = "https://keystone.example/v3".to_owned();
        assert_eq!(identities(cloud(&alone, &given)), [Some(there)]);
        let unknown = cloud(&alone, &json!(null)).wanted().unwrap_err();
        assert!(controller::problem::text(&unknown).contains("add keystone to its services"));
    }

    #[test]
    fn services_come_in_the_order_in_which_they_need_each_other() {
        let services =
            json!([{"name": "glance", "image": "g"}, {"name": "keystone", "image": "k"}]);
        let wanted = cloud(&services, &json!(null)).wanted().unwrap();
        let ids: Vec<_> = wanted.install.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(
            ids[3..],
            [
                "keystone/declare",
                "keystone/ready",
                "glance/declare",
                "glance/ready"
            ]
        );
    }
}
