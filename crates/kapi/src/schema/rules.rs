//! The rules of a schema, place by place.
//!
//! They are compiled with the definition and run over each object that is written, in the task of the request: what they may cost
//! is counted ([`super::cel`]). Of an update, rules run only where something has changed, save those that compare with what is
//! stored.

use std::{borrow::Cow, collections::BTreeMap, rc::Rc};

use serde_json::{Map, Value, json};

use super::{
    cel::{self, Budget, Stop, Val, Variables},
    convert::{flag, object, text},
    error::{FieldError, Reason, shown},
    node::{Additional, ListType, Node},
    old::{Former, unchanged},
    prune::child_path,
};

/// The rules of a place and of those below it.
#[derive(Debug, Default)]
pub(super) struct Rules {
    here: Vec<Rule>,
    properties: BTreeMap<String, Rules>,
    values: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
    /// Those of `allOf`, which are about the same place.
    branches: Vec<Rules>,
    /// There are rules that compare with what is stored.
    compares: bool,
}

/// One rule.
#[derive(Debug)]
struct Rule {
    text: String,
    compiled: Result<cel::Rule, String>,
    message: String,
    message_expression: Option<cel::Rule>,
    reason: Option<String>,
    /// From the place of the rule to that of the complaint.
    path: String,
    optional_old: bool,
}

/// Reads the rules of a schema. What is wrong with them goes to `problems`; such rules fail whenever they run.
pub(super) fn compile(schema: &Value, node: &Node, problems: &mut Vec<String>) -> Option<Rules> {
    let fields = schema.as_object()?;
    if !present(schema) {
        return None;
    }
    let mut reading = Reading {
        problems: Vec::new(),
        total: 0,
        dearest: Vec::new(),
    };
    let rules = cel::deep(|| reading.place(fields, node, &Place::root()));
    if reading.total > PER_DEFINITION {
        // The four that cost most.
        reading
            .dearest
            .sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, path) in reading.dearest.iter().take(4) {
            reading.problems.push(format!(
                "{path}: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            ));
        }
        let factor = factor(reading.total, PER_DEFINITION);
        reading.problems.push(format!(
            "openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
        ));
    }
    problems.append(&mut reading.problems);
    if rules.is_none() {
        problems.push("openAPIV3Schema: Invalid value: its rules cannot be read".to_owned());
    }
    rules.flatten()
}

fn present(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            fields.contains_key("x-kubernetes-validations") || fields.values().any(present)
        }
        Value::Array(items) => items.iter().any(present),
        _ => false,
    }
}

struct Reading {
    problems: Vec<String>,
    /// The cost of all rules, as often as each may run.
    total: u64,
    /// Rules that cost more than a hundredth of what all may.
    dearest: Vec<(u64, String)>,
}

/// Where in the schema rules are read.
struct Place {
    path: String,
    whole: bool,
    /// How often the place occurs in one object, if that is bounded.
    times: Option<u64>,
    /// The list whose items cannot be told from those that are stored.
    uncorrelated: Option<String>,
}

impl Place {
    fn root() -> Self {
        Self {
            path: "openAPIV3Schema".to_owned(),
            whole: true,
            times: Some(1),
            uncorrelated: None,
        }
    }

    fn below(&self, step: &str, whole: bool) -> Self {
        Self {
            path: format!("{}.{step}", self.path),
            whole,
            times: self.times,
            uncorrelated: self.uncorrelated.clone(),
        }
    }

    fn often(mut self, most: Option<u64>) -> Self {
        self.times = self
            .times
            .zip(most)
            .map(|(times, most)| times.saturating_mul(most));
        self
    }
}

impl Reading {
    fn place(&mut self, schema: &Map<String, Value>, node: &Node, place: &Place) -> Option<Rules> {
        let mut rules = Rules {
            here: self.here(schema, node, place),
            ..Rules::default()
        };
        for (name, child) in object(schema, "properties") {
            // Metadata has a schema of its own.
            let Some((child, known)) = child.as_object().zip(node.properties.get(name)) else {
                continue;
            };
            if place.whole && name == "metadata" {
                continue;
            }
            let below = place.below(&format!("properties[{name}]"), known.embedded);
            if let Some(child) = self.place(child, known, &below) {
                rules.properties.insert(name.clone(), child);
            }
        }
        if let (Some(Value::Object(values)), Additional::Node(known)) =
            (schema.get("additionalProperties"), &node.additional)
        {
            let below = place.below("additionalProperties", known.embedded);
            let below = below.often(node.checks.max_properties);
            rules.values = self.place(values, known, &below).map(Box::new);
        }
        if let (Some(Value::Object(items)), Some(known)) = (schema.get("items"), &node.items) {
            let mut below = place
                .below("items", known.embedded)
                .often(node.checks.max_items);
            if !matches!(node.list, ListType::Map(_)) {
                below.uncorrelated.get_or_insert_with(|| place.path.clone());
            }
            rules.items = self.place(items, known, &below).map(Box::new);
        }
        for (at, branch) in listed(schema, "allOf").enumerate() {
            let below = place.below(&format!("allOf[{at}]"), place.whole);
            rules.branches.extend(self.place(branch, node, &below));
        }
        for name in ["anyOf", "oneOf"] {
            for (at, branch) in listed(schema, name).enumerate() {
                self.forbidden(branch, &format!("{}.{name}[{at}]", place.path));
            }
        }
        if let Some(Value::Object(not)) = schema.get("not") {
            self.forbidden(not, &format!("{}.not", place.path));
        }
        rules.settled()
    }

    fn forbidden(&mut self, branch: &Map<String, Value>, path: &str) {
        if branch
            .values()
            .chain(branch.get("x-kubernetes-validations"))
            .any(present)
            || branch.contains_key("x-kubernetes-validations")
        {
            self.problems.push(format!(
                "{path}.x-kubernetes-validations: Forbidden: must be empty to be structural"
            ));
        }
    }

    fn here(&mut self, schema: &Map<String, Value>, node: &Node, place: &Place) -> Vec<Rule> {
        let Some(Value::Array(given)) = schema.get("x-kubernetes-validations") else {
            return Vec::new();
        };
        let declared = cel::declare(node, place.whole);
        let mut rules = Vec::new();
        for (at, given) in given.iter().enumerate() {
            let path = format!("{}.x-kubernetes-validations[{at}]", place.path);
            let empty = Map::new();
            let given = given.as_object().unwrap_or(&empty);
            self.form(given, node, &path);
            let Some((this, least)) = &declared else {
                self.problems.push(format!(
                    "{path}.rule: Invalid value: {}: failed to convert to declType for CEL validation rules",
                    go(given)
                ));
                continue;
            };
            let optional_old = flag(given, "optionalOldSelf");
            let variables = Variables {
                this: this.clone(),
                optional_old,
            };
            let times = place.times.unwrap_or(REQUEST / (least + 1));
            rules.extend(self.rule(given, &variables, times, place, &path, node));
        }
        rules
    }

    /// What must hold for the fields of a rule, whatever it says.
    fn form(&mut self, given: &Map<String, Value>, node: &Node, path: &str) {
        let field = |name: &str| text(given, name).unwrap_or_default();
        let (rule, message) = (field("rule").trim(), field("message"));
        let broken = |text: &str| text.contains(['\n', '\r']);
        let mut complain =
            |place: &str, why: String| self.problems.push(format!("{path}.{place}: {why}"));
        if rule.is_empty() {
            complain("rule", "Required value: rule is not specified".to_owned());
        } else if !message.is_empty() && message.trim().is_empty() {
            let why = format!("Invalid value: {message:?}: must be non-empty if specified");
            complain("message", why);
        } else if broken(message.trim()) {
            let why = format!("Invalid value: {message:?}: must not contain line breaks");
            complain("message", why);
        } else if broken(rule) && message.is_empty() {
            let why = "Required value: message must be specified if rule contains line breaks";
            complain("message", why.to_owned());
        }
        let expression = field("messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let why = "Required value: messageExpression must be non-empty if specified";
            complain("messageExpression", why.to_owned());
        }
        if let Some(reason) = text(given, "reason").filter(|reason| !REASONS.contains(reason)) {
            let known: Vec<_> = REASONS.iter().map(|reason| format!("{reason:?}")).collect();
            let known = known.join(", ");
            complain(
                "reason",
                format!("Unsupported value: {reason:?}: supported values: {known}"),
            );
        }
        let target = field("fieldPath");
        if !target.is_empty() && field_path(target, node).is_none() {
            let why = format!("Invalid value: {target:?}: must be a valid path");
            complain("fieldPath", why);
        }
    }

    fn rule(
        &mut self,
        given: &Map<String, Value>,
        variables: &Variables,
        times: u64,
        place: &Place,
        path: &str,
        node: &Node,
    ) -> Option<Rule> {
        let source = text(given, "rule").filter(|rule| !rule.trim().is_empty())?;
        let compiled = cel::rule(source, variables);
        match &compiled {
            Ok(rule) => {
                self.afford(
                    rule.cost,
                    times,
                    &format!("{path}.rule"),
                    "estimated rule cost",
                );
                if let Some(list) = place.uncorrelated.as_ref().filter(|_| rule.uses_old) {
                    self.problems.push(format!(
                        "{path}.rule: Invalid value: {source:?}: oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                    ));
                }
                if !rule.uses_old
                    && let Some(optional) = given.get("optionalOldSelf")
                {
                    self.problems.push(format!(
                        "{path}.optionalOldSelf: Invalid value: {optional}: may not be set if oldSelf is not used in rule"
                    ));
                }
            }
            Err(why) => {
                let problem = format!("{path}.rule: Invalid value: {}: {why}", go(given));
                self.problems.push(problem);
            }
        }
        let expression = text(given, "messageExpression").filter(|text| !text.trim().is_empty());
        let message_expression = expression.and_then(|expression| {
            let place = format!("{path}.messageExpression");
            match cel::message(expression, variables) {
                Ok(rule) => {
                    self.afford(rule.cost, 1, &place, "estimated messageExpression cost");
                    Some(rule)
                }
                Err(why) => {
                    let problem = format!("{place}: Invalid value: {}: {why}", go(given));
                    self.problems.push(problem);
                    None
                }
            }
        });
        let message = text(given, "message")
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let message =
            message.map_or_else(|| format!("failed rule: {}", source.trim()), str::to_owned);
        let target = text(given, "fieldPath").unwrap_or_default();
        Some(Rule {
            text: source.trim().to_owned(),
            compiled,
            message,
            message_expression,
            reason: text(given, "reason").map(str::to_owned),
            path: field_path(target, node).unwrap_or_default(),
            optional_old: variables.optional_old,
        })
    }

    fn afford(&mut self, cost: u64, times: u64, path: &str, what: &str) {
        let cost = cost.saturating_mul(times);
        self.total = self.total.saturating_add(cost);
        if cost >= PER_DEFINITION / 100 {
            self.dearest.push((cost, path.to_owned()));
        }
        if cost > PER_RULE {
            let factor = factor(cost, PER_RULE);
            self.problems.push(format!(
                "{path}: Forbidden: {what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
            ));
        }
    }
}

fn listed<'a>(
    schema: &'a Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'a Map<String, Value>> {
    let branches = schema.get(name).and_then(Value::as_array);
    branches.into_iter().flatten().filter_map(Value::as_object)
}

#[expect(clippy::cast_precision_loss, reason = "a factor to show")]
fn factor(cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    }
}

/// A rule as the real server shows it.
fn go(given: &Map<String, Value>) -> String {
    let field = |name: &str| shown(&Value::from(text(given, name).unwrap_or_default()));
    let pointer = |name: &str, kind: &str| match given.get(name) {
        None | Some(Value::Null) => format!("(*{kind})(nil)"),
        Some(value) => shown(value),
    };
    format!(
        "apiextensions.ValidationRule{{Rule:{}, Message:{}, MessageExpression:{}, Reason:{}, FieldPath:{}, OptionalOldSelf:{}}}",
        field("rule"),
        field("message"),
        field("messageExpression"),
        pointer("reason", "apiextensions.FieldValueErrorReason"),
        field("fieldPath"),
        pointer("optionalOldSelf", "bool"),
    )
}

/// A path of fields and keys, `.spec.labels['a.b']`, as complaints show it; none where the schema has no such field.
fn field_path(given: &str, node: &Node) -> Option<String> {
    let (mut rest, mut node, mut path) = (given, node, String::new());
    while !rest.is_empty() {
        let name;
        if let Some(quoted) = rest.strip_prefix("['") {
            let (inner, after) = quoted.split_once("']")?;
            (name, rest) = (inner.replace("\\'", "'").replace("\\\\", "\\"), after);
        } else {
            let plain = rest.strip_prefix('.')?;
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            (name, rest) = (plain[..end].to_owned(), &plain[end..]);
        }
        match (node.properties.get(&name), &node.additional) {
            (Some(child), _) => {
                path = format!("{path}.{name}");
                node = child;
            }
            (None, Additional::Node(child)) => {
                path = format!("{path}[{name}]");
                node = child;
            }
            _ => return None,
        }
    }
    Some(path)
}

impl Rules {
    /// Itself, if it has any rule.
    fn settled(mut self) -> Option<Self> {
        let below = self.properties.values().chain(self.values.as_deref());
        let below = below.chain(self.items.as_deref()).chain(&self.branches);
        let compare = |rule: &Rule| rule.compiled.as_ref().is_ok_and(|rule| rule.uses_old);
        let mut is_empty = self.here.is_empty();
        let mut compares = self.here.iter().any(compare);
        for child in below {
            is_empty = false;
            compares |= child.compares;
        }
        self.compares = compares;
        (!is_empty).then_some(self)
    }

    /// Runs the rules over an object.
    pub fn validate(&self, node: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.validate_part(node, &named(object), old, "")
    }

    /// Runs the rules over a part of an object that stands at `path`.
    pub fn validate_part(
        &self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        path: &str,
    ) -> Vec<FieldError> {
        let mut walk = Walk {
            budget: Budget::of_object(),
            errors: Vec::new(),
            over: false,
        };
        let at = At {
            node,
            value,
            old,
            path,
            is_unchanged: false,
            ratchets: true,
        };
        walk.place(self, &at);
        walk.errors
    }

    /// The rules below a place: a property, `items` or `additionalProperties`.
    pub fn below(&self, step: Step<'_>) -> Option<&Self> {
        match step {
            Step::Property(name) => self.properties.get(name),
            Step::Values => self.values.as_deref(),
            Step::Items => self.items.as_deref(),
        }
    }
}

/// One step down in a schema.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'a> {
    Property(&'a str),
    Values,
    Items,
}

struct Walk {
    budget: Budget,
    errors: Vec<FieldError>,
    /// No further rules are run.
    over: bool,
}

/// A value on the way, with its schema and what is stored in its place.
#[derive(Clone, Copy)]
struct At<'a> {
    node: &'a Node,
    value: &'a Value,
    old: Option<&'a Value>,
    path: &'a str,
    /// What stands above has not changed.
    is_unchanged: bool,
    /// Whether what has not changed may stay.
    ratchets: bool,
}

impl Walk {
    fn place(&mut self, rules: &Rules, at: &At<'_>) {
        if self.over || at.value.is_null() {
            return;
        }
        let mut at = *at;
        let same = |old| unchanged(at.path, old, at.value);
        at.is_unchanged = at.is_unchanged || at.ratchets && at.old.is_some_and(same);
        if at.is_unchanged && !rules.compares {
            return;
        }
        self.here(rules, &at);
        for branch in &rules.branches {
            // As in Kubernetes, what `allOf` says is said of changed and unchanged values.
            let again = At {
                ratchets: false,
                is_unchanged: false,
                ..at
            };
            self.place(branch, &again);
        }
        match at.value {
            Value::Object(fields) => self.fields(rules, &at, fields),
            Value::Array(items) => {
                let (Some(rules), Some(node)) = (rules.items.as_deref(), at.node.items.as_deref())
                else {
                    return;
                };
                let former = Former::of(at.node, at.old);
                for (place, value) in items.iter().enumerate() {
                    let path = format!("{}[{place}]", at.path);
                    let old = former.item(value);
                    self.place(
                        rules,
                        &At {
                            node,
                            value,
                            old,
                            path: &path,
                            ..at
                        },
                    );
                }
            }
            _ => {}
        }
    }

    fn fields(&mut self, rules: &Rules, at: &At<'_>, fields: &Map<String, Value>) {
        for (name, value) in fields {
            let below = rules.properties.get(name).or(rules.values.as_deref());
            if let (Some(below), Some(node)) = (below, at.node.field(name)) {
                let old = at.old.and_then(|old| old.get(name));
                let path = if rules.properties.contains_key(name) {
                    child_path(at.path, name)
                } else {
                    format!("{}[{name}]", at.path)
                };
                self.place(
                    below,
                    &At {
                        node,
                        value,
                        old,
                        path: &path,
                        ..*at
                    },
                );
            }
        }
    }

    fn here(&mut self, rules: &Rules, at: &At<'_>) {
        let this = Val::of(at.value, at.node);
        let old = at.old.filter(|old| !old.is_null());
        let old = old.map(|old| Val::of(old, at.node));
        for rule in &rules.here {
            if self.over {
                return;
            }
            if self.budget.is_spent() {
                return self.stop(at, OVER);
            }
            let compiled = match &rule.compiled {
                Ok(compiled) => compiled,
                Err(why) if at.is_unchanged => {
                    tracing::debug!(path = at.path, why, "a rule that does not compile");
                    continue;
                }
                Err(why) => {
                    self.complain(at, &format!("rule compile error: {why}"));
                    continue;
                }
            };
            let skipped = if compiled.uses_old {
                old.is_none() && !rule.optional_old
            } else {
                at.is_unchanged
            };
            if !skipped {
                self.run(rule, compiled, at, &this, old.as_ref());
            }
        }
    }

    fn run(
        &mut self,
        rule: &Rule,
        compiled: &cel::Rule,
        at: &At<'_>,
        this: &Val<'_>,
        old: Option<&Val<'_>>,
    ) {
        let optional = Val::Optional(old.cloned().map(Rc::new));
        let old = if rule.optional_old {
            Some(&optional)
        } else {
            old
        };
        let shown = if rule.message.starts_with("failed rule: ") {
            &rule.text
        } else {
            &rule.message
        };
        match compiled.run(this, old, &mut self.budget) {
            Ok(value) if value.as_bool() == Some(true) => {}
            Ok(_) => {
                let message = self.message(rule, this, old);
                self.errors.push(broken(rule, at, &message));
            }
            Err(Stop::Object) => self.stop(at, OVER),
            Err(Stop::Call) => self.stop(
                at,
                &format!("'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"),
            ),
            Err(Stop::Failed(why)) if why == "no such overload" => self.complain(
                at,
                &format!("'{why}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"),
            ),
            Err(Stop::Failed(why)) => self.complain(at, &format!("{why} evaluating rule: {shown}")),
        }
    }

    /// What the message expression says, if that can be shown.
    fn message(&mut self, rule: &Rule, this: &Val<'_>, old: Option<&Val<'_>>) -> String {
        let made = rule.message_expression.as_ref().and_then(|expression| {
            let text = expression.run(this, old, &mut self.budget).ok()?;
            let text = text.as_text()?.trim().to_owned();
            (!text.is_empty() && text.len() <= LONGEST && !text.contains('\n')).then_some(text)
        });
        made.unwrap_or_else(|| rule.message.clone())
    }

    fn stop(&mut self, at: &At<'_>, why: &str) {
        self.over = true;
        self.complain(at, why);
    }

    fn complain(&mut self, at: &At<'_>, why: &str) {
        self.errors
            .push(FieldError::invalid(at.path, &kind(at.value), why));
    }
}

fn broken(rule: &Rule, at: &At<'_>, message: &str) -> FieldError {
    let path = format!("{}{}", at.path, rule.path);
    let path = path.strip_prefix('.').unwrap_or(&path).to_owned();
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(path, message),
        Some("FieldValueRequired") => FieldError::required(path, message),
        Some("FieldValueDuplicate") => {
            let value = shown(&kind(at.value));
            FieldError::new(path, Reason::Duplicate, format!("Duplicate value: {value}"))
        }
        _ => FieldError::invalid(path, &kind(at.value), message),
    }
}

/// Rules on the whole object may use `metadata.name`, which a request may not have yet.
fn named(object: &Value) -> Cow<'_, Value> {
    if object["metadata"].get("name").is_some() {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    if let Value::Object(fields) = &mut object {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Value::Object(metadata) = metadata {
            metadata.insert("name".to_owned(), json!(""));
        }
    }
    Cow::Owned(object)
}

/// The real server names the type instead of showing the value.
fn kind(value: &Value) -> Value {
    Value::from(match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Null => "null",
    })
}

const OVER: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Kubernetes' `StaticEstimatedCostLimit` and `StaticEstimatedCRDCostLimit`.
const PER_RULE: u64 = 10_000_000;
const PER_DEFINITION: u64 = 100_000_000;

/// Kubernetes' `MaxRequestSizeBytes` and `MaxEvaluatedMessageExpressionSizeBytes`.
const REQUEST: u64 = 3 * 1024 * 1024;
const LONGEST: usize = 5 * 1024;
