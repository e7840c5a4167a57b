//! The namespaces of clusters of kubespray: the hosts of a namespace are those of its Cluster, whoever declared them, and may name its Secrets.
//! So one namespace is for one FleetCluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use api::{
    Cluster, ClusterNode,
    inventory::{FLEET_CLUSTER_ANNOTATION, FleetProblem},
};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Context, Error,
    apply::is_unknown,
    part::{Identity, Parts},
};

/// What passes write, and for which FleetCluster: of two that come to the same at once, neither is there for the other to see.
#[derive(Debug, Default)]
pub struct Held(Mutex<BTreeMap<What, String>>);

/// What is held.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum What {
    /// A namespace.
    Place(String),
    /// An object, and its title.
    Object(Identity, String),
}

/// As long as it lives, nobody else comes to this.
#[derive(Debug)]
pub(super) struct Hold<'a> {
    held: &'a Held,
    all: BTreeSet<What>,
}

impl Held {
    /// Holds all of it, or says what another FleetCluster holds.
    fn hold(&self, all: BTreeSet<What>, own: &str) -> Result<Hold<'_>, (What, String)> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for what in &all {
            if let Some(other) = held.get(what).filter(|other| *other != own) {
                return Err((what.clone(), other.clone()));
            }
        }
        held.extend(all.iter().map(|what| (what.clone(), own.to_owned())));
        drop(held);
        Ok(Hold { held: self, all })
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut held = self.held.0.lock().unwrap_or_else(PoisonError::into_inner);
        for what in &self.all {
            held.remove(what);
        }
    }
}

/// Holds a cluster's objects and the namespaces of those of kubespray, unless another FleetCluster has objects there. Where one of its own
/// is `there` already the namespace is its own: nobody else comes to it, and what somebody writes there changes nothing for it.
pub(super) async fn hold<'a>(
    own: &Value,
    parts: &Parts,
    there: &[Option<Value>],
    context: &'a Context,
) -> Result<Result<Hold<'a>, FleetProblem>, Error> {
    let own = own.as_str().unwrap_or_default();
    let of_kubespray = parts.objects.iter().filter(|part| part.is_kubespray());
    let places: BTreeSet<_> = of_kubespray.map(|part| part.namespace.clone()).collect();
    let objects = parts.objects.iter();
    let objects = objects.map(|part| What::Object(part.identity(), part.title()));
    let all = places.iter().cloned().map(What::Place).chain(objects);
    let hold = match context.held.hold(all.collect(), own) {
        Ok(hold) => hold,
        Err((What::Place(place), other)) => return Ok(Err(problem(&place, &other))),
        Err((What::Object(_, title), other)) => return Ok(Err(at_once(title, &other))),
    };
    let parts = parts.objects.iter().zip(there);
    let stand = parts.filter(|(part, there)| part.is_kubespray() && there.is_some());
    let known: BTreeSet<_> = stand.map(|(part, _)| &part.namespace).collect();
    for place in places.iter().filter(|place| !known.contains(place)) {
        let cluster = another::<Cluster>(own, place, context).await?;
        let other = match cluster {
            Some(other) => Some(other),
            None => another::<ClusterNode>(own, place, context).await?,
        };
        if let Some(other) = other {
            return Ok(Err(problem(place, &other)));
        }
    }
    Ok(Ok(hold))
}

/// Another FleetCluster that has an object of a kind in a namespace.
async fn another<K>(own: &str, place: &str, context: &Context) -> Result<Option<String>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api = Api::<K>::namespaced(context.client.clone(), place);
    let there = match api.list_metadata(&ListParams::default()).await {
        // Where the kind is not known there is none: what is wrong with that is told when it is applied.
        Err(error) if is_unknown(&error) => return Ok(None),
        there => there.map_err(|error| {
            let what = format!("list the {} of namespace {place}", K::plural(&()));
            Error::Api(what, error)
        })?,
    };
    let whose = |object: &_| {
        ResourceExt::annotations(object)
            .get(FLEET_CLUSTER_ANNOTATION)
            .cloned()
    };
    let mut others = there.items.iter().filter_map(whose);
    Ok(others.find(|whose| whose != own))
}

fn problem(place: &str, other: &str) -> FleetProblem {
    FleetProblem {
        object: format!("Namespace {place}"),
        rule: "ForeignCluster".to_owned(),
        message: format!(
            "has hosts or the Cluster of the FleetCluster {} in it: hosts and Secrets of a namespace are those of its Cluster",
            api::text::plain(other, 200)
        ),
        remedy: "have the ClusterTemplate render the objects of each cluster into a namespace of its own; where both are there already, \
            delete one of the two FleetClusters, and then its objects"
            .to_owned(),
        ..FleetProblem::default()
    }
}

fn at_once(object: String, other: &str) -> FleetProblem {
    FleetProblem {
        object,
        rule: "ForeignObject".to_owned(),
        message: format!(
            "is being written for the FleetCluster {}",
            api::text::plain(other, 200)
        ),
        remedy: "have the ClusterTemplate name the objects of each cluster by that cluster's name"
            .to_owned(),
        ..FleetProblem::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_held_for_one_until_that_is_through() {
        let held = Held::default();
        let shop = || What::Place("shop".to_owned());
        let object = |name: &str| {
            let of = ["cluster.x-k8s.io", "Cluster", "fleet", name];
            let [group, kind, namespace, name] = of.map(ToOwned::to_owned);
            What::Object((group, kind, namespace, name), "Cluster".to_owned())
        };
        let hold = held
            .hold(BTreeSet::from([shop(), object("one")]), "fleet/shop")
            .unwrap();
        drop(
            held.hold(BTreeSet::from([object("two")]), "fleet/evil")
                .unwrap(),
        );
        for what in [shop(), object("one")] {
            let all = BTreeSet::from([object("two"), what.clone()]);
            let other = held.hold(all, "fleet/evil").unwrap_err();
            assert_eq!(other, (what, "fleet/shop".to_owned()));
        }
        drop(hold);
        drop(held.hold(BTreeSet::from([shop()]), "fleet/evil").unwrap());
    }
}
