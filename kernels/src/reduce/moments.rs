//! Partial statistics of a row, and their merge.

use cubecl::prelude::*;
use cubenorm_core::{Blueprint, Merge, StatisticsKind, Team, Vectorization};

use crate::reduce::scale;
use crate::types::One;
use crate::vector::{lane_sum, lanes_from};

/// Partial statistics, lane by lane: count, mean and sum of squared deviations (`m2`) of the
/// elements seen so far.
///
/// Means are relative to the row's shift. The fields have other contents for other [`Merge`] rules:
///
/// - No mean: `m2` is the sum of squares, `mean` is 0.
/// - No deviation: `m2` is 0.
/// - Vector norm: `m2` is relative to a scale, which is in `mean`; see [`scale`].
/// - Backward pass: `mean` and `m2` are the two plain sums of a row.
///
/// `count` is meaningless after merges that do not weigh their parts.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Moments<A: Float, N: Size> {
    pub(crate) count: A,
    pub(crate) mean: Vector<A, N>,
    pub(crate) m2: Vector<A, N>,
}

#[cube]
pub(crate) fn same<A: Float, N: Size>(moments: &Moments<A, N>) -> Moments<A, N> {
    Moments::<A, N> {
        count: moments.count,
        mean: moments.mean,
        m2: moments.m2,
    }
}

/// Independent accumulators: sums of values, and sums of their products with others.
#[derive(CubeType)]
pub(crate) struct Sums<A: Float, N: Size> {
    pub(crate) plain: Array<Vector<A, N>>,
    pub(crate) products: Array<Vector<A, N>>,
}

#[cube]
impl<A: Float, N: Size> Sums<A, N> {
    pub(crate) fn zeros(#[comptime] count: usize) -> Self {
        let mut plain = Array::<Vector<A, N>>::new(count);
        let mut products = Array::<Vector<A, N>>::new(count);
        #[unroll]
        for i in 0..count {
            plain[i] = Vector::new(A::new(0.0));
            products[i] = Vector::new(A::new(0.0));
        }
        Sums::<A, N> { plain, products }
    }

    /// Adds the accumulators of `other`. Pass `unrolled` as false if they are in memory.
    pub(crate) fn add_all(
        &mut self,
        other: &Self,
        #[comptime] count: usize,
        #[comptime] unrolled: bool,
    ) {
        #[unroll(unrolled)]
        for i in 0..count {
            self.plain[i] += other.plain[i];
            self.products[i] += other.products[i];
        }
    }

    /// Adds all accumulators into one. The two sums take the places of mean and `m2`.
    pub(crate) fn total(&self, of: A, #[comptime] count: usize) -> Moments<A, N> {
        let mut mean = self.plain[0];
        let mut m2 = self.products[0];
        #[unroll]
        for i in 1..count {
            mean += self.plain[i];
            m2 += self.products[i];
        }
        Moments::<A, N> {
            count: of,
            mean,
            m2,
        }
    }
}

/// `numerator / max(denominator, 1)`: 0 for a part without elements.
#[cube]
pub(crate) fn share<A: Float>(numerator: A, denominator: A) -> A {
    numerator / max(denominator, A::new(1.0))
}

/// Merges two partial statistics.
///
/// Moments use the pairwise formula of Chan, Golub and LeVeque, "Updating formulae and a pairwise
/// algorithm for computing sample variances" (1979). It subtracts no large numbers, so nothing
/// cancels.
#[cube]
pub(crate) fn merge<A: Float, N: Size>(
    a: &Moments<A, N>,
    b: &Moments<A, N>,
    #[comptime] team: Team,
) -> Moments<A, N> {
    let count = a.count + b.count;
    match comptime!(team.merge) {
        Merge::Moments => {
            let weight = share::<A>(b.count, count);
            let delta = b.mean - a.mean;
            Moments::<A, N> {
                count,
                mean: a.mean + delta * Vector::new(weight),
                // Applies the weight first, so the square of a large difference cannot overflow if
                // the weight is 0.
                m2: a.m2 + b.m2 + delta * (delta * Vector::new(a.count * weight)),
            }
        }
        // Weighted sum instead of an update by the difference: two infinite means of equal sign
        // have a sum, but their difference is NaN.
        Merge::Means => {
            let (mine, other) = (share::<A>(a.count, count), share::<A>(b.count, count));
            Moments::<A, N> {
                count,
                mean: a.mean * Vector::new(mine) + b.mean * Vector::new(other),
                m2: a.m2,
            }
        }
        Merge::Sum => Moments::<A, N> {
            count,
            mean: a.mean,
            m2: a.m2 + b.m2,
        },
        Merge::Sums => Moments::<A, N> {
            count,
            mean: a.mean + b.mean,
            m2: a.m2 + b.m2,
        },
        Merge::Scaled { squares } => merge_scaled::<A, N>(a, b, count, squares),
    }
}

/// Merges the sums of two parts, relative to the larger scale.
#[cube]
fn merge_scaled<A: Float, N: Size>(
    a: &Moments<A, N>,
    b: &Moments<A, N>,
    count: A,
    #[comptime] squares: bool,
) -> Moments<A, N> {
    let larger = select_many(a.mean.less_than(&b.mean), b.mean, a.mean);
    let inverse = scale::inverse::<A, N>(larger);
    let mine = scale::rescaled::<A, N>(a.m2, a.mean * inverse, squares);
    Moments::<A, N> {
        count,
        mean: larger,
        m2: mine + scale::rescaled::<A, N>(b.m2, b.mean * inverse, squares),
    }
}

/// Second-moment term of an element: its square, or its magnitude for the L1 norm.
#[cube]
pub(crate) fn second_moment_term<A: Float, N: Size>(
    deviation: Vector<A, N>,
    #[comptime] blueprint: Blueprint,
) -> Vector<A, N> {
    if comptime!(blueprint.statistics == StatisticsKind::L1Norm) {
        deviation.abs()
    } else {
        deviation * deviation
    }
}

/// Merges the lanes of a vector that belong to one row. All lanes have equal counts.
#[cube]
pub(crate) fn reduce_lanes<A: Float, N: Size>(
    lanes: &Moments<A, N>,
    #[comptime] team: Team,
) -> Moments<A, One> {
    let width = A::new(comptime!(team.vector as f32));
    reduce::<A, N>(lanes, width, 0usize.runtime(), true, team)
}

/// [`reduce_lanes`] without the lanes before `first`.
#[cube]
pub(crate) fn reduce_lanes_from<A: Float, N: Size>(
    lanes: &Moments<A, N>,
    first: usize,
    #[comptime] team: Team,
) -> Moments<A, One> {
    let width = A::cast_from(N::value() - first);
    reduce::<A, N>(lanes, width, first, false, team)
}

#[cube]
fn reduce<A: Float, N: Size>(
    lanes: &Moments<A, N>,
    width: A,
    first: usize,
    #[comptime] all: bool,
    #[comptime] team: Team,
) -> Moments<A, One> {
    let mean = match comptime!(team.merge) {
        Merge::Moments | Merge::Means => counted_sum::<A, N>(lanes.mean, first, all, team) / width,
        Merge::Sums => counted_sum::<A, N>(lanes.mean, first, all, team),
        Merge::Sum => A::new(0.0),
        Merge::Scaled { .. } => largest_lane::<A, N>(lanes.mean, first, all),
    };
    let m2 = match comptime!(team.merge) {
        Merge::Moments => {
            let delta = lanes.mean - Vector::<A, N>::new(mean);
            counted_sum::<A, N>(lanes.m2, first, all, team)
                + counted_sum::<A, N>(delta * delta, first, all, team) * lanes.count
        }
        Merge::Sum | Merge::Sums => counted_sum::<A, N>(lanes.m2, first, all, team),
        Merge::Means => A::new(0.0),
        Merge::Scaled { squares } => {
            let inverse = scale::inverse::<A, N>(Vector::new(mean));
            let rescaled = scale::rescaled::<A, N>(lanes.m2, lanes.mean * inverse, squares);
            counted_sum::<A, N>(rescaled, first, all, team)
        }
    };
    Moments::<A, One> {
        count: lanes.count * width,
        mean: Vector::new(mean),
        m2: Vector::new(m2),
    }
}

/// Maximum of the lanes, or of the lanes from `first` on. All lanes are at least 0.
#[cube]
fn largest_lane<A: Float, N: Size>(vector: Vector<A, N>, first: usize, #[comptime] all: bool) -> A {
    let counted = if all {
        vector
    } else {
        lanes_from::<A, N>(vector, first)
    };
    let mut largest = counted.extract(0usize);
    #[unroll]
    for lane in 1..N::value() {
        largest = max(largest, counted.extract(lane));
    }
    largest
}

/// Sum of the lanes, or of the lanes from `first` on.
#[cube]
fn counted_sum<A: Float, N: Size>(
    vector: Vector<A, N>,
    first: usize,
    #[comptime] all: bool,
    #[comptime] team: Team,
) -> A {
    if all {
        lane_sum::<A, N>(vector, team)
    } else {
        lane_sum::<A, N>(lanes_from::<A, N>(vector, first), team)
    }
}

/// Divides by a count. If all lanes are equal, one lane is divided, which is cheaper on a CPU.
#[cube]
pub(crate) fn divided<A: Float, N: Size>(
    number: Vector<A, N>,
    count: A,
    #[comptime] team: Team,
) -> Vector<A, N> {
    if comptime!(team.lanes() == Vectorization::Perpendicular) {
        number / Vector::new(count)
    } else {
        Vector::new(number.extract(0usize) / count)
    }
}

/// Statistics for normalizing: the mean relative to the shift, the reciprocal deviation, and the
/// variance. For a vector norm, `mean` is a factor that is applied before `rstd`.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct RowStatistics<A: Float, N: Size> {
    pub(crate) mean: Vector<A, N>,
    pub(crate) variance: Vector<A, N>,
    pub(crate) rstd: Vector<A, N>,
}

#[cube]
impl<A: Float, N: Size> RowStatistics<A, N> {
    pub(crate) fn same(&self) -> RowStatistics<A, N> {
        RowStatistics::<A, N> {
            mean: self.mean,
            variance: self.variance,
            rstd: self.rstd,
        }
    }
}

/// Placeholder for a row that is not reduced.
#[cube]
pub(crate) fn nothing_reduced<A: Float, N: Size>() -> RowStatistics<A, N> {
    let unused = Vector::<A, N>::new(A::new(0.0));
    RowStatistics::<A, N> {
        mean: unused,
        variance: unused,
        rstd: unused,
    }
}

/// Computes [`RowStatistics`] from the moments of a whole row of `count` elements.
#[cube]
pub(crate) fn finish<A: Float, N: Size>(
    row: &Moments<A, N>,
    count: A,
    epsilon: A,
    #[comptime] blueprint: Blueprint,
) -> RowStatistics<A, N> {
    if comptime!(blueprint.team.lanes() == Vectorization::Perpendicular) {
        finish_lanes::<A, N>(row, count, epsilon, blueprint)
    } else {
        // All lanes are equal: one root is cheaper than a vector of them on a CPU.
        let lane = Moments::<A, One> {
            count: row.count,
            mean: Vector::new(row.mean.extract(0usize)),
            m2: Vector::new(row.m2.extract(0usize)),
        };
        let finished = finish_lanes::<A, One>(&lane, count, epsilon, blueprint);
        RowStatistics::<A, N> {
            mean: if comptime!(blueprint.statistics.is_norm()) {
                Vector::new(finished.mean.extract(0usize))
            } else {
                row.mean
            },
            variance: Vector::new(finished.variance.extract(0usize)),
            rstd: Vector::new(finished.rstd.extract(0usize)),
        }
    }
}

#[cube]
fn finish_lanes<A: Float, N: Size>(
    row: &Moments<A, N>,
    count: A,
    epsilon: A,
    #[comptime] blueprint: Blueprint,
) -> RowStatistics<A, N> {
    let variance = row.m2 / Vector::new(count);
    let one = Vector::<A, N>::new(A::new(1.0));
    let rstd = match comptime!(blueprint.statistics) {
        StatisticsKind::L1Norm => reciprocal_norm::<A, N>(row.m2),
        StatisticsKind::L2Norm => reciprocal_norm::<A, N>(row.m2.sqrt()),
        StatisticsKind::MeanVariance | StatisticsKind::MeanSquare => {
            reciprocal_deviation::<A, N>(variance, epsilon, blueprint.epsilon_in_sqrt)
        }
        StatisticsKind::Mean
        | StatisticsKind::None
        | StatisticsKind::Provided
        | StatisticsKind::DynamicTanh => one,
    };
    RowStatistics::<A, N> {
        mean: if comptime!(blueprint.statistics.is_norm()) {
            scale::inverse::<A, N>(row.mean)
        } else {
            row.mean
        },
        variance,
        rstd,
    }
}

/// `1 / norm`, or 0 for a norm of 0, so that a row of zeros stays zero.
#[cube]
fn reciprocal_norm<A: Float, N: Size>(norm: Vector<A, N>) -> Vector<A, N> {
    let zero = Vector::<A, N>::new(A::new(0.0));
    let one = Vector::<A, N>::new(A::new(1.0));
    let is_zero = norm.equal(&zero);
    select_many(is_zero, zero, one / select_many(is_zero, one, norm))
}

/// `1 / sqrt(variance + epsilon)`, or `1 / (sqrt(variance) + epsilon)`.
///
/// Uses a division, because GPUs approximate the reciprocal root.
#[cube]
pub(crate) fn reciprocal_deviation<A: Float, N: Size>(
    variance: Vector<A, N>,
    epsilon: A,
    #[comptime] epsilon_in_sqrt: bool,
) -> Vector<A, N> {
    let epsilon = Vector::<A, N>::new(epsilon);
    let deviation = if epsilon_in_sqrt {
        (variance + epsilon).sqrt()
    } else {
        variance.sqrt() + epsilon
    };
    Vector::new(A::new(1.0)) / deviation
}
