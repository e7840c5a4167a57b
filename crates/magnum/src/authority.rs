//! A cluster's own authorities, and what they sign.
//!
//! What a client asks to have signed is data: the subject and the key are taken from it, once its signature has proved that the
//! client has the key, and what it may be used for is ours to say. Certificates are for clients and servers of the cluster, never
//! for another authority.

use std::fmt;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use x509_parser::{
    certification_request::X509CertificationRequest, extensions::ParsedExtension,
    prelude::FromDer as _,
};

/// How long an authority and what it signs are valid, in seconds: five years of 365 days.
const SECONDS: i64 = 5 * 365 * 86_400;
/// How long an administrator of our own is let in, in seconds: two days.
const SHORT: i64 = 2 * 86_400;
/// Whose members a Kubernetes lets do everything.
const ADMINISTRATORS: &str = "system:masters";
/// A clock may be behind ours by so much, in seconds.
const SKEW: i64 = 300;
/// The longest request, in bytes.
pub const LONGEST: usize = 65_536;

/// What an authority is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// The Kubernetes API and its clients.
    Kubernetes,
    /// Members of etcd and their clients.
    Etcd,
    /// The front proxy.
    FrontProxy,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Kubernetes, Self::Etcd, Self::FrontProxy];

    /// Its word in the API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Etcd => "etcd",
            Self::FrontProxy => "front_proxy",
        }
    }

    /// By its word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.word() == word)
    }

    /// The keys in a Secret under which certificate and key are kept: those of kubespray's Cluster, which is given the same.
    pub const fn keys(self) -> (&'static str, &'static str) {
        match self {
            Self::Kubernetes => ("ca.crt", "ca.key"),
            Self::Etcd => ("etcd-ca.crt", "etcd-ca.key"),
            Self::FrontProxy => ("front-proxy-ca.crt", "front-proxy-ca.key"),
        }
    }
}

/// A certificate and its key, in PEM form.
#[derive(Clone, Eq, PartialEq)]
pub struct Authority {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// Why nothing is signed.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// An authority cannot be made or used.
    #[error("use the authority")]
    Authority(#[source] rcgen::Error),
    /// What is to be signed is no request, or not signed by its own key.
    #[error("read the certificate signing request: {0}")]
    Request(String),
    /// It asks for what is not signed.
    #[error("sign the request: it asks for {0}")]
    Refused(String),
}

impl Authority {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// No key or certificate can be made.
    pub fn new(name: &str, purpose: Purpose, now: Timestamp) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Authority)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // A common name has at most 64 characters.
        let name: String = format!("{} {name}", purpose.word())
            .chars()
            .take(64)
            .collect();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        within(&mut params, now);
        let certificate = params
            .self_signed(&key)
            .map_err(AuthorityError::Authority)?;
        Ok(Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// A certificate of an administrator, and its key, for a day or two.
    ///
    /// # Errors
    ///
    /// The authority is none, or no key can be made.
    pub fn administrator(&self, name: &str, now: Timestamp) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(&self.key).map_err(AuthorityError::Authority)?;
        let issuer =
            Issuer::from_ca_cert_pem(&self.certificate, key).map_err(AuthorityError::Authority)?;
        let own = KeyPair::generate().map_err(AuthorityError::Authority)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let parts = [
            (DnType::OrganizationName, ADMINISTRATORS),
            (DnType::CommonName, name),
        ];
        for (kind, text) in parts {
            params.distinguished_name.push(kind, text);
        }
        restrict(&mut params);
        valid_for(&mut params, now, SHORT);
        let certificate = params
            .signed_by(&own, &issuer)
            .map_err(AuthorityError::Authority)?;
        Ok(Self {
            certificate: certificate.pem(),
            key: own.serialize_pem(),
        })
    }

    /// Signs a request in PEM form.
    ///
    /// # Errors
    ///
    /// It is no request that its own key signed, or it asks for more than a client's or server's certificate.
    pub fn sign(&self, request: &str, now: Timestamp) -> Result<String, AuthorityError> {
        if request.len() > LONGEST {
            return Err(AuthorityError::Request(format!(
                "it has more than {LONGEST} bytes"
            )));
        }
        let mut asked = parse(request)?;
        let key = KeyPair::from_pem(&self.key).map_err(AuthorityError::Authority)?;
        let issuer =
            Issuer::from_ca_cert_pem(&self.certificate, key).map_err(AuthorityError::Authority)?;
        restrict(&mut asked.params);
        within(&mut asked.params, now);
        let certificate = asked
            .signed_by(&issuer)
            .map_err(AuthorityError::Authority)?;
        Ok(certificate.pem())
    }
}

/// Reads a request; its signature is checked on the way.
fn parse(request: &str) -> Result<CertificateSigningRequestParams, AuthorityError> {
    let wrong = |error: &dyn fmt::Display| AuthorityError::Request(error.to_string());
    let der = rustls_pki_types::CertificateSigningRequestDer::from_pem_slice(request.as_bytes())
        .map_err(|error| wrong(&error))?;
    let (rest, parsed) = X509CertificationRequest::from_der(&der).map_err(|error| wrong(&error))?;
    if !rest.is_empty() {
        return Err(wrong(&"something follows it"));
    }
    allowed(&parsed)?;
    CertificateSigningRequestParams::from_der(&der).map_err(|error| wrong(&error))
}

/// An authority that a client could get signed would sign for everybody.
fn allowed(request: &X509CertificationRequest<'_>) -> Result<(), AuthorityError> {
    let refused = |what: &str| Err(AuthorityError::Refused(what.to_owned()));
    for extension in request.requested_extensions().into_iter().flatten() {
        match extension {
            ParsedExtension::BasicConstraints(constraints) if constraints.ca => {
                return refused("an authority");
            }
            ParsedExtension::KeyUsage(usage) if usage.key_cert_sign() || usage.crl_sign() => {
                return refused("a key that signs certificates");
            }
            ParsedExtension::BasicConstraints(_)
            | ParsedExtension::KeyUsage(_)
            | ParsedExtension::ExtendedKeyUsage(_)
            | ParsedExtension::SubjectAlternativeName(_)
            | ParsedExtension::SubjectKeyIdentifier(_) => {}
            _ => return refused("an extension that is not signed"),
        }
    }
    Ok(())
}

fn restrict(params: &mut CertificateParams) {
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];
    params.serial_number = Some(SerialNumber::from_slice(&rand::random::<[u8; 16]>()));
    params.use_authority_key_identifier_extension = true;
}

fn within(params: &mut CertificateParams, now: Timestamp) {
    valid_for(params, now, SECONDS);
}

/// To the beginning of the day, which is as exact as this is.
fn valid_for(params: &mut CertificateParams, now: Timestamp, seconds: i64) {
    let at = |seconds: i64| {
        let moment = jiff::Timestamp::from_second(now.as_second().saturating_add(seconds));
        let date = moment
            .unwrap_or(now)
            .to_zoned(jiff::tz::TimeZone::UTC)
            .date();
        let part = |part: i8| part.unsigned_abs();
        rcgen::date_time_ymd(date.year().into(), part(date.month()), part(date.day()))
    };
    params.not_before = at(-SKEW);
    params.not_after = at(seconds);
}

/// When a certificate in PEM form ends, in seconds since 1970; of one that is none: never.
pub fn not_after(certificate: &str) -> Option<i64> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use rcgen::CustomExtension;

    use super::*;

    fn authority() -> Authority {
        Authority::new("first", Purpose::Kubernetes, Timestamp::now()).unwrap()
    }

    fn request(configure: impl FnOnce(&mut CertificateParams)) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "admin");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        configure(&mut params);
        let key = KeyPair::generate().unwrap();
        params.serialize_request(&key).unwrap().pem().unwrap()
    }

    #[test]
    fn what_is_signed_is_a_client_s_certificate_of_this_authority() {
        let authority = authority();
        let signed = authority.sign(&request(|_| {}), Timestamp::now()).unwrap();
        let der = CertificateDer::from_pem_slice(signed.as_bytes()).unwrap();
        let (_, signed) = x509_parser::parse_x509_certificate(&der).unwrap();
        let issuer = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap();
        let (_, issuer) = x509_parser::parse_x509_certificate(&issuer).unwrap();
        signed.verify_signature(Some(issuer.public_key())).unwrap();
        assert!(!signed.is_ca());
        assert_eq!(signed.subject().to_string(), "CN=admin, O=system:masters");
        assert!(
            signed
                .extended_key_usage()
                .unwrap()
                .unwrap()
                .value
                .client_auth
        );
    }

    #[test]
    fn nobody_gets_an_authority_signed() {
        let ca = request(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        let signs = request(|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
        let unknown = request(|params| {
            let extension = CustomExtension::from_oid_content(&[2, 5, 29, 36], vec![0x30, 0]);
            params.custom_extensions = vec![extension];
        });
        for request in [ca, signs, unknown] {
            let refused = authority().sign(&request, Timestamp::now());
            assert!(
                matches!(
                    refused,
                    Err(AuthorityError::Refused(_) | AuthorityError::Request(_))
                ),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn what_is_no_request_is_not_signed() {
        let good = request(|_| {});
        let damaged: String = good
            .lines()
            .map(|line| {
                if line.starts_with('-') {
                    format!("{line}\n")
                } else {
                    format!("{}\n", line.replace('A', "B"))
                }
            })
            .collect();
        for text in [
            "",
            "x",
            "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
            damaged.as_str(),
            authority().certificate.as_str(),
            "a".repeat(LONGEST + 1).as_str(),
        ] {
            let refused = authority().sign(text, Timestamp::now());
            assert!(
                matches!(refused, Err(AuthorityError::Request(_))),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn an_authority_does_not_tell_its_key() {
        assert!(!format!("{:?}", authority()).contains("PRIVATE"));
    }
}
