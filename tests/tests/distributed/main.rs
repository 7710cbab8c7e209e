//! Norms over several members, on every runtime of the build: the exchange, results against the f64 reference for random
//! splits, and training.

#[cfg(feature = "burn")]
mod batch;
#[cfg(feature = "burn")]
mod group;
#[cfg(feature = "burn")]
mod sharded;
mod sums;
#[cfg(feature = "burn")]
mod support;
#[cfg(feature = "burn")]
mod training;
