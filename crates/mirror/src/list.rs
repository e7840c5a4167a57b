//! What is wanted of a mirror.

use std::{collections::BTreeSet, fmt, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// What is wanted.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct List {
    /// Files, by their place.
    pub files: Vec<File>,
    /// Images, by their name.
    pub images: Vec<Image>,
}

/// A file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// What asks for it, for people.
    pub name: String,
    /// Where it is from.
    pub url: String,
    /// Where it lies in a mirror.
    pub place: Place,
    /// What it must be. None: nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// Where hosts ask for it: one place, unless their own variables name several sites. It is wanted at each.
    pub asked: BTreeSet<String>,
}

/// An image.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// What asks for it, for people.
    pub name: String,
    /// Where it is from.
    pub image: ImageName,
    /// The digest that it must have, as `sha256:HEX`. None: nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// For which processors it is wanted, by the names that images have for them.
    pub architectures: BTreeSet<String>,
    /// The registries that hosts ask, one after the other: one such row, unless their own variables name several. It is wanted of each.
    pub asked: BTreeSet<Vec<Endpoint>>,
}

/// A registry that hosts ask for an image.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Its host and port.
    pub registry: String,
    /// Whether it is asked by http.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clear: bool,
    /// Whether its certificate counts for nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
    /// The image's name there, without the registry.
    pub repository: String,
}

impl Endpoint {
    /// The registry that an image names, as clients of registries ask it: by https, but on this machine.
    pub fn of(image: &ImageName) -> Self {
        Self {
            registry: image.registry.clone(),
            clear: crate::client::is_loopback(&image.registry),
            unverified: false,
            repository: image.repository.clone(),
        }
    }
}

/// Why a text does not name what it should.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is no {what}: {rule}")]
pub struct InvalidName {
    /// The text.
    pub text: String,
    /// What it should name.
    pub what: &'static str,
    /// What makes one.
    pub rule: &'static str,
}

impl InvalidName {
    fn new(text: &str, what: &'static str, rule: &'static str) -> Self {
        Self {
            text: api::text::plain(text, 200),
            what,
            rule,
        }
    }
}

/// Where a file lies below the files of a mirror: plain names, one below the other, none of which leads elsewhere.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Place(String);

impl Place {
    /// The place of what a URL names: its host and path.
    ///
    /// # Errors
    ///
    /// It is no URL over HTTP, or names a user, a query or names that have no place in a directory.
    pub fn of_url(url: &str) -> Result<Self, InvalidName> {
        let refused = |rule| InvalidName::new(url, "address of a file", rule);
        let rest = url
            .strip_prefix("https://")
            .or_else(|| url.strip_prefix("http://"))
            .ok_or_else(|| refused("write https://HOST/PATH"))?;
        if rest.contains(['?', '#']) {
            return Err(refused("a query has no place in a mirror"));
        }
        let host = rest.split('/').next().unwrap_or_default();
        if host.contains('@') || !rest.contains('/') {
            return Err(refused("write https://HOST/PATH, without a user"));
        }
        rest.parse()
            .map_err(|error: InvalidName| refused(error.rule))
    }

    /// The place, relative to the directory of files.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(&self.0)
    }

    /// The place as a path of an address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Place {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |name: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+~@:,=%".contains(&byte);
            !name.is_empty()
                && name.len() <= 200
                && !name.starts_with('.')
                && name.bytes().all(plain)
        };
        if text.len() > 1024 || !text.split('/').all(is_name) {
            return Err(InvalidName::new(
                text,
                "place in a mirror",
                "names of letters, digits and ._-+~@:,=% that do not begin with a dot, with a slash between them, 1024 characters \
                 together",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Place {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        place.0
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of an image with its registry and its tag.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageName {
    /// The registry: a host, perhaps with a port.
    pub registry: String,
    /// The name below it, as in `coredns/coredns`.
    pub repository: String,
    /// The tag.
    pub tag: String,
}

/// Whether a text is the name of a repository below its registry.
pub(crate) fn is_repository(text: &str) -> bool {
    let is_part = |part: &str| {
        let plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        part.bytes().all(plain) && ends(part.bytes().next()) && ends(part.bytes().last())
    };
    text.len() <= 255 && text.split('/').all(is_part)
}

/// Whether a text is a tag.
pub(crate) fn is_tag(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with(['.', '-'])
}

impl FromStr for ImageName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |rule| InvalidName::new(text, "image", rule);
        let (name, tag) = text
            .rsplit_once(':')
            .filter(|(_, tag)| !tag.contains('/'))
            .ok_or_else(|| refused("write REGISTRY/NAME:TAG"))?;
        let (first, rest) = name.split_once('/').unwrap_or(("", name));
        // As every client of registries reads it.
        let is_host = first.contains(['.', ':']) || first == "localhost";
        let (registry, repository) = match (is_host, first) {
            (true, _) => (first, rest.to_owned()),
            (false, "") => ("docker.io", format!("library/{rest}")),
            (false, _) => ("docker.io", name.to_owned()),
        };
        let is_registry = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        if registry.len() > 255 || !registry.bytes().all(is_registry) {
            return Err(refused("the registry is a host, perhaps with a port"));
        }
        if !is_repository(&repository) || !is_tag(tag) {
            return Err(refused(
                "write REGISTRY/NAME:TAG, the name of small letters, digits, dots, dashes and slashes",
            ));
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository,
            tag: tag.to_owned(),
        })
    }
}

impl TryFrom<String> for ImageName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ImageName> for String {
    fn from(image: ImageName) -> Self {
        image.to_string()
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.registry, self.repository, self.tag)
    }
}

/// What a file must be: an algorithm and the digits of its sum.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Algorithm {
    Sha256,
    Sha384,
    Sha512,
}

const ALGORITHMS: [(&str, Algorithm, usize); 3] = [
    ("sha256", Algorithm::Sha256, 64),
    ("sha384", Algorithm::Sha384, 96),
    ("sha512", Algorithm::Sha512, 128),
];

impl Checksum {
    /// A sum by SHA-256.
    pub(crate) fn sha256(hex: String) -> Self {
        Self {
            algorithm: Algorithm::Sha256,
            hex,
        }
    }

    /// What computes such a sum.
    pub(crate) fn sum(&self) -> Sum {
        match self.algorithm {
            Algorithm::Sha256 => Sum::Sha256(Sha256::new()),
            Algorithm::Sha384 => Sum::Sha384(Sha384::new()),
            Algorithm::Sha512 => Sum::Sha512(Sha512::new()),
        }
    }
}

impl FromStr for Checksum {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || {
            InvalidName::new(
                text,
                "checksum",
                "write sha256:HEX, sha384:HEX or sha512:HEX",
            )
        };
        let (name, hex) = text.split_once(':').unwrap_or(("sha256", text));
        let hex = hex.to_ascii_lowercase();
        let mut algorithms = ALGORITHMS.into_iter();
        let (_, algorithm, length) = algorithms
            .find(|(known, ..)| *known == name)
            .ok_or_else(refused)?;
        if hex.len() != length || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(refused());
        }
        Ok(Self { algorithm, hex })
    }
}

impl TryFrom<String> for Checksum {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> Self {
        checksum.to_string()
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut algorithms = ALGORITHMS.iter();
        let found = algorithms.find(|(_, algorithm, _)| *algorithm == self.algorithm);
        let name = found.map_or("", |(name, ..)| name);
        write!(f, "{name}:{}", self.hex)
    }
}

/// A sum that is being computed.
pub(crate) enum Sum {
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Sum {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(sum) => sum.update(bytes),
            Self::Sha384(sum) => sum.update(bytes),
            Self::Sha512(sum) => sum.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Checksum {
        let (algorithm, hex) = match self {
            Self::Sha256(sum) => (Algorithm::Sha256, hex::encode(sum.finalize())),
            Self::Sha384(sum) => (Algorithm::Sha384, hex::encode(sum.finalize())),
            Self::Sha512(sum) => (Algorithm::Sha512, hex::encode(sum.finalize())),
        };
        Checksum { algorithm, hex }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for url in [
            "https://host/../etc/passwd",
            "https://../etc/passwd",
            "https://host//etc",
            "https://host/a/./b",
            "https://host/a\\b",
            "https://host/a b",
            "https://host/\0",
            "https://host/.hidden",
            "https://host/a?b=c",
            "https://u:p@host/a",
            "https://host",
            "file:///etc/passwd",
            "ftp://host/a",
            "",
        ] {
            assert!(Place::of_url(url).is_err(), "{url}");
        }
        let place = Place::of_url("https://dl.k8s.io/release/v1.34.3/bin/linux/amd64/kubelet");
        assert_eq!(
            place.unwrap().as_str(),
            "dl.k8s.io/release/v1.34.3/bin/linux/amd64/kubelet"
        );
        for image in [
            "registry.k8s.io/../x:1",
            "registry.k8s.io/a/../../x:1",
            "registry.k8s.io/.a:1",
            "registry.k8s.io//a:1",
            "registry.k8s.io/a:..",
            "registry.k8s.io/a:.x",
            "registry.k8s.io/a:b/c",
            "registry.k8s.io/A:1",
            "registry.k8s.io/a",
            "re/gis.try/a@b:1",
            ":1",
            "",
        ] {
            assert!(image.parse::<ImageName>().is_err(), "{image}");
        }
    }

    #[test]
    fn an_image_is_named_as_clients_of_registries_read_it() {
        for (text, read) in [
            ("nginx:1.2", "docker.io/library/nginx:1.2"),
            ("flannel/flannel:v1", "docker.io/flannel/flannel:v1"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            ("localhost:5000/a/b:1", "localhost:5000/a/b:1"),
        ] {
            assert_eq!(text.parse::<ImageName>().unwrap().to_string(), read);
        }
    }

    #[test]
    fn a_checksum_is_one_of_the_known_kinds() {
        let hex = "a".repeat(64);
        for (text, good) in [
            (hex.clone(), true),
            (format!("sha256:{hex}"), true),
            (format!("sha512:{hex}{hex}"), true),
            (format!("sha512:{hex}"), false),
            (format!("md5:{}", "a".repeat(32)), false),
            ("built-from-source".to_owned(), false),
            ("0".to_owned(), false),
        ] {
            assert_eq!(text.parse::<Checksum>().is_ok(), good, "{text}");
        }
    }

    #[test]
    fn names_survive_fuzzing() {
        let corpus = [
            "https://github.com/a/b",
            "quay.io/calico/node:v3",
            "sha256:00",
        ];
        fuzz::text("names", &corpus, |text| {
            if let Ok(place) = Place::of_url(text) {
                let path = place.path();
                let mut parts = path.components();
                assert!(parts.all(|part| matches!(part, std::path::Component::Normal(_))));
            }
            if let Ok(image) = text.parse::<ImageName>() {
                assert_eq!(image.to_string().parse(), Ok(image));
            }
            if let Ok(checksum) = text.parse::<Checksum>() {
                assert_eq!(checksum.to_string().parse(), Ok(checksum));
            }
        });
    }
}
