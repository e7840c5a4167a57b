//! ClusterTemplates, compiled once and rendered for many clusters.
//!
//! A template is a tree, not a text: each of its texts is a template of its own, and what it gives stands where the text stood. So no
//! value can break the YAML around it, a number stays a number, an error names the field, and of each leaf is known which values it was
//! made of. What a value holds is never looked into: a `{{` or `${` in user data is data.

use std::{collections::BTreeMap, fmt, sync::Arc};

use api::inventory::{BackEnd, ClusterTemplateSpec, ForEach, Naming, TemplateDocument, ValuePath};
use minijinja::{Environment, ErrorKind, value};
use serde_json::{Map, Value};

use crate::{
    fleet::field,
    order,
    problem::{Object, Problem, Rule},
    schema::Schema,
    tree::Source,
};

pub(crate) mod view;
pub(crate) mod world;

/// A ClusterTemplate whose every text has been compiled.
pub(crate) struct Compiled {
    pub(crate) source: Arc<Source>,
    pub(crate) back_end: BackEnd,
    pub(crate) schema: Option<Schema>,
    /// What VaultSecrets say beside path and keys.
    pub(crate) vault_secrets: Option<Node>,
    pub(crate) documents: Vec<Document>,
    pub(crate) environment: Arc<Environment<'static>>,
}

/// One object of a template.
pub(crate) struct Document {
    pub(crate) for_each: Option<(Program, Arc<str>)>,
    pub(crate) when: Option<Program>,
    pub(crate) naming: Naming,
    pub(crate) at: Arc<ValuePath>,
    pub(crate) object: Node,
}

/// A part of a template.
pub(crate) struct Node {
    /// Where it stands in the ClusterTemplate.
    pub(crate) at: Arc<ValuePath>,
    pub(crate) shape: NodeShape,
}

/// What a part of a template is.
pub(crate) enum NodeShape {
    Literal(Value),
    Program(Program),
    Map(BTreeMap<Arc<str>, Node>),
    List(Vec<Node>),
}

/// A text to be rendered, or an expression to be computed.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// What people wrote.
    pub(crate) text: Arc<str>,
    /// Where they wrote it.
    pub(crate) at: Arc<ValuePath>,
    pub(crate) by: Arc<Source>,
    /// Its name in the environment.
    pub(crate) name: Arc<str>,
    pub(crate) gives: Gives,
}

/// What comes out of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Gives {
    /// A value with its type.
    Value,
    /// A text.
    Text,
}

/// What takes a key or an entry out of what is rendered.
#[derive(Debug)]
pub(crate) struct Omit;

impl value::Object for Omit {
    fn repr(self: &Arc<Self>) -> value::ObjectRepr {
        value::ObjectRepr::Plain
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Compiled {
    /// Compiles a template.
    ///
    /// # Errors
    /// Every text of it that is no template.
    pub(crate) fn read(object: &Object, spec: ClusterTemplateSpec) -> Result<Self, Vec<Problem>> {
        let ClusterTemplateSpec {
            back_end,
            schema,
            vault_secrets,
            documents,
        } = spec;
        let source = Arc::new(Source {
            level: String::new(),
            object: object.clone(),
        });
        let mut compiler = Compiler {
            source: source.clone(),
            environment: environment(),
            problems: Vec::new(),
        };
        let schema = match order::schema(object, &["spec", "schema"], schema) {
            Ok(schema) => schema,
            Err(problem) => {
                compiler.problems.push(problem);
                None
            }
        };
        let vault_secrets = vault_secrets.map(|spec| compiler.vault_secrets(spec));
        let at = field(&["spec", "documents"]);
        let documents = documents
            .into_iter()
            .enumerate()
            .map(|(number, document)| compiler.document(at.index(number), document))
            .collect();
        if compiler.problems.is_empty() {
            Ok(Self {
                source,
                back_end,
                schema,
                vault_secrets,
                documents,
                environment: Arc::new(compiler.environment),
            })
        } else {
            Err(compiler.problems)
        }
    }
}

struct Compiler {
    source: Arc<Source>,
    environment: Environment<'static>,
    problems: Vec<Problem>,
}

impl Compiler {
    fn document(&mut self, at: ValuePath, document: TemplateDocument) -> Document {
        let TemplateDocument {
            for_each,
            when,
            naming,
            object,
        } = document;
        let for_each = for_each.and_then(|ForEach { values, name }| {
            let program = self.program(&at.key("forEach").key("values"), &values, Gives::Value)?;
            Some((program, name.unwrap_or_else(|| "item".into()).into()))
        });
        let when = when.and_then(|when| self.program(&at.key("when"), &when, Gives::Value));
        Document {
            for_each,
            when,
            naming: naming.unwrap_or_default(),
            object: self.map(at.key("object"), object),
            at: Arc::new(at),
        }
    }

    fn vault_secrets(&mut self, spec: Map<String, Value>) -> Node {
        let at = field(&["spec", "vaultSecrets"]);
        let known = |key: &&String| !OF_VAULT_SECRETS.contains(&key.as_str());
        for key in spec.keys().filter(known) {
            let rule = Rule::Reserved {
                what: "is none of what the VaultSecrets of a cluster have in common".into(),
                remedy: "write vault, mount, engine and refreshEvery; path and keys come from the values",
            };
            self.problems.push(self.source.problem(at.key(key), rule));
        }
        if !spec.contains_key("vault") {
            let rule = Rule::Reserved {
                what: "does not say which server is asked".into(),
                remedy: "write {vault: {address: URL, auth: {kubernetes: {role: ROLE}}}}",
            };
            self.problems.push(self.source.problem(at.clone(), rule));
        }
        self.map(at, spec)
    }

    fn map(&mut self, at: ValuePath, map: Map<String, Value>) -> Node {
        let mut parts = BTreeMap::new();
        for (key, value) in map {
            if is_template(&key) {
                let rule = Rule::Reserved {
                    what: "is a key, and keys are no templates".into(),
                    remedy: "give the map above it as a value: `{{ map }}`",
                };
                self.problems.push(self.source.problem(at.key(&key), rule));
                continue;
            }
            let node = self.node(at.key(&key), value);
            parts.insert(Arc::from(key), node);
        }
        Node {
            at: Arc::new(at),
            shape: NodeShape::Map(parts),
        }
    }

    fn node(&mut self, at: ValuePath, value: Value) -> Node {
        let shape = match value {
            Value::Object(map) => return self.map(at, map),
            Value::Array(items) => NodeShape::List(
                items
                    .into_iter()
                    .enumerate()
                    .map(|(number, item)| self.node(at.index(number), item))
                    .collect(),
            ),
            Value::String(text) if is_template(&text) => {
                let (text, gives) = kind(&self.environment, &text);
                match self.program(&at, text, gives) {
                    Some(program) => NodeShape::Program(program),
                    None => NodeShape::Literal(Value::Null),
                }
            }
            literal => NodeShape::Literal(literal),
        };
        Node {
            at: Arc::new(at),
            shape,
        }
    }

    fn program(&mut self, at: &ValuePath, text: &str, gives: Gives) -> Option<Program> {
        let name: Arc<str> = at.to_string().into();
        let checked = match gives {
            Gives::Value => self
                .environment
                .compile_expression_owned(text.to_owned())
                .map(|_| assigned(text)),
            Gives::Text => Ok(text.to_owned()),
        };
        let added = checked.and_then(|source| {
            self.environment
                .add_template_owned(name.to_string(), source)
        });
        if let Err(error) = added {
            self.problems
                .push(self.source.problem(at.clone(), syntax(&error, text)));
            return None;
        }
        Some(Program {
            text: text.into(),
            at: Arc::new(at.clone()),
            by: self.source.clone(),
            name,
            gives,
        })
    }
}

impl Program {
    /// As the engine takes it.
    fn source(&self) -> String {
        match self.gives {
            Gives::Value => assigned(&self.text),
            Gives::Text => self.text.to_string(),
        }
    }
}

/// An expression whose value can be looked up.
fn assigned(expression: &str) -> String {
    format!("{{% set {RESULT} = ({expression}\n) %}}")
}

/// Whether a text of a ClusterTemplate is to be rendered.
pub(crate) fn is_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark))
}

/// Whether a text is one expression between `{{` and `}}`, which then gives a value, or else a text.
pub(crate) fn kind<'t>(environment: &Environment<'_>, text: &'t str) -> (&'t str, Gives) {
    let inside = text
        .trim()
        .strip_prefix("{{")
        .and_then(|text| text.strip_suffix("}}"))
        // Signs of white space around it, of which an expression has none: `{{- x }}` is not minus x.
        .map(|inside| inside.strip_prefix(['-', '+']).unwrap_or(inside))
        .map(|inside| inside.strip_suffix(['-', '+']).unwrap_or(inside));
    match inside {
        Some(inside)
            if environment
                .compile_expression_owned(inside.to_owned())
                .is_ok() =>
        {
            (inside.trim(), Gives::Value)
        }
        _ => (text, Gives::Text),
    }
}

/// Jinja as people know it from Ansible, where a text takes texts and numbers only.
fn environment() -> Environment<'static> {
    let mut environment = jinja::environment();
    environment.add_global("omit", minijinja::Value::from_object(Omit));
    environment.set_formatter(|output, _, value| {
        let kind = value.kind();
        let fails =
            |what: &'static str| Err(minijinja::Error::new(ErrorKind::InvalidOperation, what));
        match kind {
            value::ValueKind::Undefined => Err(ErrorKind::UndefinedError.into()),
            value::ValueKind::None => fails("a text cannot take null"),
            value::ValueKind::Seq | value::ValueKind::Map | value::ValueKind::Iterable => fails(
                "a text cannot take a list or a map; `| tojson` or `| join` makes a text of it",
            ),
            value::ValueKind::Plain => {
                if let Some(secret) = value.downcast_object_ref::<view::Secret>() {
                    secret.note();
                }
                fails("a text cannot take omit")
            }
            _ => write!(output, "{value}")
                .map_err(|_| minijinja::Error::from(ErrorKind::WriteFailure)),
        }
    });
    environment
}

fn syntax(error: &minijinja::Error, text: &str) -> Rule {
    Rule::Syntax {
        line: error.line().unwrap_or(1),
        what: said(error),
        text: line(text, error.line()),
    }
}

/// What the engine says, without the place, which is told in the words of the inventory.
pub(crate) fn said(error: &minijinja::Error) -> String {
    let detail = error.detail().map(ToOwned::to_owned);
    api::text::plain(&detail.unwrap_or_else(|| error.kind().to_string()), 300)
}

/// The line of a text, as an error shows it.
pub(crate) fn line(text: &str, number: Option<usize>) -> String {
    let number = number.unwrap_or(1).max(1);
    let found = text.lines().nth(number - 1).or_else(|| text.lines().last());
    api::text::plain(found.unwrap_or_default().trim(), 120)
}

/// What a ClusterTemplate may say of VaultSecrets. Which version is read is not the same for two of them, and which Secret is made is
/// for nobody to choose who does not write it.
const OF_VAULT_SECRETS: [&str; 4] = ["vault", "mount", "engine", "refreshEvery"];

/// The variable that an expression is put into.
pub(crate) const RESULT: &str = "__result";
