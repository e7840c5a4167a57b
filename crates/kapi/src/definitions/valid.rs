//! Which definitions are taken.
//!
//! # Source
//! Kubernetes `apiextensions-apiserver/pkg/apis/apiextensions/validation`, 1.34: the fields and the words. Conversion by a
//! webhook and groups that this API has itself are refused here alone.

use serde_json::Value;

use super::status::{APPROVAL, established, is_protected};
use crate::{failure::Cause, registry, schema::Schema};

/// What is wrong with a definition that is about to be stored; `old` is the one that is.
pub(crate) fn causes(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut wrong = Wrong(Vec::new());
    let spec = &new["spec"];
    // What was taken once may be given a label or lose a finalizer, whatever the rules are by now.
    if old.is_none_or(|old| old["spec"] != *spec) {
        if old.is_none() {
            named(new, &mut wrong);
        }
        identity(new, &mut wrong);
        names(&spec["names"], "spec.names", &mut wrong);
        versions(spec, old.map(|old| &old["spec"]), &mut wrong);
        conversion(spec, &mut wrong);
    }
    if let Some(old) = old {
        unchanged(new, old, &mut wrong);
        stored_versions(new, &mut wrong);
    }
    wrong.0
}

/// Why a definition cannot be served, beside its schemas.
pub(super) fn unusable(spec: &Value) -> Vec<String> {
    let mut wrong = Wrong(Vec::new());
    group(spec, &mut wrong);
    storage(spec, &mut wrong);
    conversion(spec, &mut wrong);
    let each = wrong.0.into_iter();
    each.map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect()
}

struct Wrong(Vec<Cause>);

impl Wrong {
    fn add(&mut self, reason: &str, field: impl Into<String>, message: String) {
        self.0.push(Cause {
            reason: reason.into(),
            message,
            field: field.into(),
        });
    }

    fn invalid(&mut self, field: impl Into<String>, value: &Value, why: &str) {
        self.add(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {value}: {why}"),
        );
    }

    fn required(&mut self, field: impl Into<String>, why: &str) {
        let message = if why.is_empty() {
            "Required value".into()
        } else {
            format!("Required value: {why}")
        };
        self.add("FieldValueRequired", field, message);
    }

    fn unsupported(&mut self, field: impl Into<String>, value: &Value, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        let list = list.join(", ");
        let message = format!("Unsupported value: {value}: supported values: {list}");
        self.add("FieldValueNotSupported", field, message);
    }

    /// A complaint that begins with the path in the schema.
    fn schema(&mut self, place: &str, problem: &str) {
        let (field, message) = problem
            .split_once(": ")
            .unwrap_or(("openAPIV3Schema", problem));
        let reason = match message.split(':').next() {
            Some("Required value") => "FieldValueRequired",
            Some("Forbidden") => "FieldValueForbidden",
            Some("Unsupported value") => "FieldValueNotSupported",
            Some("Duplicate value") => "FieldValueDuplicate",
            Some("Too long") => "FieldValueTooLong",
            Some("Too many") => "FieldValueTooMany",
            _ if message.contains(" in body must be of type ") => "FieldValueTypeInvalid",
            _ => "FieldValueInvalid",
        };
        self.add(reason, format!("{place}.{field}"), message.to_owned());
    }
}

fn named(new: &Value, wrong: &mut Wrong) {
    let spec = &new["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = format!(
        "{}.{}",
        text(&spec["names"]["plural"]),
        text(&spec["group"])
    );
    if new["metadata"]["name"] != name {
        let why = "must be spec.names.plural+\".\"+spec.group";
        wrong.invalid("metadata.name", &new["metadata"]["name"], why);
    }
}

/// The group and the scope.
fn identity(new: &Value, wrong: &mut Wrong) {
    let spec = &new["spec"];
    approved(new, wrong);
    group(spec, wrong);
    match spec["scope"].as_str() {
        Some("Cluster" | "Namespaced") => {}
        None | Some("") => wrong.required("spec.scope", ""),
        Some(_) => wrong.unsupported("spec.scope", &spec["scope"], &["Cluster", "Namespaced"]),
    }
    if spec["preserveUnknownFields"] == true {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        wrong.invalid("spec.preserveUnknownFields", &Value::Bool(true), why);
    }
}

fn approved(new: &Value, wrong: &mut Wrong) {
    if !is_protected(new["spec"]["group"].as_str().unwrap_or_default()) {
        return;
    }
    let why = format!(
        "protected groups must have approval annotation {APPROVAL:?}, see https://github.com/kubernetes/enhancements/pull/1111"
    );
    let field = format!("metadata.annotations[{APPROVAL}]");
    match new["metadata"]["annotations"][APPROVAL].as_str() {
        None | Some("") => wrong.required(field, &why),
        Some(text)
            if ["unapproved", "https://", "http://"]
                .iter()
                .any(|start| text.starts_with(start)) => {}
        Some(text) => wrong.invalid(field, &text.into(), &why),
    }
}

fn group(spec: &Value, wrong: &mut Wrong) {
    let group = spec["group"].as_str().unwrap_or_default();
    if group.is_empty() {
        wrong.required("spec.group", "");
    } else if !subdomain(group) {
        wrong.invalid("spec.group", &spec["group"], SUBDOMAIN);
    } else if !group.contains('.') {
        wrong.invalid(
            "spec.group",
            &spec["group"],
            "should be a domain with at least one dot",
        );
    } else if registry::is_built_in(group) {
        wrong.invalid(
            "spec.group",
            &spec["group"],
            "this server has the kinds of this group itself",
        );
    }
}

fn names(names: &Value, path: &str, wrong: &mut Wrong) {
    for field in ["plural", "singular", "kind", "listKind"] {
        let place = format!("{path}.{field}");
        let name = names[field].as_str().unwrap_or_default();
        let mixed = field.ends_with("ind");
        if name.is_empty() {
            wrong.required(place, "");
        } else if mixed && !label(&name.to_lowercase()) {
            let why = format!("may have mixed case, but should otherwise match: {LABEL}");
            wrong.invalid(place, &names[field], &why);
        } else if !mixed && !label(name) {
            wrong.invalid(place, &names[field], LABEL);
        }
    }
    for field in ["shortNames", "categories"] {
        for (at, name) in names[field].as_array().into_iter().flatten().enumerate() {
            if !name.as_str().is_some_and(label) {
                wrong.invalid(format!("{path}.{field}[{at}]"), name, LABEL);
            }
        }
    }
    if names["kind"] == names["listKind"] && names["kind"].is_string() {
        let why = "kind and listKind may not be the same";
        wrong.invalid(format!("{path}.listKind"), &names["listKind"], why);
    }
}

fn versions(spec: &Value, old: Option<&Value>, wrong: &mut Wrong) {
    let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
    let mut seen = Vec::new();
    let mut unique = true;
    for (at, version) in versions.iter().enumerate() {
        let name = &version["name"];
        unique &= !seen.contains(&name);
        seen.push(name);
        if !name.as_str().is_some_and(label) {
            wrong.invalid(format!("spec.versions[{at}].name"), name, LABEL);
            if at == 0 {
                // Kubernetes keeps it in a second place.
                wrong.invalid("spec.version", name, LABEL);
            }
        }
    }
    if !unique {
        wrong.invalid(
            "spec.versions",
            &spec["versions"],
            "must contain unique version names",
        );
    }
    if !storage(spec, wrong) {
        let why = "must have the storage version";
        wrong.invalid("status.storedVersions", &Value::Null, why);
    }
    for (at, version) in versions.iter().enumerate() {
        // What all versions have in common is named once, as if it were not of a version.
        let place = |part: &str| {
            if versions.iter().any(|other| other[part] != version[part]) {
                Some(format!("spec.versions[{at}]"))
            } else {
                (at == 0).then(|| "spec".to_owned())
            }
        };
        if let Some(place) = place("schema") {
            schema(version, old, &place, wrong);
        }
        if let Some(place) = place("subresources") {
            scale(
                &version["subresources"]["scale"],
                &format!("{place}.subresources.scale"),
                wrong,
            );
        }
        if let Some(place) = place("additionalPrinterColumns") {
            columns(version, &format!("{place}.additionalPrinterColumns"), wrong);
        }
        if let Some(place) = place("selectableFields") {
            selectable(version, &format!("{place}.selectableFields"), wrong);
        }
    }
}

fn schema(version: &Value, old: Option<&Value>, place: &str, wrong: &mut Wrong) {
    let schema = &version["schema"]["openAPIV3Schema"];
    let place = match place {
        "spec" if schema.is_object() => "spec.validation".to_owned(),
        "spec" => "spec.versions[0].schema".to_owned(),
        version => format!("{version}.schema"),
    };
    let problems = Schema::compile(schema).err().unwrap_or_default();
    if problems.is_empty() {
        return;
    }
    // What was taken once may stay.
    let versions = old.and_then(|old| old["versions"].as_array());
    let before = versions.into_iter().flatten();
    let before = before.filter(|old| old["name"] == version["name"]);
    let known = before.flat_map(|old| {
        Schema::compile(&old["schema"]["openAPIV3Schema"])
            .err()
            .unwrap_or_default()
    });
    let known: Vec<String> = known.collect();
    for problem in problems.iter().filter(|problem| !known.contains(problem)) {
        wrong.schema(&place, problem);
    }
}

fn storage(spec: &Value, wrong: &mut Wrong) -> bool {
    let versions = spec["versions"].as_array().into_iter().flatten();
    let storage = versions.filter(|version| version["storage"] == true);
    let is_one = storage.count() == 1;
    if !is_one {
        let why = "must have exactly one version marked as storage version";
        wrong.invalid("spec.versions", &spec["versions"], why);
    }
    is_one
}

fn scale(scale: &Value, path: &str, wrong: &mut Wrong) {
    if scale.is_null() {
        return;
    }
    for (name, under, is_required) in [
        ("specReplicasPath", &[".spec."][..], true),
        ("statusReplicasPath", &[".status."], true),
        ("labelSelectorPath", &[".spec.", ".status."], false),
    ] {
        let field = format!("{path}.{name}");
        let place = scale[name].as_str().unwrap_or_default();
        if place.is_empty() {
            if is_required {
                wrong.required(field, "");
            }
        } else if !place.starts_with('.') {
            wrong.invalid(
                field,
                &scale[name],
                "must be a simple json path starting with .",
            );
        } else if !under.iter().any(|start| place.starts_with(start)) {
            let why = match under {
                [only] => format!("should be a json path under {}", only.trim_end_matches('.')),
                _ => "should be a json path under either .spec or .status".to_owned(),
            };
            wrong.invalid(field, &scale[name], &why);
        }
    }
}

fn columns(version: &Value, path: &str, wrong: &mut Wrong) {
    let columns = version["additionalPrinterColumns"].as_array();
    for (at, column) in columns.into_iter().flatten().enumerate() {
        let text = |name: &str| column[name].as_str().unwrap_or_default();
        let types = ["boolean", "date", "integer", "number", "string"];
        let one_of = format!("must be one of {}", types.join(","));
        if text("name").is_empty() {
            wrong.required(format!("{path}[{at}].name"), "");
        }
        if text("type").is_empty() {
            wrong.required(format!("{path}[{at}].type"), &one_of);
        } else if !types.contains(&text("type")) {
            wrong.invalid(format!("{path}[{at}].type"), &column["type"], &one_of);
        }
        if text("jsonPath").is_empty() {
            wrong.required(format!("{path}[{at}].JSONPath"), "");
        } else if !text("jsonPath").starts_with(['.', '{', '[', '$']) {
            let why = "is an invalid path: must start with a dot";
            wrong.invalid(format!("{path}[{at}].JSONPath"), &column["jsonPath"], why);
        }
    }
}

fn selectable(version: &Value, path: &str, wrong: &mut Wrong) {
    let fields = version["selectableFields"].as_array();
    let mut seen = Vec::new();
    for (at, field) in fields.into_iter().flatten().enumerate() {
        let given = &field["jsonPath"];
        let place = format!("{path}[{at}].jsonPath");
        let text = given.as_str().unwrap_or_default();
        if text.is_empty() {
            wrong.required(place, "");
        } else if seen.contains(&text) {
            wrong.add(
                "FieldValueDuplicate",
                place,
                format!("Duplicate value: {given}"),
            );
        } else if !points_to_scalar(&version["schema"]["openAPIV3Schema"], text) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            wrong.invalid(place, given, why);
        }
        seen.push(text);
    }
}

fn points_to_scalar(schema: &Value, path: &str) -> bool {
    let steps = path.trim_start_matches('.').split('.');
    let node = steps.fold(schema, |node, step| &node["properties"][step]);
    matches!(
        node["type"].as_str(),
        Some("string" | "boolean" | "integer")
    )
}

fn conversion(spec: &Value, wrong: &mut Wrong) {
    let strategy = &spec["conversion"]["strategy"];
    if !strategy.is_null() && strategy != "None" {
        wrong.unsupported("spec.conversion.strategy", strategy, &["None"]);
    }
}

/// What cannot be changed once objects may have been stored by it.
fn unchanged(new: &Value, old: &Value, wrong: &mut Wrong) {
    let mut fields = vec!["/spec/group", "/spec/names/plural"];
    if established(old) {
        fields.extend(["/spec/scope", "/spec/names/kind"]);
    }
    for pointer in fields {
        let value = new.pointer(pointer).unwrap_or(&Value::Null);
        if old.pointer(pointer) != Some(value) {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            wrong.invalid(field, value, "field is immutable");
        }
    }
}

fn stored_versions(new: &Value, wrong: &mut Wrong) {
    let versions = new["spec"]["versions"].as_array();
    let is_there = |name: &Value| {
        versions
            .into_iter()
            .flatten()
            .any(|version| version["name"] == *name)
    };
    let stored = new["status"]["storedVersions"].as_array();
    for (at, name) in stored.into_iter().flatten().enumerate() {
        if !is_there(name) {
            let why = "missing from spec.versions; objects may be stored in it";
            wrong.invalid(format!("status.storedVersions[{at}]"), name, why);
        }
    }
}

fn label(text: &str) -> bool {
    let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(rest)
        && !text.ends_with('-')
}

fn subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty()
            && part.chars().all(legal)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

const LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
