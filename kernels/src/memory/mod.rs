//! Tensors in memory: addresses, loads and stores, rows of the input, and what a row is staged in.

pub(crate) mod access;
pub(crate) mod input;
pub(crate) mod packed_half;
pub(crate) mod segment;
pub(crate) mod stage;
