//! Reductions: partial statistics, and their merge over the units of a team.
//!
//! - [`accumulate`], [`staged`]: statistics of a unit's slice of a row. [`sum`] has their loop.
//! - [`team`]: merge over the units of a team. [`plane`], [`cube`] and [`perpendicular`] are its
//!   levels, and [`exchange`] is the reduction in shared memory.
//!
//! Three modules carry partial statistics between teams of any level:
//!
//! - [`split`]: parts of a row, from one launch to the next.
//! - [`channels`]: statistics of channels, combined into statistics of a group.
//! - [`cluster`]: parts of a row, between cooperating cubes of one launch.
//!
//! [`partials`] has what the first and the last of them read.

pub(crate) mod accumulate;
pub(crate) mod channels;
pub(crate) mod cluster;
pub(crate) mod cube;
pub(crate) mod exchange;
pub(crate) mod moments;
pub(crate) mod partials;
pub(crate) mod perpendicular;
pub(crate) mod plane;
pub(crate) mod scale;
pub(crate) mod scaled;
pub(crate) mod split;
pub(crate) mod staged;
pub(crate) mod sum;
pub(crate) mod team;
