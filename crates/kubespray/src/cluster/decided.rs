//! What was decided while a run is at work, so that a pass over the same wish compiles nothing.
//!
//! A runner writes its Run's status every other second, and a plan of 500 hosts is compiled of as many host patterns as there are
//! plays. Only that a run at work goes on is remembered: every other decision is taken once, or rarely.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::{
    Cluster, KubernetesVersion, KubesprayVersion, Run,
    cluster::{ConvergeRequest, InventoryStatus},
    run::RunPhase,
};
use kube::{Resource, ResourceExt};
use runs::{is_active, phase};

use crate::{
    cluster::{
        decision::Decision,
        observe::{Observed, Unreadable},
    },
    hooks::Texts,
    host_keys::HostKeys,
    operation::asked,
    playbooks::{Checkout, Playbooks},
    problem::Problem,
    secret::SshKey,
    variables::Sight,
};

/// From what the last decision about each cluster was taken, where it was to let a run at work go on; by the cluster's uid.
#[derive(Debug, Default)]
pub struct Decided {
    followed: Mutex<HashMap<String, Basis>>,
}

impl Decided {
    /// Decides, unless it is known that the run at work goes on.
    pub fn or(
        &self,
        cluster: &Cluster,
        observed: &Observed,
        decide: impl FnOnce() -> Decision,
    ) -> Decision {
        let uid = cluster.uid().unwrap_or_default();
        let basis = Basis::of(cluster, observed);
        if let (Some(basis), Some(run)) = (&basis, observed.runs.last())
            && self.lock().get(&uid) == Some(basis)
        {
            return Decision::Follow(Box::new(run.clone()));
        }
        let decision = decide();
        match basis {
            Some(basis) if matches!(decision, Decision::Follow(_)) => {
                self.lock().insert(uid, basis);
            }
            _ => {
                self.lock().remove(&uid);
            }
        }
        decision
    }

    /// Forgets a cluster.
    pub fn forget(&self, cluster: &Cluster) {
        self.lock().remove(&cluster.uid().unwrap_or_default());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Basis>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that `resolve` and `plan` read of a cluster with a run at work.
#[derive(Debug, PartialEq)]
struct Basis {
    wish: (Option<i64>, bool, Vec<(String, String)>),
    status: Remembered,
    older_cluster: Option<String>,
    /// In the order in which they joined.
    nodes: Vec<(Option<String>, Option<i64>, bool)>,
    unreadable: Vec<Unreadable>,
    /// How those stand that are at no work any more: their plans do not change.
    runs: Vec<(Option<String>, Option<RunPhase>)>,
    key: SshKey,
    host_keys: HostKeys,
    variables: Sight,
    authorities: Vec<Problem>,
    hooks: Texts,
    checkout: Tree,
}

/// What is decided by of what the status remembers.
#[derive(Debug, Default, PartialEq)]
struct Remembered {
    inventory: Option<InventoryStatus>,
    kubernetes: Option<KubernetesVersion>,
    kubespray: Option<KubesprayVersion>,
    kubeconfig_secret: Option<String>,
    /// The last answers, in the order of `asked::all`.
    answered: Vec<Option<ConvergeRequest>>,
}

/// Playbooks, the same as others only if they were cut together.
#[derive(Debug)]
struct Tree(Arc<Checkout>);

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Basis {
    /// None: no run is at work, or it is not known what the playbooks are.
    fn of(cluster: &Cluster, observed: &Observed) -> Option<Self> {
        // What enters no decision, or is the same for as long as the process, is named too: what is new is to be thought about.
        let Observed {
            now: _,
            older_cluster,
            nodes,
            unreadable,
            runs,
            key,
            host_keys,
            variables,
            authorities,
            hooks,
            playbooks,
            // They decide on built clusters only, whose runs are never followed: which member leaves first, when is renewed, and what is
            // looked at before a run.
            health: _,
            served: _,
            snapshots: _,
            unlooked: _,
            pods: _,
            logs_in: _,
        } = observed;
        let Playbooks::Ready(checkout) = playbooks else {
            return None;
        };
        runs.last().filter(|run| is_active(phase(run)))?;
        let ended = |run: &Run| Some(phase(run)).filter(|phase| !is_active(*phase));
        let status = cluster.status.clone();
        let annotations = cluster.annotations().clone();
        Some(Self {
            wish: (
                cluster.meta().generation,
                cluster.meta().deletion_timestamp.is_some(),
                annotations.into_iter().collect(),
            ),
            status: status.map_or_else(Remembered::default, |status| Remembered {
                answered: asked::all()
                    .map(|asked| (asked.answered)(&status).cloned())
                    .collect(),
                inventory: status.inventory,
                kubernetes: status.kubernetes_version,
                kubespray: status.kubespray_version,
                kubeconfig_secret: status.kubeconfig_secret,
            }),
            older_cluster: older_cluster.clone(),
            nodes: nodes
                .iter()
                .map(|node| {
                    let leaves = node.meta().deletion_timestamp.is_some();
                    (node.uid(), node.meta().generation, leaves)
                })
                .collect(),
            unreadable: unreadable.clone(),
            runs: runs.iter().map(|run| (run.uid(), ended(run))).collect(),
            key: key.clone(),
            host_keys: host_keys.clone(),
            variables: variables.clone(),
            authorities: authorities.clone(),
            hooks: hooks.clone(),
            checkout: Tree(Arc::clone(checkout)),
        })
    }
}

#[cfg(test)]
mod tests {
    use ansible::source::{Policy, Sources};
    use serde_json::{from_value, json};

    use super::*;
    use crate::{
        cluster::{plan, resolve},
        playbooks::{self, Wish},
    };

    const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");

    struct World {
        cluster: Cluster,
        observed: Observed,
        decided: Decided,
    }

    impl World {
        /// A cluster of that many hosts, with its playbooks.
        async fn new(hosts: usize) -> Self {
            let cluster = from_value(json!({
                "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
                "metadata": {"name": "first", "namespace": "demo", "uid": "c", "generation": 1},
                "spec": {"kubespray": {"source": {"path": BUNDLE}}},
            }));
            let node = |at: usize| {
                let node = json!({
                    "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
                    "metadata": {"name": format!("host-{at:04}"), "uid": at.to_string(), "generation": 1},
                    "spec": {
                        "type": if at < 3 { "master" } else { "worker" },
                        "inventory": {"ansible_host": format!("10.0.{}.{}", at / 250, at % 250)},
                    },
                });
                from_value(node).unwrap()
            };
            let cluster: Cluster = cluster.unwrap();
            let wish = Wish::of(&cluster).unwrap();
            let data = tempfile::tempdir().unwrap();
            let sources = Sources::new(data.path().to_owned(), Policy::person());
            let checkout = playbooks::load(&wish, "demo", &sources).await.unwrap();
            let observed = Observed {
                nodes: (0..hosts).map(node).collect(),
                ..Observed::empty(
                    "2026-06-01T00:00:00Z".parse().unwrap(),
                    Playbooks::Ready(Arc::new(checkout)),
                )
            };
            Self {
                cluster,
                observed,
                decided: Decided::default(),
            }
        }

        /// As [`World::new`], with the run that builds it at work.
        async fn at_work(hosts: usize) -> Self {
            let mut world = Self::new(hosts).await;
            let (Decision::Start(new), 1) = world.pass() else {
                panic!("no run starts");
            };
            let run = from_value(json!({
                "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
                "metadata": {"name": new.name, "namespace": "demo", "uid": "r"},
                "spec": {
                    "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"},
                    "operation": new.operation.name, "generation": new.generation, "plan": new.plan,
                },
                "status": {"phase": "Running"},
            }));
            world.observed.runs.push(run.unwrap());
            world
        }

        /// The decision of a pass, and how often it was taken anew.
        fn pass(&self) -> (Decision, usize) {
            let mut taken = 0;
            let decision = self.decided.or(&self.cluster, &self.observed, || {
                taken += 1;
                let wanted = resolve::resolve(&self.cluster, &self.observed);
                plan::plan(
                    &self.cluster,
                    wanted.as_ref().map_err(Vec::as_slice),
                    &self.observed,
                )
            });
            (decision, taken)
        }

        fn taken(&self) -> usize {
            self.pass().1
        }
    }

    #[tokio::test]
    async fn what_a_runner_tells_compiles_nothing() {
        let mut world = World::at_work(5).await;
        assert_eq!(world.taken(), 1);
        for percent in 1..20 {
            let status = json!({"phase": "Running", "progress": percent, "message": "at work"});
            world.observed.runs[0].status = from_value(status).unwrap();
            world.observed.now += jiff::SignedDuration::from_secs(2);
            let (Decision::Follow(run), 0) = world.pass() else {
                panic!("decided anew");
            };
            assert_eq!(run.status.unwrap().progress, Some(percent));
        }
        // What becomes of the run is decided each time.
        for phase in ["Failed", "Superseded", "Cancelled"] {
            world.observed.runs[0].status = from_value(json!({"phase": phase})).unwrap();
            assert_eq!((world.taken(), world.taken()), (1, 1), "{phase}");
        }
    }

    #[tokio::test]
    async fn whatever_a_plan_is_made_of_compiles_it_anew() {
        type Change = fn(&mut World);
        let changes: [(&str, Change); 10] = [
            ("spec", |world| world.cluster.metadata.generation = Some(2)),
            ("annotation", |world| {
                let asked = (crate::request::START_AGAIN.to_owned(), "1".to_owned());
                world.cluster.annotations_mut().extend([asked]);
            }),
            ("deletion", |world| {
                world.cluster.metadata.deletion_timestamp =
                    from_value(json!("2026-06-01T00:00:00Z")).unwrap();
            }),
            ("what is built", |world| {
                let status = json!({"kubeconfigSecret": "first-kubeconfig"});
                world.cluster.status = from_value(status).unwrap();
            }),
            ("host", |world| {
                world.observed.nodes[4].metadata.generation = Some(2);
            }),
            ("host gone", |world| {
                world.observed.nodes.pop();
            }),
            ("host of the same name", |world| {
                world.observed.nodes[4].metadata.uid = Some("another".to_owned());
            }),
            ("ssh key", |world| world.observed.key = SshKey::NoSecret),
            ("Secret", |world| {
                let revision = ("secret".to_owned(), "u/2".to_owned());
                world.observed.variables.revisions.extend([revision]);
            }),
            ("older cluster", |world| {
                world.observed.older_cluster = Some("older".to_owned());
            }),
        ];
        let mut world = World::at_work(5).await;
        for (what, change) in changes {
            let known = World {
                cluster: world.cluster.clone(),
                observed: world.observed.clone(),
                decided: Decided::default(),
            };
            assert_eq!((known.taken(), known.taken()), (1, 0), "{what}");
            world.decided = known.decided;
            let before = (world.cluster.clone(), world.observed.clone());
            change(&mut world);
            assert_eq!(world.taken(), 1, "{what}");
            (world.cluster, world.observed) = before;
        }
        // Playbooks that were cut anew.
        assert_eq!((world.taken(), world.taken()), (1, 0));
        world.observed.playbooks = World::new(5).await.observed.playbooks;
        assert_eq!(world.taken(), 1);
        world.decided.forget(&world.cluster);
        assert_eq!(world.taken(), 1);
    }
}
