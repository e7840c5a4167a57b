//! The webhooks that a provider has, as the API knows them.

use std::fmt;

use k8s_openapi::{
    api::admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
        ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::ResourceExt;

use crate::outline::Outline;

/// Whom the API calls, whatever for.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Server(String);

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Server {
    fn of(service: Option<(&str, &str, Option<i32>)>, url: Option<&str>) -> Self {
        Self(if let Some((namespace, name, port)) = service {
            let port = port.filter(|port| *port != HTTPS);
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            format!("Service {namespace}/{name}{port}")
        } else {
            let url = url.unwrap_or_default();
            let host = url.splitn(4, '/').take(3).collect::<Vec<_>>();
            api::text::plain(&host.join("/"), 300)
        })
    }
}

const HTTPS: i32 = 443;

/// What a webhook is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    /// Changes objects, before they are held against their schema.
    Changes,
    /// Judges objects that fit their schema.
    Judges,
    /// Makes another version of objects.
    Converts,
}

/// A webhook.
#[derive(Clone, Debug)]
pub(super) struct Webhook {
    /// As the API calls it in what it says of it.
    pub(super) name: String,
    pub(super) server: Server,
    pub(super) part: Part,
    /// Whether it is asked about all objects that its rules name, and has to answer.
    is_always: bool,
    /// Whether a rule is for the versions that it names alone.
    is_exact: bool,
    rules: Vec<RuleWithOperations>,
}

/// A kind of objects, and one of its versions.
pub(super) struct OfKind<'a> {
    pub(super) group: &'a str,
    pub(super) plural: &'a str,
    pub(super) is_namespaced: bool,
    pub(super) version: &'a str,
    pub(super) served: &'a [&'a str],
}

impl Webhook {
    /// Whether it is certainly asked when an object of this kind is made.
    pub(super) fn is_asked(&self, kind: &OfKind<'_>) -> bool {
        self.is_always && self.rules.iter().any(|rule| self.names(rule, kind))
    }

    fn names(&self, rule: &RuleWithOperations, kind: &OfKind<'_>) -> bool {
        let scope = if kind.is_namespaced {
            "Namespaced"
        } else {
            "Cluster"
        };
        let is_version = |version: &str| has(rule.api_versions.as_deref(), version);
        let has_version = is_version(kind.version)
            || (!self.is_exact && kind.served.iter().any(|version| is_version(version)));
        has(rule.operations.as_deref(), "CREATE")
            && has(rule.api_groups.as_deref(), kind.group)
            && (has(rule.resources.as_deref(), kind.plural)
                || has(rule.resources.as_deref(), "*/*"))
            && has_version
            && rule
                .scope
                .as_deref()
                .is_none_or(|found| found == "*" || found == scope)
    }
}

fn has(texts: Option<&[String]>, text: &str) -> bool {
    texts
        .into_iter()
        .flatten()
        .any(|found| found == "*" || found == text)
}

pub(super) fn mutating(of: &MutatingWebhookConfiguration) -> impl Iterator<Item = Webhook> {
    let webhooks = of.webhooks.iter().flatten();
    webhooks.map(|webhook| asked(Part::Changes, webhook.clone()))
}

pub(super) fn validating(of: &ValidatingWebhookConfiguration) -> impl Iterator<Item = Webhook> {
    let webhooks = of.webhooks.iter().flatten();
    webhooks.map(|webhook| asked(Part::Judges, alike(webhook.clone())))
}

fn asked(part: Part, webhook: MutatingWebhook) -> Webhook {
    Webhook {
        server: server(&webhook.client_config),
        part,
        is_always: is_heeded(webhook.failure_policy.as_deref())
            && is_of_all(webhook.namespace_selector.as_ref())
            && is_of_all(webhook.object_selector.as_ref())
            && webhook.match_conditions.is_none_or(|all| all.is_empty()),
        is_exact: webhook.match_policy.as_deref() == Some(EXACT),
        rules: webhook.rules.unwrap_or_default(),
        name: webhook.name,
    }
}

/// One that judges is described as one that changes, which may be asked twice, too.
fn alike(webhook: ValidatingWebhook) -> MutatingWebhook {
    let ValidatingWebhook {
        admission_review_versions,
        client_config,
        failure_policy,
        match_conditions,
        match_policy,
        name,
        namespace_selector,
        object_selector,
        rules,
        side_effects,
        timeout_seconds,
    } = webhook;
    MutatingWebhook {
        admission_review_versions,
        client_config,
        failure_policy,
        match_conditions,
        match_policy,
        name,
        namespace_selector,
        object_selector,
        reinvocation_policy: None,
        rules,
        side_effects,
        timeout_seconds,
    }
}

const EXACT: &str = "Exact";

/// Who converts the objects of a definition. None: nobody has to, for they are served as they are stored.
pub(super) fn converting(of: &Outline) -> Option<Webhook> {
    let webhook = of.spec.conversion.as_ref()?.webhook.as_ref()?;
    let call = webhook.client_config.as_ref()?;
    let versions = of.spec.versions.iter();
    if versions
        .filter(|version| version.served || version.storage)
        .count()
        < 2
    {
        return None;
    }
    let service = call.service.as_ref();
    let service = service.map(|one| (one.namespace.as_str(), one.name.as_str(), one.port));
    Some(Webhook {
        name: format!("the conversion of {}", of.name_any()),
        server: Server::of(service, call.url.as_deref()),
        part: Part::Converts,
        is_always: false,
        is_exact: true,
        rules: Vec::new(),
    })
}

fn server(call: &WebhookClientConfig) -> Server {
    let service = call.service.as_ref();
    let service = service.map(|one| (one.namespace.as_str(), one.name.as_str(), one.port));
    Server::of(service, call.url.as_deref())
}

/// Nobody waits for one that may be ignored.
fn is_heeded(policy: Option<&str>) -> bool {
    policy != Some("Ignore")
}

fn is_of_all(selector: Option<&LabelSelector>) -> bool {
    selector.is_none_or(|selector| {
        selector
            .match_labels
            .as_ref()
            .is_none_or(std::collections::BTreeMap::is_empty)
            && selector
                .match_expressions
                .as_ref()
                .is_none_or(Vec::is_empty)
    })
}
