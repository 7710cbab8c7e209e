//! Mean, variance and deviation of a tensor, in all their spellings.

use burn_fusion::stream::ScalarId;
use burn_ir::TensorIr;

use super::super::graph::{Binary, Graph, Node, Reduce, Scalar, Unary};
use super::{Condition, Constant, Miss, Taken};
use crate::install::DeclineReason;

/// A sum or a mean over axes.
pub(super) struct Reduced<'a> {
    /// The tensor that is reduced.
    pub(super) of: &'a TensorIr,
    /// True for a sum that nothing divides.
    pub(super) is_sum: bool,
}

/// What a deviation is the root of.
pub(super) enum Variance<'a> {
    /// The mean of the squares of a tensor minus its mean.
    Centered {
        /// The tensor.
        of: &'a TensorIr,
        /// True if the squares are summed.
        is_sum: bool,
    },
    /// The mean of the squares of a tensor.
    Plain {
        /// The tensor.
        of: &'a TensorIr,
        /// True if the squares are summed.
        is_sum: bool,
    },
    /// An input of the block.
    External(&'a TensorIr),
}

/// Matches a mean or a sum of a tensor that `is_base` accepts: reductions over one axis after the other, or over several
/// at once, and numbers that the sum is divided by.
pub(super) fn reduced<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    is_base: impl Fn(&'a TensorIr) -> bool,
    taken: &mut Taken,
) -> Option<Reduced<'a>> {
    let mut found = taken.clone();
    let mut tensor = found.look_at_statistic(graph, tensor);
    let mut factors: Vec<(ScalarId, bool)> = Vec::new();
    let mut axes: Vec<usize> = Vec::new();
    let mut summed: Vec<usize> = Vec::new();
    while axes.is_empty() || !is_base(tensor) {
        // A cast between two reductions. One in front of all belongs to the tensor that is reduced.
        let (inner, through) = graph.look_through_casts(tensor);
        let (at, node) = graph.made(inner)?;
        found.take_all(&through);
        found.take(at);
        match node {
            Node::Scalar(kind @ (Scalar::Mul | Scalar::Div), input, factor) => {
                factors.push((factor, kind == Scalar::Mul));
                tensor = input;
            }
            Node::Reduce(kind, input, over) => {
                if over.iter().any(|axis| axes.contains(axis)) {
                    return None;
                }
                axes.extend(over);
                if kind == Reduce::Sum {
                    summed.extend(over);
                }
                tensor = input;
            }
            _ => return None,
        }
    }
    let is_sum = factors.is_empty() && !summed.is_empty();
    if is_sum && summed.len() != axes.len() || !factors.is_empty() && summed.is_empty() {
        return None;
    }
    if !factors.is_empty() {
        found.conditions.push(Condition::Mean {
            of: tensor.clone(),
            summed,
            factors,
        });
    }
    found.fulls.push(tensor.clone());
    found.reductions.push((tensor.clone(), axes));
    *taken = found;
    Some(Reduced { of: tensor, is_sum })
}

/// Matches `x * x`.
fn squared<'a>(graph: &Graph<'a>, tensor: &'a TensorIr, taken: &mut Taken) -> Option<&'a TensorIr> {
    let mut found = taken.clone();
    let tensor = found.look(graph, tensor, false);
    let (at, Node::Binary(Binary::Mul, a, b)) = graph.made(tensor)? else {
        return None;
    };
    if !graph.is_same(a, b) || a.shape != b.shape {
        return None;
    }
    found.take(at);
    found.look(graph, b, true);
    let of = found.look(graph, a, true);
    *taken = found;
    Some(of)
}

/// Matches a tensor minus its mean. Returns the tensor.
pub(super) fn centered<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    taken: &mut Taken,
) -> Option<&'a TensorIr> {
    let mut found = taken.clone();
    let tensor = found.look(graph, tensor, false);
    let (at, Node::Binary(Binary::Sub, x, mean)) = graph.made(tensor)? else {
        return None;
    };
    let output = graph.output(at)?;
    if x.shape != output.shape {
        return None;
    }
    let of = found.look(graph, x, true);
    found.uses.push(super::Use {
        small: mean.clone(),
        full: x.clone(),
    });
    let is_base = |tensor| graph.source(tensor).0.id == of.id;
    let reduced = reduced(graph, mean, is_base, &mut found)?;
    found.look(graph, reduced.of, true);
    if reduced.is_sum {
        return None;
    }
    found.take(at);
    *taken = found;
    Some(of)
}

/// Matches a variance: a mean of squares, centred or not, or `mean(x^2) - mean(x)^2`.
fn variance<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    taken: &mut Taken,
) -> Result<Variance<'a>, Miss> {
    let mut found = taken.clone();
    let is_square = |tensor| squared(graph, tensor, &mut Taken::default()).is_some();
    if let Some(reduced) = reduced(graph, tensor, is_square, &mut found) {
        let is_sum = reduced.is_sum;
        let of = squared(graph, reduced.of, &mut found).ok_or(Miss::NotANorm)?;
        let mut centred = found.clone();
        let variance = match centered(graph, of, &mut centred) {
            Some(of) => {
                found = centred;
                Variance::Centered { of, is_sum }
            }
            None => Variance::Plain { of, is_sum },
        };
        *taken = found;
        return Ok(variance);
    }
    let tensor = found.look_at_statistic(graph, tensor);
    match graph.made(tensor) {
        None => {
            *taken = found;
            Ok(Variance::External(tensor))
        }
        Some((at, Node::Binary(Binary::Sub, squares, square))) if squares.shape == square.shape => {
            found.take(at);
            let of = difference_of_moments(graph, squares, square, &mut found)?;
            *taken = found;
            Ok(Variance::Centered { of, is_sum: false })
        }
        Some((_, Node::Binary(Binary::Add, a, b))) => {
            let is_reduced = |tensor| {
                let made = graph.made(graph.look_through(tensor).0);
                made.is_some_and(|(_, node)| super::is_reduction(node))
            };
            match is_reduced(a) || is_reduced(b) {
                true => Err(DeclineReason::EpsilonTensor.into()),
                false => Err(Miss::NotANorm),
            }
        }
        Some((_, Node::MaskFill { .. } | Node::MaskWhere { .. })) => {
            // A clamp is a comparison and a fill.
            Err(DeclineReason::Clamped.into())
        }
        Some((_, Node::Reduce(..))) => Err(DeclineReason::NotSquares.into()),
        _ => Err(Miss::NotANorm),
    }
}

/// Matches `mean(x^2)` and `mean(x)^2` of the same tensor.
fn difference_of_moments<'a>(
    graph: &Graph<'a>,
    squares: &'a TensorIr,
    square: &'a TensorIr,
    taken: &mut Taken,
) -> Result<&'a TensorIr, Miss> {
    let is_square = |tensor| squared(graph, tensor, &mut Taken::default()).is_some();
    let squares = reduced(graph, squares, is_square, taken).ok_or(Miss::NotANorm)?;
    let of = squared(graph, squares.of, taken).ok_or(Miss::NotANorm)?;
    let square = taken.look_at_statistic(graph, square);
    let Some((at, Node::Binary(Binary::Mul, a, b))) = graph.made(square) else {
        return Err(Miss::NotANorm);
    };
    if a.id != b.id {
        return Err(Miss::NotANorm);
    }
    taken.take(at);
    let is_base = |tensor| graph.source(tensor).0.id == of.id;
    let Some(mean) = reduced(graph, a, is_base, taken) else {
        return Err(DeclineReason::OtherMean.into());
    };
    if squares.is_sum || mean.is_sum {
        return Err(DeclineReason::NoDivisor.into());
    }
    taken.look(graph, mean.of, true);
    Ok(of)
}

/// Matches a variance, with or without epsilon.
fn variance_and_epsilon<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    taken: &mut Taken,
) -> Result<(Variance<'a>, Constant), Miss> {
    let mut found = taken.clone();
    let inner = found.look_at_statistic(graph, tensor);
    if let Some((at, Node::Scalar(Scalar::Add, input, epsilon))) = graph.made(inner) {
        found.take(at);
        let variance = variance(graph, input, &mut found)?;
        *taken = found;
        return Ok((variance, Constant::InsideSqrt(epsilon)));
    }
    let variance = variance(graph, tensor, taken)?;
    Ok((variance, Constant::None))
}

/// Matches a deviation: the root of a variance, with epsilon in it or behind it.
pub(super) fn deviation<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    taken: &mut Taken,
) -> Result<(Variance<'a>, Constant), Miss> {
    let tensor = taken.look_at_statistic(graph, tensor);
    match graph.made(tensor) {
        Some((at, Node::Unary(Unary::Sqrt, input))) => {
            taken.take(at);
            variance_and_epsilon(graph, input, taken)
        }
        Some((at, Node::Scalar(Scalar::Pow, input, exponent))) => {
            taken.take(at);
            taken.conditions.push(Condition::Is(exponent, 0.5));
            variance_and_epsilon(graph, input, taken)
        }
        Some((at, Node::Unary(Unary::Recip, input))) => {
            taken.take(at);
            reciprocal(graph, input, taken)
        }
        Some((at, Node::Scalar(Scalar::Add, input, epsilon))) => {
            taken.take(at);
            if let Some((_, Node::Reduce(Reduce::Mean, ..))) = graph.made(input) {
                return Err(DeclineReason::NoRoot.into());
            }
            match deviation(graph, input, taken)? {
                (variance, Constant::None) => Ok((variance, Constant::AddedToDeviation(epsilon))),
                _ => Err(DeclineReason::TwoEpsilons.into()),
            }
        }
        Some((_, Node::MaskFill { tensor, .. } | Node::MaskWhere { tensor, .. })) => {
            let mut unclamped = taken.clone();
            match deviation(graph, tensor, &mut unclamped) {
                Ok(_) => Err(DeclineReason::Clamped.into()),
                Err(miss) => Err(miss),
            }
        }
        _ => Err(Miss::NotANorm),
    }
}

/// Matches a reciprocal deviation.
pub(super) fn reciprocal<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    taken: &mut Taken,
) -> Result<(Variance<'a>, Constant), Miss> {
    let tensor = taken.look_at_statistic(graph, tensor);
    match graph.made(tensor) {
        Some((at, Node::Unary(Unary::Recip, input))) => {
            taken.take(at);
            deviation(graph, input, taken)
        }
        Some((at, Node::Unary(Unary::Sqrt, input))) => {
            // The root of a reciprocal.
            taken.take(at);
            let inner = taken.look_at_statistic(graph, input);
            let Some((at, Node::Unary(Unary::Recip, input))) = graph.made(inner) else {
                return Err(Miss::NotANorm);
            };
            taken.take(at);
            variance_and_epsilon(graph, input, taken)
        }
        Some((at, Node::Scalar(Scalar::Pow, input, exponent))) => {
            taken.take(at);
            taken.conditions.push(Condition::Is(exponent, -0.5));
            variance_and_epsilon(graph, input, taken)
        }
        Some((at, Node::Scalar(Scalar::Mul, input, one))) => {
            // `1 / x` is a reciprocal times 1.
            taken.take(at);
            taken.conditions.push(Condition::Is(one, 1.0));
            reciprocal(graph, input, taken)
        }
        _ => Err(Miss::NotANorm),
    }
}
