//! Network addresses that text from outside may not lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is never one of another machine of the user's, if it is not: it then belongs to this machine, to its link or
/// to its cloud's metadata service, which answer whoever stands here with what is theirs.
///
/// Private and public addresses are all allowed: clusters live on both.
///
/// # Source
/// IANA special-purpose address registries (RFC 6890, 1122, 3927, 4291); the metadata addresses outside link-local are those of
/// AWS and Google (IPv6), Alibaba, Azure and Oracle.
pub fn refused(address: IpAddr) -> Option<&'static str> {
    match plain(address) {
        IpAddr::V4(address) => refused_v4(address),
        IpAddr::V6(address) => refused_v6(address),
    }
}

/// Whether an address is one of a network that is not the public one: of a company, a home, a provider's customers, a cluster.
///
/// # Source
/// RFC 1918, 4193, 6598.
pub fn is_private(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            address.is_private() || (first == 100 && second & 0xc0 == 64)
        }
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

/// Whether an address is that of a cloud's metadata service, which tells whoever stands here what it knows of this machine.
pub fn is_metadata(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(address) => METADATA_V4.contains(&address),
        IpAddr::V6(address) => METADATA_V6.contains(&address),
    }
}

/// The address that is meant.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(wrapping) => embedded(wrapping).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn refused_v4(address: Ipv4Addr) -> Option<&'static str> {
    if address.is_loopback() {
        Some("is loopback: this machine itself")
    } else if address.octets()[0] == 0 {
        Some("is no address of a host")
    } else if METADATA_V4.contains(&address) {
        Some("is a cloud's metadata service")
    } else if address.is_link_local() {
        Some("is link-local, where metadata services are")
    } else if address.is_multicast() || address.octets()[0] >= 240 {
        Some("is multicast, broadcast or reserved")
    } else {
        None
    }
}

fn refused_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_loopback() {
        Some("is loopback: this machine itself")
    } else if address.is_unspecified() {
        Some("is no address of a host")
    } else if METADATA_V6.contains(&address) {
        Some("is a cloud's metadata service")
    } else if address.is_unicast_link_local() {
        Some("is link-local, where metadata services are")
    } else if address.is_multicast() {
        Some("is multicast, broadcast or reserved")
    } else {
        None
    }
}

/// The address within one that only wraps it: mapped (`::ffff:`), compatible (`::a.b.c.d`), NAT64's own prefix and 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    let compatible = octets.starts_with(&[0; 12]) && !octets.starts_with(&[0; 14]);
    let start = if octets.starts_with(&MAPPED) || octets.starts_with(&NAT64) || compatible {
        12
    } else if octets.starts_with(&SIX_TO_FOUR) {
        2
    } else {
        return None;
    };
    let wrapped: &[u8; 4] = octets.get(start..)?.first_chunk()?;
    Some(Ipv4Addr::from(*wrapped))
}

const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const NAT64: [u8; 12] = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];
const SIX_TO_FOUR: [u8; 2] = [0x20, 0x02];

const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_other_machines_pass() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
        ] {
            assert!(refused(address.parse().unwrap()).is_some(), "{address}");
        }
        for address in [
            "10.0.0.1",
            "172.16.3.4",
            "192.168.1.1",
            "100.64.0.1",
            "203.0.113.9",
            "8.8.8.8",
            "2001:db8::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
        ] {
            assert_eq!(refused(address.parse().unwrap()), None, "{address}");
        }
    }
    #[test]
    fn what_is_not_public_is_told_from_what_is() {
        for (address, expected) in [
            ("10.0.0.1", true),
            ("172.31.0.1", true),
            ("192.168.1.1", true),
            ("100.64.0.1", true),
            ("fd00::1", true),
            ("::ffff:10.0.0.1", true),
            ("64:ff9b::a00:1", true),
            ("172.32.0.1", false),
            ("100.128.0.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_private(address.parse().unwrap()), expected, "{address}");
        }
        assert!(is_metadata("::ffff:169.254.169.254".parse().unwrap()));
        assert!(!is_metadata("169.254.1.1".parse().unwrap()));
    }
}
