//! Evaluation: a walk over the operations that pays for each before it is done.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{Arc, LazyLock},
};

use kube::core::cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, IdedExpr, Value as Plain,
        common::ast::{CallExpr, Expr},
    },
};
use regex::{Regex, RegexBuilder};

use super::{
    super::node::Node,
    Rule,
    compile::{Call, Field, Fold, Item, Op},
    price::{self, Extent},
    value::{Collection, Name, Val},
};

/// What the rules of one object may still cost.
#[derive(Debug)]
pub(in crate::schema) struct Budget {
    left: u64,
}

impl Budget {
    /// The budget of one object.
    pub fn of_object() -> Self {
        Self { left: PER_OBJECT }
    }

    #[cfg(test)]
    pub fn spent(&self) -> u64 {
        PER_OBJECT - self.left
    }

    pub fn is_spent(&self) -> bool {
        self.left == 0
    }
}

/// Why an evaluation gave nothing.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::schema) enum Stop {
    /// The expression has no value for this object.
    Failed(String),
    /// One evaluation may not cost more.
    Call,
    /// The rules of one object may not cost more.
    Object,
}

type Evaluated<'a> = Result<Val<'a>, Stop>;

impl Rule {
    /// Evaluates the expression.
    pub fn run<'a>(
        &'a self,
        this: &Val<'a>,
        old: Option<&Val<'a>>,
        budget: &mut Budget,
    ) -> Evaluated<'a> {
        let limit = budget.left.min(PER_CALL);
        let mut run = Run {
            this,
            old,
            locals: Vec::new(),
            patterns: BTreeMap::new(),
            left: limit,
            is_spent: false,
        };
        let value = run.value(&self.op);
        budget.left -= limit - run.left;
        if !run.is_spent {
            return value;
        }
        if limit == PER_CALL {
            return Err(Stop::Call);
        }
        budget.left = 0;
        Err(Stop::Object)
    }
}

struct Run<'r, 'a> {
    this: &'r Val<'a>,
    old: Option<&'r Val<'a>>,
    locals: Vec<Val<'a>>,
    /// Those of the object.
    patterns: BTreeMap<String, Regex>,
    left: u64,
    is_spent: bool,
}

impl<'a> Run<'_, 'a> {
    /// Pays. Once the budget is spent nothing goes on, whatever an expression makes of its errors.
    fn pay(&mut self, price: u64) -> Result<(), Stop> {
        if self.is_spent || price > self.left {
            self.is_spent = true;
            self.left = 0;
            return Err(Stop::Call);
        }
        self.left -= price;
        Ok(())
    }

    fn value(&mut self, op: &'a Op) -> Evaluated<'a> {
        match op {
            Op::Literal(value) => Ok(Val::Plain(value.clone())),
            Op::This | Op::Old | Op::Local(_) | Op::Type(_) => {
                self.pay(1)?;
                self.variable(op)
            }
            Op::Select(from, field) => self.select(from, field),
            Op::Has(from, field) => self.has(from, field),
            Op::Index(from, key) => {
                let (from, key) = (self.value(from)?, self.value(key)?);
                self.pay(1)?;
                index(&from, &key)
            }
            Op::Lookup(from, key) => self.lookup(from, key),
            Op::And(left, right) => self.junction(left, right, false),
            Op::Or(left, right) => self.junction(left, right, true),
            Op::If(test, yes, no) => {
                if self.truth(test)? {
                    self.value(yes)
                } else {
                    self.value(no)
                }
            }
            Op::List(items) => self.list(items),
            Op::Map(entries) => self.map(entries),
            Op::Fold(fold, range, test) => self.fold(*fold, range, test),
            Op::Collect(range, test, made) => self.collect(range, test.as_deref(), made),
            Op::Call(call) => self.call(call),
        }
    }

    fn variable(&self, op: &Op) -> Evaluated<'a> {
        match op {
            Op::This => Ok(self.this.clone()),
            Op::Old => match self.old {
                Some(old) => Ok(old.clone()),
                None => fail("no such attribute: oldSelf"),
            },
            Op::Local(place) => match self.locals.get(*place) {
                Some(value) => Ok(value.clone()),
                None => fail("no such attribute"),
            },
            Op::Type(name) => Ok(Val::Type(name.clone())),
            _ => fail("no such attribute"),
        }
    }

    fn truth(&mut self, op: &'a Op) -> Result<bool, Stop> {
        self.value(op)?.as_bool().ok_or_else(no_overload)
    }

    /// One side may decide alone, even where the other has no value.
    fn junction(&mut self, left: &'a Op, right: &'a Op, decisive: bool) -> Evaluated<'a> {
        let first = self.truth(left);
        if first == Ok(decisive) {
            return Ok(Val::bool(decisive));
        }
        match (first, self.truth(right)) {
            (Ok(_), second) => second.map(Val::bool),
            (Err(_), Ok(second)) if second == decisive && !self.is_spent => Ok(Val::bool(decisive)),
            (Err(stop), _) => Err(stop),
        }
    }

    fn select(&mut self, from: &'a Op, field: &'a Field) -> Evaluated<'a> {
        let from = self.value(from)?;
        self.pay(1)?;
        if let Val::Optional(inner) = &from {
            let found = inner.as_ref().and_then(|inner| field_of(inner, field));
            return Ok(Val::Optional(found.map(Rc::new)));
        }
        if from.collection() != Some(Collection::Map) {
            return Err(no_overload());
        }
        field_of(&from, field).ok_or_else(|| Stop::Failed(format!("no such key: {}", field.name)))
    }

    fn has(&mut self, from: &'a Op, field: &'a Field) -> Evaluated<'a> {
        let from = self.value(from)?;
        self.pay(1)?;
        let found = match &from {
            Val::Optional(None) => None,
            Val::Optional(Some(inner)) => field_of(inner, field),
            from if from.collection() == Some(Collection::Map) => field_of(from, field),
            _ => return Err(no_overload()),
        };
        Ok(Val::bool(found.is_some()))
    }

    fn lookup(&mut self, from: &'a Op, key: &'a Op) -> Evaluated<'a> {
        let (from, key) = (self.value(from)?, self.value(key)?);
        self.pay(1)?;
        let from = match &from {
            Val::Optional(None) => return Ok(from),
            Val::Optional(Some(inner)) => inner,
            from => from,
        };
        Ok(Val::Optional(index(from, &key).ok().map(Rc::new)))
    }

    fn list(&mut self, items: &'a [Item]) -> Evaluated<'a> {
        self.pay(price::LIST)?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.extend(self.element(item)?);
        }
        Ok(Val::List(Rc::new(values)))
    }

    fn element(&mut self, item: &'a Item) -> Result<Option<Val<'a>>, Stop> {
        let value = self.value(&item.op)?;
        Ok(match value {
            Val::Optional(inner) if item.optional => inner.map(|inner| Val::clone(&inner)),
            value => Some(value),
        })
    }

    fn map(&mut self, entries: &'a [(Op, Item)]) -> Evaluated<'a> {
        self.pay(price::MAP)?;
        let mut values = BTreeMap::new();
        for (key, item) in entries {
            let key = Name::of(&self.value(key)?).ok_or_else(no_overload)?;
            if let Some(value) = self.element(item)?
                && values.insert(key, value).is_some()
            {
                return fail("insert failed: key already exists");
            }
        }
        Ok(Val::Map(Rc::new(values)))
    }

    /// The items of a list or the keys of a map, and how many there are.
    fn range(&mut self, range: &'a Op) -> Result<(Val<'a>, usize), Stop> {
        let range = self.value(range)?;
        let range = match range.collection() {
            Some(Collection::List) => range,
            Some(Collection::Map) => {
                self.pay(range.extent())?;
                Val::List(Rc::new(range.items().unwrap_or_default()))
            }
            None => return Err(no_overload()),
        };
        let count = range.size().unwrap_or_default();
        Ok((range, count))
    }

    /// Runs an operation with one more variable.
    fn within(&mut self, item: Val<'a>, op: &'a Op) -> Evaluated<'a> {
        self.locals.push(item);
        let value = self.value(op);
        self.locals.pop();
        value
    }

    fn fold(&mut self, fold: Fold, range: &'a Op, test: &'a Op) -> Evaluated<'a> {
        let (range, count) = self.range(range)?;
        let mut failed = None;
        let mut found = 0;
        for at in 0..count {
            self.pay(price::FOLD)?;
            let Some(item) = range.item(at) else { break };
            let passes = match self.within(item, test) {
                Ok(value) => value.as_bool().ok_or_else(no_overload),
                Err(stop) => Err(stop),
            };
            match (fold, passes) {
                (_, Err(stop)) if self.is_spent || fold == Fold::One => return Err(stop),
                (_, Err(stop)) => failed = Some(stop),
                (Fold::All, Ok(false)) => return Ok(Val::bool(false)),
                (Fold::Exists, Ok(true)) => return Ok(Val::bool(true)),
                (_, Ok(passes)) => found += usize::from(passes),
            }
        }
        match (fold, failed) {
            (_, Some(stop)) => Err(stop),
            (Fold::All, None) => Ok(Val::bool(true)),
            (Fold::Exists, None) => Ok(Val::bool(false)),
            (Fold::One, None) => Ok(Val::bool(found == 1)),
        }
    }

    fn collect(&mut self, range: &'a Op, test: Option<&'a Op>, made: &'a Op) -> Evaluated<'a> {
        let (range, count) = self.range(range)?;
        let mut values = Vec::new();
        for at in 0..count {
            self.pay(price::LIST + 2)?;
            let Some(item) = range.item(at) else { break };
            self.locals.push(item);
            let value = self.one(test, made);
            self.locals.pop();
            values.extend(value?);
        }
        Ok(Val::List(Rc::new(values)))
    }

    fn one(&mut self, test: Option<&'a Op>, made: &'a Op) -> Result<Option<Val<'a>>, Stop> {
        if let Some(test) = test
            && !self.truth(test)?
        {
            return Ok(None);
        }
        self.value(made).map(Some)
    }

    fn call(&mut self, call: &'a Call) -> Evaluated<'a> {
        let mut values = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            values.push(self.value(argument)?);
        }
        self.pay(price(&call.name, &values))?;
        match values.as_slice() {
            [one] => {
                if let Some(value) = unary(&call.name, one) {
                    return value;
                }
            }
            [text, pattern] if PATTERNS.contains(&call.name.as_str()) => {
                let (text, pattern) = text
                    .as_text()
                    .zip(pattern.as_text())
                    .ok_or_else(no_overload)?;
                let regex = self.pattern(call, pattern)?;
                return Ok(search(&call.name, text, &regex));
            }
            [left, right] => {
                if let Some(value) = binary(call, left, right) {
                    return value;
                }
            }
            [] if call.name == "optional.none" => return Ok(Val::Optional(None)),
            _ => {}
        }
        library(&call.library, values.iter().map(Val::plain).collect()).map(Val::made)
    }
}

impl Run<'_, '_> {
    /// A pattern. One that is in the object is compiled once, for a price.
    fn pattern(&mut self, call: &Call, pattern: &str) -> Result<Regex, Stop> {
        if let Some(known) = call.pattern.as_ref().or_else(|| self.patterns.get(pattern)) {
            return Ok(known.clone());
        }
        self.pay(price::PATTERN)?;
        let Ok(regex) = regex(pattern, LARGEST) else {
            return fail("pattern is no regular expression, or too large");
        };
        self.patterns.insert(pattern.to_owned(), regex.clone());
        Ok(regex)
    }
}

fn search<'a>(name: &str, text: &str, regex: &Regex) -> Val<'a> {
    match name {
        "matches" => Val::bool(regex.is_match(text)),
        "find" => Val::text(regex.find(text).map_or("", |found| found.as_str())),
        _ => {
            let found = regex.find_iter(text).map(|found| Val::text(found.as_str()));
            Val::List(Rc::new(found.collect()))
        }
    }
}

/// What a call costs with the values that it has.
fn price(name: &str, values: &[Val<'_>]) -> u64 {
    let collections = values.iter().any(|value| value.collection().is_some());
    // Only these look at no more of a collection than its size.
    let shallow = ["size", "type", "dyn", "_+_"].contains(&name)
        || name.starts_with("optional.")
        || ["or", "orValue", "value", "hasValue"].contains(&name);
    let weighs = collections && !shallow;
    let extents: Vec<Extent> = values
        .iter()
        .map(|value| {
            let size = value.extent();
            let weight = if weighs {
                value.weight()
            } else {
                price::characters(size).max(1)
            };
            Extent { size, weight }
        })
        .collect();
    let all = extents
        .iter()
        .fold(0_u64, |sum, one| sum.saturating_add(one.weight));
    let own = price::call(name, &extents);
    let text = |at: usize| values.get(at).and_then(Val::as_text).unwrap_or_default();
    let made = match name {
        "size" => price::characters(extents[0].size),
        "replace" => {
            let count = text(0).matches(text(1)).count() as u64;
            price::characters(count.saturating_mul(extents[2].size))
        }
        "join" => price::characters(extents[0].size.saturating_mul(text(1).len() as u64)),
        _ => 0,
    };
    // Looking at all of a collection is quick, but it is not free.
    let look = if weighs { all / 10 } else { 0 };
    own.saturating_add(made).saturating_add(look)
}

fn unary<'a>(name: &str, value: &Val<'a>) -> Option<Evaluated<'a>> {
    Some(match name {
        "!_" => value
            .as_bool()
            .map(|truth| Val::bool(!truth))
            .ok_or_else(no_overload),
        "-_" => match value {
            Val::Plain(Plain::Int(number)) => match number.checked_neg() {
                Some(number) => Ok(Val::Plain(Plain::Int(number))),
                None => fail("integer overflow"),
            },
            Val::Plain(Plain::Float(number)) => Ok(Val::Plain(Plain::Float(-number))),
            _ => Err(no_overload()),
        },
        "size" => value.size().map(Val::int).ok_or_else(no_overload),
        "dyn" => Ok(value.clone()),
        "type" => Ok(Val::Type(value.kind().to_owned())),
        "bool" => match (value.as_bool(), value.as_text()) {
            (Some(truth), _) => Ok(Val::bool(truth)),
            (_, Some("true" | "True" | "TRUE" | "t" | "1")) => Ok(Val::bool(true)),
            (_, Some("false" | "False" | "FALSE" | "f" | "0")) => Ok(Val::bool(false)),
            _ => fail("type conversion error"),
        },
        "string" => Ok(Val::text(value.as_bool()?.to_string())),
        "optional.of" => Ok(Val::Optional(Some(Rc::new(value.clone())))),
        "optional.ofNonZeroValue" => {
            let is_zero = value.size() == Some(0) || zero(value);
            Ok(Val::Optional((!is_zero).then(|| Rc::new(value.clone()))))
        }
        "hasValue" => match value {
            Val::Optional(inner) => Ok(Val::bool(inner.is_some())),
            _ => Err(no_overload()),
        },
        "value" => match value {
            Val::Optional(Some(inner)) => Ok(Val::clone(inner)),
            Val::Optional(None) => fail("optional.none() dereference"),
            _ => Err(no_overload()),
        },
        _ => return None,
    })
}

fn zero(value: &Val<'_>) -> bool {
    match value {
        Val::Plain(Plain::Null | Plain::Bool(false) | Plain::Int(0) | Plain::UInt(0)) => true,
        Val::Plain(Plain::Float(number)) => *number == 0.0,
        _ => false,
    }
}

fn binary<'a>(call: &'a Call, left: &Val<'a>, right: &Val<'a>) -> Option<Evaluated<'a>> {
    let ordered = |is: fn(Ordering) -> bool| {
        let order = left.compare(right).ok_or_else(no_overload);
        order.map(|order| Val::bool(is(order)))
    };
    let texts = left.as_text().zip(right.as_text()).ok_or_else(no_overload);
    Some(match call.name.as_str() {
        "_==_" => Ok(Val::bool(left.equals(right))),
        "_!=_" => Ok(Val::bool(!left.equals(right))),
        "_<_" => ordered(Ordering::is_lt),
        "_<=_" => ordered(Ordering::is_le),
        "_>_" => ordered(Ordering::is_gt),
        "_>=_" => ordered(Ordering::is_ge),
        "_+_" | "_-_" | "_*_" | "_/_" | "_%_" => calculated(&call.name, left, right),
        "@in" => match right.collection() {
            Some(Collection::List) => {
                let items = right.items().unwrap_or_default();
                Ok(Val::bool(items.iter().any(|item| item.equals(left))))
            }
            Some(Collection::Map) => Ok(Val::bool(right.entry(left).is_some())),
            None => Err(no_overload()),
        },
        "startsWith" => texts.map(|(text, part)| Val::bool(text.starts_with(part))),
        "endsWith" => texts.map(|(text, part)| Val::bool(text.ends_with(part))),
        "contains" => texts.map(|(text, part)| Val::bool(text.contains(part))),
        "format" if texts.is_err() => return formatted(left),
        "or" | "orValue" => match left {
            Val::Optional(Some(inner)) if call.name == "orValue" => Ok(Val::clone(inner)),
            Val::Optional(Some(_)) => Ok(left.clone()),
            Val::Optional(None) => Ok(right.clone()),
            _ => Err(no_overload()),
        },
        _ => return None,
    })
}

/// Refuses what the library would take the memory of the machine for.
fn formatted<'a>(template: &Val<'a>) -> Option<Evaluated<'a>> {
    let parts = template.as_text()?.split("%.").skip(1);
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).count();
    parts
        .map(digits)
        .any(|digits| digits > 2)
        .then(|| fail("precision is too large"))
}

fn calculated<'a>(name: &str, left: &Val<'a>, right: &Val<'a>) -> Evaluated<'a> {
    if let (Val::Plain(a), Val::Plain(b)) = (left, right) {
        let (a, b) = (a.clone(), b.clone());
        return guarded(|| match name {
            "_+_" => a + b,
            "_-_" => a - b,
            "_*_" => a * b,
            "_/_" => a / b,
            _ => a % b,
        })
        .map(Val::Plain);
    }
    if name != "_+_" || [left, right].map(Val::collection) != [Some(Collection::List); 2] {
        return Err(no_overload());
    }
    let mut items = left.items().unwrap_or_default();
    items.extend(right.items().unwrap_or_default());
    Ok(Val::List(Rc::new(items)))
}

/// A regular expression that takes no more than so many bytes.
pub(super) fn regex(pattern: &str, largest: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(largest).build()
}

fn index<'a>(from: &Val<'a>, key: &Val<'a>) -> Evaluated<'a> {
    match from.collection() {
        Some(Collection::Map) => from.entry(key).ok_or_else(|| {
            Stop::Failed(format!(
                "no such key: {}",
                key.as_text().unwrap_or_default()
            ))
        }),
        Some(Collection::List) => {
            let at = match key {
                Val::Plain(Plain::Int(at)) => usize::try_from(*at).ok(),
                Val::Plain(Plain::UInt(at)) => usize::try_from(*at).ok(),
                _ => return Err(no_overload()),
            };
            at.and_then(|at| from.item(at))
                .ok_or_else(|| Stop::Failed("index out of bounds".to_owned()))
        }
        None => Err(no_overload()),
    }
}

fn field_of<'a>(from: &Val<'a>, field: &Field) -> Option<Val<'a>> {
    if field.loose {
        from.field(&from.real(&field.name))
    } else {
        from.field(&field.name)
    }
}

/// A call of the library, of as many variables as there are arguments.
pub(super) fn prepared(name: &str, method: bool, arguments: usize) -> IdedExpr {
    let variables = VARIABLES
        .iter()
        .take(arguments)
        .map(|name| plain_expression(Expr::Ident((*name).to_owned())));
    let mut variables: Vec<_> = variables.collect();
    let target = method.then(|| Box::new(variables.remove(0)));
    plain_expression(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target,
        args: variables,
    }))
}

fn plain_expression(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

/// Calls a function of the library.
fn library(call: &IdedExpr, values: Vec<Plain>) -> Result<Plain, Stop> {
    guarded(|| {
        let mut scope = LIBRARY.new_inner_scope();
        for (name, value) in VARIABLES.iter().zip(values) {
            scope.add_variable_from_value(*name, value);
        }
        Plain::resolve(call, &scope)
    })
}

/// Some functions of the library panic for arguments that are out of their range.
fn guarded(work: impl FnOnce() -> Result<Plain, ExecutionError>) -> Result<Plain, Stop> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(value) => value.map_err(|error| Stop::Failed(error.to_string())),
        Err(_) => Err(Stop::Failed("value out of range".to_owned())),
    }
}

/// A text as what the function makes of it.
pub(super) fn convert(function: &str, text: &str) -> Option<Plain> {
    let call = prepared(function, false, 1);
    library(&call, vec![Plain::String(Arc::new(text.to_owned()))]).ok()
}

fn fail<T>(why: &str) -> Result<T, Stop> {
    Err(Stop::Failed(why.to_owned()))
}

fn no_overload() -> Stop {
    Stop::Failed("no such overload".to_owned())
}

/// The form of values that no schema describes.
pub(super) static ANYTHING: LazyLock<Node> = LazyLock::new(Node::default);

static LIBRARY: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

const VARIABLES: [&str; 4] = ["a0", "a1", "a2", "a3"];

const PATTERNS: [&str; 3] = ["matches", "find", "findAll"];

/// Bytes of a pattern in an object, compiled.
const LARGEST: usize = 128 * 1024;

/// Kubernetes' `PerCallLimit` and `RuntimeCELCostBudget`.
const PER_CALL: u64 = 1_000_000;
const PER_OBJECT: u64 = 10_000_000;
