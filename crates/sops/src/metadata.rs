//! What SOPS keeps in a document of its own: for whom the key is encrypted, by which rule values are, and their digest.

use regex::{Regex, RegexBuilder};
use sha2::{Digest as _, Sha256, Sha512};

use crate::{
    document::Node,
    scalar::Scalar,
    value::{DataKey, is_sealed},
};

/// The field of a document that SOPS keeps it in.
pub(crate) const FIELD: &str = "sops";

/// What there is.
pub(crate) struct Metadata {
    pub(crate) recipients: Vec<Recipient>,
    pub(crate) rule: Rule,
    pub(crate) digests_encrypted_alone: bool,
    digest: String,
    modified: String,
}

/// One who may read the document.
pub(crate) struct Recipient {
    /// The public key.
    pub(crate) public: String,
    /// The document's key, encrypted for it.
    pub(crate) sealed: String,
}

/// Which values are encrypted.
pub(crate) enum Rule {
    NotBelowEnd(String),
    BelowEnd(String),
    NotBelow(Regex),
    Below(Regex),
    /// By comments above them. Which comment is above what is a matter of Go's reader of YAML; a value that is encrypted shows it.
    Shown,
}

impl Rule {
    /// Whether it speaks of a name, and so of all that stands below it.
    pub(crate) fn names(&self, name: &str) -> bool {
        match self {
            Self::NotBelowEnd(end) | Self::BelowEnd(end) => name.ends_with(end.as_str()),
            Self::NotBelow(regex) | Self::Below(regex) => regex.is_match(name),
            Self::Shown => false,
        }
    }

    /// Whether a value is encrypted that stands below a name of which the rule speaks, or below none.
    pub(crate) fn encrypts(&self, below: Below, scalar: &Scalar) -> bool {
        match self {
            Self::NotBelowEnd(_) | Self::NotBelow(_) => below == Below::None,
            Self::BelowEnd(_) | Self::Below(_) => below == Below::Named,
            Self::Shown => matches!(scalar, Scalar::Text(text) if is_sealed(text)),
        }
    }
}

/// Whether a place is below a name of which the rule speaks.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Below {
    None,
    Named,
}

/// What is not as SOPS writes it, or more than is understood here.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// A field is missing or of another type.
    #[error("{0} is missing, or not as SOPS writes it")]
    Field(String),
    /// SOPS of another generation wrote it.
    #[error(
        "sops.version: it was written by SOPS {0}, and files of SOPS 3 are read: encrypt it anew with that"
    )]
    Version(String),
    /// Several groups of keys are needed together.
    #[error(
        "sops.key_groups: it needs keys of several groups together (Shamir's sharing), which is not done here: encrypt it for one group with a public key of age"
    )]
    Groups,
    /// Only services hold keys.
    #[error(
        "sops: it is encrypted for {0} alone, which is not asked: add a public key of age, with `sops rotate --in-place --add-age KEY FILE`"
    )]
    Services(String),
    /// It is encrypted for nobody.
    #[error("sops: it names no key that it is encrypted for")]
    Nobody,
    /// It is encrypted for very many.
    #[error("sops.age: it is encrypted for more than 100 keys")]
    Many,
    /// More than one rule says what is encrypted.
    #[error("sops: more than one of {0} is set, of which SOPS takes one")]
    Rules(String),
    /// A rule is no regular expression.
    #[error("sops.{0}: it is no regular expression that is understood here")]
    Rule(&'static str),
}

impl Metadata {
    /// Takes it out of the documents. It stands in each, and that of the first counts.
    pub(crate) fn take(documents: &mut [Node]) -> Result<Self, MetadataError> {
        let mut taken = Vec::new();
        for document in documents {
            let Node::Map(fields) = document else {
                continue;
            };
            let own = fields.iter().position(|(name, _)| name == FIELD);
            taken.push(own.map(|own| fields.remove(own).1));
        }
        match taken.into_iter().next().flatten() {
            Some(Node::Map(fields)) => Self::of(&Fields(&fields)),
            _ => Err(MetadataError::Field("sops".to_owned())),
        }
    }

    fn of(fields: &Fields<'_>) -> Result<Self, MetadataError> {
        let version = fields.required("version")?;
        if version.split('.').next() != Some("3") {
            let version = version.chars().take(40).collect();
            return Err(MetadataError::Version(version));
        }
        Ok(Self {
            recipients: recipients(fields)?,
            rule: rule(fields)?,
            digests_encrypted_alone: match fields.node("mac_only_encrypted") {
                None => false,
                Some(Node::Scalar(Scalar::Bool(value))) => *value,
                Some(_) => return Err(missing("mac_only_encrypted")),
            },
            digest: fields.required("mac")?,
            modified: fields.required("lastmodified")?,
        })
    }

    /// A digest of no value yet.
    pub(crate) fn digest(&self) -> Sha512 {
        let mut digest = Sha512::new();
        if self.digests_encrypted_alone {
            // So that it is never a digest of all.
            digest.update(Sha256::digest(FIELD));
        }
        digest
    }

    /// Whether that digest is the one that SOPS made.
    pub(crate) fn fits(&self, key: &DataKey, digest: &str) -> bool {
        let made = key.unseal(&self.digest, &self.modified);
        made.is_ok_and(|(made, _)| made.as_slice() == digest.as_bytes())
    }
}

/// Those with a key of age.
fn recipients(fields: &Fields<'_>) -> Result<Vec<Recipient>, MetadataError> {
    let at_top = SERVICES
        .iter()
        .any(|(name, _)| !fields.list(name).is_empty());
    let groups = fields.list("key_groups");
    let group;
    let fields = match groups {
        _ if at_top || !fields.list("age").is_empty() => fields,
        [] => return Err(MetadataError::Nobody),
        [Node::Map(only)] => {
            group = Fields(only);
            &group
        }
        _ => return Err(MetadataError::Groups),
    };
    let age = fields.list("age");
    if age.is_empty() {
        let others = SERVICES
            .iter()
            .filter(|(name, _)| !fields.list(name).is_empty());
        let others: Vec<_> = others.map(|(_, service)| *service).collect();
        return Err(if others.is_empty() {
            MetadataError::Nobody
        } else {
            MetadataError::Services(others.join(" and "))
        });
    }
    if age.len() > MOST_RECIPIENTS {
        return Err(MetadataError::Many);
    }
    let recipients = age.iter().map(|entry| {
        let Node::Map(entry) = entry else {
            return Err(missing("age"));
        };
        let entry = Fields(entry);
        Ok(Recipient {
            public: entry
                .text("recipient")
                .ok_or_else(|| missing("age.recipient"))?
                .chars()
                .take(100)
                .collect(),
            sealed: entry.text("enc").ok_or_else(|| missing("age.enc"))?,
        })
    });
    recipients.collect()
}

fn rule(fields: &Fields<'_>) -> Result<Rule, MetadataError> {
    let set = RULES
        .into_iter()
        .filter_map(|name| Some((name, fields.text(name).filter(|text| !text.is_empty())?)));
    let set: Vec<(&'static str, String)> = set.collect();
    let regex = |name, text: &str| {
        let built = RegexBuilder::new(text).size_limit(LARGEST_RULE).build();
        built.map_err(|_| MetadataError::Rule(name))
    };
    match set.as_slice() {
        [] => Ok(Rule::NotBelowEnd(USUAL_END.to_owned())),
        [(name @ "unencrypted_regex", text)] => Ok(Rule::NotBelow(regex(name, text)?)),
        [(name @ "encrypted_regex", text)] => Ok(Rule::Below(regex(name, text)?)),
        [("unencrypted_suffix", text)] => Ok(Rule::NotBelowEnd(text.clone())),
        [("encrypted_suffix", text)] => Ok(Rule::BelowEnd(text.clone())),
        [_] => Ok(Rule::Shown),
        several => {
            let names: Vec<_> = several.iter().map(|(name, _)| *name).collect();
            Err(MetadataError::Rules(names.join(", ")))
        }
    }
}

/// The fields of a map.
struct Fields<'a>(&'a [(String, Node)]);

impl Fields<'_> {
    fn node(&self, name: &str) -> Option<&Node> {
        let mut fields = self.0.iter();
        fields.find_map(|(of, node)| (of == name).then_some(node))
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.node(name)? {
            Node::Scalar(scalar @ (Scalar::Text(_) | Scalar::Time(_) | Scalar::Float(_))) => {
                Some(scalar.text())
            }
            _ => None,
        }
    }

    fn required(&self, name: &str) -> Result<String, MetadataError> {
        self.text(name).ok_or_else(|| missing(name))
    }

    fn list(&self, name: &str) -> &[Node] {
        match self.node(name) {
            Some(Node::List(items)) => items,
            _ => &[],
        }
    }
}

fn missing(name: &str) -> MetadataError {
    MetadataError::Field(format!("{FIELD}.{name}"))
}

/// The services that hold keys, by the field of those that a document is encrypted for.
const SERVICES: [(&str, &str); 6] = [
    ("pgp", "PGP"),
    ("kms", "KMS of AWS"),
    ("gcp_kms", "KMS of Google"),
    ("hckms", "KMS of Huawei"),
    ("azure_kv", "Key Vault of Azure"),
    ("hc_vault", "Vault"),
];

/// The rules, of which SOPS takes one.
const RULES: [&str; 6] = [
    "unencrypted_suffix",
    "encrypted_suffix",
    "unencrypted_regex",
    "encrypted_regex",
    "unencrypted_comment_regex",
    "encrypted_comment_regex",
];

/// How names end whose values are left in the open, where no rule says so.
const USUAL_END: &str = "_unencrypted";

/// Each is tried with each private key.
const MOST_RECIPIENTS: usize = 100;

/// In bytes of memory: an expression of a few characters may take very many.
const LARGEST_RULE: usize = 1 << 20;
