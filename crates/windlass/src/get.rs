//! `windlass get`: objects as kubectl prints them.

use anyhow::Context;
use kube::{
    Client,
    core::ApiResource,
    discovery::{ApiGroup, Discovery, Scope, verbs},
};
use serde_json::Value;

use crate::{
    cli::{Get, GetOutput, Global},
    client, terminal,
};

/// Prints the objects of one or several kinds.
pub(crate) async fn get(global: &Global, options: &Get) -> anyhow::Result<()> {
    let client = global.client().await?;
    let discovery = Discovery::new(client.clone()).run().await;
    let discovery = client::answered(discovery, "ask the API what it serves")?;
    let kinds: Vec<_> = options
        .kinds
        .split(',')
        .filter(|kind| !kind.is_empty())
        .collect();
    for (index, kind) in kinds.iter().enumerate() {
        let (resource, scope) = find(&discovery, kind)
            .with_context(|| format!("the API serves no kind {kind:?}: try clusters, clusternodes, runs, events or secrets"))?;
        if index > 0 && matches!(options.output, GetOutput::Table | GetOutput::Wide) {
            println!();
        }
        print(&client, global, options, &resource, &scope).await?;
    }
    Ok(())
}

async fn print(
    client: &Client,
    global: &Global,
    options: &Get,
    resource: &ApiResource,
    scope: &Scope,
) -> anyhow::Result<()> {
    let namespace = (*scope == Scope::Namespaced && !options.all_namespaces)
        .then_some(global.namespace.as_str());
    let path = path(resource, namespace, options.name.as_deref());
    let body = match options.output {
        GetOutput::Table | GetOutput::Wide => {
            request(
                client,
                &path,
                "application/json;as=Table;v=v1;g=meta.k8s.io",
            )
            .await?
        }
        _ => request(client, &path, "application/json").await?,
    };
    match options.output {
        GetOutput::Table => println!("{}", table(&body, 0, options.all_namespaces)),
        GetOutput::Wide => println!("{}", table(&body, 1, options.all_namespaces)),
        GetOutput::Json => println!("{}", terminal::json(&body)?),
        GetOutput::Yaml => println!("{}", terminal::yaml(&body)?),
        GetOutput::Name => {
            let single = std::slice::from_ref(&body);
            let items = body["items"].as_array().map_or(single, Vec::as_slice);
            for item in items {
                println!(
                    "{}/{}",
                    resource.kind.to_lowercase(),
                    text(&item["metadata"]["name"])
                );
            }
        }
    }
    Ok(())
}

fn find(discovery: &Discovery, wanted: &str) -> Option<(ApiResource, Scope)> {
    let wanted = wanted.to_lowercase();
    let (name, group) = wanted
        .split_once('.')
        .map_or((wanted.as_str(), None), |(n, g)| (n, Some(g)));
    discovery
        .groups()
        .filter(|candidate| group.is_none_or(|group| candidate.name() == group))
        .flat_map(ApiGroup::recommended_resources)
        .filter(|(_, capabilities)| capabilities.supports_operation(verbs::LIST))
        .find(|(resource, _)| {
            let singular = resource.kind.to_lowercase();
            let short = match singular.as_str() {
                "cluster" => "kc",
                "clusternode" => "kcn",
                "namespace" => "ns",
                "configmap" => "cm",
                "event" => "ev",
                _ => "",
            };
            resource.plural == name || singular == name || (!short.is_empty() && short == name)
        })
        .map(|(resource, capabilities)| (resource, capabilities.scope))
}

fn path(resource: &ApiResource, namespace: Option<&str>, name: Option<&str>) -> String {
    let mut path = match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    if let Some(namespace) = namespace {
        path = format!("{path}/namespaces/{namespace}");
    }
    path = format!("{path}/{}", resource.plural);
    name.map_or(path.clone(), |name| format!("{path}/{name}"))
}

async fn request(client: &Client, path: &str, accept: &str) -> anyhow::Result<Value> {
    let request = http::Request::get(path)
        .header(http::header::ACCEPT, accept)
        .body(Vec::new())?;
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) => anyhow::bail!("{}", status.message),
        answer => client::answered(answer, "reach the API"),
    }
}

/// Renders a `meta.k8s.io/v1` Table with the columns up to a priority.
fn table(body: &Value, priority: i64, namespaces: bool) -> String {
    let empty = Vec::new();
    let columns = body["columnDefinitions"].as_array().unwrap_or(&empty);
    let shown: Vec<usize> = columns
        .iter()
        .enumerate()
        .filter(|(_, column)| column["priority"].as_i64().unwrap_or(0) <= priority)
        .map(|(index, _)| index)
        .collect();
    let mut header: Vec<String> = shown
        .iter()
        .map(|index| text(&columns[*index]["name"]).to_uppercase())
        .collect();
    if namespaces {
        header.insert(0, "NAMESPACE".into());
    }
    let rows = body["rows"].as_array().unwrap_or(&empty).iter().map(|row| {
        let mut cells: Vec<String> = shown
            .iter()
            .map(|index| text(&row["cells"][*index]))
            .collect();
        if namespaces {
            cells.insert(0, text(&row["object"]["metadata"]["namespace"]));
        }
        cells
    });
    terminal::table(header, rows)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
