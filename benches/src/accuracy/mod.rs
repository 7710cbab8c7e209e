//! Errors of the norms, in units in the last place.
//!
//! `cargo xtask accuracy` starts the binary `cubenorm-accuracy` of this package once per provider.
//! Every case is computed by each provider and, with twice the digits of float64, by [`exact`],
//! because float64 is measured too.

pub mod cases;
pub mod exact;
pub mod exchange;
pub mod providers;
pub mod ulp;

use serde::{Deserialize, Serialize};

use self::{cases::Case, ulp::Deviation};

/// A line of the binary: a case and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// The provider's error.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Error of a provider for one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Measured.
    Measured(Deviation),
    /// The provider does not have this operator or data type.
    Skipped(String),
    /// The provider has it, and returned no result.
    Failed(String),
}
