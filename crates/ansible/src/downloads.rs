//! What playbooks ask the network for: the files and images of kubespray's role `download`, as Ansible itself evaluates them.
//!
//! The list is made of templates that build on each other, on tables of checksums and on a cluster's own variables, and it differs
//! from release to release. So nothing of it is known here: a playbook of one task loads the defaults of the release, and the
//! release's own Ansible writes down what they come to for each host. No host is connected to. What they would say of themselves is
//! given as facts: a processor's architecture, and that they are Linux.
//!
//! Images of the control plane are no part of that list: kubeadm names them on a host. The four of them follow from the repository
//! and the version that the role gives to kubeadm.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use serde_json::{Map, Value, json};

use crate::{file::write_private, inventory::is_magic, listing::reason, program};

/// What is to be evaluated.
#[derive(Clone, Debug)]
pub struct Question {
    /// The ansible-playbook of the release's environment.
    pub ansible_playbook: PathBuf,
    /// The playbooks.
    pub checkout: PathBuf,
    /// The inventory, as [`Inventory::document`](crate::inventory::Inventory::document) writes it.
    pub inventory: Value,
    /// The extra variables.
    pub variables: Map<String, Value>,
    /// The hosts that are asked about, each with its architecture. One of each kind is enough.
    pub hosts: BTreeMap<String, Architecture>,
}

/// The architecture of a host, by the name that images have for it.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// `x86_64`.
    #[default]
    Amd64,
    /// `aarch64`.
    Arm64,
    /// `ppc64le`.
    Ppc64le,
}

impl Architecture {
    /// Every one that kubespray has files for.
    pub const ALL: [Self; 3] = [Self::Amd64, Self::Arm64, Self::Ppc64le];

    /// What images and files call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::Ppc64le => "ppc64le",
        }
    }

    /// What a kernel calls it, which is the fact `ansible_architecture`.
    pub const fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
            Self::Ppc64le => "ppc64le",
        }
    }

    /// The one that has either name.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.name() == name || one.machine() == name)
    }
}

/// What a host asks for.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct Answer {
    /// The groups that it is in.
    pub groups: Vec<String>,
    /// The entries of the role, by name, whether they are asked for or not.
    pub downloads: BTreeMap<String, Download>,
    /// Whether the first control plane fetches everything, for all.
    #[serde(deserialize_with = "flag")]
    pub once: bool,
    /// What kubeadm is given; none: the playbooks do not ask it.
    pub kubeadm: Option<Kubeadm>,
    /// The container engine.
    #[serde(deserialize_with = "text")]
    pub engine: String,
    /// Where containerd looks for images, by the registry that they name.
    #[serde(deserialize_with = "lenient")]
    pub mirrors: Vec<RegistryMirror>,
}

/// An entry of the role.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Download {
    /// Whether it is asked for.
    #[serde(deserialize_with = "flag")]
    pub enabled: bool,
    /// Whether it is an image, and not a file.
    #[serde(deserialize_with = "flag")]
    pub container: bool,
    /// Where a file comes from.
    #[serde(deserialize_with = "text")]
    pub url: String,
    /// Where else it comes from, in older releases.
    #[serde(deserialize_with = "lenient")]
    pub mirrors: Vec<String>,
    /// The image without its tag.
    #[serde(deserialize_with = "text")]
    pub repo: String,
    /// The tag.
    #[serde(deserialize_with = "text")]
    pub tag: String,
    /// The checksum, with its algorithm before a colon.
    #[serde(deserialize_with = "text")]
    pub checksum: String,
    /// The same in older releases, and what an image is pulled by.
    #[serde(deserialize_with = "text")]
    pub sha256: String,
    /// The groups that ask for it.
    #[serde(deserialize_with = "lenient")]
    pub groups: Vec<String>,
}

/// What kubeadm is given.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Kubeadm {
    /// The repository of the control plane's images.
    #[serde(deserialize_with = "text")]
    pub repository: String,
    /// Their tag.
    #[serde(deserialize_with = "text")]
    pub version: String,
    /// The image of etcd where kubeadm runs it, else nothing.
    #[serde(deserialize_with = "text")]
    pub etcd: String,
}

/// Where containerd looks for the images of one registry.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct RegistryMirror {
    /// The registry that images name.
    #[serde(deserialize_with = "text")]
    pub prefix: String,
    /// Where it looks instead, one after the other.
    #[serde(deserialize_with = "lenient")]
    pub mirrors: Vec<MirrorHost>,
}

/// One place of them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct MirrorHost {
    /// Its address.
    #[serde(deserialize_with = "text")]
    pub host: String,
    /// Whether its certificate counts for nothing.
    #[serde(deserialize_with = "flag")]
    pub skip_verify: bool,
}

impl Answer {
    /// The entries that the host asks for.
    pub fn wanted(&self) -> impl Iterator<Item = (&str, &Download)> {
        let of_host = |download: &Download| {
            self.once
                || download
                    .groups
                    .iter()
                    .any(|group| self.groups.contains(group))
        };
        self.downloads
            .iter()
            .filter(move |(_, download)| download.enabled && of_host(download))
            .map(|(name, download)| (name.as_str(), download))
    }
}

/// Why nothing is known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program gave no answer.
    #[error(transparent)]
    Program(#[from] program::Error),
    /// Ansible does not come to an end with it.
    #[error("have Ansible evaluate the downloads of these playbooks: {0}")]
    Refused(String),
    /// What it comes to is no list.
    #[error("read the downloads of host {host}")]
    Unreadable {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// What it comes to is too long.
    #[error("the downloads of host {0} are more than {MOST} bytes of text")]
    TooLong(String),
}

/// What each of the hosts asks for. Starts one Ansible, and changes nothing anywhere.
///
/// # Errors
///
/// Ansible cannot be started, or refuses: a variable that the templates need is undefined, for example.
pub async fn evaluate(question: &Question) -> Result<BTreeMap<String, Answer>, Error> {
    let work = tempfile::Builder::new()
        .prefix(crate::CHANCE_PREFIX)
        .tempdir()
        .map_err(program::Error::of(Path::new("a temporary directory")))?;
    let work = work.path();
    write(question, work)?;
    run(question, work).await?;
    let hosts = question.hosts.keys();
    hosts
        .map(|host| Ok((host.clone(), read(host, &work.join(ANSWERS))?)))
        .collect()
}

/// As much as kubespray says of all it knows, ten times.
const MOST: u64 = 1 << 20;
const ANSWERS: &str = "answers";

fn write(question: &Question, work: &Path) -> Result<(), Error> {
    for directory in [ANSWERS, "facts", "nothing"] {
        let path = work.join(directory);
        fs::create_dir(&path).map_err(program::Error::of(&path))?;
    }
    let file = |name: &str, text: String| {
        let path = work.join(name);
        write_private(&path, text.as_bytes()).map_err(program::Error::of(&path))
    };
    file("ansible.cfg", String::new())?;
    file(
        "inventory.json",
        without_settings(question.inventory.clone()).to_string(),
    )?;
    // How hosts are reached and worked on is of no matter, and must not be for what writes down the answer.
    let variables: Map<String, Value> = question
        .variables
        .iter()
        .filter(|(name, _)| !is_setting(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    file("variables.json", Value::Object(variables).to_string())?;
    file(
        "playbook.json",
        playbook(&question.checkout, work).to_string(),
    )?;
    for (host, architecture) in &question.hosts {
        file(&format!("facts/{host}"), facts(*architecture).to_string())?;
    }
    Ok(())
}

/// Whether a variable says how hosts are reached and worked on, or is Ansible's own.
fn is_setting(name: &str) -> bool {
    name.starts_with("ansible_") || is_magic(name)
}

/// An inventory without variables that say how hosts are reached and worked on.
fn without_settings(mut inventory: Value) -> Value {
    let all = &mut inventory["all"];
    let mut variables = Vec::from_iter(all.get_mut("vars").map(Value::take));
    let hosts = all.get_mut("hosts").and_then(Value::as_object_mut);
    let mut hosts = hosts.map(std::mem::take).unwrap_or_default();
    for of_one in variables.iter_mut().chain(hosts.values_mut()) {
        if let Value::Object(of_one) = of_one {
            of_one.retain(|name, _| !is_setting(name));
        }
    }
    all["vars"] = variables.pop().unwrap_or_else(|| json!({}));
    all["hosts"] = Value::Object(hosts);
    inventory
}

/// What the host would say, so far as the defaults of any release ask. The address is of the range for documentation.
fn facts(architecture: Architecture) -> Value {
    const ADDRESS: &str = "192.0.2.1";
    json!({
        "ansible_architecture": architecture.machine(),
        "ansible_system": "Linux",
        "ansible_os_family": "Debian",
        "ansible_distribution": "Debian",
        "ansible_distribution_release": "bookworm",
        "ansible_distribution_version": "12",
        "ansible_distribution_major_version": "12",
        "ansible_default_ipv4": {"address": ADDRESS},
        "main_ip": ADDRESS, "main_ips": [ADDRESS],
        "main_access_ip": ADDRESS, "main_access_ips": [ADDRESS],
    })
}

/// A play that loads defaults and writes down what they come to. The roles themselves do nothing.
fn playbook(checkout: &Path, work: &Path) -> Value {
    let has = |path: &str| checkout.join("roles").join(path).exists();
    let roles = ["kubespray-defaults", "kubespray_defaults", "download"]
        .into_iter()
        .filter(|role| has(&format!("{role}/defaults")) || has(&format!("{role}/vars")))
        .map(|role| json!({"role": role, "when": false}));
    let kubeadm = if has("download/tasks/prep_kubeadm_images.yml") {
        KUBEADM
    } else {
        "none"
    };
    // `default` would also take an undefined variable within them for nothing.
    let defined = |name: &str, nothing: &str| {
        format!("({name} if lookup('ansible.builtin.varnames', '^{name}$') else {nothing})")
    };
    let (downloads, mirrors) = (
        defined("downloads", "{}"),
        defined("containerd_registries_mirrors", "[]"),
    );
    let content = format!(
        "{{{{ {{'groups': group_names, 'downloads': {downloads}, 'once': download_run_once | default(false), \
         'engine': container_manager | default(''), 'mirrors': {mirrors}, 'kubeadm': {kubeadm}}} | to_json }}}}"
    );
    json!([{
        "name": "Windlass: what is asked for",
        "hosts": "all",
        "gather_facts": false,
        "become": false,
        "connection": "local",
        "roles": roles.collect::<Vec<_>>(),
        "tasks": [{
            "name": "Write it down",
            "ansible.builtin.copy": {
                "dest": format!("{}/{{{{ inventory_hostname }}}}", work.join(ANSWERS).display()),
                "mode": "0600",
                "content": content,
            },
            "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
        }],
    }])
}

/// As the role's template for kubeadm has it, whose version has its `v` before it up to 2.27 and not since.
const KUBEADM: &str = "(skip_kubeadm_images | default(false) | bool) | ternary(none, {\
    'repository': kubeadm_image_repo | default(kube_image_repo), \
    'version': 'v' ~ (kube_version | regex_replace('^v', '')), \
    'etcd': (etcd_image_repo ~ ':' ~ etcd_image_tag) if etcd_deployment_type == 'kubeadm' else ''})";

async fn run(question: &Question, work: &Path) -> Result<(), Error> {
    let mut command = program::command(&question.ansible_playbook);
    let hosts: Vec<&str> = question.hosts.keys().map(String::as_str).collect();
    let limit = work.join("limit");
    write_private(&limit, hosts.join("\n").as_bytes()).map_err(program::Error::of(&limit))?;
    command
        .arg("--inventory")
        .arg(work.join("inventory.json"))
        .arg("--extra-vars")
        .arg(format!("@{}", work.join("variables.json").display()))
        .arg("--limit")
        .arg(format!("@{}", limit.display()))
        .arg(work.join("playbook.json"))
        .current_dir(work)
        .env("ANSIBLE_CONFIG", work.join("ansible.cfg"))
        .env("ANSIBLE_HOME", work)
        .env("ANSIBLE_LOCAL_TEMP", work.join("tmp"))
        .env("ANSIBLE_REMOTE_TEMP", work.join("tmp"))
        .env("ANSIBLE_ROLES_PATH", question.checkout.join("roles"))
        .env("ANSIBLE_LIBRARY", question.checkout.join("library"))
        .env("ANSIBLE_CALLBACK_PLUGINS", work.join("nothing"))
        .env("ANSIBLE_INVENTORY_ENABLED", "yaml")
        .env("ANSIBLE_GATHERING", "explicit")
        .env("ANSIBLE_CACHE_PLUGIN", "jsonfile")
        .env("ANSIBLE_CACHE_PLUGIN_CONNECTION", work.join("facts"))
        .env("ANSIBLE_CACHE_PLUGIN_TIMEOUT", "0")
        .env("ANSIBLE_DISPLAY_SKIPPED_HOSTS", "0");
    let output = program::output(command, "").await?;
    if output.status.success() {
        return Ok(());
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Err(Error::Refused(complaint(
        &text(&output.stdout),
        &text(&output.stderr),
    )))
}

/// What Ansible complains of: the message of the task that failed, else what it wrote beside its output.
fn complaint(stdout: &str, stderr: &str) -> String {
    let failed = stdout.lines().chain(stderr.lines()).find_map(|line| {
        // Of one of several items it is told without that word.
        let of_item = || line.strip_prefix("failed: ")?.split_once(") => ");
        let (_, told) = line.split_once("FAILED! => ").or_else(of_item)?;
        let told: Value = serde_json::from_str(told).ok()?;
        Some(told["msg"].as_str()?.to_owned())
    });
    // What follows is an excerpt of the playbook, which nobody wrote.
    let told = failed.map(|told| {
        told.split("\n\nThe error appears to be")
            .next()
            .map(str::to_owned)
    });
    let told = told.flatten().unwrap_or_else(|| reason(stderr));
    api::text::plain(&told, 1024)
}

fn read(host: &str, answers: &Path) -> Result<Answer, Error> {
    let path = answers.join(host);
    let mut text = String::new();
    let file = fs::File::open(&path).map_err(program::Error::of(&path))?;
    file.take(MOST)
        .read_to_string(&mut text)
        .map_err(program::Error::of(&path))?;
    if text.len() as u64 == MOST {
        return Err(Error::TooLong(host.to_owned()));
    }
    serde_json::from_str(&text).map_err(|source| Error::Unreadable {
        host: host.to_owned(),
        source,
    })
}

/// A flag: a template may come to its text.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Bool(flag) => flag,
        Value::String(text) => matches!(text.trim().to_lowercase().as_str(), "true" | "yes" | "1"),
        Value::Number(number) => number.as_i64() == Some(1),
        _ => false,
    })
}

/// A text: a version may look like a number, and what is not set is nothing or `None`.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) if text.trim() == "None" => String::new(),
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    })
}

/// A list, of which nothing is left where it is none.
fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either<T> {
        List(Vec<T>),
        Other(IgnoredAny),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::List(list) => list,
        Either::Other(IgnoredAny) => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn what_a_task_or_an_item_of_it_failed_with_is_told() {
        for told in [
            r#"fatal: [host]: FAILED! => {"msg": "'x' is undefined\n\nThe error appears to be in"}"#,
            r#"failed: [host] (item={'a': 1}) => {"item": {"a": 1}, "msg": "'x' is undefined"}"#,
        ] {
            assert_eq!(complaint(told, "beside"), "'x' is undefined");
        }
        assert_eq!(
            complaint("PLAY [x] ***", "ERROR! no\n\nplay"),
            "ERROR! no; play"
        );
    }
}
