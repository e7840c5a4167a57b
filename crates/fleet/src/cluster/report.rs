//! How a FleetCluster stands, for people and for roll-outs: its status, and an Event where something happened.

use api::inventory::{FleetCluster, FleetClusterStatus, FleetHealth};
use controller::{
    Conditions, Occurrence, Severity, Standing, Status, Summary, conditions::observed_generation,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Resource, ResourceExt, runtime::reflector::ObjectRef};

use super::{Context, Error, Pass, line};
use crate::names::STATUS_MANAGER;

/// Writes the status if it changed, and then the Event of what happened: an Event that is refused keeps no record back.
pub(super) async fn publish(
    cluster: &FleetCluster,
    pass: &Pass,
    context: &Context,
) -> Result<(), Error> {
    let before = cluster.status.clone().unwrap_or_default();
    let told = told(&before, cluster.metadata.generation, pass, Timestamp::now());
    let known = Written::last(cluster, pass);
    if told != known.status {
        let version = write(cluster, &known, &told, context).await?;
        let namespace = cluster.namespace().unwrap_or_default();
        let reference = ObjectRef::new(&cluster.name_any()).within(&namespace);
        controller::stream::await_version(&context.own, &reference, &version).await;
    }
    let object = ObjectReference {
        namespace: cluster.namespace(),
        ..cluster.object_ref(&())
    };
    let mut refused = Ok(());
    for occurrence in occurrences(&before, &told) {
        // Nobody tells the others later.
        let published = context.events.publish(&object, &occurrence).await;
        let published = published.map_err(|error| Error::Api("publish an Event".to_owned(), error));
        refused = refused.and(published);
    }
    refused
}

/// A status, as a pass has written or read it last.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    status: FleetClusterStatus,
    version: String,
}

impl Written {
    fn last(cluster: &FleetCluster, pass: &Pass) -> Self {
        pass.written.clone().unwrap_or_else(|| Self {
            status: cluster.status.clone().unwrap_or_default(),
            version: cluster.resource_version().unwrap_or_default(),
        })
    }
}

/// Writes down that objects are begun to be made from a revision, before the first one is: a pass that ends in the middle, or a grant
/// that does, leaves them of two revisions.
pub(super) async fn begin(
    cluster: &FleetCluster,
    revision: &str,
    pass: &mut Pass,
    context: &Context,
) -> Result<(), Error> {
    let told = FleetClusterStatus {
        begun: Some(revision.to_owned()),
        abandoned: pass.abandoned.clone(),
        born: born(pass),
        ..known(cluster, pass)
    };
    note(cluster, told, pass, context).await
}

/// Writes down of which revisions templates may be there that go when nothing needs them, before they are.
pub(super) async fn prepare(
    cluster: &FleetCluster,
    pass: &mut Pass,
    context: &Context,
) -> Result<(), Error> {
    let told = FleetClusterStatus {
        former: pass.former.clone(),
        ..known(cluster, pass)
    };
    note(cluster, told, pass, context).await
}

/// The status that was read, with what the pass has found to stand where that was lost: once objects are of another revision nobody could
/// find it again, and what only it has would stay for ever.
fn known(cluster: &FleetCluster, pass: &Pass) -> FleetClusterStatus {
    FleetClusterStatus {
        applied: pass.applied.clone(),
        ..cluster.status.clone().unwrap_or_default()
    }
}

async fn note(
    cluster: &FleetCluster,
    status: FleetClusterStatus,
    pass: &mut Pass,
    context: &Context,
) -> Result<(), Error> {
    let known = Written::last(cluster, pass);
    if known.status != status {
        let version = write(cluster, &known, &status, context).await?;
        pass.written = Some(Written { status, version });
    }
    Ok(())
}

/// Writes the status of the very object that was read, if nobody else has written it since: another one of its name knows nothing of what
/// stands, and another operator may have begun something meanwhile. That somebody has edited the rest of the object is no reason not to.
async fn write(
    cluster: &FleetCluster,
    known: &Written,
    told: &FleetClusterStatus,
    context: &Context,
) -> Result<String, Error> {
    let namespace = cluster.namespace().unwrap_or_default();
    let api = Api::<FleetCluster>::namespaced(context.client.clone(), &namespace);
    let name = cluster.name_any();
    let at = async |version: &str| {
        controller::apply::apply_status_at(&api, STATUS_MANAGER, &name, version, told).await
    };
    let mut written = at(&known.version).await;
    if let Err(controller::apply::Error::Api { source, .. }) = &written
        && matches!(source, kube::Error::Api(status) if status.is_conflict())
    {
        let now = api.get(&name).await;
        let now = now.map_err(|error| Error::Api(format!("read FleetCluster {name}"), error))?;
        let status = now.status.clone().unwrap_or_default();
        if now.uid() == cluster.uid() && status == known.status {
            written = at(&now.resource_version().unwrap_or_default()).await;
        }
    }
    Ok(written.map_err(Error::Apply)?.unwrap_or_default())
}

fn born(pass: &Pass) -> Option<String> {
    let born = pass.born.as_ref();
    born.map(|born| api::text::plain(born, 500))
}

/// The status that follows from a pass. Pure.
fn told(
    before: &FleetClusterStatus,
    generation: Option<i64>,
    pass: &Pass,
    now: Timestamp,
) -> FleetClusterStatus {
    let summary = summary(pass);
    let mut conditions = Conditions::new(&before.conditions, generation, now);
    conditions.summarise(&summary);
    let (status, reason, message) = up_to_date(pass);
    conditions.set("UpToDate", status, reason, message);
    pass.vault.tell(&mut conditions);
    let mut problems = pass.problems.clone();
    problems.truncate(MOST_PROBLEMS);
    FleetClusterStatus {
        observed_generation: observed_generation(
            before.observed_generation,
            generation,
            summary.standing,
        ),
        rendered: pass.rendered.clone(),
        applied: pass.applied.clone(),
        target: pass.target.clone(),
        begun: pass.begun.clone(),
        abandoned: pass.abandoned.clone(),
        former: pass.former.clone(),
        born: born(pass),
        secrets: pass.secrets.clone(),
        health: Some(pass.standing.health),
        message: pass.standing.message.clone(),
        gates: pass.standing.gates.clone(),
        rules: pass.rules.clone(),
        pending: pass.pending.clone(),
        problems,
        conditions: conditions.into_vec(),
    }
}

fn summary(pass: &Pass) -> Summary {
    let said = || pass.standing.message.clone();
    let (standing, reason, message) = match (pass.problems.first(), pass.standing.health) {
        (_, FleetHealth::Refused) => (Standing::Stalled, "NotApplied", said()),
        (Some(_), _) => {
            let lines: Vec<_> = pass.problems.iter().map(line).collect();
            (Standing::Stalled, "NotRendered", Some(lines.join("\n")))
        }
        (None, FleetHealth::Well) => (Standing::Ready, "Well", None),
        (None, FleetHealth::Failed) => (Standing::Unhealthy, "NotWell", said()),
        (None, FleetHealth::AtWork) => (Standing::AtWork, "AtWork", said()),
    };
    Summary {
        standing,
        reason,
        message: message.unwrap_or_else(|| match (standing, pass.applied.as_deref()) {
            (Standing::Ready, Some(applied)) => {
                format!("revision {applied} is applied, and the cluster is well")
            }
            (_, Some(applied)) => {
                format!("revision {applied} is applied, and nothing is known of it yet")
            }
            (_, None) => "nothing of it is applied".to_owned(),
        }),
    }
}

/// Whether it is what the inventory renders.
fn up_to_date(pass: &Pass) -> (Status, &'static str, String) {
    let Some(rendered) = &pass.rendered else {
        return (
            Status::Unknown,
            "NotRendered",
            "what stands is left as it is until the inventory can be rendered".to_owned(),
        );
    };
    if pass.is_held
        && let Some(begun) = &pass.begun
    {
        let message = format!("revision {begun} was begun, and no roll-out brings it on");
        return (Status::False, "HalfChanged", message);
    }
    if pass.applied.as_ref() == Some(rendered) && pass.target.is_none() {
        let message = format!("revision {rendered} is applied");
        return (Status::True, "Applied", message);
    }
    if let Some(target) = &pass.target {
        let message = format!("revision {target} is being applied");
        return (Status::False, "RollingOut", message);
    }
    let pending = pass.pending.clone().unwrap_or_default();
    let message = format!(
        "{} fields of {} objects change with revision {rendered}, when a Rollout carries it out",
        pending.fields, pending.objects
    );
    (Status::False, "ChangePending", message)
}

fn occurrences(before: &FleetClusterStatus, after: &FleetClusterStatus) -> Vec<Occurrence> {
    let mut all = Vec::new();
    if let Some(applied) = after
        .applied
        .as_ref()
        .filter(|_| before.applied != after.applied)
    {
        let was = before.applied.as_deref().unwrap_or("nothing");
        all.push(Occurrence {
            severity: Severity::Normal,
            reason: "Applied".to_owned(),
            note: match &after.born {
                Some(born) if before.applied.is_none() => {
                    format!("revision {applied} is applied, after {was}: {born}")
                }
                _ => format!("revision {applied} is applied, after {was}"),
            },
            edge: format!("{was} {applied}"),
        });
    }
    let first = |status: &FleetClusterStatus| status.problems.first().cloned();
    if let Some(problem) = first(after).filter(|problem| first(before).as_ref() != Some(problem)) {
        all.push(Occurrence {
            severity: Severity::Warning,
            reason: problem.rule.clone(),
            note: line(&problem),
            edge: format!("{:?} {}", after.observed_generation, line(&problem)),
        });
    }
    all
}

/// By the schema of the status.
const MOST_PROBLEMS: usize = 16;
