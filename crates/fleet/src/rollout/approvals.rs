//! Who let a wave begin, as the record of a run keeps it.
//!
//! The API tells no controller which user wrote a field. What it has is the field manager, which the client chose, and when: that is noted
//! in the pass that begins the wave, in the same write, and never changed. Pure.

use api::inventory::{Rollout, RolloutApproval, RolloutRun};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};

use super::engine::{self, Policy};

/// Notes the waves that waited for a person before a pass, and do no longer: one of their clusters was begun.
pub(super) fn note(rollout: &Rollout, run: &mut RolloutRun, policy: &Policy, waited: Vec<String>) {
    let waiting = engine::waiting(run, policy);
    let begun = waited.into_iter().filter(|wave| {
        let mut approved = rollout
            .spec
            .control
            .iter()
            .flat_map(|control| &control.approved);
        !waiting.contains(wave) && approved.any(|approved| approved == wave)
    });
    let (by, at) = approver(rollout).unzip();
    let begun: Vec<_> = begun
        .map(|wave| RolloutApproval {
            wave,
            by: by.clone(),
            at: at.clone().flatten(),
        })
        .collect();
    run.approvals.extend(begun);
}

/// Who wrote last which waves may begin, and when.
fn approver(rollout: &Rollout) -> Option<(String, Option<Time>)> {
    let managers = rollout.metadata.managed_fields.iter().flatten();
    let last = managers
        .filter(|entry| has_approved(entry))
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    let by = last.manager.as_deref().unwrap_or_default();
    Some((api::text::plain(by, LONGEST_MANAGER), last.time.clone()))
}

fn has_approved(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    let control = fields.map(|fields| &fields["f:spec"]["f:control"]["f:approved"]);
    control.is_some_and(|approved| !approved.is_null())
}

/// Bytes of a field manager, by the API.
const LONGEST_MANAGER: usize = 128;

#[cfg(test)]
mod tests {
    use api::inventory::RolloutMember;
    use serde_json::{Value, json};

    use super::*;
    use crate::rollout::waves;

    fn rollout(managers: &Value) -> Rollout {
        serde_json::from_value(json!({
            "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Rollout",
            "metadata": {"name": "all", "managedFields": managers},
            "spec": {"approval": "EveryWave", "control": {"run": "r", "approved": ["canary", "rest"]}},
        }))
        .unwrap()
    }

    fn manager(name: &str, hour: u8, field: &str) -> Value {
        json!({
            "manager": name, "operation": "Update", "time": format!("2026-01-01T0{hour}:00:00Z"),
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:control": {(field): {}}}},
        })
    }

    fn run(canary: &str) -> RolloutRun {
        let member = |wave: &str, phase: &str| -> RolloutMember {
            serde_json::from_value(
                json!({"name": wave, "wave": wave, "revision": "2", "phase": phase}),
            )
            .unwrap()
        };
        RolloutRun {
            id: "r".to_owned(),
            waves: vec!["canary".to_owned(), "rest".to_owned()],
            clusters: vec![member("canary", canary), member("rest", "Pending")],
            ..RolloutRun::default()
        }
    }

    #[test]
    fn who_wrote_the_approval_last_is_noted_when_its_wave_begins() {
        let managers = json!([
            manager("alice", 1, "f:approved"),
            manager("bob", 3, "f:approved"),
            manager("carol", 5, "f:state"),
        ]);
        let rollout = rollout(&managers);
        let policy = waves::policy(&rollout.spec);
        let waited = engine::waiting(&run("Pending"), &policy);
        assert_eq!(waited, ["canary", "rest"]);
        // Nothing began: nothing is noted.
        let mut still = run("Pending");
        note(&rollout, &mut still, &policy, waited.clone());
        assert_eq!(still.approvals, []);
        let mut begun = run("Updating");
        note(&rollout, &mut begun, &policy, waited);
        let noted: Vec<_> = begun
            .approvals
            .iter()
            .map(|approval| {
                let at = approval.at.as_ref().map(|at| at.0.to_string());
                (approval.wave.as_str(), approval.by.as_deref(), at)
            })
            .collect();
        let at = Some("2026-01-01T03:00:00Z".to_owned());
        assert_eq!(noted, [("canary", Some("bob"), at)]);
        // What is noted stays, and is not noted again.
        let waited = engine::waiting(&begun, &policy);
        let before = begun.approvals.clone();
        note(&rollout, &mut begun, &policy, waited);
        assert_eq!(begun.approvals, before);
    }

    #[test]
    fn a_wave_that_nobody_need_let_begin_has_no_approval() {
        let mut rollout = rollout(&json!([manager("alice", 1, "f:approved")]));
        rollout.spec.approval = None;
        let policy = waves::policy(&rollout.spec);
        let waited = engine::waiting(&run("Pending"), &policy);
        let mut begun = run("Updating");
        note(&rollout, &mut begun, &policy, waited);
        assert_eq!(begun.approvals, []);
    }

    #[test]
    fn an_approval_of_nobody_known_is_noted_too() {
        let rollout = rollout(&Value::Null);
        let policy = waves::policy(&rollout.spec);
        let mut begun = run("Updating");
        note(&rollout, &mut begun, &policy, vec!["canary".to_owned()]);
        assert_eq!(begun.approvals.len(), 1);
        assert_eq!(begun.approvals[0].by, None);
    }
}
