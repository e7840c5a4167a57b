use serde_json::{Value, json};

use super::*;

fn pems() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// As kubeadm writes it.
fn admin() -> Value {
    let (certificate, key) = pems();
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": "cluster.local", "cluster": {
            "server": "https://10.0.0.1:6443",
            "certificate-authority-data": encode(&certificate),
        }}],
        "contexts": [{"name": "admin@cluster.local", "context": {"cluster": "cluster.local", "user": "admin"}}],
        "current-context": "admin@cluster.local",
        "users": [{"name": "admin", "user": {
            "client-certificate-data": encode(&certificate),
            "client-key-data": encode(&key),
        }}],
    })
}

fn read(document: &Value) -> Result<Foreign, Refusal> {
    Foreign::read(document.to_string().as_bytes())
}

fn with(pointer: &str, field: &str, value: Value) -> Value {
    let mut document = admin();
    document.pointer_mut(pointer).unwrap()[field] = value;
    document
}

#[test]
fn every_field_that_runs_reads_or_diverts_is_refused_by_its_name() {
    for (part, field, value) in [
        (
            "user",
            "exec",
            json!({"command": "touch", "args": ["/tmp/x"]}),
        ),
        (
            "user",
            "auth-provider",
            json!({"name": "gcp", "config": {"cmd-path": "touch"}}),
        ),
        ("user", "tokenFile", json!("/etc/shadow")),
        ("user", "client-certificate", json!("/etc/passwd")),
        ("user", "client-key", json!("/etc/passwd")),
        ("user", "as", json!("system:admin")),
        ("user", "as-groups", json!(["system:masters"])),
        ("user", "as-uid", json!("0")),
        ("user", "as-user-extra", json!({"a": ["b"]})),
        ("user", "username", json!("root")),
        ("user", "password", json!("toor")),
        ("user", "something-new", json!(1)),
        ("cluster", "certificate-authority", json!("/etc/passwd")),
        ("cluster", "proxy-url", json!("http://169.254.169.254")),
        ("cluster", "insecure-skip-tls-verify", json!(true)),
        ("context", "something-new", json!("x")),
    ] {
        let document = with(&format!("/{part}s/0/{part}"), field, value);
        let refusal = read(&document).unwrap_err();
        assert_eq!(
            refusal.field,
            format!("{part}s[0].{part}.{field}"),
            "{refusal}"
        );
    }
    let refusal = read(&with("", "more", json!("x"))).unwrap_err();
    assert_eq!(refusal.field, "more");
    let refusal = read(&with("/users/0", "exec", json!({"command": "x"}))).unwrap_err();
    assert_eq!(refusal.field, "users[0].exec");
}

#[test]
fn values_that_are_not_what_they_should_be_are_refused() {
    for (pointer, field, value) in [
        ("/clusters/0/cluster", "server", json!("http://10.0.0.1")),
        (
            "/clusters/0/cluster",
            "server",
            json!("https://user:secret@10.0.0.1"),
        ),
        ("/clusters/0/cluster", "server", json!("https://")),
        (
            "/clusters/0/cluster",
            "server",
            json!("https://10.0.0.1:99999"),
        ),
        (
            "/clusters/0/cluster",
            "server",
            json!("https://10.0.0.1?x=1"),
        ),
        ("/clusters/0/cluster", "server", json!("file:///etc/passwd")),
        ("/clusters/0/cluster", "server", json!("https://{{ x }}")),
        ("/clusters/0/cluster", "server", Value::Null),
        ("/clusters/0/cluster", "tls-server-name", json!("a b\n")),
        (
            "/clusters/0/cluster",
            "certificate-authority-data",
            json!("no base64!"),
        ),
        (
            "/clusters/0/cluster",
            "certificate-authority-data",
            json!(encode("no PEM")),
        ),
        (
            "/clusters/0/cluster",
            "certificate-authority-data",
            json!(""),
        ),
        (
            "/users/0/user",
            "client-certificate-data",
            json!(encode("no PEM")),
        ),
        ("/users/0/user", "client-key-data", json!(encode("no PEM"))),
        ("/users/0/user", "token", json!("with\nline")),
        ("/contexts/0/context", "namespace", json!("../x")),
    ] {
        let refusal = read(&with(pointer, field, value.clone())).unwrap_err();
        assert!(refusal.field.ends_with(field), "{field} {value}: {refusal}");
        assert!(!refusal.to_string().contains("secret@"), "{refusal}");
    }
    let refusal = read(&with("/users/0/user", "token", json!("t"))).unwrap_err();
    assert_eq!(refusal.field, "users[0].user", "two ways to log in");
    let refusal = read(&with("", "current-context", json!("other"))).unwrap_err();
    assert_eq!(refusal.field, "current-context");
}

/// A few hundred bytes of aliases unfold to gigabytes.
#[test]
fn aliases_depth_and_size_are_bounded_before_anything_is_made_of_them() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let last = level - 1;
        let many = vec![format!("*a{last}"); 8].join(", ");
        bomb += &format!("a{level}: &a{level} [{many}]\n");
    }
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let long = " ".repeat(LIMIT + 1);
    let secret = "users: [{user: {token: hunter2}}]\n\tbroken: 'hunter2";
    for text in [
        bomb.as_str(),
        &deep,
        &long,
        secret,
        "\u{0}",
        "a: 1\n---\na: 2",
        "just text",
    ] {
        let refusal = Foreign::read(text.as_bytes()).unwrap_err();
        assert_eq!(refusal.field, "kubeconfig", "{refusal}");
        assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
    }
    assert_eq!(Foreign::read(b"\xff\xfe").unwrap_err().field, "kubeconfig");
}

#[test]
fn what_is_rebuilt_has_what_was_allowed_and_no_entry_beside_it() {
    let mut document = admin();
    let other = json!({"name": "other", "user": {"exec": {"command": "touch"}}});
    document["users"].as_array_mut().unwrap().push(other);
    document["extensions"] = json!([{"name": "x", "extension": {"command": "touch"}}]);
    let foreign = read(&document).unwrap();
    let text = foreign.document();
    let text = text.expose_secret();
    assert!(!text.contains("touch") && !text.contains("exec"), "{text}");
    let again: Value = serde_saphyr::from_str(text).unwrap();
    for pointer in [
        "/clusters/0/cluster/server",
        "/clusters/0/cluster/certificate-authority-data",
        "/users/0/user/client-certificate-data",
        "/users/0/user/client-key-data",
    ] {
        assert_eq!(
            again.pointer(pointer),
            document.pointer(pointer),
            "{pointer}"
        );
    }
    let foreign = foreign.at("fd00::1", 6443, "kubernetes");
    assert_eq!(foreign.server().to_string(), "https://[fd00::1]:6443");
    let again = Foreign::read(foreign.document().expose_secret().as_bytes()).unwrap();
    assert_eq!(again.server(), foreign.server());
    assert!(!format!("{again:?}").contains("PRIVATE KEY"), "{again:?}");
}

/// Numbers in any spelling and names that lead here are found out where they are resolved.
#[tokio::test]
async fn a_server_on_this_machine_or_its_link_is_not_connected_to() {
    for server in [
        "https://127.0.0.1:6443",
        "https://localhost:6443",
        "https://[::1]:6443",
        "https://0.0.0.0:6443",
        "https://169.254.169.254",
        "https://[fe80::1]",
        "https://[::ffff:127.0.0.1]:6443",
    ] {
        let foreign = read(&with("/clusters/0/cluster", "server", json!(server))).unwrap();
        let error = foreign.addresses().await.unwrap_err();
        assert!(
            matches!(error, ConnectError::Address { .. }),
            "{server}: {error}"
        );
    }
    for server in [
        "https://10.0.0.1:6443",
        "https://[fd00::1]:6443/k8s/clusters/c",
    ] {
        let foreign = read(&with("/clusters/0/cluster", "server", json!(server))).unwrap();
        assert_eq!(foreign.addresses().await.unwrap().len(), 1, "{server}");
        assert_eq!(foreign.server().to_string(), server);
    }
}
