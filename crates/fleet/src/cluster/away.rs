//! Whether Vault can be asked for what a cluster needs of it: a condition for people. Nothing is decided by it.
//!
//! A Vault that is away or sealed rolls nothing: what was read last counts, and a roll-out that needs something new of it waits. That may
//! last, and is nobody's fault but one that a person can end; so the FleetCluster says since when, for which VaultSecrets, and what to do.
//! It is what these say of themselves, by the watch of the operator that works on them. Without that watch nothing is said. Whom one was made
//! for its annotation says, which anybody may write in a namespace of theirs: those count that a revision of the cluster has.

use std::collections::BTreeSet;

use api::{
    inventory::{FLEET_CLUSTER_ANNOTATION, FleetCluster, FleetRevision},
    secrets::VaultSecret,
};
use controller::{
    Conditions, Status,
    stream::{in_namespace, readable},
};
use futures::FutureExt;
use kube::{ResourceExt, api::ObjectMeta, core::DeserializeGuard, runtime::reflector::Store};
use serde_json::Value;

use super::{Context, part};

/// Whether Vault can be asked.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) enum Vault {
    /// Nobody knows yet: what was said before stays.
    #[default]
    Unknown,
    /// Nothing says that it cannot.
    There,
    /// It cannot, for this reason.
    Away(&'static str, String),
}

impl Vault {
    /// Says it, for as long as it holds.
    pub(super) fn tell(&self, conditions: &mut Conditions) {
        match self {
            Self::Unknown => {}
            Self::There => conditions.remove(CONDITION),
            Self::Away(reason, message) => {
                conditions.set(CONDITION, Status::True, reason, message.clone());
            }
        }
    }
}

/// Whether Vault can be asked for what a cluster needs of it.
pub(super) fn look(cluster: &FleetCluster, context: &Context) -> Vault {
    let Some(store) = &context.vault_secrets else {
        return Vault::There;
    };
    let is_read = matches!(store.wait_until_ready().now_or_never(), Some(Ok(())));
    if !is_read {
        return Vault::Unknown;
    }
    let owner = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let names = names(&context.revisions, &owner);
    let all = store.state_filter(|object| {
        let meta = kube::Resource::meta(object);
        owner_of(meta).as_ref() == Some(&owner) && is_one(meta, &names)
    });
    away(all.iter().filter_map(|object| readable(object)))
}

/// The FleetCluster that a VaultSecret was made for, if a revision of that has it.
pub(crate) fn owner(
    revisions: &Store<DeserializeGuard<FleetRevision>>,
    meta: &ObjectMeta,
) -> Option<(String, String)> {
    let owner = owner_of(meta)?;
    is_one(meta, &names(revisions, &owner)).then_some(owner)
}

/// The FleetCluster that an object says it was made for: its namespace and name.
pub(crate) fn owner_of(meta: &ObjectMeta) -> Option<(String, String)> {
    let owner = meta.annotations.as_ref()?.get(FLEET_CLUSTER_ANNOTATION)?;
    let (namespace, name) = owner.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

/// The VaultSecrets that the kept revisions of a cluster have: their namespaces and names.
fn names(
    revisions: &Store<DeserializeGuard<FleetRevision>>,
    owner: &(String, String),
) -> BTreeSet<(String, String)> {
    let records = in_namespace(revisions, &owner.0);
    named(records.iter().filter_map(|record| readable(record)), owner)
}

/// The same. Pure.
fn named<'a>(
    records: impl Iterator<Item = &'a FleetRevision>,
    (namespace, cluster): &(String, String),
) -> BTreeSet<(String, String)> {
    let own = records.filter(|record| record.spec.cluster == *cluster);
    let objects = own.flat_map(|record| &record.spec.objects);
    let secrets = objects.filter(|object| {
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        text("apiVersion") == Some(part::VAULT_SECRETS) && text("kind") == Some("VaultSecret")
    });
    let names = secrets.filter_map(|object| {
        let metadata = object.get("metadata")?;
        let place = metadata["namespace"].as_str().unwrap_or(namespace);
        Some((place.to_owned(), metadata["name"].as_str()?.to_owned()))
    });
    names.collect()
}

fn is_one(meta: &ObjectMeta, names: &BTreeSet<(String, String)>) -> bool {
    let place = meta.namespace.clone().zip(meta.name.clone());
    place.is_some_and(|place| names.contains(&place))
}

/// What VaultSecrets say. Pure.
fn away<'a>(secrets: impl Iterator<Item = &'a VaultSecret>) -> Vault {
    let mut waiting: Vec<_> = secrets.filter_map(one).collect();
    waiting.sort();
    let Some((reason, remedy)) = REASONS
        .iter()
        .find(|(reason, _)| waiting.iter().any(|(of, ..)| of == reason))
    else {
        return Vault::There;
    };
    let mut servers: Vec<_> = waiting.iter().map(|(_, server, _)| *server).collect();
    servers.sort_unstable();
    servers.dedup();
    let names = waiting.iter().take(MOST_NAMED);
    let names: Vec<_> = names.map(|(_, _, name)| name.as_str()).collect();
    let more = waiting.len().saturating_sub(names.len());
    let more = (more > 0).then(|| format!(" and {more} more"));
    Vault::Away(
        reason,
        format!(
            "{} cannot be read from {}: {remedy}; it is asked again by itself. Until then what was read last counts, nothing rolls for it, and \
             what needs something new of it waits",
            names.join(", ") + &more.unwrap_or_default(),
            servers.join(", ")
        ),
    )
}

/// Why one cannot be read, its server and itself, if only its server is in the way.
fn one(secret: &VaultSecret) -> Option<(&'static str, &str, String)> {
    let conditions = &secret.status.as_ref()?.conditions;
    let stale = conditions
        .iter()
        .find(|it| it.type_ == "Stale" && it.status == "True")?;
    let (reason, _) = REASONS.iter().find(|(reason, _)| stale.reason == *reason)?;
    let namespace = secret.namespace().unwrap_or_default();
    let title = format!("VaultSecret/{namespace}/{}", secret.name_any());
    Some((reason, &secret.spec.vault.address, title))
}

/// The condition.
const CONDITION: &str = "VaultUnavailable";
/// The reasons of VaultSecrets that are none of their own, by [the guide](../../../../docs/vault.md), and what to do; the graver first.
const REASONS: [(&str, &str); 2] = [
    (
        "VaultUnreachable",
        "let it answer (`kubectl describe` of the VaultSecret has what it said)",
    ),
    ("VaultSealed", "unseal it"),
];
/// How many are named: a condition's message is bounded.
const MOST_NAMED: usize = 8;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(name: &str, stale: &str, reason: &str) -> VaultSecret {
        let condition: Value = json!({
            "type": "Stale", "status": stale, "reason": reason, "message": "it says so", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(json!({
            "apiVersion": "secrets.windlass.dev/v1alpha1", "kind": "VaultSecret",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "path": name,
                "vault": {"address": "https://v:8200", "auth": {"token": {"secretRef": {"name": "vault"}}}},
            },
            "status": {"conditions": [condition]},
        }))
        .unwrap()
    }

    fn told(secrets: &[VaultSecret]) -> Option<(&'static str, String)> {
        match away(secrets.iter()) {
            Vault::Away(reason, message) => Some((reason, message)),
            Vault::There | Vault::Unknown => None,
        }
    }

    #[test]
    fn a_server_that_cannot_be_asked_is_told_with_what_waits_for_it() {
        let sealed = secret("b", "True", "VaultSealed");
        let (reason, message) = told(&[
            secret("c", "False", "Read"),
            sealed.clone(),
            secret("a", "True", "VaultSealed"),
        ])
        .unwrap();
        assert_eq!(reason, "VaultSealed");
        assert!(
            message.starts_with(
                "VaultSecret/shop/a, VaultSecret/shop/b cannot be read from https://v:8200: unseal it; it is asked again by itself."
            ),
            "{message}"
        );
        let away = secret("a", "True", "VaultUnreachable");
        assert_eq!(told(&[sealed, away]).unwrap().0, "VaultUnreachable");
        // What is wrong with one itself its cluster says elsewhere.
        for own in ["VaultDenied", "NotInVault", "CredentialsMissing"] {
            assert_eq!(told(&[secret("a", "True", own)]), None);
        }
        let many: Vec<_> = (0..30)
            .map(|number| secret(&format!("s{number}"), "True", "VaultSealed"))
            .collect();
        let (_, message) = told(&many).unwrap();
        assert!(message.contains(" and 22 more cannot be read"), "{message}");
    }

    #[test]
    fn who_names_a_cluster_that_does_not_have_it_speaks_for_nobody() {
        let object = |name: &str, namespace: Value| {
            json!({
                "apiVersion": part::VAULT_SECRETS, "kind": "VaultSecret",
                "metadata": {"name": name, "namespace": namespace},
            })
        };
        let record = |cluster: &str, objects: Value| -> FleetRevision {
            serde_json::from_value(json!({
                "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "FleetRevision", "metadata": {"name": cluster},
                "spec": {"cluster": cluster, "revision": "r", "objects": objects},
            }))
            .unwrap()
        };
        let cluster = json!({
            "apiVersion": "kubespray.k8s.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "b", "namespace": "shop"},
        });
        let here = object("beside", Value::Null);
        let records = [
            record("shop", json!([object("a", json!("shop")), here, cluster])),
            record("billing", json!([object("c", json!("shop"))])),
        ];
        let owner = ("fleet".to_owned(), "shop".to_owned());
        let names = named(records.iter(), &owner);
        for (namespace, name, is) in [
            ("shop", "a", true),
            ("fleet", "beside", true),
            // Of a namespace of somebody else, of another kind and of another cluster.
            ("theirs", "a", false),
            ("shop", "b", false),
            ("shop", "c", false),
        ] {
            let meta = json!({
                "name": name, "namespace": namespace, "annotations": {FLEET_CLUSTER_ANNOTATION: "fleet/shop"},
            });
            let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
            assert_eq!(owner_of(&meta).as_ref(), Some(&owner));
            assert_eq!(is_one(&meta, &names), is, "{namespace}/{name}");
        }
    }

    #[test]
    fn what_is_not_known_yet_changes_nothing_and_what_is_over_goes() {
        let begun = "2026-01-01T00:00:00Z".parse().unwrap();
        let later = "2026-01-01T01:00:00Z".parse().unwrap();
        let away = Vault::Away("VaultSealed", "unseal it".to_owned());
        let mut conditions = Conditions::new(&[], Some(1), begun);
        away.tell(&mut conditions);
        let first = conditions.into_vec();
        for vault in [Vault::Unknown, away] {
            let mut conditions = Conditions::new(&first, Some(1), later);
            vault.tell(&mut conditions);
            assert_eq!(conditions.into_vec(), first, "since when it is stays");
        }
        let mut conditions = Conditions::new(&first, Some(1), later);
        Vault::There.tell(&mut conditions);
        assert_eq!(conditions.into_vec(), []);
    }
}
