//! The forward pass: its kernels, the rows they go through, and the steps they normalize.

pub(crate) mod apply;
pub(crate) mod kernel;
pub(crate) mod rows;
pub(crate) mod tail;
