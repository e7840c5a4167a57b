//! Steps that take a backup, and that keep what lies in the store.
//!
//! The runner reads the databases by the driver, in one transaction that sees all of them as they were at one moment, and writes them
//! as text into a file without a name, sealed on the way; from there it goes into the store, where it is read back before its manifest
//! is written. Nothing of it is ever in a pod, in the journal, in a log or on a command line.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, BufWriter, Seek, Write},
    sync::Arc,
};

use api::{
    openstack::{BackupDrill, BackupState, BackupStatus, BackupsStatus, OpenStackService},
    run::{Failure, FailureClass, Step},
};
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use runs::calls::{boundary, call, config, failure, tell, transient};
use snapshots::{
    Name, Store,
    manifest::{Stored, Told},
    retention,
    seal::{self, Spool, Spooled},
    settings,
    store::{self, Object, listing},
};
use workflow::StepContext;

use crate::{
    action::Brought,
    backup::{
        self, Manifest,
        archive::{self, Count, Kept, Keys, Table, Writer},
        manifest::{Database, Here},
    },
    cloud::{self, service_name},
    definition::{self, Definition},
    engine::{
        Done, Of, Worker,
        database::said,
        stores::{disk, of_store, unopened},
    },
    names::{self, MANAGER},
    service,
    sql::{Found, Session},
    wish::Wish,
};

/// How many manifests are read at once.
const AT_ONCE: usize = 8;
/// How many backups are told of.
const TOLD: usize = 100;
/// How old what was not written to its end must be to be removed: it may be on its way.
const UNFINISHED: SignedDuration = SignedDuration::from_hours(24);
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
        let file = self.unnamed()?;
        let spool = Spool::into(&file, &seal).map_err(|error| disk(&error))?;
        let out = BufWriter::with_capacity(256 * 1024, Output(spool));
        let mut writer = Writer::begin(out, &keys).map_err(|error| disk(&error))?;
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
            .and_then(|output| output.0.finish())
            .map_err(|error| disk(&error))?;
        tell(
            step,
            context,
            "writing the backup into the store, and reading it back",
        )
        .await?;
        let manifest = self.manifest(server, databases, &spooled).await?;
        self.worker.held()?;
        let kept = store.keep(&file, manifest).await;
        let kept = kept.map_err(|error| of_store(&error))?;
        let (tables, rows) = kept.counts();
        Ok(Some(format!(
            "backup {}: {rows} rows in {tables} tables, {} bytes, read back from {}",
            kept.name,
            kept.size,
            store.place()
        )))
    }

    async fn manifest(
        &self,
        server: String,
        databases: Vec<Database>,
        spooled: &Spooled,
    ) -> Result<Manifest, Failure> {
        let work = &self.worker.work;
        let created = work.run.metadata.creation_timestamp.as_ref();
        let taken_at = created.map_or_else(Timestamp::now, |time| time.0);
        Ok(Manifest {
            form: Manifest::FORM,
            name: Name::of(taken_at),
            cloud: self.cloud(),
            cluster: self.worker.cluster().await?,
            release: self.inputs.release.clone(),
            server: api::text::plain(&server, 200),
            run: work.run.uid(),
            taken_at,
            databases,
            size: spooled.size,
            digest: spooled.digest.clone(),
            stored: Stored {
                size: spooled.stored_size,
                digest: spooled.stored_digest.clone(),
                sealed: true,
            },
        })
    }

    fn cloud(&self) -> String {
        format!("{}/{}", self.worker.namespace(), self.worker.name())
    }

    /// Brings a backup, and says what is in it.
    pub(super) async fn check(&self, of: &Brought, step: &Step, context: &mut StepContext) -> Done {
        let opened = self.opened(of, step, context).await?;
        let (tables, rows) = opened.manifest.counts();
        Ok(Some(format!(
            "backup {} of {} is whole: {rows} rows in {tables} tables",
            opened.manifest.name, opened.manifest.taken_at
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
        let read = tokio::task::spawn_blocking(move || archive::tables(BufReader::new(again)));
        let (keys, tables) = match read.await {
            Ok(read) => read.map_err(|error| altered(controller::chain(&error)))?,
            Err(_) => return Err(super::Ended::Interrupted),
        };
        for told in &manifest.databases {
            let there = tables
                .get(&told.name)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let found = counted(there);
            if found != (told.tables, told.rows) {
                return Err(altered(format!(
                    "database {} has {} tables and {} rows in it, and its manifest says {} and {}",
                    told.name, found.0, found.1, told.tables, told.rows
                ))
                .into());
            }
        }
        Ok(Opened {
            manifest,
            file,
            keys,
            tables,
        })
    }

    /// Removes backups that are kept no longer, and notes what lies in the store.
    pub(super) async fn keep(&self) -> Done {
        let store = self.store().await?;
        let cluster = self.worker.cluster().await?;
        let seen = look(&store).await.map_err(|error| of_store(&error))?;
        let mut removed = 0_usize;
        for names in going(&seen, &cluster, self.backup, Timestamp::now()) {
            self.worker.held()?;
            for name in names {
                store
                    .remove(&name)
                    .await
                    .map_err(|error| of_store(&error))?;
            }
            removed += 1;
        }
        let seen = look(&store).await.map_err(|error| of_store(&error))?;
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
    if let [first, ..] = session.others(database).await.map_err(server)?.as_slice() {
        return Err(failure(
            FailureClass::Config,
            "NotTables",
            format!("database {database} has {first}, and a backup holds tables alone"),
            "remove it, or save this database by other means",
        )
        .into());
    }
    let tables = session.tables(database).await.map_err(server)?;
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

/// What takes the text of a backup.
struct Output(Spool);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many tables there are, and how many rows in all of them.
pub(super) fn counted(tables: &[Table]) -> (u64, u64) {
    let rows = tables.iter().map(|table| table.rows).sum();
    (u64::try_from(tables.len()).unwrap_or(u64::MAX), rows)
}

/// What lies in a store.
struct Seen {
    objects: Vec<Object>,
    read: Vec<(Name, Result<Manifest, store::Error>)>,
}

async fn look(store: &Store) -> Result<Seen, store::Error> {
    let objects = store.list().await?;
    let names = listing(&objects).snapshots;
    let read = stream::iter(names).map(async |name| {
        let manifest = store.manifest(&name).await;
        (name, manifest)
    });
    let read: Vec<_> = read.buffer_unordered(AT_ONCE).collect().await;
    Ok(Seen { objects, read })
}

/// The objects that go, by backup. A manifest goes before what it tells of: without it that is no backup any more. Only those that can be
/// relied on are counted. Pure.
fn going(seen: &Seen, cluster: &str, backup: &backup::Input, now: Timestamp) -> Vec<Vec<String>> {
    let good = seen.read.iter().filter_map(|(_, read)| read.as_ref().ok());
    let good: Vec<_> = good
        .filter(|manifest| retention::is_past(manifest.taken_at, now))
        .filter(|manifest| state(manifest, seen, cluster) == BackupState::Verified)
        .collect();
    let taken: Vec<_> = good
        .iter()
        .map(|manifest| (manifest.name.clone(), manifest.taken_at))
        .collect();
    let keep = settings::kept(backup.keep.as_ref());
    let surplus = retention::surplus(&taken, keep, now);
    let surplus = good
        .iter()
        .filter(|manifest| surplus.contains(&manifest.name))
        .map(|manifest| vec![manifest.name.manifest(), manifest.object()]);
    let before = now.checked_sub(UNFINISHED).ok();
    let unfinished = listing(&seen.objects).unfinished.into_iter();
    let unfinished = unfinished
        // What tells no time, a run has not left.
        .filter(|(name, _)| name.time().is_some_and(|time| Some(time) < before))
        .map(|(_, objects)| objects);
    surplus.chain(unfinished).collect()
}

/// What is to be thought of a backup. Pure.
fn state(manifest: &Manifest, seen: &Seen, cluster: &str) -> BackupState {
    if manifest.cluster != cluster {
        return BackupState::OtherCloud;
    }
    let object = manifest.object();
    let mut objects = seen.objects.iter();
    let there = objects.find(|there| there.name == object);
    if there.is_some_and(|there| there.size == manifest.stored.size) {
        BackupState::Verified
    } else {
        BackupState::Altered
    }
}

/// What is told of what lies in a store. Pure.
fn told(store: &Store, seen: &Seen, cluster: &str, drill: Option<BackupDrill>) -> BackupsStatus {
    let number = |number: u64| Some(i64::try_from(number).unwrap_or(i64::MAX));
    let read = seen.read.iter().map(|(name, read)| match read {
        Ok(manifest) => {
            let (tables, rows) = manifest.counts();
            BackupStatus {
                name: name.to_string(),
                state: state(manifest, seen, cluster),
                taken_at: Some(Time(manifest.taken_at)),
                release: manifest
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
    let unfinished = listing(&seen.objects).unfinished.into_iter();
    let unfinished = unfinished.map(|(name, _)| nameless(&name, BackupState::Unfinished));
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
