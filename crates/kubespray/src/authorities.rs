//! Authorities that somebody brings: a new cluster is founded with them instead of making its own. Pure but for [`look`].
//!
//! They are of the creation: kubeadm and etcd take up what they find, and what they have signed since is worth nothing under others.
//! So they are read until the cluster stands, and never again. What a Secret holds goes to no other play than the one that writes
//! the files.

use std::collections::BTreeMap;

use api::{
    Cluster,
    cluster::{Creation, SecretRef},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use rustls::{SignatureAlgorithm, crypto::ring::sign::any_supported_type};
use rustls_pki_types::{
    PrivateKeyDer,
    pem::{PemObject, SectionKind},
};
use serde_json::{Map, Value, json};
use x509_parser::prelude::{ASN1Time, X509Certificate};

use crate::{names::ADOPTED, problem::Problem, secret};

/// The variable that the playbook reads them from.
pub(crate) use ansible::inventory::AUTHORITIES as VARIABLE;

/// Where they are referred to.
const FIELD: &str = "Cluster spec.operations.creation.authoritiesSecretRef";
/// The authority without which the others are of no use.
const KUBERNETES: &str = "ca";
/// What an authority's two keys of the Secret begin with: those of Kubernetes, the front proxy and etcd, as kubeadm names the files.
const STEMS: [&str; 3] = [KUBERNETES, "front-proxy-ca", "etcd-ca"];

/// The Secret that a cluster names.
pub(crate) fn reference(cluster: &Cluster) -> Option<&SecretRef> {
    let operations = cluster.spec.operations.as_ref();
    let creation: Option<&Creation> =
        operations.and_then(|operations| operations.creation.as_ref());
    creation?.authorities_secret_ref.as_ref()
}

/// Looks at the Secret, and says what is wrong with it.
///
/// # Errors
///
/// The API refuses or does not answer. That there is no such Secret is no error.
pub(crate) async fn look(
    client: &Client,
    namespace: &str,
    reference: Option<&SecretRef>,
    now: Timestamp,
) -> Result<Vec<Problem>, kube::Error> {
    let Some(reference) = reference else {
        return Ok(Vec::new());
    };
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = api.get_opt(&reference.name).await?;
    Ok(problems(reference, secret.as_ref(), now))
}

/// What is wrong with what the Secret holds.
pub(crate) fn problems(
    reference: &SecretRef,
    secret: Option<&Secret>,
    now: Timestamp,
) -> Vec<Problem> {
    found(reference, secret, now).err().unwrap_or_default()
}

/// The authorities that the Secret holds.
///
/// # Errors
///
/// Everything that is wrong with it.
pub(crate) fn found(
    reference: &SecretRef,
    secret: Option<&Secret>,
    now: Timestamp,
) -> Result<Authorities, Vec<Problem>> {
    let Some(secret) = secret else {
        let name = &reference.name;
        return Err(vec![Problem::new(
            format!("{FIELD}.name"),
            name,
            "there is no such Secret in the cluster's namespace",
            format!(
                "create it: kubectl create secret generic {name} --from-file=ca.crt=PATH --from-file=ca.key=PATH"
            ),
        )]);
    };
    read(secret, now)
}

/// What is wrong with naming one at all.
pub(crate) fn misplaced(cluster: &Cluster, variables: &Map<String, Value>) -> Option<Problem> {
    let name = &reference(cluster)?.name;
    if cluster.annotations().contains_key(ADOPTED) {
        return Some(Problem::new(
            FIELD,
            name,
            "a cluster that was adopted has its authorities",
            "take the field out",
        ));
    }
    let external = variables.get("kube_external_ca_mode")?;
    (*external != json!(false)).then(|| {
        Problem::new(
            FIELD,
            name,
            "kube_external_ca_mode says that no host has the key of the authority",
            "take either out: the field, or the variable of spec.nodes.all.deploy.extraVars",
        )
    })
}

/// Authorities that can be used, by what their keys of the Secret begin with. There is no way to print them.
#[derive(Clone)]
pub(crate) struct Authorities(BTreeMap<&'static str, Pair>);

#[derive(Clone)]
struct Pair {
    certificate: String,
    key: String,
}

impl Authorities {
    /// What the playbook reads.
    pub(crate) fn into_variable(self) -> Value {
        let pairs = self.0.into_iter().map(|(stem, Pair { certificate, key })| {
            let pair = json!({"certificate": certificate, "key": key});
            (stem.to_owned(), pair)
        });
        Value::Object(pairs.collect())
    }
}

/// The authorities of a Secret.
fn read(secret: &Secret, now: Timestamp) -> Result<Authorities, Vec<Problem>> {
    let keys = secret::keys(secret);
    let mut problems: Vec<_> = keys
        .iter()
        .filter(|key| !is_known(key))
        .map(|key| unknown(secret, key))
        .collect();
    let mut pairs = BTreeMap::new();
    for stem in STEMS {
        let there = |end: &str| keys.contains(&format!("{stem}{end}"));
        if stem != KUBERNETES && !there(CERTIFICATE) && !there(KEY) {
            continue;
        }
        match pair(secret, stem, now) {
            Ok(pair) => drop(pairs.insert(stem, pair)),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        Ok(Authorities(pairs))
    } else {
        Err(problems)
    }
}

const CERTIFICATE: &str = ".crt";
const KEY: &str = ".key";

fn is_known(key: &str) -> bool {
    let stem = key.strip_suffix(CERTIFICATE).or(key.strip_suffix(KEY));
    stem.is_some_and(|stem| STEMS.contains(&stem))
}

fn unknown(secret: &Secret, key: &str) -> Problem {
    let names = STEMS.map(|stem| format!("{stem}{CERTIFICATE} and {stem}{KEY}"));
    wrong(
        secret,
        key,
        "it is the name of no part of an authority".to_owned(),
        &format!("name the keys of the Secret {}", names.join(", ")),
    )
}

fn pair(secret: &Secret, stem: &str, now: Timestamp) -> Result<Pair, Problem> {
    let (of_certificate, of_key) = (format!("{stem}{CERTIFICATE}"), format!("{stem}{KEY}"));
    let text = |key: &str| {
        let missing = || {
            let rule = "it is missing: an authority is a certificate and its key".to_owned();
            wrong(secret, key, rule, "add it to the Secret")
        };
        secret::text(secret, key).ok_or_else(missing)
    };
    let (certificate, key) = (text(&of_certificate)?, text(&of_key)?);
    let certified = certified(&certificate, now).map_err(|flaw| {
        let remedy =
            "store the certificate of an authority in PEM form, and nothing else beside it";
        wrong(secret, &of_certificate, flaw.to_string(), remedy)
    })?;
    let public = public(&key).map_err(|flaw| {
        let remedy = "store a key in PEM form, without a passphrase: RSA of 2048 to 8192 bits, or ECDSA on P-256 or P-384";
        wrong(secret, &of_key, flaw.to_string(), remedy)
    })?;
    if certified != public {
        let rule = format!("it is not the key of the certificate in {of_certificate}");
        let remedy = "store the two that belong together";
        return Err(wrong(secret, &of_key, rule, remedy));
    }
    let line = |text: &str| format!("{}\n", text.trim());
    Ok(Pair {
        certificate: line(&certificate),
        key: line(&key),
    })
}

fn wrong(secret: &Secret, key: &str, rule: String, remedy: &str) -> Problem {
    let value = format!(
        "{} in Secret {}",
        api::text::plain(key, 64),
        secret.name_any()
    );
    Problem::new(FIELD, value, rule, remedy)
}

/// Why a certificate or a key is of no use.
#[derive(Debug, thiserror::Error)]
enum Flaw {
    #[error("it is no certificate in PEM form")]
    NoCertificate,
    #[error("there are {0} certificates, and one is meant")]
    Several(usize),
    #[error("there is more in it than a certificate, and all of it would be public")]
    More,
    #[error("the certificate is none of an authority: it may sign no others")]
    NoAuthority,
    #[error("the certificate is valid from {0} on")]
    NotYet(String),
    #[error("the certificate has ended on {0}")]
    Ended(String),
    #[error("it is no private key in PEM form that can be read without a passphrase")]
    NoKey,
    #[error("Kubernetes signs nothing with a key of this kind")]
    KindOfKey,
}

/// The public key of an authority's certificate.
fn certified(text: &str, now: Timestamp) -> Result<Vec<u8>, Flaw> {
    let sections: Result<Vec<(SectionKind, Vec<u8>)>, _> =
        PemObject::pem_slice_iter(text.as_bytes()).collect();
    let sections = sections.map_err(|_| Flaw::NoCertificate)?;
    let (found, others): (Vec<_>, Vec<_>) = sections
        .iter()
        .partition(|(kind, _)| *kind == SectionKind::Certificate);
    if !found.is_empty() && !others.is_empty() {
        return Err(Flaw::More);
    }
    let der = match found.as_slice() {
        [] => return Err(Flaw::NoCertificate),
        [(_, one)] => one,
        several => return Err(Flaw::Several(several.len())),
    };
    let (_, certificate) =
        x509_parser::parse_x509_certificate(der).map_err(|_| Flaw::NoCertificate)?;
    if !signs(&certificate) {
        return Err(Flaw::NoAuthority);
    }
    let validity = certificate.validity();
    let now = now.as_second();
    let date = |time: ASN1Time| match Timestamp::from_second(time.timestamp()) {
        Ok(time) => time.strftime("%Y-%m-%d").to_string(),
        Err(_) => time.to_string(),
    };
    if now < validity.not_before.timestamp() {
        return Err(Flaw::NotYet(date(validity.not_before)));
    }
    if now >= validity.not_after.timestamp() {
        return Err(Flaw::Ended(date(validity.not_after)));
    }
    Ok(certificate.public_key().raw.to_vec())
}

fn signs(certificate: &X509Certificate<'_>) -> bool {
    let usage = certificate.key_usage().ok().flatten();
    certificate.is_ca() && usage.is_none_or(|usage| usage.value.key_cert_sign())
}

/// The public key of a private one that kubeadm takes.
fn public(text: &str) -> Result<Vec<u8>, Flaw> {
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| Flaw::NoKey)?;
    let key = any_supported_type(&key).map_err(|_| Flaw::KindOfKey)?;
    if key.algorithm() == SignatureAlgorithm::ED25519 {
        return Err(Flaw::KindOfKey);
    }
    let public = key.public_key().ok_or(Flaw::KindOfKey)?;
    Ok(public.to_vec())
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;
    use rcgen::{
        BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose,
        PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm as Kind, date_time_ymd,
    };

    use super::*;

    fn authority(
        kind: &'static Kind,
        configure: impl FnOnce(&mut CertificateParams),
    ) -> [String; 2] {
        let key = KeyPair::generate_for(kind).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        configure(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        [certificate.pem(), key.serialize_pem()]
    }

    fn good() -> [String; 2] {
        authority(&PKCS_ECDSA_P384_SHA384, |_| {})
    }

    fn secret(entries: &[(&str, &str)]) -> Secret {
        let entries = entries.iter();
        let data = entries.map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        Secret {
            metadata: kube::api::ObjectMeta {
                name: Some("own".to_owned()),
                ..kube::api::ObjectMeta::default()
            },
            string_data: Some(data.collect()),
            ..Secret::default()
        }
    }

    fn told(entries: &[(&str, &str)]) -> String {
        let name = "own".to_owned();
        let found = problems(
            &SecretRef { name },
            Some(&secret(entries)),
            Timestamp::now(),
        );
        let told: Vec<_> = found.iter().map(ToString::to_string).collect();
        let told = told.join("\n");
        assert!(!told.contains("PRIVATE"), "{told}");
        told
    }

    #[test]
    fn what_can_be_used_goes_to_the_playbook_whole() {
        let ([ca, ca_key], [etcd, etcd_key]) = (good(), good());
        let entries = [
            ("ca.crt", ca.as_str()),
            ("ca.key", ca_key.as_str()),
            ("etcd-ca.crt", etcd.as_str()),
            ("etcd-ca.key", etcd_key.as_str()),
        ];
        assert_eq!(told(&entries), "");
        let found = read(&secret(&entries), Timestamp::now());
        let variable = found.map_err(|_| ()).unwrap().into_variable();
        let line = |text: &str| format!("{}\n", text.trim());
        assert_eq!(variable["ca"]["certificate"], line(&ca));
        assert_eq!(variable["etcd-ca"]["key"], line(&etcd_key));
        assert_eq!(variable.get("front-proxy-ca"), None);
    }

    #[test]
    fn what_kubernetes_would_not_take_is_refused_before_anything_starts() {
        let [ca, key] = good();
        let [_, other] = good();
        let [leaf, leaf_key] =
            authority(&PKCS_ECDSA_P384_SHA384, |params| params.is_ca = IsCa::NoCa);
        let [mute, mute_key] = authority(&PKCS_ECDSA_P384_SHA384, |params| {
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        });
        let [old, old_key] = authority(&PKCS_ECDSA_P384_SHA384, |params| {
            params.not_after = date_time_ymd(2020, 2, 1);
        });
        let [early, early_key] = authority(&PKCS_ECDSA_P384_SHA384, |params| {
            params.not_before = date_time_ymd(2999, 2, 1);
        });
        let [edwards, edwards_key] = authority(&PKCS_ED25519, |_| {});
        let two = format!("{ca}{leaf}");
        let both = format!("{ca}{key}");
        let locked = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        for (certificate, key, rule) in [
            (
                &ca,
                &other,
                "it is not the key of the certificate in ca.crt",
            ),
            (&leaf, &leaf_key, "none of an authority"),
            (&mute, &mute_key, "none of an authority"),
            (&old, &old_key, "has ended on 2020-02-01"),
            (&early, &early_key, "valid from 2999-02-01 on"),
            (&edwards, &edwards_key, "a key of this kind"),
            (&two, &key, "there are 2 certificates"),
            (&both, &key, "all of it would be public"),
            (&ca, &locked, "without a passphrase"),
            (&ca, &ca, "no private key"),
            (&key, &key, "no certificate"),
            (&String::new(), &key, "no certificate"),
        ] {
            let told = told(&[("ca.crt", certificate), ("ca.key", key)]);
            assert!(told.contains(rule), "{told:?} does not say {rule:?}");
            assert!(told.contains("authoritiesSecretRef"), "{told}");
        }
    }

    #[test]
    fn a_secret_that_lacks_a_part_or_has_another_is_refused() {
        let [ca, key] = good();
        let front = [
            ("ca.crt", ca.as_str()),
            ("ca.key", &key),
            ("front-proxy-ca.crt", &ca),
        ];
        for (entries, rule) in [
            (&[][..], "ca.crt in Secret own"),
            (&front[..1], "ca.key in Secret own"),
            (&front[1..2], "ca.crt in Secret own"),
            (&front[..], "front-proxy-ca.key in Secret own"),
            (
                &[front[0], front[1], ("tls.crt", "")][..],
                "no part of an authority",
            ),
        ] {
            let told = told(entries);
            assert!(told.contains(rule), "{told:?} does not say {rule:?}");
        }
        let reference = SecretRef {
            name: "own".to_owned(),
        };
        let missing = problems(&reference, None, Timestamp::now());
        assert!(
            missing[0]
                .to_string()
                .contains("kubectl create secret generic own")
        );
    }

    #[test]
    fn an_authority_that_ends_is_told_by_the_clock() {
        let [ca, key] = authority(&PKCS_ECDSA_P384_SHA384, |params| {
            params.not_after = date_time_ymd(2100, 1, 1);
        });
        let secret = secret(&[("ca.crt", &ca), ("ca.key", &key)]);
        let now = Timestamp::now();
        assert!(read(&secret, now).is_ok());
        assert!(read(&secret, now + (24 * 365 * 100).hours()).is_err());
    }

    #[test]
    fn a_cluster_that_has_authorities_is_given_none() {
        let cluster = |annotations: Value| -> Cluster {
            serde_json::from_value(json!({
                "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "first", "annotations": annotations},
                "spec": {"operations": {"creation": {"authoritiesSecretRef": {"name": "own"}}}},
            }))
            .unwrap()
        };
        let external =
            |mode: bool| Map::from_iter([("kube_external_ca_mode".to_owned(), json!(mode))]);
        assert!(misplaced(&cluster(json!({})), &Map::new()).is_none());
        assert!(misplaced(&cluster(json!({})), &external(false)).is_none());
        assert!(misplaced(&cluster(json!({})), &external(true)).is_some());
        assert!(misplaced(&cluster(json!({ADOPTED: "x"})), &Map::new()).is_some());
    }
}
