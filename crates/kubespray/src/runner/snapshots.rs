//! Steps that save snapshots of etcd outside of the cluster, bring them back and drill them.
//!
//! What a host saved goes over ssh into a file of this machine, sealed on the way where the spec says so, and from there into the store,
//! where it is read back before its manifest is written: a runner that is killed leaves a snapshot without one, which is no snapshot.
//! Files of this machine have no names, so that nothing is left of a runner that is killed; those of hosts go with the script that made
//! them, and what even that has left goes with a later snapshot or drill. None of it is ever in the journal, in a log, or on a command line.

use std::{fs::File, io::Seek, path::Path, time::Duration};

use age::secrecy::SecretString as AgeSecret;
use ansible::probe::{self, Options, Target};
use api::{
    HostName,
    cluster::SecretKeyRef,
    run::{Failure, FailureClass, OnFailure, Step},
    snapshots::{DrillResult, DrillStatus, SnapshotState, SnapshotStatus, SnapshotsStatus},
};
use controller::{apply, away};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Api, ResourceExt, api::ObjectMeta};
use secrecy::SecretString;
use snapshots::{
    Manifest, Name, Store,
    manifest::{Here, Told},
    retention,
    seal::{self, Key, OpenError, Seal, Spool, Spooled},
    settings::{self, CA, IDENTITY, Location, PASSPHRASE, access, key_of},
    store::{self, Access, Bucket, Caller, Directory, Loopback, Seen},
};
use workflow::{StepContext, StepOutcome, StepProgress};

use super::{
    executor::{KubesprayExecutor, failed, hold, succeeded},
    prepare,
    work::PATIENCE,
    workspace::{disk, failure},
};
use crate::{
    action,
    snapshots::{
        CATALOGUE_KEY, SnapshotsInput, VOLUME, catalogue_name,
        host::{self, Place, Saved, Unable},
    },
};

/// Whose words the advice of a store is in.
const CALLER: Caller = Caller {
    field: "spec.etcd.snapshots",
    command: "windlass snapshots list",
    noun: "snapshot",
    code: "Snapshot",
};
/// The label of what belongs to a cluster.
const CLUSTER: &str = "windlass.dev/cluster";
/// How long a host may take to save a snapshot, or to drill one.
const WORK: Duration = Duration::from_hours(1);
/// How long it may take to say something of itself.
const ANSWER: Duration = Duration::from_mins(1);
/// How long it may take to remove what was left on it.
const CLEARING: Duration = Duration::from_secs(20);
/// How long a look at the store may take where nothing waits for it. Less than the timeout of the step, which would fail it.
const IGNORED: Duration = Duration::from_mins(20);
/// How many snapshots are told of.
const TOLD: usize = 100;

/// Saves a snapshot of the first host that can, and reads it back from the store.
pub(crate) async fn save(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    saved(executor, step, context)
        .await
        .map_or_else(|outcome| outcome, |told| succeeded(Some(told)))
}

async fn saved(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> Result<String, StepOutcome> {
    let input = input(executor).map_err(failed)?;
    let store = open(executor, input).await.map_err(failed)?;
    let seal = sealing(executor, input).await.map_err(failed)?;
    let work = AtWork {
        executor,
        step,
        context,
    };
    // What cannot be written is told before a host has worked for it.
    store
        .list()
        .await
        .map_err(|error| failed(of_store(&error)))?;
    work.tells("asking etcd for a snapshot").await?;
    let place = work.place();
    let taken_at = Timestamp::now();
    let asked = work.first(work.hosts(), (host::save(&place), WORK), host::read_saved);
    let (there, saved) = asked.await?;
    let file = unnamed(executor).map_err(failed)?;
    work.tells("bringing the snapshot").await?;
    let fetched = fetch((executor, &there, &place), &file, (&seal, saved.size)).await;
    let fetched = fetched.and_then(|spooled| whole(spooled, &saved, &there.target.name));
    let spooled = match fetched {
        Ok(spooled) => spooled,
        Err(failure) => {
            work.clears(&place).await;
            return Err(failed(failure));
        }
    };
    let from = (executor, &there.target.name, taken_at);
    let manifest = manifest(from, &saved, (&spooled, &seal));
    work.tells("writing the snapshot into the store, and reading it back")
        .await?;
    let own = manifest.clone();
    let room = async {
        let seen = store.look().await?;
        let_go((&store, seen), &own, input, Timestamp::now())
            .await
            .1
    };
    let kept = store.keep_with_room(&file, manifest, room);
    let (kept, ()) = tokio::join!(kept, work.clears(&place));
    let name = kept.map_err(|error| failed(of_store(&error)))?.name;
    Ok(format!(
        "snapshot {name} of {}: {} bytes, revision {}, {} keys, etcd {}, checked by {}, and read back from {}",
        there.target.name,
        saved.size,
        saved.revision,
        saved.keys,
        saved.etcd_version,
        saved.checked_by,
        store.place()
    ))
}

/// Removes snapshots that are kept no longer, and notes what lies in the store; where nothing waits for it, it notes alone.
pub(crate) async fn keep(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    if let Some(outcome) = hold(step, context).await {
        return outcome;
    }
    let is_ignored = step.on_failure == Some(OnFailure::Ignore);
    let kept = async {
        let input = input(executor)?;
        let store = open(executor, input).await?;
        let seen = store.look().await.map_err(|error| of_store(&error))?;
        let own = own(&seen, executor.work.run.uid().as_deref());
        let own = own.map_err(|error| of_store(&error))?;
        sealed(&own, input).map_err(|error| of_store(&error))?;
        let former = catalogue(executor).await?;
        let (seen, removed) = if is_ignored {
            (Ok(seen), Ok(0))
        } else {
            let_go((&store, seen), &own, input, Timestamp::now()).await
        };
        let drill = former.and_then(|former| former.drill);
        let seen = seen.map_err(|error| of_store(&error))?;
        let told = told(&store, &seen, &own, drill);
        note(executor, &told).await?;
        let removed = removed.map_err(|error| of_store(&error))?;
        let count = told.count;
        Ok::<_, Failure>(format!(
            "{count} snapshots lie in the store; {removed} were removed"
        ))
    };
    if !is_ignored {
        return kept.await.map_or_else(failed, |told| succeeded(Some(told)));
    }
    let kept = tokio::time::timeout(IGNORED, kept).await;
    succeeded(Some(match kept {
        Ok(Ok(told)) => told,
        Ok(Err(failure)) => {
            let why = format!(
                "not done, and nothing waits for it: {}: {}",
                failure.code, failure.message
            );
            api::text::plain(&why, 1024)
        }
        Err(_) => "not done, and nothing waits for it: the store took too long".to_owned(),
    }))
}

/// Brings a snapshot from the store into a directory of its host, where etcd is founded from it.
pub(crate) async fn bring(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    (name, directory): (&Name, &str),
) -> StepOutcome {
    let work = AtWork {
        executor,
        step,
        context,
    };
    let brought = async {
        let (manifest, file) = work.stored(name).await?;
        let asked = work.first(work.hosts(), (host::about(), ANSWER), host::read_about);
        let (there, about) = asked.await?;
        fits(&manifest, &about).map_err(failed)?;
        work.tells("bringing the snapshot to the host").await?;
        let sent = send(
            (executor, &there),
            &host::take(directory, manifest.size),
            &file,
        )
        .await;
        sent.map_err(failed)?;
        Ok(format!(
            "snapshot {name} of {} lies in {directory} of {}",
            manifest.taken_at, there.target.name
        ))
    };
    brought
        .await
        .map_or_else(|outcome: StepOutcome| outcome, |told| succeeded(Some(told)))
}

/// Starts a snapshot of the store in a throw-away etcd, and compares what it has with the manifest.
pub(crate) async fn drill(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    name: &Name,
) -> StepOutcome {
    let work = AtWork {
        executor,
        step,
        context,
    };
    let drilled = work.drilled(name).await;
    let (result, message) = match &drilled {
        Ok(told) => (DrillResult::Passed, told.clone()),
        Err(StepOutcome::Failed { failure, .. }) => (
            DrillResult::Failed,
            format!("{}: {}", failure.code, failure.message),
        ),
        Err(_) => return drilled.map_or_else(|outcome| outcome, |told| succeeded(Some(told))),
    };
    let drill = DrillStatus {
        name: name.to_string(),
        at: Time(Timestamp::now()),
        result,
        message: api::text::lines(&message, 2048),
    };
    if let Err(failure) = note_drill(executor, drill).await {
        return failed(failure);
    }
    drilled.map_or_else(|outcome| outcome, |told| succeeded(Some(told)))
}

/// A step at work.
struct AtWork<'a> {
    executor: &'a KubesprayExecutor,
    step: &'a Step,
    context: &'a StepContext,
}

/// A host that answers.
struct Answering {
    target: Target,
    options: Options,
}

impl AtWork<'_> {
    /// Says what comes next, unless the step is to end.
    async fn tells(&self, activity: &str) -> Result<(), StepOutcome> {
        if let Some(outcome) = hold(self.step, self.context).await {
            return Err(outcome);
        }
        let progress = StepProgress {
            activity: Some(activity.to_owned()),
            ..StepProgress::default()
        };
        let told = self.context.reporter.progress(&self.step.id, progress);
        told.await
            .map_err(|_| StepOutcome::Interrupted { detail: None })
    }

    /// The hosts of the step that are not left out.
    fn hosts(&self) -> Vec<HostName> {
        let silent = action::hosts_left_out(&self.context.excluded);
        let mut hosts = action::hosts_of(self.executor.work.plan.plan(), self.step);
        hosts.retain(|host| !silent.contains(host));
        hosts
    }

    /// The first host that does what it is asked, and what it says.
    async fn first<T>(
        &self,
        hosts: Vec<HostName>,
        (script, limit): (String, Duration),
        read: impl Fn(&str) -> Result<T, Unable>,
    ) -> Result<(Answering, T), StepOutcome> {
        let options = prepare::options(self.executor).await.map_err(failed)?;
        let mut errors = Vec::new();
        for target in prepare::targets(self.executor, &hosts) {
            self.executor.proven().await;
            let limit = options.connect_timeout.saturating_add(limit);
            let unable = match probe::run(&target, &options, &script, limit).await {
                Ok(said) => match read(&said) {
                    Ok(read) => return Ok((Answering { target, options }, read)),
                    Err(unable) => unable,
                },
                Err(unusable) => {
                    Unable::Unread(format!("{} ({})", unusable.message(), unusable.detail))
                }
            };
            errors.push((target.name, unable));
        }
        Err(failed(of_hosts(&errors)))
    }

    /// Where the hosts work for this attempt.
    fn place(&self) -> Place {
        Place::new(self.executor.work.run.uid().as_deref())
    }

    /// Removes what snapshots and drills have left on the hosts of the step, also what those did whose runner or host died. One that does
    /// not answer is not waited for: its turn comes with the next.
    async fn clears(&self, place: &Place) {
        let Ok(options) = prepare::options(self.executor).await else {
            return;
        };
        let clears = prepare::targets(self.executor, &self.hosts()).into_iter();
        let clears = clears.map(async |target| {
            let _ = probe::run(&target, &options, &host::clear(place), CLEARING).await;
        });
        futures::future::join_all(clears).await;
    }

    /// A snapshot of the store in a file of this machine, opened.
    async fn stored(&self, name: &Name) -> Result<(Manifest, File), StepOutcome> {
        let executor = self.executor;
        let input = input(executor).map_err(failed)?;
        let store = open(executor, input).await.map_err(failed)?;
        let of_store = |error: &store::Error| failed(of_store(error));
        let manifest = store.manifest(name).await;
        let manifest = manifest.map_err(|error| of_store(&error))?;
        sealed(&manifest, input).map_err(|error| of_store(&error))?;
        self.tells("bringing the snapshot from the store").await?;
        let stored = unnamed(executor).map_err(failed)?;
        let brought = store.bring(&manifest, &stored).await;
        brought.map_err(|error| of_store(&error))?;
        if !manifest.stored.sealed {
            return Ok((manifest, stored));
        }
        let key = opening(executor, input).await.map_err(failed)?;
        let opened = unnamed(executor).map_err(failed)?;
        let opening = tokio::task::spawn_blocking(move || {
            let read = seal::open(&stored, &opened, &key)?;
            Ok((opened, read))
        });
        let (opened, (size, digest)) = match opening.await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return Err(failed(unopened(name, &error))),
            Err(_) => return Err(StepOutcome::Interrupted { detail: None }),
        };
        if (size, &digest) != (manifest.size, &manifest.digest) {
            let error = store::Error::Altered(format!(
                "what snapshot {name} decrypts to is not what its manifest says"
            ));
            return Err(of_store(&error));
        }
        Ok((manifest, opened))
    }

    async fn drilled(&self, name: &Name) -> Result<String, StepOutcome> {
        let (manifest, file) = self.stored(name).await?;
        let mut last = None;
        // A host that lacks a program, or is down, is passed over.
        for host in self.hosts() {
            match self.drilled_on(&host, &manifest, &file).await {
                Err(StepOutcome::Failed { failure, .. })
                    if matches!(&*failure.code, "NoSnapshotProgram" | "EtcdUnanswered") =>
                {
                    last = Some(failure);
                }
                other => return other,
            }
        }
        Err(failed(last.unwrap_or_else(|| of_hosts(&[]))))
    }

    async fn drilled_on(
        &self,
        name: &HostName,
        manifest: &Manifest,
        file: &File,
    ) -> Result<String, StepOutcome> {
        let alone = || vec![name.clone()];
        let about = self.first(alone(), (host::about(), ANSWER), host::read_about);
        let (there, about) = about.await?;
        fits(manifest, &about).map_err(failed)?;
        self.tells(&format!("starting the snapshot on {name}"))
            .await?;
        let place = self.place();
        let take = host::take_for_drill(&place, manifest.size);
        let sent = send((self.executor, &there), &take, file);
        sent.await.map_err(failed)?;
        let drilled = self.first(alone(), (host::drill(&place), WORK), host::read_drilled);
        let drilled = drilled.await;
        // Also what a script left that did not begin.
        self.clears(&place).await;
        let (_, drilled) = drilled?;
        for (what, found, noted) in [
            ("keys", drilled.keys, manifest.keys),
            ("as its revision", drilled.revision, manifest.revision),
        ] {
            if found != noted {
                return Err(failed(failure(
                    FailureClass::Permanent,
                    "DrillDiffers",
                    format!(
                        "snapshot {} in an etcd of its own on {name} has {found} {what}, and its manifest says {noted}",
                        manifest.name
                    ),
                    Some("do not rely on it: take another one (windlass snapshot), and drill that"),
                )));
            }
        }
        if drilled.digest != manifest.digest {
            let error =
                store::Error::Altered(format!("{} came to {name} as another one", manifest.name));
            return Err(failed(of_store(&error)));
        }
        Ok(format!(
            "snapshot {} serves {} keys at revision {} in an etcd of its own on {name}, as its manifest says",
            manifest.name, drilled.keys, drilled.revision
        ))
    }
}

/// A file of this machine without a name, in the directory of the run: what it holds goes with this process.
fn unnamed(executor: &KubesprayExecutor) -> Result<File, Failure> {
    let directory = &executor.work.directory;
    seal::unnamed(directory).map_err(|error| disk(directory, &error))
}

fn input(executor: &KubesprayExecutor) -> Result<&SnapshotsInput, Failure> {
    let input = executor.work.inputs.snapshots.as_ref();
    input.ok_or_else(|| {
        let text = "the plan names no store of snapshots".to_owned();
        failure(FailureClass::Permanent, "UnexpectedAction", text, None)
    })
}

/// The store of the cluster.
async fn open(executor: &KubesprayExecutor, input: &SnapshotsInput) -> Result<Store, Failure> {
    let work = &executor.work;
    let below = format!("{}/{}", work.namespace(), work.cluster());
    let s3 = match settings::location(&input.store) {
        Some(Location::Bucket(s3)) => s3,
        Some(Location::Directory(directory)) => return opened(directory, &below).await,
        Some(Location::Claim(_)) => return opened(VOLUME, &below).await,
        None => return Err(of_store(&store::Error::Unusable("none is named".into()))),
    };
    let credentials = &s3.credentials_secret_ref.name;
    let needed = async |key| {
        let place = (&**credentials, key);
        required(place, value(executor, place).await?)
    };
    let access = Access {
        id: needed(access::ID).await?,
        secret: needed(access::SECRET).await?.into(),
        token: value(executor, (credentials, access::TOKEN))
            .await?
            .map(SecretString::from),
        authorities: match &s3.ca_secret_ref {
            Some(reference) => Some(referred(executor, reference, CA).await?.into_bytes()),
            None => None,
        },
    };
    let settings = settings::of_bucket(s3, &below);
    Bucket::new(&settings, &access, Loopback::of_this_process())
        .map(|bucket| Store::Bucket(Box::new(bucket)))
        .map_err(|error| of_store(&error))
}

async fn opened(directory: &str, below: &str) -> Result<Store, Failure> {
    let directory = Directory::open(Path::new(directory), below).await;
    directory
        .map(Store::Directory)
        .map_err(|error| of_store(&error))
}

/// What a snapshot is sealed with.
async fn sealing(executor: &KubesprayExecutor, input: &SnapshotsInput) -> Result<Seal, Failure> {
    let Some(encryption) = &input.encryption else {
        return Ok(Seal::Open);
    };
    if let Some(reference) = &encryption.passphrase_secret_ref {
        return Ok(Seal::Passphrase(passphrase(executor, reference).await?));
    }
    let keys = encryption.recipients.iter();
    let keys: Result<Vec<_>, _> = keys.map(|key| seal::recipient(key)).collect();
    keys.map(Seal::Recipients).map_err(|why| {
        let text = format!("Cluster spec.etcd.snapshots.encryption.recipients: {why}");
        let remedy = "correct it, then ask again";
        failure(FailureClass::Config, "SnapshotKeyUnfit", text, Some(remedy))
    })
}

/// What opens one.
async fn opening(executor: &KubesprayExecutor, input: &SnapshotsInput) -> Result<Key, Failure> {
    let encryption = input.encryption.clone().unwrap_or_default();
    if let Some(reference) = &encryption.identity_secret_ref {
        let text = referred(executor, reference, IDENTITY).await?;
        return seal::identities(&text).map(Key::Identities).map_err(|why| {
            let text = format!(
                "Secret {}, key {}: {why}",
                reference.name,
                key_of(reference, IDENTITY)
            );
            let remedy = "correct the Secret, then retry the run";
            failure(FailureClass::Config, "SnapshotKeyUnfit", text, Some(remedy))
        });
    }
    if let Some(reference) = &encryption.passphrase_secret_ref {
        return Ok(Key::Passphrase(passphrase(executor, reference).await?));
    }
    Err(failure(
        FailureClass::Config,
        "SnapshotKeyUnfit",
        "the snapshot is encrypted, and spec.etcd.snapshots.encryption names no key that opens it"
            .to_owned(),
        Some(
            "name the Secret with the private key in spec.etcd.snapshots.encryption.identitySecretRef, then ask again",
        ),
    ))
}

async fn passphrase(
    executor: &KubesprayExecutor,
    reference: &SecretKeyRef,
) -> Result<AgeSecret, Failure> {
    let text = referred(executor, reference, PASSPHRASE).await?;
    // As people write one into a file.
    Ok(AgeSecret::from(
        text.trim_end_matches(['\n', '\r']).to_owned(),
    ))
}

async fn referred(
    executor: &KubesprayExecutor,
    reference: &SecretKeyRef,
    default: &str,
) -> Result<String, Failure> {
    let place = (&*reference.name, key_of(reference, default));
    required(place, value(executor, place).await?)
}

/// What a Secret holds under a key, if it does.
async fn value(
    executor: &KubesprayExecutor,
    (name, key): (&str, &str),
) -> Result<Option<String>, Failure> {
    let secret = executor.workspace.secret(name, PATIENCE).await?;
    let bytes = secret.and_then(|secret| secret.data?.remove(key));
    let text = bytes.and_then(|bytes| String::from_utf8(bytes.0).ok());
    Ok(text.filter(|text| !text.trim().is_empty()))
}

fn required((name, key): (&str, &str), value: Option<String>) -> Result<String, Failure> {
    value.ok_or_else(|| {
        failure(
            FailureClass::Config,
            "SnapshotSecretUnusable",
            format!("Secret {name} with a text under the key {key} is not there"),
            Some("create it, then retry the run"),
        )
    })
}

/// Takes what a host saved into a file, sealed on the way, as far as one byte beyond its size.
async fn fetch(
    (executor, there, place): (&KubesprayExecutor, &Answering, &Place),
    file: &File,
    (seal, size): (&Seal, u64),
) -> Result<Spooled, Failure> {
    let local = |error: std::io::Error| disk(&executor.work.directory, &error);
    let mut spool = Spool::into(file, seal).map_err(local)?;
    let fetched = probe::fetch(&there.target, &there.options, &host::print(place)).await;
    let mut output = fetched.map_err(|unusable| silent(there, &unusable))?;
    let mut buffer = vec![0; 256 * 1024];
    let mut left = size.saturating_add(1);
    while left > 0 {
        let read = output.read(&mut buffer).await;
        let read = read.map_err(|unusable| silent(there, &unusable))?;
        let wanted = read.min(usize::try_from(left).unwrap_or(usize::MAX));
        let Some(bytes) = buffer.get(..wanted).filter(|bytes| !bytes.is_empty()) else {
            let ended = output.end().await;
            ended.map_err(|unusable| silent(there, &unusable))?;
            break;
        };
        spool.write(bytes).map_err(local)?;
        left = left.saturating_sub(u64::try_from(wanted).unwrap_or(u64::MAX));
    }
    spool.finish().map_err(local)
}

/// What came, if it is what the host saved.
fn whole(spooled: Spooled, saved: &Saved, host: &HostName) -> Result<Spooled, Failure> {
    if (spooled.size, &spooled.digest) == (saved.size, &saved.digest) {
        return Ok(spooled);
    }
    Err(failure(
        FailureClass::Transient,
        "SnapshotCut",
        format!(
            "{host} saved a snapshot of {} bytes, and {} came: another one or not all of it",
            saved.size, spooled.size
        ),
        Some("retry the run"),
    ))
}

/// Has a host take a file.
async fn send(
    (executor, there): (&KubesprayExecutor, &Answering),
    script: &str,
    mut file: &File,
) -> Result<(), Failure> {
    let begun = file.rewind().and_then(|()| file.try_clone());
    let begun = begun.map_err(|error| disk(&executor.work.directory, &error))?;
    let mut begun = tokio::fs::File::from_std(begun);
    let sent = probe::send(&there.target, &there.options, script, &mut begun).await;
    sent.map_err(|unusable| silent(there, &unusable))
}

fn silent(there: &Answering, unusable: &probe::Unusable) -> Failure {
    failure(
        FailureClass::Transient,
        "SnapshotCut",
        format!(
            "the snapshot did not go from one machine to the other: {}: {} ({})",
            there.target.name,
            unusable.message(),
            unusable.detail
        ),
        Some("see to the connection and to the disk of that host, then retry the run"),
    )
}

/// What is told of a snapshot, under the first name that it may get.
fn manifest(
    (executor, host, taken_at): (&KubesprayExecutor, &HostName, Timestamp),
    saved: &Saved,
    (spooled, seal): (&Spooled, &Seal),
) -> Manifest {
    let work = &executor.work;
    Manifest {
        form: Manifest::FORM,
        name: Name::of(taken_at),
        cluster: format!("{}/{}", work.namespace(), work.cluster()),
        authority: saved.authority.clone(),
        cluster_id: saved.cluster_id.clone(),
        etcd_version: saved.etcd_version.clone(),
        host: host.to_string(),
        run: work.run.uid(),
        taken_at,
        revision: saved.revision,
        keys: saved.keys,
        entries: saved.entries,
        checked_by: saved.checked_by.clone(),
        size: saved.size,
        digest: saved.digest.clone(),
        stored: snapshots::manifest::Stored {
            size: spooled.stored_size,
            digest: spooled.stored_digest.clone(),
            sealed: seal.seals(),
        },
    }
}

/// Where snapshots are encrypted, one that is not is nobody's whom the cluster knows: whoever writes to the store can make it.
fn sealed(manifest: &Manifest, input: &SnapshotsInput) -> Result<(), store::Error> {
    if input.encryption.is_none() || manifest.stored.sealed {
        return Ok(());
    }
    Err(store::Error::Altered(format!(
        "snapshot {} is not encrypted, and those of spec.etcd.snapshots.encryption are; one from before that is brought to the host by \
         hand, and named by its path",
        manifest.name
    )))
}

/// The snapshot that a run has taken: the last one, where its runner was killed in between. Pure.
fn own(seen: &Seen<Manifest>, run: Option<&str>) -> Result<Manifest, store::Error> {
    let of_run = seen
        .good()
        .filter(|manifest| run.is_some() && manifest.run.as_deref() == run);
    let newest = of_run.max_by_key(|manifest| (manifest.name.as_str().len(), &manifest.name));
    let missing = || store::Error::Missing("snapshot of this run".into());
    newest.cloned().ok_or_else(missing)
}

/// Removes what is kept no longer; what lies there then, and how many were removed. What is of another cluster of the name is nobody's
/// here.
async fn let_go(
    (store, seen): (&Store, Seen<Manifest>),
    own: &Manifest,
    input: &SnapshotsInput,
    now: Timestamp,
) -> (
    Result<Seen<Manifest>, store::Error>,
    Result<usize, store::Error>,
) {
    let mut removed = 0;
    for names in going(&seen, own, input.kept(), now) {
        for name in names {
            if let Err(error) = store.remove(&name).await {
                return (store.look().await, Err(error));
            }
        }
        removed += 1;
    }
    if removed == 0 {
        return (Ok(seen), Ok(0));
    }
    (store.look().await, Ok(removed))
}

/// The objects that go, by snapshot. A manifest goes before what it tells of: without it that is no snapshot any more. Those that can be
/// relied on are counted, and no other stands for one of them: what is none goes when it is older than all that are kept. Pure.
fn going(
    seen: &Seen<Manifest>,
    own: &Manifest,
    keep: retention::Keep,
    now: Timestamp,
) -> Vec<Vec<String>> {
    let ours: Vec<&Manifest> = seen
        .good()
        .filter(|manifest| manifest.authority == own.authority)
        .collect();
    let is_good = |manifest: &&&Manifest| {
        retention::is_past(manifest.taken_at, now)
            && state(manifest, seen, own) == SnapshotState::Verified
    };
    let taken: Vec<_> = ours
        .iter()
        .filter(is_good)
        .map(|manifest| (manifest.name.clone(), manifest.taken_at))
        .collect();
    let surplus = retention::surplus(&taken, keep, now);
    let first_gone = taken.iter().filter(|(name, _)| surplus.contains(name));
    let first_gone = first_gone.map(|(_, taken)| *taken).max();
    let goes = |manifest: &&&Manifest| {
        let is_older = first_gone.is_some_and(|gone| manifest.taken_at <= gone);
        manifest.name != own.name
            && (surplus.contains(&manifest.name) || (is_older && !is_good(manifest)))
    };
    let surplus = ours
        .iter()
        .filter(goes)
        .map(|manifest| vec![manifest.name.manifest(), manifest.object()]);
    surplus.chain(seen.abandoned(now)).collect()
}

/// What is to be thought of a snapshot beside the one that a run has just taken. Pure.
fn state(manifest: &Manifest, seen: &Seen<Manifest>, own: &Manifest) -> SnapshotState {
    if manifest.authority != own.authority {
        return SnapshotState::OtherCluster;
    }
    if seen.is_whole(manifest) && (manifest.stored.sealed || !own.stored.sealed) {
        SnapshotState::Verified
    } else {
        SnapshotState::Altered
    }
}

/// What is told of what lies in a store. Pure.
fn told(
    store: &Store,
    seen: &Seen<Manifest>,
    own: &Manifest,
    drill: Option<DrillStatus>,
) -> SnapshotsStatus {
    let number = |number: u64| Some(i64::try_from(number).unwrap_or(i64::MAX));
    let read = seen.read.iter().map(|(name, read)| match read {
        Ok(manifest) => SnapshotStatus {
            name: name.to_string(),
            state: state(manifest, seen, own),
            taken_at: Some(Time(manifest.taken_at)),
            size: number(manifest.size),
            revision: number(manifest.revision),
            keys: number(manifest.keys),
            etcd_version: Some(manifest.etcd_version.clone()),
            digest: Some(manifest.digest.clone()),
        },
        Err(_) => nameless(name, SnapshotState::Altered),
    });
    let unfinished = seen.unfinished();
    let unfinished = unfinished.map(|name| nameless(&name, SnapshotState::Unfinished));
    let mut kept: Vec<_> = read.chain(unfinished).collect();
    kept.sort_by(|a, b| b.name.cmp(&a.name));
    let count = u32::try_from(kept.len()).unwrap_or(u32::MAX);
    kept.truncate(TOLD);
    SnapshotsStatus {
        place: api::text::plain(&store.place(), 2048),
        seen_at: Time(Timestamp::now()),
        count,
        kept,
        drill,
    }
}

fn nameless(name: &Name, state: SnapshotState) -> SnapshotStatus {
    SnapshotStatus {
        name: name.to_string(),
        state,
        taken_at: None,
        size: None,
        revision: None,
        keys: None,
        etcd_version: None,
        digest: None,
    }
}

/// What an earlier run noted.
async fn catalogue(executor: &KubesprayExecutor) -> Result<Option<SnapshotsStatus>, Failure> {
    let name = catalogue_name(executor.work.cluster());
    let secret = executor.workspace.secret(&name, PATIENCE).await?;
    let cluster = Some(executor.work.cluster());
    if let Some(secret) = &secret
        && secret.labels().get(CLUSTER).map(String::as_str) != cluster
    {
        return Err(failure(
            FailureClass::Config,
            "SecretTaken",
            format!(
                "Secret {name} is where a run notes what lies in the store, and it is somebody else's: it lacks the label {CLUSTER}"
            ),
            Some("give that Secret another name, then retry the run"),
        ));
    }
    let bytes = secret.and_then(|secret| secret.data?.remove(CATALOGUE_KEY));
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes.0).ok()))
}

async fn note_drill(executor: &KubesprayExecutor, drill: DrillStatus) -> Result<(), Failure> {
    let former = catalogue(executor).await?;
    let seen = former.unwrap_or_else(|| SnapshotsStatus {
        place: String::new(),
        seen_at: drill.at.clone(),
        count: 0,
        kept: Vec::new(),
        drill: None,
    });
    let seen = SnapshotsStatus {
        drill: Some(drill),
        ..seen
    };
    note(executor, &seen).await
}

/// Leaves what lies in the store where the operator reads it: the only object beside its Run that a runner may write.
async fn note(executor: &KubesprayExecutor, seen: &SnapshotsStatus) -> Result<(), Failure> {
    let work = &executor.work;
    let name = catalogue_name(work.cluster());
    let document = serde_json::to_vec(seen).unwrap_or_default();
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(work.namespace()),
            labels: Some([(CLUSTER.to_owned(), work.cluster().to_owned())].into()),
            owner_references: Some(work.run.owner_references().to_vec()),
            ..ObjectMeta::default()
        },
        data: Some([(CATALOGUE_KEY.to_owned(), ByteString(document))].into()),
        ..Secret::default()
    };
    let api = Api::<Secret>::namespaced(work.client.clone(), &work.namespace());
    let written = away::outlive(PATIENCE, apply::Error::is_away, || {
        apply::apply(&api, "windlass-runner", &secret, None)
    });
    written.await.map_err(|error| {
        let text = format!("Secret {name} cannot be written: {}", crate::chain(&error));
        failure(FailureClass::Transient, "SecretUnwritable", text, None)
    })
}

fn fits(manifest: &Manifest, here: &Here) -> Result<(), Failure> {
    manifest.fits(here).map_err(|unfit| {
        let (code, remedy) = match &unfit {
            snapshots::manifest::Unfit::AnotherCluster { .. } => (
                "SnapshotOfAnotherCluster",
                "name a snapshot of this cluster: windlass snapshots list; if its authorities were made anew since, copy the file to the host and name it by its path",
            ),
            snapshots::manifest::Unfit::NewerEtcd { .. } => (
                "SnapshotOfNewerEtcd",
                "bring the host the etcd of that release first, or name an older snapshot: windlass snapshots list",
            ),
        };
        failure(FailureClass::Config, code, unfit.to_string(), Some(remedy))
    })
}

fn of_store(error: &store::Error) -> Failure {
    let (code, remedy) = error.advice(&CALLER);
    failure(error.class(), &code, crate::chain(error), Some(&remedy))
}

fn unopened(name: &Name, error: &OpenError) -> Failure {
    match error {
        OpenError::Key => failure(
            FailureClass::Config,
            "SnapshotKeyUnfit",
            format!(
                "snapshot {name} {}",
                "is encrypted for other keys than the one that is given"
            ),
            Some(
                "put the private key of one of its recipients into the Secret of spec.etcd.snapshots.encryption.identitySecretRef, or the passphrase of its day into that of passphraseSecretRef; then retry the run",
            ),
        ),
        OpenError::Altered(why) => of_store(&store::Error::Altered(format!("{name}: {why}"))),
        OpenError::File(error) => failure(
            FailureClass::Permanent,
            "FileUnwritable",
            format!("a file of this machine cannot be read or written: {error}"),
            Some("see to the disk of the data directory, then retry the run"),
        ),
    }
}

/// Why no host did it: what one of them lacks or failed at says more than that another is silent.
fn of_hosts(errors: &[(HostName, Unable)]) -> Failure {
    let told = errors.iter().map(|(host, unable)| match unable {
        Unable::Lacks(program) => format!("{host} has no {program} that does it"),
        Unable::Failed(what, said) => format!("{host} failed to {what}: {said}"),
        Unable::Unread(why) => format!("{host}: {why}"),
    });
    let told = told.collect::<Vec<_>>().join("; ");
    let any = |is: fn(&Unable) -> bool| errors.iter().any(|(_, unable)| is(unable));
    if any(
        |unable| matches!(unable, Unable::Failed(what, _) if matches!(&**what, "restore" | "start")),
    ) {
        return failure(
            FailureClass::Permanent,
            "DrillFailed",
            format!("no etcd came up from the snapshot: {told}"),
            Some("do not rely on it: take another one (windlass snapshot), and drill that"),
        );
    }
    if any(|unable| matches!(unable, Unable::Failed(..))) {
        return failure(
            FailureClass::External,
            "SnapshotNotSaved",
            format!("no member of etcd saved a snapshot: {told}"),
            Some(
                "see to etcd (journalctl -u etcd) and to the disk of /var/backups on these hosts, then retry the run",
            ),
        );
    }
    if any(|unable| matches!(unable, Unable::Lacks(_))) {
        return failure(
            FailureClass::Config,
            "NoSnapshotProgram",
            told,
            Some("bring etcdutl and etcdctl of the etcd's release there, then retry the run"),
        );
    }
    let told = if told.is_empty() {
        "no host is left to be asked"
    } else {
        &told
    };
    failure(
        FailureClass::External,
        "EtcdUnanswered",
        format!("no member of etcd says how etcd is: {told}"),
        Some("see to etcd on these hosts (journalctl -u etcd), then retry the run"),
    )
}

#[cfg(test)]
mod tests {
    use snapshots::{manifest::Stored, store::Object};

    use super::*;

    /// Its codes are put together of words elsewhere, where the test of the table does not find them.
    #[test]
    fn every_code_of_a_store_is_in_the_table_of_failures_with_its_class() {
        let said = || "said".to_owned();
        let next = |error: &store::Error| match error {
            store::Error::Unusable(_) => Some(store::Error::Refused(said())),
            store::Error::Refused(_) => Some(store::Error::Full(said())),
            store::Error::Full(_) => Some(store::Error::Missing(said())),
            store::Error::Missing(_) => Some(store::Error::Unreachable(said())),
            store::Error::Unreachable(_) => Some(store::Error::Taken(said())),
            store::Error::Taken(_) => Some(store::Error::Altered(said())),
            store::Error::Altered(_) => Some(store::Error::Local(std::io::ErrorKind::Other.into())),
            store::Error::Local(_) => None,
        };
        let all = std::iter::successors(Some(store::Error::Unusable(said())), next);
        for failure in all.map(|error| of_store(&error)) {
            let kind = crate::failures::named(&failure.code);
            let class = kind.map(|kind| kind.class);
            assert_eq!(class, Some(failure.class), "{}", failure.code);
        }
    }

    fn time(text: &str) -> Timestamp {
        format!("2026-11-{text}:00:00Z").parse().unwrap()
    }

    /// One that was taken at a time, and its object.
    fn snapshot(at: &str, sealed: bool) -> Manifest {
        Manifest {
            form: Manifest::FORM,
            name: Name::of(time(at)),
            cluster: "demo/first".into(),
            authority: "a".repeat(64),
            cluster_id: "1".into(),
            etcd_version: "3.6.4".into(),
            host: "m1".into(),
            run: None,
            taken_at: time(at),
            revision: 3,
            keys: 2,
            entries: 9,
            checked_by: "etcdutl".into(),
            size: 7,
            digest: "b".repeat(64),
            stored: Stored {
                size: 7,
                digest: "b".repeat(64),
                sealed,
            },
        }
    }

    fn seen(manifests: &[Manifest], others: &[&str]) -> Seen<Manifest> {
        let object = |name: String| Object { name, size: 7 };
        let of_manifests = manifests.iter();
        let of_manifests = of_manifests.flat_map(|of| [of.name.manifest(), of.object()]);
        let others = others.iter().map(|name| (*name).to_owned());
        let read = manifests.iter().cloned();
        Seen {
            objects: of_manifests.chain(others).map(object).collect(),
            read: read.map(|of| (of.name.clone(), Ok(of))).collect(),
        }
    }

    fn gone(seen: &Seen<Manifest>, own: &Manifest, count: usize) -> Vec<String> {
        let keep = retention::Keep {
            count: Some(count),
            age: None,
        };
        let gone = going(seen, own, keep, time("25T12"));
        gone.into_iter()
            .filter_map(|names| names.into_iter().next())
            .collect()
    }

    #[test]
    fn what_cannot_be_relied_on_takes_no_place_of_what_can() {
        let own = snapshot("25T11", true);
        let good = snapshot("24T11", true);
        let old = snapshot("22T11", true);
        let forged = snapshot("25T10", false);
        let to_come = snapshot("30T11", true);
        let before = snapshot("21T11", false);
        let all = [&own, &good, &old, &forged, &to_come, &before].map(Clone::clone);
        let seen = seen(&all, &[]);
        assert_eq!(state(&good, &seen, &own), SnapshotState::Verified);
        assert_eq!(state(&forged, &seen, &own), SnapshotState::Altered);
        let names = [&old, &before].map(|of| of.name.manifest());
        assert_eq!(gone(&seen, &own, 2), names);
        assert_eq!(gone(&seen, &own, 3), [""; 0]);
    }

    #[test]
    fn a_run_knows_its_own_by_its_id_and_takes_the_last() {
        let of = |name: &str, run: Option<&str>| Manifest {
            name: name.parse().unwrap(),
            run: run.map(str::to_owned),
            ..snapshot("25T11", false)
        };
        let all = [
            of("2026-11-25T11-00-00Z", Some("other")),
            of("2026-11-25T11-00-00Z-9", Some("mine")),
            of("2026-11-25T11-00-00Z-10", Some("mine")),
            of("2026-11-25T12-00-00Z-11", None),
        ];
        let seen = seen(&all, &[]);
        assert_eq!(own(&seen, Some("mine")).unwrap(), all[2]);
        for nobody in [None, Some("nobody")] {
            let error = own(&seen, nobody).unwrap_err();
            assert_eq!(error.advice(&CALLER).0, "SnapshotMissing");
        }
    }

    #[test]
    fn what_runs_did_not_leave_stays() {
        let own = snapshot("25T11", false);
        let others = [
            "2026-11-20T03-30-00Z.db",
            "2026-11-20T04-30-00Z.db.age",
            "2026-11-25T03-30-00Z.db",
            "2026-11-20.db",
            "1999.db",
            "customers.db",
        ];
        let seen = seen(std::slice::from_ref(&own), &others);
        assert_eq!(gone(&seen, &own, 2), others[..2]);
    }
}
