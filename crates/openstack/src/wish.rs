//! From an object to its run: what both kinds have in common. Pure.

use std::io;

use api::{
    openstack::{Backup, Standing},
    run::{Plan, Step},
};
use controller::Problem;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    bounds::CARRIED,
    hooks::{self, Placed},
    rotation::Scheduled,
};

/// What a run does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// Nothing of it is there yet.
    Install,
    /// What is there is another.
    Update,
    /// What is there is of another release.
    Upgrade,
    /// It goes.
    Delete,
    /// One step, because a person asked for it.
    Step,
    /// A backup is taken.
    Backup,
    /// A backup is brought back beside what is there, and compared.
    Drill,
    /// What is there is brought back to a backup.
    Restore,
    /// Keys or a password are rotated, because it is time.
    Rotate,
}

impl Operation {
    /// What answers no wish: what is wished for is there before it and after it.
    pub const ASIDE: [Self; 5] = [
        Self::Step,
        Self::Backup,
        Self::Drill,
        Self::Restore,
        Self::Rotate,
    ];

    /// That of a run that answers a wish. None: it answers none.
    pub fn of_wish(name: &str) -> Option<Self> {
        let all = [Self::Install, Self::Update, Self::Upgrade, Self::Delete];
        all.into_iter().find(|operation| operation.name() == name)
    }

    /// As a run has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Install => "Install",
            Self::Update => "Update",
            Self::Upgrade => "Upgrade",
            Self::Delete => "Delete",
            Self::Step => "Step",
            Self::Backup => "Backup",
            Self::Drill => "Drill",
            Self::Restore => "Restore",
            Self::Rotate => "Rotate",
        }
    }
}

/// What an object wishes for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// What the steps read.
    pub inputs: Map<String, Value>,
    /// The steps that make it so, without hooks.
    pub install: Vec<Step>,
    /// The steps that change what is there. Empty: those of an installation.
    pub update: Vec<Step>,
    /// What people run at those steps.
    pub hooks: Vec<Placed>,
    /// How many of those may be at work at a time.
    pub parallelism: u8,
    /// Steps that somebody asks for, each alone.
    pub by_hand: Vec<Step>,
    /// The steps that remove it.
    pub delete: Vec<Step>,
}

impl Wanted {
    /// The steps of an operation.
    pub fn steps(&self, operation: Operation) -> Vec<Step> {
        match operation {
            Operation::Delete => self.delete.clone(),
            Operation::Update if !self.update.is_empty() => {
                hooks::woven(&self.update, &self.hooks, operation)
            }
            _ => hooks::woven(&self.install, &self.hooks, operation),
        }
    }

    /// Refuses more than a Run carries, which would be planned in vain: the API takes no such object. `parts` are what people said, with how
    /// much of it is theirs.
    ///
    /// # Errors
    ///
    /// It is more: the largest parts are named.
    pub(crate) fn carried(
        self,
        field: &str,
        parts: impl IntoIterator<Item = (String, usize)>,
        remedy: &str,
    ) -> Result<Self, Vec<Problem>> {
        let operations = [Operation::Install, Operation::Update, Operation::Upgrade];
        let steps = operations.map(|operation| bytes(&self.steps(operation)));
        let bytes = bytes(&self.inputs) + steps.into_iter().max().unwrap_or_default();
        if bytes <= CARRIED {
            return Ok(self);
        }
        let mut parts: Vec<_> = parts.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let largest = parts.into_iter().take(LARGEST);
        let largest = largest.map(|(name, bytes)| format!("{name} with {bytes}"));
        let largest: Vec<_> = largest.collect();
        Err(vec![Problem::new(
            field,
            format!("{bytes} bytes"),
            format!(
                "each Run carries all that its steps read, and takes {CARRIED} bytes of it in all; the largest parts are {}",
                largest.join(", ")
            ),
            remedy,
        )])
    }

    /// All steps that a person may name: those of an installation, and hooks of other operations.
    pub fn every_step(&self) -> Vec<Step> {
        hooks::every(&self.install, &self.hooks)
    }

    /// The plan of an operation.
    ///
    /// # Errors
    ///
    /// It cannot be written as JSON.
    pub fn plan(&self, operation: Operation, reason: &str) -> Result<Plan, serde_json::Error> {
        let mut plan = Plan {
            reason: Some(reason.to_owned()),
            inputs: self.inputs.clone(),
            steps: self.steps(operation),
            ..Plan::default()
        };
        if operation != Operation::Delete && self.parallelism > 1 {
            plan.parallelism = Some(self.parallelism);
        }
        plan.digest = workflow::plan::digest_of(operation.name(), &plan)?;
        Ok(plan)
    }
}

/// How long something is as JSON, as the API stores it: what HTML could read as its own stands there as six characters each.
pub(crate) fn bytes(value: &impl Serialize) -> usize {
    let mut written = Written(0);
    // What cannot be written is told by whoever writes it.
    serde_json::to_writer(&mut written, value).map_or(0, |()| written.0)
}

/// Counts, and keeps nothing.
struct Written(usize);

impl io::Write for Written {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        // U+2028 and U+2029, which have three bytes, are escaped, too.
        let escaped = part.iter().filter(|byte| b"<>&".contains(byte)).count() * 5;
        let separators = part
            .windows(3)
            .filter(|bytes| matches!(bytes, [0xe2, 0x80, 0xa8 | 0xa9]));
        self.0 += part.len() + escaped + separators.count() * 3;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many parts of what is too much are named.
const LARGEST: usize = 3;

/// A kind of object that runs make true.
pub trait Wish:
    kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// Whether objects of the kind can have backups.
    const HAS_BACKUPS: bool = false;

    /// Which service it is. None: it is a cloud.
    fn service(&self) -> Option<&str> {
        None
    }

    /// What its backups are to be like. None: it has none.
    fn backup(&self) -> Option<&Backup> {
        None
    }

    /// What of it is rotated by itself. Nothing: nothing is, or what is written of it is refused.
    fn rotations(&self) -> Vec<Scheduled> {
        Vec::new()
    }

    /// What it wishes for.
    ///
    /// # Errors
    ///
    /// What is wrong with it: field, value, rule, remedy.
    fn wanted(&self) -> Result<Wanted, Vec<Problem>>;

    /// What removes it, by what one of its runs worked from: what is wished for since may be nothing that can be, and need not be, to go. None:
    /// this Windlass cannot read that.
    fn removal(&self, inputs: &Map<String, Value>) -> Option<Wanted>;

    /// How it was told to stand.
    fn standing(&self) -> Option<&Standing>;
}

/// A value as the inputs of a plan.
pub(crate) fn map(value: &impl Serialize) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::to_value(value)? {
        Value::Object(map) => Ok(map),
        _ => Ok(Map::new()),
    }
}

/// The inputs of a plan as what they were. None: another Windlass wrote them.
pub(crate) fn read<T: DeserializeOwned>(inputs: &Map<String, Value>) -> Option<T> {
    T::deserialize(inputs).ok()
}

/// What cannot be written as JSON, as a problem: no release has one.
pub(crate) fn unwritable(error: &serde_json::Error) -> Vec<Problem> {
    vec![Problem::new(
        "the plan",
        "",
        format!("it cannot be written: {error}"),
        "tell whoever makes Windlass",
    )]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_api_stores_in_more_bytes_is_counted_so() {
        // As Go's encoding/json writes them.
        for (text, stored) in [
            ("a", r#""a""#),
            ("<b>&", r#""\u003cb\u003e\u0026""#),
            ("\u{2028}\u{2029}\u{2030}", "\"\\u2028\\u2029\u{2030}\""),
            ("\u{1}\"", r#""\u0001\"""#),
        ] {
            assert_eq!(bytes(&json!(text)), stored.len(), "{stored}");
        }
        let wanted = Wanted {
            inputs: map(&json!({"a": "<".repeat(CARRIED / 5)})).unwrap(),
            ..Wanted::default()
        };
        assert!(wanted.carried("a", [], "b").is_err());
    }
}
