//! `windlass mirror`: what hosts will ask a network for, brought to where there is none.

use std::{
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use ansible::downloads::Architecture;
use anyhow::Context;
use api::{Cluster, ClusterNode};
use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{Api, ResourceExt};
use kubespray::{
    Layout,
    inputs::Inputs,
    mirror::{Asking, Processors, Wanted},
    playbooks::Checkout,
    preview::{self, Objects},
};
use mirror::{Store, check, fetch, push};
use serde_json::{Map, Value, json};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, interval_at},
};

use crate::{
    cli::{
        Global, Mirror, MirrorCheck, MirrorFetch, MirrorOf, MirrorPlan, MirrorPush, MirrorServe,
        Output,
    },
    client::named_or_only,
    manifest::{self, Opener},
    plan, sandbox,
    terminal::{self, table, text},
};

/// Does one of them.
pub(crate) async fn command(global: &Global, command: Mirror) -> anyhow::Result<()> {
    match command {
        Mirror::Plan(options) => interruptible(Box::pin(show(global, &options))).await,
        Mirror::Fetch(options) => interruptible(Box::pin(bring(global, &options))).await,
        Mirror::Serve(options) => serve(&options).await,
        Mirror::Push(options) => interruptible(Box::pin(push(global, &options))).await,
        Mirror::Check(options) => interruptible(Box::pin(look(global, &options))).await,
    }
}

/// What is ended by a signal has its Ansible end too, which is in a group of its own.
async fn interruptible<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let mut signals = Vec::new();
    for kind in kinds {
        signals.push(signal(kind).context("failed to listen for signals")?);
    }
    let signalled = signals
        .iter_mut()
        .map(|signal| Box::pin(async move { signal.recv().await }));
    tokio::select! {
        done = work => done,
        _ = futures::future::select_all(signalled) => {
            anyhow::bail!("interrupted; typed again it begins anew, and what was fetched whole or in part counts")
        }
    }
}

/// A variable of the command line: its value is YAML, so that flags and numbers are what they are.
pub(crate) fn variable(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    // A template is a text, and no map of YAML.
    let read = serde_saphyr::from_str::<Value>(value).ok();
    let value = read.filter(|_| !value.trim_start().starts_with("{{"));
    let value = value.unwrap_or_else(|| text.split_once('=').map_or("", |(_, value)| value).into());
    Ok((name.to_owned(), value))
}

/// An architecture of the command line.
pub(crate) fn architecture(name: &str) -> Result<Architecture, String> {
    Architecture::named(name).ok_or_else(|| "it is amd64, arm64 or ppc64le".to_owned())
}

/// A cluster whose list can be asked for.
struct Subject {
    title: String,
    inputs: Inputs,
    checkout: Arc<Checkout>,
    sandbox: ansible::sandbox::Sandbox,
    processors: Processors,
}

impl Subject {
    async fn find(global: &Global, of: &MirrorOf) -> anyhow::Result<Self> {
        let layout = Layout::new(global.private_data_directory()?);
        let (cluster, found) = if let Some(checkout) = &of.release {
            let objects = alone(checkout, &of.variables)?;
            let cluster = objects
                .clusters
                .first()
                .cloned()
                .context("there is no Cluster")?;
            let found = preview::with_playbooks(&cluster, &objects, &layout).await;
            (cluster, found)
        } else if of.filename.is_empty() {
            let client = global.client().await?;
            let cluster = one(&client, global, of.cluster.as_deref()).await?;
            let found = preview::next_with_playbooks(&client, &cluster, &layout).await?;
            (cluster, found)
        } else {
            let objects = plan::objects(
                global,
                manifest::read(&Opener::new(&of.age_keys), &of.filename)?,
            )?;
            let cluster = chosen(&objects, of.cluster.as_deref())?;
            let found = preview::with_playbooks(&cluster, &objects, &layout).await;
            (cluster, found)
        };
        let (inputs, checkout) = found.map_err(|problems| {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{}", problems.join("\n"))
        })?;
        let namespace = cluster
            .namespace()
            .unwrap_or_else(|| global.namespace.clone());
        let title = match &of.release {
            Some(checkout) => format!("kubespray {} in {}", inputs.kubespray, checkout.display()),
            None => format!("cluster {namespace}/{}", cluster.name_any()),
        };
        let processors = if of.architecture.is_empty() {
            let facts = layout
                .cluster(&namespace, &cluster.name_any())
                .join("facts");
            Processors::of_facts(&inputs, &facts)
        } else {
            Processors::of_all(of.architecture.iter().copied())
        };
        let sandbox = sandbox::of_release(global, inputs.kubespray, &checkout.directory).await?;
        Ok(Self {
            title,
            inputs,
            checkout,
            sandbox,
            processors,
        })
    }

    async fn wanted(&self) -> anyhow::Result<Wanted> {
        self.with(&self.inputs).await
    }

    /// With settings beside the cluster's own variables.
    async fn wanted_with(&self, settings: &Map<String, Value>) -> anyhow::Result<Wanted> {
        let mut inputs = self.inputs.clone();
        inputs.variables.extend(settings.clone());
        self.with(&inputs).await
    }

    async fn with(&self, inputs: &Inputs) -> anyhow::Result<Wanted> {
        let asking = Asking {
            inputs,
            checkout: &self.checkout.directory,
            ansible_playbook: self.sandbox.ansible_playbook(),
            processors: self.processors.clone(),
        };
        eprintln!("evaluating what the playbooks download, which takes some seconds");
        let wanted = kubespray::mirror::wanted(&asking).await;
        wanted.with_context(|| format!("failed to list what {} downloads", self.title))
    }
}

async fn one(
    client: &kube::Client,
    global: &Global,
    name: Option<&str>,
) -> anyhow::Result<Cluster> {
    let clusters = Api::namespaced(client.clone(), &global.namespace);
    named_or_only(&clusters, name).await
}

/// A checkout with one host that is everything.
fn alone(checkout: &Path, variables: &[(String, Value)]) -> anyhow::Result<Objects> {
    let directory = std::path::absolute(checkout).context("failed to resolve the checkout")?;
    let mut variables: Map<String, Value> = variables.iter().cloned().collect();
    // A Cluster has a field of its own for it, but here is no Cluster to write it in.
    let kubernetes = variables.remove("kube_version");
    let kubernetes = kubernetes.as_ref().and_then(Value::as_str);
    let metadata = |name: &str| json!({"name": name, "namespace": "default"});
    let cluster: Cluster = serde_json::from_value(json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": metadata("release"),
        "spec": {
            "kubespray": {"version": sandbox::version(&directory)?, "source": {"path": directory}},
            "kubernetesVersion": kubernetes.map(|version| version.trim_start_matches('v')),
            "nodes": {"all": {"deploy": {"extraVars": variables}}},
        },
    }))
    .context("the variables do not make a Cluster")?;
    let node: ClusterNode = serde_json::from_value(json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": metadata("host"),
        "spec": {"type": "master", "roles": ["control-plane", "etcd", "worker"], "inventory": {"ansible_host": "192.0.2.1"}},
    }))
    .context("one host does not make a ClusterNode")?;
    Ok(Objects {
        clusters: vec![cluster],
        nodes: vec![node],
        ..Objects::default()
    })
}

fn chosen(objects: &Objects, name: Option<&str>) -> anyhow::Result<Cluster> {
    let is_named = |cluster: &&Cluster| name.is_none_or(|name| cluster.name_any() == name);
    let found: Vec<_> = objects.clusters.iter().filter(is_named).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => anyhow::bail!("there is no such Cluster in the files"),
        several => {
            let names: Vec<_> = several.iter().map(|one| one.name_any()).collect();
            anyhow::bail!(
                "the files have several Clusters, name one: {}",
                names.join(", ")
            )
        }
    }
}

async fn show(global: &Global, options: &MirrorPlan) -> anyhow::Result<()> {
    let subject = Subject::find(global, &options.of).await?;
    let wanted = subject.wanted().await?;
    let list = &wanted.list;
    let at = options.at.trim_end_matches('/');
    let settings = kubespray::mirror::settings(list, at, at);
    let moved = subject.wanted_with(&settings).await?;
    let below = format!("{at}/");
    let elsewhere: Vec<&str> = moved
        .list
        .files
        .iter()
        .filter(|file| {
            let there = format!("{below}{}", file.place);
            file.asked.iter().any(|asked| *asked != there)
        })
        .map(|file| file.url.as_str())
        .collect();
    // A directory that is not there yet has nothing.
    let store = options.to.as_deref().map(Store::open).and_then(Result::ok);
    let missing = match &store {
        Some(store) => Some(check::directory(list, store).await?),
        None => None,
    };
    let there = |what: &str| match &missing {
        Some(missing) => !missing.iter().any(|finding| finding.what == what),
        None => false,
    };
    let files = list.files.iter().map(|file| {
        let mut shown = json!(file);
        shown["there"] = there(&file.url).into();
        shown
    });
    let images = list.images.iter().map(|image| {
        let mut shown = json!(image);
        shown["there"] = there(&image.image.to_string()).into();
        shown["digest"] = match (&image.digest, &store) {
            (Some(digest), _) => digest.as_str().into(),
            (None, Some(store)) => store.digest(&image.image).into(),
            (None, None) => Value::Null,
        };
        shown
    });
    let (files, images): (Vec<Value>, Vec<Value>) = (files.collect(), images.collect());
    let document = json!({
        "files": files, "images": images, "extraVars": settings,
        "notLedToTheMirror": elsewhere, "brought": wanted.brought,
    });
    match options.output {
        Output::Json => println!("{}", terminal::json(&document)?),
        Output::Yaml => println!("{}", terminal::yaml(&document)?),
        Output::Text => {
            println!("{}", text(&subject.title));
            print_lists(&files, &images);
            print_settings(&wanted, &settings, &elsewhere)?;
        }
    }
    Ok(())
}

fn print_lists(files: &[Value], images: &[Value]) {
    let cell = |value: &Value, key: &str| value[key].as_str().unwrap_or("-").to_owned();
    let there = |value: &Value| if value["there"] == true { "yes" } else { "-" }.to_owned();
    let rows = files.iter().map(|file| {
        [
            cell(file, "place"),
            shortened(&cell(file, "checksum")),
            there(file),
        ]
    });
    if !files.is_empty() {
        println!("{}", table(["FILE", "CHECKSUM", "THERE"], rows));
    }
    let rows = images.iter().map(|image| {
        [
            cell(image, "image"),
            shortened(&cell(image, "digest")),
            there(image),
        ]
    });
    if !images.is_empty() {
        println!("{}", table(["IMAGE", "DIGEST", "THERE"], rows));
    }
    let counted = |many: usize, thing: &str| match many {
        1 => format!("1 {thing}"),
        many => format!("{many} {thing}s"),
    };
    println!(
        "{} and {}",
        counted(files.len(), "file"),
        counted(images.len(), "image")
    );
}

/// As much of a sum as people compare.
fn shortened(sum: &str) -> String {
    match sum.split_once(':') {
        Some((algorithm, hex)) => format!("{algorithm}:{}", hex.get(..16).unwrap_or(hex)),
        None => sum.to_owned(),
    }
}

fn print_settings(
    wanted: &Wanted,
    settings: &Map<String, Value>,
    elsewhere: &[&str],
) -> anyhow::Result<()> {
    if !wanted.brought.is_empty() {
        let brought: Vec<_> = wanted.brought.iter().map(String::as_str).collect();
        println!(
            "from nowhere, as the playbooks expect them on the hosts: {}",
            text(&brought.join(", "))
        );
    }
    if wanted.list.files.is_empty() && wanted.list.images.is_empty() {
        return Ok(());
    }
    println!("in spec.nodes.all.deploy.extraVars:");
    for line in terminal::yaml(settings)?.lines() {
        println!("  {}", text(line));
    }
    for url in elsewhere {
        println!(
            "these variables do not lead to the mirror: {}; set its own, such as NAME_download_url",
            text(url)
        );
    }
    Ok(())
}

async fn bring(global: &Global, options: &MirrorFetch) -> anyhow::Result<()> {
    let from = options.from.as_ref().map(|from| {
        let url = reqwest::Url::parse(from).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        url.with_context(|| format!("--from {from} is no address: write http://HOST:PORT"))
    });
    let subject = Subject::find(global, &options.of).await?;
    let wanted = subject.wanted().await?;
    let (store, _lock) = Store::make(&options.to)
        .with_context(|| format!("failed to make the mirror {}", options.to.display()))?;
    let how = fetch::Options {
        from: from.transpose()?,
        parallel: options.parallel.into(),
        came: Arc::new(AtomicU64::new(0)),
    };
    let fetched = fetch_telling(&wanted.list, &store, &how).await?;
    let failed = fetched.iter().filter(|one| one.outcome.is_err()).count();
    let full = |one: &fetch::Fetched| one.outcome.as_ref().is_err_and(fetch::Error::is_full);
    anyhow::ensure!(
        !fetched.iter().any(full),
        "{failed} of {} were not fetched: the disk of {} is full; what came in part goes on when there is room and this is typed again",
        fetched.len(),
        options.to.display()
    );
    anyhow::ensure!(
        failed == 0,
        "{failed} of {} were not fetched; what came in part goes on when this is typed again",
        fetched.len()
    );
    println!("all {} are in {}", fetched.len(), options.to.display());
    Ok(())
}

/// How often it is told how far a fetch is: a large file on a slow line would else look like one that stands still.
const TELLING: Duration = Duration::from_secs(15);

async fn fetch_telling(
    list: &mirror::List,
    store: &Store,
    options: &fetch::Options,
) -> Result<Vec<fetch::Fetched>, fetch::Error> {
    let done = AtomicUsize::new(0);
    let tell = |fetched: &fetch::Fetched| {
        done.fetch_add(1, Ordering::Relaxed);
        told(fetched);
    };
    let fetching = fetch::fetch(list, store, options, &tell);
    tokio::pin!(fetching);
    let all = list.files.len().saturating_add(list.images.len());
    let mut clock = interval_at(Instant::now() + TELLING, TELLING);
    loop {
        tokio::select! {
            fetched = &mut fetching => return fetched,
            _ = clock.tick() => eprintln!(
                "{} of {all} are done, {} came",
                done.load(Ordering::Relaxed),
                size(options.came.load(Ordering::Relaxed)),
            ),
        }
    }
}

/// Bytes as people compare them.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}

fn told(fetched: &fetch::Fetched) {
    let what = text(&fetched.what);
    match &fetched.outcome {
        Ok(fetch::Outcome::Kept) => println!("kept      {what}"),
        Ok(fetch::Outcome::Brought(bytes)) => println!("fetched   {what} ({})", size(*bytes)),
        Err(error) => {
            let why = text(&::controller::chain(error));
            if why.contains(&what) {
                eprintln!("failed    {why}");
            } else {
                eprintln!("failed    {what}: {why}");
            }
        }
    }
}

/// USER:PASSWORD of a file.
fn login(file: &Path) -> anyhow::Result<(String, String)> {
    let read = std::fs::read_to_string(file);
    let read = read.with_context(|| format!("failed to read {}", file.display()))?;
    let (user, password) = read
        .trim_end_matches(['\r', '\n'])
        .split_once(':')
        .with_context(|| format!("{} does not hold USER:PASSWORD", file.display()))?;
    Ok((user.to_owned(), password.to_owned()))
}

async fn serve(options: &MirrorServe) -> anyhow::Result<()> {
    let store = Store::open(&options.directory)
        .with_context(|| format!("{} is no mirror", options.directory.display()))?;
    let login = options.login.as_deref().map(login).transpose()?;
    let authorization = login
        .map(|(user, password)| format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))));
    let listener = tokio::net::TcpListener::bind(options.address)
        .await
        .with_context(|| format!("failed to listen on {}", options.address))?;
    println!(
        "serving {} at http://{}",
        options.directory.display(),
        listener.local_addr()?
    );
    std::io::stdout().flush()?;
    axum::serve(listener, mirror::serve::router(store, authorization))
        .await
        .context("failed to serve")
}

async fn push(global: &Global, options: &MirrorPush) -> anyhow::Result<()> {
    let (registry, prefix) = options
        .registry
        .split_once('/')
        .unwrap_or((&options.registry, ""));
    let target = push::Target {
        registry: registry.to_owned(),
        prefix: prefix.to_owned(),
        clear: options.plain_http,
        login: options.login.as_deref().map(login).transpose()?,
    };
    let store = Store::open(&options.to)
        .with_context(|| format!("{} is no mirror", options.to.display()))?;
    let subject = Subject::find(global, &options.of).await?;
    let wanted = subject.wanted().await?;
    let mut failed = 0_usize;
    for image in &wanted.list.images {
        match push::push(image, &store, &target).await {
            Ok(digest) => println!("pushed    {} as {digest}", text(&image.image.to_string())),
            Err(error) => {
                failed = failed.saturating_add(1);
                eprintln!(
                    "failed    {}: {}",
                    text(&image.image.to_string()),
                    text(&::controller::chain(&error))
                );
            }
        }
    }
    anyhow::ensure!(
        failed == 0,
        "{failed} of {} images were not pushed",
        wanted.list.images.len()
    );
    Ok(())
}

async fn look(global: &Global, options: &MirrorCheck) -> anyhow::Result<()> {
    let subject = Subject::find(global, &options.of).await?;
    let wanted = subject.wanted().await?;
    let findings = match &options.to {
        Some(directory) => {
            let store = Store::open(directory)
                .with_context(|| format!("{} is no mirror", directory.display()))?;
            check::directory(&wanted.list, &store).await?
        }
        None => kubespray::mirror::missing(&wanted).await?,
    };
    match options.output {
        Output::Json => println!("{}", terminal::json(&findings)?),
        Output::Yaml => println!("{}", terminal::yaml(&findings)?),
        Output::Text => {
            for finding in &findings {
                println!("{}", text(&finding.to_string()));
            }
            if options.to.is_none() && wanted.engine != "containerd" {
                println!(
                    "images were not looked for: where {} asks is not known",
                    text(&wanted.engine)
                );
            }
        }
    }
    let fatal = findings.iter().filter(|finding| finding.is_fatal()).count();
    let all = wanted
        .list
        .files
        .len()
        .saturating_add(wanted.list.images.len());
    anyhow::ensure!(
        fatal == 0,
        "{fatal} of {all} files and images are missing or wrong"
    );
    if matches!(options.output, Output::Text) {
        println!("all {all} files and images are there");
    }
    Ok(())
}

/// What is missing before a plan, in words. None: nothing, or nobody asks.
pub(crate) async fn missing(
    global: &Global,
    cluster: &Cluster,
    objects: &Objects,
) -> anyhow::Result<Option<String>> {
    let layout = Layout::new(global.private_data_directory()?);
    // The plan says what must be changed first.
    let Ok(found) = preview::with_playbooks(cluster, objects, &layout).await else {
        return Ok(None);
    };
    let (inputs, checkout) = found;
    if !inputs.mirrored {
        return Ok(None);
    }
    let namespace = cluster
        .namespace()
        .unwrap_or_else(|| global.namespace.clone());
    let facts = layout
        .cluster(&namespace, &cluster.name_any())
        .join("facts");
    let sandbox = sandbox::of_release(global, inputs.kubespray, &checkout.directory).await?;
    let asking = Asking {
        inputs: &inputs,
        checkout: &checkout.directory,
        ansible_playbook: sandbox.ansible_playbook(),
        processors: Processors::of_facts(&inputs, &facts),
    };
    let wanted = interruptible(async { Ok(kubespray::mirror::wanted(&asking).await?) }).await?;
    let findings = kubespray::mirror::missing(&wanted).await?;
    let complaint = kubespray::mirror::complaint(&findings);
    Ok(complaint.map(|missing| {
        format!(
            "{}: {missing}; {}",
            kubespray::mirror::INCOMPLETE,
            kubespray::mirror::REMEDY
        )
    }))
}
