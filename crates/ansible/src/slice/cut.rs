//! Files cut into the texts of their plays, imports followed.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use serde_json::Value;
use serde_saphyr::{Options, Spanned};

use super::{Error, Import, Slice};

/// The plays of a playbook file, imports followed, in order. Ids are not yet set.
pub(super) fn flatten(checkout: &Path, file: &Path) -> Result<Vec<Slice>, Error> {
    let mut slices = Vec::new();
    follow(checkout, file, &[], &mut Vec::new(), &mut slices)?;
    for (index, slice) in slices.iter_mut().enumerate() {
        slice.index = index;
    }
    Ok(slices)
}

/// The plays of a text, in order, none of them imported. Ids are not yet set.
pub(super) fn plays(file: &Path, source: &str) -> Result<Vec<Slice>, Error> {
    let items = cut(source, file)?.into_iter().enumerate();
    let plays = items.map(|(index, item)| {
        let slice = item.into_slice(file, &[])?;
        Ok(Slice { index, ..slice })
    });
    plays.collect()
}

fn follow(
    checkout: &Path,
    file: &Path,
    imports: &[Import],
    open: &mut Vec<PathBuf>,
    slices: &mut Vec<Slice>,
) -> Result<(), Error> {
    open.push(file.to_owned());
    for item in items(checkout, file)? {
        let Some((_, import)) = item.import() else {
            slices.push(item.into_slice(file, imports)?);
            continue;
        };
        let target = imported(checkout, file, &import, item.line)?;
        if open.contains(&target) {
            return Err(refuse(
                &import,
                file,
                item.line,
                "the import leads back to itself",
            ));
        }
        let mut imports = imports.to_vec();
        if item.changes_plays() {
            imports.push(Import {
                text: item.text,
                value: item.value,
            });
        }
        follow(checkout, &target, &imports, open, slices)?;
    }
    open.pop();
    Ok(())
}

fn refuse(import: &str, file: &Path, line: u64, rule: &'static str) -> Error {
    Error::Import {
        import: import.to_owned(),
        file: file.to_owned(),
        line,
        rule,
    }
}

/// The imported file, relative to the checkout.
fn imported(checkout: &Path, file: &Path, import: &str, line: u64) -> Result<PathBuf, Error> {
    let refuse = |rule| refuse(import, file, line, rule);
    if import.contains("{{") {
        return Err(refuse(
            "the path is a template, which only Ansible can resolve",
        ));
    }
    let base = file.parent().unwrap_or(Path::new(""));
    let target =
        normal(&base.join(import)).ok_or_else(|| refuse("the path leads out of the checkout"))?;
    if checkout.join(&target).is_file() {
        Ok(target)
    } else {
        Err(refuse("there is no such file"))
    }
}

fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => normal.push(part),
            Component::CurDir => {}
            Component::ParentDir => normal.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

/// One entry of a playbook file: a play or an import.
struct Item {
    line: u64,
    text: String,
    value: Value,
}

impl Item {
    /// The key and the path of an import.
    fn import(&self) -> Option<(&'static str, String)> {
        IMPORTS.iter().find_map(|key| {
            let path = self.value.get(key)?.as_str()?;
            Some((*key, path.to_owned()))
        })
    }

    fn changes_plays(&self) -> bool {
        let keys = self
            .value
            .as_object()
            .into_iter()
            .flat_map(|entries| entries.keys());
        keys.into_iter()
            .any(|key| key != "name" && !IMPORTS.contains(&key.as_str()))
    }

    fn into_slice(self, file: &Path, imports: &[Import]) -> Result<Slice, Error> {
        let hosts = hosts(self.value.get("hosts")).ok_or_else(|| Error::Uncuttable {
            file: file.to_owned(),
            line: self.line,
            rule: "the entry has neither hosts nor import_playbook".to_owned(),
        })?;
        let name = self
            .value
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let carried = imports
            .iter()
            .flat_map(|import| words(import.value.get("tags")));
        let mut tags: Vec<String> = words(self.value.get("tags"))
            .into_iter()
            .chain(carried)
            .collect();
        tags.sort();
        tags.dedup();
        Ok(Slice {
            index: 0,
            id: String::new(),
            name: name.to_owned(),
            hosts,
            file: file.to_owned(),
            line: self.line,
            tags,
            roles: roles(self.value.get("roles")),
            serial: self.value.get("serial").cloned(),
            with_next: false,
            needs_facts: false,
            text: self.text,
            imports: imports.to_vec(),
        })
    }
}

fn hosts(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(pattern) => Some(pattern.clone()),
        list @ Value::Array(_) => Some(words(Some(list)).join(",")),
        _ => None,
    }
}

/// A list of words, or one text with commas.
fn words(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => text.split(',').map(|word| word.trim().to_owned()).collect(),
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}

fn roles(value: Option<&Value>) -> Vec<String> {
    let roles = value.and_then(Value::as_array).into_iter().flatten();
    let name = |role: &Value| match role {
        Value::String(name) => Some(name.clone()),
        role => role
            .get("role")
            .or_else(|| role.get("name"))?
            .as_str()
            .map(str::to_owned),
    };
    roles.filter_map(name).collect()
}

fn items(checkout: &Path, file: &Path) -> Result<Vec<Item>, Error> {
    let path = checkout.join(file);
    let source = fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
    cut(&source, file)
}

/// Cuts the text of a playbook file at the dashes of its list.
fn cut(source: &str, file: &Path) -> Result<Vec<Item>, Error> {
    let entries: Option<Vec<Spanned<Value>>> = parse(source, file)?;
    let entries = entries.unwrap_or_default();
    let lines: Vec<&str> = source.split_inclusive('\n').collect();
    let uncuttable = |line: u64, rule: &str| Error::Uncuttable {
        file: file.to_owned(),
        line,
        rule: rule.to_owned(),
    };
    let mut starts = Vec::new();
    for entry in &entries {
        let line = entry.referenced.line();
        let start = dash(&lines, line, &starts).ok_or_else(|| {
            uncuttable(line, "the playbook is not written as a list of entries that begin with '- ' on lines of their own")
        })?;
        starts.push(start);
    }
    let mut items = Vec::new();
    for (position, entry) in entries.into_iter().enumerate() {
        let (Some((from, indent)), line) = (starts.get(position).copied(), entry.referenced.line())
        else {
            continue;
        };
        let to = starts
            .get(position.saturating_add(1))
            .map_or(lines.len(), |(next, _)| *next);
        let text = dedent(lines.get(from..to).unwrap_or_default(), indent);
        let again: Result<Vec<Value>, _> = serde_saphyr::from_str_with_options(&text, options());
        if again.ok().as_deref() != Some(std::slice::from_ref(&entry.value)) {
            return Err(uncuttable(
                line,
                "the entry means something else when it stands alone: does it use an anchor of another entry?",
            ));
        }
        items.push(Item {
            line,
            text,
            value: entry.value,
        });
    }
    Ok(items)
}

pub(super) fn parse<T: serde::de::DeserializeOwned>(source: &str, file: &Path) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(source, options()).map_err(|source| {
        let location = source.location();
        Error::Syntax {
            file: file.to_owned(),
            line: location.map_or(0, |location| location.line()),
            column: location.map_or(0, |location| location.column()),
            source: Box::new(source),
        }
    })
}

/// As Ansible reads YAML 1.1: `0644` is a number in base eight, the last of two equal keys wins.
fn options() -> Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
    }
}

/// The line, from 0, and the column of the dash of the entry whose mapping begins on `line`, from 1.
fn dash(lines: &[&str], line: u64, before: &[(usize, usize)]) -> Option<(usize, usize)> {
    let index = usize::try_from(line).ok()?.checked_sub(1)?;
    let lowest = before
        .last()
        .map_or(0, |(previous, _)| previous.saturating_add(1));
    let found = (lowest..=index).rev().find_map(|index| {
        let text = lines.get(index)?;
        let trimmed = text.trim_start_matches(' ');
        let alone = trimmed.trim_end() == "-" || trimmed.starts_with("- ");
        alone.then(|| (index, text.len().saturating_sub(trimmed.len())))
    })?;
    before
        .first()
        .is_none_or(|(_, indent)| *indent == found.1)
        .then_some(found)
}

fn dedent(lines: &[&str], indent: usize) -> String {
    let strip = |line: &&str| {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        line.get(spaces.min(indent)..)
            .unwrap_or_default()
            .to_owned()
    };
    let mut text: String = lines.iter().map(strip).collect();
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// The import with another path, everything else as written.
pub(super) fn redirected(import: &Import, path: &str) -> Option<String> {
    let mut replaced = false;
    let lines = import.text.lines().map(|line| {
        let start = line.trim_start_matches([' ', '-']);
        let prefix = line.strip_suffix(start).unwrap_or_default();
        let key = IMPORTS.iter().find(|key| {
            start
                .strip_prefix(**key)
                .is_some_and(|rest| rest.starts_with(':'))
        });
        match key {
            Some(key) if !replaced && prefix.len() == 2 => {
                replaced = true;
                format!("{prefix}{key}: {path}")
            }
            _ => line.to_owned(),
        }
    });
    let lines: Vec<String> = lines.collect();
    let text = lines.join("\n") + "\n";
    let mut wanted = import.value.clone();
    let key = IMPORTS.iter().find(|key| wanted.get(**key).is_some())?;
    wanted
        .as_object_mut()?
        .insert((*key).to_owned(), path.into());
    let value: Vec<Value> = serde_saphyr::from_str_with_options(&text, options()).ok()?;
    (value == [wanted]).then_some(text)
}

/// How an import may be spelled.
const IMPORTS: &[&str] = &[
    "import_playbook",
    "ansible.builtin.import_playbook",
    "ansible.legacy.import_playbook",
    // Up to kubespray 2.21, which runs on ansible-core 2.11 and 2.12.
    "include",
];
