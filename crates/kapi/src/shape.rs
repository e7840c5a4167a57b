//! The schema of a resource, wherever it comes from.

use std::sync::Arc;

use serde_json::json;

use crate::schema::Schema;

/// The schema of a resource: compiled from its definition, or one of those that are built in.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    BuiltIn(&'static Schema),
    Defined(Arc<Schema>),
}

impl std::ops::Deref for Shape {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            Self::BuiltIn(schema) => schema,
            Self::Defined(schema) => schema,
        }
    }
}

/// The schema in which a built-in kind is stored.
pub(crate) fn built_in_schema(kind: &str) -> Result<Shape, Vec<String>> {
    if let Some(schema) = crate::schema::builtin(kind) {
        return Ok(Shape::BuiltIn(schema));
    }
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    Schema::compile(&anything).map(|schema| Shape::Defined(Arc::new(schema)))
}
