//! The way back: gradients of input, scale and bias.
//!
//! Cut and merged by the strategies of the forward kernels; what differs is what an element is
//! ([`element`]), which two sums over a row are taken ([`sums`]) and what they are good for ([`kernel`]).

mod element;
mod fold;
mod held;
mod kernel;
mod launch;
mod sums;

pub use launch::{
    GradientOutputs, GradientTensors, launch_gradient, plan_gradient_for, tuned_gradient,
};
