//! The whole kernel suite as one program, for a machine that builds nothing: what `cargo xtask package`
//! ships and `cargo xtask gpu-check` runs, part by part. Each of its parts alone would be as large, as
//! CubeCL and its compilers are nearly all of it.
//!
//! What every run of the suite holds is in its own targets; what only means something on the machine
//! that is asked about is here, and ignored unless it is asked for.

#[path = "../compilation.rs"]
mod compilation;
#[path = "../gradients.rs"]
mod gradients;
#[path = "../guards.rs"]
mod guards;
#[path = "../kernels/main.rs"]
mod kernels;
#[path = "../large.rs"]
mod large;
#[path = "../operators/main.rs"]
mod operators;
#[path = "../property.rs"]
mod property;
#[path = "../robustness.rs"]
mod robustness;
#[path = "../tuning.rs"]
mod tuning;

mod conformance;
mod determinism;
mod measure;
