//! `windlass openstack render`: the objects of layer 2, for people who apply or edit them themselves.
//!
//! They are made by what makes them in a run, and rendered by the same Helm from the same charts; they have the marks of their Helm
//! releases, so that a run that comes later takes them up.

use std::{collections::BTreeSet, time::Duration};

use ::openstack::{
    action::Action,
    audit,
    cloud::{self, database_server, rabbitmq_server},
    definition,
    made::{self, Made, Release, Subject},
    names,
    wish::Operation,
};
use anyhow::{Context, bail};
use api::{
    openstack::{OpenStack, OpenStackService},
    run::Step,
};
use helm::{Change, Helm, Place};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::{
    cli::{Global, OpenstackFile, RenderObjects},
    client::answered,
    terminal::{self, say},
};

/// How long Helm may take to render a chart.
const DEADLINE: Duration = Duration::from_mins(1);
/// What is said before everything else.
const HEAD: &str = "What is no object is said in comments: SQL, what is asked of Keystone and of people, and Secrets, whose values are not printed. \
    Make those first.";

/// A step, and what it makes.
struct Entry {
    id: String,
    title: String,
    lines: Vec<String>,
    namespace: String,
    made: Option<Made>,
}

pub(super) async fn render(global: &Global, options: &RenderObjects) -> anyhow::Result<()> {
    let (entries, client) = if let Some(filename) = &options.filename {
        let of = OpenstackFile {
            filename: filename.clone(),
            age_keys: options.age_keys.clone(),
        };
        (of_file(global, &of)?, None)
    } else {
        let client = global.client().await?;
        (of_cluster(global, options, &client).await?, Some(client))
    };
    let entries = meant(entries, options.step.as_deref())?;
    let mut helm = None;
    comment(HEAD);
    for entry in entries {
        let mut objects = match &entry.made {
            None => Vec::new(),
            Some(Made::ConfigMaps(maps)) => {
                let maps = maps.iter().map(serde_json::to_value);
                maps.collect::<Result<_, _>>()?
            }
            Some(Made::Release(release)) => {
                let program = match helm.take() {
                    Some(program) => program,
                    None => found(options).await?,
                };
                let helm = helm.insert(program);
                let secrets = release.secrets();
                let release = release
                    .clone()
                    .settled(&state(&entry, client.as_ref(), &secrets).await?);
                rendered(helm, &entry.namespace, &release).await?
            }
        }
        .into_iter();
        let first = objects.next();
        if first.is_some() {
            say!("---");
        }
        comment(&format!("{}: {}", entry.id, entry.title));
        for line in &entry.lines {
            comment(&format!("  {line}"));
        }
        for (number, mut object) in first.into_iter().chain(objects).enumerate() {
            if number > 0 {
                say!("---");
            }
            object["metadata"]["namespace"] = json!(entry.namespace);
            say!("{}", terminal::yaml(&object)?.trim_end());
        }
    }
    Ok(())
}

fn comment(line: &str) {
    say!(
        "# {}",
        api::text::plain(&terminal::masked(line), usize::MAX)
    );
}

/// The one that is meant, or all.
fn meant(mut entries: Vec<Entry>, step: Option<&str>) -> anyhow::Result<Vec<Entry>> {
    let Some(step) = step else {
        return Ok(entries);
    };
    let ids: Vec<_> = entries.iter().map(|entry| entry.id.clone()).collect();
    entries.retain(|entry| super::is_meant(&entry.id, step));
    if entries.len() != 1 {
        bail!(
            "{step:?} names no single step; the steps are {}",
            ids.join(", ")
        );
    }
    Ok(entries)
}

fn of_file(global: &Global, of: &OpenstackFile) -> anyhow::Result<Vec<Entry>> {
    let mut read = super::read(of)?;
    let namespace = Some(global.namespace.clone());
    let mut entries = Vec::new();
    for cloud in &mut read.clouds {
        cloud.metadata.namespace = cloud.namespace().or_else(|| namespace.clone());
        let services = super::services_of(cloud)?;
        read.services.retain(|service| {
            services
                .iter()
                .all(|own| own.name_any() != service.name_any())
        });
        entries.extend(of_cloud(cloud, &services)?);
    }
    for service in &mut read.services {
        service.metadata.namespace = service.namespace().or_else(|| namespace.clone());
        entries.extend(of_service(service, None)?);
    }
    Ok(entries)
}

async fn of_cluster(
    global: &Global,
    options: &RenderObjects,
    client: &Client,
) -> anyhow::Result<Vec<Entry>> {
    let object = options.object.as_deref().unwrap_or_default();
    let api = Api::<OpenStackService>::namespaced(client.clone(), &global.namespace);
    let service = answered(api.get_opt(object).await, "read the OpenStackService")?;
    if let Some(service) = service {
        return of_service(&service, None);
    }
    let clouds = Api::<OpenStack>::namespaced(client.clone(), &global.namespace);
    let cloud = answered(clouds.get_opt(object).await, "read the OpenStack")?;
    let cloud = cloud.with_context(|| super::unknown(object, &global.namespace))?;
    let mut services = super::services_of(&cloud)?;
    for service in &mut services {
        let there = api.get_opt(&service.name_any()).await;
        let there = answered(there, "read the OpenStackService")?;
        service.metadata.uid = there.and_then(|there| there.uid());
    }
    of_cloud(&cloud, &services)
}

/// The steps of a cloud, and where it stores a service those of that.
fn of_cloud(cloud: &OpenStack, services: &[OpenStackService]) -> anyhow::Result<Vec<Entry>> {
    let name = cloud.name_any();
    let wanted = super::wanted(cloud)?;
    let inputs: cloud::Inputs = serde_json::from_value(Value::Object(wanted.inputs))?;
    let writes = audit::of_cloud(&name, &inputs, &wanted.install);
    let subject = subject(cloud);
    let mut entries = Vec::new();
    for step in &wanted.install {
        let mut lines = super::lines(step, &writes);
        let mut below = Vec::new();
        match Action::of(step) {
            Some(Action::MakeServerSecret) => {
                let secret = names::secret(&database_server(&name), "admin");
                lines = vec![unprinted(&secret, &["username", "password", "init.sql"])];
            }
            Some(Action::MakeMessagingSecret) => {
                let secret = names::secret(&rabbitmq_server(&name), "admin");
                let keys = [
                    "username",
                    "password",
                    "rabbitmq.conf",
                    "definitions.json",
                    "transport_url",
                ];
                lines = vec![unprinted(&secret, &keys)];
            }
            Some(Action::Declare(named)) => {
                let object = cloud::service_name(&name, &named.service);
                lines = vec![format!(
                    "OpenStackService {object}, whose steps follow in its place"
                )];
                for service in services
                    .iter()
                    .filter(|service| service.name_any() == object)
                {
                    below = of_service(service, Some(&named.service))?;
                }
            }
            _ => {}
        }
        entries.push(Entry {
            id: step.id.clone(),
            title: step.title.clone(),
            lines,
            namespace: cloud.namespace().unwrap_or_default(),
            made: subject.of_cloud(&inputs, step),
        });
        entries.append(&mut below);
    }
    Ok(entries)
}

fn of_service(service: &OpenStackService, within: Option<&str>) -> anyhow::Result<Vec<Entry>> {
    let (name, namespace) = (service.name_any(), service.namespace().unwrap_or_default());
    let definition = definition::find(&service.spec.service)
        .with_context(|| format!("no service is called {}", service.spec.service))?;
    let wanted = super::wanted(service)?;
    let steps = wanted.steps(Operation::Install);
    let inputs = serde_json::from_value(Value::Object(wanted.inputs))?;
    let writes = audit::of_service((&name, &namespace), (&inputs, definition), &steps);
    let subject = subject(service);
    let entry = |step: &Step| Entry {
        id: match within {
            Some(within) => format!("{within}/{}", step.id),
            None => step.id.clone(),
        },
        title: step.title.clone(),
        lines: match Action::of(step) {
            Some(Action::MakeSecrets) => {
                let words = definition.secret_words();
                words
                    .map(|word| {
                        let keys = made::secret_keys(definition, word);
                        unprinted(&names::secret(&name, word), keys)
                    })
                    .collect()
            }
            _ => super::lines(step, &writes),
        },
        namespace: namespace.clone(),
        made: subject.of_service(&inputs, definition, step),
    };
    Ok(steps.iter().map(entry).collect())
}

fn unprinted(secret: &str, keys: &[&str]) -> String {
    format!("Secret {secret}, with the keys {}", keys.join(", "))
}

/// In a cluster, it owns what is made for it.
fn subject<K: Resource<DynamicType = ()>>(object: &K) -> Subject {
    Subject {
        name: object.name_any(),
        drill_of: None,
        owner: object.uid().map(|uid| OwnerReference {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name: object.name_any(),
            uid,
            controller: Some(true),
            block_owner_deletion: Some(true),
        }),
    }
}

/// As the Secrets of the cluster are; of a file, as if none were there.
async fn state(
    entry: &Entry,
    client: Option<&Client>,
    secrets: &BTreeSet<String>,
) -> anyhow::Result<String> {
    let versions = match client {
        Some(client) => {
            let api = Api::<Secret>::namespaced(client.clone(), &entry.namespace);
            answered(made::versions(&api, secrets).await, "read the Secrets")?
        }
        None => secrets.iter().map(|name| (name.clone(), None)).collect(),
    };
    Ok(made::state(&versions))
}

async fn found(options: &RenderObjects) -> anyhow::Result<Helm> {
    let helm = Helm::find(&options.helm, None).await;
    helm.context("failed to use Helm, which renders the charts: install 3.14 or later, or name it with --helm")
}

/// The objects of a release, with what Helm writes on them.
async fn rendered(helm: &Helm, namespace: &str, release: &Release) -> anyhow::Result<Vec<Value>> {
    let chart = release.chart.unpack().context("failed to write a chart")?;
    let place = Place {
        namespace,
        release: &release.name,
    };
    let change = Change {
        chart: chart.path(),
        values: &release.values,
    };
    let text = helm.template(place, change, DEADLINE).await;
    let text = text.context("failed to render a chart")?;
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&text).context("failed to read what Helm rendered")?;
    let objects = objects.into_iter().filter(|object| !object.is_null());
    Ok(objects
        .map(|mut object| {
            let metadata = &mut object["metadata"];
            metadata["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
            metadata["annotations"]["meta.helm.sh/release-name"] = json!(release.name);
            metadata["annotations"]["meta.helm.sh/release-namespace"] = json!(namespace);
            object
        })
        .collect())
}
