//! Which clusters use which Python environment: noted beside it, so that one that nobody uses can go.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use runs::sweep::{absent, entries};

/// How the directory of the users of an environment ends.
const USERS: &str = "users";

/// Notes that a cluster uses the Python environment of that digest, and none of the others any more.
pub(crate) fn note_use(sandboxes: &Path, digest: &str, of: (&str, &str)) -> io::Result<()> {
    let (namespace, cluster) = of;
    // No namespace has a dot in its name.
    let user = format!("{namespace}.{cluster}");
    for (_, users) in used(sandboxes)? {
        if users != sandboxes.join(format!("{digest}.{USERS}")) {
            absent(fs::remove_file(users.join(&user)))?;
        }
    }
    let users = sandboxes.join(format!("{digest}.{USERS}"));
    fs::create_dir_all(&users)?;
    // Written anew, so that its time is that of the last use.
    fs::write(users.join(user), "used\n")
}

/// Python environments whose use is noted, by digest, and where. What a person made by hand stays.
pub(crate) fn used(sandboxes: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let users = entries(sandboxes)?.into_iter().filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let digest = name.strip_suffix(USERS)?.strip_suffix('.')?;
        Some((digest.to_owned(), entry.path()))
    });
    Ok(users.collect())
}
