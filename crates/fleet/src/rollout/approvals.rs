//! Which waves people let begin, and who did, as the record of a run keeps it.
//!
//! It is said in the Rollout, or by a WaveApproval, which who may create it need not be able to edit the Rollout for. The API tells no
//! controller which user wrote a field. What it has is the field manager, which the client chose, and when: that is noted in the pass that
//! begins the wave, in the same write, and never changed.

use std::collections::BTreeSet;

use api::inventory::{Approval, Rollout, RolloutApproval, RolloutRun, WaveApproval};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};

use super::engine::{self, Policy};

/// A wave that somebody lets begin by an object of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Approved {
    /// Of which run.
    pub run: String,
    /// The wave.
    pub wave: String,
    /// Who made the object, and when.
    pub by: Option<String>,
    pub at: Option<Time>,
}

/// The WaveApprovals of a roll-out, from the API as the Rollout is.
#[derive(Debug, Default)]
pub(super) struct Approvals {
    /// Each; none where no wave waits for one.
    pub objects: Vec<Approved>,
    /// Why none of them is seen.
    pub unread: Option<&'static str>,
}

/// Reads them.
pub(super) async fn listed(rollout: &Rollout, client: &Client) -> Result<Approvals, kube::Error> {
    if matches!(rollout.spec.approval, None | Some(Approval::Never)) {
        return Ok(Approvals::default());
    }
    let namespace = rollout.namespace().unwrap_or_default();
    let api = Api::<DeserializeGuard<WaveApproval>>::namespaced(client.clone(), &namespace);
    match api.list(&ListParams::default()).await {
        Ok(all) => {
            let all = all.items.into_iter().filter_map(|object| object.0.ok());
            let own = all.filter_map(|object| of(&rollout.name_any(), &object));
            Ok(Approvals {
                objects: own.collect(),
                unread: None,
            })
        }
        // Definitions and rights of an earlier release: a Rollout can be approved as it was there.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_forbidden() => {
            Ok(Approvals {
                objects: Vec::new(),
                unread: Some(UNREAD),
            })
        }
        Err(error) => Err(error),
    }
}

/// What an object says of a roll-out.
fn of(rollout: &str, object: &WaveApproval) -> Option<Approved> {
    let meta = &object.metadata;
    let counts = object.spec.rollout == rollout && meta.deletion_timestamp.is_none();
    counts.then(|| Approved {
        run: object.spec.run.clone(),
        wave: object.spec.wave.clone(),
        // It never changes: whoever writes the same again later has not made it.
        by: writers(meta, &["f:spec", "f:wave"])
            .min_by_key(|entry| time(entry))
            .map(manager),
        at: meta.creation_timestamp.clone(),
    })
}

/// The waves of a run that may begin.
pub(super) fn of_run(rollout: &Rollout, objects: &[Approved], run: &str) -> BTreeSet<String> {
    let control = rollout.spec.control.iter();
    let control = control.filter(|control| control.run.as_deref() == Some(run));
    let by_control = control.flat_map(|control| &control.approved);
    let objects = objects.iter().filter(|object| object.run == run);
    let by_object = objects.map(|object| &object.wave);
    by_control.chain(by_object).cloned().collect()
}

/// Notes the waves that waited for a person before a pass, and do no longer: one of their clusters was begun.
pub(super) fn note(
    rollout: &Rollout,
    objects: &[Approved],
    run: &mut RolloutRun,
    policy: &Policy,
    waited: Vec<String>,
) {
    let waiting = engine::waiting(run, policy);
    let approved = of_run(rollout, objects, &run.id);
    let begun = waited
        .into_iter()
        .filter(|wave| !waiting.contains(wave) && approved.contains(wave));
    let begun: Vec<_> = begun
        .map(|wave| {
            let mut objects = objects.iter();
            let object = objects.find(|object| object.run == run.id && object.wave == wave);
            let by_object = object.map(|object| (object.by.clone(), object.at.clone()));
            let (by, at) = by_object.unwrap_or_else(|| {
                let (by, at) = approver(rollout).unzip();
                (by, at.flatten())
            });
            RolloutApproval { wave, by, at }
        })
        .collect();
    run.approvals.extend(begun);
}

/// Who wrote last which waves may begin, and when.
fn approver(rollout: &Rollout) -> Option<(String, Option<Time>)> {
    let writers = writers(&rollout.metadata, &["f:spec", "f:control", "f:approved"]);
    let last = writers.max_by_key(|entry| time(entry))?;
    Some((manager(last), last.time.clone()))
}

/// Who has written a field.
fn writers<'a>(
    meta: &'a ObjectMeta,
    field: &'a [&str],
) -> impl Iterator<Item = &'a ManagedFieldsEntry> {
    let managers = meta.managed_fields.iter().flatten();
    managers.filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let field = fields.and_then(|fields| field.iter().try_fold(fields, |at, key| at.get(key)));
        field.is_some_and(|field| !field.is_null())
    })
}

fn time(entry: &ManagedFieldsEntry) -> Option<Timestamp> {
    entry.time.as_ref().map(|time| time.0)
}

fn manager(entry: &ManagedFieldsEntry) -> String {
    let by = entry.manager.as_deref().unwrap_or_default();
    api::text::plain(by, LONGEST_MANAGER)
}

/// Bytes of a field manager, by the API.
const LONGEST_MANAGER: usize = 128;

/// What helps where they may not be listed, or are not defined.
const UNREAD: &str = "WaveApprovals count for nothing here, for Windlass may not list them: apply the definitions and the rights of this release";

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

    fn writer(name: &str, hour: u8, field: &str) -> Value {
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
            writer("alice", 1, "f:approved"),
            writer("bob", 3, "f:approved"),
            writer("carol", 5, "f:state"),
        ]);
        let rollout = rollout(&managers);
        let policy = waves::policy(&rollout.spec);
        let waited = engine::waiting(&run("Pending"), &policy);
        assert_eq!(waited, ["canary", "rest"]);
        // Nothing began: nothing is noted.
        let mut still = run("Pending");
        note(&rollout, &[], &mut still, &policy, waited.clone());
        assert_eq!(still.approvals, []);
        let mut begun = run("Updating");
        note(&rollout, &[], &mut begun, &policy, waited);
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
        note(&rollout, &[], &mut begun, &policy, waited);
        assert_eq!(begun.approvals, before);
    }

    #[test]
    fn a_wave_that_nobody_need_let_begin_has_no_approval() {
        let mut rollout = rollout(&json!([writer("alice", 1, "f:approved")]));
        rollout.spec.approval = None;
        let policy = waves::policy(&rollout.spec);
        let waited = engine::waiting(&run("Pending"), &policy);
        let mut begun = run("Updating");
        note(&rollout, &[], &mut begun, &policy, waited);
        assert_eq!(begun.approvals, []);
    }

    #[test]
    fn an_object_lets_a_wave_of_its_run_begin_and_its_maker_is_noted() {
        let mut rollout = rollout(&json!([writer("alice", 1, "f:approved")]));
        rollout.spec.control = None;
        let entry = |manager: &str, hour: u8| {
            json!({
                "manager": manager, "operation": "Update", "time": format!("2026-01-01T0{hour}:00:00Z"),
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:run": {}, "f:wave": {}}},
            })
        };
        let object = |run: &str, wave: &str, more: Value| {
            let mut object = json!({
                "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "WaveApproval",
                "metadata": {
                    "name": "x", "creationTimestamp": "2026-01-01T02:00:00Z",
                    "managedFields": [entry("dora", 2), entry("eve", 4)],
                },
                "spec": {"rollout": "all", "run": run, "wave": wave},
            });
            for (key, value) in more.as_object().into_iter().flatten() {
                object["metadata"][key] = value.clone();
            }
            of("all", &serde_json::from_value(object).unwrap())
        };
        let wanted = object("r", "canary", json!({})).unwrap();
        let former = object("q", "rest", json!({})).unwrap();
        let going = json!({"deletionTimestamp": "2026-01-01T03:00:00Z"});
        assert_eq!(object("r", "canary", going), None);
        assert_eq!(
            of(
                "other",
                &WaveApproval::new(
                    "x",
                    serde_json::from_value(json!({"rollout": "all", "run": "r", "wave": "canary"}))
                        .unwrap()
                )
            ),
            None
        );
        let objects = [former, wanted];
        assert_eq!(
            of_run(&rollout, &objects, "r"),
            ["canary".to_owned()].into()
        );
        let policy = waves::policy(&rollout.spec);
        let waited = engine::waiting(&run("Pending"), &policy);
        let mut begun = run("Updating");
        note(&rollout, &objects, &mut begun, &policy, waited);
        let [noted] = begun.approvals.as_slice() else {
            panic!("one wave was approved: {begun:?}");
        };
        assert_eq!(
            (noted.wave.as_str(), noted.by.as_deref()),
            ("canary", Some("dora"))
        );
        assert_eq!(
            noted.at.as_ref().unwrap().0.to_string(),
            "2026-01-01T02:00:00Z"
        );
    }

    #[test]
    fn an_approval_of_nobody_known_is_noted_too() {
        let rollout = rollout(&Value::Null);
        let policy = waves::policy(&rollout.spec);
        let mut begun = run("Updating");
        note(
            &rollout,
            &[],
            &mut begun,
            &policy,
            vec!["canary".to_owned()],
        );
        assert_eq!(begun.approvals.len(), 1);
        assert_eq!(begun.approvals[0].by, None);
    }
}
