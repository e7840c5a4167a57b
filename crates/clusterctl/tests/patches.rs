//! Patches of rendered objects.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use clusterctl::{
    Object,
    patch::{ManifestPatch, Matched, Matching, Patch, PatchError, PatchTarget},
};
use serde_json::{Value, json};

fn objects() -> Vec<Object> {
    [
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one", "namespace": "a", "labels": {"tier": "front"}},
               "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "manager", "args": ["--a", "--b"]}]}}}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "two", "namespace": "b"}, "spec": {"replicas": 1}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one", "namespace": "a"}, "spec": {"ports": [{"port": 1}]}}),
    ]
    .map(|value| Object::new(value).unwrap())
    .to_vec()
}

fn manifest(patch: &str, matching: Matching) -> Result<(Vec<Object>, usize), PatchError> {
    let mut objects = objects();
    let Matched(matched) = ManifestPatch::parse(patch)?.apply(&mut objects, matching)?;
    Ok((objects, matched))
}

fn with_target(patch: &str, target: Value) -> Result<(Vec<Object>, usize), PatchError> {
    let mut objects = objects();
    let target: PatchTarget = serde_json::from_value(target).unwrap();
    let Matched(matched) = Patch::parse(patch, &target)?.apply(&mut objects)?;
    Ok((objects, matched))
}

#[test]
fn a_manifest_patch_is_for_what_it_names() {
    let cases = [
        ("kind: Deployment", 2, 0),
        ("kind: Deployment\napiVersion: apps/v1", 2, 2),
        ("kind: Deployment\napiVersion: apps/v1beta1", 0, 2),
        ("kind: Deployment\nmetadata: {name: one}", 1, 0),
        (
            "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: one}",
            1,
            1,
        ),
        (
            "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: one, namespace: b}",
            0,
            1,
        ),
        (
            "kind: Deployment\napiVersion: apps/v1\nmetadata: {namespace: b}",
            1,
            2,
        ),
        ("kind: Secret\napiVersion: v1", 0, 0),
    ];
    for (patch, documented, existing) in cases {
        let count = |matching| manifest(patch, matching).map(|(_, matched)| matched);
        assert_eq!(count(Matching::Documented), Ok(documented), "{patch}");
        assert_eq!(count(Matching::Existing), Ok(existing), "{patch}");
    }
}

#[test]
fn a_merge_patch_replaces_lists_and_removes_by_null() {
    let patch = "kind: Deployment\nmetadata: {name: one, labels: {tier: null, own: \"1\"}}\nspec: {replicas: 3, template: {spec: {containers: [{name: x}]}}}";
    let (objects, _) = manifest(patch, Matching::Documented).unwrap();
    let value = objects[0].value();
    assert_eq!(value["metadata"]["labels"], json!({"own": "1"}));
    assert_eq!(value["spec"]["replicas"], 3);
    assert_eq!(
        value["spec"]["template"]["spec"]["containers"],
        json!([{"name": "x"}])
    );
    assert_eq!(objects[1], self::objects()[1]);
}

#[test]
fn a_patch_is_for_its_target() {
    let cases = [
        (json!({}), 3),
        (json!({"kind": "Deployment"}), 2),
        (json!({"group": "apps", "version": "v1"}), 2),
        (json!({"group": ""}), 3),
        (json!({"name": "one"}), 2),
        (json!({"namespace": "a", "kind": "Service"}), 1),
        (json!({"labelSelector": "tier=front"}), 1),
        (json!({"labelSelector": "tier!=front"}), 2),
        (
            json!({"labelSelector": "tier in (front, back)", "kind": "Service"}),
            0,
        ),
    ];
    for (target, expected) in cases {
        let (_, matched) = with_target("metadata: {annotations: {a: b}}", target.clone()).unwrap();
        assert_eq!(matched, expected, "{target}");
    }
}

#[test]
fn a_list_is_a_json_patch() {
    let patch = "- {op: replace, path: /spec/replicas, value: 5}\n- {op: add, path: /spec/template/spec/containers/0/args/-, value: --c}\n\
                 - {op: test, path: /kind, value: Deployment}\n- {op: remove, path: /metadata/labels}";
    let (objects, matched) =
        with_target(patch, json!({"name": "one", "kind": "Deployment"})).unwrap();
    assert_eq!(matched, 1);
    let value = objects[0].value();
    assert_eq!(value["spec"]["replicas"], 5);
    assert_eq!(
        value["spec"]["template"]["spec"]["containers"][0]["args"],
        json!(["--a", "--b", "--c"])
    );
    assert!(value["metadata"].get("labels").is_none());
}

#[test]
fn patches_that_are_none_are_refused() {
    let told = |patch: &str| with_target(patch, json!({})).unwrap_err().to_string();
    let cases = [
        (
            told(""),
            "the patch is empty; write a mapping for a merge patch, or a list",
        ),
        (told("text"), "the patch is a single value"),
        (told("{a: ["), "the patch is no YAML at line"),
        (told("[]"), "the list has no operations"),
        (
            told("- {op: jump, path: /a}"),
            "the list is no JSON patch: unknown variant `jump`",
        ),
        (
            told("- {op: add, path: /a}"),
            "the list is no JSON patch: missing field `value`",
        ),
        (
            told("- {op: remove, path: /none}"),
            "the patch cannot be applied to Deployment a/one",
        ),
        (
            told("kind: null"),
            "the patch makes no object of Deployment a/one: kind is missing",
        ),
        (
            told("- {op: replace, path: \"\", value: 1}"),
            "the patch makes no object of Deployment a/one: it is no mapping",
        ),
        (
            told("metadata: {labels: {a: 1}}"),
            "metadata.labels is a mapping with other values, which is no mapping of texts",
        ),
        (
            manifest("a: b", Matching::Documented)
                .unwrap_err()
                .to_string(),
            "the patch has no kind",
        ),
        (
            manifest("[a]", Matching::Documented)
                .unwrap_err()
                .to_string(),
            "the patch is a list",
        ),
        (
            with_target("a: b", json!({"labelSelector": "a>1"}))
                .unwrap_err()
                .to_string(),
            "labelSelector: \"a>1\" is no requirement",
        ),
    ];
    for (text, said) in cases {
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn a_patch_that_fails_leaves_its_object_as_it_was() {
    let patch = "- {op: replace, path: /spec/replicas, value: 5}\n- {op: remove, path: /none}";
    let mut objects = objects();
    let patch = Patch::parse(patch, &PatchTarget::default()).unwrap();
    assert!(patch.apply(&mut objects).is_err());
    assert_eq!(objects, self::objects());
}

#[test]
fn patches_that_make_objects_huge_are_refused_before_they_fill_the_memory() {
    let wide = "- {op: add, path: /spec/all, value: []}\n".to_owned()
        + &"- {op: copy, from: /spec, path: /spec/all/-}\n".repeat(64);
    let deep = "- {op: copy, from: \"\", path: /spec/copy}\n".repeat(200);
    for patch in [wide, deep] {
        let error = with_target(&patch, json!({"name": "two"}))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("larger than 8388608 bytes or deeper than 200 levels; add less"),
            "{error}"
        );
    }
    let many = "- {op: test, path: /kind, value: Deployment}\n".repeat(1001);
    assert_eq!(
        with_target(&many, json!({})).unwrap_err(),
        PatchError::Many(1001)
    );
}

#[test]
fn patches_survive_fuzzing() {
    let corpus = [
        "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: one, labels: {tier: null}}\nspec: {replicas: 3}",
        "- {op: replace, path: /spec/replicas, value: 5}\n- {op: add, path: /spec/template/spec/containers/0/args/-, value: --c}\n\
         - {op: move, from: /metadata/labels, path: /metadata/annotations}\n- {op: copy, from: /spec, path: /spec/copy}",
    ];
    fuzz::text("patch", &corpus, |text| {
        let mut objects = objects();
        if let Ok(patch) = Patch::parse(text, &PatchTarget::default()) {
            let _ = patch.apply(&mut objects);
        }
        if let Ok(patch) = ManifestPatch::parse(text) {
            let _ = patch.apply(&mut objects, Matching::Documented);
        }
        for object in objects {
            assert!(Object::new(object.into_value()).is_ok());
        }
    });
}
