//! The clusters of `examples/fleet-topology` under the real topology controller: an edit of a site goes to them one after the other, and
//! Machines are replaced where the class or what fills its variables makes others of them.

use std::collections::{BTreeMap, BTreeSet};

use builders::foretold::{FLEET, object};
use e2e::{Management, PROVIDERS, root, wait_until, windlass};
use lab::progress::Terminal;
use serde_json::{Value, json};

use super::{Fleet, LIMIT, PLANE, WORKER};

/// Has one control plane machine, and workers whose number Windlass does not set.
const BILLING: &str = "billing";
/// Has three of each.
const SHOP: &str = "shop";
const PARTS: [(&str, &str); 4] = [
    (BILLING, PLANE),
    (BILLING, WORKER),
    (SHOP, PLANE),
    (SHOP, WORKER),
];

#[test]
fn a_class_is_rebased_and_what_fills_its_variables_is_brought_to_machines() {
    let [_, newest] = Management::VERSIONS;
    let management =
        Management::set_with(windlass().unwrap(), &["--fleet"], &Terminal::default()).unwrap();
    management.preload(newest).unwrap();
    // Of the feature that is off where nothing is said, by the field that users have for it.
    for provider in PROVIDERS {
        let gates = match provider.kind {
            "bootstrapprovider" => json!({}),
            _ => json!({"ClusterTopology": true}),
        };
        let spec = json!({"version": newest, "manager": {"featureGates": gates}});
        management.declare_with(provider, &spec).unwrap();
    }
    for provider in PROVIDERS {
        management.installed(provider, newest).unwrap();
    }
    let fleet = Fleet {
        management,
        clusters: 2,
    };
    fleet.management.make_namespace(FLEET).unwrap();
    let example = root().join("examples/fleet-topology").display().to_string();
    let apply = ["--namespace", FLEET, "apply", "--filename", &example];
    fleet.management.kubectl(&apply).unwrap();
    fleet.well();
    let rollout = json!({"canary": {"clusters": [BILLING]}, "parallel": 1, "deadline": "10m"});
    fleet.declare("Rollout", "all", &rollout);
    let first = fleet.parts();
    let sizes = PARTS.map(|part| first[&part].len());
    assert_eq!(sizes, [1, 1, 3, 3]);
    eprintln!("two clusters of a topology are well");

    // An autoscaler's part, of which nothing is written.
    let workers = fleet.deployment_of(BILLING);
    let scale = ["--namespace", FLEET, "scale", &workers, "--replicas=2"];
    fleet.management.kubectl(&scale).unwrap();
    wait_until("two workers", LIMIT, || {
        Ok((fleet.parts()[&(BILLING, WORKER)].len() == 2).then_some(()))
    })
    .unwrap();
    let first = fleet.parts();

    // What fills a variable, which the class brings to control planes: no other class.
    let classes = fleet.classes();
    let second = fleet.edit(1, &first, &site("api.fra1.acme.test", "2s", "1.34.4"));
    assert_eq!(
        others(&first, &second),
        [(BILLING, PLANE), (SHOP, PLANE)].into()
    );
    assert_eq!(fleet.classes(), classes);
    eprintln!("a variable replaced control planes");

    // How machines boot: a class of other templates.
    let third = fleet.edit(2, &second, &site("api.fra1.acme.test", "3s", "1.34.4"));
    assert_eq!(others(&second, &third), PARTS.into());
    assert!(fleet.classes().is_disjoint(&classes));
    eprintln!("clusters were rebased to another class");

    // A version, which the topology brings to control planes and then to workers.
    let fourth = fleet.edit(3, &third, &site("api.fra1.acme.test", "3s", "1.34.5"));
    assert_eq!(others(&third, &fourth), PARTS.into());
    assert_eq!(
        fourth[&(BILLING, WORKER)].len(),
        2,
        "they are not Windlass'"
    );
    eprintln!("clusters were upgraded");

    // A class goes that no Cluster names, and then what it named.
    wait_until("former classes to go with their templates", LIMIT, || {
        let is_gone = fleet.classes().len() == 2
            && fleet.count("kubeadmcontrolplanetemplates")? == 2
            && fleet.count("devclustertemplates")? == 2;
        Ok(is_gone.then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}\n{}", fleet.management.said()));
    assert_eq!(fleet.parts(), fourth);
}

impl Fleet {
    /// Edits the site, waits until the run of the Rollout has ended, and gives the Machines. Of each part that is told of no more are
    /// replaced than was said, and where it was said exactly no fewer; of the others none.
    fn edit(&self, runs: usize, before: &Parts, site: &Value) -> Parts {
        let told = self.plan(site);
        self.management.apply(site).unwrap();
        self.rolled_out(runs, |phase| {
            if phase(SHOP).is_some_and(|phase| phase != "Pending") {
                assert_eq!(
                    phase(BILLING).as_deref(),
                    Some("Done"),
                    "the canary is first"
                );
            }
        });
        let after = self.parts();
        let mut foretold = BTreeSet::new();
        for change in &told {
            for effect in change["effects"].as_array().unwrap() {
                assert_eq!(effect["happens"], "Replaced", "{effect:#}");
                let cluster = &change["cluster"]["name"];
                let part = if effect["part"] == "controlPlane" {
                    PLANE
                } else {
                    WORKER
                };
                let is_it = |(name, kind): &&(&str, &str)| cluster == name && *kind == part;
                let key = PARTS.iter().find(is_it).unwrap();
                foretold.insert(*key);
                let gone = before[key].difference(&after[key]).count() as u64;
                let count = effect["count"].as_u64().unwrap();
                match effect["bound"].as_str().unwrap() {
                    "Exactly" => assert_eq!(gone, count, "{effect:#}"),
                    _ => assert!(gone <= count, "{gone} are gone: {effect:#}"),
                }
            }
        }
        let others = others(before, &after);
        assert!(others.is_subset(&foretold), "{others:?} of {told:#?}");
        after
    }

    /// The UIDs of the Machines of each part, when none comes or goes any more.
    fn parts(&self) -> Parts {
        wait_until("Machines to be at rest", LIMIT, || {
            let list = self.get("machines.cluster.x-k8s.io")?;
            let mut parts = PARTS.map(|part| (part, BTreeSet::new())).into();
            let mut machines = list["items"].as_array().into_iter().flatten();
            let is_at_rest = machines.all(|machine| {
                add(&mut parts, machine);
                machine["metadata"]["deletionTimestamp"].is_null()
                    && machine["status"]["phase"] == "Running"
            });
            Ok(is_at_rest.then_some(parts))
        })
        .unwrap()
    }

    /// The ClusterClasses that Clusters name.
    fn classes(&self) -> BTreeSet<String> {
        let list = self.get("clusters.cluster.x-k8s.io").unwrap();
        let clusters = list["items"].as_array().unwrap().iter();
        clusters
            .map(|cluster| cluster["spec"]["topology"]["classRef"]["name"].to_string())
            .collect()
    }

    /// The MachineDeployment of a cluster, as kubectl takes it.
    fn deployment_of(&self, cluster: &str) -> String {
        let list = self.get("machinedeployments").unwrap();
        let mut deployments = list["items"].as_array().unwrap().iter();
        let it = deployments.find(|it| it["spec"]["clusterName"] == cluster);
        format!(
            "machinedeployment/{}",
            it.unwrap()["metadata"]["name"].as_str().unwrap()
        )
    }

    fn count(&self, kind: &str) -> anyhow::Result<usize> {
        Ok(self.get(kind)?["items"].as_array().map_or(0, Vec::len))
    }
}

/// UIDs by cluster and part.
type Parts = BTreeMap<(&'static str, &'static str), BTreeSet<String>>;

fn add(parts: &mut Parts, machine: &Value) {
    let labels = &machine["metadata"]["labels"];
    let part = match labels.get("cluster.x-k8s.io/control-plane") {
        Some(_) => PLANE,
        None => WORKER,
    };
    let cluster = &labels["cluster.x-k8s.io/cluster-name"];
    for ((name, kind), uids) in parts {
        if cluster == name && *kind == part {
            uids.insert(machine["metadata"]["uid"].to_string());
        }
    }
}

/// The parts none of whose Machines is the same.
fn others(before: &Parts, after: &Parts) -> BTreeSet<(&'static str, &'static str)> {
    let mut parts = BTreeSet::new();
    for (part, uids) in before {
        let stay = uids.intersection(&after[part]).count();
        assert!(stay == 0 || stay == uids.len(), "{part:?}: {uids:?}");
        if stay == 0 {
            parts.insert(*part);
        }
    }
    parts
}

/// The site of the example: what it is reached by, how long machines boot, and their version.
fn site(name: &str, boot: &str, version: &str) -> Value {
    let values = json!({
        "kubernetes": {"version": version},
        "network": {"pods": ["192.168.0.0/16"], "services": ["10.128.0.0/12"]},
        "names": [name], "controlPlanes": 3, "boot": boot,
    });
    object(
        "Site",
        "fra1",
        &json!({"template": "topology", "values": values}),
    )
}
