//! What is measured and how: one catalogue of problems, one harness, one contender per process.
//!
//! `cargo xtask bench` starts the binary of this package once per contender and tells it over
//! standard input what to do; `cargo bench` drives the same harness through criterion. Both see
//! the same inputs, the same warm-up and the same check of the result.
//!
//! A contender is timed only after its output was compared with a host reference in `f64`, so a
//! row of the report exists only where the numbers are right.

pub mod accuracy;
mod check;
mod clock;
pub mod contenders;
#[cfg(feature = "cube")]
mod environment;
pub mod exchange;
pub mod fusion;
mod harness;
#[cfg(feature = "cube")]
mod probe;
mod problems;
pub mod protocol;
pub mod tune;

pub use harness::{Prepared, Round, prepare};
pub use problems::{DType, Op, Pass, Problem, Suite};
