//! Targets of speed, as data next to the results.

use std::fs;

use anyhow::{Context, Result, ensure};
use cubenorm_problems::Suite;
use serde::Deserialize;

use super::super::{results::Record, stats::Clock};
use crate::{device::Device, exec::workspace};

const FILE: &str = "benches/data/targets.csv";

/// A speed to reach against a baseline.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Target {
    /// Part of the machine's or driver's name; empty for any.
    pub machine: String,
    pub device: String,
    pub provider: String,
    pub pass: String,
    /// The clock; empty for the one that the device is compared by.
    pub clock: Option<Clock>,
    pub shapes: Shapes,
    /// Our speed divided by the baseline's, in the geometric mean. For a copy: our share of its
    /// bandwidth.
    pub mean: Option<f64>,
    /// The same of the worst shape.
    pub worst: Option<f64>,
}

/// The shapes of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Shapes {
    All,
    /// Inputs of 4 MiB and more.
    Large,
    /// Layer and RMS norm of contiguous rows, inputs of 1 MiB and more.
    Rows,
    /// Inputs of less than 64 KiB: a call's own cost.
    Tiny,
    /// The suite `gpu`.
    Gpu,
}

impl Shapes {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Large => "4 MiB and more",
            Self::Rows => "contiguous rows, 1 MiB and more",
            Self::Tiny => "less than 64 KiB",
            Self::Gpu => "suite `gpu`",
        }
    }

    pub(super) fn contain(self, record: &Record) -> bool {
        let bytes = record.input_bytes().unwrap_or_default();
        match self {
            Self::All => true,
            Self::Large => bytes >= 4 << 20,
            Self::Rows => {
                let is_norm_of_rows = matches!(record.op.as_str(), "layer_norm" | "rms_norm");
                is_norm_of_rows && record.layout == "contiguous" && bytes >= 1 << 20
            }
            Self::Tiny => bytes < 64 << 10,
            Self::Gpu => Suite::Gpu.problems().iter().any(|problem| {
                let layout = problem.layout.to_string();
                let names = [&problem.op.to_string(), &problem.sizes(), &layout];
                let kinds = [&problem.dtype.to_string(), &problem.pass.to_string()];
                record.problem()[..3] == names && record.problem()[3..] == kinds
            }),
        }
    }
}

impl Target {
    /// True if a record is of the target's machine and device.
    pub(super) fn is_for(&self, record: &Record) -> bool {
        let is_named = |text: &str| text.contains(&self.machine);
        record.device == self.device && (is_named(&record.machine) || is_named(&record.driver))
    }
}

pub(super) fn read() -> Result<Vec<Target>> {
    let text = fs::read_to_string(workspace().join(FILE));
    parse(&text.with_context(|| format!("{FILE} not read"))?)
}

fn parse(text: &str) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for target in csv::Reader::from_reader(text.as_bytes()).deserialize() {
        let target: Target = target.context(FILE)?;
        target.device.parse::<Device>().context(FILE)?;
        ensure!(
            target.mean.or(target.worst).is_some(),
            "{FILE}: {} on {} has neither mean nor worst: expected one",
            target.provider,
            target.device
        );
        targets.push(target);
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::results::tests::recorded;

    #[test]
    fn the_targets_in_the_repository_are_readable() {
        assert!(!read().unwrap().is_empty());
    }

    #[test]
    fn shapes_are_told_by_bytes_and_operator() {
        let rows = recorded(
            "m",
            "cpu",
            "",
            &[
                "cubenorm rms_norm 1024x1024 f32 forward 1 ",
                "cubenorm rms_norm 1024x1024 f16 forward 1 ",
                "cubenorm group_norm 1024x1024 f32 forward 1 ",
                "cubenorm rms_norm 1x4096 f32 forward 1 ",
            ],
        );
        let contained = |shapes: Shapes| {
            let contained = rows.iter().map(|row| shapes.contain(row));
            contained.collect::<Vec<bool>>()
        };
        assert_eq!(contained(Shapes::Large), [true, false, true, false]);
        assert_eq!(contained(Shapes::Rows), [true, true, false, false]);
        assert_eq!(contained(Shapes::Tiny), [false, false, false, true]);
    }

    #[test]
    fn a_target_without_a_number_is_refused() {
        let text =
            "machine,device,provider,pass,clock,shapes,mean,worst\n,cpu,burn,forward,,all,,\n";
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains("burn on cpu has neither"), "{error}");
        assert!(parse(&text.replace("all,,", "some,1,")).is_err());
    }
}
