//! Rules, as roles have them: read, put together, and held against others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Serialize;
use serde_json::Value;

/// A rule of a role. With several of each it gives every verb on every resource.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The groups of the resources, of which the first one has an empty name.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub api_groups: BTreeSet<String>,
    /// The resources, as in paths, with their parts, as in `deployments/status`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub resources: BTreeSet<String>,
    /// The names of the objects; none: all.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub resource_names: BTreeSet<String>,
    /// Paths that are no resources.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "BTreeSet::is_empty")]
    pub non_resource_urls: BTreeSet<String>,
    /// What may be done.
    pub verbs: BTreeSet<String>,
}

impl Rule {
    /// On all objects of a resource.
    pub(super) fn on(group: &str, resource: &str, verbs: &[&str]) -> Self {
        Self {
            api_groups: BTreeSet::from([group.to_owned()]),
            resources: BTreeSet::from([resource.to_owned()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..Self::default()
        }
    }

    /// On the object of this name.
    pub(super) fn named(mut self, name: &str) -> Self {
        self.resource_names.insert(name.to_owned());
        self
    }

    /// A rule as it stands in a role. What is no text gives nothing.
    pub(super) fn read(value: &Value) -> Self {
        let of = |field: &str| {
            let list = value.get(field).and_then(Value::as_array);
            let texts = list.into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        Self {
            api_groups: of("apiGroups"),
            resources: of("resources"),
            resource_names: of("resourceNames"),
            non_resource_urls: of("nonResourceURLs"),
            verbs: of("verbs"),
        }
    }

    /// Whether it gives more than it names.
    pub(super) fn has_wildcard(&self) -> bool {
        let Self {
            api_groups,
            resources,
            resource_names: _,
            non_resource_urls,
            verbs,
        } = self;
        let mut all = [api_groups, resources, non_resource_urls, verbs]
            .into_iter()
            .flatten();
        all.any(|text| text.contains('*'))
    }

    /// The same rights in few rules and a fixed order: who may do something with all objects of a resource needs no names for it.
    pub fn merged(rules: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut things: BTreeMap<(String, String), Verbs> = BTreeMap::new();
        let mut paths: BTreeMap<BTreeSet<String>, BTreeSet<String>> = BTreeMap::new();
        for rule in rules {
            for group in &rule.api_groups {
                for resource in &rule.resources {
                    let verbs = things.entry((group.clone(), resource.clone()));
                    verbs.or_default().add(&rule);
                }
            }
            for path in rule.non_resource_urls {
                paths.entry(rule.verbs.clone()).or_default().insert(path);
            }
        }
        let mut together: BTreeMap<(String, BTreeSet<String>, BTreeSet<String>), BTreeSet<String>> =
            BTreeMap::new();
        for ((group, resource), verbs) in things {
            for (verbs, names) in verbs.by_verbs() {
                let resources = together.entry((group.clone(), names, verbs));
                resources.or_default().insert(resource.clone());
            }
        }
        let of_things = together
            .into_iter()
            .map(|((group, resource_names, verbs), resources)| Self {
                api_groups: BTreeSet::from([group]),
                resources,
                resource_names,
                verbs,
                ..Self::default()
            });
        let of_paths = paths.into_iter().map(|(verbs, non_resource_urls)| Self {
            non_resource_urls,
            verbs,
            ..Self::default()
        });
        of_things.chain(of_paths).collect()
    }

    /// What of these rules is given by none of those that are held.
    pub fn missing(needed: &[Self], held: &[Self]) -> Vec<Self> {
        let parts = needed.iter().flat_map(Self::parts);
        Self::merged(parts.filter(|part| !held.iter().any(|rule| rule.covers(part))))
    }

    /// Its parts, each of one verb on one thing.
    fn parts(&self) -> Vec<Self> {
        let one = |text: &String| BTreeSet::from([text.clone()]);
        let names: Vec<_> = if self.resource_names.is_empty() {
            vec![BTreeSet::new()]
        } else {
            self.resource_names.iter().map(one).collect()
        };
        let mut parts = Vec::new();
        for verb in &self.verbs {
            for group in &self.api_groups {
                for resource in &self.resources {
                    parts.extend(names.iter().map(|names| Self {
                        api_groups: one(group),
                        resources: one(resource),
                        resource_names: names.clone(),
                        verbs: one(verb),
                        ..Self::default()
                    }));
                }
            }
            parts.extend(self.non_resource_urls.iter().map(|path| Self {
                non_resource_urls: one(path),
                verbs: one(verb),
                ..Self::default()
            }));
        }
        parts
    }

    /// Whether it gives a part of another one.
    fn covers(&self, part: &Self) -> bool {
        let has = |these: &BTreeSet<String>, those: &BTreeSet<String>| {
            these.contains("*") || those.is_subset(these)
        };
        if !has(&self.verbs, &part.verbs) {
            return false;
        }
        if !part.non_resource_urls.is_empty() {
            return part.non_resource_urls.iter().all(|path| {
                self.non_resource_urls
                    .iter()
                    .any(|held| match held.strip_suffix('*') {
                        Some(start) => path.starts_with(start),
                        None => held == path,
                    })
            });
        }
        // `*/status` is that part of all resources.
        let is_part_of_all = |resource: &String| {
            let part = resource.split_once('/').map(|(_, part)| part);
            part.is_some_and(|part| self.resources.contains(&format!("*/{part}")))
        };
        let has_resources =
            has(&self.resources, &part.resources) || part.resources.iter().all(is_part_of_all);
        let has_names = self.resource_names.is_empty()
            || (!part.resource_names.is_empty()
                && part.resource_names.is_subset(&self.resource_names));
        has(&self.api_groups, &part.api_groups) && has_resources && has_names
    }
}

/// As people read it: `get, patch deployments.apps named a, b`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |texts: &BTreeSet<String>| {
            let texts: Vec<_> = texts.iter().map(String::as_str).collect();
            texts.join(", ")
        };
        let mut things = self.non_resource_urls.clone();
        for group in &self.api_groups {
            let dot = if group.is_empty() { "" } else { "." };
            things.extend(self.resources.iter().map(|resource| {
                let (kind, part) = resource.split_once('/').unwrap_or((resource, ""));
                let slash = if part.is_empty() { "" } else { "/" };
                format!("{kind}{dot}{group}{slash}{part}")
            }));
        }
        write!(f, "{} {}", joined(&self.verbs), joined(&things))?;
        if !self.resource_names.is_empty() {
            write!(f, " named {}", joined(&self.resource_names))?;
        }
        Ok(())
    }
}

/// What may be done with objects of a resource: with all of them, and with some by name.
#[derive(Default)]
struct Verbs {
    with_all: BTreeSet<String>,
    by_name: BTreeMap<String, BTreeSet<String>>,
}

impl Verbs {
    fn add(&mut self, rule: &Rule) {
        if rule.resource_names.is_empty() {
            self.with_all.extend(rule.verbs.iter().cloned());
        }
        for name in &rule.resource_names {
            let verbs = self.by_name.entry(name.clone()).or_default();
            verbs.extend(rule.verbs.iter().cloned());
        }
    }

    /// The names with which the same may be done, by that; none for all.
    fn by_verbs(self) -> BTreeMap<BTreeSet<String>, BTreeSet<String>> {
        let mut found: BTreeMap<BTreeSet<String>, BTreeSet<String>> = BTreeMap::new();
        for (name, verbs) in self.by_name {
            let further: BTreeSet<_> = verbs.difference(&self.with_all).cloned().collect();
            if !further.is_empty() {
                found.entry(further).or_default().insert(name);
            }
        }
        // No verb of these is left in those above.
        if !self.with_all.is_empty() {
            found.insert(self.with_all, BTreeSet::new());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(values: &[Value]) -> Vec<Rule> {
        values.iter().map(Rule::read).collect()
    }

    fn told(rules: &[Rule]) -> Vec<String> {
        rules.iter().map(Rule::to_string).collect()
    }

    #[test]
    fn rights_are_told_once_and_without_names_where_all_are_meant() {
        let merged = Rule::merged(rules(&[
            json!({"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a"], "verbs": ["get", "patch"]}),
            json!({"apiGroups": ["apps"], "resources": ["deployments", "daemonsets"], "verbs": ["get"]}),
            json!({"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["b"], "verbs": ["patch"]}),
            json!({"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"], "resourceNames": null}),
        ]));
        assert_eq!(
            told(&merged),
            [
                "get pods, pods/log",
                "get daemonsets.apps, deployments.apps",
                "patch deployments.apps named a, b",
            ]
        );
        assert_eq!(Rule::merged(merged.clone()), merged);
    }

    #[test]
    fn what_is_not_held_is_missing() {
        let needed = rules(&[
            json!({"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a", "b"], "verbs": ["get", "patch"]}),
            json!({"apiGroups": ["apps"], "resources": ["deployments/status"], "verbs": ["patch"]}),
            json!({"nonResourceURLs": ["/metrics/x"], "verbs": ["get"]}),
        ]);
        let all = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        for (held, missing) in [
            (vec![], 3),
            (
                vec![
                    all.clone(),
                    json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
                ],
                0,
            ),
            (
                vec![
                    all,
                    json!({"nonResourceURLs": ["/metrics/*"], "verbs": ["get"]}),
                ],
                0,
            ),
            (
                vec![
                    json!({"apiGroups": ["apps"], "resources": ["deployments", "*/status"], "verbs": ["get", "patch"]}),
                ],
                1,
            ),
        ] {
            let found = Rule::missing(&needed, &rules(&held));
            assert_eq!(found.len(), missing, "{held:?}: {:?}", told(&found));
        }
        let one = json!({"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a"], "verbs": ["get", "patch"]});
        let left = Rule::missing(&needed[..1], &rules(&[one]));
        assert_eq!(told(&left), ["get, patch deployments.apps named b"]);
        let all = rules(&[
            json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}),
        ]);
        let named = rules(&[
            json!({"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a"], "verbs": ["get"]}),
        ]);
        assert_eq!(Rule::missing(&all, &named), all, "one is not all");
    }
}
