//! Objects that no rule reads: nobody knows what an edit of them touches, and that is told instead of nothing.

use inventory::impact::{Effect, Happens, Summary, What, impact};
use serde_json::{Value, json};

use super::{NAMESPACE, between, deployment, edited, object, plane, topology};

/// The object in another version of its API.
fn in_version(object: &Value, version: &str) -> Value {
    let group = object["apiVersion"].as_str().unwrap();
    let (group, _) = group.split_once('/').unwrap();
    edited(object, "/apiVersion", json!(format!("{group}/{version}")))
}

fn lines(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(ToString::to_string).collect()
}

#[test]
fn a_version_that_nobody_has_seen_may_touch_anything() {
    for (object, path, value) in [
        (
            deployment(),
            "/spec/template/spec/version",
            json!("v1.35.0"),
        ),
        (plane(), "/spec/version", json!("v1.35.0")),
        (topology(), "/spec/topology/version", json!("v1.35.0")),
        // Where a later version has what is read here is not known either.
        (deployment(), "/spec/scale", json!({"count": 5})),
    ] {
        let new = in_version(&object, "v1beta3");
        let changed = edited(&new, path, value);
        let title = format!("{}/{NAMESPACE}/", object["kind"].as_str().unwrap());
        for (before, after) in [(&new, &changed), (&object, &changed)] {
            let effects = between(before, after, None);
            let [effect] = effects.as_slice() else {
                panic!("one effect: {effects:?}");
            };
            assert_eq!((effect.what, effect.count), (What::Unknown, None));
            assert_eq!(effect.happens, Happens::Unknown);
            let line = effect.to_string();
            let told = ": nothing is known of what its change touches (apiVersion ";
            assert!(line.starts_with(&title) && line.contains(told), "{line}");
            assert!(line.contains("/v1beta3, spec."), "{line}");
            let summary = Summary::of(&effects).to_string();
            assert_eq!(summary, "nothing is known of 1 object");
        }
        // Those that come or go may bring or take machines; what stays the same does nothing.
        let some = std::slice::from_ref(&new);
        assert_eq!(impact(NAMESPACE, &[], some, None).len(), 1, "{new}");
        assert_eq!(impact(NAMESPACE, some, &[], None).len(), 1, "{new}");
        assert_eq!(between(&new, &new, None), []);
        assert_eq!(between(&object, &new, None), []);
        // The versions that are known are read by the same rules.
        let (old, known) = (
            in_version(&object, "v1beta1"),
            in_version(&changed, "v1beta2"),
        );
        let mut effects = between(&old, &known, None);
        effects.retain(|effect| effect.what == What::Unknown);
        assert_eq!(effects, []);
    }
}

#[test]
fn of_a_kind_without_a_rule_nothing_is_known_if_it_says_something_else() {
    let infrastructure = "infrastructure.cluster.x-k8s.io";
    let network = object(infrastructure, "DevCluster", "shop", json!({"backend": {}}));
    let changed = edited(&network, "/spec/network", json!("other"));
    assert_eq!(
        lines(&between(&network, &changed, None)),
        [
            "DevCluster/fleet/shop: nothing is known of what its change touches (apiVersion infrastructure.cluster.x-k8s.io/v1beta2, spec.network)"
        ]
    );
    let labelled = edited(&network, "/metadata/labels", json!({"a": "b"}));
    assert_eq!(between(&network, &labelled, None), []);
    let one = std::slice::from_ref(&network);
    assert_eq!(impact(NAMESPACE, &[], one, None), []);
    // What has no spec says what it says elsewhere.
    let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": text}});
    assert_eq!(
        lines(&between(&map("1"), &map("2"), None)),
        ["ConfigMap/fleet/m: nothing is known of what its change touches (apiVersion v1, data)"]
    );
    // What is known is summed up beside it.
    let before = [deployment(), network.clone(), map("1")];
    let workers = edited(&deployment(), "/spec/replicas", json!(5));
    let after = [workers, changed, map("2")];
    assert_eq!(
        Summary::of(&impact(NAMESPACE, &before, &after, None)).to_string(),
        "2 Machines added, nothing is known of 2 objects"
    );
}

#[test]
fn what_somebody_names_that_has_a_rule_is_told_of_that() {
    let template = |group: &str, kind: &str, name: &str, size: u32| {
        let group = format!("{group}.cluster.x-k8s.io");
        let template = object(&group, kind, name, json!({"size": size}));
        in_version(&template, "v1alpha7")
    };
    let of = |group: &'static str, kind: &'static str, name: &'static str| {
        [1, 2].map(|size| template(group, kind, name, size))
    };
    let of_workers = of("infrastructure", "DevMachineTemplate", "m-1");
    let of_nobody = of("infrastructure", "DevMachineTemplate", "m-2");
    let count = |[before, after]: &[Value; 2]| {
        let all = |one: &Value| [deployment(), plane(), one.clone()];
        let effects = impact(NAMESPACE, &all(before), &all(after), None);
        let unknown = effects.iter().filter(|effect| effect.what == What::Unknown);
        (unknown.count(), effects.len())
    };
    assert_eq!(count(&of_workers), (0, 2));
    assert_eq!(count(&of_nobody), (1, 1));
    // The one that it was made from before is followed, too.
    let mut before = [deployment(), of_workers[0].clone()];
    let reference = "/spec/template/spec/infrastructureRef/name";
    let after = [
        edited(&before[0], reference, json!("m-3")),
        of_workers[1].clone(),
    ];
    assert_eq!(impact(NAMESPACE, &before, &after, None).len(), 1);
    // Whoever names it and is not read here says nothing of it.
    before[0] = in_version(&before[0], "v1beta3");
    let after = [before[0].clone(), of_workers[1].clone()];
    let effects = impact(NAMESPACE, &before, &after, None);
    assert_eq!(effects.len(), 1, "{effects:?}");
    assert_eq!(effects[0].of.kind, "DevMachineTemplate");
}

#[test]
fn a_vault_secret_touches_no_machine_by_itself() {
    let secret = |path: &str| {
        object(
            "secrets.windlass.dev",
            "VaultSecret",
            "s",
            json!({"path": path}),
        )
    };
    assert_eq!(between(&secret("a"), &secret("b"), None), []);
}
