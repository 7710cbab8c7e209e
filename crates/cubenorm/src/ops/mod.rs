//! The backend extension: one operation, on every backend of Burn.

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod portable;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType, backend_extension};
use cubenorm_core::{Activation, DType, Epsilon, NormDesc, Statistics, TensorDesc};

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
    pub(crate) fn into_option(self) -> Option<FloatTensor<B>> {
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

/// What is reduced. Statistics that are given come as tensors beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Mean and variance.
    MeanVariance,
    /// Mean square.
    MeanSquare,
    /// The mean alone.
    Mean,
    /// Nothing.
    None,
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
    /// What is applied last.
    pub activation: Activation,
}

impl NormSpec {
    /// The description of tensors of these layouts.
    pub(crate) fn desc(
        &self,
        input: TensorDesc,
        residual: Option<TensorDesc>,
        scale: Option<TensorDesc>,
        bias: Option<TensorDesc>,
    ) -> NormDesc {
        let statistics = match self.reduction {
            Reduction::MeanVariance => Statistics::MeanVariance,
            Reduction::MeanSquare => Statistics::MeanSquare,
            Reduction::Mean => Statistics::Mean,
            Reduction::None => Statistics::None,
        };
        NormDesc::new(input, self.axes.clone(), statistics)
            .with_epsilon(self.epsilon)
            .with_residual(residual)
            .with_scale(scale)
            .with_bias(bias)
            .with_activation(self.activation)
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

/// Normalizations on a backend. Arguments are validated: call them through this crate's functions.
#[backend_extension(
    Cube: cfg(feature = "cube"),
    Flex: cfg(feature = "flex"),
    Autodiff,
    Fusion: cfg(feature = "cube")
)]
pub trait NormBackend: Backend {
    /// `activation((input - mean) * rstd * scale + bias)`
    #[fusion(meta = |input, _scale, _bias, _spec| input.clone())]
    fn normalize(
        input: FloatTensor<Self>,
        #[extension_type] scale: Optional<Self>,
        #[extension_type] bias: Optional<Self>,
        spec: NormSpec,
    ) -> FloatTensor<Self>;

    /// The same of `input + residual`, and that sum.
    #[fusion(meta = |input, _residual, _scale, _bias, _spec| (input.clone(), input.clone()))]
    fn add_normalize(
        input: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        #[extension_type] scale: Optional<Self>,
        #[extension_type] bias: Optional<Self>,
        spec: NormSpec,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

#[cfg(feature = "flex")]
use burn::backend::ops::FloatTensorOps;

#[cfg(feature = "flex")]
impl NormBackend for burn::backend::Flex {
    fn normalize(
        input: FloatTensor<Self>,
        scale: Optional<Self>,
        bias: Optional<Self>,
        spec: NormSpec,
    ) -> FloatTensor<Self> {
        portable::normalize::<Self>(input, scale.into_option(), bias.into_option(), &spec)
    }

    fn add_normalize(
        input: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        scale: Optional<Self>,
        bias: Optional<Self>,
        spec: NormSpec,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let sum = Self::float_add(input, residual);
        (Self::normalize(sum.clone(), scale, bias, spec), sum)
    }
}
