//! What the suite is made of: devices, cases, tolerances, and the way from one to the other.

pub mod activations;
pub mod backward;
pub mod case;
pub mod choice;
pub mod device;
pub mod estimate;
pub mod guard;
pub mod properties;
#[cfg(feature = "burn")]
pub mod tensors;
pub mod throughput;
pub mod tolerance;
