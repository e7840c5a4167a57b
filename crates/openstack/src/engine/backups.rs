//! Steps that take a backup, and that keep what lies in the store.
//!
//! The runner reads the databases by the driver, in one transaction that sees all of them as they were at one moment, and writes them
//! as text into a file without a name, sealed on the way; from there it goes into the store, where it is read back before its manifest
//! is written. Nothing of it is ever in a pod, in the journal, in a log or on a command line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufReader, BufWriter, Seek, Write},
    sync::Arc,
};

use api::{
    openstack::{BackupDrill, BackupState, BackupStatus, BackupsStatus, OpenStackService},
    run::{Failure, Step},
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use runs::calls::{boundary, call, config, tell, transient};
use snapshots::{
    Name, Store,
    manifest::{LARGEST_SNAPSHOT, Told},
    retention,
    seal::{self, Spool},
    settings,
    store::{self, Seen, listing},
};
use workflow::StepContext;

use crate::{
    action::Brought,
    backup::{
        self, Manifest,
        archive::{self, Contents, Count, Kept, Keys, Origin, Table, Writer},
        manifest::{Database, Here},
    },
    cloud::{self, service_name},
    definition::{self, Definition},
    engine::{
        Done, Of, Worker,
        database::said,
        restores::replaceable,
        stores::{TooLarge, disk, of_store, unopened},
    },
    names::{self, MANAGER},
    service,
    sql::{Found, Session},
    wish::Wish,
};

/// How many backups are told of.
const TOLD: usize = 100;
/// What Windlass notes of a Secret begins so.
const NOTES: &str = "openstack.windlass.dev/";

/// A run of a cloud's that has to do with its backups.
pub(super) struct Backups<'a> {
    pub(super) worker: &'a Worker,
    pub(super) inputs: &'a cloud::Inputs,
    pub(super) backup: &'a backup::Input,
}

/// A service of the cloud.
pub(super) struct Service {
    pub(super) worker: Worker,
    pub(super) inputs: service::Inputs,
    pub(super) definition: Definition,
}

/// A backup that was brought, opened and read to its end.
pub(super) struct Opened {
    pub(super) manifest: Manifest,
    pub(super) file: File,
    pub(super) keys: Keys,
    pub(super) tables: BTreeMap<String, Vec<Table>>,
}

impl Backups<'_> {
    /// The services of the cloud, in the order in which they need each other.
    pub(super) fn services(&self) -> Result<Vec<Service>, Failure> {
        let mut services = Vec::new();
        for name in definition::names() {
            let Some(spec) = self
                .inputs
                .services
                .iter()
                .find(|spec| spec.service == name)
            else {
                continue;
            };
            let object = service_name(self.worker.name(), name);
            let mut service = OpenStackService::new(&object, spec.clone());
            service.metadata.namespace = Some(self.worker.namespace());
            let wanted = service.wanted().map_err(|problems| {
                let text = controller::problem::text(&problems);
                config("InvalidSpec", text, "correct it, then ask again")
            })?;
            let unreadable =
                |what: String| config("UnknownAction", what, "let the operator plan anew");
            let inputs: service::Inputs = serde_json::from_value(wanted.inputs.into())
                .map_err(|error| unreadable(format!("{object} cannot be read: {error}")))?;
            let definition = definition::find(name)
                .cloned()
                .ok_or_else(|| unreadable(format!("no service is called {name}")))?;
            services.push(Service {
                worker: self.as_of(&object, inputs.clone(), definition.clone()),
                inputs,
                definition,
            });
        }
        Ok(services)
    }

    /// Who does steps of another object than the run's own.
    pub(super) fn as_of(
        &self,
        object: &str,
        inputs: service::Inputs,
        definition: Definition,
    ) -> Worker {
        Worker {
            engine: self.worker.engine.clone(),
            work: Arc::clone(&self.worker.work),
            proof: self.worker.proof.clone(),
            name: object.to_owned(),
            drill_of: None,
            of: Of::Service(Box::new((inputs, definition))),
        }
    }

    /// What cannot be written is told before a database is read.
    pub(super) async fn check_store(&self) -> Done {
        let store = self.store().await?;
        self.sealing().await?;
        let objects = store.list().await.map_err(|error| of_store(&error))?;
        let count = listing(&objects).snapshots.len();
        Ok(Some(format!("{count} backups lie in {}", store.place())))
    }

    /// Saves the databases and the keys, and reads them back from the store.
    pub(super) async fn save(&self, step: &Step, context: &mut StepContext) -> Done {
        let store = self.store().await?;
        let seal = self.sealing().await?;
        let services = self.services()?;
        let keys = kept_keys(&services).await?;
        let Some(first) = services.first() else {
            return Ok(Some("there are no services".to_owned()));
        };
        let (_way, mut session) = self.worker.reading(&first.inputs.database).await?;
        let server = session.version().await.map_err(|error| said(&error))?;
        session.freeze().await.map_err(|error| said(&error))?;
        if kept_keys(&services).await? != keys {
            // What was read before may not fit what is frozen now.
            let what = "a password or a key was changed while the backup was begun";
            return Err(transient("Changed", what).into());
        }
        // The run may have been made long before, and this may be a later attempt of it.
        let origin = self.origin(&server, Timestamp::now()).await?;
        let file = self.unnamed()?;
        let spool = Spool::into(&file, &seal).map_err(|error| disk(&error))?;
        let out = BufWriter::with_capacity(256 * 1024, Output::of(spool, LARGEST_SNAPSHOT));
        let mut writer = Writer::begin(out, &origin, &keys).map_err(|error| disk(&error))?;
        let mut databases = Vec::new();
        for service in &services {
            for name in &service.definition.backup.databases {
                let saved = saved(service, name, &mut session, &mut writer, (step, context));
                databases.push(saved.await?);
            }
        }
        session.close().await;
        let spooled = writer
            .end()
            .and_then(|out| out.into_inner().map_err(io::IntoInnerError::into_error))
            .and_then(|output| output.spool.finish())
            .map_err(|error| disk(&error))?;
        tell(
            step,
            context,
            "writing the backup into the store, and reading it back",
        )
        .await?;
        let manifest = Manifest::of(origin, databases, &spooled);
        self.worker.held()?;
        let cluster = manifest.origin.cluster.clone();
        let room = self.let_go(&store, &cluster);
        let kept = store.keep_with_room(&file, manifest, room).await;
        let kept = kept.map_err(|error| of_store(&error))?;
        let (tables, rows) = kept.counts();
        Ok(Some(format!(
            "backup {}: {rows} rows in {tables} tables, {} bytes, read back from {}",
            kept.name,
            kept.size,
            store.place()
        )))
    }

    /// What a backup of that moment is of.
    async fn origin(&self, server: &str, taken_at: Timestamp) -> Result<Origin, Failure> {
        Ok(Origin {
            cloud: self.cloud(),
            cluster: self.worker.cluster().await?,
            release: self.inputs.release.clone(),
            images: self.images(),
            server: api::text::plain(server, 200),
            run: self.worker.work.run.uid(),
            taken_at,
        })
    }

    /// The images of the services, by their names.
    fn images(&self) -> BTreeMap<String, String> {
        let services = self.inputs.services.iter();
        services
            .map(|spec| (spec.service.clone(), spec.image.clone()))
            .collect()
    }

    /// The version of the cloud's database server.
    async fn server(&self) -> Result<String, Failure> {
        let services = self.services()?;
        let Some(first) = services.first() else {
            return Ok(String::new());
        };
        let (_way, mut session) = self.worker.session(&first.inputs.database).await?;
        let version = session.version().await.map_err(|error| said(&error))?;
        session.close().await;
        Ok(version)
    }

    fn cloud(&self) -> String {
        format!("{}/{}", self.worker.namespace(), self.worker.name())
    }

    /// Brings a backup, and says what is in it. Databases that it cannot replace are refused while the services still serve.
    pub(super) async fn check(&self, of: &Brought, step: &Step, context: &mut StepContext) -> Done {
        let opened = self.opened(of, step, context).await?;
        let services = self.services()?;
        if let Some(first) = services.first() {
            let (_way, mut session) = self.worker.reading(&first.inputs.database).await?;
            replaceable(&services, &mut session).await?;
            session.close().await;
        }
        let (tables, rows) = opened.manifest.counts();
        Ok(Some(format!(
            "backup {} of {} is whole: {rows} rows in {tables} tables",
            opened.manifest.name, opened.manifest.origin.taken_at
        )))
    }

    /// A backup of the store in a file of this machine, opened, and read to its end: what does not fit the cloud is refused.
    pub(super) async fn opened(
        &self,
        of: &Brought,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<Opened, super::Ended> {
        boundary(step, context).await?;
        let store = self.store().await?;
        let name: Name = of
            .name
            .parse()
            .map_err(|error: snapshots::manifest::InvalidName| {
                let remedy = "see which there are: windlass openstack backups";
                config("BackupMissing", error.to_string(), remedy)
            })?;
        let of_store = |error: store::Error| of_store(&error);
        let manifest: Manifest = store.manifest(&name).await.map_err(of_store)?;
        let services = self.inputs.services.iter();
        manifest.fits(&Here {
            cloud: self.cloud(),
            cluster: self.worker.cluster().await?,
            from: of.from.clone(),
            release: self.inputs.release.clone(),
            services: services.map(|spec| spec.service.clone()).collect(),
            images: self.images(),
            server: self.server().await?,
        })?;
        tell(step, context, "bringing the backup from the store").await?;
        let (stored, opened) = (self.unnamed()?, self.unnamed()?);
        store.bring(&manifest, &stored).await.map_err(of_store)?;
        let key = self.opening().await?;
        let read = tokio::task::spawn_blocking(move || {
            let read = seal::open(&stored, &opened, &key)?;
            Ok((opened, read))
        });
        let (mut file, (size, digest)) = match read.await {
            Ok(read) => read.map_err(|error| unopened(&name, &error))?,
            Err(_) => return Err(super::Ended::Interrupted),
        };
        let altered =
            |why: String| of_store(store::Error::Altered(format!("backup {name}: {why}")));
        if (size, &digest) != (manifest.size, &manifest.digest) {
            return Err(altered("what it decrypts to is not what its manifest says".into()).into());
        }
        file.rewind().map_err(|error| disk(&error))?;
        let again = file.try_clone().map_err(|error| disk(&error))?;
        let read = tokio::task::spawn_blocking(move || archive::contents(BufReader::new(again)));
        let contents = match read.await {
            Ok(read) => read.map_err(|error| altered(controller::chain(&error)))?,
            Err(_) => return Err(super::Ended::Interrupted),
        };
        let services = self.services()?;
        let databases = services
            .iter()
            .flat_map(|service| &service.definition.backup.databases);
        is_what_it_says(&contents, &manifest, databases).map_err(altered)?;
        Ok(Opened {
            manifest,
            file,
            keys: contents.keys,
            tables: contents.tables,
        })
    }

    /// Removes backups that are kept no longer, and notes what lies in the store.
    pub(super) async fn keep(&self) -> Done {
        let store = self.store().await?;
        let cluster = self.worker.cluster().await?;
        let removed = self.let_go(&store, &cluster).await;
        let removed = removed.map_err(|error| of_store(&error))?;
        self.worker.held()?;
        let seen = store.look().await.map_err(|error| of_store(&error))?;
        let former = self.catalogue().await?;
        let told = told(
            &store,
            &seen,
            &cluster,
            former.and_then(|former| former.drill),
        );
        let count = told.count;
        self.note(&told).await?;
        Ok(Some(format!(
            "{count} backups lie in the store; {removed} were removed"
        )))
    }

    /// Removes backups that are kept no longer, as long as the Lease is held, and says how many went.
    async fn let_go(&self, store: &Store, cluster: &str) -> Result<usize, store::Error> {
        let seen = store.look().await?;
        let mut removed = 0_usize;
        for names in going(&seen, cluster, self.backup, Timestamp::now()) {
            if self.worker.held().is_err() {
                break;
            }
            for name in names {
                store.remove(&name).await?;
            }
            removed += 1;
        }
        Ok(removed)
    }

    /// What an earlier run noted.
    async fn catalogue(&self) -> Result<Option<BackupsStatus>, Failure> {
        let name = backup::catalogue_name(self.worker.name());
        let found = self.worker.config_maps().get_opt(&name).await;
        let found = found.map_err(|error| call(format!("read ConfigMap {name}"), &error))?;
        if let Some(found) = &found
            && !self.worker.is_own(found.labels())
        {
            let what = format!("ConfigMap {name} is there, and was not made for this cloud");
            return Err(config(
                "Taken",
                what,
                "give it another name, and retry the run",
            ));
        }
        let text = found.and_then(|found| found.data?.remove(backup::CATALOGUE_KEY));
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Notes what came of a drill.
    pub(super) async fn note_drill(&self, drill: BackupDrill) -> Result<(), Failure> {
        let seen = self.catalogue().await?.unwrap_or_default();
        let seen = BackupsStatus {
            drill: Some(drill),
            ..seen
        };
        self.note(&seen).await
    }

    /// Leaves what lies in the store where the operator reads it.
    async fn note(&self, seen: &BackupsStatus) -> Result<(), Failure> {
        let worker = self.worker;
        let name = backup::catalogue_name(worker.name());
        let text = serde_json::to_string(seen).unwrap_or_default();
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(worker.labels()),
                owner_references: Some(vec![worker.owner_reference()]),
                ..ObjectMeta::default()
            },
            data: Some([(backup::CATALOGUE_KEY.to_owned(), text)].into()),
            ..ConfigMap::default()
        };
        worker.held()?;
        let parameters = PatchParams::apply(MANAGER).force();
        let applied = worker.config_maps();
        let applied = applied.patch(&name, &parameters, &Patch::Apply(&map)).await;
        applied
            .map(drop)
            .map_err(|error| call(format!("store ConfigMap {name}"), &error))
    }
}

/// Saves a database, and says how much it was.
async fn saved<W: Write>(
    service: &Service,
    database: &str,
    session: &mut Session,
    writer: &mut Writer<W>,
    (step, context): (&Step, &mut StepContext),
) -> Result<Database, super::Ended> {
    let server = |error: crate::sql::Error| said(&error);
    let found = session.find(database).await.map_err(server)?;
    let own = service.worker.owner().await?;
    if !matches!(&found, Found::Database(owner) if *owner == own) && !service.inputs.adopt {
        let what = format!("database {database} is not there, or not known to be {own}'s");
        let remedy = "let the cloud make it (windlass openstack status), then ask again";
        return Err(config("NotOwn", what, remedy).into());
    }
    let others = session.others(database).await.map_err(server)?;
    let remedy = "remove it, or save this database by other means";
    has_tables_alone(database, &others, remedy)?;
    let tables = session.tables(database).await.map_err(server)?;
    has_tables(database, &tables)?;
    tell(step, context, &format!("saving {database}")).await?;
    writer.database(database).map_err(|error| disk(&error))?;
    let mut all = Database {
        service: service.inputs.service.clone(),
        name: database.to_owned(),
        ..Database::default()
    };
    for table in &tables {
        boundary(step, context).await?;
        let make = session.maker(database, table).await.map_err(server)?;
        can_be_made_again((database, table), &make)?;
        writer.table(&make).map_err(|error| disk(&error))?;
        let columns = session.columns(database, table).await.map_err(server)?;
        let mut count = Count::default();
        let rows = session.rows((database, table), &columns, |row| {
            count.add(row);
            writer.row(table, &columns, row)
        });
        rows.await.map_err(server)?;
        let count = count.of(table);
        writer.told(&count).map_err(|error| disk(&error))?;
        all.tables += 1;
        all.rows = all.rows.saturating_add(count.rows);
    }
    if session.tables(database).await.map_err(server)? != tables {
        let what = format!("tables of {database} were made or removed meanwhile");
        return Err(transient("TablesChanged", what).into());
    }
    Ok(all)
}

/// A service has made its tables before its cloud is backed up: a database without any was emptied, and a backup of it would count as good.
/// Pure.
fn has_tables(database: &str, tables: &[String]) -> Result<(), Failure> {
    if !tables.is_empty() {
        return Ok(());
    }
    Err(config(
        "NoTables",
        format!("database {database} has no tables: somebody emptied it"),
        "bring the cloud back to an older backup (windlass openstack restore), or let its service make its tables; then ask again",
    ))
}

/// A backup holds tables alone, and what else a database has would stay where they are replaced. Pure.
pub(super) fn has_tables_alone(
    database: &str,
    others: &[String],
    remedy: &str,
) -> Result<(), Failure> {
    let [first, ..] = others else {
        return Ok(());
    };
    let what = format!("database {database} has {first}, and a backup holds tables alone");
    Err(config("NotTables", what, remedy))
}

/// What would not be read again is not saved. Pure.
fn can_be_made_again((database, table): (&str, &str), make: &str) -> Result<(), Failure> {
    if archive::makes_a_table(archive::line(make).as_bytes()) {
        return Ok(());
    }
    Err(config(
        "NotTables",
        format!(
            "table {database}.{table} is no plain one of InnoDB: the statement that makes it has another engine, a directory or a comment"
        ),
        "have it made as the service makes it (SHOW CREATE TABLE tells how it is), or save this database by other means",
    ))
}

/// The Secrets that belong into a backup.
async fn kept_keys(services: &[Service]) -> Result<Keys, Failure> {
    let mut keys = Keys::new();
    for Service {
        worker,
        inputs,
        definition,
    } in services
    {
        let of = keys.entry(inputs.service.clone()).or_default();
        for word in &definition.backup.secrets {
            let name = names::secret(worker.name(), word);
            let found = worker.secrets().get_opt(&name).await;
            let found = found.map_err(|error| call(format!("read Secret {name}"), &error))?;
            let found = found.ok_or_else(|| super::missing(&name, "is not there"))?;
            let notes = found.annotations().iter();
            let notes = notes.filter(|(name, _)| name.starts_with(NOTES));
            let kept = Kept {
                annotations: notes
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
                data: found.data.unwrap_or_default(),
            };
            of.insert(word.clone(), kept);
        }
    }
    Ok(keys)
}

/// What takes the text of a backup, as much as is read again.
struct Output {
    spool: Spool,
    most: u64,
    left: u64,
}

impl Output {
    fn of(spool: Spool, most: u64) -> Self {
        let left = most;
        Self { spool, most, left }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let left = self.left.checked_sub(length);
        self.left = left.ok_or_else(|| io::Error::other(TooLarge(self.most)))?;
        self.spool.write(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Holds what a backup holds against its manifest, and against the databases that it is to fill: no other one, and all of them. Pure.
fn is_what_it_says<'a>(
    contents: &Contents,
    manifest: &Manifest,
    databases: impl Iterator<Item = &'a String>,
) -> Result<(), String> {
    let Contents { origin, tables, .. } = contents;
    if *origin != manifest.origin {
        return Err(format!(
            "what is sealed is of {} in cluster {}, taken at {}, and its manifest tells of another one",
            origin.cloud, origin.cluster, origin.taken_at
        ));
    }
    let wanted: BTreeSet<_> = databases.collect();
    if !tables.keys().eq(wanted.iter().copied()) {
        let names = |names: Vec<&String>| {
            let names: Vec<_> = names.into_iter().map(String::as_str).collect();
            names.join(", ")
        };
        return Err(format!(
            "it holds the databases {}, and the services have {}",
            names(tables.keys().collect()),
            names(wanted.into_iter().collect())
        ));
    }
    for told in &manifest.databases {
        let there = tables.get(&told.name).map(Vec::as_slice);
        let found = counted(there.unwrap_or_default());
        if found != (told.tables, told.rows) {
            return Err(format!(
                "database {} has {} tables and {} rows in it, and its manifest says {} and {}",
                told.name, found.0, found.1, told.tables, told.rows
            ));
        }
    }
    Ok(())
}

/// How many tables there are, and how many rows in all of them.
pub(super) fn counted(tables: &[Table]) -> (u64, u64) {
    let rows = tables.iter().map(|table| table.rows).sum();
    (u64::try_from(tables.len()).unwrap_or(u64::MAX), rows)
}

/// The objects that go, by backup. A manifest goes before what it tells of: without it that is no backup any more. Only those that can be
/// relied on are counted. Pure.
fn going(
    seen: &Seen<Manifest>,
    cluster: &str,
    backup: &backup::Input,
    now: Timestamp,
) -> Vec<Vec<String>> {
    let good: Vec<_> = seen
        .good()
        .filter(|manifest| retention::is_past(manifest.origin.taken_at, now))
        .filter(|manifest| state(manifest, seen, cluster) == BackupState::Verified)
        .collect();
    let taken: Vec<_> = good
        .iter()
        .map(|manifest| (manifest.name.clone(), manifest.origin.taken_at))
        .collect();
    let keep = settings::kept(backup.keep.as_ref());
    let surplus = retention::surplus(&taken, keep, now);
    let surplus = good
        .iter()
        .filter(|manifest| surplus.contains(&manifest.name))
        .map(|manifest| vec![manifest.name.manifest(), manifest.object()]);
    surplus.chain(seen.abandoned(now)).collect()
}

/// What is to be thought of a backup. Pure.
fn state(manifest: &Manifest, seen: &Seen<Manifest>, cluster: &str) -> BackupState {
    if manifest.origin.cluster != cluster {
        return BackupState::OtherCloud;
    }
    if seen.is_whole(manifest) {
        BackupState::Verified
    } else {
        BackupState::Altered
    }
}

/// What is told of what lies in a store. Pure.
fn told(
    store: &Store,
    seen: &Seen<Manifest>,
    cluster: &str,
    drill: Option<BackupDrill>,
) -> BackupsStatus {
    let number = |number: u64| Some(i64::try_from(number).unwrap_or(i64::MAX));
    let read = seen.read.iter().map(|(name, read)| match read {
        Ok(manifest) => {
            let (tables, rows) = manifest.counts();
            BackupStatus {
                name: name.to_string(),
                state: state(manifest, seen, cluster),
                taken_at: Some(Time(manifest.origin.taken_at)),
                release: manifest
                    .origin
                    .release
                    .as_ref()
                    .map(|release| api::text::plain(release, 64)),
                size: number(manifest.size),
                tables: number(tables),
                rows: number(rows),
            }
        }
        Err(_) => nameless(name, BackupState::Altered),
    });
    let unfinished = seen.unfinished();
    let unfinished = unfinished.map(|name| nameless(&name, BackupState::Unfinished));
    let mut kept: Vec<_> = read.chain(unfinished).collect();
    kept.sort_by(|a, b| b.name.cmp(&a.name));
    let count = u32::try_from(kept.len()).unwrap_or(u32::MAX);
    kept.truncate(TOLD);
    BackupsStatus {
        place: api::text::plain(&store.place(), 2048),
        seen_at: Some(Time(Timestamp::now())),
        count,
        kept,
        drill,
    }
}

fn nameless(name: &Name, state: BackupState) -> BackupStatus {
    BackupStatus {
        name: name.to_string(),
        state,
        taken_at: None,
        release: None,
        size: None,
        tables: None,
        rows: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_was_emptied_is_not_saved() {
        let refused = has_tables("keystone", &[]).unwrap_err();
        assert_eq!(refused.code, "NoTables");
        assert!(refused.message.contains("keystone"), "{}", refused.message);
        assert!(has_tables("keystone", &["user".to_owned()]).is_ok());
    }

    #[test]
    fn a_database_with_more_than_tables_is_neither_saved_nor_replaced() {
        let others = ["view seen".to_owned(), "event nightly".to_owned()];
        let refused = has_tables_alone("keystone", &others, "remove it").unwrap_err();
        assert_eq!(refused.code, "NotTables");
        assert!(refused.message.contains("view seen"), "{}", refused.message);
        assert_eq!(refused.remedy.as_deref(), Some("remove it"));
        assert!(has_tables_alone("keystone", &[], "remove it").is_ok());
    }

    #[test]
    fn a_backup_that_would_not_be_read_again_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let file = seal::unnamed(directory.path()).unwrap();
        let spool = Spool::into(&file, &seal::Seal::Open).unwrap();
        let mut output = Output::of(spool, 10);
        output.write_all(b"0123456789").unwrap();
        let error = output.write_all(b"0").unwrap_err();
        assert_eq!(disk(&error).code, "BackupTooLarge");
        let error = crate::sql::Error::Taken(error);
        assert_eq!(said(&error).code, "BackupTooLarge");
    }

    #[test]
    fn what_is_sealed_is_what_its_manifest_tells_of() {
        let origin = Origin {
            cloud: "cloud/one".into(),
            cluster: "u-1".into(),
            taken_at: "2026-11-25T03:30:00Z".parse().unwrap(),
            ..Origin::default()
        };
        let table = Table {
            name: "user".into(),
            rows: 2,
            sum: String::new(),
        };
        let mut contents = Contents {
            origin: origin.clone(),
            keys: Keys::new(),
            tables: [("keystone".to_owned(), vec![table])].into(),
        };
        let database = Database {
            service: "keystone".into(),
            name: "keystone".into(),
            tables: 1,
            rows: 2,
        };
        let spooled = seal::Spooled {
            size: 1,
            digest: String::new(),
            stored_size: 1,
            stored_digest: String::new(),
        };
        let manifest = Manifest::of(origin.clone(), vec![database], &spooled);
        let databases =
            |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
        let keystone = databases(&["keystone"]);
        let check = |contents: &Contents, manifest: &Manifest, databases: &[String]| {
            is_what_it_says(contents, manifest, databases.iter())
        };
        assert_eq!(check(&contents, &manifest, &keystone), Ok(()));
        let both = databases(&["keystone", "glance"]);
        let missing = check(&contents, &manifest, &both).unwrap_err();
        assert!(missing.contains("glance, keystone"), "{missing}");
        let mut counted = manifest.clone();
        counted.databases[0].rows = 3;
        let fewer = check(&contents, &counted, &keystone).unwrap_err();
        assert!(fewer.contains("2 rows"), "{fewer}");
        // Last year's, under a manifest of today.
        contents.origin.taken_at = "2025-11-25T03:30:00Z".parse().unwrap();
        let older = check(&contents, &manifest, &keystone).unwrap_err();
        assert!(older.contains("taken at 2025-11-25"), "{older}");
        contents.origin = Origin {
            cloud: "cloud/two".into(),
            ..origin
        };
        let other = check(&contents, &manifest, &keystone).unwrap_err();
        assert!(other.contains("cloud/two"), "{other}");
    }

    #[test]
    fn a_table_that_would_not_be_read_again_is_not_saved() {
        let place = ("keystone", "user");
        let made = "CREATE TABLE `user` (\n  `id` int(11)\n) ENGINE=InnoDB";
        assert!(can_be_made_again(place, made).is_ok());
        for other in [
            "CREATE TABLE `user` (\n  `id` int(11)\n) ENGINE=Aria",
            "CREATE TABLE `user` (\n  `a` text /*M!100301 COMPRESSED*/\n) ENGINE=InnoDB",
            "",
        ] {
            let refused = can_be_made_again(place, other).unwrap_err();
            assert_eq!(refused.code, "NotTables", "{other}");
        }
    }
}
