//! Whether the machines of a MachineDeployment are those of its template.
//!
//! A MachineDeployment has seen a change before its MachineSets tell that machines are no longer up to date: for a moment it says that
//! nothing rolls, and a roll-out that looks then takes a cluster for done of which no machine was replaced yet. Its MachineSets say it at once:
//! there is one of its template, or there is none. Those that a topology has made are asked too: the inventory knows its Cluster alone.
//! So are MachinePools, of which a Cluster says nothing (`pools`).
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
    pools,
};

/// On a MachineSet: the MachineDeployment that it is of.
const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";

/// On what a topology has made.
const TOPOLOGY_LABEL: &str = "topology.cluster.x-k8s.io/owned";
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
const PAUSED: &str = "cluster.x-k8s.io/paused";

/// Why machines of a cluster are not those of its templates yet. None: they are, or nobody can say.
pub(super) async fn behind(
    parts: &Parts,
    there: &[Option<Value>],
    context: &Context,
) -> Result<Option<String>, Error> {
    for (part, live) in parts.objects.iter().zip(there) {
        let of_cluster_api = part.api_version.starts_with("cluster.x-k8s.io/");
        let Some(live) = live.as_ref().filter(|_| of_cluster_api) else {
            continue;
        };
        let why = match part.kind.as_str() {
            "MachineDeployment" => of_deployment(part, live, context).await,
            "MachinePool" => Ok(pools::behind(live).map(|why| format!("{} {why}", part.title()))),
            "Cluster" if live["spec"]["topology"].is_object() => {
                of_topology(part, live, context).await
            }
            _ => continue,
        };
        let why = match why {
            Err(Error::Api(_, error)) if is_unknown(&error) => continue,
            Err(Error::Api(what, kube::Error::Api(status))) if status.is_forbidden() => {
                return Ok(Some(format!(
                    "{}: nobody may say whether its machines are replaced: let the operator {what}",
                    part.title()
                )));
            }
            why => why?,
        };
        if why.is_some() {
            return Ok(why);
        }
    }
    Ok(None)
}

/// What a topology makes of a Cluster is in no inventory: it is found by its labels.
async fn of_topology(
    cluster: &Part,
    live: &Value,
    context: &Context,
) -> Result<Option<String>, Error> {
    let title = cluster.title();
    if let Some(why) = not_carried_out(live) {
        return Ok(Some(format!("{title} {why}")));
    }
    let kind = Part {
        kind: "MachineDeployment".to_owned(),
        ..cluster.clone()
    };
    let labels = format!("{CLUSTER_LABEL}={},{TOPOLOGY_LABEL}", cluster.name);
    for deployment in listed(&kind, &labels, &title, context).await? {
        let part = Part {
            name: deployment["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            ..kind.clone()
        };
        let why = of_deployment(&part, &deployment, context).await?;
        if why.is_some() {
            return Ok(why);
        }
    }
    // Who has none need not let anybody list them.
    let asked = &live["spec"]["topology"]["workers"]["machinePools"];
    if asked.as_array().is_none_or(Vec::is_empty) {
        return Ok(None);
    }
    let kind = Part {
        kind: "MachinePool".to_owned(),
        ..kind
    };
    let made = listed(&kind, &labels, &title, context).await?;
    Ok(made.iter().find_map(|pool| of_pool(&kind, pool)))
}

/// Why a pool that a topology has made holds a roll-out up: nobody else looks at it.
fn of_pool(kind: &Part, pool: &Value) -> Option<String> {
    let why = pools::at_work(pool).or_else(|| pools::behind(pool))?;
    let name = pool["metadata"]["name"].as_str().unwrap_or_default();
    Some(format!("{}/{}/{name} {why}", kind.kind, kind.namespace))
}

async fn of_deployment(
    part: &Part,
    live: &Value,
    context: &Context,
) -> Result<Option<String>, Error> {
    let kind = Part {
        kind: "MachineSet".to_owned(),
        ..part.clone()
    };
    let labels = format!("{DEPLOYMENT_LABEL}={}", part.name);
    let sets = listed(&kind, &labels, &part.title(), context).await?;
    Ok(waits(live, &sets).map(|why| format!("{} {why}", part.title())))
}

/// The objects of a part's kind with these labels.
async fn listed(
    kind: &Part,
    labels: &str,
    of: &str,
    context: &Context,
) -> Result<Vec<Value>, Error> {
    let labels = ListParams::default().labels(labels);
    let listed = live::api(kind, context).await?.list(&labels).await;
    let listed =
        listed.map_err(|error| Error::Api(format!("list the {}s of {of}", kind.kind), error))?;
    let value = |object: DynamicObject| serde_json::to_value(object).unwrap_or_default();
    Ok(listed.items.into_iter().map(value).collect())
}

/// Why the topology of a Cluster is not what its objects are yet. Pure.
fn not_carried_out(cluster: &Value) -> Option<String> {
    let status = &cluster["status"];
    // Of objects of v1beta1 those that say which change they speak of stand below v1beta2.
    let conditions = [&status["v1beta2"]["conditions"], &status["conditions"]];
    let mut conditions = conditions.into_iter().filter_map(Value::as_array).flatten();
    let reconciled = conditions.find(|condition| condition["type"] == "TopologyReconciled");
    let Some(reconciled) = reconciled else {
        return Some("has a topology that nobody has carried out yet".to_owned());
    };
    let seen = reconciled["observedGeneration"].as_i64();
    if seen.is_some() && seen < cluster["metadata"]["generation"].as_i64() {
        return Some("has a change of its topology that is not carried out yet".to_owned());
    }
    (reconciled["status"] != "True").then(|| {
        let said = reconciled["message"].as_str().unwrap_or_default();
        format!("has a topology that is not carried out: {said}")
    })
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
    let machines = |set: &&Value| set["status"]["replicas"].as_u64().unwrap_or_default();
    let what = match (new.is_empty(), former.iter().map(machines).sum()) {
        (true, _) => "has made no machine from its template yet".to_owned(),
        (false, 0) => return None,
        (false, 1) => "has 1 machine of a former template".to_owned(),
        (false, former) => format!("has {former} machines of former templates"),
    };
    Some(match holds(deployment) {
        Some(why) => format!("{what}: {why}"),
        None => what,
    })
}

/// Why a MachineDeployment replaces no machine by itself.
fn holds(deployment: &Value) -> Option<&'static str> {
    let spec = &deployment["spec"];
    // Of v1beta2, and of v1beta1.
    let strategies = [
        &spec["rollout"]["strategy"]["type"],
        &spec["strategy"]["type"],
    ];
    if spec["paused"] == true || deployment["metadata"]["annotations"][PAUSED].is_string() {
        return Some("it is paused, by spec.paused or by an annotation");
    }
    strategies
        .contains(&&Value::from("OnDelete"))
        .then_some("its strategy is OnDelete, so a machine is replaced when somebody deletes it")
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
        for (field, held) in [
            ("rollout", json!({"strategy": {"type": "OnDelete"}})),
            ("strategy", json!({"type": "OnDelete"})),
            ("paused", json!(true)),
        ] {
            let mut deployment = object("new", 2);
            deployment["spec"][field] = held;
            let told = waits(&deployment, &[object("old", 1), object("new", 1)]).unwrap();
            assert!(
                told.starts_with("has 1 machine of a former template: it"),
                "{told}"
            );
            assert_eq!(waits(&deployment, &[object("new", 2)]), None);
        }
    }

    #[test]
    fn a_topology_waits_until_its_change_is_carried_out() {
        let cluster = |status: &str, seen: u32| {
            let condition = json!({
                "type": "TopologyReconciled", "status": status, "observedGeneration": seen, "message": "MachineDeployment md upgrades",
            });
            json!({"metadata": {"generation": 2}, "status": {"conditions": [condition]}})
        };
        assert_eq!(not_carried_out(&cluster("True", 2)), None);
        let mut older = cluster("True", 1);
        let newer = older["status"]["conditions"].take();
        older["status"] = json!({
            "conditions": [{"type": "TopologyReconciled", "status": "True"}], "v1beta2": {"conditions": newer},
        });
        for (cluster, expected) in [
            (json!({}), "nobody has carried out"),
            (older, "a change of its topology"),
            (cluster("True", 1), "a change of its topology"),
            (cluster("False", 2), "MachineDeployment md upgrades"),
        ] {
            let told = not_carried_out(&cluster).unwrap();
            assert!(told.contains(expected), "{told}");
        }
    }
}
