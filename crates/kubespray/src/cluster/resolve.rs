//! The wish with every default applied and every rule checked, or the list of what must be changed. Pure.

use ansible::{
    catalogue::{self, VersionError},
    inventory::{self, Directories, InventoryError},
};
use api::{
    Cluster, ClusterNode, Duration, HostName, KubernetesVersion, KubesprayVersion, Threshold,
    cluster::{Available, ClusterSpec, DeletionPolicy, InventoryStatus, MirrorCheck, SecretRef},
    node::{NodeType, Role},
};
use controller::window::Recurrence;
use jiff::Timestamp;
use kube::{Resource, ResourceExt};

use self::{contract::Given, leaving::Wished, policy::Policy};
use crate::{
    authorities,
    cluster::observe::{self, Observed},
    hooks, host_keys,
    inputs::{self, Host, Inputs, SourceInput, SshInput},
    operation::{Operation, Order, upgrade},
    playbooks::{Playbooks, Wish},
    problem::{self, Problem},
    radar,
    request::{REPLACED_BY, START_AGAIN},
    secret,
    snapshots::{self, Snapshots, SnapshotsInput},
    subjects, variables as secret_variables,
};

mod conduct;
mod contract;
mod leaving;
mod maintenance;
pub mod policy;
mod renewal;
mod replacing;
mod upgrading;

pub use conduct::Conduct;
pub use leaving::Kept;
pub use maintenance::Keeping;
pub use renewal::Renewal;
pub use replacing::{Replacing, Turn as ReplacingTurn};
pub use upgrading::Upgrade;

/// How long a host may take to answer, unless told otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_seconds(5);
/// How long the pods of hosts that leave may take to go elsewhere, unless told otherwise.
const DRAIN_TIMEOUT: Duration = Duration::from_seconds(600);
/// How long before their end certificates count as about to end, unless told otherwise: 30 days.
const RENEW: Duration = Duration::from_seconds(30 * 86_400);

/// A wish that can be planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// What the steps need.
    pub inputs: Inputs,
    /// How creation behaves.
    pub creation: Creation,
    /// How taking it over behaves, where somebody else has built it.
    pub adoption: Conduct,
    /// How making new hosts part of the cluster behaves.
    pub scale: Conduct,
    /// How putting another host first behaves.
    pub replacement: Conduct,
    /// How removing hosts from the cluster behaves.
    pub removal: Removal,
    /// When certificates are renewed, and how that behaves.
    pub renewal: Renewal,
    /// How upgrading the cluster behaves.
    pub upgrade: Upgrade,
    /// How bringing one component to what the spec says behaves.
    pub component: Upgrade,
    /// How bringing it back behaves.
    pub recovery: Conduct,
    /// How running the playbooks once more behaves.
    pub converging: Conduct,
    /// How removing Kubernetes from the hosts behaves.
    pub reset: Conduct,
    /// The hosts whose ClusterNodes are being deleted, and which stay part of the cluster all the same.
    pub kept: Vec<Kept>,
    /// The hosts whose place others take, and how far that is. Those whose turn to leave has come are named by the removal too.
    pub replacing: Vec<Replacing>,
    /// What the start conditions still ask for, for people.
    pub missing: Vec<String>,
    /// Newer versions that can be had and that nobody wishes for. None: that cannot be said until the playbooks are there.
    pub available: Option<Vec<Available>>,
    /// The snapshots that are kept outside of the cluster.
    pub snapshots: Option<Snapshots>,
    /// How often hosts are looked at between runs, if they are.
    pub radar: Option<std::time::Duration>,
    /// When the playbooks run once more by themselves.
    pub converges: Option<Recurrence>,
    /// When operations may start.
    pub maintenance: Keeping,
    /// What deletion does.
    pub deletion: DeletionPolicy,
    /// The mark with which a person asks for a new start.
    pub again: Option<String>,
    /// When the newest host was declared.
    pub newest_node: Option<Timestamp>,
}

impl Resolved {
    /// The store of snapshots, for an operation that works with it.
    pub(crate) fn store(&self) -> Option<SnapshotsInput> {
        let snapshots = self.snapshots.as_ref()?;
        Some(snapshots.input.clone())
    }
}

/// How creation behaves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Creation {
    /// The least number of etcd members.
    pub etcd: usize,
    /// The least number of control-plane hosts.
    pub control_plane: usize,
    /// The least number of hosts in all.
    pub nodes: usize,
    /// How long no host may have been added.
    pub last_node_creation: Duration,
    /// The Secret with the authorities that the cluster is founded with.
    pub authorities: Option<SecretRef>,
    /// As every operation.
    pub conduct: Conduct,
}

/// How removing hosts from the cluster behaves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Removal {
    /// The hosts that are to be removed, if they are part of the cluster.
    pub leaving: Vec<HostName>,
    /// How long pods may take to go elsewhere.
    pub drain_timeout: Duration,
    /// The hosts that a person wants gone whatever is lost.
    pub forced: Vec<HostName>,
    /// As every operation.
    pub conduct: Conduct,
}

/// Applies defaults and checks rules.
///
/// # Errors
///
/// Everything that is wrong at once, not only the first.
pub fn resolve(cluster: &Cluster, observed: &Observed) -> Result<Resolved, Vec<Problem>> {
    let mut problems = Vec::new();
    problems.extend(one_cluster(cluster, observed));
    problems.extend(unreadable(observed));
    let release = Wish::of(cluster).map_or_else(
        |problem| {
            problems.push(problem);
            catalogue::newest().version
        },
        |wish| wish.release,
    );
    let spec = &cluster.spec;
    let (reference, _) = observe::references(cluster);
    problems.extend(secret::problem(reference, &observed.key));
    problems.extend(host_keys::problems(spec.ssh.as_ref(), &observed.host_keys));
    let Wished {
        nodes,
        kept,
        leaving,
        replacing,
    } = leaving::wished(cluster, observed);
    problems.extend(secret_variables::problems(
        cluster,
        &nodes,
        &observed.variables,
    ));
    problems.extend(observed.authorities.iter().cloned());
    problems.extend(subjects::problems(spec, observed.pods.as_deref()));
    problems.extend(renewal::problems(spec, &nodes));
    let hosts = hosts(&nodes);
    let written = variables(spec);
    problems.extend(authorities::misplaced(cluster, &written));
    let given = Given::new(&written, &observed.variables, &hosts);
    let kubernetes = kubernetes(cluster, release, observed, &given, &mut problems);
    problems.extend(upgrading::problems(cluster, release, kubernetes, observed));
    if let Playbooks::Ready(checkout) = &observed.playbooks {
        problems.extend(contract::problems(cluster, release, checkout, &given));
    }
    let checkout = match &observed.playbooks {
        Playbooks::Ready(checkout) => Some(&**checkout),
        _ => None,
    };
    let hooks = hooks::resolved(cluster, &observed.hooks, checkout, &hosts, &mut problems);
    let mut inputs = Inputs {
        kubespray: release,
        kubernetes,
        source: source_input(&observed.playbooks, &mut problems),
        mirrored: mirrored(spec),
        inventory: persisted(cluster, observed, &mut problems),
        ssh: ssh(spec, &hosts),
        forks: spec.runner.as_ref().and_then(|runner| runner.max_forks),
        ansible: spec
            .runner
            .as_ref()
            .and_then(|runner| runner.ansible.clone())
            .unwrap_or_default(),
        variables: written,
        extra_vars_secret_ref: deploy(spec).and_then(|deploy| deploy.extra_vars_secret_ref.clone()),
        operation_secret_ref: spec
            .operations
            .as_ref()
            .and_then(|operations| operations.creation.as_ref()?.extra_vars_secret_ref.clone()),
        revisions: observed.variables.revisions.clone(),
        authorities_secret_ref: None,
        snapshots: None,
        operation_variables: serde_json::Map::new(),
        renew: renew(spec),
        remedies: spec.remedies.clone().unwrap_or_else(inputs::harmless),
        hooks,
        hosts,
        leaving: Vec::new(),
        // Until the host has left whose place another takes, etcd may have both. What is reset is left with none.
        passing: cluster.meta().deletion_timestamp.is_some()
            || replacing.iter().any(Replacing::stays),
    };
    problems.extend(
        inventory::overrides(&inputs.ansible)
            .into_iter()
            .map(problem::of_inventory),
    );
    let available = match &observed.playbooks {
        Playbooks::Ready(checkout) => {
            Some(policy::available(cluster, (release, kubernetes), checkout))
        }
        _ => None,
    };
    let maintenance = maintenance::keeping(spec, &mut problems);
    let in_pods = observed.pods.is_some();
    let snapshots = snapshots::settings::resolve(spec, in_pods, &mut problems);
    let radar = radar::resolve(spec, observed.logs_in, &mut problems);
    let converges = maintenance::converges(spec, &mut problems);
    let creation = creation(spec);
    let missing = missing_hosts(&creation, &inputs);
    match inventory::compile(&inputs.to_inventory(Directories::default(), None, &[])) {
        Ok(compiled) => inputs.inventory = compiled.order().clone(),
        // Until the start conditions are met, hosts are still to come: how many there are proves nothing yet.
        Err(errors) => problems.extend(
            errors
                .into_iter()
                .filter(|error| missing.is_empty() || !is_about_numbers(error))
                .map(problem::of_inventory),
        ),
    }
    if problems.is_empty() {
        let operations = spec.operations.clone().unwrap_or_default();
        let removal = removal(spec, creation.conduct, leaving, &observed.nodes);
        Ok(Resolved {
            inputs,
            adoption: conduct::adoption(&operations, creation.conduct),
            scale: conduct::or_as(operations.scale.as_ref(), creation.conduct),
            replacement: conduct::replacement(&operations, removal.conduct),
            removal,
            renewal: renewal::renewal(spec, creation.conduct, &nodes),
            upgrade: upgrading::settings(spec, creation.conduct),
            component: upgrading::of_component(spec, creation.conduct),
            recovery: conduct::recovery(&operations, creation.conduct),
            converging: conduct::converging(&operations, creation.conduct),
            reset: conduct::or_as(operations.reset.as_ref(), creation.conduct),
            kept,
            replacing,
            creation,
            missing,
            available,
            snapshots,
            radar,
            converges,
            maintenance,
            deletion: spec.deletion_policy.unwrap_or_default(),
            again: cluster.annotations().get(START_AGAIN).cloned(),
            newest_node: nodes
                .iter()
                .filter_map(|node| relocation::mark::created(&node.metadata))
                .map(|time| time.0)
                .max(),
        })
    } else {
        // What is wrong may be that both are declared.
        problems.splice(
            ..0,
            kept.iter()
                .filter_map(|kept| not_replaced(kept, &observed.nodes)),
        );
        Err(problems)
    }
}

fn not_replaced(kept: &Kept, nodes: &[ClusterNode]) -> Option<Problem> {
    let node = nodes.iter().find(|node| node.name_any() == kept.name)?;
    let by = replacing::named(node)?;
    Some(Problem::new(
        format!(
            "ClusterNode {} metadata.annotations {REPLACED_BY}",
            kept.name
        ),
        api::text::plain(by, 64),
        kept.why.clone(),
        format!("do that; or take it back: windlass node keep {}", kept.name),
    ))
}

fn one_cluster(cluster: &Cluster, observed: &Observed) -> Option<Problem> {
    let older = observed.older_cluster.as_ref()?;
    let namespace = cluster.namespace().unwrap_or_default();
    Some(Problem::new(
        "Cluster metadata.namespace",
        namespace,
        format!("a namespace holds one Cluster, and {older} was there first"),
        "make this Cluster and its ClusterNodes in a namespace of their own",
    ))
}

fn unreadable(observed: &Observed) -> impl Iterator<Item = Problem> {
    observed.unreadable.iter().map(|node| {
        Problem::new(
            format!("ClusterNode {}", node.name),
            "",
            node.error.clone(),
            "correct the field; `kubectl explain clusternode.spec` describes it",
        )
    })
}

fn creation(spec: &ClusterSpec) -> Creation {
    let creation = spec
        .operations
        .clone()
        .unwrap_or_default()
        .creation
        .unwrap_or_default();
    let start = creation.start_conditions.unwrap_or_default();
    let thresholds = creation.thresholds.unwrap_or_default();
    let least = |minimum: Option<api::cluster::Minimum>| {
        minimum.map_or(1, |minimum| usize::from(minimum.minimum))
    };
    Creation {
        etcd: start.etcd.map_or(1, |minimum| usize::from(minimum.minimum)),
        // Without these there is no cluster, whatever a spec says.
        control_plane: least(start.control_plane).max(1),
        nodes: least(start.nodes),
        last_node_creation: start
            .last_node_creation
            .unwrap_or(Duration::from_seconds(0)),
        authorities: creation.authorities_secret_ref,
        conduct: Conduct {
            unreachable: thresholds.unreachable.unwrap_or(Threshold::Percent(0)),
            on_breach: thresholds.on_breach.unwrap_or_default(),
            max_retries: creation.max_retries.unwrap_or(1),
            approval: creation.approval.unwrap_or_default(),
        },
    }
}

/// As creation, where it says nothing of its own. That a host does not answer is no reason to keep it.
fn removal(
    spec: &ClusterSpec,
    creation: Conduct,
    leaving: Vec<HostName>,
    nodes: &[ClusterNode],
) -> Removal {
    let operations = spec.operations.as_ref();
    let remove = operations.and_then(|operations| operations.remove.clone());
    let remove = remove.unwrap_or_default();
    Removal {
        leaving,
        drain_timeout: remove.drain_timeout.unwrap_or(DRAIN_TIMEOUT),
        forced: nodes
            .iter()
            .filter(|node| leaving::is_forced(node))
            .filter_map(|node| node.name_any().parse().ok())
            .collect(),
        conduct: Conduct {
            max_retries: remove.max_retries.unwrap_or(creation.max_retries),
            approval: remove.approval.unwrap_or_default(),
            ..creation
        },
    }
}

/// The hosts in order of declaration.
fn hosts(nodes: &[ClusterNode]) -> Vec<Host> {
    let separate_etcd = nodes
        .iter()
        .any(|node| node.spec.node_type == NodeType::Etcd);
    nodes
        .iter()
        .map(|node| Host {
            name: node.name_any(),
            roles: roles(node, separate_etcd),
            variables: node.spec.inventory.clone(),
            extra_vars_secret_ref: node.spec.extra_vars_secret_ref.clone(),
        })
        .collect()
}

fn roles(node: &ClusterNode, separate_etcd: bool) -> Vec<Role> {
    let mut roles = node
        .spec
        .roles
        .clone()
        .unwrap_or_else(|| match node.spec.node_type {
            NodeType::Master if separate_etcd => vec![Role::ControlPlane],
            NodeType::Master => vec![Role::ControlPlane, Role::Etcd],
            NodeType::Worker => vec![Role::Worker],
            NodeType::Etcd => vec![Role::Etcd],
            NodeType::CalicoRr => vec![Role::CalicoRr],
            NodeType::Bastion => vec![Role::Bastion],
        });
    roles.sort_unstable();
    roles.dedup();
    roles
}

fn kubernetes(
    cluster: &Cluster,
    release: KubesprayVersion,
    observed: &Observed,
    given: &Given<'_>,
    problems: &mut Vec<Problem>,
) -> Option<KubernetesVersion> {
    let field = "Cluster spec.kubernetesVersion";
    let built = cluster
        .status
        .as_ref()
        .and_then(|status| status.kubernetes_version);
    let policy = Policy::of(cluster).zip(built);
    let written = cluster.spec.kubernetes_version;
    let wanted = policy.map_or(written, |(_, built)| written.max(Some(built)));
    if let Playbooks::Ready(checkout) = &observed.playbooks {
        // One that was begun comes to its end, or a person's word, before the policy leads further.
        let begun = upgrade::begun(&observed.runs).and_then(|begun| begun.kubernetes);
        let newest = |(policy, built): (Policy, _)| policy.kubernetes(built, &checkout.installable);
        let taken = policy.map(|policy| begun.unwrap_or_else(|| newest(policy)));
        // What is built stays, where the spec does not say.
        let wanted = wanted.max(taken).or(built);
        let wanted = wanted.unwrap_or(checkout.installable.default);
        let mut installable = checkout.installable.clone();
        let missing = contract::has_checksums(given)
            .then(|| contract::missing_checksums(wanted, checkout, given))
            .flatten();
        if missing.as_ref().is_some_and(Vec::is_empty) {
            installable.versions.insert(wanted);
        }
        if let Err(error) = catalogue::check_version(wanted, &installable, built) {
            let remedy = version_remedy(&error, missing.as_deref());
            problems.push(Problem::new(field, wanted, error.to_string(), remedy));
        }
        return Some(wanted);
    }
    if let Some(wanted) = wanted
        && let Ok(release) = catalogue::release(release)
        && wanted < release.kubernetes_minimum
    {
        problems.push(Problem::new(
            field,
            wanted,
            format!(
                "kubespray {} installs Kubernetes from {} on",
                release.version, release.kubernetes_minimum
            ),
            "choose a newer version, or an older kubespray release",
        ));
    }
    wanted
}

/// `missing` names the checksums that a version of one's own lacks.
fn version_remedy(error: &VersionError, missing: Option<&[String]>) -> String {
    match (error, missing) {
        (VersionError::NotInstallable { .. }, Some(missing)) => format!(
            "write a version that the release can install, or give checksums of this one in {} too",
            missing.join(", ")
        ),
        (VersionError::NotInstallable { wanted, .. }, _) => {
            let by = catalogue::installing(*wanted).map_or_else(
                || "another kubespray release".to_owned(),
                |release| format!("kubespray {}, which installs it", release.version),
            );
            format!(
                "name {by} (spec.kubespray.version), or write a version that the release can install"
            )
        }
        (
            VersionError::SkippedMinor {
                wanted,
                installed,
                minor,
            },
            _,
        ) => bridged(*wanted, *installed, *minor),
        (VersionError::Downgrade { installed, .. }, _) => {
            format!("write {installed}, or a newer one")
        }
    }
}

/// How a cluster comes to a version where the playbooks at hand lack a minor version on the way.
fn bridged(wanted: KubernetesVersion, installed: KubernetesVersion, minor: u16) -> String {
    let release = catalogue::bridge(minor).filter(|_| wanted.major == installed.major);
    let by = release.map_or_else(String::new, |release| {
        format!(
            ", which kubespray {} installs (spec.kubespray.version)",
            release.version
        )
    });
    format!(
        "write a version of {}.{minor}{by}; once the cluster runs it, ask for {wanted}",
        installed.major
    )
}

/// The order that is state. The newest run that says one tells it where the status lost it, or is of before that run; where the
/// status is of that run, or does not say of which it is, it may only add to it. Where runs were deleted since, the status knows
/// better.
fn persisted(
    cluster: &Cluster,
    observed: &Observed,
    problems: &mut Vec<Problem>,
) -> InventoryStatus {
    let status = cluster.status.as_ref();
    let status = status.and_then(|status| status.inventory.clone());
    let mut runs = observed.runs.iter().rev();
    let newest = runs.find(|run| Operation::says_order(run));
    let moves_head = newest
        .and_then(Operation::of)
        .is_some_and(|operation| operation.order == Order::Moves);
    let run = newest
        .and_then(|run| Inputs::from_map(&run.spec.plan.inputs).ok())
        .map(|inputs| inputs.inventory);
    match (status, run) {
        (Some(status), Some(run)) => {
            let number = |run: &str| runs::number(run);
            let of = status.run.as_deref().map(number);
            let newest = newest.map(|run| number(&run.name_any()));
            if of.is_some() && of < newest {
                return run;
            }
            let errors = inventory::appends(&run, &status);
            // The status is of before the run has ended.
            if moves_head && !errors.is_empty() {
                return run;
            }
            problems.extend(errors.into_iter().map(|error| {
                let mut problem = problem::of_inventory(error);
                problem.field = format!("Cluster {}", problem.field);
                problem
            }));
            status
        }
        (status, run) => status.or(run).unwrap_or_default(),
    }
}

/// What the start conditions still ask for.
fn missing_hosts(creation: &Creation, inputs: &Inputs) -> Vec<String> {
    let count = |role| {
        let with = |host: &&Host| host.roles.contains(&role);
        inputs.hosts.iter().filter(with).count()
    };
    [
        (creation.etcd, count(Role::Etcd), "etcd host"),
        (
            creation.control_plane,
            count(Role::ControlPlane),
            "control-plane host",
        ),
        (creation.nodes, inputs.hosts.len(), "host"),
    ]
    .into_iter()
    .filter_map(|(least, there, what)| match least.saturating_sub(there) {
        0 => None,
        1 => Some(format!("1 more {what}")),
        more => Some(format!("{more} more {what}s")),
    })
    .collect()
}

fn source_input(playbooks: &Playbooks, problems: &mut Vec<Problem>) -> SourceInput {
    match playbooks {
        Playbooks::Ready(checkout) => checkout.source.clone(),
        Playbooks::Unusable(problem) => {
            problems.push(problem.clone());
            SourceInput::default()
        }
        Playbooks::Unwanted | Playbooks::Fetching | Playbooks::Unreachable(_) => {
            SourceInput::default()
        }
    }
}

fn ssh(spec: &ClusterSpec, hosts: &[Host]) -> SshInput {
    let ssh = spec.ssh.clone().unwrap_or_default();
    let host = hosts
        .iter()
        .find(|host| host.roles.contains(&Role::Bastion));
    let user = ssh.user.unwrap_or_else(|| "root".to_owned());
    let port = ssh.port.unwrap_or(22);
    SshInput {
        key: ssh.private_key_secret_ref,
        known_hosts: ssh.known_hosts,
        known_hosts_secret: ssh.known_hosts_secret_ref,
        bastion: ssh.bastion.or_else(|| {
            host.map(|host| api::cluster::Bastion {
                address: host.variables.ansible_host.clone(),
                user: host.variables.ansible_user.clone(),
                port: Some(host.variables.ansible_port.unwrap_or(port)),
            })
        }),
        user,
        port,
        connect_timeout: ssh.connect_timeout.unwrap_or(CONNECT_TIMEOUT),
    }
}

fn deploy(spec: &ClusterSpec) -> Option<&api::cluster::Deploy> {
    spec.nodes.as_ref()?.all.as_ref()?.deploy.as_ref()
}

fn variables(spec: &ClusterSpec) -> serde_json::Map<String, serde_json::Value> {
    deploy(spec)
        .and_then(|deploy| deploy.extra_vars.clone())
        .unwrap_or_default()
}

/// Whether the mirror is looked at before runs.
fn mirrored(spec: &ClusterSpec) -> bool {
    let kubespray = spec.kubespray.as_ref();
    let mirror = kubespray.and_then(|kubespray| kubespray.mirror.as_ref());
    mirror.and_then(|mirror| mirror.check) == Some(MirrorCheck::BeforeRuns)
}

fn renew(spec: &ClusterSpec) -> Duration {
    renewal::of_all(spec).unwrap_or(RENEW)
}

/// Whether a mistake is about how many hosts there are.
fn is_about_numbers(error: &InventoryError) -> bool {
    error.field == "ClusterNodes"
}
