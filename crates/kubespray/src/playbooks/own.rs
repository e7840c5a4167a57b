//! Playbooks of Windlass' own, for what kubespray has none for.
//!
//! They run with the inventory, the defaults and the variables of the checkout, in the same view of it as its own plays; so they are
//! plain tasks, and name no role but the defaults, which is the one that every release and every set of playbooks with kubespray's
//! contract has. Each is one play. A plan names the text of each by its digest, as it does the checkout.

use std::path::Path;

use ansible::slice::{self, Playbook};
use sha2::{Digest, Sha256};

/// A playbook of Windlass' own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Own {
    /// Saves a snapshot of etcd on the first of its hosts.
    EtcdSnapshot,
    /// Renews the certificates of a host of the control plane.
    RenewCertificates,
}

impl Own {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::EtcdSnapshot, Self::RenewCertificates];

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }

    /// Its name: no playbook of kubespray is called so.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EtcdSnapshot => "windlass-etcd-snapshot",
            Self::RenewCertificates => "windlass-renew-certificates",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::EtcdSnapshot => include_str!("../../playbooks/etcd-snapshot.yml"),
            Self::RenewCertificates => include_str!("../../playbooks/renew-certificates.yml"),
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
        Playbook::of_text(self.name(), &self.text().replace(ROLE, role))
    }
}

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
                assert_eq!(play.roles, [role], "{own:?}");
                assert!(play.serial.is_none(), "{own:?}: its step names its hosts");
                assert_eq!(Own::named(playbook.name()), Some(own));
            }
            std::fs::remove_dir_all(checkout.path().join("roles").join(role)).unwrap();
        }
    }
}
