//! Providers of Cluster API by custom resources, on a real API server. It has no kubelet: the story says that pods are ready. The operator
//! has the rights of its account in a cluster, and for providers those that `windlass providers rights` prints.
//!
//! The providers are small ones of the test's own, with everything that a real one has: variables, a definition, rights, a Service
//! and a Deployment.

use std::{
    cell::RefCell,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use e2e::{Operator, account, root, wait_until, windlass};
use lab::{ControlPlane, Kubernetes, command::output, progress::Terminal};
use releases::{Answer, Server};
use serde_json::{Value, json};

mod certificates;
mod existing;
mod guide;
mod takeover;

/// Every step takes moments; a loaded machine may take much longer.
const LIMIT: Duration = Duration::from_mins(2);
const NAMESPACE: &str = "capi-system";
const CORE: &str = "coreprovider/cluster-api";
const INFRASTRUCTURE: &str = "infrastructureprovider/docker";

struct World {
    plane: ControlPlane,
    /// Of the operator's account.
    account: PathBuf,
    operator: RefCell<Option<Operator>>,
    /// Has releases of the infrastructure provider.
    releases: Server,
    _runtime: tokio::runtime::Runtime,
}

impl World {
    fn start() -> Self {
        let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
        for kinds in [["crds"].as_slice(), &["crds", "--providers"]] {
            let file = plane.dir().join("crds.yaml");
            fs::write(
                &file,
                output(Command::new(windlass().unwrap()).args(kinds)).unwrap(),
            )
            .unwrap();
            plane.define(&file).unwrap();
        }
        for rights in ["windlass.yaml", "provider-rights.yaml"] {
            let file = root().join("deploy/manifests").join(rights);
            let mut apply = plane.kubectl();
            output(
                apply
                    .args(["apply", "--server-side", "--filename"])
                    .arg(file),
            )
            .unwrap();
        }
        let account = account(&plane).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let releases = runtime.block_on(Server::start(released)).unwrap();
        let world = Self {
            plane,
            account,
            operator: RefCell::default(),
            releases,
            _runtime: runtime,
        };
        let authority = world.plane.dir().join("authority.pem");
        fs::write(&authority, world.releases.authority()).unwrap();
        world.kubectl(&["create", "namespace", NAMESPACE]);
        world.operate();
        world
    }

    /// Starts an operator; the one before is killed.
    fn operate(&self) {
        drop(self.operator.take());
        let mut command = Command::new(windlass().unwrap());
        command.arg("--data-dir").arg(self.data());
        command.arg("--kubeconfig").arg(&self.account);
        // As in a cluster: runs of Clusters would be Jobs.
        command.args(["controller", "--runners=job", "--providers"]);
        command.args(["--provider-fetch=named", "--provider-address=127.0.0.1/32"]);
        let authority = self.plane.dir().join("authority.pem");
        command.arg("--provider-authorities").arg(authority);
        let log = self.plane.dir().join("operator.log");
        let operator = Operator::start(&mut command, log).unwrap();
        *self.operator.borrow_mut() = Some(operator);
    }

    /// Kills the operator once the journal of a run has a record, and starts another one.
    fn die_after(&self, run: &str, event: &str, step: &str) {
        let runs = self.data().join("runs").join(NAMESPACE);
        let journal = runs.join(run).join("journal.jsonl");
        wait_until(&format!("{event} of {step} in {run}"), LIMIT, || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let is_there = whole.lines().any(|line| {
                let record = &serde_json::from_str::<Value>(line).unwrap()["record"];
                record["event"] == event && record["step"] == step
            });
            Ok(is_there.then_some(()))
        })
        .unwrap();
        self.operate();
    }

    fn data(&self) -> PathBuf {
        self.plane.dir().join("data")
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        output(
            self.plane
                .kubectl()
                .args(["--namespace", NAMESPACE])
                .args(arguments),
        )
        .unwrap()
    }

    fn apply(&self, object: &Value) {
        let file: PathBuf = self.plane.dir().join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--filename",
            file.to_str().unwrap(),
        ]);
    }

    fn get(&self, object: &str) -> Option<Value> {
        let found = self.kubectl(&["get", object, "--ignore-not-found", "--output", "json"]);
        serde_json::from_str(&found).ok()
    }

    /// What a condition of a provider says, as soon as it says this.
    fn await_condition(&self, provider: &str, kind: &str, reason: &str) -> String {
        let mut last = String::new();
        let waited = wait_until(&format!("{provider} to be {reason}"), LIMIT, || {
            let status = self
                .get(provider)
                .map(|object| object["status"].clone())
                .unwrap_or_default();
            last = format!("{status:#}");
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let mut found = conditions
                .into_iter()
                .filter(|condition| condition["type"] == kind);
            let found = found.find(|condition| condition["reason"] == reason);
            Ok(found.map(|condition| condition["message"].as_str().unwrap_or_default().to_owned()))
        });
        waited.unwrap_or_else(|error| {
            panic!(
                "{error}: {last}\n{}",
                self.kubectl(&["get", "runs", "--output", "yaml"])
            )
        })
    }

    /// Does what a kubelet would: the pods of a provider's Deployment become ready.
    fn run_pods(&self, provider: &str) {
        let deployment = format!("deployment/{provider}-controller-manager");
        wait_until(&format!("{deployment} to be available"), LIMIT, || {
            let pods = self.kubectl(&["get", "pods", "--selector", &format!("app={provider}"), "--output", "json"]);
            let pods: Value = serde_json::from_str(&pods)?;
            let is_ready = |pod: &Value| pod["status"]["phase"] == "Running";
            for pod in pods["items"].as_array().into_iter().flatten().filter(|pod| !is_ready(pod)) {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let ready = json!({"status": {"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ]}});
                // One that goes meanwhile needs no more.
                let _ = output(self.plane.kubectl().args([
                    "--namespace", NAMESPACE, "patch", "pod", name, "--subresource=status", "--patch", &ready.to_string(),
                ]));
            }
            let Some(found) = self.get(&deployment) else {
                return Ok(None);
            };
            let status = &found["status"];
            let is_seen = status["observedGeneration"] == found["metadata"]["generation"];
            // No old pod stands in for the new one.
            let counts = ["replicas", "availableReplicas", "updatedReplicas"];
            let is_available = counts.iter().all(|count| status[*count] == 1);
            Ok((is_seen && is_available).then_some(()))
        })
        .unwrap();
    }

    /// Waits until a provider's Deployment is of a version.
    fn await_image(&self, provider: &str, version: &str) {
        let image = format!("example.com/{provider}:{version}");
        wait_until("the new Deployment", LIMIT, || {
            let found = self.get(&format!("deployment/{provider}-controller-manager"));
            let found = found.unwrap_or_default();
            let now = &found["spec"]["template"]["spec"]["containers"][0]["image"];
            Ok((*now == json!(image)).then_some(()))
        })
        .unwrap();
    }

    /// The versions in which objects of a definition may be stored.
    fn stored(&self, definition: &str) -> Vec<String> {
        let found = self.get(&format!("crd/{definition}")).unwrap();
        serde_json::from_value(found["status"]["storedVersions"].clone()).unwrap()
    }

    /// `windlass providers` with these.
    fn windlass(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(windlass().unwrap());
        command.arg("--kubeconfig").arg(self.plane.kubeconfig());
        command.args(["--namespace", NAMESPACE, "providers"]);
        command.args(arguments);
        command
    }

    /// Does what whoever reviewed a provider does: lets the operator install it, and applies what nobody else may.
    fn grant(&self, label: &str, name: &str) {
        let file = self.plane.dir().join("rights.yaml");
        let rights = output(&mut self.windlass(&["rights", label])).unwrap();
        fs::write(&file, rights).unwrap();
        let file = file.to_str().unwrap();
        self.kubectl(&["apply", "--server-side", "--filename", file]);
        // It is gathered into the operator's role.
        let deployment = format!("deployments.apps/{name}-controller-manager");
        wait_until(&format!("the rights on {deployment}"), LIMIT, || {
            let mut kubectl = Command::new(self.plane.programs().join("kubectl"));
            kubectl.arg("--kubeconfig").arg(&self.account);
            let asked = ["--namespace", NAMESPACE, "auth", "can-i", "delete"];
            let answer = kubectl.args(asked).arg(&deployment).output()?;
            Ok(answer.status.success().then_some(()))
        })
        .unwrap();
    }

    /// Why `windlass providers` does not do something.
    fn refused(&self, arguments: &[&str]) -> String {
        format!("{:#}", output(&mut self.windlass(arguments)).unwrap_err())
    }

    /// What `windlass providers` says that waits for pods of a provider, while its operator dies at edges of a run.
    fn windlass_with_pods(&self, arguments: &[&str], provider: &str, run: &str) -> String {
        let mut command = self.windlass(arguments);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.unwrap();
        self.die_after(run, "StepSucceeded", "apply/definitions");
        self.await_image(provider, "v1.14.0");
        self.die_after(run, "StepStarted", "check/ready");
        self.run_pods(provider);
        self.die_after(run, "StepSucceeded", "check/ready");
        let said = child.wait_with_output().unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        assert!(said.status.success(), "{text}");
        text
    }

    /// The versions of everything that has a provider's label.
    fn versions(&self, label: &str) -> String {
        let kinds = "deployments,services,serviceaccounts,clusterroles,customresourcedefinitions";
        self.kubectl(&[
            "get", kinds, "--selector", &format!("cluster.x-k8s.io/provider={label}"),
            "--output", "jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion}{\"\\n\"}{end}",
        ])
    }
}

#[test]
fn providers_are_installed_upgraded_and_deleted() {
    let world = World::start();
    refused_and_waiting(&world);
    let core = installed(&world);
    the_next_leaves_the_first_alone(&world, &core);
    put_back(&world);
    no_upgrade_out_of_order(&world);
    upgraded(&world);
    brought_over_the_network(&world);
    deleted_last_first(&world);
    takeover::taken_over_and_handed_back(&world);
    certificates::cert_manager_is_installed_upgraded_and_kept(&world);
}

/// What is wrong is told before anything is done, and nothing is installed before the core.
fn refused_and_waiting(world: &World) {
    world.apply(&manifests(
        "infrastructure",
        "docker",
        "v1.13.4",
        "DockerThing",
    ));
    world.apply(&provider(
        "InfrastructureProvider",
        "docker",
        &json!({"version": "latest"}),
    ));
    let message = world.await_condition(
        INFRASTRUCTURE,
        "PreflightCheckPassed",
        "IncorrectVersionFormat",
    );
    assert!(
        message.starts_with("InfrastructureProvider spec.version is \"latest\": "),
        "{message}"
    );
    world.apply(&provider(
        "InfrastructureProvider",
        "docker",
        &json!({"version": "v1.13.4"}),
    ));
    let message = world.await_condition(INFRASTRUCTURE, "Ready", "WaitingForCoreProviderReady");
    assert!(message.contains("kubectl get coreproviders"), "{message}");
    assert_eq!(world.get("deployment/docker-controller-manager"), None);
}

/// Gives the versions of what belongs to the core.
fn installed(world: &World) -> String {
    let wish = json!({"version": "v1.13.4", "configSecret": {"name": "variables"}});
    world.apply(&provider("CoreProvider", "cluster-api", &wish));
    let message = world.await_condition(CORE, "Ready", "ComponentsFetchError");
    assert!(
        message.contains("provider.cluster.x-k8s.io/name=cluster-api"),
        "{message}"
    );
    world.apply(&manifests("core", "cluster-api", "v1.13.4", "Thing"));
    let message = world.await_condition(CORE, "Ready", "ComponentsFetchError");
    assert!(!message.is_empty());
    world.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "variables", "namespace": NAMESPACE},
        "stringData": {"GREETING": "from-the-secret"},
    }));
    not_without_rights(world);
    world.run_pods("cluster-api");
    world.await_condition(CORE, "Ready", "DeploymentAvailable");
    world.await_condition(CORE, "ProviderInstalled", "ProviderInstalled");
    let wide = world.get("clusterrole/cluster-api-wide").unwrap();
    let managers = wide["metadata"]["managedFields"].to_string();
    assert!(
        !managers.contains("windlass"),
        "what a person applied is left: {managers}"
    );

    let table = world.kubectl(&["get", "coreprovider", "--output", "wide"]);
    let rows: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows,
        [
            vec!["NAME", "INSTALLEDVERSION", "READY"],
            vec!["cluster-api", "v1.13.4", "True"]
        ]
    );
    let core = world.get(CORE).unwrap();
    assert_eq!(core["status"]["contract"], "v1beta2");
    assert_eq!(
        core["status"]["observedGeneration"],
        core["metadata"]["generation"]
    );

    let deployment = world
        .get("deployment/cluster-api-controller-manager")
        .unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["args"],
        json!(["--greeting=from-the-secret", "--level=1"])
    );
    assert_eq!(
        deployment["metadata"]["labels"]["cluster.x-k8s.io/provider"],
        "cluster-api"
    );

    // clusterctl sees it.
    let entry = world
        .get("providers.clusterctl.cluster.x-k8s.io/cluster-api")
        .unwrap();
    assert_eq!(
        (&entry["type"], &entry["version"]),
        (&json!("CoreProvider"), &json!("v1.13.4"))
    );

    // Every step is told, and people can steer the run as any other.
    let run = world.get("run/cluster-api-install-1").unwrap();
    let steps = run["status"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 12, "{run:#}");
    assert!(
        steps.iter().all(|step| step["phase"] == "Succeeded"),
        "{run:#}"
    );
    let told = world.kubectl(&["describe", CORE]);
    for step in [
        "apply/definitions",
        "apply/objects",
        "check/ready",
        "inventory/record",
    ] {
        assert!(told.contains(step), "{step} is not told: {told}");
    }
    let said = world.operator.borrow().as_ref().unwrap().said();
    // The rights that were granted let it be told of all that it is made of and from.
    assert!(!said.contains("watch list error"), "{said}");
    let secret = said + &told + &run.to_string() + &core.to_string();
    assert!(
        !secret.contains("from-the-secret"),
        "a value of a Secret was told"
    );
    world.versions("cluster-api")
}

/// What the operator may not do is told before anything is done, with the command that prints it.
fn not_without_rights(world: &World) {
    let message = world.await_condition(CORE, "Ready", "InstallFailed");
    for told in [
        "delete, get serviceaccounts named cluster-api",
        "`windlass -n capi-system providers rights cluster-api`",
    ] {
        assert!(message.contains(told), "{told}: {message}");
    }
    assert_eq!(world.get("crd/things.cluster-api.example.com"), None);
    assert_eq!(world.get("serviceaccount/cluster-api"), None);
    world.grant("cluster-api", "cluster-api");
    world.grant("infrastructure-docker", "docker");
    let mut retry = Command::new(windlass().unwrap());
    retry.arg("--kubeconfig").arg(world.plane.kubeconfig());
    let run = ["--namespace", NAMESPACE, "retry", "cluster-api-install-1"];
    output(retry.args(run)).unwrap();
}

/// The core is looked at again and again meanwhile, and written by nobody.
fn the_next_leaves_the_first_alone(world: &World, core: &str) {
    let before = world.get(CORE).unwrap()["metadata"]["resourceVersion"].clone();
    world.run_pods("docker");
    world.await_condition(INFRASTRUCTURE, "Ready", "DeploymentAvailable");
    assert_eq!(world.versions("cluster-api"), core);
    assert_eq!(
        world.get(CORE).unwrap()["metadata"]["resourceVersion"],
        before
    );
}

/// What somebody else has written of the provider's is told, and put back; what they added stays.
fn put_back(world: &World) {
    let deployment = "deployment/cluster-api-controller-manager";
    let annotate = |annotation: &str| {
        world.kubectl(&["annotate", "--overwrite", CORE, annotation]);
    };
    let image = |wanted: &str| {
        let image = |object: &Value| {
            object["spec"]["template"]["spec"]["containers"][0]["image"] == json!(wanted)
        };
        wait_until(&format!("the image {wanted}"), LIMIT, || {
            Ok(world.get(deployment).filter(image).map(drop))
        })
        .unwrap();
    };
    let edit = |wanted: &str| {
        let path = "/spec/template/spec/containers/0/image";
        let patch = json!([{"op": "replace", "path": path, "value": wanted}]).to_string();
        let manager = "--field-manager=somebody";
        world.kubectl(&[
            "patch",
            deployment,
            "--type=json",
            manager,
            "--patch",
            &patch,
        ]);
    };
    let released = "example.com/cluster-api:v1.13.4";
    image(released);
    // Somebody's own label is somebody's own.
    world.kubectl(&["label", deployment, "team=platform"]);
    annotate("windlass.dev/repair-drift=false");
    edit("example.com/cluster-api:mine");
    annotate("example.com/look=1");
    let message = world.await_condition(CORE, "Ready", "Drifted");
    let expected =
        format!("Deployment {NAMESPACE}/cluster-api-controller-manager was changed by somebody");
    assert!(message.contains(&expected), "{message}");
    assert_eq!(
        world.get("run/cluster-api-repair-2"),
        None,
        "it is told alone"
    );

    world.kubectl(&["delete", "service", "cluster-api"]);
    annotate("windlass.dev/repair-drift=true");
    image(released);
    world.run_pods("cluster-api");
    world.await_condition(CORE, "Ready", "DeploymentAvailable");
    let run = world.get("run/cluster-api-repair-2").unwrap();
    let reason = run["spec"]["plan"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("Service capi-system/cluster-api is gone"),
        "{reason}"
    );
    assert!(world.get("service/cluster-api").is_some());
    let labels = &world.get(deployment).unwrap()["metadata"]["labels"];
    assert_eq!(labels["team"], "platform");
    let told = world.kubectl(&["describe", CORE]);
    assert!(told.contains("Drifted"), "{told}");
}

/// Whoever writes a version by hand is held to clusterctl's rules too.
fn no_upgrade_out_of_order(world: &World) {
    let incompatible = "CAPIVersionIncompatibility";
    let core = |version: &str| {
        let wish = json!({"version": version, "configSecret": {"name": "variables"}});
        world.apply(&provider("CoreProvider", "cluster-api", &wish));
    };
    core("v1.17.0");
    let message = world.await_condition(CORE, "PreflightCheckPassed", incompatible);
    assert!(
        message.contains("v1.17.0 would follow v1.13.4") && message.ends_with("go by way of v1.16"),
        "{message}"
    );
    core("v1.13.4");
    world.await_condition(CORE, "Ready", "DeploymentAvailable");

    let mut older = manifests("infrastructure", "docker", "v1.14.9", "DockerThing");
    let metadata = older["data"]["metadata"].as_str().unwrap();
    older["data"]["metadata"] = json!(metadata.replace("v1beta2", "v1alpha4"));
    world.apply(&older);
    let docker = |version: &str| {
        let wish = json!({"version": version});
        world.apply(&provider("InfrastructureProvider", "docker", &wish));
    };
    docker("v1.14.9");
    let message = world.await_condition(INFRASTRUCTURE, "PreflightCheckPassed", incompatible);
    assert!(
        message.contains("keeps contract v1alpha4, which does not go with v1beta2 of CoreProvider"),
        "{message}"
    );
    docker("v1.13.4");
    world.await_condition(INFRASTRUCTURE, "Ready", "DeploymentAvailable");
    world.kubectl(&["delete", "configmap", "infrastructure-docker-v1.14.9"]);
    assert_eq!(
        world.get("run/infrastructure-docker-upgrade-2"),
        None,
        "nothing was begun"
    );
}

/// What the new version does not have any more is removed; what nobody has an answer for is refused.
fn upgraded(world: &World) {
    world.apply(&manifests("core", "cluster-api", "v1.14.0", "Thing"));
    assert!(world.get("service/cluster-api-old").is_some());
    planned(world);
    world.apply(&thing());
    assert_eq!(world.stored("things.cluster-api.example.com"), ["v1"]);
    let upgrade = ["upgrade", "--to", "cluster-api=v1.14.0"];
    let refused = world.refused(&upgrade);
    assert!(
        refused.contains("providers upgrade --to cluster-api=v1.14.0 --yes"),
        "{refused}"
    );
    let run = "cluster-api-upgrade-3";
    let told = world.windlass_with_pods(&[&upgrade[..], &["--yes"]].concat(), "cluster-api", run);
    for said in [
        "stores    things.cluster-api.example.com in v2 instead of v1",
        "Ctrl-C ends what is shown here",
        "migrate/stored: Succeeded",
        "CoreProvider capi-system/cluster-api: v1.14.0 is installed, ",
    ] {
        assert!(told.contains(said), "{said}: {told}");
    }
    // Its operator died three times meanwhile: the run went on where it was.
    each_step_once(&world.get(&format!("run/{run}")).unwrap());
    // What was there is stored in the new version, and the old one could go.
    assert_eq!(world.stored("things.cluster-api.example.com"), ["v2"]);
    let kept = world.get("things.cluster-api.example.com/kept").unwrap();
    assert_eq!(kept["apiVersion"], "cluster-api.example.com/v2");
    let refused = world.refused(&["apply", "--core", "cluster-api:v1.13.4"]);
    assert!(refused.contains("is installed in v1.14.0"), "{refused}");
    world.await_condition(CORE, "ProviderUpgraded", "ProviderUpgraded");
    world.await_condition(CORE, "Ready", "DeploymentAvailable");
    assert_eq!(
        world.get(CORE).unwrap()["status"]["installedVersion"],
        "v1.14.0"
    );
    assert_eq!(world.get("service/cluster-api-old"), None);
    assert!(world.get("service/cluster-api").is_some());

    // Other settings are a run too, and patches have the last word.
    world.apply(&provider("CoreProvider", "cluster-api", &json!({
        "version": "v1.14.0", "configSecret": {"name": "variables"},
        "manager": {"verbosity": 5, "gracefulShutDown": "30s"},
        "patches": [{"patch": "{metadata: {annotations: {patched: 'yes'}}}", "target": {"kind": "Deployment"}}],
    })));
    let found = wait_until("the settings", LIMIT, || {
        let found = world
            .get("deployment/cluster-api-controller-manager")
            .unwrap();
        Ok((found["metadata"]["annotations"]["patched"] == "yes").then_some(found))
    })
    .unwrap();
    let pod = &found["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["args"],
        json!(["--greeting=from-the-secret", "--level=1", "--v=5"])
    );
    assert_eq!(pod["terminationGracePeriodSeconds"], 30);
    world.run_pods("cluster-api");
    wait_until("the run of the settings", LIMIT, || {
        let run = world.get("run/cluster-api-reconfigure-4");
        Ok(run.filter(|run| run["status"]["phase"] == "Succeeded"))
    })
    .unwrap();

    replaced_for_a_credential(world);

    world.apply(&provider(
        "CoreProvider",
        "cluster-api",
        &json!({"version": "v1.13.4"}),
    ));
    world.await_condition(
        CORE,
        "PreflightCheckPassed",
        "UnsupportedProviderDowngradeReason",
    );
    assert_eq!(
        world.get(CORE).unwrap()["status"]["installedVersion"],
        "v1.14.0"
    );
}

/// A value that changes no workload replaces the pods all the same.
fn replaced_for_a_credential(world: &World) {
    let mark = || {
        let found = world.get("deployment/cluster-api-controller-manager");
        let template = &found.unwrap_or_default()["spec"]["template"];
        template["metadata"]["annotations"]["windlass.dev/variables"].clone()
    };
    let before = mark();
    assert!(before.is_string(), "{before}");
    world.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "variables", "namespace": NAMESPACE},
        "stringData": {"GREETING": "from-the-secret", "CREDENTIAL": "another"},
    }));
    world.kubectl(&["annotate", "--overwrite", CORE, "example.com/look=2"]);
    wait_until("the new mark", LIMIT, || {
        Ok((mark() != before).then_some(()))
    })
    .unwrap();
    world.run_pods("cluster-api");
    wait_until("the run of the credential", LIMIT, || {
        let run = world.get("run/cluster-api-reconfigure-5");
        Ok(run.filter(|run| run["status"]["phase"] == "Succeeded"))
    })
    .unwrap();
}

/// A release that nobody loaded comes from where its provider says, once.
fn brought_over_the_network(world: &World) {
    let url = world.releases.url("/org/docker/releases");
    let apply = |version: &str| {
        let spec = json!({"version": version, "fetchConfig": {"url": url}});
        world.apply(&provider("InfrastructureProvider", "docker", &spec));
    };
    apply("v1.15.0");
    let message = world.await_condition(INFRASTRUCTURE, "Ready", "ComponentsFetchError");
    let begins =
        format!("InfrastructureProvider spec.fetchConfig.url is {url:?}: there is no {url}");
    assert!(message.starts_with(&begins), "{message}");
    let asked = world.releases.asked();
    apply("v1.14.0");
    world.await_condition(INFRASTRUCTURE, "Reconciling", "RunInProgress");
    world.await_image("docker", "v1.14.0");
    world.run_pods("docker");
    world.await_condition(INFRASTRUCTURE, "Ready", "DeploymentAvailable");
    let told = world.kubectl(&["describe", INFRASTRUCTURE]);
    assert!(
        told.contains("version v1.14.0 was brought from https://"),
        "{told}"
    );
    assert_eq!(world.releases.asked() - asked, 2, "two files, once");
    let kept = world
        .get("configmap/infrastructure-docker-v1.14.0")
        .unwrap();
    assert_eq!(
        kept["metadata"]["annotations"]["windlass.dev/fetched-from"],
        url
    );
}

/// Before anything moves, people are told what would, or why it cannot.
fn planned(world: &World) {
    let windlass = |arguments: &[&str]| output(&mut world.windlass(arguments));
    let status = windlass(&["status"]).unwrap();
    let core = status.lines().find(|line| line.starts_with("CoreProvider"));
    let words: Vec<_> = core.unwrap().split_whitespace().collect();
    let expected = [
        "CoreProvider",
        NAMESPACE,
        "cluster-api",
        "v1.13.4",
        "v1.13.4",
        "v1beta2",
        "True",
        "DeploymentAvailable",
    ];
    assert_eq!(words, expected);
    for arguments in [
        ["plan"].as_slice(),
        &["plan", "--to", "cluster-api=v1.14.0"],
    ] {
        let plan = windlass(arguments).unwrap();
        for told in [
            "contract v1beta2",
            "v1.13.4 to v1.14.0",
            "removes   Service capi-system/cluster-api-old",
            "image     Deployment capi-system/cluster-api-controller-manager: example.com/cluster-api:v1.13.4 to example.com/cluster-api:v1.14.0",
            "stays at v1.13.4",
        ] {
            assert!(plan.contains(told), "{told}: {plan}");
        }
    }
    let explained = windlass(&["explain", "cluster-api"]).unwrap();
    for told in [
        "CoreProvider capi-system/cluster-api\n",
        "version    v1.13.4, by spec.version",
        "release    ConfigMap ",
        "contract   v1beta2",
        "namespace  capi-system of this cluster",
        "variable   GREETING, by Secret capi-system/variables",
    ] {
        assert!(explained.contains(told), "{told}: {explained}");
    }
    assert!(!explained.contains("from-the-secret"), "{explained}");
    let refused = format!("{:#}", windlass(&["explain", "core"]).unwrap_err());
    assert!(
        refused.contains("core is no provider that is there"),
        "{refused}"
    );
    for (to, why) in [
        ("cluster-api", "LABEL=VERSION"),
        ("cluster-api=new", "new"),
        ("bootstrap-kubeadm=v1.14.0", "there is no such provider"),
        ("cluster-api=v1.12.0", "v1.12.0"),
        ("infrastructure-docker=v1.14.9", "has no release v1.14.9"),
    ] {
        let refused = format!("{:#}", windlass(&["plan", "--to", to]).unwrap_err());
        assert!(refused.contains(why), "{to}: {refused}");
    }
    assert_eq!(
        world.get(CORE).unwrap()["status"]["installedVersion"],
        "v1.13.4"
    );
}

/// Nothing goes that something else needs; definitions and what is of them stay.
fn deleted_last_first(world: &World) {
    let one = json!({"apiVersion": "docker.example.com/v1", "kind": "DockerThing", "metadata": {"name": "one", "namespace": NAMESPACE}});
    world.apply(&one);
    world.kubectl(&["delete", CORE, "--wait=false"]);
    let message = world.await_condition(CORE, "Ready", "DependentsExist");
    for needs in [
        "InfrastructureProvider capi-system/docker",
        "Thing capi-system/kept",
    ] {
        assert!(message.contains(needs), "{message}");
    }
    assert!(
        world
            .get("deployment/cluster-api-controller-manager")
            .is_some()
    );

    let delete = ["delete", "--infrastructure", "docker"];
    let confirmed = [&delete[..], &["--confirm", "docker"]].concat();
    let refused = world.refused(&confirmed);
    assert!(refused.contains("DockerThing capi-system/one"), "{refused}");
    world.kubectl(&["delete", "dockerthings.docker.example.com", "one"]);
    let refused = world.refused(&delete);
    assert!(refused.contains("--confirm docker"), "{refused}");
    assert!(world.get("deployment/docker-controller-manager").is_some());
    let told = output(&mut world.windlass(&confirmed)).unwrap();
    assert!(
        told.contains("InfrastructureProvider capi-system/docker: it is gone"),
        "{told}"
    );
    world.kubectl(&["delete", "things.cluster-api.example.com", "kept"]);
    for (provider, label) in [
        (INFRASTRUCTURE, "infrastructure-docker"),
        (CORE, "cluster-api"),
    ] {
        wait_until(&format!("{provider} to be gone"), LIMIT, || {
            Ok(world.get(provider).is_none().then_some(()))
        })
        .unwrap();
        let left = world.versions(label);
        let kinds: Vec<_> = left
            .lines()
            .map(|line| line.split('/').next().unwrap())
            .collect();
        assert_eq!(kinds, ["CustomResourceDefinition"], "{left}");
        assert_eq!(
            world.get(&format!("providers.clusterctl.cluster.x-k8s.io/{label}")),
            None
        );
    }
    assert!(world.get(&format!("namespace/{NAMESPACE}")).is_some());
}

/// Every step of a run's plan was done, in order, and none again.
pub(crate) fn each_step_once(run: &Value) {
    let planned = run["spec"]["plan"]["steps"].as_array().unwrap().iter();
    let planned: Vec<_> = planned.map(|step| &step["id"]).collect();
    let history = run["status"]["history"].as_array().unwrap().iter();
    let done = history.filter(|record| record["event"] == "StepSucceeded");
    let done: Vec<_> = done.map(|record| &record["step"]).collect();
    assert!(!planned.is_empty(), "{run:#}");
    assert_eq!(done, planned, "{run:#}");
}

fn thing() -> Value {
    json!({"apiVersion": "cluster-api.example.com/v1", "kind": "Thing", "metadata": {"name": "kept", "namespace": NAMESPACE}})
}

/// What the server has: a release of the infrastructure provider.
fn released(path: &str) -> Answer {
    let manifests = manifests("infrastructure", "docker", "v1.14.0", "DockerThing");
    let text = |key: &str| Answer::Whole(manifests["data"][key].as_str().unwrap().to_owned());
    match path.strip_prefix("/org/docker/releases/download/v1.14.0/") {
        Some("metadata.yaml") => text("metadata"),
        Some("infrastructure-components.yaml") => text("components"),
        _ => Answer::Status(404),
    }
}

fn provider(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "operator.cluster.x-k8s.io/v1alpha2", "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}

/// A role, given to the account of a provider.
fn bound(account: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "elsewhere"}],
    })
}

/// A release of a small provider as the existing operator keeps it. Version v1.14.0 has a Service less, and a version of its kind more.
fn manifests(word: &str, name: &str, version: &str, kind: &str) -> Value {
    let (group, lower) = (format!("{name}.example.com"), kind.to_lowercase());
    let labels = json!({"app": name});
    let service = |service: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": service, "namespace": "elsewhere"},
            "spec": {"selector": labels, "ports": [{"port": 443}]},
        })
    };
    let served = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let versions = match version {
        "v1.14.0" => vec![served("v1", false), served("v2", true)],
        _ => vec![served("v1", true)],
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{lower}s.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": format!("{lower}s"), "singular": lower},
            "versions": versions,
        },
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("{name}-controller-manager"), "namespace": "elsewhere"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "serviceAccountName": name,
            "containers": [{
                "name": "manager", "image": format!("example.com/{name}:{version}"),
                "args": ["--greeting=${GREETING:=none}", "--level=${LEVEL:=1}"],
            }],
        }}},
    });
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}),
        definition,
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "elsewhere"}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": format!("{name}-manager")},
            "rules": [{"apiGroups": [group], "resources": [format!("{lower}s")], "verbs": ["get", "list", "watch"]}],
        }),
        bound(name, &format!("{name}-manager")),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": format!("{name}-wide")},
            "rules": [{"apiGroups": ["infrastructure.example.com"], "resources": ["*"], "verbs": ["get"]}],
        }),
        bound(name, &format!("{name}-wide")),
        service(name),
        deployment,
    ];
    if version != "v1.14.0" {
        objects.push(service(&format!("{name}-old")));
    }
    let components: Vec<_> = objects.iter().map(Value::to_string).collect();
    let metadata = json!({
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata",
        "releaseSeries": [{"major": 1, "minor": 13, "contract": "v1beta2"}, {"major": 1, "minor": 14, "contract": "v1beta2"}],
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": format!("{word}-{name}-{version}"), "namespace": NAMESPACE,
            "labels": {
                "provider.cluster.x-k8s.io/name": name, "provider.cluster.x-k8s.io/type": word,
                "provider.cluster.x-k8s.io/version": version, "managed-by.operator.cluster.x-k8s.io": "true",
            },
        },
        "data": {"metadata": metadata.to_string(), "components": components.join("\n---\n")},
    })
}
