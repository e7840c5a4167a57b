//! The controller that keeps a runner at every run of a domain.

use std::sync::Arc;

use api::Run;
use controller::{Manager, Metrics, WakeUps, metrics::Gauge, reads};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Resource,
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};

use crate::{
    Layout,
    job::{self, Jobs, Template},
    launcher::Launcher,
    reconciler::{self, Context, report::obstacle},
    subject::Subjects,
    supervisor::{Command, Supervisor},
};

/// Where runners are.
#[derive(Clone, Debug)]
pub enum Place {
    /// Processes of this machine, started so, with their files in the data directory.
    Here(Layout, Command),
    /// Jobs after this template.
    Jobs(Arc<Template>),
}

impl Place {
    /// What runner pods are made after, where runners are pods.
    pub fn template(&self) -> Option<Arc<Template>> {
        match self {
            Self::Here(..) => None,
            Self::Jobs(template) => Some(Arc::clone(template)),
        }
    }
}

/// Has the manager keep runners there, at the runs of these subjects. They go on without it.
pub fn operate<S: Subjects>(manager: &mut Manager, place: Place, subjects: S) {
    let runs = manager.watch::<Run>();
    count(&manager.settings().metrics, runs.store());
    let wake_ups = WakeUps::default();
    let (launcher, jobs) = match place {
        Place::Here(layout, command) => {
            let supervisor = Supervisor::new(layout, command, wake_ups.clone());
            (Launcher::Process(supervisor), None)
        }
        Place::Jobs(template) => {
            let jobs = manager.watch_labelled::<Job>(job::SELECTOR);
            let gone = wake_ups.clone();
            jobs.on_gone(move |meta| {
                if let Some(run) = job::run_of(meta) {
                    gone.wake(&(run.namespace.unwrap_or_default(), run.name));
                }
            });
            let launcher = Jobs::new(manager.client().clone(), template, jobs.store());
            (Launcher::Job(launcher), Some(jobs))
        }
    };
    let context = Context::new(manager.client().clone(), launcher, subjects);
    let mut controller = manager
        .controller(&runs, reads::everything)
        .woken_on(&wake_ups, |(namespace, name)| {
            [ObjectRef::new(&name).within(&namespace)]
        });
    if let Some(jobs) = &jobs {
        controller = controller.woken_by(jobs, reads::everything, |job| {
            job::run_of(Resource::meta(job))
        });
    }
    controller.reconcile(reconciler::reconcile, Arc::new(context));
}

/// Counts the runs of a store from now on.
pub fn count(metrics: &Metrics, runs: Store<DeserializeGuard<Run>>) {
    metrics.amiss(
        Gauge {
            name: "windlass_runs_without_runner",
            help: "Runs whose runner does not come, with what is in its way.",
            label: "run",
        },
        runs.clone(),
        |run| {
            let missing = obstacle(run).map(|(reason, _)| {
                let subject = &run.spec.subject.name;
                vec![("subject", subject.clone()), ("reason", reason.to_owned())]
            });
            missing.into_iter().collect()
        },
    );
    metrics.gauge(
        Gauge {
            name: "windlass_runs",
            help: "Runs by how they stand.",
            label: "phase",
        },
        runs,
        |run| Some(run.status.as_ref()?.phase),
    );
}
