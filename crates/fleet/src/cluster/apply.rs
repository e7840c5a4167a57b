//! Brings the objects of a cluster to a revision: all of them are tried before one is written, and what is no longer one of them goes last.

use std::collections::BTreeSet;

use api::inventory::{FleetCluster, FleetHealth, FleetProblem};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::Value;

use super::{
    ADOPTED, Context, Error, Pass,
    before::{self, Before, Kept},
    health::{self, Rolling, Standing},
    live, machine_sets,
    neighbours::{self, Hold},
    obstacles, own,
    part::{Part, Parts},
    rebase, records, refuse, report,
    request::with_request,
    settle,
    vault::{self, Waits},
};
use crate::names::MANAGER;

/// Brings a cluster to a revision, as far as it goes, and says how it stands then.
pub(super) async fn bring(
    cluster: &FleetCluster,
    revision: &str,
    parts: &Parts,
    pass: &mut Pass,
    context: &Context,
) -> Result<(), Error> {
    let is_new = pass.begun.is_some() || pass.applied.as_deref() != Some(revision);
    if is_new {
        pass.target = Some(revision.to_owned());
    }
    let mut others = pass.abandoned.clone();
    others.extend(pass.begun.clone());
    others.retain(|other| other != revision);
    let work = Work {
        cluster,
        revision,
        parts,
        context,
        is_new,
        is_begun: pass.begun.as_deref() == Some(revision),
        before: before(cluster, pass.applied.as_deref(), &others, context),
        others,
        rolling: Rolling::of(pass.is_granted()),
    };
    match work.carry_out(pass).await {
        Ok(()) => Ok(()),
        Err(Stop::Refused(problems)) => {
            refuse(pass, revision, problems);
            Ok(())
        }
        Err(Stop::Waits(standing, (health, message))) => {
            pass.standing = Standing {
                health,
                message: Some(api::text::lines(&message, 1000)),
                ..standing
            };
            pass.awaits_others = true;
            Ok(())
        }
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Why a pass goes no further.
pub(super) enum Stop {
    /// Something is wrong with the revision, or in its way.
    Refused(Vec<FleetProblem>),
    /// What it goes on with is not ready. The cluster stands like that otherwise.
    Waits(Standing, Waits),
    /// The API refused, or did not answer.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<FleetProblem> for Stop {
    fn from(problem: FleetProblem) -> Self {
        Self::Refused(vec![problem])
    }
}

/// What is there of each object of a cluster.
type There = [Option<Value>];

/// An object as it is to be written, and as it was read.
type Change<'a> = (Part, Option<&'a Value>);

/// What is done for a cluster that is brought to a revision, or kept at it.
struct Work<'a> {
    cluster: &'a FleetCluster,
    revision: &'a str,
    parts: &'a Parts,
    context: &'a Context,
    /// Whether it is not made from the revision yet, or not all of it.
    is_new: bool,
    /// Whether its objects are being made from it.
    is_begun: bool,
    before: Before,
    /// What they were begun to be made from beside that.
    others: Vec<String>,
    rolling: Rolling,
}

impl Work<'_> {
    async fn carry_out(&self, pass: &mut Pass) -> Result<(), Stop> {
        obstacles::unfit(self.parts, self.context).await?;
        let to_make = obstacles::places(self.cluster, self.parts, self.context).await?;
        // Until all is written, or refused.
        let mut _hold = None;
        if self.is_new {
            self.nothing_is_lost()?;
            // Nobody keeps others from objects that are not its own.
            self.read().await?;
            _hold = Some(self.hold(&[]).await?);
        }
        if self.is_begun {
            self.still_awaits().await?;
        }
        let there = self.read().await?;
        let own = self.cluster.namespace().unwrap_or_default();
        for place in &to_make {
            obstacles::make(place, &own, self.context).await?;
        }
        let writes = self.writes(&there);
        if self.is_new {
            self.follow_class(&writes, &there, pass).await?;
            // A drift of one object is mended as it is; a change is one of all objects, or of none.
            self.may_be_written(writes.iter()).await?;
        } else if !writes.is_empty() {
            _hold = Some(self.hold(&there).await?);
        }
        let has_written = !writes.is_empty();
        self.write(writes, &there, pass).await?;
        let leaving = prune(self.cluster, &self.before, self.parts, self.context).await?;
        if leaving.is_empty() {
            pass.former = self.before.former(&pass.former, self.revision);
            pass.applied = Some(self.revision.to_owned());
            pass.target = None;
            pass.begun = None;
            pass.abandoned.clear();
        }
        pass.standing = health::standing(self.parts, &there, self.rolling);
        if has_written || !leaving.is_empty() {
            self.tell_change(has_written, &leaving, pass);
            return Ok(());
        }
        self.rest(&there, pass).await?;
        Ok(())
    }

    /// Keeps others from the same objects and namespaces.
    async fn hold(&self, there: &There) -> Result<Hold<'_>, Stop> {
        let own = own(self.cluster);
        Ok(neighbours::hold(&own, self.parts, there, self.context).await??)
    }

    /// Refuses a change by which something would go that is to stay, or would stay for ever.
    fn nothing_is_lost(&self) -> Result<(), Stop> {
        let going = self
            .before
            .cluster_that_goes(self.parts)
            .map(obstacles::cluster_goes);
        let problem = going.or_else(|| self.before.lost().map(obstacles::lost));
        problem.map_or(Ok(()), |problem| Err(problem.into()))
    }

    /// What there is of each object, if it is this cluster's.
    async fn read(&self) -> Result<Vec<Option<Value>>, Stop> {
        let mut there = Vec::new();
        for part in &self.parts.objects {
            there.push(live::read(part, self.context).await?);
        }
        let parts = self.parts.objects.iter().zip(&there);
        let foreign: Vec<_> = parts
            .filter_map(|(part, there)| obstacles::foreign(self.cluster, part, there.as_ref()?))
            .collect();
        if foreign.is_empty() {
            Ok(there)
        } else {
            Err(Stop::Refused(foreign))
        }
    }

    /// What has to be written.
    fn writes<'t>(&self, there: &'t There) -> Vec<Change<'t>> {
        let parts = with_request(self.parts, there, self.revision, self.rolling);
        let parts = parts.into_iter().zip(there);
        parts
            .filter_map(|(part, there)| {
                let there = there.as_ref();
                Some((self.to_write(part, there)?, there))
            })
            .collect()
    }

    fn to_write(&self, part: Part, there: Option<&Value>) -> Option<Part> {
        let part = vault::at_rest(part, there);
        let is_there = there.is_some_and(|there| controller::apply::contains(there, &part.value));
        let is_same = if part.is_vault_secret() {
            there.is_some_and(|there| vault::is_written(&part, there))
        } else {
            self.before.is_same(&part)
        };
        match (is_there, self.is_new) {
            (true, false) => None,
            (true, true) if is_same => None,
            (_, true) => Some(vault::while_brought(part, there)),
            (false, false) => Some(part),
        }
    }

    /// Makes the class that the cluster goes to, with its templates, and waits until Cluster API has taken it up.
    async fn follow_class(
        &self,
        writes: &[Change<'_>],
        there: &There,
        pass: &mut Pass,
    ) -> Result<(), Stop> {
        let Some(class) = rebase::awaited(self.parts, there) else {
            return Ok(());
        };
        let is_absent = |(part, there): &&Change<'_>| part.is_template() && there.is_none();
        let absent: Vec<_> = writes.iter().filter(is_absent).collect();
        if !absent.is_empty() {
            // A Cluster is tried when its class is there.
            self.may_be_written(writes.iter().filter(|(part, _)| !part.is_cluster()))
                .await?;
            // The cluster is made of none of it yet, and it goes again where the cluster comes to something else.
            pass.former.retain(|former| former != self.revision);
            pass.former.push(self.revision.to_owned());
            pass.former = before::newest(std::mem::take(&mut pass.former));
            report::prepare(self.cluster, pass, self.context).await?;
            for change in absent {
                self.write_one(change, Trial::Real).await??;
            }
        }
        Err(self.waits(there, class.waits()))
    }

    fn waits(&self, there: &There, waits: Waits) -> Stop {
        let standing = health::standing(self.parts, there, self.rolling);
        Stop::Waits(standing, waits)
    }

    /// Tries objects without changing one, and tells all that the API has against them.
    async fn may_be_written<'t>(
        &self,
        changes: impl Iterator<Item = &'t Change<'t>>,
    ) -> Result<(), Stop> {
        let mut problems = Vec::new();
        for change in changes {
            problems.extend(self.write_one(change, Trial::Dry).await?.err());
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Stop::Refused(problems))
        }
    }

    /// Writes what has to be, and waits between VaultSecrets and what refers to them.
    async fn write(
        &self,
        writes: Vec<Change<'_>>,
        there: &There,
        pass: &mut Pass,
    ) -> Result<(), Stop> {
        // A birth may be another one before it is through: what it has written by then goes with that.
        if self.is_new && !self.is_begun {
            pass.abandoned = before::newest(self.others.clone());
            report::begin(self.cluster, self.revision, pass, self.context).await?;
            pass.begun = Some(self.revision.to_owned());
        }
        let (secrets, others): (Vec<_>, Vec<_>) = writes
            .into_iter()
            .partition(|(part, _)| part.is_vault_secret());
        for change in &secrets {
            self.write_one(change, Trial::Real).await??;
        }
        if self.is_new {
            self.awaits(there).await?;
        }
        for change in &others {
            self.write_one(change, Trial::Real).await??;
        }
        Ok(())
    }

    async fn write_one(
        &self,
        (part, there): &Change<'_>,
        trial: Trial,
    ) -> Result<Result<(), FleetProblem>, Error> {
        write(self.cluster, (part, *there), trial, self.context).await
    }

    /// What is waited for that passes before have written, as they tried and wrote down the change. Nothing else is read or tried
    /// meanwhile: while Vault is away for hours, that would be a trial of all objects each time.
    async fn still_awaits(&self) -> Result<(), Stop> {
        let mut changed = Vec::new();
        for part in &self.parts.objects {
            if !part.is_vault_secret() {
                continue;
            }
            let live = live::read_own(part, self.cluster, self.context).await?;
            let is_written = live
                .as_ref()
                .is_some_and(|live| vault::is_written(part, live));
            if !is_written {
                return Ok(());
            }
            if self.before.awaits(part, live.as_ref()) {
                changed.push((part, live));
            }
        }
        let Some(waits) = vault::awaited(&changed) else {
            return Ok(());
        };
        let status = self.cluster.status.as_ref();
        let standing = Standing {
            gates: status.map_or_else(Default::default, |status| status.gates.clone()),
            ..Standing::default()
        };
        Err(Stop::Waits(standing, waits))
    }

    /// Waits while the objects that refer to VaultSecrets cannot be written, by what those that are new or were changed say now.
    async fn awaits(&self, there: &There) -> Result<(), Stop> {
        let mut changed = Vec::new();
        for (part, live) in self.parts.objects.iter().zip(there) {
            if part.is_vault_secret() && self.before.awaits(part, live.as_ref()) {
                changed.push((part, live::read(part, self.context).await?));
            }
        }
        match vault::awaited(&changed) {
            Some(waits) => Err(self.waits(there, waits)),
            None => Ok(()),
        }
    }

    /// How it stands after a change: what was read was read before that.
    fn tell_change(&self, has_written: bool, leaving: &[String], pass: &mut Pass) {
        if pass.standing.health == FleetHealth::Failed && !has_written {
            return;
        }
        pass.standing.health = FleetHealth::AtWork;
        pass.standing.message = Some(if leaving.is_empty() {
            format!("revision {} was written", self.revision)
        } else {
            format!("{} goes", leaving.join(", "))
        });
    }

    /// What is done for a cluster whose objects are as they are to be.
    async fn rest(&self, there: &There, pass: &mut Pass) -> Result<(), Error> {
        // Who rolls out goes on when it is well.
        if pass.phase.is_some()
            && pass.standing.health == FleetHealth::Well
            && let Some(why) = machine_sets::behind(self.parts, there, self.context).await?
        {
            pass.standing.health = FleetHealth::AtWork;
            pass.standing.message = Some(why);
            return Ok(());
        }
        // What waits to be asked for is worked on with what the cluster was built with, and so with the Secrets of that.
        let strict = health::standing(self.parts, there, Rolling::Begun);
        if strict.health == FleetHealth::Well {
            settle::settle(self.cluster, self.parts, there, pass, self.context).await?;
        }
        Ok(())
    }
}

/// What its objects may have been made from: what was applied, and what was begun beside it.
fn before(
    cluster: &FleetCluster,
    applied: Option<&str>,
    begun: &[String],
    context: &Context,
) -> Before {
    let kept = |revision: &str| {
        let parts = records::parts(cluster, revision, context);
        // What was handed over was made by somebody else, and nothing of it goes.
        let parts = match parts {
            Err(_) if revision == ADOPTED => Some(Vec::new()),
            parts => parts.ok().map(|parts| parts.objects),
        };
        Kept::new(revision, parts)
    };
    let begun = begun.iter().map(|revision| kept(revision));
    Before::new(applied.map(kept), begun.collect())
}

/// Whether the API has no such kind.
pub(super) fn is_unknown(error: &kube::Error) -> bool {
    match error {
        kube::Error::Discovery(_) => true,
        kube::Error::Api(status) => status.is_not_found(),
        _ => false,
    }
}

/// Whether something is written, or only tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Trial {
    Dry,
    Real,
}

/// Applies a part over what was read of it and nothing else: what somebody has made of its name since then is theirs. What the API says
/// against it is a problem; that it does not answer is an error.
pub(super) async fn write(
    cluster: &FleetCluster,
    (part, there): (&Part, Option<&Value>),
    trial: Trial,
    context: &Context,
) -> Result<Result<(), FleetProblem>, Error> {
    let mut parameters = PatchParams::apply(MANAGER).force();
    parameters.dry_run = trial == Trial::Dry;
    let mut value = part.value.clone();
    match there {
        Some(there) => value["metadata"]["uid"] = there["metadata"]["uid"].clone(),
        // Of an object of somebody's own kind there is no such version, so it is made or refused. To create it by POST would leave its
        // fields with another owner than an apply does, and so for ever what a later revision no longer has.
        None => value["metadata"]["resourceVersion"] = "0".into(),
    }
    let written = live::api(part, context)
        .await?
        .patch(&part.name, &parameters, &Patch::Apply(&value))
        .await;
    let refusal = match written {
        Ok(_) => return Ok(Ok(())),
        Err(kube::Error::Api(status))
            if matches!(status.code, 400 | 403 | 404 | 409 | 413 | 422) =>
        {
            status
        }
        Err(error) => return Err(Error::Api(format!("apply {}", part.title()), error)),
    };
    if matches!(refusal.code, 409 | 422) {
        let now = live::read(part, context).await?;
        let uid = |object: &Value| object["metadata"]["uid"].clone();
        if now.as_ref().map(uid) != there.map(uid) {
            let now = now.as_ref();
            let foreign = now.and_then(|now| obstacles::foreign(cluster, part, now));
            if let Some(foreign) = foreign {
                return Ok(Err(foreign));
            }
            let what = format!("apply {}, which has come or gone meanwhile", part.title());
            return Err(Error::Api(what, kube::Error::Api(refusal)));
        }
    }
    Ok(Err(FleetProblem {
        object: part.title(),
        rule: "Refused".to_owned(),
        message: format!(
            "the API refuses it: {}",
            api::text::plain(&refusal.message, 800)
        ),
        remedy:
            "mend the values or the ClusterTemplate; no other object of the cluster was changed"
                .to_owned(),
        ..FleetProblem::default()
    }))
}

/// Deletes what belonged to the revisions before and belongs to this one no longer, and says what is still there. Templates and
/// VaultSecrets go when the cluster is well.
async fn prune(
    cluster: &FleetCluster,
    before: &Before,
    parts: &Parts,
    context: &Context,
) -> Result<Vec<String>, Error> {
    let kept: BTreeSet<_> = parts.objects.iter().map(Part::identity).collect();
    let mut leaving = Vec::new();
    let former: Vec<_> = before.parts().collect();
    for part in former {
        let stays = part.is_template() || part.is_vault_secret();
        if stays || kept.contains(&part.identity()) {
            continue;
        }
        let Some(there) = live::read_own(part, cluster, context).await? else {
            continue;
        };
        leaving.push(part.title());
        delete(part, &there, context).await?;
    }
    Ok(leaving)
}

/// Deletes an object as it was read, if nobody has yet.
pub(super) async fn delete(part: &Part, there: &Value, context: &Context) -> Result<(), Error> {
    if there["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: there["metadata"]["uid"].as_str().map(ToOwned::to_owned),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let deleted = live::api(part, context)
        .await?
        .delete(&part.name, &parameters)
        .await;
    match deleted {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(Error::Api(format!("delete {}", part.title()), error)),
        Ok(_) => Ok(()),
    }
}
