//! `windlass describe`: what a cluster of Cluster API waits for. What is made of its objects lives in [`clusterctl::describe`].

mod read;

use clusterctl::describe::{Grouping, Shown, document, lines, tree};
use k8s_openapi::jiff::Timestamp;

use crate::{
    cli::{Describe, DescribeCluster, Global, Output, ShowConditions},
    status, terminal,
};

pub(crate) async fn describe(global: &Global, command: &Describe) -> anyhow::Result<()> {
    match command {
        Describe::Cluster(options) => cluster(global, options).await,
    }
}

async fn cluster(global: &Global, options: &DescribeCluster) -> anyhow::Result<()> {
    let client = global.client().await?;
    let seen = read::read(&client, &global.namespace, &options.name).await?;
    let grouping = if options.grouping {
        Grouping::Grouped
    } else {
        Grouping::Single
    };
    let tree = tree(&seen, grouping);
    let shown = match options.show_conditions {
        None => Shown::Nothing,
        Some(ShowConditions::Failing) => Shown::Failing,
        Some(ShowConditions::All) => Shown::All,
    };
    match options.output {
        Output::Text => lines(&tree, shown, Timestamp::now(), status::width())
            .iter()
            .for_each(|line| println!("{}", terminal::text(line))),
        Output::Json => println!("{}", terminal::json(&document(&tree))?),
        Output::Yaml => println!("{}", terminal::yaml(&document(&tree))?),
    }
    Ok(())
}
