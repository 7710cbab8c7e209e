//! Reader of a row: the input, with the residual if it is added or multiplied before normalizing.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, ResidualPlace, Staging, Team, Vectorization};

use crate::arrays::rows_in_arrays;
use crate::epilogue::{Scalars, activate};
use crate::memory::access::{Optional, load, optional_start, prefetch_step, row_start};
use crate::schedule::partition::Partition;
use crate::types::Types;
use crate::vector::lane_sum;

/// Input tensors of the forward kernels.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Source<F: Float, NX: Size, R: Float, NR: Size> {
    pub(crate) input: OwnedTensor<Vector<F, NX>>,
    pub(crate) residual: Optional<R, NR>,
}

/// [`Source`] for the types of a kernel.
pub(crate) type TypedSource<T> =
    Source<<T as Types>::F, <T as Types>::Input, <T as Types>::R, <T as Types>::Residual>;

/// Position of a row in each source tensor, and the shift of its statistics.
///
/// Statistics use the shifted-data algorithm: they are accumulated from `x - shift`. The shift is
/// the mean of the first elements, or of the whole row if several units stage it. It is 0 if that
/// mean is not finite. A large common offset then cancels before rounding. A compensated mean (two
/// numbers) is no alternative: shader compilers simplify such sums to zero.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct SourceRow<A: Float, N: Size> {
    pub(crate) input: usize,
    pub(crate) residual: usize,
    pub(crate) shift: Vector<A, N>,
}

#[cube]
impl<A: Float, N: Size> SourceRow<A, N> {
    /// Position advanced by a number of elements in each tensor.
    pub(crate) fn offset_by(&self, input: usize, residual: usize) -> SourceRow<A, N> {
        SourceRow::<A, N> {
            input: self.input + input,
            residual: self.residual + residual,
            shift: self.shift,
        }
    }
}

rows_in_arrays! {
    /// [`SourceRow`]s of a tile.
    pub(crate) struct SourceRows of SourceRow {
        input: usize,
        residual: usize,
        shift: Vector<A, N>,
    }
}

/// Minimum number of elements that the shift is the mean of. Few, because every unit of a team sums
/// them.
const SAMPLE: usize = 4;

/// Steps that contain [`SAMPLE`] elements of a row.
pub(crate) fn sample_steps(team: Team) -> usize {
    match team.lanes() {
        Vectorization::Parallel => SAMPLE.div_ceil(team.vector),
        Vectorization::Perpendicular => SAMPLE,
    }
}

/// First element of each row, broadcast to all lanes of the row.
#[cube]
pub(crate) fn first_lane<A: Float, N: Size>(
    first: Vector<A, N>,
    #[comptime] team: Team,
) -> Vector<A, N> {
    match comptime!(team.lanes()) {
        Vectorization::Parallel => Vector::new(first.extract(0usize)),
        Vectorization::Perpendicular => first,
    }
}

/// A mean as a shift, or 0 if it is not finite: subtracting infinity would turn all elements into
/// infinities.
#[cube]
pub(crate) fn number_or_zero<A: Float, N: Size>(mean: Vector<A, N>) -> Vector<A, N> {
    let largest = Vector::<A, N>::new(A::max_value());
    let is_number = mean.abs().less_equal(&largest);
    select_many(is_number, mean, Vector::new(A::new(0.0)))
}

/// Locates a row, with a shift of 0.
#[cube]
pub(crate) fn source_start<T: Types>(
    source: &Source<T::F, T::Input, T::R, T::Residual>,
    row: usize,
    cols: usize,
    #[comptime] blueprint: Blueprint,
) -> SourceRow<T::A, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    let access = comptime!(blueprint.input);
    let input = row_start::<T::F, T::Input>(&source.input, row, cols, access, vectorization);
    let access = comptime!(blueprint.residual());
    let residual =
        optional_start::<T::R, T::Residual>(&source.residual, row, cols, access, vectorization);
    SourceRow::<T::A, T::N> {
        input,
        residual,
        shift: Vector::new(T::A::new(0.0)),
    }
}

/// Locates a row and samples its shift.
#[cube]
pub(crate) fn source_row<T: Types>(
    source: &Source<T::F, T::Input, T::R, T::Residual>,
    row: usize,
    partition: &Partition,
    #[comptime] blueprint: Blueprint,
) -> SourceRow<T::A, T::N> {
    let (steps, cols) = (partition.steps, partition.cols);
    let vectorization = comptime!(blueprint.team.lanes());
    let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
    let start = source_start::<T>(source, row, cols, blueprint);
    // A staged row samples its shift from the staged elements, unless cubes share it.
    let is_sampled =
        comptime!(blueprint.staging == Staging::Reload || blueprint.team.cluster_size() > 1);
    if comptime!(blueprint.shifts() && is_sampled) {
        // First element, or the mean of the first few. The first element suffices for f16/bf16 rows
        // that one unit owns, since later blocks use the mean so far.
        //
        // `768 f16 AVX-512, first element vs. first vector's mean: 1.11x faster`
        let is_first = comptime!(blueprint.shifts_by_first());
        let sampled = comptime!(match is_first {
            true => 1,
            false => sample_steps(blueprint.team),
        });
        let mut sum = zero;
        #[unroll]
        for i in 0..sampled {
            // A row with fewer steps repeats its last step.
            sum += read::<T>(source, &start, min(i.runtime(), steps - 1), blueprint);
        }
        let mean = if is_first {
            first_lane::<T::A, T::N>(sum, blueprint.team)
        } else if comptime!(vectorization == Vectorization::Parallel) {
            let count = T::A::new(comptime!((sampled * blueprint.team.vector) as f32));
            Vector::<T::A, T::N>::new(lane_sum::<T::A, T::N>(sum, blueprint.team) / count)
        } else {
            sum / Vector::<T::A, T::N>::new(T::A::new(comptime!(sampled as f32)))
        };
        SourceRow::<T::A, T::N> {
            input: start.input,
            residual: start.residual,
            shift: number_or_zero::<T::A, T::N>(mean),
        }
    } else {
        start
    }
}

/// Reads one step: the input, plus the residual or times a gate.
#[cube]
pub(crate) fn read<T: Types>(
    source: &Source<T::F, T::Input, T::R, T::Residual>,
    row: &SourceRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    let value = read_input::<T, T::A>(source, row, step, blueprint);
    if comptime!(blueprint.residual_at(ResidualPlace::Input).is_some()) {
        value + residual::<T>(source, row, step, blueprint)
    } else if comptime!(blueprint.residual_at(ResidualPlace::InputGate).is_some()) {
        let gate = residual::<T>(source, row, step, blueprint);
        // Activations with parameters are refused here.
        let zero = T::A::new(0.0);
        value * activate::<T::A, T::N>(gate, zero, zero, blueprint.activation)
    } else {
        value
    }
}

/// Reads one step of the input, in the accumulation type or the storage type.
#[cube]
pub(crate) fn read_input<T: Types, E: Float>(
    source: &Source<T::F, T::Input, T::R, T::Residual>,
    row: &SourceRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: Blueprint,
) -> Vector<E, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    load::<T::F, T::Input, E, T::N>(
        &source.input,
        row.input,
        step,
        blueprint.input,
        vectorization,
    )
}

/// Prefetches one step of input and residual.
#[cube]
pub(crate) fn prefetch_elements<T: Types>(
    source: &Source<T::F, T::Input, T::R, T::Residual>,
    row: &SourceRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: Blueprint,
) {
    let vectorization = comptime!(blueprint.team.lanes());
    prefetch_step::<T::F, T::Input, T::N>(
        &source.input,
        row.input,
        step,
        blueprint.input,
        vectorization,
    );
    if comptime!(blueprint.residual.is_some()) {
        let residual = source.residual.as_ref().unwrap();
        let access = comptime!(blueprint.residual().unwrap());
        prefetch_step::<T::R, T::Residual, T::N>(
            residual,
            row.residual,
            step,
            access,
            vectorization,
        );
    }
}

/// Loads one step of a residual or gate that follows the normalization; zeros without one.
#[cube]
pub(crate) fn read_last<T: Types>(
    source: &Source<T::F, T::Input, T::R, T::Residual>,
    row: &SourceRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    if comptime!(blueprint.combines_last()) {
        residual::<T>(source, row, step, blueprint)
    } else {
        Vector::new(T::A::new(0.0))
    }
}

/// Adds a residual that follows the normalization, or multiplies by a gate that does.
#[cube]
pub(crate) fn combine_last<A: Float, N: Size>(
    value: Vector<A, N>,
    last: Vector<A, N>,
    scalars: &Scalars,
    #[comptime] blueprint: Blueprint,
) -> Vector<A, N> {
    if comptime!(blueprint.residual_at(ResidualPlace::Output).is_some()) {
        value + last
    } else if comptime!(blueprint.residual_at(ResidualPlace::OutputGate).is_some()) {
        let (alpha, beta) = (scalars.alpha.get::<A>(), scalars.beta.get::<A>());
        value * activate::<A, N>(last, alpha, beta, blueprint.activation)
    } else {
        value
    }
}

/// Loads one step of the residual.
#[cube]
fn residual<T: Types>(
    source: &Source<T::F, T::Input, T::R, T::Residual>,
    row: &SourceRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    let residual = source.residual.as_ref().unwrap();
    let access = comptime!(blueprint.residual().unwrap());
    let vectorization = comptime!(blueprint.team.lanes());
    load::<T::R, T::Residual, T::A, T::N>(residual, row.residual, step, access, vectorization)
}

/// Subtracts the shift if statistics use one.
#[cube]
pub(crate) fn shifted<A: Float, N: Size>(
    value: Vector<A, N>,
    row: &SourceRow<A, N>,
    #[comptime] blueprint: Blueprint,
) -> Vector<A, N> {
    if comptime!(blueprint.shifts()) {
        value - row.shift
    } else {
        value
    }
}
