//! Counts in libtest's output.

use std::{iter::Sum, ops::Add};

/// Results of the tests of some programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub ignored: usize,
}

impl Counts {
    /// Adds up every `test result:` line of a libtest output.
    pub fn of(output: &str) -> Self {
        output.lines().filter_map(result_line).sum()
    }

    /// The counts of a program that died before it could report them.
    pub fn crash() -> Self {
        Self {
            failed: 1,
            ..Self::default()
        }
    }

    pub fn ran(self) -> usize {
        self.passed + self.failed
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            ignored: self.ignored + other.ignored,
        }
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Self::add)
    }
}

/// `test result: ok. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; ...`
fn result_line(line: &str) -> Option<Counts> {
    let (_, numbers) = line
        .trim()
        .strip_prefix("test result: ")?
        .split_once(". ")?;
    let number = |word: &str| {
        numbers
            .split("; ")
            .find_map(|part| part.strip_suffix(word)?.trim().parse().ok())
    };
    Some(Counts {
        passed: number("passed")?,
        failed: number("failed")?,
        ignored: number("ignored")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_line_counts_and_nothing_else() {
        let output = "\nrunning 2 tests\ntest a ... ok\ntest b ... FAILED\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; \
            finished in 0.02s\n\nrunning 12 tests\n\
            test result: ok. 10 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; \
            finished in 1.00s\n7 passed in another tool\n";
        assert_eq!(
            Counts::of(output),
            Counts {
                passed: 11,
                failed: 1,
                ignored: 2
            }
        );
        assert_eq!(Counts::of(output).ran(), 12);
    }

    #[test]
    fn output_without_a_result_counts_nothing() {
        assert_eq!(
            Counts::of("running 3 tests\ntest a ... Segmentation fault"),
            Counts::default()
        );
        assert_eq!(
            Counts::of("test result: ok. x passed; 0 failed; 0 ignored;"),
            Counts::default()
        );
    }
}
