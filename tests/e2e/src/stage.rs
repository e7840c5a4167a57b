//! Hosts of a lab, and a `windlass up` that reaches them.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, ErrorKind},
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use lab::{Host, Kubernetes, Lab, LabOptions, Progress, base::Base, command::output, programs};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{Kubespray, Management};

/// The namespace that the stage's objects are in.
pub const NAMESPACE: &str = "first-cluster";

/// How the stage is set.
#[derive(Clone, Debug)]
pub struct Options {
    /// Hosts that answer.
    pub hosts: u8,
    /// Hosts that swallow every packet.
    pub dead: u8,
    /// The `windlass` program.
    pub windlass: PathBuf,
    /// Where `windlass up` starts: relative paths in objects begin there.
    pub directory: PathBuf,
    /// The playbooks that the objects name.
    pub playbooks: PathBuf,
}

/// The versions of Kubernetes that hosts have at hand, where they have two.
#[derive(Clone, Debug)]
pub struct Versions {
    /// What clusters begin with.
    pub oldest: String,
    /// What they are upgraded to.
    pub newest: String,
}

/// Hosts of a lab, and a `windlass up` that reaches them. All of it ends with the value, and with its process.
#[derive(Debug)]
pub struct Stage {
    /// The hosts.
    pub lab: Arc<Lab>,
    options: Options,
    kubespray: Option<Kubespray>,
    versions: Option<Versions>,
    mirror: Option<Child>,
    up: Option<Child>,
    kubectl: PathBuf,
}

impl Stage {
    /// Boots the hosts; Windlass is not started yet.
    ///
    /// # Errors
    ///
    /// What the hosts need cannot be made, or they do not boot.
    pub fn set(options: Options, progress: &dyn Progress) -> anyhow::Result<Self> {
        let wanted = LabOptions {
            hosts: options.hosts,
            dead: options.dead,
            ..LabOptions::default()
        };
        let wanted = wanted.with_kubernetes(progress)?;
        Self::build(options, &wanted, progress)
    }

    /// [`Stage::set`] on hosts that have the images, and none of the programs: they are to fetch them.
    ///
    /// # Errors
    ///
    /// What the hosts need cannot be made, or they do not boot.
    pub fn set_without_programs(options: Options, progress: &dyn Progress) -> anyhow::Result<Self> {
        let wanted = LabOptions {
            hosts: options.hosts,
            dead: options.dead,
            ..LabOptions::default()
        };
        let wanted = LabOptions {
            programs: None,
            ..wanted.with_kubernetes(progress)?
        };
        Self::build(options, &wanted, progress)
    }

    /// [`Stage::set_with`] on hosts that can have an older version of Kubernetes too, which clusters begin with.
    ///
    /// # Errors
    ///
    /// What the hosts need cannot be made, or they do not boot; nobody said which versions real kubespray finds.
    pub fn set_with_older(
        options: Options,
        older: Kubernetes,
        kubespray: Option<Kubespray>,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        if let Some(kubespray) = kubespray {
            let versions = kubespray.versions.clone().context(
                "WINDLASS_KUBESPRAY_VERSIONS: name two versions of Kubernetes that the mirror has, as in 1.33.13,1.34.4",
            )?;
            let mut stage = Self::set_for_kubespray(options, kubespray, progress)?;
            stage.versions = Some(versions);
            return Ok(stage);
        }
        let wanted = LabOptions {
            hosts: options.hosts,
            dead: options.dead,
            ..LabOptions::default()
        };
        let wanted = wanted.with_kubernetes(progress)?;
        let wanted = wanted.with_older_kubernetes(older, progress)?;
        let mut stage = Self::build(options, &wanted, progress)?;
        stage.versions = Some(Versions {
            oldest: older.version()?,
            newest: Kubernetes::Newest.version()?,
        });
        Ok(stage)
    }

    /// [`Stage::set`], or [`Stage::set_for_kubespray`] where there is one.
    ///
    /// # Errors
    ///
    /// What the hosts need cannot be made, or they do not boot.
    pub fn set_with(
        options: Options,
        kubespray: Option<Kubespray>,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        match kubespray {
            Some(kubespray) => Self::set_for_kubespray(options, kubespray, progress),
            None => Self::set(options, progress),
        }
    }

    /// Boots hosts that have nothing of Kubernetes, for real kubespray, and serves to them what it downloads.
    ///
    /// # Errors
    ///
    /// What the hosts need cannot be made, or they do not boot.
    pub fn set_for_kubespray(
        mut options: Options,
        kubespray: Kubespray,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        options.playbooks.clone_from(&kubespray.checkout);
        let wanted = LabOptions {
            hosts: options.hosts,
            dead: options.dead,
            base: Base::Bare,
            ..LabOptions::default()
        };
        let mut stage = Self::build(options, &wanted, progress)?;
        if let Some(directory) = &kubespray.mirror {
            stage.mirror = Some(stage.serve(&kubespray.server, directory)?);
        }
        stage.kubespray = Some(kubespray);
        Ok(stage)
    }

    /// The hosts beside a management cluster, by the Windlass that works there: objects are those of that cluster, and its Windlass raises
    /// clusters on the hosts.
    ///
    /// # Errors
    ///
    /// What the playbooks need cannot be made.
    pub fn beside(
        management: &Management,
        options: Options,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        let sandboxes = sandboxes(&options, progress)?;
        let stage = Self {
            lab: Arc::clone(&management.node.lab),
            options,
            kubespray: None,
            versions: None,
            mirror: None,
            up: None,
            kubectl: management.node.programs().join("kubectl"),
        };
        let data = stage.data();
        let shared = data.join("sandboxes");
        match fs::remove_dir(&shared) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).context("failed to share the sandboxes");
            }
            _ => {}
        }
        symlink(sandboxes, shared).context("failed to share the sandboxes")?;
        let kubeconfig = data.join("kubeconfig");
        fs::copy(management.node.kubeconfig(), kubeconfig)
            .context("failed to copy the kubeconfig")?;
        Ok(stage)
    }

    fn build(
        options: Options,
        wanted: &LabOptions,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        let kubectl = programs::ensure(progress)?.dir.join("kubectl");
        let sandboxes = sandboxes(&options, progress)?;
        let lab = Arc::new(Lab::start(wanted, progress)?);
        let stage = Self {
            lab,
            options,
            kubespray: None,
            versions: None,
            mirror: None,
            up: None,
            kubectl,
        };
        let data = stage.data();
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&data)
            .context("failed to make the data directory")?;
        symlink(sandboxes, data.join("sandboxes")).context("failed to share the sandboxes")?;
        Ok(stage)
    }

    /// Serves a directory on port 80 of the lab's gateway; kubespray's clients fall back to plain HTTP nowhere else.
    fn serve(&self, server: &Path, directory: &Path) -> anyhow::Result<Child> {
        let mut command = Command::new(server);
        command
            .arg(directory)
            .arg(format!("{}:80", self.lab.gateway()));
        let mut child = self
            .lab
            .enter(&command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("failed to start the mirror")?;
        let output = child.stdout.take().context("the mirror has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line.starts_with("listening"), "the mirror does not serve");
        Ok(child)
    }

    /// The files of an example with further objects, and with what [`Stage::choose`] has for its Cluster.
    ///
    /// # Errors
    ///
    /// The files cannot be read, or the changed ones not be written.
    pub fn example(&self, example: &Path, further: &[Value]) -> anyhow::Result<PathBuf> {
        if self.kubespray.is_none() && self.versions.is_none() && further.is_empty() {
            return Ok(example.to_owned());
        }
        let mut items = Vec::new();
        for name in ["cluster.yaml", "nodes.yaml"] {
            let text =
                fs::read_to_string(example.join(name)).context("failed to read an example")?;
            items.extend(serde_saphyr::from_multiple::<Value>(&text)?);
        }
        items.extend_from_slice(further);
        let nodes = items.iter().filter(|item| item["kind"] == "ClusterNode");
        let nodes = nodes.count();
        for item in items.iter_mut().filter(|item| item["kind"] == "Cluster") {
            // It waits for all of them: a run that a later one supersedes would only lose time.
            item["spec"]["operations"]["creation"]["startConditions"]["nodes"]["minimum"] =
                json!(nodes);
            self.choose(&mut item["spec"]);
        }
        let file = self.lab.dir().join("example.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        fs::write(&file, serde_json::to_vec(&list)?).context("failed to write the example")?;
        Ok(file)
    }

    /// Makes a Cluster's spec use real kubespray, where the stage has it; or the oldest version of Kubernetes, where the hosts
    /// have it at hand.
    pub fn choose(&self, spec: &mut Value) {
        if let Some(kubespray) = &self.kubespray {
            kubespray.choose(spec, self.lab.gateway());
        }
        if let Some(Versions { oldest, newest }) = &self.versions {
            spec["kubernetesVersion"] = json!(oldest);
            if self.kubespray.is_none() {
                // The programs of the version that the bundle installs.
                spec["nodes"]["all"]["deploy"]["extraVars"]["windlass_files_dir"] = json!(format!(
                    "/opt/windlass{{{{ '' if kube_version == '{newest}' else '/older' }}}}"
                ));
            }
        }
    }

    /// The versions of Kubernetes of [`Stage::set_with_older`].
    pub fn versions(&self) -> Option<&Versions> {
        self.versions.as_ref()
    }

    /// Whether an unmodified kubespray raises clusters here.
    pub const fn is_of_kubespray(&self) -> bool {
        self.kubespray.is_some()
    }

    /// The playbooks that raise clusters here.
    pub fn playbooks(&self) -> &Path {
        &self.options.playbooks
    }

    /// The hosts that clusters are raised on: of those beside a management cluster, all but the first.
    pub fn hosts(&self) -> &[Host] {
        let hosts = self.lab.hosts();
        let first = hosts
            .len()
            .saturating_sub(usize::from(self.options.hosts + self.options.dead));
        hosts.get(first..).unwrap_or_default()
    }

    /// How long raising a cluster may take here; a loaded machine takes much longer than an idle one.
    pub fn patience(&self) -> Duration {
        match self.kubespray {
            Some(_) => Duration::from_mins(40),
            None => Duration::from_mins(12),
        }
    }

    /// Starts `windlass up` and waits until its API answers.
    ///
    /// # Errors
    ///
    /// It ends, or does not answer within half a minute; the error shows the end of its log.
    pub fn up(&mut self) -> anyhow::Result<()> {
        self.up_with(&[])
    }

    /// The same with more arguments.
    ///
    /// # Errors
    ///
    /// As [`Stage::up`].
    pub fn up_with(&mut self, more: &[&str]) -> anyhow::Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .context("failed to open the log")?;
        let mut command = self.windlass(&["up"]);
        command
            .args(more)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.up = Some(command.spawn().context("failed to start windlass up")?);
        wait_until("the API to answer", Duration::from_secs(30), || {
            if let Some(status) = self.up.as_mut().and_then(|up| up.try_wait().ok().flatten()) {
                bail!("windlass up ended ({status}):\n{}", self.log_tail());
            }
            let answered = self.kubectl(&["get", "--raw", "/readyz"]).output()?;
            Ok(answered.status.success().then_some(()))
        })
        .with_context(|| format!("the end of its log:\n{}", self.log_tail()))
    }

    /// Kills `windlass up`, and waits for its end. The runner that it started goes on.
    ///
    /// # Errors
    ///
    /// It does not run, or cannot be ended.
    pub fn down(&mut self) -> anyhow::Result<()> {
        let mut up = self.up.take().context("windlass up does not run")?;
        let inner = Lab::inner(&up).context("windlass up has no process")?;
        kill(Pid::from_raw(inner.try_into()?), Signal::SIGKILL)
            .context("failed to kill windlass up")?;
        up.wait().context("failed to wait for windlass up")?;
        Ok(())
    }

    /// Ends one process of the stage by its number inside the lab at once, such as a runner's in `Run.status.runner`.
    ///
    /// # Errors
    ///
    /// There is no such process.
    pub fn kill_inside(&self, pid: i64) -> anyhow::Result<()> {
        let mut command = Command::new("kill");
        command.args(["-KILL", &pid.to_string()]);
        output(&mut self.lab.enter(&command))?;
        Ok(())
    }

    /// The process of the playbook of a run that was started last, by its number inside the lab.
    ///
    /// # Errors
    ///
    /// None was started, or its record cannot be read.
    pub fn playbook(&self, run: &str) -> anyhow::Result<i64> {
        let work = self
            .data()
            .join("runs")
            .join(NAMESPACE)
            .join(run)
            .join("work");
        let mut records = Vec::new();
        for entry in fs::read_dir(&work)? {
            let record = entry?.path().join("process.json");
            if let Ok(metadata) = record.metadata() {
                records.push((metadata.modified()?, record));
            }
        }
        let (_, newest) = records
            .into_iter()
            .max()
            .context("no playbook was started")?;
        let record: Value = serde_json::from_slice(&fs::read(newest)?)?;
        record["pid"].as_i64().context("the record has no process")
    }

    /// Applies an example as it is in the repository.
    ///
    /// # Errors
    ///
    /// An object is refused.
    pub fn apply_example(&self, example: &Path) -> anyhow::Result<()> {
        self.apply_files(&self.example(example, &[])?)
    }

    /// Applies the files of [`Stage::example`], after their namespace and the ssh key of the lab as a Secret.
    ///
    /// # Errors
    ///
    /// An object is refused.
    pub fn apply_files(&self, files: &Path) -> anyhow::Result<()> {
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            self.secret()?,
        ]});
        self.apply(&objects)?;
        let mut command = self.windlass(&["apply", "--filename"]);
        output(command.arg(files))?;
        Ok(())
    }

    /// The lab's ssh key as a Secret.
    ///
    /// # Errors
    ///
    /// The key cannot be read.
    pub fn secret(&self) -> anyhow::Result<Value> {
        let key = fs::read(self.lab.key_path()).context("failed to read the lab's key")?;
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth",
            "metadata": {"name": "ssh", "namespace": NAMESPACE},
            "data": {"ssh-privatekey": STANDARD.encode(key)},
        }))
    }

    /// Applies objects by `windlass apply`.
    ///
    /// # Errors
    ///
    /// An object is refused.
    pub fn apply(&self, objects: &Value) -> anyhow::Result<()> {
        // A file that only its owner reads: objects may hold keys, which have no place in arguments.
        let file = self.lab.dir().join("objects.json");
        fs::write(&file, serde_json::to_vec(objects)?).context("failed to write the objects")?;
        let applied = output(self.windlass(&["apply", "--filename"]).arg(&file));
        fs::remove_file(&file).context("failed to remove the objects")?;
        applied.map(|_| ())
    }

    /// Runs a command of windlass, which must print the words.
    ///
    /// # Errors
    ///
    /// The command fails, or prints other words.
    pub fn says(&self, arguments: &[&str], words: &str) -> anyhow::Result<()> {
        let said = output(&mut self.windlass(arguments))?;
        anyhow::ensure!(
            said.contains(words),
            "{arguments:?} does not say {words:?}: {said}"
        );
        Ok(())
    }

    /// `windlass` with the stage's data directory and namespace, inside the lab.
    pub fn windlass(&self, arguments: &[&str]) -> Command {
        self.windlass_in(NAMESPACE, arguments)
    }

    /// The same for another namespace.
    pub fn windlass_in(&self, namespace: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.options.windlass);
        command
            .arg("--data-dir")
            .arg(self.data())
            .args(["--namespace", namespace])
            .args(arguments);
        command.current_dir(&self.options.directory);
        self.lab.enter(&command)
    }

    /// `kubectl` of the embedded API, inside the lab.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        self.kubectl_by(&self.data().join("kubeconfig"), arguments)
    }

    /// `kubectl` by another kubeconfig, inside the lab.
    pub fn kubectl_by(&self, kubeconfig: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(arguments)
            .current_dir(&self.options.directory);
        // Discovery that an earlier server left in the home directory would be wrong here.
        command.env("KUBECACHEDIR", self.lab.dir().join("kubectl-cache"));
        self.lab.enter(&command)
    }

    /// One object of the embedded API.
    ///
    /// # Errors
    ///
    /// It is not there, or the API does not answer.
    pub fn object(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        let arguments = [
            "get",
            kind,
            name,
            "--namespace",
            NAMESPACE,
            "--output",
            "json",
        ];
        serde_json::from_str(&output(&mut self.kubectl(&arguments))?)
            .context("kubectl printed no JSON")
    }

    /// All objects of a kind of the stage's namespace.
    ///
    /// # Errors
    ///
    /// The API does not answer.
    pub fn objects(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let arguments = ["get", kind, "--namespace", NAMESPACE, "--output", "json"];
        let list: Value = serde_json::from_str(&output(&mut self.kubectl(&arguments))?)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The Windlass data directory.
    pub fn data(&self) -> PathBuf {
        self.lab.dir().join("windlass")
    }

    /// What `windlass up` wrote.
    pub fn log(&self) -> PathBuf {
        self.lab.dir().join("up.log")
    }

    /// The last lines of what `windlass up` wrote.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.up.is_some()
            && let Err(error) = self.down()
        {
            eprintln!("failed to end windlass up: {error:#}");
        }
        if let Some(mirror) = &mut self.mirror
            && let Err(error) = mirror.kill().and_then(|()| mirror.wait())
        {
            eprintln!("failed to end the mirror: {error}");
        }
        // The lab is the owner of everything else and ends with its own value.
    }
}

/// The Python environments of the stage's playbooks, in the cache: hosts of a lab and what runs among them reach no package
/// registry.
fn sandboxes(options: &Options, progress: &dyn Progress) -> anyhow::Result<PathBuf> {
    let shared = lab::cache::dir().join("stage");
    progress.begin(
        "Python environment with Ansible",
        "about 15 s and 300 MB the first time",
    );
    let mut command = Command::new(&options.windlass);
    command
        .arg("--data-dir")
        .arg(&shared)
        .arg("sandbox")
        .arg(&options.playbooks);
    output(&mut command)?;
    progress.end();
    Ok(shared.join("sandboxes"))
}

/// Asks again and again until there is an answer.
///
/// # Errors
///
/// There was none within the limit, or asking failed for good.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    // Most questions are a kubectl, and one that is started five times a second takes a third of a processor from what is waited for.
    let mut pause = Duration::from_millis(100);
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        ensure!(
            started.elapsed() < limit,
            "waited {} s for {what}",
            limit.as_secs()
        );
        thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(500));
    }
}
