//! What there is: reads only.

use std::{collections::HashSet, time::Duration};

use api::{
    Run,
    provider::{Kind, Provider, key::MANIFESTS},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        core::v1::{ConfigMap, Secret},
        discovery::v1::EndpointSlice,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, Resource, ResourceExt, api::ApiResource};
use runs::object;

use super::{Context, Error, apply::told_until, past};
use crate::{
    attention::{Part, Who},
    check::{self, Finding, Other, Waiting, given},
    drift, fetch,
    health::{self, Health},
    inputs::{self, Additional, Variables},
    lent,
    names::{REPAIR, TARGET},
    rights,
    source::{self, Held, Missing},
    target, webhooks,
};

/// Everything that the decision about a provider reads.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What is wrong with it by itself.
    pub findings: Vec<Finding>,
    /// What is wrong with it among the others, or what it waits for.
    pub among: Result<Option<Waiting>, Vec<Finding>>,
    /// Its manifests.
    pub source: Result<Held, Missing>,
    /// What is brought over the network if its manifests are not held.
    pub fetch: Option<fetch::Wanted>,
    /// Its values of variables, or what is missing.
    pub variables: Result<Option<Variables>, String>,
    /// Its further manifests, or what is missing.
    pub additional: Result<Option<Additional>, String>,
    /// Its runs, oldest first.
    pub runs: Vec<Run>,
    /// How what belongs to it stands where it is installed, or why that is not known. None: it has never been installed.
    pub health: Option<Result<Health, String>>,
    /// What is not as it was applied, for people; looked at where nothing is at work.
    pub drifted: Vec<String>,
    /// Whether that is put back now.
    pub repairs: bool,
    /// Whether there is no cluster to install it in: this API runs no pods, and no other one is named.
    pub is_nowhere: bool,
    /// For how long it may be left alone, where every change of what was read here is told. None: some might not be.
    pub told_until: Option<Duration>,
    /// What needs it, or why that is not known; looked at when it is being deleted.
    pub dependents: Result<Vec<String>, String>,
}

/// Reads what there is. None: the stores have not been read yet.
///
/// # Errors
///
/// The API refuses or does not answer.
pub(super) async fn observe<K: Kind>(
    provider: &Provider<K>,
    context: &Context<K>,
) -> Result<Option<Observed>, Error> {
    let Some(others) = context.all.list(&context.runs) else {
        return Ok(None);
    };
    let client = &context.client;
    let namespace = provider.namespace().unwrap_or_default();
    let runs = runs(provider, context);
    let is_going = provider.meta().deletion_timestamp.is_some();
    let was_installed = runs
        .iter()
        .any(|run| runs::phase(run) == api::run::RunPhase::Succeeded)
        || provider
            .status
            .as_ref()
            .is_some_and(|status| status.installed_version.is_some());
    let now = Timestamp::now();
    // What changes from now on may be missed by what follows.
    let mark = context.attention.mark(&key(provider));
    let (mut health, mut dependents, mut seen) = (None, Ok(Vec::new()), None);
    let target = target_where_it_is(provider, &runs);
    let target = target.as_deref();
    let may_be_there = was_installed || (is_going && !runs.is_empty());
    if may_be_there && let Ok(identity) = inputs::provider(K::TYPE, &provider.name_any()) {
        let label = identity.manifest_label();
        let there = target::client(client, &namespace, target).await;
        let there = there.map_err(|error| controller::chain(&error));
        if let Ok(there) = &there
            && !is_going
            && is_at_rest(&runs)
        {
            seen = drift::look(there, &namespace, &label, now).await.ok();
        }
        let asks = (!is_going && is_at_rest(&runs)).then_some(&context.webhooks);
        if was_installed {
            health = Some(match &there {
                Ok(there) => stands(provider, there, &identity, asks).await,
                Err(error) => Err(error.clone()),
            });
        }
        if is_going {
            context.webhooks.forget(&key(provider));
            context.attention.forget(&key(provider));
            let place = target.map(|secret| (namespace.clone(), secret.to_owned()));
            let is_its = was_installed || runs.iter().any(past::has_written);
            dependents = match &there {
                // Nothing of it goes, so nobody loses anything.
                Ok(there) if !is_its && !is_noted(there, &namespace, &label).await => {
                    Ok(Vec::new())
                }
                Ok(there) => dependents_of::<K>(&others, &place, there, &identity).await,
                Err(error) => Err(error.clone()),
            };
        }
    }
    let fetch = fetch::Wanted::of(provider, context.fetcher.policy().reach);
    let source = source_of(provider, client, &namespace, fetch.as_ref()).await?;
    let variables = variables(provider, client, &namespace).await?;
    let additional = additional(provider, client, &namespace).await?;
    let told_until = match &seen {
        Some(seen) if context.runs_pods && target.is_none() => {
            attend(provider, context, seen);
            let is_told = mark.is_some() && context.attention.mark(&key(provider)) == mark;
            is_told.then(|| told_until(seen.renewed_from, now))
        }
        _ => None,
    };
    Ok(Some(Observed {
        findings: check::object(provider),
        among: check::among(provider, &others, source.as_ref().ok()),
        source,
        fetch,
        variables,
        additional,
        repairs: repairs(provider) && drift::is_due(&runs, now),
        drifted: seen.map(|seen| seen.drifted).unwrap_or_default(),
        told_until,
        runs,
        health,
        is_nowhere: !context.runs_pods && target_of(provider).is_none(),
        dependents,
    }))
}

/// How what belongs to it stands. Webhooks are asked by who is given: not while a run changes them, nor while what answers is not well
/// itself.
async fn stands<K: Kind>(
    provider: &Provider<K>,
    there: &Client,
    identity: &clusterctl::Provider,
    asks: Option<&webhooks::Memory>,
) -> Result<Health, String> {
    let found = health::find(there, &identity.manifest_label()).await;
    let found = found.map_err(|error| rights::told(&error, identity))?;
    let mut health = found.health();
    if let Some(asks) = asks
        && health.stands()
    {
        let namespace = provider.namespace().unwrap_or_default();
        let key = key(provider);
        let whose = (key.as_str(), namespace.as_str());
        health.webhooks = asks.look(there, whose, identity, &found).await;
    }
    Ok(health)
}

/// Has whatever is read here of a provider, when nothing is at work, wake it by its changes.
fn attend<K: Kind>(provider: &Provider<K>, context: &Context<K>, seen: &drift::Seen) {
    let (namespace, name) = (
        provider.namespace().unwrap_or_default(),
        provider.name_any(),
    );
    let (Ok(identity), Ok(selector)) =
        (inputs::provider(K::TYPE, &name), source::selector(provider))
    else {
        return;
    };
    let label = identity.manifest_label();
    let mut parts = HashSet::from(
        [
            ApiResource::erase::<Deployment>(&()),
            ApiResource::erase::<StatefulSet>(&()),
            ApiResource::erase::<DaemonSet>(&()),
            ApiResource::erase::<CustomResourceDefinition>(&()),
            ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            ApiResource::erase::<EndpointSlice>(&()),
        ]
        .map(Part::of_providers),
    );
    parts.extend(seen.resources.iter().cloned().map(Part::of_providers));
    let secrets = seen.secrets.iter();
    parts.extend(secrets.map(|(namespace, name)| Part::named::<Secret>(namespace, name)));
    let applied = drift::config_map(&label);
    parts.insert(Part::named::<ConfigMap>(&namespace, &applied));
    parts.insert(Part::labelled::<ConfigMap>(
        &namespace,
        selector.to_string(),
    ));
    if let Some(reference) = &provider.spec.config_secret {
        let namespace = given(reference.namespace.as_deref()).unwrap_or(&namespace);
        parts.insert(Part::named::<Secret>(namespace, &reference.name));
    }
    if let Some(reference) = &provider.spec.additional_manifests {
        let namespace = given(reference.namespace.as_deref()).unwrap_or(&namespace);
        parts.insert(Part::named::<ConfigMap>(namespace, &reference.name));
    }
    let who = Who {
        key: key(provider),
        label,
        object: (namespace, name),
        wake_ups: context.wake_ups.clone(),
    };
    context.attention.attend(&context.client, who, parts);
}

/// What it is remembered by.
pub(super) fn key<K: Kind>(provider: &Provider<K>) -> String {
    let namespace = provider.namespace().unwrap_or_default();
    format!("{} {namespace}/{}", K::TYPE, provider.name_any())
}

/// Whether the last run ended as it should, so that what it applied is what should be there.
fn is_at_rest(runs: &[Run]) -> bool {
    runs.last()
        .is_some_and(|run| runs::phase(run) == api::run::RunPhase::Succeeded)
}

/// Whether what others have written is to be put back.
pub(super) fn repairs<K: Kind>(provider: &Provider<K>) -> bool {
    provider
        .annotations()
        .get(REPAIR)
        .is_none_or(|value| value != "false")
}

/// The Secret with the kubeconfig of where a provider is installed.
pub(super) fn target_of<K: Kind>(provider: &Provider<K>) -> Option<&str> {
    given(provider.annotations().get(TARGET).map(String::as_str))
}

/// The Secret with the kubeconfig of the cluster that something of a provider is in: an annotation that was changed since leads elsewhere.
/// Where nothing was written, the annotation leads there.
pub(super) fn target_where_it_is<K: Kind>(provider: &Provider<K>, runs: &[Run]) -> Option<String> {
    match past::place(runs) {
        Some(there) => there.target,
        None => target_of(provider).map(str::to_owned),
    }
}

fn runs<K: Kind>(provider: &Provider<K>, context: &Context<K>) -> Vec<Run> {
    let namespace = provider.namespace().unwrap_or_default();
    let found = controller::stream::in_namespace(&context.runs, &namespace);
    let mut runs: Vec<_> = found
        .iter()
        .filter_map(|run| run.0.as_ref().ok())
        .filter(|run| object::is_of(run, provider))
        .cloned()
        .collect();
    runs.sort_by_cached_key(object::age);
    runs
}

async fn source_of<K: Kind>(
    provider: &Provider<K>,
    client: &Client,
    namespace: &str,
    wanted: Option<&fetch::Wanted>,
) -> Result<Result<Held, Missing>, Error> {
    let nothing = |labels: String| Missing::Nothing {
        namespace: namespace.to_owned(),
        labels,
    };
    let selector = match source::selector(provider) {
        Ok(selector) => selector,
        Err(error) => return Ok(Err(nothing(error))),
    };
    let mut maps = source::list(client, namespace, &selector)
        .await
        .map_err(|source| Error::Api("list the ConfigMaps with manifests", source))?;
    if let Some(address) = fetch::only_from(provider) {
        maps.retain(|map| source::is_from(map, address));
    }
    if maps.is_empty() {
        return Ok(Err(nothing(selector.to_string())));
    }
    // What is no version at all, and no series, is what the check of the provider finds.
    let overlay = source::overlay(provider).unwrap_or_default();
    let held = source::choose(&maps, fetch::version(provider).as_ref(), &overlay);
    // Where nothing may be brought, what is held is all there is.
    let refetch = wanted.and_then(|wanted| wanted.refetch.as_deref());
    Ok(match held {
        Ok(held) if source::is_stale(&maps, &held, refetch) => Err(Missing::Stale {
            config_map: held.config_map,
        }),
        held => held,
    })
}

async fn variables<K: Kind>(
    provider: &Provider<K>,
    client: &Client,
    own: &str,
) -> Result<Result<Option<Variables>, String>, Error> {
    let Some(reference) = &provider.spec.config_secret else {
        return Ok(Ok(None));
    };
    let namespace = given(reference.namespace.as_deref()).unwrap_or(own);
    let name = &reference.name;
    // Of its contents nothing is needed here.
    let found = Api::<Secret>::namespaced(client.clone(), namespace)
        .get_metadata_opt(name)
        .await
        .map_err(|source| Error::Api("read the Secret with variables", source))?;
    let found = found.filter(|found| lent::is_lent(&found.metadata, own));
    let place = (namespace, name.as_str());
    Ok(match found {
        None => Err(lent::missing("Secret", "spec.configSecret", place, own)),
        Some(found) => Ok(Some(Variables {
            namespace: namespace.to_owned(),
            name: name.clone(),
            uid: found.uid().unwrap_or_default(),
            resource_version: found.resource_version().unwrap_or_default(),
        })),
    })
}

async fn additional<K: Kind>(
    provider: &Provider<K>,
    client: &Client,
    own: &str,
) -> Result<Result<Option<Additional>, String>, Error> {
    let Some(reference) = &provider.spec.additional_manifests else {
        return Ok(Ok(None));
    };
    let namespace = given(reference.namespace.as_deref()).unwrap_or(own);
    let name = &reference.name;
    let found = Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .get_opt(name)
        .await
        .map_err(|source| Error::Api("read the ConfigMap with further manifests", source))?;
    let found = found.filter(|found| lent::is_lent(&found.metadata, own));
    let Some(found) = found else {
        let place = (namespace, name.as_str());
        let field = "spec.additionalManifests";
        return Ok(Err(lent::missing("ConfigMap", field, place, own)));
    };
    let text = found.data.and_then(|mut data| data.remove(MANIFESTS));
    Ok(match text {
        None => Err(format!(
            "ConfigMap {namespace}/{name}, which spec.additionalManifests names, has no key {MANIFESTS}; make it"
        )),
        Some(text) => Ok(Some(Additional {
            namespace: namespace.to_owned(),
            name: name.clone(),
            digest: controller::digest(&[&text], 64),
        })),
    })
}

/// Whether an object of this name before this one has left what it applied, or began to, with the record of it: that goes with this one.
/// Where it is not known it is asked who needs it.
async fn is_noted(there: &Client, namespace: &str, label: &str) -> bool {
    let has_record = drift::has_record(there, namespace, label).await;
    has_record.unwrap_or(true)
}

async fn dependents_of<K: Kind>(
    others: &[Other],
    place: &target::Place,
    there: &Client,
    identity: &clusterctl::Provider,
) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    if K::TYPE == api::provider::ProviderType::Core {
        let same_cluster = |other: &&Other| other.place == *place;
        let needs = |other: &&Other| other.provider != K::TYPE && !other.is_cert_manager();
        found.extend(
            others
                .iter()
                .filter(needs)
                .filter(same_cluster)
                .map(|other| format!("{} {}/{}", other.provider, other.namespace, other.name)),
        );
    }
    let objects = health::objects(there, &identity.manifest_label())
        .await
        .map_err(|error| rights::told(&error, identity))?;
    found.extend(objects);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use api::provider::{Core, CoreProvider};
    use kube::api::PostParams;
    use serde::{Serialize, de::DeserializeOwned};
    use serde_json::json;

    use super::*;
    use crate::names::PROVIDER_NAMESPACES;

    async fn made<K>(client: &Client, object: serde_json::Value)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let namespace = object.meta().namespace.clone().unwrap();
        let api = Api::<K>::namespaced(client.clone(), &namespace);
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    #[tokio::test]
    async fn what_the_spec_names_is_read_in_the_namespace_that_it_says() {
        let data = tempfile::tempdir().unwrap();
        let options = kapi::Options {
            data_dir: data.path().to_owned(),
            crds: Vec::new(),
            listen: None,
        };
        let server = kapi::Server::open(options).await.unwrap();
        let client = Client::new(server.router(), "default");
        let metadata = |name: &str| json!({"name": name, "namespace": "kube-system"});
        let spec = json!({
            "configSecret": {"name": "values", "namespace": "kube-system"},
            "additionalManifests": {"name": "more", "namespace": "kube-system"},
        });
        let spec = serde_json::from_value(spec).unwrap();
        let mut core: CoreProvider = Provider::new("default", "cluster-api", spec);
        let said = variables(&core, &client, "default").await.unwrap();
        let missing = "Secret kube-system/values, which spec.configSecret names, is not there";
        assert!(said.clone().unwrap_err().starts_with(missing), "{said:?}");

        let lent = |name: &str, to: &str| {
            let mut metadata = metadata(name);
            metadata["annotations"] = json!({PROVIDER_NAMESPACES: to});
            metadata
        };
        made::<Secret>(&client, json!({"metadata": lent("values", "default")})).await;
        made::<Secret>(&client, json!({"metadata": lent("crown", "another")})).await;
        core.spec.config_secret.as_mut().unwrap().name = "crown".to_owned();
        let said = variables(&core, &client, "default").await.unwrap();
        let refused = said.unwrap_err();
        assert!(
            refused.contains("is not lent to providers of namespace default"),
            "{refused}"
        );
        core.spec.config_secret.as_mut().unwrap().name = "values".to_owned();
        let data = json!({"manifests": "# none"});
        made::<ConfigMap>(&client, json!({"metadata": metadata("hers"), "data": data})).await;
        core.spec.additional_manifests.as_mut().unwrap().name = "hers".to_owned();
        let said = additional(&core, &client, "default").await.unwrap();
        assert!(said.unwrap_err().contains("is not lent"));
        core.spec.additional_manifests.as_mut().unwrap().name = "more".to_owned();
        let map = json!({"metadata": lent("more", "default"), "data": data});
        made::<ConfigMap>(&client, map).await;
        let found = variables(&core, &client, "default").await.unwrap();
        assert_eq!(found.unwrap().unwrap().namespace, "kube-system");
        let found = additional(&core, &client, "default").await.unwrap();
        let found = found.unwrap().unwrap();
        assert_eq!(found.digest, controller::digest(&["# none"], 64));

        let references = [
            &mut core.spec.config_secret,
            &mut core.spec.additional_manifests,
        ];
        for reference in references {
            reference.as_mut().unwrap().namespace = None;
        }
        let said = variables(&core, &client, "default").await.unwrap();
        assert!(said.unwrap_err().contains("default/values"));
        let said = additional::<Core>(&core, &client, "default").await.unwrap();
        assert!(said.unwrap_err().contains("default/more"));
    }
}
