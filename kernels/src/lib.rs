//! GPU and CPU kernels of cubenorm (`#[cube]` code) and their launch. No dependency on Burn or on a
//! runtime.
//!
//! A kernel is assembled at compile time from modules that read one
//! [`Blueprint`](cubenorm_core::Blueprint):
//!
//! | module | contents |
//! | --- | --- |
//! | `operand` | addresses, loads and stores; no other module indexes a tensor |
//! | `pairs` | f16 pairs packed in 32-bit words |
//! | `source` | reader of a row: input, residual, and the shift of the shifted-data variance |
//! | `staged` | registers and shared memory that stage a row between two passes |
//! | `accumulate` | per-unit statistics of a row that is read from memory |
//! | `moments` | partial statistics and their merge (Chan, Golub, LeVeque) |
//! | `scaled` | sums of a vector norm that would overflow or underflow |
//! | `work` | tile scheduler: work items of a launch, and each unit's slice of an item |
//! | `strategy` | reductions over a unit, a plane, a cube or a cluster of cubes |
//! | `epilogue` | scale, bias and activation |
//! | `apply` | normalizes and stores one or several steps |
//! | `runs`, `ends` | segments of a row with constant parameters, and their tails |
//! | `forward` | bodies of the forward kernels |
//! | `tile` | the same for a tile of adjacent rows, on a CPU |
//! | `kernel` | entry points of the forward kernels, for one or two launches |
//! | `gradient` | backward pass: gradients of input, scale and bias |
//! | `tune` | choice between plans by CubeCL's autotuner |
//! | `lerp` | elementwise step for small tensors, such as running statistics |
//!
//! Entry points: [`launch_forward`], [`launch_backward`] for the backward pass, and
//! [`launch_lerp`] for the elementwise step.

mod backward;
mod cpu;
mod epilogue;
mod forward;
mod launch;
mod lerp;
mod memory;
mod reduce;
mod schedule;
mod tune;
mod types;

pub use launch::{
    BackwardOutputs, BackwardTensors, launch_backward, plan_backward_for, tuned_backward,
};
pub use launch::{
    BufferLimits, Refusal, check_backward, check_backward_within, check_forward,
    check_forward_within,
};
pub use launch::{
    ForwardOutputs, ForwardTensors, LaunchError, Tensor, hardware, launch_forward,
    launch_forward_within, plan_for, supports, supports_activation, tuned_forward,
};
#[doc(hidden)]
pub use launch::{MemoryWatch, watch_memory};
pub use lerp::launch_lerp;
pub use tune::working_sets;
