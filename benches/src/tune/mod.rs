//! Plans of one problem: the analytic plan, the tuner's choice, and the time of each.

#[cfg(not(feature = "cube"))]
mod absent;
#[cfg(feature = "cube")]
mod bundle;
#[cfg(feature = "cube")]
mod call;
#[cfg(feature = "cube")]
mod described;

#[cfg(not(feature = "cube"))]
pub use absent::{bundled, explain, log_sources, running, runtime, tune};
#[cfg(feature = "cube")]
pub(crate) use described::client;
#[cfg(feature = "cube")]
pub use {
    bundle::bundled,
    call::{running, tune},
    described::{explain, log_sources, runtime},
};
