//! What every Job of an operator has in common.

use super::bounds::Bounds;

/// What every Job of an operator has in common.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Template {
    /// The operator's image: `windlass` itself comes from it, so that operator and runner are one version.
    pub image: String,
    /// The image that runs execute in where their subject names none.
    pub runner_image: String,
    /// Secrets with which images are pulled, where the subject names none. They are in the namespace of the run.
    pub pull_secrets: Vec<String>,
    /// When images are pulled: Always, IfNotPresent or Never.
    pub pull_policy: String,
    /// What a runner is told beside its run: what its engine takes from the operator.
    pub arguments: Vec<String>,
    /// What a subject may ask for.
    pub bounds: Bounds,
    /// TCP ports that runner pods may reach beside those of ssh, by a NetworkPolicy. None: there is no such policy.
    pub egress_ports: Vec<u16>,
}
