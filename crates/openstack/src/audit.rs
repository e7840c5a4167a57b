//! What steps write: a plan says it before, and the engine notes it as it does it, in the same words, so that the two can be compared
//! line by line.
//!
//! What is not known before has a word in its place: `UID` for the cluster's unique id, `DIGEST` for that of a Job, `...` for what the
//! server keeps of a password.

use std::{fs::OpenOptions, io, io::Write as _, path::Path};

use api::run::Step;

use crate::{
    action::Action,
    cloud::{self, database_server, memcached_server, rabbitmq_server, service_name},
    definition::{ADMIN, Definition},
    identity, names, service, sql,
};

/// The file in a run's directory that tells what was written.
pub const FILE: &str = "audit.log";
/// In place of the cluster's unique id.
pub const CLUSTER: &str = "UID";
/// In place of the digest in the name of a Job.
pub const DIGEST: &str = "DIGEST";
/// In place of a password, or what is made of one.
pub const PASSWORD: &str = "...";

/// Something that a step writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Expected {
    /// The step.
    pub step: String,
    /// What is written.
    pub what: String,
    /// Whether it is left alone where it is there already.
    pub is_shared: bool,
}

/// An object of Kubernetes.
pub fn object(kind: &str, name: &str) -> String {
    format!("{kind} {name}")
}

/// A release of Helm.
pub fn release(name: &str) -> String {
    object("Helm release", name)
}

/// A statement.
pub fn statement(text: &str) -> String {
    format!("SQL {text}")
}

/// Something in Keystone.
pub fn in_keystone(what: &str) -> String {
    format!("Keystone {what}")
}

/// What is removed.
pub fn removed(what: &str) -> String {
    format!("remove {what}")
}

/// Notes that something is about to be written, in the directory of a run.
///
/// # Errors
///
/// The file cannot be written.
pub fn note(directory: &Path, what: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(directory.join(FILE))?;
    writeln!(file, "{}", api::text::plain(what, 2048))
}

/// What the steps of a service write where nothing of it is there.
pub fn of_service(
    (name, namespace): (&str, &str),
    (inputs, definition): (&service::Inputs, &Definition),
    steps: &[Step],
) -> Vec<Expected> {
    let of = |step: &Step| {
        let Some(action) = Action::of(step) else {
            return Vec::new();
        };
        match action {
            Action::ApplyConfig => {
                let configs = inputs.configs().into_iter();
                configs.map(|(map, _)| object("ConfigMap", map)).collect()
            }
            Action::MakeSecrets => {
                let words = definition.secret_words();
                words
                    .map(|word| object("Secret", &names::secret(name, word)))
                    .collect()
            }
            Action::CreateDatabase => {
                let owner = names::owner(name, namespace, CLUSTER);
                let statements =
                    sql::create(&definition.database, &definition.database, &owner, PASSWORD);
                statements.iter().map(|text| statement(text)).collect()
            }
            Action::Job(_) | Action::CheckConfig | Action::CheckComponent(_) => {
                let made = names::step(name, &step.id);
                let job = format!("{made}-{DIGEST}");
                vec![release(&made), object("Job", &job)]
            }
            Action::Hook(hook) => {
                let made = names::step(name, &step.id);
                let job = format!("{made}-{DIGEST}");
                let files = (!hook.image.files.is_empty()).then(|| object("ConfigMap", &job));
                let release = std::iter::once(release(&made));
                let all = release.chain(files);
                all.chain([object("Job", &job)]).collect()
            }
            Action::RotateKeys(rotation) => {
                let made = names::step(name, &step.id);
                let job = object("Job", &format!("{made}-{DIGEST}"));
                let reseals = !rotation.reseal.is_empty();
                let reseal = reseals.then(|| [release(&made), job]);
                let secret = object("Secret", &names::secret(name, &rotation.secret));
                reseal.into_iter().flatten().chain([secret]).collect()
            }
            Action::RotateAdministrator => {
                let secret = object("Secret", &names::secret(name, ADMIN));
                let users = definition.secrets.iter();
                let mut admins = users.filter(|secret| secret.name == ADMIN);
                let user = admins.find_map(|secret| secret.username.clone());
                let told = identity::password(&user.unwrap_or_default());
                vec![secret.clone(), in_keystone(&told), secret]
            }
            Action::Deploy => deployed(name, inputs, definition),
            Action::DeployComponent(of) => {
                let made = names::component(name, &of.component);
                vec![release(&made), object("Deployment", &made)]
            }
            Action::SeedIdentity => {
                let known = inputs.identity.iter();
                let known = known.flat_map(|known| identity::made(&known.account));
                known.map(|what| in_keystone(&what)).collect()
            }
            _ => Vec::new(),
        }
    };
    let shared: Vec<_> = inputs
        .identity
        .iter()
        .flat_map(|known| identity::shared(&known.account))
        .map(|what| in_keystone(&what))
        .collect();
    expected(steps, of, |what| shared.contains(what))
}

/// What the steps of a cloud write where nothing of it is there. What those of its services do is theirs.
pub fn of_cloud(name: &str, inputs: &cloud::Inputs, steps: &[Step]) -> Vec<Expected> {
    let server = database_server(name);
    let memcached = memcached_server(name);
    let rabbitmq = rabbitmq_server(name);
    let of = |step: &Step| match Action::of(step) {
        Some(Action::MakeServerSecret) => {
            vec![object("Secret", &names::secret(&server, ADMIN))]
        }
        Some(Action::DeployServer) if inputs.server.is_some() => vec![
            release(&server),
            object("Service", &server),
            object("StatefulSet", &server),
        ],
        Some(Action::RotateServerAdministrator) if inputs.server.is_some() => {
            let secret = object("Secret", &names::secret(&server, ADMIN));
            let told = sql::administrator(PASSWORD).map(|text| statement(&text));
            let told = std::iter::once(secret.clone()).chain(told);
            told.chain([secret]).collect()
        }
        Some(Action::DeployMemcached) if inputs.memcached.is_some() => vec![
            release(&memcached),
            object("NetworkPolicy", &memcached),
            object("Service", &memcached),
            object("StatefulSet", &memcached),
        ],
        Some(Action::MakeMessagingSecret) => {
            vec![object("Secret", &names::secret(&rabbitmq, ADMIN))]
        }
        Some(Action::DeployMessaging) if inputs.rabbitmq.is_some() => vec![
            release(&rabbitmq),
            object("NetworkPolicy", &rabbitmq),
            object("Service", &rabbitmq),
            object("StatefulSet", &rabbitmq),
        ],
        Some(Action::Declare(named)) => {
            let service = service_name(name, &named.service);
            vec![object("OpenStackService", &service)]
        }
        _ => Vec::new(),
    };
    expected(steps, of, |_| false)
}

fn deployed(name: &str, inputs: &service::Inputs, definition: &Definition) -> Vec<String> {
    let mut made = Vec::new();
    for step in &definition.by_hand {
        if let Action::RotateKeys(rotation) = &step.does
            && !rotation.lifetime.is_empty()
        {
            // How long what they seal is valid is noted beside them.
            made.push(object("Secret", &names::secret(name, &rotation.secret)));
        }
    }
    let api = names::api(name);
    made.extend([release(&api), object("Service", name)]);
    if definition.volume.is_some() && inputs.storage.is_some() {
        made.push(object("PersistentVolumeClaim", &api));
    }
    made.push(object("Deployment", &api));
    made
}

fn expected(
    steps: &[Step],
    of: impl Fn(&Step) -> Vec<String>,
    is_shared: impl Fn(&String) -> bool,
) -> Vec<Expected> {
    let of_step = |step: &Step| {
        let writes = of(step).into_iter().map(|what| Expected {
            step: step.id.clone(),
            is_shared: is_shared(&what),
            what,
        });
        writes.collect::<Vec<_>>()
    };
    steps.iter().flat_map(of_step).collect()
}

#[cfg(test)]
mod tests {
    use api::openstack::{OpenStack, OpenStackService};
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::{definition, wish::Wish};

    fn cloud() -> OpenStack {
        serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
            "metadata": {"name": "one", "namespace": "cloud"},
            "spec": {"database": {"managed": {"image": "db"}}, "memcached": {"managed": {"image": "m"}},
                "messaging": {"managed": {"image": "r"}}, "services": [
                {"name": "keystone", "image": "k"}, {"name": "placement", "image": "p"},
                {"name": "glance", "image": "g", "storage": {"size": "1Gi"}},
            ]},
        }))
        .unwrap()
    }

    fn written(expected: &[Expected], step: &str) -> Vec<String> {
        let of_step = expected.iter().filter(|write| write.step == step);
        of_step.map(|write| write.what.clone()).collect()
    }

    #[test]
    fn a_cloud_writes_its_server_and_its_services() {
        let wanted = cloud().wanted().unwrap();
        let inputs = serde_json::from_value(Value::Object(wanted.inputs)).unwrap();
        let expected = of_cloud("one", &inputs, &wanted.install);
        assert_eq!(
            written(&expected, "database/deploy"),
            [
                "Helm release one-mariadb",
                "Service one-mariadb",
                "StatefulSet one-mariadb"
            ]
        );
        let memcached = written(&expected, "memcached/deploy");
        assert_eq!(memcached.len(), 4, "{memcached:?}");
        assert_eq!(memcached[1], "NetworkPolicy one-memcached");
        let messaging = written(&expected, "messaging/secret");
        assert_eq!(messaging, ["Secret one-rabbitmq-admin"]);
        let messaging = written(&expected, "messaging/deploy");
        assert_eq!(messaging[1], "NetworkPolicy one-rabbitmq");
        assert_eq!(
            written(&expected, "glance/declare"),
            ["OpenStackService one-glance"]
        );
    }

    #[test]
    fn every_step_of_a_service_that_writes_says_what() {
        let wanted = cloud().wanted().unwrap();
        let inputs: cloud::Inputs = serde_json::from_value(Value::Object(wanted.inputs)).unwrap();
        for spec in inputs.services {
            let definition = definition::find(&spec.service).unwrap();
            let name = service_name("one", &spec.service);
            let mut object = OpenStackService::new(&name, spec);
            object.metadata.namespace = Some("cloud".to_owned());
            let wanted = object.wanted().unwrap();
            let inputs = serde_json::from_value(Value::Object(wanted.inputs)).unwrap();
            let place = (name.as_str(), "cloud");
            let expected = of_service(place, (&inputs, definition), &wanted.install);
            for step in &wanted.install {
                let reads = matches!(
                    Action::of(step),
                    Some(
                        Action::CheckDatabase
                            | Action::CheckOwner
                            | Action::AwaitApi
                            | Action::IssueToken
                            | Action::Ask(_)
                            | Action::PruneConfig
                    )
                );
                let writes = written(&expected, &step.id);
                assert_eq!(
                    writes.is_empty(),
                    reads,
                    "{} {}",
                    object.name_any(),
                    step.id
                );
            }
            let claims = written(&expected, "api/deploy");
            let claim = "PersistentVolumeClaim one-glance-api".to_owned();
            assert_eq!(claims.contains(&claim), name == "one-glance");
            let sql = written(&expected, "database/create").join("\n");
            assert!(sql.contains(&format!("windlass cloud/{name} of cluster UID")));
            assert!(sql.contains("IDENTIFIED BY PASSWORD '...'"), "{sql}");
        }
    }

    #[test]
    fn what_is_noted_is_a_line_each() {
        let directory = tempfile::tempdir().unwrap();
        for what in ["SQL a\nb", "Secret c"] {
            note(directory.path(), what).unwrap();
        }
        let told = std::fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert_eq!(told.lines().count(), 2, "{told}");
    }
}
