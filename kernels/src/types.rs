//! Bundle of the types that a kernel is instantiated with.

use std::marker::PhantomData;

use cubecl::prelude::*;

/// Width of a scalar.
pub(crate) type One = Const<1>;

/// Element types and vector widths of a kernel.
///
/// Tensors with vector loads have the width [`N`](Self::N), others 1. Packed f16 pairs are 32-bit
/// elements, at half that width.
pub(crate) trait Types: Send + Sync + 'static {
    /// Element of input and sum. Backward: of the gradients of both.
    type F: Float;
    /// Element of the residual. Backward: of the output gradient.
    type R: Float;
    /// Element of the output.
    type O: Float;
    /// Element of scale and bias.
    type P: Float;
    /// Element of provided statistics.
    type G: Float;
    /// Accumulation type.
    type A: Float;
    /// Lanes of a vector in computations.
    type N: Size;
    /// Width of the input.
    type Input: Size;
    /// Width of the residual.
    type Residual: Size;
    /// Width of the scale.
    type Scale: Size;
    /// Width of the bias.
    type Bias: Size;
    /// Width of provided means.
    type Mean: Size;
    /// Width of provided variances.
    type Variance: Size;
    /// Width of output and sum.
    type Output: Size;
}

/// [`Types`] from tuples: elements and lanes, then widths.
pub(crate) struct Typed<Elements, Widths>(PhantomData<(Elements, Widths)>);

impl<F, R, O, P, G, A, N, Input, Residual, Scale, Bias, Mean, Variance, Output> Types
    for Typed<(F, R, O, P, G, A, N), (Input, Residual, Scale, Bias, Mean, Variance, Output)>
where
    F: Float,
    R: Float,
    O: Float,
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
    type R = R;
    type O = O;
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
