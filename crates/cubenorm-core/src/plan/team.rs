//! The team of a row: its execution model, and its part of a row.

use crate::statistics::Merge;

/// The axis that the lanes of a vector run along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vectorization {
    /// The reduced axis: all lanes of a vector belong to one row and are reduced at the end.
    Parallel,
    /// The kept axis: each lane is a separate row.
    Perpendicular,
}

/// The units that form a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// One unit.
    Unit,
    /// The units of a plane, along x; planes of a cube along y.
    Plane,
    /// All units of a cube.
    Cube,
    /// Units of a cube with the same x.
    Perpendicular,
}

/// The team of a row: the half of a blueprint that strategies read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Team {
    /// Lanes of a vector.
    pub vector: usize,
    /// The combination of partial statistics.
    pub merge: Merge,
    /// The units of a team, and what only such teams have.
    pub execution: Execution,
    /// The part of a row that a team processes.
    pub division: Division,
    /// The bounds checks of staged vectors.
    pub guards: Guards,
}

/// The execution model: the units that share a row, and the choices that only they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Execution {
    /// A core of a CPU processes a tile of adjacent rows, in memory order. Vectors run along the
    /// kept axis.
    Tile(Tile),
    /// One unit per row.
    Unit(Unit),
    /// The units of a plane per row. Vectors run along the reduced axis.
    Plane {
        /// Units of a plane.
        size: u32,
    },
    /// All units of a cube per row. Vectors run along the reduced axis.
    Cube {
        /// Units of a cube.
        size: u32,
        /// Units of a plane if plane operations are used.
        plane_size: Option<u32>,
    },
    /// Units of a cube with the same x per row. Vectors run along the kept axis.
    Perpendicular {
        /// Units with the same x.
        size: u32,
        /// Teams per cube, along x.
        columns: u32,
    },
}

/// A tile of adjacent rows that a CPU core processes in memory order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tile {
    /// True if cores take tiles from a work counter at run time (dynamic schedule), false for a
    /// static assignment of consecutive tiles.
    pub dynamic: bool,
    /// True if segments of adjacent rows end with a tail vector: see [`Team::has_row_tail`].
    pub has_tail: bool,
    /// True if statistics, scale and bias are folded into one factor and one summand per row. It
    /// applies to the forward pass with constant parameters along each row, and saves loads.
    pub folded: bool,
}

/// One unit per row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unit {
    /// The axis that vectors run along.
    pub lanes: Vectorization,
    /// The assignment of items to units.
    pub assignment: Assignment,
    /// The tail vectors of segments.
    pub tail: Tail,
    /// The loads of scale, bias and provided statistics.
    pub params: ParamLoads,
    /// True if the next row is prefetched into the caches of a CPU while the current one, which is
    /// reloaded, is normalized. Forward only.
    pub prefetch_next_row: bool,
}

/// The assignment of items to the units that own them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Assignment {
    /// Consecutive items for each unit.
    Blocked,
    /// Units alternate.
    Striped,
    /// Units take consecutive items from a work counter at run time (dynamic schedule).
    Dynamic,
}

/// The tail vectors of segments whose length is not a multiple of the vector width. A tail overlaps
/// the vector before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tail {
    /// None: vectors divide the segments.
    None,
    /// The last vector of each segment, along the axis that vectors run along.
    Segments,
    /// As [`Segments`](Self::Segments), but the reduced tensors are contiguous along the whole row.
    /// The forward reduction then ignores parameter segments: only the last vector of a row is a
    /// tail.
    Row,
}

/// How often a unit that owns its row loads scale, bias and provided statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParamLoads {
    /// At each step.
    PerStep,
    /// Once per column segment, along which all of them are constant. Backward, each segment also
    /// has its own sums.
    PerSegment,
    /// Once for all rows: registers keep the coefficients of this number of steps. It requires
    /// provided statistics, and a few parameters that all rows share. Forward only.
    Kept(usize),
}

/// The part of a row that a team processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Division {
    /// The whole row.
    Whole,
    /// One of several parts, each for another team.
    Part,
    /// One of several segments that share their statistics, which are combined between two launches.
    Segment,
    /// One of several parts of a segment.
    SegmentPart,
    /// All segments that share their statistics, as one [`Tile`]. The unit combines them itself, in
    /// one launch.
    AllSegments,
    /// One of several parts, each for another cube of a cluster of this number of cubes. All other
    /// fields describe a single cube.
    Cluster(u32),
}

/// The bounds checks of the vectors that units stage, of a row or of its column sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Guards {
    /// None: the row occupies exactly this number of vectors per unit.
    Exact(usize),
    /// Every unit has this number of leading vectors. The kernel checks bounds only beyond them.
    After(usize),
}

impl Team {
    /// The units that form a team.
    pub const fn level(&self) -> Level {
        match self.execution {
            Execution::Tile(_) | Execution::Unit(_) => Level::Unit,
            Execution::Plane { .. } => Level::Plane,
            Execution::Cube { .. } => Level::Cube,
            Execution::Perpendicular { .. } => Level::Perpendicular,
        }
    }

    /// The axis that vectors run along.
    pub const fn lanes(&self) -> Vectorization {
        match self.execution {
            Execution::Unit(unit) => unit.lanes,
            Execution::Plane { .. } | Execution::Cube { .. } => Vectorization::Parallel,
            Execution::Tile(_) | Execution::Perpendicular { .. } => Vectorization::Perpendicular,
        }
    }

    /// Units of a team.
    pub const fn size(&self) -> u32 {
        match self.execution {
            Execution::Tile(_) | Execution::Unit(_) => 1,
            Execution::Plane { size }
            | Execution::Cube { size, .. }
            | Execution::Perpendicular { size, .. } => size,
        }
    }

    /// Teams per cube along x if units with the same x form one, else 1.
    pub const fn columns(&self) -> u32 {
        match self.execution {
            Execution::Perpendicular { columns, .. } => columns,
            _ => 1,
        }
    }

    /// Units of a plane if plane operations are used, else 0.
    pub const fn plane_size(&self) -> u32 {
        match self.execution {
            Execution::Plane { size }
            | Execution::Cube {
                plane_size: Some(size),
                ..
            } => size,
            _ => 0,
        }
    }

    /// Cubes that share rows, each with a part of the columns; 1 without a cluster.
    pub const fn cluster_size(&self) -> u32 {
        match self.division {
            Division::Cluster(cubes) => cubes,
            _ => 1,
        }
    }

    /// True if a row is split into parts, for several teams or for the cubes of a cluster.
    pub const fn has_parts(&self) -> bool {
        matches!(
            self.division,
            Division::Part | Division::SegmentPart | Division::Cluster(_)
        )
    }

    /// True if a row is one of several segments. Their statistics are combined between two
    /// launches, or by a unit that has all of them.
    pub const fn is_segmented(&self) -> bool {
        matches!(
            self.division,
            Division::Segment | Division::SegmentPart | Division::AllSegments
        )
    }

    /// True if statistics need two launches: several teams share a row, or segments are combined in
    /// between.
    pub const fn reduces_apart(&self) -> bool {
        matches!(
            self.division,
            Division::Part | Division::Segment | Division::SegmentPart
        )
    }

    /// True if a unit processes a whole tile of adjacent rows, in memory order.
    pub const fn is_tile(&self) -> bool {
        matches!(self.execution, Execution::Tile(_))
    }

    /// True if a team takes consecutive items (blocked), false if teams alternate (striped).
    pub const fn is_blocked(&self) -> bool {
        match self.execution {
            Execution::Tile(_) => true,
            Execution::Unit(unit) => !matches!(unit.assignment, Assignment::Striped),
            _ => false,
        }
    }

    /// True if teams take items from a work counter at run time (dynamic schedule), false for a
    /// static assignment.
    pub const fn is_dynamic(&self) -> bool {
        match self.execution {
            Execution::Tile(tile) => tile.dynamic,
            Execution::Unit(unit) => matches!(unit.assignment, Assignment::Dynamic),
            _ => false,
        }
    }

    /// True if the length of a contiguous column segment is not a multiple of the vector width. The
    /// tail vector of a segment overlaps the vector before it.
    pub const fn has_tail(&self) -> bool {
        self.has_any_tail() && matches!(self.lanes(), Vectorization::Parallel)
    }

    /// The same for segments of adjacent rows, if vectors run along rows. The overlapping rows are
    /// computed twice, with equal results.
    pub const fn has_row_tail(&self) -> bool {
        self.has_any_tail() && matches!(self.lanes(), Vectorization::Perpendicular)
    }

    const fn has_any_tail(&self) -> bool {
        match self.execution {
            Execution::Tile(tile) => tile.has_tail,
            Execution::Unit(unit) => !matches!(unit.tail, Tail::None),
            _ => false,
        }
    }

    /// True if only the last vector of a reduced row is a tail: see [`Tail::Row`].
    pub const fn has_one_tail(&self) -> bool {
        matches!(self.execution, Execution::Unit(unit) if matches!(unit.tail, Tail::Row))
    }

    /// The same team for vectors that divide the segments.
    pub const fn without_tail(mut self) -> Self {
        match &mut self.execution {
            Execution::Tile(tile) => tile.has_tail = false,
            Execution::Unit(unit) => unit.tail = Tail::None,
            _ => {}
        }
        self
    }

    /// Vectors per unit if a staged row or its column sums occupy them exactly, else `None`. Such a
    /// kernel checks no bounds.
    pub const fn exact_vectors(&self) -> Option<usize> {
        match self.guards {
            Guards::Exact(vectors) => Some(vectors),
            Guards::After(_) => None,
        }
    }

    /// Leading vectors that every unit has, and that need no bounds check.
    pub const fn unguarded_vectors(&self) -> usize {
        match self.guards {
            Guards::Exact(vectors) | Guards::After(vectors) => vectors,
        }
    }

    /// Steps of a row whose coefficients a unit keeps in registers from row to row; `None` unless
    /// they are [kept](ParamLoads::Kept).
    pub const fn params_kept(&self) -> Option<usize> {
        match self.execution {
            Execution::Unit(Unit {
                params: ParamLoads::Kept(steps),
                ..
            }) => Some(steps),
            _ => None,
        }
    }

    /// True if a unit loads parameters once per column segment: see [`ParamLoads::PerSegment`].
    pub const fn params_by_segment(&self) -> bool {
        matches!(
            self.execution,
            Execution::Unit(Unit {
                params: ParamLoads::PerSegment,
                ..
            })
        )
    }

    /// True if a tile folds statistics, scale and bias: see [`Tile::folded`].
    pub const fn folds(&self) -> bool {
        matches!(self.execution, Execution::Tile(tile) if tile.folded)
    }

    /// True if a unit prefetches its next row: see [`Unit::prefetch_next_row`].
    pub const fn prefetches_next_row(&self) -> bool {
        matches!(self.execution, Execution::Unit(unit) if unit.prefetch_next_row)
    }
}
