//! A fleet on real providers of Cluster API, whose machines are in memory: an edit of a site goes to its clusters, canary first, and
//! replaces the Machines that it changes and no others, as was said before. Root is needed.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use builders::foretold::{self as edits, ALPHA, BETA, CLUSTERS, Declared, FLEET, GAMMA, TEMPLATE};
use e2e::{Management, wait_until, windlass};
use lab::progress::Terminal;
use serde_json::{Value, json};

mod foretold;
mod topologies;

/// Machines take seconds each, and one that comes or goes is looked at every 15 seconds.
const LIMIT: Duration = Duration::from_mins(8);
const PLANE: &str = "plane";
const WORKER: &str = "worker";

#[test]
fn an_edit_of_a_site_replaces_the_machines_that_it_changes_and_no_others() {
    let [_, newest] = Management::VERSIONS;
    let began = Instant::now();
    let tell = |what: &str| eprintln!("{:>5.1} s: {what}", began.elapsed().as_secs_f64());
    let management =
        Management::set_with(windlass().unwrap(), &["--fleet"], &Terminal::default()).unwrap();
    management.preload(newest).unwrap();
    management.install(newest).unwrap();
    tell("providers are installed");
    let fleet = Fleet {
        management,
        clusters: CLUSTERS.len(),
    };
    fleet.born();
    tell("all clusters are well");
    let first = fleet.machines();

    // Workers of a site are bootstrapped otherwise.
    fleet.site("fra1", "10.77.0.54", "2s", "");
    fleet.rolled_out(1, |phase| {
        assert_eq!(phase(GAMMA), None, "it is of another site");
        if phase(BETA).is_some_and(|phase| phase != "Pending") {
            assert_eq!(phase(ALPHA).as_deref(), Some("Done"), "the canary is first");
        }
    });
    let second = fleet.machines();
    assert_eq!(replaced(&first, &second), [(ALPHA, WORKER), (BETA, WORKER)]);
    tell("workers of a site were replaced");

    // The control plane of another boots otherwise.
    fleet.site("ams2", "10.77.0.53", "3s", "");
    fleet.rolled_out(2, |phase| {
        if phase(GAMMA).is_some() {
            assert_eq!(phase(ALPHA), None, "it is of another site");
        }
    });
    let third = fleet.machines();
    assert_eq!(replaced(&second, &third), [(GAMMA, PLANE)]);
    tell("the control plane of another was replaced");

    fleet.settled();
    tell("templates that nothing needs are gone");
    fleet.nothing_is_written(&third);
    tell("what is rendered nowhere changes nothing");

    let sites = [
        ("fra1", edits::site("10.77.0.54", "2s")),
        ("ams2", edits::site("10.77.0.53", "3s")),
    ];
    foretold::edits(&fleet, Declared::new(sites));
    tell("edits did what was said of them");
}

struct Fleet {
    management: Management,
    /// How many clusters it has.
    clusters: usize,
}

impl Fleet {
    /// Declares the inventory, and waits until all of it is well. Births are no roll-outs.
    fn born(&self) {
        self.management
            .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}}))
            .unwrap();
        let levels = json!({"levels": [{"name": "site", "kind": "Site"}]});
        self.declare("Hierarchy", "default", &levels);
        let template: Value = serde_saphyr::from_str(TEMPLATE).unwrap();
        self.management.apply(&template).unwrap();
        for site in ["fra1", "ams2"] {
            self.site(site, "10.77.0.53", "2s", "");
        }
        for (name, site) in CLUSTERS {
            self.cluster(name, site, "nothing");
        }
        self.well();
        let rollout = json!({"canary": {"clusters": [ALPHA]}, "parallel": 2, "soak": "2s", "deadline": "10m"});
        self.declare("Rollout", "all", &rollout);
    }

    /// Declares a site: a name server, how long machines of control planes boot, what is rendered nowhere, and the rest as it was.
    fn site(&self, name: &str, dns: &str, boot: &str, contact: &str) {
        let mut values = edits::site(dns, boot);
        values.insert("contact", json!(contact));
        self.declare("Site", name, &json!({"values": values}));
    }

    /// Declares a cluster, with what is rendered nowhere.
    fn cluster(&self, name: &str, site: &str, remark: &str) {
        let values = json!({"remark": remark});
        let spec = json!({"template": "memory", "parents": {"site": site}, "values": values});
        self.declare("FleetCluster", name, &spec);
    }

    fn declare(&self, kind: &str, name: &str, spec: &Value) {
        self.management
            .apply(&edits::object(kind, name, spec))
            .unwrap();
    }

    /// Waits until every cluster is well at what it is rendered to.
    fn well(&self) {
        let mut last = Value::Null;
        wait_until("all clusters to be well", LIMIT, || {
            last = self.get("fleetclusters")?;
            let clusters = last["items"].as_array().into_iter().flatten();
            let well = clusters.filter(|cluster| {
                let status = &cluster["status"];
                status["health"] == "Well"
                    && status["applied"] == status["rendered"]
                    && status["pending"].is_null()
            });
            Ok((well.count() == self.clusters).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {last:#}\n{}", self.management.said()));
    }

    /// Waits until so many runs of the Rollout have ended and all is well. What it says of clusters is looked at all the time.
    fn rolled_out(&self, runs: usize, look: impl Fn(&dyn Fn(&str) -> Option<String>)) {
        let mut last = Value::Null;
        wait_until("the roll-out to end", LIMIT, || {
            last = self.get("rollout/all")?["status"].take();
            let members = last["run"]["clusters"].as_array();
            look(&|name: &str| {
                let mut members = members.into_iter().flatten();
                let member = members.find(|member| member["name"] == name)?;
                // What it does not say is that it was not begun.
                let phase = member["phase"].as_str().unwrap_or("Pending");
                Some(phase.to_owned())
            });
            let ended = last["history"].as_array().map_or(0, Vec::len);
            Ok((ended == runs && last["phase"] == "Idle").then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {last:#}\n{}", self.management.said()));
        assert_eq!(last["history"][0]["phase"], "Succeeded", "{last:#}");
        self.well();
    }

    /// The UID of each Machine, by its cluster and what it is of it, when none comes or goes any more.
    fn machines(&self) -> Machines {
        wait_until("Machines to be at rest", LIMIT, || {
            let list = self.get("machines.cluster.x-k8s.io")?;
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let machines: Machines = items.iter().filter_map(machine).collect();
            let is_whole = items.len() == machines.len() && machines.len() == 2 * CLUSTERS.len();
            Ok(is_whole.then_some(machines))
        })
        .unwrap()
    }

    /// Waits until the templates are gone that nothing needs any more, which is a minute after all is well.
    fn settled(&self) {
        let mut last = Value::Null;
        wait_until("old templates to go", LIMIT, || {
            last = self.get("fleetclusters")?;
            let mut clusters = last["items"].as_array().into_iter().flatten();
            let is_settled = clusters.all(|cluster| cluster["status"]["former"].is_null());
            Ok(is_settled.then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {last:#}\n{}", self.management.said()));
        let templates = self
            .get("devmachinetemplates,kubeadmconfigtemplates")
            .unwrap();
        let templates = templates["items"].as_array().unwrap();
        assert_eq!(templates.len(), 3 * CLUSTERS.len(), "{templates:#?}");
    }

    /// What is rendered nowhere changes nothing, and a Windlass that starts anew writes nothing.
    fn nothing_is_written(&self, machines: &Machines) {
        let sources = || anyhow::Ok(self.get("rollout/all")?["status"]["sources"].take());
        let before = sources().unwrap();
        self.site("fra1", "10.77.0.54", "2s", "somebody");
        // From what a cluster is born that comes in the middle of a run is kept, and is another now.
        wait_until("the edit to be kept", LIMIT, || {
            Ok((sources()? != before).then_some(()))
        })
        .unwrap();
        for remark in ["once", "twice", "thrice"] {
            let before = self.versions();
            self.management.operate().unwrap();
            self.cluster(ALPHA, "fra1", remark);
            wait_until("the cluster to be looked at", LIMIT, || {
                let cluster = self.get(&format!("fleetcluster/{ALPHA}"))?;
                let seen = &cluster["status"]["observedGeneration"];
                Ok((*seen == cluster["metadata"]["generation"]).then_some(()))
            })
            .unwrap();
            self.well();
            assert_eq!(self.versions(), before, "{remark}");
        }
        assert_eq!(self.machines(), *machines);
        let status = self.get("rollout/all").unwrap()["status"].take();
        assert_eq!(status["history"].as_array().unwrap().len(), 2, "{status:#}");
    }

    /// The version of all that Windlass alone writes, but of the cluster that is edited; of objects of Cluster API, what Windlass wrote
    /// of them, and when.
    fn versions(&self) -> BTreeMap<String, String> {
        let kinds = "fleetclusters,fleetrevisions,rollouts,clusters.cluster.x-k8s.io,machinedeployments,kubeadmcontrolplanes,\
                     kubeadmconfigtemplates,devclusters,devmachinetemplates";
        let list = self.get(kinds).unwrap();
        let versions = list["items"].as_array().unwrap().iter().map(|object| {
            let metadata = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let (kind, name) = (text(&object["kind"]), text(&metadata["name"]));
            let is_own = text(&object["apiVersion"]).starts_with("inventory.windlass.dev/");
            let version = if is_own {
                text(&metadata["resourceVersion"])
            } else {
                let fields = metadata["managedFields"].as_array().unwrap().iter();
                let own: Vec<_> = fields
                    .filter(|entry| entry["manager"] == "windlass-fleet")
                    .collect();
                assert!(!own.is_empty(), "{kind}/{name} is not Windlass'");
                json!([own, metadata["generation"]]).to_string()
            };
            (format!("{kind}/{name}"), version)
        });
        let edited = format!("FleetCluster/{ALPHA}");
        let versions: BTreeMap<_, _> = versions.filter(|(key, _)| *key != edited).collect();
        // Two FleetClusters, a Rollout, seven objects of each cluster and what they were rendered to.
        assert!(versions.len() > 3 + 6 * CLUSTERS.len(), "{versions:#?}");
        versions
    }

    fn get(&self, what: &str) -> anyhow::Result<Value> {
        let output = ["--output=json", "--show-managed-fields"];
        let get = ["--namespace", FLEET, "get", what];
        Ok(serde_json::from_str(
            &self.management.kubectl(&[&get[..], &output].concat())?,
        )?)
    }
}

/// UIDs by cluster and part.
type Machines = BTreeMap<(&'static str, &'static str), String>;

fn machine(object: &Value) -> Option<((&'static str, &'static str), String)> {
    let labels = &object["metadata"]["labels"];
    let mut clusters = CLUSTERS.into_iter();
    let (cluster, _) =
        clusters.find(|(name, _)| labels["cluster.x-k8s.io/cluster-name"] == *name)?;
    let part = if labels.get("cluster.x-k8s.io/control-plane").is_some() {
        PLANE
    } else {
        WORKER
    };
    let uid = object["metadata"]["uid"].as_str()?;
    Some(((cluster, part), uid.to_owned()))
}

/// Those that are others now.
fn replaced(before: &Machines, after: &Machines) -> Vec<(&'static str, &'static str)> {
    let replaced = after
        .iter()
        .filter(|(key, uid)| before.get(*key) != Some(*uid));
    replaced.map(|(key, _)| *key).collect()
}
