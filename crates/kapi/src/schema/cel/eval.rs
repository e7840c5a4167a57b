//! Evaluation: a walk over the operations that pays for each before it is done.
//!
//! The prices are those of Kubernetes, and they bound time. They do not bound memory: a list that is put together of two, or what a
//! pattern of no length finds, costs next to nothing. So what an evaluation keeps is counted beside them, in bytes.

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
    value::{Collection, Name, TEXT, VALUE, Val},
};

/// What the rules of one object may still cost: ten million of Kubernetes' units together, and a million each time that one runs.
#[derive(Debug)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// The budget of one object.
    pub fn of_object() -> Self {
        Self { left: PER_OBJECT }
    }

    #[cfg(test)]
    pub(super) fn spent(&self) -> u64 {
        PER_OBJECT - self.left
    }

    /// Whether nothing is left of it.
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
            room: ROOM,
            is_spent: false,
        };
        let value = run.value(&self.op);
        budget.left -= limit - run.left;
        if !run.is_spent {
            return value;
        }
        // What finds no room costs too much by itself, whatever the others have left.
        if limit == PER_CALL || run.room == 0 {
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
    /// Bytes that may be kept yet.
    room: u64,
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

    /// Takes room for what is kept. Without room nothing goes on either.
    fn take(&mut self, bytes: u64) -> Result<(), Stop> {
        if self.is_spent || bytes > self.room {
            self.is_spent = true;
            self.room = 0;
            return Err(Stop::Call);
        }
        self.room -= bytes;
        Ok(())
    }

    /// Gives back what was taken since there was so much room: nothing of it is kept.
    fn give_back(&mut self, room: u64) {
        if !self.is_spent {
            self.room = room;
        }
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

    /// A truth. Of what it was found by nothing is kept.
    fn truth(&mut self, op: &'a Op) -> Result<bool, Stop> {
        let room = self.room;
        let value = self.value(op);
        self.give_back(room);
        value?.as_bool().ok_or_else(no_overload)
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
            if let Some(value) = self.element(item)? {
                self.take(value.bytes())?;
                values.push(value);
            }
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
            let key = self.value(key)?;
            let name = Name::of(&key).ok_or_else(no_overload)?;
            let Some(value) = self.element(item)? else {
                continue;
            };
            self.take(key.bytes() + value.bytes())?;
            if values.insert(name, value).is_some() {
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
                let keys = range.items().unwrap_or_default();
                self.take(keys.iter().map(Val::bytes).sum())?;
                Val::List(Rc::new(keys))
            }
            None => return Err(no_overload()),
        };
        let count = range.size().unwrap_or_default();
        Ok((range, count))
    }

    /// Whether a test is passed with one more variable.
    fn passes(&mut self, item: Val<'a>, test: &'a Op) -> Result<bool, Stop> {
        self.locals.push(item);
        let passes = self.truth(test);
        self.locals.pop();
        passes
    }

    fn fold(&mut self, fold: Fold, range: &'a Op, test: &'a Op) -> Evaluated<'a> {
        let (range, count) = self.range(range)?;
        let mut failed = None;
        let mut found = 0;
        for at in 0..count {
            self.pay(price::FOLD)?;
            let Some(item) = range.item(at) else { break };
            match (fold, self.passes(item, test)) {
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
            if let Some(value) = value? {
                self.take(value.bytes())?;
                values.push(value);
            }
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
        let room = self.room;
        let value = self.called(call)?;
        if let Val::Plain(Plain::Bool(_) | Plain::Int(_)) = value {
            self.give_back(room);
        }
        Ok(value)
    }

    fn called(&mut self, call: &'a Call) -> Evaluated<'a> {
        let mut values = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            values.push(self.value(argument)?);
        }
        let look = Look::of(&call.name, &values, self.left);
        self.pay(price(&call.name, &values, &look))?;
        match values.as_slice() {
            [one] => {
                if let Some(value) = unary(&call.name, one) {
                    return value;
                }
            }
            [text, pattern, most @ ..] if PATTERNS.contains(&call.name.as_str()) => {
                let most = match most {
                    [] => usize::MAX,
                    // A negative number is no bound.
                    [Val::Plain(Plain::Int(most))] => usize::try_from(*most).unwrap_or(usize::MAX),
                    _ => return Err(no_overload()),
                };
                let (text, pattern) = text
                    .as_text()
                    .zip(pattern.as_text())
                    .ok_or_else(no_overload)?;
                let regex = self.pattern(call, pattern)?;
                return self.search(&call.name, text, &regex, most);
            }
            [left, right] if call.name == "_+_" && left.is_list() && right.is_list() => {
                return self.joined([left, right]);
            }
            [left, right] => {
                if let Some(value) = binary(call, left, right) {
                    return value;
                }
            }
            [] if call.name == "optional.none" => return Ok(Val::Optional(None)),
            _ => {}
        }
        self.take(copies(&call.name, &values, &look))?;
        let value =
            library(&call.library, values.iter().map(Val::plain).collect()).map(Val::made)?;
        if value.has_parts() {
            self.take(value.weight(u64::MAX).saturating_mul(VALUE))?;
        }
        Ok(value)
    }

    /// A list of the items of two.
    fn joined(&mut self, lists: [&Val<'a>; 2]) -> Evaluated<'a> {
        let mut items = Vec::new();
        for list in lists {
            for at in 0..list.size().unwrap_or_default() {
                let Some(item) = list.item(at) else { break };
                self.take(item.bytes())?;
                items.push(item);
            }
        }
        Ok(Val::List(Rc::new(items)))
    }

    /// What a pattern finds in a text, so often at most.
    fn search(&mut self, name: &str, text: &str, regex: &Regex, most: usize) -> Evaluated<'a> {
        match name {
            "matches" => Ok(Val::bool(regex.is_match(text))),
            "find" => Ok(Val::text(
                regex.find(text).map_or("", |found| found.as_str()),
            )),
            _ => {
                let mut found = Vec::new();
                for part in regex.find_iter(text).take(most) {
                    let part = Val::text(part.as_str());
                    self.take(part.bytes())?;
                    found.push(part);
                }
                Ok(Val::List(Rc::new(found)))
            }
        }
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

/// What a call looks at.
struct Look {
    extents: Vec<Extent>,
    /// All that there is in its arguments, where it looks into collections.
    parts: u64,
}

impl Look {
    /// With so much left to pay. What is more than that can pay for is not counted to its end.
    fn of(name: &str, values: &[Val<'_>], left: u64) -> Self {
        // Only these look at no more of a collection than its size.
        let shallow = ["size", "type", "dyn", "_+_"].contains(&name)
            || name.starts_with("optional.")
            || ["or", "orValue", "value", "hasValue"].contains(&name);
        let weighs = !shallow && values.iter().any(Val::has_parts);
        let most = left.saturating_add(1).saturating_mul(LOOKS);
        let mut parts = 0_u64;
        let mut extents = Vec::with_capacity(values.len());
        for value in values {
            let size = value.extent();
            let weight = if weighs {
                value.weight(most.saturating_sub(parts))
            } else {
                price::characters(size).max(1)
            };
            parts = parts.saturating_add(weight);
            extents.push(Extent { size, weight });
        }
        let parts = if weighs { parts } else { 0 };
        Self { extents, parts }
    }
}

/// What a call costs with the values that it has.
fn price(name: &str, values: &[Val<'_>], look: &Look) -> u64 {
    let extents = &look.extents;
    let own = price::call(name, extents);
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
    own.saturating_add(made).saturating_add(look.parts / LOOKS)
}

/// The bytes that the library takes for a call: it has collections copied, and cuts a text into all of its pieces at once.
fn copies(name: &str, values: &[Val<'_>], look: &Look) -> u64 {
    let pieces = match (name, values) {
        ("split", [text, by, ..]) => {
            let texts = text.as_text().zip(by.as_text());
            texts.map_or(0, |(text, by)| text.matches(by).count() as u64 + 1)
        }
        _ => 0,
    };
    let pieces = pieces.saturating_mul(VALUE + TEXT);
    look.parts.saturating_mul(VALUE).saturating_add(pieces)
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
    let (Val::Plain(a), Val::Plain(b)) = (left, right) else {
        return Err(no_overload());
    };
    let (a, b) = (a.clone(), b.clone());
    guarded(|| match name {
        "_+_" => a + b,
        "_-_" => a - b,
        "_*_" => a * b,
        "_/_" => a / b,
        _ => a % b,
    })
    .map(Val::Plain)
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

/// Bytes that one evaluation keeps at most: some twenty times the largest object.
const ROOM: u64 = 64 * 1024 * 1024;

/// How many parts of collections are looked at for a unit.
const LOOKS: u64 = 10;
