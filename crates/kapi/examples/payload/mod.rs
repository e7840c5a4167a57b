//! What the objects of a measurement hold.

use std::{
    fmt::Write,
    hash::{DefaultHasher, Hash, Hasher},
};

/// An inventory of about 3,700 bytes, which differs from client to client. It is text with names, addresses and digests,
/// as people keep it, because a server may compress what it keeps: one letter repeated would flatter that.
///
/// Ends of lines are written as in JSON.
pub(crate) fn inventory(client: usize) -> String {
    let mut text = String::new();
    let mut host = 0_usize;
    while text.len() < SIZE {
        let mut hasher = DefaultHasher::new();
        (client, host).hash(&mut hasher);
        let digest = hasher.finish();
        let [a, b, c, ..] = digest.to_be_bytes();
        let _ = write!(
            text,
            r"node-{host}:\n  ansible_host: 10.{a}.{b}.{c}\n  machine_id: {digest:016x}\n  etcd_member_name: etcd-{host}\n"
        );
        host += 1;
    }
    text
}

const SIZE: usize = 3_700;
