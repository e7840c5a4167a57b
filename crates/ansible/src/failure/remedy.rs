//! What may be done about a failure on its host, by allow-list: one short script for each remedy.
//!
//! A remedy is here only where it cannot make things worse: it waits, or it removes what is fetched or made again by itself. What
//! restarts a service, ends a process or takes a lock away is none, and neither is the directory that kubespray downloads to: steps to
//! come copy from there. What a script prints is data of the host's.

use std::{collections::BTreeMap, time::Duration};

use api::{remedy::Remedy, text::plain};

/// How long a lock is waited for: unattended upgrades take minutes.
const LOCK: Duration = Duration::from_mins(15);
/// How long one command may clear for, and how long after that it is killed.
const COMMAND: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(5));
/// How much longer a host may take to answer.
const BESIDE: Duration = Duration::from_secs(30);
/// What of an answer is read.
const LINES: usize = 32;

/// What may be done about a failure of that code, in this order, as far as it is allowed.
pub fn of(code: &str) -> &'static [Remedy] {
    match code {
        "PackageManagerLocked" => &[Remedy::WaitForPackageLock],
        "DiskFull" => &[Remedy::ClearCaches, Remedy::PruneImages],
        _ => &[],
    }
}

/// The code of the failures that it is for.
pub const fn code(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::WaitForPackageLock => "PackageManagerLocked",
        Remedy::ClearCaches | Remedy::PruneImages => "DiskFull",
    }
}

/// How long a host may take for it.
pub fn limit(remedy: Remedy) -> Duration {
    let own = match remedy {
        Remedy::WaitForPackageLock => LOCK,
        Remedy::ClearCaches => of_commands(OF_CACHES),
        Remedy::PruneImages => of_commands(OF_IMAGES),
    };
    own.saturating_add(BESIDE)
}

/// How long commands may take that run one after the other.
fn of_commands(commands: &[(&str, &str)]) -> Duration {
    let each = COMMAND.0.saturating_add(COMMAND.1);
    commands.iter().map(|_| each).sum()
}

/// The script of a POSIX shell that does it.
pub fn script(remedy: Remedy) -> String {
    match remedy {
        Remedy::WaitForPackageLock => WAIT.replace("@LIMIT@", &LOCK.as_secs().to_string()),
        Remedy::ClearCaches => clearing(OF_CACHES),
        Remedy::PruneImages => clearing(OF_IMAGES),
    }
}

fn clearing(commands: &[(&str, &str)]) -> String {
    let (limit, kill) = COMMAND;
    let mut script = CLEAR
        .replace("@LIMIT@", &limit.as_secs().to_string())
        .replace("@KILL@", &kill.as_secs().to_string());
    for (directory, command) in commands {
        script += &format!("clear {directory} {command}\n");
    }
    script + "exit 0\n"
}

/// What came of it on a host, by what the script printed there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// Whether the step may do better now.
    pub helped: bool,
    /// What came of it, for people.
    pub said: String,
}

/// What the answer of a host to the script of a remedy means.
pub fn judged(remedy: Remedy, said: &str) -> Answer {
    match remedy {
        Remedy::WaitForPackageLock => of_lock(said),
        Remedy::ClearCaches | Remedy::PruneImages => of_room(said),
    }
}

/// `held PID NAME` of whoever holds it at first, then `free SECONDS` or `still`.
fn of_lock(said: &str) -> Answer {
    let mut lines = said.lines().take(LINES);
    let holder = lines.clone().find_map(|line| {
        let (pid, name) = line.strip_prefix("held ")?.split_once(' ')?;
        let pid: u32 = pid.parse().ok()?;
        Some(format!("{} (process {pid})", plain(name, 32)))
    });
    let free = lines.find_map(|line| line.strip_prefix("free ")?.trim().parse::<u32>().ok());
    let said = match (&holder, free) {
        (None, Some(_)) => "nobody holds the lock any more".to_owned(),
        (Some(holder), Some(seconds)) => format!("{holder} let the lock go after {seconds} s"),
        (Some(holder), None) => {
            let minutes = LOCK.as_secs() / 60;
            format!("{holder} still holds the lock after {minutes} min")
        }
        (None, None) => "it did not say who holds the lock".to_owned(),
    };
    Answer {
        helped: free.is_some(),
        said,
    }
}

/// `freed BEFORE AFTER PLACE` for each cache that lay on a file system that was nearly full: KiB left there, and where it is mounted.
fn of_room(said: &str) -> Answer {
    let mut freed: BTreeMap<String, u64> = BTreeMap::new();
    let mut looked = false;
    for line in said.lines().take(LINES) {
        let mut fields = line
            .strip_prefix("freed ")
            .unwrap_or_default()
            .splitn(3, ' ');
        let number = |field: Option<&str>| field?.parse::<u64>().ok();
        let (before, after) = (number(fields.next()), number(fields.next()));
        let (Some(before), Some(after), Some(place)) = (before, after, fields.next()) else {
            continue;
        };
        looked = true;
        let more = after.saturating_sub(before);
        if more > 0 {
            let sum = freed.entry(plain(place, 128)).or_default();
            *sum = sum.saturating_add(more);
        }
    }
    let told: Vec<_> = freed
        .iter()
        .map(|(place, more)| format!("{} freed on {place}", amount(*more)))
        .collect();
    let said = match (told.as_slice(), looked) {
        ([], true) => "nothing was there to be removed".to_owned(),
        ([], false) => "no file system that is nearly full holds what may be removed".to_owned(),
        (told, _) => told.join(", "),
    };
    Answer {
        helped: !freed.is_empty(),
        said,
    }
}

fn amount(kibibytes: u64) -> String {
    match kibibytes {
        0..1024 => format!("{kibibytes} KiB"),
        _ => format!("{} MiB", kibibytes / 1024),
    }
}

/// Locks of programs that install packages are locks of the kernel, which `/proc/locks` names by inode and process; older ones of yum
/// and dnf are files with the number of a process.
const WAIT: &str = r#"
PATH=$PATH:/usr/sbin:/sbin
holder() {
  for file in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock               /var/lib/rpm/.rpm.lock /usr/lib/sysimage/rpm/.rpm.lock; do
    inode=$(stat -L -c %i "$file" 2>/dev/null) || continue
    while read -r _ _ _ _ process place _; do
      [ "${place##*:}" = "$inode" ] || continue
      if [ -n "$(find -L "/proc/$process/fd" -maxdepth 1 -samefile "$file" 2>/dev/null)" ]; then echo "$process"; return; fi
    done < /proc/locks
  done
  for file in /run/yum.pid /var/cache/dnf/*.pid /var/lib/dnf/*.pid; do
    process=$(head -c 10 "$file" 2>/dev/null | tr -cd 0-9)
    if [ -n "$process" ] && [ -d "/proc/$process" ]; then echo "$process"; return; fi
  done
}
waited=0
while process=$(holder); [ -n "$process" ]; do
  [ "$waited" -gt 0 ] || echo "held $process $(cat "/proc/$process/comm" 2>/dev/null)"
  if [ "$waited" -ge @LIMIT@ ]; then echo still; exit 0; fi
  sleep 1
  waited=$((waited + 1))
done
echo "free $waited"
"#;

/// `clear DIRECTORY COMMAND...` where the file system of the directory has less than a tenth left, as the kubelet has it.
const CLEAR: &str = r#"
PATH=$PATH:/usr/sbin:/sbin:/usr/local/bin
export LC_ALL=C
left() { df -Pk "$1" 2>/dev/null | awk 'END { print $4 }'; }
clear() {
  directory=$1
  shift
  [ -d "$directory" ] && command -v "$1" >/dev/null || return 0
  df -Pk "$directory" | awk 'END { exit !($2 > 0 && $4 * 10 < $2) }' || return 0
  before=$(left "$directory")
  timeout -k @KILL@ @LIMIT@ "$@" </dev/null >/dev/null 2>&1
  echo "freed $before $(left "$directory") $(df -Pk "$directory" | awk 'END { print $6 }')"
}
"#;

/// Where caches of packages are, and what empties each.
const OF_CACHES: &[(&str, &str)] = &[
    ("/var/cache/apt/archives", "apt-get clean"),
    ("/var/cache/dnf", "dnf clean packages"),
    ("/var/cache/libdnf5", "dnf clean packages"),
    ("/var/cache/yum", "yum clean packages"),
];

/// Likewise images that no container uses.
const OF_IMAGES: &[(&str, &str)] = &[
    ("/var/lib/containerd", "crictl rmi --prune"),
    ("/var/lib/containers", "crictl rmi --prune"),
    ("/var/lib/docker", "crictl rmi --prune"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::named;

    #[test]
    fn each_remedy_is_for_a_code_of_the_table() {
        for remedy in Remedy::ALL {
            assert!(of(code(remedy)).contains(&remedy), "{remedy}");
            assert!(named(code(remedy)).is_some(), "{remedy}");
        }
        assert!(of("TaskFailed").is_empty());
    }

    #[test]
    fn a_host_has_time_for_each_command_and_what_is_no_cache_stays() {
        for (remedy, commands) in [
            (Remedy::ClearCaches, OF_CACHES),
            (Remedy::PruneImages, OF_IMAGES),
        ] {
            let script = script(remedy);
            assert!(script.contains("timeout -k 5 60 "), "{script}");
            let calls = script.lines().filter(|line| line.starts_with("clear /"));
            assert_eq!(calls.count(), commands.len(), "{script}");
            let sum = u64::try_from(commands.len()).unwrap() * 65;
            assert!(limit(remedy).as_secs() > sum, "{remedy}");
            assert!(!script.contains("/var/log"), "{script}");
        }
    }

    #[test]
    fn a_host_says_who_held_the_lock() {
        let judged = |said: &str| judged(Remedy::WaitForPackageLock, said);
        let long = format!("held 7 {}\u{1b}[2J\nfree 1\n", "x".repeat(500));
        for (said, helped, words) in [
            (
                "held 42 apt-get\nfree 3\n",
                true,
                "apt-get (process 42) let the lock go after 3 s",
            ),
            ("free 0", true, "nobody holds the lock any more"),
            (
                "held 42 apt-get\nstill",
                false,
                "apt-get (process 42) still holds the lock after 15 min",
            ),
            ("held x y\nfree -1", false, "it did not say"),
            ("", false, "it did not say"),
            (long.as_str(), true, "(process 7) let"),
        ] {
            let answer = judged(said);
            assert_eq!(answer.helped, helped, "{said}");
            assert!(answer.said.contains(words), "{answer:?}");
            assert!(answer.said.len() < 200 && !answer.said.contains('\u{1b}'));
        }
    }

    #[test]
    fn a_host_says_how_much_was_freed_and_where() {
        let judged = |said: &str| judged(Remedy::ClearCaches, said);
        for (said, helped, words) in [
            (
                "freed 0 14336 /var/cache/apt\nfreed 10 1034 /var\nfreed 1034 1035 /var\n",
                true,
                "1 MiB freed on /var, 14 MiB freed on /var/cache/apt",
            ),
            ("freed 0 9 /", true, "9 KiB freed on /"),
            ("freed 9 9 /\n", false, "nothing was there"),
            ("freed 9 8 /\n", false, "nothing was there"),
            ("freed many more /\nrm: no", false, "no file system"),
            ("", false, "no file system that is nearly full"),
        ] {
            let answer = judged(said);
            assert_eq!(answer.helped, helped, "{said}");
            assert!(answer.said.contains(words), "{answer:?}");
        }
    }
}
