//! The command line: every command, option and default, and what `--help` says of them.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use ansible::source::{Policy, Protocol, Room};
use anyhow::Context;
use api::{HostName, KubernetesVersion, KubesprayVersion};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use kubespray::init::Machine;
use providers::fetch::{self, Reach};

use crate::again::Typed;

/// One operator for the whole life of Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, about, long_about = LONG_ABOUT, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// What was typed, which is remembered too.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let words: Vec<_> = words.into_iter().collect();
        let mut cli = Self::try_parse_from(&words)?;
        cli.global.typed = Typed::new(words);
        Ok(cli)
    }
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
    /// The whole command
    #[arg(skip)]
    pub(crate) typed: Typed,
}

/// Options of commands that open encrypted files.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AgeKeys {
    /// A file with private keys of age, for files that are encrypted with SOPS or age [default: where sops looks for them]
    #[arg(long, value_name = "FILE")]
    pub(crate) age_key_file: Option<PathBuf>,
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
    /// Render, explain, compare and check a fleet of clusters from files; say what an edit changes, and steer its roll-out
    #[command(subcommand)]
    Inventory(Inventory),
    /// Install, upgrade and remove providers of Cluster API, and print what they are installed as
    #[command(subcommand)]
    Providers(Providers),
    /// Say which files and images hosts will ask for, fetch them, serve them where there is no network, and check that none is missing
    #[command(subcommand)]
    Mirror(Mirror),
    /// Say what a cluster of Cluster API waits for
    #[command(subcommand)]
    Describe(Describe),
    /// List the steps of a playbook: id, hosts and number of tasks
    Steps(Steps),
    /// Print what a run's steps wrote
    Logs(Logs),
    /// Say what a failure means, what to do about it, and what led to it
    #[command(subcommand)]
    Explain(ExplainWhat),
    /// Write a run into one file, to be sent to others: plan, variables, what happened and what was said, and no secret
    Bundle(Bundle),
    /// Show a run again from such a file, as it stood at any moment; no API is asked
    Replay(Replay),
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
    /// Upgrade one component of a built cluster alone
    #[command(subcommand)]
    Component(Component),
    /// Bring back a cluster whose etcd lost its quorum, from a member that is left or from a snapshot; or roll one that works back to a
    /// snapshot
    Recover(Recover),
    /// Save a snapshot of etcd in the store of the Cluster (spec.etcd.snapshots), and verify it
    Snapshot(Converge),
    /// List the snapshots of etcd that lie in the store, or try one
    #[command(subcommand)]
    Snapshots(Snapshots),
    /// Let start now what waits for a maintenance window
    Maintain(Maintain),
    /// Remove hosts from a built cluster, or take that back; cordon, drain or restart a part of nodes that stay
    #[command(subcommand)]
    Node(Node),
    /// Reset a whole cluster: Kubernetes is removed from all of its hosts, with its data, and the cluster is forgotten
    Reset(ResetCluster),
    /// Make a token by which a node may join a built cluster, or look at the certificates on its hosts
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Carry the Cluster of a namespace, and all that belongs to it, to another API
    Move(Move),
    /// Serve OpenStack's Container Infrastructure Management API (Magnum), and make its clusters on hosts of a pool
    Magnum(Magnum),
    /// Look at services of OpenStack: what would be done, where a setting comes from, how they stand; and do a step by hand
    #[command(subcommand)]
    Openstack(Openstack),
    /// Print the kubeconfig of a cluster that Windlass raised
    Kubeconfig(Kubeconfig),
    /// Make or check the Python environment of a kubespray release
    Sandbox(Sandbox),
    /// Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`
    Crds(Crds),
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
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
    /// The loopback address that the API listens on [default: the one of last time, else a free port]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Serve /metrics on this loopback address, to everybody on this machine; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Install providers of Cluster API in other clusters: serve their definitions and work on their objects
    #[arg(long)]
    pub(crate) providers: bool,
    /// Work on fleets: serve the definitions of inventories, render FleetClusters, and change them as Rollouts say
    #[arg(long)]
    pub(crate) fleet: bool,
    /// Keep Secrets as they are written in HashiCorp Vault or OpenBao: serve the definition of VaultSecrets and work on them
    #[arg(long)]
    pub(crate) vault: bool,
    /// Serve OpenStack's Container Infrastructure Management API too, as `windlass magnum` does, for whom the Keystone at this
    /// address vouches
    #[arg(long, value_name = "KEYSTONE")]
    pub(crate) magnum: Option<String>,
    /// The loopback address that it listens on
    #[arg(
        long,
        default_value = MAGNUM,
        requires = "magnum",
        value_name = "ADDRESS"
    )]
    pub(crate) magnum_listen: SocketAddr,
    /// A kubespray checkout that makes its clusters, instead of the newest release that Windlass knows
    #[arg(long, requires = "magnum", value_name = "DIR")]
    pub(crate) magnum_checkout: Option<PathBuf>,
}

/// An address of this machine alone.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "write an address and a port, for example 127.0.0.1:9464".to_owned())?;
    if !address.ip().is_loopback() {
        return Err(format!(
            "{address} is reached from other machines, and nobody is asked who they are: write a loopback address, for example \
             127.0.0.1:{}, and put a proxy that asks in front",
            address.port()
        ));
    }
    Ok(address)
}

/// Where clients of Magnum look for it.
const MAGNUM: &str = "127.0.0.1:9511";

/// Options of `magnum`.
#[derive(Args, Debug)]
#[command(after_long_help = MAGNUM_HELP, subcommand_negates_reqs = true)]
pub(crate) struct Magnum {
    #[command(subcommand)]
    pub(crate) command: Option<MagnumCommand>,
    /// The address of Keystone, which vouches for the tokens of clients, with its scheme and port
    #[arg(long, env = "WINDLASS_KEYSTONE", value_name = "URL", required = true)]
    pub(crate) keystone: Option<String>,
    /// The region of the catalogue whose services clusters use [default: the one that there is]
    #[arg(long, env = "WINDLASS_REGION", value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// The address to listen on; without TLS others than loopback addresses are refused
    #[arg(long, default_value = MAGNUM, value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// The file with the certificate to serve by, and those between it and its authority, read anew when it changes
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The file with its key
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The address that links in answers begin with, as clients know it from the catalogue [default: the one that they wrote]
    #[arg(long, value_parser = magnum::public_url, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// A file with rules in the form of oslo.policy, which hold instead of the defaults
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Work on clusters only while holding this Lease, so that one of several replicas does; all of them answer
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub(crate) lease: Option<String>,
    /// How many clusters a project may have that has no quota
    #[arg(long, default_value_t = 20, value_name = "NUMBER")]
    pub(crate) max_clusters: u32,
    /// The namespace of the Hosts that clusters are made on
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub(crate) pool: String,
    /// The Secret of that namespace with their ssh key, as ssh-privatekey
    #[arg(long, default_value = "magnum-ssh", value_name = "NAME")]
    pub(crate) ssh_key: String,
    /// The kubespray release that makes clusters [default: the newest that Windlass knows]
    #[arg(long, value_name = "VERSION", conflicts_with = "checkout")]
    pub(crate) kubespray_version: Option<KubesprayVersion>,
    /// A kubespray checkout to be used instead of the release's tag
    #[arg(long, value_name = "DIR")]
    pub(crate) checkout: Option<PathBuf>,
    /// Helm, 3.14 or later, with which Addons are installed into clusters: its path, or its name
    #[arg(
        long,
        env = "WINDLASS_HELM",
        default_value = "helm",
        value_name = "PROGRAM"
    )]
    pub(crate) helm: PathBuf,
}

/// What is done about the Magnum API beside serving it.
#[derive(Debug, Subcommand)]
pub(crate) enum MagnumCommand {
    /// Put the service and its endpoints into Keystone's catalogue, or bring them to these addresses. Which OpenStack is meant, and as
    /// whom, is said by OS_CLOUD and clouds.yaml, or by OS_AUTH_URL, OS_USERNAME, OS_PASSWORD and their like, as for the openstack command
    Register(Register),
    /// Bring clusters, templates, quotas and authorities of clusters from the database of another Magnum, which is only read. Without
    /// --apply it is said what would come, and what would not
    #[command(after_help = MIGRATE_HELP)]
    Migrate(Migrate),
}

const MIGRATE_HELP: &str = "The address of the database is as `connection` in magnum.conf: mysql+pymysql://USER:PASSWORD@HOST/magnum. It is read from \
    a file, or from the variable MAGNUM_DATABASE, so that its password is in no list of processes. A user with the right SELECT is enough.\n\n\
    What is there already is left as it is, so this can be done again.";

/// Options of `magnum migrate`.
#[derive(Args, Debug)]
pub(crate) struct Migrate {
    /// The file with the address of the database [default: what the variable MAGNUM_DATABASE has]
    #[arg(long, value_name = "FILE")]
    pub(crate) database: Option<PathBuf>,
    /// A directory with authorities as UUID.crt, UUID.key and UUID.pass: that of the `local` manager, or what was exported of Barbican
    #[arg(long, value_name = "DIR")]
    pub(crate) certificates: Option<PathBuf>,
    /// Let keys of clusters come through a network in the clear: nobody else is on the way
    #[arg(long)]
    pub(crate) plaintext: bool,
    /// Write what is missing, and look afterwards whether all is there
    #[arg(long)]
    pub(crate) apply: bool,
    /// Leave out what cannot be carried over. Else nothing is written while there is such
    #[arg(long, requires = "apply")]
    pub(crate) skip_refused: bool,
}

/// Options of `magnum register`.
#[derive(Args, Debug)]
pub(crate) struct Register {
    /// The address of the service, with http or https before it
    #[arg(value_parser = magnum::public_url, value_name = "URL")]
    pub(crate) url: String,
    /// Another address for services of the cloud
    #[arg(long, value_parser = magnum::public_url, value_name = "URL")]
    pub(crate) internal_url: Option<String>,
    /// Another address for its administrators
    #[arg(long, value_parser = magnum::public_url, value_name = "URL")]
    pub(crate) admin_url: Option<String>,
    /// The region of the endpoints [default: that of the cloud]
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// What a service is called that is made
    #[arg(long, default_value = "magnum", value_name = "NAME")]
    pub(crate) name: String,
}

const MAGNUM_HELP: &str = "The API is the one of `windlass up`, or that of a kubeconfig. It needs the definitions of \
    magnum.windlass.dev, which `windlass up --magnum` brings along and `windlass crds --magnum` prints, and kubespray's \
    clusters are made by the operator that runs there.\n\n\
    A token vouches for itself: no user and no password of a service is needed. Clients find the service by the catalogue:\n  \
    windlass magnum register http://127.0.0.1:9511";

/// Options of `openstack`.
#[derive(Debug, Subcommand)]
pub(crate) enum Openstack {
    /// Say what would be done for an object in a file, step by step, and change nothing
    Plan(OpenstackFile),
    /// Print the objects that the steps of a service or a cloud make, in their order, for `kubectl apply -f -`; what is no object, or secret, is
    /// said in comments
    Render(RenderObjects),
    /// Say what a setting of a configuration file is, and who gave it
    Explain(ExplainSetting),
    /// Say how clouds, services and seeds stand
    Status,
    /// Have one step of a service, a cloud or a seed done by hand: it is a run of one step, and a Job that is complete stays
    Run(RunStep),
    /// Ask for a backup of a cloud: the databases of its services and their keys, encrypted
    Backup(BackupCloud),
    /// Say which backups of a cloud lie in its store
    Backups(ListBackups),
    /// Have a backup brought back beside the cloud, compared with what was saved, and a user of it known by a Keystone
    Drill(DrillBackup),
    /// Bring a cloud back to a backup: its services are stopped meanwhile, and what was written since is lost
    Restore(RestoreBackup),
    /// Install or change a Helm release from a chart of others, such as openstack-helm's: its hooks run, and it is waited for only where that
    /// can end
    InstallChart(InstallChart),
    /// Write the charts that steps are installed from into a directory, to be used without Windlass
    Charts {
        /// The directory, which is not there yet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// A file with objects of OpenStack.
#[derive(Args, Debug)]
pub(crate) struct OpenstackFile {
    /// The file with an OpenStack, an OpenStackService or an IdentitySeed
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: PathBuf,
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
}

/// Options of `openstack render`.
#[derive(Args, Debug)]
pub(crate) struct RenderObjects {
    /// The OpenStackService, or else the OpenStack
    #[arg(required_unless_present = "filename", conflicts_with = "filename")]
    pub(crate) object: Option<String>,
    /// A file with an OpenStack or an OpenStackService, instead of one of the cluster
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
    /// One step alone: its id, or what stands behind the slash of it; of a cloud SERVICE/ID
    #[arg(long, value_name = "STEP")]
    pub(crate) step: Option<String>,
    /// Helm, 3.14 or later: its path, or its name
    #[arg(
        long,
        env = "WINDLASS_HELM",
        default_value = "helm",
        value_name = "PROGRAM"
    )]
    pub(crate) helm: PathBuf,
}

/// Options of `openstack explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainSetting {
    /// The configuration file: keystone.conf
    pub(crate) file: String,
    /// The setting: DEFAULT.debug; without it, all of them
    pub(crate) setting: Option<String>,
    #[command(flatten)]
    pub(crate) of: OpenstackFile,
}

/// Options of `openstack install-chart`.
#[derive(Args, Debug)]
pub(crate) struct InstallChart {
    /// The Helm release
    pub(crate) release: String,
    /// The directory or the package of the chart
    #[arg(value_name = "CHART")]
    pub(crate) chart: PathBuf,
    /// A file with values, beside those of the chart. Helm keeps them in clear
    #[arg(long, value_name = "FILE")]
    pub(crate) values: Option<PathBuf>,
    /// Wait until everything of it is ready and its Jobs are done; refused where pods wait for what only a hook after them makes
    #[arg(long)]
    pub(crate) wait: bool,
    /// Say what waits for what cannot come, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How many seconds it may take
    #[arg(long, default_value_t = 900, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Helm, 3.14 or later: its path, or its name
    #[arg(
        long,
        env = "WINDLASS_HELM",
        default_value = "helm",
        value_name = "PROGRAM"
    )]
    pub(crate) helm: PathBuf,
}

/// Options of `openstack backup`.
#[derive(Args, Debug)]
pub(crate) struct BackupCloud {
    /// The OpenStack [default: the only one]
    pub(crate) cloud: Option<String>,
}

/// Options of `openstack backups`.
#[derive(Args, Debug)]
pub(crate) struct ListBackups {
    /// The OpenStack [default: the only one]
    pub(crate) cloud: Option<String>,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `openstack drill`.
#[derive(Args, Debug)]
pub(crate) struct DrillBackup {
    /// The OpenStack
    pub(crate) cloud: String,
    /// The backup, as `windlass openstack backups` names it
    pub(crate) backup: String,
}

/// Options of `openstack restore`.
#[derive(Args, Debug)]
pub(crate) struct RestoreBackup {
    /// The OpenStack
    pub(crate) cloud: String,
    /// The backup, as `windlass openstack backups` names it
    pub(crate) backup: String,
    /// The name of the OpenStack once more: what was written since the backup may be lost
    #[arg(long, value_name = "CLOUD")]
    pub(crate) confirm: Option<String>,
    /// The unique id of the cluster that the backup is of, where that was lost and this one stands for it
    #[arg(long, value_name = "UID")]
    pub(crate) from_cluster: Option<String>,
}

/// Options of `openstack run`.
#[derive(Args, Debug)]
pub(crate) struct RunStep {
    /// The OpenStackService, or else the OpenStack, or else the IdentitySeed
    pub(crate) object: String,
    /// The step: its id, or what stands behind the slash of it
    pub(crate) step: String,
}

/// Options of `crds`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Crds {
    /// Those of providers of Cluster API alone, where no other operator has brought them
    #[arg(long)]
    pub(crate) providers: bool,
    /// Those of the Magnum API alone
    #[arg(long, conflicts_with = "providers")]
    pub(crate) magnum: bool,
    /// Those of OpenStack's services alone
    #[arg(long, conflicts_with_all = ["providers", "magnum"])]
    pub(crate) openstack: bool,
    /// Those of fleets alone
    #[arg(long, conflicts_with_all = ["providers", "magnum", "openstack"])]
    pub(crate) fleet: bool,
    /// Those of secrets from Vault alone
    #[arg(long, conflicts_with_all = ["providers", "magnum", "openstack", "fleet"])]
    pub(crate) vault: bool,
}

/// Options of `controller`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Controller {
    /// Watch this namespace only; empty: all [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) watch_namespace: Option<String>,
    /// Where runners are [default: job in a pod, else process]
    #[arg(long, value_name = "PLACE")]
    pub(crate) runners: Option<Runners>,
    /// Install providers of Cluster API: work on the objects of their definitions, which `windlass crds --providers` prints.
    /// Not beside the Cluster API operator. Their runners are processes beside this one, wherever others are
    #[arg(long, env = "WINDLASS_PROVIDERS")]
    pub(crate) providers: bool,
    /// Run services of OpenStack: work on the objects of the definitions that `windlass crds --openstack` prints, with runners as
    /// processes
    #[arg(long)]
    pub(crate) openstack: bool,
    /// Work on fleets: the objects of the definitions that `windlass crds --fleet` prints. It writes Clusters and ClusterNodes in the
    /// namespaces of FleetClusters, and in those with the label inventory.windlass.dev/fleet
    #[arg(long, env = "WINDLASS_FLEET")]
    pub(crate) fleet: bool,
    /// Keep Secrets as they are written in HashiCorp Vault or OpenBao: work on the objects of the definition that
    /// `windlass crds --vault` prints
    #[arg(long, env = "WINDLASS_VAULT")]
    pub(crate) vault: bool,
    /// Helm, 3.14 or later, with which services of OpenStack are installed: its path, or its name
    #[arg(
        long,
        env = "WINDLASS_HELM",
        default_value = "helm",
        value_name = "PROGRAM"
    )]
    pub(crate) helm: PathBuf,
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
    /// Tell the API server on this address, over TLS, what an edit of an inventory changes that somebody tries by kubectl apply
    /// --dry-run=server. It asks by a ValidatingWebhookConfiguration, which the chart has. Needs --fleet
    #[arg(long, env = "WINDLASS_FLEET_ADVICE", value_name = "ADDRESS")]
    pub(crate) fleet_advice: Option<String>,
    /// The directory with tls.crt and tls.key for that, read anew whenever they change
    #[arg(long, env = "WINDLASS_FLEET_ADVICE_CERTIFICATE", value_name = "DIR")]
    pub(crate) fleet_advice_certificate: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sources: Sources,
    #[command(flatten)]
    pub(crate) releases: Releases,
}

/// Where releases of providers come from, where whoever may write providers names it.
#[expect(
    clippy::struct_field_names,
    reason = "the flags are named by their fields"
)]
#[derive(Args, Clone, Debug)]
pub(crate) struct Releases {
    /// Bring releases of providers over the network that no ConfigMap holds: also of those that are known by their name, from
    /// where clusterctl takes them; of those that name an address; or never
    #[arg(
        long,
        env = "WINDLASS_PROVIDER_FETCH",
        default_value = "known",
        value_name = "WHICH"
    )]
    pub(crate) provider_fetch: ProviderFetch,
    /// Bring them also from these addresses, although they are private, loopback or the like; with commas between them
    #[arg(
        long,
        env = "WINDLASS_PROVIDER_ADDRESSES",
        value_delimiter = ',',
        value_name = "CIDR"
    )]
    pub(crate) provider_address: Vec<Network>,
    /// A file with certificates in PEM of authorities that are trusted with them, beside those of the machine
    #[arg(long, env = "WINDLASS_PROVIDER_AUTHORITIES", value_name = "FILE")]
    pub(crate) provider_authorities: Option<PathBuf>,
}

/// Which releases of providers are brought over the network.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProviderFetch {
    /// Those too of providers that are known by their name.
    Known,
    /// Those of providers that name an address.
    Named,
    /// None.
    Never,
}

impl Releases {
    /// All of it together.
    pub(crate) fn policy(&self) -> anyhow::Result<fetch::Policy> {
        let file = self.provider_authorities.as_ref();
        let authorities = file.map(|file| {
            std::fs::read(file).with_context(|| format!("failed to read {}", file.display()))
        });
        Ok(fetch::Policy {
            reach: match self.provider_fetch {
                ProviderFetch::Known => Reach::Known,
                ProviderFetch::Named => Reach::Named,
                ProviderFetch::Never => Reach::Nowhere,
            },
            addresses: networks(&self.provider_address),
            authorities: authorities.transpose()?,
            ..fetch::Policy::default()
        })
    }
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
            addresses: networks(&self.source_address),
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

/// Those that are some: the chart writes an empty text where there are none.
fn networks(given: &[Network]) -> Vec<IpNet> {
    let networks = given.iter().filter_map(|Network(network)| *network);
    networks.collect()
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
    /// Helm, for runs of OpenStack's services
    #[arg(
        long,
        env = "WINDLASS_HELM",
        default_value = "helm",
        value_name = "PROGRAM"
    )]
    pub(crate) helm: PathBuf,
}

/// Options of `apply`.
#[derive(Args, Debug)]
pub(crate) struct Apply {
    /// Files or directories, encrypted ones among them; - for standard input
    #[arg(short, long, required = true, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
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

/// Options of `describe`.
#[derive(Debug, Subcommand)]
pub(crate) enum Describe {
    /// Show the objects of a cluster of Cluster API as a tree, how each stands and what it waits for; what stands in the way comes first
    Cluster(DescribeCluster),
}

/// Options of `describe cluster`.
#[derive(Args, Debug)]
pub(crate) struct DescribeCluster {
    /// The Cluster of cluster.x-k8s.io
    pub(crate) name: String,
    /// Show conditions below each object
    #[arg(long, value_name = "WHICH")]
    pub(crate) show_conditions: Option<ShowConditions>,
    /// Show the machines of an owner that are ready in one line; with =false each has its own, and what it is made of
    #[arg(
        long,
        action = clap::ArgAction::Set,
        default_value = "true",
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        value_name = "BOOL"
    )]
    pub(crate) grouping: bool,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Which conditions are shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ShowConditions {
    /// Every one.
    All,
    /// Those that are not as they are to be.
    Failing,
}

/// Options of `plan`.
#[derive(Args, Debug)]
pub(crate) struct Plan {
    /// Files or directories with the Cluster and its ClusterNodes
    #[arg(short, long, required_unless_present = "live", value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
    /// What would be done next about the Clusters of the API, with the files applied to them, if there are any
    #[arg(long)]
    pub(crate) live: bool,
    /// Look at the mirror too, where spec.kubespray.mirror.check says that runs do: evaluates templates of the playbooks and of
    /// extraVars here, which may start programs
    #[arg(long, conflicts_with = "live")]
    pub(crate) check_mirror: bool,
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
    /// A kubeconfig of the cluster that runs, or without a value artifacts/admin.conf of the inventory: its nodes and its etcd are looked
    /// at, nothing is changed there, and where the inventory contradicts them nothing is written
    #[arg(long, value_name = "KUBECONFIG", num_args = 0..=1, default_missing_value = "")]
    pub(crate) live: Option<OsString>,
    /// A file with what `etcdctl member list --write-out=json` prints on a member: it names the members, and the inventory must not
    /// contradict it
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_members: Option<PathBuf>,
    /// The Kubernetes version that the cluster has [default: what kube_version says, else with --live what its nodes have]
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
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
    /// Write the objects into a new directory instead: cluster.yaml, nodes.yaml, and secrets.yaml with what was vaulted
    #[arg(short, long, value_name = "NEW")]
    pub(crate) output: Option<PathBuf>,
    /// Fail if a host would get a variable that differs from what the inventory gives it, or if another host seems to head the cluster
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
    /// Say which clusters differ between two inventories, where, and what becomes of their machines and hosts; exits with 0 if none does,
    /// with 1 if some do, with 2 on errors
    Diff(DiffInventories),
    /// Render every cluster and print what is wrong; exits with 0 if nothing is, else with 2
    Check(CheckInventory),
    /// Say which clusters of the API change, which fields, and which machines and hosts are replaced, come, go or are updated in place,
    /// by what its inventory says and nothing has carried out, with the files applied to it, if there are any; exits with 0 if no cluster
    /// changes, with 1 if some do, with 2 on errors
    Plan(PlanInventory),
    /// Begin no other cluster of a roll-out, and no other run of it
    Pause(OfRollout),
    /// Let a roll-out go on that was paused or aborted
    Resume(OfRollout),
    /// End the run of a roll-out that is under way; the next edit is another one
    Abort(OfRollout),
    /// Take back the run of a roll-out that is under way or ended last: the clusters that it has begun go back to what each was before, in
    /// a run of their own; refused where a version of Kubernetes or kubespray would go down. Without --yes, what changes is shown
    Rollback(RollBack),
    /// Let the wave of a roll-out begin that waits for it
    Approve(OfRollout),
    /// Leave a cluster out of the run of a roll-out, or count its failure no longer
    Skip(SkipCluster),
    /// Write an inventory of existing clusters of kubespray or Cluster API, which renders to exactly what they are (the classes of
    /// topologies are left out, and named) and says once what they share
    Import(ImportClusters),
}

/// Options of `inventory import`.
#[derive(Args, Debug)]
pub(crate) struct ImportClusters {
    /// The directory to write, which is empty or not there yet
    pub(crate) directory: PathBuf,
    /// Files or directories with the objects of the clusters; of a directory also those below it [default: those of the API, of all
    /// namespaces]
    #[arg(short, long, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    /// Whose clusters are meant
    #[arg(long, value_enum, default_value_t = ImportOf::Kubespray)]
    pub(crate) of: ImportOf,
    /// A level, and the label of the Clusters whose value names its object, as in site=topology.acme.example/site; may be given
    /// several times [default: one site for all]
    #[arg(long = "level", value_name = "LEVEL=LABEL", value_parser = crate::inventory::import::level)]
    pub(crate) levels: Vec<inventory::import::Level>,
}

/// Whose clusters an inventory is written of.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ImportOf {
    /// Cluster and ClusterNode of kubespray
    Kubespray,
    /// Cluster of Cluster API, with all that belongs to it
    ClusterApi,
}

/// Options of `inventory plan`.
#[derive(Args, Debug)]
pub(crate) struct PlanInventory {
    /// Files or directories with objects that would be applied; of a directory also those below it
    #[arg(short, long, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// A roll-out.
#[derive(Args, Debug)]
pub(crate) struct OfRollout {
    /// The Rollout [default: the only one of the namespace]
    pub(crate) rollout: Option<String>,
}

/// Options of `inventory rollback`.
#[derive(Args, Debug)]
pub(crate) struct RollBack {
    /// The Rollout [default: the only one of the namespace]
    pub(crate) rollout: Option<String>,
    /// A run of status.history: the clusters go back to what it has left, and all that came after it is taken back
    #[arg(long, value_name = "RUN", conflicts_with = "before")]
    pub(crate) to: Option<String>,
    /// A run of status.history: the clusters go back to what was before it, and all that came after it is taken back too
    #[arg(long, value_name = "RUN")]
    pub(crate) before: Option<String>,
    /// A cluster that stays as it is; may be given several times
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) skip: Vec<String>,
    /// Carry it out
    #[arg(long)]
    pub(crate) yes: bool,
    /// The format of what is shown
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `inventory skip`.
#[derive(Args, Debug)]
pub(crate) struct SkipCluster {
    /// The FleetCluster
    pub(crate) cluster: String,
    /// The Rollout [default: the only one of the namespace]
    #[arg(long, value_name = "NAME")]
    pub(crate) rollout: Option<String>,
}

/// Options of `inventory render`.
#[derive(Args, Debug)]
pub(crate) struct Render {
    /// The FleetCluster, as [NAMESPACE/]NAME [default: all]
    pub(crate) cluster: Option<String>,
    /// Files or directories with the inventory; of a directory also those below it [default: that of the API]
    #[arg(short, long, value_name = "PATH")]
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
    /// Files or directories with the inventory; of a directory also those below it [default: that of the API]
    #[arg(short, long, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
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
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
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
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
}

/// Options of `providers`.
#[derive(Debug, Subcommand)]
pub(crate) enum Providers {
    /// Print the objects of a provider's release, as `clusterctl generate provider` does
    Generate(Box<Generate>),
    /// Say how all providers stand
    Status,
    /// Say what an upgrade of providers would do, among the releases that are kept in ConfigMaps, and how ProviderSets stand; change nothing
    Plan(PlanProviders),
    /// Say where what providers are installed as comes from: version, release, variables (no values of Secrets), and what is not as the
    /// release says, and by what
    Explain(ExplainProviders),
    /// Install a provider, and show the steps until it is
    Apply(Box<ApplyProvider>),
    /// Carry out what `plan` shows, core first, and show the steps; without --yes only the plan is shown
    Upgrade(UpgradeProviders),
    /// Let a plan of a ProviderSet begin that waits for a person
    Approve(ApprovePlan),
    /// Remove a provider that nothing needs any more; definitions stay, unless --include-crds says otherwise
    Delete(Box<DeleteProvider>),
    /// Hand a provider over: its object goes, and everything that it installed stays, for plain clusterctl or another operator
    Release(Box<ReleaseProvider>),
    /// Keep a provider's release in a ConfigMap, which providers are installed from
    Preload(Box<Preload>),
    /// Put a provider's release into a registry, as an artefact that `spec.fetchConfig.oci` names. Who does it stands in OCI_USERNAME
    /// and OCI_PASSWORD, or OCI_ACCESS_TOKEN
    Publish(Box<Publish>),
    /// Print what an operator in a cluster must be allowed for a provider: a ClusterRole whose rules become the operator's when a person
    /// applies it, and the roles and bindings of the release that only who holds everything may apply
    Rights(RightsOfProviders),
}

/// Options of `providers rights`.
#[derive(Args, Debug)]
pub(crate) struct RightsOfProviders {
    /// Providers by their label, whose releases are kept in ConfigMaps: for the version that is installed, and for the given one
    /// [default: all providers; the version that is wanted]
    #[arg(value_name = "LABEL[=VERSION]", conflicts_with = "filename")]
    pub(crate) provider: Vec<String>,
    /// Files with the objects of providers, as `windlass providers generate` prints them, instead; no API is asked
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
}

/// Options of `providers approve`.
#[derive(Args, Debug)]
pub(crate) struct ApprovePlan {
    /// The plan, by its id, as `windlass providers plan` and `kubectl get providersets` show it
    #[arg(value_name = "PLAN")]
    pub(crate) plan: String,
}

/// Options of `providers explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainProviders {
    /// Providers by their label, as infrastructure-docker [default: all]
    #[arg(value_name = "LABEL")]
    pub(crate) provider: Vec<String>,
}

/// Options of `providers apply`.
#[derive(Args, Debug)]
pub(crate) struct ApplyProvider {
    #[command(flatten)]
    pub(crate) provider: ProviderChoice,
    /// A directory with releases, as LABEL/VERSION/FILE, of which this one is kept in a ConfigMap first
    #[arg(long, value_name = "DIR", conflicts_with_all = ["url", "oci"])]
    pub(crate) from: Option<PathBuf>,
    /// Where releases are, by https, as in `spec.fetchConfig.url`: a path that ends in OWNER/REPOSITORY/releases, or a directory of versions
    #[arg(long, value_name = "URL", conflicts_with = "oci")]
    pub(crate) url: Option<String>,
    /// The artefact with the release, as in `spec.fetchConfig.oci`; its tag is the version, if it has none
    #[arg(long, value_name = "REGISTRY/PATH[:TAG]")]
    pub(crate) oci: Option<String>,
    /// The Secret with values of variables: spec.configSecret
    #[arg(long, value_name = "NAME")]
    pub(crate) config_secret: Option<String>,
    /// The Secret with the kubeconfig of the cluster to install in [default: the cluster whose API has the object]
    #[arg(long, value_name = "NAME")]
    pub(crate) target_kubeconfig: Option<String>,
    /// Print the object and apply nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Options of `providers upgrade`.
#[derive(Args, Debug)]
pub(crate) struct UpgradeProviders {
    #[command(flatten)]
    pub(crate) plan: PlanProviders,
    /// Carry it out
    #[arg(long)]
    pub(crate) yes: bool,
    /// The label of a provider whose objects may lose fields or versions of their kind; without it that is said, and nothing is
    /// done
    #[arg(long, value_name = "LABEL")]
    pub(crate) confirm: Vec<String>,
}

/// Options of `providers delete`.
#[derive(Args, Debug)]
pub(crate) struct DeleteProvider {
    #[command(flatten)]
    pub(crate) provider: ProviderChoice,
    /// Remove its definitions too, once it is gone: those that have its label, that nobody else keeps, and of whose kinds no object is
    /// there. It may be said again for those that a provider has left which is gone
    #[arg(long)]
    pub(crate) include_crds: bool,
    /// The name of the provider once more, or what is asked for where definitions go; without it what goes is said, and nothing is done
    #[arg(long, value_name = "NAME")]
    pub(crate) confirm: Option<String>,
}

/// Options of `providers release`.
#[derive(Args, Debug)]
pub(crate) struct ReleaseProvider {
    #[command(flatten)]
    pub(crate) provider: ProviderChoice,
}

/// Options of `providers plan`.
#[derive(Args, Debug)]
pub(crate) struct PlanProviders {
    /// A version that a provider is to have, as cluster-api=v1.14.2 or infrastructure-docker=v1.14.2 [default: the newest set
    /// that goes together]
    #[arg(long, value_name = "LABEL=VERSION")]
    pub(crate) to: Vec<String>,
}

/// Options of `providers preload`.
#[derive(Args, Debug)]
pub(crate) struct Preload {
    #[command(flatten)]
    pub(crate) provider: ProviderChoice,
    /// A directory with releases, as LABEL/VERSION/FILE: infrastructure-docker/v1.14.2/infrastructure-components.yaml and, beside
    /// it, metadata.yaml
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present_any = ["url", "oci"],
        conflicts_with_all = ["url", "oci"]
    )]
    pub(crate) from: Option<PathBuf>,
    /// Where releases are, by https, as in `spec.fetchConfig.url`: a path that ends in OWNER/REPOSITORY/releases, or a directory of versions,
    /// and also with /VERSION/FILE behind it. The provider need not be there yet, nor be known; without a version it is that of the
    /// address, or the newest one
    #[arg(long, value_name = "URL", conflicts_with = "oci")]
    pub(crate) url: Option<String>,
    /// The artefact with the release; its tag is the version, if it has none. Who asks the registry stands in OCI_USERNAME and
    /// OCI_PASSWORD, OCI_ACCESS_TOKEN or OCI_REFRESH_TOKEN
    #[arg(long, value_name = "REGISTRY/PATH[:TAG]")]
    pub(crate) oci: Option<String>,
    /// A file with certificates in PEM of authorities that are trusted beside those of the machine
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub(crate) authorities: Option<PathBuf>,
    /// A file with the public key that the components must be signed by, as cosign.pub; the signature lies beside them, as FILE.sig, and is
    /// kept with them
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Print the ConfigMap and apply nothing
    #[arg(long)]
    pub(crate) print: bool,
}

/// Options of `providers publish`.
#[derive(Args, Debug)]
pub(crate) struct Publish {
    #[command(flatten)]
    pub(crate) provider: ProviderChoice,
    /// A directory with releases, as LABEL/VERSION/FILE
    #[arg(long, required = true, value_name = "DIR")]
    pub(crate) from: PathBuf,
    /// The artefact; its tag is the version, if it has none. With http:// before it the registry is asked without TLS
    #[arg(value_name = "REGISTRY/PATH[:TAG]")]
    pub(crate) artefact: String,
}

/// Options of `providers generate`.
#[derive(Args, Debug)]
pub(crate) struct Generate {
    #[command(flatten)]
    pub(crate) provider: ProviderChoice,
    /// A directory with releases, as LABEL/VERSION/FILE: infrastructure-docker/v1.14.2/infrastructure-components.yaml and, beside
    /// it, metadata.yaml
    #[arg(long, required = true, value_name = "DIR")]
    pub(crate) from: PathBuf,
    /// The namespace to install into [default: the one that the release has]
    #[arg(long, value_name = "NAME")]
    pub(crate) target_namespace: Option<String>,
    /// A file as clusterctl reads it: variables, and `images` that replace those of the release. Variables of the environment win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Leave variables as they are
    #[arg(long)]
    pub(crate) raw: bool,
    /// Say what there is instead: version, contract, namespace, variables, images
    #[arg(long, conflicts_with = "raw")]
    pub(crate) describe: bool,
}

/// The one provider of a command, as NAME or NAME:VERSION; by default the newest version that is no prerelease.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct ProviderChoice {
    /// Cluster API itself, whose name is cluster-api
    #[arg(long, value_name = "NAME[:VERSION]")]
    pub(crate) core: Option<String>,
    /// A bootstrap provider
    #[arg(long, value_name = "NAME[:VERSION]")]
    pub(crate) bootstrap: Option<String>,
    /// A control plane provider
    #[arg(long, value_name = "NAME[:VERSION]")]
    pub(crate) control_plane: Option<String>,
    /// An infrastructure provider
    #[arg(long, value_name = "NAME[:VERSION]")]
    pub(crate) infrastructure: Option<String>,
    /// An IPAM provider
    #[arg(long, value_name = "NAME[:VERSION]")]
    pub(crate) ipam: Option<String>,
    /// A runtime extension provider
    #[arg(long, value_name = "NAME[:VERSION]")]
    pub(crate) runtime_extension: Option<String>,
    /// An add-on provider
    #[arg(long, value_name = "NAME[:VERSION]")]
    pub(crate) addon: Option<String>,
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
    /// The Run [default: the one at work, else the newest of the namespace]
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

/// Options of `bundle`.
#[derive(Args, Debug)]
pub(crate) struct Bundle {
    /// The Run [default: the one at work, else the newest of the namespace]
    pub(crate) run: Option<String>,
    /// The file, which must not be there [default: RUN.windlass.tar.gz]
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
}

/// Options of `replay`.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// The file that `windlass bundle` wrote
    pub(crate) file: PathBuf,
    /// As it stood then: a time as 2026-01-02T03:04:05Z, a time since it began as 1m30s, or right after a record as '#12'
    /// [default: its end]
    #[arg(long, value_name = "MOMENT")]
    pub(crate) at: Option<String>,
    /// Print what happened until then, a record a line
    #[arg(long)]
    pub(crate) records: bool,
    /// The form
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// What is explained.
#[derive(Debug, Subcommand)]
pub(crate) enum ExplainWhat {
    /// Print the code of a run's failure, what it means, the first cause, what to do, and the log where it failed
    Failure(ExplainFailure),
    /// Print every code that a run may fail with
    Codes(ExplainCodes),
}

/// Options of `explain failure`.
#[derive(Args, Debug)]
pub(crate) struct ExplainFailure {
    /// The Run, or a code such as DiskFull [default: the Run at work, else the newest of the namespace]
    #[arg(value_name = "RUN|CODE")]
    pub(crate) what: Option<String>,
}

/// Options of `explain codes`.
#[derive(Args, Debug)]
pub(crate) struct ExplainCodes {
    /// The form
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of the commands that steer a run.
#[derive(Args, Debug)]
pub(crate) struct Control {
    /// The Run [default: the one at work, else the newest of the namespace]
    pub(crate) run: Option<String>,
}

/// Options of `resume`.
#[derive(Args, Debug)]
pub(crate) struct Resume {
    /// The Run [default: the one at work, else the newest of the namespace]
    pub(crate) run: Option<String>,
    /// Pause again after this step
    #[arg(long, value_name = "ID")]
    pub(crate) until: Option<String>,
}

/// Options of the commands that steer one step.
#[derive(Args, Debug)]
pub(crate) struct StepControl {
    /// The Run [default: the one at work, else the newest of the namespace]
    pub(crate) run: Option<String>,
    /// The step [default: the one that failed or waits]
    #[arg(long, value_name = "ID")]
    pub(crate) step: Option<String>,
}

/// Options of `skip`.
#[derive(Args, Debug)]
pub(crate) struct Skip {
    /// The Run [default: the one at work, else the newest of the namespace]
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

/// Options of `snapshots`.
#[derive(Debug, Subcommand)]
pub(crate) enum Snapshots {
    /// List what lies in the store, as the last run that looked saw it: age, size, revision of etcd, digest, and whether it was verified
    List(ListSnapshots),
    /// Start a snapshot in a throw-away etcd on a host of the cluster, and compare its keys with what was noted when it was taken
    Drill(DrillSnapshot),
}

/// Options of `snapshots list`.
#[derive(Args, Debug)]
pub(crate) struct ListSnapshots {
    /// The cluster [default: the only one of the namespace]
    pub(crate) cluster: Option<String>,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `snapshots drill`.
#[derive(Args, Debug)]
pub(crate) struct DrillSnapshot {
    /// The cluster
    pub(crate) cluster: String,
    /// The snapshot, by its name in the list
    pub(crate) name: String,
    /// Show what would be done, on which hosts and why; nothing is touched
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The format of --dry-run
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `component`.
#[derive(Debug, Subcommand)]
pub(crate) enum Component {
    /// Bring a component to what the release and the Cluster's variables say, node by node; without --yes that is shown
    Upgrade(UpgradeComponent),
}

/// Options of `component upgrade`.
#[derive(Args, Debug)]
pub(crate) struct UpgradeComponent {
    /// What is upgraded
    pub(crate) component: ComponentName,
    /// The cluster [default: the only one of the namespace]
    pub(crate) cluster: Option<String>,
    /// Carry it out
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// Show what would be done, in which order, on which hosts and why; nothing is touched
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The format of what is shown
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// A component of a cluster.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ComponentName {
    /// What runs containers on each node: without its pods meanwhile, one node after the other
    ContainerEngine,
    /// Where the API server keeps everything: one member after the other, after a snapshot
    Etcd,
    /// What pods reach each other by: on all nodes, under running pods
    NetworkPlugin,
}

/// Options of `recover`.
#[derive(Args, Debug)]
pub(crate) struct Recover {
    /// The cluster [default: the only one of the namespace]
    pub(crate) cluster: Option<String>,
    /// Hosts that are lost for good: their members of etcd are given up, and their ClusterNodes are deleted
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub(crate) give_up: Vec<HostName>,
    /// Hosts that are well and whose members of etcd are not: given up too, reset, and made part of the cluster again
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub(crate) rejoin: Vec<HostName>,
    /// A snapshot of etcd instead of the data of the host that stays: its absolute path there, or its name in the store (windlass snapshots
    /// list)
    #[arg(long, value_name = "FILE")]
    pub(crate) from_snapshot: Option<String>,
    /// Roll a cluster that works back to the snapshot: all members of etcd, and no host is given up
    #[arg(long, requires = "from_snapshot", conflicts_with_all = ["give_up", "rejoin"])]
    pub(crate) roll_back: bool,
    /// The name of the cluster once more, if what is given up may be lost; without it that is said, and nothing is done
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) confirm: Option<String>,
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
    /// Replace a host, the first one too: another one joins, takes the first place where that is needed, and the host leaves
    Replace(ReplaceNode),
    /// Reset a host that is no part of the cluster: what an earlier life or a failed join left of Kubernetes on it is removed
    Reset(ResetNode),
    /// Keep a host whose ClusterNode is being deleted
    Keep(KeepNode),
    /// Have no new pods come to nodes
    Cordon(OnNodes),
    /// Let pods come to nodes again
    Uncordon(OnNodes),
    /// Cordon nodes, which stay so, and have their pods go elsewhere
    Drain(DrainNodes),
    /// Restart a part of hosts, one after the other; etcd is asked before and after each of its members
    Restart(RestartNodes),
}

/// Nodes, and whether what would be done to them is shown.
#[derive(Args, Debug)]
pub(crate) struct OnNodes {
    /// The ClusterNodes
    #[arg(required = true, value_name = "NODE")]
    pub(crate) names: Vec<HostName>,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// Whether what would be done is shown.
#[derive(Args, Debug)]
pub(crate) struct Shown {
    /// Show what would be done, in which order, on which hosts and why; nothing is touched
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The format of --dry-run
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `node drain`.
#[derive(Args, Debug)]
pub(crate) struct DrainNodes {
    /// Delete pods whatever their PodDisruptionBudgets say
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) nodes: OnNodes,
}

/// Options of `node restart`.
#[derive(Args, Debug)]
pub(crate) struct RestartNodes {
    /// What is restarted
    pub(crate) component: PartName,
    #[command(flatten)]
    pub(crate) nodes: OnNodes,
}

/// A part of a host.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PartName {
    /// The kubelet; pods go on meanwhile
    Kubelet,
    /// What runs containers; those of containerd and cri-o go on meanwhile, those of docker start anew
    ContainerEngine,
    /// The member of etcd
    Etcd,
    /// The API server of a control plane
    KubeApiserver,
    /// The controller manager of a control plane
    KubeControllerManager,
    /// The scheduler of a control plane
    KubeScheduler,
}

/// Options of `cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Make a token by which a node may join, and print it; nothing else holds it but the cluster itself
    Token(ClusterToken),
    /// Make such a token, and print the command of kubeadm by which a node joins
    JoinCommand(ClusterToken),
    /// Say which certificates on the hosts end first, or have ended
    Certificates(Certificates),
}

/// Options of `cluster token` and `cluster join-command`.
#[derive(Args, Debug)]
pub(crate) struct ClusterToken {
    /// The cluster [default: the only one of the namespace]
    pub(crate) cluster: Option<String>,
    /// When it ends, 10m to 24h
    #[arg(long, default_value = "1h", value_name = "DURATION")]
    pub(crate) expires: api::Duration,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// Options of `cluster certificates`.
#[derive(Args, Debug)]
pub(crate) struct Certificates {
    /// The cluster [default: the only one of the namespace]
    pub(crate) cluster: Option<String>,
    /// Of these hosts only, with commas between them
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) node: Vec<HostName>,
    #[command(flatten)]
    pub(crate) shown: Shown,
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

/// How what costs data is begun.
#[derive(Args, Debug)]
pub(crate) struct Confirmed {
    /// The name of the host, or of the cluster, once more; without it the plan is shown, and nothing is done
    #[arg(long, value_name = "NAME")]
    pub(crate) confirm: Option<String>,
    /// Show what would be done, in which order, on which hosts and why; nothing is touched
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The format of the plan
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `node replace`.
#[derive(Args, Debug)]
pub(crate) struct ReplaceNode {
    /// The ClusterNode of the host that leaves
    pub(crate) name: String,
    /// The ClusterNode of the host that takes its place: declared, with the same roles
    #[arg(long, value_name = "NAME")]
    pub(crate) by: HostName,
    /// The host is lost: it leaves before the other one joins, its pods are deleted whatever their PodDisruptionBudgets say
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) confirmed: Confirmed,
}

/// Options of `node reset`.
#[derive(Args, Debug)]
pub(crate) struct ResetNode {
    /// The ClusterNode
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) confirmed: Confirmed,
}

/// Options of `reset`.
#[derive(Args, Debug)]
pub(crate) struct ResetCluster {
    /// The cluster
    pub(crate) cluster: String,
    #[command(flatten)]
    pub(crate) confirmed: Confirmed,
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
    /// Move the Cluster API objects of the namespace between management clusters, as `clusterctl move` does, instead of Windlass's own
    #[arg(long)]
    pub(crate) cluster_api: bool,
    /// How long those at work may take to stop: a run, which pauses at a task boundary, or controllers of Cluster API
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
    /// When that of the user ends, from 10m on to what the cluster signs for, a year as a rule; what it signed is said
    #[arg(long, default_value = "8h", value_name = "DURATION", requires = "user")]
    pub(crate) expires: api::Duration,
    /// A group that the user is in
    #[arg(long, value_name = "NAME", requires = "user")]
    pub(crate) group: Option<String>,
}

/// What `mirror` does.
#[derive(Debug, Subcommand)]
pub(crate) enum Mirror {
    /// List the files and images that kubespray will ask for, and the variables that lead hosts to a mirror; no host is touched
    Plan(MirrorPlan),
    /// Fetch them into a directory: what is there and right is kept, what came in part goes on, all is verified
    Fetch(MirrorFetch),
    /// Serve such a directory: its files, and its images as a registry that can only be read. By HTTP, to whoever reaches the address
    Serve(MirrorServe),
    /// Push the images of such a directory into a registry
    Push(MirrorPush),
    /// Say all that is missing: in a directory, or where the variables tell hosts to ask
    Check(MirrorCheck),
}

/// Whose files and images are meant.
#[derive(Args, Debug)]
pub(crate) struct MirrorOf {
    /// The cluster [default: the only one]
    pub(crate) cluster: Option<String>,
    /// Files or directories with the Cluster and its ClusterNodes, instead of those of the API
    #[arg(short, long, value_name = "PATH", conflicts_with = "release")]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) age_keys: AgeKeys,
    /// A kubespray checkout, for one host that is everything, instead of a Cluster
    #[arg(long, value_name = "DIR", conflicts_with = "cluster")]
    pub(crate) release: Option<PathBuf>,
    /// A variable of kubespray with --release, as it is written in YAML; again for more
    #[arg(long = "var", value_name = "NAME=VALUE", requires = "release", value_parser = crate::mirror::variable)]
    pub(crate) variables: Vec<(String, serde_json::Value)>,
    /// What processors the hosts have: amd64, arm64, ppc64le; with commas between them [default: as their facts say, else amd64]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = crate::mirror::architecture)]
    pub(crate) architecture: Vec<ansible::downloads::Architecture>,
}

/// Options of `mirror plan`.
#[derive(Args, Debug)]
pub(crate) struct MirrorPlan {
    #[command(flatten)]
    pub(crate) of: MirrorOf,
    /// The directory of a mirror: say what is there already
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Where hosts will reach the mirror, for the variables that lead there
    #[arg(long, default_value = "http://MIRROR:8080", value_name = "URL")]
    pub(crate) at: String,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Options of `mirror fetch`.
#[derive(Args, Debug)]
pub(crate) struct MirrorFetch {
    #[command(flatten)]
    pub(crate) of: MirrorOf,
    /// The directory, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// The address of another mirror that everything comes from [default: the sites and registries themselves]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Option<String>,
    /// How many come side by side, 1 to 32
    #[arg(long, default_value = "4", value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=32))]
    pub(crate) parallel: u8,
}

/// Options of `mirror serve`.
#[derive(Args, Debug)]
pub(crate) struct MirrorServe {
    /// The directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Where it listens
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS:PORT")]
    pub(crate) address: SocketAddr,
    /// A file with USER:PASSWORD: nobody else gets anything
    #[arg(long, value_name = "FILE")]
    pub(crate) login: Option<PathBuf>,
}

/// Options of `mirror push`.
#[derive(Args, Debug)]
pub(crate) struct MirrorPush {
    #[command(flatten)]
    pub(crate) of: MirrorOf,
    /// The directory of the mirror
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// The registry, and what comes before the names of images there
    #[arg(long, value_name = "HOST[/PREFIX]")]
    pub(crate) registry: String,
    /// Speak http with it
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// A file with USER:PASSWORD
    #[arg(long, value_name = "FILE")]
    pub(crate) login: Option<PathBuf>,
}

/// Options of `mirror check`.
#[derive(Args, Debug)]
pub(crate) struct MirrorCheck {
    #[command(flatten)]
    pub(crate) of: MirrorOf,
    /// The directory of a mirror, all of which is read [default: where the variables tell hosts to ask, by the network]
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// The format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: Output,
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

    /// Whoever adds a command says whether hints are to name the namespace in it.
    #[test]
    fn hints_know_which_commands_have_a_namespace() {
        const WITHOUT: [&str; 11] = [
            "completion",
            "controller",
            "crds",
            "install",
            "magnum",
            "replay",
            "runner",
            "sandbox",
            "steps",
            "up",
            "help",
        ];
        let command = Cli::command();
        let names: Vec<_> = command
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        for name in &names {
            let counts = [&controller::hint::VERBS[..], &WITHOUT].map(|list| list.contains(name));
            assert_ne!(
                counts[0], counts[1],
                "windlass {name} stands in one of the two lists"
            );
        }
        for verb in controller::hint::VERBS {
            assert!(names.contains(&verb), "there is no windlass {verb}");
        }
    }
}
