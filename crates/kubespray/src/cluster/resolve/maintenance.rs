//! When operations may start that start by themselves. Pure.

use api::{
    cluster::ClusterSpec,
    maintenance::{Confine, OnWindowEnd},
};
use controller::{
    Windows,
    window::{Moment, Now, Recurrence},
};
use jiff::{SignedDuration, Timestamp};

use crate::{operation::Operation, problem::Problem};

/// Where the windows stand.
const FIELD: &str = "Cluster spec.maintenance.windows";
/// Where the schedule of converging stands.
const CONVERGES: &str = "Cluster spec.operations.converge";

/// When operations may start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Keeping {
    /// The windows.
    pub windows: Windows,
    /// What keeps to them.
    pub confine: Confine,
    /// What becomes of one that is at work when they close.
    pub on_end: OnWindowEnd,
}

impl Keeping {
    /// When the next window opens, if the operation is to wait for it. What has no cluster yet, or takes it down, has nothing to
    /// disturb.
    pub fn waits(&self, operation: &Operation, now: Timestamp) -> Option<Moment> {
        if !self.confines(operation) {
            return None;
        }
        match self.windows.at(now) {
            Now::Closed { opens } => Some(opens),
            Now::Unbound | Now::Open { .. } => None,
        }
    }

    /// When the window opens that an operation is to wait for which takes so long: the one that is open may close before it ends. Where
    /// none is that long, it begins in the next one all the same.
    pub fn begins(
        &self,
        operation: &Operation,
        now: Timestamp,
        takes: Option<SignedDuration>,
    ) -> Option<Moment> {
        let room = takes.filter(|_| self.confines(operation));
        let room = room.and_then(|takes| self.windows.room(now, takes));
        room.or_else(|| self.waits(operation, now))
    }

    /// How long until a window opens or closes.
    pub fn left(&self, now: Timestamp) -> Option<SignedDuration> {
        let left = self.windows.left(now);
        left.filter(|_| self.confine != Confine::None)
    }

    /// Whether the operation keeps to the windows.
    pub fn confines(&self, operation: &Operation) -> bool {
        operation.of_built
            && !operation.quiet
            && match self.confine {
                Confine::All => true,
                Confine::Disruptive => operation.disruptive,
                Confine::None => false,
            }
    }
}

/// When the playbooks run once more by themselves.
pub(super) fn converges(spec: &ClusterSpec, problems: &mut Vec<Problem>) -> Option<Recurrence> {
    let written = spec.operations.as_ref()?.converge.as_ref()?;
    let (schedule, zone) = (
        format!("{CONVERGES}.schedule"),
        format!("{CONVERGES}.timeZone"),
    );
    let read = Recurrence::read(
        (written.schedule.as_deref()?, &schedule),
        (written.time_zone.as_deref(), &zone),
    );
    read.map_err(|wrong| problems.extend(wrong)).ok()
}

pub(super) fn keeping(spec: &ClusterSpec, problems: &mut Vec<Problem>) -> Keeping {
    let maintenance = spec.maintenance.clone().unwrap_or_default();
    let windows = Windows::read(&maintenance.windows, FIELD).unwrap_or_else(|wrong| {
        problems.extend(wrong);
        Windows::default()
    });
    Keeping {
        windows,
        confine: maintenance.confine.unwrap_or_default(),
        on_end: maintenance.on_window_end.unwrap_or_default(),
    }
}
