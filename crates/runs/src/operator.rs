//! Wiring: the controller of Runs, on the watch of them that the process has anyway.

use std::sync::Arc;

use api::Run;
use controller::{Metrics, Shutdown, metrics::Gauge, stream};
use futures::{StreamExt, future::Either};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Client, Resource,
    core::DeserializeGuard,
    runtime::{
        Controller,
        controller::Config,
        reflector::{ObjectRef, Store},
    },
};
use tokio::sync::mpsc;

use crate::{
    Layout,
    job::{self, Jobs, Template},
    launcher::Launcher,
    reconciler::{self, Context},
    subject::Subjects,
    supervisor::{Command, Key, Supervisor},
};

/// Where runners are.
pub enum Place {
    /// Processes of this machine, started so, with their files in the data directory.
    Here(Layout, Command),
    /// Jobs after this template, in this namespace; in none: in all.
    Jobs(Arc<Template>, Option<String>),
}

/// What keeps a runner at every run that needs one.
pub struct Operator<S> {
    context: Arc<Context<S>>,
    ended: mpsc::UnboundedReceiver<Key>,
    jobs: Option<stream::Shared<Job>>,
}

impl<S: Subjects> Operator<S> {
    /// Of the runs of these subjects.
    pub fn new(client: Client, place: Place, subjects: S) -> Self {
        let (launcher, ended, jobs) = match place {
            Place::Here(layout, command) => {
                let (supervisor, ended) = Supervisor::new(layout, command);
                (Launcher::Process(supervisor), ended, None)
            }
            Place::Jobs(template, namespace) => {
                let api = match namespace {
                    Some(namespace) => Api::namespaced(client.clone(), &namespace),
                    None => Api::all(client.clone()),
                };
                let jobs = stream::Shared::labelled(api, job::SELECTOR);
                let launcher = Jobs::new(client.clone(), template, jobs.store());
                // No process ends.
                let (_, ended) = mpsc::unbounded_channel();
                (Launcher::Job(launcher), ended, Some(jobs))
            }
        };
        Self {
            context: Arc::new(Context::new(client, launcher, subjects)),
            ended,
            jobs,
        }
    }

    /// What runner pods are made after, where runners are pods.
    pub fn template(&self) -> Option<Arc<Template>> {
        self.context.launcher().template()
    }

    /// The controller of `runs`, until `shutdown`, and what it watches beside them; both work while they are polled. Runners go on
    /// without them. None: `runs` is driven already.
    pub fn operate(
        self,
        runs: &stream::Shared<Run>,
        config: Config,
        metrics: &Metrics,
        shutdown: &Shutdown,
    ) -> Option<(
        impl Future<Output = ()> + Send + use<S>,
        impl Future<Output = ()> + Send + use<S>,
    )> {
        let Self {
            context,
            ended,
            jobs,
        } = self;
        count(metrics, runs.store());
        let (without_job, runs_without_job) = mpsc::unbounded_channel();
        let ended = stream::received(ended)
            .map(|(namespace, name)| ObjectRef::new(&name).within(&namespace));
        let mut controller = Controller::for_shared_stream(runs.subscribe()?, runs.store());
        if let Some(jobs) = &jobs {
            controller =
                controller.watches_shared_stream(jobs.subscribe()?, |job| job::run_of(job.meta()));
        }
        let controller = controller
            .with_config(config)
            .reconcile_on(ended)
            .reconcile_on(stream::received(runs_without_job))
            .graceful_shutdown_on(shutdown.wait())
            .run(reconciler::reconcile, reconciler::failed, context)
            .for_each(metrics.passes("Run"));
        let watch = match jobs {
            Some(jobs) => Either::Left(jobs.drive_telling(move |meta| {
                if let Some(run) = job::run_of(meta) {
                    // Nobody listens any more when the operator stops.
                    let _ = without_job.send(run);
                }
            })),
            None => Either::Right(futures::future::pending()),
        };
        Some((controller, watch))
    }
}

/// Counts the runs of a store from now on.
pub fn count(metrics: &Metrics, runs: Store<DeserializeGuard<Run>>) {
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
