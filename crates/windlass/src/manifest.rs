//! Objects read from files.

use std::{
    collections::HashSet,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::Context;
use kube::api::DynamicObject;

pub(crate) mod valid;

/// Reads every object of the files and directories, in order; `-` is standard input. A directory gives its `.yaml`,
/// `.yml` and `.json` files by name, without its sub-directories.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for path in paths {
        for file in files(path)? {
            let text = text(&file)?;
            objects.extend(parse(&text).with_context(|| format!("in {}", file.display()))?);
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

fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
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
        let manifest = matches!(
            file.extension().and_then(|e| e.to_str()),
            Some("yaml" | "yml" | "json")
        );
        if manifest && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn text(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("failed to read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
}

/// Parses the documents of one file. Lists (`kind: List`) are taken apart.
fn parse(text: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut objects = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        let items = match document.get("items") {
            Some(serde_json::Value::Array(items)) if document["kind"] == "List" => items.clone(),
            _ => vec![document],
        };
        for item in items {
            objects.push(object(item)?);
        }
    }
    Ok(objects)
}

fn object(value: serde_json::Value) -> anyhow::Result<DynamicObject> {
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
        let names: Vec<_> = parse(text)
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
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_empty_place_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let error = read(&[directory.path().to_owned()]).unwrap_err();
        assert!(error.to_string().contains("no object"), "{error}");
    }
}
