//! Plans of one problem: the analytic plan, the tuner's choice, and the time of each.

mod bundle;
mod call;
mod described;

pub(crate) use described::client;
pub use {
    bundle::bundled,
    call::{running, tune},
    described::{explain, log_sources, runtime},
};
