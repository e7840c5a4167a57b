//! `windlass component upgrade`: asks for one component of a built cluster to be brought to what the spec says; or shows what would be
//! done then.

use api::Cluster;
use clap::ValueEnum;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt};
use kubespray::{Layout, operation::component::ASKED, preview};

use crate::{
    cli::{Component, Global, Output, UpgradeComponent},
    client::named_or_only,
    converge::{possible, request_of},
    plan,
};

pub(crate) async fn component(global: &Global, command: &Component) -> anyhow::Result<()> {
    match command {
        Component::Upgrade(options) => upgrade(global, options).await,
    }
}

async fn upgrade(global: &Global, options: &UpgradeComponent) -> anyhow::Result<()> {
    let client = global.client().await?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, options.cluster.as_deref()).await?;
    let runs = Api::namespaced(client.clone(), &global.namespace);
    possible(&cluster, &runs, &ASKED).await?;
    let name = options.component.to_possible_value();
    let name = name.as_ref().map_or("", |value| value.get_name());
    let request = format!("{name} {}", Timestamp::now());
    if options.yes {
        return request_of(global, clusters, &cluster.name_any(), &ASKED, request).await;
    }
    let layout = Layout::new(global.private_data_directory()?);
    let asked = (ASKED.annotation, request.as_str());
    let mut preview = preview::asked(&client, &cluster, asked, &layout).await?;
    preview::foresee(&client, &mut preview).await;
    plan::show(&[preview], options.output)?;
    if !options.dry_run && matches!(options.output, Output::Text) {
        global.say(&format!(
            "nothing was done; to carry it out: {}",
            global.carried_out()
        ));
    }
    Ok(())
}
