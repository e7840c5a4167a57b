//! What stands against bringing a cluster to a revision before anything of it is tried.

use api::inventory::{FLEET_CLUSTER_ANNOTATION, FLEET_LABEL, FleetCluster, FleetProblem};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::{Value, json};

use super::{
    Context, Error,
    apply::{Stop, is_unknown},
    live, own,
    part::{Part, Parts},
};

/// Refuses objects that may not be applied for a fleet.
pub(super) async fn unfit(parts: &Parts, context: &Context) -> Result<(), Stop> {
    for part in &parts.objects {
        let is_namespaced = match live::is_namespaced(part, context).await {
            Err(Error::Api(_, error)) if part.is_vault_secret() && is_unknown(&error) => {
                return Err(no_vault_secrets(part).into());
            }
            found => found?,
        };
        if !is_namespaced {
            return Err(Stop::from(FleetProblem {
                object: part.title(),
                path: Some("kind".to_owned()),
                rule: "NotApplied".to_owned(),
                message: format!(
                    "a {} is of no namespace, and is not applied for a fleet",
                    part.kind
                ),
                remedy: "take it out of the ClusterTemplate and apply it yourself".to_owned(),
                level: None,
            }));
        }
    }
    Ok(())
}

/// Refuses namespaces that may not be written into, and says which are to be made.
pub(super) async fn places(
    cluster: &FleetCluster,
    parts: &Parts,
    context: &Context,
) -> Result<Vec<String>, Stop> {
    let own = cluster.namespace().unwrap_or_default();
    let api = Api::<Namespace>::all(context.client.clone());
    let mut to_make = Vec::new();
    for place in parts.places() {
        if place == own {
            continue;
        }
        let failed = |error| Error::Api(format!("read Namespace {place}"), error);
        let there = api.get_metadata_opt(place).await.map_err(failed)?;
        let is_made = parts.namespaces.iter().any(|made| made == place);
        match there {
            Some(there) if there.labels().get(FLEET_LABEL) == Some(&own) => {}
            Some(_) => return Err(foreign_namespace(place, &own).into()),
            None if is_made && is_of_others(place) => {
                return Err(reserved_namespace(place, &own).into());
            }
            None if is_made => to_make.push(place.to_owned()),
            None => return Err(no_namespace(place, &own).into()),
        }
    }
    Ok(to_make)
}

/// Makes a namespace, which objects can be tried in only when it is there.
pub(super) async fn make(place: &str, own: &str, context: &Context) -> Result<(), Stop> {
    let made: Namespace = serde_json::from_value(json!({
        "metadata": {"name": place, "labels": {FLEET_LABEL: own}},
    }))
    .unwrap_or_default();
    let api = Api::<Namespace>::all(context.client.clone());
    // Where somebody else was quicker, the next pass looks whose it is.
    let created = api.create(&PostParams::default(), &made).await;
    created.map_err(|error| Error::Api(format!("create Namespace {place}"), error))?;
    Ok(())
}

/// Whether the name of a namespace says that somebody else makes it: whoever had it first would have what is put there.
fn is_of_others(place: &str) -> bool {
    const OF_OTHERS: [&str; 4] = ["kube-", "openshift-", "magnum-", "coe-"];
    OF_OTHERS.iter().any(|prefix| place.starts_with(prefix))
}

fn foreign_namespace(place: &str, own: &str) -> FleetProblem {
    FleetProblem {
        object: format!("Namespace {place}"),
        path: Some("metadata.labels".to_owned()),
        rule: "ForeignNamespace".to_owned(),
        message: format!(
            "does not say that FleetClusters of the namespace {own} may have objects in it"
        ),
        remedy: format!("if it is meant: kubectl label namespace {place} {FLEET_LABEL}={own}"),
        level: None,
    }
}

fn reserved_namespace(place: &str, own: &str) -> FleetProblem {
    FleetProblem {
        object: format!("Namespace {place}"),
        path: Some("metadata.name".to_owned()),
        rule: "ForeignNamespace".to_owned(),
        message:
            "has a name that Kubernetes or Magnum makes namespaces by, and is not made for a fleet"
                .to_owned(),
        remedy: format!(
            "have the ClusterTemplate name another one; if it is meant, create it with the label {FLEET_LABEL}={own}"
        ),
        level: None,
    }
}

fn no_namespace(place: &str, own: &str) -> FleetProblem {
    FleetProblem {
        object: format!("Namespace {place}"),
        rule: "NoNamespace".to_owned(),
        message: "is not there, and the ClusterTemplate does not make it".to_owned(),
        remedy: format!(
            "create it with the label {FLEET_LABEL}={own}, or add it to the template's documents"
        ),
        ..FleetProblem::default()
    }
}

/// What is wrong with an object that is there and is not this cluster's.
pub(super) fn foreign(cluster: &FleetCluster, part: &Part, there: &Value) -> Option<FleetProblem> {
    if live::is_own(there, cluster) {
        return None;
    }
    let whose = &there["metadata"]["annotations"][FLEET_CLUSTER_ANNOTATION];
    let (message, own) = match whose.as_str() {
        Some(other) => (format!("belongs to the FleetCluster {other}"), own(cluster)),
        None => (
            "is there already, and was not made for this FleetCluster".to_owned(),
            own(cluster),
        ),
    };
    let own = own.as_str().unwrap_or_default().to_owned();
    Some(FleetProblem {
        object: part.title(),
        path: Some("metadata.annotations".to_owned()),
        rule: "ForeignObject".to_owned(),
        message: api::text::plain(&message, 500),
        remedy: format!(
            "give the cluster another name; or hand it over: kubectl annotate -n {} {} {} {FLEET_CLUSTER_ANNOTATION}={own}",
            part.namespace,
            part.kubectl_kind(),
            part.name
        ),
        level: None,
    })
}

/// Of what nobody knows any more nothing can be taken away, and it would stay for ever.
pub(super) fn lost(revision: &str) -> FleetProblem {
    FleetProblem {
        object: format!("FleetRevision of {revision}"),
        rule: "RecordLost".to_owned(),
        message: "holds what stands of the cluster, and is gone or altered: nobody knows which objects of it would have to go".to_owned(),
        remedy: "restore it from a backup. Without one: delete yourself what the inventory no longer has of this cluster, and have the rest \
            taken for handed over: kubectl patch fleetcluster NAME --subresource=status --type=merge -p \
            '{\"status\":{\"applied\":\"adopted\",\"begun\":null,\"abandoned\":null}}', \
            and once more if status.applied is not adopted then"
            .to_owned(),
        ..FleetProblem::default()
    }
}

/// With a Cluster, its control plane or its network, all of its machines and hosts would go, or be nobody's.
pub(super) fn cluster_goes(part: &Part) -> FleetProblem {
    FleetProblem {
        object: part.title(),
        rule: "ClusterGoes".to_owned(),
        message: "is this cluster's own, and would be deleted: the inventory renders none of its name any more"
            .to_owned(),
        remedy: "have the ClusterTemplate name it as before; for another cluster make another FleetCluster; to end this one \
            delete its FleetCluster, and then the Cluster"
            .to_owned(),
        ..FleetProblem::default()
    }
}

fn no_vault_secrets(part: &Part) -> FleetProblem {
    FleetProblem {
        object: part.title(),
        path: Some("kind".to_owned()),
        rule: "NoVaultSecrets".to_owned(),
        message: "the API has no VaultSecrets, and a value of this cluster is in Vault".to_owned(),
        remedy: "start Windlass with --vault; in a cluster: apply vault-crds.yaml and set vault.enabled of the chart".to_owned(),
        level: None,
    }
}
