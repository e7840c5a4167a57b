//! The runner of a service dies as it is about to write something, to the API, by Helm, to the database or to Keystone: the run that goes on
//! comes to what an undisturbed one comes to. And it goes, whatever went before it.

use std::{collections::BTreeSet, fs, path::PathBuf, thread, time::Duration, time::Instant};

use e2e::{Services, condition, is_true, wait_until, windlass};
use lab::progress::Terminal;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{LIMIT, names, nothing_secret_is_told_of, what_was_done_is_what_was_planned};

/// Each write is noted a moment before: to look more seldom would be to die somewhere behind it.
const LOOK: Duration = Duration::from_millis(2);

/// The runs that install a service, while somebody kills their runners.
pub(super) struct Deaths<'a> {
    world: &'a Services,
    service: &'static str,
    /// What was noted before: each is died at once.
    noted: BTreeSet<String>,
    /// At what a runner died.
    at: Vec<String>,
}

impl<'a> Deaths<'a> {
    pub(super) fn of(world: &'a Services, service: &'static str) -> Self {
        Self {
            world,
            service,
            noted: BTreeSet::new(),
            at: Vec::new(),
        }
    }

    /// Has the runner die where the first line is noted that begins like this.
    pub(super) fn at(mut self, begins: &str) {
        let died = |deaths: &Self| !deaths.at.is_empty();
        self.until(begins, |what| what.starts_with(begins), died);
    }

    /// Has the runner die at all that is noted and chosen, until that is enough.
    fn until(&mut self, what: &str, chosen: impl Fn(&str) -> bool, enough: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !enough(self) {
            for directory in self.runs() {
                let noted = fs::read_to_string(directory.join("audit.log")).unwrap_or_default();
                let whole = noted.rsplit_once('\n').map_or("", |(whole, _)| whole);
                let new = whole.lines().filter(|line| !self.noted.contains(*line));
                let new: Vec<_> = new.map(str::to_owned).collect();
                let dies = new.iter().find(|line| chosen(line)).cloned();
                self.noted.extend(new);
                if let Some(line) = dies {
                    die(&directory);
                    self.at.push(line);
                }
            }
            assert!(
                started.elapsed() < LIMIT,
                "{what} did not come: {:#?}, {:#?}",
                self.noted,
                self.world.get("openstackservice", self.service)
            );
            thread::sleep(LOOK);
        }
    }

    fn runs(&self) -> Vec<PathBuf> {
        let runs = self.world.node.lab.dir().join("windlass/runs");
        let begins = format!("openstackservice-{}-install-", self.service);
        let found = fs::read_dir(runs.join(Services::NAMESPACE));
        let found = found.into_iter().flatten().flatten();
        let own = found.filter(|entry| entry.file_name().to_string_lossy().starts_with(&begins));
        own.map(|entry| entry.path()).collect()
    }
}

/// Kills the runner of a run. It may have ended by itself.
fn die(directory: &std::path::Path) {
    let identity = fs::read(directory.join("runner.json")).unwrap_or_default();
    let identity: Value = serde_json::from_slice(&identity).unwrap_or_default();
    let pid = identity["pid"].as_i64().and_then(|pid| pid.try_into().ok());
    if let Some(pid) = pid {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

#[test]
fn keystone_is_made_though_its_runner_dies_at_each_write() {
    let world = Services::set(windlass().unwrap(), &Terminal::default()).unwrap();
    let mut cloud = Services::cloud("2026.2", &json!({}));
    let services = cloud["spec"]["services"].as_array_mut().unwrap();
    services.retain(|service| service["name"] == "keystone");
    world.apply(&cloud).unwrap();
    let mut deaths = Deaths::of(&world, "one-keystone");
    let ready = std::cell::Cell::new(Instant::now());
    deaths.until(
        "Ready",
        |_| true,
        |deaths| {
            // kubectl takes a while, in which the runner writes on.
            if ready.get().elapsed() < Duration::from_secs(5) {
                return false;
            }
            let is_ready = is_true(
                &deaths.world.get("openstackservice", "one-keystone"),
                "Ready",
            );
            ready.set(Instant::now());
            is_ready
        },
    );
    eprintln!("the runner died at {:#?}", deaths.at);
    assert!(deaths.at.len() > 15, "{:#?}", deaths.at);
    world.until("openstack", "one", "Ready").unwrap();
    what_was_done_is_what_was_planned(&world, &cloud);
    nothing_secret_is_told_of(
        &world,
        &[
            ("one-keystone-admin", "password"),
            ("one-keystone-database", "password"),
            ("one-mariadb-admin", "password"),
            ("one-keystone-fernet-keys", "1"),
        ],
    );
    // Each command ran in one Job, and was done once.
    let jobs = names(&world, "jobs");
    for part in [
        "config-check",
        "database-expand",
        "identity-bootstrap",
        "database-contract",
    ] {
        let own = jobs
            .lines()
            .filter(|job| job.contains(&format!("one-keystone-{part}")));
        assert_eq!(own.count(), 1, "{part}: {jobs}");
    }
    keystone_answers_with_errors(&world);
    goes_though_its_database_went_first(&world, cloud);
}

/// All of it is to be removed, and the server that it would be removed from is gone.
fn goes_though_its_database_went_first(world: &Services, mut cloud: Value) {
    cloud["spec"]["onDelete"] = json!("Delete");
    world.apply(&cloud).unwrap();
    world.until("openstack", "one", "Ready").unwrap();
    let server = ["delete", "service/one-mariadb", "statefulset/one-mariadb"];
    world.kubectl(&server).unwrap();
    let delete = ["delete", "openstack", "one", "--timeout=300s"];
    world.kubectl(&delete).unwrap();
    assert_eq!(names(world, "openstackservices"), "");
    let secrets = names(world, "secrets");
    assert!(!secrets.contains("one-keystone-"), "{secrets}");
}

/// A Keystone that answers, and always that it cannot: its pods are ready, and it is not.
fn keystone_answers_with_errors(world: &Services) {
    const PART: &str = "openstack.windlass.dev/part";
    let mut labels = world.get("service", "one-keystone")["spec"]["selector"].take();
    labels[PART] = json!("broken");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "broken", "namespace": Services::NAMESPACE, "labels": labels},
        "spec": {"containers": [{
            "name": "api", "image": lab::CloudImages::SERVICES, "command": ["python3", "-c", BROKEN],
            "ports": [{"name": "api", "containerPort": 5000}],
            "readinessProbe": {"tcpSocket": {"port": "api"}},
        }]},
    });
    world.apply(&pod).unwrap();
    let wait = [
        "wait",
        "pod/broken",
        "--for=condition=Ready",
        "--timeout=120s",
    ];
    world.kubectl(&wait).unwrap();
    let lead = |to: &str| {
        let patch = json!({"spec": {"selector": {PART: to}}}).to_string();
        let patch = ["patch", "service", "one-keystone", "--patch", &patch];
        world.kubectl(&patch).unwrap();
    };
    lead("broken");
    let told = wait_until("the errors to be told", LIMIT, || {
        let service = world.get("openstackservice", "one-keystone");
        let healthy = condition(&service, "EndpointHealthy").cloned();
        let healthy = healthy.unwrap_or_default();
        Ok((healthy["reason"] == "KeystoneUnavailable").then_some(service))
    });
    let told = told.unwrap();
    let why = Services::message(&told, "EndpointHealthy");
    assert!(why.contains("500"), "{why}");
    assert!(!is_true(&told, "Ready"), "{told}");
    lead("api");
    world
        .until("openstackservice", "one-keystone", "Ready")
        .unwrap();
}

const BROKEN: &str = r#"
import http.server

class Broken(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(500)

    do_HEAD = do_POST = do_GET

http.server.ThreadingHTTPServer(("", 5000), Broken).serve_forever()
"#;
