//! Executes one Run, as a process of its own: `windlass runner --run NAMESPACE/NAME --data-dir DIR`.
//!
//! The journal on this machine is the authority; the Run's status is its copy, written when the API answers. The work goes
//! on while the API is away. Three things keep two runners from one cluster: the journal's lock (one runner a run, on this
//! machine), the cluster's Lease (one run a cluster, on all machines), and its generation (none that was planned earlier). A
//! runner that cannot prove that it holds the Lease ends, and what it started with it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use ansible::playbook::Leave;
use api::{Run, run::RunnerIdentity};
use controller::kubeconfig;
use kube::{Api, Client, ResourceExt};
use workflow::{
    CheckedPlan, FileJournal, JournalStore, Outcome, State, Steering, SystemClock,
    journal::JournalError, runner::STOP_GRACE,
};

use crate::{inputs::Inputs, layout::Layout, process::Identity, supervisor::IDENTITY};

mod carried;
mod controls;
mod disk;
mod executor;
mod former;
mod hold;
mod mirror;
mod plays;
mod pod;
mod prepare;
mod secrets;
mod source;
mod steps;
mod workspace;

pub use pod::{
    NAMESPACE_VARIABLE, POD_VARIABLE, SANDBOXES_VARIABLE, UID_VARIABLE, heading, step_of_heading,
};

/// The file of a run's directory with what its tasks did, one event a line.
pub const EVENTS: &str = "events.jsonl";
/// The file with the events before those, where they were many.
pub const FORMER_EVENTS: &str = "events-former.jsonl";

/// The field manager of the status of Runs.
pub const FIELD_MANAGER: &str = "windlass-runner";

/// Which run to execute, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Run's namespace.
    pub namespace: String,
    /// The Run's name.
    pub run: String,
    /// The data directory.
    pub data_dir: PathBuf,
    /// How the API is reached. Default: as kubectl would.
    pub kubeconfig: Option<PathBuf>,
    /// What a source of playbooks may be, and what it may cost.
    pub sources: ansible::source::Policy,
}

/// How a runner ended, as an exit code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// The run succeeded.
    Succeeded,
    /// A step failed for good.
    Failed,
    /// A person or a newer plan ended it.
    Ended,
    /// Another runner works on it.
    Busy,
    /// The cluster belongs to a newer run.
    Fenced,
    /// Its pod was told to end; another one goes on.
    Stopped,
}

impl Exit {
    /// The exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Succeeded => 0,
            Self::Failed => 1,
            Self::Ended => 3,
            Self::Busy => 75,
            Self::Fenced => 77,
            // As of a process that ended by SIGTERM.
            Self::Stopped => 143,
        }
    }
}

/// Why a runner could not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error("read the kubeconfig")]
    Kubeconfig(#[source] Box<kube::config::KubeconfigError>),
    /// The API's address cannot be inferred.
    #[error("find the API")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    /// No client could be made.
    #[error("make a client")]
    Client(#[source] Box<kube::Error>),
    /// There is no such Run.
    #[error("find Run {0}")]
    NoRun(String),
    /// The journal cannot be used.
    #[error("keep the journal")]
    Journal(#[source] JournalError),
    /// The plan cannot be executed.
    #[error("check the plan")]
    Plan(#[source] workflow::plan::PlanError),
    /// The plan's inputs cannot be read.
    #[error("read the plan's inputs")]
    Inputs(#[source] serde_json::Error),
    /// The run's files cannot be written.
    #[error("prepare {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The journals on this machine and in the API differ.
    #[error("reconcile the journal with the Run's history")]
    Merge(#[source] workflow::journal::MergeError),
    /// The run could not go on.
    #[error("execute the plan")]
    Run(#[source] workflow::RunError),
    /// The journal tells what cannot have happened.
    #[error("replay the journal")]
    Illegal(#[source] workflow::state::IllegalTransition),
    /// The Lease of the cluster was lost to another holder.
    #[error("hold the cluster's lease")]
    Lease(#[source] controller::lease::Error),
}

/// The Lease of a cluster.
pub fn lease_name(cluster: &str) -> String {
    format!("cluster-{cluster}")
}

/// Executes the run to its end, a failure, or a person's word.
pub async fn main(options: Options) -> Result<Exit, Error> {
    // Fails when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let layout = Layout::new(&options.data_dir);
    let directory = layout.run(&options.namespace, &options.run);
    std::fs::create_dir_all(&directory).map_err(|source| Error::File {
        path: directory.clone(),
        source,
    })?;
    let journal = match FileJournal::open(directory.join(former::JOURNAL)) {
        Err(JournalError::Held(_)) => return Ok(Exit::Busy),
        opened => opened.map_err(Error::Journal)?,
    };
    let identity = announce(&directory)?;
    if pod::is_pod(&identity)
        && let Err(error) = crate::sweep::sweep_beside(&directory, std::time::SystemTime::now())
    {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the volume was not swept"
        );
    }
    let client = client(&options).await?;
    let beside = hold::Beside::of(options.kubeconfig.as_ref(), &layout);
    let run = fetch(&client, &options, &directory).await?;
    let journal = former::set_aside(journal, &directory, &run)?;
    former::keep(&directory, &run);
    let plan = CheckedPlan::new(run.spec.plan.clone()).map_err(Error::Plan)?;
    let inputs = Inputs::from_map(&run.spec.plan.inputs).map_err(Error::Inputs)?;
    let job = Job {
        client,
        layout,
        directory,
        run,
        inputs,
        plan,
        identity,
        sources: options.sources.clone(),
        beside,
    };
    Box::pin(execute(job, &options, journal)).await
}

/// What every part of a runner knows.
pub(crate) struct Job {
    pub(crate) client: Client,
    pub(crate) layout: Layout,
    pub(crate) directory: PathBuf,
    pub(crate) run: Run,
    pub(crate) inputs: Inputs,
    pub(crate) plan: CheckedPlan,
    pub(crate) identity: RunnerIdentity,
    pub(crate) sources: ansible::source::Policy,
    /// The API, if it runs beside the runner and may end before it.
    pub(crate) beside: Option<hold::Beside>,
}

impl Job {
    pub(crate) fn namespace(&self) -> String {
        self.run.namespace().unwrap_or_default()
    }

    pub(crate) fn cluster(&self) -> &str {
        &self.run.spec.cluster_ref.name
    }

    /// The file that says until when playbooks may work.
    pub(crate) fn leave(&self) -> PathBuf {
        self.directory.join("leave")
    }

    /// What is kept of the cluster from run to run.
    pub(crate) fn cluster_directory(&self) -> PathBuf {
        self.layout.cluster(&self.namespace(), self.cluster())
    }
}

async fn execute(mut job: Job, options: &Options, mut journal: FileJournal) -> Result<Exit, Error> {
    let begun = !journal.load().map_err(Error::Journal)?.is_empty();
    let leave = Leave::open(job.leave()).map_err(|source| Error::File {
        path: job.leave(),
        source,
    })?;
    let mut hold = match hold::take(&job, leave, begun).await {
        Err(controller::lease::Error::Fenced { .. }) => return Ok(Exit::Fenced),
        taken => taken.map_err(Error::Lease)?,
    };
    // Whoever held the Lease until now may have got further than was known before.
    let run = fetch(&job.client, options, &job.directory).await?;
    if run.uid() != job.run.uid() {
        return Err(Error::NoRun(options.run.clone()));
    }
    former::keep(&job.directory, &run);
    job.run = run;
    reconcile_history(&mut journal, &job.run)?;
    let job = Arc::new(job);
    let proof = hold.proof();
    let (mirror, observer) = mirror::Mirror::start(Arc::clone(&job), &mut journal, proof.clone())?;
    let steering = disk::follow(&job, controls::follow(&job));
    let workspace = workspace::Workspace::prepare(Arc::clone(&job))?;
    let ended = controller::Shutdown::default();
    let echo = pod::is_pod(&job.identity)
        .then(|| tokio::spawn(pod::echo(job.directory.join("logs"), ended.clone())));
    let mut runner = workflow::runner::Runner {
        journal,
        executor: executor::KubesprayExecutor::new(Arc::clone(&job), workspace, proof),
        clock: SystemClock,
        observer,
        stop_grace: STOP_GRACE,
    };
    let outcome = tokio::select! {
        outcome = workflow::runner::run(&job.plan, &mut runner, steering) => outcome.map_err(Error::Run)?,
        lost = hold.lost() => {
            drop(runner);
            plays::end_now(&job).await;
            return Err(Error::Lease(lost));
        }
        () = pod::told_to_end(&job.identity) => {
            // Ansible is stopped with the runner it belonged to; the journal says which step is to be repeated.
            drop(runner);
            plays::end_now(&job).await;
            hold.release().await;
            ended.trigger();
            if let Some(echo) = echo {
                let _ = echo.await;
            }
            return Ok(Exit::Stopped);
        }
    };
    let workflow::runner::Runner {
        mut journal,
        executor,
        observer,
        ..
    } = runner;
    drop(observer);
    executor.clean();
    let records = journal.load().map_err(Error::Journal)?;
    let state = State::replay(&job.plan, &records).map_err(Error::Illegal)?;
    mirror.finish(state).await;
    hold.release().await;
    ended.trigger();
    if let Some(echo) = echo {
        // It ends by itself; that it panicked costs the last lines of a log.
        let _ = echo.await;
    }
    Ok(match outcome {
        Outcome::Succeeded => Exit::Succeeded,
        Outcome::Failed => Exit::Failed,
        Outcome::Cancelled | Outcome::Superseded | Outcome::Parked => Exit::Ended,
    })
}

fn announce(directory: &std::path::Path) -> Result<RunnerIdentity, Error> {
    if let Some(identity) = pod::identity() {
        return Ok(identity);
    }
    let path = directory.join(IDENTITY);
    let failed = |source| Error::File {
        path: path.clone(),
        source,
    };
    let own = Identity::own().ok_or_else(|| failed(std::io::Error::other("/proc is not there")))?;
    own.save(&path).map_err(failed)?;
    Ok(RunnerIdentity {
        id: own.to_string(),
        pid: Some(own.pid),
    })
}

async fn client(options: &Options) -> Result<Client, Error> {
    let mut config = match &options.kubeconfig {
        Some(path) => {
            // The operator's own, which it names to its runner.
            kubeconfig::own(path, None)
                .await
                .map_err(|source| Error::Kubeconfig(Box::new(source)))?
        }
        None => kubeconfig::environment()
            .await
            .map_err(|source| Error::Infer(Box::new(source)))?,
    };
    config.connect_timeout = Some(Duration::from_secs(5));
    Client::try_from(config).map_err(|source| Error::Client(Box::new(source)))
}

/// The Run from the API, or from the copy of an earlier runner while the API is away.
async fn fetch(
    client: &Client,
    options: &Options,
    directory: &std::path::Path,
) -> Result<Run, Error> {
    let api = Api::<Run>::namespaced(client.clone(), &options.namespace);
    let mut wait = Duration::from_millis(200);
    loop {
        match api.get_opt(&options.run).await {
            Ok(Some(run)) => return Ok(run),
            Ok(None) => return Err(Error::NoRun(options.run.clone())),
            Err(error) => {
                if let Some(run) = former::known(directory) {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the API is away, going on with the copy of the Run"
                    );
                    return Ok(run);
                }
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the API is away, trying again"
                );
            }
        }
        tokio::time::sleep(controller::backoff::jittered(wait)).await;
        wait = (wait * 2).min(Duration::from_secs(10));
    }
}

/// Takes over records that only the Run's status has, as after the loss of this machine's directory.
fn reconcile_history(journal: &mut FileJournal, run: &Run) -> Result<(), Error> {
    let local = journal.load().map_err(Error::Journal)?;
    let remote = run
        .status
        .as_ref()
        .map_or(&[][..], |status| status.history.as_slice());
    let merged = workflow::journal::merge(&local, remote).map_err(Error::Merge)?;
    let Some(news) = merged.strip_prefix(local.as_slice()) else {
        // The copy has a checkpoint in place of what this machine lacks.
        return journal.replace(&merged).map_err(Error::Journal);
    };
    for record in news {
        journal.append(record).map_err(Error::Journal)?;
    }
    Ok(())
}

/// The steering that a Run asks for.
pub(crate) fn steering(run: &Run) -> Steering {
    let superseded = run
        .annotations()
        .get(crate::control::SUPERSEDED_BY)
        .map(|_| "the spec changed, a newer plan replaces this one".to_owned());
    Steering {
        control: run.spec.control.clone().unwrap_or_default(),
        superseded,
        held: None,
        left: crate::moving::mark(&run.metadata).map(str::to_owned),
    }
}
