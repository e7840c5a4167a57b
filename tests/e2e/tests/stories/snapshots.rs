//! Snapshots of etcd that are kept outside of the cluster: what stories of clusters that stand have in common.

use std::{fs, path::PathBuf};

use age::{secrecy::ExposeSecret, x25519};
use e2e::{NAMESPACE, Stage, condition, wait_until};
use lab::command::output;
use serde_json::{Value, json};

use crate::edges::ended;

/// A store in a directory of the lab, of which everything is encrypted.
pub(crate) struct Kept {
    directory: PathBuf,
}

impl Kept {
    /// Has the cluster keep snapshots; with a schedule the first one is taken at once.
    pub(crate) fn by(stage: &Stage, schedule: Option<&str>) -> Self {
        let directory = stage.lab.dir().join("snapshots");
        fs::create_dir(&directory).unwrap();
        let key = x25519::Identity::generate();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "age", "namespace": NAMESPACE},
            "stringData": {"identity": key.to_string().expose_secret()},
        });
        stage.apply(&secret).unwrap();
        let mut snapshots = json!({
            "store": {"directory": directory}, "keep": {"count": 1},
            "encryption": {"recipients": [key.to_public().to_string()], "identitySecretRef": {"name": "age"}},
        });
        if let Some(schedule) = schedule {
            snapshots["schedule"] = json!(schedule);
        }
        let patch = json!({"spec": {"etcd": {"snapshots": snapshots}}}).to_string();
        let patch = [
            "patch",
            "cluster",
            "first",
            "--namespace",
            NAMESPACE,
            "--type=merge",
            "--patch",
            &patch,
        ];
        output(&mut stage.kubectl(&patch)).unwrap();
        Self { directory }
    }

    /// The newest snapshot, once the run that took it has ended; it is all that is kept.
    pub(crate) fn taken(&self, stage: &Stage, run: &str) -> String {
        let run = ended_when_begun(stage, run);
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
        let cluster = wait_until("the snapshot to be told of", stage.patience(), || {
            let cluster = stage.object("cluster", "first")?;
            let is_true =
                |kind| condition(&cluster, kind).is_some_and(|told| told["status"] == "True");
            Ok((is_true("BackedUp") && is_true("Ready")).then_some(cluster))
        })
        .unwrap();
        let kept = cluster["status"]["snapshots"]["kept"].as_array().unwrap();
        assert_eq!(kept.len(), 1, "{cluster:#}");
        assert_eq!(kept[0]["state"], "Verified", "{cluster:#}");
        let name = kept[0]["name"].as_str().unwrap().to_owned();
        let path = self.directory.join(NAMESPACE).join("first");
        let object = fs::read(path.join(format!("{name}.db.age"))).unwrap();
        assert!(object.starts_with(b"age-encryption.org/v1"));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
        stage.says(&["snapshots", "list"], "verified").unwrap();
        name
    }

    /// Drills a snapshot, after which nothing of that is left on the host.
    pub(crate) fn drilled(stage: &Stage, name: &str, run: &str) {
        stage
            .says(&["snapshots", "drill", "first", name], run)
            .unwrap();
        let run = ended(stage, run);
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
        let drill = wait_until("the drill to be told of", stage.patience(), || {
            let cluster = stage.object("cluster", "first")?;
            let drill = cluster["status"]["snapshots"]["drill"].clone();
            Ok((!drill.is_null()).then_some(drill))
        })
        .unwrap();
        assert_eq!(drill["result"], "Passed", "{drill:#}");
        let host = &stage.lab.hosts()[0].name;
        // Of etcd there is the member alone.
        let left = "ls -d /var/backups/windlass-* 2>/dev/null; pgrep -xc etcd";
        let left = stage.lab.ssh(host, left).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&left.stdout).trim(),
            "1",
            "{left:?}"
        );
    }
}

fn ended_when_begun(stage: &Stage, name: &str) -> Value {
    wait_until("a snapshot to be begun", stage.patience(), || {
        let mut runs = stage.objects("runs")?.into_iter();
        Ok(runs.find(|run| run["metadata"]["name"] == name))
    })
    .unwrap();
    ended(stage, name)
}
