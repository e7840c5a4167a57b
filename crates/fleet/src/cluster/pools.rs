//! Whether the machines of a MachinePool are there, and of its version. Pure.
//!
//! A Cluster says that it is Available, and that nothing rolls, whatever its pools are: Cluster API leaves them out of both, as the
//! controller of pools sets no such conditions yet. What it does set are numbers, what the provider says of its side, and since 1.14 the
//! versions of the Nodes. A provider that replaces machines for anything else than a version shows it by these numbers alone, and by nothing
//! before it begins.
//!
//! # Source
//! Cluster API 1.14.2: `core/reconcilers/cluster/cluster_controller_status.go` (`updateStatus` hands no pools to the conditions),
//! `core/reconcilers/machinepool/machinepool_controller_status.go` (`setReplicas`), `internal/topology/check/upgrade.go`
//! (`IsMachinePoolUpgrading`), `util/annotations/helpers.go` (`ReplicasManagedByExternalAutoscaler`).

use serde_json::Value;

/// Why a pool has not the machines that it is to have. None: it has, or nobody can say.
pub(super) fn at_work(pool: &Value) -> Option<String> {
    let status = &pool["status"];
    // Of v1beta2, and of v1beta1.
    let provisioned = [
        &status["initialization"]["infrastructureProvisioned"],
        &status["infrastructureReady"],
    ];
    if !provisioned.contains(&&Value::Bool(true)) {
        return Some("is not provisioned yet".to_owned());
    }
    if let Some(said) = of_its_provider(status) {
        return Some(format!("waits for the pool of its provider: {said}"));
    }
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let there = number(&status["replicas"]);
    let wanted = pool["spec"]["replicas"].as_u64();
    if let Some(wanted) = wanted.filter(|wanted| *wanted != there && !is_scaled_elsewhere(pool)) {
        return Some(format!("has {there} of {wanted} machines"));
    }
    let ready = number(&status["readyReplicas"]);
    (ready < there).then(|| format!("has {ready} of {there} machines ready"))
}

/// Why machines of a pool are not what it is to be made of yet. None: they are, or nobody can say.
pub(super) fn behind(pool: &Value) -> Option<String> {
    let status = &pool["status"];
    if status["observedGeneration"].as_i64() < pool["metadata"]["generation"].as_i64() {
        return Some("has a change that its operator is at work on".to_owned());
    }
    let counted = [
        &status["upToDateReplicas"],
        &status["v1beta2"]["upToDateReplicas"],
    ];
    let current = counted.into_iter().find_map(Value::as_u64);
    let there = status["replicas"].as_u64().unwrap_or_default();
    if let Some(current) = current.filter(|current| *current < there && !is_scaled_elsewhere(pool))
    {
        return Some(format!("has {current} of {there} machines up to date"));
    }
    let wanted = pool["spec"]["template"]["spec"]["version"].as_str()?;
    let compared = if is_managed(pool) { 2 } else { 3 };
    let versions = status["versions"].as_array().into_iter().flatten();
    let mut known = versions.filter_map(|version| version["version"].as_str());
    let other = known.find(|known| !is_same(known, wanted, compared))?;
    Some(format!("has machines of {other}, and is to be of {wanted}"))
}

/// What the provider says of its pool, where that is that it is not ready. Its condition is mirrored by the controller of pools.
fn of_its_provider(status: &Value) -> Option<&str> {
    let conditions = [
        &status["conditions"],
        &status["deprecated"]["v1beta1"]["conditions"],
    ];
    let mut all = conditions.into_iter().filter_map(Value::as_array).flatten();
    let mirrored = all.find(|condition| {
        condition["type"] == "InfrastructureReady" && condition["status"] == "False"
    })?;
    let words = [&mirrored["message"], &mirrored["reason"]];
    let mut words = words.into_iter().filter_map(Value::as_str);
    words
        .find(|word| !word.is_empty())
        .or(Some("it is not ready"))
}

/// Whether something else than Cluster API says how many machines there are.
fn is_scaled_elsewhere(pool: &Value) -> bool {
    let by = pool["metadata"]["annotations"][MANAGED_BY].as_str();
    by.is_some_and(|by| by != "false")
}

/// Whether a cloud runs the pool: then it chooses the patch release, and often a suffix of its own.
fn is_managed(pool: &Value) -> bool {
    let kind = &pool["spec"]["template"]["spec"]["infrastructureRef"]["kind"];
    kind.as_str().is_some_and(|kind| kind.contains("Managed"))
}

/// Whether two versions are the same in their first numbers. What a distribution puts behind them does not count.
fn is_same(one: &str, other: &str, numbers: usize) -> bool {
    let of = |version: &str| -> Vec<String> {
        let plain = version.trim_start_matches('v').split(['-', '+']).next();
        let parts = plain.unwrap_or_default().split('.').take(numbers);
        parts.map(ToOwned::to_owned).collect()
    };
    of(one) == of(other)
}

const MANAGED_BY: &str = "cluster.x-k8s.io/replicas-managed-by";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pool of three machines that is whole, with what is otherwise.
    fn pool(path: &str, value: Value) -> Value {
        let mut pool = json!({
            "metadata": {"annotations": {}, "generation": 2},
            "spec": {"replicas": 3, "template": {"spec": {"version": "v1.34.4", "infrastructureRef": {"kind": "DevMachinePool"}}}},
            "status": {
                "observedGeneration": 2, "initialization": {"infrastructureProvisioned": true},
                "replicas": 3, "readyReplicas": 3, "upToDateReplicas": 3,
                "versions": [{"version": "v1.34.4", "replicas": 3}], "conditions": [],
                "deprecated": {"v1beta1": {"conditions": []}},
            },
        });
        *pool.pointer_mut(path).unwrap() = value;
        pool
    }

    fn condition(message: &str) -> Value {
        json!([{"type": "InfrastructureReady", "status": "False", "reason": "Scaling", "message": message}])
    }

    #[test]
    fn a_pool_is_at_work_until_it_has_its_machines() {
        let external = json!({MANAGED_BY: "external-autoscaler"});
        let of_v1beta1 = json!({"infrastructureReady": true, "replicas": 3, "readyReplicas": 3});
        for (name, pool, expected) in [
            ("whole", pool("/metadata", json!({})), None),
            ("whole, of v1beta1", pool("/status", of_v1beta1), None),
            (
                "nobody has looked",
                pool("/status", json!({})),
                Some("is not provisioned yet"),
            ),
            (
                "provisioning",
                pool(
                    "/status/initialization",
                    json!({"infrastructureProvisioned": false}),
                ),
                Some("is not provisioned yet"),
            ),
            (
                "growing",
                pool("/spec/replicas", json!(5)),
                Some("has 3 of 5 machines"),
            ),
            (
                "surging",
                pool("/status/replicas", json!(4)),
                Some("has 4 of 3 machines"),
            ),
            (
                "not ready",
                pool("/status/readyReplicas", json!(1)),
                Some("has 1 of 3 machines ready"),
            ),
            (
                "nothing is ready",
                pool("/status/readyReplicas", Value::Null),
                Some("has 0 of 3 machines ready"),
            ),
            (
                "its provider is at work",
                pool("/status/deprecated/v1beta1/conditions", condition("2 of 3")),
                Some("waits for the pool of its provider: 2 of 3"),
            ),
            (
                "its provider is at work, of v1beta1",
                pool("/status/conditions", condition("")),
                Some("waits for the pool of its provider: Scaling"),
            ),
        ] {
            assert_eq!(at_work(&pool).as_deref(), expected, "{name}");
        }
        let mut scaled = pool("/metadata/annotations", external);
        scaled["spec"]["replicas"] = json!(5);
        assert_eq!(at_work(&scaled), None);
        let mut empty = pool("/spec/replicas", json!(0));
        empty["status"]["replicas"] = Value::Null;
        empty["status"]["readyReplicas"] = Value::Null;
        assert_eq!(at_work(&empty), None);
    }

    #[test]
    fn a_pool_is_behind_until_all_nodes_are_of_its_version() {
        let versions = |versions: &[&str]| -> Value {
            versions
                .iter()
                .map(|version| json!({"version": version, "replicas": 1}))
                .collect()
        };
        for (name, pool, expected) in [
            ("whole", pool("/metadata", json!({})), None),
            (
                "nobody has looked",
                pool("/status/observedGeneration", json!(1)),
                Some("has a change that its operator is at work on"),
            ),
            (
                "no version is told",
                pool("/status/versions", Value::Null),
                None,
            ),
            (
                "one of a former",
                pool("/status/versions", versions(&["v1.34.4", "v1.33.13"])),
                Some("has machines of v1.33.13, and is to be of v1.34.4"),
            ),
            (
                "a suffix",
                pool("/status/versions", versions(&["v1.34.4+k3s1"])),
                None,
            ),
            (
                "no version is asked for",
                pool("/spec/template/spec/version", Value::Null),
                None,
            ),
            (
                "one that goes",
                pool("/status/upToDateReplicas", json!(2)),
                Some("has 2 of 3 machines up to date"),
            ),
        ] {
            assert_eq!(behind(&pool).as_deref(), expected, "{name}");
        }
        // A cloud chooses the patch release.
        let managed = |known: &str| {
            let mut pool = pool("/status/versions", versions(&[known]));
            pool["spec"]["template"]["spec"]["infrastructureRef"]["kind"] =
                json!("AWSManagedMachinePool");
            behind(&pool)
        };
        assert_eq!(managed("v1.34.1-eks-113cf36"), None);
        assert!(managed("v1.33.9-eks-113cf36").is_some());
    }
}
