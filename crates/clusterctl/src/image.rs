//! References of container images, and what replaces their parts.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::LazyLock};

use regex::Regex;
use serde::Deserialize;

use crate::Provider;

/// A reference of an image whose registry is written out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Everything before the last slash, as in `registry.k8s.io/cluster-api`.
    pub repository: String,
    /// What follows it, as in `cluster-api-controller`.
    pub name: String,
    /// The tag, as in `v1.14.2`.
    pub tag: Option<String>,
    /// The digest, as in `sha256:…`.
    pub digest: Option<String>,
}

/// Why a text is no such reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidImage {
    /// No reference at all.
    #[error("image {0:?} is no reference; write REGISTRY/NAME:TAG in lower case")]
    Form(String),
    /// The registry or `library` is left out.
    #[error(
        "image {0:?} leaves out its registry; write it out, such as docker.io/library/NAME:TAG"
    )]
    NonCanonical(String),
}

/// What is done with an image whose registry is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonCanonical {
    /// It is an error, as with clusterctl.
    #[default]
    Refuse,
    /// It stays as it is, as with the existing operator.
    Keep,
}

/// What replaces the parts of an image. What is missing or empty stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageOverride {
    /// Everything before the last slash.
    pub repository: Option<String>,
    /// What follows it.
    pub name: Option<String>,
    /// The tag.
    pub tag: Option<String>,
}

/// The overrides of a configuration: for `all` images, for those of a component, for one image of a component as in
/// `infrastructure-docker/capd-manager`. The more exact one wins, part by part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ImageOverrides(pub BTreeMap<String, ImageOverride>);

impl ImageOverrides {
    /// The image that a provider's image becomes.
    ///
    /// # Errors
    ///
    /// A text that is no reference of an image.
    pub fn apply(
        &self,
        provider: &Provider,
        image: &str,
        non_canonical: NonCanonical,
    ) -> Result<String, InvalidImage> {
        let mut parsed: Image = match image.parse() {
            Err(InvalidImage::NonCanonical(_)) if non_canonical == NonCanonical::Keep => {
                return Ok(image.to_owned());
            }
            other => other?,
        };
        if self.0.is_empty() {
            return Ok(image.to_owned());
        }
        let component = provider.manifest_label();
        let exact = format!("{component}/{}", parsed.name);
        let layers = ["all", &component, &exact].map(|key| self.0.get(key));
        let last = |part: fn(&ImageOverride) -> &Option<String>| {
            let mut given = layers
                .iter()
                .flatten()
                .filter_map(|layer| part(layer).clone());
            given.rfind(|text| !text.is_empty())
        };
        if let Some(repository) = last(|layer| &layer.repository) {
            let trimmed = repository.strip_suffix('/').unwrap_or(&repository);
            trimmed.clone_into(&mut parsed.repository);
        }
        if let Some(name) = last(|layer| &layer.name) {
            parsed.name = name;
        }
        parsed.tag = last(|layer| &layer.tag).or(parsed.tag);
        Ok(parsed.to_string())
    }
}

impl FromStr for Image {
    type Err = InvalidImage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || InvalidImage::Form(text.chars().take(300).collect());
        let parts = REFERENCE
            .as_ref()
            .and_then(|reference| reference.captures(text))
            .ok_or_else(form)?;
        let part = |name: &str| parts.name(name).map(|found| found.as_str());
        let path = part("path").ok_or_else(form)?;
        if path.len() > LONGEST_NAME || IDENTIFIER.as_ref().is_some_and(|id| id.is_match(text)) {
            return Err(form());
        }
        let Some((repository, name)) = path.rsplit_once('/') else {
            return Err(InvalidImage::NonCanonical(text.to_owned()));
        };
        let first = repository.split('/').next().unwrap_or_default();
        let is_host = first == "localhost"
            || first.contains(['.', ':'])
            || first
                .chars()
                .any(|character| character.is_ascii_uppercase());
        let is_short = first == "index.docker.io" || repository == "docker.io";
        if !is_host || is_short {
            return Err(InvalidImage::NonCanonical(text.to_owned()));
        }
        Ok(Self {
            repository: repository.to_owned(),
            name: name.to_owned(),
            tag: part("tag").map(str::to_owned),
            digest: part("digest").map(str::to_owned),
        })
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.repository, self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// The grammar of references: an optional host, components in lower case, an optional tag, an optional digest.
static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let component = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*";
    let label = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    let host = format!(r"(?:{label}(?:\.{label})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
    let digest = r"(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})";
    let whole = format!(
        r"^(?<path>(?:{host}/)?{component}(?:/{component})*)(?::(?<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?(?:@(?<digest>{digest}))?$"
    );
    Regex::new(&whole).ok()
});

/// 64 digits of base 16 are the identifier of an image, not a name.
static IDENTIFIER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("^[a-f0-9]{64}$").ok());

const LONGEST_NAME: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProviderType;

    fn overrides(texts: &[(&str, [Option<&str>; 3])]) -> ImageOverrides {
        let entry = |(key, [repository, name, tag]): &(&str, [Option<&str>; 3])| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            let layer = ImageOverride {
                repository: own(*repository),
                name: own(*name),
                tag: own(*tag),
            };
            ((*key).to_owned(), layer)
        };
        ImageOverrides(texts.iter().map(entry).collect())
    }

    #[test]
    fn the_more_exact_override_wins_part_by_part() {
        let overrides = overrides(&[
            ("all", [Some("mirror.example/all/"), None, Some("v9")]),
            (
                "infrastructure-docker",
                [Some("mirror.example/docker"), None, None],
            ),
            (
                "infrastructure-docker/manager",
                [None, Some("boss"), Some("")],
            ),
        ]);
        let docker = Provider::new(ProviderType::Infrastructure, "docker").unwrap();
        let core = Provider::new(ProviderType::Core, "cluster-api").unwrap();
        let apply = |provider: &Provider, image: &str| {
            overrides
                .apply(provider, image, NonCanonical::Refuse)
                .unwrap()
        };
        assert_eq!(
            apply(&docker, "r.example/a/manager:v1"),
            "mirror.example/docker/boss:v9"
        );
        assert_eq!(
            apply(&docker, "r.example/a/proxy:v1"),
            "mirror.example/docker/proxy:v9"
        );
        assert_eq!(
            apply(&core, "r.example:5000/manager"),
            "mirror.example/all/manager:v9"
        );
        let digest = format!("sha256:{}", "0".repeat(64));
        assert_eq!(
            apply(&core, &format!("r.example/manager@{digest}")),
            format!("mirror.example/all/manager:v9@{digest}")
        );
    }

    #[test]
    fn references_are_those_of_images() {
        for image in [
            "r.example/a:v1",
            "localhost/a",
            "r:5000/a/b_c/d--e:1.0",
            "[::1]:5000/a",
            "docker.io/library/nginx",
            "HOST/a",
        ] {
            assert_eq!(
                image
                    .parse::<Image>()
                    .map(|image| image.to_string())
                    .as_deref(),
                Ok(image)
            );
        }
        for image in [
            "nginx",
            "nginx:1",
            "library/nginx",
            "docker.io/nginx",
            "index.docker.io/library/nginx",
        ] {
            assert!(
                matches!(image.parse::<Image>(), Err(InvalidImage::NonCanonical(_))),
                "{image}"
            );
        }
        let long = format!("r.example/{}", "a".repeat(250));
        for image in [
            "",
            "r.example/",
            "r.example/A",
            "r.example/a:",
            "r.example/a@sha256:00",
            "r.example/a b",
            "https://r.example/a",
            &long,
        ] {
            assert!(
                matches!(image.parse::<Image>(), Err(InvalidImage::Form(_))),
                "{image}"
            );
        }
    }

    #[test]
    fn a_registry_that_is_left_out_is_refused_or_kept() {
        let core = Provider::new(ProviderType::Core, "cluster-api").unwrap();
        let overrides = overrides(&[("all", [Some("mirror.example"), None, None])]);
        assert!(
            overrides
                .apply(&core, "nginx:1", NonCanonical::Refuse)
                .is_err()
        );
        assert_eq!(
            overrides
                .apply(&core, "nginx:1", NonCanonical::Keep)
                .as_deref(),
            Ok("nginx:1")
        );
        assert!(
            overrides
                .apply(&core, "ng inx", NonCanonical::Keep)
                .is_err()
        );
    }
}
