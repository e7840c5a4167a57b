//! A cloud: its database server and its services. Pure.

use api::{
    cluster::SecretRef,
    openstack::{Database, Managed, OpenStack, OpenStackService, OpenStackServiceSpec, Standing},
};
use controller::Problem;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::{
    action::{Action, Named, in_order},
    definition, names,
    service::GLOBAL,
    wish::{Wanted, Wish, map, unwritable},
};

/// What the steps of a cloud read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// The database server that is made. None: there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Managed>,
    /// The services: their objects' specs, by the names of the services.
    pub services: Vec<OpenStackServiceSpec>,
    /// Whether what is secret goes with the cloud.
    pub drop: bool,
}

impl Wish for OpenStack {
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
                    config,
                    existing: self.spec.existing,
                    on_delete: self.spec.on_delete,
                }
            })
            .collect();
        let mut problems = Vec::new();
        for spec in &services {
            // What is wrong with a service is wrong with the cloud, and is said before anything is begun.
            let object = OpenStackService::new(&service_name(&name, &spec.service), spec.clone());
            if let Err(of_service) = object.wanted() {
                problems.extend(of_service);
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let inputs = Inputs {
            drop: self.spec.on_delete == Some(api::openstack::OnDelete::Delete),
            server,
            services,
        };
        steps(&inputs).map_err(|error| unwritable(&error))
    }

    fn standing(&self) -> Option<&Standing> {
        self.status.as_ref()
    }
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
        delete: in_order(delete)?,
    })
}
