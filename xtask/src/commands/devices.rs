//! `cargo xtask devices`: capabilities of this machine's devices, as plans see them.

use anyhow::Result;

use super::program;
use crate::{
    device::{self, Device},
    exec::Cmd,
    table::terminal,
};

const PROGRAM: &str = "cubenorm-devices";

/// Print what the devices of this machine can do: data types, planes, shared memory, limits.
///
/// These are the facts that plans are made from, read from CubeCL's device properties.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Devices to ask [default: all that this machine has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<Device>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let asked = device::chosen(&args.device, &[Device::Cuda, Device::Wgpu, Device::Cpu])?;
    let program = program::find(PROGRAM, &asked, None)?;
    let names: Vec<&str> = asked.iter().map(|device| device.name()).collect();
    let text = Cmd::new(program.to_string_lossy())
        .env("CUBENORM_TEST_DEVICES", names.join(","))
        .capture()?;
    println!("{}", table(&text));
    Ok(())
}

/// Properties down, devices across, from lines of device, property and value.
fn table(text: &str) -> String {
    let lines = text.lines().filter_map(|line| {
        let mut parts = line.split('\t');
        Some((parts.next()?, parts.next()?, parts.next()?))
    });
    let mut devices: Vec<&str> = Vec::new();
    let mut properties: Vec<(&str, Vec<&str>)> = Vec::new();
    for (device, property, value) in lines {
        if !devices.contains(&device) {
            devices.push(device);
        }
        match properties.iter_mut().find(|(name, _)| *name == property) {
            Some((_, values)) => values.push(value),
            None => properties.push((property, vec![value])),
        }
    }
    let rows = properties
        .into_iter()
        .map(|(property, values)| [vec![property], values].concat());
    terminal([vec![""], devices].concat(), rows, 0..0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_go_down_and_devices_across() {
        let text = "cpu\tkind\tCPU\nnoise of a driver\ncpu\tplanes\t-\nwgpu\tkind\tGPU\nwgpu\tplanes\t32\n";
        let table = table(text);
        let row = |name: &str| {
            let line = table.lines().find(|line| line.contains(name)).unwrap();
            let cells = line.split_whitespace().filter(|cell| *cell != "│");
            cells.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("cpu"), ["cpu", "wgpu"]);
        assert_eq!(row("kind"), ["kind", "CPU", "GPU"]);
        assert_eq!(row("planes"), ["planes", "-", "32"]);
    }
}
