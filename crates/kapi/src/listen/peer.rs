//! Which user of this machine is at the other end of a connection over loopback.
//!
//! The kernel is asked about the one connection (`NETLINK_SOCK_DIAG`): `/proc/net/tcp` lists all of them, which somebody
//! who opens thousands could make as slow as they like.
//!
//! # Source
//! `sock_diag(7)`; `linux/inet_diag.h`: `inet_diag_req_v2` and `inet_diag_msg`.

use std::{
    fs::File,
    io::{Read, Write},
    net::{IpAddr, SocketAddr},
};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

/// A conversation with the kernel about connections.
pub(super) struct Peers(Option<File>);

impl Peers {
    /// Where the kernel does not talk about connections, everybody counts as one user.
    pub fn open() -> Self {
        let opened = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkSockDiag,
        );
        if let Err(error) = &opened {
            tracing::debug!(%error, "the users of connections are unknown");
        }
        Self(opened.ok().map(File::from))
    }

    /// The user who opened a connection to `local` from `remote`; nothing if the connection is gone.
    pub fn user(&mut self, remote: SocketAddr, local: SocketAddr) -> Option<u32> {
        let kernel = self.0.as_mut()?;
        kernel.write_all(&question(remote, local)).ok()?;
        let mut answer = [0; 512];
        let length = kernel.read(&mut answer).ok()?;
        let number = |at: usize| -> Option<u32> {
            let bytes = answer.get(..length)?.get(at..at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
        (kind == SOCK_DIAG_BY_FAMILY).then(|| number(USER_AT))?
    }
}

/// A request for the socket whose own end is `remote`: the client's.
fn question(remote: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let mut body = vec![
        family(remote.ip()),
        u8::try_from(nix::libc::IPPROTO_TCP).unwrap_or_default(),
        0,
        0,
    ];
    body.extend(u32::MAX.to_ne_bytes()); // In any state.
    body.extend(remote.port().to_be_bytes());
    body.extend(local.port().to_be_bytes());
    body.extend(octets(remote.ip()));
    body.extend(octets(local.ip()));
    body.extend(0_u32.to_ne_bytes()); // On any interface,
    body.extend([u8::MAX; 8]); // without a cookie.
    let length = u32::try_from(HEADER + body.len()).unwrap_or_default();
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn family(ip: IpAddr) -> u8 {
    let family = match ip {
        IpAddr::V4(_) => nix::libc::AF_INET,
        IpAddr::V6(_) => nix::libc::AF_INET6,
    };
    u8::try_from(family).unwrap_or_default()
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
/// The length of `nlmsghdr`.
const HEADER: usize = 16;
/// Of `idiag_uid`: after the header, four bytes, the addresses, and three numbers.
const USER_AT: usize = HEADER + 4 + 48 + 12;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_user_of_a_connection_is_known_in_both_families() {
        let mut peers = Peers::open();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (_, remote) = listener.accept().unwrap();
            let user = peers.user(remote, listener.local_addr().unwrap());
            assert_eq!(user, Some(nix::unistd::getuid().as_raw()));
            drop(client);
        }
    }

    #[test]
    fn a_connection_that_is_not_there_has_no_user() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(Peers::open().user(local, local), None);
    }
}
