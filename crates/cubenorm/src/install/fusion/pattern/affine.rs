//! Everything behind the normalized value that the kernels apply too: scale, bias, residual, a linear function and an
//! activation, with casts and reshapes between them.

use burn_fusion::stream::ScalarId;
use burn_ir::TensorIr;
use cubenorm_core::{Activation, ResidualPlace};

use super::super::graph::{Binary, Graph, Node, Scalar};
use super::{Draft, Function, Operand, Statistic, Use, activation};

/// A step of a linear function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::install) enum Linear {
    Add,
    Sub,
    Mul,
    Div,
}

/// Most steps behind a normalized value. Longer chains are not looked at.
const MAX_STEPS: usize = 16;

/// The norm itself, and the norm with each number of operations behind it, in order.
pub(super) fn extensions(graph: &Graph<'_>, core: Draft) -> Vec<Draft> {
    let mut drafts = vec![core];
    while drafts.len() <= MAX_STEPS {
        let Some(next) = drafts.last().and_then(|draft| extended(graph, draft)) else {
            break;
        };
        drafts.push(next);
    }
    drafts
}

/// The norm with the operation behind it, if the kernels apply that too.
fn extended(graph: &Graph<'_>, draft: &Draft) -> Option<Draft> {
    let value = &draft.output;
    if let Some(active) = active(graph, draft) {
        return Some(active);
    }
    // A value with two readers is read outside the norm.
    let mut users = graph.users(value);
    let at = users.next()?;
    if users.next().is_some() || !graph.is_dead(value) || graph.is_claimed(at) {
        return None;
    }
    let mut next = draft.clone();
    let output = graph.output(at)?;
    match graph.node(at) {
        Node::Cast(_) => {
            if !super::is_float(output.dtype) || output.dtype == burn::tensor::DType::F64 {
                return None;
            }
        }
        Node::Reshape(_) => next.fulls.push(output.clone()),
        Node::Binary(kind, a, b) => {
            let operand = match (a.id == value.id, b.id == value.id) {
                (true, false) => b,
                (false, true) => a,
                _ => return None,
            };
            if output.shape != value.shape || !super::is_float(operand.dtype) {
                return None;
            }
            combine(graph, &mut next, kind, operand)?;
        }
        Node::Scalar(kind, _, number) => {
            let step = match kind {
                Scalar::Add => Linear::Add,
                Scalar::Sub => Linear::Sub,
                Scalar::Mul => Linear::Mul,
                Scalar::Div => Linear::Div,
                _ => return None,
            };
            if !matches!(next.function, Function::Fixed(Activation::Identity)) {
                return None;
            }
            next.linear.push((step, number));
        }
        _ => return None,
    }
    next.taken.push(at);
    next.output = output.clone();
    Some(next)
}

/// Takes an operand as scale, bias or residual.
fn combine(graph: &Graph<'_>, draft: &mut Draft, kind: Binary, operand: &TensorIr) -> Option<()> {
    let is_last = matches!(draft.function, Function::Fixed(Activation::Identity))
        && draft.linear.is_empty()
        && draft.residual.is_none();
    // The root of the elements of a row is a linear function, which is applied after scale and bias.
    if !is_last || draft.statistic == Statistic::SumSquare {
        return None;
    }
    let used = Use {
        small: operand.clone(),
        full: draft.output.clone(),
    };
    let is_full = operand.shape == draft.output.shape;
    let mut taken = Vec::new();
    let mut tensor = operand.clone();
    if !is_full {
        (tensor, taken) = source(graph, operand);
    }
    let operand = Operand { tensor, used };
    match kind {
        Binary::Mul if draft.scale.is_none() && draft.bias.is_none() => draft.scale = Some(operand),
        Binary::Add if draft.bias.is_none() && !is_full => draft.bias = Some(operand),
        Binary::Add => draft.residual = Some((operand, ResidualPlace::Output)),
        _ => return None,
    }
    for at in taken {
        if !draft.taken.contains(&at) {
            draft.taken.push(at);
        }
    }
    Some(())
}

/// A parameter, and the casts and reshapes between it and its use.
fn source<'a>(graph: &Graph<'a>, operand: &TensorIr) -> (TensorIr, Vec<usize>) {
    let Some(at) = graph.maker(operand) else {
        return (operand.clone(), Vec::new());
    };
    let Some(made) = graph.output(at) else {
        return (operand.clone(), Vec::new());
    };
    let (tensor, through) = graph.source(made);
    (tensor.clone(), through)
}

/// The norm with the longest activation behind it.
fn active(graph: &Graph<'_>, draft: &Draft) -> Option<Draft> {
    if !matches!(draft.function, Function::Fixed(Activation::Identity)) || !draft.linear.is_empty()
    {
        return None;
    }
    let found = activation::find(graph, &draft.output)?;
    let mut next = draft.clone();
    next.taken.extend(found.taken);
    next.conditions.extend(found.conditions);
    next.function = found.function;
    next.output = found.output;
    Some(next)
}

/// A linear function, folded.
pub(in crate::install) fn fold(
    steps: &[(Linear, ScalarId)],
    number: impl Fn(ScalarId) -> Option<f64>,
) -> Option<(f64, f64)> {
    let (mut alpha, mut beta) = (1.0, 0.0);
    for &(step, id) in steps {
        let number = number(id)?;
        match step {
            Linear::Add => beta += number,
            Linear::Sub => beta -= number,
            Linear::Mul => (alpha, beta) = (alpha * number, beta * number),
            Linear::Div => (alpha, beta) = (alpha / number, beta / number),
        }
    }
    Some((alpha, beta))
}
