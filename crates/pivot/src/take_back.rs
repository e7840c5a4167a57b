//! `windlass move --cluster-api --abort`, and what a move does that cannot go on: here goes on, the copies go.
//!
//! The phase of the record is changed first: a move that is at work at the same time cannot pass its point of no return then. Then the
//! copies are looked at: if somebody let one go on, what is here stays paused. What is here goes on before the copies are deleted, and
//! also if the other side does not answer, which may be why a move was stopped: until they are gone the copies are paused.

use std::sync::Arc;

use controller::problem::chain;
use relocation::{Outcome, Side, Summary};

use crate::{
    Move, Patience, Tell, carry,
    copy::Origin,
    error::{Error, Result, ensure},
    kind::{self, Kind},
    pause,
    place::{Item, Place},
    preflight, read,
    record::{NAME, Phase, Record},
    remove,
};

/// Takes a move back. Without a target, which may be lost for good, what is here goes on and the copies stay.
///
/// # Errors
/// It cannot be taken back, and nothing was changed; or it was stopped on its way, and the same call goes on.
pub async fn take_back(
    source: &Side,
    target: Option<&Side>,
    patience: Patience,
    tell: Tell<'_>,
) -> Result<Summary> {
    let here = Place::new(source, "here");
    let there = target.map(|target| Place::new(target, "there"));
    if let Some(there) = &there {
        preflight::refuse(preflight::places(&here, there))?;
    }
    let kinds = kind::kinds(&here).await?;
    let undoing = Undoing {
        kinds: &kinds,
        origin: &Origin::new(&here),
        here: &here,
        patience,
        tell,
    };
    let summary = |outcome, objects, warnings| Summary {
        outcome,
        namespace: here.namespace.clone(),
        to_namespace: there.as_ref().map(|there| there.namespace.clone()),
        objects,
        warnings,
    };
    let Some(record) = Record::find(&here).await? else {
        return Ok(summary(Outcome::NothingToTakeBack, Vec::new(), Vec::new()));
    };
    let objects = undoing.undo(there.as_ref(), record).await?;
    let unseen = there.is_none().then(|| {
        "without --to-kubeconfig copies there, if there are any, stay; their Clusters are paused, so nothing acts on them".to_owned()
    });
    Ok(summary(
        Outcome::TakenBack,
        objects,
        unseen.into_iter().collect(),
    ))
}

/// Ends a take-back that was begun.
pub(crate) async fn go_on(this: &Move<'_>, record: Record) -> Result<()> {
    let undone = Undoing::of(this).undo(Some(&this.there), record).await;
    undone.map(drop)
}

/// Takes back what a move did that cannot go on; says so, and why it could not.
pub(crate) async fn after(this: &Move<'_>, record: &Record, stopped: Error) -> Error {
    let left = match undo_if_possible(this, record).await {
        Ok(Found::Undone) => {
            "taken back: nothing is paused here, and the copies there were deleted; start the same command again when the reason is \
             mended"
                .to_owned()
        }
        Ok(Found::Ended) => format!(
            "ConfigMap/{NAME} is gone, so another command ended the move or took it back: what this one had still paused here goes on, \
             and what it had still copied was deleted"
        ),
        Ok(Found::Passed) => format!(
            "ConfigMap/{NAME} says that it passed its point of no return; start the same command again"
        ),
        Err(error) => format!(
            "it could not be taken back completely ({}): what it paused here may still be paused, and copies may still be there; \
             ConfigMap/{NAME} here remembers what is left: end it with --abort, or start the same command again",
            chain(&error)
        ),
    };
    Error::Undone {
        left,
        source: Box::new(stopped),
    }
}

/// How far a move was that stopped.
enum Found {
    /// Not at its point of no return: it was taken back.
    Undone,
    /// Behind it.
    Passed,
    /// Another command had ended it or taken it back.
    Ended,
}

async fn undo_if_possible(this: &Move<'_>, known: &Record) -> Result<Found> {
    let undoing = Undoing::of(this);
    match Record::find(&this.here).await? {
        Some(record) if record.phase == Phase::Deleting => Ok(Found::Passed),
        Some(record) => {
            undoing.undo(Some(&this.there), record).await?;
            Ok(Found::Undone)
        }
        // The other command did not see what this one wrote after it. Copies of a move that was ended are none any more.
        None => {
            undoing.resume(Some(&this.there), known).await?;
            undoing.delete_copies(&this.there, known).await?;
            Ok(Found::Ended)
        }
    }
}

struct Undoing<'a> {
    here: &'a Place,
    kinds: &'a [Arc<Kind>],
    origin: &'a Origin,
    patience: Patience,
    tell: Tell<'a>,
}

impl<'a> Undoing<'a> {
    fn of(this: &'a Move<'_>) -> Self {
        Self {
            here: &this.here,
            kinds: &this.kinds,
            origin: &this.origin,
            patience: this.patience,
            tell: this.tell,
        }
    }

    /// Lets go on here unless a copy acts, deletes the copies, and says which they were.
    async fn undo(&self, there: Option<&Place>, mut record: Record) -> Result<Vec<String>> {
        ensure(record.phase != Phase::Deleting, || {
            format!(
                "ConfigMap/{NAME} data.phase is \"Deleting\": the point of no return is behind, the copies there are what counts. End the \
                 move with the same command without --abort; to have the objects here, move them from there to here afterwards"
            )
        })?;
        if let Some(there) = there {
            record.same_target(there)?;
        }
        if record.phase != Phase::TakingBack {
            record.enter(self.here, Phase::TakingBack).await?;
        }
        self.resume(there, &record).await?;
        let mut deleted = Vec::new();
        if let Some(there) = there {
            deleted = self.delete_copies(there, &record).await?;
        }
        record.delete(self.here).await?;
        Ok(deleted)
    }

    /// Lets go on here what the move paused, unless its copy acts.
    async fn resume(&self, there: Option<&Place>, record: &Record) -> Result<()> {
        if let Some(there) = there {
            match self.idle_copies(there, record).await {
                // Nobody answers: that must not keep everything paused here.
                Err(error) if error.is_passing() => {}
                copies => drop(copies?),
            }
        }
        pause::resume(self.here, self.kinds, record, self.tell).await
    }

    /// The copies, none of which acts.
    async fn idle_copies(&self, there: &Place, record: &Record) -> Result<Vec<Item>> {
        let copies = read::copies(there, self.kinds, &record.namespaces, self.origin).await?;
        if let Some(live) = copies.values().find(|copy| carry::is_live(copy)) {
            let shown = live.shown(&self.here.namespace);
            return Err(Error::Stopped(carry::live(&shown)));
        }
        Ok(copies.into_values().collect())
    }

    async fn delete_copies(&self, there: &Place, record: &Record) -> Result<Vec<String>> {
        let copies = self.idle_copies(there, record).await?;
        let shown = |copy: &Item| copy.shown(&self.here.namespace);
        let names = copies.iter().map(shown).collect();
        remove::copies(there, copies, self.patience, self.tell).await?;
        Ok(names)
    }
}
