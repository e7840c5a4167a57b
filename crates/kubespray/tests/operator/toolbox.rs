//! What people do to nodes by hand is a run, once for each request, and leaves the cluster as it was.

use kubespray::{
    cluster::decision::Decision, inputs::Inputs, operation::toolbox::ASKED, request::TOOLBOX,
};
use serde_json::json;

use crate::past::{Past, days, steps};

const HOSTS: [&str; 4] = ["master", "master", "master", "worker"];

impl Past {
    fn tool_refused(&mut self, request: &str) -> String {
        self.ask(TOOLBOX, request);
        let answer = ASKED.answer(&self.cluster, &self.decision()).unwrap();
        answer.refused.unwrap()
    }
}

#[tokio::test]
async fn each_verb_is_a_run_and_each_request_is_carried_out_once() {
    // As its groups have them: those that share all steps stand together.
    let all = "master-1 master-3 master-2";
    for (request, expected) in [
        (
            "cordon worker-4 1",
            vec!["nodes/cordon: worker-4".to_owned()],
        ),
        (
            "uncordon worker-4,master-1 1",
            vec!["nodes/uncordon: master-1 worker-4".to_owned()],
        ),
        (
            "drain worker-4 1",
            vec![
                "drain/budgets: worker-4".to_owned(),
                "drain/pods: worker-4".to_owned(),
            ],
        ),
        ("token 1h 1", vec!["token/make: ".to_owned()]),
        (
            "certificates master-1,worker-4 1",
            vec![
                "prepare/probe: master-1 worker-4".to_owned(),
                "certificates/look: master-1 worker-4".to_owned(),
            ],
        ),
        (
            "restart kubelet worker-4,master-2 1",
            vec![
                "prepare/sandbox: ".to_owned(),
                "prepare/probe: master-2 worker-4".to_owned(),
                "restart/1: worker-4".to_owned(),
                "restart/2: master-2".to_owned(),
                "health/check: master-2 worker-4".to_owned(),
            ],
        ),
        (
            "restart etcd master-2 1",
            vec![
                "prepare/sandbox: ".to_owned(),
                "prepare/probe: master-2".to_owned(),
                format!("etcd/before-1: {all}"),
                "restart/1: master-2".to_owned(),
                format!("etcd/after-1: {all}"),
                format!("health/check: {all} worker-4"),
            ],
        ),
        (
            "restart container-engine worker-4,master-2 1",
            vec![
                "prepare/sandbox: ".to_owned(),
                "prepare/probe: master-2 worker-4".to_owned(),
                "restart/1: worker-4".to_owned(),
                format!("etcd/before-2: {all}"),
                "restart/2: master-2".to_owned(),
                format!("etcd/after-2: {all}"),
                "health/check: master-2 worker-4".to_owned(),
            ],
        ),
    ] {
        let mut past = Past::new(json!({}), &HOSTS).await;
        past.ask(TOOLBOX, request);
        let new = past.starts();
        assert_eq!(new.name, "first-toolbox-2", "{request}");
        assert_eq!(steps(&new.plan), expected, "{request}");
        let inputs = Inputs::from_map(&new.plan.inputs).unwrap();
        let part = inputs.operation_variables.get("windlass_restart_part");
        assert_eq!(part.is_some(), request.starts_with("restart"), "{request}");
        let answer = ASKED.answer(&past.cluster, &past.decision()).unwrap();
        assert_eq!(answer.run.as_deref(), Some("first-toolbox-2"));
        past.ran(&new, "Succeeded", days(-1));
        past.rests();
    }
}

#[tokio::test]
async fn one_that_failed_holds_nothing_up() {
    let mut past = Past::new(json!({}), &HOSTS).await;
    past.ask(TOOLBOX, "drain worker-4 1");
    let new = past.starts();
    past.ran(&new, "Failed", days(-1));
    past.rests();
    past.ask(TOOLBOX, "drain-forced worker-4 2");
    let again = past.starts();
    assert_eq!(again.name, "first-toolbox-3");
    let drain = again.plan.steps.last().unwrap();
    let drain = serde_json::to_value(&drain.action).unwrap();
    assert_eq!(
        drain["engine"]["parameters"]["forced"],
        json!(["worker-4"]),
        "{drain:#}"
    );
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_with_what_can() {
    let mut past = Past::new(json!({}), &["master", "worker", "etcd"]).await;
    for (request, words) in [
        ("reboot worker-2 1", &["its first word is a verb"][..]),
        (
            "cordon worker-9 1",
            &["cordon can be done to master-1, worker-2, and worker-9 is none of these"],
        ),
        ("drain etcd-3 1", &["and etcd-3 is none of these"]),
        (
            "restart etcd worker-2 1",
            &["restart etcd can be done to etcd-3, and worker-2"],
        ),
        (
            "restart kube-scheduler worker-2 1",
            &["can be done to master-1, and worker-2"],
        ),
        ("token 48h 1", &["10m at least and 24h at most"]),
    ] {
        let refused = past.tool_refused(request);
        for word in words {
            assert!(refused.contains(word), "{request}: {refused}");
        }
        assert!(matches!(past.decision(), Decision::Keep(_)), "{request}");
    }
    // While another run is at work, it is not begun.
    past.ask(TOOLBOX, "cordon worker-2 1");
    let new = past.starts();
    past.ran(&new, "Running", days(0));
    let refused = past.tool_refused("cordon worker-2 2");
    assert!(refused.contains("is under way: ask again"), "{refused}");
}
