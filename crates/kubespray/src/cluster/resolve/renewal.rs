//! When the certificates of the control plane are renewed by themselves. Pure.

use std::collections::BTreeMap;

use api::{
    ClusterNode, Duration, Threshold,
    cluster::{Certificates, ClusterSpec},
    run::OnBreach,
};
use kube::ResourceExt;

use super::{Conduct, conduct};
use crate::problem::Problem;

/// How long the certificates live that kubeadm makes.
///
/// # Source
/// kubeadm `cmd/kubeadm/app/constants`, `CertificateValidityPeriod`; kubespray leaves it.
const LIFETIME: Duration = Duration::from_seconds(365 * 86_400);

/// When certificates are renewed, and how that behaves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Renewal {
    /// How long before their end, where a host says nothing of its own. None: not by themselves.
    pub before: Option<Duration>,
    /// How long before their end, of hosts that say it.
    pub of_hosts: BTreeMap<String, Duration>,
    /// As every operation.
    pub conduct: Conduct,
}

impl Renewal {
    /// How long before their end those of a host are renewed. None: not by themselves.
    pub fn of(&self, host: &str) -> Option<Duration> {
        self.of_hosts.get(host).copied().or(self.before)
    }
}

/// How long before their end certificates are renewed, as the cluster says.
pub(super) fn of_all(spec: &ClusterSpec) -> Option<Duration> {
    let all = spec.nodes.as_ref()?.all.as_ref()?;
    of(all.certificates.as_ref())
}

fn of(certificates: Option<&Certificates>) -> Option<Duration> {
    certificates?.renew
}

/// As creation, where it says nothing of its own. Of a control plane every host must answer, unless somebody says otherwise.
pub(super) fn renewal(spec: &ClusterSpec, creation: Conduct, nodes: &[ClusterNode]) -> Renewal {
    let operations = spec.operations.as_ref();
    let renew = operations.and_then(|operations| operations.renew.as_ref());
    let all_answer = Conduct {
        unreachable: Threshold::Percent(0),
        on_breach: OnBreach::Fail,
        ..creation
    };
    let own = |node: &ClusterNode| Some((node.name_any(), of(node.spec.certificates.as_ref())?));
    Renewal {
        before: of_all(spec),
        of_hosts: nodes.iter().filter_map(own).collect(),
        conduct: conduct::or_as(renew, all_answer),
    }
}

/// What is longer than certificates live would renew them without end.
pub(super) fn problems(spec: &ClusterSpec, nodes: &[ClusterNode]) -> impl Iterator<Item = Problem> {
    let all = of_all(spec).map(|renew| {
        let field = "Cluster spec.nodes.all.certificates.renew".to_owned();
        (field, renew)
    });
    let own = nodes.iter().filter_map(|node| {
        let field = format!("ClusterNode {} spec.certificates.renew", node.name_any());
        Some((field, of(node.spec.certificates.as_ref())?))
    });
    let long = all.into_iter().chain(own);
    let long = long.filter(|(_, renew)| *renew >= LIFETIME);
    long.map(|(field, renew)| {
        Problem::new(
            field,
            renew,
            format!(
                "certificates of the control plane live for {LIFETIME}: renewed so long before their end they would be renewed \
                 again at once, and without end"
            ),
            "write less, for example 60d",
        )
    })
}
