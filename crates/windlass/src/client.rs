//! A client of the API that the options name.

use std::path::PathBuf;

use anyhow::Context;
use controller::kubeconfig;
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};

use crate::{cli::Global, terminal::say};

impl Global {
    /// Prints what comes next, whose commands go to the namespace of this one.
    pub(crate) fn say(&self, text: &str) {
        say!("{}", controller::hint::placed(text, &self.namespace));
    }

    /// The kubeconfig that a client is made by. None: the environment has it.
    pub(crate) fn chosen_kubeconfig(&self) -> anyhow::Result<Option<PathBuf>> {
        let own = self.own_kubeconfig()?;
        Ok(match &self.kubeconfig {
            Some(file) => Some(file.clone()),
            None => (own.exists() && !is_plugin()).then_some(own),
        })
    }

    /// A client by `--kubeconfig`, else of the embedded API of the data directory, else by the environment.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let Some(file) = self.chosen_kubeconfig()? else {
            let config = kubeconfig::environment().await.context(
                "no API to talk to: start `windlass up`, or name one with --kubeconfig or KUBECONFIG",
            )?;
            return Client::try_from(config).context("failed to make a client");
        };
        let config = kubeconfig::own(&file, None)
            .await
            .with_context(|| format!("failed to read the kubeconfig {}", file.display()))?;
        Client::try_from(config).context("failed to make a client")
    }
}

/// Whether this is `kubectl windlass`: then the API is kubectl's, also where an embedded one has been.
pub(crate) fn is_plugin() -> bool {
    let program = std::env::args_os().next().unwrap_or_default();
    std::path::Path::new(&program)
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("kubectl-"))
}

/// What an API answered. Of one that does not answer it is asked whether anybody has started it.
pub(crate) fn answered<T>(answer: kube::Result<T>, what: &str) -> anyhow::Result<T> {
    let hint = match &answer {
        Err(kube::Error::Api(_)) => "",
        _ => ": does the API run, as by `windlass up`?",
    };
    answer.with_context(|| format!("failed to {what}{hint}"))
}

/// The namespace in which is looked.
pub(crate) fn namespace<K: Resource>(api: &Api<K>) -> &str {
    let below = api.resource_url().split_once("/namespaces/");
    let namespace = below.and_then(|(_, rest)| rest.split('/').next());
    namespace.unwrap_or("default")
}

/// The object of the given name, or the only one of the namespace.
pub(crate) async fn named_or_only<K>(api: &Api<K>, name: Option<&str>) -> anyhow::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let kind = K::kind(&());
    if let Some(name) = name {
        let found = api.get_opt(name).await;
        if let Some(found) = answered(found, &format!("get {kind} {name}"))? {
            return Ok(found);
        }
    }
    let found = api.list(&ListParams::default()).await;
    let mut found = answered(found, &format!("list {kind} objects"))?.items;
    let names: Vec<_> = found.iter().map(ResourceExt::name_any).collect();
    if let Some(name) = name {
        let there = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        anyhow::bail!(
            "there is no {kind} {name} in namespace {}, but {there}: name another with --namespace",
            namespace(api)
        );
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => anyhow::bail!(
            "there is no {kind} in namespace {}: name another with --namespace",
            namespace(api)
        ),
        _ => anyhow::bail!(
            "there are several {kind} objects, name one: {}",
            names.join(", ")
        ),
    }
}

/// Whether a run is of the Cluster of that name.
pub(crate) fn is_of(run: &api::Run, cluster: &str) -> bool {
    run.spec.subject.is_a::<api::Cluster>() && run.spec.subject.name == cluster
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[tokio::test]
    async fn a_name_that_is_not_there_is_told_with_those_that_are() {
        let directory = tempfile::tempdir().unwrap();
        let server = kapi::Server::open(kapi::Options {
            data_dir: directory.path().to_owned(),
            crds: Vec::new(),
            listen: None,
        })
        .await
        .unwrap();
        let api: Api<ConfigMap> =
            Api::namespaced(Client::new(server.router(), "default"), "default");
        let refused = async |name| named_or_only(&api, name).await.unwrap_err().to_string();
        let none = refused(Some("second")).await;
        assert!(
            none.contains("no ConfigMap second in namespace default, but none:"),
            "{none}"
        );

        let first =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "first"}})).unwrap();
        api.create(&kube::api::PostParams::default(), &first)
            .await
            .unwrap();
        let other = refused(Some("second")).await;
        assert!(
            other.contains(", but first: name another with --namespace"),
            "{other}"
        );
        assert_eq!(named_or_only(&api, None).await.unwrap().name_any(), "first");
        assert_eq!(
            named_or_only(&api, Some("first")).await.unwrap().name_any(),
            "first"
        );
    }
}
