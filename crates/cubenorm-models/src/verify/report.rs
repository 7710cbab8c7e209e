use std::fmt;

use serde_json::{Value, json};

use crate::verify::{Case, CaseResult, Kind};

/// A case and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The case.
    pub case: Case,
    /// Its result.
    pub result: CaseResult,
}

/// Shows one line: the result, the case, and the reason if there is one.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, reason) = match &self.result {
            CaseResult::Passed(None) => ("passed", None),
            CaseResult::Passed(Some(error)) => ("refused", Some(error)),
            CaseResult::Failed(reason) => ("FAILED", Some(reason)),
            CaseResult::Skipped(reason) => ("skipped", Some(reason)),
        };
        write!(f, "{word} {}", self.case.path.display())?;
        // One line, even if a driver's error has several.
        match reason {
            Some(reason) => write!(f, ": {}", reason.replace(['\n', '\r'], " ")),
            None => Ok(()),
        }
    }
}

/// Results of all cases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Name of the device.
    pub device: String,
    /// Outcomes in the order of the cases.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Numbers of passed, failed and skipped cases.
    pub fn counts(&self) -> (usize, usize, usize) {
        let mut counts = (0, 0, 0);
        for outcome in &self.outcomes {
            match outcome.result {
                CaseResult::Passed(_) => counts.0 += 1,
                CaseResult::Failed(_) => counts.1 += 1,
                CaseResult::Skipped(_) => counts.2 += 1,
            }
        }
        counts
    }

    /// True if a case passed and none failed.
    pub fn is_success(&self) -> bool {
        let (passed, failed, _) = self.counts();
        passed > 0 && failed == 0
    }

    /// Converts to an array with an object for each case: `case`, `kind`, `device`, `result`,
    /// `reason`.
    pub fn to_json(&self) -> Value {
        let outcomes = self.outcomes.iter().map(|outcome| {
            let (result, reason) = match &outcome.result {
                CaseResult::Passed(error) => ("passed", error.as_ref()),
                CaseResult::Failed(reason) => ("failed", Some(reason)),
                CaseResult::Skipped(reason) => ("skipped", Some(reason)),
            };
            let kind = match outcome.case.kind {
                Kind::Onnx => "onnx",
                Kind::DxDispatch => "dxdispatch",
                Kind::Path => "path",
            };
            json!({
                "case": outcome.case.path.display().to_string(),
                "kind": kind,
                "device": self.device,
                "result": result,
                "reason": reason,
            })
        });
        outcomes.collect()
    }
}

/// Shows the last line of a report.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed, skipped) = self.counts();
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}
