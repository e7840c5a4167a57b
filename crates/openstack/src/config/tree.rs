//! Files of YAML and JSON: several sources of one file, merged map by map, and for each value where it came from. Pure.
//!
//! The later source has the last word on each value, and a list is a value: it is replaced whole. A map is merged with a map; it cannot
//! stand instead of something else. Keys keep the order in which they first appeared.
//!
//! What is in no quotes is never looked into. `yes`, `0x1F` and `1:30` mean what they mean to whoever reads the file, and are written as
//! they stood.
//!
//! # Source
//! The merge is that of `merge_yaml` of kolla-ansible 22 without `extend_lists`, which the tests of this crate compare it with.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use granit_parser::{Event, Options, Parser, ScalarStyle, options};

use crate::config::{Error, Origin, Source, ini::Unreadable};

/// How a file is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON.
    Json,
}

impl Format {
    /// That of a file of this name.
    pub fn of(file: &str) -> Self {
        match file.rsplit_once('.') {
            Some((_, "json")) => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// A merged file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tree {
    format: Format,
    fields: Vec<(Scalar, Node)>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Node {
    shape: Shape,
    /// Who gave it, the one with the last word last. Of a map: who began it.
    origins: Vec<Origin>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Shape {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<(Scalar, Node)>),
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Scalar {
    text: String,
    /// Whether it stood in no quotes: what it is depends on what it looks like.
    is_plain: bool,
}

/// A value of a merged file: of a map that has fields, each of these is one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Value<'a> {
    /// Its keys from the outside in, with dots between them.
    pub path: String,
    /// What it is, in one line.
    pub shown: String,
    /// Who gave it, the one with the last word last.
    pub origins: &'a [Origin],
}

impl Tree {
    /// Merges the sources of one file, the one with the last word last.
    ///
    /// # Errors
    ///
    /// One is not written as such a file is, or has a map where others have something else.
    pub fn of(format: Format, sources: &[Source]) -> Result<Self, Error> {
        let mut fields = Vec::new();
        for source in sources {
            let later = read(format, source).map_err(|at| source.refused(at))?;
            // The lines of what was read are those that somebody wrote.
            update(&mut fields, later).map_err(|at| Error {
                source_name: source.name.clone(),
                at,
            })?;
        }
        Ok(Self { format, fields })
    }

    /// The file.
    pub fn render(&self) -> String {
        let mut text = String::new();
        match self.format {
            Format::Yaml if self.fields.is_empty() => text.push_str("{}\n"),
            Format::Yaml => write_map(&mut text, &self.fields, 0),
            Format::Json => {
                write_json(&mut text, &Shape::Map(self.fields.clone()), 0);
                text.push('\n');
            }
        }
        text
    }

    /// All values, in the order of the file.
    pub fn values(&self) -> Vec<Value<'_>> {
        let mut values = Vec::new();
        collect(&mut values, "", &self.fields);
        values
    }
}

fn collect<'a>(values: &mut Vec<Value<'a>>, above: &str, fields: &'a [(Scalar, Node)]) {
    for (key, node) in fields {
        let path = match above {
            "" => key.text.clone(),
            above => format!("{above}.{}", key.text),
        };
        match &node.shape {
            Shape::Map(fields) if !fields.is_empty() => collect(values, &path, fields),
            shape => values.push(Value {
                path,
                shown: flow(shape),
                origins: &node.origins,
            }),
        }
    }
}

/// As `Utils.update_nested_conf` of `merge_yaml` does it.
fn update(fields: &mut Vec<(Scalar, Node)>, later: Vec<(Scalar, Node)>) -> Result<(), Unreadable> {
    // A template may give as many keys as it likes. No source has one twice.
    let known = fields.iter().enumerate();
    let known: HashMap<_, _> = known.map(|(at, (key, _))| (key.text.clone(), at)).collect();
    for (key, later) in later {
        let found = known.get(&key.text).and_then(|at| fields.get_mut(*at));
        let Some((_, node)) = found else {
            fields.push((key, later));
            continue;
        };
        match (&mut node.shape, later.shape) {
            (Shape::Map(fields), Shape::Map(later)) => update(fields, later)?,
            // There is nothing in it that could be merged.
            (_, Shape::Map(later)) if later.is_empty() => {}
            (_, Shape::Map(_)) => {
                return Err(Unreadable {
                    line: later.origins.first().map_or(1, |origin| origin.line),
                    rule: format!(
                        "{} is no map in what stands before, so a map cannot be merged with it",
                        api::text::plain(&key.text, 80)
                    )
                    .into(),
                });
            }
            (_, shape) => {
                node.shape = shape;
                node.origins.extend(later.origins);
            }
        }
    }
    Ok(())
}

/// The map that a source is. One that says nothing is an empty one.
fn read(format: Format, source: &Source) -> Result<Vec<(Scalar, Node)>, Unreadable> {
    if format == Format::Json && !source.text.trim().is_empty() {
        serde_json::from_str::<serde::de::IgnoredAny>(&source.text).map_err(|error| {
            let (line, rule) = (error.line(), format!("it is no JSON: {error}"));
            Unreadable {
                line,
                rule: rule.into(),
            }
        })?;
    }
    let mut reader = Reader {
        source,
        open: Vec::new(),
        root: None,
    };
    let events = Parser::new_from_str_with_options(&source.text, bounds());
    for event in events {
        let (event, span) = event.map_err(|error| Unreadable {
            line: error.marker().line(),
            rule: "it is no YAML, or too deep".into(),
        })?;
        reader.take(event, span.start.line())?;
    }
    match reader.root {
        None => Ok(Vec::new()),
        Some(Node { shape, origins }) => match shape {
            Shape::Map(fields) => Ok(fields),
            shape if is_nothing(&shape) => Ok(Vec::new()),
            _ => Err(Unreadable {
                line: origins.first().map_or(1, |origin| origin.line),
                rule: MAP.into(),
            }),
        },
    }
}

/// What Python takes for no value at all.
fn is_nothing(shape: &Shape) -> bool {
    match shape {
        Shape::List(items) => items.is_empty(),
        Shape::Map(fields) => fields.is_empty(),
        Shape::Scalar(Scalar { text, is_plain }) => {
            text.is_empty() || (*is_plain && NOTHING.contains(&text.to_lowercase().as_str()))
        }
    }
}

/// No file of a service is deeper.
fn bounds() -> Options {
    options! {
        emit_comments: false,
        flow_nesting_limit: 50,
        block_nesting_limit: 50,
    }
}

struct Reader<'a> {
    source: &'a Source,
    open: Vec<Open>,
    root: Option<Node>,
}

/// What has begun and not ended.
struct Open {
    line: usize,
    shape: Begun,
}

enum Begun {
    List(Vec<Node>),
    Map(BegunMap),
}

/// A map that has begun.
#[derive(Default)]
struct BegunMap {
    fields: Vec<(Scalar, Node)>,
    /// The keys so far, to be found at once however many there are.
    known: HashSet<String>,
    /// The key whose value is next, and its line.
    key: Option<(Scalar, usize)>,
}

impl Reader<'_> {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Unreadable> {
        let refused = |rule: &'static str| {
            Err(Unreadable {
                line,
                rule: Cow::Borrowed(rule),
            })
        };
        match event {
            Event::MappingStart(_, 0, None) => self.begin(line, Begun::Map(BegunMap::default())),
            Event::SequenceStart(_, 0, None) => self.begin(line, Begun::List(Vec::new())),
            Event::MappingEnd | Event::SequenceEnd => {
                let Some(Open { line, shape }) = self.open.pop() else {
                    return Ok(());
                };
                let shape = match shape {
                    Begun::List(items) => Shape::List(items),
                    Begun::Map(map) => Shape::Map(map.fields),
                };
                self.end(shape, line)
            }
            Event::Scalar(text, style, 0, None) => {
                let scalar = Scalar {
                    text: text.into_owned(),
                    is_plain: style == ScalarStyle::Plain,
                };
                if scalar.is_plain && SIGNS.contains(&scalar.text.as_str()) {
                    return refused(SIGN);
                }
                match self.open.last_mut().map(|open| &mut open.shape) {
                    Some(Begun::Map(map)) if map.key.is_none() => {
                        if !is_text(&scalar) {
                            return refused(KEY);
                        }
                        if !map.known.insert(scalar.text.clone()) {
                            return refused(TWICE);
                        }
                        map.key = Some((scalar, line));
                        Ok(())
                    }
                    _ => self.end(Shape::Scalar(scalar), line),
                }
            }
            Event::MappingStart(..)
            | Event::SequenceStart(..)
            | Event::Scalar(..)
            | Event::Alias(_)
            | Event::UnresolvedAlias(_) => refused(ANCHOR),
            Event::DocumentStart(..) if self.root.is_some() => refused(ONE),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, line: usize, shape: Begun) -> Result<(), Unreadable> {
        if let Some(Begun::Map(map)) = self.open.last().map(|open| &open.shape)
            && map.key.is_none()
        {
            let rule = KEY.into();
            return Err(Unreadable { line, rule });
        }
        self.open.push(Open { line, shape });
        Ok(())
    }

    fn end(&mut self, shape: Shape, line: usize) -> Result<(), Unreadable> {
        let node = |shape: Shape, line| {
            let origin = Origin {
                source: self.source.name.clone(),
                line: self.source.written(line),
                values: vec![flow(&shape)],
            };
            Node {
                shape,
                origins: vec![origin],
            }
        };
        match self.open.last_mut().map(|open| &mut open.shape) {
            None => self.root = Some(node(shape, line)),
            Some(Begun::List(items)) => items.push(node(shape, line)),
            Some(Begun::Map(map)) => {
                let Some((key, line)) = map.key.take() else {
                    let rule = KEY.into();
                    return Err(Unreadable { line, rule });
                };
                // A value may begin below its key.
                map.fields.push((key, node(shape, line)));
            }
        }
        Ok(())
    }
}

/// Whether a key is a text to whoever reads it, and to each the same one.
fn is_text(key: &Scalar) -> bool {
    if !key.is_plain {
        return true;
    }
    let text = key.text.to_lowercase();
    let mut letters = text.chars();
    let begins = letters.next();
    let is_number = begins.is_some_and(|letter| letter.is_ascii_digit() || "+-.".contains(letter))
        && letters.all(|letter| letter.is_ascii_hexdigit() || "+-._:xotz infa".contains(letter));
    !is_number && !WORDS.contains(&text.as_str())
}

/// A value in one line, as JSON has it, but for what is in no quotes.
fn flow(shape: &Shape) -> String {
    match shape {
        Shape::Scalar(scalar) if scalar.text.is_empty() && scalar.is_plain => "null".to_owned(),
        Shape::Scalar(scalar) => scalar.text.clone(),
        Shape::List(items) => {
            let items: Vec<_> = items.iter().map(|item| flow(&item.shape)).collect();
            format!("[{}]", items.join(", "))
        }
        Shape::Map(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(key, node)| format!("{}: {}", key.text, flow(&node.shape)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

fn write_map(text: &mut String, fields: &[(Scalar, Node)], indent: usize) {
    for (key, node) in fields {
        text.push_str(&format!("{:indent$}{}:", "", yaml(key)));
        write_below(text, &node.shape, indent);
    }
}

/// What stands behind a key, and below it.
fn write_below(text: &mut String, shape: &Shape, indent: usize) {
    match shape {
        Shape::Map(fields) if !fields.is_empty() => {
            text.push('\n');
            write_map(text, fields, indent + 2);
        }
        Shape::List(items) if !items.is_empty() => {
            text.push('\n');
            write_list(text, items, indent + 2);
        }
        shape => text.push_str(&format!(" {}\n", in_line(shape))),
    }
}

fn write_list(text: &mut String, items: &[Node], indent: usize) {
    for item in items {
        let mut below = String::new();
        match &item.shape {
            Shape::Map(fields) if !fields.is_empty() => write_map(&mut below, fields, indent + 2),
            Shape::List(items) if !items.is_empty() => write_list(&mut below, items, indent + 2),
            shape => below = format!("{}\n", in_line(shape)),
        }
        // It begins behind the sign of the list.
        text.push_str(&format!(
            "{:indent$}- {}",
            "",
            below.trim_start_matches(' ')
        ));
    }
}

fn in_line(shape: &Shape) -> String {
    match shape {
        Shape::Scalar(scalar) => yaml(scalar),
        Shape::List(_) => "[]".to_owned(),
        Shape::Map(_) => "{}".to_owned(),
    }
}

fn yaml(scalar: &Scalar) -> String {
    let Scalar { text, is_plain } = scalar;
    match text.as_str() {
        "" if *is_plain => "null".to_owned(),
        text if *is_plain && !text.contains(is_escaped) => text.to_owned(),
        text => quoted(text),
    }
}

/// In double quotes, as JSON has it and YAML understands it.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for letter in serde_json::Value::from(text).to_string().chars() {
        if is_escaped(letter) {
            quoted.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            quoted.push(letter);
        }
    }
    quoted
}

/// What YAML takes for the end of a line, or not at all.
fn is_escaped(letter: char) -> bool {
    let ends = ['\u{2028}', '\u{2029}', '\u{feff}', '\u{fffe}', '\u{ffff}'];
    letter.is_control() || ends.contains(&letter)
}

fn write_json(text: &mut String, shape: &Shape, indent: usize) {
    let inner = indent + 2;
    match shape {
        Shape::Scalar(scalar) if scalar.is_plain => text.push_str(&scalar.text),
        Shape::Scalar(scalar) => text.push_str(&quoted(&scalar.text)),
        Shape::List(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                text.push_str(if at == 0 { "\n" } else { ",\n" });
                text.push_str(&format!("{:inner$}", ""));
                write_json(text, &item.shape, inner);
            }
            close(text, items.is_empty(), indent, ']');
        }
        Shape::Map(fields) => {
            text.push('{');
            for (at, (key, node)) in fields.iter().enumerate() {
                text.push_str(if at == 0 { "\n" } else { ",\n" });
                text.push_str(&format!("{:inner$}{}: ", "", quoted(&key.text)));
                write_json(text, &node.shape, inner);
            }
            close(text, fields.is_empty(), indent, '}');
        }
    }
}

fn close(text: &mut String, is_empty: bool, indent: usize, sign: char) {
    if !is_empty {
        text.push_str(&format!("\n{:indent$}", ""));
    }
    text.push(sign);
}

const MAP: &str = "the file is a map: KEY: VALUE";
const KEY: &str = "a key is a text: put it in quotes";
const TWICE: &str = "a key stands once in a map";
const ANCHOR: &str = "anchors, aliases and tags are not taken: write out what they mean";
const SIGN: &str = "<< and = are signs of YAML of before: put them in quotes";
const ONE: &str = "a file holds one document";
/// Plain words that Python does not read as they are.
const SIGNS: [&str; 2] = ["<<", "="];
/// Plain words that are no text to everybody.
const WORDS: [&str; 9] = ["", "~", "null", "yes", "no", "true", "false", "on", "off"];
/// Of these, and of numbers, those that Python takes for nothing.
const NOTHING: [&str; 7] = ["~", "null", "no", "false", "off", "0", "0.0"];

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(file: &str, texts: &[&str]) -> Result<Tree, Error> {
        let sources = texts.iter().enumerate();
        let sources = sources.map(|(at, text)| Source::new(format!("{at}"), *text));
        Tree::of(Format::of(file), &sources.collect::<Vec<_>>())
    }

    #[test]
    fn maps_are_merged_and_everybody_who_spoke_is_known() {
        let texts = [
            "# Of the site.\na: {b: 1, c: yes}\nlist:\n- 1\n- x: 0x1F\n  y: []\n",
            "a:\n  c: 'no'\n  \"d: e\": |\n    two\n    lines\nlist: [2, [3]]\n",
            "",
        ];
        let merged = merged("a.yaml", &texts).unwrap();
        assert_eq!(
            merged.render(),
            "a:\n  b: 1\n  c: \"no\"\n  \"d: e\": \"two\\nlines\\n\"\nlist:\n  - 2\n  - - 3\n"
        );
        let told: Vec<_> = merged
            .values()
            .into_iter()
            .map(
                |Value {
                     path,
                     shown,
                     origins,
                 }| {
                    let spoke = origins.iter().map(|origin| {
                        format!(
                            "{}:{} {}",
                            origin.source,
                            origin.line,
                            origin.values.join("|")
                        )
                    });
                    format!(
                        "{path} = {}: {}",
                        shown.escape_debug(),
                        spoke.collect::<Vec<_>>().join(", ").escape_debug()
                    )
                },
            )
            .collect();
        assert_eq!(
            told,
            [
                "a.b = 1: 0:2 1",
                "a.c = no: 0:2 yes, 1:2 no",
                r"a.d: e = two\nlines\n: 1:3 two\nlines\n",
                "list = [2, [3]]: 0:3 [1, {x: 0x1F, y: []}], 1:6 [2, [3]]",
            ]
        );
    }

    #[test]
    fn maps_of_many_keys_are_read_in_one_go() {
        // Who looked at all keys for each would compare some ten thousand million of them.
        let keys: Vec<_> = (0..150_000).map(|at| format!("k{at}: 1\n")).collect();
        let keys = keys.concat();
        let merged = merged("a.yaml", &[&keys, &keys]).unwrap();
        let values = merged.values();
        assert_eq!(values.len(), 150_000);
        assert_eq!(values.last().unwrap().origins.len(), 2);
    }

    #[test]
    fn json_stays_json_and_its_numbers_what_they_are() {
        let texts = [
            "{\n\t\"a\": {\"b\": 1.50, \"c\": \"\\u00e4\\n\\/\"},\n\t\"d\": [true, null, {}]\n}",
            r#"{"a": {"b": 1e400, "yes": []}}"#,
        ];
        let merged = merged("a.json", &texts).unwrap();
        assert_eq!(
            merged.render(),
            "{\n  \"a\": {\n    \"b\": 1e400,\n    \"c\": \"ä\\n/\",\n    \"yes\": []\n  },\n  \"d\": [\n    true,\n    null,\n    {}\n  ]\n}\n"
        );
        assert_eq!(merged.values()[0].origins.len(), 2);
    }

    #[test]
    fn what_is_no_such_file_is_named_by_source_and_line() {
        for (file, text, line, rule) in [
            ("a.yaml", "a: 1\nb: [", 2, "no YAML"),
            ("a.yaml", "- a\n", 1, "a map"),
            ("a.yaml", "a: 1\n\na: 2\n", 3, "stands once"),
            ("a.yaml", "a:\n  1: b\n", 2, "in quotes"),
            ("a.yaml", "yes: b\n", 1, "in quotes"),
            ("a.yaml", "a: &b 1\nc: *b\n", 1, "anchors"),
            ("a.yaml", "a: !!str 1\n", 1, "tags"),
            ("a.yaml", "a: 1\nb:\n  <<: {c: 1}\n", 3, "signs"),
            ("a.yaml", "a: =\n", 1, "signs"),
            ("a.yaml", "a: 1\n---\nb: 1\n", 2, "one document"),
            ("a.yaml", "k:\n  a: {b: 1}\n", 2, "a is no map"),
            ("a.json", "{\"a\": 1,\n}", 2, "no JSON"),
            ("a.json", "a: 1\n", 1, "no JSON"),
        ] {
            let first = if file == "a.json" { "{}" } else { "k: {a: 1}" };
            let error = merged(file, &[first, text]).unwrap_err();
            assert_eq!(
                (error.source_name.as_str(), error.at.line),
                ("1", line),
                "{text}"
            );
            assert!(error.at.rule.contains(rule), "{text}: {}", error.at.rule);
        }
    }
}
