//! `cargo xtask test`: the whole suite on every runtime this machine has.

pub(crate) mod plan;
pub(crate) mod suite;

use std::{env, ffi::OsString, sync::Mutex, thread, time::Instant};

use anyhow::{Result, ensure};

use self::{
    plan::{Plan, Ready, choosing},
    suite::{ALONE, BuildKind, RUNS, Run, SUITE, TOGETHER, Targets},
};
use super::outcome::{Line, Outcome, report};
use crate::{
    cargo::{self, Artifact, Build},
    device::Device,
    exec::{Cmd, trouble},
    vulkan::Driver,
};

/// Run all tests on every runtime that this machine has.
///
/// There are three tiers. `--host` takes the least: descriptions, plans, operators, formulas; Burn is
/// not built. No option takes minutes. `--large` adds what takes long or much memory, and a second driver
/// for SPIR-V.
///
/// Unit tests run once. The suite runs once per runtime. For wgpu and vulkan it runs once per CPU
/// Vulkan driver that is found (lavapipe, Chromium's SwiftShader), besides the system's GPU. Ends
/// with a table of the runs, and why the others were left out.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Runtimes to test on [default: all that this machine has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub device: Vec<Device>,
    /// Only the tests that need no device
    #[arg(long, conflicts_with_all = ["device", "large"])]
    pub host: bool,
    /// Also run the tests that take long or much memory
    #[arg(long)]
    pub large: bool,
    /// Only tests whose name contains one of these
    pub filters: Vec<String>,
    /// Seconds of fuzzing per file format [default: the tests' own]
    #[arg(skip)]
    pub fuzz_seconds: Option<u32>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.host {
        return report(&host(args));
    }
    let plan = Plan::new(&args.device, args.large)?;
    let mut lines = host(args);
    lines.extend(plan.skipped.iter().map(|(run, why)| skipped(run, why)));
    for kind in [BuildKind::Burn, BuildKind::Spirv] {
        lines.extend(run_build(&plan, args, kind));
    }
    report(&lines)?;
    have_run(&lines, &args.device)?;
    match env::var_os("CI").is_some() && args.device.is_empty() {
        true => must_have_run(&lines),
        false => Ok(()),
    }
}

/// Builds once, then runs the suite on each device of this build.
fn run_build(plan: &Plan, args: &Args, kind: BuildKind) -> Vec<Line> {
    let Some((runs, features)) = plan.of(kind) else {
        return Vec::new();
    };
    let build = match Build::tests(kind.packages(), &features) {
        Ok(build) => build,
        Err(error) => {
            let name = format!("build {features}");
            return vec![Line::new(name, Outcome::of(Err(error)))];
        }
    };
    let mut lines = Vec::new();
    if kind == BuildKind::Burn {
        let units = build
            .test_programs()
            .filter(|program| !program.is_in(SUITE));
        lines.push(Line::new("unit tests", execute(units, args, &[])));
        lines.push(doc_tests("doc tests", kind, args, &features));
    }
    if kind == BuildKind::Burn {
        lines.extend(together(&runs, &build, args));
    }
    for (run, driver) in runs {
        let suite = build.test_programs().filter(|program| program.is_in(SUITE));
        let taken = suite.filter(|program| run.targets.contain(&program.target));
        let (alone, others): (Vec<_>, Vec<_>) =
            taken.partition(|program| ALONE.contains(&program.target.as_str()));
        let environment = environment(run.device.name(), driver);
        let ran = execute(alone.into_iter(), args, &environment);
        let ran = ran.and(in_pairs(others, args, &environment));
        lines.push(Line::new(name(run), ran).on(run.device));
    }
    lines
}

/// Runs the tests of several devices at once, on all devices of a build.
fn together(runs: &[&Ready], build: &Build, args: &Args) -> Option<Line> {
    let mut names: Vec<&str> = runs.iter().map(|(run, _)| run.device.name()).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() < 2 {
        return None;
    }
    let driver = runs.iter().find_map(|(_, driver)| driver.clone());
    let programs = build
        .test_programs()
        .filter(|program| program.is_in(SUITE) && program.target == TOGETHER);
    let environment = environment(&names.join(","), &driver);
    let name = format!("{} at once", names.join(", "));
    Some(Line::new(name, execute(programs, args, &environment)))
}

/// Tests that need no device, and no build of Burn: the quickest to fail.
fn host(args: &Args) -> Vec<Line> {
    let name = "host tests";
    let kind = BuildKind::Host;
    match Build::tests(kind.packages(), "") {
        Ok(build) => vec![
            Line::new(name, execute(build.test_programs(), args, &fuzzing(args))),
            doc_tests("host doc tests", kind, args, ""),
        ],
        Err(error) => vec![Line::new(name, Outcome::of(Err(error)))],
    }
}

/// Seconds of fuzzing per file format. All formats run at once, so the total is no longer.
fn fuzzing(args: &Args) -> Vec<(&'static str, OsString)> {
    let Some(seconds) = args.fuzz_seconds else {
        return Vec::new();
    };
    vec![
        ("CUBENORM_FUZZ_SECONDS", seconds.to_string().into()),
        ("RUST_TEST_THREADS", "8".into()),
    ]
}

fn doc_tests(name: &str, kind: BuildKind, args: &Args, features: &str) -> Line {
    // A package of a binary alone has no documentation tests, and cargo calls that an error.
    let packages = kind.packages().iter().copied();
    let libraries: Vec<&str> = packages.filter(|package| *package != "xtask").collect();
    let command = cargo::on("test", &libraries, features)
        .arg("--doc")
        .arg("--")
        .args(&args.filters);
    Line::new(name, output(&command, ""))
}

/// Runs test programs one after the other, all of them, whatever fails.
fn execute<'a>(
    programs: impl Iterator<Item = &'a Artifact>,
    args: &Args,
    environment: &[(&str, OsString)],
) -> Outcome {
    programs
        .map(|program| output(&command(program, args, environment), ""))
        .fold(Outcome::default(), Outcome::and)
}

/// [`execute`], two at a time: a driver compiles kernels one after the other, on one core, and that
/// is most of the time.
fn in_pairs(programs: Vec<&Artifact>, args: &Args, environment: &[(&str, OsString)]) -> Outcome {
    let left = Mutex::new(programs.into_iter());
    let next = || {
        left.lock()
            .expect("no thread panics while it takes one")
            .next()
    };
    let worker = || {
        let mut ran = Outcome::default();
        while let Some(program) = next() {
            let prefix = format!("{}: ", program.target);
            ran = ran.and(output(&command(program, args, environment), &prefix));
        }
        ran
    };
    thread::scope(|scope| {
        let other = scope.spawn(worker);
        worker().and(other.join().expect("a program's failure is no panic"))
    })
}

fn command(program: &Artifact, args: &Args, environment: &[(&str, OsString)]) -> Cmd {
    let mut command = Cmd::new(program.executable.to_string_lossy())
        .folder(&program.folder)
        .args(&args.filters);
    if args.large {
        command = command.arg("--include-ignored");
    }
    for (name, value) in environment {
        command = command.env(*name, value);
    }
    command
}

fn output(command: &Cmd, prefix: &str) -> Outcome {
    let start = Instant::now();
    match command.tee(prefix) {
        Ok((text, status)) => Outcome::of_tests(&text, trouble(status)),
        Err(error) => Outcome::of(Err(error)),
    }
    .since(start)
}

fn environment(devices: &str, driver: &Option<Driver>) -> Vec<(&'static str, OsString)> {
    let devices = ("CUBENORM_TEST_DEVICES", devices.into());
    // The suite has many small shapes, and each would be tuned. Tests of the tuner turn it on
    // themselves.
    let tuning = ("CUBENORM_TUNING", "off".into());
    let fixed = [devices, tuning].into_iter();
    fixed.chain(choosing(driver)).collect()
}

pub(crate) fn name(run: &Run) -> String {
    let part = match run.targets {
        Targets::All => "",
        Targets::Kernels | Targets::Again => ", kernels",
        Targets::Burn => ", Burn",
    };
    format!("{run}{part}")
}

/// A run that this machine cannot do.
pub(crate) fn skipped(run: &Run, why: &str) -> Line {
    Line::new(name(run), Outcome::skipped(why)).on(run.device)
}

/// A named device that nothing ran on is an error.
fn have_run(lines: &[Line], devices: &[Device]) -> Result<()> {
    for &device in devices {
        let of_device = |line: &&Line| line.device == Some(device);
        let has_run = lines
            .iter()
            .filter(of_device)
            .any(|line| line.outcome.counts.is_some());
        ensure!(has_run, "{device} was asked for, and nothing ran on it");
    }
    Ok(())
}

/// In CI a runtime that is missing must not look like success. Nor must one that ran kernels, but
/// not Burn's operations on them.
fn must_have_run(lines: &[Line]) -> Result<()> {
    for device in [Device::Wgpu, Device::Cpu] {
        let is_whole = |run: &&Run| run.device == device && run.targets == Targets::All;
        let whole: Vec<String> = RUNS.iter().filter(is_whole).map(name).collect();
        let is_skipped = |line: &&Line| line.outcome.counts.is_none() && whole.contains(&line.name);
        let skipped: Vec<&str> = lines
            .iter()
            .filter(is_skipped)
            .map(|line| line.outcome.note.as_str())
            .collect();
        ensure!(
            skipped.len() < whole.len(),
            "CI is set, and {device} was skipped: {}",
            skipped.join("; ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_device_without_a_run_is_an_error() {
        let [first, .., last] = RUNS else {
            panic!("there are runs");
        };
        let lines = [
            Line::new("it", Outcome::of(Ok(()))).on(first.device),
            skipped(last, "not here"),
        ];
        have_run(&lines, &[]).unwrap();
        have_run(&lines, &[first.device]).unwrap();
        let error = have_run(&lines, &[first.device, last.device]).unwrap_err();
        let expected = format!("{} was asked for, and nothing ran on it", last.device);
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn every_device_of_kernels_is_tuned_on_one_driver() {
        for device in [Device::Cpu, Device::Wgpu, Device::Vulkan] {
            let runs = RUNS.iter().filter(|run| run.device == device);
            let runs = runs.filter(|run| run.driver != suite::DriverKind::System);
            let tuned = runs.filter(|run| run.targets.contain("tuning")).count();
            assert_eq!(tuned, 1, "{device}");
        }
    }

    #[test]
    fn kernels_alone_do_not_count_as_a_runtime() {
        let skipped = |is_there: fn(&Run) -> bool| -> Vec<Line> {
            let absent = RUNS.iter().filter(|run| !is_there(run));
            absent.map(|run| skipped(run, "not here")).collect()
        };
        must_have_run(&skipped(|_| true)).unwrap();
        let only_cpu = |run: &Run| run.device == Device::Cpu;
        let with_kernels = |run: &Run| {
            run.device == Device::Cpu || run.device == Device::Wgpu && run.targets == Targets::Again
        };
        for is_there in [only_cpu, with_kernels] {
            let error = must_have_run(&skipped(is_there)).unwrap_err().to_string();
            assert!(error.contains("wgpu was skipped"), "{error}");
        }
    }
}
