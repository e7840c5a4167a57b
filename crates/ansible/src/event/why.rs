//! Why a task failed, trimmed to what a person needs.
//!
//! What Ansible says of an assertion names the task and no value, and of an undefined variable often not even its name. The
//! plugin stands where the variables are: it sends the expression, the values that it is about, and what nobody set.

use api::text::{lines, plain};
use serde::{Deserialize, Deserializer, Serialize};

use super::{LINE_LIMIT, line, some_line};

/// The longest text that is kept of an event: the plugin sends less.
const TEXT_LIMIT: usize = 64 * 1024;

/// Why a task failed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Why {
    /// The module's message.
    #[serde(
        default,
        deserialize_with = "text",
        skip_serializing_if = "String::is_empty"
    )]
    pub message: String,
    /// The last lines of what it wrote as errors.
    #[serde(
        default,
        deserialize_with = "some_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub stderr: Option<String>,
    /// The last lines of what it wrote.
    #[serde(
        default,
        deserialize_with = "some_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub stdout: Option<String>,
    /// The last lines of its traceback.
    #[serde(
        default,
        deserialize_with = "some_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub exception: Option<String>,
    /// The exit code of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rc: Option<i64>,
    /// Whether the task says `no_log`, so that nothing of it is told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// The expression of an assertion that does not hold.
    #[serde(
        default,
        deserialize_with = "some_line",
        skip_serializing_if = "Option::is_none"
    )]
    pub assertion: Option<String>,
    /// What the assertion is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Asked>,
    /// The variables that the task needs and nobody set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undefined: Vec<Missing>,
    /// File and line of the task, where a variable is to blame.
    #[serde(
        default,
        deserialize_with = "some_line",
        skip_serializing_if = "Option::is_none"
    )]
    pub path: Option<String>,
}

/// A variable that an assertion is about.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Asked {
    /// Its name, with the attributes and keys that are taken of it.
    #[serde(deserialize_with = "line")]
    pub name: String,
    /// What it is, as JSON where it is simple; none: there is none, or it is hidden.
    #[serde(
        default,
        deserialize_with = "some_line",
        skip_serializing_if = "Option::is_none"
    )]
    pub value: Option<String>,
    /// Whether it may be secret, so that its value is not told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// A variable that is needed and not set.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Missing {
    /// Its name, with the attributes and keys that are taken of it.
    #[serde(deserialize_with = "line")]
    pub name: String,
    /// The variables that are made of it, from the one that the task names on.
    #[serde(
        default,
        deserialize_with = "some_lines",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub through: Vec<String>,
}

impl Why {
    /// The one text that says most: what is wrong with which variable, else the message, else errors, else output. A message
    /// that says nothing but that a command failed is followed by the command's last words.
    pub fn text(&self) -> String {
        if let Some(assertion) = &self.assertion {
            return self.placed(&self.refused(assertion));
        }
        if self.path.is_some() {
            return self.placed(&self.needs());
        }
        let output = [&self.stderr, &self.stdout]
            .into_iter()
            .flatten()
            .find(|text| !text.is_empty());
        let says_nothing = matches!(
            self.message.trim(),
            "" | "non-zero return code" | "MODULE FAILURE"
        ) || self
            .message
            .contains("See stdout/stderr for the exact error");
        match output {
            Some(output) if self.message.is_empty() => output.clone(),
            Some(output) if says_nothing => format!("{}: {output}", self.message.trim()),
            _ => self.message.clone(),
        }
    }

    /// `kube_network_plugin is "flanel"; the playbook wants kube_network_plugin in ['calico', 'flannel']`
    fn refused(&self, assertion: &str) -> String {
        let wants = assertion.trim();
        let wants = wants.strip_prefix("{{").unwrap_or(wants);
        let wants = wants.strip_suffix("}}").unwrap_or(wants).trim();
        let wants = format!("the playbook wants {wants}");
        let values: Vec<String> = self.values.iter().map(Asked::text).collect();
        let mut text = if values.is_empty() {
            wants
        } else {
            format!("{}; {wants}", values.join(", "))
        };
        let said = self.message.trim();
        if !matches!(said, "" | "Assertion failed") {
            text.push_str(": ");
            text.push_str(said);
        }
        text
    }

    fn needs(&self) -> String {
        if self.undefined.is_empty() {
            return self.own_words();
        }
        let missing: Vec<String> = self.undefined.iter().map(Missing::text).collect();
        missing.join("; ")
    }

    /// What Ansible says, without where it is, which it shows in several lines and in each release in other words.
    fn own_words(&self) -> String {
        let said = self.message.as_str();
        let said = said
            .split_once("\nThe error appears to be in ")
            .map_or(said, |(before, _)| before);
        let said = said
            .strip_prefix("The task includes an option with an undefined variable.")
            .unwrap_or(said);
        let said = said.trim_start_matches(['.', ' ']);
        said.strip_prefix("The error was: ")
            .unwrap_or(said)
            .trim()
            .to_owned()
    }

    /// The text, and where the task stands: within a checkout, wherever that is.
    fn placed(&self, text: &str) -> String {
        let Some(path) = self.path.as_deref().filter(|path| !path.is_empty()) else {
            return text.to_owned();
        };
        let within = ["/roles/", "/playbooks/"]
            .into_iter()
            .find_map(|directory| path.find(directory));
        let short = match within {
            Some(at) => path.get(at + 1..),
            None => path.rsplit('/').next(),
        };
        format!("{text} ({})", short.unwrap_or(path))
    }
}

impl Asked {
    fn text(&self) -> String {
        let name = &self.name;
        match &self.value {
            _ if self.hidden => format!("{name} is hidden"),
            Some(value) => format!("{name} is {value}"),
            None => format!("{name} is not set"),
        }
    }
}

impl Missing {
    /// `bottom is undefined: top is made of middle, middle of bottom`
    fn text(&self) -> String {
        let name = &self.name;
        let chain: Vec<&String> = self.through.iter().chain([name]).collect();
        let mut links = chain.windows(2).filter_map(|pair| match pair {
            [made, of] => Some((*made, *of)),
            _ => None,
        });
        let Some((made, of)) = links.next() else {
            return format!("{name} is undefined");
        };
        let more: Vec<String> = links
            .map(|(made, of)| format!(", {made} of {of}"))
            .collect();
        format!(
            "{name} is undefined: {made} is made of {of}{}",
            more.concat()
        )
    }
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|said| lines(&said, TEXT_LIMIT))
}

fn some_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let said = Option::<String>::deserialize(deserializer)?;
    Ok(said.map(|said| lines(&said, TEXT_LIMIT)))
}

fn some_lines<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let said = Vec::<String>::deserialize(deserializer)?;
    Ok(said.iter().map(|said| plain(said, LINE_LIMIT)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(why: &serde_json::Value) -> String {
        serde_json::from_value::<Why>(why.clone()).unwrap().text()
    }

    #[test]
    fn an_assertion_is_told_by_name_and_value() {
        let why = serde_json::json!({
            "message": "The selected choice is not supported", "assertion": "cni in ['calico', 'flannel']",
            "values": [{"name": "cni", "value": "\"flanel\""}, {"name": "pin", "hidden": true}, {"name": "mode", "missing": true}],
            "path": "/data/sources/abc/roles/validate_inventory/tasks/main.yml:139",
        });
        assert_eq!(
            text_of(&why),
            "cni is \"flanel\", pin is hidden, mode is not set; the playbook wants cni in ['calico', 'flannel']: \
             The selected choice is not supported (roles/validate_inventory/tasks/main.yml:139)"
        );
        let why = serde_json::json!({"message": "Assertion failed", "assertion": "{{ 1 == 2 }}"});
        assert_eq!(text_of(&why), "the playbook wants 1 == 2");
    }

    #[test]
    fn an_undefined_variable_is_told_with_what_is_made_of_it() {
        let why = serde_json::json!({
            "message": "expected str, not AnsibleUndefined", "path": "/x/play.yml:3",
            "undefined": [{"name": "bottom", "through": ["top", "middle"]}, {"name": "conf.mode"}],
        });
        assert_eq!(
            text_of(&why),
            "bottom is undefined: top is made of middle, middle of bottom; conf.mode is undefined (play.yml:3)"
        );
        let why = serde_json::json!({
            "message": "The task includes an option with an undefined variable.. 'dict object' has no attribute 'x'\n\
                The error appears to be in '/x/play.yml': line 3, column 7, but may\nbe elsewhere in the file",
            "path": "/x/play.yml:3",
        });
        assert_eq!(
            text_of(&why),
            "'dict object' has no attribute 'x' (play.yml:3)"
        );
    }

    #[test]
    fn what_a_variable_holds_passes_the_gate() {
        let why = serde_json::json!({
            "message": "", "assertion": "a\u{1b}[2J == b",
            "values": [{"name": "a\nb", "value": "\u{9b}31m\"x\""}],
        });
        assert_eq!(text_of(&why), "a b is \"x\"; the playbook wants a == b");
    }
}
