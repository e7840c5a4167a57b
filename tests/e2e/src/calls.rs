//! Calls of the API of a cluster all the time, as people and controllers make them, and which of them failed.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

/// Objects of a kind that is served in several versions.
#[derive(Clone, Debug)]
pub struct Called {
    /// The group.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The plural.
    pub plural: &'static str,
    /// The versions, and the spec that each has.
    pub specs: Vec<(&'static str, Value)>,
    /// Whether objects are only tried: they would have controllers do something.
    pub is_tried: bool,
    /// How often, in milliseconds.
    pub every: u64,
}

/// What became of the calls to one kind.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The kind.
    pub kind: String,
    /// How many calls there were.
    pub calls: u64,
    /// How many of them failed.
    pub failed: u64,
    /// The longest time in which none succeeded while some failed.
    pub gap: Duration,
    /// What the first failure said, and the last one.
    pub said: Vec<String>,
}

/// Calls that go on until they are ended.
#[derive(Debug)]
pub struct Calls {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<anyhow::Result<Tally>>>,
}

impl Calls {
    /// Begins to create, read and delete objects of these kinds, each through one version after the other and read through all of
    /// them. `owner` is a process in the network of the API.
    pub fn start(owner: u32, kubeconfig: &Path, kinds: Vec<Called>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = kinds.into_iter().map(|called| {
            let (stop, kubeconfig) = (Arc::clone(&stop), kubeconfig.to_owned());
            std::thread::spawn(move || in_network(owner, kubeconfig, &called, &stop))
        });
        let threads = threads.collect();
        Self { stop, threads }
    }

    /// Ends them, and says what became of them.
    ///
    /// # Errors
    ///
    /// They could not begin.
    pub fn end(self) -> anyhow::Result<Vec<Tally>> {
        self.stop.store(true, Ordering::Relaxed);
        let ends = self.threads.into_iter().map(|thread| {
            thread
                .join()
                .map_err(|_| anyhow!("the calls panicked"))
                .flatten()
        });
        ends.collect()
    }
}

/// A thread has a network of its own, and so has all that runs on it.
fn in_network(
    owner: u32,
    kubeconfig: PathBuf,
    called: &Called,
    stop: &AtomicBool,
) -> anyhow::Result<Tally> {
    on_network(owner, call(kubeconfig, called, stop))
}

/// Works on this thread in the network of a process.
pub(crate) fn on_network<T>(
    owner: u32,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let network = File::open(format!("/proc/{owner}/ns/net")).context("find the network")?;
    setns(network, CloneFlags::CLONE_NEWNET).context("enter the network")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start a runtime")?;
    runtime.block_on(work)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the lab's own kubeconfig, which kubeadm has just written"
)]
pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    // More than one provider may be compiled in; the first one that is installed is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = kube::config::Kubeconfig::read_from(kubeconfig).context("read the kubeconfig")?;
    let mut config =
        kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default())
            .await
            .context("use the kubeconfig")?;
    config.read_timeout = Some(Duration::from_secs(10));
    Client::try_from(config).context("make a client")
}

async fn call(kubeconfig: PathBuf, called: &Called, stop: &AtomicBool) -> anyhow::Result<Tally> {
    let client = client(&kubeconfig).await?;
    let apis: Vec<_> = called
        .specs
        .iter()
        .map(|(version, spec)| {
            let kind = GroupVersionKind::gvk(called.group, version, called.kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, called.plural);
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), "default", &resource);
            let object =
                move |name: &str| DynamicObject::new(name, &resource).data(json!({"spec": spec}));
            (api, object)
        })
        .collect();
    let mut seen = Seen::new(called.kind);
    let mut ticks = interval(Duration::from_millis(called.every));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let trying = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let kept = "kept";
    if called.is_tried
        && let Some((api, object)) = apis.first()
    {
        match api.create(&PostParams::default(), &object(kept)).await {
            // Of calls before these: it is paused, so nobody lets it go.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.context("create the object that is read")?),
        }
    }
    for turn in 0_usize.. {
        ticks.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let Some((api, object)) = apis.get(turn % apis.len()) else {
            break;
        };
        let name = format!("called-{turn}");
        let (parameters, read) = if called.is_tried {
            (&trying, kept)
        } else {
            (&PostParams::default(), name.as_str())
        };
        if !seen.saw(api.create(parameters, &object(&name)).await) && !called.is_tried {
            continue;
        }
        for (api, _) in &apis {
            seen.saw(api.get(read).await);
        }
        if !called.is_tried {
            seen.saw(api.delete(&name, &DeleteParams::default()).await);
        }
    }
    if called.is_tried
        && let Some((api, _)) = apis.first()
    {
        let _ = api.delete(kept, &DeleteParams::default()).await;
    }
    Ok(seen.tally)
}

struct Seen {
    tally: Tally,
    well: Instant,
    is_well: bool,
}

impl Seen {
    fn new(kind: &str) -> Self {
        Self {
            tally: Tally {
                kind: kind.to_owned(),
                ..Tally::default()
            },
            well: Instant::now(),
            is_well: true,
        }
    }

    /// Whether it succeeded.
    fn saw<T>(&mut self, answer: kube::Result<T>) -> bool {
        self.tally.calls += 1;
        match answer {
            Ok(_) => {
                if !self.is_well {
                    self.tally.gap = self.tally.gap.max(self.well.elapsed());
                }
                (self.well, self.is_well) = (Instant::now(), true);
            }
            Err(error) => {
                self.tally.failed += 1;
                self.is_well = false;
                self.tally.said.truncate(1);
                self.tally.said.push(format!("{error:?}"));
            }
        }
        self.is_well
    }
}
