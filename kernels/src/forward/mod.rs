//! Forward kernels.
//!
//! - [`kernel`]: entry points. They loop over work items.
//! - [`rows`]: normalizes one row or several rows per unit. [`tile`] normalizes a tile of adjacent
//!   rows on a CPU.
//! - [`parts`]: first launch of a split row. [`cluster`]: statistics of a row that several cubes share.
//! - [`statistics`]: statistics of a row, and their output.
//! - [`rotation`]: turns the pairs of a step. [`quantized`] writes codes of a row, and its scale.
//! - [`apply`]: normalizes and stores a step. [`tail`] does so for segments with tails.
//! - [`io`]: output tensors, and the position of a row in them.

pub(crate) mod apply;
pub(crate) mod cluster;
pub(crate) mod io;
pub(crate) mod kernel;
pub(crate) mod parts;
pub(crate) mod quantized;
pub(crate) mod rotation;
pub(crate) mod rows;
pub(crate) mod statistics;
pub(crate) mod tail;
pub(crate) mod tile;
