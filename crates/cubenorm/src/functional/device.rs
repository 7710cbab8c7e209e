//! Checks of a call against its device: backend, dtypes and limits.
//!
//! They run before the operation is registered. With fusion it runs later, where no caller is left to return an error to.

use burn::backend::{DispatchDevice, DispatchTensor, TensorMetadata};
use burn::tensor::{Device, GradientCheckpointingStrategy};
#[cfg(feature = "cube")]
use cubecl::client::Client;
#[cfg(feature = "cube")]
use cubenorm_core::BackwardDesc;
use cubenorm_core::{Activation, DType, NormDesc, NormError};

use crate::ops::dtype;

/// Device of a call, and what its tensors have to have in common.
pub(super) struct CallDevice {
    /// The input's, with its autodiff.
    device: Device,
    /// The client of a CubeCL runtime, `None` on other backends.
    #[cfg(feature = "cube")]
    client: Option<Client>,
    /// The first tensor with autodiff, and its strategy.
    checkpointing: Option<(&'static str, GradientCheckpointingStrategy)>,
}

impl CallDevice {
    /// The device of a call's input, if its backend is compiled in.
    pub(super) fn of(input: &DispatchTensor) -> Result<Self, NormError> {
        let device = Device::from(input.device());
        let bare = device.clone().without_autodiff();
        match bare.as_dispatch() {
            #[cfg(feature = "cube")]
            DispatchDevice::Cube(cube) => Ok(Self {
                client: Some(cube.client()),
                device,
                checkpointing: None,
            }),
            #[cfg(feature = "flex")]
            DispatchDevice::Flex(_) => Ok(Self {
                device,
                #[cfg(feature = "cube")]
                client: None,
                checkpointing: None,
            }),
            #[allow(unreachable_patterns)]
            other => Err(NormError::UnsupportedBackend {
                tensor: "input",
                device: format!("{device:?}"),
                instead: instead_of(&format!("{other:?}")),
            }),
        }
    }

    /// The dtype of a tensor of the call, if it is on the device and the device normalizes it.
    pub(super) fn dtype(
        &mut self,
        name: &'static str,
        tensor: &DispatchTensor,
    ) -> Result<DType, NormError> {
        let actual = Device::from(tensor.device());
        if actual != self.device {
            return Err(NormError::MixedDevices {
                tensor: name,
                expected: format!("{:?}", self.device.clone().without_autodiff()),
                actual: format!("{:?}", actual.without_autodiff()),
            });
        }
        self.check_checkpointing(name, &actual)?;
        let burn_dtype = tensor.dtype();
        let unsupported = |instead| NormError::UnsupportedDType {
            tensor: name,
            dtype: burn_dtype.name().to_owned(),
            device: format!("{:?}", self.device),
            instead,
        };
        let Some(dtype) = dtype(burn_dtype) else {
            return Err(unsupported("cast it to f16, bf16, f32 or f64"));
        };
        if !self.device.supports_dtype(burn_dtype) || !self.kernels_support(dtype) {
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

    /// Burn panics if tensors with autodiff differ in their strategies.
    fn check_checkpointing(
        &mut self,
        name: &'static str,
        device: &Device,
    ) -> Result<(), NormError> {
        let Some(actual) = device.gradient_checkpointing_strategy() else {
            return Ok(());
        };
        let &mut (like, expected) = self.checkpointing.get_or_insert((name, actual));
        match actual == expected {
            true => Ok(()),
            false => Err(NormError::MixedCheckpointing {
                tensor: name,
                actual: format!("{actual:?}"),
                expected: format!("{expected:?}"),
                like,
            }),
        }
    }

    /// Checks that the device computes an activation to the last digits of a dtype.
    pub(super) fn check_activation(
        &self,
        activation: Activation,
        dtype: DType,
    ) -> Result<(), NormError> {
        #[cfg(feature = "cube")]
        if let Some(client) = &self.client
            && !cubenorm_kernels::supports_activation(client, dtype, activation)
        {
            return Err(NormError::UnsupportedActivation {
                activation,
                dtype,
                device: format!("{:?}", self.device),
                instead: "cast the input to f32, or use flex (cpu does but for GELU)",
            });
        }
        // Other backends compose activations of their own operations.
        let _ = (activation, dtype);
        Ok(())
    }

    /// Checks a description, and that the device runs it.
    pub(super) fn check_forward(&self, desc: &NormDesc) -> Result<(), NormError> {
        #[cfg(feature = "cube")]
        if let Some(client) = &self.client {
            let checked = cubenorm_kernels::check_forward(client, desc);
            return checked.map_err(|refusal| self.refused("forward", refusal));
        }
        desc.problem().map(|_| ())
    }

    /// Checks that the device runs the backward pass of a description that is in order.
    #[cfg(feature = "cube")]
    pub(super) fn check_backward(&self, desc: &BackwardDesc) -> Result<(), NormError> {
        use cubenorm_kernels::Refusal;

        let Some(client) = &self.client else {
            return Ok(());
        };
        let mut checked = cubenorm_kernels::check_backward(client, desc);
        if let Err(Refusal::Launch(error)) = &checked
            && error.lacks_bindings()
        {
            // The backend multiplies by a gate in operations of its own.
            checked = cubenorm_kernels::check_backward(client, &desc.clone().without_gate());
        }
        checked.map_err(|refusal| self.refused("backward", refusal))
    }

    #[cfg(feature = "cube")]
    fn kernels_support(&self, dtype: DType) -> bool {
        let client = self.client.as_ref();
        client.is_none_or(|client| cubenorm_kernels::supports(client, dtype))
    }

    #[cfg(not(feature = "cube"))]
    fn kernels_support(&self, _: DType) -> bool {
        true
    }

    #[cfg(feature = "cube")]
    fn refused(&self, pass: &'static str, refusal: cubenorm_kernels::Refusal) -> NormError {
        use cubenorm_kernels::{LaunchError, Refusal};

        match refusal {
            Refusal::Launch(LaunchError::Description(error)) => error,
            refusal => NormError::DeviceLimit {
                device: format!("{:?}", self.device),
                pass,
                limit: refusal.to_string(),
            },
        }
    }
}

/// True if this thread's stream of a device captures a graph, from the warm-up on.
pub(crate) fn is_capturing(device: &Device) -> bool {
    #[cfg(feature = "cube")]
    if let DispatchDevice::Cube(cube) = device.clone().without_autodiff().as_dispatch() {
        return cube.client().is_capturing();
    }
    let _ = device;
    false
}

/// Advice for a device without a backend here, from the name that its debug form begins with.
fn instead_of(device: &str) -> &'static str {
    const CUBE: [(&str, &str); 5] = [
        ("Cube(Cuda", "turn on its feature `cuda`"),
        ("Cube(Hip", "turn on its feature `rocm`"),
        ("Cube(Metal", "turn on its feature `metal`"),
        ("Cube(Cpu", "turn on its feature `cpu`"),
        (
            "Cube(",
            "turn on its feature `wgpu`, or `vulkan`, `webgpu` or `metal`",
        ),
    ];
    if device.starts_with("Flex") {
        return "turn on its feature `flex`";
    }
    let found = CUBE.iter().find(|(name, _)| device.starts_with(name));
    found.map_or(
        "it has no feature for this backend, so move the tensors to a device of CubeCL or Flex",
        |(_, instead)| instead,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_feature_of_a_missing_backend() {
        for (device, feature) in [
            ("FlexDevice", "`flex`"),
            ("Flex(FlexDevice)", "`flex`"),
            ("Cube(Cuda(0))", "`cuda`"),
            ("Cube(Hip(AmdDevice { index: 0 }))", "`rocm`"),
            ("Cube(Wgpu(DefaultDevice))", "`wgpu`"),
            ("Cube(Cpu(CpuDevice))", "`cpu`"),
            ("NdArray(Cpu)", "no feature"),
            ("LibTorch(Cpu)", "no feature"),
        ] {
            let instead = instead_of(device);
            assert!(instead.contains(feature), "{device}: {instead}");
        }
    }
}
