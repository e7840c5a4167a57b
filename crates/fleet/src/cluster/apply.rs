//! Brings the objects of a cluster to a revision: all of them are tried before one is written, what is no longer one of them goes last.

use std::collections::{BTreeMap, BTreeSet};

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
    Context, Error, Pass,
    health::{self, Rolling},
    live, own,
    part::{Part, Parts},
    records, refuse, report, vault,
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
    let begun = pass.begun.clone();
    let is_new = begun.is_some() || pass.applied.as_deref() != Some(revision);
    if is_new {
        pass.target = Some(revision.to_owned());
    }
    for part in &parts.objects {
        let is_namespaced = match live::is_namespaced(part, context).await {
            Err(Error::Api(_, error)) if part.is_vault_secret() && is_unknown(&error) => {
                refuse(pass, revision, vec![no_vault_secrets(part)]);
                return Ok(());
            }
            found => found?,
        };
        if !is_namespaced {
            let problem = FleetProblem {
                object: part.title(),
                path: Some("kind".to_owned()),
                rule: "NotApplied".to_owned(),
                message: format!(
                    "a {} is of no namespace, and is not applied for a fleet",
                    part.kind
                ),
                remedy: "take it out of the ClusterTemplate and apply it yourself".to_owned(),
                level: None,
            };
            refuse(pass, revision, vec![problem]);
            return Ok(());
        }
    }
    if let Some(problem) = places(cluster, parts, context).await? {
        refuse(pass, revision, vec![problem]);
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
    let of = |revision: &Option<String>| {
        let objects = records::parts(cluster, revision.as_ref()?, context).ok()?;
        Some(objects.objects)
    };
    let mut before = of(&pass.applied);
    // Of what was begun and not brought to its end, nobody knows which objects were written: all are written then.
    let other = begun.as_ref().filter(|begun| *begun != revision).cloned();
    let was_whole = other.is_none();
    let wanted = with_request(parts, &there, revision, pass.is_granted);
    let was: BTreeMap<_, _> = before
        .iter()
        .flatten()
        .filter(|_| was_whole)
        .map(|part| (part.identity(), part))
        .collect();
    let differs = |part: &Part, there: &Option<Value>| {
        let same = was
            .get(&part.identity())
            .is_some_and(|was| was.value == part.value);
        let is_there = there
            .as_ref()
            .is_some_and(|there| controller::apply::contains(there, &part.value));
        !is_there || is_new && !same
    };
    let writes: Vec<_> = wanted
        .iter()
        .zip(&there)
        .filter(|(part, there)| differs(part, there))
        .map(|(part, _)| part)
        .collect();
    // A drift of one object is mended as it is; a change is one of all objects, or of none.
    if is_new {
        let mut problems = Vec::new();
        for part in &writes {
            problems.extend(write(part, Trial::Dry, context).await?.err());
        }
        if !problems.is_empty() {
            refuse(pass, revision, problems);
            return Ok(());
        }
    }
    let (secrets, writes): (Vec<_>, Vec<_>) =
        writes.into_iter().partition(|part| part.is_vault_secret());
    let has_secrets = parts.objects.iter().any(Part::is_vault_secret);
    // A birth that waits for Secrets may be another one before it is through.
    if is_new && begun.is_none() && (pass.applied.is_some() || has_secrets) {
        report::begin(cluster, revision, context).await?;
        pass.begun = Some(revision.to_owned());
    }
    let has_written = !writes.is_empty() || !secrets.is_empty();
    for part in &secrets {
        if let Err(problem) = write(part, Trial::Real, context).await? {
            refuse(pass, revision, vec![problem]);
            return Ok(());
        }
    }
    if is_new && let Some((health, message)) = awaited(&secrets, context).await? {
        pass.standing = health::standing(parts, &there, Rolling::of(pass.is_granted));
        pass.standing.health = health;
        pass.standing.message = Some(api::text::lines(&message, 1000));
        pass.awaits_secrets = true;
        return Ok(());
    }
    for part in writes {
        if let Err(problem) = write(part, Trial::Real, context).await? {
            refuse(pass, revision, vec![problem]);
            return Ok(());
        }
    }
    if let Some(objects) = of(&other) {
        before.get_or_insert_default().extend(objects);
    }
    let leaving = prune(cluster, before.unwrap_or_default(), parts, context).await?;
    if leaving.is_empty() {
        pass.applied = Some(revision.to_owned());
        pass.target = None;
        pass.begun = None;
    }
    pass.standing = health::standing(parts, &there, Rolling::of(pass.is_granted));
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
    }
    Ok(())
}

/// Why the objects that refer to VaultSecrets cannot be written yet.
async fn awaited(
    changed: &[&Part],
    context: &Context,
) -> Result<Option<(FleetHealth, String)>, Error> {
    let mut secrets = Vec::new();
    for part in changed {
        secrets.push((*part, live::read(part, context).await?));
    }
    Ok(vault::awaited(&secrets))
}

/// Whether the API has no such kind.
fn is_unknown(error: &kube::Error) -> bool {
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

/// The parts, with a request to converge where the cluster's operator carries out a change of the roll-out only when it is asked to. The
/// request stays for as long as the revision does, so that it is one.
fn with_request(
    parts: &Parts,
    there: &[Option<Value>],
    revision: &str,
    is_granted: bool,
) -> Vec<Part> {
    let mut wanted = parts.objects.clone();
    let Some((main, Some(live))) = wanted.last_mut().zip(there.last()) else {
        return wanted;
    };
    let waits = live["status"]["pending"].as_array();
    let waits = waits
        .into_iter()
        .flatten()
        .any(|pending| pending["operation"] == "Converge" && pending["reason"] == "NotRequested");
    let has_asked = live["metadata"]["annotations"][kubespray_converge()] == revision;
    // That it waits before the change is written is of the change before.
    let is_written =
        live["metadata"]["annotations"][api::inventory::REVISION_ANNOTATION] == revision;
    if main.is_kubespray() && is_written && (has_asked || waits && is_granted) {
        main.value["metadata"]["annotations"][kubespray_converge()] = json!(revision);
    }
    wanted
}

const fn kubespray_converge() -> &'static str {
    "kubespray.k8s.io/converge"
}

/// Whether something is written, or only tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Trial {
    Dry,
    Real,
}

/// Applies a part. What the API says against it is a problem; that it does not answer is an error.
async fn write(
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
                remedy: "mend the values or the ClusterTemplate; nothing else of this change was written".to_owned(),
                ..FleetProblem::default()
            }))
        }
        Err(error) => Err(Error::Api(format!("apply {}", part.title()), error)),
    }
}

/// Deletes what belonged to the revision before and belongs to this one no longer, and says what is still there.
async fn prune(
    cluster: &FleetCluster,
    before: Vec<Part>,
    parts: &Parts,
    context: &Context,
) -> Result<Vec<String>, Error> {
    let kept: BTreeSet<_> = parts.objects.iter().map(Part::identity).collect();
    let mut leaving = Vec::new();
    for part in before {
        // Machines are still made from a template of Cluster API until the last one is replaced.
        let is_template = !part.is_kubespray() && part.kind.ends_with("Template");
        if is_template || kept.contains(&part.identity()) {
            continue;
        }
        let Some(there) = live::read(&part, context).await? else {
            continue;
        };
        if there["metadata"]["annotations"][FLEET_CLUSTER_ANNOTATION] != own(cluster) {
            continue;
        }
        leaving.push(part.title());
        if there["metadata"]["deletionTimestamp"].is_string() {
            continue;
        }
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: there["metadata"]["uid"].as_str().map(ToOwned::to_owned),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let deleted = live::api(&part, context)
            .await?
            .delete(&part.name, &parameters)
            .await;
        match deleted {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(Error::Api(format!("delete {}", part.title()), error)),
            Ok(_) => {}
        }
    }
    Ok(leaving)
}
