//! `cargo xtask verify`: operators in files against what they should give, on one device.

pub(crate) mod everywhere;

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};

use super::test::{plan::choosing, suite::BuildKind};
use crate::{
    cargo::Build,
    device::{Device, features},
    exec::{Cmd, ending},
    setup,
    vulkan::{self, Driver},
};

/// The program that does it, of the package `cubenorm-models`.
const PROGRAM: &str = "cubenorm-verify";

/// Run ONNX node tests and DxDispatch models, and compare what they give with what they should.
///
/// An ONNX case is a folder with model.onnx and test_data_set_*; its tolerances are those of
/// cases.json in the folder above. A DxDispatch case is NAME.json with NAME.expected.json beside it.
/// Under a folder called `invalid` every model must be refused. Folders are walked.
///
/// Prints a line for each case that did not pass, and last `N passed, N failed, N skipped`. The exit
/// code is 1 if any case failed, or none ran.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cases, or folders with cases anywhere below
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The device to run on [default: the best this machine has]
    #[arg(long, value_name = "NAME")]
    device: Option<Device>,
    /// The Vulkan driver to run on, such as lavapipe [default: the one the system prefers]
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// Write how each case went to FILE, as JSON; without FILE, or with `-`, to the standard output,
    /// and the lines then go to the standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// The seconds that one case may take [default: 60]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Check gradients, too, of each ONNX case with a grads.npz: `dY` is given, `dX`, `dScale` and
    /// `dBias` are expected
    #[arg(long)]
    gradients: bool,
    /// Let models read any file, not only files below their own folder
    #[arg(long)]
    read_anywhere: bool,
    /// Take DxDispatch models that write below DIR, as well as below their own folder. No file is
    /// written here
    #[arg(long, value_name = "DIR")]
    write_under: Option<PathBuf>,
    /// Show the cases that passed, too
    #[arg(long, short)]
    verbose: bool,
}

/// Returns the exit code of the program that runs the cases.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (paths, json) = told_apart(&args.paths, args.json.as_deref());
    if paths.is_empty() {
        bail!("which cases? Name files or folders, such as ../shared/onnx");
    }
    let driver = args.driver.as_deref().map(find_driver).transpose()?;
    let device = match (&driver, args.device) {
        (None, asked) => setup::device(asked, false)?,
        // Naming a driver is asking for a device that has drivers.
        (Some(_), None) => Device::Wgpu,
        (Some(_), Some(device @ (Device::Wgpu | Device::Vulkan))) => device,
        (Some(_), Some(device)) => bail!("{device} has no Vulkan driver to choose"),
    };
    let runtimes = features(&[device], setup::with_llvm(device)?);
    let build = match device {
        Device::Vulkan => Build::binaries(BuildKind::Spirv.packages(), &runtimes)?,
        _ => Build::burn_facing(&runtimes)?,
    };

    let flags = [
        (args.gradients, "--gradients"),
        (args.read_anywhere, "--read-anywhere"),
        (args.verbose, "--verbose"),
    ];
    let seconds = args.timeout.map(|seconds| seconds.to_string());
    let options: [(&str, Option<OsString>); 3] = [
        ("--json", json.map(Into::into)),
        ("--timeout", seconds.map(Into::into)),
        ("--write-under", args.write_under.as_ref().map(Into::into)),
    ];
    let mut command = Cmd::new(build.program(PROGRAM)?.to_string_lossy())
        // The paths are seen from where the user is.
        .folder(&env::current_dir().context("no current folder")?)
        .args(["--device", device.name()])
        .args(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| *flag));
    for (name, value) in options {
        if let Some(value) = value {
            command = command.arg(name).arg(value);
        }
    }
    if let Some((name, value)) = choosing(&driver) {
        command = command.env(name, value);
    }
    let status = command.arg("--").args(paths).status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    match code {
        Some(code) => Ok(ExitCode::from(code)),
        None => bail!("`{PROGRAM}` failed: {}", ending(status)),
    }
}

/// The paths, and where the JSON goes: in `--json PATH` it is left open which of them is meant.
fn told_apart<'a>(
    paths: &'a [PathBuf],
    json: Option<&'a Path>,
) -> (Vec<&'a Path>, Option<&'a Path>) {
    let mut paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    match json {
        Some(path) if path != Path::new("-") && (paths.is_empty() || is_case(path)) => {
            paths.insert(0, path);
            (paths, Some(Path::new("-")))
        }
        json => (paths, json),
    }
}

/// Whether a path is a case or a folder, neither of which a report may overwrite.
fn is_case(path: &Path) -> bool {
    path.is_dir()
        || path.with_extension("expected.json").exists()
        || path.extension().is_some_and(|e| e == "onnx" || e == "pb")
}

fn find_driver(name: &str) -> Result<Driver> {
    let mut drivers = vulkan::drivers();
    drivers.extend(vulkan::software_drivers());
    let found = drivers.iter().find(|driver| driver.name() == name);
    found.cloned().with_context(|| {
        let mut names: Vec<&str> = drivers.iter().map(Driver::name).collect();
        names.sort_unstable();
        names.dedup();
        let names = names.join(", ");
        format!("no Vulkan driver is called `{name}`; there are {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart<'a>(paths: &'a [PathBuf], json: &'a str) -> (Vec<&'a Path>, Option<&'a Path>) {
        told_apart(paths, Some(Path::new(json)))
    }

    #[test]
    fn json_without_a_file_is_the_standard_output() {
        let paths = [PathBuf::from("cases")];
        let output = Some(Path::new("-"));
        assert_eq!(apart(&paths, "-"), (vec![Path::new("cases")], output));
        assert_eq!(
            apart(&paths, "report.json"),
            (vec![Path::new("cases")], Some(Path::new("report.json")))
        );
        // `--json cases`: a folder cannot be written to, and without it nothing would run.
        assert_eq!(apart(&[], "cases"), (vec![Path::new("cases")], output));
        assert_eq!(
            apart(&paths, "."),
            (vec![Path::new("."), Path::new("cases")], output)
        );
        assert_eq!(told_apart(&paths, None), (vec![Path::new("cases")], None));
    }

    #[test]
    fn an_unknown_driver_is_told_with_the_known_ones() {
        let error = find_driver("abacus").unwrap_err().to_string();
        assert!(error.starts_with("no Vulkan driver is called `abacus`"));
    }
}
