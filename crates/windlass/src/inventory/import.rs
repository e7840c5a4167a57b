//! `windlass inventory import`: an inventory of the clusters that there are.

use std::{fs, process::ExitCode};

use anyhow::{Context, ensure};
use api::{Cluster, ClusterNode};
use inventory::{
    contract,
    import::{Kind, Level, cluster_api},
};
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ListParams},
    core::ApiResource,
    discovery::{ApiGroup, Discovery, Scope, verbs},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    cli::{Global, ImportClusters, ImportOf},
    client::answered,
    manifest::Opener,
    objects::{create, refuse_used, yaml},
    terminal::text,
};

/// Writes the inventory of the clusters.
pub(super) async fn import(global: &Global, options: &ImportClusters) -> anyhow::Result<ExitCode> {
    let directory = &options.directory;
    refuse_used(directory)?;
    let objects = if options.filename.is_empty() {
        let client = global.client().await?;
        match options.of {
            ImportOf::Kubespray => {
                let mut objects = all::<Cluster>(&client).await?;
                objects.extend(all::<ClusterNode>(&client).await?);
                objects
            }
            ImportOf::ClusterApi => all_of_cluster_api(&client).await?,
        }
    } else {
        let opener = Opener::refusing("the inventory that is written would hold it in the open");
        super::values(&opener, &options.filename)?
    };
    let (inventory, wanted) = match options.of {
        ImportOf::Kubespray => (
            inventory::import::import(&objects, &options.levels)?,
            "kubespray.k8s.io/v1",
        ),
        ImportOf::ClusterApi => (
            cluster_api::import(&objects, &options.levels)?,
            "cluster.x-k8s.io",
        ),
    };
    ensure!(
        !inventory.is_empty(),
        "there is no Cluster of {wanted}: name files that have one with -f, or an API with --kubeconfig, and say with --of whose clusters \
         are meant"
    );
    let files = files(&inventory)?;
    fs::create_dir_all(directory)
        .with_context(|| format!("failed to create {}", directory.display()))?;
    for (file, of) in files {
        create(&directory.join(file), &yaml(&of)?, 0o644)?;
    }
    let clusters = inventory
        .iter()
        .filter(|object| object["kind"] == "FleetCluster");
    println!(
        "{} clusters in {}: it renders to exactly what they are; windlass inventory render -f {}",
        clusters.count(),
        directory.display(),
        directory.display()
    );
    if let ImportOf::ClusterApi = options.of {
        let classes = cluster_api::classes(&objects);
        let classes: Vec<_> = classes.iter().map(ToString::to_string).collect();
        if !classes.is_empty() {
            println!(
                "left out, and needed beside it: {}, with the templates that a class names",
                text(&classes.join(", "))
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The objects of each file that there is to be.
///
/// # Errors
///
/// An object that no file takes: without it the inventory would be another one.
fn files(inventory: &[Value]) -> anyhow::Result<Vec<(&'static str, Vec<Value>)>> {
    let mut files: Vec<_> = FILES.map(|(file, _)| (file, Vec::new())).into();
    for object in inventory {
        let kind = object["kind"].as_str().unwrap_or_default();
        let place = FILES.iter().position(|(_, kinds)| kinds.contains(&kind));
        let (_, of) = place.and_then(|place| files.get_mut(place)).with_context(|| {
            let name = &object["metadata"]["name"];
            format!(
                "the import made a {kind} {name}, for which it has no file, so nothing is written: say that this happened, it is a \
                 defect of the import"
            )
        })?;
        of.push(object.clone());
    }
    files.retain(|(_, of)| !of.is_empty());
    Ok(files)
}

async fn all<K>(client: &Client) -> anyhow::Result<Vec<Value>>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let kind = K::kind(&());
    let api = Api::<K>::all(client.clone());
    let list = api.list(&ListParams::default()).await;
    let list = answered(list, &format!("list {kind} objects"))?;
    values(list, &K::api_version(&()), &kind)
}

/// The objects of every kind of Cluster API and its providers that the API serves.
async fn all_of_cluster_api(client: &Client) -> anyhow::Result<Vec<Value>> {
    let discovery = Discovery::new(client.clone()).run().await;
    let discovery = answered(discovery, "ask the API what it serves")?;
    let groups = discovery.groups();
    let kinds = groups
        .filter(|group| contract::is_of_cluster_api(group.name()))
        .flat_map(ApiGroup::recommended_resources)
        .filter(|(_, can)| can.scope == Scope::Namespaced && can.supports_operation(verbs::LIST));
    let mut objects = Vec::new();
    for (resource, _) in kinds {
        let ApiResource {
            api_version, kind, ..
        } = &resource;
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let list = api.list(&ListParams::default()).await;
        let list = answered(list, &format!("list {kind} objects"))?;
        objects.extend(values(list, api_version, kind)?);
    }
    Ok(objects)
}

/// Of the entries of a list an API says the kind once.
fn values(
    list: impl IntoIterator<Item = impl Serialize>,
    version: &str,
    kind: &str,
) -> anyhow::Result<Vec<Value>> {
    let values = list.into_iter().map(|object| {
        let mut value = serde_json::to_value(object).context("failed to read an object")?;
        value["apiVersion"] = version.into();
        value["kind"] = kind.into();
        Ok(value)
    });
    values.collect()
}

/// Reads LEVEL=LABEL.
pub(crate) fn level(text: &str) -> Result<Level, String> {
    let kinds = [
        Kind::Environment,
        Kind::Customer,
        Kind::Site,
        Kind::InfraProvider,
    ];
    let (level, label) = text
        .split_once('=')
        .filter(|(_, label)| !label.is_empty())
        .ok_or("a level and a label are meant, as in site=topology.acme.example/site")?;
    let kind = kinds.into_iter().find(|kind| kind.level() == level);
    let kind = kind.ok_or_else(|| {
        let known = kinds.map(Kind::level).join(", ");
        format!("{level} is no level of an import: name one of {known}")
    })?;
    Ok(Level {
        kind,
        label: Some(label.to_owned()),
    })
}

/// Which objects stand in which file.
const FILES: [(&str, &[&str]); 4] = [
    ("hierarchy.yaml", &["Hierarchy"]),
    ("template.yaml", &["ClusterTemplate"]),
    (
        "levels.yaml",
        &["Environment", "Customer", "Site", "InfraProvider"],
    ),
    ("clusters.yaml", &["FleetCluster"]),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_object_has_a_file_or_nothing_is_written() {
        let object = |kind: &str| json!({"kind": kind, "metadata": {"name": "a"}});
        let all = ["Site", "FleetCluster", "Customer", "Hierarchy"].map(object);
        let made = files(&all).unwrap();
        let made: Vec<_> = made.iter().map(|(file, of)| (*file, of.len())).collect();
        assert_eq!(
            made,
            [
                ("hierarchy.yaml", 1),
                ("levels.yaml", 2),
                ("clusters.yaml", 1)
            ]
        );
        let refused = files(&["Site", "Rollout"].map(object)).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("a Rollout \"a\", for which it has no file"),
            "{refused}"
        );
    }
}
