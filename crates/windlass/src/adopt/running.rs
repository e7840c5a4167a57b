//! The cluster that runs: what a person lets be known of it, and where the objects contradict that.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use api::KubernetesVersion;
use controller::kubeconfig::{self, Foreign};
use kube::Client;
use kubespray::{
    adopt::{
        Adopted,
        live::{self, Live},
        members::{self, Member},
    },
    problem::Problem,
};

use super::files;
use crate::cli::Adopt;

/// How long the cluster that runs may take to be looked at.
const LOOK: Duration = Duration::from_secs(30);

/// What is known.
#[derive(Default)]
pub(super) struct Running {
    live: Option<Live>,
    listed: Option<Vec<Member>>,
}

impl Running {
    /// Looks at what the options name. Nothing is known where they name nothing.
    pub(super) async fn look(options: &Adopt) -> anyhow::Result<Self> {
        let listed = options.etcd_members.as_deref().map(listed).transpose()?;
        let live = match &options.live {
            Some(kubeconfig) => Some(look(kubeconfig, &options.inventory).await?),
            None => None,
        };
        Ok(Self { live, listed })
    }

    /// Whether the API of the cluster was asked.
    pub(super) const fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// The version that all nodes have.
    pub(super) fn version(&self) -> Option<KubernetesVersion> {
        self.live.as_ref()?.version()
    }

    /// The members of etcd, as far as they are known.
    pub(super) fn members(&self) -> Vec<Member> {
        let live = || self.live.as_ref().map(Live::members);
        self.listed.clone().or_else(live).unwrap_or_default()
    }

    /// Where the objects contradict it.
    pub(super) fn contradictions(&self, adopted: &Adopted) -> Vec<Problem> {
        let live = self.live.as_ref();
        let mut told = live.map_or_else(Vec::new, |live| live.contradictions(adopted));
        let listed = self.listed.as_ref();
        told.extend(listed.map_or_else(Vec::new, |list| members::contradictions(list, adopted)));
        told.dedup();
        told
    }

    /// What is likely to be wrong.
    pub(super) fn doubts(&self, adopted: &Adopted) -> Vec<String> {
        let live = self.live.as_ref();
        live.map_or_else(Vec::new, |live| live.doubts(adopted))
    }
}

/// The members in a file.
fn listed(file: &Path) -> anyhow::Result<Vec<Member>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    members::read(&text).map_err(|problem| anyhow::anyhow!("{}: {problem}", file.display()))
}

async fn look(named: &OsStr, inventory: &[PathBuf]) -> anyhow::Result<Live> {
    let (file, client) = if named.is_empty() {
        let file = files::kubeconfig(inventory)?;
        let client = of_inventory(&file).await;
        (file, client)
    } else {
        let file = PathBuf::from(named);
        let client = of_person(&file).await;
        (file, client)
    };
    let client =
        client.with_context(|| format!("failed to use the kubeconfig {}", file.display()))?;
    let looked = tokio::time::timeout(LOOK, live::look(&client)).await;
    let looked = looked.with_context(|| {
        let seconds = LOOK.as_secs();
        format!(
            "the cluster of {} does not answer within {seconds} s",
            file.display()
        )
    })?;
    looked.context("failed to look at the cluster that runs")
}

/// By the kubeconfig of a person, with whatever logs them in.
async fn of_person(file: &Path) -> anyhow::Result<Client> {
    let config = kubeconfig::own(file, None).await?;
    Client::try_from(config).context("failed to make a client")
}

/// By that of an inventory, of which nothing is run.
async fn of_inventory(file: &Path) -> anyhow::Result<Client> {
    let bytes = fs::read(file).context("failed to read it")?;
    let config = Foreign::read(&bytes)?;
    let addresses = tokio::time::timeout(LOOK, config.addresses()).await??;
    Ok(config.client(addresses, LOOK)?)
}
