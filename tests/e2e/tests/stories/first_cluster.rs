//! The first cluster, end to end: real hosts, real Ansible, real Kubernetes. By the bundle, or by real kubespray where
//! `WINDLASS_KUBESPRAY` names a checkout: see docs/kubespray.md.

use std::time::Duration;

use e2e::{Kubespray, NAMESPACE, Options, Stage, node, root, wait_until, windlass};
use lab::command::output;
use serde_json::{Value, json};

use crate::{by_hand, drift, edges::Edges, gapped, scheduled::Scheduled, snapshots::Kept, told};

#[test]
fn a_cluster_is_raised_though_everything_is_killed_in_the_middle() {
    let mut stage = stage(3, 0);
    stage.up().unwrap();
    stage
        .apply_example(&root().join("examples/first-cluster"))
        .unwrap();

    // A person pauses it between two tasks, and lets it go on.
    wait_until("a play to be at work", stage.patience(), || running(&stage)).unwrap();
    stage.says(&["pause"], "pauses").unwrap();
    wait_until("the run to pause", stage.patience(), || {
        Ok((stage.run()?["status"]["phase"] == "Paused").then_some(()))
    })
    .unwrap();
    stage.says(&["resume"], "goes on").unwrap();

    // `windlass up` dies while a play is at work: the runner goes on, and is found again.
    wait_until("a play to be at work", stage.patience(), || running(&stage)).unwrap();
    stage.down().unwrap();
    stage.up().unwrap();

    // The runner dies while a later play is at work: another one takes the run up.
    let (step, runner) = wait_until("the etcd play to be at work", stage.patience(), || {
        Ok(running(&stage)?
            .filter(|(step, _)| step.starts_with("etcd/") || step.starts_with("kubelet/")))
    })
    .unwrap();
    stage.kill_inside(runner).unwrap();
    wait_until("another runner to take over", stage.patience(), || {
        let run = stage.run()?;
        Ok((run["status"]["runner"]["pid"]
            .as_i64()
            .is_some_and(|pid| pid != runner))
        .then_some(()))
    })
    .unwrap();

    ansible_dies_in_kubeadm_init(&stage);

    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(
        run["status"]["phase"], "Succeeded",
        "after a kill in {step}: {run:#}"
    );
    assert_each_step_succeeded_once(&run);
    stage.ready_nodes(3).unwrap();
    stage
        .says(
            &["logs", "--step", CONTROL_PLANE],
            "Windlass: undo what kubeadm has begun",
        )
        .unwrap();
    let mut history = run["status"]["history"].as_array().unwrap().iter();
    let told = history.any(|record| {
        let detail = record["detail"].as_str().unwrap_or_default();
        record["step"] == CONTROL_PLANE
            && detail.contains("what kubeadm has begun was undone first, on master-1")
    });
    assert!(told, "{run:#}");
    stage
        .says(&["converge", "--dry-run"], "etcd/install")
        .unwrap();
    stage
        .says(&["logs", "--step", "etcd/install"], "TASK [etcd : ")
        .unwrap();
    stage
        .says(&["logs", "--host", "worker-1"], "changed")
        .unwrap();
    let objects = stage.objects("events").unwrap();
    assert!(
        objects.iter().any(|event| event["reason"] == "Created"),
        "{objects:#?}"
    );
    certificates_are_renewed(&stage);
    assert_reset_leaves_nothing(&stage);
}

/// The play that makes the control plane.
const CONTROL_PLANE: &str = "control-plane/install";

/// What kubespray cannot repeat by itself: kubeadm has begun, and the network of a later play is not there.
fn ansible_dies_in_kubeadm_init(stage: &Stage) {
    let run = wait_until("kubeadm init to run", stage.patience(), || {
        let run = stage.run()?;
        let steps = run["status"]["steps"].as_array().into_iter().flatten();
        let initializes = |step: &Value| {
            let activity = step["activity"].as_str().unwrap_or_default();
            step["id"] == CONTROL_PLANE
                && ["kubeadm", "init"]
                    .iter()
                    .all(|word| activity.to_lowercase().contains(word))
        };
        Ok(steps.into_iter().any(initializes).then_some(run))
    })
    .unwrap();
    let name = run["metadata"]["name"].as_str().unwrap();
    let begun = || {
        let host = &stage.lab.hosts()[0].name;
        let look = stage.lab.ssh(host, "ls /var/lib/kubelet/config.yaml")?;
        Ok((!look.stdout.is_empty()).then_some(()))
    };
    wait_until("kubeadm to configure the kubelet", stage.patience(), begun).unwrap();
    stage.kill_inside(stage.playbook(name).unwrap()).unwrap();
}

/// What the API server shows and what the Secret holds are others afterwards, though the runner dies while it is done.
fn certificates_are_renewed(stage: &Stage) {
    let master = &stage.lab.hosts()[0];
    let shown = || {
        let command = "openssl s_client -connect 127.0.0.1:6443 </dev/null 2>/dev/null | openssl x509 -noout -serial";
        let shown = stage.lab.ssh(&master.name, command).unwrap();
        assert!(shown.status.success(), "{shown:?}");
        String::from_utf8(shown.stdout).unwrap()
    };
    let stored = || stage.object("secret", "first-kubeconfig").unwrap()["data"].clone();
    let (serial, secret) = (shown(), stored());
    stage
        .says(
            &["renew", "--dry-run"],
            "Renew the certificates of master-1",
        )
        .unwrap();
    stage.says(&["renew"], "first-renew-2").unwrap();
    let runner = wait_until("certificates to be renewed", stage.patience(), || {
        let running = running(stage)?.filter(|(step, _)| step == "renew/1");
        Ok(running.map(|(_, runner)| runner))
    })
    .unwrap();
    stage.kill_inside(runner).unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["metadata"]["name"], "first-renew-2");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_ne!(process(&run), Some(runner), "{run:#}");
    assert_each_step_succeeded_once(&run);
    assert_ne!(shown(), serial, "the API server shows the same certificate");
    assert_ne!(stored(), secret, "the Secret holds the same kubeconfig");
    stage.ready_nodes(3).unwrap();
    // The file that people on the host use works again, too.
    let own = stage
        .lab
        .ssh(&master.name, "/usr/local/bin/kubectl get --raw=/readyz")
        .unwrap();
    assert_eq!(own.stdout, b"ok", "{own:?}");
    // Their ends are told, those of a host by its own object.
    wait_until("the ends to be told", stage.patience(), || {
        let node = stage.object("clusternodes", "master-1")?;
        let told = node["status"]["certificates"].as_array().cloned();
        let told = told.unwrap_or_default();
        let names: Vec<_> = told
            .iter()
            .filter_map(|told| told["name"].as_str())
            .collect();
        Ok((names == ["kube-apiserver", "etcd", "kubelet"]).then_some(()))
    })
    .unwrap();
}

#[test]
fn a_dead_worker_is_named_and_left_out() {
    let mut stage = gapped::stage(2, 1);
    stage.up().unwrap();
    let gap = gapped::is_bridged(&stage, &root().join("examples/first-cluster"));
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_eq!(
        run["status"]["excluded"][0]["target"], "worker-2",
        "{run:#}"
    );
    let events = stage.objects("events").unwrap();
    let warned = events.iter().any(|event| {
        event["type"] == "Warning"
            && event["message"]
                .as_str()
                .unwrap_or_default()
                .contains("1 of 3 nodes does not answer: worker-2")
    });
    assert!(warned, "{events:#?}");
    stage.ready_nodes(2).unwrap();
    if gap.is_some() {
        gapped::gave(&stage);
    }
    let node = stage.object("clusternodes", "worker-2").unwrap();
    assert_eq!(node["status"]["state"], "Excluded", "{node:#}");
    drift::is_named(&stage);
    told::by_their_codes(&stage);

    stage.bring_etcdutl(&stage.lab.hosts()[0].name).unwrap();
    let kept = Kept::in_a_bucket(&stage, Some("0 0 1 1 *"));
    let name = kept.taken(&stage, "first-snapshot-2");
    Kept::drilled(&stage, &name, "first-drill-3");

    drift::is_edited_before_a_run(&stage);
    // It leaves as it came: without an answer. What people run beside that, runs on the others.
    by_hand::remove_with_hooks(&stage, "worker-2");
    stage
        .until_gone("clusternode", "worker-2", stage.patience())
        .unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(run["metadata"]["name"], "first-remove-4");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    let played = run["status"]["steps"].as_array().unwrap().iter();
    let mut played = played.filter(|step| step["id"] == "remove/reset");
    let results = &played.next().unwrap()["results"];
    assert!(results["changed"].as_u64().unwrap_or(0) == 0, "{results:#}");
    drift::was_seen_before_the_run(&stage);
    let scheduled = Scheduled::after(&stage, "first-converge-5");
    by_hand::tools(&stage);
    scheduled.waits(&stage);
    scheduled.mends(&stage);
}

#[test]
fn a_host_of_etcd_is_made_ready_beside_the_others_and_a_worker_joins_and_leaves() {
    let mut stage = stage(3, 0);
    stage.up().unwrap();
    stage.apply(&with_etcd_apart(&stage)).unwrap();

    // The runner dies while both playbooks are at work: another one finds both, and neither works twice on a host.
    let (rows, runner) = wait_until("both rows to be at work", stage.patience(), || {
        let rows = at_work(&stage.run()?);
        Ok((rows.len() == 2).then_some((rows, process(&stage.run()?))))
    })
    .unwrap();
    let runner = runner.unwrap();
    stage.kill_inside(runner).unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_eq!(
        run["status"]["phase"], "Succeeded",
        "after a kill in {rows:?}: {run:#}"
    );
    assert_ne!(process(&run), Some(runner), "{run:#}");
    assert!(rows[0].starts_with("etcd/"), "{rows:?}");
    assert_eq!(rows[1], "prepare/hosts");
    assert_each_step_succeeded_once(&run);
    stage.ready_nodes(1).unwrap();
    stage
        .says(&["logs", "--step", "etcd/hosts"], "TASK [container-engine")
        .unwrap();
    let mut logs = stage.windlass(&["logs", "--step", "etcd/hosts", "--host", "master-1"]);
    let said = logs.output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr);
    assert!(said.contains("did anything on a host"), "{said}");

    a_user_is_let_in(&stage);
    a_worker_joins(&mut stage);
    the_worker_leaves(&mut stage);
}

/// A person gets a kubeconfig of their own, which ends soon and lets them do what RBAC says: nothing yet.
fn a_user_is_let_in(stage: &Stage) {
    let file = stage.data().join("jane.kubeconfig");
    let (user, of) = (
        ["--user", "jane", "--group", "shop"],
        file.to_str().unwrap(),
    );
    let mut make = stage.windlass(&["kubeconfig", "first", "--expires", "10m", "--write", of]);
    let made = make.args(user).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(said.contains("the certificate of jane ends at "), "{said}");
    let who = ["auth", "whoami", "--output", "json"];
    let who = output(&mut stage.kubectl_by(&file, &who)).unwrap();
    let who: Value = serde_json::from_str(&who).unwrap();
    let who = &who["status"]["userInfo"];
    assert_eq!(who["username"], "jane", "{who}");
    let groups = who["groups"].as_array().unwrap();
    assert!(groups.contains(&json!("shop")), "{who}");
    let nodes = stage.kubectl_by(&file, &["get", "nodes"]).output().unwrap();
    let refused = String::from_utf8_lossy(&nodes.stderr);
    assert!(refused.contains("User \"jane\" cannot list"), "{refused}");
}

/// The third host becomes part of the cluster that stands. Runners and the operator die while it does, and the other hosts are left
/// alone.
fn a_worker_joins(stage: &mut Stage) {
    let address = stage.lab.hosts()[2].address.to_string();
    let worker = node("worker-1", json!({"type": "worker"}), &address);
    // What would be done, by the API's own word of what it would hold: nothing is touched.
    let file = stage.data().join("worker.json");
    std::fs::write(&file, worker.to_string()).unwrap();
    let plan = ["plan", "--live", "-f", file.to_str().unwrap()];
    stage
        .says(&plan, "worker-1 is no part of the cluster yet")
        .unwrap();
    assert!(stage.object("clusternodes", "worker-1").is_err());
    stage
        .says(&["plan", "--live"], "nothing: the cluster is built")
        .unwrap();
    let edges = Edges::of(stage, "first-scale-2");
    stage.apply(&worker).unwrap();
    let run = edges.survive(stage, Some("nodes/"));
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_each_step_succeeded_once(&run);
    stage.ready_nodes(2).unwrap();
    stage
        .says(&["logs", "--host", "worker-1"], "kubernetes/kubeadm : ")
        .unwrap();
    for step in run["spec"]["plan"]["steps"].as_array().unwrap() {
        let id = step["id"].as_str().unwrap();
        let bound = step["action"]["engine"]["parameters"]["limited"] == true;
        if bound {
            let mut logs = stage.windlass(&["logs", "--step", id, "--host", "master-1"]);
            let said = logs.output().unwrap();
            let said = String::from_utf8_lossy(&said.stderr);
            assert!(said.contains("did anything on a host"), "{id}: {said}");
        }
    }
    let node = stage.object("clusternodes", "worker-1").unwrap();
    assert_eq!(node["status"]["state"], "Joined", "{node:#}");
}

/// The third host leaves again: not while a budget holds what it runs, and though runner and operator die while it is reset.
fn the_worker_leaves(stage: &mut Stage) {
    let kubeconfig = stage.kubeconfig().unwrap();
    let held = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "held", "namespace": "default", "labels": {"app": "held"}},
            "spec": {
                "nodeName": "worker-1", "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "sleep", "image": "registry.k8s.io/busybox:1", "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "3600"],
                }],
            },
        },
        {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "holds", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}},
        },
    ]});
    let file = stage.data().join("held.json");
    std::fs::write(&file, held.to_string()).unwrap();
    let kubectl = |stage: &Stage, arguments: &[&str]| {
        let mut kubectl = stage.kubectl_by(&kubeconfig, arguments);
        let answer = kubectl.output().unwrap();
        assert!(answer.status.success(), "{arguments:?}: {answer:?}");
        String::from_utf8(answer.stdout).unwrap()
    };
    kubectl(stage, &["apply", "-f", file.to_str().unwrap()]);
    let (ready, counted) = (
        "--for=condition=Ready",
        "--for=jsonpath={.status.expectedPods}=1",
    );
    kubectl(stage, &["wait", ready, "pod/held", "--timeout=120s"]);
    kubectl(stage, &["wait", counted, "pdb/holds", "--timeout=120s"]);

    let remove = ["node", "remove", "worker-1"];
    stage
        .says(&[&remove[..], &["--dry-run"]].concat(), "drain/pods")
        .unwrap();
    let needed = ["node", "remove", "master-1", "--dry-run"];
    stage
        .says(&needed, "only host of the control plane")
        .unwrap();
    stage.says(&remove, "is held until").unwrap();
    let run = Edges::of(stage, "first-remove-3").survive(stage, None);
    let failure = &run["status"]["failure"];
    assert_eq!(failure["code"], "BudgetForbids", "{run:#}");
    let message = failure["message"].as_str().unwrap();
    assert!(
        message.contains("default/held on worker-1, held by default/holds"),
        "{message}"
    );
    let unschedulable = "jsonpath={.spec.unschedulable}";
    let cordoned = kubectl(stage, &["get", "node", "worker-1", "-o", unschedulable]);
    assert_eq!(cordoned, "", "nothing has begun");
    let keep = ["node", "keep", "worker-1"];
    stage.says(&keep, "clusternode worker-1 stays").unwrap();
    wait_until("the host to count as part", stage.patience(), || {
        let node = stage.object("clusternodes", "worker-1")?;
        Ok((node["status"]["state"] == "Joined").then_some(()))
    })
    .unwrap();
    // Deleted once more it is another wish than the one that was taken back.
    stage.says(&remove, "is held until").unwrap();
    let run = Edges::of(stage, "first-remove-4").survive(stage, None);
    assert_eq!(run["status"]["failure"]["code"], "BudgetForbids", "{run:#}");

    kubectl(stage, &["delete", "pdb", "holds"]);
    let edges = Edges::of(stage, "first-remove-4");
    stage.says(&["retry"], "first-remove-4").unwrap();
    let run = edges.survive(stage, Some("remove/reset"));
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_each_step_succeeded_once(&run);
    stage
        .until_gone("clusternode", "worker-1", stage.patience())
        .unwrap();
    stage.ready_nodes(1).unwrap();
    let host = &stage.lab.hosts()[2].name;
    let left = "ls /etc/kubernetes/kubelet.conf; pgrep -x kubelet";
    let left = stage.lab.ssh(host, left).unwrap();
    assert!(left.stdout.is_empty(), "{left:?}");
}

/// A control plane that is a worker too, and etcd on a host of its own.
fn with_etcd_apart(stage: &Stage) -> Value {
    let mut spec = json!({
        "kubernetesVersion": "1.34.4",
        "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
        "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
        "operations": {"creation": {"startConditions": {"nodes": {"minimum": 2}}}},
    });
    stage.choose(&mut spec);
    let hosts = stage.lab.hosts().iter();
    let kinds = [
        ("etcd-1", json!({"type": "etcd"})),
        (
            "master-1",
            json!({"type": "master", "roles": ["control-plane", "worker"]}),
        ),
    ];
    let nodes = kinds
        .into_iter()
        .zip(hosts)
        .map(|((name, spec), host)| node(name, spec, &host.address.to_string()));
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        stage.secret().unwrap(),
        json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": NAMESPACE}, "spec": spec,
        }),
    ];
    items.extend(nodes);
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// The steps that are at work, and have done something.
pub(crate) fn at_work(run: &Value) -> Vec<String> {
    let steps = run["status"]["steps"].as_array().into_iter().flatten();
    steps
        .filter(|step| step["phase"] == "Running" && step["progress"]["done"].as_u64() > Some(0))
        .filter_map(|step| step["id"].as_str().map(str::to_owned))
        .collect()
}

pub(crate) fn process(run: &Value) -> Option<i64> {
    run["status"]["runner"]["pid"].as_i64()
}

pub(crate) fn stage(hosts: u8, dead: u8) -> Stage {
    let progress = lab::progress::Terminal::default();
    Stage::set_with(options(hosts, dead), kubespray(), &progress).unwrap()
}

pub(crate) fn options(hosts: u8, dead: u8) -> Options {
    Options {
        hosts,
        dead,
        windlass: windlass().unwrap(),
        directory: root(),
        playbooks: root().join("bundle"),
    }
}

/// Real kubespray, where the environment names one.
pub(crate) fn kubespray() -> Option<Kubespray> {
    Kubespray::from_environment(env!("CARGO_BIN_EXE_mirror").into()).unwrap()
}

/// The play that is at work, and the process of its runner.
pub(crate) fn running(stage: &Stage) -> anyhow::Result<Option<(String, i64)>> {
    let run = stage.run()?;
    let step = at_work(&run).into_iter().next();
    Ok(step.zip(process(&run)))
}

pub(crate) fn assert_each_step_succeeded_once(run: &Value) {
    let history = run["status"]["history"].as_array().unwrap();
    for step in run["spec"]["plan"]["steps"].as_array().unwrap() {
        let done = history
            .iter()
            .filter(|r| r["step"] == step["id"] && r["event"] == "StepSucceeded")
            .count();
        assert_eq!(done, 1, "step {} in {history:#?}", step["id"]);
    }
}

/// With `deletionPolicy: Reset`, deleting the Cluster removes Kubernetes from the hosts.
fn assert_reset_leaves_nothing(stage: &Stage) {
    let wish = json!({"spec": {"deletionPolicy": "Reset"}});
    stage.merge("cluster", "first", &wish).unwrap();
    stage.delete("cluster", "first").unwrap();
    stage
        .until_gone("cluster", "first", Duration::from_mins(10))
        .unwrap();
    for host in stage.lab.hosts() {
        let left = stage
            .lab
            .ssh(
                &host.name,
                "ls /etc/kubernetes/admin.conf /var/lib/etcd/member; pgrep -x kubelet",
            )
            .unwrap();
        assert!(
            left.stdout.is_empty(),
            "{}: {}",
            host.name,
            String::from_utf8_lossy(&left.stdout)
        );
    }
}
