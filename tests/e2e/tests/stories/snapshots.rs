//! Snapshots of etcd that are kept outside of the cluster: what stories of clusters that stand have in common.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use age::{secrecy::ExposeSecret, x25519};
use e2e::{NAMESPACE, Stage, condition, wait_until};
use lab::progress::Terminal;
use serde_json::{Value, json};

use crate::edges::ended;

/// Where an S3-compatible server listens in the network of a lab.
const SERVER: &str = "127.0.0.1:7070";

/// A store in a directory of the lab, of which everything is encrypted.
pub(crate) struct Kept {
    directory: PathBuf,
    _server: Option<Server>,
}

/// A server that ends with the story.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Kept {
    /// Has the cluster keep snapshots in a directory; with a schedule the first one is taken at once.
    pub(crate) fn in_a_directory(stage: &Stage, schedule: Option<&str>) -> Self {
        let directory = stage.lab.dir().join("snapshots");
        fs::create_dir(&directory).unwrap();
        keep(stage, &json!({"directory": directory}), schedule);
        Self {
            directory,
            _server: None,
        }
    }

    /// The same in a bucket of a real S3-compatible server.
    pub(crate) fn in_a_bucket(stage: &Stage, schedule: Option<&str>) -> Self {
        let buckets = stage.lab.dir().join("buckets");
        fs::create_dir_all(buckets.join("backups")).unwrap();
        let programs = lab::snapshot_programs(&Terminal::default()).unwrap();
        let mut server = Command::new(programs.join("versitygw"));
        server
            .env("ROOT_ACCESS_KEY", "windlass")
            .env("ROOT_SECRET_KEY", "of-the-story")
            .args(["--port", SERVER, "--quiet", "posix"])
            .arg(&buckets);
        let mut server = stage.lab.enter(&server);
        let server = server.stdout(Stdio::null()).spawn().unwrap();
        let server = Server(server);
        let credentials = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "backups", "namespace": NAMESPACE},
            "stringData": {"AWS_ACCESS_KEY_ID": "windlass", "AWS_SECRET_ACCESS_KEY": "of-the-story"},
        });
        stage.apply(&credentials).unwrap();
        let s3 = json!({"s3": {
            "endpoint": format!("http://{SERVER}"), "bucket": "backups", "prefix": "etcd",
            "credentialsSecretRef": {"name": "backups"},
        }});
        keep(stage, &s3, schedule);
        Self {
            directory: buckets.join("backups/etcd"),
            _server: Some(server),
        }
    }

    /// The newest snapshot, once the run that took it has ended; it is all that is kept.
    pub(crate) fn taken(&self, stage: &Stage, run: &str) -> String {
        let run = ended_when_begun(stage, run);
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
        self.lies(stage, 1)
    }

    /// The newest snapshot, of so many that are kept.
    pub(crate) fn lies(&self, stage: &Stage, count: usize) -> String {
        let cluster = wait_until("the snapshot to be told of", stage.patience(), || {
            let cluster = stage.object("cluster", "first")?;
            let is_true =
                |kind| condition(&cluster, kind).is_some_and(|told| told["status"] == "True");
            let kept = cluster["status"]["snapshots"]["kept"].as_array();
            let told = kept.map_or(0, Vec::len) == count;
            Ok((told && is_true("BackedUp") && is_true("Ready")).then_some(cluster))
        })
        .unwrap();
        let kept = cluster["status"]["snapshots"]["kept"].as_array().unwrap();
        assert_eq!(kept[0]["state"], "Verified", "{cluster:#}");
        let name = kept[0]["name"].as_str().unwrap().to_owned();
        let path = self.directory.join(NAMESPACE).join("first");
        let object = fs::read(path.join(format!("{name}.db.age"))).unwrap();
        assert!(object.starts_with(b"age-encryption.org/v1"));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2 * count);
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

/// Has the cluster keep encrypted snapshots in a store, and of them the newest one.
fn keep(stage: &Stage, store: &Value, schedule: Option<&str>) {
    let key = x25519::Identity::generate();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "age", "namespace": NAMESPACE},
        "stringData": {"identity": key.to_string().expose_secret()},
    });
    stage.apply(&secret).unwrap();
    let mut snapshots = json!({
        "store": store, "keep": {"count": 1},
        "encryption": {"recipients": [key.to_public().to_string()], "identitySecretRef": {"name": "age"}},
    });
    if let Some(schedule) = schedule {
        snapshots["schedule"] = json!(schedule);
    }
    let wish = json!({"spec": {"etcd": {"snapshots": snapshots}}});
    stage.merge("cluster", "first", &wish).unwrap();
}
