//! Hosts without a network and without programs: `windlass mirror` brings to them what a site gives that this machine alone reaches, and
//! no run begins before all of it is there. By the bundle alone: what kubespray itself downloads is brought by whoever names a checkout.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use e2e::{NAMESPACE, Operator, Stage, wait_until};
use lab::{command::output, programs, progress::Terminal};
use serde_json::{Map, Value, json};

use crate::first_cluster;

/// Where the mirror is served: what hosts reach of this machine.
const AT: &str = "10.77.0.1:8080";
/// The image that is pulled: of each pod, and of one that hosts have nowhere else.
const IMAGE: (&str, &str) = ("pause", "3.10.1");
/// Programs by their group and their place, as kubespray writes it.
const PROGRAMS: [(&str, &str, &str); 5] = [
    ("kubelet", "k8s_cluster", KUBERNETES),
    ("kubeadm", "k8s_cluster", KUBERNETES),
    ("kubectl", "kube_control_plane", KUBERNETES),
    ("etcd", "etcd", ETCD),
    ("etcdctl", "etcd", ETCD),
];
const KUBERNETES: &str = "{{ dl_k8s_io_url | default('https://dl.k8s.io') }}/release";
const ETCD: &str = "{{ github_url | default('https://github.com') }}/etcd-io/etcd/releases";

/// Hosts that have no programs, or real kubespray's.
pub(crate) fn stage(hosts: u8, dead: u8) -> Stage {
    if first_cluster::kubespray().is_some() {
        return first_cluster::stage(hosts, dead);
    }
    let options = first_cluster::options(hosts, dead);
    Stage::set_without_programs(options, &Terminal::default()).unwrap()
}

/// A mirror at work beside a cluster; it ends with the value.
pub(crate) struct Gap {
    _served: Operator,
}

/// Declares an example whose hosts ask a mirror. Its run is held while a file is missing there, and goes on when it was brought. None
/// where real kubespray raises clusters.
pub(crate) fn is_bridged(stage: &Stage, example: &Path) -> Option<Gap> {
    if stage.is_of_kubespray() {
        stage.apply_example(example).unwrap();
        return None;
    }
    let home = stage.lab.dir().join("gap");
    let site = home.join("site");
    let programs = programs::ensure(&Terminal::default()).unwrap();
    let downloads = downloads(&programs.dir, &site);
    image(
        &site,
        &lab::images::ensure(&programs, &Terminal::default()).unwrap(),
    );
    let (upstream, from) = serve(stage, &site, "127.0.0.1:0", "upstream");

    // Where there is a network.
    let objects = home.join("objects.json");
    let mut variables = Map::from_iter([("downloads".to_owned(), downloads)]);
    declare(example, &objects, &variables);
    let files = objects.to_str().unwrap();
    let at = format!("http://{AT}");
    let plan = ["mirror", "plan", "-f", files, "--at", &at, "-o", "json"];
    let plan = output(&mut stage.windlass(&plan)).unwrap();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let many = |what: &str| plan[what].as_array().map_or(0, Vec::len);
    assert_eq!(
        (many("files"), many("images")),
        (PROGRAMS.len(), 1),
        "{plan:#}"
    );
    assert_eq!(plan["notLedToTheMirror"], json!([]), "{plan:#}");
    let directory = home.join("mirror");
    let to = directory.to_str().unwrap();
    let fetch = ["mirror", "fetch", "-f", files, "--to", to, "--from", &from];
    stage.says(&fetch, "all 6 are in").unwrap();

    // Where the hosts are, and a file was lost on the way.
    variables.extend(plan["extraVars"].as_object().unwrap().clone());
    declare(example, &objects, &variables);
    let place = plan["files"][0]["place"].as_str().unwrap();
    fs::remove_file(directory.join("files").join(place)).unwrap();
    let (served, _) = serve(stage, &directory, AT, "mirror");
    stage.apply_files(&objects).unwrap();
    let missing = format!("1 thing is not where hosts will ask: {at}/{place}: it is not there");
    let run = wait_until("the run to be held", stage.patience(), || {
        let run = stage.run()?;
        let status = &run["status"];
        // The failure is told before its step's record, and only then can somebody retry it.
        let is_held =
            status["phase"] == "Failed" && status["failure"]["code"] == "MirrorIncomplete";
        Ok(is_held.then_some(run))
    })
    .unwrap();
    assert_eq!(run["status"]["failure"]["message"], missing, "{run:#}");
    let history = run["status"]["history"].as_array().unwrap();
    let mut begun = history.iter().filter(|one| one["event"] == "StepStarted");
    assert!(
        begun.all(|one| one["step"] == "prepare/sandbox"),
        "{history:#?}"
    );

    stage.says(&fetch, "all 6 are in").unwrap();
    drop(upstream);
    let name = run["metadata"]["name"].as_str().unwrap();
    stage.says(&["retry"], name).unwrap();
    wait_until("the run to go on", stage.patience(), || {
        let run = stage.run()?;
        let history = run["status"]["history"].as_array().into_iter().flatten();
        let mut past = history.filter(|one| one["event"] == "StepSucceeded");
        Ok(past
            .any(|one| one["step"] == "prepare/sandbox")
            .then_some(()))
    })
    .unwrap();
    Some(Gap { _served: served })
}

/// Programs and image of the hosts are from the mirror, and containerd asks it for what a pod wants.
pub(crate) fn gave(stage: &Stage) {
    for host in stage.lab.hosts().iter().take(2) {
        let look = "ls /opt/windlass/bin; stat --format=%F /tmp/releases/*/kubelet; \
                    ctr --namespace k8s.io content ls | grep --count distribution.source.registry.k8s.io=pause";
        let seen = stage.lab.ssh(&host.name, look).unwrap();
        let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
        let mut lines = seen.lines();
        assert_eq!(lines.next(), Some("regular file"), "{}: {seen}", host.name);
        assert!(
            lines.next().is_some_and(|count| count != "0"),
            "{}: {seen}",
            host.name
        );
    }
    let kubeconfig = stage.kubeconfig().unwrap();
    let (name, tag) = IMAGE;
    let image = format!("--image=registry.k8s.io/{name}:{tag}");
    let run = ["run", "pulled", &image, "--image-pull-policy=Always"];
    let wait = [
        "wait",
        "--for=condition=Ready",
        "pod/pulled",
        "--timeout=120s",
    ];
    let delete = ["delete", "pod", "pulled", "--now", "--wait=false"];
    for arguments in [run.as_slice(), &wait, &delete] {
        output(&mut stage.kubectl_by(&kubeconfig, arguments)).unwrap();
    }
}

/// The entries of the role, and the programs in a directory where sites have them.
fn downloads(programs: &Path, site: &Path) -> Value {
    let entries = PROGRAMS.map(|(name, group, place)| {
        let program = programs.join(name);
        let sum = output(Command::new("sha256sum").arg(&program)).unwrap();
        let sum = sum.split_whitespace().next().unwrap();
        let host = if place == ETCD {
            "github.com"
        } else {
            "dl.k8s.io"
        };
        let (_, path) = place.split_once("}}/").unwrap();
        let copy = site.join("files").join(host).join(path).join(name);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        // The same file by another name, where that can be: a copy of all costs seconds.
        if fs::hard_link(&program, &copy).is_err() {
            fs::copy(&program, &copy).unwrap();
        }
        let entry = json!({
            "enabled": true, "file": true, "groups": [group],
            "url": format!("{place}/{name}"), "checksum": format!("sha256:{sum}"),
            "dest": format!("{{{{ local_release_dir }}}}/v{{{{ kube_version }}}}/{name}"),
        });
        (name.to_owned(), entry)
    });
    let (name, tag) = IMAGE;
    let image = json!({
        "enabled": true, "container": true, "groups": ["k8s_cluster"],
        "repo": format!("{{{{ kube_image_repo }}}}/{name}"), "tag": tag,
    });
    let all = entries.into_iter().chain([(name.to_owned(), image)]);
    Value::Object(all.collect())
}

/// Has the site give the image, from a tar as people carry them.
fn image(site: &Path, images: &Path) {
    let (name, tag) = IMAGE;
    let registry = site.join("registry");
    let pins = registry.join("manifests").join(name);
    fs::create_dir_all(&pins).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--directory").arg(&registry);
    tar.arg("--file")
        .arg(images.join(format!("{name}_{tag}.tar")));
    output(&mut tar).unwrap();
    let index = fs::read(registry.join("index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    fs::write(pins.join(tag), digest.trim_start_matches("sha256:")).unwrap();
    fs::rename(registry.join("blobs/sha256"), registry.join("sha256")).unwrap();
    fs::remove_dir(registry.join("blobs")).unwrap();
    fs::rename(registry.join("sha256"), registry.join("blobs")).unwrap();
}

/// `windlass mirror serve`, and its address.
fn serve(stage: &Stage, directory: &Path, address: &str, log: &str) -> (Operator, String) {
    let command = ["mirror", "serve", directory.to_str().unwrap()];
    let mut command = stage.windlass(&[&command[..], &["--address", address]].concat());
    let log: PathBuf = stage.lab.dir().join(format!("{log}.log"));
    let served = Operator::start(&mut command, log).unwrap();
    let address = wait_until("the mirror to serve", stage.patience(), || {
        let said = served.said();
        let told = said
            .split_once("http://")
            .and_then(|(_, rest)| rest.split_once('\n'));
        Ok(told.map(|(address, _)| format!("http://{address}")))
    })
    .unwrap();
    (served, address)
}

/// The files of an example with variables, and with the mirror looked at before runs.
fn declare(example: &Path, file: &Path, variables: &Map<String, Value>) {
    let mut items = Vec::new();
    for name in ["cluster.yaml", "nodes.yaml"] {
        let text = fs::read_to_string(example.join(name)).unwrap();
        items.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap());
    }
    for item in items.iter_mut().filter(|item| item["kind"] == "Cluster") {
        assert_eq!(item["metadata"]["namespace"], NAMESPACE);
        item["spec"]["kubespray"]["mirror"]["check"] = "BeforeRuns".into();
        item["spec"]["nodes"]["all"]["deploy"]["extraVars"] = Value::Object(variables.clone());
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    fs::write(file, list.to_string()).unwrap();
}
