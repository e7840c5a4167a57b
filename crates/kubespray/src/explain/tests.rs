use serde_json::{Value, json};

use super::*;

/// What is kept of a run: events, and the log of its step.
struct Told<'a>(&'a [u8], &'a str);

impl Kept for Told<'_> {
    fn events_since(&self, _since: f64) -> io::Result<impl BufRead> {
        Ok(self.0)
    }

    fn log(&self, _step: &str) -> String {
        self.1.to_owned()
    }
}

fn explained(run: &Run, events: &[u8], log: &str) -> Option<Explanation> {
    explain(run, &Told(events, log)).unwrap()
}

fn at(second: u32) -> String {
    format!("2026-01-02T03:04:{second:02}Z")
}

fn record(sequence: u32, event: &str, step: &str, more: &Value) -> Value {
    let mut record = json!({"sequence": sequence, "time": at(sequence), "event": event, "step": step, "attempt": 1});
    for (name, value) in more.as_object().unwrap() {
        record[name] = value.clone();
    }
    record
}

fn failure(code: &str, message: &str) -> Value {
    json!({"failure": {"class": "External", "code": code, "message": message, "remedy": "mend it", "targets": ["one"]}})
}

fn run(history: &[Value], failed: &Value) -> Run {
    serde_json::from_value(json!({
        "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "first-1"},
        "spec": {
            "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"},
            "operation": "Create", "generation": 1, "plan": {"digest": "", "steps": []},
        },
        "status": {"phase": "Failed", "history": history, "failure": failed["failure"]},
    }))
    .unwrap()
}

/// One that failed in the step `kubeadm`, with these words on one host.
fn failed(code: &str, message: &str) -> Run {
    let failed = failure(code, message);
    let history = [
        record(3, "StepStarted", "kubeadm", &json!({})),
        record(9, "StepFailed", "kubeadm", &failed),
    ];
    run(&history, &failed)
}

fn events(told: &[(u32, Value)]) -> Vec<u8> {
    let moment: Timestamp = at(0).parse().unwrap();
    let lines = told.iter().enumerate().map(|(number, (second, event))| {
        let time = moment.as_second() + i64::from(*second);
        let mut line = json!({"run": "kubeadm#1", "sequence": number + 1, "time": time});
        for (name, value) in event.as_object().unwrap() {
            line[name] = value.clone();
        }
        format!("{line}\n")
    });
    lines.collect::<String>().into_bytes()
}

fn ignored(name: &str, message: &str) -> Value {
    json!({"event": "failed", "host": "one", "task": 4, "name": name, "ignored": true, "message": message})
}

#[test]
fn what_an_earlier_task_could_not_do_goes_before_what_followed() {
    let run = failed("ApiServerDown", "the connection to the server was refused");
    let events = events(&[
        // Another attempt's, long before.
        (0, ignored("old", "[Errno 12] Cannot allocate memory")),
        (5, ignored("Ask for a version", "non-zero return code")),
        (6, ignored("Save the state", "No space left on device")),
        (7, ignored("Pull", "Temporary failure in name resolution")),
    ]);
    let mut late = record(3, "StepStarted", "kubeadm", &json!({}));
    late["time"] = json!(at(4));
    let mut run = run;
    run.status.as_mut().unwrap().history[0] = serde_json::from_value(late).unwrap();
    let told = explained(&run, &events, "").unwrap();
    assert_eq!(
        (told.step.as_str(), told.failure.code.as_str()),
        ("kubeadm", "ApiServerDown")
    );
    let first = told.first.unwrap();
    assert_eq!(
        (first.code.as_str(), first.place.as_str()),
        ("DiskFull", "Save the state on one")
    );
    assert_eq!(first.at.unwrap().to_string(), at(6));
}

#[test]
fn a_host_that_was_left_out_is_the_cause_where_there_is_no_other() {
    let mut run = failed("ApiServerDown", "the connection to the server was refused");
    let excluded = json!([{"target": "two", "reason": "it does not answer"}]);
    let status = run.status.as_mut().unwrap();
    status.excluded = serde_json::from_value(excluded).unwrap();
    let lost = json!({
        "event": "unreachable", "host": "two", "task": 3, "name": "Look", "ignored": false,
        "message": "ssh: connect to host two port 22: Connection refused",
    });
    let full = ignored("Save the state", "No space left on device");
    let place = |told: &[(u32, Value)]| {
        let told = explained(&run, &events(told), "").unwrap();
        told.first.unwrap().place
    };
    assert_eq!(
        place(&[(5, lost.clone()), (6, full)]),
        "Save the state on one"
    );
    assert_eq!(place(&[(5, lost)]), "Look on two");
}

#[test]
fn what_is_a_cause_by_itself_has_no_other() {
    let run = failed("DiskFull", "No space left on device");
    let events = events(&[(6, ignored("Pull", "Temporary failure in name resolution"))]);
    assert_eq!(explained(&run, &events, "").unwrap().first, None);

    // Nor is it what the attempt before it failed with.
    let full = failure("DiskFull", "No space left on device");
    let down = failure("ApiServerDown", "refused");
    let history = [
        record(1, "StepStarted", "kubeadm", &json!({})),
        record(2, "StepFailed", "kubeadm", &down),
        record(3, "StepStarted", "kubeadm", &json!({"attempt": 2})),
        record(4, "StepFailed", "kubeadm", &full),
    ];
    let told = explained(&self::run(&history, &full), &[], "").unwrap();
    assert_eq!(told.first, None);
}

#[test]
fn a_step_that_was_skipped_is_the_cause_of_what_it_did_not_do() {
    let missing = failure("KubeconfigMissing", "admin.conf: no such file");
    let history = [
        record(1, "StepStarted", "control-plane", &json!({})),
        record(
            2,
            "StepFailed",
            "control-plane",
            &failure("PortInUse", "6443 is in use"),
        ),
        record(
            3,
            "StepSkipped",
            "control-plane",
            &json!({"by": "anna", "detail": "later"}),
        ),
        record(4, "StepStarted", "network", &json!({})),
        record(5, "StepFailed", "network", &missing),
    ];
    let told = explained(&run(&history, &missing), &[], "").unwrap();
    let first = told.first.unwrap();
    assert_eq!(first.code, "PortInUse");
    assert_eq!(
        first.place,
        "step control-plane, which anna had counted as done: later"
    );
    // What was tried again with success is no cause.
    let mut mended = history.clone();
    mended[2] = record(3, "StepSucceeded", "control-plane", &json!({}));
    let told = explained(&run(&mended, &missing), &[], "").unwrap();
    assert_eq!(told.first, None);
}

#[test]
fn a_run_that_did_not_fail_is_not_explained() {
    let mut run = failed("DiskFull", "no space");
    let status = run.status.as_mut().unwrap();
    status.failure = None;
    let done = record(10, "StepSucceeded", "kubeadm", &json!({}));
    status.history.push(serde_json::from_value(done).unwrap());
    assert_eq!(explained(&run, &[], ""), None);
    run.status = None;
    assert_eq!(explained(&run, &[], ""), None);
}

#[test]
fn an_item_or_a_retry_may_be_the_cause_and_what_came_after_is_none() {
    let run = failed("ApiServerDown", "the connection to the server was refused");
    let full = "No space left on device";
    let item = |outcome: &str| json!({"event": "item", "host": "one", "task": 4, "outcome": outcome, "message": full});
    let retry =
        json!({"event": "retry", "host": "one", "task": 4, "name": "Pull", "message": full});
    for (name, told, place) in [
        ("an item that went well", vec![(5, item("ok"))], None),
        (
            "an item",
            vec![(5, item("failed"))],
            Some("an item of a loop on one"),
        ),
        ("a retry", vec![(5, retry.clone())], Some("Pull on one")),
        ("later", vec![(30, retry)], None),
        // The words are those of a host, and no event.
        (
            "a text",
            vec![(
                5,
                json!({"event": "ok", "name": "\"event\":\"failed\" No space left on device"}),
            )],
            None,
        ),
    ] {
        let told = explained(&run, &events(&told), "").unwrap();
        let first = told.first.map(|first| first.place);
        assert_eq!(first.as_deref(), place, "{name}");
    }
    // A line that is none is passed over, and so is half of one.
    let mut told = b"\xff\xfe\n{\"event\":\"failed\"\n".to_vec();
    told.extend(events(&[(5, ignored("Save", full))]));
    assert!(explained(&run, &told, "").unwrap().first.is_some());
}

#[test]
fn the_log_is_shown_at_the_task_that_failed() {
    let mut log = "PLAY [all]\nTASK [one]\nok: [one]\nTASK [two]\n".to_owned();
    for host in 0..500 {
        log.push_str(&format!("ok: [host-{host}]\n"));
    }
    log.push_str(
        "failed, ignored: [one] no\nfailed: [one] no space\nmore of it\nfailed: [two] refused\nTASK [three]\nok: [two]\n",
    );
    let run = failed("DiskFull", "no space");
    let told = explained(&run, &[], &log).unwrap();
    assert_eq!(
        told.log,
        [
            "TASK [two]",
            "failed: [one] no space",
            "more of it",
            "failed: [two] refused"
        ]
    );
    // Of a host that the log no longer tells of, what is there of the others.
    let others = log.replace("[one]", "[two]");
    let mut run = failed("DiskFull", "no space");
    let failure = run.status.as_mut().unwrap().failure.as_mut().unwrap();
    failure.targets.push("two".parse().unwrap());
    let told = explained(&run, &[], &others).unwrap();
    assert_eq!(told.log, ["TASK [two]", "failed: [two] refused"]);
    let told = explained(&run, &[], "nothing\nof a task").unwrap();
    assert_eq!(told.log, ["nothing", "of a task"]);
    assert_eq!(explained(&run, &[], "").unwrap().log, [""; 0]);
}
