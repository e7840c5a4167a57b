//! What people do to a cluster of their own hand, on one that another story has raised: hooks on a removal, and the toolbox.

use e2e::{Stage, wait_until};
use serde_json::{Value, json};

/// The names of the tokens by which nodes join.
const TOKENS: &str = "/usr/local/bin/kubectl --kubeconfig=/etc/kubernetes/admin.conf --namespace kube-system get secrets \
                      --field-selector type=bootstrap.kubernetes.io/token --output name";
/// What the hooks of [`remove_with_hooks`] leave on hosts.
const MARK: &str = "/root/mark";

/// Hooks at the steps of a removal: a script and a playbook leave marks, one does not end, and one fails until a person mends what it
/// asks for.
pub(crate) fn remove_with_hooks(stage: &Stage, leaving: &str) {
    let mark = format!(
        "#!/bin/sh\nset -eu\necho \"$WINDLASS_HOST $WINDLASS_OPERATION $WINDLASS_STEP {{{{ inventory_hostname }}}}\" >> {MARK}\n"
    );
    let told = "- hosts: kube_node\n  gather_facts: false\n  tasks:\n    - name: Tell\n      ansible.builtin.copy:\n        \
                content: \"{{ inventory_hostname }} of {{ groups['kube_control_plane'] | first }}\"\n        dest: /root/told\n";
    let alone = |hook: Value| {
        let mut hook = hook;
        hook["hosts"] = json!(["worker-1"]);
        hook["operations"] = json!(["Remove"]);
        hook
    };
    let mut everywhere = alone(json!({
        "name": "mark", "before": "drain/pods", "script": {"configMapKeyRef": {"name": "hooks", "key": "mark"}},
    }));
    everywhere["hosts"] = json!(["kube_control_plane", "worker-1"]);
    let image = |name: &str, more: Value| {
        let mut hook = json!({"name": name, "after": "drain/pods", "operations": ["Remove"], "image": {
            "name": "registry.k8s.io/busybox:1", "command": ["sh", "-c"],
        }});
        for (field, value) in more.as_object().unwrap() {
            match field.as_str() {
                "args" => hook["image"]["args"] = json!([value]),
                "name" => hook["image"]["name"] = value.clone(),
                _ => hook[field] = value.clone(),
            }
        }
        hook
    };
    let hooks = json!([
        image(
            "pod",
            json!({
                "hosts": ["worker-1"],
                "args": "echo \"$WINDLASS_HOST $WINDLASS_OPERATION $WINDLASS_STEP $(id -u)\"; test ! -e /var/run/secrets",
            })
        ),
        image(
            "says-no",
            json!({"onFailure": "Ignore", "args": "echo no licence >&2; exit 3"})
        ),
        image(
            "missing",
            json!({
                "hosts": ["worker-1"], "onFailure": "Ignore", "timeout": "1m", "name": "127.0.0.1:1/none@sha256:".to_owned() + &"0".repeat(64),
            })
        ),
        everywhere,
        alone(json!({"name": "told", "after": "drain/pods", "playbook": {"inline": told}})),
        alone(json!({
            "name": "endless", "after": "drain/pods", "timeout": "2s", "onFailure": "Ignore",
            "script": {"inline": "#!/bin/sh\nsleep 4242\n"},
        })),
        alone(json!({
            "name": "asks", "before": "forget/nodes", "onFailure": "Pause",
            "script": {"inline": "#!/bin/sh\ntest -e /root/mended || { echo 'nobody has mended it' >&2; exit 3; }\n"},
        })),
    ]);
    stage
        .apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "hooks", "namespace": e2e::NAMESPACE}, "data": {"mark": mark},
        }))
        .unwrap();
    stage
        .merge("cluster", "first", &json!({"spec": {"hooks": hooks}}))
        .unwrap();
    let remove = ["node", "remove", leaving];
    stage
        .says(&[&remove[..], &["--dry-run"]].concat(), "hook/mark")
        .unwrap();
    stage.says(&remove, "is held until").unwrap();

    let paused = wait_until("a hook to pause the run", stage.patience(), || {
        let run = stage.run()?;
        Ok((run["status"]["phase"] == "Paused").then_some(run))
    })
    .unwrap();
    let asks = step(&paused, "hook/asks");
    assert_eq!(asks["failure"]["code"], "HookFailed", "{paused:#}");
    let said = asks["failure"]["message"].as_str().unwrap();
    assert!(said.contains("hook asks (before forget/nodes)"), "{said}");
    let history = paused["status"]["history"].as_array().unwrap();
    let ignored = history.iter().any(|record| {
        let detail = record["detail"].as_str().unwrap_or_default();
        record["step"] == "hook/endless" && detail.contains("ignored: HookTimedOut")
    });
    assert!(ignored, "{history:#?}");
    images(stage, history);
    assert_eq!(on(stage, 1, "pgrep -f 'sleep 424[2]'"), "");

    on(stage, 1, "touch /root/mended");
    stage.says(&["resume"], "tries the step again").unwrap();
    let marked = |host: &str| format!("{host} Remove drain/pods {{{{ inventory_hostname }}}}\n");
    assert_eq!(on(stage, 0, &format!("cat {MARK}")), marked("master-1"));
    assert_eq!(on(stage, 1, &format!("cat {MARK}")), marked("worker-1"));
    assert_eq!(on(stage, 1, "cat /root/told"), "worker-1 of master-1");
    assert_eq!(on(stage, 0, "ls /root/told 2>/dev/null"), "");
}

/// The hooks that are images have run as pods, of which none is left.
fn images(stage: &Stage, history: &[Value]) {
    let said = |step: &str| {
        let mut ended = history
            .iter()
            .filter(|record| record["step"] == step && record["event"] == "StepSucceeded");
        let record = ended.next().unwrap_or_else(|| panic!("{history:#?}"));
        record["detail"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(said("hook/pod"), "");
    stage
        .says(
            &["logs", "--step", "hook/pod"],
            "worker-1: worker-1 Remove drain/pods 0",
        )
        .unwrap();
    let refused = said("hook/says-no");
    for words in [
        "ignored: HookFailed: hook says-no",
        "exit code 3: no licence",
    ] {
        assert!(refused.contains(words), "{refused}");
    }
    let missing = said("hook/missing");
    for words in ["HookFailed: hook missing", "ErrImagePull"] {
        assert!(missing.contains(words), "{missing}");
    }
    let kubeconfig = stage.kubeconfig().unwrap();
    let pods = [
        "get",
        "pods",
        "--namespace",
        "windlass-hooks",
        "--output",
        "name",
    ];
    let pods = stage.kubectl_by(&kubeconfig, &pods).output().unwrap();
    assert!(pods.status.success() && pods.stdout.is_empty(), "{pods:?}");
}

/// The toolbox, verb by verb, on a control plane and a worker.
pub(crate) fn tools(stage: &Stage) {
    let kubeconfig = stage.kubeconfig().unwrap();
    let cordoned = || {
        let question = [
            "get",
            "node",
            "worker-1",
            "-o",
            "jsonpath={.spec.unschedulable}",
        ];
        let answer = stage.kubectl_by(&kubeconfig, &question).output().unwrap();
        String::from_utf8(answer.stdout).unwrap()
    };
    tool(stage, &["node", "cordon", "worker-1"]);
    assert_eq!(cordoned(), "true");
    tool(stage, &["node", "drain", "worker-1"]);
    assert_eq!(cordoned(), "true");
    tool(stage, &["node", "uncordon", "worker-1"]);
    assert_eq!(cordoned(), "");

    let scheduler = || on(stage, 0, "pgrep -x kube-scheduler");
    let before = scheduler();
    tool(stage, &["node", "restart", "kube-scheduler", "master-1"]);
    let after = scheduler();
    assert!(!after.is_empty() && after != before, "{before} {after}");

    what_is_only_shown_is_not_done(stage);
    certificates(stage);
    token(stage);
}

fn what_is_only_shown_is_not_done(stage: &Stage) {
    let before = stage.run().unwrap()["metadata"]["name"].clone();
    let tokens = || on(stage, 0, TOKENS);
    let tokens_before = tokens();
    for (verb, step) in [
        ("token", "token/make"),
        ("join-command", "token/make"),
        ("certificates", "certificates/look"),
    ] {
        let said = stage.windlass(&["cluster", verb, "--dry-run"]).output();
        let said = said.unwrap();
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success() && text.contains(step), "{said:?}");
        assert!(!text.contains("kubeadm join"), "{text}");
    }
    assert_eq!(stage.run().unwrap()["metadata"]["name"], before);
    assert_eq!(tokens(), tokens_before);
    let cluster = stage.object("clusters", "first").unwrap();
    let asked = cluster["metadata"]["annotations"]["kubespray.k8s.io/toolbox"].to_string();
    assert!(asked.contains("restart kube-scheduler"), "{asked}");
}

fn certificates(stage: &Stage) {
    let answer = stage
        .windlass(&["cluster", "certificates", "--node", "master-1,worker-1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&answer.stdout);
    assert!(answer.status.success(), "{answer:?}");
    assert!(
        said.contains("certificates on 2 hosts; the first to end"),
        "{said}"
    );
    stage
        .says(&["logs", "--step", "certificates/look"], "apiserver.crt")
        .unwrap();
}

/// A token lets somebody in, for whom the cluster is that which the command names; and nothing but the cluster has it.
fn token(stage: &Stage) {
    let answer = stage
        .windlass(&["cluster", "join-command", "--expires", "10m"])
        .output()
        .unwrap();
    assert!(answer.status.success(), "{answer:?}");
    let command = String::from_utf8(answer.stdout).unwrap();
    let words: Vec<_> = command.split_whitespace().collect();
    let ["kubeadm", "join", server, "--token", token, _, authority] = words.as_slice() else {
        panic!("{command}");
    };
    assert!(server.ends_with(":6443"), "{command}");
    let hash = "openssl x509 -in /etc/kubernetes/ssl/ca.crt -noout -pubkey | openssl pkey -pubin -outform DER | sha256sum";
    let hash = on(stage, 0, hash);
    assert_eq!(authority.trim_start_matches("sha256:"), &hash[..64]);
    let whoami = format!(
        "/usr/local/bin/kubectl --kubeconfig=/dev/null --server=https://127.0.0.1:6443 \
         --certificate-authority=/etc/kubernetes/ssl/ca.crt --token={token} auth whoami -o json"
    );
    let known: Value = serde_json::from_str(&on(stage, 0, &whoami)).unwrap();
    let known = &known["status"]["userInfo"];
    let (name, second) = token.split_once('.').unwrap();
    assert_eq!(
        known["username"],
        format!("system:bootstrap:{name}"),
        "{known:#}"
    );
    let groups = known["groups"].to_string();
    assert!(
        groups.contains("system:bootstrappers:kubeadm:default-node-token"),
        "{groups}"
    );

    for kind in ["runs", "events", "clusters", "secrets"] {
        let told = serde_json::to_string(&stage.objects(kind).unwrap()).unwrap();
        assert!(!told.contains(second), "{kind} tell a token");
    }
    let mut search = std::process::Command::new("grep");
    let found = search
        .args(["-rlF", "-e", second])
        .arg(stage.data())
        .output()
        .unwrap();
    assert!(found.stdout.is_empty(), "{found:?}");
}

/// Asks for something of the toolbox, and waits for the end of its run.
fn tool(stage: &Stage, arguments: &[&str]) {
    let before = stage.run().unwrap()["metadata"]["name"].clone();
    stage.says(arguments, "is carried out").unwrap();
    let run = stage.finished(stage.patience()).unwrap();
    assert_ne!(run["metadata"]["name"], before, "{arguments:?}");
    assert_eq!(
        run["spec"]["operation"], "Toolbox",
        "{arguments:?}: {run:#}"
    );
    assert_eq!(
        run["status"]["phase"], "Succeeded",
        "{arguments:?}: {run:#}"
    );
}

fn step<'a>(run: &'a Value, id: &str) -> &'a Value {
    let mut steps = run["status"]["steps"].as_array().unwrap().iter();
    steps.find(|step| step["id"] == id).unwrap()
}

/// What a command prints on a host, by its place.
fn on(stage: &Stage, host: usize, command: &str) -> String {
    let name = &stage.lab.hosts()[host].name;
    let answer = stage.lab.ssh(name, command).unwrap();
    String::from_utf8(answer.stdout).unwrap()
}
