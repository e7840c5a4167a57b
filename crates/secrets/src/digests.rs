//! Keyed digests of what Secrets hold: they tell that a value changed, and nothing of the value.
//!
//! The key is made once and kept as a Secret beside the operator: who may write Secrets of another namespace, and not read them, cannot put
//! one there that they know. A bare digest would let anybody who sees a status try passwords against it. Where a value stands is part of
//! what is digested, so that two places that hold the same do not look alike.

use std::collections::BTreeMap;

use api::secrets::{DIGEST_KEY_TYPE, KEY_DIGITS};
use hmac::{Hmac, Mac as _};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use sha2::{Digest as _, Sha256};

/// The Secret with the key.
pub const NAME: &str = "windlass-digest-key";
/// The key of that Secret.
const KEY: &str = "key";
/// As long as what the function gives: more adds nothing.
const LENGTH: usize = 32;
/// So many of them stand in a status: as many as `spec.keys` has at most.
pub const MOST: usize = 128;
/// Sixteen of sixty-four digits, of which four name the key: two values of one place meet by chance once in a hundred million million.
const DIGITS: usize = 16;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refuses, or does not answer.
    #[error("the key of digests")]
    Api(#[from] kube::Error),
    /// A Secret of the name is there and holds no such key.
    #[error(
        "Secret {NAME} is not of the type {DIGEST_KEY_TYPE} with {LENGTH} bytes under {KEY}; delete it, and it is made anew"
    )]
    Foreign,
}

/// The key that a namespace has, the operator's, which is made where there is none.
///
/// # Errors
///
/// The API refuses, or another Secret has its name.
pub async fn key(client: &Client, namespace: &str) -> Result<Vec<u8>, Error> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let there = match api.get_opt(NAME).await? {
        Some(there) => there,
        None => match api.create(&PostParams::default(), &made()).await {
            // Another operator was first.
            Err(kube::Error::Api(status)) if status.is_already_exists() => api.get(NAME).await?,
            made => made?,
        },
    };
    let is_one = there.type_.as_deref() == Some(DIGEST_KEY_TYPE);
    let key = there.data.and_then(|mut data| data.remove(KEY));
    key.map(|key| key.0)
        .filter(|key| is_one && key.len() == LENGTH)
        .ok_or(Error::Foreign)
}

fn made() -> Secret {
    let key: [u8; LENGTH] = rand::random();
    Secret {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(DIGEST_KEY_TYPE.to_owned()),
        immutable: Some(true),
        data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(key.to_vec()))])),
        ..Secret::default()
    }
}

/// The digest of each value of a Secret, by its namespace and name, of the first [`MOST`] in the order of their keys.
pub fn of(
    key: &[u8],
    (namespace, secret): (&str, &str),
    data: &BTreeMap<String, Vec<u8>>,
) -> BTreeMap<String, String> {
    let values = data.iter().take(MOST);
    let digests = values.filter_map(|(name, value)| {
        // It takes keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
        for part in [namespace, secret, name] {
            mac.update(part.as_bytes());
            // It is in none of these.
            mac.update(b"/");
        }
        mac.update(value);
        Some((name.clone(), shown(key, mac)))
    });
    digests.collect()
}

/// The digest of all that a place in Vault holds: who has read the same there has the same, whatever they made of it.
pub fn of_contents(key: &[u8], place: &str, fields: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    let fields = fields
        .iter()
        .flat_map(|(name, value)| [name.as_bytes(), value]);
    // No value of a Secret is digested with a beginning like this one: its namespace has no such sign.
    mac.update(b"//");
    for part in std::iter::once(place.as_bytes()).chain(fields) {
        // Where one ends is part of it.
        mac.update(&u64::try_from(part.len()).ok()?.to_be_bytes());
        mac.update(part);
    }
    Some(shown(key, mac))
}

/// The beginning of a digest, behind what names the key.
fn shown(key: &[u8], mac: Hmac<Sha256>) -> String {
    // As the digest of no place has it.
    let named = hex::encode(Sha256::digest(key));
    let named = named.get(..KEY_DIGITS).unwrap_or_default();
    let mut digest = format!("{named}{}", hex::encode(mac.finalize().into_bytes()));
    digest.truncate(DIGITS);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_the_key_the_place_and_the_value() {
        let data =
            |value: &str| BTreeMap::from([("password".to_owned(), value.as_bytes().to_vec())]);
        let digest = |key: &[u8], secret, value| of(key, secret, &data(value))["password"].clone();
        let one = digest(&[7; LENGTH], ("n", "a"), "hunter2");
        assert_eq!(one.len(), 16);
        assert_eq!(one, digest(&[7; LENGTH], ("n", "a"), "hunter2"));
        for other in [
            digest(&[8; LENGTH], ("n", "a"), "hunter2"),
            digest(&[7; LENGTH], ("n", "b"), "hunter2"),
            digest(&[7; LENGTH], ("m", "a"), "hunter2"),
            digest(&[7; LENGTH], ("n", "a"), "hunter3"),
        ] {
            assert_ne!(one, other);
        }
        let fields = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
                .collect()
        };
        let contents = |key: &[u8], path, pairs: &[(&str, &str)]| {
            let place = api::secrets::place("https://v:8200", "", "kv", path);
            of_contents(key, &place, &fields(pairs)).unwrap()
        };
        let all = contents(&[7; LENGTH], "a", &[("one", "x"), ("two", "y")]);
        assert_eq!((all.len(), &all[..KEY_DIGITS]), (16, &one[..KEY_DIGITS]));
        for other in [
            contents(&[8; LENGTH], "a", &[("one", "x"), ("two", "y")]),
            contents(&[7; LENGTH], "b", &[("one", "x"), ("two", "y")]),
            contents(&[7; LENGTH], "a", &[("one", "x"), ("two", "z")]),
            contents(&[7; LENGTH], "a", &[("one", "xtwo"), ("", "y")]),
            contents(&[7; LENGTH], "a", &[("one", "x")]),
        ] {
            assert_ne!(all, other);
        }
        // By whichever mount it is named.
        let below = |mount, path| {
            let place = api::secrets::place("https://v:8200", "team", mount, path);
            of_contents(&[7; LENGTH], &place, &fields(&[("one", "x")])).unwrap()
        };
        assert_eq!(below("kv", "a/b"), below("kv/a", "b"));
        assert_ne!(below("kv", "a/b"), below("kv", "a"));
        let many = (0..200).map(|number| (format!("{number:03}"), Vec::new()));
        assert_eq!(of(&[7; LENGTH], ("n", "a"), &many.collect()).len(), MOST);
    }
}
