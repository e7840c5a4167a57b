//! The engine in small as a program: `windlass` of a world in which there are widgets.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use clap::Parser;
use controller::{Manager, Metrics, Shutdown, kubeconfig, manager::Settings};
use kube::Client;
use runs::{
    job::{Bounds, Template},
    operator::Place,
    runner::Options,
};
use widgets::{IMAGE, Stop, Widgets, Workshop};

/// What a pod is told to do.
#[derive(Parser)]
enum Command {
    /// Puts this program into a directory that the containers of a pod share, under the name that a Job starts
    Install { directory: PathBuf },
    /// Keeps a Job at each run of widgets, until it is ended
    Operator {
        /// Where their runners stand still
        #[arg(long, value_name = "STEP:EDGE")]
        stop: Vec<Stop>,
    },
    /// Executes a run
    Runner {
        #[arg(long, value_name = "NAMESPACE/NAME")]
        run: String,
        #[arg(long)]
        data_dir: PathBuf,
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        #[arg(long, value_name = "STEP:EDGE")]
        stop: Vec<Stop>,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    // Fails when there is one, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Command::parse() {
        Command::Install { directory } => install(&directory.join("windlass"))?,
        Command::Operator { stop } => operate(&stop).await?,
        Command::Runner {
            run,
            data_dir,
            kubeconfig,
            stop,
        } => {
            let (namespace, run) = run.split_once('/').context("--run is NAMESPACE/NAME")?;
            let options = Options {
                namespace: namespace.to_owned(),
                run: run.to_owned(),
                data_dir,
                kubeconfig,
            };
            let exit = Widgets { stops: stop }.main(options).await?;
            return Ok(ExitCode::from(exit.code()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn install(target: &Path) -> anyhow::Result<()> {
    fs::copy(std::env::current_exe()?, target)?;
    Ok(fs::set_permissions(target, Permissions::from_mode(0o755))?)
}

async fn operate(stops: &[Stop]) -> anyhow::Result<()> {
    let client = Client::try_from(kubeconfig::environment().await?)?;
    let settings = Settings {
        namespace: None,
        concurrency: 4,
        metrics: Metrics::default(),
        shutdown: Shutdown::default(),
    };
    let template = Template {
        image: IMAGE.to_owned(),
        runner_image: IMAGE.to_owned(),
        pull_policy: "Never".to_owned(),
        arguments: stops.iter().map(|stop| format!("--stop={stop}")).collect(),
        bounds: Bounds {
            images: vec!["widgets".to_owned()],
            ..Bounds::default()
        },
        ..Template::default()
    };
    let mut manager = Manager::new(client, settings);
    runs::operate(&mut manager, Place::Jobs(Arc::new(template)), Workshop);
    manager.run().await.context("the operator ended")
}
