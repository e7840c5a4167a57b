//! `windlass move --cluster-api`: carries the Cluster API objects of a namespace to another management cluster.
//!
//! It moves what `clusterctl move` moves. Unlike that it may be stopped at any moment, by a signal or by the power going away, and goes
//! on by the same command; and until its point of no return it can be taken back. Whatever stops it that it can notice, it leaves
//! nothing paused.
//!
//! ```text
//! preflight -> record -> pause -> settle -> carry: copy, compare | Deleting: remove here -> release there -> no record
//!                        take_back                            <-|
//! ```
//!
//! # Why it is not a domain of `relocation`
//! The objects of our operators carry a mark that our reconcilers honour. Controllers of Cluster API know no such mark: they stop for
//! `spec.paused` of a Cluster, which somebody else may have set, so what this move paused is marked, in the same write
//! (`pause`). They make statuses anew, so none is copied. And they are many, so the objects are not listed in code but found from the
//! labels of their definitions (`kind`) and from what owns what (`graph`).
//!
//! # How it is resumed
//! `record::Record` says what phase a move is in. Within a phase each step looks at what is there before it writes: a copy carries the uid
//! of its original until everything here is gone. Objects here go in the reverse order of owners, so what is left of an interrupted
//! deletion is still a whole graph, and reading it anew gives the same answers. Before each group goes it is looked at once more: here has
//! to be paused, and each copy to have what its original has.
//!
//! # Source
//! Cluster API v1.14, `cmd/clusterctl/client/cluster`: `mover.go` and `objectgraph.go`; `docs/book/src/developer/providers/contracts/clusterctl.md`.

use std::{sync::Arc, time::Duration};

use relocation::{Outcome, Side, Summary};

mod carry;
mod contract;
mod copy;
mod error;
mod graph;
mod kind;
mod pause;
mod place;
mod preflight;
mod read;
mod record;
mod remove;
mod take_back;

pub use error::{Error, Result};
pub use relocation::Tell;
pub use take_back::take_back;

use copy::Origin;
use error::ensure;
use graph::Graph;
use kind::Kind;
use place::Place;
use record::{Phase, Record};

/// How long an object may take to go once nothing holds it but the garbage collector.
const GONE: Duration = Duration::from_mins(1);
/// How often what is waited for is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How long a move waits for others.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long controllers may take to stop.
    pub settle: Duration,
    /// How long deleted objects may take to go.
    pub gone: Duration,
    /// How often it looks.
    pub look: Duration,
}

impl Patience {
    /// Waits `settle` for controllers, and as long as is usual for the rest.
    pub const fn new(settle: Duration) -> Self {
        Self {
            settle,
            gone: GONE,
            look: LOOK,
        }
    }
}

/// A move from one management cluster to another.
pub struct Move<'a> {
    source: &'a Side,
    target: &'a Side,
    here: Place,
    there: Place,
    kinds: Vec<Arc<Kind>>,
    origin: Origin,
    patience: Patience,
    tell: Tell<'a>,
}

impl<'a> Move<'a> {
    /// A move of what is in the namespace of the source. Nothing is written.
    ///
    /// # Errors
    /// The API here does not answer.
    pub async fn prepare(
        source: &'a Side,
        target: &'a Side,
        patience: Patience,
        tell: Tell<'a>,
    ) -> Result<Self> {
        let here = Place::new(source, "here");
        Ok(Self {
            source,
            target,
            kinds: kind::kinds(&here).await?,
            origin: Origin::new(&here),
            here,
            there: Place::new(target, "there"),
            patience,
            tell,
        })
    }

    /// What would be done.
    ///
    /// # Errors
    /// The move would be refused.
    pub async fn plan(&self) -> Result<Summary> {
        preflight::may_move(self)?;
        let mut warnings = Vec::new();
        let record = self.record().await?;
        if let Some(record) = &record {
            warnings.push(format!(
                "a move of this namespace is on its way (ConfigMap/{} data.phase is {:?}): it would be gone on with",
                record::NAME,
                record.phase
            ));
        }
        let graph = self.read().await?;
        if graph.is_empty() && record.is_none() {
            return self.moved_before().await;
        }
        if record.is_none_or(|record| record.phase != Phase::Deleting) {
            warnings.extend(preflight::check(self, &graph).await?);
        }
        Ok(self.summary(Outcome::Planned, graph.names(), warnings))
    }

    /// Moves.
    ///
    /// # Errors
    /// It was refused, and nothing was written; or it was stopped, and the error says how both sides were left.
    pub async fn carry_over(&self) -> Result<Summary> {
        preflight::may_move(self)?;
        let mut record = self.record().await?;
        if let Some(taking_back) = record.take_if(|record| record.phase == Phase::TakingBack) {
            self.tell("an earlier move is being taken back: that is ended first");
            take_back::go_on(self, taking_back).await?;
        }
        let (record, warnings) = match record {
            Some(record) if record.phase == Phase::Deleting => {
                self.tell("everything was copied before: going on");
                (record, Vec::new())
            }
            Some(record) => {
                self.tell("a move of this namespace was stopped while it copied: going on");
                self.bring(record, None).await?
            }
            None => {
                let graph = self.read().await?;
                if graph.is_empty() {
                    return self.moved_before().await;
                }
                let warnings = preflight::check(self, &graph).await?;
                self.warn(&warnings);
                let namespaces = read::namespaces(&graph, &self.here.namespace);
                let mut record = Record::new(&self.there, namespaces);
                record.paused = pause::pausable(&graph).map(record::Paused::of).collect();
                record.write(&self.here).await?;
                self.bring(record, Some(warnings)).await?
            }
        };
        self.finish(record, warnings).await
    }

    /// Copies everything and passes the point of no return, or leaves both sides as they were.
    async fn bring(
        &self,
        mut record: Record,
        checked: Option<Vec<String>>,
    ) -> Result<(Record, Vec<String>)> {
        match self.try_to_bring(&mut record, checked).await {
            Ok(warnings) => Ok((record, warnings)),
            Err(source) => Err(take_back::after(self, &record, source).await),
        }
    }

    async fn try_to_bring(
        &self,
        record: &mut Record,
        checked: Option<Vec<String>>,
    ) -> Result<Vec<String>> {
        let graph = self.read().await?;
        let warnings = match checked {
            Some(warnings) => warnings,
            None => preflight::check(self, &graph).await?,
        };
        pause::pause(self, &graph, record).await?;
        let graph = pause::settle(self, |_| true).await?;
        carry::copy(self, record, graph).await?;
        carry::commit(self, record).await?;
        Ok(warnings)
    }

    /// What follows the point of no return: the same wherever it is begun.
    async fn finish(&self, record: Record, mut warnings: Vec<String>) -> Result<Summary> {
        // Somebody may have let it go on since, above all if an earlier call was stopped.
        pause::again(self, &record).await?;
        let copies =
            read::copies(&self.there, &self.kinds, &record.namespaces, &self.origin).await?;
        let graph = pause::settle(self, |item| copies.contains_key(item.uid())).await?;
        let left = carry::delete(self, &graph, &copies, &record).await?;
        self.warn(&left);
        warnings.extend(left);
        let moved = carry::release(self, &record).await?;
        pause::resume(&self.here, &self.kinds, &record, self.tell).await?;
        record.delete(&self.here).await?;
        Ok(self.summary(Outcome::Moved, moved, warnings))
    }

    async fn record(&self) -> Result<Option<Record>> {
        let record = Record::find(&self.here).await?;
        if let Some(record) = &record {
            record.same_target(&self.there)?;
        }
        Ok(record)
    }

    async fn read(&self) -> Result<Graph> {
        let (graph, unseen) = read::read(&self.here, &self.kinds).await?;
        self.warn(&unseen);
        Ok(graph)
    }

    /// There is nothing here: because of an earlier move, or because there never was.
    async fn moved_before(&self) -> Result<Summary> {
        let (there, _) = read::read(&self.there, &self.kinds).await?;
        let home = &self.here.namespace;
        let arrived = there
            .moving()
            .any(|node| node.item.namespace() == Some(home.as_str()));
        ensure(arrived, || {
            format!(
                "--namespace is {home:?}: there is nothing of Cluster API in it, neither here nor there, so there is nothing to move; \
                 name the namespace of a Cluster"
            )
        })?;
        Ok(self.summary(Outcome::MovedBefore, there.names(), Vec::new()))
    }

    fn summary(&self, outcome: Outcome, objects: Vec<String>, warnings: Vec<String>) -> Summary {
        Summary {
            outcome,
            namespace: self.here.namespace.clone(),
            to_namespace: Some(self.there.namespace.clone()),
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
