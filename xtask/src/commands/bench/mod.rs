//! `cargo xtask bench`: providers interleaved in one run.

mod load;
mod measure;
pub(crate) mod origin;
mod provider;
mod recorded;
pub(crate) mod results;
pub(crate) mod stats;
mod table;
mod worker;

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cubenorm_problems::{Provider, Suite};
use indicatif::{ProgressBar, ProgressStyle};

use self::{measure::measure, provider::Field, results::Record};
use super::selection::{Selected, Selection, word};
use crate::{device::Device, exec::workspace, style};

/// Default file of the rows.
const ROWS: &str = "target/bench/rows.csv";

/// Measure the norms against Burn's own, PyTorch, ONNX Runtime and a device copy of the same bytes.
///
/// Every provider runs in its own process, is compared with a host reference and warmed up. Then
/// all take turns, round by round. On `cpu` and lavapipe only the ratios mean something for other
/// machines.
///
/// Wall time is a caller's: from the first of several calls until the device is idle. Device time
/// is the kernels' alone, by the device's own clock, in samples of their own, if the runtime has
/// such a clock. Ratios use wall time, except for means on a GPU. Two rounds tell a mean. A worst
/// shape takes five rounds or more.
///
/// A ratio against a baseline is its time divided by cubenorm's. Against a copy it is the share of the
/// copy's bandwidth.
///
/// The rows are in target/bench/rows.csv, which is written after each problem. --record appends
/// them to benches/data/results.csv, and --report generates docs/BENCHMARKS.md from that. Rows of
/// another machine are recorded here with --record rows.csv.
///
/// PyTorch and ONNX Runtime compute on the CPU, with a thread for each core. They are the Python
/// packages of target/python, or of the system's Python, or are installed into target/python.
/// PyTorch computes on the GPU if the device is `cuda`; its device time is then between two events.
/// ONNX Runtime has no backward pass. A result that a baseline does not have is named below the
/// table, and is no failure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A few shapes, minutes on a CPU: the suite `quick`
    #[arg(long, conflicts_with = "suite")]
    quick: bool,
    /// Baselines to measure besides the copy. burn: its own layers. installed: the same, after
    /// cubenorm::install. torch.compile, liger, quack: on
    /// `cuda`. elementwise: one operation of Burn's, the host's cost of a call, with the suite
    /// `tiny`. probe: CubeCL's own measure of a copy
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "burn", value_parser = word::<Provider>())]
    against: Vec<Provider>,
    /// Write all rows to FILE as a JSON array
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the rows to FILE as CSV [default: target/bench/rows.csv]
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// Number of rounds. Every provider is measured in each
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
    /// Append the rows of this run to benches/data/results.csv; with FILE, append its rows and
    /// measure nothing
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    record: Option<Option<PathBuf>>,
    /// Commit that --program was built from, for --record [default: this clone's]
    #[arg(long, value_name = "HASH", requires = "program")]
    commit: Option<String>,
    /// Generate docs/BENCHMARKS.md and its picture from the recorded rows, and measure nothing
    #[arg(long, conflicts_with = "record")]
    report: bool,
    /// Fail if what --report generates is stale, and write nothing
    #[arg(long, requires = "report")]
    check: bool,
}

impl Args {
    /// True if nothing is measured.
    fn is_about_records(&self) -> bool {
        self.report || matches!(self.record, Some(Some(_)))
    }
}

/// Fails if the documents that are generated from recorded rows are stale.
pub(crate) fn check_report() -> Result<()> {
    recorded::check()
}

/// Records the rows of a file, or generates the documents. Measures nothing.
fn records(args: &Args) -> Result<()> {
    match &args.record {
        Some(Some(file)) => record(results::read_file(file)?),
        _ if args.check => recorded::check(),
        _ => recorded::write(),
    }
}

/// Appends rows to the table and brings the documents up to date.
fn record(rows: Vec<Record>) -> Result<()> {
    let (count, run) = results::append(rows)?;
    println!("recorded: {count} rows of run {run} in {}", results::FILE);
    recorded::write()
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.is_about_records() {
        return records(args);
    }
    ensure!(args.rounds > 0, "--rounds is 0: expected 1 or more");
    let files = Rows::at(args.csv.clone(), args.json.clone())?;
    let run = origin::of_run(args.commit.as_deref())?;
    if args.record.is_some() {
        // An error after hours is too late.
        results::read()?;
        ensure!(
            run.commit != origin::UNKNOWN,
            "a recorded row names its commit, and this is no clone: name it with --commit"
        );
    }
    let Selected {
        devices,
        program,
        problems,
    } = args.selection.resolve(args.quick.then_some(Suite::Quick))?;
    let field = Field::new(&program, provider::with(&args.against))?;

    if let Some(share) = load::disturbance() {
        let warning = style::warning("warning:");
        let percent = (100.0 * share).round();
        anstream::eprintln!(
            "{warning} other programs use {percent} % of the processor; even the ratios will be off"
        );
    }

    let bar = progress((devices.len() * problems.len() * (1 + args.rounds)) as u64);
    let mut records: Vec<Record> = Vec::new();
    for &device in &devices {
        let origin = origin::on(device, &run);
        let start = records.len();
        for (place, problem) in problems.iter().enumerate() {
            let rows = measure(&field, device, problem, args.rounds, &origin, &bar)?;
            records.extend(rows);
            files.write(&records)?;
            // A pipe shows nothing for minutes otherwise.
            if bar.is_hidden() {
                eprintln!("{}/{} {problem} on {device}", place + 1, problems.len());
            }
        }
        bar.suspend(|| print(device, &records[start..]));
    }
    bar.finish_and_clear();
    anstream::println!("\n{}", style::heading("summary: mean (worst)"));
    println!("{}", recorded::summary(&records));
    for path in [&files.csv].into_iter().chain(&files.json) {
        let shown = path.strip_prefix(workspace()).unwrap_or(path);
        println!("written: {}", shown.display());
    }
    let checked = check(&records);
    if args.record.is_some() {
        record(records)?;
    }
    checked
}

/// Files for the rows of a run. They are written again after each problem, so an interrupted run
/// keeps its rows.
struct Rows {
    csv: PathBuf,
    json: Option<PathBuf>,
}

impl Rows {
    /// Checks that they can be written, before hours of measuring.
    fn at(csv: Option<PathBuf>, json: Option<PathBuf>) -> Result<Self> {
        let csv = csv.unwrap_or_else(|| workspace().join(ROWS));
        if let Some(folder) = csv.parent() {
            fs::create_dir_all(folder).with_context(|| format!("{} not made", folder.display()))?;
        }
        for path in [&csv].into_iter().chain(&json) {
            let mut options = OpenOptions::new();
            let opened = options.create(true).append(true).open(path);
            opened.with_context(|| format!("{} cannot be written", path.display()))?;
        }
        Ok(Self { csv, json })
    }

    fn write(&self, records: &[Record]) -> Result<()> {
        write(&self.csv, &results::text(records, true)?)?;
        match &self.json {
            Some(path) => write(path, &results::json(records)?),
            None => Ok(()),
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{} not written", path.display()))
}

/// Fails if cubenorm has no time. A baseline without one is no failure.
fn check(records: &[Record]) -> Result<()> {
    let ours = || records.iter().filter(|record| recorded::is_ours(record));
    let lost = ours().filter(|record| record.median_ms.is_none()).count();
    ensure!(
        lost == 0,
        "cubenorm has no time for {lost} of {} problems",
        ours().count()
    );
    Ok(())
}

fn print(device: Device, records: &[Record]) {
    anstream::println!("\n{}", style::heading(device));
    println!("{}", table::rows(records));
    for (provider, problems, why) in table::lost(records) {
        let line = format!("{provider}, {problems}: {why}");
        match why.starts_with(worker::NO_RESULT) {
            true => anstream::println!("{}", style::warning(line)),
            false => anstream::println!("{}", style::bad(line)),
        }
    }
}

/// Hides itself if standard error is no terminal.
pub(crate) fn progress(steps: u64) -> ProgressBar {
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

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn burn_is_the_default_baseline() {
        let against = |arguments: &[&str]| {
            let cli = Cli::try_parse_from(["bench"].iter().chain(arguments));
            cli.map(|cli| cli.args.against)
        };
        assert_eq!(against(&[]).unwrap(), [Provider::Burn]);
        let named = against(&["--against", "torch.compile,onnxruntime"]);
        assert_eq!(
            named.unwrap(),
            [Provider::TorchCompile, Provider::Onnxruntime]
        );
        assert!(against(&["--against", "jax"]).is_err());
    }

    #[test]
    fn record_and_report_need_no_run() {
        let parsed = |arguments: &[&str]| {
            let cli = Cli::try_parse_from(["bench"].iter().chain(arguments));
            cli.map(|cli| cli.args)
        };
        let run = parsed(&["--record", "--quick"]).unwrap();
        assert!(run.record == Some(None) && !run.is_about_records());
        let file = parsed(&["--record", "rows.csv"]).unwrap();
        assert!(file.record == Some(Some("rows.csv".into())) && file.is_about_records());
        assert!(parsed(&["--report", "--check"]).unwrap().is_about_records());
        assert!(parsed(&["--check"]).is_err() && parsed(&["--report", "--record"]).is_err());
    }

    #[test]
    fn a_run_fails_only_if_ours_has_no_time() {
        let rows = ["cubenorm", "burn"].map(|it| format!("{it} rms_norm 4x8 f32 forward 1 "));
        let rows = rows.each_ref().map(String::as_str);
        let mut all = results::tests::recorded("m", "cpu", "", &rows);
        all[1].median_ms = None;
        check(&all).unwrap();
        all[0].median_ms = None;
        let error = check(&all).unwrap_err().to_string();
        assert_eq!(error, "cubenorm has no time for 1 of 1 problems");
    }
}
