//! The report: which norms were matched, and which operations that look like one were not.

use std::fmt;
#[cfg(feature = "cube")]
use std::sync::Arc;
#[cfg(feature = "cube")]
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "cube")]
use std::sync::{Mutex, PoisonError};

use super::reason::DeclineReason;

/// Log target of everything that [`install`](crate::install()) does.
#[cfg(feature = "cube")]
pub(super) const LOG: &str = "cubenorm::install";

/// Most norms and most candidates that the report lists. Dynamic shapes make a norm of each shape.
#[cfg(feature = "cube")]
const MOST_LISTED: usize = 1024;

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
    /// The operations of the block, up to the one that divides by the deviation.
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

/// Counts the runs of a norm.
#[cfg(feature = "cube")]
#[derive(Debug, Clone)]
pub(super) struct Runs(Arc<AtomicU64>);

#[cfg(feature = "cube")]
impl Runs {
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(feature = "cube")]
struct Counted {
    norm: MatchedNorm,
    runs: Runs,
}

#[cfg(feature = "cube")]
#[derive(Default)]
struct Report {
    matched: Vec<Counted>,
    declined: Vec<DeclinedNorm>,
}

#[cfg(feature = "cube")]
static REPORT: Mutex<Option<Report>> = Mutex::new(None);

#[cfg(feature = "cube")]
fn with_report<T>(run: impl FnOnce(&mut Report) -> T) -> T {
    let mut report = REPORT.lock().unwrap_or_else(PoisonError::into_inner);
    run(report.get_or_insert_default())
}

/// Lists a matched norm, and returns its counter.
#[cfg(feature = "cube")]
pub(super) fn matched(
    norm: &str,
    found: &super::fuser::Match,
    desc: &cubenorm_core::NormDesc,
    client: &cubecl::client::Client,
) -> Runs {
    let description = describe(desc);
    let operations = found.draft.taken.len();
    let is_same = |counted: &&Counted| {
        counted.norm.description == description && counted.norm.operations == operations
    };
    let known = with_report(|report| {
        let known = report.matched.iter().find(is_same);
        known.map(|counted| counted.runs.clone())
    });
    if let Some(known) = known {
        return known;
    }
    let plan = cubenorm_kernels::plan_for(client, desc, cubenorm_core::StrategyChoice::Inferred);
    let plan = plan.map_or_else(|error| error.to_string(), |plan| plan.to_string());
    log::debug!(target: LOG, "matched a {norm} of {operations} operations: {description}, {plan}");
    let runs = Runs(Arc::default());
    let norm = MatchedNorm {
        norm: norm.to_owned(),
        operations,
        description,
        plan,
        runs: 0,
    };
    with_report(|report| {
        if report.matched.len() < MOST_LISTED {
            report.matched.push(Counted {
                norm,
                runs: runs.clone(),
            });
        }
    });
    runs
}

#[cfg(feature = "cube")]
fn describe(desc: &cubenorm_core::NormDesc) -> String {
    use cubenorm_core::{Activation, Epsilon, Statistics};

    let shape =
        |tensor: &cubenorm_core::TensorDesc| format!("{:?} {}", tensor.shape(), tensor.dtype);
    let statistics = match &desc.statistics {
        Statistics::MeanVariance => "mean and variance",
        Statistics::MeanSquare => "mean square",
        Statistics::Provided { .. } => "provided statistics",
        _ => "statistics",
    };
    let mut text = format!("{}, {statistics}", shape(&desc.input));
    if !matches!(desc.statistics, Statistics::Provided { .. }) {
        text += &format!(" over axes {:?}", desc.axes);
    }
    text += &match desc.epsilon {
        Epsilon::InsideSqrt(epsilon) => format!(", epsilon {epsilon:e}"),
        Epsilon::AddedToDeviation(epsilon) => format!(", epsilon {epsilon:e} behind the root"),
    };
    for (name, operand) in [
        ("residual", &desc.residual),
        ("scale", &desc.scale),
        ("bias", &desc.bias),
    ] {
        if let Some(operand) = operand {
            text += &format!(", {name} {}", shape(operand));
        }
    }
    if desc.writes_sum {
        text += ", writes the sum";
    }
    if desc.activation != Activation::Identity {
        text += &format!(", {}", desc.activation);
    }
    text
}

/// Lists a candidate that is left to Burn.
#[cfg(feature = "cube")]
pub(super) fn declined(operations: &str, reason: &DeclineReason) {
    let declined = DeclinedNorm {
        operations: operations.to_owned(),
        reason: reason.clone(),
    };
    let is_new = with_report(|report| {
        let is_new = report.declined.len() < MOST_LISTED && !report.declined.contains(&declined);
        if is_new {
            report.declined.push(declined);
        }
        is_new
    });
    if is_new {
        log::debug!(target: LOG, "left to Burn: {reason}: {operations}");
    }
}

/// The lists of the report.
#[cfg(feature = "cube")]
pub(super) fn lists() -> (Vec<MatchedNorm>, Vec<DeclinedNorm>) {
    with_report(|report| {
        let matched = report.matched.iter().map(|counted| MatchedNorm {
            runs: counted.runs.0.load(Ordering::Relaxed),
            ..counted.norm.clone()
        });
        (matched.collect(), report.declined.clone())
    })
}
