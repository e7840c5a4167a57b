//! Files in oslo's style of INI, read and written.
//!
//! # Source
//! The rules of `oslo_config.iniparser`: a key ends at the first `=` or `:`, a line that begins with white space goes on with the value
//! before it, an empty line ends that, and quotes around a whole value are no part of it.

use std::borrow::Cow;

use crate::bounds::NAMED;

/// What a line says. Comments and empty lines say nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Line {
    /// A section begins.
    Section(String),
    /// A setting.
    Setting {
        /// Its key.
        key: String,
        /// Its value, line by line. None: it is empty.
        value: Vec<String>,
        /// Its first line, from 1.
        line: usize,
    },
}

/// What is wrong with a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unreadable {
    /// The line, from 1.
    pub line: usize,
    /// What it should be.
    pub rule: Cow<'static, str>,
}

/// Reads a file.
///
/// # Errors
///
/// A line is none of a section, of a setting and of a comment.
pub fn read(text: &str) -> Result<Vec<Line>, Unreadable> {
    let mut lines = Vec::new();
    // Whether a further line would go on with the last setting.
    let mut is_open = false;
    let mut text = text.split('\n').peekable();
    let mut number = 0;
    while let Some(line) = text.next() {
        if line.is_empty() && text.peek().is_none() {
            break;
        }
        number += 1;
        let refuse = |rule| Unreadable {
            line: number,
            rule: Cow::Borrowed(rule),
        };
        let line = line.trim_end_matches(is_space);
        if line.is_empty() {
            is_open = false;
        } else if line.starts_with([' ', '\t']) {
            match lines.last_mut() {
                Some(Line::Setting { value, .. }) if is_open => {
                    value.push(line.trim_start_matches(is_space).to_owned());
                }
                _ => return Err(refuse(CONTINUES)),
            }
        } else if let Some(rest) = line.strip_prefix('[') {
            is_open = false;
            match rest.strip_suffix(']') {
                None => return Err(refuse(BRACKET)),
                Some("") => return Err(refuse(NAMELESS)),
                // It is told with each of its settings.
                Some(name) if name.len() > NAMED => return Err(refuse(LONG_SECTION)),
                Some(name) => lines.push(Line::Section(name.to_owned())),
            }
        } else if line.starts_with(['#', ';']) {
            is_open = false;
        } else {
            let (key, value) = line.split_once(['=', ':']).ok_or(refuse(SETTING))?;
            let key = key.trim_matches(is_space);
            if key.is_empty() {
                return Err(refuse(KEYLESS));
            }
            // Each further line of a value is written as far in as its key is long.
            if key.len() > NAMED {
                return Err(refuse(LONG));
            }
            is_open = true;
            lines.push(Line::Setting {
                key: key.to_owned(),
                value: vec![unquoted(value.trim_matches(is_space)).to_owned()],
                line: number,
            });
        }
    }
    for line in &mut lines {
        if let Line::Setting { value, .. } = line
            && value.len() == 1
            && value.first().is_some_and(String::is_empty)
        {
            value.clear();
        }
    }
    Ok(lines)
}

/// Writes a setting.
pub fn write(text: &mut String, key: &str, value: &[String]) {
    let Some((first, rest)) = value.split_first() else {
        text.push_str(&format!("{key} =\n"));
        return;
    };
    text.push_str(&format!("{key} = {first}\n"));
    // Further lines stand below the first one.
    let indent = key.chars().count() + " = ".len();
    for line in rest {
        text.push_str(&format!("{:indent$}{line}\n", ""));
    }
}

fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(rest) = value.strip_prefix(quote) {
            if rest.is_empty() {
                return "";
            }
            if let Some(inner) = rest.strip_suffix(quote) {
                return inner;
            }
        }
    }
    value
}

/// What Python calls white space: more than Unicode does.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

const CONTINUES: &str =
    "a line that begins with white space goes on with a value, and there is none before it";
const BRACKET: &str = "a section ends with ]";
const NAMELESS: &str = "a section has a name";
const SETTING: &str = "a setting is KEY = VALUE";
const LONG: &str = "a key has 255 bytes at most";
const LONG_SECTION: &str = "the name of a section has 255 bytes at most";
const KEYLESS: &str = "a setting has a key before its =";
