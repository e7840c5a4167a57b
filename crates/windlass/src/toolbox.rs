//! `windlass node cordon`, `uncordon`, `drain` and `restart`, and `windlass cluster`: what people do to nodes and certificates of a built
//! cluster, each a run.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use api::{
    Cluster, HostName, Run,
    run::{RecordEvent, RunPhase},
};
use controller::kubeconfig::Foreign;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt, api::ListParams, runtime::wait::await_condition};
use kubespray::{
    Layout,
    cluster::built::{built_by, built_with},
    operation::toolbox::{ASKED, Part, Request, Verb},
    preview, secret, token,
    workload::Workload,
};
use runs::{is_active, object::age, phase};
use secrecy::ExposeSecret;
use serde::Deserialize;

use crate::{
    cli::{
        Certificates, ClusterCommand, ClusterToken, DrainNodes, Global, Node, OnNodes, Output,
        PartName, RestartNodes, Shown,
    },
    client::{answered, is_of, named_or_only},
    converge::{answer_of, possible, request_of},
    plan,
    terminal::{self, complain, say},
};

/// How long a run may take that people wait for: its runner has to start, and hosts to be asked.
const RUN: Duration = Duration::from_mins(10);

/// Carries out what is done to nodes, if a command is of that.
pub(crate) async fn nodes(global: &Global, command: &Node) -> anyhow::Result<()> {
    let (verb, nodes) = match command {
        Node::Cordon(nodes) => (Verb::Cordon, nodes),
        Node::Uncordon(nodes) => (Verb::Uncordon, nodes),
        Node::Drain(DrainNodes { force, nodes }) => (Verb::Drain { forced: *force }, nodes),
        Node::Restart(RestartNodes { component, nodes }) => {
            (Verb::Restart(part(*component)), nodes)
        }
        Node::Remove(_) | Node::Replace(_) | Node::Reset(_) | Node::Keep(_) => return Ok(()),
    };
    let OnNodes { names, shown } = nodes;
    let request = Request {
        verb,
        hosts: names.clone(),
    };
    let client = global.client().await?;
    let cluster = cluster(global, &client, None).await?;
    ask(global, client, &cluster, &request, shown).await
}

/// Carries out `windlass cluster`.
pub(crate) async fn cluster_command(
    global: &Global,
    command: &ClusterCommand,
) -> anyhow::Result<()> {
    match command {
        ClusterCommand::Token(options) => {
            if let Some((token, _)) = made(global, options).await? {
                say!("{token}");
            }
            Ok(())
        }
        ClusterCommand::JoinCommand(options) => {
            if let Some((token, kubeconfig)) = made(global, options).await? {
                say!("{}", joining(&kubeconfig, &token).await?);
            }
            Ok(())
        }
        ClusterCommand::Certificates(options) => certificates(global, options).await,
    }
}

const fn part(name: PartName) -> Part {
    match name {
        PartName::Kubelet => Part::Kubelet,
        PartName::ContainerEngine => Part::ContainerEngine,
        PartName::Etcd => Part::Etcd,
        PartName::KubeApiserver => Part::ApiServer,
        PartName::KubeControllerManager => Part::ControllerManager,
        PartName::KubeScheduler => Part::Scheduler,
    }
}

async fn cluster(global: &Global, client: &Client, name: Option<&str>) -> anyhow::Result<Cluster> {
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, name).await?;
    let runs = Api::namespaced(client.clone(), &global.namespace);
    possible(&cluster, &runs, &ASKED).await?;
    Ok(cluster)
}

/// Asks for it and says what the operator answers, or shows what would be done.
async fn ask(
    global: &Global,
    client: Client,
    cluster: &Cluster,
    request: &Request,
    shown: &Shown,
) -> anyhow::Result<()> {
    if shown.dry_run {
        return show(global, &client, cluster, request, shown.output).await;
    }
    let clusters = Api::namespaced(client, &global.namespace);
    request_of(
        global,
        clusters,
        &cluster.name_any(),
        &ASKED,
        written(request)?,
    )
    .await
}

/// Shows what would be done.
async fn show(
    global: &Global,
    client: &Client,
    cluster: &Cluster,
    request: &Request,
    output: Output,
) -> anyhow::Result<()> {
    let text = written(request)?;
    let layout = Layout::new(global.private_data_directory()?);
    let asked = (ASKED.annotation, text.as_str());
    let mut preview = preview::asked(client, cluster, asked, &layout).await?;
    preview::foresee(client, &mut preview).await;
    plan::show(&[preview], output)
}

/// The request as an annotation; what the operator would refuse of it is said at once.
fn written(request: &Request) -> anyhow::Result<String> {
    let text = request.text(&Timestamp::now().to_string());
    let read: Result<Request, _> = text.parse();
    if let Err(problem) = read {
        bail!("nothing was done: {}; {}", problem.rule, problem.remedy);
    }
    Ok(text)
}

/// Asks for it, and waits for the end of its run.
async fn done(
    global: &Global,
    client: &Client,
    cluster: &Cluster,
    request: &Request,
) -> anyhow::Result<Run> {
    let text = written(request)?;
    let clusters = Api::namespaced(client.clone(), &global.namespace);
    let run = answer_of(clusters, &cluster.name_any(), &ASKED, text).await?;
    complain!("run {run} is carried out");
    let runs: Api<Run> = Api::namespaced(client.clone(), &global.namespace);
    let ended = await_condition(runs, &run, |run: Option<&Run>| {
        run.is_none_or(|run| !is_active(phase(run)))
    });
    let ended = tokio::time::timeout(RUN, ended)
        .await
        .with_context(|| format!("run {run} takes long: follow it with windlass status --watch"))??
        .with_context(|| format!("run {run} is gone"))?;
    let failure = ended
        .status
        .as_ref()
        .and_then(|status| status.failure.clone());
    ensure!(
        phase(&ended) == RunPhase::Succeeded,
        "run {run} failed: {}; windlass explain failure {run} says more",
        failure.map_or_else(|| "nobody said why".to_owned(), |failure| failure.message)
    );
    Ok(ended)
}

/// A token that a run makes, read where the cluster keeps it, and the kubeconfig that leads there; nothing where it is only shown what
/// would be done.
async fn made(
    global: &Global,
    options: &ClusterToken,
) -> anyhow::Result<Option<(String, Foreign)>> {
    let client = global.client().await?;
    let cluster = cluster(global, &client, options.cluster.as_deref()).await?;
    let request = Request {
        verb: Verb::Token {
            expires: options.expires,
        },
        hosts: Vec::new(),
    };
    if options.shown.dry_run {
        show(global, &client, &cluster, &request, options.shown.output).await?;
        return Ok(None);
    }
    let run = done(global, &client, &cluster, &request).await?;
    let name = cluster.name_any();
    let kubeconfig = secret::read_kubeconfig(&client, &global.namespace, &name)
        .await?
        .with_context(|| format!("the kubeconfig of cluster {name} is gone"))?;
    let workload = Workload::connect(&kubeconfig)
        .await
        .map_err(anyhow::Error::msg)?;
    let id = token::id(&run.uid().unwrap_or_default());
    let stored = workload.token(&id).await.map_err(anyhow::Error::msg)?;
    let token = stored
        .as_ref()
        .and_then(token::whole)
        .with_context(|| format!("the cluster has no token {id} any more: ask for another one"))?;
    Ok(Some((token, kubeconfig)))
}

/// The part of a kubeconfig that says where a cluster is, and by what it is known.
#[derive(Deserialize)]
struct Clusters {
    clusters: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    cluster: Place,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Place {
    server: String,
    certificate_authority_data: String,
}

impl Place {
    fn read(kubeconfig: &str) -> anyhow::Result<Self> {
        let clusters: Clusters =
            serde_saphyr::from_str(kubeconfig).context("the kubeconfig names no cluster")?;
        let first = clusters.clusters.into_iter().next();
        Ok(first.context("the kubeconfig names no cluster")?.cluster)
    }
}

/// The command by which a node joins: at the address that the cluster itself tells, by the authority that the kubeconfig knows.
async fn joining(kubeconfig: &Foreign, token: &str) -> anyhow::Result<String> {
    let own = Place::read(kubeconfig.document().expose_secret())?;
    let workload = Workload::connect(kubeconfig)
        .await
        .map_err(anyhow::Error::msg)?;
    let told = workload
        .told_to_joining()
        .await
        .map_err(anyhow::Error::msg)?;
    let told = told
        .and_then(|map| map.data?.remove("kubeconfig"))
        .context("the cluster has no ConfigMap kube-public/cluster-info, by which nodes join: use the token as you need it")?;
    let server = Place::read(&told)?.server;
    let endpoint = token::endpoint(&server).with_context(|| {
        format!(
            "kube-public/cluster-info names {:?}, which is no address of an API server",
            terminal::text(&server)
        )
    })?;
    let authority = token::authority_hash(&own.certificate_authority_data)
        .context("the kubeconfig has no authority")?;
    Ok(token::join_command(&endpoint, token, &authority))
}

async fn certificates(global: &Global, options: &Certificates) -> anyhow::Result<()> {
    let client = global.client().await?;
    let cluster = cluster(global, &client, options.cluster.as_deref()).await?;
    let hosts = if options.node.is_empty() {
        all(global, &client, &cluster.name_any()).await?
    } else {
        options.node.clone()
    };
    let request = Request {
        verb: Verb::Certificates,
        hosts,
    };
    if options.shown.dry_run {
        return show(global, &client, &cluster, &request, options.shown.output).await;
    }
    let run = done(global, &client, &cluster, &request).await?;
    let history = run.status.iter().flat_map(|status| &status.history);
    let mut said = history
        .filter(|record| record.event == RecordEvent::StepSucceeded)
        .filter(|record| record.step.as_deref() == Some("certificates/look"))
        .filter_map(|record| record.detail.as_deref());
    say!("{}", terminal::text(said.next_back().unwrap_or_default()));
    global.say(&format!(
        "all of them: windlass logs {} --step certificates/look",
        run.name_any()
    ));
    Ok(())
}

/// The hosts of a cluster as it was built.
async fn all(global: &Global, client: &Client, cluster: &str) -> anyhow::Result<Vec<HostName>> {
    let runs: Api<Run> = Api::namespaced(client.clone(), &global.namespace);
    let runs = answered(runs.list(&ListParams::default()).await, "list the runs")?;
    let mut runs: Vec<Run> = runs.items;
    runs.retain(|run| is_of(run, cluster));
    runs.sort_by_key(age);
    let built = built_by(&runs)
        .and_then(built_with)
        .context("the runs are gone that know the hosts of the cluster: name them with --node")?;
    Ok(built
        .hosts
        .iter()
        .filter_map(|host| host.name.parse().ok())
        .collect())
}
