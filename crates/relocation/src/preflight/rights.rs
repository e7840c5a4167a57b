//! Which rights a move needs on either side, and whether one has them.

use std::sync::Arc;

use controller::problem::Problem;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::Namespace,
};
use kube::{Api, api::PostParams};

use super::TARGET;
use crate::{
    domain::Domains,
    error::{Error, Result},
    kind::Kind,
    side::Side,
};

/// How many questions are asked at once.
const AT_ONCE: usize = 8;

/// Verbs on a resource, or on a part of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Right {
    /// The group of the resource.
    pub group: String,
    /// The resource, with its subresource behind a slash.
    pub resource: String,
    /// How far it reaches.
    pub reach: Reach,
    /// What may be done.
    pub verbs: &'static [&'static str],
}

/// How far a right reaches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reach {
    /// The namespace of the side.
    Side,
    /// Another one.
    Namespace(String),
    /// The whole API, as what is in no namespace needs.
    Everywhere,
}

/// What is needed of the side that is left.
pub(crate) fn here(domains: &Domains<'_>) -> Vec<Right> {
    let mut rights = all(domains.acted_on(), &["list", "get", "patch", "delete"]);
    // What lies beside the objects is put into one.
    rights.push(core(
        "secrets",
        &["list", "get", "create", "patch", "delete"],
    ));
    rights.push(core("configmaps", &["list", "get", "delete"]));
    rights.extend(leases(domains, &["get", "create", "update", "delete"]));
    rights
}

/// What is needed of the side that takes over.
pub(crate) fn there(domains: &Domains<'_>) -> Vec<Right> {
    const WRITE: &[&str] = &["list", "get", "create", "update", "patch"];
    let mut rights = all(domains.acted_on(), WRITE);
    let statuses = domains.acted_on().iter().map(|kind| Right {
        group: kind.resource.group.clone(),
        resource: format!("{}/status", kind.resource.plural),
        reach: Reach::Side,
        verbs: &["patch"],
    });
    rights.extend(statuses);
    rights.extend([core("secrets", WRITE), core("configmaps", WRITE)]);
    rights
}

/// What taking back needs of the side that was being left.
pub(crate) fn back_here(domains: &Domains<'_>) -> Vec<Right> {
    let mut rights = all(domains.acted_on(), &["list", "get", "patch"]);
    rights.push(core("secrets", &["list", "get"]));
    rights.push(core("configmaps", &["list", "get"]));
    rights.extend(leases(domains, &["get", "delete"]));
    rights
}

/// What taking back needs of the other side.
pub(crate) fn back_there(domains: &Domains<'_>) -> Vec<Right> {
    const DELETE: &[&str] = &["list", "delete"];
    let mut rights = all(domains.acted_on(), DELETE);
    rights.extend([core("secrets", DELETE), core("configmaps", DELETE)]);
    rights
}

fn all(kinds: &[Arc<Kind>], verbs: &'static [&'static str]) -> Vec<Right> {
    let right = |kind: &Arc<Kind>| Right {
        group: kind.resource.group.clone(),
        resource: kind.resource.plural.clone(),
        reach: Reach::Side,
        verbs,
    };
    kinds.iter().map(right).collect()
}

fn core(resource: &str, verbs: &'static [&'static str]) -> Right {
    Right {
        group: String::new(),
        resource: resource.to_owned(),
        reach: Reach::Side,
        verbs,
    }
}

fn leases(domains: &Domains<'_>, verbs: &'static [&'static str]) -> Option<Right> {
    domains.has_leases().then(|| Right {
        group: "coordination.k8s.io".to_owned(),
        resource: "leases".to_owned(),
        reach: Reach::Side,
        verbs,
    })
}

/// The rights that one does not have, each as a problem.
///
/// # Errors
/// The API does not say.
pub async fn missing(side: &Side, place: &str, needs: &[Right]) -> Result<Vec<Problem>> {
    let asked = needs.iter().flat_map(|right| {
        let ask = move |verb: &&str| {
            let namespace = match &right.reach {
                Reach::Side => Some(side.namespace.clone()),
                Reach::Namespace(name) => Some(name.clone()),
                Reach::Everywhere => None,
            };
            ResourceAttributes {
                namespace,
                ..attributes(side, &right.group, &right.resource, verb)
            }
        };
        right.verbs.iter().map(ask)
    });
    let missing: Vec<_> = stream::iter(asked)
        .map(|asked| async move {
            let may = may(side, &asked).await?;
            Ok((!may).then_some(asked))
        })
        .buffered(AT_ONCE)
        .try_filter_map(|missing| async move { Ok(missing) })
        .try_collect()
        .await?;
    Ok(missing
        .iter()
        .map(|asked| missing_right(place, asked))
        .collect())
}

/// The Namespace there is looked at, and made if it is missing.
///
/// # Errors
/// The API does not say.
pub async fn namespace(target: &Side) -> Result<Option<Problem>> {
    let mut asked = attributes(target, "", "namespaces", "get");
    asked.name = Some(target.namespace.clone());
    if may(target, &asked).await? {
        let namespaces = Api::<Namespace>::all(target.client.clone());
        let found = namespaces.get_opt(&target.namespace).await;
        let found = found.map_err(|source| Error::api("look for the Namespace there", source))?;
        if found.is_some() {
            return Ok(None);
        }
        asked = ResourceAttributes {
            namespace: None,
            ..attributes(target, "", "namespaces", "create")
        };
        if may(target, &asked).await? {
            return Ok(None);
        }
    }
    Ok(Some(missing_right(TARGET, &asked)))
}

fn attributes(side: &Side, group: &str, resource: &str, verb: &str) -> ResourceAttributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: Some(subresource.to_owned()),
        verb: Some(verb.to_owned()),
        namespace: Some(side.namespace.clone()),
        ..ResourceAttributes::default()
    }
}

async fn may(side: &Side, asked: &ResourceAttributes) -> Result<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(asked.clone()),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = Api::<SelfSubjectAccessReview>::all(side.client.clone())
        .create(&PostParams::default(), &review)
        .await
        .map_err(|source| Error::api("ask for one's rights", source))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// What is said of a right that is not there, with the command that tells when it is.
fn missing_right(place: &str, asked: &ResourceAttributes) -> Problem {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let (verb, mut resource) = (text(&asked.verb), text(&asked.resource));
    if let Some(group) = asked.group.as_deref().filter(|group| !group.is_empty()) {
        resource = format!("{resource}.{group}");
    }
    let (mut right, mut command) = (
        format!("{verb} {resource}"),
        format!("auth can-i {verb} {resource}"),
    );
    if let Some(name) = &asked.name {
        command = format!("{command}/{name}");
    }
    if let Some(part) = asked.subresource.as_deref().filter(|part| !part.is_empty()) {
        right = format!("{right}/{part}");
        command = format!("{command} --subresource={part}");
    }
    let (scope, role, flag) = match &asked.namespace {
        Some(namespace) => (
            format!("in namespace {namespace}"),
            "a Role and a RoleBinding",
            format!("-n {namespace} "),
        ),
        None => (
            "for the whole API".to_owned(),
            "a ClusterRole and a ClusterRoleBinding",
            String::new(),
        ),
    };
    Problem::new(
        format!("right {place}"),
        right,
        format!("you do not have it {scope}"),
        format!("have it granted by {role}; check: kubectl {flag}{command}"),
    )
}
