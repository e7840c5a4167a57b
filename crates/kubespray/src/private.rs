//! Directories and files that are this user's alone: the data directory, and the place in memory for a run's secrets.
//!
//! What a run needs that is secret lies in memory and not on a disk: a file there is gone with the machine's power, is in no
//! backup, and leaves nothing on a disk that is thrown away. (A machine that swaps to an unencrypted disk takes that back.)
//! Pipes and file descriptors were rejected: Ansible reads its files again in each of its workers, and outlives the runner.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use nix::{
    sys::{
        stat::{Mode, umask},
        statfs::{TMPFS_MAGIC, statfs},
    },
    unistd::geteuid,
};
use serde::Deserialize;

use runs::{process::Identity, supervisor::IDENTITY};

use crate::layout::Layout;

/// What stands directly in a data directory: nothing else does.
const OWN: [&str; 8] = [
    "clusters",
    "lock",
    "lost+found",
    "moved",
    "pki",
    "runs",
    "sandboxes",
    "sources",
];

/// How the names of files in it begin: with what SQLite, and a person who makes a copy, put beside them.
const OWN_FILES: [&str; 3] = ["state.db", "secrets.key", "kubeconfig"];

/// What Kubernetes sets in every pod, and nobody else anywhere.
const IN_A_POD: &str = "KUBERNETES_SERVICE_HOST";

/// The name of the file that says whose a place in memory is.
const OWNER: &str = "run";

/// Why a directory cannot be the data directory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be made or looked at.
    #[error("use {path} as the data directory")]
    File {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is a link, or no directory.
    #[error(
        "use {0} as the data directory: it is a link or a file, and who may change it would choose where secrets go; name \
         the directory itself with --data-dir"
    )]
    NoDirectory(PathBuf),
    /// It is another user's.
    #[error(
        "use {path} as the data directory: it belongs to the user with the number {owner}, and this is the user with the \
         number {own}; start Windlass as its owner, give it away (chown -R {own} {path}), or name another with --data-dir"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        own: u32,
    },
    /// Others may use it, and it holds what is not Windlass'.
    #[error(
        "use {path} as the data directory: other users may look into it (mode {mode:03o}), and {foreign}; name a directory of its own with --data-dir, or close this one (chmod 700 {path})"
    )]
    Shared {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Why it is not closed.
        foreign: String,
    },
}

/// Lets no file that this process and its children make be read by others.
pub fn close() {
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
}

/// Makes the data directory, or makes sure that it is ours alone. One that others may look into is closed.
///
/// # Errors
///
/// It cannot be made or closed, is no directory, or belongs to somebody else.
pub fn data_directory(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    make(path).map_err(failed)?;
    let found = fs::symlink_metadata(path).map_err(failed)?;
    if !found.is_dir() {
        return Err(Error::NoDirectory(path.to_owned()));
    }
    let own = geteuid().as_raw();
    if found.uid() != own {
        // A volume of a pod is root's, who reaches all of it anyway, and is mounted by this pod alone.
        if found.uid() == 0 && std::env::var_os(IN_A_POD).is_some() {
            return Ok(());
        }
        return Err(Error::Foreign {
            path: path.to_owned(),
            owner: found.uid(),
            own,
        });
    }
    let mode = found.permissions().mode() & 0o7777;
    if !is_wide(mode) {
        return Ok(());
    }
    if let Some(foreign) = foreign(path, mode).map_err(failed)? {
        return Err(Error::Shared {
            path: path.to_owned(),
            mode,
            foreign,
        });
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    tracing::warn!(
        path = %path.display(), mode = format!("{mode:03o}"),
        "other users could look into the data directory: it is closed to them now (mode 700)"
    );
    Ok(())
}

/// Why a directory is not to be closed: it is no data directory, but /tmp, say.
fn foreign(path: &Path, mode: u32) -> io::Result<Option<String>> {
    const STICKY: u32 = 0o1000;
    if mode & STICKY != 0 {
        return Ok(Some("it is one that everybody may use".to_owned()));
    }
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let own =
            OWN.contains(&name.as_str()) || OWN_FILES.iter().any(|prefix| name.starts_with(prefix));
        if !own {
            return Ok(Some(format!("{name} in it is not Windlass'")));
        }
    }
    Ok(None)
}

/// Whether anybody but the owner may do anything.
const fn is_wide(mode: u32) -> bool {
    const OTHERS: u32 = 0o077;
    mode & OTHERS != 0
}

fn make(path: &Path) -> io::Result<()> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    match made {
        // A link to nothing, or a file: told apart later.
        Err(_) if fs::symlink_metadata(path).is_ok() => Ok(()),
        made => made,
    }
}

/// Makes a directory that is ours alone, or makes sure that it is: in a place where everybody may make one, somebody else
/// may have been there first.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    make(path)?;
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        let text = "it is a link, a file, or another user's directory; remove it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if is_wide(found.permissions().mode()) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Where a run keeps what is secret.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The directory. Short: ssh's sockets have paths of at most 107 characters.
    pub(crate) path: PathBuf,
    /// Whether it lies in memory.
    pub(crate) in_memory: bool,
}

impl Place {
    /// Makes it, and says whose it is. The same for the same run directory, so that a later runner finds what a killed one left.
    pub(crate) fn make(run: &Path) -> io::Result<Self> {
        let memory = memory();
        let in_memory = memory.is_some();
        let parent = memory.unwrap_or_else(std::env::temp_dir);
        let path = ansible::chance_directory(&run.join(RECORD), &parent)?;
        let owner = run.as_os_str().as_encoded_bytes();
        ansible::write_private(&path.join(OWNER), owner)?;
        Ok(Self { path, in_memory })
    }
}

/// What leads there, in the run's directory.
const RECORD: &str = "private";

/// A directory that is memory, if there is one.
pub fn memory() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [Some(PathBuf::from("/dev/shm")), runtime]
        .into_iter()
        .flatten()
        .find(|path| statfs(path).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC))
}

/// Removes what a run has in memory.
pub(crate) fn forget(run: &Path) -> io::Result<()> {
    ansible::remove_recorded(&run.join(RECORD))
}

/// A place for as long as this lives: it goes with it, whatever becomes of the directory that leads there and of the task that holds it.
pub(crate) struct Lent {
    /// The place.
    pub(crate) place: Place,
    /// The directory that leads there.
    pub(crate) run: PathBuf,
}

impl Lent {
    /// Makes it as [`Place::make`] does.
    pub(crate) fn make(run: &Path) -> io::Result<Self> {
        let place = Place::make(run)?;
        let run = run.to_owned();
        Ok(Self { place, run })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let removed = match fs::remove_dir_all(&self.place.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => forget(&self.run),
        };
        if let Err(error) = removed {
            tracing::warn!(
                path = %self.place.path.display(), error = &error as &dyn std::error::Error,
                "a private directory was not removed"
            );
        }
    }
}

/// Removes what runs of this data directory left in memory whose runner and playbook are gone: a runner that goes on with
/// one of them writes it anew.
pub(crate) fn sweep(layout: &Layout) {
    let Some(memory) = memory() else { return };
    for entry in fs::read_dir(memory).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = entry
            .file_name()
            .to_string_lossy()
            .starts_with(ansible::CHANCE_PREFIX)
            && fs::symlink_metadata(&path)
                .is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
        let Some(run) = fs::read_to_string(path.join(OWNER)).ok().filter(|_| ours) else {
            continue;
        };
        let run = Path::new(&run);
        if !run.starts_with(layout.root()) || is_at_work(run) {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => tracing::info!(
                run = %run.display(),
                "removed the secrets that a runner left in memory"
            ),
            Err(error) => tracing::warn!(
                path = %path.display(), error = &error as &dyn std::error::Error,
                "the secrets that a runner left in memory were not removed"
            ),
        }
    }
}

/// Whether a run's runner lives, or a playbook that outlived it.
fn is_at_work(run: &Path) -> bool {
    /// As the crate `ansible` records a process.
    #[derive(Deserialize)]
    struct Recorded {
        pid: i32,
        start: u64,
        boot: String,
    }
    let playbook = |work: fs::DirEntry| {
        let bytes = fs::read(work.path().join("process.json")).ok()?;
        let recorded: Recorded = serde_json::from_slice(&bytes).ok()?;
        Some(Identity {
            boot: recorded.boot,
            pid: recorded.pid,
            started: recorded.start,
            namespaces: None,
        })
    };
    let works = fs::read_dir(run.join("work")).into_iter().flatten();
    works
        .flatten()
        .filter_map(playbook)
        .chain(Identity::load(&run.join(IDENTITY)))
        .any(|process| process.is_alive())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_data_directory_is_made_for_its_user_alone_and_a_wide_one_is_closed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("deep/data");
        data_directory(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        fs::write(path.join("state.db-wal"), "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        data_directory(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn a_directory_that_is_not_windlass_alone_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let shared = parent.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::write(shared.join("passwd"), "").unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = data_directory(&shared).unwrap_err();
        assert!(
            matches!(&refused, Error::Shared { foreign, .. } if foreign.starts_with("passwd "))
        );
        assert!(refused.to_string().contains("mode 755"), "{refused}");
        assert_eq!(mode(&shared), 0o755);
        fs::remove_file(shared.join("passwd")).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(data_directory(&shared).is_err());

        let link = parent.path().join("link");
        symlink(&shared, &link).unwrap();
        let refused = data_directory(&link).unwrap_err();
        assert!(matches!(refused, Error::NoDirectory(_)), "{refused}");
        symlink("nowhere", parent.path().join("dangling")).unwrap();
        let refused = data_directory(&parent.path().join("dangling")).unwrap_err();
        assert!(matches!(refused, Error::NoDirectory(_)), "{refused}");
        assert!(matches!(
            directory(&link),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied
        ));
    }

    #[test]
    fn a_lent_place_goes_though_the_directory_that_leads_there_has_gone() {
        let data = tempfile::tempdir().unwrap();
        for is_gone in [false, true] {
            let run = data.path().join("radar");
            fs::create_dir_all(&run).unwrap();
            let lent = Lent::make(&run).unwrap();
            let path = lent.place.path.clone();
            fs::write(path.join("key"), "secret").unwrap();
            if is_gone {
                fs::remove_dir_all(&run).unwrap();
            }
            drop(lent);
            assert!(!path.exists() && fs::read_link(run.join(RECORD)).is_err());
        }
    }

    #[test]
    fn another_users_directory_is_refused() {
        // Of root, or where this is root of nobody.
        let parent = tempfile::tempdir().unwrap();
        let path = if geteuid().is_root() {
            let path = parent.path().join("data");
            fs::create_dir(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            path
        } else {
            PathBuf::from("/")
        };
        let refused = data_directory(&path).unwrap_err();
        assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
        assert!(directory(&path).is_err());
    }

    #[test]
    fn what_a_killed_runner_left_in_memory_is_removed_and_what_is_in_use_is_not() {
        let data = tempfile::tempdir().unwrap();
        let layout = Layout::new(data.path());
        let place = |run: &str| {
            let directory = layout.run("demo", run);
            fs::create_dir_all(&directory).unwrap();
            let place = Place::make(&directory).unwrap();
            fs::write(place.path.join("key"), "secret").unwrap();
            (place, directory)
        };
        let (dead, _) = place("dead");
        let (live, run) = place("live");
        Identity::own().unwrap().save(&run.join(IDENTITY)).unwrap();
        let other = tempfile::tempdir().unwrap();
        sweep(&Layout::new(other.path()));
        assert!(dead.path.exists());
        sweep(&layout);
        assert!(!dead.path.exists());
        assert!(live.path.exists());
        assert_eq!(Place::make(&run).unwrap().path, live.path);
        forget(&run).unwrap();
        assert!(!live.path.exists());
    }
}
