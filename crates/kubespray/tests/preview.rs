//! Minimal YAML through the real `resolve` and `plan`, with the bundle's playbooks.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "preview/examples.rs"]
mod examples;

use ansible::slice::REPAIRS;
use api::run::{Action, Plan};
use kube::Client;
use kubespray::{
    Layout, inputs,
    preview::{Objects, PreviewOutcome, preview},
};

const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");

struct World(Objects);

impl World {
    /// A cluster from the spec's YAML, and hosts as `name type address extra...`.
    fn new(spec: &str, hosts: &[&str]) -> Self {
        let mut spec: serde_json::Value = serde_saphyr::from_str(spec).unwrap();
        if spec.is_null() {
            spec = serde_json::json!({});
        }
        if spec.pointer("/kubespray/source").is_none() {
            spec["kubespray"]["source"] = serde_json::json!({"path": BUNDLE});
        }
        let mut world = Self(Objects::default());
        world.add_cluster("first", &spec);
        world.0.nodes = hosts.iter().map(|line| host(line)).collect();
        world
    }

    fn add_cluster(&mut self, name: &str, spec: &serde_json::Value) {
        let cluster = serde_json::json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": name, "namespace": "demo"}, "spec": spec,
        });
        self.0
            .clusters
            .push(serde_json::from_value(cluster).unwrap());
    }

    async fn outcome(&self, cluster: &str) -> PreviewOutcome {
        let data = tempfile::tempdir().unwrap();
        let previews = preview(&self.0, &Layout::new(data.path())).await;
        let found = previews
            .into_iter()
            .find(|preview| preview.cluster == cluster);
        found.unwrap().outcome
    }

    async fn problems(&self) -> String {
        match self.outcome("first").await {
            PreviewOutcome::Problems(problems) => kubespray::problem::text(&problems),
            other => panic!("expected problems, got {other:?}"),
        }
    }

    async fn plan(&self) -> Plan {
        match self.outcome("first").await {
            PreviewOutcome::Plan(plan) => *plan,
            other => panic!("expected a plan, got {other:?}"),
        }
    }
}

fn host(line: &str) -> api::ClusterNode {
    let mut words = line.split_whitespace();
    let (name, kind, address) = (
        words.next().unwrap(),
        words.next().unwrap(),
        words.next().unwrap(),
    );
    let mut inventory = serde_json::json!({"ansible_host": address});
    let mut roles: Option<Vec<&str>> = None;
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        if key == "roles" {
            roles = Some(value.split(',').collect());
            continue;
        }
        inventory[key] = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    }
    serde_json::from_value(serde_json::json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
        "metadata": {"name": name, "namespace": "demo"},
        "spec": {"type": kind, "roles": roles, "inventory": inventory},
    }))
    .unwrap()
}

const THREE: [&str; 3] = [
    "master-1 master 10.0.0.1",
    "worker-1 worker 10.0.0.2",
    "worker-2 worker 10.0.0.3",
];

fn shown(plan: &Plan) -> String {
    let mut text = format!("{}\n", plan.reason.clone().unwrap_or_default());
    for step in &plan.steps {
        let hosts: Vec<_> = plan.targets(step).map(ToString::to_string).collect();
        let play = kubespray::action::play_of(step)
            .map(|play| format!(" play {} of {}", play.play, play.playbook))
            .unwrap_or_default();
        text.push_str(&format!("{}{play} on {}\n", step.id, hosts.join(" ")));
    }
    text
}

#[tokio::test]
async fn the_plan_of_a_first_cluster() {
    let plan = World::new("{}", &THREE).plan().await;
    insta::assert_snapshot!(shown(&plan));
    assert!(plan.steps.iter().all(|step| !step.title.is_empty()));
    assert!(
        plan.steps
            .windows(2)
            .all(|pair| pair[1].depends_on == [pair[0].id.clone()])
    );
}

#[tokio::test]
async fn the_same_wish_gives_the_same_plan_and_another_wish_another() {
    let digest = async |spec: &str| World::new(spec, &THREE).plan().await.digest;
    let base = digest("{}").await;
    assert_eq!(base, digest("{}").await);
    assert_ne!(base, digest("ssh: {user: admin}").await);
}

#[tokio::test]
async fn an_approval_comes_first() {
    let spec = "operations: {creation: {approval: Manual}}";
    let plan = World::new(spec, &THREE).plan().await;
    assert!(
        matches!(plan.steps[0].action, Action::Approve(_)),
        "{:?}",
        plan.steps[0]
    );
}

#[tokio::test]
async fn a_first_plan_says_before_which_plays_something_may_be_undone() {
    let plan = World::new("{}", &THREE).plan().await;
    assert!(format!("{:?}", plan.inputs).contains("windlass_founding"));
    // Each play of the table is one of the playbook.
    let steps = plan.steps.iter();
    let told = steps.filter(|step| step.title.contains("is undone first"));
    let told: Vec<_> = told.map(|step| step.id.as_str()).collect();
    assert_eq!(told, REPAIRS.map(|repair| repair.play));
}

#[tokio::test]
async fn a_cluster_that_was_adopted_is_taken_over_by_looks_alone() {
    let mark = ("kubespray.k8s.io/adopted".to_owned(), "true".to_owned());
    let adopted = |spec: &str| {
        let mut world = World::new(spec, &THREE);
        world.0.clusters[0].metadata.annotations = Some([mark.clone()].into());
        world
    };
    let plan = adopted("kubernetesVersion: 1.34.4").plan().await;
    insta::assert_snapshot!(shown(&plan), @r"
    the cluster was built before and is taken over as it stands: kubespray 2.31.0 with Kubernetes 1.34.4 on 3 hosts, on which nothing is changed
    prepare/sandbox on 
    prepare/probe on master-1 worker-1 worker-2
    adopt/members on master-1
    kubeconfig/store on master-1
    adopt/versions on master-1 worker-1 worker-2
    ");
    let asked = "{kubernetesVersion: 1.34.4, operations: {creation: {approval: Manual}}}";
    let plan = adopted(asked).plan().await;
    assert!(matches!(plan.steps[0].action, Action::Approve(_)));
    let unknown = adopted("{}").problems().await;
    assert!(
        unknown.contains("Cluster spec.kubernetesVersion")
            && unknown.contains("write the version that its nodes report"),
        "{unknown}"
    );
}

#[tokio::test]
async fn thresholds_and_retries_reach_the_steps() {
    let spec =
        "operations: {creation: {maxRetries: 3, thresholds: {unreachable: 20%, onBreach: Pause}}}";
    let plan = World::new(spec, &THREE).plan().await;
    let probe = plan
        .steps
        .iter()
        .find(|step| step.id == "prepare/probe")
        .unwrap();
    let gate = probe.gate.clone().unwrap();
    assert_eq!(gate.unreachable.to_string(), "20%");
    assert_eq!(gate.on_breach, api::run::OnBreach::Pause);
    assert_eq!(probe.retry.clone().unwrap().limit, 3);
}

#[tokio::test]
async fn start_conditions_say_what_is_missing() {
    for (name, spec, hosts, expected) in [
        (
            "no host",
            "{}",
            &[][..],
            "1 more etcd host, 1 more control-plane host, 1 more host",
        ),
        (
            "etcd",
            "operations: {creation: {startConditions: {etcd: {minimum: 3}}}}",
            &THREE[..1],
            "2 more etcd hosts",
        ),
        (
            "an even count on the way",
            "operations: {creation: {startConditions: {etcd: {minimum: 3}}}}",
            &["a master 10.0.0.1", "b master 10.0.0.2"],
            "1 more etcd host",
        ),
        (
            "nodes",
            "operations: {creation: {startConditions: {nodes: {minimum: 5}}}}",
            &THREE,
            "2 more hosts",
        ),
    ] {
        let outcome = World::new(spec, hosts).outcome("first").await;
        let PreviewOutcome::Waiting(missing) = outcome else {
            panic!("{name}: {outcome:?}");
        };
        assert_eq!(missing.join(", "), expected, "{name}");
    }
}

#[tokio::test]
async fn bad_input_is_told_with_field_value_rule_and_remedy() {
    let two_etcd = ["a master 10.0.0.1", "b master 10.0.0.2"];
    let twin = ["a master 10.0.0.1", "b worker 10.0.0.1"];
    let typed = ["a master 10.0.0.1 label=1.5", "b worker 10.0.0.2"];
    for (name, spec, hosts, expected) in [
        (
            "even etcd",
            "{}",
            &two_etcd[..],
            &["odd number", "ClusterNodes"][..],
        ),
        (
            "duplicate address",
            "{}",
            &twin,
            &["10.0.0.1", "ansible_host"],
        ),
        (
            "unknown release",
            "kubespray: {version: 2.99.0}",
            &THREE,
            &["spec.kubespray.version", "2.99.0", "nearest"],
        ),
        (
            "version not installable",
            "kubernetesVersion: 1.20.0",
            &THREE,
            &["spec.kubernetesVersion", "1.20.0", "installs"],
        ),
        (
            "overlapping networks",
            "nodes: {all: {deploy: {extraVars: {kube_pods_subnet: 10.233.0.0/16}}}}",
            &THREE,
            &["kube_pods_subnet", "10.233.0.0/16", "overlap"],
        ),
        ("variable type", "{}", &typed, &["label", "1.5"]),
        (
            "no kubespray",
            "kubespray: {source: {path: /usr/share}}",
            &THREE,
            &["spec.kubespray.source", "/usr/share"],
        ),
    ] {
        let text = World::new(spec, hosts).problems().await;
        for part in expected {
            assert!(text.contains(part), "{name}: {part:?} is not in: {text}");
        }
    }
}

#[tokio::test]
async fn the_second_cluster_of_a_namespace_is_refused() {
    let mut world = World::new("{}", &THREE);
    let spec = serde_json::json!({"kubespray": {"source": {"path": BUNDLE}}});
    world.add_cluster("second", &spec);
    assert!(matches!(
        world.outcome("first").await,
        PreviewOutcome::Plan(_)
    ));
    let PreviewOutcome::Problems(problems) = world.outcome("second").await else {
        panic!("the second cluster was accepted");
    };
    assert!(
        problems[0].rule.contains("first was there first"),
        "{problems:?}"
    );
}

#[tokio::test]
async fn a_playbook_with_a_syntax_error_is_told_with_its_place() {
    let checkout = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("cp")
        .args([
            "-r",
            &format!("{BUNDLE}/."),
            checkout.path().to_str().unwrap(),
        ])
        .status()
        .unwrap();
    assert!(status.success());
    std::fs::write(
        checkout.path().join("playbooks/cluster.yml"),
        "- name: [broken\n",
    )
    .unwrap();
    let spec = format!(
        "kubespray: {{source: {{path: {}}}}}",
        checkout.path().display()
    );
    let text = World::new(&spec, &THREE).problems().await;
    assert!(text.contains("playbooks/cluster.yml"), "{text}");
}

#[tokio::test]
async fn what_a_built_cluster_cannot_become_is_refused_with_its_remedy() {
    let built = serde_json::json!({
        "kubernetesVersion": "1.34.4",
        "inventory": {"order": {"kube_control_plane": ["master-1"], "etcd": ["master-1"], "kube_node": ["worker-1", "worker-2"]}},
    });
    let spec = |version: &str| format!("kubernetesVersion: {version}");
    let without_head = &["master-9 master 10.0.0.9", THREE[1], THREE[2]];
    let other_role = &["master-1 worker 10.0.0.1", "master-9 master 10.0.0.9"];
    let cases: [(&str, String, &[&str], [&str; 4]); 4] = [
        (
            "a skipped minor",
            spec("1.36.0"),
            &THREE,
            [
                "spec.kubernetesVersion",
                "1.36.0",
                "more than one minor version after the installed 1.34.4",
                "write a version of 1.35",
            ],
        ),
        (
            "a downgrade",
            spec("1.33.0"),
            &THREE,
            [
                "spec.kubernetesVersion",
                "1.33.0",
                "older than the installed 1.34.4",
                "write 1.34.4",
            ],
        ),
        (
            "a head that is gone",
            spec("1.34.4"),
            without_head,
            [
                "ClusterNode/master-1",
                "missing",
                "head of kube_control_plane",
                "restore the ClusterNode master-1",
            ],
        ),
        (
            "a head that lost its role",
            spec("1.34.4"),
            other_role,
            [
                "ClusterNode/master-1",
                "missing",
                "head of etcd",
                "with its roles",
            ],
        ),
    ];
    for (name, spec, hosts, expected) in cases {
        let mut world = World::new(&spec, hosts);
        world.0.clusters[0].status = serde_json::from_value(built.clone()).unwrap();
        let said = world.problems().await;
        for words in expected {
            assert!(said.contains(words), "{name}: {words:?} is not in: {said}");
        }
    }
}

#[tokio::test]
async fn the_order_of_hosts_is_that_of_the_first_plan() {
    // Declared in another order than the cluster was built in, as after a restore from files.
    let mut world = World::new("{}", &[THREE[2], THREE[1], THREE[0]]);
    let built =
        serde_json::json!({"inventory": {"order": {"kube_node": ["worker-1", "worker-2"]}}});
    world.0.clusters[0].status = serde_json::from_value(built).unwrap();
    let inputs = kubespray::inputs::Inputs::from_map(&world.plan().await.inputs).unwrap();
    let order: Vec<_> = inputs
        .group("kube_node")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(order, ["worker-1", "worker-2"]);
}

/// A plan names each host once for the steps, and so a large cluster fits into one object with all that becomes of its run.
#[tokio::test]
async fn five_thousand_hosts_fit_into_a_run_and_a_cluster() {
    let kinds = api::custom_resource_definitions();
    let server = kapi::Server::in_memory(&kinds).await.unwrap();
    let client = Client::new(server.router(), "default");
    let stored = builders::store(&client, 5000).await.unwrap();
    let changeable = builders::changeable(&client, &stored.run).await.unwrap();
    assert_eq!(changeable, ["control"]);
    let plan = &stored.run.spec.plan;
    assert!(plan.groups.len() < 5, "{} groups", plan.groups.len());
    let named: usize = plan.groups.iter().map(|group| group.targets.len()).sum();
    assert_eq!(named, 5000);
    let digest = inputs::digest("Create", plan).unwrap();
    assert_eq!(digest, plan.digest, "it is read as it was written");
    assert_eq!(stored.run.status.unwrap().excluded.len(), 1667);
    let (run, cluster) = (stored.run_bytes, stored.cluster_bytes);
    println!("of 5,000 hosts a Run takes {run} bytes and a Cluster {cluster}");
    assert!(run < builders::OBJECT, "the Run takes {run} bytes");
    assert!(cluster < 512 * 1024, "the Cluster takes {cluster} bytes");
}

#[tokio::test]
async fn a_plan_that_no_object_can_hold_is_refused_with_the_way_out() {
    let long = |at| format!("{at:05}-{}", "long".repeat(14));
    let nodes = builders::nodes(5000, long).unwrap();
    let PreviewOutcome::Problems(problems) = builders::outcome(nodes).await.unwrap() else {
        panic!("the plan was accepted");
    };
    let text = kubespray::problem::text(&problems);
    for part in ["ClusterNodes", "5000 hosts", "KiB", "shorter names"] {
        assert!(text.contains(part), "{text}");
    }
}

/// What etcd on hosts of its own means for the order of the steps.
mod external_etcd {
    use super::*;

    const HOSTS: [&str; 5] = [
        "etcd-1 etcd 10.0.0.1",
        "etcd-2 etcd 10.0.0.2",
        "etcd-3 etcd 10.0.0.3",
        "master-1 master 10.0.0.4 roles=control-plane",
        "worker-1 worker 10.0.0.5",
    ];

    /// Each step with those that it waits for, and the hosts of plays that are bound to them.
    fn graph(plan: &Plan) -> String {
        let mut text = format!("side by side: {:?}\n", plan.parallelism);
        for step in &plan.steps {
            let limited = kubespray::action::play_of(step).is_some_and(|play| play.limited);
            let hosts: Vec<_> = plan.targets(step).map(ToString::to_string).collect();
            text.push_str(&format!(
                "{} after {}",
                step.id,
                step.depends_on.join(" and ")
            ));
            if limited {
                text.push_str(&format!(", only on {}", hosts.join(" ")));
            }
            text.push('\n');
        }
        text
    }

    #[tokio::test]
    async fn hosts_of_etcd_are_made_ready_beside_the_others() {
        let plan = World::new("{}", &HOSTS).plan().await;
        insta::assert_snapshot!(graph(&plan));
        workflow::CheckedPlan::new(plan).unwrap();
    }

    #[tokio::test]
    async fn hosts_that_may_meet_are_made_ready_one_after_the_other() {
        let variables =
            |text: &str| format!("nodes: {{all: {{deploy: {{extraVars: {{{text}}}}}}}}}");
        let stacked = ["a master 10.0.0.1", "b worker 10.0.0.2"];
        let cases: [(&str, String, &[&str]); 4] = [
            ("etcd on the control plane", "{}".to_owned(), &stacked),
            (
                "one downloads for all",
                variables("download_run_once: true"),
                &HOSTS,
            ),
            (
                "a word for yes",
                variables("download_force_cache: \"yes\""),
                &HOSTS,
            ),
            (
                "nobody knows what the Secret says",
                "nodes: {all: {deploy: {extraVarsSecretRef: {name: hidden}}}}".to_owned(),
                &HOSTS,
            ),
        ];
        for (name, spec, hosts) in cases {
            let plan = World::new(&spec, hosts).plan().await;
            assert_eq!(plan.parallelism, None, "{name}");
        }
        let allowed = variables("download_run_once: false");
        let plan = World::new(&allowed, &HOSTS).plan().await;
        assert_eq!(plan.parallelism, Some(2));
    }
}

/// What a release would refuse some minutes into a run is refused before.
mod demands {
    use std::{fs, path::Path};

    use super::*;

    /// As releases write it: the bundle itself takes one word of each.
    const ASSERTIONS: &str = "
- name: Fail if removed variables are used
  vars: {removed_vars: [kubelet_static_pod_path, loadbalancer_apiserver, eviction_hard_control_plane]}
  assert: {that: removed_vars_found | length == 0}
- name: Stop if unsupported options selected
  assert:
    that:
      - kube_network_plugin in ['bridge', 'calico', 'flannel', 'none']
      - etcd_deployment_type in ['host', 'docker', 'kubeadm']
      - etcd_deployment_type in ['host', 'kubeadm'] or container_manager == 'docker'
      - container_manager in ['docker', 'crio', 'containerd']
    msg: The selected choice is not supported
  run_once: true
- name: Stop if gvisor_enabled is enabled when container_manager is not containerd
  assert:
    that: container_manager == 'containerd'
  when: gvisor_enabled
- name: Check external_cloud_provider value
  assert:
    that: external_cloud_provider in ['openstack', 'vsphere']
  when:
    - cloud_provider == 'external'
    - not ignore_assert_errors
";

    struct Release {
        checkout: tempfile::TempDir,
    }

    impl Release {
        /// The bundle with demands of kubespray's form.
        fn new() -> Self {
            let checkout = tempfile::tempdir().unwrap();
            let copied = std::process::Command::new("cp")
                .args(["-r", &format!("{BUNDLE}/.")])
                .arg(checkout.path())
                .status();
            assert!(copied.unwrap().success());
            let release = Self { checkout };
            release.write("roles/validate_inventory/tasks/main.yml", ASSERTIONS);
            release
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.path().join(file), text).unwrap();
        }

        fn path(&self) -> &Path {
            self.checkout.path()
        }

        fn world(&self, spec: &str, variables: &str) -> World {
            let mut spec: serde_json::Value = serde_saphyr::from_str(spec).unwrap();
            let variables: serde_json::Value = serde_saphyr::from_str(variables).unwrap();
            spec["nodes"]["all"]["deploy"]["extraVars"] = variables;
            spec["kubespray"]["source"] = serde_json::json!({"path": self.path()});
            World::new(&spec.to_string(), &THREE)
        }
    }

    const VARIABLES: &str = "Cluster spec.nodes.all.deploy.extraVars";

    #[tokio::test]
    async fn each_is_told_with_field_value_rule_and_remedy() {
        let release = Release::new();
        for (name, spec, variables, expected) in [
            (
                "a choice that is none",
                "{}",
                "kube_network_plugin: flanel",
                [
                    "extraVars.kube_network_plugin",
                    "\"flanel\"",
                    "these playbooks take bridge, calico, flannel, none",
                    "did you mean flannel?",
                ],
            ),
            (
                "a choice far from any",
                "{}",
                "container_manager: podman",
                [
                    "extraVars.container_manager",
                    "\"podman\"",
                    "take docker, crio, containerd",
                    "write one of these",
                ],
            ),
            (
                "choices that do not go together",
                "{}",
                "etcd_deployment_type: docker",
                [
                    "extraVars.etcd_deployment_type",
                    "\"docker\"",
                    "container_manager is docker, and container_manager is containerd",
                    "change etcd_deployment_type or container_manager",
                ],
            ),
            (
                "a switch that does not go with a choice",
                "{}",
                "{gvisor_enabled: true, container_manager: crio}",
                [
                    "extraVars.container_manager",
                    "\"crio\"",
                    "container_manager is containerd, and gvisor_enabled is true",
                    "change container_manager or gvisor_enabled",
                ],
            ),
            (
                "a choice that is asked for by another",
                "{}",
                "{cloud_provider: external, external_cloud_provider: openstck}",
                [
                    "extraVars.external_cloud_provider",
                    "\"openstck\"",
                    "take openstack, vsphere",
                    "did you mean openstack?",
                ],
            ),
            (
                "a variable that is gone",
                "{}",
                "kubelet_static_pod_path: /etc/pods",
                [
                    "extraVars.kubelet_static_pod_path",
                    "/etc/pods",
                    "had this variable once",
                    "leave it out; the notes of the release",
                ],
            ),
            (
                "a variable that has another name now",
                "{}",
                "loadbalancer_apiserver: {address: 10.0.0.99, port: 6443}",
                [
                    "extraVars.loadbalancer_apiserver",
                    "10.0.0.99",
                    "had this variable once",
                    "leave it out; kube_apiserver_endpoint and kube_apiserver_cluster_internal_endpoint took its place",
                ],
            ),
            (
                "a variable that is of hosts now",
                "{}",
                "eviction_hard_control_plane: {memory.available: 100Mi}",
                [
                    "extraVars.eviction_hard_control_plane",
                    "100Mi",
                    "had this variable once",
                    "leave it out; eviction_hard in spec.inventory of the ClusterNodes of the control plane took its place",
                ],
            ),
            (
                "a template of what nobody defines",
                "{}",
                "{files_repo: 'http://10.0.0.1', mirror: {urls: ['{{ file_repo }}/{{ kube_version }}']}}",
                [
                    "extraVars.mirror.urls[0]",
                    "{{ file_repo }}/{{ kube_version }}",
                    "the variable file_repo is defined nowhere",
                    "did you mean files_repo?",
                ],
            ),
            (
                "playbooks of another release",
                "kubespray: {version: 2.29.1}",
                "{}",
                [
                    "Cluster spec.kubespray.version",
                    "2.29.1",
                    "holds kubespray 2.30.0",
                    "write 2.30.0, or name the playbooks of 2.29.1",
                ],
            ),
        ] {
            let told = release.world(spec, variables).problems().await;
            for part in expected {
                assert!(told.contains(part), "{name}: {part:?} is not in: {told}");
            }
            assert_eq!(told.matches("Cluster spec.").count(), 1, "{name}: {told}");
        }
    }

    #[tokio::test]
    async fn all_are_told_at_once() {
        let release = Release::new();
        let world = release.world(
            "{kubespray: {version: 2.31.0}, kubernetesVersion: 1.99.0}",
            "{kube_network_plugin: flanel, a: '{{ b }}', kubelet_static_pod_path: x, kube_pods_subnet: x}",
        );
        let told = world.problems().await;
        for field in [
            "Cluster spec.kubespray.version",
            "Cluster spec.kubernetesVersion",
            &format!("{VARIABLES}.kube_network_plugin"),
            &format!("{VARIABLES}.a"),
            &format!("{VARIABLES}.kubelet_static_pod_path"),
            &format!("{VARIABLES}.kube_pods_subnet"),
        ] {
            assert!(told.contains(field), "{field} is not in: {told}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_known_is_left_to_the_playbooks() {
        let release = Release::new();
        for (name, spec, variables) in [
            ("nothing", "{}", "{}"),
            (
                "good choices",
                "{}",
                "{kube_network_plugin: flannel, etcd_deployment_type: kubeadm}",
            ),
            (
                "a template",
                "{}",
                "kube_network_plugin: '{{ plugin }}'\nplugin: flanel",
            ),
            (
                "a choice that nobody asks for",
                "{}",
                "external_cloud_provider: mine",
            ),
            (
                "assertions ignored",
                "{}",
                "{ignore_assert_errors: true, cloud_provider: external, external_cloud_provider: mine}",
            ),
            ("a default", "{}", "a: '{{ b | default(c) }}'"),
            (
                "defined by Ansible and the playbooks",
                "{}",
                "a: '{{ ansible_facts.os_family }}{{ inventory_hostname }}{{ main_ip }}{{ item }}'",
            ),
            (
                "a Secret that nobody sees",
                "nodes: {all: {deploy: {extraVarsSecretRef: {name: hidden}}}}",
                "a: '{{ b }}'",
            ),
            (
                "the release that it is",
                "kubespray: {version: 2.30.0}",
                "{}",
            ),
        ] {
            let outcome = release.world(spec, variables).outcome("first").await;
            assert!(
                matches!(outcome, PreviewOutcome::Plan(_)),
                "{name}: {outcome:?}"
            );
        }
    }

    #[tokio::test]
    async fn playbooks_that_demand_nothing_are_taken_as_they_are() {
        let release = Release::new();
        let spec = "kubespray: {version: 2.29.0}";
        let variables = "{kube_network_plugin: flanel, container_manager: podman}";
        for (galaxy, tasks) in [
            ("version: none", "[]"),
            ("name: [", "- assert: ["),
            (
                "name: kubespray\nversion: 2.32.0",
                "- assert: {that: 'kube_network_plugin | length > 2'}",
            ),
        ] {
            release.write("galaxy.yml", galaxy);
            release.write("roles/validate_inventory/tasks/main.yml", tasks);
            let outcome = release.world(spec, variables).outcome("first").await;
            assert!(
                matches!(outcome, PreviewOutcome::Plan(_)),
                "{galaxy}: {outcome:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_release_that_spells_versions_otherwise_must_be_named() {
        let release = Release::new();
        release.write("galaxy.yml", "name: kubespray\nversion: 2.27.0\n");
        let told = release.world("{}", "{}").problems().await;
        for part in ["spec.kubespray.version", "2.31.0", "write 2.27.0"] {
            assert!(told.contains(part), "{part:?} is not in: {told}");
        }
        release.write("galaxy.yml", "name: kubespray\nversion: 2.29.0\n");
        let outcome = release.world("{}", "{}").outcome("first").await;
        assert!(matches!(outcome, PreviewOutcome::Plan(_)), "{outcome:?}");
    }

    #[tokio::test]
    async fn checksums_of_ones_own_help_as_far_as_the_playbooks_take_them() {
        let all =
            "{kubelet_binary_checksum: a, kubeadm_binary_checksum: b, kubectl_binary_checksum: c}";
        let tables = "{kubelet_checksums: {amd64: {1.34.9: a}}, kubeadm_checksums: {amd64: {1.34.9: b}}, kubectl_checksums: '{{ kubelet_checksums }}'}";
        let listed = "- assert: {that: 'kube_version in kubelet_checksums[image_arch]'}";
        let spec = |version: &str| format!("kubernetesVersion: {version}");
        let release = Release::new();
        for (tasks, version, variables, expected) in [
            ("[]", "1.34.9", all, None),
            ("[]", "1.34.9", tables, None),
            (listed, "1.34.9", tables, None),
            (
                "[]",
                "1.34.9",
                "kubelet_binary_checksum: a",
                Some("kubeadm_binary_checksum, kubectl_binary_checksum too"),
            ),
            (
                listed,
                "1.34.9",
                all,
                Some("kubelet_checksums, kubeadm_checksums, kubectl_checksums too"),
            ),
            (
                "[]",
                "1.35.0",
                all,
                Some("write a version that the release can install"),
            ),
            (
                "[]",
                "1.33.0",
                tables,
                Some("write a version that the release can install"),
            ),
            (
                "[]",
                "1.34.9",
                "{}",
                Some("write a version that the release can install"),
            ),
        ] {
            release.write("roles/validate_inventory/tasks/main.yml", tasks);
            let world = release.world(&spec(version), variables);
            match (world.outcome("first").await, expected) {
                (PreviewOutcome::Plan(_), None) => {}
                (PreviewOutcome::Problems(problems), Some(expected)) => {
                    let told = kubespray::problem::text(&problems);
                    assert!(
                        told.contains(version) && told.contains(expected),
                        "{expected} is not in: {told}"
                    );
                }
                (outcome, _) => panic!("{tasks} {version} {variables}: {outcome:?}"),
            }
        }
    }
}

mod authorities {
    use super::*;

    const SPEC: &str = "operations: {creation: {authoritiesSecretRef: {name: own}}}";
    const STEP: &str = "etcd/authorities";

    /// What the step comes before, and its hosts.
    fn placed(plan: &Plan) -> (&str, Vec<String>) {
        let at = plan.steps.iter().position(|step| step.id == STEP).unwrap();
        let next = &plan.steps[at + 1];
        assert_eq!(next.depends_on, [STEP]);
        let hosts = plan.targets(&plan.steps[at]);
        (&next.id, hosts.map(ToString::to_string).collect())
    }

    #[tokio::test]
    async fn they_are_on_the_first_hosts_before_the_first_certificate_is_made() {
        let plan = World::new(SPEC, &THREE).plan().await;
        let first = ("etcd/install", vec!["master-1".to_owned()]);
        assert_eq!(placed(&plan), first);
        assert_eq!(plan.inputs["authoritiesSecretRef"]["name"], "own");

        let hosts = [
            "etcd-1 etcd 10.0.0.1",
            "master-1 master 10.0.0.4 roles=control-plane",
            "worker-1 worker 10.0.0.5",
        ];
        let plan = World::new(SPEC, &hosts).plan().await;
        let (next, hosts) = placed(&plan);
        assert_eq!(next, "etcd/install");
        assert_eq!(hosts.len(), 2);
        workflow::CheckedPlan::new(plan).unwrap();
    }

    #[tokio::test]
    async fn without_them_nothing_is_brought() {
        let plan = World::new("{}", &THREE).plan().await;
        assert!(plan.steps.iter().all(|step| step.id != STEP));
    }

    #[tokio::test]
    async fn a_secret_among_the_files_is_looked_at() {
        let mut world = World::new(SPEC, &THREE);
        let secret = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own", "namespace": "demo"},
            "stringData": {"ca.crt": "-----BEGIN CERTIFICATE-----", "ca.key": "hidden"},
        });
        world
            .0
            .secrets
            .push(serde_json::from_value(secret).unwrap());
        let problems = world.problems().await;
        assert!(problems.contains("authoritiesSecretRef"), "{problems}");
        assert!(!problems.contains("hidden"), "{problems}");
    }
}
