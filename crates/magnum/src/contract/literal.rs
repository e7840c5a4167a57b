//! Literals of Python: a client that patches a map or a list sends it as a text that Python would read.
//!
//! Read here are what such a text can be made of: maps, lists, texts, numbers, `True`, `False` and `None`. Nothing is evaluated, and
//! length and depth are bounded.

use std::{iter::Peekable, str::Chars};

use serde_json::{Map, Number, Value};

/// The longest text that is read, in bytes.
pub const LONGEST: usize = 65_536;
/// How deep maps and lists may stand in each other.
const DEEPEST: u8 = 8;

/// Why a text is no literal.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it is no literal of Python")]
pub struct NoLiteral;

/// Reads a literal.
///
/// ```
/// let value = magnum::contract::literal::parse("{'kube_tag': \"v1.34.3\", 'n': 1, 'on': True}")?;
/// assert_eq!(value, serde_json::json!({"kube_tag": "v1.34.3", "n": 1, "on": true}));
/// # Ok::<(), magnum::contract::literal::NoLiteral>(())
/// ```
///
/// # Errors
///
/// The text is not one literal of the kinds above, or longer or deeper than is read.
pub fn parse(text: &str) -> Result<Value, NoLiteral> {
    if text.len() > LONGEST {
        return Err(NoLiteral);
    }
    let mut reader = Reader {
        rest: text.chars().peekable(),
    };
    let value = reader.value(DEEPEST)?;
    reader.skip_blanks();
    match reader.rest.next() {
        None => Ok(value),
        Some(_) => Err(NoLiteral),
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
}

impl Reader<'_> {
    fn value(&mut self, depth: u8) -> Result<Value, NoLiteral> {
        let depth = depth.checked_sub(1).ok_or(NoLiteral)?;
        self.skip_blanks();
        match self.rest.peek().copied().ok_or(NoLiteral)? {
            '{' => self.map(depth),
            '[' => self.list(depth),
            '\'' | '"' => self.text().map(Value::String),
            _ => self.word(),
        }
    }

    fn map(&mut self, depth: u8) -> Result<Value, NoLiteral> {
        self.rest.next();
        let mut map = Map::new();
        while !self.closes('}') {
            let key = match self.value(depth)? {
                Value::String(key) => key,
                Value::Number(key) => key.to_string(),
                _ => return Err(NoLiteral),
            };
            self.expect(':')?;
            let value = self.value(depth)?;
            map.insert(key, value);
            self.separated('}')?;
        }
        Ok(Value::Object(map))
    }

    fn list(&mut self, depth: u8) -> Result<Value, NoLiteral> {
        self.rest.next();
        let mut list = Vec::new();
        while !self.closes(']') {
            list.push(self.value(depth)?);
            self.separated(']')?;
        }
        Ok(Value::Array(list))
    }

    fn text(&mut self) -> Result<String, NoLiteral> {
        let quote = self.rest.next().ok_or(NoLiteral)?;
        let mut text = String::new();
        loop {
            match self.rest.next().ok_or(NoLiteral)? {
                end if end == quote => return Ok(text),
                '\\' => text.push(self.escaped()?),
                '\n' | '\r' => return Err(NoLiteral),
                other => text.push(other),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, NoLiteral> {
        match self.rest.next().ok_or(NoLiteral)? {
            same @ ('\\' | '\'' | '"') => Ok(same),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'x' => self.code(2),
            'u' => self.code(4),
            'U' => self.code(8),
            _ => Err(NoLiteral),
        }
    }

    fn code(&mut self, digits: u8) -> Result<char, NoLiteral> {
        let mut code = 0_u32;
        for _ in 0..digits {
            let digit = self.rest.next().and_then(|digit| digit.to_digit(16));
            code = code
                .checked_mul(16)
                .and_then(|code| code.checked_add(digit?))
                .ok_or(NoLiteral)?;
        }
        char::from_u32(code).ok_or(NoLiteral)
    }

    /// A number, or one of the three names.
    fn word(&mut self) -> Result<Value, NoLiteral> {
        let mut word = String::new();
        let is_part = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
        while let Some(part) = self.rest.next_if(is_part) {
            word.push(part);
        }
        match word.as_str() {
            "True" => return Ok(Value::Bool(true)),
            "False" => return Ok(Value::Bool(false)),
            "None" => return Ok(Value::Null),
            _ => {}
        }
        if let Ok(whole) = word.parse::<i64>() {
            return Ok(whole.into());
        }
        let is_digit = |c: char| c.is_ascii_digit();
        let number = word.parse().ok().filter(|_| word.contains(is_digit));
        number
            .and_then(Number::from_f64)
            .map(Value::Number)
            .ok_or(NoLiteral)
    }

    fn skip_blanks(&mut self) {
        while self.rest.next_if(char::is_ascii_whitespace).is_some() {}
    }

    fn expect(&mut self, wanted: char) -> Result<(), NoLiteral> {
        self.skip_blanks();
        self.rest.next_if_eq(&wanted).map(drop).ok_or(NoLiteral)
    }

    fn closes(&mut self, end: char) -> bool {
        self.skip_blanks();
        self.rest.next_if_eq(&end).is_some()
    }

    /// A comma, or the end that stays to be read.
    fn separated(&mut self, end: char) -> Result<(), NoLiteral> {
        self.skip_blanks();
        if self.rest.peek() == Some(&end) {
            return Ok(());
        }
        self.expect(',')
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_python_prints_is_read() {
        let rows = [
            ("{}", json!({})),
            ("[]", json!([])),
            (" { 'a' : 'b' , } ", json!({"a": "b"})),
            (
                "{'a': [1, -2, 1.5, True, None]}",
                json!({"a": [1, -2, 1.5, true, null]}),
            ),
            (r"'it\'s'", json!("it's")),
            (r#""\x41\u00e9\n""#, json!("Aé\n")),
            ("{1: 'one'}", json!({"1": "one"})),
        ];
        for (text, wanted) in rows {
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_literal_is_refused() {
        let deep = "[".repeat(100_000);
        let rows = [
            "",
            "{",
            "{'a'}",
            "{'a': }",
            "[1 2]",
            "'open",
            "__import__('os')",
            "1 + 1",
            "{'a': 1}}",
            "nan",
            "inf",
            "true",
            "{[1]: 2}",
            r"'\q'",
            r"'\ud800'",
            "['a',,]",
            deep.as_str(),
        ];
        for text in rows {
            assert_eq!(
                parse(text),
                Err(NoLiteral),
                "{}",
                &text[..text.len().min(40)]
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "[\\[\\]{}'\", :a-zA-Z0-9\\\\.\\-]{0,64}") {
            let _ = parse(&text);
        }

        #[test]
        fn a_map_of_texts_comes_back(map in prop::collection::btree_map("[a-z]{1,8}", "[^\\\\'\r\n]{0,12}", 0..8)) {
            let entries: Vec<_> = map.iter().map(|(key, value)| format!("'{key}': '{value}'")).collect();
            let parsed = parse(&format!("{{{}}}", entries.join(", ")));
            prop_assert_eq!(parsed, Ok(json!(map)));
        }
    }
}
