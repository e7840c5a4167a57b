//! Whole inventories: what they come to, where it comes from, and what is wrong with bad ones.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod back_ends;
mod bad;
mod cluster_api;
mod example;
mod explain;
mod impact;
mod import;
mod laws;
mod levels;
mod machines;
mod memo;
mod promises;
mod provenance;
mod rules;
mod semantics;
mod templates;
mod topology;
mod vault;

use inventory::{Fleet, Object, Problems, Rendered};
use serde_json::Value;

/// The objects of YAML documents.
fn objects(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect()
}

fn fleet(text: &str) -> Result<Fleet, Problems> {
    Fleet::read(objects(text), "default")
}

fn cluster(name: &str) -> Object {
    Object {
        kind: "FleetCluster".into(),
        namespace: "default".into(),
        name: name.into(),
    }
}

fn render(text: &str) -> Result<Rendered, Problems> {
    fleet(text)?.render(&cluster("c"))
}

/// What is wrong with an inventory whose cluster is called c.
fn problems(text: &str) -> String {
    match render(text) {
        Ok(rendered) => panic!("nothing is wrong: {:?}", rendered.documents),
        Err(problems) => problems.to_string(),
    }
}

/// An inventory of two levels, low below high, whose template gives all values back; `rules` are those of the Hierarchy.
fn two_levels(rules: &str, weak: &str, strong: &str) -> String {
    format!(
        "
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: Hierarchy, metadata: {{name: default}}, spec: {{
  levels: [{{name: site, kind: Site}}], merges: {rules}}}}}
---
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: Site, metadata: {{name: s}}, spec: {{template: t, values: {weak}}}}}
---
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: FleetCluster, metadata: {{name: c}}, spec: {{parents: {{site: s}}, values: {strong}}}}}
---
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: ClusterTemplate, metadata: {{name: t}}, spec: {{backEnd: Plain, documents: [
  {{object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: c}}}}}}]}}}}
"
    )
}
