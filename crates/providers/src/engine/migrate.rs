//! Objects are stored anew in the version in which their definition stores them from now on.
//!
//! An object stays in the version that it was stored in last, and its definition lists every version in which one may be. As long as an
//! old one is listed, no release can do without it. A patch that changes nothing has the API store an object anew whose stored form is
//! another than it would be now, and leaves any other alone: so nobody's change is lost, and what was done once is only read when it
//! is done again. A step that was killed goes on by being repeated; a definition that is done says so in its own status, and is not
//! looked at again.

use std::collections::BTreeSet;

use api::run::Failure;
use api::{provider::label, run::Step};
use clusterctl::Object;
use futures::{StreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::PartialObjectMeta,
};
use runs::calls::{Ended, boundary, call, config, tell};
use serde_json::{Value, json};
use workflow::{StepContext, StepOutcome};

use super::{Installer, done, steps::telling};
use crate::render;

/// How many objects are stored between two looks at what people want.
const CHUNK: u32 = 200;
/// How many are stored at once.
const AT_ONCE: usize = 8;
/// How many that the API refuses are named.
const NAMED: usize = 3;

impl Installer {
    /// Stores everything anew that is of a definition with older stored versions.
    pub(super) async fn migrate(
        &self,
        there: &Client,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        let selector = format!("{}={}", label::PROVIDER, self.provider.manifest_label());
        let definitions = Api::<CustomResourceDefinition>::all(there.clone())
            .list(&ListParams::default().labels(&selector))
            .await
            .map_err(|error| call("list the definitions of the provider", &error))?;
        self.migrate_all(there, definitions.items, step, context)
            .await
    }

    /// Stores what is of versions that the new definitions have no more, while the old ones are still there.
    pub(super) async fn migrate_dropped(
        &self,
        there: &Client,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        let api = Api::<CustomResourceDefinition>::all(there.clone());
        let mut leaving = Vec::new();
        for wanted in self
            .objects(there)
            .await?
            .iter()
            .filter(|object| render::is_definition(object))
        {
            let found = api.get_opt(wanted.name()).await;
            let found = found.map_err(|error| call(format!("read {}", wanted.title()), &error))?;
            let Some(found) = found else { continue };
            match dropped(&found, wanted) {
                Dropped::Nothing => {}
                Dropped::Older => leaving.push(found),
                Dropped::Stored(version) => {
                    return Err(self.stored_is_gone(wanted, &version).into());
                }
            }
        }
        self.migrate_all(there, leaving, step, context).await
    }

    fn stored_is_gone(&self, definition: &Object, version: &str) -> Failure {
        config(
            "StoredVersionGone",
            format!(
                "{} stores objects as {version}, which version {} of the provider has no more",
                definition.title(),
                self.inputs.version
            ),
            "install a version first that has both and stores the newer one",
        )
    }

    async fn migrate_all(
        &self,
        there: &Client,
        definitions: Vec<CustomResourceDefinition>,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        let (mut migrated, mut stored, mut notices) = (0, 0, Vec::new());
        for definition in definitions {
            let Some(storage) = behind(&definition) else {
                continue;
            };
            let (count, refused) = self
                .store(there, &definition, &storage, step, context)
                .await?;
            stored += count;
            if refused.is_empty() {
                self.held()?;
                settle(there, &definition, &storage).await?;
                migrated += 1;
            } else {
                notices.push(left(&definition, &storage, &refused));
            }
        }
        Ok(telling(
            done([("definitions", migrated), ("stored", stored)]),
            "not migrated",
            &notices,
        ))
    }

    /// Stores all objects of a definition anew: how many there were, and which the API does not take.
    async fn store(
        &self,
        there: &Client,
        definition: &CustomResourceDefinition,
        storage: &str,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<(usize, Vec<String>), Ended> {
        let resource = resource(definition, storage);
        let all: Api<DynamicObject> = Api::all_with(there.clone(), &resource);
        let (mut count, mut refused) = (0, Vec::new());
        let mut parameters = ListParams::default().limit(CHUNK);
        loop {
            boundary(step, context).await?;
            let name = definition.name_any();
            tell(
                step,
                context,
                &format!("{name}: {count} objects are stored as {storage}"),
            )
            .await?;
            let listed = all.list_metadata(&parameters).await;
            let listed = listed.map_err(|error| call(format!("list {name}"), &error))?;
            self.held()?;
            count += listed.items.len();
            let stored = stream::iter(listed.items).map(|object| again(there, &resource, object));
            let mut stored = stored.buffer_unordered(AT_ONCE);
            while let Some(stored) = stored.next().await {
                refused.extend(stored?);
            }
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok((count, refused)),
            }
        }
    }
}

/// Has the API store an object anew if it would store it otherwise now. Gives its name if the API does not take it as it is.
async fn again(
    there: &Client,
    resource: &ApiResource,
    object: PartialObjectMeta<DynamicObject>,
) -> Result<Option<String>, Failure> {
    let name = object.name_any();
    let (api, title): (Api<DynamicObject>, _) = match object.namespace() {
        Some(namespace) => (
            Api::namespaced_with(there.clone(), &namespace, resource),
            format!("{namespace}/{name}"),
        ),
        None => (Api::all_with(there.clone(), resource), name.clone()),
    };
    let nothing = Patch::Merge(json!({}));
    match api
        .patch_metadata(&name, &PatchParams::default(), &nothing)
        .await
    {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => Ok(Some(title)),
        Err(error) => Err(call(
            format!("store {} {title} anew", resource.kind),
            &error,
        )),
    }
}

/// Says of a definition that everything is stored in one version, if it is still the one that was looked at.
async fn settle(
    there: &Client,
    definition: &CustomResourceDefinition,
    storage: &str,
) -> Result<(), Failure> {
    let name = definition.name_any();
    let patch = json!({
        "metadata": {"resourceVersion": definition.resource_version()},
        "status": {"storedVersions": [storage]},
    });
    Api::<CustomResourceDefinition>::all(there.clone())
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map(drop)
        .map_err(|error| call(format!("say of {name} that it is migrated"), &error))
}

fn left(definition: &CustomResourceDefinition, storage: &str, refused: &[String]) -> String {
    let named: Vec<_> = refused.iter().take(NAMED).map(String::as_str).collect();
    let more = refused.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(
        "{} to {storage}, for the API does not take these as they are: {}{more}",
        definition.name_any(),
        named.join(", ")
    )
}

/// The kind of a definition, in one of its versions.
pub(crate) fn resource(definition: &CustomResourceDefinition, version: &str) -> ApiResource {
    let spec = &definition.spec;
    ApiResource {
        group: spec.group.clone(),
        version: version.to_owned(),
        api_version: format!("{}/{version}", spec.group),
        kind: spec.names.kind.clone(),
        plural: spec.names.plural.clone(),
    }
}

/// The version in which a definition stores objects, if it is served, and some may be stored in another.
fn behind(definition: &CustomResourceDefinition) -> Option<String> {
    let mut versions = definition.spec.versions.iter();
    let storage = versions.find(|version| version.storage && version.served)?;
    stored(definition)
        .any(|version| version != storage.name)
        .then(|| storage.name.clone())
}

/// What a new definition does without.
#[derive(Debug, Eq, PartialEq)]
enum Dropped {
    /// No version in which objects are stored.
    Nothing,
    /// One in which some may still be, and none is stored any more.
    Older,
    /// The one in which they are stored.
    Stored(String),
}

fn dropped(found: &CustomResourceDefinition, wanted: &Object) -> Dropped {
    let versions = wanted.value().pointer("/spec/versions");
    let versions = versions.and_then(Value::as_array).into_iter().flatten();
    let kept: BTreeSet<_> = versions
        .filter_map(|version| version["name"].as_str())
        .collect();
    let mut now = found.spec.versions.iter().filter(|version| version.storage);
    match now.find(|version| !kept.contains(version.name.as_str())) {
        Some(version) => Dropped::Stored(version.name.clone()),
        None if stored(found).any(|version| !kept.contains(version)) => Dropped::Older,
        None => Dropped::Nothing,
    }
}

fn stored(definition: &CustomResourceDefinition) -> impl Iterator<Item = &str> {
    let status = definition.status.iter();
    let versions = status.flat_map(|status| status.stored_versions.iter().flatten());
    versions.map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A definition with these versions, of which the first one is stored now, and objects in those.
    fn definition(versions: &[&str], stored: &[&str]) -> Value {
        let version =
            |name: &&str| json!({"name": name, "served": true, "storage": *name == versions[0]});
        let versions: Vec<_> = versions.iter().map(version).collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"}, "versions": versions},
            "status": {"storedVersions": stored},
        })
    }

    #[test]
    fn what_may_be_stored_in_an_older_version_is_stored_anew() {
        for (stored, expected) in [
            (["v1", "v2"].as_slice(), Some("v2")),
            (&["v1"], Some("v2")),
            (&["v2"], None),
            (&[], None),
        ] {
            let found = serde_json::from_value(definition(&["v2", "v1"], stored)).unwrap();
            assert_eq!(behind(&found).as_deref(), expected, "{stored:?}");
        }
    }

    #[test]
    fn a_version_goes_only_when_nothing_is_stored_in_it() {
        let gone = Dropped::Stored("v2".to_owned());
        for (stored, new, expected) in [
            (
                ["v1", "v2"].as_slice(),
                ["v2", "v1"].as_slice(),
                Dropped::Nothing,
            ),
            (&["v1", "v2"], &["v3", "v2"], Dropped::Older),
            (&["v2"], &["v3", "v2"], Dropped::Nothing),
            (&["v2"], &["v3"], gone),
        ] {
            let found = serde_json::from_value(definition(&["v2", "v1"], stored)).unwrap();
            let wanted = Object::new(definition(new, &[])).unwrap();
            assert_eq!(dropped(&found, &wanted), expected, "{stored:?} {new:?}");
        }
    }
}
