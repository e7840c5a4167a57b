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
          kubeadmConfigSpec: {clusterConfiguration: {apiServer: {certSANs: "{{ sans }}"}}}
          machineTemplate:
            metadata: {labels: {example.com/note: "{{ planeNote }}"}}
            spec:
              deletion: {nodeDrainTimeoutSeconds: "{{ planeDrain }}"}
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
              version: "{{ version }}"
              failureDomain: "{{ zone }}"
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

/// What a level says, by key.
pub type Values = BTreeMap<&'static str, Value>;

/// What a site says: a name server, how long machines of control planes boot, and the rest as it is everywhere. All of it is rendered.
pub fn site(dns: &str, boot: &str) -> Values {
    Values::from([
        ("dns", json!([dns])),
        ("boot", json!(boot)),
        ("version", json!("v1.34.4")),
        ("zone", json!("a")),
        ("drain", json!(10)),
        ("note", json!("none")),
        ("workers", json!(1)),
        ("sans", json!(["localhost"])),
        ("planeDrain", json!(10)),
        ("planeNote", json!("none")),
    ])
}

/// A key, and another value for it: some replace machines of workers or of control planes, some are brought to them where they are, some
/// make more or fewer of them.
fn another(random: &mut StdRng) -> (&'static str, Value) {
    match random.random_range(0..10) {
        0 => (
            "dns",
            json!([format!("10.77.0.{}", random.random_range(1..9))]),
        ),
        1 => ("boot", json!(format!("{}s", random.random_range(1..4)))),
        2 => (
            "version",
            json!(format!("v1.34.{}", random.random_range(2..5))),
        ),
        3 => ("zone", json!(["a", "b", "c"][random.random_range(0..3)])),
        4 => ("drain", json!(random.random_range(10..60))),
        5 => ("note", json!(format!("n{}", random.random_range(0..9)))),
        6 => ("workers", json!(random.random_range(1..4))),
        7 => (
            "sans",
            json!(["localhost", format!("api{}", random.random_range(0..9))]),
        ),
        8 => ("planeDrain", json!(random.random_range(10..60))),
        _ => (
            "planeNote",
            json!(format!("n{}", random.random_range(0..9))),
        ),
    }
}

/// What the template, the sites and the clusters are declared to be.
#[derive(Debug)]
pub struct Declared {
    /// Which file workers are bootstrapped with.
    file: u32,
    sites: BTreeMap<&'static str, Values>,
    /// What a cluster says itself.
    clusters: BTreeMap<&'static str, Values>,
}

impl Declared {
    /// Sites, and clusters that say nothing.
    pub fn new(sites: [(&'static str, Values); 2]) -> Self {
        Self {
            file: 0,
            sites: sites.into(),
            clusters: CLUSTERS.map(|(name, _)| (name, Values::new())).into(),
        }
    }

    /// Edits at random a site, a cluster, which may take back what it said, or now and then the template of all, in one thing or two. The
    /// object as it is declared then.
    pub fn edit(&mut self, random: &mut StdRng) -> Value {
        let times = random.random_range(1..3);
        match random.random_range(0..8) {
            0 => {
                self.file += 1;
                self.template()
            }
            1..5 => {
                let (_, site) = CLUSTERS[random.random_range(0..CLUSTERS.len())];
                let values = self.sites.entry(site).or_default();
                for _ in 0..times {
                    let (key, value) = another(random);
                    values.insert(key, value);
                }
                object("Site", site, &json!({"values": values}))
            }
            _ => {
                let (name, site) = CLUSTERS[random.random_range(0..CLUSTERS.len())];
                let values = self.clusters.entry(name).or_default();
                for _ in 0..times {
                    let (key, value) = another(random);
                    if values.remove(key).is_none() {
                        values.insert(key, value);
                    }
                }
                let spec =
                    json!({"template": "memory", "parents": {"site": site}, "values": values});
                object("FleetCluster", name, &spec)
            }
        }
    }

    fn template(&self) -> Value {
        let path = format!("/etc/site{}", self.file);
        serde_saphyr::from_str(&TEMPLATE.replace("/etc/site", &path)).unwrap_or_default()
    }

    /// Whether what is brought to machines where they are is on one.
    pub fn has_arrived(&self, machine: &Value) -> bool {
        let labels = &machine["metadata"]["labels"];
        let mut clusters = CLUSTERS.into_iter();
        let Some((cluster, site)) =
            clusters.find(|(name, _)| labels["cluster.x-k8s.io/cluster-name"] == *name)
        else {
            return true;
        };
        let keys = if labels.get("cluster.x-k8s.io/control-plane").is_some() {
            ["planeDrain", "planeNote"]
        } else {
            ["drain", "note"]
        };
        let said = keys.map(|key| {
            let own = self.clusters[cluster].get(key);
            own.unwrap_or(&self.sites[site][key]).clone()
        });
        brought(machine) == said
    }
}

/// An object of the fleet.
pub fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": FLEET}, "spec": spec,
    })
}

/// What is brought to a Machine where it is: how long it is drained for, and a label.
fn brought(machine: &Value) -> [Value; 2] {
    [
        machine["spec"]["deletion"]["nodeDrainTimeoutSeconds"].clone(),
        machine["metadata"]["labels"]["example.com/note"].clone(),
    ]
}

/// Machines by name and UID, for one that was made again is another one, and what was brought to each.
pub type There = BTreeMap<(String, String), [Value; 2]>;

/// The Machines of a list.
pub fn there(machines: &[Value]) -> There {
    let machines = machines.iter().map(|machine| {
        let metadata = &machine["metadata"];
        let key = (text(&metadata["name"]), text(&metadata["uid"]));
        (key, brought(machine))
    });
    machines.collect()
}

/// Exactly those go that were said to go, so many come, and of those that stay exactly those are another that were said to be. `told` is
/// what `windlass inventory plan` says as JSON.
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
    let others = |these: &There, those: &There| -> BTreeSet<String> {
        let others = these.keys().filter(|key| !those.contains_key(*key));
        others.map(|(name, _)| name.clone()).collect()
    };
    let (gone, come) = (others(before, after), others(after, before));
    let changed = after.iter().filter(|(key, brought)| {
        let was = before.get(*key);
        was.is_some_and(|was| was != *brought)
    });
    let changed: BTreeSet<_> = changed.map(|((name, _), _)| name.clone()).collect();
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
    ensure!(
        updated.is_subset(&changed) && changed.len() as u64 == count("Updated"),
        "{changed:?} change where they are: {effects:#?}"
    );
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
