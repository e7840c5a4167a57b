//! Processes of this machine: who they are and whether they still live.
//!
//! A process id alone says nothing after a restart, because ids are used again. Together with the start time that the
//! kernel keeps, it names one process for as long as the machine is up. Both are told from other numbers in another PID or time
//! namespace, as of a container that shares the machine's name or its data directory: a process of another one is not known to
//! be gone. When a namespace is gone its number may be used again, but then its processes are gone as well.

use std::{fs, os::unix::fs::MetadataExt, path::Path, str::FromStr};

use serde::{Deserialize, Serialize};

/// One process of this machine.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The machine's boot, so that identities of an earlier one are known to be gone.
    pub boot: String,
    /// The process id.
    pub pid: i32,
    /// When it started, in clock ticks after boot.
    pub started: u64,
    /// The namespaces that the numbers mean something in. None: an earlier release did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<String>,
}

impl Identity {
    /// This process.
    pub fn own() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// The process that has that id now.
    pub fn of(pid: i32) -> Option<Self> {
        Some(Self {
            boot: boot()?,
            pid,
            started: started(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?,
            namespaces: namespaces(),
        })
    }

    /// Whether it still lives. A zombie does not.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| {
            let same = self.namespaces.is_none() || self.namespaces == now.namespaces;
            (&now.boot, now.pid, now.started) == (&self.boot, self.pid, self.started) && same
        })
    }

    /// Reads it from a file that [`Identity::save`] wrote.
    pub fn load(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Writes it to a file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        fs::write(path, serde_json::to_vec(self)?)
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.boot, self.pid, self.started)?;
        match &self.namespaces {
            Some(namespaces) => write!(f, "/{namespaces}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Identity {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('/');
        let mut next = || parts.next().ok_or(());
        Ok(Self {
            boot: next()?.to_owned(),
            pid: next()?.parse().map_err(drop)?,
            started: next()?.parse().map_err(drop)?,
            namespaces: next().ok().map(str::to_owned),
        })
    }
}

/// Whether the holder of a lease is a process of this machine that is gone. A holder of another machine, or of another
/// container, is never known to be.
pub fn is_gone(holder: &str) -> bool {
    holder.parse::<Identity>().is_ok_and(|identity| {
        let here = boot().as_deref() == Some(&identity.boot)
            && identity.namespaces.is_some()
            && identity.namespaces == namespaces();
        here && !identity.is_alive()
    })
}

/// The PID and the time namespace of this process, if /proc is that of the first.
fn namespaces() -> Option<String> {
    let own = fs::read_link("/proc/self").ok()?;
    if own.to_str()?.parse() != Ok(std::process::id()) {
        return None;
    }
    let number = |name: &str| {
        Some(
            fs::metadata(Path::new("/proc/self/ns").join(name))
                .ok()?
                .ino(),
        )
    };
    let pid = number("pid")?;
    // An older kernel has one time for all.
    Some(format!("{pid}-{}", number("time").unwrap_or_default()))
}

fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// The start time from `/proc/PID/stat`: field 22. The second field is the name in parentheses and may hold anything.
/// A zombie (state Z) or dead process (X) has none.
fn started(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_is_read_back() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        assert_eq!(own.to_string().parse(), Ok(own.clone()));
        assert!(!is_gone(&own.to_string()));
    }

    #[test]
    fn an_id_that_is_used_again_is_another_process() {
        let mut own = Identity::own().unwrap();
        own.started += 1;
        assert!(!own.is_alive());
        assert!(is_gone(&own.to_string()));
    }

    #[test]
    fn nothing_is_known_of_another_machine_or_container() {
        let own = Identity::own().unwrap();
        let gone = Identity {
            started: own.started + 1,
            ..own
        };
        assert!(is_gone(&gone.to_string()));
        for elsewhere in [
            Identity {
                boot: "another".to_owned(),
                ..gone.clone()
            },
            Identity {
                namespaces: Some("1-2".to_owned()),
                ..gone.clone()
            },
            // Of an earlier release: it expires.
            Identity {
                namespaces: None,
                ..gone
            },
        ] {
            assert!(!is_gone(&elsewhere.to_string()), "{elsewhere}");
        }
        assert!(!is_gone("pod/first-create-1/uid"));
    }

    #[test]
    fn a_process_that_an_earlier_release_recorded_is_found_again() {
        let own = Identity::own().unwrap();
        let recorded = format!(
            r#"{{"boot": "{}", "pid": {}, "started": {}}}"#,
            own.boot, own.pid, own.started
        );
        let recorded: Identity = serde_json::from_str(&recorded).unwrap();
        assert!(recorded.is_alive());
    }

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(started(&format!("7 (a) b (c){tail}")), Some(4242));
        assert_eq!(started("7 (a) Z 1"), None);
    }
}
