//! `windlass openstack install-chart`: charts of others, whose hooks make some of them wait for themselves.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use api::openstack::OF_LABEL;
use helm::{Change, Helm, Place, Proven, deadlock::When, deadlocks, lock, record};
use runs::layout::Layout;
use serde_json::{Value, json};

use crate::{
    cli::{Global, InstallChart},
    terminal,
};

pub(super) async fn install(global: &Global, options: &InstallChart) -> anyhow::Result<()> {
    let place = Place {
        namespace: &global.namespace,
        release: &options.release,
    };
    let values = values(options)?;
    let change = Change {
        chart: &options.chart,
        values: &values,
    };
    let deadline = Duration::from_secs(options.timeout);
    // The same cluster that is asked below.
    let kubeconfig = global.chosen_kubeconfig()?;
    let helm = Helm::find(&options.helm, kubeconfig.as_deref())
        .await
        .context("failed to use Helm")?;
    let rendered = helm.template(place, change, deadline).await;
    let rendered = rendered.context("failed to see what the chart is made of")?;
    let found = deadlocks(&rendered).context("failed to see what the chart is made of")?;
    for knot in &found {
        println!("{}", terminal::text(&knot.to_string()));
    }
    if options.dry_run {
        println!("{} knots; nothing was changed", found.len());
        return Ok(());
    }
    ensure!(
        found.iter().all(|knot| knot.when == When::Waiting),
        "chart {} cannot be installed: a hook of it waits for what comes after it; bring that by values of the chart, or make it before",
        options.chart.display()
    );
    if options.wait && !found.is_empty() {
        bail!(
            "--wait: chart {} would be waited for until the deadline, in vain; leave --wait out, and look at its pods (kubectl get pods)",
            options.chart.display()
        );
    }
    let client = global.client().await?;
    let history = record::history(&client, place.namespace, place.release).await;
    let history = history.context("failed to read the release")?;
    let is_of_object = |last: &helm::Record| last.values()["labels"][OF_LABEL].is_string();
    ensure!(
        !history.last().is_some_and(is_of_object),
        "release {} is one that Windlass made for an object: change that, or take another name",
        options.release
    );
    let layout = Layout::new(global.private_data_directory()?);
    let held = lock::hold(&layout.root().join("helm"), place).await;
    let held = held.context("failed to lock the release")?;
    let done = if options.wait {
        let proven = Proven::of(&rendered)?;
        helm.upgrade_and_wait(&held, change, &proven, deadline)
            .await
    } else {
        helm.upgrade(&held, change, deadline).await
    };
    done.context("failed to install the chart")?;
    println!("release {} is installed", options.release);
    Ok(())
}

fn values(options: &InstallChart) -> anyhow::Result<Value> {
    let Some(file) = &options.values else {
        return Ok(json!({}));
    };
    let read = || format!("failed to read the values in {}", file.display());
    let text = std::fs::read_to_string(file).with_context(read)?;
    serde_saphyr::from_str(&text).with_context(read)
}
