//! Whether the kinds of what moves are served there in the version in which they are stored here, for the same contract.

use std::collections::BTreeMap;

use controller::problem::Problem;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

use crate::{
    Move,
    error::{Error, Result},
    graph::Graph,
    kind::{Kind, contracts},
};

/// The kinds that are not, each once.
pub(super) async fn missing(this: &Move<'_>, graph: &Graph) -> Result<Vec<Problem>> {
    let used = graph.moving().filter_map(|node| {
        let kind = &node.item.kind;
        Some((kind.definition()?, kind))
    });
    let used: BTreeMap<_, _> = used.collect();
    let definitions = Api::<CustomResourceDefinition>::all(this.there.client.clone());
    let mut problems = Vec::new();
    for (name, kind) in used {
        let found = this
            .there
            .persist(async || {
                definitions.get_opt(&name).await.map_err(|source| {
                    Error::api(format!("get CustomResourceDefinition {name} there"), source)
                })
            })
            .await?;
        problems.extend(problem(&name, kind, found.as_ref()));
    }
    Ok(problems)
}

fn problem(name: &str, kind: &Kind, found: Option<&CustomResourceDefinition>) -> Option<Problem> {
    let version = &kind.resource.version;
    let Some(found) = found else {
        return Some(Problem::new(
            format!("CustomResourceDefinition {name} there"),
            "",
            format!("there is none, and objects of kind {} move", kind.name()),
            "install the provider that brings it there",
        ));
    };
    let versions = found.spec.versions.iter().filter(|version| version.served);
    let served: Vec<_> = versions.map(|version| version.name.as_str()).collect();
    if !served.contains(&version.as_str()) {
        return Some(Problem::new(
            format!("CustomResourceDefinition {name} there spec.versions"),
            served.join(", "),
            format!("{version}, in which the objects are stored here, is not served"),
            "install a version of the provider there that serves it",
        ));
    }
    let offered = contracts(found, version);
    let lost = kind
        .contracts
        .iter()
        .find(|contract| !offered.contains(contract))?;
    Some(Problem::new(
        format!("CustomResourceDefinition {name} there metadata.labels[cluster.x-k8s.io/{lost}]"),
        "",
        format!("here {version} is offered for contract {lost}, and there it is not"),
        "install a version of the provider there that offers the contract",
    ))
}
