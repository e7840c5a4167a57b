//! From text to pieces.

use std::sync::LazyLock;

use regex::Regex;

use crate::{
    Piece, Reference,
    error::{ParseError, Problem},
    function::{Function, Reach},
};

/// How deep references may stand in arguments of others.
pub(crate) const DEEPEST: usize = 32;

/// Reads text whose white space in braces is removed.
pub(crate) fn parse(text: &str) -> Result<Vec<Piece>, ParseError> {
    let mut cursor = Cursor { rest: text };
    let mut pieces = Vec::new();
    while !cursor.rest.is_empty() {
        if cursor.take("${") {
            let before = text.len() - cursor.rest.len() - "${".len();
            let reference = cursor
                .reference(0)
                .map_err(|problem| locate(text, before, problem))?;
            pieces.push(Piece::Reference(reference));
        } else {
            let literal = cursor.text(Escapes::Dollar, |_| true);
            pieces.push(Piece::Text(literal));
        }
    }
    Ok(pieces)
}

fn locate(text: &str, at: usize, problem: Problem) -> ParseError {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    ParseError {
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
        problem,
    }
}

/// Which characters are kept from their meaning in a text.
#[derive(Clone, Copy, PartialEq)]
enum Escapes {
    /// None.
    Nothing,
    /// `$$` is a dollar sign. So it is outside of references, where every character is accepted.
    Dollar,
    /// So it is, and `\/` and `\\` are what follows the backslash.
    Backslash,
}

struct Cursor<'a> {
    rest: &'a str,
}

impl Cursor<'_> {
    /// A reference, behind its `${`.
    fn reference(&mut self, depth: usize) -> Result<Reference, Problem> {
        if depth > DEEPEST {
            return Err(Problem::Deep);
        }
        if self.take("#") {
            let variable = self.name().ok_or(Problem::Form)?;
            self.close()?;
            return Ok(Reference {
                variable,
                function: Function::Length,
                arguments: Vec::new(),
            });
        }
        let variable = self.name().ok_or(Problem::Name)?;
        let (function, arguments) = match self.rest.as_bytes() {
            [b':', b'=' | b'-' | b'?' | b'+', ..] => {
                self.skip(2);
                (Function::Default, self.default(depth)?)
            }
            [b'=', ..] => {
                self.skip(1);
                (Function::Default, self.default(depth)?)
            }
            [b':', ..] => (Function::Substring, self.substring(depth)?),
            [b',' | b'^', ..] => (self.casing()?, Vec::new()),
            [b'/', ..] => self.replacement(depth)?,
            [b'#', ..] => self.trim(b'#', depth)?,
            [b'%', ..] => self.trim(b'%', depth)?,
            _ if self.take("}") => (Function::Default, Vec::new()),
            _ => return Err(Problem::Brace),
        };
        Ok(Reference {
            variable,
            function,
            arguments,
        })
    }

    /// Texts and references up to the brace.
    fn default(&mut self, depth: usize) -> Result<Vec<Piece>, Problem> {
        let mut arguments = Vec::new();
        while !self.take("}") {
            arguments.push(self.argument(Escapes::Nothing, depth, |character| character != '}')?);
        }
        Ok(arguments)
    }

    fn substring(&mut self, depth: usize) -> Result<Vec<Piece>, Problem> {
        self.skip(1);
        if self
            .rest
            .chars()
            .next()
            .is_some_and(|first| !first.is_ascii())
        {
            return Err(Problem::Form);
        }
        let position = self.argument(Escapes::Nothing, depth, |character| {
            !matches!(character, ':' | '}')
        })?;
        if self.take("}") {
            return Ok(vec![position]);
        }
        self.at_least_one(':')?;
        let length = self.argument(Escapes::Nothing, depth, |character| character != '}')?;
        self.close()?;
        Ok(vec![position, length])
    }

    fn casing(&mut self) -> Result<Function, Problem> {
        let function = match self.rest.as_bytes() {
            [b',', b',', ..] => (2, Function::Lower),
            [b'^', b'^', ..] => (2, Function::Upper),
            [b',' | b'^', b',' | b'^', ..] => (2, Function::Default),
            [b',', ..] => (1, Function::LowerFirst),
            _ => (1, Function::UpperFirst),
        };
        self.skip(function.0);
        self.close()?;
        Ok(function.1)
    }

    fn trim(&mut self, sign: u8, depth: usize) -> Result<(Function, Vec<Piece>), Problem> {
        let reach = match self.rest.as_bytes() {
            [_, second, ..] if *second == sign => Reach::Longest,
            _ => Reach::Shortest,
        };
        self.skip(if reach == Reach::Longest { 2 } else { 1 });
        let pattern = self.argument(Escapes::Nothing, depth, |character| character != '}')?;
        self.close()?;
        let function = if sign == b'#' {
            Function::TrimStart(reach)
        } else {
            Function::TrimEnd(reach)
        };
        Ok((function, vec![pattern]))
    }

    /// What is replaced goes up to the next slash, over braces.
    fn replacement(&mut self, depth: usize) -> Result<(Function, Vec<Piece>), Problem> {
        let (length, function) = match self.rest.as_bytes() {
            [_, b'/', ..] => (2, Function::ReplaceAll),
            [_, b'#', ..] => (2, Function::ReplaceStart),
            [_, b'%', ..] => (2, Function::ReplaceEnd),
            _ => (1, Function::ReplaceFirst),
        };
        self.skip(length);
        let replaced = self.argument(Escapes::Backslash, depth, |character| character != '/')?;
        self.at_least_one('/')?;
        if self.take("}") {
            return Ok((function, vec![replaced]));
        }
        let replacement = self.argument(Escapes::Backslash, depth, |character| character != '}')?;
        self.close()?;
        Ok((function, vec![replaced, replacement]))
    }

    /// A reference, or text that is not empty.
    fn argument(
        &mut self,
        escapes: Escapes,
        depth: usize,
        accepts: impl Fn(char) -> bool,
    ) -> Result<Piece, Problem> {
        if self.take("${") {
            return self.reference(depth + 1).map(Piece::Reference);
        }
        let before = self.rest.len();
        let text = self.text(escapes, accepts);
        if self.rest.len() == before {
            return Err(Problem::Argument);
        }
        Ok(Piece::Text(text))
    }

    /// Text up to a reference or to a character that does not belong to it, which an escape lets through.
    fn text(&mut self, escapes: Escapes, accepts: impl Fn(char) -> bool) -> String {
        let mut text = String::new();
        loop {
            // Most of a file is far from any reference.
            let plain = match escapes {
                Escapes::Dollar => self.rest.find('$'),
                Escapes::Nothing | Escapes::Backslash => Some(0),
            };
            let (plain, rest) = self.rest.split_at(plain.unwrap_or(self.rest.len()));
            text.push_str(plain);
            self.rest = rest;
            let escaped = match self.rest.as_bytes() {
                [b'$', b'{', ..] => break,
                [b'$', b'$', ..] if escapes != Escapes::Nothing => Some('$'),
                [b'\\', b'/', ..] if escapes == Escapes::Backslash => Some('/'),
                [b'\\', b'\\', ..] if escapes == Escapes::Backslash => Some('\\'),
                _ => None,
            };
            if let Some(escaped) = escaped {
                text.push(escaped);
                self.skip(2);
                continue;
            }
            match self.rest.chars().next() {
                Some(character) if accepts(character) => {
                    text.push(character);
                    self.skip(character.len_utf8());
                }
                _ => break,
            }
        }
        text
    }

    fn name(&mut self) -> Option<String> {
        let end = self
            .rest
            .find(|character| !is_of_name(character))
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn close(&mut self) -> Result<(), Problem> {
        self.take("}").then_some(()).ok_or(Problem::Form)
    }

    fn at_least_one(&mut self, sign: char) -> Result<(), Problem> {
        let rest = self.rest.trim_start_matches(sign);
        let has = rest.len() < self.rest.len();
        self.rest = rest;
        has.then_some(()).ok_or(Problem::Form)
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

/// A letter, a decimal digit of any script, or an underscore.
fn is_of_name(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric() || character == '_';
    }
    let mut buffer = [0; 4];
    let character = character.encode_utf8(&mut buffer);
    FOREIGN
        .as_ref()
        .is_some_and(|foreign| foreign.is_match(character))
}

static FOREIGN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{L}\p{Nd}]$").ok());
