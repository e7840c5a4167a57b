//! Clouds and services as the subjects of runs.

use api::{Run, openstack::GROUP, run::Subject};
use runs::{
    Subjects,
    subject::{Reach, Settings},
};

/// Clouds and services, whose runs are executed by processes beside the operator.
#[derive(Clone, Copy, Debug)]
pub struct Layers;

impl Subjects for Layers {
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
