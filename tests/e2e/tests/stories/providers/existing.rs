//! What the Cluster API operator itself has installed is taken over without a write to it, and that operator goes on with it afterwards.

use std::{fs, net::TcpListener, process::Command};

use e2e::{Operator, wait_until};
use lab::progress::Terminal;
use serde_json::{Value, json};

use super::{CORE, LIMIT, NAMESPACE, World, manifests, provider, takeover::stands_of};

const DEPLOYMENT: &str = "deployment/cluster-api-controller-manager";
const RUN: &str = "run/cluster-api-install-1";
/// What a provider is installed as; clusterctl's inventory is none of that operator's.
const KINDS: &str = "namespaces,deployments,services,serviceaccounts,clusterroles,clusterrolebindings,customresourcedefinitions";

#[test]
fn what_the_existing_operator_installed_goes_on_under_windlass_and_back() {
    let program = lab::cluster_api_operator(&Terminal::default()).unwrap();
    let world = World::start();
    // First the other one is at work alone.
    drop(world.operator.take());
    let theirs = || theirs(&world, &program);
    let operator = theirs();
    world.apply(&manifests("core", "cluster-api", "v1.13.4", "Thing"));
    world.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "variables", "namespace": NAMESPACE},
        "stringData": {"GREETING": "from-the-secret"},
    }));
    world.apply(&provider("CoreProvider", "cluster-api", &wish()));
    world.run_pods("cluster-api");
    is_ready(&world);
    let memory = operator.memory().unwrap();
    drop(operator);
    world.grant("cluster-api", "cluster-api");
    let before = stands_of(&world, KINDS);
    assert_eq!(before.len(), 9, "{before:#?}");

    world.operate();
    let run = wait_until("it to be taken over", LIMIT, || {
        let run = world.get(RUN).unwrap_or_default();
        assert_ne!(run["status"]["phase"], "Failed", "{run:#}");
        Ok((run["status"]["phase"] == "Succeeded").then_some(run))
    })
    .unwrap();
    assert_eq!(stands_of(&world, KINDS), before, "taken over: {run:#}");
    is_ready(&world);
    let ours = world.operator.borrow().as_ref().unwrap().memory().unwrap();
    eprintln!("MiB: the existing operator {memory:?}, Windlass, unoptimised, {ours:?}");

    drop(world.operator.take());
    let _operator = theirs();
    let mut other = wish();
    other["manager"] = json!({"verbosity": 3});
    world.apply(&provider("CoreProvider", "cluster-api", &other));
    wait_until("what it is told to be done by the other one", LIMIT, || {
        let found = world.get(DEPLOYMENT).unwrap_or_default();
        let arguments = &found["spec"]["template"]["spec"]["containers"][0]["args"];
        Ok(arguments.to_string().contains("--v=3").then_some(()))
    })
    .unwrap();
    world.run_pods("cluster-api");
    is_ready(&world);
}

/// As people write it for that operator, whose webhook would fill in the namespace.
fn wish() -> Value {
    json!({"version": "v1.13.4", "configSecret": {"name": "variables", "namespace": NAMESPACE}})
}

fn is_ready(world: &World) {
    let mut last = Value::Null;
    wait_until("the core to be Ready", LIMIT, || {
        last = world.get(CORE).unwrap_or_default();
        let is_whole = last["status"]["installedVersion"] == "v1.13.4"
            && last["status"]["observedGeneration"] == last["metadata"]["generation"];
        Ok((is_whole && e2e::is_true(&last, "Ready")).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}: {last:#}"));
}

/// The other operator. Nobody asks its webhooks, but it does not begin without a certificate for them.
fn theirs(world: &World, program: &std::path::Path) -> Operator {
    let certificates = world.plane.dir().join("certificates");
    fs::create_dir_all(&certificates).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(certificates.join("tls.crt"), made.cert.pem()).unwrap();
    fs::write(
        certificates.join("tls.key"),
        made.signing_key.serialize_pem(),
    )
    .unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut command = Command::new(program);
    command
        .env("KUBECONFIG", world.plane.kubeconfig())
        .args([
            "--health-addr=0",
            "--profiler-address=",
            "--diagnostics-address=127.0.0.1:0",
        ])
        .arg(format!("--webhook-port={port}"))
        .arg("--webhook-cert-dir")
        .arg(certificates);
    Operator::start(&mut command, world.plane.dir().join("theirs.log")).unwrap()
}
