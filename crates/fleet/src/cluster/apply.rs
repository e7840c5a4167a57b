//! Brings the objects of a cluster to a revision: all of them are tried before one is written, and what is no longer one of them goes last.

use std::collections::BTreeSet;

use api::inventory::{
    FLEET_CLUSTER_ANNOTATION, FLEET_LABEL, FleetCluster, FleetHealth, FleetProblem,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use super::{
    ADOPTED, Context, Error, Pass,
    before::{self, Before, Kept},
    health::{self, Rolling},
    live, machine_sets, neighbours, own,
    part::{Part, Parts},
    rebase, records, refuse, report,
    request::with_request,
    settle,
    vault::{self, Waits},
};
use crate::names::MANAGER;

/// Brings a cluster to a revision, as far as it goes, and says how it stands then.
pub(super) async fn bring(
    cluster: &FleetCluster,
    revision: &str,
    parts: &Parts,
    pass: &mut Pass,
    context: &Context,
) -> Result<(), Error> {
    let is_new = pass.begun.is_some() || pass.applied.as_deref() != Some(revision);
    if is_new {
        pass.target = Some(revision.to_owned());
    }
    if let Some(problem) = unfit(parts, context).await? {
        refuse(pass, revision, vec![problem]);
        return Ok(());
    }
    if let Some(problem) = places(cluster, parts, context).await? {
        refuse(pass, revision, vec![problem]);
        return Ok(());
    }
    let is_begun = pass.begun.as_deref() == Some(revision);
    let mut others = pass.abandoned.clone();
    others.extend(pass.begun.clone());
    others.retain(|other| other != revision);
    let before = before(cluster, pass.applied.as_deref(), &others, context);
    if is_new {
        let going = before.cluster_that_goes(parts).map(cluster_goes);
        if let Some(problem) = going.or_else(|| before.lost().map(lost)) {
            refuse(pass, revision, vec![problem]);
            return Ok(());
        }
    }
    // Until all is written, or refused.
    let mut _hold = None;
    if is_new {
        match neighbours::hold(&own(cluster), parts, context).await? {
            Ok(hold) => _hold = Some(hold),
            Err(problem) => {
                refuse(pass, revision, vec![problem]);
                return Ok(());
            }
        }
    }
    if is_begun && let Some(waits) = still_awaited(parts, &before, context).await? {
        let status = cluster.status.clone().unwrap_or_default();
        pass.standing.gates = status.gates;
        wait(pass, waits);
        return Ok(());
    }
    let mut there = Vec::new();
    for part in &parts.objects {
        there.push(live::read(part, context).await?);
    }
    let foreign: Vec<_> = parts
        .objects
        .iter()
        .zip(&there)
        .filter_map(|(part, there)| foreign(cluster, part, there.as_ref()?))
        .collect();
    if !foreign.is_empty() {
        refuse(pass, revision, foreign);
        return Ok(());
    }
    let rolling = Rolling::of(pass.is_granted());
    let to_write = |part: Part, there: Option<&Value>| {
        let part = vault::at_rest(part, there);
        let is_there = there.is_some_and(|there| controller::apply::contains(there, &part.value));
        let is_same = if part.is_vault_secret() {
            there.is_some_and(|there| vault::is_written(&part, there))
        } else {
            before.is_same(&part)
        };
        match (is_there, is_new) {
            (true, false) => None,
            (true, true) if is_same => None,
            (_, true) => Some(vault::while_brought(part, there)),
            (false, false) => Some(part),
        }
    };
    let writes: Vec<_> = with_request(parts, &there, revision, rolling)
        .into_iter()
        .zip(&there)
        .filter_map(|(part, there)| to_write(part, there.as_ref()))
        .collect();
    let class = rebase::awaited(parts, &there).filter(|_| is_new);
    let absent = parts.objects.iter().zip(&there);
    let absent = absent.filter(|(part, there)| part.is_template() && there.is_none());
    let absent: BTreeSet<_> = absent.map(|(part, _)| part.identity()).collect();
    if let Some(class) = &class
        && absent.is_empty()
    {
        pass.standing = health::standing(parts, &there, rolling);
        wait(pass, class.waits());
        return Ok(());
    }
    // A drift of one object is mended as it is; a change is one of all objects, or of none.
    if is_new {
        let mut problems = Vec::new();
        // A Cluster is tried when its class is there.
        let tried = writes
            .iter()
            .filter(|part| class.is_none() || !part.is_cluster());
        for part in tried {
            problems.extend(write(part, Trial::Dry, context).await?.err());
        }
        if !problems.is_empty() {
            refuse(pass, revision, problems);
            return Ok(());
        }
    }
    if let Some(class) = class {
        // The cluster is made of none of it yet, and it goes again where the cluster comes to something else.
        pass.former.retain(|former| former != revision);
        pass.former.push(revision.to_owned());
        pass.former = before::newest(std::mem::take(&mut pass.former));
        report::prepare(cluster, &pass.former, context).await?;
        let new = writes.iter();
        for part in new.filter(|part| absent.contains(&part.identity())) {
            if let Err(problem) = write(part, Trial::Real, context).await? {
                refuse(pass, revision, vec![problem]);
                return Ok(());
            }
        }
        pass.standing = health::standing(parts, &there, rolling);
        wait(pass, class.waits());
        return Ok(());
    }
    let (secrets, writes): (Vec<_>, Vec<_>) = writes.into_iter().partition(Part::is_vault_secret);
    // A birth may be another one before it is through: what it has written by then goes with that.
    if is_new && !is_begun {
        pass.abandoned = before::newest(others);
        report::begin(cluster, revision, &pass.abandoned, context).await?;
        pass.begun = Some(revision.to_owned());
    }
    let has_written = !writes.is_empty() || !secrets.is_empty();
    for part in &secrets {
        if let Err(problem) = write(part, Trial::Real, context).await? {
            refuse(pass, revision, vec![problem]);
            return Ok(());
        }
    }
    if is_new && let Some(waits) = awaited(parts, &there, &before, context).await? {
        pass.standing = health::standing(parts, &there, rolling);
        wait(pass, waits);
        return Ok(());
    }
    for part in &writes {
        if let Err(problem) = write(part, Trial::Real, context).await? {
            refuse(pass, revision, vec![problem]);
            return Ok(());
        }
    }
    let leaving = prune(cluster, &before, parts, context).await?;
    if leaving.is_empty() {
        pass.former = before.former(&pass.former, revision);
        pass.applied = Some(revision.to_owned());
        pass.target = None;
        pass.begun = None;
        pass.abandoned.clear();
    }
    pass.standing = health::standing(parts, &there, rolling);
    if has_written || !leaving.is_empty() {
        // What was read above was read before it.
        let is_failed = pass.standing.health == FleetHealth::Failed && !has_written;
        if !is_failed {
            pass.standing.health = FleetHealth::AtWork;
            let going = leaving.join(", ");
            pass.standing.message = Some(if going.is_empty() {
                format!("revision {revision} was written")
            } else {
                format!("{going} goes")
            });
        }
        return Ok(());
    }
    // Who rolls out goes on when it is well.
    if pass.phase.is_some()
        && pass.standing.health == FleetHealth::Well
        && let Some(why) = machine_sets::behind(parts, &there, context).await?
    {
        pass.standing.health = FleetHealth::AtWork;
        pass.standing.message = Some(why);
        return Ok(());
    }
    // What waits to be asked for is worked on with what the cluster was built with, and so with the Secrets of that.
    let strict = health::standing(parts, &there, Rolling::Begun);
    if strict.health == FleetHealth::Well {
        settle::settle(cluster, parts, &there, pass, context).await?;
    }
    Ok(())
}

/// What its objects may have been made from: what was applied, and what was begun beside it.
fn before(
    cluster: &FleetCluster,
    applied: Option<&str>,
    begun: &[String],
    context: &Context,
) -> Before {
    let kept = |revision: &str| {
        let parts = records::parts(cluster, revision, context);
        // What was handed over was made by somebody else, and nothing of it goes.
        let parts = match parts {
            Err(_) if revision == ADOPTED => Some(Vec::new()),
            parts => parts.ok().map(|parts| parts.objects),
        };
        Kept::new(revision, parts)
    };
    let begun = begun.iter().map(|revision| kept(revision));
    Before::new(applied.map(kept), begun.collect())
}

/// Of what nobody knows any more nothing can be taken away, and it would stay for ever.
fn lost(revision: &str) -> FleetProblem {
    FleetProblem {
        object: format!("FleetRevision of {revision}"),
        rule: "RecordLost".to_owned(),
        message: "holds what stands of the cluster, and is gone or altered: nobody knows which objects of it would have to go".to_owned(),
        remedy: "restore it from a backup. Without one: delete yourself what the inventory no longer has of this cluster, and have the rest \
            taken for handed over: kubectl patch fleetcluster NAME --subresource=status --type=merge -p \
            '{\"status\":{\"applied\":\"adopted\",\"begun\":null,\"abandoned\":null}}', \
            and once more if status.applied is not adopted then"
            .to_owned(),
        ..FleetProblem::default()
    }
}

/// With a Cluster, its control plane or its network, all of its machines and hosts would go, or be nobody's.
fn cluster_goes(part: &Part) -> FleetProblem {
    FleetProblem {
        object: part.title(),
        rule: "ClusterGoes".to_owned(),
        message: "is this cluster's own, and would be deleted: the inventory renders none of its name any more"
            .to_owned(),
        remedy: "have the ClusterTemplate name it as before; for another cluster make another FleetCluster; to end this one \
            delete its FleetCluster, and then the Cluster"
            .to_owned(),
        ..FleetProblem::default()
    }
}

/// Why its objects are none that may be applied here.
async fn unfit(parts: &Parts, context: &Context) -> Result<Option<FleetProblem>, Error> {
    for part in &parts.objects {
        let is_namespaced = match live::is_namespaced(part, context).await {
            Err(Error::Api(_, error)) if part.is_vault_secret() && is_unknown(&error) => {
                return Ok(Some(no_vault_secrets(part)));
            }
            found => found?,
        };
        if !is_namespaced {
            return Ok(Some(FleetProblem {
                object: part.title(),
                path: Some("kind".to_owned()),
                rule: "NotApplied".to_owned(),
                message: format!(
                    "a {} is of no namespace, and is not applied for a fleet",
                    part.kind
                ),
                remedy: "take it out of the ClusterTemplate and apply it yourself".to_owned(),
                level: None,
            }));
        }
    }
    Ok(None)
}

/// What is waited for that passes before have written, as they tried and wrote down the change. Nothing else is read or tried meanwhile:
/// while Vault is away for hours, that would be a trial of all objects each time.
async fn still_awaited(
    parts: &Parts,
    before: &Before,
    context: &Context,
) -> Result<Option<Waits>, Error> {
    let mut changed = Vec::new();
    for part in &parts.objects {
        if !part.is_vault_secret() {
            continue;
        }
        let live = live::read(part, context).await?;
        let is_written = live
            .as_ref()
            .is_some_and(|live| vault::is_written(part, live));
        if !is_written {
            return Ok(None);
        }
        if before.awaits(part, live.as_ref()) {
            changed.push((part, live));
        }
    }
    Ok(vault::awaited(&changed))
}

/// Why the objects that refer to VaultSecrets cannot be written yet, by what those that are new or were changed say now.
async fn awaited(
    parts: &Parts,
    there: &[Option<Value>],
    before: &Before,
    context: &Context,
) -> Result<Option<Waits>, Error> {
    let mut changed = Vec::new();
    for (part, live) in parts.objects.iter().zip(there) {
        if part.is_vault_secret() && before.awaits(part, live.as_ref()) {
            changed.push((part, live::read(part, context).await?));
        }
    }
    Ok(vault::awaited(&changed))
}

fn wait(pass: &mut Pass, (health, message): Waits) {
    pass.standing.health = health;
    pass.standing.message = Some(api::text::lines(&message, 1000));
    pass.awaits_others = true;
}

/// Whether the API has no such kind.
pub(super) fn is_unknown(error: &kube::Error) -> bool {
    match error {
        kube::Error::Discovery(_) => true,
        kube::Error::Api(status) => status.is_not_found(),
        _ => false,
    }
}

fn no_vault_secrets(part: &Part) -> FleetProblem {
    FleetProblem {
        object: part.title(),
        path: Some("kind".to_owned()),
        rule: "NoVaultSecrets".to_owned(),
        message: "the API has no VaultSecrets, and a value of this cluster is in Vault".to_owned(),
        remedy: "start Windlass with --vault; in a cluster: apply vault-crds.yaml and set vault.enabled of the chart".to_owned(),
        level: None,
    }
}

/// Makes the namespaces that the template makes, and says which may not be written into.
async fn places(
    cluster: &FleetCluster,
    parts: &Parts,
    context: &Context,
) -> Result<Option<FleetProblem>, Error> {
    let own = cluster.namespace().unwrap_or_default();
    let api = Api::<Namespace>::all(context.client.clone());
    for place in parts.places() {
        if place == own {
            continue;
        }
        let failed = |error| Error::Api(format!("read Namespace {place}"), error);
        let there = api.get_metadata_opt(place).await.map_err(failed)?;
        let is_made = parts.namespaces.iter().any(|made| made == place);
        match there {
            Some(there) if there.labels().get(FLEET_LABEL) == Some(&own) => {}
            Some(_) => {
                return Ok(Some(FleetProblem {
                    object: format!("Namespace {place}"),
                    path: Some("metadata.labels".to_owned()),
                    rule: "ForeignNamespace".to_owned(),
                    message: format!(
                        "does not say that FleetClusters of the namespace {own} may have objects in it"
                    ),
                    remedy: format!(
                        "if it is meant: kubectl label namespace {place} {FLEET_LABEL}={own}"
                    ),
                    level: None,
                }));
            }
            None if is_made => {
                let made: Namespace = serde_json::from_value(json!({
                    "metadata": {"name": place, "labels": {FLEET_LABEL: own}},
                }))
                .unwrap_or_default();
                let created = api.create(&PostParams::default(), &made).await;
                created.map_err(|error| Error::Api(format!("create Namespace {place}"), error))?;
            }
            None => {
                return Ok(Some(FleetProblem {
                    object: format!("Namespace {place}"),
                    rule: "NoNamespace".to_owned(),
                    message: "is not there, and the ClusterTemplate does not make it".to_owned(),
                    remedy: format!(
                        "create it with the label {FLEET_LABEL}={own}, or add it to the template's documents"
                    ),
                    ..FleetProblem::default()
                }));
            }
        }
    }
    Ok(None)
}

/// What is wrong with an object that is there and is not this cluster's.
fn foreign(cluster: &FleetCluster, part: &Part, there: &Value) -> Option<FleetProblem> {
    let whose = &there["metadata"]["annotations"][FLEET_CLUSTER_ANNOTATION];
    if *whose == own(cluster) {
        return None;
    }
    let (message, own) = match whose.as_str() {
        Some(other) => (format!("belongs to the FleetCluster {other}"), own(cluster)),
        None => (
            "is there already, and was not made for this FleetCluster".to_owned(),
            own(cluster),
        ),
    };
    let own = own.as_str().unwrap_or_default().to_owned();
    Some(FleetProblem {
        object: part.title(),
        path: Some("metadata.annotations".to_owned()),
        rule: "ForeignObject".to_owned(),
        message: api::text::plain(&message, 500),
        remedy: format!(
            "give the cluster another name; or hand it over: kubectl annotate -n {} {} {} {FLEET_CLUSTER_ANNOTATION}={own}",
            part.namespace,
            part.kubectl_kind(),
            part.name
        ),
        level: None,
    })
}

/// Whether something is written, or only tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Trial {
    Dry,
    Real,
}

/// Applies a part. What the API says against it is a problem; that it does not answer is an error.
pub(super) async fn write(
    part: &Part,
    trial: Trial,
    context: &Context,
) -> Result<Result<(), FleetProblem>, Error> {
    let mut parameters = PatchParams::apply(MANAGER).force();
    parameters.dry_run = trial == Trial::Dry;
    let written = live::api(part, context)
        .await?
        .patch(&part.name, &parameters, &Patch::Apply(&part.value))
        .await;
    match written {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 404 | 409 | 413 | 422) => {
            Ok(Err(FleetProblem {
                object: part.title(),
                rule: "Refused".to_owned(),
                message: format!("the API refuses it: {}", api::text::plain(&status.message, 800)),
                remedy: "mend the values or the ClusterTemplate; no other object of the cluster was changed".to_owned(),
                ..FleetProblem::default()
            }))
        }
        Err(error) => Err(Error::Api(format!("apply {}", part.title()), error)),
    }
}

/// Deletes what belonged to the revisions before and belongs to this one no longer, and says what is still there. Templates and
/// VaultSecrets go when the cluster is well.
async fn prune(
    cluster: &FleetCluster,
    before: &Before,
    parts: &Parts,
    context: &Context,
) -> Result<Vec<String>, Error> {
    let kept: BTreeSet<_> = parts.objects.iter().map(Part::identity).collect();
    let mut leaving = Vec::new();
    let former: Vec<_> = before.parts().collect();
    for part in former {
        let stays = part.is_template() || part.is_vault_secret();
        if stays || kept.contains(&part.identity()) {
            continue;
        }
        let Some(there) = live::read(part, context).await? else {
            continue;
        };
        if there["metadata"]["annotations"][FLEET_CLUSTER_ANNOTATION] != own(cluster) {
            continue;
        }
        leaving.push(part.title());
        delete(part, &there, context).await?;
    }
    Ok(leaving)
}

/// Deletes an object as it was read, if nobody has yet.
pub(super) async fn delete(part: &Part, there: &Value, context: &Context) -> Result<(), Error> {
    if there["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: there["metadata"]["uid"].as_str().map(ToOwned::to_owned),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let deleted = live::api(part, context)
        .await?
        .delete(&part.name, &parameters)
        .await;
    match deleted {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(Error::Api(format!("delete {}", part.title()), error)),
        Ok(_) => Ok(()),
    }
}
