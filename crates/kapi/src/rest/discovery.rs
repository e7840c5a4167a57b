//! What clients ask before they ask for objects: versions, groups, resources, OpenAPI.

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use super::answer::{bytes_response, json_response};
use crate::{
    failure::{Failure, Result},
    pipeline,
    registry::REVIEWS,
    registry::Resource,
    state::Api,
};

pub(crate) fn route(api: &Api, parts: &[&str], request: &Request) -> Result<Response> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let known = matches!(parts, ["api" | "apis" | "version" | "openapi", ..]);
        return Err(if known {
            Failure::method_not_allowed()
        } else {
            Failure::no_route()
        });
    }
    let aggregated = aggregated(request);
    let body = match parts {
        [""] => {
            json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]})
        }
        ["version"] => version(),
        ["api"] if aggregated => return Ok(groups_v2(api, true)),
        ["apis"] if aggregated => return Ok(groups_v2(api, false)),
        ["api"] => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        ["apis"] => {
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": named_groups(api).iter().map(|(name, versions)| group(name, versions)).collect::<Vec<_>>()})
        }
        ["apis", name] => {
            let groups = named_groups(api);
            let (name, versions) = groups
                .iter()
                .find(|(group, _)| group == name)
                .ok_or_else(Failure::no_route)?;
            let mut value = group(name, versions);
            value["kind"] = json!("APIGroup");
            value["apiVersion"] = json!("v1");
            value
        }
        ["api", version] => resources(api, "", version)?,
        ["apis", group, version] => resources(api, group, version)?,
        ["openapi", "v2"] => return Ok(openapi_v2(request)),
        ["openapi", "v3", rest @ ..] => return openapi(api, rest),
        _ => return Err(Failure::no_route()),
    };
    Ok(json_response(StatusCode::OK, &body))
}

fn aggregated(request: &Request) -> bool {
    request
        .headers()
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|accept| {
            accept.split(',').any(|choice| {
                choice.contains("g=apidiscovery.k8s.io")
                    && choice.contains("v=v2")
                    && !choice.contains("v=v2beta1")
            })
        })
}

/// kubectl, and wrappers that choose a kubectl by the server, want a version that looks like one of Kubernetes.
fn version() -> Value {
    json!({
        "major": "1", "minor": "33", "gitVersion": "v1.33.0+windlass",
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// Groups other than the core one, with those that only answer reviews.
fn named_groups(api: &Api) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = api
        .registry
        .groups()
        .into_iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| {
            (
                name.to_owned(),
                versions.into_iter().map(str::to_owned).collect(),
            )
        })
        .collect();
    for (group, _, _) in REVIEWS {
        groups.push((group.to_owned(), vec!["v1".to_owned()]));
    }
    groups
}

fn group(name: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resources(api: &Api, group: &str, version: &str) -> Result<Value> {
    let mut list: Vec<Value> = Vec::new();
    for resource in api.registry.of_version(group, version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs(),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        list.push(entry);
        for (name, of) in subresources(resource) {
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": of.kind, "verbs": SUBRESOURCE_VERBS,
            });
            if of.group != resource.group {
                entry["group"] = json!(of.group);
                entry["version"] = json!(of.version);
            }
            list.push(entry);
        }
    }
    for (_, kind, plural) in REVIEWS
        .iter()
        .filter(|(g, _, _)| *g == group && version == "v1")
    {
        list.push(json!({"name": plural, "singularName": kind.to_lowercase(), "namespaced": false, "kind": kind, "verbs": ["create"]}));
    }
    if list.is_empty() {
        return Err(Failure::no_route());
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Ok(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list}),
    )
}

fn groups_v2(api: &Api, core: bool) -> Response {
    let groups: Vec<(String, Vec<String>)> = if core {
        vec![(String::new(), vec!["v1".to_owned()])]
    } else {
        named_groups(api)
    };
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| json!({"version": version, "resources": resources_v2(api, group, version), "freshness": "Current"}))
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    let mut response = bytes_response(StatusCode::OK, list.to_string());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ),
    );
    response
}

fn resources_v2(api: &Api, group: &str, version: &str) -> Vec<Value> {
    let mut list: Vec<Value> = api
        .registry
        .of_version(group, version)
        .map(resource_v2)
        .collect();
    for (_, name, plural) in REVIEWS.iter().filter(|(g, _, _)| *g == group) {
        list.push(json!({
            "resource": plural, "responseKind": response_kind(group, version, name), "scope": "Cluster",
            "singularResource": name.to_lowercase(), "verbs": ["create"],
        }));
    }
    list
}

fn resource_v2(resource: &Resource) -> Value {
    let kind = |of: &Resource| response_kind(&of.group, &of.version, &of.kind);
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind(resource),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = subresources(resource)
        .map(|(name, of)| json!({"subresource": name, "responseKind": kind(of), "verbs": SUBRESOURCE_VERBS}))
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}

fn response_kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The subresources of a resource, each with that of which it shows an object.
fn subresources(resource: &Resource) -> impl Iterator<Item = (&'static str, &Resource)> {
    let status = resource.status.then_some(("status", resource));
    let scale = resource.scale.as_ref();
    let scale = scale.map(|scale| ("scale", &scale.resource));
    status.into_iter().chain(scale)
}

/// The older description, without definitions. kubectl asks for it when a file holds a `List`, which no version of the newer one
/// describes, and then leaves the checking to the server. It only reads it as protobuf.
fn openapi_v2(request: &Request) -> Response {
    /// As clients ask for it, and as it is called in the answer: no media type may have an `@`.
    const WANTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    const ANSWERED: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    /// `Document.swagger`, its first field, is "2.0".
    const DOCUMENT: &[u8] = b"\x0a\x032.0";
    let accept = request.headers().get(header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    if !accept.is_some_and(|accept| accept.contains(WANTED)) {
        let info = json!({"title": "Kubernetes", "version": version()["gitVersion"]});
        let document = json!({"swagger": "2.0", "info": info, "paths": {}});
        return json_response(StatusCode::OK, &document);
    }
    let mut response = bytes_response(StatusCode::OK, DOCUMENT);
    let media = HeaderValue::from_static(ANSWERED);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

fn openapi(api: &Api, rest: &[&str]) -> Result<Response> {
    let document = match rest {
        [] => Some(pipeline::openapi_index(&api.registry)),
        ["api", version] => pipeline::openapi(&api.registry, "", version),
        ["apis", group, version] => pipeline::openapi(&api.registry, group, version),
        _ => None,
    };
    document
        .map(|document| json_response(StatusCode::OK, &document).into_response())
        .ok_or_else(Failure::no_route)
}
