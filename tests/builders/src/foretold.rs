//! Edits of a fleet whose clusters are of Cluster API with machines in memory, and what is said of them, held against the UIDs of Machines.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};

/// The namespace of the fleet.
pub const FLEET: &str = "fleet";
/// The cluster that is the canary.
pub const ALPHA: &str = "alpha";
/// One of its site.
pub const BETA: &str = "beta";
/// One of the other site.
pub const GAMMA: &str = "gamma";
/// The clusters, and the site of each.
pub const CLUSTERS: [(&str, &str); 3] = [(ALPHA, "fra1"), (BETA, "fra1"), (GAMMA, "ams2")];

/// What a cluster is rendered to, as people write it. The names of templates end in a digest of what is in them.
pub const TEMPLATE: &str = r#"
apiVersion: inventory.windlass.dev/v1alpha1
kind: ClusterTemplate
metadata: {name: memory, namespace: fleet}
spec:
  backEnd: Plain
  documents:
    - object:
        apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
        kind: DevCluster
        # Its controller writes an annotation, and falls over where there are none.
        metadata: {name: "{{ cluster.name }}", annotations: {example.com/in-memory: "true"}}
        spec: {backend: {inMemory: {}}}
    - naming: Hashed
      object:
        apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
        kind: DevMachineTemplate
        metadata: {name: "{{ cluster.name }}-plane"}
        spec: {template: {spec: {backend: {inMemory: {
          vm: {provisioning: {startupDuration: "{{ boot }}", startupJitter: "0.2"}},
          node: {provisioning: {startupDuration: 1s, startupJitter: "0.2"}},
          apiServer: {provisioning: {startupDuration: 1s, startupJitter: "0.2"}},
          etcd: {provisioning: {startupDuration: 1s, startupJitter: "0.2"}}}}}}}
    - naming: Hashed
      object:
        apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
        kind: DevMachineTemplate
        metadata: {name: "{{ cluster.name }}-worker"}
        spec: {template: {spec: {backend: {inMemory: {
          vm: {provisioning: {startupDuration: 2s, startupJitter: "0.2"}},
          node: {provisioning: {startupDuration: 1s, startupJitter: "0.2"}},
          apiServer: {provisioning: {startupDuration: 1s, startupJitter: "0.2"}},
          etcd: {provisioning: {startupDuration: 1s, startupJitter: "0.2"}}}}}}}
    - naming: Hashed
      object:
        apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
        kind: KubeadmConfigTemplate
        metadata: {name: "{{ cluster.name }}-worker"}
        spec:
          template:
            spec:
              files: [{path: /etc/site, content: "dns {{ dns | join(' ') }}"}]
              joinConfiguration: {nodeRegistration: {criSocket: "unix:///run/containerd/containerd.sock"}}
    - object:
        apiVersion: controlplane.cluster.x-k8s.io/v1beta2
        kind: KubeadmControlPlane
        metadata: {name: "{{ cluster.name }}-plane"}
        spec:
          replicas: 1
          version: v1.34.4
          kubeadmConfigSpec: {clusterConfiguration: {apiServer: {certSANs: [localhost]}}}
          machineTemplate:
            spec:
              infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: "{{ cluster.name }}-plane"}
    - object:
        apiVersion: cluster.x-k8s.io/v1beta2
        kind: MachineDeployment
        metadata: {name: "{{ cluster.name }}-worker"}
        spec:
          clusterName: "{{ cluster.name }}"
          replicas: "{{ workers }}"
          selector: {matchLabels: {cluster.x-k8s.io/deployment-name: "{{ cluster.name }}-worker"}}
          template:
            metadata: {labels: {cluster.x-k8s.io/cluster-name: "{{ cluster.name }}", cluster.x-k8s.io/deployment-name: "{{ cluster.name }}-worker", example.com/note: "{{ note }}"}}
            spec:
              clusterName: "{{ cluster.name }}"
              deletion: {nodeDrainTimeoutSeconds: "{{ drain }}"}
              version: v1.34.4
              bootstrap:
                configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: "{{ cluster.name }}-worker"}
              infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: "{{ cluster.name }}-worker"}
    - object:
        apiVersion: cluster.x-k8s.io/v1beta2
        kind: Cluster
        metadata: {name: "{{ cluster.name }}"}
        spec:
          clusterNetwork: {pods: {cidrBlocks: [192.168.0.0/16]}, services: {cidrBlocks: [10.128.0.0/12]}}
          controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: "{{ cluster.name }}-plane"}
          infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevCluster, name: "{{ cluster.name }}"}
"#;

/// What a site says, all of it rendered: some of it replaces machines of workers or of control planes, some is brought to them where they
/// are, some makes more or fewer of them.
#[derive(Clone, Debug)]
pub struct Site {
    /// A name server, which workers are bootstrapped with.
    pub dns: String,
    /// How long machines of control planes boot.
    pub boot: String,
    /// How many seconds a worker is drained for.
    pub drain: u32,
    /// A label of workers.
    pub note: String,
    /// How many there are of a cluster.
    pub workers: u32,
}

impl Site {
    /// One of these, and the rest as it is everywhere.
    pub fn new(dns: &str, boot: &str) -> Self {
        Self {
            dns: dns.to_owned(),
            boot: boot.to_owned(),
            drain: 10,
            note: "none".to_owned(),
            workers: 1,
        }
    }

    /// Its values, with one that is rendered nowhere.
    pub fn values(&self, contact: &str) -> Value {
        let Self {
            dns,
            boot,
            drain,
            note,
            workers,
        } = self;
        json!({"dns": [dns], "boot": boot, "drain": drain, "note": note, "workers": workers, "contact": contact})
    }

    /// The object.
    pub fn object(&self, name: &str) -> Value {
        json!({
            "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Site",
            "metadata": {"name": name, "namespace": FLEET}, "spec": {"values": self.values("")},
        })
    }

    /// Whether what is brought to machines where they are is on one of a worker.
    pub fn has_arrived(&self, machine: &Value) -> bool {
        machine["spec"]["deletion"]["nodeDrainTimeoutSeconds"] == self.drain
            && machine["metadata"]["labels"]["example.com/note"] == self.note
    }

    fn edit(&mut self, random: &mut StdRng) {
        match random.random_range(0..5) {
            0 => self.dns = format!("10.77.0.{}", random.random_range(1..9)),
            1 => self.boot = format!("{}s", random.random_range(1..4)),
            2 => self.drain = random.random_range(10..60),
            3 => self.note = format!("n{}", random.random_range(0..9)),
            _ => self.workers = random.random_range(1..4),
        }
    }
}

/// Edits one of the sites at random, in one thing or two, and names it.
pub fn edited(
    sites: &mut BTreeMap<&'static str, Site>,
    random: &mut StdRng,
) -> Option<(&'static str, Site)> {
    let number = random.random_range(0..sites.len());
    let (name, site) = sites.iter_mut().nth(number)?;
    for _ in 0..random.random_range(1..3) {
        site.edit(random);
    }
    Some((name, site.clone()))
}

/// A Machine by its name and UID: one that was made again is another one.
pub type There = BTreeSet<(String, String)>;

/// Exactly those go that were said to go, and so many come. `told` is what `windlass inventory plan` says as JSON.
///
/// # Errors
///
/// Something else became of a Machine.
pub fn compare(told: &[Value], before: &There, after: &There) -> Result<()> {
    let effects: Vec<_> = told
        .iter()
        .flat_map(|change| change["effects"].as_array().into_iter().flatten())
        .collect();
    let is_exact = effects.iter().all(|effect| effect["bound"] == "Exactly");
    ensure!(is_exact, "{effects:#?}");
    let of = |happens: &'static str| {
        let effects = effects.clone().into_iter();
        effects.filter(move |effect| effect["happens"] == happens)
    };
    let count = |happens: &'static str| -> u64 {
        of(happens)
            .filter_map(|effect| effect["count"].as_u64())
            .sum()
    };
    let named = |happens: &'static str| -> BTreeSet<String> {
        let names = of(happens).filter_map(|effect| effect["names"].as_array());
        names.flatten().map(text).collect()
    };
    let names = |there: BTreeSet<&(String, String)>| -> BTreeSet<String> {
        there.into_iter().map(|(name, _)| name.clone()).collect()
    };
    let gone = names(before.difference(after).collect());
    let come = names(after.difference(before).collect());
    let stay = names(before.intersection(after).collect());
    let (replaced, removed, updated) = (named("Replaced"), named("Removed"), named("Updated"));
    ensure!(
        replaced.len() as u64 == count("Replaced"),
        "not each is named: {effects:#?}"
    );
    ensure!(
        replaced.is_subset(&gone)
            && removed.is_subset(&gone)
            && gone.len() as u64 == count("Replaced") + count("Removed"),
        "{gone:?} go: {effects:#?}"
    );
    ensure!(
        come.len() as u64 == count("Replaced") + count("Added"),
        "{come:?} come: {effects:#?}"
    );
    ensure!(updated.is_subset(&stay), "{stay:?} stay: {effects:#?}");
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
