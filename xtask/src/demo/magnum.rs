//! `cargo xtask demo --magnum`: a cluster for a user of OpenStack, on throw-away hosts, by the commands that they know.

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use e2e::{Cloud, Stage};
use lab::{Kubernetes, progress::Terminal};

use super::{go_on, heading, keep, needed, next_of, on_hosts, show, watch};

/// How long may pass until the objects of a change are there, and until what is told of them is told.
const NOTICED: Duration = Duration::from_mins(2);

/// Plays it; whatever it made is gone when it ends.
pub(super) fn play(keep_up: bool, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let mut life = Life {
        cloud: cloud()?,
        interrupted,
        entries: Vec::new(),
    };
    life.template()?;
    life.create()?;
    life.resize()?;
    if keep_up {
        next_of(&life.cloud.stage, &life.namespace()?);
        keep(interrupted);
        return Ok(());
    }
    life.delete()?;
    life.told();
    Ok(())
}

fn cloud() -> anyhow::Result<Cloud> {
    let kubespray = needed()?;
    let stage = Stage::set_with(on_hosts(3, 0), kubespray, &Terminal::default())?;
    heading("Keystone, three hosts that answer ssh, and `windlass up --magnum`");
    let cloud = Cloud::over(stage, &Terminal::default())?;
    println!("Keystone answers on {}", cloud.keystone.address);
    println!("the hosts, in the pool of the Magnum API:");
    show(&mut cloud.stage.kubectl(&["get", "hosts.magnum.windlass.dev"]))?;
    Ok(cloud)
}

/// The way through it, and what is told of it at the end.
struct Life<'a> {
    cloud: Cloud,
    interrupted: &'a AtomicBool,
    entries: Vec<(&'static str, Duration)>,
}

impl Life<'_> {
    fn template(&self) -> anyhow::Result<()> {
        let version = format!("kube_tag=v{}", Kubernetes::Newest.version()?);
        self.coe(&[
            "cluster",
            "template",
            "create",
            "metal",
            "--coe",
            "kubernetes",
            "--server-type",
            "bm",
            "--image",
            "debian",
            "--external-network",
            "none",
            "--labels",
            &version,
        ])
    }

    fn create(&mut self) -> anyhow::Result<()> {
        let asked = Instant::now();
        self.coe(&[
            "cluster",
            "create",
            "first",
            "--cluster-template",
            "metal",
            "--node-count",
            "1",
        ])?;
        self.until("CREATE_COMPLETE")?;
        self.coe(&["cluster", "list"])?;
        self.nodes(2)?;
        self.entries.push(("created, two hosts", asked.elapsed()));
        Ok(())
    }

    fn resize(&mut self) -> anyhow::Result<()> {
        let asked = Instant::now();
        self.coe(&["cluster", "resize", "first", "2"])?;
        self.until("UPDATE_COMPLETE")?;
        self.coe(&["nodegroup", "list", "first"])?;
        self.nodes(3)?;
        self.entries.push(("resized by one host", asked.elapsed()));
        Ok(())
    }

    fn delete(&mut self) -> anyhow::Result<()> {
        let asked = Instant::now();
        self.coe(&["cluster", "delete", "first"])?;
        self.cloud.until_gone(self.cloud.stage.patience())?;
        self.entries.push(("deleted, hosts reset", asked.elapsed()));
        self.coe(&["cluster", "list"])?;
        println!("no host is claimed:");
        show(
            &mut self
                .cloud
                .stage
                .kubectl(&["get", "hosts.magnum.windlass.dev"]),
        )
    }

    /// Shows a command as a user types it, and what it answers.
    fn coe(&self, arguments: &[&str]) -> anyhow::Result<()> {
        go_on(self.interrupted)?;
        heading(&format!("openstack coe {}", arguments.join(" ")));
        show(&mut self.cloud.coe(arguments))
    }

    /// Follows what kubespray does for the cluster until the Magnum API tells of its end.
    fn until(&self, state: &str) -> anyhow::Result<()> {
        let namespace = self.namespace()?;
        self.cloud.begun("first", NOTICED)?;
        println!("what builds it: windlass --namespace {namespace} status --watch");
        let status = ["status", "--watch"];
        watch(
            &mut self.cloud.stage.windlass_in(&namespace, &status),
            self.interrupted,
        )?;
        self.cloud
            .until("first", state, self.cloud.stage.patience())?;
        Ok(())
    }

    /// The nodes as a user sees them, by the kubeconfig that the API signs.
    fn nodes(&self, count: usize) -> anyhow::Result<()> {
        go_on(self.interrupted)?;
        heading("openstack coe cluster config first; kubectl get nodes");
        let kubeconfig = self.cloud.config("first")?;
        self.cloud.ready_nodes(&kubeconfig, count, NOTICED)?;
        let nodes = ["get", "nodes", "--output", "wide"];
        show(&mut self.cloud.stage.kubectl_by(&kubeconfig, &nodes))?;
        let whoami = ["auth", "whoami"];
        show(&mut self.cloud.stage.kubectl_by(&kubeconfig, &whoami))
    }

    fn namespace(&self) -> anyhow::Result<String> {
        self.cloud.namespace("first")
    }

    fn told(&self) {
        heading("What happened");
        for (what, took) in &self.entries {
            println!("{what:<24}{:>5} s", took.as_secs());
        }
    }
}
