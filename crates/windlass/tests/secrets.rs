//! Secrets are found in their Secrets and nowhere else: a whole life of a cluster, with a secret in every place that takes
//! one, and then a search through all that is left and all that was said.
//!
//! Real `windlass up`, runner, sshd and Ansible; the playbooks are small and indiscreet.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::{
    collections::BTreeMap,
    fs::{self, File},
    hash::{BuildHasher as _, RandomState},
    io::{BufRead as _, BufReader},
    net::{IpAddr, TcpListener, UdpSocket},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, DynamicObject, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
    discovery::Discovery,
};
use serde_json::{Value, json};

const NAMESPACE: &str = "canaries";
const CLUSTER: &str = "first";
/// No wait here takes longer on a machine that does other things as well.
const LONG: Duration = Duration::from_mins(3);

/// As indiscreet as playbooks can be. What they make is outside of what is searched.
const PLAYBOOK: &str = r#"
- name: Use everything
  hosts: kube_control_plane
  gather_facts: false
  tasks:
    - name: Say {{ cluster_word }}
      ansible.builtin.debug: {msg: ["{{ cluster_word }}", "{{ node_word }}", "{{ inner }}", "{{ creation_word }}"]}
    - name: Say each
      ansible.builtin.debug: {msg: "{{ item }} {{ item | b64encode }}"}
      loop: ["{{ cluster_word }}", "{{ node_word }}", "{{ inner.words.0 }}", "{{ node_inner }}", "{{ creation_word }}"]
    - name: Write down
      ansible.builtin.copy:
        content: "{{ [cluster_word, node_word, inner.words.0, node_inner, creation_word] | to_json }}"
        dest: "{{ outside }}/proof"
        mode: "0600"
    - name: Remember
      ansible.builtin.set_fact: {remembered: "{{ plain_word }}"}
    - name: Bring the kubeconfig
      ansible.builtin.copy:
        src: "{{ outside }}/admin.conf"
        remote_src: true
        dest: "{{ artifacts_dir }}/admin.conf"
        mode: "0600"
    - name: Fail with {{ cluster_word }}
      ansible.builtin.command:
        argv: [sh, -c, 'echo "$0 $1"; echo "$0 $1" >&2; test -e "$2"', "{{ cluster_word }}", "{{ node_word }}", "{{ outside }}/well"]
"#;

/// A text that stands nowhere by chance. Capital letters: what compresses the database finds no part of them elsewhere.
fn canary(name: &str) -> String {
    let letters = |seed: u64| {
        let mut number = RandomState::new().hash_one(seed);
        let mut letters = String::new();
        for _ in 0..12 {
            letters.push(char::from(b'A' + u8::try_from(number % 26).unwrap()));
            number /= 26;
        }
        letters
    };
    format!("{name}-{}{{{{x}}}}'{}", letters(1), letters(2))
}

/// The forms in which a text is looked for.
fn needles(text: &str) -> Vec<Vec<u8>> {
    // What no escape changes.
    let parts = text
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|part| part.len() >= 12);
    let mut needles: Vec<_> = parts.map(|part| part.as_bytes().to_vec()).collect();
    for offset in 0..3 {
        let text = format!("{}{text}", &"???"[..offset]);
        let encoded = STANDARD.encode(&text);
        needles.push(encoded.as_bytes()[4..text.len() / 3 * 4].to_vec());
    }
    needles
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// What is secret, by where it is given.
struct Canaries(BTreeMap<&'static str, Vec<Vec<u8>>>);

impl Canaries {
    fn found_in(&self, bytes: &[u8]) -> Vec<&'static str> {
        let found = self
            .0
            .iter()
            .filter(|(_, needles)| needles.iter().any(|needle| contains(bytes, needle)));
        found.map(|(name, _)| *name).collect()
    }
}

/// Looks at the arguments and environments of all processes, again and again.
struct Watch {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    found: Arc<Mutex<Vec<String>>>,
    playbooks: Arc<Mutex<usize>>,
}

impl Watch {
    fn start(canaries: Arc<Canaries>, inside: PathBuf) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let found = Arc::new(Mutex::new(Vec::new()));
        let playbooks = Arc::new(Mutex::new(0));
        let (end, hits, seen) = (
            Arc::clone(&ended),
            Arc::clone(&found),
            Arc::clone(&playbooks),
        );
        let thread = thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                for process in processes() {
                    let read = |name: &str| fs::read(process.join(name)).unwrap_or_default();
                    let (arguments, environment) = (read("cmdline"), read("environ"));
                    if contains(&arguments, b"--extra-vars")
                        && contains(&arguments, inside.as_os_str().as_encoded_bytes())
                    {
                        *seen.lock().unwrap() += 1;
                    }
                    for name in canaries.found_in(&[arguments.as_slice(), &environment].concat()) {
                        let arguments = String::from_utf8_lossy(&arguments).into_owned();
                        hits.lock().unwrap().push(format!("{name}: {arguments}"));
                    }
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        Self {
            ended,
            thread: Some(thread),
            found,
            playbooks,
        }
    }

    fn end(mut self) -> (Vec<String>, usize) {
        self.ended.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
        let found = self.found.lock().unwrap().clone();
        (found, *self.playbooks.lock().unwrap())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .map(|entry| entry.path())
}

/// What ends with the test, however it ends.
struct Stage {
    root: tempfile::TempDir,
    children: Vec<Child>,
    said: Mutex<Vec<String>>,
}

impl Stage {
    fn outside(&self) -> PathBuf {
        self.root.path().join("outside")
    }

    fn inside(&self) -> PathBuf {
        self.root.path().join("inside")
    }

    fn data(&self, side: &str) -> PathBuf {
        self.inside().join(side)
    }

    fn windlass(&self, side: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .arg("--data-dir")
            .arg(self.data(side))
            .args(["--namespace", NAMESPACE])
            .args(arguments)
            .env("TMPDIR", self.inside().join("tmp"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command, and keeps what it says for the search.
    fn says(&self, side: &str, arguments: &[&str]) -> String {
        let output = self.windlass(side, arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        self.said
            .lock()
            .unwrap()
            .push(format!("{arguments:?}: {said}"));
        said
    }

    /// Starts `windlass up`, whose port is any.
    fn up(&mut self, side: &str, sandboxes: &Path) {
        fs::create_dir(self.data(side)).unwrap();
        symlink(sandboxes, self.data(side).join("sandboxes")).unwrap();
        let log = File::create(self.inside().join(format!("{side}.log"))).unwrap();
        let mut child = self
            .windlass(side, &["up"])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        self.children.push(child);
        let mut lines = BufReader::new(output).lines();
        let up = lines.any(|line| line.unwrap().contains("kubeconfig"));
        assert!(
            up,
            "{}",
            fs::read_to_string(self.inside().join(format!("{side}.log"))).unwrap()
        );
        // Nobody else reads it, and a writer must not be stopped.
        thread::spawn(move || lines.for_each(drop));
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the kubeconfig is the test's own"
    )]
    async fn client(&self, side: &str) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.data(side).join("kubeconfig")).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        Client::try_from(config.unwrap()).unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        // A runner outlives its operator, and a playbook its runner.
        let place = self.root.path().as_os_str().as_encoded_bytes().to_vec();
        for process in processes() {
            if fs::read(process.join("cmdline")).is_ok_and(|words| contains(&words, &place)) {
                let pid = process.file_name().unwrap().to_owned();
                let _ = Command::new("kill").arg("-KILL").arg(pid).status();
            }
        }
    }
}

/// An sshd that lets this user in by the key `user`; its port.
fn sshd(stage: &mut Stage) -> u16 {
    let outside = stage.outside();
    for key in ["host", "user"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(outside.join(key))
            .status()
            .unwrap();
        assert!(made.success());
    }
    if is_root() {
        fs::create_dir_all("/run/sshd").unwrap();
    }
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let at = |name: &str| outside.join(name).display().to_string();
    let configuration = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nUsePAM no\n\
         Subsystem sftp internal-sftp\n",
        at("host"),
        at("user.pub"),
    );
    fs::write(outside.join("sshd.conf"), configuration).unwrap();
    let child = Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f"])
        .arg(outside.join("sshd.conf"))
        .stdin(Stdio::null())
        .stderr(File::create(outside.join("sshd.log")).unwrap())
        .spawn()
        .unwrap();
    stage.children.push(child);
    port
}

fn user() -> String {
    std::env::var("USER").unwrap_or_else(|_| "root".into())
}

fn is_root() -> bool {
    user() == "root"
}

/// A kubespray that builds nothing.
fn playbooks(directory: &Path) {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundle");
    let requirements = fs::read_to_string(bundle.join("requirements.txt")).unwrap();
    write("requirements.txt", &requirements);
    write("cluster.yml", PLAYBOOK);
    write("reset.yml", "- {name: Nothing, hosts: all, tasks: []}\n");
    write(
        "roles/kubespray_defaults/vars/main/checksums.yml",
        "kubelet_checksums: {amd64: {1.34.3: sha256:0}}\n",
    );
}

/// The objects, with a secret in every place that takes one.
fn objects(stage: &Stage, port: u16, secrets: &BTreeMap<&'static str, String>) -> Value {
    let secret = |name: &str, data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": data,
        })
    };
    let of = |name: &str| secrets[name].clone();
    let key = fs::read_to_string(stage.outside().join("user")).unwrap();
    let document = serde_saphyr::to_string(&json!({"cluster_word": of("cluster")})).unwrap();
    let registry =
        json!({"auths": {"registry.example.com": {"auth": STANDARD.encode(of("pull"))}}});
    let mut pull = secret("pull", json!({".dockerconfigjson": registry.to_string()}));
    pull["type"] = json!("kubernetes.io/dockerconfigjson");
    let meta = |name: &str| json!({"name": name, "namespace": NAMESPACE});
    let reference = |name: &str, key: &str| json!({"secretKeyRef": {"name": name, "key": key}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        secret("ssh", json!({"ssh-privatekey": key})),
        secret("cluster-vars", json!({"vars.yml": document})),
        secret("node-vars", json!({"node_word": of("node")})),
        secret("creation-vars", json!({"creation_word": of("creation")})),
        secret("words", json!({"inner": of("inner"), "node": of("node-inner")})),
        pull,
        {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": meta("master-1"),
            "spec": {
                "type": "master", "extraVarsSecretRef": {"name": "node-vars"},
                "inventory": {
                    "ansible_host": "127.0.0.1", "ansible_port": port, "node_inner": reference("words", "node"),
                },
            },
        },
        {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": meta(CLUSTER),
            "spec": {
                "kubespray": {"version": "2.30.0", "source": {"path": stage.root.path().join("playbooks")}},
                "ssh": {"user": user(), "privateKeySecretRef": {"name": "ssh"}},
                "runner": {"imagePullSecrets": [{"name": "pull"}]},
                "nodes": {"all": {"deploy": {
                    "extraVarsSecretRef": {"name": "cluster-vars", "key": "vars.yml"},
                    "extraVars": {
                        "outside": stage.outside(), "plain_word": of("control"),
                        "inner": {"words": [reference("words", "inner")]},
                    },
                }}},
                "operations": {"creation": {"maxRetries": 0, "extraVarsSecretRef": {"name": "creation-vars"}}},
            },
        },
    ]})
}

/// The kubeconfig of an API server that is one as far as a connection goes.
#[expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is the test's own"
)]
fn kubeconfig(stage: &Stage, token: &str) {
    let listener = TcpListener::bind((own_address(), 0)).unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().for_each(drop));
    let here = Kubeconfig::read_from(stage.data("here").join("kubeconfig")).unwrap();
    let here = here.clusters.into_iter().next().unwrap().cluster.unwrap();
    let authority = here.certificate_authority_data.unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "admin",
        "clusters": [{
            "name": "first", "cluster": {"server": server, "certificate-authority-data": authority},
        }],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "admin", "context": {"cluster": "first", "user": "admin"}}],
    });
    fs::write(stage.outside().join("admin.conf"), config.to_string()).unwrap();
}

/// An address of this machine that is no loopback, where no cluster is: the one that it would reach others from.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent.
    socket
        .connect("198.51.100.1:9")
        .expect("this test needs a machine with a network");
    socket.local_addr().unwrap().ip()
}

async fn until<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The run, once it says the words.
async fn run_says(client: &Client, words: &str) -> api::Run {
    let runs = Api::<api::Run>::namespaced(client.clone(), NAMESPACE);
    until(words, || async {
        let runs = runs.list(&ListParams::default()).await.unwrap().items;
        let said = |run: &api::Run| serde_json::to_string(&run.status).unwrap();
        runs.into_iter().find(|run| said(run).contains(words))
    })
    .await
}

/// Everything that an API holds but Secrets, as it gives it.
async fn dump(client: &Client) -> String {
    let discovery = Discovery::new(client.clone()).run().await.unwrap();
    let mut all = String::new();
    for group in discovery.groups() {
        for (resource, _) in group.recommended_resources() {
            if resource.kind == "Secret" {
                continue;
            }
            let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
            if let Ok(list) = api.list(&ListParams::default()).await {
                all += &serde_json::to_string(&list.items).unwrap();
            }
        }
    }
    all
}

/// Makes a bundle, unpacks it where it is searched with all else, and shows the run again from it.
fn unpacked(stage: &Stage) {
    let bundle = stage.inside().join("run.tar.gz").display().to_string();
    let said = stage.says("here", &["bundle", "--to", &bundle]);
    assert!(said.contains("files of run"), "{said}");
    let again = stage.says("here", &["bundle", "--to", &bundle]);
    assert!(again.contains("is there already"), "{again}");
    let directory = stage.inside().join("unpacked");
    fs::create_dir(&directory).unwrap();
    let unpacked = Command::new("tar")
        .arg("-xzf")
        .arg(&bundle)
        .arg("-C")
        .arg(&directory)
        .status()
        .unwrap();
    assert!(unpacked.success());
    for name in ["run.json", "journal.jsonl", "events.jsonl", "vars.json"] {
        assert!(directory.join(name).exists(), "{name}");
    }
    let said = stage.says("there", &["replay", &bundle, "--records"]);
    for words in ["StepFailed", "TaskFailed", "the log where it failed"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let early = stage.says("there", &["replay", &bundle, "--at", "#2"]);
    assert!(!early.contains("TaskFailed"), "{early}");
    let bytes = fs::read(&bundle).unwrap();
    fs::write(&bundle, &bytes[..bytes.len() / 2]).unwrap();
    let cut = stage.says("there", &["replay", &bundle]);
    assert!(cut.contains("it was cut"), "{cut}");
}

/// The files with one of the canaries, and whether the control was in one.
fn search(roots: &[PathBuf], canaries: &Canaries, control: &[u8]) -> (Vec<String>, Vec<PathBuf>) {
    let mut found = Vec::new();
    let mut controls = Vec::new();
    let mut waiting = roots.to_vec();
    while let Some(path) = waiting.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| entry.path()),
            );
        } else if metadata.is_file() {
            let bytes = fs::read(&path).unwrap_or_default();
            let names = canaries.found_in(&bytes);
            found.extend(
                names
                    .iter()
                    .map(|name| format!("{name} in {}", path.display())),
            );
            if contains(&bytes, control) {
                controls.push(path);
            }
        }
    }
    (found, controls)
}

fn sandboxes() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    let path = cache.unwrap().join("windlass/sandboxes");
    fs::create_dir_all(&path).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_secret_is_found_in_its_secret_and_nowhere_else() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut stage = Stage {
        root: tempfile::tempdir().unwrap(),
        children: Vec::new(),
        said: Mutex::default(),
    };
    for directory in [stage.outside(), stage.inside(), stage.inside().join("tmp")] {
        fs::create_dir_all(directory).unwrap();
    }
    let port = sshd(&mut stage);
    playbooks(&stage.root.path().join("playbooks"));
    let places = [
        "cluster",
        "node",
        "inner",
        "node-inner",
        "creation",
        "pull",
        "kubeconfig",
        "control",
    ];
    let mut secrets: BTreeMap<&'static str, String> = places
        .into_iter()
        .map(|name| (name, canary(name)))
        .collect();
    // What a token may hold, and what is no template.
    for name in ["kubeconfig", "control"] {
        let plain = secrets[name].replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        secrets.insert(name, plain);
    }
    let token = secrets["kubeconfig"].clone();
    let objects = objects(&stage, port, &secrets);
    let file = stage.outside().join("objects.json");
    fs::write(&file, objects.to_string()).unwrap();
    let file = file.display().to_string();

    let control = needles(&secrets.remove("control").unwrap()).remove(0);
    let mut canaries = Canaries(
        secrets
            .iter()
            .map(|(name, text)| (*name, needles(text)))
            .collect(),
    );
    let key = fs::read_to_string(stage.outside().join("user")).unwrap();
    let line = key.lines().nth(2).unwrap().as_bytes().to_vec();
    canaries.0.insert("ssh key", vec![line]);
    let canaries = Arc::new(canaries);
    let watch = Watch::start(Arc::clone(&canaries), stage.inside());

    let sandboxes = sandboxes();
    stage.up("here", &sandboxes);
    stage.up("there", &sandboxes);
    kubeconfig(&stage, &token);
    let here = stage.client("here").await;
    let said = stage.says("here", &["plan", "--output", "yaml", "--filename", &file]);
    assert!(said.contains("secretKeyRef"), "{said}");
    let said = stage.says("here", &["apply", "--filename", &file]);
    assert!(!said.contains("refused"), "{said}");
    stage.says("here", &["apply", "--dry-run", "--filename", &file]);

    // Create, and fail.
    let run = run_says(&here, "\"phase\":\"Failed\"").await;
    let failure = run.status.unwrap().failure.unwrap();
    assert!(failure.message.contains(ansible::mask::MASK), "{failure:?}");
    let proof: Vec<String> =
        serde_json::from_slice(&fs::read(stage.outside().join("proof")).unwrap()).unwrap();
    let expected =
        ["cluster", "node", "inner", "node-inner", "creation"].map(|name| &secrets[name]);
    assert_eq!(proof.iter().collect::<Vec<_>>(), expected);
    let log = stage.says("here", &["logs"]);
    assert!(log.contains(ansible::mask::MASK), "{log}");
    for command in [["status", "--output", "yaml"], ["get", "--output", "yaml"]] {
        stage.says("here", &command);
    }
    let said = stage.says("here", &["explain", "failure"]);
    assert!(said.contains("code: TaskFailed"), "{said}");
    assert!(said.contains("TASK [Fail with"), "{said}");
    assert!(said.contains(ansible::mask::MASK), "{said}");
    unpacked(&stage);
    stage.says("here", &["converge", "--dry-run"]);
    let mut dumps = dump(&here).await;
    assert!(
        contains(dumps.as_bytes(), &control),
        "the search finds nothing"
    );

    // Move, and go on there.
    let there_config = stage.data("there").join("kubeconfig").display().to_string();
    let said = stage.says("here", &["move", "--to-kubeconfig", &there_config]);
    let there = stage.client("there").await;
    fs::write(stage.outside().join("well"), "").unwrap();
    stage.says("there", &["retry"]);
    let stored = Api::<Secret>::namespaced(there.clone(), NAMESPACE);
    let name = format!("{CLUSTER}-kubeconfig");
    until(&format!("the kubeconfig; {said}"), || async {
        stored.get_opt(&name).await.unwrap()
    })
    .await;
    let vars = stored.get("node-vars").await.unwrap().data.unwrap();
    assert_eq!(vars["node_word"].0, secrets["node"].as_bytes());
    // Who looks ahead sees the plan, whose Secrets are there by now, and none of what they hold.
    for options in [
        &["--output", "yaml"][..],
        &["--output", "json", "--filename", &file],
        &[],
    ] {
        let said = stage.says("there", &[&["plan", "--live"], options].concat());
        assert!(said.contains(CLUSTER), "{said}");
    }
    stage.says("there", &["logs"]);
    dumps += &dump(&there).await;

    // Delete.
    let clusters = Api::<api::Cluster>::namespaced(there.clone(), NAMESPACE);
    clusters
        .delete(CLUSTER, &DeleteParams::default())
        .await
        .unwrap();
    until("the cluster to be gone", || async {
        clusters
            .get_opt(CLUSTER)
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
    dumps += &dump(&there).await;
    dumps += &dump(&here).await;

    let (in_processes, playbooks) = watch.end();
    assert!(playbooks > 0, "no playbook was seen at work");
    assert_eq!(in_processes, [""; 0]);
    let said = stage.said.lock().unwrap().join("\n");
    assert_eq!(canaries.found_in(said.as_bytes()), [""; 0], "{said}");
    assert_eq!(canaries.found_in(dumps.as_bytes()), [""; 0], "{dumps}");
    // In memory nothing is left, whoever's it is: no other file there has these texts either.
    let roots = [
        stage.inside(),
        "/dev/shm".into(),
        std::env::temp_dir().join("windlass-0"),
    ];
    let (found, controls) = search(&roots, &canaries, &control);
    assert_eq!(found, [""; 0]);
    let database = controls
        .iter()
        .any(|path| path.display().to_string().contains("state.db"));
    assert!(
        database,
        "the search does not see into the database: {controls:?}"
    );
}
