//! A real Ansible for the tests, built once per machine in the user's cache.

use std::path::PathBuf;

use ansible::{
    catalogue::{CoreRange, CoreVersion, PythonRange, PythonVersion},
    sandbox::{Packages, Request, Sandbox, ensure},
};

/// The environment of `ansible-core` 2.17, as kubespray 2.29 and 2.30 want it.
pub async fn sandbox() -> Sandbox {
    let checkout = tempfile::tempdir().expect("a directory");
    let requirements = "ansible-core>=2.17.3,<2.18\nnetaddr\n";
    std::fs::write(checkout.path().join("requirements.txt"), requirements).expect("requirements");
    let request = Request {
        checkout: checkout.path().to_owned(),
        python: PythonRange {
            oldest: PythonVersion(3, 10),
            newest: PythonVersion(3, 12),
        },
        core: CoreRange {
            from: CoreVersion(2, 17, 3),
            before: CoreVersion(2, 18, 0),
        },
        packages: Packages::OfTheIndex,
    };
    ensure(&request, &cache(), &|_| {})
        .await
        .expect("an environment")
}

fn cache() -> PathBuf {
    std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("windlass/sandboxes")
}
