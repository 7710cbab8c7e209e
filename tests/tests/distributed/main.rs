//! Norms over several members, on every runtime of the build: the exchange, results against the f64 reference for random
//! splits, and training.
#![cfg(feature = "burn")]

mod batch;
// The exchange is the host's: one backend says all.
#[cfg(feature = "flex")]
mod group;
mod sharded;
mod support;
mod training;
