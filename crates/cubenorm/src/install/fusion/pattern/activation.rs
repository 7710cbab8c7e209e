//! Activations as Burn composes them.

use burn_fusion::stream::ScalarId;
use burn_ir::TensorIr;
use cubenorm_core::Activation;

use super::super::graph::{Binary, Graph, Node, Scalar, Unary};
use super::Condition;

/// The function that is applied last.
#[derive(Debug, Clone, Copy)]
pub(in crate::install) enum Function {
    /// One without a number, or with numbers of its own.
    Fixed(Activation),
    /// A leaky ReLU, whose slope is known when the optimization runs.
    LeakyRelu(ScalarId),
}

/// An activation of a value.
pub(super) struct Active {
    pub(super) function: Function,
    pub(super) taken: Vec<usize>,
    pub(super) conditions: Vec<Condition>,
    pub(super) output: TensorIr,
}

/// Operations that a pattern has taken, and the numbers that it needs.
#[derive(Default)]
struct Steps {
    taken: Vec<usize>,
    conditions: Vec<Condition>,
}

impl Steps {
    fn is(&mut self, number: ScalarId, value: f64) {
        self.conditions.push(Condition::Is(number, value));
    }
}

/// A pattern: the value that a tensor is the activation of.
type Pattern = for<'a> fn(&Graph<'a>, &'a TensorIr, &mut Steps) -> Option<(Function, &'a TensorIr)>;

const PATTERNS: [Pattern; 7] = [relu, leaky_relu, gelu, gelu_tanh, sigmoid, silu, tanh];

/// The longest activation of a value, of which nothing else reads the value.
pub(super) fn find(graph: &Graph<'_>, value: &TensorIr) -> Option<Active> {
    if !graph.is_dead(value) {
        return None;
    }
    let mut best: Option<Active> = None;
    for at in 0..graph.len() {
        let Some(output) = graph.output(at) else {
            continue;
        };
        for pattern in PATTERNS {
            let mut steps = Steps::default();
            let Some((function, of)) = pattern(graph, output, &mut steps) else {
                continue;
            };
            let mut taken = steps.taken;
            taken.sort_unstable();
            taken.dedup();
            let is_of_value = of.id == value.id && of.shape == output.shape;
            let reads_alone = graph.users(value).all(|at| taken.contains(&at));
            let is_longer = best
                .as_ref()
                .is_none_or(|best| best.taken.len() < taken.len());
            if is_of_value && reads_alone && is_longer {
                best = Some(Active {
                    function,
                    taken,
                    conditions: steps.conditions,
                    output: output.clone(),
                });
            }
        }
    }
    best
}

/// The operand of a unary operation.
fn unary<'a>(
    graph: &Graph<'a>,
    kind: Unary,
    tensor: &'a TensorIr,
    steps: &mut Steps,
) -> Option<&'a TensorIr> {
    match graph.made(tensor)? {
        (at, Node::Unary(actual, input)) if actual == kind => {
            steps.taken.push(at);
            Some(input)
        }
        _ => None,
    }
}

/// The operand of an operation with a number, and the number.
fn scalar<'a>(
    graph: &Graph<'a>,
    kind: Scalar,
    tensor: &'a TensorIr,
    steps: &mut Steps,
) -> Option<(&'a TensorIr, ScalarId)> {
    match graph.made(tensor)? {
        (at, Node::Scalar(actual, input, number)) if actual == kind => {
            steps.taken.push(at);
            Some((input, number))
        }
        _ => None,
    }
}

/// The operands of a binary operation.
fn binary<'a>(
    graph: &Graph<'a>,
    kind: Binary,
    tensor: &'a TensorIr,
    steps: &mut Steps,
) -> Option<(&'a TensorIr, &'a TensorIr)> {
    match graph.made(tensor)? {
        (at, Node::Binary(actual, a, b)) if actual == kind => {
            steps.taken.push(at);
            Some((a, b))
        }
        _ => None,
    }
}

/// The operand of a negation: Burn multiplies by -1.
fn negated<'a>(graph: &Graph<'a>, tensor: &'a TensorIr, steps: &mut Steps) -> Option<&'a TensorIr> {
    if let Some(input) = unary(graph, Unary::Neg, tensor, steps) {
        return Some(input);
    }
    let (input, number) = scalar(graph, Scalar::Mul, tensor, steps)?;
    steps.is(number, -1.0);
    Some(input)
}

fn casts<'a>(graph: &Graph<'a>, tensor: &'a TensorIr, steps: &mut Steps) -> &'a TensorIr {
    let (tensor, through) = graph.look_through_casts(tensor);
    steps.taken.extend(through);
    tensor
}

/// `0` where `x <= 0`, else `x`.
fn relu<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    steps: &mut Steps,
) -> Option<(Function, &'a TensorIr)> {
    let (
        at,
        Node::MaskFill {
            tensor,
            mask,
            value,
        },
    ) = graph.made(tensor)?
    else {
        return None;
    };
    steps.taken.push(at);
    steps.is(value, 0.0);
    let (of, number) = scalar(graph, Scalar::IsLowerEqual, mask, steps)?;
    steps.is(number, 0.0);
    (of.id == tensor.id).then_some((Function::Fixed(Activation::Relu), of))
}

/// `x * slope` where `x < 0`, else `x`.
fn leaky_relu<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    steps: &mut Steps,
) -> Option<(Function, &'a TensorIr)> {
    let (
        at,
        Node::MaskWhere {
            tensor,
            mask,
            value,
        },
    ) = graph.made(tensor)?
    else {
        return None;
    };
    steps.taken.push(at);
    let (of, number) = scalar(graph, Scalar::IsLower, mask, steps)?;
    steps.is(number, 0.0);
    let (scaled, slope) = scalar(graph, Scalar::Mul, value, steps)?;
    (of.id == tensor.id && scaled.id == of.id).then_some((Function::LeakyRelu(slope), of))
}

/// `x * (erf(x / sqrt(2)) + 1) / 2`.
fn gelu<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    steps: &mut Steps,
) -> Option<(Function, &'a TensorIr)> {
    let (product, two) = scalar(graph, Scalar::Div, tensor, steps)?;
    steps.is(two, 2.0);
    let (a, b) = binary(graph, Binary::Mul, product, steps)?;
    let (sum, one) = scalar(graph, Scalar::Add, b, steps)?;
    steps.is(one, 1.0);
    let error = unary(graph, Unary::Erf, sum, steps)?;
    let (of, root) = scalar(graph, Scalar::Div, error, steps)?;
    steps.is(root, std::f64::consts::SQRT_2);
    (of.id == a.id).then_some((Function::Fixed(Activation::Gelu), of))
}

/// `x * (tanh((x + x^3 * 0.044715) * sqrt(2 / pi)) + 1) * 0.5`.
fn gelu_tanh<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    steps: &mut Steps,
) -> Option<(Function, &'a TensorIr)> {
    let (product, half) = scalar(graph, Scalar::Mul, tensor, steps)?;
    steps.is(half, 0.5);
    let (a, b) = binary(graph, Binary::Mul, product, steps)?;
    let (sum, one) = scalar(graph, Scalar::Add, b, steps)?;
    steps.is(one, 1.0);
    let inner = unary(graph, Unary::Tanh, sum, steps)?;
    let (inner, factor) = scalar(graph, Scalar::Mul, inner, steps)?;
    steps.is(factor, (2.0 / std::f64::consts::PI).sqrt());
    let (of, cube) = binary(graph, Binary::Add, inner, steps)?;
    let (cube, factor) = scalar(graph, Scalar::Mul, cube, steps)?;
    steps.is(factor, 0.044715);
    let (cubed, three) = scalar(graph, Scalar::Pow, cube, steps)?;
    steps.is(three, 3.0);
    let is_of_one = of.id == a.id && cubed.id == of.id;
    is_of_one.then_some((Function::Fixed(Activation::GeluTanh), of))
}

/// `exp(-log(exp(-x) + 1))`, in f32.
fn sigmoid<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    steps: &mut Steps,
) -> Option<(Function, &'a TensorIr)> {
    let tensor = casts(graph, tensor, steps);
    let logarithm = unary(graph, Unary::Exp, tensor, steps)?;
    let logarithm = negated(graph, logarithm, steps)?;
    let sum = unary(graph, Unary::Log, logarithm, steps)?;
    let (exponential, one) = scalar(graph, Scalar::Add, sum, steps)?;
    steps.is(one, 1.0);
    let negative = unary(graph, Unary::Exp, exponential, steps)?;
    let of = negated(graph, negative, steps)?;
    let of = casts(graph, of, steps);
    Some((Function::Fixed(Activation::Sigmoid), of))
}

/// `x * sigmoid(x)`.
fn silu<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    steps: &mut Steps,
) -> Option<(Function, &'a TensorIr)> {
    let (a, b) = binary(graph, Binary::Mul, tensor, steps)?;
    let taken = steps.taken.len();
    for (x, gate) in [(a, b), (b, a)] {
        let (x, through) = graph.look_through_casts(x);
        let found = sigmoid(graph, gate, steps);
        if let Some((_, of)) = found
            && of.id == x.id
        {
            steps.taken.extend(through);
            return Some((Function::Fixed(Activation::Silu), of));
        }
        steps.taken.truncate(taken);
        steps.conditions.clear();
    }
    None
}

fn tanh<'a>(
    graph: &Graph<'a>,
    tensor: &'a TensorIr,
    steps: &mut Steps,
) -> Option<(Function, &'a TensorIr)> {
    let of = unary(graph, Unary::Tanh, tensor, steps)?;
    Some((Function::Fixed(Activation::Tanh), of))
}
