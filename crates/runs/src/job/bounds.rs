//! What a subject may ask of its runner pods: pure.
//!
//! Who may write subjects in a namespace has work of his choice done in a pod there. So much is what they are for;
//! that the pod also has any image, the network of its node or a class that others pay for is the operator's to allow. The
//! same bounds stand at the door as a `ValidatingAdmissionPolicy`; this is where they hold whatever the door let in.

use controller::Problem;
use serde_json::{Map, Value};

use super::{check::claim_spec, template::Template};
use crate::subject::Settings;

/// What is allowed beyond what every subject may ask for. Default: nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Bounds {
    /// Images, beside the operator's own two, by the beginning of their names: a registry, a path in it, or a whole name. It
    /// covers what follows it after a `/`, and a tag or digest, never the rest of a word.
    pub images: Vec<String>,
    /// Whether runner pods may use the network of their nodes.
    pub host_network: bool,
    /// PriorityClasses by name.
    pub priority_classes: Vec<String>,
    /// RuntimeClasses by name.
    pub runtime_classes: Vec<String>,
    /// Taints that may be tolerated, by key. A toleration without a key is never allowed: it tolerates every taint.
    pub tolerations: Vec<String>,
    /// StorageClasses by name, beside the one that is the default where none is named.
    pub storage_classes: Vec<String>,
}

/// Fields of a claim that name a certain volume, perhaps another's, instead of asking for a new one.
const NAMED_VOLUME: [&str; 5] = [
    "dataSource",
    "dataSourceRef",
    "selector",
    "volumeAttributesClassName",
    "volumeName",
];

/// What of the settings of a subject of this kind the bounds do not allow.
pub(super) fn problems(kind: &str, settings: &Settings, template: &Template) -> Vec<Problem> {
    let bounds = &template.bounds;
    let mut problems = Vec::new();
    let images = [
        ("image", &settings.image),
        ("runner.image", &settings.runner_image),
    ];
    for (field, image) in images {
        let field = format!("{kind} spec.{field}");
        problems.extend(
            image
                .as_ref()
                .and_then(|image| refused_image(field, image, template)),
        );
    }
    if settings.host_network && !bounds.host_network {
        problems.push(Problem::new(
            format!("{kind} spec.runner.hostNetwork"),
            true,
            "the operator allows no runner into the network of its node",
            "remove it, or have the operator started with --allow-host-network",
        ));
    }
    problems.extend(placed(kind, settings, bounds));
    let template = settings.volume_claim_template.as_ref();
    problems.extend(
        template
            .iter()
            .flat_map(|template| claimed(kind, template, bounds)),
    );
    problems
}

fn refused_image(field: String, image: &str, template: &Template) -> Option<Problem> {
    let own = [&template.image, &template.runner_image];
    let prefixes = &template.bounds.images;
    if own.contains(&&image.to_owned())
        || (is_name(image) && prefixes.iter().any(|prefix| covers(prefix, image)))
    {
        return None;
    }
    let own = own.map(String::as_str);
    let known = own.into_iter().chain(prefixes.iter().map(String::as_str));
    Some(Problem::new(
        field,
        image,
        format!("the operator allows these images: {}", list(known)),
        "remove it, or have the operator started with --allow-image PREFIX",
    ))
}

/// Whether a prefix covers an image: up to a boundary of its name, so that `registry/ok` covers neither `registry/ok-not` nor,
/// as a `registry` without a port, `registry:5000/image`.
fn covers(prefix: &str, image: &str) -> bool {
    let Some(rest) = image.strip_prefix(prefix) else {
        return false;
    };
    rest.is_empty()
        || prefix.ends_with('/')
        || rest.starts_with('/')
        || (rest.starts_with([':', '@']) && !rest.contains('/'))
}

/// Whether each part of an image's path is a word, none of them `..`: what a registry would make of others is its affair.
fn is_name(image: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@-".contains(&byte);
    image.split('/').all(|part| {
        part.bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
            && part.bytes().all(is_inner)
    })
}

fn placed(kind: &str, settings: &Settings, bounds: &Bounds) -> Vec<Problem> {
    let of = |field: &str| format!("{kind} spec.runner.placement.{field}");
    let placement = settings.placement.iter();
    placement
        .flat_map(|(field, value)| match field.as_str() {
            "priorityClassName" => {
                class(of(field), value, &bounds.priority_classes, "priority-class")
            }
            "runtimeClassName" => class(of(field), value, &bounds.runtime_classes, "runtime-class"),
            "tolerations" => {
                let tolerations = value.as_array().into_iter().flatten();
                let refused = tolerations.filter(|toleration| {
                    let key = toleration["key"].as_str().unwrap_or_default();
                    key.is_empty() || !bounds.tolerations.iter().any(|allowed| allowed == key)
                });
                refused
                    .map(|toleration| {
                        Problem::new(
                            of(field),
                            toleration,
                            format!(
                                "the operator allows to tolerate these taints: {}",
                                list(&bounds.tolerations)
                            ),
                            "remove it, or have the operator started with --allow-toleration KEY",
                        )
                    })
                    .collect()
            }
            _ => Vec::new(),
        })
        .collect()
}

fn class(field: String, value: &Value, allowed: &[String], flag: &str) -> Vec<Problem> {
    let name = value.as_str().unwrap_or_default();
    if name.is_empty() || allowed.iter().any(|allowed| allowed == name) {
        return Vec::new();
    }
    vec![Problem::new(
        field,
        name,
        format!("the operator allows these: {}", list(allowed)),
        format!("remove it, or have the operator started with --allow-{flag} NAME"),
    )]
}

fn claimed(kind: &str, template: &Map<String, Value>, bounds: &Bounds) -> Vec<Problem> {
    let of = |path: &str| format!("{kind} spec.runner.volumeClaimTemplate.{path}");
    let field = |name: &str| of(&format!("spec.{name}"));
    let spec = claim_spec(template);
    let named = NAMED_VOLUME.iter().filter_map(|name| {
        let value = spec.get(*name).filter(|value| !value.is_null())?;
        Some(Problem::new(
            field(name),
            value,
            "a runner gets a new volume, never a certain one",
            "remove it",
        ))
    });
    let annotations = template
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"))
        .filter(|annotations| !annotations.is_null());
    let annotated = annotations.map(|annotations| {
        Problem::new(
            of("metadata.annotations"),
            annotations,
            "annotations choose classes and contents of volumes beside the fields that are bounded",
            "remove them",
        )
    });
    let class = spec.get("storageClassName").and_then(Value::as_str);
    let class = class.filter(|class| {
        !bounds
            .storage_classes
            .iter()
            .any(|allowed| allowed == class)
    });
    let class = class.map(|class| {
        Problem::new(
            field("storageClassName"),
            class,
            format!(
                "the operator allows the default class, and these: {}",
                list(&bounds.storage_classes)
            ),
            "remove it, or have the operator started with --allow-storage-class NAME",
        )
    });
    named.chain(annotated).chain(class).collect()
}

fn list(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<_> = names
        .into_iter()
        .map(|name| name.as_ref().to_owned())
        .collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::tests::settings;

    fn template(bounds: Bounds) -> Template {
        Template {
            image: "windlass:v1".into(),
            runner_image: "windlass-runner:v1".into(),
            bounds,
            ..Template::default()
        }
    }

    fn refused(spec: &Value, bounds: Bounds) -> Vec<String> {
        let problems = problems("Widget", &settings(spec), &template(bounds));
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_prefix_covers_images_up_to_a_boundary_of_their_names() {
        for (prefix, image, covered) in [
            ("registry/ok", "registry/ok", true),
            ("registry/ok", "registry/ok:v1", true),
            ("registry/ok", "registry/ok@sha256:00", true),
            ("registry/ok", "registry/ok:v1@sha256:00", true),
            ("registry/ok", "registry/ok/deeper:v1", true),
            ("registry/ok/", "registry/ok/deeper", true),
            ("registry/ok:v1", "registry/ok:v1", true),
            ("registry/ok:v1", "registry/ok:v1@sha256:00", true),
            ("registry:5000", "registry:5000/image", true),
            ("registry/ok", "registry/ok-not", false),
            ("registry/ok", "registry/okay/image", false),
            ("registry/ok", "registry/ok.evil/image", false),
            ("registry/ok/", "registry/ok", false),
            ("registry/ok:v1", "registry/ok:v12", false),
            ("registry", "registry:5000/image", false),
            ("registry", "registry@evil/image", false),
            ("registry", "registry.evil/image", false),
            ("registry/ok", "evil/registry/ok", false),
            ("registry/ok", "registry/ok/../evil", false),
            ("registry/ok", "registry/ok//evil", false),
            ("registry/ok", "registry/ok/./evil", false),
            ("registry/ok", "registry/ok evil", false),
            ("registry/ok", "registry/ok\nevil", false),
            ("registry/ok", "REGISTRY/ok", false),
        ] {
            let bounds = Bounds {
                images: vec![prefix.to_owned()],
                ..Bounds::default()
            };
            for spec in [json!({"image": image}), json!({"runner": {"image": image}})] {
                let refused = refused(&spec, bounds.clone());
                assert_eq!(
                    refused.is_empty(),
                    covered,
                    "{prefix} and {image}: {refused:?}"
                );
            }
        }
    }

    #[test]
    fn the_operators_own_images_are_always_allowed_and_no_others_of_their_name() {
        for (image, allowed) in [
            ("windlass:v1", true),
            ("windlass-runner:v1", true),
            ("windlass:v2", false),
            ("windlass", false),
            ("", false),
        ] {
            let refused = refused(&json!({"runner": {"image": image}}), Bounds::default());
            assert_eq!(refused.is_empty(), allowed, "{image}: {refused:?}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_named_with_the_flag_that_allows_it() {
        let allowed = Bounds {
            images: vec!["registry/ok".into()],
            host_network: true,
            priority_classes: vec!["high".into()],
            runtime_classes: vec!["sandboxed".into()],
            tolerations: vec!["dedicated".into()],
            storage_classes: vec!["fast".into()],
        };
        for (runner, field, value, flag) in [
            (
                json!({"image": "registry/ok/x"}),
                "image",
                "registry/ok/x",
                "--allow-image",
            ),
            (
                json!({"hostNetwork": true}),
                "hostNetwork",
                "true",
                "--allow-host-network",
            ),
            (
                json!({"placement": {"priorityClassName": "high"}}),
                "placement.priorityClassName",
                "high",
                "--allow-priority-class",
            ),
            (
                json!({"placement": {"runtimeClassName": "sandboxed"}}),
                "placement.runtimeClassName",
                "sandboxed",
                "--allow-runtime-class",
            ),
            (
                json!({"placement": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}}),
                "placement.tolerations",
                "dedicated",
                "--allow-toleration",
            ),
            (
                json!({"volumeClaimTemplate": {"storageClassName": "fast"}}),
                "volumeClaimTemplate.spec.storageClassName",
                "fast",
                "--allow-storage-class",
            ),
        ] {
            let spec = json!({"runner": runner});
            let said = refused(&spec, Bounds::default());
            assert_eq!(said.len(), 1, "{said:?}");
            for word in [&format!("Widget spec.runner.{field} is"), value, flag] {
                assert!(said[0].contains(word), "{word}: {said:?}");
            }
            assert!(refused(&spec, allowed.clone()).is_empty(), "{field}");
        }
    }

    #[test]
    fn what_is_never_allowed_is_refused_whatever_else_is() {
        let bounds = Bounds {
            tolerations: vec![String::new(), "dedicated".into()],
            storage_classes: vec!["fast".into()],
            ..Bounds::default()
        };
        for runner in [
            json!({"placement": {"tolerations": [{"operator": "Exists"}]}}),
            json!({"placement": {"tolerations": [{"key": "", "operator": "Exists"}]}}),
            json!({"volumeClaimTemplate": {"spec": {"volumeName": "of-another"}}}),
            json!({"volumeClaimTemplate": {
                "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "slow"}},
                "spec": {},
            }}),
            json!({"volumeClaimTemplate": {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "a"}}}),
        ] {
            let said = refused(&json!({"runner": runner}), bounds.clone());
            assert_eq!(said.len(), 1, "{runner}: {said:?}");
        }
    }

    #[test]
    fn what_chooses_among_nodes_and_what_a_quota_bounds_is_free() {
        let runner = json!({
            "placement": {"nodeSelector": {"a": "b"}, "affinity": {}, "topologySpreadConstraints": []},
            "resources": {"limits": {"memory": "1Gi"}},
            "volumeClaimTemplate": {"accessModes": ["ReadWriteOnce"]},
            "hostNetwork": false, "imagePullSecrets": [{"name": "own"}],
        });
        assert!(refused(&json!({"runner": runner}), Bounds::default()).is_empty());
    }
}
