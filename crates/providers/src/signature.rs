//! Detached signatures of files of components: ECDSA over P-256 and SHA-256, in base64, as `cosign sign-blob --key` and openssl write them.
//!
//! A digest pins one release; a key says of every release whose it is. What is verified is the file alone, by a key that is given: no
//! certificate, no log and no server is asked.
//!
//! # Source
//! RFC 5480 (the key, as `BEGIN PUBLIC KEY`), RFC 3279 section 2.2.3 (the signature).

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use x509_parser::{
    oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY},
    prelude::FromDer as _,
    x509::SubjectPublicKeyInfo,
};

/// A public key that components must be signed by.
#[derive(Clone, Eq, PartialEq)]
pub struct Key(Vec<u8>);

/// What is no such key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a key is one of ECDSA over P-256 in PEM, from BEGIN PUBLIC KEY to END PUBLIC KEY")]
pub struct InvalidKey;

/// Components that are not known to be whose they must be.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unsigned {
    /// There is no signature.
    #[error("its components have no signature, and one by the given key is insisted on")]
    Missing,
    /// There is something else.
    #[error("the signature of its components is no base64, as cosign sign-blob writes it")]
    Unreadable,
    /// It is of another key, or of other components.
    #[error("the signature of its components is not one of them by the given key")]
    Wrong,
}

impl FromStr for Key {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let text = text.trim().strip_prefix(BEGIN).ok_or(InvalidKey)?;
        let text = text.strip_suffix(END).ok_or(InvalidKey)?;
        let der = decoded(text).ok_or(InvalidKey)?;
        let (rest, key) = SubjectPublicKeyInfo::from_der(&der).map_err(|_| InvalidKey)?;
        let curve = key.algorithm.parameters.as_ref();
        let curve = curve.and_then(|curve| curve.as_oid().ok());
        let point = &*key.subject_public_key.data;
        let is_known = key.algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY
            && curve.is_some_and(|curve| curve == OID_EC_P256)
            // Not compressed: two coordinates of 32 bytes.
            && point.len() == 65
            && point.first() == Some(&4);
        if is_known && rest.is_empty() {
            Ok(Self(point.to_vec()))
        } else {
            Err(InvalidKey)
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&hex::encode(&self.0)).finish()
    }
}

impl Key {
    /// That components are signed by it.
    ///
    /// # Errors
    ///
    /// They are not, or that cannot be known.
    pub fn verify(&self, components: &str, signature: Option<&str>) -> Result<(), Unsigned> {
        let signature = decoded(signature.ok_or(Unsigned::Missing)?).ok_or(Unsigned::Unreadable)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0)
            .verify(components.as_bytes(), &signature)
            .map_err(|_| Unsigned::Wrong)
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let text: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(text).ok()
}

const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As openssl made them: `ecparam -name prime256v1 -genkey`, `ec -pubout`, `dgst -sha256 -sign` and `base64`.
    pub(crate) const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE/cnloyVVB9IpjeaUkzFeV5TGqo5h\nLX69CuemFHSOyUr4ZpiBZmgFD2ydIcmn2kIGhb3SgrYjsU4qo4oS9Kvgrg==\n-----END PUBLIC KEY-----";
    pub(crate) const SIGNED: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
    pub(crate) const SIGNATURE: &str = "MEQCIAZyc30XPb/HR76DVGhyEgInIowSiY3lJcnjY0PXGLNdAiBxCYKe6ho2WvUTgKULrofDGisfMCieH+2Ai/1jkCulPA==";

    #[test]
    fn what_openssl_signed_is_known_and_nothing_else_is() {
        let key: Key = KEY.parse().unwrap();
        assert_eq!(key.verify(SIGNED, Some(SIGNATURE)), Ok(()));
        let wrapped = SIGNATURE.replacen('M', "M\n", 1);
        assert_eq!(key.verify(SIGNED, Some(&wrapped)), Ok(()));

        let altered = SIGNED.replace("name: a", "name: b");
        let wrong = Err(Unsigned::Wrong);
        assert_eq!(key.verify(&altered, Some(SIGNATURE)), wrong);
        assert_eq!(key.verify(SIGNED, Some("")), wrong);
        assert_eq!(key.verify(SIGNED, Some("AAAA")), wrong);
        let text = Err(Unsigned::Unreadable);
        assert_eq!(key.verify(SIGNED, Some("not base64!")), text);
        assert_eq!(key.verify(SIGNED, None), Err(Unsigned::Missing));
        let other = rcgen::KeyPair::generate().unwrap().public_key_pem();
        let other: Key = other.parse().unwrap();
        assert_eq!(other.verify(SIGNED, Some(SIGNATURE)), wrong);
    }

    #[test]
    fn a_key_is_one_of_its_kind_or_none() {
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let private = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for text in [
            "",
            "ssh-ed25519 AAAA",
            &other.public_key_pem(),
            &private,
            &KEY.replacen("MFkw", "MFkx", 1),
            &format!("{KEY}\n{KEY}"),
        ] {
            assert_eq!(text.parse::<Key>(), Err(InvalidKey), "{text}");
        }
    }
}
