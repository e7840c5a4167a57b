//! Snapshots of etcd: taken when they are due or asked for, whatever else waits; drilled when somebody asks; recovered from by name.

use api::{
    Threshold,
    run::{OnBreach, OnFailure},
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kubespray::{
    cluster::decision::{Decision, NewRun},
    inputs::Inputs,
    names::NODE_FINALIZER,
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

    /// Somebody deletes the object of a host.
    fn deletes(&mut self, name: &str) {
        let mut nodes = self.observed.nodes.iter_mut();
        let node = nodes.find(|node| node.name_any() == name).unwrap();
        node.finalizers_mut().push(NODE_FINALIZER.to_owned());
        node.metadata.deletion_timestamp = Some(Time(now()));
    }

    /// Somebody declares one more host.
    fn declares(&mut self, name: &str, kind: &str) {
        let mut node = self.observed.nodes[0].clone();
        node.metadata.name = Some(name.to_owned());
        node.metadata.creation_timestamp = Some(Time(now()));
        let address = format!("10.0.1.{}", self.observed.nodes.len());
        let spec = json!({"type": kind, "inventory": {"ansible_host": address}});
        node.spec = serde_json::from_value(spec).unwrap();
        self.observed.nodes.push(node);
    }

    /// The steps of the next run that have to do with snapshots in the store.
    fn stores(&self) -> Vec<String> {
        let mut steps = steps(&self.starts().plan);
        steps.retain(|step| step.starts_with("snapshot/"));
        steps
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

/// The ids of a plan's steps with their hosts, each of which comes after the one before it.
fn in_order(new: &NewRun, expected: &[&str]) {
    let found = steps(&new.plan);
    let place = |step: &&str| {
        let place = found.iter().position(|known| known == step);
        place.unwrap_or_else(|| panic!("no {step} in {found:#?}"))
    };
    let places: Vec<_> = expected.iter().map(place).collect();
    assert!(places.is_sorted(), "{expected:?}: {found:#?}");
}

#[tokio::test]
async fn one_is_in_the_store_before_etcd_is_at_risk() {
    const THREE: [&str; 4] = ["master", "master", "master", "worker"];
    const KEEP: &str = "snapshot/keep: ";
    let save = "snapshot/save: master-1 master-2 master-3";
    let mut past = Past::new(on_demand(), &THREE).await;
    past.ask(request::COMPONENT, "etcd 1");
    let new = past.starts();
    let all = "master-1 master-2 master-3 worker-4";
    let before = format!("gate/before: {all}");
    let asked = "etcd/before-1: master-1 master-2 master-3";
    in_order(&new, &[&before, save, KEEP, asked]);
    // What nothing waits for cannot hold it up; that there is none does.
    let ignored = |id: &str| {
        let mut steps = new.plan.steps.iter();
        let step = steps.find(|step| step.id == id).unwrap();
        step.on_failure == Some(OnFailure::Ignore)
    };
    assert!(ignored("snapshot/keep") && !ignored("snapshot/save"));
    let inputs = Inputs::from_map(&new.plan.inputs).unwrap();
    assert!(inputs.snapshots.is_some() && inputs.left().snapshots.is_none());

    let mut past = Past::new(on_demand(), &THREE).await;
    // Both, or etcd would have two members.
    past.deletes("master-2");
    past.deletes("master-3");
    let stay = "snapshot/save: master-1 master-2";
    let (quorum, drain) = ("etcd/quorum: master-1 master-2", "drain/pods: master-3");
    in_order(&past.starts(), &[quorum, stay, KEEP, drain]);

    let mut past = Past::new(on_demand(), &THREE).await;
    past.declares("master-5", "master");
    past.declares("master-6", "master");
    let (quorum, joins) = ("etcd/quorum: master-1 master-2 master-3", "etcd/joined: ");
    let new = past.starts();
    in_order(&new, &[quorum, save, KEEP]);
    let joins = |step: &&String| step.starts_with(joins);
    assert!(steps(&new.plan).iter().any(|step| joins(&step)));
}

#[tokio::test]
async fn one_is_in_the_store_before_another_host_is_first() {
    let mut past = Past::new(on_demand(), &["master"; 3]).await;
    past.declares("master-4", "master");
    past.deletes("master-1");
    let by = (request::REPLACED_BY.to_owned(), "master-4".to_owned());
    past.observed.nodes[0].annotations_mut().extend([by]);
    let joins = past.starts();
    assert_eq!(joins.operation.name, "Scale");
    past.ran(&joins, "Succeeded", SignedDuration::ZERO);
    let new = past.starts();
    assert_eq!(new.operation.name, "Replace");
    let save = "snapshot/save: master-2 master-3 master-4";
    in_order(&new, &[save, "snapshot/keep: ", "replace/head-1: master-2"]);
}

#[tokio::test]
async fn a_cluster_that_works_is_taken_back_on_all_members_and_no_host_leaves() {
    let mut past = Past::new(on_demand(), &["master", "master", "master", "worker"]).await;
    let asked = |snapshot: &str| {
        json!({"confirm": "first", "rollBack": true, "snapshot": snapshot}).to_string()
    };
    past.ask(request::RECOVER, &asked(NAME));
    let new = past.starts();
    let all = "master-1 master-2 master-3";
    assert_eq!(
        steps(&new.plan),
        [
            "prepare/sandbox: ",
            &format!("prepare/probe: {all}"),
            "recover/snapshot-1: master-1",
            "recover/snapshot-2: master-2",
            "recover/snapshot-3: master-3",
            &format!("recover/check: {all}"),
            &format!("recover/found: {all}"),
            &format!("recover/founded: {all}"),
            "recover/serve-1: master-1",
            "recover/kubeconfig: master-1",
            "recover/serve-2: master-2",
            "recover/serve-3: master-3",
            &format!("health/check: {all} worker-4"),
        ]
    );
    // All of them, or nothing is done.
    let probe = &new.plan.steps[1];
    let gate = probe.gate.as_ref().unwrap();
    assert_eq!(
        (gate.unreachable, gate.on_breach),
        (Threshold::Percent(0), OnBreach::Fail)
    );
    let inputs = Inputs::from_map(&new.plan.inputs).unwrap();
    assert!(inputs.leaving.is_empty() && inputs.snapshots.is_some());
    let told = &inputs.operation_variables;
    assert_eq!(told["windlass_roll_back"], true);
    assert_eq!(told["windlass_cluster"]["uid"], "c");
    // One that comes later brings revisions above those of this one, whatever snapshot it names.
    assert_eq!(told["windlass_recover_bump"], now().as_microsecond());
    let held = |at: &str| {
        let steps = [("recover/check", "Failed"), ("recover/found", at)];
        let mut past = Past {
            cluster: past.cluster.clone(),
            observed: past.observed.clone(),
        };
        past.ran_by_steps(&new, "Failed", SignedDuration::ZERO, &steps);
        past.ask(request::SNAPSHOT, "1");
        matches!(past.decision(), Decision::Maintain(..))
    };
    // Nothing was touched, and nothing is held up.
    assert!(!held("Pending") && held("Failed"));

    // A file is on each of them already.
    past.ask(request::RECOVER, &asked("/srv/snapshot.db"));
    let new = past.starts();
    let brings = |step: &String| step.starts_with("recover/snapshot");
    assert!(!steps(&new.plan).iter().any(brings));
    let inputs = Inputs::from_map(&new.plan.inputs).unwrap();
    assert!(inputs.snapshots.is_none());

    for (request, why) in [
        (
            json!({"confirm": "first", "rollBack": true}),
            "none is named",
        ),
        (
            json!({"confirm": "first", "rollBack": true, "snapshot": NAME, "giveUp": ["master-2"]}),
            "no host is given up",
        ),
        (
            json!({"confirm": "", "rollBack": true, "snapshot": NAME}),
            "objects made since are gone",
        ),
    ] {
        past.ask(request::RECOVER, &request.to_string());
        let answer = recover::ASKED.answer(&past.cluster, &past.decision());
        let refused = answer.unwrap().refused.unwrap();
        assert!(refused.contains(why), "{refused}");
    }
}

#[tokio::test]
async fn what_leaves_etcd_alone_or_has_no_store_takes_none() {
    const TWO: [&str; 2] = ["master", "worker"];
    let mut past = Past::new(on_demand(), &TWO).await;
    past.ask(request::COMPONENT, "container-engine 1");
    assert_eq!(past.stores(), [""; 0]);
    let mut past = Past::new(on_demand(), &["master", "worker", "worker"]).await;
    past.deletes("worker-2");
    assert_eq!(past.stores(), [""; 0]);
    let mut past = Past::new(on_demand(), &TWO).await;
    past.declares("worker-3", "worker");
    assert_eq!(past.stores(), [""; 0]);
    let mut past = Past::new(json!({}), &TWO).await;
    past.ask(request::COMPONENT, "etcd 1");
    assert_eq!(past.stores(), [""; 0]);
}
