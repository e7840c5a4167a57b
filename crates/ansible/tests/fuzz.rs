//! What hosts, playbooks and releases say, damaged: it is read or refused, and nothing else happens.

use std::{collections::BTreeMap, fs};

use ansible::{
    catalogue,
    event::{self, Tally},
    slice::{Playbook, parse_listed_tasks, resolve, select},
    template,
};
use api::HostName;
use serde_json::json;

const EVENTS: &str = r#"{"run":"a#1","sequence":1,"time":1700000000.5,"event":"playbook_start","playbook":"cluster.yml","plays":2,"pid":7}
{"run":"a#1","sequence":2,"time":1700000001.0,"event":"play_start","play":1,"name":"Etcd","hosts":["one","two"]}
{"run":"a#1","sequence":3,"time":1700000002.0,"event":"task_start","play":1,"task":1,"name":"Install","action":"copy","path":"/a.yml:3","handler":false,"run_once":false}
{"run":"a#1","sequence":4,"time":1700000003.0,"event":"host_start","host":"one","task":1}
{"run":"a#1","sequence":5,"time":1700000004.0,"event":"ok","host":"one","task":1,"name":"Install","changed":true}
{"run":"a#1","sequence":6,"time":1700000004.5,"lost":3,"event":"failed","host":"two","task":1,"name":"Install","ignored":false,"message":"no","rc":3,"stderr":"cp: No space left on device"}
{"run":"a#1","sequence":7,"time":1700000005.0,"event":"unreachable","host":"two","task":1,"name":"Install","ignored":false,"message":"away"}
{"run":"a#1","sequence":8,"time":1700000006.0,"event":"retry","host":"one","task":1,"name":"Install","attempts":1,"retries":3,"message":"again"}
{"run":"a#1","sequence":9,"time":1700000007.0,"event":"item","host":"one","task":1,"outcome":"ok","item":"left","changed":true}
{"run":"a#1","sequence":10,"time":1700000008.0,"event":"stats","hosts":{"one":{"ok":1,"changed":1,"skipped":0,"failed":0,"unreachable":0,"rescued":0,"ignored":0}}}
"#;

#[test]
fn events_of_a_playbook_survive_fuzzing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("events.jsonl");
    fuzz::bytes("events", &[EVENTS.as_bytes()], |bytes| {
        fs::write(&path, bytes).expect("the events");
        let events = event::read(&path, "a#1").expect("a file that can be read");
        assert!(events.iter().all(|event| event.run == "a#1"));
        let tally = Tally::of(&events);
        let mut one_by_one = Tally::default();
        for event in &events {
            one_by_one.add(event);
        }
        assert_eq!(tally, one_by_one);
    });
}

#[test]
fn playbooks_survive_fuzzing() {
    let playbook = "---
- name: Check
  import_playbook: other.yml
- name: Prepare
  hosts: k8s_cluster:etcd:calico_rr
  gather_facts: false
  any_errors_fatal: \"{{ any_errors_fatal | default(true) }}\"
  environment: \"{{ proxy_disable_env }}\"
  vars: &anchor {a: !vault |
      $ANSIBLE_VAULT;1.1;AES256}
  roles:
    - {role: kubespray_defaults}
    - {role: kubernetes/preinstall, tags: preinstall, when: \"'x' in groups\"}
- hosts: etcd
  vars: {<<: *anchor, mode: 0644}
  tasks:
    - name: Say
      debug: {msg: '# not a comment'}
    - include_role: {name: etcd}
";
    let other = "- hosts: all\n  tasks: [{ping: }]\n- import_playbook: ../cluster.yml\n";
    let directory = tempfile::tempdir().expect("a directory");
    fuzz::bytes(
        "playbook",
        &[playbook.as_bytes(), other.as_bytes()],
        |bytes| {
            let checkout = directory.path();
            fs::write(checkout.join("cluster.yml"), bytes).expect("the playbook");
            fs::write(checkout.join("other.yml"), other.replace("../", "")).expect("the other");
            let Ok(read) = Playbook::read(checkout, "cluster") else {
                return;
            };
            for (place, slice) in read.slices().iter().enumerate() {
                assert_eq!(slice.index, place);
                assert!(checkout.join(&slice.file).exists(), "{slice:?}");
            }
        },
    );
}

#[test]
fn what_a_checkout_demands_survives_fuzzing() {
    let assertions = "---
- vars: {removed_vars: [gone]}
  assert: {that: removed_vars_found | length == 0}
- assert:
    that:
      - kube_network_plugin | d('calico') in ['calico', \"flannel\"] or container_manager != 'docker'
      - not kata_containers_enabled
  when: [not ignore_assert_errors, cloud_provider, x is defined]
- block: [{assert: {that: 'kube_version in kubelet_checksums[image_arch]'}}]
";
    let directory = tempfile::tempdir().expect("a directory");
    let tasks = directory.path().join("roles/validate_inventory/tasks");
    fs::create_dir_all(&tasks).expect("the role");
    fuzz::bytes("contract", &[assertions.as_bytes()], |bytes| {
        fs::write(tasks.join("main.yml"), bytes).expect("the assertions");
        fs::write(directory.path().join("galaxy.yml"), bytes).expect("the metadata");
        let contract = catalogue::contract(directory.path());
        for assertion in &contract.assertions {
            assert!(!assertion.any().is_empty() && !assertion.variables().is_empty());
            assert_eq!(assertion.holds(|_| catalogue::Known::Hidden), None);
        }
    });
}

#[test]
fn templates_survive_fuzzing() {
    let corpus = [
        "{{ a.b['c'] | d(e=f) is not g }}/{{ lookup('pipe', h) ~ \"}}\" }}",
        "{# {{ no }} #}{{ {'a': {b: 1.5}} }}{% if c %}{{ d }}{% endif %}",
    ];
    fuzz::text("templates", &corpus, |text| {
        for name in template::needs(text) {
            assert!(text.contains(&name), "{name}");
        }
    });
}

#[test]
fn lists_of_tasks_survive_fuzzing() {
    let listed = "playbook: cluster.yml

  play #1 (all): Prepare\tTAGS: [always]
    tasks:
      kubespray_defaults : Say : this\tTAGS: [always, facts]
      Gather\tTAGS: []

  play #2 (etcd:k8s_cluster): Etcd\tTAGS: []
    tasks:
";
    fuzz::text("listed tasks", &[listed], |text| {
        drop(parse_listed_tasks(text));
    });
}

#[test]
fn host_patterns_survive_fuzzing() {
    let name = |text: &str| text.parse::<HostName>().expect("a name");
    let all: Vec<HostName> = ["one", "two", "three", "four"].map(name).into();
    let groups: BTreeMap<String, Vec<HostName>> = [
        ("all".to_owned(), all.clone()),
        ("etcd".to_owned(), all[..3].to_vec()),
        ("kube_node".to_owned(), all[2..].to_vec()),
    ]
    .into();
    let variables = json!({"node": "one,two", "group": "etcd", "number": 3});
    let variables = variables.as_object().expect("an object");
    let corpus = [
        "kube_control_plane[0]",
        "etcd:&kube_node:!three",
        "all,!kube_node[-1]",
        "{{ node | default('etcd') }}:!{{ group }}",
        "etcd[0:1]:t*:?o*",
        "~^on.*",
    ];
    fuzz::text("host patterns", &corpus, |pattern| {
        let resolved = resolve(pattern, variables);
        for pattern in [Ok(pattern.to_owned()), resolved].into_iter().flatten() {
            let Ok(targets) = select(&pattern, &groups) else {
                continue;
            };
            let hosts = &targets.hosts;
            assert!(hosts.iter().all(|host| all.contains(host)), "{pattern:?}");
        }
    });
}
