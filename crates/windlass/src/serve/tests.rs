//! What watches an operator asks for what an operator tells: the alert rules and the board that are shipped.

use std::collections::BTreeSet;

use api::{Cluster, ClusterNode, Run};
use kube::{
    Resource,
    core::DeserializeGuard,
    runtime::{
        reflector::{self, Store},
        watcher::Event,
    },
};
use promql_parser::parser::{self, Expr, LabelModifier, VectorSelector};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

/// What Prometheus adds to every series of a ServiceMonitor.
const TARGET: [&str; 7] = [
    "container",
    "endpoint",
    "instance",
    "job",
    "namespace",
    "pod",
    "service",
];

/// One series, as its name and its labels.
struct Series(String, Vec<(String, String)>);

fn store<K>(objects: &[Value]) -> Store<DeserializeGuard<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
{
    let (store, mut writer) = reflector::store();
    for object in objects {
        let object: DeserializeGuard<K> = serde_json::from_value(object.clone()).unwrap();
        assert!(object.0.is_ok(), "{:?}", object.0.err());
        writer.apply_watcher_event(&Event::Apply(object));
    }
    store
}

/// The series of an operator that has seen the worst.
async fn told() -> Vec<Series> {
    let metrics = Metrics::default();
    let object = |kind: &str, group: &str, spec: Value, status: Value| {
        json!({
            "apiVersion": group, "kind": kind, "metadata": {"name": "a", "namespace": "demo"},
            "spec": spec, "status": status,
        })
    };
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let kubespray = "kubespray.k8s.io/v1";
    let status = json!({
        "state": "Failed", "cluster": {"health": "HEALTH_ERR"},
        "firstCertificate": {"name": "etcd", "notAfter": "2026-01-01T00:00:00Z"},
        "conditions": [
            condition("Ready", "False", "RunFailed"), condition("Stalled", "True", "RunFailed"),
            condition("APIServerAvailable", "Unknown", "NotProbed"), condition("EtcdHealthy", "False", "NeedsAttention"),
            condition("NodesReady", "False", "Unhealthy"), condition("CertificatesValid", "False", "Unhealthy"),
            condition("BackedUp", "False", "NoSnapshot"), condition("Drifted", "True", "HostsDiffer"),
        ],
    });
    let cluster = object("Cluster", kubespray, json!({}), status);
    let spec = json!({"type": "worker", "inventory": {"ansible_host": "192.0.2.1"}});
    let status = json!({"node": {"health": "HEALTH_ERR"}, "radar": {"state": "Drifted"}});
    let node = object("ClusterNode", kubespray, spec, status);
    let spec = json!({
        "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "a"}, "operation": "Create", "generation": 1,
        "plan": {"digest": "d", "steps": []},
    });
    let run = object(
        "Run",
        "workflow.windlass.dev/v1alpha1",
        spec,
        json!({"phase": "Failed", "conditions": [condition("Ready", "False", "RunnerUnschedulable")]}),
    );
    let mut unseen = cluster.clone();
    unseen["metadata"]["name"] = json!("b");
    unseen["status"]["conditions"] = json!([condition("Drifted", "Unknown", "NotLookedAt")]);
    let clusters = store::<Cluster>(&[cluster, unseen]);
    let nodes = store::<ClusterNode>(&[node]);
    kubespray::metrics::count(&metrics, clusters, nodes);
    runs::operator::count(&metrics, store::<Run>(&[run]));
    let mut count = metrics.passes::<(), ()>("Cluster");
    for pass in [Ok(()), Err(())] {
        count(pass).await;
    }
    let text = super::told(State(Standing::new(metrics))).await.1;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(series).collect()
}

fn series(line: &str) -> Series {
    let (series, _) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.trim_end_matches('}').split(',');
    let labels = labels.filter_map(|label| {
        let (name, value) = label.split_once('=')?;
        Some((name.to_owned(), value.trim_matches('"').to_owned()))
    });
    Series(name.to_owned(), labels.collect())
}

/// The labels of what an expression gives, or what is wrong with it.
fn labels(expression: &Expr, told: &[Series]) -> Result<BTreeSet<String>, String> {
    match expression {
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(BTreeSet::new()),
        Expr::VectorSelector(selector) => selected(selector, told),
        Expr::MatrixSelector(selector) => selected(&selector.vs, told),
        Expr::Paren(inner) => labels(&inner.expr, told),
        Expr::Unary(inner) => labels(&inner.expr, told),
        Expr::Subquery(inner) => labels(&inner.expr, told),
        Expr::Call(call) => {
            let mut all = BTreeSet::new();
            for argument in &call.args.args {
                all.extend(labels(argument, told)?);
            }
            Ok(all)
        }
        Expr::Binary(binary) => {
            labels(&binary.rhs, told)?;
            labels(&binary.lhs, told)
        }
        Expr::Aggregate(aggregate) => {
            let inner = labels(&aggregate.expr, told)?;
            let named = aggregate.modifier.as_ref().map(LabelModifier::labels);
            let named: BTreeSet<_> = named
                .into_iter()
                .flat_map(|named| named.labels.iter().cloned())
                .collect();
            if let Some(name) = named.iter().find(|name| !inner.contains(*name)) {
                return Err(format!("no series of {} has label {name}", aggregate.expr));
            }
            Ok(match aggregate.modifier {
                Some(LabelModifier::Exclude(_)) => &inner - &named,
                _ => named,
            })
        }
        Expr::Extension(_) => Err(format!("{expression} is none of Prometheus's")),
    }
}

fn selected(selector: &VectorSelector, told: &[Series]) -> Result<BTreeSet<String>, String> {
    let matches = |Series(name, labels): &&Series| {
        let matchers = selector.matchers.matchers.iter();
        let mut own = matchers.filter(|matcher| !TARGET.contains(&matcher.name.as_str()));
        selector.name.as_ref() == Some(name)
            && own.all(|matcher| {
                let mut labels = labels.iter();
                labels.any(|(name, value)| *name == matcher.name && matcher.is_match(value))
            })
    };
    let Series(_, labels) = told
        .iter()
        .find(matches)
        .ok_or_else(|| format!("no series is {selector}"))?;
    let own = labels.iter().map(|(name, _)| name.clone());
    Ok(own.chain(TARGET.map(str::to_owned)).collect())
}

fn checked(expression: &str, told: &[Series]) -> Result<BTreeSet<String>, String> {
    labels(&parser::parse(expression)?, told)
}

/// The documents of a file that is shipped.
fn shipped(file: &str) -> Vec<Value> {
    let file = format!("{}/../../deploy/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let found = documents.iter().filter(|document| document["kind"] == kind);
    found.collect()
}

#[tokio::test]
async fn every_alert_can_be_raised_by_what_an_operator_tells() {
    let told = told().await;
    let documents = shipped("manifests/monitoring.yaml");
    let groups = of_kind(&documents, "PrometheusRule")[0]["spec"]["groups"].as_array();
    let rules: Vec<_> = groups
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    assert!(rules.len() > 3, "{rules:#?}");
    for rule in rules {
        let expression = rule["expr"].as_str().unwrap();
        let labels = checked(expression, &told);
        let labels = labels.unwrap_or_else(|error| panic!("{}: {error}", rule["alert"]));
        let summary = rule["annotations"]["summary"].as_str().unwrap();
        let shown = summary.split("{{ $labels.").skip(1);
        for label in shown.filter_map(|rest| Some(rest.split_once(" }}")?.0)) {
            assert!(labels.contains(label), "{label}: {summary}");
        }
        let parts = ["/alert", "/for", "/labels/severity", "/annotations/summary"];
        for part in parts {
            let text = rule.pointer(part).and_then(Value::as_str);
            assert!(text.is_some_and(|text| !text.is_empty()), "{part}: {rule}");
        }
    }
}

#[tokio::test]
async fn every_panel_of_the_board_shows_what_an_operator_tells() {
    let told = told().await;
    let board = shipped("grafana/windlass.json").remove(0);
    let panels = board["panels"].as_array().unwrap();
    assert!(panels.len() > 4);
    let mut numbers = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{title}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let labels = checked(target["expr"].as_str().unwrap(), &told);
            let labels = labels.unwrap_or_else(|error| panic!("{title}: {error}"));
            let legend = target["legendFormat"].as_str().unwrap();
            let shown = legend
                .split("{{")
                .skip(1)
                .filter_map(|rest| rest.split_once("}}"));
            for (label, _) in shown {
                assert!(labels.contains(label), "{title}: {label} of {legend}");
            }
        }
    }
    let named = board["templating"]["list"].as_array().unwrap();
    assert!(
        named
            .iter()
            .any(|variable| variable["name"] == "datasource")
    );

    // What the manifests bring is this very board, and the job that it names is the one that a ServiceMonitor makes.
    let monitoring = shipped("manifests/monitoring.yaml");
    let brought = of_kind(&monitoring, "ConfigMap")[0]["data"]["windlass.json"].as_str();
    let brought: Value = serde_json::from_str(brought.unwrap()).unwrap();
    assert_eq!(brought, board);
    let monitor = &of_kind(&monitoring, "ServiceMonitor")[0]["spec"];
    let services = of_kind(&monitoring, "Service");
    let job = services.iter().find(|service| {
        let wanted = monitor["selector"]["matchLabels"].as_object().unwrap();
        let labels = &service["metadata"]["labels"];
        wanted.iter().all(|(name, value)| labels[name] == *value)
    });
    assert_eq!(job.unwrap()["metadata"]["name"], "windlass-metrics");
    let port = &monitor["endpoints"][0]["port"];
    assert_eq!(job.unwrap()["spec"]["ports"][0]["name"], *port);
}

#[tokio::test]
async fn an_expression_that_asks_for_what_nobody_tells_is_found() {
    let told = told().await;
    for (expression, said) in [
        ("sum(windlass_clusters", "unclosed"),
        ("rate(windlass_reconcile_total)", "expected type"),
        ("sum by (state) (windlass_cluster)", "no series is"),
        ("windlass_clusters{state=\"Broken\"}", "no series is"),
        ("windlass_clusters{health=\"HEALTH_ERR\"}", "no series is"),
        ("sum by (health) (windlass_clusters)", "has label health"),
        (
            "sum by (state) (sum by (pod) (windlass_clusters))",
            "has label state",
        ),
    ] {
        let error = checked(expression, &told).unwrap_err();
        assert!(error.contains(said), "{expression}: {error}");
    }
}

/// A person with many clusters is told which one it is; of one that is well there is no series, and neither is there of its runs.
#[test]
fn what_is_amiss_is_told_by_cluster_and_what_is_well_is_not() {
    let cluster = |name: &str, conditions: &[(&str, &str)]| {
        let conditions = conditions.iter().map(|(kind, status)| {
            json!({
                "type": kind, "status": status, "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        });
        json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": name, "namespace": "demo"},
            "spec": {}, "status": {"conditions": conditions.collect::<Vec<_>>()},
        })
    };
    let well = [
        ("EtcdHealthy", "True"),
        ("Drifted", "False"),
        ("Ready", "True"),
    ];
    let clusters = [
        cluster("well", &well),
        cluster(
            "ill",
            &[
                ("EtcdHealthy", "Unknown"),
                ("Drifted", "False"),
                ("Ready", "False"),
            ],
        ),
    ];
    let run = json!({
        "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r", "namespace": "demo"},
        "spec": {
            "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "well"}, "operation": "Create",
            "generation": 1, "plan": {"digest": "d", "steps": []},
        },
        "status": {"phase": "Succeeded"},
    });
    let metrics = Metrics::default();
    kubespray::metrics::count(&metrics, store(&clusters), store(&[]));
    runs::operator::count(&metrics, store(&[run]));
    let text = metrics.render();
    let named = ["windlass_cluster_amiss{", "windlass_runs_without_runner{"];
    let lines = text.lines();
    let lines = lines.filter(|line| named.iter().any(|name| line.starts_with(name)));
    assert_eq!(
        lines.collect::<Vec<_>>(),
        [
            "windlass_cluster_amiss{namespace=\"demo\",cluster=\"ill\",condition=\"EtcdHealthy\",status=\"Unknown\",reason=\"R\"} 1"
        ]
    );
}
