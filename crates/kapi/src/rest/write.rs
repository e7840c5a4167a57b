//! create, and what every write shares: preparing and storing an object.

use axum::{extract::Request, response::Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::{
    answer::{bytes_response, json_response},
    body::{self, Body},
    check::{
        accept, check_name, convertible, prepare, settle_kind, strictly, undecodable, unqualified,
        validate,
    },
    negotiate::{View, present, present_value},
    request::Call,
};
use crate::{
    definitions,
    failure::{Failure, Result},
    pipeline::{self, Include, Operation},
    registry::{Form, Resource},
    state::Api,
    store::{Draft, Expect, Key, Write, WriteError},
    value::now,
    value::{name_of, remove},
};

pub(crate) async fn create(
    api: &Api,
    call: &Call,
    view: View,
    request: Request,
) -> Result<Response> {
    let resource = call.resource(api);
    let Body { mut value, faults } = body::object(request).await?;
    if let Some(why) = undecodable(resource, &value) {
        return Err(Failure::undecodable(resource, &why));
    }
    let warnings = strictly(call, resource, faults)?;
    accept(call, resource, &mut value)?;
    let created = insert(api, call, value, Operation::Update).await?;
    let created = created.warned(warnings);
    Ok(created.response(call.resource(api), view, StatusCode::CREATED))
}

/// What a write left behind.
pub(crate) enum Stored {
    Object(std::sync::Arc<crate::store::Object>, Vec<String>),
    /// What is shown is not what is stored: a dry run, or the end of an object.
    Shown(Value, Vec<String>),
}

impl Stored {
    /// The object as it is kept, and the warnings.
    pub fn into_parts(self) -> (Value, Vec<String>) {
        match self {
            Self::Object(object, warnings) => (object.value(), warnings),
            Self::Shown(value, warnings) => (value, warnings),
        }
    }

    /// With warnings before those that there are.
    pub fn warned(mut self, mut first: Vec<String>) -> Self {
        let (Self::Object(_, warnings) | Self::Shown(_, warnings)) = &mut self;
        first.append(warnings);
        *warnings = first;
        self
    }

    pub fn response(&self, resource: &Resource, view: View, code: StatusCode) -> Response {
        let (mut response, warnings) = match self {
            Self::Object(object, warnings) => (
                bytes_response(code, present(resource, object, view, Include::Metadata)),
                warnings,
            ),
            Self::Shown(value, warnings) => {
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

/// Stores a new object.
pub(crate) async fn insert(
    api: &Api,
    call: &Call,
    value: Value,
    operation: Operation,
) -> Result<Stored> {
    let resource = call.resource(api);
    admit_namespace(api, call, resource, &value)?;
    let Some(prefix) = generate_prefix(&value) else {
        return insert_once(api, call, value, operation).await;
    };
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut value = value.clone();
        value["metadata"]["name"] = json!(format!("{prefix}{}", suffix()));
        match insert_once(api, call, value, operation).await {
            Err(failure) if failure.reason == "AlreadyExists" && attempts < 8 => {}
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
        // Zero is none.
        .is_some_and(|v| !v.is_empty() && v != "0")
    {
        return Err(Failure::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    // What the server itself sets is nobody's: owners are noted before.
    convertible(resource, &value, operation)?;
    let mut warnings = prepare(call, resource, &mut value, operation)?;
    warnings.extend(unqualified(resource, None, &value));
    if operation == Operation::Update {
        pipeline::track(
            None,
            &mut value,
            &call.ownership(&resource.api_version()),
            resource,
        );
    }
    settle_kind(resource, &mut value);
    prepare_new(resource, &mut value);
    validate(resource, &value, None, Vec::new())?;
    resource.keep_custom(&mut value);
    let draft = draft(resource, &value)?;
    let key = key_of(&value);
    if call.dry_run()? {
        if api.store.object(resource.stored, &key).is_some() {
            return Err(Failure::exists(resource, &name));
        }
        warnings.extend(api.advice.about(&value).await);
        return Ok(Stored::Shown(value, warnings));
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

/// Fills in what the server owns.
fn prepare_new(resource: &Resource, value: &mut Value) {
    if let Some(metadata) = value["metadata"].as_object_mut() {
        for name in [
            "resourceVersion",
            "selfLink",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
        ] {
            metadata.remove(name);
        }
        metadata.insert("uid".into(), json!(uuid::Uuid::new_v4().to_string()));
        metadata.insert("creationTimestamp".into(), json!(now()));
        if matches!(resource.form, Form::Custom | Form::Definition) {
            metadata.insert("generation".into(), json!(1));
        }
    }
    if resource.form == Form::Custom && resource.status {
        remove(value, "status");
    }
    if resource.form == Form::Definition {
        value["status"] = definitions::status::initial(&value["spec"]);
    }
    if resource.form == Form::Namespace {
        value["spec"] = json!({"finalizers": ["kubernetes"]});
        value["status"] = json!({"phase": "Active"});
    }
}

/// Serialises an object for the store, unless it is too large.
pub(crate) fn draft(resource: &Resource, value: &Value) -> Result<Draft> {
    let draft = Draft::new(value, &resource.fields).of_epoch(resource.epoch);
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

pub(crate) fn key_of(value: &Value) -> Key {
    Key::new(
        value["metadata"]["namespace"].as_str().unwrap_or_default(),
        name_of(value),
    )
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
