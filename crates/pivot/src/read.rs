//! Reads what a side has of what moves.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use clusterctl::{Installed, Object, ProviderType};
use kube::{ResourceExt, core::ApiResource};
use serde_json::Value;

use crate::{
    contract,
    copy::Origin,
    error::{Error, Result},
    graph::Graph,
    kind::{Kind, Moves},
    place::{Item, Place},
};

/// The graph of a namespace, and what could not be looked at.
pub(crate) async fn read(place: &Place, kinds: &[Arc<Kind>]) -> Result<(Graph, Vec<String>)> {
    let (mut items, mut warnings) = (Vec::new(), Vec::new());
    for kind in kinds {
        items.extend(place.list(kind, Some(&place.namespace)).await?);
        if kind.is_secret() {
            let (secrets, unseen) = secrets_of_providers(place, kind).await?;
            items.extend(secrets);
            warnings.extend(unseen);
        }
    }
    items.extend(classes_elsewhere(place, kinds, &items).await?);
    let used = if items.iter().any(|item| item.kind.is_cluster_class()) {
        used_elsewhere(place, kinds).await?
    } else {
        BTreeSet::new()
    };
    Ok((Graph::new(items, &place.namespace, &used), warnings))
}

/// The Secrets beside the controllers of infrastructures: identities, which are in no namespace, own some of them.
async fn secrets_of_providers(
    place: &Place,
    secret: &Arc<Kind>,
) -> Result<(Vec<Item>, Vec<String>)> {
    let (mut secrets, mut unseen) = (Vec::new(), Vec::new());
    let installed = providers(place).await?;
    let installed = installed
        .iter()
        .filter_map(|provider| provider.as_ref().ok());
    let namespaces: BTreeSet<_> = installed
        .filter(|one| one.provider.provider_type() == ProviderType::Infrastructure)
        .map(|one| one.namespace.as_str())
        .filter(|namespace| *namespace != place.namespace)
        .collect();
    for namespace in namespaces {
        match place.list(secret, Some(namespace)).await {
            Err(error) if error.has_code(&[403]) => unseen.push(format!(
                "you may not list Secrets of namespace {namespace} {}: what identities or the label {} have there is not copied",
                place.word,
                crate::kind::MOVE
            )),
            found => secrets.extend(found?),
        }
    }
    Ok((secrets, unseen))
}

/// What clusterctl's inventory says of the installed providers; what an entry says that is none.
pub(crate) async fn providers(place: &Place) -> Result<Vec<Result<Installed, String>>> {
    let kind = Arc::new(Kind {
        resource: ApiResource {
            group: "clusterctl.cluster.x-k8s.io".to_owned(),
            version: "v1alpha3".to_owned(),
            api_version: "clusterctl.cluster.x-k8s.io/v1alpha3".to_owned(),
            kind: "Provider".to_owned(),
            plural: "providers".to_owned(),
        },
        is_namespaced: true,
        moves: Moves::WithOwner,
        contracts: Vec::new(),
    });
    let found = place.list(&kind, None).await?.into_iter();
    let installed = found.map(|item| {
        let types = serde_json::json!({
            "apiVersion": kind.resource.api_version, "kind": kind.resource.kind,
            "metadata": {"name": item.name(), "namespace": item.namespace()},
        });
        let mut value = item.object.data;
        if let (Some(fields), Value::Object(types)) = (value.as_object_mut(), types) {
            fields.extend(types);
        }
        let object = Object::new(value).map_err(|lack| lack.to_string())?;
        Installed::read(&object).map_err(|error| error.to_string())
    });
    Ok(installed.collect())
}

/// The ClusterClasses of other namespaces that the clusters use, and the templates that those name.
async fn classes_elsewhere(
    place: &Place,
    kinds: &[Arc<Kind>],
    items: &[Item],
) -> Result<Vec<Item>> {
    let clusters = items.iter().filter(|item| item.kind.is_cluster());
    let named: BTreeSet<_> = clusters
        .filter_map(contract::class)
        .filter(|(namespace, _)| *namespace != place.namespace)
        .collect();
    let Some(kind) = kinds.iter().find(|kind| kind.is_cluster_class()) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for (namespace, name) in named {
        let class = place.get(kind, Some(&namespace), &name).await?;
        let class = class.ok_or_else(|| {
            Error::Stopped(format!(
                "spec.topology.classRef of a Cluster of namespace {} is ClusterClass {name} of namespace {namespace}: there is none; \
                 nothing was changed; make it, or name another class",
                place.namespace
            ))
        })?;
        for template in contract::templates(&class) {
            let mut kinds = kinds.iter();
            let Some(kind) = kinds.find(|kind| kind.is(&template.group, &template.kind)) else {
                continue;
            };
            found.extend(place.get(kind, Some(&namespace), &template.name).await?);
        }
        found.push(class);
    }
    Ok(found)
}

/// The ClusterClasses of the namespace that clusters of other ones use.
async fn used_elsewhere(place: &Place, kinds: &[Arc<Kind>]) -> Result<BTreeSet<(String, String)>> {
    let Some(kind) = kinds.iter().find(|kind| kind.is_cluster()) else {
        return Ok(BTreeSet::new());
    };
    let clusters = place.list(kind, None).await?;
    let others = clusters
        .iter()
        .filter(|cluster| cluster.namespace() != Some(place.namespace.as_str()));
    Ok(others.filter_map(contract::class).collect())
}

/// The copies on a side, by what they were made of.
pub(crate) async fn copies(
    there: &Place,
    kinds: &[Arc<Kind>],
    namespaces: &BTreeSet<String>,
    origin: &Origin,
) -> Result<BTreeMap<String, Item>> {
    let mut copies = BTreeMap::new();
    for kind in kinds {
        let mut found = Vec::new();
        if kind.is_namespaced {
            for namespace in namespaces {
                found.extend(there.list(kind, Some(namespace)).await?);
            }
        } else {
            found = there.list(kind, None).await?;
        }
        for item in found {
            if let Some(uid) = origin.of(&item) {
                copies.insert(uid.to_owned(), item);
            }
        }
    }
    Ok(copies)
}

/// The namespaces of what moves, with the one that is moved.
pub(crate) fn namespaces(graph: &Graph, home: &str) -> BTreeSet<String> {
    let named = graph
        .moving()
        .filter_map(|node| node.item.object.namespace());
    named.chain([home.to_owned()]).collect()
}
