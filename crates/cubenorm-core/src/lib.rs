//! Descriptions and launch plans of fused normalizations.
//!
//! This crate is the host half of cubenorm's pipeline:
//!
//! ```text
//! description -> problem -> plan -> (kernel -> launch)
//! ```
//!
//! It contains no device code: it depends on no runtime and builds in seconds.
//!
//! - [`NormDesc`] describes the computation: tensors by shape, strides and dtype, axes, statistics,
//!   epsilon, scale, bias, residual, activation. [`NormDesc::problem`] validates it once.
//! - [`NormProblem`] is its canonical form: `rows` independent groups of `cols` elements. Each
//!   tensor is addressed by coalesced lists of row and column dimensions.
//! - [`Plan`] describes the execution: a [`Strategy`], a [`Blueprint`] and the launch sizes, chosen
//!   from the problem and a few [`Hardware`] properties. A plan is a value: it prints, compares and
//!   can be built by hand.
//!
//! # Levels
//!
//! A *team* of units processes one row group. The strategy determines the units of a team:
//!
//! | strategy | team | rows in flight per cube | merges partial statistics through | for |
//! | --- | --- | --- | --- | --- |
//! | unit | 1 unit | one per unit | nothing | many short rows, CPU runtimes |
//! | plane | 1 plane | one per plane | plane sums | short rows on a GPU |
//! | cube | 1 cube | one | shared memory | long rows |
//! | cube, in a [cluster](Knobs::cluster_size) | several cubes | part of one | device memory, by atomics | backward rows whose column sums exceed one cube |
//! | split | several cubes | part of one | a workspace and a second launch | few very long rows |
//! | perpendicular | units along the reduced axis | one vector of rows per unit along the kept axis | shared memory, or a workspace | a reduced axis that is not innermost |
//!
//! In channels-last group norm each channel of a group is a row of its own, a
//! [segment](NormProblem::segments). Its strategy is the one of a reduced axis that is not
//! innermost. A [separate launch](Combine) between the reducing and the writing one combines the
//! statistics of a group's segments.

mod activation;
mod backward;
mod desc;
mod dtype;
mod error;
mod layout;
mod lerp;
mod padding;
mod plan;
mod problem;
mod quantization;
mod statistics;

pub use activation::{Activation, ActivationKind};
pub use backward::{BackwardDesc, BackwardProblem, ColumnSums, Gate, ParamSums};
pub use desc::{
    Epsilon, NormDesc, Offset, ResidualPlace, RotatedPairs, Rotation, Rounding, Statistics,
    WrittenStatistics,
};
pub use dtype::DType;
pub use error::{MAX_RANK, NormError};
pub use layout::{Layout, TensorDesc};
pub use lerp::LerpDesc;
pub use plan::{
    AccessBlueprint, Addressing, Assignment, BLOCK, BackwardBlueprint, BackwardError,
    BackwardLaunch, BackwardPlan, BackwardSchedule, Blueprint, Buffer, Combine, Division,
    Execution, Extent, Footprint, GateBlueprint, Grid, Guards, Hardware, Kernel, Knobs, Level,
    LoadMode, ParamLoads, ParamReduce, Partials, Plan, PlanError, ROUNDS, Residual, RowBuffering,
    RowSums, SUMS, SharedMemory, Shift, Staging, StagingPreference, Strategy, StrategyChoice, Tail,
    Team, Tile, Unit, Vectorization, backward_candidates, forward_candidates, input_problem_on,
    knobs, plan_backward, plan_forward, problem_on, schedule_backward, sums_on,
};
pub use problem::{Access, Dim, NormProblem, Turn};
pub use quantization::{CODES_PER_WORD, CodeFormat, LEAST_QUANTIZED, Quantization};
pub use statistics::{Merge, StatisticsKind};
