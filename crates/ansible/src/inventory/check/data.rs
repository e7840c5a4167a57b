//! What Ansible would template, and what steers Ansible itself on the machine where it runs.
//!
//! Ansible takes every string of an inventory for a template, and a template may run programs (`lookup('pipe', ...)`) on the
//! machine that runs Ansible. Variables of the Cluster are the person's words to kubespray, which uses templates itself: there
//! they are meant. A variable of a host is a value, often filled in by a machine, and is none. Names that begin with `ansible_`
//! say which programs and plugins Ansible runs, and where, so only those are taken that cannot.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{InventoryError, is_user};
use crate::{inventory::PythonPath, template::is_template};

/// Refuses templates in a value, however deep.
pub(super) fn templates(path: &str, value: &Value, errors: &mut Vec<InventoryError>) {
    let mut refuse = |text: &str| {
        if is_template(text) {
            errors.push(InventoryError::new(
                path,
                format!("{:?}", api::text::plain(text, 128)),
                "is a template, which Ansible would run; a variable of a host is a value",
                "write the value itself, or the template into the Cluster's spec.nodes.all.deploy.extraVars",
            ));
        }
    };
    match value {
        Value::String(text) => refuse(text),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                templates(&format!("{path}[{index}]"), item, errors);
            }
        }
        Value::Object(entries) => {
            entries.keys().for_each(|key| refuse(key));
            for (key, item) in entries {
                templates(&format!("{path}.{key}"), item, errors);
            }
        }
        _ => {}
    }
}

/// A variable that steers Ansible itself, unless it is one of the harmless ones with a harmless value.
pub(super) fn steering(path: &str, name: &str, value: &Value) -> Option<InventoryError> {
    if !name.starts_with("ansible_") {
        return None;
    }
    let refuse = |rule: &str, remedy: &str| Some(InventoryError::new(path, value, rule, remedy));
    let Some((_, form)) = STEERING.iter().find(|(taken, _)| *taken == name) else {
        return refuse(
            "the variable steers how Ansible runs, on the machine where it runs",
            "leave it out; spec.ssh and spec.runner of the Cluster have what may be set",
        );
    };
    let fits = match (form, value) {
        (Form::Switch, Value::Bool(_)) => true,
        (Form::Number, value) => value.as_u64().is_some_and(|number| number <= 86_400),
        (Form::Path, Value::String(text)) => text.parse::<PythonPath>().is_ok(),
        (Form::User, Value::String(text)) => is_user(text),
        (Form::OneOf(words), Value::String(text)) => words.contains(&text.as_str()),
        _ => false,
    };
    if fits {
        return None;
    }
    let rule = match form {
        Form::Switch => "is not true or false".to_owned(),
        Form::Number => "is not a number up to 86400".to_owned(),
        Form::Path => "is not an absolute path of letters, digits and '/_.+-'".to_owned(),
        Form::User => "is not a user name".to_owned(),
        Form::OneOf(words) => format!("is not one of {}", words.join(", ")),
    };
    refuse(&rule, "correct it, or leave it out")
}

enum Form {
    Switch,
    Number,
    Path,
    User,
    OneOf(&'static [&'static str]),
}

/// The names that begin with `ansible_` and are taken: none of them names a program, a plugin or a file of the machine where
/// Ansible runs.
const STEERING: &[(&str, Form)] = &[
    ("ansible_become", Form::Switch),
    (
        "ansible_become_method",
        Form::OneOf(&["sudo", "su", "doas"]),
    ),
    ("ansible_become_user", Form::User),
    ("ansible_pipelining", Form::Switch),
    ("ansible_python_interpreter", Form::Path),
    ("ansible_remote_tmp", Form::Path),
    ("ansible_shell_type", Form::OneOf(&["sh"])),
    ("ansible_ssh_pipelining", Form::Switch),
    ("ansible_ssh_retries", Form::Number),
    ("ansible_ssh_timeout", Form::Number),
    (
        "ansible_ssh_transfer_method",
        Form::OneOf(&["smart", "sftp", "scp", "piped"]),
    ),
    ("ansible_timeout", Form::Number),
];

/// What is wrong with a person's overrides of ansible.cfg: those that would run a program of their own, read or write a file of
/// theirs, or take away what Windlass stands on.
pub fn overrides(given: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<InventoryError> {
    let mut errors = Vec::new();
    for (section, entries) in given {
        for (key, value) in entries {
            if let Some(rule) = override_rule(section, key, value) {
                let remedy = if is_of_hosts(&key.to_ascii_lowercase()) {
                    "write such a path, or leave it out"
                } else {
                    "leave it out"
                };
                errors.push(InventoryError::new(
                    format!("Cluster spec.runner.ansible.{section}.{key}"),
                    api::text::plain(value, 128),
                    rule,
                    remedy,
                ));
            }
        }
    }
    errors
}

/// Why an override is refused, if it is.
///
/// # Source
/// The settings that `ansible-config list` and `ansible-doc` tell of ansible-core 2.17 and its plugins. What they say of no
/// setting is whether it is a path, so a path is known by its form too.
pub(in crate::inventory) fn override_rule(
    section: &str,
    key: &str,
    value: &str,
) -> Option<&'static str> {
    // The order is of no matter; the case is to configparser, which takes keys in any.
    let key = key.to_ascii_lowercase();
    if runs(&key) {
        Some("names code or a program that would run where Ansible runs")
    } else if is_owned(section, &key) {
        Some("is Windlass' own: runs are watched, kept apart and secured by it")
    } else if is_template(value) {
        Some("is a template, which Ansible would run")
    } else if is_of_hosts(&key) {
        (!is_path_of_hosts(value)).then_some(
            "is not a path on the hosts of letters, digits and '/_.+-', from '/' or '~/'",
        )
    } else {
        is_local_path(&key, value)
            .then_some("names a file or a directory of the machine where Ansible runs")
    }
}

fn runs(key: &str) -> bool {
    let ends = [
        "_plugins",
        "_plugins_path",
        "_plugin_path",
        "_plugins_enabled",
        "_executable",
        "_script",
        "_command",
    ];
    let whole = [
        "library",
        "module_utils",
        "executable",
        "editor",
        "pager",
        "become_exe",
        "become_flags",
        "flags",
        "strategy",
        "transport",
        "collections_path",
        "collections_paths",
        "roles_path",
        "worker_session_isolation",
        "target_log_info",
        "interpreter_python",
        "interpreter_python_fallback",
        // Modules of Python, a library that ssh loads, a program that is not there and would be looked for, a part of Ansible.
        "jinja2_extensions",
        "pkcs11_provider",
        "cowpath",
        "ansible_connection_path",
    ];
    ends.iter().any(|end| key.ends_with(end)) || whole.contains(&key)
}

fn is_owned(section: &str, key: &str) -> bool {
    let ends = [
        "_password_file",
        "_password_files",
        "_identity_list",
        "ssh_args",
        "_common_args",
        "_extra_args",
    ];
    let begins = ["control_path", "fact_caching", "callback"];
    let whole = [
        "host_key_checking",
        "host_key_auto_add",
        "private_key_file",
        "remote_user",
        "remote_port",
        "inventory",
        "log_path",
        "local_tmp",
        "home",
        "stdout_callback",
        "bin_ansible_callbacks",
        "ask_pass",
        "become_ask_pass",
        "ask_vault_pass",
        "gathering",
        "no_log",
        "allow_unsafe_lookups",
        "ansible_managed",
    ];
    ["galaxy", "inventory"].contains(&section)
        || section.starts_with("callback")
        || ends.iter().any(|end| key.ends_with(end))
        || begins.iter().any(|begin| key.starts_with(begin))
        || whole.contains(&key)
}

/// Settings that say where things are on the hosts.
fn is_of_hosts(key: &str) -> bool {
    ["async_dir", "fact_path", "remote_tmp", "system_tmpdirs"].contains(&key)
}

/// One path or several. A shell of the host reads it.
fn is_path_of_hosts(value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_.+-".contains(c);
    value.split(',').map(str::trim).all(|path| {
        let rest = path.strip_prefix('~').unwrap_or(path);
        rest.starts_with('/') && rest.chars().all(plain)
    })
}

/// Ansible replaces variables of its environment and `~` in a path, and takes a relative one from where its configuration is.
fn is_local_path(key: &str, value: &str) -> bool {
    let ends = [
        "path",
        "_dir",
        "directory",
        "_file",
        "_cfg",
        "_config",
        "_socket",
    ];
    ends.iter().any(|end| key.ends_with(end)) || value.contains(['/', '~', '$'])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_that_choose_programs_and_plugins_are_refused_and_harmless_ones_are_not() {
        for name in [
            "ansible_connection",
            "ansible_ssh_executable",
            "ansible_ssh_extra_args",
            "ansible_scp_executable",
            "ansible_sftp_extra_args",
            "ansible_playbook_python",
            "ansible_become_exe",
            "ansible_become_flags",
            "ansible_shell_executable",
            "ansible_control_path",
            "ansible_ssh_common_args",
            "ansible_paramiko_proxy_command",
            "ansible_psrp_auth",
            "ansible_become_plugin",
            "ansible_local",
            "ansible_network_os",
            "ansible_host_key_checking",
            "ansible_facts_modules",
            "ansible_ssh_password_mechanism",
            "ansible_something_new",
        ] {
            let error = steering("field", name, &json!("x")).unwrap();
            assert_eq!(error.field, "field", "{name}");
        }
        for (name, good, bad) in [
            ("ansible_become", json!(true), json!("{{ x }}")),
            ("ansible_become_user", json!("root"), json!("{{ x }}")),
            (
                "ansible_python_interpreter",
                json!("/usr/bin/python3"),
                json!("{{lookup('pipe','id')}}"),
            ),
            ("ansible_remote_tmp", json!("/var/tmp/x"), json!("~/$(id)")),
            ("ansible_timeout", json!(30), json!("30")),
            ("ansible_become_method", json!("su"), json!("/tmp/x")),
        ] {
            assert_eq!(steering("field", name, &good), None, "{name}");
            assert!(steering("field", name, &bad).is_some(), "{name}");
        }
        assert_eq!(steering("field", "kube_version", &json!("x")), None);
    }

    #[test]
    fn overrides_that_run_code_or_take_away_a_guard_are_refused() {
        for (section, key, value) in [
            ("defaults", "callback_plugins", "/tmp/x"),
            ("defaults", "Action_Plugins", "/tmp/x"),
            ("defaults", "library", "/tmp/x"),
            ("defaults", "vault_password_file", "/tmp/x"),
            ("defaults", "strategy", "mine"),
            ("defaults", "host_key_checking", "False"),
            ("defaults", "timeout", "{{ lookup('pipe', 'id') }}"),
            ("ssh_connection", "ssh_args", "-o ProxyCommand=id"),
            ("ssh_connection", "ssh_executable", "/tmp/x"),
            ("defaults", "jinja2_extensions", "os"),
            ("ssh_connection", "pkcs11_provider", "/tmp/x.so"),
            ("paramiko_connection", "proxy_command", "id"),
            ("defaults", "cowpath", "id"),
            ("galaxy", "server", "http://x"),
            ("callback_tree", "directory", "x"),
        ] {
            let given = BTreeMap::from([(
                section.to_owned(),
                BTreeMap::from([(key.to_owned(), value.to_owned())]),
            )]);
            let errors = overrides(&given);
            assert_eq!(
                errors[0].field,
                format!("Cluster spec.runner.ansible.{section}.{key}")
            );
        }
        for (section, key, value) in [
            ("defaults", "remote_tmp", "~/.ansible/tmp"),
            ("defaults", "async_dir", "/var/tmp/async"),
            ("defaults", "system_tmpdirs", "/var/tmp, /tmp"),
            ("defaults", "forks", "7"),
            ("defaults", "gather_timeout", "30"),
            ("defaults", "display_skipped_hosts", "True"),
            ("ssh_connection", "retries", "3"),
            ("privilege_escalation", "become_method", "su"),
        ] {
            assert_eq!(override_rule(section, key, value), None, "{key}");
        }
    }

    #[test]
    fn overrides_that_name_files_of_the_runner_are_refused_with_field_value_rule_and_remedy() {
        for (section, key, value) in [
            ("defaults", "log_path", "/data/other/log"),
            ("defaults", "Log_Path", "log"),
            ("defaults", "retry_files_save_path", "retries"),
            ("defaults", "playbook_dir", "x"),
            ("defaults", "plugin_filters_cfg", "x.yml"),
            ("netconf_connection", "ssh_config", "x"),
            ("url_lookup", "unix_socket", "x"),
            // Whatever a setting is called.
            ("defaults", "something_new", "/etc/passwd"),
            ("defaults", "something_new", "../x"),
            ("defaults", "something_new", "~root"),
            ("defaults", "something_new", "$HOME"),
            ("defaults", "remote_tmp", "/tmp/$(id)"),
            ("defaults", "system_tmpdirs", "/tmp,x"),
        ] {
            let entries = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            let given = BTreeMap::from([(section.to_owned(), entries)]);
            let [error] = &overrides(&given)[..] else {
                panic!("{key} = {value} is taken");
            };
            let field = format!("Cluster spec.runner.ansible.{section}.{key}");
            assert_eq!((&error.field, &error.value[..]), (&field, value));
            assert!(
                !error.rule.is_empty() && error.remedy.contains("leave it out"),
                "{error}"
            );
        }
    }
}
