//! A stage with small playbooks, and what its stories ask and do.

use std::{
    fs,
    ops::{Deref, DerefMut},
    process::Command,
    time::Duration,
};

use e2e::{NAMESPACE, Options, Stage, wait_until};
use serde_json::{Value, json};

/// A step takes seconds; a loaded machine may take much longer.
pub const LIMIT: Duration = Duration::from_mins(4);

/// The hosts of the cluster: their names there and in the lab, and what they are.
const NODES: [(&str, &str, &str); 3] = [
    ("master-1", "host-1", "master"),
    ("worker-1", "host-2", "worker"),
    ("worker-2", "host-3", "worker"),
];

pub struct Story {
    stage: Stage,
    playbooks: tempfile::TempDir,
}

impl Deref for Story {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl DerefMut for Story {
    fn deref_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }
}

impl Story {
    /// Boots so many hosts; Windlass is not started yet.
    pub fn set(hosts: u8) -> Self {
        let playbooks = tempfile::tempdir().unwrap();
        let tree = playbooks.path().join("playbooks");
        let copied = Command::new("cp")
            .arg("--archive")
            .arg(e2e::root().join("bundle"))
            .arg(&tree)
            .status();
        assert!(copied.unwrap().success());
        let cluster: String = ["alpha", "beta", "gamma"].map(play).concat();
        fs::write(tree.join("cluster.yml"), cluster).unwrap();
        fs::write(tree.join("reset.yml"), play("reset")).unwrap();
        let options = Options {
            hosts,
            dead: 0,
            windlass: e2e::windlass().unwrap(),
            directory: e2e::root(),
            playbooks: tree,
        };
        let stage = Stage::set(options, &lab::progress::Terminal::default()).unwrap();
        Self { stage, playbooks }
    }

    fn source(&self) -> String {
        let tree = self.playbooks.path().join("playbooks");
        tree.display().to_string()
    }

    /// Has a play do this too, before it leaves its mark. To be said before the playbooks are read.
    pub fn also(&self, play: &str, task: &str) {
        let file = self.playbooks.path().join("playbooks/cluster.yml");
        let text = fs::read_to_string(&file).unwrap();
        let mark = format!("    - name: Leave a mark\n      ansible.builtin.shell: echo {play} ");
        assert!(text.contains(&mark), "{text}");
        fs::write(&file, text.replace(&mark, &format!("{task}{mark}"))).unwrap();
    }

    /// Applies the namespace, the ssh key, a Cluster with this spec besides its source, and all hosts.
    pub fn apply_cluster(&self, spec: &Value) {
        let mut spec = spec.clone();
        spec["kubespray"] = json!({"version": "2.30.0", "source": {"path": self.source()}});
        spec["kubernetesVersion"] = json!("1.34.4");
        spec["ssh"]["privateKeySecretRef"] = json!({"name": "ssh"});
        let mut items = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            self.secret().unwrap(),
        ];
        for (name, host, kind) in NODES {
            let Ok(host) = self.lab.host(host) else {
                continue;
            };
            items.push(json!({
                "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"type": kind, "inventory": {"ansible_host": host.address.to_string()}},
            }));
        }
        items.push(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": NAMESPACE}, "spec": spec,
        }));
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))
            .unwrap();
    }

    /// Runs a shell command on a host of the lab and gives what it printed.
    pub fn on(&self, host: &str, command: &str) -> String {
        let output = self.lab.ssh(host, command).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Lets a play wait on a host, until it is released.
    pub fn hold(&self, play: &str, host: &str) {
        self.on(host, &format!("touch /root/hold-{play}"));
    }

    pub fn release(&self, play: &str, host: &str) {
        self.on(host, &format!("rm /root/hold-{play}"));
    }

    /// Lets a play do this on a host, and fail where it fails, until the file is removed.
    pub fn fail(&self, play: &str, host: &str, script: &str) {
        self.on(
            host,
            &format!("cat > /root/fail-{play} << 'END'\n{script}\nEND"),
        );
    }

    /// The plays that were done on a host, in order.
    pub fn done(&self, host: &str) -> Vec<String> {
        let marks = self.on(host, "cat /root/done");
        marks.lines().map(str::to_owned).collect()
    }

    /// Waits until the newest run is as wanted.
    pub fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        wait_until(what, LIMIT, || {
            last = self.run()?;
            Ok(wanted(&last).then(|| last.clone()))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {last:#}\n{}", self.log_tail()))
    }

    pub fn until_phase(&self, phase: &str) -> Value {
        self.until(&format!("the run to be {phase}"), |run| {
            run["status"]["phase"] == phase
        })
    }

    /// Waits until a play is held on its hosts.
    pub fn until_held(&self, play: &str) -> Value {
        self.until(&format!("{play} to be at work"), |run| {
            let step = step(run, &format!("/{play}"));
            step["phase"] == "Running"
                && step["activity"]
                    .as_str()
                    .unwrap_or_default()
                    .contains("Wait")
        })
    }

    /// Counts what only a real cluster can do as done.
    pub fn skip_what_needs_kubernetes(&self) {
        for step in ["kubeconfig/store", "health/check"] {
            let reason = "there is no Kubernetes";
            self.says(
                &["skip", "--step", step, "--reason", reason],
                "count the step as done",
            )
            .unwrap();
        }
    }

    /// A condition of the cluster: its status, reason and message.
    pub fn condition(&self, kind: &str) -> (String, String, String) {
        let cluster = self.object("clusters", "first").unwrap();
        let conditions = cluster["status"]["conditions"].as_array().cloned();
        let found = conditions
            .unwrap_or_default()
            .into_iter()
            .find(|condition| condition["type"] == kind)
            .unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    /// Waits until the cluster's condition has that reason, and all of the words in its message.
    pub fn until_condition(&self, kind: &str, reason: &str, words: &[&str]) {
        let mut last = (String::new(), String::new(), String::new());
        wait_until(&format!("{kind} to say {reason}"), LIMIT, || {
            last = self.condition(kind);
            let all = words.iter().all(|word| last.2.contains(word));
            Ok((last.1 == reason && all).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {words:?} in {last:?}\n{}", self.log_tail()));
    }

    /// Whether an Event of that reason has all of the words.
    pub fn assert_event(&self, reason: &str, words: &[&str]) {
        let events = self.objects("events").unwrap();
        let told = events.iter().any(|event| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == reason && words.iter().all(|word| message.contains(word))
        });
        assert!(told, "{reason} {words:?} is not in {events:#?}");
    }

    /// What the journal of a run says on the disk, whether the API answers or not: events and their steps.
    pub fn journal(&self, run: &str) -> Vec<(String, String)> {
        let file = self.data().join("runs").join(NAMESPACE).join(run);
        let text = fs::read_to_string(file.join("journal.jsonl")).unwrap_or_default();
        let records = text.lines().filter_map(|line| {
            let record = serde_json::from_str::<Value>(line).ok()?["record"].take();
            let field = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
            Some((field("event"), field("step")))
        });
        records.collect()
    }
}

/// A step of a run by the end of its id.
pub fn step(run: &Value, id: &str) -> Value {
    let steps = run["status"]["steps"].as_array().cloned();
    let mut steps = steps.unwrap_or_default().into_iter();
    steps
        .find(|step| step["id"].as_str().is_some_and(|known| known.ends_with(id)))
        .unwrap_or_default()
}

pub fn name(run: &Value) -> String {
    run["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Every step of the plan was done, or counted as done, once.
pub fn assert_each_step_once(run: &Value) {
    let history = run["status"]["history"].as_array().unwrap();
    for step in run["spec"]["plan"]["steps"].as_array().unwrap() {
        let ends = history.iter().filter(|record| {
            let event = record["event"].as_str().unwrap_or_default();
            record["step"] == step["id"] && matches!(event, "StepSucceeded" | "StepSkipped")
        });
        assert_eq!(ends.count(), 1, "step {} in {history:#?}", step["id"]);
    }
}

fn play(name: &str) -> String {
    let title = name[..1].to_uppercase() + &name[1..];
    format!(
        "
- name: {title}
  hosts: k8s_cluster:etcd
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - name: Wait while asked
      ansible.builtin.shell: while [ -e /root/hold-{name} ]; do sleep 0.2; done
    - name: Fail where asked
      ansible.builtin.shell: test ! -e /root/fail-{name} || sh /root/fail-{name}
      register: asked
      until: asked is succeeded
      retries: 1
      delay: 0
    - name: Leave a mark
      ansible.builtin.shell: echo {name} >> /root/done
"
    )
}
