//! The VaultSecrets of a cluster: nothing that refers to a Secret of theirs is written before it is there. Pure.
//!
//! The cluster's operator would stall on a Secret that is missing, and a roll-out would take that for a canary that failed. A VaultSecret
//! that stays as it was keeps nothing back: its Secret is there, whether Vault can be read or not.
//!
//! Nor does a Secret lose what something may still read. The cluster's operator works with what it built the cluster with until it has
//! carried the change out, so former keys stay in a Secret (`UntilWell`), and former VaultSecrets with theirs, until the cluster is well.
//! What a template names stays for ever, as the template does (`Template`).

use api::{inventory::FleetHealth, secrets::KEEP_KEYS_ANNOTATION};
use serde_json::{Value, json};

use super::part::{FOR_TEMPLATE, Part};

/// A part as it is to be at rest: why the keys of its Secret stay is said for as long as it holds.
pub(super) fn at_rest(part: Part, live: Option<&Value>) -> Part {
    let why = live.and_then(why_kept).map(ToOwned::to_owned);
    said(part, why)
}

/// A part as it is written while its cluster is brought to a revision.
pub(super) fn while_brought(part: Part, live: Option<&Value>) -> Part {
    let why = live.map(|_| UNTIL_WELL.to_owned());
    said(part, why)
}

/// Whether keys of its Secret stay until its cluster is well.
pub(super) fn waits_for_well(live: &Value) -> bool {
    why_kept(live) == Some(UNTIL_WELL)
}

/// Whether it stays for a template.
pub(super) fn is_for_template(live: &Value) -> bool {
    why_kept(live) == Some(FOR_TEMPLATE)
}

/// Whether it is in the API just as a part says.
pub(super) fn is_written(part: &Part, live: &Value) -> bool {
    controller::apply::contains(live, &part.value) && live["spec"] == part.value["spec"]
}

fn why_kept(live: &Value) -> Option<&str> {
    live["metadata"]["annotations"][KEEP_KEYS_ANNOTATION].as_str()
}

/// Says why the keys of a VaultSecret's Secret stay, where nothing says so yet.
fn said(mut part: Part, why: Option<String>) -> Part {
    if part.is_vault_secret()
        && let Some(why) = why
        && why_kept(&part.value).is_none()
    {
        part.value["metadata"]["annotations"][KEEP_KEYS_ANNOTATION] = json!(why);
    }
    part
}

/// How a cluster stands that waits for VaultSecrets, and why.
pub(super) type Waits = (FleetHealth, String);

/// Why what refers to these VaultSecrets, which are new or were changed, cannot be written yet, and how the cluster stands for that.
/// None: nothing holds it back.
pub(super) fn awaited(secrets: &[(&Part, Option<Value>)]) -> Option<Waits> {
    let mut waits = secrets
        .iter()
        .filter_map(|(part, live)| one(part, live.as_ref()));
    let first = waits.next()?;
    // What does not come by itself has the say.
    let failed = std::iter::once(first.clone())
        .chain(waits)
        .find(|(health, _)| *health == FleetHealth::Failed);
    Some(failed.unwrap_or(first))
}

fn one(part: &Part, live: Option<&Value>) -> Option<Waits> {
    let title = part.title();
    let status = live.map(|live| &live["status"]);
    let generation = live.and_then(|live| live["metadata"]["generation"].as_i64());
    let condition = |kind: &str| {
        let conditions = status?["conditions"].as_array()?;
        conditions
            .iter()
            .find(|condition| condition["type"] == kind)
    };
    // Each condition says which generation it speaks of: what is known of an older one says nothing of this.
    let now = |kind: &str| {
        condition(kind).filter(|condition| condition["observedGeneration"].as_i64() == generation)
    };
    let said = |condition: &Value| {
        let message = condition["message"].as_str().unwrap_or_default();
        format!("{title}: {}", api::text::plain(message, 800))
    };
    let is_true = |condition: &&Value| condition["status"] == "True";
    match (now("Ready"), now("Stalled").filter(is_true)) {
        (_, Some(stalled)) => Some((FleetHealth::Failed, said(stalled))),
        // What it is now was not read yet, whatever was before.
        (Some(ready), None) if ready["status"] == "True" => now("Stale")
            .filter(is_true)
            .map(|stale| (FleetHealth::AtWork, said(stale))),
        (Some(ready), None) if now("Reconciling").as_ref().is_some_and(is_true) => {
            Some((FleetHealth::AtWork, said(ready)))
        }
        (Some(ready), None) => Some((FleetHealth::Failed, said(ready))),
        (None, None) => Some((
            FleetHealth::AtWork,
            format!(
                "{title} has not been seen by its operator yet; Windlass works on VaultSecrets where it is told to: windlass up --vault, or \
                 vault.enabled of the chart"
            ),
        )),
    }
}

/// Why keys stay that a change of the cluster does not need.
const UNTIL_WELL: &str = "UntilWell";

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> Part {
        Part {
            value: json!({}),
            api_version: "secrets.windlass.dev/v1alpha1".to_owned(),
            kind: "VaultSecret".to_owned(),
            namespace: "shop".to_owned(),
            name: "vault-a".to_owned(),
        }
    }

    #[test]
    fn what_may_still_be_read_of_a_secret_stays_in_it() {
        let annotated = |why: Option<&str>| {
            why.map_or_else(
                || json!({}),
                |why| json!({"metadata": {"annotations": {KEEP_KEYS_ANNOTATION: why}}}),
            )
        };
        let kept = |part: &Part| why_kept(&part.value).map(ToOwned::to_owned);
        for (wanted, live, at_rest_is, brought_is) in [
            (None, None, None, None),
            (None, Some(None), None, Some(UNTIL_WELL)),
            (
                None,
                Some(Some(UNTIL_WELL)),
                Some(UNTIL_WELL),
                Some(UNTIL_WELL),
            ),
            (
                None,
                Some(Some(FOR_TEMPLATE)),
                Some(FOR_TEMPLATE),
                Some(FOR_TEMPLATE),
            ),
            (
                Some(FOR_TEMPLATE),
                Some(Some(UNTIL_WELL)),
                Some(FOR_TEMPLATE),
                Some(FOR_TEMPLATE),
            ),
            (
                Some(FOR_TEMPLATE),
                None,
                Some(FOR_TEMPLATE),
                Some(FOR_TEMPLATE),
            ),
        ] {
            let live = live.map(annotated);
            let wanted = Part {
                value: annotated(wanted),
                ..part()
            };
            let rests = at_rest(wanted, live.as_ref());
            assert_eq!(kept(&rests).as_deref(), at_rest_is, "{live:?}");
            let brought = while_brought(rests, live.as_ref());
            assert_eq!(kept(&brought).as_deref(), brought_is, "{live:?}");
        }
        // Of no other kind.
        let node = Part {
            kind: "ClusterNode".to_owned(),
            ..part()
        };
        assert_eq!(while_brought(node.clone(), Some(&json!({}))), node);
    }

    #[test]
    fn what_is_written_is_neither_tried_nor_written_again() {
        let spec = json!({"path": "a", "keys": {"k": "k"}});
        let wanted = Part {
            value: json!({"metadata": {"name": "vault-a"}, "spec": spec}),
            ..part()
        };
        let live = |keys: Value| {
            json!({
                "metadata": {"name": "vault-a", "generation": 2, "annotations": {KEEP_KEYS_ANNOTATION: UNTIL_WELL}},
                "spec": {"path": "a", "keys": keys}, "status": {},
            })
        };
        for (keys, expected) in [
            (json!({"k": "k"}), true),
            (json!({"k": "k", "former": "former"}), false),
            (json!({"former": "former"}), false),
        ] {
            assert_eq!(is_written(&wanted, &live(keys.clone())), expected, "{keys}");
        }
    }

    #[test]
    fn nothing_is_written_before_its_secret_is_there() {
        use FleetHealth::{AtWork, Failed};
        let part = part();
        let condition = |kind: &str, status: &str, generation: i64| json!({"type": kind, "status": status, "message": "it says so", "observedGeneration": generation});
        let live = |conditions: Value| {
            Some(json!({"metadata": {"generation": 2}, "status": {"conditions": conditions}}))
        };
        for (name, live, expected) in [
            ("not there", None, Some(AtWork)),
            (
                "not seen",
                Some(json!({"metadata": {"generation": 1}})),
                Some(AtWork),
            ),
            (
                "ready",
                live(json!([
                    condition("Ready", "True", 2),
                    condition("Stale", "False", 2)
                ])),
                None,
            ),
            (
                "ready before the change",
                live(json!([condition("Ready", "True", 1)])),
                Some(AtWork),
            ),
            (
                "changed while Vault is away",
                live(json!([
                    condition("Ready", "True", 2),
                    condition("Stale", "True", 2)
                ])),
                Some(AtWork),
            ),
            (
                "Vault away",
                live(json!([
                    condition("Ready", "False", 2),
                    condition("Reconciling", "True", 2)
                ])),
                Some(AtWork),
            ),
            (
                "not in Vault",
                live(json!([condition("Ready", "False", 2)])),
                Some(Failed),
            ),
            (
                "ill-formed",
                live(json!([
                    condition("Ready", "False", 2),
                    condition("Stalled", "True", 2)
                ])),
                Some(Failed),
            ),
        ] {
            let waits = awaited(&[(&part, live)]);
            assert_eq!(waits.map(|(health, _)| health), expected, "{name}");
        }
        let absent = live(json!([condition("Stalled", "True", 2)]));
        let (health, said) = awaited(&[(&part, None), (&part, absent)]).unwrap();
        assert_eq!(
            (health, said.as_str()),
            (Failed, "VaultSecret/shop/vault-a: it says so")
        );
    }
}
