//! Bad input: each is refused by its field, value, rule and remedy.

use api::provider::{
    BootstrapProvider, CoreProvider, InfrastructureProvider, Provider, ProviderStatus,
};

use super::*;

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
fn a_provider_is_called_what_it_is() {
    let core: CoreProvider = provider("capi", "{}");
    let [finding] = object(&core).try_into().unwrap();
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
        is_ready,
    };
    let core: CoreProvider = provider("cluster-api", "version: v1.13.4");
    let itself = other(ProviderType::Core, "capi-system", "cluster-api", false);
    assert_eq!(among(&core, std::slice::from_ref(&itself)), Ok(None));
    let second = other(ProviderType::Core, "elsewhere", "cluster-api", false);
    let findings = among(&core, &[itself.clone(), second]).unwrap_err();
    assert_eq!(findings[0].reason, Reason::MoreThanOneExists);
    assert!(
        findings[0].problem.rule.contains("namespace elsewhere"),
        "{}",
        findings[0]
    );

    let kubeadm: BootstrapProvider = provider("kubeadm", "version: v1.13.4");
    let namesake = other(ProviderType::ControlPlane, "capi-system", "kubeadm", true);
    assert_eq!(
        among(&kubeadm, &[itself.clone(), namesake]),
        Ok(Some(Waiting::ForCore))
    );
    let ready = Other {
        is_ready: true,
        ..itself
    };
    assert_eq!(among(&kubeadm, std::slice::from_ref(&ready)), Ok(None));

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
        let judged = among(&installed, &[]);
        assert_eq!(judged.is_err(), is_refused, "{wanted}: {judged:?}");
        if let Err(findings) = judged {
            assert_eq!(findings[0].reason, Reason::UnsupportedDowngrade);
        }
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
