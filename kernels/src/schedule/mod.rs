//! Tile scheduler: maps teams to work items, and units to their slices of an item.
//!
//! A work item is one part of a row group. A step is one vector position along a row. A round is
//! one iteration of a team over its items.

pub(crate) mod item;
pub(crate) mod partition;
pub(crate) mod share;
pub(crate) mod team;
