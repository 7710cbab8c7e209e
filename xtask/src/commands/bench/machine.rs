//! A report's facts about the run and the machine.

use std::{env, thread};

use crate::{device::Device, machine};

/// Names and values.
pub fn facts(devices: &[Device], disturbance: Option<String>) -> Vec<(&'static str, String)> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let processor = machine::processor().unwrap_or_else(|| env::consts::ARCH.to_owned());
    let mut facts = vec![
        ("command", format!("cargo xtask {}", arguments.join(" "))),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        (
            "machine",
            format!("{processor}, {cores} cores, {}", env::consts::OS),
        ),
    ];
    if devices.contains(&Device::Cuda) {
        facts.extend(machine::nvidia_gpu().map(|gpu| ("GPU", gpu)));
    }
    facts.extend(disturbance.map(|what| ("disturbed", what)));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbance_is_said_last() {
        let facts = facts(&[Device::Cpu], Some("busy".into()));
        assert_eq!(facts.last().unwrap(), &("disturbed", "busy".to_owned()));
        assert!(facts.iter().all(|(name, _)| *name != "GPU"));
    }
}
