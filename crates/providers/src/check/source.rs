//! Where the manifests come from.

use api::provider::{FetchConfig, ProviderSpec, Reason};
use clusterctl::source::{Artefact, Location};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{Findings, given, names};

const FIELD: &str = "spec.fetchConfig";

/// Exactly one source, or none where one is known.
pub(super) fn check(spec: &ProviderSpec, is_known: bool, findings: &mut Findings) {
    let invalid = Reason::FetchConfigValidationError;
    let Some(FetchConfig { oci, url, selector }) = &spec.fetch_config else {
        if !is_known {
            findings.add(
                Reason::UnknownProvider,
                FIELD,
                "",
                "no source is known for a provider of that kind and name",
                "name one: oci, url or selector; or mend metadata.name",
            );
        }
        return;
    };
    let (oci, url) = (given(oci.as_deref()), given(url.as_deref()));
    let named: Vec<_> = [
        ("oci", oci.is_some()),
        ("url", url.is_some()),
        ("selector", selector.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_given)| is_given.then_some(name))
    .collect();
    if named.len() != 1 {
        findings.add(
            invalid,
            FIELD,
            named.join(", "),
            "manifests come from exactly one source",
            "give one of oci, url and selector, and remove the others",
        );
    }
    if let Some(oci) = oci {
        artefact(oci, given(spec.version.as_deref()), findings);
    }
    if let Some(url) = url {
        address(url, findings);
    }
    if let Some(selector) = selector {
        selects(selector, findings);
    }
}

/// That it names one, and says which version it is of.
fn artefact(oci: &str, version: Option<&str>, findings: &mut Findings) {
    let artefact = match Artefact::parse(oci) {
        Ok(artefact) => artefact,
        Err(invalid) => {
            findings.add(
                Reason::FetchConfigValidationError,
                "spec.fetchConfig.oci",
                without_user(oci),
                invalid.to_string(),
                "write for example registry.example.com/providers/aws:v2.13.0",
            );
            return;
        }
    };
    if version.is_none() && artefact.reference(None).is_none() {
        findings.add(
            Reason::EmptyVersion,
            "spec.version",
            "",
            "an artefact without a tag is looked for under the version",
            "give spec.version, or a tag or digest in spec.fetchConfig.oci",
        );
    }
}

fn address(url: &str, findings: &mut Findings) {
    let field = "spec.fetchConfig.url";
    let mut refuse = |rule: &str, remedy: &str| {
        findings.add(
            Reason::FetchConfigValidationError,
            field,
            without_user(url),
            rule,
            remedy,
        );
    };
    let Some(rest) = url.strip_prefix("https://") else {
        return refuse(
            "releases are fetched over https",
            "write for example https://github.com/OWNER/REPOSITORY/releases",
        );
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.contains('@') {
        return refuse(
            "an address holds no credentials, for whoever reads the object reads them",
            "take them out of the address: nothing but registries is logged in to, so load a release that needs a login by `windlass providers preload --from`, or name it in a registry by fetchConfig.oci",
        );
    }
    let plain = |byte: u8| {
        byte.is_ascii_graphic()
            && !matches!(byte, b'\\' | b'"' | b'<' | b'>' | b'`' | b'{' | b'}' | b'#')
    };
    let remedy = "write for example https://github.com/OWNER/REPOSITORY/releases";
    if !is_host(authority)
        || path.is_empty()
        || !path.bytes().all(plain)
        || path.split('/').any(|part| part == "..")
    {
        return refuse("an address is https://HOST/PATH", remedy);
    }
    if let Err(error) = Location::parse(url) {
        refuse(&format!("releases are at an address that {error}"), remedy);
    }
}

/// An address, of which credentials are not repeated to whoever reads what is wrong with it.
pub fn without_user(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, _)) => format!("{scheme}...{}", rest.get(user.len()..).unwrap_or_default()),
        None => url.to_owned(),
    }
}

/// `NAME[:PORT]` or `[ADDRESS][:PORT]`.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, rest)) if address.parse::<std::net::Ipv6Addr>().is_ok() => ("ok", rest),
            _ => return false,
        },
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port_is_one = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    host.len() <= 253 && host.to_ascii_lowercase().split('.').all(names::is_label) && port_is_one
}

fn selects(selector: &LabelSelector, findings: &mut Findings) {
    let field = "spec.fetchConfig.selector";
    let LabelSelector {
        match_expressions,
        match_labels,
    } = selector;
    let expressions = match_expressions.iter().flatten();
    let selected = match_labels.iter().flatten();
    if expressions.clone().next().is_none() && selected.clone().next().is_none() {
        findings.add(
            Reason::FetchConfigValidationError,
            field,
            "",
            "an empty selector takes every ConfigMap of the namespace for manifests",
            "name a label that the ConfigMaps with the manifests have",
        );
    }
    names::labels(&format!("{field}.matchLabels"), selected, findings);
    for LabelSelectorRequirement {
        key,
        operator,
        values,
    } in expressions
    {
        let field = format!("{field}.matchExpressions");
        names::label_key(&field, key, findings);
        let takes_values = match operator.as_str() {
            "In" | "NotIn" => true,
            "Exists" | "DoesNotExist" => false,
            _ => {
                findings.add(
                    Reason::FetchConfigValidationError,
                    &format!("{field}[{key}].operator"),
                    operator,
                    "the operators are In, NotIn, Exists and DoesNotExist",
                    "write one of them",
                );
                continue;
            }
        };
        if takes_values == values.iter().flatten().next().is_none() {
            findings.add(
                Reason::FetchConfigValidationError,
                &format!("{field}[{key}].values"),
                values
                    .iter()
                    .flatten()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(", "),
                "In and NotIn have values, Exists and DoesNotExist have none",
                "give values, or take them away",
            );
        }
    }
}
