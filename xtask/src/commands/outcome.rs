//! Outcomes of steps and of runs of tests.

use std::{
    fmt,
    iter::Sum,
    ops::Add,
    time::{Duration, Instant},
};

use anyhow::{Error, Result, ensure};

use crate::{device::Device, style, table::terminal};

/// Results of the tests of some programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Counts {
    /// Adds up every `test result:` line of a libtest output:
    /// `test result: ok. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; ...`
    pub(crate) fn of(output: &str) -> Self {
        let lines = output.lines().filter_map(|line| {
            let result = line.trim().strip_prefix("test result: ")?;
            Self::read(result.split_once(". ")?.1, "; ", "ignored")
        });
        lines.sum()
    }

    /// Reads counts as they print.
    pub(crate) fn printed(line: &str) -> Option<Self> {
        Self::read(line.trim(), ", ", "skipped")
    }

    /// Three numbers, each before its word.
    fn read(text: &str, separator: &str, skipped: &str) -> Option<Self> {
        let mut parts = text.split(separator);
        let mut number = |word: &str| parts.next()?.strip_suffix(word)?.trim().parse().ok();
        Some(Self {
            passed: number("passed")?,
            failed: number("failed")?,
            skipped: number(skipped)?,
        })
    }

    pub(crate) fn ran(self) -> usize {
        self.passed + self.failed
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Self::add)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, .. } = self;
        write!(
            f,
            "{passed} passed, {failed} failed, {} skipped",
            self.skipped
        )
    }
}

/// Outcome of a step or a run of tests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// None if it was skipped.
    pub counts: Option<Counts>,
    pub elapsed: Duration,
    /// Why it was skipped, or how it ended.
    pub note: String,
    /// The tests that failed.
    pub failures: Vec<String>,
}

impl Outcome {
    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        Self {
            note: why.into(),
            ..Self::default()
        }
    }

    /// A step that succeeded, or not.
    pub(crate) fn of(result: Result<(), Error>) -> Self {
        let trouble = result.err().map(|error| format!("{error:#}"));
        let passed = usize::from(trouble.is_none());
        Self::counted(
            Counts {
                passed,
                ..Counts::default()
            },
            trouble,
        )
    }

    /// Tests that a program counted. One that ended badly before it counted a failure has failed
    /// once at least.
    pub(crate) fn counted(mut counts: Counts, trouble: Option<String>) -> Self {
        let crash = trouble.filter(|_| counts.failed == 0);
        counts.failed += usize::from(crash.is_some());
        Self {
            counts: Some(counts),
            note: crash.unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Tests that a program of libtest ran. A line of a failure is `test NAME ... FAILED`.
    pub(crate) fn of_tests(output: &str, trouble: Option<String>) -> Self {
        let failures = output.lines().filter_map(|line| {
            let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
            Some(name.to_owned())
        });
        Self {
            failures: failures.collect(),
            ..Self::counted(Counts::of(output), trouble)
        }
    }

    /// Both together, with the first note.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            counts: self.counts.into_iter().chain(other.counts).reduce(Add::add),
            elapsed: self.elapsed + other.elapsed,
            note: [self.note, other.note]
                .into_iter()
                .find(|note| !note.is_empty())
                .unwrap_or_default(),
            failures: [self.failures, other.failures].concat(),
        }
    }

    /// Adds the time since `start`.
    pub(crate) fn since(mut self, start: Instant) -> Self {
        self.elapsed = start.elapsed();
        self
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.counts.is_some_and(|counts| counts.failed > 0)
    }

    pub(crate) fn result(&self) -> &'static str {
        match self.counts {
            None => "skipped",
            Some(_) if self.has_failed() => "FAILED",
            Some(_) => "passed",
        }
    }
}

/// A named outcome.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub name: String,
    pub outcome: Outcome,
    /// The device that it is about, if it is about one.
    pub device: Option<Device>,
}

/// Columns of [`Line::cells`].
pub(super) const HEADER: [&str; 7] = [
    "run", "result", "passed", "failed", "skipped", "seconds", "note",
];

impl Line {
    pub(crate) fn new(name: impl Into<String>, outcome: Outcome) -> Self {
        Self {
            name: name.into(),
            outcome,
            device: None,
        }
    }

    pub(crate) fn on(self, device: Device) -> Self {
        Self {
            device: Some(device),
            ..self
        }
    }

    pub(crate) fn cells(&self) -> [String; 7] {
        let Outcome {
            counts, elapsed, ..
        } = &self.outcome;
        let count = |of: fn(Counts) -> usize| {
            counts.map_or_else(|| "-".to_owned(), |counts| of(counts).to_string())
        };
        [
            self.name.clone(),
            self.outcome.result().to_owned(),
            count(|it| it.passed),
            count(|it| it.failed),
            count(|it| it.skipped),
            format!("{:.0}", elapsed.as_secs_f64()),
            self.outcome.note.clone(),
        ]
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, outcome, .. } = self;
        let result = outcome.result();
        let paint = match result {
            "passed" => style::good,
            "skipped" => style::warning,
            _ => style::bad,
        };
        write!(f, "{} {name}", paint(result))?;
        if let Some(Counts { passed, failed, .. }) = outcome.counts {
            let seconds = outcome.elapsed.as_secs_f64();
            write!(f, ": {passed} passed, {failed} failed in {seconds:.0} s")?;
        }
        if !outcome.note.is_empty() {
            write!(f, " ({})", outcome.note)?;
        }
        let mut failures = outcome.failures.iter();
        failures.try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

/// Prints a table of runs of tests, and their sum.
///
/// # Errors
///
/// If something failed, or nothing ran.
pub(super) fn report(lines: &[Line]) -> Result<()> {
    println!(
        "\n{}",
        terminal(HEADER, lines.iter().map(Line::cells), 2..6)
    );
    let total: Counts = lines.iter().filter_map(|line| line.outcome.counts).sum();
    // Only this on the line: programs read it.
    println!("{total}");
    ensure!(total.failed == 0, "{} failed", total.failed);
    ensure!(total.ran() > 0, "nothing ran");
    Ok(())
}

/// Steps that all run, whatever fails before them.
#[derive(Default)]
pub(super) struct Steps(Vec<Line>);

impl Steps {
    /// Runs a step, and prints the error if it fails.
    pub(super) fn run(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        anstream::println!("\n{}", style::heading(name));
        let start = Instant::now();
        let outcome = Outcome::of(step()).since(start);
        if outcome.has_failed() {
            anstream::eprintln!("{}: {}", style::bad("failed"), outcome.note);
        }
        self.0.push(Line::new(name, outcome));
    }

    /// Prints a table of all steps.
    ///
    /// # Errors
    ///
    /// If one failed.
    pub(super) fn report(&self) -> Result<()> {
        let rows = self.0.iter().map(|line| {
            let [step, result, .., seconds, _] = line.cells();
            [step, seconds, result]
        });
        println!("\n{}", terminal(["step", "seconds", "result"], rows, 1..2));
        let failed = self.0.iter().filter(|line| line.outcome.has_failed());
        let failed: Vec<&str> = failed.map(|line| line.name.as_str()).collect();
        let steps = self.0.len();
        ensure!(
            failed.is_empty(),
            "{} of {steps} steps failed: {}",
            failed.len(),
            failed.join(", ")
        );
        let total: Duration = self.0.iter().map(|line| line.outcome.elapsed).sum();
        let minutes = total.as_secs_f64() / 60.0;
        let line = format!("all {steps} steps passed in {minutes:.1} minutes");
        anstream::println!("{}", style::good(line));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn every_result_line_counts_and_nothing_else() {
        let output = "\nrunning 2 tests\ntest a ... ok\ntest b ... FAILED\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; \
            finished in 0.02s\n\nrunning 12 tests\n\
            test result: ok. 10 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; \
            finished in 1.00s\n7 passed in another tool\n";
        let outcome = Outcome::of_tests(output, Some("exit code 101".into()));
        let text = "11 passed, 1 failed, 2 skipped";
        assert_eq!(outcome.counts.unwrap().to_string(), text);
        assert_eq!(
            (outcome.failures, outcome.note),
            (vec!["b".to_owned()], String::new())
        );
        assert_eq!(Counts::printed(text), outcome.counts);
        assert_eq!(
            Counts::printed("FAILED a: 1 passed, 2 failed, 3 skipped"),
            None
        );
        assert_eq!(
            Counts::of("test result: ok. x passed; 0 failed; 0 ignored;"),
            Counts::default()
        );
    }

    #[test]
    fn a_program_that_dies_has_failed() {
        let died = Outcome::of_tests("running 3 tests", Some("killed by signal 11".into()));
        assert_eq!(
            (died.result(), died.note.as_str()),
            ("FAILED", "killed by signal 11")
        );
        let both = Outcome::of(Ok(())).and(died);
        assert_eq!(
            both.counts.unwrap().to_string(),
            "1 passed, 1 failed, 0 skipped"
        );
        assert!(report(&[Line::new("it", both)]).is_err());
        assert!(report(&[Line::new("it", Outcome::skipped("not here"))]).is_err());
    }

    #[test]
    fn a_failed_step_fails_all_and_stops_no_other() {
        let mut steps = Steps::default();
        steps.run("a", || bail!("no"));
        steps.run("b", || Ok(()));
        let message = steps.report().unwrap_err().to_string();
        assert_eq!(message, "1 of 2 steps failed: a");

        let mut steps = Steps::default();
        steps.run("b", || Ok(()));
        steps.report().unwrap();
    }
}
