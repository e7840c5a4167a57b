//! Keystone in an image that starts as Kolla's does, by Kolla's own scripts and a real sudo, with a memcached beside it; and what becomes of an
//! update that breaks it.

use e2e::{Services, windlass};
use lab::{CloudImages, progress::Terminal};
use serde_json::{Value, json};

use super::{
    gate::an_update_ends_at_a_service_that_is_not_healthy, names, nothing_secret_is_told_of,
    what_was_done_is_what_was_planned,
};

const KEYSTONE: &str = "deploy/one-keystone-api";

#[test]
fn keystone_starts_by_the_contract_of_kolla_and_keeps_what_it_knows_in_memcached() {
    let world = Services::set(windlass().unwrap(), &Terminal::default()).unwrap();
    let cloud = of_kolla(&json!({"keystone.conf": "[token]\nexpiration = 1234\n"}));
    world.apply(&cloud).unwrap();
    world.until("openstack", "one", "Ready").unwrap();
    what_was_done_is_what_was_planned(&world, &cloud);
    let run = world.get("openstackservice", "one-keystone")["status"]["run"].clone();
    let run = world.get("run", run.as_str().unwrap());
    let told = run["status"]["history"].to_string();
    assert!(told.contains("hook by keystone of Kolla"), "{told}");

    let token = world.openstack(&["token", "issue", "-f", "json"]).unwrap();
    let token: Value = serde_json::from_str(&token).unwrap();
    let issued = token["id"].as_str().unwrap();
    assert!(issued.starts_with("gAAAA"), "{token}");
    let kept = "import socket; s = socket.create_connection(('localhost', 11211)); s.sendall(b'stats\\r\\nquit\\r\\n'); \
        print(b''.join(iter(lambda: s.recv(4096), b'')).decode())";
    let stats = ["exec", "one-memcached-0", "--", "python3", "-c", kept];
    let stats = world.kubectl(&stats).unwrap();
    let of = |name: &str| {
        let mut words = stats.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert!(of("curr_items") > 0 && of("get_hits") > 0, "{stats}");

    // Kolla's own look says whether a container has what it was given.
    let check = [
        "exec",
        KEYSTONE,
        "--",
        "sudo",
        "-E",
        "kolla_set_configs",
        "--check",
    ];
    world.kubectl(&check).unwrap();
    let change = "echo >> /etc/keystone/keystone.conf";
    world
        .kubectl(&["exec", KEYSTONE, "--", "sh", "-c", change])
        .unwrap();
    let changed = format!("{:#}", world.kubectl(&check).unwrap_err());
    assert!(changed.contains("ConfigFileBadState"), "{changed}");
    nothing_secret_is_told_of(
        &world,
        &[
            ("one-keystone-admin", "password"),
            ("one-keystone-database", "password"),
            ("one-placement-identity", "password"),
        ],
    );

    // The image is asked what it knows before it is rolled out, as any.
    let slip = of_kolla(&json!({"keystone.conf": "[token]\nexpirtion = 1234\n"}));
    world.apply(&slip).unwrap();
    let refused = world.until("openstackservice", "one-keystone", "Stalled");
    let why = Services::message(&refused.unwrap(), "Stalled");
    assert!(why.contains("it knows token.expiration"), "{why}");

    // Where several fields are at odds, the one that is to go is named.
    let mut external = cloud.clone();
    external["spec"]["database"] =
        json!({"external": {"host": "db.example.org", "adminSecret": {"name": "db"}}});
    external["spec"]["passwords"] =
        json!({"databaseServer": {"rotate": {"schedule": "0 2 1 * *"}}});
    let refused = format!("{:#}", world.apply(&external).unwrap_err());
    assert!(
        refused.contains("spec.passwords.databaseServer: Invalid value"),
        "{refused}"
    );

    world.apply(&cloud).unwrap();
    world.until("openstack", "one", "Ready").unwrap();
    an_update_ends_at_a_service_that_is_not_healthy(&world, &cloud);
    let delete = ["delete", "openstack", "one", "--timeout=300s"];
    world.kubectl(&delete).unwrap();
    for kind in ["statefulsets", "networkpolicies"] {
        assert_eq!(names(&world, kind), "");
    }
}

/// Keystone by Kolla's contract, a Placement by that of any image, and a memcached.
fn of_kolla(keystone: &Value) -> Value {
    let mut cloud = Services::cloud("2026.2", keystone);
    cloud["spec"]["memcached"] = json!({"managed": {"image": CloudImages::MEMCACHED}});
    let services = cloud["spec"]["services"].as_array_mut().unwrap();
    services.retain(|service| service["name"] != "glance");
    let keystone = services
        .iter_mut()
        .find(|service| service["name"] == "keystone")
        .unwrap();
    keystone["image"] = json!(CloudImages::KOLLA);
    keystone["contract"] = json!("Kolla");
    keystone["hooks"] = json!([{
        "name": "who", "after": "database/expand", "operations": ["Install"],
        "image": {"command": ["sh", "-c", "echo \"hook by $(id -un) of Kolla\" && test -r /etc/keystone/keystone.conf"]},
    }]);
    cloud
}
