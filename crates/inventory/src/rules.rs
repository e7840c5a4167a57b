//! What levels ask of values, as rules in CEL.
//!
//! A schema says what one object may set. A rule says what must hold of values together, of an object's own and of those that it
//! inherits, and so is asked of what they come to down to that object. It is bounded as the gates of roll-outs are: in length where
//! it is read, in cost where it is asked, and all rules of one object have one budget.
//!
//! What has no answer is broken: a rule that is silently not checked is worse than none. A template stands for what it comes to
//! (`promises`), or as it is written where no object needs it, and a reference to a secret as it is written.

use std::sync::Arc;

use api::{
    inventory::{Segment, ValuePath, ValueRule},
    text::plain,
};
use kapi::schema::{Budget, Expression};

use crate::{
    fleet::field,
    problem::{Object, Problem, Rule},
    tree::{Source, Tree},
};

/// The rules of a level.
#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<Compiled>);

#[derive(Debug)]
struct Compiled {
    /// Where it stands.
    by: String,
    text: String,
    expression: Expression,
    message: Option<String>,
    path: ValuePath,
}

impl Rules {
    /// Reads the rules that a field of a Hierarchy holds.
    pub(crate) fn read(
        object: &Object,
        path: &[&str],
        rules: Vec<ValueRule>,
    ) -> Result<Self, Problem> {
        let at = field(path);
        let fails = |path: ValuePath, what: String, remedy| Problem {
            object: object.clone(),
            level: None,
            path,
            rule: Rule::Order { what, remedy },
        };
        if rules.len() > MOST {
            let what = format!("has {} rules, more than {MOST}", rules.len());
            return Err(fails(at, what, "put several into one with &&"));
        }
        let rules = rules.into_iter().enumerate().map(|(number, rule)| {
            let at = at.index(number);
            compile(format!("{object} {at}"), rule)
                .map_err(|(key, what, remedy)| fails(at.key(key), what, remedy))
        });
        rules.collect::<Result<_, _>>().map(Self)
    }

    /// Asks the rules of an object's level about what the values down to it come to.
    pub(crate) fn check(&self, values: &Arc<Tree>, own: &Arc<Source>) -> Result<(), Vec<Problem>> {
        if self.0.is_empty() {
            return Ok(());
        }
        let object = values.to_value();
        let mut budget = Budget::of_object();
        let mut problems = Vec::new();
        for rule in &self.0 {
            match rule.expression.holds(&object, &mut budget) {
                Ok(true) => {}
                Ok(false) => problems.push(rule.broken(values, own, None)),
                Err(why) => problems.push(rule.broken(values, own, Some(&why.to_string()))),
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems)
        }
    }
}

impl Compiled {
    /// A problem of whoever sets the value that the rule is about.
    fn broken(&self, values: &Arc<Tree>, own: &Arc<Source>, unanswered: Option<&str>) -> Problem {
        let said = self.message.as_ref().map(|said| format!(": {said}"));
        let unanswered = unanswered.map(|why| format!(" (no answer: {})", plain(why, LONGEST_WHY)));
        let rule = Rule::Validation {
            rule: self.text.clone(),
            by: self.by.clone(),
            seen: own.object.to_string(),
            why: [said, unanswered].into_iter().flatten().collect(),
        };
        let set = values.at(&self.path.0).filter(|_| !self.path.0.is_empty());
        match set.map(|tree| &tree.origin) {
            Some(origin) => origin.source.problem(ValuePath::clone(&origin.at), rule),
            None => own.problem(field(&["spec", "values"]).join(&self.path), rule),
        }
    }
}

/// Compiles a rule. What is wrong is told with the field of it, and what to do.
fn compile(by: String, rule: ValueRule) -> Result<Compiled, (&'static str, String, &'static str)> {
    let ValueRule {
        rule,
        message,
        path,
    } = rule;
    let is_within = |text: &str, most: usize| (1..=most).contains(&text.chars().count());
    if !is_within(&rule, LONGEST_RULE) {
        let what = format!("is empty, or longer than {LONGEST_RULE} characters");
        return Err(("rule", what, "write a shorter one, or several"));
    }
    if message
        .as_ref()
        .is_some_and(|said| !is_within(said, LONGEST_MESSAGE))
    {
        let what = format!("is empty, or longer than {LONGEST_MESSAGE} characters");
        return Err(("message", what, "write a shorter one, or none"));
    }
    let path = path.unwrap_or_default();
    if path.0.contains(&Segment::Any) {
        let what = format!("{path} is of several values");
        return Err(("path", what, "name one value, without *"));
    }
    let expression = Expression::compile(&rule).map_err(|why| {
        let what = format!("{}: {}", shown(&rule), plain(&why, LONGEST_WHY));
        let remedy = "write an expression in CEL about self, the values, that is true or false, as self.replicas % 2 == 1";
        ("rule", what, remedy)
    })?;
    Ok(Compiled {
        by,
        text: shown(&rule),
        expression,
        message: message.map(|said| plain(&said, LONGEST_MESSAGE)),
        path,
    })
}

/// A rule as problems show it.
fn shown(rule: &str) -> String {
    plain(rule, LONGEST_SHOWN)
}

/// As the definition of Hierarchies says, which files do not go through.
const MOST: usize = 16;
const LONGEST_RULE: usize = 1024;
const LONGEST_MESSAGE: usize = 160;
/// Bytes of a rule and of why it has no answer: together they fit what a status tells of a problem.
const LONGEST_SHOWN: usize = 240;
const LONGEST_WHY: usize = 240;
