//! Whether the image of a service knows what its configuration files say: oslo.config ignores a key that nobody reads, so a slip in one
//! is seen by nobody. And whether it knows what its tables are: who has others does not find out before it changes them. Pure.
//!
//! The release's own schema is asked, in the image that is about to be rolled out: which options there are is known by the code of the
//! service and of the libraries that it brings, and by no list that could be kept here. What the image prints is judged here.
//! oslo.config's validator looks at names and at no values, and knows too little of `keystone_authtoken` to refuse anything there.
//!
//! What tables are is said by the revisions that alembic keeps in them. An image has the one that it brings tables to and all before, so
//! that one which it has not is of a later release.

use std::collections::BTreeMap;

use api::run::Failure;
use runs::calls::{config, failure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::config::{Merged, Source};

/// What a service says of its schema.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Schema {
    /// The namespaces of oslo.config's options, as the service's own sample file is made of them. The first is its own: an image
    /// without it knows nothing; of the others it may have some.
    pub namespaces: Vec<String>,
    /// The namespace of oslo.policy's rules.
    pub policies: String,
    /// Where its Python packages have the revisions of its tables.
    pub revisions: String,
    /// Sections of the service with keys of another one, which the schema has.
    #[serde(default)]
    pub sections: BTreeMap<String, String>,
    /// The setting that names further ones, each as `SECTION:LIKE`.
    pub named: Option<String>,
}

/// What is not held against the schema, and what becomes of who cannot tell.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Leave {
    /// Settings that are let through, as `SECTION.KEY` or `SECTION.*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Settings that the cloud says for all services and nobody for this one, as `FILE SECTION.KEY`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<String>,
    /// Whether an image that cannot tell is rolled out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proceed: bool,
}

impl Leave {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Schema {
    /// The command that looks at these files, and at these of oslo.policy, in this directory of a container of the service, and whether the
    /// image knows the tables at these revisions.
    pub fn command(
        &self,
        directory: &str,
        files: &BTreeMap<String, String>,
        policies: &[&str],
        tables: &[String],
        leave: &Leave,
    ) -> Vec<String> {
        let asked = json!({
            "tables": tables,
            "revisions": self.revisions,
            "directory": directory,
            "files": files.keys().collect::<Vec<_>>(),
            "namespaces": self.namespaces,
            "policies": policies,
            "rules": self.policies,
            "like": self.like(files),
            "allow": leave.allow,
            "shared": leave.shared,
        });
        let cannot_tell = if leave.proceed { 0 } else { CANNOT_TELL };
        [
            "sh",
            "-c",
            SHELL,
            SCRIPT,
            &asked.to_string(),
            &cannot_tell.to_string(),
        ]
        .map(str::to_owned)
        .into()
    }

    /// Sections, and the section of the schema that each is like.
    fn like(&self, files: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut like = self.sections.clone();
        let Some((section, key)) = self.named.as_deref().and_then(|name| name.split_once('.'))
        else {
            return like;
        };
        for text in files.values() {
            // They were written by us.
            let merged = Merged::of(&[Source::new("", text)]).unwrap_or_default();
            let setting = merged.setting(Some(section), key);
            let value = setting.and_then(|setting| setting.values().last());
            for named in value.unwrap_or_default().split(',') {
                if let Some((name, of)) = named.trim().split_once(':') {
                    like.insert(name.trim().to_owned(), of.trim().to_owned());
                }
            }
        }
        like
    }
}

/// A shell is in every image of a service, a Python perhaps elsewhere.
const SHELL: &str = r#"command -v python3 >/dev/null || { echo '{"Unavailable": "it has no python3"}'; exit "$2"; }; exec python3 -c "$0" "$@""#;
const SCRIPT: &str = include_str!("schema/check.py");
/// What it ends with where it cannot tell, and nobody said that this is enough.
const CANNOT_TELL: u8 = 69;

/// What the image said of one thing.
#[derive(Debug, Deserialize)]
enum Said {
    /// It knows no such setting.
    Refused(Found),
    /// It knows no such setting, which may be another service's.
    Passed(Found),
    /// It knows the setting by a name that will go.
    Deprecated(Found),
    /// It cannot read the file.
    Unreadable(Unreadable),
    /// It asks for no such rule, and neither does another rule.
    NoRule(OfRule),
    /// It cannot understand the rule, which lets nobody through then.
    BadRule(OfRule),
    /// It knows the rule by a name that will go.
    OldRule(OfRule),
    /// It has no such revisions of the tables.
    Later(Vec<String>),
    /// It cannot tell, and why.
    Unavailable(String),
}

/// A rule of oslo.policy.
#[derive(Debug, Deserialize)]
struct OfRule {
    file: String,
    rule: String,
    /// What was probably meant.
    #[serde(default)]
    nearest: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Found {
    file: String,
    section: String,
    key: String,
    /// What was probably meant, as `SECTION.KEY`.
    #[serde(default)]
    nearest: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Unreadable {
    file: String,
    line: u32,
    why: String,
}

/// Reads what an image said; other programs print beside it.
fn read(log: &str) -> Vec<Said> {
    let lines = log.lines().filter(|line| line.starts_with('{'));
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// What is told of files that were let through. None: there is nothing to tell.
pub fn told(log: &str) -> Option<String> {
    let words = read(log).into_iter().filter_map(|said| match said {
        Said::Passed(found) => Some(format!("{found} is unknown here")),
        Said::Deprecated(found) => Some(format!("{found} is deprecated")),
        Said::OldRule(OfRule { file, rule, .. }) => Some(format!("{file} {rule} is deprecated")),
        Said::Unavailable(why) => Some(format!("the image could not check the files: {why}")),
        Said::Refused(_)
        | Said::Unreadable(_)
        | Said::NoRule(_)
        | Said::BadRule(_)
        | Said::Later(_) => None,
    });
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| api::text::lines(&words.join("; "), 1000))
}

/// Why an image was not let to tables. None: it does not say, or it knows them.
pub fn later(log: &str, image: &str, database: &str) -> Option<Failure> {
    let unknown = read(log).into_iter().find_map(|said| match said {
        Said::Later(unknown) => Some(unknown.join(", ")),
        _ => None,
    });
    Some(config(
        "TablesNewer",
        api::text::lines(
            &format!(
                "spec.image is {image}: the tables of database {database} are at {}, which it does not know, so a later release has changed them, or another program; tables do not go back",
                unknown?
            ),
            1000,
        ),
        "name an image of the release that changed them, or of a later one, in spec.image (in an OpenStack, in image of the service), or take another database server; no table and no pod was touched",
    ))
}

/// Why files were not let through. None: it does not say.
pub fn refusal(log: &str) -> Option<Failure> {
    let said = read(log);
    let cannot = said.iter().find_map(|said| match said {
        Said::Unavailable(why) => Some(why),
        _ => None,
    });
    if let Some(why) = cannot {
        return Some(failure(
            api::run::FailureClass::Config,
            "SchemaUnknown",
            format!("the image cannot check the configuration files: {why}"),
            "give an image whose python3 has oslo.config and the service, or set spec.schema.withoutValidator to Proceed to do without the check; no table and no pod was touched",
        ));
    }
    let mut first = None;
    let words = said.iter().filter_map(|said| match said {
        Said::Refused(found) => {
            first.get_or_insert_with(|| found.setting());
            Some(match &found.nearest {
                Some(nearest) => format!("{found} is unknown to this release; it knows {nearest}"),
                None => format!("{found} is unknown to this release"),
            })
        }
        Said::Unreadable(Unreadable { file, line, why }) => {
            Some(format!("{file} line {line}: {why}"))
        }
        Said::NoRule(of) => {
            first.get_or_insert_with(|| of.setting());
            Some(of.unknown())
        }
        Said::BadRule(OfRule { file, rule, .. }) => Some(format!(
            "{file} {rule} cannot be understood, so it would let nobody through"
        )),
        _ => None,
    });
    let words: Vec<_> = words.collect();
    if words.is_empty() {
        return None;
    }
    let setting = first.unwrap_or_else(|| "SECTION.KEY".to_owned());
    Some(config(
        "SettingUnknown",
        words.join("; "),
        &api::text::lines(
            &format!(
                "mend the setting where windlass openstack explain says that it stands, or let it through by name: spec.schema.allow: [{setting}]; no table and no pod was touched"
            ),
            1000,
        ),
    ))
}

impl OfRule {
    fn setting(&self) -> String {
        format!("{}.{}", self.file, self.rule)
    }

    fn unknown(&self) -> String {
        let Self {
            file,
            rule,
            nearest,
        } = self;
        let meant = nearest.as_ref();
        let meant = meant.map_or_else(String::new, |nearest| format!("; it knows {nearest}"));
        format!("{file} {rule} is no rule of this release, and no other rule refers to it{meant}")
    }
}

impl Found {
    fn setting(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.file, self.setting())
    }
}

#[cfg(test)]
mod tests {
    use api::run::FailureClass;

    use super::*;

    #[test]
    fn a_key_that_is_unknown_is_told_with_the_one_that_was_meant() {
        let log = r#"WARNING:stevedore:Could not load 'cinder'
{"Deprecated": {"file": "a.conf", "section": "x", "key": "old"}}
{"Refused": {"file": "keystone.conf", "section": "token", "key": "expirtion", "nearest": "token.expiration"}}
{"Refused": {"file": "keystone.conf", "section": "mine", "key": "a", "nearest": null}}
"#;
        let failure = refusal(log).unwrap();
        assert_eq!(failure.class, FailureClass::Config);
        assert_eq!(failure.code, "SettingUnknown");
        assert_eq!(
            failure.message,
            "keystone.conf token.expirtion is unknown to this release; it knows token.expiration; keystone.conf mine.a is unknown to this release"
        );
        let remedy = failure.remedy.unwrap();
        assert!(remedy.contains("spec.schema.allow: [token.expirtion]"));
        assert_eq!(told(log).unwrap(), "a.conf x.old is deprecated");
    }

    #[test]
    fn a_rule_that_nobody_asks_for_is_told_with_the_one_that_was_meant() {
        let log = r#"{"OldRule": {"file": "policy.yaml", "rule": "old"}}
{"NoRule": {"file": "policy.yaml", "rule": "identity:get_usr", "nearest": "identity:get_user"}}
{"BadRule": {"file": "policy.yaml", "rule": "mine"}}
"#;
        let failure = refusal(log).unwrap();
        assert_eq!(failure.code, "SettingUnknown");
        assert_eq!(
            failure.message,
            "policy.yaml identity:get_usr is no rule of this release, and no other rule refers to it; it knows identity:get_user; \
             policy.yaml mine cannot be understood, so it would let nobody through"
        );
        let remedy = failure.remedy.unwrap();
        let allowed = "spec.schema.allow: [policy.yaml.identity:get_usr]";
        assert!(remedy.contains(allowed), "{remedy}");
        assert_eq!(told(log).unwrap(), "policy.yaml old is deprecated");
    }

    #[test]
    fn an_image_that_cannot_tell_is_told_apart() {
        let log = "{\"Unavailable\": \"ModuleNotFoundError: No module named 'oslo_config'\"}\n";
        let failure = refusal(log).unwrap();
        assert_eq!(failure.code, "SchemaUnknown");
        assert!(failure.message.contains("oslo_config"), "{failure:?}");
        assert!(failure.remedy.unwrap().contains("withoutValidator"));
        assert!(told(log).unwrap().contains("could not check"));
        assert!(refusal("Killed\n{\"a\": 1}\n{}").is_none());
    }

    #[test]
    fn tables_of_a_later_release_are_told_with_the_image_that_has_not_made_them() {
        let log = "{\"Later\": [\"2027_1_expand01\"]}\n";
        let failure = later(log, "glance:33", "glance").unwrap();
        assert_eq!(failure.class, FailureClass::Config);
        for part in [
            "spec.image is glance:33",
            "database glance",
            "at 2027_1_expand01",
            "do not go back",
        ] {
            assert!(failure.message.contains(part), "{failure:?}");
        }
        assert!(
            failure
                .remedy
                .unwrap()
                .contains("of the release that changed them")
        );
        assert!(refusal(log).is_none() && told(log).is_none());
        assert!(later("{\"Unavailable\": \"a\"}\n", "k", "k").is_none());
    }

    #[test]
    fn sections_that_people_name_are_like_those_that_the_schema_has() {
        let schema = Schema {
            namespaces: vec!["glance.api".to_owned()],
            policies: "glance".to_owned(),
            revisions: "glance/db".to_owned(),
            sections: BTreeMap::from([("staging".to_owned(), "file".to_owned())]),
            named: Some("DEFAULT.enabled_backends".to_owned()),
        };
        let text = "[DEFAULT]\nenabled_backends = fast:rbd, files:file\n".to_owned();
        let files = BTreeMap::from([("glance-api.conf".to_owned(), text)]);
        let like = schema.like(&files);
        let like: Vec<_> = like
            .iter()
            .map(|(name, of)| (name.as_str(), of.as_str()))
            .collect();
        assert_eq!(
            like,
            [("fast", "rbd"), ("files", "file"), ("staging", "file")]
        );
        let proceed = Leave {
            proceed: true,
            ..Leave::default()
        };
        let last = |leave| schema.command("/etc", &files, &[], &[], leave).pop();
        assert_eq!(last(&proceed).as_deref(), Some("0"));
        assert_eq!(last(&Leave::default()).as_deref(), Some("69"));
    }
}
