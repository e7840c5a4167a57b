//! Releases in a real API, by the real Helm: installed, changed, recovered after the death of a client, removed.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::{fs, path::Path, process::Stdio, time::Duration};

use helm::{
    Change, Helm, Place, Proven, State, lock,
    record::{history, outlines, recover},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Config, config::KubeConfigOptions};
use lab::{ControlPlane, Extent, Kubernetes, progress::Terminal};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_mins(2);
const PLACE: Place<'_> = Place {
    namespace: "default",
    release: "small",
};

#[test]
fn a_release_lives_and_survives_the_death_of_its_client() {
    let mut programs = vec![(3, lab::helm(&Terminal::default()).unwrap())];
    if Extent::of_this_run() == Extent::Full {
        programs.push((4, lab::helm_4(&Terminal::default()).unwrap()));
    }
    let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (major, program) in programs {
        runtime.block_on(story(major, &program, &plane.kubeconfig()));
    }
}

async fn story(major: u64, program: &Path, kubeconfig: &Path) {
    let client = client(kubeconfig).await;
    let helm = Helm::find(program, Some(kubeconfig)).await.unwrap();
    assert_eq!(helm.version().major, major);
    let chart = tempfile(PLAIN);
    let locks = tempfile::tempdir().unwrap();
    let held = lock::hold(locks.path(), PLACE).await.unwrap();
    let upgrade = async |values: Value| {
        let change = Change {
            chart: chart.path(),
            values: &values,
        };
        helm.upgrade(&held, change, DEADLINE).await
    };
    upgrade(json!({"word": "first"})).await.unwrap();
    assert_eq!(word(&client).await.unwrap(), "first");
    let records = history(&client, "default", "small").await.unwrap();
    assert_eq!(
        records
            .iter()
            .map(|r| (r.revision(), r.state()))
            .collect::<Vec<_>>(),
        [(1, State::Deployed)]
    );
    assert_eq!(records[0].chart(), "small-1.0.0");
    assert_eq!(records[0].values(), &json!({"word": "first"}));
    assert!(records[0].manifest().contains("kind: ConfigMap"));
    assert_eq!(recover(&client, "default", "small").await.unwrap(), None);

    // A hook that never ends: the client is killed while its release is pending.
    let hung = tempfile(HANGING);
    let file = hung.path().join("values.json");
    fs::write(&file, r#"{"word": "hung"}"#).unwrap();
    let mut dying = std::process::Command::new(program)
        .env("KUBECONFIG", kubeconfig)
        .args(["upgrade", "small"])
        .arg(hung.path())
        .arg("--values")
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let is_pending = async || {
        let records = history(&client, "default", "small").await.unwrap();
        records.last().map(helm::Record::state) == Some(State::Pending)
    };
    while !is_pending().await {
        assert_eq!(dying.try_wait().unwrap(), None, "Helm ended by itself");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    dying.kill().unwrap();
    dying.wait().unwrap();
    let refused = upgrade(json!({"word": "second"})).await.unwrap_err();
    assert!(refused.to_string().contains("in progress"), "{refused}");
    assert_eq!(recover(&client, "default", "small").await.unwrap(), Some(2));
    upgrade(json!({"word": "second"})).await.unwrap();
    assert_eq!(word(&client).await.unwrap(), "second");
    let records = history(&client, "default", "small").await.unwrap();
    let last = records.last().unwrap();
    assert_eq!((last.revision(), last.state()), (3, State::Deployed));

    // One that is late is told to end, and says itself that it failed.
    let values = json!({"word": "late"});
    let change = Change {
        chart: hung.path(),
        values: &values,
    };
    let late = helm.upgrade(&held, change, Duration::from_secs(2)).await;
    assert!(late.is_err());
    assert!(!is_pending().await, "it was given the time to say so");

    // One whose pods wait for what only a hook after them makes is refused before it is begun; another one is waited for.
    let values = json!({"word": "waited"});
    let rendered = async |chart: &Path| {
        let change = Change {
            chart,
            values: &values,
        };
        helm.template(PLACE, change, DEADLINE).await.unwrap()
    };
    let knotted = tempfile(KNOT);
    let refused = Proven::of(&rendered(knotted.path()).await).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("Pod waiting waits for Secret late"),
        "{refused}"
    );
    let proven = Proven::of(&rendered(chart.path()).await).unwrap();
    let change = Change {
        chart: chart.path(),
        values: &values,
    };
    helm.upgrade_and_wait(&held, change, &proven, DEADLINE)
        .await
        .unwrap();
    assert_eq!(word(&client).await.unwrap(), "waited");

    let marks = std::collections::BTreeMap::from([("example.com/mark".to_owned(), "a".to_owned())]);
    helm.upgrade_marked(&held, change, 9, &marks, DEADLINE)
        .await
        .unwrap();
    let outlines = outlines(&client).await.unwrap();
    assert_eq!(outlines.len(), 1, "{outlines:?}");
    let outline = &outlines[0];
    assert_eq!(
        (outline.state, outline.stored()),
        (State::Deployed, Some(9))
    );
    assert_eq!(outline.labels["example.com/mark"], "a");
    let said = helm.chart(chart.path(), DEADLINE).await.unwrap();
    assert_eq!(
        (said.name.as_str(), said.version.as_str()),
        ("small", "1.0.0")
    );

    helm.uninstall(&held, DEADLINE).await.unwrap();
    assert!(
        history(&client, "default", "small")
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(word(&client).await, None);
    helm.uninstall(&held, DEADLINE).await.unwrap();
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = fs::read_to_string(kubeconfig).unwrap();
    #[expect(clippy::disallowed_methods, reason = "it is the test's own")]
    let config = {
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&kubeconfig).unwrap();
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
    };
    Client::try_from(config.unwrap()).unwrap()
}

async fn word(client: &Client) -> Option<String> {
    let api = Api::<ConfigMap>::default_namespaced(client.clone());
    let found = api.get_opt("small").await.unwrap()?;
    found.data?.remove("word")
}

fn tempfile(hook: &str) -> tempfile::TempDir {
    let chart = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(chart.path().join(name), text).unwrap();
    write(
        "Chart.yaml",
        "apiVersion: v2\nname: small\nversion: 1.0.0\n",
    );
    fs::create_dir(chart.path().join("templates")).unwrap();
    write("templates/map.yaml", MAP);
    write("templates/hook.yaml", hook);
    chart
}

const MAP: &str = r"
apiVersion: v1
kind: ConfigMap
metadata:
  name: small
data:
  word: {{ .Values.word | quote }}
";
const PLAIN: &str = "";
const KNOT: &str = r"
apiVersion: v1
kind: Secret
metadata:
  name: late
  annotations: {helm.sh/hook: post-install}
---
apiVersion: v1
kind: Pod
metadata: {name: waiting}
spec:
  containers: [{name: a, image: a, envFrom: [{secretRef: {name: late}}]}]
";
/// Nothing runs Jobs here, so it never ends.
const HANGING: &str = r"
apiVersion: batch/v1
kind: Job
metadata:
  name: hanging
  annotations: {helm.sh/hook: pre-upgrade}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: a, image: a}]
";
