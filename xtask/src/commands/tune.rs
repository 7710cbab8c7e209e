//! `cargo xtask tune`: every candidate of a list of shapes, timed, and what the tuner chose.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use serde::Deserialize;

use super::{
    bench::progress,
    program::{self, answers},
    ratios::geometric_mean,
    selection::Selection,
};
use crate::{exec::Cmd, style};

/// Tune the kernels for a list of shapes: each candidate with its time, and which one was chosen.
///
/// What is chosen is kept in CubeCL's cache, where later runs find it. The analytic plan is what runs
/// without tuning. Times are the device's own where it keeps them.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Start from nothing and write what was tuned and compiled to FILE, a bundle that an application
    /// ships and imports (see README)
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

/// What the program knows of a problem; `cubenorm_bench::tune` is the other side.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Tuned {
    copy: Option<f64>,
    candidates: Vec<Candidate>,
    chosen: String,
    took: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Candidate {
    name: String,
    time: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let devices = args.selection.devices();
    let program = program::build(program::BENCH, &devices)?;
    let problems = args.selection.problems(&program, None)?;
    ensure!(
        args.bundle.is_none() || devices.len() == 1,
        "a bundle is of one device: name it with --device"
    );
    let mut failed = 0;
    for device in devices {
        let mut command = Cmd::new(program.to_string_lossy())
            .arg("tune")
            .env("BURN_DEVICE", device.name());
        if let Some(bundle) = &args.bundle {
            command = command.arg(std::path::absolute(bundle)?);
        }
        anstream::println!("\n{}", style::heading(device));
        let bar = progress(problems.len() as u64);
        let mut tuned = Vec::new();
        answers(&command, &problems, |problem, answer: Result<Tuned>| {
            bar.set_message(problem.to_string());
            bar.inc(1);
            bar.suspend(|| match answer {
                Ok(answer) => {
                    anstream::println!("{}", style::heading(problem));
                    println!("{}", table(&answer));
                    tuned.push(answer);
                }
                Err(why) => {
                    failed += 1;
                    anstream::println!("{} {problem}: {why:#}", style::bad("failed"));
                }
            });
        })?;
        bar.finish_and_clear();
        if let Some(summary) = summary(&tuned) {
            println!("{summary}");
        }
    }
    if let Some(bundle) = &args.bundle {
        println!("bundle: {}", bundle.display());
    }
    ensure!(failed == 0, "{failed} problems could not be tuned");
    Ok(())
}

impl Tuned {
    fn fastest(&self) -> f64 {
        let times = self.candidates.iter().map(|candidate| candidate.time);
        times.fold(f64::INFINITY, f64::min)
    }

    fn time_of(&self, name: &str) -> Option<f64> {
        let named = |candidate: &&Candidate| candidate.name == name;
        Some(self.candidates.iter().find(named)?.time)
    }

    /// How many times the fastest candidate's time the chosen one takes.
    fn chosen(&self) -> Option<f64> {
        Some(self.time_of(&self.chosen)? / self.fastest())
    }

    /// The same of the analytic plan, beside the chosen one.
    fn analytic(&self) -> Option<f64> {
        Some(self.candidates.first()?.time / self.time_of(&self.chosen)?)
    }
}

/// The candidates of a problem, fastest first.
fn table(tuned: &Tuned) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["candidate", "ms", "x fastest", "of a copy", ""]);
    let mut sorted: Vec<&Candidate> = tuned.candidates.iter().collect();
    sorted.sort_by(|a, b| a.time.total_cmp(&b.time));
    for candidate in sorted {
        let copy = tuned.copy.map_or("-".into(), |copy| {
            format!("{:.0} %", 100.0 * copy / candidate.time)
        });
        let is_chosen = candidate.name == tuned.chosen;
        table.add_row([
            candidate.name.clone(),
            format!("{:.4}", candidate.time),
            format!("{:.2}", candidate.time / tuned.fastest()),
            copy,
            if is_chosen {
                format!("chosen in {:.0} ms", tuned.took)
            } else {
                String::new()
            },
        ]);
    }
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// How good the choices are over all problems; nothing where there is none.
fn summary(tuned: &[Tuned]) -> Option<String> {
    let chosen: Vec<f64> = tuned.iter().filter_map(Tuned::chosen).collect();
    let analytic: Vec<f64> = tuned.iter().filter_map(Tuned::analytic).collect();
    let line = |what: &str, ratios: &[f64]| {
        let worst = ratios.iter().copied().fold(f64::MIN, f64::max);
        let mean = geometric_mean(ratios)?;
        Some(format!(
            "{what}: {mean:.3} times in the geometric mean, {worst:.2} at worst"
        ))
    };
    Some(format!(
        "{}\n{}",
        line("chosen beside the fastest candidate", &chosen)?,
        line("analytic plan beside the chosen one", &analytic)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned() -> Tuned {
        let candidate = |name: &str, time| Candidate {
            name: name.into(),
            time,
        };
        Tuned {
            copy: Some(1.0),
            candidates: vec![candidate("analytic", 4.0), candidate("cube units=256", 2.0)],
            chosen: "cube units=256".into(),
            took: 30.0,
        }
    }

    #[test]
    fn the_fastest_comes_first_and_the_chosen_one_says_so() {
        let text = table(&tuned()).to_string();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(" %")).collect();
        assert!(rows[0].contains("cube units=256") && rows[0].contains("chosen in 30 ms"));
        assert!(
            rows[0].contains("50 %") && rows[1].contains("2.00"),
            "{text}"
        );
    }

    #[test]
    fn choices_are_judged_by_the_geometric_mean_and_the_worst() {
        let bad = Tuned {
            chosen: "analytic".into(),
            ..tuned()
        };
        let text = summary(&[tuned(), bad]).unwrap();
        assert!(
            text.contains("fastest candidate: 1.414 times in the geometric mean, 2.00 at worst")
        );
        assert_eq!(summary(&[]), None);
    }
}
