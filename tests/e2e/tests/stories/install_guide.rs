//! The install guide, `docs/in-cluster.md`, by its own commands: read from the document, run in a real cluster.
//!
//! `REGISTRY` stands for the place that the node has the images from. The images of `cargo xtask image` are in the
//! directory that `WINDLASS_IMAGES` names (`cargo xtask test` makes them).

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use e2e::{Guide, root, wait_until, windlass};
use lab::{LabOptions, Node, command::output, progress::Terminal};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(3);

/// Commands of the guide that other suites run: what makes images, and what needs a second cluster or is the test itself.
const ELSEWHERE: [&str; 5] = [
    "cargo xtask image",
    "cargo xtask testenv",
    "windlass -n my-cluster kubeconfig",
    "windlass -n my-cluster move",
    "windlass --kubeconfig",
];

/// A cluster of one node, and a directory of programs under the names that the guide uses.
struct Reader {
    node: Node,
    programs: PathBuf,
}

impl Reader {
    fn start() -> Self {
        let options = LabOptions {
            hosts: 1,
            refusing: 1,
            ..LabOptions::default()
        };
        let images = std::env::var_os("WINDLASS_IMAGES").map(PathBuf::from);
        assert!(
            images.is_some(),
            "WINDLASS_IMAGES names the directory of `cargo xtask image --debug --out DIR`"
        );
        let images = images.unwrap();
        let helm = lab::helm(&Terminal::default()).unwrap();
        let node = Node::start(options, &Terminal::default()).unwrap();
        for image in fs::read_dir(images).unwrap().flatten() {
            if image.path().extension().is_some_and(|end| end == "tar") {
                node.import(&image.path()).unwrap();
            }
        }
        let programs = node.lab.dir().join("programs");
        fs::create_dir(&programs).unwrap();
        symlink(helm, programs.join("helm")).unwrap();
        symlink(node.programs().join("kubectl"), programs.join("kubectl")).unwrap();
        symlink(windlass().unwrap(), programs.join("kubectl-windlass")).unwrap();
        Self { node, programs }
    }

    /// A shell in the repository, as a reader has it.
    fn shell(&self, commands: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("bash");
        shell
            .args(["-euc", commands])
            .current_dir(root())
            .env("PATH", format!("{}:{path}", self.programs.display()))
            .env("KUBECONFIG", self.node.kubeconfig())
            .env("KUBECACHEDIR", self.node.lab.dir().join("guide-cache"))
            .env("HELM_CACHE_HOME", self.node.lab.dir().join("helm"));
        self.node.lab.enter_network(&shell)
    }

    fn run(&self, commands: &str) -> String {
        output(&mut self.shell(commands)).unwrap()
    }

    /// Starts a command that goes on for ever, and ends it when it has said this.
    fn says(&self, command: &str, words: &str) {
        let file = self.node.lab.dir().join("said");
        let mut child = self
            .shell(&format!("exec {command}"))
            .stdin(Stdio::null())
            .stdout(fs::File::create(&file).unwrap())
            .spawn()
            .unwrap();
        let said = wait_until(&format!("{command} to say {words}"), LIMIT, || {
            let ended = child.try_wait()?;
            let said = fs::read_to_string(&file)?;
            anyhow::ensure!(ended.is_none() || said.contains(words), "it ended: {said}");
            Ok(said.contains(words).then_some(()))
        });
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        said.unwrap();
    }
}

#[test]
fn the_guide_installs_uses_and_uninstalls_windlass() {
    // Where the images are that the node has.
    let mut guide = Guide::read("docs/in-cluster.md")
        .unwrap()
        .with("REGISTRY/", "docker.io/library/");
    for start in ELSEWHERE {
        guide.leave(start);
    }
    let chart = guide.take(&["helm install windlass"]);
    let manifests = guide.take(&["kubectl apply", "manifests/windlass.yaml"]);
    let namespaced = guide.take(&["kubectl apply", "windlass-namespaced.yaml"]);
    let plugin = guide.take(&["kubectl windlass"]);
    let metrics = guide.take(&["metrics.enabled=true"]);
    let chart_away = guide.take(&["helm uninstall"]);
    let manifests_away = guide.take(&["kubectl delete", "manifests/windlass.yaml"]);
    guide.is_done();

    let reader = Reader::start();
    reader.run(&chart);
    let rollout = "kubectl -n windlass-system rollout status deployment/windlass --timeout=180s";
    reader.run(rollout);
    the_api_takes_what_the_chart_gives(&reader);
    a_cluster(&reader);
    for command in plugin.lines() {
        let words = if command.contains("logs") {
            "step"
        } else {
            "first"
        };
        reader.says(command, words);
    }
    as_a_plugin(&reader);
    reader.run("kubectl create namespace monitoring; kubectl -n monitoring create serviceaccount prometheus-k8s");
    reader.run(&metrics);
    rules_and_board_use_what_is_measured(&reader);
    reader.run("kubectl delete --timeout=120s namespace my-cluster");
    reader.run(&chart_away);
    reader.run("kubectl delete --timeout=120s namespace windlass-system");

    reader.run(&manifests);
    reader.run(&manifests_away);
    reader.run(&namespaced);
    let rights = reader.run("kubectl auth can-i list clusters.kubespray.k8s.io --as=system:serviceaccount:windlass-system:windlass || true");
    assert_eq!(rights.trim(), "no");
}

/// Both forms of the chart pass the real server's checks.
fn the_api_takes_what_the_chart_gives(reader: &Reader) {
    for namespaced in [false, true] {
        let checked = reader.run(&format!(
            "helm template windlass deploy/chart/windlass --namespace windlass-system --set namespaced={namespaced} --set providers.enabled=true | \
             kubectl apply --dry-run=server --server-side --force-conflicts -f -"
        ));
        let kind = if namespaced {
            "role.rbac"
        } else {
            "clusterrole.rbac"
        };
        assert!(checked.contains(kind), "{checked}");
        let gathers = checked.contains("windlass-providers-granted");
        assert_eq!(gathers, !namespaced, "{checked}");
    }
}

/// A cluster whose only host refuses every connection: its run starts, and fails for that.
fn a_cluster(reader: &Reader) {
    let host = reader.node.lab.hosts().last().unwrap().address.to_string();
    let key = reader.node.lab.key_path().display().to_string();
    reader.run(&format!(
        "kubectl create namespace my-cluster
         kubectl -n my-cluster create secret generic ssh --from-file=ssh-privatekey={key}"
    ));
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": "host-1", "namespace": "my-cluster"},
            "spec": {"type": "master", "inventory": {"ansible_host": host}},
        },
        {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": "my-cluster"},
            "spec": {
                "kubespray": {"version": "2.30.0", "source": {"path": "/opt/windlass/bundle"}},
                "kubernetesVersion": "1.34.4", "ssh": {"privateKeySecretRef": {"name": "ssh"}},
            },
        },
    ]});
    let file = reader.node.lab.dir().join("objects.json");
    fs::write(&file, objects.to_string()).unwrap();
    reader.run(&format!(
        "kubectl apply --server-side -f {}",
        file.display()
    ));
    wait_until("the run to fail", LIMIT, || {
        let runs =
            reader.run("kubectl -n my-cluster get runs -o jsonpath={.items[*].status.phase}");
        Ok((runs == "Failed").then_some(()))
    })
    .unwrap();
}

/// Commands find kubectl's API.
fn as_a_plugin(reader: &Reader) {
    let plugin =
        |arguments: &str| reader.run(&format!("kubectl windlass -n my-cluster {arguments}"));
    let status: Value = serde_json::from_str(
        &output(&mut reader.shell("kubectl windlass -n my-cluster status -o json || true"))
            .unwrap(),
    )
    .unwrap();
    assert!(status.to_string().contains("Failed"), "{status:#}");
    assert!(plugin("logs").contains("step"));
    for kind in ["clusters", "clusternodes", "runs"] {
        let columns = |text: String| {
            let head = text.lines().next().unwrap_or_default().to_owned();
            head.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let own = columns(plugin(&format!("get {kind} -o wide")));
        let kubectls = columns(reader.run(&format!("kubectl -n my-cluster get {kind} -o wide")));
        assert_eq!(own, kubectls, "{kind}");
    }
}

/// Alert rules and the board ask for nothing that an operator does not tell.
fn rules_and_board_use_what_is_measured(reader: &Reader) {
    let deploy = root().join("deploy");
    let mut used = BTreeSet::new();
    for file in ["manifests/monitoring.yaml", "grafana/windlass.json"] {
        used.extend(names(&deploy.join(file)));
    }
    assert!(used.len() > 5, "{used:?}");
    let token = reader.run("kubectl -n monitoring create token prometheus-k8s");
    // The one that stands by measures less.
    wait_until(&format!("all of {used:?} to be told"), LIMIT, || {
        let metrics = told_by_all(reader, token.trim());
        let told = |name: &String| metrics.contains(&format!("# TYPE {name} "));
        Ok(used.iter().all(told).then_some(()))
    })
    .unwrap();
}

/// The metrics of all replicas, asked for in the pod network as Prometheus does.
fn told_by_all(reader: &Reader, token: &str) -> String {
    let pods = "kubectl -n windlass-system get pods -o jsonpath={.items[*].status.podIP}";
    let ask = "import ssl, sys, urllib.request as u\n\
               r = u.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + sys.argv[2]})\n\
               print(u.urlopen(r, context=ssl._create_unverified_context()).read().decode())";
    let mut told = String::new();
    for pod in reader.run(pods).split_whitespace() {
        let ask = format!("python3 -c \"{ask}\" https://{pod}:8443/metrics {token}");
        let answer = reader.node.lab.ssh("host-1", &ask).unwrap();
        told.push_str(&String::from_utf8_lossy(&answer.stdout));
    }
    told
}

/// The metrics that the expressions of a file name.
fn names(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let expressions = text.lines().filter(|line| {
        line.trim_start()
            .trim_start_matches('"')
            .starts_with("expr")
    });
    let words = expressions.flat_map(|line| {
        line.split(|letter: char| {
            !(letter.is_ascii_alphanumeric() || letter == '_' || letter == '-')
        })
    });
    words
        .filter(|word| !word.contains('-'))
        .filter(|word| word.starts_with("windlass_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}
