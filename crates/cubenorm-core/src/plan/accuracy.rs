//! Lengths of sums that keep the digits of an f32.

/// Steps that a kernel accumulates from one shift before it merges them and takes the next. A block
/// also ends with its segment. Shorter blocks keep more digits; longer ones would save merges.
/// Plans rely on this value.
pub const BLOCK: usize = 64;

/// Maximum number of blocks in one unit's sum, which are added one after another. 2^12 of them are
/// off by less than 1.3e-4 even if every addition rounds the same way. At 2^24 an f32 sum stops
/// growing.
pub(super) const MOST_BLOCKS: usize = 1 << 12;

/// Maximum number of rows in a team's column sums: off by less than 5e-4, by the bound of
/// [`MOST_BLOCKS`].
pub(super) const LONGEST_COLUMN_SUM: usize = 1 << 14;
