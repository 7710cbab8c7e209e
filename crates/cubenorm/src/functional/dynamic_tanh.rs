//! Dynamic tanh: a layer in the place of a norm, without statistics.

use burn::tensor::Tensor;
use cubenorm_core::{Activation, NormError};

use super::{Call, expect_rank, expect_sizes, or_panic};
use crate::ops::{NormSpec, Reduction, Tracked, dtype};

/// Dynamic tanh, which takes the place of a norm in a transformer: `y = tanh(alpha * x) * gamma + beta`.
///
/// Source: [Transformers without Normalization](https://arxiv.org/abs/2503.10622). `alpha` is learned, and `gamma` and
/// `beta` apply along the last axis. Nothing is reduced, so each element is read once.
///
/// If gradients are tracked, there are two operations, `tanh(alpha * x)` and the rest, each one kernel per pass. All four
/// inputs have a gradient.
///
/// # Shapes
///
/// - `input`, result: `[..., d]`
/// - `alpha`: `[1]`
/// - `gamma`, `beta`: `[d]`; without them 1 and 0
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm). `alpha` has the input's dtype, or `f32` for an input of `f16` or `bf16`. The
/// result is rounded once, from the accumulation dtype.
///
/// # Panics
///
/// If [`try_dynamic_tanh`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[0.0, 100.0]], &device);
/// let alpha = Tensor::from_floats([0.5], &device);
/// let gamma = Tensor::from_floats([1.0, 2.0], &device);
/// let beta = Tensor::from_floats([3.0, 4.0], &device);
/// let y = cubenorm::dynamic_tanh(x, alpha, gamma, beta);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [3.0, 6.0]);
/// # }
/// ```
pub fn dynamic_tanh<const D: usize>(
    input: Tensor<D>,
    alpha: Tensor<1>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
) -> Tensor<D> {
    or_panic(try_dynamic_tanh(input, alpha, gamma, beta))
}

/// [`dynamic_tanh`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`](crate::try_layer_norm), [`NormError::Shape`] if `alpha` is not `[1]`, and
/// [`NormError::UnsupportedActivation`] if the device does not compute `tanh` to the digits of the dtype.
pub fn try_dynamic_tanh<const D: usize>(
    input: Tensor<D>,
    alpha: Tensor<1>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
) -> Result<Tensor<D>, NormError> {
    let (gamma, beta) = (gamma.into(), beta.into());
    expect_rank(&input, 1, "[..., d]")?;
    expect_sizes(&gamma, &beta, input.dims()[D - 1])?;
    if alpha.dims() != [1] {
        return Err(NormError::Shape {
            tensor: "alpha",
            shape: alpha.dims().to_vec(),
            expected: "[1], one number for all elements".into(),
        });
    }
    let spec = |reduction| NormSpec::new([0; 0], reduction, 0.0);
    let call = Call::new(input.clone(), spec(Reduction::DynamicTanh))
        .with_params(gamma.clone(), beta.clone())
        .with_alpha(alpha.clone())
        .named_as_burn_does();
    call.check()?;
    if call.tracked() == Tracked::default() {
        // The output takes the input's buffer if the call alone has it.
        drop((input, alpha, gamma, beta));
        return Ok(call.register().output);
    }
    // Two operations with backward kernels: tanh(alpha * x), which the second keeps, then scale and bias. What is between
    // them is not rounded to a narrow dtype.
    let result = dtype(input.dtype());
    let between = result.map(|dtype| dtype.accumulation());
    let curve = NormSpec {
        activation: Activation::Tanh,
        output_dtype: between,
        ..spec(Reduction::None)
    };
    let affine = NormSpec {
        output_dtype: result,
        ..spec(Reduction::None)
    };
    let mut curve = Call::new(input, curve).with_params(Some(alpha), None);
    curve.names[0] = "alpha";
    let affine = Call::new(curve.run::<D>()?.output, affine).with_params(gamma, beta);
    Ok(affine.named_as_burn_does().run()?.output)
}
