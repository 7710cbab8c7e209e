//! A call on Burn's tensors: checked, then handed to the backend.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Dispatch, DispatchTensor, TensorMetadata};
use burn::tensor::Tensor;
#[cfg(feature = "cube")]
use cubenorm_core::Statistics;
use cubenorm_core::{CodeFormat, NormDesc, NormError, TensorDesc};

#[cfg(feature = "cube")]
use super::checked;
use super::device::CallDevice;
#[cfg(feature = "cube")]
use crate::ops::BackwardSpec;
use crate::ops::{
    Descs, NormBackend, NormSpec, Normalized, Operands, QuantizedSpec, Route, Tracked,
};

/// A normalization that is about to run.
pub(crate) struct Call {
    pub(crate) input: DispatchTensor,
    pub(crate) residual: Option<DispatchTensor>,
    pub(crate) scale: Option<DispatchTensor>,
    pub(crate) bias: Option<DispatchTensor>,
    pub(crate) mean: Option<DispatchTensor>,
    pub(crate) variance: Option<DispatchTensor>,
    pub(crate) spec: NormSpec,
    /// The format of a quantised output, and true if its scale is given. Nothing is tracked then.
    pub(super) codes: Option<(CodeFormat, bool)>,
    /// The caller's names of scale, bias and residual.
    pub(crate) names: [&'static str; 3],
}

/// Results of a call.
pub(crate) struct Outcome<const D: usize> {
    pub(crate) output: Tensor<D>,
    pub(crate) sum: Option<Tensor<D>>,
    /// Two numbers of each row; of a rank one higher than the input's.
    pub(crate) statistics: Option<FloatTensor<Dispatch>>,
}

impl Call {
    pub(crate) fn new<const D: usize>(input: Tensor<D>, spec: NormSpec) -> Self {
        Self {
            input: input.into_dispatch(),
            residual: None,
            scale: None,
            bias: None,
            mean: None,
            variance: None,
            spec,
            codes: None,
            names: ["scale", "bias", "residual"],
        }
    }

    pub(crate) fn with_residual<const D: usize>(mut self, residual: Tensor<D>) -> Self {
        self.residual = Some(residual.into_dispatch());
        self
    }

    pub(crate) fn with_params<const P: usize>(
        mut self,
        scale: Option<Tensor<P>>,
        bias: Option<Tensor<P>>,
    ) -> Self {
        self.scale = scale.map(Tensor::into_dispatch);
        self.bias = bias.map(Tensor::into_dispatch);
        self
    }

    pub(crate) fn with_provided<const P: usize>(
        mut self,
        mean: Tensor<P>,
        variance: Tensor<P>,
    ) -> Self {
        self.mean = Some(mean.into_dispatch());
        self.variance = Some(variance.into_dispatch());
        self
    }

    /// With the `alpha` of dynamic tanh.
    pub(crate) fn with_alpha(mut self, alpha: Tensor<1>) -> Self {
        self.variance = Some(alpha.into_dispatch());
        self
    }

    /// Under the names that `burn::nn` has for scale and bias.
    pub(crate) fn named_as_burn_does(mut self) -> Self {
        self.names[..2].copy_from_slice(&["gamma", "beta"]);
        self
    }

    /// Checks the call, then runs it.
    pub(crate) fn run<const D: usize>(self) -> Result<Outcome<D>, NormError> {
        self.check()?;
        Ok(self.register())
    }

    /// Checks everything that can refuse the call. Nothing is registered for it.
    pub(crate) fn check(&self) -> Result<(), NormError> {
        #[cfg(feature = "cube")]
        if let Some(query) = checked::Query::of(self) {
            return query.once(|| self.check_named());
        }
        self.check_named()
    }

    fn check_named(&self) -> Result<(), NormError> {
        let checked = self.check_unnamed();
        checked.map_err(|error| renamed(error, self.names))
    }

    /// The tensors, in the order of their fields.
    #[cfg(feature = "cube")]
    pub(super) fn tensors(&self) -> [Option<&DispatchTensor>; 6] {
        [
            Some(&self.input),
            self.residual.as_ref(),
            self.scale.as_ref(),
            self.bias.as_ref(),
            self.mean.as_ref(),
            self.variance.as_ref(),
        ]
    }

    fn check_unnamed(&self) -> Result<(), NormError> {
        let mut device = CallDevice::of(&self.input)?;
        let descs = self.descs(&mut device)?;
        device.check_activation(self.spec.activation, descs.input.dtype)?;
        device.check_activation(self.spec.reduction.function(), descs.input.dtype)?;
        if let Some((format, is_given)) = self.codes {
            let spec = QuantizedSpec {
                norm: self.spec.clone(),
                format,
            };
            let dtype = descs.input.dtype.accumulation();
            let ones = vec![1; descs.input.layout.rank()];
            let scale = is_given.then(|| TensorDesc::contiguous(ones, dtype));
            return device.check_forward(&spec.desc(descs, scale));
        }
        match self.spec.route(self.tracked(), self.residual.is_some()) {
            // Burn's operations have outputs as large as the kernel's.
            Route::Forward | Route::Composed => {
                device.check_forward(&self.desc(&self.spec, descs)?)
            }
            Route::Trained(forward) => {
                let desc = self.desc(&forward, descs.clone())?;
                device.check_forward(&desc)?;
                self.check_backward(&device, &desc, descs)
            }
        }
    }

    /// The layouts that the kernels are going to see, as far as they are known. Strides are not: with fusion, a tensor
    /// gets its strides when it is computed. A layout that a kernel refuses is copied to a contiguous one then, so the
    /// check of contiguous tensors holds for all of them.
    fn descs(&self, device: &mut CallDevice) -> Result<Descs, NormError> {
        let mut like_input = |name, tensor: &DispatchTensor| {
            let dtype = device.dtype(name, tensor)?;
            let shape = self.spec.seen_shape(&tensor.shape());
            Ok(TensorDesc::contiguous(shape.to_vec(), dtype))
        };
        let input = like_input("input", &self.input)?;
        let residual = self.residual.as_ref();
        let residual = residual.map(|tensor| like_input("residual", tensor));
        let residual = residual.transpose()?;
        let mut param = |name, tensor: &Option<DispatchTensor>| {
            let Some(tensor) = tensor else {
                return Ok(None);
            };
            let dtype = device.dtype(name, tensor)?;
            let shape = self.spec.seen_param_shape(&tensor.shape());
            Ok(Some(TensorDesc::contiguous(shape.to_vec(), dtype)))
        };
        Ok(Descs {
            input,
            residual,
            scale: param("scale", &self.scale)?,
            bias: param("bias", &self.bias)?,
            mean: param("mean", &self.mean)?,
            variance: param(self.spec.reduction.name_of_variance(), &self.variance)?,
        })
    }

    /// The description of a specification, the size of its statistics checked.
    fn desc(&self, spec: &NormSpec, descs: Descs) -> Result<NormDesc, NormError> {
        let desc = spec.desc(descs);
        // An empty input may have more rows than can be counted.
        let statistics = desc.statistics_desc();
        match spec.written_statistics.is_some() && statistics.layout.checked_elements().is_none() {
            true => Err(NormError::TooLarge {
                tensor: "statistics",
                shape: statistics.shape().to_vec(),
            }),
            false => Ok(desc),
        }
    }

    /// The inputs that autodiff tracks.
    pub(crate) fn tracked(&self) -> Tracked {
        let is_tracked = |tensor: &Option<DispatchTensor>| tensor.as_ref().is_some_and(is_tracked);
        Tracked {
            input: self::is_tracked(&self.input) || is_tracked(&self.residual),
            scale: is_tracked(&self.scale),
            bias: is_tracked(&self.bias),
            provided: is_tracked(&self.mean) || is_tracked(&self.variance),
        }
    }

    #[cfg(feature = "cube")]
    fn check_backward(
        &self,
        device: &CallDevice,
        forward: &NormDesc,
        descs: Descs,
    ) -> Result<(), NormError> {
        let tracked = self.tracked();
        let backward = BackwardSpec {
            norm: self.spec.trained(self.residual.is_some()),
            wants_input: tracked.input,
            wants_scale: tracked.scale,
            wants_bias: tracked.bias,
            wants_gate: tracked.input,
        };
        let dtype = self.spec.output_dtype.unwrap_or(descs.input.dtype);
        let dy = TensorDesc::new(descs.input.layout.clone(), dtype);
        let of_sum = self.spec.writes_sum.then(|| descs.input.clone());
        let of_sum = of_sum.filter(|_| tracked.input);
        let is_gated = self.spec.has_gate(self.residual.is_some());
        let descs = Descs {
            residual: descs.residual.filter(|_| is_gated),
            mean: None,
            variance: None,
            ..descs
        };
        device.check_backward(&backward.desc(descs, dy, saved(forward), of_sum))
    }

    /// Other backends compose the backward pass of their own operations.
    #[cfg(not(feature = "cube"))]
    fn check_backward(&self, _: &CallDevice, _: &NormDesc, _: Descs) -> Result<(), NormError> {
        Ok(())
    }

    /// Hands the call to the backend. [`check`](Self::check) has passed.
    pub(crate) fn register<const D: usize>(self) -> Outcome<D> {
        let Normalized {
            output,
            sum,
            statistics,
        } = Dispatch::normalize(
            Operands {
                input: self.input,
                residual: self.residual.into(),
                scale: self.scale.into(),
                bias: self.bias.into(),
                mean: self.mean.into(),
                variance: self.variance.into(),
            },
            self.spec,
        );
        Outcome {
            output: Tensor::from_dispatch(output),
            sum: sum.into_option().map(Tensor::from_dispatch),
            statistics: statistics.into_option(),
        }
    }
}

/// True if autodiff tracks a tensor. Quantized tensors, which the check of dtypes refuses, are not.
pub(super) fn is_tracked(tensor: &DispatchTensor) -> bool {
    tensor.dtype().is_float() && Dispatch::is_tracked(tensor)
}

/// The pairs of mean and reciprocal deviation that autodiff keeps for the backward pass.
#[cfg(feature = "cube")]
fn saved(desc: &NormDesc) -> Option<TensorDesc> {
    let (mean, variance) = match &desc.statistics {
        Statistics::None => return None,
        Statistics::Provided { mean, variance } => (mean.shape(), variance.shape()),
        _ => return Some(desc.statistics_desc()),
    };
    let rank = desc.input.layout.rank();
    let size = |shape: &[usize], dim: usize| {
        let dim = (dim + shape.len()).checked_sub(rank);
        dim.map_or(1, |dim| shape[dim])
    };
    let both = |dim| match size(mean, dim) {
        1 => size(variance, dim),
        size => size,
    };
    let shape: Vec<usize> = (0..rank).map(both).chain([2]).collect();
    Some(TensorDesc::contiguous(
        shape,
        desc.input.dtype.accumulation(),
    ))
}

/// An error in the caller's own names of scale, bias and residual.
fn renamed(mut error: NormError, [scale, bias, residual]: [&'static str; 3]) -> NormError {
    let rename = |tensor: &mut &'static str| match *tensor {
        "scale" => *tensor = scale,
        "bias" => *tensor = bias,
        "residual" => *tensor = residual,
        _ => {}
    };
    match &mut error {
        NormError::MixedDTypes {
            tensor, expected, ..
        } => {
            rename(tensor);
            if let Some(dtype) = expected.strip_suffix("like scale") {
                *expected = format!("{dtype}like {scale}");
            }
        }
        NormError::MixedCheckpointing { tensor, like, .. } => {
            rename(tensor);
            rename(like);
        }
        NormError::Rank { tensor, .. }
        | NormError::TooLarge { tensor, .. }
        | NormError::Broadcast { tensor, .. }
        | NormError::MixedDevices { tensor, .. }
        | NormError::UnsupportedDType { tensor, .. } => rename(tensor),
        _ => {}
    }
    error
}
