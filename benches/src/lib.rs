//! The benchmark: one catalogue of problems, one harness, one provider per process.
//!
//! `cargo xtask bench` starts the binary of this package once per provider and drives it over
//! standard input. `cargo bench` drives the same harness through criterion. Both have the same
//! inputs, the same warm-up and the same check of the result. A provider is timed only after its
//! output was compared with a host reference in `f64`. So every row of the report has right
//! numbers.
//!
//! Without a runtime of CubeCL's (feature `cube`) there is nothing to measure, and this is empty.

#[cfg(feature = "cube")]
pub mod accuracy;
#[cfg(feature = "cube")]
mod check;
#[cfg(feature = "cube")]
mod clock;
#[cfg(feature = "cube")]
mod environment;
#[cfg(feature = "cube")]
pub mod exchange;
#[cfg(feature = "cube")]
pub mod fusion;
#[cfg(feature = "cube")]
mod harness;
#[cfg(feature = "cube")]
mod probe;
#[cfg(feature = "cube")]
pub mod providers;
#[cfg(feature = "cube")]
pub mod tune;

#[cfg(feature = "cube")]
pub use harness::{Prepared, Round, prepare};

pub use cubenorm_problems::{DType, Op, Pass, Problem, Provider, Suite, protocol};

#[cfg(feature = "cube")]
use cubenorm_problems as problems;
