//! The report's facts about the machine.

use serde::Serialize;

use super::part::Suite;
use crate::machine;

/// Names and values, in an order to print them in.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Machine {
    /// The GPU's name, or the processor's if the device is no GPU.
    pub name: String,
    /// The day and minute, in UTC.
    pub date: String,
    pub facts: Vec<(String, String)>,
    /// Properties of the device, as CubeCL reports them.
    pub properties: Vec<(String, String)>,
}

impl Machine {
    /// This one.
    pub fn here(suite: &Suite) -> Self {
        let processor = machine::processor();
        let mut facts = vec![
            ("processor", processor.clone()),
            ("system", machine::system()),
            ("kernel", machine::said_by("uname", &["-sr"])),
        ];
        let gpu = match suite.device.as_str() {
            "cuda" => machine::nvidia_gpu(),
            _ => None,
        };
        let name = gpu.as_ref().and_then(|gpu| gpu.split(',').next());
        let name = name.map(str::to_owned);
        facts.insert(0, ("GPU", gpu));
        Self {
            name: name.or(processor).unwrap_or_else(|| suite.device.clone()),
            date: machine::said_by("date", &["-u", "+%Y-%m-%d %H:%M"]).unwrap_or_default(),
            facts: facts
                .into_iter()
                .filter_map(|(fact, value)| Some((fact.to_owned(), value?)))
                .collect(),
            properties: properties(suite),
        }
    }
}

/// Properties of the device; empty if it does not start, which the steps then report.
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
