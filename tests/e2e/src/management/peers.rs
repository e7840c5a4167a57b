//! What others make of the same installation: plain clusterctl that upgrades it, and the Cluster API operator at work on it.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, anyhow};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use super::{LIMIT, Management, PROVIDERS};
use crate::{Operator, Tally, calls, wait_until};

/// What everything of a provider has.
const LABEL: &str = "cluster.x-k8s.io/provider";
/// How soon cert-manager's stand-in sees what has no authority.
const LOOK: Duration = Duration::from_millis(200);
/// What that operator writes at a provider that it has applied.
const APPLIED: &str = "operator.cluster.x-k8s.io/applied-spec-hash";

impl Management {
    /// Ends Windlass, and starts nobody in its place.
    pub fn stop(&self) {
        drop(self.operator.take());
    }

    /// Upgrades all providers by plain clusterctl while everything that they bring along is called, and says what became of the calls.
    /// Windlass has installed them, and has ended. A stand-in does what cert-manager would: the certificates stay, and webhooks and
    /// definitions that have lost their authority are given it again.
    ///
    /// # Errors
    ///
    /// clusterctl fails, or the new pods do not come up in time.
    pub fn upgrade_by_clusterctl(&self, version: &str) -> anyhow::Result<Vec<Tally>> {
        self.stop();
        self.define_certificates()?;
        // cert-manager's Secrets have no provider's label, by which clusterctl would delete them.
        let unlabelled = format!("{LABEL}-");
        let label = ["label", "secrets", "--all-namespaces", "--selector", LABEL];
        self.kubectl(&[&label[..], &[&unlabelled]].concat())?;
        let injector = Injector::start(self)?;
        let calls = self.calls();
        let [core, bootstrap, control_plane, infrastructure] =
            PROVIDERS.map(|provider| format!("{}:{version}", provider.name));
        let upgrade = [
            "upgrade",
            "apply",
            "--wait-providers",
            "--core",
            &core,
            "--bootstrap",
            &bootstrap,
            "--control-plane",
            &control_plane,
            "--infrastructure",
            &infrastructure,
        ];
        self.clusterctl(&upgrade)?;
        let wait = [
            "wait",
            "--for=condition=Available",
            "deployments",
            "--all-namespaces",
            "--selector",
            LABEL,
            "--timeout=300s",
        ];
        self.kubectl(&wait)?;
        self.old_pods_gone()?;
        // Endpoints and authorities follow; calls that still fail then are clusterctl's, too.
        std::thread::sleep(Duration::from_secs(10));
        let tallies = calls.end()?;
        injector.end()?;
        Ok(tallies)
    }

    /// The kinds of cert-manager that releases have, of which anything may be said.
    fn define_certificates(&self) -> anyhow::Result<()> {
        let kinds = [("Certificate", "certificates"), ("Issuer", "issuers")];
        let definitions = kinds.map(|(kind, plural)| {
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.cert-manager.io")},
                "spec": {
                    "group": "cert-manager.io", "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }}}],
                },
            })
        });
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": definitions}))?;
        let names = kinds.map(|(_, plural)| format!("crd/{plural}.cert-manager.io"));
        let [one, other] = names.each_ref().map(String::as_str);
        let wait = ["wait", "--for=condition=Established", one, other];
        self.kubectl(&[&wait[..], &["--timeout=60s"]].concat())?;
        Ok(())
    }

    /// Starts the Cluster API operator on the same objects, and waits until it has applied each provider. Windlass has ended. Nobody
    /// asks its webhooks, but it does not begin without a certificate for them. Its working set is counted.
    ///
    /// # Errors
    ///
    /// It cannot be started, or does not get there in time.
    pub fn operate_by_other(&self, program: &Path) -> anyhow::Result<Operator> {
        self.stop();
        self.define_certificates()?;
        let certificates = self.node.dir().join("certificates");
        fs::create_dir_all(&certificates).context("make a directory for certificates")?;
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
            .context("make a certificate")?;
        fs::write(certificates.join("tls.crt"), made.cert.pem()).context("write a certificate")?;
        fs::write(
            certificates.join("tls.key"),
            made.signing_key.serialize_pem(),
        )
        .context("write a key")?;
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", self.node.kubeconfig())
            .args([
                "--health-addr=0",
                "--profiler-address=",
                "--diagnostics-address=127.0.0.1:0",
                "--webhook-port=19443",
            ])
            .arg("--webhook-cert-dir")
            .arg(certificates);
        let command = self.node.lab.enter_network(&command);
        let log = self.node.dir().join("theirs.log");
        let operator = Operator::start_counted(&command, log)?;
        wait_until("the other operator to apply providers", LIMIT, || {
            for provider in PROVIDERS {
                let name = format!("{}/{}", provider.kind, provider.name);
                let get = ["get", &name, "--output=json"];
                let found =
                    self.kubectl(&[&["--namespace", provider.namespace], &get[..]].concat())?;
                let found: Value = serde_json::from_str(&found)?;
                if found["metadata"]["annotations"][APPLIED].is_null() {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .with_context(|| operator.said())?;
        Ok(operator)
    }
}

/// Does what cert-manager does with webhooks and definitions: they are given the authority of whoever answers.
struct Injector {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<()>>,
}

/// By namespace and name of a Service.
type Authorities = BTreeMap<(String, String), String>;

impl Injector {
    /// Learns the authorities that there are, and gives them from then on.
    fn start(management: &Management) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (owner, kubeconfig) = (management.node.lab.owner(), management.node.kubeconfig());
        let (until, learnt) = (Arc::clone(&stop), std::sync::mpsc::channel());
        let (tell, told) = learnt;
        let thread = std::thread::spawn(move || {
            calls::on_network(owner, async move {
                let client = calls::client(&kubeconfig).await?;
                let mut authorities = Authorities::new();
                for (_, object) in called(&client).await? {
                    for (service, authority, _) in callers(&object) {
                        authorities.extend(authority.map(|authority| (service, authority)));
                    }
                }
                let _ = tell.send(authorities.len());
                while !until.load(Ordering::Relaxed) {
                    // While the API is busy, or an object has just been written, the next look does it.
                    let _ = give(&client, &authorities).await;
                    tokio::time::sleep(LOOK).await;
                }
                Ok(())
            })
        });
        let known = told.recv_timeout(Duration::from_mins(1));
        let known = known.context("learn the authorities of webhooks")?;
        anyhow::ensure!(known > 0, "no webhook has an authority");
        Ok(Self { stop, thread })
    }

    fn end(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("cert-manager's stand-in panicked"))?
    }
}

/// What has callers: configurations of webhooks, and definitions.
async fn called(client: &Client) -> kube::Result<Vec<(ApiResource, DynamicObject)>> {
    let kinds = [
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration",
        ),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
        ),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ];
    let mut found = Vec::new();
    for (group, kind) in kinds {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let objects = api.list(&ListParams::default().labels(LABEL)).await?;
        found.extend(objects.into_iter().map(|one| (resource.clone(), one)));
    }
    Ok(found)
}

/// Whom an object has called: the Service, the authority that it is known by, and the place of that.
fn callers(object: &DynamicObject) -> Vec<((String, String), Option<String>, String)> {
    let webhooks = object.data["webhooks"].as_array().map_or(0, Vec::len);
    let webhooks = (0..webhooks).map(|at| format!("/webhooks/{at}/clientConfig"));
    let places = webhooks.chain(["/spec/conversion/webhook/clientConfig".to_owned()]);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let found = places.filter_map(|place| {
        let config = object.data.pointer(&place)?;
        let namespace = text(config.pointer("/service/namespace"))?;
        let service = (namespace, text(config.pointer("/service/name"))?);
        let authority = text(config.get("caBundle")).filter(|authority| !authority.is_empty());
        Some((service, authority, format!("{place}/caBundle")))
    });
    found.collect()
}

async fn give(client: &Client, authorities: &Authorities) -> anyhow::Result<()> {
    for (resource, object) in called(client).await? {
        let lacking = callers(&object).into_iter();
        let lacking = lacking.filter(|(_, authority, _)| authority.is_none());
        let operations: Vec<_> = lacking
            .filter_map(|(service, _, place)| {
                let authority = authorities.get(&service)?;
                Some(json!({"op": "add", "path": place, "value": authority}))
            })
            .collect();
        if operations.is_empty() {
            continue;
        }
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let name = object.metadata.name.unwrap_or_default();
        let patch = Patch::Json::<()>(serde_json::from_value(json!(operations))?);
        api.patch(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}
