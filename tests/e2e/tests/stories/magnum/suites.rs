//! What others test every Magnum by, against `windlass magnum` as it stands in the catalogue of a real Keystone: OpenStack's own tests,
//! plain and by roles, and those of the Go library that Terraform, Crossplane and the autoscaler speak through. Nova, Glance and Neutron
//! are told, and Cluster API is played. Only in a full run.

use std::{collections::BTreeMap, process::Command};

use e2e::{PlayedClusterApi, cluster_api_definitions};
use lab::progress::Terminal;
use serde_json::Value;

use super::{World, read};

/// Tests that fail, as they do against Magnum itself: what they say then, and why.
const KNOWN: [(&str, &str, &str); 4] = [
    (
        "rbac.test_cluster.ClusterTest.test_create_cluster_with_zero_nodes",
        TOO_FEW,
        UNVERSIONED,
    ),
    (
        "rbac.test_cluster.ClusterTest.test_create_list_sign_delete_clusters",
        "Policy does not allow this request to be performed",
        "a reader asks for the authority of another user's cluster, which Magnum's own policy gives to the user who made it",
    ),
    (
        "test_cluster.ClusterTest.test_create_cluster_with_zero_nodes",
        TOO_FEW,
        UNVERSIONED,
    ),
    (
        "test_cluster.ClusterTest.test_create_list_sign_delete_clusters",
        "host='192.0.2.9'",
        "the last part asks the cluster itself, whose machines are played here; the story on hosts asks a real one",
    ),
];
const TOO_FEW: &str = "Value should be greater or equal to 1";
const UNVERSIONED: &str =
    "it names no version of the API, and the first one that takes no nodes is 1.10";

#[test]
fn openstack_s_and_gophercloud_s_own_tests_pass() {
    let (world, address) = World::with(cluster_api_definitions().unwrap());
    let world = World {
        keystone: world.keystone.with_cloud().unwrap(),
        ..world
    };
    world.keystone.people(&address).unwrap();
    let _played = PlayedClusterApi::start(world.runtime.handle(), world.client.clone());

    let told = tempest(&mut world.keystone.acceptance(&Terminal::default()).unwrap());
    let failed: BTreeMap<_, _> = told.iter().filter(|(_, what)| *what != "ok").collect();
    eprintln!(
        "of {} tests of OpenStack's {} failed",
        told.len(),
        failed.len()
    );
    for (name, why) in &failed {
        eprintln!("{name}: {why}");
    }
    let names: Vec<_> = failed.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, KNOWN.map(|(name, ..)| name));
    for (name, how, why) in KNOWN {
        assert!(told[name].contains(how), "{name} ({why}): {}", told[name]);
    }
    assert_eq!(told.len(), 60);

    let tests = go(&mut world.keystone.gophercloud(&Terminal::default()).unwrap());
    let whole = tests.iter().filter(|(name, _)| !name.contains('/'));
    let whole: Vec<_> = whole
        .map(|(name, became)| (name.as_str(), became.as_str()))
        .collect();
    // Its authors skip the first, for it asks for one fixed cluster.
    let wanted = [
        ("TestCertificatesCRUD", "skip"),
        ("TestClusterTemplatesCRUD", "pass"),
        ("TestClustersCRUD", "pass"),
        ("TestNodeGroupsCRUD", "pass"),
        ("TestQuotasCRUD", "pass"),
    ];
    assert_eq!(whole, wanted);
}

fn tempest(tests: &mut Command) -> BTreeMap<String, String> {
    let told = tests.output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    let last = text.lines().last().unwrap_or_default();
    assert!(
        told.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&told.stderr)
    );
    serde_json::from_value(read(last)).unwrap()
}

/// What became of each test, and what those said that failed.
fn go(tests: &mut Command) -> BTreeMap<String, String> {
    let told = tests.output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    let mut ended = BTreeMap::new();
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    for event in text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        let (Some(test), Some(action)) = (event["Test"].as_str(), event["Action"].as_str()) else {
            continue;
        };
        match action {
            "output" => said
                .entry(test.to_owned())
                .or_default()
                .push_str(event["Output"].as_str().unwrap_or_default()),
            "pass" | "fail" | "skip" => {
                ended.insert(test.to_owned(), action.to_owned());
            }
            _ => {}
        }
    }
    assert!(
        told.status.success(),
        "{ended:?}\n{said:#?}\n{}",
        String::from_utf8_lossy(&told.stderr)
    );
    ended
}
