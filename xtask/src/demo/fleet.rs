//! `cargo xtask demo --fleet`: twenty-one clusters from one inventory. One is raised on throw-away hosts; the others are made by providers of
//! Cluster API, with machines in memory. A site is edited, the canary fails and holds the roll-out, it is mended, and goes through.

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::Stdio,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use e2e::{Management, NAMESPACE, Stage, wait_until};
use lab::{command::output, progress::Terminal};
use serde_json::{Value, json};

use super::{
    HEALTH, build, first_lines, follow, go_on, heading, healthy, keep, next, nodes, on_hosts,
    raised, show,
};

/// Where the inventory is.
const FLEET: &str = "fleet";
/// The sites. At each are so many clusters.
const SITES: [&str; 4] = ["fra1", "ams2", "waw1", "sto1"];
const AT_EACH: usize = 5;
/// The cluster that is raised on hosts, and goes first.
const FIRST: &str = "first";
/// How much of what is long is shown.
const FIRST_LINES: usize = 24;
/// How long the operator may take to begin.
const NOTICED: Duration = Duration::from_mins(3);
/// How long all clusters may take; machines in memory take the processors that the playbooks leave.
const WELL: Duration = Duration::from_mins(15);

/// What the site says: of the beginning, of an edit that cannot work, and of that edit, mended.
const BEGINNING: &str = "dns: [10.77.0.53]";
const WRONG: &str = "dns: [10.77.0.53, 10.77.0.54]\n    proxy: ebpf";
const MENDED: &str = "dns: [10.77.0.53, 10.77.0.54]";

/// Plays it; whatever it made is gone when it ends.
pub(super) fn play(keep_up: bool, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let [_, newest] = Management::VERSIONS;
    heading("What is needed (kept for the next time)");
    println!("windlass, and the providers' managers: about ten minutes the first time");
    build(false)?;
    heading(
        "A real cluster of one node, with Windlass beside it, and three hosts (about a minute)",
    );
    let options = on_hosts(3, 0);
    let progress = Terminal::default();
    let windlass = options.windlass.clone();
    let management = Management::set_beside(windlass, &["--fleet"], options.hosts, &progress)?;
    let stage = Stage::beside(&management, options, &progress)?;
    go_on(interrupted)?;
    heading(&format!(
        "Four providers of Cluster API {newest}, by their objects (about a minute)"
    ));
    management.preload(newest)?;
    management.install(newest)?;
    show(&mut management.windlass(&["providers", "status"]))?;
    let tour = Tour {
        management: &management,
        stage: &stage,
        interrupted,
        directory: stage.lab.dir().join("inventory"),
    };
    tour.write()?;
    tour.look()?;
    tour.born()?;
    tour.edit_that_fails()?;
    tour.mend()?;
    next(&stage);
    println!(
        "  the inventory is in {}, the fleet in the namespace {FLEET}",
        tour.directory.display()
    );
    if keep_up {
        keep(interrupted);
    }
    Ok(())
}

/// The way through it.
struct Tour<'a> {
    management: &'a Management,
    stage: &'a Stage,
    interrupted: &'a AtomicBool,
    directory: PathBuf,
}

impl Tour<'_> {
    /// Writes the inventory.
    fn write(&self) -> anyhow::Result<()> {
        fs::create_dir(&self.directory).context("failed to make the inventory")?;
        self.file("levels.yaml", include_str!("fleet/levels.yaml"))?;
        self.file("templates.yaml", &self.templates()?)?;
        for site in SITES {
            self.site(site, BEGINNING)?;
        }
        self.file("clusters.yaml", &self.clusters())
    }

    fn file(&self, name: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.directory.join(name), text)
            .with_context(|| format!("failed to write {name}"))
    }

    /// The templates, with the kubespray that the stage has.
    fn templates(&self) -> anyhow::Result<String> {
        let mut templates: Vec<Value> =
            serde_saphyr::from_multiple(include_str!("fleet/templates.yaml"))?;
        for template in &mut templates {
            if template["spec"]["backEnd"] == "Kubespray" {
                self.stage
                    .choose(&mut template["spec"]["documents"][0]["object"]["spec"]);
            }
        }
        let texts: Result<Vec<_>, _> = templates.iter().map(serde_saphyr::to_string).collect();
        Ok(texts?.join("---\n"))
    }

    fn site(&self, site: &str, says: &str) -> anyhow::Result<()> {
        let text = format!(
            "apiVersion: inventory.windlass.dev/v1alpha1\nkind: Site\nmetadata: {{name: {site}}}\nspec:\n  parents: {{customer: acme}}\n  values:\n    {says}\n---\n\
             apiVersion: inventory.windlass.dev/v1alpha1\nkind: InfraProvider\nmetadata: {{name: memory-{site}}}\nspec:\n  parents: {{site: {site}}}\n  template: cluster-api\n"
        );
        self.file(&format!("{site}.yaml"), &text)
    }

    /// The clusters, with the little that is their own.
    fn clusters(&self) -> String {
        let mut text = format!(
            "apiVersion: inventory.windlass.dev/v1alpha1\nkind: InfraProvider\nmetadata: {{name: metal}}\nspec:\n  parents: {{site: {}}}\n  template: kubespray\n",
            SITES[0]
        );
        let head = "---\napiVersion: inventory.windlass.dev/v1alpha1\nkind: FleetCluster\n";
        let _ = write!(
            text,
            "{head}metadata: {{name: {FIRST}}}\nspec:\n  parents: {{infraProvider: metal}}\n  values:\n    namespace: {NAMESPACE}\n    nodes:\n"
        );
        for (number, host) in self.stage.hosts().iter().enumerate() {
            let (name, kind) = match number {
                0 => ("master-1".to_owned(), "master"),
                number => (format!("worker-{number}"), "worker"),
            };
            let _ = writeln!(
                text,
                "      {name}: {{address: {}, type: {kind}}}",
                host.address
            );
        }
        let all = SITES
            .iter()
            .flat_map(|site| (1..=AT_EACH).map(move |number| (site, number)));
        for (site, number) in all {
            let stage = if number == 2 { "staging" } else { "live" };
            let _ = write!(
                text,
                "{head}metadata: {{name: {site}-{number}, labels: {{stage: {stage}}}}}\nspec: {{parents: {{infraProvider: memory-{site}}}}}\n"
            );
        }
        text
    }

    fn look(&self) -> anyhow::Result<()> {
        heading("One inventory of twenty-one clusters: windlass inventory check, render, explain");
        println!(
            "one is of kubespray, on the hosts; twenty are of Cluster API: a control plane and a worker each, in the memory of the \
             provider of its own tests\n"
        );
        self.inventory(&["check"])?;
        println!("\na cluster, as people write it:");
        println!("  FleetCluster ams2-1: {{parents: {{infraProvider: memory-ams2}}}}");
        println!("\nand what it is rendered to:");
        let directory = self.directory.display().to_string();
        let render = ["inventory", "render", "ams2-1", "-f", &directory];
        first_lines(
            &output(&mut self.stage.windlass_in(FLEET, &render))?,
            FIRST_LINES,
        );
        println!("\nwhere a field of it comes from:");
        self.inventory(&[
            "explain",
            "ams2-1",
            "KubeadmControlPlane/ams2-1:spec.version",
        ])
    }

    fn inventory(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = self.stage.windlass_in(FLEET, &["inventory"]);
        show(command.args(arguments).arg("-f").arg(&self.directory))
    }

    fn born(&self) -> anyhow::Result<()> {
        heading(
            "kubectl apply: the clusters are made, and the one of kubespray is raised on its hosts (some minutes)",
        );
        let label = json!({"inventory.windlass.dev/fleet": FLEET});
        self.stage.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}},
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": label}},
            self.stage.secret()?,
        ]}))?;
        self.apply()?;
        wait_until("the cluster on hosts to be made", NOTICED, || {
            go_on(self.interrupted)?;
            Ok(self.stage.object("clusters.kubespray.k8s.io", FIRST).ok())
        })?;
        let raising = Instant::now();
        follow(self.stage, self.interrupted).context("the cluster was not raised")?;
        println!("raised in {} s", raising.elapsed().as_secs());
        healthy(self.stage, &HEALTH[..1])?;
        raised(self.stage)?;
        self.all_well()?;
        println!();
        self.clusters_of_the_api()?;
        self.machines()
    }

    /// Waits until all clusters are well, and tells how many are.
    fn all_well(&self) -> anyhow::Result<()> {
        let all = SITES.len() * AT_EACH + 1;
        let began = Instant::now();
        let mut shown = 0;
        self.until("all to be well", WELL, |tour| {
            let well = tour.well()?;
            if well != shown {
                println!(
                    "{:>4} s  {well} of {all} are well",
                    began.elapsed().as_secs()
                );
                shown = well;
            }
            Ok((well == all).then_some(()))
        })
    }

    fn machines(&self) -> anyhow::Result<()> {
        println!("\nand the machines of the first site in memory:");
        let of = format!("{}-2", SITES[0]);
        let cluster = format!("cluster.x-k8s.io/cluster-name={of}");
        let get = [
            "get",
            "--namespace",
            FLEET,
            "machines.cluster.x-k8s.io",
            "--selector",
            &cluster,
        ];
        show(&mut self.stage.kubectl(&get))
    }

    fn apply(&self) -> anyhow::Result<()> {
        let apply = ["apply", "--namespace", FLEET, "--filename"];
        output(self.stage.kubectl(&apply).arg(&self.directory)).map(drop)
    }

    fn edit_that_fails(&self) -> anyhow::Result<()> {
        let untouched = self.applied()?;
        self.edit(
            "An edit of the site fra1, which cannot work: kube-proxy in a mode that there is not",
            WRONG,
        )?;
        self.until_rollout("to halt", |status| status["phase"] == "Halted")?;
        heading(
            "It is halted: the canary was refused before a host was touched, and no other cluster was begun",
        );
        show(
            &mut self
                .stage
                .kubectl(&["get", "--namespace", FLEET, "rollouts"]),
        )?;
        let changed: Vec<_> = self
            .applied()?
            .into_iter()
            .filter(|cluster| !untouched.contains(cluster))
            .map(|(name, _)| name)
            .collect();
        ensure!(
            changed.iter().all(|name| name == FIRST),
            "begun though the canary failed: {changed:?}"
        );
        println!("\nthe cluster on the hosts still runs:");
        nodes(self.stage)
    }

    fn mend(&self) -> anyhow::Result<()> {
        self.edit(
            "The edit, mended: it takes the place of the one that failed",
            MENDED,
        )?;
        self.until_rollout("to end", |status| {
            let history = status["history"].as_array();
            let mut records = history.into_iter().flatten();
            records.any(|record| record["phase"] == "Succeeded")
        })?;
        heading("It went through");
        show(
            &mut self
                .stage
                .kubectl(&["get", "--namespace", FLEET, "rollouts"]),
        )?;
        for record in self.rollout()?["history"].as_array().into_iter().flatten() {
            println!(
                "run {}: {}, {} of {} clusters done",
                word(&record["id"]),
                word(&record["phase"]),
                record["done"],
                record["done"].as_u64().unwrap_or_default()
                    + record["notDone"].as_u64().unwrap_or_default(),
            );
        }
        self.all_well()?;
        println!();
        self.clusters_of_the_api()?;
        self.machines()?;
        nodes(self.stage)
    }

    /// Edits the first site: says what it would change, then has it changed.
    fn edit(&self, title: &str, says: &str) -> anyhow::Result<()> {
        go_on(self.interrupted)?;
        heading(title);
        self.site(SITES[0], says)?;
        println!("spec.values of Site/{}:\n    {says}\n", SITES[0]);
        println!(
            "whom it reaches, before anything moves: windlass inventory plan -f {}",
            self.directory.display()
        );
        let mut plan = self.stage.windlass_in(FLEET, &["inventory", "plan", "-f"]);
        let plan = plan.arg(&self.directory).stdin(Stdio::null()).output();
        let plan = plan.context("failed to run windlass inventory plan")?;
        ensure!(
            plan.status.code() == Some(1),
            "the plan shows no change: {}",
            String::from_utf8_lossy(&plan.stderr)
        );
        let plan = String::from_utf8_lossy(&plan.stdout);
        first_lines(&plan, FIRST_LINES);
        println!("{}\n", plan.lines().last().unwrap_or_default());
        self.apply()
    }

    /// Shows how the roll-out goes until its status is so.
    fn until_rollout(&self, what: &str, is: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut shown = String::new();
        self.until(
            &format!("the roll-out {what}"),
            self.stage.patience(),
            |tour| {
                let status = tour.rollout()?;
                let progress = progress(&status);
                if progress != shown {
                    println!("{:>4} s  {progress}", began.elapsed().as_secs());
                    shown = progress;
                }
                Ok(is(&status).then_some(()))
            },
        )
    }

    fn until(
        &self,
        what: &str,
        limit: Duration,
        mut ask: impl FnMut(&Self) -> anyhow::Result<Option<()>>,
    ) -> anyhow::Result<()> {
        let interrupted = self.interrupted;
        let waited = wait_until(what, limit, || {
            go_on(interrupted)?;
            ask(self)
        });
        waited.with_context(|| format!("Windlass said:\n{}", self.management.said()))
    }

    fn rollout(&self) -> anyhow::Result<Value> {
        Ok(self.get("rollout/all")?["status"].take())
    }

    fn fleet_clusters(&self) -> anyhow::Result<Vec<Value>> {
        match self.get("fleetclusters")?["items"].take() {
            Value::Array(clusters) => Ok(clusters),
            other => anyhow::bail!("kubectl listed {other}"),
        }
    }

    fn get(&self, what: &str) -> anyhow::Result<Value> {
        let get = ["get", "--namespace", FLEET, what, "--output", "json"];
        serde_json::from_str(&output(&mut self.stage.kubectl(&get))?)
            .context("kubectl printed no JSON")
    }

    fn well(&self) -> anyhow::Result<usize> {
        let clusters = self.fleet_clusters()?;
        let well = clusters
            .iter()
            .filter(|cluster| cluster["status"]["health"] == "Well");
        Ok(well.count())
    }

    /// What each cluster was made from.
    fn applied(&self) -> anyhow::Result<Vec<(String, String)>> {
        let clusters = self.fleet_clusters()?.into_iter();
        let pair = |cluster: Value| {
            let status = &cluster["status"];
            let target = status.get("target").unwrap_or(&status["applied"]);
            (word(&cluster["metadata"]["name"]), word(target))
        };
        Ok(clusters.map(pair).collect())
    }

    fn clusters_of_the_api(&self) -> anyhow::Result<()> {
        show(
            &mut self
                .stage
                .kubectl(&["get", "--namespace", FLEET, "fleetclusters"]),
        )
    }
}

/// A line of how a roll-out stands.
fn progress(status: &Value) -> String {
    let clusters = status["run"]["clusters"].as_array();
    let members = |phase: &str| {
        let members = clusters.into_iter().flatten();
        let names = members.filter(|member| member["phase"] == phase);
        let names: Vec<_> = names.map(|member| word(&member["name"])).collect();
        (!names.is_empty()).then(|| format!("{}: {}", phase.to_lowercase(), names.join(", ")))
    };
    let phases = ["Done", "Soaking", "Updating", "Failed"];
    let told: Vec<_> = phases.iter().filter_map(|phase| members(phase)).collect();
    format!("{:<10} {}", word(&status["phase"]), told.join("; "))
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
