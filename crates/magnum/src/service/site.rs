//! What is told of the service itself: versions, health, statistics, its parts.

use api::magnum::CoeCluster;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Answer, Asked};
use crate::{
    contract::{
        Fault, Version,
        objects::{Service, Stats},
    },
    store::Scope,
    view::{links, moment},
};

/// What the version document links to.
const RESOURCES: [&str; 9] = [
    "clustertemplates",
    "clusters",
    "quotas",
    "certificates",
    "mservices",
    "stats",
    "federations",
    "nodegroups",
    "credentials",
];

/// What needs no token.
pub(super) fn public(path: &str, base: &str) -> Option<Result<Answer, Fault>> {
    match path {
        "" => Some(Answer::ok(root(base))),
        "v1" => Some(Answer::ok(first(base))),
        "healthcheck" => Some(Answer::ok("OK")),
        _ => None,
    }
}

fn root(base: &str) -> Value {
    json!({
        "name": "OpenStack Magnum API",
        "description": "Clusters of Kubernetes, kept by Windlass.",
        "versions": [{
            "id": "v1",
            "links": [{"rel": "self", "href": format!("{base}/v1/")}],
            "status": "CURRENT",
            "max_version": Version::MAXIMUM.to_string(),
            "min_version": Version::MINIMUM.to_string(),
        }],
    })
}

fn first(base: &str) -> Value {
    let mut document = json!({
        "id": "v1",
        "media_types": [{"base": "application/json", "type": "application/vnd.openstack.magnum.v1+json"}],
        "links": [
            {"rel": "self", "href": format!("{base}/v1/")},
            {
                "rel": "describedby", "type": "text/html",
                "href": "http://docs.openstack.org/developer/magnum/dev/api-spec-v1.html",
            },
        ],
    });
    for resource in RESOURCES {
        document[resource] = json!(links(base, &format!("{resource}/")));
    }
    document["nodegroups"] = json!(links(base, "clusters/{cluster_id}/nodegroups"));
    document
}

pub(super) async fn stats(asked: &Asked<'_>) -> Result<Answer, Fault> {
    if asked.argument("type").is_some_and(|kind| kind != "cluster") {
        return Err(Fault::invalid("Invalid type for stats. Use cluster."));
    }
    let scope = match asked.argument("project_id") {
        None => asked.scope(),
        Some(project) if project == asked.caller.project_id || asked.caller.is_admin() => {
            Scope::Project(project)
        }
        Some(_) => {
            return Err(Fault::forbidden(
                "Not authorized to see the stats of other projects.",
            ));
        }
    };
    let clusters: Vec<CoeCluster> = asked.store().list(scope).await?;
    let groups = clusters
        .iter()
        .flat_map(|cluster| &cluster.spec.node_groups);
    Answer::ok(Stats {
        clusters: clusters.len(),
        nodes: groups.map(|group| u64::from(group.node_count)).sum(),
    })
}

/// There is one part, this process, and who can ask it sees that it is up.
pub(super) fn services(asked: &Asked<'_>) -> Result<Answer, Fault> {
    asked.caller.may_administer()?;
    let service = Service {
        id: 1,
        host: asked.service.options.host.clone(),
        binary: "magnum-conductor",
        state: "up",
        disabled: false,
        disabled_reason: None,
        report_count: 1,
        created_at: Some(moment(asked.service.started)),
        updated_at: Some(moment(Timestamp::now())),
    };
    Answer::ok(json!({"mservices": [service]}))
}
