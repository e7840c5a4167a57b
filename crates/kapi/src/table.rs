//! Tables: what `kubectl get` prints.
//!
//! The server decides which columns a kind has and what stands in them: for custom kinds by the printer columns of the
//! definition, for built-in kinds as the real API server does.

mod builtin;
mod path;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

pub use self::builtin::builtin_columns;
use self::path::Path;

/// One column.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    cell: Cell,
}

/// How a cell is filled.
#[derive(Clone, Debug)]
enum Cell {
    Path(Path),
    Get(fn(&Value, Timestamp) -> Value),
}

/// How a table is rendered.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether columns of a lower priority are wanted; kubectl always gets them and hides them itself.
    pub wide: bool,
    /// What goes along with each row.
    pub include_object: Include,
    /// The time that ages are counted to.
    pub now: Timestamp,
}

/// What goes along with a row: the `includeObject` of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// The metadata of the object.
    #[default]
    Metadata,
    /// The object.
    Object,
}

/// Renders objects as a `meta.k8s.io/v1` Table; the caller adds the list's metadata.
pub fn render(columns: &[Column], objects: &[&Value], options: &Options) -> Value {
    let shown = || {
        columns
            .iter()
            .filter(|column| options.wide || column.priority == 0)
    };
    let definitions: Vec<_> = shown().map(Column::definition).collect();
    let rows: Vec<_> = objects
        .iter()
        .map(|object| row(shown(), object, options))
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// The columns of one version of a CustomResourceDefinition: the name first, then its own, or the age where it has none.
pub fn crd_columns(version: &Value) -> Vec<Column> {
    let own = version
        .get("additionalPrinterColumns")
        .and_then(Value::as_array);
    let mut columns = vec![Column::name()];
    match own {
        Some(own) => columns.extend(own.iter().map(Column::custom)),
        None => columns.push(Column::creation()),
    }
    columns
}

fn row<'a>(columns: impl Iterator<Item = &'a Column>, object: &Value, options: &Options) -> Value {
    let cells: Vec<_> = columns
        .map(|column| column.cell(object, options.now))
        .collect();
    let mut row = Map::from_iter([("cells".to_owned(), Value::Array(cells))]);
    match options.include_object {
        Include::None => {
            row.insert("object".to_owned(), Value::Null);
        }
        Include::Metadata => {
            let metadata = object.get("metadata").cloned().unwrap_or_default();
            let partial = json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
            });
            row.insert("object".to_owned(), partial);
        }
        Include::Object => {
            row.insert("object".to_owned(), object.clone());
        }
    }
    Value::Object(row)
}

impl Column {
    fn new(name: &str, kind: &str, get: fn(&Value, Timestamp) -> Value) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            cell: Cell::Get(get),
        }
    }

    fn name() -> Self {
        Self {
            format: "name".to_owned(),
            description: "Name of the object, unique among its kind in its namespace.".to_owned(),
            ..Self::new("Name", "string", |object, _| at(object, "/metadata/name"))
        }
    }

    /// The age as custom kinds show it: a date.
    fn creation() -> Self {
        Self {
            description: "Time since the object was created.".to_owned(),
            ..Self::new("Age", "date", |object, now| {
                age(object, "/metadata/creationTimestamp", now)
            })
        }
    }

    fn custom(column: &Value) -> Self {
        let text = |name: &str| {
            column
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: match text("description") {
                empty if empty.is_empty() => format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    text("jsonPath")
                ),
                given => given,
            },
            priority: column
                .get("priority")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            cell: Cell::Path(Path::parse(&text("jsonPath"))),
        }
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match &self.cell {
            Cell::Get(get) => get(object, now),
            Cell::Path(path) => typed(&self.kind, &path.find(object), now),
        }
    }
}

/// The values that a path found, as a cell of the column's type; null where there are none or they do not fit.
fn typed(kind: &str, found: &[&Value], now: Timestamp) -> Value {
    let Some(first) = found.first() else {
        return Value::Null;
    };
    match kind {
        "integer" => first
            .as_i64()
            .or_else(|| whole(first))
            .map_or(Value::Null, Value::from),
        "number" => {
            if first.is_number() {
                (*first).clone()
            } else {
                Value::Null
            }
        }
        "boolean" => {
            if first.is_boolean() {
                (*first).clone()
            } else {
                Value::Null
            }
        }
        // Of several results the first one counts, as on the real server.
        "string" => {
            if first.is_null() {
                Value::Null
            } else {
                text(first).into()
            }
        }
        "date" => match first.as_str() {
            Some(time) => Value::from(since(time, now)),
            None => Value::Null,
        },
        _ => Value::Null,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a cell shows the whole part"
)]
fn whole(value: &Value) -> Option<i64> {
    value.as_f64().map(|number| number as i64)
}

/// A scalar as text, anything else as JSON.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => crate::canonical::canonical(other),
    }
}

fn at(object: &Value, pointer: &str) -> Value {
    object
        .pointer(pointer)
        .cloned()
        .unwrap_or_else(|| Value::from(""))
}

fn age(object: &Value, pointer: &str, now: Timestamp) -> Value {
    let time = object.pointer(pointer).and_then(Value::as_str);
    Value::from(time.map_or_else(|| UNKNOWN.to_owned(), |time| since(time, now)))
}

fn since(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => duration(now.duration_since(time)),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// A duration as kubectl prints ages: two units at most, fewer the longer it is.
pub fn duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let two = |big: i64, unit: &str, small: i64, other: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{other}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{days}d"),
        _ if hours < 24 * 365 * 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

const UNKNOWN: &str = "<unknown>";
