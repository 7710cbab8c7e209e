//! Launch sizes, common to all kernels that process rows.

use super::team::{Team, Vectorization};

/// The sizes of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Units of a cube along x, y and z.
    pub cube_dim: [u32; 3],
    /// Cubes of a launch, all along x.
    pub cube_count: u32,
    /// Row groups: rows, or vectors of rows if lanes run along the kept axis.
    pub groups: usize,
    /// Steps through a row: vectors of columns, or columns if lanes run along the kept axis.
    pub steps: usize,
    /// Row groups that a team processes one after another. With a [dynamic schedule](Team::is_dynamic),
    /// row groups per request to the work counter.
    pub groups_per_team: usize,
    /// Parts that the steps of a row are split into; 1 if one launch processes whole rows.
    pub splits: usize,
    /// Steps of one part.
    pub steps_per_split: usize,
    /// Steps of a column segment that is contiguous with a tail, or has constant parameters; else
    /// steps of the row. If vectors run along rows and have a tail, row groups of a segment of
    /// rows.
    pub segment_steps: usize,
    /// Lanes that the tail vector of a segment shares with the vector before it.
    pub overlap: usize,
    /// Consecutive rows that share their statistics.
    pub segments: usize,
}

impl Grid {
    /// Teams of the launch, including idle ones.
    pub fn teams(&self, team: &Team) -> usize {
        let units: u32 = self.cube_dim.iter().product();
        (self.cube_count / team.cluster_size()) as usize * (units / team.size()) as usize
    }

    pub(super) fn describe(&self, team: &Team) -> String {
        let [x, y, z] = self.cube_dim;
        format!(
            "{} cubes of {x}x{y}x{z} units, vectors of {} along {}{}, {} row group{} per {}",
            self.cube_count,
            team.vector,
            match team.lanes() {
                Vectorization::Parallel => "the reduced axes",
                Vectorization::Perpendicular => "the kept axes",
            },
            match team.has_tail() || team.has_row_tail() {
                true => format!(
                    ", tails of {} vectors overlap by {}",
                    self.segment_steps, self.overlap
                ),
                false => String::new(),
            },
            self.groups_per_team,
            if self.groups_per_team == 1 { "" } else { "s" },
            if team.is_dynamic() { "chunk" } else { "team" },
        )
    }

    pub(super) fn describe_splits(&self, team: &Team) -> String {
        let of_peers = match team.cluster_size() {
            1 => "",
            _ => ", one per cube of a cluster",
        };
        let segments = match self.segments {
            1 => String::new(),
            segments => format!(", {segments} segments combined"),
        };
        match self.splits {
            1 => segments,
            splits => format!(
                ", each row in {splits} parts of {} steps{of_peers}{segments}",
                self.steps_per_split
            ),
        }
    }
}
