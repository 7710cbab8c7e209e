//! A row for each unit. Nothing is shared, so nothing is merged.
//!
//! The only level of the CPU runtime, where a plane has one unit and a cube as many as there are
//! cores, and the one for rows of a few vectors elsewhere.

use cubecl::prelude::*;

#[cube]
pub(crate) fn index() -> usize {
    ABSOLUTE_POS
}

#[cube]
pub(crate) fn count() -> usize {
    CUBE_COUNT * CUBE_DIM as usize
}
