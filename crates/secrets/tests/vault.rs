//! VaultSecrets before a real server of OpenBao, with the embedded API; and a ServiceAccount that logs in, with a real API server.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use api::secrets::{ADDRESS_ANNOTATION, CREDENTIALS_TYPE, REFRESH_ANNOTATION, VaultSecret};
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    events::v1::Event,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use reqwest::Method;
use serde_json::{Value, json};

const NAMESPACE: &str = "demo";
/// A value that stands nowhere but in the Secret.
const CANARY: &str = "canary-4f1d";

/// Waits for what comes by itself.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(seen) => assert!(begun.elapsed() < Duration::from_mins(1), "{what}: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A server of OpenBao, in memory.
struct Bao {
    server: lab::OpenBao,
    address: String,
    client: reqwest::Client,
}

impl Bao {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = lab::OpenBao::start(&lab::progress::Silent).unwrap();
        let bao = Self {
            address: server.address.clone(),
            server,
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
        };
        let mounted = json!({"type": "kv", "options": {"version": "1"}});
        bao.post("sys/mounts/old", &mounted).await;
        bao.policy("reader", "secret/data/infra/*").await;
        bao.post("sys/auth/approle", &json!({"type": "approle"}))
            .await;
        bao
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Value {
        let request = self
            .client
            .request(method, format!("{}/v1/{path}", self.address))
            .header("X-Vault-Token", lab::OpenBao::TOKEN);
        let response = request.json(body).send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        self.ask(Method::POST, path, body).await
    }

    async fn put(&self, path: &str, fields: Value) {
        let body = json!({"data": fields});
        self.post(&format!("secret/data/{path}"), &body).await;
    }

    async fn policy(&self, name: &str, path: &str) {
        let policy = format!("path \"{path}\" {{ capabilities = [\"read\"] }}");
        let body = json!({"policy": policy});
        self.post(&format!("sys/policies/acl/{name}"), &body).await;
    }

    /// The id of a role that may read below infra, and a secret id.
    async fn app_role(&self) -> (String, String) {
        let role = "auth/approle/role/infra";
        let settings = json!({"token_policies": "reader", "token_ttl": "1h"});
        self.post(role, &settings).await;
        let id = format!("{role}/role-id");
        let id = self.ask(Method::GET, &id, &json!({})).await;
        let secret = self.post(&format!("{role}/secret-id"), &json!({})).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (
            text(&id["data"]["role_id"]),
            text(&secret["data"]["secret_id"]),
        )
    }

    /// How many tokens there are.
    async fn tokens(&self) -> usize {
        let path = "auth/token/accessors?list=true";
        let listed = self.ask(Method::GET, path, &json!({})).await;
        listed["data"]["keys"].as_array().unwrap().len()
    }
}

/// An API with the controller of VaultSecrets.
struct Place {
    client: Client,
    shutdown: Shutdown,
    _server: Option<kapi::Server>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

impl Place {
    /// With the operator as the second client.
    async fn of((client, operator): (Client, Client), server: Option<kapi::Server>) -> Self {
        let shutdown = Shutdown::default();
        let settings = Settings {
            namespace: None,
            concurrency: 4,
            metrics: Metrics::default(),
            shutdown: shutdown.clone(),
        };
        let mut manager = Manager::new(operator, settings);
        let own = secrets::Options {
            loopback: true,
            namespace: "default".to_owned(),
        };
        secrets::operate(&mut manager, own);
        tokio::spawn(manager.run());
        let namespaces = Api::<Namespace>::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        let made = namespaces.create(&PostParams::default(), &namespace).await;
        made.unwrap();
        Self {
            client,
            shutdown,
            _server: server,
        }
    }

    async fn embedded() -> Self {
        let definitions = api::secrets::definitions();
        let server = kapi::Server::in_memory(&definitions).await.unwrap();
        let client = Client::new(server.router(), "default");
        Self::of((client.clone(), client), Some(server)).await
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn secret(&self, name: &str, kind: &str, key: &str, value: &str) {
        let secret = json!({"metadata": {"name": name}, "type": kind, "stringData": {key: value}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let api = self.api::<Secret>();
        api.create(&PostParams::default(), &secret).await.unwrap();
    }

    /// A Secret with credentials for a server.
    async fn credentials(&self, name: &str, (key, value): (&str, &str), bao: &Bao) {
        let secret = json!({
            "metadata": {"name": name, "annotations": {ADDRESS_ANNOTATION: bao.address}},
            "type": CREDENTIALS_TYPE, "stringData": {key: value},
        });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let api = self.api::<Secret>();
        api.create(&PostParams::default(), &secret).await.unwrap();
    }

    async fn make(&self, name: &str, spec: Value) {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        let object: VaultSecret = serde_json::from_value(object).unwrap();
        let made = self.api::<VaultSecret>();
        made.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Has it read anew.
    async fn refresh(&self, name: &str) {
        let now = format!("{:?}", Instant::now());
        let patch = json!({"metadata": {"annotations": {REFRESH_ANNOTATION: now}}});
        let api = self.api::<VaultSecret>();
        let patched = api
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.unwrap();
    }

    /// Waits until its conditions say this, as `Ready=True InVault`.
    async fn says(&self, name: &str, expected: &str) -> VaultSecret {
        let api = self.api::<VaultSecret>();
        until(expected, async || {
            let object = api.get(name).await.unwrap();
            let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
            let said = conditions
                .any(|it| format!("{}={} {}", it.type_, it.status, it.reason) == expected);
            if said {
                Ok(object)
            } else {
                Err(format!("{name}: {:#?}", object.status))
            }
        })
        .await
    }

    async fn value(&self, secret: &str, key: &str) -> Option<String> {
        let secret = self.api::<Secret>().get_opt(secret).await.unwrap()?;
        let bytes = secret.data?.remove(key)?;
        Some(String::from_utf8(bytes.0).unwrap())
    }

    async fn becomes(&self, (secret, key): (&str, &str), expected: &str) {
        until(secret, async || match self.value(secret, key).await {
            Some(value) if value == expected => Ok(()),
            value => Err(format!("{key} is {value:?}")),
        })
        .await;
    }

    async fn told(&self, reason: &str) {
        let api = self.api::<Event>();
        until(reason, async || {
            let events = api.list(&ListParams::default()).await.unwrap();
            let mut reasons = events.items.iter().filter_map(|it| it.reason.as_deref());
            if reasons.any(|it| it == reason) {
                Ok(())
            } else {
                Err("no such Event".to_owned())
            }
        })
        .await;
    }

    /// Nothing but the Secret holds the value.
    async fn keeps_quiet(&self) {
        let all = ListParams::default();
        let objects = self.api::<VaultSecret>().list(&all).await.unwrap();
        let events = self.api::<Event>().list(&all).await.unwrap();
        let told = json!([objects.items, events.items]).to_string();
        assert!(!told.contains("canary"), "{told}");
    }
}

fn by_role(bao: &Bao, role: &str, path: &str) -> Value {
    let auth = json!({"appRole": {"roleId": role, "secretIdSecretRef": {"name": "role"}}});
    json!({"vault": {"address": bao.address, "auth": auth}, "path": path})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_follows_vault_and_outlives_it() {
    let bao = Bao::start().await;
    let place = Place::embedded().await;
    let (role, secret_id) = bao.app_role().await;
    let first = json!({"user": "a", "password": CANARY});
    bao.put("infra/openstack", first).await;
    let spec = by_role(&bao, &role, "infra/openstack");
    place.make("openstack", spec).await;
    // Nothing is there to log in with.
    let at = place.says("openstack", "Ready=False CredentialsMissing");
    let told = format!("{:?}", at.await.status);
    assert!(told.contains("secretIdSecretRef: Secret role"), "{told}");
    place
        .credentials("role", ("secretId", &secret_id), &bao)
        .await;
    let ready = place.says("openstack", "Ready=True InVault").await;
    assert_eq!(ready.status.unwrap().version, Some(1));
    assert_eq!(place.value("openstack", "password").await.unwrap(), CANARY);

    // Another value, a field less, one more.
    let second = json!({"password": "canary-2", "port": 5000});
    bao.put("infra/openstack", second).await;
    place.refresh("openstack").await;
    place.becomes(("openstack", "password"), "canary-2").await;
    assert_eq!(place.value("openstack", "user").await, None);
    assert_eq!(place.value("openstack", "port").await.unwrap(), "5000");

    // Another that logs in alike shares the token, and what does not change is not written.
    let tokens = bao.tokens().await;
    let secrets = place.api::<Secret>();
    let before = secrets.get("openstack").await.unwrap();
    place.refresh("openstack").await;
    let spec = by_role(&bao, &role, "infra/openstack");
    place.make("twin", spec).await;
    place.says("twin", "Ready=True InVault").await;
    let after = secrets.get("openstack").await.unwrap();
    assert_eq!(before.resource_version(), after.resource_version());
    assert_eq!(tokens, bao.tokens().await);

    // Sealed: what was read last stays, and is told to be old.
    bao.post("sys/seal", &json!({})).await;
    place.refresh("openstack").await;
    place.says("openstack", "Stale=True VaultSealed").await;
    place.says("openstack", "Ready=True VaultSealed").await;
    let kept = place.value("openstack", "password").await;
    assert_eq!(kept.as_deref(), Some("canary-2"));
    bao.post("sys/unseal", &json!({"key": bao.server.unseal}))
        .await;
    place.says("openstack", "Stale=False Read").await;

    // Gone: the same.
    drop(bao);
    place.refresh("openstack").await;
    place.says("openstack", "Stale=True VaultUnreachable").await;
    place.says("openstack", "Ready=True VaultUnreachable").await;
    let kept = place.value("openstack", "password").await;
    assert_eq!(kept.as_deref(), Some("canary-2"));
    for reason in [
        "CredentialsMissing",
        "SecretWritten",
        "VaultSealed",
        "VaultRead",
        "VaultUnreachable",
    ] {
        place.told(reason).await;
    }
    place.keeps_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_told_and_what_is_not_ours_stays() {
    let bao = Bao::start().await;
    let place = Place::embedded().await;
    let (role, secret_id) = bao.app_role().await;
    place
        .credentials("role", ("secretId", &secret_id), &bao)
        .await;
    place
        .secret("opaque", "Opaque", "secretId", &secret_id)
        .await;
    place.secret("there", "Opaque", "a", "mine").await;
    // For another server.
    place
        .secret("elsewhere", CREDENTIALS_TYPE, "secretId", &secret_id)
        .await;
    bao.put("infra/a", json!({"a": CANARY})).await;
    bao.put("other/a", json!({"a": CANARY})).await;
    let with = |pointer: &str, value: Value| {
        let mut spec = by_role(&bao, &role, "infra/a");
        let (above, key) = pointer.rsplit_once('/').unwrap();
        spec.pointer_mut(above).unwrap()[key] = value;
        spec
    };
    let credential = "/vault/auth/appRole/secretIdSecretRef/name";
    let plain = json!("http://vault.example.org:8200");
    for (name, spec, expected) in [
        (
            "nothing",
            with("/path", json!("infra/b")),
            "Ready=False NotInVault",
        ),
        (
            "forbidden",
            with("/path", json!("other/a")),
            "Ready=False VaultDenied",
        ),
        (
            "field",
            with("/keys", json!({"B": "b"})),
            "Ready=False NotInVault",
        ),
        ("old", with("/version", json!(7)), "Ready=False NotInVault"),
        (
            "there",
            with("/path", json!("infra/a")),
            "Ready=False SecretTaken",
        ),
        (
            "often",
            with("/refreshEvery", json!("1s")),
            "Stalled=True InvalidSpec",
        ),
        (
            "other-type",
            with(credential, json!("opaque")),
            "Ready=False CredentialsMissing",
        ),
        (
            "other-server",
            with(credential, json!("elsewhere")),
            "Ready=False CredentialsMissing",
        ),
        (
            "of-windlass",
            with("/secret", json!({"name": "first-kubeconfig"})),
            "Stalled=True InvalidSpec",
        ),
        (
            "nobody",
            with("/vault/auth/appRole/roleId", json!("nobody")),
            "Ready=False VaultDenied",
        ),
        (
            "plain",
            with("/vault/address", plain),
            "Stalled=True InvalidSpec",
        ),
        (
            "renamed",
            with("/secret", json!({"name": "made"})),
            "Ready=True InVault",
        ),
    ] {
        place.make(name, spec).await;
        place.says(name, expected).await;
    }
    assert_eq!(place.value("there", "a").await.unwrap(), "mine");
    assert_eq!(place.value("made", "a").await.unwrap(), CANARY);
    assert_eq!(place.value("renamed", "a").await, None);

    // What a path refuses is the same for every token: they are not replaced again and again.
    place.refresh("forbidden").await;
    let tokens = bao.tokens().await;
    for _ in 0..3 {
        place.refresh("forbidden").await;
        place.says("forbidden", "Ready=False VaultDenied").await;
    }
    place.refresh("nothing").await;
    place.says("nothing", "Ready=False NotInVault").await;
    assert_eq!(bao.tokens().await, tokens);

    // What was forbidden is read as soon as it may be.
    bao.policy("reader", "secret/data/*").await;
    place.refresh("forbidden").await;
    place.says("forbidden", "Ready=True InVault").await;
    // What was deleted there is told, and taken from nobody.
    bao.ask(Method::DELETE, "secret/data/infra/a", &json!({}))
        .await;
    place.refresh("renamed").await;
    place.says("renamed", "Ready=False NotInVault").await;
    assert_eq!(place.value("made", "a").await.unwrap(), CANARY);
    place.keeps_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_renewed_and_replaced() {
    let bao = Bao::start().await;
    let place = Place::embedded().await;
    bao.post("old/infra/a", &json!({"a": CANARY})).await;
    bao.policy("old", "old/*").await;
    let wanted = json!({"ttl": "16s", "renewable": true, "policies": ["old"]});
    let made = bao.post("auth/token/create", &wanted).await;
    let token = made["auth"]["client_token"].as_str().unwrap();
    place.credentials("token", ("token", token), &bao).await;
    // An engine of version 1.
    let spec = json!({
        "vault": {"address": bao.address, "auth": {"token": {"secretRef": {"name": "token"}}}},
        "mount": "old", "engine": "KvV1", "path": "infra/a",
    });
    place.make("by-token", spec).await;
    place.says("by-token", "Ready=True InVault").await;
    assert_eq!(place.value("by-token", "a").await.unwrap(), CANARY);
    until("the token to be renewed", async || {
        let accessor = json!({"accessor": made["auth"]["accessor"]});
        let looked = bao.post("auth/token/lookup-accessor", &accessor).await;
        if looked["data"]["last_renewal"].is_null() {
            Err(looked.to_string())
        } else {
            Ok(())
        }
    })
    .await;

    // What is no key/value engine tells of tokens, and makes users.
    for (name, mount, path) in [
        ("own-token", "auth/token", "lookup-self"),
        ("holes", "cubbyhole", "a"),
    ] {
        let spec = json!({
            "vault": {"address": bao.address, "auth": {"token": {"secretRef": {"name": "token"}}}},
            "mount": mount, "engine": "KvV1", "path": path,
        });
        place.make(name, spec).await;
        let said = place.says(name, "Ready=False VaultRefused").await;
        let said = format!("{:?}", said.status);
        assert!(said.contains("of Vault itself"), "{said}");
        assert_eq!(place.api::<Secret>().get_opt(name).await.unwrap(), None);
    }

    // A token that was revoked is replaced by the role's next.
    let (role, secret_id) = bao.app_role().await;
    place
        .credentials("role", ("secretId", &secret_id), &bao)
        .await;
    bao.put("infra/b", json!({"b": "1"})).await;
    let spec = by_role(&bao, &role, "infra/b");
    place.make("by-role", spec).await;
    place.says("by-role", "Ready=True InVault").await;
    bao.post("sys/leases/revoke-prefix/auth/approle", &json!({}))
        .await;
    bao.put("infra/b", json!({"b": "2"})).await;
    place.refresh("by-role").await;
    place.becomes(("by-role", "b"), "2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_logs_in() {
    let bao = Bao::start().await;
    let plane = lab::ControlPlane::start(lab::Kubernetes::Newest, &lab::progress::Silent).unwrap();
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/manifests");
    for name in ["crds", "vault-crds", "windlass", "vault-rights"] {
        let file = manifests.join(name).with_extension("yaml");
        plane.define(&file).unwrap();
    }
    plane.await_definitions().unwrap();
    let config = controller::kubeconfig::own(&plane.kubeconfig(), None)
        .await
        .unwrap();
    let server = config.cluster_url.to_string();
    let authority = config.root_cert.clone().unwrap();
    let kubectl = |arguments: &[&str]| {
        let mut kubectl = plane.kubectl();
        let said = kubectl.args(arguments).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    };
    // With the rights of an installation, and no more.
    let operator = kubectl(&["-n", "windlass-system", "create", "token", "windlass"]);
    let mut operated = config.clone();
    operated.auth_info = serde_json::from_value(json!({"token": operator})).unwrap();
    let clients = [config, operated].map(|config| Client::try_from(config).unwrap());
    let place = Place::of(clients.into(), None).await;

    // OpenBao asks the API server whose tokens it is shown, by one of its own.
    kubectl(&["-n", "default", "create", "serviceaccount", "bao"]);
    let reviewer = ["create", "clusterrolebinding", "bao"];
    let rights = [
        "--clusterrole=system:auth-delegator",
        "--serviceaccount=default:bao",
    ];
    kubectl(&[reviewer.as_slice(), &rights].concat());
    let token = kubectl(&["-n", "default", "create", "token", "bao"]);
    let pem = authority.iter().map(|der| {
        use std::fmt::Write as _;
        let text = k8s_openapi::ByteString(der.clone());
        let text = json!(text).as_str().unwrap().to_owned();
        let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
        for line in text.as_bytes().chunks(64) {
            writeln!(pem, "{}", String::from_utf8_lossy(line)).unwrap();
        }
        pem + "-----END CERTIFICATE-----\n"
    });
    bao.post("sys/auth/kubernetes", &json!({"type": "kubernetes"}))
        .await;
    let settings = json!({
        "kubernetes_host": server, "kubernetes_ca_cert": pem.collect::<String>(),
        "token_reviewer_jwt": token, "disable_local_ca_jwt": true,
    });
    bao.post("auth/kubernetes/config", &settings).await;
    let role = json!({
        "bound_service_account_names": "windlass-vault", "bound_service_account_namespaces": NAMESPACE,
        "audience": "vault", "token_policies": "reader", "token_ttl": "1h",
    });
    bao.post("auth/kubernetes/role/infra", &role).await;
    bao.put("infra/a", json!({"a": CANARY})).await;
    let spec = json!({
        "vault": {"address": bao.address, "auth": {"kubernetes": {"role": "infra"}}},
        "path": "infra/a",
    });
    place.make("a", spec).await;
    let none = place.says("a", "Ready=False VaultDenied").await;
    let told = format!("{:?}", none.status);
    assert!(told.contains("make the ServiceAccount"), "{told}");
    kubectl(&[
        "-n",
        NAMESPACE,
        "create",
        "serviceaccount",
        "windlass-vault",
    ]);
    // Its tokens are for no server that it does not name.
    let none = until("the account to be read", async || {
        let read = place.says("a", "Ready=False VaultDenied").await;
        let told = format!("{:?}", read.status);
        if told.contains(ADDRESS_ANNOTATION) {
            Ok(told)
        } else {
            Err(told)
        }
    });
    none.await;
    let address = format!("{ADDRESS_ANNOTATION}={}", bao.address);
    let annotate = ["annotate", "serviceaccount", "windlass-vault", &address];
    kubectl(&[&["-n", NAMESPACE], &annotate[..]].concat());
    // Of no other account, whatever it may do.
    let operator = "--as=system:serviceaccount:windlass-system:windlass";
    let mut other = plane.kubectl();
    let other = other.args([
        "-n",
        "windlass-system",
        "create",
        "token",
        "windlass",
        operator,
    ]);
    let said = String::from_utf8(other.output().unwrap().stderr).unwrap();
    assert!(said.contains("forbidden"), "{said}");
    place.says("a", "Ready=True InVault").await;
    assert_eq!(place.value("a", "a").await.unwrap(), CANARY);
    // With its VaultSecret the Secret goes, as everything that is owned.
    let owners = place.api::<Secret>().get("a").await.unwrap();
    assert_eq!(owners.owner_references()[0].name, "a");
    place.keeps_quiet().await;
}
