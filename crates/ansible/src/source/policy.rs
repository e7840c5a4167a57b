//! What a source may be, and how much of everything it may cost: decided by whoever runs Windlass, never by who names the
//! source.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// How playbooks are brought.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// git and registries over TLS.
    Https,
    /// git by ssh.
    Ssh,
    /// git and registries in the clear.
    Http,
    /// git's own protocol, in the clear.
    Git,
    /// A git repository on this machine.
    File,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 5] = [Self::Https, Self::Ssh, Self::Http, Self::Git, Self::File];

    /// The name, as in an address.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Ssh => "ssh",
            Self::Http => "http",
            Self::Git => "git",
            Self::File => "file",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|protocol| protocol.name() == text);
        found.ok_or_else(|| {
            format!("{text:?} is not a protocol of sources: https, ssh, http, git or file")
        })
    }
}

/// Whose settings git, ssh and proxies follow.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Settings {
    /// Those of the person at this machine, who also names the sources: their git and ssh configuration, their keys.
    Person,
    /// None: whoever names the sources is a stranger to this machine. Every connection passes the gate.
    None,
}

/// How large a tree may be.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Bounds {
    /// All files together, in bytes.
    pub bytes: u64,
    /// One file, in bytes.
    pub file_bytes: u64,
    /// Files, directories and links.
    pub entries: usize,
    /// Names in a path.
    pub depth: usize,
    /// A path from the tree's root, in bytes.
    pub path_bytes: usize,
    /// What may come over the network for one tree, in bytes: an image holds much beside its playbooks.
    pub download: u64,
    /// What the layers of an image may be unpacked, in bytes.
    pub unpacked: u64,
    /// Entries of all layers of an image.
    pub layer_entries: usize,
    /// What the processes of git may take of memory, in bytes.
    pub memory: u64,
}

impl Default for Bounds {
    /// kubespray is about 10 MiB in 1,400 files, and its image about 1 GiB in 60,000 once it is unpacked.
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            file_bytes: 64 << 20,
            entries: 50_000,
            depth: 32,
            path_bytes: 1024,
            download: 1 << 30,
            unpacked: 8 << 30,
            layer_entries: 400_000,
            memory: 1 << 30,
        }
    }
}

/// How much room the trees of all sources may take.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Room {
    /// All trees together, in bytes.
    pub total: u64,
    /// The trees of one tenant, in bytes. Not less than one tree may have.
    pub share: u64,
    /// What must stay free on the volume, in bytes.
    pub reserve: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            total: 2 << 30,
            share: 512 << 20,
            reserve: 256 << 20,
        }
    }
}

/// What a source may be, and what it may cost.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Policy {
    /// Whose settings count.
    pub settings: Settings,
    /// The protocols.
    pub protocols: Vec<Protocol>,
    /// Addresses that may be reached although they are this machine's or nobody's: loopback, link-local and the like.
    pub addresses: Vec<IpNet>,
    /// Directories of this machine that path sources lie in. None: any.
    pub roots: Option<Vec<PathBuf>>,
    /// How large a tree may be.
    pub bounds: Bounds,
    /// How long one tree may take.
    pub time: Duration,
    /// How much room all trees may take.
    pub room: Room,
}

/// How long bringing one tree may take. kubespray's image takes a minute on a slow line.
const TIME: Duration = Duration::from_mins(10);

impl Policy {
    /// For a person who names the sources and runs Windlass on the same machine.
    pub fn person() -> Self {
        Self {
            settings: Settings::Person,
            protocols: Protocol::ALL.to_vec(),
            addresses: vec![
                IpNet::from(IpAddr::V4(Ipv4Addr::LOCALHOST)),
                IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            ],
            roots: None,
            bounds: Bounds {
                bytes: 1 << 30,
                entries: 200_000,
                ..Bounds::default()
            },
            time: TIME,
            room: Room {
                share: Room::default().total,
                // What a run needs to go on: the volume is the person's to fill.
                reserve: 32 << 20,
                ..Room::default()
            },
        }
    }

    /// For an operator whose sources are named by everybody who may write Clusters.
    pub fn tenants() -> Self {
        Self {
            settings: Settings::None,
            protocols: vec![Protocol::Https, Protocol::Ssh],
            addresses: Vec::new(),
            roots: Some(vec![PathBuf::from("/opt/windlass")]),
            bounds: Bounds::default(),
            time: TIME,
            room: Room::default(),
        }
    }

    /// Why an address must not be reached, after "which"; none: it may.
    pub fn refusal(&self, address: IpAddr) -> Option<&'static str> {
        // One of IPv4 may be written as one of IPv6.
        let plain = address.to_canonical();
        if self.addresses.iter().any(|net| net.contains(&plain)) {
            return None;
        }
        api::address::refused(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_allowed_is_reached_and_its_neighbours_are_not() {
        let policy = Policy {
            addresses: vec!["127.0.0.1/32".parse().unwrap()],
            ..Policy::tenants()
        };
        assert_eq!(policy.refusal("127.0.0.1".parse().unwrap()), None);
        assert_eq!(policy.refusal("::ffff:127.0.0.1".parse().unwrap()), None);
        assert!(policy.refusal("127.0.0.2".parse().unwrap()).is_some());
    }
}
