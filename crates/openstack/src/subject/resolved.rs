//! What objects mean, found out once and kept: a pass over one that is as it should be comes every 20 s, and reads and renders nothing anew.
//!
//! What an object means follows from its name and its spec alone, so that its generation tells whether it is the same.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use controller::Problem;
use kube::ResourceExt;

use crate::{
    rotation::Scheduled,
    wish::{Wanted, Wish},
};

/// What an object means.
#[derive(Debug)]
pub struct Resolved {
    /// What it wishes for, or what is wrong with that.
    pub wanted: Result<Wanted, Vec<Problem>>,
    /// What of it is rotated by itself.
    pub rotations: Vec<Scheduled>,
}

impl Resolved {
    /// Finds it out.
    pub fn of<K: Wish>(object: &K) -> Self {
        Self {
            wanted: object.wanted(),
            rotations: object.rotations(),
        }
    }
}

/// What the objects of a kind mean that were looked at last.
#[derive(Debug, Default)]
pub struct Meanings(Mutex<HashMap<String, Known>>);

#[derive(Debug)]
struct Known {
    /// That of the object.
    generation: i64,
    asked: Instant,
    resolved: Arc<Resolved>,
}

impl Meanings {
    /// What an object means. One that was read from no API is resolved anew.
    pub(super) fn of<K: Wish>(&self, object: &K) -> Arc<Resolved> {
        let (Some(uid), Some(generation)) = (object.uid(), object.meta().generation) else {
            return Arc::new(Resolved::of(object));
        };
        if let Some(known) = self.known().get_mut(&uid)
            && known.generation == generation
        {
            known.asked = Instant::now();
            return Arc::clone(&known.resolved);
        }
        // Without the lock: others need not wait until it is rendered.
        let resolved = Arc::new(Resolved::of(object));
        let now = Known {
            generation,
            asked: Instant::now(),
            resolved: Arc::clone(&resolved),
        };
        let mut known = self.known();
        known.retain(|_, known| known.asked.elapsed() < KEPT);
        known.insert(uid, now);
        resolved
    }

    /// A pass that panicked left whole entries.
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long is kept what nobody asks for any more. What is at rest is asked for every 20 s.
const KEPT: Duration = Duration::from_mins(10);
