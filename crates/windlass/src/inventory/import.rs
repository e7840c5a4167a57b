//! `windlass inventory import`: an inventory of the clusters that there are.

use std::{fs, process::ExitCode};

use anyhow::{Context, ensure};
use api::{Cluster, ClusterNode};
use inventory::import::{Kind, Level};
use kube::{Api, Client, Resource, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    cli::{Global, ImportClusters},
    client::answered,
    manifest::Opener,
    objects::{create, refuse_used, yaml},
};

/// Writes the inventory of the clusters.
pub(super) async fn import(global: &Global, options: &ImportClusters) -> anyhow::Result<ExitCode> {
    let directory = &options.directory;
    refuse_used(directory)?;
    let objects = if options.filename.is_empty() {
        let client = global.client().await?;
        let mut objects = all::<Cluster>(&client).await?;
        objects.extend(all::<ClusterNode>(&client).await?);
        objects
    } else {
        let opener = Opener::refusing("the inventory that is written would hold it in the open");
        super::values(&opener, &options.filename)?
    };
    let inventory = inventory::import::import(&objects, &options.levels)?;
    ensure!(
        !inventory.is_empty(),
        "there is no Cluster of kubespray.k8s.io/v1: name files that have one with -f, or an API with --kubeconfig"
    );
    fs::create_dir_all(directory)
        .with_context(|| format!("failed to create {}", directory.display()))?;
    for (file, kinds) in FILES {
        let of = inventory.iter().filter(|object| {
            object["kind"]
                .as_str()
                .is_some_and(|kind| kinds.contains(&kind))
        });
        let of: Vec<_> = of.cloned().collect();
        if !of.is_empty() {
            create(&directory.join(file), &yaml(&of)?, 0o644)?;
        }
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
    Ok(ExitCode::SUCCESS)
}

async fn all<K>(client: &Client) -> anyhow::Result<Vec<Value>>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let kind = K::kind(&());
    let api = Api::<K>::all(client.clone());
    let list = api.list(&ListParams::default()).await;
    let list = answered(list, &format!("list {kind} objects"))?;
    let values = list.into_iter().map(|object| {
        let mut value = serde_json::to_value(object).context("failed to read an object")?;
        value["apiVersion"] = K::api_version(&()).into();
        value["kind"] = kind.clone().into();
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
