//! A device to run on, and its requirements, installed if possible.
//!
//! Messages go to standard error: the standard output of some verbs is a report.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Result, bail};

use crate::{
    device::Device,
    exec::{Cmd, on_path},
    llvm::{self, Llvm},
    style, vulkan,
};

/// The device that was asked for, or the best there is; ready to run.
pub(crate) fn device(asked: Option<Device>, yes: bool) -> Result<Device> {
    let device = match asked {
        Some(device) => {
            prepare(device, yes)?;
            device
        }
        None => best(yes)?,
    };
    anstream::eprintln!("{} {device}", style::heading("device:"));
    Ok(device)
}

/// True if a build for this device may contain `cpu`. LLVM is large: it is fetched for the device
/// that needs it, and used if it is there.
pub(crate) fn with_llvm(device: Device) -> Result<bool> {
    Ok(device == Device::Cpu || llvm::find()? == Llvm::Installed)
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

/// Makes sure that a device can run. Installs missing packages if possible.
fn prepare(device: Device, yes: bool) -> Result<()> {
    match device {
        Device::Cpu if llvm::find()? == Llvm::Missing => {
            bail!("the runtime `cpu` needs LLVM, whose download is out of reach")
        }
        Device::Wgpu | Device::Vulkan
            if cfg!(target_os = "linux") && vulkan::drivers().is_empty() =>
        {
            eprintln!("No Vulkan driver found; Mesa has one that runs on the processor.");
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

/// Installs a package of Debian and its kin: as root at once, else through sudo if the user agrees.
pub(crate) fn install(package: &str, yes: bool) -> Result<()> {
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
        command.args(arguments).aside().run()
    };
    apt(&["update"])?;
    apt(&["install", "--yes", "--no-install-recommends", package])
}

/// True if this process may install packages without asking.
pub(crate) fn is_root() -> bool {
    let id = Cmd::new("id").arg("-u").command().output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Asks on the terminal; without one the answer is no.
fn confirm(question: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("no answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
