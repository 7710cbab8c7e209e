//! `cargo xtask bench`: contenders side by side, interleaved in one run.

mod load;
mod report;
mod stats;
mod worker;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use self::{
    report::{Measured, Measurement},
    stats::Stats,
    worker::{Lost, Worker},
};
use crate::{
    cargo::Build,
    commands::selection::{Problem, Selection},
    device::{Device, features},
    llvm::{self, Llvm},
    style,
};

const PROGRAM: &str = "cubenorm-bench";
/// Who is measured, in the order of a round.
const CONTENDERS: [&str; 3] = ["cubenorm", "burn", "copy"];

/// Measure the norms beside Burn's own and a device copy of the same bytes.
///
/// Every contender runs in a process of its own, is checked against a host reference and warmed
/// up; then all take turns, round by round. On a software device (cpu, lavapipe) only the ratios
/// mean something for other machines.
#[derive(clap::Args)]
pub struct Args {
    /// Only what the speed targets name: the suite `quick`
    #[arg(long, conflicts_with = "suite")]
    quick: bool,
    /// Write all rows to FILE as a JSON array
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// How often the contenders take turns
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
}

pub fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0, "no rounds, no times");
    let devices = args.selection.devices();
    let llvm = devices.contains(&Device::Cpu) || llvm::find()? == Llvm::Installed;
    let program = Build::burn_facing(&features(&devices, llvm))?.program(PROGRAM)?;
    let problems = args
        .selection
        .problems(&program, args.quick.then_some("quick"))?;

    if let Some(share) = load::disturbance() {
        let percent = (100.0 * share).round();
        let what = format!("other programs use {percent} % of the processor");
        anstream::eprintln!(
            "{} {what}; even the ratios will be off",
            style::warning("warning:")
        );
    }

    let bar = progress((devices.len() * problems.len() * (1 + args.rounds)) as u64);
    let mut measurements = Vec::new();
    for device in devices {
        let start = measurements.len();
        for problem in &problems {
            measurements.push(measure(&program, device, problem, args.rounds, &bar)?);
        }
        bar.suspend(|| print(device, &measurements[start..]));
    }
    bar.finish_and_clear();

    if let Some(path) = &args.json {
        let text = report::json(&measurements)? + "\n";
        fs::write(path, text).with_context(|| format!("{} not written", path.display()))?;
        println!(
            "{} rows in {}",
            CONTENDERS.len() * measurements.len(),
            path.display()
        );
    }
    let ours = measurements
        .iter()
        .flat_map(|measurement| &measurement.contenders);
    let lost = ours
        .filter(|m| m.contender == "cubenorm" && m.result.is_err())
        .count();
    ensure!(
        lost == 0,
        "cubenorm has no time for {lost} of {} rows",
        measurements.len()
    );
    Ok(())
}

/// Runs all contenders on a problem: set up one after the other, then round by round.
fn measure(
    program: &Path,
    device: Device,
    problem: &Problem,
    rounds: usize,
    bar: &ProgressBar,
) -> Result<Measurement> {
    let title = format!("{device} {} {}", problem.op, report::shape(&problem.shape));
    bar.set_message(format!("{title}: warming up"));
    let mut lanes = Vec::new();
    for contender in CONTENDERS {
        let mut worker = Worker::start(program, contender, device)?;
        let ready = worker.prepare(problem);
        lanes.push(Lane {
            contender,
            state: ready.map(|()| (worker, Vec::new())),
        });
    }
    bar.inc(1);
    bar.set_message(title);
    for _ in 0..rounds {
        for lane in &mut lanes {
            lane.round();
        }
        bar.inc(1);
    }
    let contenders = lanes.into_iter().map(Lane::finish).collect();
    Ok(Measurement {
        device: device.to_string(),
        problem: problem.clone(),
        contenders,
    })
}

/// A contender during a measurement: its process and samples, or how it was lost.
struct Lane {
    contender: &'static str,
    state: Result<(Worker, Vec<f64>), Lost>,
}

impl Lane {
    fn round(&mut self) {
        if let Ok((worker, samples)) = &mut self.state {
            match worker.round() {
                Ok(more) => samples.extend(more),
                Err(lost) => self.state = Err(lost),
            }
        }
    }

    fn finish(self) -> Measured {
        let result = self.state.and_then(|(_, samples)| {
            Stats::of(&samples).ok_or_else(|| Lost::Failed("returned no sample".into()))
        });
        Measured {
            contender: self.contender,
            result,
        }
    }
}

fn print(device: Device, measurements: &[Measurement]) {
    anstream::println!("\n{}", style::heading(device));
    println!(
        "{}",
        report::table(&measurements.iter().collect::<Vec<_>>())
    );
    for measurement in measurements {
        for Measured { contender, result } in &measurement.contenders {
            let (word, why) = match result {
                Ok(_) => continue,
                Err(Lost::Crashed(why)) => ("crashed", why),
                Err(Lost::Failed(why)) => ("failed", why),
            };
            let problem = &measurement.problem;
            let shape = report::shape(&problem.shape);
            let what = format!("{contender} {} {shape} {}", problem.op, problem.pass);
            anstream::println!("{} {what}: {why}", style::bad(word));
        }
    }
}

/// Hidden by itself where standard error is no terminal.
pub fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} [{elapsed}]") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
