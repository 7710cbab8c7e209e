//! Units per cube, one file per strategy that has its own.

pub(super) mod cube;
pub(super) mod perpendicular;
pub(super) mod plane;
pub(super) mod unit;
