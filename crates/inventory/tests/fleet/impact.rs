//! What an edit does to machines and hosts. The rows follow Cluster API 1.14.2; `tests/e2e` compares them with real controllers.

use inventory::impact::{Bound, Effect, Happens, Live, Summary, impact};
use serde_json::{Value, json};

mod autoscaler;
mod laws;
mod pool;
mod unknown;

const NAMESPACE: &str = "fleet";

#[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
fn object(group: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{group}/v1beta2"), "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}

fn reference(group: &str, kind: &str, name: &str) -> Value {
    json!({"apiGroup": format!("{group}.cluster.x-k8s.io"), "kind": kind, "name": name})
}

fn deployment() -> Value {
    object(
        "cluster.x-k8s.io",
        "MachineDeployment",
        "worker",
        json!({"clusterName": "shop", "replicas": 3, "template": {"spec": {
            "clusterName": "shop", "version": "v1.34.4",
            "bootstrap": {"configRef": reference("bootstrap", "KubeadmConfigTemplate", "c-1")},
            "infrastructureRef": reference("infrastructure", "DevMachineTemplate", "m-1"),
        }}}),
    )
}

fn plane() -> Value {
    object(
        "controlplane.cluster.x-k8s.io",
        "KubeadmControlPlane",
        "plane",
        json!({
            "replicas": 3, "version": "v1.34.4",
            "kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": ["a"]}}},
            "machineTemplate": {"spec": {"infrastructureRef": reference("infrastructure", "DevMachineTemplate", "m-1")}},
        }),
    )
}

fn topology() -> Value {
    object(
        "cluster.x-k8s.io",
        "Cluster",
        "shop",
        json!({"topology": {
            "classRef": {"name": "class"}, "version": "v1.34.4", "variables": [{"name": "x", "value": 1}],
            "controlPlane": {"replicas": 1},
            "workers": {"machineDeployments": [{"class": "w", "name": "a", "replicas": 2}, {"class": "w", "name": "b", "replicas": 3}]},
        }}),
    )
}

fn edited(object: &Value, path: &str, value: Value) -> Value {
    let mut object = object.clone();
    let (parent, key) = path.rsplit_once('/').unwrap();
    let mut at = &mut object;
    for key in parent.split('/').skip(1) {
        at = match at {
            Value::Array(list) => &mut list[key.parse::<usize>().unwrap()],
            map => &mut map[key],
        };
    }
    at[key] = value;
    object
}

/// What is told of an edit of one object.
fn told(before: &Value, after: &Value) -> String {
    let effects = between(before, after, None);
    effects
        .iter()
        .map(|effect| format!("{:?}", short(effect)))
        .collect::<Vec<_>>()
        .join(" ")
}

fn short(effect: &Effect) -> (Happens, Option<u32>, Bound) {
    (effect.happens, effect.count, effect.bound)
}

fn between(before: &Value, after: &Value, live: Option<&Live>) -> Vec<Effect> {
    impact(
        NAMESPACE,
        std::slice::from_ref(before),
        std::slice::from_ref(after),
        live,
    )
}

#[test]
fn a_field_replaces_machines_or_is_brought_to_them_or_touches_none() {
    let replaced = |count: u32| format!("(Replaced, Some({count}), Exactly)");
    let at_most = |count: u32| format!("(Replaced, Some({count}), AtMost)");
    let updated = |count: u32| format!("(Updated, Some({count}), Exactly)");
    let (workers, plane) = (deployment(), plane());
    for (object, path, value, expected) in [
        (
            &workers,
            "/spec/template/spec/version",
            json!("v1.35.0"),
            replaced(3),
        ),
        // The webhook puts the v before it.
        (
            &workers,
            "/spec/template/spec/version",
            json!("1.34.4"),
            String::new(),
        ),
        (
            &workers,
            "/spec/template/spec/failureDomain",
            json!("z"),
            replaced(3),
        ),
        (
            &workers,
            "/spec/template/spec/infrastructureRef/name",
            json!("m-2"),
            replaced(3),
        ),
        (
            &workers,
            "/spec/template/spec/bootstrap/configRef/name",
            json!("c-2"),
            replaced(3),
        ),
        (
            &workers,
            "/spec/template/spec/bootstrap/dataSecretName",
            json!("s"),
            replaced(3),
        ),
        (
            &workers,
            "/spec/template/spec/deletion",
            json!({"nodeDrainTimeoutSeconds": 9}),
            updated(3),
        ),
        (
            &workers,
            "/spec/template/spec/minReadySeconds",
            json!(9),
            updated(3),
        ),
        (
            &workers,
            "/spec/template/spec/taints",
            json!([{"key": "a"}]),
            updated(3),
        ),
        (
            &workers,
            "/spec/template/metadata",
            json!({"labels": {"a": "b"}}),
            updated(3),
        ),
        (
            &workers,
            "/metadata/labels",
            json!({"a": "b"}),
            String::new(),
        ),
        (
            &workers,
            "/spec/rollout",
            json!({"strategy": {"rollingUpdate": {"maxSurge": 2}}}),
            String::new(),
        ),
        (
            &workers,
            "/spec/rollout",
            json!({"after": "2026-01-01T00:00:00Z"}),
            at_most(3),
        ),
        (
            &workers,
            "/spec/template/spec/taints",
            json!([]),
            String::new(),
        ),
        (
            &workers,
            "/spec/replicas",
            json!(5),
            "(Added, Some(2), Exactly)".to_owned(),
        ),
        (
            &workers,
            "/spec/replicas",
            json!(1),
            "(Removed, Some(2), Exactly)".to_owned(),
        ),
        // Nobody owns the field then, and the webhook puts 1.
        (
            &workers,
            "/spec/replicas",
            Value::Null,
            "(Removed, Some(2), Exactly)".to_owned(),
        ),
        (&plane, "/spec/version", json!("v1.35.0"), replaced(3)),
        (
            &plane,
            "/spec/machineTemplate/spec/infrastructureRef/name",
            json!("m-2"),
            replaced(3),
        ),
        (
            &plane,
            "/spec/kubeadmConfigSpec/files",
            json!([{"path": "/a"}]),
            replaced(3),
        ),
        (
            &plane,
            "/spec/kubeadmConfigSpec/clusterConfiguration/apiServer",
            json!({}),
            replaced(3),
        ),
        (
            &plane,
            "/spec/kubeadmConfigSpec/clusterConfiguration/dns",
            json!({"imageTag": "1"}),
            String::new(),
        ),
        (
            &plane,
            "/spec/kubeadmConfigSpec/joinConfiguration",
            json!({"discovery": {"tlsBootstrapToken": "x"}}),
            String::new(),
        ),
        (
            &plane,
            "/spec/kubeadmConfigSpec/joinConfiguration",
            json!({"nodeRegistration": {"name": "x"}}),
            at_most(3),
        ),
        // As it joined it would be the same, so the first one stays.
        (
            &plane,
            "/spec/kubeadmConfigSpec/initConfiguration",
            json!({"nodeRegistration": {"name": "x"}}),
            String::new(),
        ),
        (
            &plane,
            "/spec/machineTemplate/spec/deletion",
            json!({"nodeDrainTimeoutSeconds": 9}),
            updated(3),
        ),
        (
            &plane,
            "/spec/machineTemplate/metadata",
            json!({"annotations": {"a": "b"}}),
            updated(3),
        ),
        (
            &plane,
            "/spec/remediation",
            json!({"maxRetry": 9}),
            String::new(),
        ),
        (
            &plane,
            "/spec/replicas",
            json!(5),
            "(Added, Some(2), Exactly)".to_owned(),
        ),
    ] {
        let told = told(object, &edited(object, path, value.clone()));
        assert_eq!(told, expected, "{path} {value}");
    }
}

#[test]
fn a_topology_tells_its_parts_and_what_only_its_class_knows() {
    let topology = topology();
    let a = "/spec/topology/workers/machineDeployments/0";
    for (path, value, expected) in [
        (
            "/spec/topology/version".to_owned(),
            json!("v1.35.0"),
            "1 Machine, 2 Machines, 3 Machines",
        ),
        (
            "/spec/topology/variables".to_owned(),
            json!([]),
            "at most 1 Machine, at most 2 Machines, at most 3 Machines",
        ),
        (format!("{a}/failureDomain"), json!("z"), "2 Machines"),
        (
            format!("{a}/variables"),
            json!({"overrides": [1]}),
            "at most 2 Machines",
        ),
    ] {
        let effects = between(&topology, &edited(&topology, &path, value), None);
        let told: Vec<_> = effects
            .iter()
            .map(|effect| {
                assert_eq!(effect.happens, Happens::Replaced);
                let text = effect.to_string();
                let (_, text) = text.split_once(": ").unwrap();
                text.split_once(" replaced").unwrap().0.to_owned()
            })
            .collect();
        assert_eq!(told.join(", "), expected, "{path}");
    }
    let gone = edited(
        &topology,
        "/spec/topology/workers",
        json!({"machineDeployments": [{"class": "w", "name": "b", "replicas": 4}, {"class": "w", "name": "c", "replicas": 1}]}),
    );
    let told: Vec<_> = between(&topology, &gone, None)
        .iter()
        .map(|effect| (effect.part.clone().unwrap(), effect.happens, effect.count))
        .collect();
    let part = |name: &str| format!("machineDeployments[{name}]");
    assert_eq!(
        told,
        [
            (part("a"), Happens::Removed, Some(2)),
            (part("b"), Happens::Added, Some(1)),
            (part("c"), Happens::Added, Some(1)),
        ]
    );
}

#[test]
fn what_is_changed_under_the_name_of_a_template_replaces_nothing() {
    let template = |size: u32| {
        object(
            "infrastructure.cluster.x-k8s.io",
            "DevMachineTemplate",
            "m-1",
            json!({"size": size}),
        )
    };
    let objects = |size| [deployment(), plane(), template(size)];
    let effects = impact(NAMESPACE, &objects(1), &objects(2), None);
    let happens: Vec<_> = effects.iter().map(short).collect();
    assert_eq!(
        happens,
        [(Happens::Outdated, Some(3), Bound::Exactly); 2],
        "{effects:?}"
    );
    assert_eq!(
        effects[0].because,
        ["DevMachineTemplate/m-1 under its name"]
    );
    let on_delete = edited(
        &deployment(),
        "/spec/rollout",
        json!({"strategy": {"type": "OnDelete"}}),
    );
    let other = edited(&on_delete, "/spec/template/spec/version", json!("v1.35.0"));
    assert_eq!(told(&on_delete, &other), "(Outdated, Some(3), Exactly)");
}

#[test]
fn the_first_machine_of_a_control_plane_and_the_others_are_told_apart() {
    let machine = |name: &str| {
        json!({
            "kind": "Machine",
            "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [
                {"kind": "KubeadmControlPlane", "name": "plane", "controller": true},
            ]},
            "spec": {"bootstrap": {"configRef": {"name": name}}},
        })
    };
    let config = |name: &str, spec: Value| json!({"kind": "KubeadmConfig", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec});
    let joined = json!({"joinConfiguration": {"controlPlane": {}}});
    let live = Live::new([
        machine("first"),
        machine("second"),
        machine("third"),
        config("first", json!({"clusterConfiguration": {}})),
        config("second", joined.clone()),
        config("third", joined),
    ]);
    let registers = |key: &str, name: &str| {
        (
            format!("/spec/kubeadmConfigSpec/{key}"),
            json!({"nodeRegistration": {"name": name}}),
        )
    };
    let with = |object: &Value, keys: &[&str], name: &str| {
        let mut object = object.clone();
        for key in keys {
            let (path, value) = registers(key, name);
            object = edited(&object, &path, value);
        }
        object
    };
    let (init, join) = ("initConfiguration", "joinConfiguration");
    let (none, all) = (plane(), with(&plane(), &[init, join], "a"));
    let apart = with(&with(&plane(), &[init], "a"), &[join], "b");
    for (before, after, expected) in [
        (&none, with(&none, &[join], "a"), vec!["second", "third"]),
        (&all, with(&all, &[join], "b"), vec!["second", "third"]),
        (&all, with(&all, &[init], "b"), vec![]),
        (
            &all,
            with(&all, &[init, join], "b"),
            vec!["first", "second", "third"],
        ),
        (&apart, with(&apart, &[init], "c"), vec!["first"]),
    ] {
        let effects = between(before, &after, Some(&live));
        let names: Vec<_> = effects
            .iter()
            .flat_map(|effect| effect.names.clone())
            .collect();
        assert_eq!(names, expected, "{after}");
    }
}

#[test]
fn hosts_join_leave_and_are_worked_on() {
    let node = |name: &str, address: &str| {
        json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"type": "worker", "inventory": {"ansible_host": address}},
        })
    };
    let cluster = |spec: Value| json!({"apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "shop", "namespace": "shop"}, "spec": spec});
    let before = [
        cluster(json!({"kubernetesVersion": "1.34.3", "operations": {"upgrade": {}}})),
        node("a", "1"),
        node("b", "1"),
        node("c", "1"),
    ];
    let summary = |cluster: Value, nodes: &[Value]| {
        let after: Vec<_> = std::iter::once(cluster).chain(nodes.to_vec()).collect();
        Summary::of(&impact(NAMESPACE, &before, &after, None)).to_string()
    };
    let same = &before[1..];
    let now = |version: &str, more: Value| {
        cluster(json!({"kubernetesVersion": version, "operations": more}))
    };
    assert_eq!(
        summary(now("1.34.3", json!({"upgrade": {"serial": 1}})), same),
        "no Machine and no host is touched"
    );
    assert_eq!(
        summary(now("1.35.0", json!({})), same),
        "at most 3 hosts updated in place"
    );
    assert_eq!(
        summary(
            before[0].clone(),
            &[node("a", "2"), node("c", "1"), node("d", "1")]
        ),
        "1 host added, 1 host removed, 1 host updated in place"
    );
    // One that is worked on for two reasons is one host.
    assert_eq!(
        summary(
            now("1.35.0", json!({})),
            &[node("a", "2"), node("b", "1"), node("c", "1")]
        ),
        "at most 3 hosts updated in place"
    );
}

/// Machines of a MachineDeployment, of one MachineSet.
fn live(deployment: &str, count: u32, version: &str) -> Live {
    Live::new(world(deployment, &vec![version.to_owned(); count as usize]))
}

/// Machines, each of a MachineSet of its version.
fn world(deployment: &str, versions: &[String]) -> Vec<Value> {
    let mut objects = Vec::new();
    for (number, version) in versions.iter().enumerate() {
        let labels = json!({"cluster.x-k8s.io/deployment-name": deployment});
        let mut template = self::deployment()["spec"]["template"].clone();
        template["spec"]["version"] = json!(version);
        objects.push(json!({
            "kind": "Machine",
            "metadata": {
                "name": format!("m{number}"), "namespace": NAMESPACE, "labels": labels,
                "ownerReferences": [{"kind": "MachineSet", "name": format!("set-{version}"), "controller": true}],
            },
        }));
        objects.push(json!({
            "kind": "MachineSet", "metadata": {"name": format!("set-{version}"), "namespace": NAMESPACE},
            "spec": {"template": template},
        }));
    }
    objects
}
