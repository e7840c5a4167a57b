//! What a lab's hosts are called and known by, before anything runs.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{Host, LabOptions, Presence, command};

/// Names, addresses and keys, before anything runs.
pub(crate) fn declare(options: &LabOptions, dir: &Path) -> Result<Vec<Host>> {
    key_pair(&dir.join("id"), "windlass-lab")?;
    let presences = std::iter::empty()
        .chain(std::iter::repeat_n(Presence::Live, options.hosts.into()))
        .chain(std::iter::repeat_n(Presence::Dead, options.dead.into()))
        .chain(std::iter::repeat_n(
            Presence::Refusing,
            options.refusing.into(),
        ));
    let mut hosts = Vec::new();
    for (presence, number) in presences.zip(1_u8..) {
        let name = format!("host-{number}");
        let address = Ipv4Addr::new(10, 77, 0, 10 + number);
        let known_hosts = match presence {
            Presence::Live => Some(host_key(dir, &name, address)?),
            Presence::Dead | Presence::Refusing => None,
        };
        hosts.push(Host {
            name,
            address,
            presence,
            known_hosts,
        });
    }
    let known: String = hosts
        .iter()
        .filter_map(|host| host.known_hosts.clone())
        .map(|line| line + "\n")
        .collect();
    fs::write(dir.join("known_hosts"), known)?;
    let mut names = "127.0.0.1 localhost\n".to_owned();
    for host in &hosts {
        names.extend([&host.address.to_string(), " ", &host.name, "\n"]);
    }
    fs::write(dir.join("hosts.txt"), names)?;
    Ok(hosts)
}

fn host_key(dir: &Path, name: &str, address: Ipv4Addr) -> Result<String> {
    let disk = dir.join("hosts").join(name);
    fs::create_dir_all(&disk)?;
    let key = disk.join("ssh_host_ed25519_key");
    key_pair(&key, name)?;
    let public = fs::read_to_string(key.with_extension("pub")).context("read the host key")?;
    let mut words = public.split_whitespace();
    let (Some(kind), Some(body)) = (words.next(), words.next()) else {
        bail!("ssh-keygen wrote no public key");
    };
    Ok(format!("{address},{name} {kind} {body}"))
}

fn key_pair(path: &Path, comment: &str) -> Result<()> {
    command::output(
        Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"])
            .arg(path),
    )
    .context("make a key pair")?;
    Ok(())
}
