//! Providers as the subjects of runs.

use api::{Run, provider::GROUP, run::Subject};
use runs::{
    Subjects,
    subject::{Reach, Settings},
};

/// The providers, whose runs are executed by processes beside the operator.
#[derive(Clone, Copy, Debug)]
pub struct Providers;

impl Subjects for Providers {
    fn is_one(&self, subject: &Subject) -> bool {
        subject.api_group == GROUP
    }

    fn settings(&self, _: &Run) -> Settings {
        Settings::default()
    }

    /// What a process may is what its kubeconfig lets it: there is no pod to give rights to.
    fn reach(&self, _: &Run) -> Reach {
        Reach::default()
    }
}
