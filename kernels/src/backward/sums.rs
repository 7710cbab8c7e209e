//! Row sums of the backward pass: the gradient, and the gradient times the normalized value.

use cubecl::prelude::*;
use cubenorm_core::{BLOCK, BackwardBlueprint};

use crate::backward::element::{
    BackwardRow, Element, Params, TypedBackwardSource, element, params, read_step,
};
use crate::backward::stage::{TypedStagedRow, TypedStagedScale, staged_params};
use crate::epilogue::Scalars;
use crate::reduce::moments::{Moments, Sums, same};
use crate::reduce::sum::{AddStep, AddStepExpand, Steps, SumShape, add_steps};
use crate::reduce::team::merge_team;
use crate::schedule::partition::Partition;
use crate::schedule::share::{Share, ends_segment, has_step, my_share, steps_within};
use crate::types::Types;
use crate::vector::lanes_from;

/// Reduces a unit's slice of its rows. `mean` holds `sum(g)` of each row, `m2` holds `sum(g *
/// xhat)`.
#[cube]
pub(crate) fn sum_up<T: Types>(
    source: &TypedBackwardSource<T>,
    rows: &Sequence<BackwardRow<T::A, T::N>>,
    share: &Share,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Sequence<Moments<T::A, T::N>> {
    let stride = comptime!(blueprint.team.size() as usize);
    let rows_per_unit = comptime!(blueprint.rows_per_unit);
    let shape = comptime!(SumShape::of_rows(rows_per_unit));
    let terms = Gradients::<T>::new(source, rows, scalars, 0usize.runtime(), blueprint);
    let tail = Gradients::<T>::new(source, rows, scalars, partition.overlap, blueprint);
    let mut total = Sums::<T::A, T::N>::zeros(rows_per_unit);
    let mut done = 0usize;
    while done < share.count {
        let mut end = min(done + BLOCK, share.count);
        if comptime!(blueprint.team.has_tail()) {
            end = done + steps_within(share.begin + done, end - done, partition);
        }
        let mut block = Sums::<T::A, T::N>::zeros(rows_per_unit);
        let steps = Steps {
            first: share.begin + done * stride,
            count: end - done,
            stride,
        };
        add_steps::<T::A, T::N, Gradients<'_, T>>(&terms, &steps, &mut block, shape);
        if comptime!(blueprint.team.has_tail()) {
            let step = share.begin + end;
            if end < share.count && ends_segment(step, partition) {
                tail.add_step(step, &mut block);
                end += 1;
            }
        }
        total.add_all(&block, rows_per_unit, true);
        done = end;
    }
    let mut sums = Sequence::<Moments<T::A, T::N>>::new();
    #[unroll]
    for r in 0..rows_per_unit {
        sums.push(Moments::<T::A, T::N> {
            count: T::A::cast_from(share.count),
            mean: total.plain[r],
            m2: total.products[r],
        });
    }
    sums
}

/// Reduces the tail vector of a segment, given as a row of its own, from the lane `from` on.
#[cube]
pub(crate) fn sum_up_tail<T: Types>(
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    from: usize,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Moments<T::A, T::N> {
    let step = 0usize.runtime();
    let params = params::<T>(source, row, step, blueprint);
    let read = read_step::<T, T::A, T::A, T::A>(source, row, step, blueprint);
    let element = element::<T>(&read, source, row, &params, step, scalars, blueprint);
    let gradient = lanes_from::<T::A, T::N>(summed::<T::A, T::N>(&element, blueprint), from);
    Moments::<T::A, T::N> {
        count: T::A::new(1.0),
        mean: gradient,
        m2: gradient * element.normalized,
    }
}

/// Summed gradients of a unit's rows, and their products with the normalized values. With a tail,
/// from the lane `first_lane` on.
#[derive(CubeType)]
struct Gradients<'a, T: Types> {
    source: &'a TypedBackwardSource<T>,
    rows: &'a Sequence<BackwardRow<T::A, T::N>>,
    scalars: &'a Scalars,
    first_lane: usize,
    #[cube(comptime)]
    blueprint: BackwardBlueprint,
}

#[cube]
impl<'a, T: Types> Gradients<'a, T> {
    fn new(
        source: &'a TypedBackwardSource<T>,
        rows: &'a Sequence<BackwardRow<T::A, T::N>>,
        scalars: &'a Scalars,
        first_lane: usize,
        #[comptime] blueprint: BackwardBlueprint,
    ) -> Gradients<'a, T> {
        Gradients::<'a, T> {
            source,
            rows,
            scalars,
            first_lane,
            blueprint,
        }
    }
}

#[cube]
impl<'a, T: Types> AddStep<T::A, T::N> for Gradients<'a, T> {
    fn add_step(&self, step: usize, sums: &mut Sums<T::A, T::N>) {
        let (source, scalars) = (self.source, self.scalars);
        let blueprint = self.blueprint;
        let shared = params::<T>(source, self.rows.index(0usize), step, blueprint);
        #[unroll]
        for r in 0..comptime!(blueprint.rows_per_unit) {
            let row = self.rows.index(r);
            let params = params_of::<T>(source, row, &shared, step, blueprint);
            let read = read_step::<T, T::A, T::A, T::A>(source, row, step, blueprint);
            let element = element::<T>(&read, source, row, &params, step, scalars, blueprint);
            let gradient = summed::<T::A, T::N>(&element, blueprint);
            let gradient = if comptime!(blueprint.team.has_tail()) {
                lanes_from::<T::A, T::N>(gradient, self.first_lane)
            } else {
                gradient
            };
            sums.plain[r] += gradient;
            sums.products[r] += gradient * element.normalized;
        }
    }
}

/// Parameters of a row: from the unit's first row if shared, else loaded.
#[cube]
pub(crate) fn params_of<T: Types>(
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    shared: &Params<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> Params<T::A, T::N> {
    if comptime!(blueprint.rows_per_unit == 1 || blueprint.shares_params()) {
        Params::<T::A, T::N> {
            scale: shared.scale,
            bias: shared.bias,
        }
    } else {
        params::<T>(source, row, step, blueprint)
    }
}

/// The summed gradient: before the scale (`wdy`) if the scale varies along the row, else after it
/// (`dz`).
#[cube]
pub(crate) fn summed<A: Float, N: Size>(
    element: &Element<A, N>,
    #[comptime] blueprint: BackwardBlueprint,
) -> Vector<A, N> {
    if comptime!(blueprint.weights()) {
        element.wdy
    } else {
        element.dz
    }
}

/// [`sum_up`] of a row in registers.
#[cube]
pub(crate) fn sum_up_staged<T: Types>(
    source: &TypedBackwardSource<T>,
    staged: &TypedStagedRow<T>,
    scale: &TypedStagedScale<T>,
    row: &BackwardRow<T::A, T::N>,
    share: &Share,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Sequence<Moments<T::A, T::N>> {
    let mut total = Sums::<T::A, T::N>::zeros(1usize);
    // Units with many elements multiply the sum by the reciprocal deviation, instead of each
    // element.
    let at_once = comptime!(scales_sum(&blueprint));
    #[unroll]
    for i in 0..comptime!(blueprint.staged_vectors()) {
        if has_step(i, share, blueprint.team) {
            let step = share.begin + i * comptime!(blueprint.team.size() as usize);
            let params = staged_params::<T>(scale, source, row, i, step, blueprint);
            let read = staged.get(i);
            let element = element::<T>(&read, source, row, &params, step, scalars, blueprint);
            let gradient = summed::<T::A, T::N>(&element, blueprint);
            total.plain[0] += gradient;
            if at_once {
                total.products[0] += gradient * element.centered;
            } else {
                total.products[0] += gradient * element.normalized;
            }
        }
    }
    let mut products = total.products[0];
    if at_once {
        products *= row.rstd.constant;
    }
    let mut sums = Sequence::<Moments<T::A, T::N>>::new();
    sums.push(Moments::<T::A, T::N> {
        count: T::A::cast_from(share.count),
        mean: total.plain[0],
        m2: products,
    });
    sums
}

/// Recomputes the sums of a whole cluster in one cube: part by part, added in the order of
/// [`wait`](crate::reduce::cluster::wait()).
#[cube]
pub(crate) fn sum_up_parts<T: Types>(
    source: &TypedBackwardSource<T>,
    rows: &Sequence<BackwardRow<T::A, T::N>>,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Moments<T::A, T::N> {
    let team = comptime!(blueprint.team);
    let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
    let mut all = Moments::<T::A, T::N> {
        count: T::A::new(0.0),
        mean: zero,
        m2: zero,
    };
    let mut part = 0usize;
    while part < comptime!(team.cluster_size() as usize) {
        let share = my_share(part, partition, team);
        let mine = if comptime!(blueprint.row.reloads()) {
            let sums = sum_up::<T>(source, rows, &share, partition, scalars, blueprint);
            same::<T::A, T::N>(sums.index(0usize))
        } else {
            let row = rows.index(0usize);
            sum_up_in_order::<T>(source, row, &share, partition, scalars, blueprint)
        };
        let of_part = merge_team::<T::A, T::N>(&mine, team);
        all.mean += of_part.mean;
        all.m2 += of_part.m2;
        part += 1;
    }
    all
}

/// [`sum_up_staged`] of a part that is read from memory. All units of a cube call this: it contains
/// barriers.
#[cube]
fn sum_up_in_order<T: Types>(
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    share: &Share,
    partition: &Partition,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Moments<T::A, T::N> {
    let zero = Vector::<T::A, T::N>::new(T::A::new(0.0));
    let mut plain = zero;
    let mut products = zero;
    let size = comptime!(blueprint.team.size() as usize);
    // As the cube that has the part sums it up, to the last bit.
    let at_once = comptime!(scales_sum(&blueprint));
    for i in 0..partition.steps_per_split.div_ceil(size) {
        if i < share.count {
            let step = share.begin + i * size;
            let params = params::<T>(source, row, step, blueprint);
            let read = read_step::<T, T::A, T::A, T::A>(source, row, step, blueprint);
            let element = element::<T>(&read, source, row, &params, step, scalars, blueprint);
            let gradient = summed::<T::A, T::N>(&element, blueprint);
            plain += gradient;
            if at_once {
                products += gradient * element.centered;
            } else {
                products += gradient * element.normalized;
            }
        }
        // Without this barrier the compiler hoists the loads of several steps. Units that hold a
        // row in registers would spill.
        sync_cube();
    }
    if at_once {
        products *= row.rstd.constant;
    }
    Moments::<T::A, T::N> {
        count: T::A::cast_from(share.count),
        mean: plain,
        m2: products,
    }
}

/// True if a unit multiplies its sum by the reciprocal deviation, instead of each element.
fn scales_sum(blueprint: &BackwardBlueprint) -> bool {
    blueprint.row.is_double() && blueprint.statistics.reduces_deviation()
}

/// Zeros in place of row sums that this kernel does not compute.
#[cube]
pub(crate) fn nothing<A: Float, N: Size>(
    #[comptime] rows_per_unit: usize,
) -> Sequence<Moments<A, N>> {
    let zero = Vector::<A, N>::new(A::new(0.0));
    let mut sums = Sequence::<Moments<A, N>>::new();
    #[unroll]
    for _ in 0..rows_per_unit {
        sums.push(Moments::<A, N> {
            count: A::new(0.0),
            mean: zero,
            m2: zero,
        });
    }
    sums
}
