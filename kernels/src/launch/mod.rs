//! From a description and buffers to a launch. Everything is checked before it: what goes wrong
//! after it only shows when a buffer is read.

pub(crate) mod args;
mod claims;
pub(crate) mod device;
mod error;
mod forward;
pub(crate) mod join;
pub(crate) mod memo;
mod refusal;

pub(crate) use device::elem_type;
pub use device::{hardware, supports, supports_activation};
pub use error::LaunchError;
pub use forward::{
    ForwardOutputs, ForwardTensors, Tensor, launch_forward, launch_forward_within, plan_for,
    tuned_forward,
};
pub use refusal::{
    BufferLimits, Refusal, check_forward, check_forward_within, check_gradient,
    check_gradient_within,
};
