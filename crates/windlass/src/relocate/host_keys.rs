//! Recorded keys of hosts: in a file of the data directory here, in a Secret where there is no such file.

use std::collections::BTreeSet;

use anyhow::Context;
use api::Cluster;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Resource,
    api::{ObjectMeta, Patch, PatchParams},
};
use kubespray::{Layout, host_keys::KNOWN_HOSTS, moving::host_keys_name};

use super::{
    Tell, Wish,
    graph::Graph,
    side::{FIELD_MANAGER, Side},
};

/// The clusters whose keys are recorded here and stand in no spec.
pub(super) fn pending(source: &Side, graph: &Graph, wish: &Wish) -> Vec<String> {
    let clusters = graph.clusters().map(super::side::Item::name);
    clusters
        .filter(|name| recorded(source, graph, wish, name).is_some())
        .collect()
}

/// Puts the recorded keys of every cluster into its Secret here, which is then moved with the others.
pub(super) async fn store(
    source: &Side,
    graph: &Graph,
    wish: &Wish,
    tell: Tell<'_>,
) -> anyhow::Result<()> {
    for item in graph.clusters() {
        let name = item.name();
        let Some(recorded) = recorded(source, graph, wish, &name) else {
            continue;
        };
        let cluster: Cluster = item.object.clone().try_parse().context("read a Cluster")?;
        let api = Api::<Secret>::namespaced(source.client.clone(), &source.namespace);
        let secret = host_keys_name(&name);
        let existing = api
            .get_opt(&secret)
            .await
            .with_context(|| format!("failed to get Secret {secret} here"))?;
        let known = existing.and_then(|secret| secret.data?.remove(KNOWN_HOSTS));
        let known = known.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
        let merged = merged(known.as_deref().unwrap_or_default(), &recorded);
        if known.as_ref() == Some(&merged) {
            continue;
        }
        let wanted = Secret {
            metadata: ObjectMeta {
                name: Some(secret.clone()),
                owner_references: cluster.owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            data: Some([(KNOWN_HOSTS.to_owned(), ByteString(merged.into_bytes()))].into()),
            ..Secret::default()
        };
        api.patch(
            &secret,
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(&wanted),
        )
        .await
        .with_context(|| format!("failed to write Secret {secret} here"))?;
        tell(&format!(
            "stored the recorded keys of the hosts in Secret/{secret}"
        ));
    }
    Ok(())
}

/// What the file says, where the spec says nothing.
fn recorded(source: &Side, graph: &Graph, wish: &Wish, name: &str) -> Option<String> {
    let cluster = graph.clusters().find(|item| item.name() == name)?;
    let ssh = &cluster.object.data["spec"]["ssh"];
    if ["knownHosts", "knownHostsSecretRef"]
        .iter()
        .any(|field| !ssh[*field].is_null())
    {
        return None;
    }
    let directory = Layout::new(wish.data.as_ref()?).cluster(&source.namespace, name);
    let text = std::fs::read_to_string(directory.join(KNOWN_HOSTS)).ok()?;
    (!text.trim().is_empty()).then_some(text)
}

/// The lines of both, each once.
fn merged(known: &str, recorded: &str) -> String {
    let mut seen = BTreeSet::new();
    let mut text = String::new();
    for line in known.lines().chain(recorded.lines()) {
        if !line.trim().is_empty() && seen.insert(line) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
