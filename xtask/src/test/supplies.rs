//! What the suites on real hosts need beside Rust, made while other checks run.
//!
//! Most of it is built by Go, minutes of work on a machine that has nothing yet. It takes what the compiler leaves of the
//! processors where it waits for one crate or links, and what is fetched meanwhile costs nothing.

use std::{
    ffi::OsString,
    fmt::Write as _,
    thread::{self, JoinHandle},
    time::Instant,
};

use anyhow::{Context, Result, anyhow};
use lab::{Extent, Kubernetes, OpenStack, Progress, base, images, programs};

use super::report::seconds;

/// A thread that makes them.
pub(super) struct Supplies(JoinHandle<Result<Ready>>);

/// What there is.
pub(super) struct Ready {
    /// What took longer than a moment, a line each.
    pub(super) times: String,
    /// kubectl of the versions that the suites are run with, as in `PATH`.
    pub(super) kubectls: OsString,
}

impl Supplies {
    /// Begins to make what suites of this extent need.
    pub(super) fn gather(extent: Extent) -> Self {
        Self(thread::spawn(move || gather(extent)))
    }

    /// Waits until all is there.
    pub(super) fn wait(self) -> Result<Ready> {
        let gathered = self.0.join();
        gathered
            .map_err(|_| anyhow!("making them panicked"))?
            .context("make what the suites on real hosts need")
    }
}

fn gather(extent: Extent) -> Result<Ready> {
    let compiled = programs::share_scratch();
    let progress = Beside;
    let mut times = String::new();
    let mut timed = |what: &str, make: &dyn Fn() -> Result<()>| {
        let started = Instant::now();
        make()?;
        if started.elapsed().as_secs() > 0 {
            let _ = writeln!(times, "{} {what}", seconds(started.elapsed()));
        }
        anyhow::Ok(())
    };
    timed("Kubernetes", &|| programs::ensure(&progress).map(drop))?;
    timed("foreign clients", &|| lab::foreign(&progress).map(drop))?;
    timed("images of OpenStack", &|| {
        lab::CloudImages::ensure(&progress).map(drop)
    })?;
    timed("kolla-ansible", &|| lab::kolla_ansible(&progress).map(drop))?;
    timed("SOPS and age", &|| lab::sops_programs(&progress).map(drop))?;
    timed("OpenBao", &|| lab::openbao(&progress).map(drop))?;
    timed("Helm", &|| lab::helm(&progress).map(drop))?;
    timed("Keystone and OpenStack's clients", &|| {
        OpenStack::ensure(&progress).map(drop)
    })?;
    timed("other versions of Kubernetes", &|| {
        let mut versions = extent.kubernetes().iter();
        versions.try_for_each(|version| version.servers(&progress).map(drop))
    })?;
    if extent == Extent::Full {
        timed("nodes of the Kubernetes that is upgraded from", &|| {
            Kubernetes::Oldest.programs(&progress).map(drop)
        })?;
        timed("Helm 4", &|| lab::helm_4(&progress).map(drop))?;
        timed("nodes of the patch release before", &|| {
            Kubernetes::Patch.programs(&progress).map(drop)
        })?;
    }
    drop(compiled);
    timed("Debian of the hosts", &|| {
        base::ensure(base::Base::default(), &progress).map(drop)
    })?;
    timed("images of Kubernetes", &|| {
        let mut versions = extent.kubernetes().iter();
        versions.try_for_each(|version| {
            images::ensure(&version.programs(&progress)?, &progress).map(drop)
        })
    })?;
    timed("other versions of kubectl", &|| {
        extent.kubectls(&progress).map(drop)
    })?;
    let kubectls = std::env::join_paths(extent.kubectls(&progress)?)?;
    Ok(Ready { times, kubectls })
}

/// Says what is begun, in whole lines between those of others.
struct Beside;

impl Progress for Beside {
    fn begin(&self, work: &str, cost: &str) {
        eprintln!("beside this: {work}: {cost}");
    }
    fn step(&self, _: &str) {}
    fn end(&self) {}
}
