//! Scale, bias and provided statistics.

use cubecl::prelude::*;
use cubenorm_core::{
    AccessBlueprint, Blueprint, LoadMode, Offset, Rounding, StatisticsKind, Vectorization,
};

use crate::arrays::rows_in_arrays;
use crate::memory::access::{
    Optional, load, load_of_rows, load_two_segments, optional_row, round_to_stored,
};
use crate::reduce::moments::{RowStatistics, reciprocal_deviation};
use crate::types::{One, Types};
use crate::vector::offset_scale;

/// Parameters that broadcast to the input.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Affine<P: Float, G: Float, NS: Size, NB: Size, NM: Size, NV: Size> {
    pub(crate) scale: Optional<P, NS>,
    pub(crate) bias: Optional<P, NB>,
    pub(crate) mean: Optional<G, NM>,
    pub(crate) variance: Optional<G, NV>,
    /// Cosines and sines of a rotation. No means are provided then.
    pub(crate) rotation: Optional<G, NM>,
    /// The given scale of a quantised output.
    pub(crate) codes_scale: Optional<G, One>,
}

/// [`Affine`] for the types of a kernel.
pub(crate) type TypedAffine<T> = Affine<
    <T as Types>::P,
    <T as Types>::G,
    <T as Types>::Scale,
    <T as Types>::Bias,
    <T as Types>::Mean,
    <T as Types>::Variance,
>;

/// Position of a row in each parameter, and the values that are constant along it.
///
/// Constant parameters are loaded once per row. The compiler cannot hoist these loads, since the
/// output may alias them.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct AffineRow<A: Float, N: Size> {
    scale: ParamRow<A, N>,
    bias: ParamRow<A, N>,
    mean: ParamRow<A, N>,
    /// Reciprocal deviation if it is constant along the row, else the position of the variance.
    variance: ParamRow<A, N>,
}

/// Position of a row in one parameter, and its value if it is constant along the row.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct ParamRow<A: Float, N: Size> {
    pub(crate) start: usize,
    pub(crate) constant: Vector<A, N>,
}

#[cube]
impl<A: Float, N: Size> ParamRow<A, N> {
    pub(crate) fn same(&self) -> ParamRow<A, N> {
        ParamRow::<A, N> {
            start: self.start,
            constant: self.constant,
        }
    }
}

#[cube]
impl<A: Float, N: Size> AffineRow<A, N> {
    pub(crate) fn same(&self) -> AffineRow<A, N> {
        AffineRow::<A, N> {
            scale: self.scale.same(),
            bias: self.bias.same(),
            mean: self.mean.same(),
            variance: self.variance.same(),
        }
    }
}

rows_in_arrays! {
    /// [`ParamRow`]s of a tile.
    pub(crate) struct ParamRows of ParamRow {
        start: usize,
        constant: Vector<A, N>,
    }
}

rows_in_arrays! {
    /// [`AffineRow`]s of a tile.
    pub(crate) struct AffineRows of AffineRow {}
    with {
        scale: ParamRows,
        bias: ParamRows,
        mean: ParamRows,
        variance: ParamRows,
    }
}

/// Folded normalization and affine of a row: `(x - from) * factor + summand`.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct FoldedRow<A: Float, N: Size> {
    from: Vector<A, N>,
    factor: Vector<A, N>,
    summand: Vector<A, N>,
}

#[cube]
impl<A: Float, N: Size> FoldedRow<A, N> {
    pub(crate) fn apply(
        &self,
        value: Vector<A, N>,
        #[comptime] blueprint: Blueprint,
    ) -> Vector<A, N> {
        let scaled = (value - self.from) * self.factor;
        // Skips an absent summand: adding 0 would turn -0 into 0.
        if comptime!(blueprint.bias.is_some() || blueprint.statistics.reduces_mean()) {
            scaled + self.summand
        } else {
            scaled
        }
    }
}

rows_in_arrays! {
    /// [`FoldedRow`]s of a tile.
    pub(crate) struct FoldedRows of FoldedRow {
        from: Vector<A, N>,
        factor: Vector<A, N>,
        summand: Vector<A, N>,
    }
}

/// Folds statistics and parameters that are constant along a row. The mean is relative to `shift`.
///
/// `from` is the rounded mean, so a common offset of all elements cancels before rounding.
/// `summand` contains its rounding error.
#[cube]
pub(crate) fn folded_row<A: Float, N: Size>(
    row: &AffineRow<A, N>,
    shift: Vector<A, N>,
    statistics: &RowStatistics<A, N>,
    #[comptime] blueprint: Blueprint,
) -> FoldedRow<A, N> {
    let kind = comptime!(blueprint.statistics);
    let is_provided = comptime!(kind == StatisticsKind::Provided);
    let zero = Vector::<A, N>::new(A::new(0.0));
    let mut from = zero;
    let mut factor = Vector::<A, N>::new(A::new(1.0));
    let mut summand = zero;
    if is_provided {
        from = row.mean.constant;
        factor = row.variance.constant;
    } else if comptime!(kind.reduces_deviation()) {
        factor = statistics.rstd;
    }
    if comptime!(blueprint.scale.is_some()) {
        factor *= row.scale.constant;
    }
    if comptime!(blueprint.bias.is_some()) {
        summand = row.bias.constant;
    }
    if comptime!(kind.reduces_mean()) {
        from = shift + statistics.mean;
        let rest = statistics.mean - (from - shift);
        // An infinite mean has no rounding error: the difference of infinities would be NaN.
        let rest = select_many(rest.equal(&rest), rest, zero);
        summand -= rest * factor;
    }
    FoldedRow::<A, N> {
        from,
        factor,
        summand,
    }
}

/// True if a parameter is present and constant along a row.
pub(crate) fn is_constant(access: Option<AccessBlueprint>) -> bool {
    access.is_some_and(|access| access.col_dims == 0)
}

/// Locates a row of a parameter, at `ahead` elements behind its start.
#[cube]
pub(crate) fn param_row<P: Float, S: Size, A: Float, N: Size>(
    tensor: &Optional<P, S>,
    row: usize,
    #[comptime] access: Option<AccessBlueprint>,
    #[comptime] ahead: usize,
    #[comptime] vectorization: Vectorization,
) -> ParamRow<A, N> {
    let start = ahead + optional_row::<P, S>(tensor, row, access, vectorization);
    let constant = if comptime!(is_constant(access)) {
        let tensor = tensor.as_ref().unwrap();
        let access = comptime!(access.unwrap());
        if comptime!(access.mode == LoadMode::RowScalar) {
            load_of_rows::<P, S, A, N>(tensor, row, access, ahead)
        } else {
            load::<P, S, A, N>(tensor, start, 0usize.runtime(), access, vectorization)
        }
    } else {
        Vector::new(A::new(0.0))
    };
    ParamRow::<A, N> { start, constant }
}

/// Loads a parameter at a step; 0 if it is absent.
#[cube]
pub(crate) fn param<P: Float, S: Size, A: Float, N: Size>(
    tensor: &Optional<P, S>,
    row: &ParamRow<A, N>,
    step: usize,
    #[comptime] access: Option<AccessBlueprint>,
    #[comptime] vectorization: Vectorization,
) -> Vector<A, N> {
    if comptime!(access.is_none() || is_constant(access)) {
        row.constant
    } else {
        let tensor = tensor.as_ref().unwrap();
        load::<P, S, A, N>(
            tensor,
            row.start,
            step,
            comptime!(access.unwrap()),
            vectorization,
        )
    }
}

/// Locates a row of the scale. The constant includes the offset.
#[cube]
pub(crate) fn scale_row<P: Float, S: Size, A: Float, N: Size>(
    tensor: &Optional<P, S>,
    row: usize,
    #[comptime] access: Option<AccessBlueprint>,
    #[comptime] offset: Offset,
    #[comptime] vectorization: Vectorization,
) -> ParamRow<A, N> {
    let found = param_row::<P, S, A, N>(tensor, row, access, 0usize, vectorization);
    if comptime!(offset.is_zero() || !is_constant(access)) {
        found
    } else {
        ParamRow::<A, N> {
            start: found.start,
            constant: offset_scale::<A, N>(found.constant, offset),
        }
    }
}

/// Loads the scale at a step, with the offset.
#[cube]
pub(crate) fn scale_of_step<P: Float, S: Size, A: Float, N: Size>(
    tensor: &Optional<P, S>,
    row: &ParamRow<A, N>,
    step: usize,
    #[comptime] access: Option<AccessBlueprint>,
    #[comptime] offset: Offset,
    #[comptime] vectorization: Vectorization,
) -> Vector<A, N> {
    let scale = param::<P, S, A, N>(tensor, row, step, access, vectorization);
    if comptime!(access.is_none() || is_constant(access)) {
        scale
    } else {
        offset_scale::<A, N>(scale, offset)
    }
}

/// Locates a row of the parameters.
#[cube]
pub(crate) fn affine_row<T: Types>(
    affine: &TypedAffine<T>,
    row: usize,
    epsilon: T::A,
    #[comptime] blueprint: Blueprint,
) -> AffineRow<T::A, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    let (scale, bias) = comptime!((blueprint.scale, blueprint.bias));
    let (mean, access) = comptime!((blueprint.mean, blueprint.variance));
    let variance = param_row::<T::G, T::Variance, T::A, T::N>(
        &affine.variance,
        row,
        access,
        0usize,
        vectorization,
    );
    let constant = if comptime!(is_constant(access)) {
        factor_of::<T::A, T::N>(variance.constant, epsilon, blueprint)
    } else {
        variance.constant
    };
    AffineRow::<T::A, T::N> {
        scale: scale_row::<T::P, T::Scale, T::A, T::N>(
            &affine.scale,
            row,
            scale,
            blueprint.offset,
            vectorization,
        ),
        bias: param_row::<T::P, T::Bias, T::A, T::N>(
            &affine.bias,
            row,
            bias,
            0usize,
            vectorization,
        ),
        mean: param_row::<T::G, T::Mean, T::A, T::N>(
            &affine.mean,
            row,
            mean,
            0usize,
            vectorization,
        ),
        variance: ParamRow::<T::A, T::N> {
            start: variance.start,
            constant,
        },
    }
}

/// Parameters of one step: scale, bias and provided statistics.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct AffineStep<A: Float, N: Size> {
    scale: Vector<A, N>,
    bias: Vector<A, N>,
    pub(crate) mean: Vector<A, N>,
    pub(crate) rstd: Vector<A, N>,
}

/// Loads the parameters of one step.
#[cube]
pub(crate) fn affine_step<T: Types>(
    affine: &TypedAffine<T>,
    row: &AffineRow<T::A, T::N>,
    step: usize,
    epsilon: T::A,
    #[comptime] blueprint: Blueprint,
) -> AffineStep<T::A, T::N> {
    let vectorization = comptime!(blueprint.team.lanes());
    let scale = comptime!(blueprint.scale);
    let bias = comptime!(blueprint.bias);
    let mean = comptime!(blueprint.mean);
    AffineStep::<T::A, T::N> {
        scale: scale_of_step::<T::P, T::Scale, T::A, T::N>(
            &affine.scale,
            &row.scale,
            step,
            scale,
            blueprint.offset,
            vectorization,
        ),
        bias: param::<T::P, T::Bias, T::A, T::N>(
            &affine.bias,
            &row.bias,
            step,
            bias,
            vectorization,
        ),
        mean: param::<T::G, T::Mean, T::A, T::N>(
            &affine.mean,
            &row.mean,
            step,
            mean,
            vectorization,
        ),
        rstd: rstd_of_step::<T>(affine, &row.variance, step, epsilon, blueprint),
    }
}

/// Folded parameters of each step, if a unit [keeps](cubenorm_core::ParamLoads::Kept) them for all
/// rows.
#[cube]
pub(crate) fn kept_params<T: Types>(
    affine: &TypedAffine<T>,
    epsilon: T::A,
    #[comptime] blueprint: Blueprint,
) -> Sequence<FoldedRow<T::A, T::N>> {
    let mut kept = Sequence::<FoldedRow<T::A, T::N>>::new();
    if comptime!(blueprint.team.params_kept().is_some()) {
        let any = affine_row::<T>(affine, 0usize.runtime(), epsilon, blueprint);
        #[unroll]
        for step in 0..comptime!(blueprint.team.params_kept().unwrap_or(0)) {
            let own = affine_step::<T>(affine, &any, step, epsilon, blueprint);
            let mut factor = own.rstd;
            if comptime!(blueprint.scale.is_some()) {
                factor *= own.scale;
            }
            kept.push(FoldedRow::<T::A, T::N> {
                from: own.mean,
                factor,
                summand: own.bias,
            });
        }
    }
    kept
}

/// Factor of a centred value: the reciprocal deviation of a provided variance, or the `alpha` of
/// dynamic tanh.
#[cube]
fn factor_of<A: Float, N: Size>(
    given: Vector<A, N>,
    epsilon: A,
    #[comptime] blueprint: Blueprint,
) -> Vector<A, N> {
    if comptime!(blueprint.statistics == StatisticsKind::DynamicTanh) {
        given
    } else {
        reciprocal_deviation::<A, N>(given, epsilon, blueprint.epsilon_in_sqrt)
    }
}

/// Reciprocal deviation of a step, from the provided variance. If it is constant along segments,
/// two values are computed instead of all lanes.
///
/// `7 x 7 batch norm bf16 H100: 1.27x faster`
#[cube]
fn rstd_of_step<T: Types>(
    affine: &TypedAffine<T>,
    row: &ParamRow<T::A, T::N>,
    step: usize,
    epsilon: T::A,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    let access = comptime!(blueprint.variance);
    if comptime!(access.is_none() || is_constant(access)) {
        row.constant
    } else {
        let tensor = affine.variance.as_ref().unwrap();
        let access = comptime!(access.unwrap());
        let start = row.start;
        if comptime!(access.mode == LoadMode::Segments) {
            let mut segments =
                load_two_segments::<T::G, T::Variance, T::A, T::N>(tensor, start, step, access);
            segments.here = factor_of::<T::A, One>(segments.here, epsilon, blueprint);
            segments.there = factor_of::<T::A, One>(segments.there, epsilon, blueprint);
            segments.lanes::<T::N>()
        } else {
            let vectorization = comptime!(blueprint.team.lanes());
            let variance =
                load::<T::G, T::Variance, T::A, T::N>(tensor, start, step, access, vectorization);
            factor_of::<T::A, T::N>(variance, epsilon, blueprint)
        }
    }
}

/// `value * scale + bias`, without absent parameters. The value is rounded first, if requested.
#[cube]
pub(crate) fn transform<T: Types>(
    value: Vector<T::A, T::N>,
    step: &AffineStep<T::A, T::N>,
    #[comptime] blueprint: Blueprint,
) -> Vector<T::A, T::N> {
    let value = match comptime!(blueprint.rounding) {
        Rounding::None => value,
        Rounding::BeforeScale => {
            round_to_stored::<T::O, T::Output, T::A, T::N>(value, blueprint.output)
        }
    };
    let scaled = if comptime!(blueprint.scale.is_some()) {
        value * step.scale
    } else {
        value
    };
    if comptime!(blueprint.bias.is_some()) {
        scaled + step.bias
    } else {
        scaled
    }
}
