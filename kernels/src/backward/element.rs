//! Elementwise part of the backward pass.

use cubecl::prelude::*;
use cubenorm_core::{ActivationKind, BackwardBlueprint, StatisticsKind};

use crate::arrays::rows_in_arrays;
use crate::backward::gate::{gate_access, gate_of_step, gated};
use crate::epilogue::{
    ParamRow, ParamRows, Scalars, param, param_row, scale_of_step, scale_row, slope,
};
use crate::memory::access::{Optional, load, optional_start, row_start, step_offset};
use crate::schedule::partition::Partition;
use crate::types::{One, Types};

/// Input tensors of the backward kernels.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct BackwardSource<
    F: Float,
    R: Float,
    O: Float,
    P: Float,
    A: Float,
    NX: Size,
    NG: Size,
    NS: Size,
    NB: Size,
    NZ: Size,
    NY: Size,
> {
    pub(crate) input: OwnedTensor<Vector<F, NX>>,
    pub(crate) output_gradient: OwnedTensor<Vector<R, NG>>,
    pub(crate) saved: Optional<A, One>,
    pub(crate) scale: Optional<P, NS>,
    pub(crate) bias: Optional<P, NB>,
    pub(crate) gate: Optional<O, NZ>,
    /// Added to the input gradient, with the same strides.
    pub(crate) sum_gradient: Optional<F, NY>,
}

/// [`BackwardSource`] for the types of a kernel. The output gradient takes the residual's
/// place, the gate has the output's type and the mean's width.
pub(crate) type TypedBackwardSource<T> = BackwardSource<
    <T as Types>::F,
    <T as Types>::R,
    <T as Types>::O,
    <T as Types>::P,
    <T as Types>::A,
    <T as Types>::Input,
    <T as Types>::Residual,
    <T as Types>::Scale,
    <T as Types>::Bias,
    <T as Types>::Mean,
    <T as Types>::Output,
>;

/// Position of a row in each tensor, and its parameters that are constant along it.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct BackwardRow<A: Float, N: Size> {
    input: usize,
    output_gradient: usize,
    pub(crate) gate: usize,
    pub(crate) mean: ParamRow<A, N>,
    pub(crate) rstd: ParamRow<A, N>,
    pub(crate) scale: ParamRow<A, N>,
    bias: ParamRow<A, N>,
}

rows_in_arrays! {
    /// [`BackwardRow`]s of a tile.
    pub(crate) struct BackwardRows of BackwardRow {
        input: usize,
        output_gradient: usize,
        gate: usize,
    }
    with {
        mean: ParamRows,
        rstd: ParamRows,
        scale: ParamRows,
        bias: ParamRows,
    }
}

/// Locates a row.
#[cube]
pub(crate) fn backward_row<T: Types>(
    source: &TypedBackwardSource<T>,
    row: usize,
    partition: &Partition,
    #[comptime] blueprint: BackwardBlueprint,
) -> BackwardRow<T::A, T::N> {
    let cols = partition.cols;
    let vectorization = comptime!(blueprint.team.lanes());
    let saved = comptime!(blueprint.saved);
    let scale = comptime!(blueprint.scale);
    let bias = comptime!(blueprint.bias);
    let input = comptime!(blueprint.input);
    let gradient = comptime!(blueprint.output_gradient);
    BackwardRow::<T::A, T::N> {
        input: row_start::<T::F, T::Input>(&source.input, row, cols, input, vectorization),
        output_gradient: row_start::<T::R, T::Residual>(
            &source.output_gradient,
            row,
            cols,
            gradient,
            vectorization,
        ),
        gate: optional_start::<T::O, T::Mean>(
            &source.gate,
            row,
            cols,
            comptime!(gate_access(&blueprint)),
            vectorization,
        ),
        mean: param_row::<T::A, One, T::A, T::N>(&source.saved, row, saved, 0usize, vectorization),
        rstd: param_row::<T::A, One, T::A, T::N>(&source.saved, row, saved, 1usize, vectorization),
        scale: scale_row::<T::P, T::Scale, T::A, T::N>(
            &source.scale,
            row,
            scale,
            blueprint.offset,
            vectorization,
        ),
        bias: param_row::<T::P, T::Bias, T::A, T::N>(
            &source.bias,
            row,
            bias,
            0usize,
            vectorization,
        ),
    }
}

/// Segment that begins with a step, as a row with one scale and one bias.
#[cube]
pub(crate) fn segment_of_row<T: Types>(
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> BackwardRow<T::A, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    let (input, dy) = comptime!((blueprint.input, blueprint.output_gradient));
    let params = params::<T>(source, row, step, blueprint);
    let gate = if comptime!(blueprint.gate.is_some()) {
        let (tensor, access) = (
            source.gate.as_ref().unwrap(),
            comptime!(gate_access(&blueprint).unwrap()),
        );
        step_offset::<T::O, T::Mean, T::N>(tensor, step, access, vectorization)
    } else {
        0usize.runtime()
    };
    BackwardRow::<T::A, T::N> {
        gate: row.gate + gate,
        input: row.input
            + step_offset::<T::F, T::Input, T::N>(&source.input, step, input, vectorization),
        output_gradient: row.output_gradient
            + step_offset::<T::R, T::Residual, T::N>(
                &source.output_gradient,
                step,
                dy,
                vectorization,
            ),
        mean: row.mean.same(),
        rstd: row.rstd.same(),
        scale: ParamRow::<T::A, T::N> {
            start: row.scale.start,
            constant: params.scale,
        },
        bias: ParamRow::<T::A, T::N> {
            start: row.bias.start,
            constant: params.bias,
        },
    }
}

/// Saved mean and reciprocal deviation of one row.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Saved<A: Float> {
    pub(crate) mean: A,
    pub(crate) rstd: A,
}

#[cube]
impl<A: Float, N: Size> BackwardRow<A, N> {
    /// Row advanced by a number of elements, if both tensors are contiguous along it.
    pub(crate) fn offset_by(&self, elements: usize) -> BackwardRow<A, N> {
        BackwardRow::<A, N> {
            input: self.input + elements,
            output_gradient: self.output_gradient + elements,
            gate: self.gate + elements,
            mean: self.mean.same(),
            rstd: self.rstd.same(),
            scale: self.scale.same(),
            bias: self.bias.same(),
        }
    }

    /// Saved statistics of a row whose lanes all belong to it.
    pub(crate) fn saved(&self) -> Saved<A> {
        Saved::<A> {
            mean: self.mean.constant.extract(0usize),
            rstd: self.rstd.constant.extract(0usize),
        }
    }
}

/// Values and gradients of one step.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Element<A: Float, N: Size> {
    /// Input of the forward pass.
    pub(crate) input: Vector<A, N>,
    /// Input minus the mean, if the normalization subtracts it.
    pub(crate) centered: Vector<A, N>,
    /// Normalized value (`xhat`).
    pub(crate) normalized: Vector<A, N>,
    /// Reciprocal deviation.
    pub(crate) rstd: Vector<A, N>,
    /// Gradient before the activation (`dz`).
    pub(crate) dz: Vector<A, N>,
    /// Gradient before the scale (`wdy`).
    pub(crate) wdy: Vector<A, N>,
}

/// Scale with its offset, and bias of a step. Absent parameters are 0 and unused.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Params<A: Float, N: Size> {
    pub(crate) scale: Vector<A, N>,
    pub(crate) bias: Vector<A, N>,
}

/// Loads the parameters of a step.
#[cube]
pub(crate) fn params<T: Types>(
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> Params<T::A, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    let access = comptime!(blueprint.scale);
    Params::<T::A, T::N> {
        scale: scale_of_step::<T::P, T::Scale, T::A, T::N>(
            &source.scale,
            &row.scale,
            step,
            access,
            blueprint.offset,
            vectorization,
        ),
        bias: bias::<T>(source, row, step, blueprint),
    }
}

/// Loads the bias of a step.
#[cube]
pub(crate) fn bias<T: Types>(
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> Vector<T::A, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    let access = comptime!(blueprint.bias);
    param::<T::P, T::Bias, T::A, T::N>(&source.bias, &row.bias, step, access, vectorization)
}

/// Input, output gradient and gate of a step, in the accumulation type or their storage types.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Step<E: Float, D: Float, G: Float, N: Size> {
    pub(crate) input: Vector<E, N>,
    /// Output gradient (`dy`).
    pub(crate) dy: Vector<D, N>,
    /// Gate. An absent one is 0 and unused.
    pub(crate) gate: Vector<G, N>,
}

/// [`Step`] in the accumulation type of a kernel.
pub(crate) type WideStep<T> =
    Step<<T as Types>::A, <T as Types>::A, <T as Types>::A, <T as Types>::N>;

/// A step of these vectors.
#[cube]
pub(crate) fn step<E: Float, D: Float, G: Float, N: Size>(
    input: Vector<E, N>,
    dy: Vector<D, N>,
    gate: Vector<G, N>,
) -> Step<E, D, G, N> {
    Step::<E, D, G, N> { input, dy, gate }
}

/// Loads a step.
#[cube]
pub(crate) fn read_step<T: Types, E: Float, D: Float, G: Float>(
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> Step<E, D, G, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    let access = comptime!(blueprint.input);
    let input =
        load::<T::F, T::Input, E, T::N>(&source.input, row.input, step, access, vectorization);
    let access = comptime!(blueprint.output_gradient);
    let dy = load::<T::R, T::Residual, D, T::N>(
        &source.output_gradient,
        row.output_gradient,
        step,
        access,
        vectorization,
    );
    Step::<E, D, G, T::N> {
        input,
        dy,
        gate: gate_of_step::<T, G>(source, row, step, blueprint),
    }
}

/// Recomputes the normalized value of a step, and its gradients.
#[cube]
pub(crate) fn element<T: Types>(
    read: &WideStep<T>,
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    params: &Params<T::A, T::N>,
    step: usize,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Element<T::A, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    let kind = comptime!(blueprint.statistics);
    let read = gated::<T>(read, scalars, blueprint);
    let (input, dy) = (read.input, read.dy);
    let access = comptime!(blueprint.saved);
    let mean =
        param::<T::A, One, T::A, T::N>(&source.saved, &row.mean, step, access, vectorization);
    let rstd =
        param::<T::A, One, T::A, T::N>(&source.saved, &row.rstd, step, access, vectorization);
    let takes_mean_off = comptime!(kind.reduces_mean() || kind == StatisticsKind::Provided);
    let divides = comptime!(kind.reduces_deviation() || kind == StatisticsKind::Provided);
    let centered = if takes_mean_off { input - mean } else { input };
    let normalized = if divides { centered * rstd } else { centered };
    let has_scale = comptime!(blueprint.scale.is_some());
    let dz = if comptime!(blueprint.result_activation() == ActivationKind::Identity) {
        dy
    } else {
        let scaled = if has_scale {
            normalized * params.scale
        } else {
            normalized
        };
        let argument = if comptime!(blueprint.bias.is_some()) {
            scaled + params.bias
        } else {
            scaled
        };
        dy * slope::<T::A, T::N>(
            argument,
            scalars.alpha.get::<T::A>(),
            scalars.beta.get::<T::A>(),
            blueprint.activation,
        )
    };
    let wdy = if has_scale { dz * params.scale } else { dz };
    Element::<T::A, T::N> {
        input,
        centered,
        normalized,
        rstd,
        dz,
        wdy,
    }
}
