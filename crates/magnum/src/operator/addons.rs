//! Addons: charts are looked at once, and installed by Helm into each cluster that asks for them.
//!
//! Helm may take minutes, so it is at work in passes of its own: what makes clusters does not wait for it, nor does one cluster for another. A
//! cluster is reached by its own authority, as its users reach it by `coe cluster config`, whoever made it; nothing of that stays when the
//! pass ends.

use std::{path::PathBuf, sync::Arc, time::Duration};

use api::magnum::{Addon, AddonReport, AddonState, CoeCluster, CoeClusterStatus};
use controller::{Manager, WakeUps, apply, reads, stream::readable};
use futures::FutureExt as _;
use helm::record;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::{
        controller::Action,
        reflector::{ObjectRef, Store},
    },
};

use super::{Options, SURE, UNTIL_READ};
use crate::addons::{self, Deed, Step, Words};

mod chart;
mod judge;
mod reach;
mod work;

pub(crate) use reach::Reach;

/// The field manager of what is told of Addons.
const MANAGER: &str = "windlass-magnum-addons";
/// How soon is looked again at a cluster that does not answer.
const AWAY: Duration = Duration::from_secs(30);

/// How Addons are installed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Helm: its path, or its name.
    pub helm: PathBuf,
    /// The directory of locks, one a release.
    pub locks: PathBuf,
}

/// What passes work with.
struct Context {
    client: Client,
    settings: Settings,
    pool: String,
    reach: Reach,
    addons: Store<DeserializeGuard<Addon>>,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The API refused, or did not answer.
    #[error("{0}")]
    Api(&'static str, #[source] kube::Error),
    /// How it stands could not be told.
    #[error("tell how Addons stand")]
    Tell(#[source] apply::Error),
    /// Helm could not do something.
    #[error("install the Addons of the cluster: {0}")]
    Failed(String),
}

/// Has the manager look at Addons, and install them.
pub(super) fn operate(manager: &mut Manager, options: &Options, reach: Reach) {
    let own = manager.watch::<CoeCluster>();
    let addons = manager.watch::<Addon>();
    let pool = options.pool.clone();
    let context = Arc::new(Context {
        client: manager.client().clone(),
        settings: options.addons.clone(),
        pool: pool.clone(),
        reach,
        addons: addons.store(),
    });
    let (gone, all) = (WakeUps::default(), own.store());
    let (wake_ups, of_gone, clusters) = (gone.clone(), pool.clone(), own.store());
    addons.on_gone(move |meta| {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        for cluster in concerned(&clusters, namespace, &of_gone) {
            wake_ups.wake(&(cluster.namespace.unwrap_or_default(), cluster.name));
        }
    });
    manager
        .controller(&own, |cluster| (reads::wish(cluster), address(cluster)))
        .woken_by(&addons, concern, move |addon| {
            concerned(&all, &addon.namespace().unwrap_or_default(), &pool)
        })
        .woken_on(&gone, |(namespace, name)| {
            [ObjectRef::new(&name).within(&namespace)]
        })
        .reconcile(install, Arc::clone(&context));
    let rivals = WakeUps::default();
    addons.gone_wakes(&addons, &rivals);
    manager
        .controller(&addons, reads::wish)
        .woken_by(&addons, reads::wish, addons.in_namespace_of())
        .woken_on(&rivals, |(namespace, name)| {
            [ObjectRef::new(&name).within(&namespace)]
        })
        .reconcile(judge::judge, context);
}

/// Where the API of a cluster answers.
fn address(cluster: &DeserializeGuard<CoeCluster>) -> Option<String> {
    let status = cluster.0.as_ref().ok()?.status.as_ref();
    status.and_then(|status| status.api_address.clone())
}

/// What clusters read of an Addon; of one that cannot be read, that it is another one.
fn concern(addon: &DeserializeGuard<Addon>) -> impl PartialEq + Send + use<> {
    let meta = addon.meta();
    let seen = (meta.generation, meta.deletion_timestamp.is_some());
    (seen, addon.0.as_ref().ok().map(addons::concern))
}

/// The clusters that an Addon in a namespace may go into.
fn concerned(
    clusters: &Store<DeserializeGuard<CoeCluster>>,
    namespace: &str,
    pool: &str,
) -> Vec<ObjectRef<DeserializeGuard<CoeCluster>>> {
    let is_its = |cluster: &DeserializeGuard<CoeCluster>| {
        namespace == pool || cluster.namespace().as_deref() == Some(namespace)
    };
    let found = clusters.state_filter(is_its);
    let found = found.iter();
    found
        .map(|cluster| ObjectRef::from_obj(&**cluster))
        .collect()
}

/// One pass of a cluster.
async fn install(
    object: Arc<DeserializeGuard<CoeCluster>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let Ok(cluster) = &object.0 else {
        return Ok(Action::await_change());
    };
    if cluster.spec.imported.is_some() || cluster.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    if context.addons.wait_until_ready().now_or_never().is_none() {
        return Ok(Action::requeue(UNTIL_READ));
    }
    context.pass(cluster).await
}

impl Context {
    async fn pass(&self, cluster: &CoeCluster) -> Result<Action, Error> {
        let scope = self.scope(cluster);
        let all: Vec<_> = scope.iter().filter_map(|addon| readable(addon)).collect();
        let may_remove = all.len() == scope.len();
        let chosen = addons::chosen(cluster, all, &self.pool);
        let mut told = Told::of(self, cluster);
        if chosen.is_empty() && !told.has_releases() {
            let steps = addons::plan(cluster, &[], &Words::sample(), &[], may_remove);
            told.tell(&steps).await?;
            return Ok(Action::await_change());
        }
        let status = cluster.status.as_ref();
        let Some(address) = status.and_then(|status| status.api_address.as_deref()) else {
            told.wait(&chosen, "the API of the cluster is not there yet")
                .await?;
            return Ok(Action::await_change());
        };
        let reached = self.reached(cluster, address).await?;
        let workload = match reached {
            Ok(workload) => workload,
            Err(why) => {
                told.wait(&chosen, &why).await?;
                return Ok(Action::requeue(AWAY));
            }
        };
        let releases = match record::outlines(&workload.client).await {
            Ok(releases) => releases,
            Err(error) => {
                tracing::debug!(
                    cluster = cluster.name_any(),
                    error = controller::chain(&error),
                    "a cluster does not tell its releases"
                );
                let why = format!("the API of the cluster at {address} does not answer");
                told.wait(&chosen, &why).await?;
                return Ok(Action::requeue(AWAY));
            }
        };
        let words = Words::of(cluster, &workload.host, workload.port);
        let steps = addons::plan(cluster, &chosen, &words, &releases, may_remove);
        self.settle(cluster, &workload, steps, &mut told).await
    }

    /// The Addons that a cluster may have.
    fn scope(&self, cluster: &CoeCluster) -> Vec<Arc<DeserializeGuard<Addon>>> {
        let project = cluster.namespace();
        self.addons.state_filter(|addon| {
            let namespace = addon.namespace();
            let is_its = namespace == project || namespace.as_deref() == Some(&self.pool);
            is_its && addon.meta().deletion_timestamp.is_none()
        })
    }

    /// Does what is planned, and tells of each when it is done.
    async fn settle(
        &self,
        cluster: &CoeCluster,
        workload: &reach::Workload,
        mut steps: Vec<Step>,
        told: &mut Told<'_>,
    ) -> Result<Action, Error> {
        told.tell(&steps).await?;
        let mut failed = Vec::new();
        for at in 0..steps.len() {
            let Some(step) = steps.get_mut(at) else {
                continue;
            };
            let done = match &step.deed {
                Deed::None => continue,
                Deed::Install(wanted) => {
                    let done = self.install(cluster, workload, wanted).await;
                    done.map(|()| Some(wanted.version.clone()))
                }
                Deed::Remove(namespace, release) => {
                    let place = (namespace.as_str(), release.as_str());
                    let done = self.remove(cluster, workload, place).await;
                    done.map(|()| None)
                }
            };
            let name = step.report.name.clone();
            match done {
                Ok(Some(version)) => {
                    step.report.state = AddonState::Installed;
                    step.report.version = Some(version);
                }
                // It is told of no longer.
                Ok(None) => step.report.state = AddonState::Installed,
                Err(failure) => {
                    let (state, why) = failure.told();
                    if state == AddonState::Failed {
                        failed.push(name);
                    }
                    step.report.state = state;
                    step.report.message = Some(api::text::plain(&why, 2048));
                }
            }
            step.deed = Deed::None;
            let is_gone = |step: &Step| {
                step.report.plugin.is_none() && step.report.state == AddonState::Installed
            };
            let left: Vec<_> = steps
                .iter()
                .filter(|step| !is_gone(step))
                .cloned()
                .collect();
            told.tell(&left).await?;
        }
        if failed.is_empty() {
            Ok(Action::requeue(SURE))
        } else {
            Err(Error::Failed(failed.join(", ")))
        }
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// What was told of the Addons of a cluster.
struct Told<'a> {
    context: &'a Context,
    cluster: &'a CoeCluster,
    known: Vec<AddonReport>,
}

impl<'a> Told<'a> {
    fn of(context: &'a Context, cluster: &'a CoeCluster) -> Self {
        let status = cluster.status.as_ref();
        Self {
            context,
            cluster,
            known: status
                .map(|status| status.addons.clone())
                .unwrap_or_default(),
        }
    }

    /// Whether something may be there. Of a plugin without an Addon nothing is.
    fn has_releases(&self) -> bool {
        let mut known = self.known.iter();
        known.any(|known| known.observed_generation.is_some() || known.plugin.is_none())
    }

    async fn tell(&mut self, steps: &[Step]) -> Result<(), Error> {
        self.write(steps.iter().map(|step| step.report.clone()).collect())
            .await
    }

    /// Where nothing can be done. What was installed is not gone for that.
    async fn wait(&mut self, chosen: &[&Addon], why: &str) -> Result<(), Error> {
        let reports = chosen.iter().map(|addon| {
            let report = addons::report(addon, AddonState::Waiting, Some(why.to_owned()));
            let mut known = self.known.iter();
            let known = known.find(|known| {
                known.name == report.name
                    && known.state == AddonState::Installed
                    && known.observed_generation == report.observed_generation
            });
            known.cloned().unwrap_or(report)
        });
        let named: Vec<_> = chosen.iter().map(|addon| addons::title(addon)).collect();
        // Nor is what has to go.
        let others = self.known.iter();
        let others = others.filter(|known| !named.contains(&known.name));
        let others = others.cloned().collect::<Vec<_>>();
        let reports = reports.chain(others).collect();
        self.write(reports).await
    }

    async fn write(&mut self, reports: Vec<AddonReport>) -> Result<(), Error> {
        let of = |addons: Vec<AddonReport>| CoeClusterStatus {
            addons,
            ..CoeClusterStatus::default()
        };
        let (existing, wanted) = (of(self.known.clone()), of(reports));
        let namespace = self.cluster.namespace().unwrap_or_default();
        let api: Api<CoeCluster> = Api::namespaced(self.context.client.clone(), &namespace);
        let name = self.cluster.name_any();
        apply::apply_status(&api, MANAGER, &name, &wanted, Some(&existing))
            .await
            .map_err(Error::Tell)?;
        self.known = wanted.addons;
        Ok(())
    }
}
