//! The fuser of norms.
//!
//! Burn registers operations lazily, and fusers compete for blocks of them. The one here reads a block as data flow
//! ([`graph`]) and looks for norms in it ([`pattern`]). It orders the norms and the rest of the block ([`schedule`]), and
//! runs each norm by the description that everything else in this crate lowers to ([`lower`], [`run`]). The rest runs in
//! Burn's own kernels ([`segments`]).

mod fuser;
mod graph;
mod lower;
mod pattern;
mod record;
mod registry;
mod run;
mod schedule;
mod segments;
mod threshold;

pub(super) use record::lists;
pub(super) use registry::{enter, leave};
