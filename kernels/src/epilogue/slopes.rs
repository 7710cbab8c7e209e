//! Derivatives of the activations.
//!
//! As in the activations, exponentials take no positive argument; CELU is the exception. At a kink,
//! the derivative is that of the side that the formula assigns the kink to.

use cubecl::prelude::*;
use cubenorm_core::ActivationKind;

use crate::epilogue::activation::{
    constant, gelu_tanh_inner, positive, reciprocal, sigmoid, softplus, tanh_stable,
};

/// Derivative at `x` of the activation that a kernel is compiled for.
#[cube]
pub(crate) fn slope<A: Float, N: Size>(
    x: Vector<A, N>,
    alpha: A,
    beta: A,
    #[comptime] kind: ActivationKind,
) -> Vector<A, N> {
    let alpha = Vector::<A, N>::new(alpha);
    let beta = Vector::<A, N>::new(beta);
    let zero = constant::<A, N>(0.0);
    let one = constant::<A, N>(1.0);
    match kind {
        ActivationKind::Identity => one,
        ActivationKind::Relu => positive::<A, N>(x, one, zero),
        ActivationKind::LeakyRelu => positive::<A, N>(x, one, alpha),
        ActivationKind::ThresholdedRelu => select_many(x.greater_than(&alpha), one, zero),
        ActivationKind::Elu => positive::<A, N>(x, one, alpha * decay::<A, N>(x)),
        ActivationKind::Celu => positive::<A, N>(x, one, celu_decay::<A, N>(x, alpha)),
        ActivationKind::ScaledElu => beta * positive::<A, N>(x, one, alpha * decay::<A, N>(x)),
        ActivationKind::Linear => alpha,
        ActivationKind::HardSigmoid => within::<A, N>(alpha * x + beta, alpha),
        ActivationKind::Sigmoid => sigmoid_slope::<A, N>(x),
        ActivationKind::Tanh => tanh_slope::<A, N>(x),
        ActivationKind::ScaledTanh => alpha * beta * tanh_slope::<A, N>(beta * x),
        ActivationKind::Softplus => sigmoid::<A, N>(alpha * x),
        ActivationKind::ParametricSoftplus => alpha * beta * sigmoid::<A, N>(beta * x),
        ActivationKind::Softsign => {
            let denominator = one + x.abs();
            one / (denominator * denominator)
        }
        ActivationKind::Shrink => {
            let outside = select_many(x.greater_than(&beta), one, zero);
            select_many(x.less_than(&-beta), one, outside)
        }
        ActivationKind::Gelu => gelu_slope::<A, N>(x),
        ActivationKind::GeluTanh => gelu_tanh_slope::<A, N>(x),
        ActivationKind::Silu => silu_slope::<A, N>(x),
        ActivationKind::HardSwish => hard_swish_slope::<A, N>(x),
        ActivationKind::Mish => mish_slope::<A, N>(x),
    }
}

/// `exp(min(x, 0))`
#[cube]
fn decay<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let zero = constant::<A, N>(0.0);
    select_many(x.greater_than(&zero), zero, x).exp()
}

/// `exp(x / alpha)`, for an alpha of either sign.
#[cube]
fn celu_decay<A: Float, N: Size>(x: Vector<A, N>, alpha: Vector<A, N>) -> Vector<A, N> {
    (x / alpha).exp()
}

/// `slope` if `0 < y < 1`, else 0.
#[cube]
fn within<A: Float, N: Size>(y: Vector<A, N>, slope: Vector<A, N>) -> Vector<A, N> {
    let zero = constant::<A, N>(0.0);
    let below = select_many(y.less_than(&constant::<A, N>(1.0)), slope, zero);
    select_many(y.greater_than(&zero), below, zero)
}

/// `sigmoid(x) * sigmoid(-x)`, in the terms of [`sigmoid`], so that a compiler shares them.
#[cube]
fn sigmoid_slope<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let decay = (-x.abs()).exp();
    let near = reciprocal::<A, N>(constant::<A, N>(1.0) + decay);
    decay * near * near
}

/// `1 - tanh(x)^2 = 4 sigmoid(2x) sigmoid(-2x)`, without subtracting two numbers near 1.
#[cube]
fn tanh_slope<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    constant::<A, N>(4.0) * sigmoid_slope::<A, N>(constant::<A, N>(2.0) * x)
}

/// `Phi(x) + x phi(x)` of the standard normal distribution.
#[cube]
fn gelu_slope<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let half = constant::<A, N>(0.5);
    let erf = (x * constant::<A, N>(std::f32::consts::FRAC_1_SQRT_2)).erf();
    let cumulative = half * (constant::<A, N>(1.0) + erf);
    let density = (-half * x * x).exp() * constant::<A, N>(0.398_942_3);
    cumulative + x * density
}

#[cube]
fn gelu_tanh_slope<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let inner = gelu_tanh_inner::<A, N>(x);
    // Beyond these bounds the second term is zero, but the square would overflow.
    let near = x.max(constant::<A, N>(-32.0)).min(constant::<A, N>(32.0));
    let of_near = sigmoid_slope::<A, N>(gelu_tanh_inner::<A, N>(near));
    let three = constant::<A, N>(3.0 * 0.044_715);
    let inner_slope = constant::<A, N>(1.595_769_2) * (constant::<A, N>(1.0) + three * near * near);
    sigmoid::<A, N>(inner) + near * of_near * inner_slope
}

#[cube]
fn silu_slope<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    sigmoid::<A, N>(x) + x * sigmoid_slope::<A, N>(x)
}

#[cube]
fn hard_swish_slope<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let middle = x / constant::<A, N>(3.0) + constant::<A, N>(0.5);
    // NaN fails both comparisons and propagates.
    let above = select_many(
        x.less_equal(&constant::<A, N>(-3.0)),
        constant::<A, N>(0.0),
        middle,
    );
    select_many(
        x.greater_equal(&constant::<A, N>(3.0)),
        constant::<A, N>(1.0),
        above,
    )
}

#[cube]
fn mish_slope<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let soft = softplus::<A, N>(x);
    tanh_stable::<A, N>(soft) + x * tanh_slope::<A, N>(soft) * sigmoid::<A, N>(x)
}
