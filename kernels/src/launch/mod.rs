//! Launch of a normalization. Everything is checked before the launch, since later errors only show
//! when a buffer is read.

pub(crate) mod args;
mod backward;
pub(crate) mod combine;
pub(crate) mod device;
mod error;
mod fill;
mod forward;
pub(crate) mod memory;
pub(crate) mod plan_cache;
mod refusal;
mod work_counter;

pub use backward::{
    BackwardHandles, BackwardOutputs, BackwardTensors, PreparedBackward, launch_backward,
    plan_backward_for, tuned_backward,
};
pub(crate) use device::elem_type;
pub use device::{hardware, supports, supports_activation};
pub use error::LaunchError;
pub use forward::{
    ForwardHandles, ForwardOutputs, ForwardTensors, PreparedForward, Tensor, launch_forward,
    launch_forward_within, plan_for, tuned_forward,
};
#[doc(hidden)]
pub use memory::{MemoryWatch, watch_memory};
#[doc(hidden)]
pub use plan_cache::{Device, PlanCache, Query, device};
pub use refusal::{
    BufferLimits, Refusal, check_backward, check_backward_within, check_forward,
    check_forward_within,
};
