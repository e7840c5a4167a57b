//! Settings of controller managers.

use api::provider::{Controllers, Health, LeaderElection, Manager, Metrics, Webhook};
use clusterctl::customize::GoDuration;
use serde_json::Value;

use super::{Findings, given, names};

/// Every setting that becomes an argument.
pub(super) fn check(field: &str, manager: &Manager, findings: &mut Findings) {
    let Manager {
        sync_period,
        leader_election,
        cache_namespace,
        graceful_shut_down,
        controller,
        metrics,
        health,
        webhook,
        profiler_address,
        max_concurrent_reconciles,
        // Every number is one; the definition has its bound.
        verbosity: _,
        feature_gates,
        additional_args,
    } = manager;
    for (name, value) in [
        ("syncPeriod", sync_period),
        ("gracefulShutDown", graceful_shut_down),
    ] {
        if let Some(value) = given(value.as_deref()) {
            duration(&format!("{field}.{name}"), value, findings);
        }
    }
    if let Some(election) = leader_election {
        leader(&format!("{field}.leaderElection"), election, findings);
    }
    if let Some(namespace) = given(cache_namespace.as_deref())
        && !names::is_label(namespace)
    {
        findings.invalid(
            &format!("{field}.cacheNamespace"),
            namespace,
            "a namespace has lower-case letters, digits and '-', at most 63",
            "write the one namespace that is watched, or leave it out for all",
        );
    }
    if let Some(controller) = controller {
        controllers(&format!("{field}.controller"), controller, findings);
    }
    let Metrics {
        bind_address,
        diagnostics_address,
        insecure_diagnostics: _,
    } = metrics.clone().unwrap_or_default();
    let Health {
        health_probe_bind_address,
        readiness_endpoint_name,
        liveness_endpoint_name,
    } = health.clone().unwrap_or_default();
    let Webhook {
        port,
        host,
        cert_dir,
    } = webhook.clone().unwrap_or_default();
    for (name, value) in [
        ("metrics.bindAddress", &bind_address),
        ("metrics.diagnosticsAddress", &diagnostics_address),
        ("health.healthProbeBindAddress", &health_probe_bind_address),
        ("profilerAddress", profiler_address),
    ] {
        if let Some(value) = given(value.as_deref()) {
            address(&format!("{field}.{name}"), value, findings);
        }
    }
    for (name, value) in [
        ("health.readinessEndpointName", &readiness_endpoint_name),
        ("health.livenessEndpointName", &liveness_endpoint_name),
    ] {
        if let Some(value) = given(value.as_deref()) {
            endpoint(&format!("{field}.{name}"), value, findings);
        }
    }
    if let Some(port) = port
        && !(1..=65_535).contains(&port)
    {
        findings.invalid(
            &format!("{field}.webhook.port"),
            port,
            "a port is 1 to 65535",
            "write the port that the webhook's Service targets",
        );
    }
    plain(&format!("{field}.webhook.host"), host.as_deref(), findings);
    plain(
        &format!("{field}.webhook.certDir"),
        cert_dir.as_deref(),
        findings,
    );
    if *max_concurrent_reconciles == Some(0) {
        findings.invalid(
            &format!("{field}.maxConcurrentReconciles"),
            0,
            "at least one object is worked on at a time",
            "write 1 or more, or leave it out",
        );
    }
    for name in feature_gates.iter().flatten().map(|(name, _)| name) {
        let word = |byte: u8| byte.is_ascii_alphanumeric();
        if name.is_empty() || !name.bytes().all(word) {
            findings.invalid(
                &format!("{field}.featureGates"),
                name,
                "a feature is one word of letters and digits",
                "write its name as the provider's documentation does, and true or false after it",
            );
        }
    }
    for name in additional_args.iter().flatten().map(|(name, _)| name) {
        names::argument(&format!("{field}.additionalArgs"), name, findings);
    }
}

/// The three times have an order, without which a manager does not start.
///
/// # Source
/// client-go `tools/leaderelection` `NewLeaderElector`: lease over renewal, renewal over 1.2 times the retry.
fn leader(field: &str, election: &LeaderElection, findings: &mut Findings) {
    let LeaderElection {
        leader_elect,
        lease_duration,
        renew_deadline,
        resource_lock,
        resource_name,
        resource_namespace,
        retry_period,
    } = election;
    let mut time = |name: &str, value: &str| {
        given(Some(value)).and_then(|value| duration(&format!("{field}.{name}"), value, findings))
    };
    let times = [
        time("leaseDuration", lease_duration),
        time("renewDeadline", renew_deadline),
        time("retryPeriod", retry_period),
    ];
    // One that is zero is left to the manager, as the existing operator does.
    if let [Some(lease), Some(renewal), Some(retry)] =
        times.map(|time| time.filter(|time| time.seconds() > 0))
        && *leader_elect
        && (lease.0 <= renewal.0 || renewal.0 * 5 <= retry.0 * 6)
    {
        findings.invalid(
            field,
            format!("{lease_duration}, {renew_deadline}, {retry_period}"),
            "leaseDuration is longer than renewDeadline, and that longer than 1.2 times retryPeriod",
            "write for example 15s, 10s and 2s",
        );
    }
    if let Some(lock) = given(Some(resource_lock))
        && lock != "leases"
    {
        findings.invalid(
            &format!("{field}.resourceLock"),
            lock,
            "managers hold Leases, nothing else",
            "write leases",
        );
    }
    if resource_name.is_empty() != resource_namespace.is_empty() {
        findings.invalid(
            field,
            format!("{resource_namespace}/{resource_name}"),
            "resourceName and resourceNamespace go together",
            "give both, or leave both empty for the manager's own",
        );
    }
    if let Some(name) = given(Some(resource_name)) {
        names::object_name(&format!("{field}.resourceName"), name, findings);
    }
}

fn controllers(field: &str, controllers: &Controllers, findings: &mut Findings) {
    let Controllers {
        group_kind_concurrency,
        cache_sync_timeout,
        recover_panic: _,
    } = controllers;
    for (kind, count) in group_kind_concurrency.iter().flatten() {
        let field = format!("{field}.groupKindConcurrency[{kind}]");
        if !(1..=100_000).contains(count) {
            findings.invalid(
                &field,
                count,
                "between 1 and 100000 objects are worked on at a time",
                "write such a number, or leave the kind out",
            );
        }
        let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        if kind.is_empty() || !kind.bytes().all(word) {
            findings.invalid(
                &field,
                kind,
                "a kind is named with its group or without",
                "write for example Cluster.cluster.x-k8s.io",
            );
        }
    }
    if let Some(timeout) = cache_sync_timeout
        && *timeout <= 0
    {
        findings.invalid(
            &format!("{field}.cacheSyncTimeout"),
            timeout,
            "the time for the first lists is more than nothing, in nanoseconds",
            "write for example 120000000000 for two minutes, or leave it out",
        );
    }
}

fn duration(field: &str, value: &str, findings: &mut Findings) -> Option<GoDuration> {
    if let Ok(duration) = serde_json::from_value::<GoDuration>(Value::from(value)) {
        Some(duration)
    } else {
        findings.invalid(
            field,
            value,
            "a length of time is numbers with the units h, m, s or ms",
            "write for example 10m or 1h30m, or leave it out for the manager's own",
        );
        None
    }
}

/// `[HOST]:PORT`, or 0 for nowhere.
fn address(field: &str, value: &str, findings: &mut Findings) {
    let port = value
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok());
    let is_plain = value.bytes().all(|byte| byte.is_ascii_graphic());
    if value != "0" && (port.is_none() || !is_plain) {
        findings.invalid(
            field,
            value,
            "an address is HOST:PORT or :PORT, and 0 turns it off",
            "write for example :8443",
        );
    }
}

fn endpoint(field: &str, value: &str, findings: &mut Findings) {
    let word =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b'~');
    if value.starts_with('/') || !value.bytes().all(word) {
        findings.invalid(
            field,
            value,
            "a path has no slash before it, and letters, digits, '-', '_', '.' and '/'",
            "write for example readyz",
        );
    }
}

fn plain(field: &str, value: Option<&str>, findings: &mut Findings) {
    if let Some(value) = given(value)
        && !value.bytes().all(|byte| byte.is_ascii_graphic())
    {
        findings.invalid(
            field,
            value,
            "an argument has no spaces here",
            "write it without",
        );
    }
}
