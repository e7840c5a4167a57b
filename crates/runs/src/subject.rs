//! What a domain gives, so that its runs get runners: the operator's half of an engine, beside [`Engine`](crate::Engine).

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Run,
    run::{ChildRun, RunSpec, Subject},
};
use kube::Client;
use serde_json::{Map, Value};

use crate::{engine::EngineError, lease_name};

/// Knows the subjects of a domain's runs.
pub trait Subjects: Send + Sync + 'static {
    /// Whether it is one of this domain. The runs of another one are left to that.
    fn is_one(&self, subject: &Subject) -> bool;

    /// What the subject of a run says of the pods of its runners: nothing, if it is gone or cannot be read.
    fn settings(&self, run: &Run) -> Settings;

    /// What the runner of a run may do and reach, beside what every runner may. Asked before its Job is made.
    fn reach(&self, run: &Run) -> Reach;

    /// Why a run that failed cannot be taken up again, if it cannot: its subject has become another one since. Whoever asks for it
    /// is told that, by whatever way they ask.
    fn outdated(&self, run: &Run) -> Option<String> {
        let _ = run;
        None
    }

    /// Plans a run that is a step of `parent`: of the subject and the operation that the step names. A domain without such steps
    /// refuses.
    ///
    /// It is planned when its step starts, for only then is it known what the steps before have left; and here, not by the runner of
    /// its parent, which may have been taken over.
    ///
    /// # Errors
    ///
    /// The run cannot be planned: the parameters are not this domain's, or the subject is not there. An API that is away is one of
    /// these too, so what is planned is best planned of what is watched.
    fn child(
        &self,
        client: &Client,
        parent: &Run,
        wanted: &ChildRun,
    ) -> impl Future<Output = Result<RunSpec, EngineError>> + Send {
        let _ = (client, parent);
        let Subject { kind, name, .. } = &wanted.subject;
        let refused = format!("no run here makes runs of other objects, as of {kind} {name}");
        async { Err(refused.into()) }
    }

    /// What the things are named after that the runners of a subject have in its namespace. No subject of another kind may have
    /// the same.
    fn name(&self, subject: &Subject) -> String {
        lease_name(&subject.kind, &subject.name)
    }
}

/// The kinds of a group whose runs are executed by processes beside the operator, and nowhere else.
///
/// What a process may is what its kubeconfig lets it: there is no pod to give rights to.
#[derive(Clone, Copy, Debug)]
pub struct OfGroup(pub &'static str);

impl Subjects for OfGroup {
    fn is_one(&self, subject: &Subject) -> bool {
        subject.api_group == self.0
    }

    fn settings(&self, _: &Run) -> Settings {
        Settings::default()
    }

    fn reach(&self, _: &Run) -> Reach {
        Reach::default()
    }
}

/// What a subject says of its runner pods, in its fields `spec.image` and `spec.runner`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `spec.image`, which Windlass itself comes from. Default: the operator's.
    pub image: Option<String>,
    /// `spec.runner.image`, which runs execute in. Default: the operator's choice.
    pub runner_image: Option<String>,
    /// `spec.runner.imagePullSecrets`, by name. Default: the operator's choice.
    pub pull_secrets: Option<Vec<String>>,
    /// `spec.runner.hostNetwork`: whether its pods use the network of their nodes.
    pub host_network: bool,
    /// `spec.runner.placement`: fields of a pod that choose its node.
    pub placement: Map<String, Value>,
    /// `spec.runner.resources`, as a container has them.
    pub resources: Map<String, Value>,
    /// Claims of further volumes, and where its pods mount them.
    pub claims: BTreeMap<String, &'static str>,
    /// `spec.runner.volumeClaimTemplate`: a volume for what is kept from run to run.
    pub volume_claim_template: Option<Map<String, Value>>,
}

/// What the runner of a run may do in its namespace and reach in the network.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reach {
    /// The subject's kind as rights name it, for example `widgets`: it reads its subject.
    pub resource: &'static str,
    /// Secrets that it reads.
    pub secrets: BTreeSet<String>,
    /// Secrets that it reads and writes. They are made for it, empty.
    pub written: BTreeSet<String>,
    /// TCP ports of what it works on.
    pub ports: BTreeSet<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_the_subjects_of_all_its_kinds_and_no_others() {
        let is_one = |api_group: &str, kind: &str| {
            OfGroup("example.com").is_one(&Subject {
                api_group: api_group.to_owned(),
                kind: kind.to_owned(),
                ..Subject::default()
            })
        };
        assert!(is_one("example.com", "Widget") && is_one("example.com", "Paint"));
        assert!(!is_one("kubespray.k8s.io", "Widget") && !is_one("", "example.com"));
    }
}
