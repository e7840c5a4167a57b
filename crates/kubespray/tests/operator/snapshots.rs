//! Snapshots of etcd: taken when they are due or asked for, whatever else waits; drilled when somebody asks; recovered from by name.

use jiff::SignedDuration;
use kubespray::{
    cluster::decision::{Decision, NewRun},
    inputs::Inputs,
    operation::{converge, drill, recover, snapshot},
    playbooks::Playbooks,
    request,
};
use serde_json::{Value, json};

use crate::past::{Past, now, steps};

const NAME: &str = "2026-05-31T18-00-00Z";

fn every_six_hours() -> Value {
    json!({"etcd": {"snapshots": {"schedule": "0 */6 * * *", "store": {"directory": "/srv/snapshots"}}}})
}

fn on_demand() -> Value {
    json!({"etcd": {"snapshots": {"store": {"directory": "/srv/snapshots"}}}})
}

impl Past {
    /// A run was begun so long ago, and came to that end.
    fn begun(&mut self, new: &NewRun, phase: &str, ago: SignedDuration) {
        self.ran(new, phase, SignedDuration::ZERO);
        let run = self.observed.runs.last_mut().unwrap();
        let created = serde_json::to_value(now() - ago).unwrap();
        run.metadata.creation_timestamp = serde_json::from_value(created).unwrap();
    }
}

#[tokio::test]
async fn one_is_taken_when_it_is_due_and_no_sooner() {
    let mut past = Past::new(every_six_hours(), &["master", "master", "master", "worker"]).await;
    let first = past.starts();
    assert_eq!(first.operation.name, "Snapshot");
    assert_eq!(
        steps(&first.plan),
        [
            "snapshot/save: master-1 master-2 master-3",
            "snapshot/keep: "
        ]
    );
    let inputs = Inputs::from_map(&first.plan.inputs).unwrap();
    assert!(inputs.snapshots.is_some() && inputs.clone().left().snapshots.is_none());
    // Nothing of it is a playbook's.
    past.observed.playbooks = Playbooks::Unreachable("no network".into());
    assert_eq!(past.starts().operation.name, "Snapshot");

    // It is midnight: that of an hour ago was for another time.
    past.begun(&first, "Failed", SignedDuration::from_hours(1));
    let second = past.starts();
    assert_ne!(second.name, first.name);
    past.begun(&second, "Failed", SignedDuration::ZERO);
    assert_eq!(past.rests(), "");
}

#[tokio::test]
async fn neither_windows_nor_what_waits_hold_one_up() {
    let mut spec = every_six_hours();
    spec["maintenance"] =
        json!({"confine": "All", "windows": [{"schedule": "0 12 * * 6", "duration": "1h"}]});
    let mut past = Past::new(spec, &["master"]).await;
    assert_eq!(past.starts().operation.name, "Snapshot");
    let first = past.starts();
    past.begun(&first, "Succeeded", SignedDuration::from_hours(1));
    // What a person asks for comes first, for a while.
    past.ask(request::CONVERGE, "1");
    assert_eq!(past.starts().operation.name, "Converge");
    past.observed.now += SignedDuration::from_mins(6);
    assert_eq!(past.starts().operation.name, "Snapshot");
}

#[tokio::test]
async fn one_is_taken_and_drilled_when_somebody_asks() {
    let mut past = Past::new(on_demand(), &["master"]).await;
    assert_eq!(past.rests(), "");
    past.ask(request::SNAPSHOT, "1");
    let new = past.starts();
    assert_eq!(new.operation.name, "Snapshot");
    let answer = snapshot::ASKED.answer(&past.cluster, &Decision::Start(Box::new(new.clone())));
    assert_eq!(answer.unwrap().run, Some(new.name.clone()));
    past.begun(&new, "Succeeded", SignedDuration::ZERO);
    assert_eq!(past.rests(), "");

    past.ask(request::DRILL, &format!("{NAME} 1"));
    let new = past.starts();
    assert_eq!(new.operation.name, "Drill");
    assert_eq!(steps(&new.plan), ["snapshot/drill: master-1"]);
    past.begun(&new, "Failed", SignedDuration::ZERO);
    // It holds nothing up.
    past.ask(request::CONVERGE, "1");
    assert_eq!(past.starts().operation.name, "Converge");

    past.ask(request::DRILL, "../x");
    let refused = drill::ASKED.answer(&past.cluster, &past.decision());
    assert!(refused.is_some_and(|answer| answer.refused.is_some()));
    let mut none = Past::new(json!({}), &["master"]).await;
    none.ask(request::SNAPSHOT, "1");
    let refused = snapshot::ASKED.answer(&none.cluster, &none.decision());
    let refused = refused.unwrap().refused.unwrap();
    assert!(refused.contains("spec.etcd.snapshots"), "{refused}");
    assert!(
        converge::ASKED
            .answer(&none.cluster, &none.decision())
            .is_none()
    );
}

#[tokio::test]
async fn a_snapshot_of_the_store_is_brought_before_anything_is_stopped() {
    let mut past = Past::new(on_demand(), &["master", "master", "master"]).await;
    let asked = |snapshot: &str| {
        json!({"confirm": "first", "giveUp": ["master-2", "master-3"], "snapshot": snapshot})
            .to_string()
    };
    past.ask(request::RECOVER, &asked(NAME));
    let new = past.starts();
    assert_eq!(new.operation.name, "Recover");
    let place = |id: &str| {
        let mut steps = new.plan.steps.iter();
        steps.position(|step| step.id == id).unwrap()
    };
    let order = [
        "recover/quorum",
        "recover/snapshot",
        "recover/set-aside",
        "recover/found",
    ];
    assert!(order.map(place).is_sorted());
    let inputs = Inputs::from_map(&new.plan.inputs).unwrap();
    let file = inputs.operation_variables["windlass_recover_snapshot"].as_str();
    let file = file.unwrap();
    assert!(file.ends_with("-from-store/snapshot.db"), "{file}");
    let bring = &new.plan.steps[place("recover/snapshot")];
    let bring = serde_json::to_string(&bring.action).unwrap();
    assert!(
        bring.contains(file.trim_end_matches("/snapshot.db")),
        "{bring}"
    );
    assert!(inputs.snapshots.is_some());

    for (snapshot, why) in [("a b", "no name of a snapshot"), ("x/y", "absolute path")] {
        past.ask(request::RECOVER, &asked(snapshot));
        let answer = recover::ASKED.answer(&past.cluster, &past.decision());
        let refused = answer.unwrap().refused.unwrap();
        assert!(refused.contains(why), "{refused}");
    }
    let mut none = Past::new(json!({}), &["master", "master", "master"]).await;
    none.ask(request::RECOVER, &asked(NAME));
    let answer = recover::ASKED.answer(&none.cluster, &none.decision());
    let refused = answer.unwrap().refused.unwrap();
    assert!(refused.contains("names no store"), "{refused}");
}
