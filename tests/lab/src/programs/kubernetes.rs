//! The versions of Kubernetes whose API server can be had.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use super::{
    BuildCache, KUBERNETES, OWN, Programs, ensure, go, go_build, key, minimum, module, required,
    sources, stamp,
};
use crate::{Progress, cache};

/// The versions of Kubernetes that Windlass is tested with: the two ends of what it claims to work with, and one between for nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Kubernetes {
    /// `testenv/oldest`: an API server and its controller manager, and those of nodes for who wants them.
    Oldest,
    /// `testenv/patch`: the same of the patch release before the newest.
    Patch,
    /// `testenv`: everything.
    #[default]
    Newest,
}

/// kube-apiserver and kube-controller-manager of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Servers {
    /// The directory that holds them.
    pub dir: PathBuf,
    /// Of Kubernetes, without a leading v.
    pub version: String,
}

impl Kubernetes {
    /// Both ends, oldest first.
    pub const ALL: [Self; 2] = [Self::Oldest, Self::Newest];

    /// Its version without a leading v, from the module that builds it.
    ///
    /// # Errors
    ///
    /// The module cannot be read.
    pub fn version(self) -> Result<String> {
        required(&module(&self.sources()?)?, "k8s.io/kubernetes")
    }

    /// Its servers, built where the cache does not have them.
    ///
    /// # Errors
    ///
    /// A module cannot be had or does not build.
    pub fn servers(self, progress: &dyn Progress) -> Result<Servers> {
        let version = self.version()?;
        let dir = match self {
            Self::Newest => ensure(progress)?.dir,
            Self::Oldest | Self::Patch => self.older(&version, progress)?,
        };
        Ok(Servers { dir, version })
    }

    /// All of its programs, built where the cache does not have them. etcd and CoreDNS are those of the newest.
    ///
    /// # Errors
    ///
    /// A module cannot be had or does not build.
    pub fn programs(self, progress: &dyn Progress) -> Result<Programs> {
        let newest = ensure(progress)?;
        if self == Self::Newest {
            return Ok(newest);
        }
        let sources = self.sources()?;
        let servers = self.servers(progress)?;
        let version = servers.version.clone();
        // Some of them are those of the newest: what is kept must be of both.
        let of_newest = newest.dir.file_name().unwrap_or_default();
        let key = format!("{}-{}", key(&sources)?, of_newest.display());
        let dir = cache::ensure(&format!("{}-nodes", self.cached()), &key, |target| {
            progress.begin(
                &format!("node programs of Kubernetes {version}"),
                "built from source, about 4 minutes on 2 cores, 0.3 GB",
            );
            let of_nodes = KUBERNETES.iter().filter(|name| !SERVERS.contains(*name));
            let of_nodes: Vec<_> = of_nodes.copied().collect();
            build(&sources, &version, &of_nodes, target, progress)?;
            for (dir, names) in [
                (&servers.dir, &SERVERS[..]),
                (&newest.dir, OWN),
                (&newest.dir, &["coredns"]),
            ] {
                for name in names {
                    fs::hard_link(dir.join(name), target.join(name))
                        .with_context(|| format!("link {name}"))?;
                }
            }
            progress.end();
            Ok(())
        })?;
        Ok(Programs {
            dir,
            version: servers.version,
            ..newest
        })
    }

    fn sources(self) -> Result<PathBuf> {
        let sources = sources()?;
        Ok(match self {
            Self::Oldest => sources.join(OLDEST),
            Self::Patch => sources.join(PATCH),
            Self::Newest => sources,
        })
    }

    /// What the cache has its programs under.
    const fn cached(self) -> &'static str {
        match self {
            Self::Oldest => "testenv-oldest",
            Self::Patch => "testenv-patch",
            Self::Newest => "testenv",
        }
    }

    /// The servers of an older version: most need nothing else of it, and each program costs a minute.
    fn older(self, version: &str, progress: &dyn Progress) -> Result<PathBuf> {
        let sources = self.sources()?;
        cache::ensure(self.cached(), &key(&sources)?, |target| {
            progress.begin(
                &format!("API server of Kubernetes {version}"),
                "built from source, about 4 minutes on 2 cores, 0.2 GB",
            );
            build(&sources, version, &SERVERS, target, progress)?;
            progress.end();
            Ok(())
        })
    }
}

impl FromStr for Kubernetes {
    type Err = anyhow::Error;

    /// `oldest`, `newest`, or the version itself, as a whole or as its minor: `1.33`.
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim_start_matches('v');
        let mut known = Vec::new();
        for (name, kubernetes) in [("oldest", Self::Oldest), ("newest", Self::Newest)] {
            let version = kubernetes.version()?;
            let minor = version.rsplit_once('.').map(|(minor, _)| minor);
            if text == name || text == version || Some(text) == minor {
                return Ok(kubernetes);
            }
            known.push(version);
        }
        bail!("only {} can be had", known.join(" and "))
    }
}

fn build(
    sources: &Path,
    version: &str,
    names: &[&str],
    target: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    let go = go(&minimum(&module(sources)?)?, progress)?;
    let scratch = BuildCache::choose(&go)?;
    let packages = names.iter();
    let packages: Vec<_> = packages
        .map(|name| format!("k8s.io/kubernetes/cmd/{name}"))
        .collect();
    go_build(&go, sources, &packages, &stamp(version), target, &scratch)
}

/// Those that make an API server with garbage collection and namespaces that go.
const SERVERS: [&str; 2] = ["kube-apiserver", "kube-controller-manager"];

/// The directory of the oldest version's module, in that of the newest.
pub(super) const OLDEST: &str = "oldest";

/// The directory of the module of the patch release before the newest, likewise.
pub(super) const PATCH: &str = "patch";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::numbers;

    #[test]
    fn a_version_is_named_as_people_write_it() {
        for kubernetes in Kubernetes::ALL {
            let version = kubernetes.version().unwrap();
            let (minor, _) = version.rsplit_once('.').unwrap();
            for text in [minor, &version, &format!("v{version}")] {
                assert_eq!(text.parse::<Kubernetes>().unwrap(), kubernetes);
            }
        }
        assert!("1.2".parse::<Kubernetes>().is_err());
        let versions = Kubernetes::ALL.map(|kubernetes| numbers(&kubernetes.version().unwrap()));
        assert!(versions.is_sorted());
        let [_, newest] = versions;
        let patch = numbers(&Kubernetes::Patch.version().unwrap());
        assert!(patch < newest);
        assert_eq!(patch[..2], newest[..2]);
    }
}
