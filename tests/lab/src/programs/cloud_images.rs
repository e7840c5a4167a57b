//! Images of services and of MariaDB, made of Debian and Python packages without a container engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::images::{descriptor, digest};
use crate::programs::openstack::{KOLLA, kolla};
use crate::{Progress, cache, command, packages, pip};

/// The images, each a tar for `ctr images import`.
#[derive(Clone, Debug)]
pub struct CloudImages {
    directory: PathBuf,
}

impl CloudImages {
    /// What pods call that of the services: Keystone 30, Placement 16 and Glance 33, which are of one release.
    pub const SERVICES: &str = "windlass.test/services:2026.2";
    /// The same with Keystone 29 and Glance 32, of the release before.
    pub const BEFORE: &str = "windlass.test/services:2026.1";
    /// That of [`Self::SERVICES`] as Kolla's image of Keystone starts, by its own scripts and sudo.
    pub const KOLLA: &str = "windlass.test/kolla:2026.2";
    /// What pods call that of memcached.
    pub const MEMCACHED: &str = "windlass.test/memcached:1.6";
    /// What pods call that of RabbitMQ.
    pub const RABBITMQ: &str = "windlass.test/rabbitmq:3.10";
    /// What pods call that of MariaDB.
    pub const MARIADB: &str = "windlass.test/mariadb:10.11";

    /// Makes them where the cache does not have them.
    ///
    /// # Errors
    ///
    /// Not root, or a package that cannot be had.
    pub fn ensure(progress: &dyn Progress) -> Result<Self> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("openstack");
        let read =
            |name: &str| fs::read(scripts.join(name)).with_context(|| format!("read {name}"));
        let key = cache::key([
            read("requirements.txt")?.as_slice(),
            &read("image.txt")?,
            &read("before.txt")?,
            &read("source.txt")?,
            &read("root.sh")?,
            &read("compile.sh")?,
            &read("kolla.sh")?,
            KOLLA.as_bytes(),
            RECIPE.as_bytes(),
        ]);
        let directory = cache::ensure("openstack-images", &key, |target| {
            packages::ensure(packages::BASE, progress)?;
            let kolla = kolla(progress)?;
            progress.begin(
                "images of OpenStack's services and MariaDB",
                "from Debian and Python packages, about 4 minutes, 0.7 GB",
            );
            make(&scripts, &kolla, target, progress)?;
            progress.end();
            Ok(())
        })?;
        Ok(Self { directory })
    }

    /// Makes the image of RabbitMQ where the cache does not have it: a tar as the others.
    ///
    /// # Errors
    ///
    /// Not root, or a package that cannot be had.
    pub fn rabbitmq(progress: &dyn Progress) -> Result<PathBuf> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("openstack");
        let script = fs::read(scripts.join("root.sh")).context("read root.sh")?;
        let key = cache::key([script.as_slice(), RECIPE.as_bytes()]);
        let directory = cache::ensure("rabbitmq-image", &key, |target| {
            packages::ensure(packages::BASE, progress)?;
            progress.begin(
                "image of RabbitMQ",
                "from Debian packages, about a minute, 0.3 GB",
            );
            let root = debian(&scripts, target, "rabbitmq-server")?;
            let base = layer(&root, target)?;
            write(target, "rabbitmq", &[(Self::RABBITMQ, &[&base])])?;
            fs::remove_file(&base.path).context("remove a layer")?;
            cache::remove(&root)?;
            progress.end();
            Ok(())
        })?;
        Ok(directory.join("rabbitmq.tar"))
    }

    /// The tars.
    pub fn files(&self) -> [PathBuf; 2] {
        ["mariadb.tar", "services.tar"].map(|name| self.directory.join(name))
    }
}

fn make(scripts: &Path, kolla: &Path, target: &Path, progress: &dyn Progress) -> Result<()> {
    progress.step("Debian with MariaDB and Python");
    let packages = "python3 mariadb-server-core mariadb-client-core memcached sudo";
    let root = debian(scripts, target, packages)?;
    progress.step("Keystone, Placement, Glance and their packages");
    let site = target.join("site");
    pip::run(target, |pip| {
        pip.args([
            "install",
            "--quiet",
            "--no-deps",
            "--no-compile",
            "--only-binary=:all:",
        ])
        .args(["--python-version", "3.11", "--implementation", "cp"])
        .args(["--abi", "cp311", "--abi", "abi3", "--abi", "none"]);
        for platform in [
            "manylinux_2_34",
            "manylinux_2_28",
            "manylinux_2_17",
            "manylinux2014",
        ] {
            pip.args([
                "--platform",
                &format!("{platform}_{}", std::env::consts::ARCH),
            ]);
        }
        for list in ["requirements.txt", "image.txt"] {
            pip.arg("--requirement").arg(scripts.join(list));
        }
        pip.arg("--target").arg(site.join(SITE));
    })
    .context("install the services")?;
    // Of these there are no wheels; they are made here, of Python alone.
    pip::run(target, |pip| {
        pip.args([
            "install",
            "--quiet",
            "--no-deps",
            "--no-compile",
            "--requirement",
        ])
        .arg(scripts.join("source.txt"))
        .arg("--target")
        .arg(site.join(SITE));
    })
    .context("install what has no wheels")?;
    move_configuration(&site)?;
    programs(&site)?;
    let before = target.join("before");
    pip::run(target, |pip| {
        pip.args([
            "install",
            "--quiet",
            "--no-deps",
            "--no-compile",
            "--requirement",
        ])
        .arg(scripts.join("before.txt"))
        .arg("--target")
        .arg(before.join(SITE));
    })
    .context("install the release before")?;
    move_configuration(&before)?;
    hide(&site.join(SITE), &before.join(SITE))?;
    for layer in [&site, &before] {
        command::output(
            Command::new("unshare")
                .args(["--mount", "sh"])
                .arg(scripts.join("compile.sh"))
                .env("ROOT", &root)
                .env("LAYER", layer)
                .env("PACKAGES", SITE),
        )
        .context("compile the services")?;
    }
    let started = target.join("kolla");
    command::output(
        Command::new("sh")
            .arg(scripts.join("kolla.sh"))
            .env("ROOT", &started)
            .env("BASE", &root)
            .env("KOLLA", kolla),
    )
    .context("make what Kolla's images start by")?;
    progress.step("packing");
    let base = layer(&root, target)?;
    let packages = layer(&site, target)?;
    let before = layer(&before, target)?;
    let started = layer(&started, target)?;
    let servers: &[(_, &[_])] = &[
        (CloudImages::MARIADB, &[&base]),
        (CloudImages::MEMCACHED, &[&base]),
    ];
    write(target, "mariadb", servers)?;
    let services: &[(_, &[_])] = &[
        (CloudImages::SERVICES, &[&base, &packages]),
        (CloudImages::BEFORE, &[&base, &packages, &before]),
        (CloudImages::KOLLA, &[&base, &packages, &started]),
    ];
    write(target, "services", services)?;
    for layer in [base.path, packages.path, before.path, started.path] {
        fs::remove_file(&layer).context("remove a layer")?;
    }
    for made in ["root", "site", "before", "kolla"] {
        cache::remove(&target.join(made))?;
    }
    Ok(())
}

/// A Debian with these packages.
fn debian(scripts: &Path, target: &Path, packages: &str) -> Result<PathBuf> {
    let root = target.join("root");
    fs::create_dir(&root)?;
    let mirror = std::env::var("WINDLASS_DEBIAN_MIRROR")
        .unwrap_or_else(|_| "http://deb.debian.org/debian".to_owned());
    command::output(
        Command::new("unshare")
            .args(["--mount", "bash"])
            .arg(scripts.join("root.sh"))
            .env("ROOT", &root)
            .env("MIRROR", mirror)
            .env("PACKAGES", packages),
    )
    .context("make the Debian root")?;
    Ok(root)
}

/// Puts configuration files where Glance looks for them.
fn move_configuration(site: &Path) -> Result<()> {
    fs::rename(site.join(SITE).join("etc"), site.join("etc")).context("move configuration files")
}

/// The programs that packages bring would name the Python that they were installed with.
fn programs(site: &Path) -> Result<()> {
    let directory = site.join("usr/local/bin");
    fs::create_dir_all(&directory)?;
    for (name, module, function) in [
        ("keystone-manage", "keystone.cmd.manage", "main"),
        ("placement-manage", "placement.cmd.manage", "main"),
        ("glance-manage", "glance.cmd.manage", "main"),
        ("openstack", "openstackclient.shell", "main"),
        ("uwsgi", "pyuwsgi", "run"),
    ] {
        let path = directory.join(name);
        let text = format!(
            "#!/usr/bin/python3\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        );
        fs::write(&path, text)?;
        command::output(Command::new("chmod").arg("755").arg(&path))?;
    }
    Ok(())
}

/// Lets a layer take the place of what the one below it has of the same packages, whose files would show through otherwise
/// ([whiteouts](https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts)).
fn hide(below: &Path, layer: &Path) -> Result<()> {
    for entry in fs::read_dir(layer)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(package) = name
            .split('-')
            .next()
            .filter(|_| name.ends_with(".dist-info"))
        else {
            continue;
        };
        fs::write(layer.join(package).join(".wh..wh..opq"), "")?;
        for entry in fs::read_dir(below)? {
            let old = entry?.file_name().to_string_lossy().into_owned();
            if old != name && old.starts_with(&format!("{package}-")) {
                fs::write(layer.join(format!(".wh.{old}")), "")?;
            }
        }
    }
    Ok(())
}

struct Packed {
    path: PathBuf,
    digest: String,
    size: u64,
}

/// A directory as a layer.
fn layer(root: &Path, target: &Path) -> Result<Packed> {
    let path = target.join(format!(
        "{}.layer",
        root.file_name().unwrap_or_default().display()
    ));
    command::output(
        Command::new("tar")
            .args([
                "--create",
                "--sort=name",
                "--mtime=@0",
                "--numeric-owner",
                "--one-file-system",
            ])
            .args([
                "--exclude=./proc/*",
                "--exclude=./dev/*",
                "--exclude=./sys/*",
            ])
            .arg("--file")
            .arg(&path)
            .arg("--directory")
            .arg(root)
            .arg("."),
    )?;
    let sum = command::output(Command::new("sha256sum").arg(&path))?;
    let sum = sum.split_whitespace().next().context("no sum")?;
    Ok(Packed {
        digest: format!("sha256:{sum}"),
        size: fs::metadata(&path)?.len(),
        path,
    })
}

/// An OCI layout of images in one tar: each name with its layers.
fn write(target: &Path, file: &str, images: &[(&str, &[&Packed])]) -> Result<()> {
    let layout = target.join(file);
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let manifests = images
        .iter()
        .map(|(name, layers)| image(&blobs, name, layers))
        .collect::<Result<Vec<_>>>()?;
    let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": manifests}))?;
    fs::write(layout.join("index.json"), index)?;
    fs::write(
        layout.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    command::output(
        Command::new("tar")
            .args(["--create", "--sort=name", "--file"])
            .arg(target.join(format!("{file}.tar")))
            .arg("--directory")
            .arg(&layout)
            .args(["blobs", "index.json", "oci-layout"]),
    )?;
    cache::remove(&layout)
}

/// Writes what an image is made of, and says how an index names it.
fn image(blobs: &Path, name: &str, layers: &[&Packed]) -> Result<Value> {
    let blob = |content: &[u8]| fs::write(blobs.join(&digest(content)[7..]), content);
    for layer in layers {
        let path = blobs.join(&layer.digest[7..]);
        if !path.exists() {
            fs::hard_link(&layer.path, path)?;
        }
    }
    let mut config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]},
        "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|layer| &layer.digest).collect::<Vec<_>>()},
    });
    if name == CloudImages::KOLLA {
        config["config"]["Cmd"] = json!(["kolla_start"]);
    }
    let config = serde_json::to_vec(&config)?;
    blob(&config)?;
    let layers: Vec<_> = layers
        .iter()
        .map(|layer| {
            json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": layer.digest,
                "size": layer.size,
            })
        })
        .collect();
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": layers,
    }))?;
    blob(&manifest)?;
    let mut listed = descriptor(MANIFEST, &manifest);
    listed["annotations"] = json!({
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rsplit(':').next(),
    });
    Ok(listed)
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Where Debian's Python looks for packages that are not its own.
const SITE: &str = "usr/local/lib/python3.11/dist-packages";
/// This file: a changed recipe makes new images.
const RECIPE: &str = include_str!("cloud_images.rs");
