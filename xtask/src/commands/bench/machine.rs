//! What a report says of the run and of the machine.

use std::{env, fs, thread};

/// Names and values.
pub fn facts(disturbance: Option<String>) -> Vec<(&'static str, String)> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let processor = fs::read_to_string("/proc/cpuinfo").ok();
    let processor = processor.and_then(|text| name(&text).map(str::to_owned));
    let processor = processor.unwrap_or_else(|| env::consts::ARCH.to_owned());
    let mut facts = vec![
        ("command", format!("cargo xtask {}", arguments.join(" "))),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        (
            "machine",
            format!("{processor}, {cores} cores, {}", env::consts::OS),
        ),
    ];
    facts.extend(disturbance.map(|what| ("disturbed", what)));
    facts
}

/// The processor in the words of `/proc/cpuinfo`.
fn name(cpuinfo: &str) -> Option<&str> {
    let mut lines = cpuinfo.lines();
    let line = lines.find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_as_it_names_itself() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: B\n";
        assert_eq!(name(text), Some("A CPU @ 2 GHz"));
        assert_eq!(name("Hardware: x"), None);
        let facts = facts(Some("busy".into()));
        assert_eq!(facts.last().unwrap(), &("disturbed", "busy".to_owned()));
    }
}
