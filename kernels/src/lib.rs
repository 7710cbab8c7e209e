//! The `#[cube]` code of cubenorm and its launch: no Burn and no runtime in here.
//!
//! A kernel is assembled at compile time from parts, one for each field of a
//! [`Blueprint`](cubenorm_core::Blueprint):
//!
//! | part | module | decides |
//! | --- | --- | --- |
//! | operand | `operand` | how a tensor is addressed, loaded and stored; the only place that does |
//! | pairs | `pairs` | what two halves in a number of 32 bits are |
//! | source | `source` | what a row consists of: input, residual, shift, and where it is held |
//! | accumulate | `accumulate` | how a unit takes the statistics of what it reads |
//! | moments | `moments` | how statistics of parts become those of a row |
//! | work | `work` | how a launch is cut into items, and items into shares of units |
//! | strategy | `strategy` | who works on a row, and how their partial statistics meet |
//! | epilogue | `epilogue` | what happens to a normalized value |
//! | apply | `apply` | how a step is normalized and written, and several of them |
//! | runs, ends | `runs`, `ends` | the same of runs of columns, whose lengths vectors may not divide |
//! | forward | `forward` | the bodies that put these together |
//! | side by side | `side_by_side` | the same for rows that a core goes through together, as they lie in memory |
//! | kernel | `kernel` | what is launched, in one launch or in two, and which of the bodies it runs |
//! | gradient | `gradient` | the way back, over the same strategies: the gradients of input, scale and bias |
//!
//! Which of several plans runs is measured in `tune`, by CubeCL's autotuner.
//!
//! Beside them stands `blend`, the elementwise step that operators take for small tensors.
//!
//! The entry points are [`launch_forward`], [`launch_gradient`] for the way back, and [`launch_blend`] for the
//! elementwise step.

mod accumulate;
mod apply;
mod blend;
mod ends;
mod epilogue;
mod forward;
mod gradient;
mod held;
mod kernel;
mod launch;
mod moments;
mod operand;
mod pairs;
mod runs;
mod side_by_side;
mod source;
mod strategy;
mod tune;
mod types;
mod work;

pub use blend::launch_blend;
pub use gradient::{
    GradientOutputs, GradientTensors, launch_gradient, plan_gradient_for, tuned_gradient,
};
pub use launch::{
    ForwardOutputs, ForwardTensors, LaunchError, Tensor, hardware, launch_forward,
    launch_forward_within, plan_for, supports, supports_activation, tuned_forward,
};
pub use launch::{
    BufferLimits, Refusal, check_forward, check_forward_within, check_gradient,
    check_gradient_within,
};
pub use tune::working_sets;
