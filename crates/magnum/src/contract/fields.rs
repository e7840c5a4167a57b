//! The members of a body.
//!
//! Each is read once and by its type; whatever is left is unknown and refused. Numbers and truths may arrive as texts, as some
//! clients send every value so, and null is the same as nothing: but for a member that is unknown or not for clients to write.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Fault, literal};

/// The longest list or map, and the longest text in a map.
const MOST: usize = 256;
const LONGEST: usize = 4096;

/// Members that were not read yet.
#[derive(Clone, Debug)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Of a body.
    ///
    /// # Errors
    ///
    /// The body is no JSON object.
    pub fn of_body(body: &[u8]) -> Result<Self, Fault> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => Ok(Self::new(members)),
            Ok(_) => Err(Fault::invalid("The body must be an object.")),
            Err(_) => Err(Fault::invalid("The body is not JSON.")),
        }
    }

    /// Of an object.
    pub fn new(members: Map<String, Value>) -> Self {
        Self(members)
    }

    /// Forgets a member that is null.
    #[must_use]
    pub fn without_null(mut self, name: &str) -> Self {
        if self.0.get(name).is_some_and(Value::is_null) {
            self.0.shift_remove(name);
        }
        self
    }

    /// Refuses members that are not for clients to write.
    ///
    /// # Errors
    ///
    /// One of them is there.
    pub fn refuse(&self, names: &[&str]) -> Result<(), Fault> {
        match names.iter().find(|name| self.0.contains_key(**name)) {
            Some(name) => Err(Fault::invalid(format!(
                "Cannot set read only field {name}."
            ))),
            None => Ok(()),
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    ///
    /// Something was not read, and is therefore unknown.
    pub fn finish(self) -> Result<(), Fault> {
        match self.0.keys().next() {
            Some(name) => {
                let name: String = name.chars().take(256).collect();
                Err(Fault::invalid(format!("Unknown attribute {name}.")))
            }
            None => Ok(()),
        }
    }

    /// Any value.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Whether a member is there and null.
    pub fn is_null(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(Value::is_null)
    }

    /// A text of at most `longest` characters; an empty one is the same as nothing.
    ///
    /// # Errors
    ///
    /// It is no text, or longer.
    pub fn remark(&mut self, name: &str, longest: usize) -> Result<Option<String>, Fault> {
        if self.0.get(name).is_some_and(|value| value == "") {
            self.0.shift_remove(name);
        }
        self.text(name, longest)
    }

    /// A text of 1 to `longest` characters.
    ///
    /// # Errors
    ///
    /// It is no text, empty or longer.
    pub fn text(&mut self, name: &str, longest: usize) -> Result<Option<String>, Fault> {
        match self.value(name) {
            None => Ok(None),
            Some(value @ Value::String(_)) if value == "" => {
                let reason = "Value should have a minimum character requirement of 1";
                Err(Fault::field(name, &value, reason))
            }
            Some(Value::String(text)) if text.chars().count() <= longest => Ok(Some(text)),
            Some(value @ Value::String(_)) => {
                let reason =
                    format!("Value should have a maximum character requirement of {longest}");
                Err(Fault::field(name, &value, reason))
            }
            Some(value) => Err(Fault::field(name, &value, "Value should be string.")),
        }
    }

    /// One of a few words.
    ///
    /// # Errors
    ///
    /// It is another one.
    pub fn word<T: serde::de::DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Fault> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        serde_json::from_value(value.clone())
            .map(Some)
            .map_err(|error| Fault::field(name, &value, error))
    }

    /// A whole number of at least `least`.
    ///
    /// # Errors
    ///
    /// It is no whole number, or a smaller or much larger one.
    pub fn count(&mut self, name: &str, least: u32) -> Result<Option<u32>, Fault> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let number = match &value {
            Value::String(text) => text.trim().parse().ok(),
            other => other.as_i64(),
        };
        let number = number.and_then(|number| u32::try_from(number).ok());
        match number {
            Some(number) if number < least => {
                let reason = format!("Value should be greater or equal to {least}");
                Err(Fault::field(name, &value, reason))
            }
            // What is counted is stored as an integer of 31 bits by other programs.
            Some(number) if number <= i32::MAX.unsigned_abs() => Ok(Some(number)),
            _ => Err(Fault::field(name, &value, "Value should be a whole number")),
        }
    }

    /// Yes or no.
    ///
    /// # Errors
    ///
    /// It is neither.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, Fault> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let word = match &value {
            Value::Bool(flag) => return Ok(Some(*flag)),
            Value::String(text) => text.to_ascii_lowercase(),
            other => other.to_string(),
        };
        match word.as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Ok(Some(true)),
            "0" | "false" | "f" | "no" | "n" | "off" => Ok(Some(false)),
            _ => Err(Fault::field(name, &value, "Value should be yes or no")),
        }
    }

    /// A map of texts. Numbers and truths become texts as Python writes them.
    ///
    /// # Errors
    ///
    /// It is no map, or something in it is a map or list, or too much.
    pub fn texts(&mut self, name: &str) -> Result<Option<BTreeMap<String, String>>, Fault> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let read = |value: &Value| match value {
            Value::String(text) => literal::parse(text).ok(),
            other => Some(other.clone()),
        };
        let Some(Value::Object(map)) = read(&value) else {
            return Err(Fault::field(name, &value, "Value should be a map"));
        };
        if map.len() > MOST {
            return Err(Fault::field(
                name,
                &value,
                format!("Value has more than {MOST} entries"),
            ));
        }
        let mut texts = BTreeMap::new();
        for (key, entry) in map {
            let text = python(&entry).filter(|text| text.len() <= LONGEST && key.len() <= LONGEST);
            let text = text.ok_or_else(|| {
                Fault::field(name, &entry, format!("The value of {key} should be a text"))
            })?;
            texts.insert(key, text);
        }
        Ok(Some(texts))
    }

    /// A list of texts.
    ///
    /// # Errors
    ///
    /// It is no list, or something in it is no text, or too much.
    pub fn list(&mut self, name: &str) -> Result<Vec<String>, Fault> {
        let Some(value) = self.value(name) else {
            return Ok(Vec::new());
        };
        let entries = match &value {
            Value::Array(entries) if entries.len() <= MOST => entries,
            _ => return Err(Fault::field(name, &value, "Value should be a list")),
        };
        let texts = entries
            .iter()
            .map(|entry| entry.as_str().map(str::to_owned));
        let texts: Option<Vec<_>> = texts.collect();
        let short = |texts: &Vec<String>| texts.iter().all(|text| text.len() <= LONGEST);
        texts
            .filter(short)
            .ok_or_else(|| Fault::field(name, &value, "Value should be a list of texts"))
    }
}

/// A plain value as Python writes it.
fn python(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: &Value) -> Fields {
        Fields::of_body(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn numbers_and_truths_may_be_texts() {
        let mut fields = fields(&json!({"a": "2", "b": 2, "c": "true", "d": 0, "e": null}));
        assert_eq!(fields.count("a", 0).unwrap(), Some(2));
        assert_eq!(fields.count("b", 2).unwrap(), Some(2));
        assert_eq!(fields.flag("c").unwrap(), Some(true));
        assert_eq!(fields.flag("d").unwrap(), Some(false));
        assert_eq!(fields.text("e", 9).unwrap(), None);
        fields.finish().unwrap();
    }

    #[test]
    fn labels_are_kept_as_python_writes_them() {
        let labels =
            fields(&json!({"labels": {"a": 1, "b": true, "c": 1.5, "d": "x"}})).texts("labels");
        let labels = labels.unwrap().unwrap();
        let texts: Vec<_> = labels.values().map(String::as_str).collect();
        assert_eq!(texts, ["1", "True", "1.5", "x"]);
    }

    #[test]
    fn every_wrong_value_is_a_bad_request() {
        let wrong = |value: Value, read: fn(&mut Fields) -> Result<(), Fault>| {
            let fault = read(&mut fields(&json!({"x": value}))).unwrap_err();
            assert_eq!(fault.status(), 400, "{value}");
        };
        for value in [
            json!(-1),
            json!("two"),
            json!(1.5),
            json!([]),
            json!(3_000_000_000_u64),
        ] {
            wrong(value, |fields| fields.count("x", 0).map(drop));
        }
        for value in [json!("maybe"), json!(2), json!({})] {
            wrong(value, |fields| fields.flag("x").map(drop));
        }
        for value in [json!(1), json!("long"), json!("")] {
            wrong(value, |fields| fields.text("x", 3).map(drop));
        }
        for value in [json!("{"), json!([]), json!({"a": {}}), json!({"a": null})] {
            wrong(value, |fields| fields.texts("x").map(drop));
        }
        for value in [json!("a"), json!([1])] {
            wrong(value, |fields| fields.list("x").map(drop));
        }
        for value in [json!(1), Value::Null] {
            wrong(value.clone(), |fields| fields.refuse(&["x"]));
            wrong(value, |fields| fields.clone().finish());
        }
    }

    #[test]
    fn a_remark_may_be_empty() {
        let mut fields = fields(&json!({"a": "", "b": "c", "d": null}));
        assert!(fields.is_null("d") && !fields.is_null("a"));
        assert_eq!(fields.remark("a", 9).unwrap(), None);
        assert_eq!(fields.remark("b", 9).unwrap().as_deref(), Some("c"));
        assert_eq!(fields.remark("d", 9).unwrap(), None);
        fields.finish().unwrap();
    }

    #[test]
    fn a_body_that_is_no_object_is_refused() {
        for body in ["", "[]", "1", "{"] {
            assert_eq!(
                Fields::of_body(body.as_bytes()).unwrap_err().status(),
                400,
                "{body}"
            );
        }
    }
}
