//! `cargo xtask fuzz`: the targets of crate `fuzz`, each with inputs that nobody has seen.

use clap::Args;

use crate::tools;

/// Options of `fuzz`.
#[derive(Args, Debug)]
pub(crate) struct Fuzz {
    /// How long each target is tried, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The crate whose targets are tried; all by default
    #[arg(long, short)]
    package: Vec<String>,
}

/// Runs the tests whose names say that something survives fuzzing, with time.
pub(crate) fn fuzz(options: &Fuzz) -> anyhow::Result<()> {
    let mut command = tools::cargo(&["test", "--lib", "--tests"]);
    match &options.package[..] {
        [] => {
            command.arg("--workspace");
        }
        packages => {
            for package in packages {
                command.args(["--package", package]);
            }
        }
    }
    command
        .args(["--", "fuzzing"])
        .env("WINDLASS_FUZZ_SECONDS", options.seconds.to_string());
    tools::run(&mut command)
}
