//! One row per unit, without communication.
//!
//! The only level of the CPU runtime, where a plane has one unit and a cube has one unit per core.
//! On GPUs, the level of rows of a few vectors.

use cubecl::prelude::*;

#[cube]
pub(crate) fn index() -> usize {
    ABSOLUTE_POS
}

#[cube]
pub(crate) fn count() -> usize {
    CUBE_COUNT * CUBE_DIM as usize
}
