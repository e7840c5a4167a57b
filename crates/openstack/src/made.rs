//! What steps make: objects, and releases of Helm by their values. The engine stores them, and `windlass openstack render` prints them. Pure but for
//! [`versions`].

use std::collections::{BTreeMap, BTreeSet};

use api::{
    openstack::{Contract, OF_LABEL},
    run::Step,
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, ResourceExt, api::ObjectMeta};
use serde_json::{Map, Value, json};

use crate::{
    action::{Action, HookJob, Job},
    charts::Chart,
    cloud::{
        self, MEMCACHED_PORT, RABBITMQ_PORT, database_server, memcached_server, rabbitmq_server,
    },
    definition::{API, Definition, Key, SecretKind, Whole},
    kolla,
    names::{self, CONFIG_PART},
    service::{Address, Inputs},
};

/// How long a Job of three attempts may take.
const JOB_SECONDS: u64 = 1500;
/// How long a check may take, which is less than its step may.
const CHECK_SECONDS: u64 = 600;
/// Nobody in particular: Debian's image has the user of the services, and MariaDB asks for none.
const DATABASE_USER: u32 = 42424;

/// For what something is made.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// The name of the object.
    pub name: String,
    /// The cloud, where it is made for a drill of it.
    pub drill_of: Option<String>,
    /// The object as an owner. None: it is in no cluster.
    pub owner: Option<OwnerReference>,
}

/// A release of Helm.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// Its name.
    pub name: String,
    /// Its chart.
    pub chart: Chart,
    /// The values of that.
    pub values: Value,
}

/// Something that a step makes.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    /// Objects.
    ConfigMaps(Vec<ConfigMap>),
    /// A release.
    Release(Release),
}

impl Release {
    /// The Secrets that its containers get by their environment: where one changes, what runs is another.
    pub fn secrets(&self) -> BTreeSet<String> {
        let variables = self.values["environment"].as_object().into_iter().flatten();
        let named = variables.filter_map(|(_, value)| value["secret"].as_str());
        named.map(str::to_owned).collect()
    }

    /// The release while its Secrets are in this state, by which a Job is called, and pods are others.
    #[must_use]
    pub fn settled(mut self, state: &str) -> Self {
        match self.chart {
            Chart::Job => {
                let made_from = self.values.to_string();
                self.values["digest"] = json!(controller::digest(&[&made_from, state], 10));
            }
            Chart::Api => self.values["state"] = json!(controller::digest(&[state], 10)),
            Chart::Database | Chart::Memcached | Chart::Rabbitmq => {}
        }
        self
    }

    /// What the Job of a settled release is called.
    pub fn job(&self) -> String {
        let digest = self.values["digest"].as_str().unwrap_or_default();
        format!("{}-{digest}", self.name)
    }
}

impl Subject {
    /// On everything that is made for it.
    pub fn labels(&self) -> BTreeMap<String, String> {
        names::labels(&self.name, self.drill_of.as_deref())
    }

    /// On everything that is made for a part of it.
    pub fn part(&self, part: &str) -> BTreeMap<String, String> {
        let mut labels = self.labels();
        labels.insert(names::PART_LABEL.to_owned(), part.to_owned());
        labels
    }

    /// What a step of a service makes, but for what is secret.
    pub fn of_service(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        step: &Step,
    ) -> Option<Made> {
        Some(match Action::of(step)? {
            Action::ApplyConfig => Made::ConfigMaps(self.config_maps(inputs)),
            Action::CheckConfig => Made::Release(self.check(inputs, definition, &[], &step.id)),
            Action::CheckComponent(of) => {
                let inputs = inputs.of_component(&of.component);
                Made::Release(self.check(&inputs, definition, &[], &step.id))
            }
            Action::Job(job) => Made::Release(self.job(inputs, definition, &job, &step.id)),
            Action::Hook(hook) => Made::Release(self.hook(inputs, definition, &hook, &step.id)),
            Action::Deploy => Made::Release(self.component(inputs, definition, API)?),
            Action::DeployComponent(of) => {
                Made::Release(self.component(inputs, definition, &of.component)?)
            }
            _ => return None,
        })
    }

    /// What a step of a cloud makes, but for what is secret and its services.
    pub fn of_cloud(&self, inputs: &cloud::Inputs, step: &Step) -> Option<Made> {
        match Action::of(step)? {
            Action::DeployServer => self.server(inputs).map(Made::Release),
            Action::DeployMemcached => self.memcached(inputs).map(Made::Release),
            Action::DeployMessaging => self.rabbitmq(inputs).map(Made::Release),
            _ => None,
        }
    }

    /// The configuration files: those of the service, and of each component with its own. A name holds a digest of their text.
    pub fn config_maps(&self, inputs: &Inputs) -> Vec<ConfigMap> {
        let maps = inputs.configs().into_iter().map(|(name, files)| ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(self.part(CONFIG_PART)),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            data: Some(files.clone()),
            immutable: Some(true),
            ..ConfigMap::default()
        });
        maps.collect()
    }

    /// A command that runs once.
    pub fn job(&self, inputs: &Inputs, definition: &Definition, job: &Job, step: &str) -> Release {
        let mut values = self.pod(inputs, definition, &job.command);
        for (name, key) in &job.environment {
            values["environment"][name] = self.reference(key);
        }
        self.once(values, step, JOB_SECONDS)
    }

    /// The image's own look at the files, and at tables that are at these revisions. There may be no Secret yet, and of what is not there
    /// nothing is told.
    pub fn check(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        tables: &[String],
        step: &str,
    ) -> Release {
        let directory = &definition.config_directory;
        let schema = &definition.schema;
        let is_merged = |name: &&String| definition.config.contains_key(*name);
        let (merged, whole): (Vec<_>, Vec<_>) = inputs.files.keys().partition(is_merged);
        let of = |name: &String| (name.clone(), inputs.files[name].clone());
        let merged = merged.into_iter().map(of).collect();
        let is_policy = |name: &&str| definition.whole.get(*name) == Some(&Whole::Policy);
        let policies: Vec<_> = whole
            .into_iter()
            .map(String::as_str)
            .filter(is_policy)
            .collect();
        let command = schema.command(directory, &merged, &policies, tables, &inputs.schema);
        let mut values = self.pod(inputs, definition, &command);
        if let Some(environment) = values["environment"].as_object_mut() {
            environment.retain(|_, value| value.is_string());
        }
        values["secrets"] = json!([]);
        values["once"] = json!(true);
        self.once(values, step, CHECK_SECONDS)
    }

    /// A Job of people's own. A release or an image of the service that is another makes it another.
    pub fn hook(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        hook: &HookJob,
        step: &str,
    ) -> Release {
        let image = &hook.image;
        let (command, args) = (image.command.as_deref(), image.args.as_deref());
        // An image of people's own need not be Kolla's.
        let mut values = if image.name.is_none() && inputs.contract == Contract::Kolla {
            let words = [command, args].into_iter().flatten().flatten();
            self.pod(inputs, definition, &words.cloned().collect::<Vec<_>>())
        } else {
            let mut values = self.mounted(inputs, definition, &[]);
            values["command"] = json!(plain(command));
            values["args"] = json!(plain(args));
            values
        };
        if let Some(name) = &image.name {
            values["image"] = json!(name);
        }
        for (name, value) in [
            ("WINDLASS_SERVICE", &self.name),
            ("WINDLASS_HOOK", &hook.name),
            ("WINDLASS_STEP", &hook.step),
            ("WINDLASS_IMAGE", &inputs.image),
            (
                "WINDLASS_RELEASE",
                inputs.release.as_ref().unwrap_or(&String::new()),
            ),
        ] {
            values["environment"][name] = json!(value);
        }
        for variable in image.env.iter().flatten() {
            values["environment"][&variable.name] = match &variable.secret_key_ref {
                Some(of) => json!({"secret": of.name, "key": of.key}),
                None => json!(escaped(variable.value.as_deref().unwrap_or_default())),
            };
        }
        if !image.files.is_empty() {
            values["files"] = json!(image.files);
        }
        self.once(values, step, hook.timeout.seconds())
    }

    fn once(&self, mut values: Value, step: &str, seconds: u64) -> Release {
        values["container"] = json!("job");
        values["deadline"] = json!(seconds);
        values["labels"] = json!(self.part(&step.replace('/', "-")));
        Release {
            name: names::step(&self.name, step),
            chart: Chart::Job,
            values,
        }
    }

    /// The pods of a component. None: the service has no such one.
    pub fn component(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        component: &str,
    ) -> Option<Release> {
        let is = definition.components.get(component)?;
        let has_others = inputs.started().len() > 1;
        let inputs = inputs.of_component(component);
        let mut values = self.pod(&inputs, definition, &is.command);
        values["container"] = json!(component);
        values["replicas"] = json!(inputs.replicas);
        values["grace"] = json!(is.grace);
        values["labels"] = json!(self.part(component));
        if component == API {
            values["service"] = json!(self.name);
            values["port"] = json!(definition.port);
            values["path"] = json!(definition.path);
        }
        // No wish is for none of them.
        if inputs.replicas == 0 {
            values["stopped"] = json!(true);
        }
        if let Some(directory) = &definition.volume {
            values["volume"] = json!({"directory": directory, "storage": inputs.storage});
            if inputs.storage.is_some() && has_others {
                values["affinity"] = self.beside(component);
            }
            if component != API {
                values["volume"]["claim"] = json!(names::api(&self.name));
            }
        }
        Some(Release {
            name: names::component(&self.name, component),
            chart: Chart::Api,
            values,
        })
    }

    /// Has the pods that share a volume stand where it is: others go to that of the API, which stays with them where it can.
    fn beside(&self, component: &str) -> Value {
        let of = |labels: BTreeMap<String, String>| json!({"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"});
        if component == API {
            let term = json!({"weight": 100, "podAffinityTerm": of(self.labels())});
            return json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}});
        }
        let term = of(self.part(API));
        json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    }

    /// The database server of a cloud. None: there is one.
    pub fn server(&self, inputs: &cloud::Inputs) -> Option<Release> {
        let server = inputs.server.as_ref()?;
        let name = database_server(&self.name);
        let values = json!({
            "image": server.image,
            "user": DATABASE_USER,
            "secret": names::secret(&name, "admin"),
            "storage": server.storage,
            "labels": self.part("mariadb"),
        });
        Some(Release {
            name,
            chart: Chart::Database,
            values,
        })
    }

    /// The memcached of a cloud. None: there is one, or none.
    pub fn memcached(&self, inputs: &cloud::Inputs) -> Option<Release> {
        let memcached = inputs.memcached.as_ref()?;
        let services = inputs.services.iter();
        let services = services.map(|spec| cloud::service_name(&self.name, &spec.service));
        let values = json!({
            "image": memcached.image,
            "user": DATABASE_USER,
            "port": MEMCACHED_PORT,
            "megabytes": megabytes(memcached.memory.as_deref()),
            "of": {"label": OF_LABEL, "services": services.collect::<Vec<_>>()},
            "labels": self.part("memcached"),
        });
        Some(Release {
            name: memcached_server(&self.name),
            chart: Chart::Memcached,
            values,
        })
    }

    /// The RabbitMQ of a cloud. None: there is one, or none.
    pub fn rabbitmq(&self, inputs: &cloud::Inputs) -> Option<Release> {
        let rabbitmq = inputs.rabbitmq.as_ref()?;
        let name = rabbitmq_server(&self.name);
        let services = inputs.services.iter();
        let services = services.filter(|spec| spec.messaging.is_some());
        let services = services.map(|spec| cloud::service_name(&self.name, &spec.service));
        let values = json!({
            "image": rabbitmq.image,
            "user": DATABASE_USER,
            "port": RABBITMQ_PORT,
            "secret": names::secret(&name, "admin"),
            "storage": rabbitmq.storage,
            "of": {"label": OF_LABEL, "services": services.collect::<Vec<_>>()},
            "labels": self.part("rabbitmq"),
        });
        Some(Release {
            name,
            chart: Chart::Rabbitmq,
            values,
        })
    }

    /// What all pods of a service's image have.
    fn pod(&self, inputs: &Inputs, definition: &Definition, command: &[String]) -> Value {
        let mut values = self.mounted(inputs, definition, command);
        if inputs.contract == Contract::Kolla {
            kolla::start(&mut values, definition, inputs.files.keys(), command);
        }
        values
    }

    /// What all pods of a service have, as those of most images take it.
    fn mounted(&self, inputs: &Inputs, definition: &Definition, command: &[String]) -> Value {
        let of_memcached = &definition.memcached.environment;
        let of_memcached = of_memcached.iter().filter(|_| inputs.has_memcached);
        let variables = definition.environment.iter().chain(of_memcached);
        let mut environment: Map<_, _> = variables
            .map(|(name, key)| (name.clone(), self.reference(key)))
            .collect();
        let variables = definition.messaging.iter().flat_map(|of| &of.variables);
        if let Some(address) = &inputs.messaging {
            environment.extend(variables.map(|name| (name.clone(), self.address(address))));
        }
        if self.drill_of.is_some() {
            // What the cloud keeps in its cache is none of a backup's, and the other way round.
            environment.insert("OS_CACHE__ENABLED".to_owned(), json!("false"));
        }
        let secrets = definition.secrets.iter().filter_map(|secret| {
            let directory = secret.directory.as_ref()?;
            Some(json!({"name": names::secret(&self.name, &secret.name), "directory": directory}))
        });
        json!({
            "image": inputs.image,
            "user": kolla::user(definition, inputs.contract),
            "command": command,
            "config": {
                "name": inputs.config,
                "directory": definition.config_directory,
                "files": inputs.files.keys().collect::<Vec<_>>(),
            },
            "environment": environment,
            "secrets": secrets.collect::<Vec<_>>(),
        })
    }

    /// Where messages go. A drill tells nobody what it does.
    fn address(&self, address: &Address) -> Value {
        if self.drill_of.is_some() {
            return json!("fake:///");
        }
        json!({"secret": address.secret, "key": address.key})
    }

    fn reference(&self, key: &Key) -> Value {
        json!({"secret": names::secret(&self.name, &key.secret), "key": key.key})
    }
}

/// The versions of Secrets, for their values are nobody's business. None: it is not there.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn versions(
    api: &Api<Secret>,
    secrets: &BTreeSet<String>,
) -> Result<BTreeMap<String, Option<String>>, kube::Error> {
    let mut versions = BTreeMap::new();
    for name in secrets {
        let found = api.get_metadata_opt(name).await?;
        let version = found.and_then(|secret| secret.resource_version());
        versions.insert(name.clone(), version);
    }
    Ok(versions)
}

/// What tells whether Secrets have changed since.
pub fn state(versions: &BTreeMap<String, Option<String>>) -> String {
    let lines = versions
        .iter()
        .map(|(name, version)| format!("{name} {}\n", version.as_deref().unwrap_or_default()));
    lines.collect()
}

/// The keys of a Secret of a service, by the word behind the name of the object.
pub fn secret_keys(definition: &Definition, word: &str) -> &'static [&'static str] {
    let mut secrets = definition.secrets.iter();
    match secrets
        .find(|secret| secret.name == word)
        .map(|secret| secret.kind)
    {
        Some(SecretKind::Keys) => &["0", "1"],
        Some(SecretKind::Password) => &["username", "password"],
        None => &["username", "password", "connection"],
    }
}

/// How much a memcached keeps, where nobody says it.
const MEMORY: u32 = 64;

/// A quantity of memory as memcached takes it.
fn megabytes(memory: Option<&str>) -> u32 {
    let read = |memory: &str| {
        let (number, unit) = memory.split_at_checked(memory.len().checked_sub(2)?)?;
        let times = if unit == "Gi" { 1024 } else { 1 };
        number.parse::<u32>().ok()?.checked_mul(times)
    };
    // The schema lets nothing else through.
    memory.and_then(read).unwrap_or(MEMORY)
}

/// Kubernetes replaces `$(NAME)` in commands, arguments and variables; of `$$` it makes `$`.
fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

fn plain(texts: Option<&[String]>) -> Vec<String> {
    let texts = texts.unwrap_or_default().iter();
    texts.map(|text| escaped(text)).collect()
}

#[cfg(test)]
mod tests {
    use api::openstack::OpenStackService;

    use super::*;
    use crate::{
        definition,
        wish::{Operation, Wish as _},
    };

    fn hook(image: &Value, of_service: &str) -> Release {
        let hooks =
            json!([{"name": "count", "after": "database/expand", "timeout": "2m", "image": image}]);
        release(
            &json!({"image": of_service, "hooks": hooks}),
            "hook/count",
            &subject(),
        )
    }

    fn subject() -> Subject {
        Subject {
            name: "one-keystone".to_owned(),
            ..Subject::default()
        }
    }

    /// What a step of a Keystone makes.
    fn release(of_spec: &Value, step: &str, subject: &Subject) -> Release {
        let mut spec = json!({"service": "keystone", "image": "keystone:1", "database": {"host": "db", "adminSecret": {"name": "admin"}}});
        for (field, value) in of_spec.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let object: OpenStackService = serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": "one-keystone", "namespace": "cloud"}, "spec": spec,
        }))
        .unwrap();
        let wanted = object.wanted().unwrap();
        let steps = wanted.steps(Operation::Install);
        let inputs = serde_json::from_value(Value::Object(wanted.inputs)).unwrap();
        let definition = definition::find("keystone").unwrap();
        let step = steps.iter().find(|found| found.id == step).unwrap();
        match subject.of_service(&inputs, definition, step) {
            Some(Made::Release(release)) => release,
            made => panic!("{made:?}"),
        }
    }

    #[test]
    fn an_image_of_kolla_s_is_told_its_command_by_its_file_and_its_secrets_as_any() {
        let of = |of_spec: &Value, step: &str| release(of_spec, step, &subject());
        let kolla = json!({"contract": "Kolla"});
        for (step, runs) in [
            ("database/expand", "keystone-manage db_sync --expand"),
            (
                "config/check",
                "/bin/sh /var/lib/kolla/config_files/command",
            ),
            ("api/deploy", "/bin/sh /var/lib/kolla/config_files/command"),
        ] {
            let values = of(&kolla, step).values;
            assert_eq!(
                (&values["command"], &values["user"]),
                (&json!([]), &json!(42425))
            );
            let text = values["kolla"]["config"].as_str().unwrap();
            let config: Value = serde_json::from_str(text).unwrap();
            assert_eq!(config["command"], runs);
            let environment = &values["environment"];
            assert_eq!(environment["KOLLA_CONFIG_STRATEGY"], "COPY_ALWAYS");
            // There may be no Secret yet when the files are checked.
            let connection = json!({"secret": "one-keystone-database", "key": "connection"});
            let expected = if step == "config/check" {
                Value::Null
            } else {
                connection
            };
            assert_eq!(environment["OS_DATABASE__CONNECTION"], expected);
        }
        let named = |of_spec: &Value| of(of_spec, "database/expand").settled("").job();
        assert_ne!(named(&kolla), named(&json!({"contract": "Mounted"})));
        assert_eq!(named(&json!({})), named(&json!({"contract": "Mounted"})));
    }

    #[test]
    fn a_hook_starts_as_its_image_does() {
        let of = |image: Value| {
            let hooks = json!([{"name": "count", "after": "database/expand", "image": image}]);
            let spec = json!({"contract": "Kolla", "hooks": hooks});
            release(&spec, "hook/count", &subject()).values
        };
        let words = ["echo", "$(HOME)"];
        let own = of(json!({"command": [words[0]], "args": [words[1]]}));
        // No Kubernetes replaces anything there.
        assert_eq!(own["kolla"]["script"], "exec 'echo' '$(HOME)'\n");
        assert_eq!((&own["command"], &own["args"]), (&json!([]), &Value::Null));
        let other = of(json!({"name": "tools:1", "command": words}));
        assert_eq!(other["kolla"], Value::Null);
        assert_eq!(other["command"], json!(["echo", "$$(HOME)"]));
        assert_eq!(other["user"], 42425);
    }

    #[test]
    fn a_drill_keeps_out_of_the_cache_of_its_cloud() {
        let cache = |subject: &Subject| {
            let values = release(&json!({}), "api/deploy", subject).values;
            values["environment"]["OS_CACHE__ENABLED"].clone()
        };
        assert_eq!(cache(&subject()), Value::Null);
        let drill = Subject {
            drill_of: Some("one".to_owned()),
            ..subject()
        };
        assert_eq!(cache(&drill), "false");
    }

    #[test]
    fn the_address_of_a_rabbitmq_reaches_containers_by_reference_and_no_drill() {
        let messaging = json!({"messaging": {"transportUrlSecret": {"name": "rabbitmq"}}});
        let drill = Subject {
            drill_of: Some("one".to_owned()),
            ..subject()
        };
        let by_reference = json!({"secret": "rabbitmq", "key": "transport_url"});
        for name in [
            "OS_DEFAULT__TRANSPORT_URL",
            "OS_OSLO_MESSAGING_NOTIFICATIONS__TRANSPORT_URL",
        ] {
            let of = |step: &str, subject: &Subject| {
                release(&messaging, step, subject).values["environment"][name].clone()
            };
            assert_eq!(of("api/deploy", &subject()), by_reference);
            assert_eq!(of("database/expand", &subject()), by_reference);
            // There may be no Secret yet.
            assert_eq!(of("config/check", &subject()), Value::Null);
            assert_eq!(of("api/deploy", &drill), "fake:///");
        }
        // Where it changes, pods are others.
        let secrets = release(&messaging, "api/deploy", &subject()).secrets();
        assert!(secrets.contains("rabbitmq"), "{secrets:?}");
    }

    #[test]
    fn a_quantity_of_memory_is_one_of_megabytes() {
        let read = [None, Some("256Mi"), Some("2Gi")].map(megabytes);
        assert_eq!(read, [64, 256, 2048]);
    }

    #[test]
    fn a_hook_has_what_jobs_of_the_service_have_and_nothing_of_it_is_a_template() {
        let image = json!({
            "command": ["sh", "-c", "echo $(HOME) {{ .Values.image }}"],
            "env": [
                {"name": "WHO", "value": "$(HOME)"},
                {"name": "TOKEN", "secretKeyRef": {"name": "of-a-person", "key": "token"}},
            ],
            "files": {"a.sql": "SELECT 1"},
        });
        let Release {
            name,
            chart,
            values,
        } = hook(&image, "keystone:1");
        assert_eq!(
            (name.as_str(), chart),
            ("one-keystone-hook-count", Chart::Job)
        );
        assert_eq!(values["image"], "keystone:1");
        assert_eq!(values["deadline"], 120);
        assert_eq!(values["command"][2], "echo $$(HOME) {{ .Values.image }}");
        assert_eq!(values["environment"]["WHO"], "$$(HOME)");
        assert_eq!(
            values["environment"]["OS_DATABASE__CONNECTION"],
            json!({"secret": "one-keystone-database", "key": "connection"})
        );
        assert_eq!(values["environment"]["WINDLASS_STEP"], "database/expand");
        assert_eq!(values["files"]["a.sql"], "SELECT 1");
        assert_eq!(values["secrets"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn the_job_of_a_hook_is_called_by_all_that_it_is_made_from() {
        let run = |word: &str| json!({"name": "tools:1", "command": [word]});
        let called = |image: &Value, of_service: &str, state: &str| {
            hook(image, of_service).settled(state).job()
        };
        let first = called(&run("a"), "keystone:1", "");
        assert_eq!(first, called(&run("a"), "keystone:1", ""));
        assert!(first.starts_with("one-keystone-hook-count-"), "{first}");
        // Another release of the service is another occasion, also for an image of its own.
        for other in [
            called(&run("b"), "keystone:1", ""),
            called(&run("a"), "keystone:2", ""),
            called(&run("a"), "keystone:1", "one-keystone-database 7\n"),
        ] {
            assert_ne!(first, other);
        }
        // As long as such a name may be.
        let longest = names::step(&"n".repeat(30), &format!("hook/{}", "h".repeat(16)));
        assert!(longest.len() <= 53 && format!("{longest}-0123456789").len() <= 63);
    }

    #[test]
    fn what_is_secret_is_a_reference_everywhere() {
        for name in definition::names() {
            let definition = definition::find(name).unwrap();
            for secret in &definition.secrets {
                assert_eq!(secret_keys(definition, &secret.name).len(), 2, "{name}");
            }
            assert_eq!(secret_keys(definition, "database").len(), 3);
        }
        let release = hook(&json!({"command": ["a"]}), "keystone:1");
        let secrets: Vec<_> = release.secrets().into_iter().collect();
        assert_eq!(secrets, ["one-keystone-database"]);
    }
}
