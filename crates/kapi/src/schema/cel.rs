//! Rules in CEL: checked when a definition is written, counted when they run.
//!
//! The syntax is that of the crate `cel`, and so are the functions beside the operators (`kube-cel`). The checker and the
//! evaluation are ours, for three reasons: a rule that cannot work is refused with its definition and not with every later
//! write; the work of a rule is counted, so that no client's rule can hold the server; and values stay where they are in the
//! object, where the crate copies them at each step.
//!
//! A rule goes through [`compile`] once: from its text to a [`Rule`], whose operations know the places of their variables and
//! the schemas of their fields. Then [`Rule::run`] evaluates it.
//!
//! # Source
//! Kubernetes 1.34: `apiserver/pkg/cel` (types, libraries, costs), `apiextensions-apiserver/pkg/apiserver/schema/cel`; cel-go
//! 0.26: `checker`, `interpreter/runtimecost.go`.

mod compile;
mod eval;
mod expression;
mod library;
mod price;
mod types;
mod value;

use std::thread;

use self::{compile::Op, types::Type};
pub use self::{
    eval::Budget,
    expression::{Expression, Unanswered},
};
pub(super) use self::{
    eval::Stop,
    types::{declare, unescaped},
    value::Val,
};

/// What a rule may use.
#[derive(Clone)]
pub(super) struct Variables {
    /// The type of `self`.
    pub this: Type,
    /// Whether `oldSelf` is an optional, which it is where the rule also runs for what is new.
    pub optional_old: bool,
}

/// An expression that is ready to run.
#[derive(Debug)]
pub(super) struct Rule {
    op: Op,
    /// It compares with what is stored.
    pub uses_old: bool,
    /// The most that one evaluation may cost, by the bounds in the schema.
    pub cost: u64,
}

/// Compiles an expression that gives a truth.
pub(super) fn rule(text: &str, variables: &Variables) -> Result<Rule, String> {
    let (rule, found) = compile::compile(text, variables).map_err(|why| failed("", &why))?;
    match found {
        Type::Bool => Ok(rule),
        _ => Err("cel expression must evaluate to a bool".to_owned()),
    }
}

/// Compiles an expression that gives a text.
pub(super) fn message(text: &str, variables: &Variables) -> Result<Rule, String> {
    let (rule, found) =
        compile::compile(text, variables).map_err(|why| failed("messageExpression ", &why))?;
    match found {
        Type::String(_) => Ok(rule),
        _ => Err("messageExpression must evaluate to a string".to_owned()),
    }
}

/// Does work in which texts are compiled: an expression may be as deep as it is long, and the parser goes down with it. None: the
/// machine has no room for that.
pub(super) fn deep<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(scope, work);
        worker.ok().and_then(|worker| worker.join().ok())
    })
}

fn failed(what: &str, why: &str) -> String {
    format!("{what}compilation failed: {why}")
}

/// Enough for the parser on the longest text that is read; only what is used is taken.
const STACK: usize = 256 * 1024 * 1024;

#[cfg(test)]
mod tests;
