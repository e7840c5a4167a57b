//! `windlass providers status`: how all providers stand, of all kinds and namespaces.

use super::stand;
use crate::{cli::Global, terminal};

pub(crate) async fn status(global: &Global) -> anyhow::Result<()> {
    let stands = stand::all(&global.client().await?).await?;
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
        let ready = stand.ready();
        [
            stand.kind.to_string(),
            stand.namespace.clone(),
            stand.name.clone(),
            or(&stand.wanted, "newest"),
            or(stand.installed_version().unwrap_or_default(), "-"),
            or(stand.status.contract.as_deref().unwrap_or_default(), "-"),
            ready.map_or("Unknown".to_owned(), |ready| ready.status.clone()),
            ready.map(|ready| ready.reason.clone()).unwrap_or_default(),
        ]
    });
    println!("{}", terminal::table(header, rows));
    for stand in stands {
        if let Some(ready) = stand.ready().filter(|ready| ready.status != "True") {
            let told = format!("{}: {}", stand.title(), ready.message);
            println!("{}", terminal::text(&told));
        }
    }
    Ok(())
}
