//! `windlass status`: the cluster, its run, the steps and the hosts; live with `--watch`.
//!
//! A terminal gets a tree that is drawn over itself, everything else one line an edge. Both come from the same objects,
//! which are watched, never polled.

mod lines;
mod steps;
mod tree;

use std::{io::IsTerminal, process::ExitCode};

use anyhow::Context;
use api::{Cluster, ClusterNode, Run, cluster::ClusterState, run::RunPhase};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Resource, ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, watcher},
};
use runs::object::age;
use serde_json::json;

pub(crate) use steps::Steps;

use crate::{
    cli::{Global, Output, Status},
    client::{is_of, named_or_only},
    terminal::{self, shown},
};

/// Everything that is shown.
#[derive(Clone, Debug, Default)]
struct View {
    cluster: Option<Cluster>,
    nodes: Vec<ClusterNode>,
    run: Option<Run>,
}

/// Shows the status once, or follows it until the operation ends.
pub(crate) async fn status(global: &Global, options: &Status) -> anyhow::Result<ExitCode> {
    let client = global.client().await?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let nodes: Api<ClusterNode> = Api::namespaced(client.clone(), &global.namespace);
    let runs: Api<Run> = Api::namespaced(client, &global.namespace);
    let cluster = named_or_only(&clusters, options.cluster.as_deref()).await?;
    let name = cluster.name_any();
    let run = newest_run(&runs, &name).await?;
    if options.watch {
        // Those before it are over, and nothing of them is shown.
        let view = View {
            run: run.map(shown),
            ..View::default()
        };
        return follow(&name, view, clusters, nodes, runs).await;
    }
    let mut view = View {
        run,
        cluster: Some(cluster),
        nodes: Vec::new(),
    };
    view.nodes = nodes
        .list(&ListParams::default())
        .await
        .context("failed to list the nodes")?
        .items;
    match options.output {
        Output::Text => tree::render(&shown_view(view), width())
            .iter()
            .for_each(|line| println!("{line}")),
        Output::Json => println!("{}", terminal::json(&document(&view))?),
        Output::Yaml => println!("{}", terminal::yaml(&document(&view))?),
    }
    Ok(ExitCode::SUCCESS)
}

/// The lines of a run alone, as they were at that time.
pub(crate) fn of_run(run: Run, now: Timestamp) -> Vec<String> {
    tree::of_run(&shown(run), now)
}

fn shown_view(view: View) -> View {
    View {
        run: view.run.map(shown),
        cluster: view.cluster.map(shown),
        nodes: view.nodes.into_iter().map(shown).collect(),
    }
}

fn document(view: &View) -> serde_json::Value {
    json!({"cluster": view.cluster, "nodes": view.nodes, "run": view.run})
}

async fn newest_run(runs: &Api<Run>, cluster: &str) -> anyhow::Result<Option<Run>> {
    let runs = runs
        .list(&ListParams::default())
        .await
        .context("failed to list the runs")?
        .items;
    Ok(runs
        .into_iter()
        .filter(|run| is_of(run, cluster))
        .max_by_key(age))
}

enum Change {
    Cluster(Box<Cluster>),
    ClusterDeleted,
    Node(Box<ClusterNode>),
    NodeDeleted(String),
    Run(Box<Run>),
}

async fn follow(
    name: &str,
    mut view: View,
    clusters: Api<Cluster>,
    nodes: Api<ClusterNode>,
    runs: Api<Run>,
) -> anyhow::Result<ExitCode> {
    let mut changes = futures::stream::select_all([
        changes(clusters, |event| match event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                Some(Change::Cluster(Box::new(shown(object))))
            }
            watcher::Event::Delete(_) => Some(Change::ClusterDeleted),
            _ => None,
        }),
        changes(nodes, |event| match event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                Some(Change::Node(Box::new(shown(object))))
            }
            watcher::Event::Delete(object) => Some(Change::NodeDeleted(object.name_any())),
            _ => None,
        }),
        changes(runs, |event| match event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                Some(Change::Run(Box::new(shown(object))))
            }
            _ => None,
        }),
    ]);
    let mut screen = Screen::new();
    while let Some(change) = changes.try_next().await.context("the watch ended")? {
        if !view.take(change, name) {
            continue;
        }
        screen.show(&view);
        if let Some(code) = view.end() {
            return Ok(code);
        }
    }
    anyhow::bail!("the watch ended")
}

fn changes<K>(
    api: Api<K>,
    pick: fn(watcher::Event<K>) -> Option<Change>,
) -> BoxStream<'static, Result<Change, watcher::Error>>
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| async move {
            match event {
                Ok(event) => pick(event).map(Ok),
                // The API may be restarting: the watcher comes back by itself.
                Err(error) => {
                    tracing::debug!(%error, "the watch was interrupted");
                    None
                }
            }
        })
        .boxed()
}

impl View {
    /// Takes a change in; says whether it concerns the cluster of that name.
    fn take(&mut self, change: Change, name: &str) -> bool {
        match change {
            Change::Cluster(cluster) if cluster.name_any() == name => self.cluster = Some(*cluster),
            Change::ClusterDeleted => self.cluster = None,
            Change::Node(node) => {
                let key = node.name_any();
                match self.nodes.binary_search_by_key(&key, ResourceExt::name_any) {
                    Ok(index) => self.nodes[index] = *node,
                    Err(index) => self.nodes.insert(index, *node),
                }
            }
            Change::NodeDeleted(key) => self.nodes.retain(|node| node.name_any() != key),
            Change::Run(run) if is_of(&run, name) => {
                if self
                    .run
                    .as_ref()
                    .is_some_and(|shown| age(shown) > age(&run))
                {
                    return false;
                }
                self.run = Some(*run);
            }
            Change::Cluster(_) | Change::Run(_) => return false,
        }
        true
    }

    /// The exit code once there is nothing more to follow.
    fn end(&self) -> Option<ExitCode> {
        let state = self.cluster.as_ref()?.status.as_ref()?.state?;
        let run = self
            .run
            .as_ref()
            .and_then(|run| run.status.as_ref())
            .map(|status| status.phase);
        match (state, run) {
            (ClusterState::Created, Some(RunPhase::Succeeded)) => Some(ExitCode::SUCCESS),
            (ClusterState::Failed, _) | (_, Some(RunPhase::Cancelled)) => Some(ExitCode::FAILURE),
            _ => None,
        }
    }
}

/// Where changes are shown.
enum Screen {
    Tree {
        drawn: usize,
        terminal: console::Term,
    },
    Lines(lines::Lines),
}

impl Screen {
    fn new() -> Self {
        if std::io::stdout().is_terminal() {
            Self::Tree {
                drawn: 0,
                terminal: console::Term::stdout(),
            }
        } else {
            Self::Lines(lines::Lines::default())
        }
    }

    fn show(&mut self, view: &View) {
        match self {
            Self::Tree { drawn, terminal } => {
                let (height, width) = terminal.size();
                let mut lines = tree::render(view, usize::from(width));
                lines.truncate(usize::from(height).saturating_sub(1));
                // A terminal that went away is no reason to end: the work goes on elsewhere.
                let cleared = terminal.clear_last_lines(*drawn);
                let written = lines.iter().try_for_each(|line| terminal.write_line(line));
                *drawn = lines.len();
                if let Err(error) = cleared.and(written) {
                    tracing::debug!(%error, "failed to draw");
                }
            }
            Self::Lines(lines) => lines.edges(view).iter().for_each(|line| println!("{line}")),
        }
    }
}

/// As wide as the terminal; a file or a pipe takes lines of any length.
pub(crate) fn width() -> usize {
    let terminal = console::Term::stdout();
    if terminal.is_term() {
        usize::from(terminal.size().1).max(80)
    } else {
        usize::MAX
    }
}
