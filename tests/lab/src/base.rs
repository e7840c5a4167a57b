//! The Debian root that hosts boot from: made once, used read-only under each host's own disk.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Progress, cache, command, packages};

/// What a host finds installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Base {
    /// With Debian's containerd, runc and CNI plugins: what plain kubeadm and our playbooks build on.
    #[default]
    Containerd,
    /// Without them: for kubespray, which brings its own.
    Bare,
    /// As the usual one, with Debian's cloud-init, which sleeps until somebody puts a seed of its NoCloud source in place: what an
    /// image of machines is that Cluster API makes nodes.
    CloudInit,
}

/// The root directory of this kind, made where the cache does not have it.
///
/// Debian comes from `$WINDLASS_DEBIAN_MIRROR`, or `http://deb.debian.org/debian`.
///
/// # Errors
///
/// Not root, no mirror, or a package that cannot be had.
pub fn ensure(kind: Base, progress: &dyn Progress) -> Result<PathBuf> {
    let (packages, recipe) = (list(kind), recipe(kind));
    let key = key(kind);
    cache::ensure("base", &key, |target| {
        packages::ensure(packages::BASE, progress)?;
        progress.begin("Debian root for hosts", "about 80 s, 0.7 GB");
        progress.step("debootstrap and packages");
        let mirror = std::env::var("WINDLASS_DEBIAN_MIRROR")
            .unwrap_or_else(|_| "http://deb.debian.org/debian".to_owned());
        command::output(
            Command::new("unshare")
                .args(["--mount", "bash", "-c", &recipe])
                .env("ROOT", target)
                .env("MIRROR", mirror)
                .env("PACKAGES", &packages),
        )
        .context("make the Debian root")?;
        progress.end();
        Ok(())
    })
}

/// Names the content of a kind of root.
pub(crate) fn key(kind: Base) -> String {
    cache::key([recipe(kind).as_bytes(), list(kind).as_bytes()])
}

fn list(kind: Base) -> String {
    match kind {
        Base::Containerd => format!("{PACKAGES} containerd runc containernetworking-plugins"),
        Base::Bare => PACKAGES.to_owned(),
        Base::CloudInit => format!("{} cloud-init", list(Base::Containerd)),
    }
}

fn recipe(kind: Base) -> String {
    match kind {
        Base::Containerd | Base::Bare => RECIPE.to_owned(),
        Base::CloudInit => format!("{RECIPE}{CLOUD_INIT}"),
    }
}

const RECIPE: &str = include_str!("scripts/base.sh");
const CLOUD_INIT: &str = include_str!("scripts/cloud-init.sh");

/// Beside what a node uses: haproxy and busybox are there to be copied into images.
const PACKAGES: &str = "apparmor apt-transport-https bash-completion busybox-static conntrack curl \
    e2fsprogs ebtables ethtool gnupg haproxy iproute2 ipset iptables iputils-ping kmod libseccomp2 \
    mergerfs nftables openssl procps python3-apt rsync socat software-properties-common tar unzip \
    util-linux xfsprogs";
