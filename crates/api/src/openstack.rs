//! OpenStack, in layers: `OpenStack` is a cloud (layer 5), `OpenStackService` one of its services (layer 4). What they are made of are
//! releases of Helm (3), objects of Kubernetes (2) and containers (1), which have no kinds here. `IdentitySeed` is what people make in a
//! Keystone, whosever it is.
//!
//! Each is of use without those above it: an `OpenStackService` needs no `OpenStack`, and nobody needs either.
//!
//! They are not among [`custom_resource_definitions`](crate::custom_resource_definitions): a definition whose objects nobody acts on
//! misleads, and only `--openstack` acts on these.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

mod backup;
mod cloud;
mod component;
mod hook;
mod keys;
mod messaging;
mod passwords;
mod schema;
mod seed;
mod service;
mod status;

pub use backup::{
    Backup, BackupDrill, BackupDrillResult, BackupState, BackupStatus, BackupsStatus,
};
pub use cloud::{
    CloudService, External, Managed, ManagedMemcached, Memcached, OpenStack, OpenStackSpec, Server,
};
pub use component::ServiceComponent;
pub use hook::{
    HookSecretKey, ServiceHook, ServiceHookImage, ServiceHookVariable, ServiceOperation,
};
pub use keys::{KeyRing, Keys, KeysStatus, RotationSchedule, RotationStatus};
pub use messaging::{CloudMessaging, ManagedRabbitmq, Messaging, TransportUrl};
pub use passwords::{CloudPasswords, Password, Passwords, PasswordsStatus};
pub use schema::{SchemaCheck, WithoutValidator};
pub use seed::{
    IdentitySeed, IdentitySeedSpec, SeedAssignment, SeedDomain, SeedEndpoint, SeedExisting,
    SeedGroup, SeedInterface, SeedLeft, SeedNamed, SeedPassword, SeedProject, SeedService,
    SeedUser,
};
pub use service::{
    Contract, Database, Existing, Identity, MemcachedServers, OnDelete, OpenStackService,
    OpenStackServiceSpec, Storage,
};
pub use status::{Phase, Standing};

/// The group of all kinds here.
pub const GROUP: &str = "openstack.windlass.dev";
/// Their version.
pub const VERSION: &str = "v1alpha1";
/// Keeps an object until what belongs to it is gone.
pub const FINALIZER: &str = "openstack.windlass.dev/releases";
/// On what was made for an object: its name.
pub const OF_LABEL: &str = "openstack.windlass.dev/of";
/// Asks a cloud for a backup: any value that is another one than the last.
pub const BACKUP: &str = "openstack.windlass.dev/backup";
/// Asks a cloud to have a backup drilled: its name, and whatever makes the value another one than the last.
pub const DRILL: &str = "openstack.windlass.dev/drill-backup";
/// Asks a cloud to be brought back to a backup: its name, `confirm=` and the name of the cloud, and whatever makes the value another one
/// than the last.
pub const RESTORE: &str = "openstack.windlass.dev/restore-backup";

/// Lets a step overwrite what people changed by hand: the word that the refusal named, which is for exactly these changes.
pub const OVERWRITE: &str = "openstack.windlass.dev/overwrite";

/// The definitions of the kinds.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        OpenStack::crd(),
        OpenStackService::crd(),
        IdentitySeed::crd(),
    ]
}

/// Files by their names, each with its text.
fn files(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": 65536},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_definition_with_a_schema() {
        for definition in definitions() {
            let text = serde_json::to_string(&definition).unwrap();
            assert!(text.contains("openAPIV3Schema"), "{text}");
            assert_eq!(definition.spec.group, GROUP);
            assert_eq!(definition.spec.scope, "Namespaced");
        }
    }
}
