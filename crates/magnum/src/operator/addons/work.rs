//! What Helm is told to do in a cluster.

use std::{collections::BTreeMap, time::Duration};

use api::magnum::{Addon, AddonState, CoeCluster};
use controller::Problem;
use helm::{
    Change, Helm, Place,
    deadlock::{When, deadlocks},
    lock, record,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::{Value, json};

use super::{
    Context,
    chart::{Archive, Missing},
    reach::Workload,
};
use crate::addons::{MARK, Wanted};

/// How long Helm may take, hooks of the chart among it.
const DEADLINE: Duration = Duration::from_mins(5);
/// How long it may take to render a chart.
pub(super) const RENDERS: Duration = Duration::from_secs(30);

/// Why something was not done.
#[derive(Debug)]
pub(super) enum Failure {
    /// Somebody has to change something.
    Refused(Problem),
    /// It is tried again.
    Failed(String),
}

impl Failure {
    /// What people are told.
    pub(super) fn told(self) -> (AddonState, String) {
        match self {
            Self::Refused(problem) => (AddonState::Refused, problem.to_string()),
            Self::Failed(why) => (AddonState::Failed, why),
        }
    }
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::Failed(format!("failed to {}", controller::chain(error)))
}

impl Context {
    pub(super) async fn helm(&self, workload: Option<&Workload>) -> Result<Helm, Failure> {
        let kubeconfig = workload.map(|workload| workload.kubeconfig.path());
        let helm = Helm::find(&self.settings.helm, kubeconfig).await;
        helm.map_err(|error| {
            let why = controller::chain(&error);
            Failure::Failed(format!(
                "failed to {why}; have Helm 3.14 or later where windlass magnum runs, or name it with --helm"
            ))
        })
    }

    /// Makes a release what it is to be. Nothing is waited for but the hooks of its chart.
    pub(super) async fn install(
        &self,
        cluster: &CoeCluster,
        workload: &Workload,
        wanted: &Wanted,
    ) -> Result<(), Failure> {
        let helm = self.helm(Some(workload)).await?;
        let archive = self.chart(&helm, wanted).await?;
        let place = Place {
            namespace: &wanted.namespace,
            release: &wanted.release,
        };
        let change = Change {
            chart: &archive.file,
            values: &wanted.values,
        };
        proven(&helm, place, change)
            .await
            .map_err(Failure::Refused)?;
        make_namespace(workload, &wanted.namespace).await?;
        let held = self.lock(cluster, place).await?;
        if wanted.is_broken {
            recover(workload, place).await?;
        }
        let marks = BTreeMap::from([(MARK.to_owned(), wanted.digest.clone())]);
        helm.upgrade_marked(&held, change, wanted.revision, &marks, DEADLINE)
            .await
            .map_err(|error| failed(&error))?;
        tracing::info!(
            cluster = cluster.name_any(),
            release = wanted.release,
            revision = wanted.revision,
            "an Addon is installed"
        );
        Ok(())
    }

    pub(super) async fn remove(
        &self,
        cluster: &CoeCluster,
        workload: &Workload,
        (namespace, release): (&str, &str),
    ) -> Result<(), Failure> {
        let helm = self.helm(Some(workload)).await?;
        let place = Place { namespace, release };
        let held = self.lock(cluster, place).await?;
        recover(workload, place).await?;
        helm.uninstall(&held, DEADLINE)
            .await
            .map_err(|error| failed(&error))?;
        tracing::info!(
            cluster = cluster.name_any(),
            release,
            "an Addon is taken away"
        );
        Ok(())
    }

    /// The chart that was looked at, and no other.
    async fn chart(&self, helm: &Helm, wanted: &Wanted) -> Result<Archive, Failure> {
        let (namespace, name) = &wanted.addon;
        let addons: Api<Addon> = Api::namespaced(self.client.clone(), namespace);
        let addon = addons.get(name).await.map_err(|error| failed(&error))?;
        let archive = self.archive(helm, &addon).await;
        let archive = archive.map_err(|missing| match missing {
            Missing::Problem(problem) => Failure::Refused(problem),
            Missing::Away(why) => Failure::Failed(why),
        })?;
        if archive.digest == wanted.chart {
            return Ok(archive);
        }
        let why = "the chart is another one than was looked at; it is looked at again";
        Err(Failure::Failed(why.to_owned()))
    }

    async fn lock(&self, cluster: &CoeCluster, place: Place<'_>) -> Result<lock::Held, Failure> {
        let locks = self.settings.locks.join(cluster.name_any());
        lock::hold(&locks, place)
            .await
            .map_err(|error| Failure::Failed(format!("failed to lock the release: {error}")))
    }
}

/// With the Lease and the lock held nobody is at work on it.
async fn recover(workload: &Workload, place: Place<'_>) -> Result<(), Failure> {
    record::recover(&workload.client, place.namespace, place.release)
        .await
        .map(drop)
        .map_err(|error| failed(&error))
}

/// Lets a chart pass that can be rendered, and none of whose hooks waits for what comes after it.
pub(super) async fn proven(
    helm: &Helm,
    place: Place<'_>,
    change: Change<'_>,
) -> Result<(), Problem> {
    let problem =
        |rule: String, remedy: &str| Problem::new("spec.chart", place.release, rule, remedy);
    let rendered = helm.template(place, change, RENDERS).await;
    let rendered = rendered.map_err(|error| {
        problem(
            format!("Helm does not render it: {}", controller::chain(&error)),
            "mend spec.values, or name another chart",
        )
    })?;
    let found = deadlocks(&rendered)
        .map_err(|error| problem(controller::chain(&error), "name another chart"))?;
    // What is no hook is not waited for.
    let knots = found.iter().filter(|knot| knot.when == When::Always);
    let knots: Vec<_> = knots.map(ToString::to_string).collect();
    if knots.is_empty() {
        return Ok(());
    }
    Err(problem(
        format!("it can never be installed: {}", knots.join("; ")),
        "bring what is waited for by spec.values, or name another chart",
    ))
}

async fn make_namespace(workload: &Workload, name: &str) -> Result<(), Failure> {
    let namespaces: Api<Namespace> = Api::all(workload.client.clone());
    let there = namespaces.get_metadata_opt(name).await;
    if there.map_err(|error| failed(&error))?.is_some() {
        return Ok(());
    }
    let object: Value = json!({"metadata": {"name": name}});
    let object = serde_json::from_value(object).map_err(|error| failed(&error))?;
    match namespaces.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(failed(&error)),
    }
}
