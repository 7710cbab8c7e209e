//! Backward pass: gradients of input, scale, bias and gate.
//!
//! Uses the partition and the strategies of the forward kernels. The modules:
//!
//! - [`element`]: recomputes the normalized value of an element, and its gradients before
//!   activation and scale.
//! - [`gate`]: multiplies input or output gradient by a gate, and writes the gate's gradient.
//! - [`sums`]: reduces the two sums of a row. [`segments`] reduces them for each
//!   segment of columns.
//! - [`correction`]: turns the two sums into the terms that are subtracted from the gradient.
//! - [`row`]: locates, prefetches and publishes the row of a round.
//! - [`step`]: writes the input gradient of a step and returns its parameter gradients.
//! - [`param_partials`]: workspace of the parameter gradients. [`param_reduce`] reduces it.
//! - [`kernel`]: entry points. They loop over work items.
//! - [`rows`]: backward pass of one row or several rows per unit. [`tile`] works on a tile of
//!   adjacent rows on a CPU.

pub(crate) mod correction;
pub(crate) mod element;
pub(crate) mod gate;
pub(crate) mod io;
pub(crate) mod kernel;
pub(crate) mod param_partials;
pub(crate) mod param_reduce;
pub(crate) mod row;
pub(crate) mod rows;
pub(crate) mod segments;
pub(crate) mod stage;
pub(crate) mod step;
pub(crate) mod sums;
pub(crate) mod tile;
