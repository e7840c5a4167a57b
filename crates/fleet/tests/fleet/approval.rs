//! A wave that waits for a person on the embedded API: what `kubectl get rollouts` prints of it, and what is kept of who let it begin.

use api::inventory::{Environment, FleetCluster, Rollout, RolloutPhase, RolloutRun, WaveApproval};
use kube::{
    api::{GetParams, Patch, PatchParams, PostParams},
    core::{Request, Resource},
};
use serde_json::{Value, json};

use crate::world::{FLEET, World, environment, inventory, is_ready};

/// What kubectl prints of the roll-out: the columns that it shows without `-o wide`, and their cells.
async fn printed(world: &World) -> Vec<(String, String)> {
    let request = Request::new(Rollout::url_path(&(), Some(FLEET)));
    let mut request = request.get("all", &GetParams::default()).unwrap();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    request
        .headers_mut()
        .insert("accept", accept.parse().unwrap());
    let table: Value = world.client.request(request).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let cells = table["rows"][0]["cells"].as_array().unwrap().iter();
    let shown = columns
        .zip(cells)
        .filter(|(column, _)| column["priority"].as_i64().unwrap_or_default() == 0);
    let text = |value: &Value| {
        let text = value.as_str().map(ToOwned::to_owned);
        text.unwrap_or_else(|| value.to_string())
    };
    shown
        .map(|(column, cell)| (text(&column["name"]), text(cell)))
        .collect()
}

/// A roll-out whose canary is done.
async fn waiting(world: &World) -> RolloutRun {
    inventory(world).await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    let spec = json!({"soak": "0s", "approval": "AfterCanary", "parallel": 2});
    world.apply::<Rollout>("all", spec).await;
    world
        .apply::<Environment>("production", environment("1.34.4"))
        .await;
    let waiting = world
        .rollout("the canary is done", RolloutPhase::WaitingForApproval)
        .await;
    let run = waiting.status.unwrap().run.unwrap();
    assert_eq!(run.approvals, []);
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_person_is_printed_and_who_let_it_begin_is_kept() {
    let world = World::start().await;
    let run = waiting(&world).await;
    let printed = printed(&world).await;
    let printed: Vec<_> = printed
        .iter()
        .map(|(column, cell)| (column.as_str(), cell.as_str()))
        .collect();
    let waits = format!(
        "the wave rest waits for an approval: windlass inventory approve; or add it to spec.control.approved with spec.control.run {}, or make \
         a WaveApproval of it",
        run.id
    );
    let (age, others) = printed.split_last().unwrap();
    assert_eq!(age.0, "Age");
    assert_eq!(
        others,
        [
            ("Name", "all"),
            ("Run", run.id.as_str()),
            ("Phase", "WaitingForApproval"),
            ("Wave", "2/2 rest"),
            ("Done", "1/5"),
            ("Budget", "0/2"),
            ("Next", "a2, b1, b2 and 1 more"),
            ("Waits", waits.as_str()),
        ]
    );

    let control = json!({"spec": {"control": {"run": run.id, "approved": ["rest"]}}});
    let parameters = PatchParams {
        field_manager: Some("alice".to_owned()),
        ..PatchParams::default()
    };
    world
        .all::<Rollout>(FLEET)
        .patch("all", &parameters, &Patch::Merge(&control))
        .await
        .unwrap();
    let done = world.ended("approved", RolloutPhase::Succeeded).await;
    let status = done.status.unwrap();
    let record = status.history.first().unwrap();
    assert_eq!(record.approvals, status.run.unwrap().approvals);
    let [approval] = record.approvals.as_slice() else {
        panic!("one wave was approved: {record:?}");
    };
    assert_eq!(approval.wave, "rest");
    assert_eq!(approval.by.as_deref(), Some("alice"));
    assert!(approval.at.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wave_begins_by_the_object_of_somebody_who_writes_no_rollout() {
    let world = World::start().await;
    let run = waiting(&world).await;
    let approvals = world.all::<WaveApproval>(FLEET);
    let parameters = PostParams {
        field_manager: Some("dora".to_owned()),
        ..PostParams::default()
    };
    // What is said of another run, or another wave, lets nothing begin.
    for (name, run, wave) in [
        ("former", "former", "rest"),
        ("canary", run.id.as_str(), "canary"),
        ("rest", run.id.as_str(), "rest"),
    ] {
        let object = json!({
            "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "WaveApproval", "metadata": {"name": name},
            "spec": {"rollout": "all", "run": run, "wave": wave},
        });
        let object = serde_json::from_value(object).unwrap();
        approvals.create(&parameters, &object).await.unwrap();
    }
    let done = world.ended("approved", RolloutPhase::Succeeded).await;
    let record = done.status.unwrap().history.swap_remove(0);
    let approvals: Vec<_> = record
        .approvals
        .iter()
        .map(|approval| (approval.wave.as_str(), approval.by.as_deref()))
        .collect();
    assert_eq!(approvals, [("rest", Some("dora"))]);
}
