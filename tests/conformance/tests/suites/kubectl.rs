//! kubectl at the embedded API and at real ones: what it prints and how it ends must be the same. In a full run that is
//! kubectl of every minor version that can be had, and two versions of the real API. Root is needed.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use conformance::{deviations::commands, target::Target};
use futures::future::try_join_all;
use lab::{Extent, progress::Terminal};
use regex::Regex;

/// What is typed; `FILE` holds one ConfigMap and one Widget, `LIST` two ConfigMaps in a List, `KIND` a definition and
/// `GADGET` an object of it, and `WINDLASS` Windlass's own objects with their statuses. `NS` is the namespace. What begins
/// with `until` is typed again until it succeeds: Kubernetes publishes a schema some time after its kind is established.
const COMMANDS: &[&str] = &[
    "create configmap m --from-literal=a=1 --from-literal=b=2",
    "create secret generic s --from-literal=k=v",
    "create serviceaccount a",
    "get configmap m -o yaml",
    "get configmap m -o json --show-managed-fields",
    "get secret s -o jsonpath={.data.k}",
    "get configmap,secret m s -o name",
    "get configmap m none",
    "label configmap m x=y",
    "label configmap m x=z",
    "annotate configmap m note=seen",
    "get configmap -l x=y --no-headers -o custom-columns=N:.metadata.name,D:.data",
    "patch configmap m --type=merge -p {\"data\":{\"a\":null}}",
    "patch configmap m --type=strategic -p {\"data\":{\"c\":\"3\"}}",
    "apply -f FILE --dry-run=server",
    "apply -f FILE",
    "apply -f FILE",
    "apply --server-side -f FILE --field-manager=other",
    "apply --server-side -f FILE --field-manager=other --force-conflicts",
    "apply --server-side -f FILE --force-conflicts",
    "get configmap f -o yaml --show-managed-fields",
    "apply -f FILE",
    "diff -f FILE",
    "apply -f LIST",
    "apply --server-side -f LIST",
    "delete -f LIST",
    "get widget w",
    "get wd w -o wide --show-labels",
    "get widgets --field-selector=spec.color=red",
    "explain widget.spec.hosts",
    "patch widget w --subresource=status --type=merge -p {\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
    "wait widget/w --for=condition=Ready --timeout=5s",
    "wait widget/w --for=jsonpath={.spec.size}=3 --timeout=5s",
    "patch widget w --type=merge -p {\"spec\":{\"size\":100}}",
    "get widget w -o jsonpath={.spec.nested}",
    "api-resources --api-group=example.com",
    "get nothings",
    "auth can-i create widgets",
    "auth whoami --as=jane",
    "get configmap m --as=jane",
    "delete widget w --timeout=10s",
    "delete configmap m --dry-run=server",
    "delete configmap -l x --timeout=10s",
    "delete secret none",
    "delete secret none --ignore-not-found",
    "get crd widgets.example.com",
    "apply -f KIND",
    "wait crd/gadgets.NS.example.com --for=condition=Established --timeout=30s",
    "get crd gadgets.NS.example.com -o name",
    "apply -f KIND",
    "apply --server-side -f GADGET",
    "apply --server-side -f GADGET",
    "get gadgets",
    "get gd g -o jsonpath={.spec}",
    "scale gadget g --replicas=4",
    "scale gadget g --replicas=5 --current-replicas=1",
    "scale gadget/g gd/g --replicas=6 --current-replicas=4",
    "scale gadgets --all --replicas=2 --dry-run=server",
    "get gadget g --subresource=scale",
    "get gadget g --subresource=scale -o jsonpath={.spec.replicas}",
    "patch gadget g --subresource=scale --type=merge -p {\"spec\":{\"replicas\":-1}}",
    "scale configmap f --replicas=2",
    "api-resources --api-group=NS.example.com -o name",
    "until explain gadget.spec",
    "until explain gadgets.NS.example.com.spec.size",
    "patch crd gadgets.NS.example.com --type=merge -p {\"spec\":{\"scope\":\"Cluster\"}}",
    "delete crd gadgets.NS.example.com --timeout=30s",
    "get crd gadgets.NS.example.com",
    "patch secret s --type=json -p [{\"op\":\"remove\",\"path\":\"/data/none\"}]",
    "explain widget.spec.hosts --output=plaintext-openapiv2",
    "apply -f WINDLASS",
    "replace --subresource=status -f WINDLASS",
    "get clusters,clusternodes,runs",
    "get clusters,clusternodes,runs -o wide",
    "get kc first -o yaml",
    "get runs --sort-by=.status.progress",
    "get runs -o jsonpath={.items[*].status.phase}",
    "describe cluster first",
    "describe clusternodes",
    "describe runs",
    "explain cluster.spec.operations",
    "explain clusternode.spec --recursive",
    "explain run.status.phase",
    "wait cluster/first --for=condition=Ready --timeout=30s",
    "wait cluster/second --for=condition=Ready=False --timeout=30s",
    "wait run/second-create --for=jsonpath={.status.phase}=Failed --timeout=30s",
    "patch run first-create --type=merge -p {\"spec\":{\"generation\":2}}",
    "patch clusternode worker-1 --type=merge -p {\"spec\":{\"type\":\"queen\"}}",
];

/// How long a schema may take to be published.
const LIMIT: Duration = Duration::from_mins(1);

const FILE: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: f, labels: {x: 'y'}}
data: {k: v}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
spec: {size: 3, color: red, tags: [a], ports: [{port: 80}]}
";

const LIST: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: l1}, data: {k: v}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: l2}, data: {k: v}}
";

const KIND: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.NS.example.com}
spec:
  group: NS.example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, shortNames: [gd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            description: What is wanted.
            type: object
            required: [size]
            properties:
              size: {description: How large., type: integer}
              mode: {type: string, enum: [slow, fast], default: slow}
";

const GADGET: &str = "
apiVersion: NS.example.com/v1
kind: Gadget
metadata: {name: g}
spec: {size: 3}
";

const WINDLASS: &str = include_str!("../../scenarios/windlass.yaml");

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn kubectl_prints_the_same() -> Result<()> {
    let extent = Extent::of_this_run();
    let programs = move || extent.kubectls(&Terminal::default());
    let programs = tokio::task::spawn_blocking(programs).await??;
    let real = extent.kubernetes().iter();
    let real = real.map(|kubernetes| type_all(Target::real(*kubernetes), &programs));
    let (ours, real) =
        tokio::try_join!(type_all(Target::over_tls(), &programs), try_join_all(real))?;
    let allowed = commands()?;
    let mut different = BTreeSet::new();
    let mut report = String::new();
    let typed = programs.iter().flat_map(|_| COMMANDS);
    for (at, (command, ours)) in typed.zip(&ours).enumerate() {
        if real.iter().any(|real| ours == &real[at]) {
            continue;
        }
        different.insert((*command).to_owned());
        if !allowed.contains(*command) {
            let newest = real.last().map(|real| &real[at]);
            report += &format!("ours: {ours}\nreal: {}\n", newest.unwrap_or(ours));
        }
    }
    println!("{} commands, {} differ", ours.len(), different.len());
    ensure!(
        report.is_empty(),
        "different and not in deviations.json:\n{report}"
    );
    // Some differ for older kubectl alone.
    let gone: Vec<_> = allowed.difference(&different).collect();
    ensure!(
        gone.is_empty() || extent == Extent::Usual,
        "in deviations.json, but not different any more: {gone:#?}"
    );
    Ok(())
}

/// What each program prints for each command, in a namespace of its own.
async fn type_all(
    target: impl Future<Output = Result<Target>>,
    programs: &[PathBuf],
) -> Result<Vec<String>> {
    let target = target.await?;
    let kubeconfig = target
        .kubeconfig
        .clone()
        .context("it is reached over TLS")?;
    let programs = programs.to_vec();
    // The server answers from this process, so kubectl must not be waited for on its threads.
    let said = tokio::task::spawn_blocking(move || {
        let mut said = Vec::new();
        for (number, program) in (1..).zip(&programs) {
            let kubectl = Kubectl::new(program, &kubeconfig, format!("typed-{number}"))?;
            kubectl.say(&format!("create namespace {}", kubectl.namespace))?;
            for command in COMMANDS {
                said.push(match command.strip_prefix("until ") {
                    Some(command) => kubectl.say_until(command)?,
                    None => kubectl.say(command)?,
                });
            }
        }
        anyhow::Ok(said)
    })
    .await??;
    drop(target);
    Ok(said)
}

struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
    home: tempfile::TempDir,
    uid: Regex,
    time: Regex,
    revision: Regex,
}

impl Kubectl {
    fn new(program: &Path, kubeconfig: &Path, namespace: String) -> Result<Self> {
        let home = tempfile::tempdir()?;
        for (name, text) in [
            ("FILE", FILE),
            ("LIST", LIST),
            ("KIND", KIND),
            ("GADGET", GADGET),
            ("WINDLASS", WINDLASS),
        ] {
            std::fs::write(home.path().join(name), text.replace("NS", &namespace))?;
        }
        Ok(Self {
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            namespace,
            home,
            uid: Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")?,
            time: Regex::new(
                "20[0-9]{2}-[0-9-]+(T[0-9:]+Z| [0-9:.]+ [+][0-9]+)|\\b([0-9]+[ydhm])*[0-9]+(ms|[dhms])\\b *|/tmp/[A-Za-z]+-[0-9]+",
            )?,
            revision: Regex::new("(resourceVersion\"?: |Resource Version: +)\"?[0-9]+\"?")?,
        })
    }

    /// What it says when it succeeds at last, or else in the end.
    fn say_until(&self, command: &str) -> Result<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let said = self.say(command)?;
            if said.contains(": exit status: 0\n") || Instant::now() > deadline {
                return Ok(said);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn say(&self, command: &str) -> Result<String> {
        let command = command.replace("NS", &self.namespace);
        let output = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", &self.namespace])
            .args(command.split(' '))
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env("KUBECACHEDIR", self.home.path().join("cache"))
            .stdin(Stdio::null())
            .output()?;
        let text = format!(
            "{} {command}: {}\n{}{}",
            self.program.file_name().unwrap_or_default().display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let text = self.uid.replace_all(&text, "UID");
        let text = self.time.replace_all(&text, "TIME");
        Ok(self.revision.replace_all(&text, "${1}RV").into_owned())
    }
}
