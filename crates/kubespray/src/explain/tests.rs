use std::io::empty;

use serde_json::{Value, json};

use super::*;

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
    let told = explain(&run, events.as_slice(), "").unwrap();
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
fn what_is_a_cause_by_itself_has_no_other() {
    let run = failed("DiskFull", "No space left on device");
    let events = events(&[(6, ignored("Pull", "Temporary failure in name resolution"))]);
    assert_eq!(explain(&run, events.as_slice(), "").unwrap().first, None);
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
    let told = explain(&run(&history, &missing), empty(), "").unwrap();
    let first = told.first.unwrap();
    assert_eq!(first.code, "PortInUse");
    assert_eq!(
        first.place,
        "step control-plane, which anna had counted as done: later"
    );
    // What was tried again with success is no cause.
    let mut mended = history.clone();
    mended[2] = record(3, "StepSucceeded", "control-plane", &json!({}));
    let told = explain(&run(&mended, &missing), empty(), "").unwrap();
    assert_eq!(told.first, None);
}

#[test]
fn a_run_that_did_not_fail_is_not_explained() {
    let mut run = failed("DiskFull", "no space");
    let status = run.status.as_mut().unwrap();
    status.failure = None;
    let done = record(10, "StepSucceeded", "kubeadm", &json!({}));
    status.history.push(serde_json::from_value(done).unwrap());
    assert_eq!(explain(&run, empty(), ""), None);
    run.status = None;
    assert_eq!(explain(&run, empty(), ""), None);
}

#[test]
fn the_log_is_shown_at_the_task_that_failed() {
    let mut log = "PLAY [all]\nTASK [one]\nok: [one]\nTASK [two]\n".to_owned();
    for host in 0..500 {
        log.push_str(&format!("ok: [host-{host}]\n"));
    }
    log.push_str(
        "failed, ignored: [one] no\nfailed: [one] no space\nmore of it\nTASK [three]\nok: [two]\n",
    );
    let run = failed("DiskFull", "no space");
    let told = explain(&run, empty(), &log).unwrap();
    assert_eq!(
        told.log,
        ["TASK [two]", "failed: [one] no space", "more of it"]
    );
    let told = explain(&run, empty(), "nothing\nof a task").unwrap();
    assert_eq!(told.log, ["nothing", "of a task"]);
    assert_eq!(explain(&run, empty(), "").unwrap().log, [""; 0]);
}

#[test]
fn events_that_are_none_are_passed_over() {
    let run = failed("ModuleFailed", "MODULE FAILURE");
    let garbage = b"{\"event\":\"failed\"\n\xff\xfe\n{}\n".as_slice();
    assert_eq!(explain(&run, garbage, "").unwrap().first, None);
}

/// A run of five hundred hosts: some 350,000 events.
#[test]
fn many_events_are_read_at_once() {
    let ok =
        json!({"event": "ok", "host": "host-1", "task": 1, "name": "Install", "changed": false});
    let mut bytes = events(&[(5, ok)]).repeat(350_000);
    bytes.extend(events(&[(6, ignored("Save", "No space left on device"))]));
    let run = failed("ApiServerDown", "refused");
    let begun = std::time::Instant::now();
    let told = explain(&run, bytes.as_slice(), "").unwrap();
    let took = begun.elapsed();
    assert_eq!(told.first.unwrap().code, "DiskFull");
    // A program that is not optimised, on a machine that does other things: people have a fifth of a second.
    assert!(took.as_secs() < 10, "{took:?}");
}
