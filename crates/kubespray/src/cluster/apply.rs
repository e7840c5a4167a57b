//! Carries a decision out: writes only, no decisions.
//!
//! Order: the finalizer first, so that nothing is begun that deletion would not see; then the run. The order of the inventory
//! comes into the status at the end of the pass, or of the next one: an order that stood there without its run would be taken
//! for what hosts are in.

use std::path::Path;

use ansible::inventory::Directories;
use api::{Cluster, Run, cluster::Pending};
use controller::{Outcome, Until, finalizer};
use kube::{Api, Resource, ResourceExt};
use runs::object;

use crate::{
    cluster::{
        built::Built,
        decision::{Decision, NewRun, Planned},
    },
    context::{Context, Error},
    names::{CLUSTER_MANAGER, FINALIZER},
    playbooks, private, radar, request,
};

/// What was done. Only [`apply`] makes it.
#[derive(Clone, Debug)]
pub struct Applied {
    decision: Decision,
    pending: Vec<Pending>,
    run: Option<Run>,
    forgotten: bool,
}

impl Applied {
    /// The decision that was carried out.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// What else is asked for and waits.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    /// The run that stands for it, as stored.
    pub const fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// Whether the object is gone, so that there is no status to write.
    pub const fn is_forgotten(&self) -> bool {
        self.forgotten
    }
}

/// Carries out the decision.
///
/// # Errors
///
/// The API refuses or does not answer; what was written before stands, and the next pass goes on from there.
pub async fn apply(
    cluster: &Cluster,
    planned: Planned,
    context: &Context,
) -> Result<Outcome<Applied>, Error> {
    if cluster.meta().deletion_timestamp.is_none() {
        keep(cluster, context).await?;
    }
    let Planned {
        decision,
        pending,
        rest,
        recheck,
    } = planned;
    let recheck = recheck.and_then(|left| std::time::Duration::try_from(left).ok());
    let mut run = None;
    let mut forgotten = false;
    let mut until = None;
    if let Some(change) = &rest {
        object::rest(
            &context.client,
            &change.run,
            change.to.as_ref(),
            change.marks(),
        )
        .await
        .map_err(|source| Error::api("have the run keep to its maintenance window", source))?;
    }
    match &decision {
        Decision::Start(new) => {
            if !new.operation.quiet {
                context.radar.hold(cluster);
            }
            run = Some(start(cluster, new, context).await?);
            until = Some(Until::Changed);
        }
        Decision::Follow(existing) => {
            run = Some((**existing).clone());
            until = Some(Until::Changed);
        }
        Decision::Supersede(existing, digest) => {
            object::supersede(&context.client, existing, digest)
                .await
                .map_err(|source| Error::api("supersede the run", source))?;
            run = Some((**existing).clone());
            until = Some(Until::Changed);
        }
        Decision::Cancel(existing) => {
            object::cancel(&context.client, existing, "deletion of the cluster")
                .await
                .map_err(Error::Control)?;
            run = Some((**existing).clone());
            until = Some(Until::Changed);
        }
        Decision::Forget => {
            forget(cluster, context).await?;
            forgotten = true;
        }
        Decision::AwaitPlaybooks(_) => until = Some(Until::Changed),
        Decision::Stall(_) => {
            // What no watch tells: a directory of playbooks that was mended.
            until = Some(Until::Elapsed(controller::backoff::jittered(
                playbooks::RETRY,
            )));
        }
        Decision::AwaitHosts { recheck, .. } => {
            until = Some(match recheck.map(std::time::Duration::try_from) {
                Some(Ok(wait)) => Until::Elapsed(wait),
                _ => Until::Changed,
            });
        }
        Decision::Maintain(built, existing) => {
            run = Some((**existing).clone());
            until = Some(Until::Elapsed(look(
                cluster,
                built,
                Some(existing),
                context,
            )));
        }
        Decision::Keep(built) => {
            run.clone_from(&built.run);
            until = Some(Until::Elapsed(look(cluster, built, None, context)));
        }
    }
    let applied = Applied {
        decision,
        pending,
        run,
        forgotten,
    };
    let outcome = match until {
        Some(until) => Outcome::Waiting { applied, until },
        None => Outcome::Applied(applied),
    };
    // Nothing tells that a window opens or closes.
    Ok(match recheck {
        Some(recheck) => outcome.within(recheck),
        None => outcome,
    })
}

/// Has the cluster probed and its hosts looked at where that is due; says when the next of that is. While a run changes hosts, what is
/// seen of them is no drift.
fn look(
    cluster: &Cluster,
    built: &Built,
    at_work: Option<&Run>,
    context: &Context,
) -> std::time::Duration {
    context.health.refresh(cluster, built.expected.clone());
    let next = context.health.interval(cluster);
    match &built.watch {
        Some(_) if at_work.is_some_and(radar::is_at_work) => context.radar.hold(cluster),
        Some(watch) => {
            let namespace = cluster.namespace().unwrap_or_default();
            let nodes = controller::stream::in_namespace(&context.stores.nodes, &namespace);
            let nodes = nodes.iter().filter_map(|node| node.0.as_ref().ok());
            let before = || radar::book::told(nodes);
            context.radar.awaits(cluster, built.looks_before.is_some());
            context.radar.refresh(cluster, (**watch).clone(), before);
        }
        None => context
            .radar
            .forget(&(cluster.namespace().unwrap_or_default(), cluster.name_any())),
    }
    let radar = match built.looks_before {
        // It begins without one that does not end.
        Some(_) => Some(radar::book::PATIENCE),
        None => context.radar.interval(cluster),
    };
    radar.map_or(next, |radar| radar.min(next))
}

/// Keeps the object until its deletion policy is carried out.
async fn keep(cluster: &Cluster, context: &Context) -> Result<(), Error> {
    finalizer::hold(&clusters(cluster, context), cluster, FINALIZER)
        .await
        .map_err(|source| Error::api("add the finalizer", source))
}

async fn start(cluster: &Cluster, new: &NewRun, context: &Context) -> Result<Run, Error> {
    let (name, operation) = (new.name.clone(), new.operation.name);
    let mut run = object::of(cluster, name, operation, new.generation, new.plan.clone());
    let asked = request::of(new.operation).zip(new.request.clone());
    let maintained = Some(request::MAINTAIN).zip(new.maintain.clone());
    let answers = asked.into_iter().chain(maintained);
    let answers = answers.map(|(annotation, value)| (annotation.to_owned(), value));
    run.annotations_mut().extend(answers);
    object::store(&context.client, CLUSTER_MANAGER, run)
        .await
        .map_err(|source| Error::api("store the run", source))
}

async fn remove(directory: &Path) -> Result<(), Error> {
    match tokio::fs::remove_dir_all(directory).await {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Error::File {
            path: directory.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

async fn forget(cluster: &Cluster, context: &Context) -> Result<(), Error> {
    let namespace = cluster.namespace().unwrap_or_default();
    let name = cluster.name_any();
    remove(&context.layout.cluster(&namespace, &name)).await?;
    // A cluster of the same name names its runs alike: the journal of the old one would say that all is done.
    for run in context.stores.runs.state() {
        if let Ok(run) = &run.0
            && object::is_of(run, cluster)
        {
            let directory = context.layout.run(&namespace, &run.name_any());
            // The directory leads to what it has in memory.
            private::forget(&directory).map_err(|source| Error::File {
                path: directory.clone(),
                source,
            })?;
            remove(&directory).await?;
        }
    }
    release(cluster, context).await
}

/// Lets go of a cluster that was moved to another API, whose operator looks after it from now on. Its files are set aside
/// for people, so that another cluster of the name does not find them.
pub(crate) async fn let_go(cluster: &Cluster, context: &Context) -> Result<(), Error> {
    let namespace = cluster.namespace().unwrap_or_default();
    let name = cluster.name_any();
    let path = context.layout.cluster(&namespace, &name);
    let aside = context
        .layout
        .moved(&namespace, &name, &cluster.uid().unwrap_or_default());
    if tokio::fs::try_exists(&path).await.unwrap_or_default() {
        // The kubeconfig among them is in its Secret, or the playbooks bring it anew on the other side.
        remove(&Directories::below(&path).artifacts).await?;
        let parent = aside.parent().unwrap_or(&aside);
        let moved = async {
            tokio::fs::create_dir_all(parent).await?;
            tokio::fs::rename(&path, &aside).await
        };
        moved.await.map_err(|source| Error::File { path, source })?;
    }
    release(cluster, context).await
}

async fn release(cluster: &Cluster, context: &Context) -> Result<(), Error> {
    context.forget(cluster);
    finalizer::release(&clusters(cluster, context), cluster, FINALIZER)
        .await
        .map_err(|source| Error::api("remove the finalizer", source))
}

fn clusters(cluster: &Cluster, context: &Context) -> Api<Cluster> {
    Api::namespaced(
        context.client.clone(),
        &cluster.namespace().unwrap_or_default(),
    )
}
