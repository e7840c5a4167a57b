//! The OpenAPI v3 documents: one per group and version, and their index.
//!
//! They hold what kubectl needs: `explain` looks for the kind by its path and reads the schema, `apply` and `create`
//! look for the parameters of the operations before they ask for validation or a dry run.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{scale, schema::metadata};

/// One served kind.
#[derive(Clone, Copy, Debug)]
pub struct Resource<'a> {
    /// Its plural: `widgets`.
    pub plural: &'a str,
    /// Its kind: `Widget`.
    pub kind: &'a str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it has the status subresource.
    pub status: bool,
    /// The schema of its scale subresource, if it has one.
    pub scale: Option<&'a Value>,
    /// Its schema, as [`crate::schema::Schema::source`] has it.
    pub schema: &'a Value,
}

/// The index at `/openapi/v3`, from the path of each document (`api/v1`, `apis/example.com/v1`) and the document.
///
/// Each address carries a digest of the document, so that clients may cache it for good.
pub fn index(documents: &[(&str, &Value)]) -> Value {
    let paths = documents.iter().map(|(path, document)| {
        let digest = hex::encode_upper(Sha256::digest(crate::canonical::canonical(document)));
        let address = format!("/openapi/v3/{path}?hash={digest}");
        ((*path).to_owned(), json!({"serverRelativeURL": address}))
    });
    json!({"paths": paths.collect::<Map<_, _>>()})
}

/// The document of one group and version; the core group is empty.
pub fn group_version(group: &str, version: &str, resources: &[Resource<'_>]) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    schemas.insert(
        OBJECT_META.to_owned(),
        described(metadata(), "Metadata of every object."),
    );
    for resource in resources {
        let place = Place {
            group,
            version,
            resource,
        };
        schemas.insert(place.component(), place.schema());
        schemas.insert(format!("{}List", place.component()), place.list());
        place.add_paths(&mut paths);
        if let Some(schema) = resource.scale {
            let scale = Resource {
                kind: scale::KIND,
                schema,
                ..*resource
            };
            let scale = Place {
                group: scale::GROUP,
                version: "v1",
                resource: &scale,
            };
            schemas.insert(scale.component(), scale.schema());
            let path = format!("{}/{{name}}/scale", place.collection());
            paths.insert(path, place.object(&scale.component()));
        }
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Windlass", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// A kind in its group and version.
struct Place<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a Resource<'a>,
}

impl Place<'_> {
    /// `com.example.v1.Widget`.
    fn component(&self) -> String {
        let group = match self.group {
            "" => "core.api.k8s.io",
            scale::GROUP => "autoscaling.api.k8s.io",
            group => group,
        };
        let reversed: Vec<_> = group.rsplit('.').collect();
        format!(
            "{}.{}.{}",
            reversed.join("."),
            self.version,
            self.resource.kind
        )
    }

    fn kind(&self) -> Value {
        json!({"group": self.group, "kind": self.resource.kind, "version": self.version})
    }

    fn schema(&self) -> Value {
        let mut schema = self.resource.schema.clone();
        print(&mut schema);
        if let Value::Object(fields) = &mut schema {
            fields.insert(
                "x-kubernetes-group-version-kind".to_owned(),
                json!([self.kind()]),
            );
            let properties = fields.entry("properties").or_insert_with(|| json!({}));
            if let Value::Object(properties) = properties {
                properties.insert(
                    "apiVersion".to_owned(),
                    described(json!({"type": "string"}), API_VERSION),
                );
                properties.insert(
                    "kind".to_owned(),
                    described(json!({"type": "string"}), KIND),
                );
                let metadata = json!({"allOf": [{"$ref": reference(OBJECT_META)}], "default": {}});
                properties.insert(
                    "metadata".to_owned(),
                    described(metadata, "Standard metadata."),
                );
            }
        }
        schema
    }

    fn list(&self) -> Value {
        let kind = format!("{}List", self.resource.kind);
        json!({
            "description": format!("A list of {}.", self.resource.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "items": {"type": "array", "items": {"$ref": reference(&self.component())}},
            },
            "x-kubernetes-group-version-kind":
                [{"group": self.group, "kind": kind, "version": self.version}],
        })
    }

    /// The path of the API's version.
    fn root(&self) -> String {
        match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }

    /// The path of the objects, in one namespace if they are in any.
    fn collection(&self) -> String {
        let namespace = if self.resource.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        format!("{}{namespace}/{}", self.root(), self.resource.plural)
    }

    /// The parameters in the path of an object.
    fn named(&self) -> &'static [&'static str] {
        if self.resource.namespaced {
            &["name", "namespace"]
        } else {
            &["name"]
        }
    }

    fn add_paths(&self, paths: &mut Map<String, Value>) {
        let (component, list) = (self.component(), format!("{}List", self.component()));
        if self.resource.namespaced {
            paths.insert(
                format!("{}/{}", self.root(), self.resource.plural),
                json!({"get": self.operation("list", &list, &[])}),
            );
        }
        let collection = self.collection();
        paths.insert(
            collection.clone(),
            json!({
                "get": self.operation("list", &list, &[]),
                "post": self.operation("post", &component, WRITE),
                "delete": self.operation("deletecollection", &component, &["dryRun"]),
                "parameters": in_path(&self.named()[1..]),
            }),
        );
        let mut object = self.object(&component);
        object["delete"] = self.operation("delete", &component, &["dryRun"]);
        paths.insert(format!("{collection}/{{name}}"), object);
        if self.resource.status {
            paths.insert(
                format!("{collection}/{{name}}/status"),
                self.object(&component),
            );
        }
    }

    /// What can be done with an object or a part of it, which is read and written as this component.
    fn object(&self, component: &str) -> Value {
        json!({
            "get": self.operation("get", component, &[]),
            "put": self.operation("put", component, WRITE),
            "patch": self.operation("patch", component, PATCH),
            "parameters": in_path(self.named()),
        })
    }

    fn operation(&self, action: &str, component: &str, parameters: &[&str]) -> Value {
        let parameters: Vec<_> = parameters.iter().map(|name| query(name)).collect();
        let content = json!({"application/json": {"schema": {"$ref": reference(component)}}});
        let mut operation = json!({
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": content.clone()}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.kind(),
        });
        let body = match action {
            "post" | "put" => Some(content),
            "patch" => {
                let patch = json!({"schema": {"type": "object"}});
                Some(
                    PATCHES
                        .iter()
                        .map(|kind| ((*kind).to_owned(), patch.clone()))
                        .collect(),
                )
            }
            _ => None,
        };
        if let (Some(body), Value::Object(fields)) = (body, &mut operation) {
            fields.insert(
                "requestBody".to_owned(),
                json!({"content": body, "required": true}),
            );
        }
        operation
    }
}

/// Brings a schema into the form in which Kubernetes prints it: whole bounds without a fraction, and what may be an integer
/// or a string for readers who do not know the extension.
fn print(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        for bound in ["maximum", "minimum", "multipleOf"] {
            let number = fields.get(bound).and_then(Value::as_f64);
            if let Some(whole) = number.and_then(|number| number.to_string().parse::<i64>().ok()) {
                fields.insert(bound.to_owned(), json!(whole));
            }
        }
        let either = || json!([{"type": "integer"}, {"type": "string"}]);
        if fields.get("x-kubernetes-int-or-string") == Some(&json!(true))
            && fields.get("allOf").is_none()
        {
            fields.entry("anyOf").or_insert_with(either);
        }
    }
    let children: Vec<&mut Value> = match schema {
        Value::Object(fields) => fields.values_mut().collect(),
        Value::Array(items) => items.iter_mut().collect(),
        _ => Vec::new(),
    };
    children.into_iter().for_each(print);
}

fn described(mut schema: Value, description: &str) -> Value {
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".to_owned(), description.into());
    }
    schema
}

fn reference(component: &str) -> String {
    format!("#/components/schemas/{component}")
}

fn query(name: &str) -> Value {
    let kind = if name == "force" { "boolean" } else { "string" };
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

fn in_path(names: &[&str]) -> Value {
    let each = names.iter().map(
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
    );
    Value::Array(each.collect())
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const API_VERSION: &str = "The version of the schema that this object follows.";
const KIND: &str = "The kind of this object.";
const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
