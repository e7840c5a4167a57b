//! One object in an empty cluster ends with a Keystone that issues tokens and a Glance that takes an image: real Helm, a real MariaDB,
//! real services, and the real `openstack` command.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use e2e::{Operator, wait_until, windlass};
use lab::{CloudImages, LabOptions, Node, command::output, progress::Terminal};
use serde_json::{Value, json};

/// Images lie on the node already; a loaded machine takes its time all the same.
const LIMIT: Duration = Duration::from_mins(8);
const NAMESPACE: &str = "cloud";

#[test]
fn one_object_ends_with_tokens_and_an_image() {
    let mut world = World::start();
    let refused = world.apply(&cloud(&json!({"keystne.conf": ""})));
    assert!(refused.is_ok(), "the schema cannot know it: {refused:?}");
    let stalled = world.until("openstack", "one", "Stalled");
    assert!(
        message(&stalled, "Stalled").contains("the files of keystone are keystone.conf"),
        "{stalled}"
    );
    let config = json!({"keystone.conf": "[token]\nexpiration = 1234\n"});
    world.apply(&cloud(&config)).unwrap();
    // The operator dies in the middle: its runner goes on, and another operator finds it again.
    world.step_is_done("one-keystone", 1);
    world.operate();
    let ready = world.until("openstack", "one", "Ready");
    assert_eq!(ready["status"]["steps"], "9/9");
    let service = world.get("openstackservice", "one-keystone");
    assert_eq!(service["status"]["steps"], "11/11");
    assert_eq!(service["status"]["phase"], "Ready");

    let token = world.openstack(&["token", "issue", "-f", "json"]);
    let token: Value = serde_json::from_str(&token).unwrap();
    assert!(
        token["id"].as_str().unwrap().starts_with("gAAAA"),
        "{token}"
    );
    let endpoints = world.openstack(&["endpoint", "list", "-f", "value", "-c", "URL"]);
    for endpoint in [
        "http://one-keystone.cloud.svc:5000/v3",
        "http://one-placement.cloud.svc:8778",
        "http://one-glance.cloud.svc:9292",
    ] {
        assert!(endpoints.contains(endpoint), "{endpoints}");
    }
    world.takes_an_image();
    world.nothing_secret_is_told();

    // A password that somebody changed is set again, by the step that sets it.
    world.openstack(&["user", "set", "--password", "another", "glance"]);
    world.does_step("one-glance", "identity/seed", "set the password");
    world.does_step("one-glance", "identity/seed", "it was there");

    // A step by hand, against the same objects: what was done before is not done again.
    let jobs = world.names("jobs");
    world.does_step("one-keystone", "database/sync", "was done before");
    assert_eq!(world.names("jobs"), jobs);

    // Another setting is another ConfigMap, other pods, and no other table.
    let uid = world.get("secret", "one-keystone-admin")["metadata"]["uid"].clone();
    let config = json!({"keystone.conf": "[token]\nexpiration = 4321\n"});
    world.apply(&cloud(&config)).unwrap();
    wait_until("the new setting", LIMIT, || {
        let cloud = world.get("openstack", "one");
        let seen = cloud["status"]["observedGeneration"] == cloud["metadata"]["generation"];
        Ok((seen && cloud["status"]["phase"] == "Ready").then_some(()))
    })
    .unwrap();
    let maps = world.kubectl(&[
        "get",
        "configmaps",
        "-o",
        "json",
        "-l",
        "openstack.windlass.dev/part=config",
    ]);
    assert!(
        maps.contains("expiration = 4321") && !maps.contains("expiration = 1234"),
        "{maps}"
    );
    assert_eq!(
        world.get("secret", "one-keystone-admin")["metadata"]["uid"],
        uid
    );
    world.openstack(&["token", "issue"]);

    // A second cloud on the same database server is refused by name.
    let mut second = cloud(&json!({}));
    second["metadata"]["name"] = json!("two");
    second["spec"]["database"] =
        json!({"external": {"host": "one-mariadb", "adminSecret": {"name": "one-mariadb-admin"}}});
    world.apply(&second).unwrap();
    let refused = world.until("openstackservice", "two-keystone", "Stalled");
    let why = message(&refused, "Stalled");
    assert!(
        why.contains("it belongs to windlass cloud/one-keystone"),
        "{why}"
    );
    world.kubectl(&["delete", "openstack", "two", "--timeout=300s"]);

    world.kubectl(&["delete", "openstack", "one", "--timeout=300s"]);
    assert_eq!(world.names("deployments"), "");
    assert_eq!(world.names("statefulsets"), "");
    assert!(
        world
            .names("secrets")
            .contains("one-keystone-credential-keys"),
        "it is retained"
    );
}

/// A cluster with Windlass beside it. All of it ends with the value.
struct World {
    node: Node,
    helm: PathBuf,
    operator: Option<Operator>,
}

impl World {
    fn start() -> Self {
        let progress = Terminal::default();
        let helm = lab::helm(&progress).unwrap();
        let images = CloudImages::ensure(&progress).unwrap();
        let options = LabOptions {
            hosts: 1,
            ..LabOptions::default()
        };
        let node = Node::start(options, &progress).unwrap();
        for image in images.files() {
            node.import(&image).unwrap();
        }
        let mut world = Self {
            node,
            helm,
            operator: None,
        };
        for kinds in [["crds"].as_slice(), &["crds", "--openstack"]] {
            let definitions = output(Command::new(windlass().unwrap()).args(kinds)).unwrap();
            let file = world.node.lab.dir().join("crds.yaml");
            fs::write(&file, definitions).unwrap();
            world.kubectl(&[
                "apply",
                "--server-side",
                "--filename",
                file.to_str().unwrap(),
            ]);
        }
        world.kubectl(&[
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        ]);
        world.kubectl(&["create", "namespace", NAMESPACE]);
        world.operate();
        world
    }

    /// Starts Windlass; the one before is killed.
    fn operate(&mut self) {
        self.operator = None;
        let mut command =
            self.windlass(&["controller", "--runners=process", "--openstack", "--helm"]);
        command.arg(&self.helm);
        let log = self.node.lab.dir().join("operator.log");
        self.operator = Some(Operator::start(&mut command, log).unwrap());
    }

    fn windlass(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(windlass().unwrap());
        command
            .arg("--data-dir")
            .arg(self.node.lab.dir().join("windlass"));
        command.arg("--kubeconfig").arg(self.node.kubeconfig());
        command.args(["--namespace", NAMESPACE]).args(arguments);
        self.node.lab.enter_network(&command)
    }

    fn apply(&self, object: &Value) -> anyhow::Result<String> {
        let file = self.node.lab.dir().join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        let apply = ["apply", "--filename", file.to_str().unwrap()];
        output(&mut self.node.kubectl(&apply))
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let of = ["--namespace", NAMESPACE];
        output(&mut self.node.kubectl(&[of.as_slice(), arguments].concat())).unwrap()
    }

    /// Null where it is not there.
    fn get(&self, kind: &str, name: &str) -> Value {
        let get = [
            "--namespace",
            NAMESPACE,
            "get",
            kind,
            name,
            "-o",
            "json",
            "--ignore-not-found",
        ];
        let found = output(&mut self.node.kubectl(&get)).unwrap_or_default();
        serde_json::from_str(&found).unwrap_or_default()
    }

    /// A step by hand, and what it says that it did.
    fn does_step(&self, service: &str, step: &str, says: &str) {
        let told = output(&mut self.windlass(&["openstack", "run", service, step])).unwrap();
        let run = told.split(' ').nth(1).unwrap();
        let done = wait_until("the step by hand", LIMIT, || {
            let run = self.get("run", run);
            anyhow::ensure!(run["status"]["phase"] != "Failed", "{}", run["status"]);
            Ok((run["status"]["phase"] == "Succeeded").then_some(run))
        });
        let done = done.unwrap();
        assert!(done["status"].to_string().contains(says), "{done}");
    }

    /// What is sent is what is kept.
    fn takes_an_image(&self) {
        let script = "head -c 1048576 /dev/urandom > /tmp/disk && sha512sum < /tmp/disk";
        let sum = self.kubectl(&["exec", "deploy/one-keystone-api", "--", "sh", "-c", script]);
        self.openstack(&[
            "image",
            "create",
            "--file=/tmp/disk",
            "--disk-format=raw",
            "--container-format=bare",
            "disk",
        ]);
        let image = self.openstack(&["image", "show", "disk", "-f", "json"]);
        let image: Value = serde_json::from_str(&image).unwrap();
        assert_eq!(image["status"], "active");
        let kept = image["properties"]["os_hash_value"].as_str();
        assert_eq!(kept, sum.split(' ').next(), "{image}");
    }

    fn names(&self, kind: &str) -> String {
        self.kubectl(&["get", kind, "-o", "name"])
    }

    /// The object, once that condition is true. One that stalls meanwhile does not get there.
    fn until(&self, kind: &str, name: &str, condition: &str) -> Value {
        let found = wait_until(&format!("{kind} {name} to be {condition}"), LIMIT, || {
            let object = self.get(kind, name);
            let seen = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            if seen && condition != "Stalled" && is_true(&object, "Stalled") {
                anyhow::bail!("it stalled: {}", message(&object, "Stalled"));
            }
            Ok((seen && is_true(&object, condition)).then_some(object))
        });
        found.unwrap_or_else(|error| {
            let all = [
                "get",
                "openstacks,openstackservices,runs,pods,jobs",
                "-o",
                "wide",
            ];
            panic!("{error:#}\n{}\n{}", self.kubectl(&all), self.runs())
        })
    }

    fn runs(&self) -> String {
        self.kubectl(&[
            "get",
            "runs",
            "-o",
            "jsonpath={range .items[*]}{.metadata.name}{\": \"}{.status.steps}{\"\\n\"}{end}",
        ])
    }

    /// Waits until that many steps of a service's run are done.
    fn step_is_done(&self, service: &str, steps: u32) {
        wait_until("a step of the service", LIMIT, || {
            let object = self.get("openstackservice", service);
            let told = object["status"]["steps"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let done = told.split('/').next().and_then(|done| done.parse().ok());
            Ok(done.is_some_and(|done: u32| done >= steps).then_some(()))
        })
        .unwrap();
    }

    /// The real command, in a pod of the service, by the name of its Service.
    fn openstack(&self, arguments: &[&str]) -> String {
        let script = "export OS_PASSWORD=\"$(cat)\"; exec openstack \"$@\"";
        let mut command = self.node.kubectl(&[
            "--namespace",
            NAMESPACE,
            "exec",
            "-i",
            "deploy/one-keystone-api",
            "--",
        ]);
        command.args([
            "env",
            "HOME=/tmp",
            "OS_AUTH_URL=http://one-keystone:5000/v3",
            "OS_USERNAME=admin",
        ]);
        command.args([
            "OS_PROJECT_NAME=admin",
            "OS_USER_DOMAIN_ID=default",
            "OS_PROJECT_DOMAIN_ID=default",
            "OS_IDENTITY_API_VERSION=3",
        ]);
        command.args(["sh", "-c", script, "sh"]).args(arguments);
        let file = self.node.lab.dir().join("password");
        fs::write(&file, self.secret("one-keystone-admin", "password")).unwrap();
        lab::command::output_from(fs::File::open(file).unwrap(), &mut command).unwrap()
    }

    fn secret(&self, name: &str, key: &str) -> String {
        use base64::Engine as _;
        let secret = self.get("secret", name);
        let value = secret["data"][key].as_str().unwrap();
        let value = base64::engine::general_purpose::STANDARD
            .decode(value)
            .unwrap();
        String::from_utf8(value).unwrap()
    }

    /// In objects that others read, in what Helm keeps, and in what runners log.
    fn nothing_secret_is_told(&self) {
        let mut told = self.kubectl(&[
            "get",
            "openstacks,openstackservices,runs,configmaps,events,jobs,deployments,statefulsets",
            "-o",
            "yaml",
        ]);
        let helm = Command::new(&self.helm);
        let mut helm = self.node.lab.enter_network(&helm);
        helm.arg("--kubeconfig").arg(self.node.kubeconfig());
        helm.args(["--namespace", NAMESPACE, "get", "all", "one-keystone-api"]);
        told.push_str(&output(&mut helm).unwrap());
        let files = output(
            Command::new("grep")
                .args(["-rh", "", "--include=*.log", "--include=*.json*"])
                .arg(self.node.lab.dir().join("windlass")),
        );
        told.push_str(&files.unwrap());
        for (name, key) in [
            ("one-keystone-admin", "password"),
            ("one-keystone-database", "password"),
            ("one-mariadb-admin", "password"),
            ("one-keystone-fernet-keys", "1"),
            ("one-glance-identity", "password"),
            ("one-placement-database", "password"),
        ] {
            assert!(
                !told.contains(&self.secret(name, key)),
                "{name} {key} is told"
            );
        }
    }
}

fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|found| found["type"] == condition && found["status"] == "True")
}

fn message(object: &Value, condition: &str) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|found| found["type"] == condition);
    found
        .and_then(|found| found["message"].as_str())
        .unwrap_or_default()
        .to_owned()
}

fn cloud(config: &Value) -> Value {
    json!({
        "apiVersion": "openstack.windlass.dev/v1alpha1",
        "kind": "OpenStack",
        "metadata": {"name": "one", "namespace": NAMESPACE},
        "spec": {
            "release": "2026.2",
            "database": {"managed": {"image": CloudImages::MARIADB}},
            "services": [
                {"name": "glance", "image": CloudImages::SERVICES},
                {"name": "keystone", "image": CloudImages::SERVICES, "config": config},
                {"name": "placement", "image": CloudImages::SERVICES},
            ],
        },
    })
}
