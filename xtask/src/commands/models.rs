//! `cargo xtask models`: whole networks with Burn's norms and with cubenorm's.

use std::path::{self, PathBuf};

use anyhow::{Result, ensure};

use crate::{cargo::Build, device::Device, exec::Cmd, setup};

const PACKAGE: &str = "cubenorm-example-models";
const PROGRAM: &str = "models";

/// Time whole networks with Burn's norms, with cubenorm's and without norms, eager and captured.
///
/// MiniLM, a training step of GPT-2 small, one of ResNet-50, a U-Net block and a decode step, with
/// random weights. Builds the program for one device: about 20 minutes on two cores for the first
/// time. Outputs are compared before anything is timed. The exit code is 1 if they differ.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device to run on [default: the best this machine has]
    #[arg(long, value_name = "NAME")]
    device: Option<Device>,
    /// Small networks, for tests and a first look
    #[arg(long)]
    small: bool,
    /// Only these networks: minilm, gpt2, resnet, unet, decode
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Number of rounds; every kind of norms has a sample per round [default: 15, or 5 with --small]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Write the rows to FILE as a JSON array
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the rows to FILE as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Run this program, which was built elsewhere, instead of a build
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Install missing system packages without asking
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = args.program.as_ref();
    if let Some(program) = program {
        ensure!(
            program.is_file(),
            "{} is no file: expected the program {PROGRAM}",
            program.display()
        );
    }
    let device = setup::device(args.device, args.yes)?;
    // One runtime: a newcomer waits for this build, and each runtime is minutes of it.
    let program = match program {
        Some(program) => path::absolute(program)?,
        None => Build::binaries(&[PACKAGE], device.name())?.program(PROGRAM)?,
    };
    Cmd::new(program.to_string_lossy())
        .args(arguments(args, device)?)
        .run()
}

/// Arguments of the program.
fn arguments(args: &Args, device: Device) -> Result<Vec<String>> {
    let mut arguments = vec!["--device".to_owned(), device.name().to_owned()];
    if args.small {
        arguments.push("--small".to_owned());
    }
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    for network in &args.only {
        add("--only", network.clone());
    }
    if let Some(rounds) = args.rounds {
        add("--rounds", rounds.to_string());
    }
    for (option, file) in [("--json", &args.json), ("--csv", &args.csv)] {
        if let Some(file) = file {
            // Programs run in the root of the workspace.
            add(option, path::absolute(file)?.to_string_lossy().into_owned());
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(arguments: &[&str]) -> Args {
        let cli = Cli::try_parse_from(["models"].iter().chain(arguments));
        cli.expect("they are arguments").args
    }

    #[test]
    fn arguments_reach_the_program() {
        let args = parsed(&["--small", "--only", "minilm,unet", "--rounds", "3"]);
        let passed = arguments(&args, Device::Wgpu).unwrap().join(" ");
        let expected = "--device wgpu --small --only minilm --only unet --rounds 3";
        assert_eq!(passed, expected);
    }

    #[test]
    fn files_are_absolute() {
        let args = parsed(&["--json", "rows.json"]);
        let passed = arguments(&args, Device::Cpu).unwrap();
        assert!(path::Path::new(&passed[3]).is_absolute(), "{passed:?}");
    }

    #[test]
    fn missing_program_is_refused_before_a_build() {
        let args = parsed(&["--program", "/nowhere/it"]);
        let error = run(&args).unwrap_err().to_string();
        assert_eq!(error, "/nowhere/it is no file: expected the program models");
    }
}
