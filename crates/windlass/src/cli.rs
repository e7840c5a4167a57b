//! The command line: every command, option and default, and what `--help` says of them.

use std::{net::SocketAddr, path::PathBuf};

use ansible::source::{Policy, Protocol, Room};
use api::{KubernetesVersion, KubesprayVersion};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use kubespray::init::Machine;

/// One operator for the whole life of Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, about, long_about = LONG_ABOUT, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const LONG_ABOUT: &str = "One operator for the whole life of Kubernetes clusters.\n\n\
    Write Cluster and ClusterNode objects, start `windlass up`, and watch a real cluster being raised by kubespray's \
    playbooks, step by step. No cluster is needed to make a cluster: `windlass up` brings its own Kubernetes-compatible \
    API.";

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Where Windlass keeps its objects, sources, sandboxes and runs [default: $XDG_DATA_HOME/windlass]
    #[arg(long, global = true, env = "WINDLASS_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The kubeconfig of the API [default: the one in the data directory, then $KUBECONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The namespace
    #[arg(
        short,
        long,
        global = true,
        default_value = "default",
        value_name = "NAME"
    )]
    pub(crate) namespace: String,
    /// Say more; twice for debugging. WINDLASS_LOG takes a filter such as kapi=debug
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// How log lines look
    #[arg(long, global = true, default_value = "text", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start Windlass on this machine: the embedded API and the controllers
    Up(Up),
    /// Start the controllers alone, against an API that runs elsewhere
    Controller(Box<Controller>),
    /// Execute one Run; Windlass starts this by itself
    Runner(Runner),
    /// Apply objects from files or directories (server-side apply)
    Apply(Apply),
    /// Print objects as kubectl does
    Get(Get),
    /// Show the cluster, its run, the steps and the hosts; live with --watch
    Status(Status),
    /// Show what would be done, in which order, on which hosts and why; nothing is touched
    Plan(Plan),
    /// Ask for hosts and write a first Cluster and its ClusterNodes; no host is touched
    Init(Init),
    /// Turn an inventory that kubespray was run with into a Cluster and its ClusterNodes; no host is touched
    Adopt(Adopt),
    /// Render, explain, compare and check a fleet of clusters from files; no API is asked
    #[command(subcommand)]
    Inventory(Inventory),
    /// List the steps of a playbook: id, hosts and number of tasks
    Steps(Steps),
    /// Print what a run's steps wrote
    Logs(Logs),
    /// Stop a run at the next task boundary; it keeps its place
    Pause(Control),
    /// Let a paused run go on
    Resume(Resume),
    /// End a run at the next task boundary, for good
    Cancel(Control),
    /// Try a failed step again
    Retry(StepControl),
    /// Let a step that waits for a person go on
    Approve(StepControl),
    /// Count a step as done without executing it
    Skip(Skip),
    /// Run the playbooks over a built cluster once more: brings hosts back to the spec and carries out changed variables
    Converge(Converge),
    /// Renew the certificates of a built cluster's control plane, one host after the other, and its kubeconfig
    Renew(Converge),
    /// Let start now what waits for a maintenance window
    Maintain(Maintain),
    /// Remove hosts from a built cluster, or take that back
    #[command(subcommand)]
    Node(Node),
    /// Carry the Cluster of a namespace, and all that belongs to it, to another API
    Move(Move),
    /// Print the kubeconfig of a cluster that Windlass raised
    Kubeconfig(Kubeconfig),
    /// Make or check the Python environment of a kubespray release
    Sandbox(Sandbox),
    /// Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`
    Crds,
    /// Copy this program into a directory; runner pods start so
    #[command(hide = true)]
    Install(Install),
    /// Print the completion script of a shell
    Completion(Completion),
}

/// Options of `up`.
#[derive(Args, Debug)]
pub(crate) struct Up {
    /// Apply these files or directories once the API answers
    #[arg(short, long, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    /// The loopback address that the API listens on [default: the one of last time, else a free port]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
}

/// Options of `controller`.
#[derive(Args, Debug)]
pub(crate) struct Controller {
    /// Watch this namespace only; empty: all [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) watch_namespace: Option<String>,
    /// Where runners are [default: job in a pod, else process]
    #[arg(long, value_name = "PLACE")]
    pub(crate) runners: Option<Runners>,
    /// The image of this operator, which runner pods take windlass from
    #[arg(long, env = "WINDLASS_IMAGE", default_value = concat!("windlass:v", env!("CARGO_PKG_VERSION")), value_name = "IMAGE")]
    pub(crate) image: String,
    /// The image that runs execute in where a Cluster names none
    #[arg(long, env = "WINDLASS_RUNNER_IMAGE", default_value = concat!("windlass-runner:v", env!("CARGO_PKG_VERSION")), value_name = "IMAGE")]
    pub(crate) runner_image: String,
    /// Secrets with which runner pods pull images where a Cluster names none, in the Cluster's namespace; with commas
    /// between them
    #[arg(
        long,
        env = "WINDLASS_RUNNER_PULL_SECRETS",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    pub(crate) runner_pull_secret: Vec<String>,
    /// When runner pods pull images: Always, IfNotPresent or Never
    #[arg(
        long,
        env = "WINDLASS_IMAGE_PULL_POLICY",
        default_value = "IfNotPresent",
        value_name = "POLICY"
    )]
    pub(crate) image_pull_policy: String,
    #[command(flatten)]
    pub(crate) allowed: Allowed,
    /// TCP ports that runner pods may reach by a NetworkPolicy, beside those of ssh, with commas between them; empty: there
    /// is no such policy
    #[arg(
        long,
        env = "WINDLASS_RUNNER_EGRESS_PORTS",
        default_value = "",
        value_name = "PORTS"
    )]
    pub(crate) runner_egress_ports: String,
    /// Work only while holding this Lease, so that one of several replicas does
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub(crate) lease: Option<String>,
    /// Serve /healthz and /readyz on this address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Serve /metrics on this address: on one of this machine to everybody there, on any other over TLS to whom the API server
    /// knows by a bearer token and lets get /metrics
    #[arg(long, env = "WINDLASS_METRICS", value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// The directory with tls.crt and tls.key for /metrics, read anew whenever they change [default: a certificate of its
    /// own making]
    #[arg(long, env = "WINDLASS_METRICS_CERTIFICATE", value_name = "DIR")]
    pub(crate) metrics_certificate: Option<String>,
    #[command(flatten)]
    pub(crate) sources: Sources,
}

/// What sources of playbooks may be, where not the person at this machine but whoever may write Clusters names them.
#[expect(
    clippy::struct_field_names,
    reason = "the flags are named by their fields"
)]
#[derive(Args, Clone, Debug)]
pub(crate) struct Sources {
    /// Bring playbooks by these protocols: https, ssh, http, git, file; with commas between them
    #[arg(
        long,
        env = "WINDLASS_SOURCE_PROTOCOLS",
        value_delimiter = ',',
        default_value = "https,ssh",
        value_name = "PROTOCOL"
    )]
    pub(crate) source_protocol: Vec<Protocol>,
    /// Bring playbooks also from these addresses, although they are loopback, link-local or the like; with commas between
    /// them
    #[arg(
        long,
        env = "WINDLASS_SOURCE_ADDRESSES",
        value_delimiter = ',',
        value_name = "CIDR"
    )]
    pub(crate) source_address: Vec<Network>,
    /// Take playbooks from directories below these alone; with commas between them
    #[arg(
        long,
        env = "WINDLASS_SOURCE_ROOTS",
        value_delimiter = ',',
        default_value = "/opt/windlass",
        value_name = "DIR"
    )]
    pub(crate) source_root: Vec<PathBuf>,
    /// Keep playbooks of as many MiB; those of one namespace take an eighth of it at most, but 512 MiB at least
    #[arg(
        long,
        env = "WINDLASS_SOURCE_CACHE",
        default_value_t = 2048,
        value_name = "MIB"
    )]
    pub(crate) source_cache: u32,
}

impl Sources {
    /// All of it together.
    pub(crate) fn policy(&self) -> Policy {
        let usual = Policy::tenants();
        let total = u64::from(self.source_cache) << 20;
        Policy {
            protocols: self.source_protocol.clone(),
            // The chart writes an empty text where there are none.
            addresses: self
                .source_address
                .iter()
                .filter_map(|Network(network)| *network)
                .collect(),
            roots: Some(self.source_root.clone()),
            room: Room {
                total,
                share: usual.room.share.max(total / 8),
                ..usual.room
            },
            ..usual
        }
    }
}

/// A network, or an empty text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network(Option<IpNet>);

impl std::str::FromStr for Network {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        text.parse().map(|network| Self(Some(network)))
    }
}

/// A policy as the operator hands it to its runners.
#[derive(Clone, Debug)]
pub(crate) struct SourcePolicy(pub(crate) Policy);

impl std::str::FromStr for SourcePolicy {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text).map(Self)
    }
}

/// What Clusters may ask of their runner pods, beside what every Cluster may.
#[expect(
    clippy::struct_field_names,
    reason = "the flags are named by their fields"
)]
#[derive(Args, Debug)]
pub(crate) struct Allowed {
    /// Allow runner pods images that begin so, up to a / : or @ of their names, beside the operator's own; with commas
    /// between them
    #[arg(
        long,
        env = "WINDLASS_ALLOW_IMAGES",
        value_delimiter = ',',
        value_name = "PREFIX"
    )]
    pub(crate) allow_image: Vec<String>,
    /// Allow runner pods into the network of their nodes
    #[arg(long, env = "WINDLASS_ALLOW_HOST_NETWORK")]
    pub(crate) allow_host_network: bool,
    /// Allow runner pods these PriorityClasses
    #[arg(
        long,
        env = "WINDLASS_ALLOW_PRIORITY_CLASSES",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    pub(crate) allow_priority_class: Vec<String>,
    /// Allow runner pods these RuntimeClasses
    #[arg(
        long,
        env = "WINDLASS_ALLOW_RUNTIME_CLASSES",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    pub(crate) allow_runtime_class: Vec<String>,
    /// Allow runner pods to tolerate taints with these keys
    #[arg(
        long,
        env = "WINDLASS_ALLOW_TOLERATIONS",
        value_delimiter = ',',
        value_name = "KEY"
    )]
    pub(crate) allow_toleration: Vec<String>,
    /// Allow volumes of runners these StorageClasses, beside the default one
    #[arg(
        long,
        env = "WINDLASS_ALLOW_STORAGE_CLASSES",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    pub(crate) allow_storage_class: Vec<String>,
}

/// Where runners are.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Runners {
    /// Processes of this machine.
    Process,
    /// Jobs of the cluster.
    Job,
}

/// Options of `install`.
#[derive(Args, Debug)]
pub(crate) struct Install {
    /// The directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Options of `runner`.
#[derive(Args, Debug)]
pub(crate) struct Runner {
    /// The Run, as NAMESPACE/NAME
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) run: String,
    /// What sources of playbooks may be, as the operator says it [default: what an operator allows by default]
    #[arg(long, hide = true, value_name = "JSON")]
    pub(crate) source_policy: Option<SourcePolicy>,
}

/// Options of `apply`.
#[derive(Args, Debug)]
pub(crate) struct Apply {
    /// Files or directories; - for standard input
    #[arg(short, long, required = true, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    /// Check the objects against the API, store nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take over fields that another manager owns
    #[arg(long)]
    pub(crate) force_conflicts: bool,
}

/// Options of `get`.
#[derive(Args, Debug)]
pub(crate) struct Get {
    /// The kind, or several with commas: clusters, clusternodes, runs, events, secrets, ...
    #[arg(value_name = "KIND[,KIND]")]
    pub(crate) kinds: String,
    /// One object of the kind
    pub(crate) name: Option<String>,
    /// Of all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// The format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: GetOutput,
}

/// Formats of `get`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum GetOutput {
    /// Columns.
    Table,
    /// More columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Names.
    Name,
}

/// Formats that a script would want, beside the one for people.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Options of `status`.
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The cluster [default: the only one of the namespace]
    pub(crate) cluster: Option<String>,
    /// Follow until the operation ends; exits with 0 if it succeeded
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `plan`.
#[derive(Args, Debug)]
pub(crate) struct Plan {
    /// Files or directories with the Cluster and its ClusterNodes
    #[arg(short, long, required_unless_present = "live", value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    /// What would be done next about the Clusters of the API, with the files applied to them, if there are any
    #[arg(long)]
    pub(crate) live: bool,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `init`.
#[derive(Args, Debug)]
pub(crate) struct Init {
    /// The directory to write into, one that is not there yet: cluster.yaml and nodes.yaml
    #[arg(value_name = "NEW")]
    pub(crate) directory: PathBuf,
    /// The name of the Cluster [default: the name of the directory]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The control planes, with commas between them: one, three or five [default: asked for, with all that is not given]
    #[arg(long, value_delimiter = ',', value_name = "[NAME=]ADDRESS")]
    pub(crate) control_plane: Vec<Machine>,
    /// The workers, with commas between them [default: the control planes run pods as well]
    #[arg(long, value_delimiter = ',', value_name = "[NAME=]ADDRESS")]
    pub(crate) worker: Vec<Machine>,
    /// The hosts for etcd alone, with commas between them: three or five [default: the control planes are its members]
    #[arg(long, value_delimiter = ',', value_name = "[NAME=]ADDRESS")]
    pub(crate) etcd: Vec<Machine>,
    /// The user to log in as [default: root]
    #[arg(long, value_name = "USER")]
    pub(crate) ssh_user: Option<String>,
    /// The kubespray release [default: the newest that Windlass knows]
    #[arg(long, value_name = "VERSION", conflicts_with = "checkout")]
    pub(crate) kubespray_version: Option<KubesprayVersion>,
    /// A kubespray checkout to be used instead of the release's tag
    #[arg(long, value_name = "DIR")]
    pub(crate) checkout: Option<PathBuf>,
    /// The Kubernetes version [default: the release's own]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes_version: Option<KubernetesVersion>,
}

/// Options of `adopt`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("release").required(true).multiple(false))]
pub(crate) struct Adopt {
    /// The inventory: a directory with one hosts file, or the hosts files that ansible-playbook is given with -i
    #[arg(required = true, value_name = "INVENTORY")]
    pub(crate) inventory: Vec<PathBuf>,
    /// The kubespray release that built the cluster
    #[arg(long, group = "release", value_name = "VERSION")]
    pub(crate) kubespray_version: Option<KubesprayVersion>,
    /// The kubespray checkout that built the cluster, which is also used from now on
    #[arg(long, group = "release", value_name = "DIR")]
    pub(crate) checkout: Option<PathBuf>,
    /// The Kubernetes version that the cluster has [default: what kube_version says]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes_version: Option<KubernetesVersion>,
    /// The name of the Cluster [default: the name of the directory]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The user to log in as [default: what ansible_user says]
    #[arg(long, value_name = "USER")]
    pub(crate) ssh_user: Option<String>,
    /// A file with the password of what is vaulted; may be given several times [default: asked for, where it is needed]
    #[arg(long, value_name = "FILE")]
    pub(crate) vault_password_file: Vec<PathBuf>,
    /// Write the objects into a new directory instead: cluster.yaml, nodes.yaml, and secrets.yaml with what was vaulted
    #[arg(short, long, value_name = "NEW")]
    pub(crate) output: Option<PathBuf>,
    /// Fail if a host would get a variable that differs from what the inventory gives it
    #[arg(long)]
    pub(crate) check: bool,
}

/// Options of `inventory`.
#[derive(Debug, Subcommand)]
pub(crate) enum Inventory {
    /// Print the objects that a cluster is rendered to
    Render(Render),
    /// Say where each value comes from, through merges and templates, and what it overrode
    Explain(Explain),
    /// Say which clusters differ between two inventories, and where; exits with 0 if none does, with 1 if some do, with 2 on errors
    Diff(DiffInventories),
    /// Render every cluster and print what is wrong; exits with 0 if nothing is, else with 2
    Check(CheckInventory),
}

/// Options of `inventory render`.
#[derive(Args, Debug)]
pub(crate) struct Render {
    /// The FleetCluster, as [NAMESPACE/]NAME [default: all]
    pub(crate) cluster: Option<String>,
    /// Files or directories with the inventory; of a directory also those below it
    #[arg(short, long, required = true, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
}

/// Options of `inventory explain`.
#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The FleetCluster, as [NAMESPACE/]NAME
    pub(crate) cluster: String,
    /// A value, as kubernetes.version, or an object and a field of it, as Cluster/NAME:spec.ssh; all that stands below it
    /// [default: all values]
    pub(crate) path: Option<String>,
    /// Files or directories with the inventory; of a directory also those below it
    #[arg(short, long, required = true, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `inventory diff`.
#[derive(Args, Debug)]
pub(crate) struct DiffInventories {
    /// A file or directory with the inventory before
    pub(crate) base: PathBuf,
    /// A file or directory with the inventory after
    pub(crate) head: PathBuf,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `inventory check`.
#[derive(Args, Debug)]
pub(crate) struct CheckInventory {
    /// Files or directories with the inventory; of a directory also those below it
    #[arg(short, long, required = true, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
}

/// Options of `steps`.
#[derive(Args, Debug)]
pub(crate) struct Steps {
    /// A kubespray checkout
    #[arg(value_name = "DIR")]
    pub(crate) checkout: PathBuf,
    /// The playbook: cluster, scale, upgrade-cluster, remove-node, reset or recover-control-plane
    #[arg(default_value = "cluster")]
    pub(crate) playbook: String,
    /// Count tasks as well, which starts ansible-playbook once
    #[arg(long)]
    pub(crate) tasks: bool,
    /// Write each step as a playbook of its own into a new directory, to be run by hand with ansible-playbook
    #[arg(long, value_name = "NEW")]
    pub(crate) write: Option<PathBuf>,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `logs`.
#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// The Run [default: the newest of the namespace]
    pub(crate) run: Option<String>,
    /// Of this step only
    #[arg(long, value_name = "ID")]
    pub(crate) step: Option<String>,
    /// What happened on this host only
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// Go on as more is written
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// Options of the commands that steer a run.
#[derive(Args, Debug)]
pub(crate) struct Control {
    /// The Run [default: the unfinished one of the namespace]
    pub(crate) run: Option<String>,
}

/// Options of `resume`.
#[derive(Args, Debug)]
pub(crate) struct Resume {
    /// The Run [default: the unfinished one of the namespace]
    pub(crate) run: Option<String>,
    /// Pause again after this step
    #[arg(long, value_name = "ID")]
    pub(crate) until: Option<String>,
}

/// Options of the commands that steer one step.
#[derive(Args, Debug)]
pub(crate) struct StepControl {
    /// The Run [default: the unfinished one of the namespace]
    pub(crate) run: Option<String>,
    /// The step [default: the one that failed or waits]
    #[arg(long, value_name = "ID")]
    pub(crate) step: Option<String>,
}

/// Options of `skip`.
#[derive(Args, Debug)]
pub(crate) struct Skip {
    /// The Run [default: the unfinished one of the namespace]
    pub(crate) run: Option<String>,
    /// The step
    #[arg(long, value_name = "ID")]
    pub(crate) step: String,
    /// Why, for the record
    #[arg(long)]
    pub(crate) reason: String,
}

/// Options of `converge` and `renew`.
#[derive(Args, Debug)]
pub(crate) struct Converge {
    /// The cluster [default: the only one of the namespace]
    pub(crate) cluster: Option<String>,
    /// Show what would be done, in which order, on which hosts and why; nothing is touched
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The format of --dry-run
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `maintain`.
#[derive(Args, Debug)]
pub(crate) struct Maintain {
    /// The cluster [default: the only one of the namespace]
    pub(crate) cluster: Option<String>,
}

/// Options of `node`.
#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Remove hosts: their pods go elsewhere, they are reset if they answer, and their ClusterNodes go
    Remove(RemoveNode),
    /// Keep a host whose ClusterNode is being deleted
    Keep(KeepNode),
}

/// Options of `node remove`.
#[derive(Args, Debug)]
pub(crate) struct RemoveNode {
    /// The ClusterNodes
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Delete pods whatever their PodDisruptionBudgets say, and forget a host that runs but does not answer
    #[arg(long)]
    pub(crate) force: bool,
    /// Show what would be done, in which order, on which hosts and why; nothing is touched
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The format of --dry-run
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `node keep`.
#[derive(Args, Debug)]
pub(crate) struct KeepNode {
    /// The ClusterNode
    pub(crate) name: String,
}

/// Options of `move`.
#[derive(Args, Debug)]
pub(crate) struct Move {
    /// The kubeconfig of the API to move to; --abort works without it, for an API that is lost
    #[arg(long, required_unless_present = "abort", value_name = "FILE")]
    pub(crate) to_kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) to_context: Option<String>,
    /// The namespace there; it is created if it is missing [default: that of --namespace]
    #[arg(long, value_name = "NAME")]
    pub(crate) to_namespace: Option<String>,
    /// Check everything and list what would be moved; nothing is written
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take back a move that was stopped before its point of no return: delete the copies there, go on here
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) abort: bool,
    /// How long a run that is at work may take to pause at a task boundary
    #[arg(long, default_value = "10m", value_name = "DURATION")]
    pub(crate) timeout: api::Duration,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `kubeconfig`.
#[derive(Args, Debug)]
pub(crate) struct Kubeconfig {
    /// The cluster [default: the only one of the namespace]
    pub(crate) cluster: Option<String>,
    /// Write it to this file, readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Make one for this user instead, with a certificate that the cluster signs; it may what RBAC lets the user do
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// When that of the user ends, from 10m on
    #[arg(long, default_value = "8h", value_name = "DURATION", requires = "user")]
    pub(crate) expires: api::Duration,
    /// A group that the user is in
    #[arg(long, value_name = "NAME", requires = "user")]
    pub(crate) group: Option<String>,
}

/// Options of `sandbox`.
#[derive(Args, Debug)]
pub(crate) struct Sandbox {
    /// A checkout whose environment is made; without it the releases that Windlass knows are listed
    #[arg(value_name = "DIR")]
    pub(crate) checkout: Option<PathBuf>,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `completion`.
#[derive(Args, Debug)]
pub(crate) struct Completion {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Prints the completion script of a shell.
pub(crate) fn completion(options: &Completion) {
    clap_complete::generate(
        options.shell,
        &mut Cli::command(),
        "windlass",
        &mut std::io::stdout(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
