//! Variables that a cluster keeps for as long as it lives: another value is carried out by nothing, and told by its name.

use std::sync::Arc;

use kube::ResourceExt;
use kubespray::{
    cluster::{decision::Decision, plan, resolve},
    inputs::Inputs,
    operation::{component, converge},
    playbooks::Playbooks,
    problem,
    request::{COMPONENT, CONVERGE},
};
use serde_json::{Value, from_value, json};

use crate::past::Past;

const BEFORE: &str = "10.200.0.0/18";
const KEPT: &str = "kube_pods_subnet 10.201.0.0/18 instead of 10.200.0.0/18";
const REMEDY: &str = "write kube_pods_subnet: 10.200.0.0/18";

fn with(variables: &Value) -> Value {
    json!({"all": {"deploy": {"extraVars": variables}}})
}

/// A cluster with a network of its own.
async fn built() -> Past {
    let spec = json!({
        "kubespray": {"version": "2.30.0"}, "nodes": with(&json!({"kube_pods_subnet": BEFORE})),
    });
    Past::new(spec, &["master", "worker"]).await
}

fn wish(past: &mut Past, variables: &Value) {
    past.cluster.spec.nodes = from_value(with(variables)).unwrap();
}

#[tokio::test]
async fn neither_a_converge_nor_a_component_carries_it_out() {
    let mut past = built().await;
    wish(&mut past, &json!({"kube_pods_subnet": "10.201.0.0/18"}));
    let told = past.rests();
    assert!(told.contains(KEPT) && told.contains(REMEDY), "{told}");
    assert!(
        !told.contains("windlass converge carries them out"),
        "{told}"
    );
    let wanted = resolve::resolve(&past.cluster, &past.observed).unwrap();
    let pending = plan::planned(&past.cluster, Ok(&wanted), &past.observed).pending;
    let pending: Vec<_> = pending
        .iter()
        .map(|it| {
            (
                it.operation.as_str(),
                it.reason.as_str(),
                it.message.contains(KEPT),
            )
        })
        .collect();
    assert_eq!(pending, [("Converge", "Refused", true)]);

    past.ask(COMPONENT, "etcd 1");
    let refused = past.refuses(&component::ASKED);
    assert!(
        refused.contains(KEPT) && refused.contains(REMEDY),
        "{refused}"
    );
    past.cluster.annotations_mut().clear();
    past.ask(CONVERGE, "1");
    let refused = past.refuses(&converge::ASKED);
    assert!(
        refused.contains(KEPT) && refused.contains(REMEDY),
        "{refused}"
    );

    // What else has changed waits for that, and is told beside it.
    wish(
        &mut past,
        &json!({"kube_pods_subnet": "10.201.0.0/18", "kubelet_max_pods": 90}),
    );
    let told = past.rests();
    assert!(
        told.contains(KEPT) && told.contains("windlass converge carries them out"),
        "{told}"
    );
    // A host that joins gets what the cluster has.
    past.declare("worker", 3);
    let scale = past.starts();
    assert_eq!(scale.operation.name, "Scale");
    let inputs = Inputs::from_map(&scale.plan.inputs).unwrap();
    assert_eq!(inputs.variables["kube_pods_subnet"], BEFORE);
    past.observed.nodes.pop();

    // The playbooks' own value by its name is none of another, and what was taken back is not.
    wish(
        &mut past,
        &json!({"kube_pods_subnet": BEFORE, "kube_service_addresses": "10.233.0.0/18"}),
    );
    assert_eq!(past.starts().operation.name, "Converge");
}

#[tokio::test]
async fn an_upgrade_that_would_bring_it_is_refused() {
    let mut past = built().await;
    // Playbooks that say of no release that they are it.
    let Playbooks::Ready(checkout) = &mut past.observed.playbooks else {
        panic!("no playbooks");
    };
    Arc::get_mut(checkout).unwrap().contract.release = None;
    past.cluster.spec.kubespray.as_mut().unwrap().version = Some("2.31.0".parse().unwrap());
    assert_eq!(past.starts().operation.name, "Upgrade");
    wish(&mut past, &json!({"kube_pods_subnet": "10.201.0.0/18"}));
    let Decision::Stall(problems) = past.decision() else {
        panic!("it is begun");
    };
    let told = problem::text(&problems);
    for words in [
        "extraVars.kube_pods_subnet",
        "10.201.0.0/18",
        "was built with 10.200.0.0/18",
        REMEDY,
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}
