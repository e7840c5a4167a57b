//! A kubeconfig of somebody else, damaged: it is refused, or rebuilt with nothing in it but what is allowed.

use controller::kubeconfig::Foreign;
use secrecy::ExposeSecret as _;
use serde_json::Value;

/// The certificate is none, which nobody looks at before a connection.
const TOKEN: &str = "apiVersion: v1
kind: Config
preferences: {}
clusters:
- name: cluster.local
  cluster:
    server: https://10.0.0.1:6443/k8s/clusters/c
    tls-server-name: kubernetes
    certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=
contexts:
- name: admin
  context: {cluster: cluster.local, user: admin, namespace: demo}
current-context: admin
users:
- name: admin
  user: {token: a-b.c}
";

const CERTIFICATE: &str = r#"{"clusters": [{"name": "c", "cluster": {"server": "https://[fd00::1]",
  "certificate-authority-data": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="}}],
 "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c",
 "users": [{"name": "u", "user": {
  "client-certificate-data": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=",
  "client-key-data": "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1BPT0KLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo="}}]}"#;

/// What is refused, for damage to find its way to.
const REFUSED: &str = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1', certificate-authority: /etc/passwd, proxy-url: 'http://a',
  insecure-skip-tls-verify: true}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {exec: {command: touch, args: [/tmp/x]}, tokenFile: /etc/shadow, auth-provider: {name: gcp}, as: root}}]
";

const ALLOWED: [&str; 17] = [
    "apiVersion",
    "kind",
    "clusters",
    "cluster",
    "contexts",
    "context",
    "current-context",
    "users",
    "user",
    "name",
    "namespace",
    "server",
    "certificate-authority-data",
    "tls-server-name",
    "client-certificate-data",
    "client-key-data",
    "token",
];

#[test]
fn kubeconfigs_survive_fuzzing() {
    for whole in [TOKEN, CERTIFICATE] {
        Foreign::read(whole.as_bytes()).expect("one that is taken");
    }
    let corpus = [TOKEN, CERTIFICATE, REFUSED].map(str::as_bytes);
    fuzz::bytes("kubeconfig", &corpus, |bytes| {
        let foreign = match Foreign::read(bytes) {
            Ok(foreign) => foreign,
            Err(refusal) => {
                let said = refusal.to_string();
                assert!(said.len() < 2000, "{said}");
                assert!(said.chars().all(|c| !c.is_control()), "{said:?}");
                return;
            }
        };
        let rebuilt = foreign.document();
        let text = rebuilt.expose_secret();
        let document: Value = serde_saphyr::from_str(text).expect("YAML");
        only_allowed(&document);
        let server = document["clusters"][0]["cluster"]["server"].as_str();
        assert!(server.is_some_and(|server| server.starts_with("https://")));
        let again = Foreign::read(text.as_bytes()).expect("what was taken is taken again");
        assert_eq!(again.document().expose_secret(), text);
        assert_eq!(again.server(), foreign.server());
    });
}

fn only_allowed(value: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                assert!(ALLOWED.contains(&name.as_str()), "{name}");
                only_allowed(value);
            }
        }
        Value::Array(items) => items.iter().for_each(only_allowed),
        _ => {}
    }
}
