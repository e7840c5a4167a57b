//! The ansible.cfg of a run: Windlass' settings, the search paths of the checkout, the person's overrides.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::check::override_rule;
use crate::ssh::{self, Access, Bastion, HostKeys};

/// What an ansible.cfg is made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// The playbooks. Their own ansible.cfg says where roles and modules are.
    pub checkout: PathBuf,
    /// The number of hosts.
    pub hosts: usize,
    /// How many hosts Ansible may work on at once. Default: by the number of hosts, at most 50.
    pub max_forks: Option<u16>,
    /// The fact cache of the cluster.
    pub facts: PathBuf,
    /// The file with the hosts' keys.
    pub known_hosts: PathBuf,
    /// A short directory for ssh's control sockets, for example below `/run` or `/tmp`.
    pub control: PathBuf,
    /// Seconds until a host that does not answer counts as unreachable. Default: 5.
    pub connect_timeout_seconds: Option<u32>,
    /// How often a connection is tried, 1 to 3. Default: 2.
    pub connection_attempts: Option<u8>,
    /// Directories with callback plugins.
    pub callback_plugins: Vec<PathBuf>,
    /// Names of the callback plugins to enable.
    pub callbacks: Vec<String>,
    /// The host to reach the others through.
    pub bastion: Option<Bastion>,
    /// The key file, for hosts and bastion. Default: what ssh finds.
    pub private_key: Option<PathBuf>,
    /// The person's overrides: section, key, value.
    pub overrides: BTreeMap<String, BTreeMap<String, String>>,
}

/// Why an ansible.cfg cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The checkout's own file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A control socket would have a path that the kernel refuses.
    #[error(
        "place ssh's control sockets in {directory}: the path of a socket would have {length} characters, at most 107 are \
         possible; use a shorter directory"
    )]
    ControlPath {
        /// The directory.
        directory: PathBuf,
        /// How long the path would be, with what ssh appends while it connects.
        length: usize,
    },
    /// A name or value would break out of its line.
    #[error("write {section}.{key} into ansible.cfg: {rule}")]
    Unwritable {
        /// The section.
        section: String,
        /// The key.
        key: String,
        /// What is wrong.
        rule: &'static str,
    },
}

/// How many hosts Ansible works on at once.
pub fn forks(hosts: usize, max_forks: Option<u16>) -> u16 {
    let wanted = u16::try_from(hosts).unwrap_or(u16::MAX);
    wanted.max(5).min(max_forks.unwrap_or(50).max(1))
}

/// The text of an ansible.cfg.
///
/// The shipped one is not used: it tries a connection 100 times (a dead host stalls a run for seven minutes), trusts every
/// host key, shares one fact cache between clusters in `/tmp`, and works on five hosts at once.
///
/// # Errors
///
/// A path or setting would break out of its line, may not be overridden, or gives ssh's sockets too long a path.
pub fn ansible_cfg(configuration: &Configuration) -> Result<String, ConfigurationError> {
    let mut sections = Sections::default();
    defaults(configuration, &mut sections);
    search_paths(configuration, &mut sections)?;
    connection(configuration, &mut sections)?;
    for (section, entries) in &configuration.overrides {
        for (key, value) in entries {
            if let Some(rule) = override_rule(section, key, value) {
                return Err(ConfigurationError::Unwritable {
                    section: section.clone(),
                    key: key.clone(),
                    rule,
                });
            }
            sections.set(section, key, value);
        }
    }
    sections.render()
}

fn defaults(configuration: &Configuration, sections: &mut Sections) {
    let timeout = configuration.connect_timeout_seconds.unwrap_or(5);
    let forks = forks(configuration.hosts, configuration.max_forks);
    let plugins: Vec<String> = configuration
        .callback_plugins
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    for (key, value) in [
        ("forks", forks.to_string()),
        ("timeout", timeout.max(10).to_string()),
        ("gathering", "smart".to_owned()),
        ("fact_caching", "jsonfile".to_owned()),
        (
            "fact_caching_connection",
            configuration.facts.display().to_string(),
        ),
        // A week: facts are gathered by the playbooks themselves, the cache only has to outlive a pause between steps.
        ("fact_caching_timeout", "604800".to_owned()),
        ("host_key_checking", "True".to_owned()),
        ("interpreter_python", "auto_silent".to_owned()),
        ("force_valid_group_names", "ignore".to_owned()),
        ("deprecation_warnings", "False".to_owned()),
        ("retry_files_enabled", "False".to_owned()),
        ("display_skipped_hosts", "False".to_owned()),
        ("nocows", "True".to_owned()),
    ] {
        sections.set("defaults", key, &value);
    }
    if !plugins.is_empty() {
        sections.set("defaults", "callback_plugins", &plugins.join(":"));
    }
    if !configuration.callbacks.is_empty() {
        sections.set(
            "defaults",
            "callbacks_enabled",
            &configuration.callbacks.join(","),
        );
    }
}

/// The search paths of the checkout's own ansible.cfg, made absolute: relative ones count from that file.
fn search_paths(
    configuration: &Configuration,
    sections: &mut Sections,
) -> Result<(), ConfigurationError> {
    let path = configuration.checkout.join("ansible.cfg");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(ConfigurationError::Read { path, source }),
    };
    let shipped = parse(&text);
    for key in SEARCH_PATHS {
        let value = shipped
            .get("defaults")
            .and_then(|entries| entries.get(*key));
        if let Some(value) = value {
            sections.set("defaults", key, &absolute(value, &configuration.checkout));
        }
    }
    if !sections.has("defaults", "roles_path") {
        let roles = configuration.checkout.join("roles").display().to_string();
        sections.set("defaults", "roles_path", &roles);
    }
    Ok(())
}

fn connection(
    configuration: &Configuration,
    sections: &mut Sections,
) -> Result<(), ConfigurationError> {
    let control = &configuration.control;
    // ssh's %C is 40 characters; while it connects, it appends a dot and 16 more.
    let length = control.as_os_str().len() + 1 + 40 + 17;
    if length > 107 {
        return Err(ConfigurationError::ControlPath {
            directory: control.clone(),
            length,
        });
    }
    let access = Access {
        key: configuration.private_key.clone(),
        known_hosts: configuration.known_hosts.clone(),
        host_keys: HostKeys::Strict,
        bastion: configuration.bastion.clone(),
    };
    let timeout = Duration::from_secs(configuration.connect_timeout_seconds.unwrap_or(5).into());
    let attempts = configuration.connection_attempts.unwrap_or(2).clamp(1, 3);
    let shared = ["-o", "ControlMaster=auto", "-o", "ControlPersist=5m"].map(str::to_owned);
    let arguments = shared.into_iter().chain(access.options(timeout, attempts));
    let arguments: Vec<String> = arguments.map(|word| ssh::quote(&word)).collect();
    sections.set("ssh_connection", "pipelining", "True");
    sections.set("ssh_connection", "ssh_args", &arguments.join(" "));
    sections.set(
        "ssh_connection",
        "control_path_dir",
        &control.display().to_string(),
    );
    sections.set("ssh_connection", "control_path", "%(directory)s/%%C");
    sections.set("ssh_connection", "retries", "1");
    Ok(())
}

/// Sections of an INI file, in order.
#[derive(Default)]
struct Sections(Vec<(String, Vec<(String, String)>)>);

impl Sections {
    fn set(&mut self, section: &str, key: &str, value: &str) {
        let position = self.0.iter().position(|(name, _)| name == section);
        let index = position.unwrap_or_else(|| {
            self.0.push((section.to_owned(), Vec::new()));
            self.0.len().saturating_sub(1)
        });
        let Some((_, entries)) = self.0.get_mut(index) else {
            return;
        };
        match entries.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => value.clone_into(old),
            None => entries.push((key.to_owned(), value.to_owned())),
        }
    }

    fn has(&self, section: &str, key: &str) -> bool {
        let mut sections = self.0.iter().filter(|(name, _)| name == section);
        sections.any(|(_, entries)| entries.iter().any(|(name, _)| name == key))
    }

    fn render(&self) -> Result<String, ConfigurationError> {
        let mut text = String::new();
        for (section, entries) in &self.0 {
            let _ = writeln!(text, "[{section}]");
            for (key, value) in entries {
                check_line(section, key, value)?;
                let _ = writeln!(text, "{key} = {value}");
            }
            text.push('\n');
        }
        Ok(text)
    }
}

fn check_line(section: &str, key: &str, value: &str) -> Result<(), ConfigurationError> {
    let word = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    let rule = if !word(section) || !word(key) {
        "sections and keys are letters, digits, '_', '-' and '.'"
    } else if value.chars().any(char::is_control) {
        "a value is one line without control characters"
    } else {
        return Ok(());
    };
    Err(ConfigurationError::Unwritable {
        section: section.to_owned(),
        key: key.to_owned(),
        rule,
    })
}

/// Reads an INI file as far as search paths need it.
fn parse(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut sections: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            name.trim().clone_into(&mut current);
        } else if let Some((key, value)) = line.split_once(['=', ':']) {
            let entries = sections.entry(current.clone()).or_default();
            entries.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    sections
}

fn absolute(paths: &str, checkout: &Path) -> String {
    let paths = paths
        .split(':')
        .map(str::trim)
        .filter(|path| !path.is_empty());
    let paths: Vec<String> = paths
        .map(|path| {
            if path.starts_with(['/', '~', '$']) {
                path.to_owned()
            } else {
                checkout
                    .join(path.trim_start_matches("./"))
                    .display()
                    .to_string()
            }
        })
        .collect();
    paths.join(":")
}

/// The settings of a shipped ansible.cfg that say where things are.
const SEARCH_PATHS: &[&str] = &[
    "roles_path",
    "library",
    "module_utils",
    "collections_path",
    "action_plugins",
    "filter_plugins",
    "lookup_plugins",
    "test_plugins",
    "vars_plugins",
    "connection_plugins",
    "strategy_plugins",
    "cache_plugins",
];
