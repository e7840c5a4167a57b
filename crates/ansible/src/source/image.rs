//! Playbooks out of an OCI image.
//!
//! An image is a pile of archives, of which the playbooks are a small part. A first pass over the layers finds which entry
//! of which layer every path ends up with, so that whiteouts and replaced files need no file system to be worked out; a
//! second one writes the files of the playbooks and nothing else. In the outcome of the first pass no file stands above
//! another, so that the second never writes through a link.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Component, Path, PathBuf},
    time::Duration,
};

use flate2::read::MultiGzDecoder;
use oci_client::{
    Client, Reference,
    client::{ClientConfig, ClientProtocol, linux_amd64_resolver},
    errors::{OciDistributionError, OciErrorCode},
    secrets::RegistryAuth,
};
use tar::EntryType;

use super::Error;
use crate::FileError;

/// What one image may make us write: kubespray is about 10 MiB.
const MOST_BYTES: u64 = 256 << 20;

/// Playbooks that were taken out of an image.
pub(super) struct Unpacked {
    /// Their directory.
    pub(super) tree: PathBuf,
    /// The digest of the image's manifest.
    pub(super) digest: String,
}

/// Pulls an image into `work` and takes the playbooks out of it.
pub(super) async fn pull(image: &str, work: &Path) -> Result<Unpacked, Error> {
    let (digest, layers) = download(image, work).await?;
    let image = image.to_owned();
    let tree = work.join("tree");
    tokio::task::spawn_blocking(move || {
        unpack(&image, &layers, &tree)?;
        Ok(Unpacked { tree, digest })
    })
    .await
    .map_err(Error::Join)?
}

/// The manifest's digest, and the layers as files, lowest first. Every layer's digest is checked as it comes.
async fn download(image: &str, work: &Path) -> Result<(String, Vec<PathBuf>), Error> {
    let reference: Reference = image.parse().map_err(|source| Error::ImageName {
        image: image.to_owned(),
        source,
    })?;
    let failed = |error: OciDistributionError| Error::Registry {
        image: image.to_owned(),
        source: Box::new(error),
    };
    let client = client(&reference).map_err(failed)?;
    let (manifest, digest) = client
        .pull_image_manifest(&reference, &RegistryAuth::Anonymous)
        .await
        .map_err(failed)?;
    let mut layers = Vec::new();
    for (index, layer) in manifest.layers.iter().enumerate() {
        let path = work.join(format!("layer-{index}"));
        let file = tokio::fs::File::create(&path)
            .await
            .map_err(FileError::of(&path))?;
        client
            .pull_blob(&reference, layer, file)
            .await
            .map_err(failed)?;
        layers.push(path);
    }
    Ok((digest, layers))
}

fn client(reference: &Reference) -> oci_client::errors::Result<Client> {
    // Whoever runs this may have chosen a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let registry = reference.resolve_registry();
    Client::try_from(ClientConfig {
        // As other clients of registries do: what never leaves the machine needs no TLS.
        protocol: if is_loopback(registry) {
            ClientProtocol::Http
        } else {
            ClientProtocol::Https
        },
        platform_resolver: Some(Box::new(linux_amd64_resolver)),
        connect_timeout: Some(Duration::from_secs(10)),
        read_timeout: Some(Duration::from_mins(1)),
        ..ClientConfig::default()
    })
}

fn is_loopback(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Whether a registry answered, and will answer the same again.
pub(super) fn is_final(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::ImageManifestNotFoundError(_)
        | OciDistributionError::UnauthorizedError { .. }
        | OciDistributionError::AuthenticationFailure(_)
        | OciDistributionError::UnsupportedMediaTypeError(_)
        | OciDistributionError::UnsupportedSchemaVersionError(_)
        | OciDistributionError::VersionedParsingError(_)
        | OciDistributionError::ManifestParsingError(_) => true,
        OciDistributionError::ServerError { code, .. } => *code == 404,
        OciDistributionError::RegistryError { envelope, .. } => {
            let mut errors = envelope.errors.iter();
            errors.all(|error| error.code != OciErrorCode::Toomanyrequests)
        }
        _ => false,
    }
}

/// One entry of one layer, by their numbers.
type Place = (usize, usize);

fn unpack(image: &str, layers: &[PathBuf], tree: &Path) -> Result<(), Error> {
    let mut files = BTreeMap::new();
    for (number, layer) in layers.iter().enumerate() {
        survey(image, layer, number, &mut files)?;
    }
    let root = playbooks(&files).ok_or_else(|| Error::NotKubespray {
        place: format!("image {image}"),
        missing: "directory with cluster.yml and roles",
    })?;
    fs::create_dir_all(tree).map_err(FileError::of(tree))?;
    let mut room = MOST_BYTES;
    for (number, layer) in layers.iter().enumerate() {
        let wanted = |path: &Path, entry| files.get(path) == Some(&(number, entry));
        extract(image, layer, &root, tree, &mut room, &wanted)?;
    }
    // kubespray's own images were made with the requirements but do not hold the file.
    let requirements = tree.join("requirements.txt");
    if !requirements.exists() {
        let pins = installed(&files);
        if !pins.is_empty() {
            fs::write(&requirements, pins).map_err(FileError::of(&requirements))?;
        }
    }
    Ok(())
}

/// Adds a layer to the outcome: what it takes away of those below first, then what it brings.
fn survey(
    image: &str,
    layer: &Path,
    number: usize,
    files: &mut BTreeMap<PathBuf, Place>,
) -> Result<(), Error> {
    let mut brought = Vec::new();
    each_entry(image, layer, |index, path, entry| {
        let name = path.file_name().map_or(&b""[..], OsStrExt::as_bytes);
        if name == b".wh..wh..opq" {
            let directory = path.parent().unwrap_or(Path::new("")).to_owned();
            files.retain(|file, _| !file.starts_with(&directory));
        } else if let Some(gone) = name.strip_prefix(b".wh.") {
            let gone = path.with_file_name(OsStr::from_bytes(gone));
            files.retain(|file, _| !file.starts_with(&gone));
        } else {
            let is_directory = entry.header().entry_type() == EntryType::Directory;
            brought.push((index, path, is_directory));
        }
        Ok(())
    })?;
    for (index, path, is_directory) in brought {
        // What is below a path makes a directory of it, whatever it was.
        for above in path.ancestors().skip(1) {
            files.remove(above);
        }
        if is_directory {
            files.remove(&path);
            continue;
        }
        let below: Vec<_> = files
            .range(path.clone()..)
            .map(|(file, _)| file.clone())
            .take_while(|file| file.starts_with(&path))
            .collect();
        for file in below {
            files.remove(&file);
        }
        files.insert(path, (number, index));
    }
    Ok(())
}

/// The directory of the playbooks: the one nearest to the root that has both cluster.yml and roles.
fn playbooks(files: &BTreeMap<PathBuf, Place>) -> Option<PathBuf> {
    let has_roles = |directory: &Path| {
        let roles = directory.join("roles");
        files
            .range(roles.clone()..)
            .next()
            .is_some_and(|(file, _)| file.starts_with(&roles) && *file != roles)
    };
    files
        .keys()
        .filter(|file| file.file_name() == Some(OsStr::new("cluster.yml")))
        .filter_map(|file| file.parent())
        .filter(|directory| has_roles(directory))
        .min_by_key(|directory| directory.components().count())
        .map(Path::to_owned)
}

/// What pip installed into the image, as requirements of exactly these versions.
fn installed(files: &BTreeMap<PathBuf, Place>) -> String {
    let mut pins: Vec<String> = files
        .keys()
        .filter(|file| file.starts_with("usr/local/lib"))
        .filter(|file| file.file_name() == Some(OsStr::new("METADATA")))
        .filter_map(|file| file.parent()?.file_name()?.to_str())
        .filter_map(|name| name.strip_suffix(".dist-info")?.rsplit_once('-'))
        .map(|(name, version)| format!("{name}=={version}\n"))
        .collect();
    pins.sort();
    pins.concat()
}

fn extract(
    image: &str,
    layer: &Path,
    root: &Path,
    tree: &Path,
    room: &mut u64,
    wanted: &dyn Fn(&Path, usize) -> bool,
) -> Result<(), Error> {
    each_entry(image, layer, |index, path, entry| {
        let Ok(inner) = path.strip_prefix(root) else {
            return Ok(());
        };
        if !wanted(&path, index) {
            return Ok(());
        }
        let target = tree.join(inner);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        match entry.header().entry_type() {
            EntryType::Symlink => {
                let link = entry.link_name()?.unwrap_or_default().into_owned();
                let parent = inner.parent().unwrap_or(Path::new(""));
                if !stays(parent, &link) {
                    return Err(refused("a link leads out of the playbooks", &path));
                }
                std::os::unix::fs::symlink(link, &target)
            }
            EntryType::Link => {
                let link = entry.link_name()?.unwrap_or_default().into_owned();
                let first = clean(&link)
                    .and_then(|link| Some(tree.join(link.strip_prefix(root).ok()?)))
                    .filter(|first| fs::symlink_metadata(first).is_ok_and(|found| found.is_file()));
                match first {
                    Some(first) => fs::copy(first, &target).map(drop),
                    None => Err(refused("a hard link leads out of the playbooks", &path)),
                }
            }
            kind if kind.is_file() => write(entry, &target, room),
            // Devices and the like mean nothing to playbooks.
            _ => Ok(()),
        }
    })
}

fn write(
    entry: &mut tar::Entry<'_, Box<dyn Read>>,
    target: &Path,
    room: &mut u64,
) -> io::Result<()> {
    *room = room.checked_sub(entry.size()).ok_or_else(|| {
        io::Error::other(format!("its playbooks are more than {MOST_BYTES} bytes"))
    })?;
    let mode = if entry.header().mode()? & 0o100 == 0 {
        0o644
    } else {
        0o755
    };
    let mut file = fs::File::create_new(target)?;
    io::copy(entry, &mut file)?;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Whether a link in a directory of the tree ends in the tree.
fn stays(parent: &Path, link: &Path) -> bool {
    let mut depth = parent.components().count();
    link.components().all(|component| match component {
        Component::Normal(_) => {
            depth = depth.saturating_add(1);
            true
        }
        Component::CurDir => true,
        Component::ParentDir => match depth.checked_sub(1) {
            Some(less) => {
                depth = less;
                true
            }
            None => false,
        },
        Component::RootDir | Component::Prefix(_) => false,
    })
}

/// Visits every entry of a layer with its number and its path from the root of the image.
fn each_entry(
    image: &str,
    layer: &Path,
    mut visit: impl FnMut(usize, PathBuf, &mut tar::Entry<'_, Box<dyn Read>>) -> io::Result<()>,
) -> Result<(), Error> {
    let mut visit_all = || {
        let mut archive = tar::Archive::new(open(layer)?);
        for (index, entry) in archive.entries()?.enumerate() {
            let mut entry = entry?;
            let path = entry.path()?.into_owned();
            let path =
                clean(&path).ok_or_else(|| refused("a path leads out of the image", &path))?;
            visit(index, path, &mut entry)?;
        }
        Ok(())
    };
    visit_all().map_err(|source: io::Error| Error::Layer {
        image: image.to_owned(),
        source,
    })
}

fn open(layer: &Path) -> io::Result<Box<dyn Read>> {
    let mut magic = [0; 4];
    let mut file = fs::File::open(layer)?;
    // A layer that is shorter is no archive, which its reader will say.
    let read = file.read(&mut magic)?;
    let file = io::BufReader::new(fs::File::open(layer)?);
    match magic.get(..read) {
        Some([0x1f, 0x8b, ..]) => Ok(Box::new(MultiGzDecoder::new(file))),
        Some([0x28, 0xb5, 0x2f, 0xfd]) => Err(io::Error::other(
            "a layer is packed by zstd, which Windlass does not read: push the image with gzip",
        )),
        _ => Ok(Box::new(file)),
    }
}

/// A path from the root without detours, or nothing if it leads above the root.
fn clean(path: &Path) -> Option<PathBuf> {
    path.components()
        .filter(|component| !matches!(component, Component::RootDir | Component::CurDir))
        .map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect()
}

fn refused(rule: &str, path: &Path) -> io::Error {
    io::Error::other(format!("{rule}: {}", path.display()))
}
