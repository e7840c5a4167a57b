//! Documents as SOPS reads them: maps in their order, and of what is in no quotes what Go takes it for.

use std::{borrow::Cow, collections::HashSet};

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, Tag, options};

use crate::scalar::Scalar;

/// A part of a document.
#[derive(Debug, PartialEq)]
pub(crate) enum Node {
    Map(Vec<(String, Node)>),
    List(Vec<Node>),
    Scalar(Scalar),
}

/// How a file is written. What is written as JSON is YAML too, but for its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

impl Format {
    pub(crate) fn of(text: &str) -> Self {
        if text.trim_start().starts_with('{') {
            Self::Json
        } else {
            Self::Yaml
        }
    }
}

/// What is not as SOPS writes it, and where.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ReadError {
    line: usize,
    what: &'static str,
}

/// Reads the documents of a file. Each is a map.
pub(crate) fn read(text: &str) -> Result<Vec<Node>, ReadError> {
    let mut reader = Reader {
        format: Format::of(text),
        open: Vec::new(),
        documents: Vec::new(),
        nodes: 0,
    };
    for event in Parser::new_from_str_with_options(text, bounds()) {
        let (event, span) = event.map_err(|error| malformed(&error))?;
        let refused = |what| ReadError {
            line: line(&span),
            what,
        };
        reader.take(event).map_err(refused)?;
    }
    Ok(reader.documents)
}

/// Whether one of the documents has that field, be it otherwise as it may.
pub(crate) fn has_field(text: &str, field: &str) -> bool {
    // Of each map or list that is open: whether it is a map, and how many nodes it has.
    let mut open: Vec<(bool, usize)> = Vec::new();
    for event in Parser::new_from_str_with_options(text, bounds()) {
        let Ok((event, _)) = event else { return false };
        let is_field = matches!((&event, open.as_slice()),
            (Event::Scalar(name, ..), [(true, nodes)]) if nodes.is_multiple_of(2) && name == field);
        if is_field {
            return true;
        }
        match event {
            Event::MappingStart(..) => open.push((true, 0)),
            Event::SequenceStart(..) => open.push((false, 0)),
            Event::MappingEnd | Event::SequenceEnd => {
                open.pop();
                count(&mut open);
            }
            Event::Scalar(..) | Event::Alias(_) => count(&mut open),
            _ => {}
        }
    }
    false
}

fn count(open: &mut [(bool, usize)]) {
    if let Some((_, nodes)) = open.last_mut() {
        *nodes += 1;
    }
}

/// No manifest is deeper.
fn bounds() -> Options {
    options! {
        emit_comments: false,
        flow_nesting_limit: 100,
        block_nesting_limit: 100,
    }
}

fn malformed(error: &ScanError) -> ReadError {
    // What the parser says shows what stands there.
    ReadError {
        line: error.marker().line(),
        what: "it is no YAML, or too deep: SOPS reads neither",
    }
}

fn line(span: &Span) -> usize {
    span.start.line()
}

struct Reader {
    format: Format,
    open: Vec<Open>,
    documents: Vec<Node>,
    nodes: usize,
}

/// What has begun and not ended.
enum Open {
    Map {
        fields: Vec<(String, Node)>,
        names: HashSet<String>,
        name: Option<String>,
    },
    List(Vec<Node>),
}

impl Reader {
    fn take(&mut self, event: Event<'_>) -> Result<(), &'static str> {
        match event {
            Event::MappingStart(_, anchor, tag) => {
                begins(anchor, tag.as_deref(), "map")?;
                self.open.push(Open::Map {
                    fields: Vec::new(),
                    names: HashSet::new(),
                    name: None,
                });
                Ok(())
            }
            Event::SequenceStart(_, anchor, tag) => {
                begins(anchor, tag.as_deref(), "seq")?;
                self.open.push(Open::List(Vec::new()));
                Ok(())
            }
            Event::MappingEnd | Event::SequenceEnd => match self.open.pop() {
                Some(Open::Map { fields, .. }) => self.node(Node::Map(fields)),
                Some(Open::List(items)) => self.node(Node::List(items)),
                None => Ok(()),
            },
            Event::Scalar(text, style, anchor, tag) => {
                if anchor != 0 {
                    return Err(ANCHOR);
                }
                let scalar = scalar(text, style, tag.as_deref(), self.format)?;
                self.node(Node::Scalar(scalar))
            }
            Event::Alias(_) => Err(ANCHOR),
            _ => Ok(()),
        }
    }

    /// Puts a whole node where it belongs.
    fn node(&mut self, node: Node) -> Result<(), &'static str> {
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            return Err("there are more than 250000 names and values: divide the file");
        }
        match self.open.last_mut() {
            Some(Open::List(items)) => items.push(node),
            Some(Open::Map {
                fields,
                names,
                name,
            }) => {
                if let Some(name) = name.take() {
                    fields.push((name, node));
                    return Ok(());
                }
                let Node::Scalar(Scalar::Text(text)) = node else {
                    return Err("the name of a field is no text: write it in quotes");
                };
                if text.len() > LONGEST_NAME {
                    return Err("the name of a field has more than 1024 bytes");
                }
                if !names.insert(text.clone()) {
                    return Err("a field stands there for the second time");
                }
                *name = Some(text);
            }
            None => self.documents.push(match node {
                Node::Scalar(Scalar::Null) => Node::Map(Vec::new()),
                Node::Map(_) => node,
                _ => return Err("a document is no map, which SOPS does not encrypt"),
            }),
        }
        Ok(())
    }
}

fn begins(anchor: usize, tag: Option<&Tag>, usual: &str) -> Result<(), &'static str> {
    if anchor != 0 {
        return Err(ANCHOR);
    }
    if tag.is_some_and(|tag| tag.core_suffix() != Some(usual)) {
        return Err(TAG);
    }
    Ok(())
}

fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    format: Format,
) -> Result<Scalar, &'static str> {
    let word = || {
        Scalar::of_word(&text, format)
            .ok_or("a whole number has more than 64 bits: write it in quotes")
    };
    let Some(tag) = tag else {
        return match style {
            ScalarStyle::Plain => word(),
            _ => Ok(Scalar::Text(text.into_owned())),
        };
    };
    let name = tag.suffix_in_namespace("tag:yaml.org,2002:");
    match (name.as_deref(), word()?) {
        (Some("str"), _) => Ok(Scalar::Text(text.into_owned())),
        (Some("float"), Scalar::Integer(_)) => {
            let float = text.replace('_', "").parse();
            float.map(Scalar::Float).map_err(|_| TAG)
        }
        (Some("null"), word @ Scalar::Null)
        | (Some("bool"), word @ Scalar::Bool(_))
        | (Some("int"), word @ Scalar::Integer(_))
        | (Some("float"), word @ Scalar::Float(_))
        | (Some("timestamp"), word @ Scalar::Time(_)) => Ok(word),
        _ => Err(TAG),
    }
}

/// Each costs more memory than it has bytes in the file.
const MOST_NODES: usize = 250_000;

/// In bytes. Each is compared with the rule of what is encrypted.
const LONGEST_NAME: usize = 1024;

const ANCHOR: &str =
    "there is an anchor or an alias, which SOPS does not write: write out what it stands for";
const TAG: &str =
    "there is a tag that SOPS does not write, or one that does not fit its value: remove it";

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Node {
        Node::Scalar(Scalar::Text(text.to_owned()))
    }

    #[test]
    fn documents_are_read_in_their_order() {
        let read = read("b: x\na: [!!float 3, \"3\", {}]\n---\n---\nc:\n  d: |\n    y\n").unwrap();
        let list = vec![
            Node::Scalar(Scalar::Float(3.0)),
            text("3"),
            Node::Map(Vec::new()),
        ];
        let expected = vec![
            Node::Map(vec![
                ("b".to_owned(), text("x")),
                ("a".to_owned(), Node::List(list)),
            ]),
            Node::Map(Vec::new()),
            Node::Map(vec![(
                "c".to_owned(),
                Node::Map(vec![("d".to_owned(), text("y\n"))]),
            )]),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn what_sops_does_not_write_is_refused_by_its_line() {
        let deep = format!("a: {}{}", "[".repeat(200), "]".repeat(200));
        let long = format!("a:\n  ? {}\n  : x", "n".repeat(1025));
        let many = format!("a:\n{}", "- 1\n".repeat(250_000));
        for (text, line, word) in [
            ("a: 1\nb: &x 1", 2, "anchor"),
            ("a: &x [1]\nb: *x", 1, "anchor"),
            ("a: !vault x", 1, "tag"),
            ("a: !!int x", 1, "tag"),
            ("a: !!binary eA==", 1, "tag"),
            ("1: x", 1, "no text"),
            ("[a]: x", 1, "no text"),
            ("a: 1\na: 2", 2, "second time"),
            ("- a", 1, "no map"),
            ("a", 1, "no map"),
            ("a: 18446744073709551615", 1, "64 bits"),
            ("a: [", 1, "no YAML"),
            (&deep, 1, "too deep"),
            (&long, 2, "1024 bytes"),
            (&many, 250_001, "250000"),
        ] {
            let error = read(text).unwrap_err();
            assert!(
                error.line == line && error.what.contains(word),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn what_is_just_within_the_bounds_is_read() {
        let long = format!("{}: x", "n".repeat(1024));
        assert!(read(&long).is_ok());
        // The map, the name and the list are nodes too.
        let many = format!("a:\n{}", "- 1\n".repeat(249_997));
        assert!(read(&many).is_ok());
    }

    #[test]
    fn a_field_is_found_where_it_stands_at_the_top_alone() {
        for (text, found) in [
            ("a: 1\nsops: x", true),
            ("a: 1\n---\n\"sops\": {}", true),
            ("{\"a\": [{}], \"sops\": {}}", true),
            ("a: {sops: 1}", false),
            ("a: sops", false),
            ("- sops", false),
            ("a: [sops", false),
        ] {
            assert_eq!(has_field(text, "sops"), found, "{text}");
        }
    }
}
