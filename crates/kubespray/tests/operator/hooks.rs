//! Hooks stand in plans as steps of their own, and one that cannot work is refused with what would.

use std::collections::BTreeMap;

use api::{Cluster, run::Plan};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kubespray::{
    cluster::{decision::Decision, resolve},
    hooks,
    inputs::Inputs,
    problem, remedies,
    request::COMPONENT,
};
use serde_json::{Value, from_value, json};
use workflow::CheckedPlan;

use crate::{
    past::{Past, steps},
    world::World,
};

const MARK: &str = "#!/bin/sh\ntouch /root/mark\n";

/// A cluster that is to be created, with these hooks.
async fn new(hooks: Value, kinds: &[&str]) -> Past {
    let mut past = Past::new(json!({"hooks": hooks}), kinds).await;
    past.observed.runs.clear();
    past
}

fn script(name: &str, side: &str, step: &str) -> Value {
    json!({"name": name, side: step, "script": {"inline": MARK}})
}

/// The steps that come right before a step.
fn before(plan: &Plan, id: &str) -> Vec<String> {
    let step = plan.steps.iter().find(|step| step.id == id);
    step.unwrap_or_else(|| panic!("no {id} in {:?}", steps(plan)))
        .depends_on
        .clone()
}

#[tokio::test]
async fn hooks_stand_where_they_say_on_the_hosts_that_they_say() {
    let mut second = script("second", "before", "etcd/install");
    second["hosts"] = json!(["kube_node", "master-1"]);
    second["onFailure"] = json!("Pause");
    let mut elsewhere = script("elsewhere", "before", "workers/upgrade");
    elsewhere["operations"] = json!(["Upgrade"]);
    let hooks = json!([
        script("first", "before", "etcd/install"),
        second,
        script("third", "after", "etcd/install"),
        elsewhere,
    ]);
    let past = new(hooks, &["master", "worker"]).await;
    let plan = past.starts().plan;
    let all = steps(&plan);
    let at = all
        .iter()
        .position(|step| step == "hook/first: master-1")
        .unwrap_or_else(|| panic!("{all:#?}"));
    assert_eq!(
        all[at..at + 4],
        [
            "hook/first: master-1",
            "hook/second: master-1 worker-2",
            "etcd/install: master-1",
            "hook/third: master-1",
        ]
    );
    let id = |at: usize| plan.steps[at].id.clone();
    for at in at..=at + 4 {
        assert_eq!(before(&plan, &id(at)), [id(at - 1)]);
    }
    let step = |id: &str| plan.steps.iter().find(|step| step.id == id).unwrap();
    let told = serde_json::to_value(step("hook/second")).unwrap();
    assert_eq!(told["onFailure"], "Pause", "{told:#}");
    assert_eq!(step("hook/first").gate, step("etcd/install").gate);
    assert!(
        step("hook/first")
            .title
            .contains("before etcd/install on master-1")
    );
    // The plan carries what stands in it, and no more.
    let inputs = Inputs::from_map(&plan.inputs).unwrap();
    let names: Vec<_> = inputs.hooks.iter().map(|hook| &*hook.name).collect();
    assert_eq!(names, ["first", "second", "third"]);
    assert_eq!(inputs.hooks[0].text, MARK);
    CheckedPlan::new(plan).unwrap();
}

#[tokio::test]
async fn rows_side_by_side_keep_their_hooks() {
    let hooks = json!([
        script("alone", "after", "etcd/members"),
        script("others", "before", "prepare/hosts"),
    ]);
    let past = new(hooks, &["master", "worker", "etcd"]).await;
    let plan = past.starts().plan;
    assert_eq!(before(&plan, "hook/alone"), ["etcd/members"]);
    assert_eq!(before(&plan, "prepare/hosts"), ["hook/others"]);
    let common = before(&plan, "etcd/hosts");
    assert_eq!(before(&plan, "hook/others"), common);
    let both = plan
        .steps
        .iter()
        .find(|step| step.depends_on == ["hook/alone", "prepare/hosts"]);
    assert!(both.is_some(), "{:?}", steps(&plan));
    assert_eq!(plan.parallelism, Some(2));
    CheckedPlan::new(plan).unwrap();
}

#[tokio::test]
async fn a_hook_stands_at_each_batch_of_its_step() {
    let mut of_first = script("of-first", "before", "container-engine/1");
    of_first["playbook"] = json!({"inline": "- hosts: all\n  tasks: []\n"});
    of_first.as_object_mut().unwrap().remove("script");
    let hooks = json!([script("each", "after", "container-engine"), of_first]);
    let mut past = Past::new(json!({}), &["master", "worker"]).await;
    past.cluster.spec.hooks = from_value(hooks).unwrap();
    past.ask(COMPONENT, "container-engine 1");
    let plan = past.starts().plan;
    let all = steps(&plan);
    let at = all
        .iter()
        .position(|step| step == "hook/of-first: master-1")
        .unwrap_or_else(|| panic!("{all:#?}"));
    assert_eq!(
        all[at..at + 7],
        [
            "hook/of-first: master-1",
            "container-engine/1: master-1",
            "hook/each/1: master-1",
            "etcd/after-1: master-1",
            "gate/container-engine/1: master-1",
            "container-engine/2: worker-2",
            "hook/each/2: worker-2",
        ]
    );
}

/// What a wish is refused with.
fn refused(past: &Past) -> String {
    match past.decision() {
        Decision::Stall(problems) => problem::text(&problems),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_cannot_work_is_refused_with_field_value_rule_and_remedy() {
    let with = |change: Value| {
        let mut hook = script("a", "before", "etcd/install");
        for (field, value) in change.as_object().unwrap() {
            hook[field] = value.clone();
        }
        hook.as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        hook
    };
    for (change, words) in [
        (
            json!({"before": "etcd/instal"}),
            &[
                "spec.hooks[name=a].before is \"etcd/instal\"",
                "etcd/install,",
                "did you mean etcd/install?",
            ][..],
        ),
        (
            json!({"before": "workers/upgrade", "operations": ["Create"]}),
            &[
                "plans of Create by these playbooks have no such step, but",
                "control-plane/install",
            ],
        ),
        (
            json!({"before": "approve/plan"}),
            &["before a person has approved", "write after: prepare/probe"],
        ),
        (
            json!({"before": "prepare/probe"}),
            &["write after: prepare/probe"],
        ),
        (
            json!({"hosts": ["kube_nodes"]}),
            &[
                "hosts is \"kube_nodes\"",
                "no group (all, k8s_cluster,",
                "master-1",
            ],
        ),
        (
            json!({"timeout": "0s"}),
            &["timeout is \"0s\"", "1s at least and 24h at most"],
        ),
        (json!({"timeout": "2d"}), &["timeout is \"2d\""]),
        (
            json!({"script": {"inline": "touch /root/a"}}),
            &[
                "script is \"touch /root/a\"",
                "names its interpreter",
                "#!/bin/sh",
            ],
        ),
        (
            json!({"script": {"inline": "  "}}),
            &["has 1 to 65536 bytes"],
        ),
        (
            json!({"script": null, "playbook": {"inline": "- import_playbook: a.yml"}}),
            &[
                "spec.hooks[name=a].playbook",
                "neither hosts nor import_playbook",
                "without import_playbook",
            ],
        ),
        (
            json!({"script": null, "playbook": {"inline": "- hosts: ["}}),
            &["spec.hooks[name=a].playbook", "parse hook-a.yml"],
        ),
        (
            json!({"script": {"configMapKeyRef": {"name": "texts", "key": "mark"}}}),
            &[
                "configMapKeyRef.key is \"mark\"",
                "has the keys other",
                "name one of these",
            ],
        ),
        (
            json!({"script": {"configMapKeyRef": {"name": "none", "key": "mark"}}}),
            &[
                "configMapKeyRef.name is \"none\"",
                "kubectl create configmap none --from-file=mark=FILE",
            ],
        ),
        (
            json!({"script": {"configMapKeyRef": {"name": "texts", "key": "other", "sha256": "0".repeat(64)}}}),
            &["has another digest", "who changed the ConfigMap"],
        ),
    ] {
        let mut past = new(json!([]), &["master", "worker"]).await;
        past.cluster.spec.hooks = from_value(json!([with(change.clone())])).unwrap();
        past.observed.hooks = texts(&past.cluster, "other", MARK);
        let text = refused(&past);
        for word in words {
            assert!(text.contains(word), "{change}: no {word:?} in {text}");
        }
    }
}

/// What hooks find where there is one ConfigMap, `texts`, with this key.
fn texts(cluster: &Cluster, key: &str, text: &str) -> hooks::Texts {
    let map = ConfigMap {
        data: Some(BTreeMap::from([(key.to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    };
    hooks::judge(cluster, |name| Some((name == "texts").then_some(&map)))
}

fn image(name: &str, side: &str, step: &str) -> Value {
    let digest = "0".repeat(64);
    json!({"name": name, side: step, "image": {"name": format!("registry.example.com/a@sha256:{digest}")}})
}

#[tokio::test]
async fn an_image_runs_once_in_the_cluster_or_on_the_hosts_that_it_names() {
    let mut there = image("there", "after", "kubeconfig/store");
    there["hosts"] = json!(["worker-2"]);
    let mut moving = image("moving", "before", "health/check");
    moving["image"]["name"] = json!("busybox:1");
    let hooks = json!([
        image("anywhere", "after", "kubeconfig/store"),
        there,
        moving
    ]);
    let past = new(hooks, &["master", "worker"]).await;
    let plan = past.starts().plan;
    let all = steps(&plan);
    let at = all
        .iter()
        .position(|step| step == "kubeconfig/store: master-1");
    let at = at.unwrap_or_else(|| panic!("{all:#?}"));
    assert_eq!(all[at + 1].trim(), "hook/anywhere:");
    assert_eq!(all[at + 2], "hook/there: worker-2");
    let step = |id: &str| plan.steps.iter().find(|step| step.id == id).unwrap();
    assert!(step("hook/anywhere").gate.is_none());
    let title = &step("hook/anywhere").title;
    assert!(title.contains("in a pod of the cluster"), "{title}");
    assert!(!title.contains("a tag"), "{title}");
    let title = &step("hook/moving").title;
    assert!(title.contains("busybox:1 (a tag, which may"), "{title}");
    CheckedPlan::new(plan).unwrap();
}

#[tokio::test]
async fn an_image_is_refused_where_the_cluster_has_no_api() {
    let of = |operation: &str, mut hook: Value| {
        hook["operations"] = json!([operation]);
        hook
    };
    let named = |name: &str| {
        let mut hook = image("a", "before", "health/check");
        hook["image"]["name"] = json!(name);
        hook
    };
    for (hook, words) in [
        (
            image("a", "after", "etcd/install"),
            &[
                "before is",
                "a plan of Create has the cluster's API after: kubeconfig/store",
                "operations without Create",
            ][1..],
        ),
        (
            of("Create", image("a", "before", "kubeconfig/store")),
            &["before is \"kubeconfig/store\""],
        ),
        (
            of("Recover", image("a", "after", "etcd/install")),
            &["a plan of Recover has the cluster's API after: kubeconfig/store"],
        ),
        (
            of("Reset", image("a", "after", "reset")),
            &["a plan of Reset has the cluster's API after: prepare/probe alone"],
        ),
        (
            named("A B"),
            &["image.name is \"A B\"", "named as REGISTRY/PATH@sha256"],
        ),
        (named("a@sha256:12"), &["image.name is"]),
        (
            {
                let mut hook = named("a");
                hook["image"]["env"] = json!([{"name": "WINDLASS_HOST", "value": "x"}]);
                hook
            },
            &["image.env is \"WINDLASS_HOST\""],
        ),
        (
            {
                let mut hook = named("a");
                hook["script"] = json!({"inline": MARK});
                hook
            },
            &["a hook runs a script, a playbook or an image"],
        ),
    ] {
        let mut past = new(json!([]), &["master", "worker"]).await;
        past.cluster.spec.hooks = from_value(json!([hook])).unwrap();
        let text = refused(&past);
        for word in words {
            assert!(text.contains(word), "{hook}: no {word:?} in {text}");
        }
    }
    // Whose plans all have it.
    let hooks = json!([of("Upgrade", image("a", "after", "prepare/probe"))]);
    new(hooks, &["master", "worker"]).await.starts();
}

#[tokio::test]
async fn a_plan_says_what_may_be_done_by_itself() {
    for (spec, expected) in [
        (
            json!({}),
            Some("WaitForPackageLock (after PackageManagerLocked)"),
        ),
        (json!({"remedies": []}), None),
        (
            json!({"remedies": ["ClearCaches", "PruneImages"]}),
            Some("ClearCaches (after DiskFull), PruneImages (after DiskFull)"),
        ),
    ] {
        let mut past = Past::new(spec.clone(), &["master"]).await;
        past.observed.runs.clear();
        let plan = past.starts().plan;
        assert_eq!(remedies::allowed(&plan).as_deref(), expected, "{spec}");
        assert_eq!(plan.inputs.contains_key("remedies"), spec != json!({}));
    }
}

#[tokio::test]
async fn a_plan_has_the_text_of_its_time() {
    let reference = json!({"configMapKeyRef": {"name": "texts", "key": "mark"}});
    let hooks = json!([{"name": "a", "after": "prepare/probe", "script": reference}]);
    let mut past = new(json!([]), &["master"]).await;
    past.cluster.spec.hooks = from_value(hooks).unwrap();
    past.observed.hooks = texts(&past.cluster, "mark", MARK);
    let plan = past.starts().plan;
    assert_eq!(Inputs::from_map(&plan.inputs).unwrap().hooks[0].text, MARK);
    past.observed.hooks = texts(&past.cluster, "mark", "#!/bin/sh\nexit 0\n");
    assert_ne!(past.starts().plan.digest, plan.digest);
    // Who plans from files alone does not know the text, and sees the step.
    past.observed.hooks = hooks::Texts::default();
    let wanted = resolve::resolve(&past.cluster, &past.observed).unwrap();
    assert_eq!(wanted.inputs.hooks[0].text, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_of_two_minds_is_refused_at_the_door() {
    let world = World::start().await;
    let fine = script("a", "before", "etcd/install");
    let with = |field: &str, value: Value| {
        let mut hook = fine.clone();
        hook[field] = value;
        hook
    };
    for (hook, words) in [
        (
            with("after", json!("etcd/install")),
            "set before or after, one of the two",
        ),
        (
            with("playbook", json!({"inline": "x"})),
            "set script, playbook or image, one of the three",
        ),
        (
            with("script", json!({})),
            "set inline or configMapKeyRef, one of the two",
        ),
        (with("name", json!("A b")), "spec.hooks[0].name"),
        (
            with("before", json!("etcd install")),
            "spec.hooks[0].before",
        ),
        (with("onFailure", json!("Explode")), "Explode"),
        (with("operations", json!(["Explode"])), "Explode"),
        (
            with("image", json!({"name": "busybox"})),
            "set script, playbook or image, one of the three",
        ),
        (with("image", json!("busybox")), "image"),
        (
            with("image", json!({"name": ""})),
            "spec.hooks[0].image.name",
        ),
        (
            with("image", json!({"name": "a b"})),
            "spec.hooks[0].image.name",
        ),
        (
            with("image", json!({"name": "a", "volumes": []})),
            "volumes",
        ),
    ] {
        refused_at_the_door(&world, json!({"hooks": [hook]}), words).await;
    }
    for (remedies, words) in [
        (json!(["RestartEverything"]), "RestartEverything"),
        (json!(["ClearCaches", "ClearCaches"]), "spec.remedies"),
        (json!("ClearCaches"), "spec.remedies"),
    ] {
        refused_at_the_door(&world, json!({"remedies": remedies}), words).await;
    }
}

async fn refused_at_the_door(world: &World, spec: Value, words: &str) {
    let cluster = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
        "metadata": {"name": "first"}, "spec": &spec,
    });
    let clusters = world.all::<Cluster>();
    let parameters = PatchParams {
        field_validation: Some(kube::api::ValidationDirective::Strict),
        ..PatchParams::apply("test")
    };
    let patch = Patch::Apply(&cluster);
    let answer = clusters.patch("first", &parameters, &patch).await;
    let answer = answer.unwrap_err().to_string();
    assert!(answer.contains(words), "{spec}: {answer}");
}
