use api::inventory::{FleetHealth, MemberPhase};
use serde_json::{Value, json};

use super::{
    super::engine::{Operators, Seen},
    *,
};

/// Clusters of the sites `a` and `b`, each with what it is and what the inventory renders it to.
fn known(clusters: &[(&str, &str, &str)]) -> Known {
    let mut known = Known {
        levels: ["site".to_owned(), "cluster".to_owned()].into(),
        ..Known::default()
    };
    for (name, applied, rendered) in clusters {
        let site = name[..1].to_owned();
        let seen = Seen {
            domains: vec![format!("site/{site}")],
            applied: Some((*applied).to_owned()),
            health: FleetHealth::Well,
            ..Seen::default()
        };
        known.seen.insert((*name).to_owned(), seen);
        known.own.push(Candidate {
            name: (*name).to_owned(),
            levels: [("site".to_owned(), site)].into(),
            revision: (*rendered).to_owned(),
            ..Candidate::default()
        });
    }
    known
}

#[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
fn rollout(spec: Value) -> Rollout {
    serde_json::from_value(json!({
        "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Rollout",
        "metadata": {"name": "all", "uid": "1"}, "spec": spec,
    }))
    .unwrap()
}

/// A pass, whose outcome the next one goes on from.
fn pass(rollout: &mut Rollout, known: &Known) -> Decided {
    pass_at(rollout, known, "1970-01-01T00:00:00Z")
}

fn pass_at(rollout: &mut Rollout, known: &Known, now: &str) -> Decided {
    let decided = decide(rollout, known, Duration::ZERO, now.parse().unwrap());
    let status = rollout.status.get_or_insert_default();
    if let Some((run, phase)) = &decided.ended {
        let record = history::record(run, *phase, status.sources.as_ref());
        status.history = history::remembered(&status.history, record);
    }
    status.run.clone_from(&decided.run);
    status.phase = Some(decided.verdict.phase);
    status.skipped.clone_from(&decided.skipped);
    status.sources.clone_from(&decided.sources);
    decided
}

fn phases(decided: &Decided) -> String {
    let members = decided.run.iter().flat_map(|run| &run.clusters);
    let members =
        members.map(|member| format!("{}={:?}@{}", member.name, member.phase, member.revision));
    members.collect::<Vec<_>>().join(" ")
}

#[test]
fn an_edit_in_mid_run_queues_or_takes_over_and_says_so() {
    for (on_edit, begun, words) in [
        (
            "Queue",
            "a1=Done@2 b1=Updating@2",
            "is carried out when this run has ended",
        ),
        (
            "Supersede",
            "a1=Done@2 b1=Pending@2",
            "takes the place of this run",
        ),
    ] {
        let mut rollout = rollout(json!({"onEdit": on_edit, "soak": "0s"}));
        let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
        assert_eq!(
            phases(&pass(&mut rollout, &before)),
            "a1=Updating@2 b1=Pending@2"
        );
        let edited = known(&[("a1", "2", "3"), ("b1", "1", "3")]);
        let mut last = Decided::default();
        for _ in 0..2 {
            last = pass(&mut rollout, &edited);
        }
        // Soaked and edited.
        assert!(
            last.queued
                .clone()
                .is_some_and(|queued| queued.contains(words)),
            "{on_edit}: {last:?}"
        );
        if on_edit == "Queue" {
            assert_eq!(phases(&last), begun, "{on_edit}");
        } else {
            assert_eq!(
                last.ended.clone().map(|(_, phase)| phase),
                Some(RolloutPhase::Superseded)
            );
            assert_eq!(phases(&last), begun, "{on_edit}");
            assert_eq!(
                phases(&pass(&mut rollout, &edited)),
                "a1=Updating@3 b1=Pending@3"
            );
        }
    }
}

/// A window of each night, from ten to two.
fn nightly(more: &Value) -> Rollout {
    let mut spec = json!({
        "windows": [{"schedule": "0 22 * * *", "duration": "4h"}], "soak": "0s",
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    rollout(spec)
}

#[test]
fn a_wave_begins_inside_a_window_and_says_until_when_it_waits() {
    let mut rollout = nightly(&json!({}));
    let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
    let waits = pass_at(&mut rollout, &before, "2026-06-01T12:00:00Z");
    assert_eq!(phases(&waits), "a1=Pending@2 b1=Pending@2");
    assert_eq!(waits.verdict.phase, RolloutPhase::WaitingForWindow);
    assert_eq!(
        waits.verdict.waits.as_deref(),
        Some(
            "the wave canary waits for the maintenance window that opens at 2026-06-01T22:00:00+00:00"
        )
    );
    assert_eq!(waits.verdict.wake, Some(10 * 3600 + 1));
    let begun = pass_at(&mut rollout, &before, "2026-06-01T22:00:00Z");
    assert_eq!(phases(&begun), "a1=Updating@2 b1=Pending@2");
    let canary = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
    pass_at(&mut rollout, &canary, "2026-06-02T01:59:59Z");
    // What was begun comes to its end, the next one waits for another night.
    let closed = pass_at(&mut rollout, &canary, "2026-06-02T02:00:00Z");
    assert_eq!(phases(&closed), "a1=Done@2 b1=Pending@2");
    assert_eq!(closed.verdict.phase, RolloutPhase::WaitingForWindow);
    assert_eq!(
        closed.verdict.waits.as_deref(),
        Some(
            "the wave rest waits for the maintenance window that opens at 2026-06-02T22:00:00+00:00"
        )
    );
    let on = pass_at(&mut rollout, &canary, "2026-06-03T00:00:00Z");
    assert_eq!(phases(&on), "a1=Done@2 b1=Updating@2");
}

#[test]
fn a_run_that_waits_for_its_first_window_gives_way_to_an_edit() {
    let mut rollout = nightly(&json!({}));
    let first = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
    let second = known(&[("a1", "1", "3"), ("b1", "1", "3")]);
    pass_at(&mut rollout, &first, "2026-06-01T12:00:00Z");
    let over = pass_at(&mut rollout, &second, "2026-06-01T13:00:00Z");
    assert_eq!(over.verdict.phase, RolloutPhase::Superseded);
    let queued = over.queued.unwrap();
    assert!(queued.contains("takes the place of this run"), "{queued}");
    let waits = pass_at(&mut rollout, &second, "2026-06-01T13:00:00Z");
    assert_eq!(phases(&waits), "a1=Pending@3 b1=Pending@3");
    // Once it has begun it goes on to its end, whatever window it waits for then.
    pass_at(&mut rollout, &second, "2026-06-01T22:00:00Z");
    let third = known(&[("a1", "3", "4"), ("b1", "1", "4")]);
    for _ in 0..3 {
        let waits = pass_at(&mut rollout, &third, "2026-06-02T02:00:00Z");
        let queued = waits.queued.unwrap();
        assert!(queued.contains("when this run has ended"), "{queued}");
    }
}

#[test]
fn an_approval_may_be_given_before_the_window_opens() {
    let mut rollout = nightly(&json!({"approval": "EveryWave"}));
    let before = known(&[("a1", "1", "2")]);
    let waits = pass_at(&mut rollout, &before, "2026-06-01T12:00:00Z");
    assert_eq!(waits.verdict.phase, RolloutPhase::WaitingForApproval);
    let control = json!({"run": waits.run.unwrap().id, "approved": ["canary"]});
    rollout.spec.control = serde_json::from_value(control).unwrap();
    let waits = pass_at(&mut rollout, &before, "2026-06-01T12:00:00Z");
    assert_eq!(waits.verdict.phase, RolloutPhase::WaitingForWindow);
    let begun = pass_at(&mut rollout, &before, "2026-06-01T23:00:00Z");
    assert_eq!(phases(&begun), "a1=Updating@2");
}

#[test]
fn a_window_that_cannot_be_kept_to_begins_nothing_and_is_told_with_its_place() {
    for (window, words) in [
        (
            json!({"schedule": "0 22 * *", "duration": "4h"}),
            "Rollout/all spec.windows[0].schedule: \"0 22 * *\": a schedule has five fields",
        ),
        (
            json!({"schedule": "0 25 * * *", "duration": "4h"}),
            "Rollout/all spec.windows[0].schedule: \"0 25 * * *\": it is no schedule of cron",
        ),
        (
            json!({"schedule": "0 22 30 2 *", "duration": "4h"}),
            "Rollout/all spec.windows[0].schedule: \"0 22 30 2 *\": it names a day that never comes; write days",
        ),
        (
            json!({"schedule": "0 22 * * *", "duration": "4h", "timeZone": "Berlin"}),
            "Rollout/all spec.windows[0].timeZone: \"Berlin\": the database of time zones (IANA) has none of that name; write Europe/Berlin",
        ),
        (
            json!({"schedule": "0 * * * *", "duration": "2h"}),
            "it would never close; write a shorter duration or a rarer schedule",
        ),
    ] {
        let mut fresh = rollout(json!({"windows": [window]}));
        let edited = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
        let decided = pass(&mut fresh, &edited);
        assert!(decided.run.is_none(), "{window}");
        let problem = decided.problem.unwrap();
        assert!(problem.contains(words), "{problem}");
        // One that is under way goes no further.
        let mut begun = rollout(json!({"soak": "0s", "canary": {"count": 0}}));
        pass(&mut begun, &edited);
        begun.spec.windows = serde_json::from_value(json!([window])).unwrap();
        let through = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
        for _ in 0..3 {
            let held = pass(&mut begun, &through);
            assert!(phases(&held).ends_with("b1=Pending@2"), "{window}");
            let waits = held.verdict.waits.unwrap();
            assert!(waits.contains(words), "{waits}");
            assert!(waits.ends_with("[Window]"), "{waits}");
        }
    }
}

/// A run whose canary is done and whose second cluster is at work, and its id.
fn half_way(spec: Value) -> (Rollout, String) {
    let mut rollout = rollout(spec);
    let before = known(&[("a1", "1", "2"), ("a2", "1", "2"), ("b1", "1", "2")]);
    let id = pass(&mut rollout, &before).run.unwrap().id;
    let canary = known(&[("a1", "2", "2"), ("a2", "1", "2"), ("b1", "1", "2")]);
    pass(&mut rollout, &canary);
    let begun = pass(&mut rollout, &canary);
    assert_eq!(phases(&begun), "a1=Done@2 a2=Updating@2 b1=Pending@2");
    (rollout, id)
}

fn roll_back(rollout: &mut Rollout, run: &str, skip: &[&str]) {
    let control = json!({"run": run, "state": "RolledBack", "skip": skip});
    rollout.spec.control = serde_json::from_value(control).unwrap();
}

#[test]
fn what_a_run_has_begun_goes_back_to_what_it_was_and_stays_so_until_it_is_edited() {
    let (mut rollout, id) = half_way(json!({"soak": "0s"}));
    roll_back(&mut rollout, &id, &[]);
    let both = known(&[("a1", "2", "2"), ("a2", "2", "2"), ("b1", "1", "2")]);
    let back = pass(&mut rollout, &both);
    assert_eq!(back.verdict.phase, RolloutPhase::RolledBack);
    assert_eq!(back.ended.as_ref().unwrap().0.id, id);
    assert_eq!(back.run.clone().unwrap().rolls_back, Some(id));
    assert_eq!(phases(&back), "a1=Pending@1 a2=Pending@1");
    let first = pass(&mut rollout, &both);
    assert_eq!(phases(&first), "a1=Updating@1 a2=Pending@1");
    assert_eq!(first.queued, None, "nobody has edited anything");
    let one = known(&[("a1", "1", "2"), ("a2", "2", "2"), ("b1", "1", "2")]);
    for _ in 0..2 {
        pass(&mut rollout, &one);
    }
    let all = known(&[("a1", "1", "2"), ("a2", "1", "2"), ("b1", "1", "2")]);
    pass(&mut rollout, &all);
    let over = pass(&mut rollout, &all);
    assert_eq!(phases(&over), "a1=Done@1 a2=Done@1");
    assert_eq!(over.verdict.phase, RolloutPhase::Succeeded);
    for _ in 0..2 {
        let rests = pass(&mut rollout, &all);
        assert_eq!(rests.verdict.phase, RolloutPhase::Idle);
    }
    // Another edit is another run, and so is the same one after the inventory was as before.
    let mut again = rollout.clone();
    let other = known(&[("a1", "1", "3"), ("a2", "1", "3"), ("b1", "1", "3")]);
    assert_eq!(
        phases(&pass(&mut again, &other)),
        "a1=Updating@3 a2=Pending@3 b1=Pending@3"
    );
    let reverted = known(&[("a1", "1", "1"), ("a2", "1", "1"), ("b1", "1", "1")]);
    assert!(pass(&mut rollout, &reverted).skipped.is_empty());
    assert_eq!(
        phases(&pass(&mut rollout, &all)),
        "a1=Updating@2 a2=Pending@2 b1=Pending@2"
    );
}

#[test]
fn a_version_that_would_go_down_is_refused_and_the_others_go_back_without_it() {
    let (mut rollout, id) = half_way(json!({"soak": "0s"}));
    let why = "Kubernetes would go from 1.35.4 down to 1.34.3";
    let mut both = known(&[("a1", "2", "2"), ("a2", "2", "2"), ("b1", "1", "2")]);
    both.no_way_back.insert("a1".to_owned(), why.to_owned());
    roll_back(&mut rollout, &id, &[]);
    let mut refused = Decided::default();
    for _ in 0..3 {
        refused = pass(&mut rollout, &both);
    }
    // It stands: what was begun comes to its end, nothing else begins.
    assert_eq!(phases(&refused), "a1=Done@2 a2=Done@2 b1=Pending@2");
    assert_eq!(refused.verdict.phase, RolloutPhase::Aborted);
    let waits = refused.verdict.waits.unwrap();
    assert!(
        waits.contains(&format!("FleetCluster a1: {why}")),
        "{waits}"
    );
    assert!(waits.contains("have a1 skipped"), "{waits}");
    roll_back(&mut rollout, &id, &["a1"]);
    assert_eq!(phases(&pass(&mut rollout, &both)), "a2=Pending@1");
    let back = known(&[("a1", "2", "2"), ("a2", "1", "2"), ("b1", "1", "2")]);
    for _ in 0..4 {
        let pass = pass(&mut rollout, &back);
        assert_eq!(pass.queued, None);
    }
    assert_eq!(pass(&mut rollout, &back).verdict.phase, RolloutPhase::Idle);
}

#[test]
fn an_edit_is_carried_out_where_the_way_back_was_refused() {
    let refusing = |clusters: &[(&str, &str, &str)]| {
        let mut all = known(clusters);
        let why = "Kubernetes would go down".to_owned();
        all.no_way_back.insert("a1".to_owned(), why);
        all
    };
    let both = refusing(&[("a1", "2", "2"), ("a2", "2", "2"), ("b1", "1", "2")]);
    let all = refusing(&[("a1", "2", "2"), ("a2", "2", "2"), ("b1", "2", "2")]);
    let first = [("a1", "2", "3"), ("a2", "2", "3"), ("b1", "1", "3")];
    let last = [("a1", "2", "3"), ("a2", "2", "3"), ("b1", "2", "3")];
    // Whether others would have been begun or not.
    for (done, seen, edited) in [(false, both, first), (true, all, last)] {
        let (mut rollout, id) = half_way(json!({"soak": "0s"}));
        if done {
            for member in &mut rollout
                .status
                .as_mut()
                .unwrap()
                .run
                .as_mut()
                .unwrap()
                .clusters
            {
                member.phase = MemberPhase::Updating;
            }
        }
        roll_back(&mut rollout, &id, &[]);
        let refused = pass(&mut rollout, &seen);
        assert_eq!(refused.verdict.phase, RolloutPhase::Aborted);
        let edited = refusing(&edited);
        let mut begun = Decided::default();
        for _ in 0..4 {
            begun = pass(&mut rollout, &edited);
            if begun.run.as_ref().is_some_and(|run| run.id != id) {
                break;
            }
        }
        assert_eq!(phases(&begun), "a1=Updating@3 a2=Pending@3 b1=Pending@3");
        // Nor is it taken back after that edit.
        let through = known(&[("a1", "3", "3"), ("a2", "3", "3"), ("b1", "3", "3")]);
        for _ in 0..8 {
            begun = pass(&mut rollout, &through);
        }
        assert_eq!(begun.verdict.phase, RolloutPhase::Idle);
        let why = history::taken(rollout.status.as_ref().unwrap(), &id).unwrap_err();
        assert!(why.contains("gave way to an edit"), "{why}");
    }
}

#[test]
fn a_run_that_gave_way_to_an_edit_is_taken_back_with_it() {
    let (mut rollout, id) = half_way(json!({"soak": "0s", "onEdit": "Supersede"}));
    let edited = known(&[("a1", "2", "3"), ("a2", "2", "3"), ("b1", "1", "3")]);
    for _ in 0..3 {
        pass(&mut rollout, &edited);
    }
    let through = known(&[("a1", "3", "3"), ("a2", "3", "3"), ("b1", "3", "3")]);
    for _ in 0..8 {
        pass(&mut rollout, &through);
    }
    roll_back(&mut rollout, &id, &[]);
    let back = pass(&mut rollout, &through);
    assert_eq!(phases(&back), "a1=Pending@1 a2=Pending@1 b1=Pending@1");
}

#[test]
fn what_cannot_be_taken_back_at_all_holds_up_no_edit() {
    let (mut rollout, id) = ended(json!({"soak": "0s"}));
    for record in &mut rollout.status.as_mut().unwrap().history {
        // As a former release has written it.
        record.clusters.clear();
    }
    roll_back(&mut rollout, &id, &[]);
    let told = pass(&mut rollout, &known(&BROUGHT));
    assert_eq!(told.verdict.phase, RolloutPhase::Aborted);
    let edited = known(&[("a1", "2", "3"), ("a2", "2", "3"), ("b1", "2", "3")]);
    assert_eq!(
        phases(&pass(&mut rollout, &edited)),
        "a1=Updating@3 a2=Pending@3 b1=Pending@3"
    );
}

#[test]
fn a_way_back_waits_for_no_window_and_no_approval_and_is_none_itself() {
    let (mut rollout, id) = half_way(json!({"soak": "0s"}));
    rollout.spec.approval = Some(api::inventory::Approval::EveryWave);
    rollout.spec.windows = nightly(&json!({})).spec.windows;
    roll_back(&mut rollout, &id, &[]);
    let both = known(&[("a1", "2", "2"), ("a2", "2", "2"), ("b1", "1", "2")]);
    let noon = "2026-06-01T12:00:00Z";
    let back = pass_at(&mut rollout, &both, noon).run.unwrap().id;
    let begun = pass_at(&mut rollout, &both, noon);
    assert_eq!(phases(&begun), "a1=Updating@1 a2=Pending@1");
    roll_back(&mut rollout, &back, &[]);
    let refused = pass_at(&mut rollout, &both, noon);
    assert_eq!(phases(&refused), "a1=Updating@1 a2=Pending@1");
    let waits = refused.verdict.waits.unwrap();
    assert!(waits.contains("the way back from run"), "{waits}");
}

#[test]
fn a_run_of_which_nothing_was_begun_ends_when_it_is_rolled_back() {
    let mut rollout = nightly(&json!({}));
    let before = known(&[("a1", "1", "2")]);
    let id = pass_at(&mut rollout, &before, "2026-06-01T12:00:00Z").run;
    roll_back(&mut rollout, &id.unwrap().id, &[]);
    for phase in [RolloutPhase::RolledBack, RolloutPhase::Idle] {
        let over = pass_at(&mut rollout, &before, "2026-06-01T22:00:00Z");
        assert_eq!(phases(&over), "a1=Pending@2");
        assert!(over.run.unwrap().ended.is_some());
        assert_eq!(over.verdict.phase, phase);
    }
}

/// A roll-out after a run that ended, which brought three clusters from `1` to `2`, and its id.
fn ended(spec: Value) -> (Rollout, String) {
    let (mut rollout, id) = half_way(spec);
    for clusters in [
        [("a1", "2", "2"), ("a2", "2", "2"), ("b1", "1", "2")],
        [("a1", "2", "2"), ("a2", "2", "2"), ("b1", "2", "2")],
    ] {
        for _ in 0..3 {
            pass(&mut rollout, &known(&clusters));
        }
    }
    let status = rollout.status.clone().unwrap();
    assert_eq!(status.history[0].phase, RolloutPhase::Succeeded);
    assert!(status.run.unwrap().ended.is_some());
    (rollout, id)
}

const BROUGHT: [(&str, &str, &str); 3] = [("a1", "2", "2"), ("a2", "2", "2"), ("b1", "2", "2")];

#[test]
fn a_run_that_ended_is_taken_back_canary_first_and_wave_by_wave() {
    let waves = json!([{"name": "b", "level": "site", "objects": ["b"]}]);
    let spec = json!({"soak": "0s", "waves": waves, "canary": {"clusters": ["a1"]}, "approval": "EveryWave"});
    let (mut rollout, id) = ended(json!({"soak": "0s"}));
    rollout.spec = serde_json::from_value(spec).unwrap();
    rollout.spec.windows = nightly(&json!({})).spec.windows;
    roll_back(&mut rollout, &id, &[]);
    let begins = pass(&mut rollout, &known(&BROUGHT));
    assert_eq!(begins.verdict.phase, RolloutPhase::RolledBack);
    let run = begins.run.clone().unwrap();
    assert_eq!(run.rolls_back, Some(id));
    assert_eq!(run.waves, ["canary", "b", "rest"]);
    assert_eq!(phases(&begins), "a1=Pending@1 b1=Pending@1 a2=Pending@1");
    assert_eq!(run.clusters[0].before.as_deref(), Some("2"));
    // Whoever asked for it by name neither approves it nor waits for a window.
    assert_eq!(
        phases(&pass(&mut rollout, &known(&BROUGHT))),
        "a1=Updating@1 b1=Pending@1 a2=Pending@1"
    );
    for (clusters, expected) in [
        (
            [("a1", "1", "2"), ("a2", "2", "2"), ("b1", "2", "2")],
            "a1=Done@1 b1=Updating@1 a2=Pending@1",
        ),
        (
            [("a1", "1", "2"), ("a2", "2", "2"), ("b1", "1", "2")],
            "a1=Done@1 b1=Done@1 a2=Updating@1",
        ),
        (
            [("a1", "1", "2"), ("a2", "1", "2"), ("b1", "1", "2")],
            "a1=Done@1 b1=Done@1 a2=Done@1",
        ),
    ] {
        let mut last = Decided::default();
        for _ in 0..2 {
            last = pass(&mut rollout, &known(&clusters));
            assert_eq!(last.queued, None, "nobody has edited anything");
        }
        assert_eq!(phases(&last), expected);
    }
    // It stays so, though the inventory says what was taken back and the request stands.
    let back = [("a1", "1", "2"), ("a2", "1", "2"), ("b1", "1", "2")];
    for _ in 0..3 {
        let rests = pass(&mut rollout, &known(&back));
        assert_eq!(rests.verdict.phase, RolloutPhase::Idle);
        assert_eq!(rests.verdict.waits, None);
    }
    let edited = [("a1", "1", "3"), ("a2", "1", "3"), ("b1", "1", "3")];
    let next = pass(&mut rollout, &known(&edited));
    assert!(next.run.unwrap().rolls_back.is_none());
}

#[test]
fn what_failed_and_was_skipped_goes_back_with_its_run() {
    let mut rollout = rollout(json!({"canary": {"count": 0}, "soak": "0s"}));
    fail_and_skip_a1(&mut rollout, &known(&[("a1", "1", "2"), ("b1", "1", "2")]));
    // It had its revision when it failed.
    let brought = known(&[("a1", "2", "2"), ("b1", "2", "2")]);
    for _ in 0..4 {
        pass(&mut rollout, &brought);
    }
    let first = rollout.status.clone().unwrap().history[0].clone();
    assert_eq!((first.phase, first.done), (RolloutPhase::Succeeded, 1));
    let mut at_once = rollout.clone();
    roll_back(&mut at_once, &first.id, &[]);
    let back = pass(&mut at_once, &brought);
    assert_eq!(phases(&back), "a1=Pending@1 b1=Pending@1");
    // With a later run it goes to what it was before both, not to what failed.
    let edited = known(&[("a1", "2", "3"), ("b1", "2", "3")]);
    pass(&mut rollout, &edited);
    let through = known(&[("a1", "3", "3"), ("b1", "3", "3")]);
    for _ in 0..6 {
        pass(&mut rollout, &through);
    }
    roll_back(&mut rollout, &first.id, &[]);
    let back = pass(&mut rollout, &through);
    assert_eq!(phases(&back), "a1=Pending@1 b1=Pending@1");
}

#[test]
fn a_canary_that_fails_on_the_way_back_halts_it() {
    let (mut rollout, id) = ended(json!({"soak": "0s"}));
    roll_back(&mut rollout, &id, &[]);
    pass(&mut rollout, &known(&BROUGHT));
    pass(&mut rollout, &known(&BROUGHT));
    let mut ill = known(&[("a1", "1", "2"), ("a2", "2", "2"), ("b1", "2", "2")]);
    ill.seen.get_mut("a1").unwrap().health = FleetHealth::Failed;
    let halted = pass(&mut rollout, &ill);
    assert_eq!(phases(&halted), "a1=Failed@1 a2=Pending@1 b1=Pending@1");
    assert_eq!(halted.verdict.phase, RolloutPhase::Halted);
}

#[test]
fn what_ended_and_cannot_go_back_begins_nothing_until_it_is_left_out() {
    let (mut rollout, id) = ended(json!({"soak": "0s"}));
    let why = "Kubernetes would go from 1.35.4 down to 1.34.3";
    // An edit does not overtake who wants to go back.
    let mut all = known(&[("a1", "2", "3"), ("a2", "2", "2"), ("b1", "2", "2")]);
    all.no_way_back.insert("a1".to_owned(), why.to_owned());
    roll_back(&mut rollout, &id, &[]);
    for _ in 0..2 {
        let refused = pass(&mut rollout, &all);
        assert_eq!(refused.verdict.phase, RolloutPhase::Aborted);
        assert!(refused.run.unwrap().ended.is_some());
        let waits = refused.verdict.waits.unwrap();
        for words in [&format!("FleetCluster a1: {why}"), "have a1 skipped"] {
            assert!(waits.contains(words), "{waits}");
        }
    }
    roll_back(&mut rollout, &id, &["a1"]);
    let begins = pass(&mut rollout, &all);
    assert_eq!(phases(&begins), "a2=Pending@1 b1=Pending@1");
    // The edit comes next, and brings nothing of what was taken back.
    let back = known(&[("a1", "2", "3"), ("a2", "1", "2"), ("b1", "1", "2")]);
    let mut last = Decided::default();
    for _ in 0..8 {
        last = pass(&mut rollout, &back);
    }
    assert_eq!(phases(&last), "a1=Updating@3");
}

#[test]
fn what_is_as_it_was_is_taken_back_once_and_what_is_unknown_is_told() {
    let (mut rollout, id) = ended(json!({"soak": "0s"}));
    // Meanwhile the inventory was set back, and rolled out by another Rollout.
    let before = known(&[("a1", "1", "1"), ("a2", "1", "1"), ("b1", "1", "1")]);
    roll_back(&mut rollout, &id, &[]);
    let over = pass(&mut rollout, &before);
    assert_eq!(over.ended.unwrap().1, RolloutPhase::Succeeded);
    assert_eq!(
        pass(&mut rollout, &before).verdict.phase,
        RolloutPhase::Idle
    );
    let later = known(&[("a1", "1", "4"), ("a2", "1", "1"), ("b1", "1", "1")]);
    assert_eq!(phases(&pass(&mut rollout, &later)), "a1=Updating@4");
    let (mut rollout, id) = ended(json!({"soak": "0s"}));
    for record in &mut rollout.status.as_mut().unwrap().history {
        record.clusters.clear();
    }
    roll_back(&mut rollout, &id, &[]);
    let refused = pass(&mut rollout, &known(&BROUGHT));
    assert_eq!(refused.verdict.phase, RolloutPhase::Aborted);
    let waits = refused.verdict.waits.unwrap();
    assert!(waits.contains("not kept any more"), "{waits}");
}

#[test]
fn a_request_for_a_former_run_waits_for_the_one_under_way_and_is_told() {
    let (mut rollout, id) = ended(json!({"soak": "0s"}));
    let edited = known(&[("a1", "2", "3"), ("a2", "2", "2"), ("b1", "2", "2")]);
    pass(&mut rollout, &edited);
    roll_back(&mut rollout, &id, &[]);
    let told = pass(&mut rollout, &edited).queued.unwrap();
    assert_eq!(
        told,
        format!("run {id} is taken back when this run has ended")
    );
    let done = known(&[("a1", "3", "3"), ("a2", "2", "2"), ("b1", "2", "2")]);
    let mut last = Decided::default();
    for _ in 0..4 {
        last = pass(&mut rollout, &done);
    }
    // Both are taken back: each cluster is what it was before the first of the two.
    assert_eq!(phases(&last), "a1=Updating@1 a2=Pending@1 b1=Pending@1");
}

#[test]
fn who_is_born_on_the_way_back_starts_at_what_there_was_before() {
    let mut rollout = rollout(json!({"soak": "0s"}));
    pass(&mut rollout, &of("s1", &[("a1", "1", "1")]));
    let id = pass(&mut rollout, &of("s2", &[("a1", "1", "2")]));
    let id = id.run.unwrap().id;
    let done = of("s2", &[("a1", "2", "2")]);
    for _ in 0..4 {
        pass(&mut rollout, &done);
    }
    let status = rollout.status.clone().unwrap();
    assert_eq!(status.sources.as_deref(), Some("s2"));
    assert_eq!(status.history[0].sources.as_deref(), Some("s1"));
    roll_back(&mut rollout, &id, &[]);
    let back = pass(&mut rollout, &done);
    assert_eq!(back.sources.as_deref(), Some("s1"));
    let (sources, said) = born(&back);
    assert_eq!(sources, Some("s1"));
    assert!(said.contains("is being taken back"), "{said}");
}

/// The same, of an inventory with a digest.
fn of(sources: &str, clusters: &[(&str, &str, &str)]) -> Known {
    Known {
        sources: Some(sources.to_owned()),
        ..known(clusters)
    }
}

/// From what a cluster inherits that is born now, and the words for it.
fn born(decided: &Decided) -> (Option<&str>, &str) {
    let births = decided.births.as_ref().unwrap();
    (births.sources.as_deref(), &births.message)
}

#[test]
fn a_birth_in_mid_run_starts_at_what_was_tried_or_at_what_was_before() {
    let mut rollout = rollout(json!({"soak": "0s", "approval": "AfterCanary"}));
    let rests = pass(
        &mut rollout,
        &of("old", &[("a1", "1", "1"), ("b1", "1", "1")]),
    );
    assert_eq!(
        (rests.sources.as_deref(), rests.births),
        (Some("old"), None)
    );
    let edited = of("new", &[("a1", "1", "2"), ("b1", "1", "2")]);
    let begun = pass(&mut rollout, &edited);
    assert_eq!(begun.sources.as_deref(), Some("old"));
    let (sources, words) = born(&begun);
    assert_eq!(sources, Some("old"));
    assert!(words.contains("what there was before run"), "{words}");
    // The canary is done, and the approval behind it is not there.
    let canary = of("new", &[("a1", "2", "2"), ("b1", "1", "2")]);
    pass(&mut rollout, &canary);
    let waits = pass(&mut rollout, &canary);
    assert_eq!(waits.verdict.phase, RolloutPhase::WaitingForApproval);
    assert_eq!(born(&waits).0, Some("old"));
    let control = json!({"run": waits.run.as_ref().unwrap().id, "approved": ["rest"]});
    rollout.spec.control = serde_json::from_value(control).unwrap();
    // A later edit is not tried: it is the run's that counts.
    let later = of("later", &[("a1", "2", "3"), ("b1", "1", "3")]);
    let tried = pass(&mut rollout, &later);
    let (sources, words) = born(&tried);
    assert_eq!(sources, Some("new"));
    assert!(words.contains("it has been tried"), "{words}");
    let through = of("new", &[("a1", "2", "2"), ("b1", "2", "2")]);
    pass(&mut rollout, &through);
    let over = pass(&mut rollout, &through);
    assert_eq!(over.verdict.phase, RolloutPhase::Succeeded);
    assert_eq!((over.sources.as_deref(), over.births), (Some("new"), None));
}

#[test]
fn a_run_that_was_stopped_has_tried_nothing() {
    for (phase, control) in [
        (MemberPhase::Failed, json!({})),
        (MemberPhase::Done, json!({"state": "Aborted"})),
    ] {
        let mut rollout = rollout(json!({"soak": "0s"}));
        pass(
            &mut rollout,
            &of("old", &[("a1", "1", "1"), ("b1", "1", "1")]),
        );
        let edited = of("new", &[("a1", "1", "2"), ("b1", "1", "2")]);
        let id = pass(&mut rollout, &edited).run.unwrap().id;
        let run = rollout.status.as_mut().and_then(|it| it.run.as_mut());
        run.unwrap().clusters[0].phase = phase;
        rollout.spec.control = serde_json::from_value(control).unwrap();
        if let Some(control) = rollout.spec.control.as_mut() {
            control.run = Some(id);
        }
        let stopped = pass(&mut rollout, &edited);
        assert_eq!(born(&stopped).0, Some("old"), "{phase:?}");
    }
}

#[test]
fn a_newborn_takes_no_runs_place_and_comes_next() {
    for on_edit in ["Queue", "Supersede"] {
        let mut rollout = rollout(json!({"soak": "0s", "onEdit": on_edit}));
        pass(
            &mut rollout,
            &of("old", &[("a1", "1", "1"), ("b1", "1", "1")]),
        );
        pass(
            &mut rollout,
            &of("new", &[("a1", "1", "2"), ("b1", "1", "2")]),
        );
        let with = |a1: &str, b1: &str| {
            let all = [("a1", a1, "2"), ("b1", b1, "2"), ("c1", "1", "2")];
            let mut known = of("new", &all);
            if let Some(seen) = known.seen.get_mut("c1") {
                seen.is_newborn = true;
            }
            known
        };
        let queued = pass(&mut rollout, &with("1", "1")).queued.unwrap();
        assert!(queued.starts_with("c1 was born meanwhile"), "{queued}");
        for _ in 0..2 {
            pass(&mut rollout, &with("2", "1"));
        }
        pass(&mut rollout, &with("2", "2"));
        let over = pass(&mut rollout, &with("2", "2"));
        assert_eq!(phases(&over), "a1=Done@2 b1=Done@2", "{on_edit}");
        assert_eq!(over.verdict.phase, RolloutPhase::Succeeded);
        assert_eq!(
            phases(&pass(&mut rollout, &with("2", "2"))),
            "c1=Updating@2"
        );
    }
}

#[test]
fn a_newborn_is_not_brought_to_what_was_taken_back() {
    let mut rollout = rollout(json!({"soak": "0s"}));
    pass(&mut rollout, &of("old", &[("a1", "1", "1")]));
    let id = pass(&mut rollout, &of("new", &[("a1", "1", "2")])).run;
    roll_back(&mut rollout, &id.unwrap().id, &[]);
    let with = |a1: &str| {
        let mut known = of("new", &[("a1", a1, "2"), ("c1", "1", "2")]);
        if let Some(seen) = known.seen.get_mut("c1") {
            seen.is_newborn = true;
        }
        known
    };
    pass(&mut rollout, &with("2"));
    let back = pass(&mut rollout, &with("2"));
    assert_eq!(phases(&back), "a1=Updating@1");
    assert_eq!(born(&back).0, Some("old"));
    for _ in 0..3 {
        pass(&mut rollout, &with("1"));
    }
    let rests = pass(&mut rollout, &with("1"));
    assert_eq!(rests.verdict.phase, RolloutPhase::Idle);
    // What is meant is what there was, though the inventory says something else.
    assert_eq!(rests.sources.as_deref(), Some("old"));
}

#[test]
fn an_edit_that_is_queued_is_carried_out_after_the_way_back() {
    let (mut rollout, id) = half_way(json!({"soak": "0s"}));
    roll_back(&mut rollout, &id, &[]);
    let edited = known(&[("a1", "2", "3"), ("a2", "2", "3"), ("b1", "1", "3")]);
    pass(&mut rollout, &edited);
    let back = pass(&mut rollout, &edited);
    assert_eq!(phases(&back), "a1=Updating@1 a2=Pending@1");
    let queued = back.queued.unwrap();
    assert!(queued.contains("when this run has ended"), "{queued}");
}

#[test]
fn an_approval_counts_for_the_run_that_it_names() {
    let mut rollout = rollout(json!({"approval": "AfterCanary", "soak": "0s"}));
    let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
    pass(&mut rollout, &before);
    let canary = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
    pass(&mut rollout, &canary);
    let waits = pass(&mut rollout, &canary);
    assert_eq!(waits.verdict.phase, RolloutPhase::WaitingForApproval);
    let mut unread = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
    unread.approvals.unread = Some("nobody reads them");
    let told = pass(&mut rollout, &unread).verdict.waits.unwrap();
    assert!(
        told.ends_with("a WaveApproval of it; nobody reads them"),
        "{told}"
    );
    let run = waits.run.unwrap().id;
    for (named, phase) in [
        ("another", RolloutPhase::WaitingForApproval),
        (&run, RolloutPhase::Running),
    ] {
        let control = json!({"run": named, "approved": ["rest"]});
        rollout.spec.control = serde_json::from_value(control).unwrap();
        assert_eq!(pass(&mut rollout, &canary).verdict.phase, phase, "{named}");
    }
}

/// Begins a run, in which the first cluster fails, and asks that it be skipped.
fn fail_and_skip_a1(rollout: &mut Rollout, known: &Known) {
    let begun = pass(rollout, known).run.unwrap();
    let run = rollout
        .status
        .as_mut()
        .and_then(|status| status.run.as_mut())
        .unwrap();
    run.clusters[0].phase = MemberPhase::Failed;
    rollout.spec.control =
        serde_json::from_value(json!({"run": begun.id, "skip": ["a1"]})).unwrap();
}

#[test]
fn a_skip_outlives_the_next_run_of_others() {
    let mut rollout = rollout(json!({"canary": {"count": 0}, "soak": "0s"}));
    let before = known(&[("a1", "1", "2"), ("b1", "2", "2")]);
    fail_and_skip_a1(&mut rollout, &before);
    pass(&mut rollout, &before);
    let other = known(&[("a1", "1", "2"), ("b1", "2", "3")]);
    assert_eq!(phases(&pass(&mut rollout, &other)), "b1=Updating@3");
    let through = known(&[("a1", "1", "2"), ("b1", "3", "3")]);
    for _ in 0..4 {
        assert_eq!(pass(&mut rollout, &through).queued, None);
    }
    assert_eq!(
        pass(&mut rollout, &through).verdict.phase,
        RolloutPhase::Idle
    );
    let edited = known(&[("a1", "1", "4"), ("b1", "3", "3")]);
    let again = pass(&mut rollout, &edited);
    assert_eq!(phases(&again), "a1=Updating@4");
    assert!(again.skipped.is_empty());
}

#[test]
fn what_was_half_changed_is_rolled_out_even_back_to_what_it_was() {
    let mut rollout = rollout(json!({"canary": {"count": 0}, "soak": "0s"}));
    let mut halfway = known(&[("a1", "1", "1")]);
    if let Some(seen) = halfway.seen.get_mut("a1") {
        seen.is_halfway = true;
        seen.health = FleetHealth::Failed;
    }
    for _ in 0..2 {
        assert_eq!(phases(&pass(&mut rollout, &halfway)), "a1=Updating@1");
    }
    let through = known(&[("a1", "1", "1")]);
    assert_eq!(phases(&pass(&mut rollout, &through)), "a1=Soaking@1");
}

#[test]
fn what_cannot_come_to_its_revision_has_failed_and_an_edit_mends_it() {
    let mut rollout = rollout(json!({"canary": {"count": 0}, "soak": "0s"}));
    let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
    assert_eq!(
        phases(&pass(&mut rollout, &before)),
        "a1=Updating@2 b1=Pending@2"
    );
    // A secret that it needs is not in Vault: nothing that refers to it was written.
    let waits = |rendered: &str, health| {
        let mut waits = known(&[("a1", "1", rendered), ("b1", "1", rendered)]);
        if let Some(seen) = waits.seen.get_mut("a1") {
            seen.is_halfway = true;
            seen.target = Some("2".to_owned());
            seen.health = health;
            seen.message = Some("no such path".to_owned());
        }
        waits
    };
    let at_work = pass(&mut rollout, &waits("2", FleetHealth::AtWork));
    assert_eq!(phases(&at_work), "a1=Updating@2 b1=Pending@2");
    let halted = pass(&mut rollout, &waits("2", FleetHealth::Failed));
    assert_eq!(phases(&halted), "a1=Failed@2 b1=Pending@2");
    assert_eq!(halted.verdict.phase, RolloutPhase::Halted);
    assert!(halted.verdict.waits.unwrap().contains("no such path"));
    let edited = waits("3", FleetHealth::Failed);
    assert_eq!(
        pass(&mut rollout, &edited).verdict.phase,
        RolloutPhase::Superseded
    );
    assert_eq!(
        phases(&pass(&mut rollout, &edited)),
        "a1=Updating@3 b1=Pending@3"
    );
}

#[test]
fn what_never_comes_to_rest_is_mended_by_an_edit_when_its_time_is_up() {
    let mut rollout = rollout(json!({"deadline": "1h", "soak": "0s"}));
    let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
    let begun = pass_at(&mut rollout, &before, "2026-01-01T00:00:00Z");
    assert_eq!(phases(&begun), "a1=Updating@2 b1=Pending@2");
    // Its machines never come: Cluster API does not give up, and says no more than that it is rolling out.
    let rolls = |rendered: &str| {
        let mut rolls = known(&[("a1", "2", rendered), ("b1", "1", rendered)]);
        if let Some(seen) = rolls.seen.get_mut("a1") {
            seen.health = FleetHealth::AtWork;
            seen.message = Some("MachineDeployment/a1 is RollingOut".to_owned());
            seen.at_work_since = Some("2026-01-01T00:00:20Z".parse().unwrap());
            seen.operators = Operators::NeverGiveUp;
        }
        rolls
    };
    let halted = pass_at(&mut rollout, &rolls("2"), "2026-01-01T01:00:00Z");
    assert_eq!(phases(&halted), "a1=Failed@2 b1=Pending@2");
    assert_eq!(halted.verdict.phase, RolloutPhase::Halted);
    let mended = rolls("3");
    let over = pass_at(&mut rollout, &mended, "2026-01-01T01:00:05Z");
    assert_eq!(over.verdict.phase, RolloutPhase::Superseded);
    // It is left alone for as long as a change may take, and looked at when that is over.
    let waits = pass_at(&mut rollout, &mended, "2026-01-01T01:00:05Z");
    assert_eq!(phases(&waits), "a1=Pending@3 b1=Pending@3");
    assert_eq!(waits.verdict.wake, Some(15));
    let told = waits.verdict.waits.unwrap();
    assert!(told.contains("is RollingOut"), "{told}");
    let goes_on = pass_at(&mut rollout, &mended, "2026-01-01T01:00:20Z");
    assert_eq!(phases(&goes_on), "a1=Updating@3 b1=Pending@3");
    // One of which nobody knows since when it is at work is waited for, and one of kubespray, whose run comes to its end.
    let unknown = |seen: &mut Seen| seen.at_work_since = None;
    let kubespray = |seen: &mut Seen| seen.operators = Operators::ComeToRest;
    for waited_for in [unknown as fn(&mut Seen), kubespray] {
        let mut rolls = rolls("3");
        if let Some(seen) = rolls.seen.get_mut("a1") {
            waited_for(seen);
        }
        if let Some(run) = rollout.status.as_mut().and_then(|it| it.run.as_mut()) {
            run.clusters[0].phase = MemberPhase::Pending;
        }
        let waits = pass_at(&mut rollout, &rolls, "2026-01-09T00:00:00Z");
        assert_eq!(phases(&waits), "a1=Pending@3 b1=Pending@3");
    }
}

#[test]
fn what_never_comes_to_rest_is_taken_back_at_once_where_its_operators_take_that() {
    for (operators, expected) in [
        (Operators::NeverGiveUp, "a1=Updating@1"),
        (Operators::ComeToRest, "a1=Pending@1"),
    ] {
        let mut rollout = rollout(json!({"deadline": "1h"}));
        let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
        pass_at(&mut rollout, &before, "2026-01-01T00:00:00Z");
        let mut rolls = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
        if let Some(seen) = rolls.seen.get_mut("a1") {
            seen.health = FleetHealth::AtWork;
            seen.at_work_since = Some("2026-01-01T00:00:20Z".parse().unwrap());
            seen.operators = operators;
        }
        let begun = pass_at(&mut rollout, &rolls, "2026-01-01T00:05:00Z");
        assert_eq!(phases(&begun), "a1=Updating@2 b1=Pending@2");
        let id = begun.run.unwrap().id;
        rollout.spec.control =
            Some(serde_json::from_value(json!({"run": id, "state": "RolledBack"})).unwrap());
        let ended = pass_at(&mut rollout, &rolls, "2026-01-01T00:05:00Z");
        assert_eq!(ended.verdict.phase, RolloutPhase::RolledBack);
        let back = pass_at(&mut rollout, &rolls, "2026-01-01T00:05:01Z");
        assert_eq!(phases(&back), expected, "{operators:?}");
    }
}

#[test]
fn what_was_said_of_a_run_is_not_said_of_a_later_one_of_the_same_clusters() {
    let all = rollout(json!({}));
    let edited = known(&[("a1", "1", "2")]).own;
    let at = |second| id(&all, &edited, Timestamp::from_second(second).unwrap());
    assert_ne!(at(0), at(1));
    assert_eq!(at(1), at(1));
}

#[test]
fn nothing_goes_on_while_a_cluster_of_the_namespace_cannot_be_rendered() {
    let mut rollout = rollout(json!({"soak": "0s", "canary": {"count": 0}}));
    let before = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
    pass(&mut rollout, &before);
    let mut broken = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
    broken
        .unknown
        .insert("theirs".to_owned(), "it is not".to_owned());
    pass(&mut rollout, &broken);
    let held = pass(&mut rollout, &broken);
    assert_eq!(phases(&held), "a1=Done@2 b1=Pending@2");
    let waits = held.verdict.waits.unwrap();
    assert!(waits.contains("theirs cannot be rendered"), "{waits}");
    broken.unknown.clear();
    let held = pass(&mut rollout, &broken);
    assert_eq!(phases(&held), "a1=Done@2 b1=Updating@2");
}

#[test]
fn a_cluster_is_kept_from_being_done_by_a_rule_that_is_not_true() {
    let rule = "self.status.ready == self.status.total";
    let mut rollout = rollout(json!({
        "soak": "10m", "canary": {"count": 0}, "gates": [{"rule": rule, "message": "hosts are missing"}],
    }));
    pass(&mut rollout, &known(&[("a1", "1", "2")]));
    let gates = rollout.spec.gates.clone();
    let with = |own: Value| {
        let mut known = known(&[("a1", "2", "2")]);
        if let Some(seen) = known.seen.get_mut("a1") {
            seen.rules = gates::answers(&gates, &own);
        }
        known
    };
    let shut = format!("the gate {rule} is not open: hosts are missing");
    let unanswered = format!("{shut} (no answer: no such key: total)");
    let ready = |ready: u32| json!({"status": {"ready": ready, "total": 3}});
    for (own, phase, told) in [
        (
            json!({"status": {"ready": 3}}),
            "a1=Updating@2",
            Some(&unanswered),
        ),
        (ready(2), "a1=Updating@2", Some(&shut)),
        (ready(3), "a1=Soaking@2", None),
        // While it is watched, too.
        (ready(2), "a1=Updating@2", Some(&shut)),
        (ready(3), "a1=Soaking@2", None),
    ] {
        let decided = pass(&mut rollout, &with(own.clone()));
        assert_eq!(phases(&decided), phase, "{own}");
        let members = decided.run.iter().flat_map(|run| &run.clusters);
        let messages: Vec<_> = members.map(|member| member.message.as_ref()).collect();
        assert_eq!(messages, [told], "{own}");
        // So kubectl tells it.
        let waits = decided.verdict.waits.unwrap();
        assert!(
            told.is_none_or(|told| waits.contains(told)),
            "{own}: {waits}"
        );
    }
}

#[test]
fn a_wave_of_a_name_that_every_run_has_begins_no_run_and_holds_none_up() {
    let waves = json!([{"name": "rest", "level": "site", "objects": ["a"]}]);
    let edited = known(&[("a1", "1", "2"), ("b1", "1", "2")]);
    let mut fresh = rollout(json!({"waves": waves}));
    let decided = pass(&mut fresh, &edited);
    assert!(decided.run.is_none());
    let problem = decided.problem.unwrap();
    assert!(
        problem.contains("Rollout/all spec.waves[0].name: rest is the name of another wave; give it one of its own [WaveName]"),
        "{problem}"
    );
    // One of a Windlass that took it.
    let mut begun = rollout(json!({"soak": "0s", "canary": {"count": 0}}));
    pass(&mut begun, &edited);
    begun.spec.waves = serde_json::from_value(waves).unwrap();
    let through = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
    pass(&mut begun, &through);
    let goes_on = pass(&mut begun, &through);
    assert!(
        phases(&goes_on).ends_with("b1=Updating@2"),
        "{}",
        phases(&goes_on)
    );
    // Nor is it Stalled for it: what comes of the name is told beside what comes next.
    assert_eq!(goes_on.problem, None);
    let queued = |decided: &Decided| decided.queued.clone().unwrap_or_default();
    let told = format!("no edit begins another run: {problem}");
    assert_eq!(queued(&goes_on), told);
    let later = known(&[("a1", "2", "2"), ("b1", "2", "3")]);
    let later = pass(&mut begun, &later);
    assert_eq!(
        queued(&later),
        format!("a later edit of b1 is carried out when this run has ended; {told}")
    );
}

#[test]
fn a_gate_that_stays_shut_fails_with_its_name() {
    let mut rollout = rollout(json!({
        "deadline": "1h", "canary": {"count": 0}, "gates": [{"type": "CertificatesValid", "status": "True"}],
    }));
    let through = known(&[("a1", "2", "2")]);
    pass(&mut rollout, &known(&[("a1", "1", "2")]));
    let late = Timestamp::from_second(3600).unwrap();
    let decided = decide(&rollout, &through, Duration::ZERO, late);
    assert_eq!(phases(&decided), "a1=Failed@2");
    let told = decided.run.unwrap().clusters[0].message.clone().unwrap();
    assert_eq!(
        told,
        "not well after 1h: the gate CertificatesValid=True is not open"
    );
}

#[test]
fn a_run_under_way_goes_no_further_while_a_gate_is_no_rule() {
    let mut rollout = rollout(json!({"soak": "0s", "canary": {"count": 0}}));
    pass(&mut rollout, &known(&[("a1", "1", "2"), ("b1", "1", "2")]));
    let through = known(&[("a1", "2", "2"), ("b1", "1", "2")]);
    pass(&mut rollout, &through);
    rollout.spec.gates = serde_json::from_value(json!([{"rule": "self."}])).unwrap();
    for _ in 0..2 {
        let held = pass(&mut rollout, &through);
        assert_eq!(phases(&held), "a1=Updating@2 b1=Pending@2");
        let waits = held.verdict.waits.unwrap();
        assert!(waits.contains("spec.gates[0].rule: self.: "), "{waits}");
    }
    rollout.spec.gates.clear();
    for _ in 0..2 {
        pass(&mut rollout, &through);
    }
    let on = pass(&mut rollout, &through);
    assert_eq!(phases(&on), "a1=Done@2 b1=Updating@2");
}

#[test]
fn what_a_cluster_says_fits_the_record_of_its_run() {
    let mut rollout = rollout(json!({"canary": {"count": 0}}));
    pass(&mut rollout, &known(&[("a1", "1", "2")]));
    let mut ill = known(&[("a1", "2", "2")]);
    for health in [
        FleetHealth::AtWork,
        FleetHealth::Failed,
        FleetHealth::Failed,
    ] {
        if let Some(seen) = ill.seen.get_mut("a1") {
            seen.health = health;
            seen.message = Some("a long\nstory ".repeat(100));
        }
        let run = pass(&mut rollout, &ill).run.unwrap();
        let told = run.clusters[0].message.clone().unwrap();
        assert!(told.len() <= 512, "{}", told.len());
        assert!(api::text::is_plain(&told), "{told}");
    }
}

#[test]
fn what_was_begun_and_is_gone_has_failed_until_it_is_skipped() {
    let mut rollout = rollout(json!({"canary": {"count": 0}, "parallel": 1}));
    let all = known(&[("a1", "1", "2"), ("a2", "1", "2"), ("b1", "1", "2")]);
    let run = pass(&mut rollout, &all).run.unwrap().id;
    let mut gone = known(&[("a2", "1", "2")]);
    let halted = pass(&mut rollout, &gone);
    assert_eq!(phases(&halted), "a1=Failed@2 a2=Pending@2 b1=Gone@2");
    let waits = halted.verdict.waits.unwrap();
    assert!(waits.contains("it is gone; skip it"), "{waits}");
    // With failures that may be, it counts where it was.
    let unit = rollout.spec.clone();
    rollout.spec.failures = Some(api::Threshold::Count(1));
    let beside = pass(&mut rollout, &gone);
    assert_eq!(phases(&beside), "a1=Failed@2 a2=Pending@2 b1=Gone@2");
    rollout.spec = unit;
    rollout.spec.control = serde_json::from_value(json!({"run": run, "skip": ["a1"]})).unwrap();
    gone = known(&[("a2", "1", "2"), ("b1", "1", "2")]);
    let on = pass(&mut rollout, &gone);
    assert_eq!(phases(&on), "a1=Skipped@2 a2=Updating@2 b1=Pending@2");
}

#[test]
fn nothing_begins_while_something_is_not_known_and_the_reason_is_told() {
    let edited = || known(&[("a1", "1", "2")]);
    let with = |change: fn(&mut Known)| {
        let mut known = edited();
        change(&mut known);
        known
    };
    for (name, spec, known, words) in [
        (
            "broken",
            json!({}),
            with(|known| drop(known.broken.insert("b1".to_owned(), "it is not".to_owned()))),
            "b1 cannot be rendered",
        ),
        (
            "stale",
            json!({}),
            with(|known| known.stale.push("a1".to_owned())),
            "a1 is being rendered",
        ),
        (
            "a secret that not all have read",
            json!({}),
            with(|known| known.unread = Some("a1 is about to read it".to_owned())),
            "a1 is about to read it",
        ),
        (
            "another Rollout that cannot be read",
            json!({}),
            with(|known| known.unreadable = Some(("other".to_owned(), "a field".to_owned()))),
            "Rollout other cannot be read, so nobody knows what it has under way: a field",
        ),
        (
            "paused",
            json!({"control": {"state": "Paused"}}),
            edited(),
            "it is paused",
        ),
        (
            "a level that there is not",
            json!({"budgets": [{"level": "rack", "maximum": 1}]}),
            edited(),
            "Rollout/all spec.budgets[0].level: the level rack is one of no cluster, so its budget or wave can never be met; name one of cluster, site \
             [NoSuchLevel]",
        ),
        (
            "a gate that is no truth",
            json!({"gates": [{"rule": "self.status.phase"}]}),
            edited(),
            "Rollout/all spec.gates[0].rule: self.status.phase: cel expression must evaluate to a bool",
        ),
    ] {
        let decided = pass(&mut rollout(spec), &known);
        assert!(decided.run.is_none(), "{name}");
        let waits = decided.verdict.waits.unwrap();
        assert!(waits.contains(words), "{name}: {waits}");
    }
}

#[test]
fn a_run_gives_way_to_no_edit_while_nobody_knows_whose_clusters_are() {
    let mut rollout = rollout(json!({"onEdit": "Supersede", "soak": "0s"}));
    pass(
        &mut rollout,
        &known(&[("a1", "1", "2"), ("b1", "1", "2"), ("b2", "2", "2")]),
    );
    // It seems to have those of a Rollout that cannot be read.
    let mut taken = known(&[
        ("a1", "2", "2"),
        ("b1", "1", "2"),
        ("b2", "2", "2"),
        ("c1", "1", "2"),
    ]);
    taken.unreadable = Some(("other".to_owned(), "a field".to_owned()));
    let mut last = Decided::default();
    for _ in 0..3 {
        last = pass(&mut rollout, &taken);
    }
    assert_eq!(phases(&last), "a1=Done@2 b1=Pending@2");
    assert!(last.ended.is_none());
    assert_eq!(
        last.verdict.waits.as_deref(),
        Some(
            "Rollout other cannot be read, so nobody knows what it has under way: a field; mend it, or run the release that wrote it"
        )
    );
    assert_eq!(
        last.queued.as_deref(),
        Some("a later edit of c1 takes the place of this run when Rollout other can be read")
    );
    taken.unreadable = None;
    // Nor while somebody has one that cannot be rendered, whosever that is: the edit could not begin either.
    taken.unknown = [("d1".to_owned(), "site nope is not there".to_owned())].into();
    let still = pass(&mut rollout, &taken);
    assert!(still.ended.is_none());
    assert_eq!(
        still.queued.as_deref(),
        Some("a later edit of c1 takes the place of this run when every cluster can be rendered")
    );
    taken.unknown.clear();
    taken.own.retain(|candidate| candidate.name != "c1");
    let on = pass(&mut rollout, &taken);
    assert_eq!(phases(&on), "a1=Done@2 b1=Updating@2");
}

#[test]
fn what_was_skipped_stays_so_until_it_is_edited_and_what_was_aborted_gives_way() {
    let mut rollout = rollout(json!({"canary": {"count": 0}, "soak": "0s"}));
    let before = known(&[("a1", "1", "2")]);
    fail_and_skip_a1(&mut rollout, &before);
    assert_eq!(
        pass(&mut rollout, &before).verdict.phase,
        RolloutPhase::Succeeded
    );
    assert_eq!(
        pass(&mut rollout, &before).verdict.phase,
        RolloutPhase::Idle
    );
    let edited = known(&[("a1", "1", "3"), ("b1", "1", "3")]);
    let again = pass(&mut rollout, &edited);
    assert_eq!(phases(&again), "a1=Updating@3 b1=Pending@3");
    // Aborted while a cluster is under way: that one is let through, no other is begun, and a later edit comes after it.
    let id = again.run.unwrap().id;
    rollout.spec.control = serde_json::from_value(json!({"run": id, "state": "Aborted"})).unwrap();
    let through = known(&[("a1", "3", "3"), ("b1", "1", "3")]);
    let mut last = Decided::default();
    for _ in 0..3 {
        last = pass(&mut rollout, &through);
    }
    assert_eq!(phases(&last), "a1=Done@3 b1=Pending@3");
    assert_eq!(last.verdict.phase, RolloutPhase::Aborted);
    let later = known(&[("a1", "3", "4"), ("b1", "1", "4")]);
    assert_eq!(
        pass(&mut rollout, &later).verdict.phase,
        RolloutPhase::Superseded
    );
    assert_eq!(
        phases(&pass(&mut rollout, &later)),
        "a1=Updating@4 b1=Pending@4"
    );
}
