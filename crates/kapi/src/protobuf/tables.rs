//! The field numbers of the kinds.

/// One field of a message.
pub(super) struct Field {
    pub number: u64,
    pub name: &'static str,
    pub form: Form,
}

/// What a field holds.
#[derive(Clone, Copy)]
pub(super) enum Form {
    String,
    /// A string that Go keeps a pointer to: one that is empty was set so.
    Pointer,
    Bytes,
    Integer,
    /// An integer that is not set when it is 0.
    Count,
    Double,
    Bool,
    /// A Bool that is not set when it is false.
    Flag,
    Time,
    MicroTime,
    /// JSON as bytes in a message of its own.
    Json,
    Message(&'static [Field]),
    /// A message that may hold others of its kind.
    Nested(fn() -> &'static [Field]),
    /// A message for what is one of several types in JSON: a schema, or something else.
    Either(&'static [Field]),
    /// What Go keeps a pointer to, other than a string: it is there even if it is empty.
    Kept(&'static Form),
    List(&'static Form),
    Map(&'static Form),
}

/// The table of a kind.
pub(super) fn message(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    Some(match (api_version, kind) {
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "Secret") => SECRET,
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Event") => CORE_EVENT,
        ("v1", "ServiceAccount") => SERVICE_ACCOUNT,
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => DEFINITION,
        ("events.k8s.io/v1", "Event") => EVENT,
        ("coordination.k8s.io/v1", "Lease") => LEASE,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => ACCESS_REVIEW,
        ("authentication.k8s.io/v1", "SelfSubjectReview") => SUBJECT_REVIEW,
        // Options travel in the version of the resource that is deleted.
        (_, "DeleteOptions") => DELETE_OPTIONS,
        _ => return None,
    })
}

const fn field(number: u64, name: &'static str, form: Form) -> Field {
    Field { number, name, form }
}

use Form::{
    Bool, Bytes, Count, Double, Either, Flag, Integer, Json, Kept, List, Map, Message, MicroTime,
    Nested, Pointer, String, Time,
};

const ACCESS_REVIEW: &[Field] = &[
    field(1, "metadata", Message(METADATA)),
    field(
        2,
        "spec",
        Message(&[
            field(1, "resourceAttributes", Message(RESOURCE_ATTRIBUTES)),
            field(
                2,
                "nonResourceAttributes",
                Message(&[field(1, "path", String), field(2, "verb", String)]),
            ),
        ]),
    ),
];

const RESOURCE_ATTRIBUTES: &[Field] = &[
    field(1, "namespace", String),
    field(2, "verb", String),
    field(3, "group", String),
    field(4, "version", String),
    field(5, "resource", String),
    field(6, "subresource", String),
    field(7, "name", String),
];

const SUBJECT_REVIEW: &[Field] = &[field(1, "metadata", Message(METADATA))];

const NAMESPACE: &[Field] = &[
    field(1, "metadata", Message(METADATA)),
    field(2, "spec", Message(&[field(1, "finalizers", List(&String))])),
    field(3, "status", Message(NAMESPACE_STATUS)),
];

const NAMESPACE_STATUS: &[Field] = &[
    field(1, "phase", String),
    field(2, "conditions", List(&Message(NAMESPACE_CONDITION))),
];

const NAMESPACE_CONDITION: &[Field] = &[
    field(1, "type", String),
    field(2, "status", String),
    field(4, "lastTransitionTime", Time),
    field(5, "reason", String),
    field(6, "message", String),
];

const SECRET: &[Field] = &[
    field(1, "metadata", Message(METADATA)),
    field(2, "data", Map(&Bytes)),
    field(3, "type", String),
    field(4, "stringData", Map(&String)),
    field(5, "immutable", Bool),
];

const CONFIG_MAP: &[Field] = &[
    field(1, "metadata", Message(METADATA)),
    field(2, "data", Map(&String)),
    field(3, "binaryData", Map(&Bytes)),
    field(4, "immutable", Bool),
];

const CORE_EVENT: &[Field] = &[
    field(1, "metadata", Message(METADATA)),
    field(2, "involvedObject", Message(REFERENCE)),
    field(3, "reason", String),
    field(4, "message", String),
    field(5, "source", Message(SOURCE)),
    field(6, "firstTimestamp", Time),
    field(7, "lastTimestamp", Time),
    field(8, "count", Integer),
    field(9, "type", String),
    field(10, "eventTime", MicroTime),
    field(11, "series", Message(SERIES)),
    field(12, "action", String),
    field(13, "related", Message(REFERENCE)),
    field(14, "reportingComponent", String),
    field(15, "reportingInstance", String),
];

const EVENT: &[Field] = &[
    field(1, "metadata", Message(METADATA)),
    field(2, "eventTime", MicroTime),
    field(3, "series", Message(SERIES)),
    field(4, "reportingController", String),
    field(5, "reportingInstance", String),
    field(6, "action", String),
    field(7, "reason", String),
    field(8, "regarding", Message(REFERENCE)),
    field(9, "related", Message(REFERENCE)),
    field(10, "note", String),
    field(11, "type", String),
    field(12, "deprecatedSource", Message(SOURCE)),
    field(13, "deprecatedFirstTimestamp", Time),
    field(14, "deprecatedLastTimestamp", Time),
    field(15, "deprecatedCount", Integer),
];

const SOURCE: &[Field] = &[field(1, "component", String), field(2, "host", String)];

const SERIES: &[Field] = &[
    field(1, "count", Integer),
    field(2, "lastObservedTime", MicroTime),
];

const REFERENCE: &[Field] = &[
    field(1, "kind", String),
    field(2, "namespace", String),
    field(3, "name", String),
    field(4, "uid", String),
    field(5, "apiVersion", String),
    field(6, "resourceVersion", String),
    field(7, "fieldPath", String),
];

const SERVICE_ACCOUNT: &[Field] = &[
    field(1, "metadata", Message(METADATA)),
    field(2, "secrets", List(&Message(REFERENCE))),
    field(
        3,
        "imagePullSecrets",
        List(&Message(&[field(1, "name", String)])),
    ),
    field(4, "automountServiceAccountToken", Bool),
];

const LEASE: &[Field] = &[
    field(1, "metadata", Message(METADATA)),
    field(2, "spec", Message(LEASE_SPEC)),
];

const LEASE_SPEC: &[Field] = &[
    field(1, "holderIdentity", Pointer),
    field(2, "leaseDurationSeconds", Integer),
    field(3, "acquireTime", MicroTime),
    field(4, "renewTime", MicroTime),
    field(5, "leaseTransitions", Integer),
    field(6, "strategy", Pointer),
    field(7, "preferredHolder", Pointer),
];

const DELETE_OPTIONS: &[Field] = &[
    field(1, "gracePeriodSeconds", Integer),
    field(
        2,
        "preconditions",
        Message(&[field(1, "uid", String), field(2, "resourceVersion", String)]),
    ),
    field(3, "orphanDependents", Bool),
    field(4, "propagationPolicy", String),
    field(5, "dryRun", List(&String)),
];

const METADATA: &[Field] = &[
    field(1, "name", String),
    field(2, "generateName", String),
    field(3, "namespace", String),
    field(4, "selfLink", String),
    field(5, "uid", String),
    field(6, "resourceVersion", String),
    field(7, "generation", Integer),
    field(8, "creationTimestamp", Time),
    field(9, "deletionTimestamp", Time),
    field(10, "deletionGracePeriodSeconds", Integer),
    field(11, "labels", Map(&String)),
    field(12, "annotations", Map(&String)),
    field(13, "ownerReferences", List(&Message(OWNER))),
    field(14, "finalizers", List(&String)),
    field(17, "managedFields", List(&Message(MANAGED))),
];

const OWNER: &[Field] = &[
    field(1, "kind", String),
    field(3, "name", String),
    field(4, "uid", String),
    field(5, "apiVersion", String),
    field(6, "controller", Bool),
    field(7, "blockOwnerDeletion", Bool),
];

const MANAGED: &[Field] = &[
    field(1, "manager", String),
    field(2, "operation", String),
    field(3, "apiVersion", String),
    field(4, "time", Time),
    field(6, "fieldsType", String),
    field(7, "fieldsV1", Json),
    field(8, "subresource", String),
];

const DEFINITION: &[Field] = &[
    field(1, "metadata", Message(METADATA)),
    field(2, "spec", Message(DEFINITION_SPEC)),
    field(
        3,
        "status",
        Message(&[
            field(1, "conditions", List(&Message(DEFINITION_CONDITION))),
            field(2, "acceptedNames", Message(NAMES)),
            field(3, "storedVersions", List(&String)),
        ]),
    ),
];

const DEFINITION_CONDITION: &[Field] = &[
    field(1, "type", String),
    field(2, "status", String),
    field(3, "lastTransitionTime", Time),
    field(4, "reason", String),
    field(5, "message", String),
];

const DEFINITION_SPEC: &[Field] = &[
    field(1, "group", String),
    field(3, "names", Message(NAMES)),
    field(4, "scope", String),
    field(7, "versions", List(&Message(VERSION))),
    field(
        9,
        "conversion",
        Message(&[
            field(1, "strategy", String),
            field(2, "webhook", Message(WEBHOOK)),
        ]),
    ),
    field(10, "preserveUnknownFields", Flag),
];

const NAMES: &[Field] = &[
    field(1, "plural", String),
    field(2, "singular", String),
    field(3, "shortNames", List(&String)),
    field(4, "kind", String),
    field(5, "listKind", String),
    field(6, "categories", List(&String)),
];

const WEBHOOK: &[Field] = &[
    field(
        2,
        "clientConfig",
        Message(&[
            field(
                1,
                "service",
                Message(&[
                    field(1, "namespace", String),
                    field(2, "name", String),
                    field(3, "path", Pointer),
                    field(4, "port", Integer),
                ]),
            ),
            field(2, "caBundle", Bytes),
            field(3, "url", Pointer),
        ]),
    ),
    field(3, "conversionReviewVersions", List(&String)),
];

const VERSION: &[Field] = &[
    field(1, "name", String),
    field(2, "served", Bool),
    field(3, "storage", Bool),
    field(
        4,
        "schema",
        Kept(&Message(&[field(
            1,
            "openAPIV3Schema",
            Kept(&Nested(schema)),
        )])),
    ),
    field(
        5,
        "subresources",
        Kept(&Message(&[
            field(1, "status", Kept(&Message(&[]))),
            field(
                2,
                "scale",
                Kept(&Message(&[
                    field(1, "specReplicasPath", String),
                    field(2, "statusReplicasPath", String),
                    field(3, "labelSelectorPath", Pointer),
                ])),
            ),
        ])),
    ),
    field(
        6,
        "additionalPrinterColumns",
        List(&Message(&[
            field(1, "name", String),
            field(2, "type", String),
            field(3, "format", String),
            field(4, "description", String),
            field(5, "priority", Count),
            field(6, "jsonPath", String),
        ])),
    ),
    field(7, "deprecated", Flag),
    field(8, "deprecationWarning", Pointer),
    field(
        9,
        "selectableFields",
        List(&Message(&[field(1, "jsonPath", String)])),
    ),
];

fn schema() -> &'static [Field] {
    SCHEMA
}

const SCHEMA: &[Field] = &[
    field(1, "id", String),
    field(2, "$schema", String),
    field(3, "$ref", Pointer),
    field(4, "description", String),
    field(5, "type", String),
    field(6, "format", String),
    field(7, "title", String),
    field(8, "default", Kept(&Json)),
    field(9, "maximum", Double),
    field(10, "exclusiveMaximum", Flag),
    field(11, "minimum", Double),
    field(12, "exclusiveMinimum", Flag),
    field(13, "maxLength", Integer),
    field(14, "minLength", Integer),
    field(15, "pattern", String),
    field(16, "maxItems", Integer),
    field(17, "minItems", Integer),
    field(18, "uniqueItems", Flag),
    field(19, "multipleOf", Double),
    field(20, "enum", List(&Json)),
    field(21, "maxProperties", Integer),
    field(22, "minProperties", Integer),
    field(23, "required", List(&String)),
    field(
        24,
        "items",
        Kept(&Either(&[
            field(1, "schema", Kept(&Nested(schema))),
            field(2, "jSONSchemas", List(&Nested(schema))),
        ])),
    ),
    field(25, "allOf", List(&Nested(schema))),
    field(26, "oneOf", List(&Nested(schema))),
    field(27, "anyOf", List(&Nested(schema))),
    field(28, "not", Kept(&Nested(schema))),
    field(29, "properties", Map(&Nested(schema))),
    field(30, "additionalProperties", Kept(&Either(SCHEMA_OR_BOOL))),
    field(31, "patternProperties", Map(&Nested(schema))),
    field(
        32,
        "dependencies",
        Map(&Either(&[
            field(1, "schema", Kept(&Nested(schema))),
            field(2, "property", List(&String)),
        ])),
    ),
    field(33, "additionalItems", Kept(&Either(SCHEMA_OR_BOOL))),
    field(34, "definitions", Map(&Nested(schema))),
    field(
        35,
        "externalDocs",
        Message(&[field(1, "description", String), field(2, "url", String)]),
    ),
    field(36, "example", Kept(&Json)),
    field(37, "nullable", Flag),
    field(38, "x-kubernetes-preserve-unknown-fields", Bool),
    field(39, "x-kubernetes-embedded-resource", Flag),
    field(40, "x-kubernetes-int-or-string", Flag),
    field(41, "x-kubernetes-list-map-keys", List(&String)),
    field(42, "x-kubernetes-list-type", Pointer),
    field(43, "x-kubernetes-map-type", Pointer),
    field(
        44,
        "x-kubernetes-validations",
        List(&Message(&[
            field(1, "rule", String),
            field(2, "message", String),
            field(3, "messageExpression", String),
            field(4, "reason", Pointer),
            field(5, "fieldPath", String),
            field(6, "optionalOldSelf", Bool),
        ])),
    ),
];

const SCHEMA_OR_BOOL: &[Field] = &[
    field(1, "allows", Bool),
    field(2, "schema", Kept(&Nested(schema))),
];
