//! Moves of Cluster API objects between two embedded APIs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use relocation::Outcome;
use serde_json::Value;

mod meanwhile;
mod oracle;
mod refusals;
mod shared;
mod sides;
mod snapshot;
mod stopped;
mod waiting;
mod world;

use sides::Sides;
use snapshot::{STAYS, bare, snapshot};
use world::{install, raise, raise_small};

type Objects = BTreeMap<String, Value>;

/// Two sides, the one with a cluster and the other with its providers, and what is on the first.
async fn sides() -> (Sides, Objects) {
    let sides = Sides::start().await;
    raise(&sides.here()).await;
    install(&sides.there(), "v0.3.0").await;
    let before = snapshot(&sides.here()).await;
    (sides, before)
}

/// As [`sides`], for tests that need many.
async fn small_sides() -> (Sides, Objects) {
    let sides = Sides::start().await;
    raise_small(&sides.here()).await;
    install(&sides.there(), "v0.3.0").await;
    let before = snapshot(&sides.here()).await;
    (sides, before)
}

/// Everything is there as it was here, and nothing is here but what stays.
async fn assert_moved(sides: &Sides, before: &Objects, when: &str) {
    let (here, there) = (
        snapshot(&sides.here()).await,
        snapshot(&sides.there()).await,
    );
    let mut expected = bare(before);
    let is_shared = |name: &str| ["DevIdentity/who", "Secret/who"].contains(&name);
    expected.retain(|name, _| is_shared(name) || !STAYS.contains(&name.as_str()));
    assert_eq!(bare(&there), expected, "there, {when}");
    let mut left = before.clone();
    left.retain(|name, _| STAYS.contains(&name.as_str()));
    // Its owner went, and it did not go with it.
    let note = left.get_mut("Note/about-c").unwrap();
    note["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("ownerReferences");
    assert_eq!(here, left, "here, {when}");
}

/// Everything is here as it was, and nothing is there.
async fn assert_untouched(sides: &Sides, before: &Objects, when: &str) {
    let (here, there) = (
        snapshot(&sides.here()).await,
        snapshot(&sides.there()).await,
    );
    assert_eq!(&here, before, "here, {when}");
    assert_eq!(bare(&there), Objects::new(), "there, {when}");
}

#[tokio::test]
async fn everything_arrives_and_nothing_is_left_or_paused() {
    let (sides, before) = sides().await;
    let moved = sides.carry_over().await.unwrap();
    assert_eq!(moved.outcome, Outcome::Moved);
    assert_moved(&sides, &before, "after a move").await;
    assert_eq!(
        moved.objects.len(),
        bare(&snapshot(&sides.there()).await).len()
    );
    let again = sides.carry_over().await.unwrap();
    assert_eq!(again.outcome, Outcome::MovedBefore);
    let back = sides.take_back().await.unwrap();
    assert_eq!(back.outcome, Outcome::NothingToTakeBack);
}

#[tokio::test]
async fn a_plan_names_owners_first_and_changes_nothing() {
    let (sides, before) = sides().await;
    let (source, target) = (sides.side_here().await, sides.side_there().await);
    let this = pivot::Move::prepare(&source, &target, sides::patience(), &|_| {});
    let planned = this.await.unwrap().plan().await.unwrap();
    assert_eq!(planned.outcome, Outcome::Planned);
    let at = |name: &str| {
        planned
            .objects
            .iter()
            .position(|object| object == name)
            .unwrap()
    };
    let chain = [
        "ClusterClass/class",
        "Cluster/c",
        "MachineDeployment/c-md",
        "MachineSet/c-md-1",
        "Machine/c-md-1-a",
        "KubeadmConfig/c-md-1-a",
        "Secret/c-md-1-a",
    ];
    assert!(chain.map(at).is_sorted(), "{:?}", planned.objects);
    assert!(at("DevIdentity/who") < at("Secret/who (namespace dev-system)"));
    assert_untouched(&sides, &before, "after a plan").await;
}
