//! Deletion that is disturbed: killed in the middle, asked for twice, and of a whole namespace.

use e2e::NAMESPACE;
use serde_json::json;

use super::story::{LIMIT, Story};

#[test]
fn a_disturbed_deletion_resets_each_host_once() {
    let mut story = Story::set(2);
    story.up().unwrap();
    let spec = json!({"deletionPolicy": "Reset", "operations": {"creation": {"maxRetries": 0}}});
    story.hold("beta", "host-2");
    story.hold("reset", "host-2");
    story.apply_cluster(&spec);
    story.until_held("beta");
    // The run that builds ends at its next task first.
    story.delete("cluster", "first").unwrap();
    story.release("beta", "host-2");
    story.until_held("reset");
    story.down().unwrap();
    story.up().unwrap();
    story.delete("cluster", "first").unwrap();
    story.release("reset", "host-2");
    story.until_gone("cluster", "first", LIMIT).unwrap();
    for host in ["host-1", "host-2"] {
        assert_eq!(story.done(host), ["alpha", "reset"], "{host}");
    }
    assert!(
        !story
            .data()
            .join("clusters")
            .join(NAMESPACE)
            .join("first")
            .exists()
    );

    // With the namespace go the ssh key, the hosts' objects and the Run: nobody can reset, and that is not passed over.
    story.hold("beta", "host-2");
    story.apply_cluster(&spec);
    story.until_held("beta");
    story.delete("namespace", NAMESPACE).unwrap();
    story.release("beta", "host-2");
    story.until_condition(
        "Stalled",
        "InvalidSpec",
        &["no host was reset", "write Retain to forget"],
    );
    let wish = json!({"spec": {"deletionPolicy": "Retain"}});
    story.merge("cluster", "first", &wish).unwrap();
    story.until_gone("namespace", NAMESPACE, LIMIT).unwrap();
    for host in ["host-1", "host-2"] {
        assert_eq!(story.done(host), ["alpha", "reset", "alpha"], "{host}");
    }
}
