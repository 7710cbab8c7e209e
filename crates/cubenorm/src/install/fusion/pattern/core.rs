//! The normalized value: a tensor, with or without its mean, divided by its deviation.

use burn_ir::TensorIr;
use cubenorm_core::Activation;

use super::super::graph::{Binary, Graph, Node};
use super::statistic::{Variance, centered, deviation, reciprocal};
use super::{Constant, Draft, Function, Miss, Operand, Statistic, Taken, Use};
use crate::install::DeclineReason;

/// Matches the operation that divides by the deviation, or multiplies by its reciprocal.
pub(super) fn find(graph: &Graph<'_>, root: usize) -> Result<Draft, Miss> {
    match graph.node(root) {
        Node::Binary(Binary::Div, value, deviation) => {
            quotient(graph, root, value, deviation, false)
        }
        Node::Binary(Binary::Mul, a, b) => {
            let mut miss = Miss::NotANorm;
            for (value, factor) in [(a, b), (b, a)] {
                match quotient(graph, root, value, factor, true) {
                    Ok(draft) => return Ok(draft),
                    Err(declined @ Miss::Declined(_)) => miss = declined,
                    Err(Miss::NotANorm) => {}
                }
            }
            Err(miss)
        }
        _ => Err(Miss::NotANorm),
    }
}

fn quotient<'a>(
    graph: &Graph<'a>,
    root: usize,
    value: &'a TensorIr,
    divisor: &'a TensorIr,
    is_reciprocal: bool,
) -> Result<Draft, Miss> {
    let output = graph.output(root).ok_or(Miss::NotANorm)?;
    if value.shape != output.shape || value.id == divisor.id {
        return Err(Miss::NotANorm);
    }
    let mut taken = Taken::default();
    taken.take(root);
    taken.uses.push(Use {
        small: divisor.clone(),
        full: value.clone(),
    });
    let (variance, epsilon) = match is_reciprocal {
        true => reciprocal(graph, divisor, &mut taken)?,
        false => deviation(graph, divisor, &mut taken)?,
    };
    let (statistic, input, mean, variance) = match variance {
        Variance::External(variance) => {
            // Nothing is reduced, so the divisor is no statistic of the tensor.
            let used = taken.uses.remove(0);
            provided(graph, value, variance, used, &mut taken)?
        }
        variance => {
            let (statistic, input) = own(graph, value, variance, &mut taken)?;
            (statistic, input, None, None)
        }
    };
    if let Constant::None = epsilon
        && statistic != Statistic::SumSquare
    {
        return Err(DeclineReason::NoEpsilon.into());
    }
    taken.fulls.push(output.clone());
    if !taken.fulls.iter().all(|full| super::is_float(full.dtype)) {
        return Err(Miss::NotANorm);
    }
    Ok(Draft {
        taken: taken.operations,
        statistic,
        epsilon,
        input: input.clone(),
        residual: None,
        scale: None,
        bias: None,
        mean,
        variance,
        function: Function::Fixed(Activation::Identity),
        linear: Vec::new(),
        output: output.clone(),
        sum: None,
        conditions: taken.conditions,
        fulls: taken.fulls,
        reductions: taken.reductions,
        uses: taken.uses,
    })
}

/// Matches a value that is divided by a deviation of its own.
fn own<'a>(
    graph: &Graph<'a>,
    value: &'a TensorIr,
    variance: Variance<'a>,
    taken: &mut Taken,
) -> Result<(Statistic, &'a TensorIr), Miss> {
    match variance {
        Variance::Centered { of, is_sum } => {
            let difference = graph.look_through(value).0;
            let Some(input) = centered(graph, value, taken) else {
                return Err(match graph.made(difference) {
                    Some((_, Node::Binary(Binary::Sub, ..))) => DeclineReason::OtherMean.into(),
                    _ => DeclineReason::NotCentered.into(),
                });
            };
            // A tensor and the tensor minus its mean have the same variance.
            if of.id != input.id && of.id != difference.id {
                return Err(DeclineReason::OtherVariance.into());
            }
            match is_sum {
                true => Err(DeclineReason::NoDivisor.into()),
                false => Ok((Statistic::MeanVariance, input)),
            }
        }
        Variance::Plain { of, is_sum } => {
            if centered(graph, value, &mut taken.clone()).is_some() {
                return Err(DeclineReason::VarianceNotCentered.into());
            }
            let input = taken.look(graph, value, true);
            if of.id != input.id {
                return Err(DeclineReason::OtherVariance.into());
            }
            match is_sum {
                true => Ok((Statistic::SumSquare, input)),
                false => Ok((Statistic::MeanSquare, input)),
            }
        }
        Variance::External(_) => Err(Miss::NotANorm),
    }
}

/// Input, mean and variance of a value that is divided by a deviation from outside the block.
type Provided<'a> = (Statistic, &'a TensorIr, Option<Operand>, Option<Operand>);

/// Matches a value minus a mean and divided by a deviation, which both come from outside the block.
fn provided<'a>(
    graph: &Graph<'a>,
    value: &'a TensorIr,
    variance: &'a TensorIr,
    deviation: Use,
    taken: &mut Taken,
) -> Result<Provided<'a>, Miss> {
    let difference = taken.look(graph, value, false);
    let Some((at, Node::Binary(Binary::Sub, x, mean))) = graph.made(difference) else {
        return Err(Miss::NotANorm);
    };
    let output = graph.output(at).ok_or(Miss::NotANorm)?;
    let broadcasts = mean.shape != x.shape && deviation.small.shape != value.shape;
    if x.shape != output.shape || !broadcasts {
        return Err(Miss::NotANorm);
    }
    let used = Use {
        small: mean.clone(),
        full: x.clone(),
    };
    let mean = taken.look_at_statistic(graph, mean);
    if graph.maker(mean).is_some() || !super::is_float(mean.dtype) {
        return Err(Miss::NotANorm);
    }
    taken.take(at);
    let input = taken.look(graph, x, true);
    let operand = |tensor: &TensorIr, used| Operand {
        tensor: tensor.clone(),
        used,
    };
    Ok((
        Statistic::Provided,
        input,
        Some(operand(mean, used)),
        Some(operand(variance, deviation)),
    ))
}
