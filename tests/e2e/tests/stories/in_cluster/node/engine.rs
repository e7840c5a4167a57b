//! An engine that Windlass does not have, `tests/widgets`, beside it in a cluster: its operator keeps Jobs at its runs, whose
//! runners are killed at edges of their journals.

use std::path::Path;

use e2e::{SYSTEM, wait_until};
use lab::{Extent, Node};
use serde_json::{Value, json};
use widgets::{Edge, GROUP, PAINTING, PARENT, SHAPING, SPRAYING, Stop};

use super::{super::apply, LIMIT, count, get, name};

const WORKSHOP: &str = "workshop";

/// Runs of the engine come to their end as Jobs, whenever their runners are killed.
pub(super) fn come_to_their_end(node: &Node, images: &Path) {
    node.import(&images.join(format!("widgets/{}.tar", widgets::IMAGE.replace(':', "-"))))
        .unwrap();
    let stops = stops();
    apply(&mut node.kubectl(&[]), node.lab.dir(), &operator(&stops));
    let run = serde_json::to_value(widgets::make(WORKSHOP).unwrap()).unwrap();
    apply(&mut node.kubectl(&[]), node.lab.dir(), &[run]);

    for stop in &stops {
        let run = standing_still(node, stop);
        kill(node, &run);
    }

    let ended = |run: &Value| run["status"]["finishedAt"].is_string();
    let runs = wait_until("the runs of widgets to end", LIMIT, || {
        let runs = runs(node);
        Ok(runs.iter().all(ended).then_some(runs))
    })
    .unwrap();
    let [make, spray] = &runs[..] else {
        panic!("one run, and the one that is a step of it: {runs:#?}");
    };
    assert_eq!(spray["metadata"]["ownerReferences"][0]["name"], PARENT);
    let [bend, cut] = SHAPING;
    for (run, steps) in [(make, &[bend, cut, PAINTING][..]), (spray, &[SPRAYING])] {
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
        for step in steps {
            assert_eq!(count(run, "StepSucceeded", &json!(step)), 1, "{run:#}");
        }
        let own = |stop: &&Stop| steps.contains(&stop.step.as_str());
        let kills = stops.iter().filter(own).count();
        assert_eq!(count(run, "RunStarted", &Value::Null), kills + 1, "{run:#}");
        let jobs = get(&mut node.kubectl(&[]), WORKSHOP, "jobs");
        assert!(jobs.iter().any(|job| name(job) == name(run)), "{jobs:#?}");
    }
}

/// Edges of steps that are executed in Jobs; usually one of each run, for each takes the half minute of a Lease. While one of the
/// two side by side stands still with its work done, the other one comes to its end.
fn stops() -> Vec<Stop> {
    let at = |step: &str, edge| {
        let step = step.to_owned();
        Stop { step, edge }
    };
    let [bend, cut] = SHAPING;
    match Extent::of_this_run() {
        Extent::Usual => vec![at(cut, Edge::Worked), at(SPRAYING, Edge::Worked)],
        Extent::Full => vec![
            at(bend, Edge::Started),
            at(cut, Edge::Started),
            at(cut, Edge::Worked),
            at(SPRAYING, Edge::Started),
            at(SPRAYING, Edge::Worked),
        ],
    }
}

/// The engine's operator has the rights of Windlass', and those to its own subjects.
fn operator(stops: &[Stop]) -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let mut arguments = vec!["operator".to_owned()];
    arguments.extend(stops.iter().map(|stop| format!("--stop={stop}")));
    let labels = json!({"app.kubernetes.io/name": "widgets"});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": WORKSHOP, "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        }}),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "widgets"},
            "rules": [{"apiGroups": [GROUP], "resources": ["widgets"], "verbs": ["get"]}],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "widgets"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "widgets"},
            "subjects": [{"kind": "ServiceAccount", "name": "windlass", "namespace": SYSTEM}],
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "widgets", "namespace": SYSTEM},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": "windlass",
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "operator", "image": widgets::IMAGE, "imagePullPolicy": "Never", "args": arguments,
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            }},
        }),
    ]
}

/// The runs of widgets, the child last.
fn runs(node: &Node) -> Vec<Value> {
    let runs = get(&mut node.kubectl(&[]), WORKSHOP, "runs");
    assert!(runs.len() <= 2, "one child, whoever dies: {runs:#?}");
    runs
}

/// The name of the run whose runner stands still there.
fn standing_still(node: &Node, stop: &Stop) -> String {
    let stands_still = |run: &Value| {
        let steps = run["status"]["steps"].as_array().into_iter().flatten();
        let mut activities = steps.map(|step| &step["activity"]);
        activities.any(|activity| *activity == stop.activity())
    };
    wait_until(&stop.activity(), LIMIT, || {
        Ok(runs(node).iter().find(|run| stands_still(run)).map(name))
    })
    .unwrap()
}

/// Kills the runner of a run, as the kernel does that runs out of memory.
fn kill(node: &Node, run: &str) {
    // The pattern does not match the command that it stands in.
    let kill = format!("pkill --signal KILL --full '[r]unner --run {WORKSHOP}/{run} '");
    assert!(node.lab.ssh("host-1", &kill).unwrap().status.success());
}
