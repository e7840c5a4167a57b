//! What `windlass inventory plan` says of an edit that was not applied yet, held against the UIDs of Machines after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
};

use e2e::wait_until;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use super::{CLUSTERS, FLEET, Fleet, LIMIT};

/// What a site says, all of it rendered: some of it replaces machines of workers or of control planes, some is brought to them where they
/// are, some makes more or fewer of them.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) dns: String,
    pub(super) boot: String,
    pub(super) drain: u32,
    pub(super) note: String,
    pub(super) workers: u32,
}

impl Site {
    pub(super) fn new(dns: &str, boot: &str) -> Self {
        Self {
            dns: dns.to_owned(),
            boot: boot.to_owned(),
            drain: 10,
            note: "none".to_owned(),
            workers: 1,
        }
    }

    pub(super) fn values(&self, contact: &str) -> Value {
        let Self {
            dns,
            boot,
            drain,
            note,
            workers,
        } = self;
        json!({"dns": [dns], "boot": boot, "drain": drain, "note": note, "workers": workers, "contact": contact})
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

/// A Machine by its name and UID: one that was made again is another one.
type There = BTreeSet<(String, String)>;

/// Edits of sites, of one thing or two: whatever becomes of Machines was said before. Each takes half a minute, so they are ten unless
/// `WINDLASS_FLEET_EDITS` names another number.
pub(super) fn edits(fleet: &Fleet, mut sites: BTreeMap<&'static str, Site>) {
    let seed = given("WINDLASS_FAULT_SEED").unwrap_or(1);
    let count = given("WINDLASS_FLEET_EDITS").unwrap_or(10);
    eprintln!("WINDLASS_FAULT_SEED={seed} WINDLASS_FLEET_EDITS={count}");
    let mut random = StdRng::seed_from_u64(seed);
    let names: Vec<_> = sites.keys().copied().collect();
    for number in 0..count {
        let name = names[random.random_range(0..names.len())];
        let site = sites.get_mut(name).unwrap();
        for _ in 0..random.random_range(1..3) {
            site.edit(&mut random);
        }
        let site = site.clone();
        let what = format!("edit {number}, {name}: {site:?}");
        eprintln!("{what}");
        let told = fleet.plan(name, &site);
        let changed: BTreeSet<_> = told
            .iter()
            .map(|change| text(&change["cluster"]["name"]))
            .collect();
        let (before, was) = (fleet.there(), fleet.rendered());
        fleet.declare("Site", name, &json!({"values": site.values("")}));
        wait_until("the edit to be seen", LIMIT, || {
            let is = fleet.rendered();
            let seen = changed.iter().all(|name| is.get(name) != was.get(name));
            Ok(seen.then_some(()))
        })
        .unwrap();
        fleet.well();
        let after = fleet.there();
        compare(&what, &told, &before, &after);
        fleet.has_arrived(name, &site);
    }
}

/// The number that a variable of the environment names.
fn given(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|error| panic!("{variable}={text}: {error}")),
    )
}

/// Exactly those go that were said to go, and so many come.
fn compare(what: &str, told: &[Value], before: &There, after: &There) {
    let effects: Vec<_> = told
        .iter()
        .flat_map(|change| change["effects"].as_array().into_iter().flatten())
        .collect();
    let what = format!("{what}: {effects:#?}");
    assert!(
        effects.iter().all(|effect| effect["bound"] == "Exactly"),
        "{what}"
    );
    let of = |happens: &'static str| {
        let effects = effects.clone().into_iter();
        effects.filter(move |effect| effect["happens"] == happens)
    };
    let count = |happens: &'static str| -> u64 {
        of(happens)
            .map(|effect| effect["count"].as_u64().unwrap())
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
    let (replaced, removed) = (named("Replaced"), named("Removed"));
    assert_eq!(replaced.len() as u64, count("Replaced"), "{what}");
    assert!(replaced.is_subset(&gone), "{gone:?} go: {what}");
    assert!(removed.is_subset(&gone), "{gone:?} go: {what}");
    assert_eq!(
        gone.len() as u64,
        count("Replaced") + count("Removed"),
        "{gone:?} go: {what}"
    );
    assert_eq!(
        come.len() as u64,
        count("Replaced") + count("Added"),
        "{come:?} come: {what}"
    );
    assert!(named("Updated").is_subset(&stay), "{stay:?} stay: {what}");
}

impl Fleet {
    /// What `windlass inventory plan` says of an edit of a site.
    fn plan(&self, name: &str, site: &Site) -> Vec<Value> {
        let object = json!({
            "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Site",
            "metadata": {"name": name, "namespace": FLEET}, "spec": {"values": site.values("")},
        });
        let file = self.0.node.lab.dir().join("edit.json");
        fs::write(&file, object.to_string()).unwrap();
        let plan = ["--namespace", FLEET, "inventory", "plan", "--output=json"];
        let mut plan = self.0.windlass(&plan);
        let output = plan.arg("--filename").arg(&file).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors, "");
        let told: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        // It says by its exit code whether anything changes.
        assert_eq!(output.status.code(), Some(i32::from(!told.is_empty())));
        told
    }

    /// What each cluster is rendered to.
    fn rendered(&self) -> BTreeMap<String, String> {
        let list = self.get("fleetclusters").unwrap();
        let clusters = list["items"].as_array().unwrap().iter();
        clusters
            .map(|cluster| {
                let revision = text(&cluster["status"]["rendered"]);
                (text(&cluster["metadata"]["name"]), revision)
            })
            .collect()
    }

    /// The Machines, when none goes any more.
    fn there(&self) -> There {
        wait_until("Machines to be at rest", LIMIT, || {
            let list = self.get("machines.cluster.x-k8s.io")?;
            let machines = list["items"].as_array().cloned().unwrap_or_default();
            let metadata = machines.iter().map(|machine| &machine["metadata"]);
            let goes = metadata
                .clone()
                .any(|metadata| metadata["deletionTimestamp"].is_string());
            let there = metadata.map(|metadata| (text(&metadata["name"]), text(&metadata["uid"])));
            Ok((!goes).then(|| there.collect()))
        })
        .unwrap()
    }

    /// Waits until what is brought to the machines of workers where they are is on all of a site.
    fn has_arrived(&self, name: &str, site: &Site) {
        let mut last = Value::Null;
        wait_until("fields to be brought to Machines", LIMIT, || {
            last = self.get("machines.cluster.x-k8s.io")?;
            let machines = last["items"].as_array().into_iter().flatten();
            let of_site = machines.filter(|machine| {
                let labels = &machine["metadata"]["labels"];
                let mut clusters = CLUSTERS.iter();
                labels["cluster.x-k8s.io/control-plane"].is_null()
                    && clusters.any(|(cluster, of)| {
                        *of == name && labels["cluster.x-k8s.io/cluster-name"] == *cluster
                    })
            });
            let is_brought = |machine: &Value| {
                machine["spec"]["deletion"]["nodeDrainTimeoutSeconds"] == site.drain
                    && machine["metadata"]["labels"]["example.com/note"] == site.note
            };
            Ok(of_site.into_iter().all(is_brought).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {last:#}"));
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
