//! Clusters as the subjects of runs: what their runners are, and what they may.

use std::collections::BTreeMap;

use api::{Cluster, Run, cluster::ClusterSpec, run::Subject};
use kube::{
    Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};
use runs::{
    Subjects,
    job::{self, Template},
    subject::{Reach, Settings},
};

use crate::{
    cluster::decision::outdated,
    inputs::Inputs,
    names::host_keys_name,
    operation::Operation,
    problem::Problem,
    secret::kubeconfig_name,
    snapshots::{SnapshotsInput, VOLUME, catalogue_name},
};

/// The Clusters that an operator sees.
pub struct Clusters {
    store: Store<DeserializeGuard<Cluster>>,
    runs: Store<DeserializeGuard<Run>>,
}

impl Clusters {
    /// Those of a store, with their runs.
    pub const fn new(
        store: Store<DeserializeGuard<Cluster>>,
        runs: Store<DeserializeGuard<Run>>,
    ) -> Self {
        Self { store, runs }
    }
}

impl Subjects for Clusters {
    fn is_one(&self, subject: &Subject) -> bool {
        subject.is_a::<Cluster>()
    }

    fn settings(&self, run: &Run) -> Settings {
        let namespace = run.namespace().unwrap_or_default();
        let reference = ObjectRef::new(&run.spec.subject.name).within(&namespace);
        let found = self.store.get(&reference);
        let cluster = found.as_ref().and_then(|found| found.0.as_ref().ok());
        let settings = cluster.map(|cluster| settings(&cluster.spec));
        Settings {
            claims: claims(run),
            ..settings.unwrap_or_default()
        }
    }

    fn reach(&self, run: &Run) -> Reach {
        reach(run)
    }

    fn outdated(&self, run: &Run) -> Option<String> {
        let namespace = run.namespace().unwrap_or_default();
        let found = controller::stream::in_namespace(&self.runs, &namespace);
        let found = found.iter().filter_map(|run| run.0.as_ref().ok());
        outdated(found, run)
    }

    /// As ever: other kinds came later.
    fn name(&self, subject: &Subject) -> String {
        subject.name.clone()
    }
}

/// What is wrong with what a spec says of runner pods; `template` is there where runners are pods.
pub(crate) fn problems(spec: &ClusterSpec, template: Option<&Template>) -> Vec<Problem> {
    job::problems(&Cluster::kind(&()), &settings(spec), template)
}

fn settings(spec: &ClusterSpec) -> Settings {
    let runner = spec.runner.clone().unwrap_or_default();
    let names = |secrets: Vec<_>| {
        secrets
            .into_iter()
            .map(|secret: api::cluster::SecretRef| secret.name)
    };
    Settings {
        image: spec.image.clone(),
        runner_image: runner.image,
        pull_secrets: runner
            .image_pull_secrets
            .map(|secrets| names(secrets).collect()),
        host_network: runner.host_network == Some(true),
        placement: runner.placement.unwrap_or_default(),
        resources: runner.resources.unwrap_or_default(),
        claims: BTreeMap::new(),
        volume_claim_template: runner.volume_claim_template,
    }
}

/// The volume that the store of the plan is.
fn claims(run: &Run) -> BTreeMap<String, &'static str> {
    let inputs = Inputs::from_map(&run.spec.plan.inputs).ok();
    let store = inputs.and_then(|inputs| Some(inputs.snapshots?.store));
    let claim = store.and_then(|store| store.persistent_volume_claim);
    claim
        .map(|claim| (claim.claim_name, VOLUME))
        .into_iter()
        .collect()
}

/// Beside what the plan refers to: the keys that hosts showed first, where the Cluster came from another API, and the kubeconfig that
/// the run makes and the list of snapshots.
fn reach(run: &Run) -> Reach {
    let cluster = &run.spec.subject.name;
    let inputs = Inputs::from_map(&run.spec.plan.inputs).ok();
    let inputs = inputs.as_ref();
    let mut secrets = inputs.map(Inputs::secrets).unwrap_or_default();
    secrets.insert(host_keys_name(cluster));
    let store = inputs.and_then(|inputs| inputs.snapshots.as_ref());
    // One that leaves the cluster alone makes no kubeconfig; what lies in the store is noted by those that work with it.
    let quiet = Operation::is_quiet(run);
    let catalogue = (quiet || store.is_some()).then(|| catalogue_name(cluster));
    let kubeconfig = (!quiet).then(|| kubeconfig_name(cluster));
    let store = store.and_then(SnapshotsInput::port);
    let mut ports = inputs.map(Inputs::ssh_ports).unwrap_or_default();
    ports.extend(store);
    Reach {
        resource: "clusters",
        secrets,
        written: catalogue.into_iter().chain(kubeconfig).collect(),
        ports,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_runner_reads_the_secrets_of_its_plan_and_reaches_its_hosts() {
        let run: Run = serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": "first-create-1", "namespace": "demo", "uid": "u"},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"}, "operation": "Create", "generation": 1,
                "plan": {"digest": "d", "steps": [], "inputs": {
                    "kubespray": "2.30.0", "source": {"origin": "o", "digest": "d"}, "renew": "30d",
                    "hosts": [
                        {"name": "a", "roles": [], "variables": {"ansible_host": "10.0.0.1", "ansible_port": 2022}},
                    ],
                    "ssh": {
                        "user": "root", "port": 2222, "connectTimeout": "5s", "key": {"name": "ssh"},
                        "knownHostsSecret": {"name": "hosts"},
                        "bastion": {"address": "10.0.0.9", "port": 2200},
                    },
                }},
            },
        }))
        .unwrap();
        let Reach {
            resource,
            secrets,
            written,
            ports,
        } = reach(&run);
        assert_eq!(resource, Cluster::plural(&()));
        assert_eq!(Vec::from_iter(secrets), ["first-host-keys", "hosts", "ssh"]);
        assert_eq!(Vec::from_iter(written), ["first-kubeconfig"]);
        assert_eq!(Vec::from_iter(ports), [2022, 2200, 2222]);
        assert!(claims(&run).is_empty());

        // One that saves a snapshot first notes what lies in the store too.
        let mut run = run;
        let store = json!({"store": {"persistentVolumeClaim": {"claimName": "shelf"}}});
        let inputs = &mut run.spec.plan.inputs;
        inputs.insert("snapshots".to_owned(), store);
        let written = Vec::from_iter(reach(&run).written);
        assert_eq!(written, ["first-kubeconfig", "first-snapshots"]);
        assert_eq!(claims(&run)["shelf"], VOLUME);
    }

    #[test]
    fn all_that_a_cluster_says_of_its_runner_pods_is_taken() {
        let spec = serde_json::from_value(json!({"image": "own/windlass:1", "runner": {
            "image": "kubespray:v2", "imagePullSecrets": [{"name": "own"}], "hostNetwork": true,
            "placement": {"nodeSelector": {"disk": "ssd"}}, "resources": {"limits": {"memory": "1Gi"}},
            "volumeClaimTemplate": {"spec": {}},
        }}));
        let map = |value: serde_json::Value| value.as_object().cloned().unwrap();
        let expected = Settings {
            image: Some("own/windlass:1".to_owned()),
            runner_image: Some("kubespray:v2".to_owned()),
            pull_secrets: Some(vec!["own".to_owned()]),
            host_network: true,
            placement: map(json!({"nodeSelector": {"disk": "ssd"}})),
            resources: map(json!({"limits": {"memory": "1Gi"}})),
            claims: BTreeMap::new(),
            volume_claim_template: Some(map(json!({"spec": {}}))),
        };
        assert_eq!(settings(&spec.unwrap()), expected);
        assert_eq!(settings(&ClusterSpec::default()), Settings::default());
    }

    #[test]
    fn a_problem_names_the_field_of_the_cluster() {
        let spec = json!({"runner": {"hostNetwork": true, "resources": {"limits": "much"}}});
        let problems = problems(
            &serde_json::from_value(spec).unwrap(),
            Some(&Template::default()),
        );
        let fields: Vec<_> = problems.iter().map(|problem| &*problem.field).collect();
        let expected = [
            "Cluster spec.runner.resources",
            "Cluster spec.runner.hostNetwork",
        ];
        assert_eq!(fields, expected);
    }
}
