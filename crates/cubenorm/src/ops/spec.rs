use cubenorm_core::{
    Activation, DType, Epsilon, NormDesc, ResidualPlace, Statistics, TensorDesc, WrittenStatistics,
};

use super::View;

/// What is reduced. Statistics that are given come as tensors beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Mean and variance.
    MeanVariance,
    /// Mean square.
    MeanSquare,
    /// The mean alone.
    Mean,
    /// The sum of magnitudes.
    L1Norm,
    /// The root of the sum of squares.
    L2Norm,
    /// Nothing.
    None,
    /// Nothing: mean and variance are given.
    Given,
}

/// All of a description that is no tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct NormSpec {
    /// The reduced axes.
    pub axes: Vec<usize>,
    /// What is reduced over them.
    pub reduction: Reduction,
    /// What is added to the variance or deviation.
    pub epsilon: Epsilon,
    /// Where a residual is added.
    pub residual_place: ResidualPlace,
    /// What is applied last.
    pub activation: Activation,
    /// Whether `input + residual` is a result too.
    pub writes_sum: bool,
    /// Which two numbers of each row are a result too.
    pub written_statistics: Option<WrittenStatistics>,
    /// Which shapes the tensors are seen in, where not in their own. `axes` are the view's.
    pub view: Option<View>,
}

/// The layouts of a normalization's tensors.
#[derive(Debug, Clone)]
pub struct Descs {
    /// The tensor to normalize.
    pub input: TensorDesc,
    /// What is added.
    pub residual: Option<TensorDesc>,
    /// What is multiplied.
    pub scale: Option<TensorDesc>,
    /// What is added after the scale.
    pub bias: Option<TensorDesc>,
    /// Given means.
    pub mean: Option<TensorDesc>,
    /// Given variances.
    pub variance: Option<TensorDesc>,
}

impl NormSpec {
    /// A normalization over these axes with epsilon inside the square root and nothing else.
    pub fn new(axes: impl Into<Vec<usize>>, reduction: Reduction, epsilon: f64) -> Self {
        Self {
            axes: axes.into(),
            reduction,
            epsilon: Epsilon::InsideSqrt(epsilon),
            residual_place: ResidualPlace::Input,
            activation: Activation::Identity,
            writes_sum: false,
            written_statistics: None,
            view: None,
        }
    }

    /// The description of tensors of these layouts. [`NormDesc::problem`] checks it.
    ///
    /// # Panics
    ///
    /// Where statistics are to be given and mean or variance is missing: without them it would describe
    /// another operation.
    pub fn desc(&self, tensors: Descs) -> NormDesc {
        let statistics = match (self.reduction, tensors.mean, tensors.variance) {
            (Reduction::Given, Some(mean), Some(variance)) => Statistics::Given { mean, variance },
            (Reduction::MeanVariance, ..) => Statistics::MeanVariance,
            (Reduction::MeanSquare, ..) => Statistics::MeanSquare,
            (Reduction::Mean, ..) => Statistics::Mean,
            (Reduction::L1Norm, ..) => Statistics::L1Norm,
            (Reduction::L2Norm, ..) => Statistics::L2Norm,
            (Reduction::None, ..) => Statistics::None,
            (Reduction::Given, ..) => panic!("statistics are said to be given, and are not"),
        };
        let mut desc = NormDesc::new(tensors.input, self.axes.clone(), statistics)
            .with_epsilon(self.epsilon)
            .with_residual(tensors.residual)
            .with_residual_place(self.residual_place)
            .with_scale(tensors.scale)
            .with_bias(tensors.bias)
            .with_activation(self.activation);
        desc.writes_sum = self.writes_sum;
        desc.written_statistics = self.written_statistics;
        desc
    }
}

/// Which gradients are wanted of a normalization.
#[derive(Debug, Clone, PartialEq)]
pub struct BackwardSpec {
    /// The normalization.
    pub norm: NormSpec,
    /// Whether the input's is.
    pub wants_input: bool,
    /// Whether the scale's is.
    pub wants_scale: bool,
    /// Whether the bias's is.
    pub wants_bias: bool,
}

impl BackwardSpec {
    /// The description of tensors of these layouts.
    #[cfg(feature = "cube")]
    pub(crate) fn desc(
        &self,
        tensors: Descs,
        output_gradient: TensorDesc,
        saved: Option<TensorDesc>,
    ) -> cubenorm_core::GradientDesc {
        let input = tensors.input.clone();
        let param = tensors.scale.as_ref().or(tensors.bias.as_ref());
        // What was given is not kept: the pairs made of it are, in the shape that both broadcast to.
        let given = saved.as_ref().map(|saved| {
            let rank = saved.shape().len() - 1;
            let dtype = param.map_or(input.dtype, |param| param.dtype);
            TensorDesc::contiguous(&saved.shape()[..rank], dtype)
        });
        let given = given.filter(|_| self.norm.reduction == Reduction::Given);
        let norm = self.norm.desc(Descs {
            mean: given.clone(),
            variance: given,
            ..tensors
        });
        let like_input = TensorDesc::new(input.layout.kept(), input.dtype);
        cubenorm_core::GradientDesc {
            norm,
            output_gradient,
            saved,
            input_gradient: self.wants_input.then_some(like_input),
            wants_scale: self.wants_scale,
            wants_bias: self.wants_bias,
        }
    }
}

/// A dtype of Burn's as ours, or `None` where nothing is normalized in it.
pub(crate) fn dtype(dtype: burn::tensor::DType) -> Option<DType> {
    match dtype {
        burn::tensor::DType::F16 => Some(DType::F16),
        burn::tensor::DType::BF16 => Some(DType::BF16),
        // Flex32 is stored as f32 and may be computed in less; we compute it in f32.
        burn::tensor::DType::F32 | burn::tensor::DType::Flex32 => Some(DType::F32),
        burn::tensor::DType::F64 => Some(DType::F64),
        _ => None,
    }
}
