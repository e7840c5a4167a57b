//! What the playbooks of a release would refuse of a wish some minutes into a run, told before anything is touched.

use std::collections::BTreeSet;

use ansible::{
    catalogue::{self, Assertion, COMPONENTS, Contract, Installable, Known, Test},
    inventory::{ExtraVars, Settings},
    template,
};
use api::{Cluster, KubernetesVersion, KubesprayVersion};
use serde_json::{Map, Value};

use crate::{
    inputs::Host,
    playbooks::Checkout,
    problem::{Problem, nearest},
    variables::{Sight, holds_reference},
};

/// The variables that a person gives to the playbooks.
pub(super) struct Given<'a> {
    /// As the Cluster writes them.
    pub(super) written: &'a Map<String, Value>,
    /// The names of those that Secrets hold. None: not every Secret could be looked at.
    pub(super) secret: Option<BTreeSet<&'a str>>,
    /// The hosts with theirs.
    pub(super) hosts: &'a [Host],
}

impl<'a> Given<'a> {
    pub(super) fn new(
        written: &'a Map<String, Value>,
        secret: &'a Sight,
        hosts: &'a [Host],
    ) -> Self {
        Self {
            written,
            secret: secret.names(),
            hosts,
        }
    }

    /// Whether a variable is given, as far as can be seen.
    fn may_have(&self, name: &str) -> bool {
        self.written.contains_key(name) || self.may_hide(name)
    }

    fn may_hide(&self, name: &str) -> bool {
        self.secret
            .as_ref()
            .is_none_or(|names| names.contains(name))
    }

    fn known<'v>(&'v self, name: &str, contract: &'v Contract) -> Known<'v> {
        match self.written.get(name) {
            Some(value) => seen(value),
            None if self.may_hide(name) => Known::Hidden,
            None => contract.defaults.get(name).map_or(Known::Unset, seen),
        }
    }
}

fn seen(value: &Value) -> Known<'_> {
    let hidden = holds_reference(value) || value.as_str().is_some_and(template::is_template);
    if hidden {
        Known::Hidden
    } else {
        Known::Value(value)
    }
}

/// Everything that the playbooks would refuse of the variables and of the release that is written.
pub(super) fn problems(
    cluster: &Cluster,
    release: KubesprayVersion,
    checkout: &Checkout,
    given: &Given<'_>,
) -> Vec<Problem> {
    let contract = &checkout.contract;
    let mut problems = Vec::new();
    problems.extend(another_release(cluster, release, checkout));
    problems.extend(removed(contract, given));
    problems.extend(refused(contract, given));
    problems.extend(undefined(contract, given));
    problems.extend(unlisted(contract, given));
    problems
}

/// Playbooks of another release than the one that is written. One that is not written is of no matter, as long as versions are
/// spelled alike.
fn another_release(
    cluster: &Cluster,
    release: KubesprayVersion,
    checkout: &Checkout,
) -> Option<Problem> {
    let found = checkout.contract.release?;
    // Playbooks between two releases follow the one that is written.
    catalogue::release(found).ok()?;
    let kubespray = cluster.spec.kubespray.as_ref();
    let is_written = kubespray.is_some_and(|kubespray| kubespray.version.is_some());
    let spelled = |release| {
        let version = checkout.installable.default;
        catalogue::kube_version(release, version)
    };
    if found == release || !is_written && spelled(found) == spelled(release) {
        return None;
    }
    let remedy = if is_written {
        format!("write {found}, or name the playbooks of {release} in spec.kubespray.source")
    } else {
        format!("write {found}: the newest is meant where nothing is written")
    };
    Some(Problem::new(
        "Cluster spec.kubespray.version",
        release,
        format!("{} holds kubespray {found}", checkout.source.origin),
        remedy,
    ))
}

fn removed(contract: &Contract, given: &Given<'_>) -> Vec<Problem> {
    let written = given.written.iter();
    let removed = written.filter(|(name, _)| contract.removed.contains(*name));
    let problem = |(name, value): (&String, &Value)| {
        Problem::new(
            field(name),
            shown(value),
            "kubespray had this variable once, and refuses to run with it",
            successor(name),
        )
    };
    removed.map(problem).collect()
}

/// What to write instead of a variable that was removed.
fn successor(name: &str) -> String {
    let mut renamed = RENAMED.iter();
    match renamed.find(|(old, _)| *old == name) {
        Some((_, new)) => format!("leave it out; {new} took its place"),
        None => "leave it out; the notes of the release say what took its place".to_owned(),
    }
}

/// What the playbooks assert and does not hold. Of a choice that is none nothing else is told: it follows from it.
fn refused(contract: &Contract, given: &Given<'_>) -> Vec<Problem> {
    let known = |name: &str| given.known(name, contract);
    let assertions = contract.assertions.iter();
    let broken = assertions.filter(|assertion| assertion.holds(known) == Some(false));
    let mut chosen = BTreeSet::new();
    let mut problems = Vec::new();
    let mut others = Vec::new();
    for assertion in broken {
        match choice(assertion, given) {
            Some(choice) if chosen.insert(choice.name) => problems.push(choice.problem()),
            Some(_) => {}
            None => others.push(assertion),
        }
    }
    let others = others.into_iter();
    let others = others.filter(|other| !other.variables().iter().any(|name| chosen.contains(name)));
    problems.extend(others.filter_map(|other| combination(other, contract, given)));
    problems
}

/// A variable that a person gives and that is none of the words that the playbooks take.
struct Choice<'a> {
    name: &'a str,
    value: &'a Value,
    words: &'a [String],
}

/// The choice that is all that is asserted, if it is one.
fn choice<'a>(assertion: &'a Assertion, given: &Given<'a>) -> Option<Choice<'a>> {
    let [
        Test::Word {
            variable,
            words,
            among: true,
        },
    ] = assertion.any()
    else {
        return None;
    };
    let value = given.written.get(variable)?;
    (words.len() > 1 || assertion.variables().len() == 1).then_some(Choice {
        name: variable,
        value,
        words,
    })
}

impl Choice<'_> {
    fn problem(&self) -> Problem {
        let words = || self.words.iter().map(String::as_str);
        let meant = self.value.as_str().and_then(|text| nearest(text, words()));
        let remedy = meant.map_or_else(
            || "write one of these, or leave it out".to_owned(),
            |word| format!("did you mean {word}?"),
        );
        let rule = format!("these playbooks take {}", self.words.join(", "));
        Problem::new(field(self.name), shown(self.value), rule, remedy)
    }
}

/// Variables that do not go together, told of the first one that a person gives. What the release breaks by itself is no mistake of
/// theirs.
fn combination(assertion: &Assertion, contract: &Contract, given: &Given<'_>) -> Option<Problem> {
    let variables = assertion.variables();
    let written = |name: &&str| given.written.get_key_value(*name);
    let (first, value) = variables.iter().find_map(written)?;
    let others = variables.iter().filter(|name| *name != first);
    let values = others.filter_map(|name| match given.known(name, contract) {
        Known::Value(value) => Some(format!(", and {name} is {}", shown(value))),
        Known::Unset | Known::Hidden => None,
    });
    Some(Problem::new(
        field(first),
        shown(value),
        format!(
            "these playbooks ask that {assertion}{}",
            values.collect::<String>()
        ),
        format!("change {}", variables.join(" or ")),
    ))
}

/// Templates that read what nobody defines.
fn undefined(contract: &Contract, given: &Given<'_>) -> Vec<Problem> {
    let (Some(names), Some(secret)) = (&contract.names, &given.secret) else {
        return Vec::new();
    };
    let own = ExtraVars::resolve(&Settings::default());
    let of_hosts = |name: &str| {
        FIELDS.contains(&name)
            || given
                .hosts
                .iter()
                .any(|host| host.variables.other.contains_key(name))
    };
    let is_defined = |name: &str| {
        names.contains(name)
            || given.written.contains_key(name)
            || secret.contains(name)
            || own.value(name).is_some()
            || template::is_ansibles(name)
            || of_hosts(name)
    };
    let mut problems = Vec::new();
    for (name, value) in given.written {
        each_text(&field(name), value, &mut |path, text| {
            for read in template::needs(text)
                .iter()
                .filter(|read| !is_defined(read))
            {
                let known = names.iter().map(String::as_str);
                let known = known.chain(given.written.keys().map(String::as_str));
                let meant = nearest(read, known.chain(secret.iter().copied()));
                let meant = meant.map(|meant| format!("did you mean {meant}? else "));
                problems.push(Problem::new(
                    path,
                    api::text::plain(text, LONGEST),
                    format!("the variable {read} is defined nowhere: not by these playbooks, nor by the Cluster, its hosts and its Secrets"),
                    format!("{}give it a value in spec.nodes.all.deploy.extraVars", meant.unwrap_or_default()),
                ));
            }
        });
    }
    problems
}

/// Versions of components that the release has no checksum of: it would fail where it downloads them.
fn unlisted(contract: &Contract, given: &Given<'_>) -> Vec<Problem> {
    let components = COMPONENTS.iter().filter_map(|(version, table, checksum)| {
        let wanted = given.written.get(*version)?;
        let text = wanted.as_str()?;
        let listed = contract.checksums.get(*table)?;
        let otherwise = given.may_have(table) || given.may_have(checksum);
        if text.contains("{{") || otherwise || listed.contains(text) {
            return None;
        }
        let near = nearest(text, listed.iter().map(String::as_str));
        let near = near.map(str::to_owned).or_else(|| listed.last().cloned());
        Some(Problem::new(
            field(version),
            shown(wanted),
            format!("the release lists no checksum of it ({table})"),
            format!(
                "write one that it lists, for example {}, or give its checksum in extraVars.{table}",
                near.unwrap_or_default()
            ),
        ))
    });
    components.collect()
}

fn each_text(path: &str, value: &Value, with: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => with(path, text),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                each_text(&format!("{path}[{index}]"), item, with);
            }
        }
        Value::Object(entries) => {
            for (name, value) in entries {
                each_text(&format!("{path}.{name}"), value, with);
            }
        }
        _ => {}
    }
}

/// Whether checksums of a person's own are to make a version installable that the playbooks do not list.
pub(super) fn has_checksums(given: &Given<'_>) -> bool {
    ["kubelet_binary_checksum", "kubelet_checksums"]
        .iter()
        .any(|name| given.written.contains_key(*name))
}

/// The variables with checksums that are missing for a version that the playbooks do not list. None: no checksum helps.
pub(super) fn missing_checksums(
    wanted: KubernetesVersion,
    checkout: &Checkout,
    given: &Given<'_>,
) -> Option<Vec<String>> {
    let Installable {
        default,
        minimum,
        versions,
    } = &checkout.installable;
    // Other tables are by minor version: of etcd, of the pause image, of CoreDNS.
    let mut listed = versions.iter().chain([default]);
    let minor =
        listed.any(|version| (version.major, version.minor) == (wanted.major, wanted.minor));
    (wanted >= *minimum && minor).then(|| {
        let lists = |name: &str| match given.written.get(name) {
            Some(Value::Object(table)) => {
                table.values().any(|versions| has_version(versions, wanted))
            }
            Some(_) => true,
            None => given.may_hide(name),
        };
        let missing = |program: &&str| {
            let (one, table) = (
                format!("{program}_binary_checksum"),
                format!("{program}_checksums"),
            );
            match checkout.contract.listed_only {
                _ if lists(&table) => None,
                true => Some(table),
                false => (!given.may_have(&one)).then_some(one),
            }
        };
        PROGRAMS.iter().filter_map(missing).collect()
    })
}

fn has_version(versions: &Value, wanted: KubernetesVersion) -> bool {
    let versions = versions.as_object();
    versions.is_some_and(|versions| versions.keys().any(|key| key.parse() == Ok(wanted)))
}

fn field(name: &str) -> String {
    format!("Cluster spec.nodes.all.deploy.extraVars.{name}")
}

fn shown(value: &Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    api::text::plain(&text, LONGEST)
}

/// How much of a value is shown, in characters.
const LONGEST: usize = 128;

/// The programs of Kubernetes that are downloaded.
const PROGRAMS: [&str; 3] = ["kubelet", "kubeadm", "kubectl"];

/// Variables that kubespray renamed, and what took their place. A row counts for the playbooks alone that refuse the variable.
///
/// # Source
/// The message of "Fail if removed variables are used" in `roles/validate_inventory/tasks/main.yml` on kubespray's master, and issue 12883
/// (endpoints); pull request 13400 (eviction); the warning about dual stack in the same file; pull requests 10738 and 12969 (registries).
const RENAMED: &[(&str, &str)] = &[
    ("apiserver_loadbalancer_domain_name", ENDPOINTS),
    ("containerd_insecure_registries", REGISTRIES),
    ("containerd_registries", REGISTRIES),
    ("enable_dual_stack_networks", "ipv4_stack and ipv6_stack"),
    (
        "eviction_hard_control_plane",
        "eviction_hard in spec.inventory of the ClusterNodes of the control plane",
    ),
    ("kube_apiserver_global_endpoint", ENDPOINTS),
    ("kubeadm_config_api_fqdn", ENDPOINTS),
    ("loadbalancer_apiserver", ENDPOINTS),
];
const ENDPOINTS: &str = "kube_apiserver_endpoint and kube_apiserver_cluster_internal_endpoint";
const REGISTRIES: &str = "containerd_registries_mirrors";

/// Variables of hosts that have fields of their own.
const FIELDS: &[&str] = &["ip", "access_ip", "etcd_member_name"];
