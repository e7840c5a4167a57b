//! Patch releases that the project never made: the programs of the newest version under other tags, so that an upgrade to one replaces
//! every pod; and one of core whose program does not start.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Context, ensure};
use lab::programs::cluster_api::{ClusterApi, Provided};

use super::{Management, PROVIDERS};

impl Management {
    /// The version of all that goes.
    pub const PATCHED: &str = "v1.14.999";
    /// The version of core that does not start.
    pub const BROKEN: &str = "v1.14.1000";

    /// Keeps the one that goes in the cluster, and its images on the node.
    ///
    /// # Errors
    ///
    /// A release cannot be read or stored, or an image of it is not on the node.
    pub fn preload_patched(&self) -> anyhow::Result<()> {
        let mut images = BTreeSet::new();
        let mut repository = PathBuf::new();
        for provided in &ClusterApi::PROVIDERS {
            let [_, newest] = Self::VERSIONS;
            let components = self.components(provided)?;
            images.extend(images_of(&components, newest).map(str::to_owned));
            let components = components.replace(&tag(newest), &tag(Self::PATCHED));
            repository = self.make(provided, Self::PATCHED, &components)?;
        }
        for image in &images {
            self.tag_image(image, image, Self::PATCHED)?;
        }
        self.preload_from(&repository, Self::PATCHED)
    }

    /// Keeps the one of core that does not start: its image is there, and has another program in it. Its Deployment says after half a minute
    /// that nothing comes of it.
    ///
    /// # Errors
    ///
    /// The release cannot be read or stored, or an image that it is made of is not on the node.
    pub fn preload_broken(&self) -> anyhow::Result<()> {
        let [_, newest] = Self::VERSIONS;
        let (provided, [core, ..]) = (&ClusterApi::PROVIDERS[0], PROVIDERS);
        let components = self.components(provided)?;
        for image in images_of(&components, newest) {
            self.tag_image(SANDBOX, image, Self::BROKEN)?;
        }
        let components = components.replace(&tag(newest), &tag(Self::BROKEN));
        ensure!(
            components.matches(REPLICAS).count() == 1,
            "core has one Deployment"
        );
        let hurried = format!("\n  progressDeadlineSeconds: 30{REPLICAS}");
        let components = components.replace(REPLICAS, &hurried);
        let repository = self.make(provided, Self::BROKEN, &components)?;
        self.keep(core, &repository, Self::BROKEN)
    }

    fn components(&self, provided: &Provided) -> anyhow::Result<String> {
        let [_, newest] = Self::VERSIONS;
        let from = self.managers.repository.join(provided.label).join(newest);
        fs::read_to_string(from.join(provided.file)).context("read components")
    }

    /// Writes a release into a local repository, and gives that.
    fn make(
        &self,
        provided: &Provided,
        version: &str,
        components: &str,
    ) -> anyhow::Result<PathBuf> {
        let [_, newest] = Self::VERSIONS;
        let repository = self.node.dir().join("patched");
        let to = repository.join(provided.label).join(version);
        fs::create_dir_all(&to).context("make a directory for a release")?;
        fs::write(to.join(provided.file), components).context("write components")?;
        let metadata = self.managers.repository.join(provided.label).join(newest);
        fs::copy(metadata.join("metadata.yaml"), to.join("metadata.yaml"))
            .context("copy metadata")?;
        Ok(repository)
    }

    /// Gives an image of the node the name of another one in a version.
    fn tag_image(&self, image: &str, name: &str, version: &str) -> anyhow::Result<()> {
        let [_, newest] = Self::VERSIONS;
        let tagged = name.replace(&tag(newest), &tag(version));
        let shell = format!("ctr --namespace k8s.io images tag --force {image} {tagged}");
        self.node.ssh(&shell).map(drop)
    }
}

fn tag(version: &str) -> String {
    format!(":{version}")
}

fn images_of<'a>(components: &'a str, version: &'a str) -> impl Iterator<Item = &'a str> {
    components
        .lines()
        .filter_map(|line| line.trim().strip_prefix("image: "))
        .filter(move |image| image.ends_with(&tag(version)))
}

/// An image of every node, with one program that is no manager.
const SANDBOX: &str = "registry.k8s.io/pause:3.10.1";
/// A line of a Deployment alone.
const REPLICAS: &str = "\n  replicas: 1\n";
