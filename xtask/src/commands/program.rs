//! A program of the workspace that knows Burn, built and asked by verbs that must not know it.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;

use super::selection::Problem;
use crate::{
    cargo::Build,
    device::{Device, features},
    exec::Cmd,
    llvm::{self, Llvm},
};

/// The program that knows the problems and runs them.
pub const BENCH: &str = "cubenorm-bench";

/// Builds a program for these devices.
pub fn build(name: &str, devices: &[Device]) -> Result<PathBuf> {
    let llvm = devices.contains(&Device::Cpu) || llvm::find()? == Llvm::Installed;
    Build::burn_facing(&features(devices, llvm))?.program(name)
}

/// Asks a program for an answer to each problem, in a process of its own.
pub fn answers<T: for<'a> Deserialize<'a>>(
    command: &Cmd,
    problems: &[Problem],
    mut take: impl FnMut(&Problem, Result<T>),
) -> Result<()> {
    command.announce();
    let mut child = command
        .command()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{command}` could not be started"))?;
    let (Some(mut questions), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        bail!("`{command}` has no standard input or output");
    };
    // Drivers write to standard output too.
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let mut answer =
        || lines.find_map(|line| serde_json::from_str::<Result<T, String>>(&line).ok());
    for problem in problems {
        let asked = writeln!(questions, "{}", serde_json::to_string(problem)?);
        match asked.ok().and_then(|()| answer()) {
            Some(answer) => take(problem, answer.map_err(|why| anyhow!(why))),
            None => {
                let status = child.wait()?;
                bail!("`{command}` ended at {problem} with {status}");
            }
        }
    }
    drop(questions);
    let status = child.wait()?;
    ensure!(status.success(), "`{command}` ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_dies_is_named_with_its_problem() {
        let problem: Problem =
            serde_json::from_str(r#"{"op": "rms_norm", "shape": [2, 3]}"#).unwrap();
        let command = Cmd::new("false");
        let error = answers(&command, &[problem], |_, _: Result<String>| ()).unwrap_err();
        assert!(error.to_string().contains("rms_norm 2x3"), "{error}");
    }
}
