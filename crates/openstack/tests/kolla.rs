//! Kolla's own scripts take what a container is told: its files are copied, and its command is run with the words that it has.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "the helpers are test code too"
)]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use api::openstack::OpenStackService;
use lab::progress::Terminal;
use openstack::{
    definition::{self, Definition},
    kolla::{DIRECTORY, SCRIPT},
    made::{Made, Release, Subject},
    service::Inputs,
    wish::{Operation, Wish as _},
};
use serde_json::{Value, json};

/// A service whose image is Kolla's.
struct Service {
    definition: Definition,
    inputs: Inputs,
    object: OpenStackService,
}

impl Service {
    fn of(name: &str) -> Self {
        let mut spec = json!({"service": name, "image": "kolla", "contract": "Kolla",
            "database": {"host": "db", "adminSecret": {"name": "admin"}}});
        if name != "keystone" {
            spec["identity"] =
                json!({"url": "https://keystone.example/v3", "adminSecret": {"name": "a"}});
        }
        let object: OpenStackService = serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": format!("one-{name}"), "namespace": "cloud"}, "spec": spec,
        }))
        .unwrap();
        let inputs = object.wanted().unwrap().inputs;
        Self {
            definition: definition::find(name).unwrap().clone(),
            inputs: serde_json::from_value(Value::Object(inputs)).unwrap(),
            object,
        }
    }

    /// What a step of it makes, as the charts take it.
    fn values(&self, step: &str) -> Value {
        let steps = self.object.wanted().unwrap().steps(Operation::Install);
        let step = steps.iter().find(|found| found.id == step).unwrap();
        let subject = Subject {
            name: "one".to_owned(),
            ..Subject::default()
        };
        match subject.of_service(&self.inputs, &self.definition, step) {
            Some(Made::Release(Release { values, .. })) => values,
            made => panic!("{made:?}"),
        }
    }
}

/// A root of its own with this machine's programs, Kolla's scripts, and whatever is written in it.
struct Root(tempfile::TempDir);

impl Root {
    /// The programs that a command names say what they were given.
    fn new(kolla: &Path, of: &Definition, programs: &[&str]) -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        for directory in ["kolla/bin", "etc", "tmp", "dev"] {
            fs::create_dir_all(root.at(directory)).unwrap();
        }
        let user = &of.kolla;
        let (name, uid) = (&user.user, user.uid);
        let users = format!("root:x:0:0:::\n{name}:x:{uid}:{uid}:::\n");
        fs::write(root.at("etc/passwd"), users).unwrap();
        fs::write(
            root.at("etc/group"),
            format!("root:x:0:\n{name}:x:{uid}:\n"),
        )
        .unwrap();
        // Of YAML nothing is asked.
        fs::write(root.at("kolla/yaml.py"), "").unwrap();
        let script = |name: &str| fs::read_to_string(kolla.join("docker/base").join(name)).unwrap();
        root.program("kolla_start", &script("start.sh"));
        root.program("kolla_set_configs", &script("set_configs.py"));
        root.program("kolla_install_projects", &script("install_projects.sh"));
        // Certificates of the machine are none of a test's, and who is root here needs no sudo.
        root.program("kolla_copy_cacerts", "#!/bin/sh\n");
        root.program(
            "sudo",
            "#!/bin/sh\n[ \"$1\" != -E ] || shift\nexec \"$@\"\n",
        );
        root.program("kolla_extend_start", "");
        for name in programs {
            root.program(name, "#!/bin/sh\nprintf 'given:%s\\n' \"$@\"\n");
        }
        root
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.at("kolla/bin").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The directory of a pod's configuration, with links as the kubelet makes them.
    fn mount(&self, service: &Service, values: &Value) {
        let directory = self.at(DIRECTORY);
        fs::create_dir_all(directory.join("..of")).unwrap();
        symlink("..of", directory.join("..data")).unwrap();
        let told = &values["kolla"];
        let text = |name: &str| told[name].as_str().map(str::to_owned);
        let mut files = service.inputs.files.clone();
        files.insert("config.json".to_owned(), text("config").unwrap());
        files.extend(text("script").map(|script| (SCRIPT.to_owned(), script)));
        for (name, text) in files {
            fs::write(directory.join("..of").join(&name), text).unwrap();
            symlink(format!("..data/{name}"), directory.join(name)).unwrap();
        }
    }

    /// Runs a program in it, with what a container has in its environment that is no secret.
    fn run(&self, values: &Value, arguments: &[&str]) -> Output {
        let environment: BTreeMap<_, _> = values["environment"]
            .as_object()
            .unwrap()
            .iter()
            .filter_map(|(name, value)| Some((name, value.as_str()?)))
            .collect();
        Command::new("unshare")
            .args(["--mount", "sh", "-ec", ENTER])
            .arg(self.0.path())
            .args(arguments)
            .env_clear()
            .envs(environment)
            .env("PYTHONPATH", "/kolla")
            .env(
                "PATH",
                "/kolla/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .output()
            .unwrap()
    }
}

const ENTER: &str = r#"for name in usr bin sbin lib lib64 dev; do
  [ ! -e "/$name" ] || { mkdir -p "$0/$name" && mount --bind "/$name" "$0/$name"; }
done
exec chroot "$0" "$@""#;

fn kolla() -> PathBuf {
    lab::kolla(&Terminal::default()).unwrap()
}

#[test]
fn every_service_starts_with_its_files_and_its_words() {
    let kolla = kolla();
    for name in definition::names() {
        let service = Service::of(name);
        let command = &service.definition.components[definition::API].command;
        let values = service.values("api/deploy");
        let root = Root::new(&kolla, &service.definition, &[command[0].as_str()]);
        root.mount(&service, &values);
        let done = root.run(&values, &["kolla_start"]);
        let said = String::from_utf8_lossy(&done.stdout);
        let why = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{name}: {why}");
        let given: Vec<_> = said
            .lines()
            .filter_map(|line| line.strip_prefix("given:"))
            .collect();
        assert_eq!(given, command[1..], "{name}");
        for (file, text) in &service.inputs.files {
            let path = root.at(&service.definition.config_directory).join(file);
            assert_eq!(&fs::read_to_string(&path).unwrap(), text);
            let of = fs::metadata(&path).unwrap();
            let uid = service.definition.kolla.uid;
            assert_eq!((of.uid(), of.gid(), of.mode() & 0o7777), (uid, uid, 0o600));
        }
        let written = fs::metadata(root.at("run_command")).unwrap();
        assert_eq!(written.mode() & 0o7777, 0o644);
    }
}

#[test]
fn a_job_is_what_kolla_runs_and_finds_unchanged() {
    let service = Service::of("keystone");
    let values = service.values("database/expand");
    let root = Root::new(&kolla(), &service.definition, &["keystone-manage"]);
    root.mount(&service, &values);
    let done = root.run(&values, &["kolla_start"]);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("given:db_sync\ngiven:--expand\n"), "{said}");
    let run = fs::read_to_string(root.at("run_command")).unwrap();
    assert_eq!(run, "keystone-manage db_sync --expand");
    let check = || {
        let done = root.run(&values, &["kolla_set_configs", "--check"]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), said)
    };
    assert_eq!(check().0, Some(0), "{}", check().1);
    let file = root.at("etc/keystone/keystone.conf");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}\n")).unwrap();
    let (code, said) = check();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("ConfigFileBadState"), "{said}");
    // A container that starts again brings it back.
    assert!(root.run(&values, &["kolla_start"]).status.success());
    assert_eq!(check().0, Some(0));
}

#[test]
fn users_are_those_of_kolla() {
    let script = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['USERS']))";
    let users = kolla().join("common/users.py");
    let said = lab::command::output(Command::new("python3").args(["-c", script]).arg(users));
    let users: Value = serde_json::from_str(&said.unwrap()).unwrap();
    for name in definition::names() {
        let own = definition::find(name).unwrap().kolla.clone();
        let known = &users[format!("{}-user", own.user)];
        assert_eq!(
            (&known["uid"], &known["gid"]),
            (&json!(own.uid), &json!(own.uid)),
            "{name}"
        );
    }
    // Whose members may copy files.
    assert_eq!(users["kolla-user"]["gid"], 42400);
}
