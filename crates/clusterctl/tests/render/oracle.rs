//! clusterctl itself, over its own providers and ours, with random values. Only in a full run: it is built from source.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use clusterctl::{ImageOverrides, Provider, ProviderType, catalogue};
use lab::{
    Extent,
    programs::cluster_api::{ClusterApi, cluster_api},
    progress::Silent,
};
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, RngSeed, TestRng, TestRunner},
};
use serde_json::{Value, json};

use crate::{
    cases::{self, Case},
    golden,
    normal::normal,
};

/// clusterctl, where this run is a full one.
fn program() -> Option<ClusterApi> {
    (Extent::of_this_run() == Extent::Full).then(|| cluster_api(&Silent).unwrap())
}

#[test]
fn our_providers_are_rendered_as_clusterctl_does() {
    let Some(program) = program() else { return };
    for case in cases::made() {
        let theirs = generate(&program, &case).unwrap();
        golden::keep_or_compare(&case, &theirs);
        compare(&case, &theirs);
    }
}

#[test]
fn its_own_providers_are_rendered_as_clusterctl_does() {
    let Some(program) = program() else { return };
    let mut runner = runner();
    let (mut rendered, mut refused) = (0, 0);
    for version in ClusterApi::VERSIONS {
        for provided in ClusterApi::PROVIDERS {
            let release = program.repository.join(provided.label).join(version);
            let components = fs::read_to_string(release.join(provided.file)).unwrap();
            let names = variables(&components);
            for round in 0..4 {
                let case = Case {
                    name: format!("{} {version} {round}", provided.label),
                    provider: provider(provided.label),
                    version: version.to_owned(),
                    components: components.clone(),
                    values: draw(&mut runner, values(&names)),
                    namespace: draw(&mut runner, namespace()),
                    images: draw(&mut runner, images(provided.label)),
                };
                match (generate(&program, &case), case.render()) {
                    (Ok(theirs), _) => compare(&case, &theirs),
                    // Some values make texts into numbers.
                    (Err(theirs), Ok(_)) => {
                        panic!("{}: clusterctl refuses it: {theirs}", case.name)
                    }
                    (Err(_), Err(_)) => refused += 1,
                }
                rendered += 1;
            }
        }
    }
    assert!(
        refused * 4 < rendered,
        "{refused} of {rendered} are refused"
    );
}

#[test]
fn what_clusterctl_refuses_is_refused() {
    let Some(program) = program() else { return };
    for (case, _) in cases::refused() {
        assert!(case.render().is_err(), "{} is rendered", case.name);
        let theirs = generate(&program, &case);
        assert!(theirs.is_err(), "clusterctl renders {}", case.name);
    }
}

#[test]
fn scopes_differ_from_clusterctl_where_it_is_said() {
    let Some(program) = program() else { return };
    for (case, kind) in cases::scopes() {
        let ours = case.render().unwrap();
        let theirs = generate(&program, &case).unwrap();
        let in_theirs = theirs.iter().find(|object| object["kind"] == kind).unwrap();
        let in_ours = ours
            .objects()
            .iter()
            .find(|object| object.kind() == kind)
            .unwrap();
        let is_namespaced = |value: &Value| value["metadata"]["namespace"].is_string();
        assert_ne!(
            is_namespaced(in_theirs),
            is_namespaced(in_ours.value()),
            "{kind}"
        );
    }
}

#[test]
fn the_catalogue_is_clusterctls() {
    let Some(program) = program() else { return };
    let home = tempfile::tempdir().unwrap();
    let output = clusterctl(&program, home.path())
        .args(["config", "repositories", "-o", "yaml"])
        .output()
        .unwrap();
    let listed: Vec<BTreeMap<String, String>> = serde_saphyr::from_slice(&output.stdout).unwrap();
    let theirs: Vec<_> = listed
        .iter()
        .map(|row| {
            (
                row["ProviderType"].clone(),
                row["Name"].clone(),
                format!("{}{}", row["URL"], row["File"]),
            )
        })
        .collect();
    let ours: Vec<_> = catalogue()
        .iter()
        .map(|entry| {
            (
                entry.provider.provider_type().kind().to_owned(),
                entry.provider.name().to_owned(),
                entry.url.clone(),
            )
        })
        .collect();
    assert_eq!(ours, theirs);
}

#[test]
fn variables_are_put_in_as_clusterctl_does() {
    let Some(program) = program() else { return };
    let mut runner = runner();
    let inputs: Vec<(String, BTreeMap<String, String>)> = (0..20_000)
        .map(|_| draw(&mut runner, (template(), values(&NAMES.map(str::to_owned)))))
        .collect();
    let sent: Vec<Value> = inputs
        .iter()
        .map(|(template, values)| json!({"template": template, "values": values}))
        .collect();
    let mut child = Command::new(&program.substitute)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || serde_json::to_writer(stdin, &sent).unwrap());
    let answers: Vec<Value> = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(answers.len(), inputs.len());
    let mut filled = 0;
    for ((text, values), answer) in inputs.iter().zip(&answers) {
        let parsed = envsubst::Template::parse(text);
        let ours = parsed
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|template| {
                template
                    .substitute(|name| values.get(name).map(String::as_str))
                    .map_err(|error| error.to_string())
            });
        let told = json!({"template": text, "values": values, "clusterctl": answer});
        if let (Ok(template), Some(theirs)) = (&parsed, answer.get("variables")) {
            assert_eq!(json!(template.variables()), *theirs, "{told}");
        }
        if let Some(theirs) = answer.get("text") {
            filled += 1;
            assert_eq!(ours.as_deref(), Ok(theirs.as_str().unwrap()), "{told}");
        } else {
            // An error, a panic, or bytes that are no text.
            assert!(ours.is_err(), "{told}\nours: {ours:?}");
        }
    }
    assert!(filled > 2_000, "only {filled} could be filled in");
}

/// What clusterctl prints for a case.
fn generate(program: &ClusterApi, case: &Case) -> anyhow::Result<Vec<Value>> {
    let home = tempfile::tempdir()?;
    let file = case.provider.provider_type().components_file();
    let release = home
        .path()
        .join("repository")
        .join(case.provider.manifest_label())
        .join(&case.version);
    fs::create_dir_all(&release)?;
    fs::write(release.join(&file), &case.components)?;
    let (major, minor) = case
        .version
        .trim_start_matches('v')
        .split_once('.')
        .unwrap();
    let minor = minor.split('.').next().unwrap();
    let metadata = json!({
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
        "kind": "Metadata",
        "releaseSeries": [{"major": major.parse::<u32>()?, "minor": minor.parse::<u32>()?, "contract": "v1beta2"}],
    });
    fs::write(release.join("metadata.yaml"), metadata.to_string())?;
    let mut configuration = json!({
        "providers": [{
            "name": case.provider.name(),
            "type": case.provider.provider_type().kind(),
            "url": format!("file://{}", release.join(&file).display()),
        }],
        "overridesFolder": home.path().join("overrides"),
    });
    if !case.images.0.is_empty() {
        configuration["images"] = overrides(&case.images);
    }
    for (name, value) in &case.values {
        configuration[name] = json!(value);
    }
    let configured = home.path().join("clusterctl.yaml");
    fs::write(&configured, configuration.to_string())?;
    let flag = format!("--{}", case.provider.provider_type().word());
    let mut command = clusterctl(program, home.path());
    command
        .args(["generate", "provider", "--config"])
        .arg(&configured)
        .arg(flag)
        .arg(format!("{}:{}", case.provider.name(), case.version));
    if let Some(namespace) = &case.namespace {
        command.args(["--target-namespace", namespace]);
    }
    let output = command.output()?;
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! { max_depth: 200 },
    };
    let text = String::from_utf8(output.stdout)?;
    Ok(serde_saphyr::from_multiple_with_options(&text, options)?)
}

fn overrides(images: &ImageOverrides) -> Value {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    let layers = images.0.iter().map(|(key, layer)| {
        let layer = json!({"repository": of(&layer.repository), "name": of(&layer.name), "tag": of(&layer.tag)});
        (key.clone(), layer)
    });
    Value::Object(layers.collect())
}

/// Nothing of this machine's configuration, and no network.
fn clusterctl(program: &ClusterApi, home: &Path) -> Command {
    let mut command = Command::new(&program.clusterctl);
    command
        .env_clear()
        .env("HOME", home)
        .env("XDG_CONFIG_HOME", home)
        .env("GOPROXY", "off")
        .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
        .current_dir(home);
    command
}

fn compare(case: &Case, theirs: &[Value]) {
    let ours = case
        .render()
        .unwrap_or_else(|error| panic!("{}: {error}", case.name));
    golden::equal(
        &case.name,
        &normal(
            ours.into_objects()
                .into_iter()
                .map(clusterctl::Object::into_value),
        ),
        &normal(theirs.iter().cloned()),
    );
}

fn variables(components: &str) -> Vec<String> {
    let template = envsubst::Template::parse(components).unwrap();
    template
        .variables()
        .into_keys()
        .map(str::to_owned)
        .collect()
}

fn provider(label: &str) -> Provider {
    let mut types = ProviderType::ALL.into_iter().skip(1);
    types
        .find_map(|of| {
            let name = label.strip_prefix(of.word())?.strip_prefix('-')?;
            Provider::new(of, name).ok()
        })
        .unwrap_or_else(|| Provider::new(ProviderType::Core, label).unwrap())
}

/// The same cases each time.
fn runner() -> TestRunner {
    let config = Config {
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(17),
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(config, rng)
}

fn draw<T: std::fmt::Debug>(runner: &mut TestRunner, strategy: impl Strategy<Value = T>) -> T {
    strategy.new_tree(runner).unwrap().current()
}

/// A value for some of the names. Empty ones are left out: clusterctl cannot tell them from unset ones in its file.
fn values(names: &[String]) -> impl Strategy<Value = BTreeMap<String, String>> + use<> {
    let value = prop_oneof![
        Just("true".to_owned()),
        Just("false".to_owned()),
        "[a-z0-9:.]{1,8}",
        Just("ä-/*[x]".to_owned()),
        Just("-2".to_owned()),
        Just("3".to_owned()),
    ];
    let some = proptest::sample::subsequence(names.to_vec(), 0..=names.len());
    (some, proptest::collection::vec(value, names.len()))
        .prop_map(|(names, values)| names.into_iter().zip(values).collect())
}

fn namespace() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[a-z][a-z0-9-]{0,10}[a-z0-9]")
}

fn images(label: &'static str) -> impl Strategy<Value = ImageOverrides> {
    let part = || prop_oneof![Just(String::new()), "[a-z]{1,5}"];
    let layer = (part(), part(), part()).prop_map(|(repository, name, tag)| {
        let repository = if repository.is_empty() {
            repository
        } else {
            format!("{repository}.example/x")
        };
        [repository, name, tag]
    });
    proptest::collection::btree_map(
        prop_oneof![
            Just("all".to_owned()),
            Just(label.to_owned()),
            Just("other".to_owned())
        ],
        layer,
        0..3,
    )
    .prop_map(|layers| {
        let layers: Vec<_> = layers
            .iter()
            .map(|(key, [a, b, c])| (key.as_str(), [a.as_str(), b.as_str(), c.as_str()]))
            .collect();
        cases::overrides(&layers)
    })
}

const NAMES: [&str; 5] = ["A", "B", "LONG_NAME", "x1", "É"];

/// Pieces of templates in any order, so that most of what can be written wrongly is, and much is right.
fn template() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => proptest::sample::select(&["${A}", "${B:=", "}", "${LONG_NAME", "${x1^^}", "${É", "${A:-b}", "${ A }", "$${A}", "text"][..]).prop_map(str::to_owned),
        3 => proptest::sample::select(&["${#A}", "${A:1}", "${A:1:2}", "${B##*/}", "${B%[x]}", "${A/a/b}", "${A//", "${A/#t/y}", "${A/%e/z}", "${B#?}", "${A,}", "${A^}", "${A:${B}}"][..]).prop_map(str::to_owned),
        3 => proptest::sample::select(&["$", "{", "}", ":", "/", "\\", "#", "%", "=", "-", "+", "?", "^", ",", "*", "[", "]", " ", "\n", "\t", "é", "1", "-1", "a"][..]).prop_map(str::to_owned),
    ];
    let short = proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat());
    let operators = &[
        "^", "^^", ",", ",,", "#", "##", "%", "%%", ":", "/", "//", "/#", "/%", "=", ":=", ":-",
        ":?", ":+", "",
    ][..];
    let arguments = &[
        "", "a", "*", "?", "[a-z]", "[^x]", "\\*", "1", "-1", "0:2", "a/b", "/", "\\//x", "t/",
        "${B}", "${B:=x}", "a${B}c", "$$", "${B}/x", "*[", "**e", "t*",
    ][..];
    let whole = (
        proptest::sample::select(&NAMES[..]),
        proptest::sample::select(operators),
        proptest::sample::select(arguments),
    )
        .prop_map(|(name, operator, argument)| format!("a${{{name}{operator}{argument}}}z"));
    prop_oneof![short, whole]
}
