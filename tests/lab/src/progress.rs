//! Telling a person what is being made, before and while it is made.

use std::fmt;
use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Hears about everything that may take more than two seconds.
///
/// One piece of work at a time: `begin`, any number of `step`s, `end`.
pub trait Progress: Send + Sync {
    /// Work starts; `cost` says beforehand what it takes ("about 6 minutes, 0.6 GB").
    fn begin(&self, work: &str, cost: &str);
    /// What is being done now, with its place in the whole where that is known ("kubelet (3 of 11)").
    fn step(&self, detail: &str);
    /// The work is done.
    fn end(&self);
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: &str) {}
    fn step(&self, _: &str) {}
    fn end(&self) {}
}

/// A moving line with the elapsed time on a terminal, one line per step elsewhere; both on standard error.
#[derive(Default)]
pub struct Terminal {
    current: Mutex<Option<Work>>,
}

impl fmt::Debug for Terminal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Terminal").finish_non_exhaustive()
    }
}

struct Work {
    name: String,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Progress for Terminal {
    fn begin(&self, work: &str, cost: &str) {
        eprintln!("{work}: {cost}");
        let bar = stderr().is_terminal().then(spinner);
        let work = Work {
            name: work.to_owned(),
            since: Instant::now(),
            bar,
        };
        self.replace(Some(work));
    }

    fn step(&self, detail: &str) {
        let Ok(current) = self.current.lock() else {
            return;
        };
        let Some(work) = current.as_ref() else { return };
        match &work.bar {
            Some(bar) => bar.set_message(format!("{}: {detail}", work.name)),
            None => eprintln!("{}: {detail}", work.name),
        }
    }

    fn end(&self) {
        if let Some(work) = self.replace(None) {
            if let Some(bar) = work.bar {
                bar.finish_and_clear();
            }
            eprintln!(
                "{}: done in {:.0} s",
                work.name,
                work.since.elapsed().as_secs_f64()
            );
        }
    }
}

impl Terminal {
    fn replace(&self, next: Option<Work>) -> Option<Work> {
        let mut current = self.current.lock().ok()?;
        std::mem::replace(&mut *current, next)
    }
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
