//! Bodies that only a CPU runs: a core goes through a tile of adjacent rows in the order of memory.

pub(crate) mod backward_tile;
pub(crate) mod forward_tile;
