//! From a match to a description: shapes become a view that all tensors have in common, and numbers get their values.
//!
//! A reshape keeps the row-major order of the elements. So all full tensors of a norm have a view in common, whose
//! dimensions are factors of the sizes of each. Reduced axes, broadcast statistics and parameters become sets of the
//! view's dimensions, and a match holds if these sets agree.

use std::ops::Range;

use burn::tensor::Shape;
use burn_fusion::stream::ScalarId;
use burn_ir::TensorIr;
use cubenorm_core::{Activation, Epsilon};

use super::pattern::{Condition, Constant, Draft, Function, Operand, Statistic, Use, fold};
use crate::install::DeclineReason;
use crate::ops::{Axes, NormSpec, Reduction};

/// Sizes and numbers of a block.
pub(super) trait Values {
    /// Shape of a tensor.
    fn shape(&self, tensor: &TensorIr) -> Vec<usize>;

    /// A number, or None if it is not known yet.
    fn number(&self, id: ScalarId) -> Option<f64>;
}

/// The sizes of a block before it runs: equal sizes are equal, and no others are.
pub(super) struct Symbolic;

impl Values for Symbolic {
    fn shape(&self, tensor: &TensorIr) -> Vec<usize> {
        // The position 0 is a size of 1. Distinct primes are not products of each other.
        let size = |&position: &usize| match position {
            0 => 1,
            position => prime(position),
        };
        tensor.shape.iter().map(size).collect()
    }

    fn number(&self, _: ScalarId) -> Option<f64> {
        None
    }
}

/// The prime at a position, from 3 on.
fn prime(position: usize) -> usize {
    let is_prime = |&n: &usize| {
        (3..)
            .step_by(2)
            .take_while(|d| d * d <= n)
            .all(|d| n % d != 0)
    };
    (3..)
        .step_by(2)
        .filter(is_prime)
        .nth(position - 1)
        .expect("there are enough primes")
}

/// A norm with shapes and numbers.
#[derive(Debug, Clone)]
pub(super) struct Lowered {
    pub(super) spec: NormSpec,
    /// The view of input, output and sum.
    pub(super) view: Shape,
    pub(super) residual: Option<Shape>,
    pub(super) scale: Option<Shape>,
    pub(super) bias: Option<Shape>,
    pub(super) mean: Option<Shape>,
    pub(super) variance: Option<Shape>,
    pub(super) output: Shape,
    pub(super) sum: Option<Shape>,
}

/// Checks the axes of a match before the block runs. Reshapes are checked when it does.
pub(super) fn check(draft: &Draft) -> Result<(), DeclineReason> {
    match lower(draft, &Symbolic) {
        Err(DeclineReason::Reshape { .. }) => Ok(()),
        checked => checked.map(|_| ()),
    }
}

/// Lowers a match.
pub(super) fn lower(draft: &Draft, values: &impl Values) -> Result<Lowered, DeclineReason> {
    let view = common_view(draft, values)?;
    let axes = reduced_axes(draft, values, &view)?;
    for used in &draft.uses {
        check_broadcast(used, values, &view, &axes)?;
    }
    let elements: usize = axes
        .iter()
        .map(|&axis| view[axis])
        .fold(1, usize::saturating_mul);
    for condition in &draft.conditions {
        check_condition(condition, values)?;
    }
    let param = |operand: &Option<Operand>| {
        let operand = operand.as_ref();
        let shape = operand.map(|operand| params_shape(&operand.used, values, &view));
        shape.transpose()
    };
    let residual = draft.residual.as_ref();
    let residual = residual.map(|(operand, _)| params_shape(&operand.used, values, &view));
    let (activation, epsilon) = functions(draft, values, elements)?;
    let spec = NormSpec {
        epsilon,
        activation,
        residual_place: draft
            .residual
            .as_ref()
            .map_or_else(Default::default, |(_, place)| *place),
        writes_sum: draft.sum.is_some(),
        ..NormSpec::new(Axes::from(axes), reduction(draft.statistic), 0.0)
    };
    let shape = |tensor: &TensorIr| Shape::from(values.shape(tensor));
    Ok(Lowered {
        spec,
        residual: residual.transpose()?,
        scale: param(&draft.scale)?,
        bias: param(&draft.bias)?,
        mean: param(&draft.mean)?,
        variance: param(&draft.variance)?,
        output: shape(&draft.output),
        sum: draft.sum.as_ref().map(shape),
        view: Shape::from(view),
    })
}

fn reduction(statistic: Statistic) -> Reduction {
    match statistic {
        Statistic::MeanVariance => Reduction::MeanVariance,
        Statistic::MeanSquare | Statistic::SumSquare => Reduction::MeanSquare,
        Statistic::Provided => Reduction::Provided,
    }
}

/// The coarsest view that all full tensors of a match have.
fn common_view(draft: &Draft, values: &impl Values) -> Result<Vec<usize>, DeclineReason> {
    let first = values.shape(&draft.input);
    let mut view = without_ones(&first);
    for full in &draft.fulls {
        let shape = values.shape(full);
        view = refined(&view, &without_ones(&shape)).ok_or_else(|| DeclineReason::Reshape {
            first: first.clone(),
            second: shape,
        })?;
    }
    match view.is_empty() {
        // A tensor of one element.
        true => Ok(vec![1]),
        false => Ok(view),
    }
}

fn without_ones(shape: &[usize]) -> Vec<usize> {
    shape.iter().copied().filter(|&size| size != 1).collect()
}

/// The coarsest shape that both shapes merge dimensions of.
fn refined(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    if a == b {
        return Some(a.to_vec());
    }
    let (mut a, mut b) = (a.iter().copied(), b.iter().copied());
    let mut refined = Vec::new();
    let (mut rest_a, mut rest_b) = (1, 1);
    loop {
        if rest_a == 1 && rest_b == 1 {
            match (a.next(), b.next()) {
                (None, None) => return Some(refined),
                (Some(next_a), Some(next_b)) => (rest_a, rest_b) = (next_a, next_b),
                _ => return None,
            }
        } else if rest_a == 1 {
            rest_a = a.next()?;
        } else if rest_b == 1 {
            rest_b = b.next()?;
        }
        let least = rest_a.min(rest_b);
        if least == 0 || !rest_a.is_multiple_of(least) || !rest_b.is_multiple_of(least) {
            return None;
        }
        refined.push(least);
        (rest_a, rest_b) = (rest_a / least, rest_b / least);
    }
}

/// The view's dimensions of each dimension of a shape.
fn groups(shape: &[usize], view: &[usize]) -> Option<Vec<Range<usize>>> {
    let mut next = 0;
    let mut groups = Vec::with_capacity(shape.len());
    for &size in shape {
        let start = next;
        let mut covered = 1;
        while covered < size {
            covered *= view.get(next)?;
            next += 1;
        }
        if covered != size {
            return None;
        }
        groups.push(start..next);
    }
    Some(groups)
}

fn groups_of(
    tensor: &TensorIr,
    values: &impl Values,
    view: &[usize],
) -> Result<Vec<Range<usize>>, DeclineReason> {
    let shape = values.shape(tensor);
    groups(&shape, view).ok_or_else(|| DeclineReason::Reshape {
        first: shape,
        second: view.to_vec(),
    })
}

/// The view's dimensions that all statistics of a match reduce.
fn reduced_axes(
    draft: &Draft,
    values: &impl Values,
    view: &[usize],
) -> Result<Vec<usize>, DeclineReason> {
    let mut found: Option<Vec<usize>> = None;
    for (tensor, axes) in &draft.reductions {
        let groups = groups_of(tensor, values, view)?;
        let mut reduced: Vec<usize> = Vec::new();
        for &axis in axes {
            reduced.extend(groups.get(axis).cloned().ok_or(DeclineReason::OtherAxes)?);
        }
        reduced.sort_unstable();
        if found.as_ref().is_some_and(|found| *found != reduced) {
            return Err(DeclineReason::OtherAxes);
        }
        found = Some(reduced);
    }
    Ok(found.unwrap_or_default())
}

/// Calls `each` with the view's dimensions of each dimension of a use, and whether the small tensor has them.
fn for_each_group(
    used: &Use,
    values: &impl Values,
    view: &[usize],
    mut each: impl FnMut(Range<usize>, bool),
) -> Result<(), DeclineReason> {
    let (small, full) = (values.shape(&used.small), values.shape(&used.full));
    if small.len() != full.len() {
        return Err(DeclineReason::OtherBroadcast);
    }
    let groups = groups_of(&used.full, values, view)?;
    for ((group, small), full) in groups.into_iter().zip(small).zip(full) {
        if small != full && small != 1 {
            return Err(DeclineReason::OtherBroadcast);
        }
        each(group, small == full);
    }
    Ok(())
}

/// Checks that a statistic broadcasts along the axes that it is reduced over.
fn check_broadcast(
    used: &Use,
    values: &impl Values,
    view: &[usize],
    axes: &[usize],
) -> Result<(), DeclineReason> {
    let mut agrees = true;
    for_each_group(used, values, view, |group, has_it| {
        for dim in group {
            agrees &= has_it != axes.contains(&dim);
        }
    })?;
    match agrees {
        true => Ok(()),
        false => Err(DeclineReason::OtherBroadcast),
    }
}

/// Shape of an operand in the view.
fn params_shape(used: &Use, values: &impl Values, view: &[usize]) -> Result<Shape, DeclineReason> {
    let mut shape = vec![1; view.len()];
    for_each_group(used, values, view, |group, has_it| {
        if has_it {
            shape[group.clone()].copy_from_slice(&view[group]);
        }
    })?;
    Ok(Shape::from(shape))
}

/// Relative difference of a number from the formula's. Numbers pass through f32 in spellings like `1 / n as f32`.
const TOLERANCE: f64 = 1e-6;

fn is_close(actual: f64, expected: f64) -> bool {
    (actual - expected).abs() <= TOLERANCE * expected.abs()
}

fn check_condition(condition: &Condition, values: &impl Values) -> Result<(), DeclineReason> {
    match condition {
        Condition::Is(id, expected) => {
            let Some(actual) = values.number(*id) else {
                return Ok(());
            };
            match is_close(actual, *expected) {
                true => Ok(()),
                false => Err(DeclineReason::Number {
                    actual,
                    expected: *expected,
                }),
            }
        }
        Condition::Mean {
            of,
            summed,
            factors,
        } => {
            let shape = values.shape(of);
            let sizes = summed.iter().filter_map(|&axis| shape.get(axis));
            let elements = sizes.copied().fold(1, usize::saturating_mul);
            let mut product = 1.0;
            for &(id, multiplies) in factors {
                let Some(factor) = values.number(id) else {
                    return Ok(());
                };
                product *= if multiplies { factor } else { 1.0 / factor };
            }
            match is_close(product * elements as f64, 1.0) {
                true => Ok(()),
                false => Err(DeclineReason::Divisor {
                    actual: product,
                    elements,
                }),
            }
        }
    }
}

/// Activation and epsilon, for rows of a number of elements.
fn functions(
    draft: &Draft,
    values: &impl Values,
    elements: usize,
) -> Result<(Activation, Epsilon), DeclineReason> {
    let number = |id| values.number(id);
    // The root of a sum of squares is that of their mean, times the root of their number.
    let root = match draft.statistic {
        Statistic::SumSquare => (elements as f64).sqrt(),
        _ => 1.0,
    };
    let epsilon = match draft.epsilon {
        Constant::None => Epsilon::InsideSqrt(0.0),
        Constant::InsideSqrt(id) => Epsilon::InsideSqrt(number(id).unwrap_or(1.0) / (root * root)),
        Constant::AddedToDeviation(id) => {
            Epsilon::AddedToDeviation(number(id).unwrap_or(1.0) / root)
        }
    };
    if epsilon.value().is_nan() || epsilon.value() < 0.0 {
        return Err(DeclineReason::Number {
            actual: epsilon.value(),
            expected: 0.0,
        });
    }
    let (alpha, beta) = fold(&draft.linear, number).unwrap_or((1.0, 0.0));
    let alpha = alpha / root;
    let activation = match draft.function {
        Function::LeakyRelu(slope) => Activation::LeakyRelu {
            alpha: number(slope).unwrap_or_default(),
        },
        Function::Fixed(Activation::Identity) if (alpha, beta) != (1.0, 0.0) => {
            Activation::Linear { alpha, beta }
        }
        Function::Fixed(activation) => activation,
    };
    Ok((activation, epsilon))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_as_coarse_as_possible() {
        assert_eq!(refined(&[8, 32, 49], &[8, 4, 392]), Some(vec![8, 4, 8, 49]));
        assert_eq!(refined(&[2, 6], &[6, 2]), Some(vec![2, 3, 2]));
        assert_eq!(refined(&[4, 6], &[6, 4]), None);
        assert_eq!(refined(&[2, 3], &[2]), None);
        assert_eq!(refined(&[0, 3], &[3, 0]), None);
        assert_eq!(refined(&[], &[]), Some(vec![]));
    }

    #[test]
    fn dimensions_of_one_have_no_part_of_a_view() {
        let groups = groups(&[8, 1, 32], &[8, 4, 8]);
        assert_eq!(groups, Some(vec![0..1, 1..1, 1..3]));
        assert_eq!(super::groups(&[6], &[4]), None);
    }

    #[test]
    fn positions_become_distinct_primes() {
        let primes: Vec<usize> = (1..6).map(prime).collect();
        assert_eq!(primes, [3, 5, 7, 11, 13]);
    }
}
