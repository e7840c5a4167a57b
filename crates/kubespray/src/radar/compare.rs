//! Holds what a host is like against what a run left on it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    HostName,
    radar::{Baseline, Finding, RadarState, RadarStatus},
    text::{lines, plain},
};
use controller::Status;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Mark, Written, answer::Look};

/// How many findings of a host are told, and how many of all of a cluster.
const FINDINGS: usize = 32;
const TOLD: usize = 12;

/// How a host stands after a look, or after it did not answer.
pub fn judged(
    host: &HostName,
    before: Option<&RadarStatus>,
    seen: Result<Look, String>,
    mark: &Mark,
    now: Timestamp,
) -> RadarStatus {
    let look = match seen {
        Ok(look) => look,
        // That it does not answer is no drift. What was found is kept: a run that leaves it alone does not mend it.
        Err(why) => {
            return RadarStatus {
                state: RadarState::Unknown,
                message: Some(lines(&plain(&why, 512), 512)),
                ..before.cloned().unwrap_or_default()
            };
        }
    };
    let baseline = baseline(host, before, &look, mark, now);
    let mut findings = differences(&baseline.things, &look.things);
    findings.extend(look.troubles);
    findings.truncate(FINDINGS);
    RadarStatus {
        state: if findings.is_empty() {
            RadarState::Same
        } else {
            RadarState::Drifted
        },
        message: None,
        findings,
        baseline: Some(baseline),
    }
}

/// What a host is held against: what it was like after the last run. What had drifted before a run that did not bring back the whole
/// host, is still held against what it was before that.
fn baseline(
    host: &HostName,
    before: Option<&RadarStatus>,
    look: &Look,
    mark: &Mark,
    now: Timestamp,
) -> Baseline {
    let mut new = Baseline {
        run: mark.0.first().map(|newest| newest.run.clone()),
        taken_at: Time(now),
        asked: Some(look.asked.clone()),
        things: look.things.clone(),
    };
    let Some((status, old)) = before.and_then(|status| Some((status, status.baseline.as_ref()?)))
    else {
        return new;
    };
    let old = &as_asked(old, status, look);
    // A run that is not known any more was the newer one.
    let counts = |written: &&Written| {
        let is_newer = |old: &String| runs::number(old) < runs::number(&written.run);
        old.run.as_ref().is_none_or(is_newer) && !written.excluded.contains(host)
    };
    let newer: Vec<_> = mark.0.iter().filter(counts).collect();
    if newer.is_empty() {
        let mut kept = old.clone();
        // What has come up since is no worse for it.
        for (thing, value) in &look.things {
            if is_well(thing, value)
                && let Some(was) = kept.things.get_mut(thing)
            {
                was.clone_from(value);
            }
        }
        return kept;
    }
    if newer.iter().all(|written| !written.whole) {
        // Of a list that is full nobody knows what did not fit: then all that differs has drifted.
        let more = match status.findings.len() {
            FINDINGS.. => differences(&old.things, &look.things),
            _ => Vec::new(),
        };
        for Finding { thing, .. } in status.findings.iter().chain(&more) {
            match old.things.get(thing) {
                Some(was) => new.things.insert(thing.clone(), was.clone()),
                None => new.things.remove(thing),
            };
        }
    }
    new
}

/// A measure as this look would have taken it: what only one of their questions asks for has not drifted. What was found to have stays.
fn as_asked(old: &Baseline, status: &RadarStatus, look: &Look) -> Baseline {
    let mut old = old.clone();
    if old.asked.as_ref() == Some(&look.asked) {
        return old;
    }
    let is_found = |thing: &String| status.findings.iter().any(|found| found.thing == *thing);
    old.asked = Some(look.asked.clone());
    old.things
        .retain(|thing, _| look.things.contains_key(thing) || is_found(thing));
    let new = look.things.iter().filter(|(thing, _)| !is_found(thing));
    for (thing, value) in new {
        let thing = old.things.entry(thing.clone());
        thing.or_insert_with(|| value.clone());
    }
    old
}

/// Whether a thing is as it should be, whatever it was before.
fn is_well(thing: &str, value: &str) -> bool {
    (thing.starts_with("unit ") && value == "active") || (thing == "swap" && value == "off")
}

fn differences(was: &BTreeMap<String, String>, is: &BTreeMap<String, String>) -> Vec<Finding> {
    let things: BTreeSet<_> = was.keys().chain(is.keys()).collect();
    let differs = |thing: &&String| {
        let is = is.get(*thing);
        was.get(*thing) != is && !is.is_some_and(|is| is_well(thing, is))
    };
    let findings = things.into_iter().filter(differs).map(|thing| Finding {
        thing: thing.clone(),
        change: change(thing, was.get(thing), is.get(thing)),
    });
    findings.collect()
}

fn change(thing: &str, was: Option<&String>, is: Option<&String>) -> String {
    let is_file = thing.starts_with('/');
    match (was, is) {
        (Some(_), Some(_)) if is_file => "it was changed".to_owned(),
        (Some(was), Some(is)) => format!("it was {was} and is {is}"),
        (Some(_), None) => "it is gone".to_owned(),
        (None, _) => "it was not there".to_owned(),
    }
}

/// What a host counts as: one that answers no more has drifted as long as what was found is not known to be mended.
pub fn counted(host: &RadarStatus) -> RadarState {
    match host.state {
        RadarState::Unknown if !host.findings.is_empty() => RadarState::Drifted,
        state => state,
    }
}

/// How a cluster stands, by how its hosts do: for its condition.
pub fn standing(hosts: &BTreeMap<String, RadarStatus>) -> (Status, &'static str, String) {
    let of = |state| hosts.iter().filter(move |(_, host)| host.state == state);
    let silent: Vec<_> = of(RadarState::Unknown)
        .map(|(name, host)| {
            let why = host.message.as_deref().unwrap_or("nobody has looked yet");
            format!("{name}: {why}")
        })
        .collect();
    let silent = match silent.len() {
        0 => String::new(),
        _ => format!("; not looked at: {}", few(&silent)),
    };
    // One that answers no more is not mended by that.
    let found = hosts.iter().flat_map(|(name, host)| {
        let findings = host.findings.iter();
        findings.map(move |found| format!("{name}: {}: {}", found.thing, found.change))
    });
    let found: Vec<_> = found.collect();
    let same = of(RadarState::Same).count();
    if !found.is_empty() {
        let message = lines(&format!("{}{silent}", few(&found)), 4096);
        return (Status::True, "HostsDiffer", message);
    }
    if same == 0 {
        let message = lines(
            &format!(
                "no host was looked at{}",
                silent.replacen("; not looked at", "", 1)
            ),
            4096,
        );
        return (Status::Unknown, "NotLookedAt", message);
    }
    let message = format!(
        "{same} of {} hosts are as the last run left them{silent}",
        hosts.len()
    );
    (Status::False, "AsLeft", lines(&message, 4096))
}

fn few(texts: &[String]) -> String {
    match texts.split_at_checked(TOLD) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{}; and {} more", first.join("; "), rest.len())
        }
        _ => texts.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(things: &[(&str, &str)]) -> Look {
        let things = things.iter();
        Look {
            things: things
                .map(|(thing, value)| ((*thing).to_owned(), (*value).to_owned()))
                .collect(),
            ..Look::default()
        }
    }

    fn written(run: &str, whole: bool) -> Written {
        Written {
            run: run.to_owned(),
            whole,
            excluded: Vec::new(),
        }
    }

    fn mark(run: &str, whole: bool) -> Mark {
        Mark(vec![written(run, whole)])
    }

    /// Looks one after the other, each after a run, and what they find.
    fn found(looks: &[(&Mark, Look)]) -> Vec<String> {
        let host: HostName = "a".parse().unwrap();
        let mut status: Option<RadarStatus> = None;
        let mut found = Vec::new();
        for (mark, look) in looks {
            let now = Timestamp::UNIX_EPOCH;
            let new = judged(&host, status.as_ref(), Ok(look.clone()), mark, now);
            let told = new.findings.iter();
            let told: Vec<_> = told
                .map(|it| format!("{}: {}", it.thing, it.change))
                .collect();
            found.push(told.join("; "));
            status = Some(new);
        }
        found
    }

    #[test]
    fn what_is_not_as_the_last_run_left_it_is_named() {
        let first = mark("r-1", true);
        let left = look(&[
            ("/a", "1"),
            ("kernel", "6.1"),
            ("unit kubelet", "active"),
            ("swap", "off"),
        ]);
        let is = look(&[
            ("/b", "1"),
            ("kernel", "6.2"),
            ("unit kubelet", "failed"),
            ("swap", "on"),
        ]);
        assert_eq!(
            found(&[
                (&first, left.clone()),
                (&first, left.clone()),
                (&first, is),
                (&first, left)
            ]),
            [
                "",
                "",
                "/a: it is gone; /b: it was not there; kernel: it was 6.1 and is 6.2; swap: it was off and is on; \
                 unit kubelet: it was active and is failed",
                "",
            ]
        );
    }

    #[test]
    fn a_unit_that_comes_up_after_the_first_look_has_not_drifted_and_is_missed_from_then_on() {
        let first = mark("r-1", true);
        let unit = |state| look(&[("unit kubelet", state)]);
        assert_eq!(
            found(&[
                (&first, unit("activating")),
                (&first, unit("active")),
                (&first, unit("inactive"))
            ]),
            ["", "", "unit kubelet: it was active and is inactive"]
        );
    }

    #[test]
    fn a_run_makes_what_it_left_the_new_measure_and_only_one_of_the_whole_host_mends_what_drifted()
    {
        let (create, scale, converge) = (mark("r-1", true), mark("r-2", false), mark("r-3", true));
        let files = |a, b| look(&[("/a", a), ("/b", b)]);
        assert_eq!(
            found(&[
                (&create, files("1", "1")),
                (&create, files("2", "1")),
                // It changed /b, and leaves /a as it drifted.
                (&scale, files("2", "2")),
                (&scale, files("2", "3")),
                (&converge, files("2", "3")),
            ]),
            [
                "",
                "/a: it was changed",
                "/a: it was changed",
                "/a: it was changed; /b: it was changed",
                "",
            ]
        );
    }

    #[test]
    fn a_run_of_the_whole_host_mends_what_drifted_though_another_followed_before_the_next_look() {
        let create = mark("r-1", true);
        let both = Mark(vec![written("r-3", false), written("r-2", true)]);
        let files = |value| look(&[("/a", value)]);
        assert_eq!(
            found(&[
                (&create, files("1")),
                (&create, files("2")),
                (&both, files("2")),
                (&both, files("3")),
            ]),
            ["", "/a: it was changed", "", "/a: it was changed"]
        );
    }

    #[test]
    fn what_a_new_release_asks_for_anew_or_no_more_has_not_drifted() {
        let first = mark("r-1", true);
        let asked = |question: &str, things: &[(&str, &str)]| Look {
            asked: question.to_owned(),
            ..look(things)
        };
        assert_eq!(
            found(&[
                (
                    &first,
                    asked("old", &[("/a", "1"), ("/b", "1"), ("kernel", "6.1")])
                ),
                (
                    &first,
                    asked("old", &[("/a", "1"), ("/c", "1"), ("kernel", "6.1")])
                ),
                (
                    &first,
                    asked("new", &[("/a", "2"), ("/c", "1"), ("runc", "1.2")])
                ),
                (
                    &first,
                    asked("new", &[("/a", "2"), ("/c", "1"), ("runc", "1.3")])
                ),
            ]),
            [
                "",
                "/b: it is gone; /c: it was not there",
                "/a: it was changed; /b: it is gone; /c: it was not there",
                "/a: it was changed; /b: it is gone; /c: it was not there; runc: it was 1.2 and is 1.3",
            ]
        );
    }

    #[test]
    fn what_did_not_fit_into_the_findings_stays_drifted_too() {
        let (create, scale) = (mark("r-1", true), mark("r-2", false));
        let host: HostName = "a".parse().unwrap();
        let files = |value: &str| {
            let names = (0..FINDINGS + 8).map(|number| format!("/{number:03}"));
            let things = names.map(|name| (name, value.to_owned())).collect();
            Ok(Look {
                things,
                ..Look::default()
            })
        };
        let now = Timestamp::UNIX_EPOCH;
        let first = judged(&host, None, files("1"), &create, now);
        let drifted = judged(&host, Some(&first), files("2"), &create, now);
        assert_eq!(drifted.findings.len(), FINDINGS);
        let after = judged(&host, Some(&drifted), files("2"), &scale, now);
        let (old, new) = (first.baseline.unwrap(), after.baseline.unwrap());
        assert_eq!((new.things, new.run.as_deref()), (old.things, Some("r-2")));
    }

    #[test]
    fn a_host_that_a_run_left_out_is_held_against_what_was_before() {
        let host: HostName = "a".parse().unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let before = judged(
            &host,
            None,
            Ok(look(&[("/a", "1")])),
            &mark("r-1", true),
            now,
        );
        let without = Mark(vec![Written {
            excluded: vec![host.clone()],
            ..written("r-2", true)
        }]);
        let after = judged(
            &host,
            Some(&before),
            Ok(look(&[("/a", "2")])),
            &without,
            now,
        );
        assert_eq!(after.state, RadarState::Drifted);
        let unknown = judged(
            &host,
            Some(&after),
            Err("no\u{1b} answer".into()),
            &without,
            now,
        );
        assert_eq!(unknown.state, RadarState::Unknown);
        assert_eq!(
            (unknown.findings, unknown.baseline),
            (after.findings, after.baseline)
        );
        assert!(api::text::is_plain(&unknown.message.unwrap()));
    }

    #[test]
    fn a_cluster_has_drifted_when_a_host_has_and_one_that_is_silent_is_none() {
        let host: HostName = "a".parse().unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let none = Mark::default();
        let same = judged(&host, None, Ok(look(&[("/a", "1")])), &none, now);
        let drifted = judged(&host, Some(&same), Ok(look(&[("/a", "2")])), &none, now);
        let silent = judged(&host, Some(&same), Err("no answer".into()), &none, now);
        let lost = judged(&host, Some(&drifted), Err("no answer".into()), &none, now);
        assert_eq!(lost.state, RadarState::Unknown);
        assert_eq!(counted(&lost), RadarState::Drifted);
        assert_eq!(counted(&silent), RadarState::Unknown);
        assert_eq!(counted(&same), RadarState::Same);
        for (hosts, expected) in [
            (
                vec![&same, &same],
                (
                    Status::False,
                    "AsLeft",
                    "2 of 2 hosts are as the last run left them",
                ),
            ),
            (
                vec![&same, &silent],
                (
                    Status::False,
                    "AsLeft",
                    "1 of 2 hosts are as the last run left them; not looked at: h1: no answer",
                ),
            ),
            (
                vec![&same, &drifted],
                (Status::True, "HostsDiffer", "h1: /a: it was changed"),
            ),
            (
                vec![&silent, &drifted],
                (
                    Status::True,
                    "HostsDiffer",
                    "h1: /a: it was changed; not looked at: h0: no answer",
                ),
            ),
            // It is not mended by its silence.
            (
                vec![&same, &lost],
                (
                    Status::True,
                    "HostsDiffer",
                    "h1: /a: it was changed; not looked at: h1: no answer",
                ),
            ),
            (
                vec![&silent],
                (
                    Status::Unknown,
                    "NotLookedAt",
                    "no host was looked at: h0: no answer",
                ),
            ),
            (
                vec![],
                (Status::Unknown, "NotLookedAt", "no host was looked at"),
            ),
        ] {
            let named = hosts.into_iter().enumerate();
            let hosts = named.map(|(number, host)| (format!("h{number}"), host.clone()));
            let (status, reason, message) = standing(&hosts.collect());
            assert_eq!((status, reason, &*message), expected);
        }
        let mut many = drifted;
        many.findings = (0..FINDINGS).map(|_| many.findings[0].clone()).collect();
        let hosts = (0..500).map(|number| (format!("h{number}"), many.clone()));
        let (_, _, message) = standing(&hosts.collect());
        assert!(message.ends_with("and 15988 more"), "{message}");
    }
}
