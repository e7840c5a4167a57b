//! What levels of an inventory come to, by programs of others: Hiera's `puppet lookup`, and `ansible-inventory`.
//!
//! Both start slowly, so many random trees go into one process. `WINDLASS_DIFFERENTIAL_SEED` takes another seed than the usual one.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the helpers are test code too"
)]

#[path = "../../../../crates/ansible/tests/support/environment.rs"]
mod environment;
mod groups;
mod hiera;
mod trees;

use std::{env, fmt::Debug};

use inventory::{Fleet, Object};
use lab::Extent;
use proptest::{
    strategy::{Strategy, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};

/// Any number would do.
const SEED: u64 = 4;

/// The seeds of this run.
fn seeds() -> impl Iterator<Item = u64> {
    let first = env::var("WINDLASS_DIFFERENTIAL_SEED");
    let first = first.map_or(SEED, |text| text.parse().unwrap());
    first..first + Extent::of_this_run().seeds()
}

/// Random values, always the same of one seed.
fn random<T: Debug>(strategy: &impl Strategy<Value = T>, seed: u64, count: usize) -> Vec<T> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let generator = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), generator);
    (0..count)
        .map(|_| strategy.new_tree(&mut runner).unwrap().current())
        .collect()
}

/// An object of an inventory.
fn object(kind: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({"name": name});
    let mut object = json!({"apiVersion": "inventory.windlass.dev/v1alpha1", "kind": kind, "metadata": metadata});
    object["spec"] = spec;
    object
}

/// A template, without which no cluster is resolved.
fn template() -> Value {
    let document = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    object(
        "ClusterTemplate",
        "t",
        json!({"backEnd": "Plain", "documents": [{"object": document}]}),
    )
}

/// What the levels of a cluster come to.
fn values(fleet: &Fleet, cluster: &str) -> Value {
    let cluster = Object {
        kind: "FleetCluster".into(),
        namespace: "default".into(),
        name: cluster.into(),
    };
    fleet.resolve(&cluster).unwrap().values.to_value()
}

/// The smallest of what differs, which says the most.
fn assert_none(differing: Vec<String>) {
    let many = differing.len();
    let smallest = differing.into_iter().min_by_key(String::len);
    assert!(
        smallest.is_none(),
        "{many} differ; the smallest:\n{}",
        smallest.unwrap_or_default()
    );
}
