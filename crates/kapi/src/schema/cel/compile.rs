//! From the text of a rule to operations: parsed by the crate, checked here.

use std::{mem::take, panic::catch_unwind, sync::Arc};

use kube::core::cel::cel::{
    IdedExpr, Value as Plain,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue},
    parser::Parser,
};
use regex::Regex;

use super::{
    Rule, Variables, eval,
    library::{self, Form},
    price::{self, Extent},
    types::{Type, unescaped},
};

/// What an evaluation does. Names are resolved, macros are what they were before they were expanded.
#[derive(Debug)]
pub(super) enum Op {
    Literal(Plain),
    This,
    Old,
    /// A variable of a fold, counted from the outermost.
    Local(usize),
    /// A field of an object by its name in the schema, or a key.
    Select(Box<Op>, Field),
    Has(Box<Op>, Field),
    Index(Box<Op>, Box<Op>),
    /// Selections that may find nothing.
    Lookup(Box<Op>, Box<Op>),
    And(Box<Op>, Box<Op>),
    Or(Box<Op>, Box<Op>),
    If(Box<Op>, Box<Op>, Box<Op>),
    List(Vec<Item>),
    Map(Vec<(Op, Item)>),
    Fold(Fold, Box<Op>, Box<Op>),
    /// The items that pass, and what is made of them.
    Collect(Box<Op>, Option<Box<Op>>, Box<Op>),
    Call(Box<Call>),
    Type(String),
}

#[derive(Debug)]
pub(super) struct Field {
    pub name: String,
    /// The type was not known: the name may be escaped.
    pub loose: bool,
}

/// An element of a literal; an optional one may be nothing.
#[derive(Debug)]
pub(super) struct Item {
    pub op: Op,
    pub optional: bool,
}

/// How the answers for the items of a list become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    All,
    Exists,
    One,
}

/// The call of a function or an operator.
#[derive(Debug)]
pub(super) struct Call {
    pub name: String,
    pub arguments: Vec<Op>,
    /// A pattern that stands in the rule is compiled once.
    pub pattern: Option<Regex>,
    /// The call as the libraries take it, of variables.
    pub library: IdedExpr,
}

/// Compiles a text. Returns the type of its value too.
pub(super) fn compile(text: &str, variables: &Variables) -> Result<(Rule, Type), String> {
    if text.len() > LONGEST {
        return Err(format!(
            "expression of {} bytes is longer than the {LONGEST} that are allowed",
            text.len()
        ));
    }
    if nested(text) > DEEPEST {
        return Err(too_deep());
    }
    let parser = || Parser::new().enable_optional_syntax(true).parse(text);
    let parsed = catch_unwind(parser).map_err(|_| "the parser gave up on it".to_owned())?;
    let parsed = parsed.map_err(|errors| {
        let errors = errors.errors.iter();
        let shown = errors.map(|error| format!("{}:{}: {}", error.pos.0, error.pos.1, error.msg));
        shown.collect::<Vec<_>>().join("; ")
    })?;
    let mut checker = Checker {
        variables,
        locals: Vec::new(),
        uses_old: false,
        mixes: false,
    };
    let known = checker.expression(&parsed, 0)?;
    let rule = Rule {
        op: known.op,
        uses_old: checker.uses_old,
        cost: known.cost,
    };
    Ok((rule, known.kind))
}

/// How many brackets are open at once. The parser takes its time over many, above all if they are not closed.
fn nested(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

fn too_deep() -> String {
    format!("expression is nested more than {DEEPEST} levels deep")
}

struct Checker<'a> {
    variables: &'a Variables,
    locals: Vec<(String, Type)>,
    uses_old: bool,
    /// The next list may have items of several types: it is the arguments of `format`.
    mixes: bool,
}

/// An expression with what is known of it.
struct Known {
    op: Op,
    kind: Type,
    cost: u64,
}

impl Known {
    fn new(op: Op, kind: Type, cost: u64) -> Self {
        Self { op, kind, cost }
    }
}

type Checked = Result<Known, String>;

impl Checker<'_> {
    fn expression(&mut self, expression: &IdedExpr, depth: usize) -> Checked {
        if depth > DEEPEST {
            return Err(too_deep());
        }
        let depth = depth + 1;
        match &expression.expr {
            Expr::Literal(literal) => Ok(constant(literal)),
            Expr::Ident(name) => self.identifier(name),
            Expr::Select(select) => {
                let operand = self.expression(&select.operand, depth)?;
                selected(operand, &select.field, select.test)
            }
            Expr::Call(call) => self.call(call, depth),
            Expr::List(list) => {
                let mixes = take(&mut self.mixes);
                let mut items = Vec::new();
                for (at, element) in list.elements.iter().enumerate() {
                    let optional = list.optional_indices.contains(&at);
                    items.push((self.expression(element, depth)?, optional));
                }
                listed(items, mixes)
            }
            Expr::Map(map) => {
                let mut entries = Vec::new();
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else {
                        return Err("unexpected field in a map".to_owned());
                    };
                    let key = self.expression(&entry.key, depth)?;
                    let value = self.expression(&entry.value, depth)?;
                    entries.push((key, value, entry.optional));
                }
                mapped(entries)
            }
            Expr::Comprehension(fold) => self.fold(fold, depth),
            Expr::Struct(made) => Err(undeclared(&made.type_name)),
            Expr::Unspecified => Err("expression is empty".to_owned()),
        }
    }

    fn identifier(&mut self, name: &str) -> Checked {
        let place = self.locals.iter().rposition(|(local, _)| local == name);
        if let Some(place) = place {
            return Ok(Known::new(
                Op::Local(place),
                self.locals[place].1.clone(),
                1,
            ));
        }
        match name {
            "self" => Ok(Known::new(Op::This, self.variables.this.clone(), 1)),
            "oldSelf" => {
                self.uses_old = true;
                let this = self.variables.this.clone();
                let kind = if self.variables.optional_old {
                    Type::Optional(Arc::new(this))
                } else {
                    this
                };
                Ok(Known::new(Op::Old, kind, 1))
            }
            name if TYPES.contains(&name) => {
                Ok(Known::new(Op::Type(name.to_owned()), Type::Type, 1))
            }
            _ => Err(undeclared(name)),
        }
    }

    fn call(&mut self, call: &CallExpr, depth: usize) -> Checked {
        // A function of a namespace looks like the method of a variable.
        if let Some(Expr::Ident(space)) = call.target.as_ref().map(|target| &target.expr) {
            let name = format!("{space}.{}", call.func_name);
            if !library::forms(&name).is_empty() {
                let arguments = self.arguments(None, &call.args, depth)?;
                return called(name, false, arguments);
            }
        }
        let name = call.func_name.as_str();
        if !name.starts_with('_') && library::forms(name).is_empty() {
            return Err(undeclared(name));
        }
        self.mixes = name == "format"
            && matches!(call.args.as_slice(), [one] if matches!(one.expr, Expr::List(_)));
        let arguments = self.arguments(call.target.as_deref(), &call.args, depth)?;
        operator(&call.func_name, call.target.is_some(), arguments)
    }

    fn arguments(
        &mut self,
        target: Option<&IdedExpr>,
        arguments: &[IdedExpr],
        depth: usize,
    ) -> Result<Vec<Known>, String> {
        let all = target.into_iter().chain(arguments);
        all.map(|argument| self.expression(argument, depth))
            .collect()
    }

    /// A macro, known again by what it was expanded to.
    fn fold(&mut self, fold: &ComprehensionExpr, depth: usize) -> Checked {
        let range = self.expression(&fold.iter_range, depth)?;
        let item = match &range.kind {
            Type::List(item, _) => Type::clone(item),
            Type::Map(key, _, _) => Type::clone(key),
            Type::Dyn(_) => Type::dynamic(),
            other => {
                return Err(format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                ));
            }
        };
        let step = Step::of(fold).ok_or("comprehension is none of the macros")?;
        let count = range.kind.size();
        let place = self.locals.len();
        self.locals.push((fold.iter_var.clone(), item.clone()));
        let made = self.step(step, range, depth, count, (Op::Local(place), item));
        self.locals.pop();
        made
    }

    fn step(
        &mut self,
        step: Step<'_>,
        range: Known,
        depth: usize,
        count: u64,
        item: (Op, Type),
    ) -> Checked {
        let each = |cost: u64, own: u64| {
            range
                .cost
                .saturating_add(count.saturating_mul(cost.saturating_add(own)))
                .saturating_add(1)
        };
        let from = Box::new(range.op);
        match step {
            Step::Fold(fold, test) => {
                let test = self.truth(test, depth)?;
                let cost = each(test.cost, price::FOLD);
                let op = Op::Fold(fold, from, Box::new(test.op));
                Ok(Known::new(op, Type::Bool, cost))
            }
            Step::Collect(test, made) => {
                let test = test.map(|test| self.truth(test, depth)).transpose()?;
                let made = match made {
                    Some(made) => self.expression(made, depth)?,
                    None => Known::new(item.0, item.1, 1),
                };
                let own = made.cost.saturating_add(price::LIST + 2);
                let cost = each(test.as_ref().map_or(0, |test| test.cost), own);
                let kind = Type::list(made.kind, count);
                let test = test.map(|test| Box::new(test.op));
                let op = Op::Collect(from, test, Box::new(made.op));
                Ok(Known::new(op, kind, cost))
            }
        }
    }

    fn truth(&mut self, expression: &IdedExpr, depth: usize) -> Checked {
        let known = self.expression(expression, depth)?;
        match known.kind {
            Type::Bool | Type::Dyn(_) => Ok(known),
            ref other => Err(format!("expected type 'bool' but found '{other}'")),
        }
    }
}

/// What a comprehension does with each item.
#[derive(Clone, Copy)]
enum Step<'a> {
    Fold(Fold, &'a IdedExpr),
    Collect(Option<&'a IdedExpr>, Option<&'a IdedExpr>),
}

impl<'a> Step<'a> {
    fn of(fold: &'a ComprehensionExpr) -> Option<Self> {
        let Expr::Call(step) = &fold.loop_step.expr else {
            return None;
        };
        let result = |expression: &IdedExpr| matches!(&expression.expr, Expr::Ident(name) if *name == fold.accu_var);
        match (step.func_name.as_str(), step.args.as_slice()) {
            ("_&&_", [before, test]) if result(before) => Some(Self::Fold(Fold::All, test)),
            ("_||_", [before, test]) if result(before) => Some(Self::Fold(Fold::Exists, test)),
            ("_+_", [before, more]) if result(before) => Some(Self::Collect(None, single(more))),
            ("_?_:_", [test, more, before]) if result(before) => {
                let Expr::Call(more) = &more.expr else {
                    return None;
                };
                match more.args.as_slice() {
                    [_, one] if matches!(one.expr, Expr::Literal(_)) => {
                        Some(Self::Fold(Fold::One, test))
                    }
                    [_, made] => Some(Self::Collect(Some(test), single(made))),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// The one element of a list.
fn single(expression: &IdedExpr) -> Option<&IdedExpr> {
    match &expression.expr {
        Expr::List(list) => list.elements.first(),
        _ => None,
    }
}

fn constant(literal: &LiteralValue) -> Known {
    let (value, kind) = match literal {
        LiteralValue::Boolean(value) => (Plain::Bool(*value.inner()), Type::Bool),
        LiteralValue::Bytes(value) => {
            let bytes = value.inner().to_vec();
            let kind = Type::Bytes(bytes.len() as u64);
            (Plain::Bytes(Arc::new(bytes)), kind)
        }
        LiteralValue::Double(value) => (Plain::Float(*value.inner()), Type::Double),
        LiteralValue::Int(value) => (Plain::Int(*value.inner()), Type::Int),
        LiteralValue::Null => (Plain::Null, Type::Null),
        LiteralValue::String(value) => {
            let text = value.inner().to_owned();
            let kind = Type::String(text.len() as u64);
            (Plain::String(Arc::new(text)), kind)
        }
        LiteralValue::UInt(value) => (Plain::UInt(*value.inner()), Type::Uint),
    };
    Known::new(Op::Literal(value), kind, 0)
}

fn selected(operand: Known, name: &str, test: bool) -> Checked {
    let (field, kind) = field_of(&operand.kind, name)?;
    let cost = operand.cost.saturating_add(u64::from(!test));
    let from = Box::new(operand.op);
    Ok(if test {
        Known::new(Op::Has(from, field), Type::Bool, cost)
    } else {
        Known::new(Op::Select(from, field), kind, cost)
    })
}

/// The field of a type, and its type.
fn field_of(kind: &Type, name: &str) -> Result<(Field, Type), String> {
    let strict = |name: String| Field { name, loose: false };
    match kind {
        Type::Object(fields) => match fields.0.get(name) {
            Some(kind) => Ok((strict(unescaped(name)), kind.clone())),
            None => Err(format!("undefined field '{name}'")),
        },
        Type::Map(key, value, _) if matches!(**key, Type::String(_) | Type::Dyn(_)) => {
            Ok((strict(name.to_owned()), Type::clone(value)))
        }
        Type::Dyn(_) => {
            let field = Field {
                name: name.to_owned(),
                loose: true,
            };
            Ok((field, Type::dynamic()))
        }
        Type::Optional(inner) => {
            let (field, kind) = field_of(inner, name)?;
            Ok((field, Type::Optional(Arc::new(kind))))
        }
        other => Err(format!("type '{other}' does not support field selection")),
    }
}

fn listed(items: Vec<(Known, bool)>, mixes: bool) -> Checked {
    let mut kind: Option<Type> = None;
    let mut cost = price::LIST;
    let mut ops = Vec::new();
    let count = items.len() as u64;
    for (item, optional) in items {
        cost = cost.saturating_add(item.cost);
        let own = unwrapped(&item.kind, optional)?;
        kind = Some(if mixes {
            Type::Dyn(kind.map_or(0, |kind| kind.size()).max(own.size()))
        } else {
            element(kind, own)?
        });
        ops.push(Item {
            op: item.op,
            optional,
        });
    }
    let kind = Type::list(kind.unwrap_or_else(Type::dynamic), count);
    Ok(Known::new(Op::List(ops), kind, cost))
}

fn mapped(entries: Vec<(Known, Known, bool)>) -> Checked {
    let (mut keys, mut values) = (None, None);
    let mut cost = price::MAP;
    let mut ops = Vec::new();
    let count = entries.len() as u64;
    for (key, value, optional) in entries {
        cost = cost.saturating_add(key.cost).saturating_add(value.cost);
        if !key.kind.is_key() {
            return Err(format!("unsupported key type '{}'", key.kind));
        }
        keys = Some(element(keys, key.kind.clone())?);
        values = Some(element(values, unwrapped(&value.kind, optional)?)?);
        ops.push((
            key.op,
            Item {
                op: value.op,
                optional,
            },
        ));
    }
    let known = |kind: Option<Type>| Arc::new(kind.unwrap_or_else(Type::dynamic));
    let kind = Type::Map(known(keys), known(values), count);
    Ok(Known::new(Op::Map(ops), kind, cost))
}

/// The type of elements so far and one more.
fn element(known: Option<Type>, more: Type) -> Result<Type, String> {
    let Some(known) = known else {
        return Ok(more);
    };
    known
        .join(&more)
        .ok_or_else(|| format!("expected type '{known}' but found '{more}'"))
}

fn unwrapped(kind: &Type, optional: bool) -> Result<Type, String> {
    match kind {
        kind if !optional => Ok(kind.clone()),
        Type::Optional(inner) => Ok(Type::clone(inner)),
        Type::Dyn(_) => Ok(kind.clone()),
        other => Err(format!(
            "expected type 'optional_type({other})' but found '{other}'"
        )),
    }
}

/// Operators that are no calls, and all that are.
fn operator(name: &str, method: bool, mut arguments: Vec<Known>) -> Checked {
    let cost = arguments
        .iter()
        .fold(0_u64, |sum, known| sum.saturating_add(known.cost));
    let kinds: Vec<Type> = arguments.iter().map(|known| known.kind.clone()).collect();
    let mut next = || Box::new(arguments.remove(0).op);
    match (name, kinds.as_slice()) {
        ("_&&_" | "_||_", [Type::Bool | Type::Dyn(_), Type::Bool | Type::Dyn(_)]) => {
            let (left, right) = (next(), next());
            let op = if name == "_&&_" {
                Op::And(left, right)
            } else {
                Op::Or(left, right)
            };
            Ok(Known::new(op, Type::Bool, cost))
        }
        ("_?_:_", [Type::Bool | Type::Dyn(_), a, b]) => {
            let kind = a.join(b).ok_or_else(|| no_overload(name, false, &kinds))?;
            let larger = arguments[1].cost.max(arguments[2].cost);
            let cost = arguments[0].cost.saturating_add(larger);
            let mut next = || Box::new(arguments.remove(0).op);
            Ok(Known::new(Op::If(next(), next(), next()), kind, cost))
        }
        ("_[_]" | "_[?_]", [from, key]) => {
            let optional = matches!(from, Type::Optional(_)) || name == "_[?_]";
            let kind = indexed(from, key).ok_or_else(|| no_overload(name, false, &kinds))?;
            let (from, key) = (next(), next());
            let cost = cost.saturating_add(1);
            Ok(if optional {
                Known::new(Op::Lookup(from, key), Type::Optional(Arc::new(kind)), cost)
            } else {
                Known::new(Op::Index(from, key), kind, cost)
            })
        }
        ("_?._", [from, _]) => {
            let Op::Literal(Plain::String(field)) = &arguments[1].op else {
                return Err("field of an optional selection is no name".to_owned());
            };
            let (field, kind) = field_of(from, field)?;
            let kind = match kind {
                Type::Optional(_) => kind,
                kind => Type::Optional(Arc::new(kind)),
            };
            let from = Box::new(arguments.remove(0).op);
            let key = Op::Literal(Plain::String(Arc::new(field.name)));
            Ok(Known::new(
                Op::Lookup(from, Box::new(key)),
                kind,
                cost.saturating_add(1),
            ))
        }
        _ => called(name.to_owned(), method, arguments),
    }
}

/// The type of what stands at a place.
fn indexed(from: &Type, key: &Type) -> Option<Type> {
    match (from, key) {
        (Type::Optional(inner), _) => indexed(inner, key),
        (Type::List(item, _), Type::Int | Type::Dyn(_)) => Some(Type::clone(item)),
        (Type::Map(keys, value, _), _) => keys.join(key).map(|_| Type::clone(value)),
        (Type::Dyn(_), _) => Some(Type::dynamic()),
        _ => None,
    }
}

/// A call of a function of the library.
fn called(name: String, method: bool, arguments: Vec<Known>) -> Checked {
    let kinds: Vec<&Type> = arguments.iter().map(|known| &known.kind).collect();
    let forms = library::forms(&name);
    let fit = forms
        .iter()
        .filter(|form| form.method == method)
        .filter_map(|form| fits(form, &kinds));
    // With arguments of any type, more than one form may fit: then its value is of any type too.
    let mut given: Option<Type> = None;
    for kind in fit {
        given = Some(match given {
            Some(known) => known.join(&kind).unwrap_or_else(Type::dynamic),
            None => kind,
        });
    }
    let Some(kind) = given else {
        let kinds: Vec<Type> = kinds.into_iter().cloned().collect();
        return Err(no_overload(&name, method, &kinds));
    };
    let extents: Vec<Extent> = kinds
        .iter()
        .map(|kind| Extent {
            size: kind.size(),
            weight: kind.weight(),
        })
        .collect();
    // A real server knows no bound of these, and refuses what then costs too much.
    let size = match kinds.first() {
        Some(Type::Bytes(most)) if name == "string" => *most,
        _ if price::UNBOUNDED.contains(&name.as_str()) => u64::MAX,
        _ => price::result(&name, &extents, arguments.get(1).and_then(literal_length)),
    };
    let kind = sized(kind, size, &kinds);
    let own = match (name.as_str(), &kind) {
        // Lists are put together by reference.
        ("_+_", Type::List(..)) => 1,
        ("@in", _) if matches!(kinds[1], Type::Map(..)) => 1,
        _ => price::call(&name, &extents),
    };
    let cost = arguments
        .iter()
        .fold(own, |sum, known| sum.saturating_add(known.cost));
    let pattern = pattern(&name, &arguments)?;
    literals(&name, &arguments)?;
    let library = eval::prepared(&name, method, arguments.len());
    let arguments = arguments.into_iter().map(|known| known.op).collect();
    let call = Call {
        name,
        arguments,
        pattern,
        library,
    };
    Ok(Known::new(Op::Call(Box::new(call)), kind, cost))
}

/// What a form gives for arguments, if it takes them.
fn fits(form: &Form, kinds: &[&Type]) -> Option<Type> {
    if form.takes.len() != kinds.len() {
        return None;
    }
    let mut bound = Vec::new();
    let takes = form.takes.iter().zip(kinds);
    for (wanted, kind) in takes {
        if !takes_kind(wanted, kind, &mut bound) {
            return None;
        }
    }
    Some(filled(&form.gives, &bound))
}

fn takes_kind(wanted: &Type, kind: &Type, bound: &mut Vec<(char, Type)>) -> bool {
    match (wanted, kind) {
        (Type::Any(name), _) => binds(*name, kind, bound),
        (Type::Dyn(_), _) | (_, Type::Dyn(_)) => true,
        (Type::List(a, _), Type::List(b, _)) | (Type::Optional(a), Type::Optional(b)) => {
            takes_kind(a, b, bound)
        }
        (Type::Map(a, b, _), Type::Map(c, d, _)) => {
            takes_kind(a, c, bound) && takes_kind(b, d, bound)
        }
        _ => wanted.same(kind),
    }
}

fn binds(name: char, kind: &Type, bound: &mut Vec<(char, Type)>) -> bool {
    let number = |kind: &Type| matches!(kind, Type::Int | Type::Uint | Type::Double);
    let legal = match name {
        'N' | 'C' => {
            number(kind)
                || matches!(
                    kind,
                    Type::Bool
                        | Type::String(_)
                        | Type::Bytes(_)
                        | Type::Timestamp
                        | Type::Duration
                        | Type::Dyn(_)
                )
        }
        'S' => number(kind) || matches!(kind, Type::Duration | Type::Dyn(_)),
        _ => true,
    };
    let Some(known) = bound.iter_mut().find(|(known, _)| *known == name) else {
        bound.push((name, kind.clone()));
        return legal;
    };
    match known.1.join(kind) {
        Some(joined) => known.1 = joined,
        None => return legal && name == 'N' && number(&known.1) && number(kind),
    }
    legal
}

/// A type with what its letters stand for.
fn filled(kind: &Type, bound: &[(char, Type)]) -> Type {
    match kind {
        Type::Any(name) => {
            let known = bound.iter().find(|(known, _)| known == name);
            known.map_or_else(Type::dynamic, |(_, kind)| kind.clone())
        }
        Type::List(item, most) => Type::list(filled(item, bound), *most),
        Type::Optional(inner) => Type::Optional(Arc::new(filled(inner, bound))),
        Type::Map(key, value, most) => Type::Map(
            Arc::new(filled(key, bound)),
            Arc::new(filled(value, bound)),
            *most,
        ),
        kind => kind.clone(),
    }
}

/// The type of a result with its size.
fn sized(kind: Type, size: u64, arguments: &[&Type]) -> Type {
    match kind {
        Type::String(_) => Type::String(size),
        Type::Bytes(_) => Type::Bytes(size),
        Type::List(item, _) => {
            let item = match &*item {
                Type::String(0) => Type::String(arguments.first().map_or(0, |kind| kind.size())),
                item => item.clone(),
            };
            Type::list(item, size)
        }
        Type::Map(key, value, _) => Type::Map(key, value, size),
        kind => kind,
    }
}

fn literal_length(known: &Known) -> Option<u64> {
    match &known.op {
        Op::Literal(Plain::String(text)) => Some(text.len() as u64),
        _ => None,
    }
}

/// The pattern of a call, if it stands in the rule.
fn pattern(name: &str, arguments: &[Known]) -> Result<Option<Regex>, String> {
    if !["matches", "find", "findAll"].contains(&name) {
        return Ok(None);
    }
    let Some(Op::Literal(Plain::String(text))) = arguments.get(1).map(|known| &known.op) else {
        return Ok(None);
    };
    let compiled =
        eval::regex(text, LARGEST).map_err(|_| format!("invalid matches argument: {text:?}"));
    compiled.map(Some)
}

/// Texts that stand in the rule and are converted must be convertible.
fn literals(name: &str, arguments: &[Known]) -> Result<(), String> {
    match (name, arguments.first().map(|known| &known.op)) {
        ("duration" | "timestamp", Some(Op::Literal(Plain::String(text))))
            if eval::convert(name, text).is_none() =>
        {
            Err(format!("invalid {name} argument: {text:?}"))
        }
        _ => Ok(()),
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

fn no_overload(name: &str, method: bool, kinds: &[Type]) -> String {
    let shown: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    let call = match shown.split_first() {
        Some((receiver, rest)) if method => format!("{receiver}.({})", rest.join(", ")),
        _ => format!("({})", shown.join(", ")),
    };
    format!("found no matching overload for '{name}' applied to '{call}'")
}

/// Bytes of an expression; the longest known in the field are about a tenth of it.
const LONGEST: usize = 16 * 1024;

/// Bytes of a pattern in a rule, compiled.
const LARGEST: usize = 1024 * 1024;

/// Levels of an expression.
const DEEPEST: usize = 100;

const TYPES: [&str; 10] = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
];
