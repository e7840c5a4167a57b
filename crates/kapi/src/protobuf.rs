//! Reading request bodies in Kubernetes' protobuf form.
//!
//! kubectl from 1.32 on sends some built-in kinds so and does not fall back. Answers stay JSON, so only decoding is
//! here, by tables of field numbers: the numbers are part of the API and never change, and a code generator would
//! bring a hundred kinds for eight.
//!
//! # Source
//!
//! The `generated.proto` files of k8s.io/api, k8s.io/apimachinery and k8s.io/apiextensions-apiserver (1.34).

mod tables;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value};

use self::tables::{Field, Form};

/// Why a body is not read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The body does not start with `k8s` and a zero.
    #[error("the body is not Kubernetes protobuf")]
    Magic,
    /// The body ends in the middle of a value.
    #[error("the body is cut off")]
    Truncated,
    /// A value has another wire type than its field, or is not what the field holds.
    #[error("the value of {0} does not fit")]
    Value(&'static str),
    /// A kind that has no table.
    #[error("no protobuf form is known for {api_version} {kind}")]
    Kind {
        /// Group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// The object is itself compressed or in another form.
    #[error("unknown content type {0:?}")]
    Content(String),
    /// Messages are nested deeper than any kind does.
    #[error("messages are nested too deep")]
    Depth,
}

/// Decodes a body to the JSON that it stands for. Unknown fields are skipped.
///
/// # Errors
///
/// Bodies that are broken, or of a kind without table.
pub fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    let body = body.strip_prefix(MAGIC).ok_or(DecodeError::Magic)?;
    let envelope = Envelope::read(body)?;
    let known = tables::message(&envelope.api_version, &envelope.kind);
    let Some(table) = known else {
        return Err(DecodeError::Kind {
            api_version: envelope.api_version,
            kind: envelope.kind,
        });
    };
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), envelope.api_version.into());
    object.insert("kind".to_owned(), envelope.kind.into());
    object.extend(message(envelope.raw, table, 0)?);
    Ok(Value::Object(object))
}

/// `runtime.Unknown`: the kind, and the object as bytes.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut envelope = Self::default();
        let mut reader = Reader(body);
        while let Some((number, wire)) = reader.next()? {
            match (number, wire) {
                (1, Wire::Bytes(meta)) => {
                    let mut meta = Reader(meta);
                    while let Some((number, wire)) = meta.next()? {
                        match (number, wire) {
                            (1, Wire::Bytes(text)) => {
                                envelope.api_version = string(text, "apiVersion")?;
                            }
                            (2, Wire::Bytes(text)) => envelope.kind = string(text, "kind")?,
                            _ => {}
                        }
                    }
                }
                (2, Wire::Bytes(raw)) => envelope.raw = raw,
                (3 | 4, Wire::Bytes(text)) if !text.is_empty() => {
                    let content = string(text, "contentType")?;
                    if content != "application/vnd.kubernetes.protobuf" {
                        return Err(DecodeError::Content(content));
                    }
                }
                _ => {}
            }
        }
        Ok(envelope)
    }
}

fn message(bytes: &[u8], table: &[Field], depth: usize) -> Result<Map<String, Value>, DecodeError> {
    if depth > MOST_DEPTH {
        return Err(DecodeError::Depth);
    }
    let mut fields = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        let Some(field) = table.iter().find(|field| field.number == number) else {
            continue;
        };
        read(field, &wire, &mut fields, depth)?;
    }
    Ok(fields)
}

fn read(
    field: &Field,
    wire: &Wire<'_>,
    fields: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), DecodeError> {
    let name = field.name;
    match (field.form, wire) {
        (Form::List(form), wire) => {
            let item = value(*form, wire, name, depth)?;
            let list = fields
                .entry(name)
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(items) = list {
                items.push(item);
            }
        }
        (Form::Map(form), Wire::Bytes(entry)) => {
            let (key, item) = entry_of(entry, *form, name, depth)?;
            let map = fields
                .entry(name)
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = map {
                map.insert(key, item);
            }
        }
        (Form::Kept(form), wire) => {
            fields.insert(name.to_owned(), value(*form, wire, name, depth)?);
        }
        (form, wire) => {
            let value = value(form, wire, name, depth)?;
            // Go writes the zero values of strings, structs and more that were never set.
            let unset = (value == "" && !matches!(form, Form::Pointer))
                || (value == false && matches!(form, Form::Flag))
                || (value == 0 && matches!(form, Form::Count))
                || matches!(&value, Value::Object(fields) if fields.is_empty())
                || value.is_null();
            if !unset {
                fields.insert(name.to_owned(), value);
            }
        }
    }
    Ok(())
}

fn entry_of(
    entry: &[u8],
    form: Form,
    name: &'static str,
    depth: usize,
) -> Result<(String, Value), DecodeError> {
    let (mut key, mut item) = (String::new(), None);
    let mut reader = Reader(entry);
    while let Some((number, wire)) = reader.next()? {
        match (number, &wire) {
            (1, Wire::Bytes(text)) => key = string(text, name)?,
            (2, wire) => item = Some(value(form, wire, name, depth)?),
            _ => {}
        }
    }
    Ok((key, item.unwrap_or_else(|| "".into())))
}

fn value(
    form: Form,
    wire: &Wire<'_>,
    name: &'static str,
    depth: usize,
) -> Result<Value, DecodeError> {
    Ok(match (form, wire) {
        (Form::String | Form::Pointer, Wire::Bytes(bytes)) => string(bytes, name)?.into(),
        (Form::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        // Negative numbers are written as their 64 bits.
        (Form::Integer | Form::Count, Wire::Varint(number)) => number.cast_signed().into(),
        (Form::Bool | Form::Flag, Wire::Varint(number)) => (*number != 0).into(),
        (Form::Time, Wire::Bytes(bytes)) => time(bytes, name, "%Y-%m-%dT%H:%M:%SZ")?,
        (Form::MicroTime, Wire::Bytes(bytes)) => time(bytes, name, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        (Form::Json, Wire::Bytes(bytes)) => {
            let mut reader = Reader(bytes);
            match reader.next()? {
                Some((1, Wire::Bytes(json))) => {
                    serde_json::from_slice(json).map_err(|_| DecodeError::Value(name))?
                }
                _ => Value::Null,
            }
        }
        (Form::Message(table), Wire::Bytes(bytes)) => {
            Value::Object(message(bytes, table, depth + 1)?)
        }
        (Form::Nested(table), Wire::Bytes(bytes)) => {
            Value::Object(message(bytes, table(), depth + 1)?)
        }
        (Form::Either(table), Wire::Bytes(bytes)) => either(message(bytes, table, depth + 1)?),
        (Form::Double, Wire::Fixed(bytes)) => double(bytes, name)?,
        _ => return Err(DecodeError::Value(name)),
    })
}

/// What Go writes as one of several types: the schema, or what there is in its place.
fn either(mut fields: Map<String, Value>) -> Value {
    let schema = fields.shift_remove("schema");
    let mut others = fields.into_iter().map(|(_, other)| other);
    schema.or_else(|| others.next()).unwrap_or_default()
}

/// A number, whole if it is.
fn double(bytes: &[u8], name: &'static str) -> Result<Value, DecodeError> {
    let bytes = bytes.try_into().map_err(|_| DecodeError::Value(name))?;
    let number = f64::from_le_bytes(bytes);
    let whole = number.to_string().parse::<i64>().map(Value::from);
    whole
        .ok()
        .or_else(|| serde_json::Number::from_f64(number).map(Value::Number))
        .ok_or(DecodeError::Value(name))
}

fn time(bytes: &[u8], name: &'static str, format: &str) -> Result<Value, DecodeError> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let mut reader = Reader(bytes);
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Varint(number)) => seconds = number.cast_signed(),
            (2, Wire::Varint(number)) => nanos = number.cast_signed(),
            _ => {}
        }
    }
    let nanos = i32::try_from(nanos).map_err(|_| DecodeError::Value(name))?;
    let time = Timestamp::new(seconds, nanos).map_err(|_| DecodeError::Value(name))?;
    Ok(time.strftime(format).to_string().into())
}

fn string(bytes: &[u8], name: &'static str) -> Result<String, DecodeError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Value(name))
}

/// The wire format: numbered fields.
struct Reader<'a>(&'a [u8]);

enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A number of fixed width.
    Fixed(&'a [u8]),
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, DecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => self.take(8).map(Wire::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| DecodeError::Truncated)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(Wire::Fixed)?,
            _ => return Err(DecodeError::Value("a field of unknown wire type")),
        };
        Ok(Some((tag >> 3, wire)))
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte, rest @ ..] = self.0 else {
                return Err(DecodeError::Truncated);
            };
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError::Truncated)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }
}

const MAGIC: &[u8] = b"k8s\0";

/// Definitions are as deep as their schemas; fifty levels are a hundred of JSON.
const MOST_DEPTH: usize = 50;
