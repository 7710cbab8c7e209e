//! A program of the workspace that depends on Burn, for verbs that must not.

use std::{
    io::{BufRead, Write},
    path::{self, Path, PathBuf},
    process::ExitStatus,
};

use anyhow::{Result, anyhow, ensure};
use cubenorm_problems::Problem;
use serde::Deserialize;

use crate::{
    cargo::Build,
    device::{Device, features},
    exec::Cmd,
    llvm::{self, Llvm},
};

/// The program that lists the problems and runs them.
pub const BENCH: &str = "cubenorm-bench";

/// The program of this name: `given`, which was built elsewhere, or a build for these devices.
///
/// # Errors
///
/// If the given one is no file, it does not build, or one build cannot tell the devices apart: with `vulkan` in it `wgpu`
/// compiles to SPIR-V too.
pub fn find(name: &str, devices: &[Device], given: Option<&Path>) -> Result<PathBuf> {
    if let Some(given) = given {
        ensure!(
            given.is_file(),
            "{} is no file: expected the program {name}",
            given.display()
        );
        // Programs run in the root of the workspace.
        return Ok(path::absolute(given)?);
    }
    let both = [Device::Vulkan, Device::Wgpu];
    ensure!(
        !both.iter().all(|device| devices.contains(device)),
        "vulkan and wgpu need two builds: name one of them"
    );
    let llvm = devices.contains(&Device::Cpu) || llvm::find()? == Llvm::Installed;
    Build::burn_facing(&features(devices, llvm))?.program(name)
}

/// Problems in a row that may end a program: a shape has four, of two types and two passes.
const MOST_IN_A_ROW: usize = 4;

/// Asks a program for an answer to each problem. If a problem ends the program, its answer is that
/// error, and another process continues with the next problem.
///
/// # Errors
///
/// If the program cannot be started, fails at its end, or many problems in a row end it: then no
/// problem is the cause.
pub fn answers<T: for<'a> Deserialize<'a>>(
    command: &Cmd,
    problems: &[Problem],
    mut take: impl FnMut(&Problem, Result<T>),
) -> Result<()> {
    let mut left = problems;
    let mut in_a_row = 0;
    while let Some(died) = answers_of_one(command, left, &mut take)? {
        let problem = &left[died.place];
        in_a_row = match died.place {
            0 => in_a_row + 1,
            _ => 1,
        };
        ensure!(
            in_a_row <= MOST_IN_A_ROW,
            "`{command}` ended at {problem}, as at those before, with {}",
            died.status
        );
        let why = format!("`{command}` ended with {}", died.status);
        take(problem, Err(anyhow!(why)));
        left = &left[died.place + 1..];
    }
    Ok(())
}

/// The problem that ended a program, and its exit status.
pub struct Died {
    pub place: usize,
    pub status: ExitStatus,
}

/// Asks as [`answers`] does, in one process, so that its final output covers all problems.
pub fn answers_of_one<T: for<'a> Deserialize<'a>>(
    command: &Cmd,
    problems: &[Problem],
    mut take: impl FnMut(&Problem, Result<T>),
) -> Result<Option<Died>> {
    if problems.is_empty() {
        return Ok(None);
    }
    command.announce();
    let (mut child, mut questions, stdout) = command.talk()?;
    // Drivers write to standard output too, and not only text.
    let mut lines = stdout.split(b'\n').map_while(Result::ok);
    let mut answer =
        || lines.find_map(|line| serde_json::from_slice::<Result<T, String>>(&line).ok());
    for (place, problem) in problems.iter().enumerate() {
        let asked = writeln!(questions, "{}", serde_json::to_string(problem)?);
        match asked.ok().and_then(|()| answer()) {
            Some(answer) => take(problem, answer.map_err(|why| anyhow!(why))),
            None => {
                // It may still wait for the next.
                drop(questions);
                let status = child.wait()?;
                return Ok(Some(Died { place, status }));
            }
        }
    }
    drop(questions);
    let status = child.wait()?;
    ensure!(status.success(), "`{command}` ended with {status}");
    Ok(None)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn problems(count: usize) -> Vec<Problem> {
        let one: Problem = serde_json::from_str(r#"{"op": "rms_norm", "shape": [2, 3]}"#).unwrap();
        vec![one; count]
    }

    #[test]
    fn a_given_program_is_not_built() {
        let given = std::env::current_exe().unwrap();
        // One build cannot have both.
        let devices = [Device::Vulkan, Device::Wgpu];
        assert_eq!(find(BENCH, &devices, Some(&given)).unwrap(), given);
        let gone = find(BENCH, &devices, Some(Path::new("/nowhere/it")));
        let gone = gone.unwrap_err().to_string();
        assert_eq!(
            gone,
            "/nowhere/it is no file: expected the program cubenorm-bench"
        );
        assert!(find(BENCH, &devices, None).is_err());
    }

    #[test]
    fn a_program_that_always_dies_is_an_error() {
        let mut told = Vec::new();
        let error = answers(&Cmd::new("false"), &problems(9), |_, it: Result<String>| {
            told.push(it.is_ok());
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`false` ended at rms_norm 2x3"), "{error}");
        assert_eq!(told, [false; MOST_IN_A_ROW]);
    }

    #[test]
    fn one_fatal_problem_leaves_the_others_answered() {
        // One answer for each process.
        let script = r#"read line; echo '{"Ok":"fine"}'; read line || exit 0; exit 3"#;
        let command = Cmd::new("sh").args(["-c", script]);
        let mut told = Vec::new();
        answers(&command, &problems(5), |_, it: Result<String>| {
            told.push(it.map_err(|why| format!("{why:#}").contains('3')));
        })
        .unwrap();
        let fine = || Ok("fine".to_owned());
        assert_eq!(told, [fine(), Err(true), fine(), Err(true), fine()]);
    }
}
