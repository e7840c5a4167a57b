//! The real Magnum, from Python packages, with our driver in it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::openstack::OpenStack;
use crate::{Progress, cache, command, pip};

/// A release of Magnum that the driver is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MagnumRelease {
    /// 2025.2, with Heat's driver beside ours.
    V21,
    /// 2026.1.
    V22,
    /// 2026.2, which has no driver of its own.
    V23,
}

impl MagnumRelease {
    /// As the package is numbered.
    pub const fn version(self) -> &'static str {
        match self {
            Self::V21 => "21.0.0",
            Self::V22 => "22.0.0",
            Self::V23 => "23.0.0",
        }
    }
}

/// Magnum as it was released; a script of ours serves it.
#[derive(Clone, Debug)]
pub struct Magnum {
    openstack: OpenStack,
    /// Magnum, and the driver.
    packages: [PathBuf; 2],
}

impl Magnum {
    /// Installs them where the cache does not have these versions.
    ///
    /// # Errors
    ///
    /// A package cannot be had.
    pub fn ensure(release: MagnumRelease, progress: &dyn Progress) -> Result<Self> {
        let openstack = OpenStack::ensure(progress)?;
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("openstack/magnum.txt");
        let requirements = fs::read(&list).context("read the list of packages")?;
        let python = command::output(Command::new("python3").arg("--version"))?;
        let version = release.version();
        let key = cache::key([&requirements, python.as_bytes(), version.as_bytes()]);
        let packages = cache::ensure("magnum", &key, |target| {
            progress.begin("Magnum", "Python packages, 10 MB to fetch, 50 MB kept");
            pip::run(target, |pip| {
                pip.args(["install", "--quiet", "--no-deps", "--requirement"])
                    .arg(&list)
                    .arg(format!("magnum=={version}"))
                    .arg("--target")
                    .arg(target.join("site"));
            })
            .context("install Magnum")?;
            progress.end();
            Ok(())
        })?;
        let driver = driver(progress)?;
        Ok(Self {
            openstack,
            packages: [packages.join("site"), driver.join("site")],
        })
    }

    /// Python with Magnum and the driver.
    ///
    /// # Errors
    ///
    /// The cache is in a directory whose name cannot be part of a path list.
    pub fn python(&self) -> Result<Command> {
        let mut python = self.openstack.python();
        python.env("PYTHONPATH", self.path()?);
        Ok(python)
    }

    /// Python with the script that serves it.
    ///
    /// # Errors
    ///
    /// As [`Magnum::python`].
    pub fn script(&self) -> Result<Command> {
        self.run("inside.py")
    }

    /// Python with the script that fills a database and says what Magnum answers of it.
    ///
    /// # Errors
    ///
    /// As [`Magnum::python`].
    pub fn database(&self) -> Result<Command> {
        self.run("database.py")
    }

    fn run(&self, script: &str) -> Result<Command> {
        let mut python = self.openstack.script(script);
        python.env("PYTHONPATH", self.path()?);
        Ok(python)
    }

    fn path(&self) -> Result<OsString> {
        let all = self.packages.iter().map(PathBuf::as_path);
        env::join_paths(all.chain([self.openstack.packages()])).context("name the packages")
    }
}

/// Where the sources of the driver are.
pub fn driver_sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/windlass-magnum")
}

/// The driver: `wheel` holds the wheel, `site` what it installs. It is built anew where a source of it has changed.
///
/// # Errors
///
/// It cannot be built.
pub fn driver(progress: &dyn Progress) -> Result<PathBuf> {
    let sources = sources()?;
    let parts = sources
        .iter()
        .flat_map(|(name, text)| [name.as_bytes(), text.as_slice()]);
    let key = cache::key(parts);
    let openstack = OpenStack::ensure(progress)?;
    cache::ensure("magnum-driver", &key, |target| {
        // setuptools leaves things beside what it builds.
        let copy = target.join("sources");
        for (name, text) in &sources {
            let path = copy.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&copy)).context("make a directory")?;
            fs::write(&path, text).context("copy a source of the driver")?;
        }
        let wheel = target.join("wheel");
        pip::run(target, |pip| {
            pip.args([
                "wheel",
                "--quiet",
                "--no-deps",
                "--no-build-isolation",
                "--no-index",
                "--wheel-dir",
            ])
            .arg(&wheel)
            .arg(&copy)
            .env("PYTHONPATH", openstack.packages());
        })
        .context("build the driver")?;
        pip::run(target, |pip| {
            pip.args([
                "install",
                "--quiet",
                "--no-deps",
                "--no-index",
                "--find-links",
            ])
            .arg(&wheel)
            .arg("windlass-magnum")
            .arg("--target")
            .arg(target.join("site"));
        })
        .context("install the driver")?;
        cache::remove(&copy)
    })
}

/// What the driver is built of: names and contents, in the order of their names.
fn sources() -> Result<Vec<(String, Vec<u8>)>> {
    let root = driver_sources();
    let mut names = vec!["README.md".to_owned(), "pyproject.toml".to_owned()];
    let package = "windlass_magnum";
    for entry in fs::read_dir(root.join(package)).context("list the sources of the driver")? {
        let name = entry.context("list the sources of the driver")?.file_name();
        let name = name.to_string_lossy();
        if Path::new(&*name)
            .extension()
            .is_some_and(|extension| extension == "py")
        {
            names.push(format!("{package}/{name}"));
        }
    }
    names.sort();
    let read = |name: String| {
        let text = fs::read(root.join(&name)).with_context(|| format!("read {name}"))?;
        Ok((name, text))
    };
    names.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its own tests, beside the real Magnum: what a release of that lacks is told here, and the whole by `tests/e2e`.
    #[test]
    fn the_driver_s_tests_pass_beside_magnum() {
        let magnum = Magnum::ensure(MagnumRelease::V23, &crate::progress::Silent).unwrap();
        let mut python = magnum.python().unwrap();
        python
            .args(["-B", "-m", "unittest"])
            .current_dir(driver_sources());
        let told = python.output().unwrap();
        let told = (
            told.status.success(),
            String::from_utf8_lossy(&told.stderr).into_owned(),
        );
        assert!(told.0, "{}", told.1);
        assert!(!told.1.contains("skipped"), "{}", told.1);
    }

    #[test]
    fn the_driver_has_the_version_of_windlass() {
        let project = fs::read_to_string(driver_sources().join("pyproject.toml")).unwrap();
        let line = format!("\nversion = \"{}\"\n", env!("CARGO_PKG_VERSION"));
        assert!(project.contains(&line), "{project}");
    }
}
