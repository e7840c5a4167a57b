//! The objects of the levels, and the clusters.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{FleetClusterStatus, ValuePath};

/// What an object of a level says, whatever its kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Which objects of weaker levels it belongs to: level, then name.
    pub parents: BTreeMap<String, String>,
    /// Its values.
    pub values: Map<String, Value>,
    /// What no stronger level may set.
    pub locks: Vec<ValuePath>,
    /// The ClusterTemplate.
    pub template: Option<String>,
}

/// The kinds that stand on a level have the same fields, and each its own definition.
macro_rules! level {
    ($kind:literal, $short:literal, $object:ident, $spec:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(
            CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize,
        )]
        #[kube(
            group = "inventory.windlass.dev",
            version = "v1alpha1",
            kind = $kind,
            namespaced,
            shortname = $short,
            category = "windlass",
            doc = $doc,
            printcolumn(name = "Site", type_ = "string", json_path = ".spec.parents.site", priority = 1),
            printcolumn(name = "Template", type_ = "string", json_path = ".spec.template"),
            printcolumn(name = "Locks", type_ = "string", json_path = ".spec.final", priority = 1),
            printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
        )]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $spec {
            /// Which objects of weaker levels it belongs to: the level's name, then the object's. Who belongs to it belongs to
            /// them too.
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            #[schemars(schema_with = "parents_schema")]
            pub parents: BTreeMap<String, String>,
            /// Values: any YAML. `{secretKeyRef: {name, key}}` and `{vault: {path, key}}` are references, never what they refer to;
            /// `{$template: TEXT}` is a text that is rendered; all else is data, whatever it looks like.
            #[serde(
                default,
                deserialize_with = "values_or_none",
                skip_serializing_if = "Map::is_empty"
            )]
            #[schemars(schema_with = "values_schema")]
            pub values: Map<String, Value>,
            /// Paths of values that no stronger level may set.
            #[serde(default, rename = "final", skip_serializing_if = "Vec::is_empty")]
            #[schemars(length(max = 256))]
            pub locks: Vec<ValuePath>,
            /// The ClusterTemplate of the clusters; the strongest level that names one wins.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(length(min = 1, max = 253))]
            pub template: Option<String>,
        }

        impl From<$spec> for Settings {
            fn from(spec: $spec) -> Self {
                let $spec {
                    parents,
                    values,
                    locks,
                    template,
                } = spec;
                Self {
                    parents,
                    values,
                    locks,
                    template,
                }
            }
        }
    };
}

level!(
    "Environment",
    "fenv",
    Environment,
    EnvironmentSpec,
    "What the clusters of an environment, for example production, have in common."
);
level!(
    "Customer",
    "fcust",
    Customer,
    CustomerSpec,
    "What the clusters of a customer have in common."
);
level!(
    "Site",
    "fsite",
    Site,
    SiteSpec,
    "What the clusters of a site have in common."
);
level!(
    "InfraProvider",
    "finfra",
    InfraProvider,
    InfraProviderSpec,
    "What the clusters on one infrastructure have in common."
);

/// A cluster of a fleet: which objects it inherits from, and the little that is its own.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "inventory.windlass.dev",
    version = "v1alpha1",
    kind = "FleetCluster",
    namespaced,
    status = "FleetClusterStatus",
    shortname = "fc",
    category = "windlass",
    doc = "A cluster of a fleet, rendered from what it inherits and the little that is its own.",
    printcolumn(name = "Rendered", type_ = "string", json_path = ".status.rendered"),
    printcolumn(name = "Applied", type_ = "string", json_path = ".status.applied"),
    printcolumn(name = "Pending", type_ = "integer", json_path = ".status.pending.fields"),
    printcolumn(name = "Health", type_ = "string", json_path = ".status.health"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Vault", type_ = "string", json_path = ".status.conditions[?(@.type=='VaultUnavailable')].reason"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    printcolumn(name = "Hierarchy", type_ = "string", json_path = ".spec.hierarchy", priority = 1),
    printcolumn(name = "Template", type_ = "string", json_path = ".spec.template", priority = 1),
    validation = ("size(self.metadata.name) <= 200", "the name of a FleetCluster has 200 characters at most: its FleetRevisions are named after it"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FleetClusterSpec {
    /// The Hierarchy. Default: the only one of the namespace, or the one that is named `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub hierarchy: Option<String>,
    /// Which objects it inherits from: the level's name, then the object's. Those that a parent names itself may be left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "parents_schema")]
    pub parents: BTreeMap<String, String>,
    /// Its own values, in the form of those of a level. They override all others.
    #[serde(
        default,
        deserialize_with = "values_or_none",
        skip_serializing_if = "Map::is_empty"
    )]
    #[schemars(schema_with = "values_schema")]
    pub values: Map<String, Value>,
    /// The ClusterTemplate. Default: the one that the strongest level names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub template: Option<String>,
}

fn parents_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 253},
    })
}

/// Values, or null: an API server makes that of a map whose last key goes by server-side apply.
fn values_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = crate::schema::variables(generator);
    schema.insert("nullable".to_owned(), true.into());
    schema
}

fn values_or_none<'de, D: serde::Deserializer<'de>>(
    values: D,
) -> Result<Map<String, Value>, D::Error> {
    Option::deserialize(values).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_values_may_be_said_by_null() {
        let cluster: FleetClusterSpec =
            serde_json::from_value(json!({"parents": {"site": "a"}, "values": null})).unwrap();
        assert_eq!(cluster.values, Map::new());
        let site: SiteSpec = serde_json::from_value(json!({"values": null})).unwrap();
        assert_eq!(site.values, Map::new());
    }
}
