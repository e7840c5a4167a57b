//! Settings of Deployments. What is Kubernetes' own (tolerations, affinity, resources) is judged by the API server, which is asked before
//! anything is written.

use std::collections::BTreeSet;

use api::provider::{Container, Deployment, EnvironmentVariable};

use super::{Findings, given, names};

/// The fields of its own.
pub(super) fn check(field: &str, deployment: &Deployment, findings: &mut Findings) {
    let Deployment {
        // Any number is one; the definition has its bound.
        replicas: _,
        node_selector,
        tolerations: _,
        affinity: _,
        containers,
        service_account_name,
        image_pull_secrets,
    } = deployment;
    names::labels(
        &format!("{field}.nodeSelector"),
        node_selector.iter().flatten(),
        findings,
    );
    if let Some(account) = given(service_account_name.as_deref()) {
        names::object_name(&format!("{field}.serviceAccountName"), account, findings);
    }
    for secret in image_pull_secrets.iter().flatten() {
        names::object_name(&format!("{field}.imagePullSecrets"), &secret.name, findings);
    }
    let mut seen = BTreeSet::new();
    for container in containers.iter().flatten() {
        let field = format!("{field}.containers[{}]", container.name);
        if !names::is_label(&container.name) {
            findings.invalid(
                &format!("{field}.name"),
                &container.name,
                "a container has a name of lower-case letters, digits and '-'",
                "write the name that the provider's Deployment has; of its manager that is manager",
            );
        }
        if !seen.insert(&container.name) {
            findings.invalid(
                &format!("{field}.name"),
                &container.name,
                "each container is named once",
                "put both settings into one entry",
            );
        }
        of_container(&field, container, findings);
    }
}

fn of_container(field: &str, container: &Container, findings: &mut Findings) {
    let Container {
        name: _,
        image_url,
        args,
        env,
        resources: _,
        command: _,
    } = container;
    if let Some(image) = image_url
        && !is_image(image)
    {
        findings.invalid(
            &format!("{field}.imageUrl"),
            image,
            "an image is [REGISTRY/]NAME, with :TAG or @sha256:DIGEST or both",
            "write for example registry.example.com/cluster-api/controller:v1.13.4",
        );
    }
    for name in args.iter().flatten().map(|(name, _)| name) {
        names::argument(&format!("{field}.args"), name, findings);
    }
    let mut seen = BTreeSet::new();
    for variable in env.iter().flatten() {
        let EnvironmentVariable {
            name,
            value,
            value_from,
        } = variable;
        let field = format!("{field}.env[{name}]");
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'=';
        if name.is_empty() || !name.bytes().all(plain) {
            findings.invalid(
                &field,
                name,
                "a variable has a name without '='",
                "write its name alone",
            );
        }
        if !seen.insert(name) {
            findings.invalid(
                &field,
                name,
                "each variable is named once",
                "remove one of the two",
            );
        }
        let Some(from) = value_from else { continue };
        if given(value.as_deref()).is_some() || from.len() != 1 {
            let sources: Vec<_> = from.keys().map(String::as_str).collect();
            findings.invalid(
                &field,
                sources.join(", "),
                "a variable has a value, or one place where its value is",
                "keep one of them",
            );
        }
    }
}

/// `[REGISTRY/]NAME[:TAG][@sha256:DIGEST]`: no more than that is known of it before it is pulled.
fn is_image(image: &str) -> bool {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let digest_is_one = digest.is_none_or(|digest| {
        let hex = digest.strip_prefix("sha256:");
        hex.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
    });
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    let part = |part: &str| !part.is_empty() && part.bytes().all(plain);
    image.len() <= 512 && rest.split('/').all(part) && digest_is_one
}
