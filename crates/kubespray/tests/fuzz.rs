//! What people and machines write that a cluster's runs read, damaged: it is read or refused, and nothing else happens.

use std::collections::{BTreeMap, BTreeSet};

use ansible::{inventory::Directories, listing::Listing};
use api::{KubesprayVersion, cluster::Ssh};
use kubespray::{
    adopt::{Existing, Wish, adopt, proof},
    bundle::{Bundle, Redaction, gather, write},
    host_keys::{HostKeys, problems},
    inputs::Inputs,
};
use runs::process::{Identity, is_gone};

const KNOWN_HOSTS: &str = "# of the site
10.0.0.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl
[10.0.0.2]:2222,worker-1 ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=
|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ==
@revoked * ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ==
";

#[test]
fn known_hosts_survive_fuzzing() {
    fuzz::text("known_hosts", &[KNOWN_HOSTS], |text| {
        let ssh = Ssh {
            known_hosts: Some(text.to_owned()),
            ..Ssh::default()
        };
        for problem in problems(Some(&ssh), &HostKeys::NotReferred) {
            let said = problem.to_string();
            assert!(said.contains("spec.ssh.knownHosts"), "{said}");
            assert!(said.len() < 2000, "{said}");
        }
    });
}

#[test]
fn names_of_holders_survive_fuzzing() {
    let own = Identity::own().unwrap().to_string();
    let corpus = [
        own.as_str(),
        "pod/first-create-1/8f1c",
        "windlass move to https://10.0.0.1",
    ];
    fuzz::text("holders", &corpus, |text| {
        // Whoever is judged gone is so by every number: this process lives.
        if text == own {
            assert!(!is_gone(text));
        }
        if let Ok(identity) = text.parse::<Identity>() {
            assert_eq!(identity.to_string().parse(), Ok(identity));
        }
    });
}

#[test]
fn inventories_that_are_adopted_survive_fuzzing() {
    let whole = r#"{"_meta": {"hostvars": {
            "one": {"ansible_host": "10.0.0.1", "ip": "10.0.0.1", "kube_version": "v1.34.3", "a": [1, {"b": "{{ c }}"}]},
            "two": {"ansible_host": "10.0.0.2", "ansible_port": 22, "p": {"__ansible_vault": "x"}, "u": {"__ansible_unsafe": "{{ d }}"}}}},
        "all": {"children": ["ungrouped", "etcd", "k8s_cluster"]}, "k8s_cluster": {"children": ["kube_control_plane", "kube_node"]},
        "kube_control_plane": {"hosts": ["one"]}, "etcd": {"hosts": ["one"]}, "kube_node": {"hosts": ["one", "two"]}}"#;
    let wish = Wish {
        namespace: "default".to_owned(),
        name: "first".to_owned(),
        kubespray: KubesprayVersion::new(2, 30, 0),
        source: None,
        kubernetes: None,
        running: None,
        members: Vec::new(),
        user: None,
    };
    fuzz::bytes("adopted", &[whole.as_bytes()], |bytes| {
        let Ok(serde_json::Value::Object(map)) = serde_json::from_slice(bytes) else {
            return;
        };
        let listing = Listing::of(map);
        let vaulted = BTreeSet::from(["a".to_owned()]);
        let existing = Existing::new(listing.clone(), &listing, &vaulted, &BTreeMap::new());
        // What comes of it is what a plan can be made of.
        if let Ok(adopted) = adopt(&existing, &wish) {
            assert!(proof::inventory(&adopted, Directories::default()).is_ok());
        }
    });
}

#[test]
fn inputs_of_plans_survive_fuzzing() {
    let whole = r#"{"kubespray": "2.30.0", "kubernetes": "1.34.4", "source": {"origin": "here", "digest": "d"},
        "hosts": [{"name": "one", "roles": ["master", "etcd"], "variables": {"ansible_host": "10.0.0.1", "ip": "10.0.0.1"}}],
        "inventory": {"order": {"etcd": ["one"]}}, "forks": 5, "ansible": {"defaults": {"timeout": "30"}},
        "ssh": {"user": "root", "port": 22, "connectTimeout": "10s"}, "variables": {"a": [1, {"b": null}]}, "renew": "30d"}"#;
    fuzz::bytes("inputs", &[whole.as_bytes()], |bytes| {
        let Ok(serde_json::Value::Object(map)) = serde_json::from_slice(bytes) else {
            return;
        };
        if let Ok(inputs) = Inputs::from_map(&map) {
            let again = Inputs::from_map(&inputs.to_map().unwrap()).unwrap();
            assert_eq!(again, inputs);
        }
    });
}

#[test]
fn bundles_survive_fuzzing() {
    let run: api::Run = serde_json::from_value(serde_json::json!({
        "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "first-1"},
        "spec": {
            "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"},
            "operation": "Create", "generation": 1, "plan": {"digest": "", "steps": []},
        },
    }))
    .unwrap();
    let nowhere = std::path::Path::new("/nonexistent");
    let gathered = gather(
        &run,
        &serde_json::json!([]),
        nowhere,
        &Redaction::of([], [0; 32]),
    );
    let mut whole = Vec::new();
    write(
        ("here", "first-1"),
        String::new(),
        &gathered.unwrap(),
        &mut whole,
    )
    .unwrap();
    fuzz::bytes("bundles", &[whole.as_slice()], |bytes| {
        if let Ok(bundle) = Bundle::read(bytes) {
            assert_eq!(bundle.manifest.run, "first-1");
            assert!(bundle.at(None).is_err(), "it has no records");
        }
    });
}
