//! A cloud: its database server and its services. Pure.

use std::collections::BTreeMap;

use api::{
    cluster::SecretRef,
    openstack::{
        Backup, Database, Identity, Managed, ManagedMemcached, ManagedRabbitmq, MemcachedServers,
        Messaging, OnDelete, OpenStack, OpenStackService, OpenStackServiceSpec, Standing,
        TransportUrl,
    },
    run::Step,
};
use controller::Problem;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    action::{Action, Named, in_order},
    backup, definition, names,
    rotation::{Scheduled, schedule},
    service,
    wish::{self, Wanted, Wish, map, unwritable},
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
    /// The memcached that is made. None: there is one, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcached: Option<ManagedMemcached>,
    /// The RabbitMQ that is made. None: there is one, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rabbitmq: Option<ManagedRabbitmq>,
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

    fn rotations(&self) -> Vec<Scheduled> {
        schedule::of_cloud(self).unwrap_or_default()
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
        let memcached = memcached(self);
        let messaging = messaging(self);
        let services: Vec<_> = self
            .spec
            .services
            .iter()
            .map(|service| OpenStackServiceSpec {
                service: service.name.clone(),
                release: self.spec.release.clone(),
                image: service.image.clone(),
                contract: service.contract,
                replicas: service.replicas,
                region: self.spec.region.clone(),
                public_url: service.public_url.clone(),
                database: database.clone(),
                identity: identity.clone().filter(|_| needs_identity(&service.name)),
                memcached: memcached.clone(),
                messaging: messaging.clone().filter(|_| sends(&service.name)),
                storage: service.storage.clone(),
                cloud_config: self.spec.config.clone(),
                config: service.config.clone(),
                components: service.components.clone(),
                schema: service.schema.clone(),
                keys: service.keys.clone(),
                passwords: service.passwords.clone(),
                hooks: service.hooks.clone(),
                existing: self.spec.existing,
                on_delete: self.spec.on_delete,
            })
            .collect();
        let mut problems = self
            .spec
            .backup
            .iter()
            .flat_map(backup::wrong)
            .collect::<Vec<_>>();
        problems.extend(overlapping(&services));
        let of_schedules = schedule::of_cloud(self).err();
        problems.extend(of_schedules.into_iter().flatten());
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
            drop: self.spec.on_delete == Some(OnDelete::Delete),
            server,
            memcached: self.spec.memcached.clone().and_then(|of| of.managed),
            rabbitmq: self.spec.messaging.clone().and_then(|of| of.managed),
            services,
            backup: None,
        };
        let parallelism = self.spec.parallelism.unwrap_or(PARALLELISM);
        let wanted = steps(&inputs, parallelism).map_err(|error| unwritable(&error))?;
        let parts = inputs.services.iter();
        let parts = parts.map(|spec| (format!("service {}", spec.service), wish::bytes(spec)));
        wanted.carried(
            "OpenStack spec",
            parts,
            "say less in config, which stands in each of its services, put long files into an image, or make services objects of their own",
        )
    }

    fn removal(&self, inputs: &Map<String, Value>) -> Option<Wanted> {
        let mut inputs: Inputs = wish::read(inputs)?;
        inputs.drop = self.spec.on_delete == Some(OnDelete::Delete);
        let of_all = steps(&inputs, PARALLELISM).ok()?;
        Some(Wanted {
            inputs: of_all.inputs,
            delete: of_all.delete,
            ..Wanted::default()
        })
    }

    fn standing(&self) -> Option<&Standing> {
        self.status.as_ref()
    }
}

/// Services whose clients would be sent to one and the same address.
fn overlapping(services: &[OpenStackServiceSpec]) -> Vec<Problem> {
    let mut taken: BTreeMap<String, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for spec in services {
        let Some(url) = &spec.public_url else {
            continue;
        };
        // As clients read it: in small letters, and without a port that is meant anyway.
        let address = reqwest::Url::parse(url);
        let address = address.map_or_else(|_| url.clone(), |url| url.to_string());
        if let Some(other) = taken.insert(address, &spec.service) {
            problems.push(Problem::new(
                "OpenStack spec.services publicUrl",
                url,
                format!("{other} and {} cannot answer at one address", spec.service),
                "give each service a host or a port of its own",
            ));
        }
    }
    problems
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

/// The memcached of the services: one that is made, or those that are there.
fn memcached(cloud: &OpenStack) -> Option<MemcachedServers> {
    let memcached = cloud.spec.memcached.as_ref()?;
    let managed = memcached.managed.as_ref().map(|_| MemcachedServers {
        servers: vec![format!(
            "{}:{MEMCACHED_PORT}",
            memcached_server(&cloud.name_any())
        )],
    });
    managed.or_else(|| memcached.external.clone())
}

/// The RabbitMQ of the services that send messages: one that is made, or the one that is there.
fn messaging(cloud: &OpenStack) -> Option<Messaging> {
    let messaging = cloud.spec.messaging.as_ref()?;
    let managed = messaging.managed.as_ref().map(|_| TransportUrl {
        name: names::secret(&rabbitmq_server(&cloud.name_any()), "admin"),
        key: None,
    });
    let transport_url_secret = managed.or_else(|| messaging.transport_url_secret.clone())?;
    Some(Messaging {
        transport_url_secret,
    })
}

/// Where a RabbitMQ answers that is made.
pub const RABBITMQ_PORT: u16 = 5672;

/// Where memcached answers.
pub const MEMCACHED_PORT: u16 = 11211;

/// The service that others need.
const KEYSTONE: &str = "keystone";

/// Whether a service needs a Keystone.
pub fn needs_identity(service: &str) -> bool {
    definition::find(service).is_some_and(|definition| definition.identity.is_some())
}

/// Whether a service sends messages, where there is a RabbitMQ.
fn sends(service: &str) -> bool {
    definition::find(service).is_some_and(|definition| definition.messaging.is_some())
}

/// The database server of a cloud: its release and its Service.
pub fn database_server(cloud: &str) -> String {
    format!("{cloud}-mariadb")
}

/// The memcached of a cloud: its release and its Service.
pub fn memcached_server(cloud: &str) -> String {
    format!("{cloud}-memcached")
}

/// The RabbitMQ of a cloud: its release and its Service.
pub fn rabbitmq_server(cloud: &str) -> String {
    format!("{cloud}-rabbitmq")
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

/// The cloud that a service is part of.
pub(crate) fn of(service: &OpenStackService) -> Option<&OwnerReference> {
    let mut owners = service.owner_references().iter();
    owners.find(|owner| {
        owner.controller == Some(true)
            && owner.kind == OpenStack::kind(&())
            && owner.api_version == OpenStack::api_version(&())
    })
}

fn steps(inputs: &Inputs, parallelism: u8) -> Result<Wanted, serde_json::Error> {
    let mut install = Vec::new();
    if inputs.server.is_some() {
        install = in_order([
            (
                "database/secret",
                "Make the database's password",
                Action::MakeServerSecret,
            ),
            (
                "database/deploy",
                "Start the database server",
                Action::DeployServer,
            ),
            (
                SERVER_READY,
                "Wait until the database server serves",
                Action::AwaitServer,
            ),
        ])?;
    }
    let mut first: Vec<_> = inputs
        .server
        .iter()
        .map(|_| SERVER_READY.to_owned())
        .collect();
    if inputs.memcached.is_some() {
        install.extend(in_order([
            (
                "memcached/deploy",
                "Start the memcached",
                Action::DeployMemcached,
            ),
            (
                MEMCACHED_READY,
                "Wait until the memcached serves",
                Action::AwaitMemcached,
            ),
        ])?);
        first.push(MEMCACHED_READY.to_owned());
    }
    if inputs.rabbitmq.is_some() {
        install.extend(in_order([
            (
                "messaging/secret",
                "Make the RabbitMQ's user and its address",
                Action::MakeMessagingSecret,
            ),
            (
                "messaging/deploy",
                "Start the RabbitMQ",
                Action::DeployMessaging,
            ),
            (
                MESSAGING_READY,
                "Wait until the RabbitMQ serves",
                Action::AwaitMessaging,
            ),
        ])?);
        first.push(MESSAGING_READY.to_owned());
    }
    let mut update = install.clone();
    install.extend(side_by_side(&inputs.services, &first)?);
    update.extend(one_by_one(&inputs.services, first)?);
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
    if inputs.memcached.is_some() {
        delete.push((
            "memcached/remove",
            "Remove the memcached",
            Action::RemoveMemcached,
        ));
    }
    if inputs.rabbitmq.is_some() {
        delete.push((
            "messaging/remove",
            "Remove the RabbitMQ",
            Action::RemoveMessaging,
        ));
    }
    let by_hand = inputs.server.iter().map(|_| rotation());
    Ok(Wanted {
        inputs: map(inputs)?,
        install,
        update,
        hooks: Vec::new(),
        parallelism,
        by_hand: by_hand.collect::<Result<_, _>>()?,
        delete: in_order(delete)?,
    })
}

/// The steps that make services: Keystone before those that need it, and what needs the same side by side. Each waits for `first`.
fn side_by_side(
    services: &[OpenStackServiceSpec],
    first: &[String],
) -> Result<Vec<Step>, serde_json::Error> {
    let mut steps = Vec::new();
    let keystone = in_dependency_order(services)
        .any(|service| service == KEYSTONE)
        .then(|| ready(KEYSTONE));
    for service in in_dependency_order(services) {
        let needs = keystone.as_ref().filter(|_| needs_identity(service));
        let after = needs.map_or_else(|| first.to_vec(), |keystone| vec![keystone.clone()]);
        steps.push(declare(service, after)?);
        let title = format!("Wait until {service} is Ready");
        let action = Action::AwaitService(named(service));
        steps.push(action.step(&ready(service), &title, Some(&declared(service)))?);
    }
    Ok(steps)
}

/// The steps that change services that are there: one after the other, each once the one before is healthy. The first that is not so ends
/// it, and whoever comes after it stays as he was.
fn one_by_one(
    services: &[OpenStackServiceSpec],
    first: Vec<String>,
) -> Result<Vec<Step>, serde_json::Error> {
    let mut steps = Vec::new();
    let mut after = first;
    for service in in_dependency_order(services) {
        steps.push(declare(service, after)?);
        let title = format!("Wait until {service} is Ready, or go no further");
        let action = Action::AwaitUpdated(named(service));
        steps.push(action.step(&ready(service), &title, Some(&declared(service)))?);
        after = vec![ready(service)];
    }
    Ok(steps)
}

/// In the order in which they need each other, whatever order they are written in.
fn in_dependency_order(services: &[OpenStackServiceSpec]) -> impl Iterator<Item = &'static str> {
    let is_wanted = |service: &&str| services.iter().any(|spec| spec.service == **service);
    definition::names().filter(is_wanted)
}

fn declare(service: &str, after: Vec<String>) -> Result<Step, serde_json::Error> {
    let title = format!("Store {service} as an object");
    let mut step = Action::Declare(named(service)).step(&declared(service), &title, None)?;
    step.depends_on = after;
    Ok(step)
}

fn named(service: &str) -> Named {
    Named {
        service: service.to_owned(),
    }
}

/// The step that rotates the password of a managed database server's administrator.
pub(crate) fn rotation() -> Result<Step, serde_json::Error> {
    Action::RotateServerAdministrator.step(
        "database/rotate",
        "Give the administrator of the database server another password",
        None,
    )
}

fn declared(service: &str) -> String {
    format!("{service}/declare")
}

fn ready(service: &str) -> String {
    format!("{service}/ready")
}

/// The step after which the database server serves.
const SERVER_READY: &str = "database/ready";
/// The step after which the memcached serves.
const MEMCACHED_READY: &str = "memcached/ready";
/// The step after which the RabbitMQ serves.
const MESSAGING_READY: &str = "messaging/ready";
/// How many services are at work at a time where nobody says it: each has a runner and a Job of its own.
const PARALLELISM: u8 = 4;

#[cfg(test)]
mod tests {
    use api::run::Plan;
    use serde_json::json;

    use super::*;
    use crate::wish::Operation;

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

    #[test]
    fn what_no_run_of_a_cloud_could_carry_is_refused() {
        let long = "x".repeat(200_000);
        let service = |name: &str| {
            let config = json!({"policy.yaml": format!("a: {long}")});
            json!({"name": name, "image": "i", "config": config})
        };
        let services = json!(["keystone", "placement", "glance"].map(service));
        let mut cloud = cloud(&services, &json!(null));
        assert!(cloud.wanted().is_ok());
        cloud.spec.config = Some(format!("[a]\nb = {long}\n"));
        let refused = controller::problem::text(&cloud.wanted().unwrap_err());
        for word in [
            "OpenStack spec ",
            "takes 1048576 bytes of it in all; the largest parts are service",
            "which stands in each of its services",
        ] {
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn a_rabbitmq_is_told_to_the_services_that_send_messages() {
        let services = json!([{"name": "keystone", "image": "k"}, {"name": "placement", "image": "p"}, {"name": "glance", "image": "g"}]);
        let mut cloud = cloud(&services, &json!(null));
        let messaging = json!({"transportUrlSecret": {"name": "rabbitmq", "key": "url"}});
        cloud.spec.messaging = serde_json::from_value(messaging).unwrap();
        let wanted = cloud.wanted().unwrap();
        let inputs: Inputs = serde_json::from_value(wanted.inputs.into()).unwrap();
        let told = inputs.services.iter().map(|spec| spec.messaging.is_some());
        assert_eq!(told.collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn a_rabbitmq_is_made_beside_the_database_and_told_to_those_alone_that_send_messages() {
        let services = json!([{"name": "keystone", "image": "k"}, {"name": "placement", "image": "p"}, {"name": "glance", "image": "g"}]);
        let mut cloud = cloud(&services, &json!(null));
        let none = cloud.wanted().unwrap();
        assert!(
            !serde_json::to_string(&none.inputs)
                .unwrap()
                .contains("rabbit")
        );
        let messaging = json!({"managed": {"image": "r", "storage": {"size": "1Gi"}}});
        cloud.spec.messaging = serde_json::from_value(messaging).unwrap();
        let wanted = cloud.wanted().unwrap();
        let of = |id: &str| {
            let mut steps = wanted.install.iter();
            steps.find(|step| step.id == id).unwrap().depends_on.clone()
        };
        assert!(
            of("messaging/secret").is_empty(),
            "it waits for no database"
        );
        assert_eq!(of("messaging/ready"), ["messaging/deploy"]);
        assert_eq!(
            of("keystone/declare"),
            ["database/ready", "messaging/ready"]
        );
        let ids: Vec<_> = wanted.delete.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(ids.last(), Some(&"messaging/remove"));
        let inputs: Inputs = serde_json::from_value(wanted.inputs.clone().into()).unwrap();
        let told = inputs.services.iter().map(|spec| {
            let messaging = spec.messaging.as_ref();
            messaging.map(|of| of.transport_url_secret.name.as_str())
        });
        let secret = Some("one-rabbitmq-admin");
        assert_eq!(told.collect::<Vec<_>>(), [secret, None, secret]);
        let subject = crate::made::Subject {
            name: "one".to_owned(),
            ..crate::made::Subject::default()
        };
        let release = subject.rabbitmq(&inputs).unwrap();
        assert_eq!(release.name, "one-rabbitmq");
        assert_eq!(
            release.values["of"]["services"],
            json!(["one-keystone", "one-glance"])
        );
        assert_eq!(release.values["secret"], json!("one-rabbitmq-admin"));
    }

    #[test]
    fn a_memcached_is_made_beside_the_database_and_told_to_every_service() {
        let services =
            json!([{"name": "keystone", "image": "k"}, {"name": "glance", "image": "g"}]);
        let of = |memcached: &serde_json::Value| {
            let mut cloud = cloud(&services, &json!(null));
            cloud.spec.memcached = serde_json::from_value(memcached.clone()).unwrap();
            cloud.wanted().unwrap()
        };
        let none = of(&json!(null));
        assert!(!none.inputs.contains_key("memcached"));
        let external = of(&json!({"external": {"servers": ["a:1", "b:2"]}}));
        assert_eq!(external.install, none.install);
        let managed = of(&json!({"managed": {"image": "m"}}));
        let after = |id: &str| {
            let step = managed.install.iter().find(|step| step.id == id).unwrap();
            step.depends_on.join(", ")
        };
        assert_eq!(after("memcached/deploy"), "");
        assert_eq!(after("keystone/declare"), "database/ready, memcached/ready");
        assert_eq!(after("glance/declare"), "keystone/ready");
        let last = managed.delete.last().unwrap();
        assert_eq!(last.id, "memcached/remove");
        for (wanted, servers) in [(external, "a:1,b:2"), (managed, "one-memcached:11211")] {
            let inputs: Inputs = serde_json::from_value(wanted.inputs.into()).unwrap();
            for spec in inputs.services {
                let memcached = spec.memcached.unwrap();
                assert_eq!(memcached.servers.join(","), servers);
            }
        }
    }

    #[test]
    fn two_services_at_one_public_address_are_refused_by_name() {
        let of = |glance: &str| {
            let services = json!([
                {"name": "keystone", "image": "k", "publicUrl": "https://cloud.example"},
                {"name": "glance", "image": "g", "publicUrl": glance},
            ]);
            cloud(&services, &json!(null)).wanted()
        };
        for same in ["https://cloud.example", "https://CLOUD.example:443"] {
            let told = controller::problem::text(&of(same).unwrap_err());
            for part in ["publicUrl", same, "keystone and glance"] {
                assert!(told.contains(part), "{told}");
            }
        }
        for other in ["https://cloud.example:9292", "https://image.cloud.example"] {
            assert!(of(other).is_ok(), "{other}");
        }
    }

    #[test]
    fn an_update_goes_from_one_service_to_the_next() {
        let services = json!([
            {"name": "glance", "image": "g"}, {"name": "placement", "image": "p"}, {"name": "keystone", "image": "k"},
        ]);
        for parallelism in [None, Some(1), Some(8)] {
            let mut cloud = cloud(&services, &json!(null));
            cloud.spec.parallelism = parallelism;
            let wanted = cloud.wanted().unwrap();
            let ids = |steps: &[Step]| {
                let ids = steps.iter().map(|step| step.id.clone());
                ids.collect::<Vec<_>>()
            };
            let update = wanted.steps(Operation::Update);
            assert_eq!(ids(&update), ids(&wanted.install));
            let of_services = update.iter().skip(3);
            let after: Vec<_> = of_services
                .map(|step| format!("{} after {}", step.id, step.depends_on.join(", ")))
                .collect();
            assert_eq!(
                after,
                [
                    "keystone/declare after database/ready",
                    "keystone/ready after keystone/declare",
                    "placement/declare after keystone/ready",
                    "placement/ready after placement/declare",
                    "glance/declare after placement/ready",
                    "glance/ready after glance/declare",
                ]
            );
            let gates = update
                .iter()
                .filter(|step| matches!(Action::of(step), Some(Action::AwaitUpdated(_))));
            assert_eq!(gates.count(), 3);
            // Installing and upgrading wait for a person as long as it takes.
            assert_eq!(wanted.steps(Operation::Upgrade), wanted.install);
        }
    }

    #[test]
    fn what_needs_the_same_begins_side_by_side() {
        let of = |keystone: bool, parallelism: Option<u8>| {
            let mut services = vec![
                json!({"name": "glance", "image": "g"}),
                json!({"name": "placement", "image": "p"}),
            ];
            if keystone {
                services.push(json!({"name": "keystone", "image": "k"}));
            }
            let given = json!({"url": "https://keystone.example/v3", "adminSecret": {"name": "a"}});
            let mut cloud = cloud(&json!(services), &given);
            cloud.spec.parallelism = parallelism;
            let wanted = cloud.wanted().unwrap();
            wanted.plan(Operation::Install, "a test").unwrap()
        };
        let after = |plan: &Plan, id: &str| {
            let step = plan.steps.iter().find(|step| step.id == id).unwrap();
            step.depends_on.join(", ")
        };
        let plan = of(true, None);
        assert_eq!(plan.parallelism, Some(4));
        assert_eq!(after(&plan, "keystone/declare"), "database/ready");
        for service in ["placement", "glance"] {
            let declare = format!("{service}/declare");
            assert_eq!(after(&plan, &declare), "keystone/ready");
            assert_eq!(after(&plan, &format!("{service}/ready")), declare);
        }
        // With a Keystone that is there, nothing but the database is needed.
        assert_eq!(after(&of(false, None), "glance/declare"), "database/ready");
        // One after the other, as they are written.
        assert_eq!(of(true, Some(1)).parallelism, None);
    }
}
