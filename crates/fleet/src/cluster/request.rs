//! The request to converge, where a cluster's operator carries out a change of the roll-out only when it is asked to. Pure.
//!
//! It is named after the revision, and stays for as long as that does, so that it is one. An operator answers each request once: what
//! waits anew after it was carried out, because a Secret was written meanwhile, or after it was refused, because another run had begun,
//! is asked for by another one.

use api::{
    cluster::request::{CONVERGE, waits_for_request},
    inventory::REVISION_ANNOTATION,
};
use serde_json::{Value, json};

use super::{
    health::Rolling,
    part::{Part, Parts},
};

/// The parts, with the request that stands or is due.
pub(super) fn with_request(
    parts: &Parts,
    there: &[Option<Value>],
    revision: &str,
    rolling: Rolling,
) -> Vec<Part> {
    let mut wanted = parts.objects.clone();
    let Some((main, Some(live))) = wanted.last_mut().zip(there.last()) else {
        return wanted;
    };
    if main.is_kubespray()
        && let Some(request) = request(live, revision, rolling)
    {
        main.value["metadata"]["annotations"][CONVERGE] = json!(request);
    }
    wanted
}

fn request(live: &Value, revision: &str, rolling: Rolling) -> Option<String> {
    let annotations = &live["metadata"]["annotations"];
    // That it waits before the change is written is of the change before.
    if annotations[REVISION_ANNOTATION] != revision {
        return None;
    }
    let waits = rolling == Rolling::Begun && waits(live);
    let asked = annotations[CONVERGE].as_str();
    let asked = asked.and_then(|asked| Some((asked, times(asked, revision)?)));
    match asked {
        None => waits.then(|| revision.to_owned()),
        Some((asked, times)) if waits && is_over(live, asked) => {
            Some(format!("{revision}-{}", times.saturating_add(1)))
        }
        Some((asked, _)) => Some(asked.to_owned()),
    }
}

fn waits(live: &Value) -> bool {
    let pending = live["status"]["pending"].as_array();
    let mut pending = pending.into_iter().flatten();
    pending.any(waits_for_request)
}

/// How often a revision has asked by then. None: the request is of another one, or of a person.
fn times(asked: &str, revision: &str) -> Option<u32> {
    let rest = asked.strip_prefix(revision)?;
    if rest.is_empty() {
        return Some(1);
    }
    rest.strip_prefix('-')?.parse().ok()
}

/// Whether nothing comes of a request any more: it was refused, because something else had begun by then, or the run that came of it
/// succeeded. One that failed is mended, and not asked for again and again.
fn is_over(live: &Value, asked: &str) -> bool {
    let status = &live["status"];
    let answer = &status["converge"];
    let is_carried_out = answer["run"].is_string() && answer["run"] == status["converged"]["run"];
    answer["request"] == asked && (is_carried_out || answer["refused"].is_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::part::parts;

    #[test]
    fn what_waits_anew_after_it_was_carried_out_is_asked_for_anew() {
        use Rolling::{Begun, No};
        let of = json!({"apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "x"}});
        let parts = parts("ns", "x", "r2", &[of]).unwrap();
        let not_requested = || json!([{"operation": "Converge", "reason": "NotRequested"}]);
        let behind = || json!([{"operation": "Converge", "reason": "BehindRun"}]);
        let answered = |request: &str, run: &str, last: &str| json!({"converge": {"request": request, "run": run}, "converged": {"run": last}});
        let refused = |request: &str| json!({"converge": {"request": request, "refused": "run run-1 is under way"}});
        let unanswered = || json!({});
        for (name, of, asked, rolling, pending, status, expected) in [
            (
                "nothing waits",
                "r2",
                None,
                Begun,
                json!([]),
                unanswered(),
                None,
            ),
            (
                "it waits",
                "r2",
                None,
                Begun,
                not_requested(),
                unanswered(),
                Some("r2"),
            ),
            (
                "it waits for the change before",
                "r1",
                None,
                Begun,
                not_requested(),
                unanswered(),
                None,
            ),
            (
                "it waits, and no roll-out is at it",
                "r2",
                None,
                No,
                not_requested(),
                unanswered(),
                None,
            ),
            (
                "it waits for something else",
                "r2",
                None,
                Begun,
                behind(),
                unanswered(),
                None,
            ),
            (
                "a request of the revision before",
                "r2",
                Some("r1"),
                Begun,
                not_requested(),
                answered("r1", "run-1", "run-1"),
                Some("r2"),
            ),
            (
                "asked, and not answered",
                "r2",
                Some("r2"),
                Begun,
                not_requested(),
                unanswered(),
                Some("r2"),
            ),
            (
                "carried out",
                "r2",
                Some("r2"),
                Begun,
                json!([]),
                answered("r2", "run-2", "run-2"),
                Some("r2"),
            ),
            (
                "carried out, and a Secret was written since",
                "r2",
                Some("r2"),
                Begun,
                not_requested(),
                answered("r2", "run-2", "run-2"),
                Some("r2-2"),
            ),
            (
                "and once more",
                "r2",
                Some("r2-2"),
                Begun,
                not_requested(),
                answered("r2-2", "run-3", "run-3"),
                Some("r2-3"),
            ),
            (
                "its run failed",
                "r2",
                Some("r2"),
                Begun,
                not_requested(),
                answered("r2", "run-2", "run-1"),
                Some("r2"),
            ),
            (
                "it was refused, since another run was at work",
                "r2",
                Some("r2"),
                Begun,
                not_requested(),
                refused("r2"),
                Some("r2-2"),
            ),
            (
                "it was refused, and that run is at work still",
                "r2",
                Some("r2"),
                Begun,
                behind(),
                refused("r2"),
                Some("r2"),
            ),
            (
                "the roll-out is through",
                "r2",
                Some("r2"),
                No,
                not_requested(),
                answered("r2", "run-2", "run-2"),
                Some("r2"),
            ),
        ] {
            let mut live =
                json!({"metadata": {"annotations": {REVISION_ANNOTATION: of}}, "status": status});
            live["status"]["pending"] = pending;
            if let Some(asked) = asked {
                live["metadata"]["annotations"][CONVERGE] = json!(asked);
            }
            let wanted = with_request(&parts, &[Some(live)], "r2", rolling);
            let request = wanted[0].value["metadata"]["annotations"][CONVERGE].as_str();
            assert_eq!(request, expected, "{name}");
        }
    }
}
