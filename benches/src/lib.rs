//! The benchmark: one catalogue of problems, one harness, one provider per process.
//!
//! `cargo xtask bench` starts the binary of this package once per provider and drives it over
//! standard input. `cargo bench` drives the same harness through criterion. Both have the same
//! inputs, the same warm-up and the same check of the result. A provider is timed only after its
//! output was compared with a host reference in `f64`. So every row of the report has right
//! numbers.

pub mod accuracy;
mod check;
mod clock;
#[cfg(feature = "cube")]
mod environment;
pub mod exchange;
pub mod fusion;
mod harness;
#[cfg(feature = "cube")]
mod probe;
pub mod providers;
pub mod tune;

pub use harness::{Prepared, Round, prepare};

pub use cubenorm_problems::{DType, Op, Pass, Problem, Suite, protocol};

use cubenorm_problems as problems;
