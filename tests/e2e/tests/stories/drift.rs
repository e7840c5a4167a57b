//! The drift radar, on a cluster that another story has raised.

use e2e::{NAMESPACE, Stage, condition, wait_until};
use serde_json::{Value, json};

/// A file that the playbooks wrote.
const FILE: &str = "/etc/default/kubelet";

fn radar(stage: &Stage, radar: &Value) {
    stage
        .merge("cluster", "first", &json!({"spec": {"radar": radar}}))
        .unwrap();
}

/// Runs a command on the worker, where it must succeed.
pub(crate) fn on_worker(stage: &Stage, command: &str) {
    let worker = &stage.lab.hosts()[1].name;
    let answer = stage.lab.ssh(worker, command).unwrap();
    assert!(answer.status.success(), "{command}: {answer:?}");
}

/// It is edited by hand when the next look of the radar is a day away. Then a run begins.
pub(crate) fn is_edited_before_a_run(stage: &Stage) {
    radar(stage, &json!({"every": "1d"}));
    drifted(stage, "False", "2 of 3 hosts");
    on_worker(
        stage,
        &format!("cp -p {FILE} /root/kept && echo '# by hand' >> {FILE}"),
    );
}

/// That run has not made it the norm: it was seen before.
pub(crate) fn was_seen_before_the_run(stage: &Stage) {
    drifted(stage, "True", &format!("worker-1: {FILE}: it was changed"));
    on_worker(stage, &format!("mv /root/kept {FILE}"));
    radar(stage, &Value::Null);
}

/// It is edited by hand: host and file are named for as long as it is so. A host that does not answer has not drifted.
pub(crate) fn is_named(stage: &Stage) {
    radar(stage, &json!({"every": "10s"}));
    let told = drifted(stage, "False", "2 of 3 hosts are as the last run left them");
    assert!(told.contains("not looked at: worker-2"), "{told}");
    on_worker(
        stage,
        &format!("cp -p {FILE} /root/kept && echo '# by hand' >> {FILE}"),
    );
    let named = format!("worker-1: {FILE}: it was changed");
    drifted(stage, "True", &named);
    stage
        .says(&["status"], &format!("drifted: {named}"))
        .unwrap();
    let states = || {
        let nodes = stage.objects("clusternodes").unwrap();
        let states = nodes.iter().map(|node| {
            let state = node["status"]["radar"]["state"].as_str();
            state.unwrap_or_default().to_owned()
        });
        states.collect::<Vec<_>>()
    };
    wait_until("the hosts to tell of it", stage.patience(), || {
        Ok((states() == ["Same", "Drifted", "Unknown"]).then_some(()))
    })
    .unwrap();
    on_worker(stage, &format!("mv /root/kept {FILE}"));
    drifted(stage, "False", "2 of 3 hosts");
    let events = stage.objects("events").unwrap();
    for reason in ["Drifted", "NotDrifted"] {
        let is_it = |event: &Value| event["reason"] == reason;
        assert!(events.iter().any(is_it), "{reason}: {events:#?}");
    }
    radar(stage, &Value::Null);
    wait_until("nobody to look any more", stage.patience(), || {
        let cluster = stage.object("cluster", "first")?;
        Ok(condition(&cluster, "Drifted").is_none().then_some(()))
    })
    .unwrap();
}

/// What the condition `Drifted` tells, once it is so and has the words.
pub(crate) fn drifted(stage: &Stage, status: &str, words: &str) -> String {
    let what = format!("Drifted to be {status} in {NAMESPACE}: {words}");
    wait_until(&what, stage.patience(), || {
        let cluster = stage.object("cluster", "first")?;
        let told = condition(&cluster, "Drifted").filter(|told| told["status"] == status);
        let message = told.and_then(|told| told["message"].as_str());
        Ok(message
            .filter(|message| message.contains(words))
            .map(str::to_owned))
    })
    .unwrap()
}
