//! `windlass openstack`: services of OpenStack for people who look at them, and who do steps by hand.

use std::path::Path;

use ::openstack::{
    action::Action,
    audit::{self, Expected},
    charts::Chart,
    cloud, definition, names,
    release::Change,
    seed,
    subject::Observed,
    wish::{Operation, Wanted, Wish},
};
use anyhow::{Context, bail};
use api::{
    Run,
    openstack::{IdentitySeed, OpenStack, OpenStackService, Phase, Standing},
    run::{Action as StepAction, Plan, Step},
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use runs::object;
use serde_json::Value;

use crate::{
    cli::{Global, Openstack, OpenstackFile, RunStep},
    client::answered,
    manifest::{self, Opener},
    terminal,
};

mod backups;
mod explain;
mod foreign;
mod render;

/// Runs one of the commands.
pub(crate) async fn openstack(global: &Global, command: &Openstack) -> anyhow::Result<()> {
    match command {
        Openstack::Plan(of) => plan(of),
        Openstack::Render(options) => render::render(global, options).await,
        Openstack::Explain(options) => explain::explain(options),
        Openstack::Status => status(global).await,
        Openstack::Run(options) => run(global, options).await,
        Openstack::Backup(options) => backups::backup(global, options).await,
        Openstack::Backups(options) => backups::list(global, options).await,
        Openstack::Drill(options) => backups::drill(global, options).await,
        Openstack::Restore(options) => backups::restore(global, options).await,
        Openstack::InstallChart(options) => foreign::install(global, options).await,
        Openstack::Charts { directory } => charts(directory),
    }
}

/// The objects of a file: clouds, services with those of the clouds, and seeds.
struct Read {
    clouds: Vec<OpenStack>,
    services: Vec<OpenStackService>,
    seeds: Vec<IdentitySeed>,
}

fn read(of: &OpenstackFile) -> anyhow::Result<Read> {
    let mut read = Read {
        clouds: Vec::new(),
        services: Vec::new(),
        seeds: Vec::new(),
    };
    let objects = manifest::read(
        &Opener::new(&of.age_keys),
        std::slice::from_ref(&of.filename),
    )?;
    // What the API would refuse, or drop without a word.
    manifest::valid::check(&objects)?;
    for object in objects {
        let kind = object.types.as_ref().map(|types| types.kind.clone());
        let value = serde_json::to_value(object).context("failed to read an object")?;
        match kind.as_deref() {
            Some("OpenStack") => read.clouds.push(typed(value)?),
            Some("OpenStackService") => read.services.push(typed(value)?),
            Some("IdentitySeed") => read.seeds.push(typed(value)?),
            _ => {}
        }
    }
    if read.clouds.is_empty() && read.services.is_empty() && read.seeds.is_empty() {
        bail!(
            "{} holds no OpenStack, no OpenStackService and no IdentitySeed",
            of.filename.display()
        );
    }
    for cloud in &read.clouds {
        read.services.extend(services_of(cloud)?);
    }
    Ok(read)
}

/// The services of a cloud, as it would store them.
fn services_of(cloud: &OpenStack) -> anyhow::Result<Vec<OpenStackService>> {
    let inputs: cloud::Inputs = serde_json::from_value(Value::Object(wanted(cloud)?.inputs))?;
    let services = inputs.services.into_iter().map(|spec| {
        let name = cloud::service_name(&cloud.name_any(), &spec.service);
        let mut service = OpenStackService::new(&name, spec);
        service.metadata.namespace = cloud.namespace();
        service
    });
    Ok(services.collect())
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> anyhow::Result<T> {
    serde_json::from_value(value).context("failed to read an object of OpenStack")
}

fn wanted<K: Wish>(object: &K) -> anyhow::Result<Wanted> {
    object
        .wanted()
        .map_err(|problems| anyhow::anyhow!("{}", controller::problem::text(&problems)))
}

fn plan(of: &OpenstackFile) -> anyhow::Result<()> {
    let read = read(of)?;
    for cloud in &read.clouds {
        say(&format!("OpenStack {}", cloud.name_any()));
        let wanted = wanted(cloud)?;
        if wanted.parallelism > 1 {
            say(&format!(
                "  up to {} services side by side",
                wanted.parallelism
            ));
        }
        if cloud.spec.services.len() > 1 {
            say("  an update has one after the other, each once the one before is Ready");
        }
        let inputs = serde_json::from_value(Value::Object(wanted.inputs))?;
        let writes = audit::of_cloud(&cloud.name_any(), &inputs, &wanted.install);
        show(&wanted.install, &writes);
    }
    for service in &read.services {
        let name = service.name_any();
        say(&format!("OpenStackService {name}"));
        let wanted = wanted(service)?;
        let mut steps = wanted.every_step();
        // What stands instead of a step in runs that are no installation.
        let is_shown = |hook: &Step| steps.iter().any(|step| step.title == hook.title);
        let hooks = wanted.hooks.iter().map(|hook| &hook.step);
        let others: Vec<_> = hooks.filter(|hook| !is_shown(hook)).cloned().collect();
        steps.extend(others);
        let inputs = serde_json::from_value(Value::Object(wanted.inputs))?;
        let definition = definition::find(&service.spec.service)
            .with_context(|| format!("no service is called {}", service.spec.service))?;
        let namespace = service.namespace();
        let place = (name.as_str(), namespace.as_deref().unwrap_or("default"));
        let writes = audit::of_service(place, (&inputs, definition), &steps);
        show(&steps, &writes);
    }
    for seed in &read.seeds {
        say(&format!("IdentitySeed {}", seed.name_any()));
        let steps = wanted(seed)?.install;
        show(&steps, &seed::written(&seed::Inputs::of(seed), &steps));
    }
    Ok(())
}

/// The steps, and below each what it writes and what it asks.
fn show(steps: &[Step], writes: &[Expected]) {
    for step in steps {
        say(&format!("  {:20} {}", step.id, step.title));
        for line in lines(step, writes) {
            say(&format!("  {:20}   {line}", ""));
        }
    }
}

/// What a step writes and what it asks, a line each.
fn lines(step: &Step, writes: &[Expected]) -> Vec<String> {
    let of_step = writes.iter().filter(|write| write.step == step.id);
    let mut lines: Vec<_> = of_step
        .map(|write| {
            let shared = if write.is_shared {
                ", unless it is there"
            } else {
                ""
            };
            format!("{}{shared}", write.what)
        })
        .collect();
    if let StepAction::Approve(approve) = &step.action {
        lines.push(format!("asks a person: {}", approve.question));
    }
    match Action::of(step) {
        Some(Action::Job(job)) => lines.push(format!("runs {}", job.command.join(" "))),
        Some(Action::Hook(hook)) => lines.push(hook.told()),
        Some(Action::CheckConfig | Action::CheckComponent(_)) => {
            lines.push("runs oslo.config's validator".to_owned());
        }
        Some(Action::IssueToken) => {
            lines.push("asks POST /v3/auth/tokens, GET /v3/auth/tokens".to_owned());
        }
        Some(Action::Ask(ask)) => lines.push(format!("asks GET {}", ask.path)),
        Some(Action::AwaitKeystone) => lines.push("asks POST /v3/auth/tokens".to_owned()),
        _ => {}
    }
    let lines = lines.into_iter();
    lines.map(|line| api::text::plain(&line, 4096)).collect()
}

fn say(line: &str) {
    println!("{}", terminal::text(line));
}

async fn status(global: &Global) -> anyhow::Result<()> {
    let client = global.client().await?;
    let namespace = &global.namespace;
    let clouds = Api::<OpenStack>::namespaced(client.clone(), namespace);
    let clouds = answered(clouds.list(&ListParams::default()).await, "list OpenStacks")?;
    let services = Api::<OpenStackService>::namespaced(client.clone(), namespace);
    let services = answered(
        services.list(&ListParams::default()).await,
        "list OpenStackServices",
    )?;
    let seeds = Api::<IdentitySeed>::namespaced(client, namespace);
    let seeds = answered(
        seeds.list(&ListParams::default()).await,
        "list IdentitySeeds",
    )?;
    let header = ["OBJECT", "GOAL", "PHASE", "STEPS", "BLOCKED-ON"];
    let clouds = clouds.items.iter().map(row);
    let services = services.items.iter().map(row);
    let seeds = seeds.items.iter().map(row);
    let all = clouds.chain(services).chain(seeds);
    println!("{}", terminal::table(header, all));
    Ok(())
}

fn row<K: Wish>(object: &K) -> [String; 5] {
    let Standing {
        phase,
        goal,
        steps,
        blocked_on,
        ..
    } = object.standing().cloned().unwrap_or_default();
    [
        format!("{} {}", K::kind(&()), object.name_any()),
        goal.unwrap_or_else(|| "-".to_owned()),
        phase.map_or_else(|| "-".to_owned(), |phase| format!("{phase:?}")),
        steps.unwrap_or_else(|| "-".to_owned()),
        terminal::text(&blocked_on.unwrap_or_else(|| "-".to_owned())),
    ]
}

/// Does a step of the service of that name, or else of the cloud, or of the seed.
async fn run(global: &Global, options: &RunStep) -> anyhow::Result<()> {
    let client = global.client().await?;
    let services = Api::<OpenStackService>::namespaced(client.clone(), &global.namespace);
    let service = services.get_opt(&options.object).await;
    if let Some(service) = answered(service, "read the OpenStackService")? {
        return run_of(&service, client, options).await;
    }
    let clouds = Api::<OpenStack>::namespaced(client.clone(), &global.namespace);
    let cloud = clouds.get_opt(&options.object).await;
    if let Some(cloud) = answered(cloud, "read the OpenStack")? {
        return run_of(&cloud, client, options).await;
    }
    let seeds = Api::<IdentitySeed>::namespaced(client.clone(), &global.namespace);
    let seed = answered(
        seeds.get_opt(&options.object).await,
        "read the IdentitySeed",
    )?;
    let seed = seed.with_context(|| unknown(&options.object, &global.namespace))?;
    run_of(&seed, client, options).await
}

fn unknown(object: &str, namespace: &str) -> String {
    format!(
        "there is no OpenStackService, no OpenStack and no IdentitySeed {object:?} in namespace {namespace}: windlass openstack status lists those that are"
    )
}

async fn run_of<K: Wish>(object: &K, client: Client, options: &RunStep) -> anyhow::Result<()> {
    let wanted = wanted(object)?;
    let namespace = object.namespace().unwrap_or_default();
    let runs = Api::<Run>::namespaced(client.clone(), &namespace);
    let runs = answered(runs.list(&ListParams::default()).await, "list the runs")?;
    let mut own: Vec<_> = runs.items;
    own.retain(|run| object::is_of(run, object));
    own.sort_by_cached_key(object::age);
    let observed = Observed {
        runs: own,
        ..Observed::default()
    };
    match observed.change(&wanted) {
        Ok(Some(Change::Release)) => bail!(
            "its release changes, which is for a run of the whole: wait for it (windlass openstack status), or name the release that is there"
        ),
        Err(problem) => bail!("{problem}"),
        Ok(_) => {}
    }
    let (id, plan) = one_step(wanted, &options.step)?;
    let mut actions = plan.steps.iter().filter_map(Action::of);
    let needs_rest = actions.find_map(|action| action.needs_rest());
    if let Some(why) = needs_rest.filter(|_| !is_at_rest(object)) {
        bail!(
            "{} is not Ready as its spec says, and {id} {why}: wait for it (windlass openstack status), or mend it",
            object.name_any()
        );
    }
    let operation = Operation::Step.name();
    let name = object::next(object, operation, &observed.runs);
    let generation = object.meta().generation.unwrap_or_default();
    let run = object::of(object, name.clone(), operation, generation, plan);
    let stored = object::store(&client, names::MANAGER, run).await;
    answered(stored, "store the run")?;
    println!("run {name} does step {id}; windlass logs and kubectl get run {name} tell of it");
    Ok(())
}

/// Whether it is what its spec says, and works.
fn is_at_rest<K: Wish>(object: &K) -> bool {
    object.standing().is_some_and(|standing| {
        standing.observed_generation == object.meta().generation
            && standing.phase == Some(Phase::Ready)
    })
}

/// The plan of the one step that is meant, by its id or the end of it, and that id.
fn one_step(mut wanted: Wanted, meant: &str) -> anyhow::Result<(String, Plan)> {
    wanted.install = wanted.every_step();
    wanted.hooks.clear();
    wanted.install.append(&mut wanted.by_hand);
    let ids: Vec<_> = wanted.install.iter().map(|step| step.id.clone()).collect();
    wanted.install.retain(|step| is_meant(&step.id, meant));
    let [step] = wanted.install.as_mut_slice() else {
        bail!(
            "{meant:?} names no single step; the steps are {}",
            ids.join(", ")
        );
    };
    step.depends_on.clear();
    let id = step.id.clone();
    let plan = wanted.plan(Operation::Step, "a person asked for it")?;
    Ok((id, plan))
}

/// Whether a step of that id is meant: by the id, or the end of it.
fn is_meant(id: &str, meant: &str) -> bool {
    let last = id.rsplit('/').next();
    id == meant || id.replace('/', "-") == meant || last == Some(meant)
}

fn charts(directory: &Path) -> anyhow::Result<()> {
    crate::objects::refuse_used(directory)?;
    for chart in Chart::ALL {
        let place = directory.join(chart.name());
        chart
            .write(&place)
            .with_context(|| format!("failed to write {}", place.display()))?;
        println!("{}", place.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_at_rest_when_it_is_ready_as_its_spec_says() {
        let service = |generation: i64, phase: &str| -> OpenStackService {
            serde_json::from_value(json!({
                "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
                "metadata": {"name": "identity", "namespace": "cloud", "generation": 2},
                "spec": {"service": "keystone", "image": "keystone:1",
                    "database": {"host": "db", "adminSecret": {"name": "admin"}}},
                "status": {"observedGeneration": generation, "phase": phase},
            }))
            .unwrap()
        };
        assert!(is_at_rest(&service(2, "Ready")));
        assert!(!is_at_rest(&service(1, "Ready")));
        assert!(!is_at_rest(&service(2, "Unhealthy")));
    }

    #[test]
    fn what_a_cloud_asks_for_where_a_service_is_gone_is_a_step_of_it() {
        let cloud: OpenStack = serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
            "metadata": {"name": "one", "namespace": "cloud", "uid": "u"},
            "spec": {
                "release": "2026.2",
                "database": {"managed": {"image": "registry.example/mariadb:10.11"}},
                "services": [{"name": "keystone", "image": "registry.example/keystone:30.0.0"}],
            },
        }))
        .unwrap();
        let (id, plan) = one_step(wanted(&cloud).unwrap(), "keystone/declare").unwrap();
        assert_eq!(id, "keystone/declare");
        assert_eq!(plan.steps.len(), 1);
        let refused = one_step(wanted(&cloud).unwrap(), "database").unwrap_err();
        assert!(
            refused.to_string().contains("keystone/declare"),
            "{refused}"
        );
    }
}
