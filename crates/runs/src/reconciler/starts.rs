//! When the next runner of a run may start.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use controller::BackOff;

/// The last start of a runner, by run, so that one that dies at once does not spin.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// Deaths of runners in a row, by run.
    deaths: BackOff,
    last: Mutex<HashMap<String, Start>>,
}

#[derive(Debug)]
struct Start {
    /// When the next one may start.
    next: Instant,
    /// How many steps had succeeded by then.
    succeeded: usize,
}

impl Starts {
    /// How long a run of which that many steps have succeeded must wait for its next runner; none: it may start, which is
    /// noted. A runner that got further before it died does not count: what kills it is not what it starts with.
    pub(super) fn due(&self, run: &str, succeeded: usize) -> Option<Duration> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last
            .get(run)
            .is_some_and(|start| start.succeeded < succeeded)
        {
            last.remove(run);
            self.deaths.reset(run);
        }
        let now = Instant::now();
        let known = last.get(run).map(|start| start.next);
        if let Some(next) = known.filter(|next| *next > now) {
            return Some(next.saturating_duration_since(now));
        }
        let wait = self.deaths.failed(run);
        // One death is bad luck and costs nothing; from the second on each costs more.
        let next = known.map_or(now, |_| now + wait);
        last.insert(run.to_owned(), Start { next, succeeded });
        None
    }

    /// Notes that a run needs no runner.
    pub(super) fn rests(&self, run: &str) {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(run);
        self.deaths.reset(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_its_second_death_on_a_runner_is_waited_for() {
        let starts = Starts::default();
        assert_eq!(starts.due("a", 3), None);
        assert_eq!(starts.due("a", 3), None);
        assert!(starts.due("a", 3).is_some());
        assert_eq!(starts.due("b", 0), None);
    }

    #[test]
    fn a_run_that_got_further_does_not_wait() {
        let starts = Starts::default();
        starts.due("a", 3);
        starts.due("a", 3);
        assert_eq!(starts.due("a", 4), None);
        assert_eq!(starts.due("a", 4), None);
        assert!(starts.due("a", 4).is_some());
    }

    #[test]
    fn a_run_that_rested_does_not_wait() {
        let starts = Starts::default();
        starts.due("a", 3);
        starts.due("a", 3);
        starts.rests("a");
        assert_eq!(starts.due("a", 3), None);
    }
}
