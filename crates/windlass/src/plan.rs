//! `windlass plan` and `windlass converge --dry-run`: what would be done, in which order, on which hosts and why. Nothing is
//! touched.

use std::collections::BTreeSet;

use anyhow::Context;
use api::{
    Cluster, ClusterNode,
    cluster::Pending,
    run::{Gate, OnBreach, Plan as Steps, Step},
};
use controller::hint::placed;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, TypeMeta},
};
use kubespray::{
    Layout,
    cluster::pending::named,
    preview::{self, Objects, Preview, PreviewOutcome},
    remedies,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    apply,
    cli::{Global, Output, Plan},
    manifest::{self, Opener},
    mirror,
    terminal::{self, complain, say, table, text},
};

/// Shows the plan of every Cluster in the files, or of the API. A plan that cannot be made is an error that says what to mend.
pub(crate) async fn plan(global: &Global, options: Plan) -> anyhow::Result<()> {
    if options.live {
        return show(&live(global, &options).await?, options.output);
    }
    let read = manifest::read(&Opener::new(&options.age_keys), &options.filename)?;
    for other in manifest::valid::check(&read)? {
        complain!("left aside: {}", text(&other));
    }
    let objects = objects(global, read)?;
    anyhow::ensure!(
        !objects.clusters.is_empty(),
        "there is no Cluster in the files"
    );
    let mut previews =
        preview::preview(&objects, &Layout::new(global.private_data_directory()?)).await;
    for preview in previews.iter_mut().filter(|_| options.check_mirror) {
        let mut clusters = objects.clusters.iter();
        let cluster = clusters.find(|cluster| is_of(cluster, preview));
        if let (PreviewOutcome::Plan(_), Some(cluster)) = (&preview.outcome, cluster) {
            match mirror::missing(global, cluster, &objects).await {
                Ok(None) => {}
                Ok(Some(missing)) => preview.outcome = PreviewOutcome::Refused(missing),
                Err(error) => preview.outcome = PreviewOutcome::Refused(format!("{error:#}")),
            }
        }
    }
    show(&previews, options.output)
}

fn is_of(cluster: &Cluster, preview: &Preview) -> bool {
    let namespace = cluster.namespace().unwrap_or_else(|| "default".to_owned());
    cluster.name_any() == preview.cluster && namespace == preview.namespace
}

/// What would be done next about the Clusters of the API, or about those of the namespaces that the files speak of.
async fn live(global: &Global, options: &Plan) -> anyhow::Result<Vec<Preview>> {
    let files = &options.filename;
    let client = global.client().await?;
    let layout = Layout::new(global.private_data_directory()?);
    let mut applied = Objects::default();
    if !files.is_empty() {
        let mut merged = Vec::new();
        for object in manifest::read(&Opener::new(&options.age_keys), files)? {
            // As the API would hold it, which also refuses what it would refuse.
            if object.types.as_ref().is_some_and(is_planned) {
                merged.push(apply::merged(&client, global, &object).await?);
            }
        }
        applied = objects(global, merged)?;
    }
    let clusters = applied.clusters.iter().filter_map(ResourceExt::namespace);
    let nodes = applied.nodes.iter().filter_map(ResourceExt::namespace);
    let mut namespaces: BTreeSet<String> = clusters.chain(nodes).collect();
    if files.is_empty() {
        namespaces.insert(global.namespace.clone());
    }
    let mut previews = Vec::new();
    for namespace in namespaces {
        let api: Api<Cluster> = Api::namespaced(client.clone(), &namespace);
        let mut clusters = api
            .list(&ListParams::default())
            .await
            .with_context(|| format!("failed to list the Clusters of {namespace}"))?
            .items;
        let newer = applied.clusters.iter();
        for cluster in newer.filter(|cluster| cluster.namespace().as_ref() == Some(&namespace)) {
            clusters.retain(|held| held.name_any() != cluster.name_any());
            clusters.push(cluster.clone());
        }
        anyhow::ensure!(!clusters.is_empty(), "namespace {namespace} has no Cluster");
        for cluster in clusters {
            let mut next = preview::next(&client, &cluster, &applied.nodes, &layout).await?;
            preview::foresee(&client, &mut next).await;
            previews.push(next);
        }
    }
    Ok(previews)
}

fn is_planned(types: &TypeMeta) -> bool {
    types.api_version == "kubespray.k8s.io/v1"
}

/// Prints. That there is a cluster about which nothing would be done is an error.
pub(crate) fn show(previews: &[Preview], output: Output) -> anyhow::Result<()> {
    match output {
        Output::Text => previews.iter().for_each(print),
        Output::Json => say!("{}", terminal::json(&documents(previews))?),
        Output::Yaml => say!("{}", terminal::yaml(&documents(previews))?),
    }
    let unready = previews
        .iter()
        .filter(|preview| {
            !matches!(
                preview.outcome,
                PreviewOutcome::Plan(_) | PreviewOutcome::Nothing(_)
            )
        })
        .count();
    anyhow::ensure!(
        unready == 0,
        "nothing would be done about {unready} of {} clusters",
        previews.len()
    );
    Ok(())
}

pub(crate) fn objects(global: &Global, read: Vec<DynamicObject>) -> anyhow::Result<Objects> {
    let mut objects = Objects::default();
    for mut object in read {
        let Some(types) = object.types.clone() else {
            continue;
        };
        object
            .metadata
            .namespace
            .get_or_insert_with(|| global.namespace.clone());
        match (types.api_version.as_str(), types.kind.as_str()) {
            ("kubespray.k8s.io/v1", "Cluster") => objects.clusters.push(typed::<Cluster>(object)?),
            ("kubespray.k8s.io/v1", "ClusterNode") => {
                objects.nodes.push(typed::<ClusterNode>(object)?);
            }
            ("v1", "Secret") => objects.secrets.push(typed::<Secret>(object)?),
            ("v1", "ConfigMap") => objects.config_maps.push(typed::<ConfigMap>(object)?),
            _ => {}
        }
    }
    Ok(objects)
}

fn typed<K: DeserializeOwned>(object: DynamicObject) -> anyhow::Result<K> {
    let kind = object
        .types
        .as_ref()
        .map(|types| types.kind.clone())
        .unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or_default();
    serde_json::to_value(object)
        .and_then(serde_json::from_value)
        .with_context(|| format!("{kind} {name} is not valid"))
}

fn print(preview: &Preview) {
    let text = |line: &str| text(&placed(line, &preview.namespace));
    let cluster = format!("cluster {}/{}", preview.namespace, preview.cluster);
    say!("{}", terminal::text(&cluster));
    for change in &preview.changes {
        say!("  changed since it was built: {}", text(change));
    }
    match &preview.outcome {
        PreviewOutcome::Plan(plan) => print_plan(plan),
        PreviewOutcome::Problems(problems) => {
            for problem in problems {
                say!("  {}", text(&problem.to_string()));
            }
        }
        PreviewOutcome::Waiting(missing) => {
            say!("  waiting for {}", text(&missing.join(", ")));
        }
        PreviewOutcome::NoPlaybooks(why) => {
            say!("  the playbooks cannot be had: {}", text(why));
        }
        PreviewOutcome::Refused(why) => say!("  it would be refused: {}", text(why)),
        PreviewOutcome::Nothing(why) => say!("  nothing: {}", text(why)),
    }
    for line in &preview.drains {
        say!("  drain: {}", text(line));
    }
    for line in afterwards(preview) {
        say!("  {}", text(&line));
    }
}

/// What the plan waits for, and what comes after it.
fn afterwards(preview: &Preview) -> Vec<String> {
    let waits = preview.waits.iter().map(|waits| {
        format!(
            "{waits}; to start it now: windlass maintain {}",
            preview.cluster
        )
    });
    let pending = preview.pending.iter().map(then);
    waits.chain(pending).collect()
}

/// One operation that waits, as people read it.
pub(crate) fn then(pending: &Pending) -> String {
    let Pending {
        operation,
        reason: _,
        message,
        hosts,
    } = pending;
    format!("then: {}: {message}", named(operation, hosts))
}

fn print_plan(plan: &Steps) {
    if let Some(reason) = &plan.reason {
        say!("  {}", text(reason));
    }
    let beside = plan.parallelism.filter(|many| *many > 1);
    let header = ["", "STEP", "HOSTS", "WHAT"].into_iter();
    let header = header.chain(beside.map(|_| "AFTER"));
    let number = |id: &String| {
        let at = plan.steps.iter().position(|step| step.id == *id);
        at.map(|at| (at + 1).to_string())
    };
    let mut told = None;
    let rows = plan.steps.iter().enumerate().map(|(index, step)| {
        // A gate that stays the same is told once.
        let gate = step.gate.as_ref().filter(|gate| told != Some(*gate));
        told = step.gate.as_ref().or(told);
        let after: Vec<_> = step.depends_on.iter().filter_map(number).collect();
        let row = [
            (index + 1).to_string(),
            step.id.clone(),
            hosts(plan, step),
            what(step, gate),
        ];
        row.into_iter().chain(beside.map(|_| after.join(", ")))
    });
    say!("{}", table(header, rows));
    if let Some(many) = beside {
        say!("  up to {many} steps run side by side, each after those that it names");
    }
    if let Some(allowed) = remedies::allowed(plan) {
        say!("  may run by itself where a step fails: {}", text(&allowed));
    }
    say!("  digest {}", plan.digest);
}

/// The hosts by name while they are few, else their number.
fn hosts(plan: &Steps, step: &Step) -> String {
    let hosts: Vec<_> = plan.targets(step).map(ToString::to_string).collect();
    match hosts.len() {
        0 => "-".into(),
        1..=3 => hosts.join(" "),
        many => format!("{many} hosts"),
    }
}

fn what(step: &Step, gate: Option<&Gate>) -> String {
    let Some(gate) = gate else {
        return step.title.clone();
    };
    let breach = match gate.on_breach {
        OnBreach::Fail => "the run fails",
        OnBreach::Exclude => "they are left out all the same",
        OnBreach::Pause => "the run pauses",
    };
    format!(
        "{}; if from here on more than {} do not answer, {breach}",
        step.title, gate.unreachable
    )
}

fn documents(previews: &[Preview]) -> Value {
    let one = |preview: &Preview| {
        let (key, value) = match &preview.outcome {
            PreviewOutcome::Plan(plan) => ("plan", json!(plan)),
            PreviewOutcome::Problems(problems) => (
                "problems",
                json!(problems.iter().map(ToString::to_string).collect::<Vec<_>>()),
            ),
            PreviewOutcome::Waiting(missing) => ("waiting", json!(missing)),
            PreviewOutcome::NoPlaybooks(why) => ("noPlaybooks", json!(why)),
            PreviewOutcome::Refused(why) => ("refused", json!(why)),
            PreviewOutcome::Nothing(why) => ("nothing", json!(why)),
        };
        let mut document =
            json!({"namespace": preview.namespace, "cluster": preview.cluster, key: value});
        if !preview.changes.is_empty() {
            document["changes"] = json!(preview.changes);
        }
        if let Some(waits) = &preview.waits {
            document["waits"] = json!(waits);
        }
        if !preview.drains.is_empty() {
            document["drains"] = json!(preview.drains);
        }
        if !preview.pending.is_empty() {
            document["pending"] = json!(preview.pending);
        }
        document
    };
    Value::Array(previews.iter().map(one).collect())
}
