//! The services of a cloud raised by hand, as plain processes in the root of their image: what the bench holds a cloud's object against.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{CloudImages, command};

/// Enters a root in namespaces of its own and does what its script says.
const ENTER: &str = r#"ip link set lo up; mount -t proc proc "$0/proc"; mount --bind /dev "$0/dev"; exec chroot "$0" sh /by_hand.sh"#;

/// Unpacks the image of the services into a directory that is not there yet, and gives the command that raises them there up to an image. All
/// that it starts ends with it; its root is written to, so it is for once.
///
/// # Errors
///
/// The image cannot be unpacked.
pub fn by_hand(images: &CloudImages, directory: &Path) -> Result<Command> {
    fs::create_dir(directory).context("make the directory of the image")?;
    let [_, services] = images.files();
    unpack(&services, directory)?;
    let root = directory.join("root");
    fs::create_dir(&root)?;
    for layer in layers(directory)? {
        unpack(&layer, &root)?;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("openstack/by_hand.sh");
    fs::copy(script, root.join("by_hand.sh")).context("copy the script")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    command.args(["sh", "-euc", ENTER]).arg(root);
    Ok(command)
}

fn unpack(archive: &Path, directory: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(archive);
    command::output(tar.arg("--directory").arg(directory)).map(drop)
}

/// The layers of the image of the newer release in a layout, the lowest first.
fn layers(layout: &Path) -> Result<Vec<PathBuf>> {
    let blob = |of: &Value| {
        let digest = of["digest"].as_str().unwrap_or_default();
        let name = digest.strip_prefix("sha256:").unwrap_or(digest);
        layout.join("blobs/sha256").join(name)
    };
    let read = |path: &Path| -> Result<Value> {
        let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("parse {}", path.display()))
    };
    let index = read(&layout.join("index.json"))?;
    let mut manifests = index["manifests"].as_array().into_iter().flatten();
    let named =
        |of: &&Value| of["annotations"]["io.containerd.image.name"] == CloudImages::SERVICES;
    let manifest = manifests.find(named).context("the image is not there")?;
    let manifest = read(&blob(manifest))?;
    let layers = manifest["layers"].as_array().into_iter().flatten();
    Ok(layers.map(blob).collect())
}
