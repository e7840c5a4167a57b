//! Whether Vault can be asked for what a cluster needs of it: a condition for people. Nothing is decided by it.
//!
//! A Vault that is away or sealed rolls nothing: what was read last counts, and a roll-out that needs something new of it waits. That may
//! last, and is nobody's fault but one that a person can end; so the FleetCluster says since when, for which VaultSecrets, and what to do.
//! It is what these say of themselves, by the watch of the operator that works on them. Without that watch nothing is said.

use api::{
    inventory::{FLEET_CLUSTER_ANNOTATION, FleetCluster},
    secrets::VaultSecret,
};
use controller::{Conditions, Status, stream::readable};
use futures::FutureExt;
use kube::ResourceExt;

use super::{Context, own};

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
    let owner = own(cluster);
    let all = store.state_filter(|object| {
        let annotations = kube::Resource::meta(object).annotations.as_ref();
        let of = annotations.and_then(|them| them.get(FLEET_CLUSTER_ANNOTATION));
        of.is_some_and(|of| owner == of.as_str())
    });
    away(all.iter().filter_map(|object| readable(object)))
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
    use serde_json::{Value, json};

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
