//! `windlass inventory`: a fleet from files, without any API: rendered, explained, compared, checked; and that of the API: planned, steered.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use ansible::mask::MASK;
use anyhow::Context;
use api::inventory::{FleetCluster, Rollout};
use controller::hint::placed;
use fleet::rollout::{
    self,
    waves::{Candidate, names_nothing},
};
use inventory::{
    Fleet, Hidden, Object, Problems, Rendered,
    diff::{self, Change, ClusterChange},
    explain::{Contribution, Explanation, Question, Removed},
};
use kube::ResourceExt as _;
use serde_json::Value;

use crate::{
    cli::{CheckInventory, DiffInventories, Explain, Global, Inventory, Output, Render},
    manifest::{self, Opener, sealed::is_manifest},
    terminal::{self, text, told},
};

mod back;
pub(crate) mod import;
mod live;

use live::Verb;

/// Ends with 0, with 1 where `diff` or `plan` finds a difference, and with 2 where anything is wrong.
pub(crate) async fn inventory(global: &Global, command: &Inventory) -> ExitCode {
    let done = match command {
        Inventory::Render(options) => render(global, options).await,
        Inventory::Explain(options) => explain(global, options).await,
        Inventory::Diff(options) => diff(global, options),
        Inventory::Check(options) => check(global, options),
        Inventory::Plan(options) => live::plan(global, options).await,
        Inventory::Pause(of) => live::steer(global, of, Verb::Pause).await,
        Inventory::Resume(of) => live::steer(global, of, Verb::Resume).await,
        Inventory::Abort(of) => live::steer(global, of, Verb::Abort).await,
        Inventory::Rollback(options) => back::roll_back(global, options).await,
        Inventory::Approve(of) => live::approve(global, of).await,
        Inventory::Skip(options) => live::skip(global, options).await,
        Inventory::Import(options) => import::import(global, options).await,
    };
    done.unwrap_or_else(|error| {
        let told = placed(&told(&error), &global.namespace);
        eprintln!("windlass: {}", text(&told));
        ExitCode::from(2)
    })
}

async fn render(global: &Global, options: &Render) -> anyhow::Result<ExitCode> {
    let opener = Opener::refusing("what is rendered would hold it in the open");
    let fleet = wherever(
        &opener,
        &options.filename,
        options.cluster.as_deref(),
        global,
    )
    .await?;
    let mut documents = Vec::new();
    let mut add = |rendered: Rendered| {
        documents.extend(
            rendered
                .documents
                .iter()
                .map(inventory::RenderedDocument::to_value),
        );
    };
    match &options.cluster {
        Some(name) => add(fleet.render(&cluster(name, global))?),
        None => fleet.render_all(add)?,
    }
    let mut printed = Vec::new();
    for document in &documents {
        printed.push(serde_saphyr::to_string(document).context("failed to print")?);
    }
    std::io::stdout()
        .write_all(printed.join("---\n").as_bytes())
        .context("failed to write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

async fn explain(global: &Global, options: &Explain) -> anyhow::Result<ExitCode> {
    let question: Question = options.path.as_deref().unwrap_or_default().parse()?;
    let opener = Opener::new(&options.age_keys);
    let fleet = wherever(&opener, &options.filename, Some(&options.cluster), global).await?;
    let rendered = fleet.render(&cluster(&options.cluster, global))?;
    let mut explanations = rendered
        .explain(&question)
        .map_err(|problem| anyhow::anyhow!("{problem}"))?;
    // What was made of a hidden value shows of it what it pleases.
    for explanation in &mut explanations {
        let mut values = explanation
            .from
            .iter()
            .filter_map(|from| from.value.as_ref());
        if values.any(terminal::is_hidden) {
            explanation.value = MASK.into();
        }
    }
    let removed = rendered.removed(&question);
    if explanations.is_empty() && !removed.is_empty() {
        let each = removed.iter().map(|gone| {
            let Removed { path, by, at, .. } = gone;
            let (who, place) = (&gone.removed_by, &gone.removed_at);
            format!("{path}, which {by} {at} sets and {who} {place} takes out or replaces")
        });
        let each: Vec<_> = each.collect();
        anyhow::bail!("{} has these no more: {}", options.cluster, each.join("; "));
    }
    anyhow::ensure!(
        !explanations.is_empty(),
        "{} has no {}: looked through {}, and what it is rendered to: {}",
        options.cluster,
        options.path.as_deref().unwrap_or("values"),
        rendered.levels().join(", "),
        objects(&rendered)
    );
    match options.output {
        Output::Text => explanations.iter().for_each(print_explanation),
        Output::Json => println!("{}", terminal::json(&explanations)?),
        Output::Yaml => println!("{}", terminal::yaml(&explanations)?),
    }
    Ok(ExitCode::SUCCESS)
}

fn diff(global: &Global, options: &DiffInventories) -> anyhow::Result<ExitCode> {
    let read = |place: &Path| {
        read(&Opener::new(&options.age_keys), &[place.to_owned()], global)
            .with_context(|| format!("in {}", place.display()))
    };
    let (base, head) = (read(&options.base)?, read(&options.head)?);
    let mut changes = diff::diff(&base, &head)?;
    hide(&mut changes, [&base, &head])?;
    print_changes(&changes, options.output)?;
    Ok(if changes.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Takes out of changes what was made of values that are hidden, in any of the inventories.
fn hide<'a>(
    changes: &mut [ClusterChange],
    fleets: impl IntoIterator<Item = &'a Fleet>,
) -> anyhow::Result<()> {
    if !terminal::hides() {
        return Ok(());
    }
    let mut hidden = Hidden::default();
    for fleet in fleets {
        hidden.note(fleet, terminal::is_hidden)?;
    }
    hidden.hide(changes, MASK);
    Ok(())
}

fn print_changes(changes: &[ClusterChange], output: Output) -> anyhow::Result<()> {
    match output {
        Output::Text => {
            changes.iter().for_each(print_change);
            if !changes.is_empty() {
                println!("{}", fleet::plan::summary(changes));
            }
        }
        Output::Json => println!("{}", terminal::json(&changes)?),
        Output::Yaml => println!("{}", terminal::yaml(&changes)?),
    }
    Ok(())
}

fn check(global: &Global, options: &CheckInventory) -> anyhow::Result<ExitCode> {
    let values = values(&Opener::new(&options.age_keys), &options.filename)?;
    let fleet = Fleet::read(values.clone(), &global.namespace)?;
    let mut objects = 0;
    let mut clusters = Vec::new();
    let mut levels = BTreeSet::new();
    let mut idle = fleet.idle();
    fleet.render_all(|rendered| {
        objects += rendered.documents.len();
        idle.see(&fleet, &rendered.resolved);
        let above = rendered.resolved.levels.iter();
        let above = above.filter(|source| source.object.kind != "FleetCluster");
        let above = above.map(|source| (source.level.clone(), source.object.name.clone()));
        let above: BTreeMap<_, _> = above.collect();
        levels.extend(above.keys().cloned());
        let cluster = rendered.resolved.cluster.clone();
        clusters.push((cluster, above));
    })?;
    let rollouts = rollouts(&values, &levels)?;
    println!("{} clusters, {objects} objects", clusters.len());
    let named = name_nothing(&rollouts, &values, clusters, global)?;
    for warning in idle.told().chain(named) {
        eprintln!("warning: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether an object is of a kind of the inventory.
fn is_of(value: &Value, kind: &str) -> bool {
    let group = value["apiVersion"].as_str().unwrap_or_default();
    value["kind"] == kind && group.starts_with(&format!("{}/", api::inventory::GROUP))
}

/// The roll-outs, where they can run: not what the API would refuse of them, nor what the operator would say in their status.
fn rollouts(values: &[Value], levels: &BTreeSet<String>) -> anyhow::Result<Vec<Rollout>> {
    let rollouts = values.iter().filter(|value| is_of(value, "Rollout"));
    manifest::valid::check_values(rollouts.clone())?;
    let rollouts = rollouts.cloned().map(serde_json::from_value);
    let rollouts: Vec<Rollout> = rollouts
        .collect::<Result<_, _>>()
        .context("failed to read a Rollout")?;
    let problems = rollouts.iter();
    let problems = problems.flat_map(|rollout| rollout::prevented_by(rollout, levels));
    let problems: Vec<_> = problems.collect();
    anyhow::ensure!(problems.is_empty(), Problems(problems));
    Ok(rollouts)
}

/// What roll-outs name of which there is nothing in their namespace.
fn name_nothing(
    rollouts: &[Rollout],
    values: &[Value],
    clusters: Vec<(Object, BTreeMap<String, String>)>,
    global: &Global,
) -> anyhow::Result<Vec<String>> {
    let mut labels = BTreeMap::new();
    for value in values.iter().filter(|value| is_of(value, "FleetCluster")) {
        let cluster: FleetCluster =
            serde_json::from_value(value.clone()).context("failed to read a FleetCluster")?;
        let namespace = cluster
            .namespace()
            .unwrap_or_else(|| global.namespace.clone());
        labels.insert((namespace, cluster.name_any()), cluster.labels().clone());
    }
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (cluster, levels) in clusters {
        let key = (cluster.namespace, cluster.name);
        let candidate = Candidate {
            labels: labels.remove(&key).unwrap_or_default(),
            name: key.1,
            levels,
            ..Candidate::default()
        };
        all.entry(key.0).or_default().push(candidate);
    }
    let told = rollouts.iter().flat_map(|rollout| {
        let namespace = rollout.namespace();
        let own = all.get(namespace.as_ref().unwrap_or(&global.namespace));
        names_nothing(rollout, own.map_or(&[], Vec::as_slice))
    });
    Ok(told.collect())
}

/// The inventory of files, or where there are none that of the API in the namespace of the cluster.
async fn wherever(
    opener: &Opener,
    paths: &[PathBuf],
    name: Option<&str>,
    global: &Global,
) -> anyhow::Result<Fleet> {
    if !paths.is_empty() {
        return read(opener, paths, global);
    }
    let named = name.map(|name| cluster(name, global).namespace);
    let namespace = named.unwrap_or_else(|| global.namespace.clone());
    let client = global.client().await?;
    let objects = live::objects(&client, &namespace).await?;
    Ok(Fleet::read(objects, &namespace)?)
}

fn read(opener: &Opener, paths: &[PathBuf], global: &Global) -> anyhow::Result<Fleet> {
    Ok(Fleet::read(values(opener, paths)?, &global.namespace)?)
}

/// The objects of files.
fn values(opener: &Opener, paths: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let mut files = Vec::new();
    for path in paths {
        find(path, &mut files)?;
    }
    anyhow::ensure!(!files.is_empty(), "there is no .yaml, .yml or .json file");
    let objects: Result<Vec<Value>, _> = manifest::read(opener, &files)?
        .into_iter()
        .map(serde_json::to_value)
        .collect();
    objects.context("failed to read the objects")
}

/// The files of a directory and of those below it, in order. What is hidden, as `.git`, is no part of an inventory, nor is what a
/// link leads to.
fn find(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let failed = || format!("failed to read {}", path.display());
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let kind = entry.file_type().with_context(failed)?;
        entries.push((entry.path(), kind, entry.file_name()));
    }
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    for (entry, kind, name) in entries {
        if name.to_string_lossy().starts_with('.') {
            continue;
        }
        if kind.is_dir() {
            find(&entry, files)?;
        } else if is_manifest(&entry) && kind.is_file() {
            files.push(entry);
        }
    }
    Ok(())
}

fn cluster(name: &str, global: &Global) -> Object {
    let (namespace, name) = name.split_once('/').unwrap_or((&global.namespace, name));
    Object {
        kind: "FleetCluster".into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn objects(rendered: &Rendered) -> String {
    let objects = rendered.documents.iter().map(|document| &document.object);
    let objects: Vec<_> = objects
        .take(10)
        .map(|object| format!("{}/{}", object.kind, object.name))
        .collect();
    objects.join(", ")
}

fn print_explanation(explanation: &Explanation) {
    let mut lines = vec![format!("{} = {}", explanation.path, explanation.value)];
    if let Some(template) = &explanation.template {
        lines.push(format!("  template  {template}"));
    }
    for from in &explanation.from {
        lines.extend(contribution(from));
    }
    println!("{}", text(&lines.join("\n")));
}

fn contribution(from: &Contribution) -> Vec<String> {
    let Contribution {
        path,
        what,
        value,
        by,
        level,
        at,
        strategy,
        overrode,
        removed,
    } = from;
    let Some(at) = at else {
        return vec![format!("  not set   {path}, looked through {by}")];
    };
    let shown = value
        .as_ref()
        .map_or_else(|| format!("(its {what})"), |value| format!("= {value}"));
    let level = level.as_deref().unwrap_or_default();
    let how = strategy.map_or_else(String::new, |strategy| format!(", by {strategy}"));
    let mut lines = vec![format!(
        "  from      {path} {shown}  {by} {at} (level {level}{how})"
    )];
    lines.extend(overrode.iter().map(|lower| {
        format!(
            "  overrode  {} = {}  {} {}",
            lower.path, lower.value, lower.by, lower.at
        )
    }));
    lines.extend(removed.iter().map(|gone| {
        format!(
            "  removed   {} = {}  {} {}, by {} {}",
            gone.path, gone.value, gone.by, gone.at, gone.removed_by, gone.removed_at
        )
    }));
    lines
}

fn print_change(change: &ClusterChange) {
    let mut lines = vec![format!("{} {}", word(change.change), change.cluster)];
    lines.extend(
        change
            .effects
            .iter()
            .map(|effect| format!("  effect  {effect}")),
    );
    for object in &change.objects {
        let name = &object.object;
        lines.push(format!("  {} {name}", word(object.change)));
        for leaf in &object.leaves {
            let shown = |value: &Option<Value>| {
                value
                    .as_ref()
                    .map_or_else(|| "unset".into(), Value::to_string)
            };
            lines.push(format!(
                "    {}: {} -> {}",
                leaf.path,
                shown(&leaf.before),
                shown(&leaf.after)
            ));
        }
    }
    println!("{}", text(&lines.join("\n")));
}

const fn word(change: Change) -> &'static str {
    match change {
        Change::Added => "added  ",
        Change::Removed => "removed",
        Change::Changed => "changed",
    }
}
