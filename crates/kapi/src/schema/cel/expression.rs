//! An expression that stands by itself: about an object of any kind, in no schema.
//!
//! It is for programs that let people write conditions in the words of a definition's rules. There is no schema, so the names of
//! fields are looked up when it runs, and what it may cost is bounded then, as that of a rule is: one whose cost no schema bounds
//! beforehand is not refused for that. What it keeps in memory is bounded with it. Within its bounds it may still take a second:
//! where others wait, it is evaluated beside them.

use serde_json::Value;

use super::{Budget, Stop, Type, Val, Variables, deep, eval, rule};

/// A condition in CEL over `self`, an object of any kind.
///
/// ```
/// use kapi::schema::{Budget, Expression};
/// use serde_json::json;
///
/// let ready = Expression::compile("self.status.ready == self.status.total").unwrap();
/// let object = json!({"status": {"ready": 2, "total": 3}});
/// assert_eq!(ready.holds(&object, &mut Budget::of_object()), Ok(false));
/// ```
#[derive(Debug)]
pub struct Expression(super::Rule);

/// Why an expression has no answer for an object.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unanswered {
    /// A field is not there, or a value is not of a type that is asked for.
    #[error("{0}")]
    Failed(String),
    /// It costs more than one evaluation may.
    #[error("it costs more than one evaluation may")]
    Call,
    /// Those before it have cost what all may together.
    #[error("it costs, with those before it, more than all may together")]
    Object,
}

impl Expression {
    /// Compiles a text, of at most 16 KiB.
    ///
    /// # Errors
    /// It is no expression, uses something that there is not, as `oldSelf`, or is not known to give true or false. The value of a
    /// field is of any type: it is compared with something, even with true.
    pub fn compile(text: &str) -> Result<Self, String> {
        let variables = Variables {
            this: Type::dynamic(),
            optional_old: false,
        };
        let compiled = deep(|| rule(text, &variables));
        let compiled = compiled.unwrap_or_else(|| Err("it cannot be read".to_owned()))?;
        if compiled.uses_old {
            return Err("compilation failed: there is no oldSelf here".to_owned());
        }
        Ok(Self(compiled))
    }

    /// Whether it holds for an object.
    ///
    /// # Errors
    /// It has no answer, or the budget does not suffice.
    pub fn holds(&self, object: &Value, budget: &mut Budget) -> Result<bool, Unanswered> {
        let this = Val::of(object, &eval::ANYTHING);
        match self.0.run(&this, None, budget) {
            Ok(value) => value
                .as_bool()
                .ok_or_else(|| Unanswered::Failed("no such overload".to_owned())),
            Err(Stop::Failed(why)) => Err(Unanswered::Failed(why)),
            Err(Stop::Call) => Err(Unanswered::Call),
            Err(Stop::Object) => Err(Unanswered::Object),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(text: &str, object: &Value) -> Result<bool, Unanswered> {
        let expression = Expression::compile(text).unwrap();
        expression.holds(object, &mut Budget::of_object())
    }

    #[test]
    fn an_expression_is_about_an_object_of_any_kind() {
        let object = json!({
            "metadata": {"name": "shop", "namespace": "fleet", "labels": {"a.b/c-d": "e"}},
            "status": {
                "ready": 3, "total": 3, "load": 1.5, "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        for (text, expected) in [
            ("self.status.ready == self.status.total", true),
            ("self.status.ready > 3", false),
            ("self.status.load > 1.25 && self.status.load < 1.75", true),
            ("self.status.phase in ['Running', 'Done']", true),
            (
                "self.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
                true,
            ),
            ("self.metadata.labels['a.b/c-d'] == 'e'", true),
            ("self.metadata.namespace.startsWith('f')", true),
            ("has(self.status.nodes)", false),
            ("self.?status.?nodes.orValue(0) == 0", true),
        ] {
            assert_eq!(answer(text, &object), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_expression_that_is_no_condition_is_not_compiled() {
        for (text, why) in [
            ("self.status.ready ==", "compilation failed"),
            ("self.status.ready", "must evaluate to a bool"),
            ("1 + 1", "must evaluate to a bool"),
            ("cluster.ready == 1", "undeclared reference to 'cluster'"),
            ("self.ready == oldSelf.ready", "there is no oldSelf here"),
            ("self.ready.nope() == 1", "undeclared reference to 'nope'"),
        ] {
            let told = Expression::compile(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn an_expression_without_an_answer_says_why() {
        let failed = |why: &str| Err(Unanswered::Failed(why.to_owned()));
        for (text, object, expected) in [
            (
                "self.status.ready == 1",
                json!({"metadata": {}}),
                failed("no such key: status"),
            ),
            (
                "self.status.ready > 1",
                json!({"status": {"ready": "yes"}}),
                failed("no such overload"),
            ),
        ] {
            assert_eq!(answer(text, &object), expected, "{text}");
        }
    }

    #[test]
    fn an_expression_that_costs_too_much_is_ended() {
        let items: Vec<_> = (0..300).collect();
        let cubic = "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))";
        assert_eq!(answer(cubic, &json!(items)), Err(Unanswered::Call));
        // Nine tenths of what one may, so the twelfth is one too many.
        let object = json!({"text": "a".repeat(90_000), "part": "b".repeat(1000)});
        let search = Expression::compile("self.text.contains(self.part)").unwrap();
        let mut budget = Budget::of_object();
        let answers: Vec<_> = (0..12)
            .map(|_| search.holds(&object, &mut budget))
            .collect();
        assert_eq!(answers.first(), Some(&Ok(false)));
        assert_eq!(answers.last(), Some(&Err(Unanswered::Object)));
    }

    #[test]
    fn lists_that_share_their_parts_are_not_looked_at_to_their_end() {
        let shared = format!("[1]{}", ".map(a, [a, a])".repeat(40));
        for test in [
            "a == a",
            "a != a",
            "a in [a]",
            "optional.of(a) == optional.of(a)",
            "sets.contains(a, a)",
            "'%s'.format([a]) != ''",
        ] {
            let rule = format!("{shared}.all(a, {test})");
            assert_eq!(answer(&rule, &json!({})), Err(Unanswered::Call), "{rule}");
        }
        let few = format!("[1]{}.all(a, a == a)", ".map(a, [a, a])".repeat(10));
        assert_eq!(answer(&few, &json!({})), Ok(true));
    }

    #[test]
    fn an_expression_that_keeps_too_much_is_ended() {
        let text = |doublings: usize| {
            let doubled = ".map(a, a + a)".repeat(doublings);
            format!("['aaaaaaaaaa']{doubled}")
        };
        let list = format!("[[{}0]]{}", "0, ".repeat(9), ".map(a, a + a)".repeat(18));
        let object = json!({"items": vec![0; 40_000], "text": "a".repeat(90_000)});
        let zeros = format!("[{}0]", "0, ".repeat(300));
        for rule in [
            format!(
                "{}.exists(t, [t.findAll(''), t.findAll(''), t.findAll('')].size() > 9)",
                text(18)
            ),
            format!("{}.exists(t, t.findAll('', 9000000).size() > 9)", text(18)),
            format!("{}.exists(t, t.split('').size() > 9)", text(17)),
            format!("{list}.exists(a, a.size() > 9)"),
            format!("self.items.map(a, {zeros}).size() > 9"),
            "self.items.map(a, self.text).size() > 9".to_owned(),
        ] {
            assert_eq!(answer(&rule, &object), Err(Unanswered::Call), "{rule}");
        }
        // It is no matter of what others have left.
        let mut budget = Budget::of_object();
        let search = "self.text.contains(self.text.substring(0, 1000))";
        let search = Expression::compile(search).unwrap();
        for _ in 0..10 {
            assert_eq!(search.holds(&object, &mut budget), Ok(true));
        }
        let copies = Expression::compile("self.items.map(a, self.text).size() > 9").unwrap();
        assert_eq!(copies.holds(&object, &mut budget), Err(Unanswered::Call));
        assert_eq!(search.holds(&object, &mut budget), Err(Unanswered::Object));
    }

    #[test]
    fn what_an_expression_does_not_keep_counts_for_nothing() {
        let object = json!({"items": vec![0; 1000], "text": "a,".repeat(1000)});
        for rule in [
            "self.items.all(a, self.text.split(',').size() == 1001)",
            "self.items.map(a, self.text.split(',').size()).all(count, count == 1001)",
        ] {
            assert_eq!(answer(rule, &object), Ok(true), "{rule}");
        }
    }
}
