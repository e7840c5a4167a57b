//! `windlass providers`: what it prints of a directory with a release, and what it refuses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, path::Path, process::Command};

use releases::{Answer, Server};
use tempfile::TempDir;

const COMPONENTS: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: boat-system}\n---\n\
    apiVersion: v1\nkind: Secret\nmetadata: {name: credentials, namespace: boat-system}\nstringData: {key: \"${BOAT_KEY}\", size: \"${BOAT_SIZE:=3}\"}\n---\n\
    apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: boat-controller-manager, namespace: boat-system}\nspec: {template: {spec: {containers: [{name: manager, image: \"r.example/boat:v1\"}]}}}\n";

const METADATA: &str = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries: [{major: 1, minor: 0, contract: v1beta2}]\n";

/// A directory with the releases v1.0.0 and v1.0.1.
fn releases() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for version in ["v1.0.0", "v1.0.1"] {
        let release = home.path().join("infrastructure-boat").join(version);
        fs::create_dir_all(&release).unwrap();
        fs::write(release.join("infrastructure-components.yaml"), COMPONENTS).unwrap();
        fs::write(release.join("metadata.yaml"), METADATA).unwrap();
    }
    home
}

/// Standard output, or standard error where it failed.
fn generate(home: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["providers", "generate", "--from"])
        .arg(home)
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        assert_eq!(text(output.stderr), "");
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
}

#[test]
fn a_release_is_printed_with_variables_of_the_environment_before_those_of_the_file() {
    let home = releases();
    let file = home.path().join("clusterctl.yaml");
    fs::write(&file, "BOAT_KEY: from the file\nBOAT_SIZE: 5\nimages: {all: {repository: mirror.example}}\nproviders: []\n").unwrap();
    let file = file.to_str().unwrap();
    let boat = [
        "--infrastructure",
        "boat:v1.0.0",
        "--target-namespace",
        "harbour",
        "--config",
        file,
    ];
    let printed = generate(home.path(), &boat, &[("BOAT_KEY", "on"), ("BOAT_SIZE", "")]).unwrap();
    let objects = clusterctl::parse_manifest(&printed).unwrap();
    let told: Vec<_> = objects.iter().map(clusterctl::Object::title).collect();
    assert_eq!(
        told,
        [
            "Namespace harbour",
            "Secret harbour/credentials",
            "Deployment harbour/boat-controller-manager"
        ]
    );
    assert_eq!(
        objects[1].value()["stringData"],
        serde_json::json!({"key": "on", "size": "5"})
    );
    assert!(
        printed.contains("image: mirror.example/boat:v1"),
        "{printed}"
    );
    assert!(
        objects
            .iter()
            .all(|object| object.label(clusterctl::label::PROVIDER) == Some("infrastructure-boat"))
    );
}

#[test]
fn the_newest_release_is_described_without_any_variable() {
    let home = releases();
    let described = generate(
        home.path(),
        &["--infrastructure", "boat", "--describe"],
        &[],
    )
    .unwrap();
    assert_eq!(
        described,
        "provider   InfrastructureProvider boat\nversion    v1.0.1\ncontract   v1beta2\nnamespace  boat-system\nobjects    3\n\
         variables  2\n  BOAT_KEY\n  BOAT_SIZE\nimages     1\n  r.example/boat:v1\n"
    );
    let raw = generate(home.path(), &["--infrastructure", "boat", "--raw"], &[]).unwrap();
    assert!(raw.contains("${BOAT_SIZE:=3}"), "{raw}");
}

#[test]
fn what_is_missing_is_told() {
    let home = releases();
    let told = |arguments: &[&str]| generate(home.path(), arguments, &[]).unwrap_err();
    let cases = [
        (
            told(&["--infrastructure", "boat"]),
            "the variables BOAT_KEY are not set and have no default",
        ),
        (
            told(&["--infrastructure", "boat:v1.0.9"]),
            "InfrastructureProvider boat has v1.0.0, v1.0.1 there",
        ),
        (
            told(&["--infrastructure", "boat:1.0"]),
            "version \"1.0\" is not a semantic version",
        ),
        (
            told(&["--infrastructure", "Boat"]),
            "the name \"Boat\" of a provider",
        ),
        (
            told(&["--core", "boat"]),
            "cluster-api is the name of the CoreProvider",
        ),
        (
            told(&["--addon", "boat"]),
            "addon-boat cannot be listed, where the releases of AddonProvider boat would be",
        ),
        (
            told(&["--addon", "boat", "--core", "cluster-api"]),
            "cannot be used with",
        ),
        (told(&[]), "required arguments were not provided"),
    ];
    for (text, said) in cases {
        assert!(text.contains(said), "{text}");
    }
    let metadata = home.path().join("infrastructure-boat/v1.0.1/metadata.yaml");
    fs::write(&metadata, METADATA.replace("minor: 0", "minor: 9")).unwrap();
    let text = told(&["--infrastructure", "boat"]);
    assert!(
        text.contains("has no 1.0 for version v1.0.1, only 1.9"),
        "{text}"
    );
    fs::write(&metadata, METADATA.replace("v1beta2", "v1alpha4")).unwrap();
    let text = told(&["--infrastructure", "boat"]);
    assert!(
        text.contains("keeps contract v1alpha4, and v1beta2 and v1beta1 are known"),
        "{text}"
    );
}

#[test]
fn a_release_is_kept_as_the_existing_operator_keeps_it() {
    let home = releases();
    let preload = |provider: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args([
                "--namespace",
                "boats",
                "providers",
                "preload",
                "--print",
                "--infrastructure",
                provider,
                "--from",
            ])
            .arg(home.path())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stderr))
        }
    };
    let kept = preload("boat").unwrap();
    let first = kept.lines().next().unwrap();
    assert!(
        first.starts_with('#') && first.ends_with("kubectl create namespace boats"),
        "{first}"
    );
    let kept: serde_json::Value = serde_saphyr::from_str(&kept).unwrap();
    assert_eq!(kept["metadata"]["name"], "infrastructure-boat-v1.0.1");
    assert_eq!(kept["metadata"]["namespace"], "boats");
    let labels = &kept["metadata"]["labels"];
    assert_eq!(labels["provider.cluster.x-k8s.io/type"], "infrastructure");
    assert_eq!(labels["provider.cluster.x-k8s.io/version"], "v1.0.1");
    assert_eq!(kept["data"]["components"], COMPONENTS);
    assert!(preload("boat:v3.0.0").unwrap_err().contains("v3.0.0"));
}

/// What `preload --print` prints of what a server has, or says of it.
fn preloaded(arguments: &[&str], authority: &Path) -> Result<serde_json::Value, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["--namespace", "boats", "providers", "preload", "--print"])
        .args(arguments)
        .arg("--authorities")
        .arg(authority)
        .env_clear()
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if !output.status.success() {
        return Err(text(output.stderr));
    }
    Ok(serde_saphyr::from_str(&text(output.stdout)).unwrap())
}

/// Of a provider that no object names and nobody knows.
#[test]
fn a_release_is_kept_as_the_server_at_an_address_has_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(Server::start(|path| match path {
        "/boats/boat/releases/latest" => Answer::Led("/boats/boat/releases/tag/v1.0.1".into()),
        "/boats/boat/releases/download/v1.0.1/metadata.yaml" | "/files/v1.0.0/metadata.yaml" => {
            Answer::Whole(METADATA.into())
        }
        "/boats/boat/releases/download/v1.0.1/infrastructure-components.yaml"
        | "/files/v1.0.0/boat.yaml" => Answer::Whole(COMPONENTS.into()),
        _ => Answer::Status(404),
    }));
    let server = server.unwrap();
    let home = tempfile::tempdir().unwrap();
    let authority = home.path().join("authority.pem");
    fs::write(&authority, server.authority()).unwrap();
    let [github, plain, directories] =
        ["/boats/boat/releases", "/files/v1.0.0/boat.yaml", "/files"].map(|path| server.url(path));
    for (provider, url, version) in [
        ("boat", &github, "v1.0.1"),
        ("boat:v1.0.1", &github, "v1.0.1"),
        ("boat", &plain, "v1.0.0"),
    ] {
        let kept = preloaded(&["--infrastructure", provider, "--url", url], &authority).unwrap();
        let name = format!("infrastructure-boat-{version}");
        assert_eq!(kept["metadata"]["name"], name);
        assert_eq!(kept["metadata"]["namespace"], "boats");
        assert_eq!(kept["data"]["components"], COMPONENTS);
        assert_eq!(kept["data"]["metadata"], METADATA);
        let from = &kept["metadata"]["annotations"]["windlass.dev/fetched-from"];
        assert_eq!(from, url);
    }
    let asked = server.asked();
    for (provider, url, said) in [
        ("boat:v9.0.0", github.as_str(), "v9.0.0"),
        (
            "boat",
            directories.as_str(),
            "write it behind the name, as NAME:VERSION",
        ),
        (
            "boat",
            "http://127.0.0.1/a/b/releases",
            "--url is \"http://127.0.0.1/a/b/releases\": releases are at an address that begins with https://",
        ),
        (
            "boat",
            "https://169.254.169.254/a/b/releases",
            "169.254.169.254",
        ),
        (
            "boat",
            "https://bot:hush@127.0.0.1/a/b/releases",
            "--url is \"https://...@127.0.0.1/a/b/releases\": releases are at an address that holds no credentials",
        ),
    ] {
        let arguments = ["--infrastructure", provider, "--url", url];
        let error = preloaded(&arguments, &authority).unwrap_err();
        assert!(error.contains(said), "{url}: {error}");
        assert!(!error.contains("hush"), "{error}");
    }
    let oci = ["--infrastructure", "boat", "--oci", "bot:hush@127.0.0.1/a"];
    let error = preloaded(&oci, &authority).unwrap_err();
    assert!(error.contains("--oci ...@127.0.0.1/a"), "{error}");
    assert!(server.asked() > asked, "a version is looked for");
    let both = ["--infrastructure", "boat", "--url", &github, "--from", "."];
    let error = preloaded(&both, &authority).unwrap_err();
    assert!(error.contains("cannot be used with"), "{error}");
}

/// What `rights` prints of a file, or says of it.
fn rights(file: &Path) -> Result<Vec<clusterctl::Object>, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["providers", "rights", "--filename"])
        .arg(file)
        .env_clear()
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if !output.status.success() {
        return Err(text(output.stderr));
    }
    Ok(clusterctl::parse_manifest(&text(output.stdout)).unwrap())
}

#[test]
fn what_a_provider_takes_is_one_role_for_the_operator_and_the_rest_is_for_a_person() {
    let home = releases();
    let boat = ["--infrastructure", "boat:v1.0.0"];
    let mut printed = generate(home.path(), &boat, &[("BOAT_KEY", "on")]).unwrap();
    let labels = "labels: {cluster.x-k8s.io/provider: infrastructure-boat}";
    printed += &format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: boat, {labels}}}\n\
         rules: [{{apiGroups: [boat.example], resources: [\"*\"], verbs: [get]}}]\n"
    );
    let file = home.path().join("boat.yaml");
    fs::write(&file, &printed).unwrap();
    let [operator, by_hand] = rights(&file).unwrap().try_into().unwrap();
    assert_eq!(
        operator.title(),
        "ClusterRole windlass-provider-infrastructure-boat"
    );
    let label = operator.label("windlass.dev/aggregate-to-providers");
    assert_eq!(label, Some("true"));
    let text = operator.value().to_string();
    for name in [
        "boat-controller-manager",
        "credentials",
        "windlass-applied-infrastructure-boat",
    ] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(!text.contains('*'), "{text}");
    assert_eq!(by_hand.title(), "ClusterRole boat");
    assert_eq!(by_hand.value()["rules"][0]["resources"][0], "*");

    // A release makes its own wildcard none of the operator's.
    let sly = printed.replace(
        labels,
        &labels.replace('}', ", windlass.dev/aggregate-to-providers: \"true\"}"),
    );
    fs::write(&file, sly).unwrap();
    let refused = rights(&file).unwrap_err();
    assert!(refused.contains("would become the operator's"), "{refused}");
    fs::write(
        &file,
        COMPONENTS
            .replace("${BOAT_KEY}", "")
            .replace("${BOAT_SIZE:=3}", ""),
    )
    .unwrap();
    let refused = rights(&file).unwrap_err();
    assert!(
        refused.contains("has no label cluster.x-k8s.io/provider"),
        "{refused}"
    );
}

#[test]
fn a_broken_configuration_is_told_without_what_stands_in_it() {
    let home = releases();
    let file = home.path().join("clusterctl.yaml");
    for (text, said) in [
        (
            "KEY: hunter2\n- hunter2",
            "it is no mapping in YAML, at line",
        ),
        ("[hunter2]", "it is no mapping in YAML"),
        (
            "KEY: hunter2\nimages: {all: {path: x}}",
            "images: unknown field `path`",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let error = generate(
            home.path(),
            &[
                "--infrastructure",
                "boat",
                "--config",
                file.to_str().unwrap(),
            ],
            &[],
        )
        .unwrap_err();
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
