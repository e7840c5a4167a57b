//! MachinePools: their provider decides, so all that is told is a bound, of whatever it is asked for.

use inventory::impact::{Bound, Happens, Live, What, impact};
use serde_json::{Value, json};

use super::{NAMESPACE, edited, object, reference, short};

/// A pool, the pool of its provider, and what its machines are bootstrapped with.
fn objects() -> [Value; 3] {
    let pool = object(
        "cluster.x-k8s.io",
        "MachinePool",
        "pool",
        json!({"clusterName": "shop", "replicas": 3, "template": {"spec": {
            "clusterName": "shop", "version": "v1.34.4",
            "bootstrap": {"configRef": reference("bootstrap", "KubeadmConfig", "pool")},
            "infrastructureRef": reference("infrastructure", "DevMachinePool", "machines"),
        }}}),
    );
    let machines = object(
        "infrastructure.cluster.x-k8s.io",
        "DevMachinePool",
        "machines",
        json!({"backend": {"docker": {"customImage": "one"}}}),
    );
    let config = object(
        "bootstrap.cluster.x-k8s.io",
        "KubeadmConfig",
        "pool",
        json!({"files": [{"path": "/etc/site", "content": "one"}]}),
    );
    [pool, machines, config]
}

#[test]
fn what_a_pool_names_is_changed_under_its_name_and_that_is_told_of_its_machines() {
    let before = objects();
    for (which, path, value, expected, because) in [
        (
            1,
            "/spec/backend/docker/customImage",
            json!("two"),
            Some((Happens::Replaced, Some(3), Bound::AtMost)),
            "DevMachinePool/machines",
        ),
        (
            2,
            "/spec/files",
            json!([]),
            Some((Happens::Replaced, Some(3), Bound::AtMost)),
            "KubeadmConfig/pool",
        ),
        (
            0,
            "/spec/template/spec/version",
            json!("v1.35.0"),
            Some((Happens::Replaced, Some(3), Bound::AtMost)),
            "spec.template.spec.version",
        ),
        (
            0,
            "/spec/replicas",
            json!(5),
            Some((Happens::Added, Some(2), Bound::Exactly)),
            "replicas",
        ),
        (1, "/metadata/labels", json!({"a": "b"}), None, ""),
    ] {
        let mut after = before.clone();
        after[which] = edited(&after[which], path, value);
        let effects = impact(NAMESPACE, &before, &after, None);
        assert_eq!(effects.first().map(short), expected, "{path}: {effects:?}");
        assert!(effects.len() < 2, "{path}: {effects:?}");
        let told = effects.first().map(|effect| effect.because.join(" "));
        assert_eq!(told.unwrap_or_default(), because, "{path}");
    }
    // Of another pool of the same name.
    let mut other = before.clone();
    other[0] = edited(
        &before[0],
        "/spec/template/spec/infrastructureRef",
        reference("infrastructure", "DockerMachinePool", "machines"),
    );
    let mut after = other.clone();
    after[1] = edited(&after[1], "/spec/backend", json!({}));
    let effects = impact(NAMESPACE, &other, &after, None);
    assert_eq!(effects.len(), 1, "{effects:?}");
    assert_eq!(effects[0].what, What::Unknown);
}

#[test]
fn machines_of_a_pool_are_named_where_its_provider_has_some() {
    let before = objects();
    let mut after = before.clone();
    after[1] = edited(&after[1], "/spec/backend", json!({}));
    let machine = |name: &str| {
        json!({
            "kind": "Machine",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"cluster.x-k8s.io/pool-name": "pool"}},
        })
    };
    let live = Live::new([machine("worker-b"), machine("worker-a")]);
    let effects = impact(NAMESPACE, &before, &after, Some(&live));
    let [effect] = effects.as_slice() else {
        panic!("one effect: {effects:?}");
    };
    assert_eq!(effect.names, ["worker-a", "worker-b"]);
    assert_eq!(short(effect).1, Some(2));
}
