//! What the checker knows of a value: its type, and how large it can get.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::super::node::{Additional, Node, Type as Kind};

/// The type of an expression. The number of a text or a collection is its greatest size.
#[derive(Clone, Debug)]
#[expect(clippy::enum_variant_names, reason = "types are of a type too")]
pub(in crate::schema) enum Type {
    /// Known only when the rule runs.
    Dyn(u64),
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Timestamp,
    Duration,
    String(u64),
    Bytes(u64),
    List(Arc<Type>, u64),
    Map(Arc<Type>, Arc<Type>, u64),
    Object(Arc<Fields>),
    Optional(Arc<Type>),
    /// A value of a library, which only its functions look into.
    Opaque(&'static str),
    /// What `type()` gives.
    Type,
    /// Any one type, in the signature of a function.
    Any(char),
}

/// The fields of an object as rules name them.
#[derive(Debug, Default)]
pub(in crate::schema) struct Fields(pub BTreeMap<String, Type>);

impl Type {
    /// How many elements or characters a value has at most.
    pub fn size(&self) -> u64 {
        match self {
            Self::Dyn(most)
            | Self::String(most)
            | Self::Bytes(most)
            | Self::List(_, most)
            | Self::Map(_, _, most) => *most,
            _ => 1,
        }
    }

    /// What it costs at most to look at all of a value.
    pub fn weight(&self) -> u64 {
        match self {
            Self::String(most) | Self::Bytes(most) | Self::Dyn(most) => most.div_ceil(10).max(1),
            Self::List(item, most) => most.saturating_mul(item.weight()),
            Self::Map(key, value, most) => {
                most.saturating_mul(key.weight().saturating_add(value.weight()))
            }
            Self::Object(fields) => fields
                .0
                .values()
                .fold(1, |sum, field| sum.saturating_add(field.weight())),
            Self::Optional(inner) => inner.weight(),
            _ => 1,
        }
    }

    /// The type of any value, as large as a request can be.
    pub fn dynamic() -> Self {
        Self::Dyn(REQUEST)
    }

    pub fn list(item: Self, most: u64) -> Self {
        Self::List(Arc::new(item), most)
    }

    /// Whether two types are one, whatever their sizes.
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a, _), Self::List(b, _)) | (Self::Optional(a), Self::Optional(b)) => {
                a.same(b)
            }
            (Self::Map(a, b, _), Self::Map(c, d, _)) => a.same(c) && b.same(d),
            (Self::Object(a), Self::Object(b)) => Arc::ptr_eq(a, b),
            (Self::Opaque(a), Self::Opaque(b)) => a == b,
            (Self::Any(a), Self::Any(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// The type of both, with the greater size, if they can stand for each other.
    pub fn join(&self, other: &Self) -> Option<Self> {
        let larger = self.size().max(other.size());
        Some(match (self, other) {
            (Self::Dyn(_), _) | (_, Self::Dyn(_)) => Self::Dyn(larger),
            (Self::Null, kind) | (kind, Self::Null) if kind.takes_null() => kind.clone(),
            (Self::String(_), Self::String(_)) => Self::String(larger),
            (Self::Bytes(_), Self::Bytes(_)) => Self::Bytes(larger),
            (Self::List(a, _), Self::List(b, _)) => Self::list(a.join(b)?, larger),
            (Self::Map(a, b, _), Self::Map(c, d, _)) => {
                Self::Map(Arc::new(a.join(c)?), Arc::new(b.join(d)?), larger)
            }
            (Self::Optional(a), Self::Optional(b)) => Self::Optional(Arc::new(a.join(b)?)),
            _ if self.same(other) => self.clone(),
            _ => return None,
        })
    }

    /// Whether a map may have such keys.
    pub fn is_key(&self) -> bool {
        matches!(
            self,
            Self::Bool | Self::Int | Self::Uint | Self::String(_) | Self::Dyn(_)
        )
    }

    fn takes_null(&self) -> bool {
        matches!(
            self,
            Self::Null | Self::Object(_) | Self::Opaque(_) | Self::Timestamp | Self::Duration
        )
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn(_) => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::String(_) => f.write_str("string"),
            Self::Bytes(_) => f.write_str("bytes"),
            Self::List(item, _) => write!(f, "list({item})"),
            Self::Map(key, value, _) => write!(f, "map({key}, {value})"),
            Self::Object(_) => f.write_str("object"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::Opaque(name) => f.write_str(name),
            Self::Type => f.write_str("type"),
            Self::Any(name) => write!(f, "{name}"),
        }
    }
}

/// The type of a place in the schema, and the fewest bytes that a value takes there. A place without a type is not to be seen
/// by rules.
pub(in crate::schema) fn declare(node: &Node, whole: bool) -> Option<(Type, u64)> {
    let bounded =
        |given: Option<u64>, least: u64| given.unwrap_or_else(|| (REQUEST - 2) / least.max(1));
    let text = node.checks.max_length;
    match node.kind {
        Kind::IntOrString => Some((Type::Dyn(text.unwrap_or(REQUEST - 2)), 1)),
        Kind::Boolean => Some((Type::Bool, 4)),
        Kind::Integer => Some((Type::Int, 1)),
        Kind::Number => Some((Type::Double, 1)),
        Kind::String => Some((string(node), 2)),
        Kind::Array => {
            let item = node.items.as_deref()?;
            let (item, least) = declare(item, item.embedded)?;
            let most = bounded(node.checks.max_items, least + 1);
            Some((Type::list(item, most), 2))
        }
        Kind::Object => object(node, whole),
        Kind::Any if whole => object(node, whole),
        Kind::Any => None,
    }
}

fn string(node: &Node) -> Type {
    let longest = |value: &serde_json::Value| value.as_str().map_or(0, |text| text.len() as u64);
    let checks = &node.checks;
    match checks.format.as_deref() {
        Some("byte") => Type::Bytes(checks.max_length.unwrap_or(REQUEST - 2)),
        Some("duration") => Type::Duration,
        Some("date" | "date-time") => Type::Timestamp,
        _ => {
            let listed = checks.values.iter().map(longest).max();
            Type::String(checks.max_length.or(listed).unwrap_or(REQUEST - 2))
        }
    }
}

fn object(node: &Node, whole: bool) -> Option<(Type, u64)> {
    if let Additional::Node(value) = &node.additional {
        let (value, least) = declare(value, value.embedded)?;
        let most = node.checks.max_properties;
        let most = most.unwrap_or_else(|| (REQUEST - 2) / (least + 6));
        let key = Arc::new(Type::String(REQUEST - 2));
        return Some((Type::Map(key, Arc::new(value), most), 2));
    }
    let mut fields = BTreeMap::new();
    let mut least = 2;
    for (name, child) in &node.properties {
        if whole && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let Some((kind, size)) = declare(child, child.embedded) else {
            continue;
        };
        if node.checks.required.contains(name) && child.default.is_none() {
            least += name.len() as u64 + size + 4;
        }
        if let Some(name) = escaped(name) {
            fields.insert(name, kind);
        }
    }
    if whole {
        let text = || Type::String(REQUEST - 2);
        let names = ["name", "generateName"].map(|name| (name.to_owned(), text()));
        let metadata = Type::Object(Arc::new(Fields(names.into())));
        fields.insert("metadata".to_owned(), metadata);
        fields.insert("apiVersion".to_owned(), text());
        fields.insert("kind".to_owned(), text());
    }
    Some((Type::Object(Arc::new(Fields(fields))), least))
}

/// The name by which rules know a field; some have none.
pub(in crate::schema) fn escaped(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') || !name.chars().all(legal)
    {
        return None;
    }
    let mut text = name.to_owned();
    for (plain, word) in ESCAPES {
        text = text.replace(plain, word);
    }
    Some(text)
}

/// The field that a rule means.
pub(in crate::schema) fn unescaped(name: &str) -> String {
    let inner = name
        .strip_prefix("__")
        .and_then(|name| name.strip_suffix("__"));
    if let Some(word) = inner.filter(|word| RESERVED.contains(word)) {
        return word.to_owned();
    }
    let mut text = String::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some((plain, word)) = ESCAPES.iter().find(|(_, word)| rest.starts_with(word)) {
            text.push_str(plain);
            rest = &rest[word.len()..];
        } else {
            text.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    text
}

/// Two underscores first: the other words are made of them.
const ESCAPES: [(&str, &str); 4] = [
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
];

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The bytes of the largest request: what has no bound of its own is not larger.
pub(in crate::schema) const REQUEST: u64 = 3 * 1024 * 1024;
