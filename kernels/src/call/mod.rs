//! A call: looks its description up in the plan cache, or checks, tunes and plans it, and launches.

mod backward;
mod forward;

pub use backward::{
    BackwardOutputs, PreparedBackward, launch_backward, plan_backward_for, tuned_backward,
};
pub use forward::{
    ForwardOutputs, PreparedForward, PreparedPair, launch_forward, launch_forward_within, plan_for,
    tuned_forward,
};
