//! Where releases may be brought from: decided by whoever runs the operator, never by who writes providers.

use std::{net::IpAddr, time::Duration};

use ipnet::IpNet;

/// Which releases are brought over the network at all.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Reach {
    /// None: what is installed is in ConfigMaps.
    Nowhere,
    /// Those of providers that name an address.
    #[default]
    Named,
    /// Those too of providers that are known by their name alone, from where clusterctl takes them.
    Known,
}

/// Where releases may be brought from.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Which ones are.
    pub reach: Reach,
    /// Addresses that may be reached although they are private, this machine's or nobody's.
    pub addresses: Vec<IpNet>,
    /// Certificates of authorities, in PEM, that are trusted beside those of the machine. None: those alone.
    pub authorities: Option<Vec<u8>>,
    /// How long one release may take.
    pub time: Duration,
    /// How long a server may say nothing.
    pub silence: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            reach: Reach::default(),
            addresses: Vec::new(),
            authorities: None,
            time: Duration::from_mins(2),
            silence: Duration::from_secs(30),
        }
    }
}

impl Policy {
    /// For a person who writes the providers and runs Windlass on the same machine, whose network is theirs.
    pub fn person() -> Self {
        let networks = [
            "127.0.0.0/8",
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "100.64.0.0/10",
            "::1/128",
            "fc00::/7",
        ];
        Self {
            reach: Reach::Known,
            addresses: networks.iter().filter_map(|net| net.parse().ok()).collect(),
            ..Self::default()
        }
    }

    /// Whether an address is one of those that may be reached whatever it is.
    pub fn allows(&self, address: IpAddr) -> bool {
        // One of IPv4 may be written as one of IPv6.
        let plain = address.to_canonical();
        self.addresses.iter().any(|net| net.contains(&plain))
    }

    /// Why an address must not be reached, after "which"; none: it may.
    pub fn refusal(&self, address: IpAddr) -> Option<&'static str> {
        let is_allowed = self.allows(address);
        match api::address::refused(address) {
            // A network of a person may lie around one of these.
            Some(what) => (!is_allowed || api::address::is_metadata(address)).then_some(what),
            None => (!is_allowed && api::address::is_private(address)).then_some("is private"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass_and_those_that_are_allowed() {
        let policy = Policy {
            addresses: vec!["10.1.0.0/16".parse().unwrap()],
            ..Policy::default()
        };
        for (address, passes) in [
            ("203.0.113.9", true),
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("192.168.1.1", false),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("fd00::1", false),
        ] {
            let refusal = policy.refusal(address.parse().unwrap());
            assert_eq!(refusal.is_none(), passes, "{address}: {refusal:?}");
        }
        let person = Policy::person();
        assert_eq!(person.addresses.len(), 7);
        assert_eq!(person.refusal("192.168.1.1".parse().unwrap()), None);
        for metadata in ["169.254.169.254", "fd00:ec2::254", "100.100.100.200"] {
            assert!(person.refusal(metadata.parse().unwrap()).is_some());
        }
    }
}
