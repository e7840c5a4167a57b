//! Playbooks of Windlass' own, for what kubespray has none for.
//!
//! They run with the inventory, the defaults and the variables of the checkout, in the same view of it as its own plays; so they are
//! plain tasks, and name no role but the defaults, which is the one that every release and every set of playbooks with kubespray's
//! contract has, and those of the components, which are in all of them under the same names. Each is one play. A plan names the text
//! of each by its digest, as it does the checkout.

use std::path::Path;

use ansible::slice::{self, Playbook};
use sha2::{Digest, Sha256};

/// A playbook of Windlass' own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Own {
    /// Brings the authorities that a new cluster is founded with.
    Authorities,
    /// Saves a snapshot of etcd on the first of its hosts.
    EtcdSnapshot,
    /// Brings the administrator's kubeconfig of the first control plane to this machine.
    Kubeconfig,
    /// Brings the container engine of a node to what the variables say: without its pods, which come back.
    ContainerEngine,
    /// Brings a member of etcd to what the variables say.
    Etcd,
    /// Brings the network plugin to what the variables say, on all nodes.
    NetworkPlugin,
    /// Renews the certificates of a host of the control plane.
    RenewCertificates,
    /// Stops the members of etcd that are given up, and keeps their data elsewhere.
    RecoverSetAside,
    /// Proves that members can be founded anew, and touches nothing.
    RecoverCheck,
    /// Founds etcd anew on one member, or rolls all of them back to a snapshot.
    RecoverEtcd,
    /// Has a host of the control plane serve again, on etcd that was founded anew.
    RecoverServe,
    /// Restarts a part of a host.
    Restart,
    /// Proves that a host can be the first one, and names it where the first one was named.
    ReplaceHead,
    /// Has a node ask the host that is first instead of the one that was.
    ReplaceEndpoints,
}

impl Own {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Authorities,
        Self::EtcdSnapshot,
        Self::ContainerEngine,
        Self::Etcd,
        Self::NetworkPlugin,
        Self::Kubeconfig,
        Self::RenewCertificates,
        Self::RecoverSetAside,
        Self::RecoverCheck,
        Self::RecoverEtcd,
        Self::RecoverServe,
        Self::Restart,
        Self::ReplaceHead,
        Self::ReplaceEndpoints,
    ];

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }

    /// Its name: no playbook of kubespray is called so.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authorities => "windlass-authorities",
            Self::EtcdSnapshot => "windlass-etcd-snapshot",
            Self::Kubeconfig => "windlass-kubeconfig",
            Self::ContainerEngine => "windlass-container-engine",
            Self::Etcd => "windlass-etcd",
            Self::NetworkPlugin => "windlass-network-plugin",
            Self::RenewCertificates => "windlass-renew-certificates",
            Self::RecoverSetAside => "windlass-recover-set-aside",
            Self::RecoverCheck => "windlass-recover-check",
            Self::RecoverEtcd => "windlass-recover-etcd",
            Self::RecoverServe => "windlass-recover-serve",
            Self::Restart => "windlass-restart",
            Self::ReplaceHead => "windlass-replace-head",
            Self::ReplaceEndpoints => "windlass-replace-endpoints",
        }
    }

    fn text(self) -> String {
        self.written().replace(PARTS.0, PARTS.1)
    }

    const fn written(self) -> &'static str {
        match self {
            Self::Authorities => include_str!("../../playbooks/authorities.yml"),
            Self::EtcdSnapshot => include_str!("../../playbooks/etcd-snapshot.yml"),
            Self::Kubeconfig => include_str!("../../playbooks/kubeconfig.yml"),
            Self::ContainerEngine => include_str!("../../playbooks/container-engine.yml"),
            Self::Etcd => include_str!("../../playbooks/etcd.yml"),
            Self::NetworkPlugin => include_str!("../../playbooks/network-plugin.yml"),
            Self::RenewCertificates => include_str!("../../playbooks/renew-certificates.yml"),
            Self::RecoverSetAside => include_str!("../../playbooks/recover-set-aside.yml"),
            Self::RecoverCheck => include_str!("../../playbooks/recover-check.yml"),
            Self::RecoverEtcd => concat!(
                include_str!("../../playbooks/recover-check.yml"),
                include_str!("../../playbooks/recover-found.yml")
            ),
            Self::RecoverServe => include_str!("../../playbooks/recover-serve.yml"),
            Self::Restart => include_str!("../../playbooks/restart.yml"),
            Self::ReplaceHead => include_str!("../../playbooks/replace-head.yml"),
            Self::ReplaceEndpoints => include_str!("../../playbooks/replace-endpoints.yml"),
        }
    }

    /// The digest of its text.
    pub fn digest(self) -> String {
        hex::encode(Sha256::digest(self.text()))
    }

    /// The playbook, as it runs with a checkout.
    ///
    /// # Errors
    ///
    /// It is no playbook.
    pub fn playbook(self, checkout: &Path) -> Result<Playbook, slice::Error> {
        let is_there = |role: &&str| checkout.join("roles").join(role).is_dir();
        let role = DEFAULTS.into_iter().find(is_there).unwrap_or(ROLE);
        let playbook = Playbook::of_text(self.name(), &self.text().replace(ROLE, role))?;
        Ok(playbook.with_facts_of(checkout))
    }
}

/// The line that stands for the variables by which several restart what kubeadm starts, and those.
const PARTS: (&str, &str) = ("    # parts\n", include_str!("../../playbooks/parts.yml"));
/// The role with the defaults of all variables, as the texts name it.
const ROLE: &str = "kubespray_defaults";
/// How releases spell it.
const DEFAULTS: [&str; 2] = [ROLE, "kubespray-defaults"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_one_play_with_the_defaults_as_the_checkout_spells_them() {
        let checkout = tempfile::tempdir().unwrap();
        for role in DEFAULTS {
            std::fs::create_dir_all(checkout.path().join("roles").join(role)).unwrap();
            for own in Own::ALL {
                let playbook = own.playbook(checkout.path()).unwrap();
                let [play] = playbook.slices() else {
                    panic!("{own:?} has {} plays", playbook.slices().len());
                };
                assert_eq!(
                    play.roles.first().map(String::as_str),
                    Some(role),
                    "{own:?}"
                );
                assert!(play.serial.is_none(), "{own:?}: its step names its hosts");
                assert_eq!(Own::named(playbook.name()), Some(own));
            }
            std::fs::remove_dir_all(checkout.path().join("roles").join(role)).unwrap();
        }
    }
}
