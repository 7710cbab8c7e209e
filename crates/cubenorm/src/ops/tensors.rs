//! Input and output tensors of the operations.

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, ExtensionType};
#[cfg(feature = "cube")]
use burn::tensor::{DType, Shape};

#[cfg(feature = "cube")]
use cubenorm_core::{CODES_PER_WORD, WrittenStatistics};

#[cfg(feature = "cube")]
use super::spec::{BackwardSpec, HeadSpec, NormSpec, QuantizedSpec, burn_dtype};

/// A tensor that may be absent. `Option` is not an extension type.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub enum Optional<B: Backend> {
    /// Absent.
    None,
    /// Present.
    Some(FloatTensor<B>),
}

impl<B: Backend> Optional<B> {
    /// Converts it to an `Option`.
    pub fn into_option(self) -> Option<FloatTensor<B>> {
        match self {
            Self::None => None,
            Self::Some(tensor) => Some(tensor),
        }
    }

    pub(super) fn as_option(&self) -> Option<&FloatTensor<B>> {
        match self {
            Self::None => None,
            Self::Some(tensor) => Some(tensor),
        }
    }
}

impl<B: Backend> From<Option<FloatTensor<B>>> for Optional<B> {
    fn from(tensor: Option<FloatTensor<B>>) -> Self {
        tensor.map_or(Self::None, Self::Some)
    }
}

/// Inputs of a normalization. Parameters and statistics broadcast to the input.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub struct Operands<B: Backend> {
    /// The tensor to normalize.
    pub input: FloatTensor<B>,
    /// The residual.
    #[extension_type]
    pub residual: Optional<B>,
    /// The scale.
    #[extension_type]
    pub scale: Optional<B>,
    /// The bias, added after the scale.
    #[extension_type]
    pub bias: Optional<B>,
    /// Provided means.
    #[extension_type]
    pub mean: Optional<B>,
    /// Provided variances, or the `alpha` of dynamic tanh.
    #[extension_type]
    pub variance: Optional<B>,
}

impl<B: Backend> Operands<B> {
    /// An input and nothing else.
    pub fn new(input: FloatTensor<B>) -> Self {
        Self {
            input,
            residual: Optional::None,
            scale: Optional::None,
            bias: Optional::None,
            mean: Optional::None,
            variance: Optional::None,
        }
    }
}

/// Outputs of a normalization.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub struct Normalized<B: Backend> {
    /// The result, in the input's shape. Its dtype is the input's, unless the specification has another.
    pub output: FloatTensor<B>,
    /// `input + residual`, if the specification writes it.
    #[extension_type]
    pub sum: Optional<B>,
    /// Numbers per row, if the specification writes them. Their shape is the input's or its view's, with 1 for each
    /// reduced axis, then their [count](cubenorm_core::WrittenStatistics::count). Their dtype is `f64` for an input of
    /// `f64`, else `f32`.
    #[extension_type]
    pub statistics: Optional<B>,
}

/// Inputs of an update of running statistics.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub struct RunningOperands<B: Backend> {
    /// The statistics of a batch, written as
    /// [`MeanRstdVariance`](cubenorm_core::WrittenStatistics::MeanRstdVariance): three numbers of each channel.
    pub statistics: FloatTensor<B>,
    /// The running mean, `[channels]`.
    pub mean: FloatTensor<B>,
    /// The running variance, `[channels]`.
    pub variance: FloatTensor<B>,
}

/// Running statistics after a batch, each of the shape and dtype that it had before.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub struct Running<B: Backend> {
    /// The running mean.
    pub mean: FloatTensor<B>,
    /// The running variance.
    pub variance: FloatTensor<B>,
}

/// Inputs of a backward pass.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub struct BackwardOperands<B: Backend> {
    /// The input of the normalization, or the sum if a residual was added first.
    pub input: FloatTensor<B>,
    /// Gradient of the output.
    pub output_gradient: FloatTensor<B>,
    /// Pairs of mean and reciprocal deviation, as in [`Normalized::statistics`]. Absent only if the normalization has no
    /// statistics. Two more numbers per row are [provided sums](cubenorm_core::BackwardDesc::provides_sums).
    #[extension_type]
    pub saved: Optional<B>,
    /// The scale.
    #[extension_type]
    pub scale: Optional<B>,
    /// The bias, added after the scale.
    #[extension_type]
    pub bias: Optional<B>,
    /// Gradient of the sum of input and residual, which is added to the input's.
    #[extension_type]
    pub sum_gradient: Optional<B>,
    /// The gate, if the specification has one. The input is then the caller's, before the gate.
    #[extension_type]
    pub gate: Optional<B>,
}

/// Gradients of a backward pass, each present if the specification wants it.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub struct Gradients<B: Backend> {
    /// Gradient of the input, in its shape and dtype.
    #[extension_type]
    pub input: Optional<B>,
    /// Gradient of the scale, in its shape and dtype.
    #[extension_type]
    pub scale: Optional<B>,
    /// Gradient of the bias, in its shape and dtype.
    #[extension_type]
    pub bias: Optional<B>,
    /// Gradient of the gate, in the input's shape and the gate's dtype.
    #[extension_type]
    pub gate: Optional<B>,
}

/// Query and key of an attention, `[batch, tokens, heads, d]` with their own numbers of heads.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub struct HeadOperands<B: Backend> {
    /// The query.
    pub query: FloatTensor<B>,
    /// The key.
    pub key: FloatTensor<B>,
    /// The query's scale, `[d]`.
    #[extension_type]
    pub query_scale: Optional<B>,
    /// The key's scale, `[d]`.
    #[extension_type]
    pub key_scale: Optional<B>,
    /// Table of a [rotation](cubenorm_core::Rotation) that broadcasts to both.
    #[extension_type]
    pub rotation: Optional<B>,
}

/// Normalized query and key, of the shapes and dtypes that they had.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub struct Heads<B: Backend> {
    /// The query.
    pub query: FloatTensor<B>,
    /// The key.
    pub key: FloatTensor<B>,
}

/// Inputs of a quantised normalization.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub struct QuantizedOperands<B: Backend> {
    /// The tensor to normalize.
    pub input: FloatTensor<B>,
    /// The residual.
    #[extension_type]
    pub residual: Optional<B>,
    /// The scale.
    #[extension_type]
    pub scale: Optional<B>,
    /// The bias, added after the scale.
    #[extension_type]
    pub bias: Optional<B>,
    /// A given scale of the codes, of the accumulation dtype and the input's rank.
    #[extension_type]
    pub codes_scale: Optional<B>,
}

/// Outputs of a quantised normalization.
#[derive(Debug, Clone, ExtensionType)]
#[cfg_attr(feature = "cube", extension_type(fusion))]
pub struct QuantizedParts<B: Backend> {
    /// Words of four codes, `u32`.
    pub words: IntTensor<B>,
    /// The scale of each row, `[..., 1]`, unless it is given.
    #[extension_type]
    pub scale: Optional<B>,
    /// `input + residual`, if the specification writes it.
    #[extension_type]
    pub sum: Optional<B>,
}

/// Shape of `count` numbers per row of a normalization over `axes` of this input shape.
#[cfg(feature = "cube")]
fn statistics_shape(input: &Shape, axes: &[usize], count: usize) -> Shape {
    let sizes = (0..input.num_dims()).map(|dim| match axes.contains(&dim) {
        true => 1,
        false => input[dim],
    });
    sizes.chain([count]).collect()
}

#[cfg(feature = "cube")]
pub(super) fn normalized_meta(operands: &OperandsMetadata, spec: &NormSpec) -> NormalizedMetadata {
    let input = &operands.input;
    let statistics = spec
        .written_statistics
        .map(|_| statistics_meta(input, spec));
    NormalizedMetadata {
        output: match spec.output_dtype {
            Some(dtype) => TensorSpec::new(input.shape.clone(), burn_dtype(dtype)),
            None => input.clone(),
        },
        sum: match spec.writes_sum {
            true => OptionalMetadata::Some(input.clone()),
            false => OptionalMetadata::None,
        },
        statistics: statistics.map_or(OptionalMetadata::None, OptionalMetadata::Some),
    }
}

#[cfg(feature = "cube")]
pub(super) fn running_meta(operands: &RunningOperandsMetadata, _: &f64) -> RunningMetadata {
    RunningMetadata {
        mean: operands.mean.clone(),
        variance: operands.variance.clone(),
    }
}

#[cfg(feature = "cube")]
pub(super) fn heads_meta(operands: &HeadOperandsMetadata, _: &HeadSpec) -> HeadsMetadata {
    HeadsMetadata {
        query: operands.query.clone(),
        key: operands.key.clone(),
    }
}

#[cfg(feature = "cube")]
pub(super) fn quantized_meta(
    operands: &QuantizedOperandsMetadata,
    spec: &QuantizedSpec,
) -> QuantizedPartsMetadata {
    let input = &operands.input;
    let shape = |last: &dyn Fn(usize) -> usize| -> Shape {
        let rank = input.shape.num_dims();
        let sizes = (0..rank).map(|dim| match dim == rank - 1 {
            true => last(input.shape[dim]),
            false => input.shape[dim],
        });
        sizes.collect()
    };
    let words = shape(&|size| size / CODES_PER_WORD);
    let scale = TensorSpec::new(shape(&|_| 1), accumulation(input.dtype));
    let of = |tensor: TensorSpec, is_written: bool| match is_written {
        true => OptionalMetadata::Some(tensor),
        false => OptionalMetadata::None,
    };
    let is_computed = matches!(operands.codes_scale, OptionalMetadata::None);
    QuantizedPartsMetadata {
        words: TensorSpec::new(words, DType::U32),
        scale: of(scale, is_computed),
        sum: of(input.clone(), spec.norm.writes_sum),
    }
}

#[cfg(feature = "cube")]
fn accumulation(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// Statistics of a normalization.
#[cfg(feature = "cube")]
pub(super) fn statistics_meta(input: &TensorSpec, spec: &NormSpec) -> TensorSpec {
    let numbers = spec.written_statistics.map_or(2, WrittenStatistics::count);
    TensorSpec::new(
        statistics_shape(&spec.seen_shape(&input.shape), &spec.axes, numbers),
        accumulation(input.dtype),
    )
}

#[cfg(feature = "cube")]
pub(super) fn gradients_meta(
    operands: &BackwardOperandsMetadata,
    spec: &BackwardSpec,
) -> GradientsMetadata {
    let wanted = |tensor: &OptionalMetadata, is_wanted: bool| match is_wanted {
        true => tensor.clone(),
        false => OptionalMetadata::None,
    };
    GradientsMetadata {
        input: match spec.wants_input {
            true => OptionalMetadata::Some(operands.input.clone()),
            false => OptionalMetadata::None,
        },
        scale: wanted(&operands.scale, spec.wants_scale),
        bias: wanted(&operands.bias, spec.wants_bias),
        gate: match &operands.gate {
            OptionalMetadata::Some(gate) if spec.wants_gate => {
                OptionalMetadata::Some(TensorSpec::new(operands.input.shape.clone(), gate.dtype))
            }
            _ => OptionalMetadata::None,
        },
    }
}
