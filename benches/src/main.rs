//! A worker of `cargo xtask bench`.
//!
//! `cubenorm-bench list SUITE` prints the problems of a suite; `cubenorm-bench work CONTENDER`
//! reads requests from standard input and answers on standard output, on the device that
//! `BURN_DEVICE` names. See `cubenorm_bench::protocol`.

use std::{
    env,
    io::{self, BufRead, Write},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use burn::tensor::Device;
use cubenorm_bench::{
    Prepared, Suite,
    contenders::Contender,
    prepare,
    protocol::{Reply, Request},
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
        ["list", suite] => {
            println!(
                "{}",
                serde_json::to_string(&suite.parse::<Suite>()?.problems())?
            );
            Ok(())
        }
        ["work", contender] => work(contender.parse()?),
        _ => bail!("usage: cubenorm-bench list SUITE | cubenorm-bench work CONTENDER"),
    }
}

/// Answers requests until standard input ends.
fn work(contender: Contender) -> Result<()> {
    let device = Device::default();
    let mut prepared = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let request = serde_json::from_str(&line).with_context(|| format!("no request: {line}"))?;
        let reply = answer(request, contender, &device, &mut prepared)
            .unwrap_or_else(|error| Reply::Failed(format!("{error:#}")));
        let mut out = io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&reply)?)?;
        out.flush()?;
    }
    Ok(())
}

fn answer(
    request: Request,
    contender: Contender,
    device: &Device,
    prepared: &mut Option<Prepared>,
) -> Result<Reply> {
    match request {
        Request::Prepare(problem) => {
            // What was set up before makes room first.
            *prepared = None;
            *prepared = Some(prepare(contender, &problem, device)?);
            Ok(Reply::Ready)
        }
        Request::Round => {
            let prepared = prepared.as_mut().context("no problem is set up")?;
            let times = prepared.round()?;
            Ok(Reply::Round(
                times.iter().map(|time| 1e3 * time.as_secs_f64()).collect(),
            ))
        }
    }
}
