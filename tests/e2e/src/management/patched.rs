//! A patch release that the project never made: the programs of the newest version under other tags, so that an upgrade to it replaces
//! every pod.

use std::{collections::BTreeSet, fs};

use anyhow::Context;
use lab::programs::cluster_api::ClusterApi;

use super::Management;

impl Management {
    /// Its version.
    pub const PATCHED: &str = "v1.14.999";

    /// Keeps it in the cluster, and its images on the node.
    ///
    /// # Errors
    ///
    /// A release cannot be read or stored, or an image of it is not on the node.
    pub fn preload_patched(&self) -> anyhow::Result<()> {
        let mut images = BTreeSet::new();
        let repository = self.node.dir().join("patched");
        for provided in ClusterApi::PROVIDERS {
            let [_, newest] = Self::VERSIONS;
            let from = self.managers.repository.join(provided.label).join(newest);
            let to = repository.join(provided.label).join(Self::PATCHED);
            let components = fs::read_to_string(from.join(provided.file));
            let components = components.context("read components")?;
            images.extend(images_of(&components, newest).map(str::to_owned));
            let components = components.replace(&tag(newest), &tag(Self::PATCHED));
            fs::create_dir_all(&to).context("make a directory for a release")?;
            fs::write(to.join(provided.file), components).context("write components")?;
            fs::copy(from.join("metadata.yaml"), to.join("metadata.yaml"))
                .context("copy metadata")?;
        }
        self.tag_images(&images)?;
        self.preload_from(&repository, Self::PATCHED)
    }

    fn tag_images(&self, images: &BTreeSet<String>) -> anyhow::Result<()> {
        let [_, newest] = Self::VERSIONS;
        for image in images {
            let tagged = image.replace(&tag(newest), &tag(Self::PATCHED));
            let shell = format!("ctr --namespace k8s.io images tag --force {image} {tagged}");
            self.node.ssh(&shell)?;
        }
        Ok(())
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
