//! Reads what there is of a cluster of Cluster API. Only the Cluster has to be readable: whatever else is not has its reason.
//!
//! Kinds are what the API says that it serves. Where a version of one cannot be read, as when the webhook that converts it does not
//! answer, another one is: a cluster is looked at when things are broken. For the same reason nothing is waited for without a limit: an
//! API whose own storage or whose webhooks hang answers with nothing at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt::Write as _,
    time::Duration,
};

use anyhow::{bail, ensure};
use clusterctl::describe::{
    ADDONS, CLUSTER_LABEL, CORE, Listing, Looked, Reference, Seen, is_name,
};
use futures::{StreamExt, stream};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    discovery::{self, ApiGroup},
};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::client::answered;

/// Everything of the cluster of that name.
pub(super) async fn read(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Seen> {
    ensure!(
        is_name(name) && name.len() <= 63,
        "NAME is {name:?}: a Cluster is called by at most 63 lower-case letters, digits and dashes"
    );
    let mut reader = Reader {
        client: client.clone(),
        namespace: namespace.to_owned(),
        groups: BTreeMap::new(),
        until: Instant::now() + ALL,
    };
    let served = reader.answer(client.list_api_groups()).await;
    let served = answered(served, "ask the API what it serves")?;
    let served: BTreeSet<_> = served.groups.into_iter().map(|group| group.name).collect();
    reader
        .learn([CORE, ADDONS].map(str::to_owned), &served)
        .await;
    let cluster = reader.cluster(name).await?;
    let own = format!("{CLUSTER_LABEL}={name}");
    let lists = async {
        futures::join!(
            reader.list(CORE, "MachineDeployment", &own),
            reader.list(CORE, "MachineSet", &own),
            reader.list(CORE, "MachinePool", &own),
            reader.list(CORE, "Machine", &own),
            reader.list(CORE, "MachineHealthCheck", &own),
            reader.list(ADDONS, "ClusterResourceSet", ""),
            reader.binding(name),
        )
    };
    // Seven requests at once are much to carry.
    let (deployments, sets, pools, machines, checks, resource_sets, binding) =
        Box::pin(lists).await;
    let mut seen = Seen {
        cluster,
        deployments,
        sets,
        pools,
        machines,
        checks,
        resource_sets,
        binding,
        referenced: BTreeMap::new(),
    };
    let references = seen.references();
    let groups: BTreeSet<_> = references.iter().map(|one| one.group.clone()).collect();
    reader.learn(groups, &served).await;
    seen.referenced = reader.referenced(references, &own).await;
    Ok(seen)
}

struct Reader {
    client: Client,
    namespace: String,
    /// By name; what the API says of a group, or why that is not known.
    groups: BTreeMap<String, Result<ApiGroup, String>>,
    /// When no more is asked.
    until: Instant,
}

impl Reader {
    /// Asks for the kinds of groups. Those that the API does not serve have none.
    async fn learn(&mut self, groups: impl IntoIterator<Item = String>, served: &BTreeSet<String>) {
        for name in groups {
            if served.contains(&name) && !self.groups.contains_key(&name) {
                let group = self.answer(discovery::group(&self.client, &name)).await;
                let group = group.map_err(|error| told(&error));
                self.groups.insert(name, group);
            }
        }
    }

    /// What the API answers, if it does so in time.
    async fn answer<T>(&self, asked: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let left = self.until.saturating_duration_since(Instant::now());
        let late = || {
            let (all, limit) = if left < ANSWER {
                (" all", ALL)
            } else {
                ("", ANSWER)
            };
            let seconds = limit.as_secs();
            let text = format!("the API has not answered{all} within {seconds} s");
            Err(kube::Error::Service(text.into()))
        };
        if left.is_zero() {
            return late();
        }
        let answer = timeout(left.min(ANSWER), asked).await;
        answer.unwrap_or_else(|_| late())
    }

    /// A kind in every version that it is served in, the most stable one first. None is an API that does not serve it.
    fn kinds(&self, group: &str, kind: &str) -> Result<Vec<ApiResource>, String> {
        let Some(group) = self.groups.get(group) else {
            return Ok(Vec::new());
        };
        let group = group.as_ref().map_err(String::clone)?;
        let all = group
            .versions()
            .flat_map(|of| group.versioned_resources(of));
        let all = all.map(|(resource, _)| resource);
        Ok(all.filter(|resource| resource.kind == kind).collect())
    }

    async fn cluster(&self, name: &str) -> anyhow::Result<Value> {
        let namespace = &self.namespace;
        let kinds = self.kinds(CORE, "Cluster").map_err(anyhow::Error::msg)?;
        ensure!(
            !kinds.is_empty(),
            "the API serves no Cluster of {CORE}: name the management cluster with --kubeconfig; what Windlass raises by kubespray is shown by windlass status"
        );
        match self.object(&kinds, name).await {
            Looked::Found(cluster) => Ok(cluster),
            Looked::Unread(problem) => {
                bail!("failed to read Cluster {namespace}/{name}: {problem}")
            }
            Looked::Missing => {
                let there = self.list(CORE, "Cluster", "").await;
                let names = there.objects.iter().take(NAMED);
                let names = names.filter_map(|one| one["metadata"]["name"].as_str());
                let names: Vec<_> = names.collect();
                let there = if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                };
                bail!(
                    "there is no Cluster {name} of {CORE} in namespace {namespace}, but {there}: name another with --namespace"
                )
            }
        }
    }

    async fn binding(&self, name: &str) -> Option<Looked> {
        match self.kinds(ADDONS, "ClusterResourceSetBinding") {
            Ok(kinds) if kinds.is_empty() => None,
            Ok(kinds) => Some(self.object(&kinds, name).await),
            Err(problem) => Some(Looked::Unread(problem)),
        }
    }

    /// Objects that are referred to. Of many of a kind the cluster's own are listed, and those are asked for that are not among them.
    async fn referenced(
        &self,
        references: Vec<Reference>,
        own: &str,
    ) -> BTreeMap<Reference, Looked> {
        let mut by_kind: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for one in references {
            let kind = (one.group.clone(), one.kind.clone());
            by_kind.entry(kind).or_default().push(one);
        }
        // One kind that is not answered for does not hold up the others.
        let looked = by_kind
            .into_iter()
            .map(async |((group, kind), references)| {
                let kinds = match self.kinds(&group, &kind) {
                    Ok(kinds) if kinds.is_empty() => {
                        Err(format!("the API serves no {kind} of {group}"))
                    }
                    kinds => kinds,
                };
                match kinds {
                    Ok(kinds) => self.of_kind(&kinds, references, own).await,
                    Err(problem) => unread(references, &problem),
                }
            });
        let looked: Vec<_> = stream::iter(looked).buffered(AT_ONCE).collect().await;
        looked.into_iter().flatten().collect()
    }

    async fn of_kind(
        &self,
        kinds: &[ApiResource],
        references: Vec<Reference>,
        own: &str,
    ) -> Vec<(Reference, Looked)> {
        let mut known = BTreeMap::new();
        if references.len() > FEW {
            let listing = match self.listed(kinds, own).await {
                Ok(listing) => listing,
                // Each of them would be answered for as they are together.
                Err(problem) => return unread(references, &problem),
            };
            for object in listing.objects {
                if let Some(name) = object["metadata"]["name"].as_str() {
                    known.insert(name.to_owned(), object);
                }
            }
        }
        let (listed, others): (Vec<_>, Vec<_>) = references
            .into_iter()
            .partition(|one| known.contains_key(&one.name));
        let mut all: Vec<_> = listed
            .into_iter()
            .filter_map(|one| {
                let object = known.remove(&one.name)?;
                Some((one, Looked::Found(object)))
            })
            .collect();
        let asked = others.into_iter().enumerate().map(async |(at, one)| {
            let looked = if at < MOST_ASKED {
                self.object(kinds, &one.name).await
            } else {
                Looked::Unread(format!("no more than {MOST_ASKED} of a kind are asked for"))
            };
            (one, looked)
        });
        let asked: Vec<_> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        all.extend(asked);
        all
    }

    async fn object(&self, kinds: &[ApiResource], name: &str) -> Looked {
        let mut problem = None;
        for kind in kinds {
            match self.answer(self.api(kind).get_opt(name)).await {
                Ok(None) => return Looked::Missing,
                Ok(Some(object)) => match value(kind, object) {
                    Ok(object) => return Looked::Found(object),
                    Err(error) => return Looked::Unread(error),
                },
                Err(error) => {
                    let is_final = is_final(&error);
                    problem.get_or_insert_with(|| told(&error));
                    if is_final {
                        break;
                    }
                }
            }
        }
        Looked::Unread(problem.unwrap_or_else(|| "the API does not serve its kind".to_owned()))
    }

    async fn list(&self, group: &str, kind: &str, labels: &str) -> Listing {
        let listed = match self.kinds(group, kind) {
            Ok(kinds) => self.listed(&kinds, labels).await,
            Err(problem) => Err(problem),
        };
        listed.unwrap_or_else(|problem| Listing {
            objects: Vec::new(),
            lack: Some(problem),
        })
    }

    /// Objects of a kind, of which there are none where it has no version.
    async fn listed(&self, kinds: &[ApiResource], labels: &str) -> Result<Listing, String> {
        let mut problem = None;
        for kind in kinds {
            match self.pages(kind, labels).await {
                Ok(listing) => return Ok(listing),
                Err(error) => {
                    let is_final = is_final(&error);
                    problem.get_or_insert_with(|| told(&error));
                    if is_final {
                        break;
                    }
                }
            }
        }
        problem.map_or_else(|| Ok(Listing::default()), Err)
    }

    async fn pages(&self, kind: &ApiResource, labels: &str) -> Result<Listing, kube::Error> {
        let mut listing = Listing::default();
        let mut parameters = ListParams::default().labels(labels).limit(PAGE);
        loop {
            let page = self.answer(self.api(kind).list(&parameters)).await?;
            for object in page.items {
                match value(kind, object) {
                    Ok(object) => listing.objects.push(object),
                    Err(error) => listing.lack = Some(error),
                }
            }
            let next = page.metadata.continue_.filter(|next| !next.is_empty());
            match next {
                None => return Ok(listing),
                Some(_) if listing.objects.len() >= MOST => {
                    listing.lack = Some(format!("more than {MOST} are not listed"));
                    return Ok(listing);
                }
                Some(next) => parameters = parameters.continue_token(&next),
            }
        }
    }

    fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, kind)
    }
}

/// An object as JSON. One of a list does not say its kind.
fn value(kind: &ApiResource, mut object: DynamicObject) -> Result<Value, String> {
    object.managed_fields_mut().clear();
    let mut value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    value["apiVersion"] = kind.api_version.clone().into();
    value["kind"] = kind.kind.clone().into();
    Ok(value)
}

/// Whether another version of the kind would be answered in the same way.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code < 500)
}

fn told(error: &kube::Error) -> String {
    let error: &dyn Error = match error {
        kube::Error::Api(status) => return status.message.clone(),
        // It repeats what it comes from.
        kube::Error::Service(source) => &**source,
        error => error,
    };
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _infallible = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

fn unread(references: Vec<Reference>, problem: &str) -> Vec<(Reference, Looked)> {
    let references = references.into_iter();
    references
        .map(|one| (one, Looked::Unread(problem.to_owned())))
        .collect()
}

/// How long one answer may take. An API server itself waits for a webhook up to half a minute.
const ANSWER: Duration = Duration::from_secs(15);
/// How long all of them may.
const ALL: Duration = Duration::from_mins(1);
/// So many objects at a time.
const PAGE: u32 = 500;
/// More of a kind than this are not kept.
const MOST: usize = 5000;
/// So many of a kind are asked for one by one.
const FEW: usize = 3;
/// So many of a kind that are not among the cluster's own.
const MOST_ASKED: usize = 200;
/// So many at once.
const AT_ONCE: usize = 8;
/// So many clusters are named.
const NAMED: usize = 20;

#[cfg(test)]
mod tests;
