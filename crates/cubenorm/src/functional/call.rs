//! A call on Burn's tensors: checked, then handed to the backend.

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Device, Tensor};
use cubenorm_core::{Activation, DType, NormError, TensorDesc};

use crate::ops::{Descs, NormBackend, NormSpec, Normalized, Operands, dtype};

/// A normalization that is about to run. Parameters have a rank of their own.
pub(crate) struct Call<const D: usize, const P: usize> {
    pub(crate) input: Tensor<D>,
    pub(crate) residual: Option<Tensor<D>>,
    pub(crate) scale: Option<Tensor<P>>,
    pub(crate) bias: Option<Tensor<P>>,
    pub(crate) mean: Option<Tensor<P>>,
    pub(crate) variance: Option<Tensor<P>>,
    pub(crate) spec: NormSpec,
    /// What the caller calls scale and bias.
    pub(crate) names: [&'static str; 2],
}

/// What came of it.
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

    pub(crate) fn with_given(mut self, mean: Tensor<P>, variance: Tensor<P>) -> Self {
        (self.mean, self.variance) = (Some(mean), Some(variance));
        self
    }

    /// Under the names that `burn::nn` has for scale and bias.
    pub(crate) fn named_as_burn_does(mut self) -> Self {
        self.names = ["gamma", "beta"];
        self
    }

    /// Checks the call before anything is registered: with fusion it runs later, where nobody could
    /// be told. Then runs it.
    pub(crate) fn run(self) -> Result<Outcome<D>, NormError> {
        let [scale_name, bias_name] = self.names;
        let device = self.input.device();
        let like_input = |name, tensor: &Tensor<D>| {
            let dtype = dtype_on(name, tensor, &device)?;
            let shape = self.spec.seen_shape(&tensor.dims());
            Ok(TensorDesc::contiguous(shape.to_vec(), dtype))
        };
        let param = |name, tensor: &Option<Tensor<P>>| {
            let Some(tensor) = tensor else {
                return Ok(None);
            };
            let dtype = dtype_on(name, tensor, &device)?;
            let shape = self.spec.seen_param_shape(&tensor.dims());
            Ok(Some(TensorDesc::contiguous(shape.to_vec(), dtype)))
        };
        let residual = self.residual.as_ref();
        let descs = Descs {
            input: like_input("input", &self.input)?,
            residual: residual
                .map(|tensor| like_input("residual", tensor))
                .transpose()?,
            scale: param(scale_name, &self.scale)?,
            bias: param(bias_name, &self.bias)?,
            mean: param("mean", &self.mean)?,
            variance: param("variance", &self.variance)?,
        };
        check_activation(self.spec.activation, descs.input.dtype, &device)?;
        let problem = self.spec.desc(descs).problem();
        problem.map_err(|error| renamed(error, scale_name, bias_name))?;

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
        Ok(Outcome {
            output: Tensor::from_dispatch(output),
            sum: sum.into_option().map(Tensor::from_dispatch),
            statistics: statistics.into_option(),
        })
    }
}

/// A tensor's dtype, where the tensor is on the device and the device has it.
fn dtype_on<const D: usize>(
    name: &'static str,
    tensor: &Tensor<D>,
    device: &Device,
) -> Result<DType, NormError> {
    let actual = tensor.device();
    if actual.clone().without_autodiff() != device.clone().without_autodiff() {
        return Err(NormError::MixedDevices {
            tensor: name,
            expected: format!("{device:?}"),
            actual: format!("{actual:?}"),
        });
    }
    let burn_dtype = tensor.dtype();
    let unsupported = |instead| NormError::UnsupportedDType {
        tensor: name,
        dtype: burn_dtype.name().to_owned(),
        device: format!("{device:?}"),
        instead,
    };
    let Some(dtype) = dtype(burn_dtype) else {
        return Err(unsupported("cast it to f16, bf16, f32 or f64"));
    };
    if !device.supports_dtype(burn_dtype) || is_cpu(device) && !dtype.is_rounded_by_processor() {
        return Err(unsupported(match dtype {
            _ if burn_dtype == burn::tensor::DType::Flex32 => "cast it to f32",
            DType::F64 => "cast it to f32, or use cuda, rocm, cpu or flex",
            DType::BF16 => {
                "cast it to f32, or use cuda, rocm, metal, flex, or cpu where the processor rounds to it"
            }
            _ => "cast it to f32, or use cuda, rocm, metal, cpu or flex",
        }));
    }
    Ok(dtype)
}

/// Checks that a device computes an activation to the last digits of a dtype.
#[cfg(feature = "cube")]
fn check_activation(
    activation: Activation,
    dtype: DType,
    device: &Device,
) -> Result<(), NormError> {
    use burn::backend::DispatchDevice;

    match device.clone().without_autodiff().as_dispatch() {
        DispatchDevice::Cube(cube)
            if !cubenorm_kernels::supports_activation(&cube.client(), dtype, activation) =>
        {
            Err(NormError::UnsupportedActivation {
                activation,
                dtype,
                device: format!("{device:?}"),
                instead: "cast the input to f32, or use flex (cpu does but for GELU)",
            })
        }
        _ => Ok(()),
    }
}

/// Without CubeCL's runtimes activations are Burn's own operations.
#[cfg(not(feature = "cube"))]
fn check_activation(_: Activation, _: DType, _: &Device) -> Result<(), NormError> {
    Ok(())
}

/// Whether CubeCL compiles for this machine's processor.
fn is_cpu(device: &Device) -> bool {
    #[cfg(feature = "cpu")]
    return device.clone().without_autodiff() == Device::cpu();
    #[cfg(not(feature = "cpu"))]
    {
        let _ = device;
        false
    }
}

/// An error in the caller's own names for scale and bias.
fn renamed(error: NormError, scale: &'static str, bias: &'static str) -> NormError {
    let name = |tensor: &'static str| match tensor {
        "scale" => scale,
        "bias" => bias,
        other => other,
    };
    match error {
        NormError::Broadcast {
            tensor,
            shape,
            input,
        } => NormError::Broadcast {
            tensor: name(tensor),
            shape,
            input,
        },
        NormError::MixedDTypes {
            tensor,
            expected,
            actual,
            input,
        } => NormError::MixedDTypes {
            tensor: name(tensor),
            expected,
            actual,
            input,
        },
        other => other,
    }
}
