//! Labels as data: what each is, and what it does. Pure.
//!
//! A label is text, whatever it means, and a word that nothing reads is easily taken for one that works. So every label that
//! Windlass, the Cluster API drivers of Magnum or its former Heat driver knows has a row here. What is asked for is checked by it,
//! what builds a cluster reads by it, and the table of `docs/magnum.md` is made of it. What has no row is no error, for people keep
//! words of their own there, but it is told.

use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr};

use api::magnum::CoeClusterSpec;

mod table;

pub use table::LABELS;

/// Labels as they are kept.
pub type Labels = BTreeMap<String, String>;

/// A label.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// What holds where it is not given, for people.
    pub default: &'static str,
    /// What it does.
    pub effect: Effect,
}

/// What a value is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Yes or no.
    Flag,
    /// A whole number, from the first to the last.
    Count(u32, u32),
    /// A range of addresses, as 10.0.0.0/16.
    Range,
    /// Such ranges, with commas between them.
    Ranges,
    /// A version of Kubernetes, with or without a v in front.
    Version,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A word without spaces, of at most 255 characters.
    Name,
    /// Such words, with commas between them.
    Names,
    /// Anything.
    Text,
}

/// What a label does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// This, of any cluster.
    All(&'static str),
    /// This, of a cluster of virtual machines.
    Vm(&'static str),
    /// Nothing here.
    None,
}

/// A value that is none of its label's.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{label}: {rule}")]
pub struct Wrong {
    /// The label.
    pub label: &'static str,
    /// The value.
    pub value: String,
    /// What values there are.
    pub rule: String,
}

/// Checks every label that has a row.
///
/// # Errors
///
/// A value is not what its label's are. A label that has no row is no error.
pub fn check(labels: &Labels) -> Result<(), Wrong> {
    for label in &LABELS {
        let Some(value) = labels.get(label.name) else {
            continue;
        };
        if !label.kind.has(value) {
            return Err(Wrong {
                label: label.name,
                value: value.clone(),
                rule: label.kind.rule(),
            });
        }
    }
    Ok(())
}

/// What people should know of the labels of a cluster and its groups: those that do nothing. None: there are no such.
pub fn notice(cluster: &CoeClusterSpec) -> Option<String> {
    let server = cluster.server_type.unwrap_or_default();
    let groups = cluster.node_groups.iter().flat_map(|group| &group.labels);
    let names = cluster.labels.iter().chain(groups).map(|(name, _)| name);
    let (mut unknown, mut idle) = (Vec::new(), Vec::new());
    for name in names {
        let row = LABELS.iter().find(|label| label.name == name);
        let into = match row.map(|label| label.effect) {
            None => &mut unknown,
            Some(Effect::None) => &mut idle,
            Some(Effect::Vm(_)) if !server.has_machines() => &mut idle,
            Some(_) => continue,
        };
        into.push(name.as_str());
    }
    let told = |names: &mut Vec<&str>, what: &str| {
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
    };
    let parts = [
        told(&mut unknown, "labels that are not known"),
        told(&mut idle, "labels without effect here"),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Whether a flag is set. None: nothing is said, or nothing that can be understood.
pub fn flag(labels: &Labels, name: &str) -> Option<bool> {
    truth(labels.get(name)?)
}

/// A number.
pub fn count(labels: &Labels, name: &str) -> Option<u32> {
    labels.get(name)?.trim().parse().ok()
}

/// Words with commas between them.
pub fn names(labels: &Labels, name: &str) -> Vec<String> {
    let text = labels.get(name).map_or("", String::as_str);
    let parts = text.split(',').map(str::trim);
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// The rows as the guide shows them.
pub fn guide() -> String {
    let mut text = String::from("| label | value | default | what it does |\n|---|---|---|---|\n");
    let mut row = |label: &Label, effect: &str| {
        let default = match label.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        // A String takes everything.
        let _ = writeln!(
            text,
            "| `{}` | {} | {default} | {effect} |",
            label.name,
            label.kind.rule()
        );
    };
    for label in &LABELS {
        match label.effect {
            Effect::All(effect) => row(label, &format!("{effect}; also with `bm`")),
            Effect::Vm(effect) => row(label, effect),
            Effect::None => {}
        }
    }
    let idle = LABELS.iter().filter(|label| label.effect == Effect::None);
    let idle: Vec<_> = idle.map(|label| format!("`{}`", label.name)).collect();
    let _ = write!(
        text,
        "\nKnown and checked, but without effect here: {}.\n",
        idle.join(", ")
    );
    text
}

impl Kind {
    /// Whether this is such a value.
    fn has(self, value: &str) -> bool {
        let value = value.trim();
        let is_name = |part: &str| {
            let fits = (1..=255).contains(&part.len());
            fits && !part.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        let mut parts = value.split(',').map(str::trim);
        match self {
            Self::Flag => truth(value).is_some(),
            Self::Count(least, most) => value
                .parse::<u32>()
                .is_ok_and(|count| (least..=most).contains(&count)),
            Self::Range => is_range(value),
            Self::Ranges => parts.all(is_range),
            Self::Version => {
                let plain = value.strip_prefix('v').unwrap_or(value);
                plain.parse::<api::KubernetesVersion>().is_ok()
            }
            Self::Word(words) => words.contains(&value),
            Self::Name => is_name(value),
            Self::Names => parts.all(is_name),
            Self::Text => true,
        }
    }

    /// What values there are.
    fn rule(self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Count(least, most) => format!("a number from {least} to {most}"),
            Self::Range => "a range of addresses, as 10.0.0.0/16".to_owned(),
            Self::Ranges => "ranges of addresses with commas between them".to_owned(),
            Self::Version => "a version, as v1.34.3".to_owned(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Name => "a word of at most 255 characters".to_owned(),
            Self::Names => "words with commas between them".to_owned(),
            Self::Text => "text".to_owned(),
        }
    }
}

/// As `OpenStack` reads truth.
fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "t" | "true" | "on" | "y" | "yes" => Some(true),
        "0" | "f" | "false" | "off" | "n" | "no" => Some(false),
        _ => None,
    }
}

fn is_range(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
    is_number && length.parse::<u8>().is_ok_and(|length| length <= most)
}

#[cfg(test)]
mod tests;
