//! Launch of planned passes: checks, buffers and arguments.

pub(crate) mod args;
mod backward;
pub(crate) mod combine;
pub(crate) mod device;
mod error;
mod fill;
mod forward;
pub(crate) mod memory;
mod pair;
pub(crate) mod plan_cache;
mod refusal;
mod zeroed;

pub(crate) use args::check_buffer;
pub(crate) use backward::{BackwardDescs, PlannedBackward, checked_backward};
pub use backward::{BackwardHandles, BackwardTensors};
pub(crate) use device::elem_type;
pub use device::{hardware, supports, supports_activation};
pub use error::LaunchError;
pub use forward::{ForwardHandles, ForwardTensors, Tensor};
pub(crate) use forward::{PlannedForward, check_forward_buffers, checked_forward};
#[doc(hidden)]
pub use memory::{MemoryWatch, watch_memory};
pub(crate) use pair::PlannedPair;
#[doc(hidden)]
pub use plan_cache::{Device, PlanCache, Query, device};
pub use refusal::{
    BufferLimits, Refusal, check_backward, check_backward_within, check_forward,
    check_forward_within,
};
