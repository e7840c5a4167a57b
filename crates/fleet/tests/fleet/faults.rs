//! A roll-out while the API fails by chance, its operator dies between any two writes, and clusters fail and heal: what it keeps to then,
//! and that it ends when that does.
//!
//! It is held against every version of the Rollout and of the Clusters that the API has stored, not against what the operator means to
//! do. `WINDLASS_FAULT_SEED` takes another seed than the usual ones.

use std::{
    collections::BTreeMap,
    env,
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use api::{
    Cluster,
    inventory::{
        Environment, FleetCluster, MemberPhase, Rollout, RolloutMember, RolloutPhase, RolloutRun,
    },
};
use futures::{TryStreamExt, future::join_all};
use kapi::fault::{Fault, Faults};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::{sync::Notify, task::JoinHandle, time};

use crate::world::{World, environment, inventory, is_ready, operate};

const ALL: [&str; 5] = ["a1", "a2", "b1", "b2", "c1"];
const PARALLEL: usize = 2;
const FAILURES: usize = 1;

/// How often the operator dies.
const DEATHS: usize = 8;
/// After how many writes at most: a cluster is brought to a revision by some ten.
const MOST_WRITES: usize = 14;
/// How long one that has nothing to write is let live.
const LONGEST: Duration = Duration::from_millis(2500);
/// Of hundred requests, so many meet a fault. Each failure costs a second of back-off.
const OFTEN: u8 = 6;
/// How long it may take to end once all is calm: a pass that has failed a few times waits for some seconds.
const CALM: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_roll_out_under_faults_keeps_its_bounds_and_ends_with_them() {
    let given = env::var("WINDLASS_FAULT_SEED").ok();
    let seeds = given.map_or(vec![1, 2], |seed| vec![seed.parse().unwrap()]);
    // Each is mostly waiting.
    join_all(seeds.into_iter().map(survive)).await;
}

async fn survive(seed: u64) {
    eprintln!("WINDLASS_FAULT_SEED={seed}");
    let mut chance = Chance(seed);
    let mut world = World::start().await;
    inventory(&world).await;
    for name in ALL {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    let rollouts = Stored::of(Api::<Rollout>::all(world.client.clone())).await;
    let clusters = Stored::of(Api::<Cluster>::all(world.client.clone())).await;
    // It begins on a calm day: an operator that has just come up waits for the inventory to be at rest.
    world.play.held.lock().unwrap().insert("a1".to_owned());
    let spec = json!({"soak": "0s", "parallel": PARALLEL, "failures": FAILURES});
    world.apply::<Rollout>("all", spec).await;
    world
        .apply::<Environment>("production", environment("1.34.4"))
        .await;
    world.rollout("begun", RolloutPhase::Running).await;
    world.play.held.lock().unwrap().clear();

    let faults = Faults::seeded(seed, OFTEN);
    for _ in 0..DEATHS {
        world.kill().await;
        let ill = ALL[chance.below(ALL.len())].to_owned();
        *world.play.ill.lock().unwrap() = [ill].into();
        let (death, dying) = death_after(chance.below(MOST_WRITES));
        world.operator = operate(&world.behind(&death, &faults));
        // One that waits for a cluster writes nothing, and dies all the same.
        let _ = time::timeout(LONGEST, dying.notified()).await;
    }
    world.kill().await;
    world.operator = operate(&world.behind(&Faults::when(|_| None), &faults));
    let met = faults.met();
    eprintln!("{met:?}");
    assert!(met.values().sum::<usize>() > 2, "seed {seed}: {met:?}");

    // All is well from now on. The operator is the one that met the last faults.
    faults.end();
    world.play.ill.lock().unwrap().clear();
    let last = ended(&world, seed).await;
    let record = &last.status.as_ref().unwrap().history[0];
    assert_eq!(
        (record.phase, record.done),
        (RolloutPhase::Succeeded, 5),
        "seed {seed}"
    );
    let all_new: BTreeMap<_, _> = ALL
        .map(|name| (name.to_owned(), "1.34.4".to_owned()))
        .into();
    assert_eq!(world.versions().await, all_new, "seed {seed}");
    let rollouts = rollouts.until(&last).await;
    check(seed, &rollouts);
    check_order(seed, &rollouts, &clusters.all());
}

/// Lets an operator write so often and never again, and tells when it wants to: as if it had died between the two writes.
fn death_after(writes: usize) -> (Faults, Arc<Notify>) {
    let dying = Arc::new(Notify::new());
    let tell = Arc::clone(&dying);
    let written = AtomicUsize::new(0);
    let death = Faults::when(move |request| {
        let is_over = request.method != "GET" && written.fetch_add(1, Ordering::SeqCst) >= writes;
        is_over.then(|| {
            tell.notify_one();
            Fault::Internal
        })
    });
    (death, dying)
}

/// The roll-out when its run has ended.
async fn ended(world: &World, seed: u64) -> Rollout {
    let api = world.all::<Rollout>(crate::world::FLEET);
    let end = async {
        loop {
            let rollout = api.get("all").await.unwrap();
            if open(&rollout).is_none() && !history(&rollout).is_empty() {
                return rollout;
            }
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    if let Ok(rollout) = time::timeout(CALM, end).await {
        return rollout;
    }
    let last = api.get("all").await.unwrap();
    let told = serde_json::to_string_pretty(&last.status).unwrap();
    panic!("seed {seed}: it never ends: {told}")
}

/// What a roll-out keeps to whenever it begins a cluster, from one stored version to the next.
fn check(seed: u64, versions: &[Rollout]) {
    let mut begun = 0;
    for pair in versions.windows(2) {
        let [before, after] = pair else { continue };
        let (Some(before), Some(after)) = (open(before), run(after)) else {
            continue;
        };
        assert_eq!(before.id, after.id, "seed {seed}: a run was forgotten");
        let told = || format!("seed {seed}: {}\n-> {}", show(before), show(after));
        for (was, is) in before.clusters.iter().zip(&after.clusters) {
            assert_eq!(
                (&was.name, &was.revision),
                (&is.name, &is.revision),
                "{}",
                told()
            );
            if was.phase != MemberPhase::Pending || is.phase != MemberPhase::Updating {
                continue;
            }
            begun += 1;
            let mut others = after.clusters.iter().filter(|other| other.name != is.name);
            let beside = others.find(|other| other.name[..1] == is.name[..1] && is_open(other));
            assert!(
                beside.is_none(),
                "begun beside another of its site: {}",
                told()
            );
            let mut canaries = after.clusters.iter().filter(|other| other.wave == "canary");
            let is_past = canaries.all(|canary| canary.phase == MemberPhase::Done);
            assert!(is_past, "begun past a canary: {}", told());
            let count = |which: fn(&RolloutMember) -> bool| {
                after.clusters.iter().filter(|member| which(member)).count()
            };
            let failed = count(|member| member.phase == MemberPhase::Failed);
            assert!(failed <= FAILURES, "begun past failures: {}", told());
            let under_way = count(is_under_way);
            assert!(under_way <= PARALLEL, "begun beside too many: {}", told());
        }
    }
    // The canary was begun when the run was.
    assert_eq!(begun, ALL.len() - 1, "seed {seed}");
}

/// No cluster is changed before it was written down that it may be.
fn check_order(seed: u64, rollouts: &[Rollout], clusters: &[Cluster]) {
    for name in ALL {
        let granted = rollouts.iter().find(|rollout| {
            let mut members = run(rollout).into_iter().flat_map(|run| &run.clusters);
            members.any(|member| member.name == name && member.phase != MemberPhase::Pending)
        });
        let changed = clusters.iter().find(|cluster| {
            let spec = serde_json::to_value(&cluster.spec).unwrap();
            cluster.name_any() == name && spec["kubernetesVersion"] == "1.34.4"
        });
        let (granted, changed) = (version(granted.unwrap()), version(changed.unwrap()));
        assert!(
            granted < changed,
            "seed {seed}: {name} was changed at {changed}, and granted at {granted}"
        );
    }
}

fn run(rollout: &Rollout) -> Option<&RolloutRun> {
    rollout.status.as_ref()?.run.as_ref()
}

fn open(rollout: &Rollout) -> Option<&RolloutRun> {
    run(rollout).filter(|run| run.ended.is_none())
}

fn history(rollout: &Rollout) -> &[api::inventory::RolloutRecord] {
    let status = rollout.status.as_ref();
    status.map_or(&[], |status| &status.history)
}

fn is_under_way(member: &RolloutMember) -> bool {
    matches!(member.phase, MemberPhase::Updating | MemberPhase::Soaking)
}

fn is_open(member: &RolloutMember) -> bool {
    is_under_way(member) || member.phase == MemberPhase::Failed
}

fn show(run: &RolloutRun) -> String {
    let members = run.clusters.iter();
    let members = members.map(|member| format!("{}={:?}", member.name, member.phase));
    members.collect::<Vec<_>>().join(" ")
}

/// The embedded API counts all writes in one row.
fn version<K: Resource>(object: &K) -> u64 {
    object
        .meta()
        .resource_version
        .as_ref()
        .unwrap()
        .parse()
        .unwrap()
}

/// Every version of the objects of a kind that the API stores.
struct Stored<K> {
    versions: Arc<Mutex<Vec<K>>>,
    watch: JoinHandle<()>,
}

impl<K> Stored<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// From now on.
    async fn of(api: Api<K>) -> Self {
        let now = api.list(&ListParams::default()).await.unwrap();
        let from = now.metadata.resource_version.unwrap();
        let versions = Arc::new(Mutex::new(Vec::new()));
        let stored = Arc::clone(&versions);
        let watch = tokio::spawn(async move {
            let events = api.watch(&WatchParams::default(), &from).await.unwrap();
            let store = events.try_for_each(|event| {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                    stored.lock().unwrap().push(object);
                }
                std::future::ready(Ok(()))
            });
            store.await.unwrap();
        });
        Self { versions, watch }
    }

    fn all(&self) -> Vec<K> {
        self.versions.lock().unwrap().clone()
    }

    /// All of them, once this one has come.
    async fn until(&self, last: &K) -> Vec<K> {
        let come = async {
            loop {
                let all = self.all();
                if all
                    .last()
                    .is_some_and(|seen| version(seen) >= version(last))
                {
                    return all;
                }
                time::sleep(Duration::from_millis(20)).await;
            }
        };
        time::timeout(CALM, come).await.unwrap()
    }
}

impl<K> Drop for Stored<K> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Splitmix64, so that a seed says the same with every version of a library.
struct Chance(u64);

impl Chance {
    /// A number from 0, below a bound.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = (mixed ^ (mixed >> 31)) % u64::try_from(bound).unwrap();
        usize::try_from(drawn).unwrap()
    }
}
