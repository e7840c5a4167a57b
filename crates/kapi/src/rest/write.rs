//! create, and what every write shares: preparing, checking and storing an object.

use axum::{extract::Request, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Api, body, bytes_response, json_response,
    negotiate::{View, present, present_value},
    request::{Call, FieldValidation},
};
use crate::{
    events,
    failure::{Cause, Failure, Result},
    pipeline::{self, Include, Operation},
    registry::{Form, Resource},
    store::{Draft, Expect, Key, Write, WriteError},
};

pub(crate) async fn create(
    api: &Api,
    call: &Call,
    view: View,
    request: Request,
) -> Result<Response> {
    let mut value = body::object(request).await?;
    accept(call, call.resource(api), &mut value)?;
    let created = insert(api, call, value, Operation::Update).await?;
    Ok(created.response(call.resource(api), view, StatusCode::CREATED))
}

/// What a write left behind.
pub(crate) enum Stored {
    Object(std::sync::Arc<crate::store::Object>, Vec<String>),
    /// Nothing was written: a dry run.
    Dry(Value, Vec<String>),
}

impl Stored {
    pub fn response(&self, resource: &Resource, view: View, code: StatusCode) -> Response {
        let (mut response, warnings) = match self {
            Self::Object(object, warnings) => (
                bytes_response(code, present(resource, object, view, Include::Metadata)),
                warnings,
            ),
            Self::Dry(value, warnings) => {
                let value = present_value(resource, value.clone(), view, Include::Metadata);
                (json_response(code, &value), warnings)
            }
        };
        for warning in warnings {
            let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        response
    }
}

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

/// Stores a new object.
pub(crate) async fn insert(
    api: &Api,
    call: &Call,
    value: Value,
    operation: Operation,
) -> Result<Stored> {
    let resource = call.resource(api);
    admit_namespace(api, call, resource, &value)?;
    let prefix = generate_prefix(&value);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut value = value.clone();
        if let Some(prefix) = &prefix {
            value["metadata"]["name"] = json!(format!("{prefix}{}", suffix()));
        }
        match insert_once(api, call, value, operation).await {
            Err(failure)
                if failure.reason == "AlreadyExists" && prefix.is_some() && attempts < 8 => {}
            result => return result,
        }
    }
}

async fn insert_once(
    api: &Api,
    call: &Call,
    mut value: Value,
    operation: Operation,
) -> Result<Stored> {
    let resource = call.resource(api);
    let name = name_of(&value).to_owned();
    check_name(resource, &name)?;
    if value["metadata"]
        .get("resourceVersion")
        .and_then(Value::as_str)
        .is_some_and(|v| !v.is_empty())
    {
        return Err(Failure::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let managed = prepare_new(resource, &mut value);
    let warnings = check(call, resource, &mut value, None)?;
    if operation == Operation::Update {
        pipeline::track(None, &mut value, call, resource);
    } else if let Some(managed) = managed {
        value["metadata"]["managedFields"] = managed;
    }
    let draft = draft(api, resource, &value)?;
    let key = key_of(&value);
    if call.dry_run()? {
        return match api.store.object(resource.stored, &key) {
            Some(_) => Err(Failure::exists(resource, &name)),
            None => Ok(Stored::Dry(value, warnings)),
        };
    }
    let write = Write {
        kind: resource.stored,
        key,
        expect: Expect::Absent,
        draft,
        delete: false,
    };
    match api.store.write(write).await {
        Ok(object) => Ok(Stored::Object(object, warnings)),
        Err(error) => Err(Failure::of_write(&error, resource, &name)),
    }
}

/// Fills in what the server owns. Returns the managed fields that an apply computed.
fn prepare_new(resource: &Resource, value: &mut Value) -> Option<Value> {
    let managed = value["metadata"].get("managedFields").cloned();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        for name in [
            "resourceVersion",
            "selfLink",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "generation",
        ] {
            metadata.remove(name);
        }
        metadata.insert("uid".into(), json!(uuid::Uuid::new_v4().to_string()));
        metadata.insert("creationTimestamp".into(), json!(now()));
        if resource.form == Form::Custom {
            metadata.insert("generation".into(), json!(1));
        }
    }
    if resource.form == Form::Custom && resource.status {
        remove(value, "status");
    }
    if resource.form == Form::Namespace {
        value["spec"] = json!({"finalizers": ["kubernetes"]});
        value["status"] = json!({"phase": "Active"});
    }
    managed
}

/// Normalises and validates an object on its way to the store. Returns warnings.
pub(crate) fn check(
    call: &Call,
    resource: &Resource,
    value: &mut Value,
    old: Option<&Value>,
) -> Result<Vec<String>> {
    normalise(resource, value)?;
    let unknown = resource.schema.prune(value);
    let warnings = match call.field_validation()? {
        FieldValidation::Ignore => Vec::new(),
        _ if unknown.is_empty() => Vec::new(),
        FieldValidation::Warn => unknown
            .iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect(),
        FieldValidation::Strict => {
            let list: Vec<String> = unknown
                .iter()
                .map(|path| format!("unknown field \"{path}\""))
                .collect();
            return Err(Failure::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                resource.kind,
                resource.version,
                resource.kind,
                list.join(", ")
            )));
        }
    };
    drop_empty_metadata(value);
    resource.schema.default(value);
    let mut causes = metadata_causes(value);
    causes.extend(
        resource
            .schema
            .validate(value, old)
            .iter()
            .map(pipeline::cause),
    );
    if !causes.is_empty() {
        return Err(Failure::invalid(resource, name_of(value), &causes));
    }
    Ok(warnings)
}

/// Serialises an object for the store, unless it is too large.
pub(crate) fn draft(api: &Api, resource: &Resource, value: &Value) -> Result<Draft> {
    let fields = api
        .store
        .kinds()
        .get(resource.stored)
        .map(|kind| kind.fields.as_slice())
        .unwrap_or_default();
    let draft = Draft::new(value, fields);
    if draft.len() > OBJECT_MAX {
        return Err(Failure::too_large(format!(
            "{} \"{}\" is too large: {} bytes, and an object has at most {OBJECT_MAX} bytes; split it, or keep large data elsewhere",
            resource.qualified(),
            name_of(value),
            draft.len()
        )));
    }
    Ok(draft)
}

/// Namespaced objects go into a namespace that exists and is not on its way out.
fn admit_namespace(api: &Api, call: &Call, resource: &Resource, value: &Value) -> Result<()> {
    let (Some(namespace), Some(namespaces)) =
        (&call.namespace, api.registry.of_form(Form::Namespace))
    else {
        return Ok(());
    };
    let found = api
        .store
        .object(namespaces.stored, &Key::new("", namespace))
        .ok_or_else(|| Failure::not_found(namespaces, namespace))?;
    if !found.meta.deleting {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let mut failure = Failure::forbidden(resource, name_of(value), &why);
    if let Some(details) = &mut failure.details {
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
    }
    Err(failure)
}

fn normalise(resource: &Resource, value: &mut Value) -> Result<()> {
    match resource.form {
        Form::Secret => secret(resource, value),
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
            .is_none_or(|text| STANDARD.decode(text).is_err())
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

fn check_name(resource: &Resource, name: &str) -> Result<()> {
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
    let part = |part: &str| {
        let edge =
            |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(part.chars().next())
            && edge(part.chars().last())
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    let legal = name.len() <= most
        && if label {
            part(name)
        } else {
            name.split('.').all(part)
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
                    let field = format!("metadata.{map}[{name}]");
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
    let owners = value["metadata"].get("ownerReferences");
    for (index, owner) in owners
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner
                .get(field)
                .and_then(Value::as_str)
                .is_none_or(str::is_empty)
            {
                wrong(
                    format!("metadata.ownerReferences[{index}].{field}"),
                    "must not be empty",
                );
            }
        }
    }
    causes
}

fn label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.chars().next())
        && edge(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Empty maps and lists of the metadata are left out, as Kubernetes does.
fn drop_empty_metadata(value: &mut Value) {
    let Some(metadata) = value["metadata"].as_object_mut() else {
        return;
    };
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    });
}

pub(crate) fn remove(value: &mut Value, name: &str) -> Option<Value> {
    // Not `swap_remove`: the order of fields is the user's.
    value
        .as_object_mut()
        .and_then(|map: &mut Map<String, Value>| map.shift_remove(name))
}

pub(crate) fn name_of(value: &Value) -> &str {
    value["metadata"]["name"].as_str().unwrap_or_default()
}

pub(crate) fn key_of(value: &Value) -> Key {
    Key::new(
        value["metadata"]["namespace"].as_str().unwrap_or_default(),
        name_of(value),
    )
}

/// The time as Kubernetes writes it, in whole seconds.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn retryable(error: &WriteError) -> bool {
    matches!(error, WriteError::Conflict)
}

fn generate_prefix(value: &Value) -> Option<String> {
    let metadata = &value["metadata"];
    if metadata["name"]
        .as_str()
        .is_some_and(|name| !name.is_empty())
    {
        return None;
    }
    let prefix = metadata["generateName"].as_str()?;
    Some(prefix.chars().take(58).collect())
}

/// Five letters without vowels and look-alikes, as Kubernetes generates them.
fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random: [u8; 5] = rand::random();
    random
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

/// The limit of etcd, and so of what can be moved to a real cluster.
const OBJECT_MAX: usize = 1_572_864;
