//! Executes one Run, as a process of its own: `windlass runner --run NAMESPACE/NAME --data-dir DIR`.
//!
//! The journal on this machine is the authority; the Run's status is its copy, written when the API answers. The work goes
//! on while the API is away. Three things keep two runners from one subject: the journal's lock (one runner a run, on this
//! machine), the subject's Lease (one run a subject, on all machines), and its generation (none that was planned earlier). A
//! runner that cannot prove that it holds the Lease ends, and what it started with it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use api::{
    Run,
    run::{RunnerIdentity, Subject},
};
use controller::{kubeconfig, lease::Hold};
use kube::{Api, Client, ResourceExt};
use workflow::{
    CheckedPlan, FileJournal, JournalStore, Outcome, State, SystemClock, journal::JournalError,
    runner::STOP_GRACE,
};

use crate::{Engine, Layout, Work, process::Identity, supervisor::IDENTITY};

pub(crate) mod beside;
mod child;
mod controls;
pub mod disk;
mod error;
pub(crate) mod exit;
mod former;
mod hold;
mod mirror;
pub(crate) mod pod;

pub use error::Error;
pub use exit::Exit;
pub use mirror::{FIELD_MANAGER, left_out};
pub use pod::{
    NAMESPACE_VARIABLE, POD_VARIABLE, SANDBOXES_VARIABLE, UID_VARIABLE, heading, is_pod, sandboxes,
    step_of_heading,
};

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
}

/// Takes a run up, and has it executed by the engine that `engine` chooses for it.
///
/// # Errors
///
/// The run cannot be found, its plan cannot be executed, or its journal or its Lease cannot be kept.
pub async fn main<F>(options: Options, engine: F) -> Result<Exit, Error>
where
    F: AsyncFnOnce(TakenUp) -> Result<Exit, Error>,
{
    // Fails when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = client(&options).await?;
    take_up(client, options, engine).await
}

/// As [`main`], with a client that is there already.
///
/// # Errors
///
/// As of [`main`].
pub async fn take_up<F>(client: Client, options: Options, engine: F) -> Result<Exit, Error>
where
    F: AsyncFnOnce(TakenUp) -> Result<Exit, Error>,
{
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
    let beside = beside::Beside::of(options.kubeconfig.as_ref(), &layout);
    let run = fetch(&client, &options, &directory).await?;
    let journal = former::set_aside(journal, &directory, &run)?;
    former::keep(&directory, &run);
    let plan = CheckedPlan::new(run.spec.plan.clone()).map_err(Error::Plan)?;
    let work = Work {
        client,
        layout,
        directory,
        run,
        plan,
        identity,
        beside,
    };
    let taken_up = TakenUp {
        work,
        options,
        journal,
    };
    engine(taken_up).await
}

/// A run that nobody else on this machine executes.
pub struct TakenUp {
    work: Work,
    options: Options,
    journal: FileJournal,
}

impl TakenUp {
    /// What the run works on: its kind has an engine.
    pub const fn subject(&self) -> &Subject {
        &self.work.run.spec.subject
    }

    /// The directory of the run.
    pub fn directory(&self) -> &std::path::Path {
        &self.work.directory
    }

    /// Whether this process is the runner of a pod, whose volume earlier ones used.
    pub fn is_in_pod(&self) -> bool {
        is_pod(&self.work.identity)
    }

    /// That there is no engine for it.
    pub fn without_engine(&self) -> Error {
        let subject = self.subject();
        Error::NoEngine {
            kind: subject.kind.clone(),
            group: subject.api_group.clone(),
        }
    }

    /// Executes the run to its end, a failure, or a person's word.
    ///
    /// # Errors
    ///
    /// The engine cannot prepare it, or its journal or its Lease cannot be kept.
    pub async fn execute<E: Engine>(self, engine: E) -> Result<Exit, Error> {
        let Self {
            mut work,
            options,
            mut journal,
        } = self;
        let begun = !journal.load().map_err(Error::Journal)?.is_empty();
        let leave = engine.leave(&work).map_err(Error::Engine)?;
        let hold = match hold::take(&work, leave, begun).await {
            Err(controller::lease::Error::Fenced { .. }) => return Ok(Exit::Fenced),
            taken => taken.map_err(Error::Lease)?,
        };
        // Whoever held the Lease until now may have got further than was known before.
        let run = fetch(&work.client, &options, &work.directory).await?;
        if run.uid() != work.run.uid() {
            return Err(Error::NoRun(options.run.clone()));
        }
        former::keep(&work.directory, &run);
        work.run = run;
        reconcile_history(&mut journal, &work.run)?;
        Box::pin(held(Arc::new(work), Arc::new(engine), journal, hold)).await
    }
}

/// Executes a run whose Lease is held.
async fn held<E: Engine>(
    work: Arc<Work>,
    engine: Arc<E>,
    mut journal: FileJournal,
    mut hold: Hold,
) -> Result<Exit, Error> {
    let proof = hold.proof();
    let words = engine.words();
    let (mirror, observer) =
        mirror::Mirror::start(Arc::clone(&work), words, &mut journal, proof.clone())?;
    let steering = disk::follow(&work, controls::follow(&work, Arc::clone(&engine)));
    let executor = engine.prepare(&work, proof.clone());
    let executor = child::Steps::<E> {
        executor: executor.map_err(Error::Engine)?,
        work: Arc::clone(&work),
        steering: steering.clone(),
        proof,
    };
    let ended = controller::Shutdown::default();
    let echo = is_pod(&work.identity).then(|| {
        tokio::spawn(pod::echo(
            work.directory.join("logs"),
            words.own_logs,
            ended.clone(),
        ))
    });
    let mut runner = workflow::runner::Runner {
        journal,
        executor,
        clock: SystemClock,
        observer,
        stop_grace: STOP_GRACE,
    };
    let outcome = tokio::select! {
        outcome = workflow::runner::run(&work.plan, &mut runner, steering) => outcome.map_err(Error::Run)?,
        lost = hold.lost() => {
            drop(runner);
            engine.end_now(&work).await;
            return Err(Error::Lease(lost));
        }
        () = pod::told_to_end(&work.identity) => {
            // What the engine started is stopped with the runner it belonged to; the journal says which step is to be repeated.
            drop(runner);
            engine.end_now(&work).await;
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
    engine.clean(executor.executor);
    let records = journal.load().map_err(Error::Journal)?;
    let state = State::replay(&work.plan, &records).map_err(Error::Illegal)?;
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
