//! Real providers of Cluster API: Windlass installs them in a real cluster, they raise clusters, and nobody notices their upgrade.
//! Root is needed.

use std::time::Instant;

use e2e::{Management, windlass};
use lab::progress::Terminal;

#[test]
fn real_providers_raise_clusters_and_are_upgraded_without_a_gap() {
    let [old, new] = Management::VERSIONS;
    let began = Instant::now();
    let tell = |what: &str| eprintln!("{:>5.1} s: {what}", began.elapsed().as_secs_f64());
    let management = Management::set(windlass().unwrap(), &Terminal::default()).unwrap();
    tell("the cluster is there");
    for version in [old, new] {
        management.preload(version).unwrap();
    }
    management.install(old).unwrap();
    tell("providers are installed");
    management.raise("first").unwrap();
    tell("a cluster is Available");

    let tallies = management.upgrade(new, "first", &tell).unwrap();
    for tally in &tallies {
        eprintln!("{tally:?}");
        assert!(tally.calls > 100, "{tally:?}");
    }
    management.raise("second").unwrap();
    tell("another cluster is Available");
    let failed: u64 = tallies.iter().map(|tally| tally.failed).sum();
    assert_eq!(failed, 0, "{tallies:#?}");
}
