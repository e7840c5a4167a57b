//! A management cluster: a real cluster of one node in which Windlass installs real providers of Cluster API, whose machines are in
//! memory.

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use lab::{
    LabOptions, Node, Progress,
    base::Base,
    command::output,
    programs::{
        cluster_api::ClusterApi,
        managers::{self, Managers},
    },
};
use serde_json::{Value, json};

use crate::{Called, Calls, Memory, Operator, Tally, is_true, operator, root, wait_until};
use machines::{in_memory, workload};

mod hosts;
mod machines;
mod patched;
mod peers;
mod seen;
mod servers;

pub use hosts::Hosts;
pub use servers::Servers;

/// Images lie on the node already; a loaded machine takes its time all the same.
const LIMIT: Duration = Duration::from_mins(5);
/// Where clusters are raised where nothing else is said.
const DEFAULT: &str = "default";

/// A provider of the management cluster.
#[derive(Clone, Copy, Debug)]
pub struct Installed {
    /// Its kind, as kubectl takes it.
    pub kind: &'static str,
    /// Its kind, as objects have it.
    pub title: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its namespace.
    pub namespace: &'static str,
    /// How the command line names its kind.
    option: &'static str,
}

impl Installed {
    /// What clusterctl calls it.
    pub fn label(&self) -> String {
        match self.option {
            "--core" => self.name.to_owned(),
            option => format!("{}-{}", option.trim_start_matches("--"), self.name),
        }
    }
}

/// The providers, core first.
pub const PROVIDERS: [Installed; 4] = [
    Installed {
        kind: "coreprovider",
        title: "CoreProvider",
        name: "cluster-api",
        namespace: "capi-system",
        option: "--core",
    },
    Installed {
        kind: "bootstrapprovider",
        title: "BootstrapProvider",
        name: "kubeadm",
        namespace: "capi-kubeadm-bootstrap-system",
        option: "--bootstrap",
    },
    Installed {
        kind: "controlplaneprovider",
        title: "ControlPlaneProvider",
        name: "kubeadm",
        namespace: "capi-kubeadm-control-plane-system",
        option: "--control-plane",
    },
    Installed {
        kind: "infrastructureprovider",
        title: "InfrastructureProvider",
        name: "docker",
        namespace: "capd-system",
        option: "--infrastructure",
    },
];

/// The cluster, and the Windlass that works in it. All of it ends with the value, and with its process.
pub struct Management {
    /// The cluster.
    pub node: Node,
    /// What is installed in it.
    pub managers: Managers,
    windlass: PathBuf,
    /// What Windlass works on: options of its controller, and of what prints the definitions.
    works_on: Vec<&'static str>,
    operator: RefCell<Option<Operator>>,
}

impl Management {
    /// The versions of the providers that it can have, oldest first.
    pub const VERSIONS: [&str; 2] = ClusterApi::VERSIONS;

    /// Raises the cluster, loads the images of all versions, and starts Windlass beside it.
    ///
    /// # Errors
    ///
    /// What is needed cannot be made, or the cluster does not come up.
    pub fn set(windlass: PathBuf, progress: &dyn Progress) -> anyhow::Result<Self> {
        Self::set_with(windlass, &[], progress)
    }

    /// The same, where Windlass works on more than providers: `--fleet`.
    ///
    /// # Errors
    ///
    /// What is needed cannot be made, or the cluster does not come up.
    pub fn set_with(
        windlass: PathBuf,
        further: &[&'static str],
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        Self::set_beside(windlass, further, 0, progress)
    }

    /// The same with so many hosts beside the cluster.
    ///
    /// # Errors
    ///
    /// What is needed cannot be made, or the cluster does not come up.
    pub fn set_beside(
        windlass: PathBuf,
        further: &[&'static str],
        hosts: u8,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        let options = LabOptions {
            hosts: 1 + hosts,
            ..LabOptions::default()
        };
        Self::set_on(options, windlass, further, progress)
    }

    /// The same on hosts that sleep until they are made machines of Cluster API: see [`Hosts`].
    ///
    /// # Errors
    ///
    /// What is needed cannot be made, or the cluster does not come up.
    pub fn set_beside_machines(
        windlass: PathBuf,
        hosts: u8,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        let options = LabOptions {
            hosts: 1 + hosts,
            base: Base::CloudInit,
            ..LabOptions::default()
        };
        Self::set_on(options, windlass, &[], progress)
    }

    fn set_on(
        options: LabOptions,
        windlass: PathBuf,
        further: &[&'static str],
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        let managers = managers::managers(progress)?;
        let management = Self {
            node: Node::start(options, progress)?,
            managers,
            windlass,
            works_on: [&["--providers"][..], further].concat(),
            operator: RefCell::default(),
        };
        management.begin_work(&ClusterApi::VERSIONS, progress)?;
        Ok(management)
    }

    /// Another management cluster on a host beside this one, with the images of the newest version, and a Windlass of its own.
    ///
    /// # Errors
    ///
    /// No such host, or the cluster does not come up.
    pub fn another(&self, host: &str, progress: &dyn Progress) -> anyhow::Result<Self> {
        let another = Self {
            node: self.node.beside(host, progress)?,
            managers: self.managers.clone(),
            windlass: self.windlass.clone(),
            works_on: self.works_on.clone(),
            operator: RefCell::default(),
        };
        let [_, newest] = ClusterApi::VERSIONS;
        another.begin_work(&[newest], progress)?;
        Ok(another)
    }

    /// Loads the images of versions, defines what Windlass works on, and starts it.
    fn begin_work(&self, versions: &[&str], progress: &dyn Progress) -> anyhow::Result<()> {
        progress.begin("images of the providers", "about 20 s");
        for version in versions {
            for image in self.managers.images(version)? {
                self.node.import(&image)?;
            }
        }
        progress.end();
        for kinds in &self.works_on {
            self.define(kinds)?;
        }
        self.operate()
    }

    /// Has the API know more kinds of Windlass, by an option of `windlass crds`.
    ///
    /// # Errors
    ///
    /// The API refuses them.
    pub fn define(&self, kinds: &str) -> anyhow::Result<()> {
        operator::define(&self.node, &self.windlass, kinds)
    }

    /// Starts Windlass; the one before is killed.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn operate(&self) -> anyhow::Result<()> {
        drop(self.operator.take());
        let operator = Operator::start(&mut self.controller(), self.log())?;
        *self.operator.borrow_mut() = Some(operator);
        Ok(())
    }

    /// The same, and its working set is counted.
    ///
    /// # Errors
    ///
    /// It cannot be started, or not be counted.
    pub fn operate_counted(&self) -> anyhow::Result<()> {
        drop(self.operator.take());
        let operator = Operator::start_counted(&self.controller(), self.log())?;
        *self.operator.borrow_mut() = Some(operator);
        Ok(())
    }

    fn controller(&self) -> Command {
        let mut command =
            self.windlass(&["controller", "--runners=process", "--provider-fetch=never"]);
        command.args(&self.works_on);
        // The bundle as this machine has it.
        command.arg(format!("--source-root={}", root().display()));
        command
    }

    fn log(&self) -> PathBuf {
        self.node.dir().join("operator.log")
    }

    /// What the journals of a provider's upgrades say: run, event and step of each record.
    ///
    /// # Errors
    ///
    /// A journal cannot be read.
    pub fn upgrade_records(&self, provider: Installed) -> anyhow::Result<Vec<[String; 3]>> {
        let runs = self.node.dir().join("windlass/runs");
        // None was begun yet.
        let Ok(runs) = fs::read_dir(runs.join(provider.namespace)) else {
            return Ok(Vec::new());
        };
        let mut records = Vec::new();
        for run in runs {
            let run = run.context("list the runs")?;
            let name = run.file_name().to_string_lossy().into_owned();
            if name.contains("-upgrade-") {
                records.extend(records_of(&name, &run.path().join("journal.jsonl"))?);
            }
        }
        Ok(records)
    }

    /// What the process of Windlass takes.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        let operator = self.operator.borrow();
        operator.as_ref().context("Windlass was started")?.memory()
    }

    /// Keeps a version of all providers in the cluster.
    ///
    /// # Errors
    ///
    /// A release cannot be read or stored.
    pub fn preload(&self, version: &str) -> anyhow::Result<()> {
        self.preload_from(&self.managers.repository, version)
    }

    /// The same, of a local repository.
    fn preload_from(&self, repository: &Path, version: &str) -> anyhow::Result<()> {
        for provider in PROVIDERS {
            self.keep(provider, repository, version)?;
        }
        Ok(())
    }

    fn keep(&self, provider: Installed, repository: &Path, version: &str) -> anyhow::Result<()> {
        self.make_namespace(provider.namespace)?;
        let choice = format!("{}:{version}", provider.name);
        let from = repository.display().to_string();
        let mut preload =
            self.windlass(&["--namespace", provider.namespace, "providers", "preload"]);
        output(preload.args([provider.option, &choice, "--from", &from])).map(drop)
    }

    /// Makes a namespace where it is missing.
    ///
    /// # Errors
    ///
    /// The API refuses it.
    pub fn make_namespace(&self, name: &str) -> anyhow::Result<()> {
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
    }

    /// Installs a version of all providers that is kept in the cluster.
    ///
    /// # Errors
    ///
    /// One is not Ready in time; the error shows how it stands.
    pub fn install(&self, version: &str) -> anyhow::Result<()> {
        self.settle(&PROVIDERS, version, &|| Ok(()))
    }

    /// Upgrades all providers while everything that they bring along is called, and says what became of the calls. `cluster` is
    /// deleted meanwhile, after it was found to be Available: machines in memory are those of one pod, whose successor has another
    /// address and refuses their clusters.
    ///
    /// # Errors
    ///
    /// A provider or the cluster does not get there in time; the error shows how it stands.
    pub fn upgrade(
        &self,
        version: &str,
        cluster: &str,
        tell: &dyn Fn(&str),
    ) -> anyhow::Result<Vec<Tally>> {
        self.upgrade_while(version, cluster, tell, &|| Ok(()))
    }

    /// The same, while something is done again and again.
    ///
    /// # Errors
    ///
    /// A provider or the cluster does not get there in time, or what is done fails.
    pub fn upgrade_while(
        &self,
        version: &str,
        cluster: &str,
        tell: &dyn Fn(&str),
        meanwhile: &dyn Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Tally>> {
        let calls = self.calls();
        let [core, bootstrap, control_plane, infrastructure] = PROVIDERS;
        self.settle(&[core], version, meanwhile)?;
        tell("core is upgraded");
        self.settle(&[bootstrap, control_plane], version, meanwhile)?;
        tell("kubeadm's providers are upgraded");
        ensure!(self.is_available(cluster)?, "{cluster} is not Available");
        self.remove(cluster)?;
        tell("the cluster is deleted");
        self.settle(&[infrastructure], version, meanwhile)?;
        self.old_pods_gone()?;
        tell("all providers are upgraded");
        calls.end()
    }

    fn settle(
        &self,
        providers: &[Installed],
        version: &str,
        meanwhile: &dyn Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for provider in providers {
            self.declare(*provider, version)?;
        }
        for provider in providers {
            self.installed_while(*provider, version, meanwhile)?;
        }
        Ok(())
    }

    /// Declares a version of a provider.
    ///
    /// # Errors
    ///
    /// The API refuses it.
    pub fn declare(&self, provider: Installed, version: &str) -> anyhow::Result<()> {
        self.declare_with(provider, &json!({"version": version}))
    }

    /// Declares a provider with such a spec.
    ///
    /// # Errors
    ///
    /// The API refuses it.
    pub fn declare_with(&self, provider: Installed, spec: &Value) -> anyhow::Result<()> {
        self.apply(&json!({
            "apiVersion": "operator.cluster.x-k8s.io/v1alpha2", "kind": provider.title,
            "metadata": {"name": provider.name, "namespace": provider.namespace},
            "spec": spec,
        }))
    }

    /// Waits until a provider is Ready in a version, and nothing works on it any more.
    ///
    /// # Errors
    ///
    /// It is not in time; the error shows how it stands.
    pub fn installed(&self, provider: Installed, version: &str) -> anyhow::Result<()> {
        self.installed_while(provider, version, &|| Ok(()))
    }

    fn installed_while(
        &self,
        provider: Installed,
        version: &str,
        meanwhile: &dyn Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let name = format!("{}/{}", provider.kind, provider.name);
        let get = [
            "--namespace",
            provider.namespace,
            "get",
            &name,
            "--output=json",
        ];
        let mut last = Value::Null;
        wait_until(&format!("{name} {version} to be Ready"), LIMIT, || {
            meanwhile()?;
            let object: Value = serde_json::from_str(&self.kubectl(&get)?)?;
            last = object["status"].clone();
            let ready = is_true(&object, "Ready");
            let is_told =
                object["status"]["observedGeneration"] == object["metadata"]["generation"];
            Ok((last["installedVersion"] == version && ready && is_told).then_some(()))
        })
        .with_context(|| {
            let pods = ["--namespace", provider.namespace, "describe", "pods"];
            let pods = self.kubectl(&pods).unwrap_or_default();
            format!("{last:#}\n{pods}\n{}", self.said())
        })
    }

    /// Raises a workload cluster of one control plane machine and one worker, all in memory, and waits until it is Available.
    ///
    /// # Errors
    ///
    /// It is not in time; the error shows how it stands.
    pub fn raise(&self, name: &str) -> anyhow::Result<()> {
        self.begin(name)?;
        self.raised(name)
    }

    /// Declares a workload cluster as [`Management::raise`] does, and does not wait for it.
    ///
    /// # Errors
    ///
    /// The API refuses it.
    pub fn begin(&self, name: &str) -> anyhow::Result<()> {
        self.begin_in(DEFAULT, &[name])
    }

    /// The same for several at once, in a namespace that is there.
    ///
    /// # Errors
    ///
    /// The API refuses one.
    pub fn begin_in(&self, namespace: &str, names: &[&str]) -> anyhow::Result<()> {
        let objects: Vec<_> = names
            .iter()
            .flat_map(|name| workload(namespace, name))
            .collect();
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))
    }

    /// Waits until a workload cluster is Available.
    ///
    /// # Errors
    ///
    /// It is not in time; the error shows how it stands.
    pub fn raised(&self, name: &str) -> anyhow::Result<()> {
        self.raised_in(DEFAULT, name)
    }

    /// The same for one of another namespace.
    ///
    /// # Errors
    ///
    /// It is not in time; the error shows how it stands.
    pub fn raised_in(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let mut last = Value::Null;
        wait_until(&format!("cluster {name} to be Available"), LIMIT, || {
            let object = self.cluster(namespace, name)?;
            last = object["status"]["conditions"].clone();
            let workers = &object["status"]["workers"]["availableReplicas"];
            Ok((is_true(&object, "Available") && *workers == 1).then_some(()))
        })
        .with_context(|| {
            let logs = [
                "--namespace",
                "capd-system",
                "logs",
                "--tail=30",
                "deployment/capd-controller-manager",
            ];
            let logs = self.kubectl(&logs).unwrap_or_default();
            format!("{last:#}\n{logs}")
        })
    }

    /// Whether a workload cluster is Available.
    ///
    /// # Errors
    ///
    /// It is not there, or the API does not answer.
    pub fn is_available(&self, name: &str) -> anyhow::Result<bool> {
        Ok(is_true(&self.cluster(DEFAULT, name)?, "Available"))
    }

    fn cluster(&self, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let name = format!("clusters.cluster.x-k8s.io/{name}");
        let get = ["--namespace", namespace, "get", &name, "--output=json"];
        Ok(serde_json::from_str(&self.kubectl(&get)?)?)
    }

    /// Deletes a workload cluster, and waits until it is gone.
    ///
    /// # Errors
    ///
    /// It is not in time.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        self.remove_in(DEFAULT, name)
    }

    /// The same for one of another namespace.
    ///
    /// # Errors
    ///
    /// It is not in time.
    pub fn remove_in(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let name = format!("clusters.cluster.x-k8s.io/{name}");
        let delete = ["delete", &name, "--timeout=180s"];
        self.kubectl(&[&["--namespace", namespace], &delete[..]].concat())?;
        Ok(())
    }

    /// Waits until no pod is ending: what one could still do to calls is done then.
    ///
    /// # Errors
    ///
    /// The API does not answer, or one is still there after the usual time.
    pub fn old_pods_gone(&self) -> anyhow::Result<()> {
        let ending = "--output=jsonpath={.items[*].metadata.deletionTimestamp}";
        wait_until("old pods to be gone", LIMIT, || {
            let ending = self.kubectl(&["get", "pods", "--all-namespaces", ending])?;
            Ok(ending.trim().is_empty().then_some(()))
        })
    }

    /// Calls the API through all versions of what the providers bring along.
    pub fn calls(&self) -> Calls {
        Calls::start(self.node.lab.owner(), &self.node.kubeconfig(), called())
    }

    /// What Windlass said.
    pub fn said(&self) -> String {
        let operator = self.operator.borrow();
        operator.as_ref().map(Operator::said).unwrap_or_default()
    }

    /// Runs kubectl, and gives what it prints.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        output(&mut self.node.kubectl(arguments))
    }

    /// What the key `value` of a Secret holds, which is where Cluster API has kubeconfigs and what machines are begun with.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn secret(&self, namespace: &str, name: &str) -> anyhow::Result<Vec<u8>> {
        let value = ["secret", name, "--output=jsonpath={.data.value}"];
        let value = self.kubectl(&[&["--namespace", namespace, "get"], &value[..]].concat())?;
        STANDARD.decode(value).context("decode a Secret")
    }

    /// kubectl as an administrator of a workload cluster in the usual namespace, by the kubeconfig that Cluster API keeps of it.
    ///
    /// # Errors
    ///
    /// There is no such cluster, or it does not answer.
    pub fn kubectl_in(&self, cluster: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let kubeconfig = self.node.dir().join(format!("{cluster}.kubeconfig"));
        let secret = self.secret(DEFAULT, &format!("{cluster}-kubeconfig"))?;
        fs::write(&kubeconfig, secret).context("write a kubeconfig")?;
        let mut kubectl = Command::new(self.node.programs().join("kubectl"));
        kubectl.arg("--kubeconfig").arg(&kubeconfig).args(arguments);
        output(&mut self.node.lab.enter_network(&kubectl))
    }

    /// Applies an object.
    ///
    /// # Errors
    ///
    /// The API refuses it.
    pub fn apply(&self, object: &Value) -> anyhow::Result<()> {
        let file = self.node.dir().join("object.json");
        fs::write(&file, object.to_string()).context("write an object")?;
        let file = file.display().to_string();
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--filename",
            &file,
        ];
        match self.kubectl(&apply) {
            Ok(_) => Ok(()),
            Err(error) => bail!("{error:#}: {object}"),
        }
    }

    /// What a plain `clusterctl` prints that knows the releases there are, and nothing of Windlass.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn clusterctl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let home = self.node.dir().join("clusterctl");
        fs::create_dir_all(&home).context("make a home of clusterctl")?;
        let releases = ClusterApi::PROVIDERS.iter().zip(PROVIDERS);
        let releases: Vec<_> = releases
            .map(|(provided, installed)| {
                let [_, newest] = Self::VERSIONS;
                let repository = self.managers.repository.join(provided.label);
                let file = repository.join(newest).join(provided.file);
                json!({"name": installed.name, "type": installed.title, "url": format!("file://{}", file.display())})
            })
            .collect();
        let configuration = home.join("clusterctl.yaml");
        fs::write(&configuration, json!({"providers": releases}).to_string())
            .context("configure clusterctl")?;
        let mut command = Command::new(&self.managers.cluster_api.clusterctl);
        command
            .args(arguments)
            .arg("--config")
            .arg(&configuration)
            .arg("--kubeconfig")
            .arg(self.node.kubeconfig())
            .env("HOME", &home)
            .env("XDG_CONFIG_HOME", &home)
            .env("GOPROXY", "off")
            .env("NO_COLOR", "1")
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        output(&mut self.node.lab.enter_network(&command))
    }

    /// `windlass` by the administrator's kubeconfig, whose address is in the lab's network alone.
    pub fn windlass(&self, arguments: &[&str]) -> Command {
        operator::beside(&self.node, &self.windlass, arguments)
    }
}

fn records_of(run: &str, journal: &Path) -> anyhow::Result<Vec<[String; 3]>> {
    let text = fs::read_to_string(journal).unwrap_or_default();
    // The last line may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let records = whole.lines().map(|line| {
        let line: Value = serde_json::from_str(line).context("read a journal")?;
        let of = |field: &str| {
            line["record"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        Ok([run.to_owned(), of("event"), of("step")])
    });
    records.collect()
}

/// What is called all the time. What controllers would work on is only tried, and one of it is read.
fn called() -> Vec<Called> {
    let both = |spec: &Value| vec![("v1beta1", spec.clone()), ("v1beta2", spec.clone())];
    let reference = |group: &str, kind: &str| {
        let mut reference = json!({"kind": kind, "name": "none"});
        reference[group] = json!(match group {
            "apiVersion" => "infrastructure.cluster.x-k8s.io/v1beta1",
            _ => "infrastructure.cluster.x-k8s.io",
        });
        reference
    };
    let cluster =
        |group: &str| json!({"paused": true, "infrastructureRef": reference(group, "DevCluster")});
    let plane = |template: Value| json!({"version": "v1.34.4", "replicas": 1, "kubeadmConfigSpec": {"preKubeadmCommands": ["true"]}, "machineTemplate": template});
    vec![
        Called {
            group: "cluster.x-k8s.io",
            kind: "Cluster",
            plural: "clusters",
            specs: vec![
                ("v1beta1", cluster("apiVersion")),
                ("v1beta2", cluster("apiGroup")),
            ],
            is_tried: true,
            every: 50,
        },
        Called {
            group: "cluster.x-k8s.io",
            kind: "MachineDrainRule",
            plural: "machinedrainrules",
            specs: both(
                &json!({"drain": {"behavior": "Skip"}, "pods": [{"selector": {"matchLabels": {"app": "none"}}}]}),
            ),
            is_tried: false,
            every: 50,
        },
        Called {
            group: "bootstrap.cluster.x-k8s.io",
            kind: "KubeadmConfigTemplate",
            plural: "kubeadmconfigtemplates",
            specs: both(&json!({"template": {"spec": {"preKubeadmCommands": ["true"]}}})),
            is_tried: false,
            every: 50,
        },
        Called {
            group: "controlplane.cluster.x-k8s.io",
            kind: "KubeadmControlPlane",
            plural: "kubeadmcontrolplanes",
            specs: vec![
                (
                    "v1beta1",
                    plane(
                        json!({"infrastructureRef": reference("apiVersion", "DevMachineTemplate")}),
                    ),
                ),
                (
                    "v1beta2",
                    plane(
                        json!({"spec": {"infrastructureRef": reference("apiGroup", "DevMachineTemplate")}}),
                    ),
                ),
            ],
            is_tried: true,
            every: 50,
        },
        Called {
            group: "infrastructure.cluster.x-k8s.io",
            kind: "DevMachineTemplate",
            plural: "devmachinetemplates",
            specs: both(&json!({"template": {"spec": {"backend": {"inMemory": in_memory()}}}})),
            is_tried: false,
            every: 50,
        },
    ]
}
