//! Records for the report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cubecl::client::Client;
use cubenorm_core::{Activation, Epsilon, NormDesc, Statistics, StrategyChoice, TensorDesc};

use super::pattern::Draft;
use crate::install::{DeclineReason, DeclinedNorm, MatchedNorm};

/// Log target of everything that [`install`](crate::install()) does.
const LOG: &str = "cubenorm::install";

/// Most norms and most candidates that the report lists. Dynamic shapes make a norm of each shape.
const MOST_LISTED: usize = 1024;

/// Counts the runs of a norm.
#[derive(Debug, Clone)]
pub(super) struct Runs(Arc<AtomicU64>);

impl Runs {
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Counted {
    norm: MatchedNorm,
    runs: Runs,
}

#[derive(Default)]
struct Report {
    matched: Vec<Counted>,
    declined: Vec<DeclinedNorm>,
}

static REPORT: Mutex<Option<Report>> = Mutex::new(None);

fn with_report<T>(run: impl FnOnce(&mut Report) -> T) -> T {
    let mut report = REPORT.lock().unwrap_or_else(PoisonError::into_inner);
    run(report.get_or_insert_default())
}

/// Lists a matched norm, and returns its counter.
pub(super) fn matched(draft: &Draft, desc: &NormDesc, client: &Client) -> Runs {
    let norm = draft.name();
    let description = describe(desc);
    let operations = draft.taken.len();
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
    let plan = cubenorm_kernels::plan_for(client, desc, StrategyChoice::Inferred);
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

fn describe(desc: &NormDesc) -> String {
    let shape = |tensor: &TensorDesc| format!("{:?} {}", tensor.shape(), tensor.dtype);
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
pub(in crate::install) fn lists() -> (Vec<MatchedNorm>, Vec<DeclinedNorm>) {
    with_report(|report| {
        let matched = report.matched.iter().map(|counted| MatchedNorm {
            runs: counted.runs.0.load(Ordering::Relaxed),
            ..counted.norm.clone()
        });
        (matched.collect(), report.declined.clone())
    })
}
