//! Inventories that somebody wrote for Ansible, as Ansible itself reads them.
//!
//! An inventory may bring programs: scripts, YAML files that configure plugins, plugins beside it. None of them is started: only
//! Ansible's own readers of ini and YAML files are on, plugins are looked for where there are none, and the configuration is
//! empty. What it prints is data: a template in a value is a text here.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};
use tokio::process::Command;

use crate::{file::write_private, program};

/// Reads inventories.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The directory with Ansible's programs.
    programs: PathBuf,
    /// A directory of ours alone.
    home: PathBuf,
    /// Files with the passwords of vaults.
    passwords: Vec<PathBuf>,
}

/// What Ansible makes of an inventory: hosts in groups, and the variables of each host, those of its groups among them.
#[derive(Clone, Default, PartialEq)]
pub struct Listing {
    groups: BTreeMap<String, Group>,
    hosts: BTreeMap<String, Map<String, Value>>,
}

#[derive(Clone, Default, PartialEq)]
struct Group {
    hosts: Vec<String>,
    children: Vec<String>,
}

/// Why an inventory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program gave no answer.
    #[error(transparent)]
    Program(#[from] program::Error),
    /// A vault does not open.
    #[error("decrypt what is vaulted: no password that was given fits ({0})")]
    Vault(String),
    /// Ansible refuses it.
    #[error("have Ansible read the inventory: {0}")]
    Refused(String),
    /// Ansible printed something else than a list.
    #[error("read what ansible-inventory printed")]
    Unreadable(#[source] serde_json::Error),
}

impl Reader {
    /// A reader by the programs of an environment. `home` is a directory of ours alone, in memory where inventories hold
    /// secrets. A password file that can be executed is, as Ansible does it.
    ///
    /// # Errors
    ///
    /// The empty configuration cannot be written.
    pub fn new(programs: PathBuf, home: PathBuf, passwords: Vec<PathBuf>) -> Result<Self, Error> {
        let config = home.join(CONFIG);
        write_private(&config, b"").map_err(program::Error::of(&config))?;
        Ok(Self {
            programs,
            home,
            passwords,
        })
    }

    /// What Ansible makes of these files together, with `group_vars` and `host_vars` beside them.
    ///
    /// # Errors
    ///
    /// Ansible cannot be started, or cannot read all of them.
    pub async fn list(&self, files: &[PathBuf]) -> Result<Listing, Error> {
        self.listing(files, &[]).await
    }

    /// The same with those variables alone that are written at each host itself, and not at a group of it.
    ///
    /// # Errors
    ///
    /// As of [`Reader::list`].
    pub async fn own(&self, files: &[PathBuf]) -> Result<Listing, Error> {
        self.listing(files, &["--export"]).await
    }

    async fn listing(&self, files: &[PathBuf], options: &[&str]) -> Result<Listing, Error> {
        let mut command = self.command("ansible-inventory", "--list");
        command.args(options);
        for file in files {
            command.arg("--inventory").arg(file);
        }
        let printed = self.output(command, "").await?;
        serde_json::from_str(&printed)
            .map(Listing::of)
            .map_err(Error::Unreadable)
    }

    /// The text of a vaulted file.
    ///
    /// # Errors
    ///
    /// No password fits.
    pub async fn view(&self, file: &Path) -> Result<String, Error> {
        let mut command = self.command("ansible-vault", "view");
        command.arg(file);
        self.output(command, "").await
    }

    /// The text of a vaulted value.
    ///
    /// # Errors
    ///
    /// No password fits.
    pub async fn decrypt(&self, vaulted: &str) -> Result<String, Error> {
        let mut command = self.command("ansible-vault", "decrypt");
        command.args(["--output", "-"]);
        self.output(command, vaulted).await
    }

    fn command(&self, program: &str, action: &str) -> Command {
        let mut command = program::command(&self.programs.join(program));
        let nothing = self.home.join("nothing");
        for places in [
            "ANSIBLE_INVENTORY_PLUGINS",
            "ANSIBLE_VARS_PLUGINS",
            "ANSIBLE_CALLBACK_PLUGINS",
            "ANSIBLE_COLLECTIONS_PATH",
            "ANSIBLE_COLLECTIONS_PATHS",
        ] {
            command.env(places, &nothing);
        }
        command
            .arg(action)
            .current_dir(&self.home)
            .env("ANSIBLE_CONFIG", self.home.join(CONFIG))
            .env("ANSIBLE_HOME", &self.home)
            .env("ANSIBLE_LOCAL_TEMP", self.home.join("tmp"))
            .env("ANSIBLE_INVENTORY_ENABLED", "ini,yaml")
            .env("ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED", "1")
            .env("ANSIBLE_VARS_ENABLED", "host_group_vars");
        for password in &self.passwords {
            command.arg("--vault-password-file").arg(password);
        }
        command
    }

    async fn output(&self, command: Command, input: &str) -> Result<String, Error> {
        let output = program::output(command, input).await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = reason(&said);
        Err(if reason.contains("vault") {
            Error::Vault(reason)
        } else {
            Error::Refused(reason)
        })
    }
}

/// What Ansible complains of, on one line.
pub(crate) fn reason(said: &str) -> String {
    let lines: Vec<_> = said.lines().map(str::trim).collect();
    let told = lines.iter().filter(|line| !line.is_empty());
    let told: Vec<_> = told
        .map(|line| line.trim_start_matches("[WARNING]:").trim())
        .collect();
    api::text::plain(&told.join("; "), 2048)
}

const CONFIG: &str = "ansible.cfg";

impl Listing {
    /// What `ansible-inventory --list` prints.
    pub fn of(mut printed: Map<String, Value>) -> Self {
        let mut listing = Self::default();
        if let Some(Value::Object(mut meta)) = printed.remove("_meta")
            && let Some(Value::Object(hosts)) = meta.remove("hostvars")
        {
            let with = hosts.into_iter().filter_map(|(host, variables)| {
                let Value::Object(variables) = variables else {
                    return None;
                };
                Some((host, variables))
            });
            listing.hosts = with.collect();
        }
        for (name, group) in printed {
            let names = |key: &str| -> Vec<String> {
                let names = group.get(key).and_then(Value::as_array);
                let names = names.into_iter().flatten().filter_map(Value::as_str);
                names.map(str::to_owned).collect()
            };
            let group = Group {
                hosts: names("hosts"),
                children: names("children"),
            };
            // A host without variables stands in groups alone.
            for host in &group.hosts {
                listing.hosts.entry(host.clone()).or_default();
            }
            listing.groups.insert(name, group);
        }
        listing
    }

    /// The groups that have hosts.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let names = self.groups.keys().map(String::as_str);
        names.filter(|name| !self.members(name).is_empty())
    }

    /// The hosts of a group and of those below it, in the order in which Ansible counts them: its own first.
    ///
    /// # Source
    /// `Group.get_hosts` of ansible-core, which goes through the groups below breadth first.
    pub fn members(&self, group: &str) -> Vec<&str> {
        let mut hosts = Vec::new();
        let mut groups = vec![group];
        let mut next = 0;
        while let Some(name) = groups.get(next) {
            next += 1;
            let Some(group) = self.groups.get(*name) else {
                continue;
            };
            for host in &group.hosts {
                if !hosts.contains(&host.as_str()) {
                    hosts.push(host);
                }
            }
            for child in &group.children {
                if !groups.contains(&child.as_str()) {
                    groups.push(child);
                }
            }
        }
        hosts
    }

    /// Every host with its variables. A vaulted value is an object whose only field is [`VAULTED`], a text that is no template
    /// one whose only field is [`UNSAFE`].
    pub fn hosts(&self) -> &BTreeMap<String, Map<String, Value>> {
        &self.hosts
    }
}

/// The only field of a value that is encrypted.
pub const VAULTED: &str = "__ansible_vault";
/// The only field of a text that is no template.
pub const UNSAFE: &str = "__ansible_unsafe";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_below_come_behind_own_hosts_and_each_host_counts_once() {
        let printed = json!({
            "_meta": {"hostvars": {"b": {"x": 1}}},
            "all": {"children": ["ungrouped", "top"]},
            "top": {"hosts": ["c"], "children": ["left", "right", "empty"]},
            "left": {"hosts": ["b", "c"], "children": ["top"]},
            "right": {"hosts": ["a", "b"]},
            "empty": {},
        });
        let Value::Object(printed) = printed else {
            panic!("no object");
        };
        let listing = Listing::of(printed);
        assert_eq!(listing.members("top"), ["c", "b", "a"]);
        assert_eq!(listing.members("nowhere"), [""; 0]);
        assert_eq!(
            listing.groups().collect::<Vec<_>>(),
            ["all", "left", "right", "top"]
        );
        assert_eq!(listing.hosts()["b"]["x"], 1);
        assert!(listing.hosts()["a"].is_empty());
    }
}
