//! Manifests that are encrypted with the real `sops` and `age`, applied to the API of `windlass up` as plain ones are, and what was in
//! them shown by nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

/// What is encrypted, and must be nowhere but in its object.
const SECRET: &str = "hidden-horse-battery";

struct Place {
    directory: tempfile::TempDir,
    programs: PathBuf,
    public: String,
}

impl Place {
    fn new() -> Self {
        let mut place = Self {
            directory: tempfile::tempdir().unwrap(),
            programs: lab::sops_programs(&lab::progress::Silent).unwrap(),
            public: String::new(),
        };
        for key in ["key", "other"] {
            place.run("age-keygen", &["-o", key]);
        }
        let public = place.run("age-keygen", &["-y", "key"]);
        public.trim().clone_into(&mut place.public);
        fs::create_dir(place.at("manifests")).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(self.programs.join(program))
            .args(arguments)
            .current_dir(self.directory.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Writes a manifest that SOPS has encrypted.
    fn sops(&self, name: &str, text: &str, options: &[&str]) -> PathBuf {
        let file = self.at(name);
        fs::write(&file, text).unwrap();
        let path = file.display().to_string();
        let arguments = ["encrypt", "--in-place", "--age", &self.public];
        self.run("sops", &[&arguments, options, &[&path]].concat());
        assert!(!fs::read_to_string(&file).unwrap().contains(SECRET));
        file
    }

    /// Writes a manifest that age has encrypted.
    fn age(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.at("plain"), text).unwrap();
        let path = self.at(name).display().to_string();
        self.run("age", &["-r", &self.public, "-a", "-o", &path, "plain"]);
        fs::remove_file(self.at("plain")).unwrap();
        self.at(name)
    }

    fn windlass(&self, key: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .arg("--data-dir")
            .arg(self.at("data"))
            .args(arguments)
            .env_remove("SOPS_AGE_KEY_FILE")
            .env("SOPS_AGE_KEY_FILE", self.at(key))
            .env("HOME", self.directory.path())
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null());
        command
    }

    /// What a command says. Nothing does what is encrypted.
    fn says(&self, key: &str, arguments: &[&str], file: &Path) -> (bool, String) {
        let output = self.windlass(key, arguments).arg("-f").arg(file).output();
        told(&output.unwrap())
    }

    fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let output = self
            .windlass("key", &["get", kind, name, "-o", "json"])
            .output()
            .unwrap();
        output
            .status
            .success()
            .then(|| serde_json::from_slice(&output.stdout).unwrap())
    }
}

fn told(output: &Output) -> (bool, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!said.contains(SECRET), "{said}");
    (output.status.success(), said)
}

/// `windlass up`, until the test ends.
struct Up(Child);

impl Up {
    fn start(place: &Place) -> Self {
        let mut child = place
            .windlass("key", &["up"])
            .stdout(Stdio::piped())
            .stderr(File::create(place.at("log")).unwrap())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let up = Self(child);
        let mut lines = lines.map(Result::unwrap);
        assert!(lines.any(|line| line.contains("kubeconfig")));
        // Nobody else reads it, and a writer must not be stopped.
        std::thread::spawn(move || lines.for_each(drop));
        up
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn secret(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData:\n  # about it\n  password: {SECRET}\n"
    )
}

/// A Cluster with a value that no API takes.
fn cluster(version: &str) -> String {
    format!(
        "apiVersion: kubespray.k8s.io/v1\nkind: Cluster\nmetadata: {{name: first}}\n\
         spec:\n  kubespray: {{version: 2.30.0, source: {{path: {}}}}}\n  kubernetesVersion: {version}\n",
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../bundle")
            .display()
    )
}

#[test]
fn what_is_encrypted_is_applied_whole_and_told_by_nothing() {
    let place = Place::new();
    let up = Up::start(&place);
    let values = ["--encrypted-regex", "^(data|stringData)$"];
    let all = place.at("manifests");
    fs::write(
        all.join("a.yaml"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\n",
    )
    .unwrap();
    fs::write(all.join(".sops.yaml"), "creation_rules: []\n").unwrap();
    place.sops("manifests/b.sops.yaml", &secret("b"), &values);
    place.sops(
        "manifests/c.sops.yaml",
        &format!("{}---\n{}", secret("c1"), secret("c2")),
        &[],
    );
    let json = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"password": SECRET},
    });
    place.sops("manifests/d.json", &json.to_string(), &[]);
    place.age("manifests/e.yaml.age", &secret("e"));

    // Nothing is stored by a dry run, of a key that does not fit, and where one file was altered.
    let (done, said) = place.says("key", &["apply", "--dry-run"], &all);
    assert!(
        done && said.contains("secret/b created (dry run)"),
        "{said}"
    );
    let (done, said) = place.says("other", &["apply"], &all);
    assert!(
        !done && said.contains("b.sops.yaml") && said.contains(&place.public),
        "{said}"
    );
    let sealed = fs::read_to_string(all.join("b.sops.yaml")).unwrap();
    fs::write(all.join("z.yaml"), sealed.replace("name: b", "name: z")).unwrap();
    let (done, said) = place.says("key", &["apply"], &all);
    assert!(
        !done && said.contains("z.yaml") && said.contains("altered"),
        "{said}"
    );
    let without = sealed.replace("name: b", "name: z");
    fs::write(all.join("z.yaml"), without.split("sops:").next().unwrap()).unwrap();
    let (done, said) = place.says("key", &["apply"], &all);
    assert!(!done && said.contains("the field sops"), "{said}");
    fs::remove_file(all.join("z.yaml")).unwrap();
    assert!(place.get("configmap", "plain").is_none() && place.get("secret", "b").is_none());

    let (done, said) = place.says("key", &["apply"], &all);
    assert!(done && said.contains("configmap/plain created"), "{said}");
    for name in ["b", "c1", "c2", "e"] {
        let object = place.get("secret", name).unwrap();
        let value = object["data"]["password"].as_str().unwrap();
        assert_eq!(value, "aGlkZGVuLWhvcnNlLWJhdHRlcnk=", "{name}");
        assert!(
            !object.to_string().contains("sops") && !object.to_string().contains("ENC["),
            "{object}"
        );
    }
    assert_eq!(
        place.get("configmap", "d").unwrap()["data"]["password"],
        SECRET
    );
    let (done, said) = place.says("key", &["apply"], &all);
    assert!(done && said.contains("secret/b unchanged"), "{said}");

    // Standard input, and a key that is named.
    let key = place.at("key").display().to_string();
    let mut command = place.windlass("other", &["apply", "--age-key-file", &key, "-f", "-"]);
    let input = place.sops("f.yaml", &secret("f"), &values);
    let output = command.stdin(File::open(input).unwrap()).output().unwrap();
    assert!(told(&output).1.contains("secret/f created"));

    // What the API says of a value is not handed on, nor of one that SOPS left in the open and age encrypted.
    let inner = place.at("inner.yaml");
    fs::write(&inner, cluster(SECRET)).unwrap();
    let path = inner.display().to_string();
    let arguments = ["encrypt", "--age", &place.public, "--encrypted-regex"];
    let inner = place.run("sops", &[&arguments[..], &["^source$", &path]].concat());
    assert!(inner.contains(SECRET) && inner.contains("ENC["), "{inner}");
    for file in [
        place.sops(
            "g.yaml",
            &cluster(SECRET),
            &["--encrypted-regex", "^kubernetesVersion$"],
        ),
        place.age("g.yaml.age", &cluster(SECRET)),
        place.age("inner.yaml.age", &inner),
    ] {
        for command in [
            &["apply"][..],
            &["plan"],
            &["plan", "-o", "json"],
            &["plan", "-o", "yaml"],
        ] {
            let (done, said) = place.says("key", command, &file);
            assert!(
                !done && said.contains("kubernetesVersion"),
                "{command:?}: {said}"
            );
        }
    }
    // Nor what is wrong with an object or its text.
    for (text, words) in [
        (
            format!("kind: Secret\nstringData: {{a: {SECRET}}}\n"),
            "apiVersion",
        ),
        (
            format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: a, labels: {SECRET}}}\n"),
            "Secret a is not",
        ),
        (format!("a: [{SECRET}\n"), "no YAML"),
    ] {
        let file = place.age("h.yaml.age", &text);
        let (done, said) = place.says("key", &["apply"], &file);
        assert!(!done && said.contains(words), "{words}: {said}");
        fs::remove_file(file).unwrap();
    }
    let file = place.sops(
        "i.yaml",
        &cluster("1.34.4"),
        &["--encrypted-regex", "^kubernetesVersion$"],
    );
    let (done, said) = place.says("key", &["plan"], &file);
    assert!(said.contains("cluster default/first"), "{done}: {said}");
    // What would show it is refused.
    let (done, said) = place.says("key", &["inventory", "render"], &file);
    assert!(!done && said.contains("in the open"), "{said}");

    let log = fs::read_to_string(place.at("log")).unwrap();
    assert!(!log.contains(SECRET), "{log}");
    drop(up);
}

#[test]
fn what_is_encrypted_is_in_no_plan_of_a_service() {
    let place = Place::new();
    let cloud = format!(
        "apiVersion: openstack.windlass.dev/v1alpha1\nkind: OpenStack\nmetadata: {{name: one, namespace: cloud, uid: u}}\n\
         spec:\n  release: \"2026.2\"\n  region: {SECRET}\n  database: {{managed: {{image: registry.example/mariadb:10.11}}}}\n  \
         services:\n  - {{name: keystone, image: registry.example/keystone:30.0.0}}\n  \
         - {{name: placement, image: registry.example/placement:30.0.0}}\n"
    );
    let file = place.age("a.yaml.age", &cloud);
    let (done, said) = place.says("key", &["openstack", "plan"], &file);
    assert!(
        done && said.contains("--bootstrap-region-id=********") && !said.contains(SECRET),
        "{said}"
    );
}

#[test]
fn what_a_template_makes_of_what_is_encrypted_is_not_told_either() {
    let place = Place::new();
    let inventory = |secret: &str| {
        format!(
            "apiVersion: inventory.windlass.dev/v1alpha1\nkind: Hierarchy\nmetadata: {{name: default}}\n\
             spec: {{levels: [{{name: site, kind: Site, presence: Optional}}]}}\n---\n\
             apiVersion: inventory.windlass.dev/v1alpha1\nkind: FleetCluster\nmetadata: {{name: c}}\n\
             spec: {{template: t, values: {{secret: {secret}, open: text}}}}\n---\n\
             apiVersion: inventory.windlass.dev/v1alpha1\nkind: ClusterTemplate\nmetadata: {{name: t}}\n\
             spec:\n  backEnd: Plain\n  documents:\n  - object: {{apiVersion: v1, kind: X, metadata: {{name: x}}, \
             spec: {{back: '{{{{ secret[::-1] }}}}', open: '{{{{ open }}}}'}}}}\n"
        )
    };
    let before = place.age("before.yaml.age", &inventory(SECRET));
    let after = place.age("after.yaml.age", &inventory(&format!("{SECRET}-2")));
    let backwards: String = SECRET.chars().rev().collect();
    let explain = ["inventory", "explain", "c", "X/x:spec.back"];
    let (done, said) = place.says("key", &explain, &before);
    assert!(done && said.contains(r#"spec.back = "********""#), "{said}");
    assert!(!said.contains(&backwards), "{said}");
    let compared = place
        .windlass("key", &["inventory", "diff"])
        .args([&before, &after])
        .output();
    let (_, said) = told(&compared.unwrap());
    assert!(
        said.contains(r#"spec.back: "********" -> "********""#),
        "{said}"
    );
    assert!(!said.contains(&backwards), "{said}");
}
