//! `cargo xtask test`: the whole suite on every runtime this machine has.

mod output;
mod suite;

use std::{env, ffi::OsString};

use anyhow::{Result, bail, ensure};
use comfy_table::{Table, presets};

use self::{
    output::Counts,
    suite::{BuildKind, DriverKind, RUNS, Run, SUITE, Targets},
};
use crate::{
    cargo::{self, Artifact, Build},
    device::{Device, features},
    exec::{Cmd, ending},
    llvm::{self, Llvm},
    vulkan::{self, Driver},
};

/// Run all tests on every runtime that this machine has.
///
/// Unit tests run once; the suite runs once per runtime and, for wgpu and vulkan, once per
/// software driver found (Mesa's lavapipe, Chromium's SwiftShader) besides the system's GPU.
/// Ends with a table of what ran and why the rest did not.
#[derive(clap::Args)]
pub struct Args {
    /// Runtimes to test on [default: all that this machine has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<Device>,
    /// Also run the tests that take long or much memory
    #[arg(long)]
    large: bool,
    /// Only tests whose name contains one of these
    filters: Vec<String>,
}

impl Args {
    /// Everything, as `ci` wants it.
    pub fn all() -> Self {
        Self {
            device: Vec::new(),
            large: false,
            filters: Vec::new(),
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let plan = Plan::new(args)?;
    let mut lines = vec![host(args)];
    lines.extend(
        plan.skipped
            .iter()
            .map(|(run, why)| Line::skipped(run, why)),
    );
    for kind in [BuildKind::Burn, BuildKind::Spirv] {
        lines.extend(plan.run(args, kind));
    }
    report(&lines, args)
}

/// What will run, and what will not and why.
struct Plan {
    runs: Vec<(&'static Run, Option<Driver>)>,
    skipped: Vec<(&'static Run, String)>,
    /// Whether the builds may contain `cpu`.
    llvm: bool,
}

impl Plan {
    fn new(args: &Args) -> Result<Self> {
        let asked = |device| args.device.is_empty() || args.device.contains(&device);
        let machine = Machine {
            llvm: llvm::find()?,
            software: vulkan::software_drivers(),
        };
        let mut plan = Self {
            runs: Vec::new(),
            skipped: Vec::new(),
            // LLVM is large: it is fetched for the device that needs it, and used where it is.
            llvm: match machine.llvm {
                Llvm::Installed => true,
                Llvm::Downloadable => asked(Device::Cpu),
                Llvm::Missing => false,
            },
        };
        for run in RUNS.iter().filter(|run| asked(run.device)) {
            match machine.can(run) {
                Ok(driver) => plan.runs.push((run, driver)),
                Err(why) => plan.skipped.push((run, why)),
            }
        }
        Ok(plan)
    }

    /// Builds once, then runs the suite on each device of this build.
    fn run(&self, args: &Args, kind: BuildKind) -> Vec<Line> {
        let runs: Vec<_> = self
            .runs
            .iter()
            .filter(|(run, _)| run.build == kind)
            .collect();
        if runs.is_empty() {
            return Vec::new();
        }
        let mut devices: Vec<Device> = Vec::new();
        for (run, _) in &runs {
            if !devices.contains(&run.device) {
                devices.push(run.device);
            }
        }
        let runtimes = features(&devices, self.llvm);
        let features = match kind {
            BuildKind::Burn => format!("burn,{runtimes}"),
            _ => runtimes,
        };
        let build = match Build::tests(kind.packages(), &features) {
            Ok(build) => build,
            Err(error) => return vec![Line::failed(format!("build {features}"), error)],
        };
        let mut lines = Vec::new();
        if kind == BuildKind::Burn {
            let units = build
                .test_programs()
                .filter(|program| program.package != SUITE);
            lines.push(Line::ran("unit tests", execute(units, args, &[])));
            lines.push(doc_tests(args, &features));
        }
        for (run, driver) in runs {
            let suite = build
                .test_programs()
                .filter(|program| program.package == SUITE);
            let taken = suite.filter(|program| run.targets.contain(&program.target));
            lines.push(Line::ran(
                name(run),
                execute(taken, args, &environment(run, driver)),
            ));
        }
        lines
    }
}

/// What this machine has.
struct Machine {
    llvm: Llvm,
    software: Vec<Driver>,
}

impl Machine {
    /// The driver to run with, or why the run is skipped.
    fn can(&self, run: &Run) -> Result<Option<Driver>, String> {
        if run.device == Device::Cpu && self.llvm == Llvm::Missing {
            return Err("no LLVM, and its download is out of reach".to_owned());
        }
        match run.driver {
            DriverKind::Software(name) => {
                let driver = self.software.iter().find(|driver| driver.name() == name);
                driver
                    .cloned()
                    .map(Some)
                    .ok_or_else(|| format!("{name} is not installed"))
            }
            DriverKind::System if cfg!(target_os = "linux") && !vulkan::has_gpu() => {
                Err("no GPU with a Vulkan driver".to_owned())
            }
            _ => run.device.missing().map_or(Ok(None), Err),
        }
    }
}

/// Tests that need no device, and no build of Burn: the quickest to fail.
fn host(args: &Args) -> Line {
    let name = "host tests";
    match Build::tests(BuildKind::Host.packages(), "") {
        Ok(build) => Line::ran(name, execute(build.test_programs(), args, &[])),
        Err(error) => Line::failed(name.to_owned(), error),
    }
}

fn doc_tests(args: &Args, features: &str) -> Line {
    let command = cargo::on("test", BuildKind::Burn.packages(), features)
        .arg("--doc")
        .arg("--")
        .args(&args.filters);
    Line::ran("doc tests", output(&command))
}

/// Runs test programs one after the other, all of them, whatever fails.
fn execute<'a>(
    programs: impl Iterator<Item = &'a Artifact>,
    args: &Args,
    environment: &[(&str, OsString)],
) -> Ran {
    programs
        .map(|program| {
            let mut command = Cmd::new(program.executable.to_string_lossy())
                .folder(&program.folder)
                .args(&args.filters);
            if args.large {
                command = command.arg("--include-ignored");
            }
            for (name, value) in environment {
                command = command.env(*name, value);
            }
            output(&command)
        })
        .fold(Ran::default(), Ran::and)
}

fn output(command: &Cmd) -> Ran {
    let (text, status) = match command.tee() {
        Ok(ended) => ended,
        Err(error) => {
            return Ran {
                counts: Counts::crash(),
                note: format!("{error:#}"),
            };
        }
    };
    let counts = Counts::of(&text);
    if status.success() || counts.failed > 0 {
        return Ran {
            counts,
            note: String::new(),
        };
    }
    // It died before it could say how many failed: one at least.
    Ran {
        counts: counts + Counts::crash(),
        note: ending(status),
    }
}

/// The counts of some programs, and how the first of them died that did.
#[derive(Default)]
struct Ran {
    counts: Counts,
    note: String,
}

impl Ran {
    fn and(self, other: Self) -> Self {
        let note = if self.note.is_empty() {
            other.note
        } else {
            self.note
        };
        Self {
            counts: self.counts + other.counts,
            note,
        }
    }
}

fn environment(run: &Run, driver: &Option<Driver>) -> Vec<(&'static str, OsString)> {
    let mut environment = vec![("CUBENORM_TEST_DEVICES", run.device.name().into())];
    if let Some(driver) = driver {
        environment.push(("VK_DRIVER_FILES", driver.manifest.clone().into()));
    }
    environment
}

fn name(run: &Run) -> String {
    let language = match run.device {
        Device::Wgpu if cfg!(target_os = "macos") => "",
        Device::Wgpu => " (WGSL)",
        Device::Vulkan => " (SPIR-V)",
        _ => "",
    };
    let driver = match run.driver {
        DriverKind::None => "",
        DriverKind::System => ", system",
        DriverKind::Software(name) => &format!(", {name}"),
    };
    let part = match run.targets {
        Targets::All => "",
        Targets::Kernels => ", kernels",
        Targets::Burn => ", Burn",
    };
    format!("{}{language}{driver}{part}", run.device)
}

/// A line of the summary.
struct Line {
    name: String,
    counts: Counts,
    skipped: bool,
    note: String,
    device: Option<Device>,
}

impl Line {
    fn ran(name: impl Into<String>, ran: Ran) -> Self {
        let Ran { counts, note } = ran;
        Self {
            name: name.into(),
            counts,
            skipped: false,
            note,
            device: None,
        }
    }

    fn failed(name: String, error: anyhow::Error) -> Self {
        let note = format!("{error:#}");
        Self {
            name,
            counts: Counts::crash(),
            skipped: false,
            note,
            device: None,
        }
    }

    fn skipped(run: &Run, why: &str) -> Self {
        Self {
            name: name(run),
            counts: Counts::default(),
            skipped: true,
            note: why.to_owned(),
            device: Some(run.device),
        }
    }
}

fn report(lines: &[Line], args: &Args) -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["run", "passed", "failed", "ignored", "note"]);
    for line in lines {
        let Counts {
            passed,
            failed,
            ignored,
        } = line.counts;
        let number = |n: usize| {
            if line.skipped {
                "-".to_owned()
            } else {
                n.to_string()
            }
        };
        let note = if line.skipped {
            format!("skipped: {}", line.note)
        } else {
            line.note.clone()
        };
        table.add_row([
            line.name.clone(),
            number(passed),
            number(failed),
            number(ignored),
            note,
        ]);
    }
    println!("\n{table}");
    let total: Counts = lines.iter().map(|line| line.counts).sum();
    let Counts {
        passed,
        failed,
        ignored,
    } = total;
    // Nothing more on this line: programs read it.
    println!("{passed} passed, {failed} failed, {ignored} skipped");

    ensure!(failed == 0, "{failed} tests failed");
    ensure!(total.ran() > 0, "no test ran");
    if env::var_os("CI").is_some() && args.device.is_empty() {
        must_have_run(lines)?;
    }
    Ok(())
}

/// On a build server a runtime that vanished must not look like success.
fn must_have_run(lines: &[Line]) -> Result<()> {
    for device in [Device::Wgpu, Device::Cpu] {
        let skipped = |line: &&Line| line.skipped && line.device == Some(device);
        let runs = RUNS.iter().filter(|run| run.device == device).count();
        if lines.iter().filter(skipped).count() == runs {
            let skipped: Vec<_> = lines
                .iter()
                .filter(skipped)
                .map(|l| l.note.as_str())
                .collect();
            bail!(
                "CI is set, and {device} was skipped: {}",
                skipped.join("; ")
            );
        }
    }
    Ok(())
}
