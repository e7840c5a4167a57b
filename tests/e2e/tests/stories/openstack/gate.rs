//! An update whose first service is made and does not work: it ends there, and whoever comes after it is not touched.

use e2e::{Services, is_true, wait_until};
use serde_json::{Value, json};

use super::{LIMIT, names};

/// `cloud` is as it should be, of Keystone and Placement. Afterwards it is so again.
pub(super) fn an_update_ends_at_a_service_that_is_not_healthy(world: &Services, cloud: &Value) {
    let mut broken = cloud.clone();
    let services = broken["spec"]["services"].as_array_mut().unwrap();
    for service in services {
        if service["name"] == "keystone" {
            // The schema knows it, and pods that serve say so; but nobody logs in by a password any more, and its run does not ask.
            service["config"]["keystone.conf"] = json!("[auth]\nmethods = token\n");
            let nothing =
                json!({"name": "trust", "instead": "api/token", "image": {"command": ["true"]}});
            service["hooks"].as_array_mut().unwrap().push(nothing);
        } else {
            service["config"] = json!({"placement.conf": "[DEFAULT]\ndebug = true\n"});
        }
    }
    let before = of_placement(world);
    world.apply(&broken).unwrap();
    let waits = wait_until("the cloud to wait for Keystone", LIMIT, || {
        let keystone = world.get("openstackservice", "one-keystone");
        let cloud = world.get("openstack", "one");
        let waits = cloud["status"]["blockedOn"].as_str().unwrap_or_default();
        let is_unhealthy = keystone["status"]["phase"] == "Unhealthy";
        Ok((is_unhealthy && waits.contains("keystone/health")).then(|| waits.to_owned()))
    });
    // It may get well by itself for as long as that takes.
    eprintln!("meanwhile: {}", waits.unwrap());
    assert_eq!(of_placement(world), before);
    let stalled = world.until("openstack", "one", "Stalled").unwrap();
    let why = Services::message(&stalled, "Stalled");
    let told =
        "one-keystone is not healthy, so the services after it stay as they are: keystone/health";
    assert!(why.contains(told), "{why}");
    assert!(
        why.contains("WrongPassword") || why.contains("knows no admin"),
        "{why}"
    );
    let waits = stalled["status"]["blockedOn"].as_str().unwrap();
    assert!(
        waits.contains("keystone/ready: one-keystone is not healthy"),
        "{waits}"
    );
    assert!(!is_true(&stalled, "Ready"), "{stalled}");
    let shown = world.kubectl(&["get", "openstacks"]).unwrap();
    assert!(shown.contains("one-keystone is not healthy"), "{shown}");
    let run = world.get("run", stalled["status"]["run"].as_str().unwrap());
    assert_eq!(run["status"]["failure"]["code"], "NotHealthy", "{run}");
    let steps = run["status"]["steps"].as_array().unwrap();
    let placement = steps
        .iter()
        .filter(|step| step["id"].as_str().unwrap().starts_with("placement/"));
    assert!(placement.clone().count() == 2, "{run}");
    for step in placement {
        assert_eq!(step["phase"], "Pending", "{step}");
    }
    assert_eq!(of_placement(world), before);

    // Taken back, it is an update of its own, in which Placement is as it should be already.
    world.apply(cloud).unwrap();
    world.until("openstack", "one", "Ready").unwrap();
    assert_eq!(of_placement(world), before);
    world.openstack(&["token", "issue"]).unwrap();
}

/// What would be another if somebody had touched it.
fn of_placement(world: &Services) -> (Value, Value, String) {
    let generation =
        |kind: &str, name: &str| world.get(kind, name)["metadata"]["generation"].clone();
    let runs = names(world, "runs");
    let own = runs.lines().filter(|run| run.contains("one-placement"));
    (
        generation("openstackservice", "one-placement"),
        generation("deployment", "one-placement-api"),
        own.collect::<Vec<_>>().join(" "),
    )
}
