//! What others test every Magnum by: OpenStack's own tests, and those of the Go library that most clients outside of OpenStack use.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{go, module::module, numbers, openstack::OpenStack};
use crate::{Progress, cache, command, pip};

/// Tempest and Magnum's tests for it, as they were released; a script of ours configures and runs them.
#[derive(Clone, Debug)]
pub struct Tempest {
    openstack: OpenStack,
    packages: PathBuf,
}

impl Tempest {
    /// Installs them where the cache does not have these versions.
    ///
    /// # Errors
    ///
    /// A package cannot be had.
    pub fn ensure(progress: &dyn Progress) -> Result<Self> {
        let openstack = OpenStack::ensure(progress)?;
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("openstack/tempest.txt");
        let requirements = fs::read(&list).context("read the list of packages")?;
        let python = command::output(Command::new("python3").arg("--version"))?;
        let key = cache::key([requirements.as_slice(), python.as_bytes()]);
        let packages = cache::ensure("tempest", &key, |target| {
            progress.begin(
                "OpenStack's tests of Magnum",
                "Python packages, 15 MB to fetch, 60 MB kept",
            );
            pip::run(target, |pip| {
                pip.args(["install", "--quiet", "--no-deps", "--requirement"])
                    .arg(&list)
                    .arg("--target")
                    .arg(target.join("site"));
            })
            .context("install OpenStack's tests of Magnum")?;
            progress.end();
            Ok(())
        })?;
        Ok(Self {
            openstack,
            packages: packages.join("site"),
        })
    }

    /// Python with the script that runs them: against the Magnum in the catalogue of a Keystone, whose administrator's password the
    /// environment has. What they write goes to a directory.
    ///
    /// # Errors
    ///
    /// The cache is in a directory whose name cannot be part of a path list.
    pub fn script(&self, directory: &Path, keystone: &str) -> Result<Command> {
        let mut python = self.openstack.script("acceptance.py");
        let all = [self.packages.as_path(), self.openstack.packages()];
        let path = env::join_paths(all).context("name the packages")?;
        python.env("PYTHONPATH", path).arg(directory).arg(keystone);
        Ok(python)
    }
}

/// The version of gophercloud whose tests are run.
const GOPHERCLOUD: (&str, &str) = ("github.com/gophercloud/gophercloud/v2", "v2.14.0");
/// What it is written for.
const OLDEST_GO: &str = "1.25";
/// What is left out of them: that their CI skips what needs a cloud that raises clusters, and that the API of clusters has neither a
/// floating address nor a load balancer. Heat takes that of a server then; Cluster API has none to give, so it is refused here.
const LEFT_OUT: [&str; 2] = [
    "t.Skip(\"Failure to deploy cluster in CI\")",
    "FloatingIPEnabled:   &boolFalse,",
];
/// Where its tests of Magnum are.
const TESTS: &str = "internal/acceptance/openstack/containerinfra/v1";

/// `go test` of what gophercloud's authors test a Magnum by, in a copy at `directory` without a few
/// lines.
///
/// # Errors
///
/// The module cannot be had or copied.
pub fn gophercloud(directory: &Path, progress: &dyn Progress) -> Result<Command> {
    let (name, version) = GOPHERCLOUD;
    let module = module(name, version, progress)?;
    let mut copy = Command::new("cp");
    copy.args(["-r", "--no-preserve=mode"])
        .arg(&module)
        .arg(directory);
    command::output(&mut copy).context("copy gophercloud")?;
    for test in fs::read_dir(directory.join(TESTS)).context("list gophercloud's tests")? {
        let test = test.context("list gophercloud's tests")?.path();
        let text = fs::read_to_string(&test).context("read a test")?;
        let is_kept = |line: &&str| {
            let mut begins = LEFT_OUT.iter();
            !begins.any(|begin| line.trim_start().starts_with(begin))
        };
        let kept = text.lines().filter(is_kept);
        let kept: Vec<_> = kept.collect();
        fs::write(&test, kept.join("\n")).context("write a test")?;
    }
    let mut go = Command::new(go(&numbers(OLDEST_GO), progress)?);
    go.current_dir(directory)
        .args([
            "test",
            "-json",
            "-count=1",
            "-timeout=20m",
            "-tags=containerinfra",
        ])
        .arg(format!("./{TESTS}/..."))
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off");
    Ok(go)
}
