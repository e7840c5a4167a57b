//! What tells that a secret has changed for which the machines of a cluster are replaced.
//!
//! The digest of a value is that of the status of its VaultSecret, which says what was read last while Vault is away. So nothing is replaced
//! for a Vault that cannot be read, and nothing for what is seen first: only another digest after one that was known is a change. Where a
//! status was lost, with a backup of its objects, the templates say what was known.

use std::collections::BTreeMap;

use api::inventory::{FleetCluster, FleetSecret, ROLLS_ANNOTATION, SECRETS_ANNOTATION};
use serde_json::Value;

use super::{Context, Error, apply::is_unknown, live, part::Parts, records};

/// The most that a status tells.
const MOST: usize = 64;

/// What is known of the values after a look at the VaultSecrets of a cluster.
pub(super) async fn look(
    cluster: &FleetCluster,
    (parts, applied): (&Parts, Option<&str>),
    context: &Context,
) -> Result<Vec<FleetSecret>, Error> {
    let mut found = BTreeMap::new();
    for part in &parts.objects {
        let keys = &part.value["metadata"]["annotations"][ROLLS_ANNOTATION];
        let Some(keys) = keys.as_str().filter(|_| part.is_vault_secret()) else {
            continue;
        };
        let there = live::read(part, context).await;
        let there = match there {
            // The API has no such kind: it is refused where it would be applied.
            Err(Error::Api(_, error)) if is_unknown(&error) => None,
            there => there?,
        };
        for key in keys.split(' ') {
            let digest = there.as_ref().map(|there| &there["status"]["digests"][key]);
            let digest = digest.and_then(Value::as_str).map(ToOwned::to_owned);
            found.insert(format!("{}/{key}", part.name), digest);
        }
    }
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let known = super::known_secrets(cluster);
    let applied = applied.map(|applied| records::objects(cluster, applied, context));
    let told = applied
        .flatten()
        .map_or_else(BTreeMap::new, |objects| told(&objects));
    Ok(known_now(known, &told, found))
}

/// What templates tell to have changed.
fn told(objects: &[Value]) -> BTreeMap<String, String> {
    let texts = objects.iter().filter_map(|object| {
        let annotations = &object["metadata"]["annotations"];
        annotations[SECRETS_ANNOTATION].as_str()
    });
    let pairs = texts.flat_map(|text| text.split(' '));
    pairs
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, digest)| (name.to_owned(), digest.to_owned()))
        .collect()
}

/// What is known of each value, by what was, by what templates tell and by what was found. Pure.
fn known_now(
    known: &[FleetSecret],
    told: &BTreeMap<String, String>,
    found: BTreeMap<String, Option<String>>,
) -> Vec<FleetSecret> {
    let now = found.into_iter().filter_map(|(name, found)| {
        let before = known.iter().find(|secret| secret.name == name).cloned();
        let before = before.or_else(|| {
            Some(FleetSecret {
                digest: told.get(&name)?.clone(),
                name: name.clone(),
                changed: true,
            })
        });
        match (before, found) {
            (Some(before), Some(digest)) => Some(FleetSecret {
                changed: before.changed || before.digest != digest,
                digest,
                name,
            }),
            (None, Some(digest)) => Some(FleetSecret {
                name,
                digest,
                changed: false,
            }),
            (before, None) => before,
        }
    });
    now.take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(digest: &str, changed: bool) -> FleetSecret {
        FleetSecret {
            name: "vault-a/k".to_owned(),
            digest: digest.to_owned(),
            changed,
        }
    }

    #[test]
    fn only_another_digest_than_a_known_one_is_a_change() {
        let name = || "vault-a/k".to_owned();
        let told_of = |text: &str| {
            told(&[
                json!({"metadata": {"annotations": {SECRETS_ANNOTATION: text}}}),
                json!({}),
            ])
        };
        for (why, known, told, found, expected) in [
            ("first seen", vec![], "", Some("1"), Some(("1", false))),
            (
                "as it was",
                vec![secret("1", false)],
                "",
                Some("1"),
                Some(("1", false)),
            ),
            (
                "changed",
                vec![secret("1", false)],
                "",
                Some("2"),
                Some(("2", true)),
            ),
            (
                "and back",
                vec![secret("2", true)],
                "",
                Some("1"),
                Some(("1", true)),
            ),
            (
                "Vault away",
                vec![secret("2", true)],
                "",
                None,
                Some(("2", true)),
            ),
            ("never read", vec![], "", None, None),
            (
                "status lost",
                vec![],
                "vault-b/k=9 vault-a/k=2",
                Some("2"),
                Some(("2", true)),
            ),
            (
                "lost, and changed",
                vec![],
                "vault-a/k=2",
                Some("3"),
                Some(("3", true)),
            ),
            (
                "lost, and away",
                vec![],
                "vault-a/k=2",
                None,
                Some(("2", true)),
            ),
        ] {
            let found = BTreeMap::from([(name(), found.map(ToOwned::to_owned))]);
            let now = known_now(&known, &told_of(told), found);
            let expected = expected.map(|(digest, changed)| secret(digest, changed));
            assert_eq!(now, Vec::from_iter(expected), "{why}");
        }
        assert_eq!(
            known_now(&[secret("1", true)], &BTreeMap::new(), BTreeMap::new()),
            []
        );
    }
}
