//! Rules of whoever runs the service, in the form of oslo.policy: what they say holds instead of the default.
//!
//! Spoken is what such rules are made of here: `role:`, `project_id:%(project_id)s`, `and`, `or`, `not`, parentheses, `@` for everybody
//! and `!` for nobody. What is not spoken is refused at the start rather than read as something: a door is not opened by a typing
//! error.
//!
//! # Source
//! <https://docs.openstack.org/oslo.policy/latest/admin/policy-yaml-file.html>

use std::collections::BTreeMap;

use crate::identity::Caller;

/// What a policy file can have a rule for.
pub const NAMES: [&str; 31] = [
    "certificate:create",
    "certificate:get",
    "certificate:rotate_ca",
    "cluster:create",
    "cluster:delete",
    "cluster:detail",
    "cluster:get",
    "cluster:get_all",
    "cluster:resize",
    "cluster:update",
    "cluster:upgrade",
    "clustertemplate:create",
    "clustertemplate:delete",
    "clustertemplate:get",
    "clustertemplate:get_all",
    "clustertemplate:update",
    "credential:rotate",
    "federation:get",
    "federation:get_all",
    "magnum-service:get_all",
    "nodegroup:create",
    "nodegroup:delete",
    "nodegroup:get",
    "nodegroup:get_all",
    "nodegroup:update",
    "quota:create",
    "quota:delete",
    "quota:get",
    "quota:get_all",
    "quota:update",
    "stats:get_all",
];

/// How deep rules may stand in each other.
const DEEPEST: u8 = 16;

/// Why a policy cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// It has a rule for what is not asked for here.
    #[error("there is no policy {0} here: leave it out, or write one of {names}", names = NAMES.join(", "))]
    Name(String),
    /// A rule is not one of those that are spoken.
    #[error(
        "the rule {rule:?} of {name} is not spoken here: write role:NAME, project_id:%(project_id)s, @ or !, with and, or, not and parentheses"
    )]
    Rule {
        /// Its name.
        name: String,
        /// What it says.
        rule: String,
    },
}

/// The rules of a policy file, by what they are for.
#[derive(Clone, Debug, Default)]
pub struct Policy(BTreeMap<String, Rule>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Rule {
    Everybody,
    Nobody,
    Role(String),
    OwnProject,
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

/// What a rule lets somebody do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Grant {
    /// In their own project.
    pub(crate) own: bool,
    /// In the projects of others.
    pub(crate) others: bool,
}

impl Policy {
    /// Of a file's entries.
    ///
    /// # Errors
    ///
    /// A name or a rule is not known.
    pub fn of(entries: BTreeMap<String, String>) -> Result<Self, PolicyError> {
        let rules = entries.into_iter().map(|(name, rule)| {
            if !NAMES.contains(&name.as_str()) {
                return Err(PolicyError::Name(name));
            }
            match parsed(&rule) {
                Some(rule) => Ok((name, rule)),
                None => Err(PolicyError::Rule { name, rule }),
            }
        });
        rules.collect::<Result<_, _>>().map(Self)
    }

    /// What it says of a caller. None: it says nothing, and the default holds.
    pub(crate) fn grant(&self, name: &str, caller: &Caller) -> Option<Grant> {
        let rule = self.0.get(name)?;
        Some(Grant {
            own: rule.holds(caller, true),
            others: rule.holds(caller, false),
        })
    }
}

impl Rule {
    fn holds(&self, caller: &Caller, is_own: bool) -> bool {
        match self {
            Self::Everybody => true,
            Self::Nobody => false,
            Self::Role(role) => caller.roles.contains(role),
            Self::OwnProject => is_own,
            Self::Not(rule) => !rule.holds(caller, is_own),
            Self::All(rules) => rules.iter().all(|rule| rule.holds(caller, is_own)),
            Self::Any(rules) => rules.iter().any(|rule| rule.holds(caller, is_own)),
        }
    }
}

/// Reads a rule. An empty one lets everybody, as with oslo.policy.
fn parsed(text: &str) -> Option<Rule> {
    let spaced = text.replace("%(project_id)s", "%project_id%");
    let spaced = spaced.replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    if words.is_empty() {
        return Some(Rule::Everybody);
    }
    let mut rest = words.as_slice();
    let rule = any(&mut rest, DEEPEST)?;
    rest.is_empty().then_some(rule)
}

/// `or` binds less than `and`, and that less than `not`.
fn any(rest: &mut &[&str], depth: u8) -> Option<Rule> {
    let mut rules = vec![all(rest, depth)?];
    while is_taken(rest, "or") {
        rules.push(all(rest, depth)?);
    }
    Some(Rule::Any(rules))
}

fn all(rest: &mut &[&str], depth: u8) -> Option<Rule> {
    let mut rules = vec![one(rest, depth)?];
    while is_taken(rest, "and") {
        rules.push(one(rest, depth)?);
    }
    Some(Rule::All(rules))
}

fn one(rest: &mut &[&str], depth: u8) -> Option<Rule> {
    let depth = depth.checked_sub(1)?;
    if is_taken(rest, "not") {
        return one(rest, depth).map(|rule| Rule::Not(Box::new(rule)));
    }
    if is_taken(rest, "(") {
        let rule = any(rest, depth)?;
        return is_taken(rest, ")").then_some(rule);
    }
    let (word, after) = rest.split_first()?;
    *rest = after;
    match *word {
        "@" => Some(Rule::Everybody),
        "!" => Some(Rule::Nobody),
        "project_id:%project_id%" => Some(Rule::OwnProject),
        word => {
            let role = word.strip_prefix("role:").filter(|role| !role.is_empty())?;
            // Roles of tokens are known in lower case.
            Some(Rule::Role(role.to_lowercase()))
        }
    }
}

fn is_taken(rest: &mut &[&str], word: &str) -> bool {
    match rest.split_first() {
        Some((first, after)) if first.eq_ignore_ascii_case(word) => {
            *rest = after;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(rule: &str, roles: &[&str]) -> (bool, bool) {
        let policy = Policy::of([("cluster:get".to_owned(), rule.to_owned())].into()).unwrap();
        let caller = Caller {
            user_id: "u".to_owned(),
            project_id: "p".to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        };
        assert_eq!(policy.grant("cluster:create", &caller), None);
        let Grant { own, others } = policy.grant("cluster:get", &caller).unwrap();
        (own, others)
    }

    #[test]
    fn rules_hold_as_oslo_policy_has_them() {
        for (rule, roles, own, others) in [
            ("", &[][..], true, true),
            ("@", &[], true, true),
            ("!", &["admin"], false, false),
            ("role:Auditor", &["auditor"], true, true),
            ("role:auditor", &["member"], false, false),
            ("project_id:%(project_id)s", &[], true, false),
            (
                "role:member and project_id:%(project_id)s",
                &["member"],
                true,
                false,
            ),
            ("role:a or role:b and role:c", &["a"], true, true),
            ("(role:a or role:b) and role:c", &["a"], false, false),
            ("not role:a", &["b"], true, true),
            ("not (role:a or role:b)", &["b"], false, false),
            ("NOT ! AND @", &[], true, true),
            (
                "(role:admin) or (role:member and project_id:%(project_id)s)",
                &["admin"],
                true,
                true,
            ),
        ] {
            assert_eq!(grant(rule, roles), (own, others), "{rule}");
        }
    }

    #[test]
    fn what_is_not_spoken_is_refused_by_its_name() {
        let deep = "(".repeat(100) + "@" + &")".repeat(100);
        for rule in [
            "role:",
            "role:a role:b",
            "role:a and",
            "or role:a",
            "(role:a",
            "role:a)",
            "not",
            "rule:admin_api",
            "user_id:%(user_id)s",
            "project_id:p",
            "http://policy.example/",
            "is_admin:True",
            &deep,
        ] {
            let policy = Policy::of([("cluster:get".to_owned(), rule.to_owned())].into());
            let expected = PolicyError::Rule {
                name: "cluster:get".to_owned(),
                rule: rule.to_owned(),
            };
            assert_eq!(policy.unwrap_err(), expected);
        }
        let policy = Policy::of([("cluster:got".to_owned(), "!".to_owned())].into());
        assert_eq!(
            policy.unwrap_err(),
            PolicyError::Name("cluster:got".to_owned())
        );
    }
}
