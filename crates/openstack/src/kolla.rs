//! The contract of Kolla's images: what a container is to run, and which files are copied where, stands in `config.json` of a directory
//! that it finds. Pure.
//!
//! Its entry point, `kolla_start`, has `kolla_set_configs` read that file by sudo, and becomes what is named there: the words of
//! `command` as a shell splits them, and no word can be quoted. So a command with other words is a script in the same directory.
//!
//! Both stand in annotations of the pod, which are files there: a pod that stands keeps what it was made with, a Job is another one when
//! they are others, and there is no object more that has to come before and go after. Neither is secret.
//!
//! # Source
//! `docker/base/start.sh`, `set_configs.py` and `sudoers` of Kolla 23, of which a test of this crate runs the second.

use api::openstack::Contract;
use serde_json::{Value, json};

use crate::definition::Definition;

/// Where a container finds `config.json`, and the files that it tells of.
pub const DIRECTORY: &str = "/var/lib/kolla/config_files";
/// The script, where the command is no plain words.
pub const SCRIPT: &str = "command";
/// How long the words of a command may be, in bytes: all annotations of a pod are 256 KiB at most, and a quote becomes four letters.
pub const LONGEST: usize = 49_152;
/// The group whose members may copy files by sudo.
const GROUP: u32 = 42400;
/// What tells `kolla_set_configs` to copy the files whenever a container starts.
const STRATEGY: &str = "KOLLA_CONFIG_STRATEGY";
/// What the container is called.
const NAME: &str = "KOLLA_SERVICE_NAME";

/// What a container is told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Told {
    /// `config.json`.
    pub config: String,
    /// The script, where there is one.
    pub script: Option<String>,
}

/// The number of the user that containers of a service run as.
pub const fn user(definition: &Definition, contract: Contract) -> u32 {
    match contract {
        Contract::Mounted => definition.user,
        Contract::Kolla => definition.kolla.uid,
    }
}

/// Whether a variable is what a container of this contract starts by.
pub fn is_own(variable: &str) -> bool {
    [STRATEGY, NAME].contains(&variable)
}

/// Tells what a container runs, and which of the service's files it has.
pub fn told<'a>(
    definition: &Definition,
    files: impl Iterator<Item = &'a String>,
    command: &[String],
) -> Told {
    let (command, script) = if command.iter().all(|word| is_plain(word)) {
        (command.join(" "), None)
    } else {
        let run = format!("/bin/sh {DIRECTORY}/{SCRIPT}");
        (run, Some(script(command)))
    };
    let files = files.map(|name| {
        json!({
            "source": format!("{DIRECTORY}/{name}"),
            "dest": format!("{}/{name}", definition.config_directory),
            "owner": definition.kolla.user,
            "perm": "0600",
        })
    });
    let config = json!({"command": command, "config_files": files.collect::<Vec<_>>()});
    Told {
        config: format!("{config:#}\n"),
        script,
    }
}

/// Has the container of a pod, as the charts take it, start by the contract and run that command.
pub fn start<'a>(
    values: &mut Value,
    definition: &Definition,
    files: impl Iterator<Item = &'a String>,
    command: &[String],
) {
    let Told { config, script } = told(definition, files, command);
    values["command"] = json!([]);
    values["environment"][STRATEGY] = json!("COPY_ALWAYS");
    values["environment"][NAME] = json!(definition.kolla.container);
    values["kolla"] = json!({
        "directory": DIRECTORY,
        "group": GROUP,
        "config": config,
        "script": script,
    });
}

/// Whether a shell leaves a word as it is that it is not told to quote.
fn is_plain(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    !word.is_empty() && word.bytes().all(is_plain)
}

fn script(command: &[String]) -> String {
    let words = command
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    format!("exec {}\n", words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition;

    fn of(command: &[&str]) -> Told {
        let keystone = definition::find("keystone").unwrap();
        let command: Vec<_> = command.iter().map(|word| (*word).to_owned()).collect();
        told(keystone, ["keystone.conf".to_owned()].iter(), &command)
    }

    #[test]
    fn plain_words_stand_in_the_file_and_others_in_a_script_beside_it() {
        let Told { config, script } = of(&["keystone-manage", "db_sync", "--expand"]);
        let config: Value = serde_json::from_str(&config).unwrap();
        assert_eq!(
            config,
            json!({
                "command": "keystone-manage db_sync --expand",
                "config_files": [{
                    "source": "/var/lib/kolla/config_files/keystone.conf",
                    "dest": "/etc/keystone/keystone.conf", "owner": "keystone", "perm": "0600",
                }],
            })
        );
        assert_eq!(script, None);
        for other in ["it's", "*", "a b", "", "$HOME", "a\nb", "~", "\\"] {
            let Told { config, script } = of(&["printf", "%s", other]);
            assert!(config.contains(r#""/bin/sh /var/lib/kolla/config_files/command""#));
            let script = script.unwrap();
            let ran = std::process::Command::new("sh")
                .args(["-c", &script])
                .output();
            let said = String::from_utf8(ran.unwrap().stdout).unwrap();
            assert_eq!(said, other, "{script}");
        }
    }
}
