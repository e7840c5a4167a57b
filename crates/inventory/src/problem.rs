//! What is wrong with an inventory: where, against which rule, and what to do about it.

use std::fmt;

use api::inventory::ValuePath;
use serde::Serialize;

/// An object of an inventory.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Object {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        if namespace.is_empty() || namespace == "default" {
            write!(f, "{kind}/{name}")
        } else {
            write!(f, "{kind}/{namespace}/{name}")
        }
    }
}

/// One thing that is wrong. It displays as place, what the rule says, remedy, and the rule's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The object that must change.
    pub object: Object,
    /// Its level, where it stands on one.
    pub level: Option<String>,
    /// The field or value.
    pub path: ValuePath,
    /// What is wrong.
    pub rule: Rule,
}

/// Several problems. Where there is one, nothing is rendered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Problems(pub Vec<Problem>);

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rule {
    /// The object is not of its kind.
    #[error("is not what a {kind} has: {what}; docs/reference/custom-resources.md has its fields")]
    Malformed {
        /// The kind.
        kind: String,
        /// What the parser said.
        what: String,
    },
    /// Two objects of one kind, namespace and name.
    #[error("stands twice in the inventory; give each its own metadata.name, or remove one")]
    Twice,
    /// The inventory has no such kind.
    #[error(
        "is no kind of {group}; it has Hierarchy, Environment, Customer, Site, InfraProvider, FleetCluster, ClusterTemplate, \
             Rollout, WaveApproval and FleetRevision, version v1alpha1"
    )]
    UnknownKind {
        /// The group.
        group: String,
    },
    /// A name that refers to nothing.
    #[error("names {wanted}, which is not there; {}", known(.there))]
    NotThere {
        /// What was wanted.
        wanted: String,
        /// What there is instead.
        there: Vec<String>,
    },
    /// A required level without an object.
    #[error(
        "has no {missing}, which Hierarchy {hierarchy} requires; name one in spec.parents here or of a parent, or make the level's \
             presence Optional"
    )]
    MissingLevel {
        /// The level.
        missing: String,
        /// The hierarchy.
        hierarchy: String,
    },
    /// Two objects of one level.
    #[error(
        "belongs to two objects of level {level}: {one} by {by_one}, and {other} by {by_other}; let both name the same one"
    )]
    TwoOfOneLevel {
        /// The level.
        level: String,
        /// The first.
        one: String,
        /// Who names it.
        by_one: String,
        /// The second.
        other: String,
        /// Who names it.
        by_other: String,
    },
    /// A parent that is not above.
    #[error("names {parent} as a parent, whose level {parent_level} does not stand above {level}{}; parents are of weaker levels: turn \
             the reference round, or change the order in the Hierarchy", closing(.cycle))]
    NotAbove {
        /// The parent.
        parent: String,
        /// Its level.
        parent_level: String,
        /// The level of the one that names it.
        level: String,
        /// The cycle that it closes.
        cycle: Vec<String>,
    },
    /// A Hierarchy that contradicts itself, or none that can be chosen.
    #[error("{what}; {remedy}")]
    Order {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A locked value that a stronger level sets.
    #[error("is locked by {by} (spec.final: {lock}); remove it here, or take the lock away there")]
    Locked {
        /// Who locked it.
        by: String,
        /// The path of the lock.
        lock: String,
    },
    /// Another type than above.
    #[error(
        "is {here}, but {above_object} has {above} there; write the same type, a text in quotes, or use another key"
    )]
    TypeChanged {
        /// The type here.
        here: &'static str,
        /// The type above.
        above: &'static str,
        /// Who sets it above.
        above_object: String,
    },
    /// A value that the strategy of its path cannot merge.
    #[error(
        "cannot be merged by {strategy}: {what}; change the value, or the rule in the Hierarchy"
    )]
    Unmergeable {
        /// The strategy.
        strategy: &'static str,
        /// Why.
        what: String,
    },
    /// A value that is not as a schema says.
    #[error("{what} (schema of {schema}); {remedy}")]
    Schema {
        /// Whose schema.
        schema: String,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Values for which a rule of a level is not true.
    #[error(
        "breaks the rule `{rule}` ({by}), as {seen} sees it{why}; set other values here or at a level above, or change the rule"
    )]
    Validation {
        /// The rule.
        rule: String,
        /// Where it stands.
        by: String,
        /// The object down to which the values are merged.
        seen: String,
        /// What its author says of it, and why it has no answer.
        why: String,
    },
    /// A value of a reserved form or name.
    #[error("{what}; {remedy}")]
    Reserved {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A template that is not one.
    #[error(
        "is no template: line {line}: {what}, in `{text}`; mend it, or write {{% raw %}} around what is meant as it stands"
    )]
    Syntax {
        /// The line in the text, from 1.
        line: usize,
        /// What the parser said.
        what: String,
        /// The line's text.
        text: String,
    },
    /// A variable that no level sets.
    #[error("line {line}: `{variable}` is not set, in `{text}`; looked through {}: set it in one of them, or give it a default as in \
             `{{{{ {variable} | default(omit) }}}}`", .levels.join(", "))]
    Undefined {
        /// The line in the text, from 1.
        line: usize,
        /// The variable.
        variable: String,
        /// The line's text.
        text: String,
        /// The levels that were looked through, the weakest first.
        levels: Vec<String>,
    },
    /// A template that fails.
    #[error("cannot be rendered: line {line}: {what}, in `{text}`; mend the template or the value")]
    Template {
        /// The line in the text, from 1.
        line: usize,
        /// What went wrong.
        what: String,
        /// The line's text.
        text: String,
    },
    /// A template that does not end.
    #[error(
        "line {line}: takes too long, more than {fuel} instructions, in `{text}`; bound its loops"
    )]
    Endless {
        /// The line in the text, from 1.
        line: usize,
        /// How many it may take.
        fuel: u64,
        /// The line's text.
        text: String,
    },
    /// Values whose templates need each other.
    #[error("needs itself: {}; give one of them a value", .0.join(" -> "))]
    Circular(Vec<String>),
    /// A reference to a secret in a text or an expression.
    #[error(
        "puts the secret {secret} into a text; a reference stays as it is: give it a field of its own, `{{{{ {secret} }}}}`"
    )]
    SecretInText {
        /// The value.
        secret: String,
    },
    /// A reference to Vault where none can stand.
    #[error(
        "{reference} is a reference to Vault, and {target} where it is put, takes none; {remedy}"
    )]
    NoReference {
        /// The reference.
        reference: String,
        /// The field of the object.
        target: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Clusters that cannot be of one inventory.
    #[error("{what}; {remedy}")]
    Contradiction {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A cluster that does not say where it belongs.
    #[error(
        "does not say which {level} it belongs to; label the Cluster with {label}, and lower-case letters, digits and hyphens as its value"
    )]
    Unplaced {
        /// The level.
        level: &'static str,
        /// The label that says it.
        label: String,
    },
    /// A roll-out that counts clusters by a level that none of them has.
    #[error(
        "the level {level} is one of no cluster, so its budget or wave can never be met; name one of {}", .known.join(", ")
    )]
    NoSuchLevel {
        /// The level.
        level: String,
        /// Those that clusters have.
        known: Vec<String>,
    },
    /// A wave of a roll-out that is called as another one.
    #[error("{name} is the name of another wave; give it one of its own")]
    WaveName {
        /// The name.
        name: String,
    },
    /// A gate of a roll-out that is no rule.
    #[error("{rule}: {what}; {}", GATE_REMEDY)]
    Gate {
        /// The rule as it is written.
        rule: String,
        /// What is wrong.
        what: String,
    },
    /// A window of a roll-out that cannot be kept to.
    #[error("{what}; {remedy}")]
    Window {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// What was rendered is no object, or not the one that it says it is.
    #[error("{what}; {remedy}")]
    Rendered {
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
}

const GATE_REMEDY: &str = "write an expression in CEL about self, the cluster's own object, that is true or false, as \
                           self.status.phase == 'Provisioned'";

impl Rule {
    /// Its name, for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "Malformed",
            Self::Twice => "Twice",
            Self::UnknownKind { .. } => "UnknownKind",
            Self::NotThere { .. } => "NotThere",
            Self::MissingLevel { .. } => "MissingLevel",
            Self::TwoOfOneLevel { .. } => "TwoOfOneLevel",
            Self::NotAbove { .. } => "NotAbove",
            Self::Order { .. } => "Order",
            Self::Locked { .. } => "Locked",
            Self::TypeChanged { .. } => "TypeChanged",
            Self::Unmergeable { .. } => "Unmergeable",
            Self::Schema { .. } => "Schema",
            Self::Validation { .. } => "Validation",
            Self::Reserved { .. } => "Reserved",
            Self::Syntax { .. } => "Syntax",
            Self::Undefined { .. } => "Undefined",
            Self::Template { .. } => "Template",
            Self::Endless { .. } => "Endless",
            Self::Circular(_) => "Circular",
            Self::SecretInText { .. } => "SecretInText",
            Self::NoReference { .. } => "NoReference",
            Self::Contradiction { .. } => "Contradiction",
            Self::Unplaced { .. } => "Unplaced",
            Self::NoSuchLevel { .. } => "NoSuchLevel",
            Self::WaveName { .. } => "WaveName",
            Self::Gate { .. } => "Gate",
            Self::Window { .. } => "Window",
            Self::Rendered { .. } => "Rendered",
        }
    }

    /// What is wrong, and what to do: the two halves of how it displays.
    pub fn halves(&self) -> (String, String) {
        let text = self.to_string();
        let remedy = match self {
            Self::Order { remedy, .. }
            | Self::Schema { remedy, .. }
            | Self::Reserved { remedy, .. }
            | Self::NoReference { remedy, .. }
            | Self::Contradiction { remedy, .. }
            | Self::Rendered { remedy, .. } => Some(*remedy),
            Self::Window { remedy, .. } => Some(remedy.as_str()),
            // No other remedy has a semicolon in it.
            _ => text.rsplit_once("; ").map(|(_, remedy)| remedy),
        };
        let remedy = remedy.unwrap_or_default().to_owned();
        let what = text.strip_suffix(&remedy).unwrap_or(&text);
        let what = what.strip_suffix("; ").unwrap_or(what).to_owned();
        (what, remedy)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.object)?;
        if let Some(level) = &self.level {
            write!(f, " (level {level})")?;
        }
        if !self.path.0.is_empty() {
            write!(f, " {}", self.path)?;
        }
        write!(f, ": {} [{}]", self.rule, self.rule.name())
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn known(there: &[String]) -> String {
    if there.is_empty() {
        "there is none of that kind in the namespace: write it, or correct the reference".into()
    } else {
        format!(
            "there is {}: correct the name, or write it",
            there.join(", ")
        )
    }
}

fn closing(cycle: &[String]) -> String {
    if cycle.is_empty() {
        String::new()
    } else {
        format!(" and closes the cycle {}", cycle.join(" -> "))
    }
}
