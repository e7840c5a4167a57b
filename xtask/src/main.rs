//! `cargo xtask`: every command that people type in this repository, one module each.

use anyhow::Result;
use clap::{Parser, Subcommand};

mod hosts;
mod testenv;

/// Commands for working on Windlass.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Throw-away hosts with ssh, in a network of their own.
    #[command(subcommand)]
    Hosts(hosts::Command),
    /// Build what hosts need (Kubernetes programs, Debian root, images) and print where it is.
    Testenv,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Hosts(command) => hosts::run(command),
        Command::Testenv => testenv::run(),
    }
}
