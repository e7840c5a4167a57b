//! What an object must be before it is stored: of its resource, named, normalised, pruned, defaulted and valid.

mod kinds;

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::StatusCode;
use serde_json::{Value, json};

use super::request::{Call, FieldValidation};
use crate::{
    apply::ANNOTATIONS_MAX,
    definitions, events,
    failure::{Cause, Failure, Result},
    pipeline::{self, Operation},
    registry::{Author, Form, Resource},
    schema::{Fields, Reason},
    task::elsewhere,
    value::{name_of, remove},
};

/// Checks that a body is of the resource and converts it to its stored form.
pub(crate) fn accept(call: &Call, resource: &Resource, value: &mut Value) -> Result<()> {
    let wanted = [
        ("apiVersion", resource.api_version()),
        ("kind", resource.kind.clone()),
    ];
    for (field, wanted) in wanted {
        match value.get(field).and_then(Value::as_str) {
            None | Some("") => value[field] = json!(wanted),
            Some(given) if given == wanted => {}
            Some(given) => {
                return Err(Failure::bad_request(format!(
                    "the {field} in the data ({given}) does not match the expected {field} ({wanted})"
                )));
            }
        }
    }
    if !value.get("metadata").is_some_and(Value::is_object) {
        value["metadata"] = json!({});
    }
    let metadata = &mut value["metadata"];
    match (
        &call.namespace,
        metadata.get("namespace").and_then(Value::as_str),
    ) {
        (Some(namespace), None | Some("")) => metadata["namespace"] = json!(namespace),
        (Some(namespace), Some(given)) if given != namespace => {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        (None, Some(given)) if !given.is_empty() => {
            return Err(Failure::bad_request(
                "namespace is not allowed on a cluster-scoped resource",
            ));
        }
        _ => {}
    }
    if let Some(name) = &call.name {
        match metadata.get("name").and_then(Value::as_str) {
            None | Some("") => metadata["name"] = json!(name),
            Some(given) if given == name => {}
            Some(given) => {
                return Err(Failure::bad_request(format!(
                    "the name of the object ({given}) does not match the name on the URL ({name})"
                )));
            }
        }
    }
    if resource.form == Form::NewEvent {
        events::to_core(value);
    }
    Ok(())
}

/// What a typed decoder would not take of a body.
pub(crate) fn undecodable(resource: &Resource, value: &Value) -> Option<String> {
    if resource.form == Form::NewEvent {
        // Its schema is that of the form in which it is stored.
        return None;
    }
    resource.schema.undecodable(value, typed(resource))
}

/// What an apply has merged must be decodable too.
pub(crate) fn convertible(resource: &Resource, value: &Value, operation: Operation) -> Result<()> {
    if operation != Operation::Apply {
        return Ok(());
    }
    match undecodable(resource, value) {
        None => Ok(()),
        Some(why) => Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "",
            format!("failed to convert new object to proper version: {why}"),
        )),
    }
}

fn typed(resource: &Resource) -> Fields {
    match resource.form {
        // Definitions carry schemas, which are stored as they stand.
        Form::Custom | Form::Definition => Fields::Metadata,
        _ => Fields::All,
    }
}

/// What strict decoding has against a body: warnings, or a refusal where the client wants that.
pub(crate) fn strictly(
    call: &Call,
    resource: &Resource,
    faults: Vec<String>,
) -> Result<Vec<String>> {
    match call.field_validation()? {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !faults.is_empty() => Err(Failure::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
            resource.kind,
            resource.version,
            resource.kind,
            faults.join(", ")
        ))),
        FieldValidation::Strict | FieldValidation::Warn => Ok(faults),
    }
}

/// Warnings of new finalizers of a custom object that anybody else may also choose.
pub(crate) fn unqualified(resource: &Resource, old: Option<&Value>, new: &Value) -> Vec<String> {
    let named = |object: &Value| -> BTreeSet<String> {
        let finalizers = object["metadata"]["finalizers"].as_array();
        let names = finalizers.into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    };
    if resource.form != Form::Custom {
        return Vec::new();
    }
    let added = &named(new) - &old.map(named).unwrap_or_default();
    let plain = added.iter().filter(|name| !name.contains('/'));
    plain
        .map(|name| {
            format!(
                "metadata.finalizers: \"{name}\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
            )
        })
        .collect()
}

/// Brings an object into the form in which it is stored. Returns warnings.
pub(crate) fn prepare(
    call: &Call,
    resource: &Resource,
    value: &mut Value,
    operation: Operation,
) -> Result<Vec<String>> {
    normalise(resource, value)?;
    let unknown = resource.schema.prune(value);
    let unknown = unknown.iter();
    let faults = unknown.map(|path| format!("unknown field \"{path}\""));
    let warnings = strictly(call, resource, faults.collect())?;
    resource.schema.tidy(value, typed(resource));
    match operation {
        Operation::Update => resource.schema.default(value),
        Operation::Apply => resource.schema.default_keeping_nulls(value),
    }
    if matches!(resource.form, Form::Event | Form::NewEvent) {
        events::fill(value);
    }
    Ok(warnings)
}

/// Validates a prepared object; `more` is what is wrong with it beside.
pub(crate) fn validate(
    resource: &Resource,
    value: &Value,
    old: Option<&Value>,
    more: Vec<Cause>,
) -> Result<()> {
    let mut causes = metadata_causes(value);
    causes.extend(more);
    causes.extend(kinds::causes(resource, value, old));
    if resource.form == Form::Definition {
        // Its rules may be long, and parsing them takes its time.
        causes.extend(elsewhere(|| definitions::valid::causes(value, old)));
    }
    let mut errors = aside(resource, || resource.schema.validate(value, old));
    // What a definition lacks was named above, in the words of Kubernetes.
    errors.retain(|error| resource.form != Form::Definition || error.reason != Reason::Required);
    causes.extend(errors.iter().map(pipeline::cause));
    causes.extend(resource.scale.iter().flat_map(|scale| scale.causes(value)));
    if !causes.is_empty() {
        return Err(Failure::invalid(resource, name_of(value), &causes));
    }
    Ok(())
}

/// Rules of other people's definitions may take their time over large objects: others are served meanwhile.
fn aside<T>(resource: &Resource, work: impl FnOnce() -> T) -> T {
    match resource.author {
        Author::Client => elsewhere(work),
        Author::Program => work(),
    }
}

fn normalise(resource: &Resource, value: &mut Value) -> Result<()> {
    match resource.form {
        Form::Secret => secret(resource, value),
        Form::Definition => {
            definitions::fill(value);
            Ok(())
        }
        Form::Namespace => {
            let name = name_of(value).to_owned();
            value["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// `stringData` is a convenience for writing; what is stored is `data`.
fn secret(resource: &Resource, value: &mut Value) -> Result<()> {
    if let Some(Value::Object(plain)) = remove(value, "stringData") {
        if !value["data"].is_object() {
            value["data"] = json!({});
        }
        for (name, text) in plain {
            value["data"][name] = json!(STANDARD.encode(text.as_str().unwrap_or_default()));
        }
    }
    if value.get("type").is_none_or(Value::is_null) {
        value["type"] = json!("Opaque");
    }
    for (name, data) in value["data"].as_object().into_iter().flatten() {
        if data
            .as_str()
            .is_some_and(|text| STANDARD.decode(text).is_err())
        {
            let cause = Cause {
                reason: "FieldValueInvalid".into(),
                message: "Invalid value: not base64".into(),
                field: format!("data[{name}]"),
            };
            return Err(Failure::invalid(resource, name_of(value), &[cause]));
        }
    }
    if value["data"].is_null() {
        remove(value, "data");
    }
    Ok(())
}

/// Refuses a name that Kubernetes would refuse.
pub(crate) fn check_name(resource: &Resource, name: &str) -> Result<()> {
    let cause = |reason: &str, message: String| Cause {
        reason: reason.into(),
        message,
        field: "metadata.name".into(),
    };
    if name.is_empty() {
        let cause = cause(
            "FieldValueRequired",
            "Required value: name or generateName is required".into(),
        );
        return Err(Failure::invalid(resource, name, &[cause]));
    }
    let label = resource.form == Form::Namespace;
    let most = if label { 63 } else { 253 };
    let legal = name.len() <= most
        && if label {
            domain_label(name)
        } else {
            name.split('.').all(domain_label)
        };
    if legal {
        return Ok(());
    }
    let rule = if label {
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', must start and end with an alphanumeric character, and have no more than 63 characters"
    } else {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', must start and end with an alphanumeric character, and have no more than 253 characters"
    };
    let cause = cause(
        "FieldValueInvalid",
        format!("Invalid value: \"{name}\": {rule}"),
    );
    Err(Failure::invalid(resource, name, &[cause]))
}

/// What every object's labels, annotations and owners must be.
fn metadata_causes(value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut wrong = |field: String, message: &str| {
        causes.push(Cause {
            reason: "FieldValueInvalid".into(),
            message: format!("Invalid value: {message}"),
            field,
        });
    };
    for map in ["labels", "annotations"] {
        match value["metadata"].get(map) {
            None => {}
            Some(Value::Object(entries)) => {
                for (name, value) in entries {
                    let field = format!("metadata.{map}");
                    // Only there does case not matter.
                    let checked = match map {
                        "annotations" => name.to_ascii_lowercase(),
                        _ => name.clone(),
                    };
                    if !qualified(&checked) {
                        wrong(
                            field.clone(),
                            &format!(
                                "{name:?}: a name has at most 63 letters, digits, '-', '_' or '.', starts and ends with a letter or digit, and may follow a domain and a slash"
                            ),
                        );
                    }
                    match value.as_str() {
                        None => wrong(field, "must be a string"),
                        Some(text) if map == "labels" && !label_value(text) => wrong(
                            field,
                            &format!(
                                "\"{text}\": a label has at most 63 letters, digits, '-', '_' or '.', and starts and ends with a letter or digit"
                            ),
                        ),
                        Some(_) => {}
                    }
                }
            }
            Some(_) => wrong(format!("metadata.{map}"), "must be a map of strings"),
        }
    }
    let finalizers = value["metadata"]["finalizers"].as_array();
    for finalizer in finalizers.into_iter().flatten() {
        let text = finalizer.as_str().unwrap_or_default();
        if !qualified(text) {
            wrong(
                "metadata.finalizers".into(),
                &format!("{text:?}: no qualified name"),
            );
        }
    }
    causes.extend(annotations_size(value));
    causes.extend(owner_causes(value));
    causes
}

/// All annotations together, keys and values.
fn annotations_size(value: &Value) -> Option<Cause> {
    let annotations = value["metadata"]["annotations"].as_object()?;
    let size = |(name, text): (&String, &Value)| name.len() + text.as_str().map_or(0, str::len);
    let sum: usize = annotations.iter().map(size).sum();
    (sum > ANNOTATIONS_MAX).then(|| kinds::too_long("metadata.annotations", ANNOTATIONS_MAX))
}

/// What the owners of an object must be: whole, no Events, and one of them in control.
fn owner_causes(value: &Value) -> Vec<Cause> {
    let cause = |field: &str, rule: &str| Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {rule}"),
        field: format!("metadata.ownerReferences{field}"),
    };
    let mut causes = Vec::new();
    let mut controlled = false;
    let owners = value["metadata"].get("ownerReferences");
    for owner in owners.and_then(Value::as_array).into_iter().flatten() {
        let text = |field: &str| owner.get(field).and_then(Value::as_str);
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(field).is_none_or(str::is_empty) {
                causes.push(cause(&format!(".{field}"), "\"\": must not be empty"));
            }
        }
        if (text("apiVersion"), text("kind")) == (Some("v1"), Some("Event")) {
            causes.push(cause("", "an Event is disallowed from being an owner"));
        }
        if owner.get("controller") == Some(&json!(true)) {
            if controlled {
                let rule = "only one reference can have controller set to true";
                causes.push(cause("", rule));
            }
            controlled = true;
        }
    }
    causes
}

/// A name as of labels and annotations: `name` or `domain/name`.
pub(crate) fn qualified(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    !name.is_empty()
        && label_value(name)
        && prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(domain_label))
}

/// A part of a domain: lower case letters, digits and inner dashes.
fn domain_label(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let edge = |c: Option<char>| c.is_some_and(plain);
    edge(part.chars().next())
        && edge(part.chars().last())
        && part.chars().all(|c| plain(c) || c == '-')
}

pub(crate) fn label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.chars().next())
        && edge(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// What the strategy of a kind makes of an object once its owners are noted.
pub(crate) fn settle_kind(resource: &Resource, value: &mut Value) {
    drop_repeated_owners(value);
    if resource.kind == "ServiceAccount" {
        let secrets = value.get_mut("secrets").and_then(Value::as_array_mut);
        for secret in secrets
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            secret.retain(|field, _| field == "name");
        }
    }
}

/// Owners that are named twice, word for word, are named once.
pub(crate) fn drop_repeated_owners(value: &mut Value) {
    if let Some(owners) = value["metadata"]
        .get_mut("ownerReferences")
        .and_then(Value::as_array_mut)
    {
        let mut seen = Vec::new();
        owners.retain(|owner| {
            let new = !seen.contains(owner);
            seen.push(owner.clone());
            new
        });
    }
}
