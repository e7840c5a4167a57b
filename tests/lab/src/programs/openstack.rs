//! Keystone and the clients of OpenStack, from Python packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Progress, cache, command, pip};

/// Keystone, `openstack` and what they need, as they were released; scripts of ours that make and serve one.
#[derive(Clone, Debug)]
pub struct OpenStack {
    packages: PathBuf,
    scripts: PathBuf,
}

impl OpenStack {
    /// Installs them where the cache does not have these versions. They are packages in a directory, without programs: those
    /// would name the place where they were made.
    ///
    /// # Errors
    ///
    /// A package cannot be had.
    pub fn ensure(progress: &dyn Progress) -> Result<Self> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("openstack");
        let list = scripts.join("requirements.txt");
        let requirements = fs::read(&list).context("read the list of packages")?;
        // Some of them are compiled for one version of Python.
        let python = command::output(Command::new("python3").arg("--version"))?;
        let key = cache::key([requirements.as_slice(), python.as_bytes()]);
        let packages = cache::ensure("openstack", &key, |target| {
            progress.begin(
                "Keystone and OpenStack's clients",
                "Python packages, 60 MB to fetch, 250 MB kept",
            );
            pip::run(target, |pip| {
                pip.args(["install", "--quiet", "--no-deps", "--requirement"])
                    .arg(&list)
                    .arg("--target")
                    .arg(target.join("site"));
            })
            .context("install Keystone and OpenStack's clients")?;
            progress.end();
            Ok(())
        })?;
        Ok(Self {
            packages: packages.join("site"),
            scripts,
        })
    }

    /// Where they are.
    pub(crate) fn packages(&self) -> &Path {
        &self.packages
    }

    /// Python with these packages, and with nothing of the environment that OpenStack's programs would read.
    pub fn python(&self) -> Command {
        let mut python = Command::new("python3");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("OS_") {
                python.env_remove(name);
            }
        }
        python
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONWARNINGS", "ignore");
        python
    }

    /// Python with one of our scripts.
    pub fn script(&self, name: &str) -> Command {
        let mut python = self.python();
        python.arg(self.scripts.join(name));
        python
    }
}

/// kolla-ansible as it was released, without what it needs to run: its plug-ins are read.
///
/// # Errors
///
/// The package cannot be had.
pub fn kolla_ansible(progress: &dyn Progress) -> Result<PathBuf> {
    package("kolla-ansible", KOLLA_ANSIBLE, progress)
}

/// Kolla as it was released, in the same way: the directory with what its images are made of.
///
/// # Errors
///
/// The package cannot be had.
pub fn kolla(progress: &dyn Progress) -> Result<PathBuf> {
    Ok(package("kolla", KOLLA, progress)?.join("site/kolla"))
}

/// A package alone.
fn package(name: &str, requirement: &str, progress: &dyn Progress) -> Result<PathBuf> {
    let key = cache::key([requirement.as_bytes()]);
    cache::ensure(name, &key, |target| {
        progress.begin(name, "a Python package, 2 MB at most");
        pip::run(target, |pip| {
            pip.args(["install", "--quiet", "--no-deps", "--only-binary=:all:"])
                .arg(requirement)
                .arg("--target")
                .arg(target.join("site"));
        })
        .with_context(|| format!("install {name}"))?;
        progress.end();
        Ok(())
    })
}

/// What of Kolla its images are made of.
pub(crate) const KOLLA: &str = "kolla==23.0.0";
const KOLLA_ANSIBLE: &str = "kolla-ansible==22.2.0";
