//! `windlass providers apply`: makes the object of a provider, with its release where that is at hand, and waits until it is installed.

use anyhow::{Context, bail};
use api::provider::{GROUP, VERSION};
use clusterctl::{
    Components, ImageOverrides, NonCanonical, Provider, ProviderType, Release, Scopes,
    Substitution, Version,
    source::{Files, config_map_labels},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use providers::{
    names::TARGET,
    stand::{Stand, resource},
};
use serde_json::{Value, json};

use super::{
    describe,
    follow::{self, Awaited},
    preload, stand,
    upgrade::kind,
};
use crate::{
    cli::{ApplyProvider, Global},
    client::answered,
    terminal::say,
};

const FIELD_MANAGER: &str = "windlass-providers";

pub(crate) async fn apply(global: &Global, options: &ApplyProvider) -> anyhow::Result<()> {
    let (provider, version) = options.provider.read()?;
    let release = match &options.from {
        Some(from) => Some(options.provider.release(from)?),
        None => None,
    };
    let version = release
        .as_ref()
        .map(|(_, version, _)| version.clone())
        .or(version);
    let version =
        version.context("no version is given: write it behind the name, as NAME:VERSION")?;
    let client = global.client().await?;
    if let Some((_, version, files)) = &release {
        show(global, &provider, version, files)?;
    }
    upgrades_nothing(&client, global, &provider, &version).await?;
    let mut object = object(global, options, &provider, &version);
    let api = Api::<DynamicObject>::namespaced_with(
        client.clone(),
        &global.namespace,
        &resource(kind(provider.provider_type())),
    );
    let there = answered(
        api.get_opt(provider.name()).await,
        &format!("read {provider}"),
    )?;
    for field in there.iter().flat_map(|there| keep(&mut object, there)) {
        say!("keeps {field}, as it was applied before");
    }
    if options.dry_run {
        let text = serde_saphyr::to_string(&object).context("failed to print")?;
        print!("{text}");
        return Ok(());
    }
    namespace(&client, &global.namespace).await?;
    if let Some((_, version, files)) = &release {
        preload::keep_files(&client, global, &provider, version, files).await?;
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let applied = api
        .patch(provider.name(), &parameters, &Patch::Apply(&object))
        .await;
    let applied = answered(applied, &format!("apply {provider}"))?;
    // What an apply that changed nothing finds is what there is to say, and a generation tells of itself what was said of it.
    let is_new = |there: &&DynamicObject| {
        there.resource_version() != applied.resource_version()
            && there.metadata.generation == applied.metadata.generation
    };
    let awaited = Awaited {
        provider: kind(provider.provider_type()),
        namespace: global.namespace.clone(),
        name: provider.name().to_owned(),
        version: Some(version.to_string()),
        before: there.as_ref().filter(is_new).and_then(follow::stalled),
    };
    follow::follow(&client, &[awaited]).await
}

/// What an earlier apply said and this one does not, put into the object, for left out it would be taken away. Gives the fields.
fn keep(object: &mut Value, there: &DynamicObject) -> Vec<String> {
    let mut entries = there.metadata.managed_fields.iter().flatten();
    let own = entries.find(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
    });
    let Some(owned) = own.and_then(|own| own.fields_v1.as_ref()) else {
        return Vec::new();
    };
    let live = json!({"metadata": {"annotations": there.metadata.annotations}, "spec": there.data["spec"]});
    let mut kept = Vec::new();
    for path in KEPT {
        let owned = path
            .iter()
            .try_fold(&owned.0, |at, field| at.get(format!("f:{field}")));
        let said = path.iter().try_fold(&live, |at, field| at.get(*field));
        let (Some(_), Some(said)) = (owned, said) else {
            continue;
        };
        let at = path.iter().fold(&mut *object, |at, field| &mut at[*field]);
        if at.is_null() {
            *at = said.clone();
            kept.push(path.join("."));
        }
    }
    kept
}

/// What options of the command say.
const KEPT: [&[&str]; 3] = [
    &["spec", "fetchConfig"],
    &["spec", "configSecret"],
    &["metadata", "annotations", TARGET],
];

/// An upgrade has a plan, which is to be seen first.
async fn upgrades_nothing(
    client: &Client,
    global: &Global,
    provider: &Provider,
    version: &Version,
) -> anyhow::Result<()> {
    let stands = stand::all(client).await?;
    let is_it = |stand: &&Stand| {
        stand.provider.as_ref() == Some(provider) && stand.namespace == global.namespace
    };
    let installed = stands.iter().find(is_it);
    let installed = installed.and_then(Stand::installed_version);
    if let Some(installed) = installed.filter(|installed| *installed != version.to_string()) {
        let label = provider.manifest_label();
        bail!(
            "nothing was done: {provider} is installed in {installed}; to change that: windlass providers upgrade --to {label}={version}"
        );
    }
    Ok(())
}

fn show(
    global: &Global,
    provider: &Provider,
    version: &Version,
    files: &Files,
) -> anyhow::Result<()> {
    let metadata = files.metadata()?;
    let contract = metadata.contract(version)?;
    let release = Release {
        provider,
        version,
        components: &files.components,
        additional: None,
        target_namespace: Some(&global.namespace),
        images: &ImageOverrides::default(),
        non_canonical: NonCanonical::Keep,
        scopes: &Scopes::default(),
    };
    let components = Components::render(&release, &Substitution::Raw)
        .with_context(|| format!("{provider} {version}"))?;
    print!("{}", describe(&components, contract));
    Ok(())
}

fn object(
    global: &Global,
    options: &ApplyProvider,
    provider: &Provider,
    version: &Version,
) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": provider.provider_type().kind(),
        "metadata": {"name": provider.name(), "namespace": global.namespace},
        "spec": {"version": version.to_string()},
    });
    if let Some(secret) = &options.target_kubeconfig {
        object["metadata"]["annotations"] = json!({TARGET: secret});
    }
    if let Some(url) = &options.url {
        object["spec"]["fetchConfig"] = json!({"url": url});
    }
    if let Some(oci) = &options.oci {
        object["spec"]["fetchConfig"] = json!({"oci": oci});
    }
    if options.from.is_some()
        && let Some(kept) = kept(provider)
    {
        object["spec"]["fetchConfig"] = kept;
    }
    if let Some(secret) = &options.config_secret {
        object["spec"]["configSecret"] = json!({"name": secret});
    }
    object
}

/// Where the releases are that are kept of a provider. One that is known by its name needs no word for it.
fn kept(provider: &Provider) -> Option<Value> {
    let is_known = provider.provider_type() == ProviderType::Core
        || provider.is_cert_manager()
        || clusterctl::entry(provider).is_some();
    let labels = config_map_labels(provider);
    (!is_known).then(|| json!({"selector": {"matchLabels": labels}}))
}

/// Makes a namespace, where it is missing.
pub(super) async fn namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let api = Api::<Namespace>::all(client.clone());
    if answered(
        api.get_metadata_opt(name).await,
        &format!("read namespace {name}"),
    )?
    .is_some()
    {
        return Ok(());
    }
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let made = api.create(&PostParams::default(), &namespace).await;
    answered(made, &format!("make namespace {name}"))?;
    println!("namespace {name} is made");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_before_stays_unless_it_is_said_anew() {
        let there = |owner: &str| -> DynamicObject {
            let fields = json!({
                "f:metadata": {"f:annotations": {format!("f:{TARGET}"): {}}},
                "f:spec": {"f:version": {}, "f:configSecret": {"f:name": {}}, "f:fetchConfig": {"f:url": {}}},
            });
            let object = json!({
                "metadata": {
                    "name": "cluster-api",
                    "annotations": {TARGET: "management", "other": "1"},
                    "managedFields": [{"manager": owner, "operation": "Apply", "fieldsV1": fields}],
                },
                "spec": {"version": "v1", "configSecret": {"name": "vars"}, "fetchConfig": {"url": "https://a.example/"}},
            });
            serde_json::from_value(object).unwrap()
        };
        let wanted = json!({"metadata": {"name": "cluster-api"}, "spec": {"version": "v1", "fetchConfig": {"oci": "b.example/c"}}});
        let mut object = wanted.clone();
        let kept = keep(&mut object, &there(FIELD_MANAGER));
        assert_eq!(
            kept,
            [
                "spec.configSecret".to_owned(),
                format!("metadata.annotations.{TARGET}")
            ]
        );
        assert_eq!(
            object,
            json!({
                "metadata": {"name": "cluster-api", "annotations": {TARGET: "management"}},
                "spec": {"version": "v1", "configSecret": {"name": "vars"}, "fetchConfig": {"oci": "b.example/c"}},
            })
        );
        // What somebody else keeps there stays by itself.
        let mut object = wanted.clone();
        assert!(keep(&mut object, &there("kubectl")).is_empty());
        assert_eq!(object, wanted);
    }

    #[test]
    fn only_a_provider_that_nobody_knows_says_where_its_releases_are_kept() {
        let of = |provider_type, name: &str| kept(&Provider::new(provider_type, name).unwrap());
        for (provider_type, name) in [
            (ProviderType::Core, "cluster-api"),
            (ProviderType::Infrastructure, "docker"),
            (ProviderType::Addon, "cert-manager"),
        ] {
            assert_eq!(of(provider_type, name), None, "{name}");
        }
        let labels = json!({
            "provider.cluster.x-k8s.io/type": "infrastructure",
            "provider.cluster.x-k8s.io/name": "boat",
        });
        assert_eq!(
            of(ProviderType::Infrastructure, "boat"),
            Some(json!({"selector": {"matchLabels": labels}}))
        );
    }
}
