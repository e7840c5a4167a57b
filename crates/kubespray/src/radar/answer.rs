//! What a host is asked, and what it answers. Pure.

use std::collections::BTreeMap;

use api::{
    radar::{Finding, MOST_THINGS},
    text::plain,
};
use sha2::{Digest as _, Sha256};

/// Files that the playbooks write and that nobody else changes while no run is at work: static pods, the settings and units of the
/// kubelet, of the container engine and of etcd, what the kernel and the proxy of the API server are told. No keys, no certificates and
/// no kubeconfigs: those are renewed by whom they are of. Of /etc/hosts the blocks alone that Ansible wrote. What may be many comes last,
/// and is so many at most that all of it fits.
const ASK: &str = r#"
LC_ALL=C; PATH=$PATH:/usr/local/bin:/usr/local/sbin:/opt/bin
export LC_ALL PATH
echo begin
echo "clock $(date +%s)"
if [ -f /etc/hosts ]; then
  printf 'file '; sed -n '/^# .*BEGIN/,/^# .*END/p' /etc/hosts | sha256sum | sed 's|-$|/etc/hosts|'
fi
units='kubelet containerd docker crio etcd'
systemctl is-active $units 2>/dev/null | for unit in $units; do read -r state && echo "unit $unit $state"; done
echo "version kubelet $(kubelet --version 2>/dev/null)"
echo "version containerd $(containerd --version 2>/dev/null)"
echo "kernel $(uname -r)"
if [ "$(wc -l </proc/swaps)" -gt 1 ]; then echo swap on; else echo swap off; fi
df -Pk / /var/lib /var/lib/kubelet /var/lib/etcd /var/lib/containerd 2>/dev/null | sed '1d; s/^/disk /'
df -Pi / /var/lib /var/lib/kubelet /var/lib/etcd /var/lib/containerd 2>/dev/null | sed '1d; s/^/inodes /'
set --
for file in /etc/kubernetes/manifests/* /etc/kubernetes/kubelet.env /etc/kubernetes/kubelet-config.yaml \
  /etc/kubernetes/kubeadm-config.yaml /etc/kubernetes/kubeadm-client.conf /etc/kubernetes/audit-policy/*.yaml \
  /etc/kubernetes/admission-controls/*.yaml /etc/default/kubelet /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env \
  /etc/systemd/system/kubelet.service /etc/systemd/system/containerd.service /etc/systemd/system/docker.service \
  /etc/systemd/system/crio.service /etc/systemd/system/cri-dockerd.service /etc/systemd/system/etcd.service \
  /etc/systemd/system/kubelet.service.d/*.conf /etc/systemd/system/containerd.service.d/*.conf \
  /etc/systemd/system/docker.service.d/*.conf /etc/systemd/system/crio.service.d/*.conf /etc/systemd/system/etcd.service.d/*.conf \
  /etc/containerd/config.toml /etc/containerd/certs.d/*/hosts.toml /etc/docker/daemon.json /etc/crio/crio.conf \
  /etc/crio/crio.conf.d/*.conf /etc/crictl.yaml /etc/etcd.env /etc/nginx/nginx.conf /etc/haproxy/haproxy.cfg \
  /etc/sysctl.d/95-kubernetes.conf /etc/sysctl.d/99-sysctl.conf; do
  if [ -f "$file" ]; then set -- "$@" "$file"; fi
done
if [ $# -gt 0 ]; then sha256sum -- "$@" 2>/dev/null | head -n 112 | sed 's/^/file /'; fi
echo end
"#;

/// How far a clock may be off, in seconds: certificates, leases and tokens bear it.
const CLOCK: i64 = 5;
/// How full a disk may be, in percent. A kubelet that is left to itself clears space at 85 and 90.
const FULL: u8 = 95;
/// How much of a digest is kept, in characters: a host that wants to deceive needs none of it.
const DIGEST: usize = 32;

/// The script that asks.
pub(crate) const fn question() -> &'static str {
    ASK
}

/// A digest of the script, by which two answers to the same are known.
fn asked() -> String {
    let mut digest = hex::encode(Sha256::digest(ASK));
    digest.truncate(16);
    digest
}

/// What a host is like.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Look {
    /// A digest of what was asked.
    pub asked: String,
    /// What is held against an earlier look.
    pub things: BTreeMap<String, String>,
    /// What is wrong whatever it was before.
    pub troubles: Vec<Finding>,
}

/// Reads what a host said between these two times of the operator's, in seconds.
///
/// # Errors
///
/// It did not say all that was asked: says so.
pub fn read(said: &str, (began, ended): (i64, i64)) -> Result<Look, String> {
    let lines: Vec<&str> = said.lines().skip_while(|line| *line != "begin").collect();
    if lines.last() != Some(&"end") {
        return Err("it did not say all that was asked".to_owned());
    }
    let mut look = Look {
        asked: asked(),
        ..Look::default()
    };
    for line in lines {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "clock" => look.troubles.extend(off(rest, began, ended)),
            "disk" => look.troubles.extend(full("disk", "space", rest)),
            "inodes" => look.troubles.extend(full("inodes", "inodes", rest)),
            _ => {
                if let Some((thing, value)) = thing(kind, rest)
                    && look.things.len() < MOST_THINGS
                {
                    look.things.insert(thing, value);
                }
            }
        }
    }
    look.troubles.sort_by(|a, b| a.thing.cmp(&b.thing));
    look.troubles.dedup();
    Ok(look)
}

fn thing(kind: &str, rest: &str) -> Option<(String, String)> {
    let rest = rest.trim();
    match kind {
        "file" => {
            // A name that needs it is told with a backslash before the line.
            let (digest, path) = rest.trim_start_matches('\\').split_once(' ')?;
            let digest = digest.get(..DIGEST)?;
            let path = path.trim_start_matches([' ', '*']);
            let is_digest = digest.bytes().all(|byte| byte.is_ascii_hexdigit());
            (is_digest && path.starts_with('/'))
                .then(|| (plain(path, 200), digest.to_ascii_lowercase()))
        }
        "unit" | "version" => {
            let (name, value) = rest.split_once(' ')?;
            let value = if kind == "version" {
                version(value)?
            } else {
                value
            };
            Some((format!("{kind} {}", plain(name, 32)), plain(value, 64)))
        }
        "kernel" | "swap" if !rest.is_empty() => Some((kind.to_owned(), plain(rest, 64))),
        _ => None,
    }
}

/// The word of an answer that is a version: programs say more of themselves.
fn version(said: &str) -> Option<&str> {
    let mut words = said.split_whitespace();
    words.find(|word| {
        let number = word.trim_start_matches('v');
        number.starts_with(|first: char| first.is_ascii_digit()) && number.contains('.')
    })
}

/// That a clock is off. By how much is not told: it would be something else at each look.
fn off(said: &str, began: i64, ended: i64) -> Option<Finding> {
    let clock: i64 = said.trim().parse().ok()?;
    let earliest = began.saturating_sub(CLOCK);
    let latest = ended.saturating_add(CLOCK);
    let way = match clock {
        clock if clock < earliest => "behind",
        clock if clock > latest => "ahead of",
        _ => return None,
    };
    Some(Finding {
        thing: "clock".to_owned(),
        change: format!("it is more than {CLOCK} s {way} the operator's"),
    })
}

/// That a disk is full, by a line of df: what is used of it in percent, and where it is.
fn full(kind: &str, what: &str, said: &str) -> Option<Finding> {
    let words: Vec<&str> = said.split_whitespace().collect();
    let [.., used, at] = words.as_slice() else {
        return None;
    };
    let used: u8 = used.strip_suffix('%')?.parse().ok()?;
    (used >= FULL).then(|| Finding {
        thing: format!("{kind} {}", plain(at, 128)),
        change: format!("no more than {} % of its {what} are free", 100 - FULL),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(with: &str) -> String {
        let digest = "0A".repeat(32);
        format!(
            "Welcome\nbegin\nclock 1000\nfile {digest}  /etc/kubernetes/kubelet.env\nfile \\{digest}  /etc/kubernetes/manifests/a\\\\b.yaml\n\
             file {digest}  /etc/hosts\nunit kubelet active\nunit etcd inactive\nversion kubelet Kubernetes v1.34.3\n\
             version containerd containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1\nkernel 6.1.0-13-amd64\nswap off\n\
             disk /dev/vda 1000 500 500 50% /\ninodes /dev/vda 1000 500 500 50% /\n{with}end\n"
        )
    }

    #[test]
    fn a_host_is_read_thing_by_thing() {
        let look = read(&said(""), (998, 1003)).unwrap();
        assert_eq!(look.troubles, []);
        let things: Vec<_> = look
            .things
            .iter()
            .map(|(thing, value)| format!("{thing}={value}"))
            .collect();
        let digest = "0a".repeat(16);
        assert_eq!(
            things,
            [
                &*format!("/etc/hosts={digest}"),
                &*format!("/etc/kubernetes/kubelet.env={digest}"),
                &*format!("/etc/kubernetes/manifests/a\\\\b.yaml={digest}"),
                "kernel=6.1.0-13-amd64",
                "swap=off",
                "unit etcd=inactive",
                "unit kubelet=active",
                "version containerd=1.6.20~ds1",
                "version kubelet=v1.34.3",
            ]
        );
    }

    #[test]
    fn what_is_wrong_by_itself_is_told_in_words_that_stay() {
        for (with, clocks, expected) in [
            (
                "",
                (1006, 1010),
                "clock: it is more than 5 s behind the operator's",
            ),
            (
                "",
                (900, 994),
                "clock: it is more than 5 s ahead of the operator's",
            ),
            ("", (1005, 1010), ""),
            (
                "disk /dev/vdb 9 9 0 95% /var/lib/etcd\n",
                (1000, 1000),
                "disk /var/lib/etcd: no more than 5 % of its space are free",
            ),
            (
                "inodes /dev/vdb 9 9 0 100% /data\n",
                (1000, 1000),
                "inodes /data: no more than 5 % of its inodes are free",
            ),
            ("inodes overlay - - - - /data\n", (1000, 1000), ""),
        ] {
            let look = read(&said(with), clocks).unwrap();
            let told: Vec<_> = look
                .troubles
                .iter()
                .map(|found| format!("{}: {}", found.thing, found.change))
                .collect();
            assert_eq!(told.join("; "), expected, "{with} {clocks:?}");
        }
    }

    #[test]
    fn what_a_host_makes_up_is_bounded_plain_and_not_half_an_answer() {
        assert!(read("begin\nkernel 6\n", (0, 0)).is_err());
        assert!(read("", (0, 0)).is_err());
        let digest = "b".repeat(64);
        let many: Vec<_> = (0..1000)
            .map(|number| format!("file {digest}  /x/{number}"))
            .collect();
        let many = many.join("\n");
        let look = read(&format!("begin\nclock x\n{many}\nend"), (0, 0)).unwrap();
        assert_eq!(look.things.len(), MOST_THINGS);
        let odd = format!(
            "begin\nfile {}  /a\u{1b}[2J\u{202e}b\nfile {}  relative\nfile zz  /c\nunit x\nversion a none\nkernel \ndisk %\nend",
            "c".repeat(64),
            "c".repeat(64)
        );
        let look = read(&odd, (0, 0)).unwrap();
        let things: Vec<_> = look.things.keys().collect();
        assert_eq!(things.len(), 1, "{things:?}");
        assert!(api::text::is_plain(things[0]), "{things:?}");
    }

    #[test]
    fn many_files_leave_room_for_everything_else() {
        let (_, rest) = ASK.split_once("head -n ").unwrap();
        let most: usize = rest.split_whitespace().next().unwrap().parse().unwrap();
        let files = (0..most).map(|number| format!("file {}  /x/{number}\n", "b".repeat(64)));
        let files: String = files.collect();
        let units = "unit kubelet a\nunit containerd a\nunit docker a\nunit crio a\nunit etcd a\n";
        let before = said(units).replace("end\n", "");
        let fixed = read(&format!("{before}end\n"), (1000, 1000))
            .unwrap()
            .things
            .len();
        let look = read(&format!("{before}{files}end\n"), (1000, 1000)).unwrap();
        assert_eq!(look.things.len(), fixed + most);
    }

    #[test]
    fn answers_survive_fuzzing() {
        fuzz::text("radar", &[&said("disk /dev/vdb 9 9 0 95% /d\n")], |said| {
            let Ok(look) = read(said, (0, 0)) else { return };
            assert!(look.things.len() <= MOST_THINGS);
            for (thing, value) in &look.things {
                assert!(thing.len() <= 256 && value.len() <= 128, "{thing}");
                assert!(api::text::is_plain(thing) && api::text::is_plain(value));
            }
        });
    }
}
