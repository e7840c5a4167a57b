//! What a checkout says of itself and demands of the variables that it is given.
//!
//! A release refuses what it cannot do by assertions of its own, in the first minutes of a run. They are read here, so that a plan
//! can say the same before anything is touched, and of all variables at once. A checkout is not trusted: its files are data, of
//! bounded size, and nothing of them is ever evaluated. Assertions have a small grammar ([`Assertion`]); what does not fit it,
//! and any file that is missing, too large or no YAML, is a check less and no error: Ansible has the last word.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::LazyLock,
};

use api::KubesprayVersion;
use regex::Regex;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use walkdir::WalkDir;

use super::installable::CHECKSUMS;

mod assertion;

pub use assertion::{Assertion, Known, Test};

/// What a checkout says of itself and demands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contract {
    /// The release that it is. None: it does not say.
    pub release: Option<KubesprayVersion>,
    /// What it asserts of its variables before it touches a host.
    pub assertions: Vec<Assertion>,
    /// Whether it takes no Kubernetes version but those that its tables of checksums list, whatever checksum it is given.
    pub listed_only: bool,
    /// Variables that it had once and refuses now.
    pub removed: BTreeSet<String>,
    /// The versions of components that it has checksums of, by the table that lists them: of [`COMPONENTS`].
    pub checksums: BTreeMap<String, BTreeSet<String>>,
    /// The values of its variables unless told otherwise. Templates are none.
    pub defaults: Map<String, Value>,
    /// Every name that it gives to something: its variables are among them. None: nobody knows them all.
    pub names: Option<BTreeSet<String>>,
}

/// Reads what a checkout says. What it does not say is no error.
pub fn contract(checkout: &Path) -> Contract {
    let mut contract = Contract {
        release: release(checkout),
        defaults: defaults(checkout),
        names: names(checkout),
        checksums: checksums(checkout),
        ..Contract::default()
    };
    let files = ASSERTIONS.iter().map(|file| checkout.join(file));
    for task in files.filter_map(|file| yaml::<Vec<Task>>(&file)).flatten() {
        contract.add(task);
    }
    contract
}

impl Contract {
    fn add(&mut self, task: Task) {
        for task in task.block {
            self.add(task);
        }
        let Some(assert) = task.short.or(task.long) else {
            return;
        };
        if let Some(Value::Array(removed)) = task.vars.get(REMOVED) {
            let removed = removed.iter().filter_map(Value::as_str);
            self.removed.extend(removed.map(str::to_owned));
        }
        // What it says of each item of a loop is not said of a variable.
        if task.other.keys().any(|key| is_loop(key)) {
            return;
        }
        let when = task.when.unwrap_or_default().texts();
        for that in assert.that.texts() {
            self.listed_only |= when.iter().all(|when| assertion::is_usual(when))
                && LISTED.iter().any(|listed| that.trim() == *listed);
            self.assertions.extend(Assertion::read(&that, &when));
        }
    }
}

fn is_loop(key: &str) -> bool {
    key == "loop" || key.starts_with("with_")
}

/// The release, where its collection's metadata names it.
///
/// # Source
/// `galaxy.yml` of the tags v2.22.0 to v2.31.0: before 2.24.0 it was raised late, and named an older release.
fn release(checkout: &Path) -> Option<KubesprayVersion> {
    let galaxy: Galaxy = yaml(&checkout.join("galaxy.yml"))?;
    let release: KubesprayVersion = galaxy.version.parse().ok()?;
    (galaxy.name.starts_with("kubespray") && release >= RELIABLE).then_some(release)
}

const RELIABLE: KubesprayVersion = KubesprayVersion::new(2, 24, 0);

fn defaults(checkout: &Path) -> Map<String, Value> {
    let mut defaults = Map::new();
    for role in ["kubespray_defaults", "kubespray-defaults"] {
        let directory = checkout.join("roles").join(role).join("defaults");
        for file in ["main.yaml", "main.yml", "main/main.yml"] {
            defaults.extend(yaml::<Map<String, Value>>(&directory.join(file)).unwrap_or_default());
        }
    }
    defaults
}

/// The versions that each table lists for a machine of any kind. One without a checksum is 0 there.
fn checksums(checkout: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for file in CHECKSUMS {
        let mut tables: Map<String, Value> = yaml(&checkout.join(file)).unwrap_or_default();
        for (_, table, _) in COMPONENTS {
            let Some(Value::Object(machines)) = tables.remove(*table) else {
                continue;
            };
            let versions = machines
                .iter()
                .filter_map(|(_, versions)| versions.as_object());
            let versions = versions
                .flatten()
                .filter(|(_, checksum)| checksum.is_string());
            let versions: BTreeSet<_> = versions.map(|(version, _)| version.clone()).collect();
            if !versions.is_empty() {
                found.entry((*table).to_owned()).or_insert(versions);
            }
        }
    }
    found
}

/// The names that the files of a checkout give to something: keys, however deep, and what tasks register. Read line by line,
/// as what is missed would be taken for undefined: a file that Ansible alone can parse has names too.
fn names(checkout: &Path) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut left = BOUNDS;
    for directory in ["roles", "playbooks"] {
        let directory = checkout.join(directory);
        if !directory.is_dir() {
            continue;
        }
        for entry in WalkDir::new(directory).max_depth(DEPTH) {
            let entry = entry.ok()?;
            left.entries = left.entries.checked_sub(1)?;
            let is_yaml = entry
                .path()
                .extension()
                .is_some_and(|end| end == "yml" || end == "yaml");
            if !(is_yaml && entry.file_type().is_file()) {
                continue;
            }
            let text = text(entry.path())?;
            left.bytes = left.bytes.checked_sub(text.len())?;
            for found in NAMED.captures_iter(&text) {
                let name = found.get(1).or(found.get(2));
                names.extend(name.map(|name| name.as_str().to_owned()));
            }
        }
    }
    (!names.is_empty()).then_some(names)
}

/// A key of a map, or the name that a task gives to what it finds.
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    let name = r#"["']?([A-Za-z_][A-Za-z0-9_]{0,127})["']?"#;
    let pattern = format!(
        r"(?m)(?:^|[\s{{,])(?:(?:register|loop_var|index_var):[ \t]+{name}|{name}:(?:\s|$))"
    );
    #[expect(clippy::expect_used, reason = "a test compiles it")]
    Regex::new(&pattern).expect("it is a pattern")
});

fn yaml<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
    serde_saphyr::from_str_with_options(&text(path)?, options).ok()
}

/// The text of a file that is one, and no larger than any of kubespray's.
fn text(path: &Path) -> Option<String> {
    let found = fs::symlink_metadata(path).ok()?;
    (found.is_file() && found.len() <= LARGEST).then(|| fs::read_to_string(path).ok())?
}

#[derive(Deserialize)]
struct Galaxy {
    name: String,
    version: String,
}

/// A task, as far as it asserts something.
#[derive(Deserialize)]
struct Task {
    #[serde(rename = "assert")]
    short: Option<Assert>,
    #[serde(rename = "ansible.builtin.assert")]
    long: Option<Assert>,
    when: Option<Texts>,
    #[serde(default)]
    vars: Map<String, Value>,
    #[serde(default)]
    block: Vec<Task>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Deserialize)]
struct Assert {
    that: Texts,
}

/// One text or several. What is something else is none that is understood.
#[derive(Default, Deserialize)]
#[serde(transparent)]
struct Texts(Value);

impl Texts {
    fn texts(self) -> Vec<String> {
        let items = match self.0 {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            other => vec![other],
        };
        let text = |item| match item {
            Value::String(text) => text,
            other => other.to_string(),
        };
        items.into_iter().map(text).collect()
    }
}

/// Components whose version a variable chooses: that variable, the table with the checksums of their versions, and the variable that
/// gives one checksum instead.
///
/// # Source
/// `defaults/main/download.yml` of role `kubespray_defaults` of 2.30.0, and its table `checksums.yml`.
pub const COMPONENTS: &[(&str, &str, &str)] = &[
    (
        "calico_version",
        "calicoctl_binary_checksums",
        "calicoctl_binary_checksum",
    ),
    ("cni_version", "cni_binary_checksums", "cni_binary_checksum"),
    (
        "containerd_version",
        "containerd_archive_checksums",
        "containerd_archive_checksum",
    ),
    (
        "crictl_version",
        "crictl_checksums",
        "crictl_binary_checksum",
    ),
    (
        "crio_version",
        "crio_archive_checksums",
        "crio_archive_checksum",
    ),
    ("crun_version", "crun_checksums", "crun_binary_checksum"),
    (
        "etcd_version",
        "etcd_binary_checksums",
        "etcd_binary_checksum",
    ),
    (
        "nerdctl_version",
        "nerdctl_archive_checksums",
        "nerdctl_archive_checksum",
    ),
    ("runc_version", "runc_checksums", "runc_binary_checksum"),
];

struct Bounds {
    entries: usize,
    bytes: usize,
}

/// Some ten times of what 2.31.0 has.
const BOUNDS: Bounds = Bounds {
    entries: 20_000,
    bytes: 16 << 20,
};

/// How deep files of roles lie at most.
const DEPTH: usize = 12;

/// More than ten times the largest file that is read of any release, in bytes.
const LARGEST: u64 = 1 << 20;

/// The variable of the task that refuses removed ones.
const REMOVED: &str = "removed_vars";

/// What says that checksums of one's own do not help.
const LISTED: &[&str] = &[
    "kube_version in kubelet_checksums[image_arch]",
    "kube_version in kubelet_checksums['amd64']",
];

/// Where releases assert what they demand, newest layout first.
const ASSERTIONS: &[&str] = &[
    "roles/validate_inventory/tasks/main.yml",
    "roles/kubernetes/preinstall/tasks/0040-verify-settings.yml",
    "roles/kubernetes/preinstall/tasks/0020-verify-settings.yml",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_components_are_read_from_the_tables() {
        let checkout = tempfile::tempdir().unwrap();
        let directory = checkout.path().join("roles/kubespray_defaults/vars/main");
        fs::create_dir_all(&directory).unwrap();
        let tables = "containerd_archive_checksums:\n  arm64: {2.2.1: sha256:a, 1.0.0: 0}\n  amd64: {2.2.0: sha256:b}\n\
                      etcd_binary_checksums: none\nother: {amd64: {1.0.0: a}}\n";
        fs::write(directory.join("checksums.yml"), tables).unwrap();
        let versions = ["2.2.0", "2.2.1"].map(str::to_owned).into();
        let expected = BTreeMap::from([("containerd_archive_checksums".to_owned(), versions)]);
        assert_eq!(contract(checkout.path()).checksums, expected);
    }
}
