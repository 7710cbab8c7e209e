//! What the report says of the machine.

use std::{fs, process::Command};

use serde::Serialize;

use super::part::Suite;

/// Names and values, in an order to print them in.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Machine {
    /// What the machine calls its GPU, or its processor where no GPU is asked about.
    pub name: String,
    /// The day and minute, in UTC.
    pub date: String,
    pub facts: Vec<(String, String)>,
    /// What CubeCL says the device can do.
    pub properties: Vec<(String, String)>,
}

impl Machine {
    /// This one.
    pub fn here(suite: &Suite) -> Self {
        let processor = processor();
        let mut facts = vec![
            ("processor", processor.clone()),
            ("system", system()),
            ("kernel", said_by("uname", &["-sr"])),
        ];
        let query = [
            "--query-gpu=name,driver_version,memory.total",
            "--format=csv,noheader",
        ];
        let gpus = match suite.device.as_str() {
            "cuda" => said_by("nvidia-smi", &query),
            _ => None,
        };
        let gpu = gpus.as_ref().and_then(|gpus| gpus.lines().next());
        let name = gpu.and_then(|gpu| gpu.split(',').next()).map(str::to_owned);
        facts.insert(0, ("GPU", gpu.map(str::to_owned)));
        Self {
            name: name.or(processor).unwrap_or_else(|| suite.device.clone()),
            date: said_by("date", &["-u", "+%Y-%m-%d %H:%M"]).unwrap_or_default(),
            facts: facts
                .into_iter()
                .filter_map(|(fact, value)| Some((fact.to_owned(), value?)))
                .collect(),
            properties: properties(suite),
        }
    }
}

/// What CubeCL says; nothing where the device does not start, which the steps then say.
fn properties(suite: &Suite) -> Vec<(String, String)> {
    let command = suite.command(
        &[],
        &["--ignored", "--nocapture", "measure::device_properties"],
    );
    let Ok(ended) = suite.run("properties", command) else {
        return Vec::new();
    };
    let lines = ended.output.lines().filter_map(|line| {
        let mut parts = line.strip_prefix("property ")?.splitn(3, '\t').skip(1);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    });
    lines.collect()
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    value(&text, "model name", ':')
}

fn system() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    value(&text, "PRETTY_NAME", '=')
}

/// The value behind a name at the start of a line.
fn value(text: &str, name: &str, separator: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let (_, value) = line.split_once(separator)?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// What a program of the system says, where there is one and it succeeds.
fn said_by(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
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
    }
}
