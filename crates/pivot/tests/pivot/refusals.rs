//! Moves that are refused, each before anything is written.

use kube::api::{DeleteParams, Patch, PatchParams};
use relocation::Side;
use serde_json::{Value, json};

use crate::{
    assert_untouched,
    sides::{SYSTEM, Sides, TEAM, carry_over, definitions},
    snapshot::{bare, snapshot},
    world::{api, install, make, namespace, raise},
};

const CORE: &str = "cluster.x-k8s.io";

/// The reasons of a refusal, which left everything as it was.
async fn refused(sides: &Sides) -> String {
    let (here, there) = (
        snapshot(&sides.here()).await,
        snapshot(&sides.there()).await,
    );
    let error = sides.carry_over().await.unwrap_err();
    assert!(matches!(error, pivot::Error::Refused(_)), "{error:?}");
    assert_eq!(snapshot(&sides.here()).await, here);
    assert_eq!(snapshot(&sides.there()).await, there);
    error.to_string()
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

async fn patch(sides: &Sides, kind: &str, name: &str, patch: Value) {
    let api = api(&sides.here(), CORE, kind, Some(TEAM));
    let parameters = PatchParams::default();
    if patch.get("status").is_some() {
        api.patch_status(name, &parameters, &Patch::Merge(patch))
            .await
            .unwrap();
    } else {
        api.patch(name, &parameters, &Patch::Merge(patch))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn the_same_api_and_another_namespace_are_refused() {
    let (sides, before) = crate::sides().await;
    let here = sides.side_here().await;
    let elsewhere = Side::find(sides.here(), "elsewhere").await.unwrap();
    let error = carry_over(&here, &elsewhere).await.unwrap_err().to_string();
    assert_says(
        &error,
        &[
            "--to-kubeconfig is",
            "it leads to the API that the objects are in",
            "--to-namespace is \"elsewhere\"",
            "leave --to-namespace away",
        ],
    );
    assert_untouched(&sides, &before, "refused").await;
}

#[tokio::test]
async fn kinds_and_providers_that_are_not_there_are_all_named() {
    let there = definitions(|definition| {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        if name.starts_with("machinesets.") {
            definition["spec"]["versions"][0]["name"] = json!("v1beta1");
        } else if name.starts_with("devclusters.") {
            definition["metadata"]["labels"]
                .as_object_mut()
                .unwrap()
                .remove("cluster.x-k8s.io/v1beta2");
        }
        !name.starts_with("devmachines.")
    });
    let sides = Sides::with(&there).await;
    raise(&sides.here()).await;
    install(&sides.there(), "v0.2.9").await;
    let core = api(
        &sides.there(),
        "clusterctl.cluster.x-k8s.io",
        "Provider",
        Some(SYSTEM),
    );
    core.delete("cluster-api", &DeleteParams::default())
        .await
        .unwrap();
    assert_says(
        &refused(&sides).await,
        &[
            "CustomResourceDefinition devmachines.infrastructure.cluster.x-k8s.io there: there is none",
            "CustomResourceDefinition machinesets.cluster.x-k8s.io there spec.versions is \"v1beta1\": v1beta2, in which",
            "devclusters.infrastructure.cluster.x-k8s.io there metadata.labels[cluster.x-k8s.io/v1beta2]",
            "Provider cluster-api there: it is installed here, in v1.14.2, and not there; install it there",
            "Provider infrastructure-dev there is \"v0.2.9\": it is older than here, where it is v0.3.0; upgrade it there",
        ],
    );
}

#[tokio::test]
async fn what_is_not_ready_is_all_named() {
    let (sides, _) = crate::sides().await;
    patch(
        &sides,
        "Cluster",
        "c",
        json!({"status": {"initialization": {"infrastructureProvisioned": false}}}),
    )
    .await;
    patch(
        &sides,
        "Machine",
        "c-cp-a",
        json!({"status": {"nodeRef": null}}),
    )
    .await;
    patch(
        &sides,
        "ClusterClass",
        "class",
        json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}),
    )
    .await;
    let machines = api(&sides.here(), CORE, "Machine", Some(TEAM));
    machines
        .delete("c-md-1-a", &DeleteParams::default())
        .await
        .unwrap();
    assert_says(
        &refused(&sides).await,
        &[
            "Cluster/c status.initialization.infrastructureProvisioned is \"false\": its infrastructure is still being provisioned",
            "Machine/c-cp-a status.nodeRef: its node has not joined",
            "ClusterClass/class metadata.annotations[cluster.x-k8s.io/paused]: somebody paused it",
            "Machine/c-md-1-a metadata.deletionTimestamp: it is being deleted",
        ],
    );
}

#[tokio::test]
async fn a_cluster_that_is_paused_or_whose_control_plane_is_not_initialized_is_refused() {
    let (sides, _) = crate::sides().await;
    patch(&sides, "Cluster", "c", json!({"spec": {"paused": true}})).await;
    patch(
        &sides,
        "Cluster",
        "c",
        json!({"status": {"conditions": []}}),
    )
    .await;
    assert_says(
        &refused(&sides).await,
        &[
            "Cluster/c spec.paused: somebody paused it, and what a move pauses it lets go on; let it go on first",
            "Cluster/c status.conditions[ControlPlaneInitialized].status: its control plane is not initialized yet",
        ],
    );
}

#[tokio::test]
async fn what_cannot_follow_its_owners_is_refused_and_not_left_behind() {
    let (sides, _) = crate::sides().await;
    let note = make(
        &sides.here(),
        "example.com",
        "Note",
        "owner",
        None,
        json!({}),
    )
    .await;
    let owners = json!({"metadata": {"ownerReferences": [note]}});
    patch(&sides, "Cluster", "c", owners).await;
    let text = refused(&sides).await;
    assert_says(
        &text,
        &["Cluster/c metadata.ownerReferences is \"Note owner\": this owner does not move"],
    );
    assert!(
        !text.contains("MachineSet/"),
        "what waits for it is not named: {text}"
    );
}

#[tokio::test]
async fn objects_in_the_way_and_a_move_of_the_other_side_are_refused() {
    let (sides, _) = crate::sides().await;
    let there = sides.there();
    namespace(&there, TEAM).await;
    make(
        &there,
        "",
        "Secret",
        "c-ca",
        None,
        json!({"data": {"tls.key": "eA=="}}),
    )
    .await;
    let data =
        json!({"phase": "Copying", "target": "elsewhere", "namespaces": "[]", "paused": "[]"});
    let record =
        json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "windlass"}}, "data": data});
    make(&there, "", "ConfigMap", "windlass-pivot", None, record).await;
    assert_says(
        &refused(&sides).await,
        &[
            "Secret/c-ca metadata.name is \"c-ca\": there is another object of that name there; delete it there",
            "ConfigMap/windlass-pivot metadata.name",
        ],
    );
}

#[tokio::test]
async fn a_move_that_was_begun_to_one_api_goes_to_no_other() {
    let (sides, before) = crate::sides().await;
    let stop = crate::sides::Stop::at(20, crate::sides::How::KilledBefore);
    assert!(sides.carry_over_until(&stop).await.is_none());
    let (other, _) = crate::sides().await;
    let (here, elsewhere) = (sides.side_here().await, other.side_there().await);
    let error = carry_over(&here, &elsewhere).await.unwrap_err().to_string();
    assert_says(
        &error,
        &[
            "--to-kubeconfig is",
            "to another API is on its way",
            "--abort",
        ],
    );
    let error = pivot::take_back(&here, Some(&elsewhere), crate::sides::patience(), &|_| {}).await;
    assert_says(
        &error.unwrap_err().to_string(),
        &["to another API is on its way"],
    );
    let back = pivot::take_back(&here, None, crate::sides::patience(), &|_| {})
        .await
        .unwrap();
    assert_says(
        &back.warnings.join(""),
        &["copies there, if there are any, stay; their Clusters are paused"],
    );
    assert_eq!(snapshot(&sides.here()).await, before);
    // What stayed there is known again.
    sides.carry_over().await.unwrap();
    crate::assert_moved(&sides, &before, "at last").await;
}

#[tokio::test]
async fn a_copy_that_somebody_let_go_on_is_neither_written_over_nor_deleted() {
    let (sides, before) = crate::sides().await;
    let stop = crate::sides::Stop::at(40, crate::sides::How::KilledBefore);
    assert!(sides.carry_over_until(&stop).await.is_none());
    let clusters = api(&sides.there(), CORE, "Cluster", Some(TEAM));
    let go_on = Patch::Merge(json!({"spec": {"paused": null}}));
    clusters
        .patch("c", &PatchParams::default(), &go_on)
        .await
        .unwrap();
    let error = sides.take_back().await.unwrap_err().to_string();
    assert_says(
        &error,
        &["Cluster/c spec.paused: its copy there was let go on before the move had ended"],
    );
    assert!(bare(&snapshot(&sides.there()).await).contains_key("Cluster/c"));
    let here = api(&sides.here(), CORE, "Cluster", Some(TEAM));
    let cluster = here.get("c").await.unwrap();
    assert_eq!(cluster.data["spec"]["paused"], true, "it would act twice");
    // Paused there again, it can be taken back.
    let pause = Patch::Merge(json!({"spec": {"paused": true}}));
    clusters
        .patch("c", &PatchParams::default(), &pause)
        .await
        .unwrap();
    sides.take_back().await.unwrap();
    assert_untouched(&sides, &before, "taken back at last").await;
}

#[tokio::test(start_paused = true)]
async fn what_is_here_goes_on_although_the_other_side_does_not_answer() {
    let (sides, before) = crate::sides().await;
    let stop = crate::sides::Stop::at(40, crate::sides::How::KilledBefore);
    assert!(sides.carry_over_until(&stop).await.is_none());
    let (here, there) = (sides.side_here().await, sides.side_there_once().await);
    let back = pivot::take_back(&here, Some(&there), crate::sides::patience(), &|_| {}).await;
    assert_says(&back.unwrap_err().to_string(), &["failed to list"]);
    let cluster = api(&sides.here(), CORE, "Cluster", Some(TEAM));
    let cluster = cluster.get("c").await.unwrap();
    assert_eq!(cluster.data["spec"]["paused"], Value::Null);
    sides.take_back().await.unwrap();
    assert_untouched(&sides, &before, "once it answers again").await;
}
