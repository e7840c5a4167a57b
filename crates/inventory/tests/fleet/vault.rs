//! References to Vault: what they become, and where they cannot stand.

use inventory::{Rendered, vault_secret_name};
use serde_json::{Value, json};

use crate::{fleet, problems, render};

const CONNECTION: &str = "{vault: {address: 'https://{{ vault.host }}:8200', auth: {kubernetes: {role: '{{ vault.role }}'}}}, mount: kv, refreshEvery: 1m}";

const CLUSTER: &str = "
    - {object: {apiVersion: v1, kind: Namespace, metadata: {name: '{{ cluster.name }}'}}}
    - object:
        apiVersion: kubespray.k8s.io/v1
        kind: Cluster
        metadata: {name: '{{ cluster.name }}', namespace: '{{ cluster.name }}'}
        spec:
          kubernetesVersion: 1.34.4
          kubespray: {version: 2.30.0, source: {path: bundle}}
          ssh: {user: root, privateKeySecretRef: '{{ ssh.key }}'}
          nodes: {all: {deploy: {extraVars: '{{ variables }}'}}}
    - object:
        apiVersion: kubespray.k8s.io/v1
        kind: ClusterNode
        metadata: {name: n1, namespace: '{{ cluster.name }}'}
        spec: {type: master, inventory: {ansible_host: '{{ address }}', token: '{{ token }}'}}
";

/// A site above the cluster; both say something of Vault.
fn inventory(site: &str, own: &str, connection: &str, documents: &str) -> String {
    let connection = if connection.is_empty() {
        String::new()
    } else {
        format!("  vaultSecrets: {connection}\n")
    };
    format!(
        "
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: Hierarchy, metadata: {{name: default}}, spec: {{levels: [{{name: site, kind: Site}}]}}}}
---
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: Site, metadata: {{name: fra}}, spec: {{template: t, values: {site}}}}}
---
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: FleetCluster, metadata: {{name: c}}, spec: {{parents: {{site: fra}}, values: {own}}}}}
---
apiVersion: inventory.windlass.dev/v1alpha1
kind: ClusterTemplate
metadata: {{name: t}}
spec:
  backEnd: Kubespray
{connection}  documents:{documents}"
    )
}

const SITE: &str = "{vault: {host: vault.fra, role: fra}, ssh: {key: {vault: {path: infra/ssh, key: key}}}, \
                    variables: {login: {vault: {path: infra/registry, key: login}}, plain: x}, token: {vault: {path: infra/registry, key: token}}, \
                    address: 10.0.0.1}";

fn whole(own: &str) -> Rendered {
    let text = inventory(SITE, own, CONNECTION, CLUSTER);
    render(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn kinds(rendered: &Rendered) -> Vec<String> {
    let documents = rendered.documents.iter();
    documents
        .map(|document| document.object.kind.clone())
        .collect()
}

#[test]
fn a_reference_becomes_one_to_the_secret_that_a_vault_secret_makes() {
    let rendered = whole("{}");
    assert_eq!(
        kinds(&rendered),
        [
            "Namespace",
            "VaultSecret",
            "VaultSecret",
            "Cluster",
            "ClusterNode"
        ]
    );
    let objects = rendered.objects();
    let registry = vault_secret_name("c", "kv", "infra/registry");
    let ssh = vault_secret_name("c", "kv", "infra/ssh");
    let vault = |name: &str, path: &str, keys: Value| {
        json!({
            "apiVersion": "secrets.windlass.dev/v1alpha1", "kind": "VaultSecret",
            "metadata": {"name": name, "namespace": "c"},
            "spec": {
                "vault": {"address": "https://vault.fra:8200", "auth": {"kubernetes": {"role": "fra"}}},
                "mount": "kv", "refreshEvery": "1m", "path": path, "keys": keys,
            },
        })
    };
    // What is not used of a secret is not fetched either.
    let keys = json!({"login": "login", "token": "token"});
    assert_eq!(objects[1], vault(&registry, "infra/registry", keys));
    assert_eq!(objects[2], vault(&ssh, "infra/ssh", json!({"key": "key"})));
    let spec = &objects[3]["spec"];
    assert_eq!(
        spec["ssh"]["privateKeySecretRef"],
        json!({"name": ssh, "key": "key"})
    );
    assert_eq!(
        spec["nodes"]["all"]["deploy"]["extraVars"],
        json!({"login": {"secretKeyRef": {"name": registry, "key": "login"}}, "plain": "x"})
    );
    assert_eq!(
        objects[4]["spec"]["inventory"]["token"],
        json!({"secretKeyRef": {"name": registry, "key": "token"}})
    );
}

#[test]
fn the_vault_and_how_it_is_asked_change_no_reference() {
    let before = whole("{}").objects();
    // Another server, another role, another field of the same secret.
    let after = whole(
        "{vault: {host: vault.new, role: new}, variables: {more: {vault: {path: infra/ssh, key: public}}}}",
    );
    let after = after.objects();
    let names = |objects: &[Value]| -> Vec<String> {
        let of_vault = objects
            .iter()
            .filter(|object| object["kind"] == "VaultSecret");
        of_vault
            .map(|object| object["metadata"]["name"].to_string())
            .collect()
    };
    assert_eq!(names(&before), names(&after));
    assert_eq!(before[4], after[4]);
    assert_eq!(
        after[2]["spec"]["keys"],
        json!({"key": "key", "public": "public"})
    );
    // Another secret is another object, and so is one of another cluster.
    let other = whole("{ssh: {key: {vault: {path: infra/other, key: key}}}}");
    assert_ne!(names(&before), names(&other.objects()));
    assert_ne!(
        vault_secret_name("c", "kv", "infra/ssh"),
        vault_secret_name("d", "kv", "infra/ssh")
    );
}

#[test]
fn who_says_a_reference_and_how_vault_is_read_is_explained() {
    let rendered = whole("{}");
    let registry = vault_secret_name("c", "kv", "infra/registry");
    for question in [
        "ssh.key".to_owned(),
        "Cluster/c:spec.ssh.privateKeySecretRef".to_owned(),
        "Cluster/c:spec.nodes.all.deploy.extraVars.login".to_owned(),
        format!("VaultSecret/{registry}:spec"),
    ] {
        let question = question.parse().unwrap();
        insta::assert_yaml_snapshot!(rendered.explain(&question).unwrap());
    }
}

#[test]
fn a_cluster_without_references_needs_no_vault() {
    let own = "{}";
    let site = "{ssh: {key: {name: ssh}}, variables: {plain: x}, token: {secretKeyRef: {name: s, key: k}}, address: 10.0.0.1}";
    let rendered = render(&inventory(site, own, CONNECTION, CLUSTER)).unwrap();
    assert_eq!(kinds(&rendered), ["Namespace", "Cluster", "ClusterNode"]);
}

#[test]
fn objects_of_others_take_references_where_kubernetes_names_them_so() {
    let documents = "
    - naming: Hashed
      object:
        apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
        kind: KubeadmConfigTemplate
        metadata: {name: t}
        spec: {template: {spec: {files: [{path: /x, contentFrom: {secret: '{{ ssh.key }}'}}]}}}
    - object:
        apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
        kind: X
        metadata: {name: x, namespace: other}
        spec: {credentials: {secretRef: '{{ ssh.key }}'}}
";
    let at = |path: &str| {
        let own = format!("{{ssh: {{key: {{vault: {{path: {path}, key: key}}}}}}}}");
        let text = inventory(SITE, &own, CONNECTION, documents)
            .replace("backEnd: Kubespray", "backEnd: Plain");
        render(&text).unwrap()
    };
    let rendered = at("infra/ssh");
    let objects = rendered.objects();
    assert_eq!(
        kinds(&rendered),
        ["VaultSecret", "VaultSecret", "KubeadmConfigTemplate", "X"]
    );
    // One in each namespace: what has none is of the FleetCluster's.
    let namespaces: Vec<_> = objects
        .iter()
        .map(|object| object["metadata"]["namespace"].as_str())
        .collect();
    assert_eq!(namespaces, [None, Some("other"), None, Some("other")]);
    let reference = json!({"name": vault_secret_name("c", "kv", "infra/ssh"), "key": "key"});
    let file = &objects[2]["spec"]["template"]["spec"]["files"][0];
    assert_eq!(file["contentFrom"]["secret"], reference);
    assert_eq!(objects[3]["spec"]["credentials"]["secretRef"], reference);
    // Another secret is another template, and rolls machines; another value of one is none.
    let name = |rendered: &Rendered| rendered.documents[2].object.name.clone();
    assert_eq!(name(&rendered), name(&at("infra/ssh")));
    assert_ne!(name(&rendered), name(&at("infra/other")));
}

const MACHINES: &str = "
    - naming: Hashed
      object:
        apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
        kind: KubeadmConfigTemplate
        metadata: {name: workers}
        spec: {template: {spec: {files: [{path: /x, contentFrom: {secret: '{{ ssh.key }}'}}]}}}
    - naming: Hashed
      object:
        apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
        kind: DevMachineTemplate
        metadata: {name: planes}
        spec: {template: {spec: {backend: {}}}}
    - object:
        apiVersion: cluster.x-k8s.io/v1beta2
        kind: MachineDeployment
        metadata: {name: workers}
        spec: {template: {spec: {bootstrap: {configRef: {kind: KubeadmConfigTemplate, name: workers}}}}}
    - object:
        apiVersion: controlplane.cluster.x-k8s.io/v1beta2
        kind: KubeadmControlPlane
        metadata: {name: planes}
        spec:
          kubeadmConfigSpec: {files: [{path: /x, contentFrom: {secret: '{{ token }}'}}]}
          machineTemplate: {spec: {infrastructureRef: {kind: DevMachineTemplate, name: planes}}}
";

#[test]
fn machines_are_told_of_values_that_changed_where_a_reference_asks_for_it() {
    let own = |of_key: &str, of_token: &str| {
        format!(
            "{{ssh: {{key: {{vault: {{path: infra/ssh, key: key{of_key}}}}}}}, token: {{vault: {{path: infra/token, key: token{of_token}}}}}}}"
        )
    };
    let rendered = |own: &str, secrets: Value| {
        let text = inventory(SITE, own, CONNECTION, MACHINES);
        let text = text.replace("backEnd: Kubespray", "backEnd: Plain");
        let cluster = "metadata: {name: c}, spec:";
        assert!(text.contains(cluster));
        let status = json!({"secrets": secrets});
        let text = text.replace(
            cluster,
            &format!("metadata: {{name: c}}, status: {status}, spec:"),
        );
        render(&text)
            .unwrap_or_else(|error| panic!("{error}"))
            .objects()
    };
    let named = |objects: &[Value], kind: &str| {
        let mut of_kind = objects.iter().filter(|object| object["kind"] == kind);
        of_kind.next().unwrap()["metadata"].clone()
    };
    let (workers, planes) = ("KubeadmConfigTemplate", "DevMachineTemplate");
    let (ssh, token) = (
        vault_secret_name("c", "kv", "infra/ssh"),
        vault_secret_name("c", "kv", "infra/token"),
    );
    let secret = |name: &str, digest: &str, changed: bool| json!({"name": name, "digest": digest, "told": changed.then_some(digest)});
    let known = |digest: &str, changed: bool| {
        let key = secret(&format!("{ssh}/key"), digest, changed);
        json!([key, secret(&format!("{token}/token"), digest, changed)])
    };

    // Nothing is asked for: whatever is known changes nothing.
    let plain = own("", "");
    let before = rendered(&plain, json!([]));
    assert_eq!(rendered(&plain, known("1", true)), before);
    let in_place = own(", onChange: InPlace", "");
    assert_eq!(rendered(&in_place, known("1", true)), before);

    // What is only seen changes no template either; the VaultSecret says that it is to be looked at.
    let workers_alone = own(", onChange: RollMachines", "");
    let seen = rendered(&workers_alone, known("1", false));
    for kind in [workers, planes] {
        assert_eq!(named(&seen, kind), named(&before, kind));
    }
    let mut vault_secrets = seen.iter().filter(|object| object["kind"] == "VaultSecret");
    let annotation = |object: &Value| {
        object["metadata"]["annotations"]["inventory.windlass.dev/rolls-machines"].clone()
    };
    assert!(vault_secrets.any(|object| object["metadata"]["name"] == ssh.as_str() && annotation(object) == "key"));

    // What changed is another template, of those that read it.
    let changed = rendered(&workers_alone, known("2", true));
    assert_ne!(
        named(&changed, workers)["name"],
        named(&before, workers)["name"]
    );
    let told = &named(&changed, workers)["annotations"]["inventory.windlass.dev/secrets"];
    assert_eq!(*told, format!("{ssh}/key=2"));
    assert_eq!(named(&changed, planes), named(&before, planes));
    // A control plane's machines are told by their template.
    let both = own(", onChange: RollMachines", ", onChange: RollMachines");
    let changed = rendered(&both, known("2", true));
    let other = named(&changed, planes)["name"].clone();
    assert_ne!(other, named(&before, planes)["name"]);
    let plane = changed
        .iter()
        .find(|object| object["kind"] == "KubeadmControlPlane")
        .unwrap();
    assert_eq!(
        plane["spec"]["machineTemplate"]["spec"]["infrastructureRef"]["name"],
        other
    );
}

#[test]
fn more_keys_than_a_status_tells_are_refused() {
    let documents = MACHINES.replace(
        "files: [{path: /x, contentFrom: {secret: '{{ ssh.key }}'}}]",
        "files: '{{ files }}'",
    );
    let rendered = |keys: usize| {
        let files: Vec<_> = (0..keys)
            .map(|key| format!("{{path: /{key}, contentFrom: {{secret: {{vault: {{path: infra, key: k{key}, onChange: RollMachines}}}}}}}}"))
            .collect();
        let own = format!(
            "{{token: {{vault: {{path: infra, key: k0}}}}, files: [{}]}}",
            files.join(", ")
        );
        let text = inventory(SITE, &own, CONNECTION, &documents);
        render(&text.replace("backEnd: Kubespray", "backEnd: Plain"))
    };
    if let Err(error) = rendered(256) {
        panic!("{error}");
    }
    let refused = rendered(257).unwrap_err().to_string();
    assert!(
        refused.contains("is one more than 256 for which machines are replaced"),
        "{refused}"
    );
}

#[test]
fn a_reference_that_cannot_stand_is_told_with_level_path_value_and_remedy() {
    let mut told = String::new();
    for (name, own, connection, documents) in [
        (
            "a field without references",
            "{address: {vault: {path: infra/x, key: k}}}",
            CONNECTION,
            CLUSTER.to_owned(),
        ),
        (
            "a label",
            "{}",
            CONNECTION,
            CLUSTER.replace(
                "kind: Cluster\n        metadata: {",
                "kind: Cluster\n        metadata: {labels: {x: '{{ token }}'}, ",
            ),
        ),
        (
            "a field of kubespray's that names a whole Secret",
            "{}",
            CONNECTION,
            CLUSTER.replace(
                "kubernetesVersion",
                "runner: {imagePullSecrets: ['{{ token }}']}\n          kubernetesVersion",
            ),
        ),
        ("nobody says how", "{}", "", CLUSTER.to_owned()),
        ("no server", "{}", "{mount: kv}", CLUSTER.to_owned()),
        (
            "what is not for all",
            "{}",
            "{vault: {address: a, auth: {}}, secret: {name: x}, version: 1}",
            CLUSTER.to_owned(),
        ),
        (
            "a connection that is none",
            "{}",
            "{vault: {adress: a, auth: {}}}",
            CLUSTER.to_owned(),
        ),
        (
            "a field that it does not have",
            "{}",
            "{vault: {address: a, auth: {kubernetes: {rol: x, role: r}}}}",
            CLUSTER.to_owned(),
        ),
        (
            "a connection of a secret",
            "{}",
            "{vault: {address: '{{ token }}', auth: {}}}",
            CLUSTER.to_owned(),
        ),
        (
            "a value that is not set",
            "{}",
            "{vault: {address: '{{ vault.adress }}', auth: {}}}",
            CLUSTER.to_owned(),
        ),
        (
            "a path that is none",
            "{token: {vault: {path: /infra/../x, key: k}}}",
            CONNECTION,
            CLUSTER.to_owned(),
        ),
        (
            "a key that is none",
            "{token: {vault: {path: infra, key: 'a key'}}}",
            CONNECTION,
            CLUSTER.to_owned(),
        ),
        (
            "a change that does what nobody knows",
            "{token: {vault: {path: infra, key: k, onChange: Rolling}}}",
            CONNECTION,
            CLUSTER.to_owned(),
        ),
        (
            "a change that would be one of others too",
            "{token: {vault: {path: infra, key: k, onChange: RestartProvider}}}",
            CONNECTION,
            CLUSTER.to_owned(),
        ),
        (
            "a change of what nobody looks at",
            "{token: {secretKeyRef: {name: s, key: k, onChange: InPlace}}}",
            CONNECTION,
            CLUSTER.to_owned(),
        ),
        (
            "a change for which no machine can be replaced",
            "{token: {vault: {path: infra, key: k, onChange: RollMachines}}}",
            CONNECTION,
            CLUSTER.to_owned(),
        ),
    ] {
        let text = inventory(SITE, own, connection, &documents);
        let lines = problems(&text).replace('\n', "\n  ");
        told.push_str(&format!("{name}\n  {lines}\n"));
    }
    insta::assert_snapshot!(told);
}

#[test]
fn a_reference_to_vault_is_no_text() {
    let documents = CLUSTER.replace("{{ address }}", "x{{ token }}");
    let told = problems(&inventory(SITE, "{}", CONNECTION, &documents));
    assert!(told.contains("puts the secret token into a text"), "{told}");
    assert!(fleet(&inventory(SITE, "{}", CONNECTION, CLUSTER)).is_ok());
}
