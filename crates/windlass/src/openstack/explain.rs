//! `windlass openstack explain`: what a setting is, and who said so, by file and line.

use std::{collections::BTreeMap, fmt, path::Path};

use ::openstack::{
    cloud, components,
    config::{Merged, Origin, Source, tree::Tree},
    definition::{self, API, Definition, Whole},
    service::{self, Given, source},
};
use anyhow::{Context, bail};
use api::openstack::OpenStackService;
use controller::Problem;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_saphyr::{Location, Spanned};

use crate::{cli::ExplainSetting, manifest, terminal};

pub(super) fn explain(options: &ExplainSetting) -> anyhow::Result<()> {
    let read = super::read(&options.of)?;
    let mut written = Written::default();
    for file in manifest::files(&options.of.filename)? {
        written.read(&file);
    }
    let mut is_known = false;
    for object in &read.services {
        let definition = definition::find(&object.spec.service)
            .with_context(|| format!("no service is called {}", object.spec.service))?;
        written.built_in(&definition.name, &options.file);
        let started = components::of(object, definition).map_err(|problems| wrong(&problems))?;
        let mut said = object.spec.components.values();
        let is_said = said.any(|said| !said.config.is_empty());
        for component in &started {
            // The others have what the API has.
            if component.name == API || components::has_files(object, &component.name) {
                let component = Component {
                    object,
                    definition,
                    name: &component.name,
                    is_one_of_several: started.len() > 1 || is_said,
                };
                is_known |= component.tell(options, &written)?;
            }
        }
    }
    anyhow::ensure!(is_known, "no service here has a file {}", options.file);
    Ok(())
}

fn wrong(problems: &[Problem]) -> anyhow::Error {
    anyhow::anyhow!("{}", controller::problem::text(problems))
}

/// A component of a service, whose files are told of.
struct Component<'a> {
    object: &'a OpenStackService,
    definition: &'a Definition,
    name: &'a str,
    is_one_of_several: bool,
}

impl Component<'_> {
    /// Tells of a file, if it has that.
    fn tell(&self, options: &ExplainSetting, written: &Written) -> anyhow::Result<bool> {
        let (file, setting) = (&options.file, options.setting.as_deref());
        let object = self.object.metadata.name.as_deref().unwrap_or_default();
        let told = if self.is_one_of_several {
            format!("{object} {}:", self.name)
        } else {
            object.to_owned()
        };
        let files = service::files(self.object, self.definition, self.name)
            .map_err(|problems| wrong(&problems))?;
        if let Some(file) = files.get(file) {
            tell(&told, file, setting, written)?;
            return Ok(true);
        }
        let whole = service::whole(self.object, self.definition, self.name)
            .map_err(|problems| wrong(&problems))?;
        match whole.get(file) {
            Some(Given::Whole(is, source)) => {
                tell_whole((&told, file), (*is, source), setting, written)?;
            }
            Some(Given::Merged(tree)) => tell_merged(&told, tree, setting, written)?,
            None => return Ok(false),
        }
        Ok(true)
    }
}

fn tell(
    object: &str,
    file: &Merged,
    setting: Option<&str>,
    written: &Written,
) -> anyhow::Result<()> {
    let mut found = false;
    for (section, known) in file.settings() {
        let name = section.map_or_else(
            || known.key.clone(),
            |section| format!("{section}.{}", known.key),
        );
        if setting.is_some_and(|setting| setting != name) {
            continue;
        }
        found = true;
        for value in known.values() {
            println!("{}", terminal::text(&format!("{object} {name} = {value}")));
        }
        for (place, origin) in known.origins.iter().rev().enumerate() {
            let word = if place == 0 { "from" } else { "over" };
            let values = origin.values.join(" | ");
            let told = format!("  {word} {}: {values}", written.place(origin));
            println!("{}", terminal::text(&told));
        }
    }
    match setting {
        Some(setting) if !found => {
            bail!("{object} says nothing of {setting}: the service's own default stands")
        }
        _ => Ok(()),
    }
}

/// A file of YAML or JSON.
fn tell_merged(
    object: &str,
    tree: &Tree,
    setting: Option<&str>,
    written: &Written,
) -> anyhow::Result<()> {
    let mut found = false;
    for value in tree.values() {
        let (path, shown) = (value.path, value.shown);
        let is_meant = |setting: &str| {
            let below = path.strip_prefix(setting);
            below.is_some_and(|below| below.is_empty() || below.starts_with('.'))
        };
        if setting.is_some_and(|setting| !is_meant(setting)) {
            continue;
        }
        found = true;
        println!("{}", terminal::text(&format!("{object} {path} = {shown}")));
        for (place, origin) in value.origins.iter().rev().enumerate() {
            let word = if place == 0 { "from" } else { "over" };
            let values = origin.values.join(" | ");
            let told = format!("  {word} {}: {values}", written.place(origin));
            println!("{}", terminal::text(&told));
        }
    }
    match setting {
        Some(setting) if !found => bail!("{object} says nothing of {setting}"),
        _ => Ok(()),
    }
}

/// A file that is taken as somebody wrote it, or a rule of it.
fn tell_whole(
    (object, file): (&str, &str),
    (is, source): (Whole, &Source),
    rule: Option<&str>,
    written: &Written,
) -> anyhow::Result<()> {
    let place = |line| {
        written.place(&Origin {
            source: source.name.clone(),
            line: source.written(line),
            values: Vec::new(),
        })
    };
    let Some(rule) = rule else {
        let told = format!("{object} {file}, whole\n  from {}", place(1));
        println!("{}", terminal::text(&told));
        return Ok(());
    };
    anyhow::ensure!(
        is == Whole::Policy,
        "{object} takes {file} whole, and Windlass reads no setting of it"
    );
    let rules: BTreeMap<String, Spanned<serde_json::Value>> =
        serde_saphyr::from_str(&source.text).with_context(|| format!("failed to read {file}"))?;
    let check = rules.get(rule);
    let check = check.with_context(|| {
        format!("{object} says nothing of {rule}: the service's own default stands")
    })?;
    let line = usize::try_from(check.defined.line()).unwrap_or(1);
    let told = match &check.value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    println!("{}", terminal::text(&format!("{object} {rule} = {told}")));
    println!("{}", terminal::text(&format!("  from {}", place(line))));
    Ok(())
}

/// Where the sources stand in the files that people wrote, by their names.
#[derive(Default)]
struct Written(BTreeMap<String, Text>);

/// A text within a file.
struct Text {
    file: String,
    /// Where it begins, from 1.
    line: usize,
    /// Whether each of its lines is one of the file.
    is_literal: bool,
    /// What it is there.
    field: String,
}

impl Written {
    /// A file that cannot be read so, as one that is sealed, tells no lines.
    fn read(&mut self, file: &Path) {
        let Ok(text) = std::fs::read_to_string(file) else {
            return;
        };
        let mut objects: Vec<Document> = serde_saphyr::from_multiple(&text).unwrap_or_default();
        while let Some(object) = objects.pop() {
            let name = &object.metadata.name;
            let mut note = |source: String, field: String, at: Location| {
                let place = Text::at(at, &text, file.display().to_string(), field);
                self.0.insert(source, place);
            };
            let service_of = |service: &str| cloud::service_name(name, service);
            let spec = object.spec;
            if let Some(config) = spec.config {
                match config.value {
                    Config::Text => {
                        for service in &spec.services {
                            let source = source::of_cloud(&service_of(&service.name));
                            let field = format!("OpenStack {name} spec.config");
                            note(source, field, config.defined);
                        }
                    }
                    Config::Files(files) => {
                        for (file, at) in files {
                            let source = source::of_service(name, &file);
                            note(source.clone(), source, at.defined);
                        }
                    }
                }
            }
            if let Some(at) = spec.cloud_config {
                let source = source::of_cloud(name);
                note(source.clone(), source, at.defined);
            }
            for (component, file, at) in said(spec.components) {
                let source = source::of_component(name, &component, &file);
                note(source.clone(), source, at);
            }
            for Service {
                name: of,
                config,
                components,
            } in spec.services
            {
                let object = service_of(&of);
                let field = format!("OpenStack {name} spec.services[{of}]");
                for (file, at) in config {
                    let source = source::of_service(&object, &file);
                    note(source, format!("{field}.config[{file}]"), at.defined);
                }
                for (component, file, at) in said(components) {
                    let source = source::of_component(&object, &component, &file);
                    let field = format!("{field}.components[{component}].config[{file}]");
                    note(source, field, at);
                }
            }
            objects.extend(object.items);
        }
    }

    /// The file of ours that a service's own text is from.
    fn built_in(&mut self, service: &str, file: &str) {
        let text = definition::text(service).unwrap_or_default();
        let Ok(document) = serde_saphyr::from_str::<BuiltIn>(text) else {
            return;
        };
        for (whole, at) in document.whole {
            let name = format!("services/{service}.yaml");
            let place = Text::at(at.defined, text, name, format!("whole[{whole}]"));
            self.0.insert(source::of_policy(service, &whole), place);
        }
        for (source, field, texts) in [
            (
                source::built_in(service, file),
                format!("config[{file}]"),
                document.config,
            ),
            (
                source::of_memcached(service, file),
                format!("memcached.config[{file}]"),
                document.memcached.config,
            ),
            (
                source::of_messaging(service, file),
                format!("messaging.config[{file}]"),
                document.messaging.config,
            ),
        ] {
            if let Some(at) = texts.get(file) {
                let name = format!("services/{service}.yaml");
                let place = Text::at(at.defined, text, name, field);
                self.0.insert(source, place);
            }
        }
    }

    /// Where somebody said something, for people.
    fn place(&self, origin: &Origin) -> String {
        let Some(text) = self.0.get(&origin.source) else {
            return format!("{} line {}", origin.source, origin.line);
        };
        let Text {
            file,
            line,
            is_literal,
            field,
        } = text;
        let line = if *is_literal {
            line + origin.line.saturating_sub(1)
        } else {
            *line
        };
        format!("{file} line {line}, {field}")
    }
}

/// What is said for components alone: which, the file and where.
fn said(components: BTreeMap<String, OfComponent>) -> Vec<(String, String, Location)> {
    let mut said = Vec::new();
    for (component, of) in components {
        for (file, at) in of.config {
            said.push((component.clone(), file, at.defined));
        }
    }
    said
}

impl Text {
    fn at(begins: Location, whole: &str, file: String, field: String) -> Self {
        let line = usize::try_from(begins.line()).unwrap_or_default();
        // A block begins with its first line, and its indicator stands at the end of the one before.
        let above = line
            .checked_sub(2)
            .and_then(|above| whole.lines().nth(above));
        let above = above.and_then(|text| text.split(" #").next());
        let last = above.and_then(|text| text.split_whitespace().last());
        Self {
            file,
            line,
            is_literal: last.is_some_and(|word| word.starts_with('|')),
            field,
        }
    }
}

/// Of an object in a file, what configuration it holds. What is wrong with it was said when it was read.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    items: Vec<Document>,
}

#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    config: Option<Spanned<Config>>,
    cloud_config: Option<Spanned<String>>,
    services: Vec<Service>,
    components: BTreeMap<String, OfComponent>,
}

#[derive(Deserialize)]
struct Service {
    #[serde(default)]
    name: String,
    #[serde(default)]
    config: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    components: BTreeMap<String, OfComponent>,
}

#[derive(Deserialize)]
struct OfComponent {
    #[serde(default)]
    config: BTreeMap<String, Spanned<String>>,
}

#[derive(Deserialize)]
struct BuiltIn {
    config: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    whole: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    memcached: OfNeighbour,
    #[serde(default)]
    messaging: OfNeighbour,
}

/// What is said where there is a memcached, or a RabbitMQ.
#[derive(Default, Deserialize)]
struct OfNeighbour {
    config: BTreeMap<String, Spanned<String>>,
}

/// What a cloud says for all files, or a service for each of them.
enum Config {
    Text,
    Files(BTreeMap<String, Spanned<String>>),
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfConfig)
    }
}

/// Either of the two as it is read: one that is kept until it is known which it is would have lost its lines.
struct OfConfig;

impl<'de> Visitor<'de> for OfConfig {
    type Value = Config;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text, or texts by the names of files")
    }

    fn visit_str<E>(self, _: &str) -> Result<Config, E> {
        Ok(Config::Text)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Config, A::Error> {
        BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(Config::Files)
    }
}
