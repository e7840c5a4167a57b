//! Pieces of schema that several types share.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The schema of a newtype that is written as one string.
pub(crate) fn string(description: &str, pattern: &str, max_length: u32) -> Schema {
    json_schema!({
        "type": "string",
        "description": description,
        "pattern": pattern,
        "minLength": 1,
        "maxLength": max_length,
    })
}

/// Free-form variables: any JSON object, kept as it was written.
pub(crate) fn variables(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 1024,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// Labels that select, at least one.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": 63},
    })
}

/// References to Secrets.
pub(crate) fn references(generator: &mut SchemaGenerator) -> Schema {
    by_name::<crate::cluster::SecretRef>(generator, 0, 16)
}

/// Hooks.
pub(crate) fn hooks(generator: &mut SchemaGenerator) -> Schema {
    by_name::<crate::hook::Hook>(generator, 0, 32)
}

/// The environment of a hook.
pub(crate) fn hook_environment(generator: &mut SchemaGenerator) -> Schema {
    by_name::<crate::hook::HookVariable>(generator, 1, 64)
}

/// Remedies that are allowed.
pub(crate) fn remedies(generator: &mut SchemaGenerator) -> Schema {
    each_once::<crate::remedy::Remedy>(generator, 0, 16)
}

/// The operations of a hook.
pub(crate) fn hook_operations(generator: &mut SchemaGenerator) -> Schema {
    each_once::<crate::hook::HookOperation>(generator, 1, 16)
}

/// A list with one entry a name.
pub(crate) fn by_name<T: JsonSchema>(
    generator: &mut SchemaGenerator,
    least: u32,
    most: u32,
) -> Schema {
    let mut schema = list::<T>(generator, least, most, "map");
    let keys = serde_json::json!(["name"]);
    schema.insert("x-kubernetes-list-map-keys".into(), keys);
    schema
}

/// A list with each entry once.
pub(crate) fn each_once<T: JsonSchema>(
    generator: &mut SchemaGenerator,
    least: u32,
    most: u32,
) -> Schema {
    list::<T>(generator, least, most, "set")
}

fn list<T: JsonSchema>(
    generator: &mut SchemaGenerator,
    least: u32,
    most: u32,
    kind: &str,
) -> Schema {
    let items = T::json_schema(generator);
    let mut schema = json_schema!({
        "type": "array",
        "maxItems": most,
        "items": items,
        "x-kubernetes-list-type": kind,
    });
    if least > 0 {
        schema.insert("minItems".into(), least.into());
    }
    schema
}

/// The hosts of a hook, each once.
pub(crate) fn hook_hosts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 64,
        "items": {"type": "string", "minLength": 1, "maxLength": 253},
        "x-kubernetes-list-type": "set",
    })
}

/// Conditions after the Kubernetes convention: a list with one entry a type.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    let mut items = <Condition as schemars::JsonSchema>::json_schema(generator);
    items.insert(
        "required".into(),
        serde_json::json!(["type", "status", "lastTransitionTime", "reason", "message"]),
    );
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// Implements serde and JSON schema for a newtype that is parsed from and shown as one string.
macro_rules! string_newtype {
    ($type:ty, $description:expr, $pattern:expr, $max_length:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                crate::schema::string($description, $pattern, $max_length)
            }
        }
    };
}
pub(crate) use string_newtype;
