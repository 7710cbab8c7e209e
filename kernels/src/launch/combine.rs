//! Launch that combines per-channel statistics into group statistics, forward and backward.

use cubecl::ir::{AddressType, ElemType};
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{Access, AccessBlueprint, Combine, Grid, Kernel, Offset};

use super::args::{cube_count, cube_dim, flat_arg, optional_arg, partition};
use super::memory::{allocate_bytes, launched};
use crate::reduce::channels::{CombineShape, combine};

/// Partial statistics of channels from the first launch, and arguments to combine them.
pub(crate) struct Segments<'a> {
    pub(crate) client: &'a Client,
    pub(crate) handle: &'a Handle,
    pub(crate) elements: usize,
    /// Grid of the first launch.
    pub(crate) grid: &'a Grid,
    /// True if means are relative to shifts, which the workspace contains too.
    pub(crate) shifts: bool,
    /// Scale that weights the sums, one value per channel. None: sums are not weighted.
    pub(crate) scale: Option<(&'a Handle, &'a Access, AccessBlueprint)>,
    /// Added to the scale.
    pub(crate) offset: Offset,
    pub(crate) accumulation: ElemType,
    pub(crate) param_dtype: ElemType,
    pub(crate) address: AddressType,
}

impl Segments<'_> {
    /// Combines the statistics. Returns the workspace of group statistics.
    pub(crate) fn combine(&self, plan: &Combine) -> Handle {
        let bytes = plan.workspace * self.accumulation.size();
        let combined = allocate_bytes(self.client, bytes);
        let scale = self.scale.map(|(handle, access, _)| (handle, access));
        let shape = CombineShape {
            team: plan.team,
            shifts: self.shifts,
            scale: self.scale.map(|(_, _, blueprint)| blueprint),
            offset: self.offset,
        };
        // SAFETY:
        // 1. The plan's footprint bounds every access. Both workspaces have its sizes.
        // 2. The previous launch has written all partial statistics (parts x channels).
        // 3. `scale` holds one value per channel, and its layout was checked against its buffer.
        unsafe {
            combine::launch_unchecked(
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
                flat_arg(&combined, plan.workspace),
                plan.grid.groups,
                partition(self.grid, 0),
                shape,
                self.accumulation,
                self.param_dtype,
            );
        }
        launched(self.client, Kernel::Combine);
        combined
    }
}
