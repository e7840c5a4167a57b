//! One cluster as its templates see it, and a record of what they look at.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use api::inventory::{Segment, ValuePath};
use jinja::{FUEL, Text, deep};
use minijinja::{Environment, ErrorKind, Value};

use super::{Gives, Omit, Program, RESULT, line, said, view};
use crate::{
    problem::{Problem, Rule},
    tree::{Leaf, Shape, Source, Tree},
};

/// Something that a rendered value was made of.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Use {
    /// The value.
    pub path: ValuePath,
    /// What was taken from it.
    pub what: Taken,
}

/// What was taken from a value.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Taken {
    /// The value itself.
    Value,
    /// Which keys or how many entries it has.
    Parts,
    /// That it is not set.
    Absence,
}

/// What a rendered value was made of.
pub type Uses = Arc<BTreeSet<Use>>;

/// A rendered value, or several below it.
#[derive(Clone, Debug)]
pub struct Made {
    /// What it was made of.
    pub uses: Uses,
    /// Where it stands in the ClusterTemplate, or in the values for what is a template there.
    pub at: Arc<ValuePath>,
    /// What it is.
    pub shape: MadeShape,
}

/// What a rendered value is.
#[derive(Clone, Debug)]
pub enum MadeShape {
    /// A value without parts.
    Leaf(serde_json::Value),
    /// A reference to a secret.
    Secret(serde_json::Value),
    /// Values by their keys.
    Map(BTreeMap<Arc<str>, Made>),
    /// Values in order.
    List(Vec<Made>),
}

/// One cluster as its templates see it.
#[derive(Debug)]
pub(crate) struct World {
    /// Its values and the facts about it.
    root: Arc<Tree>,
    levels: Vec<Arc<Source>>,
    environment: Arc<Environment<'static>>,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    /// One for each program that runs: a template may need another.
    frames: Vec<Frame>,
    /// The values that are templates, once they were rendered.
    rendered: HashMap<ValuePath, Arc<Rendered>>,
    running: Vec<ValuePath>,
    /// How many values were made, and programs run.
    spent: usize,
    /// How long these are, and how long the programs ran.
    bytes: usize,
    fuel: u64,
}

/// A value that is a template, once it was rendered.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) made: Made,
    /// What all of it was made of.
    uses: BTreeSet<Use>,
    /// As templates get it, once one has looked at it.
    pub(crate) given: OnceLock<Value>,
}

#[derive(Debug, Default)]
struct Frame {
    uses: BTreeSet<Use>,
    /// The values that are templates and were looked at.
    looked: BTreeSet<ValuePath>,
    missing: Option<ValuePath>,
    secret: Option<ValuePath>,
    failure: Option<Problem>,
}

/// What templates see beside values and facts.
pub(crate) type Scope = Vec<(Arc<str>, Bound)>;

/// A name of a loop.
#[derive(Clone, Debug)]
pub(crate) enum Bound {
    /// A value of the inventory.
    Tree(ValuePath, Arc<Tree>),
    /// Something computed, and what it was made of.
    Computed(Value, Uses),
}

impl World {
    pub(crate) fn new(
        values: &Arc<Tree>,
        facts: &Arc<Tree>,
        levels: Vec<Arc<Source>>,
        environment: Arc<Environment<'static>>,
    ) -> Arc<Self> {
        let mut root = match &values.shape {
            Shape::Map(map) => map.clone(),
            _ => BTreeMap::new(),
        };
        if let Shape::Map(facts) = &facts.shape {
            root.extend(facts.iter().map(|(key, fact)| (key.clone(), fact.clone())));
        }
        Arc::new(Self {
            root: values.with(Shape::Map(root), None),
            levels,
            environment,
            record: Mutex::default(),
        })
    }

    pub(crate) fn root(&self) -> &Arc<Tree> {
        &self.root
    }

    pub(crate) fn levels(&self) -> &[Arc<Source>] {
        &self.levels
    }

    /// Runs a program, takes what is wanted of what it gives, and says what was looked at. The engine looks at some values only when
    /// their parts are taken, as those of a list that is reversed or cut: that counts as what the program itself looked at.
    pub(crate) fn run<T>(
        self: &Arc<Self>,
        program: &Program,
        scope: &Scope,
        take: impl FnOnce(&Value, &Uses) -> Result<T, Problem>,
    ) -> Result<(T, Uses), Problem> {
        self.spend((1, 0), &program.by, &program.at)?;
        self.record().frames.push(Frame::default());
        let taken = self.run_in_frame(program, scope, take);
        self.record().frames.pop();
        taken
    }

    fn run_in_frame<T>(
        self: &Arc<Self>,
        program: &Program,
        scope: &Scope,
        take: impl FnOnce(&Value, &Uses) -> Result<T, Problem>,
    ) -> Result<(T, Uses), Problem> {
        let result = self.evaluate(program, view::root(self, scope));
        let (uses, missing) = self.looked_at(program)?;
        let fails = |rule| program.by.problem(ValuePath::clone(&program.at), rule);
        let value = result.map_err(|error| fails(self.rule(&error, program, missing.as_ref())))?;
        if value.is_undefined() {
            let error = ErrorKind::UndefinedError.into();
            return Err(fails(self.rule(&error, program, missing.as_ref())));
        }
        let uses = Arc::new(uses);
        let taken = take(&value, &uses);
        let (later, _) = self.looked_at(program)?;
        let taken = taken?;
        if later.is_subset(&uses) {
            return Ok((taken, uses));
        }
        Ok((taken, Arc::new(uses.union(&later).cloned().collect())))
    }

    /// What the running program looked at since this was asked last, and what of that is not set.
    fn looked_at(&self, program: &Program) -> Result<(BTreeSet<Use>, Option<ValuePath>), Problem> {
        let mut record = self.record();
        let Some(frame) = record.frames.last_mut() else {
            return Ok((BTreeSet::new(), None));
        };
        if let Some(failure) = frame.failure.take() {
            return Err(failure);
        }
        if let Some(secret) = frame.secret.take() {
            let rule = Rule::SecretInText {
                secret: secret.to_string(),
            };
            return Err(program.by.problem(ValuePath::clone(&program.at), rule));
        }
        Ok((std::mem::take(&mut frame.uses), frame.missing.take()))
    }

    fn evaluate(&self, program: &Program, root: Value) -> Result<Value, minijinja::Error> {
        let environment = &self.environment;
        let source;
        let template = if let Ok(known) = environment.get_template(&program.name) {
            known
        } else {
            source = program.source();
            environment.template_from_str(&source)?
        };
        // What fails has spent what it may: nobody asks how much it was.
        self.record().fuel += FUEL;
        let mut text = Text::of_at_most(MOST_OF_TEXT);
        let captured = template.render_captured_to(root, &mut text)?;
        let left = captured.state().fuel_levels().map_or(0, |(_, left)| left);
        self.record().fuel -= left.min(FUEL);
        Ok(match program.gives {
            Gives::Value => captured.state().lookup(RESULT).unwrap_or(Value::UNDEFINED),
            Gives::Text => Value::from(text.into_string()),
        })
    }

    fn rule(
        &self,
        error: &minijinja::Error,
        program: &Program,
        missing: Option<&ValuePath>,
    ) -> Rule {
        let text = line(&program.text, error.line());
        let line = error.line().unwrap_or(1);
        match (error.kind(), missing) {
            (ErrorKind::UndefinedError, Some(missing)) => Rule::Undefined {
                line,
                variable: missing.to_string(),
                text,
                levels: self
                    .levels
                    .iter()
                    .map(|source| source.object.to_string())
                    .collect(),
            },
            (ErrorKind::WriteFailure, _) => Rule::Template {
                line,
                what: format!("the text comes to more than {MOST_OF_TEXT} bytes"),
                text,
            },
            (ErrorKind::OutOfFuel, _) => Rule::Endless {
                line,
                fuel: FUEL,
                text,
            },
            (ErrorKind::SyntaxError, _) => Rule::Syntax {
                line,
                what: said(error),
                text,
            },
            _ => Rule::Template {
                line,
                what: said(error),
                text,
            },
        }
    }

    /// What a value comes to; one that is a template is rendered, once.
    pub(crate) fn made(
        self: &Arc<Self>,
        path: &ValuePath,
        tree: &Arc<Tree>,
    ) -> Result<Made, Problem> {
        // A value is made anew wherever it is given.
        self.spend((1, bytes_of(tree)), &tree.origin.source, &tree.origin.at)?;
        let shape = match &tree.shape {
            Shape::Leaf(Leaf::Template(text)) => {
                let known = self.record().rendered.get(path).cloned();
                if let Some(known) = known {
                    // Before it is copied.
                    self.spend(known.made.size(), &tree.origin.source, &tree.origin.at)?;
                }
                return Ok(self.render(path, tree, text)?.made.clone());
            }
            Shape::Leaf(Leaf::Plain(value)) => MadeShape::Leaf(value.clone()),
            Shape::Leaf(Leaf::Secret(value)) => MadeShape::Secret(value.clone()),
            Shape::Map(map) => {
                let mut made = BTreeMap::new();
                for (key, child) in map {
                    let path = path.with(Segment::Key(key.clone()));
                    made.insert(key.clone(), self.made(&path, child)?);
                }
                MadeShape::Map(made)
            }
            Shape::List(list) => {
                let mut made = Vec::with_capacity(list.len());
                for (number, child) in list.iter().enumerate() {
                    made.push(self.made(&path.index(number), child)?);
                }
                MadeShape::List(made)
            }
        };
        let what = if matches!(tree.shape, Shape::Leaf(_)) {
            Taken::Value
        } else {
            Taken::Parts
        };
        Ok(Made {
            uses: Arc::new(BTreeSet::from([Use {
                path: path.clone(),
                what,
            }])),
            at: tree.origin.at.clone(),
            shape,
        })
    }

    /// What a value that is a template comes to, for a program that looks at it. That gives no more of it than an expression takes, which
    /// counts then.
    pub(crate) fn look(
        self: &Arc<Self>,
        path: &ValuePath,
        tree: &Arc<Tree>,
        text: &Arc<str>,
    ) -> Result<Arc<Rendered>, Problem> {
        let rendered = self.render(path, tree, text)?;
        // A loop may look at it with each turn.
        if let Some(frame) = self.record().frames.last_mut()
            && frame.looked.insert(path.clone())
        {
            frame.uses.extend(rendered.uses.iter().cloned());
        }
        Ok(rendered)
    }

    fn render(
        self: &Arc<Self>,
        path: &ValuePath,
        tree: &Arc<Tree>,
        text: &Arc<str>,
    ) -> Result<Arc<Rendered>, Problem> {
        if let Some(rendered) = self.record().rendered.get(path) {
            return Ok(rendered.clone());
        }
        let origin = &tree.origin;
        let fails = |rule| origin.source.problem(ValuePath::clone(&origin.at), rule);
        {
            let mut record = self.record();
            if let Some(start) = record.running.iter().position(|running| running == path) {
                let way = record.running.iter().skip(start).chain([path]);
                return Err(fails(Rule::Circular(
                    way.map(ToString::to_string).collect(),
                )));
            }
            if record.running.len() >= MAX_NESTED {
                let what =
                    format!("needs more than {MAX_NESTED} other templates, one within the other");
                let remedy = "make it simpler";
                return Err(fails(Rule::Reserved { what, remedy }));
            }
            record.running.push(path.clone());
        }
        let (text, gives) = super::kind(&self.environment, text);
        let program = Program {
            text: text.into(),
            at: origin.at.clone(),
            by: origin.source.clone(),
            name: Arc::from(""),
            gives,
        };
        let made = self.run_and_make(&program, &Scope::new(), &origin.at);
        self.record().running.pop();
        let made = made?.ok_or_else(|| {
            fails(Rule::Reserved {
                what: "gives omit, which only a field of a ClusterTemplate can be".into(),
                remedy: "leave the value out instead",
            })
        })?;
        let made = also(
            made,
            &BTreeSet::from([Use {
                path: path.clone(),
                what: Taken::Value,
            }]),
        );
        let mut uses = BTreeSet::new();
        made.gather(&mut uses);
        let rendered = Arc::new(Rendered {
            made,
            uses,
            given: OnceLock::new(),
        });
        let mut record = self.record();
        record.rendered.insert(path.clone(), rendered.clone());
        Ok(rendered)
    }

    /// Runs a program and makes what it gives a rendered value; none for `omit`.
    pub(crate) fn run_and_make(
        self: &Arc<Self>,
        program: &Program,
        scope: &Scope,
        at: &Arc<ValuePath>,
    ) -> Result<Option<Made>, Problem> {
        deep(|| self.run_and_make_deep(program, scope, at))
    }

    fn run_and_make_deep(
        self: &Arc<Self>,
        program: &Program,
        scope: &Scope,
        at: &Arc<ValuePath>,
    ) -> Result<Option<Made>, Problem> {
        let mut first = Uses::default();
        let (made, uses) = self.run(program, scope, |value, uses| {
            first = uses.clone();
            self.make(value, uses, at, program, MOST_DEEP)
        })?;
        let made = made.map(|made| later(made, &first, &uses));
        // A value that is given as it is may be as deep itself.
        if made
            .as_ref()
            .is_some_and(|made| made.is_deeper_than(MOST_DEEP))
        {
            return Err(too_deep(program));
        }
        Ok(made)
    }

    fn make(
        self: &Arc<Self>,
        value: &Value,
        uses: &Uses,
        at: &Arc<ValuePath>,
        program: &Program,
        depth: usize,
    ) -> Result<Option<Made>, Problem> {
        // What the engine makes in no time, as a list that is repeated a million times, is made whole here.
        let bytes = value.as_str().map_or(0, str::len);
        self.spend((1, bytes), &program.by, &program.at)?;
        let Some(depth) = depth.checked_sub(1) else {
            return Err(too_deep(program));
        };
        let leaf = |shape| {
            Some(Made {
                uses: uses.clone(),
                at: at.clone(),
                shape,
            })
        };
        if value.downcast_object_ref::<Omit>().is_some() {
            return Ok(None);
        }
        if let Some(secret) = value.downcast_object_ref::<view::Secret>() {
            return Ok(leaf(MadeShape::Secret(secret.value.clone())));
        }
        if let Some(view) = value.downcast_object_ref::<view::View>() {
            // Given as it is: each part comes from where it stands, not from all that the expression looked at.
            return Ok(Some(placed(
                also(self.made(&view.path, &view.tree)?, uses),
                at,
            )));
        }
        let fails = |what: String| {
            let rule = Rule::Template {
                line: 1,
                what,
                text: line(&program.text, None),
            };
            program.by.problem(ValuePath::clone(&program.at), rule)
        };
        let shape = match value.kind() {
            minijinja::value::ValueKind::Map => {
                let mut made = BTreeMap::new();
                for key in value.try_iter().map_err(|error| fails(said(&error)))? {
                    let part = value.get_item(&key).map_err(|error| fails(said(&error)))?;
                    if let Some(part) = self.make(&part, uses, at, program, depth)? {
                        made.insert(Arc::from(key.to_string()), part);
                    }
                }
                MadeShape::Map(made)
            }
            minijinja::value::ValueKind::Seq | minijinja::value::ValueKind::Iterable => {
                let mut made = Vec::new();
                for part in value.try_iter().map_err(|error| fails(said(&error)))? {
                    made.extend(self.make(&part, uses, at, program, depth)?);
                }
                MadeShape::List(made)
            }
            minijinja::value::ValueKind::Undefined => {
                return Err(fails("a part of what it gives is not set".into()));
            }
            _ => MadeShape::Leaf(
                serde_json::to_value(value).map_err(|error| fails(error.to_string()))?,
            ),
        };
        Ok(leaf(shape))
    }

    /// Counts from nothing again: what is explained was rendered before, and is made once more.
    pub(crate) fn recount(&self) {
        let mut record = self.record();
        record.spent = 0;
        record.bytes = 0;
    }

    /// Counts what a cluster costs, a value that it comes to or a program that runs: that is bounded by its fuel, and all together by this.
    pub(crate) fn spend(
        &self,
        (values, bytes): (usize, usize),
        by: &Source,
        at: &ValuePath,
    ) -> Result<(), Problem> {
        let mut record = self.record();
        record.spent = record.spent.saturating_add(values);
        record.bytes = record.bytes.saturating_add(bytes);
        let (what, remedy) = if record.spent > MOST {
            let what = format!("is where the cluster comes to more than {MOST} values");
            (what, "make smaller lists, or several clusters of it")
        } else if record.bytes > MOST_BYTES {
            let what = format!("is where the cluster comes to more than {MOST_BYTES} bytes");
            (what, "make shorter texts, or several clusters of it")
        } else if record.fuel > MOST_FUEL {
            let what = format!(
                "is where the templates of the cluster have run for more than {MOST_FUEL} steps"
            );
            (what, "make loops of it shorter, or several clusters of it")
        } else {
            return Ok(());
        };
        drop(record);
        let rule = Rule::Reserved { what, remedy };
        Err(by.problem(at.clone(), rule))
    }

    /// Notes what the running program looks at.
    pub(crate) fn note(&self, path: &ValuePath, what: Taken) {
        let mut record = self.record();
        if let Some(frame) = record.frames.last_mut() {
            if what == Taken::Absence {
                frame.missing = Some(path.clone());
            }
            frame.uses.insert(Use {
                path: path.clone(),
                what,
            });
        }
    }

    pub(crate) fn note_all(&self, uses: &BTreeSet<Use>) {
        if let Some(frame) = self.record().frames.last_mut() {
            frame.uses.extend(uses.iter().cloned());
        }
    }

    /// Notes that the running program made a text of a reference to a secret.
    pub(crate) fn note_secret(&self, path: &ValuePath) {
        if let Some(frame) = self.record().frames.last_mut() {
            frame.secret = Some(path.clone());
        }
    }

    /// Notes why the running program cannot go on.
    pub(crate) fn note_failure(&self, problem: Problem) {
        if let Some(frame) = self.record().frames.last_mut() {
            frame.failure.get_or_insert(problem);
        }
    }

    /// The values that are templates and were rendered, by their paths.
    pub(crate) fn rendered(&self) -> BTreeMap<ValuePath, Made> {
        let record = self.record();
        let rendered = record.rendered.iter();
        rendered
            .map(|(path, rendered)| (path.clone(), rendered.made.clone()))
            .collect()
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the text is that a value without parts is.
fn bytes_of(tree: &Tree) -> usize {
    match &tree.shape {
        Shape::Leaf(Leaf::Plain(value) | Leaf::Secret(value)) => bytes(value),
        Shape::Leaf(Leaf::Template(_)) | Shape::Map(_) | Shape::List(_) => 0,
    }
}

/// How long the texts in a value are together.
pub(crate) fn bytes(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::String(text) => text.len(),
        serde_json::Value::Array(parts) => parts.iter().map(bytes).sum(),
        serde_json::Value::Object(parts) => parts.values().map(bytes).sum(),
        _ => 0,
    }
}

impl Made {
    /// Of how many values it is, and of how many bytes texts in it.
    fn size(&self) -> (usize, usize) {
        let of_all = |parts: &mut dyn Iterator<Item = &Self>| {
            parts.fold((1_usize, 0_usize), |(values, bytes), part| {
                let (more, longer) = part.size();
                (values.saturating_add(more), bytes.saturating_add(longer))
            })
        };
        match &self.shape {
            MadeShape::Leaf(value) | MadeShape::Secret(value) => (1, bytes(value)),
            MadeShape::Map(map) => of_all(&mut map.values()),
            MadeShape::List(list) => of_all(&mut list.iter()),
        }
    }

    /// The value alone.
    pub fn to_value(&self) -> serde_json::Value {
        match &self.shape {
            MadeShape::Leaf(value) | MadeShape::Secret(value) => value.clone(),
            MadeShape::Map(map) => map
                .iter()
                .map(|(key, made)| (key.to_string(), made.to_value()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            MadeShape::List(list) => list.iter().map(Self::to_value).collect(),
        }
    }

    /// All that it was made of.
    pub(crate) fn gather(&self, uses: &mut BTreeSet<Use>) {
        uses.extend(self.uses.iter().cloned());
        match &self.shape {
            MadeShape::Map(map) => map.values().for_each(|made| made.gather(uses)),
            MadeShape::List(list) => list.iter().for_each(|made| made.gather(uses)),
            MadeShape::Leaf(_) | MadeShape::Secret(_) => {}
        }
    }

    fn is_deeper_than(&self, levels: usize) -> bool {
        let Some(levels) = levels.checked_sub(1) else {
            return true;
        };
        match &self.shape {
            MadeShape::Map(map) => map.values().any(|made| made.is_deeper_than(levels)),
            MadeShape::List(list) => list.iter().any(|made| made.is_deeper_than(levels)),
            MadeShape::Leaf(_) | MadeShape::Secret(_) => false,
        }
    }

    /// Every value without parts, and every map and list that is empty, with its path.
    pub fn leaves(&self) -> Vec<(ValuePath, &Self)> {
        let mut found = Vec::new();
        self.collect(&ValuePath::default(), &mut found);
        found
    }

    fn collect<'a>(&'a self, path: &ValuePath, found: &mut Vec<(ValuePath, &'a Self)>) {
        match &self.shape {
            MadeShape::Map(map) if !map.is_empty() => {
                for (key, made) in map {
                    made.collect(&path.with(Segment::Key(key.clone())), found);
                }
            }
            MadeShape::List(list) if !list.is_empty() => {
                for (number, made) in list.iter().enumerate() {
                    made.collect(&path.index(number), found);
                }
            }
            _ => found.push((path.clone(), self)),
        }
    }
}

fn too_deep(program: &Program) -> Problem {
    let rule = Rule::Reserved {
        what: format!("gives a value that is nested deeper than {MOST_DEEP} levels"),
        remedy: "make it flatter",
    };
    program.by.problem(ValuePath::clone(&program.at), rule)
}

/// A rendered value that was also made of something else.
pub(crate) fn also(made: Made, more: &BTreeSet<Use>) -> Made {
    if more.is_empty() {
        return made;
    }
    let shape = match made.shape {
        MadeShape::Map(map) => MadeShape::Map(
            map.into_iter()
                .map(|(key, made)| (key, also(made, more)))
                .collect(),
        ),
        MadeShape::List(list) => {
            MadeShape::List(list.into_iter().map(|made| also(made, more)).collect())
        }
        leaf => leaf,
    };
    Made {
        uses: Arc::new(made.uses.union(more).cloned().collect()),
        at: made.at,
        shape,
    }
}

/// A rendered value that was made of more than was known first.
fn later(made: Made, first: &Uses, all: &Uses) -> Made {
    if Arc::ptr_eq(first, all) {
        return made;
    }
    let shape = match made.shape {
        MadeShape::Map(map) => MadeShape::Map(
            map.into_iter()
                .map(|(key, made)| (key, later(made, first, all)))
                .collect(),
        ),
        MadeShape::List(list) => MadeShape::List(
            list.into_iter()
                .map(|made| later(made, first, all))
                .collect(),
        ),
        leaf => leaf,
    };
    let uses = if Arc::ptr_eq(&made.uses, first) {
        all.clone()
    } else {
        Arc::new(made.uses.union(all).cloned().collect())
    };
    Made {
        uses,
        at: made.at,
        shape,
    }
}

/// A value at a place of the template.
fn placed(made: Made, at: &Arc<ValuePath>) -> Made {
    let shape = match made.shape {
        MadeShape::Map(map) => MadeShape::Map(
            map.into_iter()
                .map(|(key, made)| (key, placed(made, at)))
                .collect(),
        ),
        MadeShape::List(list) => {
            MadeShape::List(list.into_iter().map(|made| placed(made, at)).collect())
        }
        leaf => leaf,
    };
    Made {
        uses: made.uses,
        at: at.clone(),
        shape,
    }
}

/// Deeper than anybody can follow, and shallow enough for the stack.
const MAX_NESTED: usize = 16;

/// How many values a cluster may come to: 20,000 objects of 25 fields, which nobody has.
pub(super) const MOST: usize = 500_000;
/// How long all of them may be: some hundred times what etcd takes of one object.
const MOST_BYTES: usize = 64 << 20;
/// How long one text may be: no API takes more.
const MOST_OF_TEXT: usize = 4 << 20;
/// How long all programs of a cluster may run, in their steps: some seconds.
const MOST_FUEL: u64 = 100 * FUEL;
/// How deep a value may be nested. No kind of Kubernetes needs half of it.
const MOST_DEEP: usize = 64;
