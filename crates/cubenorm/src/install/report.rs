//! The report: which norms were matched, and which operations that look like one were not.

use std::fmt;

use super::reason::DeclineReason;

/// State of [`install`](crate::install()) in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InstallState {
    /// It was not called, or [`uninstall`](crate::uninstall) was called after it.
    #[default]
    NotInstalled,
    /// Norms are matched.
    Installed,
    /// The environment's `CUBENORM_INSTALL=off` keeps it from matching.
    Off,
    /// This build has no runtime with fusion: `flex` alone runs operations one by one.
    NoFusion,
}

/// A norm that runs on the kernels of this crate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatchedNorm {
    /// Its usual name, such as `layer norm`.
    pub norm: String,
    /// Operations of Burn that the kernel replaces.
    pub operations: usize,
    /// Shape, dtype, reduced axes, operands and activation.
    pub description: String,
    /// The analytic plan. Autotuning may choose another one.
    pub plan: String,
    /// Number of runs so far.
    pub runs: u64,
}

/// Operations that look like a norm and run as Burn runs them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DeclinedNorm {
    /// At most 16 operations of the block, up to the one that divides by the deviation.
    pub operations: String,
    /// The reason.
    pub reason: DeclineReason,
}

/// What [`install`](crate::install()) has done so far in this process.
///
/// Work is counted when it runs, which is after the call that registered it. Synchronize the device before a report.
///
/// # Example
///
/// ```
/// let report = cubenorm::install_report();
/// assert_eq!(report.norms(), 0);
/// println!("{report}");
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct InstallReport {
    /// True if norms are matched, and the reason if not.
    pub state: InstallState,
    /// Matched norms, one for each description, in the order of their first run. At most 1,024 are listed.
    pub matched: Vec<MatchedNorm>,
    /// Candidates that were declined, one for each sequence of operations and reason. At most 1,024 are listed.
    ///
    /// A sequence is looked at once, and then its plan is cached. So this does not count runs.
    pub declined: Vec<DeclinedNorm>,
}

impl InstallReport {
    /// Number of norms that ran on the kernels of this crate.
    pub fn norms(&self) -> u64 {
        self.matched.iter().map(|norm| norm.runs).sum()
    }
}

impl fmt::Display for InstallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            InstallState::NotInstalled => writeln!(f, "cubenorm is not installed")?,
            InstallState::Off => writeln!(f, "cubenorm is off: CUBENORM_INSTALL=off")?,
            InstallState::NoFusion => writeln!(
                f,
                "cubenorm matches nothing: this build has no runtime with fusion"
            )?,
            InstallState::Installed => writeln!(f, "{} norms ran fused", self.norms())?,
        }
        for norm in &self.matched {
            let MatchedNorm {
                norm,
                operations,
                description,
                plan,
                runs,
            } = norm;
            writeln!(
                f,
                "{runs} x {norm} of {operations} operations: {description}"
            )?;
            writeln!(f, "    {plan}")?;
        }
        for DeclinedNorm { operations, reason } in &self.declined {
            writeln!(f, "left to Burn: {reason}")?;
            writeln!(f, "    {operations}")?;
        }
        Ok(())
    }
}
