//! The engine of the runs of clouds and services.
//!
//! A step keeps nothing for the next one: each works from the plan, and from what it finds. Nothing secret is in a plan: Secrets are read
//! when a step needs them.

use std::{path::PathBuf, sync::Arc};

use api::{
    openstack::{IdentitySeed, OpenStack, OpenStackService},
    run::{Failure, Results, RunSpec, Step},
};
use controller::lease::Proof;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use runs::{
    Words, Work,
    calls::{Act, Ended, boundary, config, done, each, held, unknown_action},
    engine::{EngineError, Leave},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use workflow::{Executor, StepContext, StepOutcome};

use crate::{
    action::Action,
    audit, cloud,
    definition::{self, API, Definition},
    engine::{backups::Backups, site::Site},
    made::Subject,
    seed, service,
};

mod account;
mod accounts;
#[cfg(test)]
mod alone;
mod backups;
mod database;
mod drills;
mod edits;
mod keys;
mod objects;
mod passwords;
mod pods;
mod releases;
mod restores;
mod seeds;
pub(crate) mod services;
pub(crate) mod site;
mod stores;
mod user;

pub(crate) use database::said as database_said;
pub(crate) use seeds::{
    administrator as seed_administrator, failed as seed_failed, password as seed_password,
};

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
            Of::Cloud(Box::new(read(work)?))
        } else if subject.is_a::<OpenStackService>() {
            let inputs: service::Inputs = read(work)?;
            let definition = definition::find(&inputs.service)
                .cloned()
                .ok_or_else(|| format!("no service is called {}", inputs.service))?;
            Of::Service(Box::new((inputs, definition)))
        } else if subject.is_a::<IdentitySeed>() {
            Of::Seed(Box::new(read(work)?))
        } else {
            return Err(format!("{} is no object of OpenStack", subject.kind).into());
        };
        Ok(Worker {
            engine: self.clone(),
            work: Arc::clone(work),
            proof,
            name: work.subject().to_owned(),
            drill_of: None,
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
    /// The object that the steps are of: the run's subject, or a service of it.
    name: String,
    /// The cloud, where the steps are of a drill of it.
    drill_of: Option<String>,
    of: Of,
}

/// What the run is of.
enum Of {
    Cloud(Box<cloud::Inputs>),
    Service(Box<(service::Inputs, Definition)>),
    Seed(Box<seed::Inputs>),
}

impl Executor for Worker {
    async fn execute(&self, steps: Vec<Step>, context: StepContext) {
        Box::pin(each(self, &steps, context)).await;
    }
}

impl Act for Worker {
    async fn act(&self, step: &Step, context: &mut StepContext) -> Result<StepOutcome, Ended> {
        let action = Action::of(step).ok_or_else(|| unknown_action(step, "OpenStack"))?;
        let detail = Box::pin(self.do_action(action, step, context)).await?;
        Ok(done(Results::default(), detail))
    }
}

/// What a step tells of what it did.
type Done = Result<Option<String>, Ended>;

impl Worker {
    async fn do_action(&self, action: Action, step: &Step, context: &mut StepContext) -> Done {
        boundary(step, context).await?;
        self.held()?;
        match (&self.of, action.is_of_cloud()) {
            (Of::Service(of), false) => {
                let (inputs, definition) = of.as_ref();
                self.act_on_service(inputs, definition, action, step, context)
                    .await
            }
            (Of::Cloud(inputs), true) => {
                Box::pin(self.act_on_cloud(inputs, action, step, context)).await
            }
            (Of::Seed(inputs), _) => self.act_on_seed(inputs, action, step, context).await,
            (Of::Service(_), true) | (Of::Cloud(_), false) => Err(misplaced(step).into()),
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
            Action::ApplyConfig => {
                self.end_unwanted(inputs, definition, step, context).await?;
                self.apply_config(inputs).await
            }
            Action::CheckConfig => self.check_config(inputs, definition, step, context).await,
            Action::MakeSecrets => self.make_secrets(inputs, definition).await,
            Action::CreateDatabase => self.create_database(inputs, definition).await,
            Action::Job(job) => self.run_job(inputs, definition, &job, step, context).await,
            Action::Hook(hook) => {
                self.run_hook(inputs, definition, &hook, step, context)
                    .await
            }
            Action::CheckComponent(of) => {
                let inputs = inputs.of_component(&of.component);
                self.check_config(&inputs, definition, step, context).await
            }
            Action::Deploy => self.deploy(inputs, definition, API).await,
            Action::DeployComponent(of) => self.deploy(inputs, definition, &of.component).await,
            Action::AwaitApi => self.await_pods(API, step, context).await,
            Action::AwaitComponent(of) => self.await_pods(&of.component, step, context).await,
            Action::IssueToken => self.issue_token(definition).await,
            Action::SeedIdentity => self.seed_identity(inputs, step).await,
            Action::Ask(ask) => self.ask(inputs, definition, &ask, step).await,
            Action::ForgetIdentity => self.forget_identity(inputs).await,
            Action::RotateIdentity => {
                self.rotate_identity(inputs, definition, step, context)
                    .await
            }
            Action::RotateAdministrator => {
                self.rotate_administrator(definition, step, context).await
            }
            Action::RotateAccount => self.rotate_account(inputs, definition, step, context).await,
            Action::RotateKeys(rotation) => {
                let of = (inputs, definition);
                self.rotate_keys(of, &rotation, step, context).await
            }
            Action::PruneConfig => self.prune(inputs).await,
            Action::RemoveReleases => self.remove_releases(step, context).await,
            Action::DropDatabase => self.drop_database(inputs, definition).await,
            Action::RemoveSecrets => self.remove_secrets(definition).await,
            _ => Err(misplaced(step).into()),
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
            Action::RotateServerAdministrator => {
                self.rotate_server_administrator(step, context).await
            }
            Action::RemoveServer => self.remove_server(inputs).await,
            Action::DeployMemcached => self.deploy_memcached(inputs).await,
            Action::AwaitMemcached => self.await_memcached(step, context).await,
            Action::RemoveMemcached => self.remove_memcached().await,
            Action::MakeMessagingSecret => self.make_messaging_secret().await,
            Action::DeployMessaging => self.deploy_messaging(inputs).await,
            Action::AwaitMessaging => self.await_messaging(step, context).await,
            Action::RemoveMessaging => self.remove_messaging(inputs).await,
            Action::Declare(named) => self.declare(inputs, &named.service).await,
            Action::AwaitService(named) => self.await_service(&named.service, step, context).await,
            Action::AwaitUpdated(named) => self.await_updated(&named.service, step, context).await,
            Action::RemoveServices => self.remove_services(inputs, step, context).await,
            _ => self.act_on_backups(inputs, action, step, context).await,
        }
    }

    async fn act_on_backups(
        &self,
        inputs: &cloud::Inputs,
        action: Action,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let backup = inputs.backup.as_ref().ok_or_else(|| misplaced(step))?;
        let errand = Backups {
            worker: self,
            inputs,
            backup,
        };
        match action {
            Action::CheckStore => errand.check_store().await,
            Action::SaveBackup => errand.save(step, context).await,
            Action::KeepBackups => errand.keep().await,
            Action::CheckBackup(of) => errand.check(&of, step, context).await,
            Action::StopServices => errand.stop(step, context).await,
            Action::LoadBackup(of) => errand.restore(&of, step, context).await,
            Action::StartServices => errand.start(step, context).await,
            Action::SeedServices(of) => errand.seed(&of).await,
            Action::LogIn => errand.log_in().await,
            Action::DrillLoad(of) => errand.drill_load(&of, step, context).await,
            Action::DrillLogin(of) => errand.drill_login(&of, step, context).await,
            Action::DrillClear(of) => errand.drill_clear(&of).await,
            _ => Err(misplaced(step).into()),
        }
    }

    /// Nothing is written without the Lease.
    fn held(&self) -> Result<(), Failure> {
        held(&self.proof)
    }

    /// Nor is anything written that is not noted.
    fn about(&self, what: &str) -> Result<(), Failure> {
        self.held()?;
        self.note(what)
    }

    fn note(&self, what: &str) -> Result<(), Failure> {
        audit::note(&self.work.directory, what).map_err(|error| stores::disk(&error))
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// For what steps make what they make.
    fn subject(&self) -> Subject {
        Subject {
            name: self.name.clone(),
            drill_of: self.drill_of.clone(),
            owner: Some(self.owner_reference()),
        }
    }

    fn namespace(&self) -> String {
        self.work.namespace()
    }

    fn site(&self) -> Site {
        Site {
            client: self.work.client.clone(),
            namespace: self.namespace(),
        }
    }

    fn secrets(&self) -> Api<Secret> {
        self.site().secrets()
    }
}

fn missing(secret: &str, what: &str) -> Failure {
    config(
        "SecretMissing",
        format!("Secret {secret} {what}"),
        "make it as the documentation says, and retry the run",
    )
}

fn misplaced(step: &Step) -> Failure {
    config(
        "UnknownAction",
        format!("step {} is none of this kind of object", step.id),
        "let the operator plan anew",
    )
}
