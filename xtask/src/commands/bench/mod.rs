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
    /// Only what the speed targets name: the suite `quick`
    #[arg(long, conflicts_with = "suite")]
    quick: bool,
    /// Which shapes: quick, full, transformer, vision, tiny, odd
    #[arg(long, value_name = "NAME", default_value = "full")]
    suite: String,
    /// Write all rows to FILE as a JSON array
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Devices to measure on [default: those of cpu and wgpu that this machine has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<Device>,
    /// Only these operators: layer_norm, rms_norm, batch_norm, group_norm, instance_norm
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    op: Vec<String>,
    /// Only these shapes, as 2048x4096; one that is not in the suite is added to it
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', value_parser = parse_shape)]
    shape: Vec<Shape>,
    /// Only these types: f32, f16
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    dtype: Vec<String>,
    /// Only these passes: forward, backward, full (both); all shapes take those that are named
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
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
    let suite = if args.quick { "quick" } else { &args.suite };
    let list = Cmd::new(program.to_string_lossy())
        .args(["list", suite])
        .capture()?;
    let suite: Vec<Problem> = serde_json::from_str(&list).context("no list of problems")?;
    let problems = args.select(suite);
    if problems.is_empty() {
        bail!("the suite has no problem of this kind; a new one needs --op and --shape");
    }
    Ok(problems)
}

impl Args {
    /// The problems of a suite that are asked for, and those that it lacks.
    fn select(&self, suite: Vec<Problem>) -> Vec<Problem> {
        let is_asked = |asked: &[String], name: &String| asked.is_empty() || asked.contains(name);
        let of_shape =
            |p: &Problem| self.shape.is_empty() || self.shape.iter().any(|s| s.0 == p.shape);
        let mut selected: Vec<Problem> = suite
            .into_iter()
            .filter(|p| is_asked(&self.op, &p.op) && of_shape(p))
            .collect();
        for op in &self.op {
            for Shape(shape) in &self.shape {
                if !selected.iter().any(|p| p.op == *op && p.shape == *shape) {
                    selected.push(Problem {
                        op: op.clone(),
                        shape: shape.clone(),
                        dtype: "f32".into(),
                        pass: "forward".into(),
                    });
                }
            }
        }
        let selected = spread(selected, &self.dtype, |problem| &mut problem.dtype);
        spread(selected, &self.pass, |problem| &mut problem.pass)
    }
}

/// Each problem once with each of the words that are asked for; all as they are where none is.
fn spread(
    problems: Vec<Problem>,
    words: &[String],
    field: fn(&mut Problem) -> &mut String,
) -> Vec<Problem> {
    if words.is_empty() {
        return problems;
    }
    let mut spread = Vec::new();
    for word in words {
        for problem in &problems {
            let mut problem = problem.clone();
            field(&mut problem).clone_from(word);
            if !spread.contains(&problem) {
                spread.push(problem);
            }
        }
    }
    spread
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
    use clap::Parser as _;

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

    /// What `cargo xtask bench` with these arguments selects from two problems.
    fn selected(arguments: &[&str]) -> Vec<Problem> {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let cli = Cli::parse_from(["bench"].iter().chain(arguments));
        let suite = [problem("layer_norm", &[2, 4]), problem("rms_norm", &[2, 4])];
        cli.args.select(suite.into())
    }

    #[test]
    fn filters_choose_from_the_suite_and_add_what_it_lacks() {
        assert_eq!(selected(&[]).len(), 2);
        let rms = ["--op", "rms_norm"];
        assert_eq!(selected(&rms), [problem("rms_norm", &[2, 4])]);
        let other = ["--op", "rms_norm", "--shape", "3x5"];
        assert_eq!(selected(&other), [problem("rms_norm", &[3, 5])]);
        assert!(selected(&["--shape", "3x5"]).is_empty());
    }

    #[test]
    fn each_pass_and_type_has_its_own_rows() {
        let arguments = [
            "--op",
            "rms_norm",
            "--pass",
            "forward,full",
            "--dtype",
            "f16,f32",
        ];
        let words: Vec<String> = selected(&arguments)
            .iter()
            .map(|p| format!("{} {}", p.pass, p.dtype))
            .collect();
        assert_eq!(
            words,
            ["forward f16", "forward f32", "full f16", "full f32"]
        );
    }
}
