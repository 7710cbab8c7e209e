//! Facts about this machine.

use std::{fs, process::Command};

/// The processor's name.
pub(crate) fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    value(&text, "model name", ':')
}

/// The system's name and version.
pub(crate) fn system() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    value(&text, "PRETTY_NAME", '=')
}

/// The first NVIDIA GPU: name, driver and memory.
pub(crate) fn nvidia_gpu() -> Option<String> {
    let query = [
        "--query-gpu=name,driver_version,memory.total",
        "--format=csv,noheader",
    ];
    let gpus = said_by("nvidia-smi", &query)?;
    gpus.lines().next().map(str::to_owned)
}

/// Output of a program of the system, if it is there and succeeds.
pub(crate) fn said_by(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

/// The value behind a name at the start of a line.
fn value(text: &str, name: &str, separator: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let (_, value) = line.split_once(separator)?;
    Some(value.trim().trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lose_their_quotes() {
        let text = "NAME=x\nPRETTY_NAME=\"Some Linux 12\"\n";
        assert_eq!(
            value(text, "PRETTY_NAME", '='),
            Some("Some Linux 12".into())
        );
        assert_eq!(value(text, "VERSION", '='), None);
        let text = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: B\n";
        assert_eq!(value(text, "model name", ':'), Some("A CPU @ 2 GHz".into()));
    }
}
