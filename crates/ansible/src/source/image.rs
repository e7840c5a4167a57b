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
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use flate2::read::MultiGzDecoder;
use oci_client::{
    Client, Reference,
    client::{ClientConfig, ClientProtocol, linux_amd64_resolver},
    errors::{OciDistributionError, OciErrorCode},
    manifest::OciImageManifest,
    secrets::RegistryAuth,
};
use tar::{EntryType, PaxExtensions};

use super::{
    Error, Unpacked,
    network::{self, Gate},
    policy::{Bounds, Policy, Settings},
    tree::{self, Wanted, Writer, clean, shown},
};
use crate::FileError;

/// What a registry may say before its layers: a token, an index and a manifest, which the client keeps in memory.
const MANIFESTS: u64 = 8 << 20;

/// Layers are not sent alone: heads, TLS, redirects. An image may have as many.
const LAYERS: usize = 256;

/// Pulls an image into `work` and takes the playbooks out of it.
pub(super) async fn pull(
    image: &str,
    policy: &Policy,
    work: &Path,
    wanted: Wanted,
) -> Result<Unpacked, Error> {
    // Behind a person's own proxy the client finds its way by their settings.
    let gated = policy.settings == Settings::None || !network::is_behind_proxy();
    let gate = if gated {
        let gate = Gate::open(policy, work, MANIFESTS).await;
        Some(gate.map_err(FileError::of(work))?)
    } else {
        None
    };
    let downloaded = download(image, policy, gate.as_ref(), work).await;
    let (revision, layers) = downloaded.map_err(|error| {
        let refusal = gate.and_then(|gate| gate.refusal().or_else(|| led_away(&error)));
        match refusal {
            Some(source) => Error::Network {
                place: format!("image {}", shown(image)),
                source,
            },
            None => error,
        }
    })?;
    let tree = work.join("tree");
    let image = Image {
        name: shown(image),
        layers,
        bounds: policy.bounds,
        wanted,
    };
    let (target, reserve) = (tree.clone(), policy.room.reserve);
    tokio::task::spawn_blocking(move || image.unpack(&target, reserve))
        .await
        .map_err(Error::Join)??;
    Ok(Unpacked { tree, revision })
}

/// The manifest's digest, and the layers as files, lowest first. Every digest is checked as it comes: that of the manifest
/// where the image is named by it, and that of each layer.
async fn download(
    image: &str,
    policy: &Policy,
    gate: Option<&Gate>,
    work: &Path,
) -> Result<(String, Vec<PathBuf>), Error> {
    let reference: Reference = image.parse().map_err(|source| Error::ImageName {
        image: shown(image),
        source,
    })?;
    let failed = |error: OciDistributionError| Error::Registry {
        image: shown(image),
        source: Box::new(error),
    };
    let client = client(&reference, gate).map_err(failed)?;
    let (manifest, digest) = client
        .pull_image_manifest(&reference, &RegistryAuth::Anonymous)
        .await
        .map_err(failed)?;
    let total = measured(&manifest, &policy.bounds).map_err(|source| Error::Refused {
        place: format!("image {}", shown(image)),
        source,
    })?;
    if let Some(gate) = gate {
        gate.allow(total.saturating_add(total / 16));
    }
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

/// That the gate did not know its client any more, which shows its credential to the host that was asked first alone.
fn led_away(error: &Error) -> Option<network::Refusal> {
    let Error::Registry { source, .. } = error else {
        return None;
    };
    let OciDistributionError::ServerError { code: 407, url, .. } = &**source else {
        return None;
    };
    let host = url.strip_prefix("http://")?.split('/').next()?;
    let host = shown(host);
    Some(network::Refusal::Redirect { host })
}

/// The bytes of all layers as their manifest has them, if they are not too many.
fn measured(manifest: &OciImageManifest, bounds: &Bounds) -> Result<u64, tree::Refusal> {
    let sizes = manifest.layers.iter();
    let total = sizes.fold(0, |sum: u64, layer| {
        sum.saturating_add(u64::try_from(layer.size).unwrap_or(u64::MAX))
    });
    let too_much = |what, most| tree::Refusal::Bound {
        what,
        most,
        at: "its manifest".to_owned(),
    };
    if total > bounds.download {
        return Err(too_much("the bytes of all layers are", bounds.download));
    }
    if manifest.layers.len() > LAYERS {
        return Err(too_much("its layers are", LAYERS as u64));
    }
    Ok(total)
}

fn client(reference: &Reference, gate: Option<&Gate>) -> oci_client::errors::Result<Client> {
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
        connect_timeout: Some(Duration::from_secs(20)),
        read_timeout: Some(Duration::from_mins(1)),
        http_proxy: gate.map(Gate::url),
        https_proxy: gate.map(Gate::url),
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

/// An image whose layers are here.
struct Image {
    name: String,
    layers: Vec<PathBuf>,
    bounds: Bounds,
    wanted: Wanted,
}

impl Image {
    fn unpack(&self, target: &Path, reserve: u64) -> Result<(), Error> {
        let refused = |error| Error::of_tree(&format!("image {}", self.name), target, error);
        let files = self.survey().map_err(refused)?;
        let root = playbooks(&files).ok_or_else(|| Error::NotKubespray {
            place: format!("image {}", self.name),
            missing: "directory with cluster.yml and roles",
        })?;
        let mut writer = Writer::new(target, self.bounds, reserve, self.wanted.clone())
            .map_err(FileError::of(target))?;
        self.extract(&files, &root, &mut writer).map_err(refused)?;
        // kubespray's own images were made with the requirements but do not hold the file.
        let requirements = Path::new("requirements.txt");
        if !writer.has(requirements) {
            let pins = installed(&files);
            if !pins.is_empty() {
                let written = writer.file(requirements, false, &mut pins.as_bytes());
                written.map_err(refused)?;
            }
        }
        writer.finish().map_err(refused)
    }

    /// Which entry of which layer every path ends up with.
    fn survey(&self) -> Result<BTreeMap<PathBuf, Place>, tree::Error> {
        let mut files = BTreeMap::new();
        let mut left = Left::of(&self.bounds);
        for (number, layer) in self.layers.iter().enumerate() {
            let mut brought = Vec::new();
            self.each_entry(layer, &mut left, |entry, _| {
                take_away(&entry, &mut files, &mut brought);
                Ok(())
            })?;
            for (index, path, is_directory) in brought {
                self.wanted.check()?;
                bring(path, is_directory, (number, index), &mut files);
            }
        }
        Ok(files)
    }

    fn extract(
        &self,
        files: &BTreeMap<PathBuf, Place>,
        root: &Path,
        writer: &mut Writer,
    ) -> Result<(), tree::Error> {
        let mut left = Left::of(&self.bounds);
        for (number, layer) in self.layers.iter().enumerate() {
            self.each_entry(layer, &mut left, |entry, content| {
                let Ok(inner) = entry.path.strip_prefix(root) else {
                    return Ok(());
                };
                if files.get(&entry.path) != Some(&(number, entry.index)) {
                    return Ok(());
                }
                match entry.kind {
                    EntryType::Symlink => writer.link(inner, &entry.link),
                    EntryType::Link => {
                        let first = clean(&entry.link);
                        let first = first
                            .as_deref()
                            .and_then(|first| first.strip_prefix(root).ok());
                        writer.hard_link(inner, first.ok_or(&entry.link))
                    }
                    kind if kind.is_file() => writer.file(inner, entry.mode & 0o100 != 0, content),
                    _ => Err(tree::Refusal::Kind(shown(inner)).into()),
                }
            })?;
        }
        Ok(())
    }

    /// Visits every entry of a layer. Long names are put together here: the library would keep as much of one in memory as
    /// the archive says there is.
    fn each_entry(
        &self,
        layer: &Path,
        left: &mut Left,
        mut visit: impl FnMut(Entry, &mut dyn Read) -> Result<(), tree::Error>,
    ) -> Result<(), tree::Error> {
        let mut archive = tar::Archive::new(Bounded {
            inner: open(layer)?,
            left: &mut left.bytes,
            most: self.bounds.unpacked,
            wanted: &self.wanted,
        });
        let mut given = Given::default();
        let mut index = 0_usize;
        for entry in archive.entries()?.raw(true) {
            let mut entry = entry?;
            left.entries = left.entries.checked_sub(1).ok_or_else(|| {
                let most = self.bounds.layer_entries as u64;
                tree::bound("the entries of all layers are", most, Path::new(&self.name))
            })?;
            let kind = entry.header().entry_type();
            if given.take(kind, &mut entry, self.bounds.path_bytes)? {
                continue;
            }
            let Given { path, link } = std::mem::take(&mut given);
            let path = match path {
                Some(path) => path,
                None => entry.path()?.into_owned(),
            };
            let link = match link {
                Some(link) => link,
                None => entry.link_name()?.unwrap_or_default().into_owned(),
            };
            let length = path.as_os_str().len() + link.as_os_str().len();
            left.names = left.names.checked_sub(length).ok_or_else(|| {
                let most = names(&self.bounds) as u64;
                tree::bound("the bytes of all paths are", most, Path::new(&self.name))
            })?;
            let found = Entry {
                index,
                path: clean(&path).ok_or_else(|| tree::Refusal::Path(shown(&path)))?,
                link,
                kind,
                mode: entry.header().mode()?,
            };
            visit(found, &mut entry)?;
            index = index.saturating_add(1);
        }
        Ok(())
    }
}

/// What of all layers may still come.
struct Left {
    bytes: u64,
    entries: usize,
    /// Bytes of paths, which are kept until all layers were read.
    names: usize,
}

impl Left {
    const fn of(bounds: &Bounds) -> Self {
        Self {
            bytes: bounds.unpacked,
            entries: bounds.layer_entries,
            names: names(bounds),
        }
    }
}

/// How many bytes all paths of an image may have: 64 MB where the entries are not bounded otherwise, ten times those of
/// kubespray's own.
const fn names(bounds: &Bounds) -> usize {
    bounds.layer_entries.saturating_mul(160)
}

/// An entry of a layer.
struct Entry {
    /// Its number in the layer.
    index: usize,
    /// Its path from the root of the image.
    path: PathBuf,
    /// Where it leads, if it is a link.
    link: PathBuf,
    kind: EntryType,
    mode: u32,
}

/// What entries before an entry say of it.
#[derive(Default)]
struct Given {
    path: Option<PathBuf>,
    link: Option<PathBuf>,
}

impl Given {
    /// Whether the entry is none of its own.
    fn take(
        &mut self,
        kind: EntryType,
        entry: &mut dyn Read,
        longest: usize,
    ) -> Result<bool, tree::Error> {
        match kind {
            EntryType::GNULongName => {
                self.path = Some(long(entry, longest)?);
                Ok(true)
            }
            EntryType::GNULongLink => {
                self.link = Some(long(entry, longest)?);
                Ok(true)
            }
            EntryType::XHeader => {
                self.extend(entry, longest)?;
                Ok(true)
            }
            EntryType::XGlobalHeader => Ok(true),
            EntryType::GNUSparse => Err(unreadable("a layer has files with holes")),
            _ => Ok(false),
        }
    }

    fn extend(&mut self, entry: &mut dyn Read, longest: usize) -> Result<(), tree::Error> {
        /// Attributes of a file may be as long.
        const MOST: u64 = 1 << 20;
        let mut text = Vec::new();
        entry.take(MOST).read_to_end(&mut text)?;
        if text.len() as u64 == MOST {
            return Err(unreadable("a layer says too much of a file"));
        }
        for said in PaxExtensions::new(&text) {
            let said = said?;
            match said.key_bytes() {
                b"path" => self.path = Some(not_longer(said.value_bytes(), longest)?),
                b"linkpath" => self.link = Some(not_longer(said.value_bytes(), longest)?),
                b"size" => return Err(unreadable("a layer has a file of more than 8 GiB")),
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err(unreadable("a layer has files with holes"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn long(entry: &mut dyn Read, longest: usize) -> Result<PathBuf, tree::Error> {
    let mut text = Vec::new();
    let most = longest_of(longest) as u64;
    entry.take(most.saturating_add(1)).read_to_end(&mut text)?;
    while text.last() == Some(&0) {
        text.pop();
    }
    not_longer(&text, longest)
}

fn not_longer(text: &[u8], longest: usize) -> Result<PathBuf, tree::Error> {
    let most = longest_of(longest);
    if text.len() > most {
        let shown = tree::path_of(text.get(..64).unwrap_or_default());
        return Err(tree::bound("a path is", most as u64, &shown));
    }
    Ok(tree::path_of(text))
}

/// As the kernel has it: what of the image is not of the playbooks may be longer than they may.
const fn longest_of(longest: usize) -> usize {
    if longest > 4096 { longest } else { 4096 }
}

fn unreadable(what: &str) -> tree::Error {
    tree::Error::Io(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// What a layer takes away of those below; the rest is what it brings.
fn take_away(
    entry: &Entry,
    files: &mut BTreeMap<PathBuf, Place>,
    brought: &mut Vec<(usize, PathBuf, bool)>,
) {
    let path = &entry.path;
    let name = path.file_name().map_or(&b""[..], OsStrExt::as_bytes);
    if name == b".wh..wh..opq" {
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        files.retain(|file, _| !file.starts_with(&directory));
    } else if let Some(gone) = name.strip_prefix(b".wh.") {
        let gone = path.with_file_name(OsStr::from_bytes(gone));
        files.retain(|file, _| !file.starts_with(&gone));
    } else {
        let is_directory = entry.kind == EntryType::Directory;
        brought.push((entry.index, path.clone(), is_directory));
    }
}

fn bring(path: PathBuf, is_directory: bool, place: Place, files: &mut BTreeMap<PathBuf, Place>) {
    // What is below a path makes a directory of it, whatever it was.
    for above in path.ancestors().skip(1) {
        files.remove(above);
    }
    if is_directory {
        files.remove(&path);
        return;
    }
    let below: Vec<_> = files
        .range(path.clone()..)
        .map(|(file, _)| file.clone())
        .take_while(|file| file.starts_with(&path))
        .collect();
    for file in below {
        files.remove(&file);
    }
    files.insert(path, place);
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

/// Reads no more than may be unpacked, and only while somebody waits for it.
struct Bounded<'a> {
    inner: Box<dyn Read>,
    left: &'a mut u64,
    most: u64,
    wanted: &'a Wanted,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wanted.check()?;
        let read = self.inner.read(buffer)?;
        *self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let most = self.most;
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the layers are more than {most} bytes unpacked"),
            )
        })?;
        Ok(read)
    }
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

#[cfg(test)]
mod tests;
