//! The fused kernels, on every runtime of CubeCL's.

use burn::backend::TensorMetadata;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::zspace::metadata::Metadata;
use cubenorm_core::{DType, Layout, StrategyChoice, TensorDesc};
use cubenorm_kernels::{
    ForwardTensors, GradientTensors, LaunchError, Tensor, hardware, launch_forward, launch_gradient,
};

use super::spec::Descs;
use super::view::shaped;
use super::{
    BackwardOperands, BackwardSpec, Gradients, NormBackend, NormSpec, Normalized, Operands,
    Optional, dtype,
};
use crate::tuning::tuning;

impl NormBackend for CubeBackend {
    fn normalize(operands: Operands<Self>, spec: NormSpec) -> Normalized<Self> {
        let like = (operands.input.shape(), operands.input.dtype);
        let see = |tensor: CubeTensor| {
            let shape = spec.seen_shape(&tensor.shape());
            in_shape(untiled(tensor), &shape)
        };
        let input = see(operands.input);
        let residual = operands.residual.into_option().map(see);
        let [scale, bias, mean, variance] = [
            operands.scale,
            operands.bias,
            operands.mean,
            operands.variance,
        ]
        .map(|tensor| present(tensor, &spec));
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
            output: in_shape(wrap(outputs.output, &input, like.1), &like.0),
            sum: optional(outputs.sum, &input, Some(&like)),
            statistics: optional(outputs.statistics, &input, None),
        }
    }

    fn normalize_backward(operands: BackwardOperands<Self>, spec: BackwardSpec) -> Gradients<Self> {
        let like = |tensor: &CubeTensor| (tensor.shape(), tensor.dtype);
        let likes = [
            Some(like(&operands.input)),
            operands.scale.as_option().map(like),
            operands.bias.as_option().map(like),
        ];
        let norm = &spec.norm;
        let [input, output_gradient] = [operands.input, operands.output_gradient].map(|tensor| {
            let shape = norm.seen_shape(&tensor.shape());
            in_shape(untiled(tensor), &shape)
        });
        let [scale, bias] = [operands.scale, operands.bias].map(|tensor| present(tensor, norm));
        let saved = operands.saved.into_option().map(untiled);
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
        let [of_input, of_scale, of_bias] = likes.each_ref().map(Option::as_ref);
        Gradients {
            input: optional(outputs.input, &input, of_input),
            scale: optional(outputs.scale, &input, of_scale),
            bias: optional(outputs.bias, &input, of_bias),
        }
    }
}

fn choice(client: &Client) -> StrategyChoice {
    tuning().choice(&hardware(client))
}

/// The functions of this crate have validated the call and asked the device for its dtypes, so what
/// is left is a plan that the device cannot hold, which is a defect of ours.
fn launched<T>(outputs: Result<T, LaunchError>) -> T {
    outputs.unwrap_or_else(|error| panic!("{error}"))
}

fn present(tensor: Optional<CubeBackend>, spec: &NormSpec) -> Option<CubeTensor> {
    let see = |tensor: CubeTensor| {
        let shape = spec.seen_param_shape(&tensor.shape());
        in_shape(untiled(tensor), &shape)
    };
    tensor.into_option().map(see)
}

fn handle(tensor: &Option<CubeTensor>) -> Option<cubecl::server::Handle> {
    tensor.as_ref().map(|tensor| tensor.handle.clone())
}

/// A result as a tensor on the input's device, of the dtype of what it is like, as far as kernels tell them apart.
fn wrap(tensor: Tensor, input: &CubeTensor, like: burn::tensor::DType) -> CubeTensor {
    let TensorDesc { layout, dtype } = tensor.desc;
    let Layout { shape, strides } = layout;
    let dtype = match like {
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

/// A result in the shape and of the dtype of what it is like, or as the kernels have it.
fn optional(
    tensor: Option<Tensor>,
    input: &CubeTensor,
    like: Option<&(Shape, burn::tensor::DType)>,
) -> Optional<CubeBackend> {
    let tensor = tensor.map(|tensor| match like {
        Some((shape, dtype)) => in_shape(wrap(tensor, input, *dtype), shape),
        None => {
            let dtype = burn_dtype(tensor.desc.dtype);
            wrap(tensor, input, dtype)
        }
    });
    tensor.into()
}

fn burn_dtype(dtype: DType) -> burn::tensor::DType {
    match dtype {
        DType::F16 => burn::tensor::DType::F16,
        DType::BF16 => burn::tensor::DType::BF16,
        DType::F32 => burn::tensor::DType::F32,
        DType::F64 => burn::tensor::DType::F64,
    }
}

/// A tensor in a shape, which it may have already. Burn copies a tensor of any strides to reshape it, a convolution's
/// channels that are last in memory to have them in groups and once more to have them back.
fn in_shape(mut tensor: CubeTensor, shape: &Shape) -> CubeTensor {
    if tensor.shape() == *shape {
        return tensor;
    }
    let layout = Layout::strided(tensor.meta.shape().to_vec(), tensor.meta.strides().to_vec());
    match layout.reshaped(shape) {
        Some(layout) => {
            *tensor.meta = Metadata::new(layout.shape, layout.strides);
            tensor
        }
        None => shaped::<CubeBackend>(tensor, shape),
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
