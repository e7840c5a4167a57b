//! One component is upgraded when somebody asks, once for each request, and nothing else with it.

use std::sync::Arc;

use api::cluster::{ClusterState, Pending};
use kube::ResourceExt;
use kubespray::{
    Layout,
    cluster::decision::Decision,
    inputs::Inputs,
    operation::component,
    playbooks::{Own, Playbooks},
    preview::{self, PreviewOutcome},
    problem,
    request::{COMPONENT, TOOLBOX},
};
use serde_json::{Value, from_value, json};

use crate::{
    past::{Past, days, steps},
    world::{BUNDLE, World},
};

const HOSTS: [&str; 6] = ["master", "master", "master", "worker", "worker", "worker"];

fn with(variables: &Value) -> Value {
    json!({"nodes": {"all": {"deploy": {"extraVars": variables}}}})
}

impl Past {
    fn told(&self) -> String {
        match self.decision() {
            Decision::Keep(built) | Decision::Maintain(built, _) => {
                built.not_carried_out.join("; ")
            }
            other => panic!("{other:?}"),
        }
    }

    fn refused(&self) -> String {
        let answer = component::ASKED
            .answer(&self.cluster, &self.decision())
            .unwrap();
        answer.refused.unwrap()
    }

    fn wish(&mut self, variables: &Value) {
        let spec = json!({
            "kubespray": {"source": {"path": BUNDLE}},
            "nodes": {"all": {"deploy": {"extraVars": variables}}},
        });
        self.cluster.spec = from_value(spec).unwrap();
    }

    fn settings(&mut self, settings: &Value) {
        self.cluster.spec.operations = from_value(json!({"component": settings})).unwrap();
    }
}

const ALL: &str = "master-1 master-2 master-3 worker-4 worker-5 worker-6";

#[tokio::test]
async fn an_engine_goes_node_by_node_with_gates() {
    let mut past = Past::new(with(&json!({})), &HOSTS).await;
    past.wish(
        &json!({"containerd_max_container_log_line_size": 8192, "kubelet_fail_swap_on": false}),
    );
    past.settings(&json!({"maxUnavailable": 2, "canary": 1, "soak": "5s", "drainTimeout": "1m"}));
    past.ask(COMPONENT, "container-engine 1");
    let new = past.starts();
    assert_eq!(new.name, "first-component-2");
    assert_eq!(
        steps(&new.plan),
        [
            "prepare/sandbox: ".to_owned(),
            format!("prepare/probe: {ALL}"),
            format!("gate/before: {ALL}"),
            format!("drain/budgets: {ALL}"),
            format!("bootstrap/facts: {ALL}"),
            "etcd/snapshot: master-1".to_owned(),
            "etcd/before-1: master-1 master-2 master-3".to_owned(),
            "container-engine/1: master-1".to_owned(),
            "etcd/after-1: master-1 master-2 master-3".to_owned(),
            "gate/container-engine/1: master-1".to_owned(),
            "etcd/before-2: master-1 master-2 master-3".to_owned(),
            "container-engine/2: master-2".to_owned(),
            "etcd/after-2: master-1 master-2 master-3".to_owned(),
            "gate/container-engine/2: master-2".to_owned(),
            "etcd/before-3: master-1 master-2 master-3".to_owned(),
            "container-engine/3: master-3".to_owned(),
            "etcd/after-3: master-1 master-2 master-3".to_owned(),
            "gate/container-engine/3: master-3".to_owned(),
            "container-engine/4: worker-4".to_owned(),
            "gate/container-engine/4: worker-4".to_owned(),
            "approve/canary: ".to_owned(),
            "container-engine/5: worker-5 worker-6".to_owned(),
            "gate/container-engine/5: worker-5 worker-6".to_owned(),
            format!("health/check: {ALL}"),
        ]
    );
    let reason = new.plan.reason.as_deref().unwrap();
    assert!(
        reason.contains("changed: containerd_max_container_log_line_size"),
        "{reason}"
    );
    assert!(!reason.contains("kubelet_fail_swap_on"), "{reason}");
    let inputs = Inputs::from_map(&new.plan.inputs).unwrap();
    assert_eq!(
        inputs.variables["containerd_max_container_log_line_size"],
        8192
    );
    assert!(!inputs.variables.contains_key("kubelet_fail_swap_on"));
    assert_eq!(inputs.operation_variables["drain_timeout"], "60s");

    // What is not of the component waits for the next converge, and this request is carried out once.
    past.ran(&new, "Succeeded", days(-31));
    assert!(past.told().contains("changed variables"), "{}", past.told());
    past.wish(&json!({"containerd_max_container_log_line_size": 8192}));
    assert!(
        !past.told().contains("changed variables"),
        "{}",
        past.told()
    );
}

#[tokio::test]
async fn members_go_one_by_one_and_etcd_is_asked() {
    let mut past = Past::new(with(&json!({"etcd_snapshot_count": 1000})), &HOSTS).await;
    past.wish(&json!({}));
    past.settings(&json!({"approval": "Manual"}));
    past.ask(COMPONENT, "etcd 1");
    let new = past.starts();
    let planes = "master-1 master-2 master-3";
    let mut expected = vec![
        "approve: ".to_owned(),
        "prepare/sandbox: ".to_owned(),
        format!("prepare/probe: {planes}"),
        format!("gate/before: {ALL}"),
        format!("bootstrap/facts: {planes}"),
        "etcd/snapshot: master-1".to_owned(),
    ];
    for number in 1..=3 {
        expected.extend([
            format!("etcd/before-{number}: {planes}"),
            format!("etcd/upgrade-{number}: master-{number}"),
            format!("etcd/after-{number}: {planes}"),
            format!("gate/etcd/{number}: {ALL}"),
        ]);
    }
    expected.push(format!("health/check: {ALL}"));
    let mut found = steps(&new.plan);
    found[0] = "approve: ".to_owned();
    assert_eq!(found, expected);
    let inputs = Inputs::from_map(&new.plan.inputs).unwrap();
    assert!(inputs.variables.is_empty(), "{:?}", inputs.variables);
    let upgrade = new
        .plan
        .steps
        .iter()
        .find(|step| step.id == "etcd/upgrade-2")
        .unwrap();
    let play = kubespray::action::play_of(upgrade).unwrap();
    assert_eq!(play.own, Some(Own::Etcd.digest()));
}

#[tokio::test]
async fn the_network_plugin_goes_under_running_pods() {
    let mut past = Past::new(with(&json!({})), &HOSTS).await;
    past.ask(COMPONENT, "network-plugin");
    let new = past.starts();
    assert_eq!(
        steps(&new.plan)[2..],
        [
            format!("gate/before: {ALL}"),
            format!("bootstrap/facts: {ALL}"),
            format!("network-plugin/upgrade: {ALL}"),
            format!("gate/network-plugin: {ALL}"),
            format!("health/check: {ALL}"),
        ]
    );
}

#[tokio::test]
async fn what_a_run_left_in_the_middle_is_let_in_by_the_next_one() {
    let mut past = Past::new(with(&json!({})), &HOSTS).await;
    past.ask(COMPONENT, "container-engine 1");
    let new = past.starts();
    past.ran_by_steps(
        &new,
        "Failed",
        days(-31),
        &[
            ("container-engine/1", "Succeeded"),
            ("container-engine/2", "Failed"),
            ("container-engine/3", "Pending"),
        ],
    );
    assert!(
        matches!(past.decision(), Decision::Maintain(..)),
        "a failed run waits for a person"
    );
    // Whatever a person asks for then, and however that ends: that the node takes no pods is told until it is let in.
    past.ask(COMPONENT, "etcd 2");
    let etcd = past.starts();
    past.ran(&etcd, "Failed", days(-30));
    let is_told = |pending: &Pending| pending.hosts == ["master-2".parse().unwrap()];
    let pending = past.planned().pending;
    let said = pending.iter().find(|pending| is_told(pending)).unwrap();
    assert_eq!(
        (&*said.operation, &*said.reason),
        ("Component", "RunFailed")
    );
    assert!(said.message.contains("windlass node uncordon"), "{said:?}");
    past.ask(TOOLBOX, "uncordon master-2,worker-4 1");
    let let_in = past.starts();
    past.ran(&let_in, "Succeeded", days(-29));
    assert!(!past.planned().pending.iter().any(is_told));
    past.observed.runs.pop();
    past.cluster.annotations_mut().remove(TOOLBOX);

    past.ask(COMPONENT, "container-engine 2");
    let again = past.starts();
    let before = again
        .plan
        .steps
        .iter()
        .find(|step| step.id == "gate/before")
        .unwrap();
    let before = serde_json::to_value(&before.action).unwrap();
    assert_eq!(
        before["engine"]["parameters"]["after"],
        json!({"run": "first-component-2", "halfway": ["master-2"]})
    );
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_its_reason() {
    let mut past = Past::new(with(&json!({})), &HOSTS).await;
    past.ask(COMPONENT, "kubelet 1");
    let why = past.refused();
    for words in [
        "kubelet",
        "container-engine, etcd, network-plugin",
        COMPONENT,
    ] {
        assert!(why.contains(words), "{why}");
    }

    past.ask(COMPONENT, "etcd 1");
    let new = past.starts();
    past.ran(&new, "Running", days(-31));
    past.ask(COMPONENT, "etcd 2");
    assert!(
        past.refused()
            .contains("run first-component-2 is under way"),
        "{}",
        past.refused()
    );

    let mut none = Past::new(with(&json!({})), &HOSTS).await;
    none.observed.runs.clear();
    none.ask(COMPONENT, "etcd 1");
    assert!(
        none.refused().contains("not built yet"),
        "{}",
        none.refused()
    );

    let mut without = Past::new(with(&json!({"deploy_container_engine": false})), &HOSTS).await;
    without.ask(COMPONENT, "container-engine 1");
    assert!(
        without
            .refused()
            .contains("deploy_container_engine is false"),
        "{}",
        without.refused()
    );
}

#[tokio::test]
async fn a_version_without_a_checksum_is_refused_before_anything_is_touched() {
    let mut past = Past::new(with(&json!({})), &HOSTS).await;
    let Playbooks::Ready(checkout) = &mut past.observed.playbooks else {
        panic!("there are no playbooks");
    };
    let listed = ["2.2.0", "2.2.1"].map(str::to_owned).into();
    let table = "containerd_archive_checksums".to_owned();
    Arc::get_mut(checkout)
        .unwrap()
        .contract
        .checksums
        .insert(table, listed);
    past.ask(COMPONENT, "container-engine 1");
    for (variables, fits) in [
        (json!({"containerd_version": "2.2.1"}), true),
        (json!({"containerd_version": "{{ anything }}"}), true),
        (
            json!({"containerd_version": "2.2.2", "containerd_archive_checksum": "sha256:c"}),
            true,
        ),
        (json!({"containerd_version": "2.2.2"}), false),
        (json!({"containerd_version": "v2.2.1"}), false),
    ] {
        past.wish(&variables);
        let why = match past.decision() {
            Decision::Stall(problems) => problem::text(&problems),
            _ => String::new(),
        };
        let told = [
            "extraVars.containerd_version",
            "no checksum",
            "2.2.",
            "containerd_archive_checksums",
        ];
        assert_eq!(
            told.iter().all(|words| why.contains(words)),
            !fits,
            "{variables}: {why}"
        );
    }
    assert!(past.refused().contains("no checksum"), "{}", past.refused());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_is_shown_carried_out_once_and_answered() {
    let world = World::start().await;
    world.built().await;
    let cluster = world.state(ClusterState::Created).await;
    let data = tempfile::tempdir().unwrap();
    let layout = Layout::new(data.path());
    let shown = preview::asked(&world.client, &cluster, (COMPONENT, "etcd 1"), &layout);
    let PreviewOutcome::Plan(shown) = shown.await.unwrap().outcome else {
        panic!("nothing would be done");
    };
    assert_eq!(world.run_until(1).await.len(), 1);
    world.ask(&component::ASKED, "etcd 1").await;
    let answer = world.answer(&component::ASKED, "etcd 1").await;
    assert_eq!(answer.run.as_deref(), Some("first-component-2"));
    let run = world.run_named("first-component-2").await;
    assert_eq!(run.spec.plan.steps, shown.steps);
    world.run_status(&run, json!({"phase": "Running"})).await;
    world.state(ClusterState::Upgrading).await;
    world.ask(&component::ASKED, "etcd 2").await;
    let refused = world
        .answer(&component::ASKED, "etcd 2")
        .await
        .refused
        .unwrap();
    assert!(refused.contains("first-component-2"), "{refused}");
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.state(ClusterState::Created).await;
    world.ask(&component::ASKED, "kubelet").await;
    let refused = world
        .answer(&component::ASKED, "kubelet")
        .await
        .refused
        .unwrap();
    assert!(refused.contains("network-plugin"), "{refused}");
    assert_eq!(world.events("ComponentRefused").await.len(), 2);
    assert_eq!(world.run_until(2).await.len(), 2);
}
