//! Addons, by the operator over the embedded API, the real Helm, and a real API server in the place of every cluster.

use std::path::{Path, PathBuf};

use api::magnum::{Addon, AddonReport, AddonState, NOTICE_ANNOTATION};
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use lab::{ControlPlane, Kubernetes, progress::Terminal};

use super::*;
use crate::operator::addons::{Reach, Settings as AddonSettings};

/// Helm is there in seconds, on a loaded computer in many.
const LIMIT: std::time::Duration = std::time::Duration::from_mins(1);

struct Story {
    world: World,
    operating: tokio::task::JoinHandle<()>,
    /// Of the API server that is every cluster.
    cluster: Client,
    _plane: ControlPlane,
    _locks: tempfile::TempDir,
}

impl Drop for Story {
    fn drop(&mut self) {
        self.operating.abort();
    }
}

impl Story {
    async fn new() -> Self {
        let (plane, helm) = tokio::task::spawn_blocking(|| {
            let progress = Terminal::default();
            let plane = ControlPlane::start(Kubernetes::Newest, &progress).unwrap();
            (plane, lab::helm(&progress).unwrap())
        })
        .await
        .unwrap();
        let locks = tempfile::tempdir().unwrap();
        let settings = AddonSettings {
            helm,
            locks: locks.path().to_owned(),
        };
        let mut definitions = api::magnum::definitions();
        definitions.extend(api::custom_resource_definitions());
        let world = World::with(&definitions).await;
        let reach = Reach::File(plane.kubeconfig());
        let operating = world.operate(settings, reach);
        let file = plane.kubeconfig();
        let config = controller::kubeconfig::own(&file, None).await.unwrap();
        let cluster = Client::try_from(config).unwrap();
        Self {
            world,
            operating,
            cluster,
            _plane: plane,
            _locks: locks,
        }
    }

    /// A cluster on hosts, whose API is there.
    async fn cluster(&self, labels: Value) -> String {
        let template = json!({"name": "metal", "labels": labels});
        let template = self.world.template(MEMBER, template).await;
        let body = json!({"name": "first", "cluster_template_id": template});
        let told = self.world.ask(MEMBER, "POST", "/v1/clusters", body).await;
        let uuid = told.body["uuid"].as_str().unwrap().to_owned();
        // As from hosts that are there, which are none here: who applies it keeps it.
        let status = json!({
            "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "CoeCluster",
            "metadata": {"name": uuid}, "status": {"apiAddress": "https://192.0.2.9:6443"},
        });
        let as_operator = PatchParams::apply("test").force();
        self.clusters()
            .patch_status(&uuid, &as_operator, &Patch::Apply(status))
            .await
            .unwrap();
        uuid
    }

    fn clusters(&self) -> Api<CoeCluster> {
        Api::namespaced(self.world.client.clone(), "magnum-p1")
    }

    fn addons(&self) -> Api<Addon> {
        Api::default_namespaced(self.world.client.clone())
    }

    async fn label(&self, uuid: &str, name: &str, value: &str) {
        let patch = Patch::Merge(json!({"spec": {"labels": {name: value}}}));
        self.clusters()
            .patch(uuid, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn give(&self, name: &str, spec: Value) {
        let addon = json!({"metadata": {"name": name}, "spec": spec});
        let addon = json!({
            "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "Addon",
            "metadata": addon["metadata"], "spec": addon["spec"],
        });
        let parameters = PatchParams::apply("test").force();
        self.addons()
            .patch(name, &parameters, &Patch::Apply(addon))
            .await
            .unwrap();
    }

    async fn give_chart(&self, name: &str, version: &str, hook: &str) {
        let maps: Api<ConfigMap> = Api::default_namespaced(self.world.client.clone());
        let bytes = ByteString(packed(version, hook));
        let map = ConfigMap {
            binary_data: Some([("chart.tgz".to_owned(), bytes)].into()),
            metadata: kube::api::ObjectMeta {
                name: Some(name.to_owned()),
                ..kube::api::ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        maps.create(&PostParams::default(), &map).await.unwrap();
    }

    async fn until(
        &self,
        uuid: &str,
        what: &str,
        is_so: impl Fn(&[AddonReport]) -> bool,
    ) -> Vec<AddonReport> {
        let addons = |cluster: Option<&CoeCluster>| {
            let status = cluster.and_then(|cluster| cluster.status.clone());
            status.map(|status| status.addons).unwrap_or_default()
        };
        let seen = await_condition(self.clusters(), uuid, |cluster: Option<&CoeCluster>| {
            is_so(&addons(cluster))
        });
        if let Ok(seen) = tokio::time::timeout(LIMIT, seen).await {
            return addons(seen.unwrap().as_ref());
        }
        let cluster = self.clusters().get(uuid).await.unwrap();
        let addon = self.addons().list(&kube::api::ListParams::default()).await;
        panic!("{what}: {:?} {addon:?}", addons(Some(&cluster)))
    }

    async fn until_state(&self, uuid: &str, state: AddonState) -> AddonReport {
        let is_so = |addons: &[AddonReport]| addons.len() == 1 && addons[0].state == state;
        let mut told = self.until(uuid, &format!("{state:?}"), is_so).await;
        told.remove(0)
    }

    /// What the chart's one object says in the cluster.
    async fn word(&self) -> Option<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.clone(), "watching");
        let found = maps.get_opt("small").await.unwrap()?;
        found.data?.remove("word")
    }

    /// How often something was told of Addons of clusters.
    fn writes(&self) -> usize {
        let calls = self.world.calls.lock().unwrap();
        let is_ours = |call: &&String| {
            call.contains("/coeclusters/") && call.contains("fieldManager=windlass-magnum-addons")
        };
        calls.iter().filter(is_ours).count()
    }

    async fn revision(&self) -> u64 {
        let releases = helm::record::outlines(&self.cluster).await.unwrap();
        releases.first().map_or(0, |release| release.revision)
    }
}

impl World {
    fn operate(&self, addons: AddonSettings, reach: Reach) -> tokio::task::JoinHandle<()> {
        let settings = Settings {
            namespace: None,
            concurrency: 4,
            metrics: Metrics::default(),
            shutdown: Shutdown::default(),
        };
        let mut manager = Manager::new(self.client.clone(), settings);
        let options = crate::operator::Options {
            pool: "default".to_owned(),
            key: "magnum-ssh".to_owned(),
            settings: crate::bare_metal::Settings::default(),
            keystone: Arc::clone(&self.known),
            addons,
        };
        crate::operator::operate_reaching(&mut manager, options, reach);
        tokio::spawn(async move { manager.run().await.unwrap() })
    }
}

/// An archive of a chart with one object, and this beside it.
fn packed(version: &str, hook: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let chart = directory.path().join("small");
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(chart.join(name), text).unwrap();
    let about = format!("apiVersion: v2\nname: small\nversion: {version}\n");
    write("Chart.yaml", &about);
    write("templates/map.yaml", MAP);
    write("templates/hook.yaml", hook);
    archived(directory.path())
}

fn archived(directory: &Path) -> Vec<u8> {
    let file: PathBuf = directory.join("chart.tgz");
    let status = std::process::Command::new("tar")
        .args(["-C", directory.to_str().unwrap(), "-czf"])
        .args([file.to_str().unwrap(), "small"])
        .status();
    assert!(status.unwrap().success());
    std::fs::read(file).unwrap()
}

fn spec(chart: &str, word: &str) -> Value {
    json!({
        "plugin": "monitoring", "chart": {"configMapRef": {"name": chart}},
        "namespace": "watching", "releaseName": "small", "values": {"word": word},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_addon_is_installed_changed_refused_mended_and_taken_away() {
    let story = Story::new().await;
    let uuid = story.cluster(json!({"monitoring_enabled": "true"})).await;
    // The label asks for what nobody brings, and the cluster's users are told.
    let told = story.until_state(&uuid, AddonState::Waiting).await;
    assert_eq!(told.name, "monitoring");

    story.give_chart("charts", "1.0.0", "").await;
    story
        .give("prometheus", spec("charts", "of ${cluster.name}"))
        .await;
    let told = story.until_state(&uuid, AddonState::Installed).await;
    assert_eq!(
        (told.name.as_str(), told.version.as_deref()),
        ("default/prometheus", Some("1.0.0"))
    );
    assert_eq!(story.word().await.as_deref(), Some("of first"));
    assert_eq!(story.revision().await, 1);

    // A pass that finds all as it should be does nothing, and writes nothing.
    let before = story.writes();
    let touched = json!({"metadata": {"annotations": {NOTICE_ANNOTATION: "looked at"}}});
    let patched = story
        .clusters()
        .patch(&uuid, &PatchParams::default(), &Patch::Merge(touched))
        .await;
    patched.unwrap();
    story.give("prometheus", spec("charts", "second")).await;
    let is_second = |addons: &[AddonReport]| {
        addons.len() == 1
            && addons[0].state == AddonState::Installed
            && addons[0].observed_generation == Some(2)
    };
    story.until(&uuid, "changed", is_second).await;
    assert_eq!(story.word().await.as_deref(), Some("second"));
    assert_eq!(story.revision().await, 2);
    // That its chart is looked at, that Helm is at work, that it is done.
    let written = story.writes() - before;
    assert!((1..=3).contains(&written), "{written}");

    // A hook that waits for what comes after it: the chart is refused, and what is there stays.
    story.give_chart("knotted", "2.0.0", KNOT).await;
    story.give("prometheus", spec("knotted", "third")).await;
    let told = story.until_state(&uuid, AddonState::Refused).await;
    let message = told.message.unwrap();
    assert!(message.contains("can never be installed"), "{message}");
    assert_eq!(story.word().await.as_deref(), Some("second"));
    let shown = story
        .world
        .get(MEMBER, &format!("/v1/clusters/{uuid}"))
        .await;
    let reason = shown.body["status_reason"].as_str().unwrap_or_default();
    assert!(reason.contains("default/prometheus"), "{reason}");
    // A chart that is not there is named with what makes it. Once it is, everybody who was refused is woken.
    story.give("prometheus", spec("later", "third")).await;
    let is_missing = |addons: &[AddonReport]| {
        let message = addons[0].message.as_deref().unwrap_or_default();
        message.contains("kubectl -n default create configmap later")
    };
    story.until(&uuid, "named", is_missing).await;
    story.give_chart("later", "3.0.0", "").await;
    let told = story.until_state(&uuid, AddonState::Installed).await;
    assert_eq!(told.version.as_deref(), Some("3.0.0"));
    assert_eq!(story.word().await.as_deref(), Some("third"));

    story.label(&uuid, "monitoring_enabled", "false").await;
    story.until(&uuid, "removed", <[_]>::is_empty).await;
    assert_eq!((story.word().await, story.revision().await), (None, 0));
    // The same, where nobody has the Addon any more.
    story.label(&uuid, "monitoring_enabled", "true").await;
    story.until_state(&uuid, AddonState::Installed).await;
    let addons = story.addons();
    addons
        .delete("prometheus", &DeleteParams::default())
        .await
        .unwrap();
    story.until_state(&uuid, AddonState::Waiting).await;
    assert_eq!((story.word().await, story.revision().await), (None, 0));
}

const MAP: &str = r"
apiVersion: v1
kind: ConfigMap
metadata:
  name: small
data:
  word: {{ .Values.word | quote }}
";
/// A Pod that is a hook before, and needs a Secret of the release.
const KNOT: &str = r"
apiVersion: v1
kind: Secret
metadata:
  name: late
---
apiVersion: v1
kind: Pod
metadata:
  name: waiting
  annotations: {helm.sh/hook: pre-install}
spec:
  containers: [{name: a, image: a, envFrom: [{secretRef: {name: late}}]}]
";
