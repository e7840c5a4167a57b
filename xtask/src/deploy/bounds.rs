//! What Clusters may ask of their runner pods: one ConfigMap, which the operator and the policy at the door both read.

use serde_json::{Value, json};

use super::{
    Flavour,
    objects::{global, metadata},
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The ConfigMap, the policy and its binding.
const NAME: &str = "windlass-bounds";

/// Each bound: its key in the ConfigMap, the operator's variable, and the expression of the chart that gives it.
const BOUNDS: [(&str, &str, &str); 6] = [
    (
        "images",
        "WINDLASS_ALLOW_IMAGES",
        ".Values.allow.images | join `,` | quote",
    ),
    (
        "hostNetwork",
        "WINDLASS_ALLOW_HOST_NETWORK",
        ".Values.allow.hostNetwork | quote",
    ),
    (
        "priorityClasses",
        "WINDLASS_ALLOW_PRIORITY_CLASSES",
        ".Values.allow.priorityClasses | join `,` | quote",
    ),
    (
        "runtimeClasses",
        "WINDLASS_ALLOW_RUNTIME_CLASSES",
        ".Values.allow.runtimeClasses | join `,` | quote",
    ),
    (
        "tolerations",
        "WINDLASS_ALLOW_TOLERATIONS",
        ".Values.allow.tolerations | join `,` | quote",
    ),
    (
        "storageClasses",
        "WINDLASS_ALLOW_STORAGE_CLASSES",
        ".Values.allow.storageClasses | join `,` | quote",
    ),
];

/// The operator's own images, which are always allowed.
const OWN: [(&str, &str); 2] = [
    ("operatorImage", "WINDLASS_IMAGE"),
    ("runnerImage", "WINDLASS_RUNNER_IMAGE"),
];

/// The operator's image.
pub(super) fn image(flavour: Flavour) -> Value {
    flavour.value(
        format!("windlass:v{VERSION}"),
        "ternary (printf `%s@%s` .Values.image.repository .Values.image.digest) (printf `%s:%s` .Values.image.repository (.Values.image.tag | default (printf `v%s` .Chart.AppVersion))) (not (empty .Values.image.digest)) | quote",
    )
}

pub(super) fn runner_image(flavour: Flavour) -> Value {
    flavour.value(
        format!("windlass-runner:v{VERSION}"),
        ".Values.runner.image | default (printf `windlass-runner:v%s` .Chart.AppVersion) | quote",
    )
}

/// The ConfigMap.
pub(super) fn config(flavour: Flavour) -> Vec<Value> {
    let mut data = json!({"operatorImage": image(flavour), "runnerImage": runner_image(flavour)});
    for (key, _, expression) in BOUNDS {
        let default = if key == "hostNetwork" { "false" } else { "" };
        data[key] = flavour.value(default, expression);
    }
    vec![json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(flavour, NAME), "data": data,
    })]
}

/// The variables of the operator that the ConfigMap gives.
pub(super) fn environment() -> Vec<Value> {
    let bounds = BOUNDS.iter().map(|(key, variable, _)| (*key, *variable));
    OWN.into_iter()
        .chain(bounds)
        .map(|(key, variable)| {
            let reference = json!({"configMapKeyRef": {"name": NAME, "key": key}});
            json!({"name": variable, "valueFrom": reference})
        })
        .collect()
}

/// The policy at the door, and what puts it in force. It says the same as the operator does, which looks again.
pub(super) fn admission(flavour: Flavour) -> Vec<Value> {
    let group = "admissionregistration.k8s.io";
    let variable = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let listed = |name: &str, key: &str| {
        let expression =
            format!("params.data.{key}.split(',').map(name, name.trim()).filter(name, name != '')");
        variable(name, &expression)
    };
    let rule = |expression: &str, message: &str| json!({"expression": expression, "messageExpression": message, "reason": "Forbidden"});
    let class = |field: &str, allowed: &str, flag: &str| {
        let named = format!("variables.spec.?runner.?placement.?{field}.orValue('')");
        rule(
            &format!("{named} == '' || {named} in variables.{allowed}"),
            &format!(
                "'spec.runner.placement.{field}: the operator allows these: ' + variables.{allowed}.join(', ') + '; remove it, or have the operator started with --allow-{flag}'"
            ),
        )
    };
    let policy = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ValidatingAdmissionPolicy", "metadata": global(NAME),
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["kubespray.k8s.io"], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["clusters"],
            }]},
            // What was let in before the bounds became narrower can still be marked, and let go.
            "matchConditions": [{
                "name": "asks-for-something-else",
                "expression": "oldObject == null || object.spec != oldObject.spec",
            }],
            "variables": [
                // The schema says nothing of what a pod has, so nothing is to be known of its types.
                variable("spec", "dyn(object.spec)"),
                listed("images", "images"),
                listed("priorityClasses", "priorityClasses"),
                listed("runtimeClasses", "runtimeClasses"),
                listed("tolerations", "tolerations"),
                listed("storageClasses", "storageClasses"),
                variable("own", "[params.data.operatorImage, params.data.runnerImage]"),
                variable("asked", "[variables.spec.?image.orValue(''), variables.spec.?runner.?image.orValue('')].filter(image, image != '')"),
                // No optional value: what a variable holds is none any more.
                variable("template", "variables.spec.?runner.?volumeClaimTemplate.orValue({})"),
                variable("claim", "has(variables.template.spec) ? variables.template.spec : variables.template"),
            ],
            "validations": [
                rule(IMAGES, "'spec.image, spec.runner.image: the operator allows these images: ' + (variables.own + variables.images).join(', ') + '; remove it, or have the operator started with --allow-image'"),
                rule(
                    "!variables.spec.?runner.?hostNetwork.orValue(false) || params.data.hostNetwork == 'true'",
                    "'spec.runner.hostNetwork: the operator allows no runner into the network of its node; remove it, or have the operator started with --allow-host-network'",
                ),
                class("priorityClassName", "priorityClasses", "priority-class"),
                class("runtimeClassName", "runtimeClasses", "runtime-class"),
                rule(
                    "variables.spec.?runner.?placement.?tolerations.orValue([]).all(toleration, toleration.?key.orValue('') in variables.tolerations)",
                    "'spec.runner.placement.tolerations: the operator allows to tolerate these taints: ' + variables.tolerations.join(', ') + '; remove it, or have the operator started with --allow-toleration'",
                ),
                rule(
                    "!has(variables.claim.storageClassName) || variables.claim.storageClassName in variables.storageClasses",
                    "'spec.runner.volumeClaimTemplate.spec.storageClassName: the operator allows the default class, and these: ' + variables.storageClasses.join(', ') + '; remove it, or have the operator started with --allow-storage-class'",
                ),
                rule(
                    "!has(variables.template.metadata) || !has(variables.template.metadata.annotations)",
                    "'spec.runner.volumeClaimTemplate.metadata.annotations: annotations choose classes and contents of volumes beside the fields that are bounded; remove them'",
                ),
                rule(
                    "!has(variables.claim.volumeName) && !has(variables.claim.selector) && !has(variables.claim.dataSource) && !has(variables.claim.dataSourceRef) && !has(variables.claim.volumeAttributesClassName)",
                    "'spec.runner.volumeClaimTemplate.spec: a runner gets a new volume, never a certain one; remove volumeName, selector, dataSource, dataSourceRef and volumeAttributesClassName'",
                ),
            ],
        },
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ValidatingAdmissionPolicyBinding", "metadata": global(NAME),
        "spec": {
            "policyName": NAME, "validationActions": ["Deny"],
            "paramRef": {"name": NAME, "namespace": flavour.namespace(), "parameterNotFoundAction": "Deny"},
        },
    });
    vec![policy, binding]
}

/// A prefix covers what follows it after a boundary of a name, as in the operator.
const IMAGES: &str = "variables.asked.all(image, image in variables.own || \
    (image.matches('^[a-zA-Z0-9][a-zA-Z0-9._:@-]*(/[a-zA-Z0-9][a-zA-Z0-9._:@-]*)*$') && \
    variables.images.exists(prefix, image == prefix || (image.startsWith(prefix) && (prefix.endsWith('/') || \
    image.substring(prefix.size()).startsWith('/') || ((image.substring(prefix.size()).startsWith(':') || \
    image.substring(prefix.size()).startsWith('@')) && !image.substring(prefix.size()).contains('/')))))))";
