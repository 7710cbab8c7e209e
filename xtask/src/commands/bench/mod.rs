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

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use self::{
    report::{Measured, Measurement},
    stats::Stats,
    worker::{Lost, Problem, Worker},
};
use crate::{
    cargo::Build,
    device::{Device, features},
    exec::Cmd,
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
    /// Only the shapes that the speed targets name
    #[arg(long)]
    quick: bool,
    /// Write all rows to FILE as a JSON array
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Devices to measure on [default: those of cpu and wgpu that this machine has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<Device>,
    /// Only these operators: layer_norm, rms_norm, instance_norm
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    op: Vec<String>,
    /// Only these shapes, as 2048x4096; one that is not in the suite is added to it
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', value_parser = parse_shape)]
    shape: Vec<Shape>,
    /// What is timed: forward, backward, full
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "forward"
    )]
    pass: Vec<String>,
    /// How often the contenders take turns
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
}

/// The sizes of a tensor; clap would take a bare `Vec` for a list of values.
#[derive(Clone, Debug, PartialEq)]
struct Shape(Vec<usize>);

fn parse_shape(text: &str) -> Result<Shape> {
    let sizes: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
    Ok(Shape(sizes.with_context(|| {
        format!("`{text}` is no shape such as 2048x4096")
    })?))
}

pub fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0, "no rounds, no times");
    let devices = devices(&args.device)?;
    let llvm = devices.contains(&Device::Cpu) || llvm::find()? == Llvm::Installed;
    let program = Build::burn_facing(&features(&devices, llvm))?.program(PROGRAM)?;
    let problems = problems(args, &program)?;

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

fn devices(asked: &[Device]) -> Result<Vec<Device>> {
    if !asked.is_empty() {
        return Ok(asked.to_vec());
    }
    let (here, missing): (Vec<_>, Vec<_>) = [Device::Cpu, Device::Wgpu]
        .into_iter()
        .partition(|device| device.missing().is_none());
    for device in missing {
        let why = device.missing().unwrap_or_default();
        anstream::eprintln!("{} {device}: {why}", style::warning("skipped"));
    }
    Ok(here)
}

/// The suite as the worker's catalogue has it, filtered and completed as asked.
fn problems(args: &Args, program: &Path) -> Result<Vec<Problem>> {
    let suite = if args.quick { "quick" } else { "full" };
    let list = Cmd::new(program.to_string_lossy())
        .args(["list", suite])
        .capture()?;
    let suite: Vec<Problem> = serde_json::from_str(&list).context("no list of problems")?;
    let problems = select(suite, &args.op, &args.shape, &args.pass);
    if problems.is_empty() {
        bail!("the suite has no problem of this kind; a new one needs --op and --shape");
    }
    Ok(problems)
}

fn select(
    suite: Vec<Problem>,
    ops: &[String],
    shapes: &[Shape],
    passes: &[String],
) -> Vec<Problem> {
    let of_op = |p: &Problem| ops.is_empty() || ops.contains(&p.op);
    let of_shape = |p: &Problem| shapes.is_empty() || shapes.iter().any(|s| s.0 == p.shape);
    let mut forward: Vec<Problem> = suite
        .into_iter()
        .filter(|p| of_op(p) && of_shape(p))
        .collect();
    for op in ops {
        for Shape(shape) in shapes {
            if !forward.iter().any(|p| p.op == *op && p.shape == *shape) {
                let (op, shape) = (op.clone(), shape.clone());
                forward.push(Problem {
                    op,
                    shape,
                    dtype: "f32".into(),
                    pass: "forward".into(),
                });
            }
        }
    }
    let with_pass = |pass: &String| {
        let pass = pass.clone();
        forward.iter().map(move |p| Problem {
            pass: pass.clone(),
            ..p.clone()
        })
    };
    passes.iter().flat_map(with_pass).collect()
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
fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} [{elapsed}]") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(op: &str, shape: &[usize]) -> Problem {
        Problem {
            op: op.into(),
            shape: shape.into(),
            dtype: "f32".into(),
            pass: "forward".into(),
        }
    }

    #[test]
    fn shapes_read_as_they_are_printed() {
        assert_eq!(
            parse_shape("8x64x128x128").unwrap(),
            Shape(vec![8, 64, 128, 128])
        );
        assert!(parse_shape("8x").unwrap_err().to_string().contains("`8x`"));
    }

    #[test]
    fn filters_choose_from_the_suite_and_add_what_it_lacks() {
        let suite = || vec![problem("layer_norm", &[2, 4]), problem("rms_norm", &[2, 4])];
        let forward = ["forward".to_owned()];
        assert_eq!(select(suite(), &[], &[], &forward), suite());

        let rms = ["rms_norm".to_owned()];
        assert_eq!(
            select(suite(), &rms, &[], &forward),
            [problem("rms_norm", &[2, 4])]
        );
        let other = [Shape(vec![3, 5])];
        assert_eq!(
            select(suite(), &rms, &other, &forward),
            [problem("rms_norm", &[3, 5])]
        );
        assert!(select(suite(), &[], &other, &forward).is_empty());
    }

    #[test]
    fn each_pass_has_its_own_rows() {
        let passes = ["forward".to_owned(), "full".to_owned()];
        let selected = select(vec![problem("rms_norm", &[2, 4])], &[], &[], &passes);
        assert_eq!(
            selected.iter().map(|p| p.pass.as_str()).collect::<Vec<_>>(),
            ["forward", "full"]
        );
    }
}
