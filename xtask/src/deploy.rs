//! What installs Windlass in a cluster: plain manifests and a Helm chart from one description, so that they cannot differ.
//!
//! A [`Flavour`] says for whom an object is written: a manifest gets the default, the chart gets the expression that gives
//! it. Rights are listed one by one, without wildcards: what an operator may do is what its code does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use api::crd::Set;
use serde_json::{Value, json};

mod bounds;
mod magnum;
mod monitoring;
mod objects;
mod providers;

/// Where the files are.
const DIRECTORY: &str = "deploy";

/// For whom an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    /// A manifest of an operator for the whole cluster.
    Cluster,
    /// A manifest of an operator for one namespace, its own.
    Namespaced,
    /// A template of the chart.
    Chart,
}

impl Flavour {
    /// A value with a default, and the expression of the chart that gives it. The expression holds no double quotes.
    fn value(self, default: impl Into<Value>, expression: &'static str) -> Value {
        match self {
            // By its number alone: the printer folds long lines, which must not happen to an expression.
            Self::Chart => Value::String(format!("{OPEN}{}{CLOSE}", remember(expression))),
            Self::Cluster | Self::Namespaced => default.into(),
        }
    }

    fn namespace(self) -> Value {
        self.value(NAMESPACE, ".Release.Namespace")
    }
}

/// The namespace of the plain manifests.
const NAMESPACE: &str = "windlass-system";

/// Mark the number of an expression until the text is written.
const OPEN: &str = "<<<";
const CLOSE: &str = ">>>";

/// The expressions by their numbers.
static EXPRESSIONS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

fn remember(expression: &'static str) -> usize {
    let mut known = EXPRESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = known.iter().position(|other| *other == expression);
    place.unwrap_or_else(|| {
        known.push(expression);
        known.len() - 1
    })
}

fn recall(number: &str) -> &'static str {
    let known = EXPRESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = number.parse::<usize>().ok();
    place
        .and_then(|place| known.get(place).copied())
        .unwrap_or_default()
}

/// One template of the chart, and the part of a manifest that it is.
struct Part {
    name: &'static str,
    /// When the chart holds it; none: always.
    condition: Option<&'static str>,
    objects: fn(Flavour) -> Vec<Value>,
}

const PARTS: [Part; 8] = [
    Part {
        name: "rbac",
        condition: None,
        objects: objects::accounts,
    },
    Part {
        name: "rbac-cluster",
        condition: Some("not .Values.namespaced"),
        objects: objects::cluster_rights,
    },
    Part {
        name: "rbac-namespaced",
        condition: Some(".Values.namespaced"),
        objects: objects::namespaced_rights,
    },
    Part {
        name: "bounds",
        condition: None,
        objects: bounds::config,
    },
    Part {
        name: "admission",
        condition: Some("and .Values.admissionPolicy.enabled (not .Values.namespaced)"),
        objects: bounds::admission,
    },
    Part {
        name: "deployment",
        condition: Some("not .Values.radar.enabled"),
        objects: objects::deployment,
    },
    Part {
        name: "poddisruptionbudget",
        condition: Some(".Values.podDisruptionBudget.enabled"),
        objects: objects::disruption_budget,
    },
    Part {
        name: "networkpolicy",
        condition: Some(".Values.networkPolicy.enabled"),
        objects: objects::network_policy,
    },
];

/// The operator instead, where the radar is to look at hosts.
const RADAR: [Part; 1] = [Part {
    name: "deployment-radar",
    condition: Some(".Values.radar.enabled"),
    objects: objects::deployment_with_radar,
}];

/// What fleets need beside their definitions, in the chart where they are enabled.
const FLEET: [Part; 3] = [
    Part {
        name: "fleet-cluster",
        condition: Some("and .Values.fleet.enabled (not .Values.namespaced)"),
        objects: objects::cluster_fleet,
    },
    Part {
        name: "fleet-advice",
        condition: Some(
            "and .Values.fleet.enabled (.Values.fleet.advice).enabled (not .Values.namespaced)",
        ),
        objects: objects::fleet_advice,
    },
    Part {
        name: "fleet-namespaced",
        condition: Some("and .Values.fleet.enabled .Values.namespaced"),
        objects: objects::namespaced_fleet,
    },
];

/// What secrets from Vault need beside their definition, in the chart where they are enabled.
const VAULT: [Part; 2] = [
    Part {
        name: "vault-cluster",
        condition: Some("and .Values.vault.enabled (not .Values.namespaced)"),
        objects: objects::cluster_vault,
    },
    Part {
        name: "vault-namespaced",
        condition: Some("and .Values.vault.enabled .Values.namespaced"),
        objects: objects::namespaced_vault,
    },
];

/// The Magnum API. It makes namespaces, so there is none of one namespace.
const MAGNUM: [Part; 1] = [Part {
    name: "magnum",
    condition: Some("and .Values.magnum.enabled (not .Values.namespaced)"),
    objects: magnum::service,
}];

/// What providers of Cluster API need beside their definitions, in the chart where they are enabled.
const PROVIDERS: [Part; 1] = [Part {
    name: "providers",
    condition: Some("and .Values.providers.enabled (not .Values.namespaced)"),
    objects: providers::rights,
}];

const MONITORING: [Part; 4] = [
    Part {
        name: "metrics",
        condition: Some(".Values.metrics.enabled"),
        objects: monitoring::access,
    },
    Part {
        name: "servicemonitor",
        condition: Some(".Values.monitoring.serviceMonitor"),
        objects: monitoring::service_monitor,
    },
    Part {
        name: "prometheusrule",
        condition: Some(".Values.monitoring.rules"),
        objects: monitoring::rules,
    },
    Part {
        name: "dashboard",
        condition: Some(".Values.monitoring.dashboard"),
        objects: monitoring::dashboard,
    },
];

/// Every file by its path.
pub(crate) fn files() -> Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    let mut put = |path: &str, text: String| {
        files.insert(Path::new(DIRECTORY).join(path), text);
    };
    let mut crds = HEAD.to_owned();
    for definition in Set::Clusters.definitions() {
        let value = serde_json::to_value(&definition).context("serialise a CRD")?;
        let text = document(&value)?;
        crds.push_str(&text);
        let name = definition.metadata.name.unwrap_or_default();
        put(
            &format!("chart/windlass/crds/{name}.yaml"),
            format!("{HEAD}{text}"),
        );
    }
    put("manifests/crds.yaml", crds);
    for (path, set) in [
        ("manifests/provider-crds.yaml", Set::Providers),
        ("manifests/fleet-crds.yaml", Set::Fleet),
        ("manifests/vault-crds.yaml", Set::Vault),
    ] {
        let mut text = HEAD.to_owned();
        for definition in set.definitions() {
            let value = serde_json::to_value(&definition).context("serialise a CRD")?;
            text.push_str(&document(&value)?);
        }
        put(path, text);
    }
    for (path, part) in [
        ("manifests/vault-rights.yaml", &VAULT[0]),
        ("manifests/provider-rights.yaml", &PROVIDERS[0]),
    ] {
        put(
            path,
            format!("{HEAD}{}", documents(part, Flavour::Cluster)?),
        );
    }
    for (path, flavour) in [
        ("manifests/radar.yaml", Flavour::Cluster),
        ("manifests/radar-namespaced.yaml", Flavour::Namespaced),
    ] {
        put(path, format!("{HEAD}{}", documents(&RADAR[0], flavour)?));
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    }});
    for (path, flavour, without) in [
        (
            "manifests/windlass.yaml",
            Flavour::Cluster,
            ["rbac-namespaced"].as_slice(),
        ),
        (
            "manifests/windlass-namespaced.yaml",
            Flavour::Namespaced,
            &["rbac-cluster", "admission"],
        ),
    ] {
        let mut text = format!("{HEAD}{}", document(&namespace)?);
        for part in PARTS.iter().filter(|part| !without.contains(&part.name)) {
            text.push_str(&documents(part, flavour)?);
        }
        put(path, text);
    }
    let mut text = HEAD.to_owned();
    for part in &MONITORING {
        text.push_str(&documents(part, Flavour::Cluster)?);
    }
    put("manifests/monitoring.yaml", text);
    for part in PARTS
        .iter()
        .chain(&RADAR)
        .chain(&FLEET)
        .chain(&VAULT)
        .chain(&MAGNUM)
        .chain(&PROVIDERS)
        .chain(&MONITORING)
    {
        let mut text = template(&documents(part, Flavour::Chart)?);
        if let Some(condition) = part.condition {
            text = format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n");
        }
        put(
            &format!("chart/windlass/templates/{}.yaml", part.name),
            text,
        );
    }
    put("chart/windlass/Chart.yaml", chart()?);
    put("chart/windlass/values.yaml", VALUES.to_owned());
    put("grafana/windlass.json", monitoring::board()? + "\n");
    Ok(files)
}

fn documents(part: &Part, flavour: Flavour) -> Result<String> {
    (part.objects)(flavour).iter().map(document).collect()
}

fn document(value: &Value) -> Result<String> {
    let yaml = serde_saphyr::to_string(value).context("print an object")?;
    Ok(format!("---\n{}\n", yaml.trim_end()))
}

/// Turns marks into expressions of the chart. The printer may have put quotes around a mark; the expression brings its own.
fn template(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (number, after) = after.split_once(CLOSE).unwrap_or((after, ""));
        let quote = before
            .chars()
            .last()
            .filter(|last| ['"', '\''].contains(last));
        out.push_str(quote.map_or(before, |quote| before.trim_end_matches(quote)));
        out.push_str("{{ ");
        out.push_str(recall(number));
        out.push_str(" }}");
        rest = quote.map_or(after, |quote| after.strip_prefix(quote).unwrap_or(after));
    }
    out + rest
}

fn chart() -> Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let value = json!({
        "apiVersion": "v2", "name": "windlass", "type": "application",
        "description": "One operator for the whole life of Kubernetes clusters",
        "version": version, "appVersion": version, "kubeVersion": ">=1.33.0-0",
    });
    Ok(serde_saphyr::to_string(&value)
        .context("print the chart")?
        .trim_end()
        .to_owned()
        + "\n")
}

const HEAD: &str = "# Generated by `cargo xtask generate`.\n";

const VALUES: &str = include_str!("deploy/values.yaml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_lose_the_printers_quotes() {
        let [x, y, z] = [".x", ".y | quote", ".z"].map(remember);
        let text = format!("a: <<<{x}>>>\nb: \"<<<{y}>>>\"\nc: 'v<<<{z}>>>'\n");
        let expected = "a: {{ .x }}\nb: {{ .y | quote }}\nc: 'v{{ .z }}'\n";
        assert_eq!(template(&text), expected);
    }

    #[test]
    fn no_right_is_a_wildcard() {
        let mut rules = 0;
        let parts = PARTS.iter().chain(&FLEET).chain(&VAULT);
        for part in parts.chain(&MAGNUM).chain(&PROVIDERS) {
            for flavour in [Flavour::Cluster, Flavour::Namespaced] {
                for object in (part.objects)(flavour) {
                    for rule in object["rules"].as_array().into_iter().flatten() {
                        rules += 1;
                        assert!(!rule.to_string().contains('*'), "{rule}");
                    }
                }
            }
        }
        assert!(rules > 10);
    }
}
