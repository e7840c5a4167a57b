//! `kubectl apply --dry-run=server` of an edit of an inventory, at a real API server: it warns of the same that `windlass inventory plan` says.

use std::{
    fs,
    net::TcpListener,
    process::{Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use e2e::{Operator, wait_until, windlass};
use lab::{ControlPlane, Kubernetes, command::output, progress::Terminal};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
/// What the chart has beside it, with another address and an authority.
const KINDS: [&str; 7] = [
    "hierarchies",
    "environments",
    "customers",
    "sites",
    "infraproviders",
    "clustertemplates",
    "fleetclusters",
];

fn of_inventory(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

fn site(version: &str) -> Value {
    let spec = json!({"template": "kubespray", "values": {"version": version}});
    of_inventory("Site", "fra1", &spec)
}

fn inventory() -> Vec<Value> {
    let host = |name: &str, kind: &str, address: &str| {
        json!({"object": {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": name},
            "spec": {"type": kind, "inventory": {"ansible_host": address}},
        }})
    };
    let cluster = json!({"object": {
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "{{ cluster.name }}"},
        "spec": {
            "kubernetesVersion": "{{ version }}",
            "kubespray": {"version": "2.30.0", "source": {"path": "/opt/windlass/kubespray"}},
            "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
            // It waits for more hosts than there are: nobody is to be reached here.
            "operations": {"creation": {"startConditions": {"nodes": {"minimum": 9}}}},
        },
    }});
    let documents = json!([
        host("m", "master", "10.77.0.11"),
        host("w", "worker", "10.77.0.12"),
        cluster
    ]);
    vec![
        of_inventory(
            "Hierarchy",
            "default",
            &json!({"levels": [{"name": "site", "kind": "Site"}]}),
        ),
        of_inventory(
            "ClusterTemplate",
            "kubespray",
            &json!({"backEnd": "Kubespray", "documents": documents}),
        ),
        site("1.34.3"),
        of_inventory(
            "FleetCluster",
            "shop",
            &json!({"parents": {"site": "fra1"}}),
        ),
    ]
}

struct World {
    plane: ControlPlane,
}

impl World {
    fn windlass(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(windlass().unwrap());
        command
            .arg("--data-dir")
            .arg(self.plane.dir().join("windlass"))
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig())
            .args(["--namespace", "default"])
            .args(arguments);
        command
    }

    fn apply(&self, objects: &[Value], further: &[&str]) -> String {
        let file = self.plane.dir().join("objects.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        fs::write(&file, list.to_string()).unwrap();
        let mut kubectl = self.plane.kubectl();
        let apply = kubectl.args(["apply", "--server-side"]).args(further);
        let applied = apply
            .arg("--filename")
            .arg(file)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&applied.stderr).into_owned();
        assert!(applied.status.success(), "{said}");
        said
    }

    /// What the objects of the API are rendered to, and from where, is what the same files say without any.
    fn says_the_same_of_files(&self) {
        let directory = self.plane.dir().join("inventory");
        fs::create_dir(&directory).unwrap();
        for (number, object) in inventory().iter().enumerate() {
            let file = directory.join(format!("{number}.yaml"));
            fs::write(file, object.to_string()).unwrap();
        }
        for asked in [
            &["inventory", "render", "shop"][..],
            &["inventory", "explain", "shop", "version"],
            &[
                "inventory",
                "explain",
                "shop",
                "Cluster/shop:spec.kubernetesVersion",
            ],
        ] {
            let of_api = output(&mut self.windlass(asked)).unwrap();
            let of_files = output(self.windlass(asked).arg("-f").arg(&directory)).unwrap();
            assert!(of_api.contains("1.34.3"), "{of_api}");
            assert_eq!(of_api, of_files);
        }
    }

    /// The version of the cluster that there is.
    fn version(&self) -> Option<String> {
        let mut kubectl = self.plane.kubectl();
        let get = [
            "get",
            "clusters.kubespray.k8s.io",
            "shop",
            "--output=jsonpath={.spec.kubernetesVersion}",
        ];
        output(kubectl.args(get)).ok()
    }
}

#[test]
fn an_edit_that_is_tried_warns_of_what_it_changes_and_changes_nothing() {
    let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
    for kinds in [&["crds"][..], &["crds", "--fleet"]] {
        let definitions = output(Command::new(windlass().unwrap()).args(kinds)).unwrap();
        let file = plane.dir().join("crds.yaml");
        fs::write(&file, definitions).unwrap();
        plane.define(&file).unwrap();
    }
    plane.await_definitions().unwrap();
    let world = World { plane };

    let certificate = world.plane.dir().join("certificate");
    fs::create_dir(&certificate).unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(certificate.join("tls.crt"), made.cert.pem()).unwrap();
    fs::write(
        certificate.join("tls.key"),
        made.signing_key.serialize_pem(),
    )
    .unwrap();
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut controller = world.windlass(&["controller", "--runners=process", "--fleet"]);
    controller.arg(format!("--fleet-advice={address}"));
    controller
        .arg("--fleet-advice-certificate")
        .arg(&certificate);
    let log = world.plane.dir().join("operator.log");
    let operator = Operator::start(&mut controller, log).unwrap();

    world.apply(&inventory(), &[]);
    wait_until("the cluster to be born", LIMIT, || Ok(world.version())).unwrap();
    wait_until("its birth to be told", LIMIT, || {
        let mut kubectl = world.plane.kubectl();
        let get = [
            "get",
            "fleetclusters",
            "shop",
            "--output=jsonpath={.status.applied}",
        ];
        Ok(Some(output(kubectl.args(get))?).filter(|applied| !applied.is_empty()))
    })
    .unwrap();
    world.says_the_same_of_files();
    world.apply(
        &[json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "windlass-fleet-advice"},
            "webhooks": [{
                "name": "inventories.windlass.dev", "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "url": format!("https://{address}/advice"), "caBundle": STANDARD.encode(made.cert.pem()),
                },
                "rules": [{
                    "apiGroups": ["inventory.windlass.dev"], "apiVersions": ["v1alpha1"], "resources": KINDS,
                    "operations": ["CREATE", "UPDATE"],
                }],
                "matchConditions": [{"name": "tried", "expression": "has(request.dryRun) && request.dryRun"}],
                "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 10,
            }],
        })],
        &[],
    );

    // An API server takes up a webhook a moment after it was declared.
    let edit = [site("1.34.4")];
    let warned = wait_until("the edit to be warned of", LIMIT, || {
        let said = world.apply(&edit, &["--dry-run=server"]);
        Ok(said.contains("Warning: ").then_some(said))
    })
    .unwrap_or_else(|error| panic!("{error}\n{}", operator.said()));
    assert!(
        warned.contains("Warning: 1 cluster: at most 2 hosts updated in place"),
        "{warned}"
    );
    let file = world.plane.dir().join("edit.json");
    fs::write(&file, edit[0].to_string()).unwrap();
    let plan = world
        .windlass(&["inventory", "plan", "-f"])
        .arg(&file)
        .output()
        .unwrap();
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    let numbers = plan.lines().last().unwrap();
    assert!(
        warned.contains(&format!("Warning: {numbers}")),
        "{warned}\n{plan}"
    );
    assert_eq!(world.version().as_deref(), Some("1.34.3"));

    // What changes nothing is not warned of, nor is what is meant.
    assert_eq!(world.apply(&[site("1.34.3")], &["--dry-run=server"]), "");
    assert_eq!(world.apply(&edit, &[]), "");
    // Without Windlass an edit can be tried all the same.
    drop(operator);
    assert_eq!(world.apply(&[site("1.34.3")], &["--dry-run=server"]), "");
}
