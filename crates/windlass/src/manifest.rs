//! Objects read from files, encrypted ones among them.

use std::{
    collections::HashSet,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::Context;
use kube::api::DynamicObject;
use serde_json::Value;

pub(crate) mod sealed;
pub(crate) mod valid;

pub(crate) use sealed::Opener;

/// Reads every object of the files and directories, in order; `-` is standard input. A directory gives its `.yaml`,
/// `.yml` and `.json` files by name, those with a further `.age` too, without its sub-directories. What is encrypted is opened.
pub(crate) fn read(opener: &Opener, paths: &[PathBuf]) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for path in paths {
        for file in files(path)? {
            let failed = || format!("in {}", file.display());
            let bytes = bytes(&file)?;
            let read = match opener.documents(&bytes).with_context(failed)? {
                // What is wrong with an object may show what is in it.
                Some(opened) => items(opened).map_err(|wrong| anyhow::anyhow!("{wrong}")),
                None => parse(&bytes).and_then(items),
            };
            objects.extend(read.with_context(failed)?);
        }
    }
    anyhow::ensure!(!objects.is_empty(), "no object in {}", list(paths));
    unique(&objects)?;
    Ok(objects)
}

/// The second of two objects with one name would silently replace the first.
fn unique(objects: &[DynamicObject]) -> anyhow::Result<()> {
    let mut seen = HashSet::new();
    for object in objects {
        let types = object.types.clone().unwrap_or_default();
        let metadata = &object.metadata;
        let (name, namespace) = (
            metadata.name.as_deref().unwrap_or_default(),
            metadata.namespace.as_deref(),
        );
        anyhow::ensure!(
            seen.insert((types.api_version, types.kind.clone(), namespace, name)),
            "{} {name} stands twice in the files: give each its own metadata.name, or remove one",
            types.kind
        );
    }
    Ok(())
}

/// The files that are meant by a path, as [`read`] reads them.
pub(crate) fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries =
        std::fs::read_dir(path).with_context(|| format!("failed to read {}", path.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry
            .with_context(|| format!("failed to read {}", path.display()))?
            .path();
        if sealed::is_manifest(&file) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn bytes(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .context("failed to read standard input")?;
        return Ok(bytes);
    }
    std::fs::read(file).with_context(|| format!("failed to read {}", file.display()))
}

/// The documents of a file that is not encrypted.
fn parse(bytes: &[u8]) -> anyhow::Result<Vec<Value>> {
    let text = str::from_utf8(bytes).context("it is no text in UTF-8")?;
    let documents = documents(text).map_err(|error| anyhow::anyhow!("{error}"))?;
    anyhow::ensure!(
        !documents.iter().any(sops::is_left_sealed),
        "it has values that SOPS encrypted (ENC[AES256_GCM,...]), and not the field sops without which nobody can open them: take the \
         file as SOPS wrote it"
    );
    Ok(documents)
}

fn documents(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_multiple_with_options(text, options)
}

/// The objects of documents. Lists (`kind: List`) are taken apart.
fn items(documents: Vec<Value>) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        let items = match document.get("items") {
            Some(Value::Array(items)) if document["kind"] == "List" => items.clone(),
            _ => vec![document],
        };
        for item in items {
            objects.push(object(item)?);
        }
    }
    Ok(objects)
}

fn object(value: Value) -> anyhow::Result<DynamicObject> {
    let kind = value["kind"].as_str().unwrap_or_default().to_owned();
    let name = value["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    anyhow::ensure!(
        value["apiVersion"].is_string() && !kind.is_empty(),
        "an object has no apiVersion or no kind"
    );
    anyhow::ensure!(!name.is_empty(), "a {kind} has no metadata.name");
    serde_json::from_value(value)
        .with_context(|| format!("{kind} {name} is not a Kubernetes object"))
}

fn list(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_lists_are_read_in_order() {
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: List\nitems:\n\
                    - {apiVersion: v1, kind: Secret, metadata: {name: b}}\n- {apiVersion: v1, kind: Secret, metadata: {name: c}}\n";
        let names: Vec<_> = items(parse(text.as_bytes()).unwrap())
            .unwrap()
            .into_iter()
            .filter_map(|o| o.metadata.name)
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, expected) in [
            ("kind: Cluster\nmetadata: {name: a}", "apiVersion"),
            (
                "apiVersion: v1\nkind: Secret\nmetadata: {}",
                "metadata.name",
            ),
            ("a: [1", "line"),
        ] {
            let error = format!("{:#}", parse(text.as_bytes()).and_then(items).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_empty_place_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let opener = Opener::refusing("");
        let error = read(&opener, &[directory.path().to_owned()]).unwrap_err();
        assert!(error.to_string().contains("no object"), "{error}");
    }
}
