//! The launch that joins strands, which forward and backward have in common.

use cubecl::ir::{AddressType, ElemType};
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{Access, AccessBlueprint, Grid, Join};

use super::args::{cube_count, cube_dim, flat_arg, optional_arg, partition};
use crate::strategy::strands::{JoinShape, join};

/// What the first of two launches has left of strands.
pub(crate) struct Strands<'a> {
    pub(crate) client: &'a Client,
    pub(crate) handle: &'a Handle,
    pub(crate) elements: usize,
    /// How it was cut.
    pub(crate) grid: &'a Grid,
    /// Whether means are relative to shifts, which it has left too.
    pub(crate) shifts: bool,
    /// What sums are weighted with: a number for each strand.
    pub(crate) scale: Option<(&'a Handle, &'a Access, AccessBlueprint)>,
    pub(crate) accumulation: ElemType,
    pub(crate) param_dtype: ElemType,
    pub(crate) address: AddressType,
}

impl Strands<'_> {
    /// What the second launch needs of each row.
    pub(crate) fn join(&self, plan: &Join) -> Handle {
        let bytes = plan.workspace * self.accumulation.size();
        let joined = self.client.empty(bytes);
        let scale = self.scale.map(|(handle, access, _)| (handle, access));
        let shape = JoinShape {
            team: plan.team,
            shifts: self.shifts,
            scale: self.scale.map(|(_, _, blueprint)| blueprint),
        };
        // Safety: of what it reads the launch before has written every number, of each strand of each part; `scale`
        // addresses a number for each strand, and what is written has room for all of a row, for as many rows as the
        // plan has row groups of one.
        unsafe {
            join::launch_unchecked(
                self.client,
                cube_count(&plan.grid),
                cube_dim(&plan.grid),
                self.address,
                flat_arg(self.handle, self.elements),
                optional_arg(
                    scale.map(|(handle, _)| handle),
                    scale.map(|(_, access)| access),
                )
                .into(),
                flat_arg(&joined, plan.workspace),
                plan.grid.groups,
                partition(self.grid, 0),
                shape,
                self.accumulation,
                self.param_dtype,
            );
        }
        joined
    }
}
