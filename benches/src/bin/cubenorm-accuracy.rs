//! A worker of `cargo xtask accuracy`. SUITE is `quick` or `full`.
//!
//! - `cubenorm-accuracy measure SUITE PROVIDER FIRST` prints a row of JSON for each case from
//!   number FIRST on. It runs on the device that `BURN_DEVICE` names.
//! - `cubenorm-accuracy export SUITE FOLDER` writes the inputs for providers outside Rust.
//! - `cubenorm-accuracy judge SUITE FOLDER NAME` prints the rows of such a provider's results. The
//!   first line is the list of all cases.
//!
//! See `cubenorm_bench::accuracy`.

use std::{
    env,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::{Result, bail};
use burn::tensor::Device;
use cubenorm_bench::accuracy::{
    Row,
    cases::Suite,
    exchange::{export, judge},
    providers::Provider,
};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["measure", suite, provider, first] => {
            measure(suite.parse()?, provider.parse()?, first.parse()?)
        }
        ["export", suite, folder] => export(suite.parse()?, Path::new(folder)),
        ["judge", suite, folder, provider] => {
            let suite: Suite = suite.parse()?;
            print(&suite.cases())?;
            judge(suite, Path::new(folder), provider).try_for_each(|row| print(&row))
        }
        _ => bail!(
            "usage: cubenorm-accuracy measure SUITE PROVIDER FIRST | export SUITE FOLDER | judge SUITE FOLDER NAME"
        ),
    }
}

fn measure(suite: Suite, provider: Provider, first: usize) -> Result<()> {
    let cases = suite.cases();
    print(&cases)?;
    let device = Device::default();
    for case in cases.into_iter().skip(first) {
        let verdict = provider.judge(&case, &device);
        print(&Row { case, verdict })?;
    }
    Ok(())
}

/// A line at once: the next case may end the process.
fn print(value: &impl serde::Serialize) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(out.flush()?)
}
