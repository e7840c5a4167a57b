//! Servers in memory in place of a cloud's: what Cluster API's provider for OpenStack does for its managers, in small.
//!
//! The kinds are those of the provider itself. What is behind each object is one of the in-memory kinds of Cluster API's own tests, which
//! stands beside it and has the same owner, so that core and kubeadm's managers find a control plane that answers. As with hosts, no pod
//! works on them but [`Servers::work`], which whoever waits for something calls again and again.

use std::{cell::RefCell, fs, process::Command};

use anyhow::{Context, ensure};
use lab::{Progress, command::output, module_of_sum};
use serde_json::{Value, json};

use super::{
    Management,
    machines::in_memory,
    seen::{self, Seen, is_deleted, reference},
};

/// A cloud whose servers are in memory.
pub struct Servers<'a> {
    management: &'a Management,
    /// Of which group the cloud has no room for servers.
    full: RefCell<Option<String>>,
}

impl<'a> Servers<'a> {
    /// Has the API know the provider's kinds.
    ///
    /// # Errors
    ///
    /// They cannot be had, or the API refuses them.
    pub fn define(management: &'a Management, progress: &dyn Progress) -> anyhow::Result<Self> {
        let module = module_of_sum(MODULE, VERSION, SUM, progress)?;
        let mut kinds = 0;
        for entry in fs::read_dir(module.join("config/crd/bases")).context("list definitions")? {
            let text = fs::read_to_string(entry?.path()).context("read a definition")?;
            let definition: Value = serde_saphyr::from_str(&text).context("read a definition")?;
            management.apply(&of_contract(definition)?)?;
            kinds += 1;
        }
        ensure!(kinds > 0, "{MODULE} {VERSION} defines nothing");
        let wait = [
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        ];
        management.kubectl(&wait)?;
        Ok(Self {
            management,
            full: RefCell::default(),
        })
    }

    /// From now on there is no room for new servers of a group, where one is named.
    pub fn fill(&self, group: Option<&str>) {
        *self.full.borrow_mut() = group.map(str::to_owned);
    }

    /// Has a new cluster of Magnum be founded by authorities with RSA keys, as those are that come from a real Magnum: servers in memory
    /// fall over any other. False: they are not there yet.
    ///
    /// # Errors
    ///
    /// No key can be made, or the API refuses something.
    pub fn found_by_rsa(&self, cluster: &str) -> anyhow::Result<bool> {
        let label = format!("magnum.windlass.dev/cluster={cluster}");
        let list = ["get", "secrets", "--all-namespaces", "--output=json"];
        let list = self
            .management
            .kubectl(&[&list[..], &["-l", &label]].concat())?;
        let list: Value = serde_json::from_str(&list)?;
        let secrets = list["items"].as_array().context("there is no list")?;
        let named = |end: &str| {
            secrets.iter().find(|secret| {
                let name = secret["metadata"]["name"].as_str().unwrap_or_default();
                name.ends_with(end) && secret["type"] == "cluster.x-k8s.io/secret"
            })
        };
        let kept = format!("{cluster}-authorities");
        let kept = secrets
            .iter()
            .find(|secret| secret["metadata"]["name"] == kept);
        let (Some(kept), Some(kubernetes), Some(etcd)) = (kept, named("-ca"), named("-etcd"))
        else {
            return Ok(false);
        };
        for (purpose, used) in [("ca", kubernetes), ("etcd-ca", etcd)] {
            let (certificate, key) = self.authority(purpose)?;
            let mut data = json!({});
            data[format!("{purpose}.crt")] = json!(certificate);
            data[format!("{purpose}.key")] = json!(key);
            self.give(kept, &data)?;
            self.give(used, &json!({"tls.crt": certificate, "tls.key": key}))?;
        }
        Ok(true)
    }

    /// A certificate that signs others, and its RSA key.
    fn authority(&self, name: &str) -> anyhow::Result<(String, String)> {
        let file = |end: &str| self.management.node.dir().join(format!("{name}.{end}"));
        let (certificate, key) = (file("crt"), file("key"));
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30",
        ]);
        openssl.args(["-subj", &format!("/CN={name}")]);
        openssl.args(["-addext", "keyUsage=critical,keyCertSign,cRLSign"]);
        openssl
            .arg("-out")
            .arg(&certificate)
            .arg("-keyout")
            .arg(&key);
        output(&mut openssl)?;
        Ok((fs::read_to_string(certificate)?, fs::read_to_string(key)?))
    }

    /// Changes what a Secret has.
    fn give(&self, secret: &Value, data: &Value) -> anyhow::Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (
            &secret["metadata"]["namespace"],
            &secret["metadata"]["name"],
        );
        let file = self.management.node.dir().join("given.json");
        fs::write(&file, json!({"stringData": data}).to_string())?;
        let patch = format!("--patch-file={}", file.display());
        let patch = [
            "--namespace",
            &text(namespace),
            "patch",
            "secret",
            &text(name),
            &patch,
        ];
        self.management.kubectl(&patch).map(drop)
    }

    /// Does what there is to do at the moment, and waits for nothing.
    ///
    /// # Errors
    ///
    /// The API refuses something.
    pub fn work(&self) -> anyhow::Result<()> {
        let seen = Seen::of_all(
            self.management,
            &[
                "machines.cluster.x-k8s.io",
                "openstackclusters.infrastructure.cluster.x-k8s.io",
                "openstackmachines.infrastructure.cluster.x-k8s.io",
                "devclusters.infrastructure.cluster.x-k8s.io",
                "devmachines.infrastructure.cluster.x-k8s.io",
            ],
        )?;
        for cluster in seen.of("OpenStackCluster") {
            self.serve_cluster(cluster, seen.beside("DevCluster", cluster))?;
        }
        for machine in seen.of("OpenStackMachine") {
            let has_data = seen
                .owner("Machine", machine)
                .is_some_and(|owner| owner["spec"]["bootstrap"]["dataSecretName"].is_string());
            self.serve_machine(machine, seen.beside("DevMachine", machine), has_data)?;
        }
        Ok(())
    }

    fn serve_cluster(&self, cluster: &Value, behind: Option<&Value>) -> anyhow::Result<()> {
        if is_deleted(cluster) {
            return self.end(cluster, behind);
        }
        let Some(behind) = behind else {
            let backend = json!({"inMemory": {}});
            return self.begin("DevCluster", "Cluster", cluster, &backend);
        };
        let endpoint = &behind["spec"]["controlPlaneEndpoint"];
        let is_there = endpoint["host"]
            .as_str()
            .is_some_and(|host| !host.is_empty());
        if !is_there || cluster["status"]["ready"] == true {
            return Ok(());
        }
        seen::keep(
            self.management,
            cluster,
            &json!({"controlPlaneEndpoint": endpoint}),
            FINALIZER,
        )?;
        seen::tell(self.management, cluster, &json!({"ready": true}))
    }

    /// A server begins when there is what it boots with. What is behind it would otherwise wait for news of its Machine, and a Machine
    /// that names another kind sends it none.
    fn serve_machine(
        &self,
        machine: &Value,
        behind: Option<&Value>,
        has_data: bool,
    ) -> anyhow::Result<()> {
        if is_deleted(machine) {
            return self.end(machine, behind);
        }
        let Some(behind) = behind else {
            if self.is_full_for(machine) {
                return self.refuse(machine);
            }
            if !has_data {
                return Ok(());
            }
            let backend = json!({"inMemory": in_memory()});
            return self.begin("DevMachine", "Machine", machine, &backend);
        };
        let id = &behind["spec"]["providerID"];
        if !id.is_string() || machine["status"]["ready"] == true {
            return Ok(());
        }
        let spec = json!({"providerID": id});
        seen::keep(self.management, machine, &spec, FINALIZER)?;
        let addresses = json!([{"type": "InternalIP", "address": "192.0.2.7"}]);
        let status = json!({"ready": true, "instanceState": "ACTIVE", "addresses": addresses, "conditions": []});
        seen::tell(self.management, machine, &status)
    }

    /// Makes what is behind an object, once a manager has said whose it is.
    fn begin(&self, kind: &str, owner: &str, of: &Value, backend: &Value) -> anyhow::Result<()> {
        let Some(owner) = reference(owner, of) else {
            return Ok(());
        };
        let metadata = &of["metadata"];
        self.management.apply(&json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": kind,
            "metadata": {
                "name": metadata["name"], "namespace": metadata["namespace"], "labels": metadata["labels"],
                // Its controller writes an annotation, and falls over where there are none.
                "annotations": {"example.com/in-memory": "true"}, "ownerReferences": [owner],
            },
            "spec": {"backend": backend},
        }))?;
        seen::keep(self.management, of, &json!({}), FINALIZER)
    }

    fn end(&self, object: &Value, behind: Option<&Value>) -> anyhow::Result<()> {
        let Some(behind) = behind else {
            return seen::let_go(self.management, object, FINALIZER);
        };
        if is_deleted(behind) {
            return Ok(());
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&behind["kind"]), text(&behind["metadata"]["name"]));
        let namespace = text(&behind["metadata"]["namespace"]);
        let delete = ["--namespace", &namespace, "delete", &kind, &name];
        let delete = [&delete[..], &["--wait=false"]].concat();
        self.management.kubectl(&delete).map(drop)
    }

    fn is_full_for(&self, machine: &Value) -> bool {
        let name = machine["metadata"]["name"].as_str().unwrap_or_default();
        let full = self.full.borrow();
        full.as_ref().is_some_and(|group| name.contains(group))
    }

    /// As the provider says it of a server that Nova does not start.
    fn refuse(&self, machine: &Value) -> anyhow::Result<()> {
        let conditions = machine["status"]["conditions"].as_array();
        if conditions.is_some_and(|conditions| !conditions.is_empty()) {
            return Ok(());
        }
        let condition = json!({
            "type": "InstanceReady", "status": "False", "severity": "Error", "reason": "InstanceCreateFailed",
            "message": "No valid host was found", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"ready": false, "conditions": [condition]});
        seen::tell(self.management, machine, &status)
    }
}

/// A definition as the provider's release has it, with the label by which Cluster API finds the version to speak, and with that alone:
/// nothing here converts.
fn of_contract(mut definition: Value) -> anyhow::Result<Value> {
    let label = json!({"cluster.x-k8s.io/v1beta1": "v1beta1"});
    definition["metadata"]["labels"] = label;
    let versions = definition["spec"]["versions"].as_array_mut();
    let versions = versions.context("a definition has no versions")?;
    if versions.iter().any(|version| version["name"] == "v1beta1") {
        versions.retain(|version| version["name"] == "v1beta1");
    }
    versions[0]["storage"] = json!(true);
    Ok(definition)
}

const MODULE: &str = "sigs.k8s.io/cluster-api-provider-openstack";
const VERSION: &str = "v0.14.2";
/// As go.sum would have it.
const SUM: &str = "h1:NMgU0ngsJLYd5JB0gcIfd2Rk34be5+SjEzrv4aNMso0=";
const FINALIZER: &str = "servers.example/server";
