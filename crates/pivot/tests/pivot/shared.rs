//! Classes that are of use to more than the namespace.

use kube::{
    Client, ResourceExt,
    api::{Patch, PatchParams},
};
use relocation::Outcome;
use serde_json::json;

use crate::{
    sides::{How, INFRASTRUCTURE, Sides, Stop, TEAM},
    snapshot::snapshot,
    world::{api, class, make, make_in, namespace},
};

const CORE: &str = "cluster.x-k8s.io";
const CLASSES: &str = "classes";

#[tokio::test]
async fn a_class_that_others_use_is_copied_and_stays() {
    let (sides, before) = crate::sides().await;
    let here = sides.here();
    namespace(&here, "others").await;
    let topology =
        json!({"spec": {"topology": {"classRef": {"name": "class", "namespace": TEAM}}}});
    make_in(
        &here,
        Some("others"),
        CORE,
        "Cluster",
        "theirs",
        None,
        topology,
    )
    .await;
    let moved = sides.carry_over().await.unwrap();
    let warnings = moved.warnings.join("\n");
    assert!(
        warnings.contains("ClusterClass/class was copied and stays here too"),
        "{warnings}"
    );
    let (here, there) = (snapshot(&here).await, snapshot(&sides.there()).await);
    for name in ["ClusterClass/class", "DevClusterTemplate/class-infra"] {
        assert_eq!(here.get(name), before.get(name), "{name} goes on here");
        assert_eq!(there.get(name), before.get(name), "{name} goes on there");
    }
    assert!(here.contains_key("Cluster/theirs") && !here.contains_key("Cluster/c"));
}

/// A cluster of the team whose class is in another namespace, with templates that another class does not use.
pub(crate) async fn raise_of_foreign_class(client: &Client) {
    namespace(client, CLASSES).await;
    let class = class(client, CLASSES).await;
    for (name, owner) in [("class-infra", Some(&class)), ("unused", None)] {
        let spec = json!({"spec": {"a": 2}});
        make_in(
            client,
            Some(CLASSES),
            INFRASTRUCTURE,
            "DevClusterTemplate",
            name,
            owner,
            spec,
        )
        .await;
    }
    let cluster = json!({
        "spec": {"topology": {"classRef": {"name": "class", "namespace": CLASSES}, "version": "v1.34.0"}},
        "status": {
            "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
            "conditions": [{"type": "ControlPlaneInitialized", "status": "True"}],
        },
    });
    make(client, CORE, "Cluster", "foreign", None, cluster).await;
}

/// Whether the class of the other namespace is on a side and is paused.
async fn is_paused(client: &Client) -> Option<bool> {
    let found = api(client, CORE, "ClusterClass", Some(CLASSES))
        .get_opt("class")
        .await
        .unwrap();
    found.map(|class| class.annotations().contains_key("cluster.x-k8s.io/paused"))
}

#[tokio::test]
async fn a_class_of_another_namespace_is_copied_once_and_is_nowhere_left_paused() {
    let (sides, _) = crate::sides().await;
    let (here, there) = (sides.here(), sides.there());
    raise_of_foreign_class(&here).await;
    let stop = Stop::at(20, How::KilledBefore);
    assert!(sides.carry_over_until(&stop).await.is_none());
    assert_eq!(is_paused(&here).await, Some(true));
    sides.take_back().await.unwrap();
    assert_eq!(
        (is_paused(&here).await, is_paused(&there).await),
        (Some(false), None)
    );
    let moved = sides.carry_over().await.unwrap();
    assert_eq!(moved.outcome, Outcome::Moved);
    assert_eq!(
        (is_paused(&here).await, is_paused(&there).await),
        (Some(false), Some(false))
    );
    let templates = api(&there, INFRASTRUCTURE, "DevClusterTemplate", Some(CLASSES));
    assert!(templates.get_opt("class-infra").await.unwrap().is_some());
    assert!(templates.get_opt("unused").await.unwrap().is_none());
    // The next cluster of the class finds it there.
    again(&sides, "next").await;
    let moved = sides.carry_over().await.unwrap();
    assert_eq!(moved.objects, ["Cluster/next"]);
    // One that has become another is in the way.
    let other = Patch::Merge(json!({"spec": {"variables": [{"name": "a"}]}}));
    let class = api(&there, CORE, "ClusterClass", Some(CLASSES));
    class
        .patch("class", &PatchParams::default(), &other)
        .await
        .unwrap();
    again(&sides, "late").await;
    let error = sides.carry_over().await.unwrap_err().to_string();
    assert!(
        error.contains("ClusterClass/class (namespace classes) metadata.name"),
        "{error}"
    );
}

async fn again(sides: &Sides, name: &str) {
    let topology = json!({"classRef": {"name": "class", "namespace": CLASSES}});
    let status = json!({
        "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
        "conditions": [{"type": "ControlPlaneInitialized", "status": "True"}],
    });
    let cluster = json!({"spec": {"topology": topology}, "status": status});
    make_in(
        &sides.here(),
        Some(TEAM),
        CORE,
        "Cluster",
        name,
        None,
        cluster,
    )
    .await;
}
