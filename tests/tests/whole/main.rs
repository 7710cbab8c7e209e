//! The kernel suite as one program, for machines without a toolchain.
//!
//! `cargo xtask package` ships it, `cargo xtask gpu-check` runs its parts. It is one program,
//! because CubeCL and its compilers would make each part about as large.
//!
//! Machine-specific tests are only here, and ignored by default.

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
