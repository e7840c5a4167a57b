//! `windlass`: one operator for the whole life of Kubernetes clusters.
//!
//! This crate is the command line and the wiring, nothing else: what a command does lives in the crates below.

mod adopt;
mod again;
mod apply;
mod bundle;
mod cli;
mod client;
mod component;
mod control;
mod controller;
mod converge;
mod crds;
mod describe;
mod explain;
mod get;
mod init;
mod install;
mod inventory;
mod kubeconfig;
mod leader;
mod logs;
mod magnum;
mod maintain;
mod manifest;
mod mirror;
mod node;
mod objects;
mod openstack;
mod paths;
mod plan;
mod providers;
mod recover;
mod relocate;
mod reset;
mod runner;
mod sandbox;
mod serve;
mod snapshots;
mod status;
mod steps;
mod terminal;
mod toolbox;
mod up;

use std::{io::IsTerminal, process::ExitCode};

use ::controller::hint;
use kubespray::operation;

use crate::cli::{Cli, Command};

/// musl's own has one lock for all threads, which the static program would wait for at every object it reads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    if !matches!(
        cli.command,
        Command::Up(_)
            | Command::Controller(_)
            | Command::Magnum(_)
            | Command::Runner(_)
            | Command::Apply(_)
            | Command::Adopt(_)
            | Command::Node(_)
            | Command::Recover(_)
            | Command::Reset(_)
            | Command::Providers(cli::Providers::Upgrade(_) | cli::Providers::Delete(_))
            // A host that breaks off a download must not end the mirror of all others.
            | Command::Mirror(cli::Mirror::Serve(_) | cli::Mirror::Push(_))
    ) {
        // `windlass steps | head` ends quietly. What works for long or writes several objects must outlive the one who reads it,
        // an API that refuses a large object closes the connection while it is still being sent, and what holds secrets tidies up.
        sigpipe::reset();
    }
    init_logging(&cli);
    // One TLS provider for the whole process: several libraries bring rustls and none may choose by itself.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        tracing::debug!("a TLS provider is already installed");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = anyhow::Error::new(error).context("failed to start the runtime");
            return fail(&error, &cli.global.namespace);
        }
    };
    let namespace = cli.global.namespace.clone();
    let result = runtime.block_on(dispatch(cli));
    // What is left behind are watches and timers: nothing worth waiting for.
    runtime.shutdown_background();
    result.unwrap_or_else(|error| fail(&error, &namespace))
}

async fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let global = &cli.global;
    match cli.command {
        Command::Up(options) => Box::pin(up::up(global, options)).await?,
        Command::Controller(options) => Box::pin(controller::controller(global, *options)).await?,
        Command::Runner(options) => return Box::pin(runner::run(global, options)).await,
        Command::Apply(options) => apply::apply(global, &options).await?,
        Command::Get(options) => get::get(global, &options).await?,
        Command::Status(options) => return status::status(global, &options).await,
        Command::Plan(options) => plan::plan(global, options).await?,
        Command::Adopt(options) => return adopt::adopt(global, options).await,
        Command::Init(options) => init::init(global, &options)?,
        Command::Inventory(command) => return Ok(inventory::inventory(global, &command).await),
        Command::Providers(command) => providers::providers(global, &command).await?,
        Command::Mirror(command) => mirror::command(global, command).await?,
        Command::Describe(command) => describe::describe(global, &command).await?,
        Command::Steps(options) => steps::steps(global, &options).await?,
        Command::Logs(options) => logs::logs(global, &options).await?,
        Command::Explain(command) => explain::command(global, &command).await?,
        Command::Bundle(options) => bundle::bundle(global, &options).await?,
        Command::Replay(options) => bundle::replay(&options)?,
        Command::Pause(options) => control::pause(global, &options).await?,
        Command::Resume(options) => control::resume(global, &options).await?,
        Command::Cancel(options) => control::cancel(global, &options).await?,
        Command::Retry(options) => control::retry(global, &options).await?,
        Command::Approve(options) => control::approve(global, &options).await?,
        Command::Skip(options) => control::skip(global, &options).await?,
        Command::Converge(options) => {
            converge::ask(global, &options, &operation::converge::ASKED).await?;
        }
        Command::Renew(options) => {
            converge::ask(global, &options, &operation::renew::ASKED).await?;
        }
        Command::Component(command) => component::component(global, &command).await?,
        Command::Recover(options) => recover::recover(global, options).await?,
        Command::Snapshot(options) => {
            converge::ask(global, &options, &operation::snapshot::ASKED).await?;
        }
        Command::Snapshots(command) => snapshots::snapshots(global, &command).await?,
        Command::Maintain(options) => maintain::maintain(global, &options).await?,
        Command::Node(command) => node::node(global, &command).await?,
        Command::Reset(options) => reset::reset(global, &options).await?,
        Command::Cluster(command) => toolbox::cluster_command(global, &command).await?,
        Command::Move(options) => relocate::relocate(global, &options).await?,
        Command::Magnum(options) => Box::pin(magnum::magnum(global, options)).await?,
        Command::Openstack(command) => {
            openstack::openstack(global, &command).await?;
        }
        Command::Kubeconfig(options) => kubeconfig::kubeconfig(global, &options).await?,
        Command::Sandbox(options) => sandbox::sandbox(global, options).await?,
        Command::Crds(options) => crds::crds(&options)?,
        Command::Install(options) => install::install(&options)?,
        Command::Completion(options) => cli::completion(&options),
    }
    Ok(ExitCode::SUCCESS)
}

fn fail(error: &anyhow::Error, namespace: &str) -> ExitCode {
    let error = hint::placed(&terminal::told(error), namespace);
    terminal::complain!("windlass: {}", terminal::text(&error));
    ExitCode::FAILURE
}

fn init_logging(cli: &Cli) {
    use tracing_subscriber::{EnvFilter, fmt};
    let default = match (&cli.command, cli.global.verbose) {
        (_, 2..) => "debug",
        (Command::Up(_) | Command::Controller(_) | Command::Magnum(_) | Command::Runner(_), _)
        | (_, 1) => {
            // The client complains of every request beside the error that it returns.
            "info,kube_runtime=warn,kube_client::client::builder=off"
        }
        _ => "warn,kube_client::client::builder=off",
    };
    let filter =
        EnvFilter::try_from_env("WINDLASS_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let builder = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match cli.global.log_format {
        cli::LogFormat::Json => builder.json().init(),
        cli::LogFormat::Text => builder.with_target(false).init(),
    }
}
