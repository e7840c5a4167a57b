//! The images of Deployments and DaemonSets.

use serde_json::{Map, Value};

use super::{ComponentsError, Release};
use crate::Object;

/// Replaces each image by what the overrides make of it, where containers are what their kind has.
pub(super) fn replace(
    objects: &mut [Object],
    release: &Release<'_>,
) -> Result<(), ComponentsError> {
    for object in objects.iter_mut().filter(|object| is_workload(object)) {
        let title = object.title();
        let wrong = |field, rule| ComponentsError::Field {
            object: title.clone(),
            field,
            rule,
        };
        for list in LISTS {
            let pointer = format!("/spec/template/spec/{list}");
            let containers = match object.value_mut().pointer_mut(&pointer) {
                None | Some(Value::Null) => continue,
                Some(containers) => containers.as_array_mut(),
            };
            let lacking = || wrong("a list of containers", "no list of mappings; write one");
            for container in containers.ok_or_else(lacking)? {
                let container = container.as_object_mut().ok_or_else(lacking)?;
                texts(container).map_err(|(field, rule)| wrong(field, rule))?;
                let text = |field: &str| container.get(field).and_then(Value::as_str);
                let replaced = release
                    .images
                    .apply(
                        release.provider,
                        text("image").unwrap_or_default(),
                        release.non_canonical,
                    )
                    .map_err(|source| ComponentsError::Image {
                        object: title.clone(),
                        container: text("name").unwrap_or_default().to_owned(),
                        source,
                    })?;
                container.insert("image".to_owned(), replaced.into());
            }
        }
    }
    Ok(())
}

/// What a variable without quotes turns into a number or `true`.
fn texts(container: &Map<String, Value>) -> Result<(), (&'static str, &'static str)> {
    let is_text =
        |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value.is_string());
    let each = |field: &str| {
        container
            .get(field)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    if !["name", "image"]
        .iter()
        .all(|field| is_text(container.get(*field)))
    {
        return Err(("name or image of a container", "no text; put it in quotes"));
    }
    if !each("env").all(|variable| is_text(variable.get("value"))) {
        return Err(("env[].value of a container", "no text; put it in quotes"));
    }
    if !["args", "command"]
        .iter()
        .all(|field| each(field).all(Value::is_string))
    {
        return Err((
            "args or command of a container",
            "no list of texts; put each in quotes",
        ));
    }
    Ok(())
}

/// The images, those of containers before those of init containers.
pub(super) fn list(objects: &[Object]) -> Vec<String> {
    let mut images = Vec::new();
    for object in objects.iter().filter(|object| is_workload(object)) {
        for list in LISTS {
            let pointer = format!("/spec/template/spec/{list}");
            let containers = object.value().pointer(&pointer).and_then(Value::as_array);
            let of = |container: &Value| container.get("image")?.as_str().map(str::to_owned);
            images.extend(containers.into_iter().flatten().filter_map(of));
        }
    }
    images
}

fn is_workload(object: &Object) -> bool {
    object.group() == "apps" && matches!(object.kind(), "Deployment" | "DaemonSet")
}

const LISTS: [&str; 2] = ["containers", "initContainers"];
