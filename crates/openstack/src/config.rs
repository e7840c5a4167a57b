//! The configuration files of services: several sources of one file, merged as operators of OpenStack know it from Kolla, and for each
//! setting where it came from.
//!
//! Pure: texts in, text out. [`ini`] reads and writes the files, here they are merged. The later source has the last word on each
//! setting; the settings of a section keep the order in which they first appeared. There is no way to take a setting away, but for an
//! empty value. [`tree`] does the same for files of YAML and JSON, and [`template`] renders a source before it is read.
//!
//! # Source
//! The merge is that of `merge_configs` of kolla-ansible 22, which the tests of this crate compare it with.

pub mod ini;
pub mod template;
pub mod tree;

use std::collections::HashMap;

use ini::{Line, Unreadable};

/// A source of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// What people know it by.
    pub name: String,
    /// What it says.
    pub text: String,
    /// Of each of its lines, which one of what somebody wrote it is. Empty: it is what somebody wrote.
    pub lines: Vec<usize>,
}

impl Source {
    /// A text as somebody wrote it.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            lines: Vec::new(),
        }
    }

    /// The line that somebody wrote, of a line of the text.
    pub fn written(&self, line: usize) -> usize {
        let written = line.checked_sub(1).and_then(|at| self.lines.get(at));
        // A text may end before the line that is told of it.
        *written.or(self.lines.last()).unwrap_or(&line)
    }

    /// An error in it.
    fn refused(&self, at: Unreadable) -> Error {
        Error {
            source_name: self.name.clone(),
            at: Unreadable {
                line: self.written(at.line),
                rule: at.rule,
            },
        }
    }
}

/// Where a setting was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Origin {
    /// The source.
    pub source: String,
    /// The line, from 1.
    pub line: usize,
    /// What was given: one value for each time that the key stands there.
    pub values: Vec<String>,
}

/// A setting of a merged file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Setting {
    /// Its key.
    pub key: String,
    /// What it is: one entry for each time that the key stands there, of one text for each line.
    values: Vec<Vec<String>>,
    /// Who gave it, the one with the last word last.
    pub origins: Vec<Origin>,
}

/// A merged file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Merged {
    sections: Vec<Section>,
    /// Where each section stands among them: a template may give as many as it likes.
    places: HashMap<Option<String>, usize>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Section {
    /// None: settings before the first section.
    name: Option<String>,
    settings: Vec<Setting>,
    /// Where each setting stands among them, by its key.
    places: HashMap<String, usize>,
}

impl Section {
    fn setting(&mut self, key: &str) -> Option<&mut Setting> {
        let at = self.places.get(key)?;
        self.settings.get_mut(*at)
    }

    fn push(&mut self, setting: Setting) {
        self.places.insert(setting.key.clone(), self.settings.len());
        self.settings.push(setting);
    }
}

/// Why a file cannot be merged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{source_name} line {}: {}", at.line, at.rule)]
pub struct Error {
    /// The source.
    pub source_name: String,
    /// What is wrong, and where.
    pub at: Unreadable,
}

impl Merged {
    /// Merges the sources of one file, the one with the last word last.
    ///
    /// # Errors
    ///
    /// One is not written as such a file is.
    pub fn of(sources: &[Source]) -> Result<Self, Error> {
        let mut merged = Self::default();
        for source in sources {
            let of_source = Self::read(source)?;
            for section in of_source.sections {
                merged.take(section);
            }
        }
        Ok(merged)
    }

    fn read(source: &Source) -> Result<Self, Error> {
        let lines = ini::read(&source.text).map_err(|at| source.refused(at))?;
        let mut read = Self::default();
        let mut current = None;
        for line in lines {
            match line {
                Line::Section(name) => current = Some(read.place(Some(&name))),
                Line::Setting { key, value, line } => {
                    let shown = value.join("\n");
                    let at = *current.get_or_insert_with(|| read.place(None));
                    let section = &mut read.sections[at];
                    // In one source a key may stand several times, and each counts.
                    match section.setting(&key) {
                        Some(setting) => {
                            setting.values.push(value);
                            if let Some(origin) = setting.origins.first_mut() {
                                origin.values.push(shown);
                            }
                        }
                        None => section.push(Setting {
                            key,
                            values: vec![value],
                            origins: vec![Origin {
                                source: source.name.clone(),
                                line: source.written(line),
                                values: vec![shown],
                            }],
                        }),
                    }
                }
            }
        }
        Ok(read)
    }

    /// Where a section stands, which begins there if there is none.
    fn place(&mut self, name: Option<&str>) -> usize {
        let name = name.map(str::to_owned);
        *self.places.entry(name.clone()).or_insert_with(|| {
            self.sections.push(Section {
                name,
                ..Section::default()
            });
            self.sections.len() - 1
        })
    }

    fn take(&mut self, section: Section) {
        let at = self.place(section.name.as_deref());
        let known = &mut self.sections[at];
        for later in section.settings {
            match known.setting(&later.key) {
                Some(setting) => {
                    setting.values = later.values;
                    setting.origins.extend(later.origins);
                }
                None => known.push(later),
            }
        }
    }

    /// The file.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for Section { name, settings, .. } in &self.sections {
            if let Some(name) = name {
                text.push_str(&format!("[{name}]\n"));
            }
            for setting in settings {
                for value in &setting.values {
                    ini::write(&mut text, &setting.key, value);
                }
            }
            text.push('\n');
        }
        text
    }

    /// A setting; no section: one before the first.
    pub fn setting(&self, section: Option<&str>, key: &str) -> Option<&Setting> {
        let section = self
            .sections
            .get(*self.places.get(&section.map(str::to_owned))?)?;
        section.settings.get(*section.places.get(key)?)
    }

    /// All settings, with their sections.
    pub fn settings(&self) -> impl Iterator<Item = (Option<&str>, &Setting)> {
        self.sections.iter().flat_map(|section| {
            let name = section.name.as_deref();
            section.settings.iter().map(move |setting| (name, setting))
        })
    }
}

impl Setting {
    /// What it is: one value for each time that the key stands there.
    pub fn values(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(|lines| lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, text: &str) -> Source {
        Source::new(name, text)
    }

    #[test]
    fn the_last_word_wins_and_everybody_who_spoke_is_known() {
        let sources = [
            source(
                "defaults",
                "[DEFAULT]\ndebug = false\n# why\nhosts = a\nhosts = b\n",
            ),
            source("site", "[cache]\nenabled: true\n[DEFAULT]\nhosts = c\n"),
            source("mine", "[DEFAULT]\nhosts =\n"),
        ];
        let merged = Merged::of(&sources).unwrap();
        assert_eq!(
            merged.render(),
            "[DEFAULT]\ndebug = false\nhosts =\n\n[cache]\nenabled = true\n\n"
        );
        let hosts = merged.setting(Some("DEFAULT"), "hosts").unwrap();
        let told: Vec<_> = hosts
            .origins
            .iter()
            .map(|origin| format!("{}:{} {:?}", origin.source, origin.line, origin.values))
            .collect();
        assert_eq!(
            told,
            [
                r#"defaults:4 ["a", "b"]"#,
                r#"site:4 ["c"]"#,
                r#"mine:2 [""]"#
            ]
        );
        assert_eq!(merged.setting(None, "hosts"), None);
    }

    #[test]
    fn what_is_no_such_file_is_named_by_source_and_line() {
        let long = format!("[a]\n{} = b\n c\n", "k".repeat(256));
        let section = format!("[a]\n\n[{}]\n", "s".repeat(256));
        for (text, line) in [
            (long.as_str(), 2),
            (section.as_str(), 3),
            ("[a]\nb", 2),
            ("[a", 1),
            ("[]", 1),
            (" a = b", 1),
            ("\n= b", 2),
        ] {
            let error = Merged::of(&[source("mine", text)]).unwrap_err();
            assert_eq!((error.source_name.as_str(), error.at.line), ("mine", line));
        }
    }

    #[test]
    fn files_of_many_keys_and_sections_are_read_in_one_go() {
        // Who looked at all keys for each would compare some hundred thousand million of them.
        let many = 0..300_000;
        let keys: Vec<_> = many.clone().map(|at| format!("k{at} = 1\n")).collect();
        let sections: Vec<_> = many.map(|at| format!("[s{at}]\n")).collect();
        let (keys, sections) = (keys.concat(), sections.concat());
        let sources = [source("a", &(keys.clone() + &sections)), source("b", &keys)];
        let merged = Merged::of(&sources).unwrap();
        let last = merged.setting(None, "k299999").unwrap();
        assert_eq!(last.origins.len(), 2);
        assert_eq!(merged.settings().count(), 300_000);
        assert!(merged.render().ends_with("[s299999]\n\n"));
    }

    #[test]
    fn values_go_over_several_lines_and_lose_their_quotes() {
        let text = "a = 'x'\nb = 1\n  2\n\t3\n\nc =\n  4\n[s]\na = \"\n";
        let merged = Merged::of(&[source("mine", text)]).unwrap();
        let rendered = "a = x\nb = 1\n    2\n    3\nc = \n    4\n\n[s]\na =\n\n";
        assert_eq!(merged.render(), rendered);
    }
}
