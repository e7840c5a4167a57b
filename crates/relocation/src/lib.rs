//! `windlass move`: carries the objects of a namespace to another API, for the operators of all domains.
//!
//! One direction and one point of no return. Everything here is marked first, so that nobody acts on it, and the Leases of the
//! roots are taken for good, so that nobody works; copies are marked from their first moment. Only when every copy was
//! compared with its original are the roots here marked as moved; from then on the copies take over, and what is here is
//! deleted, the roots last, because their marks say how far the move is. Each step looks at what is there before it writes,
//! so the same command goes on wherever an earlier one was stopped, and at no time is a root at work on both sides.
//!
//! ```text
//! preflight -> settle -> carry: copy, compare | commit | take over, delete
//!                        take_back            <-|
//! ```
//!
//! Messages name the options of `windlass move`, which is what people type; the crate knows no domain.
//!
//! # A new operator
//!
//! A [`Domain`] says what an operator brings; nothing else needs to change for its objects to move.
//!
//! 1. Write a function that returns its [`Domain`] in the operator's crate: the [`Kind`]s in the order of their creation, at
//!    least one of them with a [`Root`], usually what a person applies; the field managers of its reconcilers; the labels of
//!    Secrets and ConfigMaps that are its own. What its objects own moves without being named.
//! 2. Where data does not say it, implement a method of [`Hooks`]: each has a default that says "nothing".
//! 3. Have its reconcilers ask [`mark::of`] at the beginning of each pass: a marked object is left alone, but for letting go of
//!    one that is deleted, without touching what it is about. Where age or generation of an object count, ask [`mark::created`]
//!    and [`mark::generation`]: a copy is younger than its original, and its generation begins anew.
//! 4. Whoever works outside of reconcilers holds the [`RootLease`], or is told of by [`Hooks::at_work`].
//! 5. Add the function to the list in `crates/windlass/src/relocate.rs`.
//!
//! `tests/relocation.rs` is such an operator in small.

use std::time::Duration;

use serde::Serialize;

pub mod mark;

mod carry;
mod copy;
mod domain;
mod error;
mod graph;
mod kind;
mod lease;
mod preflight;
mod read;
mod settle;
mod side;
mod take_back;

pub use domain::{Brought, Domain, Hooks, Reference, Selected};
pub use error::{Error, Result};
pub use graph::{Graph, Item};
pub use kind::{Config, Kind, Root, RootLease};
pub use preflight::{SOURCE, TARGET, rights};
pub use side::Side;
pub use take_back::take_back;

use domain::Domains;

/// How long the source's operator has to let go of a deleted root before its finalizer is taken away.
const LET_GO: Duration = Duration::from_secs(5);
/// How long somebody at work who has lost sight of the API may take to see that the Lease is no longer its own: it is looked at
/// every ten seconds, and what was being done is stopped then.
const SETTLE: Duration = Duration::from_secs(35);

/// How long a move waits for others.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long those at work may take to pause.
    pub pause: Duration,
    /// How long those who lost sight of the API may take to stop.
    pub settle: Duration,
    /// How long the operator here may take to let go of a deleted root.
    pub let_go: Duration,
}

impl Patience {
    /// Waits `pause` for those at work, and as long as is usual for others.
    pub const fn new(pause: Duration) -> Self {
        Self {
            pause,
            settle: SETTLE,
            let_go: LET_GO,
        }
    }
}

/// What a move or its undoing did, or would do.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// What became of it.
    pub outcome: Outcome,
    /// The namespace here.
    pub namespace: String,
    /// The namespace there, if another side was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_namespace: Option<String>,
    /// What was carried, in the order of their creation, or what of it was deleted there again; as KIND/NAME.
    pub objects: Vec<String>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// What became of a move.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Outcome {
    /// Everything is there and nothing is here.
    Moved,
    /// It was so before.
    MovedBefore,
    /// Nothing was done: it was asked for.
    Planned,
    /// Nothing is there, and everything here is at work again.
    TakenBack,
    /// Nothing was on its way.
    NothingToTakeBack,
}

/// Where a move tells how far it is.
pub type Tell<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// A move from one side to the other.
pub struct Move<'a> {
    source: &'a Side,
    target: &'a Side,
    domains: Domains<'a>,
    patience: Patience,
    tell: Tell<'a>,
}

impl<'a> Move<'a> {
    /// A move of what those of the domains have here that have anything. Nothing is written.
    ///
    /// # Errors
    /// An API does not answer.
    pub async fn prepare(
        source: &'a Side,
        target: &'a Side,
        domains: &'a [Domain],
        patience: Patience,
        tell: Tell<'a>,
    ) -> Result<Self> {
        Ok(Self {
            source,
            target,
            domains: read::present(domains, source, Some(target)).await?,
            patience,
            tell,
        })
    }

    /// What would be done.
    ///
    /// # Errors
    /// The move would be refused.
    pub async fn plan(&self) -> Result<Summary> {
        preflight::may_move(self).await?;
        let graph = read::read(self.source, &self.domains).await?;
        if !graph.has_roots() {
            return self.moved_before().await;
        }
        let mut warnings = Vec::new();
        if !graph.is_moved() {
            warnings = preflight::check(self, &graph).await?;
        }
        let mut objects = graph.names();
        for Brought { what, secret } in self.domains.brings(&graph)? {
            let name = secret.metadata.name.unwrap_or_default();
            objects.push(format!("Secret/{name} (made of {what})"));
        }
        Ok(self.summary(Outcome::Planned, objects, warnings))
    }

    /// Moves.
    ///
    /// # Errors
    /// It was refused, and nothing was written; or it was stopped on its way, and the same call goes on.
    pub async fn carry_over(&self) -> Result<Summary> {
        preflight::may_move(self).await?;
        let mut graph = read::read(self.source, &self.domains).await?;
        if !graph.has_roots() {
            return self.moved_before().await;
        }
        let mut warnings = Vec::new();
        graph.same_target(&self.target.place())?;
        if graph.is_moved() {
            self.tell("everything was copied before: going on");
        } else {
            warnings = preflight::check(self, &graph).await?;
            self.warn(&warnings);
            settle::settle(self, &graph).await?;
            settle::store(self).await?;
            graph = carry::copy(self).await?;
            carry::commit(self, &graph).await?;
        }
        carry::take_over(self, &graph).await?;
        let left = carry::delete(self, &graph).await?;
        self.warn(&left);
        warnings.extend(left);
        Ok(self.summary(Outcome::Moved, graph.names(), warnings))
    }

    /// There is nothing here: because of an earlier move, or because there never was.
    async fn moved_before(&self) -> Result<Summary> {
        let there = read::read(self.target, &self.domains).await?;
        let from = self.source.place();
        let arrived = there.roots().any(|root| mark::is_from(&root.object, &from));
        error::ensure(arrived, || {
            format!(
                "--namespace is {:?}: there is no {} in it, so there is nothing to move; name the namespace of one",
                self.source.namespace,
                self.domains.root_names()
            )
        })?;
        Ok(self.summary(Outcome::MovedBefore, there.names(), Vec::new()))
    }

    fn summary(&self, outcome: Outcome, objects: Vec<String>, warnings: Vec<String>) -> Summary {
        Summary {
            outcome,
            namespace: self.source.namespace.clone(),
            to_namespace: Some(self.target.namespace.clone()),
            objects,
            warnings,
        }
    }

    fn warn(&self, warnings: &[String]) {
        for warning in warnings {
            self.tell(&format!("warning: {warning}"));
        }
    }

    fn tell(&self, line: &str) {
        (self.tell)(line);
    }
}
