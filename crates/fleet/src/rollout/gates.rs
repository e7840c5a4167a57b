//! What must hold of a cluster beside being well: conditions of its own object, and rules about all of it.
//!
//! The pass of a FleetCluster reads that object and writes down what is so of it, in one status with what was applied; the pass of a
//! Rollout reads it there. So a rule is answered where the object is read, with the same look that says that it is well. Answers stand
//! under a digest of the rule: one that was edited has none yet, not that of the one before. Pure.

use std::collections::BTreeMap;

use api::{
    inventory::{Gate, RolloutSpec},
    text::plain,
};
use inventory::Rule;
use kapi::schema::{Budget, Expression};
use serde_json::Value;

use super::engine::Seen;

/// What the rules of gates are for an object: by a digest of each, what is written down.
pub(crate) fn answers(gates: &[Gate], own: &Value) -> BTreeMap<String, String> {
    let mut budget = Budget::of_object();
    let rules = gates.iter().filter_map(|gate| gate.rule.as_deref());
    rules
        .map(|rule| (key(rule), answer(rule, own, &mut budget)))
        .collect()
}

fn answer(rule: &str, own: &Value, budget: &mut Budget) -> String {
    let unknown = |why: &str| plain(&format!("{UNKNOWN}: {why}"), LONGEST_ANSWER);
    match Expression::compile(rule).map(|rule| rule.holds(own, budget)) {
        Ok(Ok(true)) => TRUE.to_owned(),
        Ok(Ok(false)) => FALSE.to_owned(),
        Ok(Err(unanswered)) => unknown(&unanswered.to_string()),
        Err(why) => unknown(&why),
    }
}

/// Why a cluster that is well is not done: the first gate that is not open. None: all are.
pub(crate) fn shut(gates: &[Gate], seen: &Seen) -> Option<String> {
    gates.iter().find_map(|gate| match gate.rule.as_deref() {
        Some(rule) => shut_by_rule(gate, rule, seen),
        None => shut_by_condition(gate, seen),
    })
}

fn shut_by_condition(gate: &Gate, seen: &Seen) -> Option<String> {
    let kind = gate.condition.as_deref().unwrap_or_default();
    let status = gate.status.unwrap_or_default().as_str();
    let is_open = seen.gates.get(kind).is_some_and(|found| found == status);
    (!is_open).then(|| format!("the gate {kind}={status} is not open"))
}

fn shut_by_rule(gate: &Gate, rule: &str, seen: &Seen) -> Option<String> {
    let why = match seen.rules.get(&key(rule)).map(String::as_str) {
        Some(TRUE) => return None,
        Some(FALSE) => String::new(),
        Some(unknown) => format!(" (no answer: {})", plain(reason(unknown), LONGEST_SAID)),
        None => " (no answer: it was not asked yet)".to_owned(),
    };
    let rule = plain(rule, LONGEST_RULE);
    let said = gate
        .message
        .as_deref()
        .map(|said| plain(said, LONGEST_SAID));
    let said = said.map(|said| format!(": {said}")).unwrap_or_default();
    Some(format!("the gate {rule} is not open{said}{why}"))
}

/// What is written down of a rule that has no answer, without the word for that.
fn reason(unknown: &str) -> &str {
    let reason = unknown.strip_prefix(UNKNOWN).unwrap_or(unknown);
    reason.strip_prefix(": ").unwrap_or(reason)
}

/// The rules that are none, each with the place of its gate.
pub(crate) fn problems(spec: &RolloutSpec) -> impl Iterator<Item = (usize, Rule)> {
    let gates = spec.gates.iter().enumerate();
    gates.filter_map(|(place, gate)| {
        let rule = gate.rule.as_deref()?;
        let why = Expression::compile(rule).err()?;
        let (rule, what) = (plain(rule, LONGEST_RULE), plain(&why, LONGEST_ANSWER));
        Some((place, Rule::Gate { rule, what }))
    })
}

/// Under what an answer is written down.
fn key(rule: &str) -> String {
    controller::digest(&[rule], 12)
}

const TRUE: &str = "True";
const FALSE: &str = "False";
/// Before why there is no answer.
const UNKNOWN: &str = "Unknown";
/// Bytes of an answer, by the schema of the status.
const LONGEST_ANSWER: usize = 256;
/// How much is shown of a rule, of what a person had said of it and of why it has no answer: together they fit a member's message.
const LONGEST_RULE: usize = 120;
const LONGEST_SAID: usize = 160;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gate(gate: Value) -> Gate {
        serde_json::from_value(gate).unwrap()
    }

    /// A cluster whose own object is this, and its gate: why that is shut.
    #[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
    fn told(rule: Value, own: Value) -> Option<String> {
        let gates = [gate(rule)];
        let seen = Seen {
            rules: answers(&gates, &own),
            ..Seen::default()
        };
        shut(&gates, &seen)
    }

    #[test]
    fn a_rule_about_the_own_object_opens_a_gate() {
        let all = "self.status.nodes.healthy == self.status.nodes.total";
        let with = |healthy: u32| json!({"status": {"nodes": {"healthy": healthy, "total": 3}}});
        assert_eq!(told(json!({"rule": all}), with(3)), None);
        assert_eq!(
            told(json!({"rule": all}), with(2)).unwrap(),
            format!("the gate {all} is not open")
        );
        assert_eq!(
            told(
                json!({"rule": all, "message": "hosts are missing"}),
                with(2)
            )
            .unwrap(),
            format!("the gate {all} is not open: hosts are missing")
        );
    }

    #[test]
    fn a_rule_without_an_answer_opens_nothing_and_says_why() {
        let all = "self.status.nodes.healthy == self.status.nodes.total";
        assert_eq!(
            told(
                json!({"rule": all, "message": "hosts are missing"}),
                json!({"status": {}})
            )
            .unwrap(),
            format!(
                "the gate {all} is not open: hosts are missing (no answer: no such key: nodes)"
            )
        );
        assert_eq!(
            shut(&[gate(json!({"rule": all}))], &Seen::default()).unwrap(),
            format!("the gate {all} is not open (no answer: it was not asked yet)")
        );
    }

    #[test]
    fn a_costly_rule_is_ended_and_the_others_are_answered() {
        let items: Vec<_> = (0..300).collect();
        let own = json!({"status": {"items": items}});
        let costly = "self.status.items.all(a, self.status.items.all(b, self.status.items.all(c, a + b + c >= 0)))";
        let gates = [
            gate(json!({"rule": costly})),
            gate(json!({"rule": "self.status.items.size() == 300"})),
        ];
        let answers = answers(&gates, &own);
        assert_eq!(
            answers[&key(costly)],
            "Unknown: it costs more than one evaluation may"
        );
        assert_eq!(answers[&key("self.status.items.size() == 300")], "True");
        assert_eq!(
            told(json!({"rule": costly}), own).unwrap(),
            format!(
                "the gate {costly} is not open (no answer: it costs more than one evaluation may)"
            )
        );
    }

    #[test]
    fn a_rule_of_lists_that_share_their_parts_is_ended_too() {
        let doubled = |by: &str, times: usize| format!(".map(a, {by})").repeat(times);
        let walks = format!("[1]{}.all(a, a == a)", doubled("[a, a]", 40));
        let keeps = format!(
            "['aaaaaaaaaa']{}.exists(t, [t.findAll(''), t.findAll(''), t.findAll('')].size() > 9)",
            doubled("a + a", 18)
        );
        let open = "self.status.ready == true";
        let gates = [walks.as_str(), keeps.as_str(), open].map(|rule| gate(json!({"rule": rule})));
        let answers = answers(&gates, &json!({"status": {"ready": true}}));
        let ended = "Unknown: it costs more than one evaluation may";
        assert_eq!(answers[&key(&walks)], ended);
        assert_eq!(answers[&key(&keeps)], ended);
        assert_eq!(answers[&key(open)], "True");
    }

    #[test]
    fn the_answer_of_another_rule_counts_for_nothing() {
        let own = json!({"status": {"phase": "Running"}});
        let before = [gate(json!({"rule": "self.status.phase == 'Running'"}))];
        let seen = Seen {
            rules: answers(&before, &own),
            ..Seen::default()
        };
        assert_eq!(shut(&before, &seen), None);
        let after = [gate(json!({"rule": "self.status.phase == 'Done'"}))];
        assert!(shut(&after, &seen).is_some());
    }

    #[test]
    fn what_is_told_of_a_gate_is_plain_and_bounded() {
        let rule = format!("self.status.nodes == '{}'", "x\u{1b}[31m\n".repeat(90));
        let message = "y".repeat(256);
        let told = told(json!({"rule": rule, "message": message}), json!({})).unwrap();
        assert!(api::text::is_plain(&told), "{told}");
        assert!(told.len() <= 500, "{}", told.len());
        let key = format!("self.status['{}'] == 1", "é".repeat(400));
        let answers = answers(&[gate(json!({"rule": key}))], &json!({"status": {}}));
        let answer = answers.into_values().next().unwrap();
        assert!(answer.starts_with("Unknown: no such key: é"), "{answer}");
        assert!(answer.len() <= LONGEST_ANSWER, "{answer}");
    }

    #[test]
    fn a_rule_that_is_none_is_told_with_its_place_and_what_to_do() {
        for (rule, why) in [
            ("self.status.ready ==", "compilation failed"),
            ("self.status.ready", "must evaluate to a bool"),
            ("object.ready == 1", "undeclared reference to 'object'"),
            ("self.ready == oldSelf.ready", "no oldSelf here"),
        ] {
            let spec = json!({"gates": [{"type": "Ready", "status": "True"}, {"rule": rule}]});
            let spec: RolloutSpec = serde_json::from_value(spec).unwrap();
            let found: Vec<_> = problems(&spec).collect();
            let [(1, problem)] = found.as_slice() else {
                panic!("{rule}: {found:?}");
            };
            let told = problem.to_string();
            assert!(told.starts_with(rule), "{rule}: {told}");
            assert!(told.contains(why), "{rule}: {told}");
            assert!(
                told.contains("write an expression in CEL"),
                "{rule}: {told}"
            );
        }
        let spec = json!({"gates": [{"rule": "self.status.ready == true"}]});
        let spec: RolloutSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(problems(&spec).count(), 0);
    }
}
