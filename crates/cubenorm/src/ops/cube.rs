//! The fused kernels, on every runtime of CubeCL's.

use burn::backend::TensorMetadata;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::zspace::metadata::Metadata;
use cubenorm_core::{DType, Layout, StrategyChoice, TensorDesc};
use cubenorm_kernels::{
    ForwardTensors, GradientTensors, LaunchError, Tensor, hardware, launch_forward, launch_gradient,
};

use super::spec::Descs;
use super::{
    BackwardOperands, BackwardSpec, Gradients, NormBackend, NormSpec, Normalized, Operands,
    Optional, dtype,
};
use crate::tuning::tuning;

impl NormBackend for CubeBackend {
    fn normalize(operands: Operands<Self>, spec: NormSpec) -> Normalized<Self> {
        let input = untiled(operands.input);
        let [residual, scale, bias, mean, variance] = [
            operands.residual,
            operands.scale,
            operands.bias,
            operands.mean,
            operands.variance,
        ]
        .map(present);
        let norm = spec.desc(Descs {
            input: desc(&input),
            residual: residual.as_ref().map(desc),
            scale: scale.as_ref().map(desc),
            bias: bias.as_ref().map(desc),
            mean: mean.as_ref().map(desc),
            variance: variance.as_ref().map(desc),
        });
        let tensors = ForwardTensors {
            input: input.handle.clone(),
            residual: handle(&residual),
            scale: handle(&scale),
            bias: handle(&bias),
            mean: handle(&mean),
            variance: handle(&variance),
            output: None,
        };
        let outputs = launched(launch_forward(
            &input.client,
            &norm,
            &tensors,
            choice(&input.client),
        ));
        Normalized {
            output: wrap(outputs.output, &input),
            sum: optional(outputs.sum, &input),
            statistics: optional(outputs.statistics, &input),
        }
    }

    fn normalize_backward(operands: BackwardOperands<Self>, spec: BackwardSpec) -> Gradients<Self> {
        let input = untiled(operands.input);
        let output_gradient = untiled(operands.output_gradient);
        let [saved, scale, bias] = [operands.saved, operands.scale, operands.bias].map(present);
        let gradient = spec.desc(
            Descs {
                input: desc(&input),
                residual: None,
                scale: scale.as_ref().map(desc),
                bias: bias.as_ref().map(desc),
                mean: None,
                variance: None,
            },
            desc(&output_gradient),
            saved.as_ref().map(desc),
        );
        let tensors = GradientTensors {
            input: input.handle.clone(),
            output_gradient: output_gradient.handle.clone(),
            saved: handle(&saved),
            scale: handle(&scale),
            bias: handle(&bias),
            input_gradient: None,
        };
        let outputs = launched(launch_gradient(
            &input.client,
            &gradient,
            &tensors,
            choice(&input.client),
        ));
        Gradients {
            input: optional(outputs.input, &input),
            scale: optional(outputs.scale, &input),
            bias: optional(outputs.bias, &input),
        }
    }
}

fn choice(client: &Client) -> StrategyChoice {
    match tuning().applies_to(&hardware(client)) {
        true => StrategyChoice::Tuned,
        false => StrategyChoice::Inferred,
    }
}

/// The functions of this crate have validated the call and asked the device for its dtypes, so what
/// is left is a plan that the device cannot hold, which is a defect of ours.
fn launched<T>(outputs: Result<T, LaunchError>) -> T {
    outputs.unwrap_or_else(|error| panic!("{error}"))
}

fn present(tensor: Optional<CubeBackend>) -> Option<CubeTensor> {
    tensor.into_option().map(untiled)
}

fn handle(tensor: &Option<CubeTensor>) -> Option<cubecl::server::Handle> {
    tensor.as_ref().map(|tensor| tensor.handle.clone())
}

/// A result as a tensor on the input's device.
fn wrap(tensor: Tensor, input: &CubeTensor) -> CubeTensor {
    let TensorDesc { layout, dtype } = tensor.desc;
    let Layout { shape, strides } = layout;
    let dtype = match input.dtype {
        flex32 @ burn::tensor::DType::Flex32 if dtype == DType::F32 => flex32,
        _ => burn_dtype(dtype),
    };
    let (client, device) = (input.client.clone(), input.device.clone());
    CubeTensor::new(
        client,
        tensor.handle,
        Metadata::new(shape, strides),
        device,
        dtype,
    )
}

fn optional(tensor: Option<Tensor>, input: &CubeTensor) -> Optional<CubeBackend> {
    tensor.map(|tensor| wrap(tensor, input)).into()
}

fn burn_dtype(dtype: DType) -> burn::tensor::DType {
    match dtype {
        DType::F16 => burn::tensor::DType::F16,
        DType::BF16 => burn::tensor::DType::BF16,
        DType::F32 => burn::tensor::DType::F32,
        DType::F64 => burn::tensor::DType::F64,
    }
}

/// A tensor whose shape and strides are those of its elements: Burn may keep matrices in tiles,
/// which are strides of another rank.
fn untiled(tensor: CubeTensor) -> CubeTensor {
    match tensor.meta.rank() == tensor.rank() {
        true => tensor,
        false => burn_cubecl::kernel::into_contiguous(tensor),
    }
}

fn desc(tensor: &CubeTensor) -> TensorDesc {
    let layout = Layout::strided(tensor.meta.shape().to_vec(), tensor.meta.strides().to_vec());
    let dtype = dtype(tensor.dtype).expect("a normalization checks its dtypes first");
    TensorDesc::new(layout, dtype)
}
