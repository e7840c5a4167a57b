//! The manager of a provider: fields that stand for its flags.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{CustomizeError, GoDuration, Notice, containers, named, pod, set_argument};

/// What is changed in the arguments of a manager.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manager {
    /// How often everything is looked at again: `--sync-period`.
    pub sync_period: Option<GoDuration>,
    /// Who of several works.
    pub leader_election: Option<LeaderElection>,
    /// The namespace that it looks at: `--namespace`.
    pub cache_namespace: Option<String>,
    /// How long it may take to end: the grace period of its pod.
    #[serde(rename = "gracefulShutDown")]
    pub graceful_shutdown: Option<GoDuration>,
    /// Its controllers.
    pub controller: Option<ControllerSettings>,
    /// Its metrics.
    #[serde(default)]
    pub metrics: MetricsSettings,
    /// Its probes.
    #[serde(default)]
    pub health: HealthSettings,
    /// Its webhooks.
    #[serde(default)]
    pub webhook: WebhookSettings,
    /// Where profiles are served: `--profiler-address`.
    pub profiler_address: Option<String>,
    /// How much each controller does at once: `--max-concurrent-reconciles`.
    pub max_concurrent_reconciles: Option<u32>,
    /// How much it logs: `--v`, where it is not 1.
    pub verbosity: Option<u32>,
    /// Its features, added to those of the file: `--feature-gates`.
    #[serde(default)]
    pub feature_gates: BTreeMap<String, bool>,
    /// Further flags by their names, dashes included.
    #[serde(default)]
    pub additional_args: BTreeMap<String, String>,
}

/// Who of several managers works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElection {
    /// Whether one is chosen at all: `--leader-elect`. Without it none of the others counts.
    pub leader_elect: Option<bool>,
    /// The Lease: `--leader-election-id`, together with its namespace.
    pub resource_name: Option<String>,
    /// Its namespace.
    pub resource_namespace: Option<String>,
    /// `--leader-elect-lease-duration`.
    pub lease_duration: Option<GoDuration>,
    /// `--leader-elect-renew-deadline`.
    pub renew_deadline: Option<GoDuration>,
    /// `--leader-elect-retry-period`.
    pub retry_period: Option<GoDuration>,
}

/// The controllers of a manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerSettings {
    /// How much the controller of a kind does at once: `--KIND-concurrency`.
    #[serde(default)]
    pub group_kind_concurrency: BTreeMap<String, u32>,
    /// No manager has a flag for it.
    pub cache_sync_timeout: Option<Value>,
    /// No manager has a flag for it.
    pub recover_panic: Option<bool>,
}

/// The metrics of a manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricsSettings {
    /// `--metrics-bind-addr`.
    pub bind_address: Option<String>,
    /// `--diagnostics-address`.
    pub diagnostics_address: Option<String>,
    /// `--insecure-diagnostics`, where it is true: some managers do not know the flag.
    pub insecure_diagnostics: Option<bool>,
}

/// The probes of a manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthSettings {
    /// `--health-addr`.
    pub health_probe_bind_address: Option<String>,
    /// The path of the readiness probe.
    pub readiness_endpoint_name: Option<String>,
    /// The path of the liveness probe.
    pub liveness_endpoint_name: Option<String>,
}

/// The webhooks of a manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookSettings {
    /// `--webhook-port`.
    pub port: Option<u16>,
    /// `--webhook-host`.
    pub host: Option<String>,
    /// `--webhook-cert-dir`.
    pub cert_dir: Option<String>,
}

impl Manager {
    pub(super) fn apply(
        &self,
        deployment: &str,
        spec: &mut Map<String, Value>,
        notices: &mut Vec<Notice>,
    ) -> Result<(), CustomizeError> {
        self.tell_unused(notices);
        let lacking = || CustomizeError::NoManager(deployment.to_owned());
        let pod = pod(spec).ok_or_else(lacking)?;
        if let Some(grace) = self.graceful_shutdown {
            pod.insert(
                "terminationGracePeriodSeconds".to_owned(),
                json!(grace.seconds()),
            );
        }
        let mut containers = containers(pod);
        // The contract calls it manager; before it did, it was the first one.
        let index = containers
            .iter()
            .position(|container| named(container, "manager"));
        let container = containers.get_mut(index.unwrap_or(0)).ok_or_else(lacking)?;
        self.set_probes(deployment, container, notices);
        for (name, value) in self.arguments() {
            set_argument(container, &name, &value);
        }
        if !self.feature_gates.is_empty() {
            self.set_features(container);
        }
        for (name, value) in &self.additional_args {
            set_argument(container, name, value);
        }
        Ok(())
    }

    fn tell_unused(&self, notices: &mut Vec<Notice>) {
        let controller = self.controller.as_ref();
        if controller.is_some_and(|controller| controller.cache_sync_timeout.is_some()) {
            notices.push(Notice::NoFlag {
                field: "manager.controller.cacheSyncTimeout",
            });
        }
        if controller.is_some_and(|controller| controller.recover_panic.is_some()) {
            notices.push(Notice::NoFlag {
                field: "manager.controller.recoverPanic",
            });
        }
    }

    fn set_probes(
        &self,
        deployment: &str,
        container: &mut Map<String, Value>,
        notices: &mut Vec<Notice>,
    ) {
        let Self { health, .. } = self;
        for (field, probe, path) in [
            (
                "manager.health.livenessEndpointName",
                "livenessProbe",
                &health.liveness_endpoint_name,
            ),
            (
                "manager.health.readinessEndpointName",
                "readinessProbe",
                &health.readiness_endpoint_name,
            ),
        ] {
            let Some(path) = path.as_deref().filter(|path| !path.is_empty()) else {
                continue;
            };
            let http = container
                .get_mut(probe)
                .and_then(|probe| probe.get_mut("httpGet"));
            match http.and_then(Value::as_object_mut) {
                Some(http) => {
                    http.insert("path".to_owned(), json!(format!("/{path}")));
                }
                None => notices.push(Notice::NoProbe {
                    deployment: deployment.to_owned(),
                    field,
                }),
            }
        }
    }

    /// The flags in the order in which the existing operator sets them.
    fn arguments(&self) -> Vec<(String, String)> {
        let mut arguments: Vec<(String, String)> = Vec::new();
        let concurrency = self
            .controller
            .iter()
            .flat_map(|controller| &controller.group_kind_concurrency);
        arguments.extend(concurrency.map(|(kind, number)| {
            (
                format!("--{}-concurrency", kind.to_lowercase()),
                number.to_string(),
            )
        }));
        let mut add = |name: &str, value: Option<String>| {
            let value = value.filter(|value| !value.is_empty());
            arguments.extend(value.map(|value| (name.to_owned(), value)));
        };
        let Self {
            metrics,
            health,
            webhook,
            ..
        } = self;
        let positive = |number: Option<u32>| number.filter(|number| *number > 0);
        let seconds = |duration: Option<GoDuration>| {
            let seconds = duration
                .map(GoDuration::seconds)
                .filter(|seconds| *seconds > 0);
            seconds.map(|seconds| format!("{seconds}s"))
        };
        add(
            "--max-concurrent-reconciles",
            positive(self.max_concurrent_reconciles).map(|number| number.to_string()),
        );
        add("--namespace", self.cache_namespace.clone());
        add("--health-addr", health.health_probe_bind_address.clone());
        add("--metrics-bind-addr", metrics.bind_address.clone());
        add("--diagnostics-address", metrics.diagnostics_address.clone());
        add("--webhook-host", webhook.host.clone());
        add("--webhook-cert-dir", webhook.cert_dir.clone());
        add("--profiler-address", self.profiler_address.clone());
        if let Some(election) = &self.leader_election
            && let Some(elects) = election.leader_elect
        {
            add("--leader-elect", Some(elects.to_string()));
            let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
            let lease = filled(&election.resource_namespace).zip(filled(&election.resource_name));
            let lease = lease.map(|(namespace, name)| format!("{namespace}/{name}"));
            for (name, value) in [
                ("--leader-election-id", lease),
                (
                    "--leader-elect-lease-duration",
                    seconds(election.lease_duration),
                ),
                (
                    "--leader-elect-renew-deadline",
                    seconds(election.renew_deadline),
                ),
                (
                    "--leader-elect-retry-period",
                    seconds(election.retry_period),
                ),
            ] {
                add(name, value.filter(|_| elects));
            }
        }
        let is_insecure = metrics.insecure_diagnostics == Some(true);
        add(
            "--insecure-diagnostics",
            is_insecure.then(|| "true".to_owned()),
        );
        add("--webhook-port", webhook.port.map(|port| port.to_string()));
        add("--sync-period", seconds(self.sync_period));
        let verbosity = self
            .verbosity
            .filter(|verbosity| *verbosity != DEFAULT_VERBOSITY);
        add("--v", verbosity.map(|verbosity| verbosity.to_string()));
        arguments
    }

    /// Those of the file stay, unless they are given.
    fn set_features(&self, container: &mut Map<String, Value>) {
        let mut features: BTreeMap<String, bool> = BTreeMap::new();
        let args = container.get("args").and_then(Value::as_array);
        let args = args.into_iter().flatten().filter_map(Value::as_str);
        let mut given = args.filter_map(|arg| arg.strip_prefix("--feature-gates="));
        if let Some(own) = given.next() {
            let own = own.split(',').filter_map(|feature| feature.split_once('='));
            features.extend(own.map(|(name, value)| (name.to_owned(), value == "true")));
        }
        features.extend(self.feature_gates.clone());
        let features: Vec<_> = features
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        set_argument(container, "--feature-gates", &features.join(","));
    }
}

/// The default of the field in the custom resource, and of managers.
const DEFAULT_VERBOSITY: u32 = 1;
