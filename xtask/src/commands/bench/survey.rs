//! The report's pages about strategies: measured over row lengths, and planned over shapes.

use std::path::Path;

use anyhow::Result;
use indicatif::ProgressBar;
use serde::Deserialize;

use crate::{
    commands::{problem::Problem, program::answers},
    device::Device,
    exec::Cmd,
    style,
};

/// Elements of each tensor that is measured, as a power of two: 16 MiB of float32, beyond most
/// caches.
const ELEMENTS: u32 = 22;
/// The longest row and the most rows that are planned, as powers of two; and elements in all.
const LONGEST: u32 = 24;
const MOST: u32 = 32;

/// The strategies of one device.
#[derive(Clone, Debug)]
pub struct Survey {
    pub device: Device,
    /// Empty if they were not measured.
    pub lengths: Vec<Length>,
    pub maps: Vec<Map>,
}

/// Every strategy at one row length of a layer norm.
#[derive(Clone, Debug, PartialEq)]
pub struct Length {
    pub columns: usize,
    pub times: Times,
}

/// The answer of `cubenorm-bench strategies` to a problem.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Times {
    pub bytes: usize,
    /// Milliseconds, as in the candidates.
    pub copy: f64,
    pub candidates: Vec<Candidate>,
}

/// A strategy, or `analytic` for what runs without tuning.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Candidate {
    pub name: String,
    pub time: f64,
}

impl Times {
    /// GB/s at this many milliseconds.
    pub fn throughput(&self, ms: f64) -> f64 {
        self.bytes as f64 / ms / 1e6
    }
}

/// The strategy that a pass of a layer norm takes for each number of rows and columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    pub pass: String,
    pub cells: Vec<Cell>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub rows: usize,
    pub columns: usize,
    pub strategy: String,
}

/// The answer of `cubenorm-bench plan` to a problem, reduced to the fields that matter here.
#[derive(Deserialize)]
struct Planned {
    strategy: String,
}

impl Survey {
    /// Plans, and measures if `lengths` says so. Problems that a device cannot run are missing.
    pub fn take(program: &Path, device: Device, lengths: bool, bar: &ProgressBar) -> Self {
        let command = |verb: &str| {
            Cmd::new(program.to_string_lossy())
                .arg(verb)
                .env("BURN_DEVICE", device.name())
        };
        let maps = ["forward", "backward"].map(|pass| Map {
            pass: pass.to_owned(),
            cells: told(device, |cells| plan(&command("plan"), pass, cells)),
        });
        let lengths = match lengths {
            true => told(device, |found| {
                measure(&command("strategies"), device, bar, found)
            }),
            false => Vec::new(),
        };
        Self {
            device,
            lengths,
            maps: maps
                .into_iter()
                .filter(|map| !map.cells.is_empty())
                .collect(),
        }
    }
}

/// Collects the answers of `ask`. Prints the error that ends them, if one does.
fn told<T>(device: Device, ask: impl FnOnce(&mut Vec<T>) -> Result<()>) -> Vec<T> {
    let mut found = Vec::new();
    if let Err(error) = ask(&mut found) {
        let warning = style::warning("warning:");
        anstream::eprintln!("{warning} the plots of {device} are not complete: {error:#}");
    }
    found
}

fn plan(command: &Cmd, pass: &str, cells: &mut Vec<Cell>) -> Result<()> {
    let exponents = |limit: u32| (0..=limit.min(LONGEST)).map(|exponent| 1usize << exponent);
    let shapes = (0..=LONGEST).flat_map(|exponent| {
        exponents(MOST - exponent).map(move |rows| (rows, 1usize << exponent))
    });
    let problems: Vec<Problem> = shapes
        .map(|(rows, columns)| layer_norm(rows, columns, pass))
        .collect();
    answers(command, &problems, |problem, answer: Result<Planned>| {
        if let (Ok(Planned { strategy }), [rows, columns]) = (answer, problem.shape.as_slice()) {
            cells.push(Cell {
                rows: *rows,
                columns: *columns,
                strategy,
            });
        }
    })
}

fn measure(
    command: &Cmd,
    device: Device,
    bar: &ProgressBar,
    found: &mut Vec<Length>,
) -> Result<()> {
    // From rows that a vector could hold to few very long ones.
    let exponents = (4..=ELEMENTS - 2).step_by(2);
    let problems: Vec<Problem> = exponents
        .map(|exponent| layer_norm(1 << (ELEMENTS - exponent), 1 << exponent, "forward"))
        .collect();
    bar.inc_length(problems.len() as u64);
    bar.set_message(format!("strategies on {device}"));
    answers(command, &problems, |problem, answer: Result<Times>| {
        bar.inc(1);
        if let (Ok(times), [_, columns]) = (answer, problem.shape.as_slice()) {
            found.push(Length {
                columns: *columns,
                times,
            });
        }
    })
}

fn layer_norm(rows: usize, columns: usize, pass: &str) -> Problem {
    Problem {
        op: "layer_norm".to_owned(),
        shape: vec![rows, columns],
        layout: "contiguous".to_owned(),
        dtype: "f32".to_owned(),
        pass: pass.to_owned(),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn plans_before_a_crash_are_shown() {
        let script = r#"read line; echo "$line" | grep -q '"shape":.1,1.' || exit 3
            echo '{"Ok":{"strategy":"unit","plan":"unit: x"}}'
            read line; echo '{"Err":"too large"}'; exit 3"#;
        let command = Cmd::new("sh").args(["-c", script]);
        let cells = told(Device::Cpu, |cells| plan(&command, "forward", cells));
        let first = Cell {
            rows: 1,
            columns: 1,
            strategy: "unit".into(),
        };
        assert_eq!(cells, [first]);
    }

    #[test]
    fn throughput_is_bytes_by_time() {
        let times = Times {
            bytes: 32_000_000,
            copy: 2.0,
            candidates: Vec::new(),
        };
        assert_eq!(times.throughput(times.copy), 16.0);
    }
}
