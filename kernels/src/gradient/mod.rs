//! The way back: gradients of input, scale and bias.
//!
//! Cut and merged by the strategies of the forward kernels; what differs is what an element is
//! ([`element`]), which two sums over a row are taken ([`sums`], and [`runs`] of each run of columns), and what they
//! are good for ([`correction`]). A [`row`] is found, and read ahead where it is held; its [`step`]s are passed back
//! and add to the sums of their [`columns`]; the [`kernel`] goes through rows so, or through those that lie
//! [`side_by_side`] together.

mod columns;
mod correction;
mod element;
mod fold;
mod held;
mod kernel;
mod launch;
mod results;
mod row;
mod runs;
mod side_by_side;
mod step;
mod sums;

pub use launch::{
    GradientOutputs, GradientTensors, launch_gradient, plan_gradient_for, tuned_gradient,
};
