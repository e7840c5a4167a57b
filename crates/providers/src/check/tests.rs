//! Bad input: each is refused by its field, value, rule and remedy.

use api::provider::{
    AddonProvider, BootstrapProvider, CoreProvider, InfrastructureProvider, Provider,
    ProviderStatus,
};

use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::source::Held;

mod releases;

fn provider<K: Kind>(name: &str, spec: &str) -> Provider<K> {
    Provider::new("capi-system", name, serde_saphyr::from_str(spec).unwrap())
}

fn found(spec: &str) -> Vec<String> {
    let provider: InfrastructureProvider = provider("aws", spec);
    let findings = object(&provider);
    let shown = findings.iter().map(|finding| {
        let Problem {
            field,
            value,
            rule,
            remedy,
        } = &finding.problem;
        assert!(!rule.is_empty() && !remedy.is_empty(), "{finding}");
        let field = field.strip_prefix("InfrastructureProvider ").unwrap();
        format!("{} {field} {value:?}", finding.reason.as_str())
    });
    shown.collect()
}

#[test]
fn what_people_write_for_the_existing_operator_is_taken() {
    for spec in [
        "{}",
        "version: v1.13.4",
        "version: ''",
        r"
version: v2.13.0-rc.1
configSecret: {name: aws-variables, namespace: secrets}
additionalManifests: {name: more}
fetchConfig: {url: 'https://github.com/kubernetes-sigs/cluster-api-provider-aws/releases'}
manager:
  syncPeriod: 10m
  gracefulShutDown: 30s
  cacheNamespace: default
  maxConcurrentReconciles: 10
  verbosity: 5
  featureGates: {ClusterTopology: true, MachinePool: false}
  additionalArgs: {--kube-api-qps: '100', -v: '3'}
  profilerAddress: localhost:6060
  controller: {groupKindConcurrency: {Cluster.cluster.x-k8s.io: 5}, cacheSyncTimeout: 120000000000, recoverPanic: true}
  metrics: {bindAddress: '0', diagnosticsAddress: ':8443', insecureDiagnostics: false}
  health: {healthProbeBindAddress: ':9440', readinessEndpointName: readyz, livenessEndpointName: healthz}
  webhook: {port: 9443, host: '::', certDir: /tmp/certs}
  leaderElection: {leaderElect: true, leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s, resourceLock: leases, resourceName: a, resourceNamespace: b}
deployment:
  replicas: 2
  nodeSelector: {kubernetes.io/os: linux, 'node-role.kubernetes.io/control-plane': ''}
  tolerations: []
  serviceAccountName: own
  imagePullSecrets: [{name: pull}]
  containers:
  - name: manager
    imageUrl: registry.example.com:5000/capa/manager:v2@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    args: {--awsProfile: default}
    command: [/manager]
    env: [{name: A, value: b}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}]
additionalDeployments: {capa-helper: {deployment: {replicas: 1}, manager: {verbosity: 2}}}
patches:
- {patch: '{metadata: {labels: {a: b}}}', target: {kind: Deployment, labelSelector: 'app in (a,b), !c, d=e, f!=g'}}
- {patch: '[{op: remove, path: /spec/x}, {op: add, path: /a/-, value: null}]'}
",
        "manifestPatches: ['{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: ClusterIP}}']",
        "fetchConfig: {oci: 'registry.example.com:5000/providers/aws:v2.13.0'}",
        "{version: v1.0.0, fetchConfig: {oci: 'http://localhost:5000/aws'}}",
        "fetchConfig: {selector: {matchLabels: {provider.cluster.x-k8s.io/name: aws}}}",
        "fetchConfig: {selector: {matchExpressions: [{key: a, operator: In, values: [b]}, {key: c, operator: Exists}]}}",
    ] {
        assert_eq!(found(spec), [""; 0], "{spec}");
    }
}

#[test]
fn each_field_is_judged() {
    for (spec, expected) in [
        (
            "version: latest",
            "IncorrectVersionFormat spec.version \"latest\"",
        ),
        (
            "version: v1.13",
            "IncorrectVersionFormat spec.version \"v1.13\"",
        ),
        (
            "fetchConfig: {}",
            "FetchConfigValidationError spec.fetchConfig \"\"",
        ),
        (
            "fetchConfig: {url: ''}",
            "FetchConfigValidationError spec.fetchConfig \"\"",
        ),
        (
            "fetchConfig: {url: 'https://a/b', selector: {matchLabels: {a: b}}}",
            "FetchConfigValidationError spec.fetchConfig \"url, selector\"",
        ),
        (
            "fetchConfig: {url: 'http://a/b'}",
            "FetchConfigValidationError spec.fetchConfig.url \"http://a/b\"",
        ),
        (
            "fetchConfig: {url: '/etc'}",
            "FetchConfigValidationError spec.fetchConfig.url \"/etc\"",
        ),
        (
            "fetchConfig: {url: 'https://a/../b'}",
            "FetchConfigValidationError spec.fetchConfig.url \"https://a/../b\"",
        ),
        // Whoever reads the condition does not read the password.
        (
            "fetchConfig: {url: 'https://user:secret@a.example/b'}",
            "FetchConfigValidationError spec.fetchConfig.url \"https://...@a.example/b\"",
        ),
        (
            "fetchConfig: {oci: 'registry.example.com/aws'}",
            "EmptyVersionReason spec.version \"\"",
        ),
        (
            "{version: v1.0.0, fetchConfig: {oci: 'registry.example.com'}}",
            "FetchConfigValidationError spec.fetchConfig.oci \"registry.example.com\"",
        ),
        (
            "{version: v1.0.0, fetchConfig: {oci: 'registry.example.com/Aws'}}",
            "FetchConfigValidationError spec.fetchConfig.oci \"registry.example.com/Aws\"",
        ),
        (
            "fetchConfig: {oci: 'a/b@sha256:12'}",
            "FetchConfigValidationError spec.fetchConfig.oci \"a/b@sha256:12\"",
        ),
        (
            "fetchConfig: {selector: {}}",
            "FetchConfigValidationError spec.fetchConfig.selector \"\"",
        ),
        (
            "fetchConfig: {selector: {matchExpressions: [{key: a, operator: Like}]}}",
            "FetchConfigValidationError spec.fetchConfig.selector.matchExpressions[a].operator \"Like\"",
        ),
        (
            "fetchConfig: {selector: {matchExpressions: [{key: a, operator: In}]}}",
            "FetchConfigValidationError spec.fetchConfig.selector.matchExpressions[a].values \"\"",
        ),
        (
            "fetchConfig: {selector: {matchLabels: {a: 'b c'}}}",
            "InvalidSpec spec.fetchConfig.selector.matchLabels[a] \"b c\"",
        ),
        (
            "configSecret: {name: A_b}",
            "InvalidSpec spec.configSecret.name \"A_b\"",
        ),
        (
            "configSecret: {name: a, namespace: b/c}",
            "InvalidSpec spec.configSecret.namespace \"b/c\"",
        ),
        (
            "additionalManifests: {name: ''}",
            "InvalidSpec spec.additionalManifests.name \"\"",
        ),
        (
            "manager: {syncPeriod: 1d}",
            "InvalidSpec spec.manager.syncPeriod \"1d\"",
        ),
        (
            "manager: {gracefulShutDown: '-1s'}",
            "InvalidSpec spec.manager.gracefulShutDown \"-1s\"",
        ),
        (
            "manager: {cacheNamespace: A}",
            "InvalidSpec spec.manager.cacheNamespace \"A\"",
        ),
        (
            "manager: {maxConcurrentReconciles: 0}",
            "InvalidSpec spec.manager.maxConcurrentReconciles \"0\"",
        ),
        (
            "manager: {featureGates: {'A,B': true}}",
            "InvalidSpec spec.manager.featureGates \"A,B\"",
        ),
        (
            "manager: {additionalArgs: {v: '5'}}",
            "InvalidSpec spec.manager.additionalArgs \"v\"",
        ),
        (
            "manager: {additionalArgs: {'--v=5': ''}}",
            "InvalidSpec spec.manager.additionalArgs \"--v=5\"",
        ),
        (
            "manager: {profilerAddress: here}",
            "InvalidSpec spec.manager.profilerAddress \"here\"",
        ),
        (
            "manager: {metrics: {diagnosticsAddress: ':x'}}",
            "InvalidSpec spec.manager.metrics.diagnosticsAddress \":x\"",
        ),
        (
            "manager: {health: {livenessEndpointName: /healthz}}",
            "InvalidSpec spec.manager.health.livenessEndpointName \"/healthz\"",
        ),
        (
            "manager: {webhook: {port: 70000}}",
            "InvalidSpec spec.manager.webhook.port \"70000\"",
        ),
        (
            "manager: {webhook: {port: -1}}",
            "InvalidSpec spec.manager.webhook.port \"-1\"",
        ),
        (
            "manager: {controller: {groupKindConcurrency: {Cluster: 0}}}",
            "InvalidSpec spec.manager.controller.groupKindConcurrency[Cluster] \"0\"",
        ),
        (
            "manager: {controller: {cacheSyncTimeout: 0}}",
            "InvalidSpec spec.manager.controller.cacheSyncTimeout \"0\"",
        ),
        (
            "manager: {leaderElection: {leaderElect: true, leaseDuration: 10s, renewDeadline: 10s, retryPeriod: 2s, resourceLock: leases, resourceName: '', resourceNamespace: ''}}",
            "InvalidSpec spec.manager.leaderElection \"10s, 10s, 2s\"",
        ),
        (
            "manager: {leaderElection: {leaderElect: true, leaseDuration: '', renewDeadline: '', retryPeriod: '', resourceLock: configmaps, resourceName: '', resourceNamespace: ''}}",
            "InvalidSpec spec.manager.leaderElection.resourceLock \"configmaps\"",
        ),
        (
            "manager: {leaderElection: {leaderElect: true, leaseDuration: '', renewDeadline: '', retryPeriod: '', resourceLock: leases, resourceName: a, resourceNamespace: ''}}",
            "InvalidSpec spec.manager.leaderElection \"/a\"",
        ),
        (
            "deployment: {nodeSelector: {'a b': c}}",
            "InvalidSpec spec.deployment.nodeSelector \"a b\"",
        ),
        (
            "deployment: {imagePullSecrets: [{}]}",
            "InvalidSpec spec.deployment.imagePullSecrets \"\"",
        ),
        (
            "deployment: {containers: [{name: M}]}",
            "InvalidSpec spec.deployment.containers[M].name \"M\"",
        ),
        (
            "deployment: {containers: [{name: m}, {name: m}]}",
            "InvalidSpec spec.deployment.containers[m].name \"m\"",
        ),
        (
            "deployment: {containers: [{name: m, imageUrl: 'a b'}]}",
            "InvalidSpec spec.deployment.containers[m].imageUrl \"a b\"",
        ),
        (
            "deployment: {containers: [{name: m, env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: c}}}]}]}",
            "InvalidSpec spec.deployment.containers[m].env[A] \"fieldRef\"",
        ),
        (
            "additionalDeployments: {A: {}}",
            "InvalidSpec spec.additionalDeployments[A] \"A\"",
        ),
        (
            "additionalDeployments: {a: {manager: {syncPeriod: x}}}",
            "InvalidSpec spec.additionalDeployments[a].manager.syncPeriod \"x\"",
        ),
        (
            "{patches: [], manifestPatches: []}",
            "ComponentsPatchError spec.patches \"\"",
        ),
        (
            "manifestPatches: ['{metadata: {name: a}}']",
            "ComponentsPatchError spec.manifestPatches[0] \"{metadata: {name: a}}\"",
        ),
        (
            "manifestPatches: ['{a']",
            "ComponentsPatchError spec.manifestPatches[0] \"{a\"",
        ),
        (
            "patches: [{}]",
            "ComponentsPatchError spec.patches[0].patch \"\"",
        ),
        (
            "patches: [{patch: '[]'}]",
            "ComponentsPatchError spec.patches[0].patch \"[]\"",
        ),
        (
            "patches: [{patch: '[{op: put, path: /a}]'}]",
            "ComponentsPatchError spec.patches[0].patch \"[{op: put, path: /a}]\"",
        ),
        (
            "patches: [{patch: '{a: b}', target: {labelSelector: 'a in b'}}]",
            "ComponentsPatchError spec.patches[0].target.labelSelector \"a in b\"",
        ),
    ] {
        assert_eq!(found(spec), [expected], "{spec}");
    }
}

#[test]
fn series_of_releases_are_refused_by_name() {
    let mut aws: InfrastructureProvider = provider("aws", "{}");
    let mut told = |series: &str| {
        let annotation = (RELEASE_SERIES.to_owned(), series.to_owned());
        aws.metadata.annotations = Some([annotation].into());
        let found = object(&aws);
        found.iter().map(Finding::to_string).collect::<Vec<_>>()
    };
    assert_eq!(told("1.15=v1beta2,1.16=v1beta2"), [""; 0]);
    assert_eq!(
        told("1.15"),
        [
            "InfrastructureProvider metadata.annotations[windlass.dev/release-series] is \"1.15\": \"1.15\" is no series; each is MAJOR.MINOR=CONTRACT, and a comma stands between two; write for example 1.15=v1beta2,1.16=v1beta2, or remove the annotation"
        ]
    );
}

#[test]
fn a_provider_is_called_what_it_is() {
    let core: CoreProvider = provider("capi", "{}");
    let [finding] = object(&core).try_into().unwrap();
    assert_eq!(finding.reason, Reason::IncorrectCoreProviderName);
    assert_eq!(
        finding.to_string(),
        "CoreProvider metadata.name is \"capi\": the core provider is called cluster-api; make one with the name cluster-api and delete this"
    );
    let core: CoreProvider = provider("cluster-api", "{}");
    assert_eq!(object(&core), []);
    let unknown: BootstrapProvider = provider("own", "{}");
    let reasons = |findings: Vec<Finding>| {
        findings
            .iter()
            .map(|finding| finding.reason)
            .collect::<Vec<_>>()
    };
    assert_eq!(reasons(object(&unknown)), [Reason::UnknownProvider]);
    let long: BootstrapProvider = provider(&"a".repeat(60), "fetchConfig: {url: 'https://a/b'}");
    assert_eq!(reasons(object(&long)), [Reason::InvalidSpec]);
}

#[test]
fn there_is_one_of_each_and_no_way_back() {
    let other = |provider, namespace: &str, name: &str, is_ready| Other {
        provider,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        place: None,
        created: None,
        is_ready,
        installed: None,
        contract: None,
        is_moving: false,
    };
    let core: CoreProvider = provider("cluster-api", "version: v1.13.4");
    let itself = other(ProviderType::Core, "capi-system", "cluster-api", false);
    assert_eq!(among(&core, std::slice::from_ref(&itself), None), Ok(None));
    let mut core = core;
    let made = |minute: i64| {
        let epoch = Timestamp::UNIX_EPOCH;
        Some(Time(epoch.checked_add(minute.minutes()).unwrap()))
    };
    core.metadata.creation_timestamp = made(2);
    let mut second = other(ProviderType::Core, "elsewhere", "cluster-api", false);
    second.created = made(1);
    let both = [itself.clone(), second.clone()];
    let findings = among(&core, &both, None).unwrap_err();
    assert_eq!(findings[0].reason, Reason::MoreThanOneExists);
    assert!(
        findings[0].problem.rule.contains("namespace elsewhere"),
        "{}",
        findings[0]
    );
    // What is installed goes on, and of two that are not the elder.
    let mut working = core.clone();
    has(&mut working, "v1.13.4", "v1beta2");
    assert_eq!(among(&working, &both, None), Ok(None));
    core.metadata.creation_timestamp = made(0);
    assert_eq!(among(&core, &both, None), Ok(None));
    second.installed = Some("v1.13.4".parse().unwrap());
    assert!(among(&core, &[itself.clone(), second], None).is_err());

    let kubeadm: BootstrapProvider = provider("kubeadm", "version: v1.13.4");
    let namesake = other(ProviderType::ControlPlane, "capi-system", "kubeadm", true);
    assert_eq!(
        among(&kubeadm, &[itself.clone(), namesake], None),
        Ok(Some(Waiting::ForCore))
    );
    let ready = Other {
        is_ready: true,
        ..itself
    };
    assert_eq!(
        among(&kubeadm, std::slice::from_ref(&ready), None),
        Ok(None)
    );

    for (wanted, is_refused) in [
        ("v1.12.9", true),
        ("v0.99.0", true),
        ("v1.13.0", false),
        ("v1.14.0", false),
        ("", false),
    ] {
        let mut installed: BootstrapProvider = provider("kubeadm", &format!("version: '{wanted}'"));
        installed.status = Some(ProviderStatus {
            installed_version: Some("v1.13.4".to_owned()),
            ..ProviderStatus::default()
        });
        let judged = among(&installed, &[], None);
        assert_eq!(judged.is_err(), is_refused, "{wanted}: {judged:?}");
        if let Err(findings) = judged {
            assert_eq!(findings[0].reason, Reason::UnsupportedDowngrade);
        }
    }
}

#[test]
fn cert_manager_waits_for_nobody_and_the_others_wait_for_it() {
    let cert_manager: AddonProvider = provider("cert-manager", "version: v1.21.1");
    assert_eq!(object(&cert_manager), [], "known by its name");
    let other: AddonProvider = provider("certificates", "version: v1.21.1");
    assert_eq!(object(&other)[0].reason, Reason::UnknownProvider);

    let core = beside(ProviderType::Core, "cluster-api", "v1.14.2", "v1beta2");
    // The contract that its release has to name counts for nothing.
    let release = held("v1.21.1", "v1beta1");
    let judged = among(&cert_manager, std::slice::from_ref(&core), Some(&release));
    assert_eq!(judged, Ok(None));
    assert_eq!(among(&cert_manager, &[], Some(&release)), Ok(None));

    let mut there = beside(ProviderType::Addon, "cert-manager", "v1.21.1", "v1beta1");
    there.is_ready = false;
    let all = [core, there];
    let release = held("v1.14.2", "v1beta2");
    let mut core: CoreProvider = provider("cluster-api", "version: v1.14.2");
    let waits = Ok(Some(Waiting::ForCertManager));
    assert_eq!(among(&core, &all, Some(&release)), waits);
    let reason = Waiting::ForCertManager.reason();
    assert_eq!(reason, Reason::WaitingForCertManager);
    let kubeadm: BootstrapProvider = provider("kubeadm", "version: v1.14.2");
    assert_eq!(among(&kubeadm, &all, Some(&release)), waits);
    // What is installed works on.
    has(&mut core, "v1.13.4", "v1beta2");
    assert_eq!(among(&core, &all, Some(&release)), Ok(None));
}

/// A release that is held.
fn held(version: &str, contract: &str) -> Held {
    Held {
        config_map: format!("held-{version}"),
        version: version.parse().unwrap(),
        contract: contract.to_owned(),
        metadata: String::new(),
        components: String::new(),
        signature: None,
    }
}

fn has<K: Kind>(provider: &mut Provider<K>, version: &str, contract: &str) {
    provider.status = Some(ProviderStatus {
        installed_version: Some(version.to_owned()),
        contract: Some(contract.to_owned()),
        ..ProviderStatus::default()
    });
}

/// One that is installed beside others.
fn beside(kind: ProviderType, name: &str, version: &str, contract: &str) -> Other {
    Other {
        provider: kind,
        namespace: "capi-system".to_owned(),
        name: name.to_owned(),
        place: None,
        created: None,
        is_ready: true,
        installed: Some(version.parse().unwrap()),
        contract: Some(contract.parse().unwrap()),
        is_moving: false,
    }
}

/// What is said of a judgement: nothing, what is waited for, or reason and text.
fn judged(judgement: Result<Option<Waiting>, Vec<Finding>>) -> String {
    match judgement {
        Ok(None) => "goes".to_owned(),
        Ok(Some(waiting)) => format!("{waiting:?}"),
        Err(findings) => {
            let told = findings
                .iter()
                .map(|finding| format!("{} {finding}", finding.reason.as_str()));
            told.collect::<Vec<_>>().join(". ")
        }
    }
}

#[test]
fn the_contract_of_a_release_goes_with_that_of_the_core() {
    let core = |version: &str, contract: &str, is_moving| Other {
        is_moving,
        ..beside(ProviderType::Core, "cluster-api", version, contract)
    };
    let old = core("v1.10.4", "v1beta1", false);
    let moving = core("v1.10.4", "v1beta1", true);
    let new = core("v1.14.2", "v1beta2", false);
    let first = "CAPIVersionIncompatibility BootstrapProvider spec.version is \"v1.11.0\": v1.11.0 keeps contract v1beta2, which does not go with v1beta1 of CoreProvider capi-system/cluster-api v1.10.4; upgrade the CoreProvider first, to a version that keeps v1beta2, or write a version that keeps v1beta1";
    let never = "CAPIVersionIncompatibility BootstrapProvider spec.version is \"v1.11.0\": v1.11.0 keeps contract v1alpha4, which does not go with v1beta2 of CoreProvider capi-system/cluster-api v1.14.2; write a version that keeps v1beta2";
    for (installed, contract, core, expected) in [
        (None, "v1beta2", &new, "goes"),
        (None, "v1beta1", &new, "goes"),
        (None, "v1beta1", &old, "goes"),
        (None, "v1beta2", &old, first),
        (None, "v1beta2", &moving, "ForCoreUpgrade"),
        (None, "v1alpha4", &new, never),
        (None, "v1alpha4", &core("v1.14.2", "v1beta2", true), never),
        (Some(("v1.10.0", "v1beta1")), "v1beta2", &old, first),
        (
            Some(("v1.10.0", "v1beta1")),
            "v1beta2",
            &moving,
            "ForCoreUpgrade",
        ),
        (Some(("v1.10.0", "v1beta1")), "v1beta1", &old, "goes"),
        // What is installed like this does not move.
        (Some(("v1.11.0", "v1beta2")), "v1beta2", &old, "goes"),
        (Some(("v1.11.0", "v1beta1")), "v1beta2", &old, first),
    ] {
        let mut kubeadm: BootstrapProvider = provider("kubeadm", "version: v1.11.0");
        if let Some((version, contract)) = installed {
            has(&mut kubeadm, version, contract);
        }
        let held = held("v1.11.0", contract);
        let said = judged(among(&kubeadm, std::slice::from_ref(core), Some(&held)));
        assert_eq!(said, expected, "{installed:?} {contract}");
        // A core of another cluster is none of its own.
        let elsewhere = Other {
            place: Some(("capi-system".to_owned(), "other".to_owned())),
            ..core.clone()
        };
        let alone = judged(among(&kubeadm, &[elsewhere], Some(&held)));
        let expected = if installed.is_some() {
            "goes"
        } else {
            "ForCore"
        };
        assert_eq!(alone, expected, "{installed:?} {contract}");
    }
}

#[test]
fn a_core_keeps_a_contract_that_is_known_and_goes_with_the_others() {
    let metal = beside(ProviderType::Infrastructure, "metal", "v0.9.0", "v1alpha4");
    let docker = beside(ProviderType::Infrastructure, "docker", "v1.10.0", "v1beta1");
    let unknown = "CAPIVersionIncompatibility CoreProvider spec.version: v1.16.0 keeps contract v1beta3, and v1beta1 and v1beta2 are known; write a version that keeps one of them, or use a Windlass that knows it";
    let behind = "CAPIVersionIncompatibility CoreProvider spec.version: v1.16.0 keeps contract v1beta2, which does not go with what is installed beside it: InfrastructureProvider capi-system/metal (v1alpha4); take these to versions that keep it first, delete them, or write a version that keeps their contract";
    for (contract, others, expected) in [
        ("v1beta2", vec![docker.clone()], "goes"),
        ("v1beta3", vec![docker.clone()], unknown),
        ("v1beta2", vec![docker, metal], behind),
    ] {
        let mut core: CoreProvider = provider("cluster-api", "{}");
        has(&mut core, "v1.14.2", "v1beta1");
        let said = judged(among(&core, &others, Some(&held("v1.16.0", contract))));
        assert_eq!(said, expected);
        has(&mut core, "v1.16.0", contract);
        let said = judged(among(&core, &others, Some(&held("v1.16.0", contract))));
        assert_eq!(said, "goes", "what is installed stays");
    }
}

#[test]
fn no_more_minors_are_skipped_than_clusterctl_skips() {
    let skips = "CAPIVersionIncompatibility BootstrapProvider spec.version is \"v1.14.0\": v1.14.0 would follow v1.10.1, which is installed, and Cluster API supports no upgrade that skips more than three minor versions; go by way of v1.13";
    let back = "UnsupportedProviderDowngradeReason BootstrapProvider spec.version: v1.13.0 would follow v1.14.0, which is installed, and Cluster API knows no way back to an older minor version; write v1.14.0 or a newer one";
    for (name, installed, wanted, release, expected) in [
        ("kubeadm", "v1.10.1", "v1.14.0", None, skips),
        ("kubeadm", "v1.10.1", "v1.14.0", Some("v1.14.0"), skips),
        ("kubeadm", "v1.10.1", "v1.13.9", Some("v1.13.9"), "goes"),
        ("kubeadm", "v1.9.9", "v1.14.0", Some("v1.14.0"), "goes"),
        ("other", "v1.10.1", "v1.99.0", Some("v1.99.0"), "goes"),
        // Without a version it is the one that is held.
        ("kubeadm", "v1.14.0", "", Some("v1.13.0"), back),
        ("kubeadm", "v1.14.0", "", None, "goes"),
    ] {
        let spec = format!("version: '{wanted}'");
        let mut bootstrap: BootstrapProvider = provider(name, &spec);
        has(&mut bootstrap, installed, "v1beta2");
        let core = beside(ProviderType::Core, "cluster-api", "v1.14.2", "v1beta2");
        let held = release.map(|version| held(version, "v1beta2"));
        let said = judged(among(&bootstrap, &[core], held.as_ref()));
        assert_eq!(said, expected, "{name} {installed} {wanted}");
    }
}

#[test]
fn no_spec_breaks_the_check() {
    let corpus = [
        r#"{"version":"v1","fetchConfig":{"url":"https://a@b/c","oci":"a/b:c@sha256:d"},"patches":[{"patch":"[{op: add, path: /a}]","target":{"labelSelector":"a in (b)"}}]}"#,
        r#"{"manager":{"syncPeriod":"1h","webhook":{"port":-1}},"deployment":{"containers":[{"name":"m","env":[{"name":"A"}]}]}}"#,
    ];
    fuzz::text("specs of providers", &corpus, |text| {
        let Ok(spec) = serde_json::from_str(text) else {
            return;
        };
        let provider: InfrastructureProvider = Provider::new("a", "b", spec);
        for finding in object(&provider) {
            assert!(
                finding.problem.value.len() <= LONGEST_VALUE && !finding.problem.rule.is_empty()
            );
        }
    });
}
