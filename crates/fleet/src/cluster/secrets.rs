//! What tells that a secret has changed for which the machines of a cluster are replaced.
//!
//! The digest of a value is that of the status of its VaultSecret, which says what was read last while Vault is away. So nothing is replaced
//! for a Vault that cannot be read, and nothing for what is seen first: only another digest after one that was known is a change. Where a
//! status was lost, with a backup of its objects, the templates say what was known.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    inventory::{FleetCluster, FleetSecret, MOST_SECRETS, ROLLS_ANNOTATION, SECRETS_ANNOTATION},
    secrets::{KEY_DIGITS, MOUNT, REFRESH_ANNOTATION},
};
use controller::stream::{in_namespace, readable};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    Context, Error,
    apply::is_unknown,
    live,
    part::{Part, Parts},
    records,
};

/// What is known of the values after a look at the VaultSecrets of a cluster.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// It, for the status.
    pub(super) secrets: Vec<FleetSecret>,
    /// Whether another cluster has read a newer version in Vault, or something else, so that this one is about to.
    pub(super) is_behind: bool,
}

/// What was found of a value.
#[derive(Clone, Debug, Default)]
struct Found {
    digest: Option<String>,
    place: Option<String>,
    version: Option<i64>,
    contents: Option<String>,
}

/// Looks at the VaultSecrets of a cluster. One of which another cluster has read a newer version is read at once: a roll-out waits until all
/// that share it have. Where the engine keeps no versions nobody knows who is behind, so all that have read different things read anew.
pub(super) async fn look(
    cluster: &FleetCluster,
    (parts, applied): (&Parts, Option<&str>),
    context: &Context,
) -> Result<Look, Error> {
    let mut found = BTreeMap::new();
    let mut is_behind = false;
    for part in &parts.objects {
        let keys = &part.value["metadata"]["annotations"][ROLLS_ANNOTATION];
        let Some(keys) = keys.as_str().filter(|_| part.is_vault_secret()) else {
            continue;
        };
        let there = live::read_own(part, cluster, context).await;
        let there = match there {
            // The API has no such kind: it is refused where it would be applied.
            Err(Error::Api(_, error)) if is_unknown(&error) => None,
            there => there?,
        };
        let there = there.unwrap_or_default();
        // Of the one that is there: another place comes with a roll-out, and what was read is of this one until then.
        let (place, version) = (place(&there["spec"]), version(&there));
        let contents = contents(&there);
        let others = shared(cluster, place.as_deref(), context);
        if let Some(asked) = asked((version, contents.as_deref()), &others) {
            is_behind = true;
            refresh(part, &there, &asked, context).await?;
        }
        for key in keys.split(' ') {
            let digest = there["status"]["digests"][key].as_str();
            let found_now = Found {
                digest: digest.map(ToOwned::to_owned),
                place: place.clone(),
                version,
                contents: contents.clone(),
            };
            found.insert(format!("{}/{key}", part.name), found_now);
        }
    }
    if found.is_empty() {
        return Ok(Look::default());
    }
    let known = super::known_secrets(cluster);
    let applied = applied.map(|applied| records::objects(cluster, applied, context));
    let told = applied
        .flatten()
        .map_or_else(BTreeMap::new, |objects| told(&objects));
    Ok(Look {
        secrets: known_now(known, &told, found),
        is_behind,
    })
}

/// What is known without a look.
pub(super) fn unlooked(known: &[FleetSecret]) -> Vec<FleetSecret> {
    let known = known.iter().cloned();
    known
        .map(|secret| FleetSecret {
            version: None,
            contents: None,
            ..secret
        })
        .collect()
}

/// Where a VaultSecret reads. None: it keeps to one version, whatever others read.
fn place(spec: &Value) -> Option<String> {
    if !spec["version"].is_null() {
        return None;
    }
    let vault = &spec["vault"];
    let parts = [
        &vault["address"],
        &vault["namespace"],
        &spec["mount"],
        &spec["path"],
    ];
    let [address, namespace, mount, path] = parts.map(|part| part.as_str().unwrap_or_default());
    let mount = if mount.is_empty() { MOUNT } else { mount };
    Some(api::secrets::place(address, namespace, mount, path))
}

/// The version that was read of what a VaultSecret says now, while it can be.
fn version(there: &Value) -> Option<i64> {
    read(there)?["version"].as_i64()
}

/// What tells what was read, where the engine keeps no versions, while it can be.
fn contents(there: &Value) -> Option<String> {
    read(there)?["contents"].as_str().map(ToOwned::to_owned)
}

/// The status of a VaultSecret that speaks of what it says now, while Vault can be read.
fn read(there: &Value) -> Option<&Value> {
    let status = &there["status"];
    if status["observedGeneration"] != there["metadata"]["generation"] {
        return None;
    }
    let conditions = status["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let is_stale =
        conditions.any(|condition| condition["type"] == "Stale" && condition["status"] == "True");
    Some(status).filter(|_| !is_stale)
}

/// What the other clusters of the namespace have read of a place.
fn shared(cluster: &FleetCluster, place: Option<&str>, context: &Context) -> Vec<FleetSecret> {
    let Some(place) = place else {
        return Vec::new();
    };
    let namespace = cluster.namespace().unwrap_or_default();
    let all = in_namespace(&context.own, &namespace);
    let all = all.iter().filter_map(|other| readable(other));
    of_others(&cluster.name_any(), place, all)
}

/// The same. Not what the cluster's own status says, which is of the read before: a server that answers each time otherwise would be asked
/// for that, and for what it says then, without a pause. Pure.
fn of_others<'a>(
    own: &str,
    place: &str,
    all: impl Iterator<Item = &'a FleetCluster>,
) -> Vec<FleetSecret> {
    let others = all.filter(|other| other.name_any() != own);
    let statuses = others.filter_map(|other| other.status.as_ref());
    let secrets = statuses.flat_map(|status| &status.secrets);
    let shared = secrets.filter(|secret| secret.place.as_deref() == Some(place));
    shared.cloned().collect()
}

/// What others have read, where this is to be read anew for it. It says nothing of what was read here, or each answer would ask anew.
fn asked(
    (version, contents): (Option<i64>, Option<&str>),
    others: &[FleetSecret],
) -> Option<String> {
    let newer = newer(version, others).map(|newer| format!("version {newer}"));
    newer.or_else(|| otherwise(contents, others))
}

/// The newest version that another cluster has read, if it is newer than this one.
fn newer(version: Option<i64>, others: &[FleetSecret]) -> Option<i64> {
    let newest = others.iter().filter_map(|secret| secret.version).max()?;
    (newest > version?).then_some(newest)
}

/// That others have read something else, and what.
fn otherwise(contents: Option<&str>, others: &[FleetSecret]) -> Option<String> {
    let own = contents?;
    let read = others
        .iter()
        .filter_map(|secret| secret.contents.as_deref());
    let other: BTreeSet<_> = read.filter(|read| is_other(own, read)).collect();
    let other: Vec<_> = other.into_iter().collect();
    (!other.is_empty()).then(|| format!("contents {}", other.join(" ")))
}

/// Has a VaultSecret read at once, one time for each thing that is asked.
async fn refresh(part: &Part, there: &Value, asked: &str, context: &Context) -> Result<(), Error> {
    if there["metadata"]["annotations"][REFRESH_ANNOTATION] == asked {
        return Ok(());
    }
    let patch = json!({"metadata": {"annotations": {REFRESH_ANNOTATION: asked}}});
    let api = live::api(part, context).await?;
    let patched = api
        .patch(&part.name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched
        .map(drop)
        .map_err(|error| Error::Api(format!("have {} read anew", part.title()), error))
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
    found: BTreeMap<String, Found>,
) -> Vec<FleetSecret> {
    let now = found.into_iter().filter_map(|(name, found)| {
        let Found {
            digest,
            place,
            version,
            contents,
        } = found;
        let before = known.iter().find(|secret| secret.name == name).cloned();
        let before = before.or_else(|| {
            let told = told.get(&name)?.clone();
            Some(FleetSecret {
                digest: told.clone(),
                told: Some(told),
                name: name.clone(),
                ..FleetSecret::default()
            })
        });
        let Some(digest) = digest else {
            // Nobody waits for it to be read.
            return before.map(|before| FleetSecret {
                version: None,
                contents: None,
                ..before
            });
        };
        let told = match before {
            Some(before) if is_other(&before.digest, &digest) => Some(digest.clone()),
            Some(before) => before.told,
            None => None,
        };
        Some(FleetSecret {
            name,
            digest,
            told,
            place,
            version,
            contents,
        })
    });
    // Of a cluster that has more nothing is rendered.
    now.take(MOST_SECRETS).collect()
}

/// Whether two digests are of two values. Those of two keys say nothing.
pub(crate) fn is_other(one: &str, other: &str) -> bool {
    one != other && one.get(..KEY_DIGITS) == other.get(..KEY_DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(digest: &str, told: Option<&str>) -> FleetSecret {
        FleetSecret {
            name: "vault-a/k".to_owned(),
            digest: digest.to_owned(),
            told: told.map(ToOwned::to_owned),
            ..FleetSecret::default()
        }
    }

    #[test]
    fn who_reads_the_same_place_in_vault_is_known_by_it() {
        let spec = |more: Value| {
            let mut spec = json!({"vault": {"address": "https://v:8200"}, "path": "infra/ssh"});
            for (key, value) in more.as_object().into_iter().flatten() {
                spec[key] = value.clone();
            }
            place(&spec)
        };
        let plain = "https://v:8200/secret/infra/ssh".to_owned();
        assert_eq!(spec(json!({})), Some(plain.clone()));
        assert_ne!(spec(json!({"mount": "kv"})), Some(plain.clone()));
        assert_ne!(
            spec(json!({"vault": {"address": "https://w:8200"}})),
            Some(plain)
        );
        assert_eq!(spec(json!({"version": 4})), None);
        let there = |stale: &str, seen: u32| {
            let conditions = json!([{"type": "Stale", "status": stale}]);
            let status =
                json!({"version": 5, "observedGeneration": seen, "conditions": conditions});
            json!({"metadata": {"generation": 2}, "status": status})
        };
        assert_eq!(version(&there("False", 2)), Some(5));
        assert_eq!(version(&there("True", 2)), None, "nobody waits for it");
        assert_eq!(version(&there("False", 1)), None, "it was read elsewhere");
        assert_eq!(version(&json!({})), None);
    }

    #[test]
    fn without_versions_all_that_have_read_different_things_read_anew() {
        let others = |all: &[Option<&str>]| {
            let all = all.iter().map(|contents| FleetSecret {
                contents: contents.map(ToOwned::to_owned),
                ..FleetSecret::default()
            });
            all.collect::<Vec<_>>()
        };
        let (one, two, of_another_key) = ("keyA1", "keyA2", "keyB7");
        let asked = |own, read: &[Option<&str>]| asked((None, own), &others(read));
        let both = [Some(one), Some(two), Some(one)];
        assert_eq!(asked(Some(one), &both).as_deref(), Some("contents keyA2"));
        assert_eq!(asked(Some(two), &both).as_deref(), Some("contents keyA1"));
        for read in [Some(one), Some(of_another_key), None] {
            assert_eq!(asked(Some(one), &[read]), None, "{read:?}");
        }
        assert_eq!(asked(None, &both), None, "its Vault is away");
    }

    #[test]
    fn a_server_that_answers_each_time_otherwise_is_asked_once_for_what_others_have_read() {
        let cluster = |name: &str, version: Option<i64>, contents: &str| -> FleetCluster {
            let secret = json!({
                "name": "vault-a/k", "digest": "d", "place": "v/a", "version": version, "contents": contents,
            });
            serde_json::from_value(json!({
                "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "FleetCluster", "metadata": {"name": name, "namespace": "fleet"},
                "spec": {"template": "dev"}, "status": {"secrets": [secret]},
            }))
            .unwrap()
        };
        // What its status says is of the read before.
        let alone = [cluster("one", None, "keyA1")];
        assert_eq!(of_others("one", "v/a", alone.iter()), []);
        let asked = |read: (Option<i64>, Option<&str>), all: [FleetCluster; 2]| {
            asked(read, &of_others("one", "v/a", all.iter()))
        };
        for (now, before) in [("keyA3", "keyA2"), ("keyA4", "keyA3"), ("keyA5", "keyA4")] {
            let all = [cluster("one", None, before), cluster("two", None, "keyA1")];
            assert_eq!(
                asked((None, Some(now)), all).as_deref(),
                Some("contents keyA1")
            );
        }
        for version in [3, 1, 2] {
            let all = [cluster("one", Some(9), ""), cluster("two", Some(5), "")];
            assert_eq!(
                asked((Some(version), None), all).as_deref(),
                Some("version 5")
            );
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
            let found = Found {
                digest: found.map(ToOwned::to_owned),
                ..Found::default()
            };
            let found = BTreeMap::from([("vault-a/k".to_owned(), found)]);
            let now = known_now(&known, &told_of(told), found);
            let expected = expected.map(|(digest, told)| secret(digest, told));
            assert_eq!(now, Vec::from_iter(expected), "{why}");
        }
        let gone = known_now(&[secret(one, Some(one))], &BTreeMap::new(), BTreeMap::new());
        assert_eq!(gone, []);
    }
}
