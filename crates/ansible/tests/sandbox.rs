//! Real Python environments: built once, used again, mended, refused.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod support {
    pub mod environment;
}

use std::{fs, path::Path, sync::Mutex};

use ansible::{
    catalogue::{CoreRange, CoreVersion, PythonRange, PythonVersion},
    sandbox::{Error, Packages, Request, ensure},
};

/// What costs no download: a package made here, with the two modules that count.
const STAND_IN: &str = "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n\
    [project]\nname = \"stand-in\"\nversion = \"1\"\n";

fn request(checkout: &Path) -> Request {
    Request {
        checkout: checkout.to_owned(),
        python: PythonRange {
            oldest: PythonVersion(3, 10),
            newest: PythonVersion(3, 13),
        },
        core: CoreRange {
            from: CoreVersion(2, 17, 3),
            before: CoreVersion(2, 18, 0),
        },
        packages: Packages::Any,
    }
}

#[tokio::test]
async fn an_environment_is_built_once_and_mended() {
    let shared = support::environment::sandbox().await;
    assert!(shared.ansible_playbook().is_file());
    assert_eq!((shared.core.0, shared.core.1), (2, 17));
    // Again, and twice at once: nothing but looking.
    let (one, two) = tokio::join!(
        support::environment::sandbox(),
        support::environment::sandbox()
    );
    assert_eq!(one, shared);
    assert_eq!(two, shared);
}

#[tokio::test]
async fn what_was_left_half_built_is_built_again() {
    let place = tempfile::tempdir().expect("a directory");
    let request = small(place.path());
    let cache = place.path().join("cache");
    let said = Mutex::new(Vec::new());
    let hear = |text: &str| said.lock().expect("the list").push(text.to_owned());
    let (one, two) = tokio::join!(
        ensure(&request, &cache, &hear),
        ensure(&request, &cache, &hear)
    );
    let one = one.expect("an environment");
    assert_eq!(one, two.expect("the same"));
    let built = |said: &Mutex<Vec<String>>| {
        let said = said.lock().expect("the list");
        said.iter()
            .filter(|text| text.contains("virtual environment"))
            .count()
    };
    assert_eq!(built(&said), 1, "{said:?}");
    // As a process that was killed in the middle leaves it.
    fs::remove_file(one.path.join("complete")).expect("the mark");
    fs::remove_file(one.ansible_playbook()).expect("a part");
    let mended = ensure(&request, &cache, &hear)
        .await
        .expect("an environment");
    assert_eq!(mended, one);
    assert!(one.ansible_playbook().is_file());
    assert_eq!(built(&said), 2, "{said:?}");
    // As somebody leaves it who removes a file of a complete one.
    fs::remove_file(one.ansible_playbook()).expect("a part");
    ensure(&request, &cache, &hear)
        .await
        .expect("an environment");
    assert!(one.ansible_playbook().is_file());
    // The same environment does not serve a release that wants another ansible-core.
    let mut other = request.clone();
    other.core = CoreRange {
        from: CoreVersion(2, 18, 0),
        before: CoreVersion(2, 19, 0),
    };
    let error = ensure(&other, &cache, &hear)
        .await
        .expect_err("not in the range");
    assert!(
        matches!(&error, Error::Unfit { reason, .. } if reason.contains("2.18.0")),
        "{error:?}"
    );
}

#[tokio::test]
async fn without_a_python_that_fits_it_says_what_to_install() {
    let place = tempfile::tempdir().expect("a directory");
    let mut request = small(place.path());
    let none = PythonVersion(3, 99);
    request.python = PythonRange {
        oldest: none,
        newest: none,
    };
    let cache = place.path().join("cache");
    let error = ensure(&request, &cache, &|_| {})
        .await
        .expect_err("no such Python");
    assert!(matches!(error, Error::NoPython { .. }), "{error:?}");
    assert!(
        error.to_string().contains("python3.99 with its venv"),
        "{error}"
    );
}

/// A checkout whose requirements are a package made here, so that an environment takes a second and no network.
fn small(place: &Path) -> Request {
    let package = place.join("package");
    fs::create_dir_all(&package).expect("a directory");
    fs::write(package.join("pyproject.toml"), STAND_IN).expect("pyproject");
    fs::write(package.join("backend.py"), BACKEND).expect("the backend");
    let checkout = place.join("checkout");
    fs::create_dir_all(&checkout).expect("a directory");
    let requirements = format!("stand-in @ file://{}\n", package.display());
    fs::write(checkout.join("requirements.txt"), requirements).expect("requirements");
    request(&checkout)
}

/// Makes a wheel with `ansible.release`, `netaddr` and a program `ansible-playbook`.
const BACKEND: &str = r##"
import os, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "stand_in-1-py3-none-any.whl"
    files = {
        "ansible/__init__.py": "",
        "ansible/release.py": "__version__ = '2.17.9'\n",
        "netaddr.py": "",
        "stand_in-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: stand-in\nVersion: 1\n",
        "stand_in-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "stand_in-1.data/scripts/ansible-playbook": "#!python\nprint('ansible-playbook')\n",
    }
    record = "stand_in-1.dist-info/RECORD"
    files[record] = "".join(f"{file},,\n" for file in [*files, record])
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return name
"##;

/// The file of another is not even opened, and its text is in no error.
#[tokio::test]
async fn requirements_that_lead_elsewhere_are_refused_without_their_text() {
    let place = tempfile::tempdir().expect("a directory");
    let mut request = small(place.path());
    request.packages = Packages::OfTheIndex;
    let secret = place.path().join("secret");
    fs::write(&secret, "a word of another: x\n").expect("a file");
    for line in ["-r ", "a @ file://", ""] {
        let requirements = format!("{line}{}\n", secret.display());
        fs::write(request.checkout.join("requirements.txt"), requirements).expect("requirements");
        let error = ensure(&request, &place.path().join("cache"), &|_| {})
            .await
            .expect_err("no package");
        assert!(matches!(error, Error::NotAPackage(_)), "{error:?}");
        assert!(!error.to_string().contains("a word of another"), "{error}");
    }
}

/// What comes is what the hash says, or nothing.
#[tokio::test]
async fn requirements_with_hashes_are_installed_by_them() {
    let place = tempfile::tempdir().expect("a directory");
    let request = small(place.path());
    let requirements = format!("netaddr==1.3.0 --hash=sha256:{}\n", "0".repeat(64));
    fs::write(request.checkout.join("requirements.txt"), requirements).expect("requirements");
    let error = ensure(&request, &place.path().join("cache"), &|_| {})
        .await
        .expect_err("another hash");
    assert!(
        matches!(&error, Error::Command { reason, .. } if reason.to_lowercase().contains("hash")),
        "{error:?}"
    );
}
