//! A service: what its run works from, and its steps. Pure.

use std::collections::BTreeMap;

use api::{
    openstack::{
        Contract, Database, Existing, Messaging, OnDelete, OpenStackService, Standing, Storage,
        TransportUrl, WithoutValidator,
    },
    run::Step,
};
use controller::Problem;
use kube::ResourceExt;
use minijinja::{Environment, UndefinedBehavior, Value, context};
use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::{
    action::{Action, Job, in_order},
    bounds::WHOLE,
    components::{self, Made},
    config::{Merged, Source, template, tree},
    definition::{self, API, Definition, Whole},
    hooks,
    identity::Account,
    names, reach,
    rotation::{Scheduled, schedule},
    schema::Leave,
    wish::{self, Wanted, Wish, map, unwritable},
};

#[cfg(test)]
mod further;

/// What the steps of a service read.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a Run of before is read by these names"
)]
pub struct Inputs {
    /// Which service.
    pub service: String,
    /// The release, where somebody says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The image.
    pub image: String,
    /// How that is told its configuration and its command.
    #[serde(default, skip_serializing_if = "is_mounted")]
    pub contract: Contract,
    /// How many pods serve.
    pub replicas: u16,
    /// The database server.
    pub database: Server,
    /// The Keystone that knows it. None: it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Whether it has a memcached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_memcached: bool,
    /// Where the address of its RabbitMQ stands. None: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messaging: Option<Address>,
    /// Where its data is kept that is in no database. None: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Whether what is there already of its name, as its database, becomes the service's.
    pub adopt: bool,
    /// Whether it goes with what is in it when the service is installed, and is made anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// Whether database, Secrets and what Keystone knows go with the service.
    pub drop: bool,
    /// The ConfigMap with the files.
    pub config: String,
    /// The files.
    pub files: BTreeMap<String, String>,
    /// What of them is not held against the schema of the release.
    #[serde(default, skip_serializing_if = "Leave::is_empty")]
    pub schema: Leave,
    /// Its components in the order in which they start. Empty: there are only the pods of its API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Made>,
}

/// What nobody says is in no plan: those of before are still the same.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_mounted(contract: &Contract) -> bool {
    *contract == Contract::Mounted
}

/// A Keystone, and what the service is in it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// Where it answers, as pods reach it.
    pub url: String,
    /// The Secret with its administrator.
    pub admin_secret: String,
    /// What it is to know.
    pub account: Account,
}

/// A database server.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Server {
    /// Its host, as pods reach it.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The Secret with its administrator.
    pub admin_secret: String,
}

/// A key of a Secret, with an address of oslo.messaging.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Address {
    /// The Secret.
    pub secret: String,
    /// The key.
    pub key: String,
}

impl Address {
    fn of(messaging: &Messaging) -> Self {
        let TransportUrl { name, key } = messaging.transport_url_secret.clone();
        Self {
            secret: name,
            key: key.unwrap_or_else(|| "transport_url".to_owned()),
        }
    }
}

impl Server {
    fn of(database: &Database) -> Self {
        Self {
            host: database.host.clone(),
            port: database.port.unwrap_or(3306),
            admin_secret: database.admin_secret.name.clone(),
        }
    }
}

impl Wish for OpenStackService {
    fn service(&self) -> Option<&str> {
        Some(&self.spec.service)
    }

    fn rotations(&self) -> Vec<Scheduled> {
        if self.spec.keys.is_none() && self.spec.passwords.is_none() {
            return Vec::new();
        }
        let Some(definition) = definition::find(&self.spec.service) else {
            return Vec::new();
        };
        let files = files(self, definition, API);
        files.map_or_else(
            |_| Vec::new(),
            |files| schedule::of_service(self, definition, &files).unwrap_or_default(),
        )
    }

    fn wanted(&self) -> Result<Wanted, Vec<Problem>> {
        let spec = &self.spec;
        let Some(definition) = definition::find(&spec.service) else {
            let known: Vec<_> = definition::names().collect();
            return Err(vec![Problem::new(
                "OpenStackService spec.service",
                &spec.service,
                format!("the services that can be had are {}", known.join(", ")),
                "name one of them",
            )]);
        };
        wanted(self, definition)
    }

    fn removal(&self, inputs: &Map<String, serde_json::Value>) -> Option<Wanted> {
        let mut inputs: Inputs = wish::read(inputs)?;
        inputs.drop = self.spec.on_delete == Some(OnDelete::Delete);
        let definition = definition::find(&inputs.service)?;
        Some(Wanted {
            inputs: map(&inputs).ok()?,
            delete: delete(&inputs, definition).ok()?,
            ..Wanted::default()
        })
    }

    fn standing(&self) -> Option<&Standing> {
        self.status.as_ref()
    }
}

/// What a service of this definition wishes for.
///
/// # Errors
///
/// What is wrong with it: field, value, rule, remedy.
pub(crate) fn wanted(
    service: &OpenStackService,
    definition: &Definition,
) -> Result<Wanted, Vec<Problem>> {
    let spec = &service.spec;
    let mut problems = unfit(service, definition);
    let mut components = components::of(service, definition).unwrap_or_else(|of_components| {
        problems.extend(of_components);
        Vec::new()
    });
    let files = match files(service, definition, API) {
        Ok(files) => {
            let of_schedules = schedule::of_service(service, definition, &files).err();
            problems.extend(of_schedules.into_iter().flatten());
            files
        }
        Err(of_files) => {
            problems.extend(of_files);
            BTreeMap::new()
        }
    };
    let whole = whole(service, definition, API).unwrap_or_else(|of_files| {
        problems.extend(of_files);
        BTreeMap::new()
    });
    // What is wrong with what is said for all components was found by now.
    if problems.is_empty() {
        let own = components::with_files(&mut components, service, definition);
        problems.extend(own.err().into_iter().flatten());
    }
    let definition = &components::with_steps(definition, &components);
    let hooks = hooks::resolved(service, definition).unwrap_or_else(|of_hooks| {
        problems.extend(of_hooks);
        Vec::new()
    });
    if !problems.is_empty() {
        return Err(problems);
    }
    let schema = leave(service, &files);
    let files = rendered(files, whole);
    if components.len() < 2 {
        components.clear();
    }
    let name = service.name_any();
    let inputs = Inputs {
        service: spec.service.clone(),
        release: spec.release.clone(),
        image: spec.image.clone(),
        contract: spec.contract.unwrap_or_default(),
        replicas: spec.replicas.unwrap_or(1),
        database: Server::of(&spec.database),
        identity: identity(service, definition),
        has_memcached: spec.memcached.is_some(),
        messaging: spec.messaging.as_ref().map(Address::of),
        storage: spec.storage.clone(),
        adopt: spec.existing == Some(Existing::Adopt),
        replace: spec.existing == Some(Existing::Replace),
        drop: spec.on_delete == Some(OnDelete::Delete),
        config: names::config(&name, &digest(&files)),
        files,
        schema,
        components,
    };
    let install = install(&Places::of(service, definition), definition)
        .map_err(|error| unwritable(&error))?;
    let by_hand = definition.by_hand.iter();
    let by_hand = by_hand.map(|step| step.does.step(&step.id, &step.title, None));
    let by_hand = by_hand
        .collect::<Result<_, _>>()
        .map_err(|error| unwritable(&error))?;
    let delete = delete(&inputs, definition).map_err(|error| unwritable(&error))?;
    let wanted = Wanted {
        inputs: map(&inputs).map_err(|error| unwritable(&error))?,
        install,
        update: Vec::new(),
        hooks,
        // Each of its steps needs the one before.
        parallelism: 1,
        by_hand,
        delete,
    };
    wanted.carried(
        "OpenStackService spec",
        parts(service, &inputs),
        "put long files into an image, say less for components alone, of which each carries all its files, or have templates give less",
    )
}

/// What a Run of a service carries because people said it.
fn parts(service: &OpenStackService, inputs: &Inputs) -> Vec<(String, usize)> {
    let of = |component: &str, files: &BTreeMap<String, String>| {
        let files = files.iter();
        let files =
            files.map(|(file, text)| (format!("{file} of {component}"), wish::bytes(&text)));
        files.collect::<Vec<_>>()
    };
    let components = inputs.components.iter();
    let of_components = components.flat_map(|made| of(&made.name, &made.files));
    let hooks = service.spec.hooks.iter().flatten();
    let of_hooks = hooks.map(|hook| (format!("the hook {}", hook.name), wish::bytes(hook)));
    let of_api = of(API, &inputs.files).into_iter();
    of_api.chain(of_components).chain(of_hooks).collect()
}

/// What is not held against the schema of the release.
fn leave(service: &OpenStackService, files: &BTreeMap<String, Merged>) -> Leave {
    let check = service.spec.schema.clone().unwrap_or_default();
    let of_cloud = source::of_cloud(&service.name_any());
    let shared = files.iter().flat_map(|(file, merged)| {
        let only_of_cloud = merged.settings().filter(|(_, setting)| {
            let mut origins = setting.origins.iter();
            origins.all(|origin| origin.source == of_cloud)
        });
        only_of_cloud.map(move |(section, setting)| {
            format!("{file} {}.{}", section.unwrap_or_default(), setting.key)
        })
    });
    Leave {
        allow: check.allow,
        shared: shared.collect(),
        proceed: check.without_validator == Some(WithoutValidator::Proceed),
    }
}

/// What the service cannot be with this spec.
fn unfit(service: &OpenStackService, definition: &Definition) -> Vec<Problem> {
    let spec = &service.spec;
    let name = &definition.name;
    let mut problems = Vec::new();
    if definition.identity.is_some() && spec.identity.is_none() {
        problems.push(Problem::new(
            "OpenStackService spec.identity",
            "",
            format!("{name} needs a Keystone that knows its users"),
            "give the URL of one and the Secret of its administrator; in an OpenStack, add keystone to its services",
        ));
    }
    if definition.identity.is_none() && spec.identity.is_some() {
        problems.push(Problem::new(
            "OpenStackService spec.identity",
            spec.identity.as_ref().map_or("", |identity| &identity.url),
            format!("{name} is the one that others need: it needs none"),
            "leave it out",
        ));
    }
    if let Some(identity) = &spec.identity
        && is_in_clear(&identity.url, &service.namespace().unwrap_or_default())
    {
        problems.push(Problem::new(
            "OpenStackService spec.identity.url",
            &identity.url,
            "an administrator's password goes there: outside of the namespace by https alone",
            "give its https address",
        ));
    }
    if let Some(messaging) = &spec.messaging
        && definition.messaging.is_none()
    {
        problems.push(Problem::new(
            "OpenStackService spec.messaging.transportUrlSecret.name",
            &messaging.transport_url_secret.name,
            format!("{name} sends no messages"),
            "leave it out; an OpenStack gives it to those services alone that send some",
        ));
    }
    if definition.volume.is_none() && spec.storage.is_some() {
        problems.push(Problem::new(
            "OpenStackService spec.storage",
            spec.storage.as_ref().map_or("", |storage| &storage.size),
            format!("{name} keeps everything in its database"),
            "leave it out",
        ));
    }
    if definition.volume.is_some() && spec.replicas.is_some_and(|replicas| replicas > 1) {
        problems.push(Problem::new(
            "OpenStackService spec.replicas",
            spec.replicas.unwrap_or_default().to_string(),
            format!("what {name} keeps lies in a volume of one pod"),
            "let one pod serve",
        ));
    }
    let servers = spec.memcached.iter().flat_map(|known| &known.servers);
    for server in servers.filter(|server| !has_port(server)) {
        problems.push(Problem::new(
            "OpenStackService spec.memcached.servers",
            server,
            "a port is 1 to 65535",
            "give each server as HOST:PORT",
        ));
    }
    problems
}

fn has_port(server: &str) -> bool {
    let port = server.rsplit_once(':').map(|(_, port)| port.parse());
    matches!(port, Some(Ok(1..=u16::MAX)))
}

/// Whether what is sent there can be read by others: it is not https, and leaves the namespace.
pub(crate) fn is_in_clear(url: &str, namespace: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else {
        return false;
    };
    let host = rest.split(['/', ':']).next().unwrap_or_default();
    reach::service_of(host, namespace).is_none()
}

fn identity(service: &OpenStackService, definition: &Definition) -> Option<Identity> {
    let (is, knows) = (
        definition.identity.as_ref()?,
        service.spec.identity.as_ref()?,
    );
    let places = Places::of(service, definition);
    Some(Identity {
        url: knows.url.clone(),
        admin_secret: knows.admin_secret.name.clone(),
        account: Account {
            name: definition.name.clone(),
            type_: is.type_.clone(),
            roles: is.roles.clone(),
            region: places.region,
            internal: format!("{}{}", places.internal_url, is.path),
            public: format!("{}{}", places.public_url, is.path),
        },
    })
}

/// Where a service is, for the templates of its definition.
struct Places {
    region: String,
    internal_url: String,
    public_url: String,
    identity_url: String,
    memcached_servers: String,
}

impl Places {
    fn of(service: &OpenStackService, definition: &Definition) -> Self {
        let namespace = service.namespace().unwrap_or_default();
        let internal_url = internal_url(&service.name_any(), &namespace, definition.port);
        let spec = &service.spec;
        let identity = spec.identity.as_ref();
        let memcached = spec.memcached.as_ref();
        Self {
            region: spec.region.clone().unwrap_or_else(|| REGION.to_owned()),
            public_url: spec
                .public_url
                .clone()
                .unwrap_or_else(|| internal_url.clone()),
            identity_url: identity
                .map(|identity| identity.url.clone())
                .unwrap_or_default(),
            memcached_servers: memcached
                .map(|memcached| memcached.servers.join(","))
                .unwrap_or_default(),
            internal_url,
        }
    }

    /// The values are of strict forms, and a template that is wrong is found by the tests.
    fn fill(&self, text: &str) -> String {
        let Self {
            region,
            internal_url,
            public_url,
            identity_url,
            memcached_servers,
        } = self;
        let values = context! {region, internal_url, public_url, identity_url, memcached_servers};
        let mut templates = Environment::empty();
        templates.set_undefined_behavior(UndefinedBehavior::Strict);
        templates
            .render_str(text, &values)
            .unwrap_or_else(|_| text.to_owned())
    }
}

/// What people's own templates know: where things are, and what for. Nothing of it is secret, and what there is not is not set.
fn known(service: &OpenStackService, component: &str, places: &Places) -> Value {
    let spec = &service.spec;
    let of = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let known = [
        ("component", of(component)),
        ("identity_url", of(&places.identity_url)),
        ("internal_url", of(&places.internal_url)),
        ("memcached_servers", of(&places.memcached_servers)),
        ("public_url", of(&places.public_url)),
        ("region", of(&places.region)),
        ("release", spec.release.clone()),
        ("service", of(&spec.service)),
    ];
    let known = known
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    Value::from_pairs(known)
}

/// A text of people's, as it stands in a field of this name, rendered as Kolla does it.
fn said(field: String, text: &str, known: &Value) -> Result<Source, Problem> {
    let name = field.clone();
    template::render(field, text, known).map_err(|at| {
        let rule = format!("line {}: {}", at.line, at.rule);
        Problem::new(
            name,
            "",
            rule,
            "mend the line, or write {{ '{{' }} where the signs are meant",
        )
    })
}

/// The region of who names none.
const REGION: &str = "RegionOne";

/// The files of a component, as they are stored.
///
/// # Errors
///
/// As of [`files`] and [`whole`].
pub(crate) fn texts(
    service: &OpenStackService,
    definition: &Definition,
    component: &str,
) -> Result<BTreeMap<String, String>, Vec<Problem>> {
    let merged = files(service, definition, component)?;
    Ok(rendered(merged, whole(service, definition, component)?))
}

fn rendered(
    merged: BTreeMap<String, Merged>,
    whole: BTreeMap<String, Given>,
) -> BTreeMap<String, String> {
    let merged = merged.into_iter();
    let merged = merged.map(|(name, merged)| (name, merged.render()));
    let whole = whole.into_iter();
    let whole = whole.map(|(name, given)| (name, given.text()));
    merged.chain(whole).collect()
}

/// What tells files from others.
pub(crate) fn digest(files: &BTreeMap<String, String>) -> String {
    let text: Vec<_> = files
        .iter()
        .flat_map(|(name, text)| [name.as_str(), text])
        .collect();
    controller::digest(&text, 10)
}

/// Files, of those that somebody gives in a field, that the service does not read.
pub(crate) fn unread(
    field: &str,
    files: &BTreeMap<String, String>,
    definition: &Definition,
) -> Vec<Problem> {
    let known = |names: Vec<&String>| {
        let names = names.into_iter().map(String::as_str);
        names.collect::<Vec<_>>().join(", ")
    };
    let is_known = |name: &String| {
        name == GLOBAL
            || definition.config.contains_key(name)
            || definition.whole.contains_key(name)
    };
    let unread = files.keys().filter(|name| !is_known(name));
    let problems = unread.map(|name| {
        Problem::new(
            field,
            name,
            format!(
                "the files of {} are {}, and {GLOBAL} for these; whole ones are {}",
                definition.name,
                known(definition.config.keys().collect()),
                known(definition.whole.keys().collect()),
            ),
            "name one of them: a file that nobody reads changes nothing",
        )
    });
    problems.collect()
}

/// The configuration files of a component of a service, merged.
///
/// # Errors
///
/// One that people give is none of the service's, or is not written as such a file is.
pub fn files(
    service: &OpenStackService,
    definition: &Definition,
    component: &str,
) -> Result<BTreeMap<String, Merged>, Vec<Problem>> {
    #[cfg(test)]
    RENDERINGS.with(|count| count.set(count.get() + 1));
    let mut problems = unread(
        "OpenStackService spec.config",
        &service.spec.config,
        definition,
    );
    let places = Places::of(service, definition);
    let known = known(service, component, &places);
    let mut merged = BTreeMap::new();
    for (name, defaults) in &definition.config {
        let mut sources = built_in(service, definition, component, (name, defaults));
        for (field, text) in spoken(service, component, &[GLOBAL, name]) {
            match said(field, text, &known) {
                Ok(source) => sources.push(source),
                Err(problem) => problems.push(problem),
            }
        }
        match Merged::of(&sources) {
            Ok(file) => drop(merged.insert(name.clone(), file)),
            Err(error) => problems.push(Problem::new(
                error.source_name,
                "",
                format!("line {}: {}", error.at.line, error.at.rule),
                "mend the line",
            )),
        }
    }
    if problems.is_empty() {
        Ok(merged)
    } else {
        Err(problems)
    }
}

#[cfg(test)]
thread_local! {
    /// How often files were rendered in this thread.
    pub(crate) static RENDERINGS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// What stands in a file before people say anything.
fn built_in(
    service: &OpenStackService,
    definition: &Definition,
    component: &str,
    (file, defaults): (&str, &str),
) -> Vec<Source> {
    let places = Places::of(service, definition);
    let mut sources = vec![Source::new(
        source::built_in(&definition.name, file),
        places.fill(defaults),
    )];
    let of_memcached = definition.memcached.config.get(file);
    if let Some(text) = of_memcached.filter(|_| service.spec.memcached.is_some()) {
        let name = source::of_memcached(&definition.name, file);
        sources.push(Source::new(name, places.fill(text)));
    }
    let of_messaging = definition.messaging.as_ref();
    let of_messaging = of_messaging.and_then(|of| of.config.get(file));
    if let Some(text) = of_messaging.filter(|_| service.spec.messaging.is_some()) {
        let name = source::of_messaging(&definition.name, file);
        sources.push(Source::new(name, text));
    }
    // The one that oslo.policy reads anyway needs no word.
    let policies = policies(service, definition, component);
    for policy in policies.into_iter().filter(|name| *name != POLICY) {
        let name = source::of_policy(&definition.name, policy);
        let text = format!("[oslo_policy]\npolicy_file = {policy}\n");
        sources.push(Source::new(name, text));
    }
    sources
}

/// What people say in files of these names for a component, with the fields where it stands: the one with the last word last.
fn spoken<'a>(
    service: &'a OpenStackService,
    component: &str,
    files: &[&str],
) -> Vec<(String, &'a String)> {
    let object = service.name_any();
    let spec = &service.spec;
    // What a cloud says for all is for files that have one form.
    let of_cloud = spec
        .cloud_config
        .iter()
        .filter(|_| files.contains(&GLOBAL))
        .map(|text| (source::of_cloud(&object), text));
    let of_service = files.iter().filter_map(|file| {
        let text = spec.config.get(*file)?;
        Some((source::of_service(&object, file), text))
    });
    let said = spec.components.get(component);
    let of_component = files.iter().filter_map(|file| {
        let text = said?.config.get(*file)?;
        Some((source::of_component(&object, component, file), text))
    });
    of_cloud.chain(of_service).chain(of_component).collect()
}

/// The files with rules of oslo.policy that people give to a component.
fn policies<'a>(
    service: &OpenStackService,
    definition: &'a Definition,
    component: &str,
) -> Vec<&'a str> {
    let whole = definition.whole.iter();
    let policies = whole.filter(|(_, is)| **is == Whole::Policy);
    let names = policies.map(|(name, _)| name.as_str());
    names
        .filter(|name| !spoken(service, component, &[name]).is_empty())
        .collect()
}

/// A file that people give, and nobody merges with one of the service's own.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// It is one of the sources, and no other.
    Whole(Whole, Source),
    /// It is what all of them say.
    Merged(tree::Tree),
}

impl Given {
    /// The file.
    pub fn text(&self) -> String {
        match self {
            Self::Whole(_, source) => source.text.clone(),
            Self::Merged(tree) => tree.render(),
        }
    }
}

/// The files that people give, as a component has them.
///
/// # Errors
///
/// Rules of oslo.policy are none, or all of it is more than a Run carries.
pub fn whole(
    service: &OpenStackService,
    definition: &Definition,
    component: &str,
) -> Result<BTreeMap<String, Given>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut files = BTreeMap::new();
    let known = known(service, component, &Places::of(service, definition));
    for (name, is) in &definition.whole {
        let spoken = spoken(service, component, &[name]);
        match given((name, *is), spoken, &known) {
            Ok(Some(given)) => drop(files.insert(name.clone(), given)),
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    if let [first, second, ..] = policies(service, definition, component).as_slice() {
        problems.push(Problem::new(
            "OpenStackService spec.config",
            *first,
            format!("oslo.policy reads one file, and {second} is given, too"),
            "give one of the two",
        ));
    }
    let bytes = bytes(service, definition);
    if bytes > WHOLE {
        problems.push(Problem::new(
            "OpenStackService spec.config",
            format!("{bytes} bytes of whole files"),
            format!("each Run carries them: {WHOLE} bytes together at most"),
            "put long files into an image",
        ));
    }
    if problems.is_empty() {
        Ok(files)
    } else {
        Err(problems)
    }
}

/// A file of what people say of it. None: nobody says anything.
fn given(
    (name, is): (&str, Whole),
    mut spoken: Vec<(String, &String)>,
    known: &Value,
) -> Result<Option<Given>, Problem> {
    if is == Whole::Merged {
        let sources = spoken.into_iter();
        let sources = sources.map(|(field, text)| said(field, text, known));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        if sources.is_empty() {
            return Ok(None);
        }
        let merged = tree::Tree::of(tree::Format::of(name), &sources);
        return merged.map(Given::Merged).map(Some).map_err(|error| {
            let rule = format!("line {}: {}", error.at.line, error.at.rule);
            Problem::new(error.source_name, "", rule, "mend the line")
        });
    }
    // What is said for the component alone stands instead of what is said for the service.
    let Some((field, text)) = spoken.pop() else {
        return Ok(None);
    };
    let source = match is {
        Whole::Policy => said(field, text, known)?,
        _ => Source::new(field, text),
    };
    if is == Whole::Policy
        && let Err(why) = rules(name, &source.text)
    {
        let remedy = "write rules as NAME: \"CHECK\", as oslo.policy has them";
        return Err(Problem::new(source.name, "", why, remedy));
    }
    Ok(Some(Given::Whole(is, source)))
}

/// How long all files are that are given whole, for whichever component.
fn bytes(service: &OpenStackService, definition: &Definition) -> usize {
    let components = service.spec.components.values();
    let all = components.map(|said| &said.config);
    let all = std::iter::once(&service.spec.config).chain(all).flatten();
    let whole = all.filter(|(name, _)| definition.whole.contains_key(*name));
    whole.map(|(_, text)| text.len()).sum()
}

/// Whether a text is rules of oslo.policy, and what it is if not. Whether the release asks for them is known by its image.
fn rules(file: &str, text: &str) -> Result<(), String> {
    if tree::Format::of(file) == tree::Format::Json {
        serde_json::from_str::<serde::de::IgnoredAny>(text)
            .map_err(|error| format!("it is no JSON: {error}"))?;
    }
    let rules: BTreeMap<String, serde_json::Value> =
        serde_saphyr::from_str(text).map_err(|error| {
            let line = error.to_string();
            let line = line.lines().next().unwrap_or_default();
            format!("it is no map of rules: {line}")
        })?;
    match rules
        .iter()
        .find(|(_, check)| !check.is_string() && !check.is_array())
    {
        Some((name, _)) => Err(format!("the rule {name} is no text")),
        None if rules.is_empty() => Err("it holds no rule".to_owned()),
        None => Ok(()),
    }
}

/// What people know the sources of a file by, in the order in which they are merged.
pub mod source {
    /// The file that Windlass has of a service.
    pub fn built_in(service: &str, file: &str) -> String {
        format!("services/{service}.yaml config[{file}]")
    }

    /// What that file has of a memcached.
    pub fn of_memcached(service: &str, file: &str) -> String {
        format!("services/{service}.yaml memcached.config[{file}]")
    }

    /// What that file has of a RabbitMQ.
    pub fn of_messaging(service: &str, file: &str) -> String {
        format!("services/{service}.yaml messaging.config[{file}]")
    }

    /// What that file has for rules in a file of another name than the one that oslo.policy reads.
    pub fn of_policy(service: &str, file: &str) -> String {
        format!("services/{service}.yaml whole[{file}]")
    }

    /// What the cloud says for all its services.
    pub fn of_cloud(object: &str) -> String {
        format!("OpenStackService {object} spec.cloudConfig")
    }

    /// What is said for the service alone.
    pub fn of_service(object: &str, file: &str) -> String {
        format!("OpenStackService {object} spec.config[{file}]")
    }

    /// What is said for one of its components alone.
    pub fn of_component(object: &str, component: &str, file: &str) -> String {
        format!("OpenStackService {object} spec.components[{component}].config[{file}]")
    }
}

/// The file with rules that oslo.policy reads unless somebody says another one.
const POLICY: &str = "policy.yaml";

/// What stands before the files of the service themselves, as Kolla calls it.
pub const GLOBAL: &str = "global.conf";

/// Where a service answers in the cluster.
pub fn internal_url(object: &str, namespace: &str, port: u16) -> String {
    format!("http://{object}.{namespace}.svc:{port}")
}

fn install(places: &Places, definition: &Definition) -> Result<Vec<Step>, serde_json::Error> {
    let steps = definition.steps.iter().map(|step| {
        let action = match &step.does {
            Action::Job(job) => Action::Job(Job {
                command: job.command.iter().map(|text| places.fill(text)).collect(),
                environment: job.environment.clone(),
            }),
            action => action.clone(),
        };
        (step.id.as_str(), step.title.as_str(), action)
    });
    in_order(steps)
}

fn delete(inputs: &Inputs, definition: &Definition) -> Result<Vec<Step>, serde_json::Error> {
    let steps = definition.teardown.iter();
    let steps = steps.filter(|step| inputs.drop || !step.takes_data);
    in_order(steps.map(|step| (step.id.as_str(), step.title.as_str(), step.does.clone())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keystone(config: &serde_json::Value) -> OpenStackService {
        serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": "identity", "namespace": "cloud"},
            "spec": {"service": "keystone", "image": "keystone:1", "config": config,
                "database": {"host": "db", "adminSecret": {"name": "admin"}}},
        }))
        .unwrap()
    }

    #[test]
    fn a_service_is_its_data_and_what_people_say() {
        let config = json!({"keystone.conf": "[token]\nexpiration = 60\n", "global.conf": "[DEFAULT]\ndebug = true\n"});
        let wanted = keystone(&config).wanted().unwrap();
        let text = wanted.inputs["files"]["keystone.conf"].as_str().unwrap();
        assert!(text.contains("debug = true\n"), "{text}");
        assert!(
            text.contains("provider = fernet\nexpiration = 60\nallow_expired_window"),
            "{text}"
        );
        let ids: Vec<_> = wanted.install.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(ids.first(), Some(&"database/check"));
        assert_eq!(ids.len(), 13);
        let bootstrap = serde_json::to_string(&wanted.install[7]).unwrap();
        assert!(bootstrap.contains("--bootstrap-public-url=http://identity.cloud.svc:5000/v3"));
        assert!(bootstrap.contains("--bootstrap-region-id=RegionOne"));
        assert!(
            !serde_json::to_string(&wanted.install)
                .unwrap()
                .contains("{{")
        );
        let other = keystone(&json!({"keystone.conf": "[token]\nexpiration = 61\n"}));
        assert_ne!(
            other.wanted().unwrap().inputs["config"],
            wanted.inputs["config"]
        );
    }

    #[test]
    fn a_file_that_is_given_whole_is_taken_as_it_is() {
        let policy = "# Those of the night shift.\n\"identity:get_user\": \"role:night\"\n";
        let config = json!({"policy.yaml": policy, "global.conf": "[DEFAULT]\ndebug = true\n"});
        let wanted = keystone(&config).wanted().unwrap();
        assert_eq!(wanted.inputs["files"]["policy.yaml"], policy);
        let plain = keystone(&json!({"global.conf": "[DEFAULT]\ndebug = true\n"}));
        let plain = plain.wanted().unwrap();
        assert_ne!(plain.inputs["config"], wanted.inputs["config"]);
        assert!(plain.inputs["files"].get("policy.yaml").is_none());
    }

    fn of(service: &str, spec: &serde_json::Value) -> OpenStackService {
        let mut object = keystone(&json!({}));
        object.metadata.name = Some(format!("one-{service}"));
        let mut whole = serde_json::to_value(&object.spec).unwrap();
        whole["service"] = json!(service);
        for (field, value) in spec.as_object().unwrap() {
            whole[field] = value.clone();
        }
        object.spec = serde_json::from_value(whole).unwrap();
        object
    }

    #[test]
    fn every_service_but_keystone_is_known_to_one() {
        let known = json!({"identity": {"url": "http://one-keystone.cloud.svc:5000/v3", "adminSecret": {"name": "a"}}});
        for service in definition::names().filter(|name| *name != "keystone") {
            let wanted = of(service, &known).wanted().unwrap();
            let told = serde_json::to_string(&wanted.install).unwrap();
            assert!(told.contains("SeedIdentity"), "{told}");
            let inputs: Inputs = serde_json::from_value(wanted.inputs.into()).unwrap();
            let files: String = inputs.files.values().cloned().collect();
            assert!(
                files.contains("auth_url = http://one-keystone.cloud.svc:5000/v3\n"),
                "{files}"
            );
            assert!(!files.contains("{{"), "{files}");
            let account = inputs.identity.unwrap().account;
            let port = definition::find(service).unwrap().port;
            assert_eq!(
                account.internal,
                format!("http://one-{service}.cloud.svc:{port}")
            );
            let alone = of(service, &json!({})).wanted().unwrap_err();
            let alone = controller::problem::text(&alone);
            assert!(alone.contains("needs a Keystone"), "{alone}");
        }
    }

    #[test]
    fn what_a_service_cannot_be_is_refused_by_field() {
        let identity = json!({"url": "http://k:5000/v3", "adminSecret": {"name": "a"}});
        let refused = |service: &str, spec: serde_json::Value| {
            controller::problem::text(&of(service, &spec).wanted().unwrap_err())
        };
        let many = refused("glance", json!({"identity": identity, "replicas": 2}));
        assert!(many.contains("spec.replicas"), "{many}");
        let stored = refused(
            "placement",
            json!({"identity": identity, "storage": {"size": "1Gi"}}),
        );
        assert!(stored.contains("spec.storage"), "{stored}");
        let elsewhere = json!({"url": "http://k.example:5000/v3", "adminSecret": {"name": "a"}});
        let clear = refused("placement", json!({"identity": elsewhere}));
        assert!(clear.contains("by https alone"), "{clear}");
        for server in ["a:0", "a:65536"] {
            let port = refused("keystone", json!({"memcached": {"servers": [server]}}));
            for part in ["spec.memcached.servers", server, "1 to 65535"] {
                assert!(port.contains(part), "{port}");
            }
        }
        let known = refused("keystone", json!({"identity": identity}));
        assert!(known.contains("spec.identity"), "{known}");
    }

    #[test]
    fn only_what_a_cloud_alone_says_may_be_for_another_service() {
        let mut object = keystone(&json!({"keystone.conf": "[cache]\nenabled = true\n"}));
        object.spec.cloud_config = Some("[cache]\nenabled = false\nbackend = b\n".to_owned());
        let check = json!({"allow": ["mine.*"], "withoutValidator": "Proceed"});
        let whole = |object: &OpenStackService| -> Inputs {
            let wanted = object.wanted().unwrap();
            serde_json::from_value(wanted.inputs.into()).unwrap()
        };
        assert_eq!(
            whole(&object).schema.shared,
            ["keystone.conf cache.backend"]
        );
        assert!(!whole(&object).schema.proceed);
        object.spec.schema = serde_json::from_value(check).unwrap();
        object.spec.cloud_config = None;
        let leave = whole(&object).schema;
        assert_eq!(leave.allow, ["mine.*"]);
        assert!(leave.proceed && leave.shared.is_empty());
        // What nobody says is in no plan: those of before are still the same.
        object.spec.schema = None;
        assert!(!object.wanted().unwrap().inputs.contains_key("schema"));
    }

    #[test]
    fn where_a_memcached_is_people_have_the_last_word_on_it() {
        let identity =
            json!({"url": "http://one-keystone.cloud.svc:5000/v3", "adminSecret": {"name": "a"}});
        for (service, file, setting) in [
            ("keystone", "keystone.conf", ("cache", "memcache_servers")),
            (
                "glance",
                "glance-api.conf",
                ("keystone_authtoken", "memcached_servers"),
            ),
            (
                "placement",
                "placement.conf",
                ("keystone_authtoken", "memcached_servers"),
            ),
        ] {
            let mut spec = json!({"memcached": {"servers": ["one-memcached:11211", "b:1"]}});
            if service != "keystone" {
                spec["identity"] = identity.clone();
            }
            let of = |spec: &serde_json::Value| {
                let definition = definition::find(service).unwrap();
                let files = files(&super::tests::of(service, spec), definition, API).unwrap();
                let found = files[file].setting(Some(setting.0), setting.1).cloned();
                found.map(|found| {
                    let sources = found.origins.iter().map(|origin| origin.source.clone());
                    (found.values().last().unwrap(), sources.collect::<Vec<_>>())
                })
            };
            let (value, sources) = of(&spec).unwrap();
            assert_eq!(value, "one-memcached:11211,b:1");
            let built_in = format!("services/{service}.yaml memcached.config[{file}]");
            assert_eq!(sources, [built_in]);
            let (section, key) = setting;
            spec["cloudConfig"] = json!(format!("[{section}]\n{key} = mine:1\n"));
            assert_eq!(of(&spec).unwrap().0, "mine:1");
            spec["cloudConfig"] = json!(null);
            spec["memcached"] = json!(null);
            assert_eq!(of(&spec), None);
        }
    }

    #[test]
    fn where_a_rabbitmq_is_its_address_is_in_no_file_and_people_have_the_last_word_on_the_rest() {
        let messaging = json!({"transportUrlSecret": {"name": "rabbitmq"}});
        for (service, file) in [("keystone", "keystone.conf"), ("glance", "glance-api.conf")] {
            let mut spec = json!({"messaging": messaging});
            if service == "glance" {
                spec["identity"] = json!({"url": "http://one-keystone.cloud.svc:5000/v3", "adminSecret": {"name": "a"}});
            }
            let whole = |spec: &serde_json::Value| {
                let wanted = of(service, spec).wanted().unwrap();
                serde_json::from_value::<Inputs>(wanted.inputs.into()).unwrap()
            };
            let inputs = whole(&spec);
            let (secret, key) = ("rabbitmq".to_owned(), "transport_url".to_owned());
            assert_eq!(inputs.messaging, Some(Address { secret, key }));
            let text = &inputs.files[file];
            assert!(
                text.contains("[oslo_messaging_notifications]\ndriver = messagingv2\n"),
                "{text}"
            );
            assert!(!text.contains("transport_url"), "{text}");
            spec["cloudConfig"] = json!("[oslo_messaging_notifications]\ndriver = noop\n");
            assert!(whole(&spec).files[file].contains("driver = noop\n"));
            // Without one, nothing of it is said.
            spec["messaging"] = json!(null);
            spec["cloudConfig"] = json!(null);
            let none = of(service, &spec).wanted().unwrap().inputs;
            assert!(
                !serde_json::to_string(&none).unwrap().contains("messaging"),
                "{none:?}"
            );
        }
        let identity =
            json!({"url": "http://one-keystone.cloud.svc:5000/v3", "adminSecret": {"name": "a"}});
        let silent = of(
            "placement",
            &json!({"messaging": messaging, "identity": identity}),
        );
        let silent = controller::problem::text(&silent.wanted().unwrap_err());
        for word in [
            "spec.messaging",
            "\"rabbitmq\"",
            "placement sends no messages",
            "leave it out",
        ] {
            assert!(silent.contains(word), "{silent}");
        }
    }

    #[test]
    fn what_a_cloud_says_comes_before_what_is_said_for_the_service() {
        let mut object = keystone(&json!({"global.conf": "[token]\nexpiration = 2\n"}));
        let text = "[token]\nexpiration = 1\nallow_expired_window = 1\n";
        object.spec.cloud_config = Some(text.to_owned());
        let definition = definition::find("keystone").unwrap();
        let files = files(&object, definition, API).unwrap();
        let of = |key| files["keystone.conf"].setting(Some("token"), key).unwrap();
        let spoke = |key| {
            let origins = of(key).origins.iter();
            origins
                .map(|origin| origin.source.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(of("expiration").values().collect::<Vec<_>>(), ["2"]);
        assert_eq!(
            spoke("expiration"),
            [
                "services/keystone.yaml config[keystone.conf]",
                "OpenStackService identity spec.cloudConfig",
                "OpenStackService identity spec.config[global.conf]",
            ]
        );
        assert_eq!(of("allow_expired_window").values().last().unwrap(), "1");
    }

    #[test]
    fn a_service_goes_in_the_order_of_its_file_and_its_data_where_that_is_wanted() {
        let identity = json!({"url": "http://k:5000/v3", "adminSecret": {"name": "a"}});
        let ids = |service: &str, on_delete: &str| {
            let mut spec = json!({"onDelete": on_delete});
            if service != "keystone" {
                spec["identity"] = identity.clone();
            }
            let wanted = of(service, &spec).wanted().unwrap();
            let ids = wanted.delete.into_iter().map(|step| step.id);
            ids.collect::<Vec<_>>().join(" ")
        };
        for service in definition::names() {
            assert_eq!(ids(service, "Retain"), "releases/remove");
        }
        let all = "releases/remove identity/remove database/drop secrets/remove";
        assert_eq!(ids("glance", "Delete"), all);
        let keystone = all.replace(" identity/remove", "");
        assert_eq!(ids("keystone", "Delete"), keystone);
    }

    #[test]
    fn what_people_write_is_rendered_with_what_is_no_secret() {
        let text = "[token]\n{% if region == 'RegionOne' %}\nexpiration = 60\n{% endif %}\n# {{ service }} {{ component }} {{ public_url }}\n";
        let policy = "# {{ region }}\n\"a\": \"role:{{ service }}\"\n";
        let config = json!({"keystone.conf": text, "policy.yaml": policy, "sso_callback_template.html": "{{ it }}"});
        let object = keystone(&config);
        let files = texts(&object, definition::find("keystone").unwrap(), API).unwrap();
        assert!(files["keystone.conf"].contains("expiration = 60\n"));
        assert_eq!(
            files["policy.yaml"],
            "# RegionOne\n\"a\": \"role:keystone\"\n"
        );
        // Kolla takes other files as they are.
        assert_eq!(files["sso_callback_template.html"], "{{ it }}");
        let merged = super::files(&object, definition::find("keystone").unwrap(), API).unwrap();
        let setting = merged["keystone.conf"].setting(Some("token"), "expiration");
        assert_eq!(setting.unwrap().origins.last().unwrap().line, 3);
        let unset = keystone(
            &json!({"global.conf": "[database]\n\nconnection = mysql://k:{{ keystone_database_password }}@db\n"}),
        );
        let unset = controller::problem::text(&unset.wanted().unwrap_err());
        for word in [
            "spec.config[global.conf]",
            "line 3: keystone_database_password is not set: a template knows component, internal_url, public_url, region, service, and nothing that is secret",
        ] {
            assert!(unset.contains(word), "{unset}");
        }
        assert!(!unset.contains("mysql"), "{unset}");
    }

    #[test]
    fn rules_in_json_are_read_where_the_file_says_so_and_one_file_has_them() {
        let rules = "{\"identity:get_user\": \"role:night\"}";
        let wanted = keystone(&json!({"policy.json": rules})).wanted().unwrap();
        let files = &wanted.inputs["files"];
        assert_eq!(files["policy.json"], rules);
        let text = files["keystone.conf"].as_str().unwrap();
        assert!(
            text.contains("[oslo_policy]\npolicy_file = policy.json\n"),
            "{text}"
        );
        let none = keystone(&json!({"policy.yaml": rules})).wanted().unwrap();
        assert!(
            !none.inputs["files"]["keystone.conf"]
                .as_str()
                .unwrap()
                .contains("policy_file")
        );
        for (config, word) in [
            (json!({"policy.json": "a: b"}), "it is no JSON"),
            (
                json!({"policy.json": rules, "policy.yaml": rules}),
                "oslo.policy reads one file, and policy.yaml is given, too",
            ),
        ] {
            let refused = controller::problem::text(&keystone(&config).wanted().unwrap_err());
            assert!(
                refused.contains(word) && refused.contains("spec.config"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_file_that_is_merged_has_what_is_said_for_the_service_and_for_the_component() {
        let of = |own: &str| {
            let components = json!({"api": {"config": {"schema-image.json": own}}});
            let identity = json!({"url": "http://k:5000/v3", "adminSecret": {"name": "a"}});
            let config =
                json!({"schema-image.json": "{\"kernel\": {\"type\": \"string\", \"max\": 1.0}}"});
            let spec = json!({"config": config, "components": components, "identity": identity});
            super::tests::of("glance", &spec).wanted()
        };
        let wanted = of("{\"kernel\": {\"max\": 2.0}}").unwrap();
        assert_eq!(
            wanted.inputs["files"]["schema-image.json"],
            "{\n  \"kernel\": {\n    \"type\": \"string\",\n    \"max\": 2.0\n  }\n}\n"
        );
        let refused = controller::problem::text(&of("{\n\"a\":}").unwrap_err());
        for word in [
            "spec.components[api].config[schema-image.json]",
            "line 2: it is no JSON",
        ] {
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn what_no_run_could_carry_is_refused_before_one_is_planned() {
        // Each is short as it is written, and each gives a quarter of what a Run carries.
        let text = |section: &str| format!("[{section}]\na = {{{{ 'x' * 260000 }}}}\n");
        let files = |sections: &[&str]| {
            let said = ["global.conf", "keystone.conf"].iter().zip(sections);
            let said = said.map(|(file, section)| ((*file).to_owned(), text(section)));
            said.collect::<BTreeMap<_, _>>()
        };
        let mut object = keystone(&json!(files(&["one", "two"])));
        object.spec.cloud_config = Some(text("three"));
        assert!(object.wanted().is_ok());
        // With what is said for a component alone it is too much.
        let own = json!({"config": files(&["four", "five"])});
        object.spec.components = serde_json::from_value(json!({"api": own})).unwrap();
        let refused = controller::problem::text(&object.wanted().unwrap_err());
        for word in [
            "OpenStackService spec ",
            " bytes\"",
            "takes 1048576 bytes of it in all",
            "keystone.conf of api with 13",
            "have templates give less",
        ] {
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn what_nobody_would_read_is_refused() {
        let refused =
            |service: OpenStackService| controller::problem::text(&service.wanted().unwrap_err());
        let misnamed = refused(keystone(&json!({"keystne.conf": ""})));
        assert!(
            misnamed.contains("the files of keystone are keystone.conf"),
            "{misnamed}"
        );
        let broken = refused(keystone(&json!({"keystone.conf": "[DEFAULT]\ndebug\n"})));
        assert!(
            broken.contains("line 2: a setting is KEY = VALUE"),
            "{broken}"
        );
        for (policy, why) in [
            ("a: [", "it is no map of rules"),
            ("- a", "it is no map of rules"),
            ("a: {b: c}", "the rule a is no text"),
            ("", "it holds no rule"),
        ] {
            let refused = refused(keystone(&json!({"policy.yaml": policy})));
            let field = "spec.config[policy.yaml]";
            assert!(
                refused.contains(field) && refused.contains(why),
                "{refused}"
            );
        }
        let large = json!({"sso_callback_template.html": "x".repeat(WHOLE + 1)});
        let large = refused(keystone(&large));
        assert!(large.contains("262145 bytes of whole files"), "{large}");
        let mut unknown = keystone(&json!({}));
        unknown.spec.service = "keystne".to_owned();
        let unknown = refused(unknown);
        assert!(
            unknown.contains("the services that can be had are keystone, placement, glance"),
            "{unknown}"
        );
    }
}
