//! A program of the workspace that depends on Burn, for verbs that must not.

use std::{
    fmt::Display,
    io::{BufRead, Write},
    path::{self, Path, PathBuf},
    process::ExitStatus,
};

use anyhow::{Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::{
    cargo::Build,
    device::{Device, features},
    exec::Cmd,
    llvm::{self, Llvm},
};

/// The program that lists the problems and runs them.
pub(super) const BENCH: &str = "cubenorm-bench";

/// The program of this name: `given`, which was built elsewhere, or a build for these devices.
///
/// # Errors
///
/// If the given one is no file, it does not build, or one build cannot tell the devices apart: with `vulkan` in it `wgpu`
/// compiles to SPIR-V too.
pub(super) fn find(name: &str, devices: &[Device], given: Option<&Path>) -> Result<PathBuf> {
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
pub(super) const MOST_IN_A_ROW: usize = 4;

/// Asks a program for an answer to each question. If a question ends the program, its answer is that
/// error, and another process continues with the next question.
///
/// # Errors
///
/// If the program cannot be started, fails at its end, or more questions in a row than `most` end
/// it: then no question is the cause.
pub(super) fn answers<Q: Serialize + Display, T: for<'a> Deserialize<'a>>(
    command: &Cmd,
    questions: &[Q],
    most: usize,
    mut take: impl FnMut(&Q, Result<T>),
) -> Result<()> {
    let mut left = questions;
    let mut in_a_row = 0;
    while let Some((place, status)) = answers_of_one(command, left, &mut take)? {
        let question = &left[place];
        in_a_row = match place {
            0 => in_a_row + 1,
            _ => 1,
        };
        ensure!(
            in_a_row <= most,
            "`{command}` ended at {question} with {status}, the last of {in_a_row} in a row"
        );
        take(question, Err(anyhow!("`{command}` ended with {status}")));
        left = &left[place + 1..];
    }
    Ok(())
}

/// Asks as [`answers`] does, in one process. Returns the place of the question that ended it, and its
/// exit status.
fn answers_of_one<Q: Serialize, T: for<'a> Deserialize<'a>>(
    command: &Cmd,
    questions: &[Q],
    mut take: impl FnMut(&Q, Result<T>),
) -> Result<Option<(usize, ExitStatus)>> {
    if questions.is_empty() {
        return Ok(None);
    }
    command.announce();
    let (mut child, mut input, stdout) = command.talk()?;
    // Drivers write to standard output too, and not only text.
    let mut lines = stdout.split(b'\n').map_while(Result::ok);
    let mut answer =
        || lines.find_map(|line| serde_json::from_slice::<Result<T, String>>(&line).ok());
    for (place, question) in questions.iter().enumerate() {
        let asked = writeln!(input, "{}", serde_json::to_string(question)?);
        match asked.ok().and_then(|()| answer()) {
            Some(answer) => take(question, answer.map_err(|why| anyhow!(why))),
            None => {
                // It may still wait for the next.
                drop(input);
                let status = child.wait()?;
                return Ok(Some((place, status)));
            }
        }
    }
    drop(input);
    let status = child.wait()?;
    ensure!(status.success(), "`{command}` ended with {status}");
    Ok(None)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

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
        let error = answers(
            &Cmd::new("false"),
            &["it"; 9],
            4,
            |_, it: Result<String>| {
                told.push(it.is_ok());
            },
        );
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`false` ended at it with"), "{error}");
        assert_eq!(told, [false; 4]);
    }

    #[test]
    fn one_fatal_problem_leaves_the_others_answered() {
        // One answer for each process.
        let script = r#"read line; echo '{"Ok":"fine"}'; read line || exit 0; exit 3"#;
        let command = Cmd::new("sh").args(["-c", script]);
        let mut told = Vec::new();
        answers(&command, &["it"; 5], 4, |_, it: Result<String>| {
            told.push(it.map_err(|why| format!("{why:#}").contains('3')));
        })
        .unwrap();
        let fine = || Ok("fine".to_owned());
        assert_eq!(told, [fine(), Err(true), fine(), Err(true), fine()]);
    }
}
