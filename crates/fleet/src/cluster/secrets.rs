//! What tells that a secret has changed for which the machines of a cluster are replaced.
//!
//! The digest of a value is that of the status of its VaultSecret, which says what was read last while Vault is away. So nothing is replaced
//! for a Vault that cannot be read, and nothing for what is seen first: only another digest after one that was known is a change. Where a
//! status was lost, with a backup of its objects, the templates say what was known.

use std::collections::BTreeMap;

use api::{
    inventory::{FleetCluster, FleetSecret, MOST_SECRETS, ROLLS_ANNOTATION, SECRETS_ANNOTATION},
    secrets::KEY_DIGITS,
};
use serde_json::Value;

use super::{Context, Error, apply::is_unknown, live, part::Parts, records};

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
            let told = told.get(&name)?.clone();
            Some(FleetSecret {
                digest: told.clone(),
                told: Some(told),
                name: name.clone(),
            })
        });
        let Some(digest) = found else {
            return before;
        };
        let told = match before {
            Some(before) if is_other(&before.digest, &digest) => Some(digest.clone()),
            Some(before) => before.told,
            None => None,
        };
        Some(FleetSecret { name, digest, told })
    });
    // Of a cluster that has more nothing is rendered.
    now.take(MOST_SECRETS).collect()
}

/// Whether two digests are of two values. Those of two keys say nothing.
fn is_other(one: &str, other: &str) -> bool {
    one != other && one.get(..KEY_DIGITS) == other.get(..KEY_DIGITS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(digest: &str, told: Option<&str>) -> FleetSecret {
        FleetSecret {
            name: "vault-a/k".to_owned(),
            digest: digest.to_owned(),
            told: told.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn only_another_digest_than_a_known_one_is_a_change() {
        let told_of = |text: &str| {
            told(&[
                json!({"metadata": {"annotations": {SECRETS_ANNOTATION: text}}}),
                json!({}),
            ])
        };
        let (one, two, three) = ("keyA1", "keyA2", "keyA3");
        let of_another_key = "keyB7";
        for (why, known, told, found, expected) in [
            ("first seen", None, "", Some(one), Some((one, None))),
            (
                "as it was",
                Some((one, None)),
                "",
                Some(one),
                Some((one, None)),
            ),
            (
                "changed",
                Some((one, None)),
                "",
                Some(two),
                Some((two, Some(two))),
            ),
            (
                "once more",
                Some((two, Some(two))),
                "",
                Some(three),
                Some((three, Some(three))),
            ),
            (
                "Vault away",
                Some((two, Some(two))),
                "",
                None,
                Some((two, Some(two))),
            ),
            ("never read", None, "", None, None),
            (
                "another key",
                Some((one, None)),
                "",
                Some(of_another_key),
                Some((of_another_key, None)),
            ),
            (
                "another key, after a change",
                Some((two, Some(two))),
                "",
                Some(of_another_key),
                Some((of_another_key, Some(two))),
            ),
            (
                "status lost",
                None,
                "vault-b/k=9 vault-a/k=keyA2",
                Some(two),
                Some((two, Some(two))),
            ),
            (
                "lost, and changed",
                None,
                "vault-a/k=keyA2",
                Some(three),
                Some((three, Some(three))),
            ),
            (
                "lost, and away",
                None,
                "vault-a/k=keyA2",
                None,
                Some((two, Some(two))),
            ),
        ] {
            let known = Vec::from_iter(known.map(|(digest, told)| secret(digest, told)));
            let found = BTreeMap::from([("vault-a/k".to_owned(), found.map(ToOwned::to_owned))]);
            let now = known_now(&known, &told_of(told), found);
            let expected = expected.map(|(digest, told)| secret(digest, told));
            assert_eq!(now, Vec::from_iter(expected), "{why}");
        }
        let gone = known_now(&[secret(one, Some(one))], &BTreeMap::new(), BTreeMap::new());
        assert_eq!(gone, []);
    }
}
