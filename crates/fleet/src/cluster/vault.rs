//! The VaultSecrets of a cluster: nothing that refers to a Secret of theirs is written before it is there. Pure.
//!
//! The cluster's operator would stall on a Secret that is missing, and a roll-out would take that for a canary that failed. A VaultSecret
//! that stays as it was keeps nothing back: its Secret is there, whether Vault can be read or not.

use api::inventory::FleetHealth;
use serde_json::Value;

use super::part::Part;

/// Why what refers to these VaultSecrets, which are new or were changed, cannot be written yet, and how the cluster stands for that.
/// None: nothing holds it back.
pub(super) fn awaited(secrets: &[(&Part, Option<Value>)]) -> Option<(FleetHealth, String)> {
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

fn one(part: &Part, live: Option<&Value>) -> Option<(FleetHealth, String)> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_written_before_its_secret_is_there() {
        use FleetHealth::{AtWork, Failed};
        let part = Part {
            value: json!({}),
            api_version: "secrets.windlass.dev/v1alpha1".to_owned(),
            kind: "VaultSecret".to_owned(),
            namespace: "shop".to_owned(),
            name: "vault-a".to_owned(),
        };
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
