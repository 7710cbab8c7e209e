//! The units that share a row.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The units that share a row. See the table in the [crate documentation](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Strategy {
    /// One unit for each row.
    Unit,
    /// One plane for each row.
    Plane,
    /// One cube for each row, or a cluster of cooperating cubes.
    Cube,
    /// Several cubes for each row, in two launches.
    Split,
    /// Vectors along the kept axis, units along the reduced one.
    Perpendicular,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 5] = [
        Self::Unit,
        Self::Plane,
        Self::Cube,
        Self::Split,
        Self::Perpendicular,
    ];
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unit => "unit",
            Self::Plane => "plane",
            Self::Cube => "cube",
            Self::Split => "split",
            Self::Perpendicular => "perpendicular",
        })
    }
}
