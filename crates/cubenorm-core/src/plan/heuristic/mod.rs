//! Analytic decisions from numbers alone, each with its reason. No kernel and no device call here.
//!
//! Each measured constant stands beside the function that reads it.

pub(super) mod cluster;
pub(super) mod column_sums;
pub(super) mod cpu_vulkan;
pub(super) mod dynamic_schedule;
pub(super) mod load_mode;
pub(super) mod loads_in_flight;
pub(super) mod narrow_vectors;
pub(super) mod nontemporal;
pub(super) mod occupancy;
pub(super) mod one_block;
pub(super) mod params_kept;
pub(super) mod parts;
pub(super) mod prefetch;
pub(super) mod row_buffering;
pub(super) mod rows_per_unit;
pub(super) mod segment_sums;
pub(super) mod splits;
pub(super) mod staging;
pub(super) mod strategy;
pub(super) mod tile;
pub(super) mod units_per_cube;
pub(super) mod vector_width;
