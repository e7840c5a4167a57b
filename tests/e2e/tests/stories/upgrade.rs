//! A cluster is upgraded by a minor version while somebody uses what runs in it: real hosts, real Kubernetes of both versions.

use e2e::{
    Kubespray, NAMESPACE, Options, Prober, Stage, Versions, WORKLOAD, node, root, wait_until,
    windlass,
};
use lab::Kubernetes;
use serde_json::{Value, json};

use crate::{edges::Edges, first_cluster::assert_each_step_succeeded_once};

#[test]
fn a_minor_upgrade_goes_node_by_node_and_fails_no_request() {
    let mut stage = stage();
    let Versions {
        oldest: from,
        newest: to,
    } = stage.versions().unwrap().clone();
    stage.up().unwrap();
    stage.apply(&cluster(&stage)).unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    versions(&stage, &from);
    stage.run_workload().unwrap();

    // What would be done is shown, and nothing is touched.
    let mut wished = cluster(&stage)["items"][2].clone();
    wished["spec"]["kubernetesVersion"] = json!(to);
    wished["spec"]["operations"]["upgrade"] = upgrade();
    let file = stage.data().join("wished.json");
    std::fs::write(&file, wished.to_string()).unwrap();
    let plan = ["plan", "--live", "-f", file.to_str().unwrap()];
    let moves = format!("Kubernetes {from} to {to}");
    stage.says(&plan, &moves).unwrap();
    stage.says(&plan, "workers/upgrade/1").unwrap();

    // A budget that no pod may go by: that is said before the first host is touched.
    let kubeconfig = stage.kubeconfig().unwrap();
    budget(&stage, 2);
    let wish = json!({"spec": {"kubernetesVersion": to, "operations": {"upgrade": upgrade()}}});
    let edges = Edges::of(&stage, "first-upgrade-2");
    stage.merge("cluster", "first", &wish).unwrap();
    let run = edges.survive(&mut stage, None);
    assert_eq!(run["status"]["failure"]["code"], "BudgetForbids", "{run:#}");
    versions(&stage, &from);
    budget(&stage, 1);

    // From here on somebody asks for it all the time, and runners and the operator die.
    let prober = Prober::start(&stage).unwrap();
    let edges = Edges::of(&stage, "first-upgrade-2");
    stage.says(&["retry"], "first-upgrade-2").unwrap();
    let run = edges.survive(&mut stage, Some("workers/upgrade/"));
    let counted = prober.end().unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_each_step_succeeded_once(&run);
    versions(&stage, &to);
    assert_eq!(counted.failed, 0, "{counted:#?}");
    assert!(counted.answered > 100, "{counted:#?}");
    println!("requests during the upgrade: {counted:?}");

    let saved = "ls /var/backups/etcd-*-windlass/snapshot.db";
    let saved = stage.lab.ssh(&stage.lab.hosts()[0].name, saved).unwrap();
    assert!(saved.status.success(), "{saved:?}");

    // Nothing is left of it: nodes take pods, the status tells the version, and there is nothing more to do.
    let mut nodes = stage.kubectl_by(&kubeconfig, &["get", "nodes", "-o", "json"]);
    let nodes = nodes.output().unwrap();
    let nodes: Value = serde_json::from_slice(&nodes.stdout).unwrap();
    for node in nodes["items"].as_array().unwrap() {
        assert_eq!(node["spec"]["unschedulable"], Value::Null, "{node:#}");
    }
    wait_until("the status to tell it", stage.patience(), || {
        let status = &stage.object("cluster", "first")?["status"];
        let told = status["kubernetesVersion"] == to && status["state"] == "Created";
        Ok(told.then_some(()))
    })
    .unwrap();
    stage
        .says(&["plan", "--live"], "nothing: the cluster is built")
        .unwrap();
}

fn stage() -> Stage {
    let options = Options {
        hosts: 2,
        dead: 0,
        windlass: windlass().unwrap(),
        directory: root(),
        playbooks: root().join("bundle"),
    };
    let kubespray = Kubespray::from_environment(env!("CARGO_BIN_EXE_mirror").into()).unwrap();
    Stage::set_with_older(
        options,
        Kubernetes::Oldest,
        kubespray,
        &lab::progress::Terminal::default(),
    )
    .unwrap()
}

/// A control plane that takes pods too, and a worker.
fn cluster(stage: &Stage) -> Value {
    let mut spec = json!({
        "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
        "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
        "operations": {"creation": {"startConditions": {"nodes": {"minimum": 2}}}},
    });
    stage.choose(&mut spec);
    let kinds = [
        (
            "master-1",
            json!({"type": "master", "roles": ["control-plane", "etcd", "worker"]}),
        ),
        ("worker-1", json!({"type": "worker"})),
    ];
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        stage.secret().unwrap(),
        json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": NAMESPACE}, "spec": spec,
        }),
    ];
    let hosts = kinds.into_iter().zip(stage.lab.hosts());
    let nodes = hosts.map(|((name, spec), host)| node(name, spec, &host.address.to_string()));
    items.extend(nodes);
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn upgrade() -> Value {
    let (key, value) = WORKLOAD;
    json!({"gate": {"namespace": "default", "selector": {key: value}}})
}

/// How many of them must stay, as far as the cluster has taken note of it.
fn budget(stage: &Stage, least: u8) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}},
    });
    stage.apply_to_raised(&budget).unwrap();
    let noted = format!("--for=jsonpath={{.status.desiredHealthy}}={least}");
    kubectl(stage, &["wait", &noted, "pdb/web", "--timeout=60s"]);
    let counted = "--for=jsonpath={.status.expectedPods}=2";
    kubectl(stage, &["wait", counted, "pdb/web", "--timeout=60s"]);
}

fn kubectl(stage: &Stage, arguments: &[&str]) -> String {
    let kubeconfig = stage.kubeconfig().unwrap();
    let answer = stage.kubectl_by(&kubeconfig, arguments).output().unwrap();
    assert!(answer.status.success(), "{arguments:?}: {answer:?}");
    String::from_utf8(answer.stdout).unwrap()
}

/// Both nodes are Ready and run that version.
fn versions(stage: &Stage, version: &str) {
    let nodes = stage.ready_nodes(2).unwrap();
    for node in nodes {
        let reported = &node["status"]["nodeInfo"]["kubeletVersion"];
        assert_eq!(*reported, format!("v{version}"), "{node:#}");
    }
    let served: Value = serde_json::from_str(&kubectl(stage, &["version", "-o", "json"])).unwrap();
    let served = &served["serverVersion"]["gitVersion"];
    assert_eq!(*served, format!("v{version}"));
}
