//! Which Addons a cluster has, and what is to be done about them. Pure.
//!
//! An Addon is for a plugin, and labels of a cluster say which plugins it has: none of them names a chart. What is installed is known by what Helm
//! keeps in the cluster itself: a release of ours has [`MARK`] with a digest of the chart and its values, so that what is as it should be
//! is left alone, and what nobody asks for any more is found.

use std::collections::{BTreeMap, BTreeSet};

use api::magnum::{
    ADDON_NAMESPACE, Addon, AddonReport, AddonState, CoeCluster, CoeClusterSpec, NetworkDriver,
    Plugin, ServerType,
};
use controller::{
    Problem,
    conditions::{READY, is_true},
    digest::digest,
};
use helm::{Outline, State};
use kube::ResourceExt;
use serde_json::{Map, Value};

use crate::{labels, machines};

/// On what Helm keeps of a release: that an Addon made it, and of what.
pub const MARK: &str = "magnum.windlass.dev/addon";
/// How long names of releases may be, which Helm says.
const LONGEST: usize = 53;

/// How a cluster says that it has a plugin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asks {
    /// By its network, of servers: kubespray brings its own.
    Network(NetworkDriver),
    /// By a label that is true or false, and by what holds where it is not given.
    Flag(&'static str, Unsaid),
    /// By this word of a label.
    Word(&'static str, &'static str),
    /// By leaving the number of its nodes to the autoscaler.
    Scaled,
    /// Every one has it.
    Always,
}

/// Who has a plugin of which its labels say nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unsaid {
    /// All clusters.
    All,
    /// Those of servers.
    Vm,
    /// None.
    None,
}

/// How clusters ask for a plugin. What is there where nothing is said is Magnum's own default.
pub const fn asks(plugin: Plugin) -> Asks {
    match plugin {
        Plugin::Calico => Asks::Network(NetworkDriver::Calico),
        Plugin::Cilium => Asks::Network(NetworkDriver::Cilium),
        Plugin::Flannel => Asks::Network(NetworkDriver::Flannel),
        Plugin::CloudProvider => Asks::Flag("cloud_provider_enabled", Unsaid::Vm),
        Plugin::CinderCsi => Asks::Flag("cinder_csi_enabled", Unsaid::Vm),
        Plugin::ManilaCsi => Asks::Flag("manila_csi_enabled", Unsaid::None),
        Plugin::KeystoneAuth => Asks::Flag("keystone_auth_enabled", Unsaid::All),
        Plugin::Autoscaler => Asks::Scaled,
        Plugin::Metrics => Asks::Flag("metrics_server_enabled", Unsaid::All),
        Plugin::Monitoring => Asks::Flag("monitoring_enabled", Unsaid::None),
        Plugin::NodeProblemDetector => Asks::Flag("npd_enabled", Unsaid::All),
        Plugin::IngressNginx => Asks::Word("ingress_controller", "nginx"),
        Plugin::IngressOctavia => Asks::Word("ingress_controller", "octavia"),
        Plugin::IngressTraefik => Asks::Word("ingress_controller", "traefik"),
        Plugin::Dashboard => Asks::Flag("kube_dashboard_enabled", Unsaid::All),
        Plugin::All => Asks::Always,
    }
}

/// Whether a cluster has a plugin.
pub fn has(cluster: &CoeClusterSpec, plugin: Plugin) -> bool {
    let is_vm = cluster.server_type.unwrap_or_default() == ServerType::Vm;
    match asks(plugin) {
        Asks::Network(driver) => is_vm && cluster.network_driver.unwrap_or_default() == driver,
        Asks::Flag(label, unsaid) => labels::flag(&cluster.labels, label).unwrap_or(match unsaid {
            Unsaid::All => true,
            Unsaid::Vm => is_vm,
            Unsaid::None => false,
        }),
        Asks::Word(label, word) => cluster
            .labels
            .get(label)
            .is_some_and(|said| said.trim() == word),
        Asks::Scaled => is_vm && cluster.node_groups.iter().any(machines::is_scaled),
        Asks::Always => true,
    }
}

/// The label by which a cluster itself asks for a plugin.
fn asked(cluster: &CoeClusterSpec, plugin: Plugin) -> Option<&'static str> {
    let (Asks::Flag(label, _) | Asks::Word(label, _)) = asks(plugin) else {
        return None;
    };
    let is_said = cluster.labels.contains_key(label);
    (is_said && has(cluster, plugin)).then_some(label)
}

/// The release of an Addon: namespace and name.
pub fn place(addon: &Addon) -> (String, String) {
    let namespace = addon.spec.namespace.as_deref().unwrap_or(ADDON_NAMESPACE);
    let release = addon.spec.release_name.clone();
    let release = release.unwrap_or_else(|| addon.name_any());
    (namespace.to_owned(), release)
}

/// How people find an Addon.
pub fn title(addon: &Addon) -> String {
    let namespace = addon.namespace().unwrap_or_default();
    format!("{namespace}/{}", addon.name_any())
}

/// Whether two Addons of one namespace cannot both be.
fn is_rival(one: &Addon, other: &Addon) -> bool {
    let plugin = one.spec.plugin;
    let is_same = plugin == other.spec.plugin && plugin != Plugin::All;
    is_same || place(one) == place(other)
}

/// Who comes first was there first.
fn age(addon: &Addon) -> (Option<jiff::Timestamp>, String) {
    let created = addon.metadata.creation_timestamp.as_ref();
    (created.map(|created| created.0), addon.name_any())
}

/// The Addon of the same namespace that goes before one, for there can be only one of them.
pub fn rival<'a>(addon: &Addon, all: impl IntoIterator<Item = &'a Addon>) -> Option<&'a Addon> {
    let mut all = all.into_iter();
    all.find(|other| {
        other.namespace() == addon.namespace()
            && other.name_any() != addon.name_any()
            && is_rival(addon, other)
            && age(other) < age(addon)
    })
}

/// The Addons of a cluster, in the order in which they are installed. Those of its project go before those of the pool.
pub fn chosen<'a>(
    cluster: &CoeCluster,
    all: impl IntoIterator<Item = &'a Addon>,
    pool: &str,
) -> Vec<&'a Addon> {
    let project = cluster.namespace();
    let in_scope = |addon: &&Addon| {
        let namespace = addon.namespace();
        namespace == project || namespace.as_deref() == Some(pool)
    };
    let is_asked = |addon: &&Addon| has(&cluster.spec, addon.spec.plugin);
    let mut candidates: Vec<_> = all.into_iter().filter(in_scope).filter(is_asked).collect();
    candidates.sort_by_key(|addon| (addon.namespace() != project, age(addon)));
    let mut chosen: Vec<&Addon> = Vec::new();
    for addon in candidates {
        if !chosen.iter().any(|other| is_rival(addon, other)) {
            chosen.push(addon);
        }
    }
    chosen.sort_by_key(|addon| (addon.spec.plugin, addon.name_any()));
    chosen
}

/// What may be said of a cluster in values, by its word. None: of this one nobody knows it.
#[derive(Clone, Debug)]
pub struct Words(BTreeMap<&'static str, Option<String>>);

impl Words {
    /// Of a cluster whose API is at this host and port.
    pub fn of(cluster: &CoeCluster, host: &str, port: u16) -> Self {
        let spec = &cluster.spec;
        let is_vm = spec.server_type.unwrap_or_default() == ServerType::Vm;
        let of_servers = |said: String| is_vm.then_some(said);
        let version = spec.kubernetes_version;
        Self(BTreeMap::from([
            ("name", Some(spec.name.clone())),
            ("uuid", Some(cluster.name_any())),
            ("objectName", of_servers(machines::name(cluster))),
            ("projectId", Some(spec.project_id.clone())),
            (
                "kubernetesVersion",
                version.map(|version| format!("v{version}")),
            ),
            ("apiHost", Some(host.to_owned())),
            ("apiPort", Some(port.to_string())),
            ("podCidr", of_servers(machines::pods(spec))),
            ("serviceCidr", of_servers(machines::services(spec))),
            ("domain", of_servers(machines::domain(spec))),
        ]))
    }

    /// Of a cluster that does not exist, to see whether a chart takes them.
    pub fn sample() -> Self {
        let uuid = "00000000-0000-4000-8000-000000000000";
        let spec = CoeClusterSpec {
            name: "sample".to_owned(),
            project_id: "0".repeat(32),
            kubernetes_version: "1.34.3".parse().ok(),
            ..CoeClusterSpec::default()
        };
        Self::of(&CoeCluster::new(uuid, spec), "192.0.2.1", 6443)
    }

    fn all(&self) -> String {
        let words = self.0.keys().map(|word| format!("${{cluster.{word}}}"));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// The values of an Addon, with what a cluster has in the place of its words.
///
/// # Errors
///
/// A word is none, or not one of this cluster.
pub fn values(addon: &Addon, words: &Words) -> Result<Value, Problem> {
    let mut values = Map::new();
    for (key, value) in addon.spec.values.iter().flatten() {
        let path = format!("spec.values.{key}");
        values.insert(key.clone(), filled(value, &path, words)?);
    }
    Ok(values.into())
}

fn filled(value: &Value, path: &str, words: &Words) -> Result<Value, Problem> {
    Ok(match value {
        Value::String(text) => filled_text(text, path, words)?.into(),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let items = items.map(|(at, item)| filled(item, &format!("{path}[{at}]"), words));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| {
                let value = filled(value, &format!("{path}.{key}"), words)?;
                Ok((key.clone(), value))
            });
            Value::Object(fields.collect::<Result<_, Problem>>()?)
        }
        other => other.clone(),
    })
}

/// What else begins with a dollar is the chart's.
const BEGINS: &str = "${cluster.";

fn filled_text(text: &str, path: &str, words: &Words) -> Result<String, Problem> {
    let mut parts = text.split(BEGINS);
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (word, rest) = part.split_once('}').unwrap_or((part, ""));
        let value = || format!("{BEGINS}{}}}", api::text::plain(word, 64));
        match words.0.get(word) {
            Some(Some(said)) => filled.push_str(said),
            Some(None) => {
                return Err(Problem::new(
                    path,
                    value(),
                    "nobody knows that of this cluster: it is of clusters of servers",
                    "write it yourself, in an Addon in the namespace of its project",
                ));
            }
            None => {
                return Err(Problem::new(
                    path,
                    value(),
                    format!("what may be said of a cluster is {}", words.all()),
                    "write one of these",
                ));
            }
        }
        filled.push_str(rest);
    }
    Ok(filled)
}

/// The name of a release that Helm does not take.
pub fn misnamed(addon: &Addon) -> Option<Problem> {
    let (_, release) = place(addon);
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fits = release.len() <= LONGEST && release.chars().all(is_plain);
    (!fits).then(|| {
        Problem::new(
            "metadata.name",
            &release,
            format!(
                "a release is called by at most {LONGEST} lower-case letters, digits and hyphens"
            ),
            "write spec.releaseName",
        )
    })
}

/// The chart of an Addon, as it was looked at last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Usable<'a> {
    /// Its version.
    pub version: &'a str,
    /// Its digest.
    pub digest: &'a str,
}

/// Whether clusters may have an Addon, and why not.
///
/// # Errors
///
/// It is not looked at yet, or somebody has to change something.
pub fn usable(addon: &Addon) -> Result<Usable<'_>, (AddonState, String)> {
    let status = addon.status.as_ref();
    let status = status.filter(|status| {
        let generation = addon.metadata.generation;
        status.observed_generation.is_some() && status.observed_generation == generation
    });
    let Some(status) = status else {
        let why = "its chart is being looked at".to_owned();
        return Err((AddonState::Waiting, why));
    };
    if let (true, Some(version), Some(digest)) = (
        is_true(&status.conditions, READY),
        &status.version,
        &status.digest,
    ) {
        return Ok(Usable { version, digest });
    }
    let ready = status.conditions.iter().find(|one| one.type_ == READY);
    let why = ready.map(|ready| ready.message.clone()).unwrap_or_default();
    Err((AddonState::Refused, why))
}

/// What clusters read of an Addon. That it is usable comes later than its generation, and goes without one.
pub fn concern(addon: &Addon) -> impl PartialEq + Send + use<> {
    let judged = usable(addon).map(|usable| (usable.version.to_owned(), usable.digest.to_owned()));
    (
        addon.metadata.generation,
        addon.metadata.deletion_timestamp.is_some(),
        judged,
    )
}

/// A release that a cluster is to have.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The Addon: namespace and name.
    pub addon: (String, String),
    /// The namespace in the cluster.
    pub namespace: String,
    /// The name.
    pub release: String,
    /// The version of the chart.
    pub version: String,
    /// The digest of the chart.
    pub chart: String,
    /// The values.
    pub values: Value,
    /// Of what it is made, in short.
    pub digest: String,
    /// The revision that it will be.
    pub revision: u64,
    /// Whether a client died at it.
    pub is_broken: bool,
}

/// What is to be done about a release.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    /// Nothing.
    None,
    /// It is installed, or changed.
    Install(Box<Wanted>),
    /// It is taken away: namespace and name.
    Remove(String, String),
}

/// A release of a cluster: how it stands, and what is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What people are told.
    pub report: AddonReport,
    /// What is done.
    pub deed: Deed,
}

/// A report that says nothing but the state.
pub fn report(addon: &Addon, state: AddonState, message: Option<String>) -> AddonReport {
    AddonReport {
        name: title(addon),
        plugin: Some(addon.spec.plugin),
        observed_generation: addon.metadata.generation,
        state,
        version: None,
        message: message.map(|message| api::text::plain(&message, 2048)),
    }
}

/// What is to be done in a cluster that has these releases. Where an Addon cannot be read nothing is taken away: it may be what asks for it.
pub fn plan(
    cluster: &CoeCluster,
    chosen: &[&Addon],
    words: &Words,
    releases: &[Outline],
    may_remove: bool,
) -> Vec<Step> {
    let steps = chosen.iter().map(|addon| step(addon, words, releases));
    let mut steps: Vec<_> = steps.collect();
    steps.extend(missing(cluster, chosen).map(|report| Step {
        report,
        deed: Deed::None,
    }));
    if may_remove {
        let kept: BTreeSet<_> = chosen.iter().map(|addon| place(addon)).collect();
        steps.extend(surplus(&kept, releases));
    }
    steps
}

fn step(addon: &Addon, words: &Words, releases: &[Outline]) -> Step {
    let told = |state, message| Step {
        report: report(addon, state, message),
        deed: Deed::None,
    };
    let usable = match usable(addon) {
        Ok(usable) => usable,
        Err((state, why)) => return told(state, Some(why)),
    };
    let values = match values(addon, words) {
        Ok(values) => values,
        Err(problem) => return told(AddonState::Refused, Some(problem.to_string())),
    };
    let (namespace, release) = place(addon);
    let mut releases = releases.iter();
    let there = releases.find(|there| there.namespace == namespace && there.release == release);
    if there.is_some_and(|there| !there.labels.contains_key(MARK)) {
        let problem = Problem::new(
            "spec.releaseName",
            format!("{namespace}/{release}"),
            "the cluster has a release of that name, which no Addon made",
            "name another one, or have it removed (helm uninstall)",
        );
        return told(AddonState::Refused, Some(problem.to_string()));
    }
    let digest = digest(&[usable.digest, &values.to_string()], 40);
    if there.is_some_and(|there| is_as(there, &digest)) {
        let report = AddonReport {
            version: Some(usable.version.to_owned()),
            ..report(addon, AddonState::Installed, None)
        };
        return Step {
            report,
            deed: Deed::None,
        };
    }
    let wanted = Wanted {
        addon: (addon.namespace().unwrap_or_default(), addon.name_any()),
        namespace,
        release,
        version: usable.version.to_owned(),
        chart: usable.digest.to_owned(),
        values,
        digest,
        revision: there.map_or(0, |there| there.revision) + 1,
        is_broken: there.is_some_and(is_broken),
    };
    Step {
        report: report(addon, AddonState::Installing, None),
        deed: Deed::Install(Box::new(wanted)),
    }
}

/// Whether a release is of this, and nobody else changed it.
fn is_as(there: &Outline, digest: &str) -> bool {
    let mark = there.labels.get(MARK);
    there.state == State::Deployed
        && mark.is_some_and(|mark| mark == digest)
        && there.stored() == Some(there.revision)
}

fn is_broken(there: &Outline) -> bool {
    matches!(there.state, State::Pending | State::Uninstalling)
}

/// Plugins that a label asks for, and that there is no Addon for.
fn missing(cluster: &CoeCluster, chosen: &[&Addon]) -> impl Iterator<Item = AddonReport> {
    let lacks = |plugin: &Plugin| !chosen.iter().any(|addon| addon.spec.plugin == *plugin);
    let every = Plugin::EVERY.into_iter().filter(lacks);
    every.filter_map(|plugin| {
        let label = asked(&cluster.spec, plugin)?;
        let word = plugin.word();
        let message = format!(
            "there is no Addon for plugin {word}, which the label {label} asks for: who runs the service makes one"
        );
        Some(AddonReport {
            name: word.to_owned(),
            plugin: Some(plugin),
            observed_generation: None,
            state: AddonState::Waiting,
            version: None,
            message: Some(message),
        })
    })
}

/// Releases that Addons made and none asks for any more.
fn surplus(kept: &BTreeSet<(String, String)>, releases: &[Outline]) -> impl Iterator<Item = Step> {
    let releases = releases.iter();
    releases.filter_map(|there| {
        let place = (there.namespace.clone(), there.release.clone());
        let is_ours = there.labels.contains_key(MARK);
        if !is_ours || kept.contains(&place) || there.state == State::Uninstalled {
            return None;
        }
        let (namespace, release) = place;
        let report = AddonReport {
            name: format!("{namespace}/{release}"),
            plugin: None,
            observed_generation: None,
            state: AddonState::Removing,
            version: None,
            message: None,
        };
        Some(Step {
            report,
            deed: Deed::Remove(namespace, release),
        })
    })
}

#[cfg(test)]
mod tests;
