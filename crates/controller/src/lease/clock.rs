//! The clock that no sleep of the machine stops.

use std::{fmt, sync::Arc, time::Duration};

use nix::time::{ClockId, clock_gettime};

/// Time since the machine's boot, suspended or not. Every process of the machine reads the same.
#[derive(Clone)]
pub struct BootClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl BootClock {
    /// Another clock, for tests.
    pub fn of(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time since boot.
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

/// The machine's.
impl Default for BootClock {
    fn default() -> Self {
        // Every Linux has the clock. Without it no time would be left, and nothing could be held.
        Self::of(|| clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Duration::from))
    }
}

impl fmt::Debug for BootClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BootClock").field(&self.now()).finish()
    }
}
