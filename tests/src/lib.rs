//! Shared parts of the test suite: devices, cases, tolerances and comparisons.

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
pub mod tolerance;
