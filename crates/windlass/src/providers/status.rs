//! `windlass providers status`: how all providers stand, of all kinds and namespaces.

use super::stand::Stand;
use crate::{cli::Global, terminal};

pub(crate) async fn status(global: &Global) -> anyhow::Result<()> {
    let stands = Stand::all(&global.client().await?).await?;
    if stands.is_empty() {
        println!("There are no providers.");
        return Ok(());
    }
    let header = [
        "KIND",
        "NAMESPACE",
        "NAME",
        "WANTED",
        "INSTALLED",
        "CONTRACT",
        "READY",
        "REASON",
    ];
    let rows = stands.iter().map(|stand| {
        let or = |text: &str, otherwise: &str| match text {
            "" => otherwise.to_owned(),
            text => text.to_owned(),
        };
        let ready = stand.ready.as_ref();
        [
            stand.kind.to_owned(),
            stand.namespace.clone(),
            stand.name.clone(),
            or(&stand.wanted, "newest"),
            or(stand.installed.as_deref().unwrap_or_default(), "-"),
            or(&stand.contract, "-"),
            ready.map_or("Unknown".to_owned(), |ready| ready.status.clone()),
            ready.map(|ready| ready.reason.clone()).unwrap_or_default(),
        ]
    });
    println!("{}", terminal::table(header, rows));
    for stand in stands {
        if let Some(ready) = stand.ready.filter(|ready| ready.status != "True") {
            let told = format!(
                "{} {}/{}: {}",
                stand.kind, stand.namespace, stand.name, ready.message
            );
            println!("{}", terminal::text(&told));
        }
    }
    Ok(())
}
