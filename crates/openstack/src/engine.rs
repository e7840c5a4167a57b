//! The engine of the runs of clouds and services.
//!
//! A step keeps nothing for the next one: each works from the plan, and from what it finds. Nothing secret is in a plan: Secrets are read
//! when a step needs them.

use std::{path::PathBuf, sync::Arc, time::Duration};

use api::{
    openstack::{OpenStack, OpenStackService},
    run::{Failure, FailureClass, Results, RunSpec, Step},
};
use controller::lease::Proof;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use runs::{
    Words, Work,
    engine::{EngineError, Leave},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::sleep;
use workflow::{Executor, Signal, StepContext, StepOutcome, StepProgress};

use crate::{
    action::Action,
    cloud,
    definition::{self, Definition},
    service,
};

mod database;
mod objects;
mod pods;
mod releases;
mod services;

/// The code of a call that was not answered.
const NO_ANSWER: &str = "NoAnswer";
/// How long between two looks at what comes by itself.
const LOOK: Duration = Duration::from_secs(1);

/// Executes runs of clouds and services.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Helm, by its path or its name.
    pub helm: PathBuf,
    /// The kubeconfig that Helm uses. None: the cluster that this process is in.
    pub kubeconfig: Option<PathBuf>,
}

impl runs::Engine for Engine {
    type Executor = Worker;

    fn digest(&self, spec: &RunSpec) -> Result<String, serde_json::Error> {
        workflow::plan::digest_of(&spec.operation, &spec.plan)
    }

    /// What is started ends with its runner, or holds the lock of its release.
    fn leave(&self, _: &Work) -> Result<Leave, EngineError> {
        Ok(Arc::new(|_| {}))
    }

    fn prepare(&self, work: &Arc<Work>, proof: Proof) -> Result<Worker, EngineError> {
        let subject = &work.run.spec.subject;
        let of = if subject.is_a::<OpenStack>() {
            Of::Cloud(read(work)?)
        } else if subject.is_a::<OpenStackService>() {
            let inputs: service::Inputs = read(work)?;
            let definition = definition::find(&inputs.service)
                .ok_or_else(|| format!("no service is called {}", inputs.service))?;
            Of::Service(inputs, Box::new(definition))
        } else {
            return Err(format!("{} is no object of OpenStack", subject.kind).into());
        };
        Ok(Worker {
            engine: self.clone(),
            work: Arc::clone(work),
            proof,
            of,
        })
    }

    async fn end_now(&self, _: &Work) {}

    fn clean(&self, _: Worker) {}

    fn words(&self) -> Words {
        Words {
            targets: "services",
            excluded: "ServicesExcluded",
            own_logs: "openstack",
        }
    }
}

fn read<T: DeserializeOwned>(work: &Work) -> Result<T, serde_json::Error> {
    let inputs = work.run.spec.plan.inputs.clone();
    serde_json::from_value(Value::Object(inputs))
}

/// Executes the steps of one run.
pub struct Worker {
    engine: Engine,
    work: Arc<Work>,
    proof: Proof,
    of: Of,
}

/// What the run is of.
enum Of {
    Cloud(cloud::Inputs),
    Service(service::Inputs, Box<Definition>),
}

impl Executor for Worker {
    async fn execute(&self, steps: Vec<Step>, mut context: StepContext) {
        for step in &steps {
            let outcome = match Action::of(step) {
                Some(action) => match self.act(action, step, &mut context).await {
                    Ok(detail) => StepOutcome::Succeeded {
                        results: Results::default(),
                        unreachable: Vec::new(),
                        detail,
                    },
                    Err(Ended::Failed(failure)) => failed(failure),
                    Err(Ended::Interrupted) => StepOutcome::Interrupted { detail: None },
                    Err(Ended::Rejected) => return,
                },
                None => failed(config(
                    "UnknownAction",
                    format!("step {} has no action of OpenStack", step.id),
                    "let the operator plan anew",
                )),
            };
            if context.reporter.finished(&step.id, outcome).await.is_err() {
                return;
            }
        }
    }
}

/// What a step tells of what it did.
type Done = Result<Option<String>, Ended>;

/// How a step ends that is not done.
enum Ended {
    /// It failed.
    Failed(Failure),
    /// It was told to stop.
    Interrupted,
    /// Nobody takes what it says.
    Rejected,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn failed(failure: Failure) -> StepOutcome {
    StepOutcome::Failed {
        failure,
        results: Results::default(),
        unreachable: Vec::new(),
    }
}

fn failure(class: FailureClass, code: &str, message: impl Into<String>, remedy: &str) -> Failure {
    Failure {
        class,
        code: code.to_owned(),
        // What others said may quote anything.
        message: api::text::lines(&message.into(), 2048),
        remedy: Some(remedy.to_owned()),
        targets: Vec::new(),
    }
}

/// What a person must change.
fn config(code: &str, message: impl Into<String>, remedy: &str) -> Failure {
    failure(FailureClass::Config, code, message, remedy)
}

/// What may pass.
fn transient(code: &str, message: impl Into<String>) -> Failure {
    failure(
        FailureClass::Transient,
        code,
        message,
        "it is tried again; look at what it names if it stays so",
    )
}

/// A call of the API that did not do what it should: tried again where that may help.
fn call(what: impl Into<String>, error: &kube::Error) -> Failure {
    let refused = matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 401 | 403 | 405 | 413 | 415 | 422));
    let message = format!("failed to {}: {}", what.into(), controller::chain(error));
    if refused {
        failure(
            FailureClass::External,
            "Refused",
            message,
            "mend what the API names, and retry the run",
        )
    } else {
        transient(NO_ANSWER, message)
    }
}

impl Worker {
    async fn act(&self, action: Action, step: &Step, context: &mut StepContext) -> Done {
        boundary(step, context).await?;
        self.held()?;
        match (&self.of, action) {
            (Of::Service(inputs, definition), action) => {
                self.act_on_service(inputs, definition, action, step, context)
                    .await
            }
            (Of::Cloud(inputs), action) => self.act_on_cloud(inputs, action, step, context).await,
        }
    }

    async fn act_on_service(
        &self,
        inputs: &service::Inputs,
        definition: &Definition,
        action: Action,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        match action {
            Action::CheckDatabase => self.check_database(inputs).await,
            Action::CheckOwner => self.check_owner(inputs, definition).await,
            Action::ApplyConfig => self.apply_config(inputs).await,
            Action::MakeSecrets => self.make_secrets(inputs, definition).await,
            Action::CreateDatabase => self.create_database(inputs, definition).await,
            Action::Job(job) => self.run_job(inputs, definition, &job, step, context).await,
            Action::Deploy => self.deploy(inputs, definition).await,
            Action::AwaitApi => self.await_api(step, context).await,
            Action::IssueToken => self.issue_token(definition).await,
            Action::PruneConfig => self.prune_config(inputs).await,
            Action::RemoveReleases => self.remove_releases(step, context).await,
            Action::DropDatabase => self.drop_database(inputs, definition).await,
            Action::RemoveSecrets => self.remove_secrets(definition).await,
            Action::MakeServerSecret
            | Action::DeployServer
            | Action::AwaitServer
            | Action::RemoveServer
            | Action::Declare(_)
            | Action::AwaitService(_)
            | Action::RemoveServices => Err(misplaced(step).into()),
        }
    }

    async fn act_on_cloud(
        &self,
        inputs: &cloud::Inputs,
        action: Action,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        match action {
            Action::MakeServerSecret => self.make_server_secret().await,
            Action::DeployServer => self.deploy_server(inputs).await,
            Action::AwaitServer => self.await_server(step, context).await,
            Action::RemoveServer => self.remove_server(inputs).await,
            Action::Declare(named) => self.declare(inputs, &named.service).await,
            Action::AwaitService(named) => self.await_service(&named.service, step, context).await,
            Action::RemoveServices => self.remove_services(step, context).await,
            Action::CheckDatabase
            | Action::CheckOwner
            | Action::ApplyConfig
            | Action::MakeSecrets
            | Action::CreateDatabase
            | Action::Job(_)
            | Action::Deploy
            | Action::AwaitApi
            | Action::IssueToken
            | Action::PruneConfig
            | Action::RemoveReleases
            | Action::DropDatabase
            | Action::RemoveSecrets => Err(misplaced(step).into()),
        }
    }

    /// Nothing is written without the Lease.
    fn held(&self) -> Result<(), Failure> {
        if self.proof.holds() {
            return Ok(());
        }
        Err(transient("NotHeld", "the Lease of the object is not held"))
    }

    fn name(&self) -> &str {
        self.work.subject()
    }

    fn namespace(&self) -> String {
        self.work.namespace()
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.work.client.clone(), &self.namespace())
    }

    /// A key of a Secret.
    async fn secret_value(&self, secret: &str, key: &str) -> Result<String, Failure> {
        let found = self
            .secrets()
            .get_opt(secret)
            .await
            .map_err(|error| call(format!("read Secret {secret}"), &error))?;
        let missing = |what: &str| {
            config(
                "SecretMissing",
                format!("Secret {secret} {what}"),
                "make it as the documentation says, and retry the run",
            )
        };
        let found = found.ok_or_else(|| missing("is not there"))?;
        let value = found.data.and_then(|mut data| data.remove(key));
        let value = value.ok_or_else(|| missing(&format!("has no key {key}")))?;
        String::from_utf8(value.0).map_err(|_| missing(&format!("holds no text under {key}")))
    }
}

fn misplaced(step: &Step) -> Failure {
    config(
        "UnknownAction",
        format!("step {} is none of this kind of object", step.id),
        "let the operator plan anew",
    )
}

/// Lets people stop or pause a step between two of its calls.
async fn boundary(step: &Step, context: &mut StepContext) -> Result<(), Ended> {
    loop {
        let wanted = *context.signal.borrow_and_update();
        match wanted {
            Signal::Continue => return Ok(()),
            Signal::Stop => return Err(Ended::Interrupted),
            Signal::Pause => {
                context
                    .reporter
                    .held(&step.id)
                    .await
                    .map_err(|_| Ended::Rejected)?;
                context
                    .signal
                    .changed()
                    .await
                    .map_err(|_| Ended::Rejected)?;
            }
        }
    }
}

/// Looks again and again until what is waited for is there; the step's own timeout ends the wait. `look` says what is missing.
async fn until<F>(step: &Step, context: &mut StepContext, mut look: impl FnMut() -> F) -> Done
where
    F: Future<Output = Result<Seen, Failure>>,
{
    let mut told = String::new();
    loop {
        boundary(step, context).await?;
        let seen = match look().await {
            // An API that is away for a moment ends no wait of an hour.
            Err(failure) if failure.code == NO_ANSWER => Seen::Missing(failure.message),
            seen => seen?,
        };
        match seen {
            Seen::There(detail) => return Ok(detail),
            Seen::Missing(what) if what != told => {
                let progress = StepProgress {
                    activity: Some(api::text::lines(&what, 500)),
                    ..StepProgress::default()
                };
                context
                    .reporter
                    .progress(&step.id, progress)
                    .await
                    .map_err(|_| Ended::Rejected)?;
                told = what;
            }
            Seen::Missing(_) => {}
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            changed = context.signal.changed() => changed.map_err(|_| Ended::Rejected)?,
        }
    }
}

/// What a look showed.
enum Seen {
    /// What is waited for, with a word about it.
    There(Option<String>),
    /// What is missing, for people.
    Missing(String),
}
