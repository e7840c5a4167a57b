//! An infrastructure provider in small: Machines are throw-away hosts beside the management cluster, which Debian's cloud-init makes nodes.
//!
//! Its release lies in `tests/e2e/providers`, and Windlass installs it. What works on its objects is no pod but [`Hosts::work`], which whoever
//! waits for something calls again and again: a host is reached from the lab alone, and what goes wrong on one fails the story at once.
//! Each call goes by what there is, as a controller does: a host is a Machine's by that Machine's `spec.host`, kept for a control plane by the
//! endpoint of a cluster, and free otherwise.

use std::{fs, thread};

use anyhow::{Context, anyhow, bail};
use lab::{
    Host,
    command::{output, output_from},
};
use serde_json::{Value, json};

use super::{
    Management,
    seen::{self, Seen, is_deleted, is_one},
};
use crate::root;

/// The provider, and the hosts that it makes Machines of: all of the lab but the management cluster's own.
pub struct Hosts<'a> {
    management: &'a Management,
}

impl<'a> Hosts<'a> {
    /// The group of its kinds.
    pub const GROUP: &'static str = "infrastructure.hosts.example";

    /// Prepares the hosts, as an image of machines would be, and has Windlass install the provider.
    ///
    /// # Errors
    ///
    /// A host lacks something, or the provider does not get Ready; the error shows what Windlass said.
    pub fn install(management: &'a Management) -> anyhow::Result<Self> {
        let hosts = Self { management };
        hosts.prepare()?;
        let releases = root().join("tests/e2e/providers").display().to_string();
        let mut apply = management.windlass(&["--namespace", "hosts-system", "providers", "apply"]);
        apply.args(["--infrastructure", "hosts:v0.1.0", "--from", &releases]);
        output(&mut apply)?;
        Ok(hosts)
    }

    fn prepare(&self) -> anyhow::Result<()> {
        thread::scope(|scope| {
            let node = &self.management.node;
            let prepared: Vec<_> = self
                .all()
                .map(|host| scope.spawn(move || node.prepare(&host.name)))
                .collect();
            for prepared in prepared {
                prepared
                    .join()
                    .map_err(|_| anyhow!("preparing a host panicked"))??;
            }
            Ok(())
        })
    }

    /// Does what there is to do at the moment, and waits for nothing.
    ///
    /// # Errors
    ///
    /// The API refuses something, or a host did not become a node; the error shows the end of what it said.
    pub fn work(&self) -> anyhow::Result<()> {
        let seen = self.observe()?;
        for cluster in seen.of("HostCluster") {
            self.serve_cluster(cluster, &seen)
                .with_context(|| shown(cluster))?;
        }
        for machine in seen.of("HostMachine") {
            self.serve_machine(machine, &seen)
                .with_context(|| shown(machine))?;
        }
        Ok(())
    }

    /// The hosts that nobody has.
    ///
    /// # Errors
    ///
    /// The API does not answer.
    pub fn free(&self) -> anyhow::Result<Vec<&Host>> {
        let seen = self.observe()?;
        Ok(self
            .all()
            .filter(|host| !Self::is_taken(&seen, host))
            .collect())
    }

    /// Gives its API an address: the host that becomes its first control plane.
    fn serve_cluster(&self, cluster: &Value, seen: &Seen) -> anyhow::Result<()> {
        if is_deleted(cluster) {
            let is_used = seen
                .of("HostMachine")
                .any(|machine| is_one(machine, cluster));
            return if is_used {
                Ok(())
            } else {
                self.let_go(cluster)
            };
        }
        // Core has not seen it yet.
        if seen.owner("Cluster", cluster).is_none() {
            return Ok(());
        }
        if cluster["spec"]["controlPlaneEndpoint"]["host"].is_null() {
            let Some(host) = self.free()?.first().copied() else {
                return Ok(());
            };
            let endpoint = json!({"host": host.address, "port": 6443});
            self.keep(cluster, &json!({"controlPlaneEndpoint": endpoint}))?;
        }
        if is_provisioned(cluster) {
            return Ok(());
        }
        self.tell(cluster, &json!({"initialization": {"provisioned": true}}))
    }

    /// Makes a free host a node by what the bootstrap provider wrote, and frees it when the Machine goes.
    fn serve_machine(&self, machine: &Value, seen: &Seen) -> anyhow::Result<()> {
        let host = self.all().find(|host| machine["spec"]["host"] == host.name);
        if is_deleted(machine) {
            if let Some(host) = host {
                self.on(host, RESET)?;
            }
            return self.let_go(machine);
        }
        if is_provisioned(machine) {
            return Ok(());
        }
        let Some(owner) = seen.owner("Machine", machine) else {
            return Ok(());
        };
        let Some(secret) = owner["spec"]["bootstrap"]["dataSecretName"].as_str() else {
            return Ok(());
        };
        let Some(host) = host else {
            return match self.choose(machine, owner, seen)? {
                Some(host) => self.keep(machine, &json!({"host": host.name})),
                None => Ok(()),
            };
        };
        let id = owner["metadata"]["uid"].as_str().context("a uid")?;
        match self.on(host, STATE)?.trim() {
            "asleep" => self.wake(host, id, &self.secret(machine, secret)?),
            "busy" => Ok(()),
            "node" => self.provisioned(machine, host, id),
            failed => bail!("{} did not become a node: {failed}", host.name),
        }
    }

    /// The host that is kept for it, or any that is free.
    fn choose(&self, machine: &Value, owner: &Value, seen: &Seen) -> anyhow::Result<Option<&Host>> {
        let free = self.free()?;
        if owner["metadata"]["labels"]["cluster.x-k8s.io/control-plane"].is_null() {
            return Ok(free.first().copied());
        }
        let cluster = seen
            .of("HostCluster")
            .find(|cluster| is_one(machine, cluster));
        let address = cluster.map(|cluster| &cluster["spec"]["controlPlaneEndpoint"]["host"]);
        let is_taken = |host: &Host| {
            seen.of("HostMachine")
                .any(|other| other["spec"]["host"] == host.name)
        };
        let mut kept = self
            .all()
            .filter(|host| Some(&json!(host.address)) == address);
        Ok(kept.find(|host| !is_taken(host)).or(free.first().copied()))
    }

    fn provisioned(&self, machine: &Value, host: &Host, id: &str) -> anyhow::Result<()> {
        // As the kubelet was told by the workload cluster's own configuration.
        self.keep(machine, &json!({"providerID": format!("host:///{id}")}))?;
        let addresses = json!([
            {"type": "Hostname", "address": host.name},
            {"type": "InternalIP", "address": host.address},
        ]);
        let provisioned = json!({"provisioned": true});
        self.tell(
            machine,
            &json!({"addresses": addresses, "initialization": provisioned}),
        )
    }

    /// Puts a seed of the NoCloud source in place, and starts cloud-init as a boot would.
    fn wake(&self, host: &Host, id: &str, user_data: &[u8]) -> anyhow::Result<()> {
        // By a file, so that nobody has to write while somebody else does not read.
        let file = self
            .management
            .node
            .dir()
            .join(format!("user-data-{}", host.name));
        fs::write(&file, user_data).context("write user data")?;
        let mut ssh = self.management.node.lab.ssh_command(&host.name)?;
        ssh.args(["--", "bash", "-c", &quoted(WAKE), "wake", id, &host.name]);
        output_from(fs::File::open(&file)?, &mut ssh)?;
        fs::remove_file(&file).context("remove user data")
    }

    fn on(&self, host: &Host, script: &str) -> anyhow::Result<String> {
        let mut ssh = self.management.node.lab.ssh_command(&host.name)?;
        output(ssh.args(["--", "bash", "-c", &quoted(script)]))
    }

    fn all(&self) -> impl Iterator<Item = &'a Host> {
        self.management.node.lab.hosts().iter().skip(1)
    }

    fn observe(&self) -> anyhow::Result<Seen> {
        let group = Self::GROUP;
        let kinds = [
            &format!("hostclusters.{group}"),
            &format!("hostmachines.{group}"),
            "clusters.cluster.x-k8s.io",
            "machines.cluster.x-k8s.io",
        ];
        Seen::of_all(self.management, &kinds)
    }

    fn secret(&self, machine: &Value, name: &str) -> anyhow::Result<Vec<u8>> {
        let namespace = machine["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default();
        self.management.secret(namespace, name)
    }

    /// Writes into an object's spec, and has it stay until [`Self::let_go`].
    fn keep(&self, object: &Value, spec: &Value) -> anyhow::Result<()> {
        seen::keep(self.management, object, spec, FINALIZER)
    }

    fn let_go(&self, object: &Value) -> anyhow::Result<()> {
        seen::let_go(self.management, object, FINALIZER)
    }

    fn tell(&self, object: &Value, status: &Value) -> anyhow::Result<()> {
        seen::tell(self.management, object, status)
    }

    /// Whether it is a Machine, or kept for a control plane.
    fn is_taken(seen: &Seen, host: &Host) -> bool {
        let address = json!(host.address);
        seen.of("HostMachine")
            .any(|machine| machine["spec"]["host"] == host.name)
            || seen
                .of("HostCluster")
                .any(|cluster| cluster["spec"]["controlPlaneEndpoint"]["host"] == address)
    }
}

fn is_provisioned(object: &Value) -> bool {
    object["status"]["initialization"]["provisioned"] == true
}

fn shown(object: &Value) -> String {
    format!("{} {}", object["kind"], object["metadata"]["name"])
}

/// A word for the shell of the other side, to which ssh gives all words as one text.
fn quoted(script: &str) -> String {
    format!("'{}'", script.replace('\'', r"'\''"))
}

const FINALIZER: &str = "infrastructure.hosts.example/host";
const STATE: &str = include_str!("hosts/state.sh");
const WAKE: &str = include_str!("hosts/wake.sh");
const RESET: &str = include_str!("hosts/reset.sh");
