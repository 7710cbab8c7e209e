//! Errors of the norms, in units in the last place.
//!
//! `cargo xtask accuracy` starts `cubenorm-bench accuracy` once per provider. Every case is computed
//! by each provider and, with twice the digits of float64, by [`exact`], because float64 is measured
//! too.

pub mod cases;
pub mod exact;
pub mod exchange;
pub mod providers;
pub mod ulp;
