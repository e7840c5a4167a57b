//! Steps that bring a backup back beside a cloud, and compare.
//!
//! A drill has databases of its own on the cloud's server, known by their comment, a user who may use these and nothing else, and a
//! Keystone of its own with the keys of the backup. All of it goes at its end, also where it failed; what a runner that was killed, or
//! a step whose time was over, has left goes with the next drill. A drill is noted when it begins: one that does not come to its end
//! leaves no word of an earlier one that passed.

use std::{collections::BTreeMap, time::Duration};

use api::{
    openstack::{BackupDrill, BackupDrillResult},
    run::{Failure, FailureClass, Step},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use runs::calls::{call, config, failure, tell};
use workflow::StepContext;

use crate::{
    action::Brought,
    definition::API,
    engine::{
        Done, Ended, Worker,
        backups::{Backups, Opened, Service},
        database::said,
        objects::{connection, password, place},
    },
    names,
    sql::{self, Session},
};

/// How long the Keystone of a drill may take to serve: less than the step, so that it is told.
const SERVES: Duration = Duration::from_mins(15);

impl Backups<'_> {
    /// Loads the databases beside those of the cloud, and compares them.
    pub(super) async fn drill_load(
        &self,
        of: &Brought,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let begun = "it was begun, and has not come to its end";
        self.notes(of, BackupDrillResult::Unfinished, begun).await?;
        let loaded = async {
            let opened = self.opened(of, step, context).await?;
            self.load_beside(&opened, step, context).await.map(Some)
        };
        let loaded = loaded.await;
        self.drilled(of, loaded).await
    }

    async fn load_beside(
        &self,
        opened: &Opened,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<String, Ended> {
        let server = |error: sql::Error| said(&error);
        let services = self.services()?;
        let Some(first) = services.first() else {
            return Ok("there are no services".to_owned());
        };
        self.clear().await?;
        let (way, mut session) = self.worker.reading(&first.inputs.database).await?;
        let comment = self.comment().await?;
        let mut to = BTreeMap::new();
        for database in opened.tables.keys() {
            let there = self.beside(database).await?;
            self.worker.held()?;
            let made = session.execute(&[sql::scratch(&there, &comment)]).await;
            made.map_err(server)?;
            to.insert(database.clone(), there);
        }
        let user = self.user().await?;
        let place = (way.host.as_str(), way.port);
        let loaded = self.loaded(opened, (&to, &user), place, &mut session, (step, context));
        let told = loaded.await?;
        session.close().await;
        Ok(format!(
            "{told} came back as backup {} has them",
            opened.manifest.name
        ))
    }

    /// Starts a Keystone on its database with its keys, and has it know its administrator of then.
    pub(super) async fn drill_login(
        &self,
        of: &Brought,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let known = self.known(of, step, context).await;
        self.drilled(of, known).await
    }

    async fn known(&self, of: &Brought, step: &Step, context: &mut StepContext) -> Done {
        let Some(keystone) = self.keystone()? else {
            return Ok(Some("the cloud has no Keystone of its own".to_owned()));
        };
        let opened = self.opened(of, step, context).await?;
        // A person may have retried a run whose drill was cleared when it failed.
        if !self.is_loaded(&keystone).await? {
            self.load_beside(&opened, step, context).await?;
        }
        let beside = self.drill_keystone(&keystone);
        self.make_drill_secrets(&keystone, &beside, &opened).await?;
        let Service {
            worker,
            inputs,
            definition,
        } = &beside;
        worker.deploy(inputs, definition, API).await?;
        let serves = worker.await_pods(API, step, context);
        let serves = tokio::time::timeout(SERVES, serves).await;
        serves.map_err(|_| silent())??;
        tell(step, context, "asking it for a token").await?;
        let token = worker.issue_token(definition).await?;
        Ok(token.map(|token| {
            format!(
                "{token} by a Keystone on the databases of backup {}",
                of.name
            )
        }))
    }

    /// The Keystone of drills: that of the cloud, under another name, and with a label of its own on everything that is made for it.
    fn drill_keystone(&self, keystone: &Service) -> Service {
        let name = format!("{}-drill", self.worker.name());
        let mut inputs = keystone.inputs.clone();
        inputs.replicas = 1;
        let worker = self.as_of(&name, inputs.clone(), keystone.definition.clone());
        Service {
            worker: Worker {
                drill_of: Some(self.worker.name().to_owned()),
                ..worker
            },
            inputs,
            definition: keystone.definition.clone(),
        }
    }

    /// The Secrets of its pod: those of the backup, and the way to its database.
    async fn make_drill_secrets(
        &self,
        keystone: &Service,
        beside: &Service,
        opened: &Opened,
    ) -> Result<(), Failure> {
        let worker = &beside.worker;
        self.remove_drill_secrets(beside).await?;
        let server = &keystone.inputs.database;
        let user = self.user().await?;
        let password = password();
        let (_way, mut session) = self.worker.session(server).await?;
        let databases = session.commented(&self.comment().await?).await;
        let databases = databases.map_err(|error| said(&error))?;
        let statements = sql::tenant(&user, &sql::digest(&password), &databases);
        self.worker.held()?;
        session
            .execute(&statements)
            .await
            .map_err(|error| said(&error))?;
        session.close().await;
        let database = self.beside(&keystone.definition.database).await?;
        let connection = connection(&user, &password, &place(server, &database));
        let values = BTreeMap::from([
            ("username", user),
            ("password", password),
            ("connection", connection),
        ]);
        let name = names::secret(worker.name(), "database");
        let made = worker.make_told_secret(&name, values, BTreeMap::new());
        is_new(made.await?, &name)?;
        let keys = opened.keys.get(&keystone.inputs.service);
        for (word, kept) in keys.into_iter().flatten() {
            let values = kept.data.iter();
            let values = values
                .map(|(key, value)| (key.as_str(), String::from_utf8_lossy(&value.0).into_owned()));
            let name = names::secret(worker.name(), word);
            let made = worker.make_told_secret(&name, values.collect(), kept.annotations.clone());
            is_new(made.await?, &name)?;
        }
        Ok(())
    }

    async fn remove_drill_secrets(&self, beside: &Service) -> Result<(), Failure> {
        let words = beside.definition.backup.secrets.iter().map(String::as_str);
        for word in words.chain(["database"]) {
            let name = names::secret(beside.worker.name(), word);
            beside.worker.remove_secret(&name).await?;
        }
        Ok(())
    }

    async fn is_loaded(&self, keystone: &Service) -> Result<bool, Failure> {
        let (_way, mut session) = self.worker.session(&keystone.inputs.database).await?;
        let there = session.commented(&self.comment().await?).await;
        let there = there.map_err(|error| said(&error))?;
        session.close().await;
        Ok(there.contains(&self.beside(&keystone.definition.database).await?))
    }

    /// Removes what drills have made, and notes that this one passed.
    pub(super) async fn drill_clear(&self, of: &Brought) -> Done {
        self.clear().await?;
        let message = match self.keystone()? {
            Some(_) => {
                "all tables came back as they were saved, and a Keystone on them knew its administrator"
            }
            None => "all tables came back as they were saved",
        };
        self.notes(of, BackupDrillResult::Passed, message).await?;
        Ok(Some(format!("backup {}: {message}", of.name)))
    }

    /// A drill that failed is over: what it made goes, and it is told.
    async fn drilled(&self, of: &Brought, result: Done) -> Done {
        if let Err(Ended::Failed(failure)) = &result {
            // The failure itself is what somebody must hear of; what is left goes with the next drill.
            let _ = self.clear().await;
            let message = format!("{}: {}", failure.code, failure.message);
            self.notes(of, BackupDrillResult::Failed, &message).await?;
        }
        result
    }

    /// Notes how a drill stands.
    async fn notes(
        &self,
        of: &Brought,
        result: BackupDrillResult,
        message: &str,
    ) -> Result<(), Failure> {
        self.note_drill(BackupDrill {
            name: of.name.clone(),
            at: Time(Timestamp::now()),
            result,
            message: api::text::lines(message, 2048),
        })
        .await
    }

    async fn clear(&self) -> Result<(), Failure> {
        let without_keystone = self.clear_keystone().await;
        let services = self.services()?;
        let Some(first) = services.first() else {
            return Ok(());
        };
        let (_way, mut session) = self.worker.session(&first.inputs.database).await?;
        let cleared = self.clear_databases(&mut session).await;
        session.close().await;
        cleared.and(without_keystone)
    }

    /// Under its name somebody may have a service: then nothing of that is touched.
    async fn clear_keystone(&self) -> Result<(), Failure> {
        let Some(keystone) = self.keystone()? else {
            return Ok(());
        };
        let beside = self.drill_keystone(&keystone);
        let worker = &beside.worker;
        let name = worker.name();
        let found = worker.services().get_metadata_opt(name).await;
        let found = found.map_err(|error| call(format!("read OpenStackService {name}"), &error))?;
        if found.is_some() {
            return Err(taken(&format!("OpenStackService {name}")));
        }
        worker.remove_release(&names::api(name)).await?;
        self.remove_drill_secrets(&beside).await
    }

    async fn clear_databases(&self, session: &mut Session) -> Result<(), Failure> {
        let server = |error: sql::Error| said(&error);
        let there = session
            .commented(&self.comment().await?)
            .await
            .map_err(server)?;
        let mut statements = vec![sql::remove_user(&self.user().await?)];
        statements.extend(there.iter().map(|database| sql::remove_database(database)));
        self.worker.held()?;
        session.execute(&statements).await.map_err(server)
    }

    /// By which the databases of drills are known.
    async fn comment(&self) -> Result<String, Failure> {
        Ok(format!("{}, drill", self.worker.owner().await?))
    }

    /// The database of a drill that stands for one of the cloud's.
    async fn beside(&self, database: &str) -> Result<String, Failure> {
        Ok(format!("windlass_drill_{}_{database}", self.mark().await?))
    }

    /// The user of the databases of a drill.
    async fn user(&self) -> Result<String, Failure> {
        Ok(format!("windlass_drill_{}", self.mark().await?))
    }
}

/// A Secret that is there holds somebody else's keys.
fn is_new(made: bool, secret: &str) -> Result<(), Failure> {
    if made {
        return Ok(());
    }
    Err(taken(&format!("Secret {secret}")))
}

fn taken(what: &str) -> Failure {
    config(
        "Taken",
        format!("{what} is there, and a drill makes one of that name"),
        "give it another name, or remove it; then ask for another drill",
    )
}

fn silent() -> Failure {
    failure(
        FailureClass::Permanent,
        "DrillKeystone",
        format!(
            "a Keystone on the databases of the backup did not serve within {} min",
            SERVES.as_secs() / 60
        ),
        "see why the pods of the cloud's own Keystone would not start either, then ask for another drill",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_is_there_is_not_taken_for_the_drill_s() {
        assert!(is_new(true, "one-drill-admin").is_ok());
        let refused = is_new(false, "one-drill-admin").unwrap_err();
        assert_eq!(refused.code, "Taken");
    }
}
