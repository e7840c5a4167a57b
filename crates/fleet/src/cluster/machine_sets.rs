//! Whether the machines of a MachineDeployment are those of its template.
//!
//! A MachineDeployment has seen a change before its MachineSets tell that machines are no longer up to date: for a moment it says that
//! nothing rolls, and a roll-out that looks then takes a cluster for done of which no machine was replaced yet. Its MachineSets say it at once:
//! there is one of its template, or there is none.
//!
//! # Source
//! Cluster API, `internal/controllers/machinedeployment`: a new MachineSet is made where none has the template but for what is brought to
//! machines in place; `RollingOut` counts Machines whose `UpToDate` the controller of MachineSets sets.

use kube::{api::ListParams, core::DynamicObject};
use serde_json::Value;

use super::{
    Context, Error,
    apply::is_unknown,
    live,
    part::{Part, Parts},
};

/// On a MachineSet: the MachineDeployment that it is of.
const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";

/// Why machines of a cluster are not those of its templates yet. None: they are, or nobody can say.
pub(super) async fn behind(
    parts: &Parts,
    there: &[Option<Value>],
    context: &Context,
) -> Result<Option<String>, Error> {
    for (part, live) in parts.objects.iter().zip(there) {
        let is_one =
            part.kind == "MachineDeployment" && part.api_version.starts_with("cluster.x-k8s.io/");
        let Some(live) = live.as_ref().filter(|_| is_one) else {
            continue;
        };
        let sets = match of(part, context).await {
            Err(Error::Api(_, error)) if is_unknown(&error) => continue,
            Err(Error::Api(_, kube::Error::Api(status))) if status.is_forbidden() => {
                let of = part.title();
                return Ok(Some(format!(
                    "{of}: nobody may say whether its machines are replaced: let the operator list machinesets.cluster.x-k8s.io there"
                )));
            }
            sets => sets?,
        };
        if let Some(why) = waits(live, &sets) {
            return Ok(Some(format!("{} {why}", part.title())));
        }
    }
    Ok(None)
}

async fn of(part: &Part, context: &Context) -> Result<Vec<Value>, Error> {
    let kind = Part {
        kind: "MachineSet".to_owned(),
        ..part.clone()
    };
    let labels = ListParams::default().labels(&format!("{DEPLOYMENT_LABEL}={}", part.name));
    let sets = live::api(&kind, context).await?.list(&labels).await;
    let sets = sets
        .map_err(|error| Error::Api(format!("list the MachineSets of {}", part.title()), error))?;
    let value = |set: DynamicObject| serde_json::to_value(set).unwrap_or_default();
    Ok(sets.items.into_iter().map(value).collect())
}

/// What a MachineDeployment waits for, by its MachineSets. Pure.
fn waits(deployment: &Value, sets: &[Value]) -> Option<String> {
    let made_from = |object: &Value| {
        let spec = &object["spec"]["template"]["spec"];
        [
            &spec["infrastructureRef"]["name"],
            &spec["bootstrap"]["configRef"]["name"],
            &spec["bootstrap"]["dataSecretName"],
            &spec["version"],
            &spec["failureDomain"],
        ]
        .map(Value::clone)
    };
    let wanted = made_from(deployment);
    let (new, former): (Vec<_>, Vec<_>) = sets.iter().partition(|set| made_from(set) == wanted);
    if new.is_empty() {
        return Some("has made no machine from its template yet".to_owned());
    }
    let machines = |set: &&Value| set["status"]["replicas"].as_u64().unwrap_or_default();
    match former.iter().map(machines).sum() {
        0 => None,
        1 => Some("has 1 machine of a former template".to_owned()),
        former => Some(format!("has {former} machines of former templates")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_waits_until_its_machines_are_of_its_template() {
        let object = |config: &str, replicas: u32| {
            let spec = json!({
                "infrastructureRef": {"name": "m"}, "bootstrap": {"configRef": {"name": config}}, "version": "v1.34.4",
            });
            json!({"spec": {"template": {"spec": spec}}, "status": {"replicas": replicas}})
        };
        let deployment = object("new", 2);
        for (why, sets, expected) in [
            (
                "the change was not looked at",
                vec![object("old", 2)],
                Some("has made no machine from its template yet"),
            ),
            (
                "one is replaced",
                vec![object("old", 2), object("new", 1)],
                Some("has 2 machines of former templates"),
            ),
            (
                "the last is",
                vec![object("old", 1), object("new", 2)],
                Some("has 1 machine of a former template"),
            ),
            (
                "all are, and history is kept",
                vec![object("old", 0), object("new", 2)],
                None,
            ),
            ("none is wanted", vec![object("new", 0)], None),
        ] {
            assert_eq!(waits(&deployment, &sets).as_deref(), expected, "{why}");
        }
        let mut other = object("new", 2);
        other["spec"]["template"]["spec"]["version"] = json!("v1.33.13");
        assert!(waits(&deployment, &[other]).is_some());
    }
}
