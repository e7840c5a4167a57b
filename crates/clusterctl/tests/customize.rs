//! What custom resources change in the Deployments of a provider.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use clusterctl::{
    Object,
    customize::{Customization, CustomizeError, Notice},
};
use serde_json::{Value, json};

fn deployment(name: &str) -> Object {
    Object::new(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "a"},
        "spec": {"replicas": 1, "template": {"spec": {
            "containers": [
                {"name": "proxy", "image": "r.example/proxy:v1"},
                {"name": "manager", "image": "r.example/manager:v1",
                 "args": ["--leader-elect", "--diagnostics-address=:8443", "--feature-gates=A=false,B=true"],
                 "env": [{"name": "ONE", "value": "1"}, {"name": "TWO", "value": "2"}],
                 "livenessProbe": {"httpGet": {"path": "/healthz", "port": "healthz"}}},
            ],
            "tolerations": [{"key": "a"}],
        }}},
    }))
    .unwrap()
}

fn read(customization: Value) -> Customization {
    serde_json::from_value(customization).unwrap()
}

/// The Deployments afterwards, and what had no effect.
fn apply(
    names: &[&str],
    customization: Value,
) -> Result<(Vec<Object>, Vec<Notice>), CustomizeError> {
    let mut objects: Vec<_> = names.iter().map(|name| deployment(name)).collect();
    let notices = read(customization).apply(&mut objects)?;
    Ok((objects, notices))
}

fn manager(manager: &Value) -> (Value, Vec<Notice>) {
    let (objects, notices) = apply(&["one"], json!({"manager": manager})).unwrap();
    (
        objects[0].value()["spec"]["template"]["spec"].clone(),
        notices,
    )
}

const OWN: [&str; 3] = [
    "--leader-elect",
    "--diagnostics-address=:8443",
    "--feature-gates=A=false,B=true",
];

#[test]
fn each_field_of_a_manager_is_a_flag() {
    let cases = [
        (json!({}), vec![]),
        (json!({"syncPeriod": "90s"}), vec!["--sync-period=90s"]),
        (json!({"syncPeriod": "1h"}), vec!["--sync-period=3600s"]),
        (json!({"syncPeriod": "0"}), vec![]),
        (json!({"cacheNamespace": "a"}), vec!["--namespace=a"]),
        (
            json!({"controller": {"groupKindConcurrency": {"Machine": 9, "cluster": 2}}}),
            vec!["--machine-concurrency=9", "--cluster-concurrency=2"],
        ),
        (
            json!({"metrics": {"bindAddress": ":1", "insecureDiagnostics": true}}),
            vec!["--metrics-bind-addr=:1", "--insecure-diagnostics=true"],
        ),
        (json!({"metrics": {"insecureDiagnostics": false}}), vec![]),
        (
            json!({"health": {"healthProbeBindAddress": ":2"}}),
            vec!["--health-addr=:2"],
        ),
        (
            json!({"webhook": {"port": 9443, "host": "h", "certDir": "/c"}}),
            vec![
                "--webhook-host=h",
                "--webhook-cert-dir=/c",
                "--webhook-port=9443",
            ],
        ),
        (
            json!({"profilerAddress": "localhost:6060"}),
            vec!["--profiler-address=localhost:6060"],
        ),
        (
            json!({"maxConcurrentReconciles": 7}),
            vec!["--max-concurrent-reconciles=7"],
        ),
        (json!({"verbosity": 1}), vec![]),
        (json!({"verbosity": 0}), vec!["--v=0"]),
        (json!({"verbosity": 5}), vec!["--v=5"]),
        (
            json!({"leaderElection": {"leaderElect": false, "leaseDuration": "15s"}}),
            vec!["--leader-elect=false"],
        ),
        (json!({"leaderElection": {"leaseDuration": "15s"}}), vec![]),
        (
            json!({"leaderElection": {"leaderElect": true, "resourceName": "n", "resourceNamespace": "s", "leaseDuration": "15s",
                                      "renewDeadline": "10s", "retryPeriod": "2s"}}),
            vec![
                "--leader-elect=true",
                "--leader-election-id=s/n",
                "--leader-elect-lease-duration=15s",
                "--leader-elect-renew-deadline=10s",
                "--leader-elect-retry-period=2s",
            ],
        ),
        (
            json!({"additionalArgs": {"--one": "1", "--two": ""}}),
            vec!["--one=1", "--two="],
        ),
    ];
    for (fields, added) in cases {
        let (pod, notices) = manager(&fields);
        let mut expected = OWN.to_vec();
        expected.extend(added);
        assert_eq!(pod["containers"][1]["args"], json!(expected), "{fields}");
        assert_eq!(notices, [], "{fields}");
        assert_eq!(
            pod["containers"][0],
            deployment("one").value()["spec"]["template"]["spec"]["containers"][0]
        );
    }
}

#[test]
fn flags_that_are_there_are_replaced_and_features_are_added() {
    let (pod, _) = manager(&json!({
        "metrics": {"diagnosticsAddress": "localhost:8080"},
        "featureGates": {"A": true, "C": true},
        "additionalArgs": {"--diagnostics-address": ":9"},
    }));
    assert_eq!(
        pod["containers"][1]["args"],
        json!([
            "--leader-elect",
            "--diagnostics-address=:9",
            "--feature-gates=A=true,B=true,C=true"
        ])
    );
}

#[test]
fn what_is_no_flag_has_its_effect_or_is_told() {
    let (pod, notices) = manager(&json!({
        "gracefulShutDown": "45s",
        "controller": {"cacheSyncTimeout": 120_000_000_000_u64, "recoverPanic": true},
        "health": {"livenessEndpointName": "live", "readinessEndpointName": "ready"},
    }));
    assert_eq!(pod["terminationGracePeriodSeconds"], 45);
    assert_eq!(
        pod["containers"][1]["livenessProbe"]["httpGet"]["path"],
        "/live"
    );
    let told: Vec<_> = notices.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[0].starts_with("manager.controller.cacheSyncTimeout has no effect"),
        "{told:?}"
    );
    assert!(
        told[1].starts_with("manager.controller.recoverPanic has no effect"),
        "{told:?}"
    );
    assert!(
        told[2].starts_with(
            "manager.health.readinessEndpointName has no effect: the manager of Deployment one"
        ),
        "{told:?}"
    );
}

#[test]
fn a_deployment_is_changed_field_by_field() {
    let (objects, _) = apply(
        &["one"],
        json!({"deployment": {
            "replicas": 2, "nodeSelector": {"a": "b"}, "tolerations": [], "affinity": {"nodeAffinity": {}}, "serviceAccountName": "s",
            "imagePullSecrets": [{"name": "p"}],
            "containers": [{"name": "manager", "imageUrl": "m.example/manager:v2", "args": {"--leader-elect": "false", "--x": "y"},
                            "env": [{"name": "ONE", "value": "uno"}, {"name": "NEW", "value": "n"}],
                            "resources": {"limits": {"cpu": "1"}}, "command": ["/manager"]}],
        }}),
    )
    .unwrap();
    let spec = &objects[0].value()["spec"];
    assert_eq!(spec["replicas"], 2);
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["tolerations"], json!([]));
    assert_eq!(pod["nodeSelector"], json!({"a": "b"}));
    assert_eq!(pod["affinity"], json!({"nodeAffinity": {}}));
    assert_eq!(pod["serviceAccountName"], "s");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "p"}]));
    let container = &pod["containers"][1];
    assert_eq!(container["image"], "m.example/manager:v2");
    assert_eq!(container["command"], json!(["/manager"]));
    assert_eq!(container["resources"], json!({"limits": {"cpu": "1"}}));
    assert_eq!(
        container["env"],
        json!([{"name": "TWO", "value": "2"}, {"name": "ONE", "value": "uno"}, {"name": "NEW", "value": "n"}])
    );
    let mut args: Vec<_> = OWN.to_vec();
    args.extend(["--leader-elect=false", "--x=y"]);
    assert_eq!(container["args"], json!(args));
}

#[test]
fn of_several_deployments_the_providers_own_is_changed_and_others_by_name() {
    let customization = json!({
        "deployment": {"replicas": 2},
        "additionalDeployments": {"helper": {"deployment": {"replicas": 3}, "manager": {"verbosity": 4}}, "gone": {"deployment": {"replicas": 9}}},
    });
    let (objects, notices) = apply(
        &["capx-controller-manager", "helper", "untouched"],
        customization.clone(),
    )
    .unwrap();
    let replicas: Vec<_> = objects
        .iter()
        .map(|object| object.value()["spec"]["replicas"].as_u64().unwrap())
        .collect();
    assert_eq!(replicas, [2, 3, 1]);
    assert_eq!(
        objects[1].value()["spec"]["template"]["spec"]["containers"][1]["args"][3],
        "--v=4"
    );
    assert_eq!(objects[2], deployment("untouched"));
    assert_eq!(
        notices,
        [Notice::NoDeployment {
            name: "gone".to_owned()
        }]
    );
    // The only one is the provider's own, whatever it is called.
    let (objects, notices) = apply(&["helper"], customization).unwrap();
    assert_eq!(objects[0].value()["spec"]["replicas"], 2);
    assert_eq!(notices.len(), 2, "{notices:?}");
}

#[test]
fn the_first_container_is_the_manager_where_none_is_called_so() {
    let mut object = deployment("one").into_value();
    object["spec"]["template"]["spec"]["containers"][1]["name"] = json!("other");
    let mut objects = [Object::new(object).unwrap()];
    read(json!({"manager": {"verbosity": 3}}))
        .apply(&mut objects)
        .unwrap();
    assert_eq!(
        objects[0].value()["spec"]["template"]["spec"]["containers"][0]["args"],
        json!(["--v=3"])
    );
}

#[test]
fn wishes_that_cannot_be_fulfilled_are_refused() {
    let error = apply(
        &["one"],
        json!({"deployment": {"containers": [{"name": "boss"}]}}),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "deployment.containers names boss, which Deployment one has not; it has proxy, manager"
    );
    let mut object = deployment("one").into_value();
    object["spec"]["template"]["spec"]["containers"] = json!([]);
    let mut objects = [Object::new(object).unwrap()];
    let error = read(json!({"manager": {}}))
        .apply(&mut objects)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("Deployment one, which has no containers"),
        "{error}"
    );
    for wrong in [
        json!({"manager": {"syncPeriod": "soon"}}),
        json!({"manager": {"verbosity": -1}}),
        json!({"deployment": {"replicas": "two"}}),
        json!({"deployment": {"containers": [{"imageUrl": "x"}]}}),
    ] {
        assert!(
            serde_json::from_value::<Customization>(wrong.clone()).is_err(),
            "{wrong}"
        );
    }
}
