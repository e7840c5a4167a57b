//! What the steps of a kubespray plan do, as a Run carries it.

use api::{
    Duration, HostName, KubernetesVersion, Target,
    cluster::PodGate,
    run::{Action as RunAction, EngineAction, Exclusion, Plan, Step},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use snapshots::Name;

/// The name of this engine in the actions of a Run.
pub const ENGINE: &str = "kubespray";

/// The step that waits for a person.
pub const APPROVE: &str = "approve/plan";
/// The step that makes the Python environment.
pub const SANDBOX: &str = "prepare/sandbox";
/// The step that asks every host whether it answers.
pub const PROBE: &str = "prepare/probe";
/// The play that gathers the facts that later plays read from the cache.
pub const FACTS: &str = "bootstrap/facts";
/// The same of the hosts that are part of the cluster, where others join: only where what the cache has of them is stale.
pub const FACTS_OF_OTHERS: &str = "bootstrap/facts-of-others";
/// The same of the hosts that stay, where some leave.
pub const FACTS_OF_STAYING: &str = "endpoints/facts";
/// The step that asks the hosts that leave whether they answer.
pub const LEAVING: &str = "drain/probe";
/// The step that asks which pods cannot go elsewhere.
pub const BUDGETS: &str = "drain/budgets";
/// The step that has pods go elsewhere.
pub const DRAIN: &str = "drain/pods";
/// The step that proves that the members of etcd are those that the inventory of an adopted cluster names.
pub const MEMBERS: &str = "adopt/members";
/// The step that proves that the nodes of an adopted cluster run its version.
pub const VERSIONS: &str = "adopt/versions";
/// The step that brings the authorities of a new cluster.
pub const AUTHORITIES: &str = "etcd/authorities";
/// The step that saves a snapshot of etcd.
pub const SNAPSHOT: &str = "etcd/snapshot";
/// The step that saves a snapshot of etcd in the store.
pub const SAVE_SNAPSHOT: &str = "snapshot/save";
/// The step that lets go of snapshots.
pub const KEEP_SNAPSHOTS: &str = "snapshot/keep";
/// The step that drills a snapshot.
pub const DRILL_SNAPSHOT: &str = "snapshot/drill";
/// The step that brings a snapshot from the store to the host on which etcd is founded anew.
pub const BRING_SNAPSHOT: &str = "recover/snapshot";
/// The step that proves that etcd keeps its quorum, before anything is changed.
pub const QUORUM: &str = "etcd/quorum";
/// The step that proves the same again, right before a member joins, or before all restart.
pub const QUORUM_AGAIN: &str = "etcd/quorum-again";
/// The step that waits until a new member of etcd has a vote and is healthy.
pub const JOINED: &str = "etcd/joined";
/// The step that takes a member out of etcd.
pub const TAKE_OUT: &str = "etcd/take-out";
/// The step that asks the hosts whose members are given up whether they answer.
pub const GIVEN_UP: &str = "recover/probe";
/// The step that proves that etcd has lost its quorum, before anything is changed.
pub const LOST: &str = "recover/quorum";
/// The step that stops the members that are given up.
pub const SET_ASIDE: &str = "recover/set-aside";
/// The step that founds etcd anew.
pub const FOUND: &str = "recover/found";
/// The step that proves that all members can be rolled back to a snapshot, before one is stopped.
pub const CHECKED: &str = "recover/check";
/// The step that proves that etcd is one member, and answers.
pub const FOUNDED: &str = "recover/founded";
/// The step that stores the kubeconfig.
pub const KUBECONFIG: &str = "kubeconfig/store";
/// The step that waits until the cluster is healthy.
pub const HEALTH: &str = "health/check";

/// An action with its parameters.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(tag = "type", content = "parameters", deny_unknown_fields)]
pub enum Action {
    /// Makes the Python environment that the kubespray release needs.
    Sandbox,
    /// Asks every host whether it answers ssh, sudo and Python.
    Probe,
    /// Runs one play of a playbook.
    AnsiblePlay(AnsiblePlay),
    /// Stores the new cluster's kubeconfig in a Secret.
    Kubeconfig(Kubeconfig),
    /// Waits until the cluster is healthy: its API server, etcd, nodes and certificates.
    Health,
    /// Waits until the cluster is well with the nodes of its hosts.
    Gate(Gate),
    /// Asks which pods of the nodes of its hosts cannot go elsewhere, because a PodDisruptionBudget never lets them.
    Budgets {
        /// The hosts whose pods are not asked about.
        forced: Vec<HostName>,
    },
    /// Cordons the nodes of its hosts and has their pods go elsewhere.
    Drain {
        /// The hosts whose pods are deleted, whatever their budgets say.
        forced: Vec<HostName>,
    },
    /// Deletes the nodes of its hosts. One that was not reset, because its host did not answer, must not be Ready: its kubelet
    /// would make it anew.
    ForgetNodes {
        /// The hosts of which that is not asked.
        forced: Vec<HostName>,
    },
    /// Asks the members of etcd on its hosts how they are, and proves that a change of one member keeps the quorum.
    Quorum(MemberChange),
    /// Takes a member out of etcd by another one, once the same is proved again.
    TakeOut(MemberChange),
    /// Proves that the members of etcd on its hosts are those that the inventory names.
    Members,
    /// Proves that its hosts are nodes of the cluster, and run this version.
    Versions {
        /// The version of Kubernetes.
        kubernetes: KubernetesVersion,
    },
    /// Waits until the API servers of its hosts run with the members that etcd has then.
    ApiServers,
    /// Saves a snapshot of etcd of the first of its hosts that can, in the store of the plan.
    SaveSnapshot,
    /// Removes the snapshots from the store that are kept no longer, and notes what lies there.
    KeepSnapshots,
    /// Brings a snapshot from the store to its host.
    BringSnapshot {
        /// Its name.
        name: Name,
        /// The directory of the host that takes it.
        directory: String,
    },
    /// Starts a snapshot of the store in a throw-away etcd on the first of its hosts that can.
    DrillSnapshot {
        /// Its name.
        name: Name,
    },
    /// Has no new pods come to the nodes of its hosts.
    Cordon {
        /// It is taken back: pods come again.
        lets_in: bool,
    },
    /// Makes a token by which a node may join.
    Token {
        /// How long it lives.
        expires: Duration,
    },
    /// Looks at the certificates on its hosts.
    Certificates,
    /// Runs a hook of the plan's inputs on its hosts.
    Hook {
        /// Its name.
        name: String,
        /// The step that it stands at.
        step: String,
    },
}

/// A change of one member of etcd.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberChange {
    /// Its host.
    pub host: HostName,
    /// Its name in etcd.
    pub member: String,
    /// What becomes of it.
    pub turn: Turn,
}

/// What becomes of a member of etcd.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum Turn {
    /// It is about to join.
    Joins,
    /// It has joined.
    Joined,
    /// It is about to restart.
    Restarts,
    /// It has restarted.
    Restarted,
    /// It and all others are about to restart, some at a time.
    AllRestart,
    /// It is about to leave.
    Leaves,
    /// It is about to be all of etcd, which has lost its quorum.
    Founds,
    /// It is all of etcd.
    Founded,
}

/// One play of a playbook.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnsiblePlay {
    /// The playbook that the play comes from, for example cluster.
    pub playbook: String,
    /// The index of the play in the flattened playbook, from 0.
    pub play: u32,
    /// Whether it works on the hosts of its step alone, and not on all that its pattern names.
    #[serde(default)]
    pub limited: bool,
    /// The digest of the playbook's text, where it is one of Windlass' own; none: it is of the checkout. A run executes what it was
    /// planned with or nothing, whichever Windlass its runner is.
    #[serde(default)]
    pub own: Option<String>,
    /// Whether its inventory has only the hosts that the operation leaves in the cluster.
    #[serde(default)]
    pub left: bool,
}

/// When a cluster is well enough for the next hosts to be worked on, beside that its nodes are Ready, its API server and etcd are
/// healthy, and no pod of the system is in a crash loop that it was not in before.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gate {
    /// The version that the nodes of its hosts must report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesVersion>,
    /// Pods that must be Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodGate>,
    /// How long it must be well without a break.
    pub soak: Duration,
    /// Whether it is the first of its run, which notes what is not well and was not before either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begins: bool,
    /// The run that it goes on after, which was ended before its end: what came of that is not forgiven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Left>,
}

/// What an upgrade left that was ended before its end.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Left {
    /// Its run, which noted what was not well before it.
    pub run: String,
    /// The hosts in the middle of it, whose nodes it may have cordoned.
    pub halfway: Vec<HostName>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            kubernetes: None,
            pods: None,
            soak: Duration::from_seconds(0),
            begins: false,
            after: None,
        }
    }
}

/// Where a kubeconfig is stored.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubeconfig {
    /// The Secret's name; its key is `value`.
    pub secret: String,
    /// The digest of the playbook of Windlass' own that brings it anew where what the playbooks left is lost; none: it is not brought.
    #[serde(default)]
    pub own: Option<String>,
}

/// Why an action is none of this engine's.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// It is another engine's.
    #[error("the action is of engine {0:?}, and this one is {ENGINE:?}")]
    OtherEngine(String),
    /// Its parameters are not those of its type, or there is no such type.
    #[error("read action {action}")]
    Parameters {
        /// Its type.
        action: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

impl From<Action> for RunAction {
    fn from(action: Action) -> Self {
        let forced = |hosts: Vec<HostName>| {
            let hosts: Vec<Value> = hosts.iter().map(|host| host.as_str().into()).collect();
            named([("forced", hosts.into())])
        };
        let (action, parameters) = match action {
            Action::Gate(gate) => ("Gate", fields(&gate)),
            Action::Budgets { forced: hosts } => ("Budgets", forced(hosts)),
            Action::Drain { forced: hosts } => ("Drain", forced(hosts)),
            Action::ForgetNodes { forced: hosts } => ("ForgetNodes", forced(hosts)),
            Action::Sandbox => ("Sandbox", Map::new()),
            Action::Probe => ("Probe", Map::new()),
            Action::Health => ("Health", Map::new()),
            Action::Quorum(change) => ("Quorum", of_member(change)),
            Action::TakeOut(change) => ("TakeOut", of_member(change)),
            Action::ApiServers => ("ApiServers", Map::new()),
            Action::Members => ("Members", Map::new()),
            Action::Versions { kubernetes } => (
                "Versions",
                named([("kubernetes", kubernetes.to_string().into())]),
            ),
            Action::SaveSnapshot => ("SaveSnapshot", Map::new()),
            Action::KeepSnapshots => ("KeepSnapshots", Map::new()),
            Action::BringSnapshot { name, directory } => {
                let parameters = [
                    ("name", name.as_str().into()),
                    ("directory", directory.into()),
                ];
                ("BringSnapshot", named(parameters))
            }
            Action::DrillSnapshot { name } => {
                ("DrillSnapshot", named([("name", name.as_str().into())]))
            }
            Action::Cordon { lets_in } => ("Cordon", named([("lets_in", lets_in.into())])),
            Action::Token { expires } => {
                ("Token", named([("expires", expires.to_string().into())]))
            }
            Action::Certificates => ("Certificates", Map::new()),
            Action::Hook { name, step } => (
                "Hook",
                named([("name", name.into()), ("step", step.into())]),
            ),
            Action::AnsiblePlay(AnsiblePlay {
                playbook,
                play,
                limited,
                own,
                left,
            }) => {
                let mut parameters = named([("playbook", playbook.into()), ("play", play.into())]);
                for (flag, value) in [("limited", limited), ("left", left)] {
                    if value {
                        parameters.insert(flag.to_owned(), true.into());
                    }
                }
                if let Some(digest) = own {
                    parameters.insert("own".to_owned(), digest.into());
                }
                ("AnsiblePlay", parameters)
            }
            Action::Kubeconfig(Kubeconfig { secret, own }) => {
                let mut parameters = named([("secret", secret.into())]);
                if let Some(digest) = own {
                    parameters.insert("own".to_owned(), digest.into());
                }
                ("Kubeconfig", parameters)
            }
        };
        Self::Engine(EngineAction {
            name: ENGINE.to_owned(),
            action: action.to_owned(),
            parameters,
        })
    }
}

/// What a structure of plain values holds.
fn fields(parameters: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(parameters) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn of_member(change: MemberChange) -> Map<String, Value> {
    let MemberChange { host, member, turn } = change;
    let turn = match turn {
        Turn::Joins => "Joins",
        Turn::Joined => "Joined",
        Turn::Restarts => "Restarts",
        Turn::Restarted => "Restarted",
        Turn::AllRestart => "AllRestart",
        Turn::Leaves => "Leaves",
        Turn::Founds => "Founds",
        Turn::Founded => "Founded",
    };
    named([
        ("host", host.as_str().into()),
        ("member", member.into()),
        ("turn", turn.into()),
    ])
}

fn named<const N: usize>(parameters: [(&str, Value); N]) -> Map<String, Value> {
    let parameters = parameters.into_iter();
    parameters
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

impl TryFrom<&EngineAction> for Action {
    type Error = ActionError;

    fn try_from(action: &EngineAction) -> Result<Self, Self::Error> {
        if action.name != ENGINE {
            return Err(ActionError::OtherEngine(action.name.clone()));
        }
        let mut fields = named([("type", action.action.clone().into())]);
        if !action.parameters.is_empty() {
            fields.insert("parameters".to_owned(), action.parameters.clone().into());
        }
        Action::deserialize(Value::Object(fields)).map_err(|source| ActionError::Parameters {
            action: action.action.clone(),
            source,
        })
    }
}

/// What an engine does in a step; nothing for a step of the machinery's own.
///
/// # Errors
///
/// The action is none of this engine's.
pub fn of(step: &Step) -> Result<Option<Action>, ActionError> {
    match &step.action {
        RunAction::Engine(action) => Action::try_from(action).map(Some),
        RunAction::Approve(_) | RunAction::Run(_) => Ok(None),
    }
}

/// The play that a step runs, if it runs one.
pub fn play_of(step: &Step) -> Option<AnsiblePlay> {
    match of(step) {
        Ok(Some(Action::AnsiblePlay(play))) => Some(play),
        _ => None,
    }
}

/// The hosts that a step works on.
pub fn hosts_of(plan: &Plan, step: &Step) -> Vec<HostName> {
    let names = plan.targets(step).map(Target::as_str);
    names.filter_map(|name| name.parse().ok()).collect()
}

/// The hosts that are left out of a run.
pub fn hosts_left_out(excluded: &[Exclusion]) -> Vec<HostName> {
    let names = excluded.iter().map(|left_out| left_out.target.as_str());
    names.filter_map(|name| name.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_action_comes_back_from_a_run_as_it_was() {
        let play = AnsiblePlay {
            playbook: "cluster".into(),
            play: 3,
            limited: false,
            own: None,
            left: false,
        };
        let change = |turn| MemberChange {
            host: "a".parse().unwrap(),
            member: "etcd3".into(),
            turn,
        };
        let secret = "kubeconfig-a".into();
        for action in [
            Action::Sandbox,
            Action::Probe,
            Action::AnsiblePlay(AnsiblePlay {
                limited: true,
                own: Some("d".into()),
                left: true,
                ..play.clone()
            }),
            Action::Quorum(change(Turn::Joins)),
            Action::Quorum(change(Turn::Joined)),
            Action::Quorum(change(Turn::Restarts)),
            Action::Quorum(change(Turn::Restarted)),
            Action::Quorum(change(Turn::AllRestart)),
            Action::TakeOut(change(Turn::Leaves)),
            Action::Quorum(change(Turn::Founds)),
            Action::Quorum(change(Turn::Founded)),
            Action::ApiServers,
            Action::Members,
            Action::Versions {
                kubernetes: KubernetesVersion::new(1, 34, 4),
            },
            Action::SaveSnapshot,
            Action::KeepSnapshots,
            Action::BringSnapshot {
                name: "2026-11-25T03-30-00Z".parse().unwrap(),
                directory: "/var/backups/a".into(),
            },
            Action::DrillSnapshot {
                name: "2026-11-25T03-30-00Z".parse().unwrap(),
            },
            Action::AnsiblePlay(play),
            Action::Kubeconfig(Kubeconfig {
                secret,
                own: Some("d".into()),
            }),
            Action::Health,
            Action::Gate(Gate::default()),
            Action::Gate(Gate {
                kubernetes: Some(KubernetesVersion::new(1, 34, 4)),
                pods: Some(PodGate {
                    namespace: "shop".into(),
                    selector: [("app".into(), "web".into())].into(),
                }),
                soak: Duration::from_seconds(30),
                begins: true,
                after: Some(Left {
                    run: "first-upgrade-2".to_owned(),
                    halfway: vec!["worker-1".parse().unwrap()],
                }),
            }),
            Action::Budgets { forced: Vec::new() },
            Action::Drain {
                forced: vec!["a".parse().unwrap()],
            },
            Action::ForgetNodes { forced: Vec::new() },
            Action::Cordon { lets_in: true },
            Action::Token {
                expires: Duration::from_seconds(5400),
            },
            Action::Certificates,
            Action::Hook {
                name: "mark".into(),
                step: "etcd/install".into(),
            },
        ] {
            let RunAction::Engine(stored) = RunAction::from(action.clone()) else {
                panic!("{action:?} is no action of the engine");
            };
            assert_eq!(Action::try_from(&stored).unwrap(), action);
        }
    }

    #[test]
    fn what_is_not_of_this_engine_is_refused_by_name() {
        let cases = [
            (json!({"name": "helm", "type": "Probe"}), "\"helm\""),
            (json!({"name": ENGINE, "type": "Shell"}), "Shell"),
            (
                json!({"name": ENGINE, "type": "AnsiblePlay"}),
                "AnsiblePlay",
            ),
            (
                json!({"name": ENGINE, "type": "AnsiblePlay", "parameters": {"playbook": "a", "play": -1}}),
                "AnsiblePlay",
            ),
            (
                json!({"name": ENGINE, "type": "Kubeconfig", "parameters": {"secret": "a", "run": "b"}}),
                "Kubeconfig",
            ),
        ];
        for (action, named) in cases {
            let action: EngineAction = serde_json::from_value(action).unwrap();
            let error = Action::try_from(&action).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
