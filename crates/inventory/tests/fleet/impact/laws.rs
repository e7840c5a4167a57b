//! Laws of what edits do, on generated ones.

use std::collections::BTreeSet;

use inventory::impact::{Bound, Happens, Live, Summary, What, impact};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{NAMESPACE, between, deployment, edited, live, plane, short, topology, world};

/// Edits of a MachineDeployment: a path and its values.
fn edits() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let edit = prop_oneof![
        (0..4u32).prop_map(|number| (
            "/spec/template/spec/version",
            json!(format!("v1.3{number}.0"))
        )),
        (0..6u32).prop_map(|number| ("/spec/replicas", json!(number))),
        (0..3u32).prop_map(|number| (
            "/spec/template/spec/deletion",
            json!({"nodeDrainTimeoutSeconds": number})
        )),
        "[a-c]".prop_map(|text| ("/spec/template/metadata", json!({"labels": {"x": text}}))),
        "[a-c]".prop_map(|text| ("/metadata/labels", json!({"x": text}))),
    ];
    prop::collection::vec(edit, 0..4)
}

fn after(edits: &[(&str, Value)], from: &Value) -> Value {
    let edits = edits.iter();
    edits.fold(from.clone(), |object, (path, value)| {
        edited(&object, path, value.clone())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn an_edit_and_the_machines_that_there_are_come_to_what_is_declared(
        first in edits(),
        second in edits(),
        olds in prop::collection::vec(0..4u32, 0..6),
    ) {
        // Of a roll-out that may be under way, so Machines of several versions.
        let mut before = after(&first, &deployment());
        let versions: Vec<_> = olds.iter().map(|old| format!("v1.3{old}.0")).collect();
        before["spec"]["replicas"] = json!(versions.len());
        let wanted = after(&second, &before);
        let live = Live::new(world("worker", &versions));
        let effects = between(&before, &wanted, Some(&live));
        let count = |happens: Happens| Summary::of(&effects).count(What::Machine, happens) as usize;
        let (added, removed) = (count(Happens::Added), count(Happens::Removed));
        let replicas = usize::try_from(wanted["spec"]["replicas"].as_u64().unwrap()).unwrap();
        prop_assert_eq!(versions.len() + added - removed, replicas);
        // Each Machine is told of once at most, and is one that there is.
        let named: Vec<_> = effects.iter().flat_map(|effect| effect.names.clone()).collect();
        let known: BTreeSet<_> = named.iter().cloned().collect();
        prop_assert_eq!(named.len(), known.len());
        let there: BTreeSet<_> = (0..versions.len()).map(|number| format!("m{number}")).collect();
        prop_assert!(known.is_subset(&there));
        // Those that are not what is declared go, if it is the edit that says something else, and no others are replaced.
        let version = wanted["spec"]["template"]["spec"]["version"].as_str().unwrap();
        let is_rolled = before["spec"]["template"]["spec"]["version"] != version;
        let old = versions.iter().filter(|known| *known != version).count();
        let expected = if is_rolled { old.saturating_sub(removed) } else { 0 };
        prop_assert_eq!(count(Happens::Replaced), expected);
        prop_assert!(count(Happens::Replaced) + removed + count(Happens::Updated) <= versions.len());
    }

    #[test]
    fn what_is_not_edited_touches_nothing(edits in edits()) {
        let object = after(&edits, &deployment());
        let all = [object, plane(), topology()];
        prop_assert_eq!(impact(NAMESPACE, &all, &all, None), Vec::new());
    }

    #[test]
    fn an_edit_of_what_is_brought_to_machines_replaces_none(edits in edits()) {
        let is_free = |(path, _): &&(&'static str, Value)| !path.ends_with("version") && !path.ends_with("replicas");
        let edits: Vec<_> = edits.iter().filter(is_free).cloned().collect();
        let (before, wanted) = (deployment(), after(&edits, &deployment()));
        let is_brought = before["spec"]["template"] != wanted["spec"]["template"];
        let effects = between(&before, &wanted, None);
        prop_assert_eq!(effects.len(), usize::from(is_brought));
        prop_assert!(effects.iter().all(|effect| short(effect) == (Happens::Updated, Some(3), Bound::Exactly)));
    }

    #[test]
    fn without_looking_at_machines_the_numbers_are_the_same(edits in edits()) {
        let mut before = deployment();
        before["spec"]["template"]["spec"]["version"] = json!("v1.34.0");
        let wanted = after(&edits, &before);
        let looked = between(&before, &wanted, Some(&live("worker", 3, "v1.34.0")));
        let looked: Vec<_> = looked.iter().map(short).collect();
        let counted: Vec<_> = between(&before, &wanted, None).iter().map(short).collect();
        prop_assert_eq!(looked, counted);
    }
}
