//! Steps that bring a cloud back to a backup.
//!
//! Each can be repeated: what was loaded in part is emptied and loaded again. Before anything is emptied it is noted on the run: from then
//! on, until all of it was loaded, services stay stopped and nothing else is begun, for what they would meet is neither what was nor what
//! is to be. A run that fails earlier or later holds nothing up: each service is started by a run of its own.

use std::{
    collections::BTreeMap,
    io::{BufReader, Seek},
};

use api::{
    Run,
    run::{Failure, FailureClass, Step},
};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use runs::{
    calls::{Seen, boundary, call, config, failure, tell, until},
    object,
};
use workflow::StepContext;

use crate::{
    action::Brought,
    backup::archive::{Count, Kept, Keys, Part, Reader, Table},
    engine::{
        Done, Ended,
        account::ROTATED_BY,
        backups::{Backups, Opened, Service, counted, has_tables_alone},
        database::said,
        objects::password,
        passwords::{NOTED, NOTED_BY},
        stores::{disk, of_store},
    },
    names,
    rotation::PASSWORD_SINCE,
    sql::{self, Found, Login, Session},
};

impl Backups<'_> {
    /// Stops the pods of all services, those that others need last.
    pub(super) async fn stop(&self, step: &Step, context: &mut StepContext) -> Done {
        let services = self.services()?;
        self.at_rest(&services, step, context).await?;
        for service in services.iter().rev() {
            let Service {
                worker,
                inputs,
                definition,
            } = service;
            let none = inputs.stopped();
            for component in inputs.started().into_iter().rev() {
                worker.deploy(&none, definition, component).await?;
                worker.await_end(component, step, context).await?;
            }
        }
        Ok(None)
    }

    /// Waits until no run is at work on a service: it would start what is stopped here.
    async fn at_rest(
        &self,
        services: &[Service],
        step: &Step,
        context: &mut StepContext,
    ) -> Result<(), Ended> {
        let api = Api::<Run>::namespaced(self.worker.work.client.clone(), &self.worker.namespace());
        let names: Vec<_> = services
            .iter()
            .map(|of| of.worker.name().to_owned())
            .collect();
        until(step, context, || async {
            let runs = api.list(&ListParams::default()).await;
            let runs = runs.map_err(|error| call("list the runs", &error))?;
            let mut runs = runs.items.iter();
            let at_work = runs.find(|run| {
                let subject = &run.spec.subject;
                subject.is_a::<api::openstack::OpenStackService>()
                    && names.contains(&subject.name)
                    && runs::is_active(runs::phase(run))
            });
            Ok(match at_work {
                Some(run) => Seen::Missing(format!("run {} is at work", run.name_any())),
                None => Seen::There(()),
            })
        })
        .await
    }

    /// Starts the pods of all services, those that others need first.
    pub(super) async fn start(&self, step: &Step, context: &mut StepContext) -> Done {
        // It tells of what was before.
        if self.inputs.memcached.is_some() {
            self.worker.empty_memcached(step, context).await?;
        }
        for service in self.services()? {
            let Service {
                worker,
                inputs,
                definition,
            } = &service;
            let of = (inputs, definition);
            worker.deploy_all(of, step, context).await?;
        }
        Ok(None)
    }

    /// Makes the services known to Keystone as this cloud's. What a backup of another cluster tells of them says that they are that one's.
    pub(super) async fn seed(&self, of: &Brought) -> Done {
        let mut told = Vec::new();
        for Service { worker, inputs, .. } in self.services()? {
            let Some(identity) = &inputs.identity else {
                continue;
            };
            let former = of.from.as_deref().map(|cluster| worker.owner_in(cluster));
            let seeded = worker.seed(&inputs, identity, former.as_deref()).await?;
            told.extend(seeded.map(|seeded| format!("{}: {seeded}", inputs.service)));
        }
        Ok((!told.is_empty()).then(|| told.join("; ")))
    }

    /// Has the cloud's own Keystone issue a token.
    pub(super) async fn log_in(&self) -> Done {
        match self.keystone()? {
            Some(keystone) => keystone.worker.issue_token(&keystone.definition).await,
            None => Ok(Some("the cloud has no Keystone of its own".to_owned())),
        }
    }

    /// The service that knows people, if it is one of the cloud's.
    pub(super) fn keystone(&self) -> Result<Option<Service>, Failure> {
        let mut services = self.services()?.into_iter();
        Ok(services.find(|service| service.definition.identity.is_none()))
    }

    /// Brings the databases back, compares them, and brings the Secrets back: of one opening, so that what was loaded is not brought again.
    pub(super) async fn restore(
        &self,
        of: &Brought,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let opened = self.opened(of, step, context).await?;
        let services = self.services()?;
        let server = |error: sql::Error| said(&error);
        let Some(first) = services.first() else {
            return Ok(None);
        };
        let (way, mut session) = self.worker.reading(&first.inputs.database).await?;
        let to = replaceable(&services, &mut session).await?;
        // They may have been started again since, where a run that failed is retried.
        self.stop(step, context).await?;
        self.note_emptying().await?;
        for database in to.values() {
            let tables = session.tables(database).await.map_err(server)?;
            self.worker.held()?;
            let emptied = session.execute(&sql::empty(database, &tables)).await;
            emptied.map_err(server)?;
        }
        let user = format!("windlass_load_{}", self.mark().await?);
        let loaded = self
            .loaded(
                &opened,
                (&to, &user),
                (&way.host, way.port),
                &mut session,
                (step, context),
            )
            .await;
        let removed = session.execute(&[sql::remove_user(&user)]).await;
        let told = loaded?;
        removed.map_err(server)?;
        session.close().await;
        let left = restore_keys(&services, &opened.keys).await?;
        Ok(Some(format!(
            "{told} are as backup {} has them{left}",
            of.name
        )))
    }

    /// Notes on the run what the next statement makes true: without it nobody would know of databases that are half loaded.
    async fn note_emptying(&self) -> Result<(), Failure> {
        self.worker.held()?;
        let (run, now) = (&self.worker.work.run, Timestamp::now().to_string());
        let noted = object::mark(&self.worker.work.client, run, names::EMPTIED, &now).await;
        noted.map_err(|error| call(format!("note it on run {}", run.name_any()), &error))
    }

    /// What tells this cloud from others on a server, in a few letters.
    pub(super) async fn mark(&self) -> Result<String, Failure> {
        Ok(controller::digest(&[&self.worker.owner().await?], 8))
    }

    /// Loads a backup's databases into those of other names, by a user who may do nothing else, and compares what is there then.
    pub(super) async fn loaded(
        &self,
        opened: &Opened,
        (to, user): (&BTreeMap<String, String>, &str),
        (host, port): (&str, u16),
        admin: &mut Session,
        (step, context): (&Step, &mut StepContext),
    ) -> Result<String, Ended> {
        let server = |error: sql::Error| said(&error);
        let password = password();
        let databases: Vec<_> = to.values().cloned().collect();
        let statements = sql::loader(user, &sql::digest(&password), &databases);
        self.worker.held()?;
        admin.execute(&statements).await.map_err(server)?;
        let login = Login {
            host: host.to_owned(),
            port,
            username: user.to_owned(),
            password,
        };
        let mut session = Session::open_for_rows(&login).await.map_err(server)?;
        self.load(opened, to, &mut session, (step, context)).await?;
        session.close().await;
        let mut all = (0_u64, 0_u64);
        for (name, tables) in &opened.tables {
            let Some(there) = to.get(name) else {
                continue;
            };
            tell(step, context, &format!("comparing {there}")).await?;
            let found = contents(admin, there).await.map_err(server)?;
            let others = admin.others(there).await.map_err(server)?;
            compared(name, tables, (&found, &others))?;
            let counted = counted(&found);
            all = (all.0 + counted.0, all.1.saturating_add(counted.1));
        }
        Ok(format!("{} rows in {} tables", all.1, all.0))
    }

    async fn load(
        &self,
        opened: &Opened,
        to: &BTreeMap<String, String>,
        session: &mut Session,
        (step, context): (&Step, &mut StepContext),
    ) -> Result<(), Ended> {
        let server = |error: sql::Error| said(&error);
        let altered = |why: String| {
            let name = &opened.manifest.name;
            of_store(&snapshots::store::Error::Altered(format!(
                "backup {name}: {why}"
            )))
        };
        let mut file = opened.file.try_clone().map_err(|error| disk(&error))?;
        file.rewind().map_err(|error| disk(&error))?;
        let reader = Reader::begin(BufReader::with_capacity(256 * 1024, file));
        let mut reader = reader.map_err(|error| altered(controller::chain(&error)))?;
        let mut at = false;
        while let Some(part) = reader
            .part()
            .map_err(|error| altered(controller::chain(&error)))?
        {
            match part {
                Part::Database(name) => {
                    let there = to.get(&name);
                    let there = there
                        .ok_or_else(|| altered(format!("nobody expects database {name} in it")))?;
                    boundary(step, context).await?;
                    tell(step, context, &format!("loading {there}")).await?;
                    session
                        .execute(&[sql::within(there)])
                        .await
                        .map_err(server)?;
                    at = true;
                }
                Part::Statement(_) if !at => {
                    return Err(altered("a table of it is in no database".to_owned()).into());
                }
                Part::Statement(statement) => {
                    self.worker.held()?;
                    session.load(&statement).await.map_err(server)?;
                }
                Part::Table(_) => {}
            }
        }
        Ok(())
    }
}

/// The databases that are replaced, each by its own name. Refused are one that is not the service's, and one that has more than tables: it
/// would stay, and be found when the tables are gone.
pub(super) async fn replaceable(
    services: &[Service],
    session: &mut Session,
) -> Result<BTreeMap<String, String>, Failure> {
    let server = |error: sql::Error| said(&error);
    let mut to = BTreeMap::new();
    for service in services {
        let own = service.worker.owner().await?;
        for database in &service.definition.backup.databases {
            let found = session.find(database).await.map_err(server)?;
            if !matches!(&found, Found::Database(owner) if *owner == own) {
                let what = format!("database {database} is not there, or not known to be {own}'s");
                let remedy =
                    "let the cloud make it (windlass openstack status), then retry the run";
                return Err(config("NotOwn", what, remedy));
            }
            let others = session.others(database).await.map_err(server)?;
            has_tables_alone(database, &others, "remove it, then retry the run")?;
            to.insert(database.clone(), database.clone());
        }
    }
    Ok(to)
}

/// Brings the Secrets back that the databases do not work without, and tells what is left as it is: what somebody else made stays.
async fn restore_keys(services: &[Service], keys: &Keys) -> Result<String, Failure> {
    let mut left = Vec::new();
    for service in services {
        let keys = keys.get(&service.inputs.service);
        for word in &service.definition.backup.secrets {
            let Some(kept) = keys.and_then(|keys| keys.get(word)) else {
                continue;
            };
            let name = names::secret(service.worker.name(), word);
            if !restore_secret(service, &name, kept).await? {
                left.push(name);
            }
        }
    }
    Ok(match left.as_slice() {
        [] => String::new(),
        left => format!(
            "; left as they are, for Windlass did not make them: {}",
            left.join(", ")
        ),
    })
}

/// Whether it was brought back.
async fn restore_secret(service: &Service, name: &str, kept: &Kept) -> Result<bool, Failure> {
    let worker = &service.worker;
    let secrets = worker.secrets();
    let found = secrets.get_opt(name).await;
    let found = found.map_err(|error| call(format!("read Secret {name}"), &error))?;
    let mut secret = found.ok_or_else(|| super::missing(name, "is not there"))?;
    if !worker.is_own(secret.labels()) {
        return Ok(false);
    }
    secret.data = Some(kept.data.clone());
    // Those of today speak of a password that is no longer there.
    for of_today in OF_A_PASSWORD {
        secret.annotations_mut().remove(of_today);
    }
    let annotations = kept.annotations.clone();
    secret.annotations_mut().extend(annotations);
    worker.held()?;
    let stored = secrets.replace(name, &PostParams::default(), &secret).await;
    stored
        .map(|_| true)
        .map_err(|error| call(format!("change Secret {name}"), &error))
}

/// What is noted of the password in a Secret.
const OF_A_PASSWORD: [&str; 4] = [PASSWORD_SINCE, ROTATED_BY, NOTED, NOTED_BY];

/// What the tables of a database hold.
async fn contents(session: &mut Session, database: &str) -> Result<Vec<Table>, sql::Error> {
    let mut found = Vec::new();
    for table in session.tables(database).await? {
        let columns = session.columns(database, &table).await?;
        let mut count = Count::default();
        let rows = session.rows((database, &table), &columns, |row| {
            count.add(row);
            Ok(())
        });
        rows.await?;
        found.push(count.of(&table));
    }
    Ok(found)
}

/// Holds what a database has, its tables and what else is in it, against what a backup tells. Pure.
fn compared(
    database: &str,
    told: &[Table],
    (found, others): (&[Table], &[String]),
) -> Result<(), Failure> {
    let differs = |what: String| {
        failure(
            FailureClass::Permanent,
            "BackupDiffers",
            what,
            "do not rely on it: take another one (windlass openstack backup), and drill that",
        )
    };
    for table in told {
        let Table { name, rows, .. } = table;
        match found.iter().find(|there| there.name == *name) {
            None => {
                return Err(differs(format!(
                    "table {database}.{name} did not come back"
                )));
            }
            Some(there) if there.rows != *rows => {
                return Err(differs(format!(
                    "table {database}.{name} came back with {} rows, and the backup has {rows}",
                    there.rows
                )));
            }
            Some(there) if there != table => {
                let what = "came back with other values than the backup has";
                return Err(differs(format!("table {database}.{name} {what}")));
            }
            Some(_) => {}
        }
    }
    if let [first, ..] = others {
        return Err(differs(format!(
            "database {database} came back with {first}, and a backup holds tables alone"
        )));
    }
    if found.len() != told.len() {
        let (found, told) = (found.len(), told.len());
        return Err(differs(format!(
            "database {database} came back with {found} tables, and the backup has {told}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_differs_is_told() {
        let table = |name: &str, rows, sum: &str| Table {
            name: name.into(),
            rows,
            sum: sum.into(),
        };
        let told = [table("user", 2, "a"), table("role", 1, "b")];
        assert!(compared("keystone", &told, (&told, &[])).is_ok());
        let trigger = ["trigger a".to_owned()];
        let error = compared("keystone", &told, (&told, &trigger)).unwrap_err();
        assert!(error.message.contains("trigger a"), "{}", error.message);
        for (found, why) in [
            (vec![table("user", 2, "a")], "role did not come back"),
            (vec![table("user", 1, "a"), table("role", 1, "b")], "1 rows"),
            (
                vec![table("user", 2, "c"), table("role", 1, "b")],
                "other values",
            ),
            (
                vec![
                    table("user", 2, "a"),
                    table("role", 1, "b"),
                    table("x", 0, ""),
                ],
                "3 tables",
            ),
        ] {
            let error = compared("keystone", &told, (&found, &[])).unwrap_err();
            assert!(error.message.contains(why), "{}", error.message);
        }
    }
}
