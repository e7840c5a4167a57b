//! Where objects take a reference to a Secret, and in which form.
//!
//! Of kubespray's objects it is known field by field. Of others nothing is, so they are told by how Kubernetes names such fields: a
//! reference in another place would be an unknown field to their API, and a secret that nobody reads.

use api::inventory::Segment;

use crate::render::kubespray::API_VERSION as KUBESPRAY;

/// What stands there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// `{secretKeyRef: {name, key}}`, in place of a value.
    Value,
    /// `{name, key}`: the field is of Secrets anyway.
    Key,
}

/// What stands at a path of an object in place of a secret. None: nothing can.
pub(super) fn form(api_version: &str, kind: &str, path: &[Segment]) -> Option<Form> {
    let keys: Vec<&str> = path.iter().map(key).collect();
    match (api_version, kind, keys.as_slice()) {
        (KUBESPRAY, _, ["spec", .., SECRET_KEY_REF]) if is_variable(kind, &keys) => Some(Form::Key),
        (KUBESPRAY, _, keys) if is_variable(kind, keys) => Some(Form::Value),
        (KUBESPRAY, _, keys) => {
            let mut fields = FIELDS.iter();
            let is_field =
                fields.any(|(of, field)| *of == kind && field.split('.').eq(keys.iter().copied()));
            is_field.then_some(Form::Key)
        }
        // As kubeadm's files take their content, and its users their passwords.
        (_, _, ["spec", .., from, "secret"]) if from.ends_with("From") => Some(Form::Key),
        (_, _, ["spec", .., last])
            if *last == SECRET_KEY_REF
                || *last == "secretRef"
                || last.ends_with("SecretRef")
                || last.ends_with("SecretKeyRef") =>
        {
            Some(Form::Key)
        }
        _ => None,
    }
}

/// What to do about a reference where none can stand.
pub(super) fn remedy(api_version: &str, kind: &str) -> &'static str {
    match (api_version, kind) {
        (KUBESPRAY, "Cluster") => {
            "write what is no secret there, or put the reference below spec.nodes.all.deploy.extraVars or into a field that names a \
             Secret and its key, as spec.ssh.privateKeySecretRef"
        }
        (KUBESPRAY, _) => {
            "write what is no secret there, or put the reference into a variable of spec.inventory that has no field of its own, or \
             into spec.extraVarsSecretRef"
        }
        _ => {
            "write what is no secret there, or put the reference into a field that names a Secret and its key: one called secretRef, \
             secretKeyRef or ...SecretRef, or secret below ...From"
        }
    }
}

/// Whether a value of a variable stands there, of those that kubespray's operator looks for references in.
fn is_variable(kind: &str, keys: &[&str]) -> bool {
    match (kind, keys) {
        ("Cluster", ["spec", "nodes", "all", "deploy", "extraVars", _, ..]) => true,
        ("ClusterNode", ["spec", "inventory", name, ..]) => !HOST_FIELDS.contains(name),
        _ => false,
    }
}

fn key(segment: &Segment) -> &str {
    match segment {
        Segment::Key(key) => key,
        Segment::Index(_) | Segment::Any => "",
    }
}

const SECRET_KEY_REF: &str = "secretKeyRef";

/// The fields of kubespray's objects that name a Secret and its key.
const FIELDS: [(&str, &str); 8] = [
    (
        "Cluster",
        "spec.etcd.snapshots.encryption.identitySecretRef",
    ),
    (
        "Cluster",
        "spec.etcd.snapshots.encryption.passphraseSecretRef",
    ),
    ("Cluster", "spec.etcd.snapshots.store.s3.caSecretRef"),
    ("Cluster", "spec.nodes.all.deploy.extraVarsSecretRef"),
    ("Cluster", "spec.operations.creation.extraVarsSecretRef"),
    ("Cluster", "spec.ssh.knownHostsSecretRef"),
    ("Cluster", "spec.ssh.privateKeySecretRef"),
    ("ClusterNode", "spec.extraVarsSecretRef"),
];

/// The variables of hosts that have fields of their own, which take no reference.
const HOST_FIELDS: [&str; 6] = [
    "access_ip",
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "etcd_member_name",
    "ip",
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn of(api_version: &str, kind: &str, path: &str) -> Option<Form> {
        let path: api::inventory::ValuePath = path.parse().unwrap();
        form(api_version, kind, &path.0)
    }

    #[test]
    fn a_reference_stands_where_the_kind_takes_one() {
        use Form::{Key, Value};
        let infrastructure = "infrastructure.cluster.x-k8s.io/v1beta1";
        for (api_version, kind, path, expected) in [
            (
                KUBESPRAY,
                "Cluster",
                "spec.nodes.all.deploy.extraVars.p",
                Some(Value),
            ),
            (
                KUBESPRAY,
                "Cluster",
                "spec.nodes.all.deploy.extraVars.p[0].q",
                Some(Value),
            ),
            (
                KUBESPRAY,
                "Cluster",
                "spec.nodes.all.deploy.extraVars.p.secretKeyRef",
                Some(Key),
            ),
            (
                KUBESPRAY,
                "Cluster",
                "spec.nodes.all.deploy.extraVars",
                None,
            ),
            (
                KUBESPRAY,
                "Cluster",
                "spec.ssh.privateKeySecretRef",
                Some(Key),
            ),
            (
                KUBESPRAY,
                "Cluster",
                "spec.ssh.privateKeySecretRef.name",
                None,
            ),
            (KUBESPRAY, "Cluster", "spec.kubernetesVersion", None),
            (KUBESPRAY, "Cluster", "metadata.labels.x", None),
            (KUBESPRAY, "ClusterNode", "spec.inventory.p", Some(Value)),
            (
                KUBESPRAY,
                "ClusterNode",
                "spec.inventory.ansible_host",
                None,
            ),
            (
                KUBESPRAY,
                "ClusterNode",
                "spec.extraVarsSecretRef",
                Some(Key),
            ),
            (infrastructure, "X", "spec.identity.secretRef", Some(Key)),
            (
                infrastructure,
                "X",
                "spec.env[0].valueFrom.secretKeyRef",
                Some(Key),
            ),
            (
                infrastructure,
                "X",
                "spec.template.spec.passwordSecretRef",
                Some(Key),
            ),
            (
                "bootstrap.cluster.x-k8s.io/v1beta1",
                "X",
                "spec.files[0].contentFrom.secret",
                Some(Key),
            ),
            (infrastructure, "X", "spec.secret", None),
            (infrastructure, "X", "spec.token", None),
            (infrastructure, "X", "metadata.annotations.secretRef", None),
        ] {
            assert_eq!(of(api_version, kind, path), expected, "{kind} {path}");
        }
    }

    #[test]
    fn the_fields_are_those_of_the_definitions() {
        let mut found = Vec::new();
        let mut of_hosts = Vec::new();
        for definition in api::custom_resource_definitions() {
            let kind = definition.spec.names.kind.clone();
            let definition = serde_json::to_value(&definition).unwrap();
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            if kind == "Cluster" || kind == "ClusterNode" {
                walk(
                    &kind,
                    "spec".to_owned(),
                    &schema["properties"]["spec"],
                    &mut found,
                );
            }
            if kind == "ClusterNode" {
                let variables = &schema["properties"]["spec"]["properties"]["inventory"];
                of_hosts.extend(variables["properties"].as_object().unwrap().keys().cloned());
            }
        }
        found.sort();
        let own: Vec<_> = FIELDS
            .map(|(kind, path)| (kind.to_owned(), path.to_owned()))
            .into();
        assert_eq!(found, own);
        assert_eq!(of_hosts, HOST_FIELDS);
    }

    fn walk(kind: &str, path: String, schema: &Value, found: &mut Vec<(String, String)>) {
        let Some(properties) = schema["properties"].as_object() else {
            return;
        };
        if properties.keys().eq(["key", "name"]) {
            found.push((kind.to_owned(), path));
            return;
        }
        for (key, schema) in properties {
            walk(kind, format!("{path}.{key}"), schema, found);
        }
    }
}
