//! Outputs of the forward kernels, and the position of a row in them.

use cubecl::prelude::*;
use cubenorm_core::Blueprint;

use crate::epilogue::{AffineRow, Scalars, TypedAffine, affine_row};
use crate::forward::rotation::rotation_start;
use crate::memory::access::{Optional, optional_start, row_start};
use crate::memory::input::{SourceRow, TypedSource};
use crate::reduce::moments::RowStatistics;
use crate::schedule::item::Item;
use crate::types::{One, Types};

/// Output tensors.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Results<F: Float, O: Float, NY: Size, A: Float> {
    pub(crate) output: OwnedTensor<Vector<O, NY>>,
    pub(crate) sum: Optional<F, NY>,
    pub(crate) statistics: Optional<A, One>,
}

/// [`Results`] for the types of a kernel.
pub(crate) type TypedResults<T> =
    Results<<T as Types>::F, <T as Types>::O, <T as Types>::Output, <T as Types>::A>;

/// Tensors and scalars of a forward launch.
#[derive(CubeType)]
pub(crate) struct Bound<'a, T: Types> {
    pub(crate) source: &'a TypedSource<T>,
    pub(crate) affine: &'a TypedAffine<T>,
    pub(crate) results: &'a mut TypedResults<T>,
    pub(crate) scalars: &'a Scalars,
}

#[cube]
impl<'a, T: Types> Bound<'a, T> {
    pub(crate) fn new(
        source: &'a TypedSource<T>,
        affine: &'a TypedAffine<T>,
        results: &'a mut TypedResults<T>,
        scalars: &'a Scalars,
    ) -> Bound<'a, T> {
        Bound::<'a, T> {
            source,
            affine,
            results,
            scalars,
        }
    }

    pub(crate) fn epsilon(&self) -> T::A {
        self.scalars.epsilon.get::<T::A>()
    }
}

/// Position of a row in each output, and its parameters.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct ResultRow<A: Float, N: Size> {
    pub(crate) output: usize,
    pub(crate) sum: usize,
    pub(crate) affine: AffineRow<A, N>,
    /// Position in the rotation's table.
    pub(crate) rotation: usize,
    pub(crate) in_bounds: bool,
}

#[cube]
impl<A: Float, N: Size> ResultRow<A, N> {
    pub(crate) fn same(&self) -> ResultRow<A, N> {
        ResultRow::<A, N> {
            output: self.output,
            sum: self.sum,
            affine: self.affine.same(),
            rotation: self.rotation,
            in_bounds: self.in_bounds,
        }
    }
}

/// Locates an item's row in each output.
#[cube]
pub(crate) fn result_row<T: Types>(
    bound: &Bound<'_, T>,
    item: &Item,
    cols: usize,
    #[comptime] blueprint: Blueprint,
) -> ResultRow<T::A, T::N> {
    let first = item.row;
    let vectorization = comptime!(blueprint.team.lanes());
    let access = comptime!(blueprint.output);
    let sum = comptime!(writes_sum_here(blueprint).then_some(access));
    ResultRow::<T::A, T::N> {
        output: row_start::<T::O, T::Output>(
            &bound.results.output,
            first,
            cols,
            access,
            vectorization,
        ),
        sum: optional_start::<T::F, T::Output>(&bound.results.sum, first, cols, sum, vectorization),
        affine: affine_row::<T>(bound.affine, first, bound.epsilon(), blueprint),
        rotation: rotation_start::<T>(bound.affine, first, blueprint),
        in_bounds: item.in_bounds,
    }
}

/// True if the kernel that writes the output also writes the sum. If rows are split, the first
/// launch writes it, since that one binds fewer buffers.
pub(crate) fn writes_sum_here(blueprint: Blueprint) -> bool {
    blueprint.writes_sum && !blueprint.split()
}

/// Position, statistics and outputs of a row.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Row<A: Float, N: Size> {
    pub(crate) source: SourceRow<A, N>,
    pub(crate) statistics: RowStatistics<A, N>,
    pub(crate) result: ResultRow<A, N>,
}

/// Rows of one unit, normalized together.
#[derive(CubeType)]
pub(crate) struct UnitRows<A: Float, N: Size> {
    pub(crate) rows: Sequence<Row<A, N>>,
    /// Row to prefetch: the one after these.
    pub(crate) next: ComptimeOption<SourceRow<A, N>>,
}
