//! The objects of a run's Job: pure.

use std::collections::BTreeMap;

use api::Run;
use controller::digest;
use k8s_openapi::api::{batch::v1::Job, core::v1::PersistentVolumeClaim};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{
    account::{account_name, owner},
    template::Template,
};
use crate::{
    runner::{
        exit::Exit,
        pod::{NAMESPACE_VARIABLE, POD_VARIABLE, SANDBOXES_VARIABLE, UID_VARIABLE},
    },
    subject::Settings,
};

/// The label that holds the run's name.
pub const RUN_LABEL: &str = "windlass.dev/run";

/// The annotation of a Job that tells which template its pods are made after: a digest of it as it was written, for Kubernetes
/// adds its defaults.
pub(super) const TEMPLATE: &str = "windlass.dev/template";

/// What the operator's Jobs are found by.
pub const SELECTOR: &str =
    "app.kubernetes.io/component=runner,app.kubernetes.io/managed-by=windlass";

/// The user and group that runner pods run as. The runner image knows it by name, which ssh demands.
const USER: i64 = 65_532;

/// The data directory in the pod.
const DATA: &str = "/data";

/// Where the operator's own program is put in the pod.
const PROGRAM: &str = "/run/windlass";

/// How often Kubernetes starts a failed pod anew before the operator looks into it.
const POD_RETRIES: i32 = 6;

/// How long an ended Job stays, for its log: a day.
const KEPT_SECONDS: i32 = 86_400;

/// How long a runner may take to stop what it started and give up the Lease.
const GRACE_SECONDS: i64 = 30;

/// Fields of a pod that `spec.runner.placement` may set.
pub(super) const PLACEMENT: [&str; 6] = [
    "affinity",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
];

/// The name of a run's Job: the run's, as far as a label holds it.
pub fn job_name(run: &str) -> String {
    bounded(run)
}

/// A name, or a part of it with a hash where it is too long for a label.
pub(super) fn bounded(name: &str) -> String {
    const LONGEST: usize = 63;
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let digest = digest(&[name], 16);
    let head: String = name.chars().take(LONGEST - 1 - digest.len()).collect();
    format!("{}-{digest}", head.trim_end_matches(['-', '.']))
}

fn claim_name(owner: &str) -> String {
    format!("{owner}-runner")
}

/// The labels of [`SELECTOR`].
pub(super) fn selector_labels() -> Value {
    json!({
        "app.kubernetes.io/component": "runner",
        "app.kubernetes.io/managed-by": "windlass",
    })
}

fn labels(run: &Run) -> Value {
    let mut labels = selector_labels();
    labels["app.kubernetes.io/name"] = json!("windlass");
    labels[RUN_LABEL] = json!(job_name(&run.name_any()));
    labels
}

/// The Job that executes a run; what its subject's runners have is named after `owner`.
///
/// # Errors
///
/// The fields of the subject's pod do not make a Job.
pub fn job(
    run: &Run,
    settings: &Settings,
    owner: &str,
    template: &Template,
) -> Result<Job, serde_json::Error> {
    let name = job_name(&run.name_any());
    let namespace = run.namespace().unwrap_or_default();
    let controller = json!({
        "apiVersion": Run::api_version(&()), "kind": Run::kind(&()), "name": run.name_any(),
        "uid": run.uid().unwrap_or_default(), "controller": true, "blockOwnerDeletion": true,
    });
    let template = json!({
        "metadata": {
            "labels": labels(run),
            "annotations": {"kubectl.kubernetes.io/default-container": "runner"},
        },
        "spec": pod(run, settings, owner, template),
    });
    let digest = digest(&[&template.to_string()], 16);
    serde_json::from_value(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels(run), "ownerReferences": [controller],
            "annotations": {TEMPLATE: digest},
        },
        "spec": {
            "backoffLimit": POD_RETRIES,
            "completions": 1,
            "parallelism": 1,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            // Never two pods at once: a successor starts when its predecessor has ended, not when it was told to.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                {"action": "FailJob", "onExitCodes": {
                    "containerName": "runner", "operator": "In",
                    "values": [Exit::Failed.code(), Exit::Ended.code(), Exit::Fenced.code()],
                }},
            ]},
            "template": template,
        },
    }))
}

fn pod(run: &Run, settings: &Settings, owner: &str, template: &Template) -> Value {
    let image = settings.image.as_ref().unwrap_or(&template.image);
    let runner_image = settings.runner_image.as_ref();
    let runner_image = runner_image.unwrap_or(&template.runner_image);
    let pull_secrets = settings.pull_secrets.as_ref();
    let pull_secrets = pull_secrets.unwrap_or(&template.pull_secrets).iter();
    let pull_secrets: Vec<_> = pull_secrets.map(|name| json!({"name": name})).collect();
    let run_name = format!("{}/{}", run.namespace().unwrap_or_default(), run.name_any());
    let mut arguments = vec!["runner", "--run", &run_name, "--data-dir", DATA];
    arguments.extend(template.arguments.iter().map(String::as_str));
    let data = if settings.volume_claim_template.is_some() {
        let claim = claim_name(owner);
        json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}})
    } else {
        json!({"name": "data", "emptyDir": {}})
    };
    let mut pod = json!({
        "serviceAccountName": account_name(owner),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "imagePullSecrets": pull_secrets,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [{
            "name": "windlass",
            "image": image,
            "imagePullPolicy": template.pull_policy,
            "args": ["install", PROGRAM],
            "securityContext": confined(),
            "volumeMounts": [{"name": "program", "mountPath": PROGRAM}],
        }],
        "containers": [{
            "name": "runner",
            "image": runner_image,
            "imagePullPolicy": template.pull_policy,
            "command": [format!("{PROGRAM}/windlass")],
            "args": arguments,
            "env": [
                {"name": "HOME", "value": "/tmp"},
                {"name": POD_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": UID_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                {"name": NAMESPACE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                {"name": SANDBOXES_VARIABLE, "value": "/opt/windlass/sandboxes"},
            ],
            "resources": settings.resources,
            "securityContext": confined(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [
                {"name": "data", "mountPath": DATA},
                {"name": "program", "mountPath": PROGRAM, "readOnly": true},
                {"name": "tmp", "mountPath": "/tmp"},
                {"name": "memory", "mountPath": "/dev/shm"},
            ],
        }],
        "volumes": [
            data,
            {"name": "program", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            // For secrets, and for what is made of them.
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
        ],
    });
    for (number, (claim, path)) in settings.claims.iter().enumerate() {
        let name = format!("claim-{number}");
        let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": claim}});
        push(&mut pod["volumes"], volume);
        let mount = json!({"name": name, "mountPath": path});
        push(&mut pod["containers"][0]["volumeMounts"], mount);
    }
    if settings.host_network {
        pod["hostNetwork"] = json!(true);
        pod["dnsPolicy"] = json!("ClusterFirstWithHostNet");
    }
    for (field, value) in &settings.placement {
        if PLACEMENT.contains(&field.as_str()) {
            pod[field] = value.clone();
        }
    }
    pod
}

fn push(list: &mut Value, value: Value) {
    if let Value::Array(list) = list {
        list.push(value);
    }
}

fn confined() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

/// The claim for a subject's files, where its spec has a template: `{spec: ...}` as in a StatefulSet, or the spec alone.
/// It belongs to the subject, because what is in it outlives each run.
///
/// # Errors
///
/// The template does not make a claim.
pub fn claim(
    run: &Run,
    settings: &Settings,
    name: &str,
) -> Result<Option<PersistentVolumeClaim>, serde_json::Error> {
    let Some(template) = &settings.volume_claim_template else {
        return Ok(None);
    };
    let metadata = template.get("metadata").and_then(Value::as_object);
    let part = |name: &str| metadata.and_then(|metadata| metadata.get(name)).cloned();
    let mut labels: BTreeMap<String, Value> = part("labels")
        .map(serde_json::from_value)
        .transpose()?
        .unwrap_or_default();
    labels.insert("app.kubernetes.io/managed-by".into(), json!("windlass"));
    let spec = super::check::claim_spec(template);
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim_name(name),
            "labels": labels,
            "ownerReferences": owner(run),
        },
        "spec": spec,
    });
    serde_json::from_value(claim).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> Run {
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {
                "name": name, "namespace": "demo", "uid": "u",
                "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Widget", "name": "first", "uid": "w"}],
            },
            "spec": {
                "subject": {"apiGroup": "example.com", "kind": "Widget", "name": "first"}, "operation": "Make", "generation": 1,
                "plan": {"digest": "d", "steps": []},
            },
        }))
        .unwrap()
    }

    fn settings(runner: &Value) -> Settings {
        crate::job::tests::settings(&json!({"image": "own/windlass:1", "runner": runner}))
    }

    fn template() -> Template {
        Template {
            image: "windlass:v1".into(),
            runner_image: "windlass-runner:v1".into(),
            pull_secrets: vec!["registry".into()],
            pull_policy: "IfNotPresent".into(),
            ..Template::default()
        }
    }

    fn pod_of(runner: &Value) -> Value {
        let run = run("first-create-1");
        let job = job(&run, &settings(runner), "first", &template()).unwrap();
        serde_json::to_value(job.spec.unwrap().template.spec.unwrap()).unwrap()
    }

    #[test]
    fn the_name_of_a_job_is_the_runs_as_long_as_a_label_holds_it() {
        assert_eq!(job_name("first-create-1"), "first-create-1");
        let long = [
            job_name(&"a".repeat(200)),
            job_name(&format!("{}b", "a".repeat(199))),
        ];
        assert!(long.iter().all(|name| name.len() <= 63));
        assert_ne!(long[0], long[1]);
        // A Job that an earlier release made is found again.
        let head = "a".repeat(46);
        assert_eq!(long[0], format!("{head}-8edec72f4bf3a184"));
    }

    #[test]
    fn further_volumes_are_mounted_by_their_claims() {
        let settings = Settings {
            claims: [("shelf".to_owned(), "/shelf")].into(),
            ..Settings::default()
        };
        let job = job(&run("r"), &settings, "first", &template()).unwrap();
        let pod = serde_json::to_value(job.spec.unwrap().template.spec.unwrap()).unwrap();
        let last = |list: &Value| list.as_array().unwrap().last().unwrap().clone();
        let volume = last(&pod["volumes"]);
        assert_eq!(volume["persistentVolumeClaim"]["claimName"], "shelf");
        let mount = last(&pod["containers"][0]["volumeMounts"]);
        assert_eq!(
            mount,
            json!({"name": volume["name"], "mountPath": "/shelf"})
        );
    }

    #[test]
    fn a_subject_chooses_images_resources_and_placement_and_nothing_else() {
        let pod = pod_of(&json!({
            "image": "widgets:v2", "hostNetwork": true,
            "resources": {"limits": {"memory": "1Gi"}},
            "placement": {"nodeSelector": {"disk": "ssd"}, "serviceAccountName": "default"},
        }));
        assert_eq!(pod["initContainers"][0]["image"], "own/windlass:1");
        assert_eq!(pod["containers"][0]["image"], "widgets:v2");
        assert_eq!(pod["containers"][0]["resources"]["limits"]["memory"], "1Gi");
        assert_eq!(pod["hostNetwork"], true);
        assert_eq!(pod["dnsPolicy"], "ClusterFirstWithHostNet");
        assert_eq!(pod["nodeSelector"]["disk"], "ssd");
        assert_eq!(pod["serviceAccountName"], "windlass-runner-first");
    }

    #[test]
    fn images_are_pulled_with_the_subjects_secrets_or_the_operators() {
        let names = |runner: &Value| pod_of(runner)["imagePullSecrets"].clone();
        assert_eq!(names(&json!({})), json!([{"name": "registry"}]));
        let own = json!({"imagePullSecrets": [{"name": "own"}]});
        assert_eq!(names(&own), json!([{"name": "own"}]));
        assert_eq!(names(&json!({"imagePullSecrets": []})), json!([]));
    }

    #[test]
    fn files_lie_in_a_claim_of_the_subject_where_there_is_a_template() {
        assert!(pod_of(&json!({}))["volumes"][0]["emptyDir"].is_object());
        let spec = json!({"accessModes": ["ReadWriteOnce"]});
        for template in [
            spec.clone(),
            json!({"metadata": {"labels": {"a": "b"}}, "spec": spec}),
        ] {
            let runner = json!({"volumeClaimTemplate": template});
            let claim = claim(&run("r"), &settings(&runner), "first");
            let claim = claim.unwrap().unwrap();
            assert_eq!(claim.metadata.name.as_deref(), Some("first-runner"));
            assert_eq!(claim.spec.unwrap().access_modes.unwrap(), ["ReadWriteOnce"]);
            assert_eq!(claim.metadata.owner_references.unwrap()[0].kind, "Widget");
            let volume = &pod_of(&runner)["volumes"][0];
            assert_eq!(volume["persistentVolumeClaim"]["claimName"], "first-runner");
        }
    }

    #[test]
    fn secrets_of_a_run_lie_in_memory() {
        let pod = pod_of(&json!({}));
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let memory = mounts.iter().find(|mount| mount["mountPath"] == "/dev/shm");
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes
            .iter()
            .find(|volume| volume["name"] == memory.unwrap()["name"])
            .unwrap();
        assert_eq!(volume["emptyDir"]["medium"], "Memory");
    }

    #[test]
    fn nothing_of_a_pod_runs_as_root_or_may_write_its_image() {
        let pod = pod_of(&json!({}));
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        for list in ["initContainers", "containers"] {
            for container in pod[list].as_array().unwrap() {
                assert_eq!(container["securityContext"], confined());
            }
        }
    }

    #[test]
    fn what_is_no_pod_is_refused() {
        let runner = json!({"resources": {"limits": "much"}});
        assert!(job(&run("r"), &settings(&runner), "first", &template()).is_err());
    }
}
