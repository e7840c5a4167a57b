//! Converging on a schedule, on a cluster that another story has raised: it waits for a maintenance window, mends in it what somebody
//! broke, and tells what that was.

use std::time::{SystemTime, UNIX_EPOCH};

use e2e::{Stage, condition, wait_until};
use serde_json::{Value, json};

use crate::{
    drift::{drifted, on_worker},
    edges::ended,
};

/// A file that the bundle writes, and kubespray.
const FILE: &str = "/etc/systemd/system/kubelet.service";
/// The file as it is to be.
const WHOLE: &str = "/root/kubelet.service";
/// When it is to converge: each minute, so that nobody waits for longer.
const SCHEDULE: &str = "* * * * *";

/// A cluster that converges on a schedule, and whose window is shut.
pub(crate) struct Scheduled {
    /// The run that it is held against.
    before: String,
    /// The hour at which the window opens, which is not soon.
    opens: u64,
}

impl Scheduled {
    /// Converges once by hand, which tells what the playbooks change each time. From then on it is to do so each minute, and its window
    /// is shut.
    pub(crate) fn after(stage: &Stage, before: &str) -> Self {
        stage.says(&["converge"], before).unwrap();
        let run = ended(stage, before);
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
        let scheduled = Self {
            before: before.to_owned(),
            opens: in_hours(12),
        };
        let wish = json!({"spec": {
            "operations": {"converge": {"schedule": SCHEDULE}}, "maintenance": scheduled.shut(),
        }});
        stage.merge("cluster", "first", &wish).unwrap();
        scheduled
    }

    /// One is due, and nothing begins before the window opens; what people ask for by its name began meanwhile.
    pub(crate) fn waits(&self, stage: &Stage) {
        let waiting = wait_until("a converge to wait", stage.patience(), || {
            let cluster = stage.object("cluster", "first")?;
            let pending = cluster["status"]["pending"].as_array();
            let waits = |pending: &&Value| {
                pending["operation"] == "Converge" && pending["reason"] == "WaitingForWindow"
            };
            Ok(pending.into_iter().flatten().find(waits).cloned())
        })
        .unwrap();
        let opens = format!("T{:02}:00:00+00:00", self.opens);
        let message = waiting["message"].as_str().unwrap_or_default();
        assert!(message.contains(&opens), "{opens}: {waiting:#}");
        let begun = self.begun(stage).unwrap();
        assert_eq!(begun, None, "it did not wait");
    }

    /// The window opens, and what somebody broke on a worker is mended and told.
    pub(crate) fn mends(&self, stage: &Stage) {
        let edit = format!("cp -p {FILE} {WHOLE} && echo '# by hand' >> {FILE}");
        on_worker(stage, &edit);
        // Since an hour or two, and for two more at least.
        maintain(stage, &window(in_hours(23), "4h"));
        let name = wait_until("the schedule to begin a run", stage.patience(), || {
            self.begun(stage)
        })
        .unwrap();
        // This one goes on to its end, and no other one begins.
        maintain(stage, &self.shut());
        let run = ended(stage, &name);
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
        let reason = run["spec"]["plan"]["reason"].as_str().unwrap_or_default();
        assert!(reason.starts_with("one was due at "), "{run:#}");
        let asked = &run["metadata"]["annotations"]["kubespray.k8s.io/converge"];
        assert!(asked.is_null(), "{run:#}");

        let task = if stage.is_of_kubespray() {
            "Write kubelet systemd init file"
        } else {
            "Write the kubelet's service"
        };
        let change = format!("worker-1: kubernetes/node : {task}");
        let history = run["status"]["history"].as_array().unwrap();
        let tells = |record: &Value| {
            let detail = record["detail"].as_str().unwrap_or_default();
            detail.starts_with("changed on ") && detail.contains(&change)
        };
        assert!(history.iter().any(tells), "{change}: {history:#?}");
        let told = drifted(stage, "True", &change);
        assert!(told.contains(&format!("of run {name} changed")), "{told}");
        stage
            .says(&["status"], &format!("drifted: {told}"))
            .unwrap();
        warned(stage, &name);
        on_worker(stage, &format!("cmp {FILE} {WHOLE} && rm {WHOLE}"));
        stage.ready_nodes(2).unwrap();

        let nothing = json!({"spec": {"operations": {"converge": null}, "maintenance": null}});
        stage.merge("cluster", "first", &nothing).unwrap();
        wait_until("nobody to wait any more", stage.patience(), || {
            let cluster = stage.object("cluster", "first")?;
            let told = ["Drifted", "AwaitingWindow"];
            let is_told = told.iter().any(|kind| condition(&cluster, kind).is_some());
            Ok((!is_told).then_some(()))
        })
        .unwrap();
        assert_eq!(stage.run().unwrap()["metadata"]["name"], name);
    }

    /// The run that converges the cluster after the one that it is held against.
    fn begun(&self, stage: &Stage) -> anyhow::Result<Option<String>> {
        let runs = stage.objects("runs")?;
        let mut names = runs
            .iter()
            .filter(|run| run["spec"]["operation"] == "Converge")
            .filter_map(|run| run["metadata"]["name"].as_str())
            .filter(|name| *name != self.before);
        Ok(names.next().map(str::to_owned))
    }

    /// A window that opens when the story is over.
    fn shut(&self) -> Value {
        window(self.opens, "1h")
    }
}

/// The Event that the cluster has drifted, as that run tells.
fn warned(stage: &Stage, run: &str) {
    let words = format!("of run {run} changed");
    wait_until("the Event of the drift", stage.patience(), || {
        let events = stage.objects("events")?;
        let is_it = |event: &Value| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == "Drifted" && event["type"] == "Warning" && message.contains(&words)
        };
        Ok(events.iter().any(is_it).then_some(()))
    })
    .unwrap();
}

fn maintain(stage: &Stage, maintenance: &Value) {
    let wish = json!({"spec": {"maintenance": maintenance}});
    stage.merge("cluster", "first", &wish).unwrap();
}

/// One window a day, to which everything keeps.
fn window(hour: u64, duration: &str) -> Value {
    let window =
        json!({"schedule": format!("0 {hour} * * *"), "duration": duration, "timeZone": "UTC"});
    json!({"confine": "All", "windows": [window]})
}

/// The hour of the day, so many hours from this one.
fn in_hours(hours: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (now.as_secs() / 3600 + hours) % 24
}
