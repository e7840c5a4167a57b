//! What `windlass inventory plan` says of an edit that was not applied yet, held against the UIDs of Machines after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
};

use builders::foretold::{self, Declared, FLEET, There, compare};
use e2e::wait_until;
use rand::{SeedableRng as _, rngs::StdRng};
use serde_json::Value;

use super::{Fleet, LIMIT};

/// Edits of sites, clusters and the template, of one thing or two: whatever becomes of Machines was said before. Each takes half a minute,
/// so they are ten unless `WINDLASS_FLEET_EDITS` names another number.
pub(super) fn edits(fleet: &Fleet, mut declared: Declared) {
    let seed = given("WINDLASS_FAULT_SEED").unwrap_or(1);
    let count = given("WINDLASS_FLEET_EDITS").unwrap_or(10);
    eprintln!("WINDLASS_FAULT_SEED={seed} WINDLASS_FLEET_EDITS={count}");
    let mut random = StdRng::seed_from_u64(seed);
    for number in 0..count {
        let object = declared.edit(&mut random);
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let what = format!("edit {number}, {kind} {name}: {}", object["spec"]["values"]);
        eprintln!("{what}");
        let told = fleet.plan(&object);
        let changed: BTreeSet<_> = told
            .iter()
            .map(|change| text(&change["cluster"]["name"]))
            .collect();
        let (before, was) = (fleet.there(), fleet.rendered());
        fleet.management.apply(&object).unwrap();
        wait_until("the edit to be seen", LIMIT, || {
            let is = fleet.rendered();
            let seen = changed.iter().all(|name| is.get(name) != was.get(name));
            Ok(seen.then_some(()))
        })
        .unwrap();
        fleet.well();
        fleet.have_arrived(&declared);
        let after = fleet.there();
        compare(&told, &before, &after).unwrap_or_else(|error| panic!("{what}: {error}"));
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

impl Fleet {
    /// What `windlass inventory plan` says of an edit.
    pub(super) fn plan(&self, object: &Value) -> Vec<Value> {
        let file = self.management.node.lab.dir().join("edit.json");
        fs::write(&file, object.to_string()).unwrap();
        let plan = ["--namespace", FLEET, "inventory", "plan", "--output=json"];
        let mut plan = self.management.windlass(&plan);
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
            let mut metadata = machines.iter().map(|machine| &machine["metadata"]);
            let goes = metadata.any(|metadata| metadata["deletionTimestamp"].is_string());
            Ok((!goes).then(|| foretold::there(&machines)))
        })
        .unwrap()
    }

    /// Waits until what is brought to machines where they are is on all.
    fn have_arrived(&self, declared: &Declared) {
        let mut last = Value::Null;
        wait_until("fields to be brought to Machines", LIMIT, || {
            last = self.get("machines.cluster.x-k8s.io")?;
            let mut machines = last["items"].as_array().into_iter().flatten();
            let all = machines.all(|machine| declared.has_arrived(machine));
            Ok(all.then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {last:#}"));
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
