//! The variable substitution of clusterctl: `${NAME}` in the files of Cluster API providers, with defaults and string functions.
//!
//! It is the dialect of drone/envsubst, version 2, behind the removal of white space in braces that clusterctl does first.
//! What a template means here it means there, oddities included: files that providers have published rely on them. Where the
//! two differ, it is because clusterctl ends with a panic, writes text that is no UTF-8, or stops reading at a zero byte.
//!
//! | form | value |
//! |---|---|
//! | `${V}` | the value; nothing where it is empty |
//! | `${V=d}`, `${V:=d}`, `${V:-d}` | the value, or where it is unset **or empty** the default, which may hold further references |
//! | `${V:?d}`, `${V:+d}` | as `${V:=d}`, unlike in a shell |
//! | `${#V}` | its length in bytes |
//! | `${V^}`, `${V^^}`, `${V,}`, `${V,,}` | the first letter or all of them in upper or lower case |
//! | `${V:p}`, `${V:p:l}` | from byte `p` on, `l` bytes; a negative `p` counts from the end |
//! | `${V#g}`, `${V##g}`, `${V%g}`, `${V%%g}` | without the shortest or longest beginning or end that the glob matches |
//! | `${V/a/b}`, `${V//a/b}`, `${V/#a/b}`, `${V/%a/b}` | the first `a`, each, that at the beginning, that at the end replaced by `b` |
//! | `$$` | one dollar sign, so that `$${V}` stands for `${V}` |
//! | `$V` | itself |
//!
//! ```
//! let template = envsubst::Template::parse("name: ${NAME}\nreplicas: ${ REPLICAS:=3 }\nzone: ${ZONE^^}\n");
//! // White space is removed around a name alone.
//! assert!(template.is_err());
//!
//! let template = envsubst::Template::parse("name: ${ NAME }\nreplicas: ${REPLICAS:=3}\nzone: ${ZONE^^}\n")?;
//! let missing = template.substitute(|_| None).unwrap_err();
//! assert!(missing.to_string().contains("NAME, ZONE"));
//!
//! let values = |name: &str| match name {
//!     "NAME" => Some("one"),
//!     "ZONE" => Some("b"),
//!     _ => None,
//! };
//! assert_eq!(template.substitute(values)?, "name: one\nreplicas: 3\nzone: B\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;

mod case;
mod error;
mod function;
mod glob;
mod legacy;
mod parse;
mod room;

pub use error::{ParseError, Problem, SubstituteError};
use function::Function;
use room::Room;

/// How many bytes a text may have, with the values of its variables: as many as a file of a provider. Arguments are written too, before it is
/// known what becomes of them, and all of them together may have as many.
pub const LARGEST: usize = 32 << 20;

/// Text with references to variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

/// Text as it stands, or a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Reference(Reference),
}

/// A variable and what is made of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reference {
    variable: String,
    function: Function,
    arguments: Vec<Piece>,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// A reference that is not of the dialect, with its place and its remedy.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let stripped = legacy::strip(text);
        parse::parse(&stripped).map(|pieces| Self { pieces })
    }

    /// The variables, each with the default of the first place that names it.
    ///
    /// A default is told as it stands, a reference in it by its bare name. As in clusterctl, variables that only a default or
    /// another argument names are not among them (where they are unset they are empty), and the arguments of any function
    /// count as a default: `${V:0:3}` never misses `V`.
    pub fn variables(&self) -> BTreeMap<&str, Option<String>> {
        let mut variables = BTreeMap::new();
        for piece in &self.pieces {
            if let Piece::Reference(reference) = piece {
                variables
                    .entry(reference.variable.as_str())
                    .or_insert_with(|| reference.default());
            }
        }
        variables
    }

    /// The text with the values of a lookup, where `None` is unset.
    ///
    /// # Errors
    ///
    /// Variables that are unset and have no default, all at once and sorted; a substring that is none; more than [`LARGEST`] bytes.
    pub fn substitute<'a>(
        &self,
        lookup: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<String, SubstituteError> {
        let missing: Vec<String> = self
            .variables()
            .into_iter()
            .filter(|(name, default)| default.is_none() && lookup(name).is_none())
            .map(|(name, _)| name.to_owned())
            .collect();
        if !missing.is_empty() {
            return Err(SubstituteError::Unset(missing));
        }
        let (mut text, mut last) = (String::new(), "");
        let (mut all, mut made) = (Room::default(), Room::default());
        for piece in &self.pieces {
            if let Piece::Reference(reference) = piece {
                last = &reference.variable;
            }
            let before = text.len();
            piece.write(&lookup, &mut text, &mut made)?;
            all.take(last, text.len() - before)?;
        }
        Ok(text)
    }
}

impl Piece {
    /// `room` is for arguments and for what is made of them.
    fn write<'a>(
        &self,
        lookup: &impl Fn(&str) -> Option<&'a str>,
        text: &mut String,
        room: &mut Room,
    ) -> Result<(), SubstituteError> {
        match self {
            Self::Text(own) => text.push_str(own),
            Self::Reference(reference) => {
                let variable = &reference.variable;
                let mut arguments = Vec::with_capacity(reference.arguments.len());
                for argument in &reference.arguments {
                    let mut written = String::new();
                    argument.write(lookup, &mut written, room)?;
                    if matches!(argument, Self::Text(_)) {
                        room.take(variable, written.len())?;
                    }
                    arguments.push(written);
                }
                let value = lookup(variable).unwrap_or_default();
                let function = reference.function;
                room.take(variable, function.most(value, &arguments))?;
                text.push_str(&function.apply(variable, value, &arguments)?);
            }
        }
        Ok(())
    }
}

impl Reference {
    fn default(&self) -> Option<String> {
        let mut text = String::new();
        for argument in &self.arguments {
            match argument {
                Piece::Text(own) => text.push_str(own),
                Piece::Reference(inner) => {
                    text.push_str("${");
                    text.push_str(&inner.variable);
                    text.push('}');
                }
            }
        }
        (!text.is_empty()).then_some(text)
    }
}
