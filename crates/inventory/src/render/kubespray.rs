//! The objects of kubespray.k8s.io, held against their definitions.

use api::inventory::ValuePath;
use api::{Cluster, ClusterNode};

use super::{RenderedDocument, typed};
use crate::{
    problem::{Problem, Rule},
    template::Compiled,
};

/// What is wrong with the objects of a kubespray cluster.
pub(super) fn check(template: &Compiled, documents: &[RenderedDocument]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let own = documents
        .iter()
        .filter(|document| document.api_version == API_VERSION);
    let mut clusters = 0;
    for document in own {
        let found = match document.object.kind.as_str() {
            "Cluster" => {
                clusters += 1;
                typed::problems::<Cluster>(&document.to_value())
            }
            "ClusterNode" => typed::problems::<ClusterNode>(&document.to_value()),
            kind => vec![(
                ValuePath::default(),
                format!("gives a {kind}, which {API_VERSION} does not have"),
                "it has Cluster and ClusterNode",
            )],
        };
        for (path, what, remedy) in found {
            let object = &document.object;
            let what = format!("{} {}, {path}: {what}", object.kind, object.name);
            let rule = Rule::Rendered { what, remedy };
            problems.push(
                template
                    .source
                    .problem(ValuePath::clone(&document.at), rule),
            );
        }
    }
    if clusters != 1 {
        let rule = Rule::Rendered {
            what: format!("gives {clusters} Clusters of {API_VERSION}"),
            remedy: "a template of the back end Kubespray gives one; take the back end Plain for other objects",
        };
        let at = crate::fleet::field(&["spec", "documents"]);
        problems.push(template.source.problem(at, rule));
    }
    problems
}

pub(super) const API_VERSION: &str = "kubespray.k8s.io/v1";
