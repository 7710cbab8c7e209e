//! Backward pass: gradients of input, scale and bias.
//!
//! Uses the partition and the strategies of the forward kernels. The modules:
//!
//! - [`element`]: recomputes the normalized value of an element, and its gradients before
//!   activation and scale.
//! - [`sums`]: reduces the two sums of a row. [`runs`] reduces them for each segment of columns.
//! - [`correction`]: turns the two sums into the terms that are subtracted from the gradient.
//! - [`row`]: locates, prefetches and publishes the row of a round.
//! - [`step`]: writes the input gradient of a step and returns its parameter gradients.
//! - [`columns`]: workspace of the parameter gradients. [`fold`] reduces it.
//! - [`kernel`]: loops over rows. [`tile`] loops over tiles of adjacent rows.

mod columns;
mod correction;
mod element;
mod param_reduce;
mod staged;
mod kernel;
mod launch;
mod results;
mod row;
mod runs;
mod tile;
mod step;
mod sums;

pub use launch::{
    BackwardOutputs, BackwardTensors, launch_backward, plan_backward_for, tuned_backward,
};
