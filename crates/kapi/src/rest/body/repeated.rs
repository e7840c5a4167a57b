//! JSON whose objects may give a field more than once. The last one counts, as in `serde_json`, and each is noted.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value, map::Entry};

/// Decodes JSON, and the paths of the fields that it gives more than once.
pub(crate) fn json(bytes: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    let mut repeated = Vec::new();
    let mut decoder = serde_json::Deserializer::from_slice(bytes);
    let noting = Noting {
        path: &Path::Root,
        repeated: &mut repeated,
    };
    let value = noting.deserialize(&mut decoder)?;
    decoder.end()?;
    Ok((value, repeated))
}

/// Where a value is. Only what is noted is written out.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => out.write_str(name),
            Self::Field(of, name) => write!(out, "{of}.{name}"),
            Self::Item(of, at) => write!(out, "{of}[{at}]"),
        }
    }
}

struct Noting<'a> {
    path: &'a Path<'a>,
    repeated: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Noting<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, decoder: D) -> Result<Value, D::Error> {
        decoder.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Noting<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let noting = Noting {
                path: &Path::Item(self.path, list.len()),
                repeated: self.repeated,
            };
            match items.next_element_seed(noting)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let noting = Noting {
                path: &Path::Field(self.path, &name),
                repeated: self.repeated,
            };
            let value = fields.next_value_seed(noting)?;
            match map.entry(name) {
                Entry::Vacant(field) => {
                    field.insert(value);
                }
                Entry::Occupied(mut field) => {
                    let path = Path::Field(self.path, field.key());
                    self.repeated.push(path.to_string());
                    field.insert(value);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn each_field_that_is_given_again_is_named_and_the_last_one_counts() {
        let text =
            r#"{"a": {"b": 1, "c": [0, {"d": 1, "d": {"e": 2}}], "b": 2}, "a.b": 3, "b": 4}"#;
        let (value, repeated) = super::json(text.as_bytes()).unwrap();
        assert_eq!(repeated, ["a.c[1].d", "a.b"]);
        let last = json!({"a": {"b": 2, "c": [0, {"d": {"e": 2}}]}, "a.b": 3, "b": 4});
        assert_eq!(value, last);
    }

    #[test]
    fn what_repeats_nothing_is_what_it_always_was() {
        for text in [
            "null",
            "-9223372036854775808",
            "18446744073709551615",
            "[1.5e300, true, \"\\u00e4\\n\"]",
            r#"{"a": [[], {}, {"b": null}]}"#,
        ] {
            let (value, repeated) = super::json(text.as_bytes()).unwrap();
            assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
            assert!(repeated.is_empty(), "{repeated:?}");
        }
        for text in ["", "{} x", "{\"a\": }", "1e999"] {
            assert!(super::json(text.as_bytes()).is_err(), "{text}");
        }
    }
}
