//! A provider's results for each case, even if its process did not survive one.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use crate::{
    device::Device,
    exec::{Cmd, ending},
};

/// A case; the worker's catalogue knows what the words mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    pub op: String,
    pub shape: Vec<usize>,
    pub dtype: String,
    pub input: String,
}

/// Errors of a provider.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Measured(Deviation),
    Skipped(String),
    Failed(String),
}

/// In units in the last place.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Deviation {
    pub max_ulp: f64,
    pub mean_ulp: f64,
    /// Elements that are infinite or NaN and should not be, or the other way round.
    pub not_finite: usize,
    pub elements: usize,
}

/// A line of the worker.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    #[serde(flatten)]
    case: Case,
    #[serde(flatten)]
    verdict: Verdict,
}

/// A provider's results, for each case of a suite in its order.
#[derive(Clone, Debug)]
pub struct Column {
    pub provider: String,
    pub cases: Vec<Case>,
    pub verdicts: Vec<Verdict>,
}

/// A worker to start.
pub struct Job {
    provider: String,
    command: Cmd,
    /// True if its last argument is the number of the first case.
    resumable: bool,
}

impl Job {
    /// Has a provider compute on a device.
    pub fn on_device(program: &Path, suite: &str, provider: &str, device: Device) -> Self {
        Self {
            provider: provider.to_owned(),
            command: Cmd::new(program.to_string_lossy())
                .args(["measure", suite, provider])
                .env("BURN_DEVICE", device.name()),
            resumable: true,
        }
    }

    /// Judges what a library left in a folder.
    pub fn of_files(program: &Path, suite: &str, folder: &Path, provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            command: Cmd::new(program.to_string_lossy())
                .args(["judge", suite])
                .arg(folder)
                .arg(provider),
            resumable: false,
        }
    }

    /// Runs the worker, and again behind each case that ends its process.
    pub fn run(self, bar: &ProgressBar) -> Result<Column> {
        let mut column = Column {
            provider: self.provider.clone(),
            cases: Vec::new(),
            verdicts: Vec::new(),
        };
        loop {
            let ended = self.part(&mut column, bar)?;
            if !column.cases.is_empty() && column.verdicts.len() >= column.cases.len() {
                return Ok(column);
            }
            ensure!(
                self.resumable && !column.cases.is_empty(),
                "`{}` ended early: {ended}",
                self.command
            );
            column.verdicts.push(Verdict::Failed(ended));
        }
    }

    /// Runs the worker on the cases that have no verdict yet, and says how its process ended.
    fn part(&self, column: &mut Column, bar: &ProgressBar) -> Result<String> {
        let mut command = self.command.clone();
        if self.resumable {
            command = command.arg(column.verdicts.len().to_string());
        }
        command.announce();
        let mut child = command
            .command()
            .stdout(Stdio::piped())
            // Every panic of a provider is in its verdict. Other output would fill the screen.
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("`{command}` could not be started"))?;
        let stdout = child.stdout.take().context("it has no standard output")?;
        for line in BufReader::new(stdout).split(b'\n') {
            column.read(&line?);
            bar.set_length(column.cases.len() as u64);
            bar.set_position(column.verdicts.len() as u64);
        }
        Ok(ending(child.wait()?))
    }
}

impl Column {
    /// Takes a line: the list of all cases, or the verdict on one. Drivers write lines too.
    fn read(&mut self, line: &[u8]) {
        if let Ok(cases) = serde_json::from_slice(line) {
            self.cases = cases;
        } else if let Ok(row) = serde_json::from_slice::<Row>(line)
            && self.cases.get(self.verdicts.len()) == Some(&row.case)
        {
            self.verdicts.push(row.verdict);
        }
    }

    /// The verdict on a case.
    pub fn of(&self, case: &Case) -> Option<&Verdict> {
        let index = self.cases.iter().position(|other| other == case)?;
        self.verdicts.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: &str = r#"[{"op":"a","shape":[2,3],"dtype":"f32","input":"x"},
        {"op":"b","shape":[4],"dtype":"f64","input":"y"}]"#;

    fn script(script: &str) -> Result<Column> {
        let cases = CASES.replace('\n', "");
        let job = Job {
            provider: "c".into(),
            command: Cmd::new("sh").args(["-c", &script.replace("CASES", &cases)]),
            resumable: true,
        };
        job.run(&ProgressBar::hidden())
    }

    #[cfg(unix)]
    #[test]
    fn a_fatal_case_is_the_only_one_lost() {
        // The first word after the script is `$0` to `sh -c`.
        let column = script(
            r#"echo 'CASES'; echo noise
            if [ $0 = 0 ]; then kill -SEGV $$; fi
            echo '{"op":"b","shape":[4],"dtype":"f64","input":"y","skipped":"no f64"}'"#,
        );
        let column = column.unwrap();
        assert_eq!(column.cases.len(), 2);
        let [Verdict::Failed(why), Verdict::Skipped(reason)] = column.verdicts.as_slice() else {
            panic!("{column:?}");
        };
        assert!(why.contains("signal 11"), "{why}");
        assert_eq!(reason, "no f64");
        assert_eq!(column.of(&column.cases[1]), Some(&column.verdicts[1]));
    }

    #[cfg(unix)]
    #[test]
    fn a_worker_without_cases_is_an_error() {
        let error = script("exit 2").unwrap_err().to_string();
        assert!(error.contains("exit code 2"), "{error}");
    }

    #[test]
    fn a_verdict_reads_as_the_worker_writes_it() {
        let line = r#"{"op":"a","shape":[2,3],"dtype":"f32","input":"x",
            "measured":{"max_ulp":1.5,"mean_ulp":0.25,"not_finite":0,"elements":6}}"#;
        let row: Row = serde_json::from_str(line).unwrap();
        assert_eq!(row.case.shape, [2, 3]);
        assert!(matches!(row.verdict, Verdict::Measured(d) if d.max_ulp == 1.5));
    }
}
