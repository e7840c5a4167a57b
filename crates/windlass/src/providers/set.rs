//! Sets of providers for people: what `windlass providers plan` says of them, and `windlass providers approve`.

use anyhow::{Context as _, ensure};
use api::provider::{PlanPhase, ProviderSet, SetPlan};
use controller::conditions::READY;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use providers::names::APPROVE;
use serde_json::json;

use super::follow::Awaited;
use crate::{
    cli::{ApprovePlan, Global},
    client::answered,
};

/// All sets of the API; none where their definition is older than they are.
pub(super) async fn all(client: &Client) -> anyhow::Result<Vec<ProviderSet>> {
    let listed = Api::<ProviderSet>::all(client.clone())
        .list(&ListParams::default())
        .await;
    match listed {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        listed => Ok(answered(listed, "list ProviderSet objects")?.items),
    }
}

/// How a set stands, how far its plan is, and what else there is.
pub(super) fn lines(set: &ProviderSet) -> Vec<String> {
    let name = format!(
        "ProviderSet {}/{}",
        set.namespace().unwrap_or_default(),
        set.name_any()
    );
    let Some(status) = &set.status else {
        return vec![format!("{name}: the operator has not seen it yet")];
    };
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|condition| condition.type_ == READY);
    let said = ready.map(|ready| format!("{}: {}", ready.reason, ready.message));
    let mut lines = vec![format!("{name}: {}", said.unwrap_or_default())];
    if let Some(plan) = &status.plan {
        lines.push(format!(
            "  plan {} is {:?}, {} done",
            plan.id, plan.phase, plan.done
        ));
        for one in &plan.upgrades {
            let (from, to, state) = (&one.from, &one.to, one.state.as_str());
            lines.push(format!("    {} {from} to {to}  {state}", one.provider));
        }
    }
    for one in &status.available {
        lines.push(format!(
            "  {} {} is available: {}",
            one.provider, one.version, one.message
        ));
    }
    lines
}

/// Whether a set is about to upgrade one of these.
pub(super) fn is_at_work(set: &ProviderSet, upgrades: &[Awaited]) -> bool {
    let plan = set.status.as_ref().and_then(|status| status.plan.as_ref());
    let plan = plan.filter(|plan| plan.phase == PlanPhase::UnderWay);
    let mut own = plan.into_iter().flat_map(|plan| &plan.upgrades);
    own.any(|one| {
        let is_it = |other: &Awaited| {
            other.namespace == one.namespace
                && other.provider.manifest_label(&other.name) == one.provider
        };
        upgrades.iter().any(is_it)
    })
}

pub(super) async fn approve(global: &Global, options: &ApprovePlan) -> anyhow::Result<()> {
    let client = global.client().await?;
    let api = Api::<ProviderSet>::namespaced(client, &global.namespace);
    let listed = answered(
        api.list(&ListParams::default()).await,
        "list ProviderSet objects",
    )?;
    let sets = listed.items.iter();
    let waiting = sets.filter_map(|set| Some((set.name_any(), waiting(set)?)));
    let waiting: Vec<_> = waiting.collect();
    ensure!(
        !waiting.is_empty(),
        "no plan of a ProviderSet of namespace {} waits: `windlass providers plan` shows how they stand",
        global.namespace
    );
    let there: Vec<_> = waiting.iter().map(|(_, plan)| plan.id.as_str()).collect();
    let found = waiting.iter().find(|(_, plan)| plan.id == options.plan);
    let (name, _) = found.with_context(|| {
        format!(
            "{} is no plan that waits; that is {}",
            options.plan,
            there.join(", ")
        )
    })?;
    let patch = json!({"metadata": {"annotations": {APPROVE: options.plan}}});
    let patched = api
        .patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    answered(patched, &format!("annotate ProviderSet {name}"))?;
    println!("plan {} of ProviderSet {name} may begin", options.plan);
    Ok(())
}

fn waiting(set: &ProviderSet) -> Option<&SetPlan> {
    let plan = set.status.as_ref()?.plan.as_ref()?;
    (plan.phase == PlanPhase::Waiting).then_some(plan)
}

#[cfg(test)]
mod tests {
    use api::provider::ProviderType;

    use super::*;

    #[test]
    fn a_set_tells_how_it_stands_and_how_far_its_plan_is() {
        let mut set: ProviderSet = serde_json::from_value(json!({
            "apiVersion": "providers.windlass.dev/v1alpha1", "kind": "ProviderSet",
            "metadata": {"name": "main", "namespace": "capi-system"}, "spec": {},
            "status": {
                "conditions": [{
                    "type": "Ready", "status": "False", "reason": "UpgradeUnderWay", "message": "at step check/ready",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "plan": {
                    "id": "0a1b2c3d", "phase": "UnderWay", "contract": "v1beta2", "done": "1/2",
                    "upgrades": [
                        {"provider": "cluster-api", "namespace": "capi-system", "from": "v1.13.4", "to": "v1.14.2", "state": "Done"},
                        {"provider": "infrastructure-docker", "namespace": "capd-system", "from": "v1.13.4", "to": "v1.14.2", "state": "UnderWay"},
                    ],
                },
                "available": [{"provider": "infrastructure-metal", "change": "Major", "version": "v2.0.0", "message": "write it"}],
            },
        }))
        .unwrap();
        assert_eq!(
            lines(&set),
            [
                "ProviderSet capi-system/main: UpgradeUnderWay: at step check/ready",
                "  plan 0a1b2c3d is UnderWay, 1/2 done",
                "    cluster-api v1.13.4 to v1.14.2  Done",
                "    infrastructure-docker v1.13.4 to v1.14.2  UnderWay",
                "  infrastructure-metal v2.0.0 is available: write it",
            ]
        );
        let docker = |namespace: &str| Awaited {
            provider: ProviderType::Infrastructure,
            namespace: namespace.to_owned(),
            name: "docker".to_owned(),
            version: None,
            before: None,
        };
        assert!(is_at_work(&set, &[docker("capd-system")]));
        assert!(!is_at_work(&set, &[docker("elsewhere")]));
        set.status = None;
        assert_eq!(
            lines(&set),
            ["ProviderSet capi-system/main: the operator has not seen it yet"]
        );
    }
}
