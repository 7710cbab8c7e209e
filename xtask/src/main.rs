//! The project's commands, run as `cargo xtask VERB`.

mod cargo;
mod commands;
mod device;
mod exec;
mod llvm;
mod style;
mod vulkan;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{bench, ci, demo, test};

/// The commands of cubenorm: try it, test it, measure it, check a change.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Test(test::Args),
    Bench(bench::Args),
    Ci(ci::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Ci(args) => ci::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("{}: {error:#}", style::bad("error"));
            ExitCode::FAILURE
        }
    }
}
