//! cert-manager is installed by an object as providers are: before those that wait for it, and for as long as certificates need it.

use serde_json::{Value, json};

use super::{CORE, NAMESPACE, World, manifests, provider};

const CERT_MANAGER: &str = "addonprovider/cert-manager";
const ELECTION: &str = "role/cert-manager-leader-election";
const CERTIFICATES: &str = "certificates.cert-manager.io";

/// What the core has installed is there, and its object is not.
pub(super) fn cert_manager_is_installed_upgraded_and_kept(world: &World) {
    let declare = |version: &str| {
        let spec = json!({"version": version});
        world.apply(&provider("AddonProvider", "cert-manager", &spec));
    };
    world.apply(&release("v1.13.4"));
    declare("v1.13.4");
    world.grant("addon-cert-manager", "cert-manager");
    let wish = json!({"version": "v1.13.4", "configSecret": {"name": "variables"}});
    world.apply(&provider("CoreProvider", "cluster-api", &wish));
    let message = world.await_condition(CORE, "Ready", "WaitingForCertManager");
    assert!(message.contains("kubectl get addonproviders"), "{message}");
    world.run_pods("cert-manager");
    world.await_condition(CERT_MANAGER, "Ready", "DeploymentAvailable");
    world.await_condition(CORE, "Ready", "DeploymentAvailable");

    // Its pods agree there on who leads. Nothing is told to clusterctl, which has its own way with it.
    let role = ["--namespace", "kube-system", "get", ELECTION];
    assert!(world.kubectl(&role).contains("cert-manager"));
    let entry = "providers.clusterctl.cluster.x-k8s.io/addon-cert-manager";
    assert_eq!(world.get(entry), None);
    let definition = world.get(&format!("crd/{CERTIFICATES}")).unwrap();
    let labels = &definition["metadata"]["labels"];
    assert_eq!(labels["cluster.x-k8s.io/provider"], "addon-cert-manager");
    assert_eq!(labels.get("clusterctl.cluster.x-k8s.io"), None);

    world.apply(&json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "serving", "namespace": NAMESPACE},
    }));
    world.apply(&release("v1.14.0"));
    declare("v1.14.0");
    world.await_condition(CERT_MANAGER, "Reconciling", "RunInProgress");
    world.await_image("cert-manager", "v1.14.0");
    world.run_pods("cert-manager");
    world.await_condition(CERT_MANAGER, "ProviderUpgraded", "ProviderUpgraded");
    assert_eq!(world.stored(CERTIFICATES), ["v2"]);

    world.kubectl(&["delete", CERT_MANAGER, "--wait=false"]);
    let message = world.await_condition(CERT_MANAGER, "Ready", "DependentsExist");
    assert!(
        message.contains("Certificate capi-system/serving"),
        "{message}"
    );
    let deployment = "deployment/cert-manager-controller-manager";
    assert!(world.get(deployment).is_some());
    world.kubectl(&["delete", CERTIFICATES, "serving"]);
    world.kubectl(&["wait", "--for=delete", CERT_MANAGER, "--timeout=2m"]);
    assert_eq!(world.get(deployment), None);
    let gone = [&role[..], &["--ignore-not-found"]].concat();
    assert_eq!(world.kubectl(&gone), "");
}

/// A small one: it has a Role where its pods agree on who leads.
fn release(version: &str) -> Value {
    let mut map = manifests("addon", "cert-manager", version, "Certificate");
    let components = map["data"]["components"].as_str().unwrap_or_default();
    let components = components.replace("cert-manager.example.com", "cert-manager.io");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "cert-manager-leader-election", "namespace": "kube-system"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}],
    });
    map["data"]["components"] = json!(format!("{components}\n---\n{role}"));
    map
}
