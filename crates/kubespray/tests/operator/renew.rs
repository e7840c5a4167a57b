//! Certificates are renewed when somebody asks, once for each request, or by themselves when they end.

use std::sync::Arc;

use api::{Run, cluster::ClusterState};
use jiff::SignedDuration;
use kube::ResourceExt;
use kubespray::{
    Layout,
    certificates::{Part, Served},
    cluster::decision::Decision,
    operation::{converge, renew},
    playbooks::Own,
    preview::{self, PreviewOutcome},
    problem,
    request::{CONVERGE, RENEW},
};
use serde_json::{Value, from_value, json};

use crate::{
    past::{Past, days, now, steps},
    world::World,
};

const HOSTS: [&str; 4] = ["master", "master", "master", "worker"];

impl Past {
    /// That was seen a moment ago: what ends in how many days.
    fn shown(&mut self, ends: &[(&str, Part, i64)]) {
        let ends = ends.iter();
        let ends = ends.map(|(host, part, end)| ((String::from(*host), *part), now() + days(*end)));
        self.observed.served = Arc::new(Served {
            at: Some(now() - SignedDuration::from_secs(1)),
            ends: ends.collect(),
        });
    }
}

const RENEW_60D: &str = r#"{"nodes": {"all": {"certificates": {"renew": "60d"}}}}"#;

fn sixty() -> Value {
    serde_json::from_str(RENEW_60D).unwrap()
}

#[tokio::test]
async fn what_ends_soon_is_renewed_on_the_hosts_of_which_it_is() {
    use Part::{ApiServer, Etcd, Kubelet};
    type Ends = &'static [(&'static str, Part, i64)];
    let cases: [(&str, Ends, &[&str]); 6] = [
        ("nothing is known", &[], &[]),
        ("not yet", &[("master-1", ApiServer, 61)], &[]),
        (
            "the second",
            &[("master-1", ApiServer, 200), ("master-2", ApiServer, 59)],
            &["master-2"],
        ),
        (
            "it has ended",
            &[("master-1", ApiServer, -3), ("master-3", ApiServer, -3)],
            &["master-1", "master-3"],
        ),
        (
            "a kubelet's own",
            &[("master-1", Kubelet, 5), ("worker-4", Kubelet, 5)],
            &[],
        ),
        (
            "etcd as a service of the host",
            &[("master-1", Etcd, 5)],
            &[],
        ),
    ];
    let mut past = Past::new(sixty(), &HOSTS).await;
    for (name, ends, hosts) in cases {
        past.shown(ends);
        if hosts.is_empty() {
            assert_eq!(past.rests(), "", "{name}");
            continue;
        }
        let new = past.starts();
        let renewed = new
            .plan
            .steps
            .iter()
            .filter(|step| step.id.starts_with("renew/"));
        let renewed: Vec<_> = renewed.flat_map(|step| new.plan.targets(step)).collect();
        assert_eq!(
            renewed.iter().map(|host| host.as_str()).collect::<Vec<_>>(),
            hosts,
            "{name}"
        );
        assert_eq!(new.operation.name, "Renew");
    }
    // Of etcd that kubeadm made they are of the same authority, after a snapshot. The bundle has none, so the run says it alone.
    let mut spec = sixty();
    spec["etcd"] = json!({"snapshots": {"store": {"directory": "/srv/snapshots"}}});
    let mut past = Past::new(spec, &HOSTS).await;
    let built = &mut past.observed.runs[0].spec.plan.inputs;
    built.insert(
        "variables".to_owned(),
        json!({"etcd_deployment_type": "kubeadm"}),
    );
    past.shown(&[("master-1", Etcd, 5)]);
    let steps = steps(&past.starts().plan);
    for snapshot in [
        "snapshot/save: master-1 master-2 master-3",
        "etcd/snapshot: master-1",
    ] {
        assert!(steps.contains(&snapshot.to_owned()), "{steps:?}");
    }
}

#[tokio::test]
async fn a_host_may_want_it_earlier_or_later_and_nobody_has_to() {
    let ends = [
        ("master-1", Part::ApiServer, 20),
        ("master-2", Part::ApiServer, 20),
    ];
    let mut past = Past::new(json!({}), &HOSTS).await;
    past.shown(&ends);
    assert_eq!(
        past.rests(),
        "",
        "the spec does not say that they are renewed by themselves"
    );
    past.observed.nodes[1].spec.certificates = from_value(json!({"renew": "30d"})).unwrap();
    let new = past.starts();
    assert_eq!(
        new.plan.reason.unwrap(),
        "the certificate of kube-apiserver of master-2 ends on 2026-06-21, and is renewed 30d before: the certificates of master-2 \
         are made anew, one host after the other, and the kubeconfig of the administrator"
    );
    let mut past = Past::new(sixty(), &HOSTS).await;
    past.shown(&ends);
    past.observed.nodes[0].spec.certificates = from_value(json!({"renew": "10d"})).unwrap();
    let steps = steps(&past.starts().plan);
    assert!(steps.contains(&"renew/1: master-2".to_owned()), "{steps:?}");
    assert!(
        !steps.iter().any(|step| step.starts_with("renew/2")),
        "{steps:?}"
    );
}

#[tokio::test]
async fn a_renewal_that_helps_nothing_is_told_of_and_not_begun_anew() {
    let ends = [("master-1", Part::ApiServer, 20)];
    let mut past = Past::new(sixty(), &HOSTS).await;
    past.shown(&ends);
    let new = past.starts();
    past.ran(&new, "Succeeded", days(0) - SignedDuration::from_mins(1));
    for end in [20, 50] {
        past.shown(&[("master-1", Part::ApiServer, end)]);
        let said = past.rests();
        let run = format!("run {} renewed it", new.name);
        assert!(
            said.contains(&run) && said.contains("all the same"),
            "{said}"
        );
    }
    // What was seen before it ended says nothing.
    let mut before = (*past.observed.served).clone();
    before.at = Some(now() - SignedDuration::from_mins(2));
    past.observed.served = before.into();
    assert_eq!(past.rests(), "");
    // It helped.
    past.shown(&[("master-1", Part::ApiServer, 365)]);
    assert_eq!(past.rests(), "");
    // And a year later it is time again.
    past.observed.now = now() + days(320);
    past.observed.served = Arc::new(Served {
        at: Some(past.observed.now),
        ends: past.observed.served.ends.clone(),
    });
    assert_eq!(past.starts().operation.name, "Renew");
}

#[tokio::test]
async fn what_failed_or_was_cancelled_waits_for_a_person() {
    let mut past = Past::new(sixty(), &HOSTS).await;
    past.shown(&[("master-1", Part::ApiServer, 20)]);
    let new = past.starts();
    past.ran(&new, "Failed", days(0));
    let Decision::Maintain(_, run) = past.decision() else {
        panic!("{:?}", past.decision());
    };
    assert_eq!(run.name_any(), new.name);
    past.ask(RENEW, "again");
    let next = past.starts();
    assert_eq!(next.request.as_deref(), Some("again"));
    past.cluster.annotations_mut().clear();
    past.observed.runs.pop();
    past.ran(&new, "Cancelled", days(0));
    let said = past.rests();
    assert!(
        said.contains("was cancelled") && said.contains("renew"),
        "{said}"
    );
    // Whatever else came after it.
    for (phase, how) in [("Cancelled", "was cancelled"), ("Failed", "failed")] {
        past.observed.runs.pop();
        past.ran(&new, phase, days(0));
        let mut since = past.observed.runs[0].clone();
        since.metadata.name = Some("first-converge-9".to_owned());
        since.spec.operation = "Converge".to_owned();
        past.observed.runs.push(since);
        let said = past.rests();
        assert!(said.contains(how) && said.contains("renew"), "{said}");
        past.observed.runs.pop();
    }
}

#[tokio::test]
async fn what_is_asked_for_behind_a_failed_renewal_is_refused_with_its_reason() {
    let mut past = Past::new(json!({}), &HOSTS).await;
    past.ask(RENEW, "1");
    let new = past.starts();
    past.ran(&new, "Failed", days(0));
    past.cluster.annotations_mut().clear();
    past.ask(CONVERGE, "2");
    let refused = past.refuses(&converge::ASKED);
    for said in [&new.name, "windlass retry"] {
        assert!(refused.contains(said), "{refused}");
    }
}

#[tokio::test]
async fn what_is_longer_than_certificates_live_is_refused() {
    let spec = json!({"nodes": {"all": {"certificates": {"renew": "2y"}}}});
    let mut past = Past::new(json!({}), &HOSTS).await;
    past.cluster.spec.nodes = from_value(spec["nodes"].clone()).unwrap();
    past.observed.nodes[0].spec.certificates = from_value(json!({"renew": "1y"})).unwrap();
    let Decision::Stall(problems) = past.decision() else {
        panic!("{:?}", past.decision());
    };
    let text = problem::text(&problems);
    for words in [
        "Cluster spec.nodes.all.certificates.renew is \"2y\"",
        "ClusterNode master-1 spec.certificates.renew is \"1y\"",
        "live for 1y",
        "write less, for example 60d",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[tokio::test]
async fn one_host_comes_after_the_other_with_health_between() {
    let mut past = Past::new(
        json!({"operations": {"renew": {"approval": "Manual"}}}),
        &HOSTS,
    )
    .await;
    past.ask(RENEW, "now");
    let plan = past.starts().plan;
    assert_eq!(
        steps(&plan),
        [
            "approve/plan: ",
            "prepare/sandbox: ",
            "prepare/probe: master-1 master-2 master-3",
            "renew/1: master-1",
            "kubeconfig/store: master-1",
            "health/1: master-1 master-2 master-3",
            "renew/2: master-2",
            "health/2: master-1 master-2 master-3",
            "renew/3: master-3",
            "health/check: master-1 master-2 master-3",
        ]
    );
    // The plan names the text of the playbook, and so does its digest.
    let play = serde_json::to_value(&plan.steps[3].action).unwrap();
    assert_eq!(
        play["engine"]["parameters"]["own"],
        Own::RenewCertificates.digest()
    );
    assert_eq!(play["engine"]["parameters"]["limited"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_renews_once_and_is_answered() {
    let world = World::start().await;
    world.three_nodes().await;
    world.cluster("first", json!({})).await;
    let create = world.run_until(1).await.remove(0);
    world.ask(&renew::ASKED, "early").await;
    let refused = world.answer(&renew::ASKED, "early").await.refused.unwrap();
    assert!(refused.contains("not built yet"), "{refused}");
    world
        .run_status(&create, json!({"phase": "Succeeded"}))
        .await;
    let cluster = world.state(ClusterState::Created).await;

    let data = tempfile::tempdir().unwrap();
    let layout = Layout::new(data.path());
    let shown = preview::asked(&world.client, &cluster, (RENEW, "now"), &layout);
    let PreviewOutcome::Plan(shown) = shown.await.unwrap().outcome else {
        panic!("nothing would be done");
    };
    assert_eq!(world.run_until(1).await.len(), 1);

    world.ask(&renew::ASKED, "1").await;
    let answer = world.answer(&renew::ASKED, "1").await;
    assert_eq!(answer.run.as_deref(), Some("first-renew-2"));
    let run = world.run_named("first-renew-2").await;
    assert_eq!(run.spec.plan.steps, shown.steps);
    world.run_status(&run, json!({"phase": "Running"})).await;
    world.state(ClusterState::Renewing).await;
    world.ask(&renew::ASKED, "2").await;
    let refused = world.answer(&renew::ASKED, "2").await.refused.unwrap();
    assert!(refused.contains("first-renew-2"), "{refused}");
    assert_eq!(world.events("RenewRefused").await.len(), 2);
    // Somebody who wants both gets one after the other.
    world.ask(&converge::ASKED, "meanwhile").await;
    let refused = world
        .answer(&converge::ASKED, "meanwhile")
        .await
        .refused
        .unwrap();
    assert!(refused.contains("first-renew-2"), "{refused}");

    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.state(ClusterState::Created).await;
    assert_eq!(world.run_until(2).await.len(), 2);
    let runs: Vec<Run> = world.run_until(2).await;
    assert!(runs.iter().all(|run| run.spec.operation != "Converge"));
}
