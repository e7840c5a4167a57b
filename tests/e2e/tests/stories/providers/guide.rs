//! The guide of providers, `docs/providers.md`, by its own commands, beside a real API server. It has no kubelet: the providers are small
//! ones that want no pods. `management` has what takes a cluster of Cluster API.

use std::{fs, os::unix::fs::symlink, path::PathBuf, process::Command};

use e2e::{Guide, Operator, wait_until, windlass};
use lab::{ControlPlane, Kubernetes, command::output, progress::Terminal};
use releases::{Answer, Server};
use serde_json::{Value, json};

use super::LIMIT;

/// What is in the guide of each provider that it installs: its label and its file of components.
const FILES: [(&str, &str); 4] = [
    ("cluster-api", "core-components.yaml"),
    ("bootstrap-kubeadm", "bootstrap-components.yaml"),
    ("control-plane-kubeadm", "control-plane-components.yaml"),
    (
        "infrastructure-docker",
        "infrastructure-components-development.yaml",
    ),
];
/// These are on the internet.
const ELSEWHERE: [&str; 2] = ["azure", "aws"];

/// `management` has a cluster to describe.
const DESCRIBE: &str = "windlass --kubeconfig management.kubeconfig -n site describe cluster shop";

/// A directory that a reader works in, and who answers there.
struct Reader {
    plane: ControlPlane,
    directory: PathBuf,
    programs: PathBuf,
}

impl Reader {
    fn start(releases: &Server) -> Self {
        let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
        let directory = plane.dir().join("reader");
        let programs = directory.join("bin");
        fs::create_dir_all(&programs).unwrap();
        symlink(windlass().unwrap(), programs.join("windlass")).unwrap();
        symlink(plane.programs().join("kubectl"), programs.join("kubectl")).unwrap();
        symlink(plane.kubeconfig(), directory.join("management.kubeconfig")).unwrap();
        fs::write(directory.join("authority.pem"), releases.authority()).unwrap();
        Self {
            plane,
            directory,
            programs,
        }
    }

    fn shell(&self, commands: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("bash");
        shell
            .args([
                "-euc",
                &format!("cd {}\n{commands}", self.directory.display()),
            ])
            .env("PATH", format!("{}:{path}", self.programs.display()))
            .env("HOME", &self.directory)
            .env("WINDLASS_DATA_DIR", self.directory.join("windlass"))
            .env("CURL_CA_BUNDLE", self.directory.join("authority.pem"))
            .env_remove("KUBECONFIG");
        shell
    }

    fn run(&self, commands: &str) -> String {
        output(&mut self.shell(commands)).unwrap_or_else(|error| panic!("{error:#}: {commands}"))
    }

    /// The version of a provider, which is Ready.
    fn version(&self, provider: &str) -> String {
        let status = self.run("windlass --kubeconfig management.kubeconfig providers status");
        let rows = status.lines().map(|line| line.split_whitespace());
        let mut rows = rows.map(Iterator::collect::<Vec<_>>);
        let row = rows.find(|row| format!("{}/{}", row[0], row[2]) == provider);
        let row = row.unwrap_or_else(|| panic!("{provider} is not in {status}"));
        assert_eq!(row[6], "True", "{status}");
        row[4].to_owned()
    }
}

#[test]
fn the_guide_installs_upgrades_and_deletes_providers() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let releases = runtime.block_on(Server::start(released)).unwrap();
    let reader = Reader::start(&releases);
    let mut guide = Guide::read("docs/providers.md")
        .unwrap()
        .with("https://github.com", &releases.url(""))
        .with("https://git.example", &releases.url(""));

    let begin = guide.take(&["windlass crds", "controller --providers"]);
    let (definitions, controller) = begin.rsplit_once('\n').unwrap();
    reader.run(definitions);
    // A reader's server is no private address.
    let allowed = "--provider-address=127.0.0.1/32 --provider-authorities=authority.pem";
    let mut controller = reader.shell(&format!("exec {controller} {allowed}"));
    let log = reader.plane.dir().join("operator.log");
    let _operator = Operator::start(&mut controller, log).unwrap();

    let bring = guide.take(&["bring cluster-api"]);
    reader.run(&bring);
    reader.run(&guide.take(&["providers apply --core", "providers status"]));
    for provider in [
        "CoreProvider/cluster-api",
        "BootstrapProvider/kubeadm",
        "ControlPlaneProvider/kubeadm",
        "InfrastructureProvider/docker",
    ] {
        assert_eq!(reader.version(provider), "v1.13.4");
    }
    let over_the_network = guide.take(&["providers apply", "--url", "--oci"]);
    let is_here = |line: &&str| !ELSEWHERE.iter().any(|name| line.contains(name));
    for line in over_the_network.lines().filter(is_here) {
        reader.run(line);
    }
    assert_eq!(reader.version("InfrastructureProvider/mine"), "v2.1.0");

    reader.run(&bring.replace("v1.13.4", "v1.14.2"));
    let upgraded = reader.run(&guide.take(&["providers preload", "providers upgrade --yes"]));
    assert!(upgraded.contains("v1.13.4 to v1.14.2"), "{upgraded}");
    assert_eq!(reader.version("CoreProvider/cluster-api"), "v1.14.2");
    assert_eq!(reader.version("InfrastructureProvider/docker"), "v1.14.2");

    let carried = guide.take(&["preload", "--print > mine.yaml"]);
    let trusting = format!(
        "{} --authorities authority.pem",
        releases.url("/org/mine/releases")
    );
    reader.run(&carried.replace(&releases.url("/org/mine/releases"), &trusting));
    reader.run(&guide.take(&["kubectl", "patch infrastructureprovider mine"]));
    wait_until("another version by hand", LIMIT, || {
        let get = "kubectl --kubeconfig management.kubeconfig -n mine-system get infrastructureprovider mine";
        let version = reader.run(&format!("{get} -o jsonpath={{.status.installedVersion}}"));
        Ok((version == "v2.2.0").then_some(()))
    })
    .unwrap();

    reader.run(&guide.take(&["providers delete", "--confirm mine"]));
    let asked = guide.take(&["providers delete", "--include-crds"]);
    let said = format!("{:#}", output(&mut reader.shell(&asked)).unwrap_err());
    let confirm = "--confirm mine-and-1-definition";
    assert!(said.contains(confirm), "{said}");
    reader.run(&format!("{} {confirm}", asked.trim()));
    reader.run(&guide.take(&["providers release --infrastructure docker"]));
    let kept = reader
        .run("kubectl --kubeconfig management.kubeconfig -n capd-system get deployments -o name");
    assert_eq!(kept.trim(), "deployment.apps/infrastructure-docker");

    let generated = guide.take(&["providers generate", "> docker.yaml"]);
    reader.run(&generated);
    let docker = fs::read_to_string(reader.directory.join("docker.yaml")).unwrap();
    assert!(
        docker.contains("example.com/infrastructure-docker:v1.14.2"),
        "{docker}"
    );
    guide.leave(DESCRIBE);
    guide.is_done();
}

/// What the servers of the guide have.
fn released(path: &str) -> Answer {
    let parts: Vec<_> = path.split('/').collect();
    let ["", owner, repository, "releases", "download", version, file] = parts[..] else {
        return Answer::Status(404);
    };
    let label = match (owner, repository) {
        ("kubernetes-sigs", "cluster-api") if file != "metadata.yaml" => {
            let found = FILES.iter().find(|(_, components)| *components == file);
            found.map(|(label, _)| *label)
        }
        ("org", "mine") => Some("infrastructure-mine"),
        _ => None,
    };
    match (file, label) {
        ("metadata.yaml", _) => Answer::Whole(metadata().to_string()),
        (_, Some(label)) => Answer::Whole(components(label, version)),
        _ => Answer::Status(404),
    }
}

fn metadata() -> Value {
    let series = [(1, 13), (1, 14), (2, 1), (2, 2)]
        .map(|(major, minor)| json!({"major": major, "minor": minor, "contract": "v1beta2"}));
    json!({"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata", "releaseSeries": series})
}

/// A provider that wants no pods.
fn components(label: &str, version: &str) -> String {
    let group = format!("{label}.example.com");
    let labels = json!({"app": label});
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}),
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": label, "namespace": "elsewhere"},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "containers": [{"name": "manager", "image": format!("example.com/{label}:{version}")}],
            }}},
        }),
    ];
    objects.map(|object| object.to_string()).join("\n---\n")
}
