use cubenorm_core::{
    Activation, CodeFormat, DType, Epsilon, NormDesc, Offset, Quantization, ResidualPlace,
    RotatedPairs, Rotation, Rounding, Statistics, TensorDesc, WrittenStatistics,
};

use burn::tensor::Shape;

use super::View;

/// Axes of a tensor. Up to five are stored without an allocation.
///
/// # Example
///
/// ```
/// use cubenorm::ops::Axes;
///
/// let axes = Axes::from([2, 3]);
/// assert_eq!(axes.as_ref(), [2, 3]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Axes(Shape);

impl FromIterator<usize> for Axes {
    fn from_iter<T: IntoIterator<Item = usize>>(axes: T) -> Self {
        Self(axes.into_iter().collect())
    }
}

impl From<&[usize]> for Axes {
    fn from(axes: &[usize]) -> Self {
        axes.iter().copied().collect()
    }
}

impl From<Vec<usize>> for Axes {
    fn from(axes: Vec<usize>) -> Self {
        axes.into_iter().collect()
    }
}

impl<const N: usize> From<[usize; N]> for Axes {
    fn from(axes: [usize; N]) -> Self {
        axes.into_iter().collect()
    }
}

impl<const N: usize> From<&[usize; N]> for Axes {
    fn from(axes: &[usize; N]) -> Self {
        axes.as_slice().into()
    }
}

impl AsRef<[usize]> for Axes {
    fn as_ref(&self) -> &[usize] {
        &self.0
    }
}

impl std::ops::Deref for Axes {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

/// Reduction of a normalization. Provided statistics are tensors of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Mean and variance.
    MeanVariance,
    /// Mean square.
    MeanSquare,
    /// Mean alone.
    Mean,
    /// Sum of magnitudes.
    L1Norm,
    /// Root of the sum of squares.
    L2Norm,
    /// Nothing.
    None,
    /// Nothing: mean and variance are provided.
    Provided,
    /// Nothing: the normalized value is `tanh(alpha * x)`. The tensor of variances is `alpha`.
    DynamicTanh,
}

impl Reduction {
    /// The function that the normalized value is the result of.
    pub(crate) fn function(self) -> Activation {
        match self {
            Self::DynamicTanh => Activation::Tanh,
            _ => Activation::Identity,
        }
    }

    /// The caller's name of the tensor of variances.
    pub(crate) fn name_of_variance(self) -> &'static str {
        match self {
            Self::DynamicTanh => "alpha",
            _ => "variance",
        }
    }
}

/// A description without its tensors.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct NormSpec {
    /// The reduced axes.
    pub axes: Axes,
    /// The reduction over them.
    pub reduction: Reduction,
    /// Epsilon, and its place in the formula.
    pub epsilon: Epsilon,
    /// The place of the residual in the formula.
    pub residual_place: ResidualPlace,
    /// Added to the scale.
    pub offset: Offset,
    /// The rounding of the normalized value.
    pub rounding: Rounding,
    /// The activation, applied last.
    pub activation: Activation,
    /// True if the normalized tensor is an output. False for statistics alone: see
    /// [`NormBackend::row_statistics`](super::NormBackend::row_statistics).
    pub writes_output: bool,
    /// True if `input + residual` is an output too.
    pub writes_sum: bool,
    /// The output's dtype, if not the input's.
    pub output_dtype: Option<DType>,
    /// The numbers per row that are an output too.
    pub written_statistics: Option<WrittenStatistics>,
    /// True if a row's result must not depend on the other rows of the call: see
    /// [`set_batch_invariant`](crate::set_batch_invariant).
    pub batch_invariant: bool,
    /// The shapes to view the tensors in, if not their own. `axes` are axes of the view.
    pub view: Option<View>,
}

/// The layouts of a normalization's tensors.
#[derive(Debug, Clone)]
pub struct Descs {
    /// The tensor to normalize.
    pub input: TensorDesc,
    /// The residual.
    pub residual: Option<TensorDesc>,
    /// The scale.
    pub scale: Option<TensorDesc>,
    /// The bias, added after the scale.
    pub bias: Option<TensorDesc>,
    /// Provided means.
    pub mean: Option<TensorDesc>,
    /// Provided variances.
    pub variance: Option<TensorDesc>,
}

impl NormSpec {
    /// A normalization over these axes with epsilon inside the square root, and no options. It is batch-invariant if this
    /// thread or this process is: see [`set_batch_invariant`](crate::set_batch_invariant).
    pub fn new(axes: impl Into<Axes>, reduction: Reduction, epsilon: f64) -> Self {
        Self {
            axes: axes.into(),
            reduction,
            epsilon: Epsilon::InsideSqrt(epsilon),
            residual_place: ResidualPlace::Input,
            offset: Offset::ZERO,
            rounding: Rounding::None,
            activation: Activation::Identity,
            writes_output: true,
            writes_sum: false,
            output_dtype: None,
            written_statistics: None,
            batch_invariant: crate::is_batch_invariant(),
            view: None,
        }
    }

    /// The description of tensors of these layouts. [`NormDesc::problem`] checks it.
    ///
    /// # Panics
    ///
    /// If the reduction is [`Reduction::Provided`] and mean or variance is missing, or [`Reduction::DynamicTanh`] without
    /// `alpha`.
    pub fn desc(&self, tensors: Descs) -> NormDesc {
        let statistics = match (self.reduction, tensors.mean, tensors.variance) {
            (Reduction::Provided, Some(mean), Some(variance)) => {
                Statistics::Provided { mean, variance }
            }
            (Reduction::MeanVariance, ..) => Statistics::MeanVariance,
            (Reduction::MeanSquare, ..) => Statistics::MeanSquare,
            (Reduction::Mean, ..) => Statistics::Mean,
            (Reduction::L1Norm, ..) => Statistics::L1Norm,
            (Reduction::L2Norm, ..) => Statistics::L2Norm,
            (Reduction::None, ..) => Statistics::None,
            (Reduction::DynamicTanh, _, Some(alpha)) => Statistics::DynamicTanh { alpha },
            (Reduction::DynamicTanh, ..) => panic!("alpha is missing: expected the tensor"),
            (Reduction::Provided, ..) => {
                panic!("mean or variance is missing: expected both as provided statistics")
            }
        };
        let layout = &tensors.input.layout;
        let output = self
            .output_dtype
            .filter(|dtype| *dtype != tensors.input.dtype);
        let output = output.map(|dtype| TensorDesc::new(layout.kept(), dtype));
        let mut desc = NormDesc::new(tensors.input, self.axes.to_vec(), statistics)
            .with_epsilon(self.epsilon)
            .with_residual(tensors.residual)
            .with_residual_place(self.residual_place)
            .with_scale(tensors.scale)
            .with_offset(self.offset)
            .with_rounding(self.rounding)
            .with_bias(tensors.bias)
            .with_activation(self.activation)
            .with_output(output);
        desc.writes_output = self.writes_output;
        desc.writes_sum = self.writes_sum;
        desc.written_statistics = self.written_statistics;
        desc
    }
}

/// Specification of the norms of query and key.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct HeadSpec {
    /// The normalization of both, over the last axis. It has no view, residual, statistics or other dtype.
    pub norm: NormSpec,
    /// The elements that a rotation turns together, if there is a table.
    pub pairs: RotatedPairs,
}

impl HeadSpec {
    /// The description of one of the two.
    pub fn desc(
        &self,
        input: TensorDesc,
        scale: Option<TensorDesc>,
        table: Option<TensorDesc>,
    ) -> NormDesc {
        let desc = self.norm.desc(Descs {
            input,
            residual: None,
            scale,
            bias: None,
            mean: None,
            variance: None,
        });
        let pairs = self.pairs;
        desc.with_rotation(table.map(|table| Rotation { table, pairs }))
    }
}

/// Specification of a quantised normalization.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct QuantizedSpec {
    /// The normalization, over the last axis. It has no view, statistics or other dtype.
    pub norm: NormSpec,
    /// The format of the codes.
    pub format: CodeFormat,
}

impl QuantizedSpec {
    /// The description of tensors of these layouts, and of a given scale.
    pub fn desc(&self, tensors: Descs, scale: Option<TensorDesc>) -> NormDesc {
        let format = self.format;
        let desc = self.norm.desc(tensors);
        desc.with_quantization(Quantization { format, scale })
    }
}

/// Specification of a backward pass.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct BackwardSpec {
    /// The normalization.
    pub norm: NormSpec,
    /// True if the gradient of the input is wanted.
    pub wants_input: bool,
    /// True if the gradient of the scale is wanted.
    pub wants_scale: bool,
    /// True if the gradient of the bias is wanted.
    pub wants_bias: bool,
    /// True if the gradient of the gate is wanted, which needs the input's.
    pub wants_gate: bool,
}

impl BackwardSpec {
    /// The description of tensors of these layouts. The gate is the residual.
    #[cfg(feature = "cube")]
    pub(crate) fn desc(
        &self,
        tensors: Descs,
        output_gradient: TensorDesc,
        saved: Option<TensorDesc>,
        sum_gradient: Option<TensorDesc>,
    ) -> cubenorm_core::BackwardDesc {
        // The variance of a row may follow the pair that is read.
        let saved = saved.map(|mut saved| {
            if let Some(numbers) = saved.layout.shape.last_mut() {
                *numbers = if *numbers == 3 { 2 } else { *numbers };
            }
            saved
        });
        let input = tensors.input.clone();
        let param = tensors.scale.as_ref().or(tensors.bias.as_ref());
        // Autodiff keeps no provided statistics but the pairs made of them, in the shape that both broadcast to.
        let provided = saved.as_ref().map(|saved| {
            let rank = saved.shape().len() - 1;
            let dtype = param.map_or(input.dtype, |param| param.dtype);
            TensorDesc::contiguous(&saved.shape()[..rank], dtype)
        });
        let provided = provided.filter(|_| self.norm.reduction == Reduction::Provided);
        let norm = self.norm.desc(Descs {
            mean: provided.clone(),
            variance: provided,
            ..tensors
        });
        let like_input = TensorDesc::new(input.layout.kept(), input.dtype);
        let gradient = sum_gradient.clone().unwrap_or(like_input);
        let gate = norm.residual.as_ref().map(|gate| gate.dtype);
        let gate = gate.filter(|_| self.wants_gate && self.wants_input);
        cubenorm_core::BackwardDesc {
            norm,
            output_gradient,
            saved,
            sum_gradient,
            gate_gradient: gate.map(|dtype| TensorDesc::new(gradient.layout.clone(), dtype)),
            input_gradient: self.wants_input.then_some(gradient),
            wants_scale: self.wants_scale,
            wants_bias: self.wants_bias,
        }
    }
}

/// Converts a dtype to Burn's.
pub(crate) fn burn_dtype(dtype: DType) -> burn::tensor::DType {
    match dtype {
        DType::F16 => burn::tensor::DType::F16,
        DType::BF16 => burn::tensor::DType::BF16,
        DType::F32 => burn::tensor::DType::F32,
        DType::F64 => burn::tensor::DType::F64,
    }
}

/// Converts a dtype of Burn, or returns `None` if no norm has it.
pub(crate) fn dtype(dtype: burn::tensor::DType) -> Option<DType> {
    match dtype {
        burn::tensor::DType::F16 => Some(DType::F16),
        burn::tensor::DType::BF16 => Some(DType::BF16),
        // Flex32 is stored as f32 and may be computed in less. Norms compute it in f32.
        burn::tensor::DType::F32 | burn::tensor::DType::Flex32 => Some(DType::F32),
        burn::tensor::DType::F64 => Some(DType::F64),
        _ => None,
    }
}
