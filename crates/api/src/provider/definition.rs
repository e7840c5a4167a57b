//! The definitions of the seven kinds.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
        CustomResourceDefinitionSpec, CustomResourceDefinitionVersion,
        CustomResourceSubresourceStatus, CustomResourceSubresources, CustomResourceValidation,
        JSONSchemaProps,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::Transform};
use serde_json::{Value, json};

use super::{GROUP, ProviderSpec, ProviderStatus, ProviderType, VERSION};

/// The definitions of all seven kinds, in the order in which providers are installed.
pub fn provider_definitions() -> Vec<CustomResourceDefinition> {
    ProviderType::ALL.map(definition).into()
}

fn definition(provider: ProviderType) -> CustomResourceDefinition {
    let (kind, plural) = (provider.kind(), provider.plural());
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{plural}.{GROUP}")),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: kind.to_owned(),
                list_kind: Some(format!("{kind}List")),
                plural: plural.to_owned(),
                singular: Some(kind.to_lowercase()),
                short_names: Some(vec![provider.short_name().to_owned()]),
                ..CustomResourceDefinitionNames::default()
            },
            scope: "Namespaced".to_owned(),
            versions: vec![CustomResourceDefinitionVersion {
                name: VERSION.to_owned(),
                served: true,
                storage: true,
                additional_printer_columns: Some(columns()),
                schema: Some(CustomResourceValidation {
                    open_api_v3_schema: Some(whole(provider)),
                }),
                subresources: Some(CustomResourceSubresources {
                    scale: None,
                    status: Some(CustomResourceSubresourceStatus(json!({}))),
                }),
                ..CustomResourceDefinitionVersion::default()
            }],
            ..CustomResourceDefinitionSpec::default()
        },
        ..CustomResourceDefinition::default()
    }
}

fn columns() -> Vec<CustomResourceColumnDefinition> {
    let column = |name: &str, path: &str| CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: "string".to_owned(),
        json_path: path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    };
    vec![
        column("InstalledVersion", ".status.installedVersion"),
        column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
    ]
}

/// A missing spec is one that says nothing, as the existing definition has it.
fn whole(provider: ProviderType) -> JSONSchemaProps {
    let schema = json!({
        "type": "object",
        "description": format!("A {provider} of Cluster API: what should be installed, and how it stands."),
        "properties": {"spec": of::<ProviderSpec>(), "status": of::<ProviderStatus>()},
    });
    serde_json::from_value(schema).unwrap_or_default()
}

fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(AsInGo)
        .into_generator()
        .into_root_schema_for::<T>()
}

/// What a schema of a Go type says: that a field may be missing, and never that it may be null; how wide an integer is where the
/// type says so. There is no null to read either: the API server drops it from a field that may not have it.
#[derive(Clone)]
struct AsInGo;

impl Transform for AsInGo {
    fn transform(&mut self, schema: &mut Schema) {
        schemars::transform::transform_subschemas(self, schema);
        if let Some(Value::Array(choice)) = schema.get("anyOf")
            && let [some, none] = choice.as_slice()
            && none.get("nullable").is_some()
            && let Value::Object(some) = some.clone()
        {
            schema.remove("anyOf");
            for (key, value) in some {
                if schema.get(&key).is_none() {
                    schema.insert(key, value);
                }
            }
        }
        schema.remove("nullable");
        schema.remove("title");
        if schema.get("default").is_some_and(Value::is_null) {
            schema.remove("default");
        }
        let width = schema.get("format").and_then(Value::as_str);
        if matches!(width, Some("int" | "uint" | "uint32")) {
            schema.remove("format");
        }
    }
}
