//! Descriptions and launch plans of fused normalizations.
//!
//! This crate holds the host half of cubenorm's one way through,
//!
//! ```text
//! description -> problem -> plan -> (kernel -> launch)
//! ```
//!
//! and none of the device half: it depends on no runtime and builds in seconds.
//!
//! - [`NormDesc`] says *what* to compute: tensors by shape, strides and dtype, axes, statistics,
//!   epsilon, scale, bias, residual, activation. [`NormDesc::problem`] validates it, once.
//! - [`NormProblem`] is its canonical form: `rows` independent groups of `cols` elements, each
//!   tensor addressed by a coalesced list of row and column dimensions.
//! - [`Plan`] says *how*: a [`Strategy`], a [`Blueprint`] and the sizes of the launch, chosen from
//!   the problem and the few [`Hardware`] facts that matter. A plan is a value: it prints, compares
//!   and can be built by hand.
//!
//! # Levels
//!
//! A *team* of units works on one row group. Which units form a team is the strategy:
//!
//! | strategy | team | rows in flight per cube | merges partial statistics through | for |
//! | --- | --- | --- | --- | --- |
//! | unit | 1 unit | one per unit | nothing | many short rows, CPU runtimes |
//! | plane | 1 plane | one per plane | plane sums | short rows on a GPU |
//! | cube | 1 cube | one | shared memory | long rows |
//! | cube, with [peers](Knobs::peers) | several cubes | part of one | words in the device's memory | rows of which one cube cannot hold the sums of columns |
//! | split | several cubes | part of one | a workspace and a second launch | few very long rows |
//! | column | units along the reduced axis | one vector of rows per unit along the kept axis | shared memory, or a workspace | a reduced axis that is not innermost |
//!
//! Of groups of channels that are last in memory each channel is a row, a [strand](NormProblem::strands): the strategy is
//! that of a reduced axis that is not innermost, and a [launch of its own](Join) joins what was found of a group's strands
//! between the two that sum up and write.

mod activation;
mod blend;
mod desc;
mod dtype;
mod error;
mod gradient;
mod layout;
mod padding;
mod plan;
mod problem;

pub use activation::{Activation, ActivationKind};
pub use blend::BlendDesc;
pub use desc::{Epsilon, NormDesc, ResidualPlace, Statistics, WrittenStatistics};
pub use dtype::DType;
pub use error::NormError;
pub use gradient::{ColumnSums, GradientDesc, GradientProblem, ParamSums};
pub use layout::{Layout, MAX_RANK, TensorDesc};
pub use plan::{
    AccessBlueprint, BLOCK, BackwardError, BackwardLaunch, BackwardSchedule, Blueprint, Buffer,
    Extent, Footprint, GradientBlueprint, GradientPlan, Grid, Hardware, Hold, Join, Kernel, Knobs,
    Lanes, Level, LoadMode, Merge, ParamReduce, Partials, Plan, PlanError, ROUNDS, RowHeld,
    RowKept, SUMS, SharedMemory, Strategy, StrategyChoice, Team, forward_candidates,
    gradient_candidates, input_problem_on, knobs, plan_backward, plan_forward, plan_gradient,
    problem_on, sums_on,
};
pub use problem::{Access, Dim, NormProblem, StatisticsKind};
