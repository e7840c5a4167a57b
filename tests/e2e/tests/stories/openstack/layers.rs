//! People leave a cloud at each of its layers, work there by hand as the guides say, and come back: what they changed is kept, or named
//! and left to them, and never taken back without a word. A database server whose volume is too small says so, and goes on once it is not.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process::Command,
};

use e2e::{Guide, Services, is_true, wait_until, windlass};
use lab::{CloudImages, command::output, progress::Terminal};
use serde_json::{Value, json};

use super::{LIMIT, names};

/// Whoever reads the guides, in a directory of their own.
struct Reader<'a> {
    world: &'a Services,
    directory: PathBuf,
}

impl<'a> Reader<'a> {
    fn of(world: &'a Services) -> Self {
        let directory = world.node.lab.dir().join("reader");
        let programs = directory.join("programs");
        fs::create_dir_all(&programs).unwrap();
        symlink(&world.helm, programs.join("helm")).unwrap();
        let kubectl = world.node.programs().join("kubectl");
        symlink(kubectl, programs.join("kubectl")).unwrap();
        // As the operator's, so that runs and their files are found by either.
        let script = format!(
            "#!/bin/sh\nexec {} --data-dir {} --kubeconfig {} \"$@\"\n",
            windlass().unwrap().display(),
            world.node.lab.dir().join("windlass").display(),
            world.node.kubeconfig().display(),
        );
        let program = programs.join("windlass");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { world, directory }
    }

    fn run(&self, commands: &str) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("bash");
        shell
            .args(["-euc", commands])
            .current_dir(&self.directory)
            .env(
                "PATH",
                format!("{}:{path}", self.directory.join("programs").display()),
            )
            .env("KUBECONFIG", self.world.node.kubeconfig())
            .env("KUBECACHEDIR", self.directory.join("kubectl"))
            .env("HELM_CACHE_HOME", self.directory.join("helm"));
        output(&mut self.world.node.lab.enter_network(&shell)).unwrap()
    }

    /// Commands of which the last one begins a run that does what it should.
    fn does(&self, commands: &str) -> Value {
        let told = self.run(commands);
        let told = told.lines().next_back().unwrap_or_default();
        self.world.run_ends(told).unwrap()
    }

    /// Commands of which the last one begins a run that fails, with its name and how it did.
    fn is_refused(&self, commands: &str) -> (String, Value) {
        let told = self.run(commands);
        let run = told
            .lines()
            .next_back()
            .and_then(|told| told.split(' ').nth(1));
        let run = run.unwrap().to_owned();
        let failed = wait_until("the run to fail", LIMIT, || {
            let found = self.world.get("run", &run);
            let phase = found["status"]["phase"].as_str().unwrap_or_default();
            anyhow::ensure!(phase != "Succeeded", "it undid it: {found}");
            Ok((phase == "Failed").then_some(found))
        });
        (run, failed.unwrap()["status"].take())
    }
}

/// A guide with the images that the node has.
fn guide(name: &str) -> Guide {
    Guide::read(&format!("docs/openstack/{name}.md"))
        .unwrap()
        .with("registry.example/mariadb:10.11", CloudImages::MARIADB)
        .with("registry.example/keystone:30.0.0", CloudImages::SERVICES)
        .with("registry.example/placement:16.0.0", CloudImages::SERVICES)
}

#[test]
fn people_work_at_each_layer_and_come_back() {
    let world = Services::set(windlass().unwrap(), &Terminal::default()).unwrap();
    let reader = Reader::of(&world);
    a_cloud(&reader);
    a_service(&reader);
    a_release(&reader);
    objects(&reader);
    containers(&reader);
    consent(&reader);
    a_volume_is_too_small(&world);
}

fn a_cloud(reader: &Reader<'_>) {
    let mut guide = guide("layer-5-cloud");
    let planned = reader.run(&guide.take(&["kubectl apply -f cloud.yaml"]));
    assert!(planned.contains("Helm release one-mariadb"), "{planned}");
    let status = reader.run(&guide.take(&["openstack status"]));
    assert!(status.contains("OpenStackService one-keystone"), "{status}");
    reader.does(&guide.take(&["run one keystone/declare"]));
    guide.is_done();
}

fn a_service(reader: &Reader<'_>) {
    let mut guide = guide("layer-4-service");
    reader.run(&guide.take(&["kubectl apply -f placement.yaml"]));
    reader.does(&guide.take(&["run placement api/ask"]));
    reader.does(&guide.take(&["patch openstackservice one-keystone", "keystone/declare"]));
    let keystone = reader.world.get("openstackservice", "one-keystone");
    assert_eq!(keystone["spec"]["onDelete"], "Retain", "{keystone}");
    reader.run(&guide.take(&["delete openstackservice placement"]));
    guide.is_done();
    assert!(names(reader.world, "secrets").contains("placement-database"));
}

fn a_release(reader: &Reader<'_>) {
    let mut guide = guide("layer-3-release");
    let values = reader.run(&guide.take(&["openstack charts", "get values"]));
    assert!(values.contains("replicas: 1"), "{values}");
    reader.run(&guide.take(&["helm -n cloud upgrade", "rollout status"]));
    assert_eq!(replicas(reader), 2);
    let undone = guide.take(&["helm -n cloud rollback"]);
    let (_, refused) = reader.is_refused(&guide.take(&["run one-keystone api/deploy"]));
    assert_eq!(refused["failure"]["code"], "EditedByHand", "{refused}");
    let why = refused["failure"]["message"].as_str().unwrap();
    let told = "by hand: Deployment one-keystone-api spec.replicas (by helm, revision ";
    let (_, revision) = why.split_once(told).unwrap_or_else(|| panic!("{why}"));
    assert!(revision.len() <= 3, "and nothing else: {why}");
    assert_eq!(replicas(reader), 2);
    reader.does(&undone);
    assert_eq!(replicas(reader), 1);
    guide.is_done();
}

fn objects(reader: &Reader<'_>) {
    let mut guide = guide("layer-2-objects");
    let diff = reader.run(&guide.take(&["openstack render", "kubectl diff"]));
    assert_eq!(diff, "");
    reader.run(&guide.take(&["kubectl -n cloud annotate", "scale"]));
    let (_, refused) = reader.is_refused(&guide.take(&["run one-keystone api/deploy"]));
    let why = refused["failure"]["message"].as_str().unwrap();
    assert!(
        why.ends_with("by hand: Deployment one-keystone-api spec.replicas (by kubectl)"),
        "{why}"
    );
    keeps_what_is_of_a_person(reader);
    reader.run(&guide.take(&["patch openstack one"]));
    guide.is_done();
    let service = "openstackservice";
    wait_until("the service to be told", LIMIT, || {
        let told = reader.world.get(service, "one-keystone");
        Ok((told["spec"]["replicas"] == 2).then_some(()))
    })
    .unwrap();
    reader
        .world
        .until(service, "one-keystone", "Ready")
        .unwrap();
    reader.world.until("openstack", "one", "Ready").unwrap();
    keeps_what_is_of_a_person(reader);
}

/// Two pods, the annotation and the variable, each by whoever wrote it.
fn keeps_what_is_of_a_person(reader: &Reader<'_>) {
    let get = "kubectl -n cloud get deployment one-keystone-api -o json --show-managed-fields";
    let deployment: Value = serde_json::from_str(&reader.run(get)).unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    let annotation = &deployment["metadata"]["annotations"]["example.org/owner"];
    assert_eq!(annotation, "ann");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let env = container["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "EXAMPLE", "value": "1"})));
    let managed = deployment["metadata"]["managedFields"].as_array().unwrap();
    for (manager, field) in [
        ("kubectl-annotate", "f:example.org/owner"),
        ("kubectl-set", r#"k:{\"name\":\"EXAMPLE\"}"#),
    ] {
        let mut own = managed.iter().filter(|entry| entry["manager"] == manager);
        let owns = own.any(|entry| entry["fieldsV1"].to_string().contains(field));
        assert!(owns, "{manager} {field}: {managed:#?}");
    }
}

fn containers(reader: &Reader<'_>) {
    let mut guide = guide("layer-1-containers");
    let file = reader.run(&guide.take(&["cat /etc/keystone/keystone.conf"]));
    assert!(file.contains("[fernet_tokens]"), "{file}");
    reader.run(&guide.take(&["keystone-manage db_sync --check"]));
    guide.is_done();
}

/// The command that a refusal ends with lets go of what it named, once.
fn consent(reader: &Reader<'_>) {
    let scale = "kubectl -n cloud scale deployment/one-keystone-api --replicas=3";
    let deploy = "windlass -n cloud openstack run one-keystone api/deploy";
    let (run, refused) = reader.is_refused(&format!("{scale}\n{deploy}"));
    let remedy = refused["failure"]["remedy"].as_str().unwrap();
    let (_, commands) = remedy.split_once("let it go: ").unwrap();
    let (annotate, retry) = commands.split_once("; then ").unwrap();
    reader.run(&format!("{annotate}\n{retry}"));
    wait_until("the run to go on", LIMIT, || {
        let found = reader.world.get("run", &run);
        Ok((found["status"]["phase"] == "Succeeded").then_some(()))
    })
    .unwrap();
    assert_eq!(replicas(reader), 2);
    reader.is_refused(&format!("{scale}\n{deploy}"));
    assert_eq!(replicas(reader), 3);
}

fn replicas(reader: &Reader<'_>) -> u64 {
    let deployment = reader.world.get("deployment", "one-keystone-api");
    deployment["spec"]["replicas"].as_u64().unwrap()
}

/// The cloud says what its database server says, and goes on by itself once there is space.
fn a_volume_is_too_small(world: &Services) {
    let on_the_node = |command: &str| {
        let done = world.node.lab.ssh("host-1", command).unwrap();
        assert!(done.status.success(), "{command}: {done:?}");
    };
    on_the_node("mkdir /srv/small && mount -t tmpfs -o size=60m,mode=777 small /srv/small");
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "small"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/srv/small"}},
    });
    world.apply(&volume).unwrap();
    let mut cloud = Services::cloud("2026.2", &json!({}));
    cloud["metadata"]["name"] = json!("two");
    cloud["spec"]["database"]["managed"]["storage"] = json!({"size": "1Gi"});
    let services = cloud["spec"]["services"].as_array_mut().unwrap();
    services.retain(|service| service["name"] == "keystone");
    world.apply(&cloud).unwrap();
    let told = wait_until("the volume to be named", LIMIT, || {
        let cloud = world.get("openstack", "two");
        let waits = cloud["status"]["blockedOn"].as_str().unwrap_or_default();
        Ok(waits.contains("failed with error 28").then_some(cloud))
    });
    let told = told.unwrap();
    assert!(!is_true(&told, "Ready"), "{told}");
    let waits = told["status"]["blockedOn"].as_str().unwrap();
    assert!(waits.contains("pod two-mariadb-0"), "{waits}");
    on_the_node("mount -o remount,size=600m /srv/small");
    // It is declared once the server answers.
    wait_until("the database server to go on", LIMIT, || {
        let keystone = world.get("openstackservice", "two-keystone");
        Ok((!keystone.is_null()).then_some(()))
    })
    .unwrap();
}
