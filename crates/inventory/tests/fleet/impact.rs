//! What an edit does to machines and hosts. The rows follow Cluster API 1.14.2; `tests/e2e` compares them with real controllers.

use std::collections::BTreeSet;

use inventory::impact::{Bound, Effect, Happens, Live, Summary, What, impact};
use proptest::prelude::*;
use serde_json::{Value, json};

const NAMESPACE: &str = "fleet";

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
fn what_is_left_to_an_autoscaler_has_its_bounds_alone() {
    let left = |least: &str, most: &str| {
        let mut object = deployment();
        object["spec"].as_object_mut().unwrap().remove("replicas");
        object["metadata"]["annotations"] = json!({
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": least,
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": most,
        });
        object
    };
    let newer = |object: &Value| edited(object, "/spec/template/spec/version", json!("v1.35.0"));
    let live = live("worker", 4, "v1.34.4");
    let with = |before: &Value, after: &Value| {
        let effects = between(before, after, Some(&live));
        effects.iter().map(short).collect::<Vec<_>>()
    };
    let wide = left("1", "10");
    assert_eq!(told(&wide, &newer(&wide)), "(Replaced, None, Exactly)");
    assert_eq!(
        with(&wide, &newer(&wide)),
        [(Happens::Replaced, Some(4), Bound::Exactly)]
    );
    assert_eq!(
        with(&wide, &left("6", "10")),
        [(Happens::Added, Some(2), Bound::Exactly)]
    );
    assert_eq!(
        with(&wide, &left("1", "3")),
        [(Happens::Removed, Some(1), Bound::Exactly)]
    );
    assert_eq!(with(&wide, &left("2", "9")), []);
    // It is handed over as it stands.
    assert_eq!(told(&deployment(), &wide), "");
    assert_eq!(
        Summary::of(&between(&wide, &newer(&wide), None)).to_string(),
        "all Machines of 1 groups replaced"
    );
}

#[test]
fn replicas_are_left_to_an_autoscaler_that_is_asked_for() {
    const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
    const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    let rendered = |annotations: &str| {
        let text = crate::two_levels("[]", "{}", "{}").replace(
            "{object: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}}",
            &format!(
                "
  {{object: {{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, metadata: {{name: w, {annotations}}}, spec: {{replicas: 3, clusterName: c}}}}}},
  {{object: {{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachinePool, metadata: {{name: p, {annotations}}}, spec: {{replicas: 3, clusterName: c}}}}}},
  {{object: {{apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlane, metadata: {{name: k, {annotations}}}, spec: {{replicas: 3}}}}}},
  {{object: {{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {{name: c}}, spec: {{topology: {{workers: {{machineDeployments: [
    {{name: a, replicas: 3, metadata: {{{annotations}}}}}, {{name: b, replicas: 3}}]}}}}}}}}}}"
            ),
        );
        let objects = crate::render(&text).unwrap().objects();
        let workers = objects[3]["spec"]["topology"]["workers"]["machineDeployments"].clone();
        let parts = objects[..3].iter().map(|object| &object["spec"]);
        let parts = parts.chain(workers.as_array().unwrap());
        parts
            .map(|part| part["replicas"].as_u64())
            .collect::<Vec<_>>()
    };
    let all = vec![Some(3); 5];
    assert_eq!(rendered(""), all);
    // Cluster API takes it for one that is scaled by an autoscaler if both are there.
    assert_eq!(rendered(&format!("annotations: {{{MIN}: '1'}}")), all);
    assert_eq!(
        rendered(&format!("annotations: {{{MIN}: '1', {MAX}: '5'}}")),
        [None, None, Some(3), None, Some(3)]
    );
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

/// Edits of a MachineDeployment: a path and its values.
fn edits() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let edit = prop_oneof![
        (0..4u32).prop_map(|number| (
            "/spec/template/spec/version",
            json!(format!("v1.3{number}.0"))
        )),
        (0..6u32).prop_map(|number| ("/spec/replicas", json!(number))),
        (0..3u32).prop_map(|number| (
            "/spec/template/spec/deletion",
            json!({"nodeDrainTimeoutSeconds": number})
        )),
        "[a-c]".prop_map(|text| ("/spec/template/metadata", json!({"labels": {"x": text}}))),
        "[a-c]".prop_map(|text| ("/metadata/labels", json!({"x": text}))),
    ];
    prop::collection::vec(edit, 0..4)
}

fn after(edits: &[(&str, Value)], from: &Value) -> Value {
    let edits = edits.iter();
    edits.fold(from.clone(), |object, (path, value)| {
        edited(&object, path, value.clone())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn an_edit_and_the_machines_that_there_are_come_to_what_is_declared(
        first in edits(),
        second in edits(),
        olds in prop::collection::vec(0..4u32, 0..6),
    ) {
        // Of a roll-out that may be under way, so Machines of several versions.
        let mut before = after(&first, &deployment());
        let versions: Vec<_> = olds.iter().map(|old| format!("v1.3{old}.0")).collect();
        before["spec"]["replicas"] = json!(versions.len());
        let wanted = after(&second, &before);
        let live = Live::new(world("worker", &versions));
        let effects = between(&before, &wanted, Some(&live));
        let count = |happens: Happens| Summary::of(&effects).count(What::Machine, happens) as usize;
        let (added, removed) = (count(Happens::Added), count(Happens::Removed));
        let replicas = wanted["spec"]["replicas"].as_u64().unwrap() as usize;
        prop_assert_eq!(versions.len() + added - removed, replicas);
        // Each Machine is told of once at most, and is one that there is.
        let named: Vec<_> = effects.iter().flat_map(|effect| effect.names.clone()).collect();
        let known: BTreeSet<_> = named.iter().cloned().collect();
        prop_assert_eq!(named.len(), known.len());
        let there: BTreeSet<_> = (0..versions.len()).map(|number| format!("m{number}")).collect();
        prop_assert!(known.is_subset(&there));
        // Those that are not what is declared go, if it is the edit that says something else, and no others are replaced.
        let version = wanted["spec"]["template"]["spec"]["version"].as_str().unwrap();
        let is_rolled = before["spec"]["template"]["spec"]["version"] != version;
        let old = versions.iter().filter(|known| *known != version).count();
        let expected = if is_rolled { old.saturating_sub(removed) } else { 0 };
        prop_assert_eq!(count(Happens::Replaced), expected);
        prop_assert!(count(Happens::Replaced) + removed + count(Happens::Updated) <= versions.len());
    }

    #[test]
    fn what_is_not_edited_touches_nothing(edits in edits()) {
        let object = after(&edits, &deployment());
        let all = [object, plane(), topology()];
        prop_assert_eq!(impact(NAMESPACE, &all, &all, None), Vec::new());
    }

    #[test]
    fn an_edit_of_what_is_brought_to_machines_replaces_none(edits in edits()) {
        let is_free = |(path, _): &&(&'static str, Value)| !path.ends_with("version") && !path.ends_with("replicas");
        let edits: Vec<_> = edits.iter().filter(is_free).cloned().collect();
        let effects = between(&deployment(), &after(&edits, &deployment()), None);
        prop_assert!(effects.iter().all(|effect| short(effect) == (Happens::Updated, Some(3), Bound::Exactly)));
    }

    #[test]
    fn without_looking_at_machines_the_numbers_are_the_same(edits in edits()) {
        let mut before = deployment();
        before["spec"]["template"]["spec"]["version"] = json!("v1.34.0");
        let wanted = after(&edits, &before);
        let looked = between(&before, &wanted, Some(&live("worker", 3, "v1.34.0")));
        let looked: Vec<_> = looked.iter().map(short).collect();
        let counted: Vec<_> = between(&before, &wanted, None).iter().map(short).collect();
        prop_assert_eq!(looked, counted);
    }
}
