//! Objects read from files, encrypted ones among them.

use std::{
    collections::HashMap,
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
    let (mut objects, mut places) = (Vec::new(), Vec::new());
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
            places.resize(objects.len(), file);
        }
    }
    anyhow::ensure!(!objects.is_empty(), "no object in {}", list(paths));
    unique(&objects, &places)?;
    Ok(objects)
}

/// The second of two objects with one name would silently replace the first. Each object stands in the file of the same number.
fn unique(objects: &[DynamicObject], files: &[PathBuf]) -> anyhow::Result<()> {
    let mut seen = HashMap::new();
    for (object, file) in objects.iter().zip(files) {
        let types = object.types.clone().unwrap_or_default();
        let metadata = &object.metadata;
        let (name, namespace) = (
            metadata.name.as_deref().unwrap_or_default(),
            metadata.namespace.as_deref(),
        );
        let rule = rule(&types.api_version, "Twice");
        let kind = types.kind.clone();
        let Some(first) = seen.insert((types.api_version, types.kind, namespace, name), file)
        else {
            continue;
        };
        let first = first.display();
        let places = if first.to_string() == file.display().to_string() {
            format!("twice in {first}")
        } else {
            format!("twice, in {first} and in {}", file.display())
        };
        anyhow::bail!(
            "{kind} {name} stands {places}: give each its own metadata.name, or remove one{rule}"
        );
    }
    Ok(())
}

/// The name of a rule, for what stands in an inventory: all that is wrong there is told with one.
fn rule(api_version: &str, name: &str) -> String {
    if api_version.split('/').next() == Some(api::inventory::GROUP) {
        format!(" [{name}]")
    } else {
        String::new()
    }
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
    let documents = documents(text).map_err(|error| anyhow::anyhow!(broken(&error, text)))?;
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

/// Why a text is no YAML and what to do, for whoever writes it: the parser speaks to who has written a program.
fn broken(error: &serde_saphyr::Error, text: &str) -> String {
    use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};
    let error = error.without_snippet();
    let (what, remedy) = match error {
        Error::NullIntoString { .. } => (
            "there is no name before a colon, or null".to_owned(),
            "write the name, in quotes if it is null or ~, or take the colon out",
        ),
        Error::DuplicateMappingKey { key, .. } => (
            format!(
                "{} stands twice in one map",
                key.as_deref().unwrap_or("a name")
            ),
            "remove one of the two",
        ),
        other => (
            UserMessageFormatter.format_message(other).into_owned(),
            "indent with spaces alone, and the same for all that stands side by side; close what is opened; put into quotes what begins with a \
             brace, or has a colon or a hash in it",
        ),
    };
    let place = error
        .location()
        .map(|at| place(text, at.line(), at.column()));
    format!("{}{what}: {remedy}", place.unwrap_or_default())
}

/// Where something stands in a text, with the line.
fn place(text: &str, line: u64, column: u64) -> String {
    let above = usize::try_from(line).unwrap_or_default().saturating_sub(1);
    let mut documents = 1;
    let mut is_begun = false;
    for line in text.lines().take(above) {
        if line.starts_with("---") {
            documents += usize::from(is_begun);
            is_begun = false;
        } else {
            is_begun |= !line.trim().is_empty() && !line.starts_with('#');
        }
    }
    let shown = text.lines().nth(above).unwrap_or_default().trim();
    let shown = api::text::plain(shown, LONGEST_LINE);
    format!("document {documents}, line {line}, column {column}, `{shown}`: ")
}

/// How much is shown of a line.
const LONGEST_LINE: usize = 120;

/// The objects of documents. Lists (`kind: List`) are taken apart.
fn items(documents: Vec<Value>) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    let is_one = documents.len() == 1;
    let documents = documents.into_iter().zip(1..);
    for (document, number) in documents.filter(|(document, _)| !document.is_null()) {
        let items = match document.get("items") {
            Some(Value::Array(items)) if document["kind"] == "List" => items.clone(),
            _ => vec![document],
        };
        for item in items {
            let object = object(item);
            objects.push(if is_one {
                object?
            } else {
                object.with_context(|| format!("document {number}"))?
            });
        }
    }
    Ok(objects)
}

fn object(value: Value) -> anyhow::Result<DynamicObject> {
    anyhow::ensure!(
        value.is_object(),
        "it is no object, but {}: write apiVersion, kind and metadata.name",
        api::text::plain(&value.to_string(), LONGEST_LINE)
    );
    let kind = value["kind"].as_str().unwrap_or_default().to_owned();
    let name = value["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let api_version = value["apiVersion"].as_str().unwrap_or_default().to_owned();
    anyhow::ensure!(
        !api_version.is_empty() && !kind.is_empty(),
        "an object has no apiVersion or no kind: write both, as docs/reference has them"
    );
    let rule = rule(&api_version, "Malformed");
    anyhow::ensure!(
        !name.is_empty(),
        "a {kind} has no metadata.name: write one{rule}"
    );
    if let Some(field) = no_text(&value["metadata"]) {
        anyhow::bail!("{kind} {name} {field}: write a text there, in quotes{rule}");
    }
    serde_json::from_value(value)
        .with_context(|| format!("{kind} {name} is not a Kubernetes object{rule}"))
}

/// The first label or annotation that is no text, and what it is instead.
fn no_text(metadata: &Value) -> Option<String> {
    ["labels", "annotations"].into_iter().find_map(|field| {
        let mut entries = metadata[field].as_object()?.iter();
        let (key, value) = entries.find(|(_, value)| !value.is_string())?;
        Some(format!("metadata.{field}.{key} is {value}"))
    })
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
    fn what_is_no_yaml_is_told_in_plain_words() {
        let first = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n";
        for (text, words) in [
            (
                format!("{first}---\nkind: Site\n  : x\n"),
                vec!["document 2, line 6"],
            ),
            (
                format!("---\n{first}---\nkind: Site\nnull: x\n"),
                vec![
                    "document 2, line 7, column 1, `null: x`: there is no name before a colon",
                    ": write the name, in quotes",
                ],
            ),
            (
                "a: 1\na: 2\n".to_owned(),
                vec!["line 2", "a stands twice in one map: remove one of the two"],
            ),
            ("a: {{ name }}\n".to_owned(), vec!["line 1", "quotes"]),
            ("a: [1\nb: 2\n".to_owned(), vec!["close what is opened"]),
        ] {
            let error = format!("{:#}", parse(text.as_bytes()).unwrap_err());
            for word in words {
                assert!(error.contains(word), "{word}: {error}");
            }
            for word in ["deserialize", "Option<", "Options", "\n"] {
                assert!(!error.contains(word), "{error}");
            }
        }
    }

    #[test]
    fn what_is_no_object_is_told_with_its_document_and_field() {
        let inventory = "apiVersion: inventory.windlass.dev/v1alpha1\nkind: Site\n";
        for (text, words) in [
            (
                format!("{inventory}metadata: {{name: a}}\n---\n{inventory}metadata: {{name: }}\n"),
                "document 2: a Site has no metadata.name: write one [Malformed]",
            ),
            (
                format!("{inventory}metadata: {{name: a, labels: {{rack: 1}}}}\n"),
                "Site a metadata.labels.rack is 1: write a text there, in quotes [Malformed]",
            ),
            (
                "name fra1\n".to_owned(),
                "it is no object, but \"name fra1\"",
            ),
        ] {
            let error = format!("{:#}", parse(text.as_bytes()).and_then(items).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn an_object_that_stands_twice_is_told_with_both_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let site =
            "apiVersion: inventory.windlass.dev/v1alpha1\nkind: Site\nmetadata: {name: fra1}\n";
        std::fs::write(at("a.yaml"), site).unwrap();
        std::fs::write(at("b.yaml"), site).unwrap();
        let read = |paths: &[PathBuf]| {
            let refused = read(&Opener::refusing(""), paths).unwrap_err();
            let place = format!("{}/", directory.path().display());
            refused.to_string().replace(&place, "")
        };
        assert_eq!(
            read(&[directory.path().to_owned()]),
            "Site fra1 stands twice, in a.yaml and in b.yaml: give each its own metadata.name, or remove one [Twice]"
        );
        std::fs::write(at("a.yaml"), format!("{site}---\n{site}")).unwrap();
        let told = read(&[at("a.yaml")]);
        assert!(
            told.starts_with("Site fra1 stands twice in a.yaml: "),
            "{told}"
        );
    }

    #[test]
    fn an_empty_place_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let opener = Opener::refusing("");
        let error = read(&opener, &[directory.path().to_owned()]).unwrap_err();
        assert!(error.to_string().contains("no object"), "{error}");
    }
}
