//! Releases over the network, from servers on loopback that are well or not.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::time::Duration;

use api::provider::{FetchConfig, Infrastructure, InfrastructureProvider, Provider};
use kube::{Api, Client, ResourceExt};
use providers::{
    fetch::{FetchError, Fetcher, Policy, Reach, Wanted, digest_of, login_of},
    names::{COMPONENTS_DIGEST, COMPONENTS_KEY, FETCHED_FROM, REFETCH, RELEASE_SERIES},
    source,
};
use registry::{Login, hex_of};
use releases::{Answer, Server};
use serde_json::{Value, json};

const METADATA: &str = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- {major: 2, minor: 1, contract: v1beta2}\n";
const COMPONENTS: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: example-system}\n";
const DIRECTORY: &str = "/org/example/releases/download/v2.1.0";

fn provider(url: &str, version: Option<&str>) -> InfrastructureProvider {
    fetched(
        version,
        FetchConfig {
            url: Some(url.to_owned()),
            ..FetchConfig::default()
        },
    )
}

/// One whose release is an artefact.
fn artefact(oci: &str, version: Option<&str>) -> InfrastructureProvider {
    fetched(
        version,
        FetchConfig {
            oci: Some(oci.to_owned()),
            ..FetchConfig::default()
        },
    )
}

fn fetched(version: Option<&str>, fetch_config: FetchConfig) -> InfrastructureProvider {
    let spec = api::provider::ProviderSpec {
        version: version.map(str::to_owned),
        fetch_config: Some(fetch_config),
        ..api::provider::ProviderSpec::default()
    };
    let mut provider = Provider::new("example-system", "example", spec);
    provider.metadata.uid = Some("u".to_owned());
    provider
}

fn wanted(provider: &Provider<Infrastructure>) -> Wanted {
    Wanted::of(provider, Reach::Named).unwrap()
}

/// One that reaches servers on loopback, and waits for none of them for long.
fn fetcher(server: &Server) -> Fetcher {
    Fetcher::new(Policy {
        addresses: vec!["127.0.0.1/32".parse().unwrap()],
        authorities: Some(server.authority().as_bytes().to_vec()),
        silence: Duration::from_secs(2),
        ..Policy::default()
    })
}

/// What becomes of a release whose components are answered like this.
async fn components(answer: Answer) -> Result<String, FetchError> {
    let server = Server::start(move |path| match path {
        path if path.ends_with("/metadata.yaml") => Answer::Whole(METADATA.into()),
        path if path.ends_with("/infrastructure-components.yaml") => answer.clone(),
        _ => Answer::Status(404),
    });
    let server = server.await.unwrap();
    let provider = provider(&server.url("/org/example/releases"), Some("v2.1.0"));
    let release = fetcher(&server).release(&wanted(&provider), None).await;
    release.map(|(_, files)| files.components)
}

#[tokio::test]
async fn a_release_is_brought_as_github_and_as_a_plain_server_lay_it_out() {
    let server = Server::start(|path| match path {
        "/org/example/releases/latest" => Answer::Led("/org/example/releases/tag/v2.1.0".into()),
        "/org/example/releases/download/v2.1.0/metadata.yaml" | "/files/v2.1.0/metadata.yaml" => {
            Answer::Whole(METADATA.into())
        }
        // As GitHub, whose files are elsewhere.
        "/org/example/releases/download/v2.1.0/infrastructure-components.yaml" => {
            Answer::Led("/elsewhere?signature=secret".into())
        }
        "/elsewhere?signature=secret" => Answer::Whole(COMPONENTS.into()),
        "/files/v2.1.0/components.yaml" => Answer::Packed(COMPONENTS.into()),
        _ => Answer::Status(404),
    });
    let server = server.await.unwrap();
    for (path, version) in [
        ("/org/example/releases", None),
        ("/org/example/releases", Some("v2.1.0")),
        ("/files", Some("v2.1.0")),
        ("/files/v2.1.0/components.yaml", None),
    ] {
        let provider = provider(&server.url(path), version);
        let release = fetcher(&server).release(&wanted(&provider), None).await;
        let (version, files) = release.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(version.to_string(), "v2.1.0", "{path}");
        assert_eq!(files.metadata, METADATA, "{path}");
        assert_eq!(files.components, COMPONENTS, "{path}");
    }
    let provider = provider(&server.url("/files"), None);
    let error = fetcher(&server).release(&wanted(&provider), None).await;
    assert!(matches!(error, Err(FetchError::NoVersion)), "{error:?}");
}

#[tokio::test]
async fn a_server_that_hangs_gives_half_or_too_much_is_given_up() {
    let large = vec![b'a'; usize::try_from(clusterctl::source::LARGEST).unwrap() + 1];
    let large = String::from_utf8(large).unwrap();
    let cases = [
        (
            Answer::Silence,
            "infrastructure-components.yaml is not answered in full",
        ),
        (
            Answer::Half(COMPONENTS.into()),
            "infrastructure-components.yaml is not answered in full",
        ),
        (Answer::Endless, "it has more than 33554432 bytes"),
        (Answer::Packed(large), "it has more than 33554432 bytes"),
        (
            Answer::Encoded("zstd".into()),
            "comes packed as \"zstd\", and gzip alone is known",
        ),
        (Answer::Status(503), "is answered by status 503"),
        (Answer::Status(404), "there is no https://"),
    ];
    for (answer, said) in cases {
        let told = format!("{answer:?}");
        let told = told.get(..40).unwrap_or(&told);
        match components(answer.clone()).await {
            Err(error) => {
                let error = controller::chain(&error);
                assert!(!said.is_empty() && error.contains(said), "{told}: {error}");
            }
            Ok(_) => assert!(said.is_empty(), "{told} was taken"),
        }
    }
}

#[tokio::test]
async fn a_redirect_leads_nowhere_that_an_address_may_not() {
    for (to, said) in [
        (
            "https://169.254.169.254/latest/meta-data",
            "is 169.254.169.254, which is a cloud's metadata service",
        ),
        (
            "https://[::ffff:169.254.169.254]/",
            "which is a cloud's metadata service",
        ),
        ("https://127.0.0.2/", "is 127.0.0.2, which is loopback"),
        ("https://0x7f.2/", "which is loopback"),
        ("https://10.0.0.1/", "is 10.0.0.1, which is private"),
        (
            "http://127.0.0.1/a?token=secret",
            "it leads to http://127.0.0.1/a, and redirects are followed by https alone",
        ),
        (
            "https://user:secret@127.0.0.1/",
            "it leads to https://127.0.0.1/, and redirects",
        ),
        (
            "/org/example/releases/download/v2.1.0/infrastructure-components.yaml",
            "it leads on more than 5 times",
        ),
    ] {
        let error = components(Answer::Led(to.into())).await.unwrap_err();
        let error = controller::chain(&error);
        assert!(error.contains(said), "{to}: {error}");
        assert!(!error.contains("secret"), "{to}: {error}");
    }
}

#[tokio::test]
async fn nobody_is_asked_at_an_address_that_is_not_allowed() {
    let server = Server::start(|_| Answer::Whole(METADATA.into()))
        .await
        .unwrap();
    let strict = Fetcher::new(Policy {
        authorities: Some(server.authority().as_bytes().to_vec()),
        ..Policy::default()
    });
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("https://{host}:{}/files", server.port());
        let error = strict
            .release(&wanted(&provider(&url, Some("v2.1.0"))), None)
            .await;
        assert!(
            matches!(error, Err(FetchError::Address { .. })),
            "{error:?}"
        );
    }
    assert_eq!(server.asked(), 0);
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_not_believed() {
    let server = Server::start(|_| Answer::Whole(METADATA.into()))
        .await
        .unwrap();
    let other = Server::start(|_| Answer::Status(404)).await.unwrap();
    let provider = provider(&server.url("/files"), Some("v2.1.0"));
    let error = fetcher(&other).release(&wanted(&provider), None).await;
    assert!(matches!(error, Err(FetchError::Answer(..))), "{error:?}");
    assert_eq!(server.asked(), 0);
}

/// The API that ConfigMaps are kept in, with the provider's namespace.
async fn embedded(data: &tempfile::TempDir) -> Client {
    let options = kapi::Options {
        data_dir: data.path().to_owned(),
        crds: Vec::new(),
        listen: None,
    };
    let server = kapi::Server::open(options).await.unwrap();
    let client = Client::new(server.router(), "default");
    let namespace = json!({"metadata": {"name": "example-system"}});
    Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone())
        .create(
            &kube::api::PostParams::default(),
            &serde_json::from_value(namespace).unwrap(),
        )
        .await
        .unwrap();
    client
}

async fn held(client: &Client, provider: &InfrastructureProvider) -> Option<source::Held> {
    let selector = source::selector(provider).unwrap();
    let namespace = provider.namespace().unwrap();
    let maps = source::list(client, &namespace, &selector).await.unwrap();
    let overlay = source::overlay(provider).unwrap();
    source::choose(&maps, None, &overlay).ok()
}

#[tokio::test]
async fn what_was_brought_is_kept_as_what_was_loaded() {
    let server = Server::start(|path| match path {
        path if path.ends_with("/metadata.yaml") => Answer::Whole(METADATA.into()),
        path if path.starts_with(DIRECTORY) => Answer::Whole(COMPONENTS.into()),
        _ => Answer::Status(404),
    });
    let server = server.await.unwrap();
    let data = tempfile::tempdir().unwrap();
    let client = embedded(&data).await;
    let provider = provider(&server.url("/org/example/releases"), Some("v2.1.0"));
    assert_eq!(held(&client, &provider).await, None);
    let (fetcher, wanted) = (fetcher(&server), wanted(&provider));
    let brought = fetcher.bring(&client, &provider, &wanted).await.unwrap();
    assert_eq!(brought.unwrap().to_string(), "v2.1.0");
    let held = held(&client, &provider).await.unwrap();
    assert_eq!(held.components, COMPONENTS);
    assert_eq!(held.components_digest(), digest_of(COMPONENTS));
    assert_eq!(held.config_map, "infrastructure-example-v2.1.0");
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(client, "example-system");
    let map = maps.get(&held.config_map).await.unwrap();
    assert_eq!(
        map.annotations()[FETCHED_FROM],
        server.url("/org/example/releases")
    );
    assert_eq!(map.owner_references().len(), 1);
}

#[tokio::test]
async fn what_is_not_the_release_is_not_kept_and_not_asked_for_at_once() {
    let server = Server::start(|path| match path {
        path if path.ends_with("/metadata.yaml") => Answer::Whole(METADATA.into()),
        _ => Answer::Whole(COMPONENTS.into()),
    });
    let server = server.await.unwrap();
    let data = tempfile::tempdir().unwrap();
    let client = embedded(&data).await;
    let fetcher = fetcher(&server);
    let mut provider = provider(&server.url("/org/example/releases"), Some("v2.1.0"));
    let pin = format!("sha256:{}", digest_of("other"));
    provider
        .annotations_mut()
        .insert(COMPONENTS_DIGEST.to_owned(), pin);
    let mut asked = Vec::new();
    for _ in 0..2 {
        let wanted = wanted(&provider);
        let failure = fetcher.bring(&client, &provider, &wanted).await.unwrap();
        let failure = failure.unwrap_err();
        let told = failure.problem.to_string();
        let begins = format!(
            "InfrastructureProvider spec.fetchConfig.url is {:?}: its components have the digest sha256:{}, and sha256:",
            server.url("/org/example/releases"),
            digest_of(COMPONENTS)
        );
        assert!(told.starts_with(&begins), "{told}");
        assert!(failure.pause() > Duration::ZERO);
        asked.push(server.asked());
    }
    assert_eq!(asked, [2, 2], "the second time nobody is asked");
    // Another wish is tried at once; metadata that does not have its version is refused.
    provider.spec.version = Some("v2.2.0".to_owned());
    provider.annotations_mut().clear();
    let failure = fetcher.bring(&client, &provider, &wanted(&provider)).await;
    let told = failure.unwrap().unwrap_err().problem.to_string();
    assert!(
        told.contains("v2.2.0/metadata.yaml is not taken: "),
        "{told}"
    );
    assert_eq!(server.asked(), 4);
    assert_eq!(held(&client, &provider).await, None);
}

/// As openssl made them, and cosign would.
const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE/cnloyVVB9IpjeaUkzFeV5TGqo5h\nLX69CuemFHSOyUr4ZpiBZmgFD2ydIcmn2kIGhb3SgrYjsU4qo4oS9Kvgrg==\n-----END PUBLIC KEY-----";
const SIGNATURE: &str = "MEYCIQDSugvYeaqlKfHDRjl0E8rm4Yr05hGQR0zF/Wu43selQgIhAIGoqnXliz0uiwrN8rnbBcjiXxXd11Ar1rXJEuGMpKyk";

#[tokio::test]
async fn components_are_signed_by_the_key_that_is_insisted_on_or_not_kept() {
    for (signature, expected) in [
        (Some(SIGNATURE), Ok(())),
        (None, Err("its components have no signature")),
        (Some("AAAA"), Err("the signature of its components is not")),
    ] {
        let server = Server::start(move |path| match path {
            path if path.ends_with("/metadata.yaml") => Answer::Whole(METADATA.into()),
            path if path.ends_with("/infrastructure-components.yaml") => {
                Answer::Whole(COMPONENTS.into())
            }
            path if path.ends_with("/infrastructure-components.yaml.sig") => match signature {
                Some(signature) => Answer::Whole(signature.into()),
                None => Answer::Status(404),
            },
            _ => Answer::Status(404),
        });
        let server = server.await.unwrap();
        let data = tempfile::tempdir().unwrap();
        let client = embedded(&data).await;
        let mut provider = provider(&server.url("/org/example/releases"), Some("v2.1.0"));
        provider
            .annotations_mut()
            .insert(COMPONENTS_KEY.to_owned(), KEY.to_owned());
        let wanted = wanted(&provider);
        let brought = fetcher(&server).bring(&client, &provider, &wanted).await;
        let brought = brought.unwrap();
        let held = held(&client, &provider).await;
        match expected {
            Ok(()) => {
                brought.unwrap();
                assert_eq!(held.unwrap().signature.as_deref(), signature);
            }
            Err(said) => {
                let told = brought.unwrap_err().problem.to_string();
                assert!(told.contains(said), "{told}");
                assert_eq!(held, None);
            }
        }
        assert_eq!(server.asked(), 3);
    }
    // In an artefact it is a file beside them.
    let files = |signature: &'static str| {
        [
            ("metadata.yaml", METADATA),
            ("components.yaml", COMPONENTS),
            ("components.yaml.sig", signature),
        ]
    };
    for (signature, is_right) in [(SIGNATURE, true), ("AAAA", false)] {
        let (manifest, blobs) = packed(&files(signature));
        let server = registry_of("v2.1.0", manifest, blobs).await;
        let at = format!("127.0.0.1:{}/providers/example", server.port());
        let mut provider = artefact(&at, Some("v2.1.0"));
        provider
            .annotations_mut()
            .insert(COMPONENTS_KEY.to_owned(), KEY.to_owned());
        let release = fetcher(&server).release(&wanted(&provider), None).await;
        assert_eq!(release.is_ok(), is_right, "{release:?}");
    }
}

#[tokio::test]
async fn a_server_that_wants_to_be_left_alone_is_asked_by_nobody() {
    for status in [429, 403] {
        let server = Server::start(move |_| Answer::Limited(status, 600));
        let server = server.await.unwrap();
        let data = tempfile::tempdir().unwrap();
        let client = embedded(&data).await;
        let fetcher = fetcher(&server);
        let url = server.url("/org/example/releases");
        let one = provider(&url, Some("v2.1.0"));
        let mut other = provider(&url, Some("v2.1.1"));
        other.metadata.name = Some("other".to_owned());
        for provider in [&one, &other, &one] {
            let failure = fetcher.bring(&client, provider, &wanted(provider)).await;
            let failure = failure.unwrap().unwrap_err();
            let told = failure.problem.to_string();
            assert!(told.contains("wants no more requests for "), "{told}");
            assert!(told.contains("windlass providers preload"), "{told}");
            assert!(failure.pause() > Duration::from_secs(500), "{told}");
        }
        assert_eq!(server.asked(), 1, "the first one was told for all");
    }
}

/// What a registry has of an artefact: its manifest, and its files by their digests.
fn packed(files: &[(&str, &str)]) -> (String, Vec<(String, String)>) {
    let blobs: Vec<_> = files
        .iter()
        .map(|(_, content)| (hex_of(content.as_bytes()), (*content).to_owned()))
        .collect();
    let layers: Vec<Value> = files
        .iter()
        .zip(&blobs)
        .map(|((title, content), (hex, _))| {
            json!({
                "mediaType": "application/vnd.test.file", "digest": format!("sha256:{hex}"), "size": content.len(),
                "annotations": {"org.opencontainers.image.title": title},
            })
        })
        .collect();
    let empty = json!({"mediaType": "application/vnd.oci.empty.v1+json", "digest": format!("sha256:{}", hex_of(b"{}")), "size": 2});
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.acme.config", "config": empty, "layers": layers,
    });
    (manifest.to_string(), blobs)
}

/// A registry that has an artefact under a reference, whose files it has elsewhere.
async fn registry_of(reference: &str, manifest: String, blobs: Vec<(String, String)>) -> Server {
    let at = format!("/v2/providers/example/manifests/{reference}");
    let server = Server::start(move |path| {
        if path == at {
            return Answer::Whole(manifest.clone());
        }
        if let Some(digest) = path.strip_prefix("/v2/providers/example/blobs/sha256:") {
            return Answer::Led(format!("/elsewhere/{digest}?signature=secret"));
        }
        let elsewhere = path.strip_prefix("/elsewhere/").unwrap_or_default();
        let hex = elsewhere.split('?').next().unwrap_or_default();
        let found = blobs.iter().find(|(of, _)| of == hex);
        found.map_or(Answer::Status(404), |(_, content)| {
            Answer::Whole(content.clone())
        })
    });
    server.await.unwrap()
}

#[tokio::test]
async fn an_artefact_is_brought_by_its_tag_its_digest_and_the_version() {
    let full = [
        ("infrastructure-example-v2.1.0-metadata.yaml", METADATA),
        ("infrastructure-example-v2.1.0-components.yaml", COMPONENTS),
        ("metadata.yaml", "of another"),
        ("components.yaml", "of another"),
    ];
    let typed = [
        ("metadata.yaml", METADATA),
        ("infrastructure-components.yaml", COMPONENTS),
        ("components.yaml", "of another"),
    ];
    let plain = [
        ("components.yaml", COMPONENTS),
        ("metadata.yaml", METADATA),
        ("README.md", "read me"),
    ];
    let digest = format!("sha256:{}", hex_of(packed(&full).0.as_bytes()));
    for (files, reference, named, version) in [
        (&full[..], "v2.1.0", ":v2.1.0", None),
        (&full[..], &*digest, &*format!("@{digest}"), None),
        (&typed[..], "v2.1.0", "", Some("v2.1.0")),
        (&plain[..], "stable", ":stable", Some("v2.1.0")),
    ] {
        let (manifest, blobs) = packed(files);
        let server = registry_of(reference, manifest, blobs).await;
        let at = format!("127.0.0.1:{}/providers/example{named}", server.port());
        let provider = artefact(&at, version);
        let release = fetcher(&server).release(&wanted(&provider), None).await;
        let (version, files) = release.unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(version.to_string(), "v2.1.0", "{at}");
        assert_eq!(files.metadata, METADATA, "{at}");
        assert_eq!(files.components, COMPONENTS, "{at}");
    }
}

#[tokio::test]
async fn what_is_no_release_in_a_registry_is_refused_with_a_reason() {
    let files = [("metadata.yaml", METADATA), ("components.yaml", COMPONENTS)];
    let good = packed(&files);
    let altered: Vec<_> = good
        .1
        .iter()
        .map(|(hex, content)| (hex.clone(), content.replace("example", "exbmple")))
        .collect();
    let index = json!({"schemaVersion": 2, "manifests": [{"digest": format!("sha256:{}", hex_of(b"")), "size": 1}]});
    let (named_otherwise, others) = packed(&[("metadata.yml", METADATA)]);
    let (of_another, blobs) = packed(&[
        ("metadata.yaml", &METADATA.replace("minor: 1", "minor: 9")),
        ("components.yaml", COMPONENTS),
    ]);
    for (manifest, blobs, said) in [
        (good.0.clone(), altered, "has the digest sha256:"),
        (index.to_string(), Vec::new(), "it is an index"),
        (
            named_otherwise,
            others,
            "the artefact has metadata.yml, and no infrastructure-example-v2.1.0-metadata.yaml, no metadata.yaml",
        ),
        (of_another, blobs, "is not taken"),
        ("{}".to_owned(), Vec::new(), "of a kind that is not used"),
        ("<html>".to_owned(), Vec::new(), "cannot be read"),
        (
            good.0.clone(),
            Vec::new(),
            "the registry has no metadata.yaml of",
        ),
    ] {
        let server = registry_of("v2.1.0", manifest, blobs).await;
        let at = format!("127.0.0.1:{}/providers/example:v2.1.0", server.port());
        let error = fetcher(&server)
            .release(&wanted(&artefact(&at, None)), None)
            .await
            .unwrap_err();
        let error = controller::chain(&error);
        assert!(error.contains(said), "{said}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn an_address_that_names_more_than_a_version_is_held_to() {
    let digest = format!("r.example/aws@sha256:{}", "a".repeat(64));
    for (oci, is_held_to) in [
        ("r.example/aws", false),
        ("r.example/aws:v2.1.0", false),
        ("r.example/aws:stable", true),
        (&*digest, true),
    ] {
        let provider = artefact(oci, Some("v2.1.0"));
        let only = providers::fetch::only_from(&provider);
        assert_eq!(only, is_held_to.then_some(oci));
    }
}

#[tokio::test]
async fn a_registry_without_tls_is_asked_where_its_address_was_let_in_alone() {
    let server = Server::start(|_| Answer::Status(404)).await.unwrap();
    for (host, allowed, is_refused) in [
        ("127.0.0.1", "127.0.0.1/32", false),
        ("127.0.0.1", "10.0.0.0/8", true),
        ("203.0.113.9", "127.0.0.1/32", true),
    ] {
        let fetcher = Fetcher::new(Policy {
            addresses: vec![allowed.parse().unwrap()],
            ..Policy::default()
        });
        let at = format!("http://{host}:{}/providers/example:v2.1.0", server.port());
        let release = fetcher.release(&wanted(&artefact(&at, None)), None).await;
        let error = release.unwrap_err();
        let refused = matches!(error, FetchError::Address { .. } | FetchError::Clear(_));
        assert_eq!(refused, is_refused, "{error}");
    }
    assert_eq!(server.asked(), 0, "it speaks TLS alone");
}

#[tokio::test]
async fn an_artefact_that_was_brought_is_kept_as_the_existing_operator_keeps_it() {
    let files = [("metadata.yaml", METADATA), ("components.yaml", COMPONENTS)];
    let (manifest, blobs) = packed(&files);
    let server = registry_of("v2.1.0", manifest, blobs).await;
    let data = tempfile::tempdir().unwrap();
    let client = embedded(&data).await;
    let at = format!("127.0.0.1:{}/providers/example:v2.1.0", server.port());
    let provider = artefact(&at, None);
    let (fetcher, wanted) = (fetcher(&server), wanted(&provider));
    let brought = fetcher.bring(&client, &provider, &wanted).await.unwrap();
    assert_eq!(brought.unwrap().to_string(), "v2.1.0");
    let held = held(&client, &provider).await.unwrap();
    assert_eq!(held.components, COMPONENTS);
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(client, "example-system");
    let map = maps.get(&held.config_map).await.unwrap();
    assert_eq!(map.labels()["provider.cluster.x-k8s.io/source"], "oci");
    assert_eq!(map.annotations()[FETCHED_FROM], at);
}

#[test]
fn who_asks_a_registry_stands_under_the_names_of_the_existing_operator() {
    let login = |given: &[(&str, &str)]| {
        login_of(|name| {
            let mut given = given.iter();
            let found = given.find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    };
    assert!(login(&[]).is_none());
    assert!(login(&[("OCI_USERNAME", "")]).is_none());
    let (user, password) = (("OCI_USERNAME", "u"), ("OCI_PASSWORD", "p"));
    let Some(Login::Password {
        user: one,
        password: two,
    }) = login(&[user, password])
    else {
        panic!("no password");
    };
    assert_eq!((one.as_str(), two.as_str()), ("u", "p"));
    let refresh = ("OCI_REFRESH_TOKEN", "r");
    assert!(matches!(login(&[user, refresh]), Some(Login::Refresh(token)) if token == "r"));
    let access = ("OCI_ACCESS_TOKEN", "a");
    assert!(matches!(login(&[user, refresh, access]), Some(Login::Access(token)) if token == "a"));
}

/// A server may mend what it has under the same version. What is held stands until somebody asks for it anew.
#[tokio::test]
async fn a_release_that_was_mended_is_brought_anew_on_command() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |path| match path {
        path if path.ends_with("/metadata.yaml") => Answer::Whole(METADATA.into()),
        path if path.starts_with(DIRECTORY) => {
            let before = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Answer::Whole(format!("{COMPONENTS}# {before}\n"))
        }
        _ => Answer::Status(404),
    });
    let server = server.await.unwrap();
    let data = tempfile::tempdir().unwrap();
    let client = embedded(&data).await;
    let fetcher = fetcher(&server);
    let mut provider = provider(&server.url("/org/example/releases"), Some("v2.1.0"));
    let stale = async |provider: &InfrastructureProvider| {
        let selector = source::selector(provider).unwrap();
        let maps = source::list(&client, "example-system", &selector).await;
        let held = held(&client, provider).await.unwrap();
        source::is_stale(&maps.unwrap(), &held, source::refetch(provider))
    };
    let bring = async |provider: &InfrastructureProvider| {
        let brought = fetcher.bring(&client, provider, &wanted(provider)).await;
        brought.unwrap().unwrap();
        held(&client, provider).await.unwrap()
    };
    let first = bring(&provider).await;
    assert!(!stale(&provider).await);
    for value in ["1", "2"] {
        provider
            .annotations_mut()
            .insert(REFETCH.to_owned(), value.to_owned());
        assert!(stale(&provider).await, "{value} was not answered yet");
        let anew = bring(&provider).await;
        assert_eq!(anew.config_map, first.config_map);
        assert_eq!(anew.components, format!("{COMPONENTS}# {value}\n"));
        assert_ne!(anew.digest(), first.digest());
        assert!(!stale(&provider).await, "{value} was answered");
    }
}

#[tokio::test]
async fn series_that_somebody_knows_better_make_a_release_fit() {
    let server = Server::start(|path| match path {
        path if path.ends_with("/metadata.yaml") => Answer::Whole(METADATA.into()),
        _ => Answer::Whole(COMPONENTS.into()),
    });
    let server = server.await.unwrap();
    let data = tempfile::tempdir().unwrap();
    let client = embedded(&data).await;
    let fetcher = fetcher(&server);
    let mut provider = provider(&server.url("/org/example/releases"), Some("v2.2.0"));
    let refused = fetcher.release(&wanted(&provider), None).await;
    assert!(
        matches!(refused, Err(FetchError::Metadata(..))),
        "{refused:?}"
    );
    provider
        .annotations_mut()
        .insert(RELEASE_SERIES.to_owned(), "2.2=v1beta1".to_owned());
    let brought = fetcher.bring(&client, &provider, &wanted(&provider)).await;
    assert_eq!(brought.unwrap().unwrap().to_string(), "v2.2.0");
    let held = held(&client, &provider).await.unwrap();
    assert_eq!(held.contract, "v1beta1");
}

#[tokio::test]
async fn a_registry_that_hangs_gives_half_or_too_much_is_given_up() {
    let files = [("metadata.yaml", METADATA), ("components.yaml", COMPONENTS)];
    let (manifest, _) = packed(&files);
    let half = |text: &str| Answer::Half(text.to_owned());
    for (of_manifest, of_blob, said) in [
        (Answer::Silence, None, "is not answered in full"),
        (half(&manifest), None, "is not answered in full"),
        (
            Answer::Endless,
            None,
            "its manifest is larger than 4096 KiB",
        ),
        (Answer::Status(503), None, "the registry does not give"),
        (
            Answer::Whole(manifest.clone()),
            Some(Answer::Silence),
            "is not answered in full",
        ),
        (
            Answer::Whole(manifest.clone()),
            Some(half(METADATA)),
            "is not answered in full",
        ),
        (
            Answer::Whole(manifest.clone()),
            Some(Answer::Endless),
            "is larger than 32768 KiB",
        ),
    ] {
        let told = format!("{of_manifest:?} {of_blob:?}");
        let server = Server::start(move |path| {
            if path.contains("/manifests/") {
                of_manifest.clone()
            } else {
                of_blob.clone().unwrap_or(Answer::Status(404))
            }
        });
        let server = server.await.unwrap();
        let at = format!("127.0.0.1:{}/providers/example:v2.1.0", server.port());
        let release = fetcher(&server)
            .release(&wanted(&artefact(&at, None)), None)
            .await;
        let error = controller::chain(&release.expect_err(&told));
        assert!(error.contains(said), "{told}: {error}");
    }
}
