//! The certificates of webhooks, where no cert-manager makes them.
//!
//! Releases ask cert-manager for them: an `Issuer` that signs itself, a `Certificate` with the names of a Service, and an annotation on
//! whatever calls that Service. Where the API does not serve these kinds the same is made here: a Secret with an authority, a Secret
//! with a certificate that it signed, and the authority's certificate in everything that has the annotation. Only what releases of
//! providers ask for is understood; the rest needs cert-manager, and is told so.
//!
//! The authority outlives many certificates, so a renewed one is trusted by everybody already. When the authority itself is near
//! its end, the next one is handed out together with it.

use std::collections::BTreeMap;

use clusterctl::{Lack, Object};
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

/// The group of cert-manager's kinds.
pub const GROUP: &str = "cert-manager.io";
/// The annotation that says whose authority is to be trusted: `NAMESPACE/CERTIFICATE`.
pub const INJECT: &str = "cert-manager.io/inject-ca-from";

/// How long an authority is valid, and a certificate that it signed.
const DAYS: (i32, i32) = (3650, 365);

/// A certificate that a release asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wanted {
    /// The namespace of it, its Secret and its Service.
    pub namespace: String,
    /// What the annotation calls it.
    pub name: String,
    /// The Secret that it is to be in.
    pub secret: String,
    /// The names of the Service.
    pub names: Vec<String>,
}

/// A certificate and its key, in PEM form.
#[derive(Clone, Eq, PartialEq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Why a certificate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The release asks for something that only cert-manager does.
    #[error("{object}: {what}")]
    NeedsCertManager {
        /// The object that asks for it.
        object: String,
        /// What it asks for.
        what: String,
    },
    /// A key or certificate cannot be made.
    #[error("make the certificate of {name}")]
    Make {
        /// Of what.
        name: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// An object with an authority in it is none any more.
    #[error("put the authority into an object")]
    Inject(#[source] Lack),
}

impl Wanted {
    /// The Secret with the authority.
    pub fn authority(&self) -> String {
        format!("{}-authority", self.secret)
    }

    /// What the annotation says.
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The certificates that objects ask for.
///
/// # Errors
///
/// One of cert-manager's objects asks for more than a certificate of an authority of its own.
pub fn wanted(objects: &[Object]) -> Result<Vec<Wanted>, CertificateError> {
    let mut found = Vec::new();
    for object in objects.iter().filter(|object| object.group() == GROUP) {
        let refuse = |what: &str| CertificateError::NeedsCertManager {
            object: object.title(),
            what: what.to_owned(),
        };
        let spec = object.value().get("spec").unwrap_or(&Value::Null);
        match object.kind() {
            "Issuer" if spec.get("selfSigned").is_some() => {}
            "Issuer" => return Err(refuse("it does not sign itself")),
            "Certificate" => found.push(certificate(object, spec).map_err(|what| refuse(&what))?),
            kind => return Err(refuse(&format!("a {kind} is cert-manager's own"))),
        }
    }
    Ok(found)
}

fn certificate(object: &Object, spec: &Value) -> Result<Wanted, String> {
    for field in spec.as_object().into_iter().flatten().map(|(name, _)| name) {
        if !UNDERSTOOD.contains(&field.as_str()) {
            return Err(format!("spec.{field} is for cert-manager"));
        }
    }
    let names = spec["dnsNames"].as_array().into_iter().flatten();
    let names: Vec<_> = names
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let secret = spec["secretName"].as_str().unwrap_or_default();
    if names.is_empty() || secret.is_empty() {
        return Err("spec.dnsNames and spec.secretName are needed".to_owned());
    }
    Ok(Wanted {
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        secret: secret.to_owned(),
        names,
    })
}

/// Fields of a Certificate that are heard, or that make no difference to who calls a webhook.
const UNDERSTOOD: [&str; 9] = [
    "commonName",
    "dnsNames",
    "duration",
    "issuerRef",
    "privateKey",
    "renewBefore",
    "secretName",
    "subject",
    "usages",
];

/// Without cert-manager's objects, and with the authorities of those in `bundles` in everything that asks for one: webhooks, and
/// conversions of definitions. The annotation goes, for nobody is to act on it.
///
/// # Errors
///
/// None for objects that were read.
pub fn replace(
    objects: Vec<Object>,
    bundles: &BTreeMap<String, String>,
) -> Result<Vec<Object>, CertificateError> {
    let objects = objects
        .into_iter()
        .filter(|object| object.group() != GROUP)
        .map(|object| inject(object, bundles));
    objects.collect()
}

fn inject(object: Object, bundles: &BTreeMap<String, String>) -> Result<Object, CertificateError> {
    let mut value = object.into_value();
    let annotations = value
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut);
    let asked = annotations.and_then(|annotations| annotations.remove(INJECT));
    if let Some(bundle) = asked
        .as_ref()
        .and_then(Value::as_str)
        .and_then(|of| bundles.get(of))
    {
        let bundle = json!(encode(bundle.as_bytes()));
        let webhooks = value.get_mut("webhooks").and_then(Value::as_array_mut);
        for webhook in webhooks.into_iter().flatten() {
            if let Some(call) = webhook.get_mut("clientConfig") {
                call["caBundle"] = bundle.clone();
            }
        }
        if let Some(call) = value.pointer_mut("/spec/conversion/webhook/clientConfig") {
            call["caBundle"] = bundle;
        }
    }
    Object::new(value).map_err(CertificateError::Inject)
}

/// A bundle of authorities with a mark before it, which is no part of it.
pub fn marked(bundle: &str, mark: &str) -> String {
    format!("{MARK}{mark}\n{}", unmarked(bundle))
}

/// A bundle of authorities without its mark.
pub fn unmarked(bundle: &str) -> &str {
    match bundle
        .strip_prefix(MARK)
        .and_then(|rest| rest.split_once('\n'))
    {
        Some((_, bundle)) => bundle,
        None => bundle,
    }
}

/// What a mark begins with. Whoever reads a bundle leaves out what is before a certificate.
const MARK: &str = "# ";

/// Makes an authority.
///
/// # Errors
///
/// The machine has no randomness.
pub fn authority(wanted: &Wanted, now: Timestamp) -> Result<Pair, CertificateError> {
    let failed = |source| failed(wanted, source);
    let key = KeyPair::generate().map_err(failed)?;
    let mut parameters = signing(wanted);
    valid(&mut parameters, now, DAYS.0);
    let certificate = parameters.self_signed(&key).map_err(failed)?.pem();
    Ok(Pair {
        certificate,
        key: key.serialize_pem(),
    })
}

/// Makes a certificate that the authority signs.
///
/// # Errors
///
/// The authority's key is none, or a name is none.
pub fn sign(wanted: &Wanted, authority: &Pair, now: Timestamp) -> Result<Pair, CertificateError> {
    let failed = |source| failed(wanted, source);
    let key = KeyPair::from_pem(&authority.key).map_err(failed)?;
    let issuer = Issuer::new(signing(wanted), key);
    let mut parameters = CertificateParams::new(wanted.names.clone()).map_err(failed)?;
    parameters.distinguished_name = named(&wanted.title()).distinguished_name;
    parameters.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    valid(&mut parameters, now, DAYS.1);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = parameters.signed_by(&key, &issuer).map_err(failed)?.pem();
    Ok(Pair {
        certificate,
        key: key.serialize_pem(),
    })
}

/// What a certificate in PEM form is good for: until when it need not be renewed, and its names. None: it is none.
pub fn read(certificate: &str) -> Option<(Timestamp, Vec<String>)> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).ok()?;
    let parsed = pem.parse_x509().ok()?;
    let validity = parsed.validity();
    let (from, until) = (
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    );
    let names = parsed.subject_alternative_name().ok().flatten();
    let names = names.map(|names| names.value.general_names.iter());
    let names = names.into_iter().flatten().filter_map(|name| match name {
        x509_parser::extensions::GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    // A third of its life is left for whoever has to renew it.
    let due = until.saturating_sub(until.saturating_sub(from) / 3);
    Some((Timestamp::from_second(due).ok()?, names.collect()))
}

/// Base64, as the API has it in bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}

/// What an authority is, but for when: its name, by which what it signed finds it, is always the same.
fn signing(wanted: &Wanted) -> CertificateParams {
    let mut parameters = named(&format!("authority of {}", wanted.title()));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn named(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    // A common name has 64 characters at most; nobody looks it up.
    let name: String = name.chars().take(64).collect();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}

fn valid(parameters: &mut CertificateParams, now: Timestamp, days: i32) {
    let today = now.to_zoned(TimeZone::UTC).date();
    let on = |offset: i32| {
        let date = today.saturating_add(offset.days());
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day()))
    };
    // Clocks differ.
    parameters.not_before = on(-1);
    parameters.not_after = on(days);
}

fn failed(wanted: &Wanted, source: rcgen::Error) -> CertificateError {
    CertificateError::Make {
        name: wanted.title(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        Object::new(value).unwrap()
    }

    fn release() -> Vec<Object> {
        let of = |kind: &str, name: &str, spec: &Value| {
            object(json!({
                "apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "system"}, "spec": spec,
            }))
        };
        let annotations = json!({INJECT: "system/serving"});
        vec![
            of("Issuer", "own", &json!({"selfSigned": {}})),
            of(
                "Certificate",
                "serving",
                &json!({
                    "dnsNames": ["webhook.system.svc"], "issuerRef": {"kind": "Issuer", "name": "own"}, "secretName": "webhook-cert",
                }),
            ),
            object(json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "validating", "annotations": annotations},
                "webhooks": [{"name": "a", "clientConfig": {"service": {"name": "webhook"}}}],
            })),
            object(json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "things.example.com", "annotations": annotations},
                "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "webhook"}}}}},
            })),
        ]
    }

    #[test]
    fn what_a_release_asks_for_is_made_and_trusted_where_it_is_called() {
        let objects = release();
        let [wanted] = wanted(&objects).unwrap().try_into().unwrap();
        assert_eq!(
            (wanted.title().as_str(), wanted.secret.as_str()),
            ("system/serving", "webhook-cert")
        );
        let now = Timestamp::now();
        let authority = authority(&wanted, now).unwrap();
        let pair = sign(&wanted, &authority, now).unwrap();
        let (due, names) = read(&pair.certificate).unwrap();
        assert_eq!(names, ["webhook.system.svc"]);
        assert!(
            due > now + (200 * 24).hours() && due < now + (300 * 24).hours(),
            "{due}"
        );
        let bundles = BTreeMap::from([(wanted.title(), authority.certificate.clone())]);
        let replaced = replace(objects, &bundles).unwrap();
        assert_eq!(replaced.len(), 2);
        let bundle = json!(encode(authority.certificate.as_bytes()));
        for (object, pointer) in replaced.iter().zip([
            "/webhooks/0/clientConfig/caBundle",
            "/spec/conversion/webhook/clientConfig/caBundle",
        ]) {
            assert_eq!(object.value().pointer(pointer), Some(&bundle));
            assert!(!object.value().to_string().contains(INJECT));
        }
    }

    #[test]
    fn what_only_cert_manager_does_is_told() {
        let mut objects = release();
        let mut value = objects[1].clone().into_value();
        value["spec"]["ipAddresses"] = json!(["127.0.0.1"]);
        objects[1] = object(value);
        let error = wanted(&objects).unwrap_err().to_string();
        assert!(error.contains("spec.ipAddresses"), "{error}");
        let mut value = objects[0].clone().into_value();
        value["spec"] = json!({"ca": {"secretName": "ca"}});
        objects[0] = object(value);
        assert!(
            wanted(&objects)
                .unwrap_err()
                .to_string()
                .contains("does not sign itself")
        );
    }
    #[test]
    fn a_mark_is_no_part_of_a_bundle() {
        let bundle = "-----BEGIN CERTIFICATE-----\na\n-----END CERTIFICATE-----\n";
        let one = marked(bundle, "v1.13.4 abc");
        assert_eq!(one, format!("# v1.13.4 abc\n{bundle}"));
        assert_eq!(unmarked(&one), bundle);
        assert_eq!(marked(&one, "v1.14.2 def"), marked(bundle, "v1.14.2 def"));
        assert_eq!(unmarked(bundle), bundle);
    }
}
