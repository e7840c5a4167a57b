//! `cargo xtask`: every command that people type in this repository, one module each.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod demo;
mod deploy;
mod fuzz;
mod generate;
mod hosts;
mod image;
mod keeper;
mod named;
mod test;
mod testenv;
mod tools;
mod wheel;

/// Commands for working on Windlass.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Raise a real three-node cluster on throw-away hosts, from nothing.
    Demo(demo::Demo),
    /// Measure speed and size against peers, as a table.
    Bench(bench::Bench),
    /// Run every check that CI runs.
    Test(test::Test),
    /// Throw damaged input at everything that reads what others wrote, for as long as you like.
    Fuzz(fuzz::Fuzz),
    /// Write the files that are generated from the code: CRDs and references.
    #[command(visible_aliases = ["crds", "docs"])]
    Generate,
    /// Build the operator's and the runner's container image, without a container engine.
    Image(image::Image),
    /// Build the driver of OpenStack Magnum, as a Python wheel.
    Wheel,
    /// Throw-away hosts with ssh, in a network of their own.
    #[command(subcommand)]
    Hosts(hosts::Command),
    /// A real Kubernetes: an API server on loopback, or a cluster of one node.
    #[command(subcommand)]
    Testenv(testenv::Command),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Demo(options) => demo::demo(&options),
        Command::Bench(options) => bench::bench(&options),
        Command::Test(options) => test::test(&options),
        Command::Fuzz(options) => fuzz::fuzz(&options),
        Command::Generate => generate::write(),
        Command::Image(options) => image::image(&options),
        Command::Wheel => wheel::wheel(),
        Command::Hosts(command) => hosts::run(command),
        Command::Testenv(command) => testenv::run(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
