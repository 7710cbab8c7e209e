//! GPU and CPU kernels of cubenorm (`#[cube]` code) and their launch. No dependency on Burn or on a
//! runtime.
//!
//! A kernel is assembled at compile time from modules that read one
//! [`Blueprint`](cubenorm_core::Blueprint):
//!
//! | module | contents |
//! | --- | --- |
//! | `types`, `vector`, `arrays` | types of a kernel, lanes of a vector, rows of a tile in arrays |
//! | `schedule` | teams (`team`), work items of a launch (`item`), and each unit's slice of an item (`share`) |
//! | `memory` | addresses, loads and stores (`access`; no other module indexes a tensor), rows of the input (`input`), segments of a row (`segment`), packed f16 pairs (`packed_half`), staging between two passes (`stage`) |
//! | `reduce` | partial statistics and their merge (`moments`), per-unit statistics (`accumulate`, `staged`), their loop (`sum`), reductions over a unit, a plane, a cube or a cluster of cubes |
//! | `epilogue` | scale, bias and activation |
//! | `forward` | forward kernels: entry points (`kernel`), rows of a unit (`rows`), tiles of adjacent rows on a CPU (`tile`), normalization of steps (`apply`), tails |
//! | `backward` | backward kernels: gradients of input, scale, bias and gate |
//! | `launch` | launch of a planned pass: checks, buffers, arguments |
//! | `tune` | choice between plans by CubeCL's autotuner, which measures launches |
//! | `call` | from a description to a launch: plan cache and tuner |
//! | `lerp` | elementwise step for small tensors, such as running statistics |
//!
//! Entry points: [`launch_forward`], [`launch_backward`] for the backward pass, and
//! [`launch_lerp`] for the elementwise step.

mod arrays;
mod backward;
mod call;
mod epilogue;
mod forward;
mod launch;
mod lerp;
mod memory;
mod reduce;
mod schedule;
mod tune;
mod types;
mod vector;

pub use call::{
    BackwardOutputs, ForwardOutputs, PreparedBackward, PreparedForward, PreparedPair,
    launch_backward, launch_forward, launch_forward_within, plan_backward_for, plan_for,
    tuned_backward, tuned_forward,
};
pub use launch::{
    BackwardHandles, BackwardTensors, ForwardHandles, ForwardTensors, LaunchError, Tensor,
    hardware, supports, supports_activation,
};
pub use launch::{
    BufferLimits, Refusal, check_backward, check_backward_within, check_forward,
    check_forward_within,
};
#[doc(hidden)]
pub use launch::{Device, MemoryWatch, PlanCache, Query, device, watch_memory};
pub use lerp::launch_lerp;
pub use tune::{least_tuned, working_sets};
