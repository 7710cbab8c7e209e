//! A call on Burn's tensors: checked, then handed to the backend.

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;
#[cfg(feature = "cube")]
use cubenorm_core::Statistics;
use cubenorm_core::{NormDesc, NormError, TensorDesc};

use super::device::CallDevice;
#[cfg(feature = "cube")]
use crate::ops::BackwardSpec;
use crate::ops::{Descs, NormBackend, NormSpec, Normalized, Operands, Route, Tracked};

/// A normalization that is about to run. Parameters have a rank of their own.
pub(crate) struct Call<const D: usize, const P: usize> {
    pub(crate) input: Tensor<D>,
    pub(crate) residual: Option<Tensor<D>>,
    pub(crate) scale: Option<Tensor<P>>,
    pub(crate) bias: Option<Tensor<P>>,
    pub(crate) mean: Option<Tensor<P>>,
    pub(crate) variance: Option<Tensor<P>>,
    pub(crate) spec: NormSpec,
    /// The caller's names of scale and bias.
    pub(crate) names: [&'static str; 2],
}

/// Results of a call.
pub(crate) struct Outcome<const D: usize> {
    pub(crate) output: Tensor<D>,
    pub(crate) sum: Option<Tensor<D>>,
    /// Two numbers of each row; of a rank one higher than the input's.
    pub(crate) statistics: Option<FloatTensor<Dispatch>>,
}

impl<const D: usize, const P: usize> Call<D, P> {
    pub(crate) fn new(input: Tensor<D>, spec: NormSpec) -> Self {
        Self {
            input,
            residual: None,
            scale: None,
            bias: None,
            mean: None,
            variance: None,
            spec,
            names: ["scale", "bias"],
        }
    }

    pub(crate) fn with_params(mut self, scale: Option<Tensor<P>>, bias: Option<Tensor<P>>) -> Self {
        (self.scale, self.bias) = (scale, bias);
        self
    }

    pub(crate) fn with_provided(mut self, mean: Tensor<P>, variance: Tensor<P>) -> Self {
        (self.mean, self.variance) = (Some(mean), Some(variance));
        self
    }

    /// Under the names that `burn::nn` has for scale and bias.
    pub(crate) fn named_as_burn_does(mut self) -> Self {
        self.names = ["gamma", "beta"];
        self
    }

    /// Checks the call, then runs it.
    pub(crate) fn run(self) -> Result<Outcome<D>, NormError> {
        self.check()?;
        Ok(self.register())
    }

    /// Checks everything that can refuse the call. Nothing is registered for it.
    pub(crate) fn check(&self) -> Result<(), NormError> {
        let checked = self.check_unnamed();
        checked.map_err(|error| renamed(error, self.names))
    }

    fn check_unnamed(&self) -> Result<(), NormError> {
        let mut device = CallDevice::of(&self.input)?;
        let descs = self.descs(&mut device)?;
        device.check_activation(self.spec.activation, descs.input.dtype)?;
        match self.spec.route(self.tracked(), self.residual.is_some()) {
            // Burn's operations have outputs as large as the kernel's.
            Route::Forward | Route::Composed => {
                device.check_forward(&self.desc(&self.spec, descs)?)
            }
            Route::Trained(forward) => {
                if self.residual.is_some() {
                    // The route leaves it out.
                    self.desc(&self.spec, descs.clone())?.problem()?;
                }
                let descs = Descs {
                    residual: None,
                    ..descs
                };
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
        let mut like_input = |name, tensor: &Tensor<D>| {
            let dtype = device.dtype(name, tensor)?;
            let shape = self.spec.seen_shape(&tensor.dims());
            Ok(TensorDesc::contiguous(shape.to_vec(), dtype))
        };
        let input = like_input("input", &self.input)?;
        let residual = self.residual.as_ref();
        let residual = residual.map(|tensor| like_input("residual", tensor));
        let residual = residual.transpose()?;
        let mut param = |name, tensor: &Option<Tensor<P>>| {
            let Some(tensor) = tensor else {
                return Ok(None);
            };
            let dtype = device.dtype(name, tensor)?;
            let shape = self.spec.seen_param_shape(&tensor.dims());
            Ok(Some(TensorDesc::contiguous(shape.to_vec(), dtype)))
        };
        Ok(Descs {
            input,
            residual,
            scale: param("scale", &self.scale)?,
            bias: param("bias", &self.bias)?,
            mean: param("mean", &self.mean)?,
            variance: param("variance", &self.variance)?,
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

    fn tracked(&self) -> Tracked {
        let param = |tensor: &Option<Tensor<P>>| tensor.as_ref().is_some_and(Tensor::is_tracked);
        let residual = self.residual.as_ref();
        Tracked {
            input: self.input.is_tracked() || residual.is_some_and(Tensor::is_tracked),
            scale: param(&self.scale),
            bias: param(&self.bias),
            provided: param(&self.mean) || param(&self.variance),
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
            norm: self.spec.clone(),
            wants_input: tracked.input,
            wants_scale: tracked.scale,
            wants_bias: tracked.bias,
        };
        let gradient = descs.input.clone();
        let descs = Descs {
            mean: None,
            variance: None,
            ..descs
        };
        device.check_backward(&backward.desc(descs, gradient, saved(forward)))
    }

    /// Other backends compose the backward pass of their own operations.
    #[cfg(not(feature = "cube"))]
    fn check_backward(&self, _: &CallDevice, _: &NormDesc, _: Descs) -> Result<(), NormError> {
        Ok(())
    }

    /// Hands the call to the backend. [`check`](Self::check) has passed.
    pub(crate) fn register(self) -> Outcome<D> {
        let param = |tensor: Option<Tensor<P>>| tensor.map(Tensor::into_dispatch).into();
        let Normalized {
            output,
            sum,
            statistics,
        } = Dispatch::normalize(
            Operands {
                input: self.input.into_dispatch(),
                residual: self.residual.map(Tensor::into_dispatch).into(),
                scale: param(self.scale),
                bias: param(self.bias),
                mean: param(self.mean),
                variance: param(self.variance),
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

/// An error in the caller's own names of scale and bias.
fn renamed(mut error: NormError, [scale, bias]: [&'static str; 2]) -> NormError {
    let rename = |tensor: &mut &'static str| match *tensor {
        "scale" => *tensor = scale,
        "bias" => *tensor = bias,
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
