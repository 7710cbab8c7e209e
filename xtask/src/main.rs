//! The project's commands, run as `cargo xtask VERB`.

mod cargo;
mod commands;
mod device;
mod exec;
mod llvm;
mod machine;
mod python;
mod setup;
mod style;
mod table;
mod vulkan;

use std::{
    panic,
    process::{self, ExitCode},
};

use clap::{Parser, Subcommand};

use crate::commands::{
    accuracy, bench, ci, codegen, conformance, demo, devices, explain, features, gpu_check, models,
    package, test, tune, verify, wasm, web,
};

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
    Devices(devices::Args),
    Bench(bench::Args),
    Models(models::Args),
    Tune(tune::Args),
    Explain(explain::Args),
    Verify(verify::Args),
    Conformance(conformance::Args),
    Accuracy(accuracy::Args),
    Codegen(codegen::Args),
    Features(features::Args),
    Wasm(wasm::Args),
    Web(web::Args),
    Package(package::Args),
    GpuCheck(gpu_check::Args),
    Ci(ci::Args),
}

/// Exits if the reader of a pipe has gone, as in `explain | head`: a print panics then.
fn end_with_the_reader() {
    /// A shell's exit code for a program that the signal has ended.
    const BROKEN_PIPE: i32 = 128 + 13;
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let why = info.payload_as_str().unwrap_or_default();
        if why.starts_with("failed printing to") && why.contains("Broken pipe") {
            process::exit(BROKEN_PIPE);
        }
        usual(info);
    }));
}

fn main() -> ExitCode {
    end_with_the_reader();
    let result = match Cli::parse_from(gpu_check::command_line()).command {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Verify(args) => return exit(verify::run(&args)),
        Command::Conformance(args) => conformance::run(&args),
        Command::Accuracy(args) => accuracy::run(&args),
        Command::Codegen(args) => codegen::run(&args),
        Command::Features(args) => features::run(&args),
        Command::Wasm(args) => wasm::run(&args),
        Command::Web(args) => web::run(&args),
        Command::Package(args) => package::run(&args),
        Command::GpuCheck(args) => gpu_check::run(&args),
        Command::Ci(args) => ci::run(&args),
    };
    exit(result.map(|()| ExitCode::SUCCESS))
}

fn exit(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("{}: {error:#}", style::bad("error"));
            ExitCode::FAILURE
        }
    }
}
