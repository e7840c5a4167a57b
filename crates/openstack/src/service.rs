//! A service: what its run works from, and its steps. Pure.

use std::collections::BTreeMap;

use api::{
    openstack::{Database, Existing, OnDelete, OpenStackService, Standing},
    run::Step,
};
use controller::Problem;
use kube::ResourceExt;
use minijinja::{Environment, UndefinedBehavior, context};
use serde::{Deserialize, Serialize};

use crate::{
    action::{Action, Job, in_order},
    config::{Merged, Source},
    definition::{self, Definition},
    names,
    wish::{Wanted, Wish, map, unwritable},
};

/// What the steps of a service read.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// Which service.
    pub service: String,
    /// The image.
    pub image: String,
    /// How many pods serve.
    pub replicas: u16,
    /// The database server.
    pub database: Server,
    /// Whether a database that is there becomes the service's.
    pub adopt: bool,
    /// Whether database and Secrets go with the service.
    pub drop: bool,
    /// The ConfigMap with the files.
    pub config: String,
    /// The files.
    pub files: BTreeMap<String, String>,
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
        let files = files(self, &definition)?;
        let files: BTreeMap<_, _> = files
            .into_iter()
            .map(|(name, merged)| (name, merged.render()))
            .collect();
        let name = self.name_any();
        let text: Vec<_> = files
            .iter()
            .flat_map(|(name, text)| [name.as_str(), text])
            .collect();
        let inputs = Inputs {
            service: spec.service.clone(),
            image: spec.image.clone(),
            replicas: spec.replicas.unwrap_or(1),
            database: Server::of(&spec.database),
            adopt: spec.existing == Some(Existing::Adopt),
            drop: spec.on_delete == Some(OnDelete::Delete),
            config: names::config(&name, &controller::digest(&text, 10)),
            files,
        };
        let install = install(self, &definition).map_err(|error| unwritable(&error))?;
        let delete = delete(&inputs).map_err(|error| unwritable(&error))?;
        Ok(Wanted {
            inputs: map(&inputs).map_err(|error| unwritable(&error))?,
            install,
            delete,
        })
    }

    fn standing(&self) -> Option<&Standing> {
        self.status.as_ref()
    }
}

/// The configuration files of a service, merged.
///
/// # Errors
///
/// One that people give is none of the service's, or is not written as such a file is.
pub fn files(
    service: &OpenStackService,
    definition: &Definition,
) -> Result<BTreeMap<String, Merged>, Vec<Problem>> {
    let mut problems = Vec::new();
    for name in service.spec.config.keys() {
        if name != GLOBAL && !definition.config.contains_key(name) {
            let known: Vec<_> = definition.config.keys().map(String::as_str).collect();
            problems.push(Problem::new(
                "OpenStackService spec.config",
                name,
                format!(
                    "the files of {} are {}, and {GLOBAL} for all of them",
                    definition.name,
                    known.join(", ")
                ),
                "name one of them: a file that nobody reads changes nothing",
            ));
        }
    }
    let mut merged = BTreeMap::new();
    for (name, defaults) in &definition.config {
        let mut sources = vec![Source {
            name: format!("services/{}.yaml config[{name}]", definition.name),
            text: defaults.clone(),
        }];
        for of_spec in [GLOBAL, name] {
            if let Some(text) = service.spec.config.get(of_spec) {
                sources.push(Source {
                    name: format!(
                        "OpenStackService {} spec.config[{of_spec}]",
                        service.name_any()
                    ),
                    text: text.clone(),
                });
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

/// What stands before the files of the service themselves, as Kolla calls it.
pub const GLOBAL: &str = "global.conf";

/// Where a service answers in the cluster.
pub fn internal_url(object: &str, namespace: &str, port: u16) -> String {
    format!("http://{object}.{namespace}.svc:{port}")
}

fn install(
    service: &OpenStackService,
    definition: &Definition,
) -> Result<Vec<Step>, serde_json::Error> {
    let namespace = service.namespace().unwrap_or_default();
    let internal = internal_url(&service.name_any(), &namespace, definition.port);
    let region = service.spec.region.as_deref().unwrap_or("RegionOne");
    let public = service.spec.public_url.as_deref().unwrap_or(&internal);
    let mut templates = Environment::empty();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    let values = context! {region, internal_url => &internal, public_url => public};
    // The values are of strict forms, and a template that is wrong is found by the tests.
    let fill = |text: &String| {
        templates
            .render_str(text, &values)
            .unwrap_or_else(|_| text.clone())
    };
    let steps = definition.steps.iter().map(|step| {
        let action = match &step.does {
            Action::Job(job) => Action::Job(Job {
                command: job.command.iter().map(fill).collect(),
                environment: job.environment.clone(),
            }),
            action => action.clone(),
        };
        (step.id.as_str(), step.title.as_str(), action)
    });
    in_order(steps)
}

fn delete(inputs: &Inputs) -> Result<Vec<Step>, serde_json::Error> {
    let mut steps = vec![(
        "releases/remove",
        "Remove the releases",
        Action::RemoveReleases,
    )];
    if inputs.drop {
        steps.push(("database/drop", "Remove the database", Action::DropDatabase));
        steps.push((
            "secrets/remove",
            "Remove the Secrets",
            Action::RemoveSecrets,
        ));
    }
    in_order(steps)
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
            text.contains("provider = fernet\nexpiration = 60\n"),
            "{text}"
        );
        let ids: Vec<_> = wanted.install.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(ids.first(), Some(&"database/check"));
        assert_eq!(ids.len(), 11);
        let bootstrap = serde_json::to_string(&wanted.install[6]).unwrap();
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
        let mut unknown = keystone(&json!({}));
        unknown.spec.service = "keystne".to_owned();
        let unknown = refused(unknown);
        assert!(
            unknown.contains("the services that can be had are keystone"),
            "{unknown}"
        );
    }
}
