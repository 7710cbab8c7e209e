//! The types that a kernel is instantiated with, under one name.

use std::marker::PhantomData;

use cubecl::prelude::*;

/// The width of what is not a vector.
pub(crate) type One = Const<1>;

/// Element types and vector widths of a kernel.
///
/// Tensors that are loaded a whole vector at a time have the width [`N`](Self::N), the others 1. Where halves come in
/// pairs the element in memory is a number of 32 bits, and the width half of that.
pub(crate) trait Types: Send + Sync + 'static {
    /// Element of input, residual, output and sum.
    type F: Float;
    /// Element of scale and bias.
    type P: Float;
    /// Element of given statistics.
    type G: Float;
    /// What everything is computed in.
    type A: Float;
    /// Lanes that are computed at once.
    type N: Size;
    /// Width of the input.
    type Input: Size;
    /// Width of the residual.
    type Residual: Size;
    /// Width of the scale.
    type Scale: Size;
    /// Width of the bias.
    type Bias: Size;
    /// Width of given means.
    type Mean: Size;
    /// Width of given variances.
    type Variance: Size;
    /// Width of output and sum.
    type Output: Size;
}

/// Types from the outside in: elements, lanes, then widths.
pub(crate) struct Typed<Elements, Widths>(PhantomData<(Elements, Widths)>);

impl<F, P, G, A, N, Input, Residual, Scale, Bias, Mean, Variance, Output> Types
    for Typed<(F, P, G, A, N), (Input, Residual, Scale, Bias, Mean, Variance, Output)>
where
    F: Float,
    P: Float,
    G: Float,
    A: Float,
    N: Size,
    Input: Size,
    Residual: Size,
    Scale: Size,
    Bias: Size,
    Mean: Size,
    Variance: Size,
    Output: Size,
{
    type F = F;
    type P = P;
    type G = G;
    type A = A;
    type N = N;
    type Input = Input;
    type Residual = Residual;
    type Scale = Scale;
    type Bias = Bias;
    type Mean = Mean;
    type Variance = Variance;
    type Output = Output;
}
