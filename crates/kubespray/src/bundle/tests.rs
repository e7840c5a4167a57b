use std::io::Read as _;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

const CANARY: &str = "canary-in-a-secret";

fn at(second: u32) -> String {
    format!("2026-01-02T03:04:{second:02}Z")
}

fn run() -> api::Run {
    let step = |id: &str| json!({"id": id, "title": id, "action": {"engine": {"name": "kubespray", "type": "Health", "parameters": {}}}});
    serde_json::from_value(json!({
        "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "first-1", "namespace": "here"},
        "spec": {
            "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"},
            "operation": "Create", "generation": 1,
            "plan": {
                "digest": "", "steps": [step("one"), step("two")],
                "inputs": {
                    "ssh": {"key": {"name": "ssh", "key": "ssh-privatekey"}},
                    "variables": {"registry_password": "plain-in-the-spec", "other_password": "plain-in-the-spec", "cni": "flannel"},
                    "hooks": [{"image": {"env": [{"name": "DB_PASSWORD", "value": "spelled-in-the-env"}, {"name": "CNI", "value": "flannel"}]}}],
                },
            },
        },
        "status": {"phase": "Failed", "history": records()},
    }))
    .unwrap()
}

fn records() -> Value {
    let failure = json!({"class": "External", "code": "DiskFull", "message": format!("{CANARY}: no space"), "remedy": "free it"});
    json!([
        {"sequence": 1, "time": at(1), "event": "RunStarted"},
        {"sequence": 2, "time": at(2), "event": "StepStarted", "step": "one", "attempt": 1},
        {"sequence": 3, "time": at(10), "event": "StepSucceeded", "step": "one", "attempt": 1},
        {"sequence": 4, "time": at(11), "event": "StepStarted", "step": "two", "attempt": 1},
        {"sequence": 5, "time": at(30), "event": "StepFailed", "step": "two", "attempt": 1, "failure": failure},
        {"sequence": 6, "time": at(30), "event": "RunFailed"},
    ])
}

/// The entries of a bundle of a run whose directory has secrets where there should be none.
fn gathered() -> Gathered {
    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let begun: Timestamp = at(0).parse().unwrap();
    let event = |second: i64, name: &str| {
        let time = begun.as_second() + second;
        json!({"run": "two#1", "sequence": second, "time": time, "event": "task_start", "play": 1, "task": second, "name": name})
            .to_string()
            + "\n"
    };
    put(
        "vars.json",
        json!({"token": 1234, "cni": CANARY}).to_string(),
    );
    put(
        "inventory/inventory.json",
        json!({"all": {"hosts": {"one": {"x": CANARY}}}}).to_string(),
    );
    put(
        "events.jsonl",
        event(12, "Install") + &event(20, &format!("Say {CANARY}")) + "torn " + CANARY,
    );
    put(
        "logs/two.log",
        format!(
            "TASK [Say]\nfailed: [one] {CANARY}\nlogin with plain-in-the-spec and spelled-in-the-env\n"
        ),
    );
    put("slices/two.yml", "- hosts: all\n".to_owned());
    put("private", CANARY.to_owned());
    std::os::unix::fs::symlink("/etc/passwd", directory.path().join("logs/link.log")).unwrap();
    let told = json!([{"reason": "StepFailed", "note": CANARY}]);
    let redaction = Redaction::of([CANARY], [7; 32]);
    gather(&run(), &told, directory.path(), &redaction).unwrap()
}

fn made() -> Vec<u8> {
    let mut bytes = Vec::new();
    write(("here", "first-1"), at(59), &gathered(), &mut bytes).unwrap();
    bytes
}

fn entries(bundle: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bundle));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (entry.path().unwrap().display().to_string(), bytes)
    });
    entries.collect()
}

fn packed(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    for (path, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        archive
            .append_data(&mut header, path, bytes.as_slice())
            .unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

fn refused(bytes: &[u8]) -> String {
    Bundle::read(bytes).unwrap_err().to_string()
}

#[test]
fn what_is_parsed_is_no_longer_than_an_api_would_store() {
    let mut entries = entries(&made());
    let run = entries.iter_mut().find(|(path, _)| path == RUN).unwrap();
    run.1 = vec![b' '; 9 * 1024 * 1024];
    let told = refused(&packed(&entries));
    assert!(told.contains("run.json takes more"), "{told}");
}

#[test]
fn below_a_name_that_is_secret_all_is() {
    let redaction = Redaction::of([], [7; 32]);
    let told = redaction.document(json!({
        "vault_passwords": {"db": "one", "all": [["two"], {"three": 3}]},
        "registry_token": {"secretKeyRef": {"name": "kept", "key": "kept"}},
        "extraVarsSecretRef": {"name": "kept"},
        "cni": "flannel",
    }));
    let text = told.to_string();
    for secret in ["one", "two", ":3"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert_eq!(told["registry_token"]["secretKeyRef"]["key"], "kept");
    assert_eq!(told["extraVarsSecretRef"]["name"], "kept");
    assert_eq!(told["cni"], "flannel");
}

#[test]
fn nothing_secret_is_in_it() {
    let entries = entries(&made());
    let names: Vec<_> = entries.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "manifest.json",
            "run.json",
            "told.json",
            "journal.jsonl",
            "inventory/inventory.json",
            "vars.json",
            "events.jsonl",
            "logs/two.log",
            "slices/two.yml",
            "manifest.sha256",
        ]
    );
    for (name, bytes) in &entries {
        let text = String::from_utf8_lossy(bytes);
        for secret in [CANARY, "plain-in-the-spec", "spelled-in-the-env", "1234"] {
            assert!(!text.contains(secret), "{secret} in {name}: {text}");
        }
    }
    // Equal values are seen to be equal, and what is no secret stays.
    let run: Value = serde_json::from_slice(&entries[1].1).unwrap();
    let variables = &run["spec"]["plan"]["inputs"]["variables"];
    assert!(
        variables["registry_password"]
            .as_str()
            .unwrap()
            .starts_with("digest:")
    );
    assert_eq!(variables["registry_password"], variables["other_password"]);
    assert_eq!(variables["cni"], "flannel");
    let env = &run["spec"]["plan"]["inputs"]["hooks"][0]["image"]["env"];
    assert_eq!(env[0]["name"], "DB_PASSWORD");
    assert_eq!(env[1]["value"], "flannel");
    assert_eq!(run["spec"]["plan"]["inputs"]["ssh"]["key"]["name"], "ssh");
    let other = Redaction::of([], [8; 32]).document(json!({"password": "plain-in-the-spec"}));
    assert_ne!(other["password"], variables["registry_password"]);
}

#[test]
fn it_shows_the_run_at_any_moment() {
    let bundle = Bundle::read(made().as_slice()).unwrap();
    let phases = |moment: &str| {
        let run = bundle.at(Some(moment.parse().unwrap())).unwrap();
        let status = run.status.unwrap();
        let steps = status.steps.iter().map(|step| format!("{:?}", step.phase));
        let activity = status.steps.iter().find_map(|step| step.activity.clone());
        format!(
            "{:?} {} {}",
            status.phase,
            steps.collect::<Vec<_>>().join(" "),
            activity.unwrap_or_default()
        )
    };
    assert_eq!(phases("0s"), "Running Pending Pending ");
    assert_eq!(phases("#2"), "Running Running Pending ");
    assert_eq!(phases("2026-01-02T03:04:10Z"), "Running Succeeded Pending ");
    assert_eq!(phases("11s"), "Running Succeeded Running Install");
    assert_eq!(phases("25s"), "Running Succeeded Running Say ********");
    assert_eq!(phases("1h"), "Failed Succeeded Failed ");
    let end = bundle.at(None).unwrap().status.unwrap();
    assert_eq!(end.failure.unwrap().code, "DiskFull");
    // The same moment is the same, however often it is asked.
    let moment = || bundle.at(Some(Moment::Record(4))).unwrap().status.unwrap();
    assert_eq!(moment(), moment());
    let early = bundle.at(Some("2026-01-02T03:04:00Z".parse().unwrap()));
    assert!(
        early
            .unwrap_err()
            .to_string()
            .contains("the records go from 2026-01-02T03:04:01Z")
    );
    for wrong in ["soon", "", "#", "-5s", "#x"] {
        let said = wrong.parse::<Moment>().unwrap_err().to_string();
        assert!(said.contains("is no moment"), "{said}");
    }
}

#[test]
fn what_was_cut_or_altered_is_refused_by_name() {
    let whole = entries(&made());
    for (at, (name, bytes)) in whole.iter().enumerate() {
        let mut altered = whole.clone();
        altered[at].1 = [bytes.as_slice(), b" "].concat();
        let told = if name == END { MANIFEST } else { name };
        let said = refused(&packed(&altered));
        assert!(said.contains(told) && said.contains("altered"), "{said}");
        if at > 0 {
            let cut = refused(&packed(&whole[..at]));
            assert!(cut.contains(&format!("its entry {name}")), "{cut}");
            let mut without = whole.clone();
            without.remove(at);
            assert!(Bundle::read(packed(&without).as_slice()).is_err(), "{name}");
        }
    }
    let mut more = whole.clone();
    more.insert(
        3,
        ("logs/../../etc/cron.d/x".replace("../", ""), b"x".to_vec()),
    );
    assert!(refused(&packed(&more)).contains("does not name"));
    let mut after = whole.clone();
    after.push(("extra".to_owned(), Vec::new()));
    assert!(refused(&packed(&after)).contains("an entry extra"));
    let mut newer = whole.clone();
    let mut manifest: Value = serde_json::from_slice(&newer[0].1).unwrap();
    manifest["format"] = json!(2);
    newer[0].1 = manifest.to_string().into_bytes();
    assert!(refused(&packed(&newer)).contains("has the form 2"));
    assert!(refused(b"PK\x03\x04").contains("no bundle of a run"));
    assert!(refused(b"").contains("no bundle of a run"));
    assert!(refused(&packed(&[("other".to_owned(), Vec::new())])).contains("first entry is other"));
}

/// Whatever happened to the bytes on their way: what is read is what was written, or nothing is.
#[test]
fn damaged_bytes_are_never_read_as_something_else() {
    let bytes = made();
    let read = Bundle::read(bytes.as_slice()).unwrap();
    for at in (0..bytes.len()).step_by(bytes.len() / 150) {
        let cut = &bytes[..at];
        assert!(Bundle::read(cut).is_err(), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        if let Ok(other) = Bundle::read(damaged.as_slice()) {
            assert_eq!(
                (other.manifest, other.files),
                (read.manifest.clone(), read.files.clone())
            );
        }
    }
}

#[test]
fn a_link_or_a_flood_is_not_followed() {
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    archive
        .append_link(&mut header, MANIFEST, "/etc/passwd")
        .unwrap();
    let linked = archive.into_inner().unwrap().finish().unwrap();
    assert!(refused(&linked).contains("manifest.json"));
    let flood = packed(&[(MANIFEST.to_owned(), vec![b' '; 5 * 1024 * 1024])]);
    assert!(flood.len() < 100_000);
    assert!(refused(&flood).contains("takes more than a bundle may"));
}

#[test]
fn a_run_whose_files_are_elsewhere_is_told_by_its_status() {
    let nowhere = std::path::Path::new("/nonexistent");
    let redaction = Redaction::of([CANARY], [7; 32]);
    let gathered = gather(&run(), &json!([]), nowhere, &redaction).unwrap();
    let mut bytes = Vec::new();
    write(("here", "first-1"), at(59), &gathered, &mut bytes).unwrap();
    let bundle = Bundle::read(bytes.as_slice()).unwrap();
    assert_eq!(bundle.records.len(), 6);
    assert!(bundle.manifest.left_out[0].contains("not on this machine"));
    assert_eq!(
        bundle.at(None).unwrap().status.unwrap().phase,
        api::run::RunPhase::Failed
    );
}
