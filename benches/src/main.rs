//! A worker of `cargo xtask bench`.
//!
//! - `cubenorm-bench work PROVIDER` reads requests from standard input and answers on standard
//!   output. It runs on the device that `BURN_DEVICE` names. See `cubenorm_problems::protocol`.
//! - `cubenorm-bench tune` and `explain` read a problem a line and answer with the functions of
//!   `cubenorm_bench::tune`.
//! - `tune BUNDLE` starts from nothing and writes all that it tuned and compiled to a bundle of
//!   CubeCL's.
//! - `explain LOG` has the runtime write the sources that it compiles to a file.
//! - `cubenorm-bench export FOLDER PROBLEM` and `judge FOLDER PROBLEM` are for providers outside
//!   Rust. See `cubenorm_bench::exchange`.
//! - `cubenorm-bench accuracy` works for `cargo xtask accuracy`. `cases SUITE` lists the cases of
//!   `quick` or `full`. `measure PROVIDER` reads a case a line and answers with its verdict.
//!   `export SUITE FOLDER` and `judge FOLDER PROVIDER` are for providers outside Rust.

use std::{
    env,
    io::{self, BufRead, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use burn::tensor::Device;
use cubenorm_bench::{
    Prepared, Problem, Provider,
    accuracy::{self, cases::Suite},
    exchange, prepare,
    protocol::{About, Reply, Request, Samples},
    providers::lacks,
    tune,
};
use env_logger::Env;
use serde::{Serialize, de::DeserializeOwned};

fn main() -> ExitCode {
    // A cache that cannot be read is a warning.
    env_logger::Builder::from_env(Env::default().default_filter_or("cubecl=warn")).init();
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
        ["work", provider] => work(provider.parse()?),
        ["tune"] => each(|problem| tune::tune(problem, &Device::default())),
        ["tune", bundle] => tune::bundled(Path::new(bundle), || {
            each(|problem| tune::tune(problem, &Device::default()))
        }),
        ["explain", log] => {
            tune::log_sources(Path::new(log));
            each(|problem| tune::explain(problem, &Device::default()))
        }
        ["export", folder, problem] => {
            exchange::export(&serde_json::from_str(problem)?, Path::new(folder))
        }
        ["judge", folder, problem] => {
            exchange::judge(&serde_json::from_str(problem)?, Path::new(folder))
        }
        ["accuracy", "cases", suite] => print(&suite.parse::<Suite>()?.cases()),
        ["accuracy", "measure", provider] => {
            let provider = provider.parse()?;
            install(provider)?;
            let judge = |case: &_| accuracy::providers::judge(provider, case, &Device::default());
            each(|case| Ok(judge(case)))
        }
        ["accuracy", "export", suite, folder] => {
            accuracy::exchange::export(suite.parse()?, Path::new(folder))
        }
        ["accuracy", "judge", folder, provider] => {
            each(|case| Ok(accuracy::exchange::judge(case, Path::new(folder), provider)))
        }
        _ => {
            bail!(
                "usage: cubenorm-bench work PROVIDER | tune [BUNDLE] | explain LOG \
                 | export FOLDER PROBLEM | judge FOLDER PROBLEM \
                 | accuracy cases SUITE | accuracy measure PROVIDER \
                 | accuracy export SUITE FOLDER | accuracy judge FOLDER PROVIDER"
            )
        }
    }
}

/// A line of JSON for each question on standard input: its result, or why there is none.
fn each<Q: DeserializeOwned, T: Serialize>(what: impl Fn(&Q) -> Result<T>) -> Result<()> {
    for line in io::stdin().lock().lines() {
        // A line that is no question fails alone.
        let question = serde_json::from_str::<Q>(&line?).context("no question");
        let result = question.and_then(|question| what(&question));
        print(&result.map_err(|error| format!("{error:#}")))?;
    }
    Ok(())
}

/// A line at once: the next question may end the process.
fn print(value: &impl Serialize) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(out.flush()?)
}

/// Answers requests until standard input ends.
fn work(provider: Provider) -> Result<()> {
    install(provider)?;
    let device = Device::default();
    let mut prepared = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let request = serde_json::from_str(&line).with_context(|| format!("no request: {line}"));
        let reply = request
            .and_then(|request| answer(request, provider, &device, &mut prepared))
            .unwrap_or_else(|error| Reply::Failed(format!("{error:#}")));
        print(&reply)?;
    }
    Ok(())
}

/// Installs this project, if the provider is one that needs it.
fn install(provider: Provider) -> Result<()> {
    if provider == Provider::Installed {
        cubenorm::install()?;
    }
    Ok(())
}

fn answer(
    request: Request,
    provider: Provider,
    device: &Device,
    prepared: &mut Option<Prepared>,
) -> Result<Reply> {
    match request {
        Request::Prepare(problem) => {
            // The previous problem frees its memory first.
            *prepared = None;
            if let Some(why) = lacks(provider, &problem) {
                return Ok(Reply::Unsupported(why.to_owned()));
            }
            let before = cubenorm::install_report().norms();
            *prepared = Some(prepare(provider, &problem, device)?);
            if provider == Provider::Installed && cubenorm::install_report().norms() == before {
                let report = cubenorm::install_report();
                return Ok(Reply::Unsupported(format!("no norm was matched: {report}")));
            }
            Ok(Reply::Ready(about(provider, &problem, device)))
        }
        Request::Round => {
            let prepared = prepared.as_mut().context("no problem is set up")?;
            let round = prepared.round()?;
            Ok(Reply::Round(Samples {
                wall: milliseconds(&round.wall),
                device: milliseconds(&round.device),
                ..Samples::default()
            }))
        }
        Request::Replay => {
            let prepared = prepared.as_mut().context("no problem is set up")?;
            Ok(Reply::Round(Samples {
                replay: milliseconds(&prepared.replay()?),
                ..Samples::default()
            }))
        }
    }
}

fn milliseconds(times: &[Duration]) -> Vec<f64> {
    times.iter().map(|time| 1e3 * time.as_secs_f64()).collect()
}

fn about(provider: Provider, problem: &Problem, device: &Device) -> About {
    // A runtime without kernels has no plan to tell.
    let has_plan = provider == Provider::Cubenorm;
    let plan = has_plan.then(|| tune::running(problem, device).ok());
    About {
        runtime: tune::runtime(device),
        plan: plan.flatten(),
        bytes: Some(problem.bytes()),
    }
}
