//! Counts in libtest's output.

use std::{fmt, iter::Sum, ops::Add};

/// Results of the tests of some programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
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
            skipped: self.skipped + other.skipped,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Self::add)
    }
}

/// `test result: ok. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; ...`
fn result_line(line: &str) -> Option<Counts> {
    let result = line.trim().strip_prefix("test result: ")?;
    let (_, numbers) = result.split_once(". ")?;
    counts(numbers, "; ", "ignored")
}

/// The line of [`Counts`] as it prints.
pub fn printed(line: &str) -> Option<Counts> {
    counts(line.trim(), ", ", "skipped")
}

/// Three numbers, each before its word.
fn counts(text: &str, separator: &str, skipped: &str) -> Option<Counts> {
    let mut parts = text.split(separator);
    let mut number = |word: &str| parts.next()?.strip_suffix(word)?.trim().parse().ok();
    Some(Counts {
        passed: number("passed")?,
        failed: number("failed")?,
        skipped: number(skipped)?,
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
                skipped: 2
            }
        );
        assert_eq!(Counts::of(output).ran(), 12);
    }

    #[test]
    fn printed_counts_read_back() {
        let text = "65 passed, 0 failed, 2 skipped";
        assert_eq!(printed(text).unwrap().to_string(), text);
        assert_eq!(printed("FAILED a: 1 passed, 2 failed, 3 skipped"), None);
        assert_eq!(printed("65 passed"), None);
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
