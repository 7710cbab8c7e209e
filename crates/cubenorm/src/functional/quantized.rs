//! Norms whose output is quantised to codes of 8 bits.

use burn::backend::Dispatch;
use burn::tensor::quantization::{
    QuantScheme, QuantStore, QuantValue, QuantizationParameters, ScaleDtype,
};
use burn::tensor::{DType, Int, Tensor, TensorData};
use cubenorm_core::{CODES_PER_WORD, CodeFormat, NormError};

use super::{Call, expect_residual, last_axis_spec, of_sum, or_panic};
use crate::NormOptions;
use crate::ops::{NormBackend, QuantizedOperands, QuantizedSpec, Reduction};

/// The format of a quantised norm's codes, and the source of their scale: for [`quantized_rms_norm`].
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::{CodeFormat, Codes};
///
/// # #[cfg(feature = "flex")] {
/// // A scale per row, from its largest magnitude.
/// let dynamic = Codes::from(CodeFormat::Int8);
/// // A scale of the calibration, for all rows.
/// let scale = Tensor::from_floats([0.02], &Device::flex());
/// let fixed = Codes::new(CodeFormat::E4M3).with_scale(scale);
/// # let _ = (dynamic, fixed);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Codes {
    format: CodeFormat,
    scale: Option<Tensor<1>>,
}

impl Codes {
    /// Codes of a format, with a scale per row from its largest magnitude.
    pub const fn new(format: CodeFormat) -> Self {
        Self {
            format,
            scale: None,
        }
    }

    /// Sets the scale of all rows, a tensor of one number.
    pub fn with_scale(mut self, scale: Tensor<1>) -> Self {
        self.scale = Some(scale);
        self
    }
}

impl From<CodeFormat> for Codes {
    fn from(format: CodeFormat) -> Self {
        Self::new(format)
    }
}

/// A tensor of codes of 8 bits, and its scales.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::{CodeFormat, NormOptions};
///
/// # #[cfg(feature = "flex")] {
/// let x = Tensor::<2>::from_floats([[4.0, -4.0, 4.0, -4.0]], &Device::flex());
/// let options = NormOptions::new().with_epsilon(0.0);
/// let y = cubenorm::quantized_rms_norm(x, None, CodeFormat::Int8, &options);
/// // The codes 127, -127, 127, -127.
/// assert_eq!(y.words.clone().into_data().try_to_vec::<u32>().unwrap(), [0x817f_817f]);
/// let error = (y.dequantized() - Tensor::from_floats([[1.0, -1.0, 1.0, -1.0]], &Device::flex())).abs();
/// assert!(error.max().into_scalar::<f32>() < 1e-6);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Quantized<const D: usize> {
    /// Words of four codes along the last dimension, the first code in the lowest byte: `u32`, `[..., d / 4]`. Burn's
    /// `QuantStore::PackedU32` has the same order.
    pub words: Tensor<D, Int>,
    /// The scale of each row, `[..., 1]`, or of all rows, `[1, ..., 1]`. It is `f64` for an input of `f64`, else `f32`.
    pub scale: Tensor<D>,
    /// The format of the codes.
    pub format: CodeFormat,
}

impl<const D: usize> Quantized<D> {
    /// `code * scale` of each element, `[..., d]`, in the dtype of the scale.
    ///
    /// It is within half a step of the norm's result: `scale / 2` for int8, and 1/16 of the number, or `scale / 1024` if
    /// that is more, for e4m3.
    pub fn dequantized(&self) -> Tensor<D> {
        let mut dims = self.words.dims();
        let words: usize = dims.iter().product();
        dims[D - 1] *= CODES_PER_WORD;
        let flat: Tensor<2, Int> = self.words.clone().reshape([words, 1]);
        let bytes = (0..CODES_PER_WORD).map(|byte| {
            let shifted = flat.clone().bitwise_right_shift_scalar(8 * byte as u32);
            shifted.bitwise_and_scalar(0xff_u32)
        });
        let codes = Tensor::cat(bytes.collect(), 1).reshape([words * CODES_PER_WORD]);
        let numbers: Vec<f32> = (0..=u8::MAX).map(|code| self.format.number(code)).collect();
        let data = TensorData::new(numbers, [256]);
        let numbers = Tensor::<1>::from_data(data, (&self.scale.device(), self.scale.dtype()));
        numbers.select(0, codes).reshape(dims) * self.scale.clone()
    }

    /// The same codes and scales as a quantised tensor of Burn, for its matrix products and records.
    ///
    /// Its scheme is `Q8S` in `PackedU32`, with the given scale for the tensor, or with the scale of a row for each of its
    /// blocks. A block has the largest power of two up to 128 that divides the row. Burn quantises the
    /// [dequantised](Self::dequantized) numbers, which has these codes again if the scales are normal numbers.
    ///
    /// # Panics
    ///
    /// If [`try_into_burn`](Self::try_into_burn) returns an error, with that message.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use cubenorm::{CodeFormat, NormOptions};
    ///
    /// # #[cfg(feature = "flex")] {
    /// let x = Tensor::<2>::from_floats([[4.0, -4.0, 4.0, -4.0]], &Device::flex());
    /// let y = cubenorm::quantized_rms_norm(x, None, CodeFormat::Int8, &NormOptions::new());
    /// let numbers = y.dequantized();
    /// let same = y.into_burn().dequantize() - numbers;
    /// assert!(same.abs().max().into_scalar::<f32>() < 1e-6);
    /// # }
    /// ```
    pub fn into_burn(self) -> Tensor<D> {
        or_panic(self.try_into_burn())
    }

    /// [`into_burn`](Self::into_burn) as a [`Result`].
    ///
    /// # Errors
    ///
    /// [`NormError::QuantizedTensor`] if the codes are not int8: Burn has e4m3 only where the device has it.
    pub fn try_into_burn(self) -> Result<Tensor<D>, NormError> {
        if self.format != CodeFormat::Int8 {
            return Err(NormError::QuantizedTensor {
                format: self.format,
            });
        }
        let numbers = self.dequantized().cast(DType::F32);
        let dims = numbers.dims();
        let scale = self.scale.cast(DType::F32);
        // Burn has no blocks without elements.
        let scale = match dims.contains(&0) {
            true => Tensor::ones([1; D], &scale.device()),
            false => scale,
        };
        let is_one = scale.dims() == [1; D];
        let codes = QuantScheme::default()
            .with_value(QuantValue::Q8S)
            .with_store(QuantStore::PackedU32(0));
        let (scheme, scales) = match is_one {
            true => (codes.per_tensor(ScaleDtype::F32), scale.reshape([1])),
            false => {
                let block = 1 << dims[D - 1].trailing_zeros().min(MOST_OF_BLOCK);
                let scales = scale.repeat_dim(D - 1, dims[D - 1] / block);
                let scheme = codes.per_block([block as u8], ScaleDtype::F32);
                // Burn types scales as one dimension, and its backends expect a scale per block in the tensor's rank.
                (scheme, Tensor::from_dispatch(scales.into_dispatch()))
            }
        };
        let scales = QuantizationParameters {
            scales,
            global: None,
        };
        Ok(numbers.quantize(&scheme, scales))
    }
}

/// The power of two of the longest block of Burn's that has one scale.
const MOST_OF_BLOCK: u32 = 7;

/// [`rms_norm`](crate::rms_norm), rounded to codes of 8 bits in the same kernel:
///
/// ```text
/// y = x / sqrt(mean(x^2) + epsilon) * gamma
/// scale = max(|y|) / largest, or given
/// code = round(y / scale)
/// ```
///
/// `largest` is the [`CodeFormat`]'s: 127 or 448. Numbers outside of a given scale's range become the largest or smallest
/// code. A row of zeros has the scale 1, and a row with NaN or infinity the scale NaN.
///
/// The kernel rounds with 32-bit arithmetic, so every device has both formats. Codes have no gradient.
///
/// Source: [SmoothQuant](https://arxiv.org/abs/2211.10438) (a scale per token),
/// [FP8 Formats for Deep Learning](https://arxiv.org/abs/2209.05433).
///
/// # Shapes
///
/// - `input`: `[..., d]`, with `d` a multiple of 4
/// - `gamma`: `[d]`
/// - result: words of `[..., d / 4]`, scales of `[..., 1]`
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm).
///
/// # Panics
///
/// If [`try_quantized_rms_norm`] returns an error, with that message.
///
/// # Example
///
/// See [`Quantized`].
pub fn quantized_rms_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    codes: impl Into<Codes>,
    options: &NormOptions,
) -> Quantized<D> {
    or_panic(try_quantized_rms_norm(input, gamma, codes, options))
}

/// [`quantized_rms_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`](crate::try_layer_norm). [`NormError::Quantization`] if `d` is no multiple of 4, or if the options
/// have an output dtype or a rounding: codes have no dtype. [`NormError::Shape`] if a given scale has not one number.
pub fn try_quantized_rms_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    codes: impl Into<Codes>,
    options: &NormOptions,
) -> Result<Quantized<D>, NormError> {
    let params = [gamma.into(), None];
    let run = quantized(
        input,
        None,
        params,
        codes.into(),
        options,
        Reduction::MeanSquare,
    )?;
    Ok(run.0)
}

/// [`layer_norm`](crate::layer_norm), rounded to codes of 8 bits in the same kernel, as [`quantized_rms_norm`].
///
/// # Panics
///
/// If [`try_quantized_layer_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::{CodeFormat, NormOptions};
///
/// # #[cfg(feature = "flex")] {
/// let x = Tensor::<2>::from_floats([[9.0, 7.0, 9.0, 7.0]], &Device::flex());
/// let options = NormOptions::new().with_epsilon(0.0);
/// let y = cubenorm::quantized_layer_norm(x, None, None, CodeFormat::E4M3, &options);
/// // 448 and -448.
/// assert_eq!(y.words.into_data().try_to_vec::<u32>().unwrap(), [0xfe7e_fe7e]);
/// # }
/// ```
pub fn quantized_layer_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    codes: impl Into<Codes>,
    options: &NormOptions,
) -> Quantized<D> {
    or_panic(try_quantized_layer_norm(input, gamma, beta, codes, options))
}

/// [`quantized_layer_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_quantized_rms_norm`].
pub fn try_quantized_layer_norm<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    codes: impl Into<Codes>,
    options: &NormOptions,
) -> Result<Quantized<D>, NormError> {
    let params = [gamma.into(), beta.into()];
    let run = quantized(
        input,
        None,
        params,
        codes.into(),
        options,
        Reduction::MeanVariance,
    )?;
    Ok(run.0)
}

/// The sum of input and residual, and [`quantized_rms_norm`] of it, in one kernel.
///
/// # Shapes
///
/// - `input`, `residual`, sum: `[..., d]`, with `d` a multiple of 4
/// - `gamma`: `[d]`
///
/// # Dtypes
///
/// As [`add_rms_norm`](crate::add_rms_norm): the sum has the residual's dtype.
///
/// # Panics
///
/// If [`try_add_quantized_rms_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::{CodeFormat, NormOptions};
///
/// # #[cfg(feature = "flex")] {
/// let x = Tensor::<2>::from_floats([[1.0, -2.0, 1.0, -2.0]], &Device::flex());
/// let options = NormOptions::new();
/// let (y, sum) = cubenorm::add_quantized_rms_norm(x.clone(), x, None, CodeFormat::Int8, &options);
/// assert_eq!(sum.into_data().try_to_vec::<f32>().unwrap(), [2.0, -4.0, 2.0, -4.0]);
/// assert_eq!(y.scale.dims(), [1, 1]);
/// # }
/// ```
pub fn add_quantized_rms_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    codes: impl Into<Codes>,
    options: &NormOptions,
) -> (Quantized<D>, Tensor<D>) {
    or_panic(try_add_quantized_rms_norm(
        input, residual, gamma, codes, options,
    ))
}

/// [`add_quantized_rms_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_quantized_rms_norm`].
pub fn try_add_quantized_rms_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    codes: impl Into<Codes>,
    options: &NormOptions,
) -> Result<(Quantized<D>, Tensor<D>), NormError> {
    let (params, codes) = ([gamma.into(), None], codes.into());
    let kind = Reduction::MeanSquare;
    let (result, sum) = quantized(input, Some(residual), params, codes, options, kind)?;
    Ok((result, sum.expect(super::WRITTEN)))
}

/// The sum of input and residual, and [`quantized_layer_norm`] of it, in one kernel.
///
/// # Shapes
///
/// As [`add_quantized_rms_norm`], with `beta` as `gamma`.
///
/// # Dtypes
///
/// As [`add_quantized_rms_norm`].
///
/// # Panics
///
/// If [`try_add_quantized_layer_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::{CodeFormat, NormOptions};
///
/// # #[cfg(feature = "flex")] {
/// let x = Tensor::<2>::from_floats([[1.0, 3.0, 1.0, 3.0]], &Device::flex());
/// let options = NormOptions::new().with_epsilon(0.0);
/// let (y, _) =
///     cubenorm::add_quantized_layer_norm(x.clone(), x, None, None, CodeFormat::Int8, &options);
/// assert_eq!(y.words.into_data().try_to_vec::<u32>().unwrap(), [0x7f81_7f81]);
/// # }
/// ```
pub fn add_quantized_layer_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    codes: impl Into<Codes>,
    options: &NormOptions,
) -> (Quantized<D>, Tensor<D>) {
    or_panic(try_add_quantized_layer_norm(
        input, residual, gamma, beta, codes, options,
    ))
}

/// [`add_quantized_layer_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_quantized_rms_norm`].
pub fn try_add_quantized_layer_norm<const D: usize>(
    input: Tensor<D>,
    residual: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    codes: impl Into<Codes>,
    options: &NormOptions,
) -> Result<(Quantized<D>, Tensor<D>), NormError> {
    let (params, codes) = ([gamma.into(), beta.into()], codes.into());
    let kind = Reduction::MeanVariance;
    let (result, sum) = quantized(input, Some(residual), params, codes, options, kind)?;
    Ok((result, sum.expect(super::WRITTEN)))
}

fn quantized<const D: usize>(
    input: Tensor<D>,
    residual: Option<Tensor<D>>,
    [gamma, beta]: [Option<Tensor<1>>; 2],
    codes: Codes,
    options: &NormOptions,
    reduction: Reduction,
) -> Result<(Quantized<D>, Option<Tensor<D>>), NormError> {
    let mut norm = last_axis_spec(&input, &gamma, &beta, options, reduction)?;
    if norm.output_dtype.is_some() {
        return Err(NormError::Quantization {
            reason: "expected no output dtype, since codes have no dtype",
        });
    }
    norm.writes_sum = residual.is_some();
    let given = codes.scale.map(|scale| expect_one(scale, &input));
    let given = given.transpose()?;
    // Codes have no gradient, so nothing is tracked. The results are on the input's device.
    let [gamma, beta] = [gamma, beta].map(|param| param.map(Tensor::detach));
    let input = input.detach();
    let call = match residual {
        Some(residual) => {
            expect_residual(&input, &residual)?;
            of_sum(input, residual.detach(), norm)
        }
        None => Call::new(input, norm),
    };
    let mut call = call.with_params(gamma, beta).named_as_burn_does();
    call.spec.output_dtype = None;
    call.codes = Some((codes.format, given.is_some()));
    call.check()?;
    let spec = QuantizedSpec {
        norm: call.spec,
        format: codes.format,
    };
    let parts = Dispatch::normalize_quantized(
        QuantizedOperands {
            input: call.input,
            residual: call.residual.into(),
            scale: call.scale.into(),
            bias: call.bias.into(),
            codes_scale: given.clone().map(Tensor::into_dispatch).into(),
        },
        spec,
    );
    let computed = parts.scale.into_option().map(Tensor::from_dispatch);
    let result = Quantized {
        words: Tensor::from_dispatch(parts.words),
        scale: computed.or(given).expect(super::WRITTEN),
        format: codes.format,
    };
    let sum = parts.sum.into_option().map(Tensor::from_dispatch);
    Ok((result, sum))
}

/// A given scale as the kernels read it: one number of the accumulation dtype, on the input's device and of its rank.
fn expect_one<const D: usize>(scale: Tensor<1>, input: &Tensor<D>) -> Result<Tensor<D>, NormError> {
    let device = input.device();
    let [expected, actual] = [device.clone(), scale.device()].map(|it| it.without_autodiff());
    if expected != actual {
        return Err(NormError::MixedDevices {
            tensor: "scale",
            expected: format!("{expected:?}"),
            actual: format!("{actual:?}"),
        });
    }
    if scale.dims() != [1] {
        return Err(NormError::Shape {
            tensor: "scale",
            shape: scale.dims().to_vec(),
            expected: "[1], the scale of all rows".to_owned(),
        });
    }
    let accumulation = match input.dtype() {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let scale = scale.detach().cast(accumulation).reshape([1; D]);
    Ok(match device.gradient_checkpointing_strategy() {
        Some(_) => scale.to_device(&device).detach(),
        None => scale,
    })
}
