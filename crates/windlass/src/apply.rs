//! `windlass apply`: server-side apply of objects from files.

use anyhow::Context;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};

use crate::{
    cli::{AgeKeys, Apply, Global},
    manifest::{self, Opener},
    terminal::{complain, say, text, told},
};

const FIELD_MANAGER: &str = "windlass-apply";

/// Applies every object and says what became of it, as kubectl does.
pub(crate) async fn apply(global: &Global, options: &Apply) -> anyhow::Result<()> {
    let objects = manifest::read(&Opener::new(&options.age_keys), &options.filename)?;
    let client = global.client().await?;
    let parameters = PatchParams {
        dry_run: options.dry_run,
        force: options.force_conflicts,
        field_manager: Some(FIELD_MANAGER.into()),
        field_validation: Some(kube::api::ValidationDirective::Strict),
    };
    let mut refused = 0;
    for object in &objects {
        let shown = format!("{}/{}", kind_name(object), object.name_any());
        match apply_one(&client, global, object, &parameters).await {
            Ok(verb) => say!(
                "{shown} {verb}{}",
                if options.dry_run { " (dry run)" } else { "" }
            ),
            Err(error) => {
                refused += 1;
                complain!("{}", text(&format!("{shown}: {}", told(&error))));
            }
        }
    }
    anyhow::ensure!(
        refused == 0,
        "{refused} of {} objects were refused",
        objects.len()
    );
    Ok(())
}

/// Applies one object; the answer is `created`, `configured` or `unchanged`.
async fn apply_one(
    client: &Client,
    global: &Global,
    object: &DynamicObject,
    parameters: &PatchParams,
) -> anyhow::Result<&'static str> {
    let api = api(client, global, object).await?;
    let name = object.name_any();
    let before = api
        .get_metadata_opt(&name)
        .await
        .context("failed to look it up")?;
    let after = api
        .patch(&name, parameters, &Patch::Apply(object))
        .await
        .map_err(refused)?;
    Ok(match before {
        None => "created",
        Some(before) if before.resource_version() == after.resource_version() => "unchanged",
        Some(_) => "configured",
    })
}

/// An object as the API would hold it if it were applied.
///
/// # Errors
///
/// The API refuses the object, or does not answer.
pub(crate) async fn merged(
    client: &Client,
    global: &Global,
    object: &DynamicObject,
) -> anyhow::Result<DynamicObject> {
    let shown = format!("{}/{}", kind_name(object), object.name_any());
    let parameters = PatchParams {
        dry_run: true,
        force: true,
        field_manager: Some(FIELD_MANAGER.into()),
        field_validation: Some(kube::api::ValidationDirective::Strict),
    };
    let api = api(client, global, object).await?;
    api.patch(&object.name_any(), &parameters, &Patch::Apply(object))
        .await
        .map_err(plain)
        .with_context(|| format!("{shown} would be refused"))
}

async fn api(
    client: &Client,
    global: &Global,
    object: &DynamicObject,
) -> anyhow::Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("the object has no kind")?;
    let kind = GroupVersionKind::try_from(types).context("the apiVersion is not GROUP/VERSION")?;
    let (resource, capabilities) =
        discovery::pinned_kind(client, &kind)
            .await
            .with_context(|| {
                format!(
                    "the API does not serve {} {}",
                    types.api_version, types.kind
                )
            })?;
    Ok(match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object
                .metadata
                .namespace
                .as_deref()
                .unwrap_or(&global.namespace);
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    })
}

/// Why an object was not applied, and what takes the fields of others over.
fn refused(error: kube::Error) -> anyhow::Error {
    let is_conflict = matches!(&error, kube::Error::Api(status) if status.is_conflict());
    let error = plain(error);
    if is_conflict {
        anyhow::anyhow!("{error}; leave these fields to them, or take them over: --force-conflicts")
    } else {
        error
    }
}

/// The API's own words, without the transport's around them.
fn plain(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        other => anyhow::Error::new(other),
    }
}

fn kind_name(object: &DynamicObject) -> String {
    let Some(types) = &object.types else {
        return String::new();
    };
    let kind = types.kind.to_lowercase();
    match types.api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind,
    }
}

/// Applies objects that are already read, for `windlass up --filename`.
pub(crate) async fn apply_files(
    global: &Global,
    files: &[std::path::PathBuf],
    age_keys: &AgeKeys,
) -> anyhow::Result<()> {
    let options = Apply {
        filename: files.to_vec(),
        age_keys: age_keys.clone(),
        dry_run: false,
        force_conflicts: false,
    };
    apply(global, &options).await
}
