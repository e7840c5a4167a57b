//! `windlass mirror` from a release to hosts that could be told to ask: the bundle's role, a real Ansible, servers on loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");

struct Stage {
    home: TempDir,
    servers: Vec<Child>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Stage {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| env::home_dir().map(|home| home.join(".cache")));
        let sandboxes = cache.unwrap().join("windlass/sandboxes");
        fs::create_dir_all(&sandboxes).unwrap();
        let data = home.path().join("data");
        fs::create_dir(&data).unwrap();
        symlink(sandboxes, data.join("sandboxes")).unwrap();
        Self {
            home,
            servers: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.arg("--data-dir").arg(self.path("data"));
        command
    }

    fn mirror(&self, arguments: &[&str]) -> Output {
        self.command()
            .arg("mirror")
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Serves a directory; gives its address.
    fn serve(&mut self, directory: &Path) -> String {
        let mut server = self
            .command()
            .args(["mirror", "serve", "--address", "127.0.0.1:0"])
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let told = server.stdout.take().unwrap();
        BufReader::new(told).read_line(&mut line).unwrap();
        self.servers.push(server);
        line.rsplit_once("http://").unwrap().1.trim().to_owned()
    }
}

/// Standard output, of what went well.
fn good(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Both outputs, of what failed.
fn bad(output: &Output) -> String {
    assert!(!output.status.success());
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn a_release_is_mirrored_and_a_file_that_is_missing_stops_the_plan() {
    let mut stage = Stage::new();
    // The site that the release names.
    let site = stage.path("site");
    fs::create_dir_all(site.join("files/v1")).unwrap();
    fs::write(site.join("files/v1/program"), "a program").unwrap();
    let up = stage.serve(&site);
    let downloads = format!(
        "{{program: {{enabled: true, file: true, groups: [k8s_cluster], url: \"{{{{ site_url | default('http://{up}') }}}}/v1/program\", \
         checksum: \"sha256:{{{{ 'a program' | hash('sha256') }}}}\"}}}}"
    );
    let of_release = [
        "--release",
        BUNDLE,
        "--var",
        &format!("downloads={downloads}"),
    ];
    let mirror = stage.path("mirror");
    let to = mirror.to_str().unwrap();

    let plan = stage.mirror(&[&["plan", "-o", "json", "--to", to][..], &of_release].concat());
    let plan: Value = serde_json::from_str(&good(plan)).unwrap();
    assert_eq!(plan["files"][0]["place"], format!("{up}/v1/program"));
    assert_eq!(plan["files"][0]["there"], false);
    let fetch = |stage: &Stage| stage.mirror(&[&["fetch", "--to", to][..], &of_release].concat());
    assert!(good(fetch(&stage)).starts_with("fetched   http://"));
    assert!(good(fetch(&stage)).starts_with("kept      http://"));
    let check = [&["check", "--to", to][..], &of_release].concat();
    assert!(good(stage.mirror(&check)).contains("all 1 files and images are there"));

    // A Cluster whose hosts are told to ask the mirror.
    let served = stage.serve(&mirror);
    let objects = stage.path("objects.yaml");
    let cluster = format!(
        "apiVersion: kubespray.k8s.io/v1\nkind: Cluster\nmetadata: {{name: gapped}}\nspec:\n  \
         kubespray: {{version: 2.30.0, source: {{path: {BUNDLE}}}, mirror: {{check: BeforeRuns}}}}\n  \
         nodes: {{all: {{deploy: {{extraVars: {{files_repo: 'http://{served}', site_url: '{{{{ files_repo }}}}/{up}', downloads: {downloads}}}}}}}}}\n\
         ---\napiVersion: kubespray.k8s.io/v1\nkind: ClusterNode\nmetadata: {{name: plane}}\n\
         spec: {{type: master, inventory: {{ansible_host: 192.0.2.1}}}}\n"
    );
    fs::write(&objects, cluster).unwrap();
    let objects = objects.to_str().unwrap();
    let plan_with = |stage: &Stage, more: &[&str]| {
        let mut plan = stage.command();
        plan.args(["plan", "-f", objects]).args(more);
        plan.output().unwrap()
    };
    let plan = |stage: &Stage| plan_with(stage, &["--check-mirror"]);
    let check = |stage: &Stage| stage.mirror(&["check", "-f", objects]);
    assert!(good(check(&stage)).contains("all 1 files and images are there"));
    assert!(good(plan(&stage)).contains("prepare/sandbox"));
    fs::remove_file(mirror.join("files").join(&up).join("v1/program")).unwrap();
    let missing = format!("http://{served}/{up}/v1/program: it is not there");
    assert!(bad(&check(&stage)).contains(&missing));
    let refused = bad(&plan(&stage));
    assert!(
        refused.contains("MirrorIncomplete") && refused.contains(&missing),
        "{refused}"
    );
    // Templates are evaluated for it, so nobody looks who was not told to.
    assert!(good(plan_with(&stage, &[])).contains("prepare/sandbox"));
    // It is brought again from where it is, not from where hosts ask.
    good(stage.mirror(&["fetch", "-f", objects, "--to", to]));
    good(plan(&stage));
}

/// A host that breaks off must not end what serves all others.
#[test]
fn serving_outlives_who_breaks_off() {
    let mut stage = Stage::new();
    let site = stage.path("site");
    fs::create_dir_all(site.join("files/h")).unwrap();
    fs::write(site.join("files/h/large"), vec![7; 16 << 20]).unwrap();
    let at = stage.serve(&site);
    let ask = || {
        let mut stream = TcpStream::connect(&at).unwrap();
        let request = "GET /h/large HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    for _ in 0..5 {
        // What has come and was not read makes the end of it a reset.
        ask().read_exact(&mut [0; 100]).unwrap();
        let mut whole = Vec::new();
        ask().read_to_end(&mut whole).unwrap();
        assert!(whole.len() > 16 << 20, "{}", whole.len());
    }
}

#[test]
fn what_cannot_be_evaluated_or_mirrored_is_named() {
    let stage = Stage::new();
    let entry = |url: &str, checksum: &str| {
        format!(
            "downloads={{x: {{enabled: true, file: true, groups: [etcd], url: \"{url}\", checksum: \"{checksum}\"}}}}"
        )
    };
    for (variable, words) in [
        (
            entry("{{ file_repo }}/x", ""),
            "the variable file_repo is defined nowhere",
        ),
        (
            entry("https://h.example/../../x", ""),
            "x: \"https://h.example/../../x\" is no address of a file",
        ),
        (
            entry("https://h.example/x", "built-from-source"),
            "\"built-from-source\" is no checksum",
        ),
    ] {
        let told = bad(&stage.mirror(&["plan", "--release", BUNDLE, "--var", &variable]));
        assert!(told.contains(words), "{told}");
    }
    let told = bad(&stage.mirror(&["plan", "--release", BUNDLE, "--architecture", "vax"]));
    assert!(told.contains("it is amd64, arm64 or ppc64le"), "{told}");
    let told = bad(&stage.mirror(&["serve", "/nowhere/at/all"]));
    assert!(told.contains("/nowhere/at/all is no mirror"), "{told}");
    let version = |version: &str| {
        let entry = "downloads={x: {enabled: true, file: true, groups: [etcd], url: \"http://h.example/{{ kube_version }}\"}}";
        let version = format!("kube_version={version}");
        let variables = ["--var", entry, "--var", &version];
        good(stage.mirror(&[&["plan", "--release", BUNDLE][..], &variables].concat()))
    };
    let told = version("1.33.13");
    assert!(told.contains("h.example/1.33.13 "), "{told}");
    assert!(told.contains("1 file and 0 images"), "{told}");
    let told = good(stage.mirror(&["plan", "--release", BUNDLE]));
    assert!(
        told.contains("0 files and 0 images") && told.contains("kubelet"),
        "{told}"
    );
}
