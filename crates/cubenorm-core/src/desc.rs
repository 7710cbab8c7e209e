use serde::{Deserialize, Serialize};

use crate::activation::{Activation, hash_number};
use crate::dtype::DType;
use crate::layout::TensorDesc;
use crate::quantization::{CODES_PER_WORD, Quantization};

/// The statistics that normalize a row.
///
/// A *row* is the set of elements that share their indices outside the reduced axes; `n` is its
/// length.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Statistics {
    /// `mean = sum(x) / n`, `variance = sum((x - mean)^2) / n`. The variance is biased, as in
    /// DirectML, ONNX, Burn and PyTorch.
    MeanVariance,
    /// `mean = 0`, `variance = sum(x^2) / n`, as in [RMS norm](https://arxiv.org/abs/1910.07467).
    MeanSquare,
    /// `mean = sum(x) / n`, without division by a deviation: DirectML's `NormalizeVariance =
    /// FALSE`.
    Mean,
    /// `mean = 0`, `deviation = sum(|x|)`: ONNX LpNormalization with `p = 1`. Writes zeros if the
    /// deviation is 0. Epsilon is ignored.
    L1Norm,
    /// `mean = 0`, `deviation = sqrt(sum(x^2))`: ONNX LpNormalization with `p = 2`. Writes zeros if
    /// the deviation is 0. Epsilon is ignored.
    L2Norm,
    /// No statistics: scale, bias and activation apply to the input directly. DirectML's
    /// MEAN_VARIANCE_NORMALIZATION2 does this with neither `UseMean` nor `UseVariance`. Nothing is
    /// reduced, so the axes are ignored, except by a [`Rotation`], which turns rows along them.
    None,
    /// Provided mean and variance, each broadcast to the input, as in batch norm at inference.
    /// Nothing is reduced, so the axes are ignored.
    Provided {
        /// The means.
        mean: TensorDesc,
        /// The variances.
        variance: TensorDesc,
    },
    /// No statistics: the normalized value is `tanh(alpha * x)`, as in
    /// [dynamic tanh](https://arxiv.org/abs/2503.10622). Nothing is reduced, so the axes are ignored. There is no backward
    /// kernel for it.
    DynamicTanh {
        /// The factor of the input, broadcast to it.
        alpha: TensorDesc,
    },
}

/// The constant that keeps the division finite for a row without variance, and its position.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Epsilon {
    /// `1 / sqrt(variance + epsilon)`: DirectML, Burn, PyTorch and most of ONNX.
    InsideSqrt(f64),
    /// `1 / (sqrt(variance) + epsilon)`: ONNX MeanVarianceNormalization.
    AddedToDeviation(f64),
}

impl std::hash::Hash for Epsilon {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.is_inside_sqrt().hash(state);
        hash_number(self.value(), state);
    }
}

impl Epsilon {
    /// The number.
    pub const fn value(self) -> f64 {
        match self {
            Self::InsideSqrt(value) | Self::AddedToDeviation(value) => value,
        }
    }

    /// True if it is added to the variance, false if to the deviation.
    pub const fn is_inside_sqrt(self) -> bool {
        matches!(self, Self::InsideSqrt(_))
    }
}

/// The place of the residual in the formula: a tensor that is added, or a gate that is multiplied.
///
/// A gate takes the activation, which then is not applied to the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ResidualPlace {
    /// To the input, before anything else: the skip connection of a transformer.
    #[default]
    Input,
    /// To the normalized, scaled and shifted value, before the activation: DirectML's
    /// `FusedAddTensor`.
    Output,
    /// The input is multiplied by `activation(residual)`, before anything else: Mamba-2's gated norm. The activation has
    /// no parameters.
    InputGate,
    /// The normalized, scaled and shifted value is multiplied by `activation(residual)`: the gated norm of linear
    /// attention.
    OutputGate,
}

impl ResidualPlace {
    /// True if the tensor that is normalized is made with the residual.
    pub const fn is_in_front(self) -> bool {
        matches!(self, Self::Input | Self::InputGate)
    }

    /// True if the residual is multiplied.
    pub const fn is_gate(self) -> bool {
        matches!(self, Self::InputGate | Self::OutputGate)
    }
}

/// A number that is added to every element of the scale.
///
/// A weight that is stored as its difference from 1 has the offset 1. Two offsets are equal if their bits are, and `-0`
/// is stored as `0`. Kernels are compiled per offset.
///
/// # Example
///
/// ```
/// use cubenorm_core::Offset;
///
/// assert!(Offset::new(-0.0) == Offset::ZERO);
/// assert_eq!(Offset::from(1.0).value(), 1.0);
/// ```
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Offset(f64);

impl Offset {
    /// No offset.
    pub const ZERO: Self = Self(0.0);

    /// An offset of this number.
    pub const fn new(value: f64) -> Self {
        // Adding 0 turns -0 into 0.
        Self(value + 0.0)
    }

    /// The number.
    pub const fn value(self) -> f64 {
        self.0
    }

    /// True if nothing is added.
    pub const fn is_zero(self) -> bool {
        self.0.to_bits() == 0
    }
}

impl From<f64> for Offset {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

impl PartialEq for Offset {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Offset {}

impl std::hash::Hash for Offset {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// The rounding of the normalized value to the output's dtype, in addition to that of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Rounding {
    /// None: scale and bias apply in the accumulation dtype, and only the result is rounded.
    #[default]
    None,
    /// Before the scale, as Hugging Face's `LlamaRMSNorm` and T5 do in half precision. It has no effect if the output's
    /// dtype is the accumulation dtype. Gradients pass through it unchanged.
    BeforeScale,
}

/// The elements that a [`Rotation`] turns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum RotatedPairs {
    /// Element `i` and element `i + n / 2` of `n`: GPT-NeoX, Llama as Hugging Face stores it, Qwen.
    #[default]
    HalfSplit,
    /// Elements `2 i` and `2 i + 1`: RoFormer, GPT-J, Llama as Meta stores it.
    Interleaved,
}

/// A rotation of the normalized, scaled and shifted value: rotary position embedding.
///
/// With `n` rotated elements of a row, `y[i] = x[i] * cos[i] + t[i] * sin[i]`, where `t` is `x` with the
/// elements of each pair exchanged and the first of them negated. The elements from `n` on stay.
///
/// Source: [RoFormer](https://arxiv.org/abs/2104.09864).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rotation {
    /// `n` cosines, then `n` sines, along the last dimension. The others broadcast to the input's.
    pub table: TensorDesc,
    /// The elements that are turned together.
    pub pairs: RotatedPairs,
}

impl Rotation {
    /// The number of rotated elements.
    pub fn dim(&self) -> usize {
        self.table.shape().last().map_or(0, |numbers| numbers / 2)
    }
}

/// The statistics that are written for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WrittenStatistics {
    /// The mean and the reciprocal deviation.
    MeanRstd,
    /// The mean and the variance, without epsilon.
    MeanVariance,
    /// The mean, the reciprocal deviation, and the variance without epsilon. A backward pass reads the first two.
    MeanRstdVariance,
    /// The scale of a quantised row: see [`Quantization`].
    Scale,
}

impl WrittenStatistics {
    /// Numbers of each row.
    pub fn count(self) -> usize {
        match self {
            Self::Scale => 1,
            Self::MeanRstd | Self::MeanVariance => 2,
            Self::MeanRstdVariance => 3,
        }
    }
}

/// The default of [`NormDesc::writes_output`].
fn written() -> bool {
    true
}

/// A normalization to compute, independent of the device.
///
/// ```text
/// s = input + residual
/// y = activation(round((s - mean) * rstd) * (offset + scale) + bias)
/// ```
///
/// or, with [`ResidualPlace::Output`],
///
/// ```text
/// y = activation(round((input - mean) * rstd) * (offset + scale) + bias + residual)
/// ```
///
/// With [`ResidualPlace::InputGate`] and [`ResidualPlace::OutputGate`] the activation is the gate's:
///
/// ```text
/// s = input * activation(residual);  y = round((s - mean) * rstd) * (offset + scale) + bias
/// y = (round((input - mean) * rstd) * (offset + scale) + bias) * activation(residual)
/// ```
///
/// `mean` and the variance or deviation come from [`Statistics`] over the reduced axes. `rstd` is
/// the reciprocal deviation, with epsilon where [`Epsilon`] says: `1 / sqrt(variance + epsilon)`,
/// for example. It is 1 if the statistics divide by nothing. An absent residual or bias is 0, an
/// absent scale is a factor of 1, without the offset. `round` is the identity, unless [`Rounding`] says otherwise.
/// [`Quantization`] rounds `y` to codes of 8 bits.
///
/// # Shapes
///
/// The input has rank 1 to [`MAX_RANK`](crate::MAX_RANK). Residual, scale, bias and provided
/// statistics broadcast to it, NumPy style. The output and the optional sum have the input's shape.
///
/// # Dtypes
///
/// The sum has the input's dtype, and so has the output unless it is given. Residual and a given
/// output may each have another dtype: any of `f16`, `bf16` and `f32` for an input of these. Scale and bias share one dtype: the input's, the output's or
/// `f32`, and `f64` with an input of `f64`. With a quantised output it may be the residual's. Provided mean and variance share a dtype
/// by the same rule, which need not be that of scale and bias. Everything is computed in
/// [`DType::accumulation`](crate::DType::accumulation).
///
/// # Errors
///
/// Nothing is checked here: [`problem`](Self::problem) and every launch return
/// [`NormError`](crate::NormError) for an invalid description.
///
/// # Example
///
/// ```
/// use cubenorm_core::{DType, NormDesc, Statistics, TensorDesc};
///
/// // Layer norm of [8, 128, 768] over its last axis.
/// let desc = NormDesc::new(
///     TensorDesc::contiguous([8, 128, 768], DType::F32),
///     [2],
///     Statistics::MeanVariance,
/// )
/// .with_scale(TensorDesc::contiguous([768], DType::F32))
/// .with_bias(TensorDesc::contiguous([768], DType::F32));
/// let problem = desc.problem()?;
/// assert_eq!((problem.rows, problem.cols), (1024, 768));
/// # Ok::<(), cubenorm_core::NormError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Hash, Serialize, Deserialize)]
pub struct NormDesc {
    /// The tensor to normalize.
    pub input: TensorDesc,
    /// The axes that statistics reduce over, in any order.
    pub axes: Vec<usize>,
    /// The statistics to normalize with.
    pub statistics: Statistics,
    /// The constant added to the variance or deviation.
    pub epsilon: Epsilon,
    /// Added to the input before anything else, or to the result before the activation.
    pub residual: Option<TensorDesc>,
    /// The position of the residual addition.
    pub residual_place: ResidualPlace,
    /// Multiplied after normalization.
    pub scale: Option<TensorDesc>,
    /// Added to the scale. It is not used without a scale.
    #[serde(default)]
    pub offset: Offset,
    /// The rounding of the normalized value.
    #[serde(default)]
    pub rounding: Rounding,
    /// Added after the scale.
    pub bias: Option<TensorDesc>,
    /// The rotation of the value after scale and bias. It turns elements of the last dimension, which
    /// alone is reduced.
    #[serde(default)]
    pub rotation: Option<Rotation>,
    /// Applied last.
    pub activation: Activation,
    /// The rounding of the output to codes, for rows along the last dimension. The output is then [words](Self::codes_desc)
    /// of four codes, and has no dtype or layout of its own.
    #[serde(default)]
    pub quantization: Option<Quantization>,
    /// The output tensor. `None` takes the input's order of dimensions, packed: a permuted tensor
    /// stays permuted, and padding between rows is left out. See
    /// [`Layout::kept`](crate::Layout::kept).
    pub output: Option<TensorDesc>,
    /// True if the output is written. False if [statistics](Self::written_statistics) alone are wanted:
    /// scale, bias and activation are then ignored.
    #[serde(default = "written")]
    pub writes_output: bool,
    /// True if `input + residual` is written too, in the output's layout.
    pub writes_sum: bool,
    /// The pair of statistics that is written for each row, or `None`. The tensor has the input's
    /// shape with 1 for each reduced axis, then 2 for the pair, and the accumulation dtype.
    pub written_statistics: Option<WrittenStatistics>,
}

impl NormDesc {
    /// A normalization with epsilon 1e-5 inside the square root and nothing else.
    pub fn new(input: TensorDesc, axes: impl Into<Vec<usize>>, statistics: Statistics) -> Self {
        Self {
            input,
            axes: axes.into(),
            statistics,
            epsilon: Epsilon::InsideSqrt(1e-5),
            residual: None,
            residual_place: ResidualPlace::Input,
            scale: None,
            offset: Offset::ZERO,
            rounding: Rounding::None,
            bias: None,
            rotation: None,
            activation: Activation::Identity,
            quantization: None,
            output: None,
            writes_output: true,
            writes_sum: false,
            written_statistics: None,
        }
    }

    /// Sets [`epsilon`](Self::epsilon).
    pub fn with_epsilon(mut self, epsilon: Epsilon) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Sets [`residual`](Self::residual).
    pub fn with_residual(mut self, residual: impl Into<Option<TensorDesc>>) -> Self {
        self.residual = residual.into();
        self
    }

    /// Sets [`scale`](Self::scale).
    pub fn with_scale(mut self, scale: impl Into<Option<TensorDesc>>) -> Self {
        self.scale = scale.into();
        self
    }

    /// Sets [`offset`](Self::offset).
    pub fn with_offset(mut self, offset: impl Into<Offset>) -> Self {
        self.offset = offset.into();
        self
    }

    /// Sets [`rounding`](Self::rounding).
    pub fn with_rounding(mut self, rounding: Rounding) -> Self {
        self.rounding = rounding;
        self
    }

    /// Sets [`bias`](Self::bias).
    pub fn with_bias(mut self, bias: impl Into<Option<TensorDesc>>) -> Self {
        self.bias = bias.into();
        self
    }

    /// Sets [`rotation`](Self::rotation).
    pub fn with_rotation(mut self, rotation: impl Into<Option<Rotation>>) -> Self {
        self.rotation = rotation.into();
        self
    }

    /// Sets [`activation`](Self::activation).
    pub fn with_activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Sets [`quantization`](Self::quantization), and requests the scale of each row if none is given.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::{CodeFormat, DType, NormDesc, Quantization, Statistics, TensorDesc};
    ///
    /// let input = TensorDesc::contiguous([64, 4096], DType::F16);
    /// let quantization = Quantization { format: CodeFormat::Int8, scale: None };
    /// let desc = NormDesc::new(input, [1], Statistics::MeanSquare).with_quantization(quantization);
    /// assert_eq!(desc.codes_desc().shape(), [64, 1024]);
    /// assert_eq!(desc.statistics_desc().shape(), [64, 1, 1]);
    /// # Ok::<(), cubenorm_core::NormError>(())
    /// ```
    pub fn with_quantization(mut self, quantization: Quantization) -> Self {
        self.written_statistics = match quantization.scale {
            None => Some(WrittenStatistics::Scale),
            Some(_) => None,
        };
        self.quantization = Some(quantization);
        self
    }

    /// Sets [`output`](Self::output).
    pub fn with_output(mut self, output: impl Into<Option<TensorDesc>>) -> Self {
        self.output = output.into();
        self
    }

    /// Requests `input + residual` as a second result.
    pub fn with_sum(mut self) -> Self {
        self.writes_sum = true;
        self
    }

    /// Requests a pair of statistics per row as the only result: the input is read once, and nothing
    /// of its size is written.
    ///
    /// # Example
    ///
    /// ```
    /// use cubenorm_core::{Buffer, DType, Hardware, NormDesc, Statistics, StrategyChoice, TensorDesc};
    /// use cubenorm_core::{WrittenStatistics, plan_forward};
    ///
    /// let input = TensorDesc::contiguous([64, 4096], DType::F32);
    /// let desc = NormDesc::new(input, [1], Statistics::MeanVariance)
    ///     .with_statistics_alone(WrittenStatistics::MeanVariance);
    /// let problem = desc.problem()?;
    /// let plan = plan_forward(&problem, &Hardware::cuda(132), StrategyChoice::Inferred)?;
    /// for launch in plan.footprint(&problem) {
    ///     assert_eq!(launch.elements(Buffer::Output), 0);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_statistics_alone(self, written: WrittenStatistics) -> Self {
        Self {
            writes_output: false,
            ..self.with_written_statistics(written)
        }
    }

    /// Requests a pair of statistics per row as another result.
    pub fn with_written_statistics(mut self, written: WrittenStatistics) -> Self {
        self.written_statistics = Some(written);
        self
    }

    /// Sets [`residual_place`](Self::residual_place).
    pub fn with_residual_place(mut self, place: ResidualPlace) -> Self {
        self.residual_place = place;
        self
    }

    /// The provided mean and variance; `None` if they are computed. The `alpha` of dynamic tanh takes the place of the
    /// variance.
    pub fn given(&self) -> [Option<&TensorDesc>; 2] {
        match &self.statistics {
            Statistics::Provided { mean, variance } => [Some(mean), Some(variance)],
            Statistics::DynamicTanh { alpha } => [None, Some(alpha)],
            _ => [None, None],
        }
    }

    /// Scale, bias and provided statistics that are present.
    pub(crate) fn params(&self) -> impl Iterator<Item = &TensorDesc> {
        [self.scale.as_ref(), self.bias.as_ref()]
            .into_iter()
            .chain(self.given())
            .flatten()
    }

    /// The words of the codes of a [quantised](Self::quantization) output: four along the last dimension. Its dtype
    /// stands for 32 bits.
    pub fn codes_desc(&self) -> TensorDesc {
        let mut shape = self.input.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last /= CODES_PER_WORD;
        }
        TensorDesc::contiguous(shape, DType::F32)
    }

    /// The tensor that [`written_statistics`](Self::written_statistics) requests. Its shape is the
    /// input's with 1 for each reduced axis, then the [count](WrittenStatistics::count) of numbers. Its dtype is the
    /// accumulation dtype. If no statistics are requested, they are taken to be pairs.
    pub fn statistics_desc(&self) -> TensorDesc {
        let mut shape = self.input.shape().to_vec();
        for &axis in &self.axes {
            if let Some(size) = shape.get_mut(axis) {
                *size = 1;
            }
        }
        shape.push(self.written_statistics.map_or(2, WrittenStatistics::count));
        TensorDesc::contiguous(shape, self.input.dtype.accumulation())
    }
}
