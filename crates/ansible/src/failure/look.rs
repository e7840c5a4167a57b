//! A look at a host after a failure whose words leave open what it was.
//!
//! The kernel says "No space left on device" of bytes and of inodes, a certificate is expired to a clock that runs ahead, and Ansible finds
//! no right to write where the file system takes no writes. One short script tells them apart. It changes nothing, and what it prints is data of the host's.

use std::path::Path;

use api::run::Failure;

use super::named;

/// What is looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Look {
    /// How full the file systems are.
    Disks,
    /// What time it is.
    Clock,
    /// Which file systems can only be read.
    Mounts,
}

/// A clock that is so far off is told: certificates and package lists are made with less than that to spare.
const SKEW_SECONDS: u64 = 60;

/// What is to be looked at after a failure of that code; nothing: its words say all.
pub fn look(code: &str) -> Option<Look> {
    match code {
        "DiskFull" => Some(Look::Disks),
        "CertificateExpired" | "TimeSkew" => Some(Look::Clock),
        "PermissionDenied" => Some(Look::Mounts),
        _ => None,
    }
}

impl Look {
    /// The script of a POSIX shell that looks.
    pub const fn script(self) -> &'static str {
        match self {
            // Images of read-only file systems are always full.
            Self::Disks => "df -Pk -x squashfs -x iso9660; echo inodes; df -Pi",
            Self::Clock => "date +%s",
            Self::Mounts => "cat /proc/mounts",
        }
    }

    /// The failure, told as what the script's answer says that it is. `now` is this machine's time in seconds since the epoch.
    pub fn refined(self, failure: Failure, said: &str, now: i64) -> Failure {
        match self {
            Self::Disks => of_disks(failure, said),
            Self::Clock => of_clock(failure, said, now),
            Self::Mounts => of_mounts(failure, said),
        }
    }
}

fn of_disks(failure: Failure, said: &str) -> Failure {
    let (bytes, inodes) = said.split_once("\ninodes\n").unwrap_or((said, ""));
    let (bytes, inodes) = (full(bytes), full(inodes));
    match (bytes.as_slice(), inodes.as_slice()) {
        ([], []) => failure,
        ([], inodes) => told_as(
            failure,
            "InodesFull",
            &format!("no inode is left on {}", inodes.join(", ")),
        ),
        (bytes, _) => told_as(failure, "DiskFull", &format!("full: {}", bytes.join(", "))),
    }
}

/// Where nothing is left, from what `df -P` prints: name, size, used, left, percent, place.
fn full(said: &str) -> Vec<&str> {
    let lines = said.lines().filter(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (size, left) = (fields.nth(1), fields.nth(1));
        size != Some("0") && left == Some("0")
    });
    let places = lines.filter_map(|line| line.split_ascii_whitespace().nth(5));
    places.take(5).collect()
}

fn of_clock(failure: Failure, said: &str, now: i64) -> Failure {
    let Ok(there) = said.trim().parse::<i64>() else {
        return failure;
    };
    let ahead = there.saturating_sub(now);
    if ahead.unsigned_abs() < SKEW_SECONDS {
        return failure;
    }
    let direction = if ahead > 0 { "ahead of" } else { "behind" };
    let told = format!(
        "its clock is {} s {direction} this machine's",
        ahead.unsigned_abs()
    );
    told_as(failure, "TimeSkew", &told)
}

/// From what proc(5) has of mounts: device, place, type, options. The last one at a place is the one that is seen.
fn of_mounts(failure: Failure, said: &str) -> Failure {
    let Some(path) = destination(&failure.message) else {
        return failure;
    };
    let path = Path::new(path);
    let mut seen: Option<(&str, bool)> = None;
    for line in said.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(place), Some(options)) = (fields.nth(1), fields.nth(1)) else {
            continue;
        };
        let is_nearer = seen.is_none_or(|(nearest, _)| place.len() >= nearest.len());
        if path.starts_with(place) && is_nearer {
            seen = Some((place, options.split(',').any(|option| option == "ro")));
        }
    }
    match seen {
        Some((place, true)) => {
            let told = format!("mounted to be read only: {place}");
            told_as(failure, "ReadOnlyFileSystem", &told)
        }
        _ => failure,
    }
}

/// What Ansible may not write. Where it names more paths, nobody knows which of them it is.
fn destination(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("Destination ")?;
    let (path, _) = rest.split_once(" not writable")?;
    path.starts_with('/').then_some(path)
}

fn told_as(failure: Failure, code: &str, more: &str) -> Failure {
    let message = api::text::lines(&format!("{} ({more})", failure.message), 4096);
    match named(code) {
        Some(kind) => Failure {
            class: kind.class,
            code: code.to_owned(),
            remedy: Some(kind.remedy.to_owned()),
            message,
            ..failure
        },
        None => failure,
    }
}
