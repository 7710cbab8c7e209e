//! Activations in numerically stable form. Exponentials take no positive argument, so they cannot
//! overflow. The exception is CELU, whose parameter may be negative.
//!
//! `alpha` and `beta` are the two parameters in the order of the activation's fields.

use cubecl::prelude::*;
use cubenorm_core::ActivationKind;

/// Applies the activation that a kernel is compiled for.
#[cube]
pub(crate) fn activate<A: Float, N: Size>(
    x: Vector<A, N>,
    alpha: A,
    beta: A,
    #[comptime] kind: ActivationKind,
) -> Vector<A, N> {
    let alpha = Vector::<A, N>::new(alpha);
    let beta = Vector::<A, N>::new(beta);
    match kind {
        ActivationKind::Identity => x,
        ActivationKind::Relu => relu::<A, N>(x),
        ActivationKind::LeakyRelu => positive::<A, N>(x, x, alpha * x),
        ActivationKind::ThresholdedRelu => {
            select_many(x.greater_than(&alpha), x, constant::<A, N>(0.0))
        }
        ActivationKind::Elu => positive::<A, N>(x, x, alpha * expm1_negative::<A, N>(x)),
        ActivationKind::Celu => celu::<A, N>(x, alpha),
        ActivationKind::ScaledElu => {
            beta * positive::<A, N>(x, x, alpha * expm1_negative::<A, N>(x))
        }
        ActivationKind::Linear => alpha * x + beta,
        ActivationKind::HardSigmoid => saturate::<A, N>(alpha * x + beta),
        ActivationKind::Sigmoid => sigmoid::<A, N>(x),
        ActivationKind::Tanh => tanh_stable::<A, N>(x),
        ActivationKind::ScaledTanh => alpha * tanh_stable::<A, N>(beta * x),
        ActivationKind::Softplus => softplus::<A, N>(alpha * x) / alpha,
        ActivationKind::ParametricSoftplus => alpha * softplus::<A, N>(beta * x),
        ActivationKind::Softsign => x / (constant::<A, N>(1.0) + x.abs()),
        ActivationKind::Shrink => shrink::<A, N>(x, alpha, beta),
        ActivationKind::Gelu => gelu::<A, N>(x),
        ActivationKind::GeluTanh => gelu_tanh::<A, N>(x),
        ActivationKind::Silu => x * sigmoid::<A, N>(x),
        ActivationKind::HardSwish => {
            let slope = constant::<A, N>(1.0) / constant::<A, N>(6.0);
            x * saturate::<A, N>(x * slope + constant::<A, N>(0.5))
        }
        ActivationKind::Mish => x * tanh_stable::<A, N>(softplus::<A, N>(x)),
    }
}

#[cube]
pub(super) fn constant<A: Float, N: Size>(#[comptime] value: f32) -> Vector<A, N> {
    Vector::new(A::new(value))
}

/// `then` if `x` is positive, else `otherwise`. NaN takes `otherwise`, which it propagates through.
#[cube]
pub(super) fn positive<A: Float, N: Size>(
    x: Vector<A, N>,
    then: Vector<A, N>,
    otherwise: Vector<A, N>,
) -> Vector<A, N> {
    select_many(x.greater_than(&constant::<A, N>(0.0)), then, otherwise)
}

/// `max(x, 0)` that propagates NaN, unlike the maximum of most runtimes.
#[cube]
fn relu<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let zero = constant::<A, N>(0.0);
    select_many(x.less_than(&zero), zero, x)
}

/// `max(0, min(x, 1))` that propagates NaN.
#[cube]
fn saturate<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let one = constant::<A, N>(1.0);
    relu::<A, N>(select_many(x.greater_than(&one), one, x))
}

/// `min(x, 0)` that propagates NaN.
#[cube]
fn negative_part<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let zero = constant::<A, N>(0.0);
    select_many(x.greater_than(&zero), zero, x)
}

/// `exp(min(x, 0)) - 1`
#[cube]
fn expm1_negative<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    negative_part::<A, N>(x).exp_m1()
}

#[cube]
fn celu<A: Float, N: Size>(x: Vector<A, N>, alpha: Vector<A, N>) -> Vector<A, N> {
    // If the exponential overflows, the product is an infinity that the minimum turns into 0.
    relu::<A, N>(x) + negative_part::<A, N>(alpha * (x / alpha).exp_m1())
}

/// `1 / (1 + exp(-x))`, computed from `exp(-|x|)`.
#[cube]
pub(super) fn sigmoid<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let decay = (-x.abs()).exp();
    let numerator = positive::<A, N>(x, constant::<A, N>(1.0), decay);
    numerator * reciprocal::<A, N>(constant::<A, N>(1.0) + decay)
}

/// `1 / y` for `1 <= y <= 2`. For f32 by a polynomial and two steps of Newton's method, because the division of a GPU
/// takes more instructions.
///
/// The polynomial has the relative error `T3(2 y - 3) / 99` with the Chebyshev polynomial `T3`, so at most 1/99. Each
/// step squares it.
#[cube]
pub(super) fn reciprocal<A: Float, N: Size>(y: Vector<A, N>) -> Vector<A, N> {
    let one = constant::<A, N>(1.0);
    let bytes = A::size();
    if comptime!(bytes == 8) {
        one / y
    } else {
        let mut near = constant::<A, N>(210.0 / 99.0)
            + y * (constant::<A, N>(32.0 / 99.0) * y - constant::<A, N>(144.0 / 99.0));
        #[unroll]
        for _ in 0..2usize {
            near += near * (one - y * near);
        }
        near
    }
}

/// `tanh(|x|) = -expm1(-2|x|) / (1 + exp(-2|x|))`, with the sign of `x`.
#[cube]
pub(super) fn tanh_stable<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let decay = (x.abs() * constant::<A, N>(-2.0)).exp_m1();
    let magnitude = -decay / (constant::<A, N>(2.0) + decay);
    select_many(x.less_than(&constant::<A, N>(0.0)), -magnitude, magnitude)
}

/// `ln(1 + exp(x)) = max(x, 0) + ln(1 + exp(-|x|))`
#[cube]
pub(super) fn softplus<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    relu::<A, N>(x) + (-x.abs()).exp().log1p()
}

#[cube]
fn shrink<A: Float, N: Size>(
    x: Vector<A, N>,
    bias: Vector<A, N>,
    threshold: Vector<A, N>,
) -> Vector<A, N> {
    let low = select_many(
        x.less_than(&-threshold),
        x + bias,
        constant::<A, N>(0.0) * x,
    );
    select_many(x.greater_than(&threshold), x - bias, low)
}

#[cube]
fn gelu<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let half = constant::<A, N>(0.5);
    let erf = (x * constant::<A, N>(std::f32::consts::FRAC_1_SQRT_2)).erf();
    half * x * (constant::<A, N>(1.0) + erf)
}

/// `x / 2 * (1 + tanh(u)) = x * sigmoid(2 u)`, which keeps its precision for large negative `u`.
#[cube]
fn gelu_tanh<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    x * sigmoid::<A, N>(gelu_tanh_inner::<A, N>(x))
}

/// `2 u` with `u = sqrt(2 / pi) * (x + 0.044715 * x^3)`.
#[cube]
pub(super) fn gelu_tanh_inner<A: Float, N: Size>(x: Vector<A, N>) -> Vector<A, N> {
    let twice_root = constant::<A, N>(1.595_769_2);
    twice_root * (x + constant::<A, N>(0.044_715) * x * x * x)
}
