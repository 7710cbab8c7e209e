//! Plans: the kernel and the launch sizes of a problem on a device, with a reason.
//!
//! A problem becomes a [`Workload`](workload::Workload), the view that both passes share. The
//! [`planner`] chooses vectors, a strategy and a [`Schedule`](schedule::Schedule) for it.
//! [`forward`] and [`backward`] add the blueprint of their kernel. [`heuristic`] holds the measured
//! decisions, one file per question.

mod accuracy;
mod backward;
mod backward_blueprint;
mod backward_launches;
mod blueprint;
mod candidates;
mod combine;
mod cost;
mod footprint;
mod forward;
mod grid;
mod hardware;
mod heuristic;
mod knobs;
mod limits;
mod param_reduce;
mod planner;
mod result;
mod schedule;
mod shared_memory;
mod strategy;
mod team;
mod view;
mod workload;
mod workspace;

pub use accuracy::BLOCK;
pub use backward::plan_backward;
pub use backward_blueprint::{BackwardBlueprint, GateBlueprint, RowBuffering, RowSums};
pub use backward_launches::{BackwardError, BackwardLaunch, BackwardSchedule, schedule_backward};
pub use blueprint::{AccessBlueprint, Addressing, Blueprint, LoadMode, Residual, Shift, Staging};
pub use candidates::{backward_candidates, forward_candidates, knobs};
pub use footprint::{Buffer, Extent, Footprint, Kernel};
pub use forward::plan_forward;
pub use grid::Grid;
pub use hardware::Hardware;
pub use knobs::{Knobs, StagingPreference, StrategyChoice};
pub use param_reduce::{ParamReduce, Partials};
pub use result::{BackwardPlan, Combine, Plan, PlanError};
pub use shared_memory::SharedMemory;
pub use strategy::Strategy;
pub use team::{
    Assignment, Division, Execution, Guards, Level, ParamLoads, Tail, Team, Tile, Unit,
    Vectorization,
};
pub use view::{input_problem_on, problem_on, sums_on};
pub use workspace::{ROUNDS, SUMS};
