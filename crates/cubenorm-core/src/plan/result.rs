//! The result of planning: a plan, or the reason that there is none.

use std::fmt;

use super::backward_blueprint::BackwardBlueprint;
use super::blueprint::{Blueprint, RowBlueprint};
use super::grid::Grid;
use super::strategy::Strategy;
use super::team::Team;
use crate::dtype::DType;
use crate::problem::{Access, NormProblem};

/// An executable plan: the comptime half (a blueprint) and the launch sizes.
///
/// A plan is a value. Its text is one line that describes the launch and the reason for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<B = Blueprint> {
    /// The strategy.
    pub strategy: Strategy,
    /// The compile-time parameters of the kernel.
    pub blueprint: B,
    /// The launch sizes.
    pub grid: Grid,
    /// Elements of the accumulation dtype in the workspace: partial statistics or sums between two
    /// launches, or segment sums after one.
    pub workspace: usize,
    /// The launch that combines segments between the two others; `None` without segments.
    pub combine: Option<Combine>,
    /// The reason for the strategy, in words.
    pub reason: &'static str,
}

/// The plan of a backward launch.
pub type BackwardPlan = Plan<BackwardBlueprint>;

/// The launch that combines the statistics of segments. One team combines the segments of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combine {
    /// The team of a group.
    pub team: Team,
    /// The launch sizes.
    pub grid: Grid,
    /// Elements of the accumulation dtype that it writes: a few values per group.
    pub workspace: usize,
}

impl Plan {
    /// Bytes that any implementation must move: each element read once, each result written once.
    pub fn minimum_bytes(problem: &NormProblem) -> usize {
        let elements = problem.rows.saturating_mul(problem.cols);
        let of_output = match problem.quantization {
            Some(_) => elements,
            None => elements.saturating_mul(problem.dtype.size()),
        };
        let tensors = 1 + usize::from(problem.residual.is_some()) + usize::from(problem.writes_sum);
        let bytes = |params: [&Option<Access>; 2], dtype: DType| {
            let elements = params.into_iter().flatten().map(Access::elements);
            elements.sum::<usize>() * dtype.size()
        };
        let params = bytes([&problem.scale, &problem.bias], problem.param_dtype)
            + bytes([&problem.mean, &problem.variance], problem.provided_dtype);
        elements
            .saturating_mul(tensors * problem.dtype.size())
            .saturating_add(of_output)
            .saturating_add(params)
    }
}

impl<B: RowBlueprint> fmt::Display for Plan<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let team = self.blueprint.team();
        write!(f, "{}: {}", self.strategy, self.grid.describe(team))?;
        if self.blueprint.rows_per_unit() > 1 {
            write!(f, ", {} rows per unit", self.blueprint.rows_per_unit())?;
        }
        let (own, splits) = (self.blueprint.describe(), self.grid.describe_splits(team));
        write!(f, "{own}{splits} ({})", self.reason)
    }
}

/// A reason that a problem has no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A forced strategy does not apply to the problem.
    #[error("the {strategy} strategy cannot run this problem: {reason}")]
    Strategy {
        /// The strategy.
        strategy: Strategy,
        /// The obstacle.
        reason: &'static str,
    },
    /// The tensor is empty.
    #[error("an empty tensor has nothing to plan")]
    Empty,
    /// The kernel binds more buffers than the device allows.
    #[error("the kernel binds {needed} buffers, the device takes {available}")]
    Bindings {
        /// Buffers of the kernel.
        needed: u32,
        /// Buffers that the device allows.
        available: u32,
    },
    /// A cube of the kernel needs more shared memory than the device has.
    #[error("a cube takes {needed} bytes of shared memory, the device has {available}")]
    SharedMemory {
        /// Bytes that a cube needs.
        needed: usize,
        /// Bytes that a cube of the device may use.
        available: usize,
    },
    /// A cube of the kernel has more units than the device allows.
    #[error("a cube has {needed:?} units, the device allows {allowed:?} and {most} in all")]
    Units {
        /// Units along x, y and z.
        needed: [u32; 3],
        /// Units that the device allows along x, y and z.
        allowed: [u32; 3],
        /// Units that it allows in total.
        most: u32,
    },
}
