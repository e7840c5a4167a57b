//! Host patterns as Ansible reads them, so far as kubespray writes them.

use std::collections::{BTreeMap, HashSet};

use api::HostName;
use serde_json::{Map, Value};

/// What a pattern selects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Targets {
    /// The hosts, in the order in which Ansible counts them.
    pub hosts: Vec<HostName>,
    /// Whether the play works on the machine that runs Ansible.
    pub localhost: bool,
}

/// Why a pattern selects nothing that can be said.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PatternError {
    /// A template that is more than a variable with a default.
    #[error(
        "resolve the host pattern {pattern:?}: only {{{{ name }}}} and {{{{ name | default('text') }}}} can be resolved before a run"
    )]
    Template {
        /// The pattern.
        pattern: String,
    },
    /// A variable that has no value.
    #[error("resolve the host pattern {pattern:?}: the variable {variable} has no value")]
    Undefined {
        /// The pattern.
        pattern: String,
        /// The variable.
        variable: String,
    },
    /// A form that kubespray does not use.
    #[error("read the host pattern {pattern:?}: regular expressions and files are not supported")]
    Unsupported {
        /// The pattern.
        pattern: String,
    },
}

/// Puts the values of variables into a pattern.
///
/// # Errors
///
/// A template is more than a variable with a default, or names a variable without a value.
pub fn resolve(pattern: &str, variables: &Map<String, Value>) -> Result<String, PatternError> {
    let mut resolved = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once("{{") {
        let template = || PatternError::Template {
            pattern: pattern.to_owned(),
        };
        let (expression, after) = after.split_once("}}").ok_or_else(template)?;
        resolved.push_str(before);
        resolved.push_str(&expand(pattern, expression, variables)?);
        rest = after;
    }
    resolved.push_str(rest);
    Ok(resolved)
}

fn expand(
    pattern: &str,
    expression: &str,
    variables: &Map<String, Value>,
) -> Result<String, PatternError> {
    let template = || PatternError::Template {
        pattern: pattern.to_owned(),
    };
    let (name, filter) = match expression.split_once('|') {
        Some((name, filter)) => (name.trim(), Some(filter.trim())),
        None => (expression.trim(), None),
    };
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(word) {
        return Err(template());
    }
    let default = filter
        .map(|filter| default(filter).ok_or_else(template))
        .transpose()?;
    match variables.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(items)) => {
            let names: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            Ok(names.join(","))
        }
        Some(_) => Err(template()),
        None => default.ok_or_else(|| PatternError::Undefined {
            pattern: pattern.to_owned(),
            variable: name.to_owned(),
        }),
    }
}

/// The text of `default('text')`.
fn default(filter: &str) -> Option<String> {
    let inner = filter
        .strip_prefix("default(")
        .or_else(|| filter.strip_prefix("d("))?;
    let inner = inner.strip_suffix(')')?.trim();
    let quoted = |quote: char| inner.strip_prefix(quote)?.strip_suffix(quote);
    let text = quoted('\'').or_else(|| quoted('"'))?;
    (!text.contains(['\'', '"'])).then(|| text.to_owned())
}

/// The hosts that a pattern without templates selects from groups. `all` must be among the groups.
///
/// # Errors
///
/// A part is a regular expression or names a file. That it selects nothing is no error.
///
/// # Source
/// ansible-core `lib/ansible/inventory/manager.py`: plain parts are united in order, then `&` parts intersect, then `!`
/// parts are taken away, wherever they stand.
pub fn select(
    pattern: &str,
    groups: &BTreeMap<String, Vec<HostName>>,
) -> Result<Targets, PatternError> {
    let parts = split(pattern);
    let (mut plain, mut intersect, mut remove) = (Vec::new(), Vec::new(), Vec::new());
    for part in &parts {
        if part.starts_with(['~', '@']) {
            return Err(PatternError::Unsupported {
                pattern: pattern.to_owned(),
            });
        }
        match part
            .strip_prefix('&')
            .map(|p| (&mut intersect, p))
            .or_else(|| part.strip_prefix('!').map(|p| (&mut remove, p)))
        {
            Some((list, part)) => list.push(part),
            None => plain.push(part.as_str()),
        }
    }
    if plain.is_empty() && !parts.is_empty() {
        plain.push("all");
    }
    let found: Vec<Targets> = plain.into_iter().map(|part| one(part, groups)).collect();
    let mut targets = Targets {
        hosts: distinct(found.iter().flat_map(|found| &found.hosts)),
        localhost: found.iter().any(|found| found.localhost),
    };
    for part in intersect {
        let found = one(part, groups);
        let those: HashSet<_> = found.hosts.iter().collect();
        targets.hosts.retain(|host| those.contains(host));
        targets.localhost &= found.localhost;
    }
    for part in remove {
        let found = one(part, groups);
        let those: HashSet<_> = found.hosts.iter().collect();
        targets.hosts.retain(|host| !those.contains(host));
        targets.localhost &= !found.localhost;
    }
    Ok(targets)
}

/// At commas if there are any, else at colons and white space outside brackets.
fn split(pattern: &str) -> Vec<String> {
    if pattern.contains(',') {
        let parts = pattern
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        return parts.map(str::to_owned).collect();
    }
    let mut parts = vec![String::new()];
    let mut inside = false;
    for c in pattern.chars() {
        inside = (inside || c == '[') && c != ']';
        match parts.last_mut() {
            Some(part) if inside || !(c == ':' || c.is_whitespace()) => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Each host once, where it stands first.
pub(crate) fn distinct<'a>(hosts: impl IntoIterator<Item = &'a HostName>) -> Vec<HostName> {
    let mut seen = HashSet::new();
    let hosts = hosts.into_iter().filter(|host| seen.insert(*host));
    hosts.cloned().collect()
}

fn one(part: &str, groups: &BTreeMap<String, Vec<HostName>>) -> Targets {
    let (name, subscript) = subscript(part);
    let matched: Vec<_> = groups
        .iter()
        .filter(|(group, _)| glob(name, group))
        .collect();
    let by_name = matched.is_empty() || name.contains(['.', '?', '*', '[']);
    let all = groups.get("all").filter(|_| by_name).into_iter().flatten();
    let named = all.filter(|host| glob(name, host.as_str()));
    let hosts = distinct(
        matched
            .into_iter()
            .flat_map(|(_, members)| members)
            .chain(named),
    );
    let localhost = hosts.is_empty() && LOCALHOST.contains(&name);
    Targets {
        hosts: subscript.map_or_else(|| hosts.clone(), |range| range.of(&hosts)),
        localhost,
    }
}

/// A subscript: one place, or a range with both ends.
#[derive(Clone, Copy)]
enum Subscript {
    At(i64),
    Range(usize, Option<usize>),
}

impl Subscript {
    fn of(self, hosts: &[HostName]) -> Vec<HostName> {
        match self {
            Self::At(place) => {
                let length = i64::try_from(hosts.len()).unwrap_or(i64::MAX);
                let place = if place < 0 {
                    place.saturating_add(length)
                } else {
                    place
                };
                let host = usize::try_from(place)
                    .ok()
                    .and_then(|place| hosts.get(place));
                host.into_iter().cloned().collect()
            }
            Self::Range(from, to) => {
                let last = to.unwrap_or(usize::MAX);
                let places = hosts
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| (from..=last).contains(place));
                places.map(|(_, host)| host.clone()).collect()
            }
        }
    }
}

fn subscript(part: &str) -> (&str, Option<Subscript>) {
    let parsed = part
        .strip_suffix(']')
        .and_then(|rest| rest.rsplit_once('['))
        .and_then(|(name, inner)| {
            if let Ok(place) = inner.parse::<i64>() {
                return Some((name, Subscript::At(place)));
            }
            let (from, to) = inner.split_once([':', '-'])?;
            let to = if to.is_empty() {
                None
            } else {
                Some(to.parse().ok()?)
            };
            Some((name, Subscript::Range(from.parse().ok()?, to)))
        });
    match parsed {
        Some((name, subscript)) if !name.is_empty() => (name, Some(subscript)),
        _ => (part, None),
    }
}

/// Whether a pattern with `*` and `?` fits a text.
fn glob(pattern: &str, text: &str) -> bool {
    let mut fits = vec![true];
    let text: Vec<char> = text.chars().collect();
    fits.resize(text.len().saturating_add(1), false);
    for p in pattern.chars() {
        let mut next = vec![false; fits.len()];
        let mut reached = false;
        for (place, fit) in fits.iter().enumerate() {
            reached |= *fit;
            match p {
                '*' => set(&mut next, place, reached),
                _ if *fit && text.get(place).is_some_and(|c| p == '?' || *c == p) => {
                    set(&mut next, place.saturating_add(1), true);
                }
                _ => {}
            }
        }
        fits = next;
    }
    fits.last().copied().unwrap_or(false)
}

fn set(fits: &mut [bool], place: usize, value: bool) {
    if let Some(fit) = fits.get_mut(place) {
        *fit |= value;
    }
}

/// The names of the machine that runs Ansible.
const LOCALHOST: &[&str] = &["localhost", "127.0.0.1", "::1"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn groups() -> BTreeMap<String, Vec<HostName>> {
        let rows: &[(&str, &[&str])] = &[
            ("all", &["m1", "m2", "m3", "w1", "w2", "e1"]),
            ("kube_control_plane", &["m1", "m2", "m3"]),
            ("etcd", &["m1", "m2", "e1"]),
            ("kube_node", &["w1", "w2", "m3"]),
            ("calico_rr", &[]),
            ("k8s_cluster", &["m1", "m2", "m3", "w1", "w2"]),
        ];
        let hosts = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        rows.iter()
            .map(|(group, names)| ((*group).to_owned(), hosts(names)))
            .collect()
    }

    fn selected(pattern: &str) -> String {
        let targets = select(pattern, &groups()).unwrap();
        let names: Vec<&str> = targets.hosts.iter().map(HostName::as_str).collect();
        names.join(" ")
    }

    #[test]
    fn patterns_of_kubespray() {
        for (pattern, hosts) in [
            ("all", "m1 m2 m3 w1 w2 e1"),
            ("k8s_cluster:etcd:calico_rr", "m1 m2 m3 w1 w2 e1"),
            ("etcd:calico_rr:!k8s_cluster", "e1"),
            ("!k8s_cluster:etcd", "e1"),
            ("kube_node:calico_rr:!kube_control_plane", "w1 w2"),
            ("kube_control_plane:&etcd", "m1 m2"),
            ("kube_control_plane[0]", "m1"),
            ("kube_control_plane[-1]", "m3"),
            ("kube_control_plane[1:]:etcd[1:]", "m2 m3 e1"),
            ("kube_control_plane[0:1]", "m1 m2"),
            ("kube_control_plane[7]", ""),
            ("kube_control_plane | first", "m1 m2 m3"),
            ("calico_rr", ""),
            ("this_is_unreachable", ""),
            ("w2,w1", "w2 w1"),
            ("w*", "w1 w2"),
            ("m?:!m2", "m1 m3"),
            ("!etcd", "m3 w1 w2"),
            (
                "etcd:kube_control_plane:_kubespray_needs_etcd",
                "m1 m2 e1 m3",
            ),
            ("localhost", ""),
        ] {
            assert_eq!(selected(pattern), hosts, "{pattern}");
        }
        assert!(select("localhost", &groups()).unwrap().localhost);
        assert!(!select("all", &groups()).unwrap().localhost);
        assert!(select("~m.*", &groups()).is_err());
    }

    #[test]
    fn templates_are_resolved() {
        let variables = json!({"node": "w1,w2", "list": ["w1", "m1"], "number": 3});
        let variables = variables.as_object().unwrap();
        for (pattern, resolved) in [
            ("{{ node | default('kube_node') }}", Some("w1,w2")),
            ("{{ other | default('kube_node') }}", Some("kube_node")),
            (
                "{{ other | default(\"etcd[1:]\") }}:!w1",
                Some("etcd[1:]:!w1"),
            ),
            ("{{node}}", Some("w1,w2")),
            ("{{ list }}", Some("w1,m1")),
            ("plain", Some("plain")),
            ("{{ other }}", None),
            ("{{ number }}", None),
            ("{{ groups['etcd'] }}", None),
            ("{{ node | first }}", None),
            ("{{ node", None),
        ] {
            assert_eq!(
                resolve(pattern, variables).ok().as_deref(),
                resolved,
                "{pattern}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_pattern_selects_known_hosts_once(pattern in ".{0,40}") {
            if let Ok(targets) = select(&pattern, &groups()) {
                let mut hosts = targets.hosts.clone();
                hosts.sort();
                hosts.dedup();
                prop_assert_eq!(hosts.len(), targets.hosts.len());
                prop_assert!(hosts.iter().all(|host| groups()["all"].contains(host)));
            }
            let _ = resolve(&pattern, &Map::new());
        }

        #[test]
        fn algebra(
            parts in proptest::collection::vec(
                ("[!&]?", prop_oneof![Just("all"), Just("etcd"), Just("kube_node"), Just("kube_control_plane"), Just("m2"), Just("e1")]),
                1..6,
            ),
        ) {
            let pattern: Vec<String> = parts.iter().map(|(sign, name)| format!("{sign}{name}")).collect();
            let groups = groups();
            let set = |name: &str| groups.get(name).cloned().unwrap_or_else(|| vec![name.parse().unwrap()]);
            let with = |sign: &str| parts.iter().filter(move |(s, _)| s == sign).map(|(_, name)| set(name)).collect::<Vec<_>>();
            let plain = if with("").is_empty() { vec![set("all")] } else { with("") };
            let found = select(&pattern.join(":"), &groups).unwrap().hosts;
            for host in &groups["all"] {
                let expected = plain.iter().any(|p| p.contains(host))
                    && with("&").iter().all(|p| p.contains(host))
                    && !with("!").iter().any(|p| p.contains(host));
                prop_assert_eq!(found.contains(host), expected, "{} in {}", host, pattern.join(":"));
            }
            let commas = select(&pattern.join(","), &groups).unwrap().hosts;
            prop_assert_eq!(found, commas);
        }
    }
}
