//! `windlass providers release`: hands a provider over to plain clusterctl or to another operator.

use anyhow::ensure;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use providers::{names::KEEP, stand::resource};
use serde_json::json;

use super::{delete, stand, upgrade::kind};
use crate::{
    cli::{Global, ReleaseProvider},
    client::answered,
};

pub(crate) async fn release(global: &Global, options: &ReleaseProvider) -> anyhow::Result<()> {
    let (provider, version) = options.provider.read()?;
    ensure!(
        version.is_none(),
        "a provider is handed over in the version that it has: leave that out"
    );
    let client = global.client().await?;
    let stands = stand::all(&client).await?;
    let stand = delete::meant(&stands, &global.namespace, &provider)?;
    println!(
        "deletes {}, and leaves everything that it installed where it is",
        stand.title()
    );
    let resource = resource(kind(provider.provider_type()));
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &stand.namespace, &resource);
    let body = json!({"metadata": {"annotations": {KEEP: "true"}}});
    let patched = api
        .patch_metadata(&stand.name, &PatchParams::default(), &Patch::Merge(&body))
        .await;
    answered(patched, &format!("annotate {provider}"))?;
    delete::gone(&client, stand, &provider).await
}
