//! What is in an image, for those who look for known holes: a bill of materials in CycloneDX, beside the image.
//!
//! Crates come from `Cargo.lock`, as far as the program is made of them; Debian's packages and Python's from what their
//! package managers keep in the runner's file system. Nothing in it tells when or where it was made, so that the same image
//! has the same bill.
//!
//! # Source
//! CycloneDX 1.5, <https://cyclonedx.org/docs/1.5/json/>; the package URLs of <https://github.com/package-url/purl-spec>.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// A package in an image.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Component {
    purl: String,
    name: String,
    version: String,
    /// SHA-256 of the archive that it came in, in hex, where that is known.
    sha256: Option<String>,
}

impl Component {
    fn json(&self) -> Value {
        let mut component = json!({
            "type": "library", "bom-ref": self.purl, "name": self.name, "version": self.version, "purl": self.purl,
        });
        if let Some(sha256) = &self.sha256 {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sha256}]);
        }
        component
    }
}

/// The bill of an image.
pub(super) fn bill(name: &str, digest: &str, components: &BTreeSet<Component>) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "container", "bom-ref": name, "name": name, "version": version,
            "hashes": [{"alg": "SHA-256", "content": digest.trim_start_matches("sha256:")}],
        }},
        "components": components.iter().map(Component::json).collect::<Vec<_>>(),
    })
}

/// The crates of a program: those that `cargo tree --prefix none --format {p}` lists, with their checksums of `Cargo.lock`.
pub(super) fn crates(lock: &str, tree: &str) -> BTreeSet<Component> {
    let checksums: BTreeMap<(&str, &str), &str> = lock
        .split("[[package]]")
        .filter_map(|package| {
            let value = |key: &str| {
                let mut lines = package.lines();
                lines.find_map(|line| {
                    line.strip_prefix(key)?
                        .strip_prefix(" = \"")?
                        .strip_suffix('"')
                })
            };
            Some(((value("name")?, value("version")?), value("checksum")?))
        })
        .collect();
    tree.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
            Some(Component {
                purl: format!("pkg:cargo/{name}@{version}"),
                name: name.to_owned(),
                version: version.to_owned(),
                sha256: checksums.get(&(name, version)).map(ToString::to_string),
            })
        })
        .collect()
}

/// Debian's packages of a file system; with `files`, those alone that one of the files is of.
pub(super) fn debian(
    root: &Path,
    files: Option<&BTreeSet<PathBuf>>,
) -> Result<BTreeSet<Component>> {
    let directory = root.join("var/lib/dpkg");
    let status = fs::read_to_string(directory.join("status")).context("read dpkg's status")?;
    let mut found = BTreeSet::new();
    for package in status.split("\n\n") {
        let value = |key: &str| {
            let mut lines = package.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
        };
        let (Some(name), Some(version), Some(architecture)) =
            (value("Package"), value("Version"), value("Architecture"))
        else {
            continue;
        };
        if value("Status") != Some("install ok installed") {
            continue;
        }
        if let Some(files) = files {
            let lists = [
                format!("{name}.list"),
                format!("{name}:{architecture}.list"),
            ];
            let mut lists = lists.iter().map(|list| directory.join("info").join(list));
            let owned = lists
                .find_map(|list| fs::read_to_string(list).ok())
                .unwrap_or_default();
            if !owned.lines().any(|line| files.contains(&merged(line))) {
                continue;
            }
        }
        let encoded = version.replace('+', "%2B").replace(':', "%3A");
        found.insert(Component {
            purl: format!("pkg:deb/debian/{name}@{encoded}?arch={architecture}"),
            name: name.to_owned(),
            version: version.to_owned(),
            sha256: None,
        });
    }
    Ok(found)
}

/// A path as it is where `/lib` is `/usr/lib`.
pub(super) fn merged(path: &str) -> PathBuf {
    let path = path.trim_start_matches('/');
    let below_usr = ["bin/", "sbin/", "lib/", "lib64/"]
        .iter()
        .any(|top| path.starts_with(top));
    if below_usr {
        Path::new("usr").join(path)
    } else {
        path.into()
    }
}

/// Python's packages of the environments of a file system.
pub(super) fn python(root: &Path) -> BTreeSet<Component> {
    walkdir::WalkDir::new(root.join("opt/windlass/sandboxes"))
        .max_depth(6)
        .into_iter()
        .flatten()
        .filter(|entry| entry.file_name() == "METADATA")
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let value = |key: &str| {
                let mut head = text.lines().take_while(|line| !line.is_empty());
                head.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
            };
            let (name, version) = (value("Name")?, value("Version")?);
            Some(Component {
                purl: format!(
                    "pkg:pypi/{}@{version}",
                    name.to_ascii_lowercase().replace('_', "-")
                ),
                name: name.to_owned(),
                version: version.to_owned(),
                sha256: None,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_lists_crates_and_packages_as_they_are_installed() {
        let lock = fs::read_to_string(crate::tools::root().join("Cargo.lock")).unwrap();
        let version = lock.split_once("name = \"kube\"\nversion = \"").unwrap().1;
        let version = version.split('"').next().unwrap();
        let found = crates(
            &lock,
            &format!("windlass v0.1.0 (/src)\nkube v{version}\nkube v{version} (*)\n"),
        );
        let kube = found
            .iter()
            .find(|component| component.name == "kube")
            .unwrap();
        assert_eq!(kube.purl, format!("pkg:cargo/kube@{version}"));
        assert!(lock.contains(kube.sha256.as_ref().unwrap()));
        assert_eq!(found.len(), 2);

        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "var/lib/dpkg/status",
            "Package: git\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2.39.5-0+deb12u2\n\n\
             Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9\n\n\
             Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n",
        );
        put("var/lib/dpkg/info/git.list", "/usr\n/usr/bin/git\n");
        put(
            "var/lib/dpkg/info/libc6:amd64.list",
            "/lib/x86_64-linux-gnu/libc.so.6\n",
        );
        let site = "opt/windlass/sandboxes/abc/lib/python3.11/site-packages";
        put(
            &format!("{site}/ansible_core-2.17.14.dist-info/METADATA"),
            "Metadata-Version: 2.1\nName: ansible_core\nVersion: 2.17.14\n\nName: no\n",
        );
        let all = debian(root.path(), None).unwrap();
        let names: Vec<&str> = all
            .iter()
            .map(|component| component.name.as_str())
            .collect();
        assert_eq!(names, ["git", "libc6"]);
        let some = debian(
            root.path(),
            Some(&[PathBuf::from("usr/lib/x86_64-linux-gnu/libc.so.6")].into()),
        )
        .unwrap();
        assert_eq!(
            some.first().unwrap().purl,
            "pkg:deb/debian/libc6@2.36-9?arch=amd64"
        );
        assert_eq!(some.len(), 1);
        let python = python(root.path());
        assert_eq!(
            python.first().unwrap().purl,
            "pkg:pypi/ansible-core@2.17.14"
        );

        let bill = bill("windlass-runner", "sha256:ab", &all);
        assert_eq!(bill["specVersion"], "1.5");
        assert_eq!(
            bill["components"][0]["purl"],
            "pkg:deb/debian/git@1%3A2.39.5-0%2Bdeb12u2?arch=amd64"
        );
    }
}
