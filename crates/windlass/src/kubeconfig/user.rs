//! A kubeconfig for a user: the cluster signs a certificate for a key that is made here and goes nowhere.
//!
//! # Source
//! Kubernetes, "Certificates and Certificate Signing Requests": the signer `kubernetes.io/kube-apiserver-client`.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use controller::kubeconfig::Foreign;
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{
        CertificateSigningRequest, CertificateSigningRequestSpec, CertificateSigningRequestStatus,
    },
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use crate::terminal;

/// How long a call to the cluster may take.
const CALL: Duration = Duration::from_secs(10);
/// How long the cluster may take to sign.
const SIGN: Duration = Duration::from_mins(1);
/// The shortest that the API takes, in seconds.
const SHORTEST: u64 = 600;
/// The longest name, in bytes: that of a field of a certificate.
const LONGEST: usize = 64;

/// Refuses what no cluster signs.
pub(super) fn check(user: &str, group: Option<&str>, expires: api::Duration) -> anyhow::Result<()> {
    name("--user", user)?;
    if let Some(group) = group {
        name("--group", group)?;
    }
    ensure!(
        expires.seconds() >= SHORTEST,
        "--expires is {expires}: the API signs for 10m at least; write more"
    );
    Ok(())
}

/// The kubeconfig of a user of the cluster that an administrator's leads to.
pub(super) async fn of(
    administrator: &Foreign,
    user: &str,
    group: Option<&str>,
    expires: api::Duration,
) -> anyhow::Result<Foreign> {
    let addresses = administrator.addresses().await?;
    let client = administrator.client(addresses, CALL)?;
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let key = KeyPair::generate().context("failed to make a key")?;
    let wanted = request(user, group, expires, &key)?;
    let stored = requests
        .create(&PostParams::default(), &wanted)
        .await
        .context("failed to ask the cluster for a certificate")?
        .name_any();
    let signed = signed(&requests, &stored, user).await;
    // It has no key and serves nobody any more; the cluster removes it within an hour.
    if let Err(error) = requests.delete(&stored, &DeleteParams::default()).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            name = stored,
            "the request for the certificate was not removed"
        );
    }
    let chain = signed?;
    told(user, &chain, expires);
    Ok(administrator.clone().of(chain, key.serialize_pem().into()))
}

/// Says when the certificate ends: the cluster may sign for less than was asked for, by --cluster-signing-duration of its controller
/// manager.
fn told(user: &str, chain: &str, expires: api::Duration) {
    let Some((begins, ends)) = validity(chain) else {
        return;
    };
    let at = Timestamp::from_second(ends).map_or_else(|_| ends.to_string(), |at| at.to_string());
    eprintln!("the certificate of {} ends at {at}", terminal::text(user));
    let lives = u64::try_from(ends.saturating_sub(begins)).unwrap_or_default();
    // The cluster sets the beginning back by some minutes, and the end not.
    if lives < expires.seconds() {
        eprintln!("that is sooner than --expires {expires}: the cluster signs for no longer");
    }
}

/// When a certificate begins and ends, in seconds since the epoch.
fn validity(chain: &str) -> Option<(i64, i64)> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(chain.as_bytes()).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let validity = certificate.validity();
    Some((
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    ))
}

/// What the certificate would say of a user or a group.
fn name(option: &str, name: &str) -> anyhow::Result<()> {
    ensure!(
        (1..=LONGEST).contains(&name.len()) && !name.chars().any(char::is_control),
        "{option} is {name:?}: a name has 1 to {LONGEST} bytes, none of them a control character; write another one"
    );
    ensure!(
        !name.starts_with("system:"),
        "{option} is {name:?}: names that begin with system: are Kubernetes' own; write another one, and give it rights by a \
         RoleBinding"
    );
    Ok(())
}

fn request(
    user: &str,
    group: Option<&str>,
    expires: api::Duration,
    key: &KeyPair,
) -> anyhow::Result<CertificateSigningRequest> {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, user);
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = subject;
    let asked = parameters
        .serialize_request(key)
        .and_then(|asked| asked.pem())
        .context("failed to make the request for a certificate")?;
    Ok(CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("windlass-kubeconfig-".to_owned()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(asked.into_bytes()),
            signer_name: "kubernetes.io/kube-apiserver-client".to_owned(),
            expiration_seconds: Some(i32::try_from(expires.seconds()).unwrap_or(i32::MAX)),
            usages: Some(vec!["client auth".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    })
}

/// Approves the request, and waits for the certificate.
async fn signed(
    requests: &Api<CertificateSigningRequest>,
    stored: &str,
    user: &str,
) -> anyhow::Result<String> {
    let approved = json!({"status": {"conditions": [{
        "type": "Approved", "status": "True", "reason": "WindlassKubeconfig",
        "message": format!("asked for by windlass kubeconfig --user {user}"),
    }]}});
    requests
        .patch_approval(stored, &PatchParams::default(), &Patch::Merge(&approved))
        .await
        .context("failed to approve the certificate")?;
    let status = |request: Option<&CertificateSigningRequest>| request?.status.clone();
    let ended = |status: &CertificateSigningRequestStatus| {
        status.certificate.is_some() || refused(status).is_some()
    };
    let answered = await_condition(
        requests.clone(),
        stored,
        |request: Option<&CertificateSigningRequest>| {
            request.is_none() || status(request).is_some_and(|status| ended(&status))
        },
    );
    let request = tokio::time::timeout(SIGN, answered).await.context(
        "nobody signed the certificate within a minute: does the cluster's controller manager run?",
    )??;
    let status = status(request.as_ref()).unwrap_or_default();
    if let Some(why) = refused(&status) {
        bail!("the cluster refuses to sign: {why}");
    }
    let chain = status
        .certificate
        .context("the request was removed before it was signed")?;
    String::from_utf8(chain.0).context("the cluster answered with what is no certificate")
}

/// Why it is not signed.
fn refused(status: &CertificateSigningRequestStatus) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    let refusal = conditions.find(|condition| matches!(&*condition.type_, "Denied" | "Failed"))?;
    let words = refusal.message.clone().or_else(|| refusal.reason.clone());
    Some(api::text::plain(&words.unwrap_or_default(), 512))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_kubernetes_own_or_none_are_refused_with_the_option() {
        for (bad, rule) in [
            ("", "1 to 64 bytes"),
            ("system:masters", "Kubernetes' own"),
            ("a\u{1b}[31m", "control character"),
        ] {
            let error = name("--group", bad).unwrap_err().to_string();
            assert!(error.contains("--group") && error.contains(rule), "{error}");
        }
        name("--user", "jane@example.com").unwrap();
    }

    #[test]
    fn the_request_has_the_end_and_no_key() {
        let key = KeyPair::generate().unwrap();
        let asked = request("jane", Some("readers"), "8h".parse().unwrap(), &key).unwrap();
        assert_eq!(asked.spec.expiration_seconds, Some(28_800));
        let pem = String::from_utf8(asked.spec.request.0).unwrap();
        assert!(
            pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----"),
            "{pem}"
        );
        assert!(!pem.contains("PRIVATE"));
    }
}
