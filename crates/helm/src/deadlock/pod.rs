//! What the pod of an object refers to, and what its containers are told.

use serde_json::Value;

/// The pod of an object, if it has one.
pub(super) fn spec<'a>(kind: &str, object: &'a Value) -> Option<&'a Value> {
    let spec = match kind {
        "Pod" => &object["spec"],
        _ => &object["spec"]["template"]["spec"],
    };
    spec.is_object().then_some(spec)
}

/// Whether a pod cannot start without this object.
pub(super) fn refers(spec: &Value, kind: &str, name: &str) -> bool {
    match kind {
        "ConfigMap" => refers_to_keys(spec, ["configMap", "configMapRef", "configMapKeyRef"], name),
        "Secret" => refers_to_keys(spec, ["secret", "secretRef", "secretKeyRef"], name),
        "PersistentVolumeClaim" => {
            let mut volumes = list(&spec["volumes"]);
            volumes.any(|volume| volume["persistentVolumeClaim"]["claimName"] == name)
        }
        "ServiceAccount" => spec["serviceAccountName"] == name,
        _ => false,
    }
}

/// In volumes, in all keys of an environment, in one of them.
fn refers_to_keys(spec: &Value, [volume, all, one]: [&str; 3], name: &str) -> bool {
    let is_meant = |reference: &Value| {
        let named = reference["name"] == name || reference["secretName"] == name;
        named && reference["optional"] != true
    };
    let mut volumes = list(&spec["volumes"]);
    let in_volumes = volumes.any(|found| {
        let mut sources = list(&found["projected"]["sources"]);
        is_meant(&found[volume]) || sources.any(|source| is_meant(&source[volume]))
    });
    let mut containers = containers(spec, true);
    in_volumes
        || containers.any(|container| {
            let mut of_all = list(&container["envFrom"]);
            let mut of_one = list(&container["env"]);
            of_all.any(|from| is_meant(&from[all]))
                || of_one.any(|from| is_meant(&from["valueFrom"][one]))
        })
}

/// Whether containers are told of something by its name: those that come first, or all.
pub(super) fn mentions(spec: &Value, of_all: bool, name: &str) -> bool {
    let mut containers = containers(spec, of_all);
    containers.any(|container| {
        let words = list(&container["command"]).chain(list(&container["args"]));
        let words = words.chain(list(&container["env"]).map(|variable| &variable["value"]));
        let mut words = words.filter_map(Value::as_str);
        words.any(|text| is_named(text, name))
    })
}

fn containers(spec: &Value, of_all: bool) -> impl Iterator<Item = &Value> {
    let others = of_all.then(|| list(&spec["containers"]));
    list(&spec["initContainers"]).chain(others.into_iter().flatten())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Whether a text names an object. A name of one word may be any word, so it counts only as an address, or alone.
fn is_named(text: &str, name: &str) -> bool {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    text.match_indices(name).any(|(at, _)| {
        let (before, rest) = text.split_at(at);
        let after = rest.strip_prefix(name).unwrap_or_default();
        let is_whole = !before.ends_with(is_of_name) && !after.starts_with(is_of_name);
        let is_address = before.ends_with(['@', '/']) || after.starts_with([':', '.']);
        let is_alone = before.is_empty() && after.is_empty();
        // The name of a host elsewhere ends so.
        is_whole && !before.ends_with('.') && (name.contains('-') || is_address || is_alone)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_people_write_them_and_nowhere_else() {
        for text in [
            "app-db",
            "kubectl wait --for=condition=complete job/app-db",
            "a,app-db,b",
            r#"[{"namespace": null, "name": "app-db"}]"#,
            "until nc -z app-db 5432; do sleep 1; done",
            "http://app-db.space.svc:80/",
        ] {
            assert!(is_named(text, "app-db"), "{text}");
        }
        for text in ["my-app-db", "app-db-2", "x.app-db", "app_db", "app-dbs"] {
            assert!(!is_named(text, "app-db"), "{text}");
        }
        for text in ["db", "postgres://u@db/x", "db:5432", "http://db.space.svc"] {
            assert!(is_named(text, "db"), "{text}");
        }
        assert!(!is_named("manage.py db migrate", "db"));
    }
}
