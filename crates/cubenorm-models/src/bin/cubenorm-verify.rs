//! Runs the normalization operators in ONNX and DxDispatch files and compares the results with the
//! expected ones.

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::Parser;
use cubenorm_models::verify::isolate::{serve, supervise};
use cubenorm_models::verify::{CaseResult, Options, Outcome, find_cases};
use cubenorm_models::{FileAccess, run};

/// Runs the normalization operators in ONNX and DxDispatch files and compares the results with the
/// expected ones.
///
/// An ONNX case is a folder with model.onnx and test_data_set_*. A DxDispatch case is NAME.json
/// with NAME.expected.json in the same folder. Below a folder called `invalid` every model must be
/// refused.
///
/// The exit code is 1 if any case failed, or none ran.
#[derive(Debug, Parser)]
#[command(name = "cubenorm-verify", version)]
struct Arguments {
    /// Cases, or folders that contain cases at any depth
    #[arg(required_unless_present = "child", value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Device to run on: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, if it is compiled in
    /// [default: BURN_DEVICE, or the first of them]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Check gradients as well, for each ONNX case with a grads.npz. It has the given `dY` and the
    /// expected `dX`, `dScale` and `dBias`. Tolerances are in the list `gradients` of cases.json;
    /// the defaults are 1e-3 and 1e-6
    #[arg(long)]
    gradients: bool,

    /// Let models read any file. By default, `sourcePath` of DxDispatch and external data of ONNX
    /// must be below the model's folder
    #[arg(long)]
    read_anywhere: bool,

    /// Accept DxDispatch models that write below DIR, in addition to their own folder. Verification
    /// does not write files
    #[arg(long, value_name = "DIR")]
    write_under: Option<PathBuf>,

    /// Write the results to a file as JSON. `-` is the standard output; the text then goes to the
    /// standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Time limit of one case in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,

    /// Show passed cases as well
    #[arg(long, short)]
    verbose: bool,

    /// Run the cases listed on the standard input, as a child process
    #[arg(long, hide = true)]
    child: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.child {
        true => child(&arguments).map(|()| true),
        false => parent(&arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // There is no other place to report a failure of this.
            drop(writeln!(anstream::stderr(), "error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn child(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let executor = device(arguments).and_then(|device| run::open(&device));
    let executor = executor.as_ref().map(AsRef::as_ref);
    let options = options(arguments);
    serve(executor, &options, io::stdin().lock(), io::stdout())?;
    Ok(())
}

fn options(arguments: &Arguments) -> Options {
    let access = FileAccess::new().read_anywhere(arguments.read_anywhere);
    Options {
        gradients: arguments.gradients,
        access: match &arguments.write_under {
            Some(folder) => access.write_under(folder),
            None => access,
        },
        ..Options::default()
    }
}

/// Arguments of a child that runs cases with the same options.
fn child_arguments(arguments: &Arguments, device: &str) -> Vec<OsString> {
    let mut list: Vec<OsString> = ["--child", "--device", device].map(Into::into).to_vec();
    if arguments.gradients {
        list.push("--gradients".into());
    }
    if arguments.read_anywhere {
        list.push("--read-anywhere".into());
    }
    if let Some(folder) = &arguments.write_under {
        list.push("--write-under".into());
        list.push(folder.into());
    }
    list
}

fn parent(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let device = device(arguments)?;
    let program = std::env::current_exe()?;
    let mut command = || {
        let mut command = Command::new(&program);
        command.args(child_arguments(arguments, &device));
        command
    };
    let json_to_stdout = arguments
        .json
        .as_ref()
        .is_some_and(|path| path.as_os_str() == "-");
    let mut text: Box<dyn Write> = match json_to_stdout {
        true => Box::new(anstream::stderr()),
        false => Box::new(anstream::stdout()),
    };
    let mut written = Ok(());
    let mut show = |outcome: &Outcome| {
        if written.is_ok() {
            written = print(&mut text, outcome, arguments.verbose);
        }
    };
    let limit = Duration::from_secs(arguments.timeout.max(1));
    let mut report = supervise(find_cases(&arguments.paths), &mut command, limit, &mut show)?;
    written?;
    if report.device.is_empty() {
        report.device = device;
    }
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report.to_json())?;
        match json_to_stdout {
            true => writeln!(io::stdout(), "{json}")?,
            false => std::fs::write(path, json + "\n")?,
        }
    }
    writeln!(text, "{report}")?;
    Ok(report.is_success())
}

fn device(arguments: &Arguments) -> Result<String, run::OpenError> {
    match &arguments.device {
        Some(device) => Ok(device.to_lowercase()),
        None => run::default_device(),
    }
}

/// Prints a line for each case that failed, was skipped or was refused.
fn print(text: &mut dyn Write, outcome: &Outcome, verbose: bool) -> io::Result<()> {
    let colour = match outcome.result {
        CaseResult::Passed(None) if !verbose => return Ok(()),
        CaseResult::Passed(_) => AnsiColor::Green,
        CaseResult::Failed(_) => AnsiColor::Red,
        CaseResult::Skipped(_) => AnsiColor::Yellow,
    };
    let line = outcome.to_string();
    let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
    let style = Style::new().fg_color(Some(colour.into()));
    writeln!(text, "{style}{word}{style:#} {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_get_all_options() {
        let given = [
            "cubenorm-verify",
            "cases",
            "--gradients",
            "--read-anywhere",
            "--write-under",
            "results",
        ];
        let parent = Arguments::parse_from(given);
        let list = child_arguments(&parent, "cpu");
        let name = OsString::from(given[0]);
        let child = Arguments::parse_from([name].into_iter().chain(list));
        assert!(child.child);
        assert_eq!(child.device.as_deref(), Some("cpu"));
        assert_eq!(options(&child), options(&parent));
        assert!(options(&child).access.reads_anywhere());
    }
}
