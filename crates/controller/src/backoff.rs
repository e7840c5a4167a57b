//! Back-off per object, with jitter.
//!
//! The wait doubles with every failure in a row of the same object and starts anew after a success. Jitter keeps objects
//! that failed together, for example because the API went away, from coming back together.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The wait after the first failure.
const BASE: Duration = Duration::from_secs(1);
/// The longest wait.
const LIMIT: Duration = Duration::from_mins(5);

/// Counts failures in a row by object.
#[derive(Debug, Default)]
pub struct BackOff {
    failures: Mutex<HashMap<String, u32>>,
}

impl BackOff {
    /// Notes a failure and says how long to wait.
    pub fn failed(&self, object: &str) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(object.to_owned()).or_default();
        let wait = delay(*count);
        *count = count.saturating_add(1);
        jittered(wait)
    }

    /// Notes a success, or that the object is gone.
    pub fn reset(&self, object: &str) {
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(object);
    }
}

/// The wait after that many earlier failures in a row, without jitter.
fn delay(earlier: u32) -> Duration {
    BASE.saturating_mul(2_u32.saturating_pow(earlier))
        .min(LIMIT)
}

/// A time between three quarters and five quarters of `wait`.
pub fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.75 + rand::random::<f64>() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_limit() {
        let waits: Vec<_> = (0..10).map(|count| delay(count).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        for _ in 0..100 {
            let wait = jittered(Duration::from_secs(100)).as_secs_f64();
            assert!((75.0..=125.0).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn each_object_has_its_own_and_success_resets_it() {
        let backoff = BackOff::default();
        backoff.failed("a");
        backoff.failed("a");
        assert!(backoff.failed("a") >= Duration::from_secs(3));
        assert!(backoff.failed("b") < Duration::from_secs(2));
        backoff.reset("a");
        assert!(backoff.failed("a") < Duration::from_secs(2));
    }
}
